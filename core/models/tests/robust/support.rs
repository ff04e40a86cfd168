//! Helpers of the models and of the tests between threads.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use towpath_machine::{Arena, LoomArena, Ordering, Place, Processor};
use towpath_sync::{Alone, Lock, LockError, Policy, Surroundings, Wait, Waiting};

use crate::weakened::{Missing, Weakened, Word};

/// A lock of the models, whose own accesses are never weakened.
pub struct ModelLock(Word);

fn sound(cpu: &Weakened) -> Weakened {
    Weakened { missing: Missing::Nothing, ..*cpu }
}

impl Lock<Weakened> for ModelLock {
    const NAME: &'static str = "model";
    const FIFO: bool = false;
    const KNOWS_OWNER: bool = true;
    type Held = ();

    fn new(_arena: &impl Arena<Weakened>) -> Self {
        ModelLock(Arena::<Weakened>::word(&LoomArena::default(), Place::NewLine, 0))
    }
    fn lock<W: Waiting<Weakened>>(&self, cpu: &Weakened, _wait: &W) -> Result<(), LockError> {
        while self.try_lock(cpu).is_none() {
            cpu.delay(1);
        }
        Ok(())
    }
    fn try_lock(&self, cpu: &Weakened) -> Option<()> {
        sound(cpu).compare_exchange(&self.0, 0, 1, Ordering::Acquire, Ordering::Relaxed).ok().map(drop)
    }
    fn unlock<W: Waiting<Weakened>>(&self, cpu: &Weakened, _wait: &W, (): ()) {
        sound(cpu).store(&self.0, 0, Ordering::Release);
    }
}

/// A wait that parks at once: a lost wake-up is a deadlock in the models, whose sleepers
/// have no timeouts.
pub fn parking() -> Wait<'static> {
    Wait { policy: Policy::Park, around: &Alone, budget: 0 }
}

/// Member of several processes: identity `me`, of which those in `dead` (a bit each) are
/// dead.
pub struct Member<'a> {
    pub me: u32,
    pub dead: &'a AtomicU64,
}

impl Surroundings for Member<'_> {
    fn identity(&self) -> u32 {
        self.me
    }
    fn is_alive(&self, identity: u32) -> bool {
        self.dead.load(SeqCst) >> identity & 1 == 0
    }
}

impl Member<'_> {
    pub fn wait(&self, policy: Policy) -> Wait<'_> {
        Wait { policy, around: self, budget: 1_000 }
    }
}
