//! A world as the surroundings of waiters: number of running ranks, and of cores.
//!
//! Two words for each 64 ranks have a bit for each: entered, asleep. They are hints: a process that
//! dies leaves its bits until its death is noted, one that enters while a slow survivor still
//! clears its predecessor's bits sets its own again when it next wakes.

use core::sync::atomic::Ordering;

use rustix::thread::sched_getaffinity;
use towpath_sync::{SlowRounds, Surroundings, is_oversubscribed};

use crate::inner::Inner;
use crate::layout::{CPU_WORDS, PRESENCE, Presence, RANK_BITS};
use crate::limits;
use crate::participant::{EntryState, EntryWord, ParticipantId};
use crate::table::ParticipantTable;

impl Surroundings for Inner {
    fn cores(&self) -> Option<u64> {
        Some(self.known_cores())
    }

    fn switch_cost(&self) -> u64 {
        Inner::switch_cost(self)
    }

    fn slow_rounds(&self) -> Option<SlowRounds<'_>> {
        Some(SlowRounds { span: &self.control().counts.slow_span, last: &self.local.last_slow_round })
    }

    fn oversubscribed(&self) -> bool {
        let cores = self.known_cores();
        let mut running = 0;
        // Relaxed, both: hints, which order nothing.
        self.segment.presence().iter().any(|group| {
            let bits = group.entered.load(Ordering::Relaxed) & !group.asleep.load(Ordering::Relaxed);
            running += u64::from(bits.count_ones());
            is_oversubscribed(running, cores)
        })
    }

    /// Rank and the lower bits of the generation, together 31 bits.
    ///
    /// Not 1, which stands for a process alone.
    #[inline]
    fn identity(&self) -> u32 {
        match self.local.me.load(Ordering::Relaxed) {
            0 => 1,
            bits => {
                let me = ParticipantId::from_bits(bits);
                (me.generation & GENERATION) << INDEX_BITS | (me.index + 2)
            }
        }
    }

    fn is_alive(&self, identity: u32) -> bool {
        match (identity & ((1 << INDEX_BITS) - 1)).checked_sub(2) {
            Some(index) if index < self.processes => self
                .participant_of_generation(index, identity >> INDEX_BITS & GENERATION, GENERATION)
                .is_some_and(|id| self.is_alive(id)),
            _ => true,
        }
    }

    fn rank_of(&self, identity: u32) -> Option<u32> {
        let index = (identity & ((1 << INDEX_BITS) - 1)).checked_sub(2)?;
        (index < self.processes).then_some(index)
    }

    fn deaths(&self) -> u64 {
        self.noted_deaths().count()
    }

    /// A process sleeps as soon as one of its threads does: those that wait are usually
    /// its only ones.
    fn asleep(&self, asleep: bool) {
        let bits = self.local.me.load(Ordering::Relaxed);
        if bits == 0 {
            return;
        }
        let index = ParticipantId::from_bits(bits).index;
        let Some((group, bit)) = self.presence_of(index) else { return };
        // Relaxed throughout: hints. A thread too many or too few for an instant does no harm.
        if asleep {
            if self.local.sleepers.fetch_add(1, Ordering::Relaxed) == 0 {
                group.asleep.fetch_or(bit, Ordering::Relaxed);
            }
        } else {
            if self.local.sleepers.fetch_sub(1, Ordering::Relaxed) == 1 {
                group.asleep.fetch_and(!bit, Ordering::Relaxed);
            }
            if group.entered.load(Ordering::Relaxed) & bit == 0 {
                group.entered.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }
}

/// Number of bits of the index, plus two, in an identity.
const INDEX_BITS: u32 = RANK_BITS + 1;
/// The bits of the generation in an identity.
const GENERATION: u32 = (1 << (31 - INDEX_BITS)) - 1;

impl Inner {
    /// The hints of a rank's group, and its bit there.
    fn presence_of(&self, index: u32) -> Option<(&Presence, u64)> {
        let group = self.segment.presence().get(index as usize / PRESENCE)?;
        Some((group, 1 << (index as usize % PRESENCE)))
    }

    /// Notes that a rank has entered and runs, or that it is gone.
    pub(crate) fn show_presence(&self, index: u32, entered: bool) {
        let Some((group, bit)) = self.presence_of(index) else { return };
        // Relaxed, all: hints, which order nothing.
        if entered {
            group.asleep.fetch_and(!bit, Ordering::Relaxed);
            group.entered.fetch_or(bit, Ordering::Relaxed);
        } else {
            group.entered.fetch_and(!bit, Ordering::Relaxed);
            group.asleep.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// The participant of a rank whose generation has these lower bits.
    ///
    /// `None`: there is none any more.
    fn participant_of_generation(&self, index: u32, low: u32, mask: u32) -> Option<ParticipantId> {
        let generation = self.entry_word(index).generation;
        (generation & mask == low).then_some(ParticipantId { index, generation })
    }

    /// Number of cores for all participants.
    fn known_cores(&self) -> u64 {
        // Relaxed: a hint, which orders nothing.
        self.control().counts.cores.load(Ordering::Relaxed).max(1)
    }

    /// Returns whether there are more ranks here than cores for them.
    pub(crate) fn shares_cores(&self) -> bool {
        let cores = self.known_cores();
        // Relaxed: a hint, which orders nothing.
        let entered = |group: &Presence| u64::from(group.entered.load(Ordering::Relaxed).count_ones());
        self.segment.presence().iter().map(entered).sum::<u64>() > cores
    }

    #[inline]
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
            // Relaxed, both: hints, which order nothing.
            if EntryWord::unpack(entry.word.load(Ordering::Relaxed)).state == EntryState::Entered {
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

#[cfg(test)]
mod tests {
    use towpath_machine::Native;
    use towpath_sync::{Policy, SlowRounds};

    use crate::inner::WorldSpec;
    use crate::world::World;

    #[test]
    fn participants_share_what_one_found_out_about_slow_rounds() {
        let spec = WorldSpec { name: None, processes: 2, area_bytes: 0, object_bytes: 0, params: [0; 16] };
        let one = World::create(&spec).unwrap();
        let other = one.reopen().unwrap();
        let cpu = Native::current();
        let policy =
            |world: &World, policy| SlowRounds::policy_now(world.surroundings().slow_rounds(), policy, &cpu);
        assert_eq!(policy(&other, Policy::Adaptive), Policy::Adaptive);
        let slow_spin = || {
            SlowRounds::spin(one.surroundings().slow_rounds(), &cpu, 1, || {
                std::thread::sleep(std::time::Duration::from_millis(5));
                Err::<(), _>(())
            })
        };
        // The first may be an accident. Under load the time between two may be long: then again.
        while policy(&other, Policy::Adaptive) == Policy::Adaptive {
            slow_spin().unwrap_err();
        }
        assert_eq!(policy(&other, Policy::SpinThenYield), Policy::SpinThenYield);
    }
}
