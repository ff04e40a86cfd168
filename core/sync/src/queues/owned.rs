//! Queues between threads for values of any type: strings, boxes, closures.
//!
//! A value moves into a cell, whose number goes through a queue of [`QueueKind`] as a plain value
//! does ([`CellQueue`]). So nothing differs but where it lies: order, room, ways of waiting and
//! errors are the queue's, and no value is an allocation of its own.
//!
//! * A value that is refused goes back to its sender ([`Unsent`]).
//! * The last receiver drops what is left in the queue when it goes; what senders add meanwhile is
//!   dropped with the last handle. So every value is dropped once.
//! * A forked child has the parent's values in its copy of the memory, and may use no end.
//! * Not for processes: what a value points to means nothing to another one. Take a queue of a
//!   world, with [`Plain`](towpath_machine::Plain) values. Those alone have leases, too.
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::mem::{ManuallyDrop, MaybeUninit};
use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_derive::OpaqueDebug;

use super::handles::attempt;
use super::kinds::CALLER;
use super::{
    BoundedQueue, CellQueue, QueueKind, SharedReceivers, SharedSenders, Threads, TransferError, Unsent,
    ValueReceiver, ValueSender, Venue, between_threads,
};
use crate::{Attempt, Deadline, Surroundings};

/// Makes a queue between threads for values of any type, with its sender and receiver.
///
/// # Panics
///
/// If the capacity is 0, or more than the kind allows.
///
/// ```
/// use towpath_sync::queues::{Mpmc, owned_between_threads};
///
/// // towpath::mpmc::owned
/// let (sender, receiver) = owned_between_threads::<Box<dyn FnOnce() -> u32 + Send>, Mpmc>(16);
/// sender.send(Box::new(|| 6 * 7))?;
/// assert_eq!(receiver.receive()?(), 42);
/// # Ok::<(), towpath_sync::queues::TransferError>(())
/// ```
pub fn owned_between_threads<T: Send, K: QueueKind>(
    capacity: usize,
) -> (OwnedSender<T, K>, OwnedReceiver<T, K>) {
    let (sender, receiver) = between_threads::<u64, K>(capacity);
    let cells: Arc<[_]> = (0..sender.venue.cells()).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
    let [after_all, after_receivers] = [(); 2].map(|()| LeftBehind::new(&sender.venue, &cells));
    (
        OwnedSender { left: after_all.clone(), sender },
        OwnedReceiver { receiver, received: after_receivers, _left: after_all },
    )
}

/// Cells of the values, of which those have one that are in the queue.
struct Cells<T>(Arc<[UnsafeCell<MaybeUninit<T>>]>);

// SAFETY: a cell is one thread's at a time (`CellQueue` of a sealed kind), and a value moves from
// one to another.
unsafe impl<T: Send> Send for Cells<T> {}
// SAFETY: threads that share the cells have one each, as for `Send`.
unsafe impl<T: Send> Sync for Cells<T> {}

impl<T> Cells<T> {
    /// Writes a value into a cell. The caller still has it, to forget or to keep.
    ///
    /// # Safety
    ///
    /// The cell was given to the caller by [`CellQueue::send_cell`].
    #[inline(always)]
    unsafe fn write(&self, cell: usize, value: &ManuallyDrop<T>) {
        let from = (&raw const **value).cast::<MaybeUninit<T>>();
        // SAFETY: no other thread has the cell; a value of `T`, of which the caller uses one copy.
        unsafe { self.0[cell].get().copy_from_nonoverlapping(from, 1) };
    }

    /// Value of a cell.
    ///
    /// # Safety
    ///
    /// The cell was given to the caller by [`CellQueue::receive_cell`], so that it has a value,
    /// which is taken out once.
    #[inline(always)]
    unsafe fn take(&self, cell: usize) -> T {
        // SAFETY: no other thread has the cell, and its sender wrote a value before.
        unsafe { self.0[cell].get().read().assume_init() }
    }
}

/// Rest of a queue without receivers: dropped with this.
struct LeftBehind<T, K: QueueKind> {
    venue: Threads<K>,
    cells: Cells<T>,
}

impl<T, K: QueueKind> LeftBehind<T, K> {
    fn new(venue: &Threads<K>, cells: &Arc<[UnsafeCell<MaybeUninit<T>>]>) -> Arc<Self> {
        // Each handle counts as a thread; this is none.
        venue.asleep(true);
        Arc::new(LeftBehind { venue: venue.clone(), cells: Cells(cells.clone()) })
    }

    /// Receives a value, when there is one.
    #[inline(always)]
    fn receive(&self, deadline: Deadline) -> Result<T, TransferError> {
        let (queue, wait) = self.venue.late()?;
        // SAFETY: as the queue gives the cell.
        queue.receive_cell(CALLER, wait, deadline, |cell| unsafe { self.cells.take(cell) })
    }
}

