//! LU: factors of a dense matrix in blocks, with three barriers for each block column.
//!
//! **Source.** Woo, Ohara, Torrie, Singh & Gupta 1995 (SPLASH-2), LU with contiguous blocks; paper
//! N, Section 6. Blocks are dealt out to the processors in two dimensions; a processor changes its
//! own blocks only, and reads others' that are done. No pivoting: the diagonal dominates.
//!
//! **Sizes.** Matrices of 64, 128, 256 and 512 rows (the last is SPLASH-2's), in blocks of 8 × 8
//! (`tiny`, `small`) or 16 × 16 numbers.
//!
//! **Checked by** the largest element of A − LU, by the largest of A.
//!
//! **Fields.** `blocks[i][j]`: written by its processor, read by others after the barrier behind
//! the phase in which it was completed.

use towpath_machine::{Processor, Random};

use crate::memory::{Memory, get, put};
use crate::problem::{ParallelLoops, Problem, ProblemChoice, Verified};
use crate::team::{Needs, Team};

/// Square block of the matrix, in a processor's own memory, by rows.
type Tile = Vec<f64>;

/// Largest difference that is rounding, for each row of the matrix.
const ROUNDING: f64 = 4.0 * f64::EPSILON;

/// Problem in a machine's memory.
pub struct Lu<P: Processor> {
    /// Rows of the matrix.
    size: usize,
    /// Rows of a block.
    block: usize,
    /// Processors in each dimension of the deal.
    deal: [usize; 2],
    /// Elements of each block, by rows: block rows, then block columns.
    blocks: Vec<Vec<P::Cell>>,
    input: Vec<f64>,
}

/// Element of the input: random, and on the diagonal more than a row's sum.
fn input(size: usize, seed: u64) -> Vec<f64> {
    let mut random = Random::stream(seed, 1);
    (0..size * size)
        .map(|n| {
            let value = random.below(1 << 20) as f64 / (1 << 20) as f64 - 0.5;
            if n.is_multiple_of(size + 1) { value + size as f64 } else { value }
        })
        .collect()
}

impl<P: Processor> Lu<P> {
    /// Makes the problem of that choice.
    pub fn new(choice: ProblemChoice, memory: &Memory<'_, P>) -> Self {
        let size = choice.size.pick([64, 128, 256, 512]);
        let block = choice.size.pick([8, 8, 16, 16]);
        let input = input(size, choice.seed);
        // As nearly square as can be.
        let rows =
            (1..=choice.procs).rev().find(|n| choice.procs.is_multiple_of(*n) && n * n <= choice.procs);
        let rows = rows.unwrap_or(1);
        let (deal, count) = ([rows, choice.procs / rows], size / block);
        let blocks = (0..count * count)
            .map(|b| {
                let (i, j) = (b / count, b % count);
                let owner = i % deal[0] * deal[1] + j % deal[1];
                let at = |n: usize| (i * block + n / block) * size + j * block + n % block;
                memory.row_of(owner, block * block, |n| input[at(n)].to_bits())
            })
            .collect();
        Lu { size, block, deal, blocks, input }
    }

    fn count(&self) -> usize {
        self.size / self.block
    }

    fn owner(&self, i: usize, j: usize) -> usize {
        i % self.deal[0] * self.deal[1] + j % self.deal[1]
    }

    fn read(&self, cpu: &P, i: usize, j: usize) -> Tile {
        self.blocks[i * self.count() + j].iter().map(|cell| get(cpu, cell)).collect()
    }

    fn write(&self, cpu: &P, i: usize, j: usize, tile: &Tile) {
        let cells = &self.blocks[i * self.count() + j];
        cells.iter().zip(tile).for_each(|(cell, &value)| put(cpu, cell, value));
    }

    /// Changes a block by others. Charges so many multiplications and additions.
    fn change(&self, cpu: &P, (i, j): (usize, usize), operations: u64, change: impl FnOnce(&mut Tile)) {
        let mut tile = self.read(cpu, i, j);
        change(&mut tile);
        // A multiplication and an addition, two loads and a store.
        cpu.instructions(5 * operations);
        self.write(cpu, i, j, &tile);
    }

    /// Number of multiplications and additions in a product of two tiles.
    fn cube(&self) -> u64 {
        (self.block * self.block * self.block) as u64
    }

    fn factor(&self, cpu: &P, k: usize) {
        self.change(cpu, (k, k), self.cube() / 3, |a| factor(a, self.block));
    }

    fn divide(&self, cpu: &P, (i, k): (usize, usize), diagonal: &Tile) {
        self.change(cpu, (i, k), self.cube() / 2, |a| divide(a, diagonal, self.block));
    }

    fn solve(&self, cpu: &P, (k, j): (usize, usize), diagonal: &Tile) {
        self.change(cpu, (k, j), self.cube() / 2, |a| solve(a, diagonal, self.block));
    }

