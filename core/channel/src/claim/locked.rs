//! Claiming under a lock: the paper's generic mutual exclusion algorithm, with any lock
//! of `towpath-sync`.
//!
//! **Source.** Lumetta & Culler 1998, Figure 2 and §3.1. Under the lock: if the packet at the tail
//! is FREE, it becomes CLAIMED and the tail advances. A bulk transfer claims its block under the
//! same lock, before the packet (L19).
//!
//! **Progress.** Blocking, as the lock is.
//!
//! **Fields.** `tail`, `bulk_tail`: only under the lock. Header: its claimer from CLAIMED to READY,
//! then the receiver, which makes it FREE.
//!
//! **A sender that stops or dies.**
//! * Between wanting the lock and having left it (intent [`intent::LOCKING`]): a stopped sender
//!   holds all others up for as long as it is stopped. If it dies, `posix` passes the lock on and
//!   the next owner finds the queue as it is (each step below leaves it valid); the spin locks
//!   cannot: a waiter learns of the death, the queue is closed, and its senders get their
//!   messages back (`Status::QueueAbandoned`). If its words are damaged,
//!   `suspicion.rs` finds that out.
//! * With a claimed packet: the receiver waits for a stopped one; the place of a dead one is passed
//!   over and freed.
//! * After publishing: the message is delivered.
//!
//! **Memory.** The lock's.
//!
//! **Don't use it** when processes may be stopped or killed and the lock is not `posix`; the other
//! algorithms go on.

use core::iter::once;
use core::ops::Deref;

use towpath_machine::{Event, Ordering, Processor};
use towpath_sync::{Lock, WaitForSpace};

use super::Claim;
use crate::packet::{CLAIMED, FREE, Header, SKIPPED, block_owner};
use crate::queue::{
    CLOSED, Census, ClaimError, Queue, Receiver, Sender, TICKET, announce, intent, write_intent,
};
use crate::suspicion::{SUSPECTED, refute};

/// The algorithm, over a lock: a reference to it, or whatever else leads there.
///
/// Without `MORTAL` it is Figure 2 and no more: for machines on which no sender dies and no queue
/// gets another owner, so that nothing has to be told to survivors.
#[derive(Clone, Copy, Debug)]
pub struct Locked<D, const MORTAL: bool = true>(pub D);

/// Runs `body` under the queue's lock, with the intent that tells survivors if there may
/// be any.
#[inline(always)]
fn locked<const MORTAL: bool, P: Processor, L: Lock<P>, W: WaitForSpace<P>, T>(
    lock: &L,
    q: &Queue<'_, P>,
    sender: &Sender,
    cpu: &P,
    wait: &W,
    intent: &P::Word,
    body: impl FnOnce() -> Result<T, ClaimError>,
) -> Result<T, ClaimError> {
    if !MORTAL {
        let held = lock.lock(cpu, wait).map_err(|_| ClaimError::Closed)?;
        cpu.note(Event::Acquired(q.id.into()));
        let result = body();
        lock.unlock(cpu, wait, held);
        cpu.note(Event::Released(q.id.into()));
        return result;
    }
    // Either the process that resets the queue for a new owner sees our intent and waits for us, or
    // we see that the queue is closed and don't touch its lock.
    let locking = intent::encode(q.id, intent::LOCKING, 0);
    let mut tail = announce(cpu, intent, locking, &q.control.tail);
    if tail & SUSPECTED != 0 {
        tail = refute(cpu, &q.control.tail);
    }
    if sender.shut_out(tail) {
        write_intent(cpu, intent, 0);
        return Err(ClaimError::Closed);
    }
    let result = match lock.lock(cpu, wait) {
        Ok(mut held) => {
            cpu.note(Event::Acquired(q.id.into()));
            // Relaxed: it has the lock, and hands nothing over; one that suspects the lock asks no
            // further.
            cpu.store(intent, intent::encode(q.id, intent::LOCKING, 1), Ordering::Relaxed);
            if L::owner_died(&held) {
                // Each step of the body leaves the queue valid, so there is nothing to mend: a
                // packet that the dead one has claimed carries its name, and the receiver frees it.
                lock.make_consistent(cpu, &mut held);
            }
            let result = body();
            lock.unlock(cpu, wait, held);
            cpu.note(Event::Released(q.id.into()));
            result
        }
        Err(_) => {
            // No sender can claim any more. Relaxed: a sender that sees the bit only stops.
            cpu.fetch_or(&q.control.tail, CLOSED, Ordering::Relaxed);
            Err(ClaimError::Closed)
        }
    };
    // We are out of the lock.
    write_intent(cpu, intent, 0);
    result
}

