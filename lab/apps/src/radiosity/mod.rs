//! Radiosity: the light of a room, hierarchically, by tasks that processors steal, and
//! many locks.
//!
//! **Source.** Hanrahan, Salzman & Aupperle 1991; Singh, Gupta & Levoy 1994; Woo et al. 1995
//! (SPLASH-2); papers N, Section 6, and K, Section 5. Two elements of which one would receive too
//! much of the other's light are split; the others get a link in each direction. Then in each
//! iteration each element gathers light through its links, hands it down to its parts, and takes
//! their mean. Tasks are pairs of quarters of rectangles, and then the quarters. An element is
//! split and linked under its lock. New elements and links come from pools under one lock each, and
//! a phase ends when all processors are counted, under one more lock, as without a task.
//!
//! **Sizes.** Rooms with 1, 2, 3 and 5 boxes, elements that receive at most 0.08, 0.05, 0.02 and
//! 0.01 of another's light, sides halved up to 3, 4, 5 and 6 times, 10, 10, 10 and 12 iterations.
//!
//! **Checked by** the same program on one processor (the elements must be the same, and their light
//! to 9 digits: links lie in another order), the sum of the form factors of each element, which is
//! 1 in a closed room, and the balance of light sent and received.
//!
//! **Fields.** `elements[e].split`: a word, changed once under the element's lock (R1), read
//! without (R2). `elements[e].links` and the links: under the element's lock, and read after the
//! barrier. `light`: in each iteration read in one place and written in the other, by the task of
//! its quarter.

pub mod scene;

use std::collections::BTreeMap;
use std::sync::Arc;

use towpath_machine::{Heap, LINE, Native, Ordering, Place, Processor};

use crate::memory::{Memory, get, put};
use crate::problem::{Problem, ProblemChoice, Verified};
use crate::team::{LockedTasks, Needs, Solitary, Team};
use scene::{Chamber, Patch};

/// Number of locks of elements, which share them.
///
/// Behind them are those of the pools and of the processors without a task.
const LOCKS: usize = 512;
const ELEMENTS: usize = LOCKS;
const LINKS: usize = LOCKS + 1;
const IDLE: usize = LOCKS + 2;

/// Quarters of a rectangle with which tasks begin.
const QUARTERS: usize = 4;
/// Words of a link: the other element, the form factor, the next link.
const LINK: usize = 3;

/// Instructions of a form factor, of the test of a rectangle for a line, and of a link's
/// light.
const FACTOR: u64 = 400;
const LINE_TEST: u64 = 25;
const GATHER: u64 = 12;

/// Largest difference of light to the sequential program's, as a part of it.
const ROUNDING: f64 = 1e-9;
/// Largest difference of form factors' sums from 1 that their estimates explain.
const ESTIMATE: f64 = 0.12;
/// Largest part of the light that is still under way after the last iteration.
const REST: f64 = 0.02;

/// Element of a rectangle.
struct Element<P: Processor> {
    /// First of its four parts; 0 if it is not split.
    split: P::Word,
    /// The rectangle's part that it is; 0 if it is not in use.
    part: P::Cell,
    /// First link, counted from 1.
    links: P::Cell,
    /// Light, in even and odd iterations.
    light: [P::Cell; 2],
}

/// Problem in a machine's memory.
pub struct Radiosity<P: Processor> {
    room: Arc<Chamber>,
    elements: Vec<Element<P>>,
    links: Vec<Vec<P::Cell>>,
    /// Numbers of elements and links that are taken.
    taken: [P::Cell; 2],
    /// Processors without a task, in each phase.
    idle: Vec<P::Word>,
    most: f64,
    /// Finest level.
    finest: u32,
    iterations: usize,
    procs: usize,
    choice: ProblemChoice,
}

