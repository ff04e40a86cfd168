//! Replay of a trace: for each thread its work, its rests and the locks that it held
//! meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::{LockEventKind, LockTrace, TracedEvent};

/// Maximum number of locks of a replay. Work under others is work.
pub const MOST_LOCKS: usize = 64;
/// Part of a trace that is replayed, in nanoseconds: the busiest one of that length.
const WINDOW: u64 = 200_000_000;
/// Number of places to begin at, in a window's length.
const PLACES: u64 = 8;

/// A step of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayStep {
    /// Work, in nanoseconds.
    Work(u64),
    /// Rest, in nanoseconds, in which the thread wants no core.
    Idle(u64),
    /// Acquires a lock, takes the next steps under it, releases it.
    Hold {
        /// The lock, from 0.
        lock: usize,
        /// Number of steps under it.
        steps: usize,
    },
}

/// Replay of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LockReplay {
    /// Steps of each thread, of which each acquires a lock. The busiest first.
    pub threads: Vec<Vec<ReplayStep>>,
    /// Number of locks.
    pub locks: usize,
    /// Number of acquisitions.
    pub acquisitions: u64,
    /// Number of them beside other readers, which are replayed alone.
    pub readers: u64,
    /// Number of acquisitions for which the program's threads waited.
    pub waited: u64,
    /// Time for which they waited, all together, in nanoseconds.
    pub waited_ns: u64,
    /// Number of events for which the trace had no room: it has the program's beginning.
    pub dropped: u64,
    /// Begin and length of the part, and length of the trace, in nanoseconds.
    pub part: (u64, u64, u64),
    /// Number of threads that were left out.
    pub left_out: usize,
    /// Part of the times between events that is work in the replay.
    ///
    /// Less than 1 if threads had no core in the rest.
    pub scale: f64,
}

impl fmt::Display for LockReplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: u64| ns as f64 / 1e6;
        let (begin, length, all) = self.part;
        let several = |number: usize| if number == 1 { "" } else { "s" };
        let (locks, threads) = (self.locks, self.threads.len());
        write!(f, "{} acquisitions of {locks} lock{}", self.acquisitions, several(locks))?;
        write!(f, " by {threads} thread{}", several(threads))?;
        write!(f, " in {:.1} ms", ms(length))?;
        if length < all {
            write!(f, " (the busiest of {:.0} ms, from {:.0} ms on)", ms(all), ms(begin))?;
        }
        write!(f, "; for {} of them a thread waited", self.waited)?;
        if self.waited_ns > 0 {
            match self.waited_percent() {
                percent if percent < 0.1 => write!(f, ", less than 0.1 % of the threads' time")?,
                percent => write!(f, ", {percent:.1} % of the threads' time")?,
            }
        }
        if self.dropped > 0 {
            let dropped = self.dropped;
            write!(f, "; the trace is of the program's beginning, {dropped} later events had no room in it")?;
        }
        if self.readers > 0 {
            write!(f, "; {} were readers', replayed one at a time", self.readers)?;
        }
        if self.left_out > 0 {
            write!(f, "; {} threads with fewer acquisitions are left out", self.left_out)?;
        }
        Ok(())
    }
}

/// Steps of a thread that are being made.
#[derive(Default)]
struct StepMaker {
    steps: Vec<ReplayStep>,
    /// Locks that are held: address, index of the step, number of acquisitions.
    held: Vec<(u64, usize, u32)>,
    /// Number of acquisitions, with those of readers, and after waits.
    counts: [u64; 3],
    /// Time of the waits, in nanoseconds.
    waited_ns: u64,
    /// True if no lock was acquired or released since the last step.
    goes_on: bool,
}

impl StepMaker {
    fn add(&mut self, step: ReplayStep) {
        match (self.steps.last_mut(), step) {
            (_, ReplayStep::Work(0) | ReplayStep::Idle(0)) => {}
            (Some(ReplayStep::Work(last)), ReplayStep::Work(more)) if self.goes_on => *last += more,
            _ => {
                self.steps.push(step);
                self.goes_on = true;
            }
        }
    }

