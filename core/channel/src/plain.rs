//! The channel's structures in shared memory.
#![allow(unsafe_code)]

use towpath_machine::{Concurrent, Native};

use crate::answer_line::AnswerLine;
use crate::claim::Locks;
use crate::doorbell::Doorbell;
use crate::packet::{BlockHead, Extra, Slot};
use crate::queue::QueueControl;
use crate::ring::{Ring, RingControl};
use crate::stream::Stream;

// SAFETY: for all four: `repr(C)`, made of atomic words only, so every bit pattern is valid and
// accesses are atomic; all zero is the initial state of each; no `Drop`.
unsafe impl Concurrent for Slot<Native> {}
// SAFETY: as above.
unsafe impl Concurrent for Extra<Native> {}
// SAFETY: as above.
unsafe impl Concurrent for BlockHead<Native> {}
// SAFETY: as above.
unsafe impl Concurrent for QueueControl<Native> {}
// SAFETY: `repr(C)`, made of locks that are `Concurrent` themselves.
unsafe impl Concurrent for Locks<Native> {}
// SAFETY: as for the first four.
unsafe impl Concurrent for RingControl<Native> {}
// SAFETY: as above.
unsafe impl<const SLOTS: usize> Concurrent for Ring<Native, SLOTS> {}
// SAFETY: as for the first four.
unsafe impl Concurrent for Doorbell<Native> {}
// SAFETY: as for the first four.
unsafe impl Concurrent for AnswerLine<Native> {}
// SAFETY: as for the first four.
unsafe impl<const N: usize> Concurrent for Stream<Native, N> {}
