//! Bounded queues of values, between threads and processes, that survive the deaths of
//! their users: one algorithm, one file.

mod broadcast;
mod broadcast_handles;
mod broadcast_reader;
mod cells;
mod complete_into;
mod error;
mod gathering;
mod handles;
mod in_place;
mod kinds;
mod leases;
mod many_to_many;
mod members;
mod one_to_one;
mod owned;
mod plain;
mod positions;
mod queue_doorbell;
mod ring_per_sender;
mod value;
mod value_in_place;
mod words;

use towpath_machine::{Plain, Processor};

pub use broadcast::{Broadcast, BroadcastHead, ReaderEnd, Reservation, RingPiece, WriterEnd};
pub use broadcast_handles::{
    BroadcastMode, BroadcastVenue, BroadcastWriter, HoldsBack, Lossy, ThreadRing, broadcast_between_threads,
};
pub use broadcast_reader::{BroadcastMessage, BroadcastReader};
pub use cells::CellQueue;
pub use complete_into::LinkedWords;
pub use error::{TransferError, Unsent};
pub use handles::{ReceivedValues, ValueReceiver, ValueSender, between_threads};
pub use in_place::{MessageInPlace, RoomInPlace};
pub use kinds::{
    CALLER, Leasing, MakerNote, Mpmc, Mpsc, PerSender, QueueKind, QueueOf, SharedReceivers, SharedSenders,
    Spsc, Threads, Venue,
};
pub use leases::ValueLease;
pub use many_to_many::{Leased, ManyHead, ManyToMany, Reserved};
pub use members::{Members, QueueSide};
pub use one_to_one::{OneHead, OneToOne};
pub use owned::{OwnedReceiver, OwnedSender, OwnedValues, owned_between_threads};
pub use plain::{BroadcastObject, QueueObject, queue_text};
pub use ring_per_sender::{RINGS, RingPerSender, RingsHead};
pub use value::{BytesAt, BytesInto, ReceivedShape, SentWords, WordsAt, WordsInto};
pub use value_in_place::{SlotInPlace, ValueInPlace};
pub use words::WordLine;
use words::{all_words, word_at};

use crate::{Deadline, Waiting};

/// A bounded queue of values.
///
/// `queue` in the examples has room for four numbers; a sender and a receiver have joined it
/// (`doc/queues.rs`).
pub trait BoundedQueue<P: Processor>: Copy {
    /// Place of an end in the queue, where it has one.
    type Seat: Copy;

    /// Enters the calling process on a side, once more. Returns the place of the new end.
    ///
    /// # Errors
    ///
    /// [`TransferError::Capacity`]; [`TransferError::Taken`] where there may be one only.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// // one more sender of this process
    /// let late = queue.join(&cpu, &Spinning, QueueSide::Sender);
    /// assert!(late.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    fn join<W: Waiting<P>>(&self, cpu: &P, wait: &W, side: QueueSide) -> Result<Self::Seat, TransferError>;

