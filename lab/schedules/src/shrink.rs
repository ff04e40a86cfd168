//! Makes a failing schedule shorter: fewer switches between threads, then fewer steps, as
//! long as it fails in the same way.

use crate::fault::Fault;
use crate::run::{RunOutcome, Runner, Terms};
use crate::schedule::{Schedule, Turn};
use crate::strategy::Written;
use crate::subject::Subject;

/// Maximum number of steps, of all runs together.
///
/// Of a fault that is only seen after many steps (an endless loop, waiters for a dead thread), few
/// schedules are tried.
const STEPS: usize = 2_000_000;

struct Shrinker<'a> {
    runner: &'a mut Runner,
    subject: &'a dyn Subject,
    terms: &'a Terms,
    fault: Fault,
    best: Schedule,
    /// Number of steps that may be taken yet.
    steps: usize,
}

/// The shortest schedule with this fault that is found.
pub(crate) fn shrink(
    runner: &mut Runner,
    subject: &dyn Subject,
    terms: &Terms,
    failing: &Schedule,
    fault: Fault,
) -> Schedule {
    let mut shrinker = Shrinker { runner, subject, terms, fault, best: failing.clone(), steps: STEPS };
    while shrinker.round() {}
    shrinker.best
}

impl Shrinker<'_> {
    /// Returns whether the schedule shows a fault of this kind and, as it is really
    /// taken, is shorter than the best one.
    fn improves(&mut self, schedule: &Schedule) -> bool {
        if self.steps == 0 {
            return false;
        }
        let mut written = Written::new(schedule);
        let outcome = self.runner.run(self.subject, self.terms, &mut written, false);
        let Ok(RunOutcome { failure, schedule, .. }) = outcome else { return false };
        self.steps = self.steps.saturating_sub(schedule.0.len());
        let Some(failure) = failure else { return false };
        let better = failure.fault == self.fault && schedule.size() < self.best.size();
        if better {
            self.best = schedule;
        }
        better
    }

    /// Tries every small change to the best schedule. Whether one of them was for the
    /// better.
    fn round(&mut self) -> bool {
        // Where each run of the same decisions begins.
        let runs: Vec<(usize, usize)> = self
            .best
            .runs()
            .scan(0, |at, (_, count)| {
                *at += count;
                Some((*at - count, count))
            })
            .collect();
        let whole = self.best.clone();
        // End early, and let the running thread go on: the rest may not matter.
        for &(at, _) in &runs {
            if self.improves(&Schedule(whole.0[..at].to_vec())) {
                return true;
            }
        }
        for &(at, count) in &runs {
            // Leave a run out, or some of it.
            for keep in [0, 1, count / 2, count.saturating_sub(1)] {
                if keep < count && self.improves(&without(&whole, at + keep, count - keep)) {
                    return true;
                }
            }
            if let Turn::Earlier(_) = whole.0[at].turn {
                // Take the latest value.
                let mut latest = whole.0.clone();
                latest[at].turn = Turn::Normal;
                if self.improves(&Schedule(latest)) {
                    return true;
                }
            }
            if whole.0[at].turn == Turn::Normal {
                // Let it go on for longer before the next one, or come later.
                for more in 1..=8 {
                    let mut longer = whole.0.clone();
                    longer.splice(at + count..at + count, std::iter::repeat_n(whole.0[at], more));
                    if self.improves(&Schedule(longer)) {
                        return true;
                    }
                }
                if self.improves(&later(&whole, at, count)) {
                    return true;
                }
            }
        }
        false
    }
}

fn without(schedule: &Schedule, at: usize, count: usize) -> Schedule {
    let mut rest = schedule.0.clone();
    rest.drain(at..at + count);
    Schedule(rest)
}

/// The run comes only when its thread runs again, or at the end.
fn later(schedule: &Schedule, at: usize, count: usize) -> Schedule {
    let thread = schedule.0[at].thread;
    let mut rest = schedule.0.clone();
    let moved: Vec<_> = rest.drain(at..at + count).collect();
    let to = rest[at..].iter().position(|c| c.thread == thread).map_or(rest.len(), |n| at + n);
    rest.splice(to..to, moved);
    Schedule(rest)
}
