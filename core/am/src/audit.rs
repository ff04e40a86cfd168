//! Audit of an endpoint's receive block.

/// Packets and blocks of an endpoint's receive block that are in use: all 0 when no
/// message is on the way to it and none was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Packets of the request queue, and requests in lines.
    pub request_packets: u64,
    /// Blocks of the request queue.
    pub request_blocks: u64,
    /// Packets of the reply queue, and replies in lines.
    pub reply_packets: u64,
    /// Blocks of the reply queue.
    pub reply_blocks: u64,
}

impl Audit {
    /// Returns whether no packet and no block is in use.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// assert!(endpoint.audit().is_clean(), "no message is on the way");
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn is_clean(&self) -> bool {
        *self == Audit::default()
    }
}
