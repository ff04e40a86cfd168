//! Directory of a domain's endpoints: takes, readies and closes entries, and repairs
//! those of the dead.
//!
//! **A process that dies** at any step leaves an entry whose owner is dead: it can be taken again.
//! While it is being taken over, `open` is 0 and no sender finds it. Until the successor shows its
//! generation, senders copy their requests out of the queue; by then it has sent all back. Only
//! those for which their senders' reply queues have no space die with it.

use core::cell::RefCell;

use towpath_channel::doorbell;
use towpath_machine::{LINE, Ordering, Processor};
use towpath_shm::ParticipantId;
use towpath_sync::PARKED;

use crate::census::{DirectoryCensus, owner_lives};
use crate::claim::Claim;
use crate::domain::{Entry, Hooks, Membership, Side};
use crate::entry::COPYING;
use crate::error::Error;
use crate::message::Direction;
use crate::name::Name;
use crate::outstanding::Outstanding;
use crate::packet::{CLAIMED, FREE, Header, TAKEN, from_source_code};
use crate::path::{Failure, SendPath, WhileFull};
use crate::queue::{
    CLOSED, Census, GENERATION, Sender, TICKET, intent, read_intent, stop, tail_generation, write_intent,
};
use crate::segment::Segment;

/// Time between two looks at the progress of another process, in nanoseconds.
const A_MOMENT: u64 = 100_000;

/// Sender that tries once, without an endpoint that it could poll.
#[derive(Clone, Copy)]
struct OneAttempt;

impl WhileFull for OneAttempt {
    fn is_gone(&self) -> bool {
        false
    }
    fn poll(&self) -> usize {
        0
    }
    fn pause(&self, _round: u32) {}
    fn look_around(&self) -> bool {
        false
    }
}

/// Operations on a domain's directory.
pub(crate) trait Directory: Membership + Hooks {
    /// Takes an entry of the directory for a participant: one of its rank's if possible,
    /// which are as far from each other as the world has ranks.
    fn take_entry(&self, me: ParticipantId) -> Result<u16, Error> {
        let n = self.config().endpoints;
        let of_rank = || (me.index..n).step_by(self.size().max(1) as usize);
        // The last ones first: the first of each rank stay for these.
        let in_order = || of_rank().chain((0..n).rev()).map(|entry| entry as u16);
        // Places never used before those whose last owner is gone: its messages may still be looked
        // for.
        for used in [false, true] {
            for endpoint in in_order().filter(|&endpoint| self.is_local(endpoint)) {
                let entry = self.entry(endpoint)?;
                // Relaxed, both: guesses. (E2) confirms the owner, and acquires what it has left;
                // nothing hangs on the generation but the order in which entries are tried.
                let owner = self.cpu().load(&entry.owner, Ordering::Relaxed);
                let free = if used {
                    !owner_lives(self, &entry)
                } else {
                    owner == 0 && self.cpu().load(&entry.generation, Ordering::Relaxed) == 0
                };
                if free && self.take_from(&entry, owner, me) {
                    return Ok(endpoint);
                }
            }
        }
        Err(Error::Resource(format!(
            "all {n} endpoints of this world are in use; make it with more (`towpath run --endpoints N` for each process, or WorldConfig::endpoints)"
        )))
    }

