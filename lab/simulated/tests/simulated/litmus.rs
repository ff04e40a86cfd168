//! Litmus tests: on every machine with coherence (`incoherent.rs` has the other's),
//! exactly the outcomes that sequential consistency allows are seen; with a store buffer those of
//! total store order. Where a home has one transaction at a time, no others are seen.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use towpath_machine::{Arena, Ordering::Relaxed, Ordering::SeqCst, Place, Processor};
use towpath_sim::{Sim, Simulation, machines};

/// Program of one thread: its accesses to the words, and the values that it reads (0 if
/// none).
type Program = fn(&Sim, &[towpath_sim::SimWord]) -> Vec<u64>;

/// Collects the outcomes of many runs with pauses of all lengths before each access, on
/// lines of their own and on a common one.
fn outcomes(machine: &str, changes: &[&str], programs: &'static [Program]) -> BTreeSet<Vec<u64>> {
    let mut p = machines::by_name(machine).unwrap();
    for change in changes {
        p.set_from_text(change).unwrap();
    }
    if machine == "avalanche-slow" {
        // As fast as the others, so that the pauses decide.
        p.set_from_text("network.fall_through=30ns").unwrap();
    }
    if machine == "paradigm" {
        // As fast as the others, so that the pauses decide.
        for change in ["processor.instructions=0", "bus.memory=150ns", "bus.write=150ns"] {
            p.set_from_text(change).unwrap();
        }
    }
    let mut seen = BTreeSet::new();
    for seed in 0..1200 {
        let mut s = Simulation::new(&p, 8, seed);
        let second = if seed % 4 == 0 { Place::SameLine } else { Place::Home(3) };
        let words = [s.arena().word(Place::Home(0), 0), s.arena().word(second, 0)];
        let read = Rc::new(RefCell::new(vec![Vec::new(); programs.len()]));
        for (i, program) in programs.iter().enumerate() {
            let read = Rc::clone(&read);
            s.spawn(2 * i, i, move |cpu| {
                // Some begin with copies.
                if cpu.random().below(2) == 0 {
                    cpu.load(&words[0], Relaxed);
                }
                if cpu.random().below(2) == 0 {
                    cpu.load(&words[1], Relaxed);
                }
                pause(cpu, 3_000);
                let found = program(cpu, &words);
                read.borrow_mut()[i] = found;
            });
        }
        s.run().unwrap();
        seen.insert(read.take().concat());
    }
    seen
}

fn pause(cpu: &Sim, most: u64) {
    let ns = cpu.random().below(most);
    cpu.work(ns);
}

/// Pauses for a while now and then, and reads.
fn load(cpu: &Sim, word: &towpath_sim::SimWord) -> u64 {
    pause(cpu, 500);
    cpu.load(word, Relaxed)
}

fn store(cpu: &Sim, word: &towpath_sim::SimWord, value: u64) {
    pause(cpu, 500);
    cpu.store(word, value, Relaxed);
}

/// All outcomes of so many reads of 0 or 1, but those.
fn all_but(reads: u32, forbidden: &[&[u64]]) -> BTreeSet<Vec<u64>> {
    (0..1u64 << reads)
        .map(|bits| (0..reads).map(|i| bits >> i & 1).collect())
        .filter(|outcome: &Vec<u64>| !forbidden.contains(&outcome.as_slice()))
        .collect()
}

/// Outcomes with a store buffer of many entries, or of few.
fn buffered(entries: u32, programs: &'static [Program]) -> BTreeSet<Vec<u64>> {
    outcomes("enterprise5000", &[&format!("processor.store_buffer={entries}")], programs)
}

/// Checks programs whose outcomes are the same under total store order.
#[track_caller]
fn check(programs: &'static [Program], reads: u32, forbidden: &[&[u64]]) {
    check_consistent(programs, reads, forbidden);
    assert_eq!(buffered(8, programs), all_but(reads, forbidden), "with a store buffer");
}

#[track_caller]
fn check_consistent(programs: &'static [Program], reads: u32, forbidden: &[&[u64]]) {
    let allowed = all_but(reads, forbidden);
    for machine in machines::names().filter(|name| *name != "sx4") {
        let changes: &[&str] = match machine {
            "avalanche" | "avalanche-slow" => &["directory.transactions=0"],
            "enterprise5000" => &["processor.store_buffer=0"],
            _ => &[],
        };
        assert_eq!(outcomes(machine, changes, programs), allowed, "{machine}");
    }
    // Where the requests for all lines of a home wait for each other, some outcomes are rare.
    let seen = outcomes("avalanche", &[], programs);
    assert!(seen.is_subset(&allowed), "{seen:?}");
}

