//! The threads' side of a machine without coherence: which access goes how, by its
//! ordering.
//!
//! Words are what the paper's macros set and test, cells and bytes what its vector moves copy: all
//! of them go past the cache. An access with Acquire synchronises after it, one with Release before
//! it, one with `SeqCst` both; so an algorithm that is right by the rules of C11 is right here.
//! Ordinary C code, which goes through the cache, is [`Sim::ordinary_load`] and
//! [`Sim::ordinary_store`]; with [`Sim::define_macros`] an algorithm's own accesses become such.

use towpath_machine::{Ordering, Processor};

use crate::engine::Op;
use crate::events::Time;
use crate::incoherent::{Range, VECTOR};
use crate::memory::AT_MEMORY;
use crate::processor::{Sim, SimBytes, SimWord};

/// How accesses of one kind are performed on a machine without coherence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Macro {
    /// Past the cache, with the synchronising instruction that their ordering asks for.
    #[default]
    Right,
    /// Past the cache, without it.
    Unordered,
    /// As ordinary C: through the cache.
    Ordinary,
}

/// What a processor's macros are defined to be (Gropp & Lusk 1997, Section 5). On
/// machines with coherence they mean nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Macros {
    /// `PKT_READY_IS_SET`: reading a word with Acquire.
    pub look: Macro,
    /// `PKT_READY_SET`, and the clearing of the bit: storing to a word with Release.
    pub set: Macro,
    /// `PKT_COPYIN`: writing data.
    pub copy_in: Macro,
    /// Reading data.
    pub copy_out: Macro,
}

fn acquires(order: Ordering) -> bool {
    matches!(order, Ordering::Acquire | Ordering::AcqRel | Ordering::SeqCst)
}

fn releases(order: Ordering) -> bool {
    matches!(order, Ordering::Release | Ordering::AcqRel | Ordering::SeqCst)
}

fn one(word: u32) -> Range {
    Range { first: word & !AT_MEMORY, len: 1 }
}

impl Sim {
    /// From now on, this thread's accesses are performed like that.
    pub fn define_macros(&self, macros: Macros) {
        self.macros.set(macros);
    }

    /// A load of ordinary C, with no macro around it: through the cache, if the machine's
    /// caches are not coherent.
    pub fn ordinary_load(&self, word: &SimWord) -> u64 {
        if self.incoherent { self.ordinary(word.0, None) } else { self.load(word, Ordering::Relaxed) }
    }

    /// A store of ordinary C.
    pub fn ordinary_store(&self, word: &SimWord, value: u64) {
        if self.incoherent {
            self.ordinary(word.0, Some(value));
        } else {
            self.store(word, value, Ordering::Relaxed);
        }
    }

    /// Writes the whole cache back and empties it. Costs nothing where caches are
    /// coherent.
    pub fn flush_cache(&self) {
        if !self.incoherent {
            return;
        }
        self.synchronising();
        self.synchronize();
        let e = &mut *self.engine.borrow_mut();
        let cpu = e.threads[self.thread].cpu;
        e.flush(cpu);
        e.threads[self.thread].clock += e.p.flush;
    }

    /// A synchronising instruction.
    pub(crate) fn synchronising(&self) {
        self.engine.borrow_mut().synchronising(self.thread);
    }

    fn ordinary(&self, word: u32, store: Option<u64>) -> u64 {
        self.synchronize();
        let e = &mut *self.engine.borrow_mut();
        let cpu = e.threads[self.thread].cpu;
        let (old, time) = e.ordinary(cpu, word & !AT_MEMORY, store);
        e.threads[self.thread].clock += time;
        old
    }

    /// A load past the cache, of up to a vector's length; it takes that long.
    fn look(&self, range: Range, time: Time, into: &mut Vec<u64>) {
        loop {
            self.synchronize();
            let e = &mut *self.engine.borrow_mut();
            let cpu = e.threads[self.thread].cpu;
            if let Some(visible) = e.own_store(cpu, range) {
                e.threads[self.thread].clock = visible;
                continue;
            }
            e.look(cpu, range, into);
            e.threads[self.thread].clock += time;
            return;
        }
    }

