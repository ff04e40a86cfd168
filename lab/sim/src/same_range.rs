//! Values of parameters with which a run would have been the same.
//!
//! Some parameters are looked at by rare steps only: the time until a refused request is sent again
//! by refusals, the window of stores by computations that begin while stores are under way. The
//! engine notes how these steps went. With another value for which each of them goes the same way,
//! all events are the same, so that the run need not be made.

use std::ops::RangeInclusive;

use crate::engine::Engine;
use crate::event_queue::Time;
use crate::parameters::Parameters;

/// Name of the time until a refused request is sent again.
const RETRY: &str = "directory.retry";
/// Name of the length of the shortest computation that waits for stores.
const STORE_WINDOW: &str = "processor.store_window";

/// Range of a parameter's values with which a run is the same, event for event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SameRange {
    /// Name of the parameter.
    pub parameter: &'static str,
    /// The values, in the parameter's unit ([`Described::number`]).
    ///
    /// [`Described::number`]: crate::parameters::Described::number
    pub values: RangeInclusive<u64>,
}

/// Lengths of the computations that began while the processor's stores were under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ComputedBehindStores {
    /// Length of the longest one that did not wait for the stores, in picoseconds.
    longest_at_once: Time,
    /// Length of the shortest one that waited for them, in picoseconds.
    shortest_delayed: Time,
}

impl Default for ComputedBehindStores {
    fn default() -> Self {
        ComputedBehindStores { longest_at_once: 0, shortest_delayed: Time::MAX }
    }
}

impl ComputedBehindStores {
    /// Notes a computation of that length.
    pub fn note(&mut self, length: Time, waits: bool) {
        if waits {
            self.shortest_delayed = self.shortest_delayed.min(length);
        } else {
            self.longest_at_once = self.longest_at_once.max(length);
        }
    }
}

/// Returns the ranges of the parameters that are watched, for a run that has ended so.
pub(crate) fn same_ranges(e: &Engine) -> Vec<SameRange> {
    let retry = match e.counters.refusals {
        0 => 0..=u64::MAX,
        _ => e.p.retry..=e.p.retry,
    };
    let computed = e.computed_behind_stores;
    let window = match e.p.store_window {
        // Another order of loads and stores than with any window.
        0 => 0..=0,
        _ => computed.longest_at_once + 1..=computed.shortest_delayed,
    };
    vec![SameRange { parameter: RETRY, values: retry }, SameRange { parameter: STORE_WINDOW, values: window }]
}

impl Parameters {
    /// Returns whether a run with these parameters is the same as one with others, which
    /// has told such ranges.
    ///
    /// It is if they differ within the ranges only.
    pub fn runs_as(&self, others: &Parameters, ranges: &[SameRange]) -> bool {
        let (ours, theirs) = (self.describe(), others.describe());
        let is_same = |name: &str, values: [u64; 2]| {
            let range = ranges.iter().find(|range| range.parameter == name);
            values[0] == values[1]
                || range.is_some_and(|range| values.iter().all(|value| range.values.contains(value)))
        };
        self.name == others.name
            && ours.len() == theirs.len()
            && ours
                .iter()
                .zip(&theirs)
                .all(|(a, b)| a.name == b.name && is_same(a.name, [a.number, b.number]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines;

    #[test]
    fn parameters_within_ranges_run_as_others() {
        let with = |changes: &[&str]| {
            let mut p = machines::by_name("origin2000").unwrap();
            changes.iter().for_each(|change| p.set_from_text(change).unwrap());
            p
        };
        let ranges = [SameRange { parameter: RETRY, values: 50_000..=200_000 }];
        let is_same = |changes: &[&str]| with(changes).runs_as(&with(&[]), &ranges);
        assert!(is_same(&[]) && is_same(&["directory.retry=50ns"]) && is_same(&["directory.retry=200ns"]));
        assert!(!is_same(&["directory.retry=49ns"]) && !is_same(&["directory.retry=201ns"]));
        assert!(!is_same(&["processor.store_window=82ns"]), "no range tells of it");
        assert!(!is_same(&["directory.retry=50ns", "network.hop=1ns"]));
        assert!(!with(&[]).runs_as(&with(&["directory.retry=49ns"]), &ranges), "the other one is outside");
        let mut named = with(&[]);
        named.name = "other".into();
        assert!(!named.runs_as(&with(&[]), &ranges));
    }

    #[test]
    fn window_lies_between_what_waited_and_what_did_not() {
        let mut computed = ComputedBehindStores::default();
        assert_eq!((computed.longest_at_once, computed.shortest_delayed), (0, Time::MAX));
        for (length, waits) in [(7, false), (3, false), (20, true), (11, true)] {
            computed.note(length, waits);
        }
        assert_eq!((computed.longest_at_once, computed.shortest_delayed), (7, 11));
    }
}
