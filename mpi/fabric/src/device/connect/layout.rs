//! Layout of an endpoint's segment, and of a ring's memory.
//!
//! ```text
//! segment   header: identity | closed | doorbell                    the owner's
//!           members, one per sender: state | address | intents | taken, answer
//!           queue: control | slots | extras | block heads | blocks     as in the room channel
//! ring      header: nonce | answer | told
//!           progress | shared line | slots                             as in the room channel
//!           bytes
//! ```

use core::sync::atomic::AtomicU64;

use towpath_channel::doorbell::Doorbell;
use towpath_channel::packet::{BlockHead, Extra, Slot};
use towpath_channel::queue::QueueControl;
use towpath_channel::ring::Ring;
use towpath_machine::{Native, OwnLine};

/// Maximum number of senders of an endpoint.
pub const MEMBERS: usize = 1 << PLACE_BITS;
/// Number of bits of a packet's sender code that are the place. The other bits count the
/// place's uses.
pub const PLACE_BITS: u32 = 10;
/// The bits of that count.
pub const USES: u64 = (1 << (16 - PLACE_BITS)) - 1;
/// Packets of the shared queue.
pub const PACKETS: usize = 1024;
/// Blocks of the shared queue.
pub const BLOCKS: usize = 64;
/// Bytes in a block.
pub const BLOCK: usize = 8 << 10;
/// Slots of a pair.
pub const SLOTS: usize = 512;
/// Bytes behind a ring's slots: more than a core's own caches hold, so that those to be
/// written have left the reader's.
pub const SLOT_BYTES: usize = 2 << 20;
/// Number of those bytes that a ring uses until it has earned all of them.
pub const FIRST_BYTES: usize = 256 << 10;
/// The longest piece that goes through a pair's bytes.
pub const SLOT_PIECE: usize = 16 << 10;

/// The beginning of an endpoint's segment. The owner writes `identity` and `closed`.
#[repr(C)]
pub struct EndpointHeader {
    /// The address, in words: a process that attaches compares it.
    pub identity: [AtomicU64; 8],
    /// Flag, if not 0: the owner takes no more frames.
    pub closed: OwnLine<AtomicU64>,
    /// The doorbell on which the owner sleeps, and its wake pipe's number.
    pub doorbell: Doorbell<Native>,
}

/// A sender's entry in a receiver's segment.
#[repr(C, align(64))]
pub struct MemberRow {
    /// [`FREE`], or the sender in the upper half (its pid, or [`VISITOR`] and its number)
    /// with [`JOINING`] or [`JOINED`]; bits 8 to 15 count the uses (modulo [`USES`] and 1).
    pub state: AtomicU64,
    spare: [AtomicU64; 7],
    /// The sender's own address: written before JOINED.
    pub address: [AtomicU64; 8],
    /// The sender's intents: its next step on the queue, and on a block.
    pub intents: [AtomicU64; 2],
    spare2: [AtomicU64; 6],
    /// The receiver: how many eager bytes of this sender have found their receives.
    pub taken: AtomicU64,
    spare3: [AtomicU64; 7],
}

/// Part of a member's state: its upper half is no pid, but the number that the receiver's
/// [`FdListener`](crate::device::connect::fd_listener::FdListener) has given it.
pub const VISITOR: u32 = 1 << 31;

/// State of a place without a sender.
pub const FREE: u64 = 0;
/// Being taken.
pub const JOINING: u64 = 1;
/// Taken.
pub const JOINED: u64 = 2;
/// The bits of the state proper.
pub const STATE: u64 = 0xff;

/// Beginning of a ring's memory.
#[repr(C)]
pub struct SlotsHeader {
    /// The nonce that the announcement names.
    pub nonce: AtomicU64,
    spare: [AtomicU64; 7],
    /// The receiver: [`ACCEPTED`] or [`DECLINED`].
    pub answer: OwnLine<AtomicU64>,
    /// The receiver: how long the piece took that was to be timed, and its ticket
    /// ([`report`](towpath_channel::store_mode::report)).
    pub told: OwnLine<AtomicU64>,
}

/// Answer of a receiver that will look at the ring.
pub const ACCEPTED: u64 = 1;
/// Answer of a receiver that has too many senders with rings.
pub const DECLINED: u64 = 2;

const fn after(start: u64, bytes: usize) -> u64 {
    (start + bytes as u64).next_multiple_of(4096)
}

/// Offsets in an endpoint's segment.
pub mod at {
    use super::*;
    /// The members.
    pub const MEMBERS: u64 = after(0, size_of::<EndpointHeader>());
    /// The queue's words.
    pub const CONTROL: u64 = after(MEMBERS, super::MEMBERS * size_of::<MemberRow>());
    /// Its packets.
    pub const SLOTS: u64 = after(CONTROL, size_of::<QueueControl<Native>>());
    /// Offset of the packets' extra arguments.
    pub const EXTRAS: u64 = after(SLOTS, PACKETS * size_of::<Slot<Native>>());
    /// The blocks' heads.
    pub const HEADS: u64 = after(EXTRAS, PACKETS * size_of::<Extra<Native>>());
    /// The blocks.
    pub const BYTES: u64 = after(HEADS, BLOCKS * size_of::<BlockHead<Native>>());
    /// The end.
    pub const END: u64 = after(BYTES, BLOCKS * BLOCK);

    /// A pair's ring.
    pub const PAIR_RING: u64 = after(0, size_of::<SlotsHeader>());
    /// The bytes behind it.
    pub const PAIR_BYTES: u64 = after(PAIR_RING, size_of::<Ring<Native, { super::SLOTS }>>());
    /// The end.
    pub const PAIR_END: u64 = after(PAIR_BYTES, SLOT_BYTES);
}
