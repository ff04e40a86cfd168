//! End of a run, as a subject judges it.

use crate::machine::RunState;
use crate::thread::Life;
use crate::words::MemoryModel;

/// State that a run left behind.
pub struct End<'a> {
    pub(crate) inner: &'a RunState,
    pub(crate) threads: usize,
}

impl End<'_> {
    /// Returns when the call that this thread is in was invoked.
    pub(crate) fn invoked(&self, thread: usize) -> Option<u64> {
        self.inner.threads.get(thread).and_then(|t| t.invoked)
    }
    /// Returns whether calls are ordered by the threads' knowledge, not by time.
    pub(crate) fn is_by_clocks(&self) -> bool {
        self.inner.model == MemoryModel::C11
    }
    pub(crate) fn model(&self) -> MemoryModel {
        self.inner.model
    }
    /// Returns when this thread died, if it did.
    pub fn died(&self, thread: usize) -> Option<u64> {
        self.inner.threads[thread].died
    }
    /// Returns whether all threads have ended, and none died.
    pub fn all_ended(&self) -> bool {
        self.inner.threads.iter().all(|t| t.life == Life::Ended)
    }
    /// Returns whether a thread died.
    pub fn anybody_died(&self) -> bool {
        self.inner.threads.iter().any(|t| t.life == Life::Dead)
    }
    /// Returns the number of threads of the plan.
    pub fn threads(&self) -> usize {
        self.threads
    }
}
