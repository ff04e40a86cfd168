//! A sender's steps: a free slot, its value, and its place in the ring.

use towpath_machine::{Ordering, Processor};

use super::{
    CLOSED, LAP, ManyToMany, Oldest, RETURNED, Reserved, SENT, STATE, TICKET, TICKETS, identity, is_free,
    lap, slot_word,
};
use crate::queues::members::QueueSide;
use crate::queues::{SentWords, TransferError, gathering};
use crate::turns::{TURN, Turns};
use crate::{Deadline, PARKED, TimedOut, Waiting};

impl<P: Processor, const N: usize> ManyToMany<'_, P, N> {
    /// Takes a free slot for the calling process, with a ticket and the entry there.
    #[inline(always)]
    pub(super) fn take_slot(&self, cpu: &P, me: u32) -> Option<Reserved> {
        self.take_next_slot(cpu, me).or_else(|| self.apart().take_another(cpu, me))
    }

    /// Takes the slot that is free next where values come and go in turn, if it is free.
    #[inline(always)]
    pub(super) fn take_next_slot(&self, cpu: &P, me: u32) -> Option<Reserved> {
        // Relaxed: a hint. It has the number of the ticket.
        let next = cpu.load(&self.head.sent.next, Ordering::Relaxed);
        self.take_if_free(cpu, me, self.used_slots(cpu, next).1)
    }

    /// Takes any free slot.
    #[cold]
    fn take_another(self, cpu: &P, me: u32) -> Option<Reserved> {
        // As many values wait as there are slots: a look at each would fetch all their lines.
        let (next, _) = self.next_ticket(cpu);
        let (used, first) = self.used_slots(cpu, next);
        if let Oldest::Value(oldest, ..) = self.front(cpu)
            && next.wrapping_sub(oldest) >= used as u64
        {
            return None;
        }
        (first..used).chain(0..first).find_map(|slot| self.take_if_free(cpu, me, slot))
    }

    #[inline(always)]
    fn take_if_free(&self, cpu: &P, me: u32, slot: usize) -> Option<Reserved> {
        // (Q5d) Acquire: it is free before the next look at the ring; pairs with (Q6).
        let free = cpu.load(self.word(slot, 0), Ordering::Acquire);
        if !is_free(free) {
            return None;
        }
        // A ticket that this slot never had: it is still free, with its last ticket, below.
        let (ticket, entry) = self.next_ticket(cpu);
        let word = slot_word(SENT, ticket, me);
        // (Q9) Acquire: the last reader of the slot has read; pairs with the Release (Q6).
        let taken =
            cpu.compare_exchange(self.word(slot, 0), free, word, Ordering::Acquire, Ordering::Relaxed);
        taken.ok().map(|_| Reserved { slot, word, ticket, entry })
    }

    /// Puts a slot of the calling process into the ring. Returns its ticket.
    ///
    /// # Errors
    ///
    /// [`TransferError::Closed`]; the slot is free then, unless it was returned.
    #[inline(always)]
    pub(in crate::queues) fn put<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        reserved: Reserved,
    ) -> Result<u64, TransferError> {
        let put = self.put_unless_closed(cpu, wait, reserved);
        put.or_else(|word| self.apart().refuse(cpu, wait, reserved.slot, word))
    }

    /// Puts a slot into the ring, or returns its word if the queue was closed.
    ///
    /// The slot is still the caller's then.
    #[inline(always)]
    pub(super) fn put_unless_closed<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        reserved: Reserved,
    ) -> Result<u64, u64> {
        let Reserved { slot, mut word, mut ticket, mut entry } = reserved;
        let returned = word & STATE == RETURNED;
        loop {
            if entry & CLOSED != 0 && !returned {
                return Err(word);
            }
            let next = self.lap_of(ticket) << LAP | slot as u64;
            // (Q4) Release: the value, and what its sender knew of the queue, comes before its
            // receipt; pairs with the Acquire (Q3). Not Acquire: the entry is one that this process
            // has acquired. Relaxed if it fails: the entry is read again.
            let done =
                cpu.compare_exchange(self.entry(ticket), entry, next, Ordering::Release, Ordering::Relaxed);
            if done.is_err() {
                (word, ticket, entry) = self.apart().next_place(cpu, slot, word, ticket);
                continue;
            }
            if entry & PARKED != 0 {
                wait.wake_all(cpu, self.entry(ticket));
            }
            // (Q8) Release: as (Q4); pairs with the Acquire (Q7).
            cpu.store(&self.head.sent.next, ticket + 1, Ordering::Release);
            if entry & CLOSED != 0 {
                self.apart().mark_closed(cpu, wait);
            }
            return Ok(ticket);
        }
    }

    /// Frees a slot that is not in the ring, since the queue was closed.
    #[cold]
    pub(super) fn refuse<W: Waiting<P>>(
        self,
        cpu: &P,
        wait: &W,
        slot: usize,
        word: u64,
    ) -> Result<u64, TransferError> {
        self.free(cpu, wait, slot, word);
        Err(TransferError::Closed)
    }

    /// Finds the next place for a slot, after another sender took that of `ticket`.
    ///
    /// Returns the slot's word, the next ticket, and the entry there.
    #[cold]
    fn next_place(self, cpu: &P, slot: usize, mut word: u64, mut ticket: u64) -> (u64, u64, u64) {
        let mut entry = self.read_entry(cpu, ticket);
        while lap(entry) != self.lap_of(ticket) - 1 {
            ticket = self.after(ticket, entry);
            word = Self::retry(cpu, self.word(slot, 0), word, ticket);
            entry = self.read_entry(cpu, ticket);
        }
        (word, ticket, entry)
    }

    /// Writes another ticket into the word of a slot that is not in the ring.
    #[cold]
    fn retry(cpu: &P, at: &P::Word, word: u64, ticket: u64) -> u64 {
        let next = word & !(TICKETS << TICKET | PARKED) | (ticket & TICKETS) << TICKET;
        let mut seen = word;
        // Relaxed, both: no other reads it before it is in the ring (Q4), but waiters that mark it.
        while let Err(now) =
            cpu.compare_exchange(at, seen, next | seen & PARKED, Ordering::Relaxed, Ordering::Relaxed)
        {
            if now & !PARKED != word & !PARKED {
                // Damaged memory: another has changed the word.
                return next;
            }
            seen = now;
        }
        next
    }

    /// Takes a slot for a value, when there is one: the caller fills it, and then
    /// [publishes](ManyToMany::publish) it or [gives it up](ManyToMany::give_up). If the caller
    /// dies before, nothing was sent.
    ///
    /// # Errors
    ///
    /// As [`BoundedQueue::send`](crate::queues::BoundedQueue::send).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// let reserved = queue.reserve(&cpu, &Spinning, Deadline::NEVER)?;
    /// queue.fill(&cpu, &reserved, &7u64);
    /// assert_eq!(queue.len(&cpu), 0); // nothing is sent yet
    /// queue.publish(&cpu, &Spinning, reserved)?;
    /// assert_eq!(queue.len(&cpu), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn reserve<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
    ) -> Result<Reserved, TransferError> {
        if !self.head.members.may_be_without(cpu, QueueSide::Receiver)
            && let Some(reserved) = self.take_slot(cpu, wait.identity())
        {
            return Ok(reserved);
        }
        self.apart().reserve_slowly(cpu, wait, deadline)
    }

    /// Writes a value into a slot that the caller reserved.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// let reserved = queue.reserve(&cpu, &Spinning, Deadline::NEVER)?;
    /// queue.fill(&cpu, &reserved, &7u64);
    /// queue.fill(&cpu, &reserved, &8u64); // the last one counts
    /// queue.publish(&cpu, &Spinning, reserved)?;
    /// assert_eq!(queue.receive::<u64, _>(&cpu, &Spinning, Deadline::NEVER)?, 8);
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn fill<T: SentWords>(&self, cpu: &P, reserved: &Reserved, value: &T) {
        for k in 0..value.words() {
            // Relaxed: published by (Q4), and read again only after (Q9).
            cpu.store(self.word(reserved.slot, 1 + k), value.word(k), Ordering::Relaxed);
        }
    }

    /// Sends the value in a slot that the caller reserved.
    ///
    /// # Errors
    ///
    /// [`TransferError::Closed`]; [`TransferError::NotEntered`] if another process reserved it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// let reserved = queue.reserve(&cpu, &Spinning, Deadline::NEVER)?;
    /// queue.fill(&cpu, &reserved, &7u64);
    /// queue.close(&cpu, &Spinning); // meanwhile
    /// assert_eq!(queue.publish(&cpu, &Spinning, reserved), Err(TransferError::Closed));
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn publish<W: Waiting<P>>(&self, cpu: &P, wait: &W, reserved: Reserved) -> Result<(), TransferError> {
        // A forked child does not have its parent's slot.
        if identity(reserved.word) != wait.identity() {
            return Err(TransferError::NotEntered);
        }
        self.put(cpu, wait, reserved).map(drop)
    }

    /// Frees a slot that the caller reserved: nothing is sent.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queues.rs"));
    /// # fn main() -> Result<(), TransferError> {
    /// # let (cpu, queue) = (Native::current(), queue_of_four()?);
    /// let reserved = queue.reserve(&cpu, &Spinning, Deadline::NEVER)?;
    /// queue.give_up(&cpu, &Spinning, reserved);
    /// for n in 0..4u64 {
    ///     queue.send(&cpu, &Spinning, &n, Deadline::PAST)?; // there is room for four values
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn give_up<W: Waiting<P>>(&self, cpu: &P, wait: &W, reserved: Reserved) {
        let is_mine = identity(reserved.word) == wait.identity();
        if is_mine && self.free(cpu, wait, reserved.slot, reserved.word) {
            self.wake_senders(cpu, wait);
        }
    }

    #[cold]
    pub(super) fn send_slowly<T: SentWords, W: Waiting<P>>(
        self,
        cpu: &P,
        wait: &W,
        value: &T,
        deadline: Deadline,
    ) -> Result<(), TransferError> {
        let reserved = self.reserve_slowly(cpu, wait, deadline)?;
        self.fill(cpu, &reserved, value);
        self.put(cpu, wait, reserved).map(drop)
    }

    #[cold]
    pub(super) fn reserve_slowly<W: Waiting<P>>(
        self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
    ) -> Result<Reserved, TransferError> {
        let mut place = 0;
        let reserved = self.reserve_in_turns(cpu, wait, deadline, &mut place);
        gathering::is_first_no_more(cpu, &self.head.sent.first, place);
        reserved
    }

    /// Waits for a free slot. `place`: the caller's among the senders that wait.
    fn reserve_in_turns<W: Waiting<P>>(
        self,
        cpu: &P,
        wait: &W,
        deadline: Deadline,
        place: &mut u64,
    ) -> Result<Reserved, TransferError> {
        let mut turns = None;
        loop {
            self.head.members.check_receivers(cpu, wait)?;
            // First the word to wait on: it changes when the next slot in turn becomes free.
            let (slot, word) = self.turn_of_senders(cpu);
            if let Some(reserved) = self.take_slot(cpu, wait.identity()) {
                return Ok(reserved);
            }
            let (used, _) = self.used_slots(cpu, 0);
            let batch = gathering::batch(used, deadline);
            // Relaxed: a hint.
            let next = cpu.load(&self.head.sent.next, Ordering::Relaxed);
            let rests = batch.is_some()
                && wait.is_oversubscribed()
                && !gathering::is_first(cpu, &self.head.sent.first, place, next, used);
            if turns.is_none()
                && !rests
                && let Some(batch) = batch
            {
                turns = Some(Turns::new(cpu, deadline, TURN));
                gathering::pause(cpu, wait, self.word((slot + batch) % used, 0), gathering::YIELDS, deadline);
                continue;
            }
            let turns = turns.get_or_insert_with(|| Turns::new(cpu, deadline, TURN));
            if self.head.members.is_time_to_ask(cpu, turns, deadline) {
                if self.repair(cpu, wait) {
                    continue;
                }
                if let Some(end) = self.head.members.end_of(cpu, wait, QueueSide::Receiver) {
                    return Err(end);
                }
            }
            if rests {
                self.rest(cpu, wait, turns)?;
            } else {
                turns.wait(cpu, wait, self.word(slot, 0), word & !PARKED)?;
            }
        }
    }

    /// Rests after a meeting with another sender, if senders meet often.
    ///
    /// Only if there are more ends than cores. `ticket`: the one that the caller got.
    #[cold]
    pub(super) fn give_way<W: Waiting<P>>(self, cpu: &P, wait: &W, ticket: u64, deadline: Deadline) {
        let Some(batch) = gathering::batch(self.geometry.capacity(), deadline) else { return };
        // Relaxed, both: a hint.
        let met = cpu.load(&self.head.sent.met, Ordering::Relaxed);
        cpu.store(&self.head.sent.met, ticket, Ordering::Relaxed);
        if ticket.wrapping_sub(met) < batch as u64 && wait.is_oversubscribed() {
            // The value was sent: no error that the deadline is over.
            let _ = self.rest(cpu, wait, &Turns::new(cpu, deadline, TURN));
        }
    }

    /// Sleeps for a turn at most, until a receiver has nothing to do.
    fn rest<W: Waiting<P>>(self, cpu: &P, wait: &W, turns: &Turns) -> Result<(), TimedOut> {
        let resting = &self.head.taken.resting;
        // Relaxed: always 0 without the mark, unless it is damaged; the sender sleeps either way.
        let seen = cpu.load(resting, Ordering::Relaxed) & !PARKED;
        turns.sleep(cpu, wait, resting, seen)
    }

    /// Wakes a sender that rests, if there is one: for a receiver that has nothing to do.
    pub(super) fn wake_resting<W: Waiting<P>>(self, cpu: &P, wait: &W) {
        let resting = &self.head.taken.resting;
        // Relaxed, both: a sender that is missed sleeps on to its turn's end.
        if cpu.load(resting, Ordering::Relaxed) & PARKED != 0 && wait.wake_some(cpu, resting, 1) == 0 {
            cpu.fetch_and(resting, !PARKED, Ordering::Relaxed);
        }
    }

    /// Wakes senders that sleep on the oldest value's slot, after another became free.
    pub(in crate::queues) fn wake_senders<W: Waiting<P>>(self, cpu: &P, wait: &W) {
        let (slot, word) = self.turn_of_senders(cpu);
        if word & PARKED != 0 {
            wait.wake_all(cpu, self.word(slot, 0));
        }
    }

    /// The slot that becomes free next if all is taken in turn, with its word: senders
    /// that wait for room wait there.
    fn turn_of_senders(&self, cpu: &P) -> (usize, u64) {
        match self.front(cpu) {
            Oldest::Value(_, slot, word) => (slot, word),
            Oldest::Empty(ticket, _) => {
                let slot = self.used_slots(cpu, ticket).1;
                // Relaxed: to wait for its change.
                (slot, cpu.load(self.word(slot, 0), Ordering::Relaxed))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use towpath_machine::{Heap, Native};

    use super::*;
    use crate::queues::{ManyHead, WordLine};
    use crate::{Alone, Policy, Wait};

    #[test]
    fn sender_rests_asleep_though_the_word_is_damaged() {
        let (cpu, head): (_, ManyHead<Native>) = (Native::with_id(0), ManyHead::in_arena(&Heap));
        let geometry = ManyToMany::<Native>::geometry::<u64>(64);
        let [ring, slots] =
            [geometry.ring_lines(), geometry.slot_lines()].map(|lines| WordLine::row(&Heap, lines));
        let queue = ManyToMany::of(&head, &ring, &slots, geometry);
        let wait = Wait { policy: Policy::Park, around: &Alone, budget: 1_000 };
        for damaged in [0, 5] {
            cpu.store(&head.taken.resting, damaged, Ordering::Relaxed);
            queue.rest(&cpu, &wait, &Turns::new(&cpu, Deadline::NEVER, 1_000)).unwrap();
            let word = cpu.load(&head.taken.resting, Ordering::Relaxed);
            assert_eq!(word, damaged | PARKED, "it has slept, and left its mark");
            queue.wake_resting(&cpu, &wait);
            assert_eq!(cpu.load(&head.taken.resting, Ordering::Relaxed), damaged, "no sender sleeps there");
        }
    }
}
