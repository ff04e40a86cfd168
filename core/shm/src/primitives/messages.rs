//! Queues of messages of any length, by name.
//!
//! A short message lies in its slot of a bounded queue. A longer one lies in a buffer of a pool,
//! and the slot has the buffer's number; the buffer moves as in a [stage](super::PoolStage).

use std::time::{Duration, Instant};

use towpath_derive::OpaqueDebug;
use towpath_machine::Native;
use towpath_sync::queues::{Leasing, Mpmc, TransferError, ValueSender, Venue};
use towpath_sync::{Attempt, Deadline, Wait};

use super::message_receiver::MessageReceiver;
use super::message_slot::{MessageSlot, MessageVenue, NO_BUFFER, SHORT};
use super::pool::{PoolBuffer, WorldPool};
use super::queues::WorldQueue;
use super::sized_queue::{SizedKind, SizedQueue};
use crate::{Error, World};

/// Size of a queue of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageSpec {
    /// Number of messages for which there is room.
    ///
    /// One that its receiver has yet to be done with takes room.
    pub capacity: usize,
    /// Number of buffers, for messages of more than [`MessageSpec::SHORT`] bytes.
    pub buffers: usize,
    /// Number of bytes of a buffer, thus of the longest message.
    pub buffer_bytes: usize,
}

impl MessageSpec {
    /// Maximum number of bytes of a message that needs no buffer.
    pub const SHORT: usize = SHORT;

    /// Numbers of bytes of such a queue's objects in a world; `None` if there is none of
    /// these numbers.
    ///
    /// ```
    /// let bytes = towpath::messages::Spec::default().object_bytes();
    /// assert!(bytes.is_some_and(|[queue, buffers]| queue + buffers < 60_000));
    /// ```
    pub fn object_bytes(&self) -> Option<[u64; 2]> {
        let slots = SizedQueue::object_bytes(SizedKind::Mpmc, size_of::<MessageSlot>(), self.capacity)?;
        Some([slots, WorldPool::object_bytes(self.buffers, self.buffer_bytes)?])
    }
}

impl Default for MessageSpec {
    /// 64 messages, 8 buffers of 4 KiB: 52 KiB, which the usual world has room for.
    fn default() -> Self {
        MessageSpec { capacity: 64, buffers: 8, buffer_bytes: 1 << 12 }
    }
}

/// Queue of messages in a world: makes senders and receivers.
///
/// Many senders, many receivers; first in, first out. A message that was sent is received, also if
/// its sender dies; one that its receiver had not done with when it died comes in again, behind
/// those that wait.
#[derive(OpaqueDebug)]
pub struct WorldMessages {
    pool: WorldPool,
    queue: WorldQueue<MessageSlot, Mpmc>,
}

impl World {
    /// Opens the queue of messages of that name; makes it if there is none.
    ///
    /// One that is there keeps its size: [`WorldMessages::spec`]. Its buffers are the
    /// [pool](World::pool) of the name with `-buffers` at its end.
    ///
    /// # Errors
    ///
    /// As [`World::mpmc`] and [`World::pool`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let letters = world.messages("letters", &Default::default())?;
    /// let (sender, receiver) = (letters.sender()?, letters.receiver()?); // in different processes
    /// sender.send(b"short")?;
    /// sender.send(&[7; 4_000])?;
    /// assert_eq!(&receiver.receive()?[..], b"short");
    /// assert_eq!(receiver.receive()?.len(), 4_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn messages(&self, name: &str, spec: &MessageSpec) -> Result<WorldMessages, Error> {
        let pool = self.pool(&format!("{name}-buffers"), spec.buffers, spec.buffer_bytes)?;
        let queue = self.queue::<MessageSlot, Mpmc>(name, spec.capacity, |head| {
            if !spec.capacity.is_power_of_two() {
                head.set_limit(&Native::with_id(0), spec.capacity);
            }
        })?;
        Ok(WorldMessages { pool, queue })
    }
}

impl WorldMessages {
    fn venue(&self) -> MessageVenue {
        MessageVenue { queue: self.queue.venue(), patience: self.pool.patience() }
    }

