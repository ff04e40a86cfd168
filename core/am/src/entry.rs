//! Entry of an endpoint in the directory of its domain.
//!
//! **Fields.** `owner`, `generation`, `open`, `segment_len`: the endpoint's owner, or the process
//! that takes the entry over. `signal`: stored by the owner, taken by senders. `offer`: see
//! [`towpath_channel::offer`]. `own`: written by the owner; its intents are read by survivors,
//! `polls_at_barrier` by the host's gateway. `stored_until`, on the same line: the senders of long
//! transfers.
//!
//! **Crashes.** See `directory.rs`.

use towpath_channel::offer::Offer;
use towpath_machine::{Arena, OwnLine, Place, Processor};

/// Entry of an endpoint in the directory; natively its layout in shared memory.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Entry<P: Processor> {
    /// Bits of the participant that owns the endpoint, or 0.
    pub owner: P::Word,
    /// Number of times that it has been taken; the low bits are the endpoint's
    /// generation.
    pub generation: P::Word,
    /// Bits of the owner while the queues may be used: until the endpoint is closed, or
    /// its next owner readies it.
    pub open: P::Word,
    /// Bytes of the shared segment that are in use as such (0: the segment is private).
    pub segment_len: P::Word,
    /// Address at which the owner's thread can be interrupted
    /// ([`towpath_shm::Interrupts::address`]), while the thread is away and is to be told of
    /// messages. A sender that takes the address interrupts.
    pub signal: P::Word,
    /// Long transfer that the owner offers out of its memory (`offers.rs`).
    pub offer: Offer<P>,
    /// Words of the owner.
    pub own: OwnLine<OwnerWords<P>>,
}

/// Words of an entry that the owner writes, natively on one line, and one that is seldom
/// written.
#[derive(Debug)]
#[repr(C)]
pub struct OwnerWords<P: Processor> {
    /// Intents for request queues and for reply queues (see [`crate::queue::intent`]).
    ///
    /// Then, for each kind, the queue on which the owner may hold a block that it has not
    /// published; and the queue of an endpoint that is gone, out of which the owner copies its
    /// requests: the queue's number plus one.
    pub intents: [P::Word; 5],
    /// 1 while the owner stands at the world's barrier and polls, otherwise 0.
    ///
    /// A gateway ends no episode before such an endpoint has the messages that were sent before it.
    pub polls_at_barrier: P::Word,
    /// Time at which a sender expects to have stored a long transfer, in nanoseconds.
    ///
    /// A hint, by the processor's clock (`stores.rs`).
    pub stored_until: P::Word,
}

/// Index of the intent to copy requests out of a queue.
pub(crate) const COPYING: usize = 4;

impl<P: Processor> Entry<P> {
    /// Makes a free entry, on two lines.
    ///
    /// ```
    /// use towpath::domain::Entry;
    /// use towpath::machine::{Heap, Native};
    ///
    /// let entry = Entry::<Native>::new(&Heap);
    /// assert_eq!(size_of_val(&entry), 128, "two lines");
    /// ```
    pub fn new(arena: &impl Arena<P>) -> Self {
        let word = || arena.word(Place::SameLine, 0);
        Entry {
            owner: arena.word(Place::NewLine, 0),
            generation: word(),
            open: word(),
            segment_len: word(),
            signal: word(),
            offer: Offer::new(arena),
            own: OwnLine(OwnerWords {
                intents: [arena.word(Place::NewLine, 0), word(), word(), word(), word()],
                polls_at_barrier: word(),
                stored_until: word(),
            }),
        }
    }
}
