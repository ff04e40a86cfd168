//! Ping-pong through the channel's rings and their line (`ladder/ours.rs`): the text that
//! `towpath bench ladder` measures natively.

use std::rc::Rc;

use towpath_channel::ring::{Ring, RingMemory, RingReceiver, RingSender};
use towpath_channel::shared_line::SharedLine;
use towpath_machine::{Arena, Processor};
use towpath_sim::{Sim, SimArena, SimBytes, Simulation, Stuck};

use super::{LadderFigures, PROCESSES, Run, Rung, Trips, message, rounds};
use crate::ladder::{Ours, RingBytes};

/// Slots of a ring, and bytes behind them: as natively.
const SLOTS: usize = 512;
const BYTES: usize = 256 << 10;

/// A ring of the simulated machine.
struct SimRing {
    ring: Ring<Sim, SLOTS>,
    bytes: SimBytes,
}

impl SimRing {
    fn new(arena: &SimArena) -> Rc<SimRing> {
        Rc::new(SimRing { ring: Ring::new(arena), bytes: arena.bytes(BYTES) })
    }
}

impl RingMemory<SLOTS> for SimRing {
    type Cpu = Sim;
    fn ring(&self) -> &Ring<Sim, SLOTS> {
        &self.ring
    }
}

/// Pieces are copied as the machine copies.
struct Copies;

impl RingBytes<Sim, Rc<SimRing>> for Copies {
    fn write(&mut self, cpu: &Sim, memory: &Rc<SimRing>, _: u64, at: usize, piece: &[u8]) -> Option<u64> {
        cpu.copy_in(&memory.bytes, at, piece);
        Some(at as u64)
    }
    fn read(&mut self, cpu: &Sim, memory: &Rc<SimRing>, _: u64, place: u64, piece: &mut [u8]) -> bool {
        cpu.copy_out(&memory.bytes, place as usize, piece);
        true
    }
}

/// Plays it.
pub fn ping_pong(rung: &Rung) -> Result<LadderFigures, Stuck> {
    let Run { machine, bytes, seed, .. } = &rung.run;
    let (bytes, seed) = (*bytes, *seed);
    let mut simulation = Simulation::new(machine, PROCESSES, seed);
    let arena = simulation.arena();
    let rings: Rc<[Rc<SimRing>; PROCESSES]> = Rc::new(core::array::from_fn(|_| SimRing::new(&arena)));
    let trips = Trips::default();
    let software = rung.software / 2;
    for me in 0..PROCESSES {
        let (rings, trips) = (Rc::clone(&rings), trips.clone());
        simulation.spawn(me, me, move |cpu| {
            let line = SharedLine::new(me == 0);
            let mut out = RingSender::new(Rc::clone(&rings[me]), BYTES);
            let mut into = RingReceiver::new(Rc::clone(&rings[1 - me]));
            out.share(&line);
            into.share(&line);
            let mut ends: Ours<_, _, SLOTS> = Ours::new(out, into, Copies);
            let mut buffer = vec![0; bytes];
            let mut act = |sends: bool, round: usize| {
                if sends {
                    let data = message(me, round, bytes);
                    cpu.work(software);
                    return ends.send(cpu, round as u64, &data, |_| cpu.delay(1), || {});
                }
                let next = |into: &RingReceiver<Rc<SimRing>, SLOTS>| loop {
                    if let Some(found) = into.next(cpu) {
                        return found;
                    }
                };
                let got = ends.receive(cpu, next, &mut buffer);
                cpu.work(software);
                assert_eq!(got, Some((round as u64, bytes)), "tag and length");
                let right = buffer == message(1 - me, round, bytes);
                assert!(right, "round {round}: a message arrived damaged");
            };
            for round in 0..=rounds(bytes) {
                if me == 0 {
                    trips.time(cpu, || {
                        act(true, round);
                        act(false, round);
                    });
                } else {
                    act(false, round);
                    act(true, round);
                }
            }
        });
    }
    simulation.run()?;
    Ok(LadderFigures { latency: trips.median() / 2.0, lock_operations: 0.0, flushes: 0.0 })
}