    /// Makes a sender. When the last one is dropped, or dies, receivers learn of it.
    ///
    /// # Errors
    ///
    /// As [`WorldQueue::sender`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// world.messages("letters", &Default::default())?.sender()?.send(b"short")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sender(&self) -> Result<MessageSender, TransferError> {
        let (pool, venue) = (self.pool.clone(), self.venue());
        Ok(MessageSender { pool, joined: ValueSender::new(venue.clone())?, venue })
    }

    /// Makes a receiver. When the last one is dropped, or dies, senders learn of it.
    ///
    /// # Errors
    ///
    /// As [`WorldQueue::sender`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let receiver = world.messages("letters", &Default::default())?.receiver()?;
    /// assert!(receiver.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn receiver(&self) -> Result<MessageReceiver, TransferError> {
        MessageReceiver::new(self.pool.clone(), self.venue())
    }

    /// Size of the queue.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let spec = towpath::messages::Spec::default();
    /// assert_eq!(world.messages("letters", &spec)?.spec(), spec);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spec(&self) -> MessageSpec {
        MessageSpec {
            capacity: self.queue.head().limit(&Native::with_id(0), self.queue.capacity()),
            buffers: self.pool.count(),
            buffer_bytes: self.pool.buffer_bytes(),
        }
    }

    /// The world in which the queue lies.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert_eq!(world.messages("letters", &Default::default())?.world().rank(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn world(&self) -> &World {
        self.pool.world()
    }
}

/// Sender of messages.
#[derive(OpaqueDebug, Clone)]
pub struct MessageSender {
    pub(super) pool: WorldPool,
    venue: MessageVenue,
    joined: ValueSender<MessageSlot, MessageVenue>,
}

