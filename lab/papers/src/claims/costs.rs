//! Costs of judging: the processor time of each claim and of each run.

use std::sync::Mutex;
use std::time::Duration;

use serde_json::json;
use towpath_host::process::thread_time;

use super::Judged;
use crate::sim::{Point, Watcher};

/// Processor time of a claim.
#[derive(Clone, Debug, Default)]
pub struct ClaimCost {
    /// Time of judging it by the first seed.
    pub first: Duration,
    /// Time of all but its runs.
    pub own: Duration,
    /// Runs, each with its time: those that no other claim had made before.
    pub runs: Vec<(String, Duration)>,
}

impl ClaimCost {
    /// The processor time in all.
    pub fn whole(&self) -> Duration {
        self.own + self.runs.iter().map(|run| run.1).sum::<Duration>()
    }
}

/// Watcher of a claim's runs, which notes their times.
pub(super) struct CostMeter<'a> {
    watcher: &'a dyn Watcher,
    started: Duration,
    runs: Mutex<Vec<(String, Duration)>>,
}

impl<'a> CostMeter<'a> {
    /// Begins with a claim that this thread judges.
    pub fn start(watcher: &'a dyn Watcher) -> CostMeter<'a> {
        CostMeter { watcher, started: thread_time(), runs: Mutex::default() }
    }

    /// Returns the time since the start, which was on this thread.
    pub fn so_far(&self) -> Duration {
        let runs = self.runs.lock().unwrap_or_else(|e| e.into_inner());
        thread_time() - self.started + runs.iter().map(|run| run.1).sum::<Duration>()
    }

    /// Returns the cost, of which so much is that of the first seed.
    pub fn cost(self, first: Duration) -> ClaimCost {
        let runs = self.runs.into_inner().unwrap_or_else(|e| e.into_inner());
        ClaimCost { first, own: thread_time() - self.started, runs }
    }
}

impl Watcher for CostMeter<'_> {
    fn expect(&self, steps: usize) {
        self.watcher.expect(steps);
    }
    fn done(&self, point: &Point, time: Duration) {
        let Point { subject, run, .. } = point;
        let (experiment, what) = (&subject.experiment, subject.describe());
        let text = format!(
            "{experiment} on {}: {what}, {} processors, seed {}",
            run.machine.name, run.procs, run.seed
        );
        self.runs.lock().unwrap_or_else(|e| e.into_inner()).push((text, time));
        self.watcher.done(point, time);
    }
}

/// Processor times as JSON lines: a claim, then the runs that it has made.
pub fn timings(judged: &[Judged]) -> String {
    let mut text = String::new();
    for Judged { claim, seeds, cost, .. } in judged {
        let line = json!({
            "claim": claim.id, "seeds": seeds, "runs": cost.runs.len(), "first_seed_s": cost.first.as_secs_f64(),
            "further_seeds_s": cost.whole().saturating_sub(cost.first).as_secs_f64(), "own_s": cost.own.as_secs_f64(),
        });
        text.push_str(&format!("{line}\n"));
        for (run, time) in &cost.runs {
            let line = json!({"claim": claim.id, "run": run, "processor_s": time.as_secs_f64()});
            text.push_str(&format!("{line}\n"));
        }
    }
    text
}
