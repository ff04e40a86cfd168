//! Mesh of Spark98's input sf10, made anew: an octree's points and their neighbours.
//!
//! sf10 models the ground of the San Fernando Valley by 7,294 points and 44,922 edges
//! (O'Hallaron, CMU-CS-97-178; `info/sf10.1.count` of the distribution). Its points lie on the
//! corners of an octree's leaves: 8 × 7 roots, two deep; leaves of half a root below half a
//! root, of a quarter below a quarter, and down to a sixteenth near the surface of the valley.
//! Leaves number the points on them, the larger leaves first, those of one size root by root,
//! within a root by the octree (as the coordinates in `sf10.1.pack` show). The valley's outline
//! is ours, chosen for the number of points; a point's neighbours are those of Kuhn's division
//! of its leaves into tetrahedra. Two properties that locks depend on are kept: the number
//! of neighbours, and their numbers, close to the point's own or, between leaves of different
//! sizes, far away.

use std::collections::{BTreeMap, BTreeSet};

/// Units of a root's edge.
const ROOT: i32 = 16;
/// Roots along each direction; the third one is the depth.
const ROOTS: [i32; 3] = [8, 7, 2];

/// Point, in units.
type Point = [i32; 3];

/// Neighbours of each point that have larger numbers than its own, in order.
pub type UpperRows = Vec<Vec<u32>>;

/// Returns the edge of the leaves that are wanted at a place.
fn wanted([x, y, z]: Point) -> i32 {
    let valley = (24..80).contains(&x) && (24..88).contains(&y);
    let basin = (44..64).contains(&x) && (44..68).contains(&y);
    match z {
        8.. => 8,
        4.. => 4,
        _ if !valley => 4,
        ..2 if basin => 1,
        _ => 2,
    }
}

fn corners([x, y, z]: Point, edge: i32) -> impl Iterator<Item = Point> {
    (0..8).map(move |i| [x + (i & 1) * edge, y + (i >> 1 & 1) * edge, z + (i >> 2) * edge])
}

fn divide(at: Point, edge: i32, leaves: &mut Vec<(Point, i32)>) {
    let smallest = corners(at, edge - 1).map(wanted).min().unwrap_or(edge);
    if edge <= smallest.min(edge) {
        return leaves.push((at, edge));
    }
    corners(at, edge / 2).for_each(|corner| divide(corner, edge / 2, leaves));
}

/// Returns a leaf's place in the order in which leaves number their points.
fn rank(&([x, y, z], edge): &(Point, i32)) -> (i32, i32, i32, u32) {
    let spread = |v: i32| (0..6).fold(0u32, |all, bit| all | ((v >> bit & 1) as u32) << (3 * bit));
    let within = spread(x % ROOT) | spread(y % ROOT) << 1 | spread(z) << 2;
    (-edge, x / ROOT, y / ROOT, within)
}

/// Returns the points on a leaf: its corners, and those of smaller leaves beside it.
fn points_on(([x, y, z], edge): (Point, i32), points: &BTreeSet<Point>) -> Vec<Point> {
    let step = (edge / 4).max(1);
    let steps = || (0..=edge / step).map(|i| i * step);
    let places = steps().flat_map(|k| steps().flat_map(move |j| steps().map(move |i| [x + i, y + j, z + k])));
    places.filter(|place| points.contains(place)).collect()
}

/// Makes the upper triangle of the matrix: for each row the columns behind it.
pub fn upper_rows() -> UpperRows {
    let mut leaves = Vec::new();
    for x in 0..ROOTS[0] {
        for y in 0..ROOTS[1] {
            for z in 0..ROOTS[2] {
                divide([x * ROOT, y * ROOT, z * ROOT], ROOT, &mut leaves);
            }
        }
    }
    leaves.sort_by_key(rank);
    let points: BTreeSet<Point> = leaves.iter().flat_map(|&(at, edge)| corners(at, edge)).collect();
    let mut numbers = BTreeMap::new();
    for &leaf in &leaves {
        for point in points_on(leaf, &points) {
            let next = numbers.len() as u32;
            numbers.entry(point).or_insert(next);
        }
    }
    let mut rows = vec![BTreeSet::new(); points.len()];
    for leaf in leaves {
        let here = points_on(leaf, &points);
        for (n, p) in here.iter().enumerate() {
            for q in &here[n + 1..] {
                if are_neighbours(p, q, &points) {
                    let (p, q) = (numbers[p], numbers[q]);
                    rows[p.min(q) as usize].insert(p.max(q));
                }
            }
        }
    }
    rows.into_iter().map(|row| row.into_iter().collect()).collect()
}

/// Returns whether two points of a leaf are joined: along an edge or a diagonal that only
/// rises, with no point half-way.
fn are_neighbours(p: &Point, q: &Point, points: &BTreeSet<Point>) -> bool {
    let way: [i32; 3] = std::array::from_fn(|i| q[i] - p[i]);
    let rises = way.iter().all(|&w| w >= 0) || way.iter().all(|&w| w <= 0);
    let halves = way.iter().all(|w| w % 2 == 0);
    rises && !(halves && points.contains(&std::array::from_fn(|i| p[i] + way[i] / 2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mesh_is_as_large_as_sf10() {
        let rows = upper_rows();
        let edges: usize = rows.iter().map(Vec::len).sum();
        assert!((rows.len() as f64 / 7_294.0 - 1.0).abs() < 0.03, "{} points", rows.len());
        assert!((edges as f64 / 44_922.0 - 1.0).abs() < 0.08, "{edges} edges");
        for (row, columns) in rows.iter().enumerate() {
            assert!(columns.iter().all(|&column| column as usize > row));
            assert!(columns.is_sorted());
        }
    }
}
