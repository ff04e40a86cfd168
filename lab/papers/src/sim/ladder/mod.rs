//! Paper M's ladder on a simulated machine: ping-pong through the four versions of the
//! device and through Towpath's endpoints, and the parts of them that its claims are about.

pub mod faults;
mod guard;
mod ours;
pub mod refined;
pub mod single_copy;

use std::cell::RefCell;
use std::rc::Rc;

pub use guard::Guard;
use towpath_machine::{Arena, Processor};
use towpath_sim::{Parameters, Sim, SimArena, SimBytes, Simulation, Stuck};
use towpath_sync::Spinning;

use super::{Run, Work};
use crate::ladder::{
    ControlPackets, Device, LadderSlot, LockedQueues, PACKETS, Packet, Pool, PoolTable, QueueEnds,
    SHORT_BELOW, Slots, Version,
};
use towpath_report::stats::percentile;

/// The shared memory that the data of messages go through: 8 MB (M §5: "between 8 and 16
/// megabytes on the system we used").
pub const MEMORY: usize = 8 << 20;
/// The slots of 32 × 32 pairs, in bytes of this memory (M §5).
pub const SLOTS: usize = 32 * 32 * SHORT_BELOW;
/// Time of MPICH's own instructions on the SX-4 for a message, in nanoseconds, half of it
/// at either end: **claim M9 of paper M (§8: "not much below 30 microseconds") and so an input**.
/// For other machines there is no source, and nothing is charged.
const SOFTWARE: u64 = 30_000;

/// A version of the device in a run.
#[derive(Clone, Debug)]
pub struct Rung {
    /// The machine, the length of messages, the seed.
    pub run: Run,
    /// The version.
    pub version: Version,
    /// Shared memory for data, in bytes.
    pub pool: usize,
    /// Time of the instructions for a message, in nanoseconds.
    pub software: u64,
}

impl Rung {
    /// The version as in the paper: its slots lie in the same memory as the data.
    pub fn new(run: Run, version: Version) -> Rung {
        let slots = matches!(version, Version::SlotsSystemV | Version::SlotsTestAndSet);
        let software = if run.machine.name == "sx4" { SOFTWARE } else { 0 };
        Rung { run, version, pool: if slots { MEMORY - SLOTS } else { MEMORY }, software }
    }

    /// The version on a machine, with messages of so many bytes.
    pub fn on(machine: &Parameters, version: Version, bytes: usize) -> Rung {
        let run = Run::new(machine.clone(), PROCESSES, Work { ns: 0, spread: 0.0 }, 0);
        Rung::new(Run { bytes, ..run }, version)
    }

    /// The rung with another seed.
    #[must_use]
    pub fn seed(&self, seed: u64) -> Rung {
        Rung { run: self.run.seed(seed), ..self.clone() }
    }
}

/// Figures of ping-pong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LadderFigures {
    /// Time from one process to the other, in nanoseconds: half a round trip, the median.
    pub latency: f64,
    /// Operations on locks (entering, leaving) for each message.
    pub lock_operations: f64,
    /// Number of whole caches flushed for each message.
    pub flushes: f64,
}

/// Round trips: the first is not counted.
fn rounds(bytes: usize) -> usize {
    if bytes > 100_000 { 4 } else { 16 }
}

/// The memory that both processes share.
struct LadderMemory {
    ends: Vec<QueueEnds<Sim>>,
    packets: Vec<Packet<Sim>>,
    slots: Vec<LadderSlot<Sim>>,
    payload: SimBytes,
    table: PoolTable<Sim>,
    bytes: SimBytes,
    locks: Vec<Guard>,
}

const PROCESSES: usize = 2;

impl LadderMemory {
    fn new(arena: &SimArena, rung: &Rung) -> LadderMemory {
        let many = PROCESSES * PACKETS.max(PROCESSES);
        LadderMemory {
            ends: (0..PROCESSES).map(|_| QueueEnds::new(arena)).collect(),
            packets: (0..PROCESSES * PACKETS).map(|_| Packet::new(arena)).collect(),
            slots: (0..PROCESSES * PROCESSES).map(|_| LadderSlot::new(arena)).collect(),
            payload: arena.bytes(many * SHORT_BELOW),
            table: PoolTable::new(arena),
            bytes: arena.bytes(rung.pool),
            locks: (0..=PROCESSES).map(|_| Guard::new(arena, &rung.run.machine, rung.version)).collect(),
        }
    }
}

