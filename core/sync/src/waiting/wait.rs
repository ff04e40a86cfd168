//! A policy in its surroundings: waiting as it is chosen when the program runs.

use towpath_machine::{Ordering, Park, Processor};

use super::strategy::{BackOff, Limits, Step, Strategy, WaitState};
use super::{Abandoned, CALLED, PARKED, Policy, SlowRounds, Surroundings, Waiting, is_oversubscribed};

/// Policy in its surroundings, as operations are given it.
#[derive(Clone, Copy)]
pub struct Wait<'a> {
    /// Policy of the waiter.
    pub policy: Policy,
    /// Knowledge about the world.
    pub around: &'a dyn Surroundings,
    /// Time to spin before yielding or parking, in nanoseconds: about the cost of a
    /// context switch.
    pub budget: u64,
}

/// Interval between two questions to the surroundings, in nanoseconds.
const ASK_EVERY: u64 = 1_000_000;
/// Number of rounds of back-off between two questions to the surroundings.
const ASK_ROUNDS: u32 = 256;
/// Time for which a user of a lock keeps its core where there are more of them, in
/// nanoseconds: less than a time slice of the system, which would end wherever it is.
const STRETCH: u64 = 1_000_000;
/// Number of users of a lock for each core above which they give their cores to each
/// other.
const USERS_A_CORE: u64 = 4;
/// Pauses between attempts at a lock that is taken.
///
/// The first ones are about as long as a short critical section, the others as some transfers of a
/// line between distant cores.
const PAUSES: BackOff = BackOff { base: 25, doublings: 4 };
/// Time of a waiter's attempts before it sleeps, in context switches.
const SWITCHES: u64 = 2;
/// Number of attempts at a lock before queueing when oversubscribed.
const ATTEMPTS: u32 = 200;
/// Longest spin of an adaptive waiter without a yield, in nanoseconds.
const PIECE: u64 = 5_000;

/// Writes a word that others may wait for, and wakes those that are parked on it.
#[inline(always)]
pub(super) fn release<P: Processor + Park>(parks: bool, cpu: &P, word: &P::Word, value: u64) {
    if parks {
        // (2) Release: pairs with the Acquire (1), (3) in the waiters. An exchange, since the
        // old value tells whether one is parked.
        if cpu.swap(word, value, Ordering::Release) & PARKED != 0 {
            cpu.wake(word, u32::MAX);
        }
    } else {
        // Release: as (2); no waiter can be parked.
        cpu.store(word, value, Ordering::Release);
    }
}

