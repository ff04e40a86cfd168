//! `robust`: Towpath's own lock between processes. A holder that dies is found out,
//! and the next owner is told.
//!
//! **Source.** Ours. The owner's identity is the lock's value, as in the kernel's robust futexes,
//! but it is the waiters that ask whether the owner is alive, so that no list has to be kept.
//! Fairness by leases: a process that gets the lock by hand-over may take it again and again for a
//! while, undisturbed (which is what makes unfair locks fast); when the lease is over, its next
//! release hands the lock to the next waiter in turn.
//!
//! **Progress.** Blocking; every waiter is served after at most one lease of each waiter before it
//! in turn.
//!
//! | `word` (without [`PARKED`]) | meaning | leaves to |
//! | --- | --- | --- |
//! | 0 | free | an owner, by compare-and-swap |
//! | owner | held: identity in bits 32–62, processor + 1 in bits 0–30 | 0, by the owner; another owner and `HANDED`, by hand-over; another owner, by compare-and-swap, if this one is dead |
//! | owner, `HANDED` (bit 31) | given to an owner that has not noticed yet | the same without `HANDED`, by the owner; another owner, by compare-and-swap, if this one is dead |
//!
//! [`PARKED`] on top: there are waiters. **Fields.** `word`: see above. `state`: the holder.
//! `lease`: the holder. `turns[i]`: set by a waiter on its own place (`id` modulo `N`), cleared by
//! it or by the holder that hands over to it.
//!
//! **Crashes.** The claim is one compare-and-swap of the owner's identity, so at every instruction
//! the word names the process that must be alive.
//! * Dead before it: nothing happened, except perhaps a turn that no process takes: a hand-over to
//!   it makes a dead owner, which is found out like any other; but it never had the lock (`HANDED`
//!   says so), and the process that takes it over is told nothing.
//! * Dead as the owner: a waiter finds out, takes the lock over by compare-and-swap, and is told
//!   ([`Lock::owner_died`]). It declares the data consistent, or its release poisons the lock:
//!   [`LockError::Poisoned`] for all that come later. If it dies too, the next one is told again.
//! * Dead while releasing: the word still names it, or it does not; there is nothing between.
//!
//! **Memory.** `N` + 1 lines.
//!
//! **Don't use it** as a spin lock between threads that cannot die alone: `test_and_test_and_set`
//! is smaller.

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use crate::{Lock, LockError, PARKED, Waiting};

/// Time of a lease, in nanoseconds.
const LEASE: u64 = 200_000;
/// Maximum sleep of a waiter before it looks again, in nanoseconds.
const TURN: u64 = 2_000_000;
/// Value of `state` after a holder let go of inconsistent data.
const POISONED: u64 = 1;
/// In `word`: the owner got the lock by hand-over and has not touched the data yet.
const HANDED: u64 = 1 << 31;
/// In `word`: the owner's processor + 1.
const PROCESSOR: u64 = HANDED - 1;

/// Our robust lock, with `N` places for waiters (more can wait, but not all of them in
/// turn).
#[derive(Debug)]
#[repr(C)]
pub struct Robust<P: Processor, const N: usize = 64> {
    head: LockHead<P>,
    turns: [OwnLine<P::Word>; N],
}

#[derive(Debug)]
#[repr(C, align(64))]
struct LockHead<P: Processor> {
    word: P::Word,
    state: P::Word,
    /// Start of the present lease, in nanoseconds.
    lease: P::Word,
}

/// State of the holder.
#[derive(Debug)]
pub struct RobustHeld {
    me: u64,
    inconsistent: bool,
}

const fn identity(owner: u64) -> u32 {
    (owner >> 32) as u32 & 0x7fff_ffff
}

impl<P: Processor, const N: usize> Robust<P, N> {
    #[inline(always)]
    fn me<W: Waiting<P>>(cpu: &P, wait: &W) -> u64 {
        u64::from(wait.identity()) << 32 | (cpu.id() as u64 + 1) & PROCESSOR
    }

