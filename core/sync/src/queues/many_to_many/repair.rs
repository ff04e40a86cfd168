//! Changes of slots' words by survivors, and by the processes that have the slots.

use towpath_machine::{Ordering, Processor};

use super::{
    LEASED, MOVED, ManyToMany, PENDING, RETURNED, Reserved, SENT, SLOT, STATE, TICKETS, UNUSED, free_after,
    identity, is_free, lap, slot_word, ticket_of,
};
use crate::{PARKED, Waiting};

/// Findings of a look at all slots.
pub(super) struct SlotsFound {
    /// True if slots of the dead were freed, or their values sent again.
    pub has_repaired: bool,
    /// True if a value may yet come though no more are sent: another process has it.
    ///
    /// A process that has a lease itself does not wait for those of others, since they might wait
    /// for it. A value keeps its slot, and when no more are sent, none is filled anew: a slot that
    /// is empty then stays so.
    pub may_come_again: bool,
}

impl<P: Processor, const N: usize> ManyToMany<'_, P, N> {
    /// Frees a slot of the calling process, whose word is this, but for waiters' marks.
    #[inline(always)]
    pub(in crate::queues) fn free<W: Waiting<P>>(&self, cpu: &P, wait: &W, slot: usize, word: u64) -> bool {
        let ticket = ticket_of(word);
        let was_in_ring = matches!(word & STATE, LEASED | MOVED);
        let free = if was_in_ring { free_after(ticket) } else { slot_word(UNUSED, ticket, 0) };
        let Some(seen) = self.change(cpu, slot, word, |_| free) else { return false };
        if seen & PARKED != 0 {
            wait.wake_all(cpu, self.word(slot, 0));
        }
        true
    }

    /// Changes a slot's word that is this, but for waiters' marks. Returns the word that
    /// it was, or `None` if it is another one.
    #[inline(always)]
    pub(in crate::queues) fn change(
        &self,
        cpu: &P,
        slot: usize,
        word: u64,
        next: impl Fn(u64) -> u64,
    ) -> Option<u64> {
        let mut seen = word;
        loop {
            // (Q6) Release: what was read there comes before what the next owner writes; pairs with
            // the Acquire (Q9), (Q5). Not Acquire: the word is this process's own, or a dead one's.
            match cpu.compare_exchange(
                self.word(slot, 0),
                seen,
                next(seen),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(seen),
                Err(now) if now & !PARKED == word & !PARKED => seen = now,
                Err(_) => return None,
            }
        }
    }

    /// Frees the slots of the dead, and sends the values again that they had leased.
    /// Returns whether there were any.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// # use towpath_sync::Wait;
    /// # struct Process(u32);
    /// # impl towpath_sync::Surroundings for Process {
    /// #     fn identity(&self) -> u32 { self.0 }
    /// #     fn is_alive(&self, identity: u32) -> bool { identity != 1 }
    /// # }
    /// # let [first, second] = [&Process(1), &Process(2)].map(|process| Wait::adaptive(process));
    /// queue.send(&cpu, &second, &7u64, Deadline::NEVER)?;
    /// queue.lease_in_place(&cpu, &first, Deadline::NEVER)?; // and dies with its lease
    /// assert!(queue.repair(&cpu, &second));
    /// assert_eq!(queue.receive::<u64, _>(&cpu, &second, Deadline::NEVER)?, 7); // it came in again
    /// # Ok(())
    /// # }
    /// ```
    pub fn repair<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> bool {
        self.look_over(cpu, wait).has_repaired
    }

    /// Repairs as [`ManyToMany::repair`], and looks at the slots of the living.
    #[cold]
    pub(super) fn look_over<W: Waiting<P>>(&self, cpu: &P, wait: &W) -> SlotsFound {
        let (mut has_repaired, mut may_come, mut has_lease) = (false, false, false);
        for slot in 0..self.geometry.capacity() {
            // Relaxed: the slots of the living are counted, not read, and the acts of the dead come
            // before the answer that they are dead.
            let word = cpu.load(self.word(slot, 0), Ordering::Relaxed);
            let (state, is_in_ring) = (word & STATE, self.is_in_ring(cpu, slot, word));
            match state {
                LEASED if identity(word) == wait.identity() => has_lease = true,
                SENT => may_come |= is_in_ring,
                LEASED | RETURNED | PENDING => may_come = true,
                _ => {}
            }
            if is_free(word) || is_in_ring || wait.is_alive(identity(word)) {
                continue;
            }
            // The dead one did no more after it was found dead.
            has_repaired |= match state {
                PENDING => self.settle_pending(cpu, wait, slot, word),
                MOVED => self.settle_moved(cpu, wait, slot, word),
                LEASED => self.send_again(cpu, wait, slot, word),
                _ if self.is_in_ring(cpu, slot, word) => false,
                SENT => self.free(cpu, wait, slot, word),
                _ => self.send_again(cpu, wait, slot, word),
            };
        }
        if has_repaired {
            self.wake_senders(cpu, wait);
        }
        SlotsFound { has_repaired, may_come_again: may_come && !has_lease }
    }

    /// Returns whether a slot whose word is this was put into the ring, with its present
    /// ticket.
    fn is_in_ring(&self, cpu: &P, slot: usize, word: u64) -> bool {
        let ticket = ticket_of(word);
        let entry = self.read_entry(cpu, ticket);
        matches!(word & STATE, SENT | RETURNED)
            && lap(entry) > 0
            && (entry & SLOT) as usize == slot
            && self.ticket_at(ticket, entry) & TICKETS == ticket
    }

    /// Takes over the leased slot of a dead process, or of the caller, and sends its
    /// value again. Returns whether it did.
    pub(in crate::queues) fn send_again<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        slot: usize,
        word: u64,
    ) -> bool {
        // A ticket that this slot never had, since it was leased before.
        let (ticket, entry) = self.next_ticket(cpu);
        let next = slot_word(RETURNED, ticket, wait.identity());
        self.change(cpu, slot, word, |seen| next | seen & PARKED).is_some()
            && self.put(cpu, wait, Reserved { slot, word: next, ticket, entry }).is_ok()
    }
}
