//! `ring_per_sender`: a bounded queue of many senders, with a ring each, and one
//! receiver. A value is sent and received without a locked instruction, and without a
//! fence.
//!
//! **Source.** Lamport's ring (1977) with cached indices, as [`OneToOne`](super::OneToOne), one for
//! each sender; the receiver reads them in turn, each as far as it was filled when its turn came.
//! Ends prefetch the slots' lines two ahead, as far as what they have seen of the other allows.
//! Ours: ends that sleep, and a queue that is closed, by asymmetric fences (Dice, Huang & Yang
//! 2001): `membarrier` by those that are going to sleep, nothing by those that send. The word of
//! each ring by which its two ends agree at which value a closed queue ends.
//!
//! **Progress.** Wait-free while there is room, or a value. First in, first out for each sender;
//! values of different senders come in any order. No sender waits for another one.
//!
//! ```text
//! ring, a line each:   tail | seen by its sender
//!                      head | seen by the receiver
//!                      doorbell | end | owner
//! ```
//!
//! **Fields.** `tail` (number of values sent), and what its sender has last seen of `head`: the
//! sender alone. `head` (number of values received), and what the receiver has last seen of
//! `tail`: the receiver alone. `doorbell`: of the sender that waits for room. `end`: 0, and in a
//! closed queue the number of values that were sent, once, by either end. `owner`: 0, or the
//! identity of the sender's process; from 0, or from a dead process's, by the one that takes the
//! ring, with all that is in it; back to 0 by that one. `fences`: the first that joins, or the
//! maker; then one that cannot make them, and any that sleeps or receives after that. `used`:
//! number of rings that were ever taken, or more. `current`, `hint`, `turned`: the receiver.
//!
//! **Crashes.** A sender, before the store to `tail`: nothing was sent; after it: the value was
//! sent. Its ring is another sender's when one joins. A receiver, before the store to `head`: its
//! successor receives the value once more; after it: the value is gone with it. Sleepers that a
//! dead process did not wake look again within a few milliseconds.
//!
//! **Memory.** Two lines and those of the members; for each of [`RINGS`] senders three lines, and
//! a value, rounded up to 1, 2, 4 or 8 words or whole lines, for each slot.
//!
//! **Don't use it** where values of different senders must come in the order in which they were
//! sent, or for more senders. Where the system has no `membarrier`, or refuses it to one of the
//! processes, each end makes a whole fence for each value.

mod closing;
mod joining;
mod waiting;

use towpath_derive::OpaqueDebug;
use towpath_machine::{Arena, FenceReach, Ordering, Place, Plain, Prefetch, Processor};

use super::members::{Members, PLACES, QueueSide};
use super::queue_doorbell::QueueDoorbell;
use super::{BoundedQueue, QueueGeometry, ReceivedShape, SentWords, TransferError, WordLine, value, word_at};
use crate::{Deadline, Waiting};

/// Number of rings, and of senders.
pub const RINGS: usize = 32;
/// Number of lines of a ring beside its slots.
pub(super) const LINES: usize = 3;

/// Value of the word of fences: not decided yet.
const UNDECIDED: u64 = 0;
/// Value of the word of fences: asymmetric ones, between processes.
const BETWEEN_PROCESSES: u64 = 1;
/// Value of the word of fences: asymmetric ones, between threads.
const BETWEEN_THREADS: u64 = 2;
/// Value of the word of fences: whole ones, of which senders may not know yet.
const CHANGING: u64 = 3;
/// Value of the word of fences: whole ones.
const WHOLE: u64 = 4;

/// Line of words that all ends read, and that are seldom written.
#[repr(C, align(64))]
struct DoorbellLine<P: Processor> {
    /// Doorbell of the receiver that waits for a value.
    doorbell: P::Word,
    fences: P::Word,
    used: P::Word,
}

/// The receiver's own line.
#[repr(C, align(64))]
struct ReceiverLine<P: Processor> {
    /// The ring from which it receives.
    current: P::Word,
    /// Hint for [`gathering`](super::gathering).
    hint: P::Word,
    /// Number of values that it has found where it turned to a ring: the hint's number.
    turned: P::Word,
}

/// Head of the queue. All-zero memory is that of an empty one.
#[derive(OpaqueDebug)]
#[repr(C)]
pub struct RingsHead<P: Processor, const N: usize = PLACES> {
    shared: DoorbellLine<P>,
    receiver: ReceiverLine<P>,
    members: Members<P, N>,
}

