//! Tasks: operations that threads have begun, and their progress.

use crate::event_queue::Time;
use crate::request::Op;

/// The next step of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskStep {
    /// No task: the thread's coroutine goes on.
    Done,
    /// One operation.
    Operate,
    /// A load at memory, again until its value is not the old one.
    ///
    /// Or until the thread's deadline has come.
    Poll,
    /// A load-linked.
    Link,
    /// The store-conditional that belongs to it; if it fails, from the beginning.
    Update,
    /// A store-conditional.
    Conditional,
    /// A double compare-and-swap (`double.rs`).
    Double,
    /// A store in a section that the system knows: nothing, if it has rolled the thread
    /// back.
    Known(Known),
}

/// A store under a lock that the system knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// A store that the system puts back.
    Tentative,
    /// A store after which the system puts nothing back any more.
    Final,
    /// The lock is free.
    Free,
}

/// Operation that a thread has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    pub step: TaskStep,
    pub word: u32,
    pub op: Op,
    /// Duration of an operation.
    pub cost: Time,
    /// Old value of the word, or the one that a poll begins with.
    ///
    /// Of a store-conditional, 1 if it has failed.
    pub old: u64,
}

impl Task {
    pub const NONE: Task = Task { step: TaskStep::Done, word: 0, op: Op::Load, cost: 0, old: 0 };

    /// An operation that the machine performs as one.
    #[inline(always)]
    pub fn operation(word: u32, op: Op, cost: Time) -> Self {
        Task { step: TaskStep::Operate, word, op, cost, old: 0 }
    }

    /// Loads of a word at memory that had this value.
    pub fn poll(word: u32, seen: u64, cost: Time) -> Self {
        Task { step: TaskStep::Poll, word, op: Op::Load, cost, old: seen }
    }

    /// A read-modify-write by LL/SC.
    pub fn update(word: u32, op: Op) -> Self {
        Task { step: TaskStep::Link, word, op, ..Task::NONE }
    }

    /// The thread's double compare-and-swap.
    pub fn double() -> Self {
        Task { step: TaskStep::Double, ..Task::NONE }
    }

    /// Its result is 0, or 1 if the thread has been rolled back.
    pub fn known(word: u32, op: Op, known: Known, cost: Time) -> Self {
        Task { step: TaskStep::Known(known), word, op, cost, old: 0 }
    }

    pub fn link(word: u32) -> Self {
        Task::update(word, Op::Load)
    }

    pub fn conditional(word: u32, value: u64) -> Self {
        Task { step: TaskStep::Conditional, word, op: Op::Store(value), ..Task::NONE }
    }
}

/// Progress of a double compare-and-swap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DcasStage {
    /// LL.
    #[default]
    First,
    /// LLP.
    Second,
    /// SCP and SC.
    Stores,
    /// All of it in one.
    Locked,
}

/// A double compare-and-swap.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Double {
    pub stage: DcasStage,
    pub words: [u32; 2],
    pub old: [u64; 2],
    pub new: [u64; 2],
    /// Values that were loaded.
    pub seen: [u64; 2],
}
