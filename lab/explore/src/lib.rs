//! Subjects of the schedule explorer: Towpath's algorithms, and faults that are planted.
//!
//! The explorer itself is `towpath-schedules`, all of whose names are found here, too. A crate of
//! its own: what is instantiated for each algorithm need not be optimised, and each step of an
//! exploration must be.
#![deny(unsafe_code)]

pub mod subjects;

pub use towpath_schedules::*;
