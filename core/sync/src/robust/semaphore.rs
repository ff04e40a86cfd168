//! `semaphore`: permits that processes take and give back; those that a dead process
//! holds come back.
//!
//! **Source.** Ours. A counting semaphore does not know which process has which permit. Here the
//! word with the count also names the last operation: its kind, its place and its serial number.
//! Before the word is changed again, the operation is recorded in its place, by the process that
//! made it or by any other, which is the helping of non-blocking algorithms (Herlihy 1991). So a
//! place always tells how many permits its process holds, at whatever instruction that dies.
//!
//! **Progress.** Lock-free while permits are there; a waiter waits for one. Not first come, first
//! served: a process that comes while a permit is free takes it.
//!
//! ```text
//! word:     63      62    61    40 39  37 36    32 31        30      20 19        0
//!           [PARKED][ – ] [serial ][kind ][  –   ] [AWAITED ][ place  ][ permits  ]
//! places[i]:        62            32 31        22 21       0
//!                   [ identity      ][ permits  ][ serial  ]
//! ```
//!
//! **Fields.** `word`: any process, by compare-and-swap. `places[i]`: free, without an identity;
//! then of a process that takes it; changed by any that records an operation; free again when a
//! survivor takes a dead one's permits back, with the serial number of that: a process that saw it
//! free before, and has stood still since, does not take it for the operation that freed it to be
//! recorded again.
//!
//! **Crashes.** Before the word is changed: nothing. After it: the next operation of any process
//! records what was done. A process that dies with permits: a waiter finds out, and gives them back
//! by one exchange of the word (kind *void*), to be recorded like all others. A waiter: nothing; if
//! it was woken for a permit, other sleepers look again within a few milliseconds.
//!
//! **Memory.** `N` / 8 + 1 lines.
//!
//! **Don't use it** as a mutex: data that a dead holder left half changed are not reported. A
//! process that is stopped between two instructions for four million operations of the others may
//! lose count.

mod threads;

use towpath_derive::OpaqueDebug;
use towpath_machine::{Arena, Native, Ordering, OwnLine, Place, Processor};

use crate::turns::{TURN, Turns};
use crate::{Deadline, LockError, PARKED, Waiting};

pub use threads::ThreadPermit;

/// Part of the word: number of free permits.
const PERMITS: u64 = (1 << 20) - 1;
/// Part of the word: first bit of the place of the last operation.
const PLACE: u32 = 20;
/// Maximum number of places.
const MOST_PLACES: usize = 1 << 11;
/// Part of the word: a waiter sleeps until a permit is free.
const AWAITED: u64 = 1 << 31;
/// Part of the word: first bit of the kind of the last operation.
const KIND: u32 = 37;
/// Part of the word: first bit of the serial number of the last operation.
const SERIAL: u32 = 40;
/// The bits of a serial number.
const SERIALS: u64 = (1 << 22) - 1;
/// Part of a place: first bit of the number of permits.
const HELD: u32 = 22;
/// Maximum number of permits of a process.
const MOST_HELD: u64 = (1 << 10) - 1;

/// Kinds of operations. The first says that there is nothing to record.
const NONE: u64 = 0;
const TAKE: u64 = 1;
const GIVE: u64 = 2;
const FORGET: u64 = 3;
const VOID: u64 = 4;

const fn kind(word: u64) -> u64 {
    word >> KIND & 7
}

const fn place_of(word: u64) -> usize {
    (word >> PLACE) as usize & (MOST_PLACES - 1)
}

const fn serial(word: u64) -> u64 {
    word >> SERIAL & SERIALS
}

const fn identity(place: u64) -> u32 {
    (place >> 32) as u32 & 0x7fff_ffff
}

const fn is_free(place: u64) -> bool {
    identity(place) == 0
}

const fn held(place: u64) -> u64 {
    place >> HELD & MOST_HELD
}

/// The word after one more operation.
const fn after(word: u64, permits: u64, kind: u64, place: usize) -> u64 {
    let serial = (serial(word) + 1) & SERIALS;
    serial << SERIAL | kind << KIND | word & AWAITED | (place as u64) << PLACE | permits
}

/// Permits that processes take and give back, with places for `N` processes that hold
/// some at one time. Between processes: a named object of a world.
///
/// ```
/// use towpath_sync::robust::Semaphore;
///
/// let connections = Semaphore::new(2);
/// let (first, _second) = (connections.acquire()?, connections.acquire()?);
/// assert!(connections.try_acquire().is_err());
/// drop(first);
/// assert!(connections.try_acquire().is_ok());
/// # Ok::<(), towpath_sync::LockError>(())
/// ```
#[derive(OpaqueDebug)]
#[repr(C)]
pub struct Semaphore<P: Processor = Native, const N: usize = 64> {
    word: OwnLine<P::Word>,
    places: [P::Word; N],
}

