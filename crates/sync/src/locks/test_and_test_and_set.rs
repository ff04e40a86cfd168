//! Test&test&set lock: waits until the lock looks free before it tries to take it.
//!
//! **Source.** Lumetta & Culler 1998 §3.1; Anderson 1990; with bounded exponential back-off after an attempt that failed.
//!
//! **Progress.** Blocking; not fair.
//!
//! **Fields.** `word`: everybody.
//!
//! | `word` without [`PARKED`] | meaning | leaves to |
//! | --- | --- | --- |
//! | 0 | free | 1, by whoever exchanges first |
//! | 1 | held | 0, by the holder |
//!
//! [`PARKED`] on top of either says that somebody may sleep; taking the lock keeps it, releasing takes it away and wakes one, who will release in turn.
//!
//! **Crashes.** As for `test_and_set`: a dead holder's lock stays held; waiters get [`LockError::Abandoned`] once their surroundings know.
//!
//! **Memory.** One line.
//!
//! **Don't use it** where waiters must not be passed by others for long.

use towpath_machine::{Arena, Ordering, Place, Processor};

use crate::{Lock, LockError, PARKED, Waiting};

const LOCKED: u64 = 1;

/// Test&test&set lock.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct TestAndTestAndSet<P: Processor> {
    word: P::Word,
}

impl<P: Processor> Lock<P> for TestAndTestAndSet<P> {
    const NAME: &'static str = "test-and-test-and-set";
    const FIFO: bool = false;
    type Held = ();

    fn new(arena: &impl Arena<P>) -> Self {
        TestAndTestAndSet { word: arena.word(Place::NewLine, 0) }
    }

    #[inline(always)]
    fn lock<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<(), LockError> {
        match self.try_lock(cpu) {
            Some(()) => Ok(()),
            None => self.lock_slowly(cpu, wait),
        }
    }

    #[inline(always)]
    fn try_lock(&self, cpu: &P) -> Option<()> {
        // Relaxed: only a test; (1) confirms it.
        let seen = cpu.load(&self.word, Ordering::Relaxed);
        if seen & !PARKED != 0 {
            return None;
        }
        // (1) Acquire, pairs with the Release (2) in `unlock`. Keeps the mark of those who sleep.
        cpu.compare_exchange(&self.word, seen, seen | LOCKED, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(())
    }

    #[inline(always)]
    fn unlock<W: Waiting<P>>(&self, cpu: &P, wait: &W, (): ()) {
        // (2) Release (in `release_some`), pairs with the Acquire (1) in `try_lock`.
        wait.release_some(cpu, &self.word, 0, 1);
    }
}

impl<P: Processor> TestAndTestAndSet<P> {
    #[cold]
    fn lock_slowly<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<(), LockError> {
        let mut failures = 0;
        loop {
            wait.wait_until(cpu, &self.word, |v| v == 0).map_err(|_| LockError::Abandoned)?;
            if let Some(()) = self.try_lock(cpu) {
                return Ok(());
            }
            // Lost the race after a release: the others that saw it will be trying too.
            wait.back_off(cpu, failures).map_err(|_| LockError::Abandoned)?;
            failures = (failures + 1).min(7);
        }
    }
}
