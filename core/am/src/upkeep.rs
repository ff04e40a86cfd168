//! Upkeep of an endpoint: deaths, late heads, and messages that were on the way to the
//! dead.
//!
//! Runs while polling finds no message or a wait lasts, and on demand ([`Endpoint::recover`]).
//!
//! **A receiver that dies** leaves the exact progress that it published: its requesters find the
//! requests that it had not finished, and get them back as unreachable. A successor sends them back
//! before it uses the queue, and may die meanwhile (`outstanding.rs`).
//!
//! [`Endpoint::recover`]: crate::Endpoint::recover

use core::sync::atomic::Ordering;
use std::collections::VecDeque;
use std::rc::Rc;

use towpath_machine::Processor;

use crate::census::DirectoryCensus;
use crate::claim::Claim;
use crate::directory::Directory;
use crate::domain::Side;
use crate::entry::COPYING;
use crate::error::Status;
use crate::outgoing::OnFull;
use crate::outstanding::Outstanding;
use crate::packet::SKIPPED;
use crate::queue::{TICKET, announce, write_intent};
use crate::state::{Core, Domain, Own, PeerEndpoint};
use crate::streams::is_before_record;

/// Time between two questions for deaths while waiting, in nanoseconds.
const CHECK_EVERY: u64 = 10_000_000;

impl<D: Domain> Core<D> {
    /// Looks after late heads, deaths, and messages that were on the way to the dead: a
    /// receiver that only polls sees none of them. `now`: asks for deaths even if that was done
    /// lately.
    #[cold]
    pub(crate) fn look_after(&self, now: bool) {
        let (time, upkeep) = (self.cpu().now(), &self.upkeep);
        upkeep.last_look.set(time);
        let due = now || time.wrapping_sub(upkeep.last_check.get()) >= CHECK_EVERY;
        if due {
            upkeep.last_check.set(time);
            self.domain.check_deaths();
        }
        let deaths = self.domain.deaths();
        let died = deaths != upkeep.deaths_seen.replace(deaths);
        let mut gone = Vec::new();
        for peer in self.tables.peers.borrow().iter().flatten() {
            if peer.gone.get() {
                continue;
            }
            if !self.is_here(peer) || (died || now) && !self.domain.is_alive(peer.participant) {
                gone.push(peer.clone());
            }
        }
        for peer in gone {
            self.lose(&peer);
        }
        self.forget_lines();
        if died || due {
            self.sweep_streams();
        }
        self.return_owed();
        for own in [&self.reply, &self.request] {
            self.look_after_queue(own, died || now, died || due);
        }
    }

    /// Looks after all endpoints that are polled together with this one.
    ///
    /// A sender may wait for a place that only the receiver beside it frees.
    #[cold]
    pub(crate) fn look_after_bundle(&self) {
        match self.company.bundle.borrow().upgrade() {
            Some(bundle) => bundle.members.borrow().iter().for_each(|core| core.look_after(false)),
            None => self.look_after(false),
        }
    }

    /// Looks after one of the endpoint's queues. `acquit`: takes intents to lock it back
    /// from the dead; `sweep`: frees packets and blocks of the dead.
    pub(crate) fn look_after_queue(&self, own: &Own<D>, acquit: bool, sweep: bool) {
        let (claim, q, census) = (own.side.claim(), own.side.queue(), DirectoryCensus(&self.domain));
        if acquit && self.domain.config().algorithm.is_locked() {
            self.domain.acquit(&own.side);
        }
        let mut receiver = own.receiver.borrow_mut();
        if sweep {
            receiver.sweep(claim, q, self.cpu(), &census);
            receiver.heal(claim, q, self.cpu());
        }
        while receiver.look_after(claim, q, self.cpu(), &census) {}
        // The head may have passed places without a delivery, and a sender may wait for it.
        let around = self.domain.around(q);
        claim.flush(q, &mut receiver, self.cpu(), &self.domain.wait(&around));
    }

    /// Returns whether a peer's endpoint is open, and still the same.
    pub(crate) fn is_here(&self, peer: &PeerEndpoint<D>) -> bool {
        // (E1) Acquire: pairs with the Release when the endpoint was closed (E3) or taken by
        // another process (E2). A gateway then counts what it had handled, and a caller of `map`
        // knows all that it had done.
        let read = |word| self.cpu().load(word, Ordering::Acquire);
        read(&peer.entry.owner) == peer.participant.to_bits()
            && read(&peer.entry.generation) == peer.name.generation
            && read(&peer.entry.open) == peer.participant.to_bits()
    }

