//! spark98: products of a sparse symmetric matrix of 3 × 3 blocks and a vector, as in the
//! kernels `lmv` and `rmv` of Spark98.
//!
//! **Source.** O'Hallaron 1997 (CMU-CS-97-178); paper K, Section 4.2 and Table 3: the mesh sf10,
//! the version with locks. Only the diagonal and the blocks above it are stored, so that a row's
//! processor adds to elements of other rows. With locks, each element of the result has one
//! (`lmv`); by reduction, each processor adds to a vector of its own, and then all add up their
//! part of these (`rmv`).
//!
//! **Sizes.** `tiny`: 75 rows, 4 products. `small`: as many rows and blocks as sf10, 2 products.
//! `medium`: the same, 40 products, as in paper K. `large`: as many as sf5, 40 products. In turn
//! the products are of one and of another vector, as in Spark98. A real mesh of Spark98's takes the
//! place of the generated one ([`pack`]).
//!
//! **Checked by** the sequential product. All numbers are integers, and small enough that the order
//! of additions makes no difference: equality, not nearness.
//!
//! **Fields.** `vectors`: read by all. `results`: under the locks of their elements, or by a
//! reduction each processor its own rows. `parts[p]`: written by processor p, then read by all. The
//! matrix is read by all and not laid out in simulated memory: each row is read by one processor
//! only, and its loads are charged as instructions.

pub mod mesh;
pub mod pack;

use std::sync::Arc;

use towpath_machine::{Processor, Random};

use crate::memory::{Memory, add, get, put};
use crate::problem::{ParallelLoops, Problem, ProblemChoice, Verified};
use crate::team::{Needs, Team};
use mesh::{Mesh, SF5, SF10, TINY};

/// Way in which the parts of an element are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Summation {
    /// Sums under a lock for each element.
    Locks,
    /// Sums in a vector for each processor, then together.
    Reduction,
}

/// 3 × 3 block.
type Block = [[f64; 3]; 3];
/// Three components of a vector's element.
type Element = [f64; 3];

/// Instructions for a block above the diagonal: 9 loads, 36 operations, a loop.
const ABOVE: u64 = 55;
/// Instructions for a block on the diagonal: 9 loads, 18 operations, a loop.
const DIAGONAL: u64 = 37;

/// Sparse symmetric matrix of blocks.
#[derive(Debug)]
struct SparseMatrix {
    mesh: Mesh,
    diagonal: Vec<Block>,
    above: Vec<Block>,
}

/// Problem in a machine's memory.
pub struct Spark98<P: Processor> {
    matrix: Arc<SparseMatrix>,
    assembly: Summation,
    products: usize,
    /// First row of each processor.
    firsts: Vec<usize>,
    vectors: [Vec<P::Cell>; 2],
    results: [Vec<P::Cell>; 2],
    parts: Vec<Vec<P::Cell>>,
    input: [Vec<f64>; 2],
}

/// Returns block times element.
fn times(block: &Block, v: Element) -> Element {
    core::array::from_fn(|i| (0..3).map(|j| block[i][j] * v[j]).sum())
}

/// Returns the transposed block times element.
fn transposed(block: &Block, v: Element) -> Element {
    core::array::from_fn(|i| (0..3).map(|j| block[j][i] * v[j]).sum())
}

fn plus(a: Element, b: Element) -> Element {
    core::array::from_fn(|i| a[i] + b[i])
}

impl SparseMatrix {
    fn new(mesh: Mesh, seed: u64) -> SparseMatrix {
        let mut random = Random::stream(seed, 2);
        let mut block = || -> Block { [(); 3].map(|()| [(); 3].map(|()| random.below(100) as f64)) };
        let diagonal = (0..mesh.nodes())
            .map(|_| {
                let b = block();
                core::array::from_fn(|i| core::array::from_fn(|j| b[i.min(j)][i.max(j)]))
            })
            .collect();
        SparseMatrix { diagonal, above: mesh.column.iter().map(|_| block()).collect(), mesh }
    }

    /// Multiplies rows with a vector. `take` adds to an element of the result.
    fn multiply(
        &self,
        rows: core::ops::Range<usize>,
        vector: impl Fn(usize) -> Element,
        mut take: impl FnMut(usize, Element, u64),
    ) {
        for row in rows {
            let own = vector(row);
            let mut sum = times(&self.diagonal[row], own);
            for entry in self.mesh.row(row) {
                let (block, column) = (&self.above[entry], self.mesh.column[entry] as usize);
                sum = plus(sum, times(block, vector(column)));
                take(column, transposed(block, own), ABOVE);
            }
            take(row, sum, DIAGONAL);
        }
    }

    /// The sequential product.
    fn product(&self, vector: &[f64]) -> Vec<f64> {
        let mut result = vec![0.0; vector.len()];
        let element = |row: usize| core::array::from_fn(|i| vector[3 * row + i]);
        self.multiply(0..self.mesh.nodes(), element, |row, part, _| {
            (0..3).for_each(|i| result[3 * row + i] += part[i]);
        });
        result
    }
}

impl<P: Processor> Spark98<P> {
    /// Makes the problem of that choice, with a pack's mesh or a generated one.
    pub fn new(choice: ProblemChoice, memory: &Memory<'_, P>, assembly: Summation) -> Self {
        let size = choice.size.pick([TINY, SF10, SF10, SF5]);
        let products = choice.size.pick([4, 2, 40, 40]);
        let mesh = choice.pack.map_or_else(|| Mesh::generate(size, choice.seed), |pack| pack.mesh.clone());
        Self::of_mesh(mesh, products, choice, memory, assembly)
    }

