//! Broadcast rings between threads, and writers of rings.

use core::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_derive::OpaqueDebug;
use towpath_machine::{Heap, Native};

use super::broadcast_reader::BroadcastReader;
use super::in_place::RoomInPlace;
use super::kinds::CALLER;
use super::{Broadcast, BroadcastHead, TransferError, WordLine, WriterEnd};
use crate::mutex::adaptive;
use crate::{Deadline, LateWait, OwnThreads, Wait, Waiting};

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
    /// Way of waiting that is made by those that wait.
    type Late: Waiting<Native>;

    /// The ring, and a way of waiting for calls that seldom wait.
    ///
    /// # Errors
    ///
    /// As [`BroadcastVenue::call`].
    fn late(&self) -> Result<(Broadcast<'_, Native>, &Self::Late), TransferError>;

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
#[derive(OpaqueDebug)]
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
    type Late = LateWait<OwnThreads>;

    #[inline(always)]
    fn late(&self) -> Result<(Broadcast<'_, Native>, &LateWait<OwnThreads>), TransferError> {
        Ok((Broadcast::of(&self.0.head, &self.0.ring, M::LOSSY), LateWait::of(&OwnThreads)))
    }

    #[inline]
    fn call<R>(
        &self,
        act: impl FnOnce(Broadcast<'_, Native>, &Native, &Wait<'_>) -> Result<R, TransferError>,
    ) -> Result<R, TransferError> {
        act(self.late()?.0, CALLER, &adaptive())
    }
}

