//! The directory of a world's endpoints: taking an entry, readying its receive block,
//! closing it; and what the dead left in theirs.
//!
//! **A process that dies** at any step leaves an entry whose owner is dead: it can be taken again.
//! While it is being taken over, `open` is 0 and nobody finds it.

use towpath_machine::{LINE, Ordering, OwnLine, Processor};
use towpath_shm::ParticipantId;
use towpath_sync::PARKED;

use crate::claim::Claim;
use crate::domain::{Domain, Entry, Members, Side};
use crate::error::Error;
use crate::name::Name;
use crate::outstanding::Outstanding;
use crate::packet::{CLAIMED, FREE, Header};
use crate::queue::{CLOSED, Census, TICKET, intent, tail_generation};
use crate::segment::Segment;

/// Between two looks at what somebody else has to do, in nanoseconds.
const A_MOMENT: u64 = 100_000;

/// What can be done to a domain's directory.
pub(crate) trait Directory: Domain {
    /// Whether the entry's present incarnation lives.
    fn owner_alive(&self, entry: &Entry<Self::Cpu>) -> bool {
        // Acquire: pairs with the Release when an endpoint is taken or given up.
        let owner = self.cpu().load(&entry.owner, Ordering::Acquire);
        owner != 0 && self.is_alive(ParticipantId::from_bits(owner))
    }

    /// Makes an entry of the directory ours: the one of our rank if possible.
    fn take_entry(&self, me: ParticipantId) -> Result<u16, Error> {
        let n = self.config().endpoints;
        let in_order = || (0..n).map(|i| ((me.index + i) % n) as u16);
        // Places never used before those whose last owner is gone: its messages may still be looked
        // for.
        for used in [false, true] {
            for endpoint in in_order() {
                let entry = self.entry(endpoint)?;
                // Acquire: as in `owner_alive`.
                let owner = self.cpu().load(&entry.owner, Ordering::Acquire);
                let free = if used {
                    !self.owner_alive(&entry)
                } else {
                    owner == 0 && self.cpu().load(&entry.generation, Ordering::Acquire) == 0
                };
                // AcqRel: takes over what the last owner left, and shows our name.
                let (word, ours) = (&entry.owner, me.to_bits());
                if free
                    && self
                        .cpu()
                        .compare_exchange(word, owner, ours, Ordering::AcqRel, Ordering::Relaxed)
                        .is_ok()
                {
                    return Ok(endpoint);
                }
            }
        }
        Err(Error::Resource(format!(
            "all {n} endpoints of this world are in use; make it with more (WorldConfig::endpoints)"
        )))
    }

    fn give_up_entry(&self, entry: &Entry<Self::Cpu>) {
        // Release: pairs with the Acquire of whoever takes it next.
        self.cpu().store(&entry.owner, 0, Ordering::Release);
    }

    /// Readies the receive block of an entry that we own. Returns the new generation, and
    /// the requests to the last owner that it did not finish and whose senders may not have
    /// noticed.
    fn open_entry(
        &self,
        me: u16,
        owner: ParticipantId,
        segment: &Segment<Self::Segment>,
    ) -> Result<(u64, Vec<Outstanding>), Error> {
        let (entry, cpu) = (self.entry(me)?, self.cpu());
        // Release throughout, pairing with the Acquire in `Core::peer`; the entry is ours.
        cpu.store(&entry.open, 0, Ordering::Release);
        cpu.store(&entry.signal, 0, Ordering::Release);
        self.bury(&entry);
        // Relaxed: ours.
        let last = cpu.load(&entry.generation, Ordering::Relaxed);
        let first = last == 0;
        let mut outstanding = Vec::new();
        if !first {
            self.wait_for_stragglers(me)?;
            let side = self.side(me, false)?;
            let destination = Name { endpoint: me, generation: last };
            outstanding = Outstanding::take_all(cpu, side.queue(), side.claim(), destination, |_| true);
        }
        let generation = last + 1;
        cpu.store(&entry.generation, generation, Ordering::Release);
        for reply in [false, true] {
            self.reset(&self.side(me, reply)?, first, generation);
        }
        let shared = if matches!(segment, Segment::Shared(_)) { segment.len() } else { 0 };
        cpu.store(&entry.segment_len, shared / LINE as u64 * LINE as u64, Ordering::Release);
        cpu.store(&entry.open, owner.to_bits(), Ordering::Release);
        Ok((generation, outstanding))
    }

