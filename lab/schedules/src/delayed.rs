//! Stores that a compiler may have moved behind later ones, so that a death undoes them.
//!
//! A process that dies has made its stores in the order in which its program was compiled, and
//! survivors see them all. A store may stand there behind any later access to other memory, up to
//! a release, a fence (a compiler's, too) or a call of the kernel. So a thread of a subject that
//! loses stores ([`Subject::loses_stores`](crate::Subject::loses_stores)) may die without one that
//! it has made since, and that no access has met: the memory is as if it had not been made yet.

use towpath_machine::Ordering;

use crate::machine::{Datum, RunState};
use crate::words::releases;

/// Maximum number of stores of a thread that its death may undo.
const MOST: usize = 8;

/// Store that its thread's death may undo.
#[derive(Clone, Copy)]
pub(crate) enum DelayedStore {
    /// Write of a word: its place in the modification order.
    Word { word: usize, place: u64 },
    /// Write of a datum, and its state before.
    Datum { at: usize, old: Datum },
}

impl RunState {
    /// Notes a store that a compiler may move behind those that follow.
    pub fn delay_store(&mut self, index: usize, store: DelayedStore) {
        if self.loses_stores
            && let Some(t) = self.threads.get_mut(index)
        {
            if t.delayed.len() == MOST {
                t.delayed.remove(0);
            }
            t.delayed.push(store);
        }
    }

    /// Puts all stores of a thread before its later accesses.
    pub fn settle_stores(&mut self, index: usize) {
        if let Some(t) = self.threads.get_mut(index) {
            t.delayed.clear();
        }
    }

    /// Notes an access of a thread with this order, which may release its stores.
    pub fn settle_if_released(&mut self, index: usize, order: Ordering) {
        if self.loses_stores && releases(order) {
            self.settle_stores(index);
        }
    }

    /// A word was accessed: the stores to it were made before that.
    pub fn settle_word(&mut self, met: usize) {
        self.settle_met(|store| matches!(store, DelayedStore::Word { word, .. } if word == met));
    }

    /// A datum was accessed.
    pub fn settle_datum(&mut self, met: usize) {
        self.settle_met(|store| matches!(store, DelayedStore::Datum { at, .. } if at == met));
    }

    fn settle_met(&mut self, is_met: impl Fn(DelayedStore) -> bool) {
        if self.loses_stores {
            self.threads.iter_mut().for_each(|t| t.delayed.retain(|store| !is_met(*store)));
        }
    }

    /// Undoes the `n`-th of a thread's delayed stores, from the latest one back.
    ///
    /// The write of a word becomes one more of the value before.
    pub fn undo_store(&mut self, index: usize, n: u8) {
        let delayed = std::mem::take(&mut self.threads[index].delayed);
        let store = delayed.len().checked_sub(usize::from(n)).map(|at| delayed[at]);
        match store {
            Some(DelayedStore::Word { word, place }) => self.words[word].undo(place),
            Some(DelayedStore::Datum { at, old }) => self.data[at] = old,
            None => {}
        }
        self.line(index, "loses a store", Default::default);
    }
}
