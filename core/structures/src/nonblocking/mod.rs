//! Type-stable memory, and structures in it that are shared by threads, by processes and
//! by their signal handlers: no lock, no allocation after they are made, and no descriptor lost
//! when a process dies in the middle. One structure, one file.
//!
//! **Source.** Greenwald & Cheriton 1996: each update is one double compare-and-swap, of a version
//! number and of one link ([`Figure 2`](List)). The DCAS that it is made of is a parameter
//! ([`crate::dcas`]); with one that blocks ([`crate::dcas::Locked`], [`crate::dcas::Bershad`]) the
//! structures block as well.
//!
//! | structure | what |
//! | --- | --- |
//! | [`Pool`] | the type-stable memory itself, and its audit |
//! | [`Stack`], [`Fifo`] | linked |
//! | [`ArrayStack`], [`ArrayFifo`] | in an array: no descriptors, so nothing to recover |
//! | [`List`] | in the order of the keys, with deletion from the middle |
//! | [`HashMap`] | a list and a version per bucket |
//! | [`PriorityQueue`] | ready and delay queues |
//! | [`PageMap`] | three levels, 128 × 128 × 64 |
//! | [`DependencyMap`] | which object depends on which |
//! | [`HarrisMichaelList`], [`ValoisList`] | compare-and-swap only, to compare with |
//!
//! Every operation takes an [`Actor`]: the participant, its processor, and its way of backing off.
//! After a death a survivor calls [`Recover::recover`]; a successor does so before it begins.

mod array_fifo;
mod array_stack;
mod audit;
mod chains;
mod dependency_map;
mod fifo;
mod harris_michael;
mod hash_map;
mod list;
mod page_map;
mod plain;
mod pool;
mod priority_queue;
mod stack;
mod valois_list;

pub use array_fifo::ArrayFifo;
pub use array_stack::ArrayStack;
pub use audit::Audit;
pub use dependency_map::DependencyMap;
pub use fifo::Fifo;
pub use harris_michael::HarrisMichaelList;
pub use hash_map::HashMap;
pub use list::List;
pub use page_map::PageMap;
pub use pool::{HeldNode, Pool};
pub use priority_queue::PriorityQueue;
pub use stack::Stack;
pub use valois_list::ValoisList;

use towpath_derive::SentenceDebug;
use towpath_machine::Processor;

use crate::dcas::{Actor, Change, DcasError, DoubleCas, Words};
use towpath_sync::Waiting;

/// Reason for an operation that was not done.
#[derive(Clone, Copy, PartialEq, Eq, SentenceDebug)]
pub enum StableError {
    /// No room: all descriptors are in use.
    Exhausted,
    /// The participant's number is not below the number of participants.
    UnknownParticipant,
    /// The operation was begun in a signal handler on top of more interrupted ones than
    /// there is provision for (with locks: on top of one).
    TooDeep,
    /// The value has more bits than the DCAS leaves to a word, or is the one that stands
    /// for "nothing".
    TooLarge,
    /// Memory has values that this algorithm cannot have written.
    Corrupt,
    /// The wait was given up: the participant that it waited for is dead. Only over a
    /// DCAS that is blocking.
    Abandoned,
    /// The structure changes words that this DCAS can't change together:
    /// [`crate::dcas::Adjacent`] is for a [`Stack`] only, and for processors that have its
    /// instruction.
    Unsuited,
}

impl core::fmt::Display for StableError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            StableError::Exhausted => "no descriptor is free: take something out, run an audit if a participant has died, or make the structure larger",
            StableError::UnknownParticipant => "the participant's number is not below the number of participants that the structure was made for: make it for more",
            StableError::TooDeep => "too many interrupted operations below this one: let handlers be interrupted less deep, or use a DCAS without locks",
            StableError::TooLarge => "the value does not fit: use smaller ones, or a DCAS that leaves more bits to a word",
            StableError::Corrupt => "the memory holds what no operation writes, so a stray write has hit it: make the structure anew",
            StableError::Unsuited => "this structure, or this processor, needs another DCAS: `Adjacent` is for a stack, where there is an instruction for two words",
            StableError::Abandoned => "a participant died in the middle of an operation that all others wait for: make the structure anew, or use a DCAS without locks",
        })
    }
}

impl std::error::Error for StableError {}

impl From<DcasError> for StableError {
    fn from(error: DcasError) -> Self {
        match error {
            DcasError::TooLarge => StableError::TooLarge,
            DcasError::SameWord | DcasError::Corrupt => StableError::Corrupt,
            DcasError::UnknownParticipant => StableError::UnknownParticipant,
            DcasError::TooDeep => StableError::TooDeep,
            DcasError::Abandoned => StableError::Abandoned,
            DcasError::Unsuited => StableError::Unsuited,
        }
    }
}

