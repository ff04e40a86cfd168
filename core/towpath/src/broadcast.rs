//! Rings of messages from one writer to many readers, each of which gets every message.
//!
//! Between threads: [`ring`], [`lossy_ring`]. Between processes, by name:
//! [`World::broadcast`](crate::World::broadcast),
//! [`World::lossy_broadcast`](crate::World::lossy_broadcast).

use towpath_shm::WorldRing;
use towpath_sync::queues::{BroadcastReader, BroadcastWriter, ThreadRing, broadcast_between_threads};

pub use towpath_sync::queues::{BroadcastMessage as Message, HoldsBack, Lossy, MessageInPlace, RoomInPlace};

/// The writer of a ring between threads.
pub type Writer<M = HoldsBack> = BroadcastWriter<ThreadRing<M>>;
/// A reader of a ring between threads.
pub type Reader<M = HoldsBack> = BroadcastReader<ThreadRing<M>>;
/// The writer of a ring in a world.
pub type WorldWriter<M = HoldsBack> = BroadcastWriter<WorldRing<M>>;
/// A reader of a ring in a world.
pub type WorldReader<M = HoldsBack> = BroadcastReader<WorldRing<M>>;

/// Makes a ring of at least so many bytes between threads, with its writer and a reader.
/// Slow readers hold the writer back.
///
/// # Panics
///
/// If that is more than [`World::broadcast`](crate::World::broadcast) takes.
///
/// ```
/// use std::thread;
///
/// let (mut writer, mut first) = towpath::broadcast::ring(4096);
/// let mut second = writer.reader()?;
/// thread::scope(|scope| {
///     for reader in [&mut first, &mut second] {
///         scope.spawn(move || {
///             while let Ok(message) = reader.receive() {
///                 println!("{} bytes", message.len());
///             }
///         });
///     }
///     let mut room = writer.reserve(3)?; // written where it lies
///     room.copy_from_slice(b"abc");
///     room.commit(3)?;
///     writer.send(&[0; 10_000])?; // longer than the ring
///     writer.close(); // the readers' loops end
///     Ok::<(), towpath::TransferError>(())
/// })?;
/// # Ok::<(), towpath::TransferError>(())
/// ```
#[doc(alias("channel"))]
pub fn ring(bytes: usize) -> (Writer, Reader) {
    broadcast_between_threads(bytes)
}

/// Makes a ring of at least so many bytes between threads, with its writer and a reader.
/// The writer never waits; slow readers are told how many messages they missed.
///
/// # Panics
///
/// As [`ring`].
///
/// ```
/// let (mut writer, mut reader) = towpath::broadcast::lossy_ring(256);
/// for number in 0..100u64 {
///     writer.send(&number.to_le_bytes())?;
/// }
/// let message = reader.receive()?;
/// assert!(message.missed() > 0);
/// # Ok::<(), towpath::TransferError>(())
/// ```
pub fn lossy_ring(bytes: usize) -> (Writer<Lossy>, Reader<Lossy>) {
    broadcast_between_threads(bytes)
}
