//! Waiting policies: how to wait is a parameter of every operation that may have to.
//!
//! A waiter that parks leaves [`PARKED`] in the word that it waits for; whoever changes the word
//! sees the bit in the value that it replaces and wakes the sleepers. Waking thus costs nothing
//! when nobody sleeps. Values proper use bits 0 to 62, and a change that a waiter may wait for
//! changes the low 32 bits (what a futex compares).
//!
//! A word at memory cannot be marked (memory does not compare), so those who wait for one leave the
//! mark in a *bell* beside it, a word in the caches, and park on that. They look at the word once
//! more in between, and whoever changes the word looks at the bell afterwards: one of the two sees
//! the other.

use towpath_machine::{Ordering, Park, Processor};

/// The bit of a waited-for word that says that somebody is parked on it.
pub const PARKED: u64 = 1 << 63;

/// The wait was given up, since what it waited for cannot come any more (its bringer is
/// dead).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abandoned;

/// How to wait, and how to let go so that waiters notice.
pub trait Waiting<P: Processor> {
    /// Whether waiters may be parked, so that releases must look for them.
    fn parks(&self) -> bool;

    /// Waits until `done` accepts the word's value (given without [`PARKED`]), which was
    /// read with Acquire. Returns that value.
    ///
    /// # Errors
    ///
    /// [`Abandoned`] if the surroundings say that waiting is in vain.
    fn wait_until(&self, cpu: &P, word: &P::Word, done: impl FnMut(u64) -> bool) -> Result<u64, Abandoned>;

    /// The same with pauses of as many nanoseconds as `pause` makes of the word's value
    /// (likewise without [`PARKED`]): proportional and exponential back-off. With a bell if the
    /// word lies at memory: then released by [`Waiting::release_ringing`] with the same one.
    ///
    /// # Errors
    ///
    /// As [`Waiting::wait_until`].
    fn wait_until_pausing(
        &self,
        cpu: &P,
        word: &P::Word,
        bell: Option<&P::Word>,
        _pause: impl FnMut(u64) -> u64,
        done: impl FnMut(u64) -> bool,
    ) -> Result<u64, Abandoned> {
        match bell {
            Some(bell) => self.wait_until_rung(cpu, word, bell, done),
            None => self.wait_until(cpu, word, done),
        }
    }

    /// As [`Waiting::wait_until`] for a word at memory, with its bell: released by
    /// [`Waiting::release_ringing`] with the same one.
    ///
    /// # Errors
    ///
    /// As [`Waiting::wait_until`].
    fn wait_until_rung(
        &self,
        cpu: &P,
        word: &P::Word,
        _bell: &P::Word,
        done: impl FnMut(u64) -> bool,
    ) -> Result<u64, Abandoned> {
        self.wait_until(cpu, word, done)
    }

    /// This way of waiting, but spinning `times` as long where it spins before it sleeps
    /// or yields: for barriers, where those who have not yet arrived come one after the other.
    fn scaled(&self, _times: u64) -> Self
    where
        Self: Clone,
    {
        self.clone()
    }

    /// Waits a little where there is no word to wait for: the `round`-th time in a row
    /// (from 0).
    ///
    /// # Errors
    ///
    /// As [`Waiting::wait_until`].
    fn back_off(&self, cpu: &P, round: u32) -> Result<(), Abandoned>;

    /// The same in front of a full queue.
    ///
    /// # Errors
    ///
    /// As [`Waiting::wait_until`].
    #[inline(always)]
    fn back_off_for_space(&self, cpu: &P, round: u32) -> Result<(), Abandoned> {
        self.back_off(cpu, round)
    }

    /// How often to try a lock without queueing before queueing for it: 0, except where a
    /// place in a FIFO queue could make everybody wait for a process that isn't running.
    fn attempts_before_queueing(&self, cpu: &P) -> u32;

    /// Waits for the word to differ from `seen` (both without [`PARKED`]), for a turn of
    /// at most about `turn` nanoseconds: spins, yields or sleeps. May return early for no reason.
    fn wait_turn(&self, cpu: &P, word: &P::Word, seen: u64, round: u32, turn: u64);

    /// Wakes whoever is parked on the word, for algorithms that keep a mark of their own.
    fn wake_all(&self, _cpu: &P, _word: &P::Word) {}

    /// The caller's identity among the processes that share the lock, 1 to 2³¹ − 1: what
    /// a robust lock writes down.
    fn identity(&self) -> u32 {
        1
    }

    /// Whether the process of that identity is alive.
    fn is_alive(&self, _identity: u32) -> bool {
        true
    }

    /// Writes a word that others may wait for, with Release, and wakes them.
    fn release(&self, cpu: &P, word: &P::Word, value: u64);