/// Plays ping-pong between two processes.
///
/// # Errors
///
/// [`Stuck`] if it doesn't end.
///
/// # Panics
///
/// If a message arrives damaged.
pub fn ping_pong(rung: &Rung) -> Result<LadderFigures, Stuck> {
    let (version, bytes) = (rung.version, rung.run.bytes);
    if version == Version::Towpath {
        return ours::ping_pong(rung);
    }
    let mut simulation = Simulation::new(&rung.run.machine, PROCESSES, rung.run.seed);
    let shared = Rc::new(LadderMemory::new(&simulation.arena(), rung));
    let trips = Trips::default();
    for me in 0..PROCESSES {
        let (shared, trips, rung) = (Rc::clone(&shared), trips.clone(), rung.clone());
        simulation.spawn(me, me, move |cpu| {
            let LadderMemory { table, bytes: data, locks, payload, .. } = &*shared;
            let pool = Pool { table, bytes: data, size: rung.pool, lock: locks[PROCESSES].clone() };
            if me == 0 {
                pool.prepare(cpu);
            }
            if matches!(version, Version::SlotsSystemV | Version::SlotsTestAndSet) {
                let packets = Slots { slots: &shared.slots, payload, processes: PROCESSES };
                let device = Device { packets: &packets, pool: &pool, me };
                take_part(cpu, &device, &rung, &trips);
            } else {
                let packets = LockedQueues {
                    ends: &shared.ends,
                    packets: &shared.packets,
                    payload,
                    locks: locks[..PROCESSES].to_vec(),
                };
                let device = Device { packets: &packets, pool: &pool, me };
                take_part(cpu, &device, &rung, &trips);
            }
        });
    }
    let outcome = simulation.run()?;
    let messages = 2.0 * (rounds(bytes) + 1) as f64;
    let operations: u64 = shared.locks.iter().map(Guard::operations).sum();
    Ok(LadderFigures {
        latency: trips.median() / 2.0,
        lock_operations: operations as f64 / messages,
        flushes: outcome.counters.flushes as f64 / messages,
    })
}

/// Speed of one process that moves long pieces of memory, in bytes per nanosecond.
///
/// # Errors
///
/// [`Stuck`] if it doesn't end.
pub fn copy_rate(machine: &Parameters) -> Result<f64, Stuck> {
    let mut simulation = Simulation::new(machine, 1, 1);
    let shared = Arena::<Sim>::bytes(&simulation.arena(), MEMORY);
    simulation.spawn(0, 0, move |cpu| cpu.copy_in(&shared, 0, &vec![1; MEMORY]));
    let outcome = simulation.run()?;
    Ok(MEMORY as f64 * 1e3 / outcome.time as f64)
}

/// The round trips' times, in nanoseconds.
#[derive(Clone, Default)]
struct Trips(Rc<RefCell<Vec<f64>>>);

impl Trips {
    /// A round trip, after a random pause so that no two are alike.
    fn time(&self, cpu: &Sim, trip: impl FnOnce()) {
        let pause = cpu.random().below(5_000);
        cpu.work(pause);
        let start = cpu.clock();
        trip();
        self.0.borrow_mut().push((cpu.clock() - start) as f64 / 1e3);
    }

    /// Median of the times without the first.
    fn median(&self) -> f64 {
        percentile(&self.0.borrow()[1..], 50.0).unwrap_or(f64::NAN)
    }
}

/// The message of process `from` in a round.
fn message(from: usize, round: usize, bytes: usize) -> Vec<u8> {
    // The bytes begin anew after so many; repeating is faster in a room that is not optimised.
    const PERIOD: usize = 2048;
    let first: Vec<u8> = (0..PERIOD.min(bytes)).map(|i| (i / 8 + i + 31 * from + 7 * round) as u8).collect();
    let mut all = first.repeat(bytes.div_ceil(PERIOD));
    all.truncate(bytes);
    all
}

fn take_part<C: ControlPackets<Sim>>(
    cpu: &Sim,
    device: &Device<'_, Sim, C, Guard>,
    rung: &Rung,
    trips: &Trips,
) {
    let (partner, bytes) = (1 - device.me, rung.run.bytes);
    let mut buffer = vec![0; bytes];
    let send = |round: usize| {
        let data = message(device.me, round, bytes);
        cpu.work(rung.software / 2);
        device.send(cpu, &Spinning, partner, round as u64, &data);
    };
    let mut receive = |round: usize| {
        let got = device.receive(cpu, &Spinning, partner, &mut buffer);
        cpu.work(rung.software / 2);
        assert_eq!(got, (round as u64, bytes), "tag and length");
        assert!(buffer == message(partner, round, bytes), "round {round}: a message arrived damaged");
    };
    for round in 0..=rounds(bytes) {
        if device.me == 0 {
            trips.time(cpu, || {
                send(round);
                receive(round);
            });
        } else {
            receive(round);
            send(round);
        }
    }
}

#[cfg(test)]
mod tests;
