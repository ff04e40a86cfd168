//! Turns of a bundle's threads.
//!
//! A sequential bundle has none; in a parallel one, one thread has the turn.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, PoisonError};

/// Turns of the threads that use a bundle's endpoints.
pub(crate) struct BundleTurns {
    is_parallel: bool,
    /// The thread that has the turn; 0: none.
    thread: AtomicUsize,
    is_taken: Mutex<bool>,
    is_free: Condvar,
}

/// A thread's turn, until it is dropped. A thread that has the turn has it again in its
/// handlers. One word, so that a call in a sequential bundle pays for one comparison.
pub(crate) struct BundleTurn<'a>(Option<&'a BundleTurns>);

impl BundleTurns {
    pub fn new(is_parallel: bool) -> BundleTurns {
        BundleTurns {
            is_parallel,
            thread: AtomicUsize::new(0),
            is_taken: Mutex::new(false),
            is_free: Condvar::new(),
        }
    }

    #[inline(always)]
    pub fn are_taken(&self) -> bool {
        self.is_parallel
    }

    #[inline(always)]
    pub fn take(&self) -> BundleTurn<'_> {
        BundleTurn(if self.is_parallel { self.wait() } else { None })
    }

    #[inline(never)]
    fn wait(&self) -> Option<&BundleTurns> {
        let me = this_thread();
        // Relaxed: only this thread writes its own number, and takes it back before it gives up the
        // turn.
        if self.thread.load(Relaxed) == me {
            return None;
        }
        let mut is_taken = self.is_taken.lock().unwrap_or_else(PoisonError::into_inner);
        while *is_taken {
            is_taken = self.is_free.wait(is_taken).unwrap_or_else(PoisonError::into_inner);
        }
        *is_taken = true;
        self.thread.store(me, Relaxed);
        Some(self)
    }

    #[inline(never)]
    fn end(&self) {
        // Relaxed: see `wait`.
        self.thread.store(0, Relaxed);
        *self.is_taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.is_free.notify_one();
    }
}

impl BundleTurn<'_> {
    /// Returns whether the call has taken it, and not a call around it.
    #[inline(always)]
    pub fn is_held(&self) -> bool {
        self.0.is_some()
    }
}

impl Drop for BundleTurn<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(turns) = self.0 {
            turns.end();
        }
    }
}

/// Number of the calling thread: the address of a variable of its own.
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| core::ptr::from_ref(here).addr())
}
