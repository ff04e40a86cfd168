//! `RwLock`: the readers-writer lock, whose guards are objects.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyTuple};
use towpath_machine::{Native, Processor};
use towpath_shm::{Shared, World};
use towpath_sync::locks::Robust;
use towpath_sync::robust::{ReadHeld, WriteHeld};
use towpath_sync::{Deadline, Entrance, Lock, LockError, Repair, RwLock, RwLockWriteGuard, Wait};

use crate::call::participation;
use crate::fault::Fault;
use crate::names::shown;
use crate::turns::{timeout, waiting};

type Value = RwLock<u64>;
type Held = WriteHeld<<Robust<Native> as Lock<Native>>::Held>;

/// State of a guard, which its thread alone takes.
enum GuardPart {
    Reading(ReadHeld),
    /// A writer's, with the rank of a dead one before it.
    Writing(Held, Option<Option<u32>>),
}

/// State with the number of its thread.
struct Owned(usize, GuardPart);

// SAFETY: numbers, resumed by the thread alone that has the number (`RwInner::give`).
unsafe impl Send for Owned {}

/// A process's handle of a readers-writer lock.
#[pyclass(frozen, weakref, name = "RwLock", module = "towpath._towpath")]
pub struct PyRwLock {
    object: Shared<Value>,
    world: Py<PyAny>,
    name: String,
}

impl PyRwLock {
    pub fn new(object: Shared<Value>, world: Py<PyAny>, name: String) -> PyRwLock {
        PyRwLock { object, world, name }
    }

    fn in_world(&self) -> &World {
        self.object.world()
    }

    fn parts(&self) -> Result<(&Value, Native, Wait<'_>), Fault> {
        let (cpu, wait) = participation(self.in_world())?;
        // SAFETY: aligned and mapped as long as the handle lives; any bits are a lock.
        Ok((unsafe { self.object.as_ptr().as_ref() }, cpu, wait))
    }

    fn of_writer(&self, cpu: &Native, guard: RwLockWriteGuard<'_, u64>) -> Result<Owned, Fault> {
        let dead = guard.dead_writer().map(|dead| self.in_world().surroundings().rank_of(dead));
        let held = guard.into_held().ok_or(LockError::Abandoned)?;
        Ok(Owned(cpu.id(), GuardPart::Writing(held, dead)))
    }

    fn read_before(&self, deadline: Deadline) -> Result<Owned, Fault> {
        let (lock, cpu, wait) = self.parts()?;
        // SAFETY: as in `Shared::read`: all processes lock it as participants of the world; this
        // process stays one until `World::end`, after which no guard is made.
        match unsafe { lock.read_between(cpu, wait, deadline) }? {
            Entrance::Reader(guard) => {
                Ok(Owned(cpu.id(), GuardPart::Reading(guard.into_held().ok_or(LockError::Abandoned)?)))
            }
            Entrance::Writer(guard) => self.of_writer(&cpu, guard),
        }
    }

    fn write_before(&self, deadline: Deadline) -> Result<Owned, Fault> {
        let (lock, cpu, wait) = self.parts()?;
        // SAFETY: as in `read_before`.
        let guard = unsafe { lock.write_between(cpu, wait, deadline) }?;
        self.of_writer(&cpu, guard)
    }

    /// Releases.
    fn give(&self, owned: Owned) -> PyResult<()> {
        let (lock, cpu, wait) = self.parts()?;
        let Owned(thread, kept) = owned;
        if thread != cpu.id() {
            return Err(PyValueError::new_err("the thread that has acquired the lock alone releases it"));
        }
        match kept {
            // SAFETY: of this thread and this lock; processor and surroundings are the world's.
            GuardPart::Reading(held) => drop(unsafe { lock.resume_read(cpu, wait, held) }),
            // SAFETY: of this thread and this lock; processor and surroundings are the world's.
            GuardPart::Writing(held, _) => drop(unsafe { lock.resume_write(cpu, wait, held) }),
        }
        Ok(())
    }
}

/// Returns the rank of the dead writer, if there is one.
const fn died(owned: &Owned) -> Option<Option<u32>> {
    match owned.1 {
        GuardPart::Reading(_) => None,
        GuardPart::Writing(_, dead) => dead,
    }
}

