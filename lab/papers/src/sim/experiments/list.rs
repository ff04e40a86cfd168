//! The list of paper G §7.2: insertions and deletions, with work in between, under its
//! four algorithms and one more, with one or more processes on each processor.

use std::sync::LazyLock;

use towpath_sim::Sim;
use towpath_sync::Policy;

use super::{Algorithm, Point, SimExperiment, SimSettings, chosen, point, procs};
use crate::sim::list::{ActiveCount, Advisory, Bershad, List, Locked, Valois, Versioned, lacks, run};
use towpath_host::Error;

/// The algorithms: the paper's, in its order, and the software DCAS that it weighs
/// against its own.
static LISTS: LazyLock<Vec<Algorithm>> = LazyLock::new(|| {
    fn of<L: List<Sim> + 'static>() -> Algorithm {
        Algorithm { name: L::NAME, run: [run::<L>; 2] }
    }
    vec![
        of::<Versioned<Sim, Advisory>>(),
        of::<Versioned<Sim, ActiveCount<Sim>>>(),
        of::<Valois<Sim>>(),
        of::<Locked<Sim>>(),
        of::<Versioned<Sim, Bershad<Sim>>>(),
    ]
});

pub(super) struct Experiment;

impl SimExperiment for Experiment {
    fn name(&self) -> &'static str {
        "list"
    }
    fn about(&self) -> &'static str {
        "an ordered list under DCAS, compare-and-swap alone or a spin lock, with processes that are preempted (G figures 5 to 7)"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        LISTS.iter().map(|a| a.name).collect()
    }
    fn points(&self, settings: &SimSettings) -> Result<Vec<Point>, Error> {
        if settings.waiting != [Policy::Spin] {
            return Err(Error::NotAvailable("the paper's processes back off: leave --waiting out".into()));
        }
        let mut settings = settings.clone();
        if settings.procs.is_empty() {
            settings.procs = (1..=(settings.machine.processors as usize).min(16)).collect();
        }
        let machine = &settings.machine;
        let mut points = Vec::new();
        for &per_processor in &settings.per_processor {
            for algorithm in chosen(&settings, &LISTS)? {
                match lacks(machine, algorithm.name) {
                    Some(why) if !settings.algorithms.is_empty() => return Err(Error::NotAvailable(why)),
                    Some(_) => continue,
                    None => {}
                }
                for procs in procs(&settings)? {
                    let mut point = point(self.name(), &settings, algorithm, Policy::Spin, procs);
                    if let Some(cycles) = (settings.work.ns * 1000).checked_div(machine.cycle) {
                        point.subject = point.subject.with("work_cycles", cycles);
                    }
                    point.subject = point.subject.with("per_processor", per_processor);
                    point.setup.per_processor = per_processor as usize;
                    points.push(point);
                }
            }
        }
        Ok(points)
    }
}
