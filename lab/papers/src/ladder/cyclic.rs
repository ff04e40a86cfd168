//! Several packet slots for each pair, used cyclically: a sender has to wait only if all
//! of them are full (Gropp & Lusk 1997, Section 9.1, the first refinement).
//!
//! **Progress.** As with one slot: a sender waits for its own receiver, and for no other.
//!
//! **Fields.** Those of a slot, for each of them. Which slot is next is known to each end by
//! itself.
//!
//! **Crashes.** As with one slot.
//!
//! **Don't use it** with many processes: it takes as many times the room as there are slots for a
//! pair.

use std::cell::Cell;

use towpath_machine::Processor;
use towpath_sync::Waiting;

use super::{ControlPackets, LadderSlot, PacketEnvelope, Route, SHORT_BELOW, wait_a_little};

/// The slots of all pairs, as one process sees them.
pub struct Cyclic<'a, P: Processor> {
    slots: &'a [LadderSlot<P>],
    payload: &'a P::Bytes,
    processes: usize,
    depth: usize,
    /// Number of packets that this process has sent to each other one, and received from
    /// it.
    sent: Vec<Cell<usize>>,
    taken: Vec<Cell<usize>>,
    full: Cell<u64>,
}

impl<'a, P: Processor> Cyclic<'a, P> {
    /// One process's end: `depth` slots for each of `processes` × `processes` pairs, each
    /// with [`SHORT_BELOW`] bytes of payload.
    pub fn new(slots: &'a [LadderSlot<P>], payload: &'a P::Bytes, processes: usize, depth: usize) -> Self {
        assert_eq!(slots.len(), processes * processes * depth, "slots for all pairs");
        let counts = || (0..processes).map(|_| Cell::new(0)).collect();
        Cyclic { slots, payload, processes, depth, sent: counts(), taken: counts(), full: Cell::new(0) }
    }

    /// Number of packets of this process that had to wait for a slot.
    pub fn found_full(&self) -> u64 {
        self.full.get()
    }

    fn index(&self, route: Route, number: usize) -> usize {
        (route.to * self.processes + route.from) * self.depth + number % self.depth
    }
}

impl<P: Processor> ControlPackets<P> for Cyclic<'_, P> {
    fn send<W: Waiting<P>>(&self, cpu: &P, wait: &W, route: Route, envelope: PacketEnvelope, payload: &[u8]) {
        let sent = &self.sent[route.to];
        let index = self.index(route, sent.get());
        let slot = &self.slots[index];
        let was_full = slot.wait_until_empty(cpu, wait);
        self.full.set(self.full.get() + u64::from(was_full));
        slot.copy_in(cpu, self.payload, index * SHORT_BELOW, envelope, payload);
        slot.set_ready(cpu);
        sent.set(sent.get() + 1);
    }

    fn receive(
        &self,
        cpu: &P,
        _wait: &impl Waiting<P>,
        me: usize,
        buffer: &mut [u8],
    ) -> Option<(usize, PacketEnvelope)> {
        for from in 0..self.processes {
            let taken = &self.taken[from];
            let index = self.index(Route { from, to: me }, taken.get());
            let slot = &self.slots[index];
            if slot.is_full(cpu) {
                taken.set(taken.get() + 1);
                return Some((from, slot.take(cpu, self.payload, index * SHORT_BELOW, buffer)));
            }
        }
        None
    }

    fn wait_for<W: Waiting<P>>(&self, cpu: &P, wait: &W, route: Route, round: u32) {
        let index = self.index(route, self.taken[route.from].get());
        wait_a_little(cpu, wait, self.slots[index].ready(), 0, round);
    }
}
