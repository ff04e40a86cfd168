//! Each message that comes back: its status, its operation, and the answers that
//! handler 0 gets about it.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use std::sync::Mutex;

use crate::bundle::*;
use crate::call::AM_OK;
use crate::call_tests::{ALL, Layer, function, ok, refused, token};
use crate::endpoint::*;
use crate::handler::*;
use crate::numbered::*;
use crate::statistics::*;
use crate::token::*;
use crate::translation::*;

const EBADTAG: c_int = 3;
const EBADHANDLER: c_int = 4;
const EBADSEGOFF: c_int = 5;
const EBADLENGTH: c_int = 6;
const EBADENDPOINT: c_int = 7;
const EREPLYREJECTED: c_int = 10;

/// A message that came back, as handler 0 is told.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    status: c_int,
    opcode: c_int,
    handler: u8,
    tag: u64,
    from: u64,
    args: Vec<i32>,
}

static TOLD: Mutex<Vec<Told>> = Mutex::new(Vec::new());

extern "C" fn note(status: c_int, opcode: c_int, token_: *mut c_void) {
    let token = token(token_);
    let (mut handler, mut args, mut count, mut tag, mut name) = (0, [0; 16], 0, 0, AmName { number: 0 });
    ok!(AM2_GetReturned(token, &mut handler, args.as_mut_ptr(), &mut count));
    ok!(AM_GetMsgTag(token, &mut tag));
    ok!(AM_GetSourceEndpoint(token, &mut name));
    refused!(crate::call::AmError::BAD_ARG.0, AM_Reply0(token, 1));
    let args = args[..count as usize].to_vec();
    TOLD.lock().unwrap().push(Told { status, opcode, handler, tag, from: name.number, args });
}

extern "C" fn reply_to_nowhere(token_: *mut c_void) {
    ok!(AM_Reply1(token(token_), 200, 9));
}

extern "C" fn reply_beyond_the_segment(token_: *mut c_void, at: *mut c_void, bytes: usize) {
    ok!(AM_ReplyXfer0(token(token_), 1 << 40, 1, at.cast(), bytes));
}

/// Two endpoints; those of entry 1 of the first lead to the second, with tag 7.
fn pair(layer: &Layer) -> (&'static AmEndpoint, &'static AmEndpoint, AmName) {
    let ((a, _), (b, name)) = (layer.endpoint(), layer.endpoint());
    ok!(AM_Map(Some(a), 1, name, 7));
    for endpoint in [a, b] {
        ok!(AM_SetHandler(Some(endpoint), 0, function(note as *const ())));
    }
    TOLD.lock().unwrap().clear();
    (a, b, name)
}

fn told(layer: &Layer) -> Told {
    loop {
        ok!(AM_Poll(Some(layer.bundle)));
        if let Some(told) = TOLD.lock().unwrap().pop() {
            return told;
        }
    }
}

#[test]
fn request_with_another_tag_comes_back() {
    let layer = Layer::new();
    let (a, b, name) = pair(&layer);
    for tag in [8, 0] {
        ok!(AM_SetTag(Some(b), tag));
        ok!(AM_Request2(Some(a), 1, 5, 1, u32::MAX));
        let args = vec![1, -1];
        let expected = Told { status: EBADTAG, opcode: 1, handler: 5, tag: 7, from: name.number, args };
        assert_eq!(told(&layer), expected);
    }
    let mut statistics = AMMPI_initial_stats;
    ok!(AMMPI_GetEndpointStatistics(Some(a), &mut statistics));
    assert_eq!((statistics.returned_messages, statistics.requests_sent[0]), (2, 2));
}

#[test]
fn requests_to_missing_handlers_come_back_in_every_form() {
    let layer = Layer::new();
    let (a, b, _) = pair(&layer);
    let mut segment = [0u8; 16];
    ok!(AM_SetSeg(Some(b), segment.as_mut_ptr().cast(), 16));
    ok!(AM_Request0(Some(a), 1, 5));
    assert_eq!((told(&layer).status, 1), (EBADHANDLER, 1));
    ok!(AM_RequestI1(Some(a), 1, 5, b"abc".as_ptr(), 3, 4));
    let back = told(&layer);
    assert_eq!((back.status, back.opcode, back.args), (EBADHANDLER, 2, vec![4]));
    ok!(AM_RequestXfer1(Some(a), 1, 0, 5, b"abc".as_ptr(), 3, 4));
    let back = told(&layer);
    assert_eq!((back.status, back.opcode, back.args), (EBADHANDLER, 3, vec![4]));
}

#[test]
fn transfers_beyond_the_segment_come_back() {
    let layer = Layer::new();
    let (a, b, _) = pair(&layer);
    let mut segment = [0u8; 16];
    ok!(AM_SetHandler(Some(b), 1, function(reply_beyond_the_segment as *const ())));
    let send = |offset: usize| {
        ok!(AM_RequestXfer0(Some(a), 1, offset, 1, b"abc".as_ptr(), 3));
        let back = told(&layer);
        assert_eq!(back.opcode, 3);
        back.status
    };
    // No segment at first.
    assert_eq!(send(0), EBADSEGOFF);
    ok!(AM_SetSeg(Some(b), segment.as_mut_ptr().cast(), 16));
    assert_eq!(send(17), EBADSEGOFF);
    assert_eq!(send(1 << 40), EBADSEGOFF);
    assert_eq!(send(14), EBADLENGTH);
    assert_eq!(segment, [0; 16]);
    // No byte lies at the null pointer.
    ok!(AM_SetSeg(Some(b), core::ptr::null_mut(), usize::MAX));
    assert_eq!(send(0), EBADSEGOFF);
}

#[test]
fn replies_that_the_requester_cannot_take_come_back() {
    let layer = Layer::new();
    let (a, b, _) = pair(&layer);
    let mut segment = [0u8; 16];
    ok!(AM_SetSeg(Some(b), segment.as_mut_ptr().cast(), 16));
    ok!(AM_SetHandler(Some(b), 1, function(reply_to_nowhere as *const ())));
    ok!(AM_SetHandler(Some(b), 2, function(reply_beyond_the_segment as *const ())));
    ok!(AM_Request0(Some(a), 1, 1));
    let back = told(&layer);
    assert_eq!((back.status, back.opcode, back.handler), (EREPLYREJECTED, 4, 200));
    assert_eq!(back.args, [9]);
    ok!(AM_RequestXfer0(Some(a), 1, 0, 2, b"abc".as_ptr(), 3));
    let back = told(&layer);
    assert_eq!((back.status, back.opcode, back.handler), (EREPLYREJECTED, 6, 1));
    let mut mask = 0;
    ok!(AM_GetEventMask(Some(layer.bundle), &mut mask));
}

#[test]
fn requests_to_an_endpoint_that_is_gone_come_back() {
    let layer = Layer::new();
    let (a, b, name) = pair(&layer);
    ok!(AM_Request0(Some(a), 1, 5));
    ok!(AM_FreeEndpoint(Some(b)));
    let back = told(&layer);
    assert_eq!((back.status, back.handler, back.from), (EBADENDPOINT, 5, name.number));
    ok!(AM_Request1(Some(a), 1, 6, 1));
    assert_eq!(told(&layer).status, EBADENDPOINT);
    // Its name can't be mapped any more.
    ok!(AM_UnMap(Some(a), 1));
    refused!(crate::call::AmError::BAD_ARG.0, AM_Map(Some(a), 1, name, ALL));
}