/// Makes a ring of at least so many bytes between threads, with its writer and a reader.
///
/// # Panics
///
/// If that is more than [`Broadcast::MOST`].
///
/// ```
/// use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
///
/// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(4096); // broadcast::ring
/// std::thread::scope(|scope| {
///     scope.spawn(move || writer.send(b"abc"));
///     assert_eq!(*reader.receive()?, *b"abc");
///     Ok::<(), TransferError>(())
/// })?;
/// # Ok::<(), TransferError>(())
/// ```
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
#[derive(OpaqueDebug)]
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
    ///
    /// ```
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// writer.send(b"abc")?;
    /// assert_eq!(*reader.receive()?, *b"abc");
    /// # Ok::<(), TransferError>(())
    /// ```
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
    ///
    /// ```
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// while writer.try_send(&[7; 64]).is_ok() {}
    /// assert_eq!(writer.try_send(&[7; 64]), Err(TransferError::TimedOut)); // the reader is slow
    /// # reader.receive()?;
    /// # Ok::<(), TransferError>(())
    /// ```
    #[inline]
    pub fn try_send(&mut self, message: &[u8]) -> Result<(), TransferError> {
        self.send_before(message, Deadline::PAST)
    }

    /// Sends a message; gives up after that time.
    ///
    /// # Errors
    ///
    /// As [`BroadcastWriter::try_send`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// writer.send_timeout(b"abc", Duration::from_secs(1))?;
    /// assert_eq!(*reader.receive()?, *b"abc");
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn send_timeout(&mut self, message: &[u8], time: Duration) -> Result<(), TransferError> {
        self.send_before(message, Deadline::within(time))
    }

    /// Sends a message; gives up at that instant.
    ///
    /// # Errors
    ///
    /// As [`BroadcastWriter::try_send`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// let end = Instant::now() + Duration::from_secs(1);
    /// writer.send_until(b"abc", end)?;
    /// assert_eq!(*reader.receive()?, *b"abc");
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn send_until(&mut self, message: &[u8], instant: Instant) -> Result<(), TransferError> {
        self.send_before(message, Deadline::at(instant))
    }

    /// Sends the rest of a message, behind the first `sent` bytes, and counts there.
    ///
    /// It gives up after that time, as [`BroadcastWriter::send_timeout`].
    ///
    /// For callers that look at something else now and then while a long message waits for room:
    /// each call goes on where the last one gave up.
    ///
    /// # Errors
    ///
    /// As [`BroadcastWriter::send`]. [`TransferError::TimedOut`]: the rest may be sent by another
    /// call. If another message is sent first, or this one from its beginning, readers throw away
    /// what was sent of it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// let (message, mut sent) = ([7; 1 << 20], 0);
    /// std::thread::scope(|scope| {
    ///     let reader = scope.spawn(|| reader.receive().map(|message| message.len()));
    ///     let turn = Duration::from_micros(50);
    ///     while let Err(error) = writer.send_rest(&message, &mut sent, turn) {
    ///         assert_eq!(error, TransferError::TimedOut); // look at something else
    ///     }
    ///     assert_eq!(reader.join().unwrap(), Ok(1 << 20));
    /// });
    /// ```
    pub fn send_rest(
        &mut self,
        message: &[u8],
        sent: &mut usize,
        time: Duration,
    ) -> Result<(), TransferError> {
        let (BroadcastWriter { venue, end }, deadline) = (self, Deadline::within(time));
        venue.call(|ring, cpu, wait| ring.send_rest(cpu, wait, end, message, sent, deadline))
    }

    /// Sends a message; gives up at the deadline.
    ///
    /// # Errors
    ///
    /// As [`BroadcastWriter::try_send`].
    ///
    /// ```
    /// # use towpath_sync::Deadline;
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// writer.send_before(b"abc", Deadline::NEVER)?;
    /// assert_eq!(*reader.receive_before(Deadline::PAST)?, *b"abc");
    /// # Ok::<(), TransferError>(())
    /// ```
    #[inline]
    pub fn send_before(&mut self, message: &[u8], deadline: Deadline) -> Result<(), TransferError> {
        let (ring, wait) = self.venue.late()?;
        ring.send(CALLER, wait, &mut self.end, message, deadline)
    }

    /// Asks the kernel which readers live, and drops the dead ones: returns
    /// [`TransferError::PeerDied`] for one that it has not returned yet.
    ///
    /// A dead reader is dropped, too, when the writer waits for room.
    ///
    /// ```
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// assert_eq!(writer.lost_reader(), None);
    /// # reader.try_receive().unwrap_err();
    /// ```
    pub fn lost_reader(&mut self) -> Option<TransferError> {
        self.venue.call(|ring, cpu, wait| Ok(ring.lost_reader(cpu, wait))).unwrap_or(None)
    }

    /// Number of readers; one that died counts until it is dropped.
    ///
    /// ```
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// assert_eq!(writer.readers(), 1);
    /// let second = writer.reader()?;
    /// assert_eq!(writer.readers(), 2);
    /// # drop(second); reader.try_receive().unwrap_err(); writer.try_send(&[])?;
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn readers(&self) -> usize {
        self.venue.call(|ring, cpu, _| Ok(ring.readers(cpu))).unwrap_or(0)
    }

    /// Maximum number of bytes of a message that travels in one piece.
    ///
    /// ```
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// assert!(writer.reserve(writer.most_whole() + 1).is_err());
    /// # reader.try_receive().unwrap_err();
    /// ```
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
    ///
    /// ```
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// let mut room = writer.reserve(3)?;
    /// room.copy_from_slice(b"abc");
    /// room.commit(3)?;
    /// assert_eq!(*reader.receive()?, *b"abc");
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn reserve(&mut self, bytes: usize) -> Result<RoomInPlace<'_, V>, TransferError> {
        RoomInPlace::new(self, bytes, Deadline::NEVER)
    }

    /// Room to be written in place; gives up after that time.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; as [`BroadcastWriter::reserve`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// let room = writer.reserve_timeout(3, Duration::from_secs(1))?;
    /// drop(room); // nothing is sent
    /// assert!(reader.try_receive().is_err());
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn reserve_timeout(
        &mut self,
        bytes: usize,
        time: Duration,
    ) -> Result<RoomInPlace<'_, V>, TransferError> {
        RoomInPlace::new(self, bytes, Deadline::within(time))
    }

    /// Room to be written in place; gives up at that instant.
    ///
    /// # Errors
    ///
    /// As [`BroadcastWriter::reserve_timeout`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
    /// let (mut writer, _reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
    /// let soon = Instant::now() + Duration::from_millis(1);
    /// writer.reserve_until(3, soon)?.commit(3)?;
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn reserve_until(
        &mut self,
        bytes: usize,
        instant: Instant,
    ) -> Result<RoomInPlace<'_, V>, TransferError> {
        RoomInPlace::new(self, bytes, Deadline::at(instant))
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

macro_rules! either {
    ($($handle:ident)*) => {$(
        impl<V: BroadcastVenue> $handle<V> {
            /// Makes one more reader, which gets the messages that are sent from now on.
            ///
            /// # Errors
            ///
            /// [`TransferError::NotEntered`], [`TransferError::Capacity`].
            ///
            /// ```
            /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
            /// let (mut writer, first) = broadcast_between_threads::<HoldsBack>(1 << 10);
            /// writer.send(b"early")?;
            /// let mut second = first.reader()?; // or writer.reader()
            /// writer.send(b"late")?;
            /// assert_eq!(*second.receive()?, *b"late");
            /// # Ok::<(), TransferError>(())
            /// ```
            pub fn reader(&self) -> Result<BroadcastReader<V>, TransferError> {
                BroadcastReader::new(self.venue.clone())
            }

            /// Closes the ring: the writer is refused, readers get the messages sent
            /// before.
            ///
            /// ```
            /// # use towpath_sync::queues::{HoldsBack, TransferError, broadcast_between_threads};
            /// let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1 << 10);
            /// writer.send(b"abc")?;
            /// reader.close(); // either end may
            /// assert_eq!(writer.send(b"def"), Err(TransferError::Closed));
            /// assert_eq!(*reader.receive()?, *b"abc");
            /// assert_eq!(reader.receive().err(), Some(TransferError::Closed));
            /// # Ok::<(), TransferError>(())
            /// ```
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
