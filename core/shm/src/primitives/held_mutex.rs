//! A mutex whose holder's state lies in the handle: for languages without guards.
//!
//! A process has one handle for all of its threads, which name themselves by tokens: numbers but 0
//! that differ among the threads that live.
//!
//! **Fields.** `holder`: the holder, after it has acquired, before it releases. `held`: the holder.
//! `depth`: the holder.
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

use towpath_derive::OpaqueDebug;
use towpath_machine::Native;
use towpath_sync::locks::Robust;
use towpath_sync::robust::{Condvar, Woken};
use towpath_sync::{Deadline, Lock, LockError, Mutex, MutexGuard, Wait};

use crate::{Shared, World};

type Value = Mutex<u64>;
type Held = <Robust<Native> as Lock<Native>>::Held;

/// A process's handle of a mutex, with the state of its holder.
#[derive(OpaqueDebug)]
pub struct HeldMutex {
    object: Shared<Value>,
    /// Token of the thread that holds it by this handle; 0: none.
    holder: AtomicUsize,
    /// The holder's processor, and its state, as words.
    held: UnsafeCell<(Native, [u64; 2])>,
    /// Number of acquisitions of the holder, beyond the first; 0 without a holder.
    depth: UnsafeCell<usize>,
}

// SAFETY: `held` and `depth` are touched by the thread alone that `holder` names, or that has just
// acquired the mutex.
unsafe impl Sync for HeldMutex {}
// SAFETY: the holder's state is numbers; it is resumed by the thread alone that `holder` names.
unsafe impl Send for HeldMutex {}

/// State of a holder whose release takes more than the usual case.
#[derive(OpaqueDebug)]
pub struct StillHeld {
    cpu: Native,
    held: Held,
}

/// State of the data under a mutex that was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataState {
    /// Consistent.
    Consistent,
    /// The last owner died, and may have left them half changed; its rank.
    OwnerDied(Option<u32>),
}

// The usual case of a call stores hardly anything before its atomic instruction, which would wait
// for the stores.
impl HeldMutex {
    /// The handle of a mutex.
    pub fn new(object: Shared<Value>) -> HeldMutex {
        let held = UnsafeCell::new((Native::with_id(0), [0; 2]));
        HeldMutex { object, holder: AtomicUsize::new(0), held, depth: UnsafeCell::new(0) }
    }

    /// The world in which it lies.
    #[inline(always)]
    pub fn world(&self) -> &World {
        self.object.world()
    }

    /// The value under the mutex, for its holder.
    pub fn value(&self) -> *mut u64 {
        self.mutex().data_ptr()
    }

    #[inline(always)]
    fn mutex(&self) -> &Value {
        // SAFETY: aligned and mapped as long as the handle lives; any bits are a mutex.
        unsafe { self.object.as_ptr().as_ref() }
    }

    /// Returns whether the thread of that token, the caller, holds it.
    #[inline(always)]
    pub fn is_held_by(&self, token: usize) -> bool {
        // Relaxed: it has this value only if this thread stored it.
        self.holder.load(Ordering::Relaxed) == token
    }

    /// Acquires a mutex that is free, in the usual case. Returns whether its last owner
    /// died; `None`: it is not free, or not usual.
    ///
    /// # Safety
    ///
    /// * The token is the calling thread's, and does not hold the mutex.
    /// * The processor and the identity are the caller's, in the mutex's world.
    /// * The process does not leave the world before the mutex is released.
    #[inline(always)]
    pub unsafe fn acquire_at_once(&self, token: usize, cpu: Native, identity: u32) -> Option<bool> {
        // SAFETY: as in `World::lock`: identities and numbers are the world's; the handle, which is
        // counted, keeps this process in the world.
        let held = unsafe { self.mutex().acquire_at_once(cpu, identity) }?;
        let died = Robust::<Native>::owner_died(&held);
        self.keep(token, cpu, held);
        Some(died)
    }

    /// Acquires.
    ///
    /// # Errors
    ///
    /// Those of the mutex.
    ///
    /// # Safety
    ///
    /// As for [`HeldMutex::acquire_at_once`]; the wait's surroundings are the mutex's world.
    pub unsafe fn acquire(
        &self,
        token: usize,
        cpu: Native,
        wait: Wait<'_>,
        deadline: Deadline,
    ) -> Result<DataState, LockError> {
        // SAFETY: as in `acquire_at_once`.
        let guard = unsafe { self.mutex().lock_between(cpu, wait, deadline) }?;
        self.keep_guard(token, cpu, guard)
    }