#[test]
fn store_buffering() {
    const PROGRAMS: &[Program] = &[
        |cpu, w| {
            store(cpu, &w[0], 1);
            vec![load(cpu, &w[1])]
        },
        |cpu, w| {
            store(cpu, &w[1], 1);
            vec![load(cpu, &w[0])]
        },
    ];
    check_consistent(PROGRAMS, 2, &[&[0, 0]]);
    // At once, while the store is in its buffer.
    const AT_ONCE: &[Program] = &[
        |cpu, w| {
            cpu.store(&w[0], 1, Relaxed);
            vec![cpu.load(&w[1], Relaxed)]
        },
        |cpu, w| {
            cpu.store(&w[1], 1, Relaxed);
            vec![cpu.load(&w[0], Relaxed)]
        },
    ];
    check_consistent(AT_ONCE, 2, &[&[0, 0]]);
    for entries in [1, 8] {
        assert_eq!(buffered(entries, AT_ONCE), all_but(2, &[]), "{entries}");
    }
    // Loads that wait for stores are what makes it sequentially consistent.
    assert_eq!(outcomes("origin2000", &["processor.store_window=0"], AT_ONCE), all_but(2, &[]));
}

#[test]
fn store_buffer_is_empty_after_a_fence_or_an_update() {
    const FENCED: &[Program] = &[
        |cpu, w| {
            store(cpu, &w[0], 1);
            cpu.fence(SeqCst);
            vec![load(cpu, &w[1])]
        },
        |cpu, w| {
            store(cpu, &w[1], 1);
            vec![cpu.fetch_add(&w[0], 0, SeqCst)]
        },
    ];
    assert_eq!(buffered(8, FENCED), all_but(2, &[&[0, 0]]));
}

#[test]
fn own_stores_are_seen_in_the_buffer_and_in_order() {
    const OWN: &[Program] = &[|cpu, w| {
        cpu.store(&w[0], 7, Relaxed);
        cpu.store(&w[0], 1, Relaxed);
        cpu.store(&w[1], 1, Relaxed);
        let first = cpu.load(&w[0], Relaxed);
        let seen = cpu.spin_until(&w[1], Relaxed, u64::MAX, |value| value == 1);
        pause(cpu, 3_000);
        vec![first, seen.unwrap(), cpu.load(&w[0], Relaxed)]
    }];
    for entries in [1, 2, 8] {
        assert_eq!(buffered(entries, OWN), BTreeSet::from([vec![1, 1, 1]]), "{entries}");
    }
}

#[test]
fn message_passing() {
    check(
        &[
            |cpu, w| {
                store(cpu, &w[0], 1);
                store(cpu, &w[1], 1);
                vec![]
            },
            |cpu, w| vec![load(cpu, &w[1]), load(cpu, &w[0])],
        ],
        2,
        &[&[1, 0]],
    );
}

#[test]
fn load_buffering() {
    check(
        &[
            |cpu, w| {
                let read = load(cpu, &w[0]);
                store(cpu, &w[1], 1);
                vec![read]
            },
            |cpu, w| {
                let read = load(cpu, &w[1]);
                store(cpu, &w[0], 1);
                vec![read]
            },
        ],
        2,
        &[&[1, 1]],
    );
}

#[test]
fn independent_reads_of_independent_writes() {
    check(
        &[
            |cpu, w| {
                store(cpu, &w[0], 1);
                vec![]
            },
            |cpu, w| {
                store(cpu, &w[1], 1);
                vec![]
            },
            |cpu, w| vec![load(cpu, &w[0]), load(cpu, &w[1])],
            |cpu, w| vec![load(cpu, &w[1]), load(cpu, &w[0])],
        ],
        4,
        &[&[1, 0, 1, 0]],
    );
}

#[test]
fn coherence_of_reads() {
    check(
        &[
            |cpu, w| {
                store(cpu, &w[0], 1);
                vec![]
            },
            |cpu, w| vec![load(cpu, &w[0]), load(cpu, &w[0])],
        ],
        2,
        &[&[1, 0]],
    );
}
