//! Bounded queues of many senders, each with a ring of its own, and one receiver.
//!
//! Between threads: [`queue`], and [`owned`] for values of any type. Between processes, by name:
//! [`World::per_sender`](crate::World::per_sender). Values of one sender come in order, those of
//! different senders in any.

use towpath_machine::Plain;
use towpath_shm::WorldVenue;
use towpath_sync::queues::{
    PerSender, Threads, ValueReceiver, ValueSender, between_threads, owned_between_threads,
};

pub use towpath_sync::queues::{RINGS, Unsent};

/// Sender of a queue between threads. Its clones have rings of their own.
pub type Sender<T> = ValueSender<T, Threads<PerSender>>;
/// Receiver of a queue between threads.
pub type Receiver<T> = ValueReceiver<T, Threads<PerSender>>;
/// Sender of values of any type between threads.
pub type OwnedSender<T> = towpath_sync::queues::OwnedSender<T, PerSender>;
/// Receiver of values of any type between threads.
pub type OwnedReceiver<T> = towpath_sync::queues::OwnedReceiver<T, PerSender>;
/// Sender of a queue in a world.
pub type WorldSender<T> = ValueSender<T, WorldVenue<T, PerSender>>;
/// Receiver of a queue in a world.
pub type WorldReceiver<T> = ValueReceiver<T, WorldVenue<T, PerSender>>;

/// Makes a queue between threads, with room for so many values of each sender.
///
/// Rounded up to a power of two. There may be [`RINGS`] senders: a clone too many panics.
///
/// # Panics
///
/// If the capacity is 0, or more than [`World::per_sender`](crate::World::per_sender) takes.
///
/// ```
/// use std::thread;
///
/// let (sender, receiver) = towpath::per_sender::queue::<[u32; 2]>(16);
/// thread::scope(|scope| {
///     for id in 0..3 {
///         let sender = sender.clone();
///         scope.spawn(move || sender.send([id, id * id]));
///     }
///     drop(sender);
///     assert_eq!(receiver.iter().map(|[_, square]| square).sum::<u32>(), 5);
/// });
/// ```
#[doc(alias("channel", "bounded"))]
pub fn queue<T: Plain + Copy>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    between_threads(capacity)
}

/// Makes a queue between threads for values of any type, so many of each sender.
///
/// Values move into the queue and out of it: no allocation for each. One that can't be sent comes
/// back in the error ([`Unsent`]). The last receiver drops those that are left when it goes.
///
/// # Panics
///
/// As [`queue`].
///
/// ```
/// let (sender, receiver) = towpath::per_sender::owned::<String>(16);
/// let other = sender.clone();
/// sender.send("from one".to_owned())?;
/// other.send("from the other".to_owned())?;
/// drop((sender, other));
/// assert_eq!(receiver.iter().count(), 2);
/// # Ok::<(), towpath::TransferError>(())
/// ```
#[doc(alias("channel", "bounded", "String", "Box"))]
pub fn owned<T: Send>(capacity: usize) -> (OwnedSender<T>, OwnedReceiver<T>) {
    owned_between_threads(capacity)
}
