//! Predictor of tests: whether a program's empty polls are a wait, or tests in passing.
//!
//! A blocking call and a test (`MPI_Test`, `MPI_Iprobe`) poll alike. The next event tells them
//! apart: a program that waits gets a completion before it goes on; one that starts another
//! operation after empty polls had other things to do, and time spent on its behalf was lost to it.
//! For a program that does so time and again, twice as many polls return at once as it made before
//! it went on. HPC Challenge's RandomAccess is one: it tests once for each of some 350 updates, and
//! then sends them.

/// Full certainty that the program tests.
const FULL: u32 = 1024;
/// Certainty from which on polls return at once: about one time in ten it did not wait.
const DOUBTFUL: u32 = FULL / 4;
/// Maximum number of polls that return at once: some milliseconds.
const LONGEST: u32 = 1 << 15;

/// Outcomes of the program's empty polls.
#[derive(Debug, Default)]
pub struct TestPredictor {
    /// Certainty that the program tests, up to [`FULL`].
    doubt: u32,
    /// Number of polls that return at once if there is doubt.
    patience: u32,
}

impl TestPredictor {
    /// The program started an operation after so many empty polls.
    #[cold]
    pub fn on_new_operation(&mut self, polls: u32) {
        self.doubt += (FULL - self.doubt) / 8;
        self.patience = (self.patience - self.patience / 16).max(polls.saturating_mul(2)).min(LONGEST);
    }

    /// The program got a completion after some empty polls.
    #[inline(always)]
    pub fn on_completion(&mut self) {
        if self.doubt > 0 {
            self.doubt -= self.doubt.div_ceil(32);
        }
    }

    /// Number of polls that return at once.
    pub fn patience(&self) -> u32 {
        if self.doubt >= DOUBTFUL { self.patience } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_told_from_waits_by_what_follows() {
        let mut tests = TestPredictor::default();
        // Now and then is nothing.
        for _ in 0..100 {
            tests.on_new_operation(300);
            (0..32).for_each(|_| tests.on_completion());
            assert_eq!(tests.patience(), 0);
        }
        // One time in three is.
        for _ in 0..50 {
            tests.on_new_operation(300);
            tests.on_completion();
            tests.on_completion();
        }
        assert_eq!(tests.patience(), 600);
        (0..100).for_each(|_| tests.on_completion());
        assert_eq!(tests.patience(), 0);
        (0..100).for_each(|_| tests.on_new_operation(u32::MAX));
        assert_eq!(tests.patience(), LONGEST);
    }
}
