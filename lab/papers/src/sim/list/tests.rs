//! The lists are lists: ordered, nothing lost, nothing leaked, whatever comes in between.

use std::panic::{AssertUnwindSafe, catch_unwind};

use towpath_sim::machines;

use super::*;
use crate::sim::Work;

fn machine(changes: &[&str]) -> Parameters {
    let mut p = machines::by_name("paradigm").unwrap();
    for change in changes {
        p.set_from_text(change).unwrap();
    }
    p
}

/// Processes insert and delete at random, each with some elements at a time. The list
/// holds in the end what was left in it, in order.
fn shuffle<L: List<Sim> + 'static>(machine: &Parameters, procs: usize, per_processor: usize, seed: u64) {
    let processes = procs * per_processor;
    let mut simulation = Simulation::new(machine, procs, seed);
    let list =
        Rc::new(L::new(&simulation.arena(), &ListPlan::new(machine, processes * 5, 40 * processes as u64)));
    let left: Rc<RefCell<(usize, Vec<u64>)>> = Rc::default();
    for me in 0..processes {
        let (list, left) = (Rc::clone(&list), Rc::clone(&left));
        simulation.spawn(me / per_processor, me, move |cpu| {
            let (mut mine, mut steps) = (Vec::new(), 0);
            for _ in 0..40 {
                let random = cpu.random().word();
                if mine.len() == 5 || random % 2 == 0 && !mine.is_empty() {
                    let (_, element) = mine.swap_remove(random as usize / 2 % mine.len());
                    assert!(list.remove(cpu, me, element, &mut steps).unwrap(), "it is there");
                } else {
                    let key = 1 + random % 50;
                    mine.push((key, list.insert(cpu, me, key, &mut steps).unwrap()));
                }
                cpu.work(random % 3_000);
            }
            let mut all = left.borrow_mut();
            all.1.extend(mine.iter().map(|m| m.0));
            all.0 += 1;
            if all.0 == processes {
                all.1.sort_unstable();
                assert_eq!(list.keys(cpu).unwrap(), all.1);
            }
        });
    }
    simulation.run().unwrap_or_else(|e| panic!("{} on {}: {e}", L::NAME, machine.name));
    assert_eq!(left.borrow().0, processes);
}

fn is_a_list<L: List<Sim> + 'static>() {
    let short = ["os.quantum=20us", "os.switch=1us"];
    let long = ["processor.instructions=0"];
    for (procs, per_processor, changes) in [
        (1, 1, &long[..]),
        (2, 1, &long),
        (5, 1, &[]),
        (16, 1, &long),
        (1, 3, &short),
        (4, 3, &short),
        (16, 2, &short),
    ] {
        for seed in 0..4 {
            let p = machine(changes);
            if lacks(&p, L::NAME).is_none() {
                shuffle::<L>(&p, procs, per_processor, seed);
            }
        }
    }
}

#[test]
fn under_a_version_number_and_advisory_locks() {
    is_a_list::<Versioned<Sim, Advisory>>();
}

#[test]
fn under_a_version_number_and_a_count_of_active_threads() {
    is_a_list::<Versioned<Sim, ActiveCount<Sim>>>();
}

#[test]
fn list_under_a_rolled_back_lock_is_right() {
    is_a_list::<Versioned<Sim, BershadControl<Sim>>>();
}

/// Reads the version as it is: it may be one that is taken back.
struct Careless(BershadControl<Sim>);

impl Control<Sim> for Careless {
    const NAME: &'static str = "dcas-bershad";

    fn new(arena: &impl Arena<Sim>, plan: &ListPlan) -> Self {
        Careless(Control::new(arena, plan))
    }
    fn enter(&self, _cpu: &Sim) {}
    fn version(&self, cpu: &Sim, version: &<Sim as Processor>::Word) -> u64 {
        cpu.load(version, Ordering::Acquire)
    }
    fn dcas(&self, cpu: &Sim, words: [&<Sim as Processor>::Word; 2], old: [u64; 2], new: [u64; 2]) -> bool {
        self.0.dcas(cpu, words, old, new)
    }
    fn leave(&self, _cpu: &Sim) {}
}

#[test]
fn version_taken_back_spoils_the_list() {
    // Time slices so short that holders are often switched out between their two stores.
    let p = machine(&["os.switch=1us", "os.quantum=7us"]);
    let spoils = |seeds: u64, run: fn(&Parameters, u64)| {
        (0..seeds).any(|seed| catch_unwind(AssertUnwindSafe(|| run(&p, seed))).is_err())
    };
    assert!(!spoils(6, |p, seed| shuffle::<Versioned<Sim, BershadControl<Sim>>>(p, 6, 3, seed)));
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let spoilt = spoils(40, |p, seed| shuffle::<Versioned<Sim, Careless>>(p, 6, 3, seed));
    std::panic::set_hook(hook);
    assert!(spoilt, "no list was spoilt");
}

#[test]
fn under_a_lock() {
    is_a_list::<Locked<Sim>>();
}

#[test]
fn with_compare_and_swap_alone() {
    is_a_list::<Valois<Sim>>();
    let epyc = machines::by_name("epyc-milan").unwrap();
    shuffle::<Valois<Sim>>(&epyc, 24, 1, 0);
}

/// Far more pairs than there are nodes.
fn leaks_nothing<L: List<Sim> + 'static>() {
    let p = machine(&[]);
    for procs in [1, 4] {
        let mut simulation = Simulation::new(&p, procs, 1);
        let list = Rc::new(L::new(&simulation.arena(), &ListPlan::new(&p, procs, 100)));
        for me in 0..procs {
            let list = Rc::clone(&list);
            simulation.spawn(me, me, move |cpu| {
                for i in 0..2_000 {
                    let element = list.insert(cpu, me, 1 + i % 7, &mut 0).unwrap();
                    assert!(list.remove(cpu, me, element, &mut 0).unwrap());
                }
                // A number that no process has is no element, and what is not there can't be
                // deleted.
                assert!(list.insert(cpu, me + procs, 1, &mut 0).is_err());
            });
        }
        simulation.run().unwrap();
    }
}

#[test]
fn all_nodes_come_back() {
    leaks_nothing::<Versioned<Sim, Advisory>>();
    leaks_nothing::<Versioned<Sim, ActiveCount<Sim>>>();
    leaks_nothing::<Versioned<Sim, BershadControl<Sim>>>();
    leaks_nothing::<Locked<Sim>>();
    leaks_nothing::<Valois<Sim>>();
}

#[test]
fn the_loop_makes_its_figures() {
    let setup = Run { per_processor: 3, ..Run::new(machine(&[]), 4, Work { ns: 800, spread: 0.2 }, 600) };
    for run in [run::<Versioned<Sim, Advisory>>, run::<Locked<Sim>>, run::<Valois<Sim>>] {
        let measured = run(&setup).unwrap();
        let value = |metric| measured.values.iter().find(|(m, _)| *m == metric).unwrap().1;
        assert!(value(metrics::COMPLETION_CYCLES) > 600.0 * 100.0);
        assert!((0.3..1.0).contains(&value(metrics::HIT_RATE)));
        assert!(value(metrics::NODES_PASSED) > 0.0);
    }
}
