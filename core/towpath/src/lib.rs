//! Processes of one machine that talk and coordinate through its memory, and go on when
//! one of them is killed or stopped.
//!
//! ```no_run
//! use towpath::{Endpoint, World};
//!
//! fn main() -> Result<(), towpath::Error> {
//!     let world = World::join()?; // started by: towpath run -n 4 PROGRAM
//!     let endpoint = Endpoint::new(&world)?;
//!     endpoint.set_handler(1, |message| println!("got {:?}", message.args()));
//!     endpoint.map_world()?; // entry r of the translation table leads to rank r
//!     let next = (world.rank() + 1) % world.size();
//!     endpoint.request(next as usize, 1, &[world.rank(), 42])?;
//!     endpoint.barrier() // polls until all ranks are here: all messages are handled
//! }
//! ```
//!
//! # Concepts
//!
//! | | |
//! | --- | --- |
//! | [`World`] | Processes that share one segment of memory. A process [joins](World::join) the world for which `towpath run` started it, [opens](World::open) one by name, or [makes](create) one. |
//! | rank | Number of a process in its world: [`World::rank`]. |
//! | [`Endpoint`] | Sends and receives Active Messages: a message names a handler, which runs at the destination when that [polls](Endpoint::poll). A handler gets a [`Token`] and may reply once. |
//! | translation table | Table of an endpoint: entry `i` leads to a destination ([`Endpoint::map`], [`Endpoint::map_world`]). |
//! | forms | *Short*: up to 16 arguments. *Medium*: a payload of at most a block for the handler. *Long*: bytes stored in the destination's [`Segment`]. |
//! | handler 0 | Gets the endpoint's own messages that came back, each with its [`Status`]. |
//! | [`Bundle`], [`ParallelBundle`] | Endpoints that one thread, or several, poll and wait for together. |
//! | [`SignalEndpoint`] | Endpoint that a real-time signal polls while its thread computes. |
//! | [`Mutex`] | Data under a lock, found by name in a world ([`World::mutex`]). |
//! | [`RwLock`] | Data that many read or one changes, by name ([`World::rw_lock`]): the dead are removed, and half-changed data reported. |
//! | [`Condvar`], [`Semaphore`], [`Event`], [`Once`], [`Barrier`] | Waiting for a condition, a permit, a flag, one that acts for all, all others; by name ([`World::condvar`], and so on). |
//! | [`mpmc`], [`mpsc`], [`spsc`] | Bounded queues of values, between threads (of any type: [`mpmc::owned`]) or by name ([`World::mpmc`], and so on): time-outs, closing, leases that return from the dead, or are completed into another queue in one step. |
//! | [`per_sender`] | Bounded queue of many senders, each with a ring of its own, and one receiver ([`World::per_sender`]): no locked instruction for a value. |
//! | [`broadcast`](mod@broadcast) | Ring of messages from one writer to many readers, between threads or by name ([`World::broadcast`], [`World::lossy_broadcast`]). |
//! | [`readiness`] | Descriptors for event loops and futures for executors of queues, rings, events, semaphores and barriers: [`Pollable`](readiness::Pollable). |
//! | [`pool`] | Buffers that move between processes and are never copied ([`World::pool`]): those of the dead come back. |
//! | [`messages`] | Queues of messages of any length, by name ([`World::messages`]): one that a dead receiver had comes in again. |
//! | [`mplock`] | Locks by message, with fencing tokens and time-outs; the next holder learns of a dead one. Across hosts: [`mplock::hosts`]. |
//! | [`structures`] | Stacks, queues, lists, maps without locks, found by name in a world. |
//! | [`Policy`] | Way of waiting: spin, yield or sleep. |
//!
//! # Data under a lock
//!
//! The handle of a mutex locks it as this process, and learns of dead holders:
//!
//! ```
//! use towpath::{LockError, WorldConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let world = towpath::create(None, &WorldConfig::new(1))?; // or World::join()
//! world.enter(None)?;
//! let table = world.mutex("table", [0u64; 1024])?; // found by name, or made
//! let mut guard = match table.lock() {
//!     Ok(guard) => guard,
//!     // The last owner may have changed half of it.
//!     Err(LockError::OwnerDied { guard, .. }) => guard.repair(|table| table.fill(0)),
//!     Err(other) => return Err(other.into()),
//! };
//! guard[7] += 1;
//! # Ok(())
//! # }
//! ```
//!
//! A reference to the mutex itself, which could be locked as if only threads shared it, can't be
//! had:
//!
//! ```compile_fail
//! # use towpath::{Mutex, World};
//! # let world = World::join().unwrap();
//! let table = world.mutex("table", [0u64; 1024]).unwrap();
//! let threads: &Mutex<[u64; 1024]> = &table;
//! ```
//!
//! The page `docs/sync.md` of the repository says which lock to take.
//!
//! # Values of your own
//!
//! Under a lock, or in a queue, lie integers, arrays, and structures that derive
//! [`Plain`](derive@Plain):
//!
//! ```
//! use towpath::{Plain, WorldConfig};
//!
//! #[derive(Plain, Clone, Copy, Default)]
//! #[repr(C)] // all programs have the fields in this order
//! struct Account {
//!     balance: i64,
//!     limits: [u32; 2],
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let world = towpath::create(None, &WorldConfig::new(1))?;
//! # world.enter(None)?;
//! let accounts = world.mutex("accounts", [Account::default(); 100])?;
//! accounts.lock()?[7].balance += 30;
//! # Ok(())
//! # }
//! ```
//!
//! The compiler refuses fields that are not plain, such as pointers, with a sentence; and padding,
//! a `Drop`, enums, and structures whose fields it may order as it likes:
//!
//! ```compile_fail
//! #[derive(towpath::Plain)]
//! #[repr(C)]
//! struct Padded {
//!     short: u32, // and four bytes without a value
//!     long: u64,
//! }
//! ```
//!
//! # Choosing an algorithm
//!
//! A world has one claim [`Algorithm`], by which senders get a packet of a queue, and one
//! [`Policy`]. Both are chosen when it is made (`towpath run --algorithm … --waiting …`,
//! [`WorldConfig::algorithm`], [`WorldConfig::waiting`]). `towpath bench` measures them on your
//! machine and recommends one of each.
//!
//! | choose | for |
//! | --- | --- |
//! | [`Algorithm::Towpath`] (default) | all worlds: a stopped or dead sender holds up no other |
//! | [`Algorithm::LockFree`] | comparing with the paper's algorithm, which has that property, too |
//! | [`Algorithm::Posix`] | a kernel mutex, which the kernel passes on when its holder dies |
//! | the spin locks | comparing; a stopped holder holds all others up |
//! | [`Policy::Adaptive`] (default) | all worlds: it spins only while there are cores to spare |
//! | [`Policy::Spin`] | ranks that have a core each, and nothing else to run |
//! | [`Policy::Park`] | ranks that mostly wait, on cores that others need |
//!
//! For data: a [`Mutex`] where updates are short and no participant is stopped for long;
//! [`structures::nonblocking`] where participants may be stopped, or signal handlers use the data,
//! too.
//!
//! # Guarantees after a crash
//!
//! A process may be killed or stopped at any instruction. The others ask the kernel for deaths,
//! never a clock.
//!
//! * A request to a process that dies is handled, or comes back to its sender's handler 0 as
//!   [`Status::Unreachable`], once. If the process died in the handler it comes back, although the
//!   handler has run in part.
//! * Packets and blocks of the dead return to use: [`Endpoint::audit`].
//! * [`Endpoint::barrier`] and [`World::barrier`] return the same error to all waiters, once; the
//!   next barrier is among the survivors.
//! * [`Mutex`], [`RwLock`]: the next that locks after the death of a process that could change the
//!   data is told, with a guard that repairs them ([`LockError::OwnerDied`]).
//! * Structures: an operation has happened or has not, and no other waits for it.
//! * A stopped process is not a dead one: nothing is taken from it, and it may go on at any time.
//! * A forked child is no member of its parent's world: it may enter as another rank, and must not
//!   use the parent's endpoints.
//!
//! The page `docs/crashes.md` of the repository says what each algorithm makes of each step.
//!
//! # Errors
//!
//! Each error is a sentence that names the cause and the remedy, and prints so even with
//! `{:?}`: a `main` that returns an error prints it. `{:#?}` prints the variant and its fields.
//!
//! # Features, platforms, versions
//!
//! Cargo feature `readiness` (by default): descriptors and futures. Linux, 64 bits: x86-64 is
//! tested; on aarch64 the machine, locks, queues and structures are, under an emulator.
//! Memory comes from memfd, or from /dev/shm for worlds with a name. Deaths are asked for by pidfd
//! (Linux 5.3); where ranks see no /proc of their own, Linux 6.9 is needed. Rust 1.89 or newer
//! (edition 2024): a new minimum is a new minor version. All programs of a world must be built
//! with the same version of Towpath; another one is refused with an error.
#![deny(unsafe_code)]

