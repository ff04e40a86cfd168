//! Harris, Fraser and Pratt's DCAS: a word is marked with the operation's descriptor only
//! while the operation is undecided, which takes a smaller operation with a descriptor of its own
//! (RDCSS); decided, its values are written back.
//!
//! **Source.** Harris, Fraser & Pratt 2002 (DISC, *A Practical Multi-Word Compare-and-Swap
//! Operation*), Figures 4 and 5, for two words. There, descriptors are reclaimed by a collector.
//! Here they are used again, and no participant waits (the argument is ours):
//!
//! * A *condition* (the RDCSS descriptor) is put into a word only by its owner, and is out of the
//!   word when its owner's [`Harris::install`] returns. So its owner may use it again. Marks name
//!   the use, too, hence are unique, and a late participant replaces none.
//! * An operation's *mark* replaces a condition, by any participant that has seen the operation
//!   undecided after the condition was in. Before the owner uses the operation's descriptor again,
//!   it takes marks out of both words, **and conditions for that operation too**, or else writes
//!   the word with what it has (2): after that no mark of this use gets in, since a condition that
//!   gets in later is seen to be for a decided operation.
//!
//! **Progress.** Lock-free, as in [`super::Guerraoui`] for chains of operations. A reader that
//! finds a condition knows the value; at a mark it looks behind it; it repeats only if a descriptor
//! is used again meanwhile.
//!
//! ```text
//! word        plain          MARK 0 | value (63 bits)
//!             an operation   MARK 1 | CONDITION 0 | SECOND | place (16 bits) | use (45 bits)
//!             a condition    MARK 1 | CONDITION 1 | SECOND | place (16 bits) | use (45 bits)
//! status      use (45 bits) | state;  0 never used -> ACTIVE (owner) -> SUCCESS or FAILED (any
//!             participant) -> ACTIVE with the next use (owner)
//! ```
//!
//! **Fields.** `status`: stored by the owner with a new use, then by compare-and-swap by any
//! participant. `condition.usage`: the owner. The other fields: the owner, before that use is in a
//! word; read by participants that have seen it there, and believed if the use is still the same
//! afterwards. Words: by compare-and-swap, any participant.
//!
//! **Crashes.** Dies before (1) for the first word: nothing has happened. Dies before the decision
//! (3): the operation stands in the way of a participant that comes to a marked word, which
//! completes it; [`DoubleCas::recover`] makes it fail. Dies after (3): it has happened, or failed;
//! marks stand for the values. A condition of a dead helper is removed by the next participant that
//! needs the word.
//!
//! **Signals.** As [`super::Guerraoui`]. **Memory.** 33 lines per participant. Values have 63 bits.
//!
//! **Don't use it** except to compare, or for values of more than 32 bits: it takes 7 locked
//! instructions where [`super::Guerraoui`] takes 3.

use towpath_machine::{Arena, Ordering, Place, Processor};

use super::descriptors::{
    ACTIVE, Descriptors, FAILED, IDENTITY, MARK, SECOND, STATE, SUCCESS, USE, descriptor_of, identity,
    two_words,
};
use super::places::PLACES;
use super::{Actor, Change, DcasError, DoubleCas, Words, in_order, packed, unpacked};
use crate::{Boxed, Storage};
use towpath_sync::Waiting;

/// Part of a mark: it is a condition.
const CONDITION: u64 = 1 << 62;

/// The use's place in a status.
const SHIFT: u32 = 2;

/// Harris, Fraser and Pratt's DCAS.
///
/// A participant uses `USED` of the 16 descriptors that it has: fewer make a checker see them used
/// again.
#[repr(C)]
pub struct Harris<P: Processor, S: Storage = Boxed, const USED: usize = PLACES> {
    descriptors: Descriptors<P, HarrisDescriptor<P>, S>,
}

#[repr(C, align(64))]
struct HarrisDescriptor<P: Processor> {
    status: P::Word,
    /// The first word's number, and the second one's in the upper half.
    words: P::Word,
    old: [P::Word; 2],
    new: [P::Word; 2],
    condition: Condition<P>,
}

