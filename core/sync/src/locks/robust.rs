//! `robust`: Towpath's own lock between processes. A holder that dies is found out,
//! and the next owner is told.
//!
//! **Source.** Ours. The owner's identity is the lock's value, as in the kernel's robust futexes,
//! but it is the waiters that ask whether the owner is alive, so that no list has to be kept.
//!
//! A waiter watches the word for some microseconds and takes the lock whenever it finds it free;
//! then it joins the turns and sleeps. So the processes that run pass the lock among themselves,
//! which is what makes unfair locks fast. The first release after a waiter has joined looks for the
//! one whose turn it is, then one every `LEASE` / [`CALLS`], and *calls* it: wakes it, after the
//! lock is free, and does not wait for it. No lock lies idle while a waiter gets up, which takes
//! longer than many critical sections. A called waiter that gets the lock is its tenant; turns go
//! round from there.
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
//! `lease`, `tenant`, `looked`, `due`: hints, by the holder or the last one; `lease` also by the
//! first waiter. `turns[i]`: set by a waiter on its own place (by its `id`), cleared by the waiter
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

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use crate::places::place_of;
use crate::turns::Turns;
use crate::{Deadline, Lock, LockError, PARKED, Waiting};

/// Usual time of a lease, in nanoseconds.
const USUAL_LEASE: u64 = 200_000;
/// Number of leases after which a waiter that is awake is handed the lock.
const PATIENCE: u64 = 8;
/// Number of looks for waiters in a lease.
const CALLS: u64 = 8;
/// Number of looks at a lock before a waiter sleeps.
const ATTEMPTS: u32 = 64;
/// Number of them for which one counts during which the lock did not change hands.
const IN_VAIN: u32 = 32;
/// Maximum sleep of a waiter before it looks again, in nanoseconds.
const TURN: u64 = 4_000_000;
/// Value of `state` after a holder let go of inconsistent data. Others, but 0: the
/// identity of a dead owner whose data no holder has repaired, above [`UNREPAIRED`].
const POISONED: u64 = 1;
/// In `state`: the data are inconsistent.
const UNREPAIRED: u64 = 2;
/// In `word`: the owner got the lock by hand-over and has not touched the data yet.
const HANDED: u64 = 1 << 31;
/// In a place: its waiter has been woken to take the lock soon.
const CALLED: u64 = 1 << 30;
/// In a place: its waiter was called, and is awake. With [`CALLED`]: it has not come yet,
/// and is passed over.
const AWAKE: u64 = 1 << 29;
/// In `word`: the owner's processor + 1.
const PROCESSOR: u64 = AWAKE - 1;
/// Marks on the waiter in a place.
const MARKS: u64 = PARKED | HANDED | CALLED | AWAKE;

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
    /// Time of the last look for waiters, in nanoseconds.
    looked: P::Word,
    /// 1: the next release looks for the waiter to hand over to.
    due: P::Word,
}

/// State of the holder.
#[derive(Debug)]
pub struct RobustHeld {
    me: u64,
    inconsistent: bool,
    /// Identity of the dead owner; 0: there was none.
    dead: u32,
}

impl RobustHeld {
    /// Two words, which a caller without guards keeps until it releases.
    #[inline(always)]
    pub fn into_words(self) -> [u64; 2] {
        [self.me, u64::from(self.dead) << 1 | u64::from(self.inconsistent)]
    }

    /// The state of these words.
    ///
    /// # Safety
    ///
    /// They came from [`RobustHeld::into_words`], and are used once.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub unsafe fn from_words(words: [u64; 2]) -> RobustHeld {
        RobustHeld { me: words[0], inconsistent: words[1] & 1 != 0, dead: (words[1] >> 1) as u32 }
    }
}

