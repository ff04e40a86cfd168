//! Locks that promise it are granted in the order of arrival, on every machine.

use std::cell::RefCell;
use std::rc::Rc;

use towpath_machine::Processor;
use towpath_sim::{Parameters, Sim, Simulation, machines};
use towpath_sync::{Lock, Spinning, for_each_lock};

fn in_order<L: Lock<Sim> + 'static>(p: &Parameters, seed: u64) {
    if !L::FIFO {
        return;
    }
    let processors = 8;
    let mut s = Simulation::new(p, processors, seed);
    let lock = Rc::new(L::new(&s.arena()));
    let granted = Rc::new(RefCell::new(Vec::new()));
    // A permutation that follows from the seed: 3 and 8 have no common factor, nor have 5 and 8.
    let arrival = move |i: usize| (i * [3, 5, 7][seed as usize % 3] + seed as usize) % processors;
    for turn in 0..processors {
        let (lock, granted) = (Rc::clone(&lock), Rc::clone(&granted));
        let i = arrival(turn);
        s.spawn(i, i, move |cpu| {
            // Far enough from each other for any access; the first one holds the lock until all are
            // there.
            cpu.work(20_000 * (turn as u64 + 1));
            let held = lock.lock(cpu, &Spinning).unwrap();
            granted.borrow_mut().push(i);
            cpu.work(if turn == 0 { 400_000 } else { 100 });
            lock.unlock(cpu, &Spinning, held);
        });
    }
    s.run().unwrap_or_else(|e| panic!("{} on {}: {e}", L::NAME, p.name));
    let expected: Vec<usize> = (0..processors).map(arrival).collect();
    assert_eq!(*granted.borrow(), expected, "{} on {}", L::NAME, p.name);
}

#[test]
fn fifo_locks_are_granted_in_the_order_of_arrival() {
    for name in machines::names() {
        let p = machines::by_name(name).unwrap();
        for seed in 0..3 {
            for_each_lock!([atomics ll_sc fetch_op published kernel_mutex] Sim, 8 => in_order(&p, seed));
        }
    }
}

#[test]
fn a_run_is_the_same_beside_others_on_other_threads() {
    let run = |name: &str| {
        let p = machines::by_name(name).unwrap();
        let mut s = Simulation::new(&p, 8, 7);
        let lock = Rc::new(towpath_sync::locks::Mcs::<Sim, 8>::new(&s.arena()));
        for i in 0..8 {
            let lock = Rc::clone(&lock);
            s.spawn(i, i, move |cpu| {
                for _ in 0..50 {
                    let held = lock.lock(cpu, &Spinning).unwrap();
                    cpu.work(100);
                    lock.unlock(cpu, &Spinning, held);
                    let ns = cpu.random().below(2_000);
                    cpu.work(ns);
                }
            });
        }
        let outcome = s.run().unwrap();
        (outcome.trace, outcome.time, outcome.events, outcome.counters)
    };
    let names: Vec<&str> = machines::names().collect();
    let here: Vec<_> = names.iter().map(|name| run(name)).collect();
    let there: Vec<_> = std::thread::scope(|scope| {
        let all: Vec<_> = names.iter().map(|name| scope.spawn(|| [run(name), run(name)])).collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    });
    for (a, [b, c]) in here.iter().zip(&there) {
        assert!(a == b && a == c);
    }
}
