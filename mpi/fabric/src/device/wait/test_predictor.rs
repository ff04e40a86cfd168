//! Whether a program that polls in vain waits, or looks in passing: what its earlier
//! polls in vain led to.
//!
//! A blocking call and a test (`MPI_Test`, `MPI_Iprobe`) look the same from here. What follows
//! tells them apart: who waited is given something before it goes on; who polls in vain, is given
//! nothing, and starts another operation all the same, had other things to do. Time spent on its
//! behalf was then lost to it. A program that does so time and again is left alone for twice as
//! many polls as it made before it went on. HPC Challenge's RandomAccess is one: it tests once for
//! each of some 350 updates, and then sends them.

/// Full doubt.
const FULL: u32 = 1024;
/// From here on it is left alone: about one time in ten it did not wait.
const DOUBTFUL: u32 = FULL / 4;
/// Longer than this nobody is left alone, in polls: some milliseconds.
const LONGEST: u32 = 1 << 15;

/// What polls in vain have led to.
#[derive(Debug, Default)]
pub struct Habit {
    /// How sure it is that the program looks in passing, up to [`FULL`].
    doubt: u32,
    /// For so many polls it is left alone if there is doubt.
    patience: u32,
}

impl Habit {
    /// After so many polls in vain it went on with nothing given.
    #[cold]
    pub fn went_on(&mut self, polls: u32) {
        self.doubt += (FULL - self.doubt) / 8;
        self.patience = (self.patience - self.patience / 16).max(polls.saturating_mul(2)).min(LONGEST);
    }

    /// After some polls in vain it was given something.
    #[inline(always)]
    pub fn was_given(&mut self) {
        if self.doubt > 0 {
            self.doubt -= self.doubt.div_ceil(32);
        }
    }

    /// So many polls return at once before anything is done on its behalf.
    pub fn patience(&self) -> u32 {
        if self.doubt >= DOUBTFUL { self.patience } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_on_with_nothing_given_is_left_alone_and_who_waits_again_is_not() {
        let mut habit = Habit::default();
        // Now and then is nothing.
        for _ in 0..100 {
            habit.went_on(300);
            (0..32).for_each(|_| habit.was_given());
            assert_eq!(habit.patience(), 0);
        }
        // One time in three is.
        for _ in 0..50 {
            habit.went_on(300);
            habit.was_given();
            habit.was_given();
        }
        assert_eq!(habit.patience(), 600);
        (0..100).for_each(|_| habit.was_given());
        assert_eq!(habit.patience(), 0);
        (0..100).for_each(|_| habit.went_on(u32::MAX));
        assert_eq!(habit.patience(), LONGEST);
    }
}
