//! Fast Fourier transform in three dimensions, with a transposition between all ranks.
//!
//! **Source.** The Split-C program of Culler et al. 1993; paper L, Section 4.3: "the communication
//! pattern is all-to-all, but is scheduled into many one-to-one phases". Each rank has planes of
//! the cube. It transforms them in two dimensions, sends each other rank its rows of them in
//! blocks, one rank after the other, and transforms the third dimension of the rows that it has
//! got.
//!
//! **Sizes.** Cubes of 8, 32, 64 and 256 numbers in each dimension (the last is the paper's), as
//! many planes for each rank as can be: the number of ranks must be a power of two, and no larger.
//!
//! **Checked by** Parseval's sum, by the inverse transform, which gives the input, and for cubes of
//! at most 64 by some terms of the discrete transform as it is defined.
//!
//! **Fields.** `Columns`: written by the rank's handlers and by it, read by it when all has come.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use towpath_machine::Random;

use super::party::FIRST;
use super::{MessageInput, Party, RankRun, SharedHandlers};

/// Complex number.
type Complex = [f64; 2];

/// Instructions for a butterfly: 10 operations, 6 loads, 4 stores.
const BUTTERFLY: u64 = 20;
/// Instructions for moving a number to where it is needed, beside the message.
const MOVE: u64 = 10;

const ROWS: u8 = FIRST;
const ENERGIES: u8 = FIRST + 1;

/// Largest difference that is rounding.
const ROUNDING: f64 = 1e-11;

fn times(a: Complex, b: Complex) -> Complex {
    [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
}

/// Root of one, to a power: e^(-2πi k/n), or its inverse.
fn root(k: usize, n: usize, inverse: bool) -> Complex {
    let (sin, cos) = (core::f64::consts::TAU * k as f64 / n as f64).sin_cos();
    [cos, if inverse { sin } else { -sin }]
}

/// Transforms a row whose length is a power of two, in place. The inverse is not divided
/// by the length.
fn transform(row: &mut [Complex], inverse: bool) {
    let n = row.len();
    let bits = n.trailing_zeros();
    for i in 0..n {
        let j = i.reverse_bits() >> (usize::BITS - bits.max(1));
        if bits > 0 && i < j {
            row.swap(i, j);
        }
    }
    let mut half = 1;
    while half < n {
        let roots: Vec<Complex> = (0..half).map(|k| root(k, 2 * half, inverse)).collect();
        for pair in row.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for ((a, b), &w) in low.iter_mut().zip(high).zip(&roots) {
                let t = times(w, *b);
                *b = [a[0] - t[0], a[1] - t[1]];
                *a = [a[0] + t[0], a[1] + t[1]];
            }
        }
        half *= 2;
    }
}

/// A rank's part after the transposition: of its rows, the columns through all planes.
struct Columns {
    numbers: Vec<AtomicU64>,
    /// Number of numbers that have come.
    arrived: AtomicU64,
}

/// Cube in planes, dealt out to ranks.
#[derive(Clone, Copy, Debug)]
struct Cube {
    /// Numbers in each dimension.
    n: usize,
    /// Planes of each rank.
    planes: usize,
}