    /// Subtracts products from blocks of row `i`: those of the columns that are given.
    fn subtract(&self, cpu: &P, (i, k): (usize, usize), columns: impl Iterator<Item = usize>) {
        let mut left = None;
        for j in columns {
            let left = left.get_or_insert_with(|| self.read(cpu, i, k));
            let above = self.read(cpu, k, j);
            self.change(cpu, (i, j), self.cube(), |a| subtract(a, left, &above, self.block));
        }
    }
}

/// Factors a tile in place: L below the diagonal (which is 1), U on it and above.
fn factor(a: &mut Tile, n: usize) {
    for k in 0..n {
        for i in k + 1..n {
            let part = a[i * n + k] / a[k * n + k];
            a[i * n + k] = part;
            (k + 1..n).for_each(|j| a[i * n + j] -= part * a[k * n + j]);
        }
    }
}

/// Makes a tile below the diagonal one a part of L: a U⁻¹.
fn divide(a: &mut Tile, diagonal: &Tile, n: usize) {
    for i in 0..n {
        for k in 0..n {
            let part = a[i * n + k] / diagonal[k * n + k];
            a[i * n + k] = part;
            (k + 1..n).for_each(|j| a[i * n + j] -= part * diagonal[k * n + j]);
        }
    }
}

/// Makes a tile beside the diagonal one a part of U: L⁻¹ a.
fn solve(a: &mut Tile, diagonal: &Tile, n: usize) {
    for k in 0..n {
        for i in k + 1..n {
            let part = diagonal[i * n + k];
            (0..n).for_each(|j| a[i * n + j] -= part * a[k * n + j]);
        }
    }
}

/// Subtracts a product of tiles.
fn subtract(a: &mut Tile, left: &Tile, above: &Tile, n: usize) {
    for i in 0..n {
        for k in 0..n {
            let part = left[i * n + k];
            (0..n).for_each(|j| a[i * n + j] -= part * above[k * n + j]);
        }
    }
}

impl<P: Processor> Problem<P> for Lu<P> {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn work(&self, cpu: &P, me: usize, team: &Team<'_, P>) {
        let count = self.count();
        team.meet(cpu, me);
        for k in 0..count {
            if self.owner(k, k) == me {
                self.factor(cpu, k);
            }
            team.meet(cpu, me);
            let diagonal = self.read(cpu, k, k);
            for i in k + 1..count {
                if self.owner(i, k) == me {
                    self.divide(cpu, (i, k), &diagonal);
                }
                if self.owner(k, i) == me {
                    self.solve(cpu, (k, i), &diagonal);
                }
            }
            team.meet(cpu, me);
            for i in k + 1..count {
                self.subtract(cpu, (i, k), (k + 1..count).filter(|&j| self.owner(i, j) == me));
            }
            team.meet(cpu, me);
        }
    }

    fn work_in_loops(&self, cpu: &P, loops: &dyn ParallelLoops<P>) {
        for k in 0..self.count() {
            self.factor(cpu, k);
            let (diagonal, after) = (self.read(cpu, k, k), k + 1);
            let rest = self.count() - after;
            loops.each(rest, &|cpu, n| {
                self.divide(cpu, (after + n, k), &diagonal);
                self.solve(cpu, (k, after + n), &diagonal);
            });
            loops.each(rest * rest, &|cpu, n| {
                self.subtract(cpu, (after + n / rest, k), std::iter::once(after + n % rest));
            });
        }
    }

    fn check(&self, value: &dyn Fn(&P::Cell) -> u64) -> Result<Verified, String> {
        let (n, count) = (self.block, self.count());
        let mut factors = vec![0.0; self.size * self.size];
        for (b, block) in self.blocks.iter().enumerate() {
            for (m, cell) in block.iter().enumerate() {
                let (i, j) = (b / count * n + m / n, b % count * n + m % n);
                factors[i * self.size + j] = f64::from_bits(value(cell));
            }
        }
        let mut worst = 0.0_f64;
        let mut row = vec![0.0; self.size];
        for i in 0..self.size {
            row.copy_from_slice(&self.input[i * self.size..][..self.size]);
            for k in 0..=i {
                let left = if k == i { 1.0 } else { factors[i * self.size + k] };
                (k..self.size).for_each(|j| row[j] -= left * factors[k * self.size + j]);
            }
            // (A comparison that a NaN fails.)
            worst = row.iter().fold(worst, |worst, v| if v.abs() <= worst { worst } else { v.abs() });
        }
        let largest = self.input.iter().fold(0.0_f64, |largest, v| largest.max(v.abs()));
        let residual = worst / largest;
        if residual.is_nan() || residual > ROUNDING * self.size as f64 {
            return Err(format!("|A - LU| is {residual:e} of |A|, more than rounding explains"));
        }
        let determinant: f64 = (0..self.size).map(|i| factors[i * (self.size + 1)].abs().ln()).sum();
        Ok(Verified::new(format!(
            "{} rows, |A - LU| is {residual:.1e} of |A|, ln |det A| {determinant:.6}",
            self.size
        )))
    }
}
