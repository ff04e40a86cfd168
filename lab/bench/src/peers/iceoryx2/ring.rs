//! One publisher and several subscribers of iceoryx2, for the experiment `broadcast`.
#![allow(unsafe_code)]

use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;

use super::stage::{Attempt, Node, RunFolder, Service, failed};
use super::{PLACES, connect, subscriber};
use crate::primitives::broadcast::MeasuredRing;
use towpath_host::Error;

/// Publish-subscribe service that each participant opens by a node of its own.
pub struct IceoryxRing {
    folder: RunFolder,
    bytes: usize,
    procs: usize,
}

/// A participant's port, which its service and node outlive.
pub struct RingPort<T> {
    port: T,
    receivers: usize,
    _service: Service<[u8]>,
    _node: Node,
}

impl<T> RingPort<T> {
    /// Returns whether a message was sent to every receiver.
    fn all_got(&self, sent: Result<usize, impl ToString>) -> Result<(), String> {
        let receivers = sent.map_err(|e| e.to_string())?;
        if receivers == self.receivers {
            return Ok(());
        }
        Err(format!("a message was sent to {receivers} of {} receivers", self.receivers))
    }
}

impl IceoryxRing {
    /// Ring for messages of so many bytes, for participants of which one publishes.
    pub fn new(bytes: u64, procs: u32) -> Result<IceoryxRing, Error> {
        set_log_level(LogLevel::Fatal);
        Ok(IceoryxRing { folder: RunFolder::new()?, bytes: bytes as usize, procs: procs as usize })
    }

    /// Opens the service; the publisher creates it.
    fn service(&self, node: &Node, is_new: bool) -> Attempt<Service<[u8]>> {
        let name = ServiceName::new("ring").map_err(failed("naming a service"))?;
        let builder = node
            .service_builder(&name)
            .publish_subscribe::<[u8]>()
            .enable_safe_overflow(false)
            .history_size(0)
            .subscriber_max_buffer_size(((1 << 20) / self.bytes).clamp(4, PLACES))
            .subscriber_max_borrowed_samples(1)
            .max_subscribers(self.procs)
            .max_publishers(1)
            .max_nodes(self.procs);
        if is_new {
            builder.create().map_err(failed("creating a service (is there room in /dev/shm?)"))
        } else {
            builder.open().map_err(failed("opening a service"))
        }
    }

    fn publisher(&self) -> Attempt<RingPort<Publisher<ipc::Service, [u8], ()>>> {
        let node = self.folder.node()?;
        let service = self.service(&node, true)?;
        let port = service
            .publisher_builder()
            .max_loaned_samples(1)
            .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
            .initial_max_slice_len(self.bytes)
            .create()
            .map_err(failed("creating a publisher (is there room in /dev/shm?)"))?;
        Ok(RingPort { port, receivers: self.procs - 1, _service: service, _node: node })
    }

    fn subscriber(&self) -> Attempt<RingPort<Subscriber<ipc::Service, [u8], ()>>> {
        let node = self.folder.node()?;
        let service = self.service(&node, false)?;
        let port = subscriber(&service)?;
        connect(&port)?;
        Ok(RingPort { port, receivers: 0, _service: service, _node: node })
    }
}

impl MeasuredRing for IceoryxRing {
    type Writer = RingPort<Publisher<ipc::Service, [u8], ()>>;
    type Reader = RingPort<Subscriber<ipc::Service, [u8], ()>>;

    fn writer(&self) -> Result<Self::Writer, String> {
        self.publisher().map_err(|e| e.to_string())
    }

    fn reader(&self) -> Result<Self::Reader, String> {
        self.subscriber().map_err(|e| e.to_string())
    }

    fn send(writer: &mut Self::Writer, message: &[u8]) -> Result<(), String> {
        let sample = writer.port.loan_slice_uninit(message.len()).map_err(|e| e.to_string())?;
        writer.all_got(sample.write_from_slice(message).send())
    }

    fn send_in_place(
        writer: &mut Self::Writer,
        bytes: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), String> {
        let sample = writer.port.loan_slice_uninit(bytes).map_err(|e| e.to_string())?;
        // SAFETY: it lies in shared memory, whose bytes are the kernel's zeros or an earlier
        // message's.
        let mut sample = unsafe { sample.assume_init() };
        write(sample.payload_mut());
        writer.all_got(sample.send())
    }

    fn close(_: &mut Self::Writer) {}

    /// Polls, since it has no blocking receive.
    fn receive(
        reader: &mut Self::Reader,
        has_ended: impl Fn() -> bool,
        take: impl FnOnce(&[u8]),
    ) -> Result<bool, String> {
        loop {
            // Before the port is looked at: what was sent before is there.
            let is_last = has_ended();
            match reader.port.receive().map_err(|e| e.to_string())? {
                Some(sample) => {
                    take(sample.payload());
                    return Ok(true);
                }
                None if is_last => return Ok(false),
                None => std::thread::yield_now(),
            }
        }
    }
}
