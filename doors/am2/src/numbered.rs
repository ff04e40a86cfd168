//! Requests, replies and gets of each number of arguments, by their names.
#![allow(unsafe_code)]

use core::ffi::c_int;

use crate::endpoint::AmEndpoint;
use crate::get::{Ranges, get};
use crate::message::{Lent, To, reply, reply_long, reply_medium, request, request_long, request_medium};
use crate::token::AmToken;

macro_rules! numbered {
    ($([$($arg:ident)*] $short:ident $medium:ident $long:ident $later:ident $reply:ident $reply_medium:ident $reply_long:ident $get:ident $get_later:ident;)*) => {$(
        /// Sends a short request.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $short(
            endpoint: Option<&AmEndpoint>, entry: c_int, handler: u8, $($arg: u32),*
        ) -> c_int {
            request(To { endpoint, entry, handler, call: stringify!($short) }, &[$($arg),*])
        }
        /// Sends a medium request.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $medium(
            endpoint: Option<&AmEndpoint>, entry: c_int, handler: u8, source: *const u8, bytes: usize, $($arg: u32),*
        ) -> c_int {
            let source = Lent { at: source, count: bytes };
            // SAFETY: the bytes can be read, says the header.
            unsafe { request_medium(To { endpoint, entry, handler, call: stringify!($medium) }, source, &[$($arg),*]) }
        }
        /// Sends a transfer.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $long(
            endpoint: Option<&AmEndpoint>, entry: c_int, offset: usize, handler: u8, source: *const u8, bytes: usize, $($arg: u32),*
        ) -> c_int {
            let source = Lent { at: source, count: bytes };
            // SAFETY: the bytes can be read, says the header.
            unsafe { request_long(To { endpoint, entry, handler, call: stringify!($long) }, source, offset, true, &[$($arg),*]) }
        }
        /// Sends a transfer, unless it would have to wait.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $later(
            endpoint: Option<&AmEndpoint>, entry: c_int, offset: usize, handler: u8, source: *const u8, bytes: usize, $($arg: u32),*
        ) -> c_int {
            let source = Lent { at: source, count: bytes };
            // SAFETY: the bytes can be read, says the header.
            unsafe { request_long(To { endpoint, entry, handler, call: stringify!($later) }, source, offset, false, &[$($arg),*]) }
        }
        /// Replies.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $reply(token: Option<&AmToken<'_>>, handler: u8, $($arg: u32),*) -> c_int {
            reply(stringify!($reply), token, handler, &[$($arg),*])
        }
        /// Replies with a payload.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $reply_medium(
            token: Option<&AmToken<'_>>, handler: u8, source: *const u8, bytes: usize, $($arg: u32),*
        ) -> c_int {
            let source = Lent { at: source, count: bytes };
            // SAFETY: the bytes can be read, says the header.
            unsafe { reply_medium(stringify!($reply_medium), token, handler, source, &[$($arg),*]) }
        }
        /// Replies with a transfer.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $reply_long(
            token: Option<&AmToken<'_>>, offset: usize, handler: u8, source: *const u8, bytes: usize, $($arg: u32),*
        ) -> c_int {
            let source = Lent { at: source, count: bytes };
            // SAFETY: the bytes can be read, says the header.
            unsafe { reply_long(stringify!($reply_long), token, handler, source, offset, &[$($arg),*]) }
        }
        /// Gets bytes of the remote endpoint's segment.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(
            endpoint: Option<&AmEndpoint>, entry: c_int, source: usize, handler: u8, destination: usize, bytes: usize, $($arg: u32),*
        ) -> c_int {
            get(To { endpoint, entry, handler, call: stringify!($get) }, &Ranges { source, destination, bytes }, true, &[$($arg),*])
        }
        /// Gets bytes, unless the request would have to wait.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get_later(
            endpoint: Option<&AmEndpoint>, entry: c_int, source: usize, handler: u8, destination: usize, bytes: usize, $($arg: u32),*
        ) -> c_int {
            get(To { endpoint, entry, handler, call: stringify!($get_later) }, &Ranges { source, destination, bytes }, false, &[$($arg),*])
        }
    )*};
}

