//! `tp_queue_*`: bounded queues of messages of one size, of many senders and receivers.
//!
//! A message is 8 to 64 bytes in steps of 8, or 128, 256, … 4,096: to Rust programs it is
//! `[u64; N]`.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::time::Duration;

use towpath_shm::{World, WorldQueue, WorldVenue};
use towpath_sync::queues::{
    Mpmc, QueueKind, QueueObject, TransferError, ValueReceiver, ValueSender, WordLine, lines_of,
};

use crate::call::{ALONE, Handle, MappingEntry, Out, Owned, closing, guarded, of, opening};
use crate::fault::Fault;

type Venue<const N: usize> = WorldVenue<[u64; N], Mpmc>;

/// A queue of messages of any of the sizes.
trait AnySize {
    fn sender(&self) -> Result<TpSender, TransferError>;
    fn receiver(&self) -> Result<TpReceiver, TransferError>;
}

/// Its sender.
trait AnySender {
    /// # Safety
    ///
    /// A message can be read at `from`.
    unsafe fn send(&self, from: *const c_void, ns: u64) -> Result<(), TransferError>;
    fn close(&self);
}

/// Its receiver.
trait AnyReceiver {
    /// # Safety
    ///
    /// A message can be written at `to`.
    unsafe fn receive(&self, to: *mut c_void, ns: u64) -> Result<(), TransferError>;
    fn close(&self);
    fn len(&self) -> usize;
}

impl<const N: usize> AnySize for WorldQueue<[u64; N], Mpmc> {
    fn sender(&self) -> Result<TpSender, TransferError> {
        Ok(TpSender(Box::new(WorldQueue::sender(self)?)))
    }
    fn receiver(&self) -> Result<TpReceiver, TransferError> {
        Ok(TpReceiver(Box::new(WorldQueue::receiver(self)?)))
    }
}

impl<const N: usize> AnySender for ValueSender<[u64; N], Venue<N>> {
    unsafe fn send(&self, from: *const c_void, ns: u64) -> Result<(), TransferError> {
        // SAFETY: a message can be read there (the caller's promise).
        let message = unsafe { from.cast::<[u64; N]>().read_unaligned() };
        match ns {
            0 => self.try_send(message),
            u64::MAX => ValueSender::send(self, message),
            ns => self.send_timeout(message, Duration::from_nanos(ns)),
        }
    }
    fn close(&self) {
        ValueSender::close(self);
    }
}

impl<const N: usize> AnyReceiver for ValueReceiver<[u64; N], Venue<N>> {
    unsafe fn receive(&self, to: *mut c_void, ns: u64) -> Result<(), TransferError> {
        let message = match ns {
            0 => self.try_receive(),
            u64::MAX => ValueReceiver::receive(self),
            ns => self.receive_timeout(Duration::from_nanos(ns)),
        }?;
        // SAFETY: a message can be written there (the caller's promise).
        unsafe { to.cast::<[u64; N]>().write_unaligned(message) };
        Ok(())
    }
    fn close(&self) {
        ValueReceiver::close(self);
    }
    fn len(&self) -> usize {
        ValueReceiver::len(self)
    }
}

/// A process's handle of a queue.
pub struct TpQueue(Box<dyn AnySize>);

/// A sender of a queue.
pub struct TpSender(Box<dyn AnySender>);

/// A receiver of a queue.
pub struct TpReceiver(Box<dyn AnyReceiver>);

fn open<const N: usize>(world: &World, name: &str, capacity: usize) -> Result<TpQueue, Fault> {
    Ok(TpQueue(Box::new(world.mpmc::<[u64; N]>(name, capacity)?)))
}

fn bytes<const N: usize>(capacity: usize) -> u64 {
    let head = size_of::<QueueObject<[u64; N], Mpmc>>() as u64;
    head + lines_of::<Mpmc>(Mpmc::geometry::<[u64; N]>(capacity))
        * size_of::<WordLine<towpath_machine::Native>>() as u64
}

/// The function for messages of so many bytes, if that is one of the sizes.
macro_rules! of_size {
    ($bytes:expr, $function:ident) => {
        match $bytes {
            8 => Some($function::<1> as _),
            16 => Some($function::<2> as _),
            24 => Some($function::<3> as _),
            32 => Some($function::<4> as _),
            40 => Some($function::<5> as _),
            48 => Some($function::<6> as _),
            56 => Some($function::<7> as _),
            64 => Some($function::<8> as _),
            128 => Some($function::<16> as _),
            256 => Some($function::<32> as _),
            512 => Some($function::<64> as _),
            1024 => Some($function::<128> as _),
            2048 => Some($function::<256> as _),
            4096 => Some($function::<512> as _),
            _ => None,
        }
    };
}