    /// The same for a word at memory, with the bell that its waiters were given.
    fn release_ringing(&self, cpu: &P, word: &P::Word, _bell: &P::Word, value: u64) {
        self.release(cpu, word, value);
    }

    /// As [`Waiting::release`], waking at most `count` of them, for words of which only
    /// so many waiters can make use. The rest stay asleep until the next time, or (since the mark
    /// for them may come too late) until their turn is over: only for waiters in
    /// [`Waiting::wait_turn`].
    fn release_some(&self, cpu: &P, word: &P::Word, value: u64, count: u32);
}

/// Pure spinning, decided when the program is compiled. For tests, for the simulator, and
/// where nothing else will do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spinning;

impl<P: Processor> Waiting<P> for Spinning {
    #[inline(always)]
    fn parks(&self) -> bool {
        false
    }
    #[inline(always)]
    fn wait_until(
        &self,
        cpu: &P,
        word: &P::Word,
        mut done: impl FnMut(u64) -> bool,
    ) -> Result<u64, Abandoned> {
        loop {
            // Acquire: pairs with the Release in `release`.
            if let Ok(value) = cpu.spin_until(word, Ordering::Acquire, 1_000_000, &mut done) {
                return Ok(value);
            }
        }
    }
    fn wait_until_pausing(
        &self,
        cpu: &P,
        word: &P::Word,
        _bell: Option<&P::Word>,
        mut pause: impl FnMut(u64) -> u64,
        mut done: impl FnMut(u64) -> bool,
    ) -> Result<u64, Abandoned> {
        loop {
            // Acquire: as in `wait_until`.
            if let Ok(value) = cpu.poll_until(word, Ordering::Acquire, 1_000_000, &mut pause, &mut done) {
                return Ok(value);
            }
        }
    }
    #[inline(always)]
    fn back_off(&self, cpu: &P, round: u32) -> Result<(), Abandoned> {
        cpu.delay(25 << round.min(6));
        Ok(())
    }
    #[inline(always)]
    fn attempts_before_queueing(&self, _cpu: &P) -> u32 {
        0
    }
    fn wait_turn(&self, cpu: &P, word: &P::Word, seen: u64, _round: u32, turn: u64) {
        // Relaxed: a hint; the caller looks again. Accepted or not is all the same.
        let _ = cpu.spin_until(word, Ordering::Relaxed, turn.min(1_000), |v| v & !PARKED != seen);
    }
    #[inline(always)]
    fn release(&self, cpu: &P, word: &P::Word, value: u64) {
        // Release: pairs with the Acquire in `wait_until` and with the acquisitions of the lock
        // that calls this.
        cpu.store(word, value, Ordering::Release);
    }
    #[inline(always)]
    fn release_some(&self, cpu: &P, word: &P::Word, value: u64, _count: u32) {
        self.release(cpu, word, value);
    }
}

/// A waiting policy, chosen when the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Spins, whatever happens.
    Spin,
    /// Spins for about a context switch, then yields between probes.
    SpinThenYield,
    /// Competitive: spins for about the cost of a context switch, then parks.
    SpinThenPark,
    /// Parks at once.
    Park,
    /// Spins, yields or parks according to how many runnable participants share the
    /// cores.
    #[default]
    Adaptive,
}

impl Policy {
    /// All of them, with the names by which users choose them.
    pub const ALL: [(Policy, &'static str); 5] = [
        (Policy::Spin, "spin"),
        (Policy::SpinThenYield, "spin-then-yield"),
        (Policy::SpinThenPark, "spin-then-park"),
        (Policy::Park, "park"),
        (Policy::Adaptive, "adaptive"),
    ];

    /// The name by which users choose it.
    pub fn name(self) -> &'static str {
        Policy::ALL.iter().find(|(p, _)| *p == self).map_or("", |(_, n)| n)
    }

    /// The policy of that name.
    pub fn from_name(name: &str) -> Option<Policy> {
        Policy::ALL.iter().find(|(_, n)| *n == name).map(|(p, _)| *p)
    }
}

/// What a waiter can learn about the world around it. Asked only on slow paths.
pub trait Surroundings: Sync {
    /// Whether more runnable participants than cores share the machine.
    fn oversubscribed(&self) -> bool {
        false
    }
    /// Whether waiting is in vain. Asked about every millisecond of a wait.
    fn abandoned(&self) -> bool {
        false
    }
    /// The calling process's identity, 1 to 2³¹ − 1.
    fn identity(&self) -> u32 {
        1
    }
    /// Whether the process of that identity is alive.
    fn is_alive(&self, _identity: u32) -> bool {
        true
    }
    /// How many deaths of participants were noted so far.
    fn deaths(&self) -> u64 {
        0
    }
    /// The caller is about to sleep (`true`) or has woken (`false`): it does not, or does
    /// again, count as runnable.
    fn asleep(&self, _asleep: bool) {}
}