numbered! {
    [] AM_Request0 AM_RequestI0 AM_RequestXfer0 AM_RequestXferAsync0 AM_Reply0 AM_ReplyI0 AM_ReplyXfer0 AM_GetXfer0 AM_GetXferAsync0;
    [a0] AM_Request1 AM_RequestI1 AM_RequestXfer1 AM_RequestXferAsync1 AM_Reply1 AM_ReplyI1 AM_ReplyXfer1 AM_GetXfer1 AM_GetXferAsync1;
    [a0 a1] AM_Request2 AM_RequestI2 AM_RequestXfer2 AM_RequestXferAsync2 AM_Reply2 AM_ReplyI2 AM_ReplyXfer2 AM_GetXfer2 AM_GetXferAsync2;
    [a0 a1 a2] AM_Request3 AM_RequestI3 AM_RequestXfer3 AM_RequestXferAsync3 AM_Reply3 AM_ReplyI3 AM_ReplyXfer3 AM_GetXfer3 AM_GetXferAsync3;
    [a0 a1 a2 a3] AM_Request4 AM_RequestI4 AM_RequestXfer4 AM_RequestXferAsync4 AM_Reply4 AM_ReplyI4 AM_ReplyXfer4 AM_GetXfer4 AM_GetXferAsync4;
    [a0 a1 a2 a3 a4] AM_Request5 AM_RequestI5 AM_RequestXfer5 AM_RequestXferAsync5 AM_Reply5 AM_ReplyI5 AM_ReplyXfer5 AM_GetXfer5 AM_GetXferAsync5;
    [a0 a1 a2 a3 a4 a5] AM_Request6 AM_RequestI6 AM_RequestXfer6 AM_RequestXferAsync6 AM_Reply6 AM_ReplyI6 AM_ReplyXfer6 AM_GetXfer6 AM_GetXferAsync6;
    [a0 a1 a2 a3 a4 a5 a6] AM_Request7 AM_RequestI7 AM_RequestXfer7 AM_RequestXferAsync7 AM_Reply7 AM_ReplyI7 AM_ReplyXfer7 AM_GetXfer7 AM_GetXferAsync7;
    [a0 a1 a2 a3 a4 a5 a6 a7] AM_Request8 AM_RequestI8 AM_RequestXfer8 AM_RequestXferAsync8 AM_Reply8 AM_ReplyI8 AM_ReplyXfer8 AM_GetXfer8 AM_GetXferAsync8;
    [a0 a1 a2 a3 a4 a5 a6 a7 a8] AM_Request9 AM_RequestI9 AM_RequestXfer9 AM_RequestXferAsync9 AM_Reply9 AM_ReplyI9 AM_ReplyXfer9 AM_GetXfer9 AM_GetXferAsync9;
    [a0 a1 a2 a3 a4 a5 a6 a7 a8 a9] AM_Request10 AM_RequestI10 AM_RequestXfer10 AM_RequestXferAsync10 AM_Reply10 AM_ReplyI10 AM_ReplyXfer10 AM_GetXfer10 AM_GetXferAsync10;
    [a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 a10] AM_Request11 AM_RequestI11 AM_RequestXfer11 AM_RequestXferAsync11 AM_Reply11 AM_ReplyI11 AM_ReplyXfer11 AM_GetXfer11 AM_GetXferAsync11;
    [a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 a10 a11] AM_Request12 AM_RequestI12 AM_RequestXfer12 AM_RequestXferAsync12 AM_Reply12 AM_ReplyI12 AM_ReplyXfer12 AM_GetXfer12 AM_GetXferAsync12;
    [a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 a10 a11 a12] AM_Request13 AM_RequestI13 AM_RequestXfer13 AM_RequestXferAsync13 AM_Reply13 AM_ReplyI13 AM_ReplyXfer13 AM_GetXfer13 AM_GetXferAsync13;
    [a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 a10 a11 a12 a13] AM_Request14 AM_RequestI14 AM_RequestXfer14 AM_RequestXferAsync14 AM_Reply14 AM_ReplyI14 AM_ReplyXfer14 AM_GetXfer14 AM_GetXferAsync14;
    [a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 a10 a11 a12 a13 a14] AM_Request15 AM_RequestI15 AM_RequestXfer15 AM_RequestXferAsync15 AM_Reply15 AM_ReplyI15 AM_ReplyXfer15 AM_GetXfer15 AM_GetXferAsync15;
    [a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 a10 a11 a12 a13 a14 a15] AM_Request16 AM_RequestI16 AM_RequestXfer16 AM_RequestXferAsync16 AM_Reply16 AM_ReplyI16 AM_ReplyXfer16 AM_GetXfer16 AM_GetXferAsync16;
}
