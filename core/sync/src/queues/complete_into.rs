//! `complete_into`: completion of a lease and sending into another queue in one step.
//! Survivors find both, or neither.
//!
//! **Source.** Ours. One exchange decides, that of the leased slot's word; two slots of different
//! queues name each other before it, so that survivors at either queue can finish what it decided.
//!
//! **Progress.** As sending: lock-free while there is room.
//!
//! ```text
//! links[i], of a slot:  63          29 28       0
//!                       [ place       ][ ticket  ]   place: of the other slot's word
//! ```
//!
//! | step | leased slot | reserved slot | after a death |
//! | --- | --- | --- | --- |
//! | the value and both links are written | leased | sent, and not in the ring | neither: the lease returns, the other slot is free |
//! | 1 | leased | *pending* | neither: the other slot is free, since the lease was not *moved* |
//! | 2 | *moved* | pending | both: a survivor makes the other slot *returned*, and then this one free |
//! | 3 | moved | returned | both: a survivor sends it, another one frees this slot |
//! | 4 | moved | returned, in the ring | both: a survivor frees this slot |
//! | 5 | free | returned, in the ring | both |
//!
//! **Fields.** `links[…]`: the process that has the slot. Slots' words: see
//! [`ManyToMany`](super::ManyToMany); of a dead process's slots survivors at both queues change
//! them, each by an exchange that compares: a pending slot becomes free only if the lease was not
//! moved, and a moved one only when the other slot is pending no more.
//!
//! **Crashes.** See the table. Survivors look in their queue only, and there at slots of the dead;
//! the other slot's word is found by its place, whatever lies there.
//!
//! **Memory.** A word for each slot, behind the ring.
//!
//! **Don't use it** where a value may be handled twice: sending it and then completing the lease is
//! faster.

use towpath_machine::{Ordering, Processor};

use super::many_to_many::{
    Leased, MOVED, ManyToMany, PENDING, RETURNED, Reserved, TICKET, TICKETS, identity, slot_word, ticket_of,
    with_state,
};
use super::{SentWords, TransferError};
use crate::{Deadline, PARKED, Waiting};

/// Number of bits of a place in a link.
const PLACES: u32 = 64 - 29;

/// Words of queues that lie in one memory, by their places there.
pub trait LinkedWords<P: Processor> {
    /// Number of this memory: queues with equal ones may be linked.
    ///
    /// An implementation, for words in a row:
    ///
    /// ```
    /// use std::sync::atomic::AtomicU64;
    /// use towpath_machine::Native;
    /// use towpath_sync::queues::LinkedWords;
    ///
    /// struct Row<'a>(&'a [AtomicU64]);
    /// impl LinkedWords<Native> for Row<'_> {
    ///     fn memory(&self) -> usize {
    ///         self.0.as_ptr().addr()
    ///     }
    ///     fn place_of(&self, word: &AtomicU64) -> u64 {
    ///         ((word as *const AtomicU64).addr() - self.memory()) as u64 / 8
    ///     }
    ///     fn word_at(&self, place: u64) -> Option<&AtomicU64> {
    ///         self.0.get(usize::try_from(place).ok()?)
    ///     }
    /// }
    /// let [one, other] = [(); 2].map(|()| [1, 2].map(Native::word));
    /// assert_eq!(Row(&one).memory(), Row(&one).memory());
    /// assert_ne!(Row(&one).memory(), Row(&other).memory()); // their queues are apart
    /// ```
    fn memory(&self) -> usize;

    /// Place of a word of a queue in this memory.
    ///
    /// ```
    /// # use std::sync::atomic::AtomicU64;
    /// # use towpath_machine::Native;
    /// # use towpath_sync::queues::LinkedWords;
    /// # struct Row<'a>(&'a [AtomicU64]);
    /// # impl LinkedWords<Native> for Row<'_> {
    /// #     fn memory(&self) -> usize { self.0.as_ptr().addr() }
    /// #     fn place_of(&self, word: &AtomicU64) -> u64 {
    /// #         ((word as *const AtomicU64).addr() - self.memory()) as u64 / 8
    /// #     }
    /// #     fn word_at(&self, place: u64) -> Option<&AtomicU64> { self.0.get(place as usize) }
    /// # }
    /// let words = [5, 7].map(Native::word);
    /// let places = [&words[0], &words[1]].map(|word| Row(&words).place_of(word));
    /// assert_eq!(places, [0, 1]); // valid in all processes that map the memory
    /// ```
    fn place_of(&self, word: &P::Word) -> u64;

    /// The word at a place, which may be nonsense.
    ///
    /// ```
    /// # use std::sync::atomic::AtomicU64;
    /// # use towpath_machine::Native;
    /// # use towpath_sync::queues::LinkedWords;
    /// # struct Row<'a>(&'a [AtomicU64]);
    /// # impl LinkedWords<Native> for Row<'_> {
    /// #     fn memory(&self) -> usize { self.0.as_ptr().addr() }
    /// #     fn place_of(&self, word: &AtomicU64) -> u64 {
    /// #         ((word as *const AtomicU64).addr() - self.memory()) as u64 / 8
    /// #     }
    /// #     fn word_at(&self, place: u64) -> Option<&AtomicU64> { self.0.get(place as usize) }
    /// # }
    /// let words = [5, 7].map(Native::word);
    /// assert!(Row(&words).word_at(1).is_some());
    /// assert!(Row(&words).word_at(9).is_none()); // nonsense, as a faulty process may write
    /// ```
    fn word_at(&self, place: u64) -> Option<&P::Word>;
}

