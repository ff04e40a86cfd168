//! Marks of [`super::Guerraoui`]: layout of words and descriptors, reading behind marks.
//!
//! **Source.** As [`super`]; that a mark names a descriptor and its use is ours.
//!
//! **Progress.** A reader never helps and never waits: it looks behind the mark, at the descriptor
//! (or at the helper's, and from there at the operation's), and repeats only if one of them has
//! gone on to another use meanwhile. That is so if the word has changed: marks are taken out before
//! the next use.
//!
//! ```text
//! word        plain          MARK 0 | tag (31 bits) | value (32 bits)
//!             marked         MARK 1 | HELPS | SECOND | descriptor (16 bits) | use (45 bits)
//! status      use (45 bits) | HELPED | state
//! state       0 never used -> ACTIVE (owner) -> SUCCESS or FAILED (any participant) -> ACTIVE with
//!             the next use (owner); a helper's descriptor is FAILED from the beginning
//! ```
//!
//! **Fields.** Nothing is written here but the owner's descriptor ([`Descriptor::prepare`]), before
//! a mark of that use is in a word.
//!
//! **Crashes.** A reader that dies leaves nothing. A mark whose owner is dead can be read for ever.
//!
//! The numbers of orderings are those of `guerraoui.rs`: (1), (2) and (8) are here; (3) and (4)
//! are there.

use towpath_machine::{Arena, Ordering, Place, Processor};

use super::{Guerraoui, GuerraouiVariant};
use crate::Storage;
use crate::dcas::descriptors::{ACTIVE, FAILED, IDENTITY, MARK, SECOND, STATE, SUCCESS, USE, two_words};
use crate::dcas::{DcasError, Words, packed, unpacked};

/// Part of a mark: the descriptor is a helper's.
pub(super) const HELPS: u64 = 1 << 62;
/// A plain word's value.
pub(super) const VALUE: u64 = u32::MAX as u64;
/// Number 1 in a plain word's tag.
pub(super) const TAG: u64 = 1 << 32;

/// Bit of a status: a participant helps.
pub(super) const HELPED: u64 = 4;
/// The use's place in a status.
pub(super) const SHIFT: u32 = 3;

/// An operation in shared memory: its owner writes it anew for each use.
#[repr(C, align(64))]
pub(super) struct Descriptor<P: Processor> {
    pub status: P::Word,
    /// Identity of the operation: the participant's own, or the one that it helps.
    pub operation: P::Word,
    /// The first word's number, and the second one's in the upper half.
    pub words: P::Word,
    pub old: [P::Word; 2],
    pub new: [P::Word; 2],
}

/// An operation, as its owner and its helpers know it. Words as they are when plain.
#[derive(Clone, Copy)]
pub(super) struct MarkedOperation {
    pub identity: u64,
    pub words: [u32; 2],
    pub old: [u64; 2],
    pub new: [u64; 2],
}

/// Observation of a word.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub content: u64,
    /// Content of the word if it were plain.
    pub plain: u64,
    /// The operation that has marked it; 0 if it is plain.
    pub operation: u64,
    /// True if that operation is undecided.
    pub pending: bool,
}

/// Status of an operation that is undecided and not helped.
pub(super) const fn active(identity: u64) -> u64 {
    (identity & USE) << SHIFT | ACTIVE
}

impl<P: Processor> Descriptor<P> {
    /// A descriptor that was never used.
    pub fn new(arena: &impl Arena<P>) -> Self {
        Descriptor {
            status: arena.word(Place::NewLine, 0),
            operation: arena.word(Place::SameLine, 0),
            words: arena.word(Place::SameLine, 0),
            old: two_words(arena),
            new: two_words(arena),
        }
    }

    /// Writes an operation into the descriptor for its next use. Returns the mark, as for
    /// the first word.
    #[inline(always)]
    pub fn prepare(&self, cpu: &P, mark: u64, state: u64, operation: &MarkedOperation) -> u64 {
        let ([a, b], [c, d]) = (operation.old, operation.new);
        let fields = [
            (&self.status, (mark & USE) << SHIFT | state),
            (&self.operation, operation.identity),
            (&self.words, packed(operation.words)),
            (&self.old[0], a),
            (&self.old[1], b),
            (&self.new[0], c),
            (&self.new[1], d),
        ];
        for (field, value) in fields {
            // (8) Release: a reader of a field of this use sees the use; pairs with the Acquire
            // (2). The first one also comes after the former marks are out.
            cpu.store(field, value, Ordering::Release);
        }
        mark
    }

