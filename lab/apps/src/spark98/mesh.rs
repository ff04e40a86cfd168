//! Meshes of tetrahedra in space: the shapes of the sparse matrices.
//!
//! The meshes of Spark98 are models of the San Fernando Valley (O'Hallaron 1997, CMU-CS-97-178).
//! Ours are generated with as many nodes and edges: a grid of cubes, each cut into six tetrahedra
//! along its diagonal (Kuhn), of which some edges are left out at random. Nodes are numbered as in
//! the file `sf10.1.pack` of Spark98, level by level of an octree, each level from one end of the
//! valley to the other: first 1,344 nodes, which alone fill its depth, then the 2,298 between these
//! above, then the 3,652 between those near the surface. So neighbours of two levels have numbers
//! far from each other.

use towpath_machine::Random;

/// Structure of a symmetric sparse matrix: the diagonal and the entries above it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mesh {
    /// First edge of each row, and behind them the number of edges.
    pub first: Vec<u32>,
    /// Column of each edge: a row's are larger than the row, and ascend.
    pub column: Vec<u32>,
}

/// Number of nodes and edges of a mesh, and of the grid's points in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeshSize {
    /// Number of nodes: rows of the matrix.
    pub nodes: usize,
    /// Number of edges: entries above the diagonal.
    pub edges: usize,
    /// Points of the grid.
    pub grid: [usize; 3],
}

/// `tiny`, for tests: a slab of 5 by 5 by 3 points.
pub const TINY: MeshSize = MeshSize { nodes: 75, edges: 330, grid: [5, 5, 3] };
/// `sf10`, which resolves waves of ten seconds.
pub const SF10: MeshSize = MeshSize { nodes: 7_294, edges: 44_922, grid: [20, 20, 20] };
/// `sf5`, which resolves waves of five seconds.
pub const SF5: MeshSize = MeshSize { nodes: 30_169, edges: 190_377, grid: [32, 32, 32] };

/// Neighbours in the direction of growing coordinates: the edges of a cube, of its faces'
/// diagonals, and its own diagonal.
const AHEAD: [[usize; 3]; 7] = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 1, 1]];

/// Points across a block, which a level numbers before the next block.
const BLOCK: usize = 4;
/// Depths, in percent from the bottom, at which the second and the third level begin.
///
/// With them the levels of `sf10`'s size have nearly its numbers.
const DEPTHS: [usize; 2] = [14, 43];

/// Level of a point, by [`DEPTHS`].
///
/// Where a level begins, every second point in each direction is still of the level before.
fn level(point: [usize; 3], depth: usize) -> usize {
    let finest = DEPTHS.iter().filter(|&&part| point[2] * 100 / depth >= part).count();
    let is_before = |levels: usize| point.iter().all(|x| x % (1 << levels) == 0);
    (0..finest).find(|l| is_before(finest - l)).unwrap_or(finest)
}

/// Place of a point among those of its level: blocks along the valley, then across it.
fn along_valley(point: [usize; 3]) -> (usize, usize, usize) {
    (point[0] / BLOCK, point[1] / BLOCK, along_curve(point))
}

/// Place of a point on the Z curve: the bits of its coordinates, one of each in turn.
fn along_curve([x, y, z]: [usize; 3]) -> usize {
    (0..10).map(|bit| ((x >> bit & 1) | (y >> bit & 1) << 1 | (z >> bit & 1) << 2) << (3 * bit)).sum()
}

impl Mesh {
    /// Generates a mesh of that size.
    ///
    /// # Panics
    ///
    /// If the grid has fewer points than nodes, or fewer edges.
    pub fn generate(size: MeshSize, seed: u64) -> Mesh {
        let [a, b, c] = size.grid;
        let mut points: Vec<[usize; 3]> = (0..a * b * c).map(|n| [n % a, n / a % b, n / (a * b)]).collect();
        points.sort_by_key(|&p| along_valley(p));
        assert!(points.len() >= size.nodes, "{} points for {} nodes", points.len(), size.nodes);
        points.truncate(size.nodes);
        points.sort_by_key(|&p| (level(p, c), along_valley(p)));
        let index = |[x, y, z]: [usize; 3]| x + a * (y + b * z);
        let mut number = vec![u32::MAX; a * b * c];
        points.iter().enumerate().for_each(|(n, &p)| number[index(p)] = n as u32);
        let mut edges = Vec::new();
        for (n, &[x, y, z]) in points.iter().enumerate() {
            for [i, j, k] in AHEAD {
                let other = [x + i, y + j, z + k];
                if other[0] < a && other[1] < b && other[2] < c && number[index(other)] != u32::MAX {
                    let (n, m) = (n as u32, number[index(other)]);
                    edges.push((n.min(m), n.max(m)));
                }
            }
        }
        assert!(edges.len() >= size.edges, "the grid has {} edges, not {}", edges.len(), size.edges);
        let mut random = Random::stream(seed, 1);
        while edges.len() > size.edges {
            let n = random.below(edges.len() as u64) as usize;
            edges.swap_remove(n);
        }
        Mesh::of_edges(size.nodes, edges)
    }

