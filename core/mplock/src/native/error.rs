//! Errors of native locks.

use towpath_derive::SentenceDebug;

/// Reason why a call failed. `Debug` prints the sentence, as `Display` does.
#[derive(thiserror::Error, SentenceDebug)]
#[non_exhaustive]
pub enum Error {
    /// The process holds the lock already.
    #[error(
        "lock `{0}` is held by this process already: release its guard first (a process holds a lock once)"
    )]
    AlreadyHeld(String),
    /// Data are longer than a lock takes.
    #[error("{len} bytes of data for a lock: at most {max}; keep the rest elsewhere, under the lock's token")]
    DataTooLong {
        /// Number of bytes.
        len: usize,
        /// Maximum number of bytes.
        max: usize,
    },
    /// A reader may not replace data.
    #[error("this guard only reads: acquire the lock alone to change its data (Lock::acquire)")]
    ReadsOnly,
    /// The other ranks do not know this process.
    #[error(
        "the managers of this world do not know this process: it took the place of a rank that had died or left; start the world anew to use locks in it"
    )]
    UnknownRank,
    /// A message to a living rank came back.
    ///
    /// Its endpoint is no manager's, or its queue is lost.
    #[error(
        "a message to the manager of a living rank came back ({0:?}): make a manager in each rank, over the endpoint that its entry of the translation table leads to, before the rank polls"
    )]
    NotDelivered(towpath_am::Status),
    /// The system has no thread for [`Progress::Thread`](super::Progress::Thread).
    #[error("no thread for the progress of locks: {0}; raise the limit of threads, or poll (Progress::Poll)")]
    NoThread(std::io::Error),
    /// The endpoint belongs to the manager's progress thread, too.
    #[error(
        "the endpoint of a manager with a progress thread is not given out: set handlers before (Manager::on_with_progress), and send through an endpoint of your own"
    )]
    EndpointOfTwo,
    /// Endpoints, messages, worlds.
    #[error(transparent)]
    Message(#[from] towpath_am::Error),
}

impl From<towpath_shm::Error> for Error {
    fn from(error: towpath_shm::Error) -> Error {
        Error::Message(error.into())
    }
}
