//! A machine without cache coherence, in the manner of the NEC SX-4 (Gropp & Lusk 1997,
//! Sections 5 and 6): what its memory does.
//!
//! * Every processor has a scalar cache with values of its own. Ordinary loads and stores go
//!   through it: a load that hits may return what memory no longer holds, for ever, and a store
//!   stays in the cache, until the line is displaced or the whole cache is flushed.
//! * Vector moves and the macros of the paper go past it, to the one memory. What a processor
//!   stores there becomes visible later, at random within `memory.window`, different words in any
//!   order; and a load may have been performed earlier, at random within the same time. A
//!   synchronising instruction ends both: it waits for the processor's own stores, and no later
//!   load is performed before it. Stores to one word stay in order, and so do loads of one word.
//! * Updates synchronise, before and after.
//!
//! The threads' side is in `past_cache.rs`.

use std::collections::{BTreeMap, VecDeque};

use crate::engine::{Doing, Engine, NONE, Op};
use crate::events::{Kind, Time};
use crate::memory::copy;

/// Words of the longest vector move that is performed as one: what a vector register
/// holds.
pub(crate) const VECTOR: usize = 256;

/// Words that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub first: u32,
    pub len: u32,
}

impl Range {
    fn meets(self, other: Range) -> bool {
        self.first < other.first + other.len && other.first < self.first + self.len
    }

    /// Its words with their places in it.
    fn words(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.len as usize).map(move |i| (i, self.first as usize + i))
    }
}

/// A store that is under way.
#[derive(Debug)]
struct Posted {
    cpu: usize,
    range: Range,
    /// Each word's new value, and which of its bits are stored.
    values: Vec<(u64, u64)>,
}

/// What memory held before a store became visible, for loads that were performed before
/// that.
#[derive(Debug)]
struct Before {
    time: Time,
    range: Range,
    values: Vec<u64>,
}

/// A line of a scalar cache.
#[derive(Debug)]
struct Line {
    values: Vec<u64>,
    /// Words that were stored to, a bit for each.
    dirty: u128,
}

/// What a processor has for itself.
#[derive(Debug, Default)]
struct Private {
    lines: BTreeMap<usize, Line>,
    /// Its own stores that are not visible yet: what, and when they are.
    under_way: Vec<(Range, Time)>,
    /// Until when it has synchronised: no load is performed earlier.
    synchronised: Time,
    /// When its last accesses to which words were performed: none to the same words is
    /// performed earlier.
    performed: VecDeque<(Range, Time)>,
    /// What polls there synchronises after each poll.
    polls_synchronise: bool,
}

/// All that the machines with coherence have no need of.
#[derive(Debug, Default)]
pub(crate) struct Incoherent {
    cpus: Vec<Private>,
    posted: BTreeMap<u32, Posted>,
    next: u32,
    before: VecDeque<Before>,
}

impl Incoherent {
    pub fn new(processors: usize) -> Self {
        Incoherent { cpus: (0..processors).map(|_| Private::default()).collect(), ..Incoherent::default() }
    }

    /// Whether nothing is under way.
    pub fn check_at_rest(&self) -> Result<(), String> {
        match self.posted.values().next() {
            Some(posted) => Err(format!("a store never became visible: {posted:?}")),
            None => Ok(()),
        }
    }
}

impl Engine {
    // ---- past the cache ----

    /// A store past the cache begins now, and becomes visible within the window.
    pub fn post(&mut self, cpu: usize, range: Range, values: Vec<(u64, u64)>) {
        self.counters.accesses += 1;
        self.progress = self.progress.max(self.now);
        let late = self.random.below(self.p.window + 1);
        let private = &mut self.incoherent.cpus[cpu];
        private.under_way.retain(|(_, time)| *time > self.now);
        // Of the same words in order.
        let after = private.under_way.iter().filter(|(r, _)| r.meets(range)).map(|(_, time)| *time).max();
        let time = (self.now + late).max(after.unwrap_or(0));
        private.under_way.push((range, time));
        private.performed.push_back((range, time));
        let number = self.incoherent.next;
        self.incoherent.next = number.wrapping_add(1);
        self.incoherent.posted.insert(number, Posted { cpu, range, values });
        self.events.push(time, Kind::Visible, number as usize, 0);
    }

