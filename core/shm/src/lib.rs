//! Real shared memory: worlds of processes that share a segment, and that outlive each
//! other.
//!
//! A [`World`] is a segment and a table of participants. It is anonymous (a memfd that travels to
//! other processes by inheritance or over a Unix socket: nothing can be left behind) or named (a
//! file in /dev/shm that any process of the same user can open). A process [enters](World::enter)
//! it as one of its ranks; from then on the others can ask whether it [is alive](World::is_alive),
//! and they get a truthful answer however it ended.
//!
//! * Sizes are reserved at creation, so that memory that runs out is an [`Error`] with a remedy,
//!   never a signal.
//! * Nothing read from a segment is believed: every index and length is checked before it is used.
//! * Every step of every protocol here may be the last one of the process that makes it; the
//!   modules say what the others see then.
//!
//! The contents of a world's [`Area`] belong to the rooms above.
#![deny(unsafe_code)]

mod area;
mod around;
mod barrier;
pub mod creating;
mod cross_memory;
mod directory;
mod entering;
mod environment;
pub mod episodes;
mod error;
mod gateway;
mod handover;
mod host_ranks;
mod in_mapping;
mod inner;
mod interrupts;
mod layout;
mod lending;
pub mod limits;
mod liveness;
mod local;
mod members;
mod memory;
mod participant;
mod parts;
pub mod passing;
mod primitives;
mod process;
mod segment;
mod shown;
mod sweep;
pub mod table;
pub mod variables;
mod watch;
mod watchlist;
pub mod words;
mod world;
mod world_in_mapping;

pub use area::Area;
pub use barrier::Episode;
pub use cross_memory::RemoteBytes;
pub use directory::Shared;
pub use error::Error;
pub use gateway::{HostArrival, RankState};
pub use handover::Handover;
pub use in_mapping::InMapping;
pub use inner::WorldSpec;
pub use interrupts::{Interrupts, Ticker};
pub use layout::{LAYOUT_VERSION, OBJECT_BYTES};
pub use local::EnteredAs;
pub use members::{MemberChange, WorldMembers};
pub use memory::Memory;
pub use participant::{Ending, ParticipantId};
pub use primitives::{
    DataState, HeldMessage, HeldMutex, MessageGuard, MessageReceiver, MessageSender, MessageSpec, PoolBuffer,
    PoolReceiver, PoolSender, PoolStage, ReservedMessage, SemaphorePermit, SizedKind, SizedLease, SizedQueue,
    SizedReceiver, SizedSender, StillHeld, WorldBroadcast, WorldBytes, WorldMessages, WorldPool, WorldQueue,
    WorldRing, WorldVenue,
};
pub use process::number_in_pidfs;
pub use segment::directory as named_worlds_directory;
pub use shown::{shown, shown_size};
pub use sweep::{Leftover, NamedFiles, OtherFile, leftovers, named_files};
pub use watch::{Process, Watch};
pub use world::World;

/// The README's example compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
