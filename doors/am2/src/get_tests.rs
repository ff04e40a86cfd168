//! Gets: their bytes, each of their errors, and each reason why they come back.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::ptr::{null, null_mut};
use std::sync::Mutex;

use crate::bundle::*;
use crate::call::{AM_OK, AmError};
use crate::call_tests::{Layer, function, ok, refused, token};
use crate::endpoint::*;
use crate::get::*;
use crate::handler::*;
use crate::numbered::*;
use crate::statistics::*;
use crate::token::*;
use crate::translation::*;

const BAD_ARG: c_int = AmError::BAD_ARG.0;
const IN_USE: c_int = AmError::IN_USE.0;
const GOT: u8 = 3;

/// News of a get: its bytes came, or it came back.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Got { at: usize, bytes: usize, args: Vec<c_int> },
    Back { status: c_int, opcode: c_int, handler: u8, from: u64, args: Vec<i32> },
}

static TOLD: Mutex<Vec<Told>> = Mutex::new(Vec::new());

fn note(told: Told) {
    TOLD.lock().unwrap().push(told);
}

extern "C" fn got(token_: *mut c_void, at: *mut c_void, bytes: usize, a: c_int, b: c_int) {
    refused!(BAD_ARG, AM_Reply0(token(token_), 1));
    refused!(BAD_ARG, AM2_GetReturned(token(token_), &mut 0, null_mut(), &mut 0));
    note(Told::Got { at: at as usize, bytes, args: vec![a, b] });
}

extern "C" fn back(status: c_int, opcode: c_int, token_: *mut c_void) {
    let token = token(token_);
    let (mut handler, mut args, mut count, mut name) = (0, [0; 16], 0, AmName { number: 0 });
    ok!(AM2_GetReturned(token, &mut handler, args.as_mut_ptr(), &mut count));
    ok!(AM_GetSourceEndpoint(token, &mut name));
    refused!(BAD_ARG, AM_Reply0(token, 1));
    note(Told::Back { status, opcode, handler, from: name.number, args: args[..count as usize].to_vec() });
}

extern "C" fn get_in_a_handler(token_: *mut c_void) {
    let mut endpoint = null();
    ok!(AM_GetDestEndpoint(token(token_), &mut endpoint));
    // SAFETY: the endpoint that runs this.
    refused!(IN_USE, AM_GetXfer0(endpoint.as_ref(), 0, 0, GOT, 0, 0));
    note(Told::Got { at: 0, bytes: 0, args: vec![] });
}

/// Two endpoints with segments; entry 1 of the first leads to the second, with tag 7.
struct Pair {
    layer: Layer,
    a: &'static AmEndpoint,
    b: &'static AmEndpoint,
    name: AmName,
    own: Box<[u8; 16]>,
    remote: Box<[u8; 64]>,
}

impl Pair {
    fn new() -> Pair {
        let layer = Layer::new();
        let ((a, _), (b, name)) = (layer.endpoint(), layer.endpoint());
        let (mut own, mut remote) = (Box::new([0; 16]), Box::new(core::array::from_fn(|k| k as u8)));
        ok!(AM_Map(Some(a), 1, name, 7));
        ok!(AM_SetSeg(Some(a), own.as_mut_ptr().cast(), 16));
        ok!(AM_SetSeg(Some(b), remote.as_mut_ptr().cast(), 64));
        ok!(AM_SetHandler(Some(a), GOT, function(got as *const ())));
        for endpoint in [a, b] {
            ok!(AM_SetHandler(Some(endpoint), 0, function(back as *const ())));
        }
        TOLD.lock().unwrap().clear();
        Pair { layer, a, b, name, own, remote }
    }

    fn told(&self) -> Told {
        loop {
            ok!(AM_Poll(Some(self.layer.bundle)));
            if let Some(told) = TOLD.lock().unwrap().pop() {
                return told;
            }
        }
    }

    fn got(&self, offset: usize, bytes: usize, args: [c_int; 2]) -> Told {
        Told::Got { at: self.own.as_ptr() as usize + offset, bytes, args: args.to_vec() }
    }

    /// Status of a get of these bytes, which comes back.
    fn status(&self, source: usize, bytes: usize, handler: u8) -> c_int {
        ok!(AM_GetXfer2(Some(self.a), 1, source, handler, 0, bytes, 1, u32::MAX));
        let Told::Back { status, opcode, handler: meant, from, args } = self.told() else {
            panic!("the bytes have come");
        };
        assert_eq!((opcode, meant, from, args), (OPCODE, handler, self.name.number, vec![1, -1]));
        status
    }
}

