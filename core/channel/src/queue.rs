//! A destination queue: packets and blocks that many claim and one receives (Lumetta &
//! Culler 1998, Figure 1).
//!
//! Tail information is touched only by senders (and by the receiver when it goes to sleep or closes
//! the queue), head information is written only by the receiver, and the two circular arrays are
//! shared. How a packet is claimed is the [`Claim`] algorithm's business.

use std::sync::Arc;

use towpath_machine::{Arena, Ordering, OwnLine, Place, Processor};

use towpath_sync::PARKED;

use crate::claim::Claim;
use crate::packet::{BlockHead, Extra, Header, Slot, block_owner};
use crate::store_mode::BlockStores;

pub use crate::census::{Census, STALL, announce, read_intent, stop, write_intent};

/// Bit of the tail: the receiver sleeps; the next claimer wakes it after publishing.
pub const SLEEPING: u64 = 1 << 63;
/// Bit of the tail: the queue is closed; no sender may claim any more.
pub const CLOSED: u64 = 1 << 62;
/// Part of the tail: some tickets are void (`claim/towpath.rs`).
pub const HOLES: u64 = 1 << 61;
/// Part of the tail: the low bits of the receiving endpoint's generation, so that a
/// sender that means its predecessor notices.
pub const GENERATION: u64 = 0x1ff << 52;
/// The ticket proper: 52 bits.
pub const TICKET: u64 = (1 << 52) - 1;

/// The `valid_from` of a place whose ticket was passed over, while its message may still
/// come (`towpath`): above all tickets.
#[inline]
pub const fn hole(ticket: u64) -> u64 {
    1 << 63 | ticket
}

/// The tail's bits for a generation.
#[inline]
pub const fn tail_generation(generation: u64) -> u64 {
    generation << 52 & GENERATION
}

/// The words of a queue beside its arrays, one line each.
#[derive(Debug)]
#[repr(C)]
pub struct QueueControl<P: Processor> {
    /// Senders: the next ticket, and flags.
    pub tail: OwnLine<P::Word>,
    /// Receiver: tickets below this may be reused. Published lazily (`towpath`).
    pub head: OwnLine<P::Word>,
    /// Receiver: tickets below this were handled; exact, for survivors of its death.
    pub consumed: OwnLine<P::Word>,
    /// Receiver: 1 while it sleeps (the algorithms that keep no flag in the tail).
    pub sleeping: OwnLine<P::Word>,
    /// Senders: the next block to try.
    pub bulk_tail: OwnLine<P::Word>,
    /// Senders: the streams that they have opened ([`crate::stream`]).
    pub streams: OwnLine<P::Word>,
}

impl<P: Processor> QueueControl<P> {
    /// An empty, open queue.
    pub fn new(arena: &impl Arena<P>) -> Self {
        let line = || OwnLine(arena.word(Place::NewLine, 0));
        QueueControl {
            tail: line(),
            head: line(),
            consumed: line(),
            sleeping: line(),
            bulk_tail: line(),
            streams: line(),
        }
    }
}

/// A queue as one process sees it: where its parts are.
pub struct Queue<'a, P: Processor> {
    /// Its number in the world: two for each endpoint, the request queue's even.
    pub id: u32,
    /// The words.
    pub control: &'a QueueControl<P>,
    /// The packet queue; a power of two of them.
    pub slots: &'a [Slot<P>],
    /// Extra words of each packet.
    pub extras: &'a [Extra<P>],
    /// The bulk queue; at most 255.
    pub blocks: &'a [BlockHead<P>],
    /// The blocks' bytes, one after another.
    pub bytes: Arc<P::Bytes>,
    /// Bytes in a block.
    pub block_size: usize,
}

