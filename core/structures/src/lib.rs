//! Queues, double compare-and-swap and non-blocking structures, each written once for
//! every machine ([`towpath_machine::Processor`]).
//!
//! Pure algorithms: no system call, and no allocation but that of [`Boxed`] arrays, when a
//! structure is made. Waiting is a parameter of every operation that may have to
//! ([`towpath_sync::Waiting`]); where the arrays lie is another ([`Storage`]).
#![deny(unsafe_code)]

mod counter;
pub mod dcas;
mod name;
pub mod nonblocking;
pub mod planted;
mod pool;
pub mod queues;
mod storage;

pub use counter::Counter;
pub use pool::{Node, Pool, PoolError, VersionedIndex};
pub use storage::{Boxed, InPlace, Storage};
/// Locks, waiting and primitives, for the macros of this crate.
#[doc(hidden)]
pub use towpath_sync as sync;

use towpath_machine::Processor;
use towpath_sync::Waiting;

/// Backs off from contention once more. No participant is waited for, so there is nothing
/// to give up.
#[inline]
fn back_off<P: Processor, W: Waiting<P>>(cpu: &P, wait: &W, round: &mut u32) {
    let _ = wait.back_off(cpu, *round);
    *round = round.wrapping_add(1);
}

/// The README's example compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
