//! Domain of an endpoint: the memory, the members and the ways to wait around it.
//!
//! An endpoint is written for any [`Domain`](crate::Domain), which is three things and the type of
//! its handlers:
//!
//! | trait | gives an endpoint |
//! | --- | --- |
//! | [`DomainMemory`] | a processor, the entries of the directory, queues with their claims, segments |
//! | [`Membership`] | the participants, their deaths, their doorbells |
//! | [`Hooks`] | waiting, interrupts, and the clock of a simulated machine |
//!
//! Native endpoints live in the shared memory of a world of processes
//! ([`SharedMemory`](crate::SharedMemory)), which is the default wherever a type takes a domain.
//! The laboratory has another one, in the memory of a simulated machine.
//!
//! A domain belongs to one endpoint: it holds the processor that the endpoint acts on. Other
//! processes may write to everything in its memory, so each reader checks what it reads.
//!
//! # A domain of one's own
//!
//! In memory that the threads of a process share, for short messages:
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
//!
//! use towpath::channel::answer_line::AnswerLine;
//! use towpath::channel::claim::{Algorithm, Any, Locks};
//! use towpath::channel::packet::{BlockHead, Extra, Slot};
//! use towpath::channel::queue::{Queue, QueueControl};
//! use towpath::channel::stream::Stream;
//! use towpath::domain::{DomainMemory, Entry, Hooks, Membership, Side, Stored};
//! use towpath::machine::{Arena, Heap, Native, NativeBytes, Place};
//! use towpath::sync::{Alone, Wait};
//! use towpath::{Direction, Domain, Endpoint, Error, ParticipantId, Policy};
//! use towpath::{SegmentKind, Token, WorldConfig};
//!
//! const RANKS: usize = 2;
//! const PACKETS: usize = 16;
//!
//! /// Memory of a queue. This one has no blocks: its messages are short.
//! struct QueueMemory {
//!     control: QueueControl<Native>,
//!     slots: Vec<Slot<Native>>,
//!     extras: Vec<Extra<Native>>,
//!     blocks: Vec<BlockHead<Native>>,
//!     bytes: Arc<NativeBytes>,
//!     locks: Locks<Native>,
//! }
//!
//! impl QueueMemory {
//!     fn new() -> QueueMemory {
//!         QueueMemory {
//!             control: QueueControl::new(&Heap),
//!             slots: (0..PACKETS).map(|_| Slot::new(&Heap)).collect(),
//!             extras: (0..PACKETS).map(|_| Extra::new(&Heap)).collect(),
//!             blocks: Vec::new(),
//!             bytes: Arc::new(Heap.bytes(0)),
//!             locks: Locks::new(&Heap),
//!         }
//!     }
//! }
//!
//! /// Memory that the threads of a process share: two queues for each endpoint.
//! struct Memory {
//!     config: WorldConfig,
//!     entries: [Entry<Native>; RANKS],
//!     queues: [[QueueMemory; 2]; RANKS],
//!     doorbells: [AtomicU64; RANKS],
//! }
//!
//! impl Memory {
//!     fn new() -> Memory {
//!         let packets = PACKETS as u32;
//!         let config = WorldConfig {
//!             packets,
//!             blocks: 0,
//!             streams: 0,
//!             answer_lines: false,
//!             ..WorldConfig::new(RANKS as u32)
//!         };
//!         Memory {
//!             config,
//!             entries: [(); RANKS].map(|()| Entry::new(&Heap)),
//!             queues: [(); RANKS].map(|()| [(); 2].map(|()| QueueMemory::new())),
//!             doorbells: [(); RANKS].map(|()| Heap.word(Place::NewLine, 0)),
//!         }
//!     }
//! }
//!
//! /// That memory, as the endpoint of one thread sees it.
//! struct ThreadDomain<'m> {
//!     memory: &'m Memory,
//!     cpu: Native,
//!     rank: u32,
//! }
//!
//! struct ThreadSide<'m> {
//!     queue: Queue<'m, Native>,
//!     claim: Any<'m, Native>,
//! }
//!
//! impl<'m> Side<Native> for ThreadSide<'m> {
//!     type Claim = Any<'m, Native>;
//!     fn queue(&self) -> &Queue<'_, Native> {
//!         &self.queue
//!     }
//!     fn claim(&self) -> &Any<'m, Native> {
//!         &self.claim
//!     }
//!     fn renew_locks(&self, _first: bool) {} // no thread dies and leaves one held
//! }
//!
//! /// Segment of an endpoint that has none.
//! struct NoSegment;
//!
//! impl Stored for NoSegment {
//!     fn len(&self) -> u64 {
//!         0
//!     }
//!     fn read(&self, _at: usize, to: &mut [u8]) {
//!         assert!(to.is_empty());
//!     }
//!     fn write(&self, _at: usize, from: &[u8]) {
//!         assert!(from.is_empty());
//!     }
//! }
//!
//! impl<'m> Domain for ThreadDomain<'m> {
//!     type Handler = dyn Fn(&Token<'_, Self>) + 'm;
//! }
//!
//! impl<'m> DomainMemory for ThreadDomain<'m> {
//!     type Cpu = Native;
//!     type Side = ThreadSide<'m>;
//!     type Entry = &'m Entry<Native>;
//!     type Segment = NoSegment;
//!     type Line = &'m AnswerLine<Native>;
//!     type Stream = &'m Stream<Native>;
//!
//!     fn cpu(&self) -> &Native {
//!         &self.cpu
//!     }
//!     fn act_for(&mut self, endpoint: u16) {
//!         self.cpu = Native::with_id(endpoint.into());
//!     }
//!     fn config(&self) -> &WorldConfig {
//!         &self.memory.config
//!     }
//!     fn entry(&self, endpoint: u16) -> Result<&'m Entry<Native>, Error> {
//!         let entry = self.memory.entries.get(usize::from(endpoint));
//!         entry.ok_or_else(|| Error::BadArgument(format!("there is no endpoint {endpoint}")))
//!     }
//!     fn side(&self, endpoint: u16, direction: Direction) -> Result<ThreadSide<'m>, Error> {
//!         self.entry(endpoint)?;
//!         let reply = usize::from(direction.is_reply());
//!         let QueueMemory { control, slots, extras, blocks, bytes, locks } =
//!             &self.memory.queues[usize::from(endpoint)][reply];
//!         let (id, bytes) = (2 * u32::from(endpoint) + reply as u32, Arc::clone(bytes));
//!         let queue = Queue { id, control, slots, extras, blocks, bytes, block_size: 0 };
//!         Ok(ThreadSide { queue, claim: locks.choose(Algorithm::Towpath) })
//!     }
//!     fn segment(&self, endpoint: u16) -> Result<NoSegment, Error> {
//!         self.entry(endpoint).map(|_| NoSegment)
//!     }
//!     fn answer_line(&self, _one: u16, _other: u16) -> Option<&'m AnswerLine<Native>> {
//!         None // all messages go through the queues
//!     }
//!     fn stream(&self, _endpoint: u16, _number: u32) -> Option<&'m Stream<Native>> {
//!         None
//!     }
//! }
//!
//! /// The threads are there from the beginning to the end.
//! impl Membership for ThreadDomain<'_> {
//!     fn me(&self) -> Option<ParticipantId> {
//!         Some(ParticipantId { index: self.rank, generation: 1 })
//!     }
//!     fn size(&self) -> u32 {
//!         RANKS as u32
//!     }
//!     fn is_alive(&self, _participant: ParticipantId) -> bool {
//!         true
//!     }
//!     fn has_died(&self, _rank: u32) -> bool {
//!         false
//!     }
//!     fn deaths(&self) -> u64 {
//!         0
//!     }
//!     fn check_deaths(&self) {}
//!     fn doorbell(&self, rank: u32) -> Option<&AtomicU64> {
//!         self.memory.doorbells.get(rank as usize)
//!     }
//! }
//!
//! impl Hooks for ThreadDomain<'_> {
//!     type Around<'a> = Alone where Self: 'a;
//!     type Wait<'a> = Wait<'a> where Self: 'a;
//!
//!     fn around<'a>(&'a self, _queue: &'a Queue<'a, Native>) -> Alone {
//!         Alone
//!     }
//!     fn wait<'a, 'b: 'a>(&'a self, around: &'a Alone) -> Wait<'a> {
//!         Wait { policy: self.policy(), around, budget: self.budget() }
//!     }
//!     fn policy(&self) -> Policy {
//!         Policy::SpinThenYield
//!     }
//!     fn budget(&self) -> u64 {
//!         5_000
//!     }
//!     fn oversubscribed(&self) -> bool {
//!         false
//!     }
//!     fn asleep(&self, _asleep: bool) {}
//!     fn pause(&self, ns: u64) {
//!         std::thread::sleep(std::time::Duration::from_nanos(ns));
//!     }
//! }
//!
//! let memory = Memory::new();
//! let endpoint = |rank| {
//!     let domain = ThreadDomain { memory: &memory, cpu: Native::with_id(0), rank };
//!     Endpoint::in_domain(domain, SegmentKind::None)
//! };
//! let answers = std::thread::scope(|scope| {
//!     scope.spawn(|| -> Result<(), Error> {
//!         let endpoint = endpoint(1)?;
//!         let asked = Arc::new(AtomicU64::new(0));
//!         let seen = asked.clone();
//!         endpoint.set_boxed_handler(1, Box::new(move |message| {
//!             message.reply(2, &[message.args()[0] + 1]).expect("the sender lives");
//!             seen.fetch_add(1, Relaxed);
//!         }));
//!         endpoint.poll_until(|| asked.load(Relaxed) > 0);
//!         Ok(())
//!     });
//!     let endpoint = endpoint(0)?;
//!     let answer = Arc::new(AtomicU64::new(0));
//!     let seen = answer.clone();
//!     endpoint.set_boxed_handler(2, Box::new(move |message| {
//!         seen.store(message.args()[0].into(), Relaxed);
//!     }));
//!     endpoint.map_world()?; // waits until both endpoints are there
//!     endpoint.request(1, 1, &[41])?;
//!     endpoint.poll_until(|| answer.load(Relaxed) > 0);
//!     Ok::<u64, Error>(answer.load(Relaxed))
//! })?;
//! assert_eq!(answers, 42);
//! # Ok::<(), Error>(())
//! ```

