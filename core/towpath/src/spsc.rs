//! Bounded queues of one sender and one receiver.
//!
//! Between threads: [`queue`], and [`owned`] for values of any type. Between processes, by name:
//! [`World::spsc`](crate::World::spsc).

use towpath_machine::Plain;
use towpath_shm::WorldVenue;
use towpath_sync::queues::{
    Spsc, Threads, ValueReceiver, ValueSender, between_threads, owned_between_threads,
};

pub use towpath_sync::queues::Unsent;

/// Sender of a queue between threads.
pub type Sender<T> = ValueSender<T, Threads<Spsc>>;
/// Receiver of a queue between threads.
pub type Receiver<T> = ValueReceiver<T, Threads<Spsc>>;
/// Sender of values of any type between threads.
pub type OwnedSender<T> = towpath_sync::queues::OwnedSender<T, Spsc>;
/// Receiver of values of any type between threads.
pub type OwnedReceiver<T> = towpath_sync::queues::OwnedReceiver<T, Spsc>;
/// Sender of a queue in a world.
pub type WorldSender<T> = ValueSender<T, WorldVenue<T, Spsc>>;
/// Receiver of a queue in a world.
pub type WorldReceiver<T> = ValueReceiver<T, WorldVenue<T, Spsc>>;

/// Makes a queue between threads, with room for so many values (rounded up to a power of
/// two).
///
/// # Panics
///
/// If the capacity is 0, or more than [`World::spsc`](crate::World::spsc) takes.
///
/// ```
/// use std::time::Duration;
///
/// let (sender, receiver) = towpath::spsc::queue::<f32>(256);
/// sender.send(0.5)?;
/// assert_eq!(receiver.receive_timeout(Duration::from_secs(1))?, 0.5);
/// # Ok::<(), towpath::TransferError>(())
/// ```
#[doc(alias("channel", "bounded"))]
pub fn queue<T: Plain + Copy>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    between_threads(capacity)
}

/// Makes a queue between threads for values of any type, with room for so many.
///
/// Values move into the queue and out of it: no allocation for each. One that can't be sent comes
/// back in the error ([`Unsent`]). The last receiver drops those that are left when it goes.
///
/// # Panics
///
/// As [`queue`].
///
/// ```
/// let (sender, receiver) = towpath::spsc::owned::<Vec<f32>>(256);
/// sender.send(vec![0.5; 1024])?;
/// assert_eq!(receiver.receive()?.len(), 1024);
/// # Ok::<(), towpath::TransferError>(())
/// ```
#[doc(alias("channel", "bounded", "String", "Box"))]
pub fn owned<T: Send>(capacity: usize) -> (OwnedSender<T>, OwnedReceiver<T>) {
    owned_between_threads(capacity)
}
