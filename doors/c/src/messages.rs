//! `tp_messages_*`: queues of messages of any length.
//!
//! A message that was received lies where its sender wrote it until its handle is ended.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use towpath_shm::{HeldMessage, MessageReceiver, MessageSender, MessageSpec, World, WorldMessages};

use crate::call::{
    ALONE, Handle, MappingEntry, Out, OutValue, Owned, closing, deadline, guarded, of, opening, values,
};
use crate::fault::{Fault, note};

/// A process's handle of a queue of messages.
pub struct TpMessages(WorldMessages);

/// A sender of messages.
pub struct TpPoster(MessageSender);

/// A receiver of messages.
pub struct TpFetcher(Arc<MessageReceiver>);

/// A message that was received.
pub struct TpMessage(HeldMessage);

impl TpMessages {
    /// The queue of that name, made if there is none.
    pub(crate) fn of_world(
        world: &World,
        name: &str,
        capacity: usize,
        buffers: usize,
        buffer_bytes: usize,
    ) -> Result<TpMessages, Fault> {
        let spec = MessageSpec { capacity, buffers, buffer_bytes };
        Ok(TpMessages(world.messages(name, &spec)?))
    }
}

/// Number of bytes for a queue of messages; 0 if a number is not possible.
#[unsafe(no_mangle)]
pub extern "C" fn tp_messages_size(
    users: u32,
    capacity: usize,
    buffers: usize,
    buffer_bytes: usize,
) -> usize {
    let spec = MessageSpec { capacity, buffers, buffer_bytes };
    spec.object_bytes().map_or(0, |bytes| World::bytes_in(users, &bytes))
}

/// Makes a queue of messages in the caller's memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_messages_init(
    at: *mut c_void,
    room: usize,
    users: u32,
    capacity: usize,
    buffers: usize,
    buffer_bytes: usize,
    out: Out<'_, TpMessages>,
) -> c_int {
    opening(out, || {
        // SAFETY: the caller's obligations, in the header, are those of `World::init_in`.
        let world = unsafe { MappingEntry::Init(users).world(at, room) }?;
        TpMessages::of_world(&world, ALONE, capacity, buffers, buffer_bytes)
    })
}

/// The error of memory that holds another object.
#[cold]
fn no_queue() -> Fault {
    note("the memory given holds no queue of messages, but another object: open it as what it is");
    Fault::TYPE
}

/// Opens a queue of messages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_messages_open(
    at: *mut c_void,
    room: usize,
    capacity: usize,
    buffers: usize,
    buffer_bytes: usize,
    out: Out<'_, TpMessages>,
) -> c_int {
    opening(out, || {
        // SAFETY: the caller's obligations, in the header, are those of `World::open_in`.
        let world = unsafe { MappingEntry::Open.world(at, room) }?;
        let opened = TpMessages::of_world(&world, ALONE, capacity, buffers, buffer_bytes);
        // There is no room for one that is not there.
        opened.map_err(|fault| if fault == Fault::ROOM { no_queue() } else { fault })
    })
}

/// Opens a queue of messages, or makes it in zeroed memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_messages_open_or_init(
    at: *mut c_void,
    room: usize,
    users: u32,
    capacity: usize,
    buffers: usize,
    buffer_bytes: usize,
    out: Out<'_, TpMessages>,
) -> c_int {
    opening(out, || {
        // SAFETY: the caller's obligations, in the header, are those of `World::open_or_init_in`.
        let world = unsafe { MappingEntry::OpenOrInit(users).world(at, room) }?;
        TpMessages::of_world(&world, ALONE, capacity, buffers, buffer_bytes)
    })
}

/// Number of bytes of the longest message.
#[unsafe(no_mangle)]
pub extern "C" fn tp_messages_longest(messages: Handle<'_, TpMessages>) -> usize {
    messages.map_or(0, |messages| messages.0.spec().buffer_bytes.max(MessageSpec::SHORT))
}

/// Ends a handle; senders and receivers stay.
#[unsafe(no_mangle)]
pub extern "C" fn tp_messages_close(messages: Owned<TpMessages>) {
    closing(messages);
}

/// Makes a sender.
#[unsafe(no_mangle)]
pub extern "C" fn tp_poster_open(messages: Handle<'_, TpMessages>, out: Out<'_, TpPoster>) -> c_int {
    opening(out, || Ok(TpPoster(of(messages)?.0.sender()?)))
}

/// Sends a message, when there is room, and a buffer if it needs one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_poster_send(
    poster: Handle<'_, TpPoster>,
    message: *const c_void,
    bytes: usize,
    ns: u64,
) -> c_int {
    guarded(|| {
        // SAFETY: so many bytes, says the header.
        let message = unsafe { values(message.cast::<u8>(), bytes) }?;
        Ok(of(poster)?.0.send_before(message, deadline(ns))?)
    })
}

/// Closes the queue: nothing more can be sent.
#[unsafe(no_mangle)]
pub extern "C" fn tp_poster_shut(poster: Handle<'_, TpPoster>) -> c_int {
    guarded(|| {
        of(poster)?.0.close();
        Ok(())
    })
}

/// Ends a sender. When the last one has gone, receivers learn of it.
#[unsafe(no_mangle)]
pub extern "C" fn tp_poster_close(poster: Owned<TpPoster>) {
    closing(poster);
}

/// Makes a receiver.
#[unsafe(no_mangle)]
pub extern "C" fn tp_fetcher_open(messages: Handle<'_, TpMessages>, out: Out<'_, TpFetcher>) -> c_int {
    opening(out, || Ok(TpFetcher(Arc::new(of(messages)?.0.receiver()?))))
}

/// Receives a message, when there is one, under a lease.
#[unsafe(no_mangle)]
pub extern "C" fn tp_fetcher_receive(
    fetcher: Handle<'_, TpFetcher>,
    ns: u64,
    message: OutValue<'_, *const c_void>,
    bytes: OutValue<'_, usize>,
    out: Out<'_, TpMessage>,
) -> c_int {
    opening(out, || {
        let (at, len) = (message.ok_or(Fault::INVALID)?, bytes.ok_or(Fault::INVALID)?);
        let held = HeldMessage::receive_before(&of(fetcher)?.0, deadline(ns))?;
        at.write(held.as_ptr().cast());
        len.write(held.len());
        Ok(TpMessage(held))
    })
}

/// Number of messages that wait.
#[unsafe(no_mangle)]
pub extern "C" fn tp_fetcher_waiting(fetcher: Handle<'_, TpFetcher>) -> usize {
    fetcher.map_or(0, |fetcher| fetcher.0.len())
}

/// Ends a receiver. When the last one has gone, senders learn of it.
#[unsafe(no_mangle)]
pub extern "C" fn tp_fetcher_close(fetcher: Owned<TpFetcher>) {
    closing(fetcher);
}

/// Says that a message is done with.
#[unsafe(no_mangle)]
pub extern "C" fn tp_message_done(message: Owned<TpMessage>) {
    closing(message);
}

/// Gives a message back: it comes in again, behind those that wait.
#[unsafe(no_mangle)]
pub extern "C" fn tp_message_give_back(message: Owned<TpMessage>) {
    guarded(|| {
        message.ok_or(Fault::INVALID)?.0.give_back();
        Ok(())
    });
}
