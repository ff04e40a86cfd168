//! Primitives that survive the deaths of their users: one algorithm, one file.
//!
//! Each knows its users by the identities that their [`Waiting`](crate::Waiting) gives them, and
//! asks it which of them live. A survivor repairs what a dead user left.

mod readers_writer;

pub use readers_writer::{Access, ReadHeld, ReadersWriter, WriteHeld};
