//! Writers and readers of broadcast rings.

use core::marker::PhantomData;
use core::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_machine::{Heap, Native};

use super::in_place::{MessageInPlace, RoomInPlace};
use super::{Broadcast, BroadcastHead, ReaderEnd, TransferError, WordLine, WriterEnd};
use crate::mutex::adaptive;
use crate::{Attempt, Deadline, Wait};

/// Mode of a ring: the treatment of slow readers.
pub trait BroadcastMode: Send + Sync + 'static {
    /// The name in a type's text.
    const NAME: &'static str;
    /// True if the writer overwrites messages that slow readers have not read.
    const LOSSY: bool;
}

/// Slow readers hold the writer back: all get every message.
#[derive(Clone, Copy, Debug)]
pub struct HoldsBack;

/// The writer never waits: slow readers are told how many messages they missed.
#[derive(Clone, Copy, Debug)]
pub struct Lossy;

impl BroadcastMode for HoldsBack {
    const NAME: &'static str = "broadcast";
    const LOSSY: bool = false;
}

impl BroadcastMode for Lossy {
    const NAME: &'static str = "lossy-broadcast";
    const LOSSY: bool = true;
}

/// Place of a ring, and its callers: threads of one process, or processes of a world.
///
/// # Safety
///
/// The ring that `act` is given stays where it is, and mapped, as long as the venue or a clone of
/// it lives.
#[allow(unsafe_code)]
pub unsafe trait BroadcastVenue: Clone {
    /// Mode of the ring.
    type Mode: BroadcastMode;

    /// Gives the ring, the caller, and its way of waiting.
    ///
    /// # Errors
    ///
    /// [`TransferError::NotEntered`].
    fn call<R>(
        &self,
        act: impl FnOnce(Broadcast<'_, Native>, &Native, &Wait<'_>) -> Result<R, TransferError>,
    ) -> Result<R, TransferError>;
}

/// A ring between threads.
#[allow(missing_debug_implementations, reason = "nothing to show")]
pub struct ThreadRing<M>(Arc<ThreadRingParts>, PhantomData<M>);

struct ThreadRingParts {
    head: BroadcastHead<Native>,
    ring: Box<[WordLine<Native>]>,
}

impl<M> Clone for ThreadRing<M> {
    fn clone(&self) -> Self {
        ThreadRing(self.0.clone(), PhantomData)
    }
}

#[allow(unsafe_code)]
// SAFETY: the ring is a box, which lives as long as the `Arc`.
unsafe impl<M: BroadcastMode> BroadcastVenue for ThreadRing<M> {
    type Mode = M;

    #[inline]
    fn call<R>(
        &self,
        act: impl FnOnce(Broadcast<'_, Native>, &Native, &Wait<'_>) -> Result<R, TransferError>,
    ) -> Result<R, TransferError> {
        act(Broadcast::of(&self.0.head, &self.0.ring, M::LOSSY), &Native::with_id(0), &adaptive())
    }
}

/// Makes a ring of at least so many bytes between threads, with its writer and a reader.
///
/// # Panics
///
/// If that is more than [`Broadcast::MOST`].
pub fn broadcast_between_threads<M: BroadcastMode>(
    bytes: usize,
) -> (BroadcastWriter<ThreadRing<M>>, BroadcastReader<ThreadRing<M>>) {
    let ring = WordLine::row(&Heap, Broadcast::<Native>::lines(bytes));
    let venue =
        ThreadRing(Arc::new(ThreadRingParts { head: BroadcastHead::in_arena(&Heap), ring }), PhantomData);
    let ends =
        BroadcastWriter::new(venue.clone()).and_then(|writer| Ok((writer, BroadcastReader::new(venue)?)));
    // A new ring has places.
    ends.unwrap_or_else(|error| panic!("{error}"))
}

/// The writer of a ring.
#[allow(missing_debug_implementations, reason = "nothing to show")]
pub struct BroadcastWriter<V: BroadcastVenue> {
    pub(super) venue: V,
    pub(super) end: WriterEnd,
}

