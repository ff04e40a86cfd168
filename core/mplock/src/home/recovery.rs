//! Recovery of a lock: the inquiry of its home after a death.
//!
//! The lock of a dead node that is in the queue is looked for ([`HomeLock::on_death`]):
//! all nodes of the queue are asked, and from their answer on ignore what was ordered and granted
//! before. So at most one of them holds it, and what was on its way between two of them is void.
//! Of the grants that the home made and the nodes passed on, the one with the largest token names
//! the last receiver: if that one is dead, the owner may have died while it held the lock. So may
//! another one if the receiver lives, and its answer does not name the request that was granted: it
//! has had the lock since, and forgotten it. A second death during this begins it again.
//!
//! **A home that dies**: its successor asks all survivors ([`HomeLock::take_over`]).

use super::{HomeLock, QueuedRequest};
use crate::Outbox;
use crate::message::{Holding, LockRequest, Message, MessageBody, Mode, NodeReport, Passage};
use crate::numbers::{Epoch, Node, Ticket};
use crate::protocol::Protocol;
use crate::token::FencingToken;

/// Inquiry that is under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Inquiry {
    /// Nodes that have not answered yet.
    awaited: Vec<Node>,
    /// Nodes that died.
    dead: Vec<Node>,
    /// Nodes that left in good order.
    left: Vec<Node>,
    /// Owner that was found.
    owner: Option<QueuedRequest>,
    /// Last passing of the lock, as far as known, by its token.
    receiver: Option<Passage>,
    /// Node that has made that passing, if known, and not said so in a report.
    releaser: Option<Node>,
    /// Largest token that a node has given back with the lock.
    returned: FencingToken,
    /// True if no grant before the inquiry is known.
    is_first: bool,
    /// True if no grant before the inquiry is known, and the holder may have died.
    holder_died: bool,
    /// Nodes that have answered, each with its last request.
    answered: Vec<(Node, Ticket)>,
}

impl Inquiry {
    pub(super) fn is_owner(&self, node: Node, ticket: Ticket) -> bool {
        self.owner.is_some_and(|owner| (owner.node, owner.ticket) == (node, ticket))
    }

    /// Returns whether a node may have the lock, as far as it has answered.
    pub(super) fn is_open_to(&self, node: Node) -> bool {
        self.owner.is_none() && self.awaited.contains(&node)
    }

    /// Returns whether an owner may have died with the lock, which no survivor has.
    pub(super) fn may_have_died(&self) -> bool {
        let receiver = self.receiver.filter(|passage| passage.token > self.returned);
        // A home that died may have granted it later.
        self.holder_died
            || receiver.is_some_and(|Passage { node, ticket, inconsistent, .. }| {
                inconsistent
                    || self.dead.contains(&node)
                    // The data that it has published may be lost with it.
                    || self.releaser.is_some_and(|releaser| self.dead.contains(&releaser))
                    // A receiver that has left, or forgotten the lock, may have passed it on.
                    || !self.dead.is_empty() && !self.answered.contains(&(node, ticket))
            })
    }

    /// Notes that the lock came back, with its last token.
    fn note_return(&mut self, token: FencingToken) {
        self.returned = self.returned.max(token);
        (self.is_first, self.holder_died) = (false, false);
    }

    /// Notes that the lock came back from its owner.
    pub(super) fn note_owners_return(&mut self, token: FencingToken) {
        self.owner = None;
        self.note_return(token);
    }
}

impl HomeLock {
    /// Makes the state of a lock whose home is gone, and asks the survivors.
    ///
    /// `epoch`: one that is larger than any before. `dead`: the other nodes, but those that have
    /// left in good order; one of them may have held the lock. `home_died`: false if no home before
    /// this one is dead.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Distributed);
    /// group.acquire(0); // and its home dies, on node 2
    /// group.home =
    ///     HomeLock::take_over(Protocol::Distributed, 2, &[0, 1], &[2], true, &mut group.wire);
    /// group.deliver(); // node 0 says that it has the lock
    /// group.acquire(1);
    /// assert!(group.home.is_awaited());
    /// # }
    /// ```
    pub fn take_over(
        protocol: Protocol,
        epoch: Epoch,
        survivors: &[Node],
        dead: &[Node],
        home_died: bool,
        out: &mut impl Outbox,
    ) -> HomeLock {
        let mut lock = HomeLock::new(protocol, epoch, FencingToken::NONE);
        let inquiry = lock.inquire(survivors.to_vec(), dead.to_vec(), out);
        (inquiry.is_first, inquiry.holder_died) = (true, home_died || !dead.is_empty());
        lock.end_inquiry(out);
        lock
    }

