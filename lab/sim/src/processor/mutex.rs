//! The operating system's mutex on simulated machines.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;

use towpath_machine::{KernelMutex, LockOutcome, Ordering, Park, Place, Processor};

use crate::parameters::NO_HANDOVER;
use crate::processor::{Sim, SimWord};

/// Time after which a sleeper looks again by itself, in nanoseconds.
const LONG: u64 = 1_000_000_000;

/// The operating system's mutex: a word that a thread takes with one exchange if it is
/// free, and sleeps on otherwise. Its holders never die.
///
/// With `os.mutex_handover` a release leaves the word as it is if some thread sleeps, and wakes
/// one: the lock is that thread's from then on.
#[derive(Debug, Default)]
pub struct SimMutex {
    word: OnceLock<u32>,
    /// Number of woken threads that the lock was handed to and that have yet to run.
    handed: AtomicU32,
}

impl Sim {
    fn word_of(&self, mutex: &SimMutex) -> SimWord {
        SimWord(*mutex.word.get_or_init(|| self.engine().memory.word(Place::NewLine, 0)))
    }

    /// Sleeps until woken.
    ///
    /// Where mutexes are handed over, the system looks at the word under a lock of its own, and
    /// puts the thread to sleep; else the thread itself looks, through its cache, before it does.
    fn sleep_on(&self, word: &SimWord) {
        if self.engine().p.mutex_handover == NO_HANDOVER {
            return self.park(word, 2, LONG);
        }
        self.path.synchronise(self);
        self.await_turn();
        let is_contended = self.engine().memory.values[word.0 as usize] == 2;
        self.sleep_if(is_contended, word, LONG);
    }

    /// Returns whether the lock was handed to this thread, which a release has woken.
    fn was_handed(mutex: &SimMutex) -> bool {
        // Relaxed, here and in `hand_over`: the host runs one thread of a simulation at a time.
        mutex.handed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
    }

    /// Releases the lock; hands it to a sleeper if there is one.
    fn hand_over(&self, mutex: &SimMutex, word: &SimWord) {
        // (P6) Release: publishes the holder's writes; pairs with (P5) and (P7). Relaxed: a failure
        // only says that some thread may sleep.
        if self.compare_exchange(word, 1, 0, Ordering::Release, Ordering::Relaxed).is_ok() {
            return;
        }
        if self.wake(word, 1) > 0 {
            mutex.handed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // None slept yet. (P6) Release: publishes the holder's writes; pairs with (P5) and
        // (P7).
        self.swap(word, 0, Ordering::Release);
        // One that has fallen asleep meanwhile looks again.
        self.wake(word, 1);
    }
}

/// States of the word: 0 free, 1 held, 2 held and some thread may sleep.
impl KernelMutex for Sim {
    type Mutex = SimMutex;
    fn mutex_lock(&self, mutex: &SimMutex) -> LockOutcome {
        let word = self.word_of(mutex);
        let call = self.machine.borrow().engine.p.mutex_path;
        self.charge(call);
        // (P5) Acquire, here and in the loop: the new holder sees what the last one did; pairs with
        // the Release (P6) in `mutex_unlock`. Relaxed: a failure orders nothing, the loop looks
        // again.
        if self.compare_exchange(&word, 0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return LockOutcome::Acquired;
        }
        while self.swap(&word, 2, Ordering::Acquire) != 0 {
            self.sleep_on(&word);
            if Self::was_handed(mutex) {
                break;
            }
        }
        LockOutcome::Acquired
    }
    fn mutex_try_lock(&self, mutex: &SimMutex) -> LockOutcome {
        let word = self.word_of(mutex);
        // (P7) Acquire: like (P5), pairs with (P6). Relaxed: a failure gives no right to the data.
        match self.compare_exchange(&word, 0, 1, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => LockOutcome::Acquired,
            Err(_) => LockOutcome::Busy,
        }
    }
    fn mutex_make_consistent(&self, _mutex: &SimMutex) {}
    fn mutex_unlock(&self, mutex: &SimMutex) {
        let word = self.word_of(mutex);
        let call = self.machine.borrow().engine.p.mutex_path;
        self.charge(call);
        if self.engine().p.mutex_handover != NO_HANDOVER {
            return self.hand_over(mutex, &word);
        }
        // (P6) Release: publishes the holder's writes; pairs with (P5) and (P7).
        if self.swap(&word, 0, Ordering::Release) == 2 {
            self.wake(&word, 1);
        }
    }
}
