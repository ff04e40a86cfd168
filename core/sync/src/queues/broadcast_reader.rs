//! Readers of broadcast rings.

use core::ops::Deref;
use std::time::{Duration, Instant};

use towpath_derive::OpaqueDebug;

use super::broadcast_handles::{BroadcastVenue, HoldsBack};
use super::in_place::MessageInPlace;
use super::kinds::CALLER;
use super::{ReaderEnd, TransferError};
use crate::{Attempt, Deadline};

/// A message that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BroadcastMessage<'a> {
    bytes: &'a [u8],
    missed: u64,
}

impl BroadcastMessage<'_> {
    /// Number of messages that the reader missed before this one: 0 where slow readers
    /// hold the writer back.
    ///
    /// ```
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// writer.send(b"abc")?;
    /// assert_eq!(reader.receive()?.missed(), 0); // a lossy ring may say more
    /// # Ok::<(), TransferError>(())
    /// ```
    pub const fn missed(&self) -> u64 {
        self.missed
    }
}

impl Deref for BroadcastMessage<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

/// A reader of a ring: gets the messages that are sent after it came.
#[derive(OpaqueDebug)]
pub struct BroadcastReader<V: BroadcastVenue> {
    pub(super) venue: V,
    pub(super) end: ReaderEnd,
    /// The last message, or the first pieces of the next one.
    pub(super) message: Vec<u8>,
}

impl<V: BroadcastVenue> BroadcastReader<V> {
    /// Makes a reader: for the rooms that lend rings to processes.
    ///
    /// # Errors
    ///
    /// [`TransferError::NotEntered`], [`TransferError::Capacity`].
    pub fn new(venue: V) -> Result<Self, TransferError> {
        let end = venue.call(|ring, cpu, wait| ring.join_reader(cpu, wait))?;
        Ok(BroadcastReader { venue, end, message: Vec::new() })
    }

