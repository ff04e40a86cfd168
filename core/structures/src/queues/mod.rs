//! The concurrent FIFO queues: one algorithm, one file.
//! [`for_each_queue!`](crate::for_each_queue) is the list of them.

mod fetch_op_array;
mod fetch_op_tickets;
mod list;
mod michael_scott;
mod plain;
mod prakash_lee_johnson;
mod two_ended;
mod two_lock;
mod valois;

pub use fetch_op_array::FetchOpArray;
pub use fetch_op_tickets::FetchOpTickets;
pub use michael_scott::{AsPublished, MichaelScott, MichaelScottVariant};
pub use prakash_lee_johnson::PrakashLeeJohnson;
pub use two_ended::TwoEnded;
pub use two_lock::TwoLock;
pub use valois::Valois;

use towpath_derive::SentenceDebug;
use towpath_machine::{Arena, Ordering, Place, Processor};

use crate::{Node, PoolError};
use towpath_sync::{Abandoned, LockError, Waiting};

/// Reason for an operation that was not done.
#[derive(Clone, Copy, PartialEq, Eq, SentenceDebug)]
pub enum QueueError {
    /// No room.
    Full,
    /// The participant's number is not below the number of participants that the queue
    /// was made for.
    UnknownParticipant,
    /// The queue's memory has values that this algorithm cannot have written.
    Corrupt,
    /// The wait was given up: the participant that it waited for is dead. Only from
    /// queues that are blocking.
    Abandoned,
    /// The lock cannot be had. Only from queues that have locks.
    Lock(LockError),
}

impl core::fmt::Display for QueueError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            QueueError::Full => "the queue is full: take something out, or make it larger",
            QueueError::UnknownParticipant => "the participant's number is not below the number of participants that the queue was made for: make it for more",
            QueueError::Corrupt => "the queue's memory holds what no operation writes, so a stray write has hit it: make the queue anew",
            QueueError::Abandoned => "a participant died in the middle of an operation that all others wait for: make the queue anew, or use a non-blocking one",
            QueueError::Lock(error) => return error.fmt(f),
        })
    }
}

impl std::error::Error for QueueError {}

impl From<PoolError> for QueueError {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Exhausted => QueueError::Full,
            PoolError::UnknownParticipant => QueueError::UnknownParticipant,
            PoolError::Corrupt => QueueError::Corrupt,
        }
    }
}

impl From<LockError> for QueueError {
    fn from(error: LockError) -> Self {
        QueueError::Lock(error)
    }
}

impl From<Abandoned> for QueueError {
    fn from(_: Abandoned) -> Self {
        QueueError::Abandoned
    }
}