impl<T, K: QueueKind> Drop for LeftBehind<T, K> {
    fn drop(&mut self) {
        while let Ok(value) = self.receive(Deadline::PAST) {
            drop(value);
        }
        self.venue.asleep(false);
    }
}

/// Sender of values of any type: one of several, if it can be cloned.
#[derive(OpaqueDebug)]
pub struct OwnedSender<T, K: QueueKind> {
    // Fields are dropped in this order: the queue is emptied when no end is left.
    sender: ValueSender<u64, Threads<K>>,
    left: Arc<LeftBehind<T, K>>,
}

impl<T: Send, K: QueueKind> OwnedSender<T, K> {
    /// Sends a value, when there is room for it.
    ///
    /// # Errors
    ///
    /// [`Unsent`], with the value: [`TransferError::Closed`], or [`TransferError::Disconnected`] if
    /// the last receiver has gone.
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, owned_between_threads};
    /// let (sender, receiver) = owned_between_threads::<String, Mpmc>(2); // towpath::mpmc::owned
    /// sender.send("seven".to_owned())?;
    /// assert_eq!(receiver.receive()?, "seven");
    /// drop(receiver);
    /// let unsent = sender.send("eight".to_owned()).unwrap_err();
    /// assert_eq!((unsent.error, &*unsent.value), (TransferError::Disconnected, "eight"));
    /// # Ok::<(), TransferError>(())
    /// ```
    #[inline]
    pub fn send(&self, value: T) -> Result<(), Unsent<T>> {
        self.send_before(value, Deadline::NEVER)
    }

    /// Sends a value if there is room for it; never waits.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`] if there is none; as [`OwnedSender::send`].
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, owned_between_threads};
    /// let (sender, receiver) = owned_between_threads::<Vec<u8>, Mpmc>(1); // towpath::mpmc::owned
    /// sender.try_send(vec![7])?;
    /// let unsent = sender.try_send(vec![8]).unwrap_err(); // it is full
    /// assert_eq!((unsent.error, unsent.value), (TransferError::TimedOut, vec![8]));
    /// # drop(receiver);
    /// # Ok::<(), TransferError>(())
    /// ```
    #[inline]
    pub fn try_send(&self, value: T) -> Result<(), Unsent<T>> {
        self.send_before(value, Deadline::PAST)
    }

    /// Sends a value; gives up after that time.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; as [`OwnedSender::send`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{Mpmc, TransferError, owned_between_threads};
    /// let (sender, receiver) = owned_between_threads::<String, Mpmc>(2); // towpath::mpmc::owned
    /// sender.send_timeout("seven".to_owned(), Duration::from_secs(1))?;
    /// assert_eq!(receiver.receive()?, "seven");
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn send_timeout(&self, value: T, time: Duration) -> Result<(), Unsent<T>> {
        self.send_before(value, Deadline::within(time))
    }

    /// Sends a value; gives up at that instant.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; as [`OwnedSender::send`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{Mpmc, TransferError, owned_between_threads};
    /// let (sender, receiver) = owned_between_threads::<String, Mpmc>(2); // towpath::mpmc::owned
    /// sender.send_until("seven".to_owned(), Instant::now() + Duration::from_secs(1))?;
    /// assert_eq!(receiver.receive()?, "seven");
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn send_until(&self, value: T, instant: Instant) -> Result<(), Unsent<T>> {
        self.send_before(value, Deadline::at(instant))
    }

    #[inline]
    fn send_before(&self, value: T, deadline: Deadline) -> Result<(), Unsent<T>> {
        let value = ManuallyDrop::new(value);
        let sent = self.sender.venue.late().and_then(|(queue, wait)| {
            // SAFETY: as the queue gives the cell; the value is forgotten if it was sent.
            let write = |cell| unsafe { self.left.cells.write(cell, &value) };
            queue.at(self.sender.seat).send_cell(CALLER, wait, deadline, write)
        });
        sent.map_err(|error| Unsent { sent: 0, value: ManuallyDrop::into_inner(value), error })
    }

    /// Sends these values in turn, each when there is room for it. Returns their number.
    ///
    /// # Errors
    ///
    /// [`Unsent`]: how many were sent, the next value, and the reason, as [`OwnedSender::send`].
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, owned_between_threads};
    /// let (sender, receiver) = owned_between_threads::<String, Mpmc>(4); // towpath::mpmc::owned
    /// assert_eq!(sender.send_all("to be or".split(' ').map(str::to_owned))?, 3);
    /// drop(sender);
    /// assert_eq!(receiver.iter().collect::<Vec<_>>(), ["to", "be", "or"]);
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn send_all(&self, values: impl IntoIterator<Item = T>) -> Result<usize, Unsent<T>> {
        let mut sent = 0;
        for value in values {
            self.send(value).map_err(|unsent| Unsent { sent, ..unsent })?;
            sent += 1;
        }
        Ok(sent)
    }

    /// Sends the value if there is room, and takes it out of the option; otherwise says
    /// where it would sleep: for event loops.
    ///
    /// # Panics
    ///
    /// If there is no value.
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, owned_between_threads};
    /// use towpath_sync::Attempt;
    ///
    /// let (sender, receiver) = owned_between_threads::<String, Mpmc>(1); // towpath::mpmc::owned
    /// let [mut first, mut second] = ["seven", "eight"].map(|word| Some(word.to_owned()));
    /// assert!(matches!(sender.attempt_send(&mut first), Attempt::Done(Ok(()))));
    /// assert!(matches!(sender.attempt_send(&mut second), Attempt::Asleep(..))); // it is full
    /// assert_eq!((first, second.as_deref()), (None, Some("eight")));
    /// # drop(receiver);
    /// ```
    pub fn attempt_send(&self, value: &mut Option<T>) -> Attempt<Result<(), TransferError>> {
        let moved = ManuallyDrop::new(value.take().expect("a value to send"));
        let tried = attempt(&self.sender.venue, |queue, cpu, wait, turn| {
            // SAFETY: as the queue gives the cell; the value is forgotten if it was sent.
            let write = |cell| unsafe { self.left.cells.write(cell, &moved) };
            queue.at(self.sender.seat).send_cell(cpu, wait, turn, write)
        });
        if !matches!(tried, Attempt::Done(Ok(()))) {
            *value = Some(ManuallyDrop::into_inner(moved));
        }
        tried
    }
}

