//! Reasons for a value that was not sent, or not received.

use core::fmt;

use towpath_derive::SentenceDebug;

use crate::TimedOut;

/// Reason for a value that was not sent, or not received.
#[derive(Clone, Copy, PartialEq, Eq, SentenceDebug)]
pub enum TransferError {
    /// The caller's time was over before there was room, or a value.
    TimedOut,
    /// The queue was closed; a receiver has had all that was sent before.
    Closed,
    /// The last sender, or receiver, has gone; a receiver has had all that was sent.
    Disconnected,
    /// The last sender, or receiver, died; a receiver has had all that was sent.
    PeerDied {
        /// Rank of the dead, if the queue knows it.
        rank: Option<u32>,
    },
    /// Full table: as many processes are at the queue as it has places for.
    Capacity,
    /// Taken side: only one may be on this side of the queue, and it is there.
    Taken {
        /// Rank of the process that has the place, if the queue knows it.
        rank: Option<u32>,
    },
    /// The message is longer than the ring can carry.
    TooLong {
        /// Maximum number of bytes.
        most: usize,
    },
    /// The queue lies in a world that this process has not entered.
    NotEntered,
    /// The two queues lie in different memories.
    Apart,
    /// The queue's memory was damaged.
    Damaged,
}

impl TransferError {
    /// Returns whether the caller's time was over.
    ///
    /// ```
    /// use towpath_sync::queues::TransferError;
    ///
    /// assert!(TransferError::TimedOut.is_timeout());
    /// assert!(!TransferError::Closed.is_timeout());
    /// ```
    pub const fn is_timeout(&self) -> bool {
        matches!(self, TransferError::TimedOut)
    }

    const fn sentence(self) -> &'static str {
        match self {
            TransferError::TimedOut => {
                "the time was over before there was room in the queue, or a value: try again, or wait longer"
            }
            TransferError::Closed => "the queue was closed: nothing more can be sent through it",
            TransferError::Disconnected => {
                "the other side of the queue has gone: a value would wait for a receiver, or a receiver for a sender, that is not there"
            }
            TransferError::PeerDied { .. } => {
                "the last process on the other side of the queue died: start it again, or close the queue"
            }
            TransferError::Capacity => {
                "more processes, or threads that share an end, than the queue has places for: use another queue"
            }
            TransferError::Taken { .. } => {
                "the queue has its one sender, or receiver, already: take a queue for many, or wait until that one has gone or died (after a fork: the end is the parent's; make one of your own)"
            }
            TransferError::TooLong { .. } => {
                "the message is longer than one piece of the ring, or than a buffer of the queue: make those larger (a ring whose readers hold the writer back takes any length)"
            }
            TransferError::NotEntered => {
                "this process has not entered the world in which the queue lies: call World::enter first (after a fork, in the child too)"
            }
            TransferError::Apart => {
                "a lease can be completed only into a queue of its own world, by one handle of that world, and a buffer sent only to a stage of its own pool: take both from it, or send a copy of the value"
            }
            TransferError::Damaged => {
                "the queue's memory holds what no sender wrote: another program has written there; make the world anew"
            }
        }
    }
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())?;
        match self {
            TransferError::PeerDied { rank: Some(rank) } => write!(f, " (it was rank {rank})"),
            TransferError::Taken { rank: Some(rank) } => write!(f, " (it is rank {rank})"),
            TransferError::TooLong { most } => write!(f, " (at most {most} bytes)"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for TransferError {}

impl From<TimedOut> for TransferError {
    fn from(_: TimedOut) -> Self {
        TransferError::TimedOut
    }
}

/// A value that was not sent, alone or in a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Unsent<T> {
    /// Number of values of the batch that were sent before.
    pub sent: usize,
    /// The first value that was not sent.
    pub value: T,
    /// The reason.
    pub error: TransferError,
}

impl<T> fmt::Display for Unsent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sent {
            0 => fmt::Display::fmt(&self.error, f),
            sent => write!(f, "{sent} values of the batch were sent; then: {}", self.error),
        }
    }
}

impl<T> fmt::Debug for Unsent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<T> std::error::Error for Unsent<T> {}

impl<T> From<Unsent<T>> for TransferError {
    fn from(unsent: Unsent<T>) -> Self {
        unsent.error
    }
}
