//! The threads' side of a store buffer in front of coherent caches.
//!
//! A store that its cache does not allow at once lies in the buffer until its line is there, and
//! the thread goes on. Stores leave the buffer in their order, each when its line has come with the
//! right to write it: then the others see it. Updates, fences and calls of the system wait until
//! the buffer is empty.
//!
//! * **Total store order.** A load takes the youngest value that the buffer has for its word, or
//!   else passes the buffer. A processor has one request under way, so that a load that misses
//!   waits for the stores before it.
//! * **Sequential consistency** (`processor.store_window`). Loads wait until the buffer is empty,
//!   and so does a computation that is longer than the instructions that a processor holds. So it
//!   is stores in a row whose lines come at one time (`processor.misses`).

use towpath_machine::Ordering;

use crate::event_queue::Time;
use crate::machine::Machine;
use crate::memory::{AT_MEMORY, copy};
use crate::processor::coherent::Coherent;
use crate::processor::{AccessPath, Sim, SimBytes};
use crate::request::{Op, Request, Want};
use crate::thread::Doing;

/// Accesses through a store buffer and coherent caches.
#[derive(Debug)]
pub(crate) struct Buffered {
    coherent: Coherent,
    /// Shortest computation that waits for the stores; 0 under total store order.
    window: Time,
}

impl Machine {
    /// Performs buffered stores as far as the cache allows it; asks for the next lines.
    pub fn drain(&mut self, cpu: usize) {
        let e = &mut self.engine;
        while let Some(&(word, value)) = e.cpus[cpu].stores.front() {
            let line = e.memory.line_of(word);
            let have = e.memory.copy(line, cpu);
            if have != copy::MODIFIED {
                return self.fetch_for_stores(cpu);
            }
            e.cpus[cpu].stores.pop_front();
            e.buffered -= 1;
            e.counters.hits += 1;
            e.store_now(word, value);
        }
    }

    /// Asks for the lines of buffered stores, for as many as the processor has places.
    fn fetch_for_stores(&mut self, cpu: usize) {
        for i in 0..self.engine.cpus[cpu].stores.len() {
            let e = &mut self.engine;
            let (word, value) = e.cpus[cpu].stores[i];
            let line = e.memory.line_of(word);
            let have = e.memory.copy(line, cpu);
            let comes = |request: &Request| request.active && request.line as usize == line;
            if have == copy::MODIFIED || e.places(cpu).any(|place| comes(&e.cpus[place].request)) {
                continue;
            }
            let Some(place) = e.places(cpu).find(|&place| !e.cpus[place].request.active) else { return };
            let op = Op::Store(value);
            let request = Request::new(Want::of(op, word, have), op, line, word);
            self.send(place, Request { prefetch: true, ..request });
        }
    }

    /// Makes the thread wait for its processor's request that is under way.
    fn wait_for_buffer(&mut self, t: usize) {
        self.engine.threads[t].doing = Doing::Memory;
    }
}

impl Buffered {
    pub fn new(coherent: Coherent, window: Time) -> Self {
        Buffered { coherent, window }
    }

    fn is_sequential(&self) -> bool {
        self.window > 0
    }

    /// The youngest value of a word in the buffer, at the thread's clock.
    fn forwarded(cpu: &Sim, word: u32) -> Option<u64> {
        let forwards = |cpu: &Sim| {
            let e = cpu.engine();
            let stores = &e.cpus[e.threads[cpu.thread].cpu].stores;
            stores.iter().rev().find(|store| store.0 == word).map(|store| store.1)
        };
        forwards(cpu)?;
        // Until then it may have left the buffer.
        cpu.await_turn();
        let value = forwards(cpu)?;
        let e = &mut *cpu.engine();
        e.counters.hits += 1;
        e.threads[cpu.thread].clock += e.p.load;
        Some(value)
    }

    /// Returns whether the buffer of the thread's processor is empty.
    fn is_empty(cpu: &Sim) -> bool {
        let e = cpu.engine();
        e.cpus[e.threads[cpu.thread].cpu].stores.is_empty()
    }

