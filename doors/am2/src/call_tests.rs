//! Each call as a C program makes it, and each of its errors.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_int, c_void};
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::bundle::*;
use crate::call::{AM_OK, AmError};
use crate::endpoint::*;
use crate::handler::*;
use crate::message::*;
use crate::numbered::*;
use crate::spmd::*;
use crate::statistics::*;
use crate::token::*;
use crate::translation::*;
use crate::use_of_layer::*;

const BAD_ARG: c_int = AmError::BAD_ARG.0;
const RESOURCE: c_int = AmError::RESOURCE.0;
const IN_USE: c_int = AmError::IN_USE.0;
pub(crate) const ALL: u64 = u64::MAX;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Layer, which one test uses at a time.
pub(crate) struct Layer {
    _turn: MutexGuard<'static, ()>,
    pub bundle: &'static AmBundle,
}

/// Asserts that a call succeeds.
macro_rules! ok {
    ($call:expr) => {{
        // SAFETY: handles that live, places of this test.
        #[allow(unused_unsafe, reason = "some calls are safe")]
        let result = unsafe { $call };
        assert_eq!(result, AM_OK, "{}", stringify!($call));
    }};
}
/// Asserts that a call is refused.
macro_rules! refused {
    ($refusal:expr, $call:expr) => {{
        // SAFETY: as for `ok`; what is wrong the call must find.
        #[allow(unused_unsafe, reason = "some calls are safe")]
        let result = unsafe { $call };
        assert_eq!(result, $refusal, "{}", stringify!($call));
    }};
}
pub(crate) use {ok, refused};

impl Layer {
    pub fn new() -> Layer {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(AM_Init(), AM_OK);
        Layer { _turn: turn, bundle: bundle(AM_SEQ) }
    }

    /// An endpoint that accepts all messages, and has itself as entry 0.
    pub fn endpoint(&self) -> (&'static AmEndpoint, AmName) {
        endpoint(self.bundle)
    }
}

impl Drop for Layer {
    fn drop(&mut self) {
        assert_eq!(AM_Terminate(), AM_OK);
    }
}

fn bundle(kind: c_int) -> &'static AmBundle {
    let mut bundle = null_mut();
    ok!(AM_AllocateBundle(kind, &mut bundle));
    // SAFETY: just made; used until it is freed.
    unsafe { &*bundle }
}

fn endpoint(bundle: &AmBundle) -> (&'static AmEndpoint, AmName) {
    let (mut endpoint, mut name) = (null_mut(), AmName { number: 0 });
    ok!(AM_AllocateEndpoint(Some(bundle), &mut endpoint, &mut name));
    // SAFETY: just made; used until it is freed.
    let endpoint = unsafe { &*endpoint };
    ok!(AM_SetTag(Some(endpoint), ALL));
    ok!(AM_Map(Some(endpoint), 0, name, ALL));
    (endpoint, name)
}

/// A handler, as C passes it.
pub(crate) fn function(address: *const ()) -> HandlerFunction {
    // SAFETY: a function of C's calling convention, which is called as what it is.
    Some(unsafe { core::mem::transmute::<*const (), unsafe extern "C" fn()>(address) })
}

/// The token that a handler got, as calls take it.
pub(crate) fn token<'a>(token: *mut c_void) -> Option<&'a AmToken<'a>> {
    // SAFETY: the layer's token, while its handler runs.
    unsafe { token.cast::<AmToken<'_>>().as_ref() }
}

#[test]
fn calls_before_the_start_are_refused() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let not_init = AmError::NOT_INIT.0;
    refused!(not_init, AM_Terminate());
    refused!(not_init, AM_AllocateBundle(AM_SEQ, &mut null_mut()));
    refused!(not_init, AM_Poll(None));
    refused!(not_init, AM_Request0(None, 0, 1));
    refused!(not_init, AMMPI_SPMDBarrier());
    refused!(not_init, AMMPI_SPMDExit(0));
    assert_eq!((AMMPI_SPMDMyProc(), AMMPI_SPMDNumProcs()), (-1, -1));
    // As often ended as begun.
    ok!(AM_Init());
    ok!(AM_Init());
    ok!(AM_Terminate());
    bundle(AM_SEQ);
    ok!(AM_Terminate());
    refused!(not_init, AM_Terminate());
}