impl<P: Processor, const N: usize> RingsHead<P, N> {
    /// The head of an empty queue, in memory of the given arena.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::queues::{BoundedQueue, RingPerSender, RingsHead, WordLine};
    ///
    /// let geometry = RingPerSender::<Native>::geometry::<u64>(4);
    /// let (head, rings) =
    ///     (RingsHead::in_arena(&Heap), WordLine::row(&Heap, geometry.rings_lines()));
    /// let slots = WordLine::row(&Heap, geometry.slot_lines());
    /// let queue = RingPerSender::<Native>::of(&head, &rings, &slots, geometry);
    /// assert!(queue.is_empty(&Native::current()));
    /// ```
    pub fn in_arena(arena: &impl Arena<P>) -> Self {
        let word = |place| arena.word(place, 0);
        RingsHead {
            shared: DoorbellLine {
                doorbell: word(Place::NewLine),
                fences: word(Place::SameLine),
                used: word(Place::SameLine),
            },
            receiver: ReceiverLine {
                current: word(Place::NewLine),
                hint: word(Place::SameLine),
                turned: word(Place::SameLine),
            },
            members: Members::in_arena(arena),
        }
    }

    /// Keeps the queue to the threads of this process: for its maker.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::queues::{BoundedQueue, QueueSide, RingPerSender};
    /// # use towpath_sync::queues::{RingsHead, TransferError, WordLine};
    /// # use towpath_sync::{Deadline, Spinning};
    /// # let (cpu, geometry) = (Native::current(), RingPerSender::<Native>::geometry::<u64>(4));
    /// # let rings = WordLine::row(&Heap, geometry.rings_lines());
    /// # let slots = WordLine::row(&Heap, geometry.slot_lines());
    /// let head = RingsHead::in_arena(&Heap);
    /// head.keep_to_threads(&cpu); // senders make no fences, where the system makes them
    /// let queue = RingPerSender::<Native>::of(&head, &rings, &slots, geometry);
    /// # queue.join(&cpu, &Spinning, QueueSide::Receiver)?;
    /// let ring = queue.join(&cpu, &Spinning, QueueSide::Sender)?;
    /// queue.at(ring).send(&cpu, &Spinning, &7u64, Deadline::NEVER)?;
    /// assert_eq!(queue.receive::<u64, _>(&cpu, &Spinning, Deadline::NEVER)?, 7);
    /// # Ok::<(), TransferError>(())
    /// ```
    pub fn keep_to_threads(&self, cpu: &P) {
        let fences = if cpu.fences_asymmetrically(FenceReach::Threads) { BETWEEN_THREADS } else { WHOLE };
        // Relaxed: before others know the queue.
        cpu.store(&self.shared.fences, fences, Ordering::Relaxed);
    }

    /// Word for the number of slots, which the lines of a small queue do not tell.
    ///
    /// The creator of a queue that processes share writes it before others know the queue.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native, Ordering, Processor};
    /// # use towpath_sync::queues::RingsHead;
    /// let (cpu, head) = (Native::current(), RingsHead::<Native>::in_arena(&Heap));
    /// cpu.store(head.slots(), 4, Ordering::Relaxed); // processes that map it later read it
    /// assert_eq!(cpu.load(head.slots(), Ordering::Relaxed), 4);
    /// ```
    pub const fn slots(&self) -> &P::Word {
        self.members.slots()
    }
}

/// Words of a ring beside its slots.
struct RingWords<'a, P: Processor>(&'a [WordLine<P>; LINES]);

impl<'a, P: Processor> RingWords<'a, P> {
    const fn tail(&self) -> &'a P::Word {
        &self.0[0].0[0]
    }
    const fn seen_by_sender(&self) -> &'a P::Word {
        &self.0[0].0[1]
    }
    const fn head(&self) -> &'a P::Word {
        &self.0[1].0[0]
    }
    const fn seen_by_receiver(&self) -> &'a P::Word {
        &self.0[1].0[1]
    }
    const fn doorbell(&self) -> QueueDoorbell<'a, P> {
        QueueDoorbell(&self.0[2].0[0])
    }
    const fn end(&self) -> &'a P::Word {
        &self.0[2].0[1]
    }
    const fn owner(&self) -> &'a P::Word {
        &self.0[2].0[2]
    }
}

/// The queue, wherever its parts lie.
#[derive(OpaqueDebug)]
pub struct RingPerSender<'a, P: Processor, const N: usize = PLACES> {
    head: &'a RingsHead<P, N>,
    rings: &'a [WordLine<P>],
    slots: &'a [WordLine<P>],
    pub(super) geometry: QueueGeometry,
    /// The caller's ring, if it sends.
    pub(super) seat: u32,
}

