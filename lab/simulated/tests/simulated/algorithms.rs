//! Every lock, queue and barrier of `sync` is right on simulated machines: on a directory
//! with LL/SC and fetch-ops, on a bus, and on a modern many-core, and on a machine without
//! coherence, with few and with many processors, under waiters that spin, that park, and that do
//! both.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use towpath_machine::{Arena, Place, Processor};
use towpath_sim::{Outcome, Parameters, Sim, SimArena, Simulation, machines};
use towpath_structures::for_each_queue;
use towpath_structures::queues::{ConcurrentQueue, QueueError};
use towpath_sync::{Barrier, Lock, Policy, Surroundings, Wait, for_each_barrier, for_each_lock};

const PROCS: [usize; 5] = [1, 2, 3, 8, 64];
const POLICIES: [Policy; 3] = [Policy::Spin, Policy::SpinThenPark, Policy::Park];

/// Identity of a processor, for lock algorithms that ask.
struct Member(u32);

impl Surroundings for Member {
    fn identity(&self) -> u32 {
        self.0
    }
}

/// One run: a machine, so many of its processors, a way of waiting.
struct Run {
    machine: Parameters,
    procs: usize,
    policy: Policy,
}

impl Run {
    /// All of them on a machine, which gets 64 processors if it has fewer.
    fn each(name: &str, mut act: impl FnMut(&Run)) {
        let mut machine = machines::by_name(name).unwrap();
        if machine.processors < 64 {
            machine.set_from_text("processor.count=64").unwrap();
        }
        for procs in PROCS {
            for policy in POLICIES {
                act(&Run { machine: machine.clone(), procs, policy });
            }
        }
    }

    /// Number of rounds of each processor: many on few processors, few on many.
    fn rounds(&self) -> u64 {
        (96 / self.procs as u64).max(3)
    }

    fn describe(&self, algorithm: &str) -> String {
        format!("{algorithm} on {} of {}, {}", self.procs, self.machine.name, self.policy.name())
    }

    /// Runs one body on each processor, sharing the value of `make`, with the way to
    /// wait.
    fn all<T: 'static>(
        &self,
        algorithm: &str,
        make: impl FnOnce(&SimArena) -> T,
        body: impl Fn(&Sim, &T, &Wait<'_>) + Clone + 'static,
    ) -> Outcome {
        let mut simulation = Simulation::new(&self.machine, self.procs, 1);
        let shared = Rc::new(make(&simulation.arena()));
        let (policy, budget) = (self.policy, self.machine.switch / 1000);
        simulation.spawn_all(move |cpu| {
            let around = Member(cpu.id() as u32 + 1);
            body(cpu, &shared, &Wait { policy, around: &around, budget });
        });
        simulation.run().unwrap_or_else(|stuck| panic!("{}: {stuck}", self.describe(algorithm)))
    }
}

fn excludes<L: Lock<Sim> + 'static>(run: &Run) {
    let inside = Rc::new(Cell::new(None));
    let last = Rc::new(Cell::new(0));
    let (rounds, what) = (run.rounds(), run.describe(L::NAME));
    let (within, written, name) = (inside.clone(), last.clone(), what.clone());
    run.all(
        L::NAME,
        |arena| {
            let lock = L::new(arena);
            (lock, arena.cell(Place::NewLine, 0))
        },
        move |cpu, (lock, count), wait| {
            for i in 0..rounds {
                let held = lock.lock(cpu, wait).unwrap_or_else(|e| panic!("{name}: {e}"));
                assert_eq!(within.replace(Some(cpu.id())), None, "{name}: {} comes in, too", cpu.id());
                // Not atomic: only the lock keeps others from doing it in between.
                let value = cpu.read(count);
                cpu.work(50 + 20 * (i % 3));
                cpu.write(count, value + 1);
                written.set(value + 1);
                within.set(None);
                lock.unlock(cpu, wait, held);
                cpu.work(100 * (cpu.id() as u64 % 5));
            }
        },
    );
    assert_eq!((inside.get(), last.get()), (None, rounds * run.procs as u64), "{what}");
}

fn locks(machine: &str) {
    Run::each(machine, |run| {
        for_each_lock!([atomics ll_sc fetch_op scheduling kernel_mutex] Sim, 64 => excludes(run));
    });
}

#[test]
fn locks_on_origin2000() {
    locks("origin2000");
}

