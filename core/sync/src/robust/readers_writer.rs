//! `readers-writer`: many readers or one writer; dead ones are found out and removed.
//!
//! **Source.** Ours. Readers have places of their own, as in distributed (big-reader) locks, so
//! that they touch no line together but one that only writers write. A place names its reader's
//! process: the writer that waits for it asks whether that process lives. Writers exclude each
//! other by a lock, `L`, that survives its owners. A reader that writers have overtaken for a while
//! insists: the next writer that leaves lets it in.
//!
//! **Progress.** Blocking. A writer waits for the readers that are in, and for the writers that `L`
//! serves first. A reader waits for the writers that come within `PATIENCE`, then for two more.
//! More than `N` processes that read at one time wait for a place.
//!
//! | word | value | changed by |
//! | --- | --- | --- |
//! | `gate` | number of closings so far, above [`CLOSED`]; closed: the identity of the process that did so above them | the holder of `writers` |
//! | `dirty` | 0: the data are whole; else the identity of the writer that may have changed half | the holder of `writers` |
//! | `used` | a bit for each place that a reader ever took | readers, once each |
//! | `insisting` | not 0: a reader insists | readers; the holder of `writers` |
//! | `places[i]` | 0: free; else identity, above [`WANTS`], above [`AWAITED`], above the number of readers | the process that it names; 0 to it, by any; it to 0, by a survivor; `AWAITED`: the writer that sleeps until it is free |
//!
//! The number of closings and `AWAITED` are for sleepers: the half of a word that the kernel
//! compares is another one after each change that they wait for.
//!
//! **Enter and close.** A reader writes its place, then reads the gate; a writer closes the gate,
//! then reads the places. All four are sequentially consistent: one of them sees the other. A
//! reader that finds the gate closed clears its place again.
//!
//! **Crashes.**
//! * A reader, anywhere: its place names it. A writer that waits for the place clears it, and so
//!   does a reader that finds all places taken.
//! * A writer with `writers`, before it closed the gate, or after it opened it: `L` gives the next
//!   writer the lock; `dirty` is 0. Readers that insist look at the gate by themselves.
//! * Between closing the gate and writing `dirty`: `L` gives the next writer the lock, with the
//!   gate closed; `dirty` is 0. A reader that waits there asks whether the process that closed it
//!   lives, takes `writers` itself, and opens the gate.
//! * After writing `dirty`, before clearing it: the next writer, or the reader that finds it out,
//!   gets the lock for writing and is told ([`ReadersWriter::dead_writer`]).
//! * A writer that was told leaves without a repair: gate and `dirty` name the dead writer again,
//!   and the next one is told.
//!
//! **Memory.** `N` + 1 lines, and those of `L`.
//!
//! **Don't use it** for critical sections of a few instructions, mostly writes: a mutex is faster.
//! Not recursively: a reader that enters a second time waits for a writer that waits for it.

mod reading;
mod writing;

pub use reading::ReadHeld;
use towpath_machine::{Arena, OwnLine, Place, Processor};

use crate::Lock;
use crate::locks::Robust;

/// Usual time for which writers may overtake a reader before it insists, in nanoseconds.
const USUAL_PATIENCE: u64 = 500_000;
/// Part of a place: not in, but to be let in by the writer that leaves.
const WANTS: u64 = 1 << 31;
/// Part of a place: a writer sleeps until it is free.
const AWAITED: u64 = 1 << 30;
/// Part of a place: number of readers.
const READERS: u64 = AWAITED - 1;
/// Part of the gate: readers may not enter.
const CLOSED: u64 = 1;
/// Part of the gate: number of closings, modulo 2³¹, above `CLOSED`.
const CLOSINGS: u64 = (1 << 32) - 2;

/// Lock for many readers or one writer, with `N` places for readers (at most 64). `L`:
/// the lock of the writers. `PATIENCE`: time for which writers may overtake a reader before it
/// insists, in nanoseconds.
///
/// Threads of a process may share a place; processes don't.
#[derive(Debug)]
#[repr(C)]
pub struct ReadersWriter<
    P: Processor,
    const N: usize = 64,
    L = Robust<P>,
    const PATIENCE: u64 = USUAL_PATIENCE,
> {
    head: RwHead<P>,
    places: [OwnLine<P::Word>; N],
    writers: L,
}

#[derive(Debug)]
#[repr(C, align(64))]
struct RwHead<P: Processor> {
    gate: P::Word,
    used: P::Word,
    dirty: P::Word,
    insisting: P::Word,
}