impl<P: Processor, const N: usize> Clone for RingPerSender<'_, P, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Processor, const N: usize> Copy for RingPerSender<'_, P, N> {}

impl<'a, P: Prefetch, const N: usize> RingPerSender<'a, P, N> {
    /// Maximum number of slots of a ring.
    pub const MOST: usize = 1 << 24;

    /// Rings with room for so many values of type `T` each, rounded up to a power of two.
    ///
    /// # Panics
    ///
    /// If the capacity is not from 1 to [`RingPerSender::MOST`].
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::queues::{RINGS, RingPerSender};
    /// let geometry = RingPerSender::<Native>::geometry::<u64>(8);
    /// // a line for each ring
    /// assert_eq!((geometry.capacity(), geometry.slot_lines()), (8, RINGS));
    /// ```
    pub fn geometry<T>(capacity: usize) -> QueueGeometry {
        Self::geometry_of(value::words::<T>(), capacity)
    }

    /// Rings as by [`RingPerSender::geometry`], for values of so many words.
    ///
    /// # Panics
    ///
    /// If the capacity is not from 1 to [`RingPerSender::MOST`].
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::queues::RingPerSender;
    /// type Queue<'a> = RingPerSender<'a, Native>;
    /// assert_eq!(Queue::geometry_of(2, 8), Queue::geometry::<[u64; 2]>(8));
    /// ```
    pub fn geometry_of(words: usize, capacity: usize) -> QueueGeometry {
        assert!((1..=Self::MOST).contains(&capacity), "rings of {capacity} slots");
        QueueGeometry::of(words, capacity, 0).with_rings(RINGS)
    }

    /// The queue of these parts: as many lines as [`QueueGeometry::rings_lines`] and
    /// [`QueueGeometry::slot_lines`] say.
    ///
    /// # Panics
    ///
    /// If there are fewer: here, or when the first is missing.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::queues::{BoundedQueue, QueueSide, RingPerSender};
    /// # use towpath_sync::queues::{RingsHead, TransferError, WordLine};
    /// # use towpath_sync::Spinning;
    /// # let geometry = RingPerSender::<Native>::geometry::<u64>(4);
    /// # let (cpu, head) = (Native::current(), RingsHead::in_arena(&Heap));
    /// let rings = WordLine::row(&Heap, geometry.rings_lines());
    /// let slots = WordLine::row(&Heap, geometry.slot_lines());
    /// let queue = RingPerSender::<Native>::of(&head, &rings, &slots, geometry);
    /// let [one, other] = [(); 2].map(|()| queue.join(&cpu, &Spinning, QueueSide::Sender));
    /// assert_ne!(one?, other?); // each sender has a ring of its own
    /// # Ok::<(), TransferError>(())
    /// ```
    #[inline(always)]
    pub fn of(
        head: &'a RingsHead<P, N>,
        rings: &'a [WordLine<P>],
        slots: &'a [WordLine<P>],
        geometry: QueueGeometry,
    ) -> Self {
        debug_assert!(rings.len() >= geometry.rings_lines() && slots.len() >= geometry.slot_lines());
        RingPerSender { head, rings, slots, geometry, seat: 0 }
    }

    /// A copy for a cold function, made where that is called: see
    /// [`ManyToMany`](super::ManyToMany).
    #[inline(always)]
    fn apart(&self) -> Self {
        core::hint::black_box(*self)
    }