    /// Receives the next message, when there is one.
    ///
    /// # Errors
    ///
    /// After all that was sent: [`TransferError::Closed`]; [`TransferError::Disconnected`] or
    /// [`TransferError::PeerDied`] if the writer has gone.
    ///
    /// ```
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// writer.send(b"abc")?;
    /// drop(writer);
    /// assert_eq!(*reader.receive()?, *b"abc");
    /// assert_eq!(reader.receive().unwrap_err(), TransferError::Disconnected);
    /// # Ok::<(), TransferError>(())
    /// ```
    #[inline]
    pub fn receive(&mut self) -> Result<BroadcastMessage<'_>, TransferError> {
        self.receive_before(Deadline::NEVER)
    }

    /// Receives the next message if there is one; never waits.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`] if there is none; as [`BroadcastReader::receive`].
    ///
    /// ```
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// assert_eq!(reader.try_receive().unwrap_err(), TransferError::TimedOut);
    /// # writer.send(b"")?;
    /// # Ok::<(), TransferError>(())
    /// ```
    #[inline]
    pub fn try_receive(&mut self) -> Result<BroadcastMessage<'_>, TransferError> {
        self.receive_before(Deadline::PAST)
    }

    /// Receives the next message; gives up after that time.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; as [`BroadcastReader::receive`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// writer.send(b"abc")?;
    /// assert_eq!(*reader.receive_timeout(Duration::from_secs(1))?, *b"abc");
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn receive_timeout(&mut self, time: Duration) -> Result<BroadcastMessage<'_>, TransferError> {
        self.receive_before(Deadline::within(time))
    }

    /// Receives the next message; gives up at that instant.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; as [`BroadcastReader::receive`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// let end = Instant::now() + Duration::from_millis(1);
    /// assert_eq!(reader.receive_until(end).unwrap_err(), TransferError::TimedOut);
    /// # writer.send(b"")?;
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn receive_until(&mut self, instant: Instant) -> Result<BroadcastMessage<'_>, TransferError> {
        self.receive_before(Deadline::at(instant))
    }

    /// Receives the next message; gives up at the deadline.
    ///
    /// # Errors
    ///
    /// As [`BroadcastReader::receive_timeout`].
    ///
    /// ```
    /// # use towpath_sync::Deadline;
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// let none = reader.receive_before(Deadline::PAST);
    /// assert_eq!(none.unwrap_err(), TransferError::TimedOut);
    /// # writer.send(b"")?;
    /// # Ok::<(), TransferError>(())
    /// ```
    #[inline]
    pub fn receive_before(&mut self, deadline: Deadline) -> Result<BroadcastMessage<'_>, TransferError> {
        let BroadcastReader { venue, end, message } = self;
        let (ring, wait) = venue.late()?;
        let missed = ring.receive(CALLER, wait, end, message, deadline)?;
        Ok(BroadcastMessage { bytes: message, missed })
    }

    /// Receives the next message if there is one, and returns how many the reader missed
    /// before it; otherwise says where it would sleep until there is one: for event loops.
    /// [`BroadcastReader::last`] has the message.
    ///
    /// ```
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// use towpath_sync::Attempt;
    ///
    /// writer.send(b"abc")?;
    /// assert!(matches!(reader.attempt_receive(), Attempt::Done(Ok(0))));
    /// assert_eq!(reader.bytes(), b"abc");
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn attempt_receive(&mut self) -> Attempt<Result<u64, TransferError>> {
        let BroadcastReader { venue, end, message } = self;
        venue
            .call(|ring, cpu, wait| {
                Ok(Attempt::of(wait, TransferError::is_timeout, |wait, turn| {
                    ring.receive(cpu, wait, end, message, turn)
                }))
            })
            .unwrap_or_else(|error| Attempt::Done(Err(error)))
    }

    /// The message that [`BroadcastReader::attempt_receive`] received last, before which
    /// the reader missed so many.
    ///
    /// ```
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// use towpath_sync::Attempt;
    ///
    /// writer.send(b"abc")?;
    /// if let Attempt::Done(missed) = reader.attempt_receive() {
    ///     assert_eq!(*reader.last(missed?), *b"abc");
    /// }
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn last(&self, missed: u64) -> BroadcastMessage<'_> {
        BroadcastMessage { bytes: &self.message, missed }
    }

    /// Bytes of the last message, as long as the reader is not used otherwise.
    ///
    /// ```
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// writer.send(b"abc")?;
    /// reader.receive()?;
    /// assert_eq!(reader.bytes(), b"abc");
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn bytes(&self) -> &[u8] {
        &self.message
    }

    /// Receives the next message, when there is one, and those that are there behind it,
    /// up to so many: the writer is told once of all of them. Returns their number.
    ///
    /// # Errors
    ///
    /// As [`BroadcastReader::receive`].
    ///
    /// ```
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// writer.send(b"abc")?;
    /// writer.send(b"de")?;
    /// let mut bytes = 0;
    /// assert_eq!(reader.receive_batch(16, |message| bytes += message.len())?, 2);
    /// assert_eq!(bytes, 5);
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn receive_batch(
        &mut self,
        most: usize,
        each: impl FnMut(BroadcastMessage<'_>),
    ) -> Result<usize, TransferError> {
        self.batch_before(most, Deadline::NEVER, each)
    }

    /// Receives a batch; gives up after that time.
    ///
    /// # Errors
    ///
    /// As [`BroadcastReader::receive_timeout`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// writer.send(b"abc")?;
    /// let number = reader.receive_batch_timeout(16, Duration::from_secs(1), |_| ())?;
    /// assert_eq!(number, 1);
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn receive_batch_timeout(
        &mut self,
        most: usize,
        time: Duration,
        each: impl FnMut(BroadcastMessage<'_>),
    ) -> Result<usize, TransferError> {
        self.batch_before(most, Deadline::within(time), each)
    }

    /// Receives a batch; gives up at that instant.
    ///
    /// # Errors
    ///
    /// As [`BroadcastReader::receive_until`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// let soon = Instant::now() + Duration::from_millis(1);
    /// writer.send(b"abc")?;
    /// assert_eq!(reader.receive_batch_until(16, soon, |_| ())?, 1);
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn receive_batch_until(
        &mut self,
        most: usize,
        instant: Instant,
        each: impl FnMut(BroadcastMessage<'_>),
    ) -> Result<usize, TransferError> {
        self.batch_before(most, Deadline::at(instant), each)
    }

    fn batch_before(
        &mut self,
        most: usize,
        deadline: Deadline,
        mut each: impl FnMut(BroadcastMessage<'_>),
    ) -> Result<usize, TransferError> {
        let BroadcastReader { venue, end, message } = self;
        venue.call(|ring, cpu, wait| {
            let mut number = 0;
            while number < most.max(1) {
                let deadline = if number == 0 { deadline } else { Deadline::PAST };
                if number > 0 && !ring.is_ready(cpu, end) {
                    break;
                }
                match ring.gather(cpu, wait, end, message, deadline) {
                    Ok(missed) => each(BroadcastMessage { bytes: message, missed }),
                    Err(error) if number == 0 => return Err(error),
                    // The next call finds it.
                    Err(_) => break,
                }
                number += 1;
            }
            ring.progress(cpu, wait, end);
            Ok(number)
        })
    }
}

impl<V: BroadcastVenue<Mode = HoldsBack>> BroadcastReader<V> {
    /// Receives the next message, when there is one, and leaves it where it lies until
    /// the guard is dropped. One that came in pieces was put together beside the ring.
    ///
    /// # Errors
    ///
    /// As [`BroadcastReader::receive`].
    ///
    /// ```
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// writer.send(b"abc")?;
    /// let message = reader.receive_in_place()?;
    /// assert_eq!(message[0], b'a');
    /// drop(message); // the writer may use the room again
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn receive_in_place(&mut self) -> Result<MessageInPlace<'_, V>, TransferError> {
        MessageInPlace::new(self, Deadline::NEVER)
    }

    /// Receives in place; gives up after that time.
    ///
    /// # Errors
    ///
    /// As [`BroadcastReader::receive_timeout`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// writer.send(b"abc")?;
    /// assert_eq!(reader.receive_in_place_timeout(Duration::from_secs(1))?.len(), 3);
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn receive_in_place_timeout(
        &mut self,
        time: Duration,
    ) -> Result<MessageInPlace<'_, V>, TransferError> {
        MessageInPlace::new(self, Deadline::within(time))
    }

    /// Receives in place; gives up at that instant.
    ///
    /// # Errors
    ///
    /// As [`BroadcastReader::receive_until`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// let soon = Instant::now() + Duration::from_millis(1);
    /// writer.send(b"abc")?;
    /// assert_eq!(reader.receive_in_place_until(soon)?.len(), 3);
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn receive_in_place_until(
        &mut self,
        instant: Instant,
    ) -> Result<MessageInPlace<'_, V>, TransferError> {
        MessageInPlace::new(self, Deadline::at(instant))
    }
}

impl<V: BroadcastVenue> Drop for BroadcastReader<V> {
    fn drop(&mut self) {
        let left = self.venue.call(|ring, cpu, wait| {
            ring.leave_reader(cpu, wait, &self.end);
            Ok(())
        });
        // A process that is not in the world any more is not at the ring either.
        let _ = left;
    }
}
