//! Bounded queues of many senders and many receivers.
//!
//! Between threads: [`queue`], and [`owned`] for values of any type. Between processes, by name:
//! [`World::mpmc`](crate::World::mpmc).

use towpath_machine::Plain;
use towpath_shm::WorldVenue;
use towpath_sync::queues::{
    Mpmc, Threads, ValueReceiver, ValueSender, between_threads, owned_between_threads,
};
pub use towpath_sync::queues::{OwnedValues, ReceivedValues, Unsent};

/// Sender of a queue between threads.
pub type Sender<T> = ValueSender<T, Threads<Mpmc>>;
/// Receiver of a queue between threads.
pub type Receiver<T> = ValueReceiver<T, Threads<Mpmc>>;
/// Sender of values of any type between threads.
pub type OwnedSender<T> = towpath_sync::queues::OwnedSender<T, Mpmc>;
/// Receiver of values of any type between threads.
pub type OwnedReceiver<T> = towpath_sync::queues::OwnedReceiver<T, Mpmc>;
/// Sender of a queue in a world.
pub type WorldSender<T> = ValueSender<T, WorldVenue<T, Mpmc>>;
/// Receiver of a queue in a world.
pub type WorldReceiver<T> = ValueReceiver<T, WorldVenue<T, Mpmc>>;

/// Lease of a value of a queue between threads.
pub type Lease<T> = towpath_sync::queues::ValueLease<T, Threads<Mpmc>>;
/// Lease of a value of a queue in a world.
pub type WorldLease<T> = towpath_sync::queues::ValueLease<T, WorldVenue<T, Mpmc>>;

/// A slot of a queue between threads, to be filled in place.
pub type Slot<'a, T> = towpath_sync::queues::SlotInPlace<'a, T, Threads<Mpmc>>;
/// A slot of a queue in a world, to be filled in place.
pub type WorldSlot<'a, T> = towpath_sync::queues::SlotInPlace<'a, T, WorldVenue<T, Mpmc>>;
/// A received value in its slot of a queue between threads.
pub type InPlace<'a, T> = towpath_sync::queues::ValueInPlace<'a, T, Threads<Mpmc>>;
/// A received value in its slot of a queue in a world.
pub type WorldInPlace<'a, T> = towpath_sync::queues::ValueInPlace<'a, T, WorldVenue<T, Mpmc>>;

/// Makes a queue between threads, with room for so many values (rounded up to a power of
/// two).
///
/// # Panics
///
/// If the capacity is 0, or more than [`World::mpmc`](crate::World::mpmc) takes.
///
/// ```
/// use std::thread;
///
/// let (sender, receiver) = towpath::mpmc::queue::<u64>(16);
/// thread::scope(|scope| {
///     for _ in 0..2 {
///         let receiver = receiver.clone();
///         scope.spawn(move || println!("sum: {}", receiver.iter().sum::<u64>()));
///     }
///     (0..100).try_for_each(|n| sender.send(n))?;
///     drop(sender); // the receivers' loops end
///     Ok::<(), towpath::TransferError>(())
/// })?;
/// # Ok::<(), towpath::TransferError>(())
/// ```
///
/// Large values lie where they are written:
///
/// ```
/// let (sender, receiver) = towpath::mpmc::queue::<[f32; 1024]>(4);
/// let mut slot = sender.reserve()?;
/// slot.fill(0.5);
/// slot.send()?;
/// assert_eq!(receiver.receive_in_place()?.iter().sum::<f32>(), 512.0);
/// # Ok::<(), towpath::TransferError>(())
/// ```
///
/// A worker completes a job and sends its result in one step:
///
/// ```
/// let (jobs, inbox) = towpath::mpmc::queue::<u64>(4);
/// let (results, outbox) = towpath::mpmc::queue::<[u64; 2]>(4);
/// jobs.send(7)?;
/// let job = inbox.receive_leased()?;
/// let result = [*job, *job * *job];
/// job.complete_into(&results, result)?;
/// assert_eq!(outbox.receive()?, [7, 49]);
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
/// use std::thread;
///
/// let (jobs, inbox) = towpath::mpmc::owned::<Box<dyn FnOnce() + Send>>(16);
/// thread::scope(|scope| {
///     for _ in 0..2 {
///         let inbox = inbox.clone();
///         scope.spawn(move || inbox.iter().for_each(|job| job()));
///     }
///     jobs.send(Box::new(|| println!("this runs in one of two threads")))?;
///     drop(jobs); // the threads' loops end
///     Ok::<(), towpath::TransferError>(())
/// })?;
/// # Ok::<(), towpath::TransferError>(())
/// ```
#[doc(alias("channel", "bounded", "String", "Box"))]
pub fn owned<T: Send>(capacity: usize) -> (OwnedSender<T>, OwnedReceiver<T>) {
    owned_between_threads(capacity)
}
