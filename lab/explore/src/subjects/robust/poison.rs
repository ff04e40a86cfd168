//! Robust lock whose data the first owner after a death does not repair.
//!
//! It leaves them so, or hands them on to the next one, which does.

use std::cell::Cell;
use std::rc::Rc;

use towpath_machine::Processor;
use towpath_schedules::harness::Case;
use towpath_schedules::{ExploredMemory, Explorer, Plan, SubjectRun};
use towpath_sync::locks::{Robust, RobustHeld};
use towpath_sync::{Lock, LockError, Policy, Surroundings, Wait};

use super::super::{BUDGET, ExploredMember};

/// Identity of a process that died with the lock before all threads began.
const DEAD: u32 = 99;

/// Its subjects.
///
/// Time goes on for sleepers alone, so that they find out about the dead process.
pub fn all(cases: &mut Vec<Case>, policy: Policy) {
    if policy != Policy::Park {
        return;
    }
    let unrepaired = "one owner is told of a death; it leaves that unrepaired, and none has the lock again";
    let handed_on =
        "one owner is told of a death and hands it on; the next one repairs, and is the last told";
    for (name, about, hands_on) in
        [("lock/robust/unrepaired", unrepaired, false), ("lock/robust/handed-on", handed_on, true)]
    {
        let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
            let lock = Robust::<Explorer, 8>::new(memory);
            let dead = lock.try_lock_as(&memory.at_rest(), DEAD);
            assert!(dead.is_some(), "it is free");
            Ok(Rc::new(PoisonRun { lock, plan: *plan, policy, hands_on, told: Cell::default() }))
        };
        cases.push(Case { naps: true, ..Case::new(name, about, make) });
    }
}

/// Surroundings in which one more process is dead.
struct AfterDeath(ExploredMember);

impl Surroundings for AfterDeath {
    fn identity(&self) -> u32 {
        self.0.identity()
    }
    fn is_alive(&self, identity: u32) -> bool {
        identity != DEAD && self.0.is_alive(identity)
    }
}

struct PoisonRun {
    lock: Robust<Explorer, 8>,
    plan: Plan,
    policy: Policy,
    hands_on: bool,
    /// Number of owners that were told of the death.
    told: Cell<usize>,
}

impl PoisonRun {
    fn lock(&self, cpu: &Explorer, wait: &Wait) {
        match self.lock.lock(cpu, wait) {
            Ok(held) => self.unlock(cpu, wait, held),
            Err(error) => assert_eq!((error, self.hands_on), (LockError::Poisoned, false)),
        }
    }

    fn unlock(&self, cpu: &Explorer, wait: &Wait, mut held: RobustHeld) {
        let told = self.told.get();
        if !Robust::<Explorer, 8>::owner_died(&held) {
            assert!(self.is_repaired(), "not told that the data are half changed");
            return self.lock.unlock(cpu, wait, held);
        }
        // One that dies before it has released leaves the data to the next.
        assert!(told <= usize::from(self.hands_on) + cpu.deaths(), "told though no owner may have it");
        self.told.set(told + 1);
        if self.hands_on && told == 0 {
            return self.lock.hand_on(cpu, wait, held);
        }
        if self.hands_on {
            self.lock.make_consistent(cpu, &mut held);
        }
        self.lock.unlock(cpu, wait, held);
    }

    fn is_repaired(&self) -> bool {
        self.hands_on && self.told.get() > 1
    }
}

impl SubjectRun for PoisonRun {
    fn thread(&self, cpu: &Explorer) {
        let around = AfterDeath(ExploredMember::new(cpu));
        let wait = Wait { policy: self.policy, around: &around, budget: BUDGET };
        for n in 0..self.plan.ops {
            if (cpu.id() + n).is_multiple_of(2) {
                self.lock(cpu, &wait);
            } else if let Some(held) = self.lock.try_lock_as(cpu, around.identity()) {
                assert!(self.is_repaired(), "tried, and not told");
                self.lock.unlock(cpu, &wait, held);
            }
        }
    }
}
