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
//! **Fields.** `next_to_send`, `next_to_take`: tickets before these were sent, or taken; hints that
//! only save steps. `ring[…]`: by compare-and-swap from one lap to the next; waiters for a value
//! add [`PARKED`]. Slots' words: see above; waiters for room add [`PARKED`] to the oldest one's.
//! Values: the process that took the slot.
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
//! rounded up to a power of two.
//!
//! **Don't use it** for one sender and one receiver: [`OneToOne`](super::OneToOne) is faster. A
//! process that is stopped between two instructions for exactly a multiple of 2²⁹ values, and goes
//! on while the same slot has the same ticket modulo 2²⁹ from the same process, takes that for the
//! old value.

use towpath_machine::{Arena, Ordering, OwnLine, Place, Plain, Processor};

use super::complete_into::LinkedWords;
use super::members::{Members, PLACES, QueueSide};
use super::{BoundedQueue, QueueGeometry, TransferError, WordLine, value, word_at};
use crate::turns::{TURN, Turns};
use crate::{Deadline, PARKED, Waiting};

/// In an entry of the ring: number of the slot.
const SLOT: u64 = (1 << 16) - 1;
/// In an entry of the ring: nothing is sent with this ticket, or a later one.
const CLOSED: u64 = 1 << 17;
/// In an entry of the ring: first bit of the lap.
const LAP: u32 = 18;

/// In a slot's word: the state, one of the next.
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
/// In a slot's word: first bit of the ticket.
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

/// Head of the queue. All-zero memory is that of an empty one.
#[derive(Debug)]
#[repr(C)]
pub struct ManyHead<P: Processor, const N: usize = PLACES> {
    next_to_send: OwnLine<P::Word>,
    next_to_take: OwnLine<P::Word>,
    pub(super) members: Members<P, N>,
}

/// The queue, wherever its parts lie.
#[allow(missing_debug_implementations, reason = "a view")]
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

/// A value that a receiver has, and that comes in again if it dies.
#[derive(Clone, Copy, Debug)]
pub struct Leased {
    pub(super) slot: usize,
    pub(super) word: u64,
}

/// A slot that a sender has, and has yet to send.
#[derive(Clone, Copy, Debug)]
pub struct Reserved {
    pub(super) slot: usize,
    pub(super) word: u64,
    pub(super) ticket: u64,
    pub(super) entry: u64,
}

impl Reserved {
    /// Number of the slot.
    pub const fn slot(&self) -> usize {
        self.slot
    }
}

impl Leased {
    /// Number of the slot.
    pub const fn slot(&self) -> usize {
        self.slot
    }

    /// Returns whether this process has the lease. A forked child has not.
    fn is_of(&self, me: u32) -> bool {
        identity(self.word) == me
    }
}

impl<P: Processor, const N: usize> ManyHead<P, N> {
    /// The head of an empty queue, in memory of the given arena.
    pub fn in_arena(arena: &impl Arena<P>) -> Self {
        ManyHead {
            next_to_send: OwnLine(arena.word(Place::NewLine, 0)),
            next_to_take: OwnLine(arena.word(Place::NewLine, 0)),
            members: Members::in_arena(arena),
        }
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
        assert!((1..=Self::MOST).contains(&capacity), "a queue of {capacity} slots");
        QueueGeometry::of::<T>(capacity, 1)
    }

    /// The queue of these parts: as many lines as [`QueueGeometry::ring_lines`] and
    /// [`QueueGeometry::slot_lines`] say.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    #[inline(always)]
    pub fn of(
        head: &'a ManyHead<P, N>,
        ring: &'a [WordLine<P>],
        slots: &'a [WordLine<P>],
        geometry: QueueGeometry,
    ) -> Self {
        debug_assert!(geometry.capacity() <= Self::MOST);
        assert!(ring.len() >= geometry.ring_lines() && slots.len() >= geometry.slot_lines());
        ManyToMany { head, ring, slots, geometry, one_receiver: false, words: None }
    }

    /// The queue, at which there may be one receiver only: each process says so.
    #[inline(always)]
    pub fn of_one_receiver(self) -> Self {
        ManyToMany { one_receiver: true, ..self }
    }

    /// The queue in a memory with others, into which its leases may be completed.
    #[inline(always)]
    pub fn beside(self, words: &'a dyn LinkedWords<P>) -> Self {
        ManyToMany { words: Some(words), ..self }
    }