    fn post(&self, range: Range, values: Vec<(u64, u64)>, time: Time) {
        self.synchronize();
        let e = &mut *self.engine.borrow_mut();
        let cpu = e.threads[self.thread].cpu;
        e.post(cpu, range, values);
        e.threads[self.thread].clock += time;
    }

    /// A scalar load past the cache.
    fn look_at_word(&self, word: u32) -> u64 {
        let time = {
            let e = &mut *self.engine.borrow_mut();
            e.p.memory_latency + e.random.below(e.jitter + 1)
        };
        let mut value = Vec::with_capacity(1);
        self.look(one(word), time, &mut value);
        value[0]
    }

    fn post_word(&self, word: u32, value: u64) {
        let time = self.engine.borrow().p.store;
        self.post(one(word), vec![(value, u64::MAX)], time);
    }

    pub(crate) fn incoherent_load(&self, word: u32, order: Ordering) -> u64 {
        let how = if acquires(order) { self.macros.get().look } else { Macro::Unordered };
        if how == Macro::Ordinary {
            return self.ordinary(word, None);
        }
        if order == Ordering::SeqCst && how == Macro::Right {
            self.synchronising();
        }
        let value = self.look_at_word(word);
        if how == Macro::Right {
            self.synchronising();
        }
        value
    }

    pub(crate) fn incoherent_store(&self, word: u32, value: u64, order: Ordering) {
        let how = if releases(order) { self.macros.get().set } else { Macro::Unordered };
        if how == Macro::Ordinary {
            self.ordinary(word, Some(value));
            return;
        }
        if how == Macro::Right {
            self.synchronising();
        }
        self.post_word(word, value);
        if order == Ordering::SeqCst && how == Macro::Right {
            self.synchronising();
        }
    }

    /// Test&set and what is made of it: at memory, synchronised before and after whatever
    /// the ordering.
    pub(crate) fn incoherent_update(&self, word: u32, op: Op) -> u64 {
        self.synchronising();
        self.synchronize();
        let e = &mut *self.engine.borrow_mut();
        let cpu = e.threads[self.thread].cpu;
        let old = e.update_at_memory(cpu, word & !AT_MEMORY, op);
        let test_and_set = matches!(op, Op::Swap(_));
        match op {
            Op::Exchange(expected, _) => {
                e.counters.exchanges += 1;
                e.counters.failed_exchanges += u64::from(old != expected);
            }
            _ => e.counters.updates += 1,
        }
        let jitter = e.random.below(e.jitter + 1);
        e.threads[self.thread].clock += jitter + if test_and_set { e.p.rmw } else { e.p.update };
        e.synchronising(self.thread);
        old
    }

    pub(crate) fn incoherent_read(&self, cell: u32) -> u64 {
        match self.macros.get().copy_out {
            Macro::Ordinary => self.ordinary(cell, None),
            _ => self.look_at_word(cell),
        }
    }

    pub(crate) fn incoherent_write(&self, cell: u32, value: u64) {
        match self.macros.get().copy_in {
            Macro::Ordinary => {
                self.ordinary(cell, Some(value));
            }
            _ => self.post_word(cell, value),
        }
    }

    /// What the move of so many words of a vector takes.
    fn vector_time(&self, words: usize) -> Time {
        self.engine.borrow().p.copy_kib * words as Time / 128
    }

    /// The beginning of a vector move: the way to memory.
    fn begin_move(&self) {
        let e = &mut *self.engine.borrow_mut();
        let time = e.p.memory_latency + e.random.below(e.jitter + 1);
        e.threads[self.thread].clock += time;
    }

    pub(crate) fn incoherent_copy_in(&self, to: &SimBytes, at: usize, from: &[u8]) {
        let ordinary = self.macros.get().copy_in == Macro::Ordinary;
        if from.is_empty() {
            return;
        }
        if !ordinary {
            self.begin_move();
        }
        let (first, end) = (at / 8, (at + from.len()).div_ceil(8));
        for begin in (first..end).step_by(VECTOR) {
            let words = begin..end.min(begin + VECTOR);
            let values: Vec<(u64, u64)> = words
                .clone()
                .map(|word| {
                    let (mut value, mut mask) = ([0u8; 8], [0u8; 8]);
                    for i in 0..8 {
                        if let Some(&byte) = (8 * word + i).checked_sub(at).and_then(|n| from.get(n)) {
                            (value[i], mask[i]) = (byte, 0xff);
                        }
                    }
                    (u64::from_le_bytes(value), u64::from_le_bytes(mask))
                })
                .collect();
            let range = Range { first: to.first + words.start as u32, len: words.len() as u32 };
            if !ordinary {
                let time = self.vector_time(words.len());
                self.post(range, values, time);
                continue;
            }
            for (i, (value, mask)) in values.into_iter().enumerate() {
                let word = range.first + i as u32;
                let old = if mask == u64::MAX { 0 } else { self.ordinary(word, None) };
                self.ordinary(word, Some(old & !mask | value));
            }
        }
    }

