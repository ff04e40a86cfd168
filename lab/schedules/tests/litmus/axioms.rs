//! The axioms of RC11 (Lahav, Vafeiadis, Kang, Hur & Dreyer 2017, §3), by brute force.
//!
//! Every way is tried in which loads can take their values and writes can be ordered. As in C++20,
//! a release sequence is a store and the updates that follow it, and the order of sequentially
//! consistent events agrees with the whole coherence order of a word, what loads took included.

use std::collections::BTreeSet;

use towpath_machine::Ordering;

use crate::program::{Act, Outcome, Program};

/// An event; those of the initial values come first.
#[derive(Clone, Copy, Debug)]
struct Event {
    thread: Option<usize>,
    act: Act,
    /// The value that it takes and the one that it writes.
    took: Option<u64>,
    wrote: Option<u64>,
}

/// A relation between events: for each a set of others.
#[derive(Clone, PartialEq, Eq)]
struct Relation(Vec<u32>);

impl Relation {
    fn new(size: usize, holds: impl Fn(usize, usize) -> bool) -> Relation {
        let row = |a| (0..size).filter(|&b| holds(a, b)).fold(0, |set, b| set | 1 << b);
        Relation((0..size).map(row).collect())
    }
    fn has(&self, a: usize, b: usize) -> bool {
        self.0[a] >> b & 1 == 1
    }
    fn or(&self, other: &Relation) -> Relation {
        Relation(self.0.iter().zip(&other.0).map(|(a, b)| a | b).collect())
    }
    fn then(&self, other: &Relation) -> Relation {
        let row = |set: &u32| (0..32).filter(|b| set >> b & 1 == 1).fold(0, |all, b| all | other.0[b]);
        Relation(self.0.iter().map(row).collect())
    }
    fn inverse(&self) -> Relation {
        Relation::new(self.0.len(), |a, b| self.has(b, a))
    }
    fn closure(&self) -> Relation {
        let mut all = self.clone();
        loop {
            let more = all.or(&all.then(&all));
            if more == all {
                return all;
            }
            all = more;
        }
    }
    fn reflexive(&self) -> Relation {
        Relation::new(self.0.len(), |a, b| a == b || self.has(a, b))
    }
    fn of(&self, from: impl Fn(usize) -> bool, to: impl Fn(usize) -> bool) -> Relation {
        Relation::new(self.0.len(), |a, b| self.has(a, b) && from(a) && to(b))
    }
    fn is_irreflexive(&self) -> bool {
        (0..self.0.len()).all(|a| !self.has(a, a))
    }
    fn is_acyclic(&self) -> bool {
        self.closure().is_irreflexive()
    }
}

fn word(act: Act) -> Option<usize> {
    match act {
        Act::Load(word, _) | Act::Store(word, ..) | Act::Update(word, ..) | Act::Compare(word, ..) => {
            Some(word)
        }
        Act::Fence(_) => None,
    }
}

impl Event {
    fn is_update(&self) -> bool {
        self.took.is_some() && self.wrote.is_some()
    }
    fn order(&self) -> Ordering {
        match self.act {
            Act::Load(_, order) | Act::Store(_, _, order) | Act::Update(_, _, order) | Act::Fence(order) => {
                order
            }
            Act::Compare(.., success, failure) => {
                if self.wrote.is_some() {
                    success
                } else {
                    failure
                }
            }
        }
    }
    fn is_fence(&self) -> bool {
        matches!(self.act, Act::Fence(_))
    }
    fn acquires(&self) -> bool {
        matches!(self.order(), Ordering::Acquire | Ordering::AcqRel | Ordering::SeqCst)
    }
    fn releases(&self) -> bool {
        matches!(self.order(), Ordering::Release | Ordering::AcqRel | Ordering::SeqCst)
    }
}

/// Program, and whether its sequentially consistent events have an order of their own.
type Question<'a> = (&'a Program, bool);

/// Outcomes that the axioms allow.
pub fn outcomes(program: &Program, is_free: bool) -> BTreeSet<Outcome> {
    let mut events: Vec<Event> = (0..2)
        .map(|word| Event {
            thread: None,
            act: Act::Store(word, 0, Ordering::Relaxed),
            took: None,
            wrote: Some(0),
        })
        .collect();
    for (thread, acts) in program.0.iter().enumerate() {
        events.extend(acts.iter().map(|&act| Event { thread: Some(thread), act, took: None, wrote: None }));
    }
    let mut found = BTreeSet::new();
    let size = events.len();
    choose_sources((program, is_free), &mut events, 2, &mut vec![usize::MAX; size], &mut found);
    found
}

/// Tries each write as the source of each event that takes a value.
fn choose_sources(
    (program, is_free): Question<'_>,
    events: &mut Vec<Event>,
    at: usize,
    from: &mut Vec<usize>,
    found: &mut BTreeSet<Outcome>,
) {
    if at == events.len() {
        if let Some(events) = values(events, from) {
            order_writes((program, is_free), &events, from, found);
        }
        return;
    }
    if matches!(events[at].act, Act::Store(..) | Act::Fence(_)) {
        return choose_sources((program, is_free), events, at + 1, from, found);
    }
    for source in 0..events.len() {
        let is_write = !matches!(events[source].act, Act::Load(..) | Act::Fence(_));
        if source != at && is_write && word(events[source].act) == word(events[at].act) {
            from[at] = source;
            choose_sources((program, is_free), events, at + 1, from, found);
        }
    }
    from[at] = usize::MAX;
}

