//! A machine without cache coherence, in the manner of the NEC SX-4 (Gropp & Lusk 1997,
//! Sections 5 and 6): what its memory does.
//!
//! * Every processor has a scalar cache with values of its own. Ordinary loads and stores go
//!   through it: a load that hits may return what memory no longer holds, for ever, and a store
//!   stays in the cache, until the line is displaced or the whole cache is flushed.
//! * Vector moves and the macros of the paper go past it, to the one memory. A processor's stores
//!   there become visible later, at random within `memory.window`, different words in any order;
//!   and a load may have been performed earlier, at random within the same time. A synchronising
//!   instruction ends both: it waits for the processor's own stores, and no later load is performed
//!   before it. Stores to one word stay in order, and so do loads of one word.
//! * Updates synchronise, before and after.
//!
//! The threads' side is in `processor/uncached.rs`.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use crate::engine::Engine;
use crate::event_queue::{EventKind, Time};
use crate::interconnect::{Effect, Interconnect};
use crate::memory::copy;
use crate::request::{NONE, Op};
use crate::thread::Doing;

/// Number of words of the longest vector move that is performed as one: those of a vector
/// register.
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
struct StoreUnderWay {
    cpu: usize,
    range: Range,
    /// Each word's new value, and which of its bits are stored.
    values: Vec<(u64, u64)>,
}

/// Old values of memory, for loads that were performed before a store became visible.
#[derive(Debug)]
struct Before {
    time: Time,
    range: Range,
    values: Vec<u64>,
}

/// A line of a scalar cache.
#[derive(Debug)]
struct CacheLine {
    values: Vec<u64>,
    /// Words that were stored to, a bit for each.
    dirty: u128,
}

/// State of one processor.
#[derive(Debug, Default)]
struct Private {
    lines: BTreeMap<usize, CacheLine>,
    /// The processor's own stores that are not visible yet, with the times at which they
    /// will be.
    under_way: Vec<(Range, Time)>,
    /// Time until which it has synchronised: no load is performed earlier.
    synchronised: Time,
    /// Times at which its last accesses were performed, by their words: no access to
    /// these words is performed earlier.
    performed: VecDeque<(Range, Time)>,
    /// True if its polls synchronise, each after itself.
    polls_synchronise: bool,
}

/// The caches that are not coherent, and the accesses past them that are under way.
#[derive(Debug, Default)]
pub(crate) struct UncachedMemory {
    cpus: Vec<Private>,
    posted: BTreeMap<u32, StoreUnderWay>,
    next: u32,
    before: VecDeque<Before>,
}

/// The memory as an interconnect, and as the threads' side accesses it.
#[derive(Clone, Debug)]
pub(crate) struct Uncached(pub Rc<RefCell<UncachedMemory>>);

impl Uncached {
    pub fn new(processors: usize) -> Self {
        let cpus = (0..processors).map(|_| Private::default()).collect();
        Uncached(Rc::new(RefCell::new(UncachedMemory { cpus, ..UncachedMemory::default() })))
    }
}

impl Interconnect for Uncached {
    fn issue(&mut self, _e: &mut Engine, cpu: usize) {
        unreachable!("processor {cpu} asks for a line: no access waits for one without coherence");
    }

    fn on_event(&mut self, e: &mut Engine, kind: EventKind, a: usize, _b: usize) -> Effect {
        match kind {
            EventKind::Visible => self.0.borrow_mut().visible(e, a),
            _ => unreachable!("{kind:?} without coherence"),
        }
        Effect::Nothing
    }

    fn evict(&mut self, e: &mut Engine, line: usize, cpu: usize) {
        self.0.borrow_mut().drop_line(e, line, cpu);
    }

    /// Every store became visible.
    fn check_at_rest(&self, _e: &Engine) -> Result<(), String> {
        match self.0.borrow().posted.values().next() {
            Some(posted) => Err(format!("a store never became visible: {posted:?}")),
            None => Ok(()),
        }
    }
}

/// Returns the time from one poll past the cache to the next.
fn poll_period(e: &Engine) -> Time {
    e.p.memory_latency + e.p.fence
}

