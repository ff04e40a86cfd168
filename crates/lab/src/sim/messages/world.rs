//! What lies in the simulated machine's memory: a receive block for each endpoint, laid out as in a world's segment.

use std::sync::Arc;

use towpath_am::packet::{BlockHead, Extra, Slot};
use towpath_am::queue::{Control, Queue};
use towpath_machine::{Arena, Place, Processor};

/// How large the queues are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Packets in each queue.
    pub packets: usize,
    /// Blocks in each bulk queue.
    pub blocks: usize,
    /// Bytes in a block.
    pub block_size: usize,
}

impl Sizes {
    /// Paper L's queue block of 293 kB: two queues of 256 packets of 64 bytes and 16 blocks of 8 kB make 288 KiB of it (the paper gives only the sum; one of several divisions
    /// that fit).
    pub const PAPER: Sizes = Sizes { packets: 256, blocks: 16, block_size: 8192 };
    /// The same without the blocks, for runs that send none: less to simulate.
    pub const SHORT: Sizes = Sizes { packets: 256, blocks: 1, block_size: 64 };
}

/// A destination queue's memory, and how it is claimed from.
pub struct Side<P: Processor, C> {
    control: Control<P>,
    slots: Vec<Slot<P>>,
    extras: Vec<Extra<P>>,
    blocks: Vec<BlockHead<P>>,
    bytes: Arc<P::Bytes>,
    block_size: usize,
    id: u32,
    /// The claim algorithm, with its lock if it has one.
    pub claim: C,
}

impl<P: Processor, C> Side<P, C> {
    fn new(arena: &impl Arena<P>, sizes: &Sizes, id: u32, claim: C) -> Self {
        Side {
            control: Control::new(arena),
            slots: (0..sizes.packets).map(|_| Slot::new(arena)).collect(),
            extras: (0..sizes.packets).map(|_| Extra::new(arena)).collect(),
            blocks: (0..sizes.blocks).map(|_| BlockHead::new(arena)).collect(),
            bytes: Arc::new(arena.bytes(sizes.blocks * sizes.block_size)),
            block_size: sizes.block_size,
            id,
            claim,
        }
    }

    /// The queue as `am` sees it.
    pub fn queue(&self) -> Queue<'_, P> {
        Queue {
            id: self.id,
            control: &self.control,
            slots: &self.slots,
            extras: &self.extras,
            blocks: &self.blocks,
            bytes: self.bytes.clone(),
            block_size: self.block_size,
        }
    }
}

/// One endpoint's part of the memory.
pub struct Member<P: Processor, C> {
    /// Its receive block: the request queue and the reply queue.
    pub sides: [Side<P, C>; 2],
    /// What it is about to do to request queues and to reply queues; then on which of them it holds a block.
    pub intents: [P::Word; 4],
}

/// The memory of all endpoints.
pub struct World<P: Processor, C> {
    /// One for each endpoint.
    pub members: Vec<Member<P, C>>,
}

impl<P: Processor, C> World<P, C> {
    /// Everything empty. `claim` makes the algorithm of one queue.
    pub fn new(arena: &impl Arena<P>, members: usize, sizes: &Sizes, mut claim: impl FnMut() -> C) -> Self {
        let member = |m: usize| Member {
            sides: [0, 1].map(|kind| Side::new(arena, sizes, (2 * m + kind) as u32, claim())),
            intents: [Place::NewLine, Place::SameLine, Place::SameLine, Place::SameLine]
                .map(|place| arena.word(place, 0)),
        };
        World { members: (0..members).map(member).collect() }
    }
}
