//! A waiter's steps: watching, its turn, sleep, and the owner's death.

use towpath_machine::{Ordering, Processor};

use super::{AWAKE, CALLED, HANDED, MARKS, PROCESSOR, RESTS, Robust, RobustHeld, TURN, identity};
use crate::turns::Turns;
use crate::{Deadline, LockError, PARKED, Waiting};

impl<P: Processor, const N: usize, const LEASE: u64> Robust<P, N, LEASE> {
    #[cold]
    pub(super) fn lock_slowly<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        me: u64,
        deadline: Deadline,
    ) -> Result<RobustHeld, LockError> {
        let (word, turn) = (&self.head.word, self.turn(me));
        if deadline != Deadline::PAST {
            self.rest(cpu, wait, me);
        }
        let (mut turns, mut is_tenant, mut is_new, mut attempts) = (None, false, true, 0);
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
            if LEASE > 0 && deadline != Deadline::PAST && wait.pause(cpu, attempts) {
                // Awake, it takes part in the leases of others. An exchange without a look before
                // it fetches the word's line once.
                attempts += 1;
                if self.takes_free(cpu, me) {
                    break 0;
                }
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
            // The next release looks for sleepers, however lately the last one did. Not for each
            // turn of one that spins, where each release would look at all places.
            if is_new || asks {
                is_new = false;
                cpu.store(&self.head.looked, 0, Ordering::Relaxed);
                self.count_users(cpu, wait);
            }
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
                is_new = true;
                // (7b) Acquire: the word of the hand-over, so that it does not sleep by an old one;
                // pairs with the Release (7).
                let _ = cpu.compare_exchange(turn, seen, me, Ordering::Acquire, Ordering::Relaxed);
                continue;
            }
            if seen & !MARKS == me && seen & CALLED != 0 {
                // Say that we are awake, and look whether the lock is free.
                (is_tenant, is_new, attempts) = (true, true, 0);
                let awake = me | AWAKE;
                // (7c) Acquire: the word that was set free; pairs with the Release (7).
                let _ = cpu.compare_exchange(turn, seen, awake, Ordering::Acquire, Ordering::Relaxed);
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
        if turns.is_some() && wait.rest_after(usize::MAX).is_some() {
            // It has rested. Relaxed: a hint.
            cpu.store(&self.waiters[Self::place(me)].rested, cpu.now(), Ordering::Relaxed);
        }
        // If not called, it takes part in the lease of another. Its release calls the next one,
        // however lately it was called itself. Relaxed, all: under the lock.
        if is_tenant {
            cpu.store(&self.head.lease, cpu.now(), Ordering::Relaxed);
            cpu.store(&self.head.tenant, me & PROCESSOR, Ordering::Relaxed);
            cpu.store(&self.head.looked, 0, Ordering::Relaxed);
        }
        let held = if dead == 0 { RobustHeld::of(me) } else { RobustHeld::after(me, dead) };
        self.enter(cpu, wait, held)
    }

    /// Gives the core to another user of the lock if there were more of them than cores
    /// lately, and this one has had it for long.
    fn rest<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: u64) {
        let Some(time) = wait.rest_after(usize::MAX) else { return };
        let rested = &self.waiters[Self::place(me)].rested;
        // Relaxed, all: hints. Where others wait in turn it rests asleep.
        let rests = cpu.load(&self.head.rests, Ordering::Relaxed);
        let is_alone = cpu.load(&self.head.word, Ordering::Relaxed) & PARKED == 0;
        if rests == 0 || !is_alone || cpu.now().wrapping_sub(cpu.load(rested, Ordering::Relaxed)) < time {
            return;
        }
        cpu.store(&self.head.rests, rests - 1, Ordering::Relaxed);
        wait.rest(cpu);
        cpu.store(rested, cpu.now(), Ordering::Relaxed);
    }

    /// Has the users rest now and then if there are more of them than cores.
    fn count_users<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        if wait.rest_after(usize::MAX).is_none() {
            return;
        }
        // Relaxed, both: hints.
        let waits = |turn: &P::Word| cpu.load(turn, Ordering::Relaxed) & !MARKS != 0;
        let waiters = self.waiters.iter().filter(|waiter| waits(&waiter.turn)).count();
        // One has the lock.
        if wait.rest_after(waiters + 1).is_some() {
            cpu.store(&self.head.rests, RESTS, Ordering::Relaxed);
        }
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
}
