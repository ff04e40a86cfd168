//! Guerraoui, Kogan, Marathe and Zablotchi's DCAS: an operation marks its words with its
//! descriptor, and one more compare-and-swap decides it. The marks stay: a reader of a marked word
//! finds the value in the descriptor.
//!
//! **Source.** Guerraoui, Kogan, Marathe & Zablotchi 2020 (DISC, *Efficient Multi-Word Compare and
//! Swap*), for two words. There, descriptors are reclaimed by epochs, which a stopped process holds
//! up. Here they are used again and again, and no participant waits (the argument is ours):
//!
//! * **A mark names a descriptor and its use by number, and only that descriptor's owner ever puts
//!   it into a word.** A helper marks with a mark of its own descriptor, which says whose
//!   operation it is for (`operation`). So an owner knows of every mark with its name, and takes
//!   them out (*settles* them) before it uses the descriptor again.
//! * **A word counts its changes**: a plain word has a tag of 31 bits beside the value, and an
//!   operation expects the tag, too, and raises it. A helper that comes late to an operation that
//!   has succeeded thus finds neither the mark (marks are unique) nor the plain word that it means
//!   to replace, ever again. To one that has failed it may come late: its mark then stands for the
//!   old value, which the word has anyway.
//! * A mark for the operation of another descriptor, where that descriptor has gone on to another
//!   use, belongs to such a late helper: an owner settles a success's marks, the helpers' too,
//!   before the next use. So the mark stands for the old value.
//!
//! **Progress.** Lock-free, as long as at most 12 operations are under way in a chain, each waiting
//! for the word that the next one has marked; what is deeper than that is made to fail, and its
//! owner tries again. Readers never help and never wait; they repeat if the descriptor that they
//! look at is used again meanwhile. Words, marks and descriptors, and reading them: `marks.rs`.
//!
//! **Fields.** `status`: stored by the owner with a new use, then by compare-and-swap by any
//! participant. `HELPED`: set by a helper before it marks a word. The other fields of a descriptor:
//! the owner, before the first mark of that use is in a word; read by participants that have seen
//! the mark, and believed if the use is still the same afterwards. Words: by compare-and-swap, any
//! participant.
//!
//! **Crashes.** The owner dies
//! * before (3) for the first word: nothing has happened; no other participant knows of the
//!   operation, nor will;
//! * between (3) and the decision (4): the operation stands in the way of the participant that
//!   comes to the marked word next, which completes it; [`DoubleCas::recover`] makes it fail;
//! * after (4): it has happened, or failed; the marks stand for the values, for ever if need be.
//! * A dead helper leaves marks that stand for what the operation says. Descriptors of the dead are
//!   used again by a successor with the same number, after [`DoubleCas::recover`].
//!
//! **Signals.** Each operation and each piece of help has a descriptor of its own out of 16 that
//! the participant has; taking one is safe against the participant's own handlers
//! ([`super::places`]).
//!
//! **Memory.** 17 lines per participant. Values have 32 bits.
//!
//! **Don't use it** where a word changes 2³¹ times between two instructions of one participant and
//! has the same value again then, or for values above 32 bits.

mod marks;

use core::marker::PhantomData;

use towpath_machine::{Arena, Ordering, Processor};

use self::marks::{Descriptor, HELPED, HELPS, MarkedOperation, SHIFT, TAG, VALUE, active};
use super::descriptors::{
    ACTIVE, Descriptors, FAILED, IDENTITY, MARK, SECOND, STATE, SUCCESS, USE, descriptor_of, identity,
};
use super::places::PLACES;
use super::{Actor, Change, DcasError, DoubleCas, Words, in_order, unpacked};
use crate::{Boxed, Storage};
use towpath_sync::Waiting;

/// Variant of the text: the true one, or one with a planted fault ([`crate::planted`]).
pub trait GuerraouiVariant: Send + Sync + 'static {
    /// The name by which users choose it.
    const NAME: &'static str = "guerraoui";
    /// True if words count their changes.
    const TAGS: bool = true;
    /// Number of descriptors that a participant uses, of the 16 that it has: fewer make a
    /// checker see them used again.
    const PLACES: usize = PLACES;
}

