//! `members`: the processes at a queue, as senders and receivers, so that one side learns
//! that the other has gone or died.
//!
//! **Source.** Ours: a table of identities with counts, as [`Semaphore`](crate::robust::Semaphore)
//! has it.
//!
//! **Progress.** Lock-free. Only joining, leaving and long waits come here, not sending and
//! receiving.
//!
//! ```text
//! places[i]:  62            32 31       16 15        0
//!             [ identity      ][ senders  ][ receivers ]
//! ```
//!
//! **Fields.** `flags`: closed; a sender, or receiver, has left or was dropped after its death;
//! hints that the last one has gone. Any process, by or/and. `limit`, `slots`: the queue's creator,
//! before others know the queue. `asked`: any that does not wait. `places[i]`: 0; from 0, or from a
//! dead process's, by the process that takes it; its counts by that process; back to 0 by it, or by
//! one that joins on the side of the dead.
//!
//! **Crashes.** One that joins, before its place is taken: it was never there. Afterwards: a dead
//! member, whose place tells the other side of its death, until another process joins on its side.
//! One that leaves, before the exchange: a dead member; after it: has left. The hint may be missing
//! or too much: it is looked at again.
//!
//! **Memory.** `N` / 8 + 1 lines.

use towpath_machine::{Arena, Ordering, Place, Processor};

use super::TransferError;
use crate::turns::Turns;
use crate::{Deadline, Waiting};

/// Usual number of processes that can be at a queue at one time.
pub(super) const PLACES: usize = 64;

/// Time between two questions for deaths by callers that do not wait, in nanoseconds.
const ASK_EVERY: u64 = 1_000_000;

/// Part of the flags: the queue was closed.
pub(super) const CLOSED: u64 = 1;
/// Part of the flags: first of the bits that say that a member of a side has left.
const LEFT: u32 = 1;
/// Part of the flags: first of the bits that hint that a side has gone.
const GONE: u32 = 3;

/// A side of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueSide {
    /// Sends.
    Sender,
    /// Receives.
    Receiver,
}

impl QueueSide {
    const fn bit(self) -> u32 {
        match self {
            QueueSide::Sender => 0,
            QueueSide::Receiver => 1,
        }
    }
    /// Number 1 in this side's bits of a place.
    const fn one(self) -> u64 {
        match self {
            QueueSide::Sender => 1 << 16,
            QueueSide::Receiver => 1,
        }
    }
    /// Number of this side in a place.
    const fn count(self, place: u64) -> u64 {
        ((place & 0xffff_ffff) / self.one()) & 0xffff
    }
}

const fn identity(place: u64) -> u32 {
    (place >> 32) as u32 & 0x7fff_ffff
}

/// A place with so much less of its counts: empty if nothing is left of them.
const fn without(place: u64, counts: u64) -> u64 {
    let rest = place - counts;
    if rest & 0xffff_ffff == 0 { 0 } else { rest }
}

/// The line of the flags.
#[derive(Debug)]
#[repr(C, align(64))]
struct FlagsLine<P: Processor> {
    bits: P::Word,
    /// Time of the last question for deaths by a caller that does not wait.
    asked: P::Word,
    /// Maximum number of values at a time; 0: as many as there are slots.
    limit: P::Word,
    /// Number of slots; 0: the most that fit into the queue's lines.
    slots: P::Word,
}

/// The table.
#[derive(Debug)]
#[repr(C)]
pub struct Members<P: Processor, const N: usize = PLACES> {
    flags: FlagsLine<P>,
    places: [P::Word; N],
}

impl<P: Processor, const N: usize> Members<P, N> {
    /// A table without members.
    #[doc(hidden)]
    pub fn in_arena(arena: &impl Arena<P>) -> Self {
        Members {
            flags: FlagsLine {
                bits: arena.word(Place::NewLine, 0),
                asked: arena.word(Place::SameLine, 0),
                limit: arena.word(Place::SameLine, 0),
                slots: arena.word(Place::SameLine, 0),
            },
            places: core::array::from_fn(|i| arena.word(Place::in_row(i % 8), 0)),
        }
    }

    /// Maximum number of values at a time, in a queue of so many slots.
    #[inline(always)]
    pub(super) fn limit(&self, cpu: &P, slots: usize) -> usize {
        // Relaxed: written before others know the queue.
        match cpu.load(&self.flags.limit, Ordering::Relaxed) {
            0 => slots,
            limit => usize::try_from(limit).unwrap_or(slots).min(slots),
        }
    }

