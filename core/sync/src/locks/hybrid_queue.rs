//! Hybrid queue lock: places are drawn at memory, and each waiter spins on a place of its
//! own in its cache.
//!
//! **Source.** Nikolopoulos & Papatheodorou 1999 §3.1: the array queue lock (Anderson 1990) with
//! the one contended word at memory, so that drawing a place moves no cache line, and everything
//! that is read again and again in the caches.
//!
//! **Progress.** Blocking; FIFO among processors that have drawn a place.
//!
//! **Fields.** `next`: at memory; every processor, by fetch-and-increment. `grants[i]`: in the
//! caches; written by the holder of the place before it (and marked by a parked waiter), read by
//! the waiter in it. A place holds the number of the last ticket that was granted there, so that
//! all-zero memory grants ticket 0, and a place that several waiters have to share (more contenders
//! than places) still lets in only the right one.
//!
//! **Crashes.** Dies before drawing: nothing happened. Dies with a ticket or holding the lock: no
//! waiter after it is granted the lock. The lock cannot repair this; waiters get
//! [`LockError::Abandoned`] once their surroundings know, and it stays unusable.
//!
//! **Memory.** `N` + 1 lines; `N` should be the number of contenders.
//!
//! **Don't use it** on a machine without operations at memory: there it is `anderson` without
//! `try_lock`. Nor with more contenders than cores: memory cannot give a place on a condition, so
//! nothing restricts queueing; `scheduler_conscious` is made for that.

use towpath_machine::{Arena, FetchOp, OwnLine, Place, Processor};

use crate::{AtMemory, Lock, LockError, Primitive, Waiting};

/// Hybrid queue lock with `N` places.
#[derive(Debug)]
#[repr(C)]
pub struct HybridQueue<P: Processor, const N: usize> {
    next: OwnLine<P::Word>,
    grants: [OwnLine<P::Word>; N],
}

/// Ticket of the holder.
#[derive(Debug)]
pub struct HybridHeld(u64);

impl<P: Processor, const N: usize> HybridQueue<P, N> {
    #[inline(always)]
    fn grant(&self, ticket: u64) -> &P::Word {
        &self.grants[(ticket % N as u64) as usize]
    }
}

impl<P: FetchOp, const N: usize> Lock<P> for HybridQueue<P, N> {
    const NAME: &'static str = "hybrid-queue";
    const FIFO: bool = true;
    const TRIES: bool = false;
    type Held = HybridHeld;

    fn new(arena: &impl Arena<P>) -> Self {
        HybridQueue {
            next: OwnLine(arena.word(<AtMemory as Primitive<P>>::place(Place::NewLine), 0)),
            grants: core::array::from_fn(|_| OwnLine(arena.word(Place::NewLine, 0))),
        }
    }

    #[inline(always)]
    fn lock<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<HybridHeld, LockError> {
        let ticket = cpu.fetch_increment(&self.next);
        // (1) Acquire (in `wait_until`), pairs with the Release (2) in `unlock`.
        match wait.wait_until(cpu, self.grant(ticket), |v| v == ticket) {
            Ok(_) => Ok(HybridHeld(ticket)),
            Err(_) => Err(LockError::Abandoned),
        }
    }

    fn try_lock(&self, _cpu: &P) -> Option<HybridHeld> {
        None
    }

    #[inline(always)]
    fn unlock<W: Waiting<P>>(&self, cpu: &P, wait: &W, held: HybridHeld) {
        let next = held.0.wrapping_add(1);
        // (2) Release (in `release`), pairs with the Acquire (1) in `lock`.
        wait.release(cpu, self.grant(next), next);
    }
}
