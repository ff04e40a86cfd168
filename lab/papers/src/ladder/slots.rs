//! Packet slots: one for each ordered pair of processes, so that neither end needs a lock
//! (Gropp & Lusk 1997, Section 5, Figures 2 and 3).
//!
//! **Source.** The figures, with their slips corrected (claim M19): both use the same index order,
//! slot (from, to), and it is the slot's own flag that is cleared, by the receiver.
//!
//! **Progress.** A sender waits for its own receiver to empty the slot, and for no other.
//!
//! **Fields.** `ready`: set by the sender once the packet is in the slot, cleared by the receiver
//! once it is out. `envelope` and the payload: the sender's while the flag is clear, the receiver's
//! while it is set.
//!
//! **Crashes.** Dies before it sets the flag: nothing was sent. Dies after: the packet arrives. A
//! receiver that dies leaves the slot full, and its sender waits for ever.
//!
//! **Don't use it** with many processes: a receiver polls one slot for each other process, and each
//! slot takes a packet's room whether it is used or not.

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};
use towpath_sync::Waiting;

use super::{ControlPackets, PacketEnvelope, Route, SHORT_BELOW, is_raised, raise, wait_a_little};

/// A slot without its payload. All-zero memory is an empty one.
#[repr(C)]
pub struct LadderSlot<P: Processor> {
    ready: OwnLine<SlotWords<P>>,
}

#[repr(C)]
struct SlotWords<P: Processor> {
    ready: P::Word,
    envelope: [P::Cell; 3],
}

impl<P: Processor> LadderSlot<P> {
    /// Makes an empty slot.
    pub fn new(arena: &impl Arena<P>) -> Self {
        let ready = arena.word(Place::NewLine, 0);
        let envelope = core::array::from_fn(|_| arena.cell(Place::SameLine, 0));
        LadderSlot { ready: OwnLine(SlotWords { ready, envelope }) }
    }

    /// The bit that says that there is a packet.
    pub(super) fn ready(&self) -> &P::Word {
        &self.ready.0.ready
    }

    /// Returns whether there is a packet (`PKT_READY_IS_SET`).
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

    /// Copies a packet into the slot (`PKT_COPYIN`), its payload to that place, while the
    /// slot is empty.
    pub(super) fn copy_in(
        &self,
        cpu: &P,
        bytes: &P::Bytes,
        at: usize,
        envelope: PacketEnvelope,
        payload: &[u8],
    ) {
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
    pub(super) fn take(&self, cpu: &P, bytes: &P::Bytes, at: usize, buffer: &mut [u8]) -> PacketEnvelope {
        let [kind, len, place] = [0, 1, 2].map(|n| cpu.read(&self.ready.0.envelope[n]));
        let inline = buffer.len().min(len as usize).min(SHORT_BELOW);
        cpu.copy_out(bytes, at, &mut buffer[..inline]);
        // (F3) Release: the packet has been read; pairs with the Acquire (F1) in `is_raised`.
        cpu.store(self.ready(), 0, Ordering::Release);
        PacketEnvelope { kind, len, at: place }
    }
}

/// The slots of all pairs.
pub struct Slots<'a, P: Processor> {
    /// One slot for each ordered pair: (from, to) at `to * processes + from`, so that a
    /// receiver's slots lie together.
    pub slots: &'a [LadderSlot<P>],
    /// [`SHORT_BELOW`] bytes for each slot.
    pub payload: &'a P::Bytes,
    /// Number of processes.
    pub processes: usize,
}

impl<P: Processor> Slots<'_, P> {
    fn index(&self, route: Route) -> usize {
        route.to * self.processes + route.from
    }
}

