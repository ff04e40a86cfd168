//! `one_to_one`: a bounded queue of one sender and one receiver. Each has a line of its
//! own, on which it keeps the index of the other that it has last seen.
//!
//! **Source.** Lamport's ring (1977), with cached indices as in MCRingBuffer (Lee, Bu &
//! Chandranmenon 2010): an end reads the other's index only when it would have to wait by what it
//! has seen. Ours: the mark of the end in the sender's index, so that closing is exact; ends that
//! prefetch the slots' lines two ahead, as far as what they have seen of the other allows.
//!
//! **Progress.** Wait-free while there is room, or a value.
//!
//! **Fields.** `sender.index` (number of values sent, above [`CLOSED`]): the sender, by
//! compare-and-swap, since the receiver marks it before it sleeps ([`PARKED`]), and any process
//! may close. `sender.seen`: the sender alone: number of values received, as it last saw it.
//! `receiver.index` (number of values received): the receiver; the sender marks it before it
//! sleeps. `receiver.seen`, `receiver.hint`: the receiver alone. Slots: the sender, from the
//! index's store by the receiver to its own.
//!
//! **Crashes.** A sender, before the index's exchange: nothing was sent; after it: the value was
//! sent. A receiver, before the index's store: its successor receives the value once more; after
//! it: the value is gone with it. Sleepers that a dead process did not wake look again within a few
//! milliseconds. Another process may take the place of a dead one ([`Members`]).
//!
//! **Memory.** Two lines and those of the members; a value, rounded up to 1, 2, 4 or 8 words or
//! whole lines, for each slot.
//!
//! **Don't use it** where two threads may send, or receive: the handles refuse that.

use towpath_derive::OpaqueDebug;
use towpath_machine::{Arena, Ordering, Place, Plain, Prefetch, Processor};

use super::members::{Members, QueueSide};
use super::{
    BoundedQueue, QueueGeometry, ReceivedShape, SentWords, TransferError, WordLine, gathering, value, word_at,
};
use crate::turns::{TURN, Turns};
use crate::{Deadline, PARKED, Waiting};

/// Part of the sender's index: nothing more is sent.
const CLOSED: u64 = 1;

/// An end's own line.
#[repr(C, align(64))]
struct EndLine<P: Processor> {
    index: P::Word,
    seen: P::Word,
    /// The receiver's hint for [`gathering`].
    hint: P::Word,
}

impl<P: Processor> EndLine<P> {
    fn in_arena(arena: &impl Arena<P>) -> Self {
        let [seen, hint] = core::array::from_fn(|_| arena.word(Place::SameLine, 0));
        EndLine { index: arena.word(Place::NewLine, 0), seen, hint }
    }
}

/// Head of the queue. All-zero memory is that of an empty one.
#[derive(OpaqueDebug)]
#[repr(C)]
pub struct OneHead<P: Processor> {
    sender: EndLine<P>,
    receiver: EndLine<P>,
    members: Members<P, 2>,
}

impl<P: Processor> OneHead<P> {
    /// The head of an empty queue, in memory of the given arena.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::queues::{BoundedQueue, OneHead, OneToOne, WordLine};
    ///
    /// let (head, geometry) = (OneHead::in_arena(&Heap), OneToOne::<Native>::geometry::<u64>(4));
    /// let slots = WordLine::row(&Heap, geometry.slot_lines());
    /// assert!(OneToOne::of(&head, &slots, geometry).is_empty(&Native::current()));
    /// ```
    pub fn in_arena(arena: &impl Arena<P>) -> Self {
        OneHead {
            sender: EndLine::in_arena(arena),
            receiver: EndLine::in_arena(arena),
            members: Members::in_arena(arena),
        }
    }

    /// Word for the number of slots, which the lines of a small queue do not tell.
    ///
    /// The creator of a queue that processes share writes it before others know the queue.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native, Ordering, Processor};
    /// # use towpath_sync::queues::OneHead;
    /// let (cpu, head) = (Native::current(), OneHead::<Native>::in_arena(&Heap));
    /// cpu.store(head.slots(), 4, Ordering::Relaxed); // processes that map it later read it
    /// assert_eq!(cpu.load(head.slots(), Ordering::Relaxed), 4);
    /// ```
    pub const fn slots(&self) -> &P::Word {
        self.members.slots()
    }
}

