//! Structure of a sparse factor: the order of the columns, their supernodes, and the rows
//! of each.
//!
//! The matrices are those of grids of square cells: each point is joined with its neighbours, and
//! the points are numbered by nested dissection (George 1973): two halves, and then the line that
//! parts them. Harwell-Boeing's `tk` matrices, which SPLASH-2 and paper N factor, are not at hand;
//! those of plates have this shape, too. Columns that follow each other and have the same rows form
//! a supernode, up to a width.

/// Supernode: columns that follow each other, with the same rows below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Supernode {
    /// First column.
    pub first: usize,
    /// Number of columns.
    pub width: usize,
    /// Rows, in order: the columns themselves, and those below them.
    pub rows: Vec<u32>,
}

/// Matrix and the structure of its factor.
#[derive(Clone, Debug)]
pub struct Symbolic {
    /// Number of columns.
    pub columns: usize,
    /// Entries of the matrix below the diagonal, by column: their rows.
    pub below: Vec<Vec<u32>>,
    /// Supernodes, in order.
    pub supernodes: Vec<Supernode>,
    /// Supernode of each column.
    pub of_column: Vec<u32>,
    /// Number of others that change each supernode.
    pub changes: Vec<u32>,
}

/// Numbers the points of a rectangle by nested dissection.
fn dissect(x: core::ops::Range<usize>, y: core::ops::Range<usize>, order: &mut Vec<[usize; 2]>) {
    if x.len() * y.len() <= 4 {
        order.extend(y.flat_map(|j| x.clone().map(move |i| [i, j])));
    } else if x.len() >= y.len() {
        let middle = x.start + x.len() / 2;
        dissect(x.start..middle, y.clone(), order);
        dissect(middle + 1..x.end, y.clone(), order);
        order.extend(y.map(|j| [middle, j]));
    } else {
        let middle = y.start + y.len() / 2;
        dissect(x.clone(), y.start..middle, order);
        dissect(x.clone(), middle + 1..y.end, order);
        order.extend(x.map(|i| [i, middle]));
    }
}

impl Symbolic {
    /// Makes the matrix of a grid with so many points a side, and the structure of its
    /// factor in supernodes of at most `widest` columns.
    pub fn grid(side: usize, widest: usize) -> Symbolic {
        let mut order = Vec::with_capacity(side * side);
        dissect(0..side, 0..side, &mut order);
        let mut number = vec![0; side * side];
        order.iter().enumerate().for_each(|(n, &[i, j])| number[j * side + i] = n as u32);
        let columns = side * side;
        let mut below = vec![Vec::new(); columns];
        for (n, &[i, j]) in order.iter().enumerate() {
            // All eight neighbours: the elements are squares.
            for (a, b) in [(0, 0), (1, 0), (2, 0), (0, 1), (2, 1), (0, 2), (1, 2), (2, 2)] {
                let (i, j) = ((i + a).wrapping_sub(1), (j + b).wrapping_sub(1));
                if i < side && j < side && number[j * side + i] as usize > n {
                    below[n].push(number[j * side + i]);
                }
            }
            below[n].sort_unstable();
        }
        let rows = fill(&below);
        let (supernodes, of_column) = gather(&rows, widest);
        let mut changes = vec![0; supernodes.len()];
        for supernode in &supernodes {
            let mut last = u32::MAX;
            for &row in &supernode.rows[supernode.width..] {
                let target = of_column[row as usize];
                if target != last {
                    changes[target as usize] += 1;
                    last = target;
                }
            }
        }
        Symbolic { columns, below, supernodes, of_column, changes }
    }

    /// Number of entries of the factor.
    pub fn entries(&self) -> usize {
        self.supernodes.iter().map(|s| (0..s.width).map(|k| s.rows.len() - k).sum::<usize>()).sum()
    }
}

/// Rows below the diagonal of each column of the factor.
fn fill(below: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let mut rows: Vec<Vec<u32>> = below.to_vec();
    for column in 0..rows.len() {
        rows[column].sort_unstable();
        rows[column].dedup();
        // The first row below is the parent in the elimination tree, which inherits the others.
        if let Some((&parent, rest)) = rows[column].split_first() {
            let rest = rest.to_vec();
            rows[parent as usize].extend(rest);
        }
    }
    rows
}

/// Gathers columns that follow each other and have the same rows below.
fn gather(rows: &[Vec<u32>], widest: usize) -> (Vec<Supernode>, Vec<u32>) {
    let mut supernodes: Vec<Supernode> = Vec::new();
    let mut of_column = Vec::with_capacity(rows.len());
    for (column, below) in rows.iter().enumerate() {
        let joins = supernodes.last().is_some_and(|s| {
            let before = &rows[column - 1];
            s.width < widest && before.first() == Some(&(column as u32)) && before[1..] == below[..]
        });
        match supernodes.last_mut() {
            Some(last) if joins => last.width += 1,
            _ => supernodes.push(Supernode {
                first: column,
                width: 1,
                rows: std::iter::once(column as u32).chain(below.iter().copied()).collect(),
            }),
        }
        of_column.push(supernodes.len() as u32 - 1);
    }
    (supernodes, of_column)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Comparison with elimination on a dense matrix of zeros and ones.
    #[test]
    fn structure_is_that_of_elimination() {
        for widest in [1, 4, 100] {
            let symbolic = Symbolic::grid(7, widest);
            let n = symbolic.columns;
            let mut dense = vec![vec![false; n]; n];
            for (column, below) in symbolic.below.iter().enumerate() {
                below.iter().for_each(|&row| dense[row as usize][column] = true);
            }
            for k in 0..n {
                let rows: Vec<usize> = (k + 1..n).filter(|&i| dense[i][k]).collect();
                for (a, &i) in rows.iter().enumerate() {
                    rows[..a].iter().for_each(|&j| dense[i][j] = true);
                }
            }
            let mut entries = n;
            for (column, supernode) in symbolic.of_column.iter().enumerate() {
                let supernode = &symbolic.supernodes[*supernode as usize];
                let at = column - supernode.first;
                assert!(at < supernode.width && supernode.width <= widest);
                let expected: Vec<u32> =
                    (column + 1..n).filter(|&i| dense[i][column]).map(|i| i as u32).collect();
                assert_eq!(&supernode.rows[at + 1..], expected, "column {column}");
                entries += expected.len();
            }
            assert_eq!(symbolic.entries(), entries);
        }
    }
}
