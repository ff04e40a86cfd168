//! The device: messages by the paper's three protocols over control packets and a shared
//! pool (Gropp & Lusk 1997, Section 3).

use towpath_machine::Processor;
use towpath_sync::Waiting;

use super::{ControlPackets, LadderLock, PacketEnvelope, Pool, Route};

/// Messages below this length travel in the packet.
pub const SHORT_BELOW: usize = 1024;
/// Longer ones below this length are sent at once, through the pool; from it on only when
/// the receiver is ready.
pub const EAGER_BELOW: usize = 128 << 10;

const SHORT: u64 = 1;
const EAGER: u64 = 2;
const REQUEST: u64 = 3;
const READY: u64 = 4;
const PIECE: u64 = 5;
/// Number of bits below the tag in an envelope's kind.
const TAG: u32 = 8;

/// One process's end.
pub struct Device<'a, P: Processor, C, X> {
    /// Its control packets.
    pub packets: &'a C,
    /// Its pool.
    pub pool: &'a Pool<'a, P, X>,
    /// Its number.
    pub me: usize,
}

impl<P: Processor, C: ControlPackets<P>, X: LadderLock<P>> Device<'_, P, C, X> {
    /// Sends a message, with a tag below 2⁵⁶.
    pub fn send<W: Waiting<P>>(&self, cpu: &P, wait: &W, to: usize, tag: u64, data: &[u8]) {
        let route = Route { from: self.me, to };
        let envelope = |kind, len, at| PacketEnvelope { kind: kind | tag << TAG, len, at };
        let len = data.len() as u64;
        if data.len() < SHORT_BELOW {
            return self.packets.send(cpu, wait, route, envelope(SHORT, len, 0), data);
        }
        if data.len() < EAGER_BELOW {
            let at = self.put(cpu, wait, data);
            return self.packets.send(cpu, wait, route, envelope(EAGER, len, at), &[]);
        }
        self.packets.send(cpu, wait, route, envelope(REQUEST, len, 0), &[]);
        let answer = self.next(cpu, wait, to, &mut []);
        assert_eq!(answer.kind, READY, "an answer to a request to send");
        for piece in data.chunks(self.pool.longest_piece()) {
            let at = self.put(cpu, wait, piece);
            self.packets.send(cpu, wait, route, envelope(PIECE, piece.len() as u64, at), &[]);
        }
    }

    /// Receives the next message of a process into `buffer`. Returns its tag and length.
    ///
    /// # Panics
    ///
    /// If the buffer is too short for it.
    pub fn receive<W: Waiting<P>>(&self, cpu: &P, wait: &W, from: usize, buffer: &mut [u8]) -> (u64, usize) {
        let first = self.next(cpu, wait, from, buffer);
        let (tag, len) = (first.kind >> TAG, first.len as usize);
        assert!(len <= buffer.len(), "a message of {len} bytes for a buffer of {}", buffer.len());
        match first.kind & 0xff {
            SHORT => {}
            EAGER => self.take(cpu, wait, first.at, &mut buffer[..len]),
            REQUEST => {
                let route = Route { from: self.me, to: from };
                self.packets.send(
                    cpu,
                    wait,
                    route,
                    PacketEnvelope { kind: READY, ..PacketEnvelope::default() },
                    &[],
                );
                let mut done = 0;
                while done < len {
                    let piece = self.next(cpu, wait, from, &mut []);
                    let end = done + piece.len as usize;
                    self.take(cpu, wait, piece.at, &mut buffer[done..end]);
                    done = end;
                }
            }
            kind => panic!("a packet of kind {kind} where a message begins"),
        }
        (tag, len)
    }

    /// The next packet from that process: the only one that talks to us (no others are
    /// kept).
    fn next<W: Waiting<P>>(&self, cpu: &P, wait: &W, from: usize, buffer: &mut [u8]) -> PacketEnvelope {
        let mut round = 0;
        loop {
            if let Some((sender, envelope)) = self.packets.receive(cpu, wait, self.me, buffer) {
                assert_eq!(sender, from, "a packet from process {sender}, which no receiver waits for");
                return envelope;
            }
            self.packets.wait_for(cpu, wait, Route { from, to: self.me }, round);
            round += 1;
        }
    }

    /// Copies data into the pool.
    fn put<W: Waiting<P>>(&self, cpu: &P, wait: &W, data: &[u8]) -> u64 {
        let mut round = 0;
        let at = loop {
            if let Some(at) = self.pool.allocate(cpu, wait, data.len()) {
                break at;
            }
            // No waiter gives up here (see `LadderLock`).
            let _ = wait.back_off(cpu, round);
            round += 1;
        };
        cpu.copy_in(self.pool.bytes, at, data);
        at as u64
    }

    /// Copies data out of the pool.
    fn take<W: Waiting<P>>(&self, cpu: &P, wait: &W, at: u64, buffer: &mut [u8]) {
        cpu.copy_out(self.pool.bytes, at as usize, buffer);
        self.pool.free(cpu, wait, at as usize);
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use towpath_machine::{Arena, Processor};
    use towpath_sim::{Sim, SimArena, Simulation, machines};
    use towpath_sync::locks::TestAndSet;
    use towpath_sync::{Lock, Spinning};

    use super::*;
    use crate::ladder::locked::{PACKETS, Packet, QueueEnds};
    use crate::ladder::pool::PoolTable;
    use crate::ladder::slots::LadderSlot;
    use crate::ladder::{LockedQueues, Slots};

    const PROCS: usize = 3;

    /// Message number `n` from process `from` to process `to`.
    fn message(from: usize, to: usize, n: usize) -> Vec<u8> {
        let len = [0, 5, 1023, 1024, 3000, 140_000][n % 6];
        (0..len).map(|i| (i + 7 * from + 3 * to + n) as u8).collect()
    }

    /// Sends messages round a ring of all processes, and checks that they arrive in order
    /// and whole.
    fn ring<C: ControlPackets<Sim> + 'static>(seed: u64, packets: impl Fn(&SimArena) -> C) {
        let machine = machines::by_name("origin2000").unwrap();
        let mut simulation = Simulation::new(&machine, PROCS, seed);
        let arena = simulation.arena();
        let size = 400 << 10;
        let shared = Rc::new((
            packets(&arena),
            PoolTable::<Sim>::new(&arena),
            Arena::<Sim>::bytes(&arena, size),
            TestAndSet::<Sim>::new(&arena),
            arena.word(towpath_machine::Place::NewLine, 0),
        ));
        for me in 0..PROCS {
            let shared = Rc::clone(&shared);
            simulation.spawn(me, me, move |cpu| {
                let (packets, table, bytes, lock, prepared) = &*shared;
                let pool = Pool { table, bytes, size, lock };
                if me == 0 {
                    pool.prepare(cpu);
                    super::super::raise(cpu, prepared);
                }
                while !super::super::is_raised(cpu, prepared) {
                    cpu.delay(100);
                }
                let device = Device { packets, pool: &pool, me };
                let (to, from) = ((me + 1) % PROCS, (me + PROCS - 1) % PROCS);
                let mut buffer = vec![0; 140_000];
                for n in 0..12 {
                    let receive = |buffer: &mut [u8]| {
                        let (tag, len) = device.receive(cpu, &Spinning, from, buffer);
                        assert_eq!((tag, &buffer[..len]), (n as u64, &message(from, me, n)[..]));
                    };
                    // One of them receives first: rendezvous all the way round would wait for each
                    // other.
                    if me == 0 {
                        device.send(cpu, &Spinning, to, n as u64, &message(me, to, n));
                        receive(&mut buffer);
                    } else {
                        receive(&mut buffer);
                        device.send(cpu, &Spinning, to, n as u64, &message(me, to, n));
                    }
                }
            });
        }
        simulation.run().unwrap();
    }

    #[test]
    fn slots_simulated_carry_all_protocols() {
        for seed in 1..=3 {
            ring(seed, |arena| {
                let slots: &'static [LadderSlot<Sim>] =
                    Box::leak((0..PROCS * PROCS).map(|_| LadderSlot::new(arena)).collect());
                let payload = Box::leak(Box::new(Arena::<Sim>::bytes(arena, PROCS * PROCS * SHORT_BELOW)));
                Slots { slots, payload, processes: PROCS }
            });
        }
    }

    #[test]
    fn locked_queues_simulated_carry_all_protocols() {
        for seed in 1..=3 {
            ring(seed, |arena| {
                let many =
                    |n| -> &'static [Packet<Sim>] { Box::leak((0..n).map(|_| Packet::new(arena)).collect()) };
                let ends: &'static [QueueEnds<Sim>] =
                    Box::leak((0..PROCS).map(|_| QueueEnds::new(arena)).collect());
                let locks: &'static [TestAndSet<Sim>] =
                    Box::leak((0..PROCS).map(|_| TestAndSet::new(arena)).collect());
                let payload = Box::leak(Box::new(Arena::<Sim>::bytes(arena, PROCS * PACKETS * SHORT_BELOW)));
                LockedQueues { ends, packets: many(PROCS * PACKETS), payload, locks: locks.iter().collect() }
            });
        }
    }
}
