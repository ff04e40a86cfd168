//! Schedulers: by chance, by priorities that chance gives (PCT), and by a schedule that
//! is there already.

use towpath_machine::Random;

use crate::machine::{CLOCKS, MAX_THREADS};
use crate::run::{Chooser, View, in_turns};
use crate::schedule::{Schedule, StepChoice, Turn};

/// Draws one of the options with such a turn.
fn one_of(random: &mut Random, options: &[StepChoice], turn: impl Fn(Turn) -> bool) -> Option<StepChoice> {
    let fitting = || options.iter().filter(|o| turn(o.turn));
    match fitting().count() {
        0 => None,
        count => fitting().nth(below(random, count)).copied(),
    }
}

/// Draws a number below the limit, which is not 0.
fn below(random: &mut Random, limit: usize) -> usize {
    random.below(limit as u64) as usize
}

/// Steps before which threads die, drawn beforehand.
#[derive(Debug)]
struct DeathPlan(Vec<usize>);

impl DeathPlan {
    /// `kills` deaths in a run of about `length` steps.
    fn new(random: &mut Random, kills: u32, length: usize) -> DeathPlan {
        DeathPlan((0..kills).map(|_| below(random, length.max(1))).collect())
    }
    fn now(&self, view: &View, random: &mut Random) -> Option<StepChoice> {
        if !self.0.contains(&view.step) {
            return None;
        }
        let death = one_of(random, view.options, |turn| turn == Turn::Kill)?;
        let losses =
            || view.options.iter().filter(|o| o.thread == death.thread && matches!(o.turn, Turn::Lose(_)));
        match losses().count() {
            0 => Some(death),
            count => losses().chain([&death]).nth(below(random, count + 1)).copied(),
        }
    }
}

/// The other outcome of a step, one time in sixteen that there is one; and if there is
/// nothing else.
fn other_outcome(view: &View, random: &mut Random) -> Option<StepChoice> {
    let (mut normal, mut other) = (false, false);
    for option in view.options {
        normal |= option.turn == Turn::Normal;
        other |= option.turn == Turn::Other;
    }
    if !other || normal && below(random, 16) != 0 {
        return None;
    }
    one_of(random, view.options, |turn| turn == Turn::Other)
}

/// A signal, one time in eight that there may be one.
fn perhaps_signal(view: &View, random: &mut Random) -> Option<StepChoice> {
    let is_signal = |turn| matches!(turn, Turn::Signal(_));
    if !view.options.iter().any(|o| is_signal(o.turn)) || below(random, 8) != 0 {
        return None;
    }
    one_of(random, view.options, is_signal)
}

/// Sixteenths of a thread's steps that take an older value than the latest, if one can be
/// taken; drawn for each schedule.
fn earlier_share(random: &mut Random) -> usize {
    [0, 2, 6, 10][below(random, 4)]
}

/// The step of this thread: now and then with an earlier value than the latest.
fn perhaps_earlier(
    random: &mut Random,
    options: &[StepChoice],
    choice: StepChoice,
    share: usize,
) -> StepChoice {
    let is_earlier = |o: &StepChoice| o.thread == choice.thread && matches!(o.turn, Turn::Earlier(_));
    let first = options.iter().position(is_earlier);
    let Some(first) = first.filter(|_| share > 0 && below(random, 16) < share) else { return choice };
    let count = options[first..].iter().take_while(|o| is_earlier(o)).count();
    options[first + below(random, count)]
}

/// Steps that show the effect of a weakened ordering; in one of two seeds.
///
/// A thread is held before the weakened access, so that much happens meanwhile; after it goes on
/// alone, or is held again, so that others meet half of what it does. A step that is possible only
/// because the ordering is weakened is taken one time in two, or nearly always.
#[derive(Debug)]
struct AimedChoice {
    is_used: bool,
    /// Sixteenths of the steps that the weakened ordering makes possible that are taken.
    share: usize,
    /// The thread that is held, and for how many steps.
    held: (usize, usize),
    /// The thread that goes on alone, and for how many steps.
    alone: (usize, usize),
    /// Threads, a bit each, that are held before the access, or surely are not.
    known: u32,
}

