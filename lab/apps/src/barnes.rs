//! barnes: bodies that attract each other, by a tree of cells with a lock for each cell.
//!
//! **Source.** Barnes & Hut 1986; Woo et al. 1995 (SPLASH-2); paper K, Section 5. In each step all
//! processors hang their bodies into one tree, which they descend without locks: a processor locks
//! the cell in which it has found a free place, or a body that it must make room for. Then the
//! cells' masses are added up, level by level, each body's acceleration follows from the tree, and
//! all bodies move. The bounds of space, and the depth of the tree, are under a lock of their own.
//!
//! **Sizes.** 128, 1,024, 4,096 and 16,384 bodies (the last is the paper's), 2, 2, 4 and 4 steps,
//! in the distribution of Plummer 1911, numbered along a Z curve, so that a processor's bodies are
//! neighbours.
//!
//! **Checked by** the mass of the tree, which must be exactly 1 after each step, the forces of some
//! bodies by direct summation, and the energy (all pairs; up to 4,096 bodies).
//!
//! **Fields.** `children`: words; a place changes from empty to a body to a cell, under the lock of
//! its cell (W1), and is read without (W2). `centres[c]`: written by the cell's processor after the
//! tree is complete, read after the barrier behind its level. `bodies[b]`: its processor.

use towpath_machine::{Ordering, Place, Processor, Random};

use crate::memory::{Memory, get, put};
use crate::problem::{Problem, ProblemChoice, Verified};
use crate::team::{Needs, Team};

/// Places of a cell.
const PLACES: usize = 8;
/// Words of a body: place, velocity, acceleration.
const BODY: usize = 9;
/// Words of a cell's centre: place, mass, depth.
const CENTRE: usize = 5;

/// A cell is opened if its side is more than this part of its distance.
const OPENING: f64 = 0.5;
/// Distance below which attraction does not grow.
const SOFTENING: f64 = 0.05;
/// Length of a step.
const STEP: f64 = 0.025;
/// Deepest tree.
const DEEPEST: usize = 48;

/// Largest error of a force by the tree, root mean square, as a part of the mean force.
const FORCE_ERROR: f64 = 0.02;
/// Largest change of the energy, as a part of it.
const ENERGY_ERROR: f64 = 0.01;
/// Bodies whose forces are compared.
const COMPARED: usize = 256;

/// Instructions of an interaction, and of a level that a body descends.
const INTERACTION: u64 = 60;
const LEVEL: u64 = 30;

/// Bit of a child that is a cell; otherwise it is a body, counted from 1, or 0: empty.
const IS_CELL: u64 = 1 << 40;

/// Number of locks: cells share them.
const LOCKS: usize = 512;
/// Number of the lock of the bounds and the depth.
const GLOBAL: usize = LOCKS;

/// Place in space.
type Position = [f64; 3];

/// Problem in a machine's memory.
pub struct Barnes<P: Processor> {
    bodies: Vec<Vec<P::Cell>>,
    /// By cell and place: the child.
    children: Vec<P::Word>,
    centres: Vec<Vec<P::Cell>>,
    /// By processor: how many of its cells are taken.
    taken: Vec<P::Cell>,
    /// Bounds of space: three smallest coordinates, three largest; then the depth of the
    /// tree.
    bounds: Vec<P::Cell>,
    /// By step: the mass of the tree.
    masses: Vec<P::Cell>,
    /// Cells of each processor.
    each: usize,
    steps: usize,
    input: Vec<[f64; 6]>,
}

/// Octant: a cube of space.
#[derive(Clone, Copy, Debug)]
struct Octant {
    corner: Position,
    side: f64,
}

impl Octant {
    /// Number and cube of the place that a position falls into.
    fn place(&self, at: Position) -> (usize, Octant) {
        let side = self.side / 2.0;
        let upper: [usize; 3] = core::array::from_fn(|k| usize::from(at[k] >= self.corner[k] + side));
        let corner = core::array::from_fn(|k| self.corner[k] + side * upper[k] as f64);
        (upper[0] | upper[1] << 1 | upper[2] << 2, Octant { corner, side })
    }
}

