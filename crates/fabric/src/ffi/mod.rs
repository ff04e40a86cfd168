//! libfabric's side of the provider: objects that its users hold pointers to, and the tables of functions behind them.
//!
//! Every function here is called by C and keeps C's promises: pointers are those of objects that the provider has made and that are not closed yet, and buffers stay until their completions.
//! That is what each `SAFETY` in this folder means by *libfabric's contract*. A panic ends the process (an `extern "C"` function does not unwind).
#![allow(unsafe_code)]

mod atomic;
mod av;
mod cntr;
mod cq;
mod domain;
mod ep;
mod eq;
mod fabric;
mod info;
mod message;
mod mr;
mod no;
mod object;
mod rma;
mod sleep;
mod sys;
mod wait;

use crate::engine::endpoint::Refusal;

/// A result of a function that starts an operation.
fn code(result: Result<(), Refusal>) -> isize {
    match result {
        Ok(()) => 0,
        Err(Refusal::Again) => -(sys::FI_EAGAIN as isize),
        Err(Refusal::Unreachable) => -(libc::EHOSTUNREACH as isize),
        Err(Refusal::Unknown | Refusal::Invalid) => -(sys::FI_EINVAL as isize),
    }
}

/// An errno as a function returns it.
const fn failed(errno: u32) -> i32 {
    -(errno as i32)
}