    /// Handles a node's death. `epoch`: one that is larger than any before. No message of
    /// that node may follow.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Central);
    /// group.acquire(0);
    /// group.acquire(1);
    /// group.home.on_death(0, 2, &mut group.wire);
    /// group.deliver();
    /// assert_eq!(group.nodes[1].state(), NodeState::Held(Mode::Exclusive));
    /// # }
    /// ```
    pub fn on_death(&mut self, node: Node, epoch: Epoch, out: &mut impl Outbox) {
        self.on_end(node, epoch, true, out);
    }

    /// Handles the end of a node that has left in good order.
    ///
    /// It did not have the lock, and has deposited its data. Otherwise as [`HomeLock::on_death`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Central);
    /// group.acquire(0);
    /// group.acquire(1); // waits
    /// group.home.on_leave(1, 2, &mut group.wire);
    /// group.deliver();
    /// assert!(!group.home.is_inconsistent() && !group.home.is_awaited());
    /// # }
    /// ```
    pub fn on_leave(&mut self, node: Node, epoch: Epoch, out: &mut impl Outbox) {
        self.on_end(node, epoch, false, out);
    }

    /// Notes that an owner may have died with the former home.
    ///
    /// Without effect if the survivors are not being asked.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Central);
    /// group.home =
    ///     HomeLock::take_over(Protocol::Central, 2, &[0, 1], &[], false, &mut group.wire);
    /// group.home.doubt(); // the former home has died after all
    /// group.deliver();
    /// assert!(group.home.may_be_inconsistent());
    /// # }
    /// ```
    pub fn doubt(&mut self) {
        if let Some(inquiry) = self.inquiry.as_mut().filter(|inquiry| inquiry.is_first) {
            inquiry.holder_died = true;
        }
    }

    /// Notes a token that the lock may have had: its next one is larger.
    ///
    /// For a home that takes a lock over whose state it has dropped in the same epoch.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Central);
    /// let last = FencingToken::of_epoch(1).next().expect("it is the first one");
    /// group.home.note_token(last);
    /// group.acquire(0);
    /// assert!(group.nodes[0].token() > last);
    /// # }
    /// ```
    pub fn note_token(&mut self, token: FencingToken) {
        self.token = self.token.max(token);
    }

    fn on_end(&mut self, node: Node, epoch: Epoch, died: bool, out: &mut impl Outbox) {
        self.readers.retain(|&(reader, _)| reader != node);
        self.tries.retain(|entry| entry.node != node);
        // The lock that it has passed on may be lost with it.
        let passed = self.away && self.releaser == Some(node);
        let waits = passed || self.place_of(node).is_some();
        if self.inquiry.is_none() && !waits {
            return self.advance(out);
        }
        if self.inquiry.is_none() && !self.away && !self.queue.iter().any(|entry| entry.linked) {
            // It waits behind readers, and no node was told of it.
            self.queue.retain(|entry| entry.node != node);
            return self.advance(out);
        }
        self.epoch = epoch;
        let mut asked: Vec<Node> = self.queue.iter().map(|entry| entry.node).collect();
        let (mut dead, mut left, mut known) = (Vec::new(), Vec::new(), self.granted);
        let (mut is_first, mut holder_died) = (false, false);
        let (mut returned, mut releaser) = (FencingToken::NONE, self.releaser);
        if let Some(before) = self.inquiry.take().map(|inquiry| *inquiry) {
            is_first = before.is_first;
            holder_died = before.holder_died || is_first && died && before.awaited.contains(&node);
            asked.extend(before.awaited);
            asked.extend(before.owner.map(|entry| entry.node));
            (dead, returned) = (before.dead, before.returned);
            (left, releaser) = (before.left, before.releaser);
            known = later(known, before.receiver);
        }
        if died {
            dead.push(node);
        } else {
            left.push(node);
        }
        asked.sort_unstable();
        asked.dedup();
        // Requests of those that have ended before are those of successors that have their numbers.
        asked.retain(|&other| other != node);
        self.queue.retain(|entry| entry.node != node);
        let inquiry = self.inquire(asked, dead, out);
        (inquiry.receiver, inquiry.releaser, inquiry.returned) = (known, releaser, returned);
        (inquiry.left, inquiry.is_first, inquiry.holder_died) = (left, is_first, holder_died);
        self.end_inquiry(out);
    }

