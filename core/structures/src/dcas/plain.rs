//! DCAS implementations that may lie in a segment: those over [`InPlace`] storage.
#![allow(unsafe_code)]

use towpath_machine::{Concurrent, Native, plain_objects};

use super::{Adjacent, Bershad, Guerraoui, GuerraouiVariant, Harris, Locked};
use crate::InPlace;

// SAFETY, for each of them: `repr(C)`, made of atomic words and arrays of them, so every bit
// pattern is valid and accesses are atomic; all zero is the initial state; no `Drop`. A word that
// they read from the segment is checked before it is used as an index.
//
// SAFETY: `repr(C)`, made of atomic words; all zero is the initial state; no `Drop`.
unsafe impl<V: GuerraouiVariant, const NODES: usize, const PARTICIPANTS: usize> Concurrent
    for Guerraoui<Native, InPlace<NODES, PARTICIPANTS>, V>
{
}
// SAFETY: `repr(C)`, made of atomic words; all zero is the initial state; no `Drop`.
unsafe impl<const NODES: usize, const PARTICIPANTS: usize> Concurrent
    for Harris<Native, InPlace<NODES, PARTICIPANTS>>
{
}
// SAFETY: `repr(C)`, made of atomic words; all zero is the initial state; no `Drop`.
unsafe impl<const NODES: usize, const PARTICIPANTS: usize> Concurrent
    for Adjacent<Native, InPlace<NODES, PARTICIPANTS>>
{
}
// SAFETY: `repr(C)`, made of atomic words; all zero is the initial state; no `Drop`.
unsafe impl<const NODES: usize, const PARTICIPANTS: usize> Concurrent
    for Bershad<Native, InPlace<NODES, PARTICIPANTS>>
{
}
// SAFETY: `repr(C)`, made of atomic words; all zero is the initial state; no `Drop`.
unsafe impl<const NODES: usize, const PARTICIPANTS: usize> Concurrent
    for Locked<Native, InPlace<NODES, PARTICIPANTS>>
{
}

plain_objects! {
    [V: GuerraouiVariant, const N: usize, const E: usize] Guerraoui<Native, InPlace<N, E>, V>
        => "dcas/guerraoui v1", V::NAME, N, E;
    [const N: usize, const E: usize] Harris<Native, InPlace<N, E>> => "dcas/harris v1", N, E;
    [const N: usize, const E: usize] Adjacent<Native, InPlace<N, E>> => "dcas/adjacent v1", N, E;
    [const N: usize, const E: usize] Bershad<Native, InPlace<N, E>> => "dcas/bershad v1", N, E;
    [const N: usize, const E: usize] Locked<Native, InPlace<N, E>> => "dcas/locked v1", N, E;
}