#[test]
fn get_copies_bytes_and_runs_the_handler_here() {
    let pair = Pair::new();
    ok!(AM_GetXfer2(Some(pair.a), 1, 40, GOT, 4, 8, 5, 6));
    assert_eq!(pair.told(), pair.got(4, 8, [5, 6]));
    assert_eq!(*pair.own, [0, 0, 0, 0, 40, 41, 42, 43, 44, 45, 46, 47, 0, 0, 0, 0]);
    ok!(AM_GetXferAsync2(Some(pair.a), 1, 60, GOT, 12, 4, 7, 8));
    assert_eq!(pair.told(), pair.got(12, 4, [7, 8]));
    assert_eq!(pair.own[12..], pair.remote[60..]);
    let args = [9u32, 10];
    ok!(AM2_GetXfer(Some(pair.a), 1, GOT, 1, 2, 0, 0, 2, args.as_ptr()));
    assert_eq!((pair.told(), pair.own[0], pair.own[1]), (pair.got(0, 2, [9, 10]), 1, 2));
    // Nothing, at the ends of both segments.
    ok!(AM_GetXfer2(Some(pair.a), 1, 64, GOT, 16, 0, 1, 2));
    assert_eq!(pair.told(), pair.got(16, 0, [1, 2]));
    let mut sums = AMMPI_initial_stats;
    ok!(AMMPI_GetEndpointStatistics(Some(pair.b), &mut sums));
    assert_eq!((sums.requests_received, sums.replies_sent), ([4, 0, 0], [1, 0, 3]));
}

#[test]
fn many_gets_end_each_with_its_own_arguments() {
    let pair = Pair::new();
    for k in 0..40 {
        ok!(AM_GetXfer2(Some(pair.a), 1, k, GOT, k % 16, 1, k as u32, 3));
    }
    let mut seen = [false; 40];
    for _ in 0..40 {
        let Told::Got { at, bytes: 1, args } = pair.told() else { panic!("no get of one byte") };
        let k = args[0] as usize;
        assert_eq!(at, pair.own.as_ptr() as usize + k % 16);
        assert!(!core::mem::replace(&mut seen[k], true));
    }
}

#[test]
fn gets_that_make_no_sense_are_refused() {
    let mut pair = Pair::new();
    let (a, most) = (Some(pair.a), crate::message::MAX_LONG);
    refused!(BAD_ARG, AM_GetXfer0(None, 1, 0, GOT, 0, 1));
    refused!(BAD_ARG, AM_GetXfer0(a, 1, 0, 0, 0, 1));
    refused!(BAD_ARG, AM_GetXfer0(a, 9, 0, GOT, 0, 1));
    refused!(BAD_ARG, AM_GetXfer0(a, -1, 0, GOT, 0, 1));
    refused!(BAD_ARG, AM2_GetXfer(a, 1, GOT, 0, 1, 0, 0, 17, [0; 17].as_ptr()));
    // No place in its own segment.
    for (offset, bytes) in [(16, 1), (17, 0), (10, 7), (usize::MAX, 1)] {
        refused!(BAD_ARG, AM_GetXfer0(a, 1, 0, GOT, offset, bytes));
    }
    ok!(AM_SetSeg(a, null_mut(), usize::MAX));
    refused!(BAD_ARG, AM_GetXfer0(a, 1, 0, GOT, 0, 1));
    refused!(BAD_ARG, AM_GetXfer0(a, 1, 0, GOT, 1 << 48, 1));
    refused!(BAD_ARG, AM_GetXfer0(a, 1, 0, GOT, pair.own.as_ptr() as usize, most + 1));
    // None of these is outstanding.
    ok!(AM_SetSeg(a, pair.own.as_mut_ptr().cast(), 16));
    ok!(AM_GetXfer0(a, 1, 0, GOT, 0, 1));
    refused!(IN_USE, AM_SetSeg(a, pair.own.as_mut_ptr().cast(), 1));
    pair.told();
    ok!(AM_SetSeg(a, pair.own.as_mut_ptr().cast(), 16));
    ok!(AM_SetHandler(a, 4, function(get_in_a_handler as *const ())));
    ok!(AM_Request0(a, 0, 4));
    pair.told();
}

#[test]
fn gets_of_bytes_that_are_not_there_come_back() {
    let pair = Pair::new();
    let (offset, length) = (5, 6);
    for (source, bytes, status) in
        [(64, 1, offset), (65, 0, offset), (usize::MAX, 1, offset), (60, 5, length)]
    {
        assert_eq!(pair.status(source, bytes, GOT), status, "{bytes} bytes at {source}");
    }
    // No byte lies at the null pointer.
    ok!(AM_SetSeg(Some(pair.b), null_mut(), usize::MAX));
    assert_eq!(pair.status(0, 1, GOT), offset);
    ok!(AM_SetSeg(Some(pair.b), null_mut(), 0));
    assert_eq!(pair.status(0, 1, GOT), offset);
    assert_eq!(*pair.own, [0; 16]);
    let mut sums = AMMPI_initial_stats;
    ok!(AMMPI_GetEndpointStatistics(Some(pair.a), &mut sums));
    assert_eq!((sums.returned_messages, sums.requests_sent[0]), (6, 6));
}

#[test]
fn gets_come_back_by_tag_by_handler_and_by_end() {
    let pair = Pair::new();
    ok!(AM_SetTag(Some(pair.b), 8));
    assert_eq!(pair.status(0, 1, GOT), 3);
    ok!(AM_SetTag(Some(pair.b), 7));
    assert_eq!(pair.status(0, 1, 99), 4);
    // One that is under way, and one that is sent after the end.
    ok!(AM_GetXfer0(Some(pair.a), 1, 0, GOT, 0, 1));
    ok!(AM_FreeEndpoint(Some(pair.b)));
    let args = vec![];
    let expected = Told::Back { status: 7, opcode: OPCODE, handler: GOT, from: pair.name.number, args };
    assert_eq!(pair.told(), expected);
    assert_eq!(pair.status(0, 1, GOT), 7);
}