#[test]
fn locks_on_enterprise5000() {
    locks("enterprise5000");
}

#[test]
fn locks_on_epyc_milan() {
    locks("epyc-milan");
}

/// Locks on a machine without coherence: their orderings are all that keeps them right.
#[test]
fn locks_on_sx4() {
    locks("sx4");
}

/// Values that the threads took out, and the number of threads that are done.
#[derive(Default)]
struct Taken {
    values: RefCell<Vec<u64>>,
    done: Cell<usize>,
}

fn exchanges<Q: ConcurrentQueue<Sim>>(run: &Run) {
    let (rounds, procs, what) = (run.rounds(), run.procs, run.describe(Q::NAME));
    let taken = Rc::new(Taken::default());
    let (all, name) = (taken.clone(), what.clone());
    run.all(
        Q::NAME,
        |arena| Q::new(arena, procs.max(2), procs),
        move |cpu, queue, wait| {
            let me = cpu.id();
            let mut last = vec![None; procs];
            let mut take = || {
                let value = queue.dequeue(cpu, wait, me).unwrap_or_else(|e| panic!("{name}: {e}"))?;
                let (producer, number) = ((value >> 32) as usize, value & 0xffff_ffff);
                assert!(
                    last[producer] < Some(number),
                    "{name}: {number} of {producer} after {:?}",
                    last[producer]
                );
                last[producer] = Some(number);
                all.values.borrow_mut().push(value);
                Some(value)
            };
            for i in 0..rounds {
                // There is room for few. (And Valois's queue may be full for a moment, while a
                // participant holds on to a node.)
                while let Err(error) = queue.enqueue(cpu, wait, me, (me as u64) << 32 | i) {
                    assert_eq!(error, QueueError::Full, "{name}");
                    take();
                    cpu.delay(1_000);
                }
                // Now and then two in and then two out.
                if i % 3 != 0 || procs > 2 {
                    take();
                }
            }
            all.done.set(all.done.get() + 1);
            if all.done.get() == procs {
                while take().is_some() {}
            }
        },
    );
    let mut values = taken.values.take();
    values.sort_unstable();
    let expected: Vec<u64> = (0..procs as u64).flat_map(|p| (0..rounds).map(move |i| p << 32 | i)).collect();
    assert!(values == expected, "{what}: {} values of {}", values.len(), expected.len());
}

fn queues(machine: &str) {
    Run::each(machine, |run| {
        for_each_queue!([atomics ll_sc fetch_op scheduling] Sim, 64 => exchanges(run));
    });
}

#[test]
fn queues_on_origin2000() {
    queues("origin2000");
}

#[test]
fn queues_on_enterprise5000() {
    queues("enterprise5000");
}

#[test]
fn queues_on_epyc_milan() {
    queues("epyc-milan");
}

#[test]
fn queues_on_sx4() {
    queues("sx4");
}

fn gathers<B: Barrier<Sim> + 'static>(run: &Run) {
    let (procs, what) = (run.procs, run.describe(B::NAME));
    let arrived: Rc<Vec<Cell<u64>>> = Rc::new((0..procs).map(|_| Cell::new(0)).collect());
    let there = arrived.clone();
    run.all(
        B::NAME,
        |arena| B::new(arena, procs),
        move |cpu, barrier, wait| {
            let me = cpu.id();
            for episode in 1..=12 {
                // Each is the last one sometimes, by far.
                cpu.work(if (me as u64 + episode).is_multiple_of(procs as u64) {
                    30_000
                } else {
                    200 * (me as u64 % 7)
                });
                there[me].set(episode);
                barrier.wait(cpu, me, wait).unwrap_or_else(|e| panic!("{what}: {e}"));
                for (other, last) in there.iter().enumerate() {
                    let last = last.get();
                    assert!(last >= episode, "{what}: {me} leaves {episode}, {other} has not come");
                    assert!(last <= episode + 1, "{what}: {other} is in {last}, {me} has not left {episode}");
                }
            }
        },
    );
    assert!(arrived.iter().all(|a| a.get() == 12));
}

#[test]
fn barriers_on_all() {
    for machine in ["origin2000", "enterprise5000", "epyc-milan", "sx4"] {
        Run::each(machine, |run| {
            for_each_barrier!([atomics ll_sc fetch_op] Sim, 64 => gathers(run));
        });
    }
}
