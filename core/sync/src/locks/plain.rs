//! Locks that may lie in a segment.
#![allow(unsafe_code)]

use towpath_machine::{Concurrent, Native, plain_objects};

use crate::{AtMemory, Atomics, Exclusive, LoadLinked, Primitive, Universal};

use super::{
    Anderson, Clh, HybridQueue, Mcs, Posix, Preemption, Published, Reactive, Robust, SchedulerConscious,
    TestAndSet, TestAndTestAndSet, Ticket, TicketTwoLines,
};

// SAFETY, for each of them: `repr(C)`, made of atomic words (or of libc's mutex, which is
// `Concurrent` itself), so every bit pattern is valid and accesses are atomic; all zero is
// unlocked; no `Drop`. A word read from the segment is checked before it is used as an index.
//
// SAFETY: `repr(C)`, made of atomic words or of libc's mutex; all zero is unlocked; no `Drop`.
unsafe impl Concurrent for TestAndSet<Native> {}
// SAFETY: `repr(C)`, made of atomic words or of libc's mutex; all zero is unlocked; no `Drop`.
unsafe impl Concurrent for TestAndSet<Native, LoadLinked> {}
// SAFETY: `repr(C)`, made of atomic words or of libc's mutex; all zero is unlocked; no `Drop`.
unsafe impl Concurrent for TestAndTestAndSet<Native> {}
// SAFETY: `repr(C)`, made of atomic words or of libc's mutex; all zero is unlocked; no `Drop`.
unsafe impl<M: Primitive<Native>> Concurrent for Ticket<Native, M> {}
// SAFETY: `repr(C)`, made of atomic words or of libc's mutex; all zero is unlocked; no `Drop`.
unsafe impl Concurrent for TicketTwoLines<Native> {}
// SAFETY: `repr(C)`, made of atomic words or of libc's mutex; all zero is unlocked; no `Drop`.
unsafe impl<const N: usize, M: Primitive<Native>> Concurrent for Anderson<Native, N, M> {}
// SAFETY: `repr(C)`, made of atomic words or of libc's mutex; all zero is unlocked; no `Drop`.
unsafe impl<const N: usize, M: Universal<Native>> Concurrent for Mcs<Native, N, M> {}
// SAFETY: `repr(C)`, made of atomic words or of libc's mutex; all zero is unlocked; no `Drop`.
unsafe impl Concurrent for Posix<Native> {}
// SAFETY: `repr(C)`, made of atomic words or of libc's mutex; all zero is unlocked; no `Drop`.
unsafe impl<const N: usize, const LEASE: u64> Concurrent for Robust<Native, N, LEASE> {}
// SAFETY: `repr(C)`, made of atomic words or of libc's mutex; all zero is unlocked; no `Drop`.
unsafe impl<const N: usize, M: Universal<Native>> Concurrent for Clh<Native, N, M> {}
// SAFETY: `repr(C)`, made of atomic words or of libc's mutex; all zero is unlocked; no `Drop`.
unsafe impl<const N: usize> Concurrent for HybridQueue<Native, N> {}
// SAFETY: `repr(C)`, made of atomic words or of libc's mutex; all zero is unlocked; no `Drop`.
unsafe impl<const N: usize, const TO_QUEUE: u32, const TO_FLAG: u64> Concurrent
    for Reactive<Native, N, TO_QUEUE, TO_FLAG>
{
}
// SAFETY: `repr(C)`, made of atomic words or of libc's mutex; all zero is unlocked; no `Drop`.
unsafe impl<const N: usize, K: Preemption<Native>> Concurrent for SchedulerConscious<Native, N, K> {}

// SAFETY, for each of them: at most one processor holds it, provided that the numbers of the
// processors that use it at one time differ and lie below its capacity: tested under every schedule
// (loom, the explorer) for each.
macro_rules! exclusive {
    ($([$($generics:tt)*] $lock:ty;)*) => {$(
        // SAFETY: excludes, with numbers below its capacity: tested under every schedule.
        unsafe impl<$($generics)*> Exclusive for $lock {}
    )*};
}

exclusive! {
    [] TestAndTestAndSet<Native>;
    [] TicketTwoLines<Native>;
    [] Posix<Native>;
    [const N: usize, const LEASE: u64] Robust<Native, N, LEASE>;
    [const N: usize] HybridQueue<Native, N>;
    [const N: usize, const TO_QUEUE: u32, const TO_FLAG: u64] Reactive<Native, N, TO_QUEUE, TO_FLAG>;
    [const N: usize] SchedulerConscious<Native, N, Published>;
}

// Not for every `Primitive`: other crates may implement that.
macro_rules! exclusive_over {
    ($($primitive:ty: $($lock:ident $([$n:ident])?)*;)*) => {
        exclusive! { $($([$(const $n: usize)?] $lock<Native, $($n,)? $primitive>;)*)* }
    };
}

exclusive_over! {
    Atomics: TestAndSet Ticket Anderson[N] Mcs[N] Clh[N];
    LoadLinked: TestAndSet Ticket Anderson[N] Mcs[N] Clh[N];
    AtMemory: TestAndSet Ticket Anderson[N];
}

plain_objects! {
    [] TestAndSet<Native> => "lock/test-and-set v1";
    [] TestAndSet<Native, LoadLinked> => "lock/test-and-set v1", "ll-sc";
    [] TestAndTestAndSet<Native> => "lock/test-and-test-and-set v1";
    [M: Primitive<Native>] Ticket<Native, M> => "lock/ticket v1", M::NAME;
    [] TicketTwoLines<Native> => "lock/ticket-two-lines v1";
    [const N: usize, M: Primitive<Native>] Anderson<Native, N, M> => "lock/anderson v1", N, M::NAME;
    [const N: usize, M: Universal<Native>] Mcs<Native, N, M> => "lock/mcs v1", N, M::NAME;
    [] Posix<Native> => "lock/posix v1";
    [const N: usize, const LEASE: u64] Robust<Native, N, LEASE> => "lock/robust v3", N, LEASE;
    [const N: usize, M: Universal<Native>] Clh<Native, N, M> => "lock/clh v1", N, M::NAME;
    [const N: usize] HybridQueue<Native, N> => "lock/hybrid-queue v1", N;
    [const N: usize, const TO_QUEUE: u32, const TO_FLAG: u64] Reactive<Native, N, TO_QUEUE, TO_FLAG>
        => "lock/reactive v1", N, TO_QUEUE, TO_FLAG;
    [const N: usize, K: Preemption<Native>] SchedulerConscious<Native, N, K>
        => "lock/scheduler-conscious v1", N, K::NAME;
}
