//! Decisions of a wait: spin, yield or park, and for how long.
//!
//! A wait is a sequence of rounds: a spin (of no time, if cores are shared: one look), then a rest.
//! [`Strategy::next`] returns one step at a time and touches nothing but its [`WaitState`]; the
//! waiter executes the step. Locks, waits for space in a queue, bundles of endpoints and the
//! provider's idle loop all ask here, each with its own [`Limits`].
//!
//! ```text
//!               next: Spin(course.spin)
//!  WaitState ▶ Phase::Spin ─────────────────────────────▶ Phase::Rest
//!               ▲  │ course.rest = Nothing: stays           │
//!               │  └──────┐                                 │
//!               └─────────┘                                 │ next: Yield      (Rest::Yield, or
//!               ▲                                           │        yields left of Rest::Park)
//!               └───────────────────────────────────────────┘ next: Park(nap)  (no yields left)
//! ```
//!
//! | policy | spin | rest |
//! | --- | --- | --- |
//! | `spin` | [`Limits::patience`], or a budget | nothing |
//! | `spin-then-yield` | a budget | yield |
//! | `spin-then-park` | a budget | [`Limits::yields`] yields, then park |
//! | `park` | one look | park |
//! | `adaptive`, cores to spare | [`Limits::budgets_to_spare`] budgets | [`Limits::yields_to_spare`] yields, then park |
//! | `adaptive`, oversubscribed | one look | [`Limits::yields_oversubscribed`] yields, then park |
//!
//! The strategy of a waiter that has more to consider than a policy is made of two [`Course`]s by
//! hand.

use super::Policy;

/// One step of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Spin for this time, in nanoseconds: for none, look once.
    Spin(u64),
    /// Give the core to another thread.
    Yield,
    /// Sleep until woken, but at most this time, in nanoseconds.
    Park(u64),
}

/// Rest of a waiter between two spins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Spins again.
    Nothing,
    /// Yields.
    Yield,
    /// Parks.
    Park {
        /// Number of yields of a wait before it first parks.
        yields: u32,
    },
}

/// One round of a wait: a spin, then a rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Course {
    /// Time to spin, in nanoseconds.
    pub spin: u64,
    /// Rest after a spin without success.
    pub rest: Rest,
}

/// Constants of a kind of wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Spin of [`Policy::Spin`] before the waiter looks after other things, in
    /// nanoseconds; `None`: one budget.
    pub patience: Option<u64>,
    /// Spin of [`Policy::Adaptive`] with cores to spare, in budgets.
    pub budgets_to_spare: u64,
    /// Number of yields of [`Policy::SpinThenPark`] before it parks.
    pub yields: u32,
    /// Number of yields of [`Policy::Adaptive`] with cores to spare before it parks.
    pub yields_to_spare: u32,
    /// Number of yields of [`Policy::Adaptive`] before it parks when oversubscribed.
    pub yields_oversubscribed: u32,
    /// Maximum time of one sleep, in nanoseconds.
    pub nap: u64,
}

impl Limits {
    /// Limits of waits for a word that its releaser wakes: locks and barriers. A sleep
    /// ends after 20 ms to ask for deaths.
    pub const LOCK: Limits = Limits {
        patience: Some(1_000_000),
        budgets_to_spare: 4,
        yields: 0,
        yields_to_spare: 0,
        yields_oversubscribed: 16,
        nap: 20_000_000,
    };
    /// Limits of short turns between which the waiter does other things, as in front of a
    /// full queue. Parks late, since receivers make space soon, and then need not wake.
    pub const TURN: Limits = Limits {
        patience: None,
        budgets_to_spare: 1,
        yields: 1,
        yields_to_spare: 8,
        yields_oversubscribed: 64,
        nap: 1_000_000,
    };
    /// Limits of waits for messages. A sleep ends after 50 ms, which bounds the delay of
    /// a message whose sender died just before it woke the receiver; twenty looks a second cost
    /// well under 1 % of a core.
    pub const MESSAGE: Limits = Limits {
        patience: Some(1_000_000),
        budgets_to_spare: 10,
        yields: 0,
        yields_to_spare: 0,
        yields_oversubscribed: 8,
        nap: 50_000_000,
    };
}