/// Replacement of `old` by the operation's mark if the operation is undecided.
#[repr(C, align(64))]
struct Condition<P: Processor> {
    usage: P::Word,
    operation: P::Word,
    /// The number of the word that it is put into.
    word: P::Word,
    old: P::Word,
}

impl<P: Processor> HarrisDescriptor<P> {
    fn new(arena: &impl Arena<P>) -> Self {
        HarrisDescriptor {
            status: arena.word(Place::NewLine, 0),
            words: arena.word(Place::SameLine, 0),
            old: two_words(arena),
            new: two_words(arena),
            condition: Condition {
                usage: arena.word(Place::NewLine, 0),
                operation: arena.word(Place::SameLine, 0),
                word: arena.word(Place::SameLine, 0),
                old: arena.word(Place::SameLine, 0),
            },
        }
    }
}

/// An operation, as its owner and its helpers know it.
#[derive(Clone, Copy)]
struct HarrisOperation {
    identity: u64,
    words: [u32; 2],
    old: [u64; 2],
}

const fn active(identity: u64) -> u64 {
    (identity & USE) << SHIFT | ACTIVE
}

impl<P: Processor, S: Storage, const USED: usize> Harris<P, S, USED> {
    /// A word's value, and, if an operation has marked it, which, and whether it is
    /// undecided. Removes nothing.
    fn look<T: Words<P> + ?Sized>(
        &self,
        cpu: &P,
        words: &T,
        number: u32,
    ) -> Result<(u64, Option<(u64, bool)>), DcasError> {
        let word = words.find(number)?;
        loop {
            // (4) Acquire: what is behind the mark, or came before the value; pairs with the
            // Release (1), (2), (6).
            let content = cpu.load(word, Ordering::Acquire);
            if content & MARK == 0 {
                return Ok((content, None));
            }
            let behind = self.descriptors.behind(content)?;
            if content & CONDITION != 0 {
                // (7) Acquire, here and below: a reader of a field of a later use sees that it is a
                // later one; pairs with the Release (8), (8b) in `install`.
                let old = cpu.load(&behind.condition.old, Ordering::Acquire);
                let usage = cpu.load(&behind.condition.usage, Ordering::Acquire) & USE; // (7)
                if usage == content & USE {
                    return Ok((old & !MARK, None));
                }
            } else {
                let entry = usize::from(content & SECOND != 0);
                // (7b) Acquire, twice: as (7); pairs with the Release (9) in `dcas`.
                let old = cpu.load(&behind.old[entry], Ordering::Acquire) & !MARK;
                let new = cpu.load(&behind.new[entry], Ordering::Acquire) & !MARK; // (7b)
                // (7c) Acquire: as (7b), and what was done before the decision; pairs with the
                // Release (3).
                let status = cpu.load(&behind.status, Ordering::Acquire);
                if status >> SHIFT == content & USE {
                    let value = if status & STATE == SUCCESS { new } else { old };
                    return Ok((value, Some((content, status & STATE == ACTIVE))));
                }
            }
            // Used again: before that it was taken out. Relaxed: not before the loads that say so,
            // which acquire; and nothing is read behind it.
            if cpu.load(word, Ordering::Relaxed) == content {
                return Err(DcasError::Corrupt);
            }
        }
    }

    /// Decides an operation, unless it is decided. Returns the decision (or nonsense,
    /// if that was long ago).
    fn decide(&self, cpu: &P, identity: u64, state: u64) -> Result<u64, DcasError> {
        let status = &self.descriptors.behind(identity)?.status;
        let (old, new) = (active(identity), active(identity) & !STATE | state);
        // (3) Release: the marks are in, and a participant that sees the decision sees them; pairs
        // with the Acquire (7c) in `look`. Relaxed if it fails: marks are looked for by updates,
        // which take the latest.
        match cpu.compare_exchange(status, old, new, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => Ok(state),
            Err(now) => Ok(now & STATE),
        }
    }

