//! Steps on words: the writes that a step may take, and the knowledge that it gives.

use std::rc::Rc;

use towpath_machine::Ordering;

use super::{GAP, MAX_STALE, MemoryModel, Released, ThreadView, WordWrite, releases};
use crate::delayed::DelayedStore;
use crate::footprint::TouchedObject;
use crate::machine::{CLOCKS, Clock, RunState, join};
use crate::pending::WordAccess;
use crate::thread::{ExploredThread, Life};

fn acquires(order: Ordering) -> bool {
    matches!(order, Ordering::Acquire | Ordering::AcqRel | Ordering::SeqCst)
}

impl RunState {
    /// The `n`-th of the writes that the thread's next step may take of its word (or go
    /// behind, if it stores), from the latest one back; by its place in the modification order.
    pub fn candidate(&self, thread: usize, n: u8) -> Option<usize> {
        let t = &self.threads[thread];
        let TouchedObject::Word(word) = t.pending.object else { return None };
        let state = &self.words[word];
        let last = state.last();
        let (Some(slot), MemoryModel::C11) = (state.slot, self.model) else {
            return (n == 0 && fits(state.write(last), t)).then_some(last);
        };
        let (now, ordered) = (t.view.now.at(slot), self.views.ordered.at(slot));
        let is_tired =
            t.view.stale.get(slot).is_some_and(|stale| *stale >= MAX_STALE[usize::from(self.is_weakened)]);
        let mut left = n;
        // Steps of newer writes on which this thread does not depend yet.
        let mut avoidable = [0; CLOCKS];
        for at in (0..=last).rev() {
            let write = state.write(at);
            // Where states are merged, any write that the view allows.
            if at < last && !self.merges {
                let (by, step) = state.write(at + 1).by;
                let is_ordered = t.pending.access.order(0) == Ordering::SeqCst;
                if t.deps[by].max(self.fences.by_all[by]) < step
                    && !(is_ordered && self.fences.wrote[by].max(state.strong[by]) >= step)
                {
                    avoidable[by] = avoidable[by].max(step);
                }
                if is_tired {
                    return None;
                }
            }
            if write.at < now {
                return None;
            }
            let is_hidden = match t.pending.access {
                WordAccess::Kernel => write.at < self.views.kernel.at(slot),
                access if access.order(write.value) != Ordering::SeqCst => false,
                access => match &self.strong {
                    Some(strong) => !strong.permits(t.strong, word, write.at, access.writes(write.value)),
                    None => write.at < ordered,
                },
            };
            let comes_after = avoidable.iter().zip(&write.deps).all(|(step, past)| past >= step);
            let has_space = at == last || state.write(at + 1).at - write.at > 1;
            if !is_hidden && comes_after && has_space && fits(write, t) {
                match left {
                    0 => return Some(at),
                    _ => left -= 1,
                }
            }
        }
        None
    }

    /// Returns whether a thread can take this write only because an ordering is weakened.
    pub fn is_breach(&self, thread: usize, at: usize) -> bool {
        let t = &self.threads[thread];
        let TouchedObject::Word(word) = t.pending.object else { return false };
        let state = &self.words[word];
        let Some(slot) = state.slot else { return false };
        let write = state.write(at);
        let order = t.pending.written.map(|orders| match t.pending.access {
            WordAccess::Compare { expected, .. } if write.value != expected => orders.1,
            _ => orders.0,
        });
        let [ordered, kernel] = &self.views.written;
        write.at < t.view.written.now.at(slot)
            || match t.pending.access {
                WordAccess::Kernel => write.at < kernel.at(slot),
                access => {
                    order.unwrap_or(access.order(write.value)) == Ordering::SeqCst
                        && write.at < ordered.at(slot)
                }
            }
    }

    /// The value that the step in progress takes of the word.
    pub fn old_value(&self, word: usize) -> u64 {
        self.words[word].write(self.taken(word)).value
    }

    /// The write that the step in progress takes of the word.
    #[inline]
    fn taken(&self, word: usize) -> usize {
        self.taken.filter(|(of, _)| *of == word).map_or(self.words[word].last(), |(_, at)| at)
    }

    /// Returns whether the step in progress takes an older value than the latest one.
    pub fn is_stale(&self, word: usize) -> bool {
        self.taken(word) != self.words[word].last()
    }

