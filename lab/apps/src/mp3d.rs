//! mp3d: a rarefied flow of molecules through cells of space, with a lock for each cell.
//!
//! **Source.** McDonald & Baganoff; Singh, Weber & Gupta 1991 (SPLASH); paper K, Section 5 and
//! Table 3 (the version with locks). In each step each processor moves its molecules. A molecule
//! enters its cell's count and momentum in one critical section, and in another one, under another
//! lock of the cell, it takes the molecule that waits there, if there is one, or waits there
//! itself; it collides with what it has taken when it has left the lock ("locks are used to
//! atomically update the cell data"). Two acquisitions for each move, as in Table 4 (408,000 for
//! 20,000 molecules and 10 steps); of two locks, since there a lock was last held by the same node
//! as seldom as chance has it (26 % on 4 nodes). Space is closed in itself.
//!
//! **Sizes.** 256, 20,000, 20,000 and 100,000 molecules, 4, 2, 10 and 10 steps, in 32 cells, and
//! else in 2,352 (14 × 24 × 7). The third is the paper's.
//!
//! **Checked by** what a collision does not change: the number of molecules, the momentum and the
//! energy; and in each cell the count and momentum of the molecules that are in it.
//!
//! **Fields.** `molecules[m]`: its processor; when that has done its move, the one that has taken
//! the molecule out of its cell. `cells[c]`: the molecule that waits under the
//! second lock, the rest under the first; between steps its processor.

use towpath_machine::{Processor, Random};

use crate::memory::{Memory, add, get, put};
use crate::problem::{Problem, ProblemChoice, Verified};
use crate::team::{Needs, Team};

/// Words of a molecule: place and velocity.
const MOLECULE: usize = 6;
/// Words of a cell of space: count, momentum, and the molecule that waits, counted from
/// 1.
const CELL: usize = 5;
const WAITING: usize = 4;

/// Instructions of a move, and of a collision.
const MOVE: u64 = 120;
const COLLISION: u64 = 250;

/// Largest difference of a sum that is rounding, as a part of the sum of absolute values.
const ROUNDING: f64 = 1e-12;

/// Problem in a machine's memory.
pub struct Mp3d<P: Processor> {
    molecules: Vec<[P::Cell; MOLECULE]>,
    /// The first lock of cell `c` is lock `2 c`, its second one the next.
    cells: Vec<[P::Cell; CELL]>,
    shape: [usize; 3],
    steps: usize,
    seed: u64,
    input: Vec<[f64; MOLECULE]>,
}

/// Place and velocity of a molecule at the start: anywhere, with the wind.
fn input(count: usize, shape: [usize; 3], seed: u64) -> Vec<[f64; MOLECULE]> {
    let mut random = Random::stream(seed, 1);
    let mut number = || random.below(1 << 30) as f64 / (1 << 30) as f64;
    (0..count)
        .map(|_| {
            core::array::from_fn(|k| match k {
                0..3 => number() * shape[k] as f64,
                // Thermal motion, and a wind along x of twice that.
                3 => 0.4 + 0.2 * (number() + number() - 1.0),
                _ => 0.2 * (number() + number() - 1.0),
            })
        })
        .collect()
}

/// Direction that follows from the numbers of two molecules and the step.
fn direction(seed: u64, step: usize, a: usize, b: usize) -> [f64; 3] {
    let mut random = Random::stream(seed ^ (step as u64) << 48, (a.min(b) as u64) << 32 | a.max(b) as u64);
    let mut number = || random.below(1 << 30) as f64 / (1 << 30) as f64;
    let z = 2.0 * number() - 1.0;
    let (sin, cos) = (core::f64::consts::TAU * number()).sin_cos();
    let r = (1.0 - z * z).sqrt();
    [r * cos, r * sin, z]
}

impl<P: Processor> Mp3d<P> {
    /// Makes the problem of that choice.
    pub fn new(choice: ProblemChoice, memory: &Memory<'_, P>) -> Self {
        let count = choice.size.pick([256, 20_000, 20_000, 100_000]);
        let shape = choice.size.pick([[4, 4, 2], [14, 24, 7], [14, 24, 7], [14, 24, 7]]);
        let input = input(count, shape, choice.seed);
        let owner = |m: usize| m * choice.procs / count;
        let cells = shape.iter().product::<usize>();
        Mp3d {
            molecules: (0..count).map(|m| memory.short_row_of(owner(m), |k| input[m][k].to_bits())).collect(),
            cells: (0..cells).map(|_| memory.short_row(|_| 0)).collect(),
            shape,
            steps: choice.size.pick([4, 2, 10, 10]),
            seed: choice.seed,
            input,
        }
    }

    fn cell_of(&self, place: [f64; 3]) -> usize {
        let at: [usize; 3] = core::array::from_fn(|k| (place[k] as usize).min(self.shape[k] - 1));
        (at[2] * self.shape[1] + at[1]) * self.shape[0] + at[0]
    }

