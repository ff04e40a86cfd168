//! A reader's steps: a place, a look at the gate, and insisting.

use towpath_machine::{Ordering, OwnLine, Processor};

use super::{AWAITED, Access, CLOSED, READERS, ReadersWriter, WANTS, above, identity};
use crate::places::place_of;
use crate::turns::{TURN, Turns};
use crate::{Deadline, Lock, LockError, PARKED, Waiting};

/// State of a reader.
#[derive(Debug)]
pub struct ReadHeld {
    pub(super) place: usize,
    /// The place while no other thread shares it.
    pub(super) only: u64,
}

/// Outcome of a reader's insisting.
enum Insisted {
    /// A writer has let it in.
    Entered(ReadHeld),
    /// The gate is no longer as it was.
    GateMoved,
    /// The process that closed the gate is dead.
    InVain,
    /// The time is over.
    TimeOver,
}

impl<P: Processor, const N: usize, L: Lock<P>, const PATIENCE: u64> ReadersWriter<P, N, L, PATIENCE> {
    /// Acquires for reading, until the deadline. After the death of a writer that may
    /// have changed half of the data it acquires for writing instead.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`]; those of the writers' lock.
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
    /// match table.read(&cpu, &second, Deadline::NEVER)? {
    ///     Access::Shared(_) => unreachable!("the data may be half changed"),
    ///     Access::Exclusive(held) => table.write_unlock(&cpu, &second, held), // without a repair
    /// }
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[inline]
    pub fn read<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
    ) -> Result<Access<L::Held>, LockError> {
        match self.read_at_once(cpu, wait.identity()) {
            Ok(held) => return Ok(Access::Shared(held)),
            Err(Some(held)) => self.read_unlock(cpu, wait, held),
            Err(None) => {}
        }
        self.read_slowly(cpu, wait, deadline, above(wait.identity()))
    }

    /// Acquires for reading if the gate is open, and the reader's usual place free.
    ///
    /// # Errors
    ///
    /// The reader's hold on its place, which it lets go of, if only the gate is closed.
    #[inline]
    pub(crate) fn read_at_once(&self, cpu: &P, identity: u32) -> Result<ReadHeld, Option<ReadHeld>> {
        let held = ReadHeld { place: place_of(cpu.id(), N), only: above(identity) | 1 };
        if !self.is_used(cpu, held.place) || !self.take_free(cpu, held.place, held.only) {
            return Err(None);
        }
        if self.is_open(cpu) { Ok(held) } else { Err(Some(held)) }
    }

    /// Returns whether readers may enter, after their places were written.
    #[inline(always)]
    fn is_open(&self, cpu: &P) -> bool {
        // (W1) SeqCst: in one total order with the places (W2), the gate (W3), and the writer's
        // look at the places (W4). Acquire: pairs with the Release (W5) of a writer that leaves.
        cpu.load(&self.head.gate, Ordering::SeqCst) & CLOSED == 0
    }

    /// Returns whether a place has been taken before, so that writers look at it.
    #[inline(always)]
    fn is_used(&self, cpu: &P, place: usize) -> bool {
        // (W11b) SeqCst: a bit that another thread set comes before our place (W2) in the total
        // order, which an Acquire would not do (C++20); pairs with (W11).
        cpu.load(&self.head.used, Ordering::SeqCst) >> place & 1 == 1
    }

    /// Takes a place if it is free.
    #[inline(always)]
    fn take_free(&self, cpu: &P, place: usize, value: u64) -> bool {
        // (W2) SeqCst: before the look at the gate (W1), in the total order; pairs with (W3), (W4).
        // Relaxed: a failure tells nothing.
        cpu.compare_exchange(&self.places[place].0, 0, value, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn read_slowly<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
        me: u64,
    ) -> Result<Access<L::Held>, LockError> {
        let mut turns = Turns::new(cpu, deadline, TURN);
        let mut round = 0u32;
        loop {
            // Relaxed: a reader that takes a place looks at the gate once more, by (W1).
            let gate = cpu.load(&self.head.gate, Ordering::Relaxed) & !PARKED;
            if gate & CLOSED == 0 {
                let Some(place) = self.take_place(cpu, wait, me, 1) else {
                    if deadline.is_over(cpu) {
                        return Err(LockError::TimedOut);
                    }
                    wait.back_off(cpu, round).map_err(|_| LockError::Abandoned)?;
                    round = round.saturating_add(1);
                    continue;
                };
                let held = ReadHeld { place, only: me | 1 };
                if self.is_open(cpu) {
                    return Ok(Access::Shared(held));
                }
                self.read_unlock(cpu, wait, held);
                continue;
            }
            let mut is_dead = turns.is_time_to_ask(cpu) && !wait.is_alive(identity(gate));
            if !is_dead
                && turns.has_lasted(cpu, PATIENCE)
                && let Some(place) = self.take_place(cpu, wait, me | WANTS, 0)
            {
                match self.insist(cpu, wait, &mut turns, place, gate) {
                    Insisted::Entered(held) => return Ok(Access::Shared(held)),
                    Insisted::TimeOver => return Err(LockError::TimedOut),
                    Insisted::InVain => is_dead = true,
                    Insisted::GateMoved => continue,
                }
            }
            if is_dead {
                let held = self.close(cpu, wait, deadline)?;
                if held.dead != 0 {
                    return Ok(Access::Exclusive(held));
                }
                self.write_unlock(cpu, wait, held);
                continue;
            }
            turns.wait(cpu, wait, &self.head.gate, gate)?;
        }
    }

    /// Waits in a place to be let in, while the gate stays as it was seen.
    fn insist<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        turns: &mut Turns,
        place: usize,
        gate: u64,
    ) -> Insisted {
        let word = &self.places[place].0;
        // Relaxed: the fence orders it.
        cpu.store(&self.head.insisting, 1, Ordering::Relaxed);
        // (W7) SeqCst: the mark before the look at the gate, in one total order with the writer
        // that opens it (W5) and looks here afterwards (W8).
        cpu.fence(Ordering::SeqCst);
        let mut ends = None;
        loop {
            // (W9) Acquire: pairs with the Release (W10) of the writer that lets us in.
            let value = cpu.load(word, Ordering::Acquire);
            if value & WANTS == 0 {
                return Insisted::Entered(ReadHeld { place, only: value & !(PARKED | AWAITED) });
            }
            // Relaxed: the first look comes after (W7).
            if cpu.load(&self.head.gate, Ordering::Relaxed) & !PARKED != gate {
                ends = Some(Insisted::GateMoved);
            } else if turns.is_time_to_ask(cpu) && !wait.is_alive(identity(gate)) {
                ends = Some(Insisted::InVain);
            }
            if let Some(ends) = ends.take() {
                // Relaxed, both: no reader was in; if it fails, (W9) looks again.
                match cpu.compare_exchange(word, value, 0, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => return ends,
                    Err(_) => continue,
                }
            }
            if turns.wait(cpu, wait, word, value & !PARKED).is_err() {
                ends = Some(Insisted::TimeOver);
            }
        }
    }

    /// Takes a place: a free one, or one of this process's own, or that of a dead reader.
    /// `value`: identity and [`WANTS`]; `readers`: 1, or 0 in a place that wants.
    pub(super) fn take_place<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        value: u64,
        readers: u64,
    ) -> Option<usize> {
        let first = place_of(cpu.id(), N);
        let all = || (0..N).map(|i| (first + i) % N);
        let free = all().find(|&place| {
            // Relaxed: a hint; taking it compares.
            if cpu.load(&self.places[place].0, Ordering::Relaxed) != 0 {
                return false;
            }
            // (W11) SeqCst: before the place itself (W2), so that a writer that sees the gate's
            // reader in the total order looks at the place; pairs with (W4).
            if !self.is_used(cpu, place) {
                cpu.fetch_or(&self.head.used, 1 << place, Ordering::SeqCst);
            }
            self.take_free(cpu, place, value | readers)
        });
        if free.is_some() {
            return free;
        }
        all().find(|&place| {
            let word = &self.places[place].0;
            // Relaxed: a hint; the exchange compares.
            let seen = cpu.load(word, Ordering::Relaxed);
            let mine = readers == 1 && identity(seen) == identity(value) && seen & WANTS == 0;
            if mine && (1..READERS).contains(&(seen & READERS)) {
                // (W2b) SeqCst: after the exchange (W2) of the first reader there, and before the
                // look at the gate (W1), in the total order; pairs with (W2).
                return cpu
                    .compare_exchange(word, seen, seen + 1, Ordering::SeqCst, Ordering::Relaxed)
                    .is_ok();
            }
            seen != 0
                && !wait.is_alive(identity(seen))
                // (W2c) SeqCst: as (W2), before the look at the gate (W1), in the total order.
                && cpu
                    .compare_exchange(word, seen, value | readers, Ordering::SeqCst, Ordering::Relaxed)
                    .is_ok()
        })
    }

    /// Releases after reading.
    ///
    /// ```
    /// # use towpath_machine::{Heap, Native};
    /// # use towpath_sync::{Deadline, Spinning, robust::{Access, ReadersWriter}};
    /// let (cpu, table) = (Native::current(), ReadersWriter::<Native>::new(&Heap));
    /// if let Access::Shared(held) = table.read(&cpu, &Spinning, Deadline::NEVER)? {
    ///     table.read_unlock(&cpu, &Spinning, held);
    /// }
    /// assert!(table.write(&cpu, &Spinning, Deadline::PAST).is_ok());
    /// # Ok::<(), towpath_sync::LockError>(())
    /// ```
    #[inline]
    pub fn read_unlock<W: Waiting<P>>(&self, cpu: &P, wait: &W, held: ReadHeld) {
        if let Some(held) = self.read_unlock_at_once(cpu, held) {
            self.leave_slowly(cpu, wait, held.place);
        }
    }

    /// Releases after reading, unless threads share the place, or a writer sleeps on it.
    ///
    /// Returns what the caller still holds.
    #[inline(always)]
    pub(crate) fn read_unlock_at_once(&self, cpu: &P, held: ReadHeld) -> Option<ReadHeld> {
        // A program's damaged memory may name no place: the slow way panics then.
        let Some(OwnLine(word)) = self.places.get(held.place) else { return Some(held) };
        // (W12) Release: the reads come before; pairs with the Acquire (W4) of the writer.
        let left = cpu.compare_exchange(word, held.only, 0, Ordering::Release, Ordering::Relaxed);
        left.is_err().then_some(held)
    }

    /// Returns whether the state can be a reader's of this lock.
    ///
    /// Readers of its process have its place then. For rooms whose callers keep the state.
    pub(crate) fn can_have(&self, cpu: &P, held: &ReadHeld) -> bool {
        let Some(OwnLine(word)) = self.places.get(held.place) else { return false };
        // Relaxed: the release compares.
        let seen = cpu.load(word, Ordering::Relaxed);
        let same_process = (seen ^ held.only) & !(READERS | AWAITED | PARKED) == 0;
        same_process && seen & READERS > 0 && held.only & READERS == 1
    }

    #[cold]
    fn leave_slowly<W: Waiting<P>>(&self, cpu: &P, wait: &W, place: usize) {
        let word = &self.places[place].0;
        // Relaxed: the exchange compares.
        let mut seen = cpu.load(word, Ordering::Relaxed);
        // Otherwise the memory is damaged.
        while seen & READERS != 0 {
            let next = if seen & READERS == 1 { 0 } else { seen - 1 };
            // (W12b) Release: as (W12); pairs with the Acquire (W4).
            match cpu.compare_exchange(word, seen, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) if next == 0 && seen & AWAITED != 0 => return wait.wake_all(cpu, word),
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}
