//! Ranks whose polls are empty, with clocks that the test moves.

use super::*;
use crate::device::wait::yield_cost::{COMPUTES, HOLDS};

/// A rank that shares its core, and the clocks that it sees.
struct Rank {
    idle: Idle,
    used: u64,
    now: u64,
    activity: Activity,
    settings: Settings,
    /// Another program wants its core.
    others: bool,
}

impl Rank {
    fn new(oversubscribed: bool) -> Rank {
        let idle = Idle { oversubscribed, ..Idle::default() };
        Rank {
            idle,
            used: 1 << 40,
            now: 1 << 50,
            activity: Activity::default(),
            settings: Settings::default(),
            others: false,
        }
    }

    /// A rank that gets its core back late when it yields.
    fn among_others(oversubscribed: bool) -> Rank {
        let mut rank = Rank::new(oversubscribed);
        rank.idle.yields.off_core = COMPUTES;
        rank
    }

    /// A rank with a program on its core that keeps it for as long as it may.
    fn beside_a_program(oversubscribed: bool) -> Rank {
        let mut rank = Rank::new(oversubscribed);
        rank.others = true;
        rank.idle.on_off_core(u64::from(u32::MAX), rank.now, || true);
        rank
    }

    /// Another empty poll, after it ran and after it was off its core for so long.
    fn poll(&mut self, ran: u64, off: u64) -> Pause {
        self.used += ran;
        self.now += ran + off;
        let used = self.used;
        let pause = self.idle.decide(|| used, self.now, self.activity, &self.settings, || self.others);
        self.idle.estimator.set_after_pause(pause != Pause::None);
        pause
    }

    fn polls(&mut self, ran: u64, count: usize) -> Vec<Pause> {
        (0..count).map(|_| self.poll(ran, 0)).collect()
    }
}

fn slept(pauses: &[Pause]) -> Vec<u64> {
    pauses.iter().filter_map(|p| if let Pause::Sleep(ns) = p { Some(*ns) } else { None }).collect()
}

#[test]
fn waiter_sleeps_longer_and_longer_and_polls_in_between() {
    let mut rank = Rank::among_others(true);
    let pauses = rank.polls(1000, 100);
    assert!(pauses[..FREE as usize].iter().all(|p| *p == Pause::None));
    // A rank that waits for an answer sleeps soon.
    let mut asker = Rank::among_others(true);
    asker.activity.calls += 1;
    let yields = asker.settings.yields as usize;
    let first = asker.polls(500, yields + 3);
    assert_eq!(first[0], Pause::None);
    assert!(first[1..=yields].iter().all(|p| *p == Pause::Yield));
    assert_eq!(first[yields + 1..], [Pause::None, Pause::Sleep(FIRST_SLEEP_FOR_ANSWER)]);
    // Nor does it matter how long ago the clock was looked at if it was not when it looked for
    // more.
    asker.idle.on_completion(|| asker.activity);
    asker.idle.on_drain_poll();
    assert_eq!(asker.poll(500, 100 * SWITCHED), Pause::Yield);
    // An MPI that yields by itself need not be made to.
    let mut asker = Rank::new(true);
    asker.activity.calls += 1;
    assert!((0..=yields).all(|_| asker.poll(500, SWITCHED) == Pause::None));
    let sleeps = slept(&pauses);
    assert!(sleeps.is_sorted() && sleeps[0] == FIRST_SLEEP && sleeps.last() == Some(&rank.settings.nap));
    assert!(!pauses.windows(2).any(|p| matches!(p, [Pause::Sleep(_), Pause::Sleep(_)])));
    assert!(rank.idle.is_long());
}

#[test]
fn loop_around_foreign_operations_never_sleeps() {
    // Messages to itself: five polls in each, and what the program does between them.
    let mut rank = Rank::new(true);
    for _ in 0..100 {
        assert!(slept(&rank.polls(1100, 5)).is_empty());
        assert!(!matches!(rank.poll(2400, 0), Pause::Sleep(_)));
    }
}

#[test]
fn being_off_the_core_is_not_taken_for_work() {
    let mut rank = Rank::new(true);
    let pauses: Vec<_> =
        (0..100).map(|i| rank.poll(if i % 3 == 0 { 3000 } else { 1000 }, 1_000_000)).collect();
    assert!(slept(&pauses).len() > 10);
}

#[test]
fn what_happens_begins_it_anew() {
    let mut rank = Rank::among_others(true);
    rank.polls(1000, 100);
    // Served others: sleeps soon again, but shortly.
    rank.activity.frames += 1;
    let soon = rank.polls(1000, (FREE + 1 + rank.settings.yields) as usize);
    assert_eq!(slept(&soon)[..], [FIRST_SLEEP]);
    // Was given something elsewhere.
    rank.polls(1000, 100);
    rank.activity.elsewhere += 1;
    let soon = rank.polls(1000, (2 * FREE + rank.settings.yields + 1) as usize);
    assert_eq!(slept(&soon)[..], [FIRST_SLEEP]);
    assert!(!rank.idle.awaits_here());
    rank.activity.calls += 1;
    rank.polls(1000, 1);
    assert!(rank.idle.awaits_here());
    // Computed.
    rank.polls(1000, 100);
    assert_eq!(rank.poll(1_000_000, 0), Pause::None);
    // Started something.
    rank.polls(1000, 100);
    rank.activity.calls += 1;
    assert_eq!(rank.poll(1000, 0), Pause::None);
}

