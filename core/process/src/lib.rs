//! Forked processes, for measuring and for tests.
//!
//! A [`Child`] runs a closure on a copy of its parent's memory. Its parent stops it, kills it and
//! waits for it; it never outlives its parent.

mod child;
mod cycles;

pub use child::{Child, ChildState, Exit, PANICKED};
pub use cycles::may_count_cycles;
