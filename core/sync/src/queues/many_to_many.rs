//! `many_to_many`: a bounded queue of many senders and receivers. Neither a stopped one
//! holds up the others, nor a dead one.
//!
//! **Source.** Ours, after the ring of indices of Nikolaev (SCQ, 2019). A sender takes any free
//! slot and fills it, in no other's way; then one exchange puts the slot's number into the
//! ring. There is no list of free slots: a slot's own word says whether it is free, which process
//! has it, and which ticket its sender tries for. So a value is taken by one exchange of that word,
//! the ring's entry stays, and no step is half of another.
//!
//! **Progress.** Lock-free while there is room, or a value. First in, first out; what a dead or
//! forgetful holder of a lease had comes in again at the end.
//!
//! ```text
//! ring[t mod n]:       63      62       18  17     16  15      0
//!                      [PARKED][ lap      ][CLOSED][ – ][ slot  ]     lap: t / n + 1
//! slots[i], its word:  63      62         32  31         3  2     0
//!                      [PARKED][ identity   ][ ticket     ][ state ]  0: free
//! slots[i], the rest:  the value
//! ```
//!
//! | state | meaning | leaves to |
//! | --- | --- | --- |
//! | free | identity 0; after its last value, or unused, after a ticket that it had in vain | sent, by a sender that takes it, with its identity and a ticket that was not in the ring |
//! | sent | is filled, until the ring's entry of that ticket names the slot; then it waits for a receiver | with another ticket, by its sender, while it is not in the ring; leased or free, by the receiver; free, by a survivor, if its sender died before it was in the ring |
//! | leased | a receiver has the value | free, by that receiver: completed; returned, by that receiver or, if it is dead, by a survivor |
//! | returned | as *sent*, but it never gets lost | as *sent*; returned, by a survivor, if the process died before it was in the ring |
//!
//! | moved, pending | two slots of different queues, see [`complete_into`](ManyToMany::complete_into) | free; returned |
//!
//! **Fields.** `sent.next`, `taken.next`: tickets before these were sent, or taken; hints that only
//! save steps, as are the other words of these lines. `ring[…]`: by compare-and-swap from one lap
//! to the next; waiters for a value add [`PARKED`]. Slots' words: see above; waiters for room add
//! [`PARKED`] to the oldest one's. Values: the process that took the slot.
//!
//! **Crashes.** A sender, before the ring's exchange: nothing was sent, and a sender that waits for
//! room frees the slot; after it: the value was sent. A receiver, before its exchange: nothing;
//! after it: the value is gone with it, or, if it was leased, comes in again. In both cases
//! sleepers that it did not wake look again within a few milliseconds.
//!
//! A value of more than 56 bytes may be written where it lies, so that it is read only while it is
//! leased, also by a receiver that copies it: if that one dies meanwhile, it comes in again.
//!
//! **Memory.** Two lines and those of the members; 16 bytes for each place of the ring; a word and
//! the value, rounded up to 2, 4 or 8 words or whole lines, for each slot. The number of slots is
//! rounded up to a power of two; with a limit senders use only so many of them.
//!
//! **Don't use it** for one sender and one receiver: [`OneToOne`](super::OneToOne) is faster. A
//! process that is stopped between two instructions for exactly a multiple of 2²⁹ values, and goes
//! on while the same slot has the same ticket modulo 2²⁹ from the same process, takes that for the
//! old value.

mod celled;
mod held;
mod repair;
mod sending;
mod taking;

pub use held::{Leased, Reserved};

use towpath_derive::OpaqueDebug;
use towpath_machine::{Arena, Ordering, Place, Plain, Processor};

use super::complete_into::LinkedWords;
use super::members::{Members, PLACES, QueueSide};
use super::{BoundedQueue, QueueGeometry, ReceivedShape, SentWords, TransferError, WordLine, value, word_at};
use crate::{Deadline, PARKED, Waiting};

/// Part of an entry of the ring: number of the slot.
const SLOT: u64 = (1 << 16) - 1;
/// Part of an entry of the ring: nothing is sent with this ticket, or a later one.
const CLOSED: u64 = 1 << 17;
/// Part of an entry of the ring: first bit of the lap.
const LAP: u32 = 18;

