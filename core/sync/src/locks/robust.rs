//! `robust`: Towpath's own lock between processes. A holder that dies is found out,
//! and the next owner is told.
//!
//! **Source.** Ours. The owner's identity is the lock's value, as in the kernel's robust futexes,
//! but it is the waiters that ask whether the owner is alive, so that no list has to be kept.
//! Fairness by leases: a process that gets the lock by hand-over may take it again and again for a
//! while, undisturbed (which is what makes unfair locks fast); when the lease is over, the next
//! release hands the lock to the waiter whose turn comes after that process. Another one that finds
//! the lock free in between uses up the same lease, and passes over no turn.
//!
//! **Progress.** Blocking; every waiter is served after at most one lease of each waiter before it
//! in turn.
//!
//! | `word` (without [`PARKED`]) | meaning | leaves to |
//! | --- | --- | --- |
//! | 0 | free | an owner, by compare-and-swap |
//! | owner | held: identity in bits 32–62, processor + 1 in bits 0–30 | 0, by the owner; another owner and `HANDED`, by hand-over; another owner, by compare-and-swap, if this one is dead |
//! | owner, `HANDED` (bit 31) | given to an owner that has not noticed yet | the same without `HANDED`, by the owner; another owner, by compare-and-swap, if this one is dead or no longer in turn |
//!
//! [`PARKED`] on top: there are waiters. **Fields.** `word`: see above. `state`: the holder.
//! `lease`, `tenant`: the holder. `turns[i]`: set by a waiter on its own place (`id` modulo `N`),
//! marked with `HANDED` by the holder that hands over to it, cleared by the waiter when it has the
//! lock or gives up.
//!
//! **Crashes.** The claim is one compare-and-swap of the owner's identity, so at every instruction
//! the word names the process that must be alive.
//! * Dead before it: nothing happened, except perhaps a turn that no process takes: a hand-over to
//!   it makes a dead owner, which is found out like any other; but it never had the lock (`HANDED`
//!   says so), and the process that takes it over is told nothing.
//! * Dead as the owner: a waiter finds out, takes the lock over by compare-and-swap, and is told
//!   ([`Lock::owner_died`], [`Lock::dead_owner`]). It declares the data consistent, or its release
//!   poisons the lock ([`LockError::Poisoned`] for all that come later), or leaves the repair to
//!   the next owner ([`Lock::hand_on`]). If it dies too, the next one is told again.
//! * A waiter that gives up at its deadline leaves the turns. If the lock was handed to it
//!   meanwhile, it has the lock, and has not timed out.
//! * Dead while releasing: the word still names it, or it does not; there is nothing between.
//!
//! **Memory.** `N` + 1 lines.
//!
//! **Don't use it** as a spin lock between threads that cannot die alone: `test_and_test_and_set`
//! is smaller.

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use crate::turns::Turns;
use crate::{Deadline, Lock, LockError, PARKED, Waiting};

/// Usual time of a lease, in nanoseconds.
const USUAL_LEASE: u64 = 200_000;
/// Maximum sleep of a waiter before it looks again, in nanoseconds.
const TURN: u64 = 2_000_000;
/// Value of `state` after a holder let go of inconsistent data. Others, but 0: the
/// identity of a dead owner whose data no holder has repaired, above [`UNREPAIRED`].
const POISONED: u64 = 1;
/// In `state`: the data are inconsistent.
const UNREPAIRED: u64 = 2;
/// In `word`: the owner got the lock by hand-over and has not touched the data yet.
const HANDED: u64 = 1 << 31;
/// In `word`: the owner's processor + 1.
const PROCESSOR: u64 = HANDED - 1;

/// Our robust lock, with `N` places for waiters (more can wait, but not all of them in
/// turn). `LEASE`: time for which a process may take it again and again, in nanoseconds.
#[derive(Debug)]
#[repr(C)]
pub struct Robust<P: Processor, const N: usize = 64, const LEASE: u64 = USUAL_LEASE> {
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
    /// Processor + 1 of the process whose lease it is.
    tenant: P::Word,
}

