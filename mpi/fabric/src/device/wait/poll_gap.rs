//! Gaps between two empty polls: a bare turn of the MPI's loop, or work.
//!
//! The shortest gap seen is a bare turn of that loop. A much longer one is work, and a somewhat
//! longer one may be either: a test where the shortest gap was a wait's, or a little work. A
//! program that works is not put to sleep; one that may be working has to earn its sleep
//! ([`PollGaps::may_sleep`]), so that it never loses more than half of its time. A program that
//! makes nothing but bare turns sleeps at once if others compute, and otherwise when that has gone
//! on for a while: ranks that only wait give way to each other quickly enough.

/// Excess of work over one and a half bare turns, in nanoseconds.
const WORK: u64 = 500;
/// Time of bare turns that makes a long wait, in nanoseconds of the thread's own time.
const LONG: u64 = 2_000_000;
/// Resolution of the clocks, in nanoseconds.
const GRAIN: u64 = 60;
/// Parts of a nanosecond in which the shortest gap is kept, because it rises slowly.
const PARTS: u64 = 1 << 16;

/// Kind of a gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gap {
    /// A bare turn of the loop.
    #[default]
    Bare,
    /// Longer than that.
    Longer,
    /// Work.
    Work,
}

/// Gaps of one program, as far as they are known.
#[derive(Debug, Default)]
pub struct PollGaps {
    /// Usual gap, in nanoseconds: follows the program within ten polls or so.
    usual: u64,
    /// The shortest gap, in [`PARTS`]: falls at once, rises within ten thousand polls or
    /// so.
    shortest: u64,
    /// Kind of the last gap.
    last: Gap,
    /// Time that the program has had for itself and not slept for yet, in nanoseconds.
    earned: u64,
    /// Time for which it has made bare turns, in nanoseconds.
    bare: u64,
}

impl PollGaps {
    /// Adds a gap to the time that the program may sleep for, up to `most` nanoseconds.
    pub fn earn(&mut self, gap: u64, most: u64) {
        self.earned = (self.earned + gap).min(most);
    }

    /// Judges a gap that nothing has disturbed.
    pub fn judge(&mut self, gap: u64) -> Gap {
        let is_unusual = self.usual > 0 && gap > self.usual + self.usual / 2;
        self.usual =
            if gap < self.usual || self.usual == 0 { gap } else { self.usual + (gap - self.usual) / 8 };
        if self.shortest == 0 || gap * PARTS < self.shortest {
            self.shortest = gap * PARTS;
        }
        let shortest = self.shortest / PARTS;
        let above = gap - shortest;
        let what = match above {
            _ if is_unusual => Gap::Work,
            n if n > WORK + shortest / 2 => Gap::Work,
            n if n > GRAIN + shortest / 4 => Gap::Longer,
            _ => Gap::Bare,
        };
        self.shortest += above * if what == Gap::Bare { PARTS / 64 } else { 1 };
        self.last = what;
        self.bare = if what == Gap::Bare { self.bare + gap } else { 0 };
        what
    }

    /// Returns whether the program may sleep for so long.
    /// `wanted`: others want the core for more than a few polls.
    pub fn may_sleep(&mut self, ns: u64, wanted: bool) -> bool {
        let may = self.last == Gap::Bare && (wanted || self.bare >= LONG) || self.earned >= ns;
        if may {
            self.earned = self.earned.saturating_sub(ns);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_work_is_told_from_turns_of_the_loop() {
        let mut gaps = PollGaps::default();
        assert!((0..100).all(|i| gaps.judge(150 + i % 40) == Gap::Bare));
        assert!((0..10_000).all(|_| gaps.judge(900) == Gap::Work));
        assert_eq!(gaps.judge(160), Gap::Bare);
    }

    #[test]
    fn possible_work_sleeps_half_of_its_time_at_most() {
        let mut gaps = PollGaps::default();
        gaps.judge(150);
        assert!(!gaps.may_sleep(1_000_000, false) && gaps.may_sleep(1_000_000, true));
        let (mut had, mut slept) = (0, 0);
        // The first few are unusual.
        for i in 0..10_000 {
            assert!(gaps.judge(400) == Gap::Longer || i < 8);
            gaps.earn(400, 1_000_000);
            had += 400;
            if gaps.may_sleep(100_000, i % 2 == 0) {
                slept += 100_000;
            }
        }
        assert!(slept > had / 2 && slept <= had, "{slept} of {had}");
    }

    #[test]
    fn longer_loop_is_bare_in_the_end() {
        let mut gaps = PollGaps::default();
        gaps.judge(150);
        assert!((0..200_000).any(|i| gaps.judge(400) == Gap::Bare && i > 1_000));
    }
}