impl Cube {
    /// Puts rows of a plane, from row `y` on, into the columns of their rank. The rows
    /// are those of its own, counted from 0.
    fn take(&self, columns: &Columns, plane: usize, y: usize, numbers: impl Iterator<Item = Complex>) {
        let mut count = 0;
        for (k, number) in numbers.enumerate() {
            let (row, x) = (y + k / self.n, k % self.n);
            let at = 2 * ((row * self.n + x) * self.n + plane);
            // Relaxed, here and below: handlers run in the thread that reads.
            if let Some(slots) = columns.numbers.get(at..at + 2) {
                slots.iter().zip(number).for_each(|(slot, v)| slot.store(v.to_bits(), Ordering::Relaxed));
                count += 1;
            }
        }
        columns.arrived.store(columns.arrived.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }
}

/// Number of the input at a place: each plane has its own random numbers.
fn plane_of(n: usize, plane: usize, seed: u64) -> Vec<Complex> {
    let mut random = Random::stream(seed, plane as u64);
    let mut number = || random.below(1 << 30) as f64 / (1 << 29) as f64 - 1.0;
    (0..n * n).map(|_| [number(), number()]).collect()
}

fn complexes(bytes: &[u8]) -> impl Iterator<Item = Complex> {
    let float = |b: &[u8]| f64::from_le_bytes(core::array::from_fn(|i| b[i]));
    bytes.chunks_exact(16).map(move |b| [float(&b[..8]), float(&b[8..])])
}

/// One rank's transformations of its planes, its sending, and those of its columns.
struct Transposition<'p, 'e, D: SharedHandlers> {
    party: &'p Party<'e, D>,
    cube: Cube,
    columns: Arc<Columns>,
}

impl<D: SharedHandlers> Transposition<'_, '_, D> {
    /// Sends each rank its rows of all planes, one rank after the other, and waits for
    /// the own.
    fn exchange(&self, planes: &[Vec<Complex>]) -> Result<(), String> {
        let (Cube { n, planes: each }, party) = (self.cube, self.party);
        let first = party.rank() * each;
        let rows = (party.block() / (16 * n)).max(1);
        for phase in 0..party.procs() {
            let to = party.rank() ^ phase;
            for (k, plane) in planes.iter().enumerate() {
                for y in (0..each).step_by(rows) {
                    let last = (y + rows).min(each);
                    let part = &plane[(to * each + y) * n..(to * each + last) * n];
                    party.instructions(MOVE * part.len() as u64);
                    if to == party.rank() {
                        self.cube.take(&self.columns, first + k, y, part.iter().copied());
                        continue;
                    }
                    let bytes: Vec<u8> = part.iter().flatten().flat_map(|v| v.to_le_bytes()).collect();
                    party.send_block(to, ROWS, &[(first + k) as u32, y as u32], &bytes)?;
                    party.poll();
                }
            }
        }
        let all = (each * n * n) as u64;
        party.until(|| self.columns.arrived.load(Ordering::Relaxed) == all)?;
        party.instructions(MOVE * all);
        Ok(())
    }

    fn charge(&self, rows: usize) {
        let n = self.cube.n as u64;
        self.party.instructions(rows as u64 * n / 2 * u64::from(n.trailing_zeros()) * BUTTERFLY);
    }

    /// Transforms planes in both of their dimensions.
    fn transform_planes(&self, planes: &mut [Vec<Complex>], inverse: bool) {
        let n = self.cube.n;
        let mut column = vec![[0.0; 2]; n];
        for plane in planes.iter_mut() {
            plane.chunks_exact_mut(n).for_each(|row| transform(row, inverse));
            for x in 0..n {
                (0..n).for_each(|y| column[y] = plane[y * n + x]);
                transform(&mut column, inverse);
                (0..n).for_each(|y| plane[y * n + x] = column[y]);
            }
            self.charge(2 * n);
        }
    }

    /// Takes the columns that have come and transforms them.
    fn transform_columns(&self, inverse: bool) -> Vec<Vec<Complex>> {
        let Cube { n, planes: each } = self.cube;
        self.columns.arrived.store(0, Ordering::Relaxed);
        let number = |k: usize| {
            core::array::from_fn(|i| f64::from_bits(self.columns.numbers[2 * k + i].load(Ordering::Relaxed)))
        };
        self.charge(each * n);
        (0..each * n)
            .map(|column| {
                let mut column: Vec<Complex> = (column * n..(column + 1) * n).map(number).collect();
                transform(&mut column, inverse);
                column
            })
            .collect()
    }

