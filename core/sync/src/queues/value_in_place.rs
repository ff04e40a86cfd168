//! Values of a queue that are written and read in their slots.
#![allow(unsafe_code)]

use core::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use towpath_derive::OpaqueDebug;
use towpath_machine::{Native, Plain};

use super::leases::end;
use super::{Leased, Leasing, ManyToMany, Reserved, TransferError, ValueReceiver, ValueSender, Venue, value};
use crate::{Attempt, Deadline, Wait};

/// First byte of a slot's value.
///
/// # Panics
///
/// If the slot has no room for a `T`.
fn value_of<T>(queue: &ManyToMany<'_, Native>, slot: usize) -> *mut T {
    const {
        assert!(
            align_of::<T>() <= 8,
            "a value in its slot is aligned to 8 bytes only: send and receive one that needs more"
        )
    };
    let (lines, first) = (queue.slot_lines(), 8 * queue.first_word(slot));
    assert!(first + size_of::<T>() <= size_of_val(lines));
    // Words are atomic, so that the bytes may be written through a shared reference.
    lines.as_ptr().cast_mut().cast::<u8>().wrapping_add(first).cast()
}

impl ManyToMany<'_, Native> {
    /// First byte of a leased value, which lies there until the lease ends.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// queue.send(&cpu, &Spinning, &7u64, Deadline::NEVER)?;
    /// let lease = queue.lease_in_place(&cpu, &Spinning, Deadline::NEVER)?;
    /// // SAFETY: the value lies there until the lease ends.
    /// assert_eq!(unsafe { queue.leased_value(&lease).cast::<u64>().read() }, 7);
    /// queue.complete(&cpu, &Spinning, lease);
    /// # Ok(())
    /// # }
    /// ```
    pub fn leased_value(&self, leased: &Leased) -> *const u8 {
        value_of::<u8>(self, leased.slot()).cast_const()
    }
}

/// A slot of a queue, to be filled in place. Dropped, nothing is sent.
///
/// At first it has any bytes. A value of up to 56 bytes is kept in this
/// guard until it is sent: receivers may still read the slot that lost the value before.
#[derive(OpaqueDebug)]
#[must_use = "nothing is sent unless `send` is called"]
pub struct SlotInPlace<'a, T: Plain + Copy, V: Venue<Kind: Leasing>> {
    sender: &'a ValueSender<T, V>,
    reserved: Option<Reserved>,
    lies: Lies<T>,
}

/// Place of a value.
enum Lies<T> {
    Here([u64; value::SMALL]),
    InSlot(*mut T),
}

impl<T: Plain + Copy, V: Venue<Kind: Leasing>> SlotInPlace<'_, T, V> {
    /// Sends the value.
    ///
    /// # Errors
    ///
    /// [`TransferError::Closed`].
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// let mut slot = sender.reserve()?;
    /// *slot = 7;
    /// slot.send()?;
    /// assert_eq!(receiver.receive()?, 7);
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn send(mut self) -> Result<(), TransferError> {
        let Some(reserved) = self.reserved.take() else { return Ok(()) };
        self.sender.venue.call(|queue, cpu, wait| {
            let queue = V::Kind::leasing(queue);
            if matches!(self.lies, Lies::Here(_)) {
                queue.fill(cpu, &reserved, &*self);
            }
            queue.publish(cpu, wait, reserved)
        })
    }
}

impl<T: Plain + Copy, V: Venue<Kind: Leasing>> Deref for SlotInPlace<'_, T, V> {
    type Target = T;
    fn deref(&self) -> &T {
        match &self.lies {
            // SAFETY: as many words as a small value has, aligned to 8 bytes (`value_of`), and
            // any bits are a `T`.
            Lies::Here(words) => unsafe { &*words.as_ptr().cast() },
            // SAFETY: within the slots (`value_of`), which stay mapped as long as the sender's
            // venue lives; any bits are a `T`; large values are read by those alone that have
            // leased the slot, and this process has reserved it.
            Lies::InSlot(value) => unsafe { &**value },
        }
    }
}

impl<T: Plain + Copy, V: Venue<Kind: Leasing>> DerefMut for SlotInPlace<'_, T, V> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.lies {
            // SAFETY: as in `deref`; and this is the only reference, borrowed from the guard.
            Lies::Here(words) => unsafe { &mut *words.as_mut_ptr().cast() },
            // SAFETY: as in `deref`; and this is the only reference, borrowed from the guard.
            Lies::InSlot(value) => unsafe { &mut **value },
        }
    }
}