/// Bodies in the distribution of Plummer, in the order of a Z curve.
fn input(count: usize, seed: u64) -> Vec<[f64; 6]> {
    let mut random = Random::stream(seed, 1);
    let mut number = || (random.below((1 << 40) - 1) + 1) as f64 / (1_u64 << 40) as f64;
    let mut bodies = Vec::with_capacity(count);
    for _ in 0..count {
        let mut sphere = |radius: f64| {
            let z = 2.0 * number() - 1.0;
            let (sin, cos) = (core::f64::consts::TAU * number()).sin_cos();
            let r = (1.0 - z * z).sqrt();
            [radius * r * cos, radius * r * sin, radius * z]
        };
        let radius = loop {
            let r = 1.0 / (sphere(1.0)[2].abs().max(1e-3).powf(-2.0 / 3.0) - 1.0).max(1e-9).sqrt();
            if r < 10.0 {
                break r;
            }
        };
        let [x, y, z] = sphere(radius);
        // Speeds below that of escape, by rejection (Aarseth, Hénon & Wielen 1974).
        let q = loop {
            let [a, b] = [(); 2].map(|()| sphere(1.0)[2].abs());
            if b * 0.1 < a * a * (1.0 - a * a).powf(3.5) {
                break a;
            }
        };
        let [u, v, w] = sphere(q * 2.0_f64.sqrt() * (1.0 + radius * radius).powf(-0.25));
        bodies.push([x, y, z, u, v, w]);
    }
    let curve = |b: &[f64; 6]| {
        let at: [u64; 3] = core::array::from_fn(|k| ((b[k] + 16.0) * 512.0) as u64);
        (0..14).rev().fold(0, |c, bit| at.iter().fold(c, |c, x| c << 1 | x >> bit & 1))
    };
    bodies.sort_by_key(curve);
    bodies
}

/// Acceleration by a mass at a place.
fn attraction(from: Position, to: Position, mass: f64) -> Position {
    let offset: Position = core::array::from_fn(|k| to[k] - from[k]);
    let square = offset.iter().map(|x| x * x).sum::<f64>() + SOFTENING * SOFTENING;
    offset.map(|x| mass * x / (square * square.sqrt()))
}

impl<P: Processor> Barnes<P> {
    /// Makes the problem of that choice.
    pub fn new(choice: ProblemChoice, memory: &Memory<'_, P>) -> Self {
        let count = choice.size.pick([128, 1_024, 4_096, 16_384]);
        let steps = choice.size.pick([2, 2, 4, 4]);
        let input = input(count, choice.seed);
        // A processor may make more cells than it has bodies; few trees have as many cells as
        // bodies.
        let each = (count / choice.procs + 1) * 2 + 64;
        let cells = each * choice.procs;
        let owner = |b: usize| b * choice.procs / count;
        Barnes {
            bodies: (0..count)
                .map(|b| memory.row_of(owner(b), BODY, |k| input[b].get(k).unwrap_or(&0.0).to_bits()))
                .collect(),
            children: (0..PLACES * cells).map(|n| memory.arena.word(Place::in_row(n % PLACES), 0)).collect(),
            centres: (0..cells).map(|c| memory.row_of(c / each, CENTRE, |_| 0)).collect(),
            taken: (0..choice.procs).map(|p| memory.row_of(p, 1, |_| 0).swap_remove(0)).collect(),
            bounds: memory.row(7, |_| 0),
            masses: memory.row(steps, |_| f64::NAN.to_bits()),
            each,
            steps,
            input,
        }
    }

    fn position(&self, cpu: &P, body: usize) -> Position {
        core::array::from_fn(|k| get(cpu, &self.bodies[body][k]))
    }

    fn child(&self, cell: usize, place: usize) -> &P::Word {
        &self.children[PLACES * cell + place]
    }

