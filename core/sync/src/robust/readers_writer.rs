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

pub use reading::ReadHeld;
use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use crate::locks::Robust;
use crate::turns::{TURN, Turns};
use crate::{Deadline, Lock, LockError, PARKED, Waiting};

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

    /// Acquires for writing, until the deadline.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`]; those of the writers' lock.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Spinning, robust::ReadersWriter};
    /// let (cpu, table) = (Native::current(), ReadersWriter::<Native>::new(&Heap));
    /// let held = table.write(&cpu, &Spinning, Deadline::NEVER)?;
    /// assert!(table.read(&cpu, &Spinning, Deadline::PAST).is_err());
    /// table.write_unlock(&cpu, &Spinning, held);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[inline]
    pub fn write<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
    ) -> Result<WriteHeld<L::Held>, LockError> {
        self.close(cpu, wait, deadline)
    }

    /// Acquires for writing if no other thread is in.
    ///
    /// # Errors
    ///
    /// The writers' lock if only readers are in: then the gate is closed.
    #[inline(always)]
    pub(crate) fn write_at_once(
        &self,
        cpu: &P,
        identity: u32,
    ) -> Result<WriteHeld<L::Held>, Option<L::Held>> {
        let Some(lock) = self.writers.try_lock_as(cpu, identity) else { return Err(None) };
        let dead = self.close_gate(cpu, identity);
        if self.next_reader(cpu, &mut self.used_places(cpu)).is_some() {
            return Err(Some(lock));
        }
        self.begin_changes(cpu, identity);
        Ok(WriteHeld { lock, dead })
    }

    /// Goes on where [`ReadersWriter::write_at_once`] could not.
    ///
    /// # Errors
    ///
    /// As [`ReadersWriter::write`].
    pub(crate) fn write_after<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
        lock: Option<L::Held>,
    ) -> Result<WriteHeld<L::Held>, LockError> {
        match lock {
            None => self.close(cpu, wait, deadline),
            // Relaxed: under the writers' lock.
            Some(lock) => {
                let dead = cpu.load(&self.head.dirty, Ordering::Relaxed) as u32;
                self.enter(cpu, wait, deadline, lock, dead)
            }
        }
    }

    /// Acquires the writers' lock, closes the gate, and waits for the readers that are
    /// in.
    fn close<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
    ) -> Result<WriteHeld<L::Held>, LockError> {
        let mut lock = self.writers.lock_until(cpu, wait, deadline)?;
        if L::owner_died(&lock) {
            // `dirty` says whether it could have changed the data.
            self.writers.make_consistent(cpu, &mut lock);
        }
        let dead = self.close_gate(cpu, wait.identity());
        self.enter(cpu, wait, deadline, lock, dead)
    }

    /// Closes the gate.
    ///
    /// Returns the identity of the writer that may have left the data half changed, or 0.
    #[inline(always)]
    fn close_gate(&self, cpu: &P, identity: u32) -> u32 {
        // Relaxed: under the writers' lock.
        let dead = cpu.load(&self.head.dirty, Ordering::Relaxed) as u32;
        let me = above(identity) | CLOSED;
        // Relaxed: only the holder of the writers' lock changes it, but for the mark of sleepers.
        let mut seen = cpu.load(&self.head.gate, Ordering::Relaxed);
        loop {
            let closed = me | closings_after(seen) | seen & PARKED;
            // (W3) SeqCst: before the look at the places (W4), in one total order with (W2), (W1).
            match cpu.compare_exchange(&self.head.gate, seen, closed, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return dead,
                Err(now) => seen = now,
            }
        }
    }

    /// Waits for the readers that are in, with the gate closed.
    fn enter<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
        lock: L::Held,
        dead: u32,
    ) -> Result<WriteHeld<L::Held>, LockError> {
        if self.await_readers(cpu, wait, deadline).is_err() {
            self.open(cpu, wait, dead);
            self.writers.unlock(cpu, wait, lock);
            return Err(LockError::TimedOut);
        }
        self.begin_changes(cpu, wait.identity());
        Ok(WriteHeld { lock, dead })
    }

    /// Says that this process may change the data from here on.
    #[inline(always)]
    fn begin_changes(&self, cpu: &P, identity: u32) {
        // Relaxed: read under the writers' lock, by a survivor after the kernel has told it of this
        // process's death, before which all of its stores were made.
        cpu.store(&self.head.dirty, identity.into(), Ordering::Relaxed);
        // (W14) SeqCst, for the compiler: the store before the changes of the data; pairs with the
        // kernel's order of all stores of the dead before their death.
        cpu.compiler_fence(Ordering::SeqCst);
    }

    /// Waits until no reader is in; removes the dead.
    #[inline]
    fn await_readers<W: Waiting<P>>(&self, cpu: &P, wait: &W, deadline: Deadline) -> Result<(), LockError> {
        let mut used = self.used_places(cpu);
        while let Some(place) = self.next_reader(cpu, &mut used) {
            self.await_place(cpu, wait, deadline, place)?;
        }
        Ok(())
    }

    /// Places that readers have ever taken, a bit for each.
    #[inline(always)]
    fn used_places(&self, cpu: &P) -> u64 {
        // (W4) SeqCst: after the gate (W3), in one total order with (W2), (W11), as are the places
        // below.
        cpu.load(&self.head.used, Ordering::SeqCst) & u64::MAX >> (64 - N)
    }

    /// Next place with a reader that is in, among those left to look at.
    #[inline(always)]
    fn next_reader(&self, cpu: &P, used: &mut u64) -> Option<usize> {
        while *used != 0 {
            let place = used.trailing_zeros() as usize;
            *used &= *used - 1;
            // (W4b) SeqCst: as (W4), in the total order; Acquire: pairs with the Release (W12).
            let value = cpu.load(&self.places[place].0, Ordering::SeqCst);
            if value != 0 && value & WANTS == 0 {
                return Some(place);
            }
        }
        None
    }

    #[cold]
    fn await_place<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
        place: usize,
    ) -> Result<(), LockError> {
        let word = &self.places[place].0;
        let mut turns = Turns::new(cpu, deadline, TURN);
        loop {
            // (W4c) Acquire: as (W4b); pairs with the Release (W12).
            let value = cpu.load(word, Ordering::Acquire);
            if value == 0 || value & WANTS != 0 {
                return Ok(());
            }
            if turns.is_time_to_ask(cpu) && !wait.is_alive(identity(value)) {
                // Relaxed: the dead do nothing any more, and what it read came before its death was
                // known.
                let _ = cpu.compare_exchange(word, value, 0, Ordering::Relaxed, Ordering::Relaxed);
                continue;
            }
            if wait.parks() && value & AWAITED == 0 {
                // Relaxed: a mark; the next look is the one that counts.
                let marked = value | AWAITED;
                let _ = cpu.compare_exchange(word, value, marked, Ordering::Relaxed, Ordering::Relaxed);
                continue;
            }
            turns.wait(cpu, wait, word, value & !PARKED)?;
        }
    }

    /// Releases after writing. Data that a dead writer left and this one did not repair
    /// ([`ReadersWriter::make_consistent`]) are left to the next one.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Spinning, robust::ReadersWriter};
    /// let (cpu, table) = (Native::current(), ReadersWriter::<Native>::new(&Heap));
    /// let held = table.write(&cpu, &Spinning, Deadline::NEVER)?;
    /// table.write_unlock(&cpu, &Spinning, held);
    /// assert!(table.read(&cpu, &Spinning, Deadline::PAST).is_ok());
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[inline]
    pub fn write_unlock<W: Waiting<P>>(&self, cpu: &P, wait: &W, held: WriteHeld<L::Held>) {
        self.end_changes(cpu, held.dead);
        self.open(cpu, wait, held.dead);
        self.writers.unlock(cpu, wait, held.lock);
    }

    /// Releases after writing if no other thread waits, and there is nothing to tell.
    ///
    /// Returns what is left to do.
    #[inline(always)]
    pub(crate) fn write_unlock_at_once(
        &self,
        cpu: &P,
        held: WriteHeld<L::Held>,
    ) -> Option<Unreleased<L::Held>> {
        if held.dead != 0 {
            return Some(Unreleased::all(held));
        }
        self.end_changes(cpu, 0);
        let step =
            if self.open_gate(cpu, 0) { ReleaseStep::OpenedBeforeSleepers } else { ReleaseStep::Opened };
        let WriteHeld { lock, dead } = held;
        let lock = match step {
            ReleaseStep::Opened if !self.insists(cpu) => self.writers.unlock_at_once(cpu, lock)?,
            _ => lock,
        };
        Some(Unreleased { held: WriteHeld { lock, dead }, step })
    }

    /// Goes on where [`ReadersWriter::write_unlock_at_once`] could not.
    pub(crate) fn write_unlock_after<W: Waiting<P>>(&self, cpu: &P, wait: &W, rest: Unreleased<L::Held>) {
        let Unreleased { held, step } = rest;
        let sleepers = match step {
            ReleaseStep::None => return self.write_unlock(cpu, wait, held),
            ReleaseStep::Opened => false,
            ReleaseStep::OpenedBeforeSleepers => true,
        };
        self.after_opening(cpu, wait, sleepers);
        self.writers.unlock(cpu, wait, held.lock);
    }

    #[inline(always)]
    fn end_changes(&self, cpu: &P, dead: u32) {
        // (W15) Release: the changes of the data before the store, as seen by a survivor; pairs
        // with the kernel's order of all stores of the dead before their death.
        cpu.store(&self.head.dirty, dead.into(), Ordering::Release);
    }

    /// Opens the gate, or leaves it closed in the name of a dead writer; lets in the
    /// readers that insist.
    #[inline]
    fn open<W: Waiting<P>>(&self, cpu: &P, wait: &W, dead: u32) {
        let sleepers = self.open_gate(cpu, dead);
        if dead == 0 {
            self.after_opening(cpu, wait, sleepers);
        } else if sleepers {
            wait.wake_all(cpu, &self.head.gate);
        }
    }

    /// Opens the gate, or leaves it closed in the name of a dead writer. Returns whether
    /// waiters sleep on it.
    #[inline(always)]
    fn open_gate(&self, cpu: &P, dead: u32) -> bool {
        // Relaxed: as in `close_gate`.
        let closings = cpu.load(&self.head.gate, Ordering::Relaxed);
        let gate = match dead {
            0 => closings & CLOSINGS,
            dead => above(dead) | closings_after(closings) | CLOSED,
        };
        // (W5) SeqCst: before the look for readers that insist (W8), in one total order with (W7);
        // Release: pairs with the Acquire (W1), (W6).
        cpu.swap(&self.head.gate, gate, Ordering::SeqCst) & PARKED != 0
    }

    /// Returns whether readers insist, after the gate was opened.
    #[inline(always)]
    fn insists(&self, cpu: &P) -> bool {
        // (W8) SeqCst: as (W5), in the total order with (W7).
        cpu.load(&self.head.insisting, Ordering::SeqCst) != 0
    }

    #[inline]
    fn after_opening<W: Waiting<P>>(&self, cpu: &P, wait: &W, sleepers: bool) {
        if sleepers {
            wait.wake_all(cpu, &self.head.gate);
        }
        if self.insists(cpu) {
            self.let_in(cpu, wait);
        }
    }

    /// Lets the readers in that insist. The caller has the writers' lock, so no writer
    /// counts the readers meanwhile.
    #[cold]
    fn let_in<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        // Relaxed: a reader whose word this overwrites, and whose place is not seen below, took it
        // after that look in the total order, so after (W5): it finds the gate open, by (W7). One
        // that comes later says so again.
        cpu.swap(&self.head.insisting, 0, Ordering::Relaxed);
        for word in self.places.iter().map(|place| &place.0) {
            // (W13) SeqCst: after (W5), in the total order with (W2) and (W7).
            let mut seen = cpu.load(word, Ordering::SeqCst);
            while seen & WANTS != 0 {
                let entered = seen & !(WANTS | AWAITED | READERS | PARKED) | 1;
                // (W10) Release: this writer's changes; pairs with the Acquire (W9).
                match cpu.compare_exchange(word, seen, entered, Ordering::Release, Ordering::Relaxed) {
                    Ok(_) => {
                        if seen & PARKED != 0 {
                            wait.wake_all(cpu, word);
                        }
                        break;
                    }
                    Err(now) => seen = now,
                }
            }
        }
    }

    /// Identity of the writer that died and may have left the data half changed.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Wait, robust::ReadersWriter};
    /// # struct Process(u32);
    /// # impl towpath_sync::Surroundings for Process {
    /// #     fn identity(&self) -> u32 { self.0 }
    /// #     fn is_alive(&self, identity: u32) -> bool { identity != 1 }
    /// # }
    /// # let [first, second] = [&Process(1), &Process(2)].map(|process| Wait::adaptive(process));
    /// type Table = ReadersWriter<Native>;
    /// let (cpu, table) = (Native::current(), Table::new(&Heap));
    /// let held = table.write(&cpu, &first, Deadline::NEVER)?;
    /// assert_eq!(Table::dead_writer(&held), None);
    /// // It dies while it writes:
    /// let held = table.write(&cpu, &second, Deadline::NEVER)?;
    /// assert_eq!(Table::dead_writer(&held), Some(1));
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn dead_writer(held: &WriteHeld<L::Held>) -> Option<u32> {
        (held.dead != 0).then_some(held.dead)
    }

    /// Declares the data whole after [`ReadersWriter::dead_writer`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Wait, robust::{Access, ReadersWriter}};
    /// # struct Process(u32);
    /// # impl towpath_sync::Surroundings for Process {
    /// #     fn identity(&self) -> u32 { self.0 }
    /// #     fn is_alive(&self, identity: u32) -> bool { identity != 1 }
    /// # }
    /// # let [first, second] = [&Process(1), &Process(2)].map(|process| Wait::adaptive(process));
    /// let (cpu, table) = (Native::current(), ReadersWriter::<Native>::new(&Heap));
    /// table.write(&cpu, &first, Deadline::NEVER)?; // and dies while it writes
    /// let mut held = table.write(&cpu, &second, Deadline::NEVER)?;
    /// table.make_consistent(&mut held); // after a repair of the data
    /// table.write_unlock(&cpu, &second, held);
    /// assert!(matches!(table.read(&cpu, &second, Deadline::NEVER)?, Access::Shared(_)));
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn make_consistent(&self, held: &mut WriteHeld<L::Held>) {
        held.dead = 0;
    }

    /// Turns an acquisition for writing into one for reading, without letting another
    /// writer in between. `Err`: there is no place, or data to repair.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Spinning, robust::ReadersWriter};
    /// let (cpu, table) = (Native::current(), ReadersWriter::<Native>::new(&Heap));
    /// let held = table.write(&cpu, &Spinning, Deadline::NEVER)?;
    /// let held = table.downgrade(&cpu, &Spinning, held).expect("a place for a reader");
    /// assert!(table.read(&cpu, &Spinning, Deadline::PAST).is_ok()); // others read, too
    /// table.read_unlock(&cpu, &Spinning, held);
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    pub fn downgrade<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        held: WriteHeld<L::Held>,
    ) -> Result<ReadHeld, WriteHeld<L::Held>> {
        if held.dead != 0 {
            return Err(held);
        }
        match self.take_place(cpu, wait, above(wait.identity()), 1) {
            Some(place) => {
                self.write_unlock(cpu, wait, held);
                Ok(ReadHeld { place, only: above(wait.identity()) | 1 })
            }
            None => Err(held),
        }
    }
}
