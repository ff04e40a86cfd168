//! Requests and replies of any number of arguments.
#![allow(unsafe_code)]

use core::ffi::c_int;

use towpath_am::Error;

use crate::call::{AM_OK, AmError, answered_at_once, bytes, null, of, refused, told};
use crate::endpoint::AmEndpoint;
use crate::statistics::Category;
use crate::token::AmToken;

/// Maximum number of bytes of a transfer: larger ones are no faster.
pub(crate) const MAX_LONG: usize = 4 << 20;

#[cold]
fn handler_zero() -> AmError {
    refused(AmError::BAD_ARG, "handler 0 is for messages that come back")
}

#[inline]
pub(crate) fn check(handler: u8, payload: usize) -> Result<(), AmError> {
    if handler == 0 {
        return Err(handler_zero());
    }
    if payload > MAX_LONG {
        return Err(refused(AmError::BAD_ARG, "the payload is longer than AM_MaxLong()"));
    }
    Ok(())
}

/// Destination of a request.
pub(crate) struct To<'a> {
    pub endpoint: Option<&'a AmEndpoint>,
    pub entry: c_int,
    pub handler: u8,
    /// Name of the call.
    pub call: &'static str,
}

/// Bytes of the caller.
#[derive(Clone, Copy)]
pub(crate) struct Lent {
    pub at: *const u8,
    pub count: usize,
}

/// Returns whether the functions for so many arguments have code of their own.
///
/// The number is known there; the functions for more arguments share one.
#[inline(always)]
fn is_quick(args: &[u32]) -> bool {
    args.len() <= 4
}

/// Number of a failed send. Out of the way of those that succeed.
#[cold]
#[inline(never)]
fn failed(call: &str, error: Error) -> c_int {
    told(call, AmError::from(error))
}

/// Number of a failed request.
#[cold]
#[inline(never)]
fn request_failed(call: &str, entry: c_int, error: Error) -> c_int {
    told(call, refused_request(entry, error))
}

/// Refusal of a request by an entry, in words of this layer: the layer below knows no
/// negative ones.
#[cold]
pub(crate) fn refused_request(entry: c_int, error: Error) -> AmError {
    match error {
        Error::NotInitialised(_) if entry < 0 => {
            refused(AmError::BAD_ARG, &format!("the translation table has no entry {entry}"))
        }
        Error::NotInitialised(_) => {
            let why = format!("translation table entry {entry} leads nowhere; map it first (AM_Map)");
            refused(AmError::BAD_ARG, &why)
        }
        error => error.into(),
    }
}

/// Sends a short request.
#[inline(always)]
fn send_short(call: &str, endpoint: &AmEndpoint, entry: c_int, handler: u8, args: &[u32]) -> c_int {
    match endpoint.endpoint.request(entry as usize, handler, args) {
        Ok(()) => {
            endpoint.counters.sent_short(true, args.len());
            AM_OK
        }
        Err(error) => request_failed(call, entry, error),
    }
}

/// Sends a short request, in a turn of its bundle.
#[inline(never)]
fn send_short_in_turn(call: &str, endpoint: &AmEndpoint, entry: c_int, handler: u8, args: &[u32]) -> c_int {
    let _turn = endpoint.turn();
    match endpoint.check_others_idle() {
        Ok(()) => send_short(call, endpoint, entry, handler, args),
        Err(refusal) => told(call, refusal),
    }
}

/// Sends a short request.
#[inline(always)]
pub(crate) fn request(to: To<'_>, args: &[u32]) -> c_int {
    match of(to.endpoint) {
        Ok(_) if to.handler == 0 => told(to.call, handler_zero()),
        Ok(endpoint) if is_quick(args) && endpoint.is_alone() => {
            send_short(to.call, endpoint, to.entry, to.handler, args)
        }
        Ok(endpoint) => send_short_in_turn(to.call, endpoint, to.entry, to.handler, args),
        Err(refusal) => told(to.call, refusal),
    }
}