impl<P: Processor + Park> Waiting<P> for Wait<'_> {
    #[inline(always)]
    fn parks(&self) -> bool {
        self.policy.parks()
    }

    #[inline]
    fn wait_until(
        &self,
        cpu: &P,
        word: &P::Word,
        mut done: impl FnMut(u64) -> bool,
    ) -> Result<u64, Abandoned> {
        // (1) Acquire: pairs with the Release (2) in `release` or the Release of the algorithm that
        // writes the word.
        match cpu.spin_until(word, Ordering::Acquire, 0, |v| done(v & !PARKED)) {
            Ok(value) => Ok(value & !PARKED),
            Err(_) => self.wait_slowly(cpu, word, None, &mut |spin| {
                // (3) Acquire: as (1).
                cpu.spin_until(word, Ordering::Acquire, spin, |v| done(v & !PARKED))
            }),
        }
    }

    fn wait_until_pausing(
        &self,
        cpu: &P,
        word: &P::Word,
        doorbell: Option<&P::Word>,
        mut pause: impl FnMut(u64) -> u64,
        mut done: impl FnMut(u64) -> bool,
    ) -> Result<u64, Abandoned> {
        self.wait_slowly(cpu, word, doorbell, &mut |spin| {
            // (3b) Acquire: as (1); pairs with the Release (2).
            cpu.poll_until(word, Ordering::Acquire, spin, |v| pause(v & !PARKED), |v| done(v & !PARKED))
        })
    }

    fn wait_until_woken(
        &self,
        cpu: &P,
        word: &P::Word,
        doorbell: &P::Word,
        mut done: impl FnMut(u64) -> bool,
    ) -> Result<u64, Abandoned> {
        self.wait_slowly(cpu, word, Some(doorbell), &mut |spin| {
            // (3c) Acquire: as (1); pairs with the Release (2).
            cpu.spin_until(word, Ordering::Acquire, spin, &mut done)
        })
    }

    fn scaled(&self, times: u64) -> Self {
        Wait { budget: self.budget.saturating_mul(times.max(1)), ..*self }
    }

    fn back_off(&self, cpu: &P, round: u32) -> Result<(), Abandoned> {
        match BackOff::NATIVE.next(self.policy, round, || self.around.oversubscribed()) {
            Step::Spin(ns) => cpu.delay(ns),
            Step::Yield | Step::Park(_) => cpu.yield_now(),
        }
        let asks = round % ASK_ROUNDS == ASK_ROUNDS - 1;
        if asks && self.around.abandoned() { Err(Abandoned) } else { Ok(()) }
    }

    #[inline]
    fn attempts_before_queueing(&self, _cpu: &P) -> u32 {
        if Waiting::<P>::is_oversubscribed(self) { ATTEMPTS } else { 0 }
    }

    fn wait_turn(&self, cpu: &P, word: &P::Word, seen: u64, round: u32, turn: u64) {
        let budget = self.budget.min(turn);
        let strategy = match round {
            // One that is called sleeps anyway, after a spin in which a lock may become free.
            CALLED => Strategy::new(self.policy, budget, &Limits::TURN),
            _ => self.strategy_now(cpu, budget, &Limits::TURN),
        };
        let mut state = WaitState::after(round);
        let oversubscribed = || self.around.oversubscribed();
        let Step::Spin(spin) = strategy.next(&mut state, oversubscribed) else { return };
        let Err(value) = self.spin_in_pieces(cpu, word, seen, spin) else { return };
        match strategy.next(&mut state, oversubscribed) {
            Step::Spin(_) => {}
            Step::Yield => _ = SlowRounds::yield_now(self.around.slow_rounds(), cpu),
            Step::Park(_) => {
                if self.marks(cpu, word, value) {
                    self.sleep(cpu, word, value, turn);
                }
            }
        }
    }

    fn watch(&self, cpu: &P, word: &P::Word, seen: u64) -> bool {
        // Also if oversubscribed: the one that is waited for may run.
        let spin = if self.policy == Policy::Park { 0 } else { self.budget };
        // Relaxed: a hint; the caller looks again.
        cpu.spin_until(word, Ordering::Relaxed, spin, |v| v & !PARKED != seen).is_ok()
    }

    fn pause(&self, cpu: &P, attempt: u32) -> bool {
        // Also if oversubscribed: the owner may run.
        let spent = PAUSES.before(attempt);
        let tries = self.policy != Policy::Park && spent < self.budget.saturating_mul(SWITCHES);
        if tries {
            cpu.delay(PAUSES.pause(attempt));
        }
        tries
    }

    fn keep_away(&self, cpu: &P, round: u32) {
        if self.policy != Policy::Park {
            cpu.delay(BackOff { base: self.budget / 2, doublings: 2 }.pause(round));
        }
    }

    fn is_oversubscribed(&self) -> bool {
        self.policy == Policy::Adaptive && self.around.oversubscribed()
    }

    fn rest_after(&self, users: usize) -> Option<u64> {
        let are_many = |cores: u64| is_oversubscribed(users as u64, cores.saturating_mul(USERS_A_CORE));
        (self.policy == Policy::Adaptive && self.around.cores().is_some_and(are_many)).then_some(STRETCH)
    }

    fn rest(&self, cpu: &P) {
        cpu.yield_now();
    }

    fn wake_all(&self, cpu: &P, word: &P::Word) {
        cpu.wake(word, u32::MAX);
    }

    fn wake_some(&self, cpu: &P, word: &P::Word, count: u32) -> u32 {
        cpu.wake(word, count)
    }

    fn identity(&self) -> u32 {
        self.around.identity()
    }

    fn is_alive(&self, identity: u32) -> bool {
        self.around.is_alive(identity)
    }

    fn rank_of(&self, identity: u32) -> Option<u32> {
        self.around.rank_of(identity)
    }

    #[inline(always)]
    fn release(&self, cpu: &P, word: &P::Word, value: u64) {
        release(Waiting::<P>::parks(self), cpu, word, value);
    }

    fn release_and_wake(&self, cpu: &P, word: &P::Word, doorbell: &P::Word, value: u64) {
        // (2b) Release: as (2) in `release`; pairs with the Acquire (3b), (3c).
        cpu.store(word, value, Ordering::Release);
        if !Waiting::<P>::parks(self) {
            return;
        }
        // (8) SeqCst: pairs with the fence (7) in `sleep_beside`. Either the waiter sees the new
        // value or we see its mark.
        cpu.fence(Ordering::SeqCst);
        // Relaxed: ordered by (8). If the exchange fails, another processor has woken the sleepers
        // meanwhile, after our change of the word.
        let heard = cpu.load(doorbell, Ordering::Relaxed);
        if heard & PARKED != 0 {
            let woken = heard.wrapping_add(1) & !PARKED;
            if cpu.compare_exchange(doorbell, heard, woken, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                cpu.wake(doorbell, u32::MAX);
            }
        }
    }

    #[inline(always)]
    fn release_some(&self, cpu: &P, word: &P::Word, value: u64, count: u32) {
        if Waiting::<P>::parks(self) {
            // (4) Release: as (2); pairs with the Acquire (1), (3).
            if cpu.swap(word, value, Ordering::Release) & PARKED != 0 && cpu.wake(word, count) == count {
                // Perhaps more are parked: leave the mark for the next release. Relaxed: it carries
                // no data.
                cpu.fetch_or(word, PARKED, Ordering::Relaxed);
            }
        } else {
            // (4b) Release: as (2), pairs with the Acquire (1); no waiter can be parked.
            cpu.store(word, value, Ordering::Release);
        }
    }
}