    /// The queue, as the sender at that place uses it.
    ///
    /// Where each sender has a ring of its own, the seat says which:
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// let seat = queue.join(&cpu, &Spinning, QueueSide::Sender)?;
    /// queue.at(seat).send(&cpu, &Spinning, &7u64, Deadline::NEVER)?;
    /// assert_eq!(queue.len(&cpu), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    fn at(self, _seat: Self::Seat) -> Self {
        self
    }

    /// Sends a value, when there is room for it.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; [`TransferError::Closed`]; [`TransferError::Disconnected`] and
    /// [`TransferError::PeerDied`] if the last receiver has gone, as soon as the sender waits, and
    /// at once if it went in good order.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// for n in 0..4u64 {
    ///     queue.send(&cpu, &Spinning, &n, Deadline::NEVER)?;
    /// }
    /// let full = queue.send(&cpu, &Spinning, &4u64, Deadline::PAST);
    /// assert_eq!(full, Err(TransferError::TimedOut));
    /// # Ok(())
    /// # }
    /// ```
    fn send<T: SentWords, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        value: &T,
        deadline: Deadline,
    ) -> Result<(), TransferError>;

    /// Receives the oldest value, when there is one.
    ///
    /// # Errors
    ///
    /// [`TransferError::TimedOut`]; and, after all that was sent, and all that other processes have
    /// under leases, [`TransferError::Closed`], or
    /// [`TransferError::Disconnected`] and [`TransferError::PeerDied`] if the last sender has gone.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// queue.send(&cpu, &Spinning, &7u64, Deadline::NEVER)?;
    /// assert_eq!(queue.receive::<u64, _>(&cpu, &Spinning, Deadline::NEVER)?, 7);
    /// let empty = queue.receive::<u64, _>(&cpu, &Spinning, Deadline::PAST);
    /// assert_eq!(empty, Err(TransferError::TimedOut));
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    fn receive<T: Plain, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
    ) -> Result<T, TransferError> {
        self.receive_as(cpu, wait, &value::OfType::<T>::new(), deadline)
    }

    /// Receives the oldest value, of that shape, when there is one.
    ///
    /// # Errors
    ///
    /// As [`BoundedQueue::receive`].
    ///
    /// Into memory whose length is known when the program runs:
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// # use towpath_sync::queues::BytesInto;
    /// queue.send(&cpu, &Spinning, b"abcdefgh", Deadline::NEVER)?;
    /// let mut bytes = vec![0; 8];
    /// // SAFETY: the vector has eight bytes, and no other thread has it.
    /// let into = unsafe { BytesInto::new(bytes.as_mut_ptr(), 8) };
    /// queue.receive_as(&cpu, &Spinning, &into, Deadline::NEVER)?;
    /// assert_eq!(bytes, b"abcdefgh");
    /// # Ok(())
    /// # }
    /// ```
    fn receive_as<S: ReceivedShape, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        shape: &S,
        deadline: Deadline,
    ) -> Result<S::Value, TransferError>;

    /// Receives the oldest value if there is one; asks for no reason if there is none.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// assert_eq!(queue.take_if_there::<u64, _>(&cpu, &Spinning), None);
    /// queue.send(&cpu, &Spinning, &7u64, Deadline::NEVER)?;
    /// assert_eq!(queue.take_if_there::<u64, _>(&cpu, &Spinning), Some(7));
    /// # Ok(())
    /// # }
    /// ```
    fn take_if_there<T: Plain, W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Option<T>;

    /// Sends nothing more: senders are refused, receivers get the values sent before.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// queue.send(&cpu, &Spinning, &7u64, Deadline::NEVER)?;
    /// queue.close(&cpu, &Spinning);
    /// let receive = || queue.receive::<u64, _>(&cpu, &Spinning, Deadline::NEVER);
    /// assert_eq!([receive(), receive()], [Ok(7), Err(TransferError::Closed)]);
    /// # Ok(())
    /// # }
    /// ```
    fn close<W: Waiting<P>>(&self, cpu: &P, wait: &W);

    /// Takes the calling process off a side, once, and wakes the other side if it was the
    /// last.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// queue.leave(&cpu, &Spinning, QueueSide::Sender); // the last sender
    /// let received = queue.receive::<u64, _>(&cpu, &Spinning, Deadline::NEVER);
    /// assert_eq!(received, Err(TransferError::Disconnected));
    /// # Ok(())
    /// # }
    /// ```
    fn leave<W: Waiting<P>>(&self, cpu: &P, wait: &W, side: QueueSide);

    /// Number of values that wait, at some time during the call.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// for n in 0..3u64 {
    ///     queue.send(&cpu, &Spinning, &n, Deadline::NEVER)?;
    /// }
    /// assert_eq!(queue.len(&cpu), 3);
    /// # Ok(())
    /// # }
    /// ```
    fn len(&self, cpu: &P) -> usize;

    /// Returns whether no value waits.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// assert!(queue.is_empty(&cpu));
    /// queue.send(&cpu, &Spinning, &7u64, Deadline::NEVER)?;
    /// assert!(!queue.is_empty(&cpu));
    /// # Ok(())
    /// # }
    /// ```
    fn is_empty(&self, cpu: &P) -> bool {
        self.len(cpu) == 0
    }
}

