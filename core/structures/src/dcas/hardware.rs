//! DCAS as the machine has it: by one instruction.
//!
//! **Source.** Greenwald & Cheriton 1996, §6: CAS2 of the Motorola 68040, or LL/LLP/SC/SCP (Figure
//! 3), on any two words ([`Hardware`]). Natively there is no such machine; simulated there is.
//! Today's processors have one for two words beside each other ([`super::Adjacent`]).
//!
//! **Progress.** As the machine's; otherwise wait-free. **Fields.** None of its own. **Crashes.**
//! One step: it has happened or not. **Signals.** May be used in handlers. **Memory.** None. Values
//! have 64 bits.
//!
//! **Don't use it** where the machine lacks the instruction: that is an error, never another
//! algorithm.

use core::marker::PhantomData;

use towpath_machine::{Arena, Dcas, Ordering, Processor};

use super::{Actor, Change, DcasError, DoubleCas, Words, in_order};
use crate::{Boxed, Storage};
use towpath_sync::Waiting;

/// An instruction that changes two words.
pub trait Instruction<P: Processor>: Send + Sync + 'static {
    /// The name by which users choose the DCAS.
    const NAME: &'static str;
    /// True if it takes only two words that lie beside each other.
    const ADJACENT: bool;
    /// Executes it; it acquires and releases. `None` if it is not to be had here, or not
    /// for these words.
    ///
    /// ```
    /// use towpath_machine::{Cas2, Native};
    /// use towpath_structures::dcas::{Instruction, Neighbours};
    ///
    /// let (cpu, words) = (Native::current(), [5, 7].map(Native::word));
    /// let swapped = [&words[1], &words[0]];
    /// assert_eq!(Neighbours::execute(&cpu, swapped, [7, 5], [8, 6]), None); // no such pair
    /// ```
    fn execute(cpu: &P, words: [&P::Word; 2], old: [u64; 2], new: [u64; 2]) -> Option<bool>;
}

/// DCAS by an instruction.
#[repr(C)]
pub struct ByInstruction<P: Processor, S: Storage, I> {
    participants: S::Each<()>,
    machine: PhantomData<fn() -> (P, I)>,
}

/// An instruction for any two words.
#[derive(Clone, Copy, Debug)]
pub struct AnyTwo;

/// The machine's own DCAS.
pub type Hardware<P, S = Boxed> = ByInstruction<P, S, AnyTwo>;

impl<P: Dcas> Instruction<P> for AnyTwo {
    const NAME: &'static str = "hardware";
    const ADJACENT: bool = false;

    #[inline(always)]
    fn execute(cpu: &P, words: [&P::Word; 2], old: [u64; 2], new: [u64; 2]) -> Option<bool> {
        Some(cpu.dcas(words, old, new))
    }
}

impl<P: Processor, S: Storage, I: Instruction<P>> DoubleCas<P> for ByInstruction<P, S, I> {
    const NAME: &'static str = I::NAME;
    const BLOCKING: bool = false;
    const MAX: u64 = u64::MAX;
    const ADJACENT: bool = I::ADJACENT;

    fn new(_arena: &impl Arena<P>, participants: usize) -> Self {
        ByInstruction { participants: S::each(participants, |_| ()), machine: PhantomData }
    }

    fn participants(&self) -> usize {
        self.participants.as_ref().len()
    }

    #[inline(always)]
    fn read<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        word: u32,
    ) -> Result<u64, DcasError> {
        // (2) Acquire: pairs with the Release of the instruction and (1).
        Ok(actor.cpu.load(words.find(word)?, Ordering::Acquire))
    }

    #[inline(always)]
    fn write<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        word: u32,
        value: u64,
    ) -> Result<(), DcasError> {
        // (1) Release: a late reader of this also sees what made the word the caller's; it
        // pairs with the Acquire (2) in `read`.
        actor.cpu.store(words.find(word)?, value, Ordering::Release);
        Ok(())
    }

    #[inline(always)]
    fn dcas<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        changes: [Change; 2],
    ) -> Result<bool, DcasError> {
        let [a, b] = in_order(changes, Self::MAX)?;
        let pair = [words.find(a.word)?, words.find(b.word)?];
        I::execute(actor.cpu, pair, [a.old, b.old], [a.new, b.new]).ok_or(DcasError::Unsuited)
    }

    fn recover<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        _actor: &Actor<'_, P, W>,
        _words: &T,
        _dead: usize,
    ) -> Result<(), DcasError> {
        Ok(())
    }
}