    /// The link of a slot.
    pub(super) fn link(&self, slot: usize) -> &'a P::Word {
        word_at(self.ring, self.geometry.capacity() + (slot & self.geometry.mask()))
    }

    #[inline(always)]
    fn entry(&self, ticket: u64) -> &'a P::Word {
        word_at(self.ring, ticket as usize & self.geometry.mask())
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
    #[inline]
    fn front(&self, cpu: &P) -> Oldest {
        // (Q1) Acquire: what was taken before; pairs with the Release (Q2).
        let mut ticket = cpu.load(&self.head.next_to_take, Ordering::Acquire);
        loop {
            // (Q3) Acquire: the value in the slot; pairs with the Release (Q4).
            let entry = cpu.load(self.entry(ticket), Ordering::Acquire);
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
    #[inline]
    fn next_ticket(&self, cpu: &P) -> (u64, u64) {
        // (Q7) Acquire: what was sent before comes before what this process sends; pairs with the
        // Release (Q8).
        let mut ticket = cpu.load(&self.head.next_to_send, Ordering::Acquire);
        loop {
            // (Q3b) Acquire: as (Q7): what was sent before; pairs with the Release (Q4).
            let entry = cpu.load(self.entry(ticket), Ordering::Acquire);
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

    /// Takes a free slot for the calling process, with a ticket and the entry there.
    #[inline]
    fn take_slot(&self, cpu: &P, me: u32) -> Option<Reserved> {
        // Relaxed: where values come and go in turn, the next free slot has the number of the
        // ticket.
        let first = cpu.load(&self.head.next_to_send, Ordering::Relaxed) as usize;
        for i in 0..self.geometry.capacity() {
            let slot = first.wrapping_add(i) & self.geometry.mask();
            // (Q5d) Acquire: it is free before the next look at the ring; pairs with (Q6).
            let free = cpu.load(self.word(slot, 0), Ordering::Acquire);
            if !is_free(free) {
                continue;
            }
            // A ticket that this slot never had: it is still free, with its last ticket, below.
            let (ticket, entry) = self.next_ticket(cpu);
            let word = slot_word(SENT, ticket, me);
            // (Q9) Acquire: the last reader of the slot has read; pairs with the Release (Q6).
            let taken =
                cpu.compare_exchange(self.word(slot, 0), free, word, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                return Some(Reserved { slot, word, ticket, entry });
            }
        }
        None
    }

    /// Puts a slot of the calling process into the ring.
    ///
    /// # Errors
    ///
    /// [`TransferError::Closed`]; the slot is free then, unless it was returned.
    #[inline]
    pub(super) fn put<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        reserved: Reserved,
    ) -> Result<(), TransferError> {
        let Reserved { slot, mut word, mut ticket, mut entry } = reserved;
        let returned = word & STATE == RETURNED;
        loop {
            if entry & CLOSED != 0 && !returned {
                self.free(cpu, wait, slot, word);
                return Err(TransferError::Closed);
            }
            let next = self.lap_of(ticket) << LAP | slot as u64;
            // (Q4) Release: the value, and what its sender knew of the queue, comes before its
            // receipt; pairs with the Acquire (Q3), (Q3b), also of a failure. Not Acquire: the
            // entry is one that this process has acquired.
            let done =
                cpu.compare_exchange(self.entry(ticket), entry, next, Ordering::Release, Ordering::Acquire);
            if let Err(now) = done {
                entry = now;
                while lap(entry) != self.lap_of(ticket) - 1 {
                    ticket = self.after(ticket, entry);
                    word = self.retry(cpu, slot, word, ticket);
                    // (Q3e) Acquire: as (Q3b); pairs with the Release (Q4).
                    entry = cpu.load(self.entry(ticket), Ordering::Acquire);
                }
                continue;
            }
            if entry & PARKED != 0 {
                wait.wake_all(cpu, self.entry(ticket));
            }
            // (Q8) Release: as (Q4); pairs with the Acquire (Q7).
            cpu.store(&self.head.next_to_send, ticket + 1, Ordering::Release);
            if entry & CLOSED != 0 {
                self.mark_closed(cpu, wait);
            }
            return Ok(());
        }
    }

    /// Writes another ticket into the word of a slot that is not in the ring.
    #[cold]
    fn retry(&self, cpu: &P, slot: usize, word: u64, ticket: u64) -> u64 {
        let next = word & !(TICKETS << TICKET | PARKED) | (ticket & TICKETS) << TICKET;
        let mut seen = word;
        // Relaxed, both: no other reads it before it is in the ring (Q4), but waiters that mark it.
        while let Err(now) = cpu.compare_exchange(
            self.word(slot, 0),
            seen,
            next | seen & PARKED,
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            if now & !PARKED != word & !PARKED {
                // Damaged memory: another has changed the word.
                return next;
            }
            seen = now;
        }
        next
    }

    /// Frees a slot of the calling process, whose word is this, but for waiters' marks.
    pub(super) fn free<W: Waiting<P>>(&self, cpu: &P, wait: &W, slot: usize, word: u64) -> bool {
        let ticket = ticket_of(word);
        let was_in_ring = matches!(word & STATE, LEASED | MOVED);
        let free = if was_in_ring { free_after(ticket) } else { slot_word(UNUSED, ticket, 0) };
        let Some(seen) = self.change(cpu, slot, word, |_| free) else { return false };
        if seen & PARKED != 0 {
            wait.wake_all(cpu, self.word(slot, 0));
        }
        true
    }

    /// Changes a slot's word that is this, but for waiters' marks. Returns the word that
    /// it was, or `None` if it is another one.
    #[inline]
    pub(super) fn change(&self, cpu: &P, slot: usize, word: u64, next: impl Fn(u64) -> u64) -> Option<u64> {
        let mut seen = word;
        loop {
            // (Q6) Release: what was read there comes before what the next owner writes; pairs with
            // the Acquire (Q9), (Q5). Not Acquire: the word is this process's own, or a dead one's.
            match cpu.compare_exchange(
                self.word(slot, 0),
                seen,
                next(seen),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(seen),
                Err(now) if now & !PARKED == word & !PARKED => seen = now,
                Err(_) => return None,
            }
        }
    }

    /// Wakes senders that sleep on the oldest value's slot, after another became free.
    pub(super) fn wake_senders<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        let (slot, word) = self.turn_of_senders(cpu);
        if word & PARKED != 0 {
            wait.wake_all(cpu, self.word(slot, 0));
        }
    }

    /// The slot that becomes free next if all is taken in turn, with its word: senders
    /// that wait for room wait there.
    fn turn_of_senders(&self, cpu: &P) -> (usize, u64) {
        match self.front(cpu) {
            Oldest::Value(_, slot, word) => (slot, word),
            Oldest::Empty(ticket, _) => {
                let slot = ticket as usize & self.geometry.mask();
                // Relaxed: to wait for its change.
                (slot, cpu.load(self.word(slot, 0), Ordering::Relaxed))
            }
        }
    }

    /// Takes a slot for a value, when there is one: the caller fills it, and then
    /// [publishes](ManyToMany::publish) it or [gives it up](ManyToMany::give_up). If the caller
    /// dies before, nothing was sent.
    ///
    /// # Errors
    ///
    /// As [`BoundedQueue::send`].
    #[inline]
    pub fn reserve<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
    ) -> Result<Reserved, TransferError> {
        if !self.head.members.may_be_without(cpu, QueueSide::Receiver)
            && let Some(reserved) = self.take_slot(cpu, wait.identity())
        {
            return Ok(reserved);
        }
        self.reserve_slowly(cpu, wait, deadline)
    }

    /// Writes a value into a slot that the caller reserved.
    #[inline]
    pub fn fill<T: Plain>(&self, cpu: &P, reserved: &Reserved, value: &T) {
        for k in 0..value::words::<T>() {
            // Relaxed: published by (Q4), and read again only after (Q9).
            cpu.store(self.word(reserved.slot, 1 + k), value::word(value, k), Ordering::Relaxed);
        }
    }

    /// Sends the value in a slot that the caller reserved.
    ///
    /// # Errors
    ///
    /// [`TransferError::Closed`]; [`TransferError::NotEntered`] if another process reserved it.
    #[inline]
    pub fn publish<W: Waiting<P>>(&self, cpu: &P, wait: &W, reserved: Reserved) -> Result<(), TransferError> {
        // A forked child does not have its parent's slot.
        if identity(reserved.word) != wait.identity() {
            return Err(TransferError::NotEntered);
        }
        self.put(cpu, wait, reserved)
    }

    /// Frees a slot that the caller reserved: nothing is sent.
    pub fn give_up<W: Waiting<P>>(&self, cpu: &P, wait: &W, reserved: Reserved) {
        let is_mine = identity(reserved.word) == wait.identity();
        if is_mine && self.free(cpu, wait, reserved.slot, reserved.word) {
            self.wake_senders(cpu, wait);
        }
    }

    #[cold]
    fn send_slowly<T: Plain, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        value: &T,
        deadline: Deadline,
    ) -> Result<(), TransferError> {
        let reserved = self.reserve_slowly(cpu, wait, deadline)?;
        self.fill(cpu, &reserved, value);
        self.put(cpu, wait, reserved)
    }

    #[cold]
    fn reserve_slowly<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
    ) -> Result<Reserved, TransferError> {
        let mut turns = None;
        loop {
            self.head.members.check_receivers(cpu, wait)?;
            // First the word to wait on: it changes when the next slot in turn becomes free.
            let (slot, word) = self.turn_of_senders(cpu);
            if let Some(reserved) = self.take_slot(cpu, wait.identity()) {
                return Ok(reserved);
            }
            let turns = turns.get_or_insert_with(|| Turns::new(cpu, deadline, TURN));
            if self.head.members.is_time_to_ask(cpu, turns, deadline) {
                if self.repair(cpu, wait) {
                    continue;
                }
                if let Some(end) = self.head.members.end_of(cpu, wait, QueueSide::Receiver) {
                    return Err(end);
                }
            }
            turns.wait(cpu, wait, self.word(slot, 0), word & !PARKED)?;
        }
    }

    /// Takes the oldest value, which is read before: its slot is leased, or free.
    #[inline]
    fn try_take<R, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        leases: bool,
        read: impl Fn(usize) -> R,
    ) -> Result<(R, Leased), (u64, u64)> {
        loop {
            let (ticket, slot, word) = match self.front(cpu) {
                Oldest::Value(ticket, slot, word) => (ticket, slot, word),
                Oldest::Empty(ticket, entry) => return Err((ticket, entry)),
            };
            let value = read(slot);
            let next = if leases { slot_word(LEASED, ticket, wait.identity()) } else { free_after(ticket) };
            // (Q6b) Release: as (Q6): what was read comes before what the next owner writes, or it
            // fails; pairs with the Acquire (Q9), (Q5). Not Acquire: (Q5) has acquired the word.
            let taken =
                cpu.compare_exchange(self.word(slot, 0), word, next, Ordering::Release, Ordering::Relaxed);
            if taken.is_err() {
                continue;
            }
            if word & PARKED != 0 {
                wait.wake_all(cpu, self.word(slot, 0));
            }
            // (Q2) Release: the slot's word; pairs with the Acquire (Q1).
            cpu.store(&self.head.next_to_take, ticket + 1, Ordering::Release);
            return Ok((value, Leased { slot, word: next }));
        }
    }

    fn read<T: Plain>(&self, cpu: &P, slot: usize) -> T {
        // Relaxed: after (Q3), (Q5), before (Q6b), or (Q6) of a large one.
        value::from_words(|k| cpu.load(self.word(slot, 1 + k), Ordering::Relaxed))
    }

    #[cold]
    fn take_slowly<R, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
        leases: bool,
        read: impl Fn(usize) -> R,
    ) -> Result<(R, Leased), TransferError> {
        let mut turns = None;
        let mut end = None;
        loop {
            let (ticket, entry) = match self.try_take(cpu, wait, leases, &read) {
                Ok(taken) => return Ok(taken),
                Err(empty) => empty,
            };
            // It was over before the last look.
            if let Some(end) = end {
                return Err(end);
            }
            let is_closed = entry & CLOSED != 0;
            if !is_closed && self.head.members.is_closed(cpu) {
                self.mark_closed(cpu, wait);
                continue;
            }
            let turns = turns.get_or_insert_with(|| Turns::new(cpu, deadline, TURN));
            if is_closed
                || self.head.members.is_time_to_ask(cpu, turns, deadline)
                || self.head.members.may_be_without(cpu, QueueSide::Sender)
            {
                if self.repair(cpu, wait) {
                    continue;
                }
                let why = if is_closed {
                    Some(TransferError::Closed)
                } else {
                    self.head.members.end_of(cpu, wait, QueueSide::Sender)
                };
                end = why.filter(|_| !self.may_come_again(cpu, wait));
                if end.is_some() {
                    continue;
                }
            }
            turns.wait(cpu, wait, self.entry(ticket), entry & !PARKED)?;
        }
    }

    /// Frees the slots of the dead, and sends the values again that they had leased.
    /// Returns whether there were any.
    pub fn repair<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> bool {
        let mut any = false;
        for slot in 0..self.geometry.capacity() {
            // (Q5b) Acquire: as (Q5); pairs with the Release (Q6).
            let word = cpu.load(self.word(slot, 0), Ordering::Acquire);
            let state = word & STATE;
            if is_free(word) || self.is_in_ring(cpu, slot, word) || wait.is_alive(identity(word)) {
                continue;
            }
            // The dead one did no more after it was found dead.
            any |= match state {
                PENDING => self.settle_pending(cpu, wait, slot, word),
                MOVED => self.settle_moved(cpu, wait, slot, word),
                LEASED => self.send_again(cpu, wait, slot, word),
                _ if self.is_in_ring(cpu, slot, word) => false,
                SENT => self.free(cpu, wait, slot, word),
                _ => self.send_again(cpu, wait, slot, word),
            };
        }
        if any {
            self.wake_senders(cpu, wait);
        }
        any
    }

    /// Returns whether a value may yet come though no more are sent: another process has
    /// it. A process that has a lease itself does not wait for those of others, since they
    /// might wait for it.
    #[cold]
    fn may_come_again<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> bool {
        let mut may = false;
        // A value keeps its slot, and none is filled anew: a slot that is empty here stays so.
        for slot in 0..self.geometry.capacity() {
            // Relaxed: that it was sent is known from the ring, and nothing is read there.
            let word = cpu.load(self.word(slot, 0), Ordering::Relaxed);
            may |= match word & STATE {
                LEASED if identity(word) == wait.identity() => return false,
                SENT => self.is_in_ring(cpu, slot, word),
                LEASED | RETURNED | PENDING => true,
                _ => false,
            };
        }
        may
    }

    /// Returns whether a slot whose word is this was put into the ring, with its present
    /// ticket.
    fn is_in_ring(&self, cpu: &P, slot: usize, word: u64) -> bool {
        let ticket = ticket_of(word);
        // (Q3c) Acquire: as (Q3); pairs with the Release (Q4).
        let entry = cpu.load(self.entry(ticket), Ordering::Acquire);
        matches!(word & STATE, SENT | RETURNED)
            && lap(entry) > 0
            && (entry & SLOT) as usize == slot
            && self.ticket_at(ticket, entry) & TICKETS == ticket
    }

    /// Takes over the leased slot of a dead process, or of the caller, and sends its
    /// value again. Returns whether it did.
    pub(super) fn send_again<W: Waiting<P>>(&self, cpu: &P, wait: &W, slot: usize, word: u64) -> bool {
        // A ticket that this slot never had, since it was leased before.
        let (ticket, entry) = self.next_ticket(cpu);
        let next = slot_word(RETURNED, ticket, wait.identity());
        self.change(cpu, slot, word, |seen| next | seen & PARKED).is_some()
            && self.put(cpu, wait, Reserved { slot, word: next, ticket, entry }).is_ok()
    }

    /// Sends nothing more: puts the mark where the next value would be.
    fn mark_closed<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
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

    /// Takes the oldest value, and leaves it in its slot until it is completed: it comes
    /// in again if the caller dies, or gives it back.
    ///
    /// # Errors
    ///
    /// As [`BoundedQueue::receive`].
    pub fn receive_leased<T: Plain, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
    ) -> Result<(T, Leased), TransferError> {
        if value::is_large::<T>() {
            let leased = self.lease_in_place(cpu, wait, deadline)?;
            return Ok((self.read(cpu, leased.slot), leased));
        }
        self.take(cpu, wait, deadline, true, |slot| self.read(cpu, slot))
    }

    /// Takes the oldest value as [`ManyToMany::receive_leased`], and leaves it to the
    /// caller to read it in its slot.
    ///
    /// # Errors
    ///
    /// As [`BoundedQueue::receive`].
    pub fn lease_in_place<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
    ) -> Result<Leased, TransferError> {
        self.take(cpu, wait, deadline, true, |_| ()).map(|((), leased)| leased)
    }

    /// Takes the oldest value, when there is one: its slot is leased, or free.
    #[inline]
    fn take<R, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
        leases: bool,
        read: impl Fn(usize) -> R,
    ) -> Result<(R, Leased), TransferError> {
        match self.try_take(cpu, wait, leases, &read) {
            Ok(taken) => Ok(taken),
            Err(_) => self.take_slowly(cpu, wait, deadline, leases, &read),
        }
    }

    /// Ends a lease: the value is done with, or comes in again.
    pub(super) fn end<W: Waiting<P>>(&self, cpu: &P, wait: &W, leased: Leased, completed: bool) {
        if completed {
            self.complete(cpu, wait, leased);
        } else {
            self.give_back(cpu, wait, leased);
        }
    }

    /// Ends a lease: the value is done with.
    pub fn complete<W: Waiting<P>>(&self, cpu: &P, wait: &W, leased: Leased) {
        if leased.is_of(wait.identity()) && self.free(cpu, wait, leased.slot, leased.word) {
            self.wake_senders(cpu, wait);
        }
    }

    /// Ends a lease: the value comes in again.
    pub fn give_back<W: Waiting<P>>(&self, cpu: &P, wait: &W, leased: Leased) {
        if leased.is_of(wait.identity()) {
            self.send_again(cpu, wait, leased.slot, leased.word);
        }
    }
}

