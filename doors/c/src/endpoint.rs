//! `tp_endpoint_*`: endpoints of Active Messages in a world.
//!
//! An endpoint is for the thread that has opened it: one at a time uses it.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::mem::transmute;
use core::slice;
use core::time::Duration;

use towpath::{Endpoint, Payload, Token};

use crate::call::{Handle, Out, OutValue, Owned, answering, closing, guarded, of, opening, values};
use crate::fault::Fault;
use crate::world::TpWorld;

/// An endpoint.
pub struct TpEndpoint(Endpoint);

/// A message that a handler gets.
#[repr(transparent)]
pub struct TpToken(Token<'static>);

/// A handler of messages.
pub type TpHandler = Option<unsafe extern "C" fn(token: Handle<'_, TpToken>, context: *mut c_void)>;

/// A handler's context, which is the program's.
struct HandlerContext(*mut c_void);

// SAFETY: passed on only, to a handler of the program's, which runs in the endpoint's thread.
unsafe impl Send for HandlerContext {}
// SAFETY: passed on only, to a handler of the program's, which runs in the endpoint's thread.
unsafe impl Sync for HandlerContext {}

impl HandlerContext {
    const fn get(&self) -> *mut c_void {
        self.0
    }
}

/// Opens an endpoint of this process, with the world's segment for it if there is one.
#[unsafe(no_mangle)]
pub extern "C" fn tp_endpoint_open(world: Handle<'_, TpWorld>, out: Out<'_, TpEndpoint>) -> c_int {
    opening(out, || Ok(TpEndpoint(Endpoint::with_any_shared_segment(of(world)?.world())?)))
}

/// Ends an endpoint: messages that it has not handled come back to their senders.
#[unsafe(no_mangle)]
pub extern "C" fn tp_endpoint_close(endpoint: Owned<TpEndpoint>) {
    closing(endpoint);
}

/// Waits for an endpoint of each rank, to which that rank's number leads from then on.
#[unsafe(no_mangle)]
pub extern "C" fn tp_endpoint_map_world(endpoint: Handle<'_, TpEndpoint>) -> c_int {
    guarded(|| Ok(of(endpoint)?.0.map_world()?))
}

/// Sets a handler; the null pointer clears it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_endpoint_set_handler(
    endpoint: Handle<'_, TpEndpoint>,
    index: u8,
    handler: TpHandler,
    context: *mut c_void,
) -> c_int {
    guarded(|| {
        let endpoint = &of(endpoint)?.0;
        let Some(handler) = handler else {
            endpoint.clear_handler(index);
            return Ok(());
        };
        let context = HandlerContext(context);
        endpoint.set_handler(index, move |token| {
            // SAFETY: a token is one whatever its lifetime, and the handler keeps no pointer to it,
            // says the header.
            let token = unsafe { transmute::<&Token<'_>, &TpToken>(token) };
            // SAFETY: a handler of this type, which does not unwind, says the header.
            unsafe { handler(Some(token), context.get()) };
        });
        Ok(())
    })
}

/// Sends a request with arguments only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_endpoint_request(
    endpoint: Handle<'_, TpEndpoint>,
    to: u32,
    handler: u8,
    args: *const u32,
    count: usize,
) -> c_int {
    guarded(|| {
        // SAFETY: so many arguments, says the header.
        let args = unsafe { values(args, count) }?;
        Ok(of(endpoint)?.0.request(to as usize, handler, args)?)
    })
}

/// Sends a request with a payload for the handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_endpoint_request_medium(
    endpoint: Handle<'_, TpEndpoint>,
    to: u32,
    handler: u8,
    args: *const u32,
    count: usize,
    payload: *const c_void,
    length: usize,
) -> c_int {
    guarded(|| {
        // SAFETY: so many arguments, and bytes, says the header.
        let (args, payload) = unsafe { (values(args, count)?, values(payload.cast::<u8>(), length)?) };
        Ok(of(endpoint)?.0.request_medium(to as usize, handler, args, payload)?)
    })
}

/// Stores bytes in the destination's segment, then runs the handler there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_endpoint_request_long(
    endpoint: Handle<'_, TpEndpoint>,
    to: u32,
    handler: u8,
    args: *const u32,
    count: usize,
    payload: *const c_void,
    length: usize,
    offset: u64,
) -> c_int {
    guarded(|| {
        // SAFETY: so many arguments, and bytes, says the header.
        let (args, payload) = unsafe { (values(args, count)?, values(payload.cast::<u8>(), length)?) };
        Ok(of(endpoint)?.0.request_long(to as usize, handler, args, payload, offset)?)
    })
}

