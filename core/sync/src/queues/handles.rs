//! Senders and receivers of queues.

mod receiver;

use core::marker::PhantomData;
use std::time::{Duration, Instant};

use towpath_derive::OpaqueDebug;
use towpath_machine::{Native, Plain};

use super::kinds::{CALLER, SeatOf, SharingOf};
use super::{
    BoundedQueue, QueueKind, QueueOf, QueueSide, SharedReceivers, SharedSenders, Threads, TransferError,
    Unsent, Venue,
};
use crate::{Attempt, Deadline, Wait};

pub use receiver::{ReceivedValues, ValueReceiver};

/// Makes a queue between threads, with its sender and receiver.
///
/// # Panics
///
/// If the capacity is 0, or more than the kind allows.
///
/// ```
/// use towpath_sync::queues::{Spsc, TransferError, between_threads};
///
/// let (sender, receiver) = between_threads::<u64, Spsc>(16); // towpath::spsc::queue
/// std::thread::scope(|scope| {
///     scope.spawn(move || (1..=100).try_for_each(|n| sender.send(n)));
///     assert_eq!(receiver.iter().sum::<u64>(), 5050);
/// });
/// ```
pub fn between_threads<T: Plain + Copy, K: QueueKind>(
    capacity: usize,
) -> (ValueSender<T, Threads<K>>, ValueReceiver<T, Threads<K>>) {
    let venue: Threads<K> = Threads::new::<T>(capacity);
    let ends = ValueSender::new(venue.clone()).and_then(|sender| Ok((sender, ValueReceiver::new(venue)?)));
    ends.expect("a new queue has places")
}

fn join<V: Venue>(venue: &V, side: QueueSide) -> Result<SeatOf<V>, TransferError> {
    venue.call(|queue, cpu, wait| queue.join(cpu, wait, side))
}

/// Tries an operation of a queue once.
pub(super) fn attempt<V: Venue, R>(
    venue: &V,
    act: impl FnOnce(&QueueOf<'_, V>, &Native, &Wait<'_>, Deadline) -> Result<R, TransferError>,
) -> Attempt<Result<R, TransferError>> {
    let tried = venue.call(|queue, cpu, wait| {
        Ok(Attempt::of(wait, TransferError::is_timeout, |wait, turn| act(&queue, cpu, wait, turn)))
    });
    tried.unwrap_or_else(|error| Attempt::Done(Err(error)))
}

fn leave<V: Venue>(venue: &V, side: QueueSide, seat: SeatOf<V>) {
    let left = venue.call(|queue, cpu, wait| {
        queue.at(seat).leave(cpu, wait, side);
        Ok(())
    });
    // A process that is not in the world any more is not at the queue either.
    let _ = left;
}

/// Sender of a queue: one of several, if it can be cloned.
#[derive(OpaqueDebug)]
pub struct ValueSender<T, V: Venue> {
    pub(super) venue: V,
    pub(super) seat: SeatOf<V>,
    values: PhantomData<fn(T)>,
    sharing: PhantomData<SharingOf<V>>,
}

impl<T: Plain + Copy, V: Venue> ValueSender<T, V> {
    /// Makes a sender: for the rooms that lend queues to processes.
    ///
    /// # Errors
    ///
    /// [`TransferError::NotEntered`], [`TransferError::Capacity`].
    pub fn new(venue: V) -> Result<Self, TransferError> {
        let seat = join(&venue, QueueSide::Sender)?;
        Ok(ValueSender { venue, seat, values: PhantomData, sharing: PhantomData })
    }

    /// Sends a value, when there is room for it.
    ///
    /// # Errors
    ///
    /// [`TransferError::Closed`]. [`TransferError::Disconnected`] and [`TransferError::PeerDied`]
    /// if the last receiver has gone: at once if it was dropped, or else when the queue is full.
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// sender.send(7)?;
    /// assert_eq!(receiver.receive()?, 7);
    /// drop(receiver);
    /// assert_eq!(sender.send(8), Err(TransferError::Disconnected));
    /// # Ok::<(), TransferError>(())
    /// ```
    #[inline]
    pub fn send(&self, value: T) -> Result<(), TransferError> {
        self.send_before(value, Deadline::NEVER)
    }

    /// Sends a value if there is room for it; never waits.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`] if there is none; as [`ValueSender::send`].
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// sender.send(7)?;
    /// sender.send(8)?;
    /// assert_eq!(sender.try_send(9), Err(TransferError::TimedOut)); // it is full
    /// # drop(receiver);
    /// # Ok::<(), TransferError>(())
    /// ```
    #[inline]
    pub fn try_send(&self, value: T) -> Result<(), TransferError> {
        self.send_before(value, Deadline::PAST)
    }

    /// Sends a value; gives up after that time.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; as [`ValueSender::send`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// sender.send_timeout(7, Duration::from_secs(1))?;
    /// assert_eq!(receiver.receive()?, 7);
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn send_timeout(&self, value: T, time: Duration) -> Result<(), TransferError> {
        self.send_before(value, Deadline::within(time))
    }

    /// Sends a value; gives up at that instant.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; as [`ValueSender::send`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// let end = Instant::now() + Duration::from_secs(1);
    /// sender.send_until(7, end)?;
    /// assert_eq!(receiver.receive()?, 7);
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn send_until(&self, value: T, instant: Instant) -> Result<(), TransferError> {
        self.send_before(value, Deadline::at(instant))
    }

