//! Which queues, and what they are made of, may lie in a segment: those over [`InPlace`] storage.
#![allow(unsafe_code)]

use towpath_machine::{Native, Plain};

use super::{
    FetchOpArray, FetchOpTickets, MichaelScott, PrakashLeeJohnson, TwoEnded, TwoLock, Valois, Variant,
};
use crate::{Counter, InPlace, Lock, Node, Pool, Primitive, Universal};

// SAFETY, for each of them: `repr(C)`, made of atomic words, arrays of them and locks that are `Plain` themselves, so every bit pattern is valid and accesses are atomic; all zero is
// empty; no `Drop`. What they read from the segment is checked before it is used as an index.
// SAFETY: see above.
unsafe impl<M: Primitive<Native>> Plain for Counter<Native, M> {}
// SAFETY: see above.
unsafe impl<T, M, const NODES: usize, const PARTICIPANTS: usize, const BATCH: u64> Plain
    for Pool<Native, T, M, InPlace<NODES, PARTICIPANTS>, BATCH>
where
    T: Node<Native> + Plain,
    M: Universal<Native>,
{
}
// SAFETY: see above.
unsafe impl<M: Universal<Native>, V: Variant, const NODES: usize, const PARTICIPANTS: usize> Plain
    for MichaelScott<Native, M, InPlace<NODES, PARTICIPANTS>, V>
{
}
// SAFETY: see above.
unsafe impl<M: Universal<Native>, const NODES: usize, const PARTICIPANTS: usize> Plain
    for PrakashLeeJohnson<Native, M, InPlace<NODES, PARTICIPANTS>>
{
}
// SAFETY: see above.
unsafe impl<M: Universal<Native>, const NODES: usize, const PARTICIPANTS: usize> Plain
    for Valois<Native, M, InPlace<NODES, PARTICIPANTS>>
{
}
// SAFETY: see above.
unsafe impl<L, M, const NODES: usize, const PARTICIPANTS: usize> Plain
    for TwoEnded<Native, L, M, InPlace<NODES, PARTICIPANTS>>
where
    L: Lock<Native> + Plain,
    M: Universal<Native>,
{
}
// SAFETY: see above.
unsafe impl<L, M, const NODES: usize, const PARTICIPANTS: usize> Plain
    for TwoLock<Native, L, M, InPlace<NODES, PARTICIPANTS>>
where
    L: Lock<Native> + Plain,
    M: Universal<Native>,
{
}
// SAFETY: see above.
unsafe impl<const NODES: usize, const PARTICIPANTS: usize> Plain
    for FetchOpArray<Native, InPlace<NODES, PARTICIPANTS>>
{
}
// SAFETY: see above.
unsafe impl<const NODES: usize, const PARTICIPANTS: usize> Plain
    for FetchOpTickets<Native, InPlace<NODES, PARTICIPANTS>>
{
}
