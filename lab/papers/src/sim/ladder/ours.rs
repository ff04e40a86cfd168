//! Ping-pong through Towpath's endpoints, as in `ladder/native.rs`: short messages in the
//! arguments, others as long transfers into private memory (two copies, as in the paper's
//! versions).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use towpath_am::claim::Towpath;
use towpath_am::{Algorithm, SegmentKind};
use towpath_machine::Processor;
use towpath_sim::{Simulation, Stuck};

use super::{Figures, PROCESSES, Setup, Trips, message, rounds};
use crate::sim::messages;
use crate::sim::messages::domain::{Simulated, on};
use crate::sim::messages::world::{Sizes, World};

const INLINE: u8 = 1;
const STORED: u8 = 2;
/// What fits into the arguments beside tag and length.
const INLINE_BYTES: usize = 56;
/// Blocks as in a native world, fewer packets.
const SIZES: Sizes = Sizes { packets: 64, blocks: 12, block_size: 32 << 10, segment_bytes: 0 };

/// What the handlers leave.
#[derive(Default)]
struct Arrived {
    count: Cell<u64>,
    args: RefCell<Vec<u32>>,
}

/// Plays it.
pub fn ping_pong(setup: &Setup, bytes: usize, seed: u64) -> Result<Figures, Stuck> {
    let mut simulation = Simulation::new(&setup.machine, PROCESSES, seed);
    let world =
        Rc::new(World::new(&simulation.arena(), SIZES.config(PROCESSES, Algorithm::Towpath), || Towpath));
    let trips = Trips::default();
    let over = Rc::new(Cell::new(false));
    let habits = messages::Setup::new(setup.machine.clone()).habits;
    let software = setup.software / 2;
    for me in 0..PROCESSES {
        let (world, trips, over) = (Rc::clone(&world), trips.clone(), Rc::clone(&over));
        simulation.spawn(me, me, move |cpu| {
            let arrived = Arrived::default();
            let domain = Simulated::new(cpu, &world, me, habits);
            let endpoint = domain.endpoint_with(SegmentKind::Private(bytes.next_multiple_of(64).max(64)));
            for handler in [INLINE, STORED] {
                on(&endpoint, handler, |token| {
                    *arrived.args.borrow_mut() = token.args().to_vec();
                    arrived.count.set(arrived.count.get() + 1);
                });
            }
            endpoint.map_world().expect("the other one comes");
            let send = |round: usize| {
                let data = message(me, round, bytes);
                cpu.work(software);
                let head = [round as u32, bytes as u32];
                let sent = if bytes > INLINE_BYTES {
                    endpoint.request_long(1 - me, STORED, &head, &data, 0)
                } else {
                    endpoint.request(1 - me, INLINE, &[&head[..], &words(&data)].concat())
                };
                sent.expect("the other one is there");
            };
            let receive = |round: usize| {
                while arrived.count.get() == 0 {
                    endpoint.poll();
                }
                arrived.count.set(0);
                cpu.work(software);
                let args = arrived.args.borrow();
                assert_eq!((args[0] as usize, args[1] as usize), (round, bytes), "tag and length");
                let expected = message(1 - me, round, bytes);
                let right = if bytes > INLINE_BYTES {
                    let mut found = vec![0; bytes];
                    endpoint.segment().read(0, &mut found);
                    found == expected
                } else {
                    args[2..] == words(&expected)
                };
                assert!(right, "round {round}: a message arrived damaged");
            };
            for round in 0..=rounds(bytes) {
                if me == 0 {
                    trips.time(cpu, || {
                        send(round);
                        receive(round);
                    });
                } else {
                    receive(round);
                    send(round);
                }
            }
            if me == 0 {
                over.set(true);
            }
            while !over.get() {
                endpoint.poll();
            }
        });
    }
    simulation.run()?;
    Ok(Figures { latency: trips.median() / 2.0, lock_operations: 0.0, flushes: 0.0 })
}

/// Bytes as arguments.
fn words(data: &[u8]) -> Vec<u32> {
    let word = |chunk: &[u8]| {
        let mut four = [0; 4];
        four[..chunk.len()].copy_from_slice(chunk);
        u32::from_le_bytes(four)
    };
    data.chunks(4).map(word).collect()
}