    /// Stops the thread until the buffer of its processor is empty.
    fn empty(cpu: &Sim) {
        while !Self::is_empty(cpu) {
            cpu.await_turn();
            // Until then the stores may have left.
            if Self::is_empty(cpu) {
                return;
            }
            cpu.machine.borrow_mut().wait_for_buffer(cpu.thread);
            cpu.stop();
        }
    }
}

impl AccessPath for Buffered {
    fn load(&self, cpu: &Sim, word: u32, order: Ordering) -> u64 {
        if self.is_sequential() {
            Self::empty(cpu);
            return self.coherent.load(cpu, word, order);
        }
        Self::forwarded(cpu, word).unwrap_or_else(|| self.coherent.load(cpu, word, order))
    }
    fn store(&self, cpu: &Sim, word: u32, value: u64, order: Ordering) {
        if word & AT_MEMORY != 0 {
            Self::empty(cpu);
            return self.coherent.store(cpu, word, value, order);
        }
        loop {
            cpu.await_turn();
            {
                let machine = &mut *cpu.machine.borrow_mut();
                let e = &mut machine.engine;
                let processor = e.threads[cpu.thread].cpu;
                if e.cpus[processor].stores.len() < e.p.store_buffer as usize {
                    e.threads[cpu.thread].clock += e.p.store;
                    e.cpus[processor].stores.push_back((word, value));
                    e.buffered += 1;
                    return machine.drain(processor);
                }
                machine.wait_for_buffer(cpu.thread);
            }
            cpu.stop();
        }
    }
    fn read(&self, cpu: &Sim, cell: u32) -> u64 {
        self.load(cpu, cell, Ordering::Relaxed)
    }
    fn write(&self, cpu: &Sim, cell: u32, value: u64) {
        self.store(cpu, cell, value, Ordering::Relaxed);
    }
    fn update(&self, cpu: &Sim, word: u32, op: Op) -> u64 {
        Self::empty(cpu);
        self.coherent.update(cpu, word, op)
    }
    fn link(&self, cpu: &Sim, word: u32) -> u64 {
        Self::empty(cpu);
        self.coherent.link(cpu, word)
    }
    fn conditional(&self, cpu: &Sim, word: u32, value: u64) -> bool {
        Self::empty(cpu);
        self.coherent.conditional(cpu, word, value)
    }
    fn copy_in(&self, cpu: &Sim, to: &SimBytes, at: usize, from: &[u8]) {
        self.coherent.copy_in(cpu, to, at, from);
    }
    fn copy_out(&self, cpu: &Sim, from: &SimBytes, at: usize, to: &mut [u8]) {
        self.coherent.copy_out(cpu, from, at, to);
    }
    fn spin(
        &self,
        cpu: &Sim,
        word: u32,
        order: Ordering,
        budget: u64,
        done: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64, u64> {
        if self.is_sequential() || Self::forwarded(cpu, word).is_some() {
            // No other processor's store is seen before the own one.
            Self::empty(cpu);
        }
        self.coherent.spin(cpu, word, order, budget, done)
    }
    fn fence(&self, cpu: &Sim) {
        Self::empty(cpu);
        self.coherent.fence(cpu);
    }
    fn synchronise(&self, cpu: &Sim) {
        Self::empty(cpu);
    }
    fn begin_computation(&self, cpu: &Sim, length: Time) {
        if self.is_sequential() && !Self::is_empty(cpu) {
            let waits = length >= self.window;
            cpu.engine().computed_behind_stores.note(length, waits);
            if waits {
                Self::empty(cpu);
            }
        }
    }
    fn prefetch(&self, cpu: &Sim, word: u32, op: Op) {
        self.coherent.prefetch(cpu, word, op);
    }
    fn ordinary_load(&self, cpu: &Sim, word: u32) -> u64 {
        self.coherent.ordinary_load(cpu, word)
    }
    fn ordinary_store(&self, cpu: &Sim, word: u32, value: u64) {
        self.coherent.ordinary_store(cpu, word, value);
    }
}
