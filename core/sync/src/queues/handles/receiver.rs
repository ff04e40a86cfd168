//! Receivers of queues.

use core::marker::PhantomData;
use std::time::{Duration, Instant};

use towpath_derive::OpaqueDebug;
use towpath_machine::Plain;

use super::{attempt, join};
use crate::queues::kinds::{CALLER, SeatOf, SharingOf};
use crate::queues::{BoundedQueue, QueueSide, TransferError, Venue};
use crate::{Attempt, Deadline};

/// Receiver of a queue: one of several, if it can be cloned.
#[derive(OpaqueDebug)]
pub struct ValueReceiver<T, V: Venue> {
    pub(in crate::queues) venue: V,
    pub(super) seat: SeatOf<V>,
    pub(super) values: PhantomData<fn() -> T>,
    pub(super) sharing: PhantomData<SharingOf<V>>,
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
