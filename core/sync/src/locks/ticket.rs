//! Ticket lock with proportional back-off: draw a number, wait until it is served.
//!
//! **Source.** Reed & Kanodia 1979; Mellor-Crummey & Scott 1991, algorithm 2; Lumetta & Culler 1998
//! §3.1 (both counters on one line were slightly better: [`Ticket`]; [`TicketTwoLines`] has them
//! apart); Nikolopoulos & Papatheodorou 1999 §3.1 (over load-linked and store-conditional; with
//! both counters at memory, over fetch-and-op). A waiter looks again after a pause for each one
//! ahead of it, until it is its turn.
//!
//! **Progress.** Blocking; FIFO among processors that have drawn; starvation-free where the
//! increment is.
//!
//! **Fields.** `next`: every processor, by increments. `serving`: written only by the holder (and
//! marked by parked waiters: beside it if it lies at memory), read by all.
//!
//! **Crashes.** Dies before the draw: nothing happened. Dies holding a number or the lock: no
//! waiter after it is ever served. The lock cannot repair this; waiters learn of it from their
//! surroundings and get [`LockError::Abandoned`], and the lock stays unusable.
//!
//! **Memory.** One line, or two.
//!
//! **Don't use it** with more contenders than cores unless the waiting policy restricts queueing:
//! the next in line may not be running, and all others wait for it.

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use crate::waited::Waited;
use crate::{Atomics, Lock, LockError, Primitive, Waiting};

/// Nanoseconds of back-off per waiter ahead.
const PER_WAITER: u64 = 30;

/// The counters, wherever they lie.
trait TicketCounters<P: Processor> {
    type Primitive: Primitive<P>;
    fn next(&self) -> &P::Word;
    fn serving(&self) -> &Waited<P, Self::Primitive>;
}

/// Ticket lock by the primitive `M`, both counters on one line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Ticket<P: Processor, M = Atomics> {
    next: P::Word,
    serving: Waited<P, M>,
}

/// Ticket lock, each counter on a line of its own.
#[derive(Debug)]
#[repr(C)]
pub struct TicketTwoLines<P: Processor> {
    next: OwnLine<P::Word>,
    serving: OwnLine<Waited<P, Atomics>>,
}

impl<P: Processor, M: Primitive<P>> TicketCounters<P> for Ticket<P, M> {
    type Primitive = M;
    #[inline(always)]
    fn next(&self) -> &P::Word {
        &self.next
    }
    #[inline(always)]
    fn serving(&self) -> &Waited<P, M> {
        &self.serving
    }
}

impl<P: Processor> TicketCounters<P> for TicketTwoLines<P> {
    type Primitive = Atomics;
    #[inline(always)]
    fn next(&self) -> &P::Word {
        &self.next
    }
    #[inline(always)]
    fn serving(&self) -> &Waited<P, Atomics> {
        &self.serving
    }
}

/// Ticket number of the holder.
#[derive(Debug)]
pub struct Number(u64);

#[inline(always)]
fn lock<P: Processor, C: TicketCounters<P>, W: Waiting<P>>(
    counters: &C,
    cpu: &P,
    wait: &W,
) -> Result<Number, LockError> {
    let attempts = if C::Primitive::KIND.in_cache() { wait.attempts_before_queueing(cpu) } else { 0 };
    for round in 0..attempts {
        if let Some(number) = try_lock(counters, cpu) {
            return Ok(number);
        }
        wait.back_off(cpu, round).map_err(|_| LockError::Abandoned)?;
    }
    // Relaxed: the number orders nothing; (1) does.
    let number = C::Primitive::fetch_increment(cpu, counters.next(), Ordering::Relaxed);
    // (1) Acquire, pairs with the Release (2) in `unlock`.
    if counters.serving().load(cpu, Ordering::Acquire) == number {
        return Ok(Number(number));
    }
    queue(counters, cpu, wait, number)?;
    Ok(Number(number))
}

/// Returns nothing that the caller has already, so that the fast path keeps the number in
/// a register (`tests/zero_cost.rs`).
#[cold]
fn queue<P: Processor, W: Waiting<P>>(
    counters: &impl TicketCounters<P>,
    cpu: &P,
    wait: &W,
    number: u64,
) -> Result<(), LockError> {
    // Proportional back-off: those ahead need a while each.
    let pause = |serving| PER_WAITER * number.wrapping_sub(serving).min(64);
    // Acquire (in there), pairs with the Release (2) in `unlock`.
    match counters.serving().wait_until_pausing(cpu, wait, pause, |v| v == number) {
        Ok(_) => Ok(()),
        Err(_) => Err(LockError::Abandoned),
    }
}

#[inline(always)]
fn try_lock<P: Processor, C: TicketCounters<P>>(counters: &C, cpu: &P) -> Option<Number> {
    // Acquire, pairs with the Release (2) in `unlock`.
    let serving = counters.serving().load(cpu, Ordering::Acquire);
    // Relaxed: succeeds only if no processor has drawn `serving` yet, so the load above was of the
    // last release.
    C::Primitive::increment_if(cpu, counters.next(), serving, Ordering::Relaxed).then_some(Number(serving))
}

#[inline(always)]
fn unlock<P: Processor, W: Waiting<P>>(counters: &impl TicketCounters<P>, cpu: &P, wait: &W, held: Number) {
    // (2) Release (in `release`), pairs with the Acquire (1) in `lock`.
    counters.serving().release(cpu, wait, held.0 + 1);
}

macro_rules! ticket_lock {
    ([$($primitive:tt)*] $lock:ty, $name:expr, $tries:expr, $arena:ident, $new:expr) => {
        impl<P: Processor $($primitive)*> Lock<P> for $lock {
            const NAME: &'static str = $name;
            const FIFO: bool = true;
            const TRIES: bool = $tries;
            type Held = Number;

            fn new($arena: &impl Arena<P>) -> Self {
                $new
            }
            #[inline(always)]
            fn lock<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<Number, LockError> {
                lock(self, cpu, wait)
            }
            #[inline(always)]
            fn try_lock(&self, cpu: &P) -> Option<Number> {
                try_lock(self, cpu)
            }
            #[inline(always)]
            fn unlock<W: Waiting<P>>(&self, cpu: &P, wait: &W, held: Number) {
                unlock(self, cpu, wait, held)
            }
        }
    };
}

ticket_lock!(
    [, M: Primitive<P>] Ticket<P, M>,
    M::KIND.pick(["ticket", "ticket/ll-sc", "ticket/fetch-op"]),
    M::KIND.in_cache(),
    arena,
    Ticket {
        next: arena.word(M::place(Place::NewLine), 0),
        serving: Waited::new(arena, Place::SameLine, 0),
    }
);
ticket_lock!(
    [] TicketTwoLines<P>,
    "ticket-two-lines",
    true,
    arena,
    TicketTwoLines {
        next: OwnLine(arena.word(Place::NewLine, 0)),
        serving: OwnLine(Waited::new(arena, Place::NewLine, 0)),
    }
);
