//! Bytes in a world, of which the package makes NumPy arrays and ctypes objects.

use pyo3::prelude::*;
use pyo3::types::PyAny;
use towpath_shm::WorldBytes;

/// Bytes in a world: address and length. Keeps them mapped.
#[pyclass(frozen, weakref, name = "Bytes", module = "towpath._towpath")]
pub struct PyBytesInWorld {
    bytes: WorldBytes,
    world: Py<PyAny>,
    name: String,
}

impl PyBytesInWorld {
    pub fn new(bytes: WorldBytes, world: Py<PyAny>, name: String) -> PyBytesInWorld {
        PyBytesInWorld { bytes, world, name }
    }
}

#[pymethods]
impl PyBytesInWorld {
    /// Address of the first byte.
    #[getter]
    fn address(&self) -> usize {
        self.bytes.as_ptr().addr().get()
    }

    fn __len__(&self) -> usize {
        self.bytes.len()
    }

    /// The world in which they lie.
    #[getter]
    fn world(&self, py: Python<'_>) -> Py<PyAny> {
        self.world.clone_ref(py)
    }

    /// Their name in the world.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }
}
