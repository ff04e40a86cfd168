//! A segment and its geometry: references to its parts.
#![allow(unsafe_code)]

use core::mem::{align_of, size_of};
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64};

use towpath_machine::Concurrent;

use crate::layout::{
    Geometry, MAPPED_ALIGN, ObjectRecord, PAGE, ParticipantEntry, Presence, Range, RankDoorbell,
};
use crate::segment::Segment;

/// A segment that is as long as its geometry says.
#[derive(Debug)]
pub(crate) struct Parts {
    segment: Segment,
    geometry: Geometry,
}

impl Parts {
    /// `None` if the segment has another length.
    pub fn new(segment: Segment, geometry: Geometry) -> Option<Self> {
        (segment.len() == geometry.end()).then_some(Parts { segment, geometry })
    }

    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub fn entries(&self) -> &[ParticipantEntry] {
        // SAFETY: a range of this geometry.
        unsafe { self.slice(self.geometry.entries()) }
    }

    pub fn doorbells(&self) -> &[RankDoorbell] {
        // SAFETY: a range of this geometry.
        unsafe { self.slice(self.geometry.doorbells()) }
    }

    pub fn presence(&self) -> &[Presence] {
        // SAFETY: a range of this geometry.
        unsafe { self.slice(self.geometry.presence()) }
    }

    pub fn arrivals(&self) -> &[AtomicU32] {
        // SAFETY: a range of this geometry.
        unsafe { self.slice(self.geometry.arrivals()) }
    }

    pub fn buckets(&self) -> &[AtomicU64] {
        // SAFETY: a range of this geometry.
        unsafe { self.slice(self.geometry.buckets()) }
    }

    /// The words of the heap.
    pub fn heap_words(&self) -> &[AtomicU64] {
        let words = (self.geometry.heap_bytes() / 8) as usize;
        // SAFETY: the heap lies within the mapping (`Parts::new`), at a multiple of 128.
        unsafe { self.slice((self.geometry.heap(), words)) }
    }

    /// The record at an offset in the heap. `None` if there can be none.
    pub fn record(&self, offset: u64) -> Option<&ObjectRecord> {
        let at = self.heap_at(offset, size_of::<ObjectRecord>() as u64, align_of::<ObjectRecord>() as u64)?;
        // SAFETY: within the heap and aligned (checked by `heap_at`); mapped for as long as `self`
        // lives; any bits are a record, and its words are atomic (`Concurrent`).
        Some(unsafe { at.cast().as_ref() })
    }

    /// Alignment of the heap's beginning.
    pub fn heap_align(&self) -> u64 {
        if self.segment.file().is_some() { PAGE } else { MAPPED_ALIGN as u64 }
    }

    /// Address of a range of the heap. `None` if it lies elsewhere, or is not aligned.
    pub fn heap_at(&self, offset: u64, len: u64, align: u64) -> Option<NonNull<u8>> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.geometry.heap_bytes());
        if !inside || !offset.is_multiple_of(align) {
            return None;
        }
        // SAFETY: within the heap (just checked), which lies within the mapping (`Parts::new`).
        Some(unsafe { self.segment.base().add((self.geometry.heap() + offset) as usize) })
    }

    /// # Safety
    ///
    /// The range is one of `self.geometry`, for elements of this type.
    unsafe fn slice<T: Concurrent>(&self, (offset, count): Range) -> &[T] {
        // SAFETY: the range ends before the geometry's end (the caller's obligation), which is the
        // mapping's (`Parts::new`), and is aligned; the mapping lives as long as `self`; every bit
        // pattern is a `T` and accesses through shared references are atomic (`Concurrent`).
        unsafe {
            let first = self.segment.base().add(offset as usize).cast::<T>();
            core::slice::from_raw_parts(first.as_ptr(), count)
        }
    }
}

impl Deref for Parts {
    type Target = Segment;
    fn deref(&self) -> &Segment {
        &self.segment
    }
}
