//! Choice of cases on the command line.

/// Part of the steps by which they grow from one kill to the next, in ordinary tests.
const COARSEST: u64 = 2;
/// Part at which an ordinary test leaves out next to nothing.
const FINEST: u64 = 1024;

/// Environment variable: number of steps that the second kill comes later than after one
/// step. The kills after it lie elsewhere, too.
const FIRST: &str = "TOWPATH_FIRST_STEP";

/// Cases to run, and density of the kills.
#[derive(Clone, Debug)]
pub struct Choice {
    every: bool,
    only: Vec<String>,
    first: u64,
}

impl Choice {
    /// `every`: kill after every instruction. Other words: names; a case is run if each
    /// word is one of its names, or has one of them between its commas. Options are the test
    /// runner's, and passed over.
    pub fn from_arguments() -> Choice {
        let words: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
        let (every, only): (Vec<_>, Vec<_>) = words.into_iter().partition(|word| word == "every");
        let first = std::env::var(FIRST).map_or(0, |steps| steps.parse().expect("a number of steps"));
        Choice { every: !every.is_empty(), only, first }
    }

    /// Returns whether the case of these names is to be run.
    pub fn includes(&self, names: &[&str]) -> bool {
        self.only.iter().all(|word| word.split(',').any(|name| names.contains(&name)))
    }

    /// Returns whether to leave nothing out.
    pub fn every(&self) -> bool {
        self.every
    }

    /// Number of steps that the second kill comes later than after one: tests that leave
    /// cases out choose by it, too.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Number of steps after which to kill next: one more, or so that it grows by half.
    pub fn after(&self, steps: u64) -> u64 {
        self.after_part(steps, COARSEST)
    }

    /// Number of steps after which to kill next, so that it grows by one in so many.
    pub fn after_part(&self, steps: u64, part: u64) -> u64 {
        match steps {
            _ if self.every => steps + 1,
            0 => 1 + self.first,
            _ => steps + 1 + steps / part,
        }
    }

    /// Runs a case, with kills ever closer to each other until it has seen enough.
    ///
    /// `case` gets the part of the steps by which they grow, and returns whether it has seen what
    /// lies between a few steps only. It is not run again with [`Choice::every`].
    pub fn until_seen(&self, mut case: impl FnMut(u64) -> bool) {
        let mut part = COARSEST;
        while !case(part) && !self.every && part < FINEST {
            part *= 4;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_lie_elsewhere_if_the_second_does() {
        let steps = |every, first| {
            let choice = Choice { every, only: Vec::new(), first };
            std::iter::successors(Some(0), |&steps| Some(choice.after(steps))).take(8).collect::<Vec<_>>()
        };
        assert_eq!(steps(true, 3), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(steps(false, 0), [0, 1, 2, 4, 7, 11, 17, 26]);
        assert_eq!(steps(false, 2), [0, 3, 5, 8, 13, 20, 31, 47]);
    }
}
