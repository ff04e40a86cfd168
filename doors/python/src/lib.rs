//! Towpath for Python: the module `towpath._towpath`.
//!
//! The package `towpath` makes of it `World`, and a context with multiprocessing's signatures.
//!
//! * A waiter releases the GIL and comes back now and then, so that Ctrl-C is obeyed ([`turns`]).
//! * A process enters a world when it first uses an object of it: a forked child, too ([`call`]).
//! * Objects are pickled by the package, as world and name.

mod broadcast;
mod bytes;
mod call;
mod condition;
mod fault;
mod in_place;
mod lease;
mod lock;
mod messages;
mod names;
mod objects;
mod others;
mod parent;
mod quick;
mod rw_lock;
mod turns;
mod world;

use pyo3::prelude::*;

/// The compiled part of the package.
#[pymodule]
fn _towpath(m: &Bound<'_, PyModule>) -> PyResult<()> {
    fault::add(m)?;
    m.add_function(wrap_pyfunction!(parent::end_after, m)?)?;
    m.add_class::<world::PyWorld>()?;
    m.add_class::<lock::PyLock>()?;
    m.add_class::<condition::PyCondition>()?;
    m.add_class::<rw_lock::PyRwLock>()?;
    m.add_class::<rw_lock::PyReading>()?;
    m.add_class::<rw_lock::PyWriting>()?;
    m.add_class::<others::PySemaphore>()?;
    m.add_class::<others::PyEvent>()?;
    m.add_class::<others::PyBarrier>()?;
    m.add_class::<messages::PyMessages>()?;
    m.add_class::<lease::PyLease>()?;
    m.add_class::<in_place::PyLent>()?;
    m.add_class::<in_place::PyReservation>()?;
    m.add_class::<bytes::PyBytesInWorld>()?;
    m.add_class::<broadcast::PyBroadcast>()?;
    m.add_class::<broadcast::PyWriter>()?;
    m.add_class::<broadcast::PyReader>()?;
    quick::add(m)
}
