//! Memory that a program lends to its endpoint as a segment.
//!
//! A program in C gives any range of its addresses, up to all of them; so no reference to the whole
//! of it exists at any time, but only to the bytes that a message names, while they are stored.
#![allow(unsafe_code)]

use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::segment::Segment;

/// Range of the process's addresses.
pub(crate) struct LentMemory {
    at: *mut u8,
    len: u64,
}

impl LentMemory {
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
        // (`Endpoint::lend_segment`); the slice lives for one copy.
        Some(unsafe { core::slice::from_raw_parts_mut(first, len) })
    }
}

impl Endpoint {
    /// Makes a range of the process's addresses the segment of an endpoint that has a
    /// private one.
    ///
    /// Messages that are under way are stored in it, too.
    ///
    /// # Safety
    ///
    /// As long as the endpoint exists and has no other segment:
    ///
    /// * The bytes of the range that long messages name may be written. Those that no message names
    ///   need not exist.
    /// * No other thread accesses them while the endpoint is polled or sends.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`] if the endpoint has no private segment; [`Error::InUse`] from a
    /// handler.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let mut table = vec![0u8; 4096];
    /// let endpoint = towpath::Endpoint::with_private_segment(&world, 0)?;
    /// // SAFETY: the table outlives the endpoint and is not accessed while that polls.
    /// unsafe { endpoint.lend_segment(table.as_mut_ptr(), 4096)? };
    /// # endpoint.map_world()?;
    /// endpoint.set_handler(1, |_| ());
    /// endpoint.request_long(0, 1, &[], b"data", 100)?;
    /// endpoint.barrier()?;
    /// drop(endpoint);
    /// assert_eq!(table[100..104], *b"data");
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub unsafe fn lend_segment(&self, at: *mut u8, len: u64) -> Result<(), Error> {
        if self.is_in_handler() {
            return Err(Error::InUse("a handler may not change the segment".into()));
        }
        let Segment::Private(segment) = self.segment() else {
            return Err(Error::BadArgument("only a private segment can be lent memory".into()));
        };
        segment.lend(LentMemory { at, len });
        Ok(())
    }
}
