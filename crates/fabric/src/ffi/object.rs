//! What all objects have in common: the header that libfabric sees, the way to the user, and the end.

use core::ffi::{c_int, c_void};

use super::sys::*;

/// The header of an object.
pub fn header(class: u32, context: *mut c_void, ops: &'static fi_ops) -> fid {
    fid { fclass: class as usize, context, ops: core::ptr::from_ref(ops).cast_mut() }
}

/// Gives an object to the user, who sees what it begins with.
///
/// # Safety
///
/// `T` begins with an `F` (`repr(C)`), and `place` is one for the answer.
pub unsafe fn hand_out<T, F>(object: T, place: *mut *mut F) {
    // SAFETY: the caller's promise.
    unsafe { *place = Box::into_raw(Box::new(object)).cast() };
}

/// Ends an object that nothing else knows of.
///
/// # Safety
///
/// It was handed out as a `T`, and is not used afterwards.
pub unsafe extern "C" fn close<T>(fid: *mut fid) -> c_int {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(fid.cast::<T>()) });
    0
}
