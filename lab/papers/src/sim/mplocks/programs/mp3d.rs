//! `mp3d`: molecules that move through the cells of a wind tunnel, as in SPLASH's program
//! with locks (McDonald; Singh, Weber & Gupta, CSL-TR-91-469).
//!
//! A molecule moves by its velocity. Under the first lock of its cell it is counted among the
//! cell's molecules; under the second one it takes the place of the molecule that waits there
//! for a partner, or becomes that one's partner, and sometimes collides with it. That is Table
//! 4's number of acquisitions: two for each of 20,000 molecules, and of 400 in a reservoir, in
//! each of 10 steps. Molecules are dealt out to the nodes in clumps that fill lines of 64
//! bytes. A molecule has 36 bytes, a cell 48 with its locks (`common.h`); the locks themselves
//! are the lock library's. The tunnel has 14 × 24 × 7 cells (from memory), the two outer ones
//! on each side walls. No object stands in it, and no reservoir beside it. Arithmetic is
//! computation.

use std::cell::RefCell;

use towpath_machine::Random;
use towpath_sim::Sim;

use super::memory::SharedArray;
use super::{ProgramBody, ProgramStage, Setup};

/// Bytes of a molecule and of a cell, and molecules of a clump.
const MOLECULE: usize = 36;
const CELL: usize = 48;
const CLUMP: usize = 16;
const MOLECULES: usize = 20_000;
/// Acquisitions in each step.
const ACQUISITIONS: u64 = 2 * MOLECULES as u64;
/// Cells in each direction, and places for them in the array.
const CELLS: [usize; 3] = [14, 24, 7];
const PLACES: [usize; 3] = [16, 24, 8];
/// Width of the walls, in cells.
const WALL: usize = 2;
/// Speed of the stream, and thermal speed, in cells for each step.
const STREAM: f64 = 0.1;
const THERMAL: f64 = 0.012;
/// Probability that two that meet collide: √(8 ÷ 1.4 π) × 0.02.
const COLLIDE: f64 = 0.027;
/// Computation before each acquisition, in cycles: so that 4 nodes take Table 4's 3243
/// cycles for each under MP-dist with fast switches (an input).
const MOVE: u64 = 616;

#[derive(Clone, Copy)]
struct Molecule {
    at: [f64; 3],
    speed: [f64; 3],
}

/// Place of a molecule: its cell in the array, and the first one of the cell's locks.
struct CellPlace {
    cell: usize,
    lock: usize,
}

/// The program.
pub(super) struct Mp3d {
    molecules: RefCell<Vec<Molecule>>,
    /// By cell: the molecule that waits for a partner.
    waiting: RefCell<Vec<Option<usize>>>,
    particles: SharedArray,
    cells: SharedArray,
}

/// Returns a number between 0 and 1.
fn part(random: &mut Random) -> f64 {
    random.below(1 << 30) as f64 / f64::from(1 << 30)
}

impl Mp3d {
    pub fn new(setup: &mut Setup<'_>) -> Mp3d {
        let random = &mut Random::stream(setup.seed, 1 << 40);
        let molecules = (0..MOLECULES).map(|_| Molecule {
            at: CELLS.map(|cells| WALL as f64 + part(random) * (cells - 2 * WALL) as f64),
            speed: [STREAM, 0.0, 0.0].map(|mean| {
                // A sum of six is nearly normal.
                let sum: f64 = (0..6).map(|_| part(random)).sum();
                mean + THERMAL * (2.0 * sum - 6.0)
            }),
        });
        let places = PLACES.iter().product();
        Mp3d {
            molecules: RefCell::new(molecules.collect()),
            waiting: RefCell::new(vec![None; places]),
            particles: setup.array(MOLECULES, MOLECULE),
            cells: setup.array(places, CELL),
        }
    }

    /// Moves a molecule.
    fn advance(&self, i: usize) -> CellPlace {
        let it = &mut self.molecules.borrow_mut()[i];
        for (d, cells) in CELLS.into_iter().enumerate() {
            let (low, high) = (WALL as f64, (cells - WALL) as f64);
            it.at[d] += it.speed[d];
            if d == 0 && it.at[d] >= high {
                // It leaves at the end, and another one enters.
                it.at[d] -= high - low;
            } else if it.at[d] < low || it.at[d] >= high {
                it.speed[d] = -it.speed[d];
            }
            it.at[d] = it.at[d].clamp(low, high - 1e-9);
        }
        let [x, y, z] = it.at.map(|at| at as usize);
        CellPlace { cell: (y * PLACES[2] + z) * PLACES[0] + x, lock: 2 * ((y * CELLS[2] + z) * CELLS[0] + x) }
    }

    fn advance_and_collide(&self, stage: &ProgramStage, cpu: &Sim, i: usize) {
        stage.compute(cpu, MOVE, 0.2);
        let CellPlace { cell, lock } = self.advance(i);
        stage.share(cpu, || self.particles.touch(cpu, i, 0..MOLECULE));
        stage.section(cpu, lock, 0, || self.cells.touch(cpu, cell, 8..40));
        stage.compute(cpu, MOVE, 0.2);
        let mut partner = None;
        stage.section(cpu, lock + 1, 0, || {
            self.cells.touch(cpu, cell, 8..16);
            let waiting = &mut self.waiting.borrow_mut()[cell];
            partner = waiting.take();
            if partner.is_none() {
                *waiting = Some(i);
            }
        });
        let chance = part(&mut cpu.random());
        if let Some(partner) = partner.filter(|_| chance < COLLIDE) {
            stage.share(cpu, || self.particles.touch(cpu, partner, 16..MOLECULE));
            let all = &mut self.molecules.borrow_mut();
            (all[i].speed, all[partner].speed) = (all[partner].speed, all[i].speed);
        }
    }

    fn step(&self, stage: &ProgramStage, cpu: &Sim, node: usize) {
        let nodes = stage.nodes;
        for i in (0..MOLECULES).filter(|i| i / CLUMP % nodes == node) {
            self.advance_and_collide(stage, cpu, i);
        }
        stage.barrier(cpu);
        // The cells' averages: the cells are dealt out one by one.
        stage.share(cpu, || {
            for cell in (node..PLACES.iter().product()).step_by(nodes).filter(is_open) {
                self.cells.touch(cpu, cell, 8..24);
                self.waiting.borrow_mut()[cell] = None;
            }
        });
        stage.barrier(cpu);
    }
}

/// Returns whether a cell is none of the walls'.
fn is_open(cell: &usize) -> bool {
    let at = [cell % PLACES[0], cell / PLACES[0] / PLACES[2], cell / PLACES[0] % PLACES[2]];
    at.into_iter().zip(CELLS).all(|(at, cells)| (WALL..cells - WALL).contains(&at))
}

impl ProgramBody for Mp3d {
    fn locks(&self) -> usize {
        2 * CELLS.iter().product::<usize>()
    }

    fn run(&self, stage: &ProgramStage, cpu: &Sim, node: usize) {
        self.step(stage, cpu, node);
        stage.begin(cpu, node);
        for _ in 0..(stage.wanted / ACQUISITIONS).max(1) {
            self.step(stage, cpu, node);
        }
    }
}
