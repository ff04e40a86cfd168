//! The directory of a world's endpoints: taking an entry, readying its receive block, closing it; and what the dead left in theirs.
//!
//! **A process that dies** at any step leaves an entry whose owner is dead: it can be taken again. While it is being taken over, `open` is 0 and nobody finds it.

use core::sync::atomic::Ordering;

use towpath_machine::{LINE, Native, OwnLine};
use towpath_shm::ParticipantId;
use towpath_sync::Wait;

use crate::attach::{Attached, Side};
use crate::claim::Claim;
use crate::endpoint::Around;
use crate::error::Error;
use crate::layout::Entry;
use crate::name::Name;
use crate::outstanding::Outstanding;
use crate::packet::{CLAIMED, Header};
use crate::queue::{CLOSED, Census, intent};
use crate::segment::Segment;

impl Attached {
    /// Makes an entry of the directory ours: the one of our rank if possible.
    pub(crate) fn take_entry(&self, me: ParticipantId) -> Result<u16, Error> {
        let n = self.config.endpoints;
        let in_order = || (0..n).map(|i| ((me.index + i) % n) as u16);
        // Places never used before those whose last owner is gone: its messages may still be looked for.
        for used in [false, true] {
            for endpoint in in_order() {
                let entry = self.entry(endpoint)?;
                // Acquire: as in `owner_alive`.
                let owner = entry.owner.load(Ordering::Acquire);
                let free = if used {
                    !self.owner_alive(entry)
                } else {
                    owner == 0 && entry.generation.load(Ordering::Acquire) == 0
                };
                // AcqRel: takes over what the last owner left, and shows our name.
                if free
                    && entry
                        .owner
                        .compare_exchange(owner, me.to_bits(), Ordering::AcqRel, Ordering::Relaxed)
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

    pub(crate) fn give_up_entry(&self, entry: &Entry) {
        // Release: pairs with the Acquire of whoever takes it next.
        entry.owner.store(0, Ordering::Release);
    }

    /// Readies the receive block of an entry that we own. Returns the new generation, and the requests to the last owner that it did not finish and whose
    /// senders may not have noticed.
    pub(crate) fn open_entry(
        &self,
        me: u16,
        owner: ParticipantId,
        segment: &Segment,
    ) -> Result<(u64, Vec<Outstanding>), Error> {
        let entry = self.entry(me)?;
        // Release throughout, pairing with the Acquire in `Core::peer`; the entry is ours.
        entry.open.store(0, Ordering::Release);
        self.bury(entry, me);
        let last = entry.generation.load(Ordering::Relaxed);
        let first = last == 0;
        let mut outstanding = Vec::new();
        if !first {
            self.wait_for_stragglers(me)?;
            let side = self.side(me, false)?;
            let destination = Name { endpoint: me, generation: last };
            outstanding = Outstanding::take_all(&side.queue, &side.claim, destination, |_| true);
        }
        let generation = last + 1;
        entry.generation.store(generation, Ordering::Release);
        for reply in [false, true] {
            self.side(me, reply)?.reset(first, generation);
        }
        let shared = if matches!(segment, Segment::Shared(_)) { segment.len() } else { 0 };
        entry.segment_len.store(shared / LINE as u64 * LINE as u64, Ordering::Release);
        entry.open.store(owner.to_bits(), Ordering::Release);
        Ok((generation, outstanding))
    }

    /// Deals with what an entry's last owner was doing elsewhere when it died.
    fn bury(&self, entry: &Entry, me: u16) {
        let OwnLine(intents) = &entry.intents;
        for word in intents {
            // Acquire: what it did before it wrote this.
            let intent = word.load(Ordering::Acquire);
            let queue = (intent & 0xffff).wrapping_sub(1);
            if intent & intent::LOCKING == intent::LOCKING
                && queue < u64::from(self.config.endpoints) * 2
                && self.config.algorithm != crate::Algorithm::Posix
                && let Ok(side) = self.side((queue / 2) as u16, queue % 2 == 1)
                && !self.gets_free(&side, me)
            {
                // It may have held the queue's lock. Relaxed: whoever sees the bit only stops.
                side.queue.control.tail.fetch_or(CLOSED, Ordering::Relaxed);
            }
            // Release: after that.
            word.store(0, Ordering::Release);
        }
    }

    /// Whether the lock in front of a queue can be had within a while: then nobody died holding it.
    pub(crate) fn gets_free(&self, side: &Side, me: u16) -> bool {
        let around = Around::new(self, &side.queue);
        let wait = Wait { policy: self.config.waiting, around: &around, budget: 0 };
        (0..20).any(|_| {
            side.claim.is_unlocked(&Native::with_id(me.into()), &wait) || {
                std::thread::sleep(std::time::Duration::from_micros(100));
                false
            }
        })
    }

    /// Takes the intent to lock one of our queues back from the dead who did not hold the lock, so that nobody waits for them.
    pub(crate) fn acquit(&self, me: u16, side: &Side) {
        for entry in (0..self.config.endpoints as u16).filter_map(|e| self.entry(e).ok()) {
            for word in &entry.intents.0 {
                // Acquire: what the dead did before.
                let intent = word.load(Ordering::Acquire);
                if intent::phase(intent, side.queue.id) == Some(intent::LOCKING)
                    && !self.owner_alive(entry)
                    && self.gets_free(side, me)
                {
                    // Relaxed: fails if a successor has done it.
                    let _ = word.compare_exchange(intent, 0, Ordering::Relaxed, Ordering::Relaxed);
                }
            }
        }
    }

    /// Waits until nobody is about to write into the receive block's old queues.
    fn wait_for_stragglers(&self, me: u16) -> Result<(), Error> {
        let start = std::time::Instant::now();
        for reply in [false, true] {
            let side = self.side(me, reply)?;
            // SeqCst: after this no claim succeeds, and those before it are visible; pairs with (C4) in `claim/locked.rs`.
            side.queue.control.tail.fetch_or(CLOSED, Ordering::SeqCst);
            while self.is_written(me, &side) {
                if start.elapsed().as_secs() >= 5 {
                    return Err(Error::Resource(
                        "a process has been stopped in the middle of a send to this endpoint's predecessor"
                            .into(),
                    ));
                }
                std::thread::sleep(std::time::Duration::from_micros(100));
            }
        }
        Ok(())
    }

    /// Whether a living sender may still write into a closed queue: it has a ticket, a packet or a block there and has not published it.
    fn is_written(&self, me: u16, side: &Side) -> bool {
        let q = &side.queue;
        // Acquire, all of them: pair with the Release of those who claim, publish and let go.
        let intended = (0..self.members())
            .any(|m| m / 2 != usize::from(me) && intent::phase(self.intent(m), q.id).is_some());
        let consumed = q.control.consumed.load(Ordering::Acquire) & !towpath_sync::PARKED;
        let mut published = vec![false; q.blocks.len()];
        let mut claimed = false;
        for ticket in consumed..consumed.saturating_add(q.len()) {
            let header = Header(q.slot(ticket).header.load(Ordering::Acquire));
            claimed |= header.state() == CLAIMED
                && !self.config.algorithm.has_laps()
                && self.alive(header.source(), header.lap());
            if header.has_block()
                && side.claim.is_undelivered(q, &Native::with_id(me.into()), header, ticket)
                && let Some(block) = published.get_mut(header.block())
            {
                *block = true;
            }
        }
        let filled = q.blocks.iter().zip(published).any(|(block, published)| {
            let owner = block.owner.load(Ordering::Acquire);
            owner != 0
                && !published
                && self.alive(owner as u16, (owner >> 16) as u16)
                && self.holds_block(owner as u16, q.id)
        });
        intended || claimed || filled
    }

    /// Closes an endpoint that we own.
    pub(crate) fn close_entry(&self, me: u16) {
        let Ok(entry) = self.entry(me) else { return };
        for reply in [false, true] {
            if let Ok(side) = self.side(me, reply) {
                // AcqRel: as above.
                side.queue.control.tail.fetch_or(CLOSED, Ordering::AcqRel);
            }
        }
        // Release: pairs with the Acquire in `Core::peer` and in `owner_alive`.
        entry.open.store(0, Ordering::Release);
        entry.owner.store(0, Ordering::Release);
    }

    pub(crate) fn name_of_rank(&self, rank: u32) -> Option<Name> {
        let n = self.config.endpoints;
        (0..n).map(|i| ((rank + i) % n) as u16).find_map(|endpoint| {
            let (_, owner, generation) = self.opened(endpoint)?;
            (owner.index == rank && self.world.is_alive(owner)).then_some(Name { endpoint, generation })
        })
    }

    /// The entry, owner and generation of an endpoint, if it is open. An entry that somebody is taking over still shows its last owner's name in
    /// `open`, and is not open.
    pub(crate) fn opened(&self, endpoint: u16) -> Option<(&'static Entry, ParticipantId, u64)> {
        let entry = self.entry(endpoint).ok()?;
        // Acquire, all of them: pair with the Release in `open_entry`. The generation changes only while `open` is 0.
        let open = entry.open.load(Ordering::Acquire);
        let generation = entry.generation.load(Ordering::Acquire);
        let steady = open != 0
            && entry.open.load(Ordering::Acquire) == open
            && entry.owner.load(Ordering::Acquire) == open;
        steady.then(|| (entry, ParticipantId::from_bits(open), generation))
    }
}
