//! Every lock under the model checker: two or three threads, one or two acquisitions
//! each. `posix` is excepted: its algorithm is libc's.

use loom::sync::Arc;
use loom::thread;

use towpath_machine::{Arena, LoomArena, LoomProcessor, Place, Processor};
use towpath_sync::locks::{
    Anderson, Clh, Compact, HybridQueue, Mcs, ModeWord, Preemption, Published, Reactive, Robust,
    SchedulerConscious, TestAndSet, TestAndTestAndSet, Ticket, TicketTwoLines,
};
use towpath_sync::{Abandoned, Alone, AtMemory, LoadLinked, Lock, Policy, Spinning, Wait, Waiting};
use towpath_testkit::{model, preemptions};

/// Bounds of a lock that threads of a model share.
trait SharedByModel: Lock<LoomProcessor> + Send + Sync + 'static {}

impl<L: Lock<LoomProcessor> + Send + Sync + 'static> SharedByModel for L {}

/// Bounds of a way of waiting that threads of a model copy.
trait CopiedByModel: Waiting<LoomProcessor> + Copy + Send + Sync + 'static {}

impl<W: Waiting<LoomProcessor> + Copy + Send + Sync + 'static> CopiedByModel for W {}

/// The datum is not atomic: loom fails the model if two threads can touch it at once, or
/// one doesn't see what the other did.
fn check<L: SharedByModel, W: CopiedByModel>(threads: usize, rounds: u64, arena: LoomArena, wait: W) {
    check_with::<L, W>(2, threads, rounds, arena, wait);
}

/// Checks as `check`, with so many preemptions.
fn check_with<L: SharedByModel, W: CopiedByModel>(
    preemptions: usize,
    threads: usize,
    rounds: u64,
    arena: LoomArena,
    wait: W,
) {
    model(preemptions, move || {
        let shared = Arc::new((L::new(&arena), arena.cell(Place::NewLine, 0)));
        let work = move |id: usize, shared: &(L, <LoomProcessor as Processor>::Cell)| {
            let cpu = LoomProcessor { id };
            for _ in 0..rounds {
                let held = shared.0.lock(&cpu, &wait).expect("no thread dies here");
                let value = cpu.read(&shared.1);
                cpu.write(&shared.1, value + 1);
                shared.0.unlock(&cpu, &wait, held);
            }
        };
        let others: Vec<_> = (1..threads)
            .map(|id| {
                let shared = shared.clone();
                thread::spawn(move || work(id, &shared))
            })
            .collect();
        work(0, &shared);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(LoomProcessor { id: 0 }.read(&shared.1), threads as u64 * rounds);
    });
}

/// Lets the others run, wherever waiting has no word to wait for or ends by itself after
/// a while: loom knows no time.
#[derive(Clone, Copy)]
struct Yielding;

impl Waiting<LoomProcessor> for Yielding {
    fn parks(&self) -> bool {
        false
    }
    fn wait_until(
        &self,
        cpu: &LoomProcessor,
        word: &<LoomProcessor as Processor>::Word,
        done: impl FnMut(u64) -> bool,
    ) -> Result<u64, Abandoned> {
        Spinning.wait_until(cpu, word, done)
    }
    fn back_off(&self, _cpu: &LoomProcessor, _round: u32) -> Result<(), Abandoned> {
        thread::yield_now();
        Ok(())
    }
    fn attempts_before_queueing(&self, _cpu: &LoomProcessor) -> u32 {
        0
    }
    fn wait_turn(
        &self,
        _cpu: &LoomProcessor,
        _word: &<LoomProcessor as Processor>::Word,
        _seen: u64,
        _round: u32,
        _turn: u64,
    ) {
        thread::yield_now();
    }
    fn release(&self, cpu: &LoomProcessor, word: &<LoomProcessor as Processor>::Word, value: u64) {
        Spinning.release(cpu, word, value);
    }
    fn release_some(
        &self,
        cpu: &LoomProcessor,
        word: &<LoomProcessor as Processor>::Word,
        value: u64,
        _: u32,
    ) {
        Spinning.release(cpu, word, value);
    }
}

