//! barnes: bodies that attract each other, by a tree of cells with a lock for each cell.
//!
//! **Source.** Barnes & Hut 1986; Woo et al. 1995 (SPLASH-2, which has several bodies in a leaf);
//! paper K, Section 5. In each step all processors hang their bodies into one tree, which they
//! descend without locks: a processor locks the cell in which it has found a free place or a leaf,
//! and splits a leaf that is full. Then the masses are added up, of the leaves and level by level
//! of the cells, each body's acceleration follows from the tree, and all bodies move. The bounds of
//! space, and the depth of the tree, are under a lock of their own.
//!
//! **Sizes.** 128, 1,024, 16,384 and 16,384 bodies, 2, 2, 1 and 4 steps (the last is the paper's),
//! in the distribution of Plummer 1911, numbered along a Z curve, so that a processor's bodies are
//! neighbours.
//!
//! **Checked by** the mass of the tree, which must be exactly 1 after each step, the forces of some
//! bodies by direct summation, and the energy (all pairs; up to 4,096 bodies).
//!
//! **Fields.** `children`: words; a place changes from empty to a leaf to a cell, under the lock of
//! its cell (W1), and is read without (W2). `leaves[l]`: its bodies under that lock, too, until the
//! tree is complete. `centres[c]`, and a leaf's: written by its processor then, read after the
//! barrier behind its level. `bodies[b]`: its processor.

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
/// Most bodies of a leaf (SPLASH-2).
const FULL: usize = 10;
/// Words of a leaf: its centre as a cell's, the number of its bodies, and the bodies.
const LEAF: usize = CENTRE + 1 + FULL;
const COUNT: usize = CENTRE;

/// A cell or leaf is opened if its side is more than this part of its distance.
///
/// As in SPLASH-2, but along an axis, so that the one with the body itself always is.
const OPENING: f64 = 1.0;
/// Distance below which attraction does not grow.
const SOFTENING: f64 = 0.05;
/// Length of a step.
const STEP: f64 = 0.025;
/// Deepest tree.
const DEEPEST: usize = 48;

/// Largest error of a force by the tree, root mean square, as a part of the mean force.
///
/// That of SPLASH-2's opening without its quadrupoles.
const FORCE_ERROR: f64 = 0.04;
/// Largest change of the energy, as a part of it.
const ENERGY_ERROR: f64 = 0.01;
/// Bodies whose forces are compared.
const COMPARED: usize = 256;

/// Instructions of an interaction, and of a level that a body descends.
const INTERACTION: u64 = 60;
const LEVEL: u64 = 30;

/// Bit of a child that is a cell; otherwise it is a leaf, counted from 1, or 0: empty.
const IS_CELL: u64 = 1 << 40;

/// Number of locks: cells share them (as many as in SPLASH-2).
const LOCKS: usize = 2048;
/// Numbers of cells, which all processors share: as many as the paper's bodies.
///
/// In SPLASH-2 there is room for half as many leaves, and for two cells for each of these.
const NUMBERS: usize = 16_384;
/// Number of the lock of the bounds and the depth.
const GLOBAL: usize = LOCKS;

/// Place in space.
type Position = [f64; 3];

/// Problem in a machine's memory.
pub struct Barnes<P: Processor> {
    bodies: Vec<[P::Cell; BODY]>,
    /// Child of each cell and place.
    children: Vec<P::Word>,
    centres: Vec<[P::Cell; CENTRE]>,
    leaves: Vec<[P::Cell; LEAF]>,
    /// Numbers of each processor's cells and leaves that are taken.
    taken: Vec<[P::Cell; 2]>,
    /// Bounds of space: three smallest coordinates, three largest; then the depth of the
    /// tree.
    bounds: Vec<P::Cell>,
    /// Mass of the tree at each step.
    masses: Vec<P::Cell>,
    /// Cells of each processor, and leaves.
    each: [usize; 2],
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

/// Place of a body, or of a centre.
///
/// One by one, as below: arrays' adapters are calls in an inner loop.
fn place<P: Processor>(cpu: &P, cells: &[P::Cell]) -> Position {
    [get(cpu, &cells[0]), get(cpu, &cells[1]), get(cpu, &cells[2])]
}

/// Acceleration by a mass at a place.
fn attraction(from: Position, to: Position, mass: f64) -> Position {
    let [x, y, z] = [to[0] - from[0], to[1] - from[1], to[2] - from[2]];
    let square = x * x + y * y + z * z + SOFTENING * SOFTENING;
    let cube = square * square.sqrt();
    [mass * x / cube, mass * y / cube, mass * z / cube]
}

impl<P: Processor> Barnes<P> {
    /// Makes the problem of that choice.
    pub fn new(choice: ProblemChoice, memory: &Memory<'_, P>) -> Self {
        let count = choice.size.pick([128, 1_024, 16_384, 16_384]);
        let steps = choice.size.pick([2, 2, 1, 4]);
        let input = input(count, choice.seed);
        // Few trees have half as many cells as bodies, or as many leaves.
        let mine = count / choice.procs + 1;
        let each = [mine + 64, 2 * mine + 64];
        let [cells, leaves] = each.map(|each| each * choice.procs);
        let owner = |b: usize| b * choice.procs / count;
        Barnes {
            bodies: (0..count)
                .map(|b| memory.short_row_of(owner(b), |k| input[b].get(k).unwrap_or(&0.0).to_bits()))
                .collect(),
            children: (0..PLACES * cells).map(|n| memory.arena.word(Place::in_row(n % PLACES), 0)).collect(),
            centres: (0..cells).map(|c| memory.short_row_of(c / each[0], |_| 0)).collect(),
            leaves: (0..leaves).map(|l| memory.short_row_of(l / each[1], |_| 0)).collect(),
            taken: (0..choice.procs).map(|p| memory.short_row_of(p, |_| 0)).collect(),
            bounds: memory.row(7, |_| 0),
            masses: memory.row(steps, |_| f64::NAN.to_bits()),
            each,
            steps,
            input,
        }
    }

