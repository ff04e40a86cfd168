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

mod hooks;
mod members;
mod memory;

use towpath_machine::Processor;

pub use crate::entry::{Entry, OwnerWords};
pub use hooks::{EndpointStep, Hooks};
pub use members::Membership;
pub use memory::{DomainMemory, Side, Stored};

/// Word of a domain's memory.
pub(crate) type Word<D> = <<D as DomainMemory>::Cpu as Processor>::Word;
