//! Rings that senders take and give back, and the fences on which all agree.

use towpath_machine::{FenceReach, Ordering, Prefetch};

use super::{BETWEEN_PROCESSES, CHANGING, RingPerSender, UNDECIDED, WHOLE};
use crate::Waiting;

impl<P: Prefetch, const N: usize> RingPerSender<'_, P, N> {
    /// Prepares the calling process for the queue's fences; the first one decides which.
    ///
    /// One that joins later and cannot make them, since a sandbox forbids it, changes the queue to
    /// whole fences.
    pub(super) fn agree_on_fences(&self, cpu: &P) {
        let fences = &self.head.shared.fences;
        // Relaxed, all: the word alone matters; it is read by each operation.
        let mut seen = cpu.load(fences, Ordering::Relaxed);
        if !matches!(seen, UNDECIDED | BETWEEN_PROCESSES) {
            return;
        }
        let are_asymmetric = cpu.fences_asymmetrically(FenceReach::Processes);
        if seen == UNDECIDED {
            let mine = if are_asymmetric { BETWEEN_PROCESSES } else { WHOLE };
            // Another one may have decided otherwise.
            let decided = cpu.compare_exchange(fences, seen, mine, Ordering::Relaxed, Ordering::Relaxed);
            seen = decided.map_or_else(|theirs| theirs, |_| mine);
        }
        if !are_asymmetric && seen == BETWEEN_PROCESSES {
            self.change_to_whole_fences(cpu, seen);
        }
    }

    /// Has all ends make whole fences from now on, and makes one.
    ///
    /// `seen`: the fences so far.
    #[cold]
    pub(super) fn change_to_whole_fences(&self, cpu: &P, seen: u64) {
        let fences = &self.head.shared.fences;
        // Relaxed, both: ordered by the fence of the one that completes the change. Another one may
        // have changed them.
        let _ = cpu.compare_exchange(fences, seen, CHANGING, Ordering::Relaxed, Ordering::Relaxed);
        self.complete_change(cpu);
    }

    /// Completes a change to whole fences, with a fence that reaches all others.
    ///
    /// They may have sent a value and then looked for a change before this one. Any end completes
    /// it, since the one that began it may have died.
    #[cold]
    pub(super) fn complete_change(&self, cpu: &P) {
        let reach = FenceReach::Processes;
        if cpu.fences_asymmetrically(reach) {
            // (R14) SeqCst: pairs with the light fence (R2), and hands on to the fence (R3).
            cpu.heavy_fence(Ordering::SeqCst, reach);
        }
        if !cpu.fences_asymmetrically(reach) {
            // (R15) SeqCst: pairs with the light fence (R2), and hands on to the fence (R3).
            cpu.patient_fence(Ordering::SeqCst);
        }
        let fences = &self.head.shared.fences;
        // Relaxed, both: ordered by the fence before, and the reader's (R3). Another one has
        // completed the change, too.
        let _ = cpu.compare_exchange(fences, CHANGING, WHOLE, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Takes a ring for the caller: one that is free, or else a dead process's.
    pub(super) fn take_ring<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> Option<u32> {
        let me = u64::from(wait.identity());
        let is_there = |owner: u64| u32::try_from(owner).is_ok_and(|owner| wait.is_alive(owner));
        for takes_of_dead in [false, true] {
            for seat in 0..self.geometry.rings() {
                let owner = self.ring(seat).owner();
                // Relaxed: the exchange compares.
                let seen = cpu.load(owner, Ordering::Relaxed);
                if seen != 0 && (!takes_of_dead || seen == me || is_there(seen)) {
                    continue;
                }
                // (R9) Acquire: all that the last owner did with the ring; pairs with the Release
                // (R10). A dead one's acts come before the answer that it is dead.
                if cpu.compare_exchange(owner, seen, me, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    self.note_used(cpu, seat + 1);
                    return Some(seat);
                }
            }
        }
        None
    }

    /// Gives the caller's ring back, with the values in it.
    pub(super) fn give_ring_back<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        let owner = self.ring(self.seat).owner();
        // Relaxed: the caller's own, if it is.
        if cpu.load(owner, Ordering::Relaxed) == u64::from(wait.identity()) {
            // (R10) Release: what the caller did with the ring; pairs with the Acquire (R9).
            cpu.store(owner, 0, Ordering::Release);
        }
    }

    /// Notes that so many rings are in use, if they are more than before.
    pub(super) fn note_used(&self, cpu: &P, number: u32) {
        let used = &self.head.shared.used;
        // Relaxed, all: as in `used`.
        let mut seen = cpu.load(used, Ordering::Relaxed);
        while seen < u64::from(number)
            && let Err(now) =
                cpu.compare_exchange(used, seen, number.into(), Ordering::Relaxed, Ordering::Relaxed)
        {
            seen = now;
        }
    }
}
