//! Paper G §2, §5, §6.1: claims that must hold whatever the timing (G18 to G20), by the
//! schedule explorer and by signals.

use towpath_explore::harness::Case;
use towpath_explore::{Liberties, MemoryModel, Method, Plan, SearchReport, SearchSettings, search, subjects};
use towpath_machine::{Heap, Native};
use towpath_structures::dcas::{Actor, Guerraoui};
use towpath_structures::nonblocking;
use towpath_sync::{Policy, Spinning};

use super::{Claim, Context, Finding};
use crate::signalled::{SignalledEnd, interrupt};
use crate::sim::list::{self, List, Locked};
use towpath_host::Error;

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        id: "G18",
        what: "The list over DCAS: readers without a lock detect a change by the version, deletion from the middle is linearizable, and type-stable memory is needed",
        paper: "so it is",
        tolerance: "no fault under all schedules tried; one if entries become something else",
        input: false,
        simulated: g18,
        native: None,
    },
    Claim {
        id: "G19",
        what: "Software DCAS after Bershad: readers can see tentative values unless they take the lock; over hardware DCAS they cannot",
        paper: "so it is",
        tolerance: "a fault; none",
        input: false,
        simulated: g19,
        native: None,
    },
    Claim {
        id: "G20",
        what: "A signal handler on top of an interrupted update: under a lock both stand still for ever, over DCAS both come to their end",
        paper: "deadlock; none",
        tolerance: "exact",
        input: false,
        simulated: g20,
        native: None,
    },
];

/// Number of schedules that a right structure must survive by each method, unless there
/// are fewer; with one death, too, where deaths may not matter.
const SCHEDULES: u64 = 5_000;
/// Number of schedules in which a planted fault must be found.
const ENOUGH: u64 = 100_000;

fn case(name: &str) -> Result<Case, Error> {
    subjects::find(name, Policy::Spin)
        .into_iter()
        .next()
        .ok_or_else(|| Error::NotAvailable(format!("there is nothing called `{name}` to explore")))
}

fn explored(case: &Case, settings: &SearchSettings) -> Result<SearchReport, Error> {
    search(case, settings, &mut |_| {}).map_err(|error| Error::NotAvailable(error.to_string()))
}

/// Tells the number of schedules under which a structure is right, and its faults.
fn right(name: &str, ours: &mut Vec<String>, against: &mut Vec<String>) -> Result<(), Error> {
    let case = case(name)?;
    let mut all = 0;
    for method in [Method::Random, Method::Pct { depth: 3 }, Method::Dfs { preemptions: Some(3) }] {
        for kills in 0..=u32::from(case.endures_deaths) {
            let liberties = Liberties { kills, ..Liberties::default() };
            let plan = Plan { threads: 3, ops: 4 };
            let memory = MemoryModel::Sc;
            let settings =
                SearchSettings { memory, method, liberties, ..SearchSettings::new(plan, SCHEDULES) };
            let report = explored(&case, &settings)?;
            all += report.schedules;
            if let Some(found) = report.found {
                against.push(format!("{name}: {}, {}", found.failure.fault.name(), found.replay));
            }
        }
    }
    ours.push(format!("{name}: no fault in {all} schedules"));
    Ok(())
}

/// Tells the fault that is found in a wrong structure.
fn wrong(name: &str, ours: &mut Vec<String>, against: &mut Vec<String>) -> Result<(), Error> {
    let memory = MemoryModel::Sc;
    let settings = SearchSettings { memory, ..SearchSettings::new(Plan { threads: 3, ops: 4 }, ENOUGH) };
    let report = explored(&case(name)?, &settings)?;
    match report.found {
        Some(found) => ours.push(format!(
            "{name}: {} after {} schedules, the shortest: {}",
            found.failure.fault.name(),
            report.schedules,
            found.replay
        )),
        None => against.push(format!("{name}: no fault in {} schedules", report.schedules)),
    }
    Ok(())
}

fn judged(rights: &[&str], wrongs: &[&str]) -> Result<Finding, Error> {
    let (mut ours, mut against) = (Vec::new(), Vec::new());
    for name in rights {
        right(name, &mut ours, &mut against)?;
    }
    for name in wrongs {
        wrong(name, &mut ours, &mut against)?;
    }
    Ok(Finding::new(ours.join("; "), against))
}

fn g18(_: &Context<'_>) -> Result<Finding, Error> {
    judged(&["list/hardware", "list/guerraoui"], &["planted/list-retyped"])
}

fn g19(_: &Context<'_>) -> Result<Finding, Error> {
    judged(&["dcas/hardware", "dcas/guerraoui", "dcas/bershad-os"], &["planted/bershad-readers"])
}

/// Number of times that the handler must come to its end.
const HANDLERS: u64 = 500;

/// Few keys, so that operations meet.
const fn key(n: u64) -> u64 {
    n % 7 + 1
}

fn g20(_: &Context<'_>) -> Result<Finding, Error> {
    let mut against = Vec::new();
    // The handler acts as the participant that it has interrupted.
    let free = std::rc::Rc::new(nonblocking::List::<Native, Guerraoui<Native>>::new(&Heap, 64, 1));
    let both = |list: &nonblocking::List<Native, Guerraoui<Native>>, n: u64| {
        let (cpu, wait) = (Native::with_id(0), Spinning);
        let me = Actor { cpu: &cpu, wait: &wait, me: 0 };
        list.insert(&me, key(n), n).expect("there is room");
        list.remove(&me, key(n + 3)).expect("it is whole");
    };
    let (mine, theirs) = (free.clone(), free);
    let over_dcas = interrupt(HANDLERS, move |n| both(&mine, n), move |n| both(&theirs, n))?;
    if !matches!(over_dcas, SignalledEnd::Ended { .. }) {
        against.push(format!("over DCAS: {over_dcas:?}"));
    }
    let held = std::rc::Rc::new(Locked::<Native>::new(&Heap, &list::ListPlan::native(2, 0)));
    // As two participants: their nodes are not what is tried.
    let both = |list: &Locked<Native>, me: usize, n: u64| {
        let (cpu, mut steps) = (Native::with_id(me as u32), 0);
        let element = list.insert(&cpu, me, key(n), &mut steps).expect("there is room");
        list.remove(&cpu, me, element, &mut steps).expect("it is whole");
    };
    let (mine, theirs) = (held.clone(), held);
    // A lock is held for a part of the time only: so there are more handlers to try.
    let under_lock = interrupt(100 * HANDLERS, move |n| both(&mine, 0, n), move |n| both(&theirs, 1, n))?;
    if !matches!(under_lock, SignalledEnd::StoodStill { .. }) {
        against.push(format!("under a lock: {under_lock:?}"));
    }
    let text = |course| match course {
        SignalledEnd::Ended { updates } => {
            format!("{HANDLERS} handlers and {updates} updates came to their end")
        }
        SignalledEnd::StoodStill { handled } => format!("stood still after {handled} handlers"),
    };
    Ok(Finding::new(
        format!("over DCAS {}; under a spin lock it {}", text(over_dcas), text(under_lock)),
        against,
    ))
}
