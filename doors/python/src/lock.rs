//! `Lock` and `RLock`: the robust mutex.
//!
//! Python has no guards: the holder's state lies in the handle (`towpath_shm::HeldMutex`).

use pyo3::exceptions::{PyAssertionError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyAny;
use towpath_machine::{Native, Processor};
use towpath_shm::{DataState, HeldMutex, Shared, World};
use towpath_sync::robust::{Condvar, Woken};
use towpath_sync::{Deadline, LockError, Mutex, Wait};

use crate::call::participation;
use crate::fault::Fault;
use crate::names::{self, shown};
use crate::turns::{timeout, truth, waiting};

/// A process's handle of a mutex, for all of its threads.
#[pyclass(frozen, weakref, name = "Lock", module = "towpath._towpath")]
pub struct PyLock {
    mutex: HeldMutex,
    world: Py<PyAny>,
    name: String,
    recursive: bool,
}

/// Token of the thread of a processor.
#[inline]
fn token(cpu: &Native) -> usize {
    cpu.id() + 1
}

impl PyLock {
    pub fn new(object: Shared<Mutex<u64>>, world: Py<PyAny>, name: String, recursive: bool) -> PyLock {
        PyLock { mutex: HeldMutex::new(object), world, name, recursive }
    }

    pub fn in_world(&self) -> &World {
        self.mutex.world()
    }

    #[inline]
    fn caller(&self) -> Result<(Native, Wait<'_>), Fault> {
        participation(self.in_world())
    }

    #[inline]
    fn lock(&self, deadline: Deadline) -> Result<DataState, Fault> {
        let (cpu, wait) = self.caller()?;
        if self.mutex.is_held_by(token(&cpu)) {
            if self.recursive {
                self.mutex.acquire_again(token(&cpu));
                return Ok(DataState::Consistent);
            }
            // As multiprocessing's: a second acquisition waits for the first one's release.
            if deadline != Deadline::PAST {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            return Err(Fault::Lock(LockError::TimedOut));
        }
        // SAFETY: this thread, which does not hold it, with its processor; the handle, which is
        // counted, keeps this process in the world until `World::end`, after which no lock is
        // acquired.
        Ok(unsafe { self.mutex.acquire(token(&cpu), cpu, wait, deadline) }?)
    }

    #[inline]
    fn unlock(&self) -> PyResult<()> {
        let (cpu, wait) = self.caller()?;
        // SAFETY: this thread; the process is in the world, whose wait it is.
        if self.mutex.release_once(token(&cpu)) || unsafe { self.mutex.release(token(&cpu), &wait) } {
            Ok(())
        } else {
            Err(self.not_held())
        }
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
        let (cpu, wait) = self.caller()?;
        // SAFETY: as in `unlock`; the condition is beside the lock.
        let waited = unsafe { self.mutex.wait_at(condition, token(&cpu), wait, deadline) };
        match waited.ok_or(Fault::Lock(LockError::Poisoned))?? {
            (DataState::Consistent, woken) => Ok(woken != Woken::TimedOut),
            (DataState::OwnerDied(rank), _) => Err(Fault::OwnerDied { rank }.of_world(self.in_world())),
        }
    }

    /// Returns whether this thread holds it.
    pub fn is_held(&self) -> Result<bool, Fault> {
        let (cpu, _) = self.caller()?;
        Ok(self.mutex.is_held_by(token(&cpu)))
    }

    /// Acquires if that can be done at once, and the data are consistent.
    #[inline]
    pub fn try_quickly(&self) -> bool {
        let Ok((cpu, wait)) = self.in_world().participation() else { return false };
        if self.mutex.is_held_by(token(&cpu)) {
            return self.recursive && self.mutex.acquire_again(token(&cpu));
        }
        // SAFETY: as in `lock`. One whose owner died is not acquired at once.
        unsafe { self.mutex.acquire_at_once(token(&cpu), cpu, wait.around.identity()) }.is_some()
    }

    /// Releases if this thread holds it, and the data are consistent.
    #[inline]
    pub fn release_quickly(&self) -> bool {
        let Ok((cpu, wait)) = self.in_world().participation() else { return false };
        if self.mutex.release_once(token(&cpu)) {
            return true;
        }
        // SAFETY: as in `unlock`.
        !self.mutex.is_unrepaired(token(&cpu)) && unsafe { self.mutex.release(token(&cpu), &wait) }
    }

    #[inline]
    fn acquire_within(&self, py: Python<'_>, time: Option<core::time::Duration>) -> PyResult<bool> {
        match waiting(py, time, |turn| self.lock(Deadline::within(turn)))? {
            None => Ok(false),
            Some(DataState::Consistent) => Ok(true),
            Some(DataState::OwnerDied(rank)) => {
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
    fn _acquire(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = truth)] block: bool,
        timeout: Option<f64>,
    ) -> PyResult<bool> {
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
            DataState::Consistent => (false, None),
            DataState::OwnerDied(rank) => (true, rank),
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
        let (cpu, wait) = self.caller()?;
        // SAFETY: as in `unlock`.
        if !unsafe { self.mutex.make_consistent(token(&cpu), wait) }.map_err(Fault::Lock)? {
            return Err(self.not_held());
        }
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

    fn __repr__(&self) -> String {
        let kind = if self.recursive { "RLock" } else { "Lock" };
        shown(kind, &self.name, self.in_world())
    }

    /// True if its holder may acquire it again.
    #[getter]
    fn recursive(&self) -> bool {
        self.recursive
    }
}