/// State of the holder.
#[derive(Debug)]
pub struct RobustHeld {
    me: u64,
    inconsistent: bool,
    /// Identity of the dead owner; 0: there was none.
    dead: u32,
}

const fn identity(owner: u64) -> u32 {
    (owner >> 32) as u32 & 0x7fff_ffff
}

impl<P: Processor, const N: usize, const LEASE: u64> Robust<P, N, LEASE> {
    #[inline(always)]
    fn me<W: Waiting<P>>(cpu: &P, wait: &W) -> u64 {
        u64::from(wait.identity()) << 32 | (cpu.id() as u64 + 1) & PROCESSOR
    }

    fn turn(&self, owner: u64) -> &P::Word {
        &self.turns[((owner & PROCESSOR) as usize).wrapping_sub(1) % N].0
    }

    /// Takes the lock if it is free, with or without waiters that sleep.
    #[inline(always)]
    fn takes_free(&self, cpu: &P, me: u64) -> bool {
        let word = &self.head.word;
        // (1) Acquire: pairs with the Release (4), (4d) in `release`.
        match cpu.compare_exchange(word, 0, me, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => true,
            // (1d) Acquire: as (1); pairs with the Release (4b), (4c).
            Err(PARKED) => {
                cpu.compare_exchange(word, PARKED, me | PARKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
            }
            Err(_) => false,
        }
    }

    /// The lock is ours: is it worth having?
    fn enter<W: Waiting<P>>(&self, cpu: &P, wait: &W, held: RobustHeld) -> Result<RobustHeld, LockError> {
        // Relaxed: under the lock.
        match cpu.load(&self.head.state, Ordering::Relaxed) {
            0 => Ok(held),
            state => self.enter_inconsistent(cpu, wait, held, state),
        }
    }

    #[cold]
    fn enter_inconsistent<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        held: RobustHeld,
        state: u64,
    ) -> Result<RobustHeld, LockError> {
        if state == POISONED {
            self.release(cpu, wait, held.me);
            return Err(LockError::Poisoned);
        }
        let dead = if held.dead == 0 { identity(state) } else { held.dead };
        Ok(RobustHeld { inconsistent: true, dead, ..held })
    }

