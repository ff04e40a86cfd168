//! A robust lock whose data no owner repairs after a death.

use std::cell::Cell;
use std::rc::Rc;

use towpath_machine::Processor;
use towpath_schedules::harness::Case;
use towpath_schedules::{ExploredMemory, Explorer, Plan, SubjectRun};
use towpath_sync::locks::Robust;
use towpath_sync::{Lock, LockError, Policy, Surroundings, Wait};

use super::super::{BUDGET, ExploredMember};

/// Identity of a process that died with the lock before all threads began.
const DEAD: u32 = 99;

/// Its subject.
///
/// Time goes on for sleepers alone, so that they find out about the dead process.
pub fn all(cases: &mut Vec<Case>, policy: Policy) {
    if policy != Policy::Park {
        return;
    }
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let lock = Robust::<Explorer, 8>::new(memory);
        let dead = lock.try_lock_as(&memory.at_rest(), DEAD);
        assert!(dead.is_some(), "it is free");
        Ok(Rc::new(PoisonRun { lock, plan: *plan, policy, told: Cell::default() }))
    };
    let name = "lock/robust/unrepaired";
    let about = "one owner is told of a death; it leaves that unrepaired, and none has the lock again";
    cases.push(Case { naps: true, ..Case::new(name, about, make) });
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
    /// Number of owners that were told of the death.
    told: Cell<usize>,
}

impl PoisonRun {
    fn lock(&self, cpu: &Explorer, wait: &Wait) {
        match self.lock.lock(cpu, wait) {
            Ok(held) => {
                assert!(Robust::<Explorer, 8>::owner_died(&held), "not told that the data are half changed");
                // One that dies before it has released leaves the data to the next.
                assert!(self.told.get() <= cpu.deaths(), "told though no owner may have it");
                self.told.set(self.told.get() + 1);
                self.lock.unlock(cpu, wait, held);
            }
            Err(error) => assert_eq!(error, LockError::Poisoned),
        }
    }
}

impl SubjectRun for PoisonRun {
    fn thread(&self, cpu: &Explorer) {
        let around = AfterDeath(ExploredMember::new(cpu));
        let wait = Wait { policy: self.policy, around: &around, budget: BUDGET };
        for n in 0..self.plan.ops {
            if (cpu.id() + n).is_multiple_of(2) {
                self.lock(cpu, &wait);
            } else {
                assert!(self.lock.try_lock_as(cpu, around.identity()).is_none(), "tried, and not told");
            }
        }
    }
}