    /// Replaces a condition, seen in a word, by the operation's mark or by the old value.
    fn resolve(&self, cpu: &P, word: &P::Word, content: u64) -> Result<(), DcasError> {
        let condition = &self.descriptors.behind(content)?.condition;
        // Relaxed, all three: if the exchange below succeeds, the condition is in the word, hence
        // not used again. All before it came with its content: the decision, too, if the
        // owner had looked for the last time (2) before the condition came in.
        let operation = cpu.load(&condition.operation, Ordering::Relaxed) & IDENTITY;
        let old = cpu.load(&condition.old, Ordering::Relaxed) & !MARK;
        let undecided =
            cpu.load(&self.descriptors.behind(operation)?.status, Ordering::Relaxed) == active(operation);
        // (7j) Acquire: a later use comes after the condition is out; pairs with the Release (8) in
        // `install`.
        if cpu.load(&condition.usage, Ordering::Acquire) & USE != content & USE {
            // It is out. Relaxed: as in `look`.
            return match cpu.load(word, Ordering::Relaxed) == content {
                true => Err(DcasError::Corrupt),
                false => Ok(()),
            };
        }
        let to = if undecided { MARK | content & SECOND | operation } else { old };
        // Relaxed: the owner of the condition has acquired the value and released that and the
        // operation's descriptor (1), which an update hands on. If it fails, another participant
        // was faster, and nothing is read.
        let _ = cpu.compare_exchange(word, content, to, Ordering::Relaxed, Ordering::Relaxed);
        Ok(())
    }

