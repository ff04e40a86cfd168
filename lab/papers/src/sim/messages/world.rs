//! The memory of a simulated machine, laid out like a world's segment: the directory and,
//! for each endpoint, a receive block and a segment; and the living processes.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use towpath_am::WorldConfig;
use towpath_am::answer_line::AnswerLine;
use towpath_am::domain::Entry;
use towpath_am::packet::{BlockHead, Extra, Slot};
use towpath_am::queue::{Queue, QueueControl};
use towpath_am::stream::Stream;
use towpath_machine::{Arena, Place};
use towpath_sim::{Sim, SimArena, SimBytes, SimWord};
use towpath_sync::Policy;

use super::algorithm::MessageAlgorithm;
use super::claim::AnyClaim;

/// Sizes of the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Packets in each queue.
    pub packets: u32,
    /// Blocks in each bulk queue.
    pub blocks: u32,
    /// Bytes in a block.
    pub block_size: u32,
    /// Bytes of each endpoint's shared segment.
    pub segment_bytes: u64,
}

impl Sizes {
    /// Paper L's queue block of 293 kB: two queues of 256 packets of 64 bytes and 16
    /// blocks of 8 kB make 288 KiB of it (the paper gives only the sum; one of several divisions
    /// that fit).
    pub const PAPER: Sizes = Sizes { packets: 256, blocks: 16, block_size: 8192, segment_bytes: 0 };
    /// Sizes without the blocks, for runs that send none: less to simulate.
    pub const SHORT: Sizes = Sizes { packets: 256, blocks: 1, block_size: 64, segment_bytes: 0 };

    /// The configuration of a world of so many processes with an endpoint each.
    pub fn config(&self, processes: usize, algorithm: towpath_am::Algorithm) -> WorldConfig {
        let Sizes { packets, blocks, block_size, segment_bytes } = *self;
        let config = WorldConfig::new(processes as u32);
        let waiting = Policy::Spin;
        // The comparison is of claiming.
        let (answer_lines, streams) = (false, 0);
        WorldConfig {
            answer_lines,
            streams,
            packets,
            blocks,
            block_size,
            segment_bytes,
            algorithm,
            waiting,
            ..config
        }
    }
}

/// A destination queue's memory, and how it is claimed from.
pub(super) struct QueueMemory {
    control: QueueControl<Sim>,
    slots: Vec<Slot<Sim>>,
    extras: Vec<Extra<Sim>>,
    blocks: Vec<BlockHead<Sim>>,
    bytes: Arc<SimBytes>,
    block_size: usize,
    id: u32,
    /// The claim algorithm, with its lock if it has one.
    pub claim: AnyClaim,
}

impl QueueMemory {
    fn new(arena: &SimArena, config: &WorldConfig, id: u32, claim: AnyClaim) -> Self {
        QueueMemory {
            control: QueueControl::new(arena),
            slots: (0..config.packets).map(|_| Slot::new(arena)).collect(),
            extras: (0..config.packets).map(|_| Extra::new(arena)).collect(),
            blocks: (0..config.blocks).map(|_| BlockHead::new(arena)).collect(),
            bytes: Arc::new(arena.bytes((config.blocks * config.block_size) as usize)),
            block_size: config.block_size as usize,
            id,
            claim,
        }
    }

    /// The queue as `am` sees it.
    pub fn queue(&self) -> Queue<'_, Sim> {
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
pub(super) struct EndpointPart {
    /// Its entry in the directory.
    pub entry: Entry<Sim>,
    /// Its receive block: the request queue and the reply queue.
    pub rings: [QueueMemory; 2],
    /// Its segment.
    pub segment: SimBytes,
    /// The streams beside its request queue.
    pub streams: Vec<Stream<Sim>>,
}

/// The memory of all endpoints, and the living processes. Only [`World::kill`] makes one
/// die, in a world that was made for it.
pub struct World {
    pub(super) config: WorldConfig,
    pub(super) parts: Vec<EndpointPart>,
    pub(super) doorbells: Vec<SimWord>,
    /// A line for each two endpoints, under the one algorithm whose endpoints use it.
    lines: Vec<AnswerLine<Sim>>,
    mortal: bool,
    dead: RefCell<Vec<bool>>,
    deaths: Cell<u64>,
}

impl World {
    /// Everything empty, and no process dies. The algorithm is the one that the
    /// configuration takes it for.
    ///
    /// # Panics
    ///
    /// If the configuration makes no sense.
    pub fn new(arena: &SimArena, config: WorldConfig, algorithm: MessageAlgorithm) -> Self {
        World::made(arena, config, algorithm, false)
    }

    /// A world in which processes may die: claims under locks tell survivors of intents.
    ///
    /// # Panics
    ///
    /// As [`World::new`], and under locks other than `ticket` and `posix`.
    pub fn with_deaths(arena: &SimArena, config: WorldConfig, algorithm: MessageAlgorithm) -> Self {
        World::made(arena, config, algorithm, true)
    }

    fn made(arena: &SimArena, config: WorldConfig, algorithm: MessageAlgorithm, mortal: bool) -> Self {
        if let Err(error) = config.check() {
            panic!("{error}");
        }
        let part = |e: u32| EndpointPart {
            rings: [0, 1].map(|kind| {
                let claim = AnyClaim::new(algorithm, arena, mortal);
                QueueMemory::new(arena, &config, 2 * e + kind, claim)
            }),
            entry: Entry::new(arena),
            segment: arena.bytes(config.segment_bytes as usize),
            streams: (0..config.streams_each()).map(|_| Stream::new(arena)).collect(),
        };
        let parts = (0..config.endpoints).map(part).collect();
        let doorbells = (0..config.processes).map(|_| arena.word(Place::NewLine, 0)).collect();
        let n = config.endpoints as usize;
        let pairs = if config.has_answer_lines() { n * (n - 1) / 2 } else { 0 };
        World {
            parts,
            doorbells,
            lines: (0..pairs).map(|_| AnswerLine::new(arena)).collect(),
            mortal,
            dead: RefCell::new(vec![false; config.processes as usize]),
            deaths: Cell::new(0),
            config,
        }
    }

    /// The process of that rank is dead from now on: it must not do anything more, and
    /// its endpoints are left as they are.
    ///
    /// # Panics
    ///
    /// If the world was not made for deaths.
    pub fn kill(&self, rank: u32) {
        assert!(self.mortal, "made by `with_deaths`");
        if !std::mem::replace(&mut self.dead.borrow_mut()[rank as usize], true) {
            self.deaths.set(self.deaths.get() + 1);
        }
    }

    /// Returns whether there is such a process, and it lives.
    pub fn lives(&self, rank: u32) -> bool {
        self.dead.borrow().get(rank as usize) == Some(&false)
    }

    /// The line in which two endpoints answer each other.
    pub(super) fn line(&self, one: u16, other: u16) -> Option<&AnswerLine<Sim>> {
        let (low, high) = (usize::from(one.min(other)), usize::from(one.max(other)));
        if low == high { None } else { self.lines.get(high * (high - 1) / 2 + low) }
    }

    /// Number of deaths.
    pub fn deaths(&self) -> u64 {
        self.deaths.get()
    }
}
