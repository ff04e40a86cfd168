//! Waiting policies, locks, barriers and queues, each written once for every machine
//! ([`towpath_machine::Processor`]).
//!
//! Pure algorithms: no system call, no allocation. How to wait is a parameter of every operation
//! that may have to ([`Waiting`]); which machine acts is another.
#![deny(unsafe_code)]

mod barrier;
pub mod barriers;
mod compact_barrier;
mod compact_condition;
mod compact_rw_lock;
mod compact_semaphore;
mod deadline;
pub mod intents;
mod lock;
pub mod locks;
mod mutex;
mod places;
mod primitive;
pub mod queues;
pub mod robust;
mod rw_lock;
mod space;
mod turns;
mod unrepaired;
mod waited;
mod waiting;

pub use barrier::{Barrier, BarrierError};
pub use compact_barrier::CompactBarrier;
pub use compact_condition::CompactCondition;
pub use compact_rw_lock::CompactRwLock;
pub use compact_semaphore::CompactSemaphore;
pub use deadline::{Deadline, TimedOut};
pub use lock::{Lock, LockError};
pub use mutex::{Exclusive, Init, Mutex, MutexGuard, RawLock};
pub use primitive::{AtMemory, Atomics, LoadLinked, Primitive, PrimitiveKind, Universal};
pub use rw_lock::{Entrance, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use space::WaitForSpace;
pub use unrepaired::{Repair, Unrepaired};
pub use waiting::strategy;
pub use waiting::{
    Abandoned, Alone, Asleep, Attempt, LateWait, OwnThreads, PARKED, Policy, SlowRounds, SlowSpan, Spinning,
    Surroundings, Wait, Waiting, is_oversubscribed,
};

/// The README's example compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