    /// RDCSS: puts the operation's mark into one of its words, through the condition of
    /// our own place, if the operation is undecided. Returns the other content that prevents that,
    /// or `None`.
    #[inline]
    fn install(
        &self,
        cpu: &P,
        place: usize,
        word: &P::Word,
        operation: &HarrisOperation,
        entry: usize,
    ) -> Result<Option<u64>, DcasError> {
        let number = u64::from(operation.words[entry]);
        let condition = &self.descriptors.behind(identity(place, 0))?.condition;
        // Relaxed: only its owner writes it.
        let usage = cpu.load(&condition.usage, Ordering::Relaxed).wrapping_add(1) & USE;
        // (8) Release: the last use is out of its word, for a reader that sees this one; pairs with
        // the Acquire (7), (7j) in `look` and `resolve`.
        cpu.store(&condition.usage, usage, Ordering::Release);
        // Relaxed, both: published by (1). `resolve` says why it may read those of a later use.
        cpu.store(&condition.operation, operation.identity, Ordering::Relaxed);
        cpu.store(&condition.word, number, Ordering::Relaxed);
        // (8b) Release: a reader of the value of this use sees the use; pairs with the Acquire (7)
        // in `look`.
        cpu.store(&condition.old, operation.old[entry], Ordering::Release);
        let second = if entry == 0 { 0 } else { SECOND };
        let content = MARK | CONDITION | second | identity(place, usage);
        loop {
            // (1) AcqRel: the condition; pairs with the Acquire (4), and with (2), so that the
            // decision is seen in `resolve`.
            match cpu.compare_exchange(
                word,
                operation.old[entry],
                content,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    self.resolve(cpu, word, content)?;
                    return Ok(None);
                }
                Err(other) if other & MARK != 0 && other & CONDITION != 0 => {
                    self.resolve(cpu, word, other)?
                }
                Err(other) => return Ok(Some(other)),
            }
        }
    }

    /// Marks the words of an operation where they are not marked yet, helping other
    /// operations that are in the way, and decides. Returns what was decided.
    fn complete<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        operation: &HarrisOperation,
        place: usize,
    ) -> Result<u64, DcasError> {
        let cpu = actor.cpu;
        for entry in 0..2 {
            let word = words.find(operation.words[entry])?;
            while let Some(other) = self.install(cpu, place, word, operation, entry)? {
                if other & (MARK | IDENTITY) == MARK | operation.identity {
                    break;
                }
                if other & MARK == 0 {
                    return self.decide(cpu, operation.identity, FAILED);
                }
                self.help(actor, words, other & IDENTITY)?;
                self.write_back(cpu, words, operation.words[entry], other & IDENTITY)?;
            }
        }
        self.decide(cpu, operation.identity, SUCCESS)
    }

    /// Completes another one's operation.
    #[cold]
    fn help<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        identity: u64,
    ) -> Result<(), DcasError> {
        let cpu = actor.cpu;
        let other = self.descriptors.behind(identity)?;
        // (7e) Acquire: as (7b) in `look`, the status last; pairs with the Release (9), (3).
        let [pair, a, b, status] = [&other.words, &other.old[0], &other.old[1], &other.status]
            .map(|field| cpu.load(field, Ordering::Acquire));
        if status != active(identity) {
            return Ok(());
        }
        let operation = HarrisOperation { identity, words: unpacked(pair), old: [a & !MARK, b & !MARK] };
        let mine = self.descriptors.of(actor.me)?;
        let Some(place) = mine.places.take(cpu, USED, true)? else {
            // Too deep. The owner will try again.
            return self.decide(cpu, identity, FAILED).map(|_| ());
        };
        let done = self.complete(actor, words, &operation, descriptor_of(actor.me, place));
        mine.places.give(cpu, place);
        done.map(|_| ())
    }

    /// Replaces the mark of a decided operation by the value.
    fn write_back<T: Words<P> + ?Sized>(
        &self,
        cpu: &P,
        words: &T,
        number: u32,
        identity: u64,
    ) -> Result<(), DcasError> {
        let word = words.find(number)?;
        if let (value, Some((content, false))) = self.look(cpu, words, number)?
            && content & IDENTITY == identity
        {
            // (6) Release: hands on what (4) saw; pairs with the Acquire (4). If it fails, another
            // participant was faster. Relaxed then: nothing is read.
            let _ = cpu.compare_exchange(word, content, value, Ordering::Release, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Takes all marks of a decided operation out of its words, and makes sure that none
    /// gets in any more.
    fn settle<T: Words<P> + ?Sized>(&self, cpu: &P, words: &T, identity: u64) -> Result<(), DcasError> {
        let it = self.descriptors.behind(identity)?;
        // Relaxed: for an owner its own writes, and for others those of the dead, or of a later use
        // by its successor: then the marks of this one are out, and none is replaced.
        let [pair, first, second, news, newer, status] =
            [&it.words, &it.old[0], &it.old[1], &it.new[0], &it.new[1], &it.status]
                .map(|field| cpu.load(field, Ordering::Relaxed));
        if status >> SHIFT != identity & USE || status & STATE == ACTIVE {
            return Ok(());
        }
        let values = if status & STATE == SUCCESS { [news, newer] } else { [first, second] };
        for (entry, value) in values.into_iter().enumerate() {
            let number = (pair >> (32 * entry)) as u32;
            let word = words.find(number)?;
            let mark = MARK | if entry == 0 { 0 } else { SECOND } | identity;
            // (6b) Release: as (6) in `write_back`; pairs with the Acquire (4). Relaxed if it
            // fails: (2) looks again.
            let out = cpu.compare_exchange(word, mark, value & !MARK, Ordering::Release, Ordering::Relaxed);
            if out.is_ok() {
                continue;
            }
            // It is not there.
            loop {
                // (2) AcqRel: a participant that puts a condition in after this one sees the
                // decision behind it; pairs with (1).
                let content = cpu.fetch_or(word, 0, Ordering::AcqRel);
                match content & (MARK | CONDITION) {
                    MARK if content & IDENTITY == identity => {
                        self.write_back(cpu, words, number, identity)?
                    }
                    0 | CONDITION | MARK => break,
                    _ => self.resolve(cpu, word, content)?,
                }
            }
        }
        Ok(())
    }
}

impl<P: Processor, S: Storage, const USED: usize> DoubleCas<P> for Harris<P, S, USED> {
    const NAME: &'static str = "harris";
    const BLOCKING: bool = false;
    const MAX: u64 = !MARK;

    fn new(arena: &impl Arena<P>, participants: usize) -> Self {
        Harris { descriptors: Descriptors::new(arena, participants, HarrisDescriptor::new) }
    }

    fn participants(&self) -> usize {
        self.descriptors.participants()
    }

    #[inline(always)]
    fn read<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        word: u32,
    ) -> Result<u64, DcasError> {
        Ok(self.look(actor.cpu, words, word)?.0)
    }

    fn write<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        word: u32,
        value: u64,
    ) -> Result<(), DcasError> {
        if value > Self::MAX {
            return Err(DcasError::TooLarge);
        }
        let (number, word) = (word, words.find(word)?);
        let mut now = self.look(actor.cpu, words, number)?.0;
        loop {
            // (6c) Release: what made the word the caller's, for participants that are late; pairs
            // with the Acquire (4). (6d) Acquire if it fails: what is behind the mark, as (4).
            match actor.cpu.compare_exchange(word, now, value, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return Ok(()),
                Err(other) if other & MARK == 0 => now = other,
                Err(other) if other & CONDITION != 0 => self.resolve(actor.cpu, word, other)?,
                Err(other) => {
                    self.help(actor, words, other & IDENTITY)?;
                    self.write_back(actor.cpu, words, number, other & IDENTITY)?;
                }
            }
        }
    }

    fn dcas<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        changes: [Change; 2],
    ) -> Result<bool, DcasError> {
        let changes = in_order(changes, Self::MAX)?;
        let cpu = actor.cpu;
        if changes.iter().any(|change| words.word(change.word).is_none()) {
            return Err(DcasError::Corrupt);
        }
        let mine = self.descriptors.of(actor.me)?;
        let place = mine.places.take(cpu, USED, false)?.ok_or(DcasError::TooDeep)?;
        let (it, number) = (&mine.descriptors[place], descriptor_of(actor.me, place));
        let mut round = 0u32;
        let done = loop {
            // Relaxed: its own, and settled.
            let usage = ((cpu.load(&it.status, Ordering::Relaxed) >> SHIFT) + 1) & USE;
            let identity = identity(number, usage);
            let [a, b] = changes;
            let fields = [
                (&it.status, active(identity)),
                (&it.words, packed([a.word, b.word])),
                (&it.old[0], a.old),
                (&it.old[1], b.old),
                (&it.new[0], a.new),
                (&it.new[1], b.new),
            ];
            for (field, value) in fields {
                // (9) Release: a reader of a field of this use sees the use; pairs with the Acquire
                // (7b), (7c), (7e).
                cpu.store(field, value, Ordering::Release);
            }
            let operation = HarrisOperation { identity, words: [a.word, b.word], old: [a.old, b.old] };
            let decided = self
                .complete(actor, words, &operation, number)
                .and_then(|state| self.settle(cpu, words, identity).map(|()| state));
            match decided {
                Ok(SUCCESS) => break Ok(true),
                Ok(_) => {}
                Err(error) => break Err(error),
            }
            // A word had another value, or a helper had no descriptor left.
            let differ = changes.iter().try_fold(false, |differ, change| {
                Ok(differ || self.look(cpu, words, change.word)?.0 != change.old)
            });
            match differ {
                Ok(true) => break Ok(false),
                // No participant is waited for.
                Ok(false) => {
                    actor.back_off(&mut round);
                }
                Err(error) => break Err(error),
            }
        };
        mine.places.give(cpu, place);
        done
    }

    fn recover<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        dead: usize,
    ) -> Result<(), DcasError> {
        let cpu = actor.cpu;
        let theirs = self.descriptors.of(dead)?;
        for (place, it) in theirs.descriptors.iter().enumerate() {
            // Relaxed: the dead one's, or its successor's; to make that one fail does no harm.
            let usage = cpu.load(&it.status, Ordering::Relaxed) >> SHIFT;
            let identity = identity(descriptor_of(dead, place), usage);
            if usage != 0 {
                self.decide(cpu, identity, FAILED)?;
                self.settle(cpu, words, identity)?;
            }
        }
        for it in &theirs.descriptors {
            // The condition may stand in a word of an operation that the dead one was helping.
            // Relaxed: a word of the dead one's or of its successor's; it is looked at closely
            // below.
            let number = cpu.load(&it.condition.word, Ordering::Relaxed) as u32;
            let word = words.find(number)?;
            // (4b) Acquire: as (4) in `look`; pairs with the Release (1).
            let content = cpu.load(word, Ordering::Acquire);
            if content & (MARK | CONDITION) == MARK | CONDITION {
                self.resolve(cpu, word, content)?;
            }
        }
        if dead == actor.me {
            theirs.places.clear(cpu);
        }
        Ok(())
    }
}