/// Number of slots of a queue, and of words of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueGeometry {
    bits: u8,
    /// Number of rings of so many slots each, as a power of two.
    ring_bits: u8,
    mask: u32,
    stride: u32,
}

impl QueueGeometry {
    /// Slots for so many values of so many words, rounded up to a power of two, each with
    /// `beside` words of its own.
    ///
    /// # Panics
    ///
    /// If the capacity is not from 1 to 2³¹, or a value has 32 GiB or more.
    pub(super) fn of(words: usize, capacity: usize, beside: usize) -> QueueGeometry {
        assert!((1..=1 << 31).contains(&capacity), "a queue of {capacity} slots");
        let words = (beside + words).max(1);
        let stride = if words <= 8 { words.next_power_of_two() } else { words.next_multiple_of(8) };
        let stride = u32::try_from(stride).expect("a value of less than 32 GiB");
        let slots = capacity.next_power_of_two();
        QueueGeometry { bits: slots.ilog2() as u8, ring_bits: 0, mask: (slots - 1) as u32, stride }
    }

    /// The geometry of so many rings, each with as many slots.
    ///
    /// # Panics
    ///
    /// If they are no power of two.
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::queues::OneToOne;
    /// let one = OneToOne::<Native>::geometry::<u64>(16);
    /// assert_eq!(one.with_rings(4).slot_lines(), 4 * one.slot_lines());
    /// ```
    #[must_use]
    pub fn with_rings(self, rings: usize) -> Self {
        assert!(rings.is_power_of_two(), "{rings} rings");
        QueueGeometry { ring_bits: rings.ilog2() as u8, ..self }
    }

    /// Number of rings.
    #[inline(always)]
    const fn rings(self) -> u32 {
        1 << self.ring_bits
    }

    /// Number of words of the slots of a ring.
    #[inline(always)]
    const fn ring_words(self) -> usize {
        self.capacity() * self.stride()
    }

    /// Number of lines of rings beside their slots, one for each sender.
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::queues::{RINGS, RingPerSender};
    /// let geometry = RingPerSender::<Native>::geometry::<u64>(16);
    /// assert_eq!(geometry.rings_lines() % RINGS, 0); // as many for each sender
    /// ```
    pub const fn rings_lines(self) -> usize {
        ring_per_sender::LINES << self.ring_bits
    }

    /// Number of slots.
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::queues::OneToOne;
    /// assert_eq!(OneToOne::<Native>::geometry::<u64>(100).capacity(), 128);
    /// ```
    #[inline(always)]
    pub const fn capacity(self) -> usize {
        self.mask() + 1
    }

    #[inline(always)]
    const fn bits(self) -> u32 {
        self.bits as u32
    }

    #[inline(always)]
    const fn mask(self) -> usize {
        self.mask as usize
    }

    /// Number of words from one slot to the next.
    #[inline(always)]
    const fn stride(self) -> usize {
        self.stride as usize
    }

    /// Place of word `k` of a slot, among all words of the slots.
    #[inline(always)]
    const fn place(self, slot: usize, k: usize) -> usize {
        (slot & self.mask()) * self.stride() + k
    }

    /// The slot whose line a sender prefetches at this one, if room was seen there.
    #[inline(always)]
    fn slot_to_fill(self, number: u64, seen: impl FnOnce() -> u64) -> Option<u64> {
        self.slot_ahead(number).filter(|ahead| ahead.wrapping_sub(seen()) < self.capacity() as u64)
    }

    /// The slot whose line a receiver prefetches at this one, if a value was seen there.
    #[inline(always)]
    fn slot_to_read(self, number: u64, seen: impl FnOnce() -> u64) -> Option<u64> {
        self.slot_ahead(number).filter(|&ahead| seen().wrapping_sub(ahead) as i64 > 0)
    }

    /// The slot whose line an end prefetches at this one: two lines later, or the next.
    ///
    /// `None` where no line begins.
    #[inline(always)]
    const fn slot_ahead(self, number: u64) -> Option<u64> {
        let stride = self.stride as u64;
        if !number.wrapping_mul(stride).is_multiple_of(8) {
            return None;
        }
        let slots = 16 >> stride.trailing_zeros();
        Some(number.wrapping_add(if slots == 0 { 1 } else { slots }))
    }

