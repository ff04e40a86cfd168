//! `robust`: Towpath's own lock between processes. A holder that dies is found out,
//! and the next owner is told.
//!
//! **Source.** Ours. The owner's identity is the lock's value, as in the kernel's robust futexes,
//! but it is the waiters that ask whether the owner is alive, so that no list has to be kept.
//!
//! A waiter tries for some microseconds, with pauses in which the owner has the word's line to
//! itself, and takes the lock whenever it finds it free; then it joins the turns and sleeps. So the
//! processes that run pass the lock among themselves, which is what makes unfair locks fast. The
//! first release after a waiter has joined looks for the one whose turn it is, then one every
//! `LEASE` / [`CALLS`], and *calls* it: wakes it, after the lock is free, and does not wait for it.
//! No lock lies idle while a waiter gets up, which takes longer than many critical sections. A
//! called waiter that gets the lock is its tenant; turns go round from there.
//!
//! Where users are more than cores, one that finds the lock taken after it has had its core for a
//! while ([`Waiting::rest_after`]) gives it to another. Otherwise the system would do so when its
//! time slice ends, often while it has the lock: then all others sleep, are called afterwards, and
//! it is chance which of them run.
//!
//! A lease begins with the tenant, or with the first waiter that joins. A waiter is handed the lock
//! if it was called and sleeps again after a lease, or is awake and has not got it within
//! [`PATIENCE`] of them. With a `LEASE` of 0 every release hands over.
//!
//! **Progress.** Blocking; a waiter is handed the lock after at most `PATIENCE` + 1 leases of each
//! waiter before it in turn, counted while it is awake or has not been called.
//!
//! | `word` (without [`PARKED`]) | meaning | leaves to |
//! | --- | --- | --- |
//! | 0 | free | an owner, by compare-and-swap |
//! | owner | held: identity in bits 32–62, processor + 1 in bits 0–28 | 0, by the owner; another owner and `HANDED`, by hand-over; another owner, by compare-and-swap, if this one is dead |
//! | owner, `HANDED` (bit 31) | given to an owner that has not noticed yet | the same without `HANDED`, by the owner; another owner, by compare-and-swap, if this one is dead or no longer in turn |
//!
//! [`PARKED`] on top: there are waiters. **Fields.** `word`: see above. `state`: the holder.
//! `lease`, `tenant`, `looked`, `due`, `spared`: hints, by the holder or the last one; `lease`
//! also by the first waiter. `rests`, `waiters[i].rested`: hints, by any; by the place's user.
//! `waiters[i].turn`: set by a waiter on its own place (by its `id`), cleared by the waiter
//! when it has the lock or gives up, and by others when it is dead. Marks on a place: `PARKED` when
//! its waiter goes to sleep; `CALLED` by the process that wakes it; `AWAKE` by the called waiter,
//! instead; both, when it has not come for a lease; `HANDED` by the holder that hands over to it.
//!
//! **Crashes.** The claim is one compare-and-swap of the owner's identity, so at every instruction
//! the word names the process that must be alive.
//! * Dead before it: nothing happened, except perhaps a turn that no process takes. Called, it does
//!   not come, and is taken out. A hand-over to it makes a dead owner, which is found out like any
//!   other; but it never had the lock (`HANDED` says so), and the process that takes it over is
//!   told nothing.
//! * Dead as the owner: a waiter finds out, takes the lock over by compare-and-swap, and is told
//!   ([`Lock::owner_died`], [`Lock::dead_owner`]). It declares the data consistent, or its release
//!   poisons the lock ([`LockError::Poisoned`] for all that come later), or leaves the repair to
//!   the next owner ([`Lock::hand_on`]). If it dies too, the next one is told again.
//! * A waiter that gives up at its deadline leaves the turns. If the lock was handed to it
//!   meanwhile, it has the lock, and has not timed out.
//! * Dead while releasing: the word still names it, or it does not; there is nothing between. A
//!   waiter that it did not call or wake any more looks again when its turn is over.
//!
//! **Memory.** `N` + 1 lines.
//!
//! **Don't use it** as a spin lock between threads that cannot die alone: `test_and_test_and_set`
//! is smaller.

mod releasing;
mod waiting;

use core::num::NonZeroU64;

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use crate::places::place_of;
use crate::{Deadline, Lock, LockError, PARKED, Waiting};

/// Usual time of a lease, in nanoseconds.
const USUAL_LEASE: u64 = 200_000;
/// Number of leases after which a waiter that is awake is handed the lock.
const PATIENCE: u64 = 8;
/// Number of looks for waiters in a lease.
const CALLS: u64 = 8;
/// Number of rests after a count of more users than cores, of all together.
const RESTS: u64 = 256;
/// Maximum sleep of a waiter before it looks again, in nanoseconds.
const TURN: u64 = 4_000_000;
/// Value of `state` after a holder let go of inconsistent data. Others, but 0: the
/// identity of a dead owner whose data no holder has repaired, above [`UNREPAIRED`].
const POISONED: u64 = 1;
/// Part of `state`: the data are inconsistent.
const UNREPAIRED: u64 = 2;
/// Part of `word`: the owner got the lock by hand-over and has not touched the data yet.
const HANDED: u64 = 1 << 31;
/// Part of a place: its waiter has been woken to take the lock soon.
const CALLED: u64 = 1 << 30;
/// Part of a place: its waiter was called, and is awake. With [`CALLED`]: it has not come
/// yet, and is passed over.
const AWAKE: u64 = 1 << 29;
/// Part of `word`: the owner's processor + 1.
const PROCESSOR: u64 = AWAKE - 1;
/// Marks on the waiter in a place.
const MARKS: u64 = PARKED | HANDED | CALLED | AWAKE;

