//! The ladder of paper M on this machine: MPICH's device in four versions, and Towpath's
//! own.

mod native;
mod ours;
mod semaphore;

pub use native::measure;

/// Any error of a process of the ladder.
type Anything = Box<dyn std::error::Error>;

/// A version of the device, as ping-pong uses it.
trait LadderEnd {
    /// Returns when the buffer can be used again.
    fn send(&self, to: usize, tag: u64, data: &[u8]) -> Result<(), Anything>;
    /// Returns the tag and the length.
    fn receive(&self, from: usize, buffer: &mut [u8]) -> Result<(u64, usize), Anything>;
}