use core::ops::Deref;

use towpath_channel::answer_line::AnswerLine;
use towpath_channel::stream::Stream;
use towpath_machine::{Park, Prefetch, Processor};
use towpath_shm::{ParticipantId, RemoteBytes};
use towpath_sync::{Policy, SlowRounds, WaitForSpace};

use crate::claim::Claim;
use crate::error::Error;
use crate::layout::WorldConfig;
use crate::message::Direction;
use crate::queue::{Queue, STALL};

pub use crate::entry::{Entry, OwnerWords};

/// One queue of an endpoint, with the algorithm by which its packets are claimed.
pub trait Side<P: Processor> {
    /// Type of the claim algorithm.
    type Claim: Claim<P>;
    /// Returns the queue.
    fn queue(&self) -> &Queue<'_, P>;
    /// Returns the claim algorithm.
    fn claim(&self) -> &Self::Claim;
    /// Makes the locks in front of the queue new. `first`: their memory was never used
    /// and is all zero. Only for the queue's owner, while no other process uses it.
    fn renew_locks(&self, first: bool);
}

/// Segment of an endpoint in the domain's memory: senders store into it.
pub trait Stored {
    /// Returns its length in bytes.
    fn len(&self) -> u64;
    /// Returns whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Copies the bytes out that start at offset `at`. Panics if they are not all there.
    fn read(&self, at: usize, to: &mut [u8]);
    /// Copies bytes in. Panics if they do not fit.
    fn write(&self, at: usize, from: &[u8]);
}