    /// Moves a molecule. Returns its cell and velocity.
    fn advance(&self, cpu: &P, m: usize) -> (usize, [f64; 3]) {
        let cells = &self.molecules[m];
        let mut place = [0.0; 3];
        let velocity = core::array::from_fn(|k| get(cpu, &cells[3 + k]));
        for k in 0..3 {
            let size = self.shape[k] as f64;
            let moved = get(cpu, &cells[k]) + velocity[k];
            // Through one side and in at the other. (A remainder may be rounded to the whole.)
            place[k] = moved.rem_euclid(size) % size;
            put(cpu, &cells[k], place[k]);
        }
        cpu.instructions(MOVE);
        (self.cell_of(place), velocity)
    }

    /// Lets two molecules of a cell collide: their relative velocity gets another
    /// direction.
    fn collide(&self, cpu: &P, step: usize, a: usize, b: usize) {
        let velocity =
            |m: usize| -> [f64; 3] { core::array::from_fn(|k| get(cpu, &self.molecules[m][3 + k])) };
        let (u, v) = (velocity(a), velocity(b));
        let speed = (0..3).map(|k| (u[k] - v[k]).powi(2)).sum::<f64>().sqrt();
        let towards = direction(self.seed, step, a, b);
        for k in 0..3 {
            let sum = u[k] + v[k];
            let new = (sum + speed * towards[k]) / 2.0;
            put(cpu, &self.molecules[a][3 + k], new);
            put(cpu, &self.molecules[b][3 + k], sum - new);
        }
        cpu.instructions(COLLISION);
    }
}

impl<P: Processor> Problem<P> for Mp3d<P> {
    fn needs(&self) -> Needs {
        Needs { locks: 2 * self.cells.len(), ..Needs::default() }
    }

    fn work(&self, cpu: &P, me: usize, team: &Team<'_, P>) {
        let (molecules, cells) = (team.share(self.molecules.len(), me), team.share(self.cells.len(), me));
        for step in 0..self.steps {
            team.meet(cpu, me);
            for cell in &self.cells[cells.clone()] {
                cell.iter().for_each(|word| cpu.write(word, 0));
            }
            team.meet(cpu, me);
            for m in molecules.clone() {
                let (c, velocity) = self.advance(cpu, m);
                let cell = &self.cells[c];
                team.hold(cpu, 2 * c, || {
                    cpu.write(&cell[0], cpu.read(&cell[0]) + 1);
                    (0..3).for_each(|k| add(cpu, &cell[1 + k], velocity[k]));
                });
                let mut other = 0;
                team.hold(cpu, 2 * c + 1, || {
                    other = cpu.read(&cell[WAITING]);
                    cpu.write(&cell[WAITING], if other == 0 { m as u64 + 1 } else { 0 });
                });
                if other != 0 {
                    self.collide(cpu, step, m, other as usize - 1);
                }
            }
        }
        team.meet(cpu, me);
    }

    fn check(&self, value: &dyn Fn(&P::Cell) -> u64) -> Result<Verified, String> {
        let float = |cell: &P::Cell| f64::from_bits(value(cell));
        let mut counts = vec![0u64; self.cells.len()];
        let (mut momentum, mut energy, mut scale) = ([[0.0; 3]; 2], [0.0; 2], 0.0);
        let (mut in_cells, mut counted) = ([0.0; 3], 0);
        for (molecule, input) in self.molecules.iter().zip(&self.input) {
            counts[self.cell_of(core::array::from_fn(|k| float(&molecule[k])))] += 1;
            for k in 0..3 {
                for (n, v) in [input[3 + k], float(&molecule[3 + k])].into_iter().enumerate() {
                    momentum[n][k] += v;
                    energy[n] += v * v / 2.0;
                }
                scale += input[3 + k].abs();
            }
        }
        for (c, (cell, count)) in self.cells.iter().zip(&counts).enumerate() {
            if value(&cell[0]) != *count {
                return Err(format!("cell {c} counted {} molecules and has {count}", value(&cell[0])));
            }
            counted += count;
            (0..3).for_each(|k| in_cells[k] += float(&cell[1 + k]));
        }
        if counted != self.molecules.len() as u64 {
            return Err(format!("{counted} molecules are left of {}", self.molecules.len()));
        }
        let near = |what: &str, a: f64, b: f64, scale: f64| match (a - b).abs() <= ROUNDING * scale {
            true => Ok(()),
            false => Err(format!("the {what} is {a}, not {b}")),
        };
        for k in 0..3 {
            near("momentum", momentum[1][k], momentum[0][k], scale)?;
            near("momentum in the cells", in_cells[k], momentum[0][k], scale)?;
        }
        near("energy", energy[1], energy[0], energy[0] * 10.0)?;
        let fullest = counts.iter().max().copied().unwrap_or(0);
        Ok(Verified::new(format!(
            "{} molecules, {} cells with up to {fullest}, momentum {:.4}, energy {:.4}",
            self.molecules.len(),
            self.cells.len(),
            momentum[1][0],
            energy[1]
        )))
    }
}
