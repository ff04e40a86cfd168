//! Machines that Towpath's algorithms run on.
//!
//! Every concurrent algorithm of the project is written once, generic over a [`Processor`], and the
//! same text runs natively ([`Native`]: the words are atomics in shared memory and the compiler
//! inlines the processor away), on a simulated machine, and under a model checker (`LoomProcessor`,
//! feature `loom`).
//!
//! An algorithm may touch only what a processor offers:
//!
//! * [`Processor::Word`]: a shared 64-bit word, accessed with an explicit [`Ordering`];
//! * [`Processor::Cell`]: a 64-bit datum whose accesses are ordered by words (payload; race-checked
//!   where the machine can);
//! * [`Processor::Bytes`]: a run of payload bytes, whose accesses are ordered by words;
//! * the acting processor itself, passed explicitly, which performs every access;
//! * capabilities beyond that, each a trait of its own, so that a bound says what an algorithm
//!   needs: [`Park`], [`KernelMutex`], [`FetchOp`], [`LlSc`], [`Dcas`], [`Cas2`], [`AdvisoryLoad`],
//!   [`Prefetch`], [`Scheduling`], [`ActiveThreads`].
//!
//! Spinning happens only in [`Processor::spin_until`] (and [`Processor::poll_until`], which pauses
//! in between) and blocking only in [`Park::park`]; waiting can therefore be a parameter, a
//! simulator can put a spinner to sleep until its line changes, and a checker can block it.

mod adjacent;
mod capabilities;
mod event;
mod heavy_fence;
mod link;
mod native;
mod native_bytes;
mod park;
mod plain;
mod processor;
mod random;
mod slice_extension;
mod streaming;
mod switch;
mod word_copies;

#[cfg(feature = "loom")]
mod checked;
#[cfg(feature = "weaken")]
pub mod weaken;

pub use capabilities::{
    ActiveThreads, AdvisoryLoad, Cas2, Dcas, FetchOp, KernelMutex, LlSc, LockOutcome, Park, Prefetch,
    RollBack, Scheduling,
};
#[cfg(feature = "loom")]
pub use checked::{LoomArena, LoomBytes, LoomCell, LoomMutex, LoomProcessor, LoomWord};
pub use event::Event;
pub use link::Link;
pub use native::{Heap, Native, NativeKernelMutex};
pub use native_bytes::NativeBytes;
pub use park::UNHEARD_NS;
#[doc(hidden)]
pub use plain::describe_type;
pub use plain::{Concurrent, Object, Plain, TypeText, zeroed};
pub use processor::{Arena, FenceReach, Place, Processor};
pub use random::Random;
pub use streaming::{copy_by_lines, copy_past_caches};

pub use core::sync::atomic::Ordering;

/// The unit of coherence that layouts assume, in bytes.
pub const LINE: usize = 64;

/// A value on a line of its own: nothing else shares its [`LINE`] bytes.
///
/// Natively the alignment does it. A machine whose words are handles takes the placement from the
/// [`Place`] with which the words were made instead; the wrapper then costs nothing but padding.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct OwnLine<T>(pub T);

impl<T> core::ops::Deref for OwnLine<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// The README's example compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
