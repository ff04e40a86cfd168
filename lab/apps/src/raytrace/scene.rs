//! Scene of the ray tracer: spheres over a chequered floor, in a uniform grid.
//!
//! A stand-in for `car`, the scene of paper K, whose triangles are not at hand. The same
//! calculations in the same order give each pixel the same bits, whichever processor makes them.

use towpath_machine::Random;

/// Point or direction in space, or a colour.
pub type Vector = [f64; 3];

/// Ray of light, followed backwards.
#[derive(Clone, Copy, Debug)]
pub struct Ray {
    /// Its beginning.
    pub origin: Vector,
    /// Its direction, of length 1.
    pub direction: Vector,
}

/// Sphere.
#[derive(Clone, Copy, Debug)]
struct Sphere {
    centre: Vector,
    radius: f64,
    colour: Vector,
    mirror: f64,
}

/// Point that a ray hits.
#[derive(Clone, Copy, Debug)]
struct Hit {
    distance: f64,
    normal: Vector,
    colour: Vector,
    mirror: f64,
}

/// Scene: spheres over a floor, the cells of a grid that they touch, and a light.
#[derive(Debug)]
pub struct Scene {
    spheres: Vec<Sphere>,
    /// Cells along each side of the grid, which fills the cube from -1 to 1.
    side: usize,
    /// Spheres that touch each cell.
    cells: Vec<Vec<u32>>,
}

/// Height of the floor.
const FLOOR: f64 = -1.0;
/// Most reflections of a ray.
const DEPTH: u32 = 4;
/// Place of the light.
const LIGHT: Vector = [2.0, 5.0, -3.0];
/// Light that comes from everywhere.
const AMBIENT: f64 = 0.15;
/// Distance from a surface at which a ray begins.
const OFF: f64 = 1e-6;

/// Work that a ray has made: tests of spheres, and cells of the grid.
#[derive(Clone, Copy, Debug, Default)]
pub struct RayWork {
    /// Spheres tested.
    pub tests: u64,
    /// Cells passed.
    pub cells: u64,
}

fn map(a: Vector, b: Vector, f: impl Fn(f64, f64) -> f64) -> Vector {
    [f(a[0], b[0]), f(a[1], b[1]), f(a[2], b[2])]
}

fn along(origin: Vector, direction: Vector, distance: f64) -> Vector {
    map(origin, direction, |o, d| o + d * distance)
}

