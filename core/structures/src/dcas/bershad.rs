//! Bershad's DCAS: plain reads and writes under one lock that the system knows. A holder
//! that dies with the lock is rolled back, or forward once both comparisons have succeeded.
//!
//! **Source.** Bershad 1993 (ICDCS, *Practical Considerations for Non-Blocking Concurrent
//! Objects*); Greenwald & Cheriton 1996, §6.1. There, the operating system rolls a process back
//! that it preempts with the lock. Natively no operating system does that, and no survivor can stop
//! a process that is only asleep from writing later: so here it is the *dead* that are rolled, by
//! survivors. [`super::RolledBack`] is for machines whose system does its part.
//!
//! **Readers may see tentative values** (G19): the first word is written before the second one is
//! compared, and written back if that fails. A structure whose readers cannot stand that must not
//! use this. Where each read is validated by a version number that the same DCAS changes (as in
//! Greenwald & Cheriton's lists) a tentative value costs a retry, or an answer from a state that
//! never was: let the version be the word with the higher number then, or have readers not trust a
//! version alone.
//!
//! **Progress.** Blocking: a stopped holder stops all. A dead one is found out by waiters
//! ([`Waiting::is_alive`]).
//!
//! ```text
//! lock    0                                            -> held, by compare-and-swap
//!         process (31 bits) | record + 1 | holder + 1  -> 0, by the holder; another holder, by
//!                                                         compare-and-swap, if the process is dead
//! step    IDLE -> TENTATIVE -> IDLE (rolled back) or COMMITTED -> IDLE;  by the holder
//! ```
//!
//! **Fields.** All but `lock`: the holder. `record` in the lock says whose record must be rolled if
//! the holder dies: its own, or that of a dead one that it is just rolling.
//!
//! **Crashes.** Dies with `TENTATIVE`: the first word gets its old value back; nothing has
//! happened. Dies with `COMMITTED`: the second word gets its new value; it has happened. Rolling
//! twice does no harm.
//!
//! **Signals.** A handler that interrupts the holder gets [`DcasError::TooDeep`]; if another
//! participant holds the lock, the handler waits. **Memory.** A line, and one per participant.
//! Values have 64 bits.
//!
//! **Don't use it** except to compare: where processes are stopped, or values must be true.

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use super::{Actor, Change, DcasError, DoubleCas, Words, in_order, packed, unpacked};
use crate::{Boxed, Storage};
use towpath_sync::Waiting;

const IDLE: u64 = 0;
const TENTATIVE: u64 = 1;
const COMMITTED: u64 = 2;

/// Bershad's DCAS.
#[repr(C)]
pub struct Bershad<P: Processor, S: Storage = Boxed> {
    lock: OwnLine<P::Word>,
    records: S::Each<RollRecord<P>>,
}

#[repr(C, align(64))]
struct RollRecord<P: Processor> {
    step: P::Word,
    words: P::Word,
    old: P::Word,
    new: P::Word,
}

/// Value of the lock.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Held(u64);

impl Held {
    const fn new(process: u32, record: u64, holder: u64) -> Held {
        Held((process as u64) << 32 | ((record + 1) & 0xffff) << 16 | ((holder + 1) & 0xffff))
    }
    const fn process(self) -> u32 {
        (self.0 >> 32) as u32 & 0x7fff_ffff
    }
    const fn record(self) -> u64 {
        (self.0 >> 16 & 0xffff).wrapping_sub(1)
    }
    const fn holder(self) -> u64 {
        (self.0 & 0xffff).wrapping_sub(1)
    }
}

impl<P: Processor, S: Storage> Bershad<P, S> {
    fn record(&self, me: u64) -> Result<&RollRecord<P>, DcasError> {
        usize::try_from(me).ok().and_then(|me| self.records.as_ref().get(me)).ok_or(DcasError::Corrupt)
    }

