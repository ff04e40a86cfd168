//! A destination queue: packets and blocks that many claim and one receives (Lumetta &
//! Culler 1998, Figure 1).
//!
//! Tail information is touched only by senders (and by the receiver when it goes to sleep or closes
//! the queue), head information is written only by the receiver, and the two circular arrays are
//! shared. How a packet is claimed is the [`Claim`] algorithm's business.

use std::sync::Arc;

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use towpath_sync::PARKED;

#[cfg(doc)]
use crate::claim::Claim;
use crate::packet::{BlockHead, Extra, Header, Slot};
use crate::store_mode::BlockStores;

mod receiver;

pub use crate::census::{Census, STALL, announce, read_intent, stop, write_intent};
pub use receiver::{Late, Receiver};

/// Bit of the tail: the receiver sleeps; the next claimer wakes it after publishing.
pub const SLEEPING: u64 = 1 << 63;
/// Bit of the tail: the queue is closed; no sender may claim any more.
pub const CLOSED: u64 = 1 << 62;
/// Part of the tail: some tickets are void (`claim/towpath.rs`).
pub const HOLES: u64 = 1 << 61;
/// Part of the tail: the low bits of the receiving endpoint's generation, so that a
/// sender that means its predecessor notices.
pub const GENERATION: u64 = 0x1ff << 52;
/// The ticket proper: 52 bits.
pub const TICKET: u64 = (1 << 52) - 1;

/// The `valid_from` of a place whose ticket was passed over, while its message may still
/// come (`towpath`): above all tickets.
///
/// ```
/// use towpath_channel::queue::{TICKET, hole};
///
/// assert!(hole(7) > TICKET); // above all tickets
/// ```
#[inline]
pub const fn hole(ticket: u64) -> u64 {
    1 << 63 | ticket
}

/// The tail's bits for a generation.
///
/// ```
/// use towpath_channel::queue::{GENERATION, tail_generation};
///
/// assert_ne!(tail_generation(1), tail_generation(2));
/// assert_eq!(tail_generation(3) & !GENERATION, 0); // a part of the tail
/// ```
#[inline]
pub const fn tail_generation(generation: u64) -> u64 {
    generation << 52 & GENERATION
}

/// The words of a queue beside its arrays, one line each.
#[derive(Debug)]
#[repr(C)]
pub struct QueueControl<P: Processor> {
    /// Senders: the next ticket, and flags.
    pub tail: OwnLine<P::Word>,
    /// Receiver: tickets below this may be reused. Published lazily (`towpath`).
    pub head: OwnLine<P::Word>,
    /// Receiver: tickets below this were handled; exact, for survivors of its death.
    pub consumed: OwnLine<P::Word>,
    /// Receiver: 1 while it sleeps (the algorithms that keep no flag in the tail).
    pub sleeping: OwnLine<P::Word>,
    /// Senders: the next block to try.
    pub bulk_tail: OwnLine<P::Word>,
    /// Senders: the streams that they have opened ([`crate::stream`]).
    pub streams: OwnLine<P::Word>,
}

impl<P: Processor> QueueControl<P> {
    /// An empty, open queue.
    ///
    /// ```
    /// use towpath_channel::queue::{CLOSED, QueueControl};
    /// use towpath_machine::{Heap, Native, Ordering, Processor};
    ///
    /// let control = QueueControl::<Native>::new(&Heap);
    /// assert_eq!(Native::current().load(&control.tail, Ordering::Relaxed) & CLOSED, 0);
    /// ```
    pub fn new(arena: &impl Arena<P>) -> Self {
        let line = || OwnLine(arena.word(Place::NewLine, 0));
        QueueControl {
            tail: line(),
            head: line(),
            consumed: line(),
            sleeping: line(),
            bulk_tail: line(),
            streams: line(),
        }
    }
}

/// A queue as one process sees it: where its parts are.
///
/// `q` in the examples has four packets and two blocks; `send` claims one of them and publishes a
/// message (`doc/queue.rs`).
pub struct Queue<'a, P: Processor> {
    /// Its number in the world: two for each endpoint, the request queue's even.
    pub id: u32,
    /// The words.
    pub control: &'a QueueControl<P>,
    /// The packet queue; a power of two of them.
    pub slots: &'a [Slot<P>],
    /// Extra words of each packet.
    pub extras: &'a [Extra<P>],
    /// The bulk queue; at most 255.
    pub blocks: &'a [BlockHead<P>],
    /// The blocks' bytes, one after another.
    pub bytes: Arc<P::Bytes>,
    /// Bytes in a block.
    pub block_size: usize,
}

