//! Packet slots: one for each ordered pair of processes, so that neither end needs a lock (Gropp & Lusk 1997, Section 5, Figures 2 and 3).
//!
//! **Source.** The figures, with their slips corrected (claim M19): both use the same index order, slot (from, to), and it is the slot's own flag that is cleared, by the receiver.
//!
//! **Progress.** A sender waits for its own receiver to empty the slot, and for nobody else.
//!
//! **Fields.** `ready`: set by the sender once the packet is in the slot, cleared by the receiver once it is out. `envelope` and the payload: the sender's while the flag is clear, the
//! receiver's while it is set.
//!
//! **Crashes.** Dies before it sets the flag: nothing was sent. Dies after: the packet arrives. A receiver that dies leaves the slot full, and its sender waits for ever.
//!
//! **Don't use it** with many processes: a receiver polls one slot for each other process, and each slot takes a packet's room whether it is used or not.

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};
use towpath_sync::Waiting;

use super::{ControlPackets, Envelope, Route, SHORT_BELOW, is_raised, raise, wait_a_little};

/// A slot without its payload. All-zero memory is an empty one.
#[repr(C)]
pub struct Slot<P: Processor> {
    ready: OwnLine<SlotWords<P>>,
}

#[repr(C)]
struct SlotWords<P: Processor> {
    ready: P::Word,
    envelope: [P::Cell; 3],
}

impl<P: Processor> Slot<P> {
    /// An empty one.
    pub fn new(arena: &impl Arena<P>) -> Self {
        let ready = arena.word(Place::NewLine, 0);
        let envelope = core::array::from_fn(|_| arena.cell(Place::SameLine, 0));
        Slot { ready: OwnLine(SlotWords { ready, envelope }) }
    }

    /// The bit that says that there is a packet.
    pub(super) fn ready(&self) -> &P::Word {
        &self.ready.0.ready
    }

    /// Whether there is a packet (`PKT_READY_IS_SET`).
    pub(super) fn is_full(&self, cpu: &P) -> bool {
        is_raised(cpu, self.ready())
    }

    /// Waits until there is none. Returns whether there was one.
    pub(super) fn wait_until_empty<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> bool {
        let mut round = 0;
        while self.is_full(cpu) {
            wait_a_little(cpu, wait, self.ready(), 1, round);
            round += 1;
        }
        round > 0
    }

    /// Copies a packet into the slot (`PKT_COPYIN`), its payload to that place, while the slot is empty.
    pub(super) fn copy_in(&self, cpu: &P, bytes: &P::Bytes, at: usize, envelope: Envelope, payload: &[u8]) {
        let values = [envelope.kind, envelope.len, envelope.at];
        for (cell, value) in self.ready.0.envelope.iter().zip(values) {
            cpu.write(cell, value);
        }
        cpu.copy_in(bytes, at, payload);
    }

    /// Sets the bit (`PKT_READY_SET`).
    pub(super) fn set_ready(&self, cpu: &P) {
        raise(cpu, self.ready());
    }

    /// Copies the packet out of a full slot and clears the bit.
    pub(super) fn take(&self, cpu: &P, bytes: &P::Bytes, at: usize, buffer: &mut [u8]) -> Envelope {
        let [kind, len, place] = [0, 1, 2].map(|n| cpu.read(&self.ready.0.envelope[n]));
        let inline = buffer.len().min(len as usize).min(SHORT_BELOW);
        cpu.copy_out(bytes, at, &mut buffer[..inline]);
        // Release: the packet has been read; pairs with the Acquire of the sender's look.
        cpu.store(self.ready(), 0, Ordering::Release);
        Envelope { kind, len, at: place }
    }
}

/// The slots of all pairs.
pub struct Slots<'a, P: Processor> {
    /// One for each ordered pair: (from, to) at `to * processes + from`, so that what a receiver polls lies together.
    pub slots: &'a [Slot<P>],
    /// [`SHORT_BELOW`] bytes for each slot.
    pub payload: &'a P::Bytes,
    /// How many processes there are.
    pub processes: usize,
}

impl<P: Processor> Slots<'_, P> {
    fn index(&self, route: Route) -> usize {
        route.to * self.processes + route.from
    }
}

impl<P: Processor> ControlPackets<P> for Slots<'_, P> {
    fn send<W: Waiting<P>>(&self, cpu: &P, wait: &W, route: Route, envelope: Envelope, payload: &[u8]) {
        let index = self.index(route);
        let slot = &self.slots[index];
        slot.wait_until_empty(cpu, wait);
        slot.copy_in(cpu, self.payload, index * SHORT_BELOW, envelope, payload);
        slot.set_ready(cpu);
    }

    fn receive(
        &self,
        cpu: &P,
        _wait: &impl Waiting<P>,
        me: usize,
        buffer: &mut [u8],
    ) -> Option<(usize, Envelope)> {
        for from in 0..self.processes {
            let index = self.index(Route { from, to: me });
            let slot = &self.slots[index];
            if slot.is_full(cpu) {
                return Some((from, slot.take(cpu, self.payload, index * SHORT_BELOW, buffer)));
            }
        }
        None
    }

    fn wait_for<W: Waiting<P>>(&self, cpu: &P, wait: &W, route: Route, round: u32) {
        wait_a_little(cpu, wait, self.slots[self.index(route)].ready(), 0, round);
    }
}