/// Sends a medium request.
///
/// # Safety
///
/// The source's bytes can be read.
#[inline]
pub(crate) unsafe fn request_medium(to: To<'_>, source: Lent, args: &[u32]) -> c_int {
    answered_at_once(to.call, || {
        let endpoint = of(to.endpoint)?;
        check(to.handler, source.count)?;
        // SAFETY: the caller's promise.
        let payload = unsafe { bytes(source.at, source.count) }?;
        let _turn = endpoint.turn();
        endpoint.check_others_idle()?;
        let sent = endpoint.endpoint.request_medium(to.entry as usize, to.handler, args, payload);
        sent.map_err(|error| refused_request(to.entry, error))?;
        endpoint.counters.sent(true, Category::Medium, args.len(), payload.len());
        Ok(())
    })
}

/// Sends a transfer, or tries to.
///
/// # Safety
///
/// The source's bytes can be read.
#[inline]
pub(crate) unsafe fn request_long(
    to: To<'_>,
    source: Lent,
    offset: usize,
    waits: bool,
    args: &[u32],
) -> c_int {
    answered_at_once(to.call, || {
        let endpoint = of(to.endpoint)?;
        check(to.handler, source.count)?;
        // SAFETY: the caller's promise.
        let payload = unsafe { bytes(source.at, source.count) }?;
        let _turn = endpoint.turn();
        endpoint.check_others_idle()?;
        let (entry, offset) = (to.entry as usize, offset as u64);
        let sent = match waits {
            true => endpoint.endpoint.request_long(entry, to.handler, args, payload, offset),
            false => endpoint.endpoint.request_long_async(entry, to.handler, args, payload, offset),
        };
        sent.map_err(|error| refused_request(to.entry, error))?;
        endpoint.counters.sent(true, Category::Long, args.len(), payload.len());
        Ok(())
    })
}

/// Replies, in the turn of the call that runs the handler.
#[inline(always)]
fn reply_short(call: &str, token: &AmToken<'_>, handler: u8, args: &[u32]) -> c_int {
    match token.token.reply(handler, args) {
        Ok(()) => {
            token.endpoint.counters.sent_short(false, args.len());
            AM_OK
        }
        Err(error) => failed(call, error),
    }
}

#[inline(never)]
fn reply_with_many(call: &str, token: &AmToken<'_>, handler: u8, args: &[u32]) -> c_int {
    reply_short(call, token, handler, args)
}

/// Replies.
#[inline(always)]
pub(crate) fn reply(call: &str, token: Option<&AmToken<'_>>, handler: u8, args: &[u32]) -> c_int {
    match of(token) {
        Ok(_) if handler == 0 => told(call, handler_zero()),
        Ok(token) if is_quick(args) => reply_short(call, token, handler, args),
        Ok(token) => reply_with_many(call, token, handler, args),
        Err(refusal) => told(call, refusal),
    }
}

/// Replies with a payload.
///
/// # Safety
///
/// The source's bytes can be read.
#[inline]
pub(crate) unsafe fn reply_medium(
    call: &str,
    token: Option<&AmToken<'_>>,
    handler: u8,
    source: Lent,
    args: &[u32],
) -> c_int {
    answered_at_once(call, || {
        let token = of(token)?;
        check(handler, source.count)?;
        // SAFETY: the caller's promise.
        let payload = unsafe { bytes(source.at, source.count) }?;
        token.token.reply_medium(handler, args, payload)?;
        token.endpoint.counters.sent(false, Category::Medium, args.len(), payload.len());
        Ok(())
    })
}

/// Replies with a transfer.
///
/// # Safety
///
/// The source's bytes can be read.
#[inline]
pub(crate) unsafe fn reply_long(
    call: &str,
    token: Option<&AmToken<'_>>,
    handler: u8,
    source: Lent,
    offset: usize,
    args: &[u32],
) -> c_int {
    answered_at_once(call, || {
        let token = of(token)?;
        check(handler, source.count)?;
        // SAFETY: the caller's promise.
        let payload = unsafe { bytes(source.at, source.count) }?;
        token.token.reply_long(handler, args, payload, offset as u64)?;
        token.endpoint.counters.sent(false, Category::Long, args.len(), payload.len());
        Ok(())
    })
}

