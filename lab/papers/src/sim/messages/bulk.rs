//! Peak bandwidth of bulk transfers in blocks (paper L, Section 4.1), beside the rate at
//! which the machine copies memory.
//!
//! Source and destination are arrays longer than the cache: the sender reads its source and writes
//! a block, the receiver reads the block and writes its destination. The copy rate is that of a
//! loop over the same arrays.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use towpath_machine::{Arena, Processor};
use towpath_sim::{Counters, Sim, SimBytes, Simulation, Stuck};

use super::domain::{Endpoint, Simulated, on};
use super::world::World;
use super::{Layer, MessageAlgorithm, Sizes, ns};

/// Figures of bulk transfers.
#[derive(Clone, Debug, Default)]
pub struct BulkFigures {
    /// Bytes per second.
    pub bandwidth: f64,
    /// Counts during the sending of one transfer alone, to an idle server.
    pub one_send: Counters,
}

/// The arrays' lengths: twice the Enterprise 5000's cache.
const ARRAY: usize = 1 << 20;
/// Transfers: the arrays twice, of which the first time is not counted.
const TRANSFERS: usize = 2 * ARRAY / BLOCK;
const BLOCK: usize = Sizes::PAPER.block_size as usize;

const STORE: u8 = 1;
const COUNT: u8 = 2;

/// Speed of one processor that copies memory, in bytes per second.
///
/// # Errors
///
/// [`Stuck`] if the program doesn't end.
pub fn copy_rate(layer: &Layer) -> Result<f64, Stuck> {
    let mut simulation = Simulation::new(&layer.run.machine, 1, layer.run.seed);
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
pub fn bulk(layer: &Layer, algorithm: MessageAlgorithm) -> Result<BulkFigures, Stuck> {
    let mut simulation = Simulation::new(&layer.run.machine, 2, layer.run.seed);
    let arena = simulation.arena();
    let world = Rc::new(World::new(&arena, Sizes::PAPER.config(2, algorithm.kind()), algorithm));
    let (from, to) = (arena.bytes(ARRAY), arena.bytes(ARRAY));
    let over = Rc::new(Cell::new(false));
    let figures = Rc::new(RefCell::new(BulkFigures::default()));
    let habits = layer.habits;
    {
        let (world, over) = (world.clone(), over.clone());
        simulation.spawn(0, 0, move |cpu| {
            let endpoint = Simulated::new(cpu, &world, 0, habits).endpoint();
            on(&endpoint, STORE, |token| {
                cpu.copy_in(&to, token.args()[0] as usize, token.bytes());
                token.reply(COUNT, &[]).expect("a request is answered");
            });
            while !over.get() {
                endpoint.poll();
            }
        });
    }
    let result = figures.clone();
    simulation.spawn(1, 1, move |cpu| {
        let replies = Cell::new(0);
        let endpoint = Simulated::new(cpu, &world, 1, habits).endpoint();
        on(&endpoint, COUNT, |_| replies.set(replies.get() + 1));
        endpoint.map_world().expect("the server comes");
        *result.borrow_mut() = send(cpu, &endpoint, &from, &replies);
        over.set(true);
    });
    simulation.run()?;
    Ok(figures.take())
}

fn send(cpu: &Sim, endpoint: &Endpoint<'_>, from: &SimBytes, replies: &Cell<usize>) -> BulkFigures {
    let mut block = vec![0; BLOCK];
    let transfer = |block: &mut [u8], n: usize| {
        let at = n * BLOCK % ARRAY;
        cpu.copy_out(from, at, block);
        endpoint.request_medium(0, STORE, &[at as u32], block).expect("the server is mapped");
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
    endpoint.request_medium(0, STORE, &[0], &block).expect("the server is mapped");
    let one_send = cpu.counters().since(&before);
    until(TRANSFERS + 1);
    BulkFigures { bandwidth: (TRANSFERS / 2 * BLOCK) as f64 / (time * 1e-9), one_send }
}