#[test]
fn null_pointers_are_refused() {
    let layer = Layer::new();
    let (a, name) = layer.endpoint();
    let mut number = 0;
    refused!(BAD_ARG, AM_AllocateBundle(AM_SEQ, null_mut()));
    refused!(BAD_ARG, AM_AllocateBundle(7, &mut null_mut()));
    refused!(BAD_ARG, AM_AllocateEndpoint(None, &mut null_mut(), &mut name.clone()));
    refused!(BAD_ARG, AM_AllocateEndpoint(Some(layer.bundle), null_mut(), &mut name.clone()));
    refused!(BAD_ARG, AM_AllocateEndpoint(Some(layer.bundle), &mut null_mut(), null_mut()));
    refused!(BAD_ARG, AM_FreeBundle(None));
    refused!(BAD_ARG, AM_FreeEndpoint(None));
    refused!(BAD_ARG, AM_MoveEndpoint(None, Some(layer.bundle), Some(layer.bundle)));
    refused!(BAD_ARG, AM_GetSeg(Some(a), null_mut(), &mut 0));
    refused!(BAD_ARG, AM_SetSeg(None, null_mut(), 0));
    refused!(BAD_ARG, AM_MaxSegLength(null_mut()));
    refused!(BAD_ARG, AM_GetTag(Some(a), null_mut()));
    refused!(BAD_ARG, AM_SetTag(None, 1));
    refused!(BAD_ARG, AM_Map(None, 0, name, ALL));
    refused!(BAD_ARG, AM_MapAny(Some(a), null_mut(), name, ALL));
    refused!(BAD_ARG, AM_GetTranslationTag(Some(a), 0, null_mut()));
    refused!(BAD_ARG, AM_GetTranslationName(Some(a), 0, null_mut()));
    refused!(BAD_ARG, AM_MaxNumTranslations(null_mut()));
    refused!(BAD_ARG, AM_GetNumTranslations(Some(a), null_mut()));
    refused!(BAD_ARG, AM_SetHandler(Some(a), 1, None));
    refused!(BAD_ARG, AM_SetHandlerAny(Some(a), null_mut(), function(ignore as *const ())));
    refused!(BAD_ARG, AM_GetNumHandlers(Some(a), null_mut()));
    refused!(BAD_ARG, AM_GetEventMask(Some(layer.bundle), null_mut()));
    refused!(BAD_ARG, AM_GetSourceEndpoint(None, &mut name.clone()));
    refused!(BAD_ARG, AM_GetDestEndpoint(None, &mut null()));
    refused!(BAD_ARG, AM_GetMsgTag(None, &mut 0));
    refused!(BAD_ARG, AMMPI_GetSourceId(None, &mut number));
    refused!(BAD_ARG, AM_Reply0(None, 1));
    refused!(BAD_ARG, AM_RequestI0(Some(a), 0, 1, null(), 4));
    refused!(BAD_ARG, AM2_Request(Some(a), 0, 1, 17, [0; 17].as_ptr()));
    refused!(BAD_ARG, AM2_Request(Some(a), 0, 1, 1, null()));
    refused!(BAD_ARG, AM2_Request(Some(a), 0, 1, -1, null()));
    refused!(BAD_ARG, AMMPI_GetEndpointStatistics(Some(a), null_mut()));
    refused!(BAD_ARG, AMMPI_AggregateStatistics(None, None));
}

extern "C" fn ignore(_: *mut c_void) {}

#[test]
fn limits_are_those_of_the_specification() {
    assert_eq!(AM_MaxShort(), 16);
    assert!(AM_MaxMedium() >= 512 && AM_MaxLong() >= 8192 && AM_MaxNumHandlers() >= 256);
    let layer = Layer::new();
    let (a, _) = layer.endpoint();
    let (mut entries, mut handlers, mut bytes) = (0, 0, 0);
    ok!(AM_MaxNumTranslations(&mut entries));
    assert!(entries >= 256);
    ok!(AM_GetNumHandlers(Some(a), &mut handlers));
    assert_eq!(handlers, 256);
    ok!(AM_SetNumHandlers(Some(a), 256));
    refused!(RESOURCE, AM_SetNumHandlers(Some(a), 257));
    refused!(RESOURCE, AM_SetNumHandlers(Some(a), 0));
    ok!(AM_MaxSegLength(&mut bytes));
    assert_eq!(bytes, usize::MAX);
    ok!(AM_SetExpectedResources(Some(a), 2, 100));
    refused!(BAD_ARG, AM_SetExpectedResources(Some(a), -1, 100));
    let many = vec![0u8; AM_MaxLong() as usize + 1];
    refused!(BAD_ARG, AM_RequestI0(Some(a), 0, 1, many.as_ptr(), AM_MaxMedium() as usize + 1));
    refused!(BAD_ARG, AM_RequestXfer0(Some(a), 0, 0, 1, many.as_ptr(), many.len()));
}

