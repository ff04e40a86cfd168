//! Waiting as on the machine that is simulated: the policies are the library's, the
//! constants of back-off the machine's.
//!
//! Nikolopoulos & Papatheodorou §3.1: the base interval of exponential and of proportional back-off
//! is about an uncontended read of the secondary cache, for words at memory about a read of local
//! memory by a fetch-op. The bound of the exponential one is not given; ours is sixteen times the
//! base (E).

use towpath_machine::{Park, Processor};
use towpath_sim::Parameters;
use towpath_sim::parameters::YIELD;
use towpath_sync::strategy::{BackOff, Step};
use towpath_sync::{Abandoned, Alone, Policy, Wait, Waiting};

/// Unit of the algorithms' own proportional pauses: nanoseconds for each waiter ahead.
const OWN_UNIT: u64 = 30;

/// Waiting on a simulated machine.
#[derive(Clone)]
pub struct Patience {
    wait: Wait<'static>,
    /// The base of back-off between accesses to cached words, in nanoseconds.
    pub base: u64,
    /// The first pause for words at memory.
    pub base_at_memory: u64,
    /// Number of times that the exponential back-off doubles.
    pub doublings: u32,
    /// The words that are updated lie at memory.
    pub at_memory: bool,
}

impl Patience {
    /// Patience on that machine, by that policy. Competitive spinning lasts as long as a
    /// context switch. Where waiters that block let others run and then look again (`os.blocking`),
    /// blocking at once is giving way at once, and competitive spinning gives way in the end.
    pub fn new(machine: &Parameters, policy: Policy) -> Self {
        let wait = Wait { policy, around: &Alone, budget: machine.switch / 1000 };
        let wait = if machine.blocking == YIELD { wait.without_sleep() } else { wait };
        let base = (machine.owner_access.max(machine.load * 4) / 1000).max(1);
        let fetch = (machine.to_hub + machine.fetch_latency + machine.to_processor) / 1000;
        Patience { wait, base, base_at_memory: fetch.max(base), doublings: 4, at_memory: false }
    }

    /// The patience of an algorithm whose updates are made at memory.
    #[must_use]
    pub fn at_memory(mut self, at_memory: bool) -> Self {
        self.at_memory = at_memory;
        self
    }

    fn base(&self) -> u64 {
        if self.at_memory { self.base_at_memory } else { self.base }
    }

    /// Step before the `round`-th attempt. By competitive spinning a waiter that has
    /// backed off for as long as a context switch gives way, and begins anew when it runs again.
    fn step(&self, round: u32) -> Step {
        let back_off = BackOff { base: self.base(), doublings: self.doublings };
        back_off.attempt(&self.wait.strategy(), round)
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
        doorbell: Option<&P::Word>,
        mut pause: impl FnMut(u64) -> u64,
        done: impl FnMut(u64) -> bool,
    ) -> Result<u64, Abandoned> {
        let unit = self.base();
        self.wait.wait_until_pausing(cpu, word, doorbell, |v| pause(v) * unit / OWN_UNIT, done)
    }
    fn wait_until_woken(
        &self,
        cpu: &P,
        word: &P::Word,
        doorbell: &P::Word,
        done: impl FnMut(u64) -> bool,
    ) -> Result<u64, Abandoned> {
        self.wait.wait_until_woken(cpu, word, doorbell, done)
    }
    fn scaled(&self, times: u64) -> Self {
        Patience { wait: Waiting::<P>::scaled(&self.wait, times), ..self.clone() }
    }
    fn back_off(&self, cpu: &P, round: u32) -> Result<(), Abandoned> {
        match self.step(round) {
            Step::Spin(pause) => cpu.delay(pause),
            Step::Yield | Step::Park(_) => cpu.yield_now(),
        }
        Ok(())
    }
    fn attempts_before_queueing(&self, cpu: &P) -> u32 {
        self.wait.attempts_before_queueing(cpu)
    }
    fn wait_turn(&self, cpu: &P, word: &P::Word, seen: u64, round: u32, turn: u64) {
        self.wait.wait_turn(cpu, word, seen, round, turn);
    }
    fn watch(&self, cpu: &P, word: &P::Word, seen: u64) -> bool {
        self.wait.watch(cpu, word, seen)
    }
    fn pause(&self, cpu: &P, attempt: u32) -> bool {
        self.wait.pause(cpu, attempt)
    }
    fn wake_all(&self, cpu: &P, word: &P::Word) {
        self.wait.wake_all(cpu, word);
    }
    fn release(&self, cpu: &P, word: &P::Word, value: u64) {
        self.wait.release(cpu, word, value);
    }
    fn release_and_wake(&self, cpu: &P, word: &P::Word, doorbell: &P::Word, value: u64) {
        self.wait.release_and_wake(cpu, word, doorbell, value);
    }
    fn release_some(&self, cpu: &P, word: &P::Word, value: u64, count: u32) {
        self.wait.release_some(cpu, word, value, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiter_that_blocks_sleeps_or_yields_as_the_machine_has_it() {
        let mut machine = towpath_sim::machines::by_name("origin2000").unwrap();
        let switch = machine.switch / 1000;
        let how = |m: &Parameters, policy| {
            let wait = Patience::new(m, policy).wait;
            (wait.policy, wait.budget)
        };
        assert_eq!(how(&machine, Policy::Park), (Policy::SpinThenYield, 0));
        assert_eq!(how(&machine, Policy::SpinThenPark), (Policy::SpinThenYield, switch));
        assert_eq!(how(&machine, Policy::Spin), (Policy::Spin, switch));
        machine.set_from_text("os.blocking=sleep").unwrap();
        for policy in [Policy::Park, Policy::SpinThenPark] {
            assert_eq!(how(&machine, policy), (policy, switch));
        }
    }

    #[test]
    fn competitive_spinner_gives_way_after_a_context_switch() {
        let machine = towpath_sim::machines::by_name("origin2000").unwrap();
        for at_memory in [false, true] {
            let patience = |policy| Patience::new(&machine, policy).at_memory(at_memory);
            let competitive = patience(Policy::SpinThenPark);
            let pauses = |step| if let Step::Spin(pause) = step { Some(pause) } else { None };
            let pauses: Vec<u64> = (0..).map_while(|round| pauses(competitive.step(round))).collect();
            let (first, last) = (pauses.len() as u32, pauses.last().unwrap());
            let spent: u64 = pauses.iter().sum();
            let switch = machine.switch / 1000;
            assert!((switch..switch + last).contains(&spent), "{spent} ns");
            assert_eq!(competitive.step(first + 1), competitive.step(0), "it begins anew");
            assert_eq!(patience(Policy::Park).step(0), Step::Yield);
            assert!((0..100).all(|r| matches!(patience(Policy::Spin).step(r), Step::Spin(_))));
        }
    }
}
