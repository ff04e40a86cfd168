//! `Condition`: a condition variable beside its lock.

use core::time::Duration;
use std::time::Instant;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyAny;
use towpath_shm::Shared;
use towpath_sync::Deadline;
use towpath_sync::robust::Condvar;

use crate::call::participation;
use crate::lock::PyLock;
use crate::names::shown;
use crate::turns::timeout;

/// Longest time between two looks at signals. Each look needs the lock.
const TURN: Duration = Duration::from_millis(100);

/// A process's handle of a condition.
#[pyclass(frozen, weakref, name = "_Condition", module = "towpath._towpath", subclass)]
pub struct PyCondition {
    object: Shared<Condvar>,
    world: Py<PyAny>,
    name: String,
    lock: Py<PyLock>,
}

impl PyCondition {
    pub fn new(object: Shared<Condvar>, world: Py<PyAny>, name: String, lock: Py<PyLock>) -> PyCondition {
        PyCondition { object, world, name, lock }
    }

    fn check(&self) -> PyResult<&PyLock> {
        let lock = self.lock.get();
        if lock.is_held()? {
            Ok(lock)
        } else {
            Err(PyRuntimeError::new_err("the lock of the condition is not held"))
        }
    }
}

#[pymethods]
impl PyCondition {
    /// Releases the lock, waits until notified, acquires the lock again.
    ///
    /// Returns whether it was notified in time.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let lock = self.check()?;
        let until = self::timeout(timeout)?.and_then(|time| Instant::now().checked_add(time));
        // SAFETY: aligned and mapped as long as the handle lives; any bits are a condition
        // variable, whose words are atomic.
        let condition = unsafe { self.object.as_ptr().as_ref() };
        loop {
            let left = until.map_or(TURN, |until| until.saturating_duration_since(Instant::now()));
            let last = left < TURN;
            // Between two turns it has the lock: no notification under the lock is lost.
            if py.detach(|| lock.wait(condition, Deadline::within(left.min(TURN))))? {
                return Ok(true);
            }
            py.check_signals()?;
            if last {
                return Ok(false);
            }
        }
    }

    /// Notifies so many waiters, which have waited longest.
    #[pyo3(signature = (n=1))]
    fn notify(&self, n: usize) -> PyResult<()> {
        self.check()?;
        participation(self.object.world())?;
        for _ in 0..n.min(64) {
            self.object.notify_one();
        }
        Ok(())
    }

    /// Notifies all waiters.
    fn notify_all(&self) -> PyResult<()> {
        self.check()?;
        participation(self.object.world())?;
        self.object.notify_all();
        Ok(())
    }

    /// Leaves the condition in good order.
    fn _end(&self) {
        if let Ok((cpu, wait)) = self.object.world().participation() {
            // SAFETY: as in `wait`.
            unsafe { self.object.as_ptr().as_ref() }.forget_as(&cpu, &wait);
        }
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
        shown("Condition", &self.name, self.object.world())
    }

    /// Its lock.
    #[getter]
    fn lock(&self, py: Python<'_>) -> Py<PyLock> {
        self.lock.clone_ref(py)
    }
}
