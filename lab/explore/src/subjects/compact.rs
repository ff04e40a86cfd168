//! Compact locks of many readers or one writer.

use std::rc::Rc;

use towpath_sync::{CompactRwLock, Deadline, Policy, Wait};

use super::{BUDGET, ExploredMember};
use crate::harness::Case;
use crate::sharing::{Admission, ExploredSharing, sharing};
use crate::{ExploredMemory, Explorer, Plan, SubjectRun};

/// All of them.
pub fn all(cases: &mut Vec<Case>, policy: Policy) {
    for (name, insists) in [("readers-writer/compact", false), ("readers-writer/compact/insisting", true)] {
        let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
            Ok(sharing(plan, memory, CompactSubject { lock: CompactRwLock::new(memory), policy, insists }))
        };
        cases.push(Case::new(name, "readers or one writer", make));
    }
}

struct CompactSubject {
    lock: CompactRwLock<Explorer>,
    policy: Policy,
    /// True if writers keep new readers out.
    insists: bool,
}

impl CompactSubject {
    fn with_wait<T>(&self, cpu: &Explorer, act: impl FnOnce(&Wait) -> T) -> T {
        let around = ExploredMember::new(cpu);
        act(&Wait { policy: self.policy, around: &around, budget: BUDGET })
    }
}

impl ExploredSharing for CompactSubject {
    type Reader = ();
    type Writer = ();

    fn read(&self, cpu: &Explorer) -> Admission<(), ()> {
        match self.with_wait(cpu, |wait| self.lock.read(cpu, wait, Deadline::NEVER)) {
            Ok(()) => Admission::Reader(()),
            Err(error) => panic!("read: {error}"),
        }
    }
    fn write(&self, cpu: &Explorer, tries: bool) -> Option<Admission<(), ()>> {
        let deadline = if tries { Deadline::PAST } else { Deadline::NEVER };
        let write = |wait: &Wait| self.lock.write(cpu, wait, deadline, self.insists);
        self.with_wait(cpu, write).ok().map(|()| Admission::Writer((), false))
    }
    fn leave(&self, cpu: &Explorer, (): ()) {
        self.with_wait(cpu, |wait| self.lock.read_unlock(cpu, wait));
    }
    fn finish(&self, cpu: &Explorer, (): (), _repaired: bool) {
        self.with_wait(cpu, |wait| self.lock.write_unlock(cpu, wait));
    }
}
