//! Gets: bytes of a remote endpoint's segment, copied into the requester's own.
//!
//! A get is a short request to handler 0 of the remote endpoint: a number, the length, and both
//! offsets. Its reply, to handler 0 of the requester, is a transfer with that number, or the number
//! and a status. The requester keeps the handler and its arguments meanwhile.
#![allow(unsafe_code)]

use core::cell::{Cell, RefCell};
use core::ffi::c_int;
use std::collections::BTreeMap;

use towpath_am::{MAX_ARGS, Payload, Returned, Status, Token};

use crate::call::{AmError, answered_at_once, of, refused};
use crate::endpoint::AmEndpoint;
use crate::handler::{Called, HandlerInput};
use crate::message::{MAX_LONG, To, check, refused_request, with_arguments};
use crate::statistics::Category;

/// Number of `AM_GET_XFER_M`, which follows those of the messages' forms.
pub(crate) const OPCODE: c_int = 7;

/// Offsets of transfers are below.
const MAX_OFFSET: usize = 1 << 48;

/// Ranges of a get.
pub(crate) struct Ranges {
    pub source: usize,
    pub destination: usize,
    pub bytes: usize,
}

/// Handler of a get whose bytes have not come, with its arguments.
#[derive(Clone, Copy)]
pub(crate) struct Get {
    pub handler: u8,
    destination: u64,
    bytes: usize,
    args: [u32; MAX_ARGS],
    count: usize,
}

impl Get {
    pub fn args(&self) -> &[u32] {
        &self.args[..self.count]
    }
}

/// Gets of an endpoint.
#[derive(Default)]
pub(crate) struct Gets {
    last: Cell<u32>,
    outstanding: RefCell<BTreeMap<u32, Get>>,
    /// The get that handler 0 is being told of.
    returned: Cell<Option<Get>>,
}

impl Gets {
    /// Checks that the bytes of no get are under way.
    pub fn check_none(&self) -> Result<(), AmError> {
        match self.outstanding.borrow().is_empty() {
            true => Ok(()),
            false => Err(refused(AmError::IN_USE, "the bytes of a get are under way into the segment")),
        }
    }

    /// The get that handler 0 is being told of, if it is told of one.
    pub fn returned(&self) -> Option<Get> {
        self.returned.get()
    }

    fn add(&self, get: Get) -> u32 {
        let number = self.last.get().wrapping_add(1);
        self.last.set(number);
        self.outstanding.borrow_mut().insert(number, get);
        number
    }

    fn take(&self, number: u32) -> Option<Get> {
        self.outstanding.borrow_mut().remove(&number)
    }
}

const fn halves(offset: usize) -> [u32; 2] {
    [offset as u32, (offset >> 32) as u32]
}