/// Work of survivors after a death.
///
/// ```
/// use towpath_machine::{Heap, Native};
/// use towpath_structures::dcas::{Actor, Guerraoui};
/// use towpath_structures::nonblocking::{Recover, StableError, Stack};
///
/// let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
/// let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
/// let stack = Stack::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
/// stack.push(&actor, 7)?;
/// // Participant 1 was killed.
/// let audit = stack.recover(&actor, |participant| participant == 1)?;
/// assert_eq!(audit.pending, 0, "else: audit again");
/// assert_eq!(stack.pop(&actor)?, Some(7));
/// # Ok::<(), StableError>(())
/// ```
pub trait Recover<P: Processor> {
    /// Ends the operations that dead participants have begun (they have happened then, or
    /// never will), and frees the descriptors that these held. Any survivor may do that at any
    /// time, while the others go on; again, if something is [`Audit::pending`].
    ///
    /// # Errors
    ///
    /// See [`StableError`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{Fifo, Recover, StableError};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// let queue = Fifo::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// queue.push(&Actor { cpu: &cpu, wait: &wait, me: 1 }, 7)?; // and dies
    /// let survivor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// assert_eq!(queue.recover(&survivor, |participant| participant == 1)?.pending, 0);
    /// assert_eq!(queue.pop(&survivor)?, Some(7)); // it has happened
    /// # Ok::<(), StableError>(())
    /// ```
    fn recover<W: Waiting<P>>(
        &self,
        actor: &Actor<'_, P, W>,
        is_dead: impl Fn(usize) -> bool,
    ) -> Result<Audit, StableError>;

    /// Numbers of descriptors that are free, and in the structure. Exact if no
    /// participant acts meanwhile: then they are all there are, unless one has died and there
    /// was no recovery.
    ///
    /// # Errors
    ///
    /// See [`StableError`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_structures::dcas::{Actor, Guerraoui};
    /// # use towpath_structures::nonblocking::{Recover, StableError, Stack};
    /// # let (cpu, wait) = (Native::with_id(0), towpath_sync::Spinning);
    /// # let actor = Actor { cpu: &cpu, wait: &wait, me: 0 };
    /// let stack = Stack::<Native, Guerraoui<Native>>::new(&Heap, 100, 2);
    /// stack.push(&actor, 7)?;
    /// let inventory = stack.inventory(&actor)?;
    /// assert_eq!(inventory.free + inventory.reachable, inventory.all); // none is lost
    /// # Ok::<(), StableError>(())
    /// ```
    fn inventory<W: Waiting<P>>(&self, actor: &Actor<'_, P, W>) -> Result<Inventory, StableError>;
}

/// Numbers of descriptors by their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inventory {
    /// Nodes in the free lists, or never used.
    pub free: usize,
    /// Nodes in the structure.
    pub reachable: usize,
    /// All.
    pub all: usize,
}

/// Maximum number of looks at a whole structure that begin again because it changes.
const ATTEMPTS: u32 = 64;

/// A version number's successor: they have 32 bits.
#[inline(always)]
const fn next_version(version: u64) -> u64 {
    (version as u32).wrapping_add(1) as u64
}

/// The number of a descriptor, as read from a word.
#[inline(always)]
fn number(value: u64) -> Result<u32, StableError> {
    u32::try_from(value).map_err(|_| StableError::Corrupt)
}

/// Participants that were dead when a recovery began.
///
/// One that dies later is left to the next recovery: it may have begun an operation that is not
/// ended, which moves a descriptor when it is.
struct DeadAtFirst(Vec<bool>);

impl DeadAtFirst {
    fn has(&self, participant: usize) -> bool {
        self.0.get(participant).copied().unwrap_or(false)
    }
}

/// [`DoubleCas::recover`] for all dead participants, each of which is asked for once.
fn recover_all<P: Processor, D: DoubleCas<P>, W: Waiting<P>, T: Words<P> + ?Sized>(
    dcas: &D,
    actor: &Actor<'_, P, W>,
    words: &T,
    is_dead: impl Fn(usize) -> bool,
) -> Result<DeadAtFirst, StableError> {
    let dead = DeadAtFirst((0..dcas.participants()).map(is_dead).collect());
    (0..dcas.participants())
        .filter(|participant| dead.has(*participant))
        .try_for_each(|dead| dcas.recover(actor, words, dead))?;
    Ok(dead)
}

/// Both changes, or none.
#[inline(always)]
fn swap_both<P: Processor, D: DoubleCas<P>, W: Waiting<P>, T: Words<P> + ?Sized>(
    dcas: &D,
    actor: &Actor<'_, P, W>,
    words: &T,
    first: (u32, u64, u64),
    second: (u32, u64, u64),
) -> Result<bool, StableError> {
    let change = |(word, old, new)| Change { word, old, new };
    Ok(dcas.dcas(actor, words, [change(first), change(second)])?)
}
