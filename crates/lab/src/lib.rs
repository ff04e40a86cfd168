//! The laboratory: what to run, what to record, the papers' numbers, the report.
//!
//! An experiment produces [`Record`]s, one JSON object per line; tables and the report are made from records alone.
#![deny(unsafe_code)]

pub mod error;
pub mod experiment;
pub mod experiments;
pub mod host;
pub mod process;
pub mod record;
pub mod stats;
pub mod topology;
pub mod transport;

#[cfg(test)]
mod fake;

pub use error::Error;
pub use experiment::{Bench, Experiment, Samples, Settings, Sink, Variant};
pub use experiments::EXPERIMENTS;
pub use host::Host;
pub use record::{Extra, Metric, NATIVE, Record, Subject, metrics};
pub use topology::{Pin, Placement};
pub use transport::{
    ADAPTIVE, CLAIM_ALGORITHMS, ClaimAlgorithm, Contender, Crash, LogP, OURS, Run, Side, Stress,
};
