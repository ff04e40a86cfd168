//! Errors of measurements.

use std::io;

/// The reason why something was not measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The contender has no such operation.
    #[error("it has no such operation")]
    NotSupported,
    /// The measurement is not possible on this machine or with these settings.
    #[error("{0}")]
    NotAvailable(String),
    /// A system call failed.
    #[error("{what} failed: {source}")]
    System {
        /// The operation, and its remedy if that is known.
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
        /// Rank of the process.
        rank: u32,
        /// The way in which it ended.
        how: String,
    },
    /// The measurement made no progress for so long that it was given up.
    #[error("no progress for {seconds} s, given up (where it stood: {place})")]
    Stuck {
        /// Duration without progress, in seconds.
        seconds: u64,
        /// The last known place.
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