impl<P: Processor, D: Deref<Target: Lock<P>>, const MORTAL: bool> Claim<P> for Locked<D, MORTAL> {
    #[inline]
    fn claim<W: WaitForSpace<P>>(
        &self,
        q: &Queue<'_, P>,
        sender: &mut Sender,
        cpu: &P,
        wait: &W,
        intent: &P::Word,
    ) -> Result<u64, ClaimError> {
        let claimed = locked::<MORTAL, _, _, _, _>(&*self.0, q, sender, cpu, wait, intent, || {
            // Relaxed: under the lock.
            let tail = cpu.load(&q.control.tail, Ordering::Relaxed);
            if sender.shut_out(tail) {
                return Err(ClaimError::Closed);
            }
            let header = &q.slot(tail & TICKET).header;
            // (C2) Acquire: the receiver has read the packet; pairs with the Release (C3) in
            // `release`.
            if Header(cpu.load(header, Ordering::Acquire)).state() != FREE {
                return Err(ClaimError::Full);
            }
            let claimed = Header::claimed(sender.endpoint, sender.generation);
            // Relaxed: that the sender is there was released by the fence in `announce`.
            cpu.store(header, claimed.0, Ordering::Relaxed);
            // (C5) Release: a survivor that sees the tail advanced sees the packet's owner; pairs
            // with the Acquire (C6).
            cpu.store(&q.control.tail, (tail & !SUSPECTED) + 1, Ordering::Release);
            Ok(tail & TICKET)
        });
        if let Ok(ticket) = claimed {
            sender.next_ticket = ticket + 1;
        }
        claimed
    }

    fn is_unlocked<W: WaitForSpace<P>>(&self, cpu: &P, wait: &W) -> bool {
        let Some(mut held) = self.0.try_lock(cpu) else { return false };
        // As in `locked`.
        self.0.make_consistent(cpu, &mut held);
        self.0.unlock(cpu, wait, held);
        true
    }

    fn claim_block<W: WaitForSpace<P>>(
        &self,
        q: &Queue<'_, P>,
        sender: &mut Sender,
        cpu: &P,
        wait: &W,
        intent: &P::Word,
    ) -> Result<usize, ClaimError> {
        locked::<MORTAL, _, _, _, _>(&*self.0, q, sender, cpu, wait, intent, || {
            // Relaxed: under the lock; a closed queue stays closed.
            if sender.shut_out(cpu.load(&q.control.tail, Ordering::Relaxed)) {
                return Err(ClaimError::Closed);
            }
            // Relaxed: under the lock.
            let next = cpu.load(&q.control.bulk_tail, Ordering::Relaxed);
            let block = (next % q.blocks.len() as u64) as usize;
            let owner = &q.blocks[block].owner;
            // (B1) Acquire: pairs with the Release (B2) in `free_block`.
            if cpu.load(owner, Ordering::Acquire) != 0 {
                return Err(ClaimError::Full);
            }
            // Relaxed: the sweep that sees our name sees our intent, by the Acquire there and the
            // fence in `announce`.
            cpu.store(owner, block_owner(sender.endpoint, sender.generation), Ordering::Relaxed);
            // Relaxed: read under the lock alone. A sender that dies before leaves a block that is
            // not free: the next one waits for the sweep.
            cpu.store(&q.control.bulk_tail, next.wrapping_add(1), Ordering::Relaxed);
            Ok(block)
        })
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
        publish_and_look(q, cpu, parks, ticket, header.with_lap(0))
    }

    #[inline(always)]
    fn is_ready(&self, _q: &Queue<'_, P>, header: Header, _ticket: u64) -> bool {
        header.is_ready()
    }

