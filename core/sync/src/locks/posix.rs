//! The operating system's robust mutex between processes: the baseline.
//!
//! **Source.** POSIX.1-2008 `pthread_mutex_t` with `PTHREAD_PROCESS_SHARED` and
//! `PTHREAD_MUTEX_ROBUST`; Lumetta & Culler 1998 §3.1 (Solaris's).
//!
//! **Progress.** Blocking; on Linux neither FIFO nor starvation-free. It waits in its own way (a
//! futex): the waiting policy has no say.
//!
//! **Fields.** libc's.
//!
//! **Address.** One that [`Lock::prepare`] made robust is, while it is held, on libc's list of the
//! holder's robust mutexes: by address, so it must neither move nor go. One that was not prepared
//! is between threads only, is on no list and may move. A [`Mutex`](crate::Mutex) in a world is
//! prepared; a process that has locked it keeps the world's memory mapped until it ends, since its
//! guard may have been forgotten.
//!
//! **Crashes.** A holder that dies passes the lock to the next owner, which is told
//! ([`Lock::owner_died`]) and either declares the data consistent or, by releasing without, makes
//! the lock unusable ([`LockError::Poisoned`]).
//!
//! **Memory.** One line (libc's 40 bytes).
//!
//! **Don't use it** where a lock is held for a few instructions by many: each hand-over of a
//! contended lock goes through the kernel.
#![allow(unsafe_code)]

use towpath_machine::{Arena, KernelMutex, LockOutcome};

use crate::{Lock, LockError, Waiting};

/// The operating system's mutex. Between processes, [`Lock::prepare`] it in the segment.
#[repr(C, align(64))]
pub struct Posix<P: KernelMutex> {
    mutex: P::Mutex,
}

impl<P: KernelMutex> core::fmt::Debug for Posix<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Posix")
    }
}

/// State of the holder: true if its predecessor died.
#[derive(Debug)]
pub struct PosixHeld {
    owner_died: bool,
}

impl<P: KernelMutex> Lock<P> for Posix<P> {
    const NAME: &'static str = "posix";
    const FIFO: bool = false;
    const KNOWS_OWNER: bool = true;
    const IN_PLACE: bool = true;
    type Held = PosixHeld;

    fn new(_arena: &impl Arena<P>) -> Self {
        Posix { mutex: P::Mutex::default() }
    }

    unsafe fn prepare(&self) {
        // SAFETY: no thread uses it yet, and from now on it stays where it is while it is held or
        // waited for (the caller's promises).
        unsafe { P::mutex_init(&self.mutex) };
    }

    fn lock<W: Waiting<P>>(&self, cpu: &P, _wait: &W) -> Result<PosixHeld, LockError> {
        match cpu.mutex_lock(&self.mutex) {
            LockOutcome::Acquired => Ok(PosixHeld { owner_died: false }),
            LockOutcome::OwnerDied => Ok(PosixHeld { owner_died: true }),
            LockOutcome::NotRecoverable | LockOutcome::Busy => Err(LockError::Poisoned),
        }
    }

    fn try_lock(&self, cpu: &P) -> Option<PosixHeld> {
        match cpu.mutex_try_lock(&self.mutex) {
            LockOutcome::Acquired => Some(PosixHeld { owner_died: false }),
            LockOutcome::OwnerDied => Some(PosixHeld { owner_died: true }),
            LockOutcome::NotRecoverable | LockOutcome::Busy => None,
        }
    }

    fn unlock<W: Waiting<P>>(&self, cpu: &P, _wait: &W, _held: PosixHeld) {
        cpu.mutex_unlock(&self.mutex);
    }

    #[inline]
    fn unlock_at_once(&self, cpu: &P, _held: PosixHeld) -> Option<PosixHeld> {
        cpu.mutex_unlock(&self.mutex);
        None
    }

    fn owner_died(held: &PosixHeld) -> bool {
        held.owner_died
    }

    fn make_consistent(&self, cpu: &P, held: &mut PosixHeld) {
        if held.owner_died {
            cpu.mutex_make_consistent(&self.mutex);
            held.owner_died = false;
        }
    }
}