impl<P: Processor> Queue<'_, P> {
    /// The number of packets.
    #[inline(always)]
    pub fn len(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Returns whether it has no packets (never, in a valid layout).
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The place of a ticket.
    #[inline(always)]
    pub fn index(&self, ticket: u64) -> usize {
        ticket as usize & (self.slots.len() - 1)
    }

    /// The packet of a ticket.
    #[inline(always)]
    pub fn slot(&self, ticket: u64) -> &Slot<P> {
        &self.slots[self.index(ticket)]
    }

    /// The part of a ticket's packet that does not fit on its line.
    #[inline(always)]
    pub fn extra(&self, ticket: u64) -> &Extra<P> {
        &self.extras[self.index(ticket)]
    }

    /// The lap of a ticket: 1 to 65,535 and round again, so that a place that was never
    /// used has none of them at first.
    #[inline(always)]
    pub fn lap(&self, ticket: u64) -> u16 {
        ((ticket >> self.slots.len().trailing_zeros()) + 1) as u16
    }

    /// Offset of a block's bytes.
    #[inline(always)]
    pub fn block_at(&self, block: usize) -> usize {
        block * self.block_size
    }

    /// Shows the receiver's exact progress.
    #[inline(always)]
    pub(crate) fn show_consumed(&self, cpu: &P, head: u64) {
        // (Q3) Release: the handlers' effects come before; pairs with the Acquire (Q5) in
        // `has_handled`. Other survivors know of the receiver's end.
        cpu.store(&self.control.consumed, head, Ordering::Release);
    }

    /// Returns whether the message with this ticket was handled, if the queue still has
    /// the owner for which it was sent: to be asked afterwards.
    pub fn has_handled(&self, cpu: &P, ticket: u64) -> bool {
        // (Q5) Acquire: the handler's effects, or a later owner; pairs with the Release (Q3), and
        // with the fence of an owner before it resets the queue.
        let consumed = cpu.load(&self.control.consumed, Ordering::Acquire) & !PARKED;
        // (Q6) Acquire: a later owner; pairs with that fence. A place that was passed over has not
        // come.
        let is_hole = cpu.load(&self.extra(ticket).valid_from, Ordering::Acquire) == hole(ticket);
        ticket < consumed && !is_hole
    }

    /// Gives a block back. Only its claimer before publishing, or the receiver
    /// afterwards.
    #[inline]
    pub fn free_block(&self, cpu: &P, block: usize) {
        if let Some(head) = self.blocks.get(block) {
            // (B2) Release: the reads of the block come before; pairs with the Acquire (B1) of the
            // next claim.
            cpu.store(&head.owner, 0, Ordering::Release);
        }
    }
}

/// A sending endpoint's next step on a queue, in a word of its own that survivors read
/// after its death.
///
/// 0 if nothing. Otherwise bits 0–15: the queue's number plus one; bits 16–17: the phase; bits
/// 20–63: the ticket.
pub mod intent {
    /// State between the decision to claim and the knowledge of which ticket was claimed.
    pub const CLAIMING: u64 = 1 << 16;
    /// Holds the ticket, not yet published.
    pub const CLAIMED: u64 = 2 << 16;
    /// Wants, holds or leaves the queue's lock; the ticket is 1 while it certainly holds
    /// it.
    pub const LOCKING: u64 = 3 << 16;

    /// The word for a phase.
    #[inline(always)]
    pub const fn encode(queue: u32, phase: u64, ticket: u64) -> u64 {
        (queue as u64 + 1) & 0xffff | phase | ticket << 20
    }

    /// The phase, if the word concerns this queue.
    #[inline]
    pub const fn phase(word: u64, queue: u32) -> Option<u64> {
        if word & 0xffff == (queue as u64 + 1) & 0xffff { Some(word & 3 << 16) } else { None }
    }

    /// Returns whether the word's writer may still publish the ticket on the queue.
    #[inline]
    pub const fn may_own(word: u64, queue: u32, ticket: u64) -> bool {
        match phase(word, queue) {
            Some(CLAIMING) => true,
            Some(CLAIMED) => word >> 20 == ticket & ((1 << 44) - 1),
            _ => false,
        }
    }
}

/// A sender's knowledge of one queue, and its place in the world.
#[derive(Debug)]
pub struct Sender {
    /// The sending endpoint.
    pub endpoint: u16,
    /// Its generation.
    pub generation: u16,
    /// The generation that the receiver must have, as in the tail ([`tail_generation`]).
    pub expected: u64,
    /// The receiver's progress as last read (`towpath`).
    pub head_seen: u64,
    /// The one after the last ticket that we got.
    pub next_ticket: u64,
    /// True if no other sender came between our last two tickets (`towpath`): the next
    /// one is likely to be `next_ticket`.
    pub alone: bool,
    /// A ticket drawn whose place was not free yet (`lock-free`).
    pub pending: Option<u64>,
    /// A block's ticket whose block was not free yet (`lock-free`).
    pub pending_block: Option<u64>,
    /// The last claim in vain was one of a block (`towpath`).
    pub lacks_block: bool,
    /// Number of vain attempts at the pending ticket or block.
    pub misses: u32,
    /// Will not wait: a ticket that can't be used at once would be drawn in vain
    /// (`lock-free`).
    pub hasty: bool,
    /// The claimed ticket found the receiver asleep: wake it after publishing.
    pub must_wake: bool,
    /// Its way to write long pieces, from the first one on.
    pub stores: Option<Box<BlockStores>>,
}