/// The true text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tagged;

impl GuerraouiVariant for Tagged {}

/// Guerraoui, Kogan, Marathe and Zablotchi's DCAS.
#[repr(C)]
pub struct Guerraoui<P: Processor, S: Storage = Boxed, V = Tagged> {
    descriptors: Descriptors<P, Descriptor<P>, S>,
    variant: PhantomData<fn() -> V>,
}

/// Replaces a word's content, or an own operation's status, and returns whether it did.
#[inline(always)]
fn exchange<P: Processor>(cpu: &P, word: &P::Word, old: u64, new: u64) -> bool {
    // (3) Release: the descriptor behind a mark, and what came before the content that it replaces,
    // which was acquired when it was looked at: no content of a word comes back. It pairs with the
    // Acquire (1), (1b), (2b), (2h) in `marks.rs`. Relaxed if it fails: looked at again.
    cpu.compare_exchange(word, old, new, Ordering::Release, Ordering::Relaxed).is_ok()
}

impl<P: Processor, S: Storage, V: GuerraouiVariant> Guerraoui<P, S, V> {
    /// Decides an operation, unless it is decided. Returns the decision (or nonsense,
    /// if that was long ago).
    fn decide(&self, cpu: &P, identity: u64, state: u64) -> Result<u64, DcasError> {
        let status = &self.descriptors.behind(identity)?.status;
        let mut expected = active(identity);
        loop {
            let decided = expected & !STATE | state;
            // (4) Release: the marks are in, and a participant that sees the decision sees them;
            // pairs with the Acquire (2b), (2h), (2c) in `marks.rs` and, if it fails, its own.
            match cpu.compare_exchange(status, expected, decided, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return Ok(state),
                Err(now) if now == active(identity) | HELPED && now != expected => expected = now,
                Err(now) => return Ok(now & STATE),
            }
        }
    }

    /// Takes the marks of a descriptor's last use out of its words, and a success's from
    /// its helpers. Returns the next use. Any participant may do that at any time with a use that
    /// is decided; one that is not is made to fail.
    #[inline(always)]
    fn settle<T: Words<P> + ?Sized>(&self, cpu: &P, words: &T, descriptor: usize) -> Result<u64, DcasError> {
        let it = self.descriptors.behind(identity(descriptor, 0))?;
        // Relaxed, here and below: for an owner its own writes; and it has come by `decide`, which
        // acquires the decision. For others the writes of the dead, or of a later use by its
        // successor: then the marks of this one are out, and none is replaced.
        let status = cpu.load(&it.status, Ordering::Relaxed);
        let me = identity(descriptor, status >> SHIFT);
        let operation = cpu.load(&it.operation, Ordering::Relaxed);
        if operation != 0 {
            let pair = cpu.load(&it.words, Ordering::Relaxed);
            let helped = operation == me && status & (HELPED | STATE) == HELPED | SUCCESS;
            let decided = operation == me && status & STATE != ACTIVE;
            for (entry, number) in unpacked(pair).into_iter().enumerate() {
                let word = words.find(number)?;
                // Relaxed: our own mark is seen, being our own; a helper's, since the decision was;
                // and what looks at it closely acquires.
                let content = cpu.load(word, Ordering::Relaxed);
                let mark = MARK | me | if entry == 0 { 0 } else { SECOND };
                if decided && content == mark {
                    // Usually the mark is this operation's, whose values are known.
                    let values = if status & STATE == SUCCESS { &it.new } else { &it.old };
                    // Relaxed: the owner's own writes; a helper has acquired the decision, which
                    // comes after them.
                    let plain = cpu.load(&values[entry], Ordering::Relaxed) & !MARK;
                    if exchange(cpu, word, mark, plain) {
                        continue;
                    }
                }
                if content & (MARK | IDENTITY) == MARK | me || helped && content & HELPS != 0 {
                    self.settle_word(cpu, words, number, me, operation, helped)?;
                }
            }
        }
        Ok(((status >> SHIFT) + 1) & USE)
    }

