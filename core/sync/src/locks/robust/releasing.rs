//! A holder's steps where others wait: calling one, and handing over.
//!
//! The clock takes as long as a short critical section. So where releases are frequent, several in
//! a row do not read it: an eighth of those between two looks for waiters, at most [`MOST_SPARED`].
//! But where a waiter asks for a look (`looked` is 0), the next release looks.
//!
//! ```text
//! spared:  63                          16 15           8 7         0
//!          [ times the clock was read    ][ in a row   ][ left     ]
//! ```

use towpath_machine::{Ordering, Processor};

use super::{AWAKE, CALLED, CALLS, HANDED, MARKS, PATIENCE, Robust, identity};
use crate::{PARKED, Waiting};

/// Next owner of a lock for which others may wait.
enum Next<'a, W> {
    /// Any process: no other waits, but for those that have been called.
    Any,
    /// Any that is awake; the waiter in that place is called.
    AnyAwake(&'a W, u64),
    /// The waiter in that place, to which it is handed.
    Waiter(&'a W, u64),
}

/// Maximum number of releases in a row that do not read the clock.
const MOST_SPARED: u64 = 15;
/// Part of `spared`: releases that are left until the clock is read.
const LEFT: u64 = 0xff;
/// Part of `spared`: first bit of the number of releases in a row.
const IN_A_ROW: u32 = 8;
/// Part of `spared`: once that the clock was read.
const READ: u64 = 1 << 16;

/// The word `spared` after a release.
const fn after_release(spared: u64) -> u64 {
    match spared & LEFT {
        0 => (spared | spared >> IN_A_ROW & LEFT).wrapping_add(READ),
        _ => spared - 1,
    }
}

/// The word `spared` after a look for waiters.
fn after_look(spared: u64) -> u64 {
    let in_a_row = spared >> IN_A_ROW & LEFT;
    let releases = (spared / READ).wrapping_mul(in_a_row + 1);
    let in_a_row = (releases / 8).min(MOST_SPARED);
    in_a_row << IN_A_ROW | in_a_row
}

impl<P: Processor, const N: usize, const LEASE: u64> Robust<P, N, LEASE> {
    #[cold]
    pub(super) fn release_slowly<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: u64) {
        // Relaxed, all: under the lock.
        if LEASE > 0 && cpu.load(&self.head.due, Ordering::Relaxed) == 0 {
            let spared = cpu.load(&self.head.spared, Ordering::Relaxed);
            let next = after_release(spared);
            let looks = spared & LEFT == 0 || cpu.load(&self.head.looked, Ordering::Relaxed) == 0;
            cpu.store(&self.head.spared, next, Ordering::Relaxed);
            self.set_free(cpu);
            if looks {
                self.look(cpu, wait, me, next);
            }
            return;
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
    fn look<W: Waiting<P>>(&self, cpu: &P, wait: &W, me: u64, spared: u64) {
        let now = cpu.now();
        // Relaxed, all: hints.
        if now.wrapping_sub(cpu.load(&self.head.looked, Ordering::Relaxed)) <= LEASE / CALLS {
            return;
        }
        cpu.store(&self.head.looked, now, Ordering::Relaxed);
        cpu.store(&self.head.spared, after_look(spared), Ordering::Relaxed);
        match self.next(cpu, wait, me, now) {
            Next::AnyAwake(turn, place) => Self::tell(cpu, wait, turn, place, CALLED),
            Next::Any | Next::Waiter(..) => cpu.store(&self.head.due, 1, Ordering::Relaxed),
        }
    }

    /// Marks a waiter's place, unless it has left, and wakes it.
    fn tell<W: Waiting<P>>(cpu: &P, wait: &W, turn: &P::Word, place: u64, mark: u64) {
        let marked = place & !MARKS | mark;
        // (7) Release: the word before it; pairs with the Acquire (7b), (7c). Relaxed if it fails:
        // the mark is put anew, or the waiter has left.
        let mark = |place| cpu.compare_exchange(turn, place, marked, Ordering::Release, Ordering::Relaxed);
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
        for turn in (1..=N).map(|i| &self.waiters[(tenant + i) % N].turn) {
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
    pub(super) fn ask_after<W: Waiting<P>>(&self, cpu: &P, wait: &W, turn: &P::Word, place: u64) {
        let new = match place & CALLED {
            _ if !wait.is_alive(identity(place)) => 0,
            0 => return,
            _ => place | AWAKE,
        };
        // Relaxed: a hint.
        let _ = cpu.compare_exchange(turn, place, new, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lock, Spinning};
    use towpath_machine::{Heap, Native};

    #[test]
    fn release_that_spares_the_clock_calls_a_new_sleeper() {
        let (cpu, waiter) = (Native::with_id(0), 2 | PARKED);
        let lock = Robust::<Native>::new(&Heap);
        let turn = lock.turn(waiter);
        for (looked, is_called) in [(cpu.now(), false), (0, true)] {
            cpu.store(&lock.head.spared, 5, Ordering::Relaxed);
            cpu.store(&lock.head.looked, looked, Ordering::Relaxed);
            cpu.store(turn, waiter, Ordering::Relaxed);
            lock.release_slowly(&cpu, &Spinning, 1);
            assert_eq!(cpu.load(turn, Ordering::Relaxed) & CALLED != 0, is_called, "looked: {looked}");
        }
    }

    #[test]
    fn clock_is_read_less_often_where_releases_are_frequent() {
        // Number of reads in an interval of so many releases.
        let reads = |spared: &mut u64, releases: u64| {
            let mut reads = 0;
            for _ in 0..releases {
                reads += u64::from(*spared & LEFT == 0);
                *spared = after_release(*spared);
            }
            *spared = after_look(*spared);
            reads
        };
        let mut spared = 0;
        assert_eq!(reads(&mut spared, 200), 200);
        assert_eq!(reads(&mut spared, 200), 12, "one of sixteen");
        assert_eq!(reads(&mut spared, 32), 2);
        assert_eq!(reads(&mut spared, 4), 0, "as many as were left");
        assert_eq!(reads(&mut spared, 4), 4, "each, where they are rare");
    }
}
