//! `condvar`: waiters that have let go of a mutex until they are notified. A notification
//! that a waiter got and died with goes to another.
//!
//! **Source.** Ours, after the observation that glibc's condition variable hangs when a waiter
//! was killed (sourceware 21422): its groups count waiters that will never confirm. Here each
//! waiter has a place of its own and sleeps on it. The oldest is notified, and its place says so
//! until another needs it, which has the mutex then: until then the place tells survivors what
//! became of the notification.
//!
//! **Progress.** Notifying takes a look at each place that was ever used. Waiting is blocking.
//! First come, first served. Wakes for no reason are possible: the caller looks at its condition
//! again.
//!
//! | `places[i]` (without [`PARKED`]) | meaning | leaves to |
//! | --- | --- | --- |
//! | 0 | free | waits, by a waiter that holds the mutex |
//! | identity, [`WAITS`], ticket | waits | notified, by any; 0, by the waiter that gives up, or by a survivor if it is dead |
//! | identity, [`NOTIFIED`], ticket | was notified, and has not said so | served, by the waiter, with the mutex; 0, by a survivor if it is dead, after that has gone on as if notified |
//! | identity, ticket | served: had the mutex after that | waits, by a waiter that holds the mutex, so that this one has released it; 0, by a survivor if it is dead, after that has gone on as if notified |
//!
//! **Fields.** `places[i]`: see above. `tickets`: number of waits so far. `used`: a bit for each
//! place that was ever taken.
//!
//! **Crashes.** A waiter that waits: the next waiter that looks clears its place; if it was
//! notified meanwhile, as the next line says. A waiter that was notified, with the mutex or before
//! it has it: another waiter finds that out within a few milliseconds, and goes on as if it had
//! been notified itself. So it does, for no reason, after the death of one that has released the
//! mutex since. A notifier, before the exchange: it has not notified; after it: the waiter looks
//! again within a few milliseconds. Waiters that come after a notification was lost with its waiter
//! have looked at the condition later.
//!
//! **Memory.** `N` + 1 lines.
//!
//! **Don't use it** for more than `N` waiters at one time: those beyond poll.

mod threads;

use towpath_derive::OpaqueDebug;
use towpath_machine::{Arena, Native, Ordering, OwnLine, Place, Processor};

use crate::turns::{TURN, Turns};
use crate::{Deadline, PARKED, Waiting};

/// Part of a place: the waiter waits.
const WAITS: u64 = 1 << 30;
/// Part of a place: the waiter was notified.
const NOTIFIED: u64 = 1 << 31;
/// Part of a place: number of the wait, modulo 2³⁰.
const TICKET: u64 = WAITS - 1;

const fn identity(value: u64) -> u32 {
    (value >> 32) as u32 & 0x7fff_ffff
}

/// End of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Notified, or for no reason.
    Notified,
    /// The time was over.
    TimedOut,
}

/// A wait: the waiter's place, until it has the mutex again.
#[derive(Debug)]
#[must_use = "the place stays taken until `Condvar::end`"]
pub struct ConditionWait {
    /// Place and its value. `None`: all were taken.
    place: Option<(usize, u64)>,
}

/// Condition variable with places for `N` waiters (at most 64). Between processes: a
/// named object of a world.
///
/// ```
/// use towpath_sync::{Mutex, robust::Condvar};
///
/// let (jobs, more) = (Mutex::new(vec![]), Condvar::new());
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         let mut jobs = jobs.lock()?;
///         while jobs.is_empty() {
///             jobs = more.wait(jobs)?;
///         }
///         assert_eq!(jobs.pop(), Some(7));
///         Ok::<(), towpath_sync::LockError>(())
///     });
///     jobs.lock()?.push(7);
///     more.notify_one();
///     Ok::<(), towpath_sync::LockError>(())
/// })?;
/// # Ok::<(), towpath_sync::LockError>(())
/// ```
#[derive(OpaqueDebug)]
#[repr(C)]
pub struct Condvar<P: Processor = Native, const N: usize = 64> {
    head: ConditionHead<P>,
    places: [OwnLine<P::Word>; N],
}

