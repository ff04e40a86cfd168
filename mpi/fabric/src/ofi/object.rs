//! Common parts of all objects: the header that libfabric sees, the way to the user, the
//! end.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use super::failed;
use super::sys::*;

/// The header of an object.
pub fn header(class: u32, context: *mut c_void, ops: &'static fi_ops) -> fid {
    fid { fclass: class as usize, context, ops: core::ptr::from_ref(ops).cast_mut() }
}

/// Gives an object to the user, as a pointer to its header.
///
/// # Safety
///
/// `T` begins with an `F` (`repr(C)`), and `place` is one for the answer.
pub unsafe fn hand_out<T, F>(object: T, place: *mut *mut F) {
    // SAFETY: the caller's promise.
    unsafe { *place = Box::into_raw(Box::new(object)).cast() };
}

/// Number of other objects that need this one: it can't be closed before them.
#[derive(Default)]
pub struct Users(AtomicUsize);

impl Users {
    /// Holds the object once more, as long as the result lives.
    ///
    /// # Safety
    ///
    /// The object outlives the result: it can be closed only by [`close`].
    pub unsafe fn hold(&self) -> Hold {
        // Relaxed: a program that closes an object while another thread opens something on it
        // breaks the promise about objects (`ofi/mod.rs`): `fi_fabric(3)`, `fi_close`.
        self.0.fetch_add(1, Ordering::Relaxed);
        Hold(self)
    }
}

/// A use of another object.
pub struct Hold(*const Users);

impl Drop for Hold {
    fn drop(&mut self) {
        // SAFETY: the object is still there: the promise of `hold`. Relaxed: as there.
        unsafe { (*self.0).0.fetch_sub(1, Ordering::Relaxed) };
    }
}

/// An object that is closed by [`close`].
pub trait OfiObject {
    /// Number of other objects that need it.
    fn users(&self) -> &Users;
}

/// Ends an object, unless others need it.
///
/// # Safety
///
/// It was handed out as a `T`, and is not used afterwards if this succeeds.
pub unsafe extern "C" fn close<T: OfiObject>(fid: *mut fid) -> c_int {
    let object: *mut T = fid.cast();
    // SAFETY: the caller's promise. Relaxed: as in `hold`.
    unsafe {
        if (*object).users().0.load(Ordering::Relaxed) > 0 {
            return failed(FI_EBUSY);
        }
        drop(Box::from_raw(object));
    }
    0
}
