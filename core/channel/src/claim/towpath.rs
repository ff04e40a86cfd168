//! `towpath`: our own claim. One compare-and-swap gives a ticket; the ticket's lap in the
//! header is the hand-shake.
//!
//! **Source.** Ours. It keeps of the paper's lock-free algorithm (Lumetta & Culler 1998, §3.2) the
//! separation of assigning a packet from filling it, and needs one synchronisation primitive where
//! that needs two: a place is free because the receiver's published progress says so (read rarely,
//! and cached), not because a second compare-and-swap finds it so. A sequence per place is as in
//! Vyukov's bounded queue.
//!
//! **Progress.** Claiming is lock-free while the queue is not full. Receiving is wait-free; a
//! message is delivered in the order of tickets unless its sender stops between claiming and
//! publishing.
//!
//! **Fields.** `tail`: senders by compare-and-swap; the receiver sets [`SLEEPING`], [`HOLES`],
//! [`CLOSED`]. `head`: the receiver, every eighth of the ring or when idle; senders read it when
//! their copy says full, and mark it when they park. Slot: its ticket's owner until the header is
//! published, then the receiver. `valid_from`: the receiver.
//!
//! **A sender that stops or dies.** Its intent word says on which queue it is claiming (before the
//! ticket), then which ticket it holds.
//! * Before the compare-and-swap on the tail: nothing happened.
//! * Holding a ticket, not published: after [`STALL`](crate::queue::STALL) the receiver passes over
//!   the place: it makes a *hole* of it. Later tickets of that place are void (their senders see
//!   [`HOLES`] in the tail they replaced, read `valid_from`, and take another ticket), so the
//!   others go on without limit. If the stopped sender publishes after all, its message is
//!   delivered then, before any message that it sent later. Once every living endpoint is known not
//!   to own the ticket, the place returns to use.
//! * After publishing: the message is delivered like any other.
//! * Between publishing and waking the receiver: the receiver's sleep is bounded, so the message is
//!   late, not lost.
//!
//! **Memory.** No line beyond the queue's own.
//!
//! **Don't use it** where the tail must be strictly fair under heavy contention on many processors:
//! a compare-and-swap can fail again and again.

use towpath_machine::{Ordering, Prefetch, Processor};
use towpath_sync::{PARKED, WaitForSpace};

use super::Claim;
use super::locked::back_off_and_poll;
use crate::packet::{Header, READY, READY_BULK, block_owner};
use crate::queue::{
    Census, ClaimError, HOLES, Late, Queue, Receiver, SLEEPING, Sender, TICKET, hole, intent, write_intent,
};

/// The algorithm.
#[derive(Clone, Copy, Debug)]
pub struct Towpath;

/// The receiver publishes its progress this many times in a lap.
const PUBLICATIONS: u64 = 8;
/// Number of places ahead for which a sender asks for ownership of the line.
const AHEAD: u64 = 4;

