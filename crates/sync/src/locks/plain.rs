//! Which locks may lie in a segment.
#![allow(unsafe_code)]

use towpath_machine::{Native, Plain};

use crate::{LoadLinked, Primitive, Universal};

use super::{
    Anderson, Clh, HybridQueue, Mcs, Posix, Preemption, Reactive, Robust, SchedulerConscious, TestAndSet,
    TestAndTestAndSet, Ticket, TicketTwoLines,
};

// SAFETY, for each of them: `repr(C)`, made of atomic words (or of libc's mutex, which is `Plain` itself), so every bit pattern is valid and
// accesses are atomic; all zero is unlocked; no `Drop`. What they read from the segment is checked before it is used as an index.
// SAFETY: see above.
unsafe impl Plain for TestAndSet<Native> {}
// SAFETY: see above.
unsafe impl Plain for TestAndSet<Native, LoadLinked> {}
// SAFETY: see above.
unsafe impl Plain for TestAndTestAndSet<Native> {}
// SAFETY: see above.
unsafe impl<M: Primitive<Native>> Plain for Ticket<Native, M> {}
// SAFETY: see above.
unsafe impl Plain for TicketTwoLines<Native> {}
// SAFETY: see above.
unsafe impl<const N: usize, M: Primitive<Native>> Plain for Anderson<Native, N, M> {}
// SAFETY: see above.
unsafe impl<const N: usize, M: Universal<Native>> Plain for Mcs<Native, N, M> {}
// SAFETY: see above.
unsafe impl Plain for Posix<Native> {}
// SAFETY: see above.
unsafe impl<const N: usize> Plain for Robust<Native, N> {}
// SAFETY: see above.
unsafe impl<const N: usize, M: Universal<Native>> Plain for Clh<Native, N, M> {}
// SAFETY: see above.
unsafe impl<const N: usize> Plain for HybridQueue<Native, N> {}
// SAFETY: see above.
unsafe impl<const N: usize, const TO_QUEUE: u32, const TO_FLAG: u64> Plain
    for Reactive<Native, N, TO_QUEUE, TO_FLAG>
{
}
// SAFETY: see above.
unsafe impl<const N: usize, K: Preemption<Native>> Plain for SchedulerConscious<Native, N, K> {}
