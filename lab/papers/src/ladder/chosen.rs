//! Packet slots for the busiest pairs, and one locked queue for all others (Gropp & Lusk
//! 1997, Section 9.1, the second refinement): a receiver polls a few slots and a queue, however
//! many processes there are.
//!
//! A receiver gives a slot of its own to each sender from which it has had [`PACKETS_BEFORE`]
//! packets by the queue, as long as it has slots left, and tells it so in a word. The sender goes
//! over to the slot when its last packet has left the queue: so its packets stay in order.
//!
//! **Progress.** Through a slot as with `slots.rs`; through the queue blocking.
//!
//! **Fields.** `given` (one word for each pair): written by the receiver, read by the sender. The
//! slots and the queue as in `slots.rs` and `locked.rs`.
//!
//! **Crashes.** None are survived under the queue's lock; a slot's owner that dies keeps it.

use std::cell::Cell;

use towpath_machine::{Arena, Ordering, Place, Processor};
use towpath_sync::Waiting;

use super::{
    ControlPackets, LadderLock, LadderSlot, LockedQueues, PacketEnvelope, Route, SHORT_BELOW, wait_a_little,
};

/// Number of packets by the queue before their sender gets a slot.
const PACKETS_BEFORE: u32 = 2;

/// Slots that receivers have given to their senders: for each pair 0, or one more than
/// the number of the slot.
pub struct Given<P: Processor>(Vec<P::Word>);

impl<P: Processor> Given<P> {
    /// No slot is given yet.
    pub fn new(arena: &impl Arena<P>, processes: usize) -> Self {
        Given((0..processes * processes).map(|_| arena.word(Place::NewLine, 0)).collect())
    }
}

/// One process's view of the slots and the queue.
pub struct Chosen<'a, P: Processor, X> {
    queues: LockedQueues<'a, P, X>,
    /// `each` for every receiver, with [`SHORT_BELOW`] bytes of payload each.
    slots: &'a [LadderSlot<P>],
    payload: &'a P::Bytes,
    given: &'a Given<P>,
    processes: usize,
    each: usize,
    /// The receiver's view: the owners of its slots, and the number of packets from each
    /// by the queue.
    owners: Vec<Cell<Option<usize>>>,
    heard: Vec<Cell<u32>>,
    /// The sender's view: one more than the number of its last packet in each receiver's
    /// queue.
    queued: Vec<Cell<u64>>,
}

impl<'a, P: Processor, X: LadderLock<P>> Chosen<'a, P, X> {
    /// One process's end.
    pub fn new(
        queues: LockedQueues<'a, P, X>,
        (slots, payload): (&'a [LadderSlot<P>], &'a P::Bytes),
        given: &'a Given<P>,
        processes: usize,
    ) -> Self {
        let each = slots.len() / processes;
        Chosen {
            queues,
            slots,
            payload,
            given,
            processes,
            each,
            owners: (0..each).map(|_| Cell::new(None)).collect(),
            heard: (0..processes).map(|_| Cell::new(0)).collect(),
            queued: (0..processes).map(|_| Cell::new(0)).collect(),
        }
    }

    fn given(&self, route: Route) -> &P::Word {
        &self.given.0[route.to * self.processes + route.from]
    }

    /// The slot that this process may send through to that one.
    fn slot(&self, cpu: &P, route: Route) -> Option<usize> {
        // (G1) Acquire: the slot was emptied before it was given; pairs with the Release (G2) in
        // `hear`.
        let given = cpu.load(self.given(route), Ordering::Acquire) as usize;
        let number = given.checked_sub(1).filter(|&n| n < self.each)?;
        // Relaxed: nothing is read because of it; the receiver is past what it has taken out.
        let head = cpu.load(self.queues.head(route.to), Ordering::Relaxed);
        (head >= self.queued[route.to].get()).then_some(route.to * self.each + number)
    }

    /// A packet has come by the queue: its sender may have earned a slot.
    fn hear(&self, cpu: &P, route: Route) {
        let heard = &self.heard[route.from];
        heard.set(heard.get() + 1);
        let free = self.owners.iter().position(|o| o.get().is_none());
        if let (PACKETS_BEFORE, Some(number)) = (heard.get(), free) {
            self.owners[number].set(Some(route.from));
            // (G2) Release: pairs with the Acquire (G1) in `slot`.
            cpu.store(self.given(route), number as u64 + 1, Ordering::Release);
        }
    }
}

impl<P: Processor, X: LadderLock<P>> ControlPackets<P> for Chosen<'_, P, X> {
    fn send<W: Waiting<P>>(&self, cpu: &P, wait: &W, route: Route, envelope: PacketEnvelope, payload: &[u8]) {
        let mut round = 0;
        loop {
            if let Some(index) = self.slot(cpu, route) {
                let slot = &self.slots[index];
                if !slot.is_full(cpu) {
                    slot.copy_in(cpu, self.payload, index * SHORT_BELOW, envelope, payload);
                    return slot.set_ready(cpu);
                }
                wait_a_little(cpu, wait, slot.ready(), 1, round);
            } else if let Some(number) = self.queues.put(cpu, wait, route, envelope, payload) {
                return self.queued[route.to].set(number + 1);
            } else {
                // No waiter gives up here (see `LadderLock`).
                let _ = wait.back_off(cpu, round);
            }
            round += 1;
        }
    }

    fn receive(
        &self,
        cpu: &P,
        wait: &impl Waiting<P>,
        me: usize,
        buffer: &mut [u8],
    ) -> Option<(usize, PacketEnvelope)> {
        for (number, owner) in self.owners.iter().enumerate() {
            let index = me * self.each + number;
            let slot = &self.slots[index];
            if let Some(from) = owner.get()
                && slot.is_full(cpu)
            {
                return Some((from, slot.take(cpu, self.payload, index * SHORT_BELOW, buffer)));
            }
        }
        let (from, envelope) = self.queues.receive(cpu, wait, me, buffer)?;
        self.hear(cpu, Route { from, to: me });
        Some((from, envelope))
    }

    fn wait_for<W: Waiting<P>>(&self, cpu: &P, wait: &W, route: Route, round: u32) {
        self.queues.wait_for(cpu, wait, route, round);
    }
}