impl Sender {
    /// Nothing known yet.
    pub const fn new(endpoint: u16, generation: u16, receiver_generation: u64) -> Self {
        Sender {
            endpoint,
            generation,
            expected: tail_generation(receiver_generation),
            head_seen: 0,
            next_ticket: 0,
            alone: false,
            pending: None,
            pending_block: None,
            lacks_block: false,
            misses: 0,
            hasty: false,
            must_wake: false,
            stores: None,
        }
    }

    /// Returns whether the queue with this tail takes nothing more from us: it is closed,
    /// or has another owner by now.
    #[inline(always)]
    pub const fn shut_out(&self, tail: u64) -> bool {
        (tail ^ self.expected) & (CLOSED | GENERATION) != 0
    }
}

/// Reason for which a packet or a block could not be claimed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimError {
    /// No place is free: poll, and try again.
    Full,
    /// The queue takes nothing any more: its receiver is gone, or a lock in front of it
    /// was abandoned.
    Closed,
}

/// A message at the head of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its ticket.
    pub ticket: u64,
    /// Its header, as read.
    pub header: Header,
    /// Its turn had passed already when it was published.
    pub late: bool,
}

/// A place whose turn has passed without a message: its sender may be stopped, or dead.
#[derive(Clone, Copy, Debug)]
pub struct Late {
    /// The ticket (`lock-free`: any ticket of the place).
    pub ticket: u64,
    /// Number of messages that may still come there out of turn.
    pub owed: u32,
    /// Number of members, from the first on, that are known not to own it.
    pub cleared: usize,
}

impl Late {
    /// Returns whether no member owns it. `owns`: whether a member may. A member that
    /// once did not never will: its next ticket is another one.
    pub fn is_ownerless(&mut self, members: usize, mut owns: impl FnMut(usize) -> bool) -> bool {
        while self.cleared < members && !owns(self.cleared) {
            self.cleared += 1;
        }
        self.cleared >= members
    }
}

/// The receiver's private state for one queue.
#[derive(Debug, Default)]
pub struct Receiver {
    /// The next ticket to deliver.
    pub head: u64,
    /// The head that was last published (`towpath`).
    pub published: u64,
    /// Places passed over, whose message may still come.
    pub late: Vec<Late>,
    /// Per place, the first ticket that may use it again; empty if all may (`towpath`).
    pub valid_from: Vec<u64>,
    /// The head that has been waiting for a claimed packet, and since when.
    pub stalled: Option<(u64, u64)>,
}

/// Maximum number of tickets out beyond the packets that there are, if the algorithm
/// overdraws.
const OVERDRAWN: i64 = 4096;

impl Receiver {
    /// The next message, if one has arrived. Call [`Receiver::done`] after handling it.
    #[inline(always)]
    pub fn next<P: Processor, C: Claim<P>>(&mut self, c: &C, q: &Queue<'_, P>, cpu: &P) -> Option<Arrival> {
        if !self.late.is_empty() || !self.valid_from.is_empty() {
            return self.next_carefully(c, q, cpu);
        }
        // (Q1) Acquire: pairs with the Release (Q2) of the publication in the claim algorithms.
        let header = Header(cpu.load(&q.slot(self.head).header, Ordering::Acquire));
        c.is_ready(q, header, self.head).then_some(Arrival { ticket: self.head, header, late: false })
    }

    #[cold]
    fn next_carefully<P: Processor, C: Claim<P>>(
        &mut self,
        c: &C,
        q: &Queue<'_, P>,
        cpu: &P,
    ) -> Option<Arrival> {
        self.next_from(c, q, cpu, 0, |_| false)
    }

    /// Returns the next message at a ticket or after it, for a receiver that takes
    /// messages before it has handled those that it took before.
    ///
    /// `has_taken`: whether it has taken the message of a ticket whose turn has passed. Messages
    /// are [`done`](Receiver::done) in the order in which they were taken.
    pub fn next_from<P: Processor, C: Claim<P>>(
        &mut self,
        c: &C,
        q: &Queue<'_, P>,
        cpu: &P,
        from: u64,
        has_taken: impl Fn(u64) -> bool,
    ) -> Option<Arrival> {
        self.skip_void(q);
        let end = self.head + q.len();
        let is_void =
            |ticket: &u64| self.valid_from.get(q.index(*ticket)).is_some_and(|valid| ticket < valid);
        let ticket = (from.max(self.head)..end).find(|ticket| !is_void(ticket));
        let next = ticket.and_then(|ticket| {
            // (Q1) Acquire: pairs with the Release (Q2).
            let header = Header(cpu.load(&q.slot(ticket).header, Ordering::Acquire));
            c.is_ready(q, header, ticket).then_some(Arrival { ticket, header, late: false })
        });
        // Only now the late ones: if the next message was sent after a late one by the same
        // endpoint, then the late one is visible here and goes first.
        let next_place = next.map(|next| q.index(next.ticket));
        self.find_late(c, q, cpu, next_place, has_taken).or(next)
    }

