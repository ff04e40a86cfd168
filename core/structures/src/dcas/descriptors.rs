//! Descriptors and marks of [`super::Guerraoui`] and [`super::Harris`]: a mark in a word
//! names a descriptor and its use, and so the participant that owns it.
//!
//! **Source.** Ours: both papers have pointers and a collector; processes that share memory have
//! numbers, and use descriptors again.
//!
//! ```text
//! mark    MARK | (the algorithm's bit) | SECOND | descriptor (16 bits) | use (45 bits)
//! ```

use towpath_machine::{Arena, Place, Processor};

use super::DcasError;
use super::places::{PLACES, Places};
use crate::Storage;

/// Part of a word: it is marked.
pub(super) const MARK: u64 = 1 << 63;
/// Part of a mark: the word is the operation's second one.
pub(super) const SECOND: u64 = 1 << 61;
/// Bits of a mark that name a descriptor and its use, and so an operation.
pub(super) const IDENTITY: u64 = SECOND - 1;
const USE_BITS: u32 = 45;
/// A use's bits in an identity.
pub(super) const USE: u64 = (1 << USE_BITS) - 1;

/// Part of a status: how far the operation is.
pub(super) const STATE: u64 = 3;
pub(super) const ACTIVE: u64 = 1;
pub(super) const SUCCESS: u64 = 2;
pub(super) const FAILED: u64 = 3;

/// The name of a descriptor's use.
pub(super) const fn identity(descriptor: usize, usage: u64) -> u64 {
    (descriptor as u64) << USE_BITS | usage & USE
}

/// The number of a participant's descriptor.
pub(super) const fn descriptor_of(participant: usize, place: usize) -> usize {
    participant * PLACES + place
}

/// Two words on the line that the arena began last.
pub(super) fn two_words<P: Processor>(arena: &impl Arena<P>) -> [P::Word; 2] {
    core::array::from_fn(|_| arena.word(Place::SameLine, 0))
}

/// All participants' descriptors.
#[repr(C)]
pub(super) struct Descriptors<P: Processor, D: Send + Sync + 'static, S: Storage> {
    participants: S::Each<Participant<P, D>>,
}

/// A participant's descriptors, and which of them are in use.
#[repr(C)]
pub(super) struct Participant<P: Processor, D> {
    pub(super) places: Places<P>,
    pub(super) descriptors: [D; PLACES],
}

impl<P: Processor, D: Send + Sync + 'static, S: Storage> Descriptors<P, D, S> {
    pub(super) fn new<A: Arena<P>>(arena: &A, participants: usize, descriptor: impl Fn(&A) -> D) -> Self {
        let participant = |_| Participant {
            places: Places::new(arena),
            descriptors: core::array::from_fn(|_| descriptor(arena)),
        };
        Descriptors { participants: S::each(participants, participant) }
    }

    /// Number of participants.
    pub(super) fn participants(&self) -> usize {
        self.participants.as_ref().len()
    }

    /// The participant of this number.
    #[inline(always)]
    pub(super) fn of(&self, me: usize) -> Result<&Participant<P, D>, DcasError> {
        self.participants.as_ref().get(me).ok_or(DcasError::UnknownParticipant)
    }

    /// The descriptor that an identity or a mark names.
    #[inline(always)]
    pub(super) fn behind(&self, identity: u64) -> Result<&D, DcasError> {
        let index = ((identity & IDENTITY) >> USE_BITS) as usize;
        let participant = self.participants.as_ref().get(index / PLACES).ok_or(DcasError::Corrupt)?;
        Ok(&participant.descriptors[index % PLACES])
    }
}