/// A lost wake-up is a deadlock that loom reports: its park never times out.
fn parking() -> (LoomArena, Wait<'static>) {
    (LoomArena { parking: true }, Wait { policy: Policy::Park, around: &Alone, budget: 0 })
}

fn all<L: SharedByModel>() {
    check::<L, _>(2, 2, LoomArena::default(), Spinning);
    let (arena, wait) = parking();
    check::<L, _>(2, 1, arena, wait);
}

/// Exclusion without waiting. For `test_and_set` it must do: loom 0.7 lets an exchange
/// read a value that was overwritten already, so an exchange that fails can undo a release in the
/// model (not in C11, where an exchange reads the last value), and waiting for the lock never ends.
/// For the same reason a store-conditional after an old value can succeed there, so
/// `test_and_set/ll-sc` is left to the sequential machine (`core/models/tests/sequential`).
fn attempt<L: SharedByModel>() {
    model(preemptions(2, 3), || {
        let arena = LoomArena::default();
        let shared = Arc::new((L::new(&arena), arena.cell(Place::NewLine, 0)));
        let work = |id: usize, shared: &(L, <LoomProcessor as Processor>::Cell)| {
            let cpu = LoomProcessor { id };
            let mut successes = 0;
            for _ in 0..2 {
                if let Some(held) = shared.0.try_lock(&cpu) {
                    let value = cpu.read(&shared.1);
                    cpu.write(&shared.1, value + 1);
                    shared.0.unlock(&cpu, &Spinning, held);
                    successes += 1;
                }
            }
            successes
        };
        let others: Vec<_> = (1..3)
            .map(|id| {
                let shared = shared.clone();
                thread::spawn(move || work(id, &shared))
            })
            .collect();
        let sum = work(0, &shared) + others.into_iter().map(|t| t.join().unwrap()).sum::<u64>();
        let cpu = LoomProcessor { id: 0 };
        assert!(sum > 0);
        assert_eq!(cpu.read(&shared.1), sum);
    });
}

#[test]
fn test_and_set() {
    attempt::<TestAndSet<LoomProcessor>>();
    attempt::<TestAndSet<LoomProcessor, AtMemory>>();
}

#[test]
fn test_and_test_and_set() {
    attempt::<TestAndTestAndSet<LoomProcessor>>();
    let (arena, wait) = parking();
    check::<TestAndTestAndSet<LoomProcessor>, _>(2, 2, arena, wait);
    check::<TestAndTestAndSet<LoomProcessor>, _>(3, 1, arena, wait);
}

#[test]
fn ticket() {
    all::<Ticket<LoomProcessor>>();
    all::<TicketTwoLines<LoomProcessor>>();
    let (arena, wait) = parking();
    check::<Ticket<LoomProcessor>, _>(3, 1, arena, wait);
}

#[test]
fn ticket_by_other_primitives() {
    all::<Ticket<LoomProcessor, LoadLinked>>();
    all::<Ticket<LoomProcessor, AtMemory>>();
}

#[test]
fn anderson() {
    all::<Anderson<LoomProcessor, 2>>();
    all::<Anderson<LoomProcessor, 2, LoadLinked>>();
    all::<Anderson<LoomProcessor, 2, AtMemory>>();
}

#[test]
fn hybrid_queue() {
    all::<HybridQueue<LoomProcessor, 2>>();
    let (arena, wait) = parking();
    check::<HybridQueue<LoomProcessor, 3>, _>(3, 1, arena, wait);
}

#[test]
#[ignore = "ten seconds"]
fn clh() {
    attempt::<Clh<LoomProcessor, 3>>();
    all::<Clh<LoomProcessor, 2>>();
    all::<Clh<LoomProcessor, 2, LoadLinked>>();
    let (arena, wait) = parking();
    check::<Clh<LoomProcessor, 3>, _>(3, 1, arena, wait);
}

#[test]
fn mcs() {
    all::<Mcs<LoomProcessor, 2>>();
    all::<Mcs<LoomProcessor, 2, LoadLinked>>();
}