/// Part of a slot's word: the state, one of the next.
const STATE: u64 = 7;
/// Free, after the ticket before this one: never again with this word.
const FREE: u64 = 0;
/// Free, and this ticket was not used.
const UNUSED: u64 = 4;
const SENT: u64 = 1;
pub(super) const RETURNED: u64 = 2;
const LEASED: u64 = 3;
/// The lease was completed into another queue, whose slot may yet be pending.
pub(super) const MOVED: u64 = 5;
/// Sent if the lease that it belongs to was moved.
pub(super) const PENDING: u64 = 6;
/// Part of a slot's word: first bit of the ticket.
pub(super) const TICKET: u32 = 3;
/// Bits of a ticket in a slot's word.
pub(super) const TICKETS: u64 = (1 << 29) - 1;

const fn lap(entry: u64) -> u64 {
    (entry & !PARKED) >> LAP
}

pub(super) const fn slot_word(state: u64, ticket: u64, identity: u32) -> u64 {
    (identity as u64) << 32 | (ticket & TICKETS) << TICKET | state
}

const fn is_free(word: u64) -> bool {
    matches!(word & STATE, FREE | UNUSED)
}

/// The word of a slot that is free after a value.
const fn free_after(ticket: u64) -> u64 {
    slot_word(FREE, ticket.wrapping_add(1), 0)
}

/// The word with another state, and without waiters' mark.
pub(super) const fn with_state(word: u64, state: u64) -> u64 {
    word & !(STATE | PARKED) | state
}

pub(super) const fn ticket_of(word: u64) -> u64 {
    word >> TICKET & TICKETS
}

pub(super) const fn identity(word: u64) -> u32 {
    (word >> 32) as u32 & 0x7fff_ffff
}

/// Line of the senders' hints.
#[repr(C, align(64))]
struct SentLine<P: Processor> {
    next: P::Word,
    /// Hint for [`is_first`](super::gathering::is_first).
    first: P::Word,
    /// Ticket at which two senders last met.
    met: P::Word,
}

/// Line of the receivers' hints.
#[repr(C, align(64))]
struct TakenLine<P: Processor> {
    next: P::Word,
    /// The receivers' hint for [`gathering`](super::gathering).
    hint: P::Word,
    /// Zero, but for the mark of senders that rest.
    resting: P::Word,
}

/// Head of the queue. All-zero memory is that of an empty one.
#[derive(OpaqueDebug)]
#[repr(C)]
pub struct ManyHead<P: Processor, const N: usize = PLACES> {
    sent: SentLine<P>,
    taken: TakenLine<P>,
    pub(super) members: Members<P, N>,
}

/// The queue, wherever its parts lie.
///
/// `queue` in the examples has room for four numbers; a sender and a receiver have joined it
/// (`doc/queues.rs`).
#[derive(OpaqueDebug)]
pub struct ManyToMany<'a, P: Processor, const N: usize = PLACES> {
    head: &'a ManyHead<P, N>,
    ring: &'a [WordLine<P>],
    slots: &'a [WordLine<P>],
    geometry: QueueGeometry,
    /// True if there may be one receiver only.
    one_receiver: bool,
    /// Words of queues beside this one.
    pub(super) words: Option<&'a dyn LinkedWords<P>>,
}

impl<P: Processor, const N: usize> Clone for ManyToMany<'_, P, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Processor, const N: usize> Copy for ManyToMany<'_, P, N> {}

/// End of the queue from which receivers take.
enum Oldest {
    /// The oldest value: its ticket, its slot, and the slot's word.
    Value(u64, usize, u64),
    /// No value: the next ticket, and the entry of the ring in which it will be.
    Empty(u64, u64),
}

impl<P: Processor, const N: usize> ManyHead<P, N> {
    /// The head of an empty queue, in memory of the given arena.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::queues::ManyHead;
    ///
    /// let head = ManyHead::<Native>::in_arena(&Heap);
    /// assert_eq!(head.limit(&Native::current(), 16), 16); // as many values as slots
    /// ```
    pub fn in_arena(arena: &impl Arena<P>) -> Self {
        let beside = || arena.word(Place::SameLine, 0);
        ManyHead {
            sent: SentLine { next: arena.word(Place::NewLine, 0), first: beside(), met: beside() },
            taken: TakenLine { next: arena.word(Place::NewLine, 0), hint: beside(), resting: beside() },
            members: Members::in_arena(arena),
        }
    }

