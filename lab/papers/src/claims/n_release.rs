//! Paper N §3.1: costs of the release of a queue lock (N21).

use std::cell::Cell;
use std::rc::Rc;

use towpath_machine::{Arena, Place, Processor};
use towpath_sim::{Parameters, Sim, Simulation, machines};
use towpath_sync::locks::{Anderson, HybridQueue, TestAndSet};
use towpath_sync::{LoadLinked, Lock, Policy};

use super::n_constants::vary;
use super::{Claim, Context, Finding};
use crate::sim::Patience;
use towpath_host::Error;
use towpath_report::format::digits;

pub(super) const CLAIMS: &[Claim] = &[Claim {
    id: "N21",
    what: "The release of a queue lock is one invalidation: a single transaction with the first waiter",
    paper: "1",
    tolerance: "exact",
    input: false,
    simulated: n21,
    native: None,
}];

/// Costs of releases of a lock with as many places as processors while all wait for it:
/// invalidations and interventions while each release lasted, for each release after the first two
/// laps (before, the places' lines are not yet where they stay). The release is the only thing that
/// happens then: the holder keeps the lock until all others have long settled down to wait.
fn releases<L: Lock<Sim> + 'static, const PROCS: usize>(
    machine: &Parameters,
    seed: u64,
) -> Result<Vec<(u64, u64)>, Error> {
    const LAPS: usize = 6;
    let mut simulation = Simulation::new(machine, PROCS, seed);
    let arena = simulation.arena();
    let shared = Rc::new((L::new(&arena), arena.cell(Place::NewLine, 0)));
    let counted: Rc<Cell<Vec<(u64, u64)>>> = Rc::default();
    for processor in 0..PROCS {
        let (shared, counted) = (Rc::clone(&shared), Rc::clone(&counted));
        let patience = Patience::new(machine, Policy::Spin);
        simulation.spawn(processor, processor, move |cpu| {
            for lap in 0..LAPS {
                let held = shared.0.lock(cpu, &patience).expect("a lock that no holder abandons");
                let count = cpu.read(&shared.1);
                cpu.write(&shared.1, count + 1);
                cpu.work(20_000);
                let before = cpu.counters();
                shared.0.unlock(cpu, &patience, held);
                // Memory is sequentially consistent: a load waits until stores before it are
                // performed. This one hits.
                cpu.read(&shared.1);
                let after = cpu.counters().since(&before);
                // In the last lap there are fewer and fewer waiters.
                if (2..LAPS - 1).contains(&lap) {
                    let mut all = counted.take();
                    all.push((after.invalidations, after.interventions));
                    counted.set(all);
                }
            }
        });
    }
    simulation.run().map_err(|stuck| Error::NotAvailable(stuck.to_string()))?;
    Ok(counted.take())
}

/// A way to count the releases of a lock on a machine, for a seed.
type Count = fn(&Parameters, u64) -> Result<Vec<(u64, u64)>, Error>;

const LOCKS: [(&str, Count); 4] = [
    ("queue lock over LL/SC on 8", releases::<Anderson<Sim, 8, LoadLinked>, 8>),
    ("queue lock over LL/SC on 64", releases::<Anderson<Sim, 64, LoadLinked>, 64>),
    ("hybrid queue lock on 8", releases::<HybridQueue<Sim, 8>, 8>),
    ("hybrid queue lock on 64", releases::<HybridQueue<Sim, 64>, 64>),
];

/// A lock whose waiters all look at the word that the release stores.
const ONE_WORD: (&str, Count) = ("test&set over LL/SC on 8", releases::<TestAndSet<Sim, LoadLinked>, 8>);

/// The contradictions of the claim on a machine, and each lock's costs there.
fn on(
    machine: &Parameters,
    locks: &[(&str, Count)],
    seeds: u32,
) -> Result<(Vec<String>, Vec<String>), Error> {
    let (mut against, mut ours) = (Vec::new(), Vec::new());
    for (name, count) in locks {
        let mut all = Vec::new();
        for seed in 1..=u64::from(seeds) {
            all.extend(count(machine, seed)?);
        }
        let mean = |of: fn(&(u64, u64)) -> u64| all.iter().map(of).sum::<u64>() as f64 / all.len() as f64;
        let (least, most) = (all.iter().map(|r| r.0).min(), all.iter().map(|r| r.0).max());
        if (least, most) != (Some(1), Some(1)) {
            against.push(format!("{name}: {least:?} to {most:?} invalidations"));
        }
        ours.push(format!(
            "{name}: {} invalidations in each of {} releases to a waiter ({} interventions meanwhile: the waiter reads its place again)",
            digits(mean(|r| r.0)),
            all.len(),
            digits(mean(|r| r.1)),
        ));
    }
    Ok((against, ours))
}

fn n21(context: &Context<'_>) -> Result<Finding, Error> {
    let origin2000 = || machines::by_name("origin2000").expect("a machine that comes with Towpath");
    let locks = if context.own_sabotage() == 0 { LOCKS.as_slice() } else { &[ONE_WORD] };
    let (against, ours) = on(&origin2000(), locks, context.seeds())?;
    vary(Finding::new(ours.join("; "), against), &|change| {
        let mut machine = origin2000();
        machine.set_from_text(change).expect("a parameter and its value");
        Ok(on(&machine, locks, context.seeds())?.0)
    })
}