#[test]
fn translation_table_has_free_and_used_entries() {
    let layer = Layer::new();
    let ((a, own), (_, other)) = (layer.endpoint(), layer.endpoint());
    let (mut index, mut entries, mut tag, mut name) = (0, 0, 0, own);
    refused!(RESOURCE, AM_Map(Some(a), 0, other, 5));
    refused!(RESOURCE, AM_GetTranslationInuse(Some(a), 1));
    refused!(RESOURCE, AM_GetTranslationTag(Some(a), 1, &mut tag));
    refused!(RESOURCE, AM_GetTranslationName(Some(a), 1, &mut name));
    refused!(RESOURCE, AM_UnMap(Some(a), 1));
    refused!(RESOURCE, AMMPI_SetTranslationTag(Some(a), 1, 5));
    refused!(BAD_ARG, AM_Map(Some(a), 1, AmName { number: 99 << 16 | 1 }, 5));
    ok!(AM_MapAny(Some(a), &mut index, other, 5));
    assert_eq!(index, 1);
    ok!(AM_GetTranslationInuse(Some(a), 1));
    ok!(AM_GetTranslationTag(Some(a), 1, &mut tag));
    ok!(AM_GetTranslationName(Some(a), 1, &mut name));
    assert_eq!((tag, name), (5, other));
    ok!(AMMPI_SetTranslationTag(Some(a), 1, 6));
    ok!(AM_GetTranslationTag(Some(a), 1, &mut tag));
    assert_eq!(tag, 6);
    ok!(AM_GetNumTranslations(Some(a), &mut entries));
    assert_eq!(entries, 256);
    refused!(RESOURCE, AM_SetNumTranslations(Some(a), 1));
    ok!(AM_SetNumTranslations(Some(a), 2));
    refused!(RESOURCE, AM_MapAny(Some(a), &mut index, other, 5));
    refused!(BAD_ARG, AM_Map(Some(a), 2, other, 5));
    refused!(BAD_ARG, AM_GetTranslationInuse(Some(a), -1));
    ok!(AM_UnMap(Some(a), 1));
    refused!(BAD_ARG, AM_Request0(Some(a), 1, 1));
    ok!(AM_SetNumTranslations(Some(a), 65_536));
    refused!(RESOURCE, AM_SetNumTranslations(Some(a), 65_537));
    refused!(BAD_ARG, AM_SetNumTranslations(Some(a), -1));
    ok!(AM_Map(Some(a), 65_535, other, 5));
}

#[test]
fn names_of_another_world_lead_nowhere() {
    let theirs = Layer::new().endpoint().1;
    let layer = Layer::new();
    let (a, own) = layer.endpoint();
    // The same endpoint of a world made in the same way.
    assert_eq!(theirs.number & 0xff_ffff_ffff, own.number & 0xff_ffff_ffff);
    refused!(BAD_ARG, AM_Map(Some(a), 1, theirs, ALL));
    refused!(BAD_ARG, AM_MapAny(Some(a), &mut 0, theirs, ALL));
    ok!(AM_Map(Some(a), 1, own, ALL));
}

static SUM: AtomicI64 = AtomicI64::new(0);
static ANSWERS: AtomicI64 = AtomicI64::new(0);

/// Sixteen weighted arguments.
macro_rules! sixteen {
    ($($name:ident $weight:literal)*) => {
        extern "C" fn add_sixteen(token_: *mut c_void $(, $name: c_int)*) {
            SUM.store(0 $(+ i64::from($name) * $weight)*, Relaxed);
            ok!(AM_Reply16(token(token_), 2 $(, $name.cast_unsigned())*));
        }
        extern "C" fn compare_sixteen(_: *mut c_void $(, $name: c_int)*) {
            assert_eq!(SUM.load(Relaxed), 0 $(+ i64::from($name) * $weight)*);
            ANSWERS.fetch_add(1, Relaxed);
        }
    };
}
sixteen!(a 1 b 2 c 3 d 4 e 5 f 6 g 7 h 8 i 9 j 10 k 11 l 12 m 13 n 14 o 15 p 16);

