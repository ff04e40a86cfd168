//! Five papers: algorithms, experiments on simulated machines, claims and their evidence.
#![deny(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

pub mod claims;
pub mod ladder;
pub mod paper;

mod signalled;
pub mod sim;
