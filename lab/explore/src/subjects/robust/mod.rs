//! Primitives that survive the deaths of their users.

mod asleep;
mod notified;
mod others;
mod poison;
pub(super) mod turns;

use std::rc::Rc;

use towpath_sync::locks::{Posix, Robust};
use towpath_sync::robust::{Access, ReadHeld, ReadersWriter, WriteHeld};
use towpath_sync::{Deadline, Lock, Policy, Surroundings, Wait};

use super::{BUDGET, ExploredMember};
use towpath_schedules::harness::Case;
use towpath_schedules::sharing::{Admission, ExploredSharing, sharing};
use towpath_schedules::{ExploredMemory, Explorer, Plan, SubjectExtras, SubjectRun};

/// All of them.
pub fn all(cases: &mut Vec<Case>, policy: Policy) {
    // Over the system's mutex no sleeper may count on its timeout.
    readers_writer::<Posix<Explorer>, 1_000_000_000_000, 8>(cases, policy, "readers-writer/posix");
    readers_writer::<Posix<Explorer>, 0, 8>(cases, policy, "readers-writer/insisting");
    readers_writer::<Robust<Explorer, 8>, 0, 8>(cases, policy, "readers-writer/robust");
    // Fewer places than readers: a place of the dead is taken over, and one of a process shared.
    readers_writer::<Posix<Explorer>, 1_000_000_000_000, 2>(cases, policy, "readers-writer/two-places");
    readers_writer::<Posix<Explorer>, 0, 1>(cases, policy, "readers-writer/one-place");
    // Writers that die without their last stores.
    readers_writer::<Posix<Explorer>, 0, 8>(cases, policy, "readers-writer/losing");
    cases.last_mut().expect("the one before").extras.loses_stores = true;
    one_process(cases, policy);
    others::all(cases, policy);
    notified::all(cases, policy);
    asleep::all(cases, policy);
    poison::all(cases, policy);
    turns::all(cases, policy);
}

/// Adds the subjects that are wrong on purpose, as a death shows.
pub fn planted(cases: &mut Vec<Case>, policy: Policy) {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let lock = ReadersWriter::<Explorer, 8, Posix<Explorer>>::new(memory);
        Ok(sharing(plan, memory, RwSubject { lock, policy, loses: Some(LosesTheDead::of) }))
    };
    let name = "planted/readers-writer-loses-the-dead";
    cases.push(Case { endures_deaths: true, ..Case::new(name, "wrong on purpose", make) });
    others::planted(cases, policy);
}

/// Takes all for alive, and itself for the process of this identity.
pub(super) struct LosesTheDead(pub u32);

impl Surroundings for LosesTheDead {
    fn identity(&self) -> u32 {
        self.0
    }
}

impl LosesTheDead {
    /// Each thread is a process.
    pub(super) fn of(around: &ExploredMember) -> LosesTheDead {
        LosesTheDead(around.identity())
    }
}

struct RwSubject<L, const PATIENCE: u64, const N: usize> {
    lock: ReadersWriter<Explorer, N, L, PATIENCE>,
    policy: Policy,
    /// Knowledge of threads that know of no death.
    loses: Option<fn(&ExploredMember) -> LosesTheDead>,
}

impl<L: Lock<Explorer>, const PATIENCE: u64, const N: usize> RwSubject<L, PATIENCE, N> {
    fn with_wait<T>(&self, cpu: &Explorer, act: impl FnOnce(&Wait) -> T) -> T {
        let around = ExploredMember::new(cpu);
        let wait = Wait { policy: self.policy, around: &around, budget: BUDGET };
        match self.loses {
            Some(knows) => act(&Wait { around: &knows(&around), ..wait }),
            None => act(&wait),
        }
    }

    fn told(held: WriteHeld<L::Held>) -> Admission<ReadHeld, WriteHeld<L::Held>> {
        let told = ReadersWriter::<Explorer, N, L, PATIENCE>::dead_writer(&held).is_some();
        Admission::Writer(held, told)
    }
}

impl<L: Lock<Explorer> + 'static, const PATIENCE: u64, const N: usize> ExploredSharing
    for RwSubject<L, PATIENCE, N>
{
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

fn readers_writer<L: Lock<Explorer> + 'static, const PATIENCE: u64, const N: usize>(
    cases: &mut Vec<Case>,
    policy: Policy,
    name: &str,
) {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let lock = ReadersWriter::<Explorer, N, L, PATIENCE>::new(memory);
        Ok(sharing(plan, memory, RwSubject { lock, policy, loses: None }))
    };
    let about = "readers or one writer; told of half-changed data; served after a death";
    let naps = super::naps(name);
    cases.push(Case { endures_deaths: true, naps, ..Case::new(name, about, make) });
}

/// Threads of one process, whose readers share the only place.
///
/// Also with sequentially consistent accesses in a free order, and processes with one place so.
fn one_process(cases: &mut Vec<Case>, policy: Policy) {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let lock = ReadersWriter::<Explorer, 1, Posix<Explorer>>::new(memory);
        Ok(sharing(plan, memory, RwSubject { lock, policy, loses: Some(|_| LosesTheDead(1)) }))
    };
    cases.push(Case::new("readers-writer/one-process", "readers or one writer", make));
    let extras = SubjectExtras { has_free_order: true, ..SubjectExtras::default() };
    cases.push(Case { extras, ..Case::new("readers-writer/free-order", "readers or one writer", make) });
    readers_writer::<Posix<Explorer>, 1_000_000_000_000, 1>(
        cases,
        policy,
        "readers-writer/free-order/processes",
    );
    cases.last_mut().expect("the one before").extras = extras;
}
