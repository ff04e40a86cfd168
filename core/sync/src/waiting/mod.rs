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
pub use surroundings::{Alone, OwnThreads, Surroundings, is_oversubscribed};
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
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::{Alone, Spinning, Wait, Waiting};
    ///
    /// assert!(!Waiting::<Native>::parks(&Spinning)); // a plain store releases
    /// assert!(Waiting::<Native>::parks(&Wait::adaptive(&Alone)));
    /// ```
    fn parks(&self) -> bool;

    /// Waits until `done` accepts the word's value (given without [`PARKED`]), which was
    /// read with Acquire. Returns that value.
    ///
    /// # Errors
    ///
    /// [`Abandoned`] if the surroundings say that the wait can't end any more.
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::{Alone, Wait, Waiting};
    ///
    /// let (wait, state) = (Wait::adaptive(&Alone), Native::word(0));
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| wait.release(&Native::current(), &state, 2));
    ///     assert_eq!(wait.wait_until(&Native::current(), &state, |value| value > 0), Ok(2));
    /// });
    /// ```
    fn wait_until(&self, cpu: &P, word: &P::Word, done: impl FnMut(u64) -> bool) -> Result<u64, Abandoned>;

    /// Waits as [`Waiting::wait_until`] does, with pauses of as many nanoseconds as
    /// `pause` makes of the word's value (also without [`PARKED`]): proportional and exponential
    /// back-off. With a doorbell if the word lies at memory: then released by
    /// [`Waiting::release_and_wake`] with the same one.
    ///
    /// # Errors
    ///
    /// As [`Waiting::wait_until`].
    ///
    /// A ticket lock's waiter, the fourth in the queue:
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::{Spinning, Waiting};
    ///
    /// let (cpu, serving) = (Native::current(), Native::word(0));
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| (1..=3).for_each(|next| Spinning.release(&cpu, &serving, next)));
    ///     let pause = |served| (3 - served) * 100; // nanoseconds
    ///     let seen = Spinning.wait_until_pausing(&cpu, &serving, None, pause, |now| now == 3);
    ///     assert_eq!(seen, Ok(3));
    /// });
    /// ```
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
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::{Alone, Wait, Waiting};
    ///
    /// let (cpu, wait) = (Native::current(), Wait::adaptive(&Alone));
    /// let (at_memory, doorbell) = (Native::word(0), Native::word(0));
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| wait.release_and_wake(&cpu, &at_memory, &doorbell, 5));
    ///     let seen = wait.wait_until_woken(&cpu, &at_memory, &doorbell, |value| value == 5);
    ///     assert_eq!(seen, Ok(5));
    /// });
    /// ```
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
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::{Alone, Policy, Wait, Waiting};
    ///
    /// let wait = Wait { policy: Policy::SpinThenPark, around: &Alone, budget: 2_000 };
    /// // Three participants have yet to come:
    /// assert_eq!(Waiting::<Native>::scaled(&wait, 3).budget, 6_000);
    /// ```
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
    ///
    /// ```
    /// use towpath_machine::{LlSc, Native};
    /// use towpath_sync::{Spinning, Waiting};
    ///
    /// let (cpu, word, mut round) = (Native::current(), Native::word(1), 0);
    /// while !{
    ///     let seen = cpu.load_linked(&word);
    ///     cpu.store_conditional(&word, seen * 2)
    /// } {
    ///     Spinning.back_off(&cpu, round)?;
    ///     round += 1;
    /// }
    /// assert_eq!(word.into_inner(), 2);
    /// # Ok::<(), towpath_sync::Abandoned>(())
    /// ```
    fn back_off(&self, cpu: &P, round: u32) -> Result<(), Abandoned>;

    /// Waits a little in front of a full queue: the `round`-th time in a row (from 0).
    ///
    /// # Errors
    ///
    /// As [`Waiting::wait_until`].
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::{Spinning, Waiting};
    ///
    /// let (cpu, mut free) = (Native::current(), 0);
    /// for round in 0..3 {
    ///     Spinning.back_off_for_space(&cpu, round)?; // the longer, the more rounds it takes
    ///     free += 1;
    /// }
    /// assert_eq!(free, 3);
    /// # Ok::<(), towpath_sync::Abandoned>(())
    /// ```
    #[inline(always)]
    fn back_off_for_space(&self, cpu: &P, round: u32) -> Result<(), Abandoned> {
        self.back_off(cpu, round)
    }

    /// Number of attempts at a lock before queueing for it: 0, except where a place in a
    /// FIFO queue could make all waiters wait for a process that isn't running.
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::{Spinning, Waiting};
    ///
    /// assert_eq!(Spinning.attempts_before_queueing(&Native::current()), 0); // queues at once
    /// ```
    fn attempts_before_queueing(&self, cpu: &P) -> u32;

    /// Waits for the word to differ from `seen` (both without [`PARKED`]), for a turn of
    /// at most about `turn` nanoseconds: spins, yields or sleeps. May return early for no reason.
    ///
    /// ```
    /// use towpath_machine::{Native, Ordering, Processor};
    /// use towpath_sync::{Alone, Wait, Waiting};
    ///
    /// let (cpu, wait, word) = (Native::current(), Wait::adaptive(&Alone), Native::word(0));
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| wait.release(&cpu, &word, 1));
    ///     let mut round = 0;
    ///     while cpu.load(&word, Ordering::Acquire) != 1 {
    ///         wait.wait_turn(&cpu, &word, 0, round, 1_000_000); // then looks after other things
    ///         round += 1;
    ///     }
    /// });
    /// ```
    fn wait_turn(&self, cpu: &P, word: &P::Word, seen: u64, round: u32, turn: u64);

    /// Waits for the word to differ from `seen` as [`Waiting::wait_turn`], but awake.
    ///
    /// Spins for about as long as a context switch takes, unless the policy is to sleep at once.
    /// Returns whether the word has changed. By default it does not wait.
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::{Alone, Wait, Waiting};
    ///
    /// let (cpu, wait, word) = (Native::current(), Wait::adaptive(&Alone), Native::word(4));
    /// assert!(wait.watch(&cpu, &word, 3)); // it has changed since 3 was seen
    /// ```
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
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::{Alone, Policy, Wait, Waiting};
    ///
    /// let cpu = Native::current();
    /// let park = Wait { policy: Policy::Park, around: &Alone, budget: 2_000 };
    /// assert!(!park.pause(&cpu, 0)); // sleeps instead
    /// ```
    fn pause(&self, _cpu: &P, _attempt: u32) -> bool {
        false
    }

    /// Waits a little without a look at the word. By default it does not wait.
    ///
    /// `round`: number of looks in a row before the last one at which another process was faster.
    /// The others have the word's line to themselves meanwhile.
    ///
    /// ```
    /// use towpath_machine::Ordering::{AcqRel, Relaxed};
    /// use towpath_machine::{Native, Processor};
    /// use towpath_sync::{Alone, Wait, Waiting};
    ///
    /// let (cpu, wait, count) = (Native::current(), Wait::adaptive(&Alone), Native::word(0));
    /// for round in 0.. {
    ///     let seen = cpu.load(&count, Relaxed);
    ///     if cpu.compare_exchange(&count, seen, seen + 1, AcqRel, Relaxed).is_ok() {
    ///         break;
    ///     }
    ///     wait.keep_away(&cpu, round); // another thread was faster
    /// }
    /// assert_eq!(count.into_inner(), 1);
    /// ```
    fn keep_away(&self, _cpu: &P, _round: u32) {}

    /// Returns whether more runnable participants than cores share the machine, as far as
    /// it matters to the policy.
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::{Alone, Wait, Waiting};
    ///
    /// assert!(!Waiting::<Native>::is_oversubscribed(&Wait::adaptive(&Alone)));
    /// ```
    fn is_oversubscribed(&self) -> bool {
        false
    }

    /// Time after which one of so many users of a lock gives its core to another thread,
    /// in nanoseconds. `None`: it keeps the core, since they have one each, or this way of waiting
    /// leaves that to the system.
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::{Spinning, Waiting};
    ///
    /// // never gives its core away
    /// assert_eq!(Waiting::<Native>::rest_after(&Spinning, 100), None);
    /// ```
    fn rest_after(&self, _users: usize) -> Option<u64> {
        None
    }

    /// Gives the core to another thread.
    ///
    /// ```
    /// use towpath_machine::{Native, Processor};
    /// use towpath_sync::{Alone, Wait, Waiting};
    ///
    /// let (cpu, wait) = (Native::current(), Wait::adaptive(&Alone));
    /// let begin = cpu.now();
    /// if Waiting::<Native>::rest_after(&wait, 8).is_some_and(|ns| cpu.now() - begin > ns) {
    ///     wait.rest(&cpu); // eight users have fewer cores
    /// }
    /// ```
    fn rest(&self, _cpu: &P) {}

    /// Wakes the waiters that are parked on the word, for algorithms that keep a mark of
    /// their own.
    ///
    /// ```
    /// use towpath_machine::{Native, Ordering, Park, Processor};
    /// use towpath_sync::{Alone, Wait, Waiting};
    ///
    /// let (cpu, wait, round) = (Native::current(), Wait::adaptive(&Alone), Native::word(0));
    /// std::thread::scope(|scope| {
    ///     for _ in 0..2 {
    ///         scope.spawn(|| {
    ///             while cpu.load(&round, Ordering::Acquire) == 0 {
    ///                 cpu.park(&round, 0, u64::MAX);
    ///             }
    ///         });
    ///     }
    ///     cpu.store(&round, 1, Ordering::Release);
    ///     wait.wake_all(&cpu, &round);
    /// });
    /// ```
    fn wake_all(&self, _cpu: &P, _word: &P::Word) {}

    /// Wakes at most `count` waiters that are parked on the word. Returns their number.
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::{Alone, Wait, Waiting};
    ///
    /// let (cpu, word) = (Native::current(), Native::word(0));
    /// assert_eq!(Wait::adaptive(&Alone).wake_some(&cpu, &word, 3), 0); // none sleeps
    /// ```
    fn wake_some(&self, _cpu: &P, _word: &P::Word, _count: u32) -> u32 {
        0
    }

    /// Identity of the caller among the processes that share the lock, 1 to 2³¹ − 1, for
    /// a robust lock to write down.
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::{Alone, Surroundings, Wait, Waiting};
    ///
    /// let wait = Wait::adaptive(&Alone);
    /// assert_eq!(Waiting::<Native>::identity(&wait), Alone.identity());
    /// ```
    fn identity(&self) -> u32 {
        1
    }

    /// Returns whether the process of that identity is alive.
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::{Spinning, Waiting};
    ///
    /// assert!(Waiting::<Native>::is_alive(&Spinning, 5)); // it knows of no deaths
    /// ```
    fn is_alive(&self, _identity: u32) -> bool {
        true
    }

    /// Rank of the process of that identity, if it has one.
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::{Alone, Wait, Waiting};
    ///
    /// assert_eq!(Waiting::<Native>::rank_of(&Wait::adaptive(&Alone), 1), None); // no ranks here
    /// ```
    fn rank_of(&self, _identity: u32) -> Option<u32> {
        None
    }

    /// Writes a word that others may wait for, with Release, and wakes them.
    ///
    /// ```
    /// use towpath_machine::{Native, Ordering, Processor};
    /// use towpath_sync::{Alone, PARKED, Wait, Waiting};
    ///
    /// let (cpu, lock) = (Native::current(), Native::word(PARKED | 1));
    /// Wait::adaptive(&Alone).release(&cpu, &lock, 0); // wakes the waiters that set the mark
    /// assert_eq!(cpu.load(&lock, Ordering::Relaxed), 0);
    /// ```
    fn release(&self, cpu: &P, word: &P::Word, value: u64);

    /// Writes a word at memory as [`Waiting::release`] does, with the doorbell that its
    /// waiters were given.
    ///
    /// ```
    /// use towpath_machine::{Native, Ordering, Processor};
    /// use towpath_sync::{Alone, PARKED, Wait, Waiting};
    ///
    /// let (cpu, at_memory, doorbell) = (Native::current(), Native::word(1), Native::word(PARKED));
    /// Wait::adaptive(&Alone).release_and_wake(&cpu, &at_memory, &doorbell, 0);
    /// assert_eq!(cpu.load(&doorbell, Ordering::Relaxed) & PARKED, 0); // its sleepers were woken
    /// ```
    fn release_and_wake(&self, cpu: &P, word: &P::Word, _doorbell: &P::Word, value: u64) {
        self.release(cpu, word, value);
    }

    /// Writes as [`Waiting::release`] does, waking at most `count` waiters, for words of
    /// which only that many can make use. The rest stay asleep until the next time, or (since the
    /// mark for them may come too late) until their turn is over: only for waiters in
    /// [`Waiting::wait_turn`].
    ///
    /// ```
    /// use towpath_machine::{Native, Ordering, Processor};
    /// use towpath_sync::{Alone, PARKED, Wait, Waiting};
    ///
    /// let (cpu, permits) = (Native::current(), Native::word(PARKED));
    /// Wait::adaptive(&Alone).release_some(&cpu, &permits, 1, 1); // one permit for one waiter
    /// assert_eq!(cpu.load(&permits, Ordering::Relaxed) & !PARKED, 1);
    /// ```
    fn release_some(&self, cpu: &P, word: &P::Word, value: u64, count: u32);
}
