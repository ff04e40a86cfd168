//! Ticket lock with proportional back-off: draw a number, wait until it is served.
//!
//! **Source.** Reed & Kanodia 1979; Mellor-Crummey & Scott 1991, algorithm 2; Lumetta & Culler 1998 §3.1 (both counters on
//! one line were slightly better: [`Ticket`]; [`TicketTwoLines`] has them apart).
//!
//! **Progress.** Blocking; FIFO among those who have drawn; starvation-free where fetch-and-add is.
//!
//! **Fields.** `next`: everybody, by fetch-and-add. `serving`: written only by the holder (and marked by parked waiters), read by all.
//!
//! **Crashes.** Dies before the draw: nothing happened. Dies holding a number or the lock: nobody after it is ever served. The lock
//! cannot repair this; waiters learn of it from their surroundings and get [`LockError::Abandoned`], and the lock stays unusable.
//!
//! **Memory.** One line, or two.
//!
//! **Don't use it** with more contenders than cores unless the waiting policy restricts queueing: the next in line may not be
//! running, and everybody waits for it.

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use crate::{Lock, LockError, Waiting};

/// Nanoseconds of back-off per waiter ahead.
const PER_WAITER: u64 = 30;

/// The counters, wherever they lie.
trait Counters<P: Processor> {
    fn next(&self) -> &P::Word;
    fn serving(&self) -> &P::Word;
}

/// Ticket lock, both counters on one line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Ticket<P: Processor> {
    next: P::Word,
    serving: P::Word,
}

/// Ticket lock, each counter on a line of its own.
#[derive(Debug)]
#[repr(C)]
pub struct TicketTwoLines<P: Processor> {
    next: OwnLine<P::Word>,
    serving: OwnLine<P::Word>,
}

impl<P: Processor> Counters<P> for Ticket<P> {
    #[inline(always)]
    fn next(&self) -> &P::Word {
        &self.next
    }
    #[inline(always)]
    fn serving(&self) -> &P::Word {
        &self.serving
    }
}

impl<P: Processor> Counters<P> for TicketTwoLines<P> {
    #[inline(always)]
    fn next(&self) -> &P::Word {
        &self.next
    }
    #[inline(always)]
    fn serving(&self) -> &P::Word {
        &self.serving
    }
}

/// A ticket number: what the holder keeps.
#[derive(Debug)]
pub struct Number(u64);

#[inline(always)]
fn lock<P: Processor, W: Waiting<P>>(
    counters: &impl Counters<P>,
    cpu: &P,
    wait: &W,
) -> Result<Number, LockError> {
    for round in 0..wait.attempts_before_queueing(cpu) {
        if let Some(number) = try_lock(counters, cpu) {
            return Ok(number);
        }
        wait.back_off(cpu, round).map_err(|_| LockError::Abandoned)?;
    }
    // Relaxed: the number orders nothing; (1) does.
    let number = cpu.fetch_add(counters.next(), 1, Ordering::Relaxed);
    // (1) Acquire, pairs with the Release (2) in `unlock`.
    let serving = cpu.load(counters.serving(), Ordering::Acquire) & !crate::PARKED;
    if serving == number {
        return Ok(Number(number));
    }
    queue(counters, cpu, wait, number, serving)?;
    Ok(Number(number))
}

/// Returns nothing that the caller has already, so that the fast path keeps the number in a register (`tests/zero_cost.rs`).
#[cold]
fn queue<P: Processor, W: Waiting<P>>(
    counters: &impl Counters<P>,
    cpu: &P,
    wait: &W,
    number: u64,
    serving: u64,
) -> Result<(), LockError> {
    // Proportional back-off: those ahead need a while each.
    cpu.delay(PER_WAITER * number.wrapping_sub(serving).min(64));
    match wait.wait_until(cpu, counters.serving(), |v| v == number) {
        Ok(_) => Ok(()),
        Err(_) => Err(LockError::Abandoned),
    }
}

#[inline(always)]
fn try_lock<P: Processor>(counters: &impl Counters<P>, cpu: &P) -> Option<Number> {
    // Acquire, pairs with the Release (2) in `unlock`.
    let serving = cpu.load(counters.serving(), Ordering::Acquire) & !crate::PARKED;
    // Relaxed: succeeds only if nobody has drawn `serving` yet, so the load above was of the last release.
    cpu.compare_exchange(counters.next(), serving, serving + 1, Ordering::Relaxed, Ordering::Relaxed)
        .ok()
        .map(Number)
}

#[inline(always)]
fn unlock<P: Processor, W: Waiting<P>>(counters: &impl Counters<P>, cpu: &P, wait: &W, held: Number) {
    // (2) Release (in `release`), pairs with the Acquire (1) in `lock`.
    wait.release(cpu, counters.serving(), held.0 + 1);
}

macro_rules! ticket_lock {
    ($lock:ident, $name:literal, $arena:ident, $new:expr) => {
        impl<P: Processor> Lock<P> for $lock<P> {
            const NAME: &'static str = $name;
            const FIFO: bool = true;
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
    Ticket,
    "ticket",
    arena,
    Ticket { next: arena.word(Place::NewLine, 0), serving: arena.word(Place::SameLine, 0) }
);
ticket_lock!(
    TicketTwoLines,
    "ticket-two-lines",
    arena,
    TicketTwoLines {
        next: OwnLine(arena.word(Place::NewLine, 0)),
        serving: OwnLine(arena.word(Place::NewLine, 0)),
    }
);
