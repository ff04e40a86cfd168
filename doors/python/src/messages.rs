//! Queues of objects: `put`, `get`, leases.
//!
//! A process joins as sender or receiver when it first puts or gets. A forked child joins anew; the
//! handles that it has copied are its parent's, and are kept without being dropped.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyBytes};
use towpath_readiness::{AsyncOperation, ReadyDescriptor};
use towpath_shm::{
    MessageGuard, MessageReceiver, MessageSender, MessageSpec, ParticipantId, ReservedMessage, World,
    WorldMessages,
};
use towpath_sync::Attempt;
use towpath_sync::queues::TransferError;

use crate::call::participation;
use crate::fault::{Fault, class};
use crate::in_place::{PyLent, PyReservation};
use crate::objects::{self, ObjectMessage};
use crate::turns::{timeout, waiting};

/// An end of a queue, and the participant that has joined with it.
type End<T> = Mutex<Option<(ParticipantId, ManuallyDrop<Arc<T>>)>>;

/// A process's handle of a queue.
#[pyclass(frozen, weakref, name = "Messages", module = "towpath._towpath")]
pub struct PyMessages {
    messages: WorldMessages,
    world: Py<PyAny>,
    name: String,
    /// True if a process is told when the last one of the other side died.
    tells: bool,
    sender: End<MessageSender>,
    receiver: End<MessageReceiver>,
    ready: Mutex<Option<(u32, ManuallyDrop<ReadyDescriptor>)>>,
}

/// Receiving of a message, for the descriptor.
struct Receiving<'a>(&'a MessageReceiver);

impl<'a> AsyncOperation for Receiving<'a> {
    type Output = Result<MessageGuard<'a>, TransferError>;
    fn attempt(&mut self) -> Attempt<Self::Output> {
        self.0.attempt_receive()
    }
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
    pub fn new(messages: WorldMessages, world: Py<PyAny>, name: String, tells: bool) -> PyMessages {
        let (sender, receiver, ready) = (Mutex::new(None), Mutex::new(None), Mutex::new(None));
        PyMessages { messages, world, name, tells, sender, receiver, ready }
    }

    fn sender(&self) -> Result<Arc<MessageSender>, Fault> {
        end(self.messages.world(), &self.sender, || self.messages.sender())
    }

    fn receiver(&self) -> Result<Arc<MessageReceiver>, Fault> {
        end(self.messages.world(), &self.receiver, || self.messages.receiver())
    }

    /// Outcome of an attempt to receive.
    #[inline]
    fn after_receive<R>(&self, outcome: Result<R, TransferError>) -> Result<R, Fault> {
        match outcome {
            Ok(received) => Ok(received),
            Err(error) => Err(self.without_others(error, Self::sender)),
        }
    }

    /// Outcome of an attempt that has failed; `join` joins as the other side.
    #[cold]
    fn without_others<T>(&self, error: TransferError, join: fn(&Self) -> Result<T, Fault>) -> Fault {
        match error {
            // The last one of the other side has left in good order, or died. Another one may come:
            // this process, being on that side itself from now on, waits for it. A death is told
            // once.
            TransferError::Disconnected | TransferError::PeerDied { .. } => match join(self) {
                Err(fault) => fault,
                Ok(_) if self.tells && error != TransferError::Disconnected => {
                    Fault::Transfer(error).of_world(self.messages.world())
                }
                Ok(_) => Fault::Transfer(TransferError::TimedOut),
            },
            error => error.into(),
        }
    }

    /// Outcome of an attempt to send.
    #[inline]
    pub fn after_send(&self, outcome: Result<(), TransferError>) -> Result<(), Fault> {
        outcome.map_err(|error| self.without_others(error, Self::receiver))
    }

    /// Receives a message.
    #[inline]
    fn receive(&self, py: Python<'_>, time: Option<Duration>) -> PyResult<Option<LeasedMessage>> {
        let receiver = self.receiver()?;
        let leased = |guard| LeasedMessage::new(&receiver, guard);
        waiting(py, time, |turn| self.after_receive(receiver.receive_timeout(turn)).map(leased))
    }

    #[inline]
    fn send_bytes(&self, py: Python<'_>, message: &[u8], time: Option<Duration>) -> PyResult<bool> {
        let sender = self.sender()?;
        let sent = waiting(py, time, |turn| self.after_send(sender.send_timeout(message, turn)));
        Ok(sent?.is_some())
    }

