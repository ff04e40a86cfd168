//! The domain of simulated endpoints: a simulated machine's memory. The endpoints
//! themselves are `am`'s, with everything that native ones have.
//!
//! An endpoint's instructions besides its accesses to shared memory are charged as [`Costs`].

use towpath_am::answer_line::AnswerLine;
use towpath_am::domain::{DomainMemory, EndpointStep, Entry, Hooks, Membership, Side, Stored};
use towpath_am::queue::Queue;
use towpath_am::stream::Stream;
use towpath_am::{Direction, Domain, Error, Name, SegmentKind, Token, WorldConfig};
use towpath_machine::Processor;
use towpath_shm::ParticipantId;
use towpath_sim::{Sim, SimBytes, SimWord};
use towpath_sync::Policy;

use super::claim::AnyClaim;
use super::waiting::Period;
use super::world::{QueueMemory, World};

/// Time of the message path's instructions besides its accesses to shared memory, in
/// nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Composing and sending a message.
    pub send: u64,
    /// A poll, whether or not it finds something.
    pub poll: u64,
    /// Dispatching a message to its handler.
    pub dispatch: u64,
}

/// Constants of all endpoints of a run.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Instructions.
    pub costs: Costs,
    /// Waiting.
    pub period: Period,
    /// Time for which a receiver waits for a packet that was claimed before it looks past
    /// it, in nanoseconds.
    pub patience: u64,
}

/// A simulated machine's memory, seen by one process.
pub struct Simulated<'m> {
    cpu: &'m Sim,
    world: &'m World,
    rank: u32,
    habits: Habits,
}

/// An endpoint that lives there.
pub type Endpoint<'m> = towpath_am::Endpoint<Simulated<'m>>;

/// Approximate cost of a context switch, in nanoseconds: the spinning time of waiters
/// that would rather sleep.
const SWITCH: u64 = 20_000;

impl<'m> Simulated<'m> {
    /// The world as the process of that rank sees it.
    pub fn new(cpu: &'m Sim, world: &'m World, rank: usize, habits: Habits) -> Self {
        Simulated { cpu, world, rank: rank as u32, habits }
    }

    /// An endpoint there, to which nothing may come back.
    ///
    /// # Panics
    ///
    /// If all endpoints are taken.
    pub fn endpoint(self) -> Endpoint<'m> {
        let endpoint = self.endpoint_with(SegmentKind::None);
        on(&endpoint, 0, |token| panic!("a message came back: {token:?}"));
        endpoint
    }

    /// An endpoint with a segment, and without handlers.
    ///
    /// # Panics
    ///
    /// As [`Simulated::endpoint`].
    pub fn endpoint_with(self, segment: SegmentKind) -> Endpoint<'m> {
        Endpoint::in_domain(self, segment).expect("a place for another endpoint")
    }
}

/// Sets a handler.
pub fn on<'m>(endpoint: &Endpoint<'m>, index: u8, handler: impl Fn(&Token<'_, Simulated<'m>>) + 'm) {
    endpoint.set_boxed_handler(index, Box::new(handler));
}

/// The name of a rank's endpoint, as soon as it has one.
pub fn name_of(endpoint: &Endpoint<'_>, rank: usize) -> Name {
    loop {
        if let Some(name) = endpoint.name_of_rank(rank as u32) {
            return name;
        }
        endpoint.domain().pause(1_000);
    }
}

/// A queue there.
pub struct SimSide<'m> {
    queue: Queue<'m, Sim>,
    ring: &'m QueueMemory,
}

impl Side<Sim> for SimSide<'_> {
    type Claim = AnyClaim;
    fn queue(&self) -> &Queue<'_, Sim> {
        &self.queue
    }
    fn claim(&self) -> &AnyClaim {
        &self.ring.claim
    }
    /// Does nothing: the locks are new or free, since no process dies here holding one.
    fn renew_locks(&self, _first: bool) {}
}

/// A segment there.
pub struct SimSegment<'m> {
    cpu: &'m Sim,
    bytes: SimBytes,
    len: u64,
}

impl Stored for SimSegment<'_> {
    fn len(&self) -> u64 {
        self.len
    }
    fn read(&self, at: usize, to: &mut [u8]) {
        self.cpu.copy_out(&self.bytes, at, to);
    }
    fn write(&self, at: usize, from: &[u8]) {
        self.cpu.copy_in(&self.bytes, at, from);
    }
}

