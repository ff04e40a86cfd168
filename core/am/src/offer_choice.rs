//! Choice between offers and blocks for long transfers to a peer, measured.
//!
//! Which way is faster depends on the machine, the length, and on the caches in which the bytes
//! are: a sender that has just written them has them in its own, and the receiver's copy is slow.
//! So both ways are measured now and then, for each peer and class of lengths ([`AbTest`]): blocks
//! when they have all been used a few times, since how they are best written is found by then
//! (`towpath_channel::store_mode`). After offers that came to nothing, the next one waits for twice
//! as many transfers each time.
//!
//! **Fields.** All of them belong to the sender's thread.

use core::cell::{Cell, OnceCell, RefCell};

use towpath_channel::ab_test::{AbTest, Round};
use towpath_channel::store_mode::COLD;

/// Minimum number of bytes of a transfer that is offered.
pub(crate) const LEAST: usize = 64 << 10;
/// Classes of lengths, by powers of two: that of [`LEAST`], and longer ones.
const CLASSES: usize = 8;
/// Number of times that all blocks are used before a transfer through them is measured.
const ROUNDS_OF_BLOCKS: u64 = 3;

/// Choice between blocks and offers for transfers to a peer, measured.
struct Choices {
    /// Times of each class; the second way is to offer.
    classes: [AbTest; CLASSES],
    /// Transfer that is being measured: its class, its length, its beginning.
    trial: Option<(usize, Round, u64, u64)>,
}

impl Choices {
    /// Returns whether the next transfer is to be offered. A transfer takes the time from
    /// its beginning to that of the next one: the receiver's part may come after the call.
    fn offers(&mut self, len: u64, now: u64) -> bool {
        let class = (len.ilog2() - LEAST.ilog2()).min(CLASSES as u32 - 1) as usize;
        if let Some((measured, round, len, begun)) = self.trial.take()
            && measured == class
        {
            self.classes[class].took(round, (now.wrapping_sub(begun) << 10) / len);
        }
        let (offers, round) = self.classes[class].turn();
        self.trial = round.map(|round| (class, round, len, now));
        offers
    }
}

/// Experience with offers to a peer.
#[derive(Default)]
pub(crate) struct OffersToPeer {
    /// True if it is another process; asked at the first transfer.
    pub is_remote: OnceCell<bool>,
    /// Number of transfers until the next offer.
    pause: Cell<u32>,
    /// Number of offers in a row that came to nothing.
    in_vain: Cell<u32>,
    /// Made at the first transfer that might be offered.
    choices: OnceCell<Box<RefCell<Choices>>>,
}

impl OffersToPeer {
    /// Returns whether the next transfer is to be offered. `bytes_of_blocks`: those of
    /// the peer's queue together.
    pub fn is_due(&self, len: usize, bytes_of_blocks: u64, now: u64) -> bool {
        let pause = self.pause.get();
        self.pause.set(pause.saturating_sub(1));
        let new = || {
            let bytes = if bytes_of_blocks >= COLD { ROUNDS_OF_BLOCKS * bytes_of_blocks } else { 0 };
            let turns = |class| (bytes / (LEAST << class) as u64) as u32;
            let classes = std::array::from_fn(|class| AbTest::with_warm_up(turns(class)));
            Box::new(RefCell::new(Choices { classes, trial: None }))
        };
        pause == 0 && self.choices.get_or_init(new).borrow_mut().offers(len as u64, now)
    }

    /// Notes whether an offer was taken.
    pub fn note(&self, took: bool) {
        let in_vain = if took { 0 } else { self.in_vain.get() + 1 };
        self.in_vain.set(in_vain);
        self.pause.set((1 << in_vain.min(10)) - 1);
    }
}