impl<P: Processor, const N: usize> ManyToMany<'_, P, N> {
    /// Ends a lease, and sends a value into another queue: both happen, or neither. On an
    /// error the caller still has the lease.
    ///
    /// # Errors
    ///
    /// [`TransferError::Apart`] for queues that lie in different memories;
    /// [`TransferError::NotEntered`] for a lease of another process; as
    /// [`BoundedQueue::send`](super::BoundedQueue::send).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue, results) = (Native::current(), queue_of_four()?, queue_of_four()?);
    /// queue.send(&cpu, &Spinning, &7u64, Deadline::NEVER)?;
    /// let (job, lease) = queue.receive_leased::<u64, _>(&cpu, &Spinning, Deadline::NEVER)?;
    /// queue.complete_into(&cpu, &Spinning, lease, &results, &(job * job), Deadline::NEVER)?;
    /// assert_eq!(results.receive::<u64, _>(&cpu, &Spinning, Deadline::NEVER)?, 49);
    /// # Ok(())
    /// # }
    /// ```
    pub fn complete_into<T: SentWords, W: Waiting<P>, const M: usize>(
        &self,
        cpu: &P,
        wait: &W,
        leased: Leased,
        into: &ManyToMany<'_, P, M>,
        value: &T,
        deadline: Deadline,
    ) -> Result<(), TransferError> {
        if identity(leased.word) != wait.identity() {
            return Err(TransferError::NotEntered);
        }
        if self.memory() != into.memory() {
            return Err(TransferError::Apart);
        }
        let reserved = into.reserve(cpu, wait, deadline)?;
        into.fill(cpu, &reserved, value);
        let link = |queue: Option<u64>, word| queue.map_or(0, |place| place << 29 | ticket_of(word));
        let (here, there) = (self.place_of(leased.slot), into.place_of(reserved.slot));
        if here.max(there).is_some_and(|place| place >> PLACES != 0) {
            into.give_up(cpu, wait, reserved);
            return Err(TransferError::Apart);
        }
        // Relaxed, both: survivors read them once they have been told of the death.
        cpu.store(into.link(reserved.slot), link(here, leased.word), Ordering::Relaxed);
        cpu.store(self.link(leased.slot), link(there, reserved.word), Ordering::Relaxed);
        let pending = with_state(reserved.word, PENDING);
        let moved = with_state(leased.word, MOVED);
        let returned = with_state(reserved.word, RETURNED);
        into.mark(cpu, reserved.slot, reserved.word, pending);
        if !self.mark(cpu, leased.slot, leased.word, moved) {
            // The lease has ended already, or another has written there.
            into.free(cpu, wait, reserved.slot, pending);
            return Err(TransferError::Damaged);
        }
        into.mark(cpu, reserved.slot, pending, returned);
        into.put(cpu, wait, Reserved { word: returned, ..reserved })?;
        if self.free(cpu, wait, leased.slot, moved) {
            self.wake_senders(cpu, wait);
        }
        Ok(())
    }

    /// Changes a slot's word, but for waiters' marks. Returns whether it was `word`.
    fn mark(&self, cpu: &P, slot: usize, word: u64, next: u64) -> bool {
        self.change(cpu, slot, word, |seen| next | seen & PARKED).is_some()
    }

    fn memory(&self) -> Option<usize> {
        self.words.map(LinkedWords::memory)
    }

    fn place_of(&self, slot: usize) -> Option<u64> {
        self.words.map(|words| words.place_of(self.word(slot, 0)))
    }

    /// The word of the other slot that a slot's link names, and its ticket.
    fn linked(&self, cpu: &P, slot: usize) -> Option<(&P::Word, u64)> {
        // Relaxed: written by the dead, whose acts come before the answer that they are dead.
        let link = cpu.load(self.link(slot), Ordering::Relaxed);
        Some((self.words?.word_at(link >> 29)?, link & TICKETS))
    }

    /// Decides of a pending slot of a dead process. Returns whether it did.
    #[cold]
    pub(super) fn settle_pending<W: Waiting<P>>(&self, cpu: &P, wait: &W, slot: usize, word: u64) -> bool {
        let is_moved = self.linked(cpu, slot).is_some_and(|(other, ticket)| {
            // Relaxed: the dead moved it, or no other will; and if a survivor has freed it since,
            // this slot is pending no more, as the exchange below finds.
            cpu.load(other, Ordering::Relaxed) & !PARKED == slot_word(MOVED, ticket, identity(word))
        });
        if is_moved { self.send_again(cpu, wait, slot, word) } else { self.free(cpu, wait, slot, word) }
    }

    /// Frees a moved slot of a dead process, once the other one is sure to be sent.
    /// Returns whether it did.
    #[cold]
    pub(super) fn settle_moved<W: Waiting<P>>(&self, cpu: &P, wait: &W, slot: usize, word: u64) -> bool {
        if let Some((other, ticket)) = self.linked(cpu, slot) {
            let pending = slot_word(PENDING, ticket, identity(word));
            let mut seen = pending;
            // Relaxed, both: survivors at that queue have been told of the death, too, or fail.
            while let Err(now) = cpu.compare_exchange(
                other,
                seen,
                with_state(pending, RETURNED) | seen & PARKED,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                if now & !PARKED != pending {
                    break;
                }
                seen = now;
            }
        }
        self.free(cpu, wait, slot, word)
    }
}

const _: () = assert!(TICKET + 29 == 32 && TICKETS.count_ones() == 29);