impl<'m> Simulated<'m> {
    fn part(&self, endpoint: u16) -> Result<&'m super::world::EndpointPart, Error> {
        self.world.parts.get(usize::from(endpoint)).ok_or_else(|| {
            let n = self.world.parts.len();
            Error::BadArgument(format!("endpoint {endpoint} does not exist: this world has {n}"))
        })
    }
}

impl<'m> Domain for Simulated<'m> {
    type Handler = dyn Fn(&Token<'_, Self>) + 'm;
}

impl<'m> DomainMemory for Simulated<'m> {
    type Cpu = Sim;
    type Side = SimSide<'m>;
    type Entry = &'m Entry<Sim>;
    type Segment = SimSegment<'m>;
    type Line = &'m AnswerLine<Sim>;
    type Stream = &'m Stream<Sim>;

    fn cpu(&self) -> &Sim {
        self.cpu
    }
    /// Processors have the numbers with which their threads were made.
    fn act_for(&mut self, _endpoint: u16) {}
    fn config(&self) -> &WorldConfig {
        &self.world.config
    }
    fn entry(&self, endpoint: u16) -> Result<&'m Entry<Sim>, Error> {
        Ok(&self.part(endpoint)?.entry)
    }
    fn side(&self, endpoint: u16, direction: Direction) -> Result<SimSide<'m>, Error> {
        let ring = &self.part(endpoint)?.rings[usize::from(direction.is_reply())];
        Ok(SimSide { queue: ring.queue(), ring })
    }
    fn answer_line(&self, one: u16, other: u16) -> Option<&'m AnswerLine<Sim>> {
        self.world.line(one, other)
    }
    fn stream(&self, endpoint: u16, number: u32) -> Option<&'m Stream<Sim>> {
        self.part(endpoint).ok()?.streams.get(number as usize)
    }
    fn segment(&self, endpoint: u16) -> Result<SimSegment<'m>, Error> {
        let bytes = self.part(endpoint)?.segment;
        Ok(SimSegment { cpu: self.cpu, bytes, len: self.world.config.segment_bytes })
    }
}

impl Membership for Simulated<'_> {
    fn me(&self) -> Option<ParticipantId> {
        Some(ParticipantId { index: self.rank, generation: 1 })
    }
    fn size(&self) -> u32 {
        self.world.config.processes
    }
    fn is_alive(&self, participant: ParticipantId) -> bool {
        participant.generation == 1 && self.world.lives(participant.index)
    }
    fn has_died(&self, rank: u32) -> bool {
        !self.world.lives(rank)
    }
    fn deaths(&self) -> u64 {
        self.world.deaths()
    }
    fn check_deaths(&self) {}
    /// Returns whether it was killed, or the simulation is being taken down.
    fn has_ended(&self) -> bool {
        !self.world.lives(self.rank) || std::thread::panicking()
    }
    fn doorbell(&self, rank: u32) -> Option<&SimWord> {
        self.world.doorbells.get(rank as usize)
    }
}

impl Hooks for Simulated<'_> {
    type Around<'a>
        = ()
    where
        Self: 'a;
    type Wait<'a>
        = Period
    where
        Self: 'a;

    fn around<'a>(&'a self, _queue: &'a Queue<'a, Sim>) {}
    fn wait<'a, 'b: 'a>(&'a self, _around: &'a ()) -> Period {
        self.habits.period
    }
    fn policy(&self) -> Policy {
        self.world.config.waiting
    }
    fn budget(&self) -> u64 {
        SWITCH
    }
    fn oversubscribed(&self) -> bool {
        false
    }
    fn asleep(&self, _asleep: bool) {}
    fn pause(&self, ns: u64) {
        self.cpu.delay(ns);
    }
    fn patience(&self) -> u64 {
        self.habits.patience
    }
    fn charge(&self, step: EndpointStep) {
        let costs = &self.habits.costs;
        self.cpu.work(match step {
            EndpointStep::Send => costs.send,
            EndpointStep::Poll => costs.poll,
            EndpointStep::Dispatch => costs.dispatch,
        });
    }
}