/// Courses of a wait with cores to spare and when oversubscribed, and its sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strategy {
    /// Round with cores to spare.
    pub spare: Course,
    /// Round when oversubscribed.
    pub oversubscribed: Course,
    /// Maximum time of the first sleep, in nanoseconds. Each further one may last twice
    /// as long.
    pub first_nap: u64,
    /// Maximum time of any sleep, in nanoseconds.
    pub longest_nap: u64,
}

impl Strategy {
    /// Strategy of a policy for a kind of wait. `budget`: about the cost of a context
    /// switch, in nanoseconds.
    ///
    /// ```
    /// use towpath_sync::Policy;
    /// use towpath_sync::strategy::{Limits, Rest, Strategy};
    ///
    /// let strategy = Strategy::new(Policy::SpinThenYield, 2_000, &Limits::LOCK);
    /// assert_eq!((strategy.spare.spin, strategy.spare.rest), (2_000, Rest::Yield));
    /// ```
    #[inline]
    pub const fn new(policy: Policy, budget: u64, limits: &Limits) -> Strategy {
        let (spare, oversubscribed) = match policy {
            Policy::Spin => {
                let spin = match limits.patience {
                    Some(patience) => patience,
                    None => budget,
                };
                Self::both(spin, Rest::Nothing)
            }
            Policy::SpinThenYield => Self::both(budget, Rest::Yield),
            Policy::SpinThenPark => Self::both(budget, Rest::Park { yields: limits.yields }),
            Policy::Park => Self::both(0, Rest::Park { yields: 0 }),
            Policy::Adaptive => (
                Course {
                    spin: budget.saturating_mul(limits.budgets_to_spare),
                    rest: Rest::Park { yields: limits.yields_to_spare },
                },
                Course { spin: 0, rest: Rest::Park { yields: limits.yields_oversubscribed } },
            ),
        };
        Strategy { spare, oversubscribed, first_nap: limits.nap, longest_nap: limits.nap }
    }

    const fn both(spin: u64, rest: Rest) -> (Course, Course) {
        (Course { spin, rest }, Course { spin, rest })
    }

    /// Next step of a wait. `oversubscribed` is asked at most once a round, and only if
    /// the answer matters.
    ///
    /// ```
    /// use towpath_sync::Policy;
    /// use towpath_sync::strategy::{Limits, Step, Strategy, WaitState};
    ///
    /// let strategy = Strategy::new(Policy::SpinThenYield, 2_000, &Limits::LOCK);
    /// let mut state = WaitState::default();
    /// assert_eq!(strategy.next(&mut state, || false), Step::Spin(2_000));
    /// assert_eq!(strategy.next(&mut state, || false), Step::Yield);
    /// ```
    #[inline]
    pub fn next(&self, state: &mut WaitState, oversubscribed: impl FnOnce() -> bool) -> Step {
        let course = |oversubscribed| if oversubscribed { self.oversubscribed } else { self.spare };
        if state.phase == Phase::Rest {
            state.phase = Phase::Spin;
            match course(state.oversubscribed).rest {
                Rest::Nothing => {}
                Rest::Park { yields } if state.yields >= yields => return self.park(state),
                Rest::Yield | Rest::Park { .. } => {
                    state.yields = state.yields.saturating_add(1);
                    return Step::Yield;
                }
            }
        }
        state.oversubscribed = self.spare != self.oversubscribed && oversubscribed();
        let Course { spin, rest } = course(state.oversubscribed);
        state.phase = if rest == Rest::Nothing { Phase::Spin } else { Phase::Rest };
        Step::Spin(spin)
    }

    fn park(&self, state: &mut WaitState) -> Step {
        state.nap = match state.nap {
            0 => self.first_nap,
            nap => nap.saturating_mul(2),
        };
        state.nap = state.nap.min(self.longest_nap);
        Step::Park(state.nap)
    }
}

