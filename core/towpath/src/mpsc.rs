//! Bounded queues of many senders and one receiver.
//!
//! Between threads: [`queue`], and [`owned`] for values of any type. Between processes, by name:
//! [`World::mpsc`](crate::World::mpsc).

use towpath_machine::Plain;
use towpath_shm::WorldVenue;
use towpath_sync::queues::{
    Mpsc, Threads, ValueReceiver, ValueSender, between_threads, owned_between_threads,
};

pub use towpath_sync::queues::Unsent;

/// Sender of a queue between threads.
pub type Sender<T> = ValueSender<T, Threads<Mpsc>>;
/// Receiver of a queue between threads.
pub type Receiver<T> = ValueReceiver<T, Threads<Mpsc>>;
/// Sender of values of any type between threads.
pub type OwnedSender<T> = towpath_sync::queues::OwnedSender<T, Mpsc>;
/// Receiver of values of any type between threads.
pub type OwnedReceiver<T> = towpath_sync::queues::OwnedReceiver<T, Mpsc>;
/// Sender of a queue in a world.
pub type WorldSender<T> = ValueSender<T, WorldVenue<T, Mpsc>>;
/// Receiver of a queue in a world.
pub type WorldReceiver<T> = ValueReceiver<T, WorldVenue<T, Mpsc>>;

/// Lease of a value of a queue between threads.
pub type Lease<T> = towpath_sync::queues::ValueLease<T, Threads<Mpsc>>;
/// Lease of a value of a queue in a world.
pub type WorldLease<T> = towpath_sync::queues::ValueLease<T, WorldVenue<T, Mpsc>>;

/// Makes a queue between threads, with room for so many values (rounded up to a power of
/// two).
///
/// # Panics
///
/// If the capacity is 0, or more than [`World::mpsc`](crate::World::mpsc) takes.
///
/// ```
/// use std::thread;
///
/// let (sender, receiver) = towpath::mpsc::queue::<[u32; 2]>(16);
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
/// use std::thread;
///
/// let (sender, receiver) = towpath::mpsc::owned::<String>(16);
/// thread::scope(|scope| {
///     for id in 0..3 {
///         let sender = sender.clone();
///         scope.spawn(move || sender.send(format!("thread {id}")));
///     }
///     drop(sender);
///     assert_eq!(receiver.iter().count(), 3);
/// });
/// ```
#[doc(alias("channel", "bounded", "String", "Box"))]
pub fn owned<T: Send>(capacity: usize) -> (OwnedSender<T>, OwnedReceiver<T>) {
    owned_between_threads(capacity)
}
