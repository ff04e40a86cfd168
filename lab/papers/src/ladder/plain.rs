//! The structures that may lie in shared memory natively.
//!
//! # Safety
//!
//! `Plain` is implemented for `repr(C)` structures of atomic words.
#![allow(unsafe_code)]

use towpath_machine::{Native, Plain};

use super::locked::{Packet, QueueEnds};
use super::pool::PoolTable;
use super::slots::LadderSlot;

// SAFETY: `repr(C)`, of atomic words only: every bit pattern is valid, all zero is the initial
// state, and accesses are atomic; no `Drop`.
unsafe impl Plain for LadderSlot<Native> {}
// SAFETY: `repr(C)`, of atomic words only: every bit pattern is valid, all zero is the initial
// state, and accesses are atomic; no `Drop`.
unsafe impl Plain for QueueEnds<Native> {}
// SAFETY: `repr(C)`, of atomic words only: every bit pattern is valid, all zero is the initial
// state, and accesses are atomic; no `Drop`.
unsafe impl Plain for Packet<Native> {}
// SAFETY: `repr(C)`, of atomic words only: every bit pattern is valid, all zero is the initial
// state, and accesses are atomic; no `Drop`.
unsafe impl Plain for PoolTable<Native> {}