    /// Limits the queue to so many values at a time, of which its receivers may have some
    /// under leases: for its creator, before others know the queue.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, geometry) = (Native::current(), ManyToMany::<Native>::geometry::<u64>(4));
    /// # let head = ManyHead::<Native>::in_arena(&Heap);
    /// # let [ring, slots] = [geometry.ring_lines(), geometry.slot_lines()]
    /// #     .map(|lines| WordLine::row(&Heap, lines));
    /// head.set_limit(&cpu, 3);
    /// let queue = ManyToMany::of(&head, &ring, &slots, geometry);
    /// # for side in [QueueSide::Sender, QueueSide::Receiver] {
    /// #     queue.join(&cpu, &Spinning, side)?;
    /// # }
    /// for n in 0..3u64 {
    ///     queue.send(&cpu, &Spinning, &n, Deadline::PAST)?;
    /// }
    /// assert!(queue.send(&cpu, &Spinning, &3u64, Deadline::PAST).is_err()); // of four slots
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_limit(&self, cpu: &P, values: usize) {
        self.members.set_limit(cpu, values);
    }

    /// Word for the number of slots, which the lines of a small queue do not tell.
    ///
    /// The creator of a queue that processes share writes it before others know the queue.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native, Ordering, Processor};
    /// # use towpath_sync::queues::ManyHead;
    /// let (cpu, head) = (Native::current(), ManyHead::<Native>::in_arena(&Heap));
    /// cpu.store(head.slots(), 4, Ordering::Relaxed); // processes that map it later read it
    /// assert_eq!(cpu.load(head.slots(), Ordering::Relaxed), 4);
    /// ```
    pub const fn slots(&self) -> &P::Word {
        self.members.slots()
    }

    /// Maximum number of values at a time, in a queue of so many slots.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::queues::ManyHead;
    /// let (cpu, head) = (Native::current(), ManyHead::<Native>::in_arena(&Heap));
    /// head.set_limit(&cpu, 100);
    /// assert_eq!(head.limit(&cpu, 128), 100);
    /// ```
    pub fn limit(&self, cpu: &P, slots: usize) -> usize {
        self.members.limit(cpu, slots)
    }
}

impl<'a, P: Processor, const N: usize> ManyToMany<'a, P, N> {
    /// Maximum number of slots.
    pub const MOST: usize = 1 << 16;

    /// A queue with room for so many values of type `T`, rounded up to a power of two.
    ///
    /// # Panics
    ///
    /// If the capacity is not from 1 to [`ManyToMany::MOST`].
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::queues::ManyToMany;
    ///
    /// assert_eq!(ManyToMany::<Native>::geometry::<u64>(100).capacity(), 128);
    /// ```
    pub fn geometry<T>(capacity: usize) -> QueueGeometry {
        Self::geometry_of(value::words::<T>(), capacity)
    }

    /// A queue as by [`ManyToMany::geometry`], for values of so many words.
    ///
    /// # Panics
    ///
    /// If the capacity is not from 1 to [`ManyToMany::MOST`].
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::queues::ManyToMany;
    ///
    /// type Queue<'a> = ManyToMany<'a, Native>;
    /// assert_eq!(Queue::geometry_of(2, 100), Queue::geometry::<[u64; 2]>(100));
    /// ```
    pub fn geometry_of(words: usize, capacity: usize) -> QueueGeometry {
        assert!((1..=Self::MOST).contains(&capacity), "a queue of {capacity} slots");
        QueueGeometry::of(words, capacity, 1)
    }

    /// The queue of these parts: as many lines as [`QueueGeometry::ring_lines`] and
    /// [`QueueGeometry::slot_lines`] say.
    ///
    /// # Panics
    ///
    /// If there are fewer: here, or when the first is missing.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::queues::{BoundedQueue, ManyHead, ManyToMany, WordLine};
    ///
    /// let geometry = ManyToMany::<Native>::geometry::<u64>(4);
    /// let (head, ring) =
    ///     (ManyHead::<Native>::in_arena(&Heap), WordLine::row(&Heap, geometry.ring_lines()));
    /// let slots = WordLine::row(&Heap, geometry.slot_lines());
    /// let queue = ManyToMany::<Native>::of(&head, &ring, &slots, geometry);
    /// assert!(queue.is_empty(&Native::current()));
    /// ```
    #[inline(always)]
    pub fn of(
        head: &'a ManyHead<P, N>,
        ring: &'a [WordLine<P>],
        slots: &'a [WordLine<P>],
        geometry: QueueGeometry,
    ) -> Self {
        debug_assert!(geometry.capacity() <= Self::MOST);
        debug_assert!(ring.len() >= geometry.ring_lines() && slots.len() >= geometry.slot_lines());
        ManyToMany { head, ring, slots, geometry, one_receiver: false, words: None }
    }

    /// The queue, at which there may be one receiver only: each process says so.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// # queue.leave(&cpu, &Spinning, QueueSide::Receiver);
    /// let queue = queue.of_one_receiver();
    /// queue.join(&cpu, &Spinning, QueueSide::Receiver)?;
    /// let second = queue.join(&cpu, &Spinning, QueueSide::Receiver);
    /// assert!(matches!(second, Err(TransferError::Taken { .. })));
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn of_one_receiver(self) -> Self {
        ManyToMany { one_receiver: true, ..self }
    }