    fn acquire(&mut self, event: &TracedEvent, lock: usize, has_waited: bool) {
        if let Some((.., times)) = self.held.iter_mut().find(|(object, ..)| *object == event.object) {
            *times += 1;
            return;
        }
        // It may be against the order of the others: a replay that waits for it may wait for ever.
        if event.kind == LockEventKind::Tried && !self.held.is_empty() {
            return;
        }
        self.held.push((event.object, self.steps.len(), 1));
        self.steps.push(ReplayStep::Hold { lock, steps: 0 });
        self.goes_on = false;
        let is_reader = event.kind == LockEventKind::Shared;
        for (count, counts) in self.counts.iter_mut().zip([true, is_reader, has_waited]) {
            *count += u64::from(counts);
        }
    }

    /// A lock is held until those that were acquired after it are released.
    fn release(&mut self, object: u64) {
        if let Some((.., times)) = self.held.iter_mut().find(|(held, ..)| *held == object) {
            *times = times.saturating_sub(1);
        }
        while let Some(&(_, at, 0)) = self.held.last() {
            self.close(at);
        }
    }

    fn close(&mut self, at: usize) {
        self.held.pop();
        self.goes_on = false;
        let within = self.steps.len() - at - 1;
        if let Some(ReplayStep::Hold { steps, .. }) = self.steps.get_mut(at) {
            *steps = within;
        }
    }

    fn end(&mut self) {
        while let Some(&(_, at, _)) = self.held.last() {
            self.close(at);
        }
    }
}

impl LockReplay {
    /// Makes a replay, by at most so many threads, of a machine with so many cores.
    ///
    /// # Errors
    ///
    /// A sentence: the trace has no acquisition.
    pub fn new(trace: &LockTrace, most_threads: usize, cores: u64) -> Result<LockReplay, String> {
        let begin = busiest(trace);
        let length = WINDOW.min(trace.length.max(1));
        let is_within = |event: &&TracedEvent| (begin..=begin + length).contains(&event.ns);
        let locks = most_used(trace, is_within);
        if locks.is_empty() {
            return Err("the trace has no acquisition of a lock that `towpath preload` carries: its program uses others, or none".into());
        }
        let mut made: Vec<StepMaker> = Vec::new();
        for events in trace.threads.values() {
            let maker = steps(events.iter().filter(is_within), &locks, (begin, begin + length));
            if maker.counts[0] > 0 {
                made.push(maker);
            }
        }
        made.sort_by_key(|maker| std::cmp::Reverse(maker.counts[0]));
        let left_out = made.len().saturating_sub(most_threads);
        made.truncate(most_threads);
        let sum = |which: usize| made.iter().map(|maker| maker.counts[which]).sum::<u64>();
        let mut replay = LockReplay {
            locks: locks.len(),
            acquisitions: sum(0),
            readers: sum(1),
            waited: sum(2),
            waited_ns: made.iter().map(|maker| maker.waited_ns).sum(),
            dropped: trace.dropped,
            part: (begin, length, trace.length),
            left_out,
            scale: 1.0,
            threads: made.into_iter().map(|maker| maker.steps).collect(),
        };
        let whole = if length < trace.length { u64::MAX } else { trace.processor_time };
        replay.limit(whole.min(cores.max(1).saturating_mul(length)));
        Ok(replay)
    }

    /// Limits the work of all to so many nanoseconds.
    ///
    /// The longest times outside locks become rests; if those do not suffice, the work is scaled.
    fn limit(&mut self, processor_time: u64) {
        let mut outside: Vec<(u64, usize, usize)> = Vec::new();
        let mut work = 0;
        for (thread, steps) in self.threads.iter().enumerate() {
            let mut end = 0;
            for (at, step) in steps.iter().enumerate() {
                match step {
                    ReplayStep::Hold { steps, .. } => end = end.max(at + 1 + steps),
                    ReplayStep::Work(ns) => {
                        work += ns;
                        if at >= end {
                            outside.push((*ns, thread, at));
                        }
                    }
                    ReplayStep::Idle(_) => {}
                }
            }
        }
        outside.sort_unstable();
        while work > processor_time
            && let Some((ns, thread, at)) = outside.pop()
        {
            // The remainder of the last one remains work.
            let rests = ns.min(work - processor_time);
            work -= rests;
            self.threads[thread][at] = ReplayStep::Idle(rests);
            if rests < ns {
                self.threads[thread].insert(at + 1, ReplayStep::Work(ns - rests));
            }
        }
        if work > processor_time {
            self.scale = processor_time as f64 / work as f64;
            for step in self.threads.iter_mut().flatten() {
                if let ReplayStep::Work(ns) = step {
                    *ns = (*ns as f64 * self.scale) as u64;
                }
            }
        }
    }

