//! `tp_queue_*`: bounded queues of messages of one size.
//!
//! To Rust programs a message of a multiple of 8 bytes is `[u64; N]`, another one `[u8; N]`.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::slice;

use towpath_shm::{SizedKind, SizedQueue, SizedReceiver, SizedSender, World};

use crate::call::{
    ALONE, Handle, MappingEntry, Out, OutValue, Owned, closing, deadline, guarded, of, opening,
};
use crate::fault::Fault;

/// A process's handle of a queue.
pub struct TpQueue(SizedQueue);

/// A sender of a queue.
pub struct TpSender(SizedSender);

/// A receiver of a queue.
pub struct TpReceiver(SizedReceiver);

/// A receiver's lease, which C keeps for it.
#[repr(C)]
pub struct TpLease {
    words: [u64; 2],
}

/// The kind of a number: `TP_MPMC`, `TP_MPSC`, `TP_SPSC`.
const fn kind_of(number: c_int) -> Option<SizedKind> {
    match number {
        0 => Some(SizedKind::Mpmc),
        1 => Some(SizedKind::Mpsc),
        2 => Some(SizedKind::Spsc),
        _ => None,
    }
}

impl TpQueue {
    /// The queue of that name, made if there is none.
    pub(crate) fn of_world(
        world: &World,
        name: &str,
        kind: c_int,
        message: usize,
        capacity: usize,
    ) -> Result<TpQueue, Fault> {
        let kind = kind_of(kind).ok_or(Fault::RANGE)?;
        Ok(TpQueue(world.sized_queue(name, kind, message, capacity)?))
    }
}

impl TpSender {
    /// The message at an address.
    ///
    /// # Safety
    ///
    /// It is null, or a message of this queue can be read there as long as the result is used.
    #[inline(always)]
    unsafe fn message<'a>(&self, at: *const c_void) -> Result<&'a [u8], Fault> {
        if at.is_null() {
            return Err(Fault::INVALID);
        }
        // SAFETY: not null; the rest is the caller's promise.
        Ok(unsafe { slice::from_raw_parts(at.cast(), self.0.bytes()) })
    }
}

/// Number of bytes for a queue; 0 if a message, the kind or the capacity is not possible.
#[unsafe(no_mangle)]
pub extern "C" fn tp_queue_size(users: u32, kind: c_int, message: usize, capacity: usize) -> usize {
    let bytes = kind_of(kind).and_then(|kind| SizedQueue::object_bytes(kind, message, capacity));
    bytes.map_or(0, |bytes| World::bytes_in(users, &[bytes]))
}

/// Makes a queue in the caller's memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_queue_init(
    at: *mut c_void,
    room: usize,
    users: u32,
    kind: c_int,
    message: usize,
    capacity: usize,
    out: Out<'_, TpQueue>,
) -> c_int {
    opening(out, || {
        // SAFETY: the caller's obligations, in the header, are those of `World::init_in`.
        let world = unsafe { MappingEntry::Init(users).world(at, room) }?;
        TpQueue::of_world(&world, ALONE, kind, message, capacity)
    })
}

/// Opens a queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_queue_open(
    at: *mut c_void,
    room: usize,
    kind: c_int,
    message: usize,
    capacity: usize,
    out: Out<'_, TpQueue>,
) -> c_int {
    opening(out, || {
        // SAFETY: the caller's obligations, in the header, are those of `World::open_in`.
        let world = unsafe { MappingEntry::Open.world(at, room) }?;
        TpQueue::of_world(&world, ALONE, kind, message, capacity)
    })
}

/// Opens a queue, or makes it in zeroed memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_queue_open_or_init(
    at: *mut c_void,
    room: usize,
    users: u32,
    kind: c_int,
    message: usize,
    capacity: usize,
    out: Out<'_, TpQueue>,
) -> c_int {
    opening(out, || {
        // SAFETY: the caller's obligations, in the header, are those of `World::open_or_init_in`.
        let world = unsafe { MappingEntry::OpenOrInit(users).world(at, room) }?;
        TpQueue::of_world(&world, ALONE, kind, message, capacity)
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
    opening(out, || Ok(TpSender(of(queue)?.0.sender()?)))
}

/// Sends a message, when there is room for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_sender_send(
    sender: Handle<'_, TpSender>,
    message: *const c_void,
    ns: u64,
) -> c_int {
    guarded(|| {
        let sender = of(sender)?;
        // SAFETY: a message, says the header.
        let message = unsafe { sender.message(message) }?;
        Ok(sender.0.send(message, deadline(ns))?)
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
    opening(out, || Ok(TpReceiver(of(queue)?.0.receiver()?)))
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
        Ok(unsafe { of(receiver)?.0.receive_into(message.cast(), deadline(ns)) }?)
    })
}

/// Receives a message under a lease, and leaves it where it lies.
#[unsafe(no_mangle)]
pub extern "C" fn tp_receiver_lease(
    receiver: Handle<'_, TpReceiver>,
    ns: u64,
    message: OutValue<'_, *const c_void>,
    lease: OutValue<'_, TpLease>,
) -> c_int {
    guarded(|| {
        let (message, out) = (message.ok_or(Fault::INVALID)?, lease.ok_or(Fault::INVALID)?);
        let lease = of(receiver)?.0.lease(deadline(ns)).ok_or(Fault::RANGE)??;
        message.write(lease.at.cast());
        out.write(TpLease { words: lease.words });
        Ok(())
    })
}

/// Ends a lease: the message is done with (1), or comes in again (0).
#[unsafe(no_mangle)]
pub extern "C" fn tp_receiver_end(
    receiver: Handle<'_, TpReceiver>,
    lease: Option<&mut TpLease>,
    done: c_int,
) -> c_int {
    guarded(|| {
        let words = lease.ok_or(Fault::INVALID)?.words;
        Ok(of(receiver)?.0.end(words, done != 0).ok_or(Fault::RANGE)??)
    })
}

/// Ends a lease and sends a message into another queue: both happen, or neither.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_receiver_end_into(
    receiver: Handle<'_, TpReceiver>,
    lease: Option<&mut TpLease>,
    sender: Handle<'_, TpSender>,
    message: *const c_void,
    ns: u64,
) -> c_int {
    guarded(|| {
        let (words, sender) = (lease.ok_or(Fault::INVALID)?.words, of(sender)?);
        // SAFETY: a message of that sender's queue, says the header.
        let message = unsafe { sender.message(message) }?;
        Ok(of(receiver)?.0.end_into(words, &sender.0, message, deadline(ns)).ok_or(Fault::RANGE)??)
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
