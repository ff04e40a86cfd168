//! The threads' side of a machine without coherence: which access goes how, by its
//! ordering.
//!
//! Words are what the paper's macros set and test, cells and bytes what its vector moves copy: all
//! of them go past the cache. An access with Acquire synchronises after it, one with Release before
//! it, one with `SeqCst` both; so an algorithm that is right by the rules of C11 is right here.
//! Ordinary C code, which goes through the cache, is [`Sim::ordinary_load`] and
//! [`Sim::ordinary_store`]; with [`Sim::define_macros`] an algorithm's own accesses become such.

use towpath_machine::Ordering;

use crate::engine::Engine;
use crate::event_queue::Time;
use crate::interconnect::uncached::{Range, Uncached, UncachedMemory, VECTOR};
use crate::memory::{AT_MEMORY, copy, place_of};
use crate::processor::{AccessPath, Sim, SimBytes, SimWord};
use crate::request::{NONE, Op};

/// Ways of performing accesses of one kind on a machine without coherence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Macro {
    /// Past the cache, with the synchronising instruction that their ordering asks for.
    #[default]
    Right,
    /// Past the cache, without it.
    Unordered,
    /// Ordinary C: through the cache.
    Ordinary,
}

/// Definitions of a processor's macros (Gropp & Lusk 1997, Section 5). They mean nothing
/// on machines with coherence.
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
    /// Performs this thread's accesses like that from now on.
    pub fn define_macros(&self, macros: Macros) {
        self.macros.set(macros);
    }

    /// A load of ordinary C, with no macro around it: through the cache, if the machine's
    /// caches are not coherent.
    pub fn ordinary_load(&self, word: &SimWord) -> u64 {
        self.path.ordinary_load(self, word.0)
    }

    /// A store of ordinary C.
    pub fn ordinary_store(&self, word: &SimWord, value: u64) {
        self.path.ordinary_store(self, word.0, value);
    }

    /// Writes the whole cache back and empties it. Costs nothing where caches are
    /// coherent.
    pub fn flush_cache(&self) {
        self.path.flush(self);
    }
}

/// Accesses past caches that are not coherent.
#[derive(Debug)]
pub(crate) struct PastCache(pub Uncached);

impl PastCache {
    /// Lets the thread's turn come, and then accesses the memory.
    fn access<T>(&self, cpu: &Sim, act: impl FnOnce(&mut UncachedMemory, &mut Engine, usize) -> T) -> T {
        cpu.await_turn();
        let e = &mut *cpu.engine();
        let processor = e.threads[cpu.thread].cpu;
        act(&mut self.0.0.borrow_mut(), e, processor)
    }

    /// Performs an ordinary access, through the cache.
    fn ordinary(&self, cpu: &Sim, word: u32, store: Option<u64>) -> u64 {
        cpu.await_turn();
        let machine = &mut *cpu.machine.borrow_mut();
        let e = &mut machine.engine;
        let processor = e.threads[cpu.thread].cpu;
        let line = e.memory.line_of(word);
        let there = e.memory.copy(line, processor) != copy::INVALID;
        if !there {
            e.counters.accesses += 1;
            e.counters.misses[0] += 1;
            machine.install(line, processor, copy::PRIVATE);
        }
        let e = &mut machine.engine;
        let memory = &mut *self.0.0.borrow_mut();
        let (old, time) = memory.ordinary(e, processor, word & !AT_MEMORY, store, there);
        e.threads[cpu.thread].clock += time;
        old
    }

    /// A load past the cache, of up to a vector's length; it takes that long.
    fn look(&self, cpu: &Sim, range: Range, time: Time, into: &mut Vec<u64>) {
        loop {
            let performed = self.access(cpu, |memory, e, processor| {
                let own = memory.own_store(e, processor, range);
                match own {
                    Some(visible) => e.threads[cpu.thread].clock = visible,
                    None => {
                        memory.look(e, processor, range, into);
                        e.threads[cpu.thread].clock += time;
                    }
                }
                own.is_none()
            });
            if performed {
                return;
            }
        }
    }