#[derive(Debug)]
#[repr(C, align(64))]
struct ConditionHead<P: Processor> {
    tickets: P::Word,
    used: P::Word,
}

impl<P: Processor, const N: usize> Condvar<P, N> {
    /// A condition variable without waiters, in memory of the given arena.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::{Spinning, robust::Condvar};
    ///
    /// let changed = Condvar::<Native, 8>::in_arena(&Heap);
    /// changed.notify_all_by(&Native::current(), &Spinning); // none waits
    /// ```
    pub fn in_arena(arena: &impl Arena<P>) -> Self {
        const { assert!(N > 0 && N <= 64, "from 1 to 64 places") };
        Condvar {
            head: ConditionHead {
                tickets: arena.word(Place::NewLine, 0),
                used: arena.word(Place::SameLine, 0),
            },
            places: core::array::from_fn(|_| OwnLine(arena.word(Place::NewLine, 0))),
        }
    }

    /// Begins a wait: called with the mutex, which the caller then releases.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Spinning, robust::{Condvar, Woken}};
    /// let (cpu, changed) = (Native::current(), Condvar::<Native, 8>::in_arena(&Heap));
    /// let waiting = changed.begin(&cpu, &Spinning); // with the mutex
    /// changed.notify_one_by(&cpu, &Spinning); // it is not lost, although the waiter is not asleep
    /// assert_eq!(changed.sleep(&cpu, &Spinning, &waiting, Deadline::NEVER), Woken::Notified);
    /// changed.end(&cpu, waiting);
    /// ```
    pub fn begin<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> ConditionWait {
        // Relaxed: the mutex orders it.
        let ticket = cpu.fetch_add(&self.head.tickets, 1, Ordering::Relaxed) & TICKET;
        let value = u64::from(wait.identity()) << 32 | WAITS | ticket;
        for place in (0..N).map(|i| (cpu.id() + i) % N) {
            let word = &self.places[place].0;
            // Relaxed: the caller's mutex orders the waits that are over; the exchange compares.
            let seen = cpu.load(word, Ordering::Relaxed);
            if seen & (WAITS | NOTIFIED) != 0 {
                continue;
            }
            let served = identity(seen);
            if seen != 0 && served != wait.identity() && !wait.is_alive(served) {
                // Perhaps it died with the mutex: its notification goes to another waiter.
                self.notify_one_by(cpu, wait);
            }
            // Relaxed, both: a notifier that must see it has had the mutex since.
            if cpu.load(&self.head.used, Ordering::Relaxed) >> place & 1 == 0 {
                cpu.fetch_or(&self.head.used, 1 << place, Ordering::Relaxed);
            }
            if cpu.compare_exchange(word, seen, value, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return ConditionWait { place: Some((place, value)) };
            }
        }
        ConditionWait { place: None }
    }

