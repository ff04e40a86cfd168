//! Requests and replies of any number of arguments.
#![allow(unsafe_code)]

use core::ffi::c_int;

use towpath_am::Error;

use crate::call::{AM_OK, AmError, answered_at_once, bytes, null, of, refused};
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
fn failed(error: Error) -> c_int {
    AmError::from(error).0
}

/// Sends a short request.
#[inline(always)]
fn send_short(endpoint: &AmEndpoint, entry: usize, handler: u8, args: &[u32]) -> c_int {
    match endpoint.endpoint.request(entry, handler, args) {
        Ok(()) => {
            endpoint.counters.sent_short(true, args.len());
            AM_OK
        }
        Err(error) => failed(error),
    }
}

/// Sends a short request, in a turn of its bundle.
#[inline(never)]
fn send_short_in_turn(endpoint: &AmEndpoint, entry: usize, handler: u8, args: &[u32]) -> c_int {
    let _turn = endpoint.turn();
    match endpoint.check_others_idle() {
        Ok(()) => send_short(endpoint, entry, handler, args),
        Err(refusal) => refusal.0,
    }
}

/// Sends a short request.
#[inline(always)]
pub(crate) fn request(to: To<'_>, args: &[u32]) -> c_int {
    match of(to.endpoint) {
        Ok(_) if to.handler == 0 => handler_zero().0,
        Ok(endpoint) if is_quick(args) && endpoint.is_alone() => {
            send_short(endpoint, to.entry as usize, to.handler, args)
        }
        Ok(endpoint) => send_short_in_turn(endpoint, to.entry as usize, to.handler, args),
        Err(refusal) => refusal.0,
    }
}

/// Sends a medium request.
///
/// # Safety
///
/// The source's bytes can be read.
#[inline]
pub(crate) unsafe fn request_medium(to: To<'_>, source: Lent, args: &[u32]) -> c_int {
    answered_at_once(|| {
        let endpoint = of(to.endpoint)?;
        check(to.handler, source.count)?;
        // SAFETY: the caller's promise.
        let payload = unsafe { bytes(source.at, source.count) }?;
        let _turn = endpoint.turn();
        endpoint.check_others_idle()?;
        endpoint.endpoint.request_medium(to.entry as usize, to.handler, args, payload)?;
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
    answered_at_once(|| {
        let endpoint = of(to.endpoint)?;
        check(to.handler, source.count)?;
        // SAFETY: the caller's promise.
        let payload = unsafe { bytes(source.at, source.count) }?;
        let _turn = endpoint.turn();
        endpoint.check_others_idle()?;
        let (entry, offset) = (to.entry as usize, offset as u64);
        match waits {
            true => endpoint.endpoint.request_long(entry, to.handler, args, payload, offset)?,
            false => endpoint.endpoint.request_long_async(entry, to.handler, args, payload, offset)?,
        }
        endpoint.counters.sent(true, Category::Long, args.len(), payload.len());
        Ok(())
    })
}

/// Replies, in the turn of the call that runs the handler.
#[inline(always)]
fn reply_short(token: &AmToken<'_>, handler: u8, args: &[u32]) -> c_int {
    match token.token.reply(handler, args) {
        Ok(()) => {
            token.endpoint.counters.sent_short(false, args.len());
            AM_OK
        }
        Err(error) => failed(error),
    }
}

#[inline(never)]
fn reply_with_many(token: &AmToken<'_>, handler: u8, args: &[u32]) -> c_int {
    reply_short(token, handler, args)
}

/// Replies.
#[inline(always)]
pub(crate) fn reply(token: Option<&AmToken<'_>>, handler: u8, args: &[u32]) -> c_int {
    match of(token) {
        Ok(_) if handler == 0 => handler_zero().0,
        Ok(token) if is_quick(args) => reply_short(token, handler, args),
        Ok(token) => reply_with_many(token, handler, args),
        Err(refusal) => refusal.0,
    }
}

/// Replies with a payload.
///
/// # Safety
///
/// The source's bytes can be read.
#[inline]
pub(crate) unsafe fn reply_medium(
    token: Option<&AmToken<'_>>,
    handler: u8,
    source: Lent,
    args: &[u32],
) -> c_int {
    answered_at_once(|| {
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
    token: Option<&AmToken<'_>>,
    handler: u8,
    source: Lent,
    offset: usize,
    args: &[u32],
) -> c_int {
    answered_at_once(|| {
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
        _ => Err(null()),
    }
}

/// Runs a call with the caller's arguments.
///
/// # Safety
///
/// At `at`, `count` numbers can be read.
#[inline]
pub(crate) unsafe fn with_arguments(
    at: *const u32,
    count: c_int,
    call: impl FnOnce(&[u32]) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { arguments(at, count) } {
        Ok(args) => call(args),
        Err(refusal) => refusal.0,
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
    unsafe { with_arguments(args, count, |args| request(To { endpoint, entry, handler }, args)) }
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
        with_arguments(args, count, |args| request_medium(To { endpoint, entry, handler }, source, args))
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
        with_arguments(args, count, |args| {
            request_long(To { endpoint, entry, handler }, source, offset, waits, args)
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
    unsafe { with_arguments(args, count, |args| reply(token, handler, args)) }
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
    unsafe { with_arguments(args, count, |args| reply_medium(token, handler, source, args)) }
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
    unsafe { with_arguments(args, count, |args| reply_long(token, handler, source, offset, args)) }
}
