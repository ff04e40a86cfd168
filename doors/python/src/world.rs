//! `World`: a process's handle of a world, and its objects by name.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use towpath_shm::{MessageSpec, OBJECT_BYTES, World, WorldSpec};

use crate::broadcast::PyBroadcast;
use crate::bytes::PyBytesInWorld;
use crate::call;
use crate::condition::PyCondition;
use crate::fault::Fault;
use crate::lock::PyLock;
use crate::messages::PyMessages;
use crate::names;
use crate::others::{PyBarrier, PyEvent, PySemaphore};
use crate::rw_lock::PyRwLock;

/// A process's handle of a world.
#[pyclass(frozen, weakref, subclass, name = "_World", module = "towpath._towpath")]
pub struct PyWorld(World);

impl PyWorld {
    /// The world, entered by this process.
    fn entered(&self) -> PyResult<&World> {
        if self.0.entered().is_none() {
            call::enter(&self.0)?;
        }
        Ok(&self.0)
    }
}

fn parts<'a>(slf: &'a Bound<'_, PyWorld>) -> PyResult<(&'a World, Py<PyAny>)> {
    Ok((slf.get().entered()?, slf.clone().into_any().unbind()))
}

#[pymethods]
impl PyWorld {
    /// Makes a world, or opens one.
    ///
    /// With `create` a new one, otherwise the named one, that of a descriptor, or the launcher's.
    #[new]
    #[pyo3(signature = (name=None, create=false, processes=64, memory=1 << 20, descriptor=None))]
    fn new(
        name: Option<String>,
        create: bool,
        processes: u32,
        memory: u64,
        descriptor: Option<RawFd>,
    ) -> PyResult<PyWorld> {
        let world = match (descriptor, name) {
            // SAFETY: the package passes a descriptor on that it has just received, and uses it no
            // more.
            (Some(raw), _) => World::from_descriptor(unsafe { OwnedFd::from_raw_fd(raw) }),
            (None, Some(name)) if !create => World::open(&name),
            (None, name) if create => {
                // Besides what the caller wants: the names of processes.
                let object_bytes = memory.max(OBJECT_BYTES) + names::bytes_for(processes);
                World::create(&WorldSpec { name, processes, area_bytes: 0, object_bytes, params: [0; 16] })
            }
            (None, _) => World::from_environment(),
        };
        Ok(PyWorld(world.map_err(Fault::World)?))
    }

    /// Enters the world, if this process has not; returns its rank.
    fn enter(&self) -> PyResult<u32> {
        Ok(self.entered()?.rank())
    }

    /// Leaves the world at the end of the process.
    ///
    /// Removes the name if no process is left.
    fn _end(&self) {
        // SAFETY: guards are made by calls only, which fail from now on (`call::end`) or enter
        // again, and act on a holder's state only after that.
        unsafe { self.0.end() };
    }

    /// This process's rank; None if it has not entered.
    #[getter]
    fn rank(&self) -> Option<u32> {
        self.0.entered().map(|me| me.index)
    }

    /// Number of processes for which it has room.
    #[getter]
    fn size(&self) -> u32 {
        self.0.size()
    }

    /// Its name, if it has one.
    #[getter]
    fn name(&self) -> Option<&str> {
        self.0.name()
    }

    /// Returns whether a rank is there and alive. Asks the kernel.
    fn is_alive(&self, rank: u32) -> bool {
        self.0.participant(rank).is_some_and(|id| self.0.is_alive(id))
    }

    /// The pid of a rank; None if it is gone.
    fn pid_of(&self, rank: u32) -> Option<u32> {
        self.0.participant(rank).and_then(|id| self.0.pid_of(id))
    }

    /// Asks after all ranks; returns the number of deaths so far.
    fn deaths(&self) -> u64 {
        self.0.check_deaths()
    }

    /// Removes the name. The world goes on among its processes.
    fn unlink(&self) -> PyResult<()> {
        Ok(self.0.unlink().map_err(Fault::World)?)
    }

    /// Number of the segment's descriptor.
    fn fileno(&self) -> PyResult<RawFd> {
        Ok(self.0.descriptor().map_err(Fault::World)?.as_raw_fd())
    }

    fn _lock(slf: &Bound<'_, Self>, name: &str, recursive: bool) -> PyResult<PyLock> {
        let (world, this) = parts(slf)?;
        Ok(PyLock::new(world.mutex(name, 0u64).map_err(Fault::World)?, this, name.to_owned(), recursive))
    }

    fn _condition(slf: &Bound<'_, Self>, name: &str, lock: Py<PyLock>) -> PyResult<Py<PyAny>> {
        let (world, this) = parts(slf)?;
        if !core::ptr::addr_eq(lock.get().in_world().surroundings(), world.surroundings()) {
            return Err(PyValueError::new_err("the lock is of another world"));
        }
        let object = world.condvar(name).map_err(Fault::World)?;
        let condition = PyCondition::new(object, this, name.to_owned(), lock);
        Ok(Py::new(slf.py(), condition)?.into_any())
    }

    fn _semaphore(slf: &Bound<'_, Self>, name: &str, value: i64, bounded: bool) -> PyResult<PySemaphore> {
        let (world, this) = parts(slf)?;
        let value = u64::try_from(value)
            .map_err(|_| PyValueError::new_err("a semaphore begins with 0 permits or more"))?;
        Ok(PySemaphore::new(
            world.semaphore(name, value).map_err(Fault::World)?,
            this,
            name.to_owned(),
            bounded,
        ))
    }

    fn _event(slf: &Bound<'_, Self>, name: &str) -> PyResult<PyEvent> {
        let (world, this) = parts(slf)?;
        Ok(PyEvent::new(world.event(name).map_err(Fault::World)?, this, name.to_owned()))
    }

    fn _barrier(slf: &Bound<'_, Self>, name: &str, parties: usize) -> PyResult<PyBarrier> {
        let (world, this) = parts(slf)?;
        Ok(PyBarrier::new(
            world.barrier_of(name, parties).map_err(Fault::World)?,
            this,
            name.to_owned(),
            parties,
        ))
    }

    fn _rwlock(slf: &Bound<'_, Self>, name: &str) -> PyResult<PyRwLock> {
        let (world, this) = parts(slf)?;
        Ok(PyRwLock::new(world.rw_lock(name, 0u64).map_err(Fault::World)?, this, name.to_owned()))
    }

    fn _broadcast(slf: &Bound<'_, Self>, name: &str, capacity: usize) -> PyResult<PyBroadcast> {
        let (world, this) = parts(slf)?;
        Ok(PyBroadcast::new(world.broadcast(name, capacity).map_err(Fault::World)?, this, name.to_owned()))
    }

    #[pyo3(signature = (name, len, format = ""))]
    fn _bytes(slf: &Bound<'_, Self>, name: &str, len: usize, format: &str) -> PyResult<PyBytesInWorld> {
        let (world, this) = parts(slf)?;
        let bytes = world.bytes_of(name, len, format).map_err(Fault::World)?;
        Ok(PyBytesInWorld::new(bytes, this, name.to_owned()))
    }

    fn _messages(
        slf: &Bound<'_, Self>,
        name: &str,
        capacity: usize,
        buffers: usize,
        buffer_bytes: usize,
        tells: bool,
    ) -> PyResult<PyMessages> {
        let (world, this) = parts(slf)?;
        let spec = MessageSpec { capacity, buffers, buffer_bytes };
        Ok(PyMessages::new(world.messages(name, &spec).map_err(Fault::World)?, this, name.to_owned(), tells))
    }
}