impl<V: BroadcastVenue> BroadcastWriter<V> {
    /// Makes the writer: for the rooms that lend rings to processes.
    ///
    /// # Errors
    ///
    /// [`TransferError::NotEntered`], [`TransferError::Taken`].
    pub fn new(venue: V) -> Result<Self, TransferError> {
        let end = venue.call(|ring, cpu, wait| ring.join_writer(cpu, wait))?;
        Ok(BroadcastWriter { venue, end })
    }

    /// Sends a message to all readers that are there, when there is room for it. One that
    /// is longer than half of the ring travels in pieces.
    ///
    /// # Errors
    ///
    /// [`TransferError::Closed`]; [`TransferError::TooLong`] of a lossy ring.
    #[inline]
    pub fn send(&mut self, message: &[u8]) -> Result<(), TransferError> {
        self.send_before(message, Deadline::NEVER)
    }

    /// Sends a message if there is room for it; never waits. A lossy ring has room.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`] if there is none, or not for all pieces: then no reader gets the
    /// message. As [`BroadcastWriter::send`].
    #[inline]
    pub fn try_send(&mut self, message: &[u8]) -> Result<(), TransferError> {
        self.send_before(message, Deadline::PAST)
    }

    /// Sends a message; gives up after that time.
    ///
    /// # Errors
    ///
    /// As [`BroadcastWriter::try_send`].
    pub fn send_timeout(&mut self, message: &[u8], time: Duration) -> Result<(), TransferError> {
        self.send_before(message, Deadline::within(time))
    }

    /// Sends a message; gives up at that instant.
    ///
    /// # Errors
    ///
    /// As [`BroadcastWriter::try_send`].
    pub fn send_until(&mut self, message: &[u8], instant: Instant) -> Result<(), TransferError> {
        self.send_before(message, Deadline::at(instant))
    }

    #[inline]
    fn send_before(&mut self, message: &[u8], deadline: Deadline) -> Result<(), TransferError> {
        let BroadcastWriter { venue, end } = self;
        venue.call(|ring, cpu, wait| ring.send(cpu, wait, end, message, deadline))
    }

    /// Asks the kernel which readers live, and drops the dead ones: returns
    /// [`TransferError::PeerDied`] for one that it has not returned yet.
    ///
    /// A dead reader is dropped, too, when the writer waits for room.
    pub fn lost_reader(&mut self) -> Option<TransferError> {
        self.venue.call(|ring, cpu, wait| Ok(ring.lost_reader(cpu, wait))).unwrap_or(None)
    }

    /// Number of readers; one that died counts until it is dropped.
    pub fn readers(&self) -> usize {
        self.venue.call(|ring, cpu, _| Ok(ring.readers(cpu))).unwrap_or(0)
    }

    /// Maximum number of bytes of a message that travels in one piece.
    pub fn most_whole(&self) -> usize {
        self.venue.call(|ring, _, _| Ok(ring.most_whole())).unwrap_or(0)
    }
}

impl<V: BroadcastVenue<Mode = HoldsBack>> BroadcastWriter<V> {
    /// Room for a message of so many bytes, to be written in place, when there is some.
    ///
    /// # Errors
    ///
    /// [`TransferError::TooLong`] if that is more than [`BroadcastWriter::most_whole`];
    /// [`TransferError::Closed`].
    pub fn reserve(&mut self, bytes: usize) -> Result<RoomInPlace<'_, V>, TransferError> {
        RoomInPlace::new(self, bytes, Deadline::NEVER)
    }

    /// Room to be written in place; gives up after that time.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; as [`BroadcastWriter::reserve`].
    pub fn reserve_timeout(
        &mut self,
        bytes: usize,
        time: Duration,
    ) -> Result<RoomInPlace<'_, V>, TransferError> {
        RoomInPlace::new(self, bytes, Deadline::within(time))
    }
}

impl<V: BroadcastVenue> Drop for BroadcastWriter<V> {
    fn drop(&mut self) {
        let left = self.venue.call(|ring, cpu, wait| {
            ring.leave_writer(cpu, wait);
            Ok(())
        });
        // A process that is not in the world any more is not at the ring either.
        let _ = left;
    }
}

