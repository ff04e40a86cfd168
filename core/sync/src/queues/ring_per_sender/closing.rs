//! The end of a closed queue, on which the two ends of each ring agree.
//!
//! A sender looks whether the queue was closed before it publishes a value, and after it. If it
//! was closed in between, the value counts as sent if it lies before the ring's end, which either
//! the sender puts behind it or the receiver, after a heavy fence, behind the last one that it
//! sees.

use towpath_machine::{Ordering, Prefetch};

use super::{QueueDoorbell, RingPerSender, RingWords};
use crate::Waiting;
use crate::queues::members::QueueSide;

/// Part of the word of a ring's end: there is one.
const ENDS: u64 = 1 << 62;

impl<P: Prefetch, const N: usize> RingPerSender<'_, P, N> {
    /// Number of values that were sent to a ring, up to its end if the queue is closed.
    pub(super) fn sent(&self, cpu: &P, ring: &RingWords<'_, P>) -> u64 {
        // (R8) Acquire: the values; pairs with the Release (R7).
        let tail = cpu.load(ring.tail(), Ordering::Acquire);
        // (R11) Acquire: the last value; pairs with the Release (R12).
        match cpu.load(ring.end(), Ordering::Acquire) {
            0 => tail,
            end => end & !ENDS,
        }
    }

    /// Returns whether a published value still lies before its ring's end.
    ///
    /// For its sender, after the queue was closed.
    pub(super) fn ends_after(&self, cpu: &P, number: u64) -> bool {
        let ring = self.ring(self.seat);
        let mine = ENDS | number.wrapping_add(1);
        // (R12) Release: the value; pairs with the Acquire (R11). Relaxed: the number alone.
        let end = cpu.compare_exchange(ring.end(), 0, mine, Ordering::Release, Ordering::Relaxed);
        let is_before = end.map_or_else(|end| end >= mine, |_| true);
        if !is_before {
            // Relaxed: the number is for `len`; the receiver goes by the end. One that reads it by
            // (R8) acquires the values before all the same: they were published before their
            // senders looked whether the queue was closed, and so before the fence that this
            // thread made since then, (R1), or (R4) of the receiver that put the end there.
            cpu.store(ring.tail(), number, Ordering::Relaxed);
        }
        is_before
    }

    /// Puts an end to each ring of a closed queue, behind the last value that was sent.
    #[cold]
    pub(super) fn end_rings(&self, cpu: &P) {
        // A sender that has just joined may have put an end to its ring. First: a receiver may die
        // here, and its successor finds that all rings have ends.
        self.note_used(cpu, self.geometry.rings());
        // Relaxed, both: it is there or not.
        let ends = |seat: u32| cpu.load(self.ring(seat).end(), Ordering::Relaxed) != 0;
        if (0..self.geometry.rings()).all(ends) {
            return;
        }
        self.fence_heavily(cpu);
        for seat in 0..self.geometry.rings() {
            let ring = self.ring(seat);
            // Relaxed: `sent` acquires it.
            let end = ENDS | cpu.load(ring.tail(), Ordering::Relaxed);
            // Relaxed, both: the receiver's own knowledge, or the sender's, which (R11) acquires.
            let _ = cpu.compare_exchange(ring.end(), 0, end, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Lets those look again that wait for these sides, which have changed.
    pub(super) fn ring_all<W: Waiting<P>>(&self, cpu: &P, wait: &W, sides: &[QueueSide]) {
        self.fence_lightly(cpu);
        for side in sides {
            match side {
                QueueSide::Sender => QueueDoorbell(&self.head.shared.doorbell).wake(cpu, wait),
                QueueSide::Receiver => {
                    (0..self.used(cpu)).for_each(|seat| self.ring(seat).doorbell().wake(cpu, wait));
                }
            }
        }
    }
}
