//! Reading and writing memory of others, by messages: the owner does it when it makes
//! progress.
//!
//! Every operation is answered, so its end is its delivery. Writes and atomic operations keep their
//! place among the messages to the same peer; the bytes of a long read may be overtaken by later
//! writes.

use crate::device::endpoint::EndpointCore;
use crate::device::operation::{OneSided, Refusal};
use crate::device::protocol::frame::{Frame, LONGEST};
use crate::device::protocol::stream::{Queued, Stream, StreamKind, TransferSource};
use crate::device::protocol::wire::Arrived;
use crate::device::resource::buffers::{ArrivedPayload, Buffer};
use crate::device::resource::completion::{Class, Completion, CompletionTicket, WITH_DATA, error};

/// The flags that a remote write with data is reported with: `FI_RMA | FI_REMOTE_WRITE`.
const REMOTE_WRITE: u64 = 1 << 2 | 1 << 13;

/// Target of a one-sided operation.
#[derive(Clone, Copy, Debug)]
pub struct RmaTarget {
    /// Number of the peer whose memory it is.
    pub peer: u32,
    /// The offset in the region.
    pub address: u64,
    /// The region's key.
    pub key: u64,
}

impl EndpointCore {
    /// Writes to remote memory.
    ///
    /// # Errors
    ///
    /// It did not start.
    pub fn write(
        &mut self,
        to: RmaTarget,
        buffer: &Buffer,
        data: Option<u64>,
        ticket: CompletionTicket,
        inject: bool,
    ) -> Result<(), Refusal> {
        if buffer.len() > LONGEST {
            return Err(Refusal::TooLong);
        }
        self.check(to.peer)?;
        self.activity.called(false);
        let into = Buffer::default();
        let id = self.onesided.insert(OneSided { peer: to.peer, ticket, into, came: 0 });
        let kind = StreamKind::Write { address: to.address, key: to.key, id, data };
        let source = TransferSource::new(buffer, inject);
        let stream = Stream { kind, source, at: 0, end: buffer.len(), then: None };
        self.enqueue(to.peer, Queued::Stream(stream));
        self.push_peer(to.peer);
        Ok(())
    }

    /// Reads remote memory.
    ///
    /// # Errors
    ///
    /// It did not start.
    pub fn read(
        &mut self,
        from: RmaTarget,
        buffer: &Buffer,
        ticket: CompletionTicket,
    ) -> Result<(), Refusal> {
        if buffer.len() > LONGEST {
            return Err(Refusal::TooLong);
        }
        self.check(from.peer)?;
        self.activity.called(false);
        let into = buffer.clone();
        let id = self.onesided.insert(OneSided { peer: from.peer, ticket, into, came: 0 });
        let RmaTarget { address, key, .. } = from;
        self.post(from.peer, Frame::Read { address, key, id, len: buffer.len() as u64 }, &[]);
        Ok(())
    }

    /// Takes a piece of a peer's write to our memory, at (key, offset) of a region.
    pub(crate) fn take_write(
        &mut self,
        peer: u32,
        (key, address): (u64, u64),
        id: u64,
        last: bool,
        data: Option<u64>,
        payload: ArrivedPayload,
    ) {
        let error = match self.regions.part(key, address, payload.len() as u64, true) {
            Some(part) => {
                payload.copy_to(&part, 0);
                0
            }
            None if payload.is_empty() => 0,
            None => error::NO_KEY,
        };
        if error != 0 {
            // Once is enough: the origin does not know the id any more when the next one comes.
            return self.post(peer, Frame::Done { id, error }, &[]);
        }
        if last {
            self.reports.remote(Class::RemoteWrite);
            self.regions.count(key, true);
            if let Some(data) = data {
                let source = self.peers[peer as usize].listed;
                let flags = REMOTE_WRITE | WITH_DATA;
                self.reports.tell(true, Completion { flags, data, source, ..Completion::default() });
            }
            self.post(peer, Frame::Done { id, error: 0 }, &[]);
        }
    }

    /// Takes a peer's read of our memory, at (key, offset) of a region.
    pub(crate) fn take_read(&mut self, peer: u32, (key, address): (u64, u64), id: u64, len: u64) {
        match self.regions.part(key, address, len, false) {
            Some(part) if len > 0 => {
                self.reports.remote(Class::RemoteRead);
                self.regions.count(key, false);
                let (kind, source) = (StreamKind::Rendezvous { receive: id }, TransferSource::Buffer(part));
                let stream = Stream { kind, source, at: 0, end: len as usize, then: None };
                if self.check(peer) != Err(Refusal::Unreachable) {
                    self.stream(peer, stream);
                }
            }
            part => {
                let error = if part.is_some() || len == 0 { 0 } else { error::NO_KEY };
                self.post(peer, Frame::Done { id, error }, &[]);
            }
        }
    }

    /// Takes bytes that a read of ours asked for.
    pub(crate) fn take_read_data(&mut self, frame: &Arrived, peer: u32, id: u64, offset: u64) {
        let Some(operation) = self.onesided.get_mut(id).filter(|o| o.peer == peer) else { return };
        if offset != operation.came as u64 || frame.payload.len() > operation.into.len() - operation.came {
            return;
        }
        frame.payload.copy_to(&operation.into, operation.came);
        operation.came += frame.payload.len();
        if operation.came == operation.into.len() {
            self.take_done(peer, id, 0);
        }
    }

    /// Takes the end of an operation of ours.
    /// Any other number than the known errors is reported as one of them.
    pub(crate) fn take_done(&mut self, peer: u32, id: u64, error: i32) {
        let error = if error == 0 || error == error::NO_KEY { error } else { error::INVALID };
        if self.onesided.get_mut(id).is_some_and(|o| o.peer == peer)
            && let Some(operation) = self.onesided.remove(id)
        {
            self.reports.end(&operation.ticket, error);
        }
    }

    /// Takes the old values of an atomic operation of ours, and its end.
    pub(crate) fn take_atomic_result(&mut self, peer: u32, id: u64, error: i32, found: ArrivedPayload) {
        if let Some(operation) = self.onesided.get_mut(id).filter(|o| o.peer == peer) {
            found.copy_to(&operation.into, 0);
            self.take_done(peer, id, error);
        }
    }
}
