//! libfabric's side of the provider: objects that its users hold pointers to, and the
//! tables of functions behind them.
//!
//! Every function here is called by C, which keeps these promises, by libfabric's manual pages.
//! Each `SAFETY` in this folder names the page, and the promises that the block rests on:
//!
//! * **Objects**: a pointer to an object is one that the provider has given out, of the class that
//!   the call is for, and not closed before the call ends.
//! * **Buffers**: memory for an operation is readable, or writable, until the operation's
//!   completion; that of an injected operation, during the call.
//! * **Arrays**: `count` elements are readable during the call.
//! * **Structures**: an argument such as `fi_msg` or `fi_info` is null or readable during the call,
//!   and so is what it points to.
//! * **Results**: a place for a result is null or writable during the call, for as many bytes as
//!   are said.
//!
//! A panic ends the process (an `extern "C"` function does not unwind).
#![allow(unsafe_code)]

mod atomic;
mod attributes;
mod av;
mod cntr;
mod cq;
mod domain;
mod entry;
mod ep;
mod eq;
mod fabric;
mod hints;
mod info;
mod message;
mod mr;
mod names;
mod no;
mod object;
mod rma;
mod sleep;
mod sys;
mod wait;

use core::ffi::{CStr, c_char, c_int};

use crate::device::operation::Refusal;

/// A result of a function that starts an operation.
fn code(result: Result<(), Refusal>) -> isize {
    match result {
        Ok(()) => 0,
        Err(Refusal::Again) => -(sys::FI_EAGAIN as isize),
        Err(Refusal::Unreachable) => -(libc::EHOSTUNREACH as isize),
        Err(Refusal::TooLong) => -(sys::FI_EMSGSIZE as isize),
        Err(Refusal::Unknown | Refusal::Invalid) => -(sys::FI_EINVAL as isize),
    }
}

/// The words for an error's number, which are also written to a place, cut to its length.
///
/// # Safety
///
/// The place is null, or has as many bytes.
unsafe fn explain(error: c_int, place: *mut c_char, len: usize) -> *const c_char {
    let text: &CStr = match error {
        libc::EHOSTUNREACH => c"the other process is dead, or has closed its endpoint",
        libc::ECANCELED => c"cancelled",
        libc::ENOMSG => c"no message",
        libc::EINVAL => c"an argument makes no sense, or the address is none of Towpath's",
        libc::ENODATA => c"no endpoint has this service",
        265 => c"the message was longer than its buffer",
        266 => c"no such registered memory, or its key is in use",
        _ => c"error",
    };
    if !place.is_null() && len > 0 {
        let bytes = text.to_bytes_with_nul();
        let n = bytes.len().min(len);
        // SAFETY: the caller's promise.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), place, n);
            *place.add(n - 1) = 0;
        }
    }
    text.as_ptr()
}

/// An errno as a function returns it.
const fn failed(errno: u32) -> i32 {
    -(errno as i32)
}