impl<P: Processor> Queue<'_, P> {
    /// The number of packets.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// assert_eq!(q.len(), 4);
    /// # }
    /// ```
    #[inline(always)]
    pub fn len(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Returns whether it has no packets (never, in a valid layout).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// assert!(!q.is_empty()); // it has four packets, whether or not there are messages
    /// # }
    /// ```
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The place of a ticket.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// assert_eq!([0, 3, 4].map(|ticket| q.index(ticket)), [0, 3, 0]); // of four places
    /// # }
    /// ```
    #[inline(always)]
    pub fn index(&self, ticket: u64) -> usize {
        ticket as usize & (self.slots.len() - 1)
    }

    /// The packet of a ticket.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// assert!(std::ptr::eq(q.slot(1), q.slot(5))); // in turn
    /// # }
    /// ```
    #[inline(always)]
    pub fn slot(&self, ticket: u64) -> &Slot<P> {
        &self.slots[self.index(ticket)]
    }

    /// The part of a ticket's packet that does not fit on its line.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// assert!(std::ptr::eq(q.extra(2), &q.extras[2]));
    /// # }
    /// ```
    #[inline(always)]
    pub fn extra(&self, ticket: u64) -> &Extra<P> {
        &self.extras[self.index(ticket)]
    }

    /// The lap of a ticket: 1 to 65,535 and round again, so that a place that was never
    /// used has none of them at first.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// assert_eq!([0, 3, 4].map(|ticket| q.lap(ticket)), [1, 1, 2]);
    /// # }
    /// ```
    #[inline(always)]
    pub fn lap(&self, ticket: u64) -> u16 {
        ((ticket >> self.slots.len().trailing_zeros()) + 1) as u16
    }

    /// Offset of a block's bytes.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// assert_eq!(q.block_at(1), q.block_size); // behind block 0
    /// # }
    /// ```
    #[inline(always)]
    pub fn block_at(&self, block: usize) -> usize {
        block * self.block_size
    }

    /// Shows the receiver's exact progress.
    #[inline(always)]
    pub(crate) fn show_consumed(&self, cpu: &P, head: u64) {
        // (Q3) Release: the handlers' effects come before; pairs with the Acquire (Q5) in
        // `has_handled`. Other survivors know of the receiver's end.
        cpu.store(&self.control.consumed, head, Ordering::Release);
    }

    /// Returns whether the message with this ticket was handled, if the queue still has
    /// the owner for which it was sent: to be asked afterwards.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// let ticket = send(&q, &mut sender, &intent).expect("it is empty");
    /// assert!(!q.has_handled(&cpu, ticket));
    /// let arrival = receiver.next(&Towpath, &q, &cpu).expect("it has come");
    /// receiver.done(&Towpath, &q, &cpu, arrival);
    /// assert!(q.has_handled(&cpu, ticket)); // also for a survivor of its receiver
    /// # }
    /// ```
    pub fn has_handled(&self, cpu: &P, ticket: u64) -> bool {
        // (Q5) Acquire: the handler's effects, or a later owner; pairs with the Release (Q3), and
        // with the fence of an owner before it resets the queue.
        let consumed = cpu.load(&self.control.consumed, Ordering::Acquire) & !PARKED;
        // (Q6) Acquire: a later owner; pairs with that fence. A place that was passed over has not
        // come.
        let is_hole = cpu.load(&self.extra(ticket).valid_from, Ordering::Acquire) == hole(ticket);
        ticket < consumed && !is_hole
    }

    /// Gives a block back. Only its claimer before publishing, or the receiver
    /// afterwards.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// let mut claim = || Towpath.claim_block(&q, &mut sender, &cpu, &Spinning, &intent);
    /// let blocks = [claim(), claim()];
    /// assert_eq!(claim(), Err(ClaimError::Full));
    /// q.free_block(&cpu, blocks[0].expect("the first one"));
    /// assert!(claim().is_ok());
    /// # }
    /// ```
    #[inline]
    pub fn free_block(&self, cpu: &P, block: usize) {
        if let Some(head) = self.blocks.get(block) {
            // (B2) Release: the reads of the block come before; pairs with the Acquire (B1) of the
            // next claim.
            cpu.store(&head.owner, 0, Ordering::Release);
        }
    }
}

/// A sending endpoint's next step on a queue, in a word of its own that survivors read
/// after its death.
///
/// 0 if nothing. Otherwise bits 0–15: the queue's number plus one; bits 16–17: the phase; bits
/// 20–63: the ticket.
pub mod intent {
    /// State between the decision to claim and the knowledge of which ticket was claimed.
    pub const CLAIMING: u64 = 1 << 16;
    /// Holds the ticket, not yet published.
    pub const CLAIMED: u64 = 2 << 16;
    /// Wants, holds or leaves the queue's lock; the ticket is 1 while it certainly holds
    /// it.
    pub const LOCKING: u64 = 3 << 16;