    /// Number of lines of a ring with two words for each slot.
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::queues::ManyToMany;
    /// let geometry = ManyToMany::<Native>::geometry::<u64>(16);
    /// assert_eq!(geometry.ring_lines(), 2 * 16 / 8); // eight words to a line
    /// ```
    pub const fn ring_lines(self) -> usize {
        (2 * self.capacity()).div_ceil(8)
    }

    /// Number of lines of the slots.
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::queues::OneToOne;
    /// let geometry = OneToOne::<Native>::geometry::<[u64; 2]>(16);
    /// assert_eq!(geometry.slot_lines(), 2 * 16 / 8);
    /// ```
    pub const fn slot_lines(self) -> usize {
        (self.ring_words() << self.ring_bits).div_ceil(8)
    }
}

/// Number of lines of a queue of that kind, beside its head.
///
/// ```
/// use towpath_sync::queues::{Mpmc, QueueKind, lines_of};
///
/// let geometry = Mpmc::geometry::<u64>(16);
/// let lines = geometry.ring_lines() + geometry.slot_lines();
/// assert_eq!(lines_of::<Mpmc>(geometry), lines as u64);
/// ```
pub fn lines_of<K: QueueKind>(geometry: QueueGeometry) -> u64 {
    (K::ring_lines(geometry) + geometry.slot_lines()) as u64
}

/// The largest geometry of a queue of that kind, for values of so many words, that takes
/// so many lines beside its head.
///
/// ```
/// use towpath_sync::queues::{QueueKind, Spsc, geometry_of_words_in, lines_of};
///
/// let geometry = Spsc::geometry_of(1, 1024);
/// assert_eq!(geometry_of_words_in::<Spsc>(1, lines_of::<Spsc>(geometry)), Some(geometry));
/// assert_eq!(geometry_of_words_in::<Spsc>(1, 3), None); // of no queue
/// ```
pub fn geometry_of_words_in<K: QueueKind>(words: usize, lines: u64) -> Option<QueueGeometry> {
    let mut all = (0..=K::MOST.ilog2()).rev().map(|bits| K::geometry_of(words, 1 << bits));
    all.find(|&geometry| lines_of::<K>(geometry) == lines)
}

#[cfg(test)]
mod tests {
    use super::QueueGeometry;

    #[test]
    fn line_of_two_lines_later_is_prefetched_once_a_line() {
        let of = |words| QueueGeometry::of(words, 1024, 0);
        let ahead = |words, number| of(words).slot_ahead(number);
        for (words, slots_a_line) in [(1, 8), (2, 4), (3, 2), (8, 1)] {
            for line in [0, 1, 1 << 20] {
                let first = line * slots_a_line;
                assert_eq!(ahead(words, first), Some(first + 2 * slots_a_line), "{words} words");
                let others = (first + 1)..(first + slots_a_line);
                assert!(others.into_iter().all(|slot| ahead(words, slot).is_none()), "{words} words");
            }
        }
        // Slots of several lines.
        assert_eq!([16, 24, 32].map(|words| ahead(words, 5)), [Some(6), Some(7), Some(6)]);
        assert_eq!(ahead(1, u64::MAX - 7), Some(8), "numbers wrap");
    }

    #[test]
    fn lines_that_the_other_end_may_use_are_not_prefetched() {
        let queue = QueueGeometry::of(1, 32, 0);
        let fill = |seen: u64| queue.slot_to_fill(64, || seen);
        assert_eq!([64, 49, 48].map(fill), [Some(80), Some(80), None]);
        let read = |seen: u64| queue.slot_to_read(64, || seen);
        assert_eq!([96, 81, 80, 64].map(read), [Some(80), Some(80), None, None]);
        assert_eq!(queue.slot_to_read(u64::MAX - 7, || 9), Some(8), "numbers wrap");
        assert_eq!(queue.slot_to_fill(65, || unreachable!("no line begins there")), None);
    }
}
