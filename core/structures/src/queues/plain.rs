//! Queues that may lie in a segment, and their parts: those over [`InPlace`] storage.
#![allow(unsafe_code)]

use towpath_machine::{Concurrent, Native, Object, TypeText, plain_objects};

use super::{
    FetchOpArray, FetchOpTickets, MichaelScott, MichaelScottVariant, PrakashLeeJohnson, TwoEnded, TwoLock,
    Valois,
};
use crate::{Counter, InPlace, Node, Pool};
use towpath_sync::{Lock, Primitive, Universal};

// SAFETY, for each of them: `repr(C)`, made of atomic words, arrays of them and locks that are
// `Concurrent` themselves, so every bit pattern is valid and accesses are atomic; all zero is
// empty; no `Drop`. A word read from the segment is checked before it is used as an index.
//
// SAFETY: `repr(C)`, made of plain parts; all zero is empty; no `Drop`.
unsafe impl<M: Primitive<Native>> Concurrent for Counter<Native, M> {}
// SAFETY: `repr(C)`, made of plain parts; all zero is empty; no `Drop`.
unsafe impl<T, M, const NODES: usize, const PARTICIPANTS: usize, const BATCH: u64> Concurrent
    for Pool<Native, T, M, InPlace<NODES, PARTICIPANTS>, BATCH>
where
    T: Node<Native> + Concurrent,
    M: Universal<Native>,
{
}
// SAFETY: `repr(C)`, made of plain parts; all zero is empty; no `Drop`.
unsafe impl<M: Universal<Native>, V: MichaelScottVariant, const NODES: usize, const PARTICIPANTS: usize>
    Concurrent for MichaelScott<Native, M, InPlace<NODES, PARTICIPANTS>, V>
{
}
// SAFETY: `repr(C)`, made of plain parts; all zero is empty; no `Drop`.
unsafe impl<M: Universal<Native>, const NODES: usize, const PARTICIPANTS: usize> Concurrent
    for PrakashLeeJohnson<Native, M, InPlace<NODES, PARTICIPANTS>>
{
}
// SAFETY: `repr(C)`, made of plain parts; all zero is empty; no `Drop`.
unsafe impl<M: Universal<Native>, const NODES: usize, const PARTICIPANTS: usize> Concurrent
    for Valois<Native, M, InPlace<NODES, PARTICIPANTS>>
{
}
// SAFETY: `repr(C)`, made of plain parts; all zero is empty; no `Drop`.
unsafe impl<L, M, const NODES: usize, const PARTICIPANTS: usize> Concurrent
    for TwoEnded<Native, L, M, InPlace<NODES, PARTICIPANTS>>
where
    L: Lock<Native> + Concurrent,
    M: Universal<Native>,
{
}
// SAFETY: `repr(C)`, made of plain parts; all zero is empty; no `Drop`.
unsafe impl<L, M, const NODES: usize, const PARTICIPANTS: usize> Concurrent
    for TwoLock<Native, L, M, InPlace<NODES, PARTICIPANTS>>
where
    L: Lock<Native> + Concurrent,
    M: Universal<Native>,
{
}
// SAFETY: `repr(C)`, made of plain parts; all zero is empty; no `Drop`.
unsafe impl<const NODES: usize, const PARTICIPANTS: usize> Concurrent
    for FetchOpArray<Native, InPlace<NODES, PARTICIPANTS>>
{
}
// SAFETY: `repr(C)`, made of plain parts; all zero is empty; no `Drop`.
unsafe impl<const NODES: usize, const PARTICIPANTS: usize> Concurrent
    for FetchOpTickets<Native, InPlace<NODES, PARTICIPANTS>>
{
}

plain_objects! {
    [M: Primitive<Native>] Counter<Native, M> => "counter v1", M::NAME;
    [M: Universal<Native>, V: MichaelScottVariant, const N: usize, const E: usize] MichaelScott<Native, M, InPlace<N, E>, V>
        => "queue/michael-scott v1", M::NAME, V::NAME, N, E;
    [M: Universal<Native>, const N: usize, const E: usize] PrakashLeeJohnson<Native, M, InPlace<N, E>>
        => "queue/prakash-lee-johnson v1", M::NAME, N, E;
    [M: Universal<Native>, const N: usize, const E: usize] Valois<Native, M, InPlace<N, E>>
        => "queue/valois v1", M::NAME, N, E;
    [L, M, const N: usize, const E: usize] TwoEnded<Native, L, M, InPlace<N, E>>
        where [L: Lock<Native> + Concurrent + Object, M: Universal<Native>]
        => "queue/two-ended v1", TypeText::<L>::default(), M::NAME, N, E;
    [L, M, const N: usize, const E: usize] TwoLock<Native, L, M, InPlace<N, E>>
        where [L: Lock<Native> + Concurrent + Object, M: Universal<Native>]
        => "queue/two-lock v1", TypeText::<L>::default(), M::NAME, N, E;
    [const N: usize, const E: usize] FetchOpArray<Native, InPlace<N, E>> => "queue/fetch-op-array v1", N, E;
    [const N: usize, const E: usize] FetchOpTickets<Native, InPlace<N, E>> => "queue/fetch-op-tickets v1", N, E;
}
