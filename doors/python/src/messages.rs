//! Queues of objects: `put`, `get`, and attempts at them.
//!
//! A process joins as sender or receiver when it first puts or gets. A forked child joins anew; the
//! handles that it has copied are its parent's, and are kept without being dropped.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyBytes};
use towpath_readiness::{AsyncOperation, ReadyDescriptor};
use towpath_shm::{
    HeldMessage, MessageGuard, MessageReceiver, MessageSender, MessageSpec, ParticipantId, ReservedMessage,
    World, WorldMessages,
};
use towpath_sync::Attempt;
use towpath_sync::queues::TransferError;

use crate::call::participation;
use crate::fault::{Fault, class};
use crate::in_place::PyReservation;
use crate::lease::PyLease;
use crate::objects::{self, ObjectMessage};
use crate::turns::{timeout, truth, waiting};

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
    /// Descriptor for attempts to receive.
    ready: Ready,
    /// Descriptor for attempts to send.
    send_ready: Ready,
    /// Number of times that this process has closed its queue: earlier waits end.
    closings: AtomicU64,
}

/// A descriptor, and the process that has made it.
type Ready = Mutex<Option<(u32, ManuallyDrop<ReadyDescriptor>)>>;

/// Receiving of a message, for the descriptor.
struct Receiving<'a>(&'a MessageReceiver);

impl<'a> AsyncOperation for Receiving<'a> {
    type Output = Result<MessageGuard<'a>, TransferError>;
    fn attempt(&mut self) -> Attempt<Self::Output> {
        self.0.attempt_receive()
    }
}

