//! Figures 2 and 3 of Gropp & Lusk 1997 as they are printed, to show their slips (claim
//! M19). **Don't use it.**
//!
//! The sender tests and fills `slots[dest][myid]`, the receiver looks at `slots[i][myid]`: with the
//! index of the other process first in both, they never meet; what a process sends lies where it
//! looks for the other's packets itself. [`Indices::Corrected`] has the receiver look at
//! `slots[myid][i]`.
//!
//! `pkt->ready = 0` is set in the sender's own copy of the packet, which is copied as it is, with
//! its bit: see [`Printed::ready`].

use std::cell::Cell;

use towpath_machine::{Ordering, Processor};
use towpath_sync::Waiting;

use super::{ControlPackets, LadderSlot, PacketEnvelope, Route, SHORT_BELOW, wait_a_little};

/// Order in which the receiver writes its indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indices {
    /// `slots[i][myid]`, as in Figure 2.
    Printed,
    /// `slots[myid][i]`, as the sender's in Figure 3.
    Corrected,
}

/// The slots of all pairs.
pub struct Printed<'a, P: Processor> {
    /// Processes × processes.
    pub slots: &'a [LadderSlot<P>],
    /// [`SHORT_BELOW`] bytes for each slot.
    pub payload: &'a P::Bytes,
    /// Number of processes.
    pub processes: usize,
    /// The receiver's.
    pub indices: Indices,
    /// The bit of the packet to send: 0 after `pkt->ready = 0`; 1 if that line were
    /// missing and the packet one that was received before.
    pub ready: Cell<u64>,
}

impl<P: Processor> Printed<'_, P> {
    /// `slots[a][b]`.
    fn at(&self, a: usize, b: usize) -> usize {
        a * self.processes + b
    }

    fn looks_at(&self, from: usize, me: usize) -> usize {
        match self.indices {
            Indices::Printed => self.at(from, me),
            Indices::Corrected => self.at(me, from),
        }
    }
}

impl<P: Processor> ControlPackets<P> for Printed<'_, P> {
    fn send<W: Waiting<P>>(&self, cpu: &P, wait: &W, route: Route, envelope: PacketEnvelope, payload: &[u8]) {
        let index = self.at(route.to, route.from);
        let slot = &self.slots[index];
        slot.wait_until_empty(cpu, wait);
        // Relaxed: a part of the packet like the others, copied with them.
        cpu.store(slot.ready(), self.ready.get(), Ordering::Relaxed);
        slot.copy_in(cpu, self.payload, index * SHORT_BELOW, envelope, payload);
        slot.set_ready(cpu);
    }

    fn receive(
        &self,
        cpu: &P,
        _wait: &impl Waiting<P>,
        me: usize,
        buffer: &mut [u8],
    ) -> Option<(usize, PacketEnvelope)> {
        (0..self.processes).find_map(|from| {
            let index = self.looks_at(from, me);
            let slot = &self.slots[index];
            slot.is_full(cpu).then(|| (from, slot.take(cpu, self.payload, index * SHORT_BELOW, buffer)))
        })
    }

    fn wait_for<W: Waiting<P>>(&self, cpu: &P, wait: &W, route: Route, round: u32) {
        let index = self.looks_at(route.from, route.to);
        wait_a_little(cpu, wait, self.slots[index].ready(), 0, round);
    }
}
