//! Errors as Python's exceptions.

use pyo3::exceptions::{PyOSError, PyRuntimeError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use towpath_shm::{Error, World};
use towpath_sync::LockError;
use towpath_sync::queues::TransferError;
use towpath_sync::robust::EpisodeError;

use crate::names;

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
    /// A death, with number and name of the dead if they are known.
    Death(Box<Death>),
}

/// A death, as its exception tells of it.
#[derive(Debug)]
pub struct Death {
    kind: &'static str,
    text: &'static str,
    rank: Option<u32>,
    known: Option<(u32, String)>,
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

impl Fault {
    /// Adds number and name of the dead, if it tells of a death in that world.
    pub fn of_world(self, world: &World) -> Fault {
        let (kind, text, rank) = match self {
            Fault::OwnerDied { rank } => ("OwnerDied", OWNER, rank),
            Fault::Barrier(EpisodeError::PeerDied { rank }) => ("PeerDied", EPISODE, rank),
            Fault::Transfer(TransferError::PeerDied { rank }) => ("PeerDied", OTHER_SIDE, rank),
            other => return other,
        };
        Fault::of_death(world, kind, text, rank)
    }

    /// Tells a reader of a ring in that world of the writer, if that died.
    pub fn of_writer(self, world: &World) -> Fault {
        match self {
            Fault::Transfer(TransferError::PeerDied { rank }) => {
                Fault::of_death(world, "PeerDied", WRITER, rank)
            }
            other => other,
        }
    }

    fn of_death(world: &World, kind: &'static str, text: &'static str, rank: Option<u32>) -> Fault {
        let known = rank.and_then(|rank| names::of_dead(world, rank));
        Fault::Death(Box::new(Death { kind, text, rank, known }))
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
                | Error::OtherType { .. } => PyValueError::new_err(sentence(&error)),
                Error::System { source, .. } | Error::File { source, .. } => match source.raw_os_error() {
                    Some(number) => PyOSError::new_err((number, sentence(&error))),
                    None => PyOSError::new_err(sentence(&error)),
                },
                Error::DirectoryFull { .. } => of_package("WorldFull", sentence(&error)),
                _ => of_package("WorldError", sentence(&error)),
            },
            Fault::Lock(LockError::TimedOut) | Fault::Barrier(EpisodeError::TimedOut) => {
                PyTimeoutError::new_err("the time was over")
            }
            Fault::Lock(error) => PyRuntimeError::new_err(error.to_string()),
            Fault::Barrier(EpisodeError::PeerDied { rank }) => died("PeerDied", EPISODE, rank, None),
            Fault::Barrier(error) => PyRuntimeError::new_err(error.to_string()),
            Fault::Transfer(TransferError::PeerDied { rank }) => died("PeerDied", OTHER_SIDE, rank, None),
            Fault::Transfer(error @ (TransferError::Closed | TransferError::Disconnected)) => {
                of_package("Closed", error.to_string())
            }
            Fault::Transfer(TransferError::TimedOut) => PyTimeoutError::new_err("the time was over"),
            Fault::Transfer(error @ TransferError::TooLong { .. }) => {
                PyValueError::new_err(error.to_string())
            }
            Fault::Transfer(error) => PyRuntimeError::new_err(error.to_string()),
            Fault::OwnerDied { rank } => died("OwnerDied", OWNER, rank, None),
            Fault::Death(death) => died(death.kind, death.text, death.rank, death.known),
        }
    }
}

/// Remedies in the library's sentences, and the same in Python's words.
const REMEDIES: [(&str, &str); 4] = [
    (" with --size or --objects", " (memory=, maxsize=, buffers=, buffer_bytes=, or a shorter array)"),
    (" (towpath run -n)", " (processes=)"),
    ("create a larger world", "make it for more (processes=)"),
    (" (towpath run --objects, WorldConfig::object_bytes)", " (memory=)"),
];

/// Sentence of a world's error, with the remedy that a Python program has.
fn sentence(error: &Error) -> String {
    let text = error.to_string();
    if let Error::NoSuchWorld { name, .. } = error {
        let cause = text.split("; start it first").next().unwrap_or(&text);
        return format!("{cause}; make it first: World({name:?}, create=True)");
    }
    REMEDIES.iter().fold(text, |text, (theirs, ours)| text.replace(theirs, ours))
}

const OWNER: &str = "the last owner of the lock died and may have left half-changed data: acquire the lock with repair(), mend them, and go on";
const EPISODE: &str = "a participant of the barrier died: the next episode is among the survivors";

const WRITER: &str = "the writer of the broadcast died, and all that it had sent was read";

const OTHER_SIDE: &str = "the last process of the other side of the queue died";

#[cold]
fn died(kind: &'static str, text: &'static str, rank: Option<u32>, known: Option<(u32, String)>) -> PyErr {
    let text = match &known {
        Some((pid, name)) if name.is_empty() => format!("{text} (it was process {pid})"),
        Some((pid, name)) => format!("{text} (it was {name}, process {pid})"),
        None => text.to_owned(),
    };
    let (pid, name) = known.unzip();
    Python::attach(|py| match class(py, kind).and_then(|class| class.call1((text, rank, pid, name))) {
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

pub fn class<'py>(py: Python<'py>, kind: &str) -> PyResult<Bound<'py, PyType>> {
    let errors = ERRORS.get_or_try_init(py, || py.import("towpath.errors").map(Bound::unbind))?;
    Ok(errors.bind(py).getattr(kind)?.cast_into::<PyType>()?)
}

/// Adds functions of this module.
pub fn add(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(names::set_name, m)?)?;
    m.add_function(wrap_pyfunction!(end, m)?)
}

/// Tells this module that the interpreter ends: the process enters no world any more.
#[pyfunction]
fn end() {
    crate::call::end();
}
