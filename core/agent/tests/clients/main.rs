//! Programs that use locks across hosts: agents and clients in processes that are killed.
//!
//! Three agents on loopback, each with its clients, are the hosts.
//! `cargo test -p towpath-agent --test clients -- home` runs only the case of that name; `every`
//! before it kills 1,000 times for each case instead of a few times.

#![allow(missing_docs, reason = "a test")]

mod cluster;
#[path = "../../../shm/tests/common/mod.rs"]
mod common;
mod kills;
mod semantics;

use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use common::{Directory, Watchdog};
use towpath_testkit::Choice;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["agent", hosts, name] => return cluster::agent(hosts, name),
        ["speaker", hosts, name] => return cluster::speaker(hosts, name),
        ["session", hosts, name] => return semantics::session(hosts, name),
        ["worker", hosts, name, seed] => return kills::worker(hosts, name, seed.parse().unwrap()),
        _ => {}
    }
    if std::env::var_os("TEST_OF_CLIENTS").is_none() {
        // Sockets of agents are in a directory of this test, also for this process.
        let directory = Directory::new();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(&arguments).env("TOWPATH_SHM_DIR", &directory.0).env("TEST_OF_CLIENTS", "1");
        let status = command.status().unwrap();
        drop(directory);
        std::process::exit(status.code().unwrap_or(1));
    }
    let choice = Choice::from_arguments();
    let mut cases: Vec<Case> = vec![
        Case::of("semantics", 120, semantics::guards_and_requests),
        Case::of("deaths", 120, semantics::deaths_and_data),
        Case::of("refused", 60, semantics::agents_with_different_keys),
        Case::of("restarts", 60, semantics::restarted_majority),
    ];
    let every = choice.every();
    for victim in kills::Victim::ALL {
        let limit = if every { 3600 } else { 120 };
        cases.push(Case::of(victim.name(), limit, move |dog| kill(victim, every, dog)));
    }
    cases.retain(|case| choice.includes(&[case.name]));
    println!(
        "{:<9}{:>7}{:>10}{:>10}{:>9}{:>9}",
        "kills of", "rounds", "grants", "warnings", "refused", "seconds"
    );
    let number = cases.len();
    // They mostly wait for leases. Thousands of kills go one after the other: their times count.
    let at_once = if every { 1 } else { 4 };
    let cases = Mutex::new(cases.into_iter());
    thread::scope(|threads| {
        for _ in 0..at_once {
            threads.spawn(|| {
                while let Some(case) = { cases.lock().unwrap().next() } {
                    (case.run)(&Watchdog::with(case.name, Duration::from_secs(case.limit)));
                }
            });
        }
    });
    println!("test result: ok. {number} passed; 0 failed");
}

/// A case, and the seconds after which its watchdog ends it.
struct Case {
    name: &'static str,
    limit: u64,
    run: Box<dyn FnOnce(&Watchdog) + Send>,
}

impl Case {
    fn of(name: &'static str, limit: u64, run: impl FnOnce(&Watchdog) + Send + 'static) -> Case {
        Case { name, limit, run: Box::new(run) }
    }
}

/// Kills victims of one kind, and prints a row of the table.
fn kill(victim: kills::Victim, every: bool, dog: &Watchdog) {
    let (few, rounds) = victim.rounds();
    let (rounds, start) = (if every { rounds } else { few }, Instant::now());
    let kills::Outcome { grants, warnings, refused } = kills::rounds(dog, victim, rounds);
    let seconds = start.elapsed().as_secs_f64();
    println!("{:<9}{rounds:>7}{grants:>10}{warnings:>10}{refused:>9}{seconds:>9.1}", victim.name());
}
