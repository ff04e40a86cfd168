//! Objects as messages.
//!
//! | first byte | message |
//! | --- | --- |
//! | 1 | the bytes of a `bytes` object |
//! | 2 | a pickle and its buffers, which lie beside it |
//! | 128 | a pickle |
//!
//! The second kind, all numbers in the machine's order:
//!
//! ```text
//!  0: 2
//!  4: u32 number of buffers
//!  8: u64 length of the pickle
//! 16: a u64 for each buffer: length; upper bit: it may not be written
//!     the pickle
//!     each buffer, from a multiple of 64 on
//! ```

use core::ptr;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyAttributeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyType};

const RAW: u8 = 1;
const WITH_BUFFERS: u8 = 2;
/// Part of a buffer's length: it may not be written.
const READ_ONLY: u64 = 1 << 63;
/// Alignment of buffers, in bytes.
const ALIGN: usize = 64;

/// Functions of Python's pickle.
struct Pickle {
    dumps: Py<PyAny>,
    loads: Py<PyAny>,
    /// Function of multiprocessing, for objects that pickle alone does not know.
    others: Py<PyAny>,
    protocol: Py<PyAny>,
    error: Py<PyAny>,
}

fn pickle(py: Python<'_>) -> PyResult<&Pickle> {
    static PICKLE: PyOnceLock<Pickle> = PyOnceLock::new();
    PICKLE.get_or_try_init(py, || {
        let module = py.import("pickle")?;
        Ok(Pickle {
            dumps: module.getattr("dumps")?.unbind(),
            loads: module.getattr("loads")?.unbind(),
            others: py
                .import("multiprocessing.reduction")?
                .getattr("ForkingPickler")?
                .getattr("dumps")?
                .unbind(),
            protocol: 5i32.into_pyobject(py)?.into_any().unbind(),
            error: module.getattr("PicklingError")?.unbind(),
        })
    })
}

/// A message that has yet to be written.
pub struct ObjectMessage<'py> {
    body: ObjectBody<'py>,
    len: usize,
}

enum ObjectBody<'py> {
    Raw(Bound<'py, PyBytes>),
    Pickle(Bound<'py, PyBytes>),
    WithBuffers(Bound<'py, PyBytes>, Vec<PyUntypedBuffer>),
}

fn pickled<'py>(
    py: Python<'py>,
    object: &Bound<'py, PyAny>,
    buffers: Option<&Bound<'py, PyList>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let pickle = pickle(py)?;
    let (dumps, protocol) = (pickle.dumps.bind(py), pickle.protocol.bind(py));
    let made = match buffers {
        None => dumps.call1((object, protocol)),
        Some(buffers) => {
            let named = PyDict::new(py);
            named.set_item(
                pyo3::intern!(py, "buffer_callback"),
                buffers.getattr(pyo3::intern!(py, "append"))?,
            )?;
            dumps.call((object, protocol), Some(&named))
        }
    };
    match made {
        Ok(made) => Ok(made.cast_into::<PyBytes>()?),
        Err(error) => {
            let is_unknown = error.is_instance_of::<PyTypeError>(py)
                || error.is_instance_of::<PyAttributeError>(py)
                || error.is_instance(py, pickle.error.bind(py));
            if !is_unknown {
                return Err(error);
            }
            if let Some(buffers) = buffers {
                buffers.call_method0(pyo3::intern!(py, "clear"))?;
            }
            // Sockets and connections, which multiprocessing knows. It gives a view.
            let view = pickle.others.bind(py).call1((object, protocol))?;
            Ok(py.get_type::<PyBytes>().call1((view,))?.cast_into::<PyBytes>()?)
        }
    }
}

/// The type of NumPy's arrays, and the function that makes pickles of them without bytes.
struct Arrays {
    kind: Py<PyType>,
    pickle_of: Py<PyAny>,
}

/// The type of NumPy's arrays, if the program has imported it.
fn arrays(py: Python<'_>) -> PyResult<Option<&Arrays>> {
    static ARRAYS: PyOnceLock<Arrays> = PyOnceLock::new();
    if let Some(arrays) = ARRAYS.get(py) {
        return Ok(Some(arrays));
    }
    let modules = py.import("sys")?.getattr("modules")?;
    let Ok(numpy) = modules.get_item("numpy") else { return Ok(None) };
    // Another thread may be importing it.
    let Ok(kind) = numpy.getattr("ndarray") else { return Ok(None) };
    let kind = kind.cast_into::<PyType>()?.unbind();
    let pickle_of = py.import("towpath.queues")?.getattr("_pickle_of")?.unbind();
    ARRAYS.get_or_try_init(py, || Ok(Arrays { kind, pickle_of })).map(Some)
}

/// The message of an array whose bytes are one buffer as it lies.
///
/// `None`: of another object.
fn of_array<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<ObjectMessage<'py>>> {
    let py = object.py();
    let Some(arrays) = arrays(py)? else { return Ok(None) };
    if !object.get_type().is(&arrays.kind) {
        return Ok(None);
    }
    let Ok(bytes) = arrays.pickle_of.bind(py).call1((object,))?.cast_into::<PyBytes>() else {
        return Ok(None);
    };
    let buffer = PyUntypedBuffer::get(object)?;
    let len = places(bytes.as_bytes().len(), [buffer.len_bytes()].into_iter()).1;
    Ok(Some(ObjectMessage { body: ObjectBody::WithBuffers(bytes, vec![buffer]), len }))
}