    /// Notes that a peer is gone, and brings back the requests that it did not finish.
    pub(crate) fn lose(&self, peer: &Rc<PeerEndpoint<D>>) {
        if !peer.gone.replace(true) {
            self.return_outstanding(peer);
        }
    }

    /// Returns the reason why no message reaches a peer any more.
    pub(crate) fn reason(&self, peer: &PeerEndpoint<D>) -> Status {
        if !self.domain.is_alive(peer.participant) {
            Status::Unreachable
        } else if peer.gone.get() {
            Status::BadEndpoint
        } else {
            // It is there, but the lock in front of its queue is lost.
            Status::QueueAbandoned
        }
    }

    /// Brings back the requests that an endpoint which is gone did not finish.
    fn return_outstanding(&self, peer: &Rc<PeerEndpoint<D>>) {
        // The queue first: its fence acquires how the peer ended.
        let mut in_queue = self.copy_outstanding(peer);
        let mut in_line = self.take_unhandled(peer);
        let in_stream = self.take_unhandled_records(peer);
        let mut returns = self.back.returns.borrow_mut();
        // In the order in which they were sent.
        let mut packets_before = |order: u64| {
            let end = in_queue.partition_point(|back| back.ticket < order);
            in_queue.drain(..end).collect::<Vec<_>>()
        };
        let mut with_its_packets = |returns: &mut VecDeque<Outstanding>, (order, back)| {
            returns.extend(packets_before(order & TICKET));
            returns.push_back(back);
        };
        for (after, number, back) in in_stream {
            if let Some(first) = in_line.take_if(|(order, _)| is_before_record(*order, number)) {
                with_its_packets(&mut returns, first);
            }
            match after {
                Some(after) => with_its_packets(&mut returns, (after, back)),
                None => returns.push_back(back),
            }
        }
        if let Some(last) = in_line {
            with_its_packets(&mut returns, last);
        }
        returns.extend(in_queue);
    }

    /// Copies the unfinished requests out of the queue of an endpoint that is gone.
    ///
    /// Not those that have come back already. None if a successor has shown its generation: it has
    /// sent them back.
    fn copy_outstanding(&self, peer: &PeerEndpoint<D>) -> Vec<Outstanding> {
        let (cpu, side, status) = (self.cpu(), &peer.request.side, self.reason(peer));
        let (q, intent) = (side.queue(), &self.entry.own.intents[COPYING]);
        let me = self.name.code();
        // Either a successor sees the intent and does not reset the queue before this endpoint has
        // its copies, or this endpoint sees the successor's generation.
        let generation = announce(cpu, intent, u64::from(q.id) + 1, &peer.entry.generation);
        let is_last = generation == peer.name.generation;
        let mut all = if is_last {
            Outstanding::find_all(cpu, q, side.claim(), peer.name, |source| source == me)
        } else {
            Vec::new()
        };
        for back in &all {
            // Relaxed: a hint to a successor, which need not send it back.
            cpu.store(&q.slot(back.ticket).header, SKIPPED, Ordering::Relaxed);
        }
        write_intent(cpu, intent, 0);
        all.retain(|back| self.is_first_return(back));
        for back in &mut all {
            back.returned.status = status;
        }
        all
    }

    /// Notes that a request has come back whose receiver is gone. Returns `false` if it
    /// had come back before.
    pub(crate) fn is_first_return(&self, back: &Outstanding) -> bool {
        self.back.seen.borrow_mut().insert((back.returned.destination, back.ticket as u16))
    }

    /// Sends back requests that a predecessor did not finish, and replies that this
    /// endpoint could not take, as far as there is space now. Not while a reply waits for space:
    /// the two would claim by the same intent.
    pub(crate) fn return_owed(&self) {
        while !self.dispatch.replying.get() {
            // Not borrowed while it is sent.
            let last = self.back.owed.borrow_mut().pop();
            let Some(back) = last else { return };
            if !self.send_back(self.name_of(back.source), &back, OnFull::GiveUp) {
                self.back.owed.borrow_mut().push(back);
                return;
            }
        }
    }
}