impl<P: Processor, const N: usize> Semaphore<P, N> {
    /// Maximum number of permits.
    pub const MOST: u64 = PERMITS;

    /// A semaphore with so many permits, in memory of the given arena.
    ///
    /// # Panics
    ///
    /// If there are more than [`Semaphore::MOST`].
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::robust::Semaphore;
    ///
    /// let permits = Semaphore::<Native, 8>::in_arena(&Heap, 3);
    /// assert_eq!(permits.available_for(&Native::current()), 3);
    /// ```
    pub fn in_arena(arena: &impl Arena<P>, permits: u64) -> Self {
        const { assert!(N > 0 && N <= MOST_PLACES, "from 1 to 2,048 places") };
        assert!(permits <= PERMITS, "{permits} permits: a semaphore has up to {PERMITS}");
        Semaphore {
            word: OwnLine(arena.word(Place::NewLine, permits)),
            places: core::array::from_fn(|i| arena.word(Place::in_row(i % 8), 0)),
        }
    }

    /// Sets the first number of permits of a semaphore that came to be as zeroed memory,
    /// before any process uses it.
    ///
    /// ```
    /// # use towpath_machine::{Native, zeroed};
    /// # use towpath_sync::robust::Semaphore;
    /// // as memory of a segment is
    /// let (cpu, permits): (_, Semaphore) = (Native::current(), zeroed());
    /// permits.prepare_with(&cpu, 4);
    /// assert_eq!(permits.available_for(&cpu), 4);
    /// ```
    pub fn prepare_with(&self, cpu: &P, permits: u64) {
        // Relaxed: published with the object.
        cpu.store(&self.word, permits.min(PERMITS), Ordering::Relaxed);
    }

