//! Scheduler-conscious queue lock: the hybrid queue lock, handed over to the first waiter
//! that isn't preempted.
//!
//! **Source.** Kontothanassis, Wisniewski & Scott 1997; Nikolopoulos & Papatheodorou 1999 §3.4. How
//! the releaser knows which waiters are preempted is a parameter ([`Preemption`]): [`Kernel`] asks
//! the operating system; [`Published`] needs no help from it: waiters write down the time while
//! they spin, as in the time-published locks of He, Scherer & Scott 2005.
//!
//! **How.** Tickets are drawn at memory. The seat of a ticket holds its waiter's number (`waiter`)
//! and the decision (`grant`). A releaser goes through the tickets after its own: those whose
//! waiters are preempted are *skipped*, the first other one is *granted*. A skipped waiter, once it
//! runs again and sees that, draws another ticket.
//!
//! * Granted or skipped is written by the holder alone, in one word, and never changed for the same
//!   ticket; the waiter obeys. So there is no race between the two: a waiter that comes back just
//!   as it is skipped was skipped.
//! * The holder had better not be preempted either: a processor that draws a ticket or has the lock
//!   asks the operating system to let it run on (Linux does, from version 7.0 on). Under [`Kernel`]
//!   the releaser asks that for the one that it chooses, in one step with looking whether it runs.
//!   An operating system that refuses costs time only.
//! * No processor waits in a seat yet (no such ticket is drawn, or its owner has not said so): it
//!   is granted. The processor that draws it, or has drawn it, has the lock.
//! * A waiter that sleeps (under a policy that parks) is not preempted: it is granted the lock and
//!   woken. Skipped, it would be woken as well, to queue again.
//! * A releaser skips at most `N` tickets; the next is granted, preempted or not. So a release
//!   ends, and if all waiters are preempted, the first one to come has the lock.
//!
//! | `grant` of a seat (without [`PARKED`]) | meaning for a waiter with ticket t |
//! | --- | --- |
//! | 2 u, u before t | wait: that was for an earlier waiter in the seat |
//! | 2 t | granted |
//! | 2 t + 1 | skipped |
//! | 2 u or 2 u + 1, u after t | skipped: the seat belongs to another one already |
//!
//! Two tickets that are drawn and not yet decided never share a seat: each belongs to another of
//! the `N` processors, since one that is skipped draws again only afterwards, and no holder has
//! one; so there are fewer than `N`, one after the other.
//!
//! **Progress.** Blocking; not FIFO: a waiter that is preempted when its turn comes loses it, and
//! may again.
//!
//! **Fields.** `next`: at memory; every processor, by fetch-and-increment. `grant`: written by the
//! holder (and marked by a parked waiter), read by the waiter. `waiter` and `stamp`: written by the
//! waiter, read by the holder. A waiter that was skipped and does not know yet may still write
//! `stamp`: its successor in the seat then seems to run. That decides only which waiter is next.
//!
//! **Crashes.** Dies before drawing: nothing happened. Dies holding the lock, or with a ticket
//! before writing its number: no waiter after it is granted the lock; the lock cannot repair this,
//! waiters get [`LockError::Abandoned`] once their surroundings know, and it stays unusable. Dies
//! waiting: skipped under [`Published`], since it writes down no time any more, unless it was
//! asleep; under [`Kernel`] if the operating system says so.
//!
//! **Memory.** `N` + 1 lines.
//!
//! **Don't use it** where waiters must be served in order; nor with processors whose id is `N` or
//! more ([`LockError::Capacity`]); [`Published`] nor on a machine that does not call the predicate
//! of [`Processor::spin_until`] again and again while the word stays the same (a simulated one):
//! there every waiter would seem preempted.

use core::fmt::Debug;
use core::marker::PhantomData;

use towpath_machine::{Arena, FetchOp, Ordering, OwnLine, Place, Processor, Scheduling};

use crate::{AtMemory, Lock, LockError, PARKED, Primitive, Waiting};