impl MessageSender {
    /// Sends a message, when there is room, and a buffer if it needs one.
    ///
    /// If this process dies meanwhile it was sent whole, or not at all.
    ///
    /// # Errors
    ///
    /// [`TransferError::TooLong`]; as [`ValueSender::send`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let letters = world.messages("letters", &Default::default())?;
    /// let (sender, receiver) = (letters.sender()?, letters.receiver()?);
    /// sender.send(b"short")?;
    /// assert_eq!(&receiver.receive()?[..], b"short");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn send(&self, message: &[u8]) -> Result<(), TransferError> {
        self.send_before(message, Deadline::NEVER)
    }

    /// Sends a message if there is room; never waits.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`] if there is none; as [`MessageSender::send`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let letters = world.messages("letters", &Default::default())?;
    /// let (sender, receiver) = (letters.sender()?, letters.receiver()?);
    /// while sender.try_send(b"short").is_ok() {}
    /// assert_eq!(receiver.len(), letters.spec().capacity); // it is full
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_send(&self, message: &[u8]) -> Result<(), TransferError> {
        self.send_before(message, Deadline::PAST)
    }

    /// Sends a message; gives up after that time.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; as [`MessageSender::send`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// let letters = world.messages("letters", &Default::default())?;
    /// let (sender, _receiver) = (letters.sender()?, letters.receiver()?);
    /// while sender.try_send(b"short").is_ok() {}
    /// assert!(sender.send_timeout(b"late", Duration::from_millis(1)).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn send_timeout(&self, message: &[u8], time: Duration) -> Result<(), TransferError> {
        self.send_before(message, Deadline::within(time))
    }

    /// Sends a message; gives up at that instant.
    ///
    /// # Errors
    ///
    /// As [`MessageSender::send_timeout`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// let letters = world.messages("letters", &Default::default())?;
    /// letters.sender()?.send_until(b"short", Instant::now() + Duration::from_secs(1))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn send_until(&self, message: &[u8], instant: Instant) -> Result<(), TransferError> {
        self.send_before(message, Deadline::at(instant))
    }

    /// Sends a message; gives up at the deadline.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; as [`MessageSender::send`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// use towpath::sync::Deadline;
    ///
    /// let letters = world.messages("letters", &Default::default())?;
    /// let (sender, receiver) = (letters.sender()?, letters.receiver()?);
    /// sender.send_before(b"short", Deadline::within(Duration::from_secs(1)))?;
    /// assert_eq!(receiver.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn send_before(&self, message: &[u8], deadline: Deadline) -> Result<(), TransferError> {
        if message.len() <= SHORT {
            let mut slot = self.joined.reserve_before(deadline)?;
            slot.len = message.len() as u64;
            slot.number = NO_BUFFER;
            slot.bytes[..message.len()].copy_from_slice(message);
            return slot.send();
        }
        let most = self.pool.buffer_bytes();
        if message.len() > most {
            return Err(TransferError::TooLong { most });
        }
        let mut buffer = self.pool.take_before(deadline)?;
        buffer[..message.len()].copy_from_slice(message);
        self.send_buffer(&mut buffer, message.len(), deadline)
    }

    pub(super) fn send_buffer(
        &self,
        buffer: &mut PoolBuffer,
        len: usize,
        deadline: Deadline,
    ) -> Result<(), TransferError> {
        self.venue.call(|queue, cpu, wait| {
            let value = self.in_buffer(buffer, len);
            buffer.move_into(cpu, wait, &Mpmc::leasing(queue), &value, deadline)
        })
    }

    /// The slot of a message that lies in a buffer.
    fn in_buffer(&self, buffer: &PoolBuffer, len: usize) -> MessageSlot {
        MessageSlot {
            len: len as u64,
            pool: self.pool.tag(),
            number: buffer.number as u32,
            bytes: [0; SHORT],
        }
    }

    /// Sends a message if there is room, or says where it would sleep: for event loops.
    ///
    /// `write` writes its `len` bytes.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// use towpath::sync::Attempt;
    ///
    /// let letters = world.messages("letters", &Default::default())?;
    /// let (sender, _receiver) = (letters.sender()?, letters.receiver()?);
    /// assert!(matches!(sender.attempt_send(3, |room| room.fill(7)), Attempt::Done(Ok(()))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn attempt_send(
        &self,
        len: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Attempt<Result<(), TransferError>> {
        if len <= SHORT {
            let mut slot = MessageSlot { len: len as u64, pool: 0, number: NO_BUFFER, bytes: [0; SHORT] };
            write(&mut slot.bytes[..len]);
            return self.joined.attempt_send(&slot);
        }
        let most = self.pool.buffer_bytes();
        if len > most {
            return Attempt::Done(Err(TransferError::TooLong { most }));
        }
        let mut buffer = match self.pool.attempt_take() {
            Attempt::Done(Ok(buffer)) => buffer,
            Attempt::Done(Err(error)) => return Attempt::Done(Err(error)),
            Attempt::Asleep(asleep) => return Attempt::Asleep(asleep),
            Attempt::Again => return Attempt::Again,
        };
        write(&mut buffer[..len]);
        let value = self.in_buffer(&buffer, len);
        let tried = self.venue.call(|queue, cpu, wait| {
            let queue = Mpmc::leasing(queue);
            let act = |wait: &Wait<'_>, turn| buffer.move_into(cpu, wait, &queue, &value, turn);
            Ok(Attempt::of(wait, TransferError::is_timeout, act))
        });
        tried.unwrap_or_else(|error| Attempt::Done(Err(error)))
    }

    /// Number of messages that wait, about.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let sender = world.messages("letters", &Default::default())?.sender()?;
    /// sender.send(b"short")?;
    /// assert_eq!(sender.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn len(&self) -> usize {
        self.joined.len()
    }

    /// Returns whether no message waits.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert!(world.messages("letters", &Default::default())?.sender()?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Closes the queue: senders are refused, receivers get the messages sent before.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let sender = world.messages("letters", &Default::default())?.sender()?;
    /// sender.close();
    /// assert!(sender.send(b"late").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        self.joined.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primitives::world_of_two;

    const SPEC: MessageSpec = MessageSpec { capacity: 4, buffers: 2, buffer_bytes: 1000 };

    #[test]
    fn waiters_for_larger_buffers_spin_longer() {
        let world = world_of_two();
        let budget = |buffer_bytes| {
            let spec = MessageSpec { capacity: 4, buffers: 1, buffer_bytes };
            let messages = world.messages(&format!("m-{buffer_bytes}"), &spec).unwrap();
            messages.venue().call(|_, _, wait| Ok(wait.budget)).unwrap()
        };
        assert_eq!(budget(1000), world.switch_cost());
        assert_eq!(budget(1 << 17), 2 * world.switch_cost());
    }

    #[test]
    fn messages_of_all_lengths_come_whole_and_in_order() {
        let world = world_of_two();
        let messages = world.messages("m", &SPEC).unwrap();
        assert_eq!(messages.spec(), SPEC);
        let (sender, receiver) = (messages.sender().unwrap(), messages.receiver().unwrap());
        let of = |len: usize| Vec::from_iter((0..len).map(|i| (i + len) as u8));
        for round in 0..49 {
            let lengths = [0, 1, SHORT - 1, SHORT, SHORT + 1, 999, 1000];
            let (first, second) = (lengths[round % 7], lengths[round / 7]);
            sender.send(&of(first)).unwrap();
            sender.send(&of(second)).unwrap();
            for len in [first, second] {
                assert_eq!(receiver.receive().unwrap()[..], of(len));
            }
        }
        assert_eq!(sender.send(&of(1001)), Err(TransferError::TooLong { most: 1000 }));
        assert!(receiver.is_empty());
        assert_eq!(receiver.try_receive().err(), Some(TransferError::TimedOut));
    }

    #[test]
    fn long_messages_wait_for_buffers_and_short_ones_do_not() {
        let world = world_of_two();
        let messages = world.messages("m", &SPEC).unwrap();
        let (sender, receiver) = (messages.sender().unwrap(), messages.receiver().unwrap());
        (0..2).for_each(|n| sender.send(&[n; 500]).unwrap());
        assert_eq!(sender.try_send(&[2; 500]), Err(TransferError::TimedOut));
        sender.try_send(&[3]).unwrap();
        let held = receiver.receive().unwrap();
        assert_eq!(sender.send_timeout(&[2; 500], Duration::from_millis(1)), Err(TransferError::TimedOut));
        drop(held);
        sender.send(&[2; 500]).unwrap();
        receiver.receive().unwrap().give_back();
        let rest: Vec<_> = (0..3).map(|_| receiver.receive().unwrap()[0]).collect();
        assert_eq!(rest, [3, 2, 1], "what was given back is behind the others");
        sender.close();
        assert_eq!(sender.send(&[0; 500]), Err(TransferError::Closed));
        assert_eq!(receiver.receive().err(), Some(TransferError::Closed));
        assert_eq!(world.pool("m-buffers", 1, 1).unwrap().free(), 2);
    }

    #[test]
    fn queue_holds_as_many_messages_as_asked_for() {
        let world = world_of_two();
        for most in [1, 3, 5, 8, 13] {
            let messages =
                world.messages(&format!("m{most}"), &MessageSpec { capacity: most, ..SPEC }).unwrap();
            assert_eq!(messages.spec().capacity, most);
            let (sender, receiver) = (messages.sender().unwrap(), messages.receiver().unwrap());
            let (mut sent, mut received) = (0u8, 0u8);
            for round in 0..40 {
                while sender.try_send(&[sent]).is_ok() {
                    sent += 1;
                }
                assert_eq!((usize::from(sent - received), sender.len()), (most, most), "{round}");
                for _ in 0..=round % most.min(4) {
                    assert_eq!(receiver.try_receive().unwrap()[..], [received]);
                    received += 1;
                }
            }
        }
    }

    #[test]
    fn attempt_to_send_says_where_it_would_sleep() {
        let world = world_of_two();
        let messages = world.messages("m", &MessageSpec { capacity: 3, ..SPEC }).unwrap();
        let (sender, receiver) = (messages.sender().unwrap(), messages.receiver().unwrap());
        let attempt = |len: usize| sender.attempt_send(len, |to| to.fill(len as u8));
        assert!(matches!(attempt(1001), Attempt::Done(Err(TransferError::TooLong { most: 1000 }))));
        assert!(matches!([attempt(500), attempt(7)], [Attempt::Done(Ok(())), Attempt::Done(Ok(()))]));
        let held = receiver.receive().unwrap();
        assert_eq!(held[..], [500usize as u8; 500]);
        assert!(matches!(attempt(600), Attempt::Done(Ok(()))));
        // No buffer; then no room.
        assert!(matches!(attempt(600), Attempt::Asleep(_)));
        drop(held);
        assert!(matches!(attempt(8), Attempt::Done(Ok(()))));
        assert!(matches!([attempt(9), attempt(700)], [Attempt::Asleep(_), Attempt::Asleep(_)]));
        assert_eq!(world.pool("m-buffers", 1, 1).unwrap().free(), 1, "one waits in the queue");
        let all: Vec<_> = (0..3).map(|_| receiver.receive().unwrap().len()).collect();
        assert_eq!(all, [7, 600, 8]);
    }

    #[test]
    fn forged_messages_are_refused() {
        let world = world_of_two();
        let messages = world.messages("m", &SPEC).unwrap();
        let (sender, receiver) = (messages.sender().unwrap(), messages.receiver().unwrap());
        sender.send(&[0; 500]).unwrap();
        let (pool, held) = (messages.pool.tag(), receiver.receive().unwrap());
        let of = |len, pool, number| MessageSlot { len, pool, number, bytes: [0; SHORT] };
        for forged in [
            of(SHORT as u64 + 1, pool, NO_BUFFER),
            of(u64::MAX, pool, NO_BUFFER),
            of(1001, pool, 1),
            of(500, pool, 2),
            of(500, pool + 1, 1),
            of(500, pool, 0),
        ] {
            sender.joined.send(forged).unwrap();
            assert_eq!(receiver.try_receive().err(), Some(TransferError::Damaged));
        }
        assert_eq!(held[..], [0; 500]);
        drop(held);
        assert_eq!(messages.pool.free(), 2);
    }
}