    /// Reads a field.
    #[inline(always)]
    fn field(cpu: &P, field: &P::Word) -> u64 {
        // (2) Acquire: a reader of what a later use has written sees in the status, which it reads
        // afterwards, that it is a later one; pairs with the Release (8) in `prepare`.
        cpu.load(field, Ordering::Acquire)
    }

    /// Reads the old and the new value of a word.
    #[inline(always)]
    fn values(&self, cpu: &P, entry: usize) -> [u64; 2] {
        [&self.old[entry], &self.new[entry]].map(|field| Self::field(cpu, field) & !MARK)
    }

    /// The operation of this identity, if the descriptor is still in that use.
    pub fn operation(&self, cpu: &P, identity: u64) -> MarkedOperation {
        let words = unpacked(Self::field(cpu, &self.words));
        let [[a, c], [b, d]] = [0, 1].map(|entry| self.values(cpu, entry));
        MarkedOperation { identity, words, old: [a, b], new: [c, d] }
    }
}

impl<P: Processor, S: Storage, V: GuerraouiVariant> Guerraoui<P, S, V> {
    /// Looks at a word: its content, its content if it were plain, and whether that is
    /// sure to be decided. Otherwise [`Guerraoui::look`] says more.
    #[inline(always)]
    pub(super) fn glance(&self, cpu: &P, word: &P::Word) -> Result<(u64, u64, bool), DcasError> {
        // (1b) Acquire: as (1) in `look`; pairs with the Release (3) in `guerraoui.rs`.
        let content = cpu.load(word, Ordering::Acquire);
        if content & MARK == 0 {
            return Ok((content, content, true));
        }
        let marked = self.descriptors.behind(content)?;
        let entry = usize::from(content & SECOND != 0);
        let [old, new] = marked.values(cpu, entry);
        // (2b) Acquire: as (2h) in `look_behind`; pairs with the Release (3), (4) in
        // `guerraoui.rs`.
        let status = cpu.load(&marked.status, Ordering::Acquire);
        let usual = content & HELPS == 0 && status >> SHIFT == content & USE && status & STATE != ACTIVE;
        Ok((content, if status & STATE == SUCCESS { new } else { old }, usual))
    }

    /// Looks at a word.
    pub(super) fn look<T: Words<P> + ?Sized>(
        &self,
        cpu: &P,
        words: &T,
        number: u32,
    ) -> Result<Seen, DcasError> {
        let word = words.find(number)?;
        loop {
            // (1) Acquire: the descriptor behind the mark, or what came before the value; it
            // pairs with the Release (3) in `guerraoui.rs`.
            let content = cpu.load(word, Ordering::Acquire);
            if content & MARK == 0 {
                return Ok(Seen { content, plain: content, operation: 0, pending: false });
            }
            if let Some(seen) = self.look_behind(cpu, word, content)? {
                return Ok(seen);
            }
        }
    }

    /// Finds the plain content behind a mark. `None` if it is no longer there.
    fn look_behind(&self, cpu: &P, word: &P::Word, content: u64) -> Result<Option<Seen>, DcasError> {
        let marked = self.descriptors.behind(content)?;
        let entry = usize::from(content & SECOND != 0);
        let [old, new] = marked.values(cpu, entry);
        let (operation, status, in_use) = if content & HELPS == 0 {
            // (2h) Acquire: as (2), and what was done before the decision; pairs with the Release
            // (3), (4) in `guerraoui.rs`.
            let status = cpu.load(&marked.status, Ordering::Acquire);
            (content & IDENTITY, status, status >> SHIFT == content & USE)
        } else {
            // (2c) Acquire, twice: what was done before the decision, and what a later use has
            // written; pairs with the Release (8), and (4) in `guerraoui.rs`. The helper's own
            // status last: it says whether all this was one use.
            let operation = Descriptor::field(cpu, &marked.operation) & IDENTITY;
            let status = cpu.load(&self.descriptors.behind(operation)?.status, Ordering::Acquire); // (2c)
            let usage = cpu.load(&marked.status, Ordering::Acquire) >> SHIFT; // (2c)
            (operation, status, usage == content & USE)
        };
        let seen = |state| Seen {
            content,
            plain: if state == SUCCESS { new } else { old },
            operation,
            pending: state == ACTIVE,
        };
        if in_use && status >> SHIFT == operation & USE {
            return Ok(Some(seen(status & STATE)));
        }
        // A descriptor has been used again: before that its marks were taken out. Relaxed: not
        // before the loads that say so, which acquire; and nothing is read behind it.
        match cpu.load(word, Ordering::Relaxed) == content {
            false => Ok(None),
            // A helper's that was late: the operation has failed.
            true if in_use => Ok(Some(seen(FAILED))),
            true => Err(DcasError::Corrupt),
        }
    }
}
