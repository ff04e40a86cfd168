//! Queues of messages of any length: `put`, `get`, leases.
//!
//! A process joins as sender or receiver when it first puts or gets. A forked child joins anew; the
//! handles that it has copied are its parent's, and are kept without being dropped.

use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyBytes};
use towpath_shm::{MessageGuard, MessageReceiver, MessageSender, ParticipantId, World, WorldMessages};
use towpath_sync::queues::TransferError;

use crate::call::participation;
use crate::fault::Fault;
use crate::turns::{timeout, waiting};

/// An end of a queue, and the participant that has joined with it.
type End<T> = Mutex<Option<(ParticipantId, ManuallyDrop<Arc<T>>)>>;

/// A process's handle of a queue.
#[pyclass(frozen, weakref, name = "Messages", module = "towpath._towpath")]
pub struct PyMessages {
    messages: WorldMessages,
    world: Py<PyAny>,
    name: String,
    sender: End<MessageSender>,
    receiver: End<MessageReceiver>,
}

/// The caller's end of a queue, with which it joins if it has not.
fn end<T>(
    world: &World,
    end: &End<T>,
    join: impl FnOnce() -> Result<T, TransferError>,
) -> Result<Arc<T>, Fault> {
    participation(world)?;
    let me = world.me();
    let mut end = end.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((joined, handle)) = &*end
        && *joined == me
    {
        return Ok(Arc::clone(handle));
    }
    // Another participant's: a parent's, which has it still. It is not dropped.
    let handle = Arc::new(join()?);
    *end = Some((me, ManuallyDrop::new(Arc::clone(&handle))));
    Ok(handle)
}

impl PyMessages {
    pub fn new(messages: WorldMessages, world: Py<PyAny>, name: String) -> PyMessages {
        PyMessages { messages, world, name, sender: Mutex::new(None), receiver: Mutex::new(None) }
    }

    fn sender(&self) -> Result<Arc<MessageSender>, Fault> {
        end(self.messages.world(), &self.sender, || self.messages.sender())
    }

    fn receiver(&self) -> Result<Arc<MessageReceiver>, Fault> {
        end(self.messages.world(), &self.receiver, || self.messages.receiver())
    }

    /// Receives a message, of which `take` makes the outcome.
    fn receive<R: Send>(
        &self,
        py: Python<'_>,
        time: Option<Duration>,
        take: impl Fn(&Arc<MessageReceiver>, MessageGuard<'_>) -> R + Send + Sync,
    ) -> PyResult<Option<R>> {
        let receiver = self.receiver()?;
        waiting(py, time, |turn| match receiver.receive_timeout(turn) {
            Ok(guard) => Ok(take(&receiver, guard)),
            // The last sender has left in good order. Another one may come: this process, being a
            // sender itself from now on, waits for it.
            Err(TransferError::Disconnected) => {
                self.sender()?;
                Err(TransferError::TimedOut.into())
            }
            // Told once.
            Err(error @ TransferError::PeerDied { .. }) => {
                self.sender()?;
                Err(error.into())
            }
            Err(error) => Err(error.into()),
        })
    }
}

fn part<T>(end: &End<T>, me: Option<ParticipantId>) {
    let taken = end.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((joined, handle)) = taken
        && Some(joined) == me
    {
        drop(ManuallyDrop::into_inner(handle));
    }
}

impl Drop for PyMessages {
    fn drop(&mut self) {
        self._end();
    }
}

#[pymethods]
impl PyMessages {
    /// Sends bytes; False if the time was over.
    ///
    /// Raises PeerDied if the last receiver died.
    #[pyo3(signature = (message, block=true, timeout=None))]
    fn send(&self, py: Python<'_>, message: &[u8], block: bool, timeout: Option<f64>) -> PyResult<bool> {
        let sender = self.sender()?;
        let time = if block { self::timeout(timeout)? } else { Some(Duration::ZERO) };
        let sent = waiting(py, time, |turn| match sender.send_timeout(message, turn) {
            Ok(()) => Ok(()),
            // The last receiver has left in good order: the message waits for the next one.
            Err(TransferError::Disconnected) => {
                self.receiver()?;
                Ok(sender.send_timeout(message, turn)?)
            }
            // Told once.
            Err(error @ TransferError::PeerDied { .. }) => {
                self.receiver()?;
                Err(error.into())
            }
            Err(error) => Err(error.into()),
        });
        Ok(sent?.is_some())
    }

