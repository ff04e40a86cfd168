//! A/B test: finds the better of two ways by taking both now and then.
//!
//! | state | takes | next |
//! | --- | --- | --- |
//! | `Current` | the way in use, and measures it | `Other`, after [`SAMPLES`] values |
//! | `Other` | the other way, and measures it | `Settled`, after [`SAMPLES`] values; the other way is in use from now on if it is clearly better |
//! | `Settled` | the way in use, and measures nothing | `Current`, after a rest, which is twice as long each time that nothing has changed |
//!
//! Disturbances make single values too large and never too small: the least of
//! `SAMPLES` counts. A value that never comes keeps it in its state. A first way that is quick only
//! when it has been in use for a while is warmed up before it is measured
//! ([`AbTest::with_warm_up`]). **Memory.** 40 bytes, nothing allocated.

/// Number of values that a way is judged by.
pub const SAMPLES: u8 = 4;
/// Number of turns of the first rest, and maximum number of turns of a rest.
pub const REST: (u32, u32) = (64, 1 << 14);
/// Number of turns of the first rest for each turn of a warm-up, at least.
const REST_OF_WARM_UP: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrialState {
    Current,
    Other,
    Settled,
}

/// Test of a first way and a second one.
#[derive(Clone, Copy, Debug)]
pub struct AbTest {
    state: TrialState,
    second: bool,
    values: u8,
    /// Number of the state, counted up: a value of an earlier one is too late.
    round: u32,
    /// Least value of the way in use, and of the other.
    best: [u64; 2],
    /// Number of turns that are left of the rest, or of a warm-up.
    left: u32,
    /// Number of turns of a rest.
    rest: u32,
    /// Number of turns of a warm-up.
    warm_up: u32,
}

/// A measurement: the state for which a turn is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round(u32);

impl AbTest {
    /// A new test. `second`: the second way is in use at first.
    ///
    /// ```
    /// use towpath_channel::ab_test::AbTest;
    ///
    /// let (second, round) = AbTest::new(true).turn();
    /// assert!(second && round.is_some()); // the way in use is measured first
    /// ```
    pub const fn new(second: bool) -> AbTest {
        AbTest {
            state: TrialState::Current,
            second,
            values: 0,
            round: 0,
            best: [u64::MAX; 2],
            left: 0,
            rest: REST.0,
            warm_up: 0,
        }
    }

    /// A new test with the first way in use, which is measured when it has been in use
    /// for so many turns.
    ///
    /// ```
    /// use towpath_channel::ab_test::AbTest;
    ///
    /// let mut test = AbTest::with_warm_up(2);
    /// assert_eq!([test.turn(), test.turn()], [(false, None); 2]); // not measured yet
    /// assert!(test.turn().1.is_some());
    /// ```
    pub const fn with_warm_up(turns: u32) -> AbTest {
        let mut test = AbTest { left: turns, warm_up: turns, ..AbTest::new(false) };
        test.rest = test.first_rest();
        test
    }

    const fn first_rest(&self) -> u32 {
        let least = self.warm_up.saturating_mul(REST_OF_WARM_UP);
        if least > REST.1 {
            REST.1
        } else if least > REST.0 {
            least
        } else {
            REST.0
        }
    }

    /// Chooses the way of the next turn: whether it is the second one, and the
    /// measurement, if there is one.
    ///
    /// ```
    /// use towpath_channel::ab_test::{AbTest, SAMPLES};
    ///
    /// let mut test = AbTest::new(false);
    /// for _ in 0..2 * SAMPLES {
    ///     let (second, round) = test.turn();
    ///     test.took(round.expect("it is measured"), if second { 50 } else { 100 });
    /// }
    /// assert_eq!(test.turn(), (true, None)); // the second way is clearly better
    /// ```
    #[inline]
    pub fn turn(&mut self) -> (bool, Option<Round>) {
        let second = self.second != (self.state == TrialState::Other);
        if self.left > 0 {
            self.left -= 1;
            return (second, None);
        }
        if self.state == TrialState::Settled {
            self.best = [u64::MAX; 2];
            self.go(TrialState::Current);
        }
        (second, Some(Round(self.round)))
    }

