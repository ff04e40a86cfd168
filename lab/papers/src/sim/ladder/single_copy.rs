//! Rendezvous with a single copy (Gropp & Lusk 1997, Section 9.2): the processes are
//! threads of one address space, so the receiver copies from the sender's own memory and says when
//! it has.

use std::rc::Rc;

use towpath_machine::{Arena, Processor};
use towpath_sim::{Sim, Simulation, Stuck};
use towpath_sync::Spinning;

use super::{LadderFigures, PROCESSES, Run, Rung, Trips, message, rounds};
use crate::ladder::{ControlPackets, LadderSlot, PacketEnvelope, Route, SHORT_BELOW, Slots};

const HERE_IT_IS: u64 = 1;
const I_HAVE_IT: u64 = 2;

/// Plays ping-pong with messages of so many bytes that lie in the threads' own memory.
///
/// # Errors
///
/// [`Stuck`] if it doesn't end.
pub fn ping_pong(rung: &Rung) -> Result<LadderFigures, Stuck> {
    let Run { machine, bytes, seed, .. } = &rung.run;
    let (bytes, seed) = (*bytes, *seed);
    let mut simulation = Simulation::new(machine, PROCESSES, seed);
    let arena = simulation.arena();
    let slots: Vec<LadderSlot<Sim>> = (0..PROCESSES * PROCESSES).map(|_| LadderSlot::new(&arena)).collect();
    let payload = Arena::<Sim>::bytes(&arena, PROCESSES * PROCESSES * SHORT_BELOW);
    let memory = [0, 1].map(|_| Arena::<Sim>::bytes(&arena, bytes));
    let (slots, trips, software) = (Rc::new(slots), Trips::default(), rung.software / 2);
    for me in 0..PROCESSES {
        let (slots, trips) = (Rc::clone(&slots), trips.clone());
        simulation.spawn(me, me, move |cpu| {
            let packets = Slots { slots: &slots, payload: &payload, processes: PROCESSES };
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
        });
    }
    simulation.run()?;
    Ok(LadderFigures { latency: trips.median() / 2.0, lock_operations: 0.0, flushes: 0.0 })
}
