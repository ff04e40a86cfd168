//! Messages that are written where they lie, in a buffer of their queue.

use core::ops::{Deref, DerefMut};
use core::time::Duration;

use towpath_derive::OpaqueDebug;
use towpath_sync::Deadline;
use towpath_sync::queues::TransferError;

use super::messages::MessageSender;
use super::pool::PoolBuffer;

/// A buffer of a queue, to be filled with a message in place. Dropped, nothing is sent.
///
/// At first it has any bytes.
#[derive(OpaqueDebug)]
#[must_use = "nothing is sent unless `send_timeout` is called"]
pub struct ReservedMessage<'a> {
    sender: &'a MessageSender,
    buffer: PoolBuffer,
}

impl ReservedMessage<'_> {
    /// Sends the first `len` bytes; gives up after that time.
    ///
    /// It may be called again then.
    ///
    /// # Errors
    ///
    /// [`TransferError::TooLong`]; as [`MessageSender::send_timeout`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// let letters = world.messages("letters", &Default::default())?;
    /// let (sender, receiver) = (letters.sender()?, letters.receiver()?);
    /// let mut message = sender.reserve_timeout(Duration::from_secs(1))?;
    /// message[..3].copy_from_slice(b"abc");
    /// message.send_timeout(3, Duration::from_secs(1))?;
    /// assert_eq!(&receiver.receive()?[..], b"abc");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn send_timeout(&mut self, len: usize, time: Duration) -> Result<(), TransferError> {
        let most = self.buffer.len();
        if len > most {
            return Err(TransferError::TooLong { most });
        }
        self.sender.send_buffer(&mut self.buffer, len, Deadline::within(time))
    }
}

impl Deref for ReservedMessage<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buffer
    }
}

impl DerefMut for ReservedMessage<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buffer
    }
}

impl MessageSender {
    /// Takes a buffer for a message, to be written in place; gives up after that time.
    ///
    /// A process that dies with it has sent nothing.
    ///
    /// # Errors
    ///
    /// As [`WorldPool::take_timeout`](crate::WorldPool::take_timeout).
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// let sender = world.messages("letters", &Default::default())?.sender()?;
    /// let message = sender.reserve_timeout(Duration::from_secs(1))?;
    /// assert_eq!(message.len(), 4 << 10); // a whole buffer
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve_timeout(&self, time: Duration) -> Result<ReservedMessage<'_>, TransferError> {
        Ok(ReservedMessage { sender: self, buffer: self.pool.take_timeout(time)? })
    }
}

#[cfg(test)]
mod tests {
    use towpath_sync::Attempt;

    use super::*;
    use crate::MessageSpec;
    use crate::primitives::world_of_two;

    #[test]
    fn message_written_in_place_is_sent_whole_or_not() {
        let world = world_of_two();
        let messages =
            world.messages("m", &MessageSpec { capacity: 4, buffers: 2, buffer_bytes: 1000 }).unwrap();
        let (sender, receiver) = (messages.sender().unwrap(), messages.receiver().unwrap());
        assert!(matches!(receiver.attempt_receive(), Attempt::Asleep(_)));
        let time = Duration::from_millis(1);
        let mut space = sender.reserve_timeout(time).unwrap();
        assert_eq!(space.send_timeout(1001, time), Err(TransferError::TooLong { most: 1000 }));
        space[..500].fill(7);
        space.send_timeout(500, time).unwrap();
        assert!(space.send_timeout(500, time).is_err(), "it is the receiver's");
        drop(space);
        let Attempt::Done(Ok(received)) = receiver.attempt_receive() else { panic!("a message waits") };
        assert_eq!(received[..], [7; 500]);
        drop(received);
        drop(sender.reserve_timeout(time).unwrap());
        assert!(receiver.is_empty());
        assert_eq!(world.pool("m-buffers", 1, 1).unwrap().free(), 2);
    }
}
