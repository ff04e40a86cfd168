//! `lock-free`: the paper's new algorithm. Assign a packet by compare-and-swap on the
//! tail, then claim it by compare-and-swap on its type.
//!
//! **Source.** Lumetta & Culler 1998, §3.2 and Figure 3, to the letter: the tail advances without
//! asking whether the packet is free, so more senders than packets may be assigned. One thing is
//! added: in the figure, a sender that was assigned the same packet a lap later may claim it first,
//! and its message then overtakes an earlier one of its own. Ours waits until the receiver's
//! progress (cached, read once in a lap) says that its turn is the packet's next, so that messages
//! of one sender stay in order. A bulk transfer does the same on the bulk queue first (L15: four
//! compare-and-swaps in all).
//!
//! **Progress.** The assignment is lock-free. A sender whose packet is not free waits for it,
//! polling (the caller does that); the receiver waits for packets in order.
//!
//! **Fields.** `tail`, `bulk_tail`: senders, by compare-and-swap. Header: the sender that makes it
//! CLAIMED, until READY; then the receiver.
//!
//! **A sender that stops or dies.** The paper leaves it open. Our receiver passes over a place that
//! keeps it waiting for [`STALL`](crate::queue::STALL), and writes down that a message is *owed*
//! there: the place's turn came without one, so one may come out of turn. It is delivered when it
//! comes, before anything that the same sender sends later.
//! * A ticket that its sender gave up (no living endpoint's intent names it, and its packet is
//!   FREE) is passed over at once. A sender that will not wait looks first whether as many tickets
//!   are out as there are packets.
//! * Between the two compare-and-swaps (its intent names the ticket): the packet is FREE; owed
//!   until no living endpoint's intent names a ticket of that place whose turn has passed. Another
//!   sender may get the place a lap later; then the one that comes late is the stopped one's.
//! * With a claimed packet: owed until it is published; a dead one's packet is made FREE. A sender
//!   that was assigned a packet which a stopped one holds draws another after a while: its own
//!   ticket stays unused, and is passed over like a dead one's.
//! * After publishing: the message is delivered.
//!
//! **Memory.** No line beyond the queue's own.
//!
//! **Don't use it** if `towpath` will do: that needs one compare-and-swap and no write by the
//! receiver to free a packet.

use towpath_machine::{Event, Ordering, Processor};
use towpath_sync::{PARKED, WaitForSpace};

use super::Claim;
use super::locked::{
    back_off_and_poll, count_not_free, free_nonsense, free_packet, publish_and_look, say_asleep,
};
use super::towpath::beyond;
use crate::packet::{CLAIMED, FREE, Header, READY_BULK, block_owner};
use crate::queue::{Census, ClaimError, Late, Queue, Receiver, Sender, TICKET, intent, write_intent};

/// The algorithm.
#[derive(Clone, Copy, Debug)]
pub struct LockFree;

/// Number of vain attempts after which a sender gives up its assigned packet or block, if
/// its holder doesn't move: those that `back_off_and_poll` puts close together. After them a sender
/// may sleep for a millisecond between two, and a stopped process would cost every sender that many
/// in each lap.
const PATIENCE: u32 = 8;

/// The first step: an assignment. `None` if the queue is closed.
#[inline(always)]
fn assign<P: Processor>(word: &P::Word, cpu: &P, closed: impl Fn(u64) -> bool) -> Option<u64> {
    loop {
        // Relaxed: a guess, confirmed by the exchange.
        let tail = cpu.load(word, Ordering::Relaxed);
        // The window in which another sender's exchange makes ours fail begins here, and ends with
        // the exchange.
        cpu.note(Event::Acquired(tail & TICKET));
        if closed(tail) {
            return None;
        }
        // (F1) Release: our intent comes before; pairs with the Acquire in `Receiver::behind`.
        let won = cpu.compare_exchange(word, tail, tail + 1, Ordering::Release, Ordering::Relaxed).is_ok();
        cpu.note(Event::Released(tail & TICKET));
        if won {
            return Some(tail & TICKET);
        }
    }
}