    pub(crate) fn incoherent_copy_out(&self, from: &SimBytes, at: usize, to: &mut [u8]) {
        let ordinary = self.macros.get().copy_out == Macro::Ordinary;
        if to.is_empty() {
            return;
        }
        if !ordinary {
            self.begin_move();
        }
        let (first, end) = (at / 8, (at + to.len()).div_ceil(8));
        let mut values = Vec::with_capacity(VECTOR);
        for begin in (first..end).step_by(VECTOR) {
            let words = begin..end.min(begin + VECTOR);
            let range = Range { first: from.first + words.start as u32, len: words.len() as u32 };
            if ordinary {
                values.clear();
                values.extend((0..range.len).map(|i| self.ordinary(range.first + i, None)));
            } else {
                let time = self.vector_time(words.len());
                self.look(range, time, &mut values);
            }
            for (word, value) in words.zip(&values) {
                let bytes = value.to_le_bytes();
                // The part of the word that is meant.
                let (low, high) = ((8 * word).max(at), (8 * word + 8).min(at + to.len()));
                to[low - at..high - at].copy_from_slice(&bytes[low - 8 * word..high - 8 * word]);
            }
        }
    }

    /// Polls past the cache, with real traffic, one poll after the other; through the
    /// cache if the macro says so: then only time can end it.
    pub(crate) fn incoherent_spin(
        &self,
        word: u32,
        order: Ordering,
        budget: u64,
        mut done: impl FnMut(u64) -> bool,
    ) -> Result<u64, u64> {
        let deadline = self.clock().saturating_add(budget.saturating_mul(1000));
        let ordinary = acquires(order) && self.macros.get().look == Macro::Ordinary;
        loop {
            let value = self.incoherent_load(word, order);
            if done(value) {
                return Ok(value);
            }
            if budget == 0 || self.clock() >= deadline {
                return Err(value);
            }
            let waits = {
                let e = &mut *self.engine.borrow_mut();
                let now = e.memory.values[(word & !AT_MEMORY) as usize];
                // What it has read may be old: then the next poll tells.
                if ordinary || now == value {
                    e.poll(self.thread, (!ordinary).then_some(word & !AT_MEMORY), acquires(order), deadline);
                    true
                } else {
                    false
                }
            };
            if waits {
                self.stop();
            }
        }
    }

    pub(crate) fn incoherent_link(&self, word: u32) -> u64 {
        let value = self.incoherent_load(word, Ordering::SeqCst);
        let e = &mut *self.engine.borrow_mut();
        let cpu = e.threads[self.thread].cpu;
        // Nobody has written since the value was read, or the conditional must fail.
        let line = e.memory.line_of(word);
        let unchanged = e.memory.values[(word & !AT_MEMORY) as usize] == value;
        e.cpus[cpu].reservation = if unchanged { line as u32 } else { crate::engine::NONE };
        value
    }

    pub(crate) fn incoherent_conditional(&self, word: u32, value: u64) -> bool {
        self.synchronising();
        self.synchronize();
        let e = &mut *self.engine.borrow_mut();
        let cpu = e.threads[self.thread].cpu;
        let stored = e.cpus[cpu].reservation as usize == e.memory.line_of(word);
        e.cpus[cpu].reservation = crate::engine::NONE;
        if stored {
            e.counters.conditionals += 1;
            e.update_at_memory(cpu, word & !AT_MEMORY, Op::Swap(value));
        } else {
            e.counters.failed_conditionals += 1;
        }
        e.threads[self.thread].clock += e.p.conditional;
        stored
    }
}
