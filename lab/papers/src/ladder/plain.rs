//! The structures that may lie in shared memory natively.
//!
//! # Safety
//!
//! `Plain` is implemented for `repr(C)` structures of atomic words.
#![allow(unsafe_code)]

use towpath_machine::{Native, Plain};

use super::locked::{Ends, Packet};
use super::pool::Table;
use super::slots::Slot;

// SAFETY: for all four: `repr(C)`, made of atomic words only, so every bit pattern is valid and
// accesses are atomic; all zero is the initial state of each; no `Drop`.
unsafe impl Plain for Slot<Native> {}
// SAFETY: as above.
unsafe impl Plain for Ends<Native> {}
// SAFETY: as above.
unsafe impl Plain for Packet<Native> {}
// SAFETY: as above.
unsafe impl Plain for Table<Native> {}
