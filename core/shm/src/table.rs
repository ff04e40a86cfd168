//! Table of participants: the words of their entries, and the count of their deaths.
//!
//! One text for all machines: natively it is a world's table, in which the system says which
//! participants live (`entering.rs`, `liveness.rs`); the laboratory explores it. A participant's
//! entry changes by one compare-and-swap of its word; the states are in `participant.rs`.
//!
//! **Source.** Our own.
//!
//! **Fields.** An entry's word: the newcomer, its participant, and any participant that finds that
//! one dead. The count of deaths, which names the last one: any participant that has found a death.
//!
//! **Progress.** Lock-free.
//!
//! **Crashes.** See `participant.rs`, and `liveness.rs` for the argument that each death counts
//! once.
//!
//! **Memory.** A word for each rank, and one.

use towpath_machine::{Ordering, Processor};

use crate::layout::{MOST_PROCESSES, RANK_BITS};
pub use crate::participant::{EntryState, EntryWord};

/// Number of the first bit of the count in [`Deaths`].
const COUNT: u32 = 24 + RANK_BITS;

/// The last death counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deaths(pub(crate) u64);

impl Deaths {
    /// Number of deaths.
    pub fn count(self) -> u64 {
        self.0 >> COUNT
    }
    /// Rank of the last death, unchecked: only for messages, or to be compared.
    pub fn rank(self) -> u32 {
        (self.0 >> 24) as u32 & (MOST_PROCESSES - 1)
    }
    /// Generation of the last death.
    pub fn generation(self) -> u32 {
        self.0 as u32 & 0xff_ffff
    }
    pub(crate) fn next(self, rank: u32, generation: u32) -> Deaths {
        Deaths(
            self.count().wrapping_add(1) << COUNT
                | u64::from(rank & (MOST_PROCESSES - 1)) << 24
                | u64::from(generation & 0xff_ffff),
        )
    }
}

/// Word of a table's machine.
pub type TableWord<T> = <<T as ParticipantTable>::Cpu as Processor>::Word;

/// Table of participants, on any machine.
pub trait ParticipantTable {
    /// Processor that acts.
    type Cpu: Processor;

    /// Returns the processor.
    fn cpu(&self) -> &Self::Cpu;
    /// Returns the number of ranks.
    fn ranks(&self) -> u32;
    /// Returns the word of an entry.
    fn word(&self, index: u32) -> &TableWord<Self>;
    /// Returns the word of [`ParticipantTable::noted_deaths`].
    fn last_death(&self) -> &TableWord<Self>;

    /// Returns the bits of an entry's word.
    fn entry_bits(&self, index: u32) -> u64 {
        // (E4) Acquire: pairs with the Release (E3).
        self.cpu().load(self.word(index), Ordering::Acquire)
    }

    /// Returns an entry's word, taken apart.
    fn entry_word(&self, index: u32) -> EntryWord {
        EntryWord::unpack(self.entry_bits(index))
    }

    /// Changes an entry whose word is still `bits`.
    ///
    /// Those were found by [`ParticipantTable::entry_bits`], or written by the caller. Returns
    /// `false` if another process has changed it since. No word comes twice.
    fn change(&self, index: u32, bits: u64, next: EntryWord) -> bool {
        // (E3) Release: the caller's steps before; pairs with the Acquire (E4). The word that it
        // replaces was acquired by that.
        self.cpu()
            .compare_exchange(self.word(index), bits, next.pack(), Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    /// Returns the last death, and their number.
    fn noted_deaths(&self) -> Deaths {
        // (E1) Acquire: pairs with the Release (E2): a reader of the count sees the entry's DYING
        // or DEAD.
        Deaths(self.cpu().load(self.last_death(), Ordering::Acquire))
    }

    /// Marks a participant as dead, and counts its death.
    ///
    /// `bits`: its entry's word when it was found dead. Returns `false` if another process has
    /// done so, or it left.
    fn mark_dead(&self, index: u32, bits: u64) -> bool {
        let dying = EntryWord { state: EntryState::Dying, ..EntryWord::unpack(bits) };
        let marked = self.change(index, bits, dying);
        self.count_death(index);
        marked
    }

    /// Counts the death of the participant if its entry is DYING, unless it is counted,
    /// and makes the entry DEAD.
    fn count_death(&self, index: u32) {
        loop {
            let seen = self.noted_deaths();
            // After `seen` was read with (E1): the order on which the argument rests.
            let word = self.entry_word(index);
            if word.state != EntryState::Dying {
                return;
            }
            if (seen.rank(), seen.generation()) != (index, word.generation) {
                self.bury(seen.rank(), seen.generation());
                let next = seen.next(index, word.generation);
                // (E2) Release: pairs with (E1), which has acquired `seen`; fails if another death
                // was counted meanwhile.
                if self
                    .cpu()
                    .compare_exchange(self.last_death(), seen.0, next.0, Ordering::Release, Ordering::Relaxed)
                    .is_err()
                {
                    continue;
                }
            }
            self.bury(index, word.generation);
            return;
        }
    }

    /// Moves an entry whose death is counted from DYING to DEAD.
    fn bury(&self, index: u32, generation: u32) {
        if index >= self.ranks() {
            return;
        }
        let bits = self.entry_bits(index);
        let word = EntryWord::unpack(bits);
        if word.state == EntryState::Dying && word.generation == generation {
            // Fails only if another process has done it.
            self.change(index, bits, EntryWord { state: EntryState::Dead, pid: 0, ..word });
        }
    }
}
