//! Which of two ways is the better one, found out by taking both now and then.
//!
//! ```text
//! Current   takes the way that it is to take anyway, and measures it     -> Other, after SAMPLES values
//! Other     takes the other way, and measures it                         -> Settled, after SAMPLES values: the other way from now on if it is clearly better
//! Settled   takes its way, and measures nothing                          -> Current, after so many turns; twice as many each time that nothing has changed
//! ```
//!
//! What holds up a measurement makes single values too large and never too small: the least of
//! `SAMPLES` counts. A value that never comes keeps it in its state. **Memory.** 40 bytes, nothing
//! allocated.

/// Values that a way is judged by.
pub const SAMPLES: u8 = 4;
/// It rests for so many turns at first, and at most for so many.
pub const REST: (u32, u32) = (64, 1 << 14);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Current,
    Other,
    Settled,
}

/// Between a first way and a second one.
#[derive(Clone, Copy, Debug)]
pub struct Contest {
    state: State,
    second: bool,
    values: u8,
    /// Counts the states: a value of an earlier one is too late.
    round: u32,
    /// The least value of the way in use, and of the other.
    best: [u64; 2],
    /// Settled: turns until it looks again, and how many there were at first.
    left: u32,
    rest: u32,
}

/// What a turn is measured for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heat(u32);

impl Contest {
    /// `second`: which is more likely, as long as nothing is known.
    pub fn new(second: bool) -> Contest {
        Contest {
            state: State::Current,
            second,
            values: 0,
            round: 0,
            best: [u64::MAX; 2],
            left: 0,
            rest: REST.0,
        }
    }

    /// The next turn: whether it is to take the second way, and what for if it is to be
    /// measured.
    #[inline]
    pub fn turn(&mut self) -> (bool, Option<Heat>) {
        let second = match self.state {
            State::Settled if self.left > 0 => {
                self.left -= 1;
                return (self.second, None);
            }
            State::Settled => {
                self.best = [u64::MAX; 2];
                self.go(State::Current);
                self.second
            }
            State::Current => self.second,
            State::Other => !self.second,
        };
        (second, Some(Heat(self.round)))
    }

    /// What a turn took.
    pub fn took(&mut self, heat: Heat, value: u64) {
        let which = match self.state {
            State::Current => 0,
            State::Other => 1,
            State::Settled => return,
        };
        if heat.0 != self.round {
            return;
        }
        self.best[which] = self.best[which].min(value);
        self.values += 1;
        if self.values >= SAMPLES {
            match self.state {
                State::Current => self.go(State::Other),
                _ => self.judge(),
            }
        }
    }

    fn go(&mut self, state: State) {
        self.state = state;
        self.round = self.round.wrapping_add(1);
        self.values = 0;
    }

    /// Both ways have been measured.
    fn judge(&mut self) {
        let [current, other] = self.best;
        // By an eighth at least: a change for less is not worth the next one back.
        if other < current - current / 8 {
            self.second = !self.second;
            self.rest = REST.0;
        } else {
            self.rest = (self.rest * 2).min(REST.1);
        }
        self.left = self.rest;
        self.go(State::Settled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many turns of these costs: how many took which way.
    fn turns(contest: &mut Contest, costs: [u64; 2], count: usize) -> [usize; 2] {
        let mut took = [0; 2];
        for _ in 0..count {
            let (second, heat) = contest.turn();
            took[usize::from(second)] += 1;
            if let Some(heat) = heat {
                contest.took(heat, costs[usize::from(second)]);
            }
        }
        took
    }

    #[test]
    fn the_better_way_is_taken_and_the_other_tried_less_and_less_often() {
        for first in [false, true] {
            for costs in [[100, 50], [50, 100]] {
                let better = usize::from(costs[1] < costs[0]);
                let mut contest = Contest::new(first);
                turns(&mut contest, costs, 2 * usize::from(SAMPLES));
                assert_eq!(turns(&mut contest, costs, REST.0 as usize)[better], REST.0 as usize);
                let other = turns(&mut contest, costs, 100_000)[1 - better];
                assert!(other >= usize::from(SAMPLES) && other <= 60, "{other}");
            }
        }
    }

    #[test]
    fn a_little_better_is_not_enough() {
        let mut contest = Contest::new(false);
        turns(&mut contest, [100, 90], 8);
        assert_eq!(turns(&mut contest, [100, 90], 64), [64, 0]);
    }

    #[test]
    fn values_that_come_too_late_count_for_nothing_and_missing_ones_are_waited_for() {
        let mut contest = Contest::new(false);
        let old = contest.turn().1.unwrap();
        assert_eq!(turns(&mut contest, [100, 50], 4), [4, 0]);
        for _ in 0..100 {
            assert!(contest.turn().0);
            contest.took(old, 1);
        }
        turns(&mut contest, [100, 50], 4);
        assert_eq!(contest.turn(), (true, None));
    }
}