    /// Takes the value of the word that was chosen.
    pub fn read_word(&mut self, index: usize, word: usize, order: Ordering) {
        let at = self.taken(word);
        self.footprint.touch(TouchedObject::Word(word), false);
        if self.current.is_none() {
            return;
        }
        self.settle_word(word);
        let (t, state) = (&mut self.threads[index], &self.words[word]);
        let write = state.write(at);
        join(&mut t.read, &write.released.clock);
        t.strong.read |= write.released.strong;
        if acquires(order) {
            join(&mut t.clock, &write.released.clock);
            t.strong.now |= write.released.strong;
        }
        if !t.pending.access.writes(write.value) {
            let place = write.at;
            self.note_strong(index, word, place, false, order);
        }
        let (t, state) = (&mut self.threads[index], &self.words[word]);
        let write = state.write(at);
        if self.model == MemoryModel::Sc {
            return;
        }
        if order == Ordering::SeqCst {
            // Two that take the latest value can be exchanged.
            self.footprint.touch(TouchedObject::Word(word), at != state.last());
            self.footprint.touch(TouchedObject::Fence, false);
        }
        let written = self.written.unwrap_or(order);
        let Some(slot) = state.slot else { return };
        if !self.merges {
            if t.view.stale.len() <= slot {
                t.view.stale.resize(slot + 1, 0);
            }
            let is_news = write.at > t.view.now.at(slot);
            t.view.stale[slot] = match at == state.last() {
                false if is_news => 1,
                false => t.view.stale[slot] + 1,
                true => 0,
            };
        }
        t.view.now.raise(slot, write.at);
        if let Some(view) = &write.released.view {
            match acquires(order) {
                true => t.view.now.join(view),
                false => t.view.read.join(view),
            }
        }
        if order == Ordering::SeqCst {
            self.views.ordered.raise(slot, write.at);
        }
        if self.is_weakened {
            let mine = &mut t.view.written;
            mine.now.raise(slot, write.at);
            if let Some(view) = &write.released.written {
                match acquires(written) {
                    true => mine.now.join(view),
                    false => mine.read.join(view),
                }
            }
            if written == Ordering::SeqCst {
                self.views.written[0].raise(slot, write.at);
            }
        }
    }

    /// Writes the word, behind the write that was chosen; an update also marks that one.
    pub fn write_word(&mut self, index: usize, word: usize, value: u64, order: Ordering, updates: bool) {
        let at = self.taken(word);
        let mut released = Released::default();
        if self.current.is_some() {
            released = self.release_as(index, order, self.written.unwrap_or(order));
        }
        let mut is_between = false;
        if updates {
            let source = self.words[word].write_mut(at);
            is_between = std::mem::replace(&mut source.updated, true);
            if self.current.is_some() {
                let handed_on = source.released.clone();
                released.join(&handed_on);
            }
        }
        let place = self.insert(word, at, value, released);
        if is_between {
            // The update that took that write takes this one instead.
            self.words[word].write_mut(at + 1).updated = true;
        }
        if let Some(current) = self.current {
            self.threads[current].moves_write = true;
        }
        self.settle_word(word);
        self.settle_if_released(index, order);
        if !updates && self.current.is_some() && self.words[word].slot.is_some() {
            self.delay_store(index, DelayedStore::Word { word, place });
        }
        if let (Some(index), MemoryModel::C11) = (self.current, self.model) {
            let slot = self.words[word].slot.expect("a word that was written");
            self.threads[index].view.now.raise(slot, place);
            if let Some(stale) = self.threads[index].view.stale.get_mut(slot) {
                *stale = 0;
            }
            if order == Ordering::SeqCst {
                self.footprint.touch(TouchedObject::Fence, false);
                self.views.ordered.raise(slot, place);
            }
            self.note_strong(index, word, place, true, order);
            if self.is_weakened {
                self.threads[index].view.written.now.raise(slot, place);
                if self.written.unwrap_or(order) == Ordering::SeqCst {
                    self.views.written[0].raise(slot, place);
                }
            }
        }
    }

    /// Places a write behind the one at `at`: takes others' reservations, and lets those
    /// look again that wait for a change. Returns its place in the modification order.
    fn insert(&mut self, word: usize, at: usize, value: u64, released: Released) -> u64 {
        let (current, model, started) = (self.current, self.model, !self.threads.is_empty());
        let views = &mut self.views;
        let state = &mut self.words[word];
        let (mut by, mut deps) = ((0, 0), [0; CLOCKS]);
        if let Some(index) = current {
            deps = self.threads[index].deps;
            by = (index, deps[index]);
            join(&mut deps, &state.wrote);
            join(&mut deps, &state.read);
        }
        let changes = state.value() != value;
        let mut place = 0;
        if started && model == MemoryModel::C11 {
            state.slot.get_or_insert_with(|| {
                views.slots.push(word);
                let before = views.numbers.partition_point(|&other| other < word);
                views.numbers.insert(before, word);
                views.slots.len() - 1
            });
            let before = state.write(at).at;
            place = match state.later.get(at) {
                None => before + GAP,
                Some(next) => before + (next.at - before) / 2,
            };
            let write = WordWrite { value, at: place, by, deps, updated: false, released };
            state.later.insert(at, write);
        } else {
            state.later.clear();
            state.first = WordWrite { value, released, ..WordWrite::default() };
        }
        for (index, t) in self.threads.iter_mut().enumerate() {
            if t.linked == Some(word) && current != Some(index) {
                t.linked = None;
            }
            if changes {
                t.futile = 0;
            }
        }
        self.footprint.touch(TouchedObject::Word(word), true);
        place
    }

