//! Trait of the locks.

use towpath_machine::{Arena, Processor};

use crate::Waiting;

/// Reason for a lock that could not be had.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LockError {
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
}

impl core::fmt::Display for LockError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            LockError::Abandoned => "the holder or a waiter of the lock died, and this kind of lock cannot repair that: use `robust` or `posix`",
            LockError::Poisoned => "the data behind the lock was left inconsistent by a process that died: make it anew",
            LockError::Capacity => "more threads than the lock has places: use a lock with more places, or another kind",
            LockError::NotEntered => "this process has not entered the world in which the lock lies: call World::enter first (after a fork, in the child too)",
        })
    }
}

/// Prints the sentence with the remedy: a `main` that returns the error shows it so.
/// `{:#?}` prints the variant.
impl core::fmt::Debug for LockError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if !f.alternate() {
            return core::fmt::Display::fmt(self, f);
        }
        f.write_str(match self {
            LockError::Abandoned => "Abandoned",
            LockError::Poisoned => "Poisoned",
            LockError::Capacity => "Capacity",
            LockError::NotEntered => "NotEntered",
        })
    }
}

impl std::error::Error for LockError {}

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
    /// True if a prepared one ([`Lock::prepare`]) is bound to its address while it is
    /// held.
    const IN_PLACE: bool = false;
    /// State of a holder from acquisition to release.
    type Held;

    /// A lock in memory of the given arena.
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
    fn capacity(&self) -> usize {
        usize::MAX
    }

    /// Acquires, waiting as `wait` says.
    ///
    /// # Errors
    ///
    /// [`LockError::Abandoned`] if the wait was given up because it cannot end; the caller then is
    /// not in the queue any more.
    fn lock<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Result<Self::Held, LockError>;

    /// Acquires if the lock is free and has no queue; never waits. (Never succeeds
    /// without [`Lock::TRIES`].)
    fn try_lock(&self, cpu: &P) -> Option<Self::Held>;

    /// Releases.
    fn unlock<W: Waiting<P>>(&self, cpu: &P, wait: &W, held: Self::Held);

    /// Returns whether this acquisition came from an owner that died while holding the
    /// lock. The data may be half-changed; the new owner repairs it and says so
    /// ([`Lock::make_consistent`]), or the release poisons the lock.
    fn owner_died(_held: &Self::Held) -> bool {
        false
    }

    /// Declares the protected data consistent after [`Lock::owner_died`].
    fn make_consistent(&self, _cpu: &P, _held: &mut Self::Held) {}
}