const fn whole(low: u32, high: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// Sends a get, or tries to.
pub(crate) fn get(to: To<'_>, ranges: &Ranges, waits: bool, args: &[u32]) -> c_int {
    answered_at_once(to.call, || {
        let endpoint = of(to.endpoint)?;
        let &Ranges { source, destination, bytes } = ranges;
        check(to.handler, bytes)?;
        let _turn = endpoint.turn();
        endpoint.check_others_idle()?;
        if destination >= MAX_OFFSET || endpoint.range(destination as u64, bytes).is_err() {
            return Err(refused(AmError::BAD_ARG, "the bytes have no place in the endpoint's own segment"));
        }
        let mut all = [0; MAX_ARGS];
        all[..args.len()].copy_from_slice(args);
        let (handler, count) = (to.handler, args.len());
        let gets = &endpoint.gets;
        let number = gets.add(Get { handler, destination: destination as u64, bytes, args: all, count });
        let ([from_low, from_high], [low, high]) = (halves(source), halves(destination));
        let request = [number, bytes as u32, from_low, from_high, low, high];
        let sent = match waits {
            true => endpoint.endpoint.request(to.entry as usize, 0, &request),
            false => endpoint.endpoint.try_request(to.entry as usize, 0, &request),
        };
        if let Err(error) = sent {
            gets.take(number);
            return Err(refused_request(to.entry, error));
        }
        endpoint.counters.sent_short(true, request.len());
        Ok(())
    })
}

/// Handles a message to handler 0 that has not come back: a get, or its reply.
///
/// Others, of senders that are not of this layer, are none of its calls.
pub(crate) fn handle(zero: &Called, token: &Token<'_>) {
    match *token.args() {
        [number, bytes, from_low, from_high, low, high] if token.is_request() => {
            let (source, destination) = (whole(from_low, from_high), whole(low, high));
            answer(zero.endpoint(), token, number, source, destination, bytes as usize);
        }
        [number, status] if !token.is_request() => end(zero, token, number, u64::from(status)),
        _ => {}
    }
}

/// Replies with the bytes of a get, or with the reason why there are none.
fn answer(
    endpoint: &AmEndpoint,
    token: &Token<'_>,
    number: u32,
    source: u64,
    destination: u64,
    bytes: usize,
) {
    endpoint.counters.received(true, Category::Short);
    let range = if bytes > MAX_LONG { Err(Status::BadLength) } else { endpoint.range(source, bytes) };
    let (category, sent) = match range {
        Ok(at) if bytes > 0 => {
            // SAFETY: not null, within the segment: its bytes that messages name can be read, and
            // no other thread uses them, says the header.
            let payload = unsafe { core::slice::from_raw_parts(at, bytes) };
            (Category::Long, token.reply_long(0, &[number, 0], payload, destination))
        }
        Ok(_) => (Category::Short, token.reply(0, &[number, 0])),
        Err(status) => (Category::Short, token.reply(0, &[number, status as u32])),
    };
    // A requester of this layer has checked what could be wrong.
    if sent.is_ok() {
        let payload = if category == Category::Long { bytes } else { 0 };
        endpoint.counters.sent(false, category, 2, payload);
    }
}

/// Ends a get: runs its handler, or tells handler 0 of the reason why it came back.
fn end(zero: &Called, token: &Token<'_>, number: u32, status: u64) {
    let endpoint = zero.endpoint();
    let Some(get) = endpoint.gets.take(number) else { return };
    let category = if token.payload() == Payload::None { Category::Short } else { Category::Long };
    endpoint.counters.received(false, category);
    let function = endpoint.functions.borrow()[usize::from(get.handler)];
    match (Status::from_bits(status), function) {
        (None, Some(function)) => {
            let (address, bytes) = (endpoint.address(get.destination), get.bytes);
            let arrived = HandlerInput { category: Category::Long, address, bytes, args: get.args() };
            Called { function, number: get.handler, endpoint }.run_with(token, &arrived);
        }
        (None, None) => tell(zero, token, get, Status::BadHandler),
        (Some(status), _) => tell(zero, token, get, status),
    }
}

/// Handles a get that came back.
///
/// The reply to a get, which may come back, too, is none of the program's messages.
pub(crate) fn came_back(zero: &Called, token: &Token<'_>, returned: Returned) {
    if let Some(&number) = token.args().first()
        && returned.operation.is_request()
        && let Some(get) = zero.endpoint().gets.take(number)
    {
        tell(zero, token, get, returned.status);
    }
}

fn tell(zero: &Called, token: &Token<'_>, get: Get, status: Status) {
    let gets = &zero.endpoint().gets;
    gets.returned.set(Some(get));
    zero.tell(token, status, OPCODE);
    gets.returned.set(None);
}

/// Gets with arguments of an array; asynchronous: unless it would wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM2_GetXfer(
    endpoint: Option<&AmEndpoint>,
    entry: c_int,
    handler: u8,
    source: usize,
    bytes: usize,
    destination: usize,
    asynchronous: c_int,
    count: c_int,
    args: *const u32,
) -> c_int {
    let (ranges, waits) = (Ranges { source, destination, bytes }, asynchronous == 0);
    // SAFETY: so many arguments can be read, says the header.
    unsafe {
        let call = "AM2_GetXfer";
        with_arguments(call, args, count, |args| {
            get(To { endpoint, entry, handler, call }, &ranges, waits, args)
        })
    }
}
