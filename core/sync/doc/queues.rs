// Queue and ring whose ends have joined, in memory that stays: for the examples.
use towpath_machine::{Heap, Native};
use towpath_sync::queues::{
    BoundedQueue, Broadcast, BroadcastHead, ManyHead, ManyToMany, QueueSide, ReaderEnd,
    TransferError, WordLine, WriterEnd,
};
use towpath_sync::{Deadline, Spinning};

/// Queue of four numbers, with a sender and a receiver.
fn queue_of_four() -> Result<ManyToMany<'static, Native>, TransferError> {
    let geometry = ManyToMany::<Native>::geometry::<u64>(4);
    let head = Box::leak(Box::new(ManyHead::<Native>::in_arena(&Heap)));
    let [ring, slots] =
        [geometry.ring_lines(), geometry.slot_lines()].map(|lines| &*Box::leak(WordLine::row(&Heap, lines)));
    let queue = ManyToMany::of(head, ring, slots, geometry);
    for side in [QueueSide::Sender, QueueSide::Receiver] {
        queue.join(&Native::current(), &Spinning, side)?;
    }
    Ok(queue)
}

/// Ring of a kilobyte, with its writer and a reader, which holds the writer back or not.
fn ring_of_two(lossy: bool) -> Result<(Broadcast<'static, Native>, WriterEnd, ReaderEnd), TransferError> {
    let head = Box::leak(Box::new(BroadcastHead::<Native>::in_arena(&Heap)));
    let lines = Box::leak(WordLine::row(&Heap, Broadcast::<Native>::lines(1024)));
    let (ring, cpu) = (Broadcast::of(head, lines, lossy), Native::current());
    let (writer, reader) = (ring.join_writer(&cpu, &Spinning)?, ring.join_reader(&cpu, &Spinning)?);
    Ok((ring, writer, reader))
}
