//! Anderson's array lock: each waiter spins on a place of its own, and the holder hands
//! over to the next place.
//!
//! **Source.** Anderson 1990; Lumetta & Culler 1998 §3.1; Mellor-Crummey & Scott 1991. Over
//! load-linked and store-conditional: Nikolopoulos & Papatheodorou 1999 §3.1. Over fetch-and-op the
//! places lie at memory as well; with places in the caches it is `hybrid_queue`.
//!
//! **Progress.** Blocking; FIFO among processors that have drawn a place.
//!
//! **Fields.** `next`: every processor, by increments. `grants[i]`: written by the holder of the
//! place before it (and marked by a parked waiter: beside it if it lies at memory), read by the
//! waiter in it. A place holds the number of the last ticket that was granted there, so that
//! all-zero memory grants ticket 0, and a place that several waiters have to share (more contenders
//! than places) still lets in only the right one.
//!
//! **Crashes.** Dies before drawing: nothing happened. Dies with a ticket or holding the lock: no
//! waiter after it is granted the lock. The lock cannot repair this; waiters get
//! [`LockError::Abandoned`] once their surroundings know, and it stays unusable.
//!
//! **Memory.** `N` + 1 lines; `N` should be the number of contenders, as the paper says that it
//! must be known.
//!
//! **Don't use it** with more contenders than cores unless the waiting policy restricts queueing.

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use crate::waited::Waited;
use crate::{Atomics, Lock, LockError, Primitive, Waiting};

/// Anderson's array lock with `N` places, by the primitive `M`.
#[derive(Debug)]
#[repr(C)]
pub struct Anderson<P: Processor, const N: usize, M = Atomics> {
    next: OwnLine<P::Word>,
    grants: [OwnLine<Waited<P, M>>; N],
}

/// Ticket of the holder.
#[derive(Debug)]
pub struct Granted(u64);

impl<P: Processor, const N: usize, M: Primitive<P>> Anderson<P, N, M> {
    #[inline(always)]
    fn grant(&self, ticket: u64) -> &Waited<P, M> {
        &self.grants[(ticket % N as u64) as usize]
    }

    #[cold]
    fn queue<W: Waiting<P>>(&self, cpu: &P, wait: &W, ticket: u64) -> Result<Granted, LockError> {
        // (2) Acquire (in `wait_until`), pairs with the Release (3) in `unlock`.
        match self.grant(ticket).wait_until(cpu, wait, |v| v == ticket) {
            Ok(_) => Ok(Granted(ticket)),
            Err(_) => Err(LockError::Abandoned),
        }
    }
}

impl<P: Processor, const N: usize, M: Primitive<P>> Lock<P> for Anderson<P, N, M> {
    const NAME: &'static str = M::KIND.pick(["anderson", "anderson/ll-sc", "anderson/fetch-op"]);
    const FIFO: bool = true;
    const TRIES: bool = M::KIND.in_cache();
    type Held = Granted;

    fn new(arena: &impl Arena<P>) -> Self {
        Anderson {
            next: OwnLine(arena.word(M::place(Place::NewLine), 0)),
            grants: core::array::from_fn(|_| OwnLine(Waited::new(arena, Place::NewLine, 0))),
        }
    }

    #[inline(always)]
    fn lock<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<Granted, LockError> {
        let attempts = if Self::TRIES { wait.attempts_before_queueing(cpu) } else { 0 };
        for round in 0..attempts {
            if let Some(held) = self.try_lock(cpu) {
                return Ok(held);
            }
            wait.back_off(cpu, round).map_err(|_| LockError::Abandoned)?;
        }
        // Relaxed: the ticket orders nothing; (1) does.
        let ticket = M::fetch_increment(cpu, &self.next, Ordering::Relaxed);
        // (1) Acquire, pairs with the Release (3) in `unlock`.
        if self.grant(ticket).load(cpu, Ordering::Acquire) == ticket {
            return Ok(Granted(ticket));
        }
        self.queue(cpu, wait, ticket)
    }

    #[inline(always)]
    fn try_lock(&self, cpu: &P) -> Option<Granted> {
        if !Self::TRIES {
            return None;
        }
        // Relaxed: confirmed by the exchange.
        let ticket = cpu.load(&self.next, Ordering::Relaxed);
        // (1b) Acquire: as (1); pairs with the Release (3).
        if self.grant(ticket).load(cpu, Ordering::Acquire) != ticket {
            return None;
        }
        // Relaxed: the grant was for exactly this ticket, which no other processor has drawn if
        // this succeeds.
        M::increment_if(cpu, &self.next, ticket, Ordering::Relaxed).then_some(Granted(ticket))
    }

    #[inline(always)]
    fn unlock<W: Waiting<P>>(&self, cpu: &P, wait: &W, held: Granted) {
        // (3) Release (in `release`), pairs with the Acquire (1), (2).
        let next = held.0.wrapping_add(1);
        self.grant(next).release(cpu, wait, next);
    }
}