    /// Keeps the state of a new holder.
    #[inline(always)]
    fn keep(&self, token: usize, cpu: Native, held: Held) {
        // SAFETY: this thread has just acquired the mutex, and no other one holds it by this
        // handle.
        unsafe { *self.held.get() = (cpu, held.into_words()) };
        // Relaxed: only this thread looks for its own token.
        self.holder.store(token, Ordering::Relaxed);
    }

    fn keep_guard(
        &self,
        token: usize,
        cpu: Native,
        guard: MutexGuard<'_, u64>,
    ) -> Result<DataState, LockError> {
        let dead = guard.owner_died().then(|| guard.dead_owner());
        let held = guard.into_held().ok_or(LockError::Abandoned)?;
        self.keep(token, cpu, held);
        let rank = |dead| self.world().surroundings().rank_of(dead);
        Ok(dead.map_or(DataState::Consistent, |dead| DataState::OwnerDied(dead.and_then(rank))))
    }

    /// The state of the calling thread, if it holds the mutex: not any more.
    #[inline(always)]
    fn taken(&self, token: usize) -> Option<(&Native, Held)> {
        if !self.is_held_by(token) {
            return None;
        }
        self.holder.store(0, Ordering::Relaxed);
        // SAFETY: this thread is the holder, until the caller releases; the words are of `keep`,
        // and used once, since `holder` was set there and reset here.
        unsafe {
            let held = &*self.held.get();
            Some((&held.0, Held::from_words(held.1)))
        }
    }

    /// Releases. Data that were not declared consistent are left to the next owner.
    /// Returns false if the caller does not hold it.
    ///
    /// # Safety
    ///
    /// * The token is the calling thread's, and the process is in the world.
    /// * The wait's surroundings are the mutex's world.
    #[inline(always)]
    pub unsafe fn release(&self, token: usize, wait: &Wait<'_>) -> bool {
        // SAFETY: as the caller's.
        let released = unsafe { self.release_at_once(token) };
        if let Some(Err(rest)) = released {
            // SAFETY: as the caller's.
            unsafe { self.release_after(rest, *wait) };
            return true;
        }
        released.is_some()
    }

    /// Releases in the usual case. `Err`: the rest of it, for
    /// [`HeldMutex::release_after`]. `None`: the caller does not hold the mutex.
    ///
    /// # Safety
    ///
    /// The token is the calling thread's, and the process is in the world.
    #[inline(always)]
    pub unsafe fn release_at_once(&self, token: usize) -> Option<Result<(), StillHeld>> {
        let (&cpu, held) = self.taken(token)?;
        // SAFETY: of this thread and this mutex.
        let rest = unsafe { self.mutex().release_at_once(cpu, held) };
        Some(rest.map_or(Ok(()), |held| Err(StillHeld { cpu, held })))
    }

    /// Goes on where [`HeldMutex::release_at_once`] could not.
    ///
    /// # Safety
    ///
    /// * `rest` came from that call, and the process is in the world.
    /// * The wait's surroundings are the mutex's world.
    #[cold]
    #[inline(never)]
    pub unsafe fn release_after(&self, rest: StillHeld, wait: Wait<'_>) {
        let StillHeld { cpu, held } = rest;
        let died = Robust::<Native>::owner_died(&held);
        // SAFETY: of this thread and this mutex; the surroundings are the world's.
        let guard = unsafe { self.mutex().resume(cpu, wait, held) };
        if died { guard.hand_on() } else { drop(guard) }
    }

    /// Declares the data consistent. Returns false if the caller does not hold the mutex.
    ///
    /// # Errors
    ///
    /// [`LockError::Abandoned`], in damaged memory.
    ///
    /// # Safety
    ///
    /// As for [`HeldMutex::release`].
    pub unsafe fn make_consistent(&self, token: usize, wait: Wait<'_>) -> Result<bool, LockError> {
        let Some((&cpu, held)) = self.taken(token) else { return Ok(false) };
        // SAFETY: as in `release`.
        let mut guard = unsafe { self.mutex().resume(cpu, wait, held) };
        guard.make_consistent();
        self.keep_guard(token, cpu, guard)?;
        Ok(true)
    }

