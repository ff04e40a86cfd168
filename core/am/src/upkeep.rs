//! Upkeep of an endpoint: deaths, late heads, and messages that were on the way to the
//! dead.
//!
//! Runs while polling finds no message or a wait lasts, and on demand ([`Endpoint::recover`]).
//!
//! **A receiver that dies** leaves the exact progress that it published: its requesters find the
//! requests that it had not finished, and get them back as unreachable.
//!
//! [`Endpoint::recover`]: crate::Endpoint::recover

use core::sync::atomic::Ordering;
use std::rc::Rc;

use towpath_machine::Processor;

use crate::census::DirectoryCensus;
use crate::claim::Claim;
use crate::directory::Directory;
use crate::domain::Side;
use crate::error::Status;
use crate::outgoing::OnFull;
use crate::outstanding::Outstanding;
use crate::packet::source_code;
use crate::queue::TICKET;
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
        // another process (E2).
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
        let mut in_line = self.take_unhandled(peer);
        let in_stream = self.take_unhandled_records(peer);
        let mut returns = self.back.returns.borrow_mut();
        // A successor that has reset the queues sends back what was there. (E6) Acquire: pairs with
        // the Release (E4) in `open_entry`.
        let is_reset = self.cpu().load(&peer.entry.generation, Ordering::Acquire) != peer.name.generation;
        let me = source_code(self.name.endpoint, self.name.generation);
        let side = &peer.request.side;
        let status = self.reason(peer);
        let in_queue = |until: u64| {
            let mine = |source, ticket| source == me && ticket < until;
            let all = if is_reset {
                Vec::new()
            } else {
                Outstanding::take_all(self.cpu(), side.queue(), side.claim(), peer.name, mine)
            };
            all.into_iter().map(move |mut back| {
                back.returned.status = status;
                back
            })
        };
        let with_its_packets =
            |(order, back): (u64, Outstanding)| in_queue(order & TICKET).chain([back]).collect::<Vec<_>>();
        // In the order in which they were sent.
        for (after, number, back) in in_stream {
            let first = in_line.take_if(|(order, _)| is_before_record(*order, number));
            returns.extend(first.into_iter().flat_map(with_its_packets));
            returns.extend(after.into_iter().flat_map(in_queue));
            returns.push_back(back);
        }
        returns.extend(in_line.into_iter().flat_map(with_its_packets));
        returns.extend(in_queue(u64::MAX));
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