    fn turn(&self, owner: u64) -> &P::Word {
        &self.turns[((owner & PROCESSOR) as usize).wrapping_sub(1) % N].0
    }

    /// The lock is ours: is it worth having?
    fn enter<W: Waiting<P>>(&self, cpu: &P, wait: &W, held: RobustHeld) -> Result<RobustHeld, LockError> {
        // Relaxed: under the lock.
        if cpu.load(&self.head.state, Ordering::Relaxed) == POISONED {
            self.release(cpu, wait, held.me);
            return Err(LockError::Poisoned);
        }
        Ok(held)
    }

    #[cold]
    fn lock_slowly<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: u64) -> Result<RobustHeld, LockError> {
        let (word, turn) = (&self.head.word, self.turn(me));
        let mut round = 0u32;
        let mut checked = 0;
        let inconsistent = loop {
            // (3) Acquire: pairs with the Release (4), (5) of the owner that releases or hands
            // over.
            let value = cpu.load(word, Ordering::Acquire);
            let owner = value & !PARKED;
            // Without `HANDED` it is ours already: a second guard would be a second `&mut`. An
            // owner that asks for its own lock waits for itself.
            if owner == me | HANDED {
                // Handed over: say that we know. (6) Acquire: what we do to the data comes after.
                cpu.fetch_and(word, !HANDED, Ordering::Acquire);
                break false;
            }
            if owner == 0 {
                // (1b) Acquire: as (1) in `lock`; pairs with the Release (4).
                if cpu
                    .compare_exchange(word, value, me | value & PARKED, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
                {
                    break false;
                }
                continue;
            }
            let now = cpu.now();
            if now.wrapping_sub(checked) > 1_000_000 {
                checked = now;
                if !wait.is_alive(identity(owner)) {
                    // (2) Acquire: the dead holder's stores come before, since they happened before
                    // its death was known; it pairs with no Release but the dead one's earlier
                    // ones, (4), (5). Succeeds only if the value, and `HANDED` in it, was the dead
                    // one's last word.
                    if cpu
                        .compare_exchange(
                            word,
                            value,
                            me | value & PARKED,
                            Ordering::Acquire,
                            Ordering::Relaxed,
                        )
                        .is_ok()
                    {
                        break value & HANDED == 0;
                    }
                    continue;
                }
            }
            // Join the turns, then say so in the word. Relaxed: hints to the holder; a place that
            // is taken stays so.
            let _ = cpu.compare_exchange(turn, 0, me, Ordering::Relaxed, Ordering::Relaxed);
            if value & PARKED == 0
                && cpu
                    .compare_exchange(word, value, value | PARKED, Ordering::Relaxed, Ordering::Relaxed)
                    .is_err()
            {
                continue;
            }
            // Sleep on our own place: a hand-over clears it. If another waiter has it, it will be
            // cleared too. Relaxed: a hint; the loop looks again.
            let seen = cpu.load(turn, Ordering::Relaxed) & !PARKED;
            wait.wait_turn(cpu, turn, seen, round, TURN);
            round = round.saturating_add(1);
        };
        // Leave the turns, if we are still there. Relaxed: a hand-over after this would need the
        // lock, which we hold.
        let place = cpu.load(turn, Ordering::Relaxed);
        if place & !PARKED == me {
            wait.release(cpu, turn, 0);
        }
        // Relaxed: under the lock.
        cpu.store(&self.head.lease, cpu.now(), Ordering::Relaxed);
        self.enter(cpu, wait, RobustHeld { me, inconsistent })
    }

    #[inline(always)]
    fn release<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: u64) {
        // (4) Release: pairs with the Acquire (1), (3). Fails if there is a waiter.
        if cpu.compare_exchange(&self.head.word, me, 0, Ordering::Release, Ordering::Relaxed).is_err() {
            self.release_slowly(cpu, wait, me);
        }
    }

    #[cold]
    fn release_slowly<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: u64) {
        // Relaxed: under the lock.
        let lease = cpu.load(&self.head.lease, Ordering::Relaxed);
        let over = cpu.now().wrapping_sub(lease) > LEASE;
        let mine = (me & PROCESSOR) as usize;
        // Beginning behind our own place (it is number `mine - 1`).
        let next = (0..N).map(|i| &self.turns[(mine + i) % N].0).find_map(|turn| {
            // Relaxed: hints.
            let waiter = cpu.load(turn, Ordering::Relaxed) & !PARKED;
            (waiter != 0 && waiter != me).then_some((turn, waiter))
        });
        match next {
            Some((turn, waiter)) if over => {
                // (5) Release: hands over; pairs with the Acquire (3). Then wake it: its place
                // changes.
                cpu.store(&self.head.word, waiter | HANDED | PARKED, Ordering::Release);
                wait.release(cpu, turn, 0);
            }
            // The lease goes on: free for the processes that are awake. Sleepers look again when
            // their turn is over. Release: as (4).
            Some(_) => cpu.store(&self.head.word, PARKED, Ordering::Release),
            // There are no waiters any more. Release: as (4).
            None => cpu.store(&self.head.word, 0, Ordering::Release),
        }
    }
}