/// The queue, wherever its parts lie.
#[derive(OpaqueDebug)]
pub struct OneToOne<'a, P: Processor> {
    head: &'a OneHead<P>,
    slots: &'a [WordLine<P>],
    pub(super) geometry: QueueGeometry,
}

impl<P: Processor> Clone for OneToOne<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Processor> Copy for OneToOne<'_, P> {}

/// Outcome of an attempt: done, or the other end's index, which has to change first.
type Attempt<T> = Result<T, u64>;

impl<'a, P: Prefetch> OneToOne<'a, P> {
    /// Maximum number of slots.
    pub const MOST: usize = 1 << 31;

    /// A queue with room for so many values of type `T`, rounded up to a power of two.
    ///
    /// # Panics
    ///
    /// If the capacity is not from 1 to [`OneToOne::MOST`].
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::queues::OneToOne;
    /// assert_eq!(OneToOne::<Native>::geometry::<[u8; 3]>(5).capacity(), 8);
    /// ```
    pub fn geometry<T>(capacity: usize) -> QueueGeometry {
        Self::geometry_of(value::words::<T>(), capacity)
    }

    /// A queue as by [`OneToOne::geometry`], for values of so many words.
    ///
    /// # Panics
    ///
    /// If the capacity is not from 1 to [`OneToOne::MOST`].
    ///
    /// ```
    /// # use towpath_machine::Native;
    /// # use towpath_sync::queues::OneToOne;
    /// let of_bytes = OneToOne::<Native>::geometry_of(24usize.div_ceil(8), 5);
    /// assert_eq!(of_bytes, OneToOne::<Native>::geometry::<[u64; 3]>(5));
    /// ```
    pub fn geometry_of(words: usize, capacity: usize) -> QueueGeometry {
        QueueGeometry::of(words, capacity, 0)
    }

    /// The queue of these parts: as many lines as [`QueueGeometry::slot_lines`] says.
    ///
    /// # Panics
    ///
    /// If there are fewer: here, or when the first is missing.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Spinning};
    /// # use towpath_sync::queues::{BoundedQueue, OneHead, OneToOne};
    /// # use towpath_sync::queues::{QueueSide, TransferError, WordLine};
    /// let (cpu, geometry) = (Native::current(), OneToOne::<Native>::geometry::<u64>(4));
    /// let (head, slots) = (OneHead::in_arena(&Heap), WordLine::row(&Heap, geometry.slot_lines()));
    /// let queue = OneToOne::of(&head, &slots, geometry);
    /// queue.join(&cpu, &Spinning, QueueSide::Receiver)?;
    /// queue.join(&cpu, &Spinning, QueueSide::Sender)?;
    /// queue.send(&cpu, &Spinning, &7u64, Deadline::NEVER)?;
    /// assert_eq!(queue.len(&cpu), 1);
    /// # Ok::<(), TransferError>(())
    /// ```
    #[inline(always)]
    pub fn of(head: &'a OneHead<P>, slots: &'a [WordLine<P>], geometry: QueueGeometry) -> Self {
        debug_assert!(slots.len() >= geometry.slot_lines());
        OneToOne { head, slots, geometry }
    }

    /// Number of the value that the sender sends next.
    #[inline(always)]
    pub(super) fn next_number(&self, cpu: &P) -> u64 {
        // Relaxed: the sender's own, or handed over with its place.
        (cpu.load(&self.head.sender.index, Ordering::Relaxed) & !PARKED) >> 1
    }

