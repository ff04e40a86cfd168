//! Records, statistics, tables, plots and the report.
//!
//! An experiment produces [`Record`]s, one JSON object per line, and hands tables and plots made
//! from records alone to the [`Report`], which knows no experiment.
#![deny(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

pub mod console;
pub mod curves;
pub mod experiment;
pub mod files;
pub mod format;
pub mod names;
pub mod page;
pub mod plots;
pub mod record;
pub mod report;
pub mod results;
pub mod stats;
pub mod svg;
pub mod table;

pub use experiment::Experiment;
pub use names::{ADAPTIVE, CLAIM_ALGORITHMS, ClaimAlgorithm, OURS};
pub use record::{Extra, Metric, NATIVE, Record, RecordSubject, metrics};
pub use report::{Chapter, ClaimLine, Exhibit, Exhibition, Report, Section};
pub use results::{Asked, Missing, Results};
pub use table::{Cell, Kind, Table};