impl AimedChoice {
    fn new(seed: u64) -> AimedChoice {
        let share = if seed % 4 == 1 { 8 } else { 15 };
        AimedChoice { is_used: !seed.is_multiple_of(2), share, held: (0, 0), alone: (0, 0), known: 0 }
    }

    /// A number of steps: few, or as many as some operations take.
    fn steps(random: &mut Random) -> usize {
        let limit = 1 << below(random, 8);
        1 + below(random, limit)
    }

    fn choose(&mut self, view: &View, random: &mut Random) -> Option<StepChoice> {
        if !self.is_used {
            return None;
        }
        if !view.breaches.is_empty() && below(random, 16) < self.share {
            return one_of(random, view.breaches, |_| true);
        }
        self.known &= view.weakened;
        let new = view.weakened & !self.known;
        self.known |= new;
        if new != 0 && self.held.1 == 0 && below(random, 2) == 0 {
            self.held = (new.trailing_zeros() as usize, AimedChoice::steps(random));
        }
        let can = |thread| view.options.contains(&StepChoice::normal(thread));
        if self.alone.1 > 0 {
            self.alone.1 -= 1;
            if can(self.alone.0) {
                return Some(StepChoice::normal(self.alone.0));
            }
        }
        if self.held.1 == 0 {
            return None;
        }
        self.held.1 -= 1;
        let held = self.held.0;
        let last = view.last.filter(|last| *last != held && can(*last) && below(random, 4) != 0);
        let others = || view.options.iter().filter(|o| o.turn == Turn::Normal && o.thread != held);
        last.map(StepChoice::normal).or_else(|| match others().count() {
            0 => None,
            count => others().nth(below(random, count)).copied(),
        })
    }

    /// Learns which step was chosen.
    fn chosen(&mut self, choice: StepChoice, view: &View, random: &mut Random) {
        if !self.is_used || view.weakened >> choice.thread & 1 == 0 {
            return;
        }
        self.known &= !(1 << choice.thread);
        match below(random, 3) {
            0 => {}
            1 => self.alone = (choice.thread, AimedChoice::steps(random)),
            _ => self.held = (choice.thread, AimedChoice::steps(random)),
        }
    }
}

/// State of a strategy that draws its choices.
#[derive(Debug)]
pub(crate) struct Drawn {
    random: Random,
    aim: AimedChoice,
    deaths: DeathPlan,
    earlier: usize,
}

impl Drawn {
    fn new(mut random: Random, seed: u64, kills: u32, length: usize) -> Drawn {
        let deaths = DeathPlan::new(&mut random, kills, length);
        let earlier = earlier_share(&mut random);
        Drawn { random, aim: AimedChoice::new(seed), deaths, earlier }
    }
}

/// Strategy that draws its choices, where no death is due and no access is aimed at.
pub(crate) trait Draws {
    fn drawn(&mut self) -> &mut Drawn;
    /// A choice of its own.
    fn any(&mut self, view: &View) -> Option<StepChoice>;
}

impl<S: Draws> Chooser for S {
    fn choose(&mut self, view: &View) -> Option<StepChoice> {
        let Drawn { random, aim, deaths, .. } = self.drawn();
        if let Some(choice) = deaths.now(view, random).or_else(|| perhaps_signal(view, random)) {
            return Some(choice);
        }
        let choice = match aim.choose(view, random) {
            Some(aimed) => aimed,
            None => self.any(view)?,
        };
        let Drawn { random, aim, .. } = self.drawn();
        aim.chosen(choice, view, random);
        Some(choice)
    }
}

/// Random choice at each step; in three of four seeds mostly the thread that ran last.
#[derive(Debug)]
pub(crate) struct ByChance {
    drawn: Drawn,
    keep: usize,
}

