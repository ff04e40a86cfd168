//! Cholesky: factor of a sparse matrix, by tasks in queues, with a lock for each
//! supernode.
//!
//! **Source.** Rothberg & Gupta; Woo et al. 1995 (SPLASH-2); paper N, Section 6. A supernode that
//! all others have changed that have to is a task: the processor that takes it factors it, and
//! subtracts its products from the supernodes to its right, each under that one's lock. The last
//! one to change a supernode puts it into the queue of the supernode's processor. Processors
//! without tasks take from others.
//!
//! **Sizes.** Grids with 12, 24, 64 and 118 points a side (the last has 13,924 columns; `tk29` has
//! 13,992), in supernodes of at most 4, 8, 16 and 16 columns.
//!
//! **Checked by** the largest element of A − LLᵀ, by the largest of A.
//!
//! **Fields.** `panels[s]`: under lock s until no change is missing, then written by the processor
//! of its task, then read by none but that one. `missing[s]`: under lock s. `done`: the tasks that
//! are done (`Team::work_off`).

pub mod symbolic;

use std::sync::Arc;

use towpath_machine::{Place, Processor, Random};

use crate::memory::{Memory, add, get, put};
use crate::problem::{Problem, ProblemChoice, Verified};
use crate::team::{Needs, Team};
use symbolic::{Supernode, Symbolic};

/// Largest difference that is rounding, as a part of the largest element.
const ROUNDING: f64 = 1e-13;

/// Instructions of a multiplication and an addition, with their loads.
const MULTIPLY: u64 = 3;

/// Problem in a machine's memory.
pub struct Cholesky<P: Processor> {
    symbolic: Arc<Symbolic>,
    /// Columns of each supernode, one after the other, each with all of the supernode's
    /// rows.
    panels: Vec<Vec<P::Cell>>,
    missing: Vec<P::Cell>,
    done: P::Word,
    procs: usize,
    /// Diagonal of each column, and the entries below.
    input: Vec<Vec<f64>>,
}

/// Values of the matrix: negative below the diagonal, which is a little more than their
/// sum.
fn input(symbolic: &Symbolic, seed: u64) -> Vec<Vec<f64>> {
    let mut random = Random::stream(seed, 1);
    let mut diagonal = vec![0.01; symbolic.columns];
    let mut values: Vec<Vec<f64>> = Vec::with_capacity(symbolic.columns);
    for (column, below) in symbolic.below.iter().enumerate() {
        let entries: Vec<f64> =
            below.iter().map(|_| -0.5 - random.below(1 << 20) as f64 / (1 << 20) as f64).collect();
        for (&row, entry) in below.iter().zip(&entries) {
            diagonal[column] -= entry;
            diagonal[row as usize] -= entry;
        }
        values.push(std::iter::once(0.0).chain(entries).collect());
    }
    values.iter_mut().zip(diagonal).for_each(|(value, diagonal)| value[0] = diagonal);
    values
}

impl<P: Processor> Cholesky<P> {
    /// Makes the problem of that choice.
    pub fn new(choice: ProblemChoice, memory: &Memory<'_, P>) -> Self {
        let symbolic = Symbolic::grid(choice.size.pick([12, 24, 64, 118]), choice.size.pick([4, 8, 16, 16]));
        let input = input(&symbolic, choice.seed);
        let panel = |(n, s): (usize, &Supernode)| {
            let mut values = vec![0.0; s.width * s.rows.len()];
            for k in 0..s.width {
                let column = s.first + k;
                let rows = std::iter::once(column as u32).chain(symbolic.below[column].iter().copied());
                for (row, value) in rows.zip(&input[column]) {
                    values[k * s.rows.len() + place(&s.rows, row)] = *value;
                }
            }
            memory.row_of(n % choice.procs, values.len(), |v| values[v].to_bits())
        };
        Cholesky {
            panels: symbolic.supernodes.iter().enumerate().map(panel).collect(),
            missing: symbolic
                .changes
                .iter()
                .map(|&n| memory.arena.cell(Place::NewLine, u64::from(n)))
                .collect(),
            done: memory.arena.word(Place::NewLine, 0),
            procs: choice.procs,
            symbolic: Arc::new(symbolic),
            input,
        }
    }

    /// Factors a supernode that no change is missing of. Returns its columns.
    fn factor(&self, cpu: &P, s: usize) -> Vec<f64> {
        let Supernode { width, ref rows, .. } = self.symbolic.supernodes[s];
        let (cells, height) = (&self.panels[s], rows.len());
        let mut panel: Vec<f64> = cells.iter().map(|cell| get(cpu, cell)).collect();
        for k in 0..width {
            let root = panel[k * height + k].sqrt();
            (k..height).for_each(|i| panel[k * height + i] /= root);
            for j in k + 1..width {
                let part = panel[k * height + j];
                (j..height).for_each(|i| panel[j * height + i] -= part * panel[k * height + i]);
            }
            cpu.instructions(20 + MULTIPLY * ((width - k) * (height - k)) as u64);
        }
        // Above the diagonal there is nothing.
        for (n, (cell, value)) in cells.iter().zip(&panel).enumerate() {
            put(cpu, cell, if n % height < n / height { 0.0 } else { *value });
        }
        panel
    }

