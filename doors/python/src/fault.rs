//! Errors as Python's exceptions.

use pyo3::exceptions::{PyOSError, PyRuntimeError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use towpath_shm::Error;
use towpath_sync::LockError;
use towpath_sync::queues::TransferError;
use towpath_sync::robust::EpisodeError;

/// Cause of a failed call.
#[derive(Debug)]
pub enum Fault {
    /// Error of a world.
    World(Error),
    /// Error of a lock or a semaphore.
    Lock(LockError),
    /// Error of a barrier.
    Barrier(EpisodeError),
    /// Error of a queue or a ring.
    Transfer(TransferError),
    /// The last owner died; its rank, if it is known.
    OwnerDied { rank: Option<u32> },
}

impl Fault {
    /// Returns whether the caller's time was over.
    pub fn is_timeout(&self) -> bool {
        match self {
            Fault::Lock(error) => error.is_timeout(),
            Fault::Barrier(error) => matches!(error, EpisodeError::TimedOut),
            Fault::Transfer(error) => error.is_timeout(),
            _ => false,
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::World(error)
    }
}

impl From<LockError> for Fault {
    fn from(error: LockError) -> Fault {
        Fault::Lock(error)
    }
}

impl From<EpisodeError> for Fault {
    fn from(error: EpisodeError) -> Fault {
        Fault::Barrier(error)
    }
}

impl From<TransferError> for Fault {
    fn from(error: TransferError) -> Fault {
        Fault::Transfer(error)
    }
}

impl From<Fault> for PyErr {
    #[cold]
    fn from(fault: Fault) -> PyErr {
        match fault {
            Fault::World(error) => match &error {
                Error::InvalidName { .. }
                | Error::NumberOutOfRange { .. }
                | Error::InvalidProcesses { .. }
                | Error::OtherType { .. } => PyValueError::new_err(error.to_string()),
                Error::System { source, .. } | Error::File { source, .. } => match source.raw_os_error() {
                    Some(number) => PyOSError::new_err((number, error.to_string())),
                    None => PyOSError::new_err(error.to_string()),
                },
                Error::DirectoryFull { .. } => of_package("WorldFull", error.to_string()),
                _ => of_package("WorldError", error.to_string()),
            },
            Fault::Lock(LockError::TimedOut) | Fault::Barrier(EpisodeError::TimedOut) => {
                PyTimeoutError::new_err("the time was over")
            }
            Fault::Lock(error) => PyRuntimeError::new_err(error.to_string()),
            Fault::Barrier(EpisodeError::PeerDied { rank }) => died("PeerDied", rank, EPISODE),
            Fault::Barrier(error) => PyRuntimeError::new_err(error.to_string()),
            Fault::Transfer(TransferError::PeerDied { rank }) => {
                died("PeerDied", rank, "the other side died")
            }
            Fault::Transfer(error @ (TransferError::Closed | TransferError::Disconnected)) => {
                of_package("Closed", error.to_string())
            }
            Fault::Transfer(TransferError::TimedOut) => PyTimeoutError::new_err("the time was over"),
            Fault::Transfer(error @ TransferError::TooLong { .. }) => {
                PyValueError::new_err(error.to_string())
            }
            Fault::Transfer(error) => PyRuntimeError::new_err(error.to_string()),
            Fault::OwnerDied { rank } => died("OwnerDied", rank, OWNER),
        }
    }
}

const OWNER: &str = "the last owner of the lock died and may have left half-changed data: acquire the lock with repair(), mend them, and go on";
const EPISODE: &str = "a participant of the barrier died: the next episode is among the survivors";

#[cold]
fn died(kind: &'static str, rank: Option<u32>, text: &'static str) -> PyErr {
    Python::attach(|py| match class(py, kind).and_then(|class| class.call1((text, rank))) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    })
}

#[cold]
fn of_package(kind: &'static str, text: String) -> PyErr {
    Python::attach(|py| match class(py, kind).and_then(|class| class.call1((text,))) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    })
}

static ERRORS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

fn class<'py>(py: Python<'py>, kind: &str) -> PyResult<Bound<'py, PyType>> {
    let errors = ERRORS.get_or_try_init(py, || py.import("towpath.errors").map(Bound::unbind))?;
    Ok(errors.bind(py).getattr(kind)?.cast_into::<PyType>()?)
}

/// Adds functions of this module.
pub fn add(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(end, m)?)
}

/// Tells this module that the interpreter ends: the process enters no world any more.
#[pyfunction]
fn end() {
    crate::call::end();
}