extern "C" fn check_medium(token_: *mut c_void, at: *mut c_void, bytes: usize, a: c_int, b: c_int) {
    // SAFETY: the layer's copy of the payload.
    let payload = unsafe { core::slice::from_raw_parts(at.cast::<u8>(), bytes) };
    assert_eq!((payload, a, b), (&b"a payload"[..], -1, 2));
    ok!(AM_ReplyI1(token(token_), 4, payload.as_ptr(), payload.len(), 7));
}

extern "C" fn check_medium_reply(_: *mut c_void, at: *mut c_void, bytes: usize, a: c_int) {
    // SAFETY: the layer's copy of the payload.
    let payload = unsafe { core::slice::from_raw_parts(at.cast::<u8>(), bytes) };
    assert_eq!((payload, a), (&b"a payload"[..], 7));
    ANSWERS.fetch_add(1, Relaxed);
}

static SEGMENT: AtomicU64 = AtomicU64::new(0);

extern "C" fn check_long(token_: *mut c_void, at: *mut c_void, bytes: usize) {
    assert_eq!((at.addr() as u64, bytes), (SEGMENT.load(Relaxed) + 8, 5));
    // SAFETY: bytes of the segment, which only messages use now.
    let payload = unsafe { core::slice::from_raw_parts(at.cast::<u8>(), bytes) }.to_vec();
    assert_eq!(payload, b"bytes");
    ok!(AM_ReplyXfer2(token(token_), 100, 6, payload.as_ptr(), payload.len(), 1, 2));
}

extern "C" fn check_long_reply(_: *mut c_void, at: *mut c_void, bytes: usize, a: c_int, b: c_int) {
    assert_eq!((at.addr() as u64, bytes, a, b), (SEGMENT.load(Relaxed) + 100, 5, 1, 2));
    ANSWERS.fetch_add(1, Relaxed);
}

#[test]
fn messages_of_every_form_arrive_and_are_answered() {
    let layer = Layer::new();
    let (a, _) = layer.endpoint();
    let mut segment = vec![0u8; 128];
    SEGMENT.store(segment.as_ptr().addr() as u64, Relaxed);
    ok!(AM_SetSeg(Some(a), segment.as_mut_ptr().cast(), 128));
    let (mut at, mut bytes) = (null_mut(), 0);
    ok!(AM_GetSeg(Some(a), &mut at, &mut bytes));
    assert_eq!((at.cast_const().cast(), bytes), (segment.as_ptr(), 128));
    let handlers: [*const (); 6] = [
        add_sixteen as *const (),
        compare_sixteen as *const (),
        check_medium as *const (),
        check_medium_reply as *const (),
        check_long as *const (),
        check_long_reply as *const (),
    ];
    for (number, address) in (1..).zip(handlers) {
        ok!(AM_SetHandler(Some(a), number, function(address)));
    }
    let poll_until = |answers| {
        while ANSWERS.load(Relaxed) < answers {
            ok!(AM_Poll(Some(layer.bundle)));
        }
    };
    ANSWERS.store(0, Relaxed);
    ok!(AM_Request16(Some(a), 0, 1, 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, u32::MAX));
    poll_until(1);
    ok!(AM2_Request(Some(a), 0, 1, 16, [7; 16].as_ptr()));
    poll_until(2);
    ok!(AM_RequestI2(Some(a), 0, 3, b"a payload".as_ptr(), 9, u32::MAX, 2));
    ok!(AM2_RequestI(Some(a), 0, 3, b"a payload".as_ptr(), 9, 2, [u32::MAX, 2].as_ptr()));
    poll_until(4);
    ok!(AM_RequestXfer0(Some(a), 0, 8, 5, b"bytes".as_ptr(), 5));
    poll_until(5);
    ok!(AM_RequestXferAsync0(Some(a), 0, 8, 5, b"bytes".as_ptr(), 5));
    ok!(AM2_RequestXfer(Some(a), 0, 5, b"bytes".as_ptr(), 5, 8, 1, 0, null()));
    poll_until(7);
    assert_eq!((&segment[8..13], &segment[100..105]), (&b"bytes"[..], &b"bytes"[..]));
    // The whole of the process's memory as a segment.
    ok!(AM_SetSeg(Some(a), null_mut(), usize::MAX));
    SEGMENT.store(0, Relaxed);
    ok!(AM_SetHandler(Some(a), 5, function(take_address as *const ())));
    let place = [0u8; 5];
    ok!(AM_RequestXfer0(Some(a), 0, place.as_ptr().addr(), 5, b"bytes".as_ptr(), 5));
    poll_until(8);
    assert_eq!(std::hint::black_box(&place), b"bytes");
    let mut statistics = AMMPI_initial_stats;
    ok!(AMMPI_GetEndpointStatistics(Some(a), &mut statistics));
    assert_eq!((statistics.requests_sent, statistics.requests_received), ([2, 2, 4], [2, 2, 4]));
    assert_eq!((statistics.replies_sent, statistics.replies_received), ([2, 2, 3], [2, 2, 3]));
    assert_eq!(statistics.request_data_bytes_sent, [128, 34, 20]);
    let mut sum = AMMPI_initial_stats;
    ok!(AMMPI_AggregateStatistics(Some(&mut sum), Some(&statistics)));
    assert_eq!(sum, statistics);
    // SAFETY: no stream; the text stays until the next call.
    let text = unsafe { CStr::from_ptr(AMMPI_DumpStatistics(null_mut(), Some(&sum), 1)) };
    assert!(text.to_string_lossy().contains("requests sent: 2  2  4"));
    ok!(AMMPI_ResetEndpointStatistics(Some(a)));
    ok!(AMMPI_GetEndpointStatistics(Some(a), &mut statistics));
    assert_eq!(statistics, AMMPI_initial_stats);
}

