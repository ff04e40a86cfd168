//! Words with C11's memory: each keeps its history, and each thread has a view.
//!
//! **Source.** The rules are those of the repaired model RC11 (Lahav, Vafeiadis, Kang, Hur & Dreyer
//! 2017), as a machine with views (Kang et al. 2017, without promises).
//!
//! * The writes of a word stand in its *modification order*. A thread's *view* says for each word
//!   which write it must not go behind. A load takes any write that is not behind the view; a store
//!   goes behind any such write; an update takes a write after which no other update stands, and
//!   goes right behind it.
//! * A Release write carries the view of its thread; an Acquire load that takes it joins that view.
//!   An update hands on what the write before it carried: the release sequence. (Other stores of
//!   the same thread don't: C++20.) A Release fence lends its view to later writes; an Acquire
//!   fence joins the views of earlier loads.
//! * Sequentially consistent accesses and fences take place in the order in which they are made. A
//!   fence joins the view of all earlier ones, and leaves its own there. An access doesn't go
//!   behind what an earlier one took of the same word.
//!
//! **Left out.** A load never takes a write that its thread makes possible only later: so load
//! buffering and values out of thin air do not occur, except that an exchange that writes what it
//! finds, and releases nothing, may come before an update that was made already: that one finds the
//! same value. Outcomes in which the order of sequentially consistent accesses contradicts that in
//! which weaker accesses see each other occur only where a subject asks for them (`strong.rs`).
//!
//! **Reduction.** A load that could also have taken its value before a newer write was made need
//! not take it after that write. So a step passes over newer writes only if it depends on them, or
//! the write that it takes does (`ExploredThread::deps`). A thread takes an older value than the
//! latest at most `MAX_STALE` times in a row of a word: an endless loop that sees nothing new
//! ends.

mod fingerprint;
mod kept;
mod steps;

use std::rc::Rc;

use towpath_machine::Ordering;

use crate::machine::{CLOCKS, Clock, join};
pub(crate) use fingerprint::StateScale;
pub(crate) use kept::KeptState;

/// Number of times in a row that a thread takes an old value of a word.
///
/// As orderings are written, and if one is weakened.
const MAX_STALE: [u8; 2] = [4, 12];
/// Distance of writes in the modification order: others may come in between.
const GAP: u64 = 1 << 32;

/// Memory model of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryModel {
    /// Sequentially consistent: a load takes the latest write.
    Sc,
    /// C11's: a load takes any write that its thread's view allows.
    #[default]
    C11,
}

impl MemoryModel {
    /// The models, and the names by which users choose them.
    pub const ALL: [(MemoryModel, &'static str); 2] = [(MemoryModel::Sc, "sc"), (MemoryModel::C11, "c11")];

    /// The name by which users choose it.
    pub fn name(self) -> &'static str {
        MemoryModel::ALL[self as usize].1
    }

    /// The model of this name.
    pub fn from_name(name: &str) -> Option<MemoryModel> {
        MemoryModel::ALL.iter().find(|(_, n)| *n == name).map(|(model, _)| *model)
    }
}

/// Place in the modification order of each word that was written that must not be gone
/// behind. Words have slots in the order of their first writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryView(Vec<u64>);

impl MemoryView {
    #[inline]
    fn at(&self, slot: usize) -> u64 {
        self.0.get(slot).copied().unwrap_or(0)
    }

    #[inline]
    fn raise(&mut self, slot: usize, at: u64) {
        if self.0.len() <= slot {
            self.0.resize(slot + 1, 0);
        }
        self.0[slot] = self.0[slot].max(at);
    }

    pub fn join(&mut self, other: &MemoryView) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a = (*a).max(*b));
    }
}

/// Knowledge that a write carries to those that acquire it.
#[derive(Clone, Default)]
pub(crate) struct Released {
    pub clock: Clock,
    /// Sequentially consistent events (`strong.rs`).
    pub strong: u128,
    /// `None`: of no word (but the one that is written).
    pub view: Option<Rc<MemoryView>>,
    /// The view that it would carry if no ordering were weakened.
    pub written: Option<Rc<MemoryView>>,
}

impl Released {
    pub fn join(&mut self, other: &Released) {
        join(&mut self.clock, &other.clock);
        self.strong |= other.strong;
        let pairs = [(&mut self.view, &other.view), (&mut self.written, &other.written)];
        for (ours, theirs) in pairs {
            match (ours, theirs) {
                (_, None) => {}
                (ours @ None, Some(theirs)) => *ours = Some(Rc::clone(theirs)),
                (Some(ours), Some(theirs)) => Rc::make_mut(ours).join(theirs),
            }
        }
    }
}

