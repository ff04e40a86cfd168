//! The laboratory: what to run, what to record, the papers' numbers, the report.
//!
//! An experiment produces [`Record`]s, one JSON object per line; tables and the report are made
//! from records alone.
#![deny(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

mod by_size;
pub mod claims;
pub mod console;
pub mod contenders;
pub mod error;
pub mod experiment;
pub mod experiments;
pub mod format;
pub mod host;
pub mod ladder;
mod measuring;
mod nonblocking;
mod ours;
pub mod paper;
mod peers;
pub mod process;
pub mod recommend;
pub mod record;
pub mod report;
pub mod reproduce;
pub mod results;
pub mod session;
mod signalled;
pub mod sim;
pub mod stats;
mod storm;
pub mod structures;
pub mod tables;
pub mod topology;
pub mod transport;
pub mod verdict;

#[cfg(test)]
mod fake;

pub use contenders::contenders;
pub use error::Error;
pub use experiment::{Bench, Experiment, Samples, Settings, Sink, Variant};
pub use experiments::EXPERIMENTS;
pub use host::Host;
pub use record::{Extra, Metric, NATIVE, Record, Subject, metrics};
pub use results::{Missing, Results};
pub use session::Session;
pub use topology::{Pin, Placement};
pub use transport::{
    ADAPTIVE, CLAIM_ALGORITHMS, ClaimAlgorithm, Contender, Crash, LogP, OURS, Run, Side, Stress,
    waiting_policies,
};