    fn position(&self, cpu: &P, body: usize) -> Position {
        place(cpu, &self.bodies[body])
    }

    fn child(&self, cell: usize, place: usize) -> &P::Word {
        &self.children[PLACES * cell + place]
    }

    /// Number of a cell's lock, by the cell's number: each processor has a range.
    fn lock(&self, cell: usize) -> usize {
        (cell / self.each[0] * (NUMBERS / self.taken.len()) + cell % self.each[0]) % LOCKS
    }

    /// Takes a cell (0) or a leaf (1) of the processor's own.
    fn take(&self, cpu: &P, me: usize, kind: usize) -> usize {
        let taken = cpu.read(&self.taken[me][kind]) as usize;
        let each = self.each[kind];
        assert!(taken < each, "processor {me} has none of its {each} cells or leaves left");
        cpu.write(&self.taken[me][kind], taken as u64 + 1);
        me * each + taken
    }

    fn new_cell(&self, cpu: &P, me: usize, depth: usize) -> usize {
        let cell = self.take(cpu, me, 0);
        // Relaxed: no other processor knows the cell yet; (W1) publishes it.
        (0..PLACES).for_each(|p| cpu.store(self.child(cell, p), 0, Ordering::Relaxed));
        cpu.write(&self.centres[cell][4], depth as u64);
        cell
    }

    /// Puts a body into a leaf. Returns false if it is full.
    fn fill(&self, cpu: &P, leaf: usize, body: usize) -> bool {
        let cells = &self.leaves[leaf];
        let count = cpu.read(&cells[COUNT]) as usize;
        if count == FULL {
            return false;
        }
        cpu.write(&cells[COUNT + 1 + count], body as u64);
        cpu.write(&cells[COUNT], count as u64 + 1);
        true
    }

    /// Makes a leaf of one body. Returns its child.
    fn new_leaf(&self, cpu: &P, me: usize, body: usize) -> u64 {
        let leaf = self.take(cpu, me, 1);
        cpu.write(&self.leaves[leaf][COUNT], 0);
        self.fill(cpu, leaf, body);
        leaf as u64 + 1
    }

    /// Bodies of a leaf.
    fn bodies_of(&self, cpu: &P, leaf: usize) -> impl Iterator<Item = usize> {
        let cells = &self.leaves[leaf];
        let count = cpu.read(&cells[COUNT]) as usize;
        (0..count).map(move |n| cpu.read(&cells[COUNT + 1 + n]) as usize)
    }

    /// Makes a cell of a full leaf. Returns the cell.
    fn split(&self, cpu: &P, me: usize, leaf: usize, space: Octant, depth: usize) -> usize {
        let cell = self.new_cell(cpu, me, depth);
        for body in self.bodies_of(cpu, leaf) {
            let word = self.child(cell, space.place(self.position(cpu, body)).0);
            // Relaxed, twice: as in `new_cell`. No leaf of the new ones gets full.
            match cpu.load(word, Ordering::Relaxed) {
                0 => cpu.store(word, self.new_leaf(cpu, me, body), Ordering::Relaxed),
                leaf => _ = self.fill(cpu, leaf as usize - 1, body),
            }
        }
        cpu.write(&self.leaves[leaf][COUNT], 0);
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
        self.taken[me].iter().for_each(|taken| cpu.write(taken, 0));
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
            team.hold(cpu, self.lock(cell), || {
                // Relaxed: it changes under this lock only.
                let now = cpu.load(word, Ordering::Relaxed);
                is_done = now & IS_CELL == 0 && (now == 0 || self.fill(cpu, now as usize - 1, body));
                let new = match now {
                    0 => self.new_leaf(cpu, me, body),
                    leaf if leaf & IS_CELL == 0 && !is_done => {
                        self.split(cpu, me, leaf as usize - 1, inner, depth) as u64 | IS_CELL
                    }
                    _ => return,
                };
                // (W1) Release: pairs with the Acquire (W2) of processors that descend.
                cpu.store(word, new, Ordering::Release);
            });
            if is_done {
                return depth;
            }
        }
    }

