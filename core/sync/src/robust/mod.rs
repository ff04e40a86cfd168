//! Primitives that survive the deaths of their users: one algorithm, one file.
//!
//! Each knows its users by the identities that their [`Waiting`](crate::Waiting) gives them, and
//! asks it which of them live. A survivor repairs what a dead user left.

mod barrier;
mod condvar;
mod episode_error;
mod event;
mod once;
mod plain;
mod readers_writer;
mod semaphore;

pub use barrier::Barrier;
pub use condvar::{ConditionWait, Condvar, Woken};
pub use episode_error::EpisodeError;
pub use event::Event;
pub use once::{Once, OnceRunner, OnceTurn};
pub use readers_writer::{Access, ReadHeld, ReadersWriter, Unreleased, WriteHeld};
pub use semaphore::{Semaphore, ThreadPermit};
