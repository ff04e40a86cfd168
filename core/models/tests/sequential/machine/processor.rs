//! Processor of the sequential machine.

use std::panic::Location;

use towpath_machine::{
    Event, FetchOp, KernelMutex, LlSc, LockOutcome, Ordering, Park, Prefetch, Processor, Scheduling, weaken,
};

use super::{
    ACCESS, Bytes, Cell, Inner, KernelLock, MAX, MutexState, SYSTEM_CALL, Sequential, State, Word, join,
};

impl Sequential {
    /// Waits for the next turn, in whatever state until then, and makes an access in it.
    fn turn<T>(&self, state: State, time: u64, access: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.machine.inner();
        if inner.turn.is_none() {
            return access(&mut inner); // At rest.
        }
        if inner.schedule.stops && state == State::Ready && inner.random(2_000) == 0 {
            let until = inner.time + 1_500_000 + inner.random(4_000_000);
            (inner.threads[self.id].state, inner.threads[self.id].until) = (State::Stopped, Some(until));
        }
        inner.time += time;
        inner.choose(self.id);
        inner = self.machine.await_turn(inner, self);
        let result = access(&mut inner);
        if inner.failure.is_some() {
            drop(self.machine.await_turn(inner, self)); // Does not come back.
        }
        result
    }

    /// Goes to sleep, if `asleep` says so in the turn that is still ours. Returns whether
    /// its time was over.
    fn block(&self, state: State, until: Option<u64>, asleep: impl FnOnce(&mut Inner) -> bool) -> bool {
        let mut inner = self.machine.inner();
        if !asleep(&mut inner) {
            return false;
        }
        assert!(inner.turn.is_some(), "blocks while nothing runs: {state:?}");
        let t = &mut inner.threads[self.id];
        (t.state, t.until, t.timed_out) = (state, until, false);
        inner.choose(self.id);
        let inner = self.machine.await_turn(inner, self);
        inner.threads[self.id].timed_out
    }

    fn update(
        &self,
        what: &'static str,
        word: &Word,
        success: Ordering,
        failure: Ordering,
        change: impl FnOnce(u64) -> Option<u64>,
    ) -> u64 {
        self.turn(State::Ready, ACCESS, |inner| {
            if inner.words[word.0].at_memory != what.starts_with("fetch-op") && what != "load" {
                inner.fail(format!("{what} of word {}, which lies elsewhere", word.0));
            }
            let (id, running) = (self.id, inner.turn.is_some());
            let (old, mut clock) = (inner.words[word.0].value, inner.words[word.0].clock);
            let new = change(old);
            inner.note(id, what, word.0, new.unwrap_or(old));
            if running {
                inner.acquire(id, clock, if new.is_some() { success } else { failure });
            }
            if let Some(new) = new {
                if running {
                    // It goes on with what the value before it released.
                    join(&mut clock, &inner.release(id, success));
                }
                inner.write_word(word.0, new, clock);
            }
            old
        })
    }
}

impl Processor for Sequential {
    type Word = Word;
    type Cell = Cell;
    type Bytes = Bytes;

