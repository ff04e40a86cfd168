//! The refinements of the packet slots (Gropp & Lusk 1997, Section 9): how latency grows
//! with the number of slots that a receiver polls, several slots for each pair, slots for a chosen
//! few, and slots in distributed memory.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use towpath_machine::{Arena, Processor};
use towpath_sim::{Parameters, Sim, SimArena, SimBytes, Simulation, Stuck, Time};
use towpath_sync::Spinning;

use super::Guard;
use crate::ladder::{
    Chosen, ControlPackets, Cyclic, Given, LadderSlot, LockedQueues, MailboxPair, Mailboxes, PACKETS, Packet,
    PacketEnvelope, QueueEnds, Route, SHORT_BELOW, Slots, Version,
};

/// The slots of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// Queue for each process (M §5).
    All,
    /// A number of slots for the busiest senders, and a queue under a test&set lock for
    /// the others (M §9.1).
    Chosen(usize),
}

/// Round trips between the two that talk.
const TRIPS: usize = 200;
/// Rounds before them, so that the slots are given.
const WARM: usize = 6;

struct RefinedMemory {
    slots: Vec<LadderSlot<Sim>>,
    payload: SimBytes,
    ends: Vec<QueueEnds<Sim>>,
    packets: Vec<Packet<Sim>>,
    queued: SimBytes,
    locks: Vec<Guard>,
    given: Given<Sim>,
}

impl RefinedMemory {
    fn new(arena: &SimArena, machine: &Parameters, processes: usize, slots: usize) -> RefinedMemory {
        RefinedMemory {
            slots: (0..slots).map(|_| LadderSlot::new(arena)).collect(),
            payload: arena.bytes(slots * SHORT_BELOW),
            ends: (0..processes).map(|_| QueueEnds::new(arena)).collect(),
            packets: (0..processes * PACKETS).map(|_| Packet::new(arena)).collect(),
            queued: arena.bytes(processes * PACKETS * SHORT_BELOW),
            locks: (0..processes).map(|_| Guard::new(arena, machine, Version::TestAndSet)).collect(),
            given: Given::new(arena, processes),
        }
    }

    fn queues(&self) -> LockedQueues<'_, Sim, Guard> {
        LockedQueues {
            ends: &self.ends,
            packets: &self.packets,
            payload: &self.queued,
            locks: self.locks.clone(),
        }
    }
}

/// The mean latency of short packets between the first and the last of so many processes,
/// in nanoseconds, when the receiver does nothing but poll, as in Figure 2. Every other process
/// sends one packet to the first one before that.
///
/// # Errors
///
/// [`Stuck`] if it doesn't end.
pub fn latency(machine: &Parameters, processes: usize, polled: Polled, seed: u64) -> Result<f64, Stuck> {
    let mut simulation = Simulation::new(machine, processes, seed);
    let slots = match polled {
        Polled::All => processes * processes,
        Polled::Chosen(each) => processes * each,
    };
    let shared = Rc::new(RefinedMemory::new(&simulation.arena(), machine, processes, slots));
    let ways = Ways::default();
    for me in 0..processes {
        let (shared, ways) = (Rc::clone(&shared), ways.clone());
        simulation.spawn(me, me, move |cpu| {
            let RefinedMemory { slots, payload, given, .. } = &*shared;
            match polled {
                Polled::All => talk(cpu, &Slots { slots, payload, processes }, me, processes, &ways),
                Polled::Chosen(_) => {
                    let packets = Chosen::new(shared.queues(), (slots, payload), given, processes);
                    talk(cpu, &packets, me, processes, &ways);
                }
            }
        });
    }
    simulation.run()?;
    Ok(ways.mean())
}

/// Times of packets from one process to the other.
#[derive(Clone, Default)]
struct Ways(Rc<RefCell<(Time, Vec<f64>)>>);

impl Ways {
    /// A packet is sent now, after a pause that has nothing to do with how far the
    /// receiver is in its round.
    fn begin(&self, cpu: &Sim) {
        let pause = cpu.random().below(30_000);
        cpu.work(pause);
        self.0.borrow_mut().0 = cpu.clock();
    }

    /// Notes the arrival.
    fn end(&self, cpu: &Sim) {
        let (sent, ways) = &mut *self.0.borrow_mut();
        ways.push((cpu.clock() - *sent) as f64 / 1e3);
    }

    /// Mean in nanoseconds of the rounds after the slots were given.
    fn mean(&self) -> f64 {
        let ways = &self.0.borrow().1[2 * WARM..];
        ways.iter().sum::<f64>() / ways.len() as f64
    }
}

fn talk<C: ControlPackets<Sim>>(cpu: &Sim, packets: &C, me: usize, processes: usize, ways: &Ways) {
    let last = processes - 1;
    let send = |to: usize, n: usize| {
        let envelope = PacketEnvelope { kind: n as u64, len: 8, at: me as u64 };
        packets.send(cpu, &Spinning, Route { from: me, to }, envelope, &[n as u8; 8]);
    };
    let receive = || {
        loop {
            let mut buffer = [0; 8];
            if let Some((from, envelope)) = packets.receive(cpu, &Spinning, me, &mut buffer) {
                let whole = envelope.at == from as u64 && buffer == [envelope.kind as u8; 8];
                assert!(whole, "a packet arrived damaged");
                return (from, envelope.kind as usize);
            }
        }
    };
    let say = |to: usize, n: usize| {
        ways.begin(cpu);
        send(to, n);
    };
    let hear = |from: usize, n: usize| {
        assert_eq!(receive(), (from, n), "in order");
        ways.end(cpu);
    };
    match me {
        0 => {
            let mut heard: Vec<usize> = (1..last).map(|_| receive().0).collect();
            heard.sort_unstable();
            assert!(heard == (1..last).collect::<Vec<_>>(), "one packet from each");
            for n in 0..WARM + TRIPS {
                say(last, n);
                hear(last, n);
            }
        }
        _ if me == last => {
            for n in 0..WARM + TRIPS {
                hear(0, n);
                say(0, n);
            }
        }
        _ => send(0, 1),
    }
}

