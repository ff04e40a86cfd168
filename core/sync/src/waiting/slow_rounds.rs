//! Memory for rounds of waits in which another program had the core.
//!
//! A yield among participants ends after microseconds, a spin when its time is over. Beside a
//! program that computes, either ends when that one's time slice is over: milliseconds later. A
//! process that uses little of its core gets it back as soon as it is woken, so that waiters had
//! better sleep at once, and not spin before it.
//!
//! A slow round now and then is an accident (another virtual machine had the core) and counts for
//! nothing. One of many begins a while in which all participants sleep at once: they share what
//! each has found out, since otherwise the others wait for each that has yet to. Then they spin and
//! yield again; if that is slow again, the next while is longer.

use core::sync::atomic::{AtomicU64, Ordering};

use towpath_machine::{Park, Processor};

use super::Policy;

/// Delay of a round from which on it is a slow one, in nanoseconds.
const SLOW: u64 = 500_000;
/// Time without a slow round that makes the next one an accident, in times of that one.
const ACCIDENT: u64 = 16;
/// First time for which waiters sleep at once, in nanoseconds.
const FIRST_SPAN: u64 = 20_000_000;
/// Maximum of that time, in nanoseconds.
const LONGEST_SPAN: u64 = 2_560_000_000;
/// Growth of that time if the next rounds are slow, too.
const GROWTH: u64 = 4;

/// Time in which rounds are slow, as the participants have found out. All-zero: never.
///
/// May lie in shared memory. Whatever is there: waiters sleep at once for three seconds at most.
#[derive(Debug, Default)]
#[repr(C)]
pub struct SlowSpan {
    /// Its end, in nanoseconds.
    until: AtomicU64,
    /// Its length, in nanoseconds.
    length: AtomicU64,
}

impl SlowSpan {
    /// Time that has not begun.
    ///
    /// ```
    /// use std::sync::atomic::AtomicU64;
    /// use towpath_sync::{SlowRounds, SlowSpan};
    ///
    /// static SPAN: SlowSpan = SlowSpan::new(); // of a process alone
    /// static LAST: AtomicU64 = AtomicU64::new(0);
    /// let rounds = SlowRounds { span: &SPAN, last: &LAST };
    /// ```
    pub const fn new() -> Self {
        SlowSpan { until: AtomicU64::new(0), length: AtomicU64::new(0) }
    }
}

/// Slow rounds, as one process knows them.
#[derive(Clone, Copy, Debug)]
pub struct SlowRounds<'a> {
    /// Knowledge of all participants.
    pub span: &'a SlowSpan,
    /// End of the last slow round of this process, in nanoseconds; 0: none yet.
    pub last: &'a AtomicU64,
}

