//! Paper N §2.2, §3.2: properties of the model itself (N34), and the queue of Figure 1
//! (N35).

use std::cell::RefCell;
use std::rc::Rc;

use towpath_explore::{MemoryModel, Method, Plan, SearchReport, SearchSettings, search, subjects};
use towpath_machine::{Arena, LlSc, Ordering::Relaxed, Place, Processor};
use towpath_sim::{Simulation, machines};
use towpath_sync::Policy;

use super::n_constants::vary;
use super::{Claim, Context, Finding};
use towpath_host::Error;

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        id: "N34",
        what: "Load-linked comes shared; a store-conditional that fails sends no invalidations; it fails after a context switch",
        paper: "0 invalidations; fails",
        tolerance: "exact",
        input: false,
        simulated: n34,
        native: None,
    },
    Claim {
        id: "N35",
        what: "The queue of Figure 1 increments the head in both operations, clearly a slip: as printed it is wrong, corrected it is right",
        paper: "the head, twice",
        tolerance: "the printed one fails; the corrected one is linearizable under all schedules tried",
        input: false,
        simulated: n35,
        native: None,
    },
];

fn n34(context: &Context<'_>) -> Result<Finding, Error> {
    let ours = "0 invalidations, 0 messages; fails after a context switch";
    let never_switches = (context.own_sabotage() != 0).then_some("os.quantum=1s");
    vary(Finding::new(ours.into(), against_n34(never_switches)?), &|change| against_n34(Some(change)))
}

/// The contradictions of N34, on the machine with a parameter changed or as it is.
fn against_n34(change: Option<&str>) -> Result<Vec<String>, Error> {
    let mut machine = machines::by_name("origin2000").expect("a machine that comes with Towpath");
    for change in ["os.quantum=50us", "os.switch=1us"].into_iter().chain(change) {
        machine.set_from_text(change).map_err(|e| Error::NotAvailable(e.to_string()))?;
    }
    let mut s = Simulation::new(&machine, 4, 1);
    let word = s.arena().word(Place::Home(0), 0);
    let lonely = s.arena().word(Place::Home(0), 0);
    let against: Rc<RefCell<Vec<String>>> = Rc::default();
    let told = Rc::clone(&against);
    s.spawn(2, 2, move |cpu| {
        cpu.load(&word, Relaxed);
        cpu.work(4_000);
        cpu.store(&word, 7, Relaxed);
    });
    s.spawn(0, 0, move |cpu| {
        let say = |wrong: bool, text: &str| {
            if wrong {
                told.borrow_mut().push(text.into());
            }
        };
        cpu.work(1_000);
        let before = cpu.counters();
        cpu.load_linked(&word);
        let linked = cpu.counters().since(&before);
        say(linked.upgrades + linked.invalidations != 0, "load-linked asks for ownership");
        cpu.work(9_000);
        let before = cpu.counters();
        say(cpu.store_conditional(&word, 9), "a store-conditional succeeds after another processor's write");
        let failed = cpu.counters().since(&before);
        say(failed.invalidations + failed.messages != 0, "a failing store-conditional sends something");
        // No other thread touches this word, but another thread has the processor meanwhile.
        cpu.load_linked(&lonely);
        cpu.work(300_000);
        say(cpu.store_conditional(&lonely, 1), "a store-conditional succeeds after a context switch");
        cpu.load_linked(&lonely);
        say(!cpu.store_conditional(&lonely, 1), "an undisturbed store-conditional fails");
    });
    s.spawn(0, 1, |cpu| cpu.work(200_000));
    s.run().map_err(|stuck| Error::NotAvailable(stuck.to_string()))?;
    Ok(against.take())
}

/// Schedules that the corrected queue must survive by each method, unless there are
/// fewer.
const SCHEDULES: u64 = 20_000;

fn explored(name: &str, method: Method, schedules: u64, seed: u64) -> Result<SearchReport, Error> {
    let found = subjects::find(name, Policy::Spin);
    let case = found
        .first()
        .ok_or_else(|| Error::NotAvailable(format!("there is nothing called `{name}` to explore")))?;
    // The papers' machines are sequentially consistent.
    let (memory, plan) = (MemoryModel::Sc, Plan { threads: 3, ops: 3 });
    let settings = SearchSettings { memory, method, seed, ..SearchSettings::new(plan, schedules) };
    search(case, &settings, &mut |_| {}).map_err(|error| Error::NotAvailable(error.to_string()))
}

fn n35(_context: &Context<'_>) -> Result<Finding, Error> {
    let (mut ours, mut against) = (Vec::new(), Vec::new());
    let printed = explored("planted/fetch-op-array-as-printed", Method::Random, SCHEDULES, 1)?;
    match &printed.found {
        Some(found) => ours.push(format!(
            "as printed: {} after {} schedules, the shortest: {}",
            found.failure.fault.name(),
            printed.schedules,
            found.replay
        )),
        None => against.push(format!("no fault of the printed queue in {} schedules", printed.schedules)),
    }
    for name in ["queue/fetch-op-array", "queue/fetch-op-tickets"] {
        let mut all = 0;
        for (n, method) in [Method::Random, Method::Pct { depth: 3 }, Method::Dfs { preemptions: Some(3) }]
            .into_iter()
            .enumerate()
        {
            let report = explored(name, method, SCHEDULES, 1_000_000 * n as u64)?;
            all += report.schedules;
            if let Some(found) = report.found {
                against.push(format!("{name}: {}, {}", found.failure.fault.name(), found.replay));
            }
        }
        ours.push(format!("{name}: no fault in {all} schedules"));
    }
    Ok(Finding::new(ours.join("; "), against))
}
