//! A thread under exploration: the next access that it wants, and its knowledge.

use std::hash::Hasher;

use crate::delayed::{DelayedStore, PostponedStore};
use crate::footprint::TouchedObject;
use crate::machine::{CLOCKS, Clock};
use crate::merging::Mixer;
use crate::pending::Pending;
use crate::strong::StrongView;
use crate::words::ThreadView;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Alive,
    Ended,
    Dead,
}

/// State of a thread's signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalState {
    None,
    Came,
    Handled,
}

#[derive(Clone)]
pub(crate) struct ExploredThread {
    pub life: Life,
    pub pending: Pending,
    /// Step at which it fell asleep; and whether it was woken since.
    pub asleep: u64,
    pub woken: bool,
    /// The word of the reservation, if it stands.
    pub linked: Option<usize>,
    /// The lock that it holds and the system knows, and its tentative store: the word,
    /// and the word's old value.
    pub section: Option<(usize, Option<(usize, u64)>)>,
    /// The step in progress ends the other way.
    pub other: bool,
    /// Looks since anything changed.
    pub futile: u32,
    /// A call has begun, and not yet touched anything.
    pub beginning: bool,
    /// Name of the call in progress, if there is a trace.
    pub call: String,
    /// Time of the first access of the call in progress.
    pub invoked: Option<u64>,
    pub died: Option<u64>,
    pub clock: Clock,
    /// Clock of the values that it has read without acquiring them: an acquire fence
    /// acquires them.
    pub read: Clock,
    /// Clock of its last release fence.
    pub fenced: Clock,
    pub view: ThreadView,
    /// True if it has written since its last fence: a compiler may move that write.
    pub moves_write: bool,
    /// True if a heavy fence was made since that write.
    pub owes_fence: bool,
    /// Its stores that its death may undo.
    pub delayed: Vec<DelayedStore>,
    /// A signal has come, or its handler runs.
    pub signal: SignalState,
    /// Store that it makes when the handler has returned.
    pub postponed: Option<PostponedStore>,
    /// Sequentially consistent events of which it knows.
    pub strong: StrongView,
    /// Number of the last step of each thread that its next step depends on; its own: of
    /// its last one.
    pub deps: Clock,
    pub looked: SeenWords,
    /// A digest of all that it has learned since its call began, and of `calls`.
    pub learned: Mixer,
    /// Number of calls that have begun, and of those that have ended.
    pub calls: u64,
}

/// Values that a thread has seen since it backed off last.
#[derive(Clone, Default)]
pub(crate) struct SeenWords {
    /// Round in which each word was seen last, and the first value in that round.
    pub values: Vec<(u32, u64)>,
    pub words: Vec<usize>,
    round: u32,
    /// True if it has backed off, and seen nothing since.
    pub is_over: bool,
}

impl SeenWords {
    /// Notes that a word was seen with this value; or written, if it is `ours`.
    #[inline]
    pub fn note(&mut self, word: usize, value: u64, ours: bool) {
        if self.is_over || self.round == 0 {
            (self.is_over, self.round) = (false, self.round + 1);
            self.words.clear();
        }
        if self.values.len() <= word {
            self.values.resize(word + 1, (0, 0));
        }
        let seen = &mut self.values[word];
        if seen.0 != self.round {
            *seen = (self.round, value);
            self.words.push(word);
        } else if ours {
            seen.1 = value;
        }
    }
}

impl ExploredThread {
    /// Ends its liberty to move writes. Returns whether it has to make a fence now.
    pub fn fences_lightly(&mut self) -> bool {
        self.moves_write = false;
        std::mem::take(&mut self.owes_fence)
    }

    /// Notes a value that an access has returned.
    pub fn learn_value(&mut self, value: u64) {
        self.learned.write_u64(value);
    }

    /// Notes that a call begins, or ends: nothing that was learned before matters.
    pub fn begin_or_end(&mut self) {
        self.calls += 1;
        self.forget();
    }

    /// Takes back all that was learned since the last call.
    pub fn forget(&mut self) {
        self.learned = Mixer::default();
        self.learned.write_u64(self.calls);
    }

    pub fn new(index: usize) -> ExploredThread {
        let mut clock = [0; CLOCKS];
        clock[index] = 1;
        ExploredThread {
            life: Life::Alive,
            pending: Pending::open("start", TouchedObject::Nothing),
            asleep: 0,
            woken: false,
            linked: None,
            section: None,
            other: false,
            futile: 0,
            beginning: false,
            call: String::new(),
            invoked: None,
            died: None,
            clock,
            read: [0; CLOCKS],
            fenced: [0; CLOCKS],
            view: ThreadView::default(),
            moves_write: false,
            owes_fence: false,
            delayed: Vec::new(),
            signal: SignalState::None,
            postponed: None,
            strong: StrongView::default(),
            deps: [0; CLOCKS],
            looked: SeenWords::default(),
            learned: Mixer::default(),
            calls: 0,
        }
    }
}
