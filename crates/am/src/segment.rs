//! An endpoint's segment: where long transfers are stored.
#![allow(unsafe_code)]

use core::cell::UnsafeCell;

use towpath_machine::{Native, NativeBytes, Processor};

/// The memory that long transfers to an endpoint are stored in: none, private to its process, or shared.
///
/// Into a private segment the receiver stores, out of the blocks of its bulk queue, when it polls; what the handler finds there is exactly its own
/// message's bytes. Into a shared one the *sender* stores directly, at any time before the handler runs: one copy instead of two, and
/// until the handler runs the destination's contents are unspecified.
#[derive(Debug)]
pub enum Segment {
    /// No long transfers.
    None,
    /// Memory of this process.
    Private(PrivateSegment),
    /// This endpoint's part of the world (see `WorldConfig::segment_bytes`).
    Shared(SharedSegment),
}

/// A segment in private memory.
pub struct PrivateSegment {
    bytes: UnsafeCell<Box<[u8]>>,
}

impl core::fmt::Debug for PrivateSegment {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PrivateSegment").field("len", &self.len()).finish()
    }
}

impl PrivateSegment {
    pub(crate) fn new(len: usize) -> Self {
        PrivateSegment { bytes: UnsafeCell::new(vec![0; len].into_boxed_slice()) }
    }

    fn len(&self) -> usize {
        // SAFETY: no exclusive reference outlives a call of this type's methods, and the type is not `Sync`.
        unsafe { (&*self.bytes.get()).len() }
    }
}

/// A segment in the world's memory.
#[derive(Debug)]
pub struct SharedSegment(pub(crate) NativeBytes);

impl Segment {
    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Segment::None => 0,
            Segment::Private(s) => s.len() as u64,
            Segment::Shared(s) => s.0.len() as u64,
        }
    }

    /// Whether nothing can be stored in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn range(&self, offset: u64, len: usize) -> usize {
        assert!(
            offset.checked_add(len as u64).is_some_and(|end| end <= self.len()),
            "range {offset}+{len} is not in a segment of {} bytes",
            self.len()
        );
        offset as usize
    }

    /// Copies bytes out. Panics if the range is not in the segment.
    pub fn read(&self, offset: u64, to: &mut [u8]) {
        let at = self.range(offset, to.len());
        match self {
            Segment::None => {}
            // SAFETY: in bounds (checked); no reference to the bytes outlives a call, and `to` is none of them.
            Segment::Private(s) => to.copy_from_slice(unsafe { &(&*s.bytes.get())[at..at + to.len()] }),
            Segment::Shared(s) => Native::with_id(0).copy_out(&s.0, at, to),
        }
    }

    /// Copies bytes in. Panics if the range is not in the segment.
    pub fn write(&self, offset: u64, from: &[u8]) {
        let at = self.range(offset, from.len());
        match self {
            Segment::None => {}
            Segment::Private(s) => {
                // SAFETY: as in `read`.
                unsafe { (&mut *s.bytes.get())[at..at + from.len()].copy_from_slice(from) }
            }
            Segment::Shared(s) => Native::with_id(0).copy_in(&s.0, at, from),
        }
    }

    /// Stores a block of a bulk queue. `false` if the range is not in the segment.
    pub(crate) fn store(&self, offset: u64, from: &NativeBytes, at: usize, len: usize) -> bool {
        if offset.checked_add(len as u64).is_none_or(|end| end > self.len()) {
            return false;
        }
        match self {
            Segment::None => {}
            // SAFETY: in bounds (checked just now); no reference to the bytes outlives a call, and they are private memory, which
            // no shared bytes overlap.
            Segment::Private(s) => Native::with_id(0).copy_out(from, at, unsafe {
                &mut (&mut *s.bytes.get())[offset as usize..offset as usize + len]
            }),
            Segment::Shared(s) => {
                let mut piece = [0u8; 4096];
                for start in (0..len).step_by(piece.len()) {
                    let piece = &mut piece[..(len - start).min(4096)];
                    Native::with_id(0).copy_out(from, at + start, piece);
                    Native::with_id(0).copy_in(&s.0, offset as usize + start, piece);
                }
            }
        }
        true
    }
}