    /// Undoes the transform: the rank's part of the input, times the number of all
    /// numbers.
    ///
    /// The columns of row y of the spectrum are planes of the transposed cube, so the same exchange
    /// brings them back.
    fn undo(&self, columns: &[Vec<Complex>]) -> Result<Vec<Vec<Complex>>, String> {
        let Cube { n, planes: each } = self.cube;
        let mut back: Vec<Vec<Complex>> = columns.to_vec();
        back.iter_mut().for_each(|column| transform(column, true));
        // Plane y of the transposed cube: its row z, its place x.
        let transposed: Vec<Vec<Complex>> =
            (0..each).map(|y| (0..n * n).map(|k| back[y * n + k % n][k / n]).collect()).collect();
        self.exchange(&transposed)?;
        self.party.meet(false)?;
        self.columns.arrived.store(0, Ordering::Relaxed);
        // Now number (row z, x, plane y).
        let number = |k: usize| {
            core::array::from_fn(|i| f64::from_bits(self.columns.numbers[2 * k + i].load(Ordering::Relaxed)))
        };
        let mut planes: Vec<Vec<Complex>> =
            (0..each).map(|z| (0..n * n).map(|k| number((z * n + k % n) * n + k / n)).collect()).collect();
        self.transform_planes(&mut planes, true);
        Ok(planes)
    }
}

/// Transforms a cube as one of the ranks that have planes of it.
///
/// # Errors
///
/// If the number of ranks does not suit the cube, this rank's part is wrong, or a message can't be
/// sent.
pub fn fft<D: SharedHandlers>(party: &Party<'_, D>, input: MessageInput) -> Result<RankRun, String> {
    let (n, procs) = (input.size.pick([8, 32, 64, 256]), party.procs());
    if !procs.is_power_of_two() || procs > n {
        return Err(format!(
            "the transform of {n} planes needs a power of two of ranks up to {n}, not {procs}"
        ));
    }
    if party.block() < 16 * n {
        return Err(format!("a row of {} bytes does not fit into a block of {}", 16 * n, party.block()));
    }
    let cube = Cube { n, planes: n / procs };
    let numbers = 2 * cube.planes * n * n;
    let columns = Arc::new(Columns {
        numbers: (0..numbers).map(|_| AtomicU64::new(0)).collect(),
        arrived: AtomicU64::new(0),
    });
    let here = Arc::clone(&columns);
    party.on(ROWS, move |token| {
        if let [plane, y] = *token.args()
            && (plane as usize) < cube.n
        {
            cube.take(&here, plane as usize, y as usize, complexes(token.bytes()));
        }
    });
    let sums = Arc::new(Mutex::new((0, [0.0; 2])));
    let here = Arc::clone(&sums);
    party.on(ENERGIES, move |token| {
        if let [a, b, c, d] = *token.args() {
            let float = |low: u32, high: u32| f64::from_bits(u64::from(low) | u64::from(high) << 32);
            let (count, sums) = &mut *here.lock().unwrap_or_else(|e| e.into_inner());
            *count += 1;
            *sums = [sums[0] + float(a, b), sums[1] + float(c, d)];
        }
    });
    let work = Transposition { party, cube, columns };
    let first = party.rank() * cube.planes;
    let original: Vec<Vec<Complex>> =
        (first..first + cube.planes).map(|z| plane_of(n, z, input.seed)).collect();
    let mut planes = original.clone();
    party.meet(false)?;
    let start = party.now();
    work.transform_planes(&mut planes, false);
    work.exchange(&planes)?;
    party.meet(false)?;
    let spectrum = work.transform_columns(false);
    party.meet(false)?;
    let ns = party.now() - start;
    let requests = party.sent();
    let back = work.undo(&spectrum)?;
    let worst = check(cube, (first, input.seed), &original, &spectrum, &back)?;
    let ratio = parseval(party, cube, &sums, [energy(&original), energy(&spectrum)])?;
    party.meet(false)?;
    let energies = ratio.map_or(String::new(), |r| format!("energy of spectrum ÷ input {r:.9}, "));
    Ok(RankRun { ns, requests, text: format!("{n}³ numbers, {energies}inverse within {worst:.0e}") })
}

/// Adds up the ranks' energies of input and spectrum at rank 0, which compares them.
/// Returns their ratio there.
fn parseval<D: SharedHandlers>(
    party: &Party<'_, D>,
    cube: Cube,
    sums: &Mutex<(usize, [f64; 2])>,
    mine: [f64; 2],
) -> Result<Option<f64>, String> {
    let halves: Vec<u32> =
        mine.iter().flat_map(|e| [e.to_bits() as u32, (e.to_bits() >> 32) as u32]).collect();
    party.send(0, ENERGIES, &halves)?;
    if party.rank() != 0 {
        return Ok(None);
    }
    let sums = || *sums.lock().unwrap_or_else(|e| e.into_inner());
    party.until(|| sums().0 == party.procs())?;
    let [input, spectrum] = sums().1;
    let ratio = spectrum / (input * (cube.n * cube.n * cube.n) as f64);
    if ratio.is_nan() || (ratio - 1.0).abs() > ROUNDING {
        return Err(format!("the spectrum has {ratio} times the energy that Parseval's theorem gives it"));
    }
    Ok(Some(ratio))
}

fn energy(numbers: &[Vec<Complex>]) -> f64 {
    numbers.iter().flatten().map(|c| c[0] * c[0] + c[1] * c[1]).sum()
}

/// Compares a rank's part of the transform with its definition and its inverse. Returns
/// the largest difference of the inverse.
fn check(
    cube: Cube,
    (first, seed): (usize, u64),
    original: &[Vec<Complex>],
    spectrum: &[Vec<Complex>],
    back: &[Vec<Complex>],
) -> Result<f64, String> {
    let n = cube.n;
    let all = (n * n * n) as f64;
    let mut worst = 0.0_f64;
    for (a, b) in original.iter().flatten().zip(back.iter().flatten()) {
        worst = worst.max((a[0] - b[0] / all).abs()).max((a[1] - b[1] / all).abs());
    }
    if worst.is_nan() || worst > ROUNDING {
        return Err(format!("the inverse differs from the input by {worst:e}"));
    }
    if n <= 64 {
        let input: Vec<Vec<Complex>> = (0..n).map(|z| plane_of(n, z, seed)).collect();
        for (column, z) in [(0, 0), (1, n / 2), (cube.planes * n - 1, n - 1)] {
            let (y, x) = (first + column / n, column % n);
            let mut sum = [0.0; 2];
            for (k, &number) in input.iter().flatten().enumerate() {
                let phase = k / (n * n) * z + k / n % n * y + k % n * x;
                let term = times(number, root(phase % n, n, false));
                sum = [sum[0] + term[0], sum[1] + term[1]];
            }
            let found = spectrum[column][z];
            let differs = (found[0] - sum[0]).abs().max((found[1] - sum[1]).abs());
            if differs.is_nan() || differs > ROUNDING * all {
                return Err(format!("term {x} {y} {z} is {found:?}, not {sum:?}"));
            }
        }
    }
    Ok(worst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transform_is_the_discrete_one_and_its_inverse_undoes_it() {
        for n in [1, 2, 8, 32] {
            let input = plane_of(n, 0, 5)[..n].to_vec();
            let mut row = input.clone();
            transform(&mut row, false);
            for (k, found) in row.iter().enumerate() {
                let terms = input.iter().enumerate().map(|(j, &v)| times(v, root(j * k % n, n, false)));
                let sum = terms.fold([0.0; 2], |s: Complex, t| [s[0] + t[0], s[1] + t[1]]);
                assert!((found[0] - sum[0]).abs() < 1e-12 && (found[1] - sum[1]).abs() < 1e-12);
            }
            transform(&mut row, true);
            for (a, b) in row.iter().zip(&input) {
                assert!((a[0] / n as f64 - b[0]).abs() < 1e-14 && (a[1] / n as f64 - b[1]).abs() < 1e-14);
            }
        }
    }
}
