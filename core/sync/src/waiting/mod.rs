//! Waiting policies: how to wait is a parameter of every operation that may have to.
//!
//! A waiter that parks leaves [`PARKED`] in the word that it waits for; the process that changes
//! the word sees the bit in the value that it replaces and wakes the sleepers. Waking thus costs
//! nothing when no waiter sleeps. Values proper use bits 0 to 62, and a change that a waiter may
//! wait for changes the low 32 bits (what a futex compares).
//!
//! A word at memory cannot be marked (memory does not compare), so its waiters leave the mark in a
//! *doorbell* beside it, a word in the caches, and park on that. They look at the word once more in
//! between, and the processor that changes the word looks at the doorbell afterwards: one of the
//! two sees the other.

use towpath_machine::Processor;

mod elsewhere;
mod late;
mod policy;
mod slow_rounds;
mod spinning;
pub mod strategy;
mod surroundings;
mod wait;

pub use elsewhere::{Asleep, Attempt};
pub use late::LateWait;
pub use policy::Policy;
pub use slow_rounds::{SlowRounds, SlowSpan};
pub use spinning::Spinning;
pub(crate) use surroundings::OwnThreads;
pub use surroundings::{Alone, Surroundings, is_oversubscribed};
pub use wait::Wait;

/// Bit of a waited-for word that says that a waiter is parked on it.
pub const PARKED: u64 = 1 << 63;
/// Round of a waiter that is woken when its turn comes: all before it are over.
pub(crate) const CALLED: u32 = u32::MAX;

/// Error of a wait that was given up: the process that would have ended it is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abandoned;

/// Way of waiting, and of letting go so that waiters notice.
pub trait Waiting<P: Processor> {
    /// Returns whether waiters may be parked, so that releases must look for them.
    fn parks(&self) -> bool;

    /// Waits until `done` accepts the word's value (given without [`PARKED`]), which was
    /// read with Acquire. Returns that value.
    ///
    /// # Errors
    ///
    /// [`Abandoned`] if the surroundings say that the wait can't end any more.
    fn wait_until(&self, cpu: &P, word: &P::Word, done: impl FnMut(u64) -> bool) -> Result<u64, Abandoned>;

    /// Waits as [`Waiting::wait_until`] does, with pauses of as many nanoseconds as
    /// `pause` makes of the word's value (also without [`PARKED`]): proportional and exponential
    /// back-off. With a doorbell if the word lies at memory: then released by
    /// [`Waiting::release_and_wake`] with the same one.
    ///
    /// # Errors
    ///
    /// As [`Waiting::wait_until`].
    fn wait_until_pausing(
        &self,
        cpu: &P,
        word: &P::Word,
        doorbell: Option<&P::Word>,
        _pause: impl FnMut(u64) -> u64,
        done: impl FnMut(u64) -> bool,
    ) -> Result<u64, Abandoned> {
        match doorbell {
            Some(doorbell) => self.wait_until_woken(cpu, word, doorbell, done),
            None => self.wait_until(cpu, word, done),
        }
    }

    /// Waits as [`Waiting::wait_until`] does for a word at memory, with its doorbell:
    /// released by [`Waiting::release_and_wake`] with the same one.
    ///
    /// # Errors
    ///
    /// As [`Waiting::wait_until`].
    fn wait_until_woken(
        &self,
        cpu: &P,
        word: &P::Word,
        _doorbell: &P::Word,
        done: impl FnMut(u64) -> bool,
    ) -> Result<u64, Abandoned> {
        self.wait_until(cpu, word, done)
    }

    /// This way of waiting, but spinning `times` as long where it spins before it sleeps
    /// or yields: for barriers, where the participants arrive one after the other.
    fn scaled(&self, _times: u64) -> Self
    where
        Self: Clone,
    {
        self.clone()
    }

    /// Waits a little where there is no word to wait for: the `round`-th time in a row
    /// (from 0).
    ///
    /// # Errors
    ///
    /// As [`Waiting::wait_until`].
    fn back_off(&self, cpu: &P, round: u32) -> Result<(), Abandoned>;

