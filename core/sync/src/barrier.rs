//! Trait of the barriers.

use towpath_derive::SentenceDebug;
use towpath_machine::{Arena, Processor};

use crate::{Abandoned, Waiting};

/// Reason for a barrier that was not passed.
#[derive(Clone, Copy, PartialEq, Eq, SentenceDebug)]
pub enum BarrierError {
    /// A participant that has not arrived died. These barriers cannot do without a
    /// participant, nor be used again.
    Abandoned,
    /// No participant of that number.
    NoSuchParticipant,
}

impl core::fmt::Display for BarrierError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            BarrierError::Abandoned => {
                "a participant died before it arrived: use the barrier of a world, which goes on without it"
            }
            BarrierError::NoSuchParticipant => {
                "the number of the participant is not below that for which the barrier was made: number them from 0"
            }
        })
    }
}

impl std::error::Error for BarrierError {}

impl From<Abandoned> for BarrierError {
    fn from(_: Abandoned) -> Self {
        BarrierError::Abandoned
    }
}

/// Barrier in shared memory: no participant passes before all have arrived. It can be
/// used again and again.
///
/// All-zero memory is a barrier for as many participants as there are places. A participant's state
/// between two uses lies in the barrier, not in the thread.
pub trait Barrier<P: Processor>: Sized {
    /// The name by which users choose it.
    const NAME: &'static str;

    /// A barrier for that many participants, in memory of the given arena.
    ///
    /// # Panics
    ///
    /// If there are none or more than places.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::barriers::Dissemination;
    /// use towpath_sync::{Barrier, Spinning};
    ///
    /// let barrier: Dissemination<Native, 8> = Barrier::new(&Heap, 1);
    /// assert_eq!(barrier.wait(&Native::current(), 0, &Spinning), Ok(()));
    /// ```
    fn new(arena: &impl Arena<P>, participants: usize) -> Self;

    /// Arrives as participant `me` (each number once: 0 to one less than there are) and
    /// waits for the others. Writes that a participant made before it arrived are visible to all
    /// participants afterwards.
    ///
    /// A policy that spins for a while before it sleeps spins in proportion to the number of
    /// participants that have not arrived, as far as the algorithm knows it.
    ///
    /// # Errors
    ///
    /// [`BarrierError::NoSuchParticipant`]; [`BarrierError::Abandoned`] if the wait was given up
    /// because it cannot end.
    ///
    /// ```
    /// # use std::sync::atomic::{AtomicU32, Ordering};
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::barriers::Centralized;
    /// # use towpath_sync::{Barrier, Spinning};
    /// # let barrier: Centralized<Native, 2> = Barrier::new(&Heap, 2);
    /// # let written = AtomicU32::new(0);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| {
    ///         written.store(7, Ordering::Relaxed);
    ///         barrier.wait(&Native::with_id(1), 1, &Spinning)
    ///     });
    ///     barrier.wait(&Native::with_id(0), 0, &Spinning)?;
    ///     assert_eq!(written.load(Ordering::Relaxed), 7);
    ///     Ok::<(), towpath_sync::BarrierError>(())
    /// })?;
    /// # Ok::<(), towpath_sync::BarrierError>(())
    /// ```
    fn wait<W: Waiting<P> + Clone>(&self, cpu: &P, me: usize, waiting: &W) -> Result<(), BarrierError>;
}
