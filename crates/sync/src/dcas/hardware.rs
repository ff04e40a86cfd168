//! DCAS as the machine has it.
//!
//! **Source.** Greenwald & Cheriton 1996, §6: CAS2 of the Motorola 68040, or LL/LLP/SC/SCP (Figure 3). Natively there is no such machine; simulated there is.
//!
//! **Progress.** As the machine's; otherwise wait-free. **Fields.** None of its own. **Crashes.** One step: it has happened or not. **Memory.** None. Values have 64 bits.

use core::marker::PhantomData;

use towpath_machine::{Arena, Dcas, Ordering, Processor};

use super::{Actor, Change, DcasError, DoubleCas, Words, in_order};
use crate::{Boxed, Storage, Waiting};

/// The machine's own DCAS.
#[repr(C)]
pub struct Hardware<P: Processor, S: Storage = Boxed> {
    participants: S::Each<()>,
    machine: PhantomData<fn() -> P>,
}

impl<P: Dcas, S: Storage> DoubleCas<P> for Hardware<P, S> {
    const NAME: &'static str = "hardware";
    const BLOCKING: bool = false;
    const MAX: u64 = u64::MAX;

    fn new(_arena: &impl Arena<P>, participants: usize) -> Self {
        Hardware { participants: S::each(participants, |_| ()), machine: PhantomData }
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
        // Acquire: pairs with the Release of the machine's DCAS.
        Ok(actor.cpu.load(words.word(word).ok_or(DcasError::Corrupt)?, Ordering::Acquire))
    }

    #[inline(always)]
    fn write<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        word: u32,
        value: u64,
    ) -> Result<(), DcasError> {
        // Release: who is late and reads this also sees what made the word the caller's; pairs with the Acquire in `read`.
        actor.cpu.store(words.word(word).ok_or(DcasError::Corrupt)?, value, Ordering::Release);
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
        let of = |c: Change| words.word(c.word).ok_or(DcasError::Corrupt);
        Ok(actor.cpu.dcas([of(a)?, of(b)?], [a.old, b.old], [a.new, b.new]))
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
