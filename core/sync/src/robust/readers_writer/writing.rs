//! A writer's steps: the gate, the readers that are in, those that it lets in at its end.

use towpath_machine::{Ordering, Processor};

use super::{
    AWAITED, CLOSED, CLOSINGS, READERS, ReadHeld, ReadersWriter, ReleaseStep, Unreleased, WANTS, WriteHeld,
    above, closings_after, identity,
};
use crate::turns::{TURN, Turns};
use crate::{Deadline, Lock, LockError, PARKED, Waiting};

impl<P: Processor, const N: usize, L: Lock<P>, const PATIENCE: u64> ReadersWriter<P, N, L, PATIENCE> {
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
    pub(super) fn close<W: Waiting<P>>(
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
