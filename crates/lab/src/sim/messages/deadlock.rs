//! Deadlock and its absence (paper L, Sections 3.1 and 3.2) with tiny queues: cycles of requests, and bulk transfers among short messages.

use std::cell::Cell;
use std::rc::Rc;

use towpath_am::claim::Claim;
use towpath_sim::{Sim, SimArena, Simulation, Stuck};

use super::endpoint::{Endpoint, Habits, Way};
use super::world::{Sizes, World};
use super::{Algorithm, Setup, with_claim};

/// What everybody sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Each member sends requests to the next one, round the circle.
    Cycle,
    /// All members but the first send bulk transfers and short messages to it.
    Bulk,
}

/// Simulated time within which everything is over many times, in picoseconds.
const LIMIT: u64 = 1_000_000_000_000;

/// Runs some traffic among endpoints that behave in some way, with queues of two packets and one block. `Err` if they stand still.
///
/// # Errors
///
/// [`Stuck`]: who waits where.
pub fn traffic(
    setup: &Setup,
    algorithm: Algorithm,
    traffic: Traffic,
    way: Way,
    seed: u64,
) -> Result<(), Stuck> {
    with_claim!(algorithm, make => run(setup, traffic, way, seed, make))
}

const MEMBERS: usize = 4;
const MESSAGES: usize = 40;
const PAYLOAD: [u8; 64] = [7; 64];

fn run<C: Claim<Sim> + 'static>(
    setup: &Setup,
    traffic: Traffic,
    way: Way,
    seed: u64,
    make: impl Fn(&SimArena) -> C,
) -> Result<(), Stuck> {
    let sizes = Sizes { packets: 2, blocks: 1, block_size: 64 };
    let mut simulation = Simulation::new(&setup.parameters, MEMBERS, seed);
    let arena = simulation.arena();
    let world = Rc::new(World::new(&arena, MEMBERS, &sizes, || make(&arena)));
    let unfinished = Rc::new(Cell::new(MEMBERS));
    let habits = Habits { way, ..setup.habits };
    for me in 0..MEMBERS {
        let (world, unfinished) = (world.clone(), unfinished.clone());
        simulation.spawn(me, me, move |cpu| {
            let replies = Cell::new(0);
            let mut endpoint = Endpoint::new(cpu, &world, me, habits);
            endpoint.handler(|endpoint, message| {
                assert!(
                    message.payload.is_empty() || message.payload == PAYLOAD,
                    "a payload comes as it was sent"
                );
                endpoint.reply(message.from, 1, &[]);
            });
            endpoint.handler(|_, _| replies.set(replies.get() + 1));
            let (to, messages) = match traffic {
                Traffic::Cycle => ((me + 1) % MEMBERS, MESSAGES),
                Traffic::Bulk => (0, if me == 0 { 0 } else { MESSAGES }),
            };
            for n in 0..messages {
                let bulk = traffic == Traffic::Bulk && (n + me) % 2 == 0;
                endpoint.request(to, 0, &[], bulk.then_some(&PAYLOAD));
            }
            while replies.get() < messages {
                endpoint.poll();
            }
            unfinished.set(unfinished.get() - 1);
            while unfinished.get() > 0 {
                endpoint.poll();
            }
        });
    }
    simulation.run_until(LIMIT).map(|_| ())
}