    /// Sleeps until it is notified: called without the mutex, which the caller then
    /// acquires.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Spinning, robust::{Condvar, Woken}};
    /// let (cpu, changed) = (Native::current(), Condvar::<Native, 8>::in_arena(&Heap));
    /// let waiting = changed.begin(&cpu, &Spinning);
    /// let soon = Deadline::after(&cpu, 1_000_000);
    /// assert_eq!(changed.sleep(&cpu, &Spinning, &waiting, soon), Woken::TimedOut);
    /// changed.end(&cpu, waiting);
    /// ```
    pub fn sleep<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        waiting: &ConditionWait,
        deadline: Deadline,
    ) -> Woken {
        let Some((place, value)) = waiting.place else {
            // Its caller looks at the condition again and again.
            let over = deadline.is_over(cpu) || wait.back_off(cpu, u32::MAX).is_err();
            return if over { Woken::TimedOut } else { Woken::Notified };
        };
        let word = &self.places[place].0;
        let mut turns = Turns::new(cpu, deadline, TURN);
        loop {
            // Relaxed: what the notifier did is published by the mutex.
            if cpu.load(word, Ordering::Relaxed) & !PARKED != value {
                return Woken::Notified;
            }
            if turns.is_time_to_ask(cpu) && self.lost_one(cpu, wait, place, value) {
                return Woken::Notified;
            }
            if turns.wait(cpu, wait, word, value).is_err() {
                // Given up, unless it was notified meanwhile.
                return if self.leave(cpu, place, value) { Woken::TimedOut } else { Woken::Notified };
            }
        }
    }

    /// Ends a wait: called with the mutex.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Spinning, robust::{Condvar, Woken}};
    /// let (cpu, changed) = (Native::current(), Condvar::<Native, 1>::in_arena(&Heap));
    /// for _ in 0..2 {
    ///     let waiting = changed.begin(&cpu, &Spinning); // in the only place
    ///     changed.notify_one_by(&cpu, &Spinning);
    ///     assert_eq!(changed.sleep(&cpu, &Spinning, &waiting, Deadline::PAST), Woken::Notified);
    ///     changed.end(&cpu, waiting); // which is free for the next wait
    /// }
    /// ```
    pub fn end(&self, cpu: &P, waiting: ConditionWait) {
        if let Some((place, value)) = waiting.place {
            let notified = value & !WAITS | NOTIFIED;
            let word = &self.places[place].0;
            // Relaxed: under the mutex. It may be free already, and another's.
            if cpu.load(word, Ordering::Relaxed) & !PARKED == notified {
                cpu.store(word, value & !WAITS, Ordering::Relaxed);
            }
        }
    }

    /// Frees the places of this process's waits that are over. For a process that ends in
    /// good order, and holds the mutex no more: otherwise its end wakes a waiter for no reason.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Spinning, robust::Condvar};
    /// let (cpu, changed) = (Native::current(), Condvar::<Native, 8>::in_arena(&Heap));
    /// let waiting = changed.begin(&cpu, &Spinning);
    /// changed.notify_one_by(&cpu, &Spinning);
    /// changed.sleep(&cpu, &Spinning, &waiting, Deadline::NEVER);
    /// changed.end(&cpu, waiting);
    /// // the process ends: its place says no more that it was here
    /// changed.forget_as(&cpu, &Spinning);
    /// ```
    pub fn forget_as<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        for word in self.used(cpu) {
            // Relaxed, both: the places carry no data.
            let seen = cpu.load(word, Ordering::Relaxed);
            if seen & (WAITS | NOTIFIED) == 0 && identity(seen) == wait.identity() {
                // It fails if another thread of this process waits there just now.
                let _ = cpu.compare_exchange(word, seen, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// Frees a place in which the waiter still waits. Returns whether it did.
    fn leave(&self, cpu: &P, place: usize, value: u64) -> bool {
        let word = &self.places[place].0;
        loop {
            // Relaxed, both: the place carries no data.
            let seen = cpu.load(word, Ordering::Relaxed);
            if seen & !PARKED != value {
                return false;
            }
            if cpu.compare_exchange(word, seen, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return true;
            }
        }
    }

    /// Looks for waiters that have died: takes one's notification over for this waiter,
    /// and frees places. Returns whether there was a notification.
    fn lost_one<W: Waiting<P>>(&self, cpu: &P, wait: &W, place: usize, value: u64) -> bool {
        for word in self.used(cpu) {
            // Relaxed: the places carry no data; a death is known after all that the dead did.
            let seen = cpu.load(word, Ordering::Relaxed);
            if seen == 0 || wait.is_alive(identity(seen)) {
                continue;
            }
            if seen & WAITS != 0 {
                // It fails if it is notified just now: then the next look finds that.
                let _ = cpu.compare_exchange(word, seen, 0, Ordering::Relaxed, Ordering::Relaxed);
                continue;
            }
            // First its own place: if this waiter dies in between, both are found.
            let own = &self.places[place].0;
            let notified = value & !WAITS | NOTIFIED;
            let mut mine = value;
            // Relaxed: the places carry no data. If it fails for another reason than a mark, it was
            // notified itself.
            while let Err(now) =
                cpu.compare_exchange(own, mine, notified, Ordering::Relaxed, Ordering::Relaxed)
            {
                if now & !PARKED != value {
                    return true;
                }
                mine = now;
            }
            let _ = cpu.compare_exchange(word, seen, 0, Ordering::Relaxed, Ordering::Relaxed);
            return true;
        }
        false
    }

    /// The places that were ever taken.
    fn used(&self, cpu: &P) -> impl Iterator<Item = &P::Word> {
        // Relaxed: see `begin`.
        let mut used = cpu.load(&self.head.used, Ordering::Relaxed) & u64::MAX >> (64 - N);
        core::iter::from_fn(move || {
            let place = used.trailing_zeros() as usize;
            used &= used.wrapping_sub(1);
            self.places.get(place).map(|place| &place.0)
        })
    }

    /// Notifies the waiter that has waited longest.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Spinning, robust::{Condvar, Woken}};
    /// let (cpu, changed) = (Native::current(), Condvar::<Native, 8>::in_arena(&Heap));
    /// let [earlier, later] = [(); 2].map(|()| changed.begin(&cpu, &Spinning));
    /// changed.notify_one_by(&cpu, &Spinning);
    /// let woken =
    ///     [later, earlier].map(|wait| changed.sleep(&cpu, &Spinning, &wait, Deadline::PAST));
    /// assert_eq!(woken, [Woken::TimedOut, Woken::Notified]);
    /// ```
    pub fn notify_one_by<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        // Relaxed: a number to compare with.
        let now = cpu.load(&self.head.tickets, Ordering::Relaxed);
        loop {
            let age = |value: u64| now.wrapping_sub(value) & TICKET;
            // Relaxed: a waiter that must be seen has had the mutex before the caller had it.
            let waiting = |word: &P::Word| cpu.load(word, Ordering::Relaxed);
            let oldest = self
                .used(cpu)
                .map(|word| (word, waiting(word)))
                .filter(|(_, value)| value & WAITS != 0)
                .max_by_key(|&(_, value)| age(value));
            match oldest {
                Some((word, value)) if !self.notify(cpu, wait, word, value) => {}
                _ => return,
            }
        }
    }

    /// Notifies all waiters.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Spinning, robust::{Condvar, Woken}};
    /// let (cpu, changed) = (Native::current(), Condvar::<Native, 8>::in_arena(&Heap));
    /// let waits = [(); 3].map(|()| changed.begin(&cpu, &Spinning));
    /// changed.notify_all_by(&cpu, &Spinning);
    /// let woken = waits.map(|wait| changed.sleep(&cpu, &Spinning, &wait, Deadline::NEVER));
    /// assert_eq!(woken, [Woken::Notified; 3]);
    /// ```
    pub fn notify_all_by<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        for word in self.used(cpu) {
            loop {
                // Relaxed: as in `notify_one_by`.
                let value = cpu.load(word, Ordering::Relaxed);
                if value & WAITS == 0 || self.notify(cpu, wait, word, value) {
                    break;
                }
            }
        }
    }

    /// Notifies the waiter in a place, if it still waits.
    fn notify<W: Waiting<P>>(&self, cpu: &P, wait: &W, word: &P::Word, value: u64) -> bool {
        let notified = value & !(WAITS | PARKED) | NOTIFIED;
        // Relaxed: the caller's changes are published by the mutex.
        let done = cpu.compare_exchange(word, value, notified, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if done && value & PARKED != 0 {
            wait.wake_all(cpu, word);
        }
        done
    }
}
