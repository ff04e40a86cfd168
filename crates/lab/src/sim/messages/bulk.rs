//! Peak bandwidth of bulk transfers in blocks (paper L, Section 4.1), beside the rate at which the machine copies memory.
//!
//! Source and destination are arrays longer than the cache: the sender reads its source and writes a block, the receiver reads the block and writes its destination. The copy rate is that
//! of a loop over the same arrays.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use towpath_am::claim::Claim;
use towpath_machine::{Arena, Processor};
use towpath_sim::{Counters, Sim, SimArena, SimBytes, Simulation, Stuck};

use super::endpoint::Endpoint;
use super::world::World;
use super::{Algorithm, Setup, Sizes, ns, with_claim};

/// What was measured.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Bytes per second.
    pub bandwidth: f64,
    /// What was counted during the sending of one transfer alone, to an idle server.
    pub one_send: Counters,
}

/// The arrays' lengths: twice the Enterprise 5000's cache.
const ARRAY: usize = 1 << 20;
/// Transfers: the arrays twice, of which the first time is not counted.
const TRANSFERS: usize = 2 * ARRAY / BLOCK;
const BLOCK: usize = Sizes::PAPER.block_size;

/// How fast one processor copies memory, in bytes per second.
///
/// # Errors
///
/// [`Stuck`] if the program doesn't end.
pub fn copy_rate(setup: &Setup, seed: u64) -> Result<f64, Stuck> {
    let mut simulation = Simulation::new(&setup.parameters, 1, seed);
    let arena = simulation.arena();
    let (from, to) = (arena.bytes(ARRAY), arena.bytes(ARRAY));
    let rate = Rc::new(Cell::new(0.0));
    let result = rate.clone();
    simulation.spawn(0, 0, move |cpu| {
        let start = cpu.clock();
        // A line at a time, as a loop goes.
        let mut line = [0; 64];
        for at in (0..ARRAY).step_by(line.len()) {
            cpu.copy_out(&from, at, &mut line);
            cpu.copy_in(&to, at, &line);
        }
        result.set(ARRAY as f64 / (ns(cpu.clock() - start) * 1e-9));
    });
    simulation.run()?;
    Ok(rate.get())
}

/// Measures one algorithm.
///
/// # Errors
///
/// [`Stuck`] if the programs don't end.
pub fn bulk(setup: &Setup, algorithm: Algorithm, seed: u64) -> Result<Figures, Stuck> {
    with_claim!(algorithm, make => run(setup, seed, make))
}

fn run<C: Claim<Sim> + 'static>(
    setup: &Setup,
    seed: u64,
    make: impl Fn(&SimArena) -> C,
) -> Result<Figures, Stuck> {
    let mut simulation = Simulation::new(&setup.parameters, 2, seed);
    let arena = simulation.arena();
    let world = Rc::new(World::new(&arena, 2, &Sizes::PAPER, || make(&arena)));
    let (from, to) = (arena.bytes(ARRAY), arena.bytes(ARRAY));
    let over = Rc::new(Cell::new(false));
    let figures = Rc::new(RefCell::new(Figures::default()));
    let habits = setup.habits;
    {
        let (world, over) = (world.clone(), over.clone());
        simulation.spawn(0, 0, move |cpu| {
            let mut endpoint = Endpoint::new(cpu, &world, 0, habits);
            endpoint.handler(|endpoint, message| {
                cpu.copy_in(&to, message.args[0] as usize, message.payload);
                endpoint.reply(message.from, 1, &[]);
            });
            while !over.get() {
                endpoint.poll();
            }
        });
    }
    let result = figures.clone();
    simulation.spawn(1, 1, move |cpu| {
        let replies = Cell::new(0);
        let mut endpoint = Endpoint::new(cpu, &world, 1, habits);
        endpoint.handler(|_, _| unreachable!("the server sends no requests"));
        endpoint.handler(|_, _| replies.set(replies.get() + 1));
        *result.borrow_mut() = send(cpu, &endpoint, &from, &replies);
        over.set(true);
    });
    simulation.run()?;
    Ok(figures.take())
}

fn send<C: Claim<Sim>>(
    cpu: &Sim,
    endpoint: &Endpoint<'_, Sim, C>,
    from: &SimBytes,
    replies: &Cell<usize>,
) -> Figures {
    let mut block = vec![0; BLOCK];
    let transfer = |block: &mut [u8], n: usize| {
        let at = n * BLOCK % ARRAY;
        cpu.copy_out(from, at, block);
        endpoint.request(0, 0, &[at as u32], Some(block));
    };
    let until = |count: usize| {
        while replies.get() < count {
            endpoint.poll();
        }
    };
    for n in 0..TRANSFERS / 2 {
        transfer(&mut block, n);
        endpoint.poll();
    }
    until(TRANSFERS / 2);
    let start = cpu.clock();
    for n in 0..TRANSFERS / 2 {
        transfer(&mut block, n);
        endpoint.poll();
    }
    until(TRANSFERS);
    let time = ns(cpu.clock() - start);
    cpu.work(100_000);
    let before = cpu.counters();
    endpoint.request(0, 0, &[0], Some(&block));
    let one_send = cpu.counters().since(&before);
    until(TRANSFERS + 1);
    Figures { bandwidth: (TRANSFERS / 2 * BLOCK) as f64 / (time * 1e-9), one_send }
}
