//! The structures that may lie in shared memory natively.
//!
//! # Safety
//!
//! `Concurrent` is implemented for `repr(C)` structures of atomic words.
#![allow(unsafe_code)]

use towpath_machine::{Concurrent, Native};

use super::locked::{Packet, QueueEnds};
use super::pool::PoolTable;
use super::slots::LadderSlot;

// SAFETY: `repr(C)`, of atomic words only: every bit pattern is valid, all zero is the initial
// state, and accesses are atomic; no `Drop`.
unsafe impl Concurrent for LadderSlot<Native> {}
// SAFETY: `repr(C)`, of atomic words only: every bit pattern is valid, all zero is the initial
// state, and accesses are atomic; no `Drop`.
unsafe impl Concurrent for QueueEnds<Native> {}
// SAFETY: `repr(C)`, of atomic words only: every bit pattern is valid, all zero is the initial
// state, and accesses are atomic; no `Drop`.
unsafe impl Concurrent for Packet<Native> {}
// SAFETY: `repr(C)`, of atomic words only: every bit pattern is valid, all zero is the initial
// state, and accesses are atomic; no `Drop`.
unsafe impl Concurrent for PoolTable<Native> {}
