//! A digest of a run's state: equal if no continuation can tell two states apart.
//!
//! Places in modification orders, and clocks, are counted from what all threads know, and only so
//! far as something can still depend on them.

use std::hash::{Hash, Hasher};

use super::{MemoryModel, MemoryView, Released, WordState};
use crate::machine::{CLOCKS, Clock, RunState};
use crate::merging::{Mixer, OpenCalls};
use crate::thread::{ExploredThread, Life};

/// A word of which threads can still take more than one write, or acquire something.
struct OpenWord {
    slot: usize,
    /// Places of its writes, but of the first that can be taken.
    places: Vec<u64>,
}

/// Units by which places and clocks are counted (`merging.rs`).
struct StateScale {
    words: Vec<OpenWord>,
    /// By thread: clocks of its own on which something depends, in order.
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
    fn hash_view(&self, view: &MemoryView, hasher: &mut Mixer) {
        let mut counts = SmallCounts(1);
        for word in &self.words {
            let at = view.at(word.slot);
            counts.note(word.places.iter().take_while(|&&place| place <= at).count(), hasher);
        }
        hasher.write_u64(counts.0);
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
        match &released.view {
            Some(view) => self.hash_view(view, hasher),
            None => self.hash_view(&MemoryView::default(), hasher),
        }
    }
}

impl WordState {
    /// Place, in the list of writes, of the oldest that a thread can take.
    fn oldest(&self, alive: &[&ExploredThread]) -> usize {
        let Some(slot) = self.slot else { return self.last() };
        let least = alive.iter().map(|t| t.view.now.at(slot)).min();
        let least = least.unwrap_or(u64::MAX);
        (0..=self.last()).rev().find(|&n| self.write(n).at <= least).unwrap_or(0)
    }
}

impl RunState {
    /// Returns the digest.
    pub fn fingerprint(&self, open: &OpenCalls) -> u64 {
        let alive: Vec<&ExploredThread> = self.threads.iter().filter(|t| t.life == Life::Alive).collect();
        // Under C11 a word without a place in views has its first value.
        let mut numbers = match self.model {
            MemoryModel::C11 => self.views.slots.clone(),
            MemoryModel::Sc => (0..self.words.len()).collect(),
        };
        numbers.sort_unstable();
        let words = numbers.iter().map(|&n| (n, &self.words[n], self.words[n].oldest(&alive)));
        let written: Vec<(usize, &WordState, usize)> = words.collect();
        let words = written.iter().filter_map(|&(_, word, oldest)| {
            let places = (oldest + 1..=word.last()).map(|n| word.write(n).at).collect();
            word.slot.filter(|_| oldest < word.last()).map(|slot| OpenWord { slot, places })
        });
        let scale = StateScale { words: words.collect(), clocks: self.open_clocks(open, &alive) };
        let mut hasher = Mixer::default();
        open.digest.hash(&mut hasher);
        for &(thread, clock) in &open.ends {
            hasher.write_usize(scale.clocks[thread].partition_point(|&at| at < clock));
        }
        for (n, word, oldest) in written {
            hasher.write_usize((n << 8) | (word.last() - oldest));
            for write in (oldest..=word.last()).map(|n| word.write(n)) {
                (write.value, write.updated).hash(&mut hasher);
                scale.hash_released(&write.released, &mut hasher);
            }
        }
        let mut touched = self.touched.clone();
        touched.sort_unstable();
        for n in touched {
            let datum = &self.data[n];
            (n, datum.value).hash(&mut hasher);
            if let Some((thread, clock)) = datum.written {
                (thread, scale.clocks[thread].partition_point(|&at| at < clock)).hash(&mut hasher);
            }
            scale.hash_clock(&datum.read, &mut hasher);
        }
        for t in &self.threads {
            (t.life == Life::Alive, t.learned.finish()).hash(&mut hasher);
            if t.life != Life::Alive {
                continue;
            }
            for clock in [&t.clock, &t.read, &t.fenced] {
                scale.hash_clock(clock, &mut hasher);
            }
            let mut read = t.view.read.clone();
            read.join(&t.view.now);
            for view in [&t.view.now, &read, t.view.fenced.as_deref().unwrap_or(&MemoryView::default())] {
                scale.hash_view(view, &mut hasher);
            }
        }
        scale.hash_view(&self.views.ordered, &mut hasher);
        hasher.finish()
    }

    /// Clocks of each thread that one of the others may still have to know.
    fn open_clocks(&self, open: &OpenCalls, alive: &[&ExploredThread]) -> [Vec<u32>; CLOCKS] {
        let mut clocks: [Vec<u32>; CLOCKS] = Default::default();
        let mut note = |thread: usize, clock: u32| {
            if clock > 0 && alive.iter().any(|t| t.clock[thread] < clock) {
                clocks[thread].push(clock);
            }
        };
        open.ends.iter().for_each(|&(thread, clock)| note(thread, clock));
        for datum in self.touched.iter().map(|&n| &self.data[n]) {
            datum.written.into_iter().for_each(|(thread, clock)| note(thread, clock));
            datum.read.iter().enumerate().for_each(|(thread, &clock)| note(thread, clock));
        }
        clocks.iter_mut().for_each(|clocks| {
            clocks.sort_unstable();
            clocks.dedup();
        });
        clocks
    }
}
