//! A receiver's steps: the oldest value, copied or under a lease, and the end of a lease.

use towpath_machine::{Ordering, Plain, Processor};

use super::{CLOSED, LEASED, Leased, ManyToMany, Oldest, free_after, slot_word};
use crate::queues::members::QueueSide;
use crate::queues::{ReceivedShape, TransferError, gathering, value};
use crate::turns::{TURN, Turns};
use crate::{Deadline, PARKED, Waiting};

impl<P: Processor, const N: usize> ManyToMany<'_, P, N> {
    /// Takes the oldest value, which is read before: its slot is leased, or free.
    #[inline(always)]
    pub(super) fn try_take<R, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        leases: bool,
        read: impl Fn(&Self, usize) -> R,
    ) -> Result<(R, Leased), (u64, u64)> {
        loop {
            let (ticket, slot, word) = match self.front(cpu) {
                Oldest::Value(ticket, slot, word) => (ticket, slot, word),
                Oldest::Empty(ticket, entry) => return Err((ticket, entry)),
            };
            let value = read(self, slot);
            let next = if leases { slot_word(LEASED, ticket, wait.identity()) } else { free_after(ticket) };
            // (Q6b) Release: as (Q6): what was read comes before what the next owner writes, or it
            // fails; pairs with the Acquire (Q9), (Q5). Not Acquire: (Q5) has acquired the word.
            let taken =
                cpu.compare_exchange(self.word(slot, 0), word, next, Ordering::Release, Ordering::Relaxed);
            if taken.is_err() {
                continue;
            }
            if word & PARKED != 0 {
                wait.wake_all(cpu, self.word(slot, 0));
            }
            // (Q2) Release: the slot's word; pairs with the Acquire (Q1).
            cpu.store(&self.head.taken.next, ticket + 1, Ordering::Release);
            return Ok((value, Leased { slot, word: next }));
        }
    }

    pub(super) fn read<T: Plain>(&self, cpu: &P, slot: usize) -> T {
        self.read_as(cpu, slot, &value::OfType::<T>::new())
    }

    #[inline(always)]
    pub(super) fn read_as<S: ReceivedShape>(&self, cpu: &P, slot: usize, shape: &S) -> S::Value {
        // Relaxed: after (Q3), (Q5), before (Q6b), or (Q6) of a large one.
        shape.value(|k| cpu.load(self.word(slot, 1 + k), Ordering::Relaxed))
    }

    #[cold]
    fn take_slowly<R, W: Waiting<P>>(
        self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
        leases: bool,
        read: impl Fn(&Self, usize) -> R,
    ) -> Result<(R, Leased), TransferError> {
        if let Some(batch) = gathering::batch(self.geometry.capacity(), deadline) {
            // Relaxed: a hint, as it always is.
            let next = cpu.load(&self.head.taken.next, Ordering::Relaxed);
            if gathering::is_worth_it(cpu, &self.head.taken.hint, next) {
                let gathered = self.entry(next.wrapping_add(batch as u64));
                gathering::pause(cpu, wait, gathered, gathering::YIELDS, deadline);
            }
        }
        let mut turns = None;
        let mut end = None;
        loop {
            let (ticket, entry) = match self.try_take(cpu, wait, leases, &read) {
                Ok(taken) => return Ok(taken),
                Err(empty) => empty,
            };
            // It was over before the last look.
            if let Some(end) = end {
                return Err(end);
            }
            let is_closed = entry & CLOSED != 0;
            if !is_closed && self.head.members.is_closed(cpu) {
                self.mark_closed(cpu, wait);
                continue;
            }
            let turns = turns.get_or_insert_with(|| Turns::new(cpu, deadline, TURN));
            if is_closed
                || self.head.members.is_time_to_ask(cpu, turns, deadline)
                || self.head.members.may_be_without(cpu, QueueSide::Sender)
            {
                // First, so that no slot is filled behind the look at it.
                let why = if is_closed {
                    Some(TransferError::Closed)
                } else {
                    self.head.members.end_of(cpu, wait, QueueSide::Sender)
                };
                let found = self.look_over(cpu, wait);
                if found.has_repaired {
                    continue;
                }
                end = why.filter(|_| !found.may_come_again);
                if end.is_some() {
                    continue;
                }
            }
            if turns.have_begun() {
                self.wake_resting(cpu, wait);
            }
            turns.wait(cpu, wait, self.entry(ticket), entry & !PARKED)?;
        }
    }

    /// Takes the oldest value, and leaves it in its slot until it is completed: it comes
    /// in again if the caller dies, or gives it back.
    ///
    /// # Errors
    ///
    /// As [`BoundedQueue::receive`](crate::queues::BoundedQueue::receive).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// queue.send(&cpu, &Spinning, &7u64, Deadline::NEVER)?;
    /// let (job, lease) = queue.receive_leased::<u64, _>(&cpu, &Spinning, Deadline::NEVER)?;
    /// assert_eq!(job, 7);
    /// queue.complete(&cpu, &Spinning, lease); // until then its slot is in use
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn receive_leased<T: Plain, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
    ) -> Result<(T, Leased), TransferError> {
        if value::is_large(value::words::<T>()) {
            let leased = self.lease_in_place(cpu, wait, deadline)?;
            return Ok((self.read(cpu, leased.slot), leased));
        }
        self.take(cpu, wait, deadline, true, |queue, slot| queue.read(cpu, slot))
    }

    /// Takes the oldest value as [`ManyToMany::receive_leased`], and leaves it to the
    /// caller to read it in its slot.
    ///
    /// # Errors
    ///
    /// As [`BoundedQueue::receive`](crate::queues::BoundedQueue::receive).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// queue.send(&cpu, &Spinning, &7u64, Deadline::NEVER)?;
    /// let lease = queue.lease_in_place(&cpu, &Spinning, Deadline::NEVER)?;
    /// // SAFETY: the value lies there until the lease ends.
    /// let value = unsafe { &*queue.leased_value(&lease).cast::<u64>() };
    /// assert_eq!(*value, 7); // not copied
    /// queue.complete(&cpu, &Spinning, lease);
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn lease_in_place<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
    ) -> Result<Leased, TransferError> {
        self.take(cpu, wait, deadline, true, |_, _| ()).map(|((), leased)| leased)
    }

    /// Takes the oldest value, when there is one: its slot is leased, or free.
    #[inline(always)]
    pub(super) fn take<R, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
        leases: bool,
        read: impl Fn(&Self, usize) -> R,
    ) -> Result<(R, Leased), TransferError> {
        match self.try_take(cpu, wait, leases, &read) {
            Ok(taken) => Ok(taken),
            Err(_) => self.apart().take_slowly(cpu, wait, deadline, leases, read),
        }
    }

    /// Ends a lease: the value is done with, or comes in again.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// queue.send(&cpu, &Spinning, &7u64, Deadline::NEVER)?;
    /// let (job, lease) = queue.receive_leased::<u64, _>(&cpu, &Spinning, Deadline::NEVER)?;
    /// let handled = job.checked_sub(8).is_some();
    /// queue.end(&cpu, &Spinning, lease, handled);
    /// assert_eq!(queue.len(&cpu), 1); // it was not, and comes in again
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn end<W: Waiting<P>>(&self, cpu: &P, wait: &W, leased: Leased, completed: bool) {
        if completed {
            self.complete(cpu, wait, leased);
        } else {
            self.give_back(cpu, wait, leased);
        }
    }

    /// Ends a lease: the value is done with.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// queue.send(&cpu, &Spinning, &7u64, Deadline::NEVER)?;
    /// let (_, lease) = queue.receive_leased::<u64, _>(&cpu, &Spinning, Deadline::NEVER)?;
    /// queue.complete(&cpu, &Spinning, lease);
    /// queue.give_back(&cpu, &Spinning, lease); // it has ended: no effect
    /// assert!(queue.is_empty(&cpu));
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn complete<W: Waiting<P>>(&self, cpu: &P, wait: &W, leased: Leased) {
        if leased.is_of(wait.identity()) {
            self.complete_own(cpu, wait, leased);
        }
    }

    /// Ends a lease that the caller has just taken: the value is done with.
    #[inline(always)]
    pub(super) fn complete_own<W: Waiting<P>>(&self, cpu: &P, wait: &W, leased: Leased) {
        if self.free(cpu, wait, leased.slot, leased.word) {
            self.wake_senders(cpu, wait);
        }
    }

    /// Ends a lease: the value comes in again.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// queue.send(&cpu, &Spinning, &7u64, Deadline::NEVER)?;
    /// queue.send(&cpu, &Spinning, &8u64, Deadline::NEVER)?;
    /// let (_, lease) = queue.receive_leased::<u64, _>(&cpu, &Spinning, Deadline::NEVER)?;
    /// queue.give_back(&cpu, &Spinning, lease);
    /// let receive = || queue.receive::<u64, _>(&cpu, &Spinning, Deadline::NEVER);
    /// assert_eq!([receive()?, receive()?], [8, 7]); // behind those that wait
    /// # Ok(())
    /// # }
    /// ```
    pub fn give_back<W: Waiting<P>>(&self, cpu: &P, wait: &W, leased: Leased) {
        if leased.is_of(wait.identity()) {
            self.send_again(cpu, wait, leased.slot, leased.word);
        }
    }
}