impl ByChance {
    pub fn new(seed: u64, kills: u32, length: usize) -> ByChance {
        let mut random = Random::new(seed);
        let keep = [0, 8, 12, 15][below(&mut random, 4)];
        ByChance { drawn: Drawn::new(random, seed, kills, length), keep }
    }
}

impl Draws for ByChance {
    fn drawn(&mut self) -> &mut Drawn {
        &mut self.drawn
    }

    fn any(&mut self, view: &View) -> Option<StepChoice> {
        let Drawn { random, earlier, .. } = &mut self.drawn;
        if let Some(choice) = other_outcome(view, random) {
            return Some(choice);
        }
        let last = view.last.map(StepChoice::normal).filter(|last| view.options.contains(last));
        let choice = match last {
            Some(last) if self.keep > 0 && below(random, 16) < self.keep => last,
            _ => one_of(random, view.options, |turn| turn == Turn::Normal)?,
        };
        Some(perhaps_earlier(random, view.options, choice, *earlier))
    }
}

/// Probabilistic concurrency testing (Burckhardt et al. 2010): of the threads that can go
/// on, the one with the highest priority does. Priorities are drawn, and at `depth` − 1 steps,
/// drawn too, the running thread falls below all others. A fault that needs `depth` orderings of
/// steps is found with a probability of at least 1 ÷ (threads × lengthᵈᵉᵖᵗʰ⁻¹).
#[derive(Debug)]
pub(crate) struct ByPriority {
    drawn: Drawn,
    priorities: [i64; CLOCKS],
    lowest: i64,
    changes: Vec<usize>,
}

impl ByPriority {
    pub fn new(seed: u64, depth: u32, kills: u32, length: usize) -> ByPriority {
        let mut random = Random::new(seed);
        let mut priorities = [0; CLOCKS];
        let mut ranks: Vec<i64> = (1..=MAX_THREADS as i64).collect();
        for priority in priorities.iter_mut().take(MAX_THREADS) {
            *priority = ranks.swap_remove(below(&mut random, ranks.len()));
        }
        let changes = (1..depth).map(|_| below(&mut random, length.max(1))).collect();
        ByPriority { drawn: Drawn::new(random, seed, kills, length), priorities, lowest: 0, changes }
    }

    fn fall(&mut self, thread: usize) {
        self.lowest -= 1;
        self.priorities[thread] = self.lowest;
    }
}

impl Draws for ByPriority {
    fn drawn(&mut self) -> &mut Drawn {
        &mut self.drawn
    }

    fn any(&mut self, view: &View) -> Option<StepChoice> {
        if let Some(last) = view.last
            && (view.gives_way || self.changes.contains(&view.step))
        {
            self.fall(last);
        }
        let Drawn { random, earlier, .. } = &mut self.drawn;
        if let Some(choice) = other_outcome(view, random) {
            return Some(choice);
        }
        let normal = view.options.iter().filter(|o| o.turn == Turn::Normal);
        let choice = *normal.max_by_key(|o| self.priorities[o.thread])?;
        Some(perhaps_earlier(random, view.options, choice, *earlier))
    }
}

/// Schedule that is written already. Decisions that cannot be taken are passed over;
/// after the last one the thread that ran goes on.
#[derive(Debug)]
pub(crate) struct Written<'a> {
    schedule: &'a [StepChoice],
    next: usize,
    /// Number of decisions that were passed over.
    pub passed_over: usize,
}

impl<'a> Written<'a> {
    pub fn new(schedule: &'a Schedule) -> Written<'a> {
        Written { schedule: &schedule.0, next: 0, passed_over: 0 }
    }
}

impl Chooser for Written<'_> {
    fn choose(&mut self, view: &View) -> Option<StepChoice> {
        while let Some(choice) = self.schedule.get(self.next) {
            self.next += 1;
            if view.options.contains(choice) {
                return Some(*choice);
            }
            self.passed_over += 1;
        }
        let last = view.last.map(StepChoice::normal).filter(|last| view.options.contains(last));
        Some(last.unwrap_or_else(|| in_turns(view)))
    }
}