    #[cold]
    fn settle_word<T: Words<P> + ?Sized>(
        &self,
        cpu: &P,
        words: &T,
        number: u32,
        me: u64,
        operation: u64,
        helped: bool,
    ) -> Result<(), DcasError> {
        let word = words.find(number)?;
        loop {
            let seen = self.look(cpu, words, number)?;
            let mine = seen.content & (MARK | IDENTITY) == MARK | me;
            if !(mine || helped && seen.operation == operation) {
                return Ok(());
            }
            if seen.pending {
                self.decide(cpu, seen.operation, FAILED)?;
                continue;
            }
            if exchange(cpu, word, seen.content, seen.plain) {
                return Ok(());
            }
        }
    }

    /// Marks the words of an operation with `mark` where they are not marked yet, helping
    /// other operations that are in the way, and decides. Returns what was decided.
    fn complete<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        operation: &MarkedOperation,
        mark: u64,
    ) -> Result<u64, DcasError> {
        let cpu = actor.cpu;
        for entry in 0..2 {
            let number = operation.words[entry];
            let word = words.find(number)?;
            loop {
                let now = self.look(cpu, words, number)?;
                if now.pending {
                    if now.operation == operation.identity {
                        break;
                    }
                    self.help(actor, words, now.operation)?;
                    continue;
                }
                if now.plain != operation.old[entry] {
                    return self.decide(cpu, operation.identity, FAILED);
                }
                let mark = if entry == 0 { mark } else { mark | SECOND };
                if exchange(cpu, word, now.content, mark) {
                    break;
                }
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
        let operation = other.operation(cpu, identity);
        // Relaxed, both: it comes before our marks, which release; and the owner's decision, an
        // update of the same word, finds it when it settles. Succeeds, or finds it set, only if the
        // fields were the operation's: they were acquired.
        let asked = cpu.compare_exchange(
            &other.status,
            active(identity),
            active(identity) | HELPED,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if asked.is_err_and(|now| now != active(identity) | HELPED) {
            return Ok(());
        }
        let mine = self.descriptors.of(actor.me)?;
        let Some(place) = mine.places.take(cpu, V::PLACES, true)? else {
            // Too deep. The owner will try again.
            return self.decide(cpu, identity, FAILED).map(|_| ());
        };
        let descriptor = descriptor_of(actor.me, place);
        let done = self.settle(cpu, words, descriptor).and_then(|usage| {
            let mark = MARK | HELPS | self::identity(descriptor, usage);
            let mark = mine.descriptors[place].prepare(cpu, mark, FAILED, &operation);
            self.complete(actor, words, &operation, mark)
        });
        mine.places.give(cpu, place);
        done.map(|_| ())
    }

    /// The owner's way where another participant is about: until the operation has
    /// succeeded, or a word had another value. `begun`: this operation is under way.
    #[cold]
    fn contend<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        changes: [Change; 2],
        place: usize,
        begun: Option<u64>,
    ) -> Result<bool, DcasError> {
        let cpu = actor.cpu;
        let descriptor = descriptor_of(actor.me, place);
        if let Some(begun) = begun {
            let operation = self.descriptors.behind(begun)?.operation(cpu, begun);
            if self.complete(actor, words, &operation, MARK | begun)? == SUCCESS {
                return Ok(true);
            }
        }
        let mut round = 0u32;
        loop {
            let usage = self.settle(cpu, words, descriptor)?;
            let mut old = [0; 2];
            for (old, change) in old.iter_mut().zip(&changes) {
                *old = self.look(cpu, words, change.word)?.plain;
                if *old & VALUE != change.old {
                    return Ok(false);
                }
            }
            let identity = identity(descriptor, usage);
            let operation = MarkedOperation {
                identity,
                words: changes.map(|change| change.word),
                old,
                new: [Self::raised(old[0], changes[0].new), Self::raised(old[1], changes[1].new)],
            };
            let mark = self.descriptors.behind(identity)?.prepare(cpu, MARK | identity, ACTIVE, &operation);
            if self.complete(actor, words, &operation, mark)? == SUCCESS {
                return Ok(true);
            }
            // A word has changed, though perhaps not its value; or a helper had no descriptor left.
            actor.back_off(&mut round);
        }
    }

    /// Returns the plain word that follows `plain`, with a new value.
    #[inline(always)]
    const fn raised(plain: u64, value: u64) -> u64 {
        let tag = if V::TAGS { plain.wrapping_add(TAG) & !MARK } else { 0 };
        tag & !VALUE | value
    }
}

impl<P: Processor, S: Storage, V: GuerraouiVariant> DoubleCas<P> for Guerraoui<P, S, V> {
    const NAME: &'static str = V::NAME;
    const BLOCKING: bool = false;
    const MAX: u64 = VALUE;

    fn new(arena: &impl Arena<P>, participants: usize) -> Self {
        Guerraoui {
            descriptors: Descriptors::new(arena, participants, Descriptor::new),
            variant: PhantomData,
        }
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
        let (_, plain, usual) = self.glance(actor.cpu, words.find(word)?)?;
        if usual {
            return Ok(plain & VALUE);
        }
        Ok(self.look(actor.cpu, words, word)?.plain & VALUE)
    }

    fn write<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        word: u32,
        value: u64,
    ) -> Result<(), DcasError> {
        if value > VALUE {
            return Err(DcasError::TooLarge);
        }
        loop {
            let seen = self.look(actor.cpu, words, word)?;
            if seen.pending {
                self.help(actor, words, seen.operation)?;
                continue;
            }
            let to = Self::raised(seen.plain, value);
            let word = words.find(word)?;
            if exchange(actor.cpu, word, seen.content, to) {
                return Ok(());
            }
        }
    }

    #[inline]
    fn dcas<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        changes: [Change; 2],
    ) -> Result<bool, DcasError> {
        let changes = in_order(changes, VALUE)?;
        let [a, b] = changes;
        let cpu = actor.cpu;
        let first = words.find(a.word)?;
        let second = words.find(b.word)?;
        let mine = self.descriptors.of(actor.me)?;
        let (first_content, first_plain, first_usual) = self.glance(cpu, first)?;
        let (second_content, second_plain, second_usual) = self.glance(cpu, second)?;
        if first_usual && first_plain & VALUE != a.old || second_usual && second_plain & VALUE != b.old {
            return Ok(false);
        }
        let place = mine.places.take(cpu, V::PLACES, false)?.ok_or(DcasError::TooDeep)?;
        let descriptor = descriptor_of(actor.me, place);
        let done = self.settle(cpu, words, descriptor).and_then(|usage| {
            if !(first_usual && second_usual) {
                return self.contend(actor, words, changes, place, None);
            }
            let identity = identity(descriptor, usage);
            let operation = MarkedOperation {
                identity,
                words: [a.word, b.word],
                old: [first_plain, second_plain],
                new: [Self::raised(first_plain, a.new), Self::raised(second_plain, b.new)],
            };
            let it = &mine.descriptors[place];
            let mark = it.prepare(cpu, MARK | identity, ACTIVE, &operation);
            if exchange(cpu, first, first_content, mark)
                && exchange(cpu, second, second_content, mark | SECOND)
                && exchange(cpu, &it.status, active(identity), active(identity) & !STATE | SUCCESS)
            {
                return Ok(true);
            }
            self.contend(actor, words, changes, place, Some(identity))
        });
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
            let descriptor = descriptor_of(dead, place);
            // Relaxed: the dead one's, or its successor's; to make that one fail does no harm.
            let status = cpu.load(&it.status, Ordering::Relaxed);
            self.decide(cpu, identity(descriptor, status >> SHIFT), FAILED)?;
            self.settle(cpu, words, descriptor)?;
        }
        if dead == actor.me {
            theirs.places.clear(cpu);
        }
        Ok(())
    }
}
