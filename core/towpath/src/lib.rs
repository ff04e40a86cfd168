//! Processes that share a machine, talking and coordinating through its memory.
//!
//! A **world** is a set of processes and the segment that they share. A process joins the one for
//! which `towpath run` started it ([`World::join`]), or opens one by name, or makes one
//! ([`create`]). In it, an [`Endpoint`] sends and receives **Active Messages**: a message names a
//! handler, which runs at the destination when that polls.
//!
//! ```no_run
//! use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
//! use towpath::{Endpoint, World};
//!
//! static DONE: AtomicBool = AtomicBool::new(false);
//!
//! fn main() -> Result<(), towpath::Error> {
//!     let world = World::join()?; // as started by: towpath run -n 4 PROGRAM
//!     let endpoint = Endpoint::new(&world)?;
//!     endpoint.set_handler(1, |message| {
//!         println!("got {:?}", message.args());
//!         DONE.store(true, Relaxed);
//!     });
//!     endpoint.map_world()?; // entry r of the translation table: rank r
//!     let next = (world.rank() + 1) % world.size();
//!     endpoint.request(next as usize, 1, &[world.rank(), 42])?;
//!     endpoint.poll_until(|| DONE.load(Relaxed));
//!     world.barrier(Default::default())?;
//!     Ok(())
//! }
//! ```
//!
//! # Data under a mutex
//!
//! A [`Mutex`] is a named object of a world. Its handle locks it as this process, and learns of
//! dead holders:
//!
//! ```no_run
//! use std::sync::atomic::AtomicU64;
//! use towpath::{Mutex, World};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let world = World::join()?;
//! let table = world.shared::<Mutex<[AtomicU64; 1024]>>("table", Mutex::prepare)?;
//! let mut guard = table.lock()?;
//! if guard.owner_died() {
//!     // The last owner may have changed half of it: repair it here, then say so.
//!     guard.make_consistent();
//! }
//! *guard[7].get_mut() += 1;
//! # Ok(())
//! # }
//! ```
//!
//! A reference to the mutex itself, which could be locked as if only threads shared it, can't be
//! had:
//!
//! ```compile_fail
//! # use std::sync::atomic::AtomicU64;
//! # use towpath::{Mutex, World};
//! # let world = World::join().unwrap();
//! let table = world.shared::<Mutex<[AtomicU64; 1024]>>("table", Mutex::prepare).unwrap();
//! let threads: &Mutex<[AtomicU64; 1024]> = &table;
//! ```
#![deny(unsafe_code)]

pub use towpath_am::{
    Algorithm, Audit, Bundle, Endpoint, Error, Events, MAX_ARGS, Name, Operation, ParallelBundle,
    ParallelEndpoint, Payload, Returned, Segment, SignalEndpoint, Status, Tag, Token, WorldConfig,
};
pub use towpath_machine::{Object, Plain};
pub use towpath_shm::{Error as WorldError, ParticipantId, Shared, World, WorldSpec};
pub use towpath_sync::{Guard, LockError, Mutex, Policy};

/// What algorithms run on: to write a lock of one's own.
pub use towpath_machine as machine;
/// Locks, waiting policies and what they are made of.
pub use towpath_sync as sync;
pub mod structures;

/// Makes a world: anonymous, or named so that other programs of the same user can
/// [`World::open`] it. The caller has yet to [`World::enter`] it.
///
/// # Errors
///
/// A configuration that makes no sense; too little shared memory, with what to do about it.
pub fn create(name: Option<&str>, config: &WorldConfig) -> Result<World, Error> {
    config.check()?;
    Ok(World::create(&config.spec(name))?)
}

/// The README's program compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
