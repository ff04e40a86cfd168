//! A domain of endpoints in the explored memory. The endpoints themselves are `am`'s.
//!
//! Threads are participants, as are some beside them: a thread's generation is its number plus one,
//! so that several may have one rank after the other. A queue has few packets, and what keeps its
//! receiver waiting is overdue at once.

use towpath_am::answer_line::AnswerLine;
use towpath_am::claim::{Algorithm, Any};
use towpath_am::domain::{DomainMemory, Entry, Hooks, Membership, Side, Stored};
use towpath_am::queue::Queue;
use towpath_am::stream::Stream;
use towpath_am::{Direction, Domain, Error, Token, WorldConfig};
use towpath_machine::{Arena, Ordering, Place, Processor};
use towpath_schedules::{Bytes, ExploredMemory, Explorer, Word};
use towpath_shm::ParticipantId;
use towpath_sync::{Policy, Surroundings, Wait};

use super::super::queue_memory::ExploredQueueMemory;
use super::super::{BUDGET, ExploredMember};

/// Packets of a queue, and bytes of a block and of a segment.
const PACKETS: u32 = 4;
const BLOCK_SIZE: u32 = 64;
const SEGMENT: u64 = 64;

/// Participants beside the threads.
const MORTALS: usize = 2;

/// Memory of an endpoint.
struct EndpointMemory {
    entry: Entry<Explorer>,
    queues: [ExploredQueueMemory; 2],
    segment: Bytes,
}

/// Memory of all endpoints.
pub struct ExploredWorld {
    config: WorldConfig,
    parts: Vec<EndpointMemory>,
    /// Answer lines of each two endpoints, those of the lower ones first.
    lines: Vec<AnswerLine<Explorer>>,
    doorbells: Vec<Word>,
    /// Value 1 once a participant has entered, which each does before it takes an entry.
    ///
    /// The threads, and those beside them ([`ExploredWorld::mortal`]).
    entered: Vec<Word>,
    threads: usize,
    /// Time that pauses take, if they end by themselves; without it a pause ends when
    /// anything changes.
    pub timer: Option<Word>,
}

impl ExploredWorld {
    pub fn new(
        memory: &ExploredMemory,
        threads: usize,
        ranks: usize,
        algorithm: Algorithm,
        blocks: u32,
        answer_lines: bool,
        waiting: Policy,
    ) -> Self {
        let config = WorldConfig {
            packets: PACKETS,
            blocks,
            block_size: BLOCK_SIZE,
            segment_bytes: SEGMENT,
            algorithm,
            waiting,
            answer_lines,
            streams: 0,
            ..WorldConfig::new(ranks as u32)
        };
        let [packets, blocks, block_size] = [PACKETS, blocks, BLOCK_SIZE].map(|n| n as usize);
        let queue = |_| ExploredQueueMemory::new(memory, packets, blocks, block_size);
        let part = |_| EndpointMemory {
            entry: Entry::new(memory),
            queues: [0, 1].map(queue),
            segment: memory.bytes(SEGMENT as usize),
        };
        let pairs = if answer_lines { ranks * (ranks - 1) / 2 } else { 0 };
        ExploredWorld {
            config,
            parts: (0..ranks).map(part).collect(),
            lines: (0..pairs).map(|_| AnswerLine::new(memory)).collect(),
            doorbells: (0..ranks).map(|_| memory.word(Place::NewLine, 0)).collect(),
            entered: (0..threads + MORTALS).map(|_| memory.word(Place::NewLine, 0)).collect(),
            threads,
            timer: None,
        }
    }

    /// The world as this thread sees it, under a rank.
    pub fn domain<'m>(&'m self, cpu: &'m Explorer, rank: usize) -> ExploredDomain<'m> {
        self.enter(cpu, rank, cpu.id())
    }

    /// The world as a participant beside the threads sees it, in whose name this thread
    /// acts until it [buries](ExploredWorld::bury) it.
    pub fn mortal<'m>(&'m self, cpu: &'m Explorer, rank: usize, mortal: usize) -> ExploredDomain<'m> {
        self.enter(cpu, rank, self.threads + mortal)
    }

    /// Lets a participant beside the threads be dead.
    pub fn bury(&self, cpu: &Explorer, mortal: usize) {
        // Relaxed: for this thread, and those that it tells.
        cpu.store(&self.entered[self.threads + mortal], 0, Ordering::Relaxed);
    }

    fn enter<'m>(&'m self, cpu: &'m Explorer, rank: usize, participant: usize) -> ExploredDomain<'m> {
        // Relaxed: the word that names the participant orders it.
        cpu.store(&self.entered[participant], 1, Ordering::Relaxed);
        ExploredDomain { cpu, world: self, rank: rank as u32, participant }
    }
}

/// World of a thread.
pub struct ExploredDomain<'m> {
    cpu: &'m Explorer,
    world: &'m ExploredWorld,
    rank: u32,
    participant: usize,
}

impl<'m> ExploredDomain<'m> {
    fn part(&self, endpoint: u16) -> Result<&'m EndpointMemory, Error> {
        let part = self.world.parts.get(usize::from(endpoint));
        part.ok_or_else(|| Error::BadArgument(format!("there is no endpoint {endpoint}")))
    }
}

/// Queue of an endpoint.
pub struct ExploredSide<'m> {
    queue: Queue<'m, Explorer>,
    claim: Any<'m, Explorer>,
    segment: ExploredSegment<'m>,
}

