//! Packet queues under locks: one for each process, with many writers and one reader
//! (Gropp & Lusk 1997, Sections 3 and 4).
//!
//! **Progress.** Blocking: a holder that is preempted or dies stops all senders and the
//! receiver.
//!
//! **Fields.** `tail` and the packet that it stands for: senders, under the lock. `head`: the
//! receiver, under the lock. The receiver looks at both without the lock to learn whether there is
//! anything.
//!
//! **Crashes.** None are survived under the lock.
//!
//! **Don't use it**: it is here to be compared with.

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};
use towpath_sync::Waiting;

use super::{ControlPackets, LadderLock, PacketEnvelope, Route, SHORT_BELOW, wait_a_little};

/// Packets in a queue.
pub const PACKETS: usize = 16;

/// A packet without its payload.
#[repr(C)]
pub struct Packet<P: Processor> {
    envelope: OwnLine<[P::Cell; 4]>,
}

impl<P: Processor> Packet<P> {
    /// Makes an unused packet.
    pub fn new(arena: &impl Arena<P>) -> Self {
        let cell = |n| arena.cell(Place::in_row(n), 0);
        Packet { envelope: OwnLine(core::array::from_fn(cell)) }
    }
}

/// A queue's words. All-zero memory is an empty queue.
#[repr(C)]
pub struct QueueEnds<P: Processor> {
    tail: OwnLine<P::Word>,
    head: OwnLine<P::Word>,
}

impl<P: Processor> QueueEnds<P> {
    /// Makes the ends of an empty queue.
    pub fn new(arena: &impl Arena<P>) -> Self {
        let line = || OwnLine(arena.word(Place::NewLine, 0));
        QueueEnds { tail: line(), head: line() }
    }
}

/// The queues of all processes, each under its own lock.
pub struct LockedQueues<'a, P: Processor, X> {
    /// Ends of each process's queue.
    pub ends: &'a [QueueEnds<P>],
    /// Sixteen for each process.
    pub packets: &'a [Packet<P>],
    /// [`SHORT_BELOW`] bytes for each packet.
    pub payload: &'a P::Bytes,
    /// Lock of each process's queue.
    pub locks: Vec<X>,
}

impl<P: Processor, X: LadderLock<P>> LockedQueues<'_, P, X> {
    fn packet(&self, process: usize, ticket: u64) -> usize {
        process * PACKETS + ticket as usize % PACKETS
    }

    /// Number of packets that have left a process's queue.
    pub(super) fn head(&self, process: usize) -> &P::Word {
        &self.ends[process].head.0
    }

    /// Returns its number in the queue, if there was room.
    pub(super) fn put<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        route: Route,
        envelope: PacketEnvelope,
        payload: &[u8],
    ) -> Option<u64> {
        let ends = &self.ends[route.to];
        let lock = &self.locks[route.to];
        lock.enter(cpu, wait);
        // Relaxed, both: under the lock.
        let tail = cpu.load(&ends.tail.0, Ordering::Relaxed);
        let room = tail - cpu.load(&ends.head.0, Ordering::Relaxed) < PACKETS as u64;
        if room {
            let index = self.packet(route.to, tail);
            let cells = &self.packets[index].envelope.0;
            for (cell, value) in
                cells.iter().zip([envelope.kind, envelope.len, envelope.at, route.from as u64])
            {
                cpu.write(cell, value);
            }
            cpu.copy_in(self.payload, index * SHORT_BELOW, payload);
            // (Q1) Release: pairs with the Acquire (Q2) of the look without the lock.
            cpu.store(&ends.tail.0, tail + 1, Ordering::Release);
        }
        lock.leave(cpu, wait);
        room.then_some(tail)
    }
}

impl<P: Processor, X: LadderLock<P>> ControlPackets<P> for LockedQueues<'_, P, X> {
    fn send<W: Waiting<P>>(&self, cpu: &P, wait: &W, route: Route, envelope: PacketEnvelope, payload: &[u8]) {
        let ends = &self.ends[route.to];
        let mut round = 0;
        while self.put(cpu, wait, route, envelope, payload).is_none() {
            // Relaxed: a hint; the lock decides.
            wait_a_little(cpu, wait, &ends.head.0, cpu.load(&ends.head.0, Ordering::Relaxed), round);
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
        let ends = &self.ends[me];
        // Relaxed: no other process writes the head.
        let head = cpu.load(&ends.head.0, Ordering::Relaxed);
        // (Q2) Acquire: pairs with the Release (Q1) in `put`.
        if cpu.load(&ends.tail.0, Ordering::Acquire) == head {
            return None;
        }
        let lock = &self.locks[me];
        lock.enter(cpu, wait);
        let index = self.packet(me, head);
        let [kind, len, at, from] = [0, 1, 2, 3].map(|n| cpu.read(&self.packets[index].envelope.0[n]));
        let inline = buffer.len().min(len as usize).min(SHORT_BELOW);
        cpu.copy_out(self.payload, index * SHORT_BELOW, &mut buffer[..inline]);
        // Relaxed: under the lock.
        cpu.store(&ends.head.0, head + 1, Ordering::Relaxed);
        lock.leave(cpu, wait);
        Some((from as usize, PacketEnvelope { kind, len, at }))
    }

    fn wait_for<W: Waiting<P>>(&self, cpu: &P, wait: &W, route: Route, round: u32) {
        let ends = &self.ends[route.to];
        // Relaxed: no other process writes the head.
        wait_a_little(cpu, wait, &ends.tail.0, cpu.load(&ends.head.0, Ordering::Relaxed), round);
    }
}