    /// Takes a cell of the processor's own.
    fn new_cell(&self, cpu: &P, me: usize, depth: usize) -> usize {
        let taken = cpu.read(&self.taken[me]) as usize;
        assert!(taken < self.each, "processor {me} has no cell left of {}", self.each);
        cpu.write(&self.taken[me], taken as u64 + 1);
        let cell = me * self.each + taken;
        // Relaxed: no other processor knows the cell yet; (W1) publishes it.
        (0..PLACES).for_each(|p| cpu.store(self.child(cell, p), 0, Ordering::Relaxed));
        cpu.write(&self.centres[cell][4], depth as u64);
        cell
    }

    /// Agrees with all on the cube that space is.
    fn bound(&self, cpu: &P, me: usize, team: &Team<'_, P>) -> Octant {
        let mine = team.share(self.bodies.len(), me);
        let (mut low, mut high) = ([f64::INFINITY; 3], [f64::NEG_INFINITY; 3]);
        for body in mine {
            let at = self.position(cpu, body);
            low = core::array::from_fn(|k| low[k].min(at[k]));
            high = core::array::from_fn(|k| high[k].max(at[k]));
        }
        if me == 0 {
            (0..3).for_each(|k| put(cpu, &self.bounds[k], f64::INFINITY));
            (0..3).for_each(|k| put(cpu, &self.bounds[3 + k], f64::NEG_INFINITY));
            cpu.write(&self.bounds[6], 0);
        }
        team.meet(cpu, me);
        team.hold(cpu, GLOBAL, || {
            for k in 0..3 {
                put(cpu, &self.bounds[k], get(cpu, &self.bounds[k]).min(low[k]));
                put(cpu, &self.bounds[3 + k], get(cpu, &self.bounds[3 + k]).max(high[k]));
            }
        });
        cpu.write(&self.taken[me], 0);
        team.meet(cpu, me);
        let corner: Position = core::array::from_fn(|k| get(cpu, &self.bounds[k]));
        let side = (0..3).map(|k| get(cpu, &self.bounds[3 + k]) - corner[k]).fold(0.0, f64::max);
        Octant { corner, side: side * (1.0 + 1e-9) + 1e-9 }
    }

    /// Hangs a body into the tree below a cell. Returns the depth at which it hangs.
    fn hang(&self, cpu: &P, me: usize, body: usize, root: usize, space: Octant, team: &Team<'_, P>) -> usize {
        let at = self.position(cpu, body);
        let (mut cell, mut cube, mut depth) = (root, space, 1);
        loop {
            let (place, inner) = cube.place(at);
            let word = self.child(cell, place);
            cpu.instructions(LEVEL);
            // (W2) Acquire: a new cell's places; pairs with the Release (W1).
            let seen = cpu.load(word, Ordering::Acquire);
            if seen & IS_CELL != 0 {
                (cell, cube, depth) = ((seen & !IS_CELL) as usize, inner, depth + 1);
                assert!(depth < DEEPEST, "bodies {body} and others are at one place");
                continue;
            }
            let mut is_done = false;
            team.hold(cpu, cell % LOCKS, || {
                // Relaxed: it changes under this lock only.
                let now = cpu.load(word, Ordering::Relaxed);
                if now == 0 {
                    // (W1) Release: pairs with the Acquire (W2) of processors that descend.
                    cpu.store(word, body as u64 + 1, Ordering::Release);
                    is_done = true;
                } else if now & IS_CELL == 0 {
                    let other = now as usize - 1;
                    let new = self.new_cell(cpu, me, depth);
                    let (theirs, _) = inner.place(self.position(cpu, other));
                    // Relaxed: as in `new_cell`.
                    cpu.store(self.child(new, theirs), now, Ordering::Relaxed);
                    // (W1) Release: as above; pairs with the Acquire (W2).
                    cpu.store(word, new as u64 | IS_CELL, Ordering::Release);
                }
            });
            if is_done {
                return depth;
            }
        }
    }

