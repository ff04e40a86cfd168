//! Senders and receivers of queues.

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

/// Receiver of a queue: one of several, if it can be cloned.
#[derive(OpaqueDebug)]
pub struct ValueReceiver<T, V: Venue> {
    pub(super) venue: V,
    seat: SeatOf<V>,
    values: PhantomData<fn() -> T>,
    sharing: PhantomData<SharingOf<V>>,
}

impl<T: Plain + Copy, V: Venue> ValueReceiver<T, V> {
    /// Makes a receiver: for the rooms that lend queues to processes.
    ///
    /// # Errors
    ///
    /// [`TransferError::NotEntered`], [`TransferError::Capacity`].
    pub fn new(venue: V) -> Result<Self, TransferError> {
        let seat = join(&venue, QueueSide::Receiver)?;
        Ok(ValueReceiver { venue, seat, values: PhantomData, sharing: PhantomData })
    }

    /// Receives the oldest value, when there is one.
    ///
    /// # Errors
    ///
    /// After all that was sent, and all that other processes have under leases:
    /// [`TransferError::Closed`]; [`TransferError::Disconnected`] or
    /// [`TransferError::PeerDied`] if the last sender has gone.
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// sender.send(7)?;
    /// drop(sender);
    /// assert_eq!(receiver.receive()?, 7);
    /// assert_eq!(receiver.receive(), Err(TransferError::Disconnected));
    /// # Ok::<(), TransferError>(())
    /// ```
    #[inline]
    pub fn receive(&self) -> Result<T, TransferError> {
        self.receive_before(Deadline::NEVER)
    }

    /// Receives the oldest value if there is one; never waits.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`] if there is none; as [`ValueReceiver::receive`].
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// assert_eq!(receiver.try_receive(), Err(TransferError::TimedOut));
    /// sender.send(7)?;
    /// assert_eq!(receiver.try_receive()?, 7);
    /// # Ok::<(), TransferError>(())
    /// ```
    #[inline]
    pub fn try_receive(&self) -> Result<T, TransferError> {
        self.receive_before(Deadline::PAST)
    }

    /// Receives the oldest value; gives up after that time.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; as [`ValueReceiver::receive`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// let brief = Duration::from_millis(1);
    /// assert_eq!(receiver.receive_timeout(brief), Err(TransferError::TimedOut));
    /// # drop(sender);
    /// ```
    pub fn receive_timeout(&self, time: Duration) -> Result<T, TransferError> {
        self.receive_before(Deadline::within(time))
    }

    /// Receives the oldest value; gives up at that instant.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; as [`ValueReceiver::receive`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// let end = Instant::now() + Duration::from_millis(1);
    /// assert_eq!(receiver.receive_until(end), Err(TransferError::TimedOut));
    /// # drop(sender);
    /// ```
    pub fn receive_until(&self, instant: Instant) -> Result<T, TransferError> {
        self.receive_before(Deadline::at(instant))
    }

    /// Receives the oldest value if there is one, or says where it would sleep: for event
    /// loops.
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// use towpath_sync::Attempt;
    ///
    /// assert!(matches!(receiver.attempt_receive(), Attempt::Asleep(..)));
    /// sender.send(7)?;
    /// assert!(matches!(receiver.attempt_receive(), Attempt::Done(Ok(7))));
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn attempt_receive(&self) -> Attempt<Result<T, TransferError>> {
        attempt(&self.venue, |queue, cpu, wait, turn| queue.receive(cpu, wait, turn))
    }

    #[inline]
    fn receive_before(&self, deadline: Deadline) -> Result<T, TransferError> {
        let (queue, wait) = self.venue.late()?;
        queue.receive(CALLER, wait, deadline)
    }

    /// Receives values that are there, up to so many, at the vector's end.
    /// Returns their number.
    ///
    /// Waits for the first.
    ///
    /// # Errors
    ///
    /// As [`ValueReceiver::receive`].
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// sender.send_all([7, 8])?;
    /// let mut values = Vec::new();
    /// assert_eq!(receiver.receive_many(&mut values, 16)?, 2);
    /// assert_eq!(values, [7, 8]);
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn receive_many(&self, values: &mut Vec<T>, most: usize) -> Result<usize, TransferError> {
        self.many_before(values, most, Deadline::NEVER)
    }

    /// Receives those that are there; gives up after that time if there are none.
    ///
    /// # Errors
    ///
    /// As [`ValueReceiver::receive_timeout`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// sender.send(7)?;
    /// let mut values = Vec::new();
    /// receiver.receive_many_timeout(&mut values, 16, Duration::from_secs(1))?;
    /// assert_eq!(values, [7]);
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn receive_many_timeout(
        &self,
        values: &mut Vec<T>,
        most: usize,
        time: Duration,
    ) -> Result<usize, TransferError> {
        self.many_before(values, most, Deadline::within(time))
    }

    /// Receives those that are there; gives up at that instant if there are none.
    ///
    /// # Errors
    ///
    /// As [`ValueReceiver::receive_until`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// let (mut values, soon) = (Vec::new(), Instant::now() + Duration::from_millis(1));
    /// assert!(receiver.receive_many_until(&mut values, 16, soon).is_err());
    /// # drop(sender);
    /// ```
    pub fn receive_many_until(
        &self,
        values: &mut Vec<T>,
        most: usize,
        instant: Instant,
    ) -> Result<usize, TransferError> {
        self.many_before(values, most, Deadline::at(instant))
    }

    fn many_before(
        &self,
        values: &mut Vec<T>,
        most: usize,
        deadline: Deadline,
    ) -> Result<usize, TransferError> {
        if most == 0 {
            return Ok(0);
        }
        self.venue.call(|queue, cpu, wait| {
            values.push(queue.receive(cpu, wait, deadline)?);
            for number in 1..most {
                // An error is found by the next call.
                let Some(value) = queue.take_if_there(cpu, wait) else { return Ok(number) };
                values.push(value);
            }
            Ok(most)
        })
    }

    /// Values until the queue has come to its end: it was closed, or the last sender has
    /// gone.
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// sender.send_all([7, 8])?;
    /// drop(sender);
    /// assert_eq!(receiver.iter().sum::<u64>(), 15);
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn iter(&self) -> ReceivedValues<'_, T, V> {
        ReceivedValues(self)
    }
}

/// Iterator over the values that a receiver gets, until the queue has come to its end.
///
/// ```
/// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
/// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
/// sender.send_all([7, 8])?;
/// drop(sender);
/// let mut sum = 0;
/// for value in &receiver {
///     sum += value;
/// }
/// assert_eq!(sum, 15);
/// # Ok::<(), TransferError>(())
/// ```
#[derive(OpaqueDebug)]
pub struct ReceivedValues<'a, T, V: Venue>(&'a ValueReceiver<T, V>);

impl<T: Plain + Copy, V: Venue> Iterator for ReceivedValues<'_, T, V> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.0.receive().ok()
    }
}

impl<'a, T: Plain + Copy, V: Venue> IntoIterator for &'a ValueReceiver<T, V> {
    type Item = T;
    type IntoIter = ReceivedValues<'a, T, V>;
    fn into_iter(self) -> ReceivedValues<'a, T, V> {
        self.iter()
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
