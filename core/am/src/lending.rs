//! Lending an endpoint the memory of its segment.
#![allow(unsafe_code)]

use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::lent_memory::LentMemory;
use crate::segment::Segment;

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
        // SAFETY: the caller promises both points, for as long as the endpoint exists.
        segment.lend(unsafe { LentMemory::new(at, len) });
        Ok(())
    }
}
