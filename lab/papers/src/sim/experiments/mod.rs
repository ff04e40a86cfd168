//! The experiments, and the algorithms that they run.

mod apps;
mod barriers;
mod counter;
mod ladder;
mod list;
mod locks;
mod messages;
mod mplocks;
mod multiprogramming;
mod queues;

use std::sync::{Arc, LazyLock};

pub use barriers::BARRIERS;
pub use counter::COUNTERS;
pub use locks::LOCKS;
pub use messages::MESSAGES;
pub use queues::QUEUES;
use towpath_sim::Parameters;
use towpath_sim::parameters::LL_SC;
use towpath_sync::Policy;

use super::{Measured, Point, Run, Runner, Simulate, Sweep, show, subject};
use towpath_host::Error;
use towpath_report::{Experiment, Results, Section};

/// All of them.
pub const SIM_EXPERIMENTS: &[&dyn Simulate] = &[
    &counter::EXPERIMENT,
    &locks::EXPERIMENT,
    &queues::EXPERIMENT,
    &barriers::EXPERIMENT,
    &messages::Messages,
    &ladder::Ladder,
    &list::Lists,
    &mplocks::MessageLocks,
    &apps::Applications,
    &multiprogramming::Multiprogramming,
];

/// The experiment of that name.
pub fn find(name: &str) -> Option<&'static dyn Simulate> {
    SIM_EXPERIMENTS.iter().copied().find(|e| e.name() == name)
}

/// Joins the algorithms for up to 64 processors with those for up to 1,024: both lists
/// hold the same names.
fn in_two_sizes(some: Vec<NamedRunner>, many: Vec<NamedRunner>) -> Vec<NamedRunner> {
    let join = |(few, many): (NamedRunner, NamedRunner)| {
        debug_assert_eq!(few.name, many.name);
        let (name, few, many) = (few.name, few.runner, many.runner);
        NamedRunner::new(name, move |run| if run.procs > 64 { many(run) } else { few(run) })
    };
    some.into_iter().zip(many).map(join).collect()
}

/// An experiment that runs every algorithm of a family in the paper's loop.
struct Family {
    name: &'static str,
    about: &'static str,
    algorithms: &'static LazyLock<Vec<NamedRunner>>,
}

impl Experiment for Family {
    fn name(&self) -> &'static str {
        self.name
    }
    fn about(&self) -> &'static str {
        self.about
    }
    fn algorithms(&self) -> Vec<&'static str> {
        self.algorithms.iter().map(|a| a.name).collect()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        show::sections_of(self.name, results)
    }
}

impl Simulate for Family {
    fn points(&self, sweep: &Sweep) -> Result<Vec<Point>, Error> {
        all_points(self.name, sweep, self.algorithms)
    }
}

/// An algorithm in an experiment's loop.
#[derive(Clone)]
pub struct NamedRunner {
    /// Its name, as users call it.
    pub name: &'static str,
    /// Makes one run.
    pub runner: Runner,
}

impl NamedRunner {
    fn new(
        name: &'static str,
        runner: impl Fn(&Run) -> Result<Measured, Error> + Send + Sync + 'static,
    ) -> NamedRunner {
        NamedRunner { name, runner: Arc::new(runner) }
    }

    /// Returns whether an experiment without chosen algorithms takes it on that machine:
    /// on one with load-linked those that say so instead of their twins, on others no emulations of
    /// missing operations.
    fn suits(&self, machine: &Parameters, all: &[NamedRunner]) -> bool {
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

/// The error of a name that no algorithm of an experiment has.
fn no_such_algorithm(name: &str, known: &[&str]) -> Error {
    Error::NotAvailable(format!("no algorithm is called `{name}` here; there are {}", known.join(", ")))
}

/// The algorithms that the user asked for, or those that suit the machine.
fn chosen(sweep: &Sweep, all: &'static [NamedRunner]) -> Result<Vec<&'static NamedRunner>, Error> {
    if sweep.algorithms.is_empty() {
        return Ok(all.iter().filter(|a| a.suits(&sweep.run.machine, all)).collect());
    }
    let find = |name: &String| {
        all.iter().find(|a| a.name == *name).ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|a| a.name).collect();
            no_such_algorithm(name, &names)
        })
    };
    sweep.algorithms.iter().map(find).collect()
}

/// The numbers of processors, if the machine has that many.
fn procs(sweep: &Sweep) -> Result<Vec<usize>, Error> {
    let procs = sweep.procs();
    match procs.iter().find(|&&n| n == 0 || n > sweep.run.machine.processors as usize) {
        Some(n) => Err(Error::NotAvailable(format!(
            "{} has 1 to {} processors, not {n}: ask for fewer, or give it more with --set processor.count={n}",
            sweep.run.machine.name, sweep.run.machine.processors
        ))),
        None => Ok(procs),
    }
}

/// An algorithm on so many processors under one way of waiting, a single copy of the
/// program.
fn point(experiment: &str, sweep: &Sweep, algorithm: &NamedRunner, waiting: Policy, procs: usize) -> Point {
    Point {
        subject: subject(experiment, algorithm.name, waiting.name(), procs, sweep.run.work),
        run: Run {
            waiting,
            seed: sweep.run.seed,
            inside: sweep.run.inside,
            replay: sweep.run.replay.clone(),
            ..Run::new(sweep.run.machine.clone(), procs, sweep.run.work, sweep.run.operations)
        },
        runner: Arc::clone(&algorithm.runner),
    }
}

/// Every algorithm on every number of processors under every way of waiting.
fn all_points(
    experiment: &'static str,
    sweep: &Sweep,
    algorithms: &'static [NamedRunner],
) -> Result<Vec<Point>, Error> {
    let mut points = Vec::new();
    for algorithm in chosen(sweep, algorithms)? {
        for &waiting in &sweep.waiting {
            for procs in procs(sweep)? {
                points.push(point(experiment, sweep, algorithm, waiting, procs));
            }
        }
    }
    Ok(points)
}