#[pymethods]
impl PyRwLock {
    /// Acquires for reading; returns the guard. Raises TimeoutError if the time was over.
    #[pyo3(signature = (timeout=None))]
    fn read(slf: &Bound<'_, Self>, timeout: Option<f64>) -> PyResult<PyReading> {
        let lock = slf.get();
        let time = self::timeout(timeout)?;
        let Some(owned) = waiting(slf.py(), time, |turn| lock.read_before(Deadline::within(turn)))? else {
            return Err(Fault::Lock(LockError::TimedOut).into());
        };
        if let Some(rank) = died(&owned) {
            lock.give(owned)?;
            return Err(Fault::OwnerDied { rank }.of_world(lock.object.world()).into());
        }
        Ok(PyReading { lock: slf.clone().unbind(), owned: Mutex::new(Some(owned)) })
    }

    /// Acquires for writing; returns the guard.
    ///
    /// Raises TimeoutError if the time was over. With `repair=True` also after the death of a
    /// writer: then the guard's `owner_died` says so.
    #[pyo3(signature = (timeout=None, *, repair=false))]
    fn write(slf: &Bound<'_, Self>, timeout: Option<f64>, repair: bool) -> PyResult<PyWriting> {
        let lock = slf.get();
        let time = self::timeout(timeout)?;
        let Some(owned) = waiting(slf.py(), time, |turn| lock.write_before(Deadline::within(turn)))? else {
            return Err(Fault::Lock(LockError::TimedOut).into());
        };
        let dead = died(&owned);
        if let (Some(rank), false) = (dead, repair) {
            lock.give(owned)?;
            return Err(Fault::OwnerDied { rank }.of_world(lock.object.world()).into());
        }
        let owned = Mutex::new(Some(owned));
        Ok(PyWriting { lock: slf.clone().unbind(), owned, owner_died: dead.is_some() })
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
        shown("RwLock", &self.name, self.in_world())
    }
}

/// Guard of a reader.
#[pyclass(frozen, name = "Reading", module = "towpath._towpath")]
pub struct PyReading {
    lock: Py<PyRwLock>,
    owned: Mutex<Option<Owned>>,
}

/// Guard of a writer.
#[pyclass(frozen, name = "Writing", module = "towpath._towpath")]
pub struct PyWriting {
    lock: Py<PyRwLock>,
    owned: Mutex<Option<Owned>>,
    /// True if the last writer died: the data are to be repaired.
    #[pyo3(get)]
    owner_died: bool,
}

fn release(lock: &Py<PyRwLock>, owned: &Mutex<Option<Owned>>) -> PyResult<()> {
    match owned.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(owned) => lock.get().give(owned),
        None => Err(PyValueError::new_err("the lock was released already")),
    }
}

#[pymethods]
impl PyReading {
    /// Releases.
    fn release(&self) -> PyResult<()> {
        release(&self.lock, &self.owned)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exc))]
    fn __exit__(&self, _exc: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.release()
    }
}

#[pymethods]
impl PyWriting {
    /// Releases. Data that were not declared consistent are left to the next writer.
    fn release(&self) -> PyResult<()> {
        release(&self.lock, &self.owned)
    }

    /// Declares the data consistent after the death of a writer.
    fn make_consistent(&self) -> PyResult<()> {
        let mut owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
        let lock = self.lock.get();
        let (object, cpu, wait) = lock.parts()?;
        match owned.take() {
            Some(Owned(thread, GuardPart::Writing(held, _))) if thread == cpu.id() => {
                // SAFETY: of this thread and this lock; the rest is the world's.
                let mut guard = unsafe { object.resume_write(cpu, wait, held) };
                guard.declare_consistent();
                *owned = Some(lock.of_writer(&cpu, guard)?);
                Ok(())
            }
            other => {
                *owned = other;
                Err(PyValueError::new_err("this thread does not hold the lock"))
            }
        }
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (kind, *_exc))]
    fn __exit__(&self, kind: &Bound<'_, PyAny>, _exc: &Bound<'_, PyTuple>) -> PyResult<()> {
        if self.owner_died && kind.is_none() {
            self.make_consistent()?;
        }
        self.release()
    }
}