/// Our robust lock, with `N` places for waiters (more can wait, but not all of them in
/// turn). `LEASE`: time for which a process may take it again and again, in nanoseconds.
#[derive(Debug)]
#[repr(C)]
pub struct Robust<P: Processor, const N: usize = 64, const LEASE: u64 = USUAL_LEASE> {
    head: LockHead<P>,
    waiters: [OwnLine<WaiterWords<P::Word>>; N],
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
    /// Time of the last look for waiters, in nanoseconds.
    looked: P::Word,
    /// 1: the next release looks for the waiter to hand over to.
    due: P::Word,
    /// Releases that read no clock, see [`releasing`].
    spared: P::Word,
    /// Number of rests until there must be more users than cores again.
    rests: P::Word,
}

#[derive(Debug)]
#[repr(C)]
struct WaiterWords<W> {
    turn: W,
    /// Time of its user's last rest, in nanoseconds.
    rested: W,
}

/// State of the holder.
#[derive(Debug)]
pub struct RobustHeld {
    me: u64,
    /// Identity of the dead owner (0: none) above [`INCONSISTENT`], with [`HELD`].
    death: NonZeroU64,
}

/// Part of a holder's state: the data are half changed.
const INCONSISTENT: u64 = 1;
/// Part of every holder's state: so an `Option` of it takes no further word.
const HELD: NonZeroU64 = NonZeroU64::new(1 << 63).unwrap();

impl RobustHeld {
    const fn dead(&self) -> u32 {
        (self.death.get() >> 1) as u32
    }

    const fn is_inconsistent(&self) -> bool {
        self.death.get() & INCONSISTENT != 0
    }

    /// State of a holder that found consistent data.
    #[inline(always)]
    const fn of(me: u64) -> Self {
        RobustHeld { me, death: HELD }
    }

    /// State of a holder that found half-changed data of a dead owner.
    fn after(me: u64, dead: u32) -> Self {
        RobustHeld { me, death: HELD | u64::from(dead) << 1 | INCONSISTENT }
    }

    /// Two words, which a caller without guards keeps until it releases.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Lock, Spinning, locks::Robust};
    /// let (cpu, lock) = (Native::current(), Robust::<Native>::new(&Heap));
    /// let words: [u64; 2] = lock.lock(&cpu, &Spinning)?.into_words();
    /// assert!(lock.try_lock(&cpu).is_none()); // still held
    /// # let _ = words;
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[inline(always)]
    pub fn into_words(self) -> [u64; 2] {
        [self.me, self.death.get()]
    }

    /// The state of these words.
    ///
    /// # Safety
    ///
    /// They came from [`RobustHeld::into_words`], and are used once.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Lock, Spinning, locks::{Robust, RobustHeld}};
    /// let (cpu, lock) = (Native::current(), Robust::<Native>::new(&Heap));
    /// let words = lock.lock(&cpu, &Spinning)?.into_words();
    /// // SAFETY: they came from `into_words`, and are used once.
    /// lock.unlock(&cpu, &Spinning, unsafe { RobustHeld::from_words(words) });
    /// assert!(lock.try_lock(&cpu).is_some());
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[inline(always)]
    #[allow(unsafe_code)]
    pub unsafe fn from_words(words: [u64; 2]) -> RobustHeld {
        RobustHeld { me: words[0], death: HELD | words[1] }
    }
}

const fn identity(owner: u64) -> u32 {
    (owner >> 32) as u32 & 0x7fff_ffff
}

impl<P: Processor, const N: usize, const LEASE: u64> Robust<P, N, LEASE> {
    #[inline(always)]
    fn owner(cpu: &P, identity: u32) -> u64 {
        u64::from(identity) << 32 | (cpu.id() as u64 + 1) & PROCESSOR
    }

    /// Number of a waiter's place.
    fn place(owner: u64) -> usize {
        place_of(((owner & PROCESSOR) as usize).wrapping_sub(1), N)
    }

    fn turn(&self, owner: u64) -> &P::Word {
        &self.waiters[Self::place(owner)].turn
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
        let dead = if held.dead() == 0 { identity(state) } else { held.dead() };
        Ok(RobustHeld::after(held.me, dead))
    }

    #[inline(always)]
    fn release<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: u64) {
        if !self.releases_alone(cpu, me) {
            self.release_slowly(cpu, wait, me);
        }
    }

    /// Releases unless there is a waiter.
    #[inline(always)]
    fn releases_alone(&self, cpu: &P, me: u64) -> bool {
        // (4) Release: pairs with the Acquire (1), (1b). Fails if there is a waiter.
        cpu.compare_exchange(&self.head.word, me, 0, Ordering::Release, Ordering::Relaxed).is_ok()
    }
}