/// Memory of a domain: entries, queues, segments.
///
/// An implementation: [the module's example](self#a-domain-of-ones-own).
///
/// ```
/// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
/// # world.enter(None)?;
/// # let endpoint = towpath::Endpoint::new(&world)?;
/// use towpath::Direction;
/// use towpath::domain::{DomainMemory, Side};
///
/// let memory = endpoint.domain();
/// let requests = memory.side(0, Direction::Request)?; // of the first endpoint
/// assert_eq!(requests.queue().len(), u64::from(memory.config().packets));
/// # Ok::<(), towpath::Error>(())
/// ```
pub trait DomainMemory: Sized {
    /// Processor that the endpoint acts on.
    type Cpu: Processor + Park + Prefetch;
    /// One queue of an endpoint.
    type Side: Side<Self::Cpu>;
    /// Reference to an entry of the directory.
    type Entry: Copy + Deref<Target = Entry<Self::Cpu>>;
    /// Segment of an endpoint in the domain's memory.
    type Segment: Stored;
    /// Reference to an answer line.
    type Line: Deref<Target = AnswerLine<Self::Cpu>>;
    /// Reference to a stream.
    type Stream: Deref<Target = Stream<Self::Cpu>>;

    /// Returns the processor.
    fn cpu(&self) -> &Self::Cpu;
    /// Makes the processor act for this endpoint: natively that gives it its number.
    fn act_for(&mut self, endpoint: u16);
    /// Returns the configuration that the layout follows from.
    fn config(&self) -> &WorldConfig;
    /// Returns an endpoint's entry in the directory.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`] if there are not so many.
    fn entry(&self, endpoint: u16) -> Result<Self::Entry, Error>;
    /// Returns an endpoint's request or reply queue.
    ///
    /// # Errors
    ///
    /// As [`DomainMemory::entry`].
    fn side(&self, endpoint: u16, direction: Direction) -> Result<Self::Side, Error>;
    /// Returns an endpoint's segment in the domain's memory.
    ///
    /// # Errors
    ///
    /// As [`DomainMemory::entry`].
    fn segment(&self, endpoint: u16) -> Result<Self::Segment, Error>;
    /// Returns the line in which two endpoints answer each other, if they have one.
    fn answer_line(&self, one: u16, other: u16) -> Option<Self::Line>;
    /// Returns a stream beside an endpoint's request queue, if there are so many.
    fn stream(&self, endpoint: u16, number: u32) -> Option<Self::Stream>;
}