impl<P: Processor + Prefetch> Claim<P> for Towpath {
    #[inline(always)]
    fn claim<W: WaitForSpace<P>>(
        &self,
        q: &Queue<'_, P>,
        sender: &mut Sender,
        cpu: &P,
        _wait: &W,
        intent: &P::Word,
    ) -> Result<u64, ClaimError> {
        loop {
            // Relaxed: only a guess, which (T1) confirms.
            let tail = cpu.load(&q.control.tail, Ordering::Relaxed);
            let ticket = tail & TICKET;
            if sender.shut_out(tail) {
                return Err(ClaimError::Closed);
            }
            if beyond(ticket, sender.head_seen, q.len()) {
                // (T3) Acquire: the receiver's reads of the place come before our writes.
                // It pairs with the Release (T4) in `flush`.
                sender.head_seen = cpu.load(&q.control.head, Ordering::Acquire) & !PARKED;
                if beyond(ticket, sender.head_seen, q.len()) {
                    sender.lacks_block = false;
                    return Err(ClaimError::Full);
                }
            }
            // The line is on its way while we claim: a receiver that polls has a copy of it.
            cpu.prefetch_exclusive(&q.slot(ticket).header);
            // Before the tail by (T1).
            write_intent(cpu, intent, intent::encode(q.id, intent::CLAIMING, 0));
            // (T1) Release: a receiver that sees the ticket taken sees our intent; pairs with the
            // Acquire in `Receiver::behind`. Acquire: what we need to wake a receiver that sleeps;
            // pairs with (T8) in `fall_asleep`.
            let claimed = cpu.compare_exchange(
                &q.control.tail,
                tail,
                (tail & !SLEEPING) + 1,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if claimed.is_err() {
                // We own nothing.
                write_intent(cpu, intent, 0);
                continue;
            }
            write_intent(cpu, intent, intent::encode(q.id, intent::CLAIMED, ticket));
            if tail & (SLEEPING | HOLES) != 0 {
                sender.must_wake |= tail & SLEEPING != 0;
                // Relaxed: that the place's last ticket was passed over came before the head that
                // we have seen (T3); and nothing is read behind it.
                if tail & HOLES != 0 && ticket < cpu.load(&q.extra(ticket).valid_from, Ordering::Relaxed) {
                    // Void: the receiver knows that too.
                    write_intent(cpu, intent, 0);
                    continue;
                }
            }
            cpu.prefetch_exclusive(&q.slot(ticket + AHEAD).header);
            sender.alone = ticket == sender.next_ticket;
            sender.next_ticket = ticket + 1;
            return Ok(ticket);
        }
    }

    #[inline(always)]
    fn anticipate(&self, q: &Queue<'_, P>, cpu: &P, ticket: u64) {
        cpu.prefetch_exclusive(&q.slot(ticket).header);
    }

    fn claim_block<W: WaitForSpace<P>>(
        &self,
        q: &Queue<'_, P>,
        sender: &mut Sender,
        cpu: &P,
        _wait: &W,
        _intent: &P::Word,
    ) -> Result<usize, ClaimError> {
        let me = block_owner(sender.endpoint, sender.generation);
        // Relaxed: a hint where to begin; the claim itself is (B1).
        let start = cpu.fetch_add(&q.control.bulk_tail, 1, Ordering::Relaxed);
        for i in 0..q.blocks.len() as u64 {
            let block = (start.wrapping_add(i) % q.blocks.len() as u64) as usize;
            let owner = &q.blocks[block].owner;
            // Relaxed: a guess.
            if cpu.load(owner, Ordering::Relaxed) != 0 {
                continue;
            }
            // (B1) Acquire: the receiver has read what was there; pairs with the Release (B2) in
            // `free_block`. Release: the sweep that sees our name sees our intent; pairs with the
            // Acquire (B3) there.
            if cpu.compare_exchange(owner, 0, me, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                // A long transfer comes back for the next one as soon as this one is filled.
                cpu.prefetch_exclusive(&q.blocks[(block + 1) % q.blocks.len()].owner);
                return Ok(block);
            }
        }
        // Relaxed: a closed queue stays closed.
        if sender.shut_out(cpu.load(&q.control.tail, Ordering::Relaxed)) {
            return Err(ClaimError::Closed);
        }
        sender.lacks_block = true;
        Err(ClaimError::Full)
    }

    #[inline(always)]
    fn publish(
        &self,
        q: &Queue<'_, P>,
        sender: &mut Sender,
        cpu: &P,
        _parks: bool,
        intent: &P::Word,
        ticket: u64,
        header: Header,
    ) -> bool {
        // (Q2) Release: the packet's contents come before; pairs with the Acquire (Q1) in
        // `Receiver::next`.
        cpu.store(&q.slot(ticket).header, header.with_lap(q.lap(ticket)).0, Ordering::Release);
        // A receiver that sees that we own nothing sees the publication.
        write_intent(cpu, intent, 0);
        core::mem::take(&mut sender.must_wake)
    }

    #[inline(always)]
    fn is_ready(&self, q: &Queue<'_, P>, header: Header, ticket: u64) -> bool {
        header.lap() == q.lap(ticket) && (header.state() == READY || header.state() == READY_BULK)
    }

    /// A delivered packet keeps its header: the receiver's exact progress decides, and
    /// the holes that it left behind. Of a place with a hole only that one's message can be there;
    /// of one that was given back, only that of the first valid ticket: the progress is not shown
    /// when the head passes places without a delivery, and may be a lap behind.
    fn undelivered(&self, q: &Queue<'_, P>, cpu: &P, header: Header, ticket: u64) -> Option<u64> {
        // Relaxed: the receiver's end is known, and with it all its steps.
        let valid = cpu.load(&q.extra(ticket).valid_from, Ordering::Relaxed);
        let ticket = if is_hole(valid) { valid & TICKET } else { ticket.max(valid) };
        self.is_ready(q, header, ticket).then_some(ticket)
    }

    #[inline(always)]
    fn release(&self, _q: &Queue<'_, P>, _receiver: &mut Receiver, _cpu: &P, _ticket: u64) {}

    fn release_late(&self, q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P, ticket: u64) {
        receiver.late.retain(|late| late.ticket != ticket);
        close_hole(q, receiver, cpu, ticket);
        // After the hole is closed, so that no gateway takes the message for an undelivered one.
        q.show_consumed(cpu, receiver.head);
    }

    #[inline(always)]
    fn flush<W: WaitForSpace<P>>(&self, q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P, wait: &W) {
        if receiver.head.wrapping_sub(receiver.published) >= q.len() / PUBLICATIONS {
            publish_head(q, receiver, cpu, wait);
        }
    }

    fn await_space<W: WaitForSpace<P>>(
        &self,
        q: &Queue<'_, P>,
        sender: &Sender,
        cpu: &P,
        wait: &W,
        round: u32,
    ) {
        if sender.lacks_block {
            // The published head says nothing of blocks: it moves an eighth of the ring at a time,
            // and our copy of it may be old.
            back_off_and_poll(q, sender, cpu, wait, round);
        } else {
            wait.wait_briefly(cpu, &q.control.head, sender.head_seen, round);
        }
    }

    fn fall_asleep(&self, q: &Queue<'_, P>, receiver: &Receiver, cpu: &P) -> bool {
        // (T8) Release: what a sender needs to wake us; pairs with the Acquire (T1) of a claim.
        // They are atomic: either a later claim sees the bit, or we see the claim here.
        let tail = cpu.fetch_or(&q.control.tail, SLEEPING, Ordering::Release);
        if tail & TICKET > receiver.head && receiver.late.is_empty() {
            self.wake_up(q, cpu);
            return false;
        }
        true
    }

    fn wake_up(&self, q: &Queue<'_, P>, cpu: &P) {
        // Relaxed: taking the request to be woken back orders nothing.
        cpu.fetch_and(&q.control.tail, !SLEEPING, Ordering::Relaxed);
    }

    fn resolve_head(
        &self,
        q: &Queue<'_, P>,
        receiver: &mut Receiver,
        cpu: &P,
        _census: &dyn Census,
        overdue: bool,
    ) -> bool {
        if !overdue || receiver.late.len() as u64 >= q.len() / 2 {
            return false;
        }
        let ticket = receiver.head;
        if receiver.valid_from.is_empty() {
            receiver.valid_from = vec![0; q.slots.len()];
        }
        receiver.valid_from[q.index(ticket)] = hole(ticket);
        // Relaxed, both: before the head moves, so that no sender gets the place's next ticket
        // without seeing them: it needs a head that is published after this (T4).
        cpu.store(&q.extra(ticket).valid_from, hole(ticket), Ordering::Relaxed);
        cpu.fetch_or(&q.control.tail, HOLES, Ordering::Relaxed);
        receiver.late.push(Late { ticket, owed: 1, cleared: 0 });
        receiver.head += 1;
        true
    }

    fn resolve_late(&self, q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P, census: &dyn Census) -> bool {
        let mut dead = Vec::new();
        for late in &mut receiver.late {
            let ticket = late.ticket;
            let ownerless =
                late.is_ownerless(census.members(), |m| intent::may_own(census.intent(m), q.id, ticket));
            // The intents first, which acquire (I5), then the packet (Relaxed): an owner that has
            // let go of it has published it.
            let header = Header(cpu.load(&q.slot(late.ticket).header, Ordering::Relaxed));
            if ownerless && !self.is_ready(q, header, late.ticket) {
                dead.push(late.ticket);
            }
        }
        for &ticket in &dead {
            receiver.late.retain(|late| late.ticket != ticket);
            close_hole(q, receiver, cpu, ticket);
        }
        if receiver.late.is_empty()
            && receiver.valid_from.iter().all(|&valid| valid <= receiver.published)
            && !receiver.valid_from.is_empty()
        {
            // Every void ticket has been drawn and passed: no sender needs to look for holes any
            // more.
            receiver.valid_from = Vec::new();
            // Relaxed: a sender that still sees the flag finds its ticket valid.
            cpu.fetch_and(&q.control.tail, !HOLES, Ordering::Relaxed);
        }
        !dead.is_empty()
    }

    fn sweep_packets(&self, _q: &Queue<'_, P>, _receiver: &mut Receiver, _cpu: &P, _census: &dyn Census) {
        // A ticket of the dead becomes overdue, is passed over, and returns by `resolve_late`.
    }

    fn heal(&self, q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P) -> bool {
        // Relaxed: our own word.
        let wrong = cpu.load(&q.control.head, Ordering::Relaxed) & !PARKED != receiver.published;
        if wrong {
            // (T4) Release: pairs with the Acquire (T3) in `claim`.
            cpu.store(&q.control.head, receiver.published, Ordering::Release);
        }
        wrong
    }

    fn packets_in_use(&self, q: &Queue<'_, P>, receiver: &Receiver, cpu: &P) -> u64 {
        // Relaxed: an audit of a queue at rest.
        let tail = cpu.load(&q.control.tail, Ordering::Relaxed) & TICKET;
        let pending = tail.saturating_sub(receiver.head);
        pending + receiver.valid_from.iter().filter(|&&valid| is_hole(valid)).count() as u64
    }
}

/// Returns whether a `valid_from` is a [`hole`].
fn is_hole(valid: u64) -> bool {
    valid > TICKET
}

/// Returns whether a ticket has to wait for the receiver's progress. Signed, since the
/// receiver passes over a void ticket even before a sender draws it.
#[inline(always)]
pub(super) fn beyond(ticket: u64, head: u64, len: u64) -> bool {
    ticket.wrapping_sub(head) as i64 >= len as i64
}

/// Gives the place of a passed ticket back.
///
/// To the first ticket that no sender can hold, and that the receiver has not passed as void.
fn close_hole<P: Processor>(q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P, ticket: u64) {
    let beyond = (receiver.published + q.len()).max(receiver.head);
    let laps = beyond.saturating_sub(ticket).div_ceil(q.len()).max(1);
    let valid = ticket + laps * q.len();
    let index = q.index(ticket);
    if let Some(entry) = receiver.valid_from.get_mut(index) {
        *entry = valid;
    }
    // Relaxed: a holder of an earlier ticket finds itself void with either value; a later ticket
    // needs a head that is published after this (T4).
    cpu.store(&q.extra(ticket).valid_from, valid, Ordering::Relaxed);
}

/// Publishes the receiver's progress.
#[cold]
#[inline(never)]
pub(crate) fn publish_head<P: Processor, W: WaitForSpace<P>>(
    q: &Queue<'_, P>,
    receiver: &mut Receiver,
    cpu: &P,
    wait: &W,
) {
    receiver.published = receiver.head;
    // (T4) Release (in `release_some`): our reads of the packets come before; pairs with the
    // Acquire (T3) in `claim`.
    wait.release_some(cpu, &q.control.head, receiver.head, 2);
}
