//! The channel's structures in shared memory.
#![allow(unsafe_code)]

use towpath_machine::{Native, Plain};

use crate::answer_line::AnswerLine;
use crate::claim::Locks;
use crate::doorbell::Doorbell;
use crate::packet::{BlockHead, Extra, Slot};
use crate::queue::QueueControl;
use crate::ring::{Ring, RingControl};
use crate::stream::Stream;

// SAFETY: for all four: `repr(C)`, made of atomic words only, so every bit pattern is valid and
// accesses are atomic; all zero is the initial state of each; no `Drop`.
unsafe impl Plain for Slot<Native> {}
// SAFETY: as above.
unsafe impl Plain for Extra<Native> {}
// SAFETY: as above.
unsafe impl Plain for BlockHead<Native> {}
// SAFETY: as above.
unsafe impl Plain for QueueControl<Native> {}
// SAFETY: `repr(C)`, made of locks that are `Plain` themselves.
unsafe impl Plain for Locks<Native> {}
// SAFETY: as for the first four.
unsafe impl Plain for RingControl<Native> {}
// SAFETY: as above.
unsafe impl<const SLOTS: usize> Plain for Ring<Native, SLOTS> {}
// SAFETY: as for the first four.
unsafe impl Plain for Doorbell<Native> {}
// SAFETY: as for the first four.
unsafe impl Plain for AnswerLine<Native> {}
// SAFETY: as for the first four.
unsafe impl<const N: usize> Plain for Stream<Native, N> {}