    /// Waits a little in front of a full queue: the `round`-th time in a row (from 0).
    ///
    /// # Errors
    ///
    /// As [`Waiting::wait_until`].
    #[inline(always)]
    fn back_off_for_space(&self, cpu: &P, round: u32) -> Result<(), Abandoned> {
        self.back_off(cpu, round)
    }

    /// Number of attempts at a lock before queueing for it: 0, except where a place in a
    /// FIFO queue could make all waiters wait for a process that isn't running.
    fn attempts_before_queueing(&self, cpu: &P) -> u32;

    /// Waits for the word to differ from `seen` (both without [`PARKED`]), for a turn of
    /// at most about `turn` nanoseconds: spins, yields or sleeps. May return early for no reason.
    fn wait_turn(&self, cpu: &P, word: &P::Word, seen: u64, round: u32, turn: u64);

    /// Waits for the word to differ from `seen` as [`Waiting::wait_turn`], but awake.
    ///
    /// Spins for about as long as a context switch takes, unless the policy is to sleep at once.
    /// Returns whether the word has changed. By default it does not wait.
    fn watch(&self, _cpu: &P, _word: &P::Word, _seen: u64) -> bool {
        false
    }

    /// Waits a little, awake, before the next attempt at a lock that is taken.
    ///
    /// It does not look at the word, whose line the owner has to itself. By default it does not
    /// wait.
    ///
    /// `attempt`: number of attempts in a row since the first one. Returns false, without a wait,
    /// after some context switches' time, or if the policy is to sleep at once.
    fn pause(&self, _cpu: &P, _attempt: u32) -> bool {
        false
    }

    /// Waits a little without a look at the word. By default it does not wait.
    ///
    /// `round`: number of looks in a row before the last one at which another process was faster.
    /// The others have the word's line to themselves meanwhile.
    fn keep_away(&self, _cpu: &P, _round: u32) {}

    /// Returns whether more runnable participants than cores share the machine, as far as
    /// it matters to the policy.
    fn is_oversubscribed(&self) -> bool {
        false
    }

    /// Time after which one of so many users of a lock gives its core to another thread,
    /// in nanoseconds. `None`: it keeps the core, since they have one each, or this way of waiting
    /// leaves that to the system.
    fn rest_after(&self, _users: usize) -> Option<u64> {
        None
    }

    /// Gives the core to another thread.
    fn rest(&self, _cpu: &P) {}

    /// Wakes the waiters that are parked on the word, for algorithms that keep a mark of
    /// their own.
    fn wake_all(&self, _cpu: &P, _word: &P::Word) {}

    /// Wakes at most `count` waiters that are parked on the word. Returns their number.
    fn wake_some(&self, _cpu: &P, _word: &P::Word, _count: u32) -> u32 {
        0
    }

    /// Identity of the caller among the processes that share the lock, 1 to 2³¹ − 1, for
    /// a robust lock to write down.
    fn identity(&self) -> u32 {
        1
    }

    /// Returns whether the process of that identity is alive.
    fn is_alive(&self, _identity: u32) -> bool {
        true
    }

    /// Rank of the process of that identity, if it has one.
    fn rank_of(&self, _identity: u32) -> Option<u32> {
        None
    }

    /// Writes a word that others may wait for, with Release, and wakes them.
    fn release(&self, cpu: &P, word: &P::Word, value: u64);

    /// Writes a word at memory as [`Waiting::release`] does, with the doorbell that its
    /// waiters were given.
    fn release_and_wake(&self, cpu: &P, word: &P::Word, _doorbell: &P::Word, value: u64) {
        self.release(cpu, word, value);
    }

    /// Writes as [`Waiting::release`] does, waking at most `count` waiters, for words of
    /// which only that many can make use. The rest stay asleep until the next time, or (since the
    /// mark for them may come too late) until their turn is over: only for waiters in
    /// [`Waiting::wait_turn`].
    fn release_some(&self, cpu: &P, word: &P::Word, value: u64, count: u32);
}
