//! Messages of each number of arguments, and their replies.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::bundle::*;
use crate::call::AM_OK;
use crate::call_tests::{Layer, function, ok, token};
use crate::endpoint::AmEndpoint;
use crate::handler::*;
use crate::numbered::*;
use crate::statistics::*;

static ANSWERS: AtomicUsize = AtomicUsize::new(0);

/// A request of each number of arguments, which comes back in the reply.
macro_rules! exchange {
    ($($request:ident $reply:ident [$($name:ident $value:literal)*];)*) => {
        fn exchange(bundle: &AmBundle, endpoint: &AmEndpoint) {
            $({
                extern "C" fn answer(token_: *mut c_void $(, $name: c_int)*) {
                    ok!($reply(token(token_), 2 $(, $name.cast_unsigned())*));
                }
                extern "C" fn compare(_: *mut c_void $(, $name: c_int)*) {
                    let (come, sent): (&[c_int], &[c_int]) = (&[$($name),*], &[$($value),*]);
                    assert_eq!(come, sent);
                    ANSWERS.fetch_add(1, Relaxed);
                }
                ok!(AM_SetHandler(Some(endpoint), 1, function(answer as *const ())));
                ok!(AM_SetHandler(Some(endpoint), 2, function(compare as *const ())));
                let before = ANSWERS.load(Relaxed);
                ok!($request(Some(endpoint), 0, 1 $(, $value)*));
                for _ in 0..100 {
                    ok!(AM_Poll(Some(bundle)));
                }
                assert_eq!(ANSWERS.load(Relaxed), before + 1, stringify!($request));
            })*
        }
    };
}
exchange! {
    AM_Request0 AM_Reply0 [];
    AM_Request1 AM_Reply1 [a 1];
    AM_Request2 AM_Reply2 [a 1 b 2];
    AM_Request3 AM_Reply3 [a 1 b 2 c 3];
    AM_Request4 AM_Reply4 [a 1 b 2 c 3 d 4];
    AM_Request5 AM_Reply5 [a 1 b 2 c 3 d 4 e 5];
    AM_Request6 AM_Reply6 [a 1 b 2 c 3 d 4 e 5 f 6];
    AM_Request7 AM_Reply7 [a 1 b 2 c 3 d 4 e 5 f 6 g 7];
    AM_Request8 AM_Reply8 [a 1 b 2 c 3 d 4 e 5 f 6 g 7 h 8];
    AM_Request9 AM_Reply9 [a 1 b 2 c 3 d 4 e 5 f 6 g 7 h 8 i 9];
    AM_Request10 AM_Reply10 [a 1 b 2 c 3 d 4 e 5 f 6 g 7 h 8 i 9 j 10];
    AM_Request11 AM_Reply11 [a 1 b 2 c 3 d 4 e 5 f 6 g 7 h 8 i 9 j 10 k 11];
    AM_Request12 AM_Reply12 [a 1 b 2 c 3 d 4 e 5 f 6 g 7 h 8 i 9 j 10 k 11 l 12];
    AM_Request13 AM_Reply13 [a 1 b 2 c 3 d 4 e 5 f 6 g 7 h 8 i 9 j 10 k 11 l 12 m 13];
    AM_Request14 AM_Reply14 [a 1 b 2 c 3 d 4 e 5 f 6 g 7 h 8 i 9 j 10 k 11 l 12 m 13 n 14];
    AM_Request15 AM_Reply15 [a 1 b 2 c 3 d 4 e 5 f 6 g 7 h 8 i 9 j 10 k 11 l 12 m 13 n 14 o 15];
    AM_Request16 AM_Reply16 [a 1 b 2 c 3 d 4 e 5 f 6 g 7 h 8 i 9 j 10 k 11 l 12 m 13 n 14 o 15 p 16];
}

#[test]
fn each_number_of_arguments_arrives_and_is_answered() {
    let layer = Layer::new();
    let (endpoint, _) = layer.endpoint();
    exchange(layer.bundle, endpoint);
    // A bundle of two polls both.
    let _other = layer.endpoint();
    exchange(layer.bundle, endpoint);
    assert_eq!(ANSWERS.load(Relaxed), 34);
    let mut statistics = AMMPI_initial_stats;
    ok!(AMMPI_GetEndpointStatistics(Some(endpoint), &mut statistics));
    assert_eq!((statistics.requests_sent, statistics.replies_received), ([34, 0, 0], [34, 0, 0]));
    // 136 arguments, twice.
    assert_eq!(statistics.request_data_bytes_sent, [2 * 136 * 4, 0, 0]);
    assert_eq!(statistics.reply_data_bytes_sent, statistics.request_data_bytes_sent);
}