/// The caller's arguments.
///
/// # Safety
///
/// At `at`, `count` numbers can be read.
unsafe fn arguments<'a>(at: *const u32, count: c_int) -> Result<&'a [u32], AmError> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(count) if count <= towpath_am::MAX_ARGS && !at.is_null() => {
            // SAFETY: not null; the rest is the caller's promise.
            Ok(unsafe { core::slice::from_raw_parts(at, count) })
        }
        Ok(count) if count <= towpath_am::MAX_ARGS => Err(null()),
        _ => Err(refused(AmError::BAD_ARG, &format!("{count} arguments: there are 0 to 16"))),
    }
}

/// Runs a call with the caller's arguments.
///
/// # Safety
///
/// At `at`, `count` numbers can be read.
#[inline]
pub(crate) unsafe fn with_arguments(
    name: &str,
    at: *const u32,
    count: c_int,
    call: impl FnOnce(&[u32]) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { arguments(at, count) } {
        Ok(args) => call(args),
        Err(refusal) => told(name, refusal),
    }
}

/// Sends a short request with arguments of an array.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM2_Request(
    endpoint: Option<&AmEndpoint>,
    entry: c_int,
    handler: u8,
    count: c_int,
    args: *const u32,
) -> c_int {
    // SAFETY: so many arguments, and bytes, can be read, says the header.
    unsafe {
        with_arguments("AM2_Request", args, count, |args| {
            request(To { endpoint, entry, handler, call: "AM2_Request" }, args)
        })
    }
}

/// Sends a medium request with arguments of an array.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM2_RequestI(
    endpoint: Option<&AmEndpoint>,
    entry: c_int,
    handler: u8,
    source: *const u8,
    bytes: usize,
    count: c_int,
    args: *const u32,
) -> c_int {
    let source = Lent { at: source, count: bytes };
    // SAFETY: so many arguments, and bytes, can be read, says the header.
    unsafe {
        with_arguments("AM2_RequestI", args, count, |args| {
            request_medium(To { endpoint, entry, handler, call: "AM2_RequestI" }, source, args)
        })
    }
}

/// Sends a transfer with arguments of an array; asynchronous: unless it would wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM2_RequestXfer(
    endpoint: Option<&AmEndpoint>,
    entry: c_int,
    handler: u8,
    source: *const u8,
    bytes: usize,
    offset: usize,
    asynchronous: c_int,
    count: c_int,
    args: *const u32,
) -> c_int {
    let (source, waits) = (Lent { at: source, count: bytes }, asynchronous == 0);
    // SAFETY: so many arguments, and bytes, can be read, says the header.
    unsafe {
        with_arguments("AM2_RequestXfer", args, count, |args| {
            request_long(
                To { endpoint, entry, handler, call: "AM2_RequestXfer" },
                source,
                offset,
                waits,
                args,
            )
        })
    }
}

/// Replies with arguments of an array.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM2_Reply(
    token: Option<&AmToken<'_>>,
    handler: u8,
    count: c_int,
    args: *const u32,
) -> c_int {
    // SAFETY: so many arguments, and bytes, can be read, says the header.
    unsafe { with_arguments("AM2_Reply", args, count, |args| reply("AM2_Reply", token, handler, args)) }
}

/// Replies with a payload and arguments of an array.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM2_ReplyI(
    token: Option<&AmToken<'_>>,
    handler: u8,
    source: *const u8,
    bytes: usize,
    count: c_int,
    args: *const u32,
) -> c_int {
    let source = Lent { at: source, count: bytes };
    // SAFETY: so many arguments, and bytes, can be read, says the header.
    unsafe {
        with_arguments("AM2_ReplyI", args, count, |args| {
            reply_medium("AM2_ReplyI", token, handler, source, args)
        })
    }
}

/// Replies with a transfer and arguments of an array.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM2_ReplyXfer(
    token: Option<&AmToken<'_>>,
    handler: u8,
    source: *const u8,
    bytes: usize,
    offset: usize,
    count: c_int,
    args: *const u32,
) -> c_int {
    let source = Lent { at: source, count: bytes };
    // SAFETY: so many arguments, and bytes, can be read, says the header.
    unsafe {
        with_arguments("AM2_ReplyXfer", args, count, |args| {
            reply_long("AM2_ReplyXfer", token, handler, source, offset, args)
        })
    }
}
