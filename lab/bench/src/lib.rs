//! Experiments on the machine at hand: contenders, measurements, sessions, reports.
#![deny(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

pub mod apps;
pub mod contenders;
mod crash_test;
pub mod experiment;
pub mod experiments;
pub mod ladder;
mod measuring;
mod mplocks;
mod ours;
mod peers;
pub mod primitives;
pub mod recommend;
pub mod session;
pub mod settings;
mod shared;
pub mod shown;
pub mod structures;
pub mod targets;
pub mod transport;

#[cfg(test)]
mod fake;

pub use contenders::contenders;
pub use experiment::{Bench, Measure, Samples, Sink, Variant};
pub use experiments::EXPERIMENTS;
pub use mplocks::{LeftFolder, left_folders};
pub use session::Session;
pub use settings::{BenchSettings, StructureSettings};
pub use shown::report;
pub use transport::{Circumstances, Contender, ContenderSide, Crash, Stress, waiting_policies};
