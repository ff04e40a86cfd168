//! The laboratory: what to run, what to record, the papers' numbers, the report.
//!
//! An experiment produces [`Record`]s, one JSON object per line; tables and the report are made from records alone.
#![deny(unsafe_code)]

pub mod host;
pub mod record;
pub mod stats;
pub mod topology;

pub use host::Host;
pub use record::{Extra, Metric, NATIVE, Record, Subject, metrics};