impl<P: Processor> Radiosity<P> {
    /// Makes the problem of that choice.
    pub fn new(choice: ProblemChoice, memory: &Memory<'_, P>) -> Self {
        let room = Chamber::furnish(choice.size.pick([1, 2, 3, 5]), choice.seed);
        let iterations = choice.size.pick([10, 10, 10, 12]);
        let (elements, links) = choice.size.pick([
            (4 << 10, 16 << 10),
            (8 << 10, 48 << 10),
            (32 << 10, 256 << 10),
            (128 << 10, 1 << 20),
        ]);
        let quarters = QUARTERS * room.rectangles.len();
        let first = |e: usize| match e.checked_sub(1) {
            Some(n) if n < quarters => Patch::whole(n / QUARTERS).quarter((n % QUARTERS) as u32).to_bits(),
            _ => 0,
        };
        let element = |e: usize| {
            let arena = memory.arena;
            let split = arena.word(Place::NewLine, 0);
            let [part, links] = [first(e), 0].map(|v| arena.cell(Place::SameLine, v));
            let emits = if first(e) == 0 && e != 1 { 0.0 } else { room.rectangles[(e - 1) / QUARTERS].emits };
            let light = [emits, 0.0].map(|v: f64| arena.cell(Place::SameLine, v.to_bits()));
            Element { split, part, links, light }
        };
        // Element 0 is none.
        let none = || {
            let arena = memory.arena;
            let light = [(); 2].map(|()| arena.cell(Place::SameLine, 0));
            let [part, links] = [(); 2].map(|()| arena.cell(Place::SameLine, 0));
            Element { split: arena.word(Place::NewLine, 0), part, links, light }
        };
        Radiosity {
            elements: std::iter::once(none()).chain((1..elements).map(element)).collect(),
            links: (0..links).map(|_| memory.row(LINK, |_| 0)).collect(),
            taken: [1 + quarters as u64, 1].map(|v| memory.arena.cell(Place::NewLine, v)),
            idle: (0..=iterations).map(|_| memory.arena.word(Place::NewLine, 0)).collect(),
            most: choice.size.pick([0.08, 0.05, 0.02, 0.01]),
            finest: choice.size.pick([3, 4, 5, 6]),
            iterations,
            procs: choice.procs,
            choice,
            room: Arc::new(room),
        }
    }

    fn quarters(&self) -> usize {
        QUARTERS * self.room.rectangles.len()
    }

    fn part(&self, cpu: &P, element: usize) -> Patch {
        Patch::from_bits(cpu.read(&self.elements[element].part))
    }

    /// Takes so many out of a pool.
    fn take(&self, cpu: &P, lock: usize, count: u64, team: &Team<'_, P>) -> u64 {
        let (pool, limit) = match lock {
            ELEMENTS => (&self.taken[0], self.elements.len() as u64),
            _ => (&self.taken[1], self.links.len() as u64),
        };
        let mut first = 0;
        team.hold(cpu, lock, || {
            first = cpu.read(pool);
            cpu.write(pool, first + count);
        });
        assert!(first + count <= limit, "the pool of {limit} elements or links is empty");
        first
    }

    /// First of an element's four parts. Splits it if it is whole.
    fn split(&self, cpu: &P, element: usize, team: &Team<'_, P>) -> usize {
        let it = &self.elements[element];
        // (R2) Acquire: the parts are made; pairs with the Release (R1).
        let seen = cpu.load(&it.split, Ordering::Acquire);
        if seen != 0 {
            return seen as usize;
        }
        let mut first = 0;
        team.hold(cpu, element % LOCKS, || {
            // Relaxed: it changes under this lock only.
            first = cpu.load(&it.split, Ordering::Relaxed);
        });
        if first != 0 {
            return first as usize;
        }
        let new = self.take(cpu, ELEMENTS, 4, team);
        let part = self.part(cpu, element);
        let emits = self.room.rectangles[part.rectangle as usize].emits;
        for n in 0..4 {
            let child = &self.elements[new as usize + n];
            cpu.write(&child.part, part.quarter(n as u32).to_bits());
            put(cpu, &child.light[0], emits);
        }
        team.hold(cpu, element % LOCKS, || {
            // Relaxed: it changes under this lock only.
            first = cpu.load(&it.split, Ordering::Relaxed);
            if first == 0 {
                first = new;
                // (R1) Release: pairs with the Acquire (R2).
                cpu.store(&it.split, new, Ordering::Release);
            }
        });
        if first != new {
            // Another processor was faster: these four are lost to the pool, and part of nothing.
            (0..4).for_each(|n| cpu.write(&self.elements[new as usize + n].part, 0));
        }
        first as usize
    }

    /// Lets an element gather light of another one.
    fn link(&self, cpu: &P, (element, other): (usize, usize), factor: f64, team: &Team<'_, P>) {
        let number = self.take(cpu, LINKS, 1, team);
        let link = &self.links[number as usize];
        cpu.write(&link[0], other as u64);
        put(cpu, &link[1], factor);
        team.hold(cpu, element % LOCKS, || {
            let head = &self.elements[element].links;
            cpu.write(&link[2], cpu.read(head));
            cpu.write(head, number);
        });
    }