    #[cold]
    fn lock_slowly<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        me: u64,
        deadline: Deadline,
    ) -> Result<RobustHeld, LockError> {
        let (word, turn) = (&self.head.word, self.turn(me));
        let mut turns = Turns::new(cpu, deadline, TURN);
        let mut leased = true;
        let dead = loop {
            // Relaxed: each exchange below compares, and acquires what it takes.
            let value = cpu.load(word, Ordering::Relaxed);
            let owner = value & !PARKED;
            // Without `HANDED` it is ours already: a second guard would be a second `&mut`. An
            // owner that asks for its own lock waits for itself.
            if owner == me | HANDED {
                // Handed over: say that we know. (6) Acquire: pairs with the Release (5).
                // Fails if another waiter has left its mark, or has taken us for one that gave up.
                let known = value & !HANDED;
                if cpu.compare_exchange(word, value, known, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    break 0;
                }
                continue;
            }
            if owner == 0 {
                // (1b) Acquire: as (1) in `lock`; pairs with the Release (4).
                if cpu
                    .compare_exchange(word, value, me | value & PARKED, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
                {
                    leased = value == 0;
                    break 0;
                }
                continue;
            }
            if turns.is_time_to_ask(cpu) && !wait.is_alive(identity(owner)) {
                // Succeeds only if the value, and `HANDED` in it, was the dead one's last word. (2)
                // Acquire: of one that was handed the lock and has not said that it knows; pairs
                // with the Release (5). A holder's stores come before its death was known.
                if cpu
                    .compare_exchange(word, value, me | value & PARKED, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
                {
                    if value & HANDED == 0 {
                        break identity(owner);
                    }
                    self.leave_turns(cpu, wait, owner & !HANDED);
                    break 0;
                }
                continue;
            }
            if value & HANDED != 0 && !self.is_in_turn(cpu, owner) {
                // Handed to a waiter that has given up meanwhile: it does not take the lock.
                // (1e) Acquire: as (1) in `lock`; pairs with the Release (5).
                if cpu
                    .compare_exchange(word, value, me | value & PARKED, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
                {
                    break 0;
                }
                continue;
            }
            if deadline == Deadline::PAST {
                return Err(LockError::TimedOut);
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
            // Sleep on our own place: a hand-over marks it. If another waiter has it, it changes
            // too. Relaxed, both: hints; the loop looks again.
            let seen = cpu.load(turn, Ordering::Relaxed) & !PARKED;
            if seen == me | HANDED {
                // Of this hand-over, or of one that another waiter has taken: then it is our turn
                // once more.
                let _ = cpu.compare_exchange(turn, seen, me, Ordering::Relaxed, Ordering::Relaxed);
                continue;
            }
            if turns.wait(cpu, wait, turn, seen).is_err() {
                self.leave_turns(cpu, wait, me);
                // Handed over before that. Relaxed: the loop reads the word again, with Acquire. A
                // hand-over after that finds no waiter in turn, and other waiters take the lock.
                if cpu.load(word, Ordering::Relaxed) & !PARKED != me | HANDED {
                    return Err(LockError::TimedOut);
                }
            }
        };
        self.leave_turns(cpu, wait, me);
        // Found free between two releases of a lease: that one goes on. Relaxed, both: under the
        // lock.
        if leased {
            cpu.store(&self.head.lease, cpu.now(), Ordering::Relaxed);
            cpu.store(&self.head.tenant, me & PROCESSOR, Ordering::Relaxed);
        }
        self.enter(cpu, wait, RobustHeld { me, inconsistent: dead != 0, dead })
    }

    /// Returns whether a waiter waits in turn, or has been told that the lock is its own.
    fn is_in_turn(&self, cpu: &P, waiter: u64) -> bool {
        let waiter = waiter & !HANDED;
        // Relaxed: a hint. The lock may be taken from a waiter that was handed it, by an exchange.
        let place = cpu.load(self.turn(waiter), Ordering::Relaxed) & !(PARKED | HANDED);
        place == waiter
    }

    /// Leaves the turns, if the waiter is there.
    fn leave_turns<W: Waiting<P>>(&self, cpu: &P, wait: &W, waiter: u64) {
        let turn = self.turn(waiter);
        // Relaxed: others change a place only to say that they have handed the lock over.
        if cpu.load(turn, Ordering::Relaxed) & !(PARKED | HANDED) == waiter {
            // With Release, which no thread needs: the place is a hint.
            wait.release(cpu, turn, 0);
        }
    }

    #[inline(always)]
    fn release<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: u64) {
        // (4) Release: pairs with the Acquire (1), (1b). Fails if there is a waiter.
        if cpu.compare_exchange(&self.head.word, me, 0, Ordering::Release, Ordering::Relaxed).is_err() {
            self.release_slowly(cpu, wait, me);
        }
    }

    #[cold]
    fn release_slowly<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: u64) {
        // Relaxed: under the lock.
        let lease = cpu.load(&self.head.lease, Ordering::Relaxed);
        if cpu.now().wrapping_sub(lease) <= LEASE {
            // The lease goes on: free for the processes that are awake. Sleepers look again when
            // their turn is over. Whether there still are any is looked at when the lease is over.
            // (4c) Release: as (4), pairs with the Acquire (1b), (1d).
            cpu.store(&self.head.word, PARKED, Ordering::Release);
            return;
        }
        // Relaxed: under the lock. Damaged memory: any place will do.
        let tenant = (cpu.load(&self.head.tenant, Ordering::Relaxed) & PROCESSOR) as usize;
        // Beginning behind the tenant's place (it is number `tenant - 1`).
        let next = (0..N).map(|i| &self.turns[(tenant + i) % N].0).find_map(|turn| {
            // Relaxed: hints.
            let waiter = cpu.load(turn, Ordering::Relaxed) & !PARKED;
            (waiter != 0 && waiter & HANDED == 0 && waiter != me).then_some((turn, waiter))
        });
        match next {
            Some((turn, waiter)) => {
                // (5) Release: hands over; pairs with the Acquire (2), (6), (1e). Then wake it: its
                // place changes, unless it has left. Relaxed: a hint.
                cpu.store(&self.head.word, waiter | HANDED | PARKED, Ordering::Release);
                let told = waiter | HANDED;
                if cpu.compare_exchange(turn, waiter, told, Ordering::Relaxed, Ordering::Relaxed)
                    == Err(waiter | PARKED)
                    && cpu
                        .compare_exchange(turn, waiter | PARKED, told, Ordering::Relaxed, Ordering::Relaxed)
                        .is_ok()
                {
                    wait.wake_all(cpu, turn);
                }
            }
            // There are no waiters any more. (4d) Release: as (4); pairs with the Acquire (1),
            // (1b).
            None => cpu.store(&self.head.word, 0, Ordering::Release),
        }
    }
}

impl<P: Processor, const N: usize, const LEASE: u64> Lock<P> for Robust<P, N, LEASE> {
    const NAME: &'static str = if LEASE == 0 { "robust/handing" } else { "robust" };
    const FIFO: bool = false;
    const KNOWS_OWNER: bool = true;
    const HANDS_ON: bool = true;
    type Held = RobustHeld;

    fn new(arena: &impl Arena<P>) -> Self {
        Robust {
            head: LockHead {
                word: arena.word(Place::NewLine, 0),
                state: arena.word(Place::SameLine, 0),
                lease: arena.word(Place::SameLine, 0),
                tenant: arena.word(Place::SameLine, 0),
            },
            turns: core::array::from_fn(|_| OwnLine(arena.word(Place::NewLine, 0))),
        }
    }

    #[inline(always)]
    fn lock<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<RobustHeld, LockError> {
        self.lock_until(cpu, wait, Deadline::NEVER)
    }

    #[inline(always)]
    fn lock_until<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
    ) -> Result<RobustHeld, LockError> {
        let me = Self::me(cpu, wait);
        if self.takes_free(cpu, me) {
            return self.enter(cpu, wait, RobustHeld { me, inconsistent: false, dead: 0 });
        }
        self.lock_slowly(cpu, wait, me, deadline)
    }

    /// Tries once, as every `try_lock`; it does not ask whether a holder is alive, and
    /// knows no identity but 1: use `lock` between processes.
    fn try_lock(&self, cpu: &P) -> Option<RobustHeld> {
        let me = 1 << 32 | (cpu.id() as u64 + 1) & PROCESSOR;
        if !self.takes_free(cpu, me) {
            return None;
        }
        // Relaxed: under the lock. Half-changed data are left to owners with an identity.
        if cpu.load(&self.head.state, Ordering::Relaxed) != 0 {
            // (4b) Release: as (4), pairs with the Acquire (1d), (1b). A waiter looks again when
            // its turn is over.
            cpu.store(&self.head.word, PARKED, Ordering::Release);
            return None;
        }
        Some(RobustHeld { me, inconsistent: false, dead: 0 })
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

    fn dead_owner(held: &RobustHeld) -> Option<u32> {
        (held.dead != 0).then_some(held.dead)
    }

    fn hand_on<W: Waiting<P>>(&self, cpu: &P, wait: &W, held: RobustHeld) {
        if held.inconsistent {
            // Relaxed: under the lock, and before its release.
            cpu.store(&self.head.state, u64::from(held.dead) << 32 | UNREPAIRED, Ordering::Relaxed);
        }
        self.release(cpu, wait, held.me);
    }

    fn make_consistent(&self, cpu: &P, held: &mut RobustHeld) {
        // (9) Release: the repair comes first, also for a survivor of this process; pairs with the
        // kernel's order of all stores of the dead before their death.
        cpu.store(&self.head.state, 0, Ordering::Release);
        held.inconsistent = false;
    }
}
