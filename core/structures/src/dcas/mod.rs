//! Double compare-and-swap on two independent words, as a capability with several
//! implementations: one algorithm, one file. [`for_each_dcas!`](crate::for_each_dcas) is the list
//! of them.
//!
//! **Source.** Greenwald & Cheriton 1996, Figure 1: DCAS writes two words if both hold what is
//! expected. Processors do not have it (the Motorola 68040 had: CAS2), so it is made of
//! compare-and-swap here, except by [`Hardware`].
//!
//! Words are named by number, since processes map a segment at different addresses and a helper
//! must find the words of another one's operation: the words' owner says which is which
//! ([`Words`]). A word that DCAS may change holds, beside its value, bits of the implementation: it
//! is read by [`DoubleCas::read`], begins as a plain number not above [`DoubleCas::MAX`] (zeros are
//! zero), and must not be written but by [`DoubleCas::dcas`] and [`DoubleCas::write`].
//!
//! | implementation | non-blocking | locked instructions, uncontended | values | readers see |
//! | --- | --- | --- | --- | --- |
//! | [`Guerraoui`] | yes | 3 (and up to 2 that are made later, if no other participant changes the words meanwhile) | 32 bits | only what was decided |
//! | [`Harris`] | yes | 7 | 63 bits | only what was decided |
//! | [`Locked`] | no | 2 (1 if one lock covers both words) | 64 bits | only what was decided |
//! | [`Bershad`] | no; survivors of a dead holder go on | 1 | 64 bits | **tentative values too** |
//! | [`RolledBack`] | if the system rolls back a holder that does not run | 1 | 64 bits | only what was decided |
//! | [`Adjacent`] | yes | 1, and only on two words beside each other | 64 bits | only what was decided |
//! | [`Hardware`] | as the machine has it | as the machine has it | 64 bits | only what was decided |
//!
//! **Signals.** An operation of [`Guerraoui`], [`Harris`], [`Adjacent`] and [`Hardware`] may be
//! interrupted at any instruction by a handler that performs operations under the same
//! participant's number. Those with locks answer [`DcasError::TooDeep`] then, or wait for ever.

mod bershad;
mod cas2;
mod descriptors;
mod guerraoui;
mod hardware;
mod harris;
mod list;
mod locked;
#[doc(hidden)]
pub mod places;
mod plain;
mod rolled_back;

pub use bershad::Bershad;
pub use cas2::{Adjacent, Neighbours};
pub use guerraoui::{Guerraoui, GuerraouiVariant, Tagged};
pub use hardware::{AnyTwo, ByInstruction, Hardware, Instruction};
pub use harris::Harris;
pub use locked::Locked;
pub use rolled_back::RolledBack;

use towpath_derive::SentenceDebug;
use towpath_machine::{Arena, Processor};

use towpath_sync::{Abandoned, Waiting};

/// Reason for an operation that was not done.
#[derive(Clone, Copy, PartialEq, Eq, SentenceDebug)]
pub enum DcasError {
    /// The value is above [`DoubleCas::MAX`].
    TooLarge,
    /// Both changes are of the same word.
    SameWord,
    /// The participant's number is not below the number of participants.
    UnknownParticipant,
    /// The operation was begun in a signal handler on top of as many interrupted ones as
    /// there is provision for (with locks: on top of one).
    TooDeep,
    /// Memory has values that this algorithm cannot have written.
    Corrupt,
    /// The wait was given up: the participant that it waited for is dead. Only from
    /// implementations that are blocking.
    Abandoned,
    /// The words do not lie beside each other, or the processor can't change two words at
    /// once. Only from [`Adjacent`].
    Unsuited,
}

impl core::fmt::Display for DcasError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            DcasError::TooLarge => "the value has more bits than this DCAS leaves to a word: use smaller values, or another DCAS",
            DcasError::SameWord => "a double compare-and-swap takes two different words: use a compare-and-swap",
            DcasError::UnknownParticipant => "the participant's number is not below the number of participants that this was made for: make it for more",
            DcasError::TooDeep => "too many interrupted operations below this one: let handlers be interrupted less deep, or use a DCAS without locks",
            DcasError::Corrupt => "the memory holds what no operation writes, so a stray write has hit it: make the structure anew",
            DcasError::Unsuited => "this DCAS changes two words beside each other, by an instruction that not every processor has: use another DCAS here",
            DcasError::Abandoned => "a participant died in the middle of an operation that all others wait for: make the structure anew, or use a DCAS without locks",
        })
    }
}

impl std::error::Error for DcasError {}