impl<T: Plain + Copy, V: Venue<Kind: Leasing>> Drop for SlotInPlace<'_, T, V> {
    fn drop(&mut self) {
        let Some(reserved) = self.reserved.take() else { return };
        let ended = self.sender.venue.call(|queue, cpu, wait| {
            V::Kind::leasing(queue).give_up(cpu, wait, reserved);
            Ok(())
        });
        // To a process outside the world the slot does not belong any more.
        let _ = ended;
    }
}

impl<T: Plain + Copy, V: Venue<Kind: Leasing>> ValueSender<T, V> {
    /// Takes a slot for a value, to be written in place, when there is one.
    ///
    /// A process that dies with it has sent nothing.
    ///
    /// # Errors
    ///
    /// As [`ValueSender::send`].
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// drop(sender.reserve()?); // nothing is sent
    /// let mut slot = sender.reserve()?;
    /// *slot = 7;
    /// slot.send()?;
    /// assert_eq!(receiver.receive()?, 7);
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn reserve(&self) -> Result<SlotInPlace<'_, T, V>, TransferError> {
        self.reserve_before(Deadline::NEVER)
    }

    /// Takes a slot; gives up after that time.
    ///
    /// # Errors
    ///
    /// As [`ValueSender::send_timeout`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// let mut slot = sender.reserve_timeout(Duration::from_secs(1))?;
    /// *slot = 7;
    /// slot.send()?;
    /// assert_eq!(receiver.receive()?, 7);
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn reserve_timeout(&self, time: Duration) -> Result<SlotInPlace<'_, T, V>, TransferError> {
        self.reserve_before(Deadline::within(time))
    }

    /// Takes a slot; gives up at that instant.
    ///
    /// # Errors
    ///
    /// As [`ValueSender::send_until`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// let slot = sender.reserve_until(Instant::now() + Duration::from_secs(1))?;
    /// # drop((slot, receiver));
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn reserve_until(&self, instant: Instant) -> Result<SlotInPlace<'_, T, V>, TransferError> {
        self.reserve_before(Deadline::at(instant))
    }

    /// Takes a slot; gives up at the deadline.
    ///
    /// # Errors
    ///
    /// As [`ValueSender::send_timeout`].
    ///
    /// ```
    /// # use towpath_sync::Deadline;
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<[u64; 16], Mpmc>(1); // towpath::mpmc::queue
    /// let slot = sender.reserve_before(Deadline::PAST)?;
    /// assert!(sender.reserve_before(Deadline::PAST).is_err()); // the only one is taken
    /// # drop((slot, receiver));
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn reserve_before(&self, deadline: Deadline) -> Result<SlotInPlace<'_, T, V>, TransferError> {
        let (reserved, lies) = self.venue.call(|queue, cpu, wait| {
            let queue = V::Kind::leasing(queue);
            let reserved = queue.reserve(cpu, wait, deadline)?;
            let value = value_of::<T>(&queue, reserved.slot());
            let lies =
                if value::is_large(value::words::<T>()) { Lies::InSlot(value) } else { Lies::Here([0; _]) };
            Ok((reserved, lies))
        })?;
        Ok(SlotInPlace { sender: self, reserved: Some(reserved), lies })
    }
}

/// A value that was received and lies in its slot until this is dropped: then it is done
/// with. It comes in again if this process dies before.
#[derive(OpaqueDebug)]
#[must_use = "the value is done with at once"]
pub struct ValueInPlace<'a, T: Plain + Copy, V: Venue<Kind: Leasing>> {
    receiver: &'a ValueReceiver<T, V>,
    leased: Option<Leased>,
    value: *const T,
}

impl<T: Plain + Copy, V: Venue<Kind: Leasing>> ValueInPlace<'_, T, V> {
    /// Gives the value back: it comes in again, behind those that wait.
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// sender.send(7)?;
    /// receiver.receive_in_place()?.give_back();
    /// assert_eq!(receiver.receive()?, 7);
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn give_back(mut self) {
        self.end(false);
    }

    /// The lease alone: the caller ends it.
    ///
    /// # Panics
    ///
    /// Never: the guard has its lease until it is dropped.
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// sender.send(7)?;
    /// let lease = receiver.receive_in_place()?.into_lease();
    /// assert!(lease.slot() < 2); // until it is ended the value is in this slot
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn into_lease(mut self) -> Leased {
        self.leased.take().expect("a guard has its lease")
    }

    fn end(&mut self, completed: bool) {
        if let Some(leased) = self.leased.take() {
            end(&self.receiver.venue, leased, completed);
        }
    }
}