    /// Sends a value if there is room for it; otherwise says where it would sleep: for
    /// event loops.
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// use towpath_sync::Attempt;
    ///
    /// assert!(matches!(sender.attempt_send(&7), Attempt::Done(Ok(()))));
    /// assert_eq!(receiver.receive()?, 7);
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn attempt_send(&self, value: &T) -> Attempt<Result<(), TransferError>> {
        attempt(&self.venue, |queue, cpu, wait, turn| queue.at(self.seat).send(cpu, wait, value, turn))
    }

    #[inline]
    fn send_before(&self, value: T, deadline: Deadline) -> Result<(), TransferError> {
        let (queue, wait) = self.venue.late()?;
        queue.at(self.seat).send(CALLER, wait, &value, deadline)
    }

    /// Sends these values in turn, each when there is room for it. Returns their number.
    ///
    /// # Errors
    ///
    /// [`Unsent`]: how many were sent, the next value, and the reason, as [`ValueSender::send`].
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// assert_eq!(sender.send_all([7, 8])?, 2);
    /// assert_eq!((receiver.receive()?, receiver.receive()?), (7, 8));
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn send_all(&self, values: impl IntoIterator<Item = T>) -> Result<usize, Unsent<T>> {
        self.all_before(values, Deadline::NEVER)
    }

    /// Sends these values in turn; gives up after that time.
    ///
    /// # Errors
    ///
    /// As [`ValueSender::send_all`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// let unsent = sender.send_all_timeout(1..=3, Duration::from_millis(1)).unwrap_err();
    /// assert_eq!((unsent.sent, unsent.value), (2, 3)); // there was room for two
    /// # drop(receiver);
    /// ```
    pub fn send_all_timeout(
        &self,
        values: impl IntoIterator<Item = T>,
        time: Duration,
    ) -> Result<usize, Unsent<T>> {
        self.all_before(values, Deadline::within(time))
    }

    /// Sends all values; gives up at that instant.
    ///
    /// # Errors
    ///
    /// As [`ValueSender::send_all_timeout`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// let unsent = sender.send_all_until(1..=3, Instant::now() + Duration::from_millis(1));
    /// assert_eq!(unsent.unwrap_err().sent, 2); // there was room for two
    /// # drop(receiver);
    /// ```
    pub fn send_all_until(
        &self,
        values: impl IntoIterator<Item = T>,
        instant: Instant,
    ) -> Result<usize, Unsent<T>> {
        self.all_before(values, Deadline::at(instant))
    }

    fn all_before(
        &self,
        values: impl IntoIterator<Item = T>,
        deadline: Deadline,
    ) -> Result<usize, Unsent<T>> {
        let (mut sent, mut values) = (0, values.into_iter());
        let Some(first) = values.next() else { return Ok(0) };
        let mut value = first;
        let done = self.venue.call(|queue, cpu, wait| {
            let queue = queue.at(self.seat);
            loop {
                queue.send(cpu, wait, &value, deadline)?;
                sent += 1;
                match values.next() {
                    Some(next) => value = next,
                    None => return Ok(()),
                }
            }
        });
        done.map_or_else(|error| Err(Unsent { sent, value, error }), |()| Ok(sent))
    }
}

macro_rules! either {
    ($handle:ident, $side:ident, $many:ident) => {
        impl<T, V: Venue<Kind: $many>> Clone for $handle<T, V> {
            /// # Panics
            ///
            /// If there are as many in this process as are counted: 65,535 for each of 64 places.
            /// If a ring for each is needed: if there are as many as [`RINGS`](super::RINGS).
            fn clone(&self) -> Self {
                let seat = join(&self.venue, QueueSide::$side).unwrap_or_else(|error| {
                    assert!(error != TransferError::Capacity, "too many handles of a queue");
                    // A process outside the world has no end there.
                    self.seat
                });
                $handle { venue: self.venue.clone(), seat, values: PhantomData, sharing: PhantomData }
            }
        }

        impl<T, V: Venue> $handle<T, V> {
            /// Closes the queue: senders are refused, receivers get the values sent
            /// before.
            ///
            /// ```
            /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
            /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
            /// sender.send(7)?;
            /// receiver.close(); // either end may
            /// assert_eq!(sender.send(8), Err(TransferError::Closed));
            /// assert_eq!(receiver.iter().collect::<Vec<_>>(), [7]);
            /// # Ok::<(), TransferError>(())
            /// ```
            pub fn close(&self) {
                let closed = self.venue.call(|queue, cpu, wait| {
                    queue.close(cpu, wait);
                    Ok(())
                });
                // A process outside the world closes nothing.
                let _ = closed;
            }

            /// Number of values that wait.
            ///
            /// ```
            /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
            /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
            /// sender.send(7)?;
            /// assert_eq!((sender.len(), receiver.len()), (1, 1));
            /// # Ok::<(), TransferError>(())
            /// ```
            pub fn len(&self) -> usize {
                self.venue.call(|queue, cpu, _| Ok(queue.len(cpu))).unwrap_or(0)
            }

            /// Returns whether no value waits.
            ///
            /// ```
            /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
            /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
            /// sender.send(7)?;
            /// receiver.receive()?;
            /// assert!(sender.is_empty() && receiver.is_empty()); // all that was sent has arrived
            /// # Ok::<(), TransferError>(())
            /// ```
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }
        }

        impl<T, V: Venue> Drop for $handle<T, V> {
            fn drop(&mut self) {
                leave(&self.venue, QueueSide::$side, self.seat);
            }
        }
    };
}

either!(ValueSender, Sender, SharedSenders);
either!(ValueReceiver, Receiver, SharedReceivers);