    #[inline(always)]
    fn release(&self, q: &Queue<'_, P>, _receiver: &mut Receiver, cpu: &P, ticket: u64) {
        free_packet(q, cpu, ticket);
    }

    fn release_late(&self, q: &Queue<'_, P>, _receiver: &mut Receiver, cpu: &P, ticket: u64) {
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
        _overdue: bool,
    ) -> bool {
        pass_over_dead(q, receiver, cpu, census)
    }

    fn resolve_late(
        &self,
        _q: &Queue<'_, P>,
        _receiver: &mut Receiver,
        _cpu: &P,
        _census: &dyn Census,
    ) -> bool {
        false
    }

    fn sweep_packets(&self, q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P, census: &dyn Census) {
        free_packets_of_the_dead(q, receiver, cpu, census);
    }

    fn heal(&self, q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P) -> bool {
        // (C6) Acquire: pairs with the Release (C5) of the claim, which marks the packet before it
        // moves the tail: behind the tail none is FREE by right.
        let tail = cpu.load(&q.control.tail, Ordering::Acquire) & TICKET;
        let before = receiver.head;
        while receiver.head < tail.min(before + q.len())
            // Relaxed: ordered by (C6).
            && Header(cpu.load(&q.slot(receiver.head).header, Ordering::Relaxed)).state() == FREE
        {
            receiver.head += 1;
        }
        // Behind the tail a packet may be SKIPPED (`free_packets_of_the_dead` says so of no other).
        receiver.head != before || free_nonsense(q, receiver, cpu, SKIPPED, |_, _| true)
    }

    fn packets_in_use(&self, q: &Queue<'_, P>, _receiver: &Receiver, cpu: &P) -> u64 {
        count_not_free(q, cpu)
    }
}

// Common to the paper's algorithms (Figures 2 and 3): the three-state hand-shake in the
// packet's type.

/// READY, and whether the receiver must be woken.
#[inline(always)]
pub(super) fn publish_and_look<P: Processor>(
    q: &Queue<'_, P>,
    cpu: &P,
    parks: bool,
    ticket: u64,
    header: Header,
) -> bool {
    let word = &q.slot(ticket).header;
    if !parks {
        // (Q2) Release: the contents come before; pairs with the Acquire (Q1) in `Receiver::next`.
        cpu.store(word, header.0, Ordering::Release);
        return false;
    }
    // (Q2), and SeqCst (an exchange): either we see that the receiver sleeps, or it sees the packet
    // before it does; pairs with the exchange (L1) in `say_asleep`.
    cpu.swap(word, header.0, Ordering::SeqCst);
    // (L2) SeqCst: after the exchange in the total order; pairs with (L1).
    cpu.load(&q.control.sleeping, Ordering::SeqCst) != 0
}

/// The receiver's last look before it sleeps.
pub(super) fn say_asleep<P: Processor>(q: &Queue<'_, P>, receiver: &Receiver, cpu: &P) -> bool {
    // (L1) SeqCst exchange: pairs with the exchange (Q2) and the load (L2) in `publish_and_look`.
    cpu.swap(&q.control.sleeping, 1, Ordering::SeqCst);
    let awake = once(receiver.head).chain(receiver.late.iter().map(|late| late.ticket)).any(|ticket| {
        // (L1) SeqCst: after the exchange in the total order.
        Header(cpu.load(&q.slot(ticket).header, Ordering::SeqCst)).is_ready()
    });
    if awake {
        // Relaxed: see `wake_up`.
        cpu.store(&q.control.sleeping, 0, Ordering::Relaxed);
    }
    !awake
}

#[inline(always)]
pub(super) fn free_packet<P: Processor>(q: &Queue<'_, P>, cpu: &P, ticket: u64) {
    // (C3) Release: our reads of the packet come before; pairs with the Acquire of the claims (C2),
    // (F2).
    cpu.store(&q.slot(ticket).header, FREE, Ordering::Release);
}