impl TpQueue {
    /// The queue of that name, made if there is none.
    pub(crate) fn of_world(
        world: &World,
        name: &str,
        message: usize,
        capacity: usize,
    ) -> Result<TpQueue, Fault> {
        type Open = fn(&World, &str, usize) -> Result<TpQueue, Fault>;
        let open: Option<Open> = of_size!(message, open);
        open.ok_or(Fault::RANGE)?(world, name, capacity)
    }
}

/// Number of bytes for a queue; 0 if a message or the capacity is not possible.
#[unsafe(no_mangle)]
pub extern "C" fn tp_queue_size(users: u32, message: usize, capacity: usize) -> usize {
    let bytes: Option<fn(usize) -> u64> = of_size!(message, bytes);
    match bytes {
        Some(bytes) if (1..=Mpmc::MOST).contains(&capacity) => World::bytes_in(users, &[bytes(capacity)]),
        _ => 0,
    }
}

/// Makes a queue in the caller's memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_queue_init(
    at: *mut c_void,
    room: usize,
    users: u32,
    message: usize,
    capacity: usize,
    out: Out<'_, TpQueue>,
) -> c_int {
    opening(out, || {
        // SAFETY: the caller's obligations, in the header, are those of `World::init_in`.
        let world = unsafe { MappingEntry::Init(users).world(at, room) }?;
        TpQueue::of_world(&world, ALONE, message, capacity)
    })
}

/// Opens a queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_queue_open(
    at: *mut c_void,
    room: usize,
    message: usize,
    capacity: usize,
    out: Out<'_, TpQueue>,
) -> c_int {
    opening(out, || {
        // SAFETY: the caller's obligations, in the header, are those of `World::open_in`.
        let world = unsafe { MappingEntry::Open.world(at, room) }?;
        TpQueue::of_world(&world, ALONE, message, capacity)
    })
}

/// Opens a queue, or makes it in zeroed memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_queue_open_or_init(
    at: *mut c_void,
    room: usize,
    users: u32,
    message: usize,
    capacity: usize,
    out: Out<'_, TpQueue>,
) -> c_int {
    opening(out, || {
        // SAFETY: the caller's obligations, in the header, are those of `World::open_or_init_in`.
        let world = unsafe { MappingEntry::OpenOrInit(users).world(at, room) }?;
        TpQueue::of_world(&world, ALONE, message, capacity)
    })
}

/// Ends a handle; senders and receivers stay.
#[unsafe(no_mangle)]
pub extern "C" fn tp_queue_close(queue: Owned<TpQueue>) {
    closing(queue);
}

/// Makes a sender.
#[unsafe(no_mangle)]
pub extern "C" fn tp_sender_open(queue: Handle<'_, TpQueue>, out: Out<'_, TpSender>) -> c_int {
    opening(out, || Ok(of(queue)?.0.sender()?))
}

/// Sends a message, when there is room for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_sender_send(
    sender: Handle<'_, TpSender>,
    message: *const c_void,
    ns: u64,
) -> c_int {
    guarded(|| {
        if message.is_null() {
            return Err(Fault::INVALID);
        }
        // SAFETY: a message, says the header.
        Ok(unsafe { of(sender)?.0.send(message, ns) }?)
    })
}

/// Closes the queue: nothing more can be sent.
#[unsafe(no_mangle)]
pub extern "C" fn tp_sender_shut(sender: Handle<'_, TpSender>) -> c_int {
    guarded(|| {
        of(sender)?.0.close();
        Ok(())
    })
}

/// Ends a sender. When the last one has gone, receivers learn of it.
#[unsafe(no_mangle)]
pub extern "C" fn tp_sender_close(sender: Owned<TpSender>) {
    closing(sender);
}

/// Makes a receiver.
#[unsafe(no_mangle)]
pub extern "C" fn tp_receiver_open(queue: Handle<'_, TpQueue>, out: Out<'_, TpReceiver>) -> c_int {
    opening(out, || Ok(of(queue)?.0.receiver()?))
}

/// Receives a message, when there is one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_receiver_receive(
    receiver: Handle<'_, TpReceiver>,
    message: *mut c_void,
    ns: u64,
) -> c_int {
    guarded(|| {
        if message.is_null() {
            return Err(Fault::INVALID);
        }
        // SAFETY: room for a message, says the header.
        Ok(unsafe { of(receiver)?.0.receive(message, ns) }?)
    })
}

/// Number of messages that wait.
#[unsafe(no_mangle)]
pub extern "C" fn tp_receiver_waiting(receiver: Handle<'_, TpReceiver>) -> usize {
    receiver.map_or(0, |receiver| receiver.0.len())
}

/// Closes the queue: nothing more can be sent.
#[unsafe(no_mangle)]
pub extern "C" fn tp_receiver_shut(receiver: Handle<'_, TpReceiver>) -> c_int {
    guarded(|| {
        of(receiver)?.0.close();
        Ok(())
    })
}

/// Ends a receiver. When the last one has gone, senders learn of it.
#[unsafe(no_mangle)]
pub extern "C" fn tp_receiver_close(receiver: Owned<TpReceiver>) {
    closing(receiver);
}
