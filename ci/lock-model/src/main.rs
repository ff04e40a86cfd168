//! Locks by message under the checker stateright.
//!
//! All orders of messages of three nodes and two locks, with a crash, and with a node that is cut
//! off. Lock 0 has its home at node 0, lock 1 at node 1. A node that crashes or is cut off is gone
//! for the others: messages from and to it are lost, its locks get the next node as home, and the
//! epoch grows. A node that is cut off does not know it: it goes on with what it has, as a node and
//! as a home. So it may take itself for a holder beside another one; the token tells them apart.
//!
//! | property | holds if |
//! | --- | --- |
//! | exclusion | of the nodes that are connected, one at most holds a lock |
//! | tokens increase | each grant has a larger token than all before, also than those of a node that is cut off; its own are smaller than all that others have got since |
//! | no lost waiter | where nothing is under way and no lock is in use, no connected node waits |
//! | bounded bypass | a node that keeps a lock, and those that it lends it to, have it so often at most as they may before it is passed on |
//! | eventual grant | each history ends with all requests of connected nodes granted |
//!
//! Usage: `lock-model [short | full | plan N] [--plant FAULT]`; `plan N` is one of the seven plans of
//! `full`. Exit code 1 if a property fails; a shortest history is printed. With a planted fault
//! ([`world::Plant`]) exit code 0 says that a property failed, and 1 that the fault was not found.
//!
//! Not checked: that a lock's data are the last ones (`core/mplock/tests/machines/` does),
//! readers, and the carriers. An *eventual grant* that fails only on histories which meet others
//! of the same state may be missed: stateright follows each state once.

mod world;

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};
use towpath_mplock::Protocol;
use world::{Locks, NODES, Plant, REACHED};

fn main() {
    let usage = || -> ! {
        let names = Plant::ALL.map(|(name, _)| name).join(", ");
        eprintln!("usage: lock-model [short | full | plan 1 … 7] [--plant FAULT]; faults: {names}");
        std::process::exit(2)
    };
    let (mut full, mut only, mut plant) = (false, None, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "short" => full = false,
            "full" => full = true,
            "plan" => {
                let number = arguments.next().and_then(|number| number.parse::<usize>().ok());
                only = Some(number.filter(|number| (1..=7).contains(number)).unwrap_or_else(|| usage()));
                full = true;
            }
            "--plant" => {
                let name = arguments.next().unwrap_or_default();
                let known = Plant::ALL.into_iter().find(|(known, _)| *known == name);
                plant = Some(known.unwrap_or_else(|| usage()).1);
            }
            _ => usage(),
        }
    }
    // Of the last one only loans: to a node that is not the next one.
    let short = [[[0, 1, 1], [0, 1, 1]], [[0, 2, 2], [0, 0, 0]], [[1, 1, 1], [0, 0, 0]]];
    let more =
        [[[1, 1, 1], [0, 0, 1]], [[0, 1, 1], [1, 1, 1]], [[1, 2, 2], [0, 0, 0]], [[2, 2, 1], [0, 0, 0]]];
    let plans = short.iter().chain(more.iter().filter(|_| full));
    println!(
        "{:<13}{:<34}{:>6}{:>7}{:>7}{:>12}{:>10}",
        "protocol", "acquisitions of locks 0 and 1", "hold", "lends", "tries", "states", "seconds"
    );
    let mut failed = false;
    let of_loans = matches!(plant, Some(Plant::EndlessLoan | Plant::HastyLender));
    for (_, &plan) in (1..).zip(plans).filter(|(number, _)| only.is_none_or(|only| only == *number)) {
        for protocol in Protocol::ALL {
            for (hold, lends, tries) in
                [(0, false, false), (2, false, false), (0, false, true), (2, true, false)]
            {
                // Loans at two locks at once have millions of states.
                let is_long = lends && plan[1] != [0; NODES] && !full;
                let is_other = (of_loans || plan == short[2]) && !lends;
                if (hold == 0 || protocol != Protocol::Central) && !is_long && !is_other {
                    let case = Locks { protocol, plant, plan, hold, lends, tries, crashes: 1, cuts: 1 };
                    failed |= check(case);
                    if failed && plant.is_some() {
                        return println!("the planted fault was found");
                    }
                }
            }
        }
    }
    if plant.is_some() {
        println!("the planted fault was not found");
    }
    std::process::exit((failed || plant.is_some()).into());
}

/// Checks a case. Returns whether a property does not hold.
fn check(case: Locks) -> bool {
    let start = Instant::now();
    let Locks { protocol, plan, hold, lends, tries, .. } = case;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let checker = case.checker().finish_when(HasDiscoveries::AnyFailures).threads(threads).spawn_bfs().join();
    let (states, seconds) = (checker.unique_state_count(), start.elapsed().as_secs_f64());
    let plan = format!("{plan:?}");
    println!("{:<13}{plan:<34}{hold:>6}{lends:>7}{tries:>7}{states:>12}{seconds:>10.1}", protocol.name());
    let mut failed = false;
    for (property, path) in checker.discoveries() {
        if property != REACHED {
            let why = path.last_state().fault.map_or(String::new(), |fault| format!(" ({fault})"));
            println!("{property}: does not hold{why}, after");
            path.into_actions().iter().for_each(|step| println!("    {step:?}"));
            failed = true;
        }
    }
    if !failed && !checker.discoveries().contains_key(REACHED) {
        println!("no state in which {REACHED}: the model lacks something");
        failed = true;
    }
    failed
}
