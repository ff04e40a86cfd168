//! `Lock` and `RLock`: the robust mutex.
//!
//! Python has no guards: the holder's state lies in the handle, where the holder alone touches it.
//!
//! **Fields.** `holder`: the holder, after it has acquired, before it releases. `held`,
//! `depth`: the holder.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

use pyo3::exceptions::{PyAssertionError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyAny;
use towpath_machine::{Native, Processor};
use towpath_shm::{Shared, World};
use towpath_sync::locks::Robust;
use towpath_sync::robust::{Condvar, Woken};
use towpath_sync::{Deadline, Lock, LockError, Mutex, MutexGuard, Wait};

use crate::call::participation;
use crate::fault::Fault;
use crate::names;
use crate::turns::{timeout, waiting};

type Value = Mutex<u64>;
type Held = <Robust<Native> as Lock<Native>>::Held;

/// A process's handle of a mutex, for all of its threads.
#[pyclass(frozen, weakref, name = "Lock", module = "towpath._towpath")]
pub struct PyLock {
    object: Shared<Value>,
    world: Py<PyAny>,
    name: String,
    recursive: bool,
    /// Number of the thread that holds it by this handle, plus one; 0: none.
    holder: AtomicUsize,
    held: UnsafeCell<Option<Held>>,
    /// Number of times that the holder has acquired it, beyond the first.
    depth: UnsafeCell<usize>,
}

// SAFETY: `held` and `depth` are touched by the thread alone that `holder` names, or that has just
// acquired the mutex.
unsafe impl Sync for PyLock {}
// SAFETY: the holder's state is numbers; it is resumed by the thread alone that `holder` names.
unsafe impl Send for PyLock {}

/// Outcome of an acquisition.
enum Got {
    /// Consistent data.
    Clean,
    /// The last owner died; its rank.
    Unrepaired(Option<u32>),
}

impl PyLock {
    pub fn new(object: Shared<Value>, world: Py<PyAny>, name: String, recursive: bool) -> PyLock {
        let holder = AtomicUsize::new(0);
        PyLock {
            object,
            world,
            name,
            recursive,
            holder,
            held: UnsafeCell::new(None),
            depth: UnsafeCell::new(0),
        }
    }

    pub fn in_world(&self) -> &World {
        self.object.world()
    }

    #[inline]
    fn parts(&self) -> Result<(&Value, Native, Wait<'_>), Fault> {
        let (cpu, wait) = participation(self.object.world())?;
        // SAFETY: aligned and mapped as long as the handle lives; any bits are a mutex.
        Ok((unsafe { self.object.as_ptr().as_ref() }, cpu, wait))
    }

    #[inline]
    fn is_mine(&self, cpu: &Native) -> bool {
        // Relaxed: it has this value only if this thread stored it.
        self.holder.load(Ordering::Relaxed) == cpu.id() + 1
    }

    #[inline]
    fn lock(&self, deadline: Deadline) -> Result<Got, Fault> {
        let (mutex, cpu, wait) = self.parts()?;
        if self.is_mine(&cpu) {
            if self.recursive {
                // SAFETY: this thread is the holder.
                unsafe { *self.depth.get() += 1 };
                return Ok(Got::Clean);
            }
            // As multiprocessing's: a second acquisition waits for the first one's release.
            if deadline != Deadline::PAST {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            return Err(Fault::Lock(LockError::TimedOut));
        }
        // SAFETY: as in `World::lock`: identities and numbers are the world's; the handle, which is
        // counted, keeps this process in the world until `World::end`, after which no guard is
        // made.
        let guard = unsafe { mutex.lock_between(cpu, wait, deadline) }?;
        Ok(self.keep(cpu, guard, 0)?)
    }

    /// Keeps the state of a new holder.
    #[inline]
    fn keep(&self, cpu: Native, guard: MutexGuard<'_, u64>, depth: usize) -> Result<Got, LockError> {
        let dead = guard.owner_died().then(|| guard.dead_owner());
        let held = guard.into_held().ok_or(LockError::Abandoned)?;
        // SAFETY: this thread has just acquired the mutex, and no other one holds it by this
        // handle.
        unsafe {
            *self.held.get() = Some(held);
            *self.depth.get() = depth;
        }
        // Relaxed: only this thread looks for its own number.
        self.holder.store(cpu.id() + 1, Ordering::Relaxed);
        match dead {
            None => Ok(Got::Clean),
            Some(dead) => {
                let around = self.object.world().surroundings();
                Ok(Got::Unrepaired(dead.and_then(|dead| around.rank_of(dead))))
            }
        }
    }

    /// The guard of this thread, which holds the mutex.
    #[inline]
    fn guard(&self) -> Result<Option<(Native, MutexGuard<'_, u64>)>, Fault> {
        let (mutex, cpu, wait) = self.parts()?;
        if !self.is_mine(&cpu) {
            return Ok(None);
        }
        // SAFETY: this thread is the holder.
        let Some(held) = (unsafe { (*self.held.get()).take() }) else { return Ok(None) };
        self.holder.store(0, Ordering::Relaxed);
        // SAFETY: of this thread and this mutex; the processor and the surroundings are the
        // world's.
        Ok(Some((cpu, unsafe { mutex.resume(cpu, wait, held) })))
    }

    #[inline]
    fn unlock(&self) -> PyResult<()> {
        if self.recursive {
            let (cpu, _) = participation(self.object.world())?;
            // SAFETY: touched only if this thread is the holder.
            if self.is_mine(&cpu) && unsafe { *self.depth.get() } > 0 {
                // SAFETY: as above.
                unsafe { *self.depth.get() -= 1 };
                return Ok(());
            }
        }
        match self.guard()? {
            Some((_, guard)) if guard.owner_died() => guard.hand_on(),
            Some((_, guard)) => drop(guard),
            None => return Err(self.not_held()),
        }
        Ok(())
    }

    #[cold]
    pub fn not_held(&self) -> PyErr {
        if self.recursive {
            PyAssertionError::new_err("attempt to release recursive lock not owned by thread")
        } else {
            PyValueError::new_err("this thread does not hold the lock: its holder alone releases it")
        }
    }

    /// Waits at a condition, `true`: notified. Holds the mutex afterwards.
    pub fn wait(&self, condition: &Condvar, deadline: Deadline) -> Result<bool, Fault> {
        // SAFETY: read by the holder; checked by `guard`.
        let (cpu, _) = participation(self.object.world())?;
        // SAFETY: touched only if this thread is the holder.
        let depth = if self.is_mine(&cpu) { unsafe { *self.depth.get() } } else { 0 };
        let Some((cpu, guard)) = self.guard()? else {
            return Err(Fault::Lock(LockError::Poisoned));
        };
        let (guard, woken) = condition.wait_before(guard, deadline)?;
        match self.keep(cpu, guard, depth)? {
            Got::Clean => Ok(woken != Woken::TimedOut),
            Got::Unrepaired(rank) => Err(Fault::OwnerDied { rank }.of_world(self.in_world())),
        }
    }

    /// Returns whether this thread holds it.
    pub fn is_held(&self) -> Result<bool, Fault> {
        let (cpu, _) = participation(self.object.world())?;
        Ok(self.is_mine(&cpu))
    }

    /// Acquires if that can be done at once, and the data are consistent.
    #[inline]
    pub fn try_quickly(&self) -> bool {
        let Ok((cpu, wait)) = self.object.world().participation() else { return false };
        if self.is_mine(&cpu) {
            if self.recursive {
                // SAFETY: this thread is the holder.
                unsafe { *self.depth.get() += 1 };
            }
            return self.recursive;
        }
        // SAFETY: as in `parts`.
        let mutex = unsafe { self.object.as_ptr().as_ref() };
        // SAFETY: as in `lock`.
        let Some(held) = (unsafe { mutex.acquire_at_once(cpu, wait.around.identity()) }) else {
            return false;
        };
        // SAFETY: as in `keep`.
        unsafe {
            *self.held.get() = Some(held);
            *self.depth.get() = 0;
        }
        // Relaxed: as in `keep`.
        self.holder.store(cpu.id() + 1, Ordering::Relaxed);
        true
    }

    /// Releases if this thread holds it, and the data are consistent.
    #[inline]
    pub fn release_quickly(&self) -> bool {
        let Ok((cpu, wait)) = self.object.world().participation() else { return false };
        if !self.is_mine(&cpu) {
            return false;
        }
        // SAFETY: this thread is the holder.
        let (held, depth) = unsafe { (&mut *self.held.get(), &mut *self.depth.get()) };
        if *depth > 0 {
            *depth -= 1;
            return true;
        }
        if held.as_ref().is_none_or(Robust::<Native>::owner_died) {
            return false;
        }
        let Some(held) = held.take() else { return false };
        self.holder.store(0, Ordering::Relaxed);
        // SAFETY: as in `parts`.
        let mutex = unsafe { self.object.as_ptr().as_ref() };
        // SAFETY: of this thread and this mutex; the processor and the surroundings are the
        // world's.
        unsafe { mutex.release(&cpu, &wait, held) };
        true
    }

    #[inline]
    fn acquire_within(&self, py: Python<'_>, time: Option<core::time::Duration>) -> PyResult<bool> {
        match waiting(py, time, |turn| self.lock(Deadline::within(turn)))? {
            None => Ok(false),
            Some(Got::Clean) => Ok(true),
            Some(Got::Unrepaired(rank)) => {
                self.unlock()?;
                Err(Fault::OwnerDied { rank }.of_world(self.in_world()).into())
            }
        }
    }
}

#[pymethods]
impl PyLock {
    /// `acquire`, of which `quick` does the usual case.
    #[pyo3(signature = (block=true, timeout=None))]
    fn _acquire(&self, py: Python<'_>, block: bool, timeout: Option<f64>) -> PyResult<bool> {
        let time = if block { self::timeout(timeout)? } else { Some(core::time::Duration::ZERO) };
        self.acquire_within(py, time)
    }

    /// `release`, of which `quick` does the usual case.
    fn _release(&self) -> PyResult<()> {
        self.unlock()
    }

    /// Acquires whether or not the last owner died.
    ///
    /// Returns None if the time was over, else a pair of whether it died and its rank.
    #[pyo3(signature = (timeout=None))]
    fn _acquire_any(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<(bool, Option<u32>)>> {
        let got = waiting(py, self::timeout(timeout)?, |turn| self.lock(Deadline::within(turn)))?;
        Ok(got.map(|got| match got {
            Got::Clean => (false, None),
            Got::Unrepaired(rank) => (true, rank),
        }))
    }

    /// Rank, pid and name of a dead owner, as far as they are known.
    fn _dead(&self, rank: Option<u32>) -> (Option<u32>, Option<u32>, Option<String>) {
        let (pid, name) = rank.and_then(|rank| names::of_dead(self.in_world(), rank)).unzip();
        (rank, pid, name)
    }

    /// Acquires for a repair: ``with lock.repair() as death:``. See `towpath.repair`.
    #[pyo3(signature = (timeout=None))]
    fn repair(slf: &Bound<'_, Self>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let package = slf.py().import("towpath.world")?;
        Ok(package.getattr("repair")?.call1((slf, timeout))?.unbind())
    }

    /// Declares the data under the lock consistent after the death of an owner.
    fn make_consistent(&self) -> PyResult<()> {
        // SAFETY: read by the holder; `guard` checks that it is.
        let depth = if self.is_held()? { unsafe { *self.depth.get() } } else { 0 };
        let Some((cpu, mut guard)) = self.guard()? else { return Err(self.not_held()) };
        guard.make_consistent();
        self.keep(cpu, guard, depth).map_err(Fault::Lock)?;
        Ok(())
    }

    /// Returns whether this thread holds the lock.
    fn _is_owned(&self) -> PyResult<bool> {
        Ok(self.is_held()?)
    }

    /// The world in which it lies.
    #[getter]
    fn world(&self, py: Python<'_>) -> Py<PyAny> {
        self.world.clone_ref(py)
    }

    /// Its name in the world.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// True if its holder may acquire it again.
    #[getter]
    fn recursive(&self) -> bool {
        self.recursive
    }
}