impl<'py> ObjectMessage<'py> {
    /// The message of an object.
    pub fn of(object: &Bound<'py, PyAny>) -> PyResult<ObjectMessage<'py>> {
        let py = object.py();
        if let Ok(bytes) = object.cast_exact::<PyBytes>() {
            return Ok(ObjectMessage {
                len: 1 + bytes.as_bytes().len(),
                body: ObjectBody::Raw(bytes.clone()),
            });
        }
        let is_plain = object.is_none()
            || object.is_exact_instance_of::<PyInt>()
            || object.is_exact_instance_of::<PyString>()
            || object.is_exact_instance_of::<PyFloat>();
        if is_plain {
            return Ok(ObjectMessage::pickle(pickled(py, object, None)?));
        }
        if let Some(message) = of_array(object)? {
            return Ok(message);
        }
        let list = PyList::empty(py);
        let bytes = pickled(py, object, Some(&list))?;
        if list.is_empty() {
            return Ok(ObjectMessage::pickle(bytes));
        }
        let mut buffers = Vec::with_capacity(list.len());
        for each in &list {
            // One that is not contiguous is an error of `raw`.
            buffers.push(PyUntypedBuffer::get(&each.call_method0(pyo3::intern!(py, "raw"))?)?);
        }
        let lengths = buffers.iter().map(PyUntypedBuffer::len_bytes);
        let len = places(bytes.as_bytes().len(), lengths).1;
        Ok(ObjectMessage { body: ObjectBody::WithBuffers(bytes, buffers), len })
    }

    fn pickle(bytes: Bound<'py, PyBytes>) -> ObjectMessage<'py> {
        ObjectMessage { len: bytes.as_bytes().len(), body: ObjectBody::Pickle(bytes) }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The bytes, if they lie in Python's memory as they are.
    pub fn as_they_are(&self) -> Option<&[u8]> {
        match &self.body {
            ObjectBody::Pickle(bytes) => Some(bytes.as_bytes()),
            _ => None,
        }
    }

    /// Writes the message.
    ///
    /// # Panics
    ///
    /// If there is no room for it.
    pub fn write(&self, to: &mut [u8]) {
        match &self.body {
            ObjectBody::Pickle(bytes) => to[..self.len].copy_from_slice(bytes.as_bytes()),
            ObjectBody::Raw(bytes) => {
                to[0] = RAW;
                to[1..self.len].copy_from_slice(bytes.as_bytes());
            }
            ObjectBody::WithBuffers(bytes, buffers) => {
                let lengths: Vec<_> =
                    buffers.iter().map(|each| (each.len_bytes(), each.readonly())).collect();
                let firsts = write_head(to, bytes.as_bytes(), &lengths);
                for ((each, first), (len, _)) in buffers.iter().zip(firsts).zip(lengths) {
                    let to = &mut to[first..first + len];
                    // SAFETY: as many bytes as the exporter says, contiguous, which stay where they
                    // are as long as the buffer lives; this thread is attached.
                    unsafe { ptr::copy_nonoverlapping(each.buf_ptr().cast::<u8>(), to.as_mut_ptr(), len) };
                }
            }
        }
    }
}

/// First byte of each buffer, and number of bytes of the message.
fn places(pickle: usize, lengths: impl ExactSizeIterator<Item = usize>) -> (Vec<usize>, usize) {
    let mut end = 16 + 8 * lengths.len() + pickle;
    let firsts = lengths.map(|len| {
        let first = end.next_multiple_of(ALIGN);
        end = first + len;
        first
    });
    (firsts.collect(), end)
}

/// Number of bytes before the first buffer of a message with one buffer.
pub fn bytes_before(pickle: &[u8], len: usize) -> usize {
    places(pickle.len(), [len].into_iter()).0[0]
}

/// Writes the part before the buffers; returns the first byte of each.
///
/// # Panics
///
/// If there is no room for it.
pub fn write_head(to: &mut [u8], pickle: &[u8], lengths: &[(usize, bool)]) -> Vec<usize> {
    let (firsts, _) = places(pickle.len(), lengths.iter().map(|each| each.0));
    to[..4].copy_from_slice(&[WITH_BUFFERS, 0, 0, 0]);
    to[4..8].copy_from_slice(&(lengths.len() as u32).to_ne_bytes());
    to[8..16].copy_from_slice(&(pickle.len() as u64).to_ne_bytes());
    let mut at = 16;
    for &(len, read_only) in lengths {
        let word = len as u64 | if read_only { READ_ONLY } else { 0 };
        to[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        at += 8;
    }
    to[at..at + pickle.len()].copy_from_slice(pickle);
    firsts
}

/// The object of a message.
///
/// `lend` makes an object of a buffer: of its bytes, and whether they may not be written.
pub fn object_of<'py>(
    py: Python<'py>,
    message: &[u8],
    lend: impl Fn(&[u8], bool) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    match message.first() {
        Some(&RAW) => Ok(PyBytes::new(py, &message[1..]).into_any()),
        Some(&WITH_BUFFERS) => {
            let (bytes, buffers) = parts(message).ok_or_else(damaged)?;
            if let [(buffer, read_only)] = buffers[..]
                && let Some(shape) = known_shape(py, bytes)
            {
                let kind = &arrays(py)?.ok_or_else(damaged)?.kind;
                return kind.bind(py).call1((shape.0, shape.1, lend(buffer, read_only)?));
            }
            let list = PyList::empty(py);
            for &(buffer, read_only) in &buffers {
                list.append(lend(buffer, read_only)?)?;
            }
            let named = PyDict::new(py);
            named.set_item(pyo3::intern!(py, "buffers"), list)?;
            let object = pickle(py)?.loads.bind(py).call((PyBytes::new(py, bytes),), Some(&named))?;
            if let [(buffer, _)] = buffers[..] {
                note_shape(&object, bytes, buffer.len())?;
            }
            Ok(object)
        }
        _ => pickle(py)?.loads.bind(py).call1((PyBytes::new(py, message),)),
    }
}

/// Shape and dtype of arrays by their pickles without bytes: unpickling takes longer.
static SHAPES: Mutex<BTreeMap<Vec<u8>, ShapeAndType>> = Mutex::new(BTreeMap::new());

/// Shape and dtype of an array.
type ShapeAndType = (Py<PyAny>, Py<PyAny>);

/// Maximum number of shapes that are remembered.
const MOST_SHAPES: usize = 64;

/// Shape and dtype of the array of a pickle, if it is one that was seen before.
fn known_shape<'py>(py: Python<'py>, bytes: &[u8]) -> Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let shapes = SHAPES.lock().unwrap_or_else(PoisonError::into_inner);
    shapes.get(bytes).map(|(shape, kind)| (shape.bind(py).clone(), kind.bind(py).clone()))
}

/// Remembers the shape of an array that is all of its only buffer, as it lies.
fn note_shape(object: &Bound<'_, PyAny>, bytes: &[u8], len: usize) -> PyResult<()> {
    let Some(arrays) = arrays(object.py())? else { return Ok(()) };
    if !object.get_type().is(&arrays.kind)
        || !object.getattr("flags")?.getattr("c_contiguous")?.is_truthy()?
        || object.getattr("nbytes")?.extract::<usize>()? != len
        || len == 0
    {
        return Ok(());
    }
    let found = (object.getattr("shape")?.unbind(), object.getattr("dtype")?.unbind());
    let mut shapes = SHAPES.lock().unwrap_or_else(PoisonError::into_inner);
    if shapes.len() < MOST_SHAPES {
        shapes.insert(bytes.to_vec(), found);
    }
    Ok(())
}

/// A buffer of a message as memory of this process alone.
pub fn copied<'py>(py: Python<'py>, buffer: &[u8], read_only: bool) -> Bound<'py, PyAny> {
    if read_only { PyBytes::new(py, buffer).into_any() } else { PyByteArray::new(py, buffer).into_any() }
}

/// Buffer of a message, and whether it may not be written.
type Lent<'a> = (&'a [u8], bool);

/// The pickle of a message and its buffers. `None`: no sender wrote it.
fn parts(message: &[u8]) -> Option<(&[u8], Vec<Lent<'_>>)> {
    let number = |at: usize| {
        let bytes = message.get(at..at.checked_add(8)?)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    };
    let count = u32::from_ne_bytes(message.get(4..8)?.try_into().ok()?) as usize;
    let head = 16usize.checked_add(count.checked_mul(8)?)?;
    let pickle = message.get(head..head.checked_add(usize::try_from(number(8)?).ok()?)?)?;
    let mut end = head + pickle.len();
    let mut buffers = Vec::new();
    for i in 0..count {
        let word = number(16 + 8 * i)?;
        let first = end.checked_next_multiple_of(ALIGN)?;
        end = first.checked_add(usize::try_from(word & !READ_ONLY).ok()?)?;
        buffers.push((message.get(first..end)?, word & READ_ONLY != 0));
    }
    Some((pickle, buffers))
}

fn damaged() -> PyErr {
    PyValueError::new_err("the message is damaged: no put wrote it")
}
