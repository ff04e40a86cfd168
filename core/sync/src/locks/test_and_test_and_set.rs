//! Test&test&set lock: waits until the lock looks free before it tries to take it.
//!
//! **Source.** Lumetta & Culler 1998 §3.1; Anderson 1990; with bounded exponential back-off after
//! an attempt that failed.
//!
//! **Progress.** Blocking; not fair.
//!
//! **Fields.** `word`: every processor.
//!
//! | `word` without [`PARKED`](crate::PARKED) | meaning | leaves to |
//! | --- | --- | --- |
//! | 0 | free | 1, by the first processor to come; 3, by one that has waited |
//! | 1 | held | 0, by the holder; 3, by a waiter |
//! | 3 | held, and a processor that may sleep waits or has waited | 0, by the holder, which wakes all that sleep |
//!
//! The mark for waiters is in the half of the word that falling asleep compares: if the lock is
//! released and taken again in between, the waiter does not fall asleep on a lock that doesn't know
//! of it.
//!
//! **Crashes.** As for `test_and_set`: a dead holder's lock stays held; waiters get
//! [`LockError::Abandoned`] once their surroundings know.
//!
//! **Memory.** One line.
//!
//! **Don't use it** where waiters must not be passed by others for long.

use towpath_machine::{Arena, Native, Ordering, Place, Processor};

use crate::{Lock, LockError, Waiting};

const LOCKED: u64 = 1;
const CONTENDED: u64 = 2;

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
        if cpu.load(&self.word, Ordering::Relaxed) != 0 {
            return None;
        }
        // (1) Acquire, pairs with the Release (2) in `unlock`.
        cpu.compare_exchange(&self.word, 0, LOCKED, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(())
    }

    #[inline(always)]
    fn unlock<W: Waiting<P>>(&self, cpu: &P, wait: &W, (): ()) {
        if !wait.parks() {
            // (2) Release: pairs with the Acquire (1), (3).
            cpu.store(&self.word, 0, Ordering::Release);
            return;
        }
        // (2b) Release: as (2); pairs with the Acquire (1), (3).
        if cpu.swap(&self.word, 0, Ordering::Release) != LOCKED {
            wait.wake_all(cpu, &self.word);
        }
    }
}

impl<P: Processor> TestAndTestAndSet<P> {
    #[cold]
    fn lock_slowly<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<(), LockError> {
        let mut failures = 0;
        // Waiters that never sleep need no mark: the holder has none to wake.
        let mark = if wait.parks() { CONTENDED } else { 0 };
        let taken = LOCKED | mark;
        // Relaxed: only a test; (3) confirms it.
        let mut seen = cpu.load(&self.word, Ordering::Relaxed);
        loop {
            if seen & LOCKED == 0 {
                // Others may wait as this waiter has: keep the mark.
                // (3) Acquire: pairs with the Release (2), (2b) in `unlock`.
                match cpu.compare_exchange(&self.word, seen, taken, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => return Ok(()),
                    Err(now) => seen = now,
                }
                // Lost the race after a release: the others that saw it will be trying too.
                wait.back_off(cpu, failures).map_err(|_| LockError::Abandoned)?;
                failures = (failures + 1).min(7);
                continue;
            }
            if seen & mark != mark {
                // Relaxed: the mark orders nothing.
                let marked = seen | mark;
                match cpu.compare_exchange(&self.word, seen, marked, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => {}
                    Err(now) => {
                        seen = now;
                        continue;
                    }
                }
            }
            seen =
                wait.wait_until(cpu, &self.word, |v| v & taken != taken).map_err(|_| LockError::Abandoned)?;
        }
    }
}

impl crate::Init for TestAndTestAndSet<Native> {
    const UNLOCKED: Self = TestAndTestAndSet { word: Native::word(0) };
}