    pub(super) const fn slots(&self) -> &P::Word {
        &self.flags.slots
    }

    pub(super) fn set_limit(&self, cpu: &P, values: usize) {
        // Relaxed: as in `limit`.
        cpu.store(&self.flags.limit, values as u64, Ordering::Relaxed);
    }

    /// Returns whether a value for that side may be in vain: the queue was closed, or
    /// that side has gone. A hint.
    #[inline(always)]
    pub(super) fn may_be_without(&self, cpu: &P, side: QueueSide) -> bool {
        // Relaxed: a hint, which is looked at again.
        cpu.load(&self.flags.bits, Ordering::Relaxed) & (CLOSED | 1 << (GONE + side.bit())) != 0
    }

    pub(super) fn is_closed(&self, cpu: &P) -> bool {
        // Relaxed: what was sent before lies before the mark in the ring.
        cpu.load(&self.flags.bits, Ordering::Relaxed) & CLOSED != 0
    }

    pub(super) fn close(&self, cpu: &P) {
        // Relaxed: as in `is_closed`.
        cpu.fetch_or(&self.flags.bits, CLOSED, Ordering::Relaxed);
    }

    /// Returns `Ok` if a value may be sent: the queue is not closed, and has not lost its
    /// last receiver.
    ///
    /// # Errors
    ///
    /// [`TransferError::Closed`], and those of [`Members::end_of`].
    pub(super) fn check_receivers<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<(), TransferError> {
        if self.is_closed(cpu) {
            return Err(TransferError::Closed);
        }
        if !self.may_be_without(cpu, QueueSide::Receiver) {
            return Ok(());
        }
        self.end_of(cpu, wait, QueueSide::Receiver).map_or(Ok(()), Err)
    }

    /// Enters the calling process on a side, once more.
    ///
    /// # Errors
    ///
    /// [`TransferError::Capacity`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::Spinning;
    /// # use towpath_sync::queues::{Members, QueueSide};
    /// # let (cpu, members) = (Native::current(), Members::<Native, 4>::in_arena(&Heap));
    /// for _ in 0..3 {
    ///     members.join(&cpu, &Spinning, QueueSide::Sender)?; // three senders of this process
    /// }
    /// # Ok::<(), towpath_sync::queues::TransferError>(())
    /// ```
    pub fn join<W: Waiting<P>>(&self, cpu: &P, wait: &W, side: QueueSide) -> Result<(), TransferError> {
        self.join_one_of(&self.places, cpu, wait, side)
    }

