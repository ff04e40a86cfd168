//! Experiments on simulated machines.
//!
//! An experiment makes *points*: an algorithm on so many processors under one way of waiting. Each
//! point runs once for each seed, all of them side by side on the host's cores; a record holds the
//! median over the seeds, the smallest and the largest.

pub mod advice;
pub mod apps;
mod experiments;
pub mod ladder;
pub mod list;
pub mod messages;
pub mod mplocks;
mod replay;
mod run;
pub mod show;
mod sweep;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use experiments::{BARRIERS, COUNTERS, LOCKS, MESSAGES, NamedRunner, QUEUES, SIM_EXPERIMENTS, find};
pub use run::{Measured, Run, Work};
pub use sweep::{Effort, Sweep};
pub use towpath_simlocks::Patience;

use towpath_host::Error;
use towpath_host::Host;
use towpath_host::process::thread_time;
use towpath_report::Experiment;
use towpath_report::record::{Extra, Metric, Record, RecordSubject, metrics};
use towpath_sim::{Parameters, SameRange};

/// One thing to run, once for each seed.
#[derive(Clone)]
pub struct Point {
    /// Name for the records.
    pub subject: RecordSubject,
    /// The setting.
    pub run: Run,
    /// The algorithm on it.
    pub runner: Runner,
}

/// An algorithm: makes a run once.
pub type Runner = Arc<dyn Fn(&Run) -> Result<Measured, Error> + Send + Sync>;

/// Subjects that were not measured, and the reasons.
pub type Failures = Vec<(RecordSubject, String)>;

/// An experiment on simulated machines: one file, and one line in [`SIM_EXPERIMENTS`].
pub trait Simulate: Experiment {
    /// The points to run.
    ///
    /// # Errors
    ///
    /// If what the user asked for does not fit the machine.
    fn points(&self, sweep: &Sweep) -> Result<Vec<Point>, Error>;
}

/// A watcher of the progress.
pub trait Watcher: Sync {
    /// Announces that many steps more.
    fn expect(&self, steps: usize);
    /// Notes that a point is done, in so much processor time.
    fn done(&self, point: &Point, time: Duration);
}

/// A watcher that ignores the progress.
impl Watcher for () {
    fn expect(&self, _steps: usize) {}
    fn done(&self, _point: &Point, _time: Duration) {}
}

/// Figures of one point: by metric, a figure for each seed. In the order of the metrics'
/// names.
pub type Figures = BTreeMap<Metric, Vec<f64>>;

/// Figures of a point, and parameters that do not matter for them.
#[derive(Clone, Debug, Default)]
pub struct PointFigures {
    /// The figures.
    pub figures: Figures,
    /// Values of the machine's parameters with which the last seed's are the same.
    pub same: Vec<SameRange>,
}

/// Runs all points, each with so many seeds from its run's on, on so many host threads.
/// Returns the figures in the order of the points.
pub fn run_points(
    points: &[Point],
    effort: Effort,
    watcher: &dyn Watcher,
) -> Vec<Result<PointFigures, Error>> {
    let Effort { seeds, threads } = effort;
    let total = points.len() * seeds as usize;
    watcher.expect(total);
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<Measured, Error>>>> = (0..total).map(|_| Mutex::new(None)).collect();
    let threads = if threads == 0 { towpath_host::topology::allowed_cores().len().max(1) } else { threads };
    std::thread::scope(|scope| {
        for _ in 0..threads.min(total) {
            scope.spawn(|| {
                loop {
                    // Relaxed: a ticket that orders nothing; the results travel under their
                    // mutexes.
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= total {
                        return;
                    }
                    let point = &points[n / seeds as usize];
                    let seed = point.run.seed + (n % seeds as usize) as u64;
                    let started = thread_time();
                    let result = (point.runner)(&point.run.seed(seed));
                    *results[n].lock().unwrap_or_else(|e| e.into_inner()) = Some(result);
                    watcher.done(point, thread_time() - started);
                }
            });
        }
    });
    let mut results = results.into_iter().map(|r| r.into_inner().unwrap_or_else(|e| e.into_inner()));
    points
        .iter()
        .map(|_| {
            let PointFigures { mut figures, mut same } = PointFigures::default();
            let mut failed = None;
            for result in results.by_ref().take(seeds as usize) {
                match result {
                    Some(Ok(measured)) => {
                        for (metric, value) in measured.values {
                            figures.entry(metric).or_default().push(value);
                        }
                        same = measured.same;
                    }
                    Some(Err(error)) => failed = Some(error),
                    None => failed = Some(Error::NotAvailable("it was not run".into())),
                }
            }
            failed.map_or(Ok(PointFigures { figures, same }), Err)
        })
        .collect()
}

/// Runs an experiment. Returns its records, and its failures.
///
/// # Errors
///
/// If what the user asked for does not fit the machine.
pub fn run(
    sweep: &Sweep,
    effort: Effort,
    host: &Host,
    watcher: &dyn Watcher,
) -> Result<(Vec<Record>, Failures), Error> {
    let experiment = find_or_explain(sweep.experiment)?;
    let points = experiment.points(sweep)?;
    let mut records = Vec::new();
    let mut failed = Vec::new();
    for (point, result) in points.iter().zip(run_points(&points, effort, watcher)) {
        match result {
            Err(error) => failed.push((point.subject.clone(), error.to_string())),
            Ok(PointFigures { figures, .. }) => {
                let mut subject = point.subject.clone();
                // Where the machine has no cycle, a cycle is a nanosecond.
                if sweep.run.machine.cycle == 0 && figures.contains_key(&metrics::COMPLETION_CYCLES) {
                    subject = subject.with("cycle", "1 ns");
                }
                records.extend(figures.into_iter().filter_map(|(metric, values)| {
                    let record = subject.record(metric, &values, sweep.run.seed, host)?;
                    Some(Record { machine: sweep.run.machine.name.clone(), ..record })
                }));
            }
        }
    }
    Ok((records, failed))
}

/// Time of a cycle, in picoseconds. Where the machine has none, a nanosecond.
fn cycle_of(machine: &Parameters) -> u64 {
    if machine.cycle == 0 { 1000 } else { machine.cycle }
}

/// The experiment of that name.
fn find_or_explain(name: &str) -> Result<&'static dyn Simulate, Error> {
    find(name).ok_or_else(|| Error::NotAvailable(format!("there is no experiment `{name}`")))
}

/// The subject of a point.
fn subject(experiment: &str, algorithm: &str, waiting: &str, procs: usize, work: Work) -> RecordSubject {
    let mut subject = RecordSubject::new(experiment, algorithm, waiting, procs as u32);
    subject.extra = Extra::from([("work_ns".into(), work.ns.into())]);
    subject
}

#[cfg(test)]
mod tests;