/// Handles the messages that are there; returns their number.
#[unsafe(no_mangle)]
pub extern "C" fn tp_endpoint_poll(endpoint: Handle<'_, TpEndpoint>) -> c_int {
    answering(|| Ok(c_int::try_from(of(endpoint)?.0.poll()).unwrap_or(c_int::MAX)))
}

/// Waits until a message is there.
#[unsafe(no_mangle)]
pub extern "C" fn tp_endpoint_wait(endpoint: Handle<'_, TpEndpoint>, ns: u64) -> c_int {
    guarded(|| {
        let time = (ns != u64::MAX).then(|| Duration::from_nanos(ns));
        if of(endpoint)?.0.wait(time) { Ok(()) } else { Err(Fault::TIMEDOUT) }
    })
}

/// Waits for all ranks, and handles messages meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn tp_endpoint_barrier(endpoint: Handle<'_, TpEndpoint>) -> c_int {
    guarded(|| Ok(of(endpoint)?.0.barrier()?))
}

/// Number of bytes of the endpoint's segment.
#[unsafe(no_mangle)]
pub extern "C" fn tp_endpoint_segment_size(endpoint: Handle<'_, TpEndpoint>) -> u64 {
    endpoint.map_or(0, |endpoint| endpoint.0.segment().len())
}

/// Copies bytes out of the endpoint's segment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_endpoint_segment_read(
    endpoint: Handle<'_, TpEndpoint>,
    offset: u64,
    to: *mut c_void,
    length: usize,
) -> c_int {
    guarded(|| {
        let segment = of(endpoint)?.0.segment();
        if to.is_null() {
            return Err(Fault::INVALID);
        }
        if offset.checked_add(length as u64).is_none_or(|end| end > segment.len()) {
            return Err(Fault::RANGE);
        }
        // SAFETY: room for so many bytes, says the header.
        segment.read(offset, unsafe { slice::from_raw_parts_mut(to.cast::<u8>(), length) });
        Ok(())
    })
}

/// The arguments of a message, and their number.
#[unsafe(no_mangle)]
pub extern "C" fn tp_token_args(token: Handle<'_, TpToken>, count: OutValue<'_, usize>) -> *const u32 {
    let (Some(token), Some(count)) = (token, count) else { return core::ptr::null() };
    count.write(token.0.args().len());
    token.0.args().as_ptr()
}

/// The bytes of a medium message, and their number.
#[unsafe(no_mangle)]
pub extern "C" fn tp_token_bytes(token: Handle<'_, TpToken>, length: OutValue<'_, usize>) -> *const c_void {
    let (Some(token), Some(length)) = (token, length) else { return core::ptr::null() };
    length.write(token.0.bytes().len());
    token.0.bytes().as_ptr().cast()
}

/// Place of a long message in the segment. Returns 1, or 0: it is none.
#[unsafe(no_mangle)]
pub extern "C" fn tp_token_stored(
    token: Handle<'_, TpToken>,
    offset: OutValue<'_, u64>,
    length: OutValue<'_, u64>,
) -> c_int {
    let (Some(token), Some(at), Some(length)) = (token, offset, length) else {
        return Fault::INVALID.number();
    };
    let Payload::Long { offset, len } = token.0.payload() else { return 0 };
    at.write(offset);
    length.write(len);
    1
}

/// Returns 1 for a request, to which the handler may reply; 0 for a reply.
#[unsafe(no_mangle)]
pub extern "C" fn tp_token_is_request(token: Handle<'_, TpToken>) -> c_int {
    token.map_or(Fault::INVALID.number(), |token| token.0.is_request().into())
}

/// Reason why a message came back to handler 0; 0: it is none of these.
#[unsafe(no_mangle)]
pub extern "C" fn tp_token_status(token: Handle<'_, TpToken>) -> c_int {
    let returned = |token: &TpToken| token.0.returned().map_or(0, |returned| returned.status as c_int);
    token.map_or(Fault::INVALID.number(), returned)
}

/// Replies to a request, once, with arguments only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_token_reply(
    token: Handle<'_, TpToken>,
    handler: u8,
    args: *const u32,
    count: usize,
) -> c_int {
    guarded(|| {
        // SAFETY: so many arguments, says the header.
        let args = unsafe { values(args, count) }?;
        Ok(of(token)?.0.reply(handler, args)?)
    })
}

/// Replies to a request, once, with a payload for the handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tp_token_reply_medium(
    token: Handle<'_, TpToken>,
    handler: u8,
    args: *const u32,
    count: usize,
    payload: *const c_void,
    length: usize,
) -> c_int {
    guarded(|| {
        // SAFETY: so many arguments, and bytes, says the header.
        let (args, payload) = unsafe { (values(args, count)?, values(payload.cast::<u8>(), length)?) };
        Ok(of(token)?.0.reply_medium(handler, args, payload)?)
    })
}