/// Claims that those with these numbers (one bit each) are preempted, though they run: a
/// waiter comes back at any moment of being skipped.
#[derive(Debug)]
struct Claimed<const PREEMPTED: usize>;

impl<const PREEMPTED: usize> Preemption<LoomProcessor> for Claimed<PREEMPTED> {
    const NAME: &'static str = "scheduler-conscious/claimed";
    fn publish(_cpu: &LoomProcessor, _stamp: &<LoomProcessor as Processor>::Word) {}
    fn is_preempted(_cpu: &LoomProcessor, id: usize, _stamp: &<LoomProcessor as Processor>::Word) -> bool {
        PREEMPTED & 1 << id != 0
    }
}

#[test]
fn scheduler_conscious() {
    all::<SchedulerConscious<LoomProcessor, 2, Published>>();
    all::<SchedulerConscious<LoomProcessor, 2, Claimed<0b11>>>();
    let (arena, wait) = parking();
    check::<SchedulerConscious<LoomProcessor, 3, Claimed<0b000>>, _>(3, 1, arena, wait);
}

#[test]
fn scheduler_conscious_skips_one() {
    let (arena, wait) = parking();
    check::<SchedulerConscious<LoomProcessor, 3, Claimed<0b010>>, _>(3, 1, arena, wait);
}

#[test]
fn scheduler_conscious_skips_all() {
    let (arena, wait) = parking();
    check::<SchedulerConscious<LoomProcessor, 3, Claimed<0b111>>, _>(3, 1, arena, wait);
}

#[test]
fn reactive() {
    all::<Reactive<LoomProcessor, 2>>();
    attempt::<Reactive<LoomProcessor, 3>>();
}

#[test]
fn reactive_changing_over_all_the_time() {
    all::<Reactive<LoomProcessor, 2, 0, 0>>();
    attempt::<Reactive<LoomProcessor, 3, 0, 0>>();
    // With a mode word, which may be out of date.
    all::<Reactive<LoomProcessor, 2, 0, 0, ModeWord<LoomProcessor>>>();
}

/// One is about to queue while the other changes over to the flag and back to the queue:
/// it must wait for the mistaken one to send it away.
#[test]
fn reactive_entering_the_queue_behind_a_mistaken_one() {
    model(3, || {
        let arena = LoomArena::default();
        let shared = Arc::new((Reactive::<_, 2, 0, 0>::new(&arena), arena.cell(Place::NewLine, 0)));
        let work = |id: usize, shared: &(Reactive<_, 2, 0, 0>, <LoomProcessor as Processor>::Cell)| {
            let cpu = LoomProcessor { id };
            let held = shared.0.lock(&cpu, &Spinning).expect("no thread dies here");
            cpu.write(&shared.1, cpu.read(&shared.1) + 1);
            shared.0.unlock(&cpu, &Spinning, held);
        };
        work(0, &shared);
        assert!(shared.0.queues(&LoomProcessor { id: 0 }));
        let other = {
            let shared = shared.clone();
            thread::spawn(move || work(1, &shared))
        };
        work(0, &shared);
        work(0, &shared);
        other.join().unwrap();
        assert_eq!(LoomProcessor { id: 0 }.read(&shared.1), 4);
    });
}

#[test]
#[ignore = "ten seconds"]
fn reactive_changing_over_among_three() {
    let (arena, wait) = parking();
    check::<Reactive<LoomProcessor, 3, 0, 0>, _>(3, 1, arena, wait);
}

#[test]
fn reactive_going_to_the_queue() {
    let (arena, wait) = parking();
    check_with::<Reactive<LoomProcessor, 3, 1, 0>, _>(preemptions(1, 2), 3, 1, arena, wait);
}

#[test]
fn compact() {
    all::<Compact<LoomProcessor>>();
    all::<Compact<LoomProcessor, 0>>();
}

#[test]
fn robust() {
    check::<Robust<LoomProcessor, 2>, _>(2, 1, LoomArena::default(), Yielding);
}
