//! Turns of a bundle's threads.
//!
//! A sequential bundle has none; in a parallel one, one thread has the turn.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// BundleTurns of the threads that use a bundle's endpoints.
pub(crate) struct BundleTurns {
    is_parallel: bool,
    /// The thread that has the turn; 0: none.
    thread: AtomicUsize,
    turn: Mutex<()>,
}

/// A thread's turn, until it is dropped. A thread that has the turn has it again in its
/// handlers.
pub(crate) struct BundleTurn<'a> {
    turns: &'a BundleTurns,
    held: Option<MutexGuard<'a, ()>>,
}

impl BundleTurns {
    pub fn new(is_parallel: bool) -> BundleTurns {
        BundleTurns { is_parallel, thread: AtomicUsize::new(0), turn: Mutex::new(()) }
    }

    pub fn are_taken(&self) -> bool {
        self.is_parallel
    }

    #[inline]
    pub fn take(&self) -> BundleTurn<'_> {
        if !self.is_parallel {
            return BundleTurn { turns: self, held: None };
        }
        let me = this_thread();
        // Relaxed: only this thread writes its own number, and takes it back before it gives up the
        // turn.
        if self.thread.load(Relaxed) == me {
            return BundleTurn { turns: self, held: None };
        }
        let held = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.thread.store(me, Relaxed);
        BundleTurn { turns: self, held: Some(held) }
    }
}

impl Drop for BundleTurn<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.held.is_some() {
            // Relaxed: see `take`.
            self.turns.thread.store(0, Relaxed);
        }
    }
}

/// Number of the calling thread: the address of a variable of its own.
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| core::ptr::from_ref(here).addr())
}