    #[inline(always)]
    fn ring(&self, seat: u32) -> RingWords<'a, P> {
        let lines = self.rings[LINES * seat as usize..].first_chunk();
        RingWords(lines.expect("lines for each ring"))
    }

    /// Number of the value that the caller sends next, in its ring.
    #[inline(always)]
    pub(super) fn next_number(&self, cpu: &P) -> u64 {
        // Relaxed: the sender's own, or handed over with the ring.
        cpu.load(self.ring(self.seat).tail(), Ordering::Relaxed)
    }

    #[inline(always)]
    fn word(&self, seat: u32, number: u64, k: usize) -> &'a P::Word {
        let first = seat as usize * self.geometry.ring_words();
        word_at(self.slots, first + self.geometry.place(number as usize, k))
    }

    /// The ring from which the receiver receives.
    #[inline(always)]
    fn current(&self, cpu: &P) -> u32 {
        // Relaxed: the receiver's own, or handed over with its place.
        cpu.load(&self.head.receiver.current, Ordering::Relaxed) as u32 & (self.geometry.rings() - 1)
    }

    /// Number of rings in use, or more.
    fn used(&self, cpu: &P) -> u32 {
        // Relaxed: ordered by the fences, or by the members' table.
        let used = cpu.load(&self.head.shared.used, Ordering::Relaxed);
        u32::try_from(used).unwrap_or(u32::MAX).min(self.geometry.rings())
    }

    /// Makes a fence between an index's store and the look at the other end's doorbell.
    #[inline(always)]
    fn fence_lightly(&self, cpu: &P) {
        // Relaxed: written before the caller had joined; of a change, the fence by which that is
        // completed decides.
        if cpu.load(&self.head.shared.fences, Ordering::Relaxed) >= CHANGING {
            // (R1) SeqCst: pairs with the fence (R3).
            cpu.fence(Ordering::SeqCst);
        } else {
            // (R2) SeqCst, for the compiler: pairs with the heavy fence (R4).
            cpu.light_fence(Ordering::SeqCst);
        }
    }

    /// Makes a fence between an announcement and the last look before the caller sleeps.
    #[cold]
    fn fence_heavily(&self, cpu: &P) {
        // Relaxed: written before the caller had joined; of a change, the fence by which that is
        // completed decides.
        let fences = cpu.load(&self.head.shared.fences, Ordering::Relaxed);
        let reach = match fences {
            BETWEEN_THREADS => FenceReach::Threads,
            BETWEEN_PROCESSES => FenceReach::Processes,
            CHANGING => return self.complete_change(cpu),
            _ => {
                // (R3) SeqCst: pairs with the fence (R1); after a change with (R14) and (R15).
                return cpu.fence(Ordering::SeqCst);
            }
        };
        // (R4) SeqCst: pairs with the light fence (R2).
        cpu.heavy_fence(Ordering::SeqCst, reach);
        if !cpu.fences_asymmetrically(reach) {
            self.change_to_whole_fences(cpu, fences);
        }
    }

    /// Sends if there is room.
    #[inline(always)]
    fn try_send<T: SentWords, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        value: &T,
    ) -> Option<Result<(), TransferError>> {
        let ring = self.ring(self.seat);
        // Relaxed, both: the sender's own, or handed over with the ring.
        let number = cpu.load(ring.tail(), Ordering::Relaxed);
        let room = self.geometry.capacity() as u64;
        if number.wrapping_sub(cpu.load(ring.seen_by_sender(), Ordering::Relaxed)) >= room {
            // (R5) Acquire: the receiver has read what was in the slot; pairs with the Release
            // (R6).
            let head = cpu.load(ring.head(), Ordering::Acquire);
            cpu.store(ring.seen_by_sender(), head, Ordering::Relaxed);
            if number.wrapping_sub(head) >= room {
                return None;
            }
        }
        // Relaxed: the sender's own.
        let seen = || cpu.load(ring.seen_by_sender(), Ordering::Relaxed);
        if let Some(ahead) = self.geometry.slot_to_fill(number, seen) {
            cpu.prefetch_exclusive(self.word(self.seat, ahead, 0));
        }
        for k in 0..value.words() {
            // Relaxed: published by (R7).
            cpu.store(self.word(self.seat, number, k), value.word(k), Ordering::Relaxed);
        }
        // (R7) Release: the value; pairs with the Acquire (R8).
        cpu.store(ring.tail(), number.wrapping_add(1), Ordering::Release);
        self.fence_lightly(cpu);
        if QueueDoorbell(&self.head.shared.doorbell).is_armed(cpu) | self.head.members.is_closed(cpu) {
            return Some(self.apart().answer(cpu, wait, number));
        }
        Some(Ok(()))
    }

    /// Wakes the receiver, if it sleeps, after a value was published.
    ///
    /// The value may have come after the queue's end.
    #[cold]
    fn answer<W: Waiting<P>>(self, cpu: &P, wait: &W, number: u64) -> Result<(), TransferError> {
        QueueDoorbell(&self.head.shared.doorbell).wake(cpu, wait);
        let is_sent = !self.head.members.is_closed(cpu) || self.ends_after(cpu, number);
        if is_sent { Ok(()) } else { Err(TransferError::Closed) }
    }

    /// Receives if there is a value.
    #[inline(always)]
    fn try_receive<S: ReceivedShape, W: Waiting<P>>(&self, cpu: &P, wait: &W, shape: &S) -> Option<S::Value> {
        // Relaxed, all: the receiver's own, or handed over with its place.
        let mut seat = self.current(cpu);
        let mut number = cpu.load(self.ring(seat).head(), Ordering::Relaxed);
        if number == cpu.load(self.ring(seat).seen_by_receiver(), Ordering::Relaxed) {
            (seat, number) = self.apart().turn_to_next(cpu)?;
        }
        let ring = self.ring(seat);
        // Relaxed: the receiver's own.
        let seen = || cpu.load(ring.seen_by_receiver(), Ordering::Relaxed);
        if let Some(ahead) = self.geometry.slot_to_read(number, seen) {
            cpu.prefetch_shared(self.word(seat, ahead, 0));
        }
        // Relaxed: after (R8).
        let value = shape.value(|k| cpu.load(self.word(seat, number, k), Ordering::Relaxed));
        // (R6) Release: the value was read; pairs with the Acquire (R5).
        cpu.store(ring.head(), number.wrapping_add(1), Ordering::Release);
        self.fence_lightly(cpu);
        if ring.doorbell().is_armed(cpu) {
            ring.doorbell().wake(cpu, wait);
        }
        Some(value)
    }

    /// Turns to the next ring with a value. Returns it, and the value's number.
    #[cold]
    fn turn_to_next(self, cpu: &P) -> Option<(u32, u64)> {
        let current = self.current(cpu);
        let used = self.used(cpu);
        let from_next = (current + 1..used).chain(0..used.min(current + 1));
        for seat in from_next {
            let ring = self.ring(seat);
            // Relaxed: the receiver's own.
            let (number, sent) = (cpu.load(ring.head(), Ordering::Relaxed), self.sent(cpu, &ring));
            if sent != number {
                // Relaxed, all: the receiver's own.
                cpu.store(ring.seen_by_receiver(), sent, Ordering::Relaxed);
                cpu.store(&self.head.receiver.current, u64::from(seat), Ordering::Relaxed);
                let turned = cpu.load(&self.head.receiver.turned, Ordering::Relaxed);
                cpu.store(
                    &self.head.receiver.turned,
                    turned.wrapping_add(sent.wrapping_sub(number)),
                    Ordering::Relaxed,
                );
                return Some((seat, number));
            }
        }
        None
    }
}