pub use towpath_am::{
    Algorithm, Audit, Bundle, Direction, Domain, Endpoint, EndpointSleep, Error, Events, MAX_ARGS,
    MAX_ENDPOINTS, Name, Operation, ParallelBundle, ParallelEndpoint, Payload, PollsAtBarrier,
    PrivateSegment, Returned, Segment, SegmentKind, SharedMemory, SharedSegment, SignalEndpoint, Status, Tag,
    Token, WorldConfig, domain,
};
/// ```
/// #[derive(towpath::Plain, Clone, Copy)]
/// #[repr(C)]
/// struct Job {
///     number: u64,
///     bytes: [u8; 56],
/// }
///
/// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
/// # world.enter(None)?;
/// let jobs = world.mpmc::<Job>("jobs", 64)?;
/// jobs.sender()?.send(Job { number: 1, bytes: [0; 56] })?;
/// assert_eq!(jobs.receiver()?.receive()?.number, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use towpath_derive::Plain;
pub use towpath_machine::{Concurrent, Object, Plain};
pub use towpath_shm::{
    Area, Ending, EnteredAs, Episode, Error as WorldError, HostArrival, InMapping, MemberChange,
    ParticipantId, RankState, RemoteBytes, SemaphorePermit, Shared, SizedKind, SizedLease, SizedQueue,
    SizedReceiver, SizedSender, World, WorldBroadcast, WorldBytes, WorldMembers, WorldQueue, WorldRing,
    WorldSpec, WorldVenue,
};
pub use towpath_sync::queues::TransferError;
pub use towpath_sync::robust::{Barrier, Condvar, EpisodeError, Event, Once, Semaphore, Woken};
pub use towpath_sync::{
    Exclusive, LockError, Mutex, MutexGuard, Policy, RwLock, RwLockReadGuard, RwLockWriteGuard, TimedOut,
    Unrepaired,
};