/// Surroundings of which nothing is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Surroundings for Alone {}

/// A policy in its surroundings: what operations are given.
#[derive(Clone, Copy)]
pub struct Wait<'a> {
    /// What to do.
    pub policy: Policy,
    /// What is known about the world.
    pub around: &'a dyn Surroundings,
    /// How long to spin before yielding or parking, in nanoseconds: about the cost of a
    /// context switch.
    pub budget: u64,
}

/// How long one sleep may last before the surroundings are asked again, in nanoseconds.
const NAP: u64 = 20_000_000;
/// How long to spin between two questions to the surroundings, in nanoseconds.
const PATIENCE: u64 = 1_000_000;

impl<P: Processor + Park> Waiting<P> for Wait<'_> {
    #[inline(always)]
    fn parks(&self) -> bool {
        !matches!(self.policy, Policy::Spin | Policy::SpinThenYield)
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
        bell: Option<&P::Word>,
        mut pause: impl FnMut(u64) -> u64,
        mut done: impl FnMut(u64) -> bool,
    ) -> Result<u64, Abandoned> {
        self.wait_slowly(cpu, word, bell, &mut |spin| {
            // (3) Acquire: as (1).
            cpu.poll_until(word, Ordering::Acquire, spin, |v| pause(v & !PARKED), |v| done(v & !PARKED))
        })
    }

    fn wait_until_rung(
        &self,
        cpu: &P,
        word: &P::Word,
        bell: &P::Word,
        mut done: impl FnMut(u64) -> bool,
    ) -> Result<u64, Abandoned> {
        self.wait_slowly(cpu, word, Some(bell), &mut |spin| {
            // (3) Acquire: as (1).
            cpu.spin_until(word, Ordering::Acquire, spin, &mut done)
        })
    }

    fn scaled(&self, times: u64) -> Self {
        Wait { budget: self.budget.saturating_mul(times.max(1)), ..*self }
    }

    fn back_off(&self, cpu: &P, round: u32) -> Result<(), Abandoned> {
        let yields = match self.policy {
            Policy::Spin => false,
            Policy::Adaptive => round >= 8 || self.around.oversubscribed(),
            _ => round >= 8,
        };
        if yields {
            cpu.yield_now()
        } else {
            cpu.delay(25 << round.min(7))
        }
        if round % 256 == 255 && self.around.abandoned() { Err(Abandoned) } else { Ok(()) }
    }

    #[inline]
    fn attempts_before_queueing(&self, _cpu: &P) -> u32 {
        if self.policy == Policy::Adaptive && self.around.oversubscribed() { 200 } else { 0 }
    }

    fn wait_turn(&self, cpu: &P, word: &P::Word, seen: u64, round: u32, turn: u64) {
        let crowded = self.policy == Policy::Adaptive && self.around.oversubscribed();
        let spin = match self.policy {
            Policy::Park => 0,
            _ if crowded => 0,
            _ => self.budget.min(turn),
        };
        // Relaxed: a hint; the caller looks again.
        let Err(value) = cpu.spin_until(word, Ordering::Relaxed, spin, |v| v & !PARKED != seen) else {
            return;
        };
        let park = match self.policy {
            Policy::Spin => return,
            Policy::SpinThenYield => false,
            Policy::SpinThenPark => round >= 1,
            Policy::Park => true,
            Policy::Adaptive => round >= if crowded { 64 } else { 8 },
        };
        if !park {
            cpu.yield_now();
            return;
        }
        // Relaxed: the bit carries no data, and parking compares the value again.
        if value & PARKED != 0
            || cpu.compare_exchange(word, value, value | PARKED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.around.asleep(true);
            cpu.park(word, value, turn);
            self.around.asleep(false);
        }
    }

    fn wake_all(&self, cpu: &P, word: &P::Word) {
        cpu.wake(word, u32::MAX);
    }

    fn identity(&self) -> u32 {
        self.around.identity()
    }

    fn is_alive(&self, identity: u32) -> bool {
        self.around.is_alive(identity)
    }

    #[inline(always)]
    fn release(&self, cpu: &P, word: &P::Word, value: u64) {
        if Waiting::<P>::parks(self) {
            // (2) Release: pairs with the Acquire (1), (3) in the waiters. An exchange, since the
            // old value tells whether one is parked.
            if cpu.swap(word, value, Ordering::Release) & PARKED != 0 {
                cpu.wake(word, u32::MAX);
            }
        } else {
            // Release: as (2); nobody can be parked.
            cpu.store(word, value, Ordering::Release);
        }
    }

    fn release_ringing(&self, cpu: &P, word: &P::Word, bell: &P::Word, value: u64) {
        // (2) Release: as in `release`.
        cpu.store(word, value, Ordering::Release);
        if !Waiting::<P>::parks(self) {
            return;
        }
        // (8) SeqCst: pairs with the fence (7) in `sleep_beside`. Either the waiter sees the new
        // value or we see its mark.
        cpu.fence(Ordering::SeqCst);
        // Relaxed: ordered by (8). If the exchange fails, somebody else has rung meanwhile, after
        // our change of the word.
        let heard = cpu.load(bell, Ordering::Relaxed);
        if heard & PARKED != 0 {
            let rung = heard.wrapping_add(1) & !PARKED;
            if cpu.compare_exchange(bell, heard, rung, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                cpu.wake(bell, u32::MAX);
            }
        }
    }

    #[inline(always)]
    fn release_some(&self, cpu: &P, word: &P::Word, value: u64, count: u32) {
        if Waiting::<P>::parks(self) {
            // (4) Release: as (2).
            if cpu.swap(word, value, Ordering::Release) & PARKED != 0 && cpu.wake(word, count) == count {
                // Perhaps more are parked: leave the mark for the next release. Relaxed: it carries
                // no data.
                cpu.fetch_or(word, PARKED, Ordering::Relaxed);
            }
        } else {
            // Release: as (2); nobody can be parked.
            cpu.store(word, value, Ordering::Release);
        }
    }
}

