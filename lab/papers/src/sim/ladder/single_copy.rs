//! Rendezvous with a single copy (Gropp & Lusk 1997, Section 9.2): the processes are
//! threads of one address space, so the receiver copies from the sender's own memory and says when
//! it has. Control packets go through queues under locks or through slots, as the version has it.

use std::rc::Rc;

use towpath_machine::{Arena, Processor};
use towpath_sim::{Sim, SimBytes, Simulation, Stuck};
use towpath_sync::Spinning;

use super::{LadderFigures, LadderMemory, PROCESSES, Rung, Trips, message, rounds};
use crate::ladder::{ControlPackets, LockedQueues, PacketEnvelope, Route, Slots, Version};

const HERE_IT_IS: u64 = 1;
const I_HAVE_IT: u64 = 2;

/// Plays ping-pong with messages of so many bytes that lie in the threads' own memory.
///
/// # Errors
///
/// [`Stuck`] if it doesn't end.
///
/// # Panics
///
/// If a message arrives damaged.
pub fn ping_pong(rung: &Rung) -> Result<LadderFigures, Stuck> {
    let mut simulation = Simulation::new(&rung.run.machine, PROCESSES, rung.run.seed);
    let arena = simulation.arena();
    // No pool: data move from thread to thread.
    let rung = Rc::new(Rung { pool: 64, ..rung.clone() });
    let shared = Rc::new(LadderMemory::new(&arena, &rung));
    let memory = Rc::new([0, 1].map(|_| arena.bytes(rung.run.bytes)));
    let trips = Trips::default();
    for me in 0..PROCESSES {
        let (shared, memory, trips, rung) =
            (Rc::clone(&shared), Rc::clone(&memory), trips.clone(), Rc::clone(&rung));
        simulation.spawn(me, me, move |cpu| {
            let LadderMemory { ends, packets, slots, payload, locks, .. } = &*shared;
            if rung.version == Version::TestAndSet {
                let locks = locks[..PROCESSES].to_vec();
                let packets = LockedQueues { ends, packets, payload, locks };
                take_part(cpu, &packets, me, &memory, &rung, &trips);
            } else {
                let packets = Slots { slots, payload, processes: PROCESSES };
                take_part(cpu, &packets, me, &memory, &rung, &trips);
            }
        });
    }
    simulation.run()?;
    Ok(LadderFigures { latency: trips.median() / 2.0, lock_operations: 0.0, flushes: 0.0 })
}

fn take_part<C: ControlPackets<Sim>>(
    cpu: &Sim,
    packets: &C,
    me: usize,
    memory: &[SimBytes; PROCESSES],
    rung: &Rung,
    trips: &Trips,
) {
    let (bytes, software) = (rung.run.bytes, rung.software / 2);
    let (out, back) = (Route { from: me, to: 1 - me }, Route { from: 1 - me, to: me });
    let next = || {
        let mut round = 0;
        loop {
            if let Some((_, envelope)) = packets.receive(cpu, &Spinning, me, &mut []) {
                return envelope;
            }
            packets.wait_for(cpu, &Spinning, back, round);
            round += 1;
        }
    };
    // The same message every time: what a thread computes lies there before it is sent.
    cpu.copy_in(&memory[me], 0, &message(me, 0, bytes));
    let mut buffer = vec![0; bytes];
    let send = || {
        cpu.work(software);
        let envelope = PacketEnvelope { kind: HERE_IT_IS, len: bytes as u64, at: 0 };
        packets.send(cpu, &Spinning, out, envelope, &[]);
        assert_eq!(next().kind, I_HAVE_IT);
    };
    let mut receive = || {
        let envelope = next();
        assert_eq!((envelope.kind, envelope.len), (HERE_IT_IS, bytes as u64));
        cpu.copy_out(&memory[1 - me], 0, &mut buffer);
        let envelope = PacketEnvelope { kind: I_HAVE_IT, ..PacketEnvelope::default() };
        packets.send(cpu, &Spinning, out, envelope, &[]);
        cpu.work(software);
        assert!(buffer == message(1 - me, 0, bytes), "a message arrived damaged");
    };
    for _ in 0..=rounds(bytes) {
        if me == 0 {
            trips.time(cpu, || {
                send();
                receive();
            });
        } else {
            receive();
            send();
        }
    }
}
