//! DCAS under a table of locks: the honest baseline.
//!
//! **Source.** Folklore. The locks are test-and-test-and-set with a version count, so that readers
//! need not take them (Lameter 2005, *sequence locks*; Dice, Shalev & Shavit 2006).
//!
//! **Progress.** Blocking: a holder that stops stops all whose words share its lock, readers too.
//!
//! ```text
//! lock    version (48 bits) | 0           -> the same version | holder + 1, by compare-and-swap
//!         version (48 bits) | holder + 1  -> version + 1 | 0 (words were written) or the same
//!                                            version | 0, by the holder
//! ```
//!
//! **Fields.** `locks[i]`: see above. Words `n` with `n mod 32 = i`: the holder of `locks[i]`.
//!
//! **Crashes.** Dies with a lock: no participant gets it any more, and waiting ends with
//! [`DcasError::Abandoned`] if the surroundings know of the death. [`DoubleCas::recover`] says so
//! as well.
//!
//! **Signals.** A handler on top of a holder gets [`DcasError::TooDeep`]. **Memory.** 32 lines.
//! Values have 64 bits.
//!
//! **Don't use it** where processes die or are stopped, or in signal handlers.

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use super::{Actor, Change, DcasError, DoubleCas, Words, in_order};
use crate::{Boxed, Storage};
use towpath_sync::Waiting;

const LOCKS: usize = 32;
const HOLDER: u64 = 0xffff;
const VERSION: u64 = HOLDER + 1;

/// DCAS under a table of locks.
#[repr(C)]
pub struct Locked<P: Processor, S: Storage = Boxed> {
    locks: [OwnLine<P::Word>; LOCKS],
    participants: S::Each<()>,
}

impl<P: Processor, S: Storage> Locked<P, S> {
    fn lock_of(&self, word: u32) -> &P::Word {
        &self.locks[word as usize % LOCKS]
    }

    /// The lock's value when it is free.
    #[inline(always)]
    fn wait_for<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>, lock: &P::Word) -> Result<u64, DcasError> {
        let mut round = 0u32;
        loop {
            // (1) Acquire: what the last holder wrote; pairs with the Release (3).
            let now = actor.cpu.load(lock, Ordering::Acquire);
            if now & HOLDER == 0 {
                return Ok(now);
            }
            if now & HOLDER == actor.me as u64 + 1 {
                return Err(DcasError::TooDeep);
            }
            actor.wait.back_off(actor.cpu, round)?;
            round = round.wrapping_add(1);
        }
    }

    /// Takes the lock; returns its value while it was free.
    #[inline(always)]
    fn lock<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>, lock: &P::Word) -> Result<u64, DcasError> {
        if actor.me >= self.participants.as_ref().len() {
            return Err(DcasError::UnknownParticipant);
        }
        loop {
            let free = self.wait_for(actor, lock)?;
            let held = free | (actor.me as u64 + 1);
            // Relaxed: (1) has seen what was written up to this version, and no holder has written
            // since; the words are written with Release (6), so that a reader of one sees the lock
            // held. And if it fails: looked at again.
            if actor.cpu.compare_exchange(lock, free, held, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return Ok(free);
            }
        }
    }

    #[inline(always)]
    fn unlock(cpu: &P, lock: &P::Word, free: u64, written: bool) {
        // (3) Release: the writes; pairs with the Acquire (1).
        cpu.store(lock, if written { free.wrapping_add(VERSION) } else { free }, Ordering::Release);
    }
}

impl<P: Processor, S: Storage> DoubleCas<P> for Locked<P, S> {
    const NAME: &'static str = "locked";
    const BLOCKING: bool = true;
    const MAX: u64 = u64::MAX;

    fn new(arena: &impl Arena<P>, participants: usize) -> Self {
        Locked {
            locks: core::array::from_fn(|_| OwnLine(arena.word(Place::NewLine, 0))),
            participants: S::each(participants, |_| ()),
        }
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
        let (lock, word) = (self.lock_of(word), words.find(word)?);
        loop {
            let before = self.wait_for(actor, lock)?;
            // (4) Acquire: if it is a value written under the lock, then the lock is seen held, or
            // with another version; pairs with the Release (6).
            let value = actor.cpu.load(word, Ordering::Acquire);
            // Relaxed: not before the value, by (4); and what came with this version, (1) has seen.
            if actor.cpu.load(lock, Ordering::Relaxed) == before {
                return Ok(value);
            }
        }
    }

    fn write<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        word: u32,
        value: u64,
    ) -> Result<(), DcasError> {
        let (lock, word) = (self.lock_of(word), words.find(word)?);
        let free = self.lock(actor, lock)?;
        // (6) Release: the lock is held; pairs with the Acquire (4).
        actor.cpu.store(word, value, Ordering::Release);
        Self::unlock(actor.cpu, lock, free, true);
        Ok(())
    }

    fn dcas<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        changes: [Change; 2],
    ) -> Result<bool, DcasError> {
        let [a, b] = in_order(changes, Self::MAX)?;
        let word = |change: Change| words.find(change.word);
        let (cpu, first, second) = (actor.cpu, word(a)?, word(b)?);
        // In the order of the locks, so that there is no cycle of waiters.
        let (low, high) = {
            let (x, y) = (a.word as usize % LOCKS, b.word as usize % LOCKS);
            (x.min(y), x.max(y))
        };
        let lower = self.lock(actor, &self.locks[low])?;
        let higher = match low == high {
            true => None,
            false => match self.lock(actor, &self.locks[high]) {
                Ok(free) => Some(free),
                Err(error) => {
                    Self::unlock(cpu, &self.locks[low], lower, false);
                    return Err(error);
                }
            },
        };
        // Relaxed: under the locks.
        let equal =
            cpu.load(first, Ordering::Relaxed) == a.old && cpu.load(second, Ordering::Relaxed) == b.old;
        if equal {
            // (6b) Release, twice: the lock is held; pairs with the Acquire (4).
            cpu.store(first, a.new, Ordering::Release);
            cpu.store(second, b.new, Ordering::Release); // (6b)
        }
        if let Some(free) = higher {
            Self::unlock(cpu, &self.locks[high], free, equal);
        }
        Self::unlock(cpu, &self.locks[low], lower, equal);
        Ok(equal)
    }

    fn recover<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        _words: &T,
        dead: usize,
    ) -> Result<(), DcasError> {
        // Relaxed: what the dead one wrote is known with its death.
        let held = |lock: &P::Word| actor.cpu.load(lock, Ordering::Relaxed) & HOLDER == dead as u64 + 1;
        if self.locks.iter().any(|lock| held(lock)) { Err(DcasError::Abandoned) } else { Ok(()) }
    }
}