fn dot(a: Vector, b: Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn unit(v: Vector) -> Vector {
    let length = dot(v, v).sqrt();
    v.map(|x| x / length)
}

impl Scene {
    /// Scatters so many spheres.
    pub fn scatter(spheres: usize, seed: u64) -> Scene {
        let mut random = Random::stream(seed, 1);
        let mut number =
            |from: f64, to: f64| from + (to - from) * random.below(1 << 20) as f64 / (1 << 20) as f64;
        let most = (2.0 / (spheres as f64).cbrt() * 0.45).min(0.6);
        let spheres: Vec<Sphere> = (0..spheres)
            .map(|_| {
                let radius = number(0.3 * most, most);
                let centre = [(); 3].map(|()| number(radius - 1.0, 1.0 - radius));
                let colour = [(); 3].map(|()| number(0.2, 1.0));
                Sphere { centre, radius, colour, mirror: number(0.0, 0.6) }
            })
            .collect();
        let side = ((spheres.len() as f64).cbrt() * 1.5) as usize + 1;
        let mut scene = Scene { spheres, side, cells: vec![Vec::new(); side * side * side] };
        for n in 0..scene.spheres.len() {
            let Sphere { centre, radius, .. } = scene.spheres[n];
            let [low, high] = [-radius, radius].map(|r| centre.map(|c| scene.slot(c + r)));
            for x in low[0]..=high[0] {
                for y in low[1]..=high[1] {
                    for z in low[2]..=high[2] {
                        scene.cells[(z * side + y) * side + x].push(n as u32);
                    }
                }
            }
        }
        scene
    }

    /// Slot of the grid along one dimension.
    fn slot(&self, coordinate: f64) -> usize {
        (((coordinate + 1.0) / 2.0 * self.side as f64) as usize).min(self.side - 1)
    }

    /// Spheres' first hit at a distance below `limit`, through the cells along the ray.
    fn hit_sphere(&self, ray: &Ray, limit: f64, effort: &mut RayWork) -> Option<(f64, usize)> {
        let Ray { origin, direction } = *ray;
        // The part of the ray within the grid.
        let (mut enter, mut leave) = (0.0_f64, limit);
        for k in 0..3 {
            let (a, b) = ((-1.0 - origin[k]) / direction[k], (1.0 - origin[k]) / direction[k]);
            if direction[k] == 0.0 {
                if origin[k].abs() > 1.0 {
                    return None;
                }
            } else {
                enter = enter.max(a.min(b));
                leave = leave.min(a.max(b));
            }
        }
        if enter >= leave {
            return None;
        }
        let width = 2.0 / self.side as f64;
        let start = along(origin, direction, enter);
        let mut cell = start.map(|x| self.slot(x));
        let step = direction.map(|d| if d > 0.0 { 1_isize } else { -1 });
        let mut next: Vector = core::array::from_fn(|k| {
            let border = -1.0 + width * (cell[k] + usize::from(direction[k] > 0.0)) as f64;
            if direction[k] == 0.0 { f64::INFINITY } else { (border - origin[k]) / direction[k] }
        });
        let mut best: Option<(f64, usize)> = None;
        loop {
            effort.cells += 1;
            for &n in &self.cells[(cell[2] * self.side + cell[1]) * self.side + cell[0]] {
                effort.tests += 1;
                let Sphere { centre, radius, .. } = self.spheres[n as usize];
                let offset = map(origin, centre, |o, c| o - c);
                let b = dot(offset, direction);
                let root = b * b - dot(offset, offset) + radius * radius;
                if root < 0.0 {
                    continue;
                }
                let root = root.sqrt();
                let distance = if -b - root > OFF { -b - root } else { -b + root };
                if distance > OFF && best.map_or(distance < limit, |(d, _)| distance < d) {
                    best = Some((distance, n as usize));
                }
            }
            let k = (0..3).fold(0, |k, j| if next[j] < next[k] { j } else { k });
            // A hit beyond this cell may not be the first.
            if best.is_some_and(|(d, _)| d <= next[k]) || next[k] >= leave {
                return best;
            }
            next[k] += width / direction[k].abs();
            match cell[k].checked_add_signed(step[k]).filter(|&c| c < self.side) {
                Some(c) => cell[k] = c,
                None => return best,
            }
        }
    }

    fn hit(&self, ray: &Ray, effort: &mut RayWork) -> Option<Hit> {
        let down = (FLOOR - ray.origin[1]) / ray.direction[1];
        let floor = (ray.direction[1] < 0.0 && down > OFF).then_some(down);
        match self.hit_sphere(ray, floor.unwrap_or(f64::INFINITY), effort) {
            Some((distance, n)) => {
                let sphere = &self.spheres[n];
                let at = along(ray.origin, ray.direction, distance);
                let normal = map(at, sphere.centre, |a, c| (a - c) / sphere.radius);
                Some(Hit { distance, normal, colour: sphere.colour, mirror: sphere.mirror })
            }
            None => floor.map(|distance| {
                let at = along(ray.origin, ray.direction, distance);
                let is_dark = ((at[0] * 2.0).floor() + (at[2] * 2.0).floor()) as i64 & 1 == 0;
                let colour = if is_dark { [0.15; 3] } else { [0.85, 0.85, 0.8] };
                Hit { distance, normal: [0.0, 1.0, 0.0], colour, mirror: 0.15 }
            }),
        }
    }

    /// Colour that a ray sees. `count` is called for the ray and for each reflection of
    /// it.
    pub fn trace(&self, mut ray: Ray, effort: &mut RayWork, mut count: impl FnMut()) -> Vector {
        let mut colour = [0.0; 3];
        let mut weight = 1.0;
        for _ in 0..DEPTH {
            count();
            let Some(hit) = self.hit(&ray, effort) else {
                let sky = 0.5 * (ray.direction[1] + 1.0);
                let sky = [0.9 - 0.5 * sky, 0.95 - 0.3 * sky, 1.0];
                return map(colour, sky, |c, s| c + weight * s);
            };
            let at = along(ray.origin, ray.direction, hit.distance);
            let to_light = map(LIGHT, at, |l, a| l - a);
            let distance = dot(to_light, to_light).sqrt();
            let shadow = Ray { origin: at, direction: to_light.map(|x| x / distance) };
            let is_lit = self.hit_sphere(&shadow, distance, effort).is_none();
            let direct = if is_lit { dot(hit.normal, shadow.direction).max(0.0) } else { 0.0 };
            let part = weight * (1.0 - hit.mirror) * (AMBIENT + (1.0 - AMBIENT) * direct);
            colour = map(colour, hit.colour, |c, h| c + part * h);
            weight *= hit.mirror;
            if weight < 0.01 {
                break;
            }
            let back = 2.0 * dot(ray.direction, hit.normal);
            ray = Ray { origin: at, direction: unit(map(ray.direction, hit.normal, |d, n| d - back * n)) };
        }
        colour
    }

    /// Ray through a pixel of a square picture of so many rows.
    pub fn ray(rows: usize, x: usize, y: usize) -> Ray {
        let place = |n: usize| (n as f64 + 0.5) / rows as f64 * 2.0 - 1.0;
        Ray {
            origin: [0.4, 0.8, -4.0],
            direction: unit([0.45 * place(x) - 0.08, -0.45 * place(y) - 0.2, 1.0]),
        }
    }
}

/// Pixel of a colour, for a picture.
pub fn pixel(colour: Vector) -> [u8; 3] {
    colour.map(|c| (c.clamp(0.0, 1.0).sqrt() * 255.0).round() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Agreement of the grid with a search of all spheres.
    #[test]
    fn grid_misses_no_sphere() {
        let scene = Scene::scatter(60, 3);
        let mut hits = 0;
        for y in 0..40 {
            for x in 0..40 {
                let ray = Scene::ray(40, x, y);
                let all = scene.spheres.iter().filter_map(|s| {
                    let offset = map(ray.origin, s.centre, |o, c| o - c);
                    let b = dot(offset, ray.direction);
                    let root = b * b - dot(offset, offset) + s.radius * s.radius;
                    (root >= 0.0 && -b - root.sqrt() > OFF).then(|| -b - root.sqrt())
                });
                let first = all.fold(f64::INFINITY, f64::min);
                let found = scene.hit_sphere(&ray, f64::INFINITY, &mut RayWork::default());
                assert_eq!(found.map_or(f64::INFINITY, |h| h.0), first, "pixel {x} {y}");
                hits += u32::from(found.is_some());
            }
        }
        assert!(hits > 200, "{hits} hits");
    }
}