    #[inline(always)]
    fn word(&self, number: u64, k: usize) -> &'a P::Word {
        word_at(self.slots, self.geometry.place(number as usize, k))
    }

    /// Sends if there is room.
    #[inline(always)]
    fn try_send<T: SentWords, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        value: &T,
    ) -> Attempt<Result<(), TransferError>> {
        let (mine, theirs) = (&self.head.sender, &self.head.receiver);
        // Relaxed, both: the sender's own, or handed over with its place.
        let mut index = cpu.load(&mine.index, Ordering::Relaxed);
        let number = (index & !PARKED) >> 1;
        let room = self.geometry.capacity() as u64;
        if number.wrapping_sub(cpu.load(&mine.seen, Ordering::Relaxed)) >= room {
            // (O1) Acquire: the receiver has read what was in the slot; pairs with the Release (2)
            // of `Waiting::release` in `try_receive`.
            let seen = cpu.load(&theirs.index, Ordering::Acquire) & !PARKED;
            cpu.store(&mine.seen, seen, Ordering::Relaxed);
            if number.wrapping_sub(seen) >= room {
                return Err(seen);
            }
        }
        // Relaxed: the sender's own.
        let seen = || cpu.load(&mine.seen, Ordering::Relaxed);
        if let Some(ahead) = self.geometry.slot_to_fill(number, seen) {
            cpu.prefetch_exclusive(self.word(ahead, 0));
        }
        for k in 0..value.words() {
            // Relaxed: published by (O2).
            cpu.store(self.word(number, k), value.word(k), Ordering::Relaxed);
        }
        loop {
            if index & CLOSED != 0 {
                return Ok(Err(TransferError::Closed));
            }
            let next = ((number + 1) << 1) & !PARKED;
            // (O2) Release: the value; pairs with the Acquire (O3).
            match cpu.compare_exchange(&mine.index, index, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) if (now ^ index) & !(PARKED | CLOSED) == 0 => index = now,
                // Another has written there.
                Err(_) => return Ok(Err(TransferError::Damaged)),
            }
        }
        if index & PARKED != 0 {
            wait.wake_all(cpu, &mine.index);
        }
        Ok(Ok(()))
    }

    /// Receives if there is a value.
    #[inline(always)]
    fn try_receive<S: ReceivedShape, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        shape: &S,
    ) -> Attempt<S::Value> {
        let (mine, theirs) = (&self.head.receiver, &self.head.sender);
        // Relaxed, both: the receiver's own, or handed over with its place.
        let number = cpu.load(&mine.index, Ordering::Relaxed) & !PARKED;
        if number == cpu.load(&mine.seen, Ordering::Relaxed) {
            // (O3) Acquire: the values; pairs with the Release (O2).
            let index = cpu.load(&theirs.index, Ordering::Acquire) & !PARKED;
            cpu.store(&mine.seen, index >> 1, Ordering::Relaxed);
            if index >> 1 == number {
                return Err(index);
            }
        }
        // Relaxed: the receiver's own.
        let seen = || cpu.load(&mine.seen, Ordering::Relaxed);
        if let Some(ahead) = self.geometry.slot_to_read(number, seen) {
            cpu.prefetch_shared(self.word(ahead, 0));
        }
        // Relaxed: after (O3).
        let value = shape.value(|k| cpu.load(self.word(number, k), Ordering::Relaxed));
        // Its Release (2) pairs with the Acquire (O1).
        wait.release(cpu, &mine.index, (number + 1) & !PARKED);
        Ok(value)
    }

    #[cold]
    fn send_slowly<T: SentWords, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        value: &T,
        deadline: Deadline,
    ) -> Result<(), TransferError> {
        let mut turns = None;
        loop {
            self.head.members.check_receivers(cpu, wait)?;
            let seen = match self.try_send(cpu, wait, value) {
                Ok(sent) => return sent,
                Err(seen) => seen,
            };
            if turns.is_none() && gathering::batch(self.geometry.capacity(), deadline).is_some() {
                turns = Some(Turns::new(cpu, deadline, TURN));
                // No other thread changes its own index, but for the mark.
                let yields = wait.is_oversubscribed().into();
                gathering::pause(cpu, wait, &self.head.sender.index, yields, deadline);
                continue;
            }
            let turns = turns.get_or_insert_with(|| Turns::new(cpu, deadline, TURN));
            if self.head.members.is_time_to_ask(cpu, turns, deadline)
                && let Some(end) = self.head.members.end_of(cpu, wait, QueueSide::Receiver)
            {
                return Err(end);
            }
            turns.wait(cpu, wait, &self.head.receiver.index, seen)?;
        }
    }

    #[cold]
    fn receive_slowly<S: ReceivedShape, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        shape: &S,
        deadline: Deadline,
    ) -> Result<S::Value, TransferError> {
        if gathering::batch(self.geometry.capacity(), deadline).is_some() {
            let mine = &self.head.receiver;
            // Relaxed: the receiver's own. No other thread changes it, but for the mark.
            let number = cpu.load(&mine.index, Ordering::Relaxed) & !PARKED;
            if gathering::is_worth_it(cpu, &mine.hint, number) {
                gathering::pause(cpu, wait, &mine.index, wait.is_oversubscribed().into(), deadline);
            }
        }
        let (mut turns, mut end) = (None, None);
        loop {
            let index = match self.try_receive(cpu, wait, shape) {
                Ok(value) => return Ok(value),
                Err(index) => index,
            };
            // It was over before the last look.
            if let Some(end) = end {
                return Err(end);
            }
            if index & CLOSED != 0 {
                return Err(TransferError::Closed);
            }
            if self.head.members.is_closed(cpu) {
                // Its closer may have died in between.
                self.mark_closed(cpu, wait);
                continue;
            }
            let turns = turns.get_or_insert_with(|| Turns::new(cpu, deadline, TURN));
            end = self.head.members.end_of_senders(cpu, wait, turns, deadline);
            if end.is_some() {
                continue;
            }
            turns.wait(cpu, wait, &self.head.sender.index, index)?;
        }
    }

    fn mark_closed<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        // Relaxed: the mark goes on with the Release (O2) of what was sent.
        cpu.fetch_or(&self.head.sender.index, CLOSED, Ordering::Relaxed);
        wait.wake_all(cpu, &self.head.sender.index);
    }
}