impl<P: Processor, const N: usize, const LEASE: u64> Lock<P> for Robust<P, N, LEASE> {
    const NAME: &'static str = match LEASE {
        0 => "robust/handing",
        // Calls and hands over at nearly every release: for tests.
        1 => "robust/calling",
        _ => "robust",
    };
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
                looked: arena.word(Place::SameLine, 0),
                due: arena.word(Place::SameLine, 0),
                spared: arena.word(Place::SameLine, 0),
                rests: arena.word(Place::SameLine, 0),
            },
            waiters: core::array::from_fn(|_| {
                OwnLine(WaiterWords {
                    turn: arena.word(Place::NewLine, 0),
                    rested: arena.word(Place::SameLine, 0),
                })
            }),
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
        let me = Self::owner(cpu, wait.identity());
        if self.takes_free(cpu, me) {
            return self.enter(cpu, wait, RobustHeld::of(me));
        }
        self.lock_slowly(cpu, wait, me, deadline)
    }

    /// Tries once, as every `try_lock`; it does not ask whether a holder is alive, and
    /// knows no identity but 1: use `lock` between processes.
    fn try_lock(&self, cpu: &P) -> Option<RobustHeld> {
        self.try_lock_as(cpu, 1)
    }

    #[inline(always)]
    fn try_lock_as(&self, cpu: &P, identity: u32) -> Option<RobustHeld> {
        let me = Self::owner(cpu, identity);
        if !self.takes_free(cpu, me) {
            return None;
        }
        // Relaxed: under the lock. Half-changed data are left to owners that can be told.
        if cpu.load(&self.head.state, Ordering::Relaxed) != 0 {
            // (4b) Release: as (4), pairs with the Acquire (1d), (1b). A waiter looks again when
            // its turn is over.
            cpu.store(&self.head.word, PARKED, Ordering::Release);
            return None;
        }
        Some(RobustHeld::of(me))
    }

    fn lock_after<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
    ) -> Result<RobustHeld, LockError> {
        self.lock_slowly(cpu, wait, Self::owner(cpu, wait.identity()), deadline)
    }

    #[inline(always)]
    fn unlock<W: Waiting<P>>(&self, cpu: &P, wait: &W, held: RobustHeld) {
        if held.is_inconsistent() {
            // Relaxed: under the lock, and before its release.
            cpu.store(&self.head.state, POISONED, Ordering::Relaxed);
        }
        self.release(cpu, wait, held.me);
    }

    #[inline(always)]
    fn unlock_at_once(&self, cpu: &P, held: RobustHeld) -> Option<RobustHeld> {
        if !held.is_inconsistent() && self.releases_alone(cpu, held.me) { None } else { Some(held) }
    }

    fn unlock_after<W: Waiting<P>>(&self, cpu: &P, wait: &W, held: RobustHeld) {
        if held.is_inconsistent() {
            return self.unlock(cpu, wait, held);
        }
        self.release_slowly(cpu, wait, held.me);
    }

    fn owner_died(held: &RobustHeld) -> bool {
        held.is_inconsistent()
    }

    fn dead_owner(held: &RobustHeld) -> Option<u32> {
        (held.dead() != 0).then_some(held.dead())
    }

    fn hand_on<W: Waiting<P>>(&self, cpu: &P, wait: &W, held: RobustHeld) {
        if held.is_inconsistent() {
            // Relaxed: under the lock, and before its release.
            cpu.store(&self.head.state, u64::from(held.dead()) << 32 | UNREPAIRED, Ordering::Relaxed);
        }
        self.release(cpu, wait, held.me);
    }

    fn make_consistent(&self, cpu: &P, held: &mut RobustHeld) {
        // Relaxed: before the release (4). A survivor of this process, which has the lock, is
        // told of this death whatever the state is.
        cpu.store(&self.head.state, 0, Ordering::Relaxed);
        held.death = HELD | held.death.get() & !INCONSISTENT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutex::adaptive;
    use towpath_machine::{Heap, Native};

    #[test]
    fn waiter_joins_where_a_mark_has_outlived_its_waiter() {
        let lock = Robust::<Native, 4>::new(&Heap);
        let (holder, waiter) = (Native::with_id(0), Native::with_id(1));
        let me = Robust::<Native, 4>::owner(&waiter, 1);
        let place = || waiter.load(lock.turn(me), Ordering::SeqCst);
        waiter.store(lock.turn(me), PARKED, Ordering::SeqCst);
        let held = lock.lock(&holder, &adaptive()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let held = lock.lock(&waiter, &adaptive()).unwrap();
                lock.unlock(&waiter, &adaptive(), held);
            });
            let has_joined = (0..10_000).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(1));
                place() & !MARKS == me
            });
            lock.unlock(&holder, &adaptive(), held);
            assert!(has_joined, "it sleeps where no holder looks for waiters");
        });
        assert_eq!(place() & !MARKS, 0);
    }
}
