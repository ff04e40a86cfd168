//! Multiprogramming (Nikolopoulos & Papatheodorou §5): several copies of the queues' and
//! barriers' programs on the same processors, under time sharing and under gang scheduling, by
//! discipline of waiting.
//!
//! The figure of merit is the paper's average execution time: how long a copy takes from the start
//! to its own end, the mean over the copies, for each of its operations.
//!
//! The time slice is scaled down with the runs: 5 ms instead of 100, still 500 context switches and
//! 100 times the work between two operations.

use std::sync::LazyLock;

use towpath_sim::Parameters;
use towpath_sync::Policy;

use super::{BARRIERS, NamedRunner, Point, QUEUES, Simulate, Sweep, chosen, point, procs, show};
use towpath_host::Error;
use towpath_report::{Experiment, Results, Section};

/// The queues and barriers together.
static ALL: LazyLock<Vec<NamedRunner>> =
    LazyLock::new(|| QUEUES.iter().chain(BARRIERS.iter()).cloned().collect());

/// The algorithms unless the user chooses: the paper's, over both primitives.
const DEFAULT: [&str; 14] = [
    "two-ended/test-and-set/ll-sc",
    "two-ended/ticket/ll-sc",
    "two-ended/anderson/ll-sc",
    "two-ended/test-and-set/fetch-op",
    "two-ended/ticket/fetch-op",
    "two-ended/hybrid-queue",
    "two-ended/scheduler-conscious",
    "michael-scott/ll-sc",
    "prakash-lee-johnson/ll-sc",
    "valois/ll-sc",
    "fetch-op-array",
    "centralized/ll-sc",
    "centralized/fetch-op",
    "mcs-tree",
];

/// Time slices in nanoseconds that runs of some tens of milliseconds see enough of.
const QUANTUM: &str = "os.quantum=5ms";

/// The disciplines of an algorithm: those that never wait for a word have none of their
/// own.
fn disciplines(name: &str, wanted: &[Policy]) -> Vec<Policy> {
    let waits = name.starts_with("two-ended") || BARRIERS.iter().any(|b| b.name == name);
    if !waits || name.contains("scheduler-conscious") {
        return vec![Policy::Spin];
    }
    wanted.to_vec()
}

/// The machine under that scheduler, with short time slices (unless it has been told
/// otherwise).
pub(super) fn with_scheduler(machine: &Parameters, scheduler: &str) -> Result<Parameters, Error> {
    let mut machine = machine.clone();
    let told = machine.describe().iter().any(|p| p.name == "os.quantum" && p.source.0.starts_with("user"));
    let mut set = |text: &str| machine.set_from_text(text).map_err(|e| Error::NotAvailable(e.to_string()));
    if !told {
        set(QUANTUM)?;
    }
    set(&format!("os.policy={scheduler}"))?;
    Ok(machine)
}

/// The experiment.
pub(super) struct Multiprogramming;

impl Experiment for Multiprogramming {
    fn name(&self) -> &'static str {
        "multiprogramming"
    }
    fn about(&self) -> &'static str {
        "several copies of the queues' and barriers' programs under time sharing and gang scheduling, by discipline (N figures 7 and 8)"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        ALL.iter().map(|a| a.name).collect()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        show::sections_of(self.name(), results)
    }
}

impl Simulate for Multiprogramming {
    fn points(&self, sweep: &Sweep) -> Result<Vec<Point>, Error> {
        let mut sweep = sweep.clone();
        if sweep.algorithms.is_empty() {
            sweep.algorithms = DEFAULT.map(str::to_string).to_vec();
        }
        if sweep.procs.is_empty() {
            sweep.procs = vec![(sweep.run.machine.processors as usize).min(64)];
        }
        let mut points = Vec::new();
        for algorithm in chosen(&sweep, &ALL)? {
            for waiting in disciplines(algorithm.name, &sweep.waiting) {
                for &copies in &sweep.copies {
                    for scheduler in &sweep.schedulers {
                        let machine = with_scheduler(&sweep.run.machine, scheduler)?;
                        for procs in procs(&sweep)? {
                            let mut point = point(self.name(), &sweep, algorithm, waiting, procs);
                            point.subject =
                                point.subject.with("copies", copies).with("scheduler", scheduler.as_str());
                            point.run.machine = machine.clone();
                            point.run.copies = copies;
                            points.push(point);
                        }
                    }
                }
            }
        }
        Ok(points)
    }
}