impl From<Abandoned> for DcasError {
    fn from(_: Abandoned) -> Self {
        DcasError::Abandoned
    }
}

/// Participant that acts, and its way of waiting and of backing off.
///
/// Participants are numbered from 0; of those that act at one time no two have the same number
/// `me`, except a signal handler and the thread that it interrupts.
#[derive(Debug)]
pub struct Actor<'a, P, W> {
    /// The acting processor.
    pub cpu: &'a P,
    /// Way of waiting, and of backing off from contention.
    pub wait: &'a W,
    /// The participant's number.
    pub me: usize,
}

impl<P: Processor, W: Waiting<P>> Actor<'_, P, W> {
    /// Backs off from contention once more.
    #[inline]
    pub(crate) fn back_off(&self, round: &mut u32) {
        crate::back_off(self.cpu, self.wait, round);
    }
}

/// Owner of the words that DCAS changes.
pub trait Words<P: Processor> {
    /// The word of this number, always the same one. `None` if there is none: a number
    /// may have been read from shared memory.
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_structures::dcas::Words;
    ///
    /// let words = [5, 7].map(Native::word);
    /// assert!(Words::<Native>::word(&words[..], 1).is_some());
    /// assert!(Words::<Native>::word(&words[..], 2).is_none());
    /// ```
    fn word(&self, number: u32) -> Option<&P::Word>;

    /// [`Words::word`], where there must be one.
    ///
    /// # Errors
    ///
    /// [`DcasError::Corrupt`] if there is none.
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_structures::dcas::{DcasError, Words};
    ///
    /// let words = [5, 7].map(Native::word);
    /// let number = 1 << 20; // read from memory that a stray write has hit
    /// assert_eq!(Words::<Native>::find(&words[..], number).err(), Some(DcasError::Corrupt));
    /// ```
    #[inline(always)]
    fn find(&self, number: u32) -> Result<&P::Word, DcasError> {
        self.word(number).ok_or(DcasError::Corrupt)
    }
}

/// Words in a row.
impl<P: Processor> Words<P> for [P::Word] {
    #[inline(always)]
    fn word(&self, number: u32) -> Option<&P::Word> {
        self.get(number as usize)
    }
}

/// New value of a word, and the condition for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The word's number.
    pub word: u32,
    /// The value that it must have.
    pub old: u64,
    /// The value that it gets.
    pub new: u64,
}