    /// Takes the cost of a measured turn.
    ///
    /// ```
    /// use towpath_channel::ab_test::{AbTest, SAMPLES};
    ///
    /// let (mut test, mut seconds) = (AbTest::new(false), 0);
    /// for _ in 0..2 * SAMPLES {
    ///     let (second, round) = test.turn();
    ///     seconds += u8::from(second);
    ///     test.took(round.expect("it is measured"), 100); // nanoseconds, say
    /// }
    /// assert_eq!((seconds, test.turn().0), (SAMPLES, false)); // it is not better
    /// ```
    pub fn took(&mut self, round: Round, value: u64) {
        let which = match self.state {
            TrialState::Current => 0,
            TrialState::Other => 1,
            TrialState::Settled => return,
        };
        if round.0 != self.round {
            return;
        }
        self.best[which] = self.best[which].min(value);
        self.values += 1;
        if self.values >= SAMPLES {
            match self.state {
                TrialState::Current => self.go(TrialState::Other),
                _ => self.judge(),
            }
        }
    }

    fn go(&mut self, state: TrialState) {
        self.state = state;
        self.round = self.round.wrapping_add(1);
        self.values = 0;
        self.left = match state {
            TrialState::Settled => self.rest,
            TrialState::Other if self.second => self.warm_up,
            TrialState::Other | TrialState::Current => 0,
        };
    }

    /// Compares both ways, which have been measured.
    fn judge(&mut self) {
        let [current, other] = self.best;
        // By an eighth at least: a change for less is not worth the next one back.
        if other < current - current / 8 {
            self.second = !self.second;
            self.rest = self.first_rest();
        } else {
            self.rest = (self.rest * 2).min(REST.1);
        }
        self.go(TrialState::Settled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many turns of these costs. Returns the number of turns each way.
    fn turns(test: &mut AbTest, costs: [u64; 2], count: usize) -> [usize; 2] {
        let mut took = [0; 2];
        for _ in 0..count {
            let (second, round) = test.turn();
            took[usize::from(second)] += 1;
            if let Some(round) = round {
                test.took(round, costs[usize::from(second)]);
            }
        }
        took
    }

    #[test]
    fn better_way_is_taken_and_the_other_tried_less_often() {
        for first in [false, true] {
            for costs in [[100, 50], [50, 100]] {
                let better = usize::from(costs[1] < costs[0]);
                let mut test = AbTest::new(first);
                turns(&mut test, costs, 2 * usize::from(SAMPLES));
                assert_eq!(turns(&mut test, costs, REST.0 as usize)[better], REST.0 as usize);
                let other = turns(&mut test, costs, 100_000)[1 - better];
                assert!(other >= usize::from(SAMPLES) && other <= 60, "{other}");
            }
        }
    }

    #[test]
    fn a_little_better_is_not_enough() {
        let mut test = AbTest::new(false);
        turns(&mut test, [100, 90], 8);
        assert_eq!(turns(&mut test, [100, 90], 64), [64, 0]);
    }

    #[test]
    fn first_way_is_measured_when_it_is_warm() {
        let mut test = AbTest::with_warm_up(10);
        for _ in 0..10 {
            assert_eq!(test.turn(), (false, None));
        }
        assert!(test.turn().1.is_some());
        assert_eq!(turns(&mut test, [100, 50], 8), [4, 4]);
        let settled = (REST_OF_WARM_UP * 10) as usize;
        assert_eq!(turns(&mut test, [100, 50], settled + 4), [0, settled + 4]);
        for _ in 0..10 {
            assert_eq!(test.turn(), (false, None), "the other way, warming up");
        }
        turns(&mut test, [20, 50], 4);
        assert_eq!(test.turn(), (false, None), "settled");
    }

    #[test]
    fn late_values_are_ignored_and_missing_ones_awaited() {
        let mut test = AbTest::new(false);
        let old = test.turn().1.unwrap();
        assert_eq!(turns(&mut test, [100, 50], 4), [4, 0]);
        for _ in 0..100 {
            assert!(test.turn().0);
            test.took(old, 1);
        }
        turns(&mut test, [100, 50], 4);
        assert_eq!(test.turn(), (true, None));
    }
}