    /// Adds up masses, and notes their sum and its place.
    fn weigh(&self, cpu: &P, cells: &[P::Cell], parts: impl Iterator<Item = (Position, f64)>) {
        let (mut sum, mut at) = (0.0, [0.0; 3]);
        for (centre, mass) in parts {
            sum += mass;
            at = core::array::from_fn(|k| at[k] + mass * centre[k]);
        }
        (0..3).for_each(|k| put(cpu, &cells[k], at[k] / sum));
        put(cpu, &cells[3], sum);
        cpu.instructions(LEVEL);
    }

    /// Adds up the mass of a leaf.
    fn weigh_leaf(&self, cpu: &P, leaf: usize) {
        let mass_of_body = 1.0 / self.bodies.len() as f64;
        let parts = self.bodies_of(cpu, leaf).map(|body| (self.position(cpu, body), mass_of_body));
        self.weigh(cpu, &self.leaves[leaf], parts);
    }

    /// Adds up the mass below a cell, whose inner cells and leaves are done.
    fn weigh_cell(&self, cpu: &P, cell: usize) {
        let parts = (0..PLACES).filter_map(|place| {
            // Relaxed: the tree is complete, and a barrier lies between.
            let child = cpu.load(self.child(cell, place), Ordering::Relaxed);
            (child != 0).then(|| self.centre(cpu, child))
        });
        self.weigh(cpu, &self.centres[cell], parts);
    }

    /// Place and mass of a child.
    fn centre(&self, cpu: &P, child: u64) -> (Position, f64) {
        let cells = match child & IS_CELL {
            0 => &self.leaves[child as usize - 1][..],
            _ => &self.centres[(child & !IS_CELL) as usize][..],
        };
        (place(cpu, cells), get(cpu, &cells[3]))
    }

    /// Acceleration of a body, by the tree.
    fn accelerate(&self, cpu: &P, body: usize, root: usize, side: f64) -> Position {
        let at = self.position(cpu, body);
        let mass_of_body = 1.0 / self.bodies.len() as f64;
        let mut sum = [0.0; 3];
        let mut open = vec![(root, side)];
        while let Some((cell, side)) = open.pop() {
            for place in 0..PLACES {
                // Relaxed: as in `weigh_cell`.
                let child = cpu.load(self.child(cell, place), Ordering::Relaxed);
                if child == 0 {
                    continue;
                }
                let (centre, mass) = self.centre(cpu, child);
                let [x, y, z] = [centre[0] - at[0], centre[1] - at[1], centre[2] - at[2]];
                let distance = x.abs().max(y.abs()).max(z.abs());
                cpu.instructions(INTERACTION);
                let mut add = |centre, mass| {
                    let part = attraction(at, centre, mass);
                    sum = [sum[0] + part[0], sum[1] + part[1], sum[2] + part[2]];
                };
                if side / 2.0 <= OPENING * distance {
                    add(centre, mass);
                } else if child & IS_CELL != 0 {
                    open.push(((child & !IS_CELL) as usize, side / 2.0));
                } else {
                    for other in self.bodies_of(cpu, child as usize - 1).filter(|other| *other != body) {
                        cpu.instructions(INTERACTION);
                        add(self.position(cpu, other), mass_of_body);
                    }
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
        let [mine, leaves] = [0, 1].map(|kind| {
            let first = me * self.each[kind];
            first..first + cpu.read(&self.taken[me][kind]) as usize
        });
        // The others have been split.
        for leaf in leaves.filter(|leaf| cpu.read(&self.leaves[*leaf][COUNT]) > 0) {
            self.weigh_leaf(cpu, leaf);
        }
        team.meet(cpu, me);
        let depths: Vec<u64> = mine.clone().map(|cell| cpu.read(&self.centres[cell][4])).collect();
        for depth in (0..cpu.read(&self.bounds[6])).rev() {
            for (cell, _) in mine.clone().zip(&depths).filter(|(_, d)| **d == depth) {
                self.weigh_cell(cpu, cell);
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