    fn id(&self) -> usize {
        self.id
    }
    #[track_caller]
    fn load(&self, word: &Word, order: Ordering) -> u64 {
        let order = weaken::access(Location::caller(), order);
        self.update("load", word, order, order, |_| None)
    }
    #[track_caller]
    fn store(&self, word: &Word, value: u64, order: Ordering) {
        let order = weaken::access(Location::caller(), order);
        self.turn(State::Ready, ACCESS, |inner| {
            inner.note(self.id, "store", word.0, value);
            let clock = if inner.turn.is_some() { inner.release(self.id, order) } else { [0; MAX] };
            inner.write_word(word.0, value, clock);
        });
    }
    #[track_caller]
    fn swap(&self, word: &Word, value: u64, order: Ordering) -> u64 {
        let order = weaken::access(Location::caller(), order);
        self.update("swap", word, order, order, |_| Some(value))
    }
    #[track_caller]
    fn compare_exchange(
        &self,
        word: &Word,
        old: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        let (success, failure) = weaken::exchange(Location::caller(), (success, failure));
        let found = self.update("compare_exchange", word, success, failure, |v| (v == old).then_some(new));
        if found == old { Ok(found) } else { Err(found) }
    }
    #[track_caller]
    fn fetch_add(&self, word: &Word, delta: u64, order: Ordering) -> u64 {
        let order = weaken::access(Location::caller(), order);
        self.update("fetch_add", word, order, order, |v| Some(v.wrapping_add(delta)))
    }
    #[track_caller]
    fn fetch_or(&self, word: &Word, bits: u64, order: Ordering) -> u64 {
        let order = weaken::access(Location::caller(), order);
        self.update("fetch_or", word, order, order, |v| Some(v | bits))
    }
    #[track_caller]
    fn fetch_and(&self, word: &Word, mask: u64, order: Ordering) -> u64 {
        let order = weaken::access(Location::caller(), order);
        self.update("fetch_and", word, order, order, |v| Some(v & mask))
    }
    #[track_caller]
    fn fence(&self, order: Ordering) {
        let Some(order) = weaken::fence(Location::caller(), order) else { return };
        self.turn(State::Ready, ACCESS, |inner| {
            if inner.turn.is_some() {
                let read = inner.threads[self.id].read;
                inner.acquire(self.id, read, order);
                inner.threads[self.id].fenced = inner.release(self.id, order);
            }
        });
    }
    fn read(&self, cell: &Cell) -> u64 {
        self.turn(State::Ready, ACCESS, |inner| {
            let value = inner.datum(self.id, cell.0, None);
            inner.note(self.id, "read", cell.0, value);
            value
        })
    }
    fn write(&self, cell: &Cell, value: u64) {
        self.turn(State::Ready, ACCESS, |inner| {
            inner.note(self.id, "write", cell.0, value);
            inner.datum(self.id, cell.0, Some(value));
        });
    }
    /// Copies eight bytes at a time: others may come in between.
    fn copy_in(&self, to: &Bytes, at: usize, from: &[u8]) {
        assert!(at <= to.len && from.len() <= to.len - at, "copy beyond the end of shared bytes");
        for (n, piece) in from.chunks(8).enumerate() {
            self.turn(State::Ready, ACCESS, |inner| {
                let start = to.start + at + n * 8;
                inner.note(self.id, "copy_in", start, piece[0].into());
                for (i, byte) in piece.iter().enumerate() {
                    inner.datum(self.id, start + i, Some((*byte).into()));
                }
            });
        }
    }
    /// Copies eight bytes at a time: others may come in between.
    fn copy_out(&self, from: &Bytes, at: usize, to: &mut [u8]) {
        assert!(at <= from.len && to.len() <= from.len - at, "copy beyond the end of shared bytes");
        for (n, piece) in to.chunks_mut(8).enumerate() {
            self.turn(State::Ready, ACCESS, |inner| {
                let start = from.start + at + n * 8;
                for (i, byte) in piece.iter_mut().enumerate() {
                    *byte = inner.datum(self.id, start + i, None) as u8;
                }
                inner.note(self.id, "copy_out", start, piece[0].into());
            });
        }
    }

    #[track_caller]
    fn spin_until(
        &self,
        word: &Word,
        order: Ordering,
        budget: u64,
        mut done: impl FnMut(u64) -> bool,
    ) -> Result<u64, u64> {
        let deadline = self.machine.inner().time + budget;
        loop {
            let value = self.load(word, order);
            if done(value) {
                return Ok(value);
            }
            if budget == 0 || self.machine.inner().time >= deadline {
                return Err(value);
            }
            // `done` may have let others act.
            let over = self
                .block(State::Spinning(word.0), Some(deadline), |inner| inner.words[word.0].value == value);
            if over {
                return Err(value);
            }
        }
    }

    fn delay(&self, ns: u64) {
        let until = self.now() + ns;
        self.block(State::Delayed, Some(until), |_| true);
    }
    fn work(&self, ns: u64) {
        self.delay(ns);
    }
    fn now(&self) -> u64 {
        self.turn(State::Ready, ACCESS, |inner| inner.time)
    }
    fn note(&self, _event: Event) {
        let mut inner = self.machine.inner();
        inner.last_event = inner.time;
    }
}

impl Park for Sequential {
    fn park(&self, word: &Word, expected: u64, timeout_ns: u64) {
        let (early, time) = self.turn(State::Ready, SYSTEM_CALL, |inner| {
            inner.note(self.id, "park", word.0, expected);
            (inner.random(16) == 0, inner.time)
        });
        let over = self.block(State::Parked(word.0), Some(time + timeout_ns), |inner| {
            // Early for no reason, as it may be.
            !early && inner.words[word.0].value as u32 == expected as u32
        });
        if over {
            self.machine.inner().words[word.0].overslept += 1;
        }
    }
    fn wake(&self, word: &Word, count: u32) -> u32 {
        self.turn(State::Ready, SYSTEM_CALL, |inner| {
            inner.note(self.id, "wake", word.0, count.into());
            let mut woken = 0;
            while woken < count
                && let Some(sleeper) = inner.any(State::Parked(word.0))
            {
                inner.wake(sleeper);
                woken += 1;
            }
            woken
        })
    }
    fn yield_now(&self) {
        self.turn(State::Ready, SYSTEM_CALL, |inner| inner.note(self.id, "yield", 0, 0));
    }
}

impl Sequential {
    fn mutex(&self, mutex: &KernelLock) -> usize {
        *mutex.0.get_or_init(|| {
            let mut inner = self.machine.inner();
            inner.mutexes.push(MutexState::default());
            inner.mutexes.len() - 1
        })
    }
}

impl KernelMutex for Sequential {
    type Mutex = KernelLock;

