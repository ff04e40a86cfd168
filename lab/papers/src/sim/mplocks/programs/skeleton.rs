//! `barnes`, `radiosity`, `raytrace` as **skeletons**: locks' traces fitted to Table 4.
//!
//! These are no ports of the programs. A node computes, acquires a lock, uses a line of data under
//! it, and computes within the section. The lock is one of the node's own, the hot one that all
//! share, or any of many others. All this happens in a first part of each round (in barnes: while
//! the tree is loaded); the rest of the round's computation follows after a barrier.
//!
//! Table 4 is an input: for each number of nodes the parts of the own and of the hot lock, the
//! computation and its dense part were fitted so that MP-dist with fast switches has the table's
//! rate (within 2 %) and its parts of local idle and of remote busy acquisitions (within 2 points;
//! raytrace on 32 nodes: 98 instead of 96 %). The table's interrupts inside critical sections were
//! not used. The hot section's length was chosen so that the table's rate on 32 nodes can be had at
//! all (radiosity, raytrace); that of barnes is estimated, as those of the other sections.

use towpath_sim::Sim;

use super::memory::SharedArray;
use super::{ProgramBody, ProgramStage, Setup};
use towpath_host::Error;

/// Shape of a skeleton on so many nodes.
#[derive(Clone, Copy, Debug)]
struct SkeletonRow {
    nodes: usize,
    /// Part of the acquisitions that are of a node's own locks.
    own: f64,
    /// Part that are of the hot lock.
    hot: f64,
    /// Computation for each acquisition, in cycles.
    between: u64,
    /// Part of the computation that lies between acquisitions.
    ///
    /// The rest follows all acquisitions of a round.
    dense: f64,
}

const fn row(nodes: usize, own: f64, hot: f64, between: u64, dense: f64) -> SkeletonRow {
    SkeletonRow { nodes, own, hot, between, dense }
}

/// Skeleton of a program.
#[derive(Debug)]
pub(super) struct SkeletonShape {
    /// Computation within the hot section, in cycles.
    hot_section: u64,
    /// Computation within any other one, in cycles.
    section: u64,
    rows: [SkeletonRow; 4],
}

pub(super) const BARNES: SkeletonShape = SkeletonShape {
    hot_section: 1000,
    section: 400,
    rows: [
        row(4, 0.66, 0.11, 28_700, 0.05),
        row(8, 0.59, 0.14, 24_100, 0.06),
        row(16, 0.52, 0.27, 24_200, 0.45),
        row(32, 0.46, 0.31, 23_100, 0.96),
    ],
};

pub(super) const RADIOSITY: SkeletonShape = SkeletonShape {
    hot_section: 600,
    section: 200,
    rows: [
        row(4, 0.45, 0.18, 17_700, 0.05),
        row(8, 0.43, 0.29, 16_800, 0.2),
        row(16, 0.32, 0.45, 14_700, 1.0),
        row(32, 0.18, 0.61, 18_800, 1.0),
    ],
};

pub(super) const RAYTRACE: SkeletonShape = SkeletonShape {
    hot_section: 250,
    section: 200,
    rows: [
        row(4, 0.21, 0.25, 15_000, 0.06),
        row(8, 0.14, 0.53, 13_900, 0.4),
        row(16, 0.02, 0.85, 11_100, 1.0),
        row(32, 0.02, 0.98, 500, 0.49),
    ],
};

/// Bytes of the data under a lock.
const DATUM: usize = 128;
/// Locks of its own that a node has, and locks that all share, for each node.
const OWN: usize = 4;
const SHARED: usize = 64;
/// Rounds in the measured part, if they have a part that is dense.
const ROUNDS: u64 = 4;

/// A skeleton's locks and data.
#[derive(Debug)]
pub(super) struct Skeleton {
    hot_section: u64,
    section: u64,
    row: SkeletonRow,
    data: SharedArray,
}

impl Skeleton {
    pub fn new(shape: &SkeletonShape, setup: &mut Setup<'_>) -> Result<Skeleton, Error> {
        let nodes = setup.nodes;
        let Some(&row) = shape.rows.iter().find(|row| row.nodes == nodes) else {
            let text = format!("skeletons are fitted to the paper's 4, 8, 16 and 32 nodes, not to {nodes}");
            return Err(Error::NotAvailable(text));
        };
        let data = setup.array(locks(nodes), DATUM);
        Ok(Skeleton { hot_section: shape.hot_section, section: shape.section, row, data })
    }

    /// Returns a lock, and the computation under it.
    fn choose(&self, cpu: &Sim, node: usize) -> (usize, u64) {
        let random = &mut cpu.random();
        let chance = random.below(1 << 30) as f64 / f64::from(1 << 30);
        let shared = SHARED * self.row.nodes;
        match chance {
            _ if chance < self.row.hot => (0, self.hot_section),
            _ if chance < self.row.hot + self.row.own => {
                (1 + shared + node * OWN + random.below(OWN as u64) as usize, self.section)
            }
            _ => (1 + random.below(shared as u64) as usize, self.section),
        }
    }

    fn round(&self, stage: &ProgramStage, cpu: &Sim, node: usize, acquisitions: u64) {
        let dense = (self.row.between as f64 * self.row.dense) as u64;
        for _ in 0..acquisitions {
            stage.compute(cpu, dense, 1.0);
            let (lock, section) = self.choose(cpu, node);
            stage.section(cpu, lock, section, || self.data.touch(cpu, lock, 0..16));
        }
        if self.row.dense < 1.0 {
            stage.barrier(cpu);
            stage.compute(cpu, (self.row.between - dense) * acquisitions, 0.2);
            stage.barrier(cpu);
        }
    }
}

fn locks(nodes: usize) -> usize {
    1 + (SHARED + OWN) * nodes
}

impl ProgramBody for Skeleton {
    fn locks(&self) -> usize {
        locks(self.row.nodes)
    }

    fn run(&self, stage: &ProgramStage, cpu: &Sim, node: usize) {
        let each = (stage.wanted / stage.nodes as u64).max(ROUNDS);
        self.round(stage, cpu, node, each / ROUNDS);
        stage.begin(cpu, node);
        let rounds = if self.row.dense < 1.0 { ROUNDS } else { 1 };
        (0..rounds).for_each(|_| self.round(stage, cpu, node, each / rounds));
    }
}