/// A double compare-and-swap.
///
/// All the words that one of these ever changes belong to one [`Words`]. All-zero memory of one
/// over [`InPlace`](crate::InPlace) storage is ready for use. The operations of [`Bershad`] aside,
/// they are linearizable, with accesses that acquire and release.
///
/// ```
/// use towpath_machine::{Arena, Heap, Native, Place};
/// use towpath_structures::dcas::{Actor, Change, DcasError, DoubleCas, Guerraoui};
///
/// let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
/// let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
/// let dcas = Guerraoui::<Native>::new(&Heap, 2);
/// let words = [5, 7].map(|value| Arena::<Native>::word(&Heap, Place::NewLine, value));
/// let changes = [Change { word: 0, old: 5, new: 6 }, Change { word: 1, old: 7, new: 8 }];
/// assert!(dcas.dcas(&actor, &words[..], changes)?);
/// assert!(!dcas.dcas(&actor, &words[..], changes)?, "they have other values now");
/// assert_eq!(dcas.read(&actor, &words[..], 1)?, 8);
/// # Ok::<(), DcasError>(())
/// ```
pub trait DoubleCas<P: Processor>: Sized + Send + Sync + 'static {
    /// The name by which users choose it.
    const NAME: &'static str;
    /// True if a participant that stops in the middle of an operation can hold up the
    /// others.
    const BLOCKING: bool;
    /// The largest value that a word can have.
    const MAX: u64;
    /// True if it can change only two words that lie beside each other.
    const ADJACENT: bool = false;

    /// Makes one for so many participants, in memory of the given arena.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_structures::dcas::{DoubleCas, Harris};
    ///
    /// let dcas = Harris::<Native>::new(&Heap, 3);
    /// assert_eq!(dcas.participants(), 3);
    /// ```
    fn new(arena: &impl Arena<P>, participants: usize) -> Self;

    /// Number of participants that it is for.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Change, DcasError, DoubleCas, Guerraoui};
    /// let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let changes = [Change { word: 0, old: 5, new: 6 }, Change { word: 1, old: 7, new: 8 }];
    /// let (dcas, words) = (Guerraoui::<Native>::new(&Heap, 2), [5, 7].map(Native::word));
    /// let third = Actor { cpu: &cpu, wait: &wait, me: dcas.participants() };
    /// let refused = dcas.dcas(&third, &words[..], changes);
    /// assert_eq!(refused, Err(DcasError::UnknownParticipant)); // they count from 0
    /// ```
    fn participants(&self) -> usize;

    /// A word's value. Never waits for an operation that is under way, except in
    /// [`Locked`].
    ///
    /// # Errors
    ///
    /// See [`DcasError`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, DcasError, DoubleCas, Locked};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// let (dcas, words) = (Locked::<Native>::new(&Heap, 2), [5, 7].map(Native::word));
    /// assert_eq!(dcas.read(&actor, &words[..], 1)?, 7);
    /// # Ok::<(), DcasError>(())
    /// ```
    fn read<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        word: u32,
    ) -> Result<u64, DcasError>;

    /// Gives a value to a word that no operation can change now: in a node that is not
    /// linked, say. Others may still look at it, and their operations that take it for what it was
    /// will fail.
    ///
    /// # Errors
    ///
    /// See [`DcasError`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, DcasError, DoubleCas, Guerraoui};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// let (dcas, words) = (Guerraoui::<Native>::new(&Heap, 2), [5, 7].map(Native::word));
    /// dcas.write(&actor, &words[..], 1, 8)?; // no other participant changes it now
    /// assert_eq!(dcas.read(&actor, &words[..], 1)?, 8);
    /// let large = dcas.write(&actor, &words[..], 1, u64::MAX);
    /// assert_eq!(large, Err(DcasError::TooLarge));
    /// # Ok::<(), DcasError>(())
    /// ```
    fn write<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        word: u32,
        value: u64,
    ) -> Result<(), DcasError>;

    /// Makes both changes if both words have the values that they must have, in one step;
    /// otherwise none. Returns whether it did.
    ///
    /// # Errors
    ///
    /// See [`DcasError`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Change, DcasError, DoubleCas, Harris};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// let (dcas, accounts) = (Harris::<Native>::new(&Heap, 2), [30, 70].map(Native::word));
    /// let from = Change { word: 0, old: 30, new: 20 };
    /// let to = Change { word: 1, old: 70, new: 80 };
    /// assert!(dcas.dcas(&actor, &accounts[..], [from, to])?); // their sum is always the same
    /// let [a, b] = [0, 1].map(|account| dcas.read(&actor, &accounts[..], account));
    /// assert_eq!((a?, b?), (20, 80));
    /// # Ok::<(), DcasError>(())
    /// ```
    fn dcas<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        changes: [Change; 2],
    ) -> Result<bool, DcasError>;

    /// Ends the operations that a dead participant has begun: each has happened then, or
    /// never will. Any number of survivors may do that at a time, while others go on. A successor
    /// under the same number does it before its first operation (`dead` being its own number), and
    /// is the only one from then on that uses what the dead one had.
    ///
    /// # Errors
    ///
    /// See [`DcasError`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, DcasError, DoubleCas, Guerraoui};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// let (dcas, words) = (Guerraoui::<Native>::new(&Heap, 2), [5, 7].map(Native::word));
    /// dcas.recover(&actor, &words[..], 1)?; // participant 1 was killed
    /// assert_eq!(dcas.read(&actor, &words[..], 0)?, 5); // it had begun nothing
    /// # Ok::<(), DcasError>(())
    /// ```
    fn recover<W: Waiting<P>, T: Words<P> + ?Sized>(
        &self,
        actor: &Actor<'_, P, W>,
        words: &T,
        dead: usize,
    ) -> Result<(), DcasError>;
}

/// The changes in the order of their words' numbers, if they are valid.
#[inline(always)]
fn in_order(changes: [Change; 2], max: u64) -> Result<[Change; 2], DcasError> {
    let [a, b] = changes;
    if a.word == b.word {
        return Err(DcasError::SameWord);
    }
    if a.old > max || a.new > max || b.old > max || b.new > max {
        return Err(DcasError::TooLarge);
    }
    Ok(if a.word < b.word { [a, b] } else { [b, a] })
}

/// The numbers of an operation's two words, in one word.
#[inline(always)]
const fn packed(words: [u32; 2]) -> u64 {
    words[0] as u64 | (words[1] as u64) << 32
}

/// The two numbers that [`packed`] has put into one word.
#[inline(always)]
const fn unpacked(words: u64) -> [u32; 2] {
    [words as u32, (words >> 32) as u32]
}
