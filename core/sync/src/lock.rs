//! Trait of the locks.

use core::convert::Infallible;

use towpath_derive::SentenceDebug;
use towpath_machine::{Arena, Processor};

use crate::{Deadline, TimedOut, Waiting};

/// Reason for a lock that could not be had.
///
/// `G` is the guard of an acquisition after a death. The locks themselves have none.
#[derive(Clone, Copy, PartialEq, Eq, SentenceDebug)]
pub enum LockError<G = Infallible> {
    /// Its holder, or a waiter before the caller, died, and this lock cannot repair that
    /// (see the file of each lock).
    Abandoned,
    /// The data that it protects was declared beyond repair.
    Poisoned,
    /// The calling processor's id is not below [`Lock::capacity`]: use a lock with more
    /// places, or fewer threads.
    Capacity,
    /// The lock lies in a world that this process has not entered.
    NotEntered,
    /// The caller's time was over before it had the lock.
    TimedOut,
    /// The last owner died while it could change the data. The caller has the lock.
    OwnerDied {
        /// Rank of the dead owner, if the lock knows it.
        rank: Option<u32>,
        /// Guard that repairs the data. Dropped without, it leaves the task to the next
        /// owner.
        #[opaque]
        guard: G,
    },
}

impl LockError {
    /// The error of a lock whose acquisition after a death has a guard of type `G`.
    ///
    /// ```
    /// use towpath_sync::LockError;
    ///
    /// let late: LockError<&str> = LockError::TimedOut.with_guard();
    /// assert!(late.is_timeout());
    /// ```
    pub fn with_guard<G>(self) -> LockError<G> {
        match self {
            LockError::Abandoned => LockError::Abandoned,
            LockError::Poisoned => LockError::Poisoned,
            LockError::Capacity => LockError::Capacity,
            LockError::NotEntered => LockError::NotEntered,
            LockError::TimedOut => LockError::TimedOut,
        }
    }
}

impl<G> LockError<G> {
    /// Returns whether the caller's time was over.
    ///
    /// ```
    /// use std::time::Duration;
    /// use towpath_sync::Mutex;
    ///
    /// let jobs = Mutex::new(7);
    /// let held = jobs.lock()?;
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| {
    ///         let late = jobs.lock_timeout(Duration::from_millis(1));
    ///         assert!(late.is_err_and(|error| error.is_timeout()));
    ///     });
    /// });
    /// # drop(held);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn is_timeout(&self) -> bool {
        matches!(self, LockError::TimedOut)
    }

    /// The error without its guard, which is dropped: the next owner is told of the
    /// death.
    ///
    /// ```
    /// use towpath_sync::LockError;
    ///
    /// let died = LockError::OwnerDied { rank: Some(3), guard: "of any type" };
    /// assert_eq!(died.without_guard(), LockError::Abandoned);
    /// ```
    pub fn without_guard(self) -> LockError {
        match self {
            LockError::Abandoned | LockError::OwnerDied { .. } => LockError::Abandoned,
            LockError::Poisoned => LockError::Poisoned,
            LockError::Capacity => LockError::Capacity,
            LockError::NotEntered => LockError::NotEntered,
            LockError::TimedOut => LockError::TimedOut,
        }
    }

    const fn sentence(&self) -> &'static str {
        match self {
            LockError::Abandoned => {
                "the holder or a waiter of the lock died, and this kind of lock cannot repair that: use `robust` or `posix`"
            }
            LockError::Poisoned => {
                "the data behind the lock was left inconsistent by a process that died: make it anew"
            }
            LockError::Capacity => {
                "more threads than the lock has places: use a lock with more places, or another kind"
            }
            LockError::NotEntered => {
                "this process has not entered the world in which the lock lies: call World::enter first (after a fork, in the child too), and take a condition variable and its mutex by one handle of the world"
            }
            LockError::TimedOut => {
                "the time was over before the lock, or what was waited for, could be had: try again, or wait longer (a thread that holds a lock waits for itself)"
            }
            LockError::OwnerDied { .. } => {
                "the last owner of the lock died and may have left its data half changed: repair them with the guard of this error"
            }
        }
    }
}

impl<G> core::fmt::Display for LockError<G> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.sentence())?;
        match self {
            LockError::OwnerDied { rank: Some(rank), .. } => write!(f, " (it was rank {rank})"),
            _ => Ok(()),
        }
    }
}

impl<G> std::error::Error for LockError<G> {}