impl UncachedMemory {
    // ---- past the cache ----

    /// A store past the cache begins now, and becomes visible within the window.
    pub fn post(&mut self, e: &mut Engine, cpu: usize, range: Range, values: Vec<(u64, u64)>) {
        e.counters.accesses += 1;
        e.progress = e.progress.max(e.now);
        let late = e.random.below(e.p.window + 1);
        let private = &mut self.cpus[cpu];
        private.under_way.retain(|(_, time)| *time > e.now);
        // Of the same words in order.
        let after = private.under_way.iter().filter(|(r, _)| r.meets(range)).map(|(_, time)| *time).max();
        let time = (e.now + late).max(after.unwrap_or(0));
        private.under_way.push((range, time));
        private.performed.push_back((range, time));
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.posted.insert(number, StoreUnderWay { cpu, range, values });
        e.events.push(time, EventKind::Visible, number as usize, 0);
    }

    /// A store becomes visible.
    fn visible(&mut self, e: &mut Engine, number: usize) {
        let Some(StoreUnderWay { cpu, range, values }) = self.posted.remove(&(number as u32)) else {
            return;
        };
        self.change(e, cpu, range, |i, old| old & !values[i].1 | values[i].0 & values[i].1);
    }

    /// Changes memory now: its old values are kept for a while, reservations of other
    /// processors are lost, and waiters that spin look again.
    fn change(&mut self, e: &mut Engine, cpu: usize, range: Range, new: impl Fn(usize, u64) -> u64) {
        let now = e.now;
        let oldest = now.saturating_sub(e.p.window);
        while self.before.front().is_some_and(|b| b.time <= oldest) {
            self.before.pop_front();
        }
        let values = range.words().map(|(_, word)| e.memory.values[word]).collect();
        self.before.push_back(Before { time: now, range, values });
        for (i, word) in range.words() {
            let value = &mut e.memory.values[word];
            *value = new(i, *value);
        }
        e.progress = e.progress.max(now);
        let lines = e.memory.line_of(range.first)..=e.memory.line_of(range.first + range.len - 1);
        for other in 0..e.cpus.len() {
            let it = &mut e.cpus[other];
            if other != cpu && lines.contains(&(it.reservation as usize)) {
                it.reservation = NONE;
            }
            if lines.contains(&(it.spinning as usize)) {
                self.poll_again(e, other);
            }
        }
    }

    /// Charges a waiter's polls until now, which found no change.
    fn poll_again(&mut self, e: &mut Engine, cpu: usize) {
        let Some(t) = e.cpus[cpu].current else { return };
        if e.threads[t].doing != Doing::Spinning {
            return;
        }
        e.cpus[cpu].spinning = NONE;
        let period = poll_period(e);
        let thread = &mut e.threads[t];
        let polls = e.now.saturating_sub(thread.clock).div_ceil(period);
        thread.clock += polls * period;
        e.counters.accesses += polls;
        let private = &mut self.cpus[cpu];
        if private.polls_synchronise {
            private.synchronised = thread.clock;
        }
        e.until(t);
    }

    /// The thread polls: past the cache until the word's line changes, or through the
    /// cache, where nothing does. Until the deadline at the latest.
    pub fn poll(&mut self, e: &mut Engine, t: usize, word: Option<u32>, synchronising: bool, deadline: Time) {
        let line = word.map_or(NONE, |word| e.memory.line_of(word) as u32);
        self.cpus[e.threads[t].cpu].polls_synchronise = synchronising;
        e.wait_for_line(t, line, deadline);
    }

    /// Returns when the processor's own stores to these words are visible, if one isn't
    /// yet.
    pub fn own_store(&self, e: &Engine, cpu: usize, range: Range) -> Option<Time> {
        let own = &self.cpus[cpu].under_way;
        own.iter().filter(|(r, time)| r.meets(range) && *time > e.now).map(|(_, time)| *time).max()
    }