/// Phase of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// The next step is a spin.
    #[default]
    Spin,
    /// The next step is a rest.
    Rest,
}

/// Progress of one wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitState {
    phase: Phase,
    /// Number of yields so far.
    yields: u32,
    /// Last sleep, in nanoseconds; 0: none yet.
    nap: u64,
    /// Answer of the surroundings in this round.
    oversubscribed: bool,
}

impl WaitState {
    /// Progress of a wait of which `rounds` rounds are over, none of them asleep.
    ///
    /// ```
    /// use towpath_sync::Policy;
    /// use towpath_sync::strategy::{Limits, Step, Strategy, WaitState};
    ///
    /// let strategy = Strategy::new(Policy::Adaptive, 2_000, &Limits::TURN);
    /// let mut state = WaitState::after(8); // it has yielded often enough
    /// strategy.next(&mut state, || false);
    /// assert_eq!(strategy.next(&mut state, || false), Step::Park(1_000_000));
    /// ```
    #[inline]
    pub const fn after(rounds: u32) -> WaitState {
        WaitState { phase: Phase::Spin, yields: rounds, nap: 0, oversubscribed: false }
    }

    /// Returns whether a round is over: the time to look after other things.
    ///
    /// ```
    /// # use towpath_sync::Policy;
    /// # use towpath_sync::strategy::{Limits, Step, Strategy, WaitState};
    /// #
    /// # let strategy = Strategy::new(Policy::SpinThenYield, 2_000, &Limits::LOCK);
    /// let mut state = WaitState::default();
    /// strategy.next(&mut state, || false);
    /// assert!(!state.is_between_rounds(), "it has spun, and not rested yet");
    /// ```
    #[inline]
    pub fn is_between_rounds(&self) -> bool {
        self.phase == Phase::Spin
    }

    /// Returns whether the surroundings said that they are oversubscribed in this round.
    ///
    /// ```
    /// # use towpath_sync::Policy;
    /// # use towpath_sync::strategy::{Limits, Step, Strategy, WaitState};
    /// #
    /// # let strategy = Strategy::new(Policy::Adaptive, 2_000, &Limits::LOCK);
    /// let mut state = WaitState::default();
    /// assert_eq!(strategy.next(&mut state, || true), Step::Spin(0));
    /// assert!(state.is_oversubscribed());
    /// ```
    #[inline]
    pub fn is_oversubscribed(&self) -> bool {
        self.oversubscribed
    }
}

/// Pauses of exponential back-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOff {
    /// First pause, in nanoseconds.
    pub base: u64,
    /// Number of times that it doubles.
    pub doublings: u32,
}

impl BackOff {
    /// Back-off of the library's own policies.
    pub const NATIVE: BackOff = BackOff { base: 25, doublings: 7 };

    /// The `round`-th pause (from 0), in nanoseconds.
    ///
    /// ```
    /// # use towpath_sync::strategy::BackOff;
    /// let back_off = BackOff { base: 10, doublings: 2 };
    /// assert_eq!([0, 1, 2, 3].map(|round| back_off.pause(round)), [10, 20, 40, 40]);
    /// ```
    #[inline(always)]
    pub const fn pause(&self, round: u32) -> u64 {
        self.base << if round < self.doublings { round } else { self.doublings }
    }

    /// Sum of the pauses before the `round`-th one, in nanoseconds.
    ///
    /// ```
    /// # use towpath_sync::strategy::BackOff;
    /// let back_off = BackOff { base: 10, doublings: 2 };
    /// assert_eq!([0, 1, 2, 3, 5].map(|round| back_off.before(round)), [0, 10, 30, 70, 150]);
    /// ```
    pub const fn before(&self, round: u32) -> u64 {
        let since_doubled = round.saturating_sub(self.doublings) as u64;
        self.pause(round) * (since_doubled + 1) - self.base
    }

