//! Census of a queue: its senders' intents and liveness, asked by a receiver that waits
//! too long.
//!
//! A sender writes into an intent word which step it is about to take (`claim/`, `path.rs`), so a
//! receiver that finds no living sender with such an intent knows that the step will never be
//! taken. An implementation says where the words lie and which senders live; what follows from both
//! is here.
//!
//! **Fields.** Each sender has, for each kind of queue that it sends to, a word for claims, and
//! then, for each kind, a word for blocks. Only the sender writes them, and its successor.
//!
//! **A death.** The intent is loaded first and the question asked second: a sender that is dead by
//! then has not published, and will not.

use towpath_machine::{Ordering, Processor};

/// Time for which the head may wait for a claimed packet before the receiver looks past
/// it, in nanoseconds.
pub const STALL: u64 = 1_000_000;

/// Reads an intent word, for a [`Census`].
///
/// ```
/// use towpath_channel::queue::{intent, read_intent, write_intent};
/// use towpath_machine::Native;
///
/// let (cpu, word) = (Native::current(), Native::word(0));
/// write_intent(&cpu, &word, intent::encode(3, intent::CLAIMED, 9));
/// assert!(intent::may_own(read_intent(&cpu, &word), 3, 9));
/// ```
#[inline]
pub fn read_intent<P: Processor>(cpu: &P, word: &P::Word) -> u64 {
    // (I5) Acquire: pairs with the Release (I2) in `write_intent`.
    cpu.load(word, Ordering::Acquire)
}

/// Writes an intent word, for its sender or the sender's successor.
///
/// ```
/// use towpath_channel::queue::{read_intent, write_intent};
/// use towpath_machine::Native;
///
/// let (cpu, word) = (Native::current(), Native::word(7));
/// write_intent(&cpu, &word, 0); // it is about to do nothing
/// assert_eq!(read_intent(&cpu, &word), 0);
/// ```
#[inline(always)]
pub fn write_intent<P: Processor>(cpu: &P, word: &P::Word, intent: u64) {
    // (I2) Release: a survivor that sees it sees the sender's steps before, in this queue and in
    // others; pairs with the Acquire (I5) in `read_intent`.
    cpu.store(word, intent, Ordering::Release);
}

/// Writes an intent word, then reads a word by which the queue's owner stops senders.
///
/// Either the owner, which changes that word ([`stop`]) before it reads the intents, sees the
/// intent, or the sender sees the change.
///
/// ```
/// use towpath_channel::queue::{CLOSED, announce, intent, stop};
/// use towpath_machine::Native;
///
/// let (cpu, word, tail) = (Native::current(), Native::word(0), Native::word(0));
/// stop(&cpu, &tail, CLOSED); // the owner leaves
/// let seen = announce(&cpu, &word, intent::encode(3, intent::CLAIMING, 0), &tail);
/// assert_eq!(seen & CLOSED, CLOSED); // the sender stops
/// ```
#[inline]
pub fn announce<P: Processor>(cpu: &P, word: &P::Word, intent: u64, stop: &P::Word) -> u64 {
    write_intent(cpu, word, intent);
    // (I3) SeqCst: between the two; pairs with the fence (I4) in `stop`.
    cpu.fence(Ordering::SeqCst);
    // Relaxed: after the fence.
    cpu.load(stop, Ordering::Relaxed)
}

/// Sets bits that stop senders, before their intents are read.
///
/// ```
/// use towpath_channel::queue::{CLOSED, announce, intent, read_intent, stop};
/// use towpath_machine::Native;
///
/// let (cpu, word, tail) = (Native::current(), Native::word(0), Native::word(0));
/// let seen = announce(&cpu, &word, intent::encode(3, intent::CLAIMING, 0), &tail);
/// stop(&cpu, &tail, CLOSED);
/// let found = intent::phase(read_intent(&cpu, &word), 3);
/// assert!(seen & CLOSED != 0 || found.is_some()); // one of the two sees the other one
/// ```
#[inline]
pub fn stop<P: Processor>(cpu: &P, word: &P::Word, bits: u64) {
    // Relaxed: before the fence, which acquires the claims before it.
    cpu.fetch_or(word, bits, Ordering::Relaxed);
    // (I4) SeqCst: pairs with the fence (I3) in `announce`, and with the Release of claims on the
    // tail.
    cpu.fence(Ordering::SeqCst);
}