    /// A load past the cache, of words that the processor has no stores to under way:
    /// what memory holds, or held within the window.
    pub fn look(&mut self, e: &mut Engine, cpu: usize, range: Range, into: &mut Vec<u64>) {
        e.counters.accesses += 1;
        e.counters.misses[0] += 1;
        let oldest = e.now.saturating_sub(e.p.window);
        let private = &mut self.cpus[cpu];
        while private.performed.front().is_some_and(|(_, time)| *time < oldest) {
            private.performed.pop_front();
        }
        let same = private.performed.iter().filter(|(r, _)| r.meets(range)).map(|(_, time)| *time).max();
        let earliest = oldest.max(private.synchronised).max(same.unwrap_or(0)).min(e.now);
        let time = e.now - e.random.below(e.now - earliest + 1);
        private.performed.push_back((range, time));
        into.clear();
        into.extend(range.words().map(|(_, word)| e.memory.values[word]));
        for before in self.before.iter().rev().take_while(|b| b.time > time) {
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
    pub fn synchronising(&mut self, e: &mut Engine, t: usize) {
        let cpu = e.threads[t].cpu;
        let cost = e.p.fence;
        let private = &mut self.cpus[cpu];
        let visible = private.under_way.drain(..).map(|(_, time)| time).max().unwrap_or(0);
        let thread = &mut e.threads[t];
        thread.clock = thread.clock.max(visible) + cost;
        private.synchronised = thread.clock;
        private.performed.clear();
    }

    /// Updates a word at memory, now; the processor has synchronised. Returns the word's
    /// old value.
    pub fn update_at_memory(&mut self, e: &mut Engine, cpu: usize, word: u32, op: Op) -> u64 {
        e.counters.accesses += 1;
        let range = Range { first: word, len: 1 };
        let mut value = e.memory.values[word as usize];
        let old = op.apply(&mut value);
        if value != old || matches!(op, Op::Swap(_)) {
            self.change(e, cpu, range, |_, _| value);
        }
        old
    }

    // ---- through the cache ----

    /// Performs an ordinary access through the cache. The line was there, or has been put
    /// there just now. Returns the word's old value in the cache, and the access's time.
    pub fn ordinary(
        &mut self,
        e: &mut Engine,
        cpu: usize,
        word: u32,
        store: Option<u64>,
        there: bool,
    ) -> (u64, Time) {
        let line = e.memory.line_of(word);
        let first = line << e.memory.shift;
        if there {
            e.counters.hits += 1;
        } else {
            let values = e.memory.values[first..first + (1 << e.memory.shift)].to_vec();
            self.cpus[cpu].lines.insert(line, CacheLine { values, dirty: 0 });
        }
        let memory = e.memory.values[word as usize];
        let line = self.cpus[cpu].lines.get_mut(&line).expect("a line that is there");
        let place = word as usize - first;
        let old = line.values[place];
        let hit = match store {
            None => {
                e.counters.stale += u64::from(old != memory && line.dirty >> place & 1 == 0);
                e.p.load
            }
            Some(value) => {
                line.values[place] = value;
                line.dirty |= 1 << place;
                e.progress = e.progress.max(e.now);
                e.p.store
            }
        };
        (old, if there { hit } else { hit + e.p.memory_latency })
    }

    /// Takes a line out of a cache; the words that were stored to go to memory.
    fn drop_line(&mut self, e: &mut Engine, line: usize, cpu: usize) {
        e.memory.set_copy(line, cpu, copy::INVALID);
        let Some(it) = self.cpus[cpu].lines.remove(&line) else { return };
        let first = (line << e.memory.shift) as u32;
        for (place, &value) in it.values.iter().enumerate().filter(|(place, _)| it.dirty >> place & 1 == 1) {
            self.change(e, cpu, Range { first: first + place as u32, len: 1 }, |_, _| value);
        }
    }

    /// The whole cache is written back and emptied, now.
    pub fn flush(&mut self, e: &mut Engine, cpu: usize) {
        e.counters.flushes += 1;
        let lines: Vec<usize> = self.cpus[cpu].lines.keys().copied().collect();
        lines.into_iter().for_each(|line| self.drop_line(e, line, cpu));
    }
}