impl<'a> Wait<'a> {
    /// Wait as [`Policy::Adaptive`] does, that spins for a context switch.
    ///
    /// ```
    /// use towpath_sync::{Alone, Policy, Wait};
    ///
    /// assert_eq!(Wait::adaptive(&Alone).policy, Policy::Adaptive);
    /// ```
    pub fn adaptive(around: &'a dyn Surroundings) -> Self {
        Wait { policy: Policy::Adaptive, around, budget: around.switch_cost() }
    }
}

impl Wait<'_> {
    /// Returns the way of waiting on a machine whose threads do not sleep: it yields
    /// where the policy would park.
    ///
    /// ```
    /// use towpath_sync::strategy::Rest;
    /// use towpath_sync::{Alone, Policy, Wait};
    ///
    /// let wait = Wait { policy: Policy::Park, around: &Alone, budget: 2_000 };
    /// assert_eq!(wait.without_sleep().strategy().spare.rest, Rest::Yield);
    /// ```
    #[must_use]
    pub fn without_sleep(self) -> Self {
        let (policy, budget) = match self.policy {
            Policy::Park => (Policy::SpinThenYield, 0),
            Policy::SpinThenPark => (Policy::SpinThenYield, self.budget),
            policy => (policy, self.budget),
        };
        Wait { policy, budget, ..self }
    }

    /// Returns the steps of a wait for a lock or at a barrier.
    ///
    /// ```
    /// use towpath_sync::strategy::Rest;
    /// use towpath_sync::{Alone, Policy, Wait};
    ///
    /// let wait = Wait { policy: Policy::Park, around: &Alone, budget: 2_000 };
    /// assert_eq!(wait.strategy().spare.rest, Rest::Park { yields: 0 });
    /// ```
    pub fn strategy(&self) -> Strategy {
        Strategy::new(self.policy, self.budget, &Limits::LOCK)
    }

    /// Steps of a wait that begins now, or goes on.
    fn strategy_now<P: Processor>(&self, cpu: &P, budget: u64, limits: &Limits) -> Strategy {
        Strategy::new(SlowRounds::policy_now(self.around.slow_rounds(), self.policy, cpu), budget, limits)
    }

    /// `probe` spins for so long at most, and reads with Acquire.
    #[cold]
    fn wait_slowly<P: Processor + Park>(
        &self,
        cpu: &P,
        word: &P::Word,
        doorbell: Option<&P::Word>,
        probe: &mut impl FnMut(u64) -> Result<u64, u64>,
    ) -> Result<u64, Abandoned> {
        let mut strategy = self.strategy_now(cpu, self.budget, &Limits::LOCK);
        let mut state = WaitState::default();
        let (mut since_asked, mut seen) = (0u64, 0);
        loop {
            match strategy.next(&mut state, || self.around.oversubscribed()) {
                Step::Spin(ns) => {
                    match SlowRounds::spin(self.around.slow_rounds(), cpu, ns, || probe(ns)) {
                        Ok(value) => return Ok(value & !PARKED),
                        Err(value) => seen = value,
                    }
                    since_asked += ns;
                }
                Step::Yield => {
                    // Others may have the core for their whole time slices.
                    let took = SlowRounds::yield_now(self.around.slow_rounds(), cpu);
                    since_asked += took.max(self.budget);
                    strategy = self.strategy_now(cpu, self.budget, &Limits::LOCK);
                }
                Step::Park(nap) => match doorbell {
                    Some(doorbell) => {
                        if let Some(value) = self.sleep_beside(cpu, doorbell, nap, probe) {
                            return Ok(value & !PARKED);
                        }
                        since_asked += nap;
                    }
                    None if self.marks(cpu, word, seen) => {
                        self.sleep(cpu, word, seen, nap);
                        since_asked += nap;
                    }
                    None => {}
                },
            }
            if since_asked >= ASK_EVERY && state.is_between_rounds() {
                since_asked = 0;
                // Most sleeps end because it has come: then the kernel is not asked.
                if let Ok(value) = probe(0) {
                    return Ok(value & !PARKED);
                }
                if self.around.abandoned() {
                    // The dead may have brought it before they died, and it may be what woke us:
                    // a waiter that gives up now would take it along.
                    return match probe(0) {
                        Ok(value) => Ok(value & !PARKED),
                        Err(_) => Err(Abandoned),
                    };
                }
            }
        }
    }

    /// Spins until the word differs from `seen`, and yields in between.
    ///
    /// The process that is waited for may have been woken on this core. Returns the last value;
    /// `Err`: as it was.
    fn spin_in_pieces<P: Processor + Park>(
        &self,
        cpu: &P,
        word: &P::Word,
        seen: u64,
        mut spin: u64,
    ) -> Result<u64, u64> {
        let piece = if self.policy == Policy::Adaptive { PIECE } else { u64::MAX };
        loop {
            // Relaxed: a hint; the caller looks again.
            let looked = cpu.spin_until(word, Ordering::Relaxed, spin.min(piece), |v| v & !PARKED != seen);
            if looked.is_ok() || spin <= piece {
                return looked;
            }
            spin -= piece;
            SlowRounds::yield_now(self.around.slow_rounds(), cpu);
        }
    }

    /// Leaves the mark of a sleeper in a word that holds `seen`.
    fn marks<P: Processor>(&self, cpu: &P, word: &P::Word, seen: u64) -> bool {
        // Relaxed: the bit carries no data; parking compares the value again.
        seen & PARKED != 0
            || cpu.compare_exchange(word, seen, seen | PARKED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn sleep<P: Processor + Park>(&self, cpu: &P, word: &P::Word, seen: u64, nap: u64) {
        if self.around.sleeps_elsewhere(core::ptr::from_ref(word).cast(), seen) {
            return;
        }
        self.around.asleep(true);
        cpu.park(word, seen, nap);
        self.around.asleep(false);
    }

    /// Sleeps until the doorbell changes, unless the word has changed meanwhile: then
    /// returns its value.
    fn sleep_beside<P: Processor + Park>(
        &self,
        cpu: &P,
        doorbell: &P::Word,
        nap: u64,
        probe: &mut impl FnMut(u64) -> Result<u64, u64>,
    ) -> Option<u64> {
        // Relaxed: (7) orders it. The count in the doorbell tells whether its waiters were woken
        // since.
        let heard = cpu.load(doorbell, Ordering::Relaxed);
        if !self.marks(cpu, doorbell, heard) {
            return None;
        }
        // (7) SeqCst: pairs with the fence (8) in `release_and_wake`.
        cpu.fence(Ordering::SeqCst);
        match probe(0) {
            Ok(value) => Some(value),
            Err(_) => {
                self.sleep(cpu, doorbell, heard, nap);
                None
            }
        }
    }
}
