//! Waiters of lock `robust` whose time ends while another one has the lock.
//!
//! `timed`: thread 0 hands the lock to thread 1, which comes once more while thread 2 has it, and
//! gives up. `shared-turn`: thread 1 dies in the only place for waiters; thread 0, which has the
//! lock, acts for a waiter that shares the place and gives up, and for one that comes later.

use std::rc::Rc;

use towpath_machine::{Arena, Ordering, Place, Processor};
use towpath_schedules::harness::Case;
use towpath_schedules::{ExploredMemory, Explorer, Plan, SubjectRun, Word};
use towpath_sync::locks::{Robust, RobustHeld};
use towpath_sync::{Deadline, Lock, LockError, Policy, Surroundings, Wait};

use super::super::{BUDGET, ExploredMember, PAUSE};

/// Identity of the waiter for which thread 0 acts.
const OTHER: u32 = 60;
/// Times for which waiters wait, in nanoseconds. For sleepers alone time goes on.
const SHORT: u64 = 500;
const LONG: u64 = 100_000;
/// Number of pauses in which thread 1 may die.
const LOOKS: usize = 20;

pub(super) fn all(cases: &mut Vec<Case>, policy: Policy) {
    let about = "a waiter gives up at its deadline, also when it was handed the lock before";
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        if plan.threads < 3 {
            return Err("is for three threads".into());
        }
        let stages = [0, 1].map(|_| memory.word(Place::NewLine, 0));
        Ok(Rc::new(TimedWaiter { lock: Lock::new(memory), stages, policy }))
    };
    cases.push(Case { naps: true, ..Case::new("lock/robust/timed", about, make) });
    let about = "no lock is handed to a waiter that was found dead";
    let make = move |_: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let stage = memory.word(Place::NewLine, 0);
        Ok(Rc::new(SharedTurnRun { lock: Lock::new(memory), stage, policy }))
    };
    let case = Case::new("lock/robust/shared-turn", about, make);
    cases.push(Case { endures_deaths: true, naps: true, ..case });
}

/// Stores 1, which says how far a thread is.
pub(in super::super) fn reach(cpu: &Explorer, stage: &Word) {
    // Relaxed: the lock is what orders.
    cpu.store(stage, 1, Ordering::Relaxed);
}

/// Waits for a stage that a thread reaches. `false`: it is dead.
pub(in super::super) fn await_stage(cpu: &Explorer, stage: &Word, thread: usize) -> bool {
    // (T1) Acquire: what a sleeper did before; pairs with the Release (T2). Else as in `reach`.
    while cpu.load(stage, Ordering::Acquire) == 0 {
        if cpu.is_dead(thread) {
            return false;
        }
        cpu.delay(PAUSE);
    }
    true
}

/// The state of an owner that finds the data in order, also after a death.
pub(super) fn entered<const N: usize, const LEASE: u64>(
    lock: &Robust<Explorer, N, LEASE>,
    cpu: &Explorer,
    held: Result<RobustHeld, LockError>,
) -> RobustHeld {
    let mut held = held.unwrap_or_else(|error| panic!("{error}"));
    if <Robust<Explorer, N, LEASE> as Lock<Explorer>>::owner_died(&held) {
        lock.make_consistent(cpu, &mut held);
    }
    held
}

struct TimedWaiter {
    lock: Robust<Explorer, 8, 0>,
    /// Thread 1 has had the lock, and has given up.
    stages: [Word; 2],
    policy: Policy,
}

impl SubjectRun for TimedWaiter {
    fn thread(&self, cpu: &Explorer) {
        let (lock, around) = (&self.lock, ExploredMember::new(cpu));
        let wait = Wait { policy: self.policy, around: &around, budget: BUDGET };
        let [had, gave_up] = &self.stages;
        match cpu.id() {
            0 => {
                let held = entered(lock, cpu, lock.lock(cpu, &wait));
                lock.unlock(cpu, &wait, held);
            }
            1 => {
                let held = entered(lock, cpu, lock.lock(cpu, &wait));
                lock.unlock(cpu, &wait, held);
                reach(cpu, had);
                let time =
                    if matches!(self.policy, Policy::Spin | Policy::SpinThenYield) { SHORT } else { LONG };
                let held = lock.lock_until(cpu, &wait, Deadline::after(cpu, time));
                reach(cpu, gave_up);
                if !matches!(held, Err(LockError::TimedOut)) {
                    lock.unlock(cpu, &wait, entered(lock, cpu, held));
                }
            }
            2 => {
                await_stage(cpu, had, 1);
                let held = entered(lock, cpu, lock.lock(cpu, &wait));
                await_stage(cpu, gave_up, 1);
                lock.unlock(cpu, &wait, held);
            }
            _ => {}
        }
    }
}

struct SharedTurnRun {
    lock: Robust<Explorer, 1, 0>,
    /// Thread 0 has the lock.
    stage: Word,
    policy: Policy,
}

/// The surroundings of a thread that acts for another participant.
struct OtherMember<'a>(&'a ExploredMember);

impl Surroundings for OtherMember<'_> {
    fn identity(&self) -> u32 {
        OTHER
    }
    fn is_alive(&self, identity: u32) -> bool {
        self.0.is_alive(identity)
    }
}

impl SubjectRun for SharedTurnRun {
    fn thread(&self, cpu: &Explorer) {
        let (lock, around) = (&self.lock, ExploredMember::new(cpu));
        let wait = Wait { policy: self.policy, around: &around, budget: BUDGET };
        if cpu.id() > 1 {
            return;
        }
        if cpu.id() == 1 && !await_stage(cpu, &self.stage, 0) {
            return;
        }
        let held = entered(lock, cpu, lock.lock(cpu, &wait));
        reach(cpu, &self.stage);
        if cpu.id() == 1 {
            return lock.unlock(cpu, &wait, held);
        }
        for _ in (0..LOOKS).take_while(|_| !cpu.is_dead(1)) {
            cpu.delay(PAUSE);
        }
        let is_dead = cpu.is_dead(1);
        let other = OtherMember(&around);
        let of_other = Wait { around: &other, ..wait };
        if is_dead {
            let ended = lock.lock_until(cpu, &of_other, Deadline::after(cpu, LONG));
            assert_eq!(ended.map(drop), Err(LockError::TimedOut), "it is held");
        }
        lock.unlock(cpu, &wait, held);
        if is_dead {
            let held = lock.try_lock_as(cpu, OTHER).expect("no living one has it or waits");
            lock.unlock(cpu, &of_other, held);
        }
    }
}
