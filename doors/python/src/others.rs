//! `Semaphore`, `BoundedSemaphore`, `Event`, `Barrier`.

use core::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyTuple};
use towpath_machine::Native;
use towpath_shm::Shared;
use towpath_sync::robust::{Barrier, Event, Semaphore};
use towpath_sync::{Deadline, LockError};

use crate::call::participation;
use crate::fault::Fault;
use crate::names::shown;
use crate::turns::{timeout, truth, waiting};

/// A process's handle of a semaphore. Permits of the dead come back.
#[pyclass(frozen, weakref, name = "Semaphore", module = "towpath._towpath")]
pub struct PySemaphore {
    object: Shared<Semaphore>,
    world: Py<PyAny>,
    name: String,
    bounded: bool,
}

impl PySemaphore {
    pub fn new(object: Shared<Semaphore>, world: Py<PyAny>, name: String, bounded: bool) -> PySemaphore {
        PySemaphore { object, world, name, bounded }
    }

    fn semaphore(&self) -> &Semaphore {
        // SAFETY: aligned and mapped as long as the handle lives; any bits are a semaphore, whose
        // words are atomic.
        unsafe { self.object.as_ptr().as_ref() }
    }

    fn take(&self, deadline: Deadline) -> Result<(), Fault> {
        let (cpu, wait) = participation(self.object.world())?;
        match self.semaphore().acquire_as(&cpu, &wait, deadline) {
            // A process that takes permits which others release: its oldest one is given up.
            Err(LockError::Capacity) if !self.bounded && self.semaphore().forget_as(&cpu, &wait) => {
                Ok(self.semaphore().acquire_as(&cpu, &wait, deadline)?)
            }
            other => Ok(other?),
        }
    }

    fn give(&self) -> PyResult<()> {
        let (cpu, wait) = participation(self.object.world())?;
        if self.semaphore().release_as(&cpu, &wait) {
            return Ok(());
        }
        if self.bounded {
            return Err(PyValueError::new_err("semaphore released too many times"));
        }
        self.semaphore().add_as(&cpu, &wait, 1);
        Ok(())
    }
}

#[pymethods]
impl PySemaphore {
    /// Takes a permit; with `block=False` or a time-out, returns whether it has.
    #[pyo3(signature = (block=true, timeout=None))]
    fn acquire(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = truth)] block: bool,
        timeout: Option<f64>,
    ) -> PyResult<bool> {
        let time = if block { self::timeout(timeout)? } else { Some(Duration::ZERO) };
        Ok(waiting(py, time, |turn| self.take(Deadline::within(turn)))?.is_some())
    }

    /// Gives permits back.
    ///
    /// Adds one if this process has none and the semaphore is not bounded.
    #[pyo3(signature = (n=1))]
    fn release(&self, n: usize) -> PyResult<()> {
        (0..n).try_for_each(|_| self.give())
    }

    /// Number of free permits, after those of the dead have been taken back.
    fn get_value(&self) -> u64 {
        self.object.available()
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<bool> {
        self.acquire(py, true, None)
    }

    #[pyo3(signature = (*_exc))]
    fn __exit__(&self, _exc: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.give()
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
        let kind = if self.bounded { "BoundedSemaphore" } else { "Semaphore" };
        shown(kind, &self.name, self.object.world())
    }

    /// True if a process may not release more than it has taken.
    #[getter]
    fn bounded(&self) -> bool {
        self.bounded
    }
}

/// A process's handle of an event.
#[pyclass(frozen, weakref, name = "Event", module = "towpath._towpath")]
pub struct PyEvent {
    object: Shared<Event>,
    world: Py<PyAny>,
    name: String,
}

impl PyEvent {
    pub fn new(object: Shared<Event>, world: Py<PyAny>, name: String) -> PyEvent {
        PyEvent { object, world, name }
    }
}

#[pymethods]
impl PyEvent {
    /// Sets the event, and wakes all waiters.
    fn set(&self) {
        self.object.set();
    }

    /// Resets the event.
    fn clear(&self) {
        self.object.reset();
    }

    /// Returns whether it is set.
    fn is_set(&self) -> bool {
        self.object.is_set()
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        let state = if slf.get().is_set() { "set" } else { "unset" };
        format!("<Event at {:?} {state}>", slf.as_ptr())
    }

    /// Waits until it is set; returns False if the time was over.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        // A setting that is reset between two turns counts.
        let since = self.object.count();
        let act = |turn| {
            let (cpu, wait) = participation(self.object.world())?;
            // SAFETY: aligned and mapped as long as the handle lives; any bits are an event, whose
            // word is atomic.
            let event = unsafe { self.object.as_ptr().as_ref() };
            event
                .wait_since(&cpu, &wait, since, Deadline::within(turn))
                .map_err(|_| Fault::Lock(LockError::TimedOut))
        };
        Ok(waiting(py, self::timeout(timeout)?, act)?.is_some())
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
}

/// A process's handle of a barrier.
#[pyclass(frozen, weakref, name = "_Barrier", module = "towpath._towpath", subclass)]
pub struct PyBarrier {
    object: Shared<Barrier<Native>>,
    world: Py<PyAny>,
    name: String,
    parties: usize,
}

impl PyBarrier {
    pub fn new(object: Shared<Barrier<Native>>, world: Py<PyAny>, name: String, parties: usize) -> PyBarrier {
        PyBarrier { object, world, name, parties }
    }

    fn barrier(&self) -> &Barrier<Native> {
        // SAFETY: aligned and mapped as long as the handle lives; any bits are a barrier, whose
        // words are atomic, and whose numbers are checked.
        unsafe { self.object.as_ptr().as_ref() }
    }
}

#[pymethods]
impl PyBarrier {
    /// Takes this thread's place without arriving, so that its death is noticed.
    fn join(&self) -> PyResult<()> {
        let (cpu, wait) = participation(self.object.world())?;
        Ok(self.barrier().join_as(&cpu, &wait).map_err(Fault::Barrier)?)
    }

    /// Arrives without waiting, and gives this thread's place up.
    ///
    /// Returns whether it had one.
    fn leave(&self) -> PyResult<bool> {
        let (cpu, wait) = participation(self.object.world())?;
        Ok(self.barrier().leave_as(&cpu, &wait))
    }

    /// Arrives and waits for all; False if the time was over.
    #[pyo3(signature = (timeout=None))]
    fn _wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let act = |turn| {
            let (cpu, wait) = participation(self.object.world())?;
            let arrived = self.barrier().wait_as(&cpu, &wait, Deadline::within(turn));
            arrived.map_err(|error| Fault::Barrier(error).of_world(self.object.world()))
        };
        Ok(waiting(py, self::timeout(timeout)?, act)?.is_some())
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
        shown("Barrier", &self.name, self.object.world())
    }

    /// Number of participants.
    #[getter]
    fn parties(&self) -> usize {
        self.parties
    }
}