    /// Reserves a buffer.
    fn space(
        &self,
        py: Python<'_>,
        time: Option<Duration>,
        queue: Py<PyMessages>,
    ) -> PyResult<Option<PyReservation>> {
        let sender = self.sender()?;
        let taken = waiting(py, time, |turn| Ok(TakenBuffer(sender.reserve_timeout(turn)?)))?;
        Ok(taken.map(|TakenBuffer(space)| PyReservation::new(&sender, space, queue)))
    }

    fn send_long(
        &self,
        py: Python<'_>,
        message: &ObjectMessage<'_>,
        time: Option<Duration>,
    ) -> PyResult<bool> {
        let most = self.messages.spec().buffer_bytes;
        if message.len() > most {
            return Err(Fault::Transfer(TransferError::TooLong { most }).into());
        }
        let sender = self.sender()?;
        let Some(TakenBuffer(mut space)) =
            waiting(py, time, |turn| Ok(TakenBuffer(sender.reserve_timeout(turn)?)))?
        else {
            return Ok(false);
        };
        message.write(&mut space);
        let len = message.len();
        let mut space = TakenBuffer(space);
        let sent = waiting(py, time, |turn| {
            let TakenBuffer(space) = &mut space;
            self.after_send(space.send_timeout(len, turn))
        });
        Ok(sent?.is_some())
    }

    /// Time of a call's arguments.
    #[inline]
    fn time(block: bool, timeout: Option<f64>) -> PyResult<Option<Duration>> {
        if block { self::timeout(timeout) } else { Ok(Some(Duration::ZERO)) }
    }
}

/// A reserved buffer on its way between threads.
struct TakenBuffer<'a>(ReservedMessage<'a>);

// SAFETY: a reserved buffer is the process's; the thread does not matter to it.
unsafe impl Send for TakenBuffer<'_> {}

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
        if let Ok(Some((pid, ready))) = self.ready.get_mut().map(Option::take)
            && pid == std::process::id()
        {
            drop(ManuallyDrop::into_inner(ready));
        }
    }
}

#[pymethods]
impl PyMessages {
    /// Sends bytes; False if the time was over.
    #[pyo3(signature = (message, block=true, timeout=None))]
    fn send(&self, py: Python<'_>, message: &[u8], block: bool, timeout: Option<f64>) -> PyResult<bool> {
        self.send_bytes(py, message, Self::time(block, timeout)?)
    }

    /// The oldest message's bytes; None if the time was over.
    #[pyo3(signature = (block=true, timeout=None), name = "receive")]
    fn receive_bytes(
        &self,
        py: Python<'_>,
        block: bool,
        timeout: Option<f64>,
    ) -> PyResult<Option<Py<PyBytes>>> {
        let message = self.receive(py, Self::time(block, timeout)?)?;
        Ok(message.map(|message| PyBytes::new(py, &message.guard).unbind()))
    }

    /// Puts an object. Raises Full if there was no room in time.
    #[pyo3(signature = (obj, block=true, timeout=None))]
    fn put(&self, obj: &Bound<'_, PyAny>, block: bool, timeout: Option<f64>) -> PyResult<()> {
        let (py, time) = (obj.py(), Self::time(block, timeout)?);
        let message = ObjectMessage::of(obj)?;
        let sent = if message.len() > MessageSpec::SHORT {
            self.send_long(py, &message, time)?
        } else if let Some(bytes) = message.as_they_are() {
            self.send_bytes(py, bytes, time)?
        } else {
            let mut bytes = [0; MessageSpec::SHORT];
            message.write(&mut bytes);
            self.send_bytes(py, &bytes[..message.len()], time)?
        };
        if sent { Ok(()) } else { Err(PyErr::from_type(class(py, "Full")?, ())) }
    }

