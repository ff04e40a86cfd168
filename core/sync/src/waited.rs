//! A word that others wait for, in a cache or at memory as the primitive has it.

use core::marker::PhantomData;

use towpath_machine::{Arena, Ordering, Place, Processor};

use crate::{Abandoned, PARKED, Primitive, Waiting};

/// A word that others wait for, and a doorbell for them in case it lies at memory. Takes
/// 16 bytes of a line.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Waited<P: Processor, M> {
    word: P::Word,
    /// Used only if the word lies at memory.
    doorbell: P::Word,
    primitive: PhantomData<fn() -> M>,
}

impl<P: Processor, M: Primitive<P>> Waited<P, M> {
    pub(crate) fn new(arena: &impl Arena<P>, place: Place, value: u64) -> Self {
        Waited {
            word: arena.word(M::place(place), value),
            doorbell: arena.word(if M::KIND.in_cache() { Place::SameLine } else { Place::NewLine }, 0),
            primitive: PhantomData,
        }
    }

    /// The value, without the mark of a sleeper.
    #[track_caller]
    #[inline(always)]
    pub(crate) fn load(&self, cpu: &P, order: Ordering) -> u64 {
        cpu.load(&self.word, order) & !PARKED
    }

    /// [`Waiting::wait_until`].
    #[inline(always)]
    pub(crate) fn wait_until<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        done: impl FnMut(u64) -> bool,
    ) -> Result<u64, Abandoned> {
        if M::KIND.in_cache() {
            wait.wait_until(cpu, &self.word, done)
        } else {
            wait.wait_until_woken(cpu, &self.word, &self.doorbell, done)
        }
    }

    /// [`Waiting::wait_until_pausing`].
    pub(crate) fn wait_until_pausing<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        pause: impl FnMut(u64) -> u64,
        done: impl FnMut(u64) -> bool,
    ) -> Result<u64, Abandoned> {
        let doorbell = (!M::KIND.in_cache()).then_some(&self.doorbell);
        wait.wait_until_pausing(cpu, &self.word, doorbell, pause, done)
    }

    /// [`Waiting::release`].
    #[inline(always)]
    pub(crate) fn release<W: Waiting<P>>(&self, cpu: &P, wait: &W, value: u64) {
        if M::KIND.in_cache() {
            wait.release(cpu, &self.word, value);
        } else {
            wait.release_and_wake(cpu, &self.word, &self.doorbell, value);
        }
    }
}