/// Channels below the endpoints: queues with their claim algorithms, packets, intents.
pub use towpath_channel as channel;
/// Machines that algorithms run on: for locks and structures of one's own.
pub use towpath_machine as machine;
/// Locks by message, with fencing tokens: of a world, and across hosts.
pub mod mplock {
    #[doc(inline)]
    pub use towpath_mplock::*;

    /// Locks that span hosts, through this host's agent, without a world.
    pub mod hosts {
        pub use towpath_agent::client::{Guard, Lock, Manager, Request};
        pub use towpath_agent::{ClientRow, ClusterHost, Error, HostLockRow, HostReport, HostsFile};
    }
}
mod spawn;

pub use spawn::{SpawnedWorld, join_or_spawn};

pub mod broadcast;
pub mod messages;
pub mod mpmc;
pub mod mpsc;
pub mod per_sender;
pub mod pool;
#[cfg(feature = "readiness")]
pub mod readiness;
pub mod spsc;

/// Locks, barriers, queues and waiting policies.
pub use towpath_sync as sync;
pub mod structures;

/// Makes a world: anonymous, or named so that other programs of the same user can
/// [`World::open`] it. The caller has yet to [`World::enter`] it.
///
/// # Errors
///
/// [`Error::BadArgument`] for a configuration that makes no sense; [`Error::World`] for too little
/// shared memory. Both say what to do about it.
///
/// ```
/// # fn main() -> Result<(), towpath::Error> {
/// let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
/// world.enter(None)?;
/// assert_eq!((world.rank(), world.size()), (0, 1));
/// # Ok(())
/// # }
/// ```
pub fn create(name: Option<&str>, config: &WorldConfig) -> Result<World, Error> {
    config.check()?;
    Ok(World::create(&config.spec(name))?)
}

/// The crate's README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The repository's README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct RepositoryReadme;
