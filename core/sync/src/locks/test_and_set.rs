//! Test&set lock: exchange until the old value was "free", with bounded exponential
//! back-off in between.
//!
//! **Source.** Lumetta & Culler 1998 §3.1; Anderson 1990; Nikolopoulos & Papatheodorou 1999 §3.1
//! (the exchange is unconditional: it writes the lock even when it does not get it). `test-and-set`
//! exchanges with the processor's instruction, `test-and-set/ll-sc` by load-linked and
//! store-conditional, and `test-and-set/fetch-op` at memory, where the only exchange is with zero,
//! and so zero means held. The latter two look at the lock before each exchange, as theirs do
//! ("polling").
//!
//! **Progress.** Blocking; not fair: a waiter may be passed any number of times.
//!
//! **Fields.** `word`: 0 free, 1 held (at memory: 1 free, 0 held). All processors exchange; the
//! holder stores "free".
//!
//! **Crashes.** Dies before the exchange or after the release: nothing happened. Dies holding it:
//! it stays held. The lock does not know its holder and cannot repair this; waiters learn of it
//! from their surroundings and get [`LockError::Abandoned`].
//!
//! **Memory.** One line.
//!
//! **Don't use it** under contention on many processors: each attempt takes the line away from the
//! holder. Waiters back off (and yield, where the policy lets them) but never park: there is no
//! value that they wait for.

use core::marker::PhantomData;

use towpath_machine::{Arena, Native, Ordering, Place, Processor};

use crate::{Atomics, Lock, LockError, Primitive, PrimitiveKind, Waiting};

/// Test&set lock, by the primitive `M`. All-zero memory is an unlocked one except over
/// [`AtMemory`](crate::AtMemory).
#[derive(Debug)]
#[repr(C, align(64))]
pub struct TestAndSet<P: Processor, M = Atomics> {
    word: P::Word,
    primitive: PhantomData<fn() -> M>,
}

impl<P: Processor, M: Primitive<P>> Lock<P> for TestAndSet<P, M> {
    const NAME: &'static str = M::KIND.pick(["test-and-set", "test-and-set/ll-sc", "test-and-set/fetch-op"]);
    const FIFO: bool = false;
    type Held = ();

    fn new(arena: &impl Arena<P>) -> Self {
        TestAndSet { word: arena.word(M::place(Place::NewLine), M::FREE), primitive: PhantomData }
    }

    #[inline(always)]
    fn lock<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<(), LockError> {
        // (1) Acquire, pairs with the Release (2) in `unlock`.
        if self.seems_free(cpu) && M::test_and_set(cpu, &self.word, Ordering::Acquire) {
            return Ok(());
        }
        self.lock_slowly(cpu, wait)
    }

    #[inline(always)]
    fn try_lock(&self, cpu: &P) -> Option<()> {
        // (1b) Acquire: as (1); pairs with the Release (2).
        M::test_and_set(cpu, &self.word, Ordering::Acquire).then_some(())
    }

    #[inline(always)]
    fn unlock<W: Waiting<P>>(&self, cpu: &P, _wait: &W, (): ()) {
        // (2) Release, pairs with the Acquire (1), (3).
        cpu.store(&self.word, M::FREE, Ordering::Release);
    }
}

impl<P: Processor, M: Primitive<P>> TestAndSet<P, M> {
    /// Returns whether it is worth an exchange. The processor's own looks for itself.
    #[inline(always)]
    fn seems_free(&self, cpu: &P) -> bool {
        // Relaxed: only a test; the exchange confirms it.
        M::KIND == PrimitiveKind::Atomics || cpu.load(&self.word, Ordering::Relaxed) == M::FREE
    }

    #[cold]
    fn lock_slowly<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<(), LockError> {
        let mut round = 0;
        let attempts = cpu.attempts();
        loop {
            cpu.begin_anew(attempts);
            wait.back_off(cpu, round).map_err(|_| LockError::Abandoned)?;
            round = round.saturating_add(1);
            // (3) Acquire, pairs with the Release (2) in `unlock`.
            if self.seems_free(cpu) && M::test_and_set(cpu, &self.word, Ordering::Acquire) {
                return Ok(());
            }
        }
    }
}

impl crate::Init for TestAndSet<Native> {
    const UNLOCKED: Self = TestAndSet { word: Native::word(0), primitive: PhantomData };
}