#[test]
fn wait_for_space_sleeps_and_is_not_taken_for_a_test() {
    for oversubscribed in [true, false] {
        let mut rank = Rank::new(oversubscribed);
        for _ in 0..100 {
            rank.activity.calls += 1;
            let pauses: Vec<_> = (0..100)
                .map(|i| {
                    rank.activity.refused += 1;
                    rank.poll(300 * (1 + i % 3), 0)
                })
                .collect();
            assert!(!oversubscribed || slept(&pauses).len() > 5, "{pauses:?}");
        }
        assert_eq!(rank.idle.estimator.patience(), 0);
    }
}

#[test]
fn with_cores_to_spare_it_looks_on_for_an_answer() {
    let mut rank = Rank::new(false);
    rank.activity.calls += 1;
    assert_eq!(rank.poll(500, 0), Pause::Spin(SHORT_SPIN));
    // Nor if it was given something, and looks whether there is more.
    rank.idle.on_completion(|| rank.activity);
    assert_eq!(rank.poll(500, 0), Pause::None);
    assert_eq!(rank.poll(500, 0), Pause::Spin(SHORT_SPIN));
    rank.idle.on_completion(|| rank.activity);
    rank.idle.on_drain_poll();
    assert_eq!(rank.poll(500, 0), Pause::Spin(SHORT_SPIN));
    // But not if it has asked nothing.
    let mut rank = Rank::new(false);
    assert_eq!(rank.poll(500, 0), Pause::None);
    // Nor does it sleep if the core is not wanted.
    assert!(slept(&rank.polls(500, 10_000)).is_empty());
    let mut rank = Rank::among_others(false);
    assert!(slept(&rank.polls(500, 10_000)).is_empty());
}

#[test]
fn beside_a_computing_program_it_sleeps_instead_of_yielding() {
    for oversubscribed in [false, true] {
        let mut rank = Rank::beside_a_program(oversubscribed);
        rank.activity.calls += 1;
        let pauses = rank.polls(500, 1000);
        assert!(!pauses.contains(&Pause::Yield), "{pauses:?}");
        let (first, sleeps) = (&pauses[..4], slept(&pauses));
        assert!(slept(first)[0] == FIRST_SLEEP_FOR_ANSWER && sleeps.len() > 20, "{pauses:?}");
        assert_eq!(sleeps.last(), Some(&rank.settings.nap));
        // In the end it looks again whether that is so.
        rank.idle.yields.avoided_until = 0;
        let later = rank.polls(500, 100);
        assert!(later.contains(&Pause::Yield), "{oversubscribed} {later:?}");
    }
    // Ranks may compute for as long: among them it goes on yielding.
    let mut rank = Rank::new(true);
    rank.idle.on_off_core(2 * HOLDS, rank.now, || false);
    assert!(!rank.idle.yield_is_expensive());
}

#[test]
fn caller_that_looks_in_passing_loses_little() {
    // A test after each 300 ns of work, where a wait has shown how short a turn is; nothing comes.
    // Half of its time at most, and next to nothing with a core to itself.
    for (mut rank, most) in [
        (Rank::new(false), 1),
        (Rank::new(true), 100),
        (Rank::beside_a_program(false), 100),
        (Rank::beside_a_program(true), 100),
    ] {
        rank.polls(150, 100);
        rank.activity.calls += 1;
        // Beside a program that computes it takes a while to find out.
        if rank.others {
            rank.polls(450, 100);
        }
        let pauses = rank.polls(450, 10_000);
        let lost = pauses.iter().map(|p| match p {
            Pause::Spin(ns) | Pause::Sleep(ns) => *ns,
            _ => 0,
        });
        let lost = lost.sum::<u64>();
        assert!(lost <= 45_000 * most, "{lost}: {:?}", slept(&pauses));
    }
    // A rank that computes for longer between two polls does not even yield.
    let mut rank = Rank::among_others(true);
    rank.activity.calls += 1;
    assert!(rank.polls(3 * TIGHT, 20).iter().all(|p| *p == Pause::None));
    // A rank that starts something every hundred polls.
    for mut rank in [Rank::among_others(true), Rank::beside_a_program(true), Rank::beside_a_program(false)] {
        for _ in 0..100 {
            rank.activity.calls += 1;
            rank.polls(150, 100);
        }
        rank.activity.calls += 1;
        assert!(slept(&rank.polls(150, 100)).is_empty());
    }
}

#[test]
fn an_interrupt_now_and_then_is_not_taken_for_work_but_work_is() {
    let mut rank = Rank::beside_a_program(false);
    let mut polls = |often: usize| -> Vec<Pause> {
        (0..10_000).map(|i| rank.poll(if i % often == 0 { 3 * TIGHT } else { 500 }, 0)).collect()
    };
    let waits = slept(&polls(100)).len();
    // Three polls, and what it does then.
    let works = slept(&polls(3)).len();
    assert!(waits > 200 && works < OFTEN as usize, "{waits} {works}");
}
