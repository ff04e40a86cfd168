//! Memory that a program lends to its endpoint as a segment.
//!
//! A program in C gives any range of its addresses, up to all of them; so no reference to the whole
//! of it exists at any time, but only to the bytes that a message names, while they are stored.
#![allow(unsafe_code)]

/// Range of the process's addresses.
pub(crate) struct LentMemory {
    at: *mut u8,
    len: u64,
}

impl LentMemory {
    /// Range of `len` bytes from `at` on.
    ///
    /// # Safety
    ///
    /// As long as it exists:
    ///
    /// * The bytes of the range that messages name may be written.
    /// * No other thread accesses them while the endpoint is polled or sends.
    pub unsafe fn new(at: *mut u8, len: u64) -> LentMemory {
        LentMemory { at, len }
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    /// The bytes of a range, unless it goes beyond the end or begins at the null pointer.
    pub fn range(&mut self, at: u64, len: usize) -> Option<&mut [u8]> {
        if at.checked_add(len as u64)? > self.len {
            return None;
        }
        let first = self.at.wrapping_add(usize::try_from(at).ok()?);
        if first.is_null() {
            return None;
        }
        // SAFETY: not null; within the range of which the program has promised that the bytes which
        // messages name are its own, valid, and used by no other thread while the endpoint polls
        // (`LentMemory::new`); the slice lives for one copy.
        Some(unsafe { core::slice::from_raw_parts_mut(first, len) })
    }
}