/// A FIFO queue of numbers for any number of producers and consumers.
///
/// Participants are numbered from 0; of those that act at one time no two have the same number
/// `me`. All-zero memory of a queue over [`InPlace`](crate::InPlace) storage is an empty queue.
///
/// The accesses acquire and release, no more: a `dequeue` that finds nothing may have missed an
/// `enqueue` that neither its own words nor anything else orders before it.
///
/// ```
/// use towpath_machine::{Heap, Native};
/// use towpath_structures::queues::{ConcurrentQueue, MichaelScott, QueueError};
/// use towpath_sync::Spinning;
///
/// /// Takes all values out, whatever the algorithm is. Returns their sum.
/// fn drain(queue: &impl ConcurrentQueue<Native>, me: usize) -> Result<u64, QueueError> {
///     let mut sum = 0;
///     while let Some(value) = queue.dequeue(&Native::with_id(0), &Spinning, me)? {
///         sum += value;
///     }
///     Ok(sum)
/// }
///
/// // 100 values, 2 participants.
/// let queue = MichaelScott::<Native>::new(&Heap, 100, 2);
/// queue.enqueue(&Native::with_id(0), &Spinning, 0, 3)?;
/// queue.enqueue(&Native::with_id(0), &Spinning, 0, 4)?;
/// assert_eq!(drain(&queue, 1)?, 7);
/// # Ok::<(), QueueError>(())
/// ```
pub trait ConcurrentQueue<P: Processor>: Sized + Send + Sync + 'static {
    /// The name by which users choose it.
    const NAME: &'static str;
    /// True if a participant that stops in the middle of an operation can hold up the
    /// others.
    const BLOCKING: bool;

    /// An empty queue that has room for at least `capacity` values (unless its file says
    /// otherwise), in memory of the given arena.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_structures::queues::{ConcurrentQueue, QueueError, TwoLock};
    /// use towpath_sync::locks::Ticket;
    /// # use towpath_sync::Spinning;
    ///
    /// let queue = TwoLock::<Native, Ticket<Native>>::new(&Heap, 16, 2);
    /// # let cpu = Native::current();
    /// assert_eq!(queue.dequeue(&cpu, &Spinning, 0)?, None); // it is empty
    /// # Ok::<(), QueueError>(())
    /// ```
    fn new(arena: &impl Arena<P>, capacity: usize, participants: usize) -> Self;

    /// Puts a value in at the end. `wait` says how to wait for locks and how to back off
    /// from contention.
    ///
    /// # Errors
    ///
    /// [`QueueError::Full`] if there is no room; the others as they say.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_structures::queues::{ConcurrentQueue, MichaelScott, QueueError};
    /// # use towpath_sync::Spinning;
    ///
    /// let (cpu, queue) = (Native::current(), MichaelScott::<Native>::new(&Heap, 1, 2));
    /// let mut sent = 0;
    /// while queue.enqueue(&cpu, &Spinning, 0, sent) != Err(QueueError::Full) {
    ///     sent += 1;
    /// }
    /// assert!(sent >= 1); // room for one at least
    /// ```
    fn enqueue<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: usize, value: u64) -> Result<(), QueueError>;

    /// Takes the value out that is first, if there is one.
    ///
    /// # Errors
    ///
    /// See [`QueueError`]; never [`QueueError::Full`].
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_structures::queues::{ConcurrentQueue, QueueError, TwoLock};
    /// use towpath_sync::locks::Ticket;
    /// # use towpath_sync::Spinning;
    ///
    /// let queue = TwoLock::<Native, Ticket<Native>>::new(&Heap, 16, 2);
    /// # let cpu = Native::current();
    /// queue.enqueue(&cpu, &Spinning, 0, 3)?;
    /// queue.enqueue(&cpu, &Spinning, 0, 4)?;
    /// assert_eq!(queue.dequeue(&cpu, &Spinning, 1)?, Some(3)); // first in, first out
    /// # Ok::<(), QueueError>(())
    /// ```
    fn dequeue<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: usize) -> Result<Option<u64>, QueueError>;
}

/// Node of a list that a late participant may still read: its value is a word.
#[repr(C)]
pub struct SharedNode<P: Processor> {
    next: P::Word,
    value: P::Word,
}

impl<P: Processor> Node<P> for SharedNode<P> {
    fn new(arena: &impl Arena<P>) -> Self {
        SharedNode { next: arena.word(Place::SameLine, 0), value: arena.word(Place::SameLine, 0) }
    }
}

/// Node of a list whose value only its owner touches.
#[repr(C)]
pub struct OwnedNode<P: Processor> {
    next: P::Word,
    value: P::Cell,
}

impl<P: Processor> Node<P> for OwnedNode<P> {
    fn new(arena: &impl Arena<P>) -> Self {
        OwnedNode { next: arena.word(Place::SameLine, 0), value: arena.cell(Place::SameLine, 0) }
    }
}

/// An index that was read from a word without a count.
#[track_caller]
#[inline(always)]
fn load_index<P: Processor>(cpu: &P, word: &P::Word, order: Ordering) -> Result<u32, QueueError> {
    u32::try_from(cpu.load(word, order)).map_err(|_| QueueError::Corrupt)
}
