//! Four papers: their algorithms, their experiments on simulated machines, and their claims, judged
//! by simulated and native evidence.
#![deny(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

pub mod claims;
pub mod ladder;
pub mod paper;

mod signalled;
pub mod sim;
