//! A world as the surroundings of those who wait: how many run, and on how many cores.
//!
//! Two words with one bit per rank say who has entered and who sleeps. They are hints: a process
//! that dies leaves its bits until its death is noted, one that enters while a slow survivor still
//! clears its predecessor's bits sets its own again when it next wakes.

use core::sync::atomic::Ordering;

use rustix::thread::sched_getaffinity;
use towpath_sync::{Surroundings, is_oversubscribed};

use crate::layout::CPU_WORDS;
use crate::limits;
use crate::participant::{EntryWord, ParticipantId, State};
use crate::world::Inner;

impl Surroundings for Inner {
    fn oversubscribed(&self) -> bool {
        let counts = &self.control().counts;
        // Relaxed, all three: hints, which order nothing.
        let running = counts.entered.load(Ordering::Relaxed) & !counts.asleep.load(Ordering::Relaxed);
        let cores = counts.cores.load(Ordering::Relaxed).max(1);
        is_oversubscribed(running.count_ones().into(), cores)
    }

    /// Rank and generation in 31 bits.
    fn identity(&self) -> u32 {
        match self.local.me.load(Ordering::Relaxed) {
            0 => 1,
            bits => {
                let me = ParticipantId::from_bits(bits);
                (me.generation << 7 | (me.index + 1)) & 0x7fff_ffff
            }
        }
    }

    fn is_alive(&self, identity: u32) -> bool {
        match (identity & 0x7f).checked_sub(1) {
            Some(index) if index < self.processes => {
                self.is_alive(ParticipantId { index, generation: identity >> 7 })
            }
            _ => true,
        }
    }

    fn deaths(&self) -> u64 {
        self.deaths().count()
    }

    /// A process sleeps as soon as one of its threads does: those that wait are usually
    /// its only ones.
    fn asleep(&self, asleep: bool) {
        let bits = self.local.me.load(Ordering::Relaxed);
        if bits == 0 {
            return;
        }
        let bit = 1u64 << (ParticipantId::from_bits(bits).index % 64);
        let counts = &self.control().counts;
        // Relaxed throughout: hints. A thread too many or too few for an instant does no harm.
        if asleep {
            if self.local.sleepers.fetch_add(1, Ordering::Relaxed) == 0 {
                counts.asleep.fetch_or(bit, Ordering::Relaxed);
            }
        } else {
            if self.local.sleepers.fetch_sub(1, Ordering::Relaxed) == 1 {
                counts.asleep.fetch_and(!bit, Ordering::Relaxed);
            }
            if counts.entered.load(Ordering::Relaxed) & bit == 0 {
                counts.entered.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }
}

impl Inner {
    pub(crate) fn switch_cost(&self) -> u64 {
        // Relaxed: written before the world was opened. Whatever is there: a waiter spins for a
        // sensible time.
        self.control().counts.switch_cost.load(Ordering::Relaxed).clamp(500, 50_000)
    }

    /// Writes down on which processors this process may run, and counts those of all
    /// participants.
    pub(crate) fn note_processors(&self, me: ParticipantId) {
        let mut words = [0u64; CPU_WORDS];
        match sched_getaffinity(None) {
            Ok(set) => {
                for cpu in 0..CPU_WORDS * 64 {
                    if set.is_set(cpu) {
                        words[cpu / 64] |= 1 << (cpu % 64);
                    }
                }
            }
            // More processors than the set has room for: then there are enough.
            Err(_) => words = [u64::MAX; CPU_WORDS],
        }
        // Relaxed: each word of the set is a hint by itself.
        for (word, bits) in self.entry(me.index).cpus.iter().zip(words) {
            word.store(bits, Ordering::Relaxed);
        }
        self.count_processors();
    }

    /// The processors of all participants together, at most as many as the control
    /// group's quota grants.
    pub(crate) fn count_processors(&self) {
        let mut union = [0u64; CPU_WORDS];
        for index in 0..self.processes {
            let entry = self.entry(index);
            // Relaxed: as above.
            if EntryWord::unpack(entry.word.load(Ordering::Relaxed)).state == State::Entered {
                for (sum, word) in union.iter_mut().zip(&entry.cpus) {
                    *sum |= word.load(Ordering::Relaxed);
                }
            }
        }
        let mut cores: u64 = union.iter().map(|w| u64::from(w.count_ones())).sum();
        if let Some(quota) = limits::cpu_quota() {
            cores = cores.min(quota.ceil() as u64);
        }
        // Relaxed: a hint.
        self.control().counts.cores.store(cores, Ordering::Relaxed);
    }
}
