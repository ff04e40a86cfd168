//! Claim algorithms: how concurrent senders come to own a packet. One algorithm, one
//! file.

mod any;
mod lock_free;
mod locked;
mod towpath;

use towpath_machine::{Ordering, Processor};
use towpath_sync::WaitForSpace;

use crate::packet::Header;
use crate::queue::{Census, ClaimError, Queue, Receiver, Sender};

pub use any::{Algorithm, Any, Locks, MAX_CONTENDERS};
pub use lock_free::LockFree;
pub use locked::Locked;
pub use towpath::Towpath;

/// A claim algorithm: the sender's way to a packet and a block, and the receiver's way of
/// giving them back.
///
/// Both sides are one trait, since they are one protocol: each ordering of one side has its partner
/// in the other, and no algorithm has one side only. From [`claim`](Claim::claim) to
/// [`await_space`](Claim::await_space) it is senders that call; from [`is_ready`](Claim::is_ready)
/// on it is the receiver.
///
/// None of the claims waits for space: that is the endpoint's business, which polls meanwhile.
pub trait Claim<P: Processor> {
    // The sender's side.

    /// Claims a packet. `intent` is the sending endpoint's word for claims on queues of
    /// this kind.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Full`]: nothing was claimed for good; try again. [`ClaimError::Closed`]:
    /// never.
    fn claim<W: WaitForSpace<P>>(
        &self,
        q: &Queue<'_, P>,
        sender: &mut Sender,
        cpu: &P,
        wait: &W,
        intent: &P::Word,
    ) -> Result<u64, ClaimError>;

    /// A hint that this ticket is likely to be claimed soon: its packet's line may be
    /// fetched meanwhile. Claims nothing.
    #[inline(always)]
    fn anticipate(&self, _q: &Queue<'_, P>, _cpu: &P, _ticket: u64) {}

    /// Gives up a ticket that a claim in a full queue may have kept for the next attempt.
    /// Called when there will be none.
    fn give_up(&self, _sender: &mut Sender, _cpu: &P, _intent: &P::Word) {}

    /// Claims a block. On success the caller owns it until it publishes it with a packet
    /// or frees it.
    ///
    /// # Errors
    ///
    /// As [`Claim::claim`].
    fn claim_block<W: WaitForSpace<P>>(
        &self,
        q: &Queue<'_, P>,
        sender: &mut Sender,
        cpu: &P,
        wait: &W,
        intent: &P::Word,
    ) -> Result<usize, ClaimError>;

    #[expect(
        clippy::too_many_arguments,
        reason = "each is another thing; a struct of them would be made only for this call"
    )]
    /// Publishes a filled packet. Returns whether the receiver sleeps and must be woken.
    fn publish(
        &self,
        q: &Queue<'_, P>,
        sender: &mut Sender,
        cpu: &P,
        parks: bool,
        intent: &P::Word,
        ticket: u64,
        header: Header,
    ) -> bool;

    /// Waits a while for space in a queue that was found full. A hint: returns at any
    /// time.
    fn await_space<W: WaitForSpace<P>>(
        &self,
        q: &Queue<'_, P>,
        sender: &Sender,
        cpu: &P,
        wait: &W,
        round: u32,
    );

    // The receiver's side.

    /// Returns whether the ticket's packet can be delivered.
    fn is_ready(&self, q: &Queue<'_, P>, header: Header, ticket: u64) -> bool;

    /// Returns whether the packet of a place that was passed over holds a message whose
    /// turn has passed too (and not one whose turn is still to come).
    fn is_ready_late(&self, q: &Queue<'_, P>, header: Header, ticket: u64, head: u64) -> bool {
        let _ = head;
        self.is_ready(q, header, ticket)
    }

    /// Returns the ticket of the message that the packet of a dead receiver holds, if it
    /// was not delivered. `ticket` is the place's first one that the receiver had not passed.
    fn undelivered(&self, q: &Queue<'_, P>, cpu: &P, header: Header, ticket: u64) -> Option<u64> {
        let _ = (q, cpu);
        header.is_ready().then_some(ticket)
    }

    /// Makes a delivered packet reusable, now or later ([`Claim::flush`]).
    /// `receiver.head` is past it already.
    fn release(&self, q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P, ticket: u64);

    /// Makes a delivered packet reusable that came late.
    fn release_late(&self, q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P, ticket: u64);

    /// Publishes lazily kept progress; wakes senders that sleep for want of space. Called
    /// when a poll ends.
    /// Nothing, where progress is published with each packet.
    #[inline]
    fn flush<W: WaitForSpace<P>>(&self, _q: &Queue<'_, P>, _receiver: &mut Receiver, _cpu: &P, _wait: &W) {}

    /// Says that the receiver will sleep. `false` if it must not, since something was
    /// claimed already.
    fn fall_asleep(&self, q: &Queue<'_, P>, receiver: &Receiver, cpu: &P) -> bool;

    /// Takes that back: in `sleeping`, where the algorithm keeps no flag in the tail.
    fn wake_up(&self, q: &Queue<'_, P>, cpu: &P) {
        // Relaxed: taking the request to be woken back orders nothing.
        cpu.store(&q.control.sleeping, 0, Ordering::Relaxed);
    }

    /// The head has been claimed but not published: if its owner is dead, or `overdue`,
    /// pass over it where the algorithm permits. Returns whether the head has moved.
    fn resolve_head(
        &self,
        q: &Queue<'_, P>,
        receiver: &mut Receiver,
        cpu: &P,
        census: &dyn Census,
        overdue: bool,
    ) -> bool;

    /// Decides about places passed over whose owner is dead. Returns whether one was
    /// freed.
    fn resolve_late(&self, q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P, census: &dyn Census) -> bool;

    /// Frees packets that the dead had claimed.
    fn sweep_packets(&self, q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P, census: &dyn Census);

    /// Returns whether the lock in front of the queue, if any, is free at this moment.
    fn is_unlocked<W: WaitForSpace<P>>(&self, _cpu: &P, _wait: &W) -> bool {
        true
    }

    /// Returns whether more tickets may be out than there are packets.
    fn overdraws(&self) -> bool {
        false
    }

    /// The algorithm's part of [`Receiver::heal`].
    fn heal(&self, q: &Queue<'_, P>, receiver: &mut Receiver, cpu: &P) -> bool;

    /// Number of packets that no sender could claim although the queue is empty.
    fn packets_in_use(&self, q: &Queue<'_, P>, receiver: &Receiver, cpu: &P) -> u64;
}

#[cfg(test)]
mod tests;
