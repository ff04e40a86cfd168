//! Turn to create a named object, and the list in which the record appears.
//!
//! One text for all machines: natively the words are a segment's and a process's (`directory.rs`);
//! the laboratory explores them.
//!
//! **Source.** Our own.
//!
//! **Fields.** `creating`: the participant whose turn it is, or 0; from 0, or from one that is
//! dead, by compare-and-swap; back to 0 by its owner. `among_threads`: 1 while a thread of the
//! process has the turn or waits for it; taken first, so that the process's own id in `creating`
//! can only be a remnant. A list's head: stored by the creator, whose turn it is; read by any
//! participant.
//!
//! **Progress.** Blocking: creators wait for each other, by naps. Reading a head is one load.
//!
//! **Crashes.** A creator that finds the one of `creating` dead takes its place. A process that
//! dies takes its `among_threads` along: that lies in its own memory.
//!
//! **Memory.** A word for each world, each process and each list.

use towpath_machine::{Ordering, Processor};

/// Words of the turn, as a thread sees them.
#[derive(Clone, Copy, Debug)]
pub struct CreationTurn<'a, P: Processor> {
    /// The thread's processor.
    pub cpu: &'a P,
    /// The world's word.
    pub creating: &'a P::Word,
    /// The process's word.
    pub among_threads: &'a P::Word,
    /// The participant, as it stands in the world's word. Never 0.
    pub me: u64,
}

impl<P: Processor> CreationTurn<'_, P> {
    /// Takes the turn.
    ///
    /// `nap` waits a little between two looks, and returns `false` when that has lasted too long.
    ///
    /// # Errors
    ///
    /// The participant that has the turn.
    pub fn take(&self, is_alive: impl Fn(u64) -> bool, mut nap: impl FnMut() -> bool) -> Result<(), u64> {
        // (N5) Acquire: pairs with the Release (N6) in `give_to_thread`.
        while self.cpu.swap(self.among_threads, 1, Ordering::Acquire) != 0 {
            if !nap() {
                return Err(self.me);
            }
        }
        let mut expected = 0;
        loop {
            // (N1) Acquire: pairs with the Release (N2) in `give`.
            let taken = self.cpu.compare_exchange(
                self.creating,
                expected,
                self.me,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            match taken {
                Ok(_) => return Ok(()),
                Err(0) => expected = 0,
                // Dead, or there never was one: takes its place, unless it has changed.
                Err(other) if other == self.me || !is_alive(other) => expected = other,
                Err(other) if !nap() => {
                    self.give_to_thread();
                    return Err(other);
                }
                Err(_) => expected = 0,
            }
        }
    }

    /// Gives the turn back.
    pub fn give(&self) {
        // (N2) Release: pairs with the Acquire (N1) in `take`. Fails only if the segment is
        // damaged.
        let _ = self.cpu.compare_exchange(self.creating, self.me, 0, Ordering::Release, Ordering::Relaxed);
        self.give_to_thread();
    }

    /// Lets the next thread of this process try.
    fn give_to_thread(&self) {
        // (N6) Release: pairs with the Acquire (N5) in `take`.
        self.cpu.store(self.among_threads, 0, Ordering::Release);
    }
}

/// Makes a record the newest of its list. Only the creator.
pub fn publish_record<P: Processor>(cpu: &P, head: &P::Word, code: u64) {
    // (N3) Release: the record, and the object, prepared; pairs with the Acquire (N4).
    cpu.store(head, code, Ordering::Release);
}

/// The newest record of a list, or 0.
pub fn newest_record<P: Processor>(cpu: &P, head: &P::Word) -> u64 {
    // (N4) Acquire: pairs with the Release (N3), and, since each creator reads the head before it
    // stores another one, with those of the older records of the list.
    cpu.load(head, Ordering::Acquire)
}