/// Members of a domain: participants, their deaths, their doorbells.
///
/// An implementation: [the module's example](self#a-domain-of-ones-own).
///
/// ```
/// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
/// # world.enter(None)?;
/// # let endpoint = towpath::Endpoint::new(&world)?;
/// use towpath::domain::Membership;
///
/// let members = endpoint.domain();
/// assert!(members.me().is_some_and(|me| members.is_alive(me)));
/// assert_eq!((members.size(), members.deaths()), (1, 0));
/// # Ok::<(), towpath::Error>(())
/// ```
pub trait Membership: DomainMemory {
    /// Returns the calling process's participant, if it takes part.
    fn me(&self) -> Option<ParticipantId>;
    /// Returns the number of ranks.
    fn size(&self) -> u32;
    /// Returns whether a participant lives, and has not left.
    fn is_alive(&self, participant: ParticipantId) -> bool;
    /// Returns whether the rank's last process died, and no other one has taken its
    /// place.
    fn has_died(&self, rank: u32) -> bool;
    /// Returns whether the rank's last process left or ended in good order, and no other
    /// one has taken its place.
    fn has_left(&self, _rank: u32) -> bool {
        false
    }
    /// Returns the number of deaths that were noted so far.
    fn deaths(&self) -> u64;
    /// Asks for deaths that were not noted yet, and notes them.
    fn check_deaths(&self);
    /// Returns whether the calling process is at its end, or is a forked child of the
    /// endpoint's process, and must not touch the domain's memory: its endpoints then stay as they
    /// are, like those of the dead.
    #[inline(always)]
    fn has_ended(&self) -> bool {
        false
    }
    /// Returns whether a participant may be offered long transfers out of this process's
    /// memory.
    fn may_offer(&self, _to: ParticipantId) -> bool {
        false
    }
    /// Copies bytes out of a participant's private memory. Returns `false` if that is not
    /// possible.
    fn read_remote(&self, _participant: ParticipantId, _from: RemoteBytes, _to: &mut [u8]) -> bool {
        false
    }
    /// Returns whether an endpoint's rank runs on this host: its peers reach it without a
    /// gateway between.
    fn is_local(&self, _endpoint: u16) -> bool {
        true
    }
    /// Tells this host's gateway, if there is one, that an endpoint was opened or closed.
    fn tell_gateway(&self) {}
    /// Returns the word on which a participant sleeps, if there is such a rank.
    fn doorbell(&self, rank: u32) -> Option<&<Self::Cpu as Processor>::Word>;
}

