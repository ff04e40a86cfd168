//! Compact locks of many readers or one writer, the compact semaphore as a lock, and the
//! compact barrier; and the end of its memory, and of a condition's.

use std::rc::Rc;

use towpath_machine::{Arena, Ordering, Place, Processor};
use towpath_sync::{
    Barrier, BarrierError, CompactBarrier, CompactCondition, CompactRwLock, CompactSemaphore, Deadline, Lock,
    LockError, Policy, Wait, Waiting,
};

use super::spinning::SpinningWait;
use super::{BUDGET, ExploredMember, PAUSE};
use towpath_schedules::harness::Case;
use towpath_schedules::sharing::{Admission, ExploredSharing, sharing};
use towpath_schedules::{DatumId, ExploredMemory, Explorer, Plan, SubjectRun, Word};

/// All of them.
pub fn all(cases: &mut Vec<Case>, policy: Policy) {
    for (name, insists) in [("readers-writer/compact", false), ("readers-writer/compact/insisting", true)] {
        let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
            Ok(sharing(plan, memory, CompactSubject { lock: CompactRwLock::new(memory), policy, insists }))
        };
        cases.push(Case::new(name, "readers or one writer", make));
    }
    super::lock::<OneUnit>(cases, policy);
    super::barrier::<CountedBarrier>(cases, policy);
    for (name, is_barrier) in [("barrier/compact-freed", true), ("waits/condition-freed", false)] {
        let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
            Ok(Rc::new(FreedRun::new(plan, memory, is_barrier)))
        };
        cases.push(Case::new(name, "its memory is freed after the last look at it", make));
    }
}

/// Memory of a barrier or of a condition, which the first thread frees when it is left.
struct FreedRun {
    barrier: CompactBarrier<Explorer>,
    condition: CompactCondition<Explorer>,
    /// Read with the last look at the memory, and written when it is freed.
    memory: DatumId,
    /// Number of threads that have begun to wait, in place of the waiters' lock.
    begun: Word,
    is_barrier: bool,
    plan: Plan,
}

impl FreedRun {
    fn new(plan: &Plan, memory: &ExploredMemory, is_barrier: bool) -> FreedRun {
        FreedRun {
            barrier: CompactBarrier::new(memory),
            condition: CompactCondition::new(memory),
            memory: memory.cell(Place::NewLine, 0),
            begun: memory.word(Place::NewLine, 0),
            is_barrier,
            plan: *plan,
        }
    }

    /// Waits, or only begins and ends a wait for the condition.
    fn look(&self, cpu: &Explorer) {
        if self.is_barrier {
            // It ends with a look at the memory of its object.
            let last = |cpu: &Explorer| _ = cpu.read(&self.memory);
            let wait = SpinningWait { last, between: |_: &Explorer| {} };
            let last = self.barrier.wait(cpu, &wait, self.plan.threads as u32);
            last.unwrap_or_else(|error| panic!("wait: {error:?}"));
        } else {
            self.condition.begin(cpu);
            // (1) Release: the thread that frees sees the wait; pairs with (2) in `is_left`.
            cpu.fetch_add(&self.begun, 1, Ordering::Release);
            cpu.read(&self.memory);
            self.condition.end(cpu);
        }
    }

    fn is_left(&self, cpu: &Explorer) -> bool {
        if self.is_barrier {
            return self.barrier.is_left(cpu);
        }
        // (2) Acquire: pairs with (1) in `look`.
        cpu.load(&self.begun, Ordering::Acquire) == self.plan.threads as u64
            && !self.condition.has_waiters(cpu)
    }
}

impl SubjectRun for FreedRun {
    fn thread(&self, cpu: &Explorer) {
        self.look(cpu);
        if cpu.id() == 0 {
            while !self.is_left(cpu) {
                cpu.delay(PAUSE);
            }
            cpu.write(&self.memory, 1);
        }
    }
}

/// The semaphore with one unit, for a lock.
struct OneUnit(CompactSemaphore<Explorer>);

impl Lock<Explorer> for OneUnit {
    const NAME: &'static str = "semaphore/compact";
    const FIFO: bool = false;
    type Held = ();

    fn new(arena: &impl Arena<Explorer>) -> Self {
        OneUnit(CompactSemaphore::new(arena, 1))
    }
    fn lock<W: Waiting<Explorer>>(&self, cpu: &Explorer, wait: &W) -> Result<(), LockError> {
        self.lock_until(cpu, wait, Deadline::NEVER)
    }
    fn lock_until<W: Waiting<Explorer>>(
        &self,
        cpu: &Explorer,
        wait: &W,
        deadline: Deadline,
    ) -> Result<(), LockError> {
        Ok(self.0.acquire(cpu, wait, deadline)?)
    }
    fn try_lock(&self, cpu: &Explorer) -> Option<()> {
        self.0.takes(cpu).then_some(())
    }
    fn unlock<W: Waiting<Explorer>>(&self, cpu: &Explorer, wait: &W, (): ()) {
        assert!(self.0.post(cpu, wait), "one unit");
    }
}

/// The barrier, with the number of its participants.
struct CountedBarrier {
    barrier: CompactBarrier<Explorer>,
    participants: u32,
}

impl Barrier<Explorer> for CountedBarrier {
    const NAME: &'static str = "compact";

    fn new(arena: &impl Arena<Explorer>, participants: usize) -> Self {
        CountedBarrier { barrier: CompactBarrier::new(arena), participants: participants as u32 }
    }
    fn wait<W: Waiting<Explorer> + Clone>(
        &self,
        cpu: &Explorer,
        _: usize,
        wait: &W,
    ) -> Result<(), BarrierError> {
        self.barrier.wait(cpu, wait, self.participants)?;
        Ok(())
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
