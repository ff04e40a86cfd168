//! A digest of a run's state: equal if no continuation can tell two states apart.
//!
//! Places in modification orders, and clocks, are counted from what all threads know, and only so
//! far as something can still depend on them.

use std::hash::{Hash, Hasher};

use super::{MemoryModel, MemoryView, Released, WordState};
use crate::machine::{CLOCKS, Clock, RunState};
use crate::merging::{Mixer, OpenCalls};
use crate::thread::Life;

/// A word of which threads can still take more than one write, or acquire something.
struct OpenWord {
    slot: usize,
    /// End of its places in the list of all.
    end: usize,
}

/// Units by which places and clocks are counted (`merging.rs`).
#[derive(Default)]
pub(crate) struct StateScale {
    words: Vec<OpenWord>,
    /// Places of the writes of each word, but of the first that can be taken.
    places: Vec<u64>,
    /// Oldest write of each word that can be taken.
    oldest: Vec<usize>,
    /// Clocks of each thread's own on which something depends, in order.
    clocks: [Vec<u32>; CLOCKS],
}

/// Small counts, several in a number.
#[derive(Default)]
struct SmallCounts(u64);

impl SmallCounts {
    fn note(&mut self, count: usize, hasher: &mut Mixer) {
        if self.0 >> 56 != 0 {
            hasher.write_u64(std::mem::take(&mut self.0));
        }
        self.0 = self.0 << 8 | (count as u64 & 0xff);
    }
}

impl StateScale {
    /// Adds the counts of a view, by slot.
    fn hash_places(&self, at: impl Fn(usize) -> u64, hasher: &mut Mixer) {
        let (mut counts, mut start) = (SmallCounts(1), 0);
        for word in &self.words {
            let at = at(word.slot);
            let places = &self.places[start..word.end];
            counts.note(places.iter().take_while(|&&place| place <= at).count(), hasher);
            start = word.end;
        }
        hasher.write_u64(counts.0);
    }

    fn hash_view(&self, view: Option<&MemoryView>, hasher: &mut Mixer) {
        self.hash_places(|slot| view.map_or(0, |view| view.at(slot)), hasher);
    }

    fn hash_clock(&self, clock: &Clock, hasher: &mut Mixer) {
        let mut counts = SmallCounts(1);
        for (clocks, now) in self.clocks.iter().zip(clock) {
            if !clocks.is_empty() {
                counts.note(clocks.iter().take_while(|&at| at <= now).count(), hasher);
            }
        }
        hasher.write_u64(counts.0);
    }

    fn hash_released(&self, released: &Released, hasher: &mut Mixer) {
        self.hash_clock(&released.clock, hasher);
        self.hash_view(released.view.as_deref(), hasher);
    }

    /// Clocks of a thread up to this one.
    fn count(&self, thread: usize, clock: u32) -> usize {
        self.clocks[thread].partition_point(|&at| at < clock)
    }

    /// Finds the words, in order, of which writes can still be told apart.
    fn open_words(&mut self, state: &RunState, numbers: impl Iterator<Item = usize>) {
        let StateScale { words, places, oldest, .. } = self;
        words.clear();
        places.clear();
        oldest.clear();
        for word in numbers.map(|n| &state.words[n]) {
            let first = word.oldest(state);
            oldest.push(first);
            if let Some(slot) = word.slot
                && first < word.last()
            {
                places.extend((first + 1..=word.last()).map(|n| word.write(n).at));
                words.push(OpenWord { slot, end: places.len() });
            }
        }
    }

    /// Finds the clocks of each thread that one of the others may still have to know.
    fn open_clocks(&mut self, state: &RunState, open: &OpenCalls) {
        let clocks = &mut self.clocks;
        clocks.iter_mut().for_each(Vec::clear);
        let mut note = |thread: usize, clock: u32| {
            if clock > 0 && state.alive().any(|(_, t)| t.clock[thread] < clock) {
                clocks[thread].push(clock);
            }
        };
        open.ends.iter().for_each(|&(thread, clock)| note(thread, clock));
        for datum in state.touched.iter().map(|&n| &state.data[n]) {
            datum.written.into_iter().for_each(|(thread, clock)| note(thread, clock));
            let read = datum.read.iter().enumerate().take(state.threads.len());
            read.for_each(|(thread, &clock)| note(thread, clock));
        }
        clocks.iter_mut().for_each(|clocks| {
            clocks.sort_unstable();
            clocks.dedup();
        });
    }
}

impl WordState {
    /// Place, in the list of writes, of the oldest that a thread can take.
    fn oldest(&self, state: &RunState) -> usize {
        let Some(slot) = self.slot else { return self.last() };
        let least = state.alive().map(|(_, t)| t.view.now.at(slot)).min();
        let least = least.unwrap_or(u64::MAX);
        (0..=self.last()).rev().find(|&n| self.write(n).at <= least).unwrap_or(0)
    }
}

impl RunState {
    /// Returns the digest. `scale` is where it counts.
    pub fn fingerprint(&self, open: &OpenCalls, scale: &mut StateScale) -> u64 {
        // Under C11 a word without a place in views has its first value.
        let (all, written) = match self.model {
            MemoryModel::C11 => (0, &*self.views.numbers),
            MemoryModel::Sc => (self.words.len(), &[][..]),
        };
        let numbers = || (0..all).chain(written.iter().copied());
        scale.open_words(self, numbers());
        scale.open_clocks(self, open);
        let scale = &*scale;
        let mut hasher = Mixer::default();
        open.digest.hash(&mut hasher);
        for &(thread, clock) in &open.ends {
            hasher.write_usize(scale.count(thread, clock));
        }
        for (n, &oldest) in numbers().zip(&scale.oldest) {
            let word = &self.words[n];
            hasher.write_usize((n << 8) | (word.last() - oldest));
            for write in (oldest..=word.last()).map(|n| word.write(n)) {
                hasher.write_u64(write.value);
                hasher.write_u64(write.updated.into());
                scale.hash_released(&write.released, &mut hasher);
            }
        }
        for &n in &self.touched {
            let datum = &self.data[n];
            let by =
                datum.written.map_or(0, |(thread, clock)| 1 + thread + (scale.count(thread, clock) << 8));
            hasher.write_usize(n << 32 | by);
            hasher.write_u64(datum.value);
            scale.hash_clock(&datum.read, &mut hasher);
        }
        for t in &self.threads {
            hasher.write_u64(u64::from(t.life == Life::Alive));
            hasher.write_u64(t.learned.finish());
            if t.life != Life::Alive {
                continue;
            }
            for clock in [&t.clock, &t.read, &t.fenced] {
                scale.hash_clock(clock, &mut hasher);
            }
            let (now, read) = (&t.view.now, &t.view.read);
            scale.hash_view(Some(now), &mut hasher);
            scale.hash_places(|slot| now.at(slot).max(read.at(slot)), &mut hasher);
            scale.hash_view(t.view.fenced.as_deref(), &mut hasher);
        }
        scale.hash_view(Some(&self.views.ordered), &mut hasher);
        hasher.finish()
    }
}
