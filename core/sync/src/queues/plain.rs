//! Queues that may lie in a segment.
#![allow(unsafe_code)]

use core::fmt;
use core::marker::PhantomData;

use towpath_derive::OpaqueDebug;
use towpath_machine::{Native, Object, Plain, TypeText};

use super::{BroadcastHead, BroadcastMode, Mpmc, Mpsc, PerSender, QueueKind, Spsc};

/// A queue in a segment: its head, behind which its lines lie.
#[derive(OpaqueDebug)]
#[repr(C)]
pub struct QueueObject<T, K: QueueKind> {
    /// The head.
    pub head: K::Head,
    values: PhantomData<fn(T) -> T>,
}

/// Text of the type of a queue of that kind, of values with that text.
///
/// ```
/// use towpath_sync::queues::{Mpmc, queue_text};
///
/// assert_eq!(queue_text::<Mpmc>("u64"), "mpmc v2<u64>"); // lies beside the queue in its world
/// ```
pub fn queue_text<K: QueueKind>(values: impl fmt::Display) -> String {
    format!("{} v2<{values}>", K::NAME)
}

// It is not `Concurrent`: a shared reference alone, which does not know the caller's identity, must
// not give access to one in a world.
macro_rules! queue_objects {
    ($($kind:ty)*) => {$(
        // SAFETY: `repr(C)`, made of atomic words, so every bit pattern is valid and accesses are
        // atomic; all zero is one that was never used; no `Drop`; its text names the kind and the
        // values.
        unsafe impl<T: Plain> Object for QueueObject<T, $kind> {
            const NAMES_USERS: bool = true;

            fn describe(f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&queue_text::<$kind>(TypeText::<T>::default()))
            }
        }
    )*};
}

queue_objects!(Mpmc Mpsc PerSender Spsc);

/// A broadcast ring in a segment: its head, behind which its lines lie.
#[derive(OpaqueDebug)]
#[repr(C)]
pub struct BroadcastObject<M> {
    /// The head.
    pub head: BroadcastHead<Native>,
    mode: PhantomData<fn() -> M>,
}

// SAFETY: `repr(C)`, made of atomic words, so every bit pattern is valid and accesses are atomic,
// or made by the writer and the readers of room that the words give them; all zero is one that was
// never used; no `Drop`; its text names the mode, which is all that the meaning depends on.
unsafe impl<M: BroadcastMode> Object for BroadcastObject<M> {
    const NAMES_USERS: bool = true;

    fn describe(f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} v1", M::NAME)
    }
}
