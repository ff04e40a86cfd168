//! The operating system's mutex on simulated machines.

use towpath_machine::{KernelMutex, LockOutcome, Ordering, Park, Place, Processor};

use crate::processor::{Sim, SimWord};

/// The operating system's mutex: a word that a thread takes with one exchange if it is
/// free, and sleeps on otherwise. Its holders never die.
#[derive(Debug, Default)]
pub struct SimMutex(std::sync::OnceLock<u32>);

impl Sim {
    fn word_of(&self, mutex: &SimMutex) -> SimWord {
        SimWord(*mutex.0.get_or_init(|| self.engine().memory.word(Place::NewLine, 0)))
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
            self.park(&word, 2, 1_000_000_000);
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
        // (P6) Release: publishes the holder's writes; pairs with (P5) and (P7).
        if self.swap(&word, 0, Ordering::Release) == 2 {
            self.wake(&word, 1);
        }
    }
}
