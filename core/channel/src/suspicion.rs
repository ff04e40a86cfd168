//! Finding out, without a clock, that the words of a spin lock in front of a queue are
//! damaged.
//!
//! **Source.** Ours. A spin lock does not name its holder. Senders say before they touch it that
//! they are about to (intent [`LOCKING`](intent::LOCKING)), and when they have it ([`HOLDS`]); in
//! between they may be anywhere: waiting, or served and not yet aware of it, and then stopped for
//! any length of time. If no living sender has the lock or ever will, its words are damaged, and
//! the queue must be closed, or all that wait do so for ever.
//!
//! **How.** The waiter with the lowest endpoint asks all others; each answers only from its own
//! wait loop, so one that is stopped, or runs elsewhere, does not answer, and nothing is decided
//! without it.
//!
//! | step | the one that asks | the others |
//! | --- | --- | --- |
//! | 1 | sets [`SUSPECTED`] in the tail, then notes the senders that are LOCKING; gives up if one HOLDS | a sender that begins to lock, and one that claims, clears the bit |
//! | 2 | writes a new round into its intent | a waiter that reads the round looks at the lock once more |
//! | 3 | | if it still waits then, it writes the round into its own intent |
//! | 4 | if those noted, and no others, are LOCKING and have answered: closes the queue, provided that the bit is still set | |
//!
//! *Why that is right.* Let the bit be set from 1 to 4. Then no call began meanwhile: it would have
//! cleared the bit, or its intent came before the bit and was noted. Those noted are in one call
//! each from 1 to 4, since an end of a call shows in 4. A sender that had left the lock before 1
//! had done so before the round was written (its intent was read), so each answer came after
//! looking at a lock that was released by all of them, and found it not its own. The noted ones
//! released nothing since. So no sender has the lock, and none is left that could hand it over.
//!
//! **Progress.** Obstruction-free: calls that begin meanwhile make the asking waiter begin again.
//!
//! **Fields.** `tail`: all endpoints. Intents: their endpoint. A round is a number that no earlier
//! round of that endpoint had; it is written by the one that asks and copied by those that answer,
//! with the asking endpoint.
//!
//! **Crashes.** One that asks and dies: its intent shows it, and all that wait learn of its death.
//! The bit that it left is cleared by the next sender.
//!
//! **Don't use it** for locks that know their owner: they have nothing to ask.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use towpath_machine::{Ordering, Processor, Random};

use crate::packet::ENDPOINT_BITS;
use crate::queue::{CLOSED, HOLES, intent, stop};

/// Part of the tail of a queue under a lock: a waiter asks whether its words are damaged.
/// (Such a queue has no [`HOLES`].)
pub const SUSPECTED: u64 = HOLES;

/// Part of a [`LOCKING`](intent::LOCKING) intent: its writer certainly has the lock.
pub const HOLDS: u64 = 1 << 20;

/// Number of the first bit of the question in a LOCKING intent: the endpoint that asks
/// (12 bits) and its round (31 bits), or 0.
const ASKED: u32 = 21;
const ENDPOINT: u64 = (1 << ENDPOINT_BITS) - 1;
const ROUND: u64 = (1 << 31) - 1;

/// A question as in an intent: the endpoint that asks, and its round. Never 0.
fn question_of(endpoint: u16, round: u64) -> u64 {
    (round & ROUND).max(1) << ENDPOINT_BITS | u64::from(endpoint) & ENDPOINT
}

/// Returns whether an endpoint has asked this question.
fn is_of(question: u64, endpoint: u16) -> bool {
    question != 0 && question & ENDPOINT == u64::from(endpoint) & ENDPOINT
}

/// Returns a round that this process has not had for nine minutes, nor a process that had
/// its endpoint before: a counter that is never behind the clock.
fn next_round(now: u64) -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let next = |last: u64| last.wrapping_add(1).max(now >> 8);
    // Relaxed: a number, which orders nothing.
    LAST.fetch_update(Relaxed, Relaxed, |last| Some(next(last))).map_or(1, next)
}

/// A set of endpoints: two sets with the same value are equal, but for one chance in 2⁶⁴.
fn with_member(set: u64, endpoint: u16) -> u64 {
    set.wrapping_add(Random::new(endpoint.into()).word())
}

/// A waiter's part, for one call of `lock`.
#[derive(Debug)]
pub struct Suspicion {
    /// The waiter's endpoint.
    me: u16,
    /// The question that the waiter asks, or the one of another that it has read; 0:
    /// none.
    question: AtomicU64,
    /// The set of the endpoints that were LOCKING when the waiter asked
    /// ([`with_member`]).
    noted: AtomicU64,
}

impl Suspicion {
    /// A waiter that has neither asked nor read anything.
    ///
    /// ```
    /// use towpath_channel::suspicion::Suspicion;
    /// use towpath_machine::Native;
    ///
    /// let (cpu, tail) = (Native::current(), Native::word(0));
    /// let waiter = Suspicion::new(0); // of endpoint 0
    /// assert!(!waiter.is_abandoned(&cpu, &tail, 0, std::iter::empty(), |_| true)); // none locks
    /// ```
    #[inline(always)]
    pub fn new(me: u16) -> Self {
        let word = || AtomicU64::new(0);
        Suspicion { me, question: word(), noted: word() }
    }