/// Write in a word's modification order.
#[derive(Clone, Default)]
struct WordWrite {
    value: u64,
    at: u64,
    /// The writer, its step, and the steps on which that one depends.
    by: (usize, u32),
    deps: Clock,
    /// True if an update has taken it: its write stands right behind.
    updated: bool,
    released: Released,
}

/// A word: its writes, at least one, in modification order.
#[derive(Clone)]
pub(crate) struct WordState {
    first: WordWrite,
    later: Vec<WordWrite>,
    /// Its place in views, from its first write in the run.
    slot: Option<usize>,
    /// Steps that the last accesses depend on: those that wrote, and those that read.
    pub wrote: Clock,
    pub read: Clock,
    /// Those that were sequentially consistent.
    strong: Clock,
}

impl WordState {
    pub fn new(value: u64) -> WordState {
        WordState {
            first: WordWrite { value, ..WordWrite::default() },
            later: Vec::new(),
            slot: None,
            wrote: [0; CLOCKS],
            read: [0; CLOCKS],
            strong: [0; CLOCKS],
        }
    }

    /// The value of the last write in modification order.
    #[inline]
    pub fn value(&self) -> u64 {
        self.later.last().map_or(self.first.value, |w| w.value)
    }

    /// Forgets all writes but the last one, of which all threads know.
    pub fn settle(&mut self) {
        if self.slot.is_some() || !self.later.is_empty() {
            *self = WordState::new(self.value());
        }
    }

    #[inline]
    fn last(&self) -> usize {
        self.later.len()
    }

    #[inline]
    fn write(&self, n: usize) -> &WordWrite {
        n.checked_sub(1).map_or(&self.first, |n| &self.later[n])
    }

    /// Makes a write one of the value before it.
    ///
    /// Returns the value that it had, and whether it released anything.
    pub fn undo(&mut self, place: u64) -> Option<(u64, bool)> {
        let at = self.later.iter().position(|write| write.at == place)?;
        let WordWrite { value, released, .. } = self.write(at).clone();
        let value = std::mem::replace(&mut self.later[at].value, value);
        let carried = std::mem::replace(&mut self.later[at].released, released).view;
        Some((value, carried.is_some()))
    }

    fn write_mut(&mut self, n: usize) -> &mut WordWrite {
        match n.checked_sub(1) {
            None => &mut self.first,
            Some(n) => &mut self.later[n],
        }
    }
}

/// Knowledge that a thread would have of words if no ordering were weakened.
#[derive(Clone, Default)]
struct WrittenView {
    now: MemoryView,
    read: MemoryView,
    fenced: Option<Rc<MemoryView>>,
    light: MemoryView,
}

/// Knowledge of a thread about words.
#[derive(Clone, Default)]
pub(crate) struct ThreadView {
    now: MemoryView,
    /// Kept only if an ordering is weakened.
    written: WrittenView,
    /// Views of the writes that it has taken without acquiring them.
    read: MemoryView,
    /// View of its last release fence.
    fenced: Option<Rc<MemoryView>>,
    /// View of its last light fence.
    light: MemoryView,
    /// Number of times in a row that each slot has taken an old value.
    stale: Vec<u8>,
}

impl ThreadView {
    /// Learns all that the other knows now.
    pub fn join(&mut self, other: &ThreadView) {
        self.now.join(&other.now);
        self.written.now.join(&other.written.now);
    }
}

/// State of the kernel and of the sequentially consistent order.
#[derive(Clone, Default)]
pub(crate) struct GlobalViews {
    /// Words that were written, by slot.
    slots: Vec<usize>,
    /// Numbers of these words.
    numbers: Vec<usize>,
    /// View of the sequentially consistent accesses and fences so far.
    ordered: MemoryView,
    /// The kernel's view of the words on which it has woken sleepers. A thread that wants
    /// to sleep compares no older value.
    kernel: MemoryView,
    /// `ordered` and `kernel` if no ordering were weakened.
    written: [MemoryView; 2],
}

pub(crate) fn releases(order: Ordering) -> bool {
    matches!(order, Ordering::Release | Ordering::AcqRel | Ordering::SeqCst)
}

/// Steps on which those depend that touch no word: fences and the kernel's mutexes.
#[derive(Clone, Default)]
pub(crate) struct OrderedSteps {
    pub wrote: Clock,
    pub read: Clock,
    /// Steps that depend on all others, and all others on them.
    pub by_all: Clock,
}