    /// Returns a message whose turn has passed, if one is there. `but`: a place whose
    /// message is in its turn now. `has_taken`: which tickets are passed over.
    fn find_late<P: Processor, C: Claim<P>>(
        &self,
        c: &C,
        q: &Queue<'_, P>,
        cpu: &P,
        but: Option<usize>,
        has_taken: impl Fn(u64) -> bool,
    ) -> Option<Arrival> {
        for late in &self.late {
            if but == Some(q.index(late.ticket)) || has_taken(late.ticket) {
                continue;
            }
            // (Q1) Acquire: pairs with the Release (Q2).
            let header = Header(cpu.load(&q.slot(late.ticket).header, Ordering::Acquire));
            if c.is_ready_late(q, header, late.ticket, self.head) {
                return Some(Arrival { ticket: late.ticket, header, late: true });
            }
        }
        None
    }

    /// Returns whether a message is there whose turn has passed.
    #[cold]
    pub fn has_late<P: Processor, C: Claim<P>>(&self, c: &C, q: &Queue<'_, P>, cpu: &P) -> bool {
        self.find_late(c, q, cpu, None, |_| false).is_some()
    }

    /// Passes over tickets that no sender will use.
    fn skip_void<P: Processor>(&mut self, q: &Queue<'_, P>) {
        while self.valid_from.get(q.index(self.head)).is_some_and(|&valid| self.head < valid) {
            self.head += 1;
        }
    }

    /// Ends the delivery: the packet may be reused, when the algorithm comes round to
    /// saying so.
    #[inline(always)]
    pub fn done<P: Processor, C: Claim<P>>(&mut self, c: &C, q: &Queue<'_, P>, cpu: &P, arrival: Arrival) {
        if arrival.late {
            return self.done_late(c, q, cpu, arrival);
        }
        self.head = arrival.ticket + 1;
        q.show_consumed(cpu, self.head);
        c.release(q, self, cpu, arrival.ticket);
    }

    #[cold]
    fn done_late<P: Processor, C: Claim<P>>(&mut self, c: &C, q: &Queue<'_, P>, cpu: &P, arrival: Arrival) {
        c.release_late(q, self, cpu, arrival.ticket);
    }

    /// Returns whether tickets were claimed that have not been delivered.
    #[inline]
    pub fn behind<P: Processor>(&self, q: &Queue<'_, P>, cpu: &P) -> bool {
        // (Q4) Acquire: pairs with the Release (T1), (F1), (C5) of the claims on the tail, so that
        // the claimer's intent is visible too.
        (1..=q.len() as i64 + OVERDRAWN).contains(&self.ahead(cpu.load(&q.control.tail, Ordering::Acquire)))
    }

    /// Number of tickets that a tail is ahead of the head.
    #[inline]
    fn ahead(&self, tail: u64) -> i64 {
        (tail & TICKET).wrapping_sub(self.head) as i64
    }

    /// Takes care of events that polls don't see: heads that don't come, places of the
    /// dead. Call it now and then while nothing arrives, and after deaths. Returns whether
    /// something was repaired or passed over.
    pub fn look_after<P: Processor, C: Claim<P>>(
        &mut self,
        c: &C,
        q: &Queue<'_, P>,
        cpu: &P,
        census: &dyn Census,
    ) -> bool {
        let mut changed = false;
        if self.next(c, q, cpu).is_some() || !self.behind(q, cpu) {
            self.stalled = None;
        } else {
            let now = cpu.now();
            let since = match self.stalled {
                Some((head, since)) if head == self.head => since,
                _ => now,
            };
            self.stalled = Some((self.head, since));
            if c.resolve_head(q, self, cpu, census, now.saturating_sub(since) >= census.patience()) {
                self.stalled = None;
                changed = true;
            }
        }
        changed | c.resolve_late(q, self, cpu, census)
    }