/// Returns whether as many tickets are out as there are packets.
#[inline]
fn is_full<P: Processor>(q: &Queue<'_, P>, cpu: &P) -> bool {
    // Relaxed, both: a hint; the second exchange decides.
    let consumed = cpu.load(&q.control.consumed, Ordering::Relaxed) & !PARKED;
    beyond(cpu.load(&q.control.tail, Ordering::Relaxed) & TICKET, consumed, q.len())
}

impl LockFree {
    /// The reason for which a ticket could not be used now.
    ///
    /// One of a closed queue is given up: the receiver may not know of it, and then never comes to
    /// it.
    #[cold]
    fn no_space<P: Processor>(
        &self,
        q: &Queue<'_, P>,
        sender: &mut Sender,
        cpu: &P,
        intent: &P::Word,
    ) -> ClaimError {
        // Relaxed: a closed queue stays closed.
        if sender.shut_out(cpu.load(&q.control.tail, Ordering::Relaxed)) {
            self.give_up(sender, cpu, intent);
            return ClaimError::Closed;
        }
        ClaimError::Full
    }
}

impl<P: Processor> Claim<P> for LockFree {
    #[inline(always)]
    fn claim<W: WaitForSpace<P>>(
        &self,
        q: &Queue<'_, P>,
        sender: &mut Sender,
        cpu: &P,
        _wait: &W,
        intent: &P::Word,
    ) -> Result<u64, ClaimError> {
        let ticket = match sender.pending.take() {
            Some(ticket) => ticket,
            None if sender.hasty && is_full(q, cpu) => {
                // Relaxed: a closed queue stays closed.
                return match sender.shut_out(cpu.load(&q.control.tail, Ordering::Relaxed)) {
                    true => Err(ClaimError::Closed),
                    false => Err(ClaimError::Full),
                };
            }
            None => {
                // Before the tail by (F1).
                write_intent(cpu, intent, intent::encode(q.id, intent::CLAIMING, 0));
                match assign(&q.control.tail.0, cpu, |tail| sender.shut_out(tail)) {
                    Some(ticket) => {
                        write_intent(cpu, intent, intent::encode(q.id, intent::CLAIMED, ticket));
                        ticket
                    }
                    None => {
                        write_intent(cpu, intent, 0);
                        return Err(ClaimError::Closed);
                    }
                }
            }
        };
        if beyond(ticket, sender.head_seen, q.len()) {
            // Relaxed: (F2) acquires what the receiver did with the packet, and fails if an older
            // one is seen there.
            sender.head_seen = cpu.load(&q.control.consumed, Ordering::Relaxed) & !PARKED;
            if beyond(ticket, sender.head_seen, q.len()) {
                sender.pending = Some(ticket);
                return Err(self.no_space(q, sender, cpu, intent));
            }
        }
        let claimed = Header::claimed(sender.endpoint, sender.generation).0;
        // (F2) Acquire: the receiver has read the packet; pairs with the Release (C3) in
        // `free_packet`. Release: survivors see whose it is.
        let word = &q.slot(ticket).header;
        match cpu.compare_exchange(word, FREE, claimed, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => {
                sender.misses = 0;
                sender.next_ticket = ticket + 1;
                // From here on the packet names its owner.
                write_intent(cpu, intent, 0);
                return Ok(ticket);
            }
            // Full: the receiver will come to it.
            Err(found) if Header(found).is_ready() => sender.misses = 0,
            Err(_) => sender.misses += 1,
        }
        if sender.misses < PATIENCE {
            sender.pending = Some(ticket);
        } else {
            // Its holder may be stopped: draw another. The receiver passes over this one.
            self.give_up(sender, cpu, intent);
        }
        Err(self.no_space(q, sender, cpu, intent))
    }

    fn give_up(&self, sender: &mut Sender, cpu: &P, intent: &P::Word) {
        sender.pending = None;
        sender.pending_block = None;
        sender.misses = 0;
        // The census finds no sender that owes a message for the ticket.
        write_intent(cpu, intent, 0);
    }