    /// Takes an entry from its last owner, and returns whether no other process did.
    fn take_from(&self, entry: &Entry<Self::Cpu>, last: u64, me: ParticipantId) -> bool {
        // (E2) AcqRel: takes over the state that the last owner left (E3), and shows the new owner;
        // pairs with (E1).
        let (word, ours) = (&entry.owner, me.to_bits());
        self.cpu().compare_exchange(word, last, ours, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Gives up an entry that is not open.
    fn give_up_entry(&self, entry: &Entry<Self::Cpu>) {
        // (E3) Release: pairs with the Acquire (E1), (E2) of the next owner.
        self.cpu().store(&entry.owner, 0, Ordering::Release);
    }

    /// Readies the receive block of an entry that the caller owns. Returns the new
    /// generation, and the requests to the last owner that it did not finish and that could not be
    /// sent back yet for want of space.
    fn open_entry(
        &self,
        me: u16,
        owner: ParticipantId,
        segment: &Segment<Self::Segment>,
    ) -> Result<(u64, Vec<Outstanding>), Error> {
        let last = self.begin_opening(me)?;
        let name = Name { endpoint: me, generation: last + 1 };
        let await_stragglers = || -> Result<(), Error> {
            while last > 0 && self.has_stragglers(me)? {
                self.pause(A_MOMENT);
            }
            Ok(())
        };
        await_stragglers()?;
        let owed = self.give_back(me, last)?;
        self.show_generation(name)?;
        await_stragglers()?;
        let shared = if matches!(segment, Segment::Shared(_)) { segment.len() } else { 0 };
        self.finish_opening(name, owner, last == 0, shared)?;
        Ok((name.generation, owed))
    }

    /// Opens the entry of an endpoint on another host, under its name there.
    ///
    /// `None`: a sender is in the middle of a send to its predecessor, or copies its requests out
    /// of the queue; to be tried again.
    fn open_proxy_entry(&self, name: Name, owner: ParticipantId) -> Result<Option<Vec<Outstanding>>, Error> {
        let entry = self.entry(name.endpoint)?;
        // Relaxed: our own, or a guess, which (E2) confirms.
        let last_owner = self.cpu().load(&entry.owner, Ordering::Relaxed);
        if last_owner != owner.to_bits()
            && (owner_lives(self, &entry) || !self.take_from(&entry, last_owner, owner))
        {
            let endpoint = name.endpoint;
            return Err(Error::InUse(format!("endpoint {endpoint} belongs to a rank that lives")));
        }
        let last = self.begin_opening(name.endpoint)?;
        if last > 0 && self.has_stragglers(name.endpoint)? {
            return Ok(None);
        }
        let owed = self.give_back(name.endpoint, last)?;
        self.show_generation(name)?;
        if last > 0 && self.has_stragglers(name.endpoint)? {
            return Ok(None);
        }
        self.finish_opening(name, owner, last == 0, 0)?;
        Ok(Some(owed))
    }

    /// Begins to ready an entry that the caller owns. Returns its last generation, 0 if
    /// there was none.
    fn begin_opening(&self, me: u16) -> Result<u64, Error> {
        let (entry, cpu) = (self.entry(me)?, self.cpu());
        // (E4) Release: the entry is the caller's; pairs with the Acquire (E6) of senders.
        cpu.store(&entry.open, 0, Ordering::Release);
        // Relaxed, both: a predecessor's. A sender that still sees its address interrupts in vain;
        // the other is read only after the owner has arrived at a barrier.
        cpu.store(&entry.signal, 0, Ordering::Relaxed);
        cpu.store(&entry.own.polls_at_barrier, 0, Ordering::Relaxed);
        self.bury(&entry);
        // Relaxed: the caller's own.
        Ok(cpu.load(&entry.generation, Ordering::Relaxed))
    }

    /// Sends back the unfinished requests in a queue which the caller resets next.
    /// `last`: the entry's generation. Returns those for which there is no space.
    ///
    /// The queue belongs to that generation, or to an earlier one, if the successor that showed the
    /// generation has died.
    fn give_back(&self, me: u16, last: u64) -> Result<Vec<Outstanding>, Error> {
        if last == 0 {
            return Ok(Vec::new());
        }
        let side = self.side(me, Direction::Request)?;
        let (q, cpu) = (side.queue(), self.cpu());
        // Relaxed: a predecessor's, known since the entry was taken (E2).
        let shown = cpu.load(&q.control.tail, Ordering::Relaxed) & GENERATION;
        let passed = tail_generation(last).wrapping_sub(shown) & GENERATION;
        let generation = last.saturating_sub(passed >> TICKET.trailing_ones());
        let predecessor = Name { endpoint: me, generation };
        // The gateways of other hosts know which of their ranks' requests were not finished.
        let mine = |source| self.is_local(from_source_code(source).0);
        let mut owed = Outstanding::find_all(cpu, q, side.claim(), predecessor, mine);
        owed.retain(|back| !self.send_back_as(Name { endpoint: me, generation: last }, back));
        Ok(owed)
    }

    /// Sends a request back, from an entry of the caller's that is not open. Returns
    /// `false` if there is no space.
    fn send_back_as(&self, from: Name, back: &Outstanding) -> bool {
        let (endpoint, low) = from_source_code(back.source);
        let (Some((to, owner, generation)), Ok(side), Ok(entry)) =
            (self.opened(endpoint), self.side(endpoint, Direction::Reply), self.entry(from.endpoint))
        else {
            return true;
        };
        if generation & 0xff != low {
            // Its sender is gone.
            return true;
        }
        let around = self.around(side.queue());
        // Those for reply queues.
        let [_, intent, _, block_intent, _] = &entry.own.intents;
        let route = SendPath {
            queue: side.queue(),
            claim: side.claim(),
            sender: &RefCell::new(Sender::new(from.endpoint, from.generation as u16, generation)),
            intent,
            block_intent,
        };
        let content = back.content(from.code());
        // Before the claim by its Release: the packet bears the name of the last owner, which may
        // have left one there, too.
        write_intent(self.cpu(), block_intent, u64::from(side.queue().id) + 1);
        let sent = route.send(self.cpu(), &content, None, false, &self.wait(&around), OneAttempt);
        write_intent(self.cpu(), block_intent, 0);
        if sent == Ok(true) {
            self.wake_owner(&to, owner, true);
        }
        sent != Err(Failure::NotSent)
    }

    /// Wakes the process that owns an endpoint. `ask`: as in [`Hooks::interrupt`].
    fn wake_owner(&self, entry: &Entry<Self::Cpu>, owner: ParticipantId, ask: bool) {
        if let Some(doorbell) = self.doorbell(owner.index) {
            doorbell::wake(self.cpu(), doorbell);
        }
        // Relaxed: seen, if the queue was seen to be asleep.
        if self.cpu().load(&entry.signal, Ordering::Relaxed) != 0 {
            // Relaxed: one of the senders that see it takes it. It says all by itself.
            let address = self.cpu().swap(&entry.signal, 0, Ordering::Relaxed);
            if address != 0 {
                self.interrupt(owner, address, ask);
            }
        }
    }

    /// Shows the new generation of an entry that the caller owns: from now on no sender
    /// copies its requests out of the queue.
    fn show_generation(&self, name: Name) -> Result<(), Error> {
        // (E4) Release: after what was sent back; pairs with the Acquire (E6) of senders.
        self.cpu().store(&self.entry(name.endpoint)?.generation, name.generation, Ordering::Release);
        Ok(())
    }

    /// Resets the queues of an entry that the caller owns, and opens it. `first`: it was
    /// never open. `shared`: length of its shared segment.
    fn finish_opening(
        &self,
        name: Name,
        owner: ParticipantId,
        first: bool,
        shared: u64,
    ) -> Result<(), Error> {
        let (entry, cpu) = (self.entry(name.endpoint)?, self.cpu());
        for direction in [Direction::Request, Direction::Reply] {
            self.reset(&self.side(name.endpoint, direction)?, first, name.generation);
        }
        // Relaxed: read by senders that have found the entry open. (E4) Release: the entry is the
        // caller's; pairs with the Acquire (E6) of senders.
        cpu.store(&entry.segment_len, shared / LINE as u64 * LINE as u64, Ordering::Relaxed);
        cpu.store(&entry.open, owner.to_bits(), Ordering::Release);
        self.tell_gateway();
        Ok(())
    }

    /// Takes back the intents of an entry's last owner, and closes queues whose lock it
    /// may have held when it died.
    fn bury(&self, entry: &Entry<Self::Cpu>) {
        let cpu = self.cpu();
        for word in &entry.own.intents {
            // Relaxed: the last owner's, known since the entry was taken (E2).
            let intent = cpu.load(word, Ordering::Relaxed);
            let queue = (intent & 0xffff).wrapping_sub(1);
            if intent & intent::LOCKING == intent::LOCKING
                && queue < u64::from(self.config().endpoints) * 2
                && self.config().algorithm != crate::Algorithm::Posix
                && let Ok(side) = self.side((queue / 2) as u16, direction_of(queue))
                && !self.gets_free(&side)
            {
                // It may have held the queue's lock. Relaxed: a sender that sees the bit only
                // stops.
                cpu.fetch_or(&side.queue().control.tail, CLOSED, Ordering::Relaxed);
            }
            write_intent(cpu, word, 0);
        }
    }

    /// Returns whether the lock in front of a queue can be had within a while: then no
    /// process died holding it.
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

    /// Takes intents to lock a queue back from the dead that did not hold the lock, so
    /// that no sender waits for them.
    fn acquit(&self, side: &Self::Side) {
        let cpu = self.cpu();
        for entry in (0..self.config().endpoints as u16).filter_map(|e| self.entry(e).ok()) {
            for word in &entry.own.intents {
                let intent = read_intent(cpu, word);
                if intent::phase(intent, side.queue().id) == Some(intent::LOCKING)
                    && !owner_lives(self, &entry)
                    && self.gets_free(side)
                {
                    // Relaxed: fails if a successor has done it.
                    let _ = cpu.compare_exchange(word, intent, 0, Ordering::Relaxed, Ordering::Relaxed);
                }
            }
        }
    }

    /// Closes a receive block's old queues. Returns whether a living sender may still
    /// write into them, in the middle of a send to the predecessor, or copies its requests out of
    /// them.
    fn has_stragglers(&self, me: u16) -> Result<bool, Error> {
        for direction in [Direction::Request, Direction::Reply] {
            let side = self.side(me, direction)?;
            // After this no claim succeeds; those before it are visible.
            stop(self.cpu(), &side.queue().control.tail, CLOSED);
            let queue = side.queue().id;
            if self.is_copied(queue) {
                return Ok(true);
            }
            let is_intended = self.is_intended(me, queue);
            let (is_claimed, published) = self.look_at_packets(me, &side);
            if self.take_blocks(&side, &published) || is_claimed || is_intended {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether a living sender copies its requests out of a queue.
    fn is_copied(&self, queue: u32) -> bool {
        let census = DirectoryCensus(self);
        (0..self.config().endpoints as u16)
            .any(|e| census.load_intent(e, COPYING) == u64::from(queue) + 1 && census.owner_lives(e))
    }

    /// Returns whether a sender, other than the endpoint itself, intends to send into a
    /// queue.
    fn is_intended(&self, me: u16, queue: u32) -> bool {
        let census = DirectoryCensus(self);
        (0..census.members())
            .any(|m| m / 2 != usize::from(me) && intent::phase(census.intent(m), queue).is_some())
    }

    /// Returns whether a living sender has claimed a packet of a closed queue and not yet
    /// published it, and which blocks published packets have.
    fn look_at_packets(&self, me: u16, side: &Self::Side) -> (bool, Vec<bool>) {
        let (q, cpu, census) = (side.queue(), self.cpu(), DirectoryCensus(self));
        // Relaxed: the last owner's, known since the entry was taken (E2).
        let consumed = cpu.load(&q.control.consumed, Ordering::Relaxed) & !PARKED;
        let mut published = vec![false; q.blocks.len()];
        let mut claimed = false;
        for ticket in consumed..consumed.saturating_add(q.len()) {
            // Relaxed: stragglers are looked for twice in both queues, and the last fence (I4)
            // acquires what senders have published (Q2). A claimer was there before it was noted in
            // the tail or in its intent.
            let header = Header(cpu.load(&q.slot(ticket).header, Ordering::Relaxed));
            // A claim of the endpoint itself is a dead owner's, though it bears the name that the
            // successor has until it shows its own; so is one of an endpoint that is being taken
            // over, unless its successor sends something back: the two would wait for each other.
            let claimer = header.source() as u16;
            claimed |= header.state() == CLAIMED
                && !self.config().algorithm.has_laps()
                && claimer != me
                && census.alive(claimer, header.lap())
                && (self.is_shown(claimer) || census.holds_block(claimer, q.id));
            if header.has_block()
                && side.claim().undelivered(q, cpu, header, ticket).is_some()
                && let Some(block) = published.get_mut(header.block())
            {
                *block = true;
            }
        }
        (claimed, published)
    }

    /// Takes the blocks of a closed queue that no living sender has claimed and not yet
    /// published. Returns whether there is another one.
    ///
    /// A sender claims a block before it sees that the queue is closed: so they stay taken until
    /// the queue is reset.
    fn take_blocks(&self, side: &Self::Side, published: &[bool]) -> bool {
        let (q, cpu, census) = (side.queue(), self.cpu(), DirectoryCensus(self));
        let is_held = |owner: u64| {
            census.alive(owner as u16, (owner >> 16) as u16) && census.holds_block(owner as u16, q.id)
        };
        let mut filled = false;
        for (block, &published) in q.blocks.iter().zip(published) {
            // (E5) Acquire, both: the last claimer has done with the block; and a sender that has
            // claimed it since the last look is not taken for its endpoint's predecessor. This
            // pairs with the Release, (B2) and (B1).
            let take =
                |from| cpu.compare_exchange(&block.owner, from, TAKEN, Ordering::Acquire, Ordering::Acquire);
            filled |= match take(0) {
                Ok(_) | Err(TAKEN) => false,
                Err(owner) => !published && is_held(owner) || take(owner).is_err(),
            };
        }
        filled
    }

    /// Returns whether an endpoint, known by a packet that it has claimed, is open.
    fn is_shown(&self, endpoint: u16) -> bool {
        // Relaxed: it was open before it claimed the packet.
        self.entry(endpoint).is_ok_and(|entry| self.cpu().load(&entry.open, Ordering::Relaxed) != 0)
    }

    /// Closes an endpoint of the caller's.
    fn close_entry(&self, me: u16) {
        let Ok(entry) = self.entry(me) else { return };
        for direction in [Direction::Request, Direction::Reply] {
            if let Ok(side) = self.side(me, direction) {
                // Relaxed: a sender that sees the bit only stops; (E3) hands over.
                self.cpu().fetch_or(&side.queue().control.tail, CLOSED, Ordering::Relaxed);
            }
        }
        // (E3) Release: pairs with the Acquire (E1), (E6) of senders.
        self.cpu().store(&entry.open, 0, Ordering::Release);
        self.give_up_entry(&entry);
        self.tell_gateway();
    }

    /// Returns the name of a rank's first open endpoint.
    fn name_of_rank(&self, rank: u32) -> Option<Name> {
        let n = self.config().endpoints;
        (0..n).map(|i| ((rank + i) % n) as u16).find_map(|endpoint| {
            let (_, owner, generation) = self.opened(endpoint)?;
            (owner.index == rank && self.is_alive(owner)).then_some(Name { endpoint, generation })
        })
    }

    /// Returns the name of the first open endpoint of a rank whose death was not noted,
    /// without a call of the system.
    fn name_unless_dead(&self, rank: u32) -> Option<Name> {
        let n = self.config().endpoints;
        (0..n).map(|i| ((rank + i) % n) as u16).find_map(|endpoint| {
            let (_, owner, generation) = self.opened(endpoint)?;
            (owner.index == rank && !self.has_died(rank)).then_some(Name { endpoint, generation })
        })
    }

    /// Returns the entry, owner and generation of an endpoint, if it is open. An entry
    /// that is being taken over still shows its last owner in `open`, and is not open.
    fn opened(&self, endpoint: u16) -> Option<(Self::Entry, ParticipantId, u64)> {
        let entry = self.entry(endpoint).ok()?;
        // (E6) Acquire, both: each pairs with a Release (E4). The generation changes only while
        // `open` is 0. Relaxed, afterwards: a later generation was seen with the steps before it,
        // in which the entry was taken and closed.
        let cpu = self.cpu();
        let open = cpu.load(&entry.open, Ordering::Acquire);
        if open == 0 {
            return None;
        }
        let generation = cpu.load(&entry.generation, Ordering::Acquire);
        let steady = cpu.load(&entry.open, Ordering::Relaxed) == open
            && cpu.load(&entry.owner, Ordering::Relaxed) == open;
        steady.then(|| (entry, ParticipantId::from_bits(open), generation))
    }

    /// Empties a queue that only its owner touches now, for a generation of its endpoint.
    /// Tickets go on where they were, so that a predecessor's sender remembers none that fits.
    /// `first`: the memory was never used and is all zero.
    ///
    /// Relaxed, all but the blocks: the entry is opened afterwards (E4), and no sender of the new
    /// generation comes before it has seen that (E6); its predecessor's senders stop at the tail
    /// either way, after they have claimed a block.
    fn reset(&self, side: &Self::Side, first: bool, generation: u64) {
        let (q, cpu) = (side.queue(), self.cpu());
        let base = (cpu.load(&q.control.tail, Ordering::Relaxed) & TICKET).next_multiple_of(q.len());
        if !first {
            for (slot, extra) in q.slots.iter().zip(q.extras) {
                cpu.store(&slot.header, FREE, Ordering::Relaxed);
                cpu.store(&extra.valid_from, 0, Ordering::Relaxed);
            }
            (0..q.blocks.len()).for_each(|block| q.free_block(cpu, block));
            cpu.store(&q.control.sleeping, 0, Ordering::Relaxed);
            // The streams themselves belong to their senders.
            cpu.store(&q.control.streams, 0, Ordering::Relaxed);
        }
        side.renew_locks(first);
        cpu.store(&q.control.consumed, base, Ordering::Relaxed);
        cpu.store(&q.control.head, base & !PARKED, Ordering::Relaxed);
        cpu.store(&q.control.tail, base | tail_generation(generation), Ordering::Relaxed);
    }
}

impl<D: Membership + Hooks> Directory for D {}

/// Returns the direction of a queue, by its number.
fn direction_of(queue: u64) -> Direction {
    Direction::of(queue % 2 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, Endpoint, WorldConfig};

    #[test]
    fn only_claims_of_living_others_hold_a_successor_up() {
        let config = WorldConfig { algorithm: Algorithm::Ticket, ..WorldConfig::new(2) };
        let world = towpath_shm::World::create(&config.spec(None)).unwrap();
        world.enter(None).unwrap();
        let [one, other] = [(); 2].map(|()| Endpoint::new(&world).unwrap());
        let core = &one.core;
        let is_held_up_by = |name: Name| {
            let claimed = Header::claimed(name.endpoint, name.generation as u16);
            core.cpu().store(&core.request.side.queue().slot(0).header, claimed.0, Ordering::Relaxed);
            core.domain.has_stragglers(core.name.endpoint).unwrap()
        };
        assert!(is_held_up_by(other.core.name), "it will publish");
        assert!(!is_held_up_by(core.name), "it died before it had published, and this is its successor");
        let entry = &other.core.entry;
        let open = core.cpu().swap(&entry.open, 0, Ordering::Relaxed);
        assert!(!is_held_up_by(other.core.name), "it died, and its successor may wait for this one");
        let queue = core.request.side.queue().id;
        write_intent(core.cpu(), &entry.own.intents[3], u64::from(queue) + 1);
        assert!(is_held_up_by(other.core.name), "its successor sends something back");
        write_intent(core.cpu(), &entry.own.intents[3], 0);
        core.cpu().store(&entry.open, open, Ordering::Relaxed);
        let predecessor = Name { generation: 0, ..other.core.name };
        assert!(!is_held_up_by(predecessor), "it is dead");
    }
}
