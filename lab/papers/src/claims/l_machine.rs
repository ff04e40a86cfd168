//! Paper L: the machine itself (L1, L18), and the claims beyond the tables: binding,
//! deadlock (L16, L19).

use std::cell::Cell;
use std::rc::Rc;

use towpath_machine::{Arena, Ordering::Relaxed, Place, Processor};
use towpath_sim::{Parameters, Sim, SimWord, Simulation, machines};

use super::context::within;
use super::{Claim, Context, Finding};
use crate::sim::messages::deadlock::{Traffic, Way, traffic};
use crate::sim::messages::{Layer, MessageAlgorithm};
use towpath_host::Error;
use towpath_report::format::{digits, nanoseconds};

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        id: "L1",
        what: "A line from memory, a line from another cache, an atomic operation on a line that is there",
        paper: "300 ns, 480 ns, 90 ns",
        tolerance: "± 5 %",
        input: true,
        simulated: l1,
        native: None,
    },
    Claim {
        id: "L16",
        what: "Binding processes to processors at most halves Posix' time",
        paper: "up to a factor 2",
        tolerance: "at most 2",
        input: false,
        simulated: l16,
        native: None,
    },
    Claim {
        id: "L18",
        what: "A synchronisation primitive costs about fifteen cycles",
        paper: "15",
        tolerance: "exact",
        input: true,
        simulated: l18,
        native: None,
    },
    Claim {
        id: "L19",
        what: "Polling while waiting resolves cycles of full queues; block before packet does not deadlock; without the one or in the other order programs stand still",
        paper: "no deadlock; deadlock",
        tolerance: "exact",
        input: false,
        simulated: l19,
        native: None,
    },
];

pub(super) fn enterprise() -> Parameters {
    machines::by_name("enterprise5000").expect("a machine that comes with Towpath")
}

pub(super) fn stuck(stuck: towpath_sim::Stuck) -> Error {
    Error::NotAvailable(stuck.to_string())
}

/// Time of the second processor's access to a word after the first one's, in nanoseconds.
fn access(
    seed: u64,
    first: impl Fn(&Sim, &SimWord) + 'static,
    second: impl Fn(&Sim, &SimWord) + 'static,
) -> Result<f64, Error> {
    let mut simulation = Simulation::new(&enterprise(), 2, seed);
    let word = simulation.arena().word(Place::NewLine, 0);
    simulation.spawn(0, 0, move |cpu| first(cpu, &word));
    let time = Rc::new(Cell::new(0.0));
    let result = time.clone();
    simulation.spawn(1, 1, move |cpu| {
        cpu.work(100_000);
        let start = cpu.clock();
        second(cpu, &word);
        result.set((cpu.clock() - start) as f64 / 1e3);
    });
    simulation.run().map_err(stuck)?;
    Ok(time.get())
}

fn l1(context: &Context<'_>) -> Result<Finding, Error> {
    let load = |cpu: &Sim, word: &SimWord| {
        cpu.load(word, Relaxed);
    };
    let mut against = Vec::new();
    let mut last = [0.0; 3];
    for seed in 1..=u64::from(context.seeds()) {
        let memory = access(seed, |_, _| {}, load)?;
        let cache = access(seed, |cpu, word| cpu.store(word, 1, Relaxed), load)?;
        let swap = |cpu: &Sim, word: &SimWord| {
            cpu.swap(word, 1, Relaxed);
        };
        let once = access(seed, |_, _| {}, swap)?;
        let twice = access(
            seed,
            |_, _| {},
            move |cpu, word| {
                swap(cpu, word);
                swap(cpu, word);
            },
        )?;
        last = [memory, cache, twice - once];
        for ((name, paper), ours) in
            [("memory", 300.0), ("cache to cache", 480.0), ("atomic", 90.0)].into_iter().zip(last)
        {
            against.extend(within(name, ours, paper, 0.05));
        }
    }
    Ok(Finding::new(last.map(nanoseconds).join(", "), against))
}

fn l16(_: &Context<'_>) -> Result<Finding, Error> {
    Ok(Finding::not_checkable(
        "processes of the simulated operating system never move: all are bound, and the paper gives no figures of the bound ones",
    ))
}

fn l18(_: &Context<'_>) -> Result<Finding, Error> {
    let cycles = enterprise().rmw as f64 / 6_000.0;
    let against = if cycles == 15.0 { Vec::new() } else { vec![format!("{cycles} cycles of 6 ns")] };
    Ok(Finding::new(digits(cycles), against))
}

fn l19(context: &Context<'_>) -> Result<Finding, Error> {
    let mut layer = Layer::on(enterprise(), 4, 0);
    // As the paper's receivers, which wait for a packet that was claimed for as long as it takes.
    layer.habits.patience = u64::MAX;
    let mut against = Vec::new();
    let mut runs = 0;
    for algorithm in MessageAlgorithm::PAPER {
        for (what, way, stands) in [
            (Traffic::Cycle, Way::Right, false),
            (Traffic::Cycle, Way::Deaf, true),
            (Traffic::Bulk, Way::Right, false),
            (Traffic::Bulk, Way::PacketFirst, true),
        ] {
            // An algorithm that can stand still need not do so every time: it is run until it does.
            // One that cannot never does.
            let most = if stands { 40 } else { u64::from(context.seeds_or(5)) };
            let stood = (1..=most).any(|seed| {
                runs += 1;
                traffic(&layer.seed(seed), algorithm, what, way).is_err()
            });
            if stands != stood {
                let text = if stands { "never stands still" } else { "stands still" };
                against.push(format!("{} {what:?} {way:?} {text}", algorithm.name()));
            }
        }
    }
    Ok(Finding::new(
        format!(
            "as the paper says in {runs} runs of the six algorithms with queues of two packets and one block (our own receivers look past a claimed packet after a millisecond: that ends the standstill of the wrong order under lock-free)"
        ),
        against,
    ))
}
