//! `Broadcast`: messages from one writer to many readers.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyAny, PyBytes};
use towpath_shm::{WorldBroadcast, WorldRing};
use towpath_sync::queues::{BroadcastReader, BroadcastWriter, HoldsBack, TransferError};

use crate::call::participation;
use crate::fault::Fault;
use crate::turns::{timeout, waiting};

/// A process's handle of a broadcast ring.
#[pyclass(frozen, weakref, name = "_Broadcast", module = "towpath._towpath", subclass)]
pub struct PyBroadcast {
    ring: WorldBroadcast<HoldsBack>,
    world: Py<PyAny>,
    name: String,
}

impl PyBroadcast {
    pub fn new(ring: WorldBroadcast<HoldsBack>, world: Py<PyAny>, name: String) -> PyBroadcast {
        PyBroadcast { ring, world, name }
    }
}

#[pymethods]
impl PyBroadcast {
    fn _writer(&self) -> PyResult<PyWriter> {
        participation(self.ring.world())?;
        Ok(PyWriter(Mutex::new(Some(self.ring.writer().map_err(Fault::Transfer)?))))
    }

    fn _reader(&self) -> PyResult<PyReader> {
        participation(self.ring.world())?;
        Ok(PyReader(Mutex::new(Some(self.ring.reader().map_err(Fault::Transfer)?))))
    }

    /// Number of bytes of the ring.
    #[getter]
    fn capacity(&self) -> usize {
        self.ring.capacity()
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

/// The writer of a ring.
#[pyclass(frozen, name = "_Writer", module = "towpath._towpath")]
pub struct PyWriter(Mutex<Option<BroadcastWriter<WorldRing<HoldsBack>>>>);

#[pymethods]
impl PyWriter {
    /// Sends bytes to all readers; False if the time was over.
    #[pyo3(signature = (message, timeout=None))]
    fn send(&self, py: Python<'_>, message: &[u8], timeout: Option<f64>) -> PyResult<bool> {
        let act = |turn| {
            let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let writer = writer.as_mut().ok_or(Fault::Transfer(TransferError::Closed))?;
            Ok(writer.send_timeout(message, turn)?)
        };
        Ok(waiting(py, self::timeout(timeout)?, act)?.is_some())
    }

    /// Number of readers.
    fn readers(&self) -> usize {
        let writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        writer.as_ref().map_or(0, BroadcastWriter::readers)
    }

    /// Ends the writer: readers are told when they have read all.
    fn close(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// A reader of a ring.
#[pyclass(frozen, name = "_Reader", module = "towpath._towpath")]
pub struct PyReader(Mutex<Option<BroadcastReader<WorldRing<HoldsBack>>>>);

#[pymethods]
impl PyReader {
    /// The next message; None if the time was over.
    #[pyo3(signature = (timeout=None))]
    fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Py<PyBytes>>> {
        let act = |turn| {
            let mut reader = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let reader = reader.as_mut().ok_or(Fault::Transfer(TransferError::Closed))?;
            Ok(reader.receive_timeout(turn)?.to_vec())
        };
        let message = waiting(py, self::timeout(timeout)?, act)?;
        Ok(message.map(|message| PyBytes::new(py, &message).unbind()))
    }

    /// Ends the reader.
    fn close(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}