    /// The word for a phase.
    ///
    /// ```
    /// use towpath_channel::queue::intent;
    ///
    /// assert_ne!(intent::encode(0, intent::CLAIMING, 0), 0); // 0: it is about to do nothing
    /// ```
    #[inline(always)]
    pub const fn encode(queue: u32, phase: u64, ticket: u64) -> u64 {
        (queue as u64 + 1) & 0xffff | phase | ticket << 20
    }

    /// The phase, if the word concerns this queue.
    ///
    /// ```
    /// use towpath_channel::queue::intent;
    ///
    /// let word = intent::encode(3, intent::LOCKING, 1);
    /// assert_eq!(intent::phase(word, 3), Some(intent::LOCKING));
    /// assert_eq!(intent::phase(word, 4), None); // of another queue
    /// ```
    #[inline]
    pub const fn phase(word: u64, queue: u32) -> Option<u64> {
        if word & 0xffff == (queue as u64 + 1) & 0xffff { Some(word & 3 << 16) } else { None }
    }

    /// Returns whether the word's writer may still publish the ticket on the queue.
    ///
    /// ```
    /// use towpath_channel::queue::intent;
    ///
    /// let claimed = intent::encode(3, intent::CLAIMED, 9);
    /// assert!(intent::may_own(claimed, 3, 9) && !intent::may_own(claimed, 3, 10));
    /// let claiming = intent::encode(3, intent::CLAIMING, 0);
    /// assert!(intent::may_own(claiming, 3, 10)); // it is not known yet which one
    /// ```
    #[inline]
    pub const fn may_own(word: u64, queue: u32, ticket: u64) -> bool {
        match phase(word, queue) {
            Some(CLAIMING) => true,
            Some(CLAIMED) => word >> 20 == ticket & ((1 << 44) - 1),
            _ => false,
        }
    }
}

/// A sender's knowledge of one queue, and its place in the world.
#[derive(Debug)]
pub struct Sender {
    /// The sending endpoint.
    pub endpoint: u16,
    /// Its generation.
    pub generation: u16,
    /// The generation that the receiver must have, as in the tail ([`tail_generation`]).
    pub expected: u64,
    /// The receiver's progress as last read (`towpath`).
    pub head_seen: u64,
    /// The one after the last ticket that we got.
    pub next_ticket: u64,
    /// True if no other sender came between our last two tickets (`towpath`): the next
    /// one is likely to be `next_ticket`.
    pub alone: bool,
    /// A ticket drawn whose place was not free yet (`lock-free`).
    pub pending: Option<u64>,
    /// A block's ticket whose block was not free yet (`lock-free`).
    pub pending_block: Option<u64>,
    /// The last claim in vain was one of a block (`towpath`).
    pub lacks_block: bool,
    /// Number of vain attempts at the pending ticket or block.
    pub misses: u32,
    /// Will not wait: a ticket that can't be used at once would be drawn in vain
    /// (`lock-free`).
    pub hasty: bool,
    /// The claimed ticket found the receiver asleep: wake it after publishing.
    pub must_wake: bool,
    /// Its way to write long pieces, from the first one on.
    pub stores: Option<Box<BlockStores>>,
}

impl Sender {
    /// A sender that knows nothing of the queue yet.
    ///
    /// ```
    /// use towpath_channel::queue::{Sender, tail_generation};
    ///
    /// let sender = Sender::new(2, 1, 5); // endpoint 2, to a receiver of generation 5
    /// assert_eq!(sender.expected, tail_generation(5));
    /// ```
    pub const fn new(endpoint: u16, generation: u16, receiver_generation: u64) -> Self {
        Sender {
            endpoint,
            generation,
            expected: tail_generation(receiver_generation),
            head_seen: 0,
            next_ticket: 0,
            alone: false,
            pending: None,
            pending_block: None,
            lacks_block: false,
            misses: 0,
            hasty: false,
            must_wake: false,
            stores: None,
        }
    }

    /// Returns whether the queue with this tail takes nothing more from us: it is closed,
    /// or has another owner by now.
    ///
    /// ```
    /// use towpath_channel::queue::{CLOSED, Sender, tail_generation};
    ///
    /// let sender = Sender::new(2, 1, 5);
    /// assert!(!sender.shut_out(tail_generation(5) | 17));
    /// assert!(sender.shut_out(tail_generation(6) | 17)); // a successor has the queue
    /// assert!(sender.shut_out(tail_generation(5) | CLOSED));
    /// ```
    #[inline(always)]
    pub const fn shut_out(&self, tail: u64) -> bool {
        (tail ^ self.expected) & (CLOSED | GENERATION) != 0
    }
}

/// Reason for which a packet or a block could not be claimed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimError {
    /// No place is free: poll, and try again.
    Full,
    /// The queue takes nothing any more: its receiver is gone, or a lock in front of it
    /// was abandoned.
    Closed,
}

/// A message at the head of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its ticket.
    pub ticket: u64,
    /// Its header, as read.
    pub header: Header,
    /// Its turn had passed already when it was published.
    pub late: bool,
}
