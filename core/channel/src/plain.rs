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

/// Implements [`Concurrent`] for structures that are `repr(C)` and made of words.
macro_rules! made_of_words {
    ($([$($generics:tt)*] $structure:ty),* $(,)?) => {
        $(
            // SAFETY: `repr(C)`, made of atomic words only, so every bit pattern is valid and
            // accesses are atomic; all zero is the initial state; no `Drop`.
            unsafe impl<$($generics)*> Concurrent for $structure {}
        )*
    };
}

made_of_words! {
    [] Slot<Native>,
    [] Extra<Native>,
    [] BlockHead<Native>,
    [] QueueControl<Native>,
    [] RingControl<Native>,
    [const SLOTS: usize] Ring<Native, SLOTS>,
    [] Doorbell<Native>,
    [] AnswerLine<Native>,
    [const N: usize] Stream<Native, N>,
}

// SAFETY: `repr(C)`, made of locks that are `Concurrent` themselves.
unsafe impl Concurrent for Locks<Native> {}