impl<G> From<TimedOut> for LockError<G> {
    fn from(_: TimedOut) -> Self {
        LockError::TimedOut
    }
}

/// A mutual exclusion lock in shared memory.
///
/// All-zero memory is an unlocked lock (natively; between processes `posix` wants [`Lock::prepare`]
/// too). One lock is used by processors whose [`Processor::id`] differ and, for the locks with a
/// place per contender, lie below the capacity.
pub trait Lock<P: Processor>: Sized {
    /// The name by which users choose it.
    const NAME: &'static str;
    /// True if it serves waiters in the order of their arrival.
    const FIFO: bool;
    /// True if [`Lock::try_lock`] can succeed. Not over fetch-and-op at memory: there is
    /// no way to take a place only if it is the first one.
    const TRIES: bool = true;
    /// True if it writes down its holder, and so can tell the next owner of a death
    /// ([`Lock::owner_died`]).
    const KNOWS_OWNER: bool = false;
    /// True if an owner that was told of a death can leave the repair to the next
    /// ([`Lock::hand_on`]). If not, that poisons the lock.
    const HANDS_ON: bool = false;
    /// True if a prepared one ([`Lock::prepare`]) is bound to its address while it is
    /// held.
    const IN_PLACE: bool = false;
    /// State of a holder from acquisition to release.
    type Held;

    /// A lock in memory of the given arena.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::locks::Ticket;
    /// # use towpath_sync::Lock;
    /// # let me = Native::with_id(0);
    /// # let lock = Ticket::<Native>::new(&Heap);
    /// let free = lock.try_lock(&me);
    /// assert!(free.is_some(), "a new one is unlocked");
    /// ```
    fn new(arena: &impl Arena<P>) -> Self;

    /// Prepares a lock that came to be as all-zero memory in a segment, for use between
    /// processes. Between threads, and on machines that are not native, no lock needs it.
    ///
    /// # Safety
    ///
    /// * No thread of any process uses the lock yet.
    /// * From now on a process that uses it keeps it at its address, and mapped, while one of its
    ///   threads holds it or waits for it; also if that thread has ended, or has forgotten what it
    ///   holds.
    ///
    /// ```compile_fail,E0133
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::locks::Posix;
    /// use towpath_sync::{Lock, Spinning};
    ///
    /// let lock = Posix::<Native>::new(&Heap);
    /// lock.prepare(); // must not compile: what follows would leave libc's list dangling
    /// let held = lock.lock(&Native::with_id(0), &Spinning)?;
    /// let elsewhere = Box::new(lock);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[expect(unsafe_code, reason = "declares the contract; only `posix` has a text for it")]
    unsafe fn prepare(&self) {}

    /// Number of processors (ids below this) that may use it; `usize::MAX` if any number.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::locks::Ticket;
    /// # use towpath_sync::Lock;
    /// # let lock = Ticket::<Native>::new(&Heap);
    /// assert_eq!(lock.capacity(), usize::MAX);
    /// ```
    fn capacity(&self) -> usize {
        usize::MAX
    }

    /// Acquires, waiting as `wait` says.
    ///
    /// # Errors
    ///
    /// [`LockError::Abandoned`] if the wait was given up because it cannot end; the caller then is
    /// not in the queue any more.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::locks::Ticket;
    /// # use towpath_sync::{Lock, Spinning};
    /// # let (me, other) = (Native::with_id(0), Native::with_id(1));
    /// # let lock = Ticket::<Native>::new(&Heap);
    /// let held = lock.lock(&me, &Spinning)?;
    /// assert!(lock.try_lock(&other).is_none());
    /// lock.unlock(&me, &Spinning, held);
    /// assert!(lock.try_lock(&other).is_some());
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    fn lock<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<Self::Held, LockError>;