impl SlowRounds<'_> {
    /// Policy by which a waiter with this policy begins to wait, or goes on: where rounds
    /// are slow, an adaptive one sleeps at once.
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::{Policy, SlowRounds};
    ///
    /// let cpu = Native::of_thread();
    /// assert_eq!(SlowRounds::policy_now(None, Policy::Adaptive, &cpu), Policy::Adaptive);
    /// ```
    #[inline]
    pub fn policy_now<P: Processor>(rounds: Option<Self>, policy: Policy, cpu: &P) -> Policy {
        let slow =
            policy == Policy::Adaptive && rounds.is_some_and(|rounds| rounds.are_expected(|| cpu.now()));
        if slow { Policy::Park } else { policy }
    }

    /// Yields, and notes it if it was slow. Returns the time that it took, in
    /// nanoseconds.
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::SlowRounds;
    ///
    /// println!("{} ns", SlowRounds::yield_now(None, &Native::of_thread()));
    /// ```
    pub fn yield_now<P: Processor + Park>(rounds: Option<Self>, cpu: &P) -> u64 {
        let began = cpu.now();
        cpu.yield_now();
        let ended = cpu.now();
        if let Some(rounds) = rounds {
            rounds.note(began, 0, ended);
        }
        ended.saturating_sub(began)
    }

    /// Spins as told, for `ns` nanoseconds at most, and notes it if it was slow and in
    /// vain.
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::SlowRounds;
    ///
    /// let cpu = Native::of_thread();
    /// assert_eq!(SlowRounds::spin(None, &cpu, 0, || Err::<(), _>("in vain")), Err("in vain"));
    /// ```
    #[inline]
    pub fn spin<P: Processor, T, E>(
        rounds: Option<Self>,
        cpu: &P,
        ns: u64,
        spin: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let Some(rounds) = rounds.filter(|_| ns > 0) else { return spin() };
        let began = cpu.now();
        let outcome = spin();
        if outcome.is_err() {
            rounds.note(began, ns, cpu.now());
        }
        outcome
    }

    /// Returns whether rounds are slow at present, by the last ones.
    #[inline]
    fn are_expected(&self, now: impl FnOnce() -> u64) -> bool {
        // Relaxed: a hint.
        let until = self.span.until.load(Ordering::Relaxed);
        until != 0 && is_before(now(), until)
    }

    /// Notes a round that began and ended at these times and was to take `ns`, all in
    /// nanoseconds.
    fn note(&self, began: u64, ns: u64, ended: u64) {
        let time = ended.saturating_sub(began);
        if time < ns.saturating_add(SLOW) {
            return;
        }
        // Relaxed, all: hints. Two waiters that note one at the same time may write one word each.
        let last = self.last.swap(ended, Ordering::Relaxed);
        let until = self.span.until.load(Ordering::Relaxed);
        // Of waiters that lost their cores at the same time, only the first one tells something
        // new.
        if is_before(began, until) {
            return;
        }
        // While they slept at once, there was none to be seen.
        let without = began.saturating_sub(last.max(until));
        if without > time.saturating_mul(ACCIDENT) {
            return;
        }
        let length = self.span.length.load(Ordering::Relaxed);
        let goes_on = (1..=LONGEST_SPAN).contains(&length) && began.wrapping_sub(until) < length;
        let next = if goes_on { (length * GROWTH).min(LONGEST_SPAN) } else { FIRST_SPAN };
        self.span.length.store(next, Ordering::Relaxed);
        self.span.until.store(ended.wrapping_add(next), Ordering::Relaxed);
    }
}

/// Returns whether `now` is before `until`, by a span at most.
fn is_before(now: u64, until: u64) -> bool {
    (1..=LONGEST_SPAN).contains(&until.wrapping_sub(now))
}

#[cfg(test)]
mod tests {
    use towpath_machine::Native;

    use super::*;
    use crate::waiting::CALLED;
    use crate::{PARKED, Surroundings, Wait, Waiting};

    /// A time slice of another program.
    const LONG: u64 = 3_000_000;
    const NOW: u64 = 1_000_000_000_000;

    #[derive(Default)]
    struct Process(SlowSpan, AtomicU64);

