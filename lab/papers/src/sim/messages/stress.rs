//! The stress test: all but one process write integers to the remaining one (paper L,
//! Section 4.2, Table 2).
//!
//! Each integer is a request that is answered, as g ≈ o_s + o_r in the paper's Table 1 says of its
//! messages. A writer polls after each request. The first eighth of the messages is not counted;
//! the writers go on until the reader has had the last one that is.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use towpath_am::Tag;
use towpath_machine::Event;
use towpath_sim::{Counters, Note, Sim, Simulation, Stuck, Time};

use super::domain::{Simulated, name_of, on};
use super::world::World;
use super::{Layer, MessageAlgorithm, ns};

/// Figures of one run.
#[derive(Clone, Debug, Default)]
pub struct StressFigures {
    /// Per message, at the reader, in nanoseconds. With several programs: of the slowest
    /// one.
    pub message: f64,
    /// Requests per poll that found one.
    pub per_poll: f64,
    /// Compare-and-swaps per message that found another value.
    pub failed_exchanges: f64,
    /// Counts from the first counted message to the last (of all programs).
    pub counters: Counters,
    /// Messages counted.
    pub messages: u64,
    /// Time of writers in the window in front of the request queue, in nanoseconds, the
    /// median: between getting the lock and leaving it, or between reading the tail and the end of
    /// the compare-and-swap.
    pub window: f64,
    /// The smallest and the largest writer's share of the messages, as parts of an equal
    /// one.
    pub shares: (f64, f64),
}

/// The state of a program's processes outside the simulated machine.
#[derive(Default)]
struct StressBoard {
    over: Cell<bool>,
    sent: Cell<u64>,
    done: Cell<usize>,
}

const WRITE: u8 = 1;
const ACK: u8 = 2;

/// The reader is the last member, so that writers are numbered from 0.
#[derive(Clone, Copy)]
struct StressProgram {
    writers: usize,
    messages: u64,
}

/// Runs the test: one of the processors receives, the others write.
///
/// # Errors
///
/// [`Stuck`] if the programs don't end.
///
/// # Panics
///
/// If a message is lost, comes twice, or overtakes another of its sender.
pub fn stress(layer: &Layer, algorithm: MessageAlgorithm) -> Result<StressFigures, Stuck> {
    let program = StressProgram { writers: layer.run.procs - 1, messages: layer.run.operations };
    let members = program.writers + 1;
    let mut simulation = Simulation::new(&layer.run.machine, members, layer.run.seed);
    let arena = simulation.arena();
    let habits = layer.habits;
    let mut results = Vec::new();
    for job in 0..layer.run.copies.max(1) {
        let config = layer.sizes.config(members, algorithm.kind());
        let world = Rc::new(World::new(&arena, config, algorithm));
        let board = Rc::new(StressBoard::default());
        let result = Rc::new(RefCell::new(StressFigures::default()));
        results.push(result.clone());
        for writer in 0..program.writers {
            let (world, board) = (world.clone(), board.clone());
            simulation.spawn_in_job(writer, writer, job, move |cpu| {
                cpu.keep_notes(true);
                let replies = Cell::new(0);
                let endpoint = Simulated::new(cpu, &world, writer, habits).endpoint();
                on(&endpoint, ACK, |token| {
                    assert_eq!(token.args(), [replies.get()], "replies come in order");
                    replies.set(replies.get() + 1);
                });
                // The tag names the writer, which costs nothing.
                let reader = name_of(&endpoint, program.writers);
                endpoint.map(0, reader, Tag(writer as u64)).expect("the reader's own name");
                let mut sent = 0;
                while !board.over.get() {
                    endpoint.request(0, WRITE, &[sent, !sent]).expect("the reader is mapped");
                    sent += 1;
                    endpoint.poll();
                }
                board.sent.set(board.sent.get() + u64::from(sent));
                board.done.set(board.done.get() + 1);
                while replies.get() < sent {
                    endpoint.poll();
                }
            });
        }
        simulation.spawn_in_job(program.writers, program.writers, job, move |cpu| {
            *result.borrow_mut() = read(cpu, &world, &board, program, habits);
        });
    }
    let outcome = simulation.run()?;
    let mut figures = results
        .into_iter()
        .map(|r| r.take())
        .reduce(|a, b| if b.message > a.message { b } else { a })
        .unwrap_or_default();
    figures.window = window(&outcome.notes);
    Ok(figures)
}

fn read(
    cpu: &Sim,
    world: &World,
    board: &StressBoard,
    program: StressProgram,
    habits: super::Habits,
) -> StressFigures {
    let arrived = RefCell::new(vec![0u32; program.writers]);
    let handled = Cell::new(0u64);
    let first = program.messages / 8;
    type Mark = (Time, Counters, (u64, u64), Vec<u32>);
    let (begun, ended) = (RefCell::new(None::<Mark>), RefCell::new(None::<Mark>));
    let endpoint = Simulated::new(cpu, world, program.writers, habits).endpoint();
    on(&endpoint, WRITE, |token| {
        let number = &mut arrived.borrow_mut()[token.tag().0 as usize];
        assert_eq!(token.args(), [*number, !*number], "messages of a sender come once and in order");
        *number += 1;
        token.reply(ACK, &token.args()[..1]).expect("a request is answered");
        handled.set(handled.get() + 1);
    });
    // Polls that found something, and what they found.
    let (mut polls, mut found) = (0u64, 0u64);
    while board.done.get() < program.writers || handled.get() < board.sent.get() {
        let requests = endpoint.poll();
        polls += u64::from(requests > 0);
        found += requests as u64;
        let mark = match handled.get() {
            n if n < first => None,
            _ if begun.borrow().is_none() => Some(&begun),
            n if n >= program.messages && ended.borrow().is_none() => Some(&ended),
            _ => None,
        };
        if let Some(mark) = mark {
            let state = (cpu.clock(), cpu.counters(), (polls, found), arrived.borrow().clone());
            mark.replace(Some(state));
            board.over.set(ended.borrow().is_some());
        }
    }
    let (Some(a), Some(b)) = (begun.take(), ended.take()) else {
        panic!("the writers stop only when the reader has had enough")
    };
    let of_writers: Vec<u64> = a.3.iter().zip(&b.3).map(|(a, b)| u64::from(b - a)).collect();
    let messages: u64 = of_writers.iter().sum();
    let counters = b.1.since(&a.1);
    let share = |n: Option<&u64>| n.map_or(0.0, |&n| (n * program.writers as u64) as f64 / messages as f64);
    StressFigures {
        message: ns(b.0 - a.0) / messages as f64,
        per_poll: (b.2.1 - a.2.1) as f64 / (b.2.0 - a.2.0).max(1) as f64,
        failed_exchanges: counters.failed_exchanges as f64 / messages as f64,
        messages,
        window: 0.0,
        shares: (share(of_writers.iter().min()), share(of_writers.iter().max())),
        counters,
    }
}

/// The median time between a thread's getting something and its letting go of it.
fn window(notes: &[Note]) -> f64 {
    let mut open = std::collections::BTreeMap::new();
    let mut times = Vec::new();
    for note in notes {
        match note.event {
            Event::Acquired(_) => {
                open.insert(note.thread, note.time);
            }
            Event::Released(_) => times.extend(open.remove(&note.thread).map(|since| note.time - since)),
            _ => {}
        }
    }
    times.sort_unstable();
    times.get(times.len() / 2).map_or(f64::NAN, |&t| ns(t))
}
