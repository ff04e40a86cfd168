//! `Broadcast`: messages from one writer to many readers.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyBytes};
use towpath_shm::{World, WorldBroadcast, WorldRing};
use towpath_sync::queues::{BroadcastReader, BroadcastWriter, HoldsBack, TransferError};

use crate::call::participation;
use crate::fault::Fault;
use crate::turns::{timeout, waiting};

const TAKEN: &str = "the broadcast has its one writer already: wait until that has closed it, ended or died; a forked child makes \
     its own";

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
        match self.ring.writer() {
            Ok(writer) => Ok(PyWriter::new(writer)),
            Err(TransferError::Taken { .. }) => Err(PyRuntimeError::new_err(TAKEN)),
            Err(error) => Err(Fault::Transfer(error).into()),
        }
    }

    fn _reader(&self) -> PyResult<PyReader> {
        participation(self.ring.world())?;
        let reader = self.ring.reader().map_err(Fault::Transfer)?;
        Ok(PyReader { reader: Mutex::new(Some(reader)), world: self.ring.world().clone() })
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
pub struct PyWriter(Mutex<WriterState>);

struct WriterState {
    /// `None` once it is closed.
    writer: Option<BroadcastWriter<WorldRing<HoldsBack>>>,
    /// Number of calls of `send`.
    calls: u64,
    /// Call of which a part was sent, and the rest waits for room.
    begun: Option<u64>,
}

impl PyWriter {
    fn new(writer: BroadcastWriter<WorldRing<HoldsBack>>) -> PyWriter {
        PyWriter(Mutex::new(WriterState { writer: Some(writer), calls: 0, begun: None }))
    }

    fn state(&self) -> MutexGuard<'_, WriterState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_call(&self) -> u64 {
        let mut state = self.state();
        state.calls += 1;
        state.calls
    }

    /// Sends the rest of a call's message, for a turn. Only waits while another thread's
    /// message waits for room between two turns.
    fn send_rest(&self, call: u64, message: &[u8], sent: &mut usize, turn: Duration) -> Result<(), Fault> {
        const AGAIN: Duration = Duration::from_millis(1);
        let mut state = self.state();
        if state.begun.is_some_and(|begun| begun != call) {
            drop(state);
            std::thread::sleep(turn.min(AGAIN));
            return Err(Fault::Transfer(TransferError::TimedOut));
        }
        let writer = state.writer.as_mut().ok_or(Fault::Transfer(TransferError::Closed))?;
        let result = writer.send_rest(message, sent, turn);
        state.begun = (result == Err(TransferError::TimedOut) && *sent > 0).then_some(call);
        Ok(result?)
    }
}

#[pymethods]
impl PyWriter {
    /// Sends bytes to all readers; False if the time was over.
    #[pyo3(signature = (message, timeout=None))]
    fn send(&self, py: Python<'_>, message: &[u8], timeout: Option<f64>) -> PyResult<bool> {
        let (call, mut sent) = (self.next_call(), 0);
        let act = |turn| self.send_rest(call, message, &mut sent, turn);
        let done = waiting(py, self::timeout(timeout)?, act);
        // Readers throw away the part that was sent of a message whose time is over.
        let mut state = self.state();
        state.begun = state.begun.filter(|begun| *begun != call);
        drop(state);
        Ok(done?.is_some())
    }

    /// Number of readers.
    fn readers(&self) -> usize {
        self.state().writer.as_ref().map_or(0, BroadcastWriter::readers)
    }

    /// Ends the writer: readers are told when they have read all.
    fn close(&self) {
        drop(self.state().writer.take());
    }
}

/// A reader of a ring.
#[pyclass(frozen, name = "_Reader", module = "towpath._towpath")]
pub struct PyReader {
    /// `None` once it is closed.
    reader: Mutex<Option<BroadcastReader<WorldRing<HoldsBack>>>>,
    world: World,
}

#[pymethods]
impl PyReader {
    /// The next message; None if the time was over.
    #[pyo3(signature = (timeout=None))]
    fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Py<PyBytes>>> {
        let act = |turn| {
            let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
            let reader = reader.as_mut().ok_or(Fault::Transfer(TransferError::Closed))?;
            let message = reader.receive_timeout(turn);
            Ok(message.map_err(|error| Fault::Transfer(error).of_writer(&self.world))?.to_vec())
        };
        let message = waiting(py, self::timeout(timeout)?, act)?;
        Ok(message.map(|message| PyBytes::new(py, &message).unbind()))
    }

    /// Ends the reader.
    fn close(&self) {
        drop(self.reader.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}
