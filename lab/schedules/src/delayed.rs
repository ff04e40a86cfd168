//! Stores that a compiler may have moved behind later ones, so that a death undoes them.
//!
//! A process that dies has made its stores in the order in which its program was compiled, and
//! survivors see them all. A store may stand there behind any later access to other memory, up to
//! a release, a fence (a compiler's, too) or a call of the kernel. So a thread of a subject that
//! loses stores ([`SubjectExtras::loses_stores`](crate::SubjectExtras::loses_stores)) may die
//! without one that it has made since, and that no access has met: the memory is as if it had not
//! been made yet.
//!
//! A signal's handler sees its own thread so, too. A thread of a subject that is interrupted
//! ([`SubjectExtras::is_interrupted`](crate::SubjectExtras::is_interrupted)) makes such a store
//! after the handler has returned.

use towpath_machine::Ordering;

use crate::machine::{Datum, RunState};
use crate::thread::SignalState;
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

/// Store that its thread makes when a signal's handler has returned.
#[derive(Clone, Copy)]
pub(crate) enum PostponedStore {
    Word { word: usize, value: u64, releases: bool },
    Datum { at: usize, value: u64 },
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

    /// Undoes the `n`-th of a thread's delayed stores, from the latest one back; 0: none.
    ///
    /// The write of a word becomes one more of the value before. Returns the store.
    pub fn undo_store(&mut self, index: usize, n: u8) -> Option<PostponedStore> {
        let delayed = std::mem::take(&mut self.threads[index].delayed);
        let store = match *delayed.get(delayed.len().checked_sub(usize::from(n))?)? {
            DelayedStore::Word { word, place } => {
                let (value, releases) = self.words[word].undo(place)?;
                PostponedStore::Word { word, value, releases }
            }
            DelayedStore::Datum { at, old } => {
                let value = std::mem::replace(&mut self.data[at], old).value;
                PostponedStore::Datum { at, value }
            }
        };
        self.line(index, "loses a store", Default::default);
        Some(store)
    }

    /// A signal comes to a thread, before its `n`-th store back unless that is 0.
    pub fn interrupt(&mut self, index: usize, n: u8) {
        self.signals -= 1;
        self.line(index, "is interrupted", Default::default);
        self.threads[index].postponed = if n > 0 { self.undo_store(index, n) } else { None };
        self.threads[index].signal = SignalState::Came;
        self.settle_stores(index);
    }

    /// Makes a store that was postponed, after the handler that came before it.
    pub fn make_postponed(&mut self, index: usize) {
        match self.threads[index].postponed.take() {
            Some(PostponedStore::Word { word, value, releases }) => {
                self.put_last(index, word, value, releases)
            }
            Some(PostponedStore::Datum { at, value }) => drop(self.datum(at, Some(value))),
            None => {}
        }
        self.settle_stores(index);
    }
}