impl<T, K: SharedSenders> Clone for OwnedSender<T, K> {
    /// # Panics
    ///
    /// As a clone of [`ValueSender`].
    fn clone(&self) -> Self {
        OwnedSender { sender: self.sender.clone(), left: self.left.clone() }
    }
}

/// Receiver of values of any type: one of several, if it can be cloned.
#[derive(OpaqueDebug)]
pub struct OwnedReceiver<T, K: QueueKind> {
    // Fields are dropped in this order: the queue is emptied when no receiver is left, so that
    // senders are refused; then, with the last end, of what was sent meanwhile.
    receiver: ValueReceiver<u64, Threads<K>>,
    received: Arc<LeftBehind<T, K>>,
    _left: Arc<LeftBehind<T, K>>,
}

impl<T: Send, K: QueueKind> OwnedReceiver<T, K> {
    /// Receives the oldest value, when there is one.
    ///
    /// # Errors
    ///
    /// After all that was sent: [`TransferError::Closed`], or [`TransferError::Disconnected`] if
    /// the last sender has gone.
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, owned_between_threads};
    /// let (sender, receiver) = owned_between_threads::<String, Mpmc>(2); // towpath::mpmc::owned
    /// sender.send("seven".to_owned())?;
    /// drop(sender);
    /// assert_eq!(receiver.receive()?, "seven");
    /// assert_eq!(receiver.receive(), Err(TransferError::Disconnected));
    /// # Ok::<(), TransferError>(())
    /// ```
    #[inline]
    pub fn receive(&self) -> Result<T, TransferError> {
        self.received.receive(Deadline::NEVER)
    }

    /// Receives the oldest value if there is one; never waits.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`] if there is none; as [`OwnedReceiver::receive`].
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, owned_between_threads};
    /// let (sender, receiver) = owned_between_threads::<String, Mpmc>(2); // towpath::mpmc::owned
    /// assert_eq!(receiver.try_receive(), Err(TransferError::TimedOut));
    /// sender.send("seven".to_owned())?;
    /// assert_eq!(receiver.try_receive()?, "seven");
    /// # Ok::<(), TransferError>(())
    /// ```
    #[inline]
    pub fn try_receive(&self) -> Result<T, TransferError> {
        self.received.receive(Deadline::PAST)
    }

    /// Receives the oldest value; gives up after that time.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; as [`OwnedReceiver::receive`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{Mpmc, TransferError, owned_between_threads};
    /// let (sender, receiver) = owned_between_threads::<String, Mpmc>(2); // towpath::mpmc::owned
    /// let brief = Duration::from_millis(1);
    /// assert_eq!(receiver.receive_timeout(brief), Err(TransferError::TimedOut));
    /// # drop(sender);
    /// ```
    pub fn receive_timeout(&self, time: Duration) -> Result<T, TransferError> {
        self.received.receive(Deadline::within(time))
    }

    /// Receives the oldest value; gives up at that instant.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; as [`OwnedReceiver::receive`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{Mpmc, TransferError, owned_between_threads};
    /// let (sender, receiver) = owned_between_threads::<String, Mpmc>(2); // towpath::mpmc::owned
    /// let end = Instant::now() + Duration::from_millis(1);
    /// assert_eq!(receiver.receive_until(end), Err(TransferError::TimedOut));
    /// # drop(sender);
    /// ```
    pub fn receive_until(&self, instant: Instant) -> Result<T, TransferError> {
        self.received.receive(Deadline::at(instant))
    }

    /// Receives the oldest value if there is one, or says where it would sleep: for event
    /// loops.
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, owned_between_threads};
    /// use towpath_sync::Attempt;
    ///
    /// let (sender, receiver) = owned_between_threads::<String, Mpmc>(2); // towpath::mpmc::owned
    /// assert!(matches!(receiver.attempt_receive(), Attempt::Asleep(..)));
    /// sender.send("seven".to_owned())?;
    /// assert!(matches!(receiver.attempt_receive(), Attempt::Done(Ok(word)) if word == "seven"));
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn attempt_receive(&self) -> Attempt<Result<T, TransferError>> {
        attempt(&self.receiver.venue, |queue, cpu, wait, turn| {
            // SAFETY: as the queue gives the cell.
            queue.receive_cell(cpu, wait, turn, |cell| unsafe { self.received.cells.take(cell) })
        })
    }

    /// Values until the queue has come to its end: it was closed, or the last sender has
    /// gone.
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, owned_between_threads};
    /// let (sender, receiver) = owned_between_threads::<String, Mpmc>(2); // towpath::mpmc::owned
    /// sender.send_all(["seven", "eight"].map(str::to_owned))?;
    /// drop(sender);
    /// for word in receiver.iter() {
    ///     println!("{word}");
    /// }
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn iter(&self) -> OwnedValues<'_, T, K> {
        OwnedValues(self)
    }
}