    /// Takes the oldest object. Raises Empty if there was none in time.
    #[pyo3(signature = (block=true, timeout=None))]
    fn get<'py>(&self, py: Python<'py>, block: bool, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let Some(message) = self.receive(py, Self::time(block, timeout)?)? else {
            return Err(PyErr::from_type(class(py, "Empty")?, ()));
        };
        objects::object_of(py, &message.guard, |buffer, read_only| Ok(objects::copied(py, buffer, read_only)))
    }

    /// Takes the oldest object if there is one.
    ///
    /// If it raises Empty the descriptor becomes readable when another attempt may succeed.
    fn attempt<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let receiver = self.receiver()?;
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = self.descriptor(&mut ready)?;
        let outcome = loop {
            match ready.attempt(&mut Receiving(&receiver))? {
                None => break None,
                Some(outcome) => match self.after_receive(outcome) {
                    Ok(guard) => break Some(guard),
                    // It is a sender itself now: it tries again.
                    Err(fault) if fault.is_timeout() => {}
                    Err(fault) => return Err(fault.into()),
                },
            }
        };
        let Some(guard) = outcome else { return Err(PyErr::from_type(class(py, "Empty")?, ())) };
        objects::object_of(py, &guard, |buffer, read_only| Ok(objects::copied(py, buffer, read_only)))
    }

    /// Number of the descriptor that `attempt` makes readable.
    fn fileno(&self) -> PyResult<RawFd> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(self.descriptor(&mut ready)?.as_fd().as_raw_fd())
    }

    /// Reserves a buffer for a message; None if the time was over.
    #[pyo3(signature = (block=true, timeout=None))]
    fn reserve(slf: &Bound<'_, Self>, block: bool, timeout: Option<f64>) -> PyResult<Option<PyReservation>> {
        slf.get().space(slf.py(), Self::time(block, timeout)?, slf.clone().unbind())
    }

    /// The oldest message under a lease; None if the time was over.
    #[pyo3(signature = (block=true, timeout=None))]
    fn lease(slf: &Bound<'_, Self>, block: bool, timeout: Option<f64>) -> PyResult<Option<PyLease>> {
        let leased = slf.get().receive(slf.py(), Self::time(block, timeout)?)?;
        let Some(leased) = leased else { return Ok(None) };
        let message = Mutex::new(Some((std::process::id(), ManuallyDrop::new(leased))));
        Ok(Some(PyLease { message, queue: slf.clone().unbind() }))
    }

    /// Becomes a sender, so that its death is noticed before its first message.
    fn join_sender(&self) -> PyResult<()> {
        self.sender()?;
        Ok(())
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

    /// Number of messages, of buffers, bytes of a buffer, and whether it tells of deaths.
    #[getter]
    fn spec(&self) -> (usize, usize, usize, bool) {
        let spec = self.messages.spec();
        (spec.capacity, spec.buffers, spec.buffer_bytes, self.tells)
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
    fn descriptor<'a>(
        &self,
        ready: &'a mut Option<(u32, ManuallyDrop<ReadyDescriptor>)>,
    ) -> PyResult<&'a mut ReadyDescriptor> {
        let pid = std::process::id();
        // A parent's is not dropped.
        if ready.as_ref().is_none_or(|(of, _)| *of != pid) {
            *ready = None;
        }
        let made = match ready.take() {
            Some(made) => made,
            None => (pid, ManuallyDrop::new(ReadyDescriptor::new()?)),
        };
        Ok(&mut ready.insert(made).1)
    }

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

impl LeasedMessage {
    #[inline]
    fn new(receiver: &Arc<MessageReceiver>, guard: MessageGuard<'_>) -> LeasedMessage {
        // SAFETY: the receiver lives as long as the lease, which drops the guard first.
        let guard = unsafe { core::mem::transmute::<MessageGuard<'_>, MessageGuard<'static>>(guard) };
        LeasedMessage { guard, _receiver: Arc::clone(receiver) }
    }
}

/// A message under a lease: it comes again if this process dies before it is done with.
#[pyclass(frozen, name = "Lease", module = "towpath._towpath")]
pub struct PyLease {
    /// `None` after it was done with. The number is the process's.
    message: Mutex<Option<(u32, ManuallyDrop<LeasedMessage>)>>,
    queue: Py<PyMessages>,
}

impl PyLease {
    fn take(&self) -> PyResult<LeasedMessage> {
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
            ManuallyDrop::into_inner(leased).guard.give_back();
        }
    }
}

#[pymethods]
impl PyLease {
    /// A copy of the message.
    fn bytes(&self, py: Python<'_>) -> PyResult<Py<PyBytes>> {
        match &*self.message.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((_, leased)) => Ok(PyBytes::new(py, &leased.guard).unbind()),
            None => Err(PyValueError::new_err("the message was done with already")),
        }
    }

    /// The object of the message. Its buffers lie in the queue, until the lease ends.
    fn object<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let message: *const [u8] = match &*self.message.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((_, leased)) => &raw const leased.guard[..],
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
        self.take()?.guard.give_back();
        Ok(())
    }
}