    /// Deals with what an entry's last owner was doing elsewhere when it died.
    fn bury(&self, entry: &Entry<Self::Cpu>) {
        let cpu = self.cpu();
        let OwnLine(intents) = &entry.intents;
        for word in intents {
            // Acquire: what it did before it wrote this.
            let intent = cpu.load(word, Ordering::Acquire);
            let queue = (intent & 0xffff).wrapping_sub(1);
            if intent & intent::LOCKING == intent::LOCKING
                && queue < u64::from(self.config().endpoints) * 2
                && self.config().algorithm != crate::Algorithm::Posix
                && let Ok(side) = self.side((queue / 2) as u16, queue % 2 == 1)
                && !self.gets_free(&side)
            {
                // It may have held the queue's lock. Relaxed: whoever sees the bit only stops.
                cpu.fetch_or(&side.queue().control.tail, CLOSED, Ordering::Relaxed);
            }
            // Release: after that.
            cpu.store(word, 0, Ordering::Release);
        }
    }

    /// Whether the lock in front of a queue can be had within a while: then nobody died
    /// holding it.
    fn gets_free(&self, side: &Self::Side) -> bool {
        let around = self.around(side.queue());
        let wait = self.wait(&around);
        (0..20).any(|_| {
            side.claim().is_unlocked(self.cpu(), &wait) || {
                self.pause(A_MOMENT);
                false
            }
        })
    }

    /// Takes the intent to lock one of our queues back from the dead who did not hold the
    /// lock, so that nobody waits for them.
    fn acquit(&self, side: &Self::Side) {
        let cpu = self.cpu();
        for entry in (0..self.config().endpoints as u16).filter_map(|e| self.entry(e).ok()) {
            for word in &entry.intents.0 {
                // Acquire: what the dead did before.
                let intent = cpu.load(word, Ordering::Acquire);
                if intent::phase(intent, side.queue().id) == Some(intent::LOCKING)
                    && !self.owner_alive(&entry)
                    && self.gets_free(side)
                {
                    // Relaxed: fails if a successor has done it.
                    let _ = cpu.compare_exchange(word, intent, 0, Ordering::Relaxed, Ordering::Relaxed);
                }
            }
        }
    }

    /// Waits until no living sender is about to write into the receive block's old
    /// queues: as long as one is stopped in the middle of a send to the predecessor.
    fn wait_for_stragglers(&self, me: u16) -> Result<(), Error> {
        for reply in [false, true] {
            let side = self.side(me, reply)?;
            // SeqCst: after this no claim succeeds, and those before it are visible; pairs with
            // (C4) in `claim/locked.rs`.
            self.cpu().fetch_or(&side.queue().control.tail, CLOSED, Ordering::SeqCst);
            while self.is_written(me, &side) {
                self.pause(A_MOMENT);
            }
        }
        Ok(())
    }

    /// Whether a living sender may still write into a closed queue: it has a ticket, a
    /// packet or a block there and has not published it.
    fn is_written(&self, me: u16, side: &Self::Side) -> bool {
        let (q, cpu, census) = (side.queue(), self.cpu(), Members(self));
        // Acquire, all of them: pair with the Release of those who claim, publish and let go.
        let intended = (0..census.members())
            .any(|m| m / 2 != usize::from(me) && intent::phase(census.intent(m), q.id).is_some());
        let consumed = cpu.load(&q.control.consumed, Ordering::Acquire) & !PARKED;
        let mut published = vec![false; q.blocks.len()];
        let mut claimed = false;
        for ticket in consumed..consumed.saturating_add(q.len()) {
            let header = Header(cpu.load(&q.slot(ticket).header, Ordering::Acquire));
            claimed |= header.state() == CLAIMED
                && !self.config().algorithm.has_laps()
                && census.alive(header.source() as u16, header.lap());
            if header.has_block()
                && side.claim().is_undelivered(q, cpu, header, ticket)
                && let Some(block) = published.get_mut(header.block())
            {
                *block = true;
            }
        }
        let filled = q.blocks.iter().zip(published).any(|(block, published)| {
            let owner = cpu.load(&block.owner, Ordering::Acquire);
            owner != 0
                && !published
                && census.alive(owner as u16, (owner >> 16) as u16)
                && census.holds_block(owner as u16, q.id)
        });
        intended || claimed || filled
    }

