//! The slot protocol with its macros in place, and with one of them replaced by ordinary
//! C or by an access that does not synchronise (Gropp & Lusk 1997, Section 5): what then happens on
//! the machine that the macros are for.
//!
//! One process sends packets to the other through the very slots of `ladder/slots.rs`; what is
//! replaced is how the machine performs the accesses of one of the two ([`Macros`]).

use std::cell::Cell;
use std::rc::Rc;

use towpath_machine::{Arena, Processor};
use towpath_sim::{Macro, Macros, Parameters, Sim, SimArena, Simulation, Stuck};
use towpath_sync::Spinning;

use crate::ladder::{
    ControlPackets, Indices, LadderSlot, PacketEnvelope, Printed, Route, SHORT_BELOW, Slots,
};

/// Packets that are sent.
const PACKETS: usize = 8;
const BYTES: usize = 600;
/// Time after which the run counts as hanging, in picoseconds: a hundred times as long as
/// all packets take.
const LIMIT: u64 = 50_000_000_000;

/// A fault planted in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The missing macro.
    pub what: &'static str,
    /// The sender's, and the receiver's.
    pub macros: [Macros; 2],
}

const RIGHT: Macros =
    Macros { look: Macro::Right, set: Macro::Right, copy_in: Macro::Right, copy_out: Macro::Right };

/// No fault.
pub const NONE: Fault = Fault { what: "all macros in place", macros: [RIGHT; 2] };

/// Each macro made ordinary C, that is, accesses through the cache.
pub const ORDINARY: [Fault; 6] = {
    const O: Macro = Macro::Ordinary;
    [
        Fault { what: "the receiver's PKT_READY_IS_SET", macros: [RIGHT, Macros { look: O, ..RIGHT }] },
        Fault { what: "the sender's PKT_READY_IS_SET", macros: [Macros { look: O, ..RIGHT }, RIGHT] },
        Fault { what: "PKT_COPYIN", macros: [Macros { copy_in: O, ..RIGHT }, RIGHT] },
        Fault { what: "PKT_READY_SET", macros: [Macros { set: O, ..RIGHT }, RIGHT] },
        Fault { what: "copying out", macros: [RIGHT, Macros { copy_out: O, ..RIGHT }] },
        Fault { what: "clearing the bit", macros: [RIGHT, Macros { set: O, ..RIGHT }] },
    ]
};

/// Macros past the cache, but without their synchronising instruction.
pub const UNORDERED: [Fault; 2] = [
    Fault {
        what: "PKT_READY_SET without synchronisation",
        macros: [Macros { set: Macro::Unordered, ..RIGHT }, RIGHT],
    },
    Fault {
        what: "PKT_READY_IS_SET without synchronisation",
        macros: [RIGHT, Macros { look: Macro::Unordered, ..RIGHT }],
    },
];

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExchangeOutcome {
    /// All packets arrived whole and in order.
    Right,
    /// A packet was read that had not been sent like that: stale or mixed data.
    Stale,
    /// A process waits for ever.
    Hangs,
}

/// The form of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotsForm {
    /// Ours: `ladder/slots.rs`.
    Slots,
    /// The paper's figures with these indices of the receiver, and with this value of the
    /// packet's own bit when it is copied.
    Figures(Indices, u64),
}

/// The memory that both processes use.
struct FaultMemory {
    slots: Vec<LadderSlot<Sim>>,
    payload: towpath_sim::SimBytes,
}

const PROCESSES: usize = 2;

impl FaultMemory {
    fn new(arena: &SimArena) -> FaultMemory {
        let pairs = PROCESSES * PROCESSES;
        FaultMemory {
            slots: (0..pairs).map(|_| LadderSlot::new(arena)).collect(),
            payload: arena.bytes(pairs * SHORT_BELOW),
        }
    }

    fn run(&self, form: SlotsForm, act: impl FnOnce(&dyn Fn(&Sim, u64), &dyn Fn(&Sim, &mut [u8]) -> u64)) {
        let (out, back) = (Route { from: 0, to: 1 }, 1);
        fn send<C: ControlPackets<Sim>>(packets: &C, cpu: &Sim, route: Route, n: u64) {
            let envelope = PacketEnvelope { kind: n, len: BYTES as u64, at: !n };
            packets.send(cpu, &Spinning, route, envelope, &payload(n));
        }
        // The number of the packet, or 0 if its parts don't belong together.
        fn receive<C: ControlPackets<Sim>>(packets: &C, cpu: &Sim, me: usize, buffer: &mut [u8]) -> u64 {
            loop {
                if let Some((_, e)) = packets.receive(cpu, &Spinning, me, buffer) {
                    let whole = e.len == BYTES as u64 && e.at == !e.kind && buffer[..] == payload(e.kind);
                    return if whole { e.kind } else { 0 };
                }
                cpu.delay(500);
            }
        }
        match form {
            SlotsForm::Slots => {
                let p = Slots { slots: &self.slots, payload: &self.payload, processes: PROCESSES };
                act(&|cpu, n| send(&p, cpu, out, n), &|cpu, b| receive(&p, cpu, back, b));
            }
            SlotsForm::Figures(indices, ready) => {
                let (slots, payload) = (&self.slots[..], &self.payload);
                let ready = Cell::new(ready);
                let p = Printed { slots, payload, processes: PROCESSES, indices, ready };
                act(&|cpu, n| send(&p, cpu, out, n), &|cpu, b| receive(&p, cpu, back, b));
            }
        }
    }
}

/// A packet's payload.
fn payload(n: u64) -> Vec<u8> {
    (0..BYTES).map(|i| (i as u64 + 37 * n) as u8).collect()
}

/// Time between synchronising instructions, for these runs: longer than all that a packet
/// takes. How far accesses are moved no source says; what may happen is to happen here.
const WINDOW: &str = "memory.window=10us";

/// Sends packets through the slots with a fault.
pub fn exchange(machine: &Parameters, form: SlotsForm, fault: Fault, seed: u64) -> ExchangeOutcome {
    let mut machine = machine.clone();
    machine.set_from_text(WINDOW).expect("a parameter and its value");
    let mut simulation = Simulation::new(&machine, PROCESSES, seed);
    let shared = Rc::new(FaultMemory::new(&simulation.arena()));
    let stale = Rc::new(Cell::new(false));
    for me in 0..PROCESSES {
        let (shared, stale) = (Rc::clone(&shared), Rc::clone(&stale));
        simulation.spawn(me, me, move |cpu| {
            cpu.define_macros(fault.macros[me]);
            shared.run(form, |send, receive| {
                let mut buffer = vec![0; BYTES];
                for n in 1..=PACKETS as u64 {
                    // First the receiver waits for the sender, then the sender for the receiver.
                    let slow = usize::from(n > PACKETS as u64 / 2);
                    if me == slow {
                        let pause = cpu.random().below(20_000);
                        cpu.work(20_000 + pause);
                    }
                    if me == 0 {
                        send(cpu, n);
                    } else {
                        let got = receive(cpu, &mut buffer);
                        if got != n {
                            return stale.set(true);
                        }
                    }
                }
            });
        });
    }
    let ended = simulation.run_until(LIMIT);
    match (stale.get(), ended) {
        (true, _) => ExchangeOutcome::Stale,
        (false, Ok(_)) => ExchangeOutcome::Right,
        (false, Err(Stuck::Deadlock(_) | Stuck::Limit(_))) => ExchangeOutcome::Hangs,
    }
}
