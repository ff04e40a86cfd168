//! The machine at hand: its description, its cores, processes for measuring on it, and
//! traces of programs that ran on it.
#![deny(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

pub mod error;
pub mod host;
pub mod process;
pub mod shared_cores;
pub mod topology;
pub mod trace;

pub use error::Error;
pub use host::Host;
pub use shared_cores::{CoreLooks, SharedCores};
pub use topology::{Pin, Placement};