    /// The queue in a memory with others, into which its leases may be completed.
    #[inline(always)]
    pub fn beside(self, words: &'a dyn LinkedWords<P>) -> Self {
        ManyToMany { words: Some(words), ..self }
    }

    /// A copy for a cold function, made where that is called.
    ///
    /// Otherwise it may get the caller's own, which then lies in memory on the hot path, too: there
    /// it is read behind stores that wait for their lines.
    #[inline(always)]
    fn apart(&self) -> Self {
        core::hint::black_box(*self)
    }

    /// The link of a slot.
    pub(super) fn link(&self, slot: usize) -> &'a P::Word {
        word_at(self.ring, self.geometry.capacity() + (slot & self.geometry.mask()))
    }

    /// Number of slots that senders use, and the one that a ticket has where values come
    /// and go in turn.
    #[inline(always)]
    fn used_slots(&self, cpu: &P, ticket: u64) -> (usize, usize) {
        let slots = self.geometry.capacity();
        let used = self.head.members.limit(cpu, slots);
        let first =
            if used == slots { ticket as usize & self.geometry.mask() } else { ticket as usize % used };
        (used, first)
    }

    #[inline(always)]
    fn entry(&self, ticket: u64) -> &'a P::Word {
        word_at(self.ring, ticket as usize & self.geometry.mask())
    }

    #[inline(always)]
    fn read_entry(&self, cpu: &P, ticket: u64) -> u64 {
        // (Q3) Acquire: the value in the slot, and what was sent before; pairs with the Release
        // (Q4).
        cpu.load(self.entry(ticket), Ordering::Acquire)
    }

    #[inline(always)]
    pub(super) fn word(&self, slot: usize, k: usize) -> &'a P::Word {
        word_at(self.slots, self.geometry.place(slot, k))
    }

    /// The lap of a ticket, as an entry has it.
    #[inline(always)]
    fn lap_of(&self, ticket: u64) -> u64 {
        (ticket >> self.geometry.bits()) + 1
    }

    /// The ticket of an entry that lies where that of `at` does.
    #[inline(always)]
    fn ticket_at(&self, at: u64, entry: u64) -> u64 {
        let mask = self.geometry.mask() as u64;
        (lap(entry).wrapping_sub(1) << self.geometry.bits()) | at & mask
    }

    /// Finds the oldest value, and where the next one comes.
    #[inline(always)]
    fn front(&self, cpu: &P) -> Oldest {
        // (Q1) Acquire: what was taken before; pairs with the Release (Q2).
        let mut ticket = cpu.load(&self.head.taken.next, Ordering::Acquire);
        loop {
            let entry = self.read_entry(cpu, ticket);
            let expected = self.lap_of(ticket);
            if lap(entry) < expected {
                return Oldest::Empty(ticket, entry);
            }
            if lap(entry) > expected {
                // A lap ahead: what was there before it has been taken.
                ticket = self.ticket_at(ticket, entry).wrapping_sub(self.geometry.mask() as u64);
                continue;
            }
            let slot = (entry & SLOT) as usize;
            // (Q5) Acquire: the slot's next owner comes after this; pairs with the Release (Q6).
            let word = cpu.load(self.word(slot, 0), Ordering::Acquire);
            if self.waits(word, ticket) {
                return Oldest::Value(ticket, slot, word);
            }
            ticket += 1;
        }
    }

    /// Returns whether a slot's word says that it waits for a receiver since that ticket.
    #[inline(always)]
    fn waits(&self, word: u64, ticket: u64) -> bool {
        matches!(word & STATE, SENT | RETURNED) && ticket_of(word) == ticket & TICKETS
    }

    /// Returns the first ticket that is not in the ring, and the entry there.
    #[inline(always)]
    fn next_ticket(&self, cpu: &P) -> (u64, u64) {
        // (Q7) Acquire: what was sent before comes before what this process sends; pairs with the
        // Release (Q8).
        let mut ticket = cpu.load(&self.head.sent.next, Ordering::Acquire);
        loop {
            let entry = self.read_entry(cpu, ticket);
            let expected = self.lap_of(ticket);
            if lap(entry) == expected - 1 {
                return (ticket, entry);
            }
            ticket = self.after(ticket, entry);
        }
    }

    /// Next ticket to try for, where this entry is not the one a lap before `ticket`.
    fn after(&self, ticket: u64, entry: u64) -> u64 {
        let there = self.ticket_at(ticket, entry);
        // Less only in damaged memory.
        let is_less = lap(entry) < self.lap_of(ticket);
        there.wrapping_add(if is_less { self.geometry.capacity() as u64 } else { 1 })
    }

    /// First word of a slot's value among the words of all slots.
    pub(super) const fn first_word(&self, slot: usize) -> usize {
        self.geometry.place(slot, 1)
    }

    /// The lines of the slots.
    pub(super) const fn slot_lines(&self) -> &'a [WordLine<P>] {
        self.slots
    }

    /// Sends nothing more: puts the mark where the next value would be.
    #[cold]
    fn mark_closed<W: Waiting<P>>(self, cpu: &P, wait: &W) {
        loop {
            let (ticket, entry) = self.next_ticket(cpu);
            let marked = (entry | CLOSED) & !PARKED;
            // Relaxed: a receiver that comes to the mark has come by the entries of all that was
            // sent, and acquired each (Q3).
            if entry & CLOSED != 0
                || cpu
                    .compare_exchange(self.entry(ticket), entry, marked, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
            {
                wait.wake_all(cpu, self.entry(ticket));
                return;
            }
        }
    }
}

