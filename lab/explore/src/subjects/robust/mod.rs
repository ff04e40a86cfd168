//! Primitives that survive the deaths of their users.

mod others;

use std::rc::Rc;

use towpath_sync::locks::{Posix, Robust};
use towpath_sync::robust::{Access, ReadHeld, ReadersWriter, WriteHeld};
use towpath_sync::{Deadline, Lock, Policy, Surroundings, Wait};

use super::{BUDGET, ExploredMember};
use towpath_schedules::harness::Case;
use towpath_schedules::sharing::{Admission, ExploredSharing, sharing};
use towpath_schedules::{ExploredMemory, Explorer, Plan, SubjectRun};

/// All of them.
pub fn all(cases: &mut Vec<Case>, policy: Policy) {
    // Over the system's mutex no sleeper may count on its timeout.
    readers_writer::<Posix<Explorer>, 1_000_000_000_000>(cases, policy, "readers-writer/posix");
    readers_writer::<Posix<Explorer>, 0>(cases, policy, "readers-writer/insisting");
    readers_writer::<Robust<Explorer, 8>, 0>(cases, policy, "readers-writer/robust");
    others::all(cases, policy);
}

/// Those that are wrong on purpose, as a death shows.
pub fn planted(cases: &mut Vec<Case>, policy: Policy) {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let lock = ReadersWriter::<Explorer, 8, Posix<Explorer>>::new(memory);
        Ok(sharing(plan, memory, RwSubject { lock, policy, loses_the_dead: true }))
    };
    let name = "planted/readers-writer-loses-the-dead";
    cases.push(Case { endures_deaths: true, ..Case::new(name, "wrong on purpose", make) });
    others::planted(cases, policy);
}

/// Takes all for alive.
pub(super) struct LosesTheDead<'a>(pub &'a ExploredMember);

impl Surroundings for LosesTheDead<'_> {
    fn identity(&self) -> u32 {
        self.0.identity()
    }
}

struct RwSubject<L, const PATIENCE: u64> {
    lock: ReadersWriter<Explorer, 8, L, PATIENCE>,
    policy: Policy,
    loses_the_dead: bool,
}

impl<L: Lock<Explorer>, const PATIENCE: u64> RwSubject<L, PATIENCE> {
    fn with_wait<T>(&self, cpu: &Explorer, act: impl FnOnce(&Wait) -> T) -> T {
        let around = ExploredMember::new(cpu);
        let wait = Wait { policy: self.policy, around: &around, budget: BUDGET };
        if self.loses_the_dead {
            return act(&Wait { around: &LosesTheDead(&around), ..wait });
        }
        act(&wait)
    }

    fn told(held: WriteHeld<L::Held>) -> Admission<ReadHeld, WriteHeld<L::Held>> {
        let told = ReadersWriter::<Explorer, 8, L, PATIENCE>::dead_writer(&held).is_some();
        Admission::Writer(held, told)
    }
}

impl<L: Lock<Explorer> + 'static, const PATIENCE: u64> ExploredSharing for RwSubject<L, PATIENCE> {
    type Reader = ReadHeld;
    type Writer = WriteHeld<L::Held>;

    fn read(&self, cpu: &Explorer) -> Admission<ReadHeld, WriteHeld<L::Held>> {
        match self.with_wait(cpu, |wait| self.lock.read(cpu, wait, Deadline::NEVER)) {
            Ok(Access::Shared(held)) => Admission::Reader(held),
            Ok(Access::Exclusive(held)) => Self::told(held),
            Err(error) => panic!("read: {error}"),
        }
    }
    fn write(&self, cpu: &Explorer, tries: bool) -> Option<Admission<ReadHeld, WriteHeld<L::Held>>> {
        let deadline = if tries { Deadline::PAST } else { Deadline::NEVER };
        self.with_wait(cpu, |wait| self.lock.write(cpu, wait, deadline)).ok().map(Self::told)
    }
    fn leave(&self, cpu: &Explorer, reader: ReadHeld) {
        self.with_wait(cpu, |wait| self.lock.read_unlock(cpu, wait, reader));
    }
    fn finish(&self, cpu: &Explorer, mut writer: WriteHeld<L::Held>, repaired: bool) {
        if repaired {
            self.lock.make_consistent(&mut writer);
        }
        self.with_wait(cpu, |wait| self.lock.write_unlock(cpu, wait, writer));
    }
}

fn readers_writer<L: Lock<Explorer> + 'static, const PATIENCE: u64>(
    cases: &mut Vec<Case>,
    policy: Policy,
    name: &str,
) {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let lock = ReadersWriter::<Explorer, 8, L, PATIENCE>::new(memory);
        Ok(sharing(plan, memory, RwSubject { lock, policy, loses_the_dead: false }))
    };
    let about = "readers or one writer; told of half-changed data; served after a death";
    let naps = super::naps(name);
    cases.push(Case { endures_deaths: true, naps, ..Case::new(name, about, make) });
}
