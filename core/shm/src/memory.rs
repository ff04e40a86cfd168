//! Shared memory without a world: for rooms that keep a table of members of their own in
//! it (`fabric`).
#![allow(unsafe_code)]

use core::mem::{align_of, size_of};
use core::ptr::NonNull;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use towpath_machine::{Concurrent, NativeBytes};

use crate::segment::Segment;
use crate::{Error, layout::PAGE};

/// A piece of anonymous shared memory, mapped until it is dropped.
#[derive(Debug)]
pub struct Memory {
    segment: Segment,
}

impl Memory {
    /// New memory, zeroed and reserved: touching it later can't fail. It is gone when the
    /// last process that has it mapped is.
    ///
    /// # Errors
    ///
    /// An error names the obstacle and the remedy.
    pub fn anonymous(bytes: u64) -> Result<Memory, Error> {
        Segment::anonymous(bytes).map(|segment| Memory { segment })
    }

    /// Maps memory that another process has made with [`Memory::anonymous`].
    ///
    /// # Errors
    ///
    /// The file belongs to another user, is too short for a segment, is not reserved, or can't be
    /// mapped.
    pub fn from_descriptor(file: OwnedFd) -> Result<Memory, Error> {
        Segment::from_descriptor(file).map(|segment| Memory { segment })
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.segment.len()
    }

    /// Returns whether it has no bytes (never).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of its descriptor in this process.
    pub fn descriptor(&self) -> i32 {
        self.file().as_raw_fd()
    }

    /// The descriptor itself.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.segment.file().expect("made with a file, by both functions that make one")
    }

    /// `n` values of a type from an offset on.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], [`Error::Misaligned`].
    pub fn slice<T: Concurrent>(&self, offset: u64, n: u64) -> Result<&[T], Error> {
        let len = (size_of::<T>() as u64).saturating_mul(n);
        let at = self.check(offset, len, align_of::<T>())?;
        // SAFETY: in bounds and aligned (just checked); mapped for as long as `self` lives; every
        // bit pattern is a `T` and accesses through shared references are atomic (`Concurrent`).
        Ok(unsafe { core::slice::from_raw_parts(at.cast::<T>().as_ptr(), n as usize) })
    }

    /// A view of payload bytes.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`].
    ///
    /// # Safety
    ///
    /// * The view is not used after this memory is dropped.
    /// * No reference from [`Memory::slice`] to these bytes exists while the view is used.
    pub unsafe fn bytes(&self, offset: u64, len: u64) -> Result<NativeBytes, Error> {
        let at = self.check(offset, len, 1)?;
        // SAFETY: stays mapped while `self` lives, and without references: the caller's
        // obligations.
        Ok(unsafe { NativeBytes::from_raw(at, len as usize) })
    }

    fn check(&self, offset: u64, len: u64, align: usize) -> Result<NonNull<u8>, Error> {
        within(self.len(), offset, len, align)?;
        // SAFETY: at most `len()` bytes into the mapping (just checked).
        Ok(unsafe { self.segment.base().add(offset as usize) })
    }
}

/// Returns whether a range lies within so many bytes that begin at a page, and begins at
/// a multiple of `align`.
pub(crate) fn within(available: u64, offset: u64, len: u64, align: usize) -> Result<(), Error> {
    if offset.checked_add(len).is_none_or(|end| end > available) {
        return Err(Error::OutOfBounds { offset, len, available });
    }
    if align as u64 > PAGE || !offset.is_multiple_of(align as u64) {
        return Err(Error::Misaligned { offset, align });
    }
    Ok(())
}
