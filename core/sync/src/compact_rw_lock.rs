//! Compact readers–writer lock: three words, for threads of one process.
//!
//! **Source.** Ours. Writers queue at a [`Compact`] lock; the one that has it waits until the last
//! reader has left. Readers count themselves.
//!
//! **Progress.** Blocking. By default readers pass waiting writers, so that a thread may read again
//! what it reads; writers may then wait for long. A writer that *insists* keeps new readers out.
//!
//! | `word` (without [`PARKED`]) | meaning | leaves to |
//! | --- | --- | --- |
//! | 0 | free | a reader, by any; `WRITER`, by the holder of `writers` |
//! | readers × `READER` | read | a reader more or less |
//! | the same, `WANTED` | read or free, and the holder of `writers` waits | the same; `WRITER`, by that; without `WANTED`, if that gives up |
//! | the same, `WANTED`, `INSISTS` | no reader comes any more | a reader less; `WRITER`, by the holder of `writers`; without the two, if that gives up |
//! | `WRITER` | written | 0, by the writer; with `WANTED`, by the next one |
//!
//! `READERS_SLEEP` on top: the writer's release wakes them.
//!
//! **Fields.** `writers`: held by the writer until it is about to leave. `word`: see above.
//!
//! **Crashes.** None are survived.
//!
//! **Memory.** Three words, not aligned to a line.
//!
//! **Don't use it** between processes; nor for many readers of a short section on many cores, which
//! all change one word: `robust::ReadersWriter` has a place for each.

use towpath_machine::{Arena, Native, Ordering, Place, Processor};

use crate::locks::Compact;
use crate::turns::Turns;
use crate::{Deadline, Lock, LockError, PARKED, TimedOut, Waiting};

/// Part of `word`: a writer has it.
const WRITER: u64 = 1;
/// Part of `word`: a writer waits for the last reader.
const WANTED: u64 = 2;
/// Part of `word`: the writer that waits keeps new readers out.
const INSISTS: u64 = 4;
/// Part of `word`: readers sleep, or are about to. It is in the half that falling asleep
/// compares.
const READERS_SLEEP: u64 = 8;
/// Part of `word`: one reader.
const READER: u64 = 16;
/// Part of `word`: the number of readers, in the half that falling asleep compares.
const READERS: u64 = 0xffff_fff0;
/// Maximum sleep of a waiter before it looks again, in nanoseconds: an hour. The last
/// reader, or the writer, wakes it.
const TURN: u64 = 3_600_000_000_000;

/// Readers–writer lock of three words. All-zero memory is a free one.
#[derive(Debug)]
#[repr(C)]
pub struct CompactRwLock<P: Processor = Native> {
    writers: Compact<P>,
    word: P::Word,
}

impl<P: Processor> CompactRwLock<P> {
    /// A free lock in memory of the given arena.
    ///
    /// ```
    /// use towpath_machine::{Heap, Native};
    /// use towpath_sync::CompactRwLock;
    ///
    /// let lock = CompactRwLock::<Native>::new(&Heap);
    /// assert!(!lock.is_written(&Native::current()));
    /// ```
    pub fn new(arena: &impl Arena<P>) -> Self {
        CompactRwLock { writers: Compact::new(arena), word: arena.word(Place::SameLine, 0) }
    }

