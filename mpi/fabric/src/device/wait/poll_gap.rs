//! What lies between two polls in vain: nothing but a turn of the MPI's loop, or work.
//!
//! The shortest gap seen is a bare turn of that loop. What takes much longer is work, and what
//! takes somewhat longer may be either: a test where the shortest gap was a wait's, or a little
//! work. Somebody who works is not put to sleep; somebody who may be working has to earn it
//! ([`Pace::may_sleep`]), so that it never loses more than half of its time. Who makes nothing but
//! bare turns sleeps at once if somebody else computes, and else when that has gone on for a while:
//! those who only wait give way to each other quickly enough.

/// What takes so much and half a bare turn longer than a bare turn is work, in
/// nanoseconds.
const WORK: u64 = 500;
/// Bare turns for so long are a long wait, in nanoseconds of its own time.
const LONG: u64 = 2_000_000;
/// The clocks are that coarse, in nanoseconds.
const GRAIN: u64 = 60;
/// The shortest gap is kept in so many parts of a nanosecond, because it rises slowly.
const PARTS: u64 = 1 << 16;

/// What a gap was.
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

/// What is known of the gaps.
#[derive(Debug, Default)]
pub struct Pace {
    /// What it usually uses between two polls: follows what it does within some ten
    /// polls.
    usual: u64,
    /// The shortest gap, in [`PARTS`]: falls at once, rises within some ten thousand
    /// polls.
    shortest: u64,
    /// What the last one was.
    last: Gap,
    /// What the program has had for itself and not slept for yet.
    earned: u64,
    /// For how long it has made bare turns.
    bare: u64,
}

impl Pace {
    /// The program has used so much of its time between two polls.
    pub fn earn(&mut self, gap: u64, most: u64) {
        self.earned = (self.earned + gap).min(most);
    }

    /// One gap that nothing has disturbed.
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

    /// Whether it may sleep for so long. `wanted`: somebody else wants the core for more
    /// than a few polls.
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
    fn work_is_told_from_turns_of_the_loop_however_regular_it_is() {
        let mut pace = Pace::default();
        assert!((0..100).all(|i| pace.judge(150 + i % 40) == Gap::Bare));
        assert!((0..10_000).all(|_| pace.judge(900) == Gap::Work));
        assert_eq!(pace.judge(160), Gap::Bare);
    }

    #[test]
    fn who_may_be_working_sleeps_for_half_of_its_time_at_most() {
        let mut pace = Pace::default();
        pace.judge(150);
        assert!(!pace.may_sleep(1_000_000, false) && pace.may_sleep(1_000_000, true));
        let (mut had, mut slept) = (0, 0);
        // The first few are unusual.
        for i in 0..10_000 {
            assert!(pace.judge(400) == Gap::Longer || i < 8);
            pace.earn(400, 1_000_000);
            had += 400;
            if pace.may_sleep(100_000, i % 2 == 0) {
                slept += 100_000;
            }
        }
        assert!(slept > had / 2 && slept <= had, "{slept} of {had}");
    }

    #[test]
    fn a_loop_that_has_become_longer_for_good_is_bare_in_the_end() {
        let mut pace = Pace::default();
        pace.judge(150);
        assert!((0..200_000).any(|i| pace.judge(400) == Gap::Bare && i > 1_000));
    }
}