    /// Adds up the mass below a cell, whose inner cells are done.
    fn weigh(&self, cpu: &P, cell: usize) {
        let mass_of_body = 1.0 / self.bodies.len() as f64;
        let (mut sum, mut at) = (0.0, [0.0; 3]);
        for place in 0..PLACES {
            // Relaxed: the tree is complete, and a barrier lies between.
            let child = cpu.load(self.child(cell, place), Ordering::Relaxed);
            if child == 0 {
                continue;
            }
            let (centre, mass) = self.centre(cpu, child, mass_of_body);
            sum += mass;
            at = core::array::from_fn(|k| at[k] + mass * centre[k]);
        }
        (0..3).for_each(|k| put(cpu, &self.centres[cell][k], at[k] / sum));
        put(cpu, &self.centres[cell][3], sum);
        cpu.instructions(LEVEL);
    }

    /// Place and mass of a child.
    fn centre(&self, cpu: &P, child: u64, mass_of_body: f64) -> (Position, f64) {
        if child & IS_CELL == 0 {
            return (self.position(cpu, child as usize - 1), mass_of_body);
        }
        let cells = &self.centres[(child & !IS_CELL) as usize];
        (core::array::from_fn(|k| get(cpu, &cells[k])), get(cpu, &cells[3]))
    }

    /// Acceleration of a body, by the tree.
    fn accelerate(&self, cpu: &P, body: usize, root: usize, side: f64) -> Position {
        let at = self.position(cpu, body);
        let mass_of_body = 1.0 / self.bodies.len() as f64;
        let mut sum = [0.0; 3];
        let mut open = vec![(root, side)];
        while let Some((cell, side)) = open.pop() {
            for place in 0..PLACES {
                // Relaxed: as in `weigh`.
                let child = cpu.load(self.child(cell, place), Ordering::Relaxed);
                if child == 0 || child == body as u64 + 1 {
                    continue;
                }
                let (centre, mass) = self.centre(cpu, child, mass_of_body);
                let square: f64 = (0..3).map(|k| (centre[k] - at[k]).powi(2)).sum();
                cpu.instructions(INTERACTION);
                if child & IS_CELL != 0 && (side / 2.0).powi(2) > OPENING * OPENING * square {
                    open.push(((child & !IS_CELL) as usize, side / 2.0));
                } else {
                    let part = attraction(at, centre, mass);
                    sum = core::array::from_fn(|k| sum[k] + part[k]);
                }
            }
        }
        sum
    }

    /// Makes the tree of all bodies. Returns its root, and its side.
    fn tree(&self, cpu: &P, me: usize, team: &Team<'_, P>) -> (usize, f64) {
        let space = self.bound(cpu, me, team);
        let root = 0;
        if me == 0 {
            self.new_cell(cpu, me, 0);
        }
        team.meet(cpu, me);
        let mine = team.share(self.bodies.len(), me);
        let deepest = mine.map(|body| self.hang(cpu, me, body, root, space, team)).max().unwrap_or(0);
        team.hold(cpu, GLOBAL, || {
            let depth = cpu.read(&self.bounds[6]).max(deepest as u64);
            cpu.write(&self.bounds[6], depth);
        });
        team.meet(cpu, me);
        let first = me * self.each;
        let mine = first..first + cpu.read(&self.taken[me]) as usize;
        let depths: Vec<u64> = mine.clone().map(|cell| cpu.read(&self.centres[cell][4])).collect();
        for depth in (0..cpu.read(&self.bounds[6])).rev() {
            for (cell, _) in mine.clone().zip(&depths).filter(|(_, d)| **d == depth) {
                self.weigh(cpu, cell);
            }
            team.meet(cpu, me);
        }
        (root, space.side)
    }
}

impl<P: Processor> Problem<P> for Barnes<P> {
    fn needs(&self) -> Needs {
        Needs { locks: LOCKS + 1, ..Needs::default() }
    }

