//! Leases of values: a value comes in again unless its receiver completes it.

use std::time::{Duration, Instant};

use towpath_derive::OpaqueDebug;
use towpath_machine::Plain;

use super::{Leased, Leasing, TransferError, ValueReceiver, ValueSender, Venue};
use crate::Deadline;

impl<T: Plain + Copy, V: Venue<Kind: Leasing>> ValueReceiver<T, V> {
    /// Receives the oldest value under a lease: it comes in again, behind those that
    /// wait, if this process dies before the lease is completed, or if the lease is dropped.
    ///
    /// # Errors
    ///
    /// As [`ValueReceiver::receive`].
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// sender.send(7)?;
    /// drop(receiver.receive_leased()?); // given back
    /// let job = receiver.receive_leased()?;
    /// assert_eq!(*job, 7);
    /// job.complete();
    /// # Ok::<(), TransferError>(())
    /// ```
    #[inline]
    pub fn receive_leased(&self) -> Result<ValueLease<T, V>, TransferError> {
        self.lease_before(Deadline::NEVER)
    }

    /// Receives under a lease if there is a value; never waits.
    ///
    /// # Errors
    ///
    /// As [`ValueReceiver::try_receive`].
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// assert_eq!(receiver.try_receive_leased().err(), Some(TransferError::TimedOut));
    /// # drop(sender);
    /// ```
    #[inline]
    pub fn try_receive_leased(&self) -> Result<ValueLease<T, V>, TransferError> {
        self.lease_before(Deadline::PAST)
    }

    /// Receives under a lease; gives up after that time.
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
    /// receiver.receive_leased_timeout(Duration::from_secs(1))?.complete();
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn receive_leased_timeout(&self, time: Duration) -> Result<ValueLease<T, V>, TransferError> {
        self.lease_before(Deadline::within(time))
    }

    /// Receives under a lease; gives up at that instant.
    ///
    /// # Errors
    ///
    /// As [`ValueReceiver::receive_until`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// sender.send(7)?;
    /// let end = Instant::now() + Duration::from_secs(1);
    /// receiver.receive_leased_until(end)?.complete();
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn receive_leased_until(&self, instant: Instant) -> Result<ValueLease<T, V>, TransferError> {
        self.lease_before(Deadline::at(instant))
    }

    #[inline(always)]
    fn lease_before(&self, deadline: Deadline) -> Result<ValueLease<T, V>, TransferError> {
        let (value, leased) = self
            .venue
            .call(|queue, cpu, wait| V::Kind::leasing(queue).receive_leased(cpu, wait, deadline))?;
        Ok(ValueLease { venue: self.venue.clone(), value, leased: Some(leased) })
    }
}

/// A value that this process has, and that comes in again if it dies. Dropped, it is
/// given back.
#[derive(OpaqueDebug)]
#[must_use = "the value comes in again at once"]
pub struct ValueLease<T, V: Venue<Kind: Leasing>> {
    venue: V,
    value: T,
    leased: Option<Leased>,
}

impl<T, V: Venue<Kind: Leasing>> ValueLease<T, V> {
    /// Says that the value is done with: it does not come in again.
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// sender.send(7)?;
    /// receiver.receive_leased()?.complete();
    /// assert!(receiver.try_receive().is_err(), "it does not come in again");
    /// # Ok::<(), TransferError>(())
    /// ```
    #[inline]
    pub fn complete(mut self) {
        self.end(true);
    }

    /// Says that the value is done with, and sends another one when there is room.
    ///
    /// If this process dies, both have happened, or neither. On an error neither has, and the
    /// value comes in again.
    ///
    /// The room must be in another queue, or in another slot: while a queue is full of leases, a
    /// lease of it is not completed into that queue.
    ///
    /// # Errors
    ///
    /// As [`ValueSender::send`]; [`TransferError::Apart`] if the queues lie in different worlds.
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// let (results, done) = between_threads::<u64, Mpmc>(2);
    /// sender.send(7)?;
    /// let job = receiver.receive_leased()?;
    /// let square = *job * *job;
    /// job.complete_into(&results, square)?;
    /// assert_eq!(done.receive()?, 49);
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn complete_into<U: Plain + Copy, I: Venue<Kind: Leasing>>(
        self,
        into: &ValueSender<U, I>,
        value: U,
    ) -> Result<(), TransferError> {
        self.into_before(into, value, Deadline::NEVER)
    }

    /// Completes into another queue; gives up after that time.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; as [`ValueLease::complete_into`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// let (results, done) = between_threads::<u64, Mpmc>(2);
    /// sender.send(7)?;
    /// let job = receiver.receive_leased()?;
    /// job.complete_into_timeout(&results, 49, Duration::from_secs(1))?;
    /// assert_eq!(done.receive()?, 49);
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn complete_into_timeout<U: Plain + Copy, I: Venue<Kind: Leasing>>(
        self,
        into: &ValueSender<U, I>,
        value: U,
        time: Duration,
    ) -> Result<(), TransferError> {
        self.into_before(into, value, Deadline::within(time))
    }

    /// Completes into another queue; gives up at that instant.
    ///
    /// # Errors
    ///
    /// As [`ValueLease::complete_into_timeout`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// let (results, _done) = between_threads::<u64, Mpmc>(2);
    /// sender.send(7)?;
    /// let soon = Instant::now() + Duration::from_secs(1);
    /// receiver.receive_leased()?.complete_into_until(&results, 49, soon)?;
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn complete_into_until<U: Plain + Copy, I: Venue<Kind: Leasing>>(
        self,
        into: &ValueSender<U, I>,
        value: U,
        instant: Instant,
    ) -> Result<(), TransferError> {
        self.into_before(into, value, Deadline::at(instant))
    }

    fn into_before<U: Plain + Copy, I: Venue<Kind: Leasing>>(
        mut self,
        into: &ValueSender<U, I>,
        value: U,
        deadline: Deadline,
    ) -> Result<(), TransferError> {
        let Some(leased) = self.leased else { return Ok(()) };
        self.venue.call(|from, cpu, wait| {
            into.venue.call(|to, _, _| {
                let (from, to) = (V::Kind::leasing(from), I::Kind::leasing(to));
                from.complete_into(cpu, wait, leased, &to, &value, deadline)
            })
        })?;
        self.leased = None;
        Ok(())
    }

    #[inline(always)]
    fn end(&mut self, completed: bool) {
        if let Some(leased) = self.leased.take() {
            end(&self.venue, leased, completed);
        }
    }
}

/// Ends a lease: the value is done with, or comes in again.
#[inline(always)]
pub(super) fn end<V: Venue<Kind: Leasing>>(venue: &V, leased: Leased, completed: bool) {
    let ended = venue.call(|queue, cpu, wait| {
        V::Kind::leasing(queue).end(cpu, wait, leased, completed);
        Ok(())
    });
    // To a process outside the world the lease does not belong any more.
    let _ = ended;
}

impl<T, V: Venue<Kind: Leasing>> core::ops::Deref for ValueLease<T, V> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T, V: Venue<Kind: Leasing>> Drop for ValueLease<T, V> {
    #[inline]
    fn drop(&mut self) {
        self.end(false);
    }
}