    impl Process {
        /// Process that has lost its core just before.
        fn that_lost_its_core() -> Self {
            Process(SlowSpan::default(), AtomicU64::new(NOW - 1))
        }
        fn rounds(&self) -> SlowRounds<'_> {
            SlowRounds { span: &self.0, last: &self.1 }
        }
        fn expects(&self, now: u64) -> bool {
            self.rounds().are_expected(|| now)
        }
    }

    /// Surroundings of a process beside one that computes on the same core.
    impl Surroundings for Process {
        fn oversubscribed(&self) -> bool {
            true
        }
        fn slow_rounds(&self) -> Option<SlowRounds<'_>> {
            Some(self.rounds())
        }
    }

    #[test]
    fn adaptive_waiter_sleeps_at_once_while_rounds_are_slow() {
        let (cpu, busy) = (Native::of_thread(), Process::default());
        let sleeps = |policy| {
            let word = AtomicU64::new(0);
            Wait { policy, around: &busy, budget: 1_000 }.wait_turn(&cpu, &word, 0, 0, 1_000_000);
            word.load(Ordering::Relaxed) & PARKED != 0
        };
        busy.0.until.store(cpu.now() + LONGEST_SPAN, Ordering::Relaxed);
        assert!(sleeps(Policy::Adaptive) && !sleeps(Policy::SpinThenYield));
        // Damage: too far ahead.
        for until in [0, cpu.now() + 3 * LONGEST_SPAN, u64::MAX] {
            busy.0.until.store(until, Ordering::Relaxed);
            assert!(!sleeps(Policy::Adaptive), "{until}");
        }
        let now = cpu.now();
        busy.1.store(now, Ordering::Relaxed);
        busy.rounds().note(now, 0, now + SLOW);
        assert!(sleeps(Policy::Adaptive));
    }

    /// Surroundings of the same process with cores to spare.
    struct Spare(Process);

    impl Surroundings for Spare {
        fn slow_rounds(&self) -> Option<SlowRounds<'_>> {
            Some(self.0.rounds())
        }
    }

    #[test]
    fn waiter_that_is_called_spins_before_it_sleeps() {
        let (cpu, busy, word) = (Native::of_thread(), Spare(Process::default()), AtomicU64::new(0));
        busy.0.0.until.store(cpu.now() + LONGEST_SPAN, Ordering::Relaxed);
        const TURN: u64 = 1_000_000_000;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(2));
                word.fetch_or(1, Ordering::Relaxed);
            });
            let wait = Wait { policy: Policy::Adaptive, around: &busy, budget: TURN };
            wait.wait_turn(&cpu, &word, 0, CALLED, TURN);
        });
        assert_eq!(word.into_inner(), 1, "no mark of a sleeper");
    }

    #[test]
    fn slow_rounds_in_a_row_are_expected_for_longer() {
        let (process, mut now) = (Process::that_lost_its_core(), NOW);
        let mut spans = Vec::new();
        for _ in 0..10 {
            process.rounds().note(now, 0, now + LONG);
            now += LONG;
            let begun = now;
            while process.expects(now) {
                now += 1_000_000;
            }
            spans.push(now - begun);
        }
        assert_eq!(spans[..3], [20_000_000, 80_000_000, 320_000_000]);
        assert_eq!(spans[4..], [LONGEST_SPAN; 6]);
        // After a while without any it begins anew.
        now += 2 * LONGEST_SPAN;
        for _ in 0..2 {
            process.rounds().note(now, 0, now + LONG);
            now += LONG;
        }
        assert!(process.expects(now) && !process.expects(now + FIRST_SPAN));
    }

    #[test]
    fn slow_rounds_of_all_at_the_same_time_count_once() {
        let process = Process::that_lost_its_core();
        for other in 0..8 {
            process.rounds().note(NOW + other, 0, NOW + LONG + other);
        }
        assert!(process.expects(NOW + LONG) && !process.expects(NOW + LONG + FIRST_SPAN));
    }

    #[test]
    fn slow_round_now_and_then_is_an_accident() {
        let process = Process::default();
        for without in [(ACCIDENT + 1) * LONG, ACCIDENT * LONG] {
            process.1.store(NOW, Ordering::Relaxed);
            let began = NOW + without;
            process.rounds().note(began, 0, began + LONG);
            assert_eq!(process.expects(began + LONG), without == ACCIDENT * LONG);
        }
    }

    #[test]
    fn spin_is_slow_beyond_its_time_and_yield_at_once() {
        for (ns, time, slow) in
            [(0, SLOW - 1, false), (0, SLOW, true), (LONG, LONG, false), (LONG, LONG + SLOW, true)]
        {
            let process = Process::that_lost_its_core();
            process.rounds().note(NOW, ns, NOW + time);
            assert_eq!(process.expects(NOW + time), slow, "{ns} {time}");
        }
    }

    #[test]
    fn spin_in_vain_is_noted_and_one_that_succeeds_is_not() {
        let cpu = Native::of_thread();
        for outcome in [Ok(()), Err(())] {
            let process = Process(SlowSpan::default(), AtomicU64::new(cpu.now()));
            let spun = SlowRounds::spin(Some(process.rounds()), &cpu, 1, || {
                std::thread::sleep(std::time::Duration::from_millis(3));
                outcome
            });
            assert_eq!(spun, outcome);
            assert_eq!(process.0.until.load(Ordering::Relaxed) != 0, outcome.is_err());
        }
    }

    #[test]
    fn any_bytes_change_nothing_for_long() {
        for (until, length) in
            [(u64::MAX, u64::MAX), (u64::MAX - 5, 1), (3, 1 << 63), (1 << 63, LONGEST_SPAN)]
        {
            let process = Process::that_lost_its_core();
            process.0.until.store(until, Ordering::Relaxed);
            process.0.length.store(length, Ordering::Relaxed);
            process.rounds().note(NOW, 0, NOW + LONG);
            assert!(!process.expects(NOW + LONG + LONGEST_SPAN), "{until} {length}");
        }
    }
}