    /// Enters the calling process on a side, once more, where receivers enter alone: the
    /// last place is theirs.
    ///
    /// # Errors
    ///
    /// [`TransferError::Capacity`]; [`TransferError::Taken`].
    pub(super) fn join_one_receiver<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        side: QueueSide,
    ) -> Result<(), TransferError> {
        match side {
            QueueSide::Sender => self.join_one_of(&self.places[..N - 1], cpu, wait, side),
            QueueSide::Receiver => self.join_alone_at(&self.places[N - 1], cpu, wait, side),
        }
    }

    fn join_one_of<W: Waiting<P>>(
        &self,
        places: &[P::Word],
        cpu: &P,
        wait: &W,
        side: QueueSide,
    ) -> Result<(), TransferError> {
        let me = wait.identity();
        'again: loop {
            let mut other = None;
            for place in places {
                // Relaxed: the exchange compares.
                let seen = cpu.load(place, Ordering::Relaxed);
                let is_mine = seen != 0 && identity(seen) == me;
                if is_mine && side.count(seen) == 0xffff {
                    continue;
                }
                if is_mine {
                    if self.change(cpu, place, seen, seen + side.one()) {
                        break 'again;
                    }
                    continue 'again;
                }
                if seen != 0 && side.count(seen) > 0 && !wait.is_alive(identity(seen)) {
                    // No longer the last on this side.
                    let rest = without(seen, side.one() * side.count(seen));
                    if !self.change(cpu, place, seen, rest) {
                        continue 'again;
                    }
                    if rest == 0 {
                        other.get_or_insert((place, 0));
                    }
                } else if seen == 0 {
                    other.get_or_insert((place, 0));
                }
            }
            let dead = || {
                let all = places.iter().map(|place| (place, cpu.load(place, Ordering::Relaxed)));
                all.into_iter().find(|&(_, seen)| seen != 0 && !wait.is_alive(identity(seen)))
            };
            let (place, seen) = other.or_else(dead).ok_or(TransferError::Capacity)?;
            for lost in [QueueSide::Sender, QueueSide::Receiver] {
                if lost.count(seen) > 0 {
                    self.note_left(cpu, lost);
                }
            }
            if self.change(cpu, place, seen, u64::from(me) << 32 | side.one()) {
                break;
            }
        }
        self.is_there(cpu, side);
        Ok(())
    }

    /// Notes that a member of a side leaves, or is dropped, before its place changes.
    fn note_left(&self, cpu: &P, side: QueueSide) {
        // Relaxed: published by the exchange of the place (QM1).
        cpu.fetch_or(&self.flags.bits, 1 << (LEFT + side.bit()), Ordering::Relaxed);
    }

    /// Takes the hint away that a side has gone.
    fn is_there(&self, cpu: &P, side: QueueSide) {
        let gone = 1 << (GONE + side.bit());
        // Relaxed, both: a hint.
        if cpu.load(&self.flags.bits, Ordering::Relaxed) & gone != 0 {
            cpu.fetch_and(&self.flags.bits, !gone, Ordering::Relaxed);
        }
    }

    /// Enters the calling process on a side on which there may be one only.
    ///
    /// # Errors
    ///
    /// [`TransferError::Taken`].
    pub(super) fn join_alone<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        side: QueueSide,
    ) -> Result<(), TransferError> {
        self.join_alone_at(&self.places[side.bit() as usize], cpu, wait, side)
    }

    fn join_alone_at<W: Waiting<P>>(
        &self,
        place: &P::Word,
        cpu: &P,
        wait: &W,
        side: QueueSide,
    ) -> Result<(), TransferError> {
        loop {
            // Relaxed: the exchange compares.
            let seen = cpu.load(place, Ordering::Relaxed);
            if seen != 0 && wait.is_alive(identity(seen)) {
                return Err(TransferError::Taken { rank: wait.rank_of(identity(seen)) });
            }
            if self.change(cpu, place, seen, u64::from(wait.identity()) << 32 | side.one()) {
                break;
            }
        }
        self.is_there(cpu, side);
        Ok(())
    }

    /// Returns whether a waiter asks for deaths now: now and then, and before it gives
    /// up. Callers that never wait ask now and then together.
    pub(super) fn is_time_to_ask(&self, cpu: &P, turns: &mut Turns, deadline: Deadline) -> bool {
        if deadline > Deadline::ONE_TURN {
            return turns.is_time_to_ask(cpu);
        }
        let now = cpu.now();
        // Relaxed, both: a hint.
        let is_time = now.wrapping_sub(cpu.load(&self.flags.asked, Ordering::Relaxed)) >= ASK_EVERY;
        if is_time {
            cpu.store(&self.flags.asked, now, Ordering::Relaxed);
        }
        is_time
    }

    /// Returns why no more comes from senders, if that is so, to a waiter.
    ///
    /// It asks when it is time to, and when a hint says that they may have gone.
    pub(super) fn end_of_senders<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        turns: &mut Turns,
        deadline: Deadline,
    ) -> Option<TransferError> {
        let asks = self.is_time_to_ask(cpu, turns, deadline) || self.may_be_without(cpu, QueueSide::Sender);
        if asks { self.end_of(cpu, wait, QueueSide::Sender) } else { None }
    }

    /// Takes the calling process off a side, once. Returns whether it was the last.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::Spinning;
    /// # use towpath_sync::queues::{Members, QueueSide};
    /// # let (cpu, members) = (Native::current(), Members::<Native, 4>::in_arena(&Heap));
    /// members.join(&cpu, &Spinning, QueueSide::Sender)?;
    /// members.join(&cpu, &Spinning, QueueSide::Sender)?;
    /// let leave = || members.leave(&cpu, &Spinning, QueueSide::Sender);
    /// assert_eq!([leave(), leave()], [false, true]); // the last one
    /// # Ok::<(), towpath_sync::queues::TransferError>(())
    /// ```
    pub fn leave<W: Waiting<P>>(&self, cpu: &P, wait: &W, side: QueueSide) -> bool {
        let me = wait.identity();
        'again: loop {
            for place in &self.places {
                // Relaxed: the exchange compares.
                let seen = cpu.load(place, Ordering::Relaxed);
                if seen == 0 || identity(seen) != me || side.count(seen) == 0 {
                    continue;
                }
                let rest = without(seen, side.one());
                self.note_left(cpu, side);
                if !self.change(cpu, place, seen, rest) {
                    continue 'again;
                }
                break 'again;
            }
            return false;
        }
        // (QM3) SeqCst: of two that leave at one time, one sees the other's place empty; pairs
        // with itself.
        cpu.fence(Ordering::SeqCst);
        // Relaxed: ordered by (QM3).
        let is_there = |place: &P::Word| side.count(cpu.load(place, Ordering::Relaxed)) > 0;
        if self.places.iter().any(is_there) {
            return false;
        }
        // Relaxed: a hint.
        cpu.fetch_or(&self.flags.bits, 1 << (GONE + side.bit()), Ordering::Relaxed);
        true
    }

    fn change(&self, cpu: &P, place: &P::Word, seen: u64, next: u64) -> bool {
        // (QM1) AcqRel: what a process sent comes before its leaving; pairs with the Acquire (QM2).
        cpu.compare_exchange(place, seen, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Returns why no more comes from that side, or goes to it, if that is so: it was
    /// there, and is not any more.
    pub(super) fn end_of<W: Waiting<P>>(&self, cpu: &P, wait: &W, side: QueueSide) -> Option<TransferError> {
        // Twice: one may join at a place that was looked at before another leaves.
        self.look(cpu, wait, side).and_then(|_| self.look(cpu, wait, side))
    }

    fn look<W: Waiting<P>>(&self, cpu: &P, wait: &W, side: QueueSide) -> Option<TransferError> {
        let mut dead = None;
        for place in &self.places {
            // (QM2) Acquire: all that a process sent that has left; pairs with (QM1).
            let seen = cpu.load(place, Ordering::Acquire);
            if seen == 0 || side.count(seen) == 0 {
                continue;
            }
            if wait.is_alive(identity(seen)) {
                self.is_there(cpu, side);
                return None;
            }
            dead = Some(identity(seen));
        }
        if let Some(dead) = dead {
            return Some(TransferError::PeerDied { rank: wait.rank_of(dead) });
        }
        // Relaxed: written before the exchange (QM1) that emptied a place.
        let was_there = cpu.load(&self.flags.bits, Ordering::Relaxed) >> (LEFT + side.bit()) & 1 == 1;
        was_there.then_some(TransferError::Disconnected)
    }
}

#[cfg(test)]
mod tests {
    use towpath_machine::{Heap, Native};

    use super::*;
    use crate::{Policy, Surroundings, Wait};

    struct Member(u32);

    impl Surroundings for Member {
        fn identity(&self) -> u32 {
            self.0
        }
    }

    #[test]
    fn side_has_gone_only_when_a_member_has_left() {
        let (cpu, members) = (Native::with_id(0), Members::<Native, 1>::in_arena(&Heap));
        let [receiver, sender] = [Member(1), Member(2)];
        let [receiver, sender] =
            [&receiver, &sender].map(|around| Wait { policy: Policy::Park, around, budget: 0 });
        assert_eq!(members.join(&cpu, &receiver, QueueSide::Receiver), Ok(()));
        // One that has no place (yet) was never there: the receiver waits for it.
        assert_eq!(members.join(&cpu, &sender, QueueSide::Sender), Err(TransferError::Capacity));
        assert_eq!(members.end_of(&cpu, &receiver, QueueSide::Sender), None);
        assert!(members.leave(&cpu, &receiver, QueueSide::Receiver));
        assert_eq!(members.join(&cpu, &sender, QueueSide::Sender), Ok(()));
        let gone = Some(TransferError::Disconnected);
        assert_eq!(members.end_of(&cpu, &sender, QueueSide::Receiver), gone);
        assert_eq!(members.end_of(&cpu, &receiver, QueueSide::Sender), None);
        assert!(members.leave(&cpu, &sender, QueueSide::Sender));
        assert_eq!(members.end_of(&cpu, &receiver, QueueSide::Sender), gone);
    }
}