impl<T: Plain + Copy, V: Venue<Kind: Leasing>> Deref for ValueInPlace<'_, T, V> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: within the slots (`value_of`), which stay mapped as long as the receiver's venue
        // lives; any bits are a `T`; no process writes to a slot that this one has leased.
        unsafe { &*self.value }
    }
}

impl<T: Plain + Copy, V: Venue<Kind: Leasing>> Drop for ValueInPlace<'_, T, V> {
    fn drop(&mut self) {
        self.end(true);
    }
}

impl<T: Plain + Copy, V: Venue<Kind: Leasing>> ValueReceiver<T, V> {
    /// Receives the oldest value, when there is one, and leaves it in its slot until the
    /// guard is dropped.
    ///
    /// # Errors
    ///
    /// As [`ValueReceiver::receive`].
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// sender.send(7)?;
    /// let value = receiver.receive_in_place()?;
    /// assert_eq!(*value, 7);
    /// drop(value); // it is done with
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn receive_in_place(&self) -> Result<ValueInPlace<'_, T, V>, TransferError> {
        self.in_place_before(Deadline::NEVER)
    }

    /// Receives in place; gives up after that time.
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
    /// assert_eq!(*receiver.receive_in_place_timeout(Duration::from_secs(1))?, 7);
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn receive_in_place_timeout(&self, time: Duration) -> Result<ValueInPlace<'_, T, V>, TransferError> {
        self.in_place_before(Deadline::within(time))
    }

    /// Receives in place; gives up at that instant.
    ///
    /// # Errors
    ///
    /// As [`ValueReceiver::receive_until`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// let soon = Instant::now() + Duration::from_millis(1);
    /// assert!(receiver.receive_in_place_until(soon).is_err());
    /// # drop(sender);
    /// ```
    pub fn receive_in_place_until(&self, instant: Instant) -> Result<ValueInPlace<'_, T, V>, TransferError> {
        self.in_place_before(Deadline::at(instant))
    }

    /// Receives in place if there is a value, or says where it would sleep: for event
    /// loops.
    ///
    /// ```
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<u64, Mpmc>(2); // towpath::mpmc::queue
    /// use towpath_sync::Attempt;
    ///
    /// assert!(matches!(receiver.attempt_receive_in_place(), Attempt::Asleep(..)));
    /// # drop(sender);
    /// ```
    pub fn attempt_receive_in_place(&self) -> Attempt<Result<ValueInPlace<'_, T, V>, TransferError>> {
        let tried = self.venue.call(|queue, cpu, wait| {
            let act = |wait: &Wait<'_>, turn| self.lease(&V::Kind::leasing(queue), cpu, wait, turn);
            Ok(Attempt::of(wait, TransferError::is_timeout, act))
        });
        tried.unwrap_or_else(|error| Attempt::Done(Err(error)))
    }

    /// Receives in place; gives up at the deadline.
    ///
    /// # Errors
    ///
    /// As [`ValueReceiver::receive_timeout`].
    ///
    /// ```
    /// # use towpath_sync::Deadline;
    /// # use towpath_sync::queues::{Mpmc, TransferError, between_threads};
    /// let (sender, receiver) = between_threads::<[u64; 16], Mpmc>(2); // towpath::mpmc::queue
    /// assert!(receiver.in_place_before(Deadline::PAST).is_err()); // there is none yet
    /// sender.send([7; 16])?;
    /// assert_eq!(receiver.in_place_before(Deadline::PAST)?[15], 7);
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn in_place_before(&self, deadline: Deadline) -> Result<ValueInPlace<'_, T, V>, TransferError> {
        self.venue.call(|queue, cpu, wait| self.lease(&V::Kind::leasing(queue), cpu, wait, deadline))
    }

    #[inline]
    fn lease(
        &self,
        queue: &ManyToMany<'_, Native>,
        cpu: &Native,
        wait: &Wait<'_>,
        deadline: Deadline,
    ) -> Result<ValueInPlace<'_, T, V>, TransferError> {
        let leased = queue.lease_in_place(cpu, wait, deadline)?;
        let value = value_of::<T>(queue, leased.slot()).cast_const();
        Ok(ValueInPlace { receiver: self, leased: Some(leased), value })
    }
}
