//! Errors of calls, and reasons why messages come back.

use thiserror::Error;
use towpath_derive::SentenceDebug;

/// Reason why a call failed. The first five are those of Active Messages II.
///
/// `Debug` prints the sentence with the remedy, as `Display` does, since that is what a `main` that
/// returns the error prints; `{:#?}` prints the variant.
#[derive(Error, SentenceDebug)]
pub enum Error {
    /// The translation table has no entry there, or the handler none.
    #[error("not initialised: {0}")]
    NotInitialised(String),
    /// An argument makes no sense.
    #[error("bad argument: {0}")]
    BadArgument(String),
    /// Something limited has run out.
    #[error("out of resources: {0}")]
    Resource(String),
    /// The message can't go out at once, and the call was not to wait.
    #[error("not sent: no space at the destination now; poll and try again")]
    NotSent,
    /// The endpoint is running a handler, or the entry is taken.
    #[error("in use: {0}")]
    InUse(String),
    /// The world's memory doesn't make sense, or was made by another version.
    #[error("this world cannot be used: {0}")]
    BadWorld(String),
    /// Worlds and segments.
    #[error(transparent)]
    World(#[from] towpath_shm::Error),
}

/// Reason why a message could not be delivered, as handler 0 is told. The reasons are
/// those of Active Messages II.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Status {
    /// Its arguments, form and block make no sense together: something has gone wrong in
    /// its sender.
    BadArguments = 1,
    /// Its translation table entry was unmapped on the way. Never here: the call looks at
    /// the entry and reports [`Error::NotInitialised`] at once.
    BadEntry = 2,
    /// Its tag is not the destination's.
    BadTag = 3,
    /// The destination has no such handler.
    BadHandler = 4,
    /// Its range does not lie in the destination's segment: the offset.
    BadSegmentOffset = 5,
    /// Its range does not lie in the destination's segment: the length.
    BadLength = 6,
    /// The destination's process is there, but has closed the endpoint.
    BadEndpoint = 7,
    /// The destination is there, but no sender can reach its queue any more: a process
    /// died holding the (not robust) lock in front of it.
    QueueAbandoned = 8,
    /// The destination died, or another endpoint has taken its place; whether it handled
    /// the message is unknown.
    Unreachable = 9,
    /// A reply that its requester could not take: no such handler, or not in its segment.
    ReplyRejected = 10,
}

impl Status {
    /// The status with this number.
    ///
    /// ```
    /// use towpath::Status;
    ///
    /// assert_eq!(Status::from_bits(Status::BadTag as u64), Some(Status::BadTag));
    /// assert_eq!(Status::from_bits(99), None);
    /// ```
    pub const fn from_bits(bits: u64) -> Option<Status> {
        Some(match bits {
            1 => Status::BadArguments,
            2 => Status::BadEntry,
            3 => Status::BadTag,
            4 => Status::BadHandler,
            5 => Status::BadSegmentOffset,
            6 => Status::BadLength,
            7 => Status::BadEndpoint,
            8 => Status::QueueAbandoned,
            9 => Status::Unreachable,
            10 => Status::ReplyRejected,
            _ => return None,
        })
    }
}
