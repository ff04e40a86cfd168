//! Experiments on simulated machines.
//!
//! An experiment makes *points*: an algorithm on so many processors under one way of waiting. Each
//! point runs once for each seed, all of them side by side on the host's cores; a record holds the
//! median over the seeds, the smallest and the largest.

mod experiments;
pub mod ladder;
pub mod list;
pub mod messages;
mod patience;
mod setup;
pub mod show;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use experiments::{Algorithm, BARRIERS, COUNTERS, LOCKS, MESSAGES, QUEUES, SIM_EXPERIMENTS, find};
pub use patience::Patience;
pub use setup::{Measured, Setup, Work};
use towpath_sim::Parameters;
use towpath_sync::Policy;

use towpath_host::Error;
use towpath_host::Host;
use towpath_report::record::{Extra, Metric, Record, Subject};

/// What the user asked for.
#[derive(Clone, Debug)]
pub struct SimSettings {
    /// The machine.
    pub machine: Parameters,
    /// Numbers of processors; empty: powers of two up to what the machine has (at most
    /// 64).
    pub procs: Vec<usize>,
    /// Private work between two operations.
    pub work: Work,
    /// Operations in all, shared among the processors.
    pub operations: u64,
    /// How many seeds, from `seed` on.
    pub seeds: u32,
    /// The first seed.
    pub seed: u64,
    /// Which algorithms; empty: those that suit the machine.
    pub algorithms: Vec<String>,
    /// Ways of waiting.
    pub waiting: Vec<Policy>,
    /// Copies of the program at one time (`multiprogramming`).
    pub copies: Vec<u32>,
    /// Processes on each processor (`list`).
    pub per_processor: Vec<u32>,
    /// `time-sharing`, `gang` (`multiprogramming`).
    pub schedulers: Vec<String>,
    /// Lengths of messages (`ladder`); empty: its own.
    pub bytes: Vec<usize>,
    /// How many host threads run simulations at one time; 0: one for each core.
    pub threads: usize,
}

impl SimSettings {
    /// What holds unless the user says otherwise.
    pub fn new(machine: Parameters) -> Self {
        SimSettings {
            machine,
            procs: Vec::new(),
            work: Work { ns: 5_000, spread: 0.2 },
            operations: 20_000,
            seeds: 5,
            seed: 1,
            algorithms: Vec::new(),
            waiting: vec![Policy::Spin],
            copies: vec![2],
            per_processor: vec![1],
            schedulers: vec!["time-sharing".into(), "gang".into()],
            bytes: Vec::new(),
            threads: 0,
        }
    }

    /// The numbers of processors to run on.
    pub fn procs(&self) -> Vec<usize> {
        if !self.procs.is_empty() {
            return self.procs.clone();
        }
        let most = (self.machine.processors as usize).min(64);
        std::iter::successors(Some(1), |n| Some(2 * n)).take_while(|n| *n <= most).collect()
    }
}

/// One thing to run, once for each seed.
pub struct Point {
    /// For the records.
    pub subject: Subject,
    /// What is run.
    pub setup: Setup,
    /// How.
    pub run: Runner,
}

/// What runs a setup once.
pub type Runner = fn(&Setup) -> Result<Measured, Error>;

/// What was not measured, and why.
pub type Failures = Vec<(Subject, String)>;

/// One experiment on simulated machines: one file, and one line in [`SIM_EXPERIMENTS`].
pub trait SimExperiment: Sync {
    /// Its name, as users and records call it.
    fn name(&self) -> &'static str;
    /// What it shows, in one sentence.
    fn about(&self) -> &'static str;
    /// The algorithms that it knows.
    fn algorithms(&self) -> Vec<&'static str>;
    /// What there is to run.
    ///
    /// # Errors
    ///
    /// If what the user asked for does not fit the machine.
    fn points(&self, settings: &SimSettings) -> Result<Vec<Point>, Error>;
}

/// Who wants to know how far it is.
pub trait Watcher: Sync {
    /// That many steps more.
    fn expect(&self, steps: usize);
    /// One is done; the text says which.
    fn done(&self, what: &str);
}

/// Nobody.
impl Watcher for () {
    fn expect(&self, _steps: usize) {}
    fn done(&self, _what: &str) {}
}

/// What one point yielded: by metric, a figure for each seed. In the order of the
/// metrics' names.
pub type Figures = BTreeMap<Metric, Vec<f64>>;

/// Runs all points, each with `seeds` seeds from the one in its setup on, on so many host
/// threads (0: one for each core). In the order of the points.
pub fn run_points(
    points: &[Point],
    seeds: u32,
    threads: usize,
    watcher: &dyn Watcher,
) -> Vec<Result<Figures, Error>> {
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
                    let mut setup = point.setup.clone();
                    setup.seed += (n % seeds as usize) as u64;
                    let result = (point.run)(&setup);
                    *results[n].lock().unwrap_or_else(|e| e.into_inner()) = Some(result);
                    watcher.done(&point.subject.describe());
                }
            });
        }
    });
    let mut results = results.into_iter().map(|r| r.into_inner().unwrap_or_else(|e| e.into_inner()));
    points
        .iter()
        .map(|_| {
            let mut figures = Figures::new();
            let mut failed = None;
            for result in results.by_ref().take(seeds as usize) {
                match result {
                    Some(Ok(measured)) => {
                        for (metric, value) in measured.values {
                            figures.entry(metric).or_default().push(value);
                        }
                    }
                    Some(Err(error)) => failed = Some(error),
                    None => failed = Some(Error::NotAvailable("it was not run".into())),
                }
            }
            failed.map_or(Ok(figures), Err)
        })
        .collect()
}

/// Runs an experiment. Returns its records, and what failed.
///
/// # Errors
///
/// If what the user asked for does not fit the machine.
pub fn run(
    experiment: &dyn SimExperiment,
    settings: &SimSettings,
    host: &Host,
    watcher: &dyn Watcher,
) -> Result<(Vec<Record>, Failures), Error> {
    let points = experiment.points(settings)?;
    let mut records = Vec::new();
    let mut failed = Vec::new();
    for (point, result) in points.iter().zip(run_points(&points, settings.seeds, settings.threads, watcher)) {
        match result {
            Err(error) => failed.push((point.subject.clone(), error.to_string())),
            Ok(figures) => records.extend(figures.into_iter().filter_map(|(metric, values)| {
                let record = point.subject.record(metric, &values, settings.seed, host)?;
                Some(Record { machine: settings.machine.name.clone(), ..record })
            })),
        }
    }
    Ok((records, failed))
}

/// The subject of a point.
fn subject(experiment: &str, algorithm: &str, waiting: &str, procs: usize, work: Work) -> Subject {
    let mut subject = Subject::new(experiment, algorithm, waiting, procs as u32);
    subject.extra = Extra::from([("work_ns".into(), work.ns.into())]);
    subject
}

#[cfg(test)]
mod tests;
