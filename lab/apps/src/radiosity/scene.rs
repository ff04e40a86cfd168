//! Scene of the radiosity program: a room with a lamp and boxes, of rectangles.
//!
//! A stand-in for SPLASH-2's `room`. An element is a rectangle's part, by halving both sides some
//! times; two elements exchange light by the form factor between them, estimated from the middles
//! of their quarters, times the part of the lines between those that no rectangle cuts.

use towpath_machine::Random;

use crate::problem::Picture;

/// Point or direction in space.
pub type Vector = [f64; 3];

/// Rectangle: a corner and two sides; it faces the direction of their product.
#[derive(Clone, Copy, Debug)]
pub struct Rectangle {
    corner: Vector,
    sides: [Vector; 2],
    normal: Vector,
    /// Area.
    pub area: f64,
    /// Part of the light that it reflects.
    pub reflects: f64,
    /// Light that it gives, for each unit of its area.
    pub emits: f64,
    tint: Vector,
}

/// Part of a rectangle: both sides halved `level` times, and the number of the part along
/// each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Patch {
    /// Number of the rectangle.
    pub rectangle: u32,
    /// Number of times that its sides are halved.
    pub level: u32,
    /// Number of the part along each side.
    pub at: [u32; 2],
}

/// Room of rectangles.
#[derive(Clone, Debug)]
pub struct Chamber {
    /// The rectangles.
    pub rectangles: Vec<Rectangle>,
}

/// Middles of the quarters of a unit square.
const QUARTERS: [[f64; 2]; 4] = [[0.25, 0.25], [0.75, 0.25], [0.25, 0.75], [0.75, 0.75]];
/// Distance from a surface at which a line begins, as a part of it.
const OFF: f64 = 1e-6;

fn map(a: Vector, b: Vector, f: impl Fn(f64, f64) -> f64) -> Vector {
    [f(a[0], b[0]), f(a[1], b[1]), f(a[2], b[2])]
}