    /// Makes the problem of a mesh, with so many products.
    pub fn of_mesh(
        mesh: Mesh,
        products: usize,
        choice: ProblemChoice,
        memory: &Memory<'_, P>,
        assembly: Summation,
    ) -> Self {
        let len = 3 * mesh.nodes();
        let firsts = mesh.deal(choice.procs);
        let input = [3, 4].map(|stream| {
            let mut random = Random::stream(choice.seed, stream);
            (0..len).map(|_| (random.below(32) as f64) - 8.0).collect::<Vec<f64>>()
        });
        let parts = if assembly == Summation::Reduction { choice.procs } else { 0 };
        Spark98 {
            matrix: Arc::new(SparseMatrix::new(mesh, choice.seed)),
            assembly,
            products,
            firsts,
            vectors: [0, 1].map(|k: usize| memory.row(len, |n| input[k][n].to_bits())),
            // As in memory that was not cleared: what is left out shows.
            results: [0, 1].map(|_| memory.row(len, |_| f64::MAX.to_bits())),
            parts: (0..parts).map(|p| memory.row_of(p, len, |_| f64::MAX.to_bits())).collect(),
            input,
        }
    }

    fn multiply(
        &self,
        cpu: &P,
        rows: core::ops::Range<usize>,
        pair: usize,
        mut take: impl FnMut(usize, Element),
    ) {
        let vector = &self.vectors[pair];
        let element = |row: usize| core::array::from_fn(|i| get(cpu, &vector[3 * row + i]));
        self.matrix.multiply(rows, element, |row, part, instructions| {
            cpu.instructions(instructions);
            take(row, part);
        });
    }

    /// Rows of a processor.
    fn rows_of(&self, me: usize) -> core::ops::Range<usize> {
        self.firsts[me]..self.firsts[me + 1]
    }

    /// Multiplies a processor's rows into its part of a reduction.
    fn multiply_part(&self, cpu: &P, me: usize, pair: usize) {
        let mine = &self.parts[me];
        clear(cpu, mine);
        self.multiply(cpu, self.rows_of(me), pair, |row, part| add_to(cpu, mine, row, part));
    }

    /// Adds up the parts of a processor's rows.
    fn reduce(&self, cpu: &P, me: usize, pair: usize) {
        for n in components(self.rows_of(me)) {
            put(cpu, &self.results[pair][n], self.parts.iter().map(|part| get(cpu, &part[n])).sum());
            cpu.instructions(2 * self.parts.len() as u64);
        }
    }
}

/// Components of rows.
fn components(rows: core::ops::Range<usize>) -> core::ops::Range<usize> {
    3 * rows.start..3 * rows.end
}

/// Adds to an element of a vector.
fn add_to<P: Processor>(cpu: &P, cells: &[P::Cell], row: usize, part: Element) {
    (0..3).for_each(|i| add(cpu, &cells[3 * row + i], part[i]));
}

/// Writes zeros.
fn clear<P: Processor>(cpu: &P, cells: &[P::Cell]) {
    cells.iter().for_each(|cell| put(cpu, cell, 0.0));
}

impl<P: Processor> Problem<P> for Spark98<P> {
    fn needs(&self) -> Needs {
        let locks = if self.assembly == Summation::Locks { self.matrix.mesh.nodes() } else { 0 };
        Needs { locks, ..Needs::default() }
    }

    fn work(&self, cpu: &P, me: usize, team: &Team<'_, P>) {
        let rows = self.rows_of(me);
        for product in 0..self.products {
            let pair = product % 2;
            team.meet(cpu, me);
            match self.assembly {
                Summation::Locks => {
                    let result = &self.results[pair];
                    clear(cpu, &result[components(rows.clone())]);
                    team.meet(cpu, me);
                    self.multiply(cpu, rows.clone(), pair, |row, part| {
                        team.hold(cpu, row, || add_to(cpu, result, row, part));
                    });
                }
                Summation::Reduction => {
                    self.multiply_part(cpu, me, pair);
                    team.meet(cpu, me);
                    self.reduce(cpu, me, pair);
                }
            }
        }
        team.meet(cpu, me);
    }

    fn work_in_loops(&self, _cpu: &P, loops: &dyn ParallelLoops<P>) {
        for product in 0..self.products {
            loops.each(self.parts.len(), &|cpu, n| self.multiply_part(cpu, n, product % 2));
            loops.each(self.parts.len(), &|cpu, n| self.reduce(cpu, n, product % 2));
        }
    }

    fn check(&self, value: &dyn Fn(&P::Cell) -> u64) -> Result<Verified, String> {
        let mut sum = 0.0;
        for pair in 0..self.products.min(2) {
            let expected = self.matrix.product(&self.input[pair]);
            for (n, (cell, expected)) in self.results[pair].iter().zip(&expected).enumerate() {
                let found = f64::from_bits(value(cell));
                if found != *expected {
                    return Err(format!("component {n} of product {pair} is {found}, not {expected}"));
                }
                sum += found;
            }
        }
        let mesh = &self.matrix.mesh;
        let (rows, blocks) = (mesh.nodes(), mesh.stored() + mesh.column.len());
        Ok(Verified::new(format!("{rows} rows, {blocks} blocks, sum of the results {sum}")))
    }
}