    fn work(&self, cpu: &P, me: usize, team: &Team<'_, P>) {
        let mine = team.share(self.bodies.len(), me);
        team.meet(cpu, me);
        for step in 0..self.steps {
            let (root, side) = self.tree(cpu, me, team);
            if me == 0 {
                put(cpu, &self.masses[step], get(cpu, &self.centres[root][3]));
            }
            for body in mine.clone() {
                let acceleration = self.accelerate(cpu, body, root, side);
                let cells = &self.bodies[body];
                (0..3).for_each(|k| put(cpu, &cells[6 + k], acceleration[k]));
            }
            team.meet(cpu, me);
            for body in mine.clone() {
                let cells = &self.bodies[body];
                for k in 0..3 {
                    let velocity = get(cpu, &cells[3 + k]) + STEP * get(cpu, &cells[6 + k]);
                    put(cpu, &cells[3 + k], velocity);
                    put(cpu, &cells[k], get(cpu, &cells[k]) + STEP * velocity);
                }
                cpu.instructions(LEVEL);
            }
            team.meet(cpu, me);
        }
    }

    fn check(&self, value: &dyn Fn(&P::Cell) -> u64) -> Result<Verified, String> {
        let float = |cell: &P::Cell| f64::from_bits(value(cell));
        for (step, mass) in self.masses.iter().enumerate() {
            // Powers of two add up exactly.
            if float(mass) != 1.0 {
                return Err(format!("the tree of step {step} has the mass {}, not 1", float(mass)));
            }
        }
        let bodies: Vec<[f64; BODY]> =
            self.bodies.iter().map(|cells| core::array::from_fn(|k| float(&cells[k]))).collect();
        // Where they were when the forces were calculated.
        let before: Vec<Position> =
            bodies.iter().map(|b| core::array::from_fn(|k| b[k] - STEP * b[3 + k])).collect();
        let mass = 1.0 / bodies.len() as f64;
        let (mut errors, mut forces) = (0.0, 0.0);
        for n in 0..COMPARED.min(bodies.len()) {
            let n = n * bodies.len() / COMPARED.min(bodies.len());
            let mut direct = [0.0; 3];
            for other in before.iter().enumerate().filter(|(m, _)| *m != n).map(|(_, at)| *at) {
                let part = attraction(before[n], other, mass);
                direct = core::array::from_fn(|k| direct[k] + part[k]);
            }
            errors += (0..3).map(|k| (direct[k] - bodies[n][6 + k]).powi(2)).sum::<f64>();
            forces += direct.iter().map(|x| x * x).sum::<f64>();
        }
        let error = (errors / forces).sqrt();
        if error.is_nan() || error > FORCE_ERROR {
            return Err(format!("forces differ from direct summation by {error:.4} of their size"));
        }
        let mut text = format!("{} bodies, forces within {error:.1e} of direct summation", bodies.len());
        if bodies.len() <= 4096 {
            let end: Vec<[f64; 6]> = bodies.iter().map(|b| core::array::from_fn(|k| b[k])).collect();
            let [first, last] = [energy(&self.input), energy(&end)];
            let change = (last / first - 1.0).abs();
            if change.is_nan() || change > ENERGY_ERROR {
                return Err(format!("the energy has become {last}, from {first}"));
            }
            text.push_str(&format!(", energy {last:.4} from {first:.4}"));
        }
        Ok(Verified::new(text))
    }
}

/// Energy of bodies that are given by place and velocity.
fn energy(bodies: &[[f64; 6]]) -> f64 {
    let mass = 1.0 / bodies.len() as f64;
    let mut sum = 0.0;
    for (n, a) in bodies.iter().enumerate() {
        sum += mass * (a[3] * a[3] + a[4] * a[4] + a[5] * a[5]) / 2.0;
        for b in &bodies[..n] {
            let square: f64 = (0..3).map(|k| (a[k] - b[k]).powi(2)).sum();
            sum -= mass * mass / (square + SOFTENING * SOFTENING).sqrt();
        }
    }
    sum
}