/// Step of an endpoint, for domains whose processors take time for it
/// ([`Hooks::charge`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointStep {
    /// Composing and sending a packet.
    Send,
    /// A poll, whether or not it finds a message.
    Poll,
    /// Dispatching a message to its handler.
    Dispatch,
}

/// Hooks of a domain: waiting, interrupts, and the clock of a simulated machine.
///
/// An implementation: [the module's example](self#a-domain-of-ones-own).
///
/// ```
/// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
/// # world.enter(None)?;
/// # let endpoint = towpath::Endpoint::new(&world)?;
/// use towpath::Policy;
/// use towpath::domain::Hooks;
///
/// let hooks = endpoint.domain();
/// assert_eq!(hooks.policy(), Policy::Adaptive);
/// assert!(hooks.budget() > 0, "the cost of a context switch");
/// # Ok::<(), towpath::Error>(())
/// ```
pub trait Hooks: DomainMemory {
    /// Surroundings of a waiter for a queue.
    type Around<'a>
    where
        Self: 'a;
    /// Way of waiting for a queue.
    type Wait<'a>: WaitForSpace<Self::Cpu>
    where
        Self: 'a;

    /// Returns the surroundings of a waiter for this queue.
    fn around<'a>(&'a self, queue: &'a Queue<'a, Self::Cpu>) -> Self::Around<'a>;
    /// Returns the way of waiting there, which follows from [`WorldConfig::waiting`].
    fn wait<'a, 'b: 'a>(&'a self, around: &'a Self::Around<'b>) -> Self::Wait<'a>;
    /// Returns the policy by which all participants wait.
    fn policy(&self) -> Policy;
    /// Returns about the cost of a context switch, in nanoseconds.
    fn budget(&self) -> u64;
    /// Returns whether more runnable participants than cores share the machine.
    fn oversubscribed(&self) -> bool;
    /// Memory for rounds in which another program had the core.
    fn slow_rounds(&self) -> Option<SlowRounds<'_>> {
        None
    }
    /// Notes that the caller is about to sleep (`true`) or has woken (`false`).
    fn asleep(&self, asleep: bool);
    /// Lets about `ns` nanoseconds go by, where there is no word to wait on.
    fn pause(&self, ns: u64);
    /// Returns how long a receiver waits for a claimed packet before it looks past it, in
    /// nanoseconds.
    #[inline(always)]
    fn patience(&self) -> u64 {
        STALL
    }
    /// Returns the longest time for which a poll spins on a line in which an answer is
    /// likely, in nanoseconds.
    #[inline(always)]
    fn turn(&self) -> u64 {
        100
    }
    /// Returns the longest time for which a waiting sender does not look around, in
    /// nanoseconds; `None`: it only counts turns.
    fn look_every(&self) -> Option<u64> {
        None
    }
    /// Interrupts a participant's thread, by the address that was found in its entry.
    /// `ask`: whether there is time to ask if the participant lives (not in a signal handler). Does
    /// nothing where no endpoint gives such an address.
    #[inline(always)]
    fn interrupt(&self, _participant: ParticipantId, _address: u64, _ask: bool) {}
    /// Executes the instructions of one step. Costs nothing natively.
    #[inline(always)]
    fn charge(&self, _step: EndpointStep) {}
}

/// Word of a domain's memory.
pub(crate) type Word<D> = <<D as DomainMemory>::Cpu as Processor>::Word;
