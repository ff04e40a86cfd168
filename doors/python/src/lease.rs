//! Messages under leases, which come in again if this process dies.

use std::mem::ManuallyDrop;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyBytes};
use towpath_shm::HeldMessage;

use crate::in_place::PyLent;
use crate::messages::PyMessages;
use crate::objects;

/// A message under a lease: it comes again if this process dies before it is done with.
#[pyclass(frozen, name = "Lease", module = "towpath._towpath")]
pub struct PyLease {
    /// `None` after it was done with. The number is the process's.
    message: Mutex<Option<(u32, ManuallyDrop<HeldMessage>)>>,
    queue: Py<PyMessages>,
}

impl PyLease {
    pub fn new(leased: HeldMessage, queue: Py<PyMessages>) -> PyLease {
        PyLease { message: Mutex::new(Some((std::process::id(), ManuallyDrop::new(leased)))), queue }
    }

    fn take(&self) -> PyResult<HeldMessage> {
        match self.message.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some((_, leased)) => Ok(ManuallyDrop::into_inner(leased)),
            None => Err(PyValueError::new_err("the message was done with already")),
        }
    }
}

impl Drop for PyLease {
    fn drop(&mut self) {
        // A forked child's copy is its parent's.
        if let Ok(Some((pid, leased))) = self.message.get_mut().map(Option::take)
            && pid == std::process::id()
        {
            ManuallyDrop::into_inner(leased).give_back();
        }
    }
}

#[pymethods]
impl PyLease {
    /// A copy of the message.
    fn bytes(&self, py: Python<'_>) -> PyResult<Py<PyBytes>> {
        match &*self.message.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((_, leased)) => Ok(PyBytes::new(py, leased).unbind()),
            None => Err(PyValueError::new_err("the message was done with already")),
        }
    }

    /// The object of the message. Its buffers lie in the queue, until the lease ends.
    fn object<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let message: *const [u8] = match &*self.message.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((_, leased)) => &raw const leased[..],
            None => return Err(PyValueError::new_err("the message was done with already")),
        };
        // SAFETY: mapped as long as the queue's handle, which this lease keeps; not written by any
        // other process as long as the lease lasts, which its only user ends afterwards.
        objects::object_of(py, unsafe { &*message }, |buffer, read_only| {
            let lent = PyLent::new(buffer, read_only, self.queue.clone_ref(py));
            Ok(Bound::new(py, lent)?.into_any())
        })
    }

    /// The message is done with.
    fn done(&self) -> PyResult<()> {
        drop(self.take()?);
        Ok(())
    }

    /// Gives the message back: it comes in again, behind those that wait.
    fn give_back(&self) -> PyResult<()> {
        self.take()?.give_back();
        Ok(())
    }
}
