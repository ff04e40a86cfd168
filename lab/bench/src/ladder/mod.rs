//! The ladder of paper M on this machine: the four versions of MPICH's device between processes, and
//! Towpath's own.

mod native;
mod ours;
mod semaphore;

pub use native::measure;
