//! Which structures, and what they are made of, may lie in a segment: those over [`InPlace`] storage.
#![allow(unsafe_code)]

use towpath_machine::{Native, Plain};

use super::{
    ArrayFifo, ArrayStack, DependencyMap, Fifo, HarrisMichaelList, HashMap, List, PageMap, Pool,
    PriorityQueue, Stack, ValoisList,
};
use crate::dcas::DoubleCas;
use crate::{InPlace, Node};

// SAFETY, for each of them: `repr(C)`, made of atomic words, arrays of them and a DCAS that is `Plain` itself, so every bit pattern is valid and accesses are atomic; all zero is empty; no `Drop`. What they
// read from the segment is checked before it is used as an index.
// SAFETY: see above.
unsafe impl<T: Node<Native> + Plain, const N: usize, const E: usize> Plain
    for Pool<Native, T, InPlace<N, E>>
{
}
// SAFETY: see above.
unsafe impl<const N: usize, const E: usize> Plain for HarrisMichaelList<Native, InPlace<N, E>> {}
// SAFETY: see above.
unsafe impl<const N: usize, const E: usize> Plain for ValoisList<Native, InPlace<N, E>> {}

macro_rules! plain {
    ($($structure:ident)*) => {$(
        // SAFETY: see above.
        unsafe impl<D: DoubleCas<Native> + Plain, const N: usize, const E: usize> Plain
            for $structure<Native, D, InPlace<N, E>>
        {
        }
    )*};
}

plain!(Stack Fifo ArrayStack ArrayFifo List HashMap PriorityQueue DependencyMap);

// SAFETY: see above.
unsafe impl<D, const N: usize, const E: usize, const A: usize, const B: usize, const C: usize> Plain
    for PageMap<Native, D, InPlace<N, E>, A, B, C>
where
    D: DoubleCas<Native> + Plain,
{
}
