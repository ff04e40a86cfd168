//! The ladder of paper M on this machine: MPICH's device in four versions, and Towpath's
//! own.

mod native;
mod ours;
mod semaphore;

pub use native::measure;
