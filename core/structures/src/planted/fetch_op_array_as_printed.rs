//! The array queue over fetch-ops **as printed, which is wrong**: kept to show that it
//! is. The corrected one is [`crate::queues::FetchOpArray`].
//!
//! **Source.** Nikolopoulos & Papatheodorou 1999, Figure 1, letter by letter. The figure has no
//! bound: here the slot is taken modulo the array, lest it be left.
//!
//! **Progress.** Nothing waits: `dequeue` leaves its loop in the first round, whatever it found.
//!
//! **What is wrong.** `enqueue` draws from `head` instead of `tail`, which therefore never moves;
//! `dequeue` looks at the slot behind what was put in last. One enqueue and one dequeue, one after
//! the other, return "empty". Nor can it tell 0 from "nothing", nor a full array from one with
//! room.
//!
//! **Fields.** `head`: by increment, every participant. `tail`: is never written. `nodes[i]`:
//! stored by `enqueue`, cleared by `dequeue`.
//!
//! **Crashes.** No matter.
//!
//! **Memory.** A word at memory per slot, and two.
//!
//! **Don't use it.**

use towpath_machine::{Arena, FetchOp, OwnLine, Place, Processor};

use crate::queues::{ConcurrentQueue, QueueError};
use crate::{Boxed, Storage};
use towpath_sync::Waiting;

/// Figure 1 as printed: wrong.
#[repr(C)]
pub struct FetchOpArrayAsPrinted<P: Processor, S: Storage = Boxed> {
    head: OwnLine<P::Word>,
    tail: OwnLine<P::Word>,
    nodes: S::Nodes<P::Word>,
}

impl<P: FetchOp, S: Storage> FetchOpArrayAsPrinted<P, S> {
    fn node(&self, slot: u64) -> Result<&P::Word, QueueError> {
        let nodes = self.nodes.as_ref();
        let index = slot.checked_rem(nodes.len() as u64).ok_or(QueueError::Full)?;
        nodes.get(index as usize).ok_or(QueueError::Corrupt)
    }
}

impl<P: FetchOp, S: Storage> ConcurrentQueue<P> for FetchOpArrayAsPrinted<P, S> {
    const NAME: &'static str = "planted/fetch-op-array-as-printed";
    const BLOCKING: bool = false;

    fn new(arena: &impl Arena<P>, capacity: usize, _participants: usize) -> Self {
        let at_memory = || arena.word(Place::AtMemory(0), 0);
        FetchOpArrayAsPrinted {
            head: OwnLine(at_memory()),
            tail: OwnLine(at_memory()),
            nodes: S::nodes(capacity, |_| at_memory()),
        }
    }

    fn enqueue<W: Waiting<P>>(&self, cpu: &P, _wait: &W, _me: usize, value: u64) -> Result<(), QueueError> {
        let slot = cpu.fetch_increment(&self.head);
        cpu.fetch_store(self.node(slot)?, value);
        Ok(())
    }

    fn dequeue<W: Waiting<P>>(&self, cpu: &P, _wait: &W, _me: usize) -> Result<Option<u64>, QueueError> {
        if cpu.fetch_load(&self.head) == cpu.fetch_load(&self.tail) {
            return Ok(None);
        }
        let slot = cpu.fetch_load(&self.head);
        let item = cpu.fetch_clear(self.node(slot)?);
        if item != 0 {
            cpu.fetch_increment(&self.head);
        }
        Ok((item != 0).then_some(item))
    }
}