/// State of a writer.
#[derive(Debug)]
pub struct WriteHeld<H> {
    lock: H,
    /// Identity of the dead writer whose half-changed data this one found; 0: none.
    dead: u32,
}

impl<H> WriteHeld<H> {
    /// The state of the writers' lock, and the identity of the dead writer.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Spinning, robust::ReadersWriter};
    /// let (cpu, table) = (Native::current(), ReadersWriter::<Native>::new(&Heap));
    /// let (_lock, dead) = table.write(&cpu, &Spinning, Deadline::NEVER)?.into_parts();
    /// assert_eq!(dead, 0); // there was no dead writer
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[inline(always)]
    pub fn into_parts(self) -> (H, u32) {
        (self.lock, self.dead)
    }

    /// The state of these parts.
    ///
    /// # Safety
    ///
    /// They came from [`WriteHeld::into_parts`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Spinning, robust::{ReadersWriter, WriteHeld}};
    /// let (cpu, table) = (Native::current(), ReadersWriter::<Native>::new(&Heap));
    /// let (lock, dead) = table.write(&cpu, &Spinning, Deadline::NEVER)?.into_parts();
    /// // SAFETY: they came from `into_parts`.
    /// table.write_unlock(&cpu, &Spinning, unsafe { WriteHeld::from_parts(lock, dead) });
    /// assert!(table.write(&cpu, &Spinning, Deadline::PAST).is_ok());
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[inline(always)]
    #[allow(unsafe_code)]
    pub unsafe fn from_parts(lock: H, dead: u32) -> Self {
        WriteHeld { lock, dead }
    }
}

/// Rest of a release after writing.
#[derive(Debug)]
pub struct Unreleased<H> {
    held: WriteHeld<H>,
    step: ReleaseStep,
}

/// Last step of a release after writing that was made.
#[derive(Debug)]
enum ReleaseStep {
    /// None.
    None,
    /// The gate is open, on which no waiter slept.
    Opened,
    /// The gate is open, and waiters sleep on it.
    OpenedBeforeSleepers,
}

impl<H> Unreleased<H> {
    /// All of a release.
    pub(crate) const fn all(held: WriteHeld<H>) -> Self {
        Unreleased { held, step: ReleaseStep::None }
    }
}

/// Outcome of an acquisition for reading.
#[derive(Debug)]
pub enum Access<H> {
    /// Acquired for reading.
    Shared(ReadHeld),
    /// A writer died, and the data are half changed: acquired for writing, to repair
    /// them.
    Exclusive(WriteHeld<H>),
}

const fn identity(value: u64) -> u32 {
    (value >> 32) as u32 & 0x7fff_ffff
}

/// Number of closings in the gate, after another one.
const fn closings_after(gate: u64) -> u64 {
    gate.wrapping_add(2) & CLOSINGS
}

const fn above(identity: u32) -> u64 {
    (identity as u64) << 32
}

impl<P: Processor, const N: usize, L: Lock<P>, const PATIENCE: u64> ReadersWriter<P, N, L, PATIENCE> {
    /// The name by which users choose it.
    pub const NAME: &'static str = "readers-writer";

    /// A free lock.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::{Deadline, Spinning, robust::ReadersWriter};
    ///
    /// let table = ReadersWriter::<Native, 4>::new(&Heap);
    /// assert!(table.read(&Native::current(), &Spinning, Deadline::PAST).is_ok());
    /// ```
    pub fn new(arena: &impl Arena<P>) -> Self {
        const { assert!(N > 0 && N <= 64, "from 1 to 64 places") };
        const { assert!(L::KNOWS_OWNER, "writers need a lock that survives its owner") };
        ReadersWriter {
            head: RwHead {
                gate: arena.word(Place::NewLine, 0),
                used: arena.word(Place::SameLine, 0),
                dirty: arena.word(Place::SameLine, 0),
                insisting: arena.word(Place::SameLine, 0),
            },
            places: core::array::from_fn(|_| OwnLine(arena.word(Place::NewLine, 0))),
            writers: L::new(arena),
        }
    }

    /// Lock of the writers, to be prepared in a segment ([`Lock::prepare`]).
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Lock, robust::ReadersWriter};
    /// let table = ReadersWriter::<Native>::new(&Heap);
    /// // SAFETY: no thread uses it yet, and it stays where it is while it is held.
    /// unsafe { table.writers().prepare() };
    /// assert!(table.writers().try_lock(&Native::current()).is_some());
    /// ```
    pub fn writers(&self) -> &L {
        &self.writers
    }
}
