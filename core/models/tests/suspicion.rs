//! Damaged words of a lock in front of a queue: never believed while a
//! living process has the lock or may get it, under every schedule; and found out when it is true.
//!
//! A sender that has looked often enough stays where it is for ever, as one that is stopped.

use loom::sync::Arc;
use loom::thread;

use towpath_channel::queue::{CLOSED, announce, intent, write_intent};
use towpath_channel::suspicion::{HOLDS, SUSPECTED, Suspicion, refute};
use towpath_machine::{Arena, LoomArena, LoomProcessor, LoomWord, Ordering, Place, Processor};
use towpath_testkit::model;

const QUEUE: u32 = 0;
const FREE: u64 = 0;
const HELD: u64 = 1;

const fn locking(rest: u64) -> u64 {
    intent::encode(QUEUE, intent::LOCKING, 0) | rest
}

/// The words that senders share: the lock (a test&set lock, or one that its holder hands
/// to the next endpoint), tail, intents.
struct Shared {
    lock: LoomWord,
    tail: LoomWord,
    intents: Vec<LoomWord>,
}

impl Shared {
    fn new(senders: usize, lock: u64) -> Shared {
        let arena = LoomArena::default();
        let word = |value| arena.word(Place::NewLine, value);
        Shared { lock: word(lock), tail: word(0), intents: (0..senders).map(|_| word(0)).collect() }
    }

    fn is_closed(&self, cpu: &LoomProcessor) -> bool {
        cpu.load(&self.tail, Ordering::Relaxed) & CLOSED != 0
    }

    /// The beginning of a call, as in `claim/locked.rs`.
    fn begin(&self, cpu: &LoomProcessor, me: u16) {
        let intent = &self.intents[usize::from(me)];
        if announce(cpu, intent, locking(0), &self.tail) & SUSPECTED != 0 {
            refute(cpu, &self.tail);
        }
    }

    /// The end of a call of the holder, which leaves this in the lock.
    fn end(&self, cpu: &LoomProcessor, me: u16, lock: u64) {
        assert!(!self.is_closed(cpu), "closed under its holder");
        // Release: the lock's own.
        cpu.store(&self.lock, lock, Ordering::Release);
        write_intent(cpu, &self.intents[usize::from(me)], 0);
    }

    /// Looks whether this value is in the lock, and takes it then, so often; in between
    /// asks and answers. Returns whether it was there.
    fn wait(&self, cpu: &LoomProcessor, me: u16, awaited: u64, looks: usize) -> bool {
        let suspicion = Suspicion::new(me);
        let words = self.intents.iter().enumerate().map(|(endpoint, word)| (endpoint as u16, word));
        for _ in 0..looks {
            // Acquire: the lock's own. A load, which may see an old value, where no other sender
            // takes it.
            let mine = match awaited {
                FREE => {
                    cpu.compare_exchange(&self.lock, FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
                }
                _ => cpu.load(&self.lock, Ordering::Acquire) == awaited,
            };
            if mine {
                return true;
            }
            assert!(
                !suspicion.is_abandoned(cpu, &self.tail, QUEUE, words.clone(), |_| true),
                "given up although it is sound"
            );
        }
        false
    }
}

/// The holder lets go, comes back and lets go again, while a waiter looks at the wrong
/// moments.
fn sender_that_begins_meanwhile(preemptions: usize) {
    model(preemptions, || {
        let shared = Arc::new(Shared::new(2, HELD));
        let holder = LoomProcessor { id: 1 };
        holder.store(&shared.intents[1], locking(HOLDS), Ordering::Relaxed);
        let theirs = shared.clone();
        let other = thread::spawn(move || {
            theirs.end(&holder, 1, FREE);
            theirs.begin(&holder, 1);
            if theirs.wait(&holder, 1, FREE, 1) {
                holder.store(&theirs.intents[1], locking(HOLDS), Ordering::Release);
                theirs.end(&holder, 1, FREE);
            }
        });
        let cpu = LoomProcessor { id: 0 };
        shared.begin(&cpu, 0);
        if shared.wait(&cpu, 0, FREE, 2) {
            shared.end(&cpu, 0, FREE);
        }
        other.join().unwrap();
    });
}

#[test]
fn sender_that_begins_meanwhile_refutes_the_suspicion() {
    sender_that_begins_meanwhile(4);
}

#[test]
#[ignore = "ten seconds"]
fn sender_that_begins_meanwhile_with_more_preemptions() {
    sender_that_begins_meanwhile(6);
}

/// A waiter that the holder has just handed the lock to is not aware of it, and stays so.
fn waiter_that_was_served_unawares(preemptions: usize) {
    const SERVES_2: u64 = 3;
    model(preemptions, || {
        let shared = Arc::new(Shared::new(3, HELD));
        // These wait already: no look at them finds news.
        let holder = LoomProcessor { id: 1 };
        holder.store(&shared.intents[1], locking(HOLDS), Ordering::Relaxed);
        for waiter in [0, 2] {
            holder.store(&shared.intents[waiter], locking(0), Ordering::Relaxed);
        }
        let (theirs, second) = (shared.clone(), shared.clone());
        let others = [
            thread::spawn(move || theirs.end(&holder, 1, SERVES_2)),
            thread::spawn(move || {
                second.wait(&LoomProcessor { id: 2 }, 2, SERVES_2, 2);
            }),
        ];
        // Its own turn never comes: the second does not hand over.
        shared.wait(&LoomProcessor { id: 0 }, 0, FREE, 3);
        for other in others {
            other.join().unwrap();
        }
    });
}

#[test]
fn waiter_that_was_served_unawares_is_not_passed_over() {
    waiter_that_was_served_unawares(2);
}

#[test]
#[ignore = "ten seconds"]
fn waiter_that_was_served_unawares_with_more_preemptions() {
    waiter_that_was_served_unawares(3);
}

/// Damaged words: one waiter alone finds it out at its second look, two after a question
/// and its answer.
#[test]
fn damaged_lock_is_given_up_when_all_that_wait_have_answered() {
    model(2, || {
        let damaged = 77;
        let shared = Shared::new(2, damaged);
        let [asks, answers] = [0, 1].map(|id| LoomProcessor { id });
        let words = || shared.intents.iter().enumerate().map(|(endpoint, word)| (endpoint as u16, word));
        shared.begin(&asks, 0);
        let alone = Suspicion::new(0);
        let look = |waiter: &Suspicion, cpu| waiter.is_abandoned(cpu, &shared.tail, QUEUE, words(), |_| true);
        assert!(!look(&alone, &asks));
        shared.begin(&answers, 1);
        let other = Suspicion::new(1);
        // A dead one in front of the lock needs no question.
        let dead = |endpoint| endpoint != 1;
        assert!(Suspicion::new(0).is_abandoned(&asks, &shared.tail, QUEUE, words(), dead));
        assert!(!shared.is_closed(&asks));
        // The new one has refuted it: asked again; then read, then answered.
        assert!(!look(&alone, &asks) && !look(&alone, &asks));
        assert!(!look(&other, &answers) && !look(&alone, &asks));
        assert!(!look(&other, &answers) && !shared.is_closed(&asks));
        assert!(look(&alone, &asks) && shared.is_closed(&asks));
    });
}
