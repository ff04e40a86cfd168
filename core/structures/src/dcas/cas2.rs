//! DCAS on two words that lie beside each other, by one instruction of today's
//! processors.
//!
//! **Source.** The CAS2 that Greenwald & Cheriton 1996, §6 ask for takes any two words; CMPXCHG16B
//! (x86-64) and CASP (AArch64) take two that are one aligned pair. That is enough for a structure
//! whose version stands beside the only link that changes: [`crate::nonblocking::Stack`]. Others
//! answer [`DcasError::Unsuited`](super::DcasError::Unsuited).
//!
//! **Progress.** Wait-free. Fields, crashes, signals, memory: as [`super::ByInstruction`].
//!
//! **Don't use it** for words that do not lie beside each other, or where processors may lack the
//! instruction (the first x86-64, AArch64 before version 8.1): both are errors, never another
//! algorithm.

use towpath_machine::Cas2;

use super::hardware::{ByInstruction, Instruction};
use crate::Boxed;

/// An instruction for two words beside each other.
#[derive(Clone, Copy, Debug)]
pub struct Neighbours;

/// The processor's own compare-and-swap of two adjacent words.
pub type Adjacent<P, S = Boxed> = ByInstruction<P, S, Neighbours>;

impl<P: Cas2> Instruction<P> for Neighbours {
    const NAME: &'static str = "cas2";
    const ADJACENT: bool = true;

    #[inline(always)]
    fn execute(cpu: &P, words: [&P::Word; 2], old: [u64; 2], new: [u64; 2]) -> Option<bool> {
        cpu.cas2(words, old, new)
    }
}