    /// Number of pauses that begin within `budget` nanoseconds.
    ///
    /// ```
    /// # use towpath_sync::strategy::BackOff;
    /// let back_off = BackOff { base: 10, doublings: 2 };
    /// assert_eq!(back_off.rounds_within(30), 2);
    /// ```
    pub fn rounds_within(&self, budget: u64) -> u32 {
        (0..).find(|&round| self.before(round) >= budget).unwrap_or(u32::MAX)
    }

    /// Step before the `round`-th attempt (from 0) of a waiter that backs off for as long
    /// as a strategy spins with cores to spare, rests where it rests, and begins anew.
    ///
    /// ```
    /// use towpath_sync::strategy::{BackOff, Limits, Step, Strategy};
    /// use towpath_sync::Policy;
    ///
    /// let back_off = BackOff { base: 10, doublings: 2 };
    /// let strategy = Strategy::new(Policy::SpinThenYield, 30, &Limits::LOCK);
    /// let steps = [0, 1, 2].map(|round| back_off.attempt(&strategy, round));
    /// assert_eq!(steps, [Step::Spin(10), Step::Spin(20), Step::Yield]);
    /// ```
    pub fn attempt(&self, strategy: &Strategy, round: u32) -> Step {
        let Course { spin, rest } = strategy.spare;
        if rest == Rest::Nothing {
            return Step::Spin(self.pause(round));
        }
        let rounds = self.rounds_within(spin);
        let round = round % (rounds + 1);
        if round < rounds { Step::Spin(self.pause(round)) } else { Step::Yield }
    }

