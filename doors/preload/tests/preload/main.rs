//! Programs with pthread's locks, run with the library and without: both do the same.
//!
//! Each case is a program of its own: this one, started again for that case alone.
#![allow(unsafe_code)]

mod barriers;
mod conditions;
mod mutexes;
mod reports;
mod rw_locks;
mod semaphores;
mod support;
mod traces;
mod worlds;