extern "C" fn take_address(_: *mut c_void, at: *mut c_void, bytes: usize) {
    assert!(!at.is_null() && bytes == 5);
    ANSWERS.fetch_add(1, Relaxed);
}

static TOLD: AtomicU64 = AtomicU64::new(0);
static BUNDLE: AtomicU64 = AtomicU64::new(0);
/// Endpoint of the bundle, beside the one whose handler runs.
static OTHER: AtomicU64 = AtomicU64::new(0);

extern "C" fn ask(token_: *mut c_void) {
    let (mut name, mut reached, mut tag, mut entry) = (AmName { number: 0 }, null(), 0, -1);
    ok!(AM_GetSourceEndpoint(token(token_), &mut name));
    ok!(AM_GetDestEndpoint(token(token_), &mut reached));
    ok!(AM_GetMsgTag(token(token_), &mut tag));
    ok!(AMMPI_GetSourceId(token(token_), &mut entry));
    assert_eq!((tag, entry), (7, 3));
    TOLD.store(name.number, Relaxed);
    // Calls that a handler may not make.
    // SAFETY: the endpoint that runs this handler, and its bundle.
    let (reached, bundle) = unsafe { (reached.as_ref(), &*(BUNDLE.load(Relaxed) as *const AmBundle)) };
    refused!(IN_USE, AM_Request0(reached, 0, 1));
    // SAFETY: an endpoint of the test's, of the same bundle.
    let other = unsafe { (OTHER.load(Relaxed) as *const AmEndpoint).as_ref() };
    refused!(IN_USE, AM_Request0(other, 0, 1));
    refused!(IN_USE, AM_Request5(other, 0, 1, 0, 0, 0, 0, 0));
    refused!(IN_USE, AM_RequestI0(other, 0, 1, b"x".as_ptr(), 1));
    refused!(IN_USE, AM_RequestXfer0(other, 0, 0, 1, null(), 0));
    refused!(IN_USE, AM_RequestXferAsync0(other, 0, 0, 1, null(), 0));
    refused!(IN_USE, AM_GetXfer0(other, 0, 0, 1, 0, 0));
    refused!(IN_USE, AM_MoveEndpoint(other, Some(bundle), Some(bundle)));
    refused!(IN_USE, AM_SetNumTranslations(other, 300));
    refused!(IN_USE, AM_WaitSema(Some(bundle)));
    // Calls that it may make.
    ok!(AM_SetTag(other, ALL));
    ok!(AM_SetEventMask(Some(bundle), AM_NOTEMPTY));
    ok!(AM_SetNumHandlers(other, 256));
    ok!(AM_SetExpectedResources(other, 1, 1));
    ok!(AMMPI_SetHandlerCallbacks(other, None, None));
    ok!(AM_Init());
    ok!(AM_Terminate());
    let mut made = null_mut();
    ok!(AM_AllocateBundle(AM_SEQ, &mut made));
    // SAFETY: just made.
    ok!(AM_FreeBundle(unsafe { made.as_ref() }));
    refused!(IN_USE, AM_SetHandler(reached, 1, function(ignore as *const ())));
    refused!(IN_USE, AM_UnMap(reached, 0));
    refused!(IN_USE, AM_SetSeg(reached, null_mut(), 0));
    refused!(IN_USE, AM_FreeEndpoint(reached));
    refused!(IN_USE, AM_FreeBundle(Some(bundle)));
    refused!(IN_USE, AM_AllocateEndpoint(Some(bundle), &mut null_mut(), &mut name));
    refused!(BAD_ARG, AM2_GetReturned(token(token_), &mut 0, &mut 0, &mut 0));
    ok!(AM_Poll(Some(bundle)));
    ok!(AM_Reply0(token(token_), 2));
    refused!(BAD_ARG, AM_Reply0(token(token_), 2));
    refused!(BAD_ARG, AM_Reply0(token(token_), 0));
}