    /// Acquires as [`Lock::lock`] does, but gives up at the deadline. With
    /// [`Deadline::PAST`] it tries once.
    ///
    /// A lock that has no way out of its queue polls instead, behind all waiters in the queue; one
    /// without [`Lock::TRIES`] never gives up.
    ///
    /// # Errors
    ///
    /// As [`Lock::lock`], and [`LockError::TimedOut`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::locks::Ticket;
    /// # use towpath_sync::{Deadline, Lock, Spinning};
    /// # let (me, other) = (Native::with_id(0), Native::with_id(1));
    /// # let lock = Ticket::<Native>::new(&Heap);
    /// let held = lock.lock(&me, &Spinning)?;
    /// let late = lock.lock_until(&other, &Spinning, Deadline::PAST);
    /// assert_eq!(late.err(), Some(towpath_sync::LockError::TimedOut));
    /// lock.unlock(&me, &Spinning, held);
    /// assert!(lock.lock_until(&other, &Spinning, Deadline::PAST).is_ok());
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    fn lock_until<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
    ) -> Result<Self::Held, LockError> {
        if deadline == Deadline::NEVER || !Self::TRIES {
            return self.lock(cpu, wait);
        }
        let mut round = 0u32;
        loop {
            if let Some(held) = self.try_lock(cpu) {
                return Ok(held);
            }
            if deadline.is_over(cpu) {
                return Err(LockError::TimedOut);
            }
            wait.back_off(cpu, round).map_err(|_| LockError::Abandoned)?;
            round = round.saturating_add(1);
        }
    }

    /// Acquires if the lock is free and has no queue; never waits. (Never succeeds
    /// without [`Lock::TRIES`].)
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::locks::Ticket;
    /// # use towpath_sync::Lock;
    /// # let (me, other) = (Native::with_id(0), Native::with_id(1));
    /// # let lock = Ticket::<Native>::new(&Heap);
    /// let held = lock.try_lock(&me);
    /// assert!(held.is_some() && lock.try_lock(&other).is_none());
    /// ```
    fn try_lock(&self, cpu: &P) -> Option<Self::Held>;

    /// Tries once, for an owner of that identity, as [`Lock::try_lock`].
    ///
    /// Succeeds only if there is nothing to tell the owner, and only for locks that know it
    /// ([`Lock::KNOWS_OWNER`]).
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::Lock;
    /// use towpath_sync::locks::{Robust, Ticket};
    ///
    /// let cpu = Native::current();
    /// assert!(Robust::<Native>::new(&Heap).try_lock_as(&cpu, 7).is_some());
    /// assert!(Ticket::<Native>::new(&Heap).try_lock_as(&cpu, 7).is_none()); // knows no owners
    /// ```
    fn try_lock_as(&self, _cpu: &P, _identity: u32) -> Option<Self::Held> {
        None
    }

    /// Acquires as [`Lock::lock_until`], where [`Lock::try_lock_as`] could not.
    ///
    /// # Errors
    ///
    /// As [`Lock::lock_until`].
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::locks::Ticket;
    /// use towpath_sync::{Deadline, Lock, Spinning};
    ///
    /// let (cpu, lock) = (Native::current(), Ticket::<Native>::new(&Heap));
    /// let held = match lock.try_lock_as(&cpu, 1) {
    ///     Some(held) => held,
    ///     None => lock.lock_after(&cpu, &Spinning, Deadline::NEVER)?,
    /// };
    /// assert!(lock.try_lock(&cpu).is_none());
    /// # lock.unlock(&cpu, &Spinning, held);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    fn lock_after<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
    ) -> Result<Self::Held, LockError> {
        self.lock_until(cpu, wait, deadline)
    }

    /// Releases.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::locks::Ticket;
    /// # use towpath_sync::{Lock, Spinning};
    /// # let (me, other) = (Native::with_id(0), Native::with_id(1));
    /// # let lock = Ticket::<Native>::new(&Heap);
    /// let held = lock.lock(&me, &Spinning)?;
    /// lock.unlock(&me, &Spinning, held);
    /// lock.lock(&other, &Spinning)?; // does not wait
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    fn unlock<W: Waiting<P>>(&self, cpu: &P, wait: &W, held: Self::Held);

    /// Releases if no other waits and there is nothing to tell the next owner: without a
    /// way of waiting, so that the caller can stay in registers.
    ///
    /// Returns what the caller still holds, and releases by [`Lock::unlock`]: always, unless the
    /// lock has a short way.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::Lock;
    /// use towpath_sync::locks::{Robust, Ticket};
    ///
    /// let cpu = Native::current();
    /// let (robust, ticket) = (Robust::<Native>::new(&Heap), Ticket::<Native>::new(&Heap));
    /// let held = robust.try_lock_as(&cpu, 1).expect("it is free");
    /// assert!(robust.unlock_at_once(&cpu, held).is_none()); // released
    /// let held = ticket.try_lock(&cpu).expect("it is free");
    /// assert!(ticket.unlock_at_once(&cpu, held).is_some()); // has no short way
    /// ```
    fn unlock_at_once(&self, _cpu: &P, held: Self::Held) -> Option<Self::Held> {
        Some(held)
    }

    /// Releases where [`Lock::unlock_at_once`] could not.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::locks::Ticket;
    /// use towpath_sync::{Lock, Spinning};
    ///
    /// let (cpu, lock) = (Native::current(), Ticket::<Native>::new(&Heap));
    /// let held = lock.lock(&cpu, &Spinning)?;
    /// if let Some(held) = lock.unlock_at_once(&cpu, held) {
    ///     lock.unlock_after(&cpu, &Spinning, held);
    /// }
    /// assert!(lock.try_lock(&cpu).is_some());
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    fn unlock_after<W: Waiting<P>>(&self, cpu: &P, wait: &W, held: Self::Held) {
        self.unlock(cpu, wait, held);
    }

    /// Releases data that the caller was told are half changed and did not repair: the
    /// next owner is told again, if the lock can do that ([`Lock::HANDS_ON`]).
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::locks::Robust;
    /// use towpath_sync::{Alone, Lock, Surroundings, Wait};
    /// # struct Second;
    /// # impl Surroundings for Second {
    /// #     fn identity(&self) -> u32 { 2 }
    /// #     fn is_alive(&self, identity: u32) -> bool { identity == 2 }
    /// # }
    ///
    /// type Key = Robust<Native>;
    /// let (cpu, lock, second) = (Native::current(), Key::new(&Heap), Wait::adaptive(&Second));
    /// lock.lock(&cpu, &Wait::adaptive(&Alone))?; // the first process dies as its holder
    /// let held = lock.lock(&cpu, &second)?;
    /// lock.hand_on(&cpu, &second, held); // it can't repair the data
    /// assert!(Key::owner_died(&lock.lock(&cpu, &second)?)); // the next one is told, too
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    fn hand_on<W: Waiting<P>>(&self, cpu: &P, wait: &W, held: Self::Held) {
        self.unlock(cpu, wait, held);
    }

    /// Returns whether this acquisition came from an owner that died while holding the
    /// lock. The data may be half-changed; the new owner repairs it and says so
    /// ([`Lock::make_consistent`]), or the release poisons the lock.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::locks::Robust;
    /// use towpath_sync::{Lock, Spinning};
    ///
    /// let (cpu, lock) = (Native::current(), Robust::<Native>::new(&Heap));
    /// let held = lock.lock(&cpu, &Spinning)?;
    /// assert!(!Robust::<Native>::owner_died(&held)); // the data are whole
    /// # lock.unlock(&cpu, &Spinning, held);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    fn owner_died(_held: &Self::Held) -> bool {
        false
    }

    /// Identity of the owner that died, if the lock knows it.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::locks::Robust;
    /// use towpath_sync::{Alone, Lock, Surroundings, Wait};
    /// # struct Second;
    /// # impl Surroundings for Second {
    /// #     fn identity(&self) -> u32 { 2 }
    /// #     fn is_alive(&self, identity: u32) -> bool { identity == 2 }
    /// # }
    ///
    /// let (cpu, lock) = (Native::current(), Robust::<Native>::new(&Heap));
    /// lock.lock(&cpu, &Wait::adaptive(&Alone))?; // process 1 dies as its holder
    /// let held = lock.lock(&cpu, &Wait::adaptive(&Second))?;
    /// assert_eq!(Robust::<Native>::dead_owner(&held), Some(1));
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    fn dead_owner(_held: &Self::Held) -> Option<u32> {
        None
    }

    /// Declares the protected data consistent after [`Lock::owner_died`].
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::locks::Robust;
    /// use towpath_sync::{Alone, Lock, Surroundings, Wait};
    /// # struct Second;
    /// # impl Surroundings for Second {
    /// #     fn identity(&self) -> u32 { 2 }
    /// #     fn is_alive(&self, identity: u32) -> bool { identity == 2 }
    /// # }
    ///
    /// let (cpu, lock, second) =
    ///     (Native::current(), Robust::<Native>::new(&Heap), Wait::adaptive(&Second));
    /// lock.lock(&cpu, &Wait::adaptive(&Alone))?; // the first process dies as its holder
    /// let mut held = lock.lock(&cpu, &second)?;
    /// lock.make_consistent(&cpu, &mut held); // after a repair of the data
    /// lock.unlock(&cpu, &second, held);
    /// assert!(!Robust::<Native>::owner_died(&lock.lock(&cpu, &second)?));
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    fn make_consistent(&self, _cpu: &P, _held: &mut Self::Held) {}
}