impl<P: Processor, const N: usize> BoundedQueue<P> for ManyToMany<'_, P, N> {
    fn join<W: Waiting<P>>(&self, cpu: &P, wait: &W, side: QueueSide) -> Result<(), TransferError> {
        if self.one_receiver {
            return self.head.members.join_one_receiver(cpu, wait, side);
        }
        self.head.members.join(cpu, wait, side)
    }

    #[inline]
    fn send<T: Plain, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        value: &T,
        deadline: Deadline,
    ) -> Result<(), TransferError> {
        debug_assert!(value::words::<T>() < self.geometry.stride());
        if !self.head.members.may_be_without(cpu, QueueSide::Receiver)
            && let Some(reserved) = self.take_slot(cpu, wait.identity())
        {
            self.fill(cpu, &reserved, value);
            return self.put(cpu, wait, reserved);
        }
        self.send_slowly(cpu, wait, value, deadline)
    }

    #[inline]
    fn receive<T: Plain, W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
    ) -> Result<T, TransferError> {
        debug_assert!(value::words::<T>() < self.geometry.stride());
        if value::is_large::<T>() {
            let (value, leased) = self.receive_leased(cpu, wait, deadline)?;
            self.complete(cpu, wait, leased);
            return Ok(value);
        }
        self.take(cpu, wait, deadline, false, |slot| self.read(cpu, slot)).map(|(value, _)| value)
    }

    #[inline]
    fn take_if_there<T: Plain, W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Option<T> {
        if value::is_large::<T>() {
            let ((), leased) = self.try_take(cpu, wait, true, |_| ()).ok()?;
            let value = self.read(cpu, leased.slot);
            self.complete(cpu, wait, leased);
            return Some(value);
        }
        self.try_take(cpu, wait, false, |slot| self.read(cpu, slot)).ok().map(|(value, _)| value)
    }

    fn close<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        self.head.members.close(cpu);
        self.mark_closed(cpu, wait);
        if let Oldest::Value(_, slot, _) = self.front(cpu) {
            wait.wake_all(cpu, self.word(slot, 0));
        }
    }

    fn leave<W: Waiting<P>>(&self, cpu: &P, wait: &W, side: QueueSide) {
        if self.head.members.leave(cpu, wait, side) {
            match (side, self.front(cpu)) {
                (QueueSide::Sender, Oldest::Empty(ticket, _)) => wait.wake_all(cpu, self.entry(ticket)),
                (QueueSide::Receiver, Oldest::Value(_, slot, _)) => wait.wake_all(cpu, self.word(slot, 0)),
                _ => {}
            }
        }
    }

    fn len(&self, cpu: &P) -> usize {
        let Oldest::Value(first, ..) = self.front(cpu) else { return 0 };
        // Relaxed: a number that may be old when the caller looks at it.
        let next = cpu.load(&self.head.next_to_send, Ordering::Relaxed);
        usize::try_from(next.saturating_sub(first)).unwrap_or(0).clamp(1, self.geometry.capacity())
    }
}