    /// Step of a policy that backs off for the `round`-th time in a row: all but
    /// [`Policy::Spin`] yield when the pauses no longer double, [`Policy::Adaptive`] at once if
    /// oversubscribed.
    ///
    /// ```
    /// use towpath_sync::strategy::{BackOff, Step};
    /// use towpath_sync::Policy;
    ///
    /// let back_off = BackOff { base: 10, doublings: 2 };
    /// assert_eq!(back_off.next(Policy::Adaptive, 0, || false), Step::Spin(10));
    /// assert_eq!(back_off.next(Policy::Adaptive, 0, || true), Step::Yield);
    /// ```
    pub fn next(&self, policy: Policy, round: u32, oversubscribed: impl FnOnce() -> bool) -> Step {
        let yields = match policy {
            Policy::Spin => false,
            Policy::Adaptive => round > self.doublings || oversubscribed(),
            Policy::SpinThenYield | Policy::SpinThenPark | Policy::Park => round > self.doublings,
        };
        if yields { Step::Yield } else { Step::Spin(self.pause(round)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(policy: Policy, limits: &Limits, oversubscribed: bool) -> Vec<Step> {
        let (strategy, mut state) = (Strategy::new(policy, 1_000, limits), WaitState::default());
        (0..6).map(|_| strategy.next(&mut state, || oversubscribed)).collect()
    }

    #[test]
    fn each_policy_takes_the_steps_of_the_table() {
        use Step::{Park, Spin, Yield};
        let few = Limits { yields: 1, yields_oversubscribed: 2, nap: 7, ..Limits::LOCK };
        let spare = |policy| steps(policy, &few, false);
        assert_eq!(spare(Policy::Spin), [Spin(1_000_000); 6]);
        assert_eq!(spare(Policy::SpinThenYield), [Spin(1_000), Yield].repeat(3));
        let parks = [Spin(1_000), Yield, Spin(1_000), Park(7), Spin(1_000), Park(7)];
        assert_eq!(spare(Policy::SpinThenPark), parks);
        assert_eq!(spare(Policy::Park), [Spin(0), Park(7)].repeat(3));
        assert_eq!(spare(Policy::Adaptive), [Spin(4_000), Park(7)].repeat(3));
        let oversubscribed = [Spin(0), Yield, Spin(0), Yield, Spin(0), Park(7)];
        assert_eq!(steps(Policy::Adaptive, &few, true), oversubscribed);
        assert_eq!(steps(Policy::Spin, &Limits::TURN, true), [Spin(1_000); 6]);
    }

    #[test]
    fn only_adaptive_asks_and_once_a_round() {
        for (policy, name) in Policy::ALL {
            let (strategy, mut state) = (Strategy::new(policy, 1, &Limits::LOCK), WaitState::default());
            let mut asked = 0;
            for _ in 0..10 {
                strategy.next(&mut state, || {
                    asked += 1;
                    true
                });
            }
            assert_eq!(asked, if policy == Policy::Adaptive { 5 } else { 0 }, "{name}");
        }
    }

    #[test]
    fn rounds_end_after_a_rest_or_a_spin_without_one() {
        for (policy, name) in Policy::ALL {
            let (strategy, mut state) = (Strategy::new(policy, 1, &Limits::LOCK), WaitState::default());
            assert!(state.is_between_rounds(), "{name}");
            strategy.next(&mut state, || false);
            assert_eq!(state.is_between_rounds(), policy == Policy::Spin, "{name}");
            strategy.next(&mut state, || false);
            assert!(state.is_between_rounds(), "{name}");
        }
    }

    #[test]
    fn rounds_that_are_over_count_as_yields() {
        let strategy = Strategy::new(Policy::Adaptive, 1_000, &Limits::TURN);
        for (rounds, oversubscribed, parks) in
            [(7, false, false), (8, false, true), (63, true, false), (64, true, true)]
        {
            let mut state = WaitState::after(rounds);
            strategy.next(&mut state, || oversubscribed);
            let rest = strategy.next(&mut state, || oversubscribed);
            assert_eq!(rest == Step::Park(1_000_000), parks, "{rounds}");
        }
    }

    #[test]
    fn naps_double_up_to_the_longest() {
        let course = Course { spin: 0, rest: Rest::Park { yields: 0 } };
        let strategy = Strategy { spare: course, oversubscribed: course, first_nap: 50, longest_nap: 300 };
        let mut state = WaitState::default();
        let naps: Vec<Step> = (0..10).map(|_| strategy.next(&mut state, || false)).collect();
        let parks = [50, 100, 200, 300, 300].map(Step::Park);
        assert!(naps.iter().skip(1).step_by(2).eq(&parks), "{naps:?}");
    }

    #[test]
    fn attempts_pause_while_the_strategy_spins_then_rest() {
        let back_off = BackOff { base: 10, doublings: 2 };
        let all = |policy| {
            let strategy = Strategy::new(policy, 35, &Limits::LOCK);
            (0..5).map(|round| back_off.attempt(&strategy, round)).collect::<Vec<_>>()
        };
        let [first, second, third] = [10, 20, 40].map(Step::Spin);
        assert_eq!(all(Policy::Spin), [first, second, third, third, third]);
        assert_eq!(all(Policy::SpinThenYield), [first, second, third, Step::Yield, first]);
        assert_eq!(all(Policy::SpinThenPark), all(Policy::SpinThenYield));
        assert_eq!(all(Policy::Adaptive), [first, second, third, third, third], "four budgets");
        assert_eq!(all(Policy::Park), [Step::Yield; 5]);
    }

    #[test]
    fn back_off_doubles_then_yields_unless_it_spins() {
        let back_off = BackOff { base: 10, doublings: 2 };
        let all = |policy| (0..5).map(|round| back_off.next(policy, round, || false)).collect::<Vec<_>>();
        let pauses = [10, 20, 40].map(Step::Spin);
        assert_eq!(all(Policy::Spin), [pauses.as_slice(), &[Step::Spin(40); 2]].concat());
        assert_eq!(all(Policy::Park), [pauses.as_slice(), &[Step::Yield; 2]].concat());
        assert_eq!(all(Policy::Adaptive), all(Policy::Park));
        assert_eq!(back_off.next(Policy::Adaptive, 0, || true), Step::Yield);
        assert_eq!([0, 1, 30, 31, 70, 71].map(|ns| back_off.rounds_within(ns)), [0, 1, 2, 3, 3, 4]);
    }
}
