//! Memory of messages as Python's buffers.
//!
//! They are written before they are sent, and read while under a lease.

use core::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use towpath_shm::{MessageSender, ReservedMessage};
use towpath_sync::LockError;

use crate::fault::Fault;
use crate::messages::{PyMessages, too_long};
use crate::objects;
use crate::turns::waiting;

/// Bytes of a queue's buffer, as Python's buffer. Keeps them mapped.
///
/// They belong to this process as long as its reservation or lease lasts.
#[pyclass(frozen, name = "Lent", module = "towpath._towpath")]
pub struct PyLent {
    first: usize,
    len: usize,
    read_only: bool,
    _queue: Py<PyMessages>,
}

impl PyLent {
    pub fn new(bytes: &[u8], read_only: bool, queue: Py<PyMessages>) -> PyLent {
        PyLent { first: bytes.as_ptr().expose_provenance(), len: bytes.len(), read_only, _queue: queue }
    }
}

#[pymethods]
impl PyLent {
    /// # Safety
    ///
    /// As Python's `bf_getbuffer`.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        if view.is_null() {
            return Err(PyBufferError::new_err("no view"));
        }
        let first = core::ptr::with_exposed_provenance_mut::<c_void>(this.first);
        let read_only = c_int::from(this.read_only);
        // SAFETY: the view is Python's; the bytes stay mapped as long as the queue's handle, which
        // this object keeps, and the view keeps this object.
        let filled =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), first, this.len as isize, read_only, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// A buffer and the sender that has it. Fields are dropped in this order.
struct Space {
    space: ReservedMessage<'static>,
    _sender: Arc<MessageSender>,
}

// SAFETY: a reserved buffer is the process's; the thread does not matter to it.
unsafe impl Send for Space {}

/// A buffer of a queue that is reserved for a message.
#[pyclass(frozen, name = "Reservation", module = "towpath._towpath")]
pub struct PyReservation {
    /// `None` after it was sent or given up. The number is the process's.
    space: Mutex<Option<(u32, ManuallyDrop<Space>)>>,
    queue: Py<PyMessages>,
}

impl PyReservation {
    pub fn new(
        sender: &Arc<MessageSender>,
        space: ReservedMessage<'_>,
        queue: Py<PyMessages>,
    ) -> PyReservation {
        // SAFETY: the sender lives as long as the space, which is dropped first.
        let space = unsafe { core::mem::transmute::<ReservedMessage<'_>, ReservedMessage<'static>>(space) };
        let space = ManuallyDrop::new(Space { space, _sender: Arc::clone(sender) });
        PyReservation { space: Mutex::new(Some((std::process::id(), space))), queue }
    }

    fn with<R>(&self, act: impl FnOnce(&mut Space) -> R) -> PyResult<R> {
        match &mut *self.space.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((pid, space)) if *pid == std::process::id() => Ok(act(space)),
            _ => Err(PyValueError::new_err("the reservation has ended")),
        }
    }
}

#[pymethods]
impl PyReservation {
    /// Writes a pickle with one buffer of so many bytes; returns that buffer.
    fn begin(&self, py: Python<'_>, pickle: &[u8], len: usize) -> PyResult<PyLent> {
        let queue = self.queue.clone_ref(py);
        self.with(|space| {
            let to = &mut space.space[..];
            let before = objects::bytes_before(pickle, len);
            if before.saturating_add(len) > to.len() {
                return Err(too_long(before.saturating_add(len), to.len()));
            }
            let first = objects::write_head(to, pickle, &[(len, false)])[0];
            Ok(PyLent::new(&to[first..first + len], false, queue))
        })?
    }

    /// Sends the message that `begin` wrote, with its buffer of so many bytes.
    fn send(&self, py: Python<'_>, pickle: &[u8], len: usize) -> PyResult<()> {
        let total = objects::bytes_before(pickle, len) + len;
        let queue = self.queue.get();
        let sent = waiting(py, None, |turn| {
            let sent = self.with(|space| space.space.send_timeout(total, turn));
            match sent {
                Ok(sent) => queue.after_send(sent),
                Err(_) => Err(Fault::Lock(LockError::NotEntered)),
            }
        });
        sent?;
        self.end();
        Ok(())
    }

    /// Gives the buffer back, if it was not sent.
    fn end(&self) {
        let taken = self.space.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A forked child's copy is its parent's.
        if let Some((pid, space)) = taken
            && pid == std::process::id()
        {
            drop(ManuallyDrop::into_inner(space));
        }
    }
}

impl Drop for PyReservation {
    fn drop(&mut self) {
        self.end();
    }
}
