//! An atomic bus: a processor holds it for a whole transaction.
//!
//! Transactions are served one after the other in the order of their arrival, so nothing overtakes
//! anything, and there are no races. The steps of each, and their times, are the write-once
//! protocol's (`write_once.rs`). A dirty line that has to leave its cache is written back right
//! after the transaction that drove it out, before any other processor gets the bus.

use std::collections::VecDeque;

use crate::engine::Engine;
use crate::event_queue::EventKind;
use crate::interconnect::{Effect, Interconnect, write_once};
use crate::request::{NONE, Op};

/// A transaction that waits for the bus, or holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transaction {
    /// A processor's request.
    Request { cpu: usize },
    /// A line's way back to memory.
    WriteBack,
    /// A change of a word by the operating system.
    System { cpu: usize, word: u32, op: Op },
}

/// The bus, and the transactions that wait for it.
#[derive(Debug, Default)]
pub(crate) struct AtomicBus {
    waiting: VecDeque<Transaction>,
    holder: Option<Transaction>,
}

impl Interconnect for AtomicBus {
    fn issue(&mut self, e: &mut Engine, cpu: usize) {
        let jitter = e.random.below(e.jitter + 1);
        e.events.push(e.now + jitter, EventKind::BusGrant, cpu, 0);
    }

    fn on_event(&mut self, e: &mut Engine, kind: EventKind, a: usize, _b: usize) -> Effect {
        match kind {
            EventKind::BusGrant => self.ask(e, Transaction::Request { cpu: a }),
            EventKind::BusFree => return self.free(e),
            _ => unreachable!("{kind:?} on an atomic bus"),
        }
        Effect::Nothing
    }

    fn evict(&mut self, e: &mut Engine, line: usize, cpu: usize) {
        if write_once::evict(e, line, cpu) {
            // No processor may read it from memory before that: it goes first.
            self.waiting.push_front(Transaction::WriteBack);
            self.resume(e);
        }
    }

    fn change(&mut self, e: &mut Engine, cpu: usize, word: u32, op: Op) {
        self.ask(e, Transaction::System { cpu, word, op });
    }

    /// The system may have asked for the bus again, and have it.
    fn resume(&mut self, e: &mut Engine) {
        if self.holder.is_none() {
            self.next_transaction(e);
        }
    }

    /// No transaction holds the bus or waits for it.
    fn check_at_rest(&self, e: &Engine) -> Result<(), String> {
        match (self.holder, self.waiting.front()) {
            (None, None) => e.check_lines(),
            held => Err(format!("the bus is held or waited for: {held:?}")),
        }
    }
}

impl AtomicBus {
    fn ask(&mut self, e: &mut Engine, transaction: Transaction) {
        self.waiting.push_back(transaction);
        self.resume(e);
    }

    /// Ends a transaction. Its requester has its reply already, which was sent first.
    fn free(&mut self, e: &mut Engine) -> Effect {
        if let Some(Transaction::System { cpu, word, op }) = self.holder.take() {
            op.apply(&mut e.memory.values[word as usize]);
            e.progress = e.now;
            return Effect::Changed(cpu);
        }
        self.next_transaction(e);
        Effect::Nothing
    }

    fn next_transaction(&mut self, e: &mut Engine) {
        let Some(transaction) = self.waiting.pop_front() else { return };
        self.holder = Some(transaction);
        e.counters.bus_transactions += 1;
        let length = match transaction {
            Transaction::WriteBack => e.p.bus_write_back,
            Transaction::System { word, .. } => {
                let line = e.memory.line_of(word);
                let back = write_once::take_back(e, line, NONE as usize);
                write_once::drop_copies(e, line, NONE as usize);
                back + e.p.bus_memory + e.p.bus_write
            }
            Transaction::Request { cpu } => {
                let length = write_once::serve(e, cpu);
                e.events.push(e.now + length, EventKind::Reply, cpu, 0);
                length
            }
        };
        e.counters.bus_held += length;
        e.events.push(e.now + length, EventKind::BusFree, 0, 0);
    }
}