fn dot(a: Vector, b: Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn cross(a: Vector, b: Vector) -> Vector {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

impl Rectangle {
    fn new(corner: Vector, sides: [Vector; 2], reflects: f64, tint: Vector) -> Self {
        let normal = cross(sides[0], sides[1]);
        let area = dot(normal, normal).sqrt();
        Rectangle { corner, sides, normal: normal.map(|x| x / area), area, reflects, emits: 0.0, tint }
    }

    /// Point of the rectangle, by its part of each side.
    fn point(&self, [u, v]: [f64; 2]) -> Vector {
        core::array::from_fn(|k| self.corner[k] + u * self.sides[0][k] + v * self.sides[1][k])
    }

    /// Part of the way from `from` to `to` at which the rectangle is hit, and where on
    /// it.
    fn hit(&self, from: Vector, way: Vector) -> Option<(f64, [f64; 2])> {
        let across = dot(way, self.normal);
        if across.abs() < 1e-12 {
            return None;
        }
        let offset = map(self.corner, from, |c, f| c - f);
        let part = dot(offset, self.normal) / across;
        let at = map(way, offset, |w, o| part * w - o);
        // One by one: arrays' adapters are calls in an inner loop.
        let along = |side: Vector| dot(at, side) / dot(side, side);
        let place = [along(self.sides[0]), along(self.sides[1])];
        place.iter().all(|p| (0.0..=1.0).contains(p)).then_some((part, place))
    }
}

impl Patch {
    /// Rectangle as a whole.
    pub fn whole(rectangle: usize) -> Patch {
        Patch { rectangle: rectangle as u32, level: 0, at: [0; 2] }
    }

    /// Quarter of the part.
    pub fn quarter(self, n: u32) -> Patch {
        Patch { level: self.level + 1, at: [2 * self.at[0] + (n & 1), 2 * self.at[1] + (n >> 1)], ..self }
    }

    fn point(self, [u, v]: [f64; 2]) -> [f64; 2] {
        let side = 1.0 / f64::from(1 << self.level);
        [(f64::from(self.at[0]) + u) * side, (f64::from(self.at[1]) + v) * side]
    }

    /// The part as a number, for shared memory.
    pub fn to_bits(self) -> u64 {
        u64::from(self.rectangle) << 48
            | u64::from(self.level) << 40
            | u64::from(self.at[0]) << 20
            | u64::from(self.at[1])
    }

    /// The part of that number.
    pub fn from_bits(bits: u64) -> Patch {
        let field = |shift: u32, width: u32| (bits >> shift & ((1 << width) - 1)) as u32;
        Patch { rectangle: field(48, 16), level: field(40, 8), at: [field(20, 20), field(0, 20)] }
    }
}

impl Chamber {
    /// Furnishes a room with a lamp and so many boxes.
    pub fn furnish(boxes: usize, seed: u64) -> Chamber {
        let mut random = Random::stream(seed, 1);
        let mut number =
            |from: f64, to: f64| from + (to - from) * random.below(1 << 20) as f64 / (1 << 20) as f64;
        let mut rectangles = Vec::new();
        // Sides of a box from `low` to `high` that face outwards, or inwards if `inner`.
        let mut surround = |low: Vector, high: Vector, inner: bool, reflects: f64, tints: [Vector; 6]| {
            for (n, tint) in tints.into_iter().enumerate() {
                let (k, upper) = (n / 2, n % 2 == 1);
                // A box stands on the floor: its underside is not there.
                if !inner && k == 1 && !upper {
                    continue;
                }
                let side = |j: usize| core::array::from_fn(|i| if i == j { high[j] - low[j] } else { 0.0 });
                let (a, b) = (side((k + 1) % 3), side((k + 2) % 3));
                let sides = if upper != inner { [a, b] } else { [b, a] };
                let corner = core::array::from_fn(|i| if i == k && upper { high[i] } else { low[i] });
                rectangles.push(Rectangle::new(corner, sides, reflects, tint));
            }
        };
        let (red, green, grey) = ([1.0, 0.4, 0.35], [0.4, 0.9, 0.45], [0.9, 0.9, 0.88]);
        surround([0.0; 3], [4.0, 3.0, 5.0], true, 0.6, [red, green, [0.75, 0.6, 0.45], grey, grey, grey]);
        for n in 0..boxes {
            // In a row of places of their own, so that they do not cut each other.
            let width = 4.0 / boxes as f64;
            let (w, d) = (number(0.3, 0.7) * width, number(0.5, 1.2));
            let (x, z) = (width * n as f64 + number(0.1, 0.25) * width, number(1.5, 3.5));
            let tint = [number(0.5, 1.0), number(0.5, 1.0), number(0.5, 1.0)];
            surround([x, 0.0, z], [x + w, number(0.4, 1.8), z + d], false, 0.5, [tint; 6]);
        }
        let mut lamp = Rectangle::new([1.4, 2.98, 1.8], [[1.2, 0.0, 0.0], [0.0, 0.0, 1.4]], 0.0, [1.0; 3]);
        lamp.emits = 10.0;
        rectangles.push(lamp);
        Chamber { rectangles }
    }

    fn of(&self, part: Patch) -> &Rectangle {
        &self.rectangles[part.rectangle as usize]
    }

    /// Area of a part.
    pub fn area(&self, part: Patch) -> f64 {
        self.of(part).area / f64::from(1 << (2 * part.level))
    }

    /// Point of a part.
    fn point(&self, part: Patch, at: [f64; 2]) -> Vector {
        self.of(part).point(part.point(at))
    }

    /// Returns whether no point of one part is in front of the other.
    fn is_behind(&self, one: Patch, other: Patch) -> bool {
        let plane = self.of(one);
        [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]].iter().all(|&corner| {
            dot(map(self.point(other, corner), plane.corner, |p, c| p - c), plane.normal) < 1e-9
        })
    }

    /// Kernel of the exchange between two parts, as if all lay open between: times the
    /// area of the receiver, the form factor of the sender. `None` if one is behind the other.
    pub fn kernel(&self, a: Patch, b: Patch) -> Option<f64> {
        if self.is_behind(a, b) || self.is_behind(b, a) {
            return None;
        }
        let (area, normals) = ((self.area(a) + self.area(b)) / 2.0, [self.of(a).normal, self.of(b).normal]);
        let mut sum = 0.0;
        for from in QUARTERS {
            for to in QUARTERS {
                let way = map(self.point(b, to), self.point(a, from), |q, p| q - p);
                let square = dot(way, way);
                let cosines = dot(way, normals[0]).max(0.0) * (-dot(way, normals[1])).max(0.0) / square;
                // A quarter faces a quarter.
                sum += cosines / (core::f64::consts::PI * square + area / 4.0);
            }
        }
        Some(sum / 16.0)
    }

    /// Part of four lines between two parts that no rectangle cuts.
    pub fn visibility(&self, a: Patch, b: Patch) -> f64 {
        let clear = QUARTERS.iter().zip([3, 2, 1, 0]).filter(|&(&from, n)| {
            let (start, end) = (self.point(a, from), self.point(b, QUARTERS[n]));
            let way = map(end, start, |e, s| e - s);
            !self.rectangles.iter().any(|r| r.hit(start, way).is_some_and(|(p, _)| p > OFF && p < 1.0 - OFF))
        });
        clear.count() as f64 / 4.0
    }

    /// Picture from a corner of the room. `light` gives the light of the smallest part at
    /// a place.
    pub fn picture(&self, width: usize, light: impl Fn(u32, [f64; 2]) -> f64) -> Picture {
        let height = width * 3 / 4;
        let eye = [0.25, 1.8, 0.15];
        let (ahead, right) = ([0.55, -0.22, 1.0], [1.0, 0.0, -0.55]);
        let up = cross(ahead, right).map(|x| x / 1.3);
        let mut pixels = Vec::with_capacity(width * height);
        for n in 0..width * height {
            let x = (n % width) as f64 / width as f64 * 1.6 - 0.8;
            let y = (n / width) as f64 / height as f64 * 1.2 - 0.6;
            let way: Vector = core::array::from_fn(|k| ahead[k] + x * right[k] - y * up[k]);
            let hits = self.rectangles.iter().enumerate().filter_map(|(r, rectangle)| {
                let is_seen = dot(way, rectangle.normal) < 0.0;
                rectangle.hit(eye, way).filter(|(p, _)| *p > OFF && is_seen).map(|(p, at)| (p, r, at))
            });
            let first = hits.fold(None::<(f64, usize, [f64; 2])>, |best, hit| match best {
                Some(best) if best.0 <= hit.0 => Some(best),
                _ => Some(hit),
            });
            pixels.push(first.map_or([0; 3], |(_, r, at)| {
                let light = light(r as u32, at) / 0.6;
                let tone = (light / (1.0 + light)).sqrt() * 255.0;
                self.rectangles[r].tint.map(|t| (t * tone).clamp(0.0, 255.0) as u8)
            }));
        }
        Picture { width, pixels }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_survive_the_journey_through_a_number() {
        let part = Patch::whole(12).quarter(1).quarter(2).quarter(3);
        assert_eq!(Patch::from_bits(part.to_bits()), part);
        assert_eq!((part.level, part.at), (3, [5, 3]));
    }

    /// Opposite unit squares at distance 1 exchange 0.1998 of their light (textbook).
    #[test]
    fn form_factor_of_opposite_squares_is_the_textbook_s() {
        let x = [1.0, 0.0, 0.0];
        let (y, z) = ([0.0, 1.0, 0.0], [0.0, 0.0, 1.0]);
        let up = Rectangle::new([0.0; 3], [x, y], 0.5, [1.0; 3]);
        let down = Rectangle::new(z, [y, x], 0.5, [1.0; 3]);
        let room = Chamber { rectangles: vec![up, down] };
        let [a, b] = [Patch::whole(0), Patch::whole(1)];
        let mut sum = 0.0;
        for n in 0..64 {
            let part = |whole: Patch, n: u32| whole.quarter(n % 4).quarter(n / 4 % 4).quarter(n / 16);
            for m in 0..64 {
                let kernel = room.kernel(part(a, n), part(b, m)).expect("they face each other");
                sum += kernel * room.area(part(b, m)) / 64.0;
            }
        }
        assert!((sum / 0.1998 - 1.0).abs() < 0.01, "{sum}");
        assert_eq!(room.visibility(a, b), 1.0);
        assert!(room.kernel(a, a).is_none());
        // A third square between the two.
        let between = Rectangle::new([0.0, 0.0, 0.5], [x, y], 0.5, [1.0; 3]);
        let room = Chamber { rectangles: vec![up, down, between] };
        assert_eq!(room.visibility(a, b), 0.0);
    }
}
