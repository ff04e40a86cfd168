//! Speed of the simulator itself, on one core of the host.
//!
//! The machine is an Origin2000 of so many processors. *Hits*: one processor loads and stores what
//! its cache has, while the others wait. *Contended accesses*: all of them increment one counter
//! with LL/SC after 5 µs of work each, as in paper N's Figure 3: most accesses are transactions,
//! most of those are refused at first, and each takes several events. The time to set a run up does
//! not count.

use std::time::{Duration, Instant};
use towpath_report::record::Record;
use towpath_report::table::{Cell, Table, header};

use towpath_machine::{Arena, Ordering::Relaxed, Place, Processor};
use towpath_sim::{Outcome, Parameters, Sim, SimWord, Simulation, machines};

use crate::experiment::{Bench, Measure, Samples, Variant};
use crate::transport::Circumstances;
use towpath_host::Error;
use towpath_report::record::RecordSubject;
use towpath_report::record::metrics::{CONTENDED_ACCESSES_PER_S, EVENTS_PER_S, HITS_PER_S};
use towpath_report::{Experiment, Results, Section};

/// The experiment.
pub struct Simulator;

/// The machine whose number of processors is raised.
const MACHINE: &str = "origin2000";
/// Numbers of processors.
pub const PROCESSORS: [u32; 2] = [64, 1024];
/// Number of accesses of one simulation: enough that beginning and end are a small part.
/// Samples shorter than [`WHOLE`] have fewer.
const HITS: u64 = 4_000_000;
const INCREMENTS: u64 = 12_000;
const WHOLE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
enum MachineLoad {
    Hits,
    Contention,
}

impl Experiment for Simulator {
    fn name(&self) -> &'static str {
        "simulator"
    }
    fn about(&self) -> &'static str {
        "how many accesses and events of simulated machines this machine gets through in a second"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        crate::experiment::claim_algorithms()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        vec![Section::new(simulator(results))]
    }
}

impl Measure for Simulator {
    fn seconds(&self) -> u64 {
        2
    }
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        let mut variants = Vec::new();
        for processors in PROCESSORS {
            for load in [MachineLoad::Hits, MachineLoad::Contention] {
                let subject =
                    RecordSubject::new(self.name(), "engine", "none", processors).with("model", MACHINE);
                variants.push(Variant { subject, key: (processors, load) });
            }
        }
        bench.compare(&variants, |_, &(processors, load), run| measure(processors, load, run));
        Ok(())
    }
}

/// Repeats a simulation for as long as a sample may take; at least once.
fn measure(processors: u32, load: MachineLoad, run: &Circumstances<'_>) -> Result<Samples, Error> {
    let mut machine = machines::by_name(MACHINE).expect("a machine that comes with Towpath");
    machine.processors = u64::from(processors);
    let part = (run.limit.as_secs_f64() / WHOLE.as_secs_f64()).min(1.0);
    let begun = Instant::now();
    let (mut seconds, mut accesses, mut events) = (0.0, 0, 0);
    for seed in run.seed.. {
        let (outcome, time) = once(&machine, load, part, seed)?;
        seconds += time;
        // Waiters are charged for their spinning too, arithmetically: accesses that were not
        // simulated do not count.
        accesses += match load {
            MachineLoad::Hits => part_of(HITS, part),
            MachineLoad::Contention => outcome.counters.accesses,
        };
        events += outcome.events;
        if begun.elapsed() >= run.limit {
            break;
        }
    }
    Ok(match load {
        MachineLoad::Hits => Samples::one(HITS_PER_S, accesses as f64 / seconds),
        MachineLoad::Contention => {
            let mut samples = Samples::one(EVENTS_PER_S, events as f64 / seconds);
            samples.push(CONTENDED_ACCESSES_PER_S, accesses as f64 / seconds);
            samples
        }
    })
}

/// A part of so many accesses, at most all of them.
fn part_of(accesses: u64, part: f64) -> u64 {
    (accesses as f64 * part) as u64
}