    /// Splits and links two quarters until no element receives too much of another's
    /// light.
    fn refine(&self, cpu: &P, pair: (usize, usize), team: &Team<'_, P>) {
        let mut open = vec![pair];
        while let Some((a, b)) = open.pop() {
            let (p, q) = (self.part(cpu, a), self.part(cpu, b));
            cpu.instructions(FACTOR);
            let Some(kernel) = self.room.kernel(p, q) else { continue };
            let areas = [self.room.area(p), self.room.area(q)];
            let (larger, level) = if areas[0] >= areas[1] { (a, p.level) } else { (b, q.level) };
            if kernel * areas[0].max(areas[1]) > self.most && level < self.finest {
                let first = self.split(cpu, larger, team);
                open.extend((first..first + 4).map(|part| if larger == a { (part, b) } else { (a, part) }));
                continue;
            }
            let factor = kernel * self.room.visibility(p, q);
            cpu.instructions(LINE_TEST * 4 * self.room.rectangles.len() as u64);
            if factor > 0.0 {
                self.link(cpu, (a, b), factor * areas[1], team);
                self.link(cpu, (b, a), factor * areas[0], team);
            }
        }
    }

    /// Gathers light for an element and its parts, `above` of which comes to its whole.
    /// Returns its light, the mean of its parts'.
    fn gather(&self, cpu: &P, element: usize, above: f64, place: usize) -> f64 {
        let it = &self.elements[element];
        let mut sum = above;
        let mut next = cpu.read(&it.links);
        while next != 0 {
            let link = &self.links[next as usize];
            let other = &self.elements[cpu.read(&link[0]) as usize];
            sum += get(cpu, &link[1]) * get(cpu, &other.light[place]);
            cpu.instructions(GATHER);
            next = cpu.read(&link[2]);
        }
        // Relaxed: no element is split any more, and a barrier lies between.
        let light = match cpu.load(&it.split, Ordering::Relaxed) as usize {
            0 => {
                let rectangle = &self.room.rectangles[self.part(cpu, element).rectangle as usize];
                rectangle.emits + rectangle.reflects * sum
            }
            first => (first..first + 4).map(|part| self.gather(cpu, part, sum, place)).sum::<f64>() / 4.0,
        };
        put(cpu, &it.light[1 - place], light);
        light
    }

    /// Light and sum of the form factors of each smallest part.
    fn leaves(&self, value: &dyn Fn(&P::Cell) -> u64) -> BTreeMap<Patch, [f64; 2]> {
        let float = |cell: &P::Cell| f64::from_bits(value(cell));
        let mut has_parts = vec![false; self.elements.len()];
        let used = (value(&self.taken[0]) as usize).min(self.elements.len());
        let part = |e: usize| Patch::from_bits(value(&self.elements[e].part));
        let parts: BTreeMap<Patch, usize> =
            (1..used).map(|e| (part(e), e)).filter(|(part, _)| part.level > 0).collect();
        for part in parts.keys().filter(|part| part.level > 1) {
            let parent = Patch { level: part.level - 1, at: part.at.map(|x| x / 2), ..*part };
            if let Some(&e) = parts.get(&parent) {
                has_parts[e] = true;
            }
        }
        let factors = |e: usize| {
            let (mut sum, mut next) = (0.0, value(&self.elements[e].links));
            while next != 0 {
                // A link that there is not makes the sum none.
                let Some(link) = self.links.get(next as usize) else { return f64::NAN };
                sum += float(&link[1]);
                next = value(&link[2]);
            }
            sum
        };
        let own: Vec<f64> = (0..used).map(factors).collect();
        let mut leaves = BTreeMap::new();
        for (&part, &e) in parts.iter().filter(|(_, e)| !has_parts[**e]) {
            let sum = (1..=part.level)
                .filter_map(|level| {
                    let shift = part.level - level;
                    parts.get(&Patch { level, at: part.at.map(|x| x >> shift), ..part }).map(|&e| own[e])
                })
                .sum();
            leaves.insert(part, [float(&self.elements[e].light[self.iterations % 2]), sum]);
        }
        leaves
    }
}

