//! Ways of waiting of no other subject: pure spinning, and releases of some waiters.

use std::rc::Rc;

use towpath_machine::{Arena, Place, Processor};
use towpath_schedules::harness::Case;
use towpath_schedules::{DatumId, ExploredMemory, Explorer, Plan, SubjectRun, Word};
use towpath_sync::locks::{Mcs, Ticket};
use towpath_sync::{Deadline, Lock, LockError, Policy, Spinning, Wait, Waiting};

use super::{BUDGET, ExploredMember};

/// All of them.
pub fn all(cases: &mut Vec<Case>, policy: Policy) {
    super::lock::<Spun<Mcs<Explorer, 8>>>(cases, policy);
    super::lock::<Spun<Ticket<Explorer>>>(cases, policy);
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let data = (0..plan.ops).map(|_| memory.cell(Place::NewLine, 0)).collect();
        let word = memory.word(Place::NewLine, 0);
        Ok(Rc::new(SomeRun { word, data, plan: *plan, policy }))
    };
    cases.push(Case::new("waits/some", "each waiter learns of what it waits for", make));
}

/// A lock whose waiters spin, whatever the policy is.
struct Spun<L>(L);

impl<L: Lock<Explorer>> Lock<Explorer> for Spun<L> {
    const NAME: &'static str = match L::NAME.as_bytes() {
        b"mcs" => "mcs/spinning",
        _ => "ticket/spinning",
    };
    const FIFO: bool = L::FIFO;
    type Held = L::Held;

    fn new(arena: &impl Arena<Explorer>) -> Self {
        Spun(L::new(arena))
    }
    fn lock<W: Waiting<Explorer>>(&self, cpu: &Explorer, _: &W) -> Result<L::Held, LockError> {
        self.0.lock(cpu, &Spinning)
    }
    fn lock_until<W: Waiting<Explorer>>(
        &self,
        cpu: &Explorer,
        _: &W,
        deadline: Deadline,
    ) -> Result<L::Held, LockError> {
        self.0.lock_until(cpu, &Spinning, deadline)
    }
    fn try_lock(&self, cpu: &Explorer) -> Option<L::Held> {
        self.0.try_lock(cpu)
    }
    fn unlock<W: Waiting<Explorer>>(&self, cpu: &Explorer, _: &W, held: L::Held) {
        self.0.unlock(cpu, &Spinning, held);
    }
}

/// Threads that wait for one datum after another; the first one writes them.
struct SomeRun {
    word: Word,
    data: Vec<DatumId>,
    plan: Plan,
    policy: Policy,
}

impl SubjectRun for SomeRun {
    fn thread(&self, cpu: &Explorer) {
        let around = ExploredMember::new(cpu);
        let wait = Wait { policy: self.policy, around: &around, budget: BUDGET };
        for (n, datum) in (1..).zip(&self.data) {
            if cpu.id() == 0 {
                cpu.write(datum, n);
                wait.release_some(cpu, &self.word, n, self.plan.threads as u32 - 1);
            } else {
                let seen = wait.wait_until(cpu, &self.word, |now| now >= n);
                assert!(seen.is_ok(), "none has died");
                assert_eq!(cpu.read(datum), n);
            }
        }
    }
}