    fn mutex_lock(&self, mutex: &KernelLock) -> LockOutcome {
        let m = self.mutex(mutex);
        loop {
            match self.mutex_try_lock(mutex) {
                LockOutcome::Busy => {
                    self.block(State::Locking(m), None, |inner| inner.mutexes[m].owner.is_some());
                }
                outcome => return outcome,
            }
        }
    }
    fn mutex_try_lock(&self, mutex: &KernelLock) -> LockOutcome {
        let m = self.mutex(mutex);
        self.turn(State::Ready, ACCESS, |inner| {
            inner.note(self.id, "mutex_lock", m, 0);
            let state = &mut inner.mutexes[m];
            if state.lost {
                return LockOutcome::NotRecoverable;
            }
            if state.owner.is_some() {
                return LockOutcome::Busy;
            }
            state.owner = Some(self.id);
            let (clock, inconsistent) = (state.clock, state.inconsistent);
            if inner.turn.is_some() {
                inner.acquire(self.id, clock, Ordering::Acquire);
            }
            if inconsistent { LockOutcome::OwnerDied } else { LockOutcome::Acquired }
        })
    }
    fn mutex_make_consistent(&self, mutex: &KernelLock) {
        let m = self.mutex(mutex);
        self.turn(State::Ready, ACCESS, |inner| inner.mutexes[m].inconsistent = false);
    }
    fn mutex_unlock(&self, mutex: &KernelLock) {
        let m = self.mutex(mutex);
        self.turn(State::Ready, ACCESS, |inner| {
            inner.note(self.id, "mutex_unlock", m, 0);
            if inner.mutexes[m].owner != Some(self.id) {
                inner.fail(format!("processor {} unlocks mutex {m}, which it does not hold", self.id));
                return;
            }
            if inner.turn.is_some() {
                inner.mutexes[m].clock = inner.release(self.id, Ordering::Release);
            }
            inner.mutexes[m].lost = inner.mutexes[m].inconsistent;
            inner.unlock(m);
        });
    }
}

/// Operations for words at memory only. They acquire and release.
impl FetchOp for Sequential {
    fn fetch_load(&self, word: &Word) -> u64 {
        self.update("fetch-op load", word, Ordering::AcqRel, Ordering::Acquire, |_| None)
    }
    fn fetch_store(&self, word: &Word, value: u64) {
        self.update("fetch-op store", word, Ordering::AcqRel, Ordering::Acquire, |_| Some(value));
    }
    fn fetch_increment(&self, word: &Word) -> u64 {
        self.update("fetch-op increment", word, Ordering::AcqRel, Ordering::Acquire, |v| {
            Some(v.wrapping_add(1))
        })
    }
    fn fetch_decrement(&self, word: &Word) -> u64 {
        self.update("fetch-op decrement", word, Ordering::AcqRel, Ordering::Acquire, |v| {
            Some(v.wrapping_sub(1))
        })
    }
    fn fetch_clear(&self, word: &Word) -> u64 {
        self.update("fetch-op clear", word, Ordering::AcqRel, Ordering::Acquire, |_| Some(0))
    }
}

/// Reservations are lost when the word is written, whatever with, and now and then for no
/// reason.
impl LlSc for Sequential {
    fn load_linked(&self, word: &Word) -> u64 {
        let value = self.update("load_linked", word, Ordering::Acquire, Ordering::Acquire, |_| None);
        // Still in the same turn.
        let mut inner = self.machine.inner();
        inner.words.iter_mut().for_each(|w| w.linked_by.retain(|id| *id != self.id));
        inner.words[word.0].linked_by.push(self.id);
        value
    }
    fn store_conditional(&self, word: &Word, value: u64) -> bool {
        self.turn(State::Ready, ACCESS, |inner| {
            inner.note(self.id, "store_conditional", word.0, value);
            let running = inner.turn.is_some();
            let kept = inner.words[word.0].linked_by.contains(&self.id);
            if !kept || running && inner.random(8) == 0 {
                inner.words[word.0].linked_by.retain(|id| *id != self.id);
                return false;
            }
            // It goes on with what the value before it released.
            let mut clock = inner.words[word.0].clock;
            if running {
                join(&mut clock, &inner.release(self.id, Ordering::Release));
            }
            inner.write_word(word.0, value, clock);
            true
        })
    }
    fn validate(&self, word: &Word) -> bool {
        self.turn(State::Ready, ACCESS, |inner| inner.words[word.0].linked_by.contains(&self.id))
    }
}

impl Scheduling for Sequential {
    fn is_preempted(&self, id: usize) -> bool {
        self.turn(State::Ready, ACCESS, |inner| {
            inner.threads.get(id).is_some_and(|t| matches!(t.state, State::Stopped | State::Parked(_)))
        })
    }
}

impl Prefetch for Sequential {
    fn prefetch_exclusive(&self, _word: &Word) {}
    fn prefetch_shared(&self, _word: &Word) {}
}
