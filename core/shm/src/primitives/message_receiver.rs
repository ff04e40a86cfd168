//! Receivers of messages of any length, and the messages that they have received.

use core::ops::Deref;
use std::time::{Duration, Instant};

use towpath_derive::OpaqueDebug;
use towpath_sync::queues::{TransferError, ValueInPlace, ValueReceiver, Venue};
use towpath_sync::{Attempt, Deadline};

use super::message_slot::{MessageSlot, MessageVenue, NO_BUFFER, SHORT};
use super::pool::{BufferLease, PoolBuffer, WorldPool};

/// Receiver of messages.
#[derive(OpaqueDebug, Clone)]
pub struct MessageReceiver {
    pool: WorldPool,
    venue: MessageVenue,
    joined: ValueReceiver<MessageSlot, MessageVenue>,
}

impl MessageReceiver {
    pub(super) fn new(pool: WorldPool, venue: MessageVenue) -> Result<Self, TransferError> {
        Ok(MessageReceiver { pool, joined: ValueReceiver::new(venue.clone())?, venue })
    }

    /// Receives the oldest message, when there is one.
    ///
    /// # Errors
    ///
    /// As [`ValueReceiver::receive`]; [`TransferError::Damaged`] for one that no sender sent, which
    /// is gone then.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let letters = world.messages("letters", &Default::default())?;
    /// let (sender, receiver) = (letters.sender()?, letters.receiver()?);
    /// sender.send(b"short")?;
    /// let message = receiver.receive()?;
    /// assert_eq!(message.len(), 5);
    /// drop(message); // it is done with
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn receive(&self) -> Result<MessageGuard<'_>, TransferError> {
        self.read(self.joined.receive_in_place()?)
    }

    /// Receives the oldest message if there is one; never waits.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`] if there is none; as [`MessageReceiver::receive`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let receiver = world.messages("letters", &Default::default())?.receiver()?;
    /// assert!(receiver.try_receive().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_receive(&self) -> Result<MessageGuard<'_>, TransferError> {
        self.receive_timeout(Duration::ZERO)
    }

    /// Receives the oldest message; gives up after that time.
    ///
    /// # Errors
    ///
    /// As [`MessageReceiver::try_receive`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// let receiver = world.messages("letters", &Default::default())?.receiver()?;
    /// assert!(receiver.receive_timeout(Duration::from_millis(1)).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn receive_timeout(&self, time: Duration) -> Result<MessageGuard<'_>, TransferError> {
        self.read(self.joined.receive_in_place_timeout(time)?)
    }

    /// Receives the oldest message; gives up at that instant.
    ///
    /// # Errors
    ///
    /// As [`MessageReceiver::try_receive`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// let receiver = world.messages("letters", &Default::default())?.receiver()?;
    /// assert!(receiver.receive_until(Instant::now() + Duration::from_millis(1)).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn receive_until(&self, instant: Instant) -> Result<MessageGuard<'_>, TransferError> {
        self.receive_before(Deadline::at(instant))
    }

    /// Receives the oldest message; gives up at the deadline.
    ///
    /// # Errors
    ///
    /// As [`MessageReceiver::try_receive`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// use towpath::sync::Deadline;
    ///
    /// let receiver = world.messages("letters", &Default::default())?.receiver()?;
    /// assert!(receiver.receive_before(Deadline::PAST).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn receive_before(&self, deadline: Deadline) -> Result<MessageGuard<'_>, TransferError> {
        self.read(self.joined.in_place_before(deadline)?)
    }

    /// Receives the oldest message if there is one, or says where it would sleep.
    ///
    /// For event loops.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// use towpath::sync::Attempt;
    ///
    /// let letters = world.messages("letters", &Default::default())?;
    /// let (_sender, receiver) = (letters.sender()?, letters.receiver()?);
    /// assert!(matches!(receiver.attempt_receive(), Attempt::Asleep(..)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn attempt_receive(&self) -> Attempt<Result<MessageGuard<'_>, TransferError>> {
        self.joined.attempt_receive_in_place().map(|slot| self.read(slot?))
    }

    fn read<'a>(&'a self, slot: InSlot<'a>) -> Result<MessageGuard<'a>, TransferError> {
        let (len, pool, number) = (slot.len, slot.pool, slot.number);
        let len = usize::try_from(len).map_err(|_| TransferError::Damaged)?;
        if number == NO_BUFFER {
            return if len <= SHORT {
                Ok(MessageGuard { place: MessagePlace::InSlot(slot), len })
            } else {
                Err(TransferError::Damaged)
            };
        }
        if len > self.pool.buffer_bytes() || pool != self.pool.tag() {
            return Err(TransferError::Damaged);
        }
        let claimed = self.venue.call(|_, _, wait| Ok(self.pool.claim(wait, number)))?;
        let number = claimed.ok_or(TransferError::Damaged)?;
        let lease = Some(BufferLease::Message(slot.into_lease(), self.venue.queue.clone()));
        Ok(MessageGuard {
            place: MessagePlace::InBuffer(PoolBuffer { pool: self.pool.clone(), number, lease }),
            len,
        })
    }

    /// Number of messages that wait, about.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert_eq!(world.messages("letters", &Default::default())?.receiver()?.len(), 0);
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
    /// assert!(world.messages("letters", &Default::default())?.receiver()?.is_empty());
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
    /// let receiver = world.messages("letters", &Default::default())?.receiver()?;
    /// receiver.close();
    /// assert!(receiver.receive().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        self.joined.close();
    }
}

type InSlot<'a> = ValueInPlace<'a, MessageSlot, MessageVenue>;

/// Place of a message.
enum MessagePlace<'a> {
    InSlot(InSlot<'a>),
    InBuffer(PoolBuffer),
}

/// A message that was received, where it lies. Dropped, it is done with; if this process
/// dies before, it comes in again.
#[derive(OpaqueDebug)]
#[must_use = "the message is done with at once"]
pub struct MessageGuard<'a> {
    place: MessagePlace<'a>,
    len: usize,
}

impl MessageGuard<'_> {
    /// Gives the message back: it comes in again, behind those that wait.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let letters = world.messages("letters", &Default::default())?;
    /// let (sender, receiver) = (letters.sender()?, letters.receiver()?);
    /// sender.send(b"short")?;
    /// receiver.receive()?.give_back();
    /// assert_eq!(&receiver.receive()?[..], b"short");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn give_back(self) {
        match self.place {
            MessagePlace::InSlot(slot) => slot.give_back(),
            MessagePlace::InBuffer(buffer) => buffer.give_back(),
        }
    }
}

impl Deref for MessageGuard<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.place {
            MessagePlace::InSlot(slot) => &slot.bytes[..self.len],
            MessagePlace::InBuffer(buffer) => &buffer[..self.len],
        }
    }
}
