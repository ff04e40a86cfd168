//! Participants: their identities, and the word in which an entry of the table changes
//! state.
//!
//! ```text
//! 63        40 39       24 23       2 1   0
//! [generation][start hash][   pid   ][state]
//! ```
//!
//! | state | meaning | leaves to |
//! | --- | --- | --- |
//! | FREE | no participant; the generation is that of the last participant (0: there was none) | JOINING, by the newcomer, with the next generation |
//! | JOINING | the process named by pid and start hash is filling in the rest | ENTERED, by itself; DYING, if it is dead |
//! | ENTERED | a participant | FREE, when it leaves; DYING, by a process that finds it dead |
//! | DYING | dead, perhaps not yet counted | DEAD, once counted (`liveness.rs`) |
//! | DEAD | dead and counted | JOINING, as from FREE |
//!
//! DYING and DEAD share a code: DYING still has its pid, DEAD has pid 0. Every change is one
//! compare-and-swap of the whole word, so a process that dies between two steps leaves one of these
//! states, and each names the process that must be alive for it to go on.

use crate::process::start_hash;

/// A process's participation in a world: a rank and a generation, so that a later process
/// with the same rank is another participant. Never all zero bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParticipantId {
    /// The rank: the index in the table.
    pub index: u32,
    /// Number of participants that this rank has had, modulo 2²⁴, without 0.
    pub generation: u32,
}

impl ParticipantId {
    /// Packs it into a word: the generation above the index. Never 0 for a real
    /// participant.
    ///
    /// ```
    /// let id = towpath::ParticipantId { index: 3, generation: 1 };
    /// assert_eq!(id.to_bits(), 1 << 32 | 3);
    /// ```
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The reverse of [`ParticipantId::to_bits`]. Any bits give an id, though perhaps one
    /// that no participant ever had.
    ///
    /// ```
    /// use towpath::ParticipantId;
    ///
    /// let id = ParticipantId::from_bits(1 << 32 | 3);
    /// assert_eq!(id, ParticipantId { index: 3, generation: 1 });
    /// ```
    pub const fn from_bits(bits: u64) -> Self {
        ParticipantId { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// Relation of a process that has ended to its world, under the rank for which it was
/// started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The process was a participant to the end, and its death is known to all now.
    Participant,
    /// The process had left in order. If it failed all the same, that counts as a death.
    Left,
    /// Another process is the participant with that rank: one that it had started, or a
    /// successor.
    Replaced,
    /// No participant with that rank yet. If it failed, that counts as a death;
    /// otherwise the others no longer wait for it.
    NeverCame,
}

/// State of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the module's table says what they mean")]
pub enum EntryState {
    Free,
    Joining,
    Entered,
    Dying,
    Dead,
}

/// The word, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryWord {
    /// Number of participants that the rank has had, modulo 2²⁴, without 0.
    pub generation: u32,
    /// Part of the time at which the process started.
    pub start_hash: u16,
    /// The process; 0: none, or DEAD.
    pub pid: u32,
    /// State.
    pub state: EntryState,
}

/// Value of `start_hash` of an entry that is JOINING: its maker holds the rank's lock.
const HAS_LOCK: u16 = 1 << 15;

/// Content of an entry that is JOINING about its maker, beside the pid.
pub(crate) fn joining_hash(start: u64, has_lock: bool) -> u16 {
    start_hash(start) | if has_lock { HAS_LOCK } else { 0 }
}

/// Linux has no more pids.
pub(crate) const PID_BITS: u32 = 22;
const GENERATION_BITS: u32 = 24;

impl EntryWord {
    /// Takes a word apart.
    pub fn unpack(bits: u64) -> Self {
        let pid = (bits >> 2) as u32 & ((1 << PID_BITS) - 1);
        EntryWord {
            generation: (bits >> 40) as u32,
            start_hash: (bits >> 24) as u16,
            pid,
            state: match bits & 3 {
                0 => EntryState::Free,
                1 => EntryState::Joining,
                2 => EntryState::Entered,
                _ if pid != 0 => EntryState::Dying,
                _ => EntryState::Dead,
            },
        }
    }

    /// Returns the word.
    pub fn pack(self) -> u64 {
        let state = match self.state {
            EntryState::Free => 0,
            EntryState::Joining => 1,
            EntryState::Entered => 2,
            EntryState::Dying | EntryState::Dead => 3,
        };
        debug_assert!(self.generation < 1 << GENERATION_BITS && self.pid < 1 << PID_BITS);
        // DYING without a pid is DEAD: only a damaged entry has none, and its death is not counted.
        u64::from(self.generation) << 40 | u64::from(self.start_hash) << 24 | u64::from(self.pid) << 2 | state
    }

    /// Returns whether the maker of an entry that is JOINING holds the rank's lock.
    pub fn has_lock(self) -> bool {
        self.start_hash & HAS_LOCK != 0
    }

    /// The generation after this one: never 0.
    pub fn next_generation(self) -> u32 {
        match (self.generation + 1) & ((1 << GENERATION_BITS) - 1) {
            0 => 1,
            next => next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_survive_packing(bits: u64) {
            let word = EntryWord::unpack(bits);
            let again = EntryWord::unpack(word.pack());
            prop_assert_eq!(word, again);
        }

        #[test]
        fn ids_survive_bits(bits: u64) {
            prop_assert_eq!(ParticipantId::from_bits(bits).to_bits(), bits);
        }
    }

    #[test]
    fn zero_is_free_and_generations_skip_zero() {
        let free = EntryWord::unpack(0);
        assert_eq!(free.state, EntryState::Free);
        assert_eq!(free.next_generation(), 1);
        assert_eq!(EntryWord { generation: (1 << 24) - 1, ..free }.next_generation(), 1);
    }
}
