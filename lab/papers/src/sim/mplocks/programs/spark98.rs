//! `spark98`: products of a symmetric sparse matrix and a vector, as in Spark98's program
//! `lmv` on its mesh sf10 (O'Hallaron, CMU-CS-97-178).
//!
//! Each node has contiguous rows of the upper triangle, with about as many entries as every
//! other one. It clears its own elements of the result; then it adds, for each entry of its
//! rows, to the element of the entry's column, and for each row to the row's own element, each
//! under the element's lock. An element is three numbers of 8 bytes. Two results are computed
//! in turn, under the same locks. Table 4's number of acquisitions is that of 40 products: 40 ×
//! 52,216, and one for each node. The matrix, the vector and the arithmetic are computation.

use std::ops::Range;

use towpath_sim::Sim;

use super::memory::SharedArray;
use super::mesh::{UpperRows, upper_rows};
use super::{ProgramBody, ProgramStage, Setup};

/// Bytes of an element of a vector.
const ELEMENT: usize = 24;
/// Computation for each acquisition, in cycles.
///
/// An input: so that 4 nodes take Table 4's 1655 cycles for each under MP-dist with fast switches.
const PRODUCT: u64 = 838;

/// The program.
pub(super) struct Spark98 {
    rows: UpperRows,
    /// By node: its rows.
    shares: Vec<Range<usize>>,
    results: [SharedArray; 2],
}

impl Spark98 {
    pub fn new(setup: &mut Setup<'_>) -> Spark98 {
        let rows = upper_rows();
        let results = [(); 2].map(|()| setup.array(rows.len(), ELEMENT));
        let shares = shares(&rows, setup.nodes);
        Spark98 { rows, shares, results }
    }

    fn product(&self, stage: &ProgramStage, cpu: &Sim, node: usize, result: &SharedArray) {
        stage.share(cpu, || self.shares[node].clone().for_each(|row| result.clear(cpu, row)));
        stage.barrier(cpu);
        let add = |element: usize| {
            stage.compute(cpu, PRODUCT, 0.2);
            stage.section(cpu, element, 0, || result.touch(cpu, element, 0..ELEMENT));
        };
        for row in self.shares[node].clone() {
            self.rows[row].iter().for_each(|&column| add(column as usize));
            add(row);
        }
        stage.barrier(cpu);
    }
}

impl ProgramBody for Spark98 {
    fn locks(&self) -> usize {
        self.rows.len()
    }

    fn run(&self, stage: &ProgramStage, cpu: &Sim, node: usize) {
        let entries: usize = self.rows.iter().map(|row| row.len() + 1).sum();
        let products = stage.wanted / entries as u64;
        self.product(stage, cpu, node, &self.results[1]);
        stage.begin(cpu, node);
        for n in 0..products.max(1) {
            self.product(stage, cpu, node, &self.results[(n % 2) as usize]);
        }
    }
}

/// Deals rows out: contiguous ones, with about as many entries for each node.
fn shares(rows: &UpperRows, nodes: usize) -> Vec<Range<usize>> {
    let all: usize = rows.iter().map(|row| row.len() + 1).sum();
    let (mut first, mut before) = (0, 0);
    (1..=nodes)
        .map(|n| {
            let mut end = first;
            while end < rows.len() && (before < all * n / nodes || n == nodes) {
                before += rows[end].len() + 1;
                end += 1;
            }
            std::mem::replace(&mut first, end)..end
        })
        .collect()
}
