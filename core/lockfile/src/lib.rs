//! Named locks between the processes of a host: a fair queue, and no process that serves.
//!
//! A lock is a small file in the directory of named worlds (/dev/shm). It is made by its first
//! user and removed by its last. Each user has a *place* in the lock's queue ([`LockPlace`]), and
//! for as long as it has the place, a byte of the file is locked for an open file description of
//! its own. The kernel lets go of that byte when all descriptors of the description are closed, at
//! the latest by the deaths of all processes that have one. So a place may be handed to children
//! ([`LockPlace::lifeline`]): it lasts as long as one of them lives.
//!
//! | file | contents |
//! | --- | --- |
//! | `queue.rs` | the algorithm: entering, waiting, leaving |
//! | `record.rs` | the table as bytes |
//! | `file.rs` | the file, and its locks |
//! | `survey.rs` | users of all locks, for people; removal of what dead ones left |
#![deny(unsafe_code)]

mod error;
mod file;
mod queue;
mod record;
mod survey;

pub use error::Error;
pub use file::check_name;
pub use queue::{Leaving, LockGrant, LockPlace};
pub use record::LockAccess;
pub use survey::{LockInfo, LockUser, StrangeFile, survey};

/// The README's example compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
