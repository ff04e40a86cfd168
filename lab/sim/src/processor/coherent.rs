//! The threads' side of a machine with coherent caches.

use towpath_machine::{Ordering, Processor};

use crate::event_queue::Time;
use crate::memory::AT_MEMORY;
use crate::parameters::{LL_SC, Parameters};
use crate::processor::{AccessPath, Sim, SimBytes, SimCell, SimWord};
use crate::request::{Op, Request, Want};
use crate::task::Task;

/// Accesses through coherent caches.
#[derive(Debug)]
pub(crate) struct Coherent {
    /// True if a read-modify-write is a loop of load-linked and store-conditional
    /// (`processor.atomics`).
    loops: bool,
}

impl Coherent {
    pub fn new(p: &Parameters) -> Self {
        Coherent { loops: p.atomics == LL_SC }
    }

    /// Loads a word at memory until its value is another one, or the deadline has come.
    ///
    /// Returns the value; `None` if stores of the processor are under way, for which loads may
    /// have to wait.
    fn poll(cpu: &Sim, word: u32, seen: u64, deadline: Time) -> Option<u64> {
        let cost = {
            let e = &mut *cpu.engine();
            let thread = &mut e.threads[cpu.thread];
            if !e.cpus[thread.cpu].stores.is_empty() {
                return None;
            }
            thread.deadline = deadline;
            e.p.load
        };
        Some(cpu.begin(Task::poll(word, seen, cost)))
    }
}

impl AccessPath for Coherent {
    fn load(&self, cpu: &Sim, word: u32, _order: Ordering) -> u64 {
        cpu.operate(word, Op::Load, |p| p.load)
    }
    fn store(&self, cpu: &Sim, word: u32, value: u64, _order: Ordering) {
        cpu.operate(word, Op::Store(value), |p| p.store);
    }
    fn read(&self, cpu: &Sim, cell: u32) -> u64 {
        cpu.operate(cell, Op::Load, |p| p.load)
    }
    fn write(&self, cpu: &Sim, cell: u32, value: u64) {
        cpu.operate(cell, Op::Store(value), |p| p.store);
    }

    fn update(&self, cpu: &Sim, word: u32, op: Op) -> u64 {
        if word & AT_MEMORY != 0 {
            return cpu.operate(word, op, |p| p.rmw);
        }
        if self.loops {
            return cpu.begin(Task::update(word, op));
        }
        let old = cpu.operate(word, op, |p| p.rmw);
        cpu.engine().counters.update(op, old);
        old
    }

    fn link(&self, cpu: &Sim, word: u32) -> u64 {
        assert!(
            word & AT_MEMORY == 0,
            "load-linked of a word at memory, which has no reservation: use a fetch-op"
        );
        cpu.begin(Task::link(word))
    }
    fn conditional(&self, cpu: &Sim, word: u32, value: u64) -> bool {
        cpu.begin(Task::conditional(word, value)) == 0
    }

    /// Word by word, so that each line is fetched and each word charged.
    fn copy_in(&self, cpu: &Sim, to: &SimBytes, at: usize, from: &[u8]) {
        let mut done = 0;
        while done < from.len() {
            let (word, start) = (to.first + ((at + done) / 8) as u32, (at + done) % 8);
            let part = (8 - start).min(from.len() - done);
            let mut bytes = [0; 8];
            bytes[start..start + part].copy_from_slice(&from[done..done + part]);
            let mask = if part == 8 { u64::MAX } else { ((1 << (8 * part)) - 1) << (8 * start) };
            if mask == u64::MAX {
                cpu.write(&SimCell(word), u64::from_le_bytes(bytes));
            } else {
                // No other processor writes these bytes meanwhile.
                let old = cpu.read(&SimCell(word));
                cpu.write(&SimCell(word), old & !mask | u64::from_le_bytes(bytes));
            }
            done += part;
        }
    }
    fn copy_out(&self, cpu: &Sim, from: &SimBytes, at: usize, to: &mut [u8]) {
        let mut done = 0;
        while done < to.len() {
            let (word, start) = (from.first + ((at + done) / 8) as u32, (at + done) % 8);
            let part = (8 - start).min(to.len() - done);
            let bytes = cpu.read(&SimCell(word)).to_le_bytes();
            to[done..done + part].copy_from_slice(&bytes[start..start + part]);
            done += part;
        }
    }

    /// Polls words at memory, with real traffic, and looks at those that have changed.
    ///
    /// Waits for cached ones without any until their line changes.
    fn spin(
        &self,
        cpu: &Sim,
        word: u32,
        order: Ordering,
        budget: u64,
        done: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64, u64> {
        let mut deadline = None;
        let mut value = cpu.load(&SimWord(word), order);
        loop {
            if done(value) {
                return Ok(value);
            }
            if budget == 0 {
                return Err(value);
            }
            let now = cpu.clock();
            let deadline = *deadline.get_or_insert_with(|| now.saturating_add(budget.saturating_mul(1000)));
            if now >= deadline {
                return Err(value);
            }
            if word & AT_MEMORY != 0 {
                let poll = cpu.engine().p.fetch_poll;
                cpu.charge(poll);
                if let Some(polled) = Self::poll(cpu, word, value, deadline) {
                    value = polled;
                    continue;
                }
            } else if cpu.engine().spin(cpu.thread, word, deadline) {
                cpu.stop();
            }
            value = cpu.load(&SimWord(word), order);
        }
    }

    fn fence(&self, cpu: &Sim) {
        let cost = cpu.engine().p.fence;
        cpu.charge(cost);
    }

    fn prefetch(&self, cpu: &Sim, word: u32, op: Op) {
        cpu.await_turn();
        let machine = &mut *cpu.machine.borrow_mut();
        let e = &mut machine.engine;
        let processor = e.threads[cpu.thread].cpu;
        let line = e.memory.line_of(word);
        e.threads[cpu.thread].clock += e.p.load;
        let have = e.memory.copy(line, processor);
        if have >= op.need() || e.cpus[processor].request.active || word & AT_MEMORY != 0 {
            return;
        }
        e.counters.prefetches += 1;
        machine.send(
            processor,
            Request { prefetch: true, ..Request::new(Want::of(op, word, have), op, line, word) },
        );
    }

    fn ordinary_load(&self, cpu: &Sim, word: u32) -> u64 {
        cpu.load(&SimWord(word), Ordering::Relaxed)
    }
    fn ordinary_store(&self, cpu: &Sim, word: u32, value: u64) {
        cpu.store(&SimWord(word), value, Ordering::Relaxed);
    }
}