/// Exponential back-off while the queue is full; the caller polls between the turns.
pub(super) fn back_off_and_poll<P: Processor, W: WaitForSpace<P>>(
    q: &Queue<'_, P>,
    _sender: &Sender,
    cpu: &P,
    wait: &W,
    round: u32,
) {
    // Relaxed: to see whether the receiver makes progress.
    let seen = cpu.load(&q.control.consumed, Ordering::Relaxed) & !towpath_sync::PARKED;
    if round < 8 {
        // With or without success, the caller looks again.
        let _ = wait.back_off_for_space(cpu, round);
    } else {
        wait.wait_briefly(cpu, &q.control.consumed, seen, round);
    }
}

/// Frees packets in a state that no packet can be in: those above `last`, and ready ones
/// that no sender was assigned.
///
/// `comes_late`: whether the message of a place that was passed over will be delivered out of turn.
pub(super) fn free_nonsense<P: Processor>(
    q: &Queue<'_, P>,
    receiver: &Receiver,
    cpu: &P,
    last: u64,
    comes_late: impl Fn(Header, u64) -> bool,
) -> bool {
    let mut changed = false;
    for ticket in receiver.head..receiver.head + q.len() {
        let word = &q.slot(ticket).header;
        // (Q1) Acquire: pairs with the Release (Q2), after which the tail is beyond the ticket.
        let header = Header(cpu.load(word, Ordering::Acquire));
        let late = receiver.late.iter().any(|late| q.index(late.ticket) == q.index(ticket));
        let unassigned = header.is_ready()
            && !(late && comes_late(header, ticket))
            // Relaxed: ordered by that.
            && cpu.load(&q.control.tail, Ordering::Relaxed) & TICKET <= ticket;
        changed |= (unassigned || header.state() > last)
            // (C3) Release: pairs with the Acquire (C2), (F2) of the claims.
            && cpu.compare_exchange(word, header.0, FREE, Ordering::Release, Ordering::Relaxed).is_ok();
    }
    changed
}

/// Passes over the head if a dead endpoint had claimed it.
pub(super) fn pass_over_dead<P: Processor>(
    q: &Queue<'_, P>,
    receiver: &mut Receiver,
    cpu: &P,
    census: &dyn Census,
) -> bool {
    // Relaxed, here and below: all that the dead one wrote is known with its death.
    let header = Header(cpu.load(&q.slot(receiver.head).header, Ordering::Relaxed));
    let dead = header.state() == SKIPPED
        || header.state() == CLAIMED && !census.alive(header.source() as u16, header.lap());
    // Alive when it claimed and dead now: what it published before dying must not be thrown away.
    if !dead || Header(cpu.load(&q.slot(receiver.head).header, Ordering::Relaxed)) != header {
        return false;
    }
    free_packet(q, cpu, receiver.head);
    receiver.head += 1;
    true
}

/// Marks (inside the ring) or frees (outside) packets that the dead had claimed.
pub(super) fn free_packets_of_the_dead<P: Processor>(
    q: &Queue<'_, P>,
    receiver: &Receiver,
    cpu: &P,
    census: &dyn Census,
) {
    for ticket in receiver.head..receiver.head + q.len() {
        let word = &q.slot(ticket).header;
        // (C7) Acquire: a sender that has claimed it is not taken for its endpoint's predecessor;
        // pairs with the fence (I3) and the Release (F2) of the claims.
        let header = Header(cpu.load(word, Ordering::Acquire));
        let dead = header.state() == CLAIMED && !census.alive(header.source() as u16, header.lap());
        // Relaxed: what the dead one wrote is known with its death. Only now: a sender may have
        // claimed and died since the sweep began.
        let tail = cpu.load(&q.control.tail, Ordering::Relaxed) & TICKET;
        if dead || header.state() == SKIPPED && ticket >= tail {
            let new = if ticket < tail { header.with_state(SKIPPED).0 } else { FREE };
            // Relaxed: fails if the owner published before it died; orders nothing.
            let _ = cpu.compare_exchange(word, header.0, new, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

pub(super) fn count_not_free<P: Processor>(q: &Queue<'_, P>, cpu: &P) -> u64 {
    // Relaxed: an audit of a queue at rest.
    q.slots.iter().filter(|s| Header(cpu.load(&s.header, Ordering::Relaxed)).state() != FREE).count() as u64
}
