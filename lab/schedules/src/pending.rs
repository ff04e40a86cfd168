//! The next step of a thread: its access, and the condition for which it waits.

use towpath_machine::Ordering;

use crate::footprint::TouchedObject;

/// Condition of a thread's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    /// Spins until the word differs: the access is an [`WordAccess::Change`].
    Changed {
        word: usize,
    },
    /// Parked until woken.
    Woken {
        word: usize,
        expected: u64,
    },
    /// Backs off until a word changes that it has looked at since it backed off last, or
    /// until anything changes that is no word.
    Moved {
        changes: u64,
    },
    /// A free mutex.
    Free {
        mutex: usize,
    },
}

/// The other way in which a step may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Other {
    None,
    /// The end of a spinner's budget: whenever no thread can do anything else, and if it
    /// is short, a few times in a run at any time.
    SpinEnds {
        early: bool,
    },
    /// The end of a sleeper's time: only if no thread can do anything else, and only
    /// where that is no fault.
    SleepEnds,
    /// Something fails for no reason that the program could see.
    Spurious,
}

/// Kind of a step's access to its word: it decides which writes the step may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WordAccess {
    /// Takes the latest value, or none.
    Latest,
    Load(Ordering),
    /// A load of another value than the one seen.
    Change {
        seen: u64,
        order: Ordering,
    },
    Store(Ordering),
    /// An update that always writes.
    Update(Ordering),
    /// An update that writes if it takes the expected value.
    Compare {
        expected: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    },
    /// The kernel's comparison before a thread falls asleep.
    Kernel,
}

impl WordAccess {
    /// Order of the access if it takes this value.
    pub fn order(self, value: u64) -> Ordering {
        match self {
            WordAccess::Latest | WordAccess::Kernel => Ordering::Relaxed,
            WordAccess::Load(order)
            | WordAccess::Change { order, .. }
            | WordAccess::Store(order)
            | WordAccess::Update(order) => order,
            WordAccess::Compare { expected, success, failure, .. } => {
                if value == expected {
                    success
                } else {
                    failure
                }
            }
        }
    }
}

impl WordAccess {
    /// Returns whether the access writes if it takes this value.
    pub fn writes(self, value: u64) -> bool {
        match self {
            WordAccess::Load(_) | WordAccess::Change { .. } | WordAccess::Kernel => false,
            WordAccess::Latest | WordAccess::Store(_) | WordAccess::Update(_) => true,
            WordAccess::Compare { expected, .. } => value == expected,
        }
    }
}

/// Next step of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    pub what: &'static str,
    pub object: TouchedObject,
    pub access: WordAccess,
    pub gate: Gate,
    pub other: Other,
    /// Time until it gives up waiting, in nanoseconds.
    pub ns: u64,
    /// Orders of success and of failure as they are written.
    pub written: Option<(Ordering, Ordering)>,
}

impl Pending {
    /// Returns whether the access is weaker than it is written.
    pub fn is_weakened(&self) -> bool {
        let now = match self.access {
            WordAccess::Compare { success, failure, .. } => Some((success, failure)),
            WordAccess::Latest | WordAccess::Kernel => None,
            access => Some((access.order(0), access.order(0))),
        };
        now.zip(self.written).is_some_and(|(now, written)| now != written)
    }
}

impl Pending {
    /// Returns whether its effect follows from a digest of the state (`merging.rs`).
    pub fn is_mergeable(&self) -> bool {
        !matches!(self.access, WordAccess::Latest | WordAccess::Kernel)
            || (self.object, self.what) == (TouchedObject::Fence, "fence")
    }

    /// Returns whether it is a call of the kernel, which a compiler moves nothing across.
    pub fn is_call(&self) -> bool {
        let is_on_object = self.object != TouchedObject::Nothing;
        self.access == WordAccess::Kernel
            || is_on_object && self.access == WordAccess::Latest
            || matches!(self.gate, Gate::Moved { .. })
    }

    /// A step that can be taken at once, and ends in one way.
    pub fn open(what: &'static str, object: TouchedObject) -> Pending {
        let (access, gate, other) = (WordAccess::Latest, Gate::Open, Other::None);
        Pending { what, object, access, gate, other, ns: 0, written: None }
    }
}
