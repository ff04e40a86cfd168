//! Making a receive block new.

use core::sync::atomic::Ordering;

use towpath_sync::PARKED;

use crate::attach::Side;
use crate::packet::FREE;
use crate::queue::{TICKET, tail_generation};

impl Side {
    /// Empties a queue that nobody but its owner touches now, for a generation of its endpoint. Tickets go on where they were, so that nothing that a
    /// predecessor's sender remembers fits. `first`: the memory was never used and is all zero.
    ///
    /// Everything is ordered by the last store (Release), which opens the queue: senders that see the new generation in the tail see the rest.
    pub(crate) fn reset(&self, first: bool, generation: u64) {
        let q = &self.queue;
        let base = (q.control.tail.load(Ordering::Relaxed) & TICKET).next_multiple_of(q.len());
        if !first {
            for (slot, extra) in q.slots.iter().zip(q.extras) {
                slot.header.store(FREE, Ordering::Relaxed);
                extra.valid_from.store(0, Ordering::Relaxed);
            }
            for block in q.blocks {
                block.owner.store(0, Ordering::Relaxed);
            }
            q.control.sleeping.store(0, Ordering::Relaxed);
            self.zero_locks();
        }
        self.locks.prepare();
        q.control.consumed.store(base, Ordering::Relaxed);
        q.control.head.store(base & !PARKED, Ordering::Relaxed);
        // Release: see above; pairs with the Acquire in `Core::peer` (of the entry, which follows) and in the claims.
        q.control.tail.store(base | tail_generation(generation), Ordering::Release);
    }
}