/// A message that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BroadcastMessage<'a> {
    bytes: &'a [u8],
    missed: u64,
}

impl BroadcastMessage<'_> {
    /// Number of messages that the reader missed before this one: 0 where slow readers
    /// hold the writer back.
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
#[allow(missing_debug_implementations, reason = "nothing to show")]
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
    #[inline]
    pub fn receive(&mut self) -> Result<BroadcastMessage<'_>, TransferError> {
        self.receive_before(Deadline::NEVER)
    }

    /// Receives the next message if there is one; never waits.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`] if there is none; as [`BroadcastReader::receive`].
    #[inline]
    pub fn try_receive(&mut self) -> Result<BroadcastMessage<'_>, TransferError> {
        self.receive_before(Deadline::PAST)
    }

    /// Receives the next message; gives up after that time.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; as [`BroadcastReader::receive`].
    pub fn receive_timeout(&mut self, time: Duration) -> Result<BroadcastMessage<'_>, TransferError> {
        self.receive_before(Deadline::within(time))
    }

    /// Receives the next message; gives up at that instant.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; as [`BroadcastReader::receive`].
    pub fn receive_until(&mut self, instant: Instant) -> Result<BroadcastMessage<'_>, TransferError> {
        self.receive_before(Deadline::at(instant))
    }

    #[inline]
    fn receive_before(&mut self, deadline: Deadline) -> Result<BroadcastMessage<'_>, TransferError> {
        let BroadcastReader { venue, end, message } = self;
        let missed = venue.call(|ring, cpu, wait| ring.receive(cpu, wait, end, message, deadline))?;
        Ok(BroadcastMessage { bytes: message, missed })
    }

    /// Receives the next message if there is one, and returns how many the reader missed
    /// before it; otherwise says where it would sleep until there is one: for event loops.
    /// [`BroadcastReader::last`] has the message.
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
    pub fn last(&self, missed: u64) -> BroadcastMessage<'_> {
        BroadcastMessage { bytes: &self.message, missed }
    }

    /// Bytes of the last message, as long as the reader is not used otherwise.
    pub fn bytes(&self) -> &[u8] {
        &self.message
    }

    /// Receives the next message, when there is one, and those that are there behind it,
    /// up to so many: the writer is told once of all of them. Returns their number.
    ///
    /// # Errors
    ///
    /// As [`BroadcastReader::receive`].
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
    pub fn receive_batch_timeout(
        &mut self,
        most: usize,
        time: Duration,
        each: impl FnMut(BroadcastMessage<'_>),
    ) -> Result<usize, TransferError> {
        self.batch_before(most, Deadline::within(time), each)
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
    pub fn receive_in_place(&mut self) -> Result<MessageInPlace<'_, V>, TransferError> {
        MessageInPlace::new(self, Deadline::NEVER)
    }

    /// Receives in place; gives up after that time.
    ///
    /// # Errors
    ///
    /// As [`BroadcastReader::receive_timeout`].
    pub fn receive_in_place_timeout(
        &mut self,
        time: Duration,
    ) -> Result<MessageInPlace<'_, V>, TransferError> {
        MessageInPlace::new(self, Deadline::within(time))
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

macro_rules! either {
    ($($handle:ident)*) => {$(
        impl<V: BroadcastVenue> $handle<V> {
            /// Makes one more reader, which gets the messages that are sent from now on.
            ///
            /// # Errors
            ///
            /// [`TransferError::NotEntered`], [`TransferError::Capacity`].
            pub fn reader(&self) -> Result<BroadcastReader<V>, TransferError> {
                BroadcastReader::new(self.venue.clone())
            }

            /// Closes the ring: the writer is refused, readers get the messages sent
            /// before.
            pub fn close(&self) {
                let closed = self.venue.call(|ring, cpu, wait| {
                    ring.close(cpu, wait);
                    Ok(())
                });
                // A process outside the world closes nothing.
                let _ = closed;
            }
        }
    )*};
}

either!(BroadcastWriter BroadcastReader);