    /// Waits at a condition, and holds the mutex afterwards unless the error says
    /// otherwise. `None`: the caller does not hold the mutex.
    ///
    /// # Errors
    ///
    /// Those of the mutex and the condition.
    ///
    /// # Safety
    ///
    /// As for [`HeldMutex::release`]; the condition lies in the mutex's world.
    pub unsafe fn wait_at(
        &self,
        condition: &Condvar,
        token: usize,
        wait: Wait<'_>,
        deadline: Deadline,
    ) -> Option<Result<(DataState, Woken), LockError>> {
        let depth = self.depth(token);
        let (&cpu, held) = self.taken(token)?;
        // SAFETY: this thread has the mutex still.
        unsafe { *self.depth.get() = 0 };
        // SAFETY: as in `release`.
        let guard = unsafe { self.mutex().resume(cpu, wait, held) };
        Some(condition.wait_before(guard, deadline).and_then(|(guard, woken)| {
            let state = self.keep_guard(token, cpu, guard)?;
            // SAFETY: this thread is the holder again.
            unsafe { *self.depth.get() = depth };
            Ok((state, woken))
        }))
    }

    /// Number of times that the calling thread has acquired it, beyond the first.
    pub fn depth(&self, token: usize) -> usize {
        // SAFETY: this thread is the holder, if so.
        if self.is_held_by(token) { unsafe { *self.depth.get() } } else { 0 }
    }

    /// Acquires once more. Returns false if the caller does not hold it.
    #[inline(always)]
    pub fn acquire_again(&self, token: usize) -> bool {
        let is_mine = self.is_held_by(token);
        if is_mine {
            // SAFETY: this thread is the holder.
            unsafe { *self.depth.get() += 1 };
        }
        is_mine
    }

    /// Releases once, if the caller has acquired it more than once.
    #[inline(always)]
    pub fn release_once(&self, token: usize) -> bool {
        if self.depth(token) == 0 {
            return false;
        }
        // SAFETY: this thread is the holder, since it has a depth.
        unsafe { *self.depth.get() -= 1 };
        true
    }

    /// Returns whether the calling thread holds it and the data are not consistent.
    #[inline(always)]
    pub fn is_unrepaired(&self, token: usize) -> bool {
        self.is_held_by(token) && {
            // SAFETY: this thread is the holder; its words are of `keep`, and only read here.
            let held = unsafe { Held::from_words((*self.held.get()).1) };
            Robust::<Native>::owner_died(&held)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primitives::world_of_two;

    #[test]
    fn holder_is_the_thread_that_acquired() {
        let world = world_of_two();
        let mutex = HeldMutex::new(world.mutex("m", 0u64).unwrap());
        let identity = world.surroundings().identity();
        let (cpu, wait) = world.participation().unwrap();
        // SAFETY: the tokens are this thread's and the other one's.
        unsafe {
            assert_eq!(mutex.acquire_at_once(1, cpu, identity), Some(false));
            assert_eq!(mutex.acquire_at_once(2, cpu, identity), None, "it is not free");
            assert!(mutex.is_held_by(1) && !mutex.is_held_by(2) && !mutex.is_unrepaired(1));
            assert!(mutex.acquire_again(1) && !mutex.acquire_again(2));
            assert_eq!(mutex.make_consistent(1, wait), Ok(true));
            assert_eq!(mutex.depth(1), 1);
            assert!(mutex.release_once(1) && !mutex.release_once(1));
            assert!(!mutex.release(2, &wait), "another thread");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (cpu, wait) = world.participation().unwrap();
                    let late = mutex.acquire(2, cpu, wait, Deadline::PAST);
                    assert_eq!(late, Err(LockError::TimedOut));
                });
            });
            assert!(mutex.release(1, &wait) && !mutex.release(1, &wait));
            let again = mutex.acquire(1, cpu, wait, Deadline::NEVER);
            assert_eq!(again, Ok(DataState::Consistent));
            assert!(mutex.release(1, &wait));
        }
    }
}