    /// The oldest message; None if the time was over.
    ///
    /// Raises PeerDied if the last sender died.
    #[pyo3(signature = (block=true, timeout=None), name = "receive")]
    fn receive_bytes(
        &self,
        py: Python<'_>,
        block: bool,
        timeout: Option<f64>,
    ) -> PyResult<Option<Py<PyBytes>>> {
        let time = if block { self::timeout(timeout)? } else { Some(Duration::ZERO) };
        let message = self.receive(py, time, |_, guard| guard.to_vec())?;
        Ok(message.map(|message| PyBytes::new(py, &message).unbind()))
    }

    /// The oldest message under a lease; None if the time was over.
    #[pyo3(signature = (block=true, timeout=None))]
    fn lease(&self, py: Python<'_>, block: bool, timeout: Option<f64>) -> PyResult<Option<PyLease>> {
        let time = if block { self::timeout(timeout)? } else { Some(Duration::ZERO) };
        let lease = self.receive(py, time, |receiver, guard| {
            // SAFETY: the receiver lives as long as the lease, which drops the guard first.
            let guard = unsafe { core::mem::transmute::<MessageGuard<'_>, MessageGuard<'static>>(guard) };
            LeasedMessage { guard, _receiver: Arc::clone(receiver) }
        })?;
        let Some(leased) = lease else { return Ok(None) };
        Ok(Some(PyLease(Mutex::new(Some((std::process::id(), ManuallyDrop::new(leased)))))))
    }

    /// Number of messages that wait, about.
    fn __len__(&self) -> PyResult<usize> {
        Ok(self.receiver_or_sender_len()?)
    }

    /// Closes the queue for all processes: puts are refused.
    fn close(&self) -> PyResult<()> {
        self.sender()?.close();
        Ok(())
    }

    /// Leaves the queue in good order.
    fn _end(&self) {
        let me = self.messages.world().entered();
        part(&self.sender, me);
        part(&self.receiver, me);
    }

    /// Number of messages, of buffers, and bytes of a buffer.
    #[getter]
    fn spec(&self) -> (usize, usize, usize) {
        let spec = self.messages.spec();
        (spec.capacity, spec.buffers, spec.buffer_bytes)
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

impl PyMessages {
    /// Length by the end that there is, so that a look makes no receiver of a sender.
    fn receiver_or_sender_len(&self) -> Result<usize, Fault> {
        let joined = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|end| end.0);
        if joined.is_some() && joined == self.messages.world().entered() {
            Ok(self.receiver()?.len())
        } else {
            Ok(self.sender()?.len())
        }
    }
}

/// A message and the receiver that has it. Fields are dropped in this order.
struct LeasedMessage {
    guard: MessageGuard<'static>,
    _receiver: Arc<MessageReceiver>,
}

// SAFETY: a lease is the process's; the thread does not matter to it.
unsafe impl Send for LeasedMessage {}

/// A message under a lease: it comes again if this process dies before it is done with.
#[pyclass(frozen, name = "Lease", module = "towpath._towpath")]
pub struct PyLease(Mutex<Option<(u32, ManuallyDrop<LeasedMessage>)>>);

impl PyLease {
    fn take(&self) -> PyResult<LeasedMessage> {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some((_, leased)) => Ok(ManuallyDrop::into_inner(leased)),
            None => Err(PyValueError::new_err("the message was done with already")),
        }
    }
}

impl Drop for PyLease {
    fn drop(&mut self) {
        // A forked child's copy is its parent's.
        if let Ok(Some((pid, leased))) = self.0.get_mut().map(Option::take)
            && pid == std::process::id()
        {
            ManuallyDrop::into_inner(leased).guard.give_back();
        }
    }
}

#[pymethods]
impl PyLease {
    /// A copy of the message.
    fn bytes(&self, py: Python<'_>) -> PyResult<Py<PyBytes>> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((_, leased)) => Ok(PyBytes::new(py, &leased.guard).unbind()),
            None => Err(PyValueError::new_err("the message was done with already")),
        }
    }

    /// The message is done with.
    fn done(&self) -> PyResult<()> {
        drop(self.take()?);
        Ok(())
    }

    /// Gives the message back: it comes in again, behind those that wait.
    fn give_back(&self) -> PyResult<()> {
        self.take()?.guard.give_back();
        Ok(())
    }
}
