//! Shared bytes of the native machine.
#![allow(unsafe_code)]

use core::ptr::NonNull;

/// A run of shared bytes: a view, which does not own them.
#[derive(Debug)]
pub struct NativeBytes {
    pub(crate) base: NonNull<u8>,
    pub(crate) len: usize,
}

// SAFETY: a view of shared memory; accesses go through `copy_in` and `copy_out`, which callers
// order by words.
unsafe impl Send for NativeBytes {}
// SAFETY: a view of shared memory that has no state of its own; its accesses copy only.
unsafe impl Sync for NativeBytes {}

impl NativeBytes {
    /// A view of `len` bytes at `base`.
    ///
    /// # Safety
    ///
    /// * `base..base + len` stays mapped, readable and writable for as long as the view is used.
    /// * No Rust reference to these bytes exists meanwhile.
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// use towpath_machine::{Native, NativeBytes, Processor};
    ///
    /// let mut memory = vec![0; 8];
    /// let base = NonNull::new(memory.as_mut_ptr()).unwrap();
    /// // SAFETY: `memory` outlives the view, and is not used beside it.
    /// let bytes = unsafe { NativeBytes::from_raw(base, 8) };
    /// Native::with_id(0).copy_in(&bytes, 2, b"abc");
    /// ```
    pub const unsafe fn from_raw(base: NonNull<u8>, len: usize) -> Self {
        NativeBytes { base, len }
    }

    /// The number of bytes.
    ///
    /// ```
    /// # use std::ptr::NonNull;
    /// # use towpath_machine::{Native, NativeBytes, Processor};
    /// # let mut memory = vec![0; 8];
    /// # let base = NonNull::new(memory.as_mut_ptr()).unwrap();
    /// # // SAFETY: `memory` outlives the view, and is not used beside it.
    /// # let bytes = unsafe { NativeBytes::from_raw(base, 8) };
    /// assert_eq!(bytes.len(), 8);
    /// ```
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are none.
    ///
    /// ```
    /// # use std::ptr::NonNull;
    /// # use towpath_machine::{Native, NativeBytes, Processor};
    /// # let mut memory = vec![0; 8];
    /// # let base = NonNull::new(memory.as_mut_ptr()).unwrap();
    /// # // SAFETY: `memory` outlives the view, and is not used beside it.
    /// # let bytes = unsafe { NativeBytes::from_raw(base, 8) };
    /// assert!(!bytes.is_empty());
    /// ```
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first byte's address.
    ///
    /// ```
    /// # use std::ptr::NonNull;
    /// # use towpath_machine::{Native, NativeBytes, Processor};
    /// # let mut memory = vec![0; 8];
    /// # let base = NonNull::new(memory.as_mut_ptr()).unwrap();
    /// # // SAFETY: `memory` outlives the view, and is not used beside it.
    /// # let bytes = unsafe { NativeBytes::from_raw(base, 8) };
    /// assert_eq!(bytes.as_ptr(), base.as_ptr());
    /// ```
    pub const fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }
}
