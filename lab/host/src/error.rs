//! What can go wrong while measuring.

use std::io;

/// Why something was not measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The contender has no such operation.
    #[error("it has no such operation")]
    NotSupported,
    /// It can't be measured on this machine or with these settings.
    #[error("{0}")]
    NotAvailable(String),
    /// A system call failed.
    #[error("{what} failed: {source}")]
    System {
        /// What was tried, and what to do about it if that is known.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// Records could not be written to standard output.
    #[error("standard output can't be written: {0}")]
    Unwritten(io::Error),
    /// A process that took part ended before it should have.
    #[error(
        "process {rank} of the measurement {how}: run the experiment alone to see whether it happens again"
    )]
    Process {
        /// Which one.
        rank: u32,
        /// How it ended.
        how: String,
    },
    /// It made no progress for so long that it was given up.
    #[error("no progress for {seconds} s, given up (where it stood: {place})")]
    Stuck {
        /// How long.
        seconds: u64,
        /// What is known about where it stood.
        place: String,
    },
    /// Anything else, from the room that was measured.
    #[error(transparent)]
    Other(#[from] Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// A failed system call.
    pub fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::System { what: what.into(), source: source.into() }
    }
}