    fn claim_block<W: WaitForSpace<P>>(
        &self,
        q: &Queue<'_, P>,
        sender: &mut Sender,
        cpu: &P,
        _wait: &W,
        _intent: &P::Word,
    ) -> Result<usize, ClaimError> {
        // Relaxed: a closed queue stays closed.
        if sender.shut_out(cpu.load(&q.control.tail, Ordering::Relaxed)) {
            return Err(ClaimError::Closed);
        }
        let ticket = match sender.pending_block.take() {
            Some(ticket) => ticket,
            None => assign(&q.control.bulk_tail.0, cpu, |_| false).ok_or(ClaimError::Closed)?,
        };
        let block = (ticket % q.blocks.len() as u64) as usize;
        let me = block_owner(sender.endpoint, sender.generation);
        // (B1) Acquire: pairs with the Release (B2) in `free_block`. Release: the sweep that sees
        // our name sees our intent; pairs with the Acquire (B3) there.
        if cpu.compare_exchange(&q.blocks[block].owner, 0, me, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            sender.misses = 0;
            return Ok(block);
        }
        sender.misses += 1;
        if sender.misses < PATIENCE {
            sender.pending_block = Some(ticket);
        } else {
            sender.misses = 0;
        }
        Err(ClaimError::Full)
    }

    #[inline(always)]
    fn publish(
        &self,
        q: &Queue<'_, P>,
        _sender: &mut Sender,
        cpu: &P,
        parks: bool,
        _intent: &P::Word,
        ticket: u64,
        header: Header,
    ) -> bool {
        publish_and_look(q, cpu, parks, ticket, header.with_lap(q.lap(ticket)))
    }

    /// A message whose turn has passed must not take the turn of another: that one's
    /// sender would be late in its place without our knowing, even before it draws its ticket.
    #[inline(always)]
    fn is_ready(&self, q: &Queue<'_, P>, header: Header, ticket: u64) -> bool {
        header.is_ready() && !is_earlier(header.lap(), q.lap(ticket))
    }

    /// Later senders may hold the place too, for turns to come: their own earlier
    /// messages may still be in the queue, so theirs waits for its turn.
    fn is_ready_late(&self, q: &Queue<'_, P>, header: Header, ticket: u64, head: u64) -> bool {
        let to_come = head + (q.index(ticket) as u64).wrapping_sub(head) % q.len();
        header.is_ready() && is_earlier(header.lap(), q.lap(to_come))
    }

    /// A message whose turn has passed says by its lap which ticket it had.
    fn undelivered(&self, q: &Queue<'_, P>, _cpu: &P, header: Header, ticket: u64) -> Option<u64> {
        let laps = header.lap().wrapping_sub(q.lap(ticket)) as i16;
        header.is_ready().then(|| ticket.wrapping_add_signed(i64::from(laps) * q.len() as i64))
    }

    #[inline(always)]
    fn release(&self, q: &Queue<'_, P>, _receiver: &mut Receiver, cpu: &P, ticket: u64) {
        free_packet(q, cpu, ticket);
    }

    fn release_late(&self, q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P, ticket: u64) {
        for late in receiver.late.iter_mut().filter(|late| late.ticket == ticket) {
            late.owed -= 1;
        }
        receiver.late.retain(|late| late.owed > 0);
        free_packet(q, cpu, ticket);
    }

    fn await_space<W: WaitForSpace<P>>(
        &self,
        q: &Queue<'_, P>,
        sender: &Sender,
        cpu: &P,
        wait: &W,
        round: u32,
    ) {
        back_off_and_poll(q, sender, cpu, wait, round);
    }

    fn fall_asleep(&self, q: &Queue<'_, P>, receiver: &Receiver, cpu: &P) -> bool {
        say_asleep(q, receiver, cpu)
    }