impl<P: Prefetch, const N: usize> BoundedQueue<P> for RingPerSender<'_, P, N> {
    type Seat = u32;

    fn join<W: Waiting<P>>(&self, cpu: &P, wait: &W, side: QueueSide) -> Result<u32, TransferError> {
        self.head.members.join_one_receiver(cpu, wait, side)?;
        self.agree_on_fences(cpu);
        match side {
            QueueSide::Receiver => Ok(0),
            QueueSide::Sender => self.take_ring(cpu, wait).ok_or_else(|| {
                self.head.members.leave(cpu, wait, side);
                TransferError::Capacity
            }),
        }
    }

    #[inline(always)]
    fn at(self, seat: u32) -> Self {
        RingPerSender { seat, ..self }
    }

    #[inline(always)]
    fn send<T: SentWords, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        value: &T,
        deadline: Deadline,
    ) -> Result<(), TransferError> {
        debug_assert!(value.words() <= self.geometry.stride());
        if !self.head.members.may_be_without(cpu, QueueSide::Receiver)
            && let Some(sent) = self.try_send(cpu, wait, value)
        {
            return sent;
        }
        self.apart().send_slowly(cpu, wait, value, deadline)
    }

    #[inline(always)]
    fn receive_as<S: ReceivedShape, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        shape: &S,
        deadline: Deadline,
    ) -> Result<S::Value, TransferError> {
        debug_assert!(shape.words() <= self.geometry.stride());
        match self.try_receive(cpu, wait, shape) {
            Some(value) => Ok(value),
            None => self.apart().receive_slowly(cpu, wait, shape, deadline),
        }
    }

    #[inline]
    fn take_if_there<T: Plain, W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Option<T> {
        self.try_receive(cpu, wait, &value::OfType::<T>::new())
    }

    fn close<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        self.head.members.close(cpu);
        self.ring_all(cpu, wait, [QueueSide::Sender, QueueSide::Receiver].as_slice());
    }

    fn leave<W: Waiting<P>>(&self, cpu: &P, wait: &W, side: QueueSide) {
        if side == QueueSide::Sender {
            self.give_ring_back(cpu, wait);
        }
        if self.head.members.leave(cpu, wait, side) {
            self.ring_all(cpu, wait, &[side]);
        }
    }

    fn len(&self, cpu: &P) -> usize {
        let waiting = |seat| {
            let ring = self.ring(seat);
            // Relaxed, both: numbers that may be old when the caller looks at them.
            let [head, tail] = [ring.head(), ring.tail()].map(|word| cpu.load(word, Ordering::Relaxed));
            usize::try_from(tail.saturating_sub(head)).unwrap_or(0).min(self.geometry.capacity())
        };
        (0..self.used(cpu)).map(waiting).sum()
    }
}