    fn lock<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
    ) -> Result<(), DcasError> {
        let me = actor.me as u64;
        if actor.me >= self.records.as_ref().len() {
            return Err(DcasError::UnknownParticipant);
        }
        let mine = Held::new(actor.wait.identity(), me, me);
        let mut round = 0u32;
        loop {
            // (1) Acquire: what was done under the lock; pairs with the Release (2).
            let taken =
                actor.cpu.compare_exchange(&self.lock, 0, mine.0, Ordering::Acquire, Ordering::Relaxed);
            let Err(now) = taken else { return Ok(()) };
            let now = Held(now);
            if now.holder() == me && now.process() == actor.wait.identity() {
                return Err(DcasError::TooDeep);
            }
            if !actor.wait.is_alive(now.process()) {
                return self.take_over(actor, words, now);
            }
            actor.wait.back_off(actor.cpu, round)?;
            round = round.wrapping_add(1);
        }
    }

    /// Takes the lock from a dead holder, and rolls back or forward the operation that
    /// it, or a dead one before it, has begun. If another survivor is faster, waits for the lock
    /// again.
    #[cold]
    fn take_over<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        dead: Held,
    ) -> Result<(), DcasError> {
        let (cpu, me, process) = (actor.cpu, actor.me as u64, actor.wait.identity());
        let rolling = Held::new(process, dead.record(), me);
        // Relaxed: what was done under the lock comes before the dead holder's death, which is
        // known. And if it fails: nothing is read.
        if cpu.compare_exchange(&self.lock, dead.0, rolling.0, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return self.lock(actor, words);
        }
        if let Err(error) = self.roll(cpu, words, dead.record()) {
            self.unlock(cpu);
            return Err(error);
        }
        // (3) Release: the other one is done with, for a process that takes over from us if we die
        // here. It pairs with the knowledge of our death.
        cpu.store(&self.lock, Held::new(process, me, me).0, Ordering::Release);
        Ok(())
    }

    /// Rolls a record back or forward, under the lock.
    fn roll<T: Words<P> + ?Sized>(&self, cpu: &P, words: &T, record: u64) -> Result<(), DcasError> {
        let record = self.record(record)?;
        // Relaxed, here and below: under the lock.
        let [step, pair, old, new] = [&record.step, &record.words, &record.old, &record.new]
            .map(|field| cpu.load(field, Ordering::Relaxed));
        let [first, second] = unpacked(pair);
        let begun = match step {
            TENTATIVE => Some((first, old)),
            COMMITTED => Some((second, new)),
            _ => None,
        };
        if let Some((number, value)) = begun {
            // (4b) Release: what the value stands for; pairs with the Acquire (5) in `read`.
            cpu.store(words.find(number)?, value, Ordering::Release);
        }
        // (6c) Release: after the value, for a process that takes over from us if we die
        // here; pairs with the knowledge of our death, as (3).
        cpu.store(&record.step, IDLE, Ordering::Release);
        Ok(())
    }

    fn unlock(&self, cpu: &P) {
        // (2) Release: what was done under the lock; pairs with the Acquire (1).
        cpu.store(&self.lock, 0, Ordering::Release);
    }
}

impl<P: Processor, S: Storage> DoubleCas<P> for Bershad<P, S> {
    const NAME: &'static str = "bershad";
    const BLOCKING: bool = true;
    const MAX: u64 = u64::MAX;

    fn new(arena: &impl Arena<P>, participants: usize) -> Self {
        let record = |_| RollRecord {
            step: arena.word(Place::NewLine, 0),
            words: arena.word(Place::SameLine, 0),
            old: arena.word(Place::SameLine, 0),
            new: arena.word(Place::SameLine, 0),
        };
        Bershad { lock: OwnLine(arena.word(Place::NewLine, 0)), records: S::each(participants, record) }
    }

    fn participants(&self) -> usize {
        self.records.as_ref().len()
    }

    /// A value that may be tentative.
    #[inline(always)]
    fn read<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        word: u32,
    ) -> Result<u64, DcasError> {
        // (5) Acquire: pairs with the Release (4), (4b), (4c).
        Ok(actor.cpu.load(words.find(word)?, Ordering::Acquire))
    }

    /// Writes under the lock, too: otherwise a writing back might come later.
    fn write<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        word: u32,
        value: u64,
    ) -> Result<(), DcasError> {
        let word = words.find(word)?;
        self.lock(actor, words)?;
        // (4c) Release: what the value stands for; pairs with the Acquire (5) in `read`.
        actor.cpu.store(word, value, Ordering::Release);
        self.unlock(actor.cpu);
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
        self.lock(actor, words)?;
        let mine = self.record(actor.me as u64)?;
        // Relaxed, here and below: under the lock, which hands it on.
        let mut equal = cpu.load(first, Ordering::Relaxed) == a.old;
        if equal {
            cpu.store(&mine.words, packed([a.word, b.word]), Ordering::Relaxed);
            cpu.store(&mine.old, a.old, Ordering::Relaxed);
            cpu.store(&mine.new, b.new, Ordering::Relaxed);
            // (6) Release, here and below: a process that takes over finds the record as it was
            // written, since a dead processor has made its stores in this order; pairs with the
            // knowledge of its death.
            cpu.store(&mine.step, TENTATIVE, Ordering::Release);
            // (4) Release: what the value stands for; pairs with the Acquire (5) in `read`.
            cpu.store(first, a.new, Ordering::Release);
            equal = cpu.load(second, Ordering::Relaxed) == b.old;
            if equal {
                cpu.store(&mine.step, COMMITTED, Ordering::Release); // (6)
                cpu.store(second, b.new, Ordering::Release); // (4)
            } else {
                cpu.store(first, a.old, Ordering::Release); // (4)
            }
            // (6b) Release: after the words; pairs with the knowledge of a death, as (6).
            cpu.store(&mine.step, IDLE, Ordering::Release);
        }
        self.unlock(cpu);
        Ok(equal)
    }

    fn recover<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        dead: usize,
    ) -> Result<(), DcasError> {
        // Relaxed: all that the dead holder did is known with its death.
        let held = Held(actor.cpu.load(&self.lock, Ordering::Relaxed));
        if held.0 == 0 || held.holder() != dead as u64 {
            return Ok(());
        }
        self.take_over(actor, words, held)?;
        self.unlock(actor.cpu);
        Ok(())
    }
}