    /// The mesh with these edges, each from the smaller node to the larger one.
    pub fn of_edges(nodes: usize, mut edges: Vec<(u32, u32)>) -> Mesh {
        edges.sort_unstable();
        let mut first = vec![0; nodes + 1];
        edges.iter().for_each(|&(row, _)| first[row as usize + 1] += 1);
        for row in 0..nodes {
            first[row + 1] += first[row];
        }
        Mesh { first, column: edges.into_iter().map(|(_, column)| column).collect() }
    }

    /// Number of rows.
    pub fn nodes(&self) -> usize {
        self.first.len().saturating_sub(1)
    }

    /// Number of entries that are stored: the diagonal, and those above it.
    pub fn stored(&self) -> usize {
        self.nodes() + self.column.len()
    }

    /// Entries above the diagonal of a row: their numbers.
    pub fn row(&self, row: usize) -> core::ops::Range<usize> {
        self.first[row] as usize..self.first[row + 1] as usize
    }

    /// Deals the rows out in blocks with about as many stored entries each. Returns the
    /// first row of each block, and behind them the number of rows.
    pub fn deal(&self, blocks: usize) -> Vec<usize> {
        let limit = self.stored() / blocks.max(1);
        let entries = |row: usize| row + self.first[row] as usize;
        let mut firsts = vec![0];
        for block in 1..blocks {
            let before = firsts[block - 1];
            let next = (before..self.nodes()).find(|&row| entries(row) >= entries(before) + limit);
            firsts.push(next.unwrap_or(self.nodes()));
        }
        firsts.push(self.nodes());
        firsts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meshes_have_the_papers_sizes() {
        for size in [TINY, SF10, SF5] {
            let mesh = Mesh::generate(size, 1);
            assert_eq!((mesh.nodes(), mesh.column.len()), (size.nodes, size.edges));
            for row in 0..mesh.nodes() {
                let columns = &mesh.column[mesh.row(row)];
                assert!(columns.windows(2).all(|w| w[0] < w[1]));
                assert!(columns.iter().all(|&c| c as usize > row && (c as usize) < mesh.nodes()));
            }
        }
    }

    /// The 2,088,644 acquisitions on 4 nodes in paper K's Table 4: 40 products of this
    /// mesh, and one for each node.
    #[test]
    fn acquisitions_of_sf10_are_those_of_table_4() {
        assert_eq!(40 * (SF10.nodes + SF10.edges) + 4, 2_088_644);
    }

    #[test]
    fn levels_of_sf10_have_about_its_numbers() {
        let [a, b, c] = SF10.grid;
        let mut points: Vec<[usize; 3]> = (0..a * b * c).map(|n| [n % a, n / a % b, n / (a * b)]).collect();
        points.sort_by_key(|&p| along_valley(p));
        for (l, count) in [1_344usize, 2_298, 3_652].into_iter().enumerate() {
            let ours = points[..SF10.nodes].iter().filter(|&&p| level(p, c) == l).count();
            assert!(ours.abs_diff(count) * 10 < count, "level {l}: {ours} points, {count} in sf10");
        }
    }

    #[test]
    fn meshes_follow_from_the_seed() {
        assert_eq!(Mesh::generate(SF10, 1), Mesh::generate(SF10, 1));
        assert_ne!(Mesh::generate(SF10, 1), Mesh::generate(SF10, 2));
    }

    #[test]
    fn rows_are_dealt_out_evenly_and_completely() {
        let mesh = Mesh::generate(SF10, 1);
        for blocks in [1, 2, 7, 32] {
            let firsts = mesh.deal(blocks);
            assert_eq!((firsts[0], firsts[blocks]), (0, mesh.nodes()));
            let sizes =
                firsts.windows(2).map(|w| w[1] - w[0] + (mesh.first[w[1]] - mesh.first[w[0]]) as usize);
            let even = mesh.stored() / blocks;
            assert!(
                sizes.clone().all(|s| s.abs_diff(even) < even / 10 + 40),
                "{:?}",
                sizes.collect::<Vec<_>>()
            );
        }
        assert_eq!(Mesh::of_edges(1, vec![]).deal(3).last(), Some(&1), "more blocks than rows");
    }
}