/// Source of a releaser's knowledge which waiters are preempted.
pub trait Preemption<P: Processor>: Debug + Send + Sync + 'static {
    /// The name of the lock with this knowledge.
    const NAME: &'static str;

    /// Notes in a waiter's own word that it runs: when it begins to wait, and at each of
    /// its looks at the word that it waits for.
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::locks::{Preemption, Published};
    ///
    /// let (cpu, stamp) = (Native::current(), Native::word(0));
    /// Published::publish(&cpu, &stamp);
    /// assert_ne!(stamp.into_inner(), 0); // the time
    /// ```
    fn publish(cpu: &P, stamp: &P::Word);

    /// Returns whether the waiter with this number and this word is preempted. May be
    /// wrong, at the price of a hand-over that is slow, or out of turn. One that is not, and so
    /// gets the lock, should not be from now on.
    ///
    /// ```
    /// use towpath_machine::{Native, Processor};
    /// use towpath_sync::locks::{Preemption, Published};
    ///
    /// let (cpu, stamp) = (Native::current(), Native::word(0));
    /// Published::publish(&cpu, &stamp);
    /// cpu.work(50_000); // it does not look at its word
    /// assert!(Published::is_preempted(&cpu, 3, &stamp));
    /// ```
    fn is_preempted(cpu: &P, id: usize, stamp: &P::Word) -> bool;

    /// Notes that the caller is about to have the lock, or to draw a ticket (`true`), and
    /// had better not be preempted; or that it is not any more (`false`).
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::locks::{Kernel, Preemption};
    ///
    /// let (cpu, mut data) = (Native::current(), 0);
    /// Kernel::stay(&cpu, true);
    /// data += 1; // a critical section
    /// Kernel::stay(&cpu, false);
    /// assert_eq!(data, 1);
    /// ```
    fn stay(_cpu: &P, _on: bool) {}
}

/// The operating system knows, and may be asked to let the holder run on (as in
/// Kontothanassis, Wisniewski & Scott: from before it draws a ticket until it waits, and from the
/// moment at which the releaser chooses it until it releases).
#[derive(Clone, Copy, Debug, Default)]
pub struct Kernel;

impl<P: Scheduling> Preemption<P> for Kernel {
    const NAME: &'static str = "scheduler-conscious";

    #[inline(always)]
    fn publish(_cpu: &P, _stamp: &P::Word) {}
    fn is_preempted(cpu: &P, id: usize, _stamp: &P::Word) -> bool {
        !cpu.keep(id)
    }
    fn stay(cpu: &P, on: bool) {
        cpu.stay(on);
    }
}

/// Times written down by waiters: one that has not done so for a while is preempted. The
/// operating system is asked to let the holder run on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Published;

/// Maximum age of the time of a waiter that runs, in nanoseconds: longer than an
/// interrupt takes, shorter than a time slice.
const STALE: u64 = 20_000;

impl<P: Scheduling> Preemption<P> for Published {
    const NAME: &'static str = "scheduler-conscious/published";

    fn stay(cpu: &P, on: bool) {
        cpu.stay(on);
    }

    fn publish(cpu: &P, stamp: &P::Word) {
        // Relaxed: only a hint.
        cpu.store(stamp, cpu.now(), Ordering::Relaxed);
    }
    fn is_preempted(cpu: &P, _id: usize, stamp: &P::Word) -> bool {
        // Relaxed: only a hint. Read first: a time that is written later must not look old.
        let stamp = cpu.load(stamp, Ordering::Relaxed);
        cpu.now().saturating_sub(stamp) > STALE
    }
}

/// Scheduler-conscious queue lock for processors with ids below `N`.
#[repr(C)]
pub struct SchedulerConscious<P: Processor, const N: usize, K = Kernel> {
    next: OwnLine<P::Word>,
    seats: [Seat<P>; N],
    knowledge: PhantomData<fn() -> K>,
}

#[repr(C, align(64))]
struct Seat<P: Processor> {
    grant: P::Word,
    waiter: P::Word,
    stamp: P::Word,
}

impl<P: Processor, const N: usize, K> Debug for SchedulerConscious<P, N, K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SchedulerConscious").finish_non_exhaustive()
    }
}

/// Ticket of the holder.
#[derive(Debug)]
pub struct SchedulerConsciousHeld(u64);

/// Bits of `waiter` for the processor's number plus one; the others are for the ticket.
const ID: u32 = 16;

/// Bits of a ticket in `grant`.
const TICKET: u64 = (1 << 62) - 1;

fn granted(ticket: u64) -> u64 {
    (ticket & TICKET) << 1
}

fn skipped(ticket: u64) -> u64 {
    granted(ticket) | 1
}

/// Returns whether the value of `grant` decides on this ticket: it is about this one or a
/// later one.
fn decides(grant: u64, ticket: u64) -> bool {
    (grant >> 1).wrapping_sub(ticket) & TICKET < 1 << 61
}