    /// Part of the threads' time in which they waited for locks, in percent.
    pub fn waited_percent(&self) -> f64 {
        let all = self.part.1.max(1) as f64 * self.threads.len().max(1) as f64;
        100.0 * self.waited_ns as f64 / all
    }

    /// Number of acquisitions of each thread.
    pub fn shares(&self) -> Vec<u64> {
        let holds = |step: &&ReplayStep| matches!(step, ReplayStep::Hold { .. });
        self.threads.iter().map(|steps| steps.iter().filter(holds).count() as u64).collect()
    }
}

/// Beginning of the busiest part of a trace.
fn busiest(trace: &LockTrace) -> u64 {
    if trace.length <= WINDOW {
        return 0;
    }
    let place = WINDOW / PLACES;
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for event in trace.threads.values().flatten().filter(|event| event.kind.acquires()) {
        *counts.entry(event.ns / place).or_default() += 1;
    }
    let last = (trace.length - WINDOW) / place;
    let count = |begin: u64| counts.range(begin..begin + PLACES).map(|(_, count)| count).sum::<u64>();
    // The earliest of those that are as busy.
    let begins = counts.keys().map(|begin| (*begin).min(last));
    begins.max_by_key(|begin| (count(*begin), std::cmp::Reverse(*begin))).unwrap_or(0) * place
}

/// The locks that are acquired most, with their numbers.
fn most_used(trace: &LockTrace, is_within: impl Fn(&&TracedEvent) -> bool) -> HashMap<u64, usize> {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    let events = trace.threads.values().flatten().filter(is_within);
    for event in events.filter(|event| event.kind.acquires()) {
        *counts.entry(event.object).or_default() += 1;
    }
    let mut all: Vec<(u64, u64)> = counts.into_iter().collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    all.iter().take(MOST_LOCKS).enumerate().map(|(number, (object, _))| (*object, number)).collect()
}

/// Steps of a thread with these events, from the beginning of the part to its end.
fn steps<'a>(
    events: impl Iterator<Item = &'a TracedEvent>,
    locks: &HashMap<u64, usize>,
    (begin, end): (u64, u64),
) -> StepMaker {
    let mut maker = StepMaker::default();
    // Until its first event, and after its last, the thread may not exist.
    let (mut before, mut is_idle, mut waits) = (begin, true, false);
    let mut sleeps = false;
    for event in events.filter(|event| event.kind != LockEventKind::Site) {
        let gap = event.ns.saturating_sub(before);
        match (is_idle, waits) {
            (true, _) => maker.add(ReplayStep::Idle(gap)),
            (false, true) => maker.waited_ns += gap,
            (false, false) => maker.add(ReplayStep::Work(gap)),
        }
        (before, is_idle) = (event.ns, false);
        let has_waited = std::mem::take(&mut waits);
        match event.kind {
            LockEventKind::Waits => waits = true,
            LockEventKind::Sleeps => sleeps = true,
            LockEventKind::Released => {
                maker.release(event.object);
                is_idle = std::mem::take(&mut sleeps);
            }
            LockEventKind::Rests => is_idle = true,
            LockEventKind::GaveUp | LockEventKind::Site | LockEventKind::Returns => {}
            LockEventKind::Acquired | LockEventKind::Shared | LockEventKind::Tried => {
                if let Some(lock) = locks.get(&event.object) {
                    maker.acquire(event, *lock, has_waited);
                }
            }
        }
    }
    maker.end();
    maker.add(ReplayStep::Idle(end.saturating_sub(before)));
    maker
}