    fn changes(&self, cpu: &P, seen: u64, new: u64) -> bool {
        // (1) Acquire: pairs with the Release (2), (3), if it takes the lock.
        cpu.compare_exchange(&self.word, seen, new, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Acquires for reading.
    ///
    /// # Errors
    ///
    /// [`TimedOut`].
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{CompactRwLock, Deadline, Spinning};
    /// let (cpu, lock) = (Native::current(), CompactRwLock::<Native>::new(&Heap));
    /// lock.read(&cpu, &Spinning, Deadline::NEVER)?;
    /// assert!(lock.read(&cpu, &Spinning, Deadline::PAST).is_ok()); // readers share it
    /// # Ok::<(), towpath_sync::TimedOut>(())
    /// ```
    #[inline]
    pub fn read<W: Waiting<P>>(&self, cpu: &P, wait: &W, deadline: Deadline) -> Result<(), TimedOut> {
        // Relaxed: the exchange compares.
        let seen = cpu.load(&self.word, Ordering::Relaxed);
        if seen & (WRITER | INSISTS) == 0 && self.changes(cpu, seen, seen + READER) {
            return Ok(());
        }
        self.read_slowly(cpu, wait, deadline)
    }

    #[cold]
    #[inline(never)]
    fn read_slowly<W: Waiting<P>>(&self, cpu: &P, wait: &W, deadline: Deadline) -> Result<(), TimedOut> {
        let mut turns = None;
        loop {
            // Relaxed: the exchange compares.
            let seen = cpu.load(&self.word, Ordering::Relaxed);
            if seen & (WRITER | INSISTS) == 0 {
                if self.changes(cpu, seen, seen + READER) {
                    return Ok(());
                }
                continue;
            }
            if deadline == Deadline::PAST {
                return Err(TimedOut);
            }
            if seen & READERS_SLEEP == 0 {
                self.changes(cpu, seen, seen | READERS_SLEEP);
                continue;
            }
            let turns = turns.get_or_insert_with(|| Turns::new(cpu, deadline, TURN).called());
            turns.wait(cpu, wait, &self.word, seen & !PARKED)?;
        }
    }

    /// Releases for a reader.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{CompactRwLock, Deadline, Spinning};
    /// let (cpu, lock) = (Native::current(), CompactRwLock::<Native>::new(&Heap));
    /// lock.read(&cpu, &Spinning, Deadline::NEVER)?;
    /// lock.read_unlock(&cpu, &Spinning); // the last reader lets a writer in
    /// assert!(lock.write(&cpu, &Spinning, Deadline::PAST, false).is_ok());
    /// # Ok::<(), towpath_sync::TimedOut>(())
    /// ```
    #[inline]
    pub fn read_unlock<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        // (2) Release: pairs with the Acquire (1).
        let seen = cpu.fetch_add(&self.word, READER.wrapping_neg(), Ordering::Release);
        // The last one. Nothing but the address is used from here: the next owner may free it.
        if seen & READERS == READER && seen & WANTED != 0 {
            wait.wake_all(cpu, &self.word);
        }
    }

    /// Acquires for writing. One that `insists` keeps new readers out while it waits.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`]; the readers that it has kept out may then come in.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{CompactRwLock, Deadline, LockError, Spinning};
    /// let (cpu, lock) = (Native::current(), CompactRwLock::<Native>::new(&Heap));
    /// lock.read(&cpu, &Spinning, Deadline::NEVER)?;
    /// let (soon, insists) = (Deadline::after(&cpu, 1_000_000), true);
    /// let late = lock.write(&cpu, &Spinning, soon, insists);
    /// assert_eq!(late, Err(LockError::TimedOut)); // and readers may come again
    /// assert!(lock.read(&cpu, &Spinning, Deadline::PAST).is_ok());
    /// # Ok::<(), towpath_sync::TimedOut>(())
    /// ```
    pub fn write<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
        insists: bool,
    ) -> Result<(), LockError> {
        self.writers.lock_until(cpu, wait, deadline)?;
        // Relaxed: the exchange compares.
        let seen = cpu.load(&self.word, Ordering::Relaxed);
        if seen & (READERS | WRITER) == 0 && self.changes(cpu, seen, seen | WRITER) {
            return Ok(());
        }
        self.write_slowly(cpu, wait, deadline, if insists { WANTED | INSISTS } else { WANTED })
    }

    #[cold]
    #[inline(never)]
    fn write_slowly<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
        wish: u64,
    ) -> Result<(), LockError> {
        let mut turns = Turns::new(cpu, deadline, TURN).called();
        loop {
            // Relaxed: the exchanges compare.
            let seen = cpu.load(&self.word, Ordering::Relaxed);
            let new = match seen & (READERS | WRITER) {
                0 => WRITER | seen & !(WANTED | INSISTS),
                _ => seen | wish,
            };
            if new != seen {
                if self.changes(cpu, seen, new) && new & WRITER > seen & WRITER {
                    return Ok(());
                }
            } else if turns.wait(cpu, wait, &self.word, seen & !PARKED).is_err() {
                self.give_up(cpu, wait);
                return Err(LockError::TimedOut);
            }
        }
    }

    /// Lets the readers in that a writer kept out, and the next writer.
    fn give_up<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        // Relaxed: the bits order nothing.
        let seen = cpu.fetch_and(&self.word, !(WANTED | INSISTS), Ordering::Relaxed);
        if seen & INSISTS != 0 {
            wait.wake_all(cpu, &self.word);
        }
        self.writers.unlock(cpu, wait, ());
    }

    /// Releases for a writer.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{CompactRwLock, Deadline, Spinning};
    /// let (cpu, lock) = (Native::current(), CompactRwLock::<Native>::new(&Heap));
    /// lock.write(&cpu, &Spinning, Deadline::NEVER, false)?;
    /// assert!(lock.read(&cpu, &Spinning, Deadline::PAST).is_err());
    /// lock.write_unlock(&cpu, &Spinning);
    /// assert!(lock.read(&cpu, &Spinning, Deadline::PAST).is_ok());
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[inline]
    pub fn write_unlock<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        // First, since the next owner may free the lock as soon as the word lets it in.
        self.writers.unlock(cpu, wait, ());
        // (3) Release: pairs with the Acquire (1).
        let seen = cpu.fetch_and(&self.word, !(WRITER | READERS_SLEEP), Ordering::Release);
        if seen & (READERS_SLEEP | WANTED) != 0 {
            wait.wake_all(cpu, &self.word);
        }
    }

    /// Returns whether a writer has it: the caller, if it holds the lock.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{CompactRwLock, Deadline, Spinning};
    /// let (cpu, lock) = (Native::current(), CompactRwLock::<Native>::new(&Heap));
    /// lock.write(&cpu, &Spinning, Deadline::NEVER, false)?;
    /// match lock.is_written(&cpu) {
    ///     true => lock.write_unlock(&cpu, &Spinning), // as `pthread_rwlock_unlock` has it
    ///     false => lock.read_unlock(&cpu, &Spinning),
    /// }
    /// assert!(!lock.is_written(&cpu));
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[inline]
    pub fn is_written(&self, cpu: &P) -> bool {
        // Relaxed: a holder asks for itself; others are told what may be old.
        cpu.load(&self.word, Ordering::Relaxed) & WRITER != 0
    }
}