impl<P: Processor, const N: usize, K: Preemption<P>> SchedulerConscious<P, N, K> {
    #[inline(always)]
    fn seat(&self, ticket: u64) -> &Seat<P> {
        &self.seats[(ticket % N as u64) as usize]
    }

    /// Waits in the seat of a ticket; whether it was granted.
    #[cold]
    fn wait<W: Waiting<P>>(&self, cpu: &P, wait: &W, ticket: u64) -> Result<bool, LockError> {
        let seat = self.seat(ticket);
        K::publish(cpu, &seat.stamp);
        // Relaxed: where our name comes before the time, we are passed over, and queue again.
        cpu.store(&seat.waiter, ticket << ID | (cpu.id() as u64 + 1), Ordering::Relaxed);
        // From now on a releaser can tell.
        K::stay(cpu, false);
        let decided = |grant| {
            let decided = decides(grant, ticket);
            if !decided {
                K::publish(cpu, &seat.stamp);
            }
            decided
        };
        // (3) Acquire (in `wait_until`), pairs with the Release (5).
        match wait.wait_until(cpu, &seat.grant, decided) {
            Ok(grant) => Ok(grant == granted(ticket)),
            Err(_) => Err(LockError::Abandoned),
        }
    }

    /// Returns whether the waiter with this ticket is preempted.
    fn is_preempted(&self, cpu: &P, ticket: u64) -> bool {
        let seat = self.seat(ticket);
        // Relaxed: a waiter whose time looks old is passed over, and queues again.
        let waiter = cpu.load(&seat.waiter, Ordering::Relaxed);
        let id = waiter & ((1 << ID) - 1);
        if id == 0 || waiter >> ID != ticket & (u64::MAX >> ID) {
            return false;
        }
        // Relaxed: only a hint. A sleeper is granted the lock in its turn.
        cpu.load(&seat.grant, Ordering::Relaxed) & PARKED == 0
            && K::is_preempted(cpu, id as usize - 1, &seat.stamp)
    }
}

impl<P: FetchOp, const N: usize, K: Preemption<P>> Lock<P> for SchedulerConscious<P, N, K> {
    const NAME: &'static str = K::NAME;
    const FIFO: bool = false;
    const TRIES: bool = false;
    type Held = SchedulerConsciousHeld;

    fn new(arena: &impl Arena<P>) -> Self {
        const { assert!(N < 1 << ID, "too many processors for their numbers") };
        SchedulerConscious {
            next: OwnLine(arena.word(<AtMemory as Primitive<P>>::place(Place::NewLine), 0)),
            seats: core::array::from_fn(|_| Seat {
                grant: arena.word(Place::NewLine, 0),
                waiter: arena.word(Place::SameLine, 0),
                stamp: arena.word(Place::SameLine, 0),
            }),
            knowledge: PhantomData,
        }
    }

    fn capacity(&self) -> usize {
        N
    }

    #[inline(always)]
    fn lock<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<SchedulerConsciousHeld, LockError> {
        if cpu.id() >= N {
            return Err(LockError::Capacity);
        }
        loop {
            K::stay(cpu, true);
            let ticket = cpu.fetch_increment(&self.next);
            // (1) Acquire, pairs with the Release (5).
            let grant = cpu.load(&self.seat(ticket).grant, Ordering::Acquire) & !PARKED;
            if grant == granted(ticket) {
                return Ok(SchedulerConsciousHeld(ticket));
            }
            if self.wait(cpu, wait, ticket)? {
                // Most often the releaser has asked that already; now it is ours to end.
                K::stay(cpu, true);
                return Ok(SchedulerConsciousHeld(ticket));
            }
        }
    }

    fn try_lock(&self, _cpu: &P) -> Option<SchedulerConsciousHeld> {
        None
    }

    #[inline(always)]
    fn unlock<W: Waiting<P>>(&self, cpu: &P, wait: &W, held: SchedulerConsciousHeld) {
        let mut ticket = held.0.wrapping_add(1);
        for _ in 0..N {
            if !self.is_preempted(cpu, ticket) {
                break;
            }
            // Release, as (5), but what it brings is nothing: the waiter draws again.
            wait.release(cpu, &self.seat(ticket).grant, skipped(ticket));
            ticket = ticket.wrapping_add(1);
        }
        // (5) Release (in `release`), pairs with the Acquire (1), (3).
        wait.release(cpu, &self.seat(ticket).grant, granted(ticket));
        K::stay(cpu, false);
    }
}
