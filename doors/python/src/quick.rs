//! The calls of an uncontended lock, without PyO3's work at each call.
//!
//! PyO3 counts its entries, catches panics and reads arguments; that takes longer than the lock
//! itself. Here a call without arguments tries once, with the GIL. Whatever else there is (an
//! argument, a lock that is held, a dead owner, an error) goes to the method of `PyLock` whose name
//! has a `_` before it.

use core::ffi::CStr;
use core::ptr;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use crate::lock::PyLock;

/// A lock that Python calls a method of.
///
/// # Safety
///
/// * `it` is an instance of [`PyLock`], to which the caller has a reference while the result lives.
/// * The caller is attached to the interpreter.
unsafe fn lock_of<'a>(it: *mut PyObject) -> &'a PyLock {
    // SAFETY: the caller is attached.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: not null, and of that type: the caller's promises.
    let lock = unsafe { Borrowed::from_ptr(py, it).cast_unchecked::<PyLock>() };
    let lock: *const PyLock = lock.get();
    // SAFETY: a frozen class's value, which lives as long as the object.
    unsafe { &*lock }
}

/// Calls the method of PyO3's with the same arguments.
///
/// # Safety
///
/// * `it`, `args` (as many as `count`) and `names` (a tuple, or null) are what Python gave.
/// * The caller is attached to the interpreter.
#[cold]
unsafe fn slowly(
    it: *mut PyObject,
    name: &CStr,
    args: *const *mut PyObject,
    count: ffi::Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: attached; objects are the caller's, and each new one is checked and given back.
    unsafe {
        let method = ffi::PyObject_GetAttrString(it, name.as_ptr());
        let tuple = ffi::PyTuple_New(count);
        let mut result = ptr::null_mut();
        let mut named = ptr::null_mut();
        if !method.is_null() && !tuple.is_null() {
            for i in 0..count {
                let arg = *args.offset(i);
                ffi::Py_INCREF(arg);
                ffi::PyTuple_SetItem(tuple, i, arg);
            }
            let mut is_whole = true;
            if !names.is_null() {
                named = ffi::PyDict_New();
                is_whole = !named.is_null();
                for i in 0..ffi::PyTuple_Size(names) {
                    is_whole = is_whole
                        && ffi::PyDict_SetItem(
                            named,
                            ffi::PyTuple_GetItem(names, i),
                            *args.offset(count + i),
                        ) == 0;
                }
            }
            if is_whole {
                result = ffi::PyObject_Call(method, tuple, named);
            }
        }
        ffi::Py_XDECREF(method);
        ffi::Py_XDECREF(tuple);
        ffi::Py_XDECREF(named);
        result
    }
}

fn truth() -> *mut PyObject {
    // SAFETY: a new reference to an object that always lives; callers are attached.
    unsafe {
        let truth = ffi::Py_True();
        ffi::Py_INCREF(truth);
        truth
    }
}

fn none() -> *mut PyObject {
    // SAFETY: as in `truth`.
    unsafe {
        let none = ffi::Py_None();
        ffi::Py_INCREF(none);
        none
    }
}

unsafe extern "C" fn acquire(
    it: *mut PyObject,
    args: *const *mut PyObject,
    count: ffi::Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: Python calls it, attached, with a lock, since it is a method of that type.
    if count == 0 && names.is_null() && unsafe { lock_of(it) }.try_quickly() {
        return truth();
    }
    // SAFETY: Python's own arguments.
    unsafe { slowly(it, c"_acquire", args, count, names) }
}

unsafe extern "C" fn enter(it: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    // SAFETY: as in `acquire`.
    if unsafe { lock_of(it) }.try_quickly() {
        return truth();
    }
    // SAFETY: without arguments.
    unsafe { slowly(it, c"_acquire", ptr::null(), 0, ptr::null_mut()) }
}

unsafe extern "C" fn release(it: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    // SAFETY: as in `acquire`.
    if unsafe { lock_of(it) }.release_quickly() {
        return none();
    }
    // SAFETY: without arguments.
    unsafe { slowly(it, c"_release", ptr::null(), 0, ptr::null_mut()) }
}

unsafe extern "C" fn exit(
    it: *mut PyObject,
    _: *const *mut PyObject,
    _: ffi::Py_ssize_t,
    _: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: as `release`'s caller.
    unsafe { release(it, ptr::null_mut()) }
}

/// Definitions of methods, which Python reads.
struct Methods([ffi::PyMethodDef; 4]);

// SAFETY: constants, which are never written.
unsafe impl Sync for Methods {}

const NAMED: core::ffi::c_int = ffi::METH_FASTCALL | ffi::METH_KEYWORDS;

static METHODS: Methods = Methods([
    ffi::PyMethodDef {
        ml_name: c"acquire".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: acquire },
        ml_flags: NAMED,
        ml_doc: c"acquire($self, block=True, timeout=None)\n--\n\nAcquires the lock; with block=False or a time-out, returns whether it has.\n\nRaises OwnerDied if the last owner died with it: then the caller does not have the lock.".as_ptr(),
    },
    ffi::PyMethodDef {
        ml_name: c"release".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: release },
        ml_flags: ffi::METH_NOARGS,
        ml_doc: c"release($self)\n--\n\nReleases the lock.".as_ptr(),
    },
    ffi::PyMethodDef {
        ml_name: c"__enter__".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: enter },
        ml_flags: ffi::METH_NOARGS,
        ml_doc: c"__enter__($self)\n--\n\nAcquires the lock.".as_ptr(),
    },
    ffi::PyMethodDef {
        ml_name: c"__exit__".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: exit },
        ml_flags: NAMED,
        ml_doc: c"__exit__($self, *exc)\n--\n\nReleases the lock.".as_ptr(),
    },
]);

/// Gives the type of locks its quick methods.
pub fn add(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let of = m.py().get_type::<PyLock>();
    for method in &METHODS.0 {
        // SAFETY: attached; Python only reads the definition, which lives for ever.
        let made = unsafe {
            let made = ffi::PyDescr_NewMethod(of.as_type_ptr(), ptr::from_ref(method).cast_mut());
            Bound::from_owned_ptr_or_err(m.py(), made)?
        };
        // SAFETY: a text that lives for ever.
        let name = unsafe { CStr::from_ptr(method.ml_name) };
        of.setattr(name.to_string_lossy(), made)?;
    }
    Ok(())
}
