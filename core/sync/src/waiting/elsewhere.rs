//! Waiters that sleep elsewhere: in an event loop, or as a task of an executor.
//!
//! The operation is tried once. If it would sleep, it leaves the mark of a sleeper in the word, and
//! the caller learns which word that is, and its value: the process that changes the word wakes the
//! futexes there, wherever the caller waits for that. Then the caller tries again.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::{Policy, Surroundings, Wait};
use crate::Deadline;

/// Word on which a waiter would sleep, and its low 32 bits, as a futex compares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asleep {
    /// Address of the word in this process.
    ///
    /// It counts as long as the object that is waited for stays where it is.
    pub address: usize,
    /// Low 32 bits of the word, when the waiter saw it.
    pub expected: u32,
}

/// Outcome of an operation that was tried once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt<R> {
    /// Result of an operation that has ended.
    Done(R),
    /// An operation to be tried again when the word changes, or its waiters are woken.
    ///
    /// Now and then also without: so deaths are found.
    Asleep(Asleep),
    /// An operation to be tried again at once.
    Again,
}

impl<R> Attempt<R> {
    /// The outcome, with its result changed.
    ///
    /// ```
    /// use towpath_sync::Attempt;
    ///
    /// assert_eq!(Attempt::Done(7).map(|n| n + 1), Attempt::Done(8));
    /// assert_eq!(Attempt::Again.map(|n: u64| n + 1), Attempt::Again);
    /// ```
    pub fn map<S>(self, change: impl FnOnce(R) -> S) -> Attempt<S> {
        match self {
            Attempt::Done(result) => Attempt::Done(change(result)),
            Attempt::Asleep(place) => Attempt::Asleep(place),
            Attempt::Again => Attempt::Again,
        }
    }
}

impl<R, E> Attempt<Result<R, E>> {
    /// Tries an operation that waits a turn at most ([`Deadline::ONE_TURN`]).
    ///
    /// `gave_up` says which errors mean that its time was over.
    ///
    /// ```
    /// use towpath_sync::{Alone, Attempt, Policy, TimedOut, Wait, robust::Event};
    /// use towpath_machine::Native;
    ///
    /// let (ready, cpu): (Event, _) = (Event::new(), Native::of_thread());
    /// let wait = Wait { policy: Policy::Park, around: &Alone, budget: 0 };
    /// let wait_for = |_: &TimedOut| true;
    /// let act = |wait: &Wait<'_>, turn| ready.wait_as(&cpu, wait, turn);
    /// let tried = || Attempt::of(&wait, wait_for, act);
    /// assert!(matches!(tried(), Attempt::Asleep(_)));
    /// ready.set();
    /// assert_eq!(tried(), Attempt::Done(Ok(())));
    /// ```
    pub fn of(
        wait: &Wait<'_>,
        gave_up: impl FnOnce(&E) -> bool,
        act: impl FnOnce(&Wait<'_>, Deadline) -> Result<R, E>,
    ) -> Self {
        let elsewhere =
            Elsewhere { around: wait.around, address: AtomicUsize::new(0), expected: AtomicU64::new(0) };
        let wait = Wait { policy: Policy::Park, around: &elsewhere, budget: 0 };
        match act(&wait, Deadline::ONE_TURN) {
            Err(error) if gave_up(&error) => {
                // Relaxed, both: this thread wrote them, if any did.
                match elsewhere.address.load(Ordering::Relaxed) {
                    0 => Attempt::Again,
                    address => Attempt::Asleep(Asleep {
                        address,
                        expected: elsewhere.expected.load(Ordering::Relaxed) as u32,
                    }),
                }
            }
            outcome => Attempt::Done(outcome),
        }
    }
}

/// Surroundings of a waiter that notes where it would sleep.
struct Elsewhere<'a> {
    around: &'a dyn Surroundings,
    /// 0: it did not come to that.
    address: AtomicUsize,
    expected: AtomicU64,
}

impl Surroundings for Elsewhere<'_> {
    fn oversubscribed(&self) -> bool {
        self.around.oversubscribed()
    }
    fn switch_cost(&self) -> u64 {
        self.around.switch_cost()
    }
    fn abandoned(&self) -> bool {
        self.around.abandoned()
    }
    fn identity(&self) -> u32 {
        self.around.identity()
    }
    fn is_alive(&self, identity: u32) -> bool {
        self.around.is_alive(identity)
    }
    fn rank_of(&self, identity: u32) -> Option<u32> {
        self.around.rank_of(identity)
    }
    fn deaths(&self) -> u64 {
        self.around.deaths()
    }
    fn sleeps_elsewhere(&self, word: *const (), seen: u64) -> bool {
        // Relaxed, both: for this thread.
        self.address.store(word.addr(), Ordering::Relaxed);
        self.expected.store(seen, Ordering::Relaxed);
        true
    }
}