    fn post(&self, cpu: &Sim, range: Range, values: Vec<(u64, u64)>, time: Time) {
        self.access(cpu, |memory, e, processor| {
            memory.post(e, processor, range, values);
            e.threads[cpu.thread].clock += time;
        });
    }

    /// A scalar load past the cache.
    fn look_at_word(&self, cpu: &Sim, word: u32) -> u64 {
        let time = {
            let e = &mut *cpu.engine();
            e.p.memory_latency + e.random.below(e.jitter + 1)
        };
        let mut value = Vec::with_capacity(1);
        self.look(cpu, one(word), time, &mut value);
        value[0]
    }

    fn post_word(&self, cpu: &Sim, word: u32, value: u64) {
        let time = cpu.engine().p.store;
        self.post(cpu, one(word), vec![(value, u64::MAX)], time);
    }

    /// Returns how long the move of so many words of a vector takes.
    fn vector_time(&self, cpu: &Sim, words: usize) -> Time {
        cpu.engine().p.copy_kib * words as Time / 128
    }

    /// The beginning of a vector move: the way to memory.
    fn begin_move(&self, cpu: &Sim) {
        let e = &mut *cpu.engine();
        let time = e.p.memory_latency + e.random.below(e.jitter + 1);
        e.threads[cpu.thread].clock += time;
    }
}

impl AccessPath for PastCache {
    fn synchronise(&self, cpu: &Sim) {
        self.0.0.borrow_mut().synchronising(&mut cpu.engine(), cpu.thread);
    }
    fn fence(&self, cpu: &Sim) {
        self.synchronise(cpu);
    }
    fn ordinary_load(&self, cpu: &Sim, word: u32) -> u64 {
        self.ordinary(cpu, word, None)
    }
    fn ordinary_store(&self, cpu: &Sim, word: u32, value: u64) {
        self.ordinary(cpu, word, Some(value));
    }
    fn flush(&self, cpu: &Sim) {
        self.synchronise(cpu);
        self.access(cpu, |memory, e, processor| {
            memory.flush(e, processor);
            e.threads[cpu.thread].clock += e.p.flush;
        });
    }
    /// Nothing comes early past the cache.
    fn prefetch(&self, _cpu: &Sim, _word: u32, _op: Op) {}

    fn load(&self, cpu: &Sim, word: u32, order: Ordering) -> u64 {
        let how = if acquires(order) { cpu.macros.get().look } else { Macro::Unordered };
        if how == Macro::Ordinary {
            return self.ordinary(cpu, word, None);
        }
        if order == Ordering::SeqCst && how == Macro::Right {
            self.synchronise(cpu);
        }
        let value = self.look_at_word(cpu, word);
        if how == Macro::Right {
            self.synchronise(cpu);
        }
        value
    }

    fn store(&self, cpu: &Sim, word: u32, value: u64, order: Ordering) {
        let how = if releases(order) { cpu.macros.get().set } else { Macro::Unordered };
        if how == Macro::Ordinary {
            self.ordinary(cpu, word, Some(value));
            return;
        }
        if how == Macro::Right {
            self.synchronise(cpu);
        }
        self.post_word(cpu, word, value);
        if order == Ordering::SeqCst && how == Macro::Right {
            self.synchronise(cpu);
        }
    }

    /// Performs test&set, and other updates under it: at memory, synchronised before and
    /// after in every ordering.
    fn update(&self, cpu: &Sim, word: u32, op: Op) -> u64 {
        self.synchronise(cpu);
        self.access(cpu, |memory, e, processor| {
            let old = memory.update_at_memory(e, processor, word & !AT_MEMORY, op);
            let test_and_set = matches!(op, Op::Swap(_));
            e.counters.update(op, old);
            let jitter = e.random.below(e.jitter + 1);
            e.threads[cpu.thread].clock += jitter + if test_and_set { e.p.rmw } else { e.p.update };
            memory.synchronising(e, cpu.thread);
            old
        })
    }

    fn read(&self, cpu: &Sim, cell: u32) -> u64 {
        match cpu.macros.get().copy_out {
            Macro::Ordinary => self.ordinary(cpu, cell, None),
            _ => self.look_at_word(cpu, cell),
        }
    }

