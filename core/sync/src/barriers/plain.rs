//! Barriers that may lie in a segment.
#![allow(unsafe_code)]

use towpath_machine::{Concurrent, Native, plain_objects};

use super::{Centralized, Dissemination, McsTree};
use crate::Primitive;

// SAFETY, for each of them: `repr(C)`, made of atomic words, so every bit pattern is valid and
// accesses are atomic; all zero is a barrier at which no participant has arrived yet; no `Drop`.
// A word that they read from the segment is checked before it is used as an index.
//
// SAFETY: `repr(C)`, made of atomic words; all zero is unused; no `Drop`.
unsafe impl<const N: usize, M: Primitive<Native>> Concurrent for Centralized<Native, N, M> {}
// SAFETY: `repr(C)`, made of atomic words; all zero is unused; no `Drop`.
unsafe impl<const N: usize> Concurrent for Dissemination<Native, N> {}
// SAFETY: `repr(C)`, made of atomic words; all zero is unused; no `Drop`.
unsafe impl<const N: usize> Concurrent for McsTree<Native, N> {}

plain_objects! {
    [const N: usize, M: Primitive<Native>] Centralized<Native, N, M> => "barrier/centralized v1", N, M::NAME;
    [const N: usize] Dissemination<Native, N> => "barrier/dissemination v1", N;
    [const N: usize] McsTree<Native, N> => "barrier/mcs-tree v1", N;
}
