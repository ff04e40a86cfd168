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
pub use pool::{Link, Node, Pool, PoolError};
pub use storage::{Boxed, InPlace, Storage};
/// Locks, waiting and primitives, for the macros of this crate.
#[doc(hidden)]
pub use towpath_sync as sync;

/// The README's example compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