    fn resolve_head(
        &self,
        q: &Queue<'_, P>,
        receiver: &mut Receiver,
        cpu: &P,
        census: &dyn Census,
        overdue: bool,
    ) -> bool {
        let word = &q.slot(receiver.head).header;
        if free_if_dead(word, cpu, census) {
            return true;
        }
        let index = q.index(receiver.head);
        // Relaxed: read again below before it counts, or only a claim that some sender has.
        let header = Header(cpu.load(word, Ordering::Relaxed));
        // First the intents, which acquire (I5), then the packet (Relaxed): a sender that has let
        // go of the ticket has claimed the packet, or gave up.
        if header.state() == FREE && given_up(q, receiver.head, census, || cpu.load(word, Ordering::Relaxed))
        {
            receiver.head += 1;
            q.show_consumed(cpu, receiver.head);
            return true;
        }
        let known = receiver.late.iter().position(|late| q.index(late.ticket) == index);
        // A packet that a stopped sender holds does not cost the others a stall in every lap.
        if !(overdue || known.is_some() && header.state() == CLAIMED) {
            return false;
        }
        match known {
            Some(n) => {
                receiver.late[n].owed += 1;
                receiver.late[n].cleared = 0;
            }
            None => receiver.late.push(Late { ticket: receiver.head, owed: 1, cleared: 0 }),
        }
        receiver.head += 1;
        // So that senders that wait for their turn don't wait for a message that may never come.
        q.show_consumed(cpu, receiver.head);
        true
    }

    fn resolve_late(&self, q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P, census: &dyn Census) -> bool {
        let before = receiver.late.len();
        let head = receiver.head;
        receiver.late.retain_mut(|late| {
            let place = q.index(late.ticket);
            let ownerless =
                late.is_ownerless(census.members(), |m| may_owe(q, census.intent(m), place, head));
            let word = &q.slot(late.ticket).header;
            free_if_dead(word, cpu, census);
            // The intents first, which acquire (I5), then the packet (Relaxed): a sender that has
            // let go of its ticket has claimed the packet, or gave up.
            let header = Header(cpu.load(word, Ordering::Relaxed));
            !ownerless || header.state() != FREE
        });
        before != receiver.late.len()
    }

    fn sweep_packets(&self, q: &Queue<'_, P>, _receiver: &mut Receiver, cpu: &P, census: &dyn Census) {
        for slot in q.slots {
            free_if_dead(&slot.header, cpu, census);
        }
    }

    /// Each sender may be assigned a packet that is not free, and a few more if it loses
    /// patience with them.
    fn overdraws(&self) -> bool {
        true
    }

    fn heal(&self, q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P) -> bool {
        // A message of a lap to come, where the place's next ticket is not drawn: it would neither
        // be delivered nor make room.
        free_nonsense(q, receiver, cpu, READY_BULK, |header, to_come| {
            is_earlier(header.lap(), q.lap(to_come))
        })
    }

    fn packets_in_use(&self, q: &Queue<'_, P>, _receiver: &Receiver, cpu: &P) -> u64 {
        count_not_free(q, cpu)
    }
}

/// Returns whether one lap is before another; they begin again after 65,535.
#[inline(always)]
fn is_earlier(lap: u16, than: u16) -> bool {
    (lap.wrapping_sub(than) as i16) < 0
}

/// Returns whether no sender can ever publish a ticket whose turn it is.
fn given_up<P: Processor>(
    q: &Queue<'_, P>,
    ticket: u64,
    census: &dyn Census,
    header: impl Fn() -> u64,
) -> bool {
    let ownerless = (0..census.members()).all(|m| !intent::may_own(census.intent(m), q.id, ticket));
    ownerless && header() == FREE
}

/// Returns whether an intent's writer may still publish in a place after its turn.
fn may_owe<P: Processor>(q: &Queue<'_, P>, word: u64, place: usize, head: u64) -> bool {
    match intent::phase(word, q.id) {
        Some(intent::CLAIMING) => true,
        Some(intent::CLAIMED) => q.index(word >> 20) == place && (word >> 20) < head & ((1 << 44) - 1),
        _ => false,
    }
}

/// Frees a packet that a dead endpoint had claimed.
fn free_if_dead<P: Processor>(word: &P::Word, cpu: &P, census: &dyn Census) -> bool {
    // (F2) Acquire: a sender that has claimed it is not taken for its endpoint's predecessor; pairs
    // with the Release (F2) of the claim.
    let header = Header(cpu.load(word, Ordering::Acquire));
    header.state() == CLAIMED
        && !census.alive(header.source() as u16, header.lap())
        // (F6) Release: what the dead one wrote into the packet comes before the next claim; pairs
        // with the Acquire (F2). Relaxed if it fails, since its owner published before it died.
        && cpu.compare_exchange(word, header.0, FREE, Ordering::Release, Ordering::Relaxed).is_ok()
}
