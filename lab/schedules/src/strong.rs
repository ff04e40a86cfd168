//! An order of the sequentially consistent events that is not that of their execution.
//!
//! In runs of a subject that [has a free order](crate::SubjectExtras::has_free_order) an access
//! takes an older write than another thread's sequentially consistent one, as long as the events
//! have an order without a cycle (`psc` of RC11: Lahav et al. 2017; C++20). That agrees with each
//! word's writes and the sequentially consistent reads in between; with a thread's own order; and
//! with what happens before what, if it does so by a later access of the earlier one's thread: a
//! weaker access that has acquired an event's own write is not ordered after the event. A fence
//! comes after all events so far.

use towpath_machine::Ordering;

use crate::machine::RunState;

/// Maximum number of events of a run; those beyond come after all others.
const MOST: usize = 128;

/// Events, a bit each, of which a thread knows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StrongView {
    pub now: u128,
    /// Those behind the values that it has read without acquiring them.
    pub read: u128,
    /// Those of its last release fence.
    pub fenced: u128,
}

impl StrongView {
    pub fn join(&mut self, other: &StrongView) {
        self.now |= other.now;
    }
}

/// Sequentially consistent access of a word.
struct StrongEvent {
    word: usize,
    /// Place in the word's modification order that it has written, or read.
    at: u64,
    writes: bool,
    /// All events that come before it.
    past: u128,
}

/// The events of a run, and their order.
#[derive(Default)]
pub(crate) struct StrongOrder {
    events: Vec<StrongEvent>,
    /// Those before the last fence.
    fenced: u128,
}

impl StrongOrder {
    /// Events of a word for which that is so.
    fn set(&self, of: usize, is_in: impl Fn(&StrongEvent) -> bool) -> u128 {
        let numbered = self.events.iter().enumerate().filter(|(_, event)| event.word == of && is_in(event));
        numbered.fold(0, |set, (n, _)| set | 1 << n)
    }

    /// Events that come before an access, and those of its word that come after it.
    fn around(&self, view: StrongView, word: usize, at: u64, writes: bool) -> (u128, u128) {
        let before = self.set(word, |event| event.at <= at && (writes || event.writes));
        let direct = view.now | self.fenced | before;
        let in_past = self.events.iter().enumerate().filter(|(n, _)| direct >> n & 1 == 1);
        let past = in_past.fold(direct, |past, (_, event)| past | event.past);
        (past, self.set(word, |event| event.writes && event.at > at))
    }

    /// Returns whether an access may take the write at a place, or go behind it.
    pub fn permits(&self, view: StrongView, word: usize, at: u64, writes: bool) -> bool {
        let (past, after) = self.around(view, word, at, writes);
        past & after == 0 && (self.events.len() < MOST || after == 0)
    }

    /// Notes an access. Returns it, as a thread knows it.
    fn add(&mut self, view: StrongView, word: usize, at: u64, writes: bool) -> u128 {
        if self.events.len() == MOST {
            return 0;
        }
        let (past, after) = self.around(view, word, at, writes);
        let mine = past | 1 << self.events.len();
        let later = self.events.iter_mut().enumerate();
        later
            .filter(|(n, event)| after >> n & 1 == 1 || event.past & after != 0)
            .for_each(|(_, event)| event.past |= mine);
        self.events.push(StrongEvent { word, at, writes, past });
        1 << (self.events.len() - 1)
    }
}

impl RunState {
    /// Notes an access of a thread, if it is sequentially consistent.
    pub fn note_strong(&mut self, index: usize, word: usize, at: u64, writes: bool, order: Ordering) {
        if order != Ordering::SeqCst {
            return;
        }
        if let Some(strong) = &mut self.strong {
            let view = &mut self.threads[index].strong;
            view.now |= strong.add(*view, word, at, writes);
        }
    }

    /// Notes a fence: all events come before it.
    pub fn note_strong_fence(&mut self, index: usize) {
        if let Some(strong) = &mut self.strong {
            let all = if strong.events.len() == MOST { u128::MAX } else { (1 << strong.events.len()) - 1 };
            strong.fenced = all;
            self.threads[index].strong.now |= all;
        }
    }
}