    /// A store becomes visible.
    pub fn visible(&mut self, number: usize) {
        let Some(Posted { cpu, range, values }) = self.incoherent.posted.remove(&(number as u32)) else {
            return;
        };
        self.change(cpu, range, |i, old| old & !values[i].1 | values[i].0 & values[i].1);
    }

    /// Memory changes now: what it held is kept for a while, reservations of others are
    /// lost, and spinners look again.
    fn change(&mut self, cpu: usize, range: Range, new: impl Fn(usize, u64) -> u64) {
        let now = self.now;
        let oldest = now.saturating_sub(self.p.window);
        while self.incoherent.before.front().is_some_and(|b| b.time <= oldest) {
            self.incoherent.before.pop_front();
        }
        let values = range.words().map(|(_, word)| self.memory.values[word]).collect();
        self.incoherent.before.push_back(Before { time: now, range, values });
        for (i, word) in range.words() {
            let value = &mut self.memory.values[word];
            *value = new(i, *value);
        }
        self.progress = self.progress.max(now);
        let lines = self.memory.line_of(range.first)..=self.memory.line_of(range.first + range.len - 1);
        for other in 0..self.cpus.len() {
            let it = &mut self.cpus[other];
            if other != cpu && lines.contains(&(it.reservation as usize)) {
                it.reservation = NONE;
            }
            if lines.contains(&(it.spinning as usize)) {
                self.poll_again(other);
            }
        }
    }

    /// Whoever polls there has polled in vain until now.
    fn poll_again(&mut self, cpu: usize) {
        let Some(t) = self.cpus[cpu].current else { return };
        if self.threads[t].doing != Doing::Spinning {
            return;
        }
        self.cpus[cpu].spinning = NONE;
        let period = self.poll_period();
        let thread = &mut self.threads[t];
        let polls = self.now.saturating_sub(thread.clock).div_ceil(period);
        thread.clock += polls * period;
        self.counters.accesses += polls;
        let private = &mut self.incoherent.cpus[cpu];
        if private.polls_synchronise {
            private.synchronised = thread.clock;
        }
        self.until(t);
    }

    /// The thread polls: past the cache until the word's line changes, or through the
    /// cache, where nothing does. Until the deadline at the latest.
    pub fn poll(&mut self, t: usize, word: Option<u32>, synchronising: bool, deadline: Time) {
        let line = word.map_or(NONE, |word| self.memory.line_of(word) as u32);
        self.incoherent.cpus[self.threads[t].cpu].polls_synchronise = synchronising;
        self.wait_for_line(t, line, deadline);
    }

    /// One poll past the cache after another.
    pub fn poll_period(&self) -> Time {
        self.p.memory_latency + self.p.fence
    }

    /// When the processor's own stores to these words are visible, if one isn't yet.
    pub fn own_store(&self, cpu: usize, range: Range) -> Option<Time> {
        let own = &self.incoherent.cpus[cpu].under_way;
        own.iter().filter(|(r, time)| r.meets(range) && *time > self.now).map(|(_, time)| *time).max()
    }