    /// Number of free permits, at some time during the call.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Spinning, robust::Semaphore};
    /// let (cpu, permits) = (Native::current(), Semaphore::<Native, 8>::in_arena(&Heap, 3));
    /// permits.acquire_as(&cpu, &Spinning, Deadline::NEVER)?;
    /// assert_eq!(permits.available_for(&cpu), 2);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn available_for(&self, cpu: &P) -> u64 {
        // Relaxed: a number that may be old when the caller looks at it.
        cpu.load(&self.word, Ordering::Relaxed) & PERMITS
    }

    /// The word, after its last operation was recorded.
    fn settled(&self, cpu: &P) -> u64 {
        loop {
            // (P1) Acquire: what was recorded before this operation; pairs with the Release (P2).
            let word = cpu.load(&self.word, Ordering::Acquire);
            let Some(place) = self.places.get(place_of(word)).filter(|_| kind(word) != NONE) else {
                return word;
            };
            // (P3) Acquire: a later recording comes after a later word, which is then seen below;
            // pairs with the Release (P4).
            let seen = cpu.load(place, Ordering::Acquire);
            if is_free(seen) || seen & SERIALS == serial(word) {
                return word;
            }
            // Relaxed: ordered by (P3). If the word is another one, `seen` may be of a later time.
            if (cpu.load(&self.word, Ordering::Relaxed) ^ word) & !(PARKED | AWAITED) != 0 {
                continue;
            }
            let next = match kind(word) {
                TAKE => seen.wrapping_add(1 << HELD),
                GIVE | FORGET => seen.wrapping_sub(1 << HELD),
                _ => 0,
            };
            let next = if kind(word) == VOID { serial(word) } else { next & !SERIALS | serial(word) };
            // (P4) Release: the record after the word (P2); pairs with the Acquire (P3), (P3d), by
            // which this process has acquired what it takes. A failure: another process has
            // recorded it.
            let _ = cpu.compare_exchange(place, seen, next, Ordering::Release, Ordering::Relaxed);
            return word;
        }
    }

    /// Makes an operation, if the word is still the settled one. Records it.
    fn operate(&self, cpu: &P, word: u64, next: u64) -> bool {
        // (P2) Release: what was recorded comes before; a permit that is given back publishes what
        // its holder did to the next; pairs with the Acquire (P1), by which this process has
        // acquired the word that it replaces.
        let next = next | word & PARKED;
        let done = cpu.compare_exchange(&self.word, word, next, Ordering::Release, Ordering::Relaxed).is_ok();
        if done {
            self.settled(cpu);
        }
        done
    }

    /// The calling process's place.
    fn my_place<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Option<usize> {
        let me = wait.identity();
        let first = me as usize % N;
        let all = || (0..N).map(|i| (first + i) % N);
        loop {
            // Relaxed: this process has written its identity.
            let mine = |&place: &usize| identity(cpu.load(&self.places[place], Ordering::Relaxed)) == me;
            if let Some(place) = all().find(mine) {
                return Some(place);
            }
            // (P3d) Acquire: the word that says why it is free comes before; pairs with (P4).
            let free = |place: usize| {
                let seen = cpu.load(&self.places[place], Ordering::Acquire);
                is_free(seen).then_some((place, seen))
            };
            let Some((place, seen)) = all().find_map(free) else {
                if self.take_back(cpu, wait) == 0 {
                    return None;
                }
                continue;
            };
            // The last operation of the place may still be in the word: it is recorded, as its
            // serial number says.
            let now = serial(self.settled(cpu));
            // Relaxed: an update hands on what the recording that freed the place released (P4): a
            // late recorder of an operation before that sees a later word. It fails if the place
            // was taken and freed meanwhile, by a later operation.
            let taken = u64::from(me) << 32 | now;
            let place = &self.places[place];
            let _ = cpu.compare_exchange(place, seen, taken, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Takes the permits of the dead back, and frees their places. Returns the number of
    /// places.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Wait, robust::Semaphore};
    /// # struct Process(u32);
    /// # impl towpath_sync::Surroundings for Process {
    /// #     fn identity(&self) -> u32 { self.0 }
    /// #     fn is_alive(&self, identity: u32) -> bool { identity != 1 }
    /// # }
    /// # let [first, second] = [&Process(1), &Process(2)].map(|process| Wait::adaptive(process));
    /// let (cpu, permits) = (Native::current(), Semaphore::<Native, 8>::in_arena(&Heap, 3));
    /// permits.acquire_as(&cpu, &first, Deadline::NEVER)?;
    /// permits.acquire_as(&cpu, &first, Deadline::NEVER)?; // and dies with both
    /// assert_eq!(permits.take_back(&cpu, &second), 1); // place of a process
    /// assert_eq!(permits.available_for(&cpu), 3);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn take_back<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> usize {
        let mut freed = 0;
        for place in 0..N {
            loop {
                let word = self.settled(cpu);
                // Relaxed: no older one than the settled word's; of a later one the exchange below
                // knows nothing, and fails.
                let seen = cpu.load(&self.places[place], Ordering::Relaxed);
                if is_free(seen) || wait.is_alive(identity(seen)) {
                    break;
                }
                let permits = (word & PERMITS).saturating_add(held(seen)).min(PERMITS);
                // If the word is the same, the place is, too: only recordings change it.
                if self.operate(cpu, word, after(word, permits, VOID, place)) {
                    self.wake(cpu, wait, held(seen));
                    freed += 1;
                    break;
                }
            }
        }
        freed
    }

    /// Takes a permit, until the deadline.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`]; [`LockError::Capacity`] if `N` processes hold permits, or the
    /// caller a thousand.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, LockError, Spinning, robust::Semaphore};
    /// let (cpu, permits) = (Native::current(), Semaphore::<Native, 8>::in_arena(&Heap, 1));
    /// permits.acquire_as(&cpu, &Spinning, Deadline::NEVER)?;
    /// let late = permits.acquire_as(&cpu, &Spinning, Deadline::PAST);
    /// assert_eq!(late, Err(LockError::TimedOut));
    /// # Ok::<(), LockError>(())
    /// ```
    pub fn acquire_as<W: Waiting<P>>(&self, cpu: &P, wait: &W, deadline: Deadline) -> Result<(), LockError> {
        let mut turns = None;
        loop {
            let place = self.my_place(cpu, wait).ok_or(LockError::Capacity)?;
            let word = self.settled(cpu);
            if word & PERMITS > 0 {
                // Relaxed: only this process's operations change the number.
                if held(cpu.load(&self.places[place], Ordering::Relaxed)) == MOST_HELD {
                    return Err(LockError::Capacity);
                }
                if self.operate(cpu, word, after(word, (word & PERMITS) - 1, TAKE, place)) {
                    return Ok(());
                }
                continue;
            }
            let turns = turns.get_or_insert_with(|| Turns::new(cpu, deadline, TURN));
            if turns.is_time_to_ask(cpu) && self.take_back(cpu, wait) > 0 {
                continue;
            }
            if wait.parks() && word & AWAITED == 0 && deadline != Deadline::PAST {
                // Relaxed: a mark; the next look is the one that counts.
                let marked = word | AWAITED;
                let _ = cpu.compare_exchange(&self.word, word, marked, Ordering::Relaxed, Ordering::Relaxed);
                continue;
            }
            turns.wait(cpu, wait, &self.word, word & !PARKED)?;
        }
    }

    /// Gives a permit of this process back. Returns whether it had one.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Spinning, robust::Semaphore};
    /// let (cpu, permits) = (Native::current(), Semaphore::<Native, 8>::in_arena(&Heap, 1));
    /// permits.acquire_as(&cpu, &Spinning, Deadline::NEVER)?;
    /// assert!(permits.release_as(&cpu, &Spinning));
    /// assert!(!permits.release_as(&cpu, &Spinning)); // it has none any more
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn release_as<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> bool {
        self.give(cpu, wait, GIVE)
    }

    /// Keeps a permit of this process for good: it does not come back when the process
    /// dies. Returns whether it had one.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Wait, robust::Semaphore};
    /// # struct Process(u32);
    /// # impl towpath_sync::Surroundings for Process {
    /// #     fn identity(&self) -> u32 { self.0 }
    /// #     fn is_alive(&self, identity: u32) -> bool { identity != 1 }
    /// # }
    /// # let [first, second] = [&Process(1), &Process(2)].map(|process| Wait::adaptive(process));
    /// let (cpu, permits) = (Native::current(), Semaphore::<Native, 8>::in_arena(&Heap, 3));
    /// permits.acquire_as(&cpu, &first, Deadline::NEVER)?;
    /// assert!(permits.forget_as(&cpu, &first)); // and dies
    /// permits.take_back(&cpu, &second);
    /// assert_eq!(permits.available_for(&cpu), 2);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn forget_as<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> bool {
        self.give(cpu, wait, FORGET)
    }

    fn give<W: Waiting<P>>(&self, cpu: &P, wait: &W, kind: u64) -> bool {
        let me = wait.identity();
        loop {
            let word = self.settled(cpu);
            // Threads that came at one time may have taken two places.
            let has_one = |place: &P::Word| {
                // Relaxed: as in `take_back`.
                let place = cpu.load(place, Ordering::Relaxed);
                identity(place) == me && held(place) > 0
            };
            let Some(place) = self.places.iter().position(has_one) else { return false };
            let permits = word & PERMITS;
            let permits = if kind == GIVE { (permits + 1).min(PERMITS) } else { permits };
            if self.operate(cpu, word, after(word, permits, kind, place)) {
                if kind == GIVE {
                    self.wake(cpu, wait, 1);
                }
                return true;
            }
        }
    }

    /// Adds permits, which no process held.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Spinning, robust::Semaphore};
    /// let (cpu, items) = (Native::current(), Semaphore::<Native, 8>::in_arena(&Heap, 0));
    /// items.add_as(&cpu, &Spinning, 2); // of a producer
    /// items.acquire_as(&cpu, &Spinning, Deadline::NEVER)?;
    /// items.forget_as(&cpu, &Spinning); // of a consumer
    /// assert_eq!(items.available_for(&cpu), 1);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn add_as<W: Waiting<P>>(&self, cpu: &P, wait: &W, permits: u64) {
        loop {
            let word = self.settled(cpu);
            let sum = (word & PERMITS).saturating_add(permits).min(PERMITS);
            if self.operate(cpu, word, after(word, sum, NONE, 0)) {
                return self.wake(cpu, wait, permits);
            }
        }
    }

    /// Wakes as many sleepers as there are new permits.
    fn wake<W: Waiting<P>>(&self, cpu: &P, wait: &W, permits: u64) {
        // Relaxed: the mark was in the word before the change, or its waiter sees the change.
        let word = cpu.load(&self.word, Ordering::Relaxed);
        if word & AWAITED == 0 {
            return;
        }
        let most = u32::try_from(permits).unwrap_or(u32::MAX);
        if wait.wake_some(cpu, &self.word, most) < most && word & PERMITS > 0 {
            // No more sleep, and none falls asleep while a permit is free. Relaxed: a mark. It
            // fails if another operation came meanwhile.
            let cleared = word & !(AWAITED | PARKED);
            let _ = cpu.compare_exchange(&self.word, word, cleared, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}