    /// Closes an endpoint that we own.
    fn close_entry(&self, me: u16) {
        let Ok(entry) = self.entry(me) else { return };
        for reply in [false, true] {
            if let Ok(side) = self.side(me, reply) {
                // AcqRel: as above.
                self.cpu().fetch_or(&side.queue().control.tail, CLOSED, Ordering::AcqRel);
            }
        }
        // Release: pairs with the Acquire in `Core::peer` and in `owner_alive`.
        self.cpu().store(&entry.open, 0, Ordering::Release);
        self.cpu().store(&entry.owner, 0, Ordering::Release);
    }

    fn name_of_rank(&self, rank: u32) -> Option<Name> {
        let n = self.config().endpoints;
        (0..n).map(|i| ((rank + i) % n) as u16).find_map(|endpoint| {
            let (_, owner, generation) = self.opened(endpoint)?;
            (owner.index == rank && self.is_alive(owner)).then_some(Name { endpoint, generation })
        })
    }

    /// The entry, owner and generation of an endpoint, if it is open. An entry that
    /// somebody is taking over still shows its last owner's name in `open`, and is not open.
    fn opened(&self, endpoint: u16) -> Option<(Self::Entry, ParticipantId, u64)> {
        let entry = self.entry(endpoint).ok()?;
        // Acquire, all of them: pair with the Release in `open_entry`. The generation changes only
        // while `open` is 0.
        let cpu = self.cpu();
        let open = cpu.load(&entry.open, Ordering::Acquire);
        let generation = cpu.load(&entry.generation, Ordering::Acquire);
        let steady = open != 0
            && cpu.load(&entry.open, Ordering::Acquire) == open
            && cpu.load(&entry.owner, Ordering::Acquire) == open;
        steady.then(|| (entry, ParticipantId::from_bits(open), generation))
    }

    /// Empties a queue that nobody but its owner touches now, for a generation of its
    /// endpoint. Tickets go on where they were, so that nothing that a predecessor's sender
    /// remembers fits. `first`: the memory was never used and is all zero.
    ///
    /// Everything is ordered by the last store (Release), which opens the queue: senders that see
    /// the new generation in the tail see the rest.
    fn reset(&self, side: &Self::Side, first: bool, generation: u64) {
        let (q, cpu) = (side.queue(), self.cpu());
        let base = (cpu.load(&q.control.tail, Ordering::Relaxed) & TICKET).next_multiple_of(q.len());
        if !first {
            for (slot, extra) in q.slots.iter().zip(q.extras) {
                cpu.store(&slot.header, FREE, Ordering::Relaxed);
                cpu.store(&extra.valid_from, 0, Ordering::Relaxed);
            }
            for block in q.blocks {
                cpu.store(&block.owner, 0, Ordering::Relaxed);
            }
            cpu.store(&q.control.sleeping, 0, Ordering::Relaxed);
        }
        side.renew_locks(first);
        cpu.store(&q.control.consumed, base, Ordering::Relaxed);
        cpu.store(&q.control.head, base & !PARKED, Ordering::Relaxed);
        // Release: see above; pairs with the Acquire in `Core::peer` (of the entry, which follows)
        // and in the claims.
        cpu.store(&q.control.tail, base | tail_generation(generation), Ordering::Release);
    }
}

impl<D: Domain> Directory for D {}