    /// Places a write in the name of a thread behind all others.
    ///
    /// The kernel's, or one that the thread has made before and that comes now.
    pub fn put_last(&mut self, index: usize, word: usize, value: u64, releases: bool) {
        // (M1) Release: the kernel frees a lock after it has put a word back; pairs with the
        // Acquire (C11) of the next holder in `take`.
        let order = if releases { Ordering::Release } else { Ordering::Relaxed };
        let released = self.release(index, order);
        let place = self.insert(word, self.words[word].last(), value, released);
        if let Some(slot) = self.words[word].slot {
            self.threads[index].view.now.raise(slot, place);
            if self.is_weakened {
                self.threads[index].view.written.now.raise(slot, place);
            }
        }
    }

    /// Makes two writes of a thread, the latest of their words, one: to see either is to
    /// see both.
    pub fn join_writes(&mut self, words: [usize; 2]) {
        let places = words.map(|word| {
            let state = &self.words[word];
            state.slot.map(|slot| (slot, state.write(state.last()).at))
        });
        for (word, other) in [(words[0], places[1]), (words[1], places[0])] {
            let state = &mut self.words[word];
            if let (Some((slot, at)), Some(write)) = (other, state.later.last_mut()) {
                Rc::make_mut(write.released.view.get_or_insert_default()).raise(slot, at);
                if self.is_weakened {
                    Rc::make_mut(write.released.written.get_or_insert_default()).raise(slot, at);
                }
            }
        }
    }

    /// Time has passed, so that the thread sees the latest values.
    pub fn catch_up(&mut self, index: usize) {
        let ThreadView { now, written, .. } = &mut self.threads[index].view;
        for state in &self.words {
            if let Some(slot) = state.slot {
                now.raise(slot, state.write(state.last()).at);
                if self.is_weakened {
                    written.now.raise(slot, state.write(state.last()).at);
                }
            }
        }
    }

    /// Joins released knowledge to the thread's.
    pub fn acquire(&mut self, index: usize, released: &Released) {
        let t = &mut self.threads[index];
        join(&mut t.clock, &released.clock);
        t.strong.now |= released.strong;
        if let Some(view) = &released.view {
            t.view.now.join(view);
        }
        if let Some(view) = &released.written {
            t.view.written.now.join(view);
        }
    }

    /// Returns the knowledge that a write with this order makes visible.
    pub fn release(&mut self, index: usize, order: Ordering) -> Released {
        self.release_as(index, order, order)
    }

    /// Returns the knowledge that a write makes visible, weakened or not.
    fn release_as(&mut self, index: usize, order: Ordering, written: Ordering) -> Released {
        let t = &mut self.threads[index];
        let mine = &t.view.written;
        let written = match releases(written) {
            true => self.is_weakened.then(|| Rc::new(mine.now.clone())),
            false => mine.fenced.clone(),
        };
        if releases(order) {
            let clock = t.clock;
            t.clock[index] += 1;
            let view = (self.model == MemoryModel::C11).then(|| Rc::new(t.view.now.clone()));
            Released { clock, strong: t.strong.now, view, written }
        } else {
            Released { clock: t.fenced, strong: t.strong.fenced, view: t.view.fenced.clone(), written }
        }
    }

    /// Effect that a fence would have if it were not weakened from this order.
    pub fn written_fence(&mut self, index: usize, order: Ordering) {
        let mine = &mut self.threads[index].view.written;
        if acquires(order) {
            mine.now.join(&mine.read);
        }
        if order == Ordering::SeqCst {
            mine.now.join(&self.views.written[0]);
            self.views.written[0].join(&mine.now);
        }
        if releases(order) {
            mine.fenced = Some(Rc::new(mine.now.clone()));
        }
    }

    /// A fence; `is_as_written` unless it is weakened to this order.
    pub fn fence(&mut self, index: usize, order: Ordering, is_as_written: bool) {
        if is_as_written && self.is_weakened {
            self.written_fence(index, order);
        }
        self.settle_if_released(index, order);
        let t = &mut self.threads[index];
        if order == Ordering::SeqCst {
            t.fences_lightly();
        }
        if acquires(order) {
            let read = t.read;
            join(&mut t.clock, &read);
            t.strong.now |= t.strong.read;
            let ThreadView { now, read, .. } = &mut t.view;
            now.join(read);
        }
        if order == Ordering::SeqCst && self.model == MemoryModel::C11 {
            self.footprint.touch(TouchedObject::Fence, true);
            t.view.now.join(&self.views.ordered);
            self.views.ordered.join(&t.view.now);
            self.note_strong_fence(index);
        }
        if releases(order) {
            let released = self.release(index, order);
            let t = &mut self.threads[index];
            (t.fenced, t.strong.fenced, t.view.fenced) = (released.clock, released.strong, released.view);
        }
    }