/// The events with their values. `None`: the sources go round in circles, or one of them
/// does not write.
fn values(events: &[Event], from: &[usize]) -> Option<Vec<Event>> {
    let mut events = events.to_vec();
    let mut known: Vec<bool> = from.iter().map(|f| *f == usize::MAX).collect();
    for event in events.iter_mut() {
        if let Act::Store(_, value, _) = event.act {
            event.wrote = Some(value);
        }
    }
    while known.contains(&false) {
        let next = (0..events.len()).find(|&e| !known[e] && known[from[e]])?;
        let value = events[from[next]].wrote?;
        events[next].took = Some(value);
        events[next].wrote = match events[next].act {
            Act::Update(_, add, _) => Some(value.wrapping_add(add)),
            Act::Compare(_, old, new, ..) => (old == value).then_some(new),
            _ => None,
        };
        known[next] = true;
    }
    Some(events)
}

fn order_writes(
    (program, is_free): Question<'_>,
    events: &[Event],
    from: &[usize],
    found: &mut BTreeSet<Outcome>,
) {
    let of = |of: usize| -> Vec<usize> {
        let writes = |e: &usize| events[*e].wrote.is_some() && word(events[*e].act) == Some(of);
        (0..events.len()).filter(writes).collect()
    };
    for first in permutations(&of(0)[1..]) {
        for second in permutations(&of(1)[1..]) {
            let orders = [[vec![0], first.clone()].concat(), [vec![1], second].concat()];
            let last = [0, 1].map(|word: usize| events[*orders[word].last().unwrap()].wrote.unwrap());
            let taken =
                |thread| events.iter().filter(|e| e.thread == Some(thread)).filter_map(|e| e.took).collect();
            let outcome = Outcome { taken: (0..program.0.len()).map(taken).collect(), last };
            if !found.contains(&outcome) && is_consistent(events, from, &orders, is_free) {
                found.insert(outcome);
            }
        }
    }
}

fn permutations(of: &[usize]) -> Vec<Vec<usize>> {
    if of.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (n, first) in of.iter().enumerate() {
        let rest: Vec<usize> = [&of[..n], &of[n + 1..]].concat();
        all.extend(permutations(&rest).into_iter().map(|rest| [vec![*first], rest].concat()));
    }
    all
}

fn is_consistent(events: &[Event], from: &[usize], orders: &[Vec<usize>; 2], is_free: bool) -> bool {
    let size = events.len();
    let relation = |holds: &dyn Fn(usize, usize) -> bool| Relation::new(size, holds);
    let place = |e: usize| orders.iter().find_map(|order| order.iter().position(|w| *w == e));
    let same =
        |a: usize, b: usize| word(events[a].act).is_some() && word(events[a].act) == word(events[b].act);
    let sb = relation(&|a, b| match (events[a].thread, events[b].thread) {
        (None, Some(_)) => true,
        (Some(one), Some(other)) => one == other && a < b,
        _ => false,
    });
    let rf = relation(&|a, b| from[b] == a);
    let mo = relation(&|a, b| {
        events[a].wrote.is_some() && events[b].wrote.is_some() && same(a, b) && place(a) < place(b)
    });
    let rb = rf.inverse().then(&mo);
    let rb = Relation::new(size, |a, b| a != b && rb.has(a, b));
    let eco = rf.or(&mo).or(&rb).closure();

    // Synchronisation.
    let update = |e: usize| events[e].is_update();
    let identity = relation(&|a, b| a == b);
    let chain = rf.of(|_| true, update).closure().or(&identity);
    let sequence = chain.of(|e| events[e].wrote.is_some(), |_| true);
    let fence_before = sb.of(|e| events[e].is_fence(), |e| events[e].wrote.is_some()).or(&identity);
    let release = fence_before.of(|e| events[e].releases(), |_| true).then(&sequence);
    let fence_after = sb.of(|e| events[e].took.is_some(), |e| events[e].is_fence()).or(&identity);
    let sw = release.then(&rf).then(&fence_after.of(|_| true, |e| events[e].acquires()));
    let hb = sb.or(&sw).closure();

    if !hb.is_irreflexive() || !eco.is_irreflexive() || !hb.then(&eco).is_irreflexive() {
        return false;
    }
    // Atomicity: no write between an update (one event here) and its source.
    let between = rb.then(&mo);
    if (0..size).any(|e| update(e) && between.has(e, e)) {
        return false;
    }
    // The order of sequentially consistent events.
    let elsewhere = Relation::new(size, |a, b| sb.has(a, b) && !same(a, b));
    let scb = sb
        .or(&elsewhere.then(&hb).then(&elsewhere))
        .or(&Relation::new(size, |a, b| hb.has(a, b) && same(a, b)))
        .or(&eco);
    let strong = |e: usize| events[e].order() == Ordering::SeqCst && events[e].thread.is_some();
    let strong_fence = |e: usize| strong(e) && events[e].is_fence();
    let hb_or_same = hb.reflexive();
    let strong_set = relation(&|a, b| a == b && strong(a));
    let left = strong_set.or(&hb_or_same.of(strong_fence, |_| true));
    let right = strong_set.or(&hb_or_same.of(|_| true, strong_fence));
    let base = left.then(&scb).then(&right).of(strong, strong);
    let fences = hb.or(&hb.then(&eco).then(&hb)).of(strong_fence, strong_fence);
    // No values out of thin air; and what the explorer leaves out: load buffering, and an order of
    // sequentially consistent events that contradicts that of the others, unless it is free.
    let (strong_order, others) = (base.or(&fences), sb.or(&rf));
    match is_free {
        true => strong_order.is_acyclic() && others.is_acyclic(),
        false => strong_order.or(&others).is_acyclic(),
    }
}
