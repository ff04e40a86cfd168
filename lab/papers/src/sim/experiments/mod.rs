//! The experiments, and the algorithms that they run.

mod barriers;
mod counter;
mod ladder;
mod list;
mod locks;
mod messages;
mod multiprogramming;
mod queues;

use std::sync::LazyLock;

pub use barriers::BARRIERS;
pub use counter::COUNTERS;
pub use locks::LOCKS;
pub use messages::MESSAGES;
pub use queues::QUEUES;
use towpath_sim::Parameters;
use towpath_sim::parameters::LL_SC;
use towpath_sync::Policy;

use super::{Measured, Point, Runner, Setup, SimExperiment, SimSettings, subject};
use towpath_host::Error;

/// All of them.
pub const SIM_EXPERIMENTS: &[&dyn SimExperiment] = &[
    &counter::EXPERIMENT,
    &locks::EXPERIMENT,
    &queues::EXPERIMENT,
    &barriers::EXPERIMENT,
    &messages::Experiment,
    &ladder::Experiment,
    &list::Experiment,
    &multiprogramming::Experiment,
];

/// The one of that name.
pub fn find(name: &str) -> Option<&'static dyn SimExperiment> {
    SIM_EXPERIMENTS.iter().copied().find(|e| e.name() == name)
}

/// A name and what runs it.
type Named = (&'static str, Runner);

/// Algorithms with what runs them on up to 64 processors, and on up to 1,024: the same
/// list twice, made for the two sizes.
fn in_two_sizes(some: Vec<Named>, many: Vec<Named>) -> Vec<Algorithm> {
    some.into_iter()
        .zip(many)
        .map(|((name, run), (same, large))| {
            debug_assert_eq!(name, same);
            Algorithm { name, run: [run, large] }
        })
        .collect()
}

/// An experiment that runs every algorithm of a family in the paper's loop.
struct Family {
    name: &'static str,
    about: &'static str,
    algorithms: &'static LazyLock<Vec<Algorithm>>,
}

impl SimExperiment for Family {
    fn name(&self) -> &'static str {
        self.name
    }
    fn about(&self) -> &'static str {
        self.about
    }
    fn algorithms(&self) -> Vec<&'static str> {
        self.algorithms.iter().map(|a| a.name).collect()
    }
    fn points(&self, settings: &SimSettings) -> Result<Vec<Point>, Error> {
        all_points(self.name, settings, self.algorithms)
    }
}

/// An algorithm in an experiment's loop.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm {
    /// As users call it.
    pub name: &'static str,
    /// For up to 64 processors, and for up to 1,024.
    pub run: [Runner; 2],
}

impl Algorithm {
    /// The one to call on so many processors.
    pub fn on(&self, procs: usize) -> Runner {
        self.run[usize::from(procs > 64)]
    }

    /// Whether an experiment that was not told which algorithms to run takes it on that
    /// machine: on one with load-linked those that say so instead of their twins, on others no
    /// emulations of what the machine lacks.
    fn suits(&self, machine: &Parameters, all: &[Algorithm]) -> bool {
        let has_twin = || {
            let twin = format!("{}/ll-sc", self.name);
            all.iter().any(|a| a.name == twin)
        };
        if machine.atomics == LL_SC {
            !has_twin() && self.name != "atomics"
        } else {
            !self.name.contains("ll-sc") && !self.name.contains("fetch-op") && !self.name.contains("hybrid")
        }
    }
}

/// The algorithms that the user asked for, or those that suit the machine.
fn chosen(settings: &SimSettings, all: &'static [Algorithm]) -> Result<Vec<&'static Algorithm>, Error> {
    if settings.algorithms.is_empty() {
        return Ok(all.iter().filter(|a| a.suits(&settings.machine, all)).collect());
    }
    let find = |name: &String| {
        all.iter().find(|a| a.name == *name).ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|a| a.name).collect();
            Error::NotAvailable(format!(
                "no algorithm is called `{name}` here; there are {}",
                names.join(", ")
            ))
        })
    };
    settings.algorithms.iter().map(find).collect()
}

/// The numbers of processors, if the machine has that many.
fn procs(settings: &SimSettings) -> Result<Vec<usize>, Error> {
    let procs = settings.procs();
    match procs.iter().find(|&&n| n == 0 || n > settings.machine.processors as usize) {
        Some(n) => Err(Error::NotAvailable(format!(
            "{} has 1 to {} processors, not {n}: ask for fewer, or give it more with --set processor.count={n}",
            settings.machine.name, settings.machine.processors
        ))),
        None => Ok(procs),
    }
}

/// An algorithm on so many processors under one way of waiting, a single copy of the
/// program.
fn point(
    experiment: &str,
    settings: &SimSettings,
    algorithm: &Algorithm,
    waiting: Policy,
    procs: usize,
) -> Point {
    Point {
        subject: subject(experiment, algorithm.name, waiting.name(), procs, settings.work),
        setup: Setup {
            waiting,
            seed: settings.seed,
            ..Setup::new(settings.machine.clone(), procs, settings.work, settings.operations)
        },
        run: algorithm.on(procs),
    }
}

/// Every algorithm on every number of processors under every way of waiting.
fn all_points(
    experiment: &'static str,
    settings: &SimSettings,
    algorithms: &'static [Algorithm],
) -> Result<Vec<Point>, Error> {
    let mut points = Vec::new();
    for algorithm in chosen(settings, algorithms)? {
        for &waiting in &settings.waiting {
            for procs in procs(settings)? {
                points.push(point(experiment, settings, algorithm, waiting, procs));
            }
        }
    }
    Ok(points)
}