    fn write(&self, cpu: &Sim, cell: u32, value: u64) {
        match cpu.macros.get().copy_in {
            Macro::Ordinary => {
                self.ordinary(cpu, cell, Some(value));
            }
            _ => self.post_word(cpu, cell, value),
        }
    }

    fn copy_in(&self, cpu: &Sim, to: &SimBytes, at: usize, from: &[u8]) {
        let ordinary = cpu.macros.get().copy_in == Macro::Ordinary;
        if from.is_empty() {
            return;
        }
        if !ordinary {
            self.begin_move(cpu);
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
                let time = self.vector_time(cpu, words.len());
                self.post(cpu, range, values, time);
                continue;
            }
            for (i, (value, mask)) in values.into_iter().enumerate() {
                let word = range.first + i as u32;
                let old = if mask == u64::MAX { 0 } else { self.ordinary(cpu, word, None) };
                self.ordinary(cpu, word, Some(old & !mask | value));
            }
        }
    }

    fn copy_out(&self, cpu: &Sim, from: &SimBytes, at: usize, to: &mut [u8]) {
        let ordinary = cpu.macros.get().copy_out == Macro::Ordinary;
        if to.is_empty() {
            return;
        }
        if !ordinary {
            self.begin_move(cpu);
        }
        let (first, end) = (at / 8, (at + to.len()).div_ceil(8));
        let mut values = Vec::with_capacity(VECTOR);
        for begin in (first..end).step_by(VECTOR) {
            let words = begin..end.min(begin + VECTOR);
            let range = Range { first: from.first + words.start as u32, len: words.len() as u32 };
            if ordinary {
                values.clear();
                values.extend((0..range.len).map(|i| self.ordinary(cpu, range.first + i, None)));
            } else {
                let time = self.vector_time(cpu, words.len());
                self.look(cpu, range, time, &mut values);
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
    fn spin(
        &self,
        cpu: &Sim,
        word: u32,
        order: Ordering,
        budget: u64,
        done: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64, u64> {
        let deadline = cpu.clock().saturating_add(budget.saturating_mul(1000));
        let ordinary = acquires(order) && cpu.macros.get().look == Macro::Ordinary;
        loop {
            let value = self.load(cpu, word, order);
            if done(value) {
                return Ok(value);
            }
            if budget == 0 || cpu.clock() >= deadline {
                return Err(value);
            }
            let waits = {
                let e = &mut *cpu.engine();
                let now = e.memory.values[place_of(word)];
                // The value that it has read may be old: then the next poll tells.
                if ordinary || now == value {
                    let line = (!ordinary).then_some(word & !AT_MEMORY);
                    self.0.0.borrow_mut().poll(e, cpu.thread, line, acquires(order), deadline);
                    true
                } else {
                    false
                }
            };
            if waits {
                cpu.stop();
            }
        }
    }

    fn link(&self, cpu: &Sim, word: u32) -> u64 {
        // (U1) SeqCst: the value is memory's at this instant, ordered by synchronising instructions
        // around it; pairs with those of `conditional` (U2).
        let value = self.load(cpu, word, Ordering::SeqCst);
        let e = &mut *cpu.engine();
        let processor = e.threads[cpu.thread].cpu;
        // No processor has written since the value was read, or the conditional must fail.
        let line = e.memory.line_of(word);
        let unchanged = e.memory.values[place_of(word)] == value;
        e.cpus[processor].reservation = if unchanged { line as u32 } else { NONE };
        value
    }

    fn conditional(&self, cpu: &Sim, word: u32, value: u64) -> bool {
        // (U2) Earlier stores are visible before the conditional one; pairs with (U1).
        self.synchronise(cpu);
        self.access(cpu, |memory, e, processor| {
            let stored = e.cpus[processor].reservation as usize == e.memory.line_of(word);
            e.cpus[processor].reservation = NONE;
            if stored {
                e.counters.conditionals += 1;
                memory.update_at_memory(e, processor, word & !AT_MEMORY, Op::Swap(value));
            } else {
                e.counters.failed_conditionals += 1;
            }
            e.threads[cpu.thread].clock += e.p.conditional;
            stored
        })
    }
}
