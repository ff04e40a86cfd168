//! Locks by message against locks in shared memory (paper K): an acquisition in each of
//! three states, and patterns that use locks.

use std::sync::Arc;

use towpath_sync::Policy;

use super::{Point, Simulate, Sweep, no_such_algorithm, procs, show, subject};
use crate::sim::Run;
use crate::sim::mplocks::{MOST_NODES, PATTERNS, Scheme, State, measure, run};
use towpath_host::Error;
use towpath_report::{Experiment, Results, Section};

/// The experiment.
pub(super) struct MessageLocks;

/// Number of processors on which the states are measured.
const NODES: usize = 8;

/// Patterns that run unless others are asked for.
const USUAL: [&str; 4] = ["local-idle", "remote-idle", "remote-busy", "one-lock"];

/// Names of all patterns and states.
fn patterns() -> impl Iterator<Item = &'static str> {
    State::ALL.into_iter().map(State::name).chain(PATTERNS.iter().map(|p| p.0))
}

fn schemes(sweep: &Sweep) -> Result<Vec<Scheme>, Error> {
    let machine = &sweep.run.machine;
    if sweep.algorithms.is_empty() {
        return Ok(Scheme::usual(machine));
    }
    let find = |name: &String| {
        let Some(scheme) = Scheme::ALL.into_iter().find(|s| s.name() == name) else {
            return Err(no_such_algorithm(name, &Scheme::ALL.map(Scheme::name)));
        };
        scheme.lacks(machine).map_or(Ok(scheme), |why| Err(Error::NotAvailable(why)))
    };
    sweep.algorithms.iter().map(find).collect()
}

impl Experiment for MessageLocks {
    fn name(&self) -> &'static str {
        "mplocks"
    }
    fn about(&self) -> &'static str {
        "locks by message and in shared memory: an acquisition in three states, and patterns that use locks (K table 1)"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        Scheme::ALL.map(Scheme::name).to_vec()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        show::sections_of(self.name(), results)
    }
}

impl Simulate for MessageLocks {
    fn points(&self, sweep: &Sweep) -> Result<Vec<Point>, Error> {
        if sweep.waiting != [Policy::Spin] {
            return Err(Error::NotAvailable("waiters spin here: leave --waiting out".into()));
        }
        let wanted: Vec<&str> = if sweep.patterns.is_empty() {
            USUAL.to_vec()
        } else {
            sweep.patterns.iter().map(String::as_str).collect()
        };
        let machine = &sweep.run.machine;
        let mut points = Vec::new();
        for name in wanted {
            let state = State::ALL.into_iter().find(|s| s.name() == name);
            let pattern = PATTERNS.iter().find(|p| p.0 == name).map(|p| p.1);
            if state.is_none() && pattern.is_none() {
                let names = patterns().collect::<Vec<_>>().join(", ");
                let text = format!("no pattern is called `{name}`; there are {names}");
                return Err(Error::NotAvailable(text));
            }
            if state.is_some() && (machine.processors as usize) < NODES {
                let text = format!("`{name}` needs {NODES} processors: set processor.count={NODES}");
                return Err(Error::NotAvailable(text));
            }
            let all = if state.is_some() { vec![NODES] } else { procs(sweep)? };
            for scheme in schemes(sweep)? {
                for &procs in all.iter().filter(|&&n| n <= MOST_NODES) {
                    let run_of = Run { seed: sweep.run.seed, procs, ..sweep.run.clone() };
                    let subject =
                        subject(self.name(), scheme.name(), Policy::Spin.name(), procs, sweep.run.work);
                    points.push(Point {
                        subject: subject.with("pattern", name),
                        run: run_of,
                        runner: Arc::new(move |setting: &Run| match (state, pattern) {
                            (Some(state), _) => measure(setting, scheme, state),
                            (_, Some(pattern)) => run(setting, scheme, pattern),
                            _ => Err(Error::NotAvailable("neither a state nor a pattern".into())),
                        }),
                    });
                }
            }
        }
        Ok(points)
    }
}
