//! Packet slots for machines with one-sided operations (Gropp & Lusk 1997, Section 9.3):
//! the slot and its "full" in the receiver's memory, its "empty" in the sender's. Each end polls
//! its own memory; all that crosses the network are puts.
//!
//! **Progress.** As with one slot: a sender waits for its own receiver, and for no other.
//!
//! **Fields.** `full` and the packet: put by the sender, read by the receiver, at whose node they
//! lie. `empty`: put by the receiver, read by the sender, at whose node it lies. Both count
//! packets, so that neither has to be cleared.
//!
//! **Crashes.** Dies before it puts `full`: nothing was sent. A receiver that dies leaves its
//! sender waiting.
//!
//! **Don't use it** where caches are coherent: there a line that is polled is local anyhow.

use std::cell::Cell;

use towpath_machine::{Arena, FetchOp, Place, Processor};

use super::Route;

/// Words of a packet.
pub const WORDS: usize = 4;

/// The memory of an ordered pair.
pub struct MailboxPair<P: Processor> {
    full: P::Word,
    packet: [P::Word; WORDS],
    empty: P::Word,
}

impl<P: Processor> MailboxPair<P> {
    /// Makes an empty pair of mailboxes.
    ///
    /// The receiver's part lies at its node, the sender's "empty" at that node.
    pub fn new(arena: &impl Arena<P>, receiver: u32, empty: u32) -> Self {
        let word = |node| arena.word(Place::AtMemory(node), 0);
        MailboxPair {
            full: word(receiver),
            packet: core::array::from_fn(|_| word(receiver)),
            empty: word(empty),
        }
    }
}

/// The pairs of all processes, as one of them sees them.
pub struct Mailboxes<'a, P: Processor> {
    /// (from, to) at `to * processes + from`.
    pairs: &'a [MailboxPair<P>],
    processes: usize,
    sent: Vec<Cell<u64>>,
    taken: Vec<Cell<u64>>,
    puts: Cell<u64>,
}

impl<'a, P: FetchOp> Mailboxes<'a, P> {
    /// One process's end.
    pub fn new(pairs: &'a [MailboxPair<P>], processes: usize) -> Self {
        let counts = || (0..processes).map(|_| Cell::new(0)).collect();
        Mailboxes { pairs, processes, sent: counts(), taken: counts(), puts: Cell::new(0) }
    }

    /// Number of puts of this process to the other one's memory.
    pub fn puts(&self) -> u64 {
        self.puts.get()
    }

    fn pair(&self, route: Route) -> &MailboxPair<P> {
        &self.pairs[route.to * self.processes + route.from]
    }

    fn put(&self, cpu: &P, word: &P::Word, value: u64) {
        self.puts.set(self.puts.get() + 1);
        cpu.fetch_store(word, value);
    }

    /// Sends a packet; polls its own memory until the slot is empty.
    pub fn send(&self, cpu: &P, route: Route, packet: [u64; WORDS]) {
        let (pair, sent) = (self.pair(route), &self.sent[route.to]);
        while cpu.fetch_load(&pair.empty) != sent.get() {}
        for (word, value) in pair.packet.iter().zip(packet) {
            self.put(cpu, word, value);
        }
        sent.set(sent.get() + 1);
        self.put(cpu, &pair.full, sent.get());
    }

    /// Receives that process's next packet; polls its own memory until it is there.
    pub fn receive(&self, cpu: &P, route: Route) -> [u64; WORDS] {
        let (pair, taken) = (self.pair(route), &self.taken[route.from]);
        taken.set(taken.get() + 1);
        while cpu.fetch_load(&pair.full) != taken.get() {}
        let packet = core::array::from_fn(|n| cpu.fetch_load(&pair.packet[n]));
        self.put(cpu, &pair.empty, taken.get());
        packet
    }
}
