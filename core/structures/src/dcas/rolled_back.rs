//! Bershad's DCAS as he meant it: plain stores under a lock that the operating system
//! knows, which rolls back a holder that it switches out, or that dies.
//!
//! **Source.** Bershad 1993 (ICDCS, *Practical Considerations for Non-Blocking Concurrent
//! Objects*); Greenwald & Cheriton 1996, §6.1. It takes a system that does so ([`RollBack`]):
//! simulated there is one (`os.roll_back`), natively there is none, and [`super::Bershad`] makes do
//! with survivors.
//!
//! **Readers.** Between the two stores the first word has a value that may be taken back (G19).
//! Reads that must not act on such a value look at the lock, which counts, before and after
//! ([`RolledBack::read`] of the trait, [`RolledBack::look`]), and wait while it has a holder: that
//! is what *unless they take the lock* comes to. The second word, in the order in which
//! [`RolledBack::change`] is given them, never has a tentative value: a structure that reads it
//! plainly, and compares the first one with what `look` has returned, is safe too.
//!
//! **Progress.** A waiter waits for a holder that runs: lock-free, if the system does its part.
//! **Fields.** `lock`: by [`RollBack::take`] and [`RollBack::free`], and by the system.
//! **Crashes.** The dead are rolled back like the preempted: before the second store nothing has
//! happened, after it both changes have. **Signals.** None: simulated threads get no signals.
//! **Memory.** A line. Values have 64 bits.
//!
//! **Don't use it** where processes may be stopped by anything but the system's scheduler, or words
//! lie where the system can't write when it switches.

use towpath_machine::{Arena, Ordering, OwnLine, Place, RollBack};

use super::{Actor, Change, DcasError, DoubleCas, Words, in_order};
use crate::{Boxed, Storage};
use towpath_sync::Waiting;

/// Bershad's DCAS with the system's help.
#[repr(C)]
pub struct RolledBack<P: RollBack, S: Storage = Boxed> {
    lock: OwnLine<P::Word>,
    participants: S::Each<()>,
}

impl<P: RollBack, S: Storage> RolledBack<P, S> {
    /// Makes both changes if both words hold their old values. The first word is stored
    /// first. `back_off` is called whenever another one has the lock.
    ///
    /// ```
    /// use towpath_machine::RollBack;
    /// use towpath_structures::dcas::RolledBack;
    ///
    /// /// Moves 1 from one counter to another, on a machine whose system rolls holders back.
    /// fn moves<P: RollBack>(dcas: &RolledBack<P>, cpu: &P, counters: [&P::Word; 2]) -> bool {
    ///     let [from, to] = counters.map(|counter| dcas.look(cpu, counter, || cpu.delay(100)));
    ///     let wait = || cpu.delay(100);
    ///     from > 0 && dcas.change(cpu, counters, [from, to], [from - 1, to + 1], wait)
    /// }
    /// ```
    pub fn change(
        &self,
        cpu: &P,
        words: [&P::Word; 2],
        old: [u64; 2],
        new: [u64; 2],
        mut back_off: impl FnMut(),
    ) -> bool {
        let [first, second] = words;
        loop {
            if !cpu.take(&self.lock) {
                back_off();
                continue;
            }
            // Relaxed: under the lock; what was read without it does not count, as the next step
            // says.
            let equal =
                cpu.load(first, Ordering::Relaxed) == old[0] && cpu.load(second, Ordering::Relaxed) == old[1];
            if !equal {
                if cpu.free(&self.lock) {
                    return false;
                }
            } else if cpu.store_tentatively(first, new[0]) && cpu.store_finally(second, new[1]) {
                // If the system has freed it already, after both stores, that is as good.
                cpu.free(&self.lock);
                return true;
            }
        }
    }

    /// A word's value, which is not tentative. `back_off` is called whenever another one
    /// has the lock.
    ///
    /// ```
    /// use towpath_machine::RollBack;
    /// use towpath_structures::dcas::RolledBack;
    ///
    /// /// Reads a counter, on a machine whose system rolls holders back.
    /// fn read<P: RollBack>(dcas: &RolledBack<P>, cpu: &P, counter: &P::Word) -> u64 {
    ///     dcas.look(cpu, counter, || cpu.delay(100)) // a tentative value is never seen
    /// }
    /// ```
    pub fn look(&self, cpu: &P, word: &P::Word, mut back_off: impl FnMut()) -> u64 {
        loop {
            // (1) Acquire: what was stored when the lock was freed; pairs with the Release of
            // freeing it.
            let before = cpu.load(&self.lock, Ordering::Acquire);
            // (2) Acquire: a tentative value comes with the lock's being taken; pairs with the
            // Release of storing it. And (3) comes after.
            let value = cpu.load(word, Ordering::Acquire);
            // (3) Relaxed: ordered by (2).
            if before.is_multiple_of(2) && cpu.load(&self.lock, Ordering::Relaxed) == before {
                return value;
            }
            back_off();
        }
    }
}

/// Back-off that is never given up, since this lock has no dead holders to wait for.
fn backing_off<P: RollBack, W: Waiting<P>>(actor: &Actor<'_, P, W>) -> impl FnMut() {
    let mut round = 0;
    move || actor.back_off(&mut round)
}

impl<P: RollBack, S: Storage> DoubleCas<P> for RolledBack<P, S> {
    const NAME: &'static str = "bershad-os";
    const BLOCKING: bool = false;
    const MAX: u64 = u64::MAX;

    fn new(arena: &impl Arena<P>, participants: usize) -> Self {
        RolledBack {
            lock: OwnLine(arena.word(Place::NewLine, 0)),
            participants: S::each(participants, |_| ()),
        }
    }

    fn participants(&self) -> usize {
        self.participants.as_ref().len()
    }

    fn read<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        word: u32,
    ) -> Result<u64, DcasError> {
        Ok(self.look(actor.cpu, words.find(word)?, backing_off(actor)))
    }

    /// Takes no lock: no concurrent DCAS can succeed on this word, because it is not
    /// linked yet.
    fn write<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        word: u32,
        value: u64,
    ) -> Result<(), DcasError> {
        // Release: pairs with the Acquire (2).
        actor.cpu.store(words.find(word)?, value, Ordering::Release);
        Ok(())
    }

    fn dcas<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        changes: [Change; 2],
    ) -> Result<bool, DcasError> {
        let [a, b] = in_order(changes, Self::MAX)?;
        let both = [words.find(a.word)?, words.find(b.word)?];
        Ok(self.change(actor.cpu, both, [a.old, b.old], [a.new, b.new], backing_off(actor)))
    }

    /// Nothing: the system has done it.
    fn recover<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        _actor: &Actor<'_, P, W>,
        _words: &T,
        _dead: usize,
    ) -> Result<(), DcasError> {
        Ok(())
    }
}