extern "C" fn refuse_to_reply(token_: *mut c_void) {
    refused!(BAD_ARG, AM_Reply0(token(token_), 2));
    TOLD.fetch_add(1, Relaxed);
}

#[test]
fn token_tells_and_handler_may_only_reply() {
    let layer = Layer::new();
    let ((a, name), (b, other)) = (layer.endpoint(), layer.endpoint());
    BUNDLE.store(core::ptr::from_ref(layer.bundle).expose_provenance() as u64, Relaxed);
    OTHER.store(core::ptr::from_ref(a).expose_provenance() as u64, Relaxed);
    ok!(AM_Map(Some(a), 1, other, 7));
    ok!(AM_Map(Some(b), 3, name, ALL));
    ok!(AM_SetHandler(Some(b), 1, function(ask as *const ())));
    ok!(AM_SetHandler(Some(a), 2, function(refuse_to_reply as *const ())));
    refused!(BAD_ARG, AM_Request0(Some(a), 1, 0));
    ok!(AM_Request0(Some(a), 1, 1));
    while TOLD.load(Relaxed) != name.number + 1 {
        ok!(AM_Poll(Some(layer.bundle)));
    }
}

static BEFORE: AtomicI64 = AtomicI64::new(0);
static AFTER: AtomicI64 = AtomicI64::new(0);

unsafe extern "C" fn before(
    category: c_int,
    is_request: c_int,
    handler: c_int,
    _: *mut c_void,
    _: *mut c_void,
    bytes: usize,
    count: c_int,
    args: *mut u32,
) {
    // SAFETY: so many arguments.
    let last = unsafe { *args.add(count as usize - 1) };
    assert_eq!((category, is_request, handler, bytes, last), (0, 1, 17, 0, 5));
    BEFORE.fetch_add(1, Relaxed);
}

unsafe extern "C" fn after(category: c_int, is_request: c_int) {
    assert_eq!((category, is_request), (0, 1));
    AFTER.fetch_add(1, Relaxed);
}

#[test]
fn handlers_of_free_numbers_are_called_between_callbacks() {
    let layer = Layer::new();
    let (a, _) = layer.endpoint();
    let mut number = 0;
    for expected in 1..=17 {
        ok!(AM_SetHandlerAny(Some(a), &mut number, function(ignore as *const ())));
        assert_eq!(number, expected);
    }
    ok!(AMMPI_SetHandlerCallbacks(Some(a), Some(before), Some(after)));
    ok!(AM_Request3(Some(a), 0, 17, 3, 4, 5));
    ok!(AM_Poll(Some(layer.bundle)));
    assert_eq!((BEFORE.load(Relaxed), AFTER.load(Relaxed)), (1, 1));
    ok!(AMMPI_SetHandlerCallbacks(Some(a), None, None));
    for _ in 17..255 {
        ok!(AM_SetHandlerAny(Some(a), &mut number, function(ignore as *const ())));
    }
    refused!(RESOURCE, AM_SetHandlerAny(Some(a), &mut number, function(ignore as *const ())));
}

