//! A lock of the operating system that a release hands to the first sleeper, which must
//! wake up before others can go on.
//!
//! Paper L says of Solaris' mutex that a process that finds it held "enqueues itself on the lock
//! and gives up its processor", not whether another may take it before the sleeper runs. The
//! simulated mutex lets others take it, as Linux does; this one does not. It is an MCS lock whose
//! waiters sleep at once.

use towpath_machine::{Arena, Processor};
use towpath_sim::Sim;
use towpath_sync::locks::Mcs;
use towpath_sync::{Alone, Lock, LockError, Policy, Wait, Waiting};

/// The instructions of locking and of unlocking, in nanoseconds: as the machine's
/// `os.mutex`.
const PATH: u64 = 300;

const ASLEEP: Wait<'static> = Wait { policy: Policy::Park, around: &Alone, budget: 0 };

/// The lock.
#[derive(Debug)]
pub struct HandOver(Mcs<Sim, 64>);

impl Lock<Sim> for HandOver {
    const NAME: &'static str = "hand-over";
    const FIFO: bool = true;
    type Held = <Mcs<Sim, 64> as Lock<Sim>>::Held;

    fn new(arena: &impl Arena<Sim>) -> Self {
        HandOver(Lock::new(arena))
    }
    fn capacity(&self) -> usize {
        self.0.capacity()
    }
    fn lock<W: Waiting<Sim>>(&self, cpu: &Sim, _wait: &W) -> Result<Self::Held, LockError> {
        cpu.work(PATH);
        self.0.lock(cpu, &ASLEEP)
    }
    fn try_lock(&self, cpu: &Sim) -> Option<Self::Held> {
        self.0.try_lock(cpu)
    }
    fn unlock<W: Waiting<Sim>>(&self, cpu: &Sim, _wait: &W, held: Self::Held) {
        cpu.work(PATH);
        self.0.unlock(cpu, &ASLEEP, held);
    }
}