/// Figures of a burst of packets to a receiver that is slow at first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// The part of the sender's packets that found no empty slot.
    pub waited: f64,
    /// Time of the sender, in nanoseconds for each packet.
    pub sending: f64,
}

/// Packets in a burst.
pub const BURST: usize = 8;
const BURSTS: usize = 20;

/// One process sends bursts to another that computes for 200 µs before it looks at each,
/// with so many slots for the pair.
///
/// # Errors
///
/// [`Stuck`] if it doesn't end.
pub fn bursts(machine: &Parameters, depth: usize, seed: u64) -> Result<Burst, Stuck> {
    let mut simulation = Simulation::new(machine, 2, seed);
    let shared = Rc::new(RefinedMemory::new(&simulation.arena(), machine, 2, 4 * depth));
    let result = Rc::new(Cell::new(Burst { waited: 0.0, sending: 0.0 }));
    for me in 0..2 {
        let (shared, result) = (Rc::clone(&shared), Rc::clone(&result));
        simulation.spawn(me, me, move |cpu| {
            let packets = Cyclic::new(&shared.slots, &shared.payload, 2, depth);
            let mut sending = 0;
            for burst in 0..BURSTS {
                if me == 0 {
                    let start = cpu.clock();
                    for n in 0..BURST {
                        let envelope = PacketEnvelope { kind: n as u64, len: 0, at: burst as u64 };
                        packets.send(cpu, &Spinning, Route { from: 0, to: 1 }, envelope, &[]);
                    }
                    sending += cpu.clock() - start;
                    // Long enough for the receiver to take everything.
                    cpu.work(1_000_000);
                } else {
                    for n in 0..BURST {
                        let envelope = loop {
                            if let Some((_, envelope)) = packets.receive(cpu, &Spinning, 1, &mut []) {
                                break envelope;
                            }
                        };
                        assert_eq!((envelope.kind, envelope.at), (n as u64, burst as u64), "in order");
                        if n == 0 {
                            cpu.work(200_000);
                        }
                    }
                }
            }
            if me == 0 {
                let sent = (BURST * BURSTS) as f64;
                let waited = packets.found_full() as f64 / sent;
                result.set(Burst { waited, sending: sending as f64 / 1e3 / sent });
            }
        });
    }
    simulation.run()?;
    Ok(result.get())
}

/// Counts of packets between two nodes with distributed memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Packets, both ways.
    pub packets: u64,
    /// Puts to the other one's memory.
    pub puts: u64,
    /// Number of reads of the other node's memory: network traffic beside the puts and
    /// their replies.
    pub reads: u64,
}

/// The place of the sender's "empty".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Empty {
    /// Flag in its own memory, as M §9.3 has it.
    AtTheSender,
    /// Flag beside the slot, at the receiver.
    AtTheReceiver,
}

/// Two processors of different nodes send packets to each other at random.
///
/// # Errors
///
/// [`Stuck`] if it doesn't end.
pub fn distributed(machine: &Parameters, empty: Empty, seed: u64) -> Result<Remote, Stuck> {
    const EACH: u64 = 50;
    let per_node = machine.per_node as usize;
    let mut simulation = Simulation::new(machine, per_node + 1, seed);
    let arena = simulation.arena();
    let pairs: Rc<Vec<MailboxPair<Sim>>> = Rc::new(
        (0..4u32)
            .map(|n| {
                let (to, from) = (n / 2, n % 2);
                MailboxPair::new(&arena, to, if empty == Empty::AtTheSender { from } else { to })
            })
            .collect(),
    );
    let puts = Rc::new(Cell::new(0));
    for me in 0..2 {
        let (pairs, puts) = (Rc::clone(&pairs), Rc::clone(&puts));
        simulation.spawn(me * per_node, me, move |cpu| {
            let mailboxes = Mailboxes::new(&pairs, 2);
            let (out, back) = (Route { from: me, to: 1 - me }, Route { from: 1 - me, to: me });
            for n in 0..EACH {
                let pause = cpu.random().below(3_000);
                cpu.work(pause);
                mailboxes.send(cpu, out, [n, n + 1, n + 2, me as u64]);
                let packet = mailboxes.receive(cpu, back);
                assert_eq!(packet, [n, n + 1, n + 2, 1 - me as u64], "a packet arrived damaged");
            }
            puts.set(puts.get() + mailboxes.puts());
        });
    }
    let outcome = simulation.run()?;
    // An "empty" that lies with the slot is no put to another node.
    let packets = 2 * EACH;
    let puts = puts.get() - if empty == Empty::AtTheReceiver { packets } else { 0 };
    // A put is answered, and so is a read.
    Ok(Remote { packets, puts, reads: outcome.counters.messages / 2 - puts })
}