impl<P: Processor> ControlPackets<P> for Slots<'_, P> {
    fn send<W: Waiting<P>>(&self, cpu: &P, wait: &W, route: Route, envelope: PacketEnvelope, payload: &[u8]) {
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
    ) -> Option<(usize, PacketEnvelope)> {
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

/// The slot under the model checker (claim M14). Cells and bytes are not atomic there: a
/// packet that can be read before it is written, or overwritten before it is read, fails the model.
#[cfg(test)]
mod tests {
    use loom::sync::Arc;
    use loom::thread;
    use towpath_machine::{LoomArena, LoomBytes, LoomProcessor};

    use super::*;

    /// Planted mistakes of sender and receiver.
    #[derive(Clone, Copy, Default)]
    struct Planted {
        set: bool,
        look: bool,
        clear: bool,
    }

    struct SharedRow {
        slot: LadderSlot<LoomProcessor>,
        bytes: LoomBytes,
    }

    impl SharedRow {
        fn fill(&self, cpu: &LoomProcessor, number: u8) {
            let envelope = PacketEnvelope { kind: number.into(), len: 4, at: 0 };
            self.slot.copy_in(cpu, &self.bytes, 0, envelope, &[number; 4]);
        }

        fn look(&self, cpu: &LoomProcessor, planted: Planted) -> bool {
            // Relaxed: the fault; what was written before the bit was set need not be there.
            if planted.look {
                cpu.load(self.slot.ready(), Ordering::Relaxed) != 0
            } else {
                self.slot.is_full(cpu)
            }
        }

        /// Takes a packet, if there is one.
        fn take(&self, cpu: &LoomProcessor, planted: Planted) -> Option<u8> {
            if !self.look(cpu, planted) {
                return None;
            }
            if planted.clear {
                // The fault: cleared before the packet is out.
                cpu.store(self.slot.ready(), 0, Ordering::Release);
            }
            let mut buffer = [0; 4];
            let envelope = self.slot.take(cpu, &self.bytes, 0, &mut buffer);
            assert!(buffer.iter().all(|b| u64::from(*b) == envelope.kind), "{envelope:?} {buffer:?}");
            Some(buffer[0])
        }
    }

    fn model(body: impl Fn(Arc<SharedRow>, LoomProcessor) + Send + Sync + 'static) {
        loom::model(move || {
            let arena = LoomArena::default();
            let shared = SharedRow { slot: LadderSlot::new(&arena), bytes: arena.bytes(4) };
            body(Arc::new(shared), LoomProcessor { id: 0 });
        });
    }

    /// An empty slot: a packet is sent while its receiver looks twice. The sender does
    /// not look first, because loom 0.7 forgets that others have read a word when its writer reads
    /// it too.
    fn first(planted: Planted) {
        model(move |shared, cpu| {
            let other = Arc::clone(&shared);
            let sender = thread::spawn(move || {
                let cpu = LoomProcessor { id: 1 };
                other.fill(&cpu, 1);
                if planted.set {
                    // Relaxed: the fault; the bit may be seen before the packet.
                    cpu.store(other.slot.ready(), 1, Ordering::Relaxed);
                } else {
                    other.slot.set_ready(&cpu);
                }
            });
            let early = shared.take(&cpu, planted).or_else(|| shared.take(&cpu, planted));
            sender.join().unwrap();
            assert_eq!(early.or_else(|| shared.take(&cpu, planted)), Some(1));
        });
    }

    /// A full slot: the sender sends the next packet if it finds the slot empty, while
    /// the receiver takes the first.
    fn next(planted: Planted) {
        model(move |shared, cpu| {
            shared.fill(&cpu, 1);
            shared.slot.set_ready(&cpu);
            let other = Arc::clone(&shared);
            let sender = thread::spawn(move || {
                let cpu = LoomProcessor { id: 1 };
                let empty = !other.slot.is_full(&cpu);
                if empty {
                    other.fill(&cpu, 2);
                    other.slot.set_ready(&cpu);
                }
                empty
            });
            assert_eq!(shared.take(&cpu, planted), Some(1));
            let sent = sender.join().unwrap();
            assert_eq!(shared.take(&cpu, planted), sent.then_some(2));
        });
    }

    fn fails(planted: Planted) -> bool {
        std::panic::catch_unwind(|| if planted.clear { next(planted) } else { first(planted) }).is_err()
    }

    #[test]
    fn a_packet_is_there_when_its_bit_is() {
        first(Planted::default());
        next(Planted::default());
    }

    #[test]
    fn without_an_order_between_packet_and_bit_it_may_not_be() {
        assert!(fails(Planted { set: true, ..Planted::default() }), "set without Release");
        assert!(fails(Planted { look: true, ..Planted::default() }), "seen without Acquire");
        assert!(fails(Planted { clear: true, ..Planted::default() }), "cleared before the packet was out");
    }
}
