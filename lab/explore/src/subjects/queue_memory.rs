//! Memory of the queue of many senders, for all subjects that have one.

use std::sync::Arc;

use towpath_channel::claim::Locks;
use towpath_channel::packet::{BlockHead, Extra, Slot};
use towpath_channel::queue::{Queue, QueueControl};
use towpath_machine::Arena;
use towpath_schedules::{Bytes, ExploredMemory, Explorer};

/// Memory of a queue, and of the locks in front of it.
pub(super) struct ExploredQueueMemory {
    pub(super) control: QueueControl<Explorer>,
    slots: Vec<Slot<Explorer>>,
    extras: Vec<Extra<Explorer>>,
    blocks: Vec<BlockHead<Explorer>>,
    bytes: Arc<Bytes>,
    block_size: usize,
    pub(super) locks: Locks<Explorer>,
}

impl ExploredQueueMemory {
    /// Memory of so many packets, and of so many blocks of that size.
    pub(super) fn new(memory: &ExploredMemory, packets: usize, blocks: usize, block_size: usize) -> Self {
        ExploredQueueMemory {
            control: QueueControl::new(memory),
            slots: (0..packets).map(|_| Slot::new(memory)).collect(),
            extras: (0..packets).map(|_| Extra::new(memory)).collect(),
            blocks: (0..blocks).map(|_| BlockHead::new(memory)).collect(),
            bytes: Arc::new(memory.bytes(blocks * block_size)),
            block_size,
            locks: Locks::new(memory),
        }
    }

    /// The queue there.
    pub(super) fn queue(&self, id: u32) -> Queue<'_, Explorer> {
        let ExploredQueueMemory { control, slots, extras, blocks, bytes, block_size, .. } = self;
        let bytes = Arc::clone(bytes);
        Queue { id, control, slots, extras, blocks, bytes, block_size: *block_size }
    }
}
