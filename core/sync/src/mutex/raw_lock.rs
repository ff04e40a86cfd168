//! A lock without data of its own, for `lock_api`.

use towpath_machine::Native;

use super::{Exclusive, adaptive};
use crate::Lock;

/// A lock whose holder keeps nothing, as a [`lock_api::RawMutex`]:
/// `lock_api::Mutex<RawLock<TestAndTestAndSet<Native>>, T>`.
#[derive(Debug)]
pub struct RawLock<L>(L);

// SAFETY: the lock excludes, and unlocking makes what was done under it visible to the next holder.
unsafe impl<L: Lock<Native, Held = ()> + Init + Exclusive> lock_api::RawMutex for RawLock<L> {
    const INIT: Self = RawLock(L::UNLOCKED);
    type GuardMarker = lock_api::GuardSend;

    fn lock(&self) {
        let wait = adaptive();
        // Alone nothing is ever abandoned, poisoned or (with nothing to keep) over capacity.
        while self.0.lock(&Native::of_thread(), &wait).is_err() {}
    }
    fn try_lock(&self) -> bool {
        self.0.try_lock(&Native::of_thread()).is_some()
    }
    unsafe fn unlock(&self) {
        let wait = adaptive();
        self.0.unlock(&Native::of_thread(), &wait, ());
    }
}

/// Locks that can be made when the program is compiled.
pub trait Init {
    /// An unlocked lock.
    const UNLOCKED: Self;
}