/// Intent words and liveness of a queue's senders.
///
/// `One` in the examples is the census of one sender (`doc/queue.rs`).
pub trait Census {
    /// Returns the number of senders' places; their endpoints are numbered from 0.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// let census = One { intent: &intent, lives: true }; // implements it for one sender
    /// assert_eq!(census.endpoints(), 1);
    /// # }
    /// ```
    fn endpoints(&self) -> usize;
    /// Returns the number of kinds of queues for which a sender has intent words.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// assert_eq!(One { intent: &intent, lives: true }.kinds(), 1); // requests alone, say
    /// # }
    /// ```
    fn kinds(&self) -> usize {
        1
    }
    /// Loads an intent word of an endpoint: one of `kinds` for claims, or one of the
    /// `kinds` after them for blocks; 0 if there is no such endpoint.
    ///
    /// An implementation reads it by [`read_intent`], which acquires.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// write_intent(&cpu, &intent, 7);
    /// let census = One { intent: &intent, lives: true };
    /// assert_eq!((census.load_intent(0, 0), census.load_intent(0, 1)), (7, 0)); // claims, blocks
    /// # }
    /// ```
    fn load_intent(&self, endpoint: u16, word: usize) -> u64;
    /// Returns an endpoint's present generation, as packets that it claims carry it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// assert_eq!(One { intent: &intent, lives: true }.generation(0), Some(1));
    /// # }
    /// ```
    fn generation(&self, endpoint: u16) -> Option<u16>;
    /// Returns whether an endpoint has an owner, and the owner lives.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// assert!(!One { intent: &intent, lives: false }.owner_lives(0)); // as the kernel says
    /// # }
    /// ```
    fn owner_lives(&self, endpoint: u16) -> bool;
    /// Time for which the head may wait for a claimed packet before the receiver looks
    /// past it, in nanoseconds.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// assert_eq!(One { intent: &intent, lives: true }.patience(), STALL);
    /// # }
    /// ```
    fn patience(&self) -> u64 {
        STALL
    }

    /// Returns the number of intent words for claims: that of members.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// let census = One { intent: &intent, lives: true };
    /// assert_eq!(census.members(), census.endpoints() * census.kinds());
    /// # }
    /// ```
    fn members(&self) -> usize {
        self.endpoints() * self.kinds()
    }
    /// Returns the intent of a member to claim; 0 if its owner is dead.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// write_intent(&cpu, &intent, 7);
    /// assert_eq!(One { intent: &intent, lives: true }.intent(0), 7);
    /// assert_eq!(One { intent: &intent, lives: false }.intent(0), 0); // it will not do it
    /// # }
    /// ```
    fn intent(&self, member: usize) -> u64 {
        let (endpoint, kind) = ((member / self.kinds()) as u16, member % self.kinds());
        let intent = self.load_intent(endpoint, kind);
        // The intent first, then the question: what the dead intended will not happen any more.
        if intent != 0 && !self.owner_lives(endpoint) { 0 } else { intent }
    }
    /// Returns whether this incarnation of an endpoint is alive.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// let census = One { intent: &intent, lives: true };
    /// assert!(census.alive(0, 1) && !census.alive(0, 2)); // its generation is 1
    /// # }
    /// ```
    fn alive(&self, endpoint: u16, generation: u16) -> bool {
        self.generation(endpoint) == Some(generation) && self.owner_lives(endpoint)
    }
    /// Returns whether an endpoint may be claiming a block of a queue, or holding one
    /// that it has not published.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// assert!(!One { intent: &intent, lives: true }.holds_block(0, 0)); // it says so in no word
    /// # }
    /// ```
    fn holds_block(&self, endpoint: u16, queue: u32) -> bool {
        let kinds = self.kinds();
        (kinds..2 * kinds).any(|word| self.load_intent(endpoint, word) == u64::from(queue) + 1)
    }
}

#[cfg(test)]
mod tests {
    use core::cell::RefCell;

    use super::*;

    /// Two endpoints with intents for two kinds of queues, and the questions asked.
    struct Senders {
        words: [[u64; 4]; 2],
        live: [bool; 2],
        asked: RefCell<Vec<&'static str>>,
    }

    impl Census for Senders {
        fn endpoints(&self) -> usize {
            2
        }
        fn kinds(&self) -> usize {
            2
        }
        fn load_intent(&self, endpoint: u16, word: usize) -> u64 {
            self.asked.borrow_mut().push("intent");
            self.words.get(usize::from(endpoint)).map_or(0, |words| words[word])
        }
        fn generation(&self, endpoint: u16) -> Option<u16> {
            (endpoint < 2).then_some(7 + endpoint)
        }
        fn owner_lives(&self, endpoint: u16) -> bool {
            self.asked.borrow_mut().push("owner");
            self.live.get(usize::from(endpoint)).is_some_and(|&live| live)
        }
    }

    fn senders() -> Senders {
        Senders { words: [[10, 0, 0, 4], [20, 21, 6, 0]], live: [true, false], asked: RefCell::default() }
    }

    #[test]
    fn intents_of_the_living_count() {
        let census = senders();
        assert_eq!(census.members(), 4);
        assert_eq!([0, 1, 2, 3].map(|member| census.intent(member)), [10, 0, 0, 0]);
    }

    #[test]
    fn intent_is_loaded_before_liveness_is_asked() {
        let census = senders();
        census.intent(2);
        assert_eq!(*census.asked.borrow(), ["intent", "owner"]);
    }

    #[test]
    fn incarnation_is_endpoint_and_generation() {
        let census = senders();
        assert!(census.alive(0, 7));
        assert!(!census.alive(0, 8), "its predecessor or successor");
        assert!(!census.alive(1, 8), "dead");
        assert!(!census.alive(2, 9), "no such endpoint");
    }

    #[test]
    fn blocks_have_words_of_their_own() {
        let census = senders();
        assert!(census.holds_block(0, 3) && census.holds_block(1, 5));
        assert!(!census.holds_block(0, 9), "an intent to claim");
        assert!(!census.holds_block(0, 0) && !census.holds_block(2, 3));
    }
}
