//! Anderson's array lock: each waiter spins on a place of its own, and the holder hands over to the next place.
//!
//! **Source.** Anderson 1990; Lumetta & Culler 1998 §3.1; Mellor-Crummey & Scott 1991.
//!
//! **Progress.** Blocking; FIFO among those who have drawn a place.
//!
//! **Fields.** `next`: everybody, by fetch-and-add. `grants[i]`: written by the holder of the place before it (and marked by a parked waiter), read by the
//! waiter in it. A place holds the number of the last ticket that was granted there, so that all-zero memory grants ticket 0, and a place that several
//! waiters have to share (more contenders than places) still lets in only the right one.
//!
//! **Crashes.** Dies before drawing: nothing happened. Dies with a ticket or holding the lock: nobody after it is granted. The lock cannot repair this; waiters
//! get [`LockError::Abandoned`] once their surroundings know, and it stays unusable.
//!
//! **Memory.** `N` + 1 lines; `N` should be the number of contenders, as the paper says that it must be known.
//!
//! **Don't use it** with more contenders than cores unless the waiting policy restricts queueing.

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use crate::{Lock, LockError, PARKED, Waiting};

/// Anderson's array lock with `N` places.
#[derive(Debug)]
#[repr(C)]
pub struct Anderson<P: Processor, const N: usize> {
    next: OwnLine<P::Word>,
    grants: [OwnLine<P::Word>; N],
}

/// A ticket: what the holder keeps.
#[derive(Debug)]
pub struct Granted(u64);

impl<P: Processor, const N: usize> Anderson<P, N> {
    #[inline(always)]
    fn grant(&self, ticket: u64) -> &P::Word {
        &self.grants[(ticket % N as u64) as usize]
    }

    #[cold]
    fn queue<W: Waiting<P>>(&self, cpu: &P, wait: &W, ticket: u64) -> Result<Granted, LockError> {
        // (2) Acquire (in `wait_until`), pairs with the Release (3) in `unlock`.
        match wait.wait_until(cpu, self.grant(ticket), |v| v == ticket) {
            Ok(_) => Ok(Granted(ticket)),
            Err(_) => Err(LockError::Abandoned),
        }
    }
}

impl<P: Processor, const N: usize> Lock<P> for Anderson<P, N> {
    const NAME: &'static str = "anderson";
    const FIFO: bool = true;
    type Held = Granted;

    fn new(arena: &impl Arena<P>) -> Self {
        Anderson {
            next: OwnLine(arena.word(Place::NewLine, 0)),
            grants: core::array::from_fn(|_| OwnLine(arena.word(Place::NewLine, 0))),
        }
    }

    #[inline(always)]
    fn lock<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<Granted, LockError> {
        for round in 0..wait.attempts_before_queueing(cpu) {
            if let Some(held) = self.try_lock(cpu) {
                return Ok(held);
            }
            wait.back_off(cpu, round).map_err(|_| LockError::Abandoned)?;
        }
        // Relaxed: the ticket orders nothing; (1) does.
        let ticket = cpu.fetch_add(&self.next, 1, Ordering::Relaxed);
        // (1) Acquire, pairs with the Release (3) in `unlock`.
        if cpu.load(self.grant(ticket), Ordering::Acquire) & !PARKED == ticket {
            return Ok(Granted(ticket));
        }
        self.queue(cpu, wait, ticket)
    }

    #[inline(always)]
    fn try_lock(&self, cpu: &P) -> Option<Granted> {
        // Relaxed: confirmed by the exchange.
        let ticket = cpu.load(&self.next, Ordering::Relaxed);
        // Acquire: as (1).
        if cpu.load(self.grant(ticket), Ordering::Acquire) & !PARKED != ticket {
            return None;
        }
        // Relaxed: the grant was for exactly this ticket, which nobody else has drawn if this succeeds.
        cpu.compare_exchange(&self.next, ticket, ticket.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed)
            .ok()
            .map(Granted)
    }

    #[inline(always)]
    fn unlock<W: Waiting<P>>(&self, cpu: &P, wait: &W, held: Granted) {
        // (3) Release (in `release`), pairs with the Acquire (1), (2).
        wait.release(cpu, self.grant(held.0.wrapping_add(1)), held.0.wrapping_add(1));
    }
}
