//! Calls of an endpoint that its thread is in, as its signal handlers see them.
//!
//! **Source.** Our own. Handlers nest: what a handler begins it has ended when the interrupted code
//! goes on, so a load and a store by the same thread are as good as one step.
//!
//! **Progress.** Wait-free. **Fields.** `depth`: the thread, and its handlers. **Crashes.** The
//! word is in the process's own memory. **Memory.** A word.

use towpath_machine::{Arena, Ordering, Place, Processor};

/// Number of calls that a thread is in, one inside the other.
pub struct Calls<P: Processor> {
    depth: P::Word,
}

impl<P: Processor> core::fmt::Debug for Calls<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Calls").finish_non_exhaustive()
    }
}

impl<P: Processor> Calls<P> {
    /// None yet.
    pub fn new(arena: &impl Arena<P>) -> Self {
        Calls { depth: arena.word(Place::NewLine, 0) }
    }

    /// Returns whether the thread is in a call.
    pub fn are_under_way(&self, cpu: &P) -> bool {
        // Relaxed, here and below: a handler is the same thread; what a compiler may do is said
        // below.
        cpu.load(&self.depth, Ordering::Relaxed) > 0
    }

    /// Begins a call.
    pub fn begin(&self, cpu: &P) {
        cpu.store(&self.depth, cpu.load(&self.depth, Ordering::Relaxed) + 1, Ordering::Relaxed);
        // (B1) SeqCst, for the compiler only: the call's steps come after this; pairs with the
        // fence (B2) in `end`, and with handlers.
        cpu.compiler_fence(Ordering::SeqCst);
    }

    /// Ends it.
    pub fn end(&self, cpu: &P) {
        // (B2) SeqCst, for the compiler only: the call's steps come before; pairs with (B1).
        cpu.compiler_fence(Ordering::SeqCst);
        cpu.store(&self.depth, cpu.load(&self.depth, Ordering::Relaxed) - 1, Ordering::Relaxed);
    }
}