    /// A load past the cache, of words that the processor has no stores to under way:
    /// what memory holds, or held within the window.
    pub fn look(&mut self, cpu: usize, range: Range, into: &mut Vec<u64>) {
        self.counters.accesses += 1;
        self.counters.misses[0] += 1;
        let oldest = self.now.saturating_sub(self.p.window);
        let private = &mut self.incoherent.cpus[cpu];
        while private.performed.front().is_some_and(|(_, time)| *time < oldest) {
            private.performed.pop_front();
        }
        let same = private.performed.iter().filter(|(r, _)| r.meets(range)).map(|(_, time)| *time).max();
        let earliest = oldest.max(private.synchronised).max(same.unwrap_or(0)).min(self.now);
        let time = self.now - self.random.below(self.now - earliest + 1);
        private.performed.push_back((range, time));
        into.clear();
        into.extend(range.words().map(|(_, word)| self.memory.values[word]));
        for before in self.incoherent.before.iter().rev().take_while(|b| b.time > time) {
            for (i, word) in before.range.words() {
                if let Some(value) =
                    (word as u32).checked_sub(range.first).and_then(|n| into.get_mut(n as usize))
                {
                    *value = before.values[i];
                }
            }
        }
    }

    /// A synchronising instruction of the thread: returns when the processor's own stores
    /// are visible. No later load is performed before that.
    pub fn synchronising(&mut self, t: usize) {
        let cpu = self.threads[t].cpu;
        let cost = self.p.fence;
        let private = &mut self.incoherent.cpus[cpu];
        let visible = private.under_way.drain(..).map(|(_, time)| time).max().unwrap_or(0);
        let thread = &mut self.threads[t];
        thread.clock = thread.clock.max(visible) + cost;
        private.synchronised = thread.clock;
        private.performed.clear();
    }

    /// An update at memory, now; the processor has synchronised. Returns what the word
    /// held.
    pub fn update_at_memory(&mut self, cpu: usize, word: u32, op: Op) -> u64 {
        self.counters.accesses += 1;
        let range = Range { first: word, len: 1 };
        let mut value = self.memory.values[word as usize];
        let old = op.apply(&mut value);
        if value != old || matches!(op, Op::Swap(_)) {
            self.change(cpu, range, |_, _| value);
        }
        old
    }

    // ---- through the cache ----

    /// An ordinary access, through the cache. Returns what the cache says that the word
    /// held, and how long that took.
    pub fn ordinary(&mut self, cpu: usize, word: u32, store: Option<u64>) -> (u64, Time) {
        let line = self.memory.line_of(word);
        let first = line << self.memory.shift;
        let there = self.memory.copy(line, cpu) != copy::INVALID;
        if there {
            self.counters.hits += 1;
        } else {
            self.counters.accesses += 1;
            self.counters.misses[0] += 1;
            self.install(line, cpu, copy::SHARED);
            let values = self.memory.values[first..first + (1 << self.memory.shift)].to_vec();
            self.incoherent.cpus[cpu].lines.insert(line, Line { values, dirty: 0 });
        }
        let memory = self.memory.values[word as usize];
        let line = self.incoherent.cpus[cpu].lines.get_mut(&line).expect("a line that is there");
        let place = word as usize - first;
        let old = line.values[place];
        let hit = match store {
            None => {
                self.counters.stale += u64::from(old != memory && line.dirty >> place & 1 == 0);
                self.p.load
            }
            Some(value) => {
                line.values[place] = value;
                line.dirty |= 1 << place;
                self.progress = self.progress.max(self.now);
                self.p.store
            }
        };
        (old, if there { hit } else { hit + self.p.memory_latency })
    }

    /// A line leaves a cache; what was stored to it goes to memory.
    pub fn drop_line(&mut self, line: usize, cpu: usize) {
        self.memory.set_copy(line, cpu, copy::INVALID);
        let Some(it) = self.incoherent.cpus[cpu].lines.remove(&line) else { return };
        let first = (line << self.memory.shift) as u32;
        for (place, &value) in it.values.iter().enumerate().filter(|(place, _)| it.dirty >> place & 1 == 1) {
            self.change(cpu, Range { first: first + place as u32, len: 1 }, |_, _| value);
        }
    }

    /// The whole cache is written back and emptied, now.
    pub fn flush(&mut self, cpu: usize) {
        self.counters.flushes += 1;
        let lines: Vec<usize> = self.incoherent.cpus[cpu].lines.keys().copied().collect();
        lines.into_iter().for_each(|line| self.drop_line(line, cpu));
    }
}
