//! Events that an algorithm tells its machine.

/// Remark of an algorithm to the machine; costs nothing natively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The start of an acquisition or claim of the object with this number.
    Acquiring(u64),
    /// Lock acquired.
    Acquired(u64),
    /// Lock released.
    Released(u64),
    /// A message was published or consumed, by sequence number.
    Message(u64),
}
