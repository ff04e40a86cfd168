//! Waiting as on the machine that is simulated: the policies are the library's, the constants of back-off the machine's.
//!
//! Nikolopoulos & Papatheodorou §3.1: the base interval of exponential and of proportional back-off is about an uncontended read of the secondary cache, for words at memory about a
//! read of local memory by a fetch-op. The bound of the exponential one is not given; ours is sixteen times the base (E).

use towpath_machine::{Park, Processor};
use towpath_sim::Parameters;
use towpath_sync::{Abandoned, Alone, Policy, Wait, Waiting};

/// What the algorithms' own proportional pauses are made for: nanoseconds for each waiter ahead.
const OWN_UNIT: u64 = 30;

/// How to wait on a simulated machine.
#[derive(Clone)]
pub struct Patience {
    wait: Wait<'static>,
    /// The base of back-off between accesses to cached words, in nanoseconds.
    pub base: u64,
    /// The same for words at memory.
    pub base_at_memory: u64,
    /// How many times the exponential back-off doubles.
    pub doublings: u32,
    /// The words that are updated lie at memory.
    pub at_memory: bool,
}

impl Patience {
    /// On that machine, by that policy. Competitive spinning lasts as long as a context switch.
    pub fn new(machine: &Parameters, policy: Policy) -> Self {
        let wait = Wait { policy, around: &Alone, budget: machine.switch / 1000 };
        let base = (machine.owner_access.max(machine.load * 4) / 1000).max(1);
        let fetch = (machine.to_hub + machine.fetch_latency + machine.to_processor) / 1000;
        Patience { wait, base, base_at_memory: fetch.max(base), doublings: 4, at_memory: false }
    }

    /// The same for an algorithm whose updates are made at memory.
    #[must_use]
    pub fn at_memory(mut self, at_memory: bool) -> Self {
        self.at_memory = at_memory;
        self
    }

    fn base(&self) -> u64 {
        if self.at_memory { self.base_at_memory } else { self.base }
    }
}

impl<P: Processor + Park> Waiting<P> for Patience {
    fn parks(&self) -> bool {
        Waiting::<P>::parks(&self.wait)
    }
    fn wait_until(&self, cpu: &P, word: &P::Word, done: impl FnMut(u64) -> bool) -> Result<u64, Abandoned> {
        self.wait.wait_until(cpu, word, done)
    }
    fn wait_until_pausing(
        &self,
        cpu: &P,
        word: &P::Word,
        bell: Option<&P::Word>,
        mut pause: impl FnMut(u64) -> u64,
        done: impl FnMut(u64) -> bool,
    ) -> Result<u64, Abandoned> {
        let unit = self.base();
        self.wait.wait_until_pausing(cpu, word, bell, |v| pause(v) * unit / OWN_UNIT, done)
    }
    fn wait_until_rung(
        &self,
        cpu: &P,
        word: &P::Word,
        bell: &P::Word,
        done: impl FnMut(u64) -> bool,
    ) -> Result<u64, Abandoned> {
        self.wait.wait_until_rung(cpu, word, bell, done)
    }
    fn scaled(&self, times: u64) -> Self {
        Patience { wait: Waiting::<P>::scaled(&self.wait, times), ..self.clone() }
    }
    fn back_off(&self, cpu: &P, round: u32) -> Result<(), Abandoned> {
        match self.wait.policy {
            // Those who block at once let others run instead of waiting.
            Policy::Park => cpu.yield_now(),
            Policy::SpinThenPark | Policy::SpinThenYield if round > self.doublings + 4 => cpu.yield_now(),
            _ => cpu.delay(self.base() << round.min(self.doublings)),
        }
        Ok(())
    }
    fn attempts_before_queueing(&self, cpu: &P) -> u32 {
        self.wait.attempts_before_queueing(cpu)
    }
    fn wait_turn(&self, cpu: &P, word: &P::Word, seen: u64, round: u32, turn: u64) {
        self.wait.wait_turn(cpu, word, seen, round, turn);
    }
    fn wake_all(&self, cpu: &P, word: &P::Word) {
        self.wait.wake_all(cpu, word);
    }
    fn release(&self, cpu: &P, word: &P::Word, value: u64) {
        self.wait.release(cpu, word, value);
    }
    fn release_ringing(&self, cpu: &P, word: &P::Word, bell: &P::Word, value: u64) {
        self.wait.release_ringing(cpu, word, bell, value);
    }
    fn release_some(&self, cpu: &P, word: &P::Word, value: u64, count: u32) {
        self.wait.release_some(cpu, word, value, count);
    }
}
