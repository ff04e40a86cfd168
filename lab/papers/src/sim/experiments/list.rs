//! The list of paper G §7.2: insertions and deletions, with work in between, under its
//! four algorithms and one more, with one or more processes on each processor.

use std::sync::LazyLock;

use towpath_sim::Sim;
use towpath_sync::Policy;

use super::{NamedRunner, Point, Simulate, Sweep, chosen, point, procs, show};
use crate::sim::list::{ActiveCount, Advisory, BershadControl, List, Locked, Valois, Versioned, lacks, run};
use towpath_host::Error;
use towpath_report::{Experiment, Results, Section};

/// The algorithms: the paper's, in its order, and the software DCAS that it weighs
/// against its own.
static LISTS: LazyLock<Vec<NamedRunner>> = LazyLock::new(|| {
    fn of<L: List<Sim> + 'static>() -> NamedRunner {
        NamedRunner::new(L::NAME, run::<L>)
    }
    vec![
        of::<Versioned<Sim, Advisory>>(),
        of::<Versioned<Sim, ActiveCount<Sim>>>(),
        of::<Valois<Sim>>(),
        of::<Locked<Sim>>(),
        of::<Versioned<Sim, BershadControl<Sim>>>(),
    ]
});

/// The experiment.
pub(super) struct Lists;

impl Experiment for Lists {
    fn name(&self) -> &'static str {
        "list"
    }
    fn about(&self) -> &'static str {
        "an ordered list under DCAS, compare-and-swap alone or a spin lock, with processes that are preempted (G figures 5 to 7)"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        LISTS.iter().map(|a| a.name).collect()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        show::sections_of(self.name(), results)
    }
}

impl Simulate for Lists {
    fn points(&self, sweep: &Sweep) -> Result<Vec<Point>, Error> {
        if sweep.waiting != [Policy::Spin] {
            return Err(Error::NotAvailable("the paper's processes back off: leave --waiting out".into()));
        }
        let mut sweep = sweep.clone();
        if sweep.procs.is_empty() {
            sweep.procs = (1..=(sweep.run.machine.processors as usize).min(16)).collect();
        }
        let machine = &sweep.run.machine;
        let mut points = Vec::new();
        for &per_processor in &sweep.per_processor {
            for algorithm in chosen(&sweep, &LISTS)? {
                match lacks(machine, algorithm.name) {
                    Some(why) if !sweep.algorithms.is_empty() => return Err(Error::NotAvailable(why)),
                    Some(_) => continue,
                    None => {}
                }
                for procs in procs(&sweep)? {
                    let mut point = point(self.name(), &sweep, algorithm, Policy::Spin, procs);
                    if let Some(cycles) = (sweep.run.work.ns * 1000).checked_div(machine.cycle) {
                        point.subject = point.subject.with("work_cycles", cycles);
                    }
                    point.subject = point.subject.with("per_processor", per_processor);
                    point.run.per_processor = per_processor;
                    points.push(point);
                }
            }
        }
        Ok(points)
    }
}
