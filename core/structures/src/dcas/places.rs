//! Places of a participant in use: by its operation, by those that its signal handlers
//! perform on top of it, and by those that they help.
//!
//! **Source.** Ours. Handlers nest: what a handler takes it has given back when the interrupted
//! code goes on. So a load and a store by the same participant are as good as one step, and no
//! locked instruction is needed: between the two a handler finds the word as it was, and leaves it
//! so.
//!
//! **Fields.** `busy`, `next`: only the participant, and its handlers.
//!
//! **Crashes.** The dead one's places stay busy, until its successor clears them
//! (`clear`).

use towpath_machine::{Arena, Ordering, Place, Processor};

use super::DcasError;

/// Number of places of a participant.
pub(super) const PLACES: usize = 16;
/// Number of places of which one is not for helping.
const OWN: u32 = 4;

/// One participant's places.
#[repr(C, align(64))]
pub struct Places<P: Processor> {
    /// A bit for each.
    busy: P::Word,
    /// Place to look at first: the one that was used longest ago.
    next: P::Word,
}

impl<P: Processor> core::fmt::Debug for Places<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Places").finish_non_exhaustive()
    }
}

impl<P: Processor> Places<P> {
    /// All of them free.
    pub fn new(arena: &impl Arena<P>) -> Self {
        Places { busy: arena.word(Place::NewLine, 0), next: arena.word(Place::SameLine, 0) }
    }

    /// Takes one of the first `count` places. For helping there is none (`None`) if few
    /// are left.
    ///
    /// # Errors
    ///
    /// [`DcasError::TooDeep`] if all are in use.
    #[inline(always)]
    pub fn take(&self, cpu: &P, count: usize, helping: bool) -> Result<Option<usize>, DcasError> {
        let count = count.clamp(1, PLACES) as u32;
        let all = u16::MAX >> (PLACES as u32 - count);
        // Relaxed, here and below: only this participant's own code; what a compiler may do is said
        // below.
        let busy = cpu.load(&self.busy, Ordering::Relaxed) as u16;
        let free = !busy & all;
        if helping && free.count_ones() <= count / OWN {
            return Ok(None);
        }
        if free == 0 {
            return Err(DcasError::TooDeep);
        }
        // The first free one from `next` on, or else the first of all.
        let next = cpu.load(&self.next, Ordering::Relaxed) as u32 % count;
        let later = free & u16::MAX << next;
        let place = if later != 0 { later } else { free }.trailing_zeros() as usize;
        cpu.store(&self.busy, u64::from(busy | 1 << place), Ordering::Relaxed);
        cpu.store(&self.next, place as u64 + 1, Ordering::Relaxed);
        // (1) SeqCst, for the compiler only: the uses of the place come after this; pairs with (2)
        // in `give` of a handler, which runs on the same processor.
        cpu.compiler_fence(Ordering::SeqCst);
        Ok(Some(place))
    }

    /// Gives a place back.
    #[inline(always)]
    pub fn give(&self, cpu: &P, place: usize) {
        // (2) SeqCst, for the compiler only: the uses of the place come before this; pairs with (1)
        // in `take`.
        cpu.compiler_fence(Ordering::SeqCst);
        // Relaxed: as in `take`.
        let busy = cpu.load(&self.busy, Ordering::Relaxed);
        cpu.store(&self.busy, busy & !(1 << place), Ordering::Relaxed);
    }

    /// Frees all places. Only for the owner of the participant's number, before its first
    /// operation.
    pub(super) fn clear(&self, cpu: &P) {
        // Relaxed: as in `take`.
        cpu.store(&self.busy, 0, Ordering::Relaxed);
    }
}