impl Wait<'_> {
    /// `probe` spins for so long at most, and reads with Acquire.
    #[cold]
    fn wait_slowly<P: Processor + Park>(
        &self,
        cpu: &P,
        word: &P::Word,
        bell: Option<&P::Word>,
        probe: &mut impl FnMut(u64) -> Result<u64, u64>,
    ) -> Result<u64, Abandoned> {
        let mut since_asked = 0u64;
        let mut yields = 0u32;
        loop {
            let oversubscribed = self.policy == Policy::Adaptive && self.around.oversubscribed();
            let spin = match self.policy {
                Policy::Spin => PATIENCE,
                Policy::SpinThenYield | Policy::SpinThenPark => self.budget,
                Policy::Park => 0,
                Policy::Adaptive => {
                    if oversubscribed {
                        0
                    } else {
                        self.budget.saturating_mul(4)
                    }
                }
            };
            let seen = match probe(spin) {
                Ok(value) => return Ok(value & !PARKED),
                Err(value) => value,
            };
            since_asked += spin;
            let park = match self.policy {
                Policy::Spin => false,
                Policy::SpinThenYield => false,
                Policy::SpinThenPark | Policy::Park => true,
                Policy::Adaptive => !oversubscribed || yields >= 16,
            };
            if park {
                if let Some(bell) = bell {
                    if let Some(value) = self.sleep_beside(cpu, bell, probe) {
                        return Ok(value & !PARKED);
                    }
                    since_asked += NAP;
                } else if self.marks(cpu, word, seen) {
                    self.sleep(cpu, word, seen);
                    since_asked += NAP;
                }
            } else if self.policy != Policy::Spin {
                cpu.yield_now();
                yields += 1;
                since_asked += self.budget;
            }
            if since_asked >= PATIENCE {
                since_asked = 0;
                if self.around.abandoned() {
                    // The dead may have brought it before they died, and it may be what woke us:
                    // who gives up now would take it along.
                    return match probe(0) {
                        Ok(value) => Ok(value & !PARKED),
                        Err(_) => Err(Abandoned),
                    };
                }
            }
        }
    }

    /// Leaves the mark of a sleeper in a word that holds `seen`.
    fn marks<P: Processor>(&self, cpu: &P, word: &P::Word, seen: u64) -> bool {
        // Relaxed: the bit carries no data; parking compares the value again.
        seen & PARKED != 0
            || cpu.compare_exchange(word, seen, seen | PARKED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn sleep<P: Processor + Park>(&self, cpu: &P, word: &P::Word, seen: u64) {
        self.around.asleep(true);
        cpu.park(word, seen, NAP);
        self.around.asleep(false);
    }

    /// Sleeps until the bell rings, unless the word has changed meanwhile: then returns
    /// its value.
    fn sleep_beside<P: Processor + Park>(
        &self,
        cpu: &P,
        bell: &P::Word,
        probe: &mut impl FnMut(u64) -> Result<u64, u64>,
    ) -> Option<u64> {
        // Relaxed: (7) orders it. The count in the bell tells whether it was rung since.
        let heard = cpu.load(bell, Ordering::Relaxed);
        if !self.marks(cpu, bell, heard) {
            return None;
        }
        // (7) SeqCst: pairs with the fence (8) in `release_ringing`.
        cpu.fence(Ordering::SeqCst);
        match probe(0) {
            Ok(value) => Some(value),
            Err(_) => {
                self.sleep(cpu, bell, heard);
                None
            }
        }
    }
}