/// Next owner of a lock for which others may wait.
enum Next<'a, W> {
    /// Any process: no other waits, but for those that have been called.
    Any,
    /// Any that is awake; the waiter in that place is called.
    AnyAwake(&'a W, u64),
    /// The waiter in that place, to which it is handed.
    Waiter(&'a W, u64),
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
        &self.turns[Self::place(owner)].0
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
        let (mut turns, mut is_tenant, mut attempts) = (None, false, 0);
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
                    is_tenant = true;
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
                    break 0;
                }
                continue;
            }
            if LEASE > 0 && deadline != Deadline::PAST && attempts < ATTEMPTS {
                // Awake, it takes part in the leases of others.
                attempts += if wait.watch(cpu, word, owner) { 1 } else { IN_VAIN };
                continue;
            }
            let turns = turns.get_or_insert_with(|| Turns::new(cpu, deadline, TURN).called());
            let asks = turns.is_time_to_ask(cpu);
            if asks && !wait.is_alive(identity(owner)) {
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
            match cpu.compare_exchange(turn, 0, me, Ordering::Relaxed, Ordering::Relaxed) {
                // A mark that has outlived its waiter: of one that slept there when the place was
                // cleared.
                Err(place) if place & !MARKS == 0 => {
                    let _ = cpu.compare_exchange(turn, place, me, Ordering::Relaxed, Ordering::Relaxed);
                }
                Err(place) if asks && place & !MARKS != me => self.ask_after(cpu, wait, turn, place),
                _ => {}
            }
            // The next release looks for sleepers, however lately the last one did.
            cpu.store(&self.head.looked, 0, Ordering::Relaxed);
            if value & PARKED == 0 {
                let marked = value | PARKED;
                if cpu.compare_exchange(word, value, marked, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                    continue;
                }
                // The first one that waits: the holder's lease begins. Relaxed: a hint.
                cpu.store(&self.head.lease, cpu.now(), Ordering::Relaxed);
            }
            // Sleep on our own place: a hand-over marks it. If another waiter has it, it changes
            // too. Relaxed, both: hints; the loop looks again.
            let seen = cpu.load(turn, Ordering::Relaxed) & !PARKED;
            if seen & !MARKS == 0 {
                // Cleared meanwhile: join, rather than sleep where no process looks for waiters.
                continue;
            }
            if seen == me | HANDED {
                // Of this hand-over, or of one that another waiter has taken: then it is our turn
                // once more.
                let _ = cpu.compare_exchange(turn, seen, me, Ordering::Relaxed, Ordering::Relaxed);
                continue;
            }
            if seen & !MARKS == me && seen & CALLED != 0 {
                // Say that we are awake, and look whether the lock is free.
                (is_tenant, attempts) = (true, 0);
                let awake = me | AWAKE;
                let _ = cpu.compare_exchange(turn, seen, awake, Ordering::Relaxed, Ordering::Relaxed);
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
        // If not called, it takes part in the lease of another. Its release calls the next one,
        // however lately it was called itself. Relaxed, all: under the lock.
        if is_tenant {
            cpu.store(&self.head.lease, cpu.now(), Ordering::Relaxed);
            cpu.store(&self.head.tenant, me & PROCESSOR, Ordering::Relaxed);
            cpu.store(&self.head.looked, 0, Ordering::Relaxed);
        }
        self.enter(cpu, wait, RobustHeld { me, inconsistent: dead != 0, dead })
    }

    /// Returns whether a waiter waits in turn, or has been told that the lock is its own.
    fn is_in_turn(&self, cpu: &P, waiter: u64) -> bool {
        let waiter = waiter & !HANDED;
        // Relaxed: a hint. The lock may be taken from a waiter that was handed it, by an exchange.
        cpu.load(self.turn(waiter), Ordering::Relaxed) & !MARKS == waiter
    }

    /// Leaves the turns, if the waiter is there.
    fn leave_turns<W: Waiting<P>>(&self, cpu: &P, wait: &W, waiter: u64) {
        let turn = self.turn(waiter);
        // Relaxed: others change the marks of a place only, while its waiter lives.
        if cpu.load(turn, Ordering::Relaxed) & !MARKS == waiter {
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
        // Relaxed, both: under the lock.
        if LEASE > 0 && cpu.load(&self.head.due, Ordering::Relaxed) == 0 {
            self.set_free(cpu);
            return self.look(cpu, wait, me);
        }
        cpu.store(&self.head.due, 0, Ordering::Relaxed);
        match self.next(cpu, wait, me, cpu.now()) {
            Next::Waiter(turn, place) => {
                // (5) Release: hands over; pairs with the Acquire (2), (6), (1e).
                cpu.store(&self.head.word, place & !MARKS | HANDED | PARKED, Ordering::Release);
                Self::tell(cpu, wait, turn, place, HANDED);
            }
            Next::AnyAwake(turn, place) => {
                self.set_free(cpu);
                Self::tell(cpu, wait, turn, place, CALLED);
            }
            // (4d) Release: as (4); pairs with the Acquire (1), (1b).
            Next::Any => cpu.store(&self.head.word, 0, Ordering::Release),
        }
    }

    /// Lets go of the lock, for the processes that are awake.
    #[inline(always)]
    fn set_free(&self, cpu: &P) {
        // Sleepers look again when their turn is over. (4c) Release: as (4), pairs with the Acquire
        // (1b), (1d).
        cpu.store(&self.head.word, PARKED, Ordering::Release);
    }

    /// Looks for sleepers now and then, when the lock is free, and calls one.
    ///
    /// The next release looks for a waiter to hand over to if there is one.
    fn look<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: u64) {
        let now = cpu.now();
        // Relaxed, all: hints.
        if now.wrapping_sub(cpu.load(&self.head.looked, Ordering::Relaxed)) <= LEASE / CALLS {
            return;
        }
        cpu.store(&self.head.looked, now, Ordering::Relaxed);
        match self.next(cpu, wait, me, now) {
            Next::AnyAwake(turn, place) => Self::tell(cpu, wait, turn, place, CALLED),
            Next::Any | Next::Waiter(..) => cpu.store(&self.head.due, 1, Ordering::Relaxed),
        }
    }

    /// Marks a waiter's place, unless it has left, and wakes it.
    fn tell<W: Waiting<P>>(cpu: &P, wait: &W, turn: &P::Word, place: u64, mark: u64) {
        let marked = place & !MARKS | mark;
        // Relaxed: a hint.
        let mark = |place| cpu.compare_exchange(turn, place, marked, Ordering::Relaxed, Ordering::Relaxed);
        let told = match mark(place) {
            // It has gone to sleep meanwhile.
            Err(now) if now == place | PARKED => mark(now),
            told => told,
        };
        if told.is_ok_and(|place| place & PARKED != 0) {
            wait.wake_all(cpu, turn);
        }
    }

    /// Looks for the waiter whose turn it is.
    fn next<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: u64, now: u64) -> Next<'_, P::Word> {
        // Relaxed, both: hints. Damaged memory: any place will do.
        let age = now.wrapping_sub(cpu.load(&self.head.lease, Ordering::Relaxed));
        let tenant = Self::place(cpu.load(&self.head.tenant, Ordering::Relaxed));
        // Beginning behind the tenant's place.
        for turn in (1..=N).map(|i| &self.turns[(tenant + i) % N].0) {
            // Relaxed: hints.
            let place = cpu.load(turn, Ordering::Relaxed);
            let waiter = place & !MARKS;
            if waiter == 0 || waiter == me || place & HANDED != 0 {
                continue;
            }
            let (is_called, sleeps) = (place & CALLED != 0, place & PARKED != 0);
            let is_due = match sleeps {
                // It was called, and did not get the lock while it was awake.
                true => place & AWAKE != 0 && age > LEASE,
                false => !is_called && age > PATIENCE * LEASE,
            };
            if is_due || LEASE == 0 {
                return Next::Waiter(turn, place);
            }
            if !is_called {
                return Next::AnyAwake(turn, place);
            }
            if place & AWAKE == 0 && age > LEASE {
                self.ask_after(cpu, wait, turn, place);
            }
        }
        Next::Any
    }

    /// Takes a waiter out of its place if it is dead. One that was called, and lives, is
    /// passed over from now on.
    fn ask_after<W: Waiting<P>>(&self, cpu: &P, wait: &W, turn: &P::Word, place: u64) {
        let new = match place & CALLED {
            _ if !wait.is_alive(identity(place)) => 0,
            0 => return,
            _ => place | AWAKE,
        };
        // Relaxed: a hint.
        let _ = cpu.compare_exchange(turn, place, new, Ordering::Relaxed, Ordering::Relaxed);
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
        let me = Self::owner(cpu, wait.identity());
        if self.takes_free(cpu, me) {
            return self.enter(cpu, wait, RobustHeld { me, inconsistent: false, dead: 0 });
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
