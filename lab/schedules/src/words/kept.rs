//! The state of a run, kept to go on from it again.

use super::{GlobalViews, MemoryModel, OrderedSteps, WordState};
use crate::machine::{Datum, RunState};
use crate::thread::ExploredThread;

/// Copy of a run's state, if there are no deaths and no calls of the system.
pub(crate) struct KeptState {
    /// Words that were written, by slot, under C11; else all.
    words: Vec<WordState>,
    views: GlobalViews,
    fences: OrderedSteps,
    data: Vec<Datum>,
    touched: Vec<usize>,
    threads: Vec<ExploredThread>,
    /// Stamp, steps, time, changes, and the digest.
    counts: [u64; 5],
}

impl RunState {
    /// Copies the state.
    pub fn keep(&self) -> KeptState {
        let words = match self.model {
            MemoryModel::C11 => self.views.slots.iter().map(|&n| self.words[n].clone()).collect(),
            MemoryModel::Sc => self.words.clone(),
        };
        KeptState {
            words,
            views: self.views.clone(),
            fences: self.fences.clone(),
            data: self.data.clone(),
            touched: self.touched.clone(),
            threads: self.threads.clone(),
            counts: [self.stamp, self.steps, self.time, self.changes, self.digest],
        }
    }

    /// Goes back to a state that was kept on the way to this one.
    pub fn restore(&mut self, kept: &KeptState) {
        let KeptState { words, views, fences, data, touched, threads, counts } = kept;
        match self.model {
            MemoryModel::C11 => {
                // Those that were not written then.
                for &n in &self.views.slots[words.len()..] {
                    self.words[n] = WordState::new(self.words[n].first.value);
                }
                for (&n, word) in views.slots.iter().zip(words) {
                    self.words[n].clone_from(word);
                }
            }
            MemoryModel::Sc => self.words.clone_from(words),
        }
        self.views.clone_from(views);
        self.fences.clone_from(fences);
        self.data.clone_from(data);
        self.touched.clone_from(touched);
        self.threads.clone_from(threads);
        [self.stamp, self.steps, self.time, self.changes, self.digest] = *counts;
    }
}