impl<P: Processor, const N: usize> Lock<P> for Robust<P, N> {
    const NAME: &'static str = "robust";
    const FIFO: bool = false;
    const KNOWS_OWNER: bool = true;
    type Held = RobustHeld;

    fn new(arena: &impl Arena<P>) -> Self {
        Robust {
            head: LockHead {
                word: arena.word(Place::NewLine, 0),
                state: arena.word(Place::SameLine, 0),
                lease: arena.word(Place::SameLine, 0),
            },
            turns: core::array::from_fn(|_| OwnLine(arena.word(Place::NewLine, 0))),
        }
    }

    #[inline(always)]
    fn lock<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<RobustHeld, LockError> {
        let me = Self::me(cpu, wait);
        // (1) Acquire, pairs with the Release (4) in `release`.
        match cpu.compare_exchange(&self.head.word, 0, me, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => self.enter(cpu, wait, RobustHeld { me, inconsistent: false }),
            // (1d) Acquire: as (1); pairs with the Release (4b).
            Err(PARKED)
                if cpu
                    .compare_exchange(
                        &self.head.word,
                        PARKED,
                        me | PARKED,
                        Ordering::Acquire,
                        Ordering::Relaxed,
                    )
                    .is_ok() =>
            {
                self.enter(cpu, wait, RobustHeld { me, inconsistent: false })
            }
            Err(_) => self.lock_slowly(cpu, wait, me),
        }
    }

    /// Tries once, as every `try_lock`; it does not ask whether a holder is alive, and
    /// knows no identity but 1: use `lock` between processes.
    fn try_lock(&self, cpu: &P) -> Option<RobustHeld> {
        let me = 1 << 32 | (cpu.id() as u64 + 1) & PROCESSOR;
        // (1c) Acquire: as (1); pairs with the Release (4).
        cpu.compare_exchange(&self.head.word, 0, me, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // Relaxed: under the lock.
        if cpu.load(&self.head.state, Ordering::Relaxed) == POISONED {
            // (4b) Release: as (4), pairs with the Acquire (1), (3). A waiter looks again when its
            // turn is over.
            cpu.store(&self.head.word, PARKED, Ordering::Release);
            return None;
        }
        Some(RobustHeld { me, inconsistent: false })
    }

    #[inline(always)]
    fn unlock<W: Waiting<P>>(&self, cpu: &P, wait: &W, held: RobustHeld) {
        if held.inconsistent {
            // Relaxed: under the lock, and before its release.
            cpu.store(&self.head.state, POISONED, Ordering::Relaxed);
        }
        self.release(cpu, wait, held.me);
    }

    fn owner_died(held: &RobustHeld) -> bool {
        held.inconsistent
    }

    fn make_consistent(&self, _cpu: &P, held: &mut RobustHeld) {
        held.inconsistent = false;
    }
}