    /// A light fence of a thread, or none. Returns whether it is a whole one.
    pub fn fence_lightly(&mut self, index: usize, is_kept: bool) -> bool {
        let Some(t) = self.threads.get_mut(index) else { return false };
        if self.is_weakened {
            t.view.written.light.clone_from(&t.view.written.now);
        }
        if is_kept {
            t.view.light.clone_from(&t.view.now);
        }
        is_kept && t.fences_lightly()
    }

    /// A heavy fence of a thread: whole fences of all.
    ///
    /// A write may have been moved behind it by its thread's compiler, up to the next light fence:
    /// that thread makes the rest of its fence there. One that is left out has its effect on what
    /// would be seen if it were not.
    pub fn fence_all(&mut self, index: usize, is_kept: bool) {
        self.footprint.all = true;
        // (M4) SeqCst, all: fences of all threads; pair with each other and (M3).
        if !is_kept {
            (0..self.threads.len()).for_each(|other| self.written_fence(other, Ordering::SeqCst));
            return self.written_fence(index, Ordering::SeqCst);
        }
        // (M4) SeqCst: the fence of the thread itself; pairs with the others' and (M3).
        self.fence(index, Ordering::SeqCst, true);
        for other in (0..self.threads.len()).filter(|&other| other != index) {
            let t = &mut self.threads[other];
            if t.moves_write && t.life == Life::Alive {
                t.owes_fence = true;
                self.views.ordered.join(&t.view.light);
                self.views.written[0].join(&t.view.written.light);
            } else {
                // (M4) SeqCst: the fence of another thread; pairs with the others' and (M3).
                self.fence(other, Ordering::SeqCst, true);
            }
        }
        // (M4) SeqCst: the fence of the thread itself; pairs with the others' and (M3).
        self.fence(index, Ordering::SeqCst, true);
    }

    /// The kernel wakes sleepers on a word, in the name of this thread.
    pub fn tell_kernel(&mut self, index: usize, word: usize) {
        if let (Some(slot), Some(t)) = (self.words[word].slot, self.threads.get(index)) {
            self.views.kernel.raise(slot, t.view.now.at(slot));
            if self.is_weakened {
                self.views.written[1].raise(slot, t.view.written.now.at(slot));
            }
        }
    }

    /// Notes the steps on which the one depends that was just taken.
    pub fn depend(&mut self, index: usize) {
        let footprint = self.footprint;
        let mut deps = self.threads[index].deps;
        join(&mut deps, &self.fences.by_all);
        if footprint.all {
            self.threads.iter().for_each(|t| join(&mut deps, &t.deps));
            self.fences.by_all = deps;
        }
        let is_strong = footprint.touched.contains(&Some((TouchedObject::Fence, false)));
        for &(touched, changed) in footprint.touched.iter().flatten() {
            let (wrote, read) = self.dependencies(touched);
            join(&mut deps, wrote);
            if changed {
                join(&mut deps, read);
            }
        }
        for &(touched, changed) in footprint.touched.iter().flatten() {
            let (wrote, read) = self.dependencies(touched);
            join(if changed { wrote } else { read }, &deps);
            if let (TouchedObject::Word(word), true) = (touched, is_strong) {
                join(&mut self.words[word].strong, &deps);
            }
        }
        self.threads[index].deps = deps;
    }

    /// Steps on which the last accesses of an object depend: those that changed it, and
    /// others.
    fn dependencies(&mut self, object: TouchedObject) -> (&mut Clock, &mut Clock) {
        match object {
            TouchedObject::Word(word) => {
                let state = &mut self.words[word];
                (&mut state.wrote, &mut state.read)
            }
            _ => (&mut self.fences.wrote, &mut self.fences.read),
        }
    }
}

/// Returns whether a thread's access may take this write, whatever the thread knows.
fn fits(write: &WordWrite, thread: &ExploredThread) -> bool {
    match thread.pending.access {
        WordAccess::Latest | WordAccess::Load(_) | WordAccess::Kernel => true,
        WordAccess::Change { seen, .. } => write.value != seen,
        WordAccess::Store(_) | WordAccess::Update(_) => !write.updated,
        WordAccess::Compare { expected, new, success, .. } => {
            let releases_nothing = !releases(success) && thread.view.fenced.is_none();
            write.value != expected || !write.updated || new == expected && releases_nothing
        }
    }
}
