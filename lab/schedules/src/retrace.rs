//! Threads that are taken back to where they were: they take their steps again.
//!
//! A thread's place is its stack, which cannot be copied. But its steps follow from the results
//! that they had: with these a new coroutine goes there by itself, without the machine.

use std::cell::{Cell, RefCell};

use towpath_machine::LockOutcome;

use crate::machine::{Machine, RunState};

/// Reason of a thread that does not take the same steps again.
///
/// It has broken the promise of [`SubjectRun::open_calls`](crate::SubjectRun::open_calls).
pub(crate) const KEEPS_SOMETHING: &str = "the thread keeps something outside its stack";

/// Relation of a thread's steps to the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Acting {
    /// Steps act on the machine.
    #[default]
    Once,
    /// Steps act on the machine, and their results are kept.
    Kept,
    /// Steps have no second effect, and return the kept results.
    Again,
}

/// Numbers of a thread's results and steps so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogLength {
    given: usize,
    steps: usize,
}

/// Results that a thread was given by its steps.
#[derive(Default)]
struct StepLog {
    given: Vec<u64>,
    steps: usize,
}

/// Logs of a run's threads.
#[derive(Default)]
pub(crate) struct StepLogs {
    pub acting: Cell<Acting>,
    threads: RefCell<Vec<StepLog>>,
    /// Rest of the log that is taken again.
    left: Cell<LogLength>,
}

impl StepLogs {
    /// Returns how far a thread has come.
    pub fn length(&self, thread: usize) -> LogLength {
        let threads = self.threads.borrow();
        let length = |log: &StepLog| LogLength { given: log.given.len(), steps: log.steps };
        threads.get(thread).map_or_else(LogLength::default, length)
    }

    /// Cuts the log of a thread.
    pub fn cut(&self, thread: usize, length: LogLength) {
        if let Some(log) = self.threads.borrow_mut().get_mut(thread) {
            log.given.truncate(length.given);
            log.steps = length.steps;
        }
    }

    /// Lets a thread take all of its steps so far again.
    pub fn begin_again(&self, thread: usize) {
        self.left.set(self.length(thread));
        self.acting.set(Acting::Again);
    }

    /// Returns whether a thread that has announced a step took it before.
    pub fn takes_again(&self) -> bool {
        let left = self.left.get();
        let takes = self.acting.get() == Acting::Again && left.steps > 0;
        if takes {
            self.left.set(LogLength { steps: left.steps - 1, ..left });
        }
        takes
    }

    /// Returns whether no step and no result is left to be taken again.
    pub fn is_taken_again(&self) -> bool {
        self.left.get() == LogLength::default()
    }

    /// Notes that a thread takes a step.
    pub fn step(&self, thread: usize) {
        if self.acting.get() == Acting::Kept {
            self.log(thread, |log| log.steps += 1);
        }
    }

    fn log(&self, thread: usize, change: impl FnOnce(&mut StepLog)) {
        let mut threads = self.threads.borrow_mut();
        if threads.len() <= thread {
            threads.resize_with(thread + 1, StepLog::default);
        }
        change(&mut threads[thread]);
    }

    /// Next number that a thread was given.
    fn again(&self, thread: usize) -> u64 {
        let left = self.left.get();
        let threads = self.threads.borrow();
        let given = threads.get(thread).and_then(|log| {
            let at = log.given.len().checked_sub(left.given)?;
            log.given.get(at).copied()
        });
        let given = given.expect(KEEPS_SOMETHING);
        self.left.set(LogLength { given: left.given - 1, ..left });
        given
    }
}

/// Something that a step gives its thread.
pub(crate) trait StepResult {
    /// Hands itself over in numbers.
    fn keep(&self, number: &mut dyn FnMut(u64));
    /// Is made of the same numbers.
    fn again(number: &mut dyn FnMut() -> u64) -> Self;
}

impl StepResult for () {
    fn keep(&self, _number: &mut dyn FnMut(u64)) {}
    fn again(_number: &mut dyn FnMut() -> u64) {}
}

impl StepResult for u64 {
    fn keep(&self, number: &mut dyn FnMut(u64)) {
        number(*self);
    }
    fn again(number: &mut dyn FnMut() -> u64) -> u64 {
        number()
    }
}

impl StepResult for u32 {
    fn keep(&self, number: &mut dyn FnMut(u64)) {
        number((*self).into());
    }
    fn again(number: &mut dyn FnMut() -> u64) -> u32 {
        number() as u32
    }
}

impl StepResult for bool {
    fn keep(&self, number: &mut dyn FnMut(u64)) {
        number((*self).into());
    }
    fn again(number: &mut dyn FnMut() -> u64) -> bool {
        number() != 0
    }
}

impl StepResult for Option<u64> {
    fn keep(&self, number: &mut dyn FnMut(u64)) {
        self.is_some().keep(number);
        self.iter().for_each(|value| number(*value));
    }
    fn again(number: &mut dyn FnMut() -> u64) -> Option<u64> {
        bool::again(number).then(number)
    }
}

/// Outcomes of the kernel's mutexes, by number.
const OUTCOMES: [LockOutcome; 4] =
    [LockOutcome::Acquired, LockOutcome::OwnerDied, LockOutcome::Busy, LockOutcome::NotRecoverable];

impl StepResult for LockOutcome {
    fn keep(&self, number: &mut dyn FnMut(u64)) {
        number(OUTCOMES.iter().position(|outcome| outcome == self).expect("one of these") as u64);
    }
    fn again(number: &mut dyn FnMut() -> u64) -> LockOutcome {
        OUTCOMES[number() as usize]
    }
}

impl Machine {
    /// Acts on the state for a thread, or returns the result of the same step before.
    pub fn act<T: StepResult>(&self, thread: usize, act: impl FnOnce(&mut RunState) -> T) -> T {
        match self.logs.acting.get() {
            Acting::Once => act(&mut self.inner.borrow_mut()),
            Acting::Kept => {
                let given = act(&mut self.inner.borrow_mut());
                self.logs.log(thread, |log| given.keep(&mut |number| log.given.push(number)));
                given
            }
            Acting::Again => T::again(&mut || self.logs.again(thread)),
        }
    }
}