/// Sending of a message, for the descriptor.
struct Sending<'a, 'py>(&'a MessageSender, &'a ObjectMessage<'py>);

impl AsyncOperation for Sending<'_, '_> {
    type Output = Result<(), TransferError>;
    fn attempt(&mut self) -> Attempt<Self::Output> {
        self.0.attempt_send(self.1.len(), |to| self.1.write(to))
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
        PyMessages {
            messages,
            world,
            name,
            tells,
            sender: Mutex::default(),
            receiver: Mutex::default(),
            ready: Ready::default(),
            send_ready: Ready::default(),
            closings: AtomicU64::new(0),
        }
    }

    fn sender(&self) -> Result<Arc<MessageSender>, Fault> {
        end(self.messages.world(), &self.sender, || self.messages.sender())
    }

    fn receiver(&self) -> Result<Arc<MessageReceiver>, Fault> {
        end(self.messages.world(), &self.receiver, || self.messages.receiver())
    }

    /// Waits, as [`waiting`] does, until this process closes its queue.
    #[inline]
    fn wait<R: Send>(
        &self,
        py: Python<'_>,
        time: Option<Duration>,
        mut act: impl FnMut(Duration) -> Result<R, Fault> + Send,
    ) -> PyResult<Option<R>> {
        // Relaxed, both: a number that orders nothing, seen within a turn.
        let closings = self.closings.load(Ordering::Relaxed);
        waiting(py, time, move |turn| match self.closings.load(Ordering::Relaxed) == closings {
            true => act(turn),
            false => Err(Fault::Transfer(TransferError::Closed)),
        })
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
    fn receive(&self, py: Python<'_>, time: Option<Duration>) -> PyResult<Option<HeldMessage>> {
        let receiver = self.receiver()?;
        self.wait(py, time, |turn| self.after_receive(HeldMessage::receive(&receiver, turn)))
    }

    #[inline]
    fn send_bytes(&self, py: Python<'_>, message: &[u8], time: Option<Duration>) -> PyResult<bool> {
        let sender = self.sender()?;
        let sent = self.wait(py, time, |turn| self.after_send(sender.send_timeout(message, turn)));
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
        let taken = self.wait(py, time, |turn| Ok(TakenBuffer(sender.reserve_timeout(turn)?)))?;
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
            return Err(too_long(message.len(), most));
        }
        let sender = self.sender()?;
        let Some(TakenBuffer(mut space)) =
            self.wait(py, time, |turn| Ok(TakenBuffer(sender.reserve_timeout(turn)?)))?
        else {
            return Ok(false);
        };
        message.write(&mut space);
        let len = message.len();
        let mut space = TakenBuffer(space);
        let sent = self.wait(py, time, |turn| {
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
        for ready in [&mut self.ready, &mut self.send_ready] {
            if let Ok(Some((pid, ready))) = ready.get_mut().map(Option::take)
                && pid == std::process::id()
            {
                drop(ManuallyDrop::into_inner(ready));
            }
        }
    }
}

#[pymethods]
impl PyMessages {
    /// Sends bytes; False if the time was over.
    #[pyo3(signature = (message, block=true, timeout=None))]
    fn send(
        &self,
        py: Python<'_>,
        message: &[u8],
        #[pyo3(from_py_with = truth)] block: bool,
        timeout: Option<f64>,
    ) -> PyResult<bool> {
        self.send_bytes(py, message, Self::time(block, timeout)?)
    }

    /// The oldest message's bytes; None if the time was over.
    #[pyo3(signature = (block=true, timeout=None), name = "receive")]
    fn receive_bytes(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = truth)] block: bool,
        timeout: Option<f64>,
    ) -> PyResult<Option<Py<PyBytes>>> {
        let message = self.receive(py, Self::time(block, timeout)?)?;
        Ok(message.map(|message| PyBytes::new(py, &message).unbind()))
    }

    /// Puts an object. Raises Full if there was no room in time.
    #[pyo3(signature = (obj, block=true, timeout=None))]
    fn put(
        &self,
        obj: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = truth)] block: bool,
        timeout: Option<f64>,
    ) -> PyResult<()> {
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
    fn get<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = truth)] block: bool,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(message) = self.receive(py, Self::time(block, timeout)?)? else {
            return Err(PyErr::from_type(class(py, "Empty")?, ()));
        };
        objects::object_of(py, &message, |buffer, read_only| Ok(objects::copied(py, buffer, read_only)))
    }

    /// Takes the oldest object if there is one.
    ///
    /// If it raises Empty the descriptor becomes readable when another attempt may succeed.
    fn attempt<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let receiver = self.receiver()?;
        // The object is made when the descriptor is free again: that may run any code.
        let outcome = self.attempt_receive(&receiver)?;
        let Some(guard) = outcome else { return Err(PyErr::from_type(class(py, "Empty")?, ())) };
        objects::object_of(py, &guard, |buffer, read_only| Ok(objects::copied(py, buffer, read_only)))
    }

    /// Puts an object if there is room.
    ///
    /// If it raises Full the second descriptor becomes readable when another attempt may succeed.
    fn attempt_put(&self, obj: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = obj.py();
        let message = ObjectMessage::of(obj)?;
        let most = self.messages.spec().buffer_bytes.max(MessageSpec::SHORT);
        if message.len() > most {
            return Err(too_long(message.len(), most));
        }
        let sender = self.sender()?;
        let mut ready = self.send_ready.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = descriptor(&mut ready)?;
        loop {
            match ready.attempt(&mut Sending(&sender, &message))? {
                None => return Err(PyErr::from_type(class(py, "Full")?, ())),
                Some(outcome) => match self.after_send(outcome) {
                    // It is a receiver itself now: it tries again.
                    Err(fault) if fault.is_timeout() => {}
                    outcome => return Ok(outcome?),
                },
            }
        }
    }

    /// Number of the descriptor that `attempt` makes readable, or that of `attempt_put`.
    #[pyo3(signature = (of_put=false))]
    fn fileno(&self, of_put: bool) -> PyResult<RawFd> {
        let ready = if of_put { &self.send_ready } else { &self.ready };
        let mut ready = ready.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(descriptor(&mut ready)?.as_fd().as_raw_fd())
    }

    /// Reserves a buffer for a message; None if the time was over.
    #[pyo3(signature = (block=true, timeout=None))]
    fn reserve(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = truth)] block: bool,
        timeout: Option<f64>,
    ) -> PyResult<Option<PyReservation>> {
        slf.get().space(slf.py(), Self::time(block, timeout)?, slf.clone().unbind())
    }

    /// The oldest message under a lease; None if the time was over.
    #[pyo3(signature = (block=true, timeout=None))]
    fn lease(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = truth)] block: bool,
        timeout: Option<f64>,
    ) -> PyResult<Option<PyLease>> {
        let leased = slf.get().receive(slf.py(), Self::time(block, timeout)?)?;
        let Some(leased) = leased else { return Ok(None) };
        Ok(Some(PyLease::new(leased, slf.clone().unbind())))
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

    /// Ends this process's waits for the queue.
    fn end_waits(&self) {
        // Relaxed: see `wait`.
        self.closings.fetch_add(1, Ordering::Relaxed);
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
    /// A message if there is one; otherwise the descriptor becomes readable.
    fn attempt_receive<'a>(&self, receiver: &'a MessageReceiver) -> PyResult<Option<MessageGuard<'a>>> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = descriptor(&mut ready)?;
        loop {
            let Some(outcome) = ready.attempt(&mut Receiving(receiver))? else { return Ok(None) };
            match self.after_receive(outcome) {
                Ok(guard) => return Ok(Some(guard)),
                // It is a sender itself now: it tries again.
                Err(fault) if fault.is_timeout() => {}
                Err(fault) => return Err(fault.into()),
            }
        }
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

/// Error of an object that no buffer of the queue holds.
#[cold]
pub fn too_long(len: usize, most: usize) -> PyErr {
    PyValueError::new_err(format!(
        "the object takes {len} bytes, and the queue's buffers have {most}: make the queue with larger ones (buffer_bytes)"
    ))
}

/// This process's descriptor.
fn descriptor(ready: &mut Option<(u32, ManuallyDrop<ReadyDescriptor>)>) -> PyResult<&mut ReadyDescriptor> {
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
