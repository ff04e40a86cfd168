//! Order of locks on every machine: that of arrival where it is promised.
//!
//! The default lock serves its waiters alike.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use towpath_machine::{Arena, KernelMutex, LockOutcome, Ordering, Place, Processor};
use towpath_sim::{Parameters, Sim, SimMutex, Simulation, machines};
use towpath_sync::locks::Robust;
use towpath_sync::{Lock, Policy, Spinning, Surroundings, Wait, for_each_lock};

use crate::support::machine;

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

/// Threads in the order in which they get the mutex: the first one asks again as soon as
/// it has released it, while the second one sleeps.
fn owners(handover: &str) -> Vec<usize> {
    let p = machine("enterprise5000", &[&format!("os.mutex_handover={handover}")]);
    let mut s = Simulation::new(&p, 2, 1);
    let mutex: Rc<SimMutex> = Rc::default();
    let order: Rc<RefCell<Vec<usize>>> = Rc::default();
    for me in 0..2 {
        let (mutex, order) = (Rc::clone(&mutex), Rc::clone(&order));
        s.spawn(me, me, move |cpu| {
            cpu.work(10_000 * me as u64);
            for _ in me..2 {
                assert_eq!(cpu.mutex_lock(&mutex), LockOutcome::Acquired);
                assert_eq!(cpu.mutex_try_lock(&mutex), LockOutcome::Busy);
                order.borrow_mut().push(me);
                cpu.work(50_000);
                cpu.mutex_unlock(&mutex);
            }
        });
    }
    s.run().unwrap();
    order.take()
}

#[test]
fn a_mutex_is_handed_to_its_sleeper_where_the_system_does_so() {
    assert_eq!(owners("yes"), [0, 1, 0]);
    assert_eq!(owners("no"), [0, 0, 1]);
}

#[test]
fn fetch_add_by_exchange_counts_and_fails_under_contention() {
    let failed = |how: &str| {
        let p = machine("enterprise5000", &[&format!("processor.fetch_add={how}")]);
        let mut s = Simulation::new(&p, 4, 1);
        let word = s.arena().word(Place::NewLine, 0);
        let drawn: Rc<RefCell<Vec<u64>>> = Rc::default();
        for me in 0..4 {
            let drawn = Rc::clone(&drawn);
            s.spawn(me, me, move |cpu| {
                for _ in 0..100 {
                    let number = cpu.fetch_add(&word, 1, Ordering::Relaxed);
                    drawn.borrow_mut().push(number);
                }
            });
        }
        let outcome = s.run().unwrap();
        let mut drawn = drawn.take();
        drawn.sort_unstable();
        assert_eq!(drawn, (0..400).collect::<Vec<_>>());
        outcome.counters.failed_exchanges
    };
    assert_eq!(failed("native"), 0);
    assert!(failed("exchange") > 0);
}

/// Threads that share two processors.
struct Oversubscribed;

impl Surroundings for Oversubscribed {
    fn oversubscribed(&self) -> bool {
        true
    }
}

#[test]
fn robust_serves_every_waiter() {
    // Threads that do nothing but hold the lock, eight on each processor.
    let p = machine("epyc-milan", &["os.quantum=3ms", "os.switch=2us"]);
    let mut s = Simulation::new(&p, 2, 1);
    let lock = Rc::new(Robust::<Sim, 16>::new(&s.arena()));
    let counts: Rc<[Cell<u64>; 16]> = Rc::default();
    for (me, wait) in
        (0..16).map(|me| (me, Wait { policy: Policy::Adaptive, around: &Oversubscribed, budget: 2_000 }))
    {
        let (lock, counts) = (Rc::clone(&lock), Rc::clone(&counts));
        s.spawn(me % 2, me, move |cpu| {
            while cpu.now() < 200_000_000 {
                let held = lock.lock(cpu, &wait).unwrap();
                cpu.work(2_000);
                counts[me].set(counts[me].get() + 1);
                lock.unlock(cpu, &wait, held);
            }
        });
    }
    s.run().unwrap();
    let counts = counts.each_ref().map(Cell::get);
    let (least, all) = (counts.iter().min().unwrap(), counts.iter().sum::<u64>());
    assert!(least * 4 * 16 >= all, "{counts:?}");
}