    /// Returns whether the lock can never be had again.
    ///
    /// That is so if an endpoint died while it was LOCKING, or no endpoint has the lock or ever
    /// will (the queue is closed then). A waiter calls it
    /// again and again, and looks at the lock between two calls.
    ///
    /// `intents`: endpoint and word of each intent. `lives`: whether an endpoint's owner lives.
    ///
    /// ```
    /// use towpath_channel::queue::{intent, write_intent};
    /// use towpath_channel::suspicion::Suspicion;
    /// use towpath_machine::Native;
    ///
    /// let (cpu, tail, word) = (Native::current(), Native::word(0), Native::word(0));
    /// write_intent(&cpu, &word, intent::encode(3, intent::LOCKING, 0)); // of endpoint 1
    /// let (intents, waiter) = ([(1, &word)], Suspicion::new(0));
    /// assert!(!waiter.is_abandoned(&cpu, &tail, 3, intents.into_iter(), |_| true));
    /// assert!(waiter.is_abandoned(&cpu, &tail, 3, intents.into_iter(), |_| false)); // it has died
    /// ```
    pub fn is_abandoned<'a, P: Processor>(
        &self,
        cpu: &P,
        tail: &P::Word,
        queue: u32,
        intents: impl Iterator<Item = (u16, &'a P::Word)> + Clone,
        lives: impl Fn(u16) -> bool,
    ) -> bool {
        let me = self.me;
        // (U1) Acquire: pairs with the Release (I2) of the senders, which have left the lock
        // before, and with (3).
        let locking = || {
            intents.clone().filter_map(|(endpoint, word)| {
                let intent = cpu.load(word, Ordering::Acquire);
                (intent::phase(intent, queue) == Some(intent::LOCKING)).then_some((endpoint, word, intent))
            })
        };
        // The endpoints that are LOCKING, if none has the lock.
        let waiting = || {
            locking().try_fold(0u64, |seen, (endpoint, _, intent)| {
                (intent & HOLDS == 0).then_some(with_member(seen, endpoint))
            })
        };
        // The lowest of the endpoints that are LOCKING, if all of them live.
        let mut lowest: Option<(u16, &P::Word, u64)> = None;
        for found in locking() {
            if !lives(found.0) {
                return true;
            }
            if lowest.is_none_or(|(first, ..)| found.0 < first) {
                lowest = Some(found);
            }
        }
        let Some((first, word, intent)) = lowest else { return false };
        // Relaxed, these two words throughout: the waiter's own.
        let question = self.question.load(Relaxed);
        if first != me {
            let own = locking().find(|(endpoint, ..)| *endpoint == me);
            self.answer(cpu, intent >> ASKED, own);
            return false;
        }
        if !is_of(question, me) {
            // A sender that begins sees the bit, and clears it, or its intent is noted below.
            stop(cpu, tail, SUSPECTED);
            let Some(noted) = waiting() else { return false };
            // Only that no two are alike matters: a waiter may still show the answer to an earlier
            // one, of this call (hence the count) or of another (hence the time).
            let question = question_of(me, next_round(cpu.now()));
            self.noted.store(noted, Relaxed);
            self.question.store(question, Relaxed);
            // (U3) Release: those that had left the lock when they were looked at had done so
            // before; pairs with (1).
            cpu.store(word, intent::encode(queue, intent::LOCKING, 0) | question << ASKED, Ordering::Release);
            return false;
        }
        // Relaxed: (4) decides.
        let now = cpu.load(tail, Ordering::Relaxed);
        if waiting() != Some(self.noted.load(Relaxed)) || now & (SUSPECTED | CLOSED) != SUSPECTED {
            // A sender has begun, ended, or got the lock: asks again next time.
            self.question.store(0, Relaxed);
            return false;
        }
        // In the order in which the question was asked: an end of a call after this would be the
        // end of one that has answered.
        let answered = locking().all(|(endpoint, _, intent)| endpoint == me || intent >> ASKED == question);
        // Relaxed: closes the queue; fails if a sender has begun, or has claimed, or the queue is
        // closed, all of which change this word. It comes after the intents, which acquire (U1),
        // and hands nothing over.
        answered
            && waiting() == Some(self.noted.load(Relaxed))
            && cpu
                .compare_exchange(tail, now, now & !SUSPECTED | CLOSED, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Answers a question if the lock has been looked at since it was read.
    fn answer<P: Processor>(&self, cpu: &P, question: u64, own: Option<(u16, &P::Word, u64)>) {
        let read = self.question.swap(question, Relaxed);
        let Some((_, word, intent)) = own else { return };
        if question != 0 && read == question && intent >> ASKED != question {
            let answer = intent & ((1 << ASKED) - 1) | question << ASKED;
            // Relaxed: it depends on the look at the lock, which (1) has put after the round;
            // nothing is handed over.
            cpu.store(word, answer, Ordering::Relaxed);
        }
    }
}

/// Clears the bit for a sender that begins to lock, or claims, although a waiter asks.
///
/// ```
/// use towpath_channel::suspicion::refute;
/// use towpath_machine::Native;
///
/// let (cpu, tail) = (Native::current(), Native::word(5));
/// assert_eq!(refute(&cpu, &tail), 5); // the tail, without the waiter's mark
/// ```
#[cold]
pub fn refute<P: Processor>(cpu: &P, tail: &P::Word) -> u64 {
    // Relaxed: atomic with the waiter's steps on this word. The sender's fence (I3) before it
    // orders its intent before a question that sets the bit again.
    cpu.fetch_and(tail, !SUSPECTED, Ordering::Relaxed) & !SUSPECTED
}