/// One simulation of a part of the load, and how long the host took for it.
fn once(machine: &Parameters, load: MachineLoad, part: f64, seed: u64) -> Result<(Outcome, f64), Error> {
    let processors = machine.processors;
    let mut simulation = Simulation::new(machine, processors as usize, seed);
    let arena = simulation.arena();
    let words: [SimWord; 2] = std::array::from_fn(|_| arena.word(Place::Home(0), 0));
    match load {
        MachineLoad::Hits => simulation.spawn_all(move |cpu: &Sim| {
            if cpu.id() != 0 {
                let _ = cpu.spin_until(&words[1], Relaxed, u64::MAX, |value| value == 1);
                return;
            }
            for i in 0..part_of(HITS, part) / 2 {
                cpu.store(&words[0], i, Relaxed);
                cpu.load(&words[0], Relaxed);
            }
            cpu.store(&words[1], 1, Relaxed);
        }),
        MachineLoad::Contention => simulation.spawn_all(move |cpu: &Sim| {
            for _ in 0..(part_of(INCREMENTS, part) / processors).max(1) {
                let ps = cpu.random().around(5_000_000, 0.2);
                cpu.compute(ps);
                cpu.fetch_add(&words[0], 1, Relaxed);
            }
        }),
    }
    let begun = Instant::now();
    let outcome = simulation.run().map_err(|e| Error::NotAvailable(e.to_string()))?;
    Ok((outcome, begun.elapsed().as_secs_f64()))
}

fn simulator(results: &Results) -> Table {
    let figure = |metric: &str, procs: u32| {
        let is_it = |r: &&Record| r.experiment == "simulator" && r.metric == metric && r.procs == procs;
        results.records.iter().find(is_it)
    };
    let metrics = ["hits_per_s", "events_per_s", "contended_accesses_per_s"];
    let rows = PROCESSORS
        .into_iter()
        .filter(|&procs| metrics.iter().any(|metric| figure(metric, procs).is_some()))
        .map(|procs| {
            let mut row = vec![Cell::text(procs.to_string())];
            row.extend(metrics.map(|metric| Cell::scaled(figure(metric, procs), 1e6)));
            row
        })
        .collect();
    Table {
        experiment: "simulator",
        title: "The simulator itself".into(),
        note: "Millions in each second of one core: accesses that hit in a simulated cache; events, and accesses, while all simulated \
               processors of an Origin2000 contend for one counter."
            .into(),
        header: header(&["processors", "hits", "events", "contended accesses"]),
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Collected, bench_with, quick};

    #[test]
    fn both_sizes_yield_all_three_figures() {
        let mut sink = Collected::default();
        bench_with(&quick(), &mut [], &mut sink, |b| Simulator.run(b).unwrap());
        let found: Vec<_> = sink.records.iter().map(|r| (r.procs, r.metric.as_str())).collect();
        let metrics = ["hits_per_s", "events_per_s", "contended_accesses_per_s"];
        let expected: Vec<_> = PROCESSORS.iter().flat_map(|&n| metrics.map(|m| (n, m))).collect();
        assert_eq!(found, expected);
        assert!(sink.records.iter().all(|r| r.value > 1e3), "{:?}", sink.records);
        assert!(sink.missing.is_empty(), "{:?}", sink.missing);
    }

    #[test]
    fn the_loads_are_what_they_are_called() {
        let mut machine = machines::by_name(MACHINE).unwrap();
        machine.processors = 64;
        let hits = once(&machine, MachineLoad::Hits, 1.0, 1).unwrap().0.counters;
        assert!(hits.hits * 1000 > hits.accesses * 999, "{hits:?}");
        let contention = once(&machine, MachineLoad::Contention, 1.0, 1).unwrap().0.counters;
        assert!(contention.hits * 2 < contention.accesses, "{contention:?}");
        assert!(contention.failed_conditionals > contention.conditionals, "{contention:?}");
    }
}