    /// Subtracts a supernode's products from another one to its right: of rows
    /// `from..to`, which are columns of the other one, with all rows from there on. Returns whether
    /// the other one is complete.
    fn change(
        &self,
        cpu: &P,
        s: usize,
        panel: &[f64],
        (from, to): (usize, usize),
        team: &Team<'_, P>,
    ) -> bool {
        let Supernode { width, ref rows, .. } = self.symbolic.supernodes[s];
        let height = rows.len();
        let t = self.symbolic.of_column[rows[from] as usize] as usize;
        let target = &self.symbolic.supernodes[t];
        let mut changes = Vec::new();
        for j in from..to {
            let column = (rows[j] as usize - target.first) * target.rows.len();
            let mut at = 0;
            for i in j..height {
                at += place(&target.rows[at..], rows[i]);
                let sum: f64 = (0..width).map(|k| panel[k * height + i] * panel[k * height + j]).sum();
                changes.push((column + at, sum));
            }
        }
        cpu.instructions(MULTIPLY * (changes.len() * width) as u64);
        let mut is_complete = false;
        team.hold(cpu, t, || {
            changes.iter().for_each(|&(at, sum)| add(cpu, &self.panels[t][at], -sum));
            let missing = cpu.read(&self.missing[t]) - 1;
            cpu.write(&self.missing[t], missing);
            is_complete = missing == 0;
        });
        is_complete
    }
}

/// Place of a row among rows in order.
fn place(rows: &[u32], row: u32) -> usize {
    rows.partition_point(|&r| r < row)
}

impl<P: Processor> Problem<P> for Cholesky<P> {
    fn needs(&self) -> Needs {
        let supernodes = self.symbolic.supernodes.len();
        Needs { locks: supernodes, queues: self.procs, tasks: supernodes.div_ceil(self.procs) }
    }

    fn work(&self, cpu: &P, me: usize, team: &Team<'_, P>) {
        let symbolic = &self.symbolic;
        for (s, _) in symbolic.changes.iter().enumerate().filter(|(s, n)| **n == 0 && s % self.procs == me) {
            team.put(cpu, me, s as u64);
        }
        team.meet(cpu, me);
        let tasks = symbolic.supernodes.len() as u64;
        team.work_off(cpu, (me, self.procs), (&self.done, tasks), |task| {
            let s = task as usize;
            let panel = self.factor(cpu, s);
            let supernode = &symbolic.supernodes[s];
            let mut from = supernode.width;
            while from < supernode.rows.len() {
                let target = symbolic.of_column[supernode.rows[from] as usize];
                let ends = |&row: &u32| symbolic.of_column[row as usize] != target;
                let to =
                    supernode.rows[from..].iter().position(ends).map_or(supernode.rows.len(), |n| from + n);
                if self.change(cpu, s, &panel, (from, to), team) {
                    team.put(cpu, target as usize % self.procs, u64::from(target));
                }
                from = to;
            }
        });
        team.meet(cpu, me);
    }

    fn check(&self, value: &dyn Fn(&P::Cell) -> u64) -> Result<Verified, String> {
        let symbolic = &self.symbolic;
        let panels: Vec<Vec<f64>> =
            self.panels.iter().map(|p| p.iter().map(|cell| f64::from_bits(value(cell))).collect()).collect();
        // A less the products of L's columns, column by column of L.
        let mut rest: Vec<Vec<f64>> = Vec::new();
        for s in &symbolic.supernodes {
            for k in 0..s.width {
                let column = s.first + k;
                let mut values = vec![0.0; s.rows.len()];
                values[k] = self.input[column][0];
                for (&row, entry) in symbolic.below[column].iter().zip(&self.input[column][1..]) {
                    values[place(&s.rows, row)] = *entry;
                }
                rest.push(values);
            }
        }
        for (s, panel) in symbolic.supernodes.iter().zip(&panels) {
            let height = s.rows.len();
            for k in 0..s.width {
                let column = &panel[k * height..(k + 1) * height];
                for j in k..height {
                    let target = &symbolic.supernodes[symbolic.of_column[s.rows[j] as usize] as usize];
                    let values = &mut rest[s.rows[j] as usize];
                    let mut at = 0;
                    for i in j..height {
                        at += place(&target.rows[at..], s.rows[i]);
                        values[at] -= column[i] * column[j];
                    }
                }
            }
        }
        let largest = self.input.iter().flatten().fold(0.0_f64, |m, v| m.max(v.abs()));
        // (A comparison that a NaN fails.)
        let worst = rest.iter().flatten().fold(0.0_f64, |m, v| if v.abs() <= m { m } else { v.abs() });
        let residual = worst / largest;
        if residual.is_nan() || residual > ROUNDING {
            return Err(format!("|A - LLᵀ| is {residual:e} of |A|, more than rounding explains"));
        }
        Ok(Verified::new(format!(
            "{} columns in {} supernodes, {} entries of L, |A - LLᵀ| is {residual:.1e} of |A|",
            symbolic.columns,
            symbolic.supernodes.len(),
            symbolic.entries()
        )))
    }
}