impl<P: Processor, const N: usize> BoundedQueue<P> for ManyToMany<'_, P, N> {
    type Seat = ();

    fn join<W: Waiting<P>>(&self, cpu: &P, wait: &W, side: QueueSide) -> Result<(), TransferError> {
        if self.one_receiver {
            return self.head.members.join_one_receiver(cpu, wait, side);
        }
        self.head.members.join(cpu, wait, side)
    }

    #[inline(always)]
    fn send<T: SentWords, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        value: &T,
        deadline: Deadline,
    ) -> Result<(), TransferError> {
        debug_assert!(value.words() < self.geometry.stride());
        if !self.head.members.may_be_without(cpu, QueueSide::Receiver)
            && let Some(reserved) = self.take_next_slot(cpu, wait.identity())
        {
            self.fill(cpu, &reserved, value);
            let ticket = self.put(cpu, wait, reserved)?;
            if ticket != reserved.ticket {
                self.apart().give_way(cpu, wait, ticket, deadline);
            }
            return Ok(());
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
        debug_assert!(shape.words() < self.geometry.stride());
        if value::is_large(shape.words()) {
            let leased = self.lease_in_place(cpu, wait, deadline)?;
            let value = self.read_as(cpu, leased.slot, shape);
            self.complete_own(cpu, wait, leased);
            return Ok(value);
        }
        self.take(cpu, wait, deadline, false, |queue, slot| queue.read_as(cpu, slot, shape))
            .map(|(value, _)| value)
    }

    #[inline]
    fn take_if_there<T: Plain, W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Option<T> {
        if value::is_large(value::words::<T>()) {
            let ((), leased) = self.try_take(cpu, wait, true, |_, _| ()).ok()?;
            let value = self.read(cpu, leased.slot);
            self.complete_own(cpu, wait, leased);
            return Some(value);
        }
        self.try_take(cpu, wait, false, |queue, slot| queue.read(cpu, slot)).ok().map(|(value, _)| value)
    }

    fn close<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        self.head.members.close(cpu);
        self.mark_closed(cpu, wait);
        if let Oldest::Value(_, slot, _) = self.front(cpu) {
            wait.wake_all(cpu, self.word(slot, 0));
        }
        wait.wake_all(cpu, &self.head.taken.resting);
    }

    fn leave<W: Waiting<P>>(&self, cpu: &P, wait: &W, side: QueueSide) {
        if self.head.members.leave(cpu, wait, side) {
            match (side, self.front(cpu)) {
                (QueueSide::Sender, Oldest::Empty(ticket, _)) => wait.wake_all(cpu, self.entry(ticket)),
                (QueueSide::Receiver, Oldest::Value(_, slot, _)) => wait.wake_all(cpu, self.word(slot, 0)),
                _ => {}
            }
            if side == QueueSide::Receiver {
                wait.wake_all(cpu, &self.head.taken.resting);
            }
        }
    }

    fn len(&self, cpu: &P) -> usize {
        let Oldest::Value(first, ..) = self.front(cpu) else { return 0 };
        // Relaxed: a number that may be old when the caller looks at it.
        let next = cpu.load(&self.head.sent.next, Ordering::Relaxed);
        usize::try_from(next.saturating_sub(first))
            .unwrap_or(0)
            .clamp(1, self.head.members.limit(cpu, self.geometry.capacity()))
    }
}