impl<T, K: SharedReceivers> Clone for OwnedReceiver<T, K> {
    /// # Panics
    ///
    /// As a clone of [`ValueReceiver`].
    fn clone(&self) -> Self {
        let (receiver, received, _left) = (self.receiver.clone(), self.received.clone(), self._left.clone());
        OwnedReceiver { receiver, received, _left }
    }
}

/// Iterator over the values of any type that a receiver gets.
///
/// It ends when the queue has come to its end.
#[derive(OpaqueDebug)]
pub struct OwnedValues<'a, T, K: QueueKind>(&'a OwnedReceiver<T, K>);

impl<T: Send, K: QueueKind> Iterator for OwnedValues<'_, T, K> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.0.receive().ok()
    }
}

impl<'a, T: Send, K: QueueKind> IntoIterator for &'a OwnedReceiver<T, K> {
    type Item = T;
    type IntoIter = OwnedValues<'a, T, K>;
    fn into_iter(self) -> OwnedValues<'a, T, K> {
        self.iter()
    }
}

macro_rules! as_values {
    ($handle:ident, $end:ident) => {
        impl<T, K: QueueKind> $handle<T, K> {
            /// Closes the queue: senders are refused, receivers get the values sent
            /// before.
            ///
            /// ```
            /// # use towpath_sync::queues::{Mpmc, TransferError, owned_between_threads};
            /// // towpath::mpmc::owned
            /// let (sender, receiver) = owned_between_threads::<String, Mpmc>(2);
            /// sender.send("seven".to_owned())?;
            /// receiver.close(); // either end may
            /// assert!(sender.send("eight".to_owned()).is_err());
            /// assert_eq!(receiver.iter().collect::<Vec<_>>(), ["seven"]);
            /// # Ok::<(), TransferError>(())
            /// ```
            pub fn close(&self) {
                self.$end.close();
            }

            /// Number of values that wait.
            ///
            /// ```
            /// # use towpath_sync::queues::{Mpmc, TransferError, owned_between_threads};
            /// // towpath::mpmc::owned
            /// let (sender, receiver) = owned_between_threads::<String, Mpmc>(2);
            /// sender.send("seven".to_owned())?;
            /// assert_eq!((sender.len(), receiver.len()), (1, 1));
            /// # Ok::<(), TransferError>(())
            /// ```
            pub fn len(&self) -> usize {
                self.$end.len()
            }

            /// Returns whether no value waits.
            ///
            /// ```
            /// # use towpath_sync::queues::{Mpmc, owned_between_threads};
            /// // towpath::mpmc::owned
            /// let (sender, receiver) = owned_between_threads::<String, Mpmc>(2);
            /// assert!(sender.is_empty() && receiver.is_empty());
            /// ```
            pub fn is_empty(&self) -> bool {
                self.$end.is_empty()
            }
        }
    };
}

as_values!(OwnedSender, sender);
as_values!(OwnedReceiver, receiver);

#[cfg(test)]
#[path = "owned_tests.rs"]
mod tests;
