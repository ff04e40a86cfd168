//! Choice of cases on the command line.

/// Part of the steps by which they grow from one kill to the next, in ordinary tests.
const COARSEST: u64 = 4;
/// Part at which an ordinary test leaves out next to nothing.
const FINEST: u64 = 1024;

/// Cases to run, and density of the kills.
#[derive(Clone, Debug)]
pub struct Choice {
    every: bool,
    only: Vec<String>,
}

impl Choice {
    /// `every`: kill after every instruction. Other words: names; a case is run if each
    /// word is one of its names, or has one of them between its commas. Options are the test
    /// runner's, and passed over.
    pub fn from_arguments() -> Choice {
        let words: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
        let (every, only): (Vec<_>, Vec<_>) = words.into_iter().partition(|word| word == "every");
        Choice { every: !every.is_empty(), only }
    }

    /// Returns whether the case of these names is to be run.
    pub fn includes(&self, names: &[&str]) -> bool {
        self.only.iter().all(|word| word.split(',').any(|name| names.contains(&name)))
    }

    /// Returns whether to leave nothing out.
    pub fn every(&self) -> bool {
        self.every
    }

    /// The number of steps after which to kill next: one more, or so that it grows by a
    /// quarter.
    pub fn after(&self, steps: u64) -> u64 {
        self.after_part(steps, COARSEST)
    }

    /// Number of steps after which to kill next, so that it grows by one in so many.
    pub fn after_part(&self, steps: u64, part: u64) -> u64 {
        steps + if self.every { 1 } else { 1 + steps / part }
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
