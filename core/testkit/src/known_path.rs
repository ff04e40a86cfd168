//! Known path of a victim: the places where it stood. Later victims get to a step sooner.
//!
//! To step through a hundred instructions costs a hundred traps, and each trap some microseconds.
//! Victims of one case do the same from the mark on. So the first ones are stepped, and each place
//! is noted; a later one runs at full speed to a breakpoint near the step that is asked for, and is
//! stepped over the rest. A victim that leaves the path is stepped all the way.

use std::collections::HashMap;

/// Traps that a visit to a breakpoint costs: the breakpoint's own, and a step over it.
const VISIT: usize = 2;
/// Number of victims that may leave a path before no more use is made of it.
const STRAYS: u32 = 3;

/// Places where the victims of one case stand after each step.
#[derive(Debug, Default)]
pub struct KnownPath {
    /// Address of the instruction that comes after step i.
    places: Vec<u64>,
    /// Number of arrivals at places[i], from the mark up to step i. 0: an instruction
    /// that repeats itself is in its middle.
    visits: Vec<u32>,
    /// Number of visits to each place.
    counts: HashMap<u64, u32>,
    /// Number of victims that did not come by.
    strays: u32,
    /// The last victim did not come by.
    strayed: bool,
}

/// A breakpoint on the way to a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stop {
    /// Step after which the victim stands there.
    pub step: u64,
    /// Address of the instruction.
    pub place: u64,
    /// Number of visits, the last of which is the one that counts.
    pub visits: u32,
}

impl KnownPath {
    /// Returns whether a victim that has come to its second mark ends the case.
    ///
    /// `complete` is what [`Victim::run_along`](crate::Victim::run_along) has returned. One that
    /// left the path, and came to its mark before the step that was asked for, does not end it:
    /// there are steps at which no victim was stopped yet.
    pub fn is_done(&self, complete: bool) -> bool {
        complete && !self.strayed
    }

    /// Breakpoint by which a victim gets to a step with the fewest traps.
    pub(crate) fn stop_before(&self, steps: u64) -> Option<Stop> {
        if !cfg!(target_arch = "x86_64") || self.strays >= STRAYS {
            return None;
        }
        let mut best = None;
        let mut fewest = usize::try_from(steps).ok()?;
        let last = self.places.len().checked_sub(1)?.min(fewest);
        for at in (1..=last).rev() {
            let rest = steps as usize - at;
            if rest >= fewest {
                break;
            }
            let visits = self.visits[at] as usize;
            if visits > 0 && rest + VISIT * visits < fewest {
                fewest = rest + VISIT * visits;
                best = Some(at);
            }
        }
        let at: usize = best?;
        Some(Stop { step: at as u64, place: self.places[at], visits: self.visits[at] })
    }

    /// Returns whether the place after this step is not known yet.
    pub(crate) fn ends_before(&self, step: u64) -> bool {
        self.places.len() as u64 == step
    }

    /// Notes the place after the next step.
    pub(crate) fn push(&mut self, place: u64) {
        let visits = match self.places.last() {
            Some(&last) if last == place => 0,
            _ => {
                let count = self.counts.entry(place).or_default();
                *count += 1;
                *count
            }
        };
        self.places.push(place);
        self.visits.push(visits);
    }

    /// Begins with a new victim.
    pub(crate) fn begin(&mut self) {
        self.strayed = false;
    }

    /// Forgets a path that a victim has left.
    pub(crate) fn stray(&mut self) {
        self.places.clear();
        self.visits.clear();
        self.counts.clear();
        self.strays += 1;
        self.strayed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(places: &[u64]) -> KnownPath {
        let mut path = KnownPath::default();
        places.iter().for_each(|&place| path.push(place));
        path
    }

    #[test]
    fn known_place_is_reached_by_one_visit() {
        let path = path(&[10, 11, 12, 13, 14, 15]);
        assert_eq!(path.stop_before(5), Some(Stop { step: 5, place: 15, visits: 1 }));
    }

    #[test]
    fn step_beyond_the_path_is_stepped_from_its_end() {
        let path = path(&[10, 11, 12, 13]);
        assert_eq!(path.stop_before(9), Some(Stop { step: 3, place: 13, visits: 1 }));
    }

    #[test]
    fn place_in_a_loop_counts_its_visits() {
        let path = path(&[1, 2, 3, 2, 3, 2, 3, 4]);
        assert_eq!(path.visits, [1, 1, 1, 2, 2, 3, 3, 1]);
        assert_eq!(path.stop_before(6), None, "three visits cost as much as six steps");
        assert_eq!(path.stop_before(7), Some(Stop { step: 7, place: 4, visits: 1 }));
    }

    #[test]
    fn instruction_that_repeats_itself_is_one_visit() {
        let path = path(&[1, 2, 2, 2, 3, 2, 2, 4, 5, 6]);
        assert_eq!(path.visits, [1, 1, 0, 0, 1, 2, 0, 1, 1, 1]);
        assert_eq!(path.stop_before(3), None, "a breakpoint saves no trap");
        assert_eq!(path.stop_before(6), Some(Stop { step: 4, place: 3, visits: 1 }));
    }

    #[test]
    fn victim_that_strays_ends_no_case() {
        let mut path = path(&[1, 2, 3, 4, 5, 6]);
        assert!(path.is_done(true) && !path.is_done(false));
        path.stray();
        assert!(!path.is_done(true));
        assert_eq!(path.stop_before(5), None);
        path.begin();
        assert!(path.is_done(true));
    }
}