#[test]
fn waiter_needs_events_and_endpoints() {
    let layer = Layer::new();
    let bundle = Some(layer.bundle);
    let mut mask = -1;
    ok!(AM_GetEventMask(bundle, &mut mask));
    assert_eq!(mask, AM_NOEVENTS);
    ok!(AM_SetEventMask(bundle, AM_NOTEMPTY));
    refused!(BAD_ARG, AM_WaitSema(bundle));
    refused!(BAD_ARG, AM_SetEventMask(bundle, 4));
    let (a, _) = layer.endpoint();
    ok!(AM_SetEventMask(bundle, AM_NOEVENTS));
    refused!(BAD_ARG, AM_WaitSema(bundle));
    ok!(AM_SetEventMask(bundle, AM_CANSEND));
    ok!(AM_WaitSema(bundle));
    ok!(AM_SetHandler(Some(a), 1, function(ignore as *const ())));
    ok!(AM_SetEventMask(bundle, AM_NOTEMPTY));
    ok!(AM_GetEventMask(bundle, &mut mask));
    assert_eq!(mask, AM_NOTEMPTY);
    ok!(AM_Request0(Some(a), 0, 1));
    ok!(AM_WaitSema(bundle));
    ok!(AM_Poll(bundle));
}

#[test]
fn endpoints_move_between_bundles_and_end_with_them() {
    let layer = Layer::new();
    let (a, _) = layer.endpoint();
    let other = bundle(AM_PAR);
    ok!(AM_SetHandler(Some(a), 1, function(count_answer as *const ())));
    ok!(AM_MoveEndpoint(Some(a), Some(layer.bundle), Some(other)));
    refused!(BAD_ARG, AM_MoveEndpoint(Some(a), Some(layer.bundle), Some(other)));
    ANSWERS.store(0, Relaxed);
    ok!(AM_Request0(Some(a), 0, 1));
    ok!(AM_Poll(Some(layer.bundle)));
    assert_eq!(ANSWERS.load(Relaxed), 0);
    ok!(AM_Poll(Some(other)));
    assert_eq!(ANSWERS.load(Relaxed), 1);
    let (b, _) = endpoint(other);
    ok!(AM_FreeEndpoint(Some(b)));
    ok!(AM_FreeBundle(Some(other)));
    // The places of endpoints that are gone are free again; there are sixteen.
    for _ in 0..16 {
        layer.endpoint();
    }
    let (mut full, mut name) = (null_mut(), AmName { number: 0 });
    refused!(RESOURCE, AM_AllocateEndpoint(Some(layer.bundle), &mut full, &mut name));
}

extern "C" fn count_answer(_: *mut c_void) {
    ANSWERS.fetch_add(1, Relaxed);
}

#[test]
fn threads_of_a_parallel_bundle_take_turns() {
    let _layer = Layer::new();
    let shared = bundle(AM_PAR);
    let (a, _) = endpoint(shared);
    ok!(AM_SetHandler(Some(a), 1, function(count_answer as *const ())));
    ok!(AM_SetEventMask(Some(shared), AM_NOTEMPTY));
    ANSWERS.store(0, Relaxed);
    let (shared, a) =
        (core::ptr::from_ref(shared).expose_provenance(), core::ptr::from_ref(a).expose_provenance());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(move || {
                // SAFETY: both live until the threads have ended.
                let a = unsafe { &*core::ptr::with_exposed_provenance::<AmEndpoint>(a) };
                for _ in 0..1000 {
                    ok!(AM_Request0(Some(a), 0, 1));
                }
            });
        }
        scope.spawn(move || {
            // SAFETY: the bundle lives until the threads have ended.
            let shared = unsafe { &*core::ptr::with_exposed_provenance::<AmBundle>(shared) };
            while ANSWERS.load(Relaxed) < 3000 {
                ok!(AM_Poll(Some(shared)));
                std::thread::yield_now();
            }
        });
    });
    assert_eq!(ANSWERS.load(Relaxed), 3000);
}