    /// Repairs words of the queue over which a faulty process may have written, as far as
    /// the receiver knows better; closes the queue if it doesn't. Call it now and
    /// then while nothing arrives. Returns whether it changed something.
    pub fn heal<P: Processor, C: Claim<P>>(&mut self, c: &C, q: &Queue<'_, P>, cpu: &P) -> bool {
        // Relaxed: only whether the number makes sense.
        let tail = cpu.load(&q.control.tail, Ordering::Relaxed);
        // The head passes void tickets before they are drawn.
        let len = q.len() as i64;
        let most = if c.overdraws() { len + OVERDRAWN } else { len };
        if !(-len..=most).contains(&self.ahead(tail)) && tail & CLOSED == 0 {
            // The tickets that are out are not known. Relaxed: a sender that sees the bit only
            // stops.
            cpu.fetch_or(&q.control.tail, CLOSED, Ordering::Relaxed);
            return true;
        }
        // Relaxed: our own word.
        if cpu.load(&q.control.consumed, Ordering::Relaxed) & !PARKED != self.head {
            q.show_consumed(cpu, self.head);
        }
        c.heal(q, self, cpu)
    }

    /// Frees places that the dead had claimed and not published. Call it after a death,
    /// when every published message of the dead has been delivered or is still in the queue.
    pub fn sweep<P: Processor, C: Claim<P>>(
        &mut self,
        c: &C,
        q: &Queue<'_, P>,
        cpu: &P,
        census: &dyn Census,
    ) {
        let orphan = |owner: u64| {
            let (endpoint, generation) = (owner as u16, (owner >> 16) as u16);
            owner != 0
                && (owner != block_owner(endpoint, generation)
                    || !census.alive(endpoint, generation)
                    || !census.holds_block(endpoint, q.id))
        };
        // First the suspects, then the packets: a block whose owner is dead by now, or holds none
        // by now, can't be published any more, so if no packet names it, none will. (B3) Acquire:
        // pairs with the Release (B1) of the claim, whose owner word we read, or its fence (I3).
        let suspects: Vec<usize> = (0..q.blocks.len())
            .filter(|&b| orphan(cpu.load(&q.blocks[b].owner, Ordering::Acquire)))
            .collect();
        if !suspects.is_empty() {
            // Relaxed, here and below: what the suspects' owners published is known, with their
            // deaths or by their intents (I5).
            let tail = cpu.load(&q.control.tail, Ordering::Relaxed) & TICKET;
            let mut named = vec![false; q.blocks.len()];
            let late = self.late.iter().map(|late| late.ticket);
            for ticket in (self.head..tail.min(self.head + q.len())).chain(late) {
                let header = Header(cpu.load(&q.slot(ticket).header, Ordering::Relaxed));
                if c.is_ready(q, header, ticket)
                    && header.has_block()
                    && let Some(named) = named.get_mut(header.block())
                {
                    *named = true;
                }
            }
            for block in suspects.into_iter().filter(|&b| !named[b]) {
                q.free_block(cpu, block);
            }
        }
        c.sweep_packets(q, self, cpu, census);
    }

    /// Numbers of packets and of blocks in use, for audits of an idle queue: both 0 if
    /// nothing is lost.
    pub fn in_use<P: Processor, C: Claim<P>>(&self, c: &C, q: &Queue<'_, P>, cpu: &P) -> (u64, u64) {
        // Relaxed: an audit of a queue at rest.
        let blocks = q.blocks.iter().filter(|b| cpu.load(&b.owner, Ordering::Relaxed) != 0).count() as u64;
        (c.packets_in_use(q, self, cpu), blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::Late;
    use super::intent::*;

    #[test]
    fn a_place_without_owners_is_free_for_any_number_of_members() {
        for members in [1, 127, 128, 129, 1024] {
            for owner in [0, members / 2, members - 1] {
                let mut late = Late { ticket: 5, owed: 1, cleared: 0 };
                for _ in 0..3 {
                    assert!(!late.is_ownerless(members, |m| m == owner), "{owner} of {members}");
                }
                assert!(late.is_ownerless(members, |_| false));
            }
        }
    }

    #[test]
    fn intents_name_queue_phase_and_ticket() {
        let w = encode(7, CLAIMED, 1 << 40);
        assert!(may_own(w, 7, 1 << 40) && !may_own(w, 7, 3) && !may_own(w, 6, 1 << 40));
        assert!(may_own(encode(7, CLAIMING, 0), 7, 99));
        assert_eq!(phase(encode(0, LOCKING, 0), 0), Some(LOCKING));
        assert_eq!(phase(0, 0), None);
    }
}