/// Solves a problem's copy on one processor, without locks.
fn sequentially(choice: ProblemChoice) -> BTreeMap<Patch, [f64; 2]> {
    let choice = ProblemChoice { procs: 1, ..choice };
    let memory = Memory { arena: &Heap, line: LINE / 8, per_node: 1 };
    let problem = Radiosity::<Native>::new(choice, &memory);
    let queues = LockedTasks::new(&Heap, problem.needs(), towpath_sync::Spinning);
    let team = Team { procs: 1, locks: &Solitary, barrier: &Solitary, queues: &queues };
    problem.work(&Native::with_id(0), 0, &team);
    // Relaxed: one thread.
    problem.leaves(&|cell| cell.load(Ordering::Relaxed))
}

impl<P: Processor> Problem<P> for Radiosity<P> {
    fn needs(&self) -> Needs {
        let quarters = self.quarters();
        let tasks = (quarters * quarters / 2).div_ceil(self.procs) + 1;
        Needs { locks: LOCKS + 3, queues: self.procs, tasks }
    }

    fn work(&self, cpu: &P, me: usize, team: &Team<'_, P>) {
        let quarters = self.quarters();
        let pairs = (1..=quarters).flat_map(|a| (a + 1..=quarters).map(move |b| (a, b)));
        let pairs = pairs.filter(|(a, b)| (a - 1) / QUARTERS != (b - 1) / QUARTERS);
        for (a, b) in pairs.skip(me).step_by(self.procs) {
            team.put(cpu, me, (a as u64) << 32 | b as u64);
        }
        team.meet(cpu, me);
        let queues = (me, self.procs);
        team.work_until_idle(cpu, queues, (IDLE, &self.idle[0]), |task| {
            self.refine(cpu, ((task >> 32) as usize, task as u32 as usize), team);
        });
        team.meet(cpu, me);
        for iteration in 0..self.iterations {
            for quarter in team.share(quarters, me) {
                team.put(cpu, me, quarter as u64 + 1);
            }
            team.work_until_idle(cpu, queues, (IDLE, &self.idle[1 + iteration]), |task| {
                self.gather(cpu, task as usize, 0.0, iteration % 2);
            });
            team.meet(cpu, me);
        }
    }

    fn check(&self, value: &dyn Fn(&P::Cell) -> u64) -> Result<Verified, String> {
        let (leaves, expected) = (self.leaves(value), sequentially(self.choice));
        if !leaves.keys().eq(expected.keys()) {
            return Err(format!(
                "there are {} smallest elements, or others than the {} expected",
                leaves.len(),
                expected.len()
            ));
        }
        let (mut given, mut sent, mut received, mut absorbed) = (0.0, 0.0, 0.0, 0.0);
        let (mut area, mut factors) = (0.0, 0.0);
        for (part, &[light, sum]) in &leaves {
            let other = expected[part];
            for (found, expected) in [(light, other[0]), (sum, other[1])] {
                if (found - expected).abs() > ROUNDING * expected.abs().max(1e-3) || found.is_nan() {
                    return Err(format!("{part:?} has {found}, not {expected}"));
                }
            }
            let rectangle = &self.room.rectangles[part.rectangle as usize];
            let size = self.room.area(*part);
            given += size * rectangle.emits;
            sent += size * light * sum;
            if rectangle.reflects > 0.0 {
                let gathered = size * (light - rectangle.emits) / rectangle.reflects;
                received += gathered;
                absorbed += gathered * (1.0 - rectangle.reflects);
            }
            // Parts under a box, or behind the lamp, see nothing.
            if sum > 0.2 {
                area += size;
                factors += size * sum;
            }
        }
        let sums =
            [("form factors", factors / area, ESTIMATE), ("light received ÷ sent", received / sent, REST)];
        for (name, found, most) in sums {
            if found.is_nan() || (found - 1.0).abs() > most {
                return Err(format!("{name}: {found:.3} and not 1"));
            }
        }
        let picture = self.room.picture(320, |rectangle, at| {
            let part = |level: u32| {
                let at = at.map(|x| ((x * f64::from(1 << level)) as u32).min((1 << level) - 1));
                leaves.get(&Patch { rectangle, level, at })
            };
            (1..=self.finest).find_map(part).map_or(0.0, |leaf| leaf[0])
        });
        let text = format!(
            "{} smallest elements, form factors add up to {:.3}, {:.1} % of the light absorbed",
            leaves.len(),
            factors / area,
            100.0 * absorbed / given
        );
        Ok(Verified { text, picture: Some(picture) })
    }
}
