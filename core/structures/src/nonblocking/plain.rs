//! Structures that may lie in a segment, and their parts: those over [`InPlace`] storage.
#![allow(unsafe_code)]

use towpath_machine::{Concurrent, Native, Object, TypeText, plain_objects};

use super::{
    ArrayFifo, ArrayStack, DependencyMap, Fifo, HarrisMichaelList, HashMap, List, PageMap, Pool,
    PriorityQueue, Stack, ValoisList,
};
use crate::dcas::DoubleCas;
use crate::{InPlace, Node};

// SAFETY, for each of them: `repr(C)`, made of atomic words, arrays of them and a DCAS that is
// `Concurrent` itself, so every bit pattern is valid and accesses are atomic; all zero is empty; no
// `Drop`. A word read from the segment is checked before it is used as an index.
//
// SAFETY: `repr(C)`, made of plain parts; all zero is empty; no `Drop`.
unsafe impl<T: Node<Native> + Concurrent, const N: usize, const E: usize> Concurrent
    for Pool<Native, T, InPlace<N, E>>
{
}
// SAFETY: `repr(C)`, made of plain parts; all zero is empty; no `Drop`.
unsafe impl<const N: usize, const E: usize> Concurrent for HarrisMichaelList<Native, InPlace<N, E>> {}
// SAFETY: `repr(C)`, made of plain parts; all zero is empty; no `Drop`.
unsafe impl<const N: usize, const E: usize> Concurrent for ValoisList<Native, InPlace<N, E>> {}

macro_rules! plain {
    ($($structure:ident)*) => {$(
        // SAFETY: `repr(C)`, made of plain parts; all zero is empty; no `Drop`.
        unsafe impl<D: DoubleCas<Native> + Concurrent, const N: usize, const E: usize> Concurrent
            for $structure<Native, D, InPlace<N, E>>
        {
        }
    )*};
}

plain!(Stack Fifo ArrayStack ArrayFifo List HashMap PriorityQueue DependencyMap);

// SAFETY: `repr(C)`, made of plain parts; all zero is empty; no `Drop`.
unsafe impl<D, const N: usize, const E: usize, const A: usize, const B: usize, const C: usize> Concurrent
    for PageMap<Native, D, InPlace<N, E>, A, B, C>
where
    D: DoubleCas<Native> + Concurrent,
{
}

plain_objects! {
    [const N: usize, const E: usize] HarrisMichaelList<Native, InPlace<N, E>> => "harris-michael-list v1", N, E;
    [const N: usize, const E: usize] ValoisList<Native, InPlace<N, E>> => "valois-list v1", N, E;
    [D, const N: usize, const E: usize, const A: usize, const B: usize, const C: usize]
        PageMap<Native, D, InPlace<N, E>, A, B, C>
        where [D: DoubleCas<Native> + Concurrent + Object]
        => "page-map v1", N, E, A, B, C, TypeText::<D>::default();
}

macro_rules! objects {
    ($($structure:ident $kind:literal)*) => {$(
        plain_objects! {
            [D, const N: usize, const E: usize] $structure<Native, D, InPlace<N, E>>
                where [D: DoubleCas<Native> + Concurrent + Object]
                => $kind, N, E, TypeText::<D>::default();
        }
    )*};
}

objects! {
    Stack "stack v1"
    Fifo "fifo v1"
    ArrayStack "array-stack v1"
    ArrayFifo "array-fifo v1"
    List "list v1"
    HashMap "hash-map v1"
    PriorityQueue "priority-queue v1"
    DependencyMap "dependency-map v1"
}
