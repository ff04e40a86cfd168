//! raytrace: a picture in tiles, from queues that processors steal from, and one hot
//! lock.
//!
//! **Source.** Singh, Gupta & Levoy 1994; Woo et al. 1995 (SPLASH-2); paper K, Section 5. Each
//! processor has a queue of tiles and takes from others' when it is empty. Each ray, and each
//! reflection of one, takes a number under one lock: of the program's locks the one that all
//! processors want.
//!
//! **Sizes.** Pictures of 16, 64, 128 and 256 rows with 16, 64, 256 and 1,024 spheres, in tiles of
//! 4 × 4 (from `medium` on 8 × 8).
//!
//! **Checked by** the picture, which is that of a sequential render bit for bit, and the number of
//! rays.
//!
//! **Fields.** `pixels`: each written by the processor that took its tile. `rays`: under lock 0.
//! The scene is read by all and not laid out in simulated memory: after the first misses it lies in
//! the caches, and its loads are charged as instructions.

pub mod scene;

use std::sync::Arc;

use towpath_machine::{Place, Processor};

use crate::memory::{Memory, put};
use crate::problem::{ParallelLoops, Picture, Problem, ProblemChoice, Verified};
use crate::team::{Needs, Team};
use scene::{RayWork, Scene, pixel};

/// Instructions for the test of a sphere, for a cell of the grid, and for shading.
const TEST: u64 = 40;
const CELL: u64 = 25;
const SHADE: u64 = 150;

/// Problem in a machine's memory.
pub struct Raytrace<P: Processor> {
    scene: Arc<Scene>,
    rows: usize,
    tile: usize,
    procs: usize,
    /// Red, green and blue of each pixel.
    pixels: Vec<P::Cell>,
    rays: P::Cell,
}

impl<P: Processor> Raytrace<P> {
    /// Makes the problem of that choice.
    pub fn new(choice: ProblemChoice, memory: &Memory<'_, P>) -> Self {
        let rows = choice.size.pick([16, 64, 128, 256]);
        Raytrace {
            scene: Arc::new(Scene::scatter(choice.size.pick([16, 64, 256, 1024]), choice.seed)),
            rows,
            tile: choice.size.pick([4, 4, 8, 8]),
            procs: choice.procs,
            pixels: memory.row(3 * rows * rows, |_| f64::NAN.to_bits()),
            rays: memory.arena.cell(Place::NewLine, 0),
        }
    }

    fn tiles(&self) -> usize {
        (self.rows / self.tile).pow(2)
    }

    /// Pixels of a tile.
    fn pixels_of(&self, tile: usize) -> impl Iterator<Item = (usize, usize)> {
        let (across, size) = (self.rows / self.tile, self.tile);
        let (x, y) = (tile % across * size, tile / across * size);
        (0..size * size).map(move |n| (x + n % size, y + n / size))
    }

    /// Renders a tile. `count` is called for each ray.
    fn render(&self, cpu: &P, tile: usize, mut count: impl FnMut()) {
        for (x, y) in self.pixels_of(tile) {
            let mut effort = RayWork::default();
            let colour = self.scene.trace(Scene::ray(self.rows, x, y), &mut effort, || {
                count();
                cpu.instructions(SHADE);
            });
            cpu.instructions(TEST * effort.tests + CELL * effort.cells);
            let cells = &self.pixels[3 * (y * self.rows + x)..];
            cells.iter().zip(colour).for_each(|(cell, value)| put(cpu, cell, value));
        }
    }
}

impl<P: Processor> Problem<P> for Raytrace<P> {
    fn needs(&self) -> Needs {
        Needs { locks: 1, queues: self.procs, tasks: self.tiles() }
    }

    fn work(&self, cpu: &P, me: usize, team: &Team<'_, P>) {
        for tile in team.share(self.tiles(), me) {
            team.put(cpu, me, tile as u64);
        }
        team.meet(cpu, me);
        while let Some((_, tile)) = team.take_anywhere(cpu, me, self.procs) {
            self.render(cpu, tile as usize, || {
                team.hold(cpu, 0, || cpu.write(&self.rays, cpu.read(&self.rays) + 1));
            });
        }
        team.meet(cpu, me);
    }

    fn work_in_loops(&self, cpu: &P, loops: &dyn ParallelLoops<P>) {
        let rays = loops.sum(self.tiles(), &|cpu, tile| {
            let mut rays = 0;
            self.render(cpu, tile, || rays += 1);
            rays
        });
        cpu.write(&self.rays, rays);
    }

    fn check(&self, value: &dyn Fn(&P::Cell) -> u64) -> Result<Verified, String> {
        let mut rays = 0;
        let mut pixels = Vec::with_capacity(self.rows * self.rows);
        for n in 0..self.rows * self.rows {
            let (x, y) = (n % self.rows, n / self.rows);
            let colour = self.scene.trace(Scene::ray(self.rows, x, y), &mut RayWork::default(), || rays += 1);
            let cells = &self.pixels[3 * n..3 * n + 3];
            let found: [u64; 3] = core::array::from_fn(|k| value(&cells[k]));
            if found != colour.map(f64::to_bits) {
                return Err(format!("pixel {x} {y} is {:?}, not {colour:?}", found.map(f64::from_bits)));
            }
            pixels.push(pixel(colour));
        }
        if value(&self.rays) != rays {
            return Err(format!("{} rays were counted, not {rays}", value(&self.rays)));
        }
        let picture = Some(Picture { width: self.rows, pixels });
        Ok(Verified { text: format!("{0} x {0} pixels, {rays} rays", self.rows), picture })
    }
}