    /// Asks nodes for the state of the lock.
    fn inquire(&mut self, awaited: Vec<Node>, dead: Vec<Node>, out: &mut impl Outbox) -> &mut Inquiry {
        for entry in &mut self.queue {
            entry.linked = false;
        }
        for &node in &awaited {
            out.to_node(node, Message::new(self.epoch, MessageBody::Inquire));
        }
        self.inquiry.insert(Box::new(Inquiry { awaited, dead, ..Inquiry::default() }))
    }

    pub(super) fn on_report(&mut self, from: Node, report: &NodeReport, out: &mut impl Outbox) {
        let Some(inquiry) = &mut self.inquiry else { return };
        let Some(at) = inquiry.awaited.iter().position(|&node| node == from) else { return };
        inquiry.awaited.swap_remove(at);
        if report.passed.is_some_and(|passed| inquiry.receiver.is_none_or(|known| passed.token > known.token))
        {
            inquiry.releaser = None;
        }
        inquiry.receiver = later(inquiry.receiver, report.passed);
        let place = self.queue.iter().position(|entry| entry.node == from);
        self.tries.retain(|entry| entry.node != from);
        inquiry.answered.push((from, report.ticket));
        let entry = |mode| QueuedRequest::new(from, LockRequest::waiting(report.ticket, mode));
        match report.holding {
            Holding::Waits { mode, tries: true } => {
                let request = LockRequest::trying(report.ticket, mode);
                self.queue.retain(|entry| entry.node != from);
                self.tries.push(QueuedRequest::new(from, request));
            }
            Holding::Waits { mode, tries: false } => match place {
                Some(at) => self.queue[at] = entry(mode),
                None => self.queue.push_back(entry(mode)),
            },
            other => {
                if let Some(at) = place {
                    self.queue.remove(at);
                }
                match other {
                    Holding::Held { token, mode: Mode::Exclusive, inconsistent } => {
                        // It may have been told that it keeps the lock.
                        let cachable = self.protocol.forwards();
                        inquiry.owner = Some(QueuedRequest { cachable, ..entry(Mode::Exclusive) });
                        let held = Passage { node: from, ticket: report.ticket, token, inconsistent };
                        inquiry.receiver = later(inquiry.receiver, Some(held));
                        self.token = self.token.max(token);
                    }
                    Holding::Held { token, mode: Mode::Shared, inconsistent } => {
                        self.inconsistent |= inconsistent;
                        if !self.readers.contains(&(from, report.ticket)) {
                            self.readers.push((from, report.ticket));
                        }
                        self.token = self.token.max(token);
                        inquiry.note_return(token);
                    }
                    Holding::GivenUp { token, inconsistent } => self.on_given_up(token, inconsistent),
                    _ => {}
                }
            }
        }
        self.end_inquiry(out);
    }

    /// Notes that a node which had the lock, and did not use it, has given it up.
    pub(super) fn on_given_up(&mut self, token: FencingToken, inconsistent: bool) {
        let Some(inquiry) = &mut self.inquiry else { return };
        self.token = self.token.max(token);
        self.inconsistent = inconsistent;
        self.granted = None;
        inquiry.note_return(token);
    }

    /// Ends the inquiry when all have answered.
    fn end_inquiry(&mut self, out: &mut impl Outbox) {
        let Some(inquiry) = self.inquiry.take_if(|inquiry| inquiry.awaited.is_empty()) else { return };
        if let Some(Passage { token, .. }) = inquiry.receiver {
            self.token = self.token.max(token);
        }
        self.token = self.token.max(FencingToken::of_epoch(self.epoch));
        self.granted = inquiry.receiver.filter(|_| inquiry.owner.is_some());
        self.away = inquiry.owner.is_some();
        match inquiry.owner {
            Some(owner) => {
                self.queue.push_front(owner);
                for entry in core::mem::take(&mut self.tries) {
                    self.refuse(&entry, out);
                }
            }
            None => {
                self.inconsistent |= inquiry.may_have_died();
            }
        }
        self.advance(out);
    }
}

/// Returns the later one of two passings, by its token; of equal ones either's warning.
///
/// A home does not know whether a node has passed the lock on with a warning, and a node not
/// whether the next one has given it back with one.
fn later(a: Option<Passage>, b: Option<Passage>) -> Option<Passage> {
    match (a, b) {
        (Some(x), Some(y)) if x.token == y.token => {
            Some(Passage { inconsistent: x.inconsistent || y.inconsistent, ..x })
        }
        (Some(x), Some(y)) => Some(if x.token > y.token { x } else { y }),
        (x, y) => x.or(y),
    }
}