impl<P: Prefetch> BoundedQueue<P> for OneToOne<'_, P> {
    type Seat = ();

    fn join<W: Waiting<P>>(&self, cpu: &P, wait: &W, side: QueueSide) -> Result<(), TransferError> {
        self.head.members.join_alone(cpu, wait, side)
    }

    #[inline]
    fn send<T: SentWords, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        value: &T,
        deadline: Deadline,
    ) -> Result<(), TransferError> {
        debug_assert!(value.words() <= self.geometry.stride());
        if !self.head.members.may_be_without(cpu, QueueSide::Receiver)
            && let Ok(sent) = self.try_send(cpu, wait, value)
        {
            return sent;
        }
        self.send_slowly(cpu, wait, value, deadline)
    }

    #[inline]
    fn receive_as<S: ReceivedShape, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        shape: &S,
        deadline: Deadline,
    ) -> Result<S::Value, TransferError> {
        debug_assert!(shape.words() <= self.geometry.stride());
        match self.try_receive(cpu, wait, shape) {
            Ok(value) => Ok(value),
            Err(_) => self.receive_slowly(cpu, wait, shape, deadline),
        }
    }

    #[inline]
    fn take_if_there<T: Plain, W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Option<T> {
        self.try_receive(cpu, wait, &value::OfType::<T>::new()).ok()
    }

    fn close<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        self.head.members.close(cpu);
        self.mark_closed(cpu, wait);
        wait.wake_all(cpu, &self.head.receiver.index);
    }

    fn leave<W: Waiting<P>>(&self, cpu: &P, wait: &W, side: QueueSide) {
        if self.head.members.leave(cpu, wait, side) {
            match side {
                QueueSide::Sender => wait.wake_all(cpu, &self.head.sender.index),
                QueueSide::Receiver => wait.wake_all(cpu, &self.head.receiver.index),
            }
        }
    }

    fn len(&self, cpu: &P) -> usize {
        // Relaxed, both: numbers that may be old when the caller looks at them.
        let received = cpu.load(&self.head.receiver.index, Ordering::Relaxed) & !PARKED;
        let sent = (cpu.load(&self.head.sender.index, Ordering::Relaxed) & !PARKED) >> 1;
        usize::try_from(sent.saturating_sub(received)).unwrap_or(0).min(self.geometry.capacity())
    }
}