impl<'m> Side<Explorer> for ExploredSide<'m> {
    type Claim = Any<'m, Explorer>;
    fn queue(&self) -> &Queue<'_, Explorer> {
        &self.queue
    }
    fn claim(&self) -> &Self::Claim {
        &self.claim
    }
    /// Makes the endpoint's segment new, into which no sender may store now.
    ///
    /// The locks stay: no thread dies in front of an algorithm with locks.
    fn renew_locks(&self, _first: bool) {
        self.segment.write(0, &[0; SEGMENT as usize]);
    }
}

/// Segment of an endpoint.
pub struct ExploredSegment<'m>(&'m Explorer, &'m Bytes);

impl Stored for ExploredSegment<'_> {
    fn len(&self) -> u64 {
        SEGMENT
    }
    fn read(&self, at: usize, to: &mut [u8]) {
        self.0.copy_out(self.1, at, to);
    }
    fn write(&self, at: usize, from: &[u8]) {
        self.0.copy_in(self.1, at, from);
    }
}

impl<'m> Domain for ExploredDomain<'m> {
    type Handler = dyn Fn(&Token<'_, Self>) + 'm;
}

impl<'m> DomainMemory for ExploredDomain<'m> {
    type Cpu = Explorer;
    type Side = ExploredSide<'m>;
    type Entry = &'m Entry<Explorer>;
    type Segment = ExploredSegment<'m>;
    type Line = &'m AnswerLine<Explorer>;
    type Stream = &'m Stream<Explorer>;

    fn cpu(&self) -> &Explorer {
        self.cpu
    }
    fn act_for(&mut self, _endpoint: u16) {}
    fn config(&self) -> &WorldConfig {
        &self.world.config
    }
    fn entry(&self, endpoint: u16) -> Result<&'m Entry<Explorer>, Error> {
        Ok(&self.part(endpoint)?.entry)
    }
    fn side(&self, endpoint: u16, direction: Direction) -> Result<ExploredSide<'m>, Error> {
        let reply = direction.is_reply();
        let memory = &self.part(endpoint)?.queues[usize::from(reply)];
        let queue = memory.queue(2 * u32::from(endpoint) + u32::from(reply));
        let claim = memory.locks.choose(self.world.config.algorithm);
        Ok(ExploredSide { queue, claim, segment: self.segment(endpoint)? })
    }
    fn segment(&self, endpoint: u16) -> Result<ExploredSegment<'m>, Error> {
        Ok(ExploredSegment(self.cpu, &self.part(endpoint)?.segment))
    }
    fn answer_line(&self, one: u16, other: u16) -> Option<&'m AnswerLine<Explorer>> {
        let (low, high) = (usize::from(one.min(other)), usize::from(one.max(other)));
        if low == high { None } else { self.world.lines.get(high * (high - 1) / 2 + low) }
    }
    fn stream(&self, _endpoint: u16, _number: u32) -> Option<&'m Stream<Explorer>> {
        None
    }
}

impl Membership for ExploredDomain<'_> {
    fn me(&self) -> Option<ParticipantId> {
        Some(ParticipantId { index: self.rank, generation: self.participant as u32 + 1 })
    }
    fn size(&self) -> u32 {
        self.world.config.processes
    }
    fn is_alive(&self, participant: ParticipantId) -> bool {
        let entered = &self.world.entered[participant.generation as usize - 1];
        // Relaxed: the word that names the participant orders it.
        self.cpu.load(entered, Ordering::Relaxed) == 1
            && ExploredMember::new(self.cpu).is_alive(participant.generation)
    }
    /// Never: no subject maps all ranks, which is where it is asked.
    fn has_died(&self, _rank: u32) -> bool {
        false
    }
    fn deaths(&self) -> u64 {
        ExploredMember::new(self.cpu).deaths()
    }
    fn check_deaths(&self) {}
    /// Returns whether the run is being taken down.
    fn has_ended(&self) -> bool {
        std::thread::panicking()
    }
    fn doorbell(&self, rank: u32) -> Option<&Word> {
        self.world.doorbells.get(rank as usize)
    }
}

impl Hooks for ExploredDomain<'_> {
    type Around<'a>
        = ExploredMember
    where
        Self: 'a;
    type Wait<'a>
        = Wait<'a>
    where
        Self: 'a;

    fn around<'a>(&'a self, _queue: &'a Queue<'a, Explorer>) -> ExploredMember {
        ExploredMember::new(self.cpu)
    }
    fn wait<'a, 'b: 'a>(&'a self, around: &'a ExploredMember) -> Wait<'a> {
        Wait { policy: self.policy(), around, budget: BUDGET }
    }
    fn policy(&self) -> Policy {
        self.world.config.waiting
    }
    fn budget(&self) -> u64 {
        BUDGET
    }
    fn oversubscribed(&self) -> bool {
        false
    }
    fn asleep(&self, _asleep: bool) {}
    fn pause(&self, ns: u64) {
        match &self.world.timer {
            // Relaxed: nothing is read.
            Some(timer) => drop(self.cpu.fetch_add(timer, ns, Ordering::Relaxed)),
            None => self.cpu.delay(ns),
        }
    }
    fn patience(&self) -> u64 {
        0
    }
    /// None: other threads, which may look again and again, would not let the time pass.
    fn turn(&self) -> u64 {
        0
    }
    fn look_every(&self) -> Option<u64> {
        Some(0)
    }
}
