//! Primitives of a world that survive the deaths of their users, by name.
//!
//! The algorithms are those of `towpath_sync`. A handle ([`Shared`](crate::Shared)) tells them
//! which participant calls, and asks the world which of the others live.

mod barrier;
mod broadcast;
mod bytes;
mod condvar;
mod event;
mod held_message;
mod held_mutex;
mod message_in_place;
mod message_receiver;
mod message_slot;
mod messages;
mod mutex;
mod once;
mod pool;
mod pool_stages;
mod queues;
mod rw_lock;
mod semaphore;
mod sized_queue;

use towpath_machine::Native;
use towpath_sync::queues::{TransferError, WordLine};

use crate::participant::ParticipantId;

pub use broadcast::{WorldBroadcast, WorldRing};
pub use bytes::WorldBytes;
pub use held_message::HeldMessage;
pub use held_mutex::{DataState, HeldMutex, StillHeld};
pub use message_in_place::ReservedMessage;
pub use message_receiver::{MessageGuard, MessageReceiver};
pub use messages::{MessageSender, MessageSpec, WorldMessages};
pub use pool::{PoolBuffer, WorldPool};
pub use pool_stages::{PoolReceiver, PoolSender, PoolStage};
pub use queues::{WorldQueue, WorldVenue};
pub use semaphore::SemaphorePermit;
pub use sized_queue::{SizedKind, SizedLease, SizedQueue, SizedReceiver, SizedSender};

/// Number of bytes of a line of words, which queues and rings have behind their objects.
const LINE: u64 = size_of::<WordLine<Native>>() as u64;

/// A world of two ranks that the calling process has entered, for tests.
#[cfg(test)]
fn world_of_two() -> crate::World {
    let spec =
        crate::WorldSpec { name: None, processes: 2, area_bytes: 0, object_bytes: 1 << 18, params: [0; 16] };
    let world = crate::World::create(&spec).unwrap();
    world.enter(Some(0)).unwrap();
    world
}

/// Checks that this participant has made an end, if the end notes its maker.
///
/// A forked child must not use its parent's.
///
/// # Errors
///
/// [`TransferError::Taken`], with the maker.
#[inline(always)]
fn check_maker(maker: Option<u64>, me: ParticipantId) -> Result<(), TransferError> {
    match maker {
        Some(maker) if maker != me.to_bits() => Err(taken_by(maker)),
        _ => Ok(()),
    }
}

#[cold]
fn taken_by(maker: u64) -> TransferError {
    TransferError::Taken { rank: Some(ParticipantId::from_bits(maker).index) }
}
