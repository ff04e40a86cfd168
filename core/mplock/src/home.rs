//! A home's state of one lock.
//!
//! The home keeps the *queue*: the nodes that have the lock or wait for it, in the order of their
//! requests. While the lock is away, the first of the queue that has not passed it on is its owner;
//! the home learns of a hand-over from node to node only later, when the lock comes back or an
//! earlier node asks again. Entries that it has named to the entry before them are *linked*:
//! these get the lock from that node. A node that gives the lock back while such an order is on its
//! way ignores the order, and the home grants the lock itself.
//!
//! Readers are granted by the home only. While a reader waits, the entry before it is told to give
//! the lock back, and the entries behind it are not linked.
//!
//! **Deaths.** The lock of a dead node that is in the queue is looked for ([`HomeLock::on_death`]):
//! all nodes of the queue are asked, and from their answer on ignore what was ordered and granted
//! before. So at most one of them holds it, and what was on its way between two of them is void.
//! Of the grants that the home made and the nodes passed on, the one with the largest token names
//! the last receiver: if that one is dead, the owner may have died while it held the lock. So may
//! another one if the receiver lives, and its answer does not name the request that was granted: it
//! has had the lock since, and forgotten it. A second death during this begins it again.
//!
//! **A home that dies**: its successor asks all survivors ([`HomeLock::take_over`]).

use std::collections::VecDeque;

use crate::Outbox;
use crate::message::{
    Epoch, Grant, Holding, Message, MessageBody, Mode, Node, NodeReport, Passage, Successor, Ticket,
};
use crate::protocol::{Protocol, RequestPattern};
use crate::token::Token;

/// Request in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct QueuedRequest {
    node: Node,
    ticket: Ticket,
    mode: Mode,
    /// True if the entry before it was told to pass the lock on to it.
    linked: bool,
}

/// Inquiry that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Inquiry {
    /// Nodes that have not answered yet.
    awaited: Vec<Node>,
    /// Nodes that died.
    dead: Vec<Node>,
    /// Owner that was found.
    owner: Option<QueuedRequest>,
    /// Last passing of the lock, as far as known, by its token.
    receiver: Option<Passage>,
    /// Largest token that a node has given back with the lock.
    returned: Token,
    /// True if no grant before the inquiry is known, and the holder may have died.
    home_died: bool,
    /// Nodes that have answered, each with its last request.
    answered: Vec<(Node, Ticket)>,
}

impl Inquiry {
    fn is_owner(&self, node: Node, ticket: Ticket) -> bool {
        self.owner.is_some_and(|owner| (owner.node, owner.ticket) == (node, ticket))
    }

    /// Returns whether an owner may have died with the lock, which no survivor has.
    fn may_have_died(&self) -> bool {
        let receiver = self.receiver.filter(|passage| passage.token > self.returned);
        // A home that died may have granted it later.
        self.home_died
            || receiver.is_some_and(|Passage { node, ticket, inconsistent, .. }| {
                inconsistent
                    || self.dead.contains(&node)
                    || !self.dead.is_empty() && !self.answered.contains(&(node, ticket))
            })
    }

    /// Notes that the lock came back, with its last token.
    fn note_return(&mut self, token: Token) {
        self.returned = self.returned.max(token);
        self.home_died = false;
    }
}

/// A home's state of one lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HomeLock {
    protocol: Protocol,
    epoch: Epoch,
    /// Largest token that the home knows of.
    token: Token,
    /// True while the lock is at a node that has it exclusively.
    away: bool,
    /// Nodes that have the lock and that wait for it.
    queue: VecDeque<QueuedRequest>,
    /// Readers that hold the lock.
    readers: Vec<(Node, Ticket)>,
    /// Last passing of the lock that the home knows of, while it is away.
    granted: Option<Passage>,
    /// True if an owner died and its work was not repaired since.
    inconsistent: bool,
    pattern: RequestPattern,
    inquiry: Option<Inquiry>,
}

impl HomeLock {
    /// Makes the state of a lock that no node has. `floor`: a token that is not smaller
    /// than any that the lock has had.
    #[must_use]
    pub fn new(protocol: Protocol, epoch: Epoch, floor: Token) -> HomeLock {
        HomeLock {
            protocol,
            epoch,
            token: floor.max(Token::of_epoch(epoch)),
            away: false,
            queue: VecDeque::new(),
            readers: Vec::new(),
            granted: None,
            inconsistent: false,
            pattern: RequestPattern::default(),
            inquiry: None,
        }
    }

    /// Makes the state of a lock whose home is gone, and asks the survivors.
    ///
    /// `epoch`: one that is larger than any before. `dead`: the other nodes, but those that have
    /// left in good order. `home_died`: false if no home before this one is dead.
    pub fn take_over(
        protocol: Protocol,
        epoch: Epoch,
        survivors: &[Node],
        dead: &[Node],
        home_died: bool,
        out: &mut impl Outbox,
    ) -> HomeLock {
        let mut lock = HomeLock::new(protocol, epoch, Token::NONE);
        lock.inquire(survivors.to_vec(), dead.to_vec(), home_died, out);
        lock.end_inquiry(out);
        lock
    }

    /// Returns the largest token that the home knows of.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// Returns whether no node has the lock or waits for it, and nothing has to be
    /// remembered of it but its token.
    #[must_use]
    pub fn is_unused(&self) -> bool {
        !self.away
            && self.queue.is_empty()
            && self.readers.is_empty()
            && self.inquiry.is_none()
            && !self.inconsistent
    }

    /// Returns whether an owner died and no holder has repaired its work since.
    #[must_use]
    pub fn is_inconsistent(&self) -> bool {
        self.inconsistent
    }

    /// Handles a node's message.
    pub fn on_message(&mut self, from: Node, message: &Message, out: &mut impl Outbox) {
        match message.body {
            MessageBody::Request { ticket, mode, seen } => self.on_request(from, ticket, mode, seen, out),
            MessageBody::Return { ticket, token, inconsistent } => {
                self.on_return(from, ticket, token, inconsistent, out);
            }
            MessageBody::Report(report) if message.epoch == self.epoch => self.on_report(from, &report, out),
            _ => {}
        }
    }

    fn on_request(&mut self, from: Node, ticket: Ticket, mode: Mode, seen: Token, out: &mut impl Outbox) {
        if self.readers.contains(&(from, ticket)) {
            return;
        }
        if let Some(at) = self.place_of(from) {
            if self.queue[at].ticket == ticket {
                return;
            }
            if self.inquiry.is_some() {
                // It has withdrawn that request with its answer.
                self.queue.remove(at);
            } else {
                // It has passed the lock on since, and so have those before it.
                self.drop_first(at + 1);
                self.away &= !self.queue.is_empty();
                self.granted = self.granted.zip(self.queue.front()).map(|(passage, first)| Passage {
                    node: first.node,
                    ticket: first.ticket,
                    token: passage.token.max(seen),
                    inconsistent: passage.inconsistent,
                });
            }
        }
        self.token = self.token.max(seen);
        self.readers.retain(|&(node, _)| node != from);
        self.pattern.note(from);
        self.queue.push_back(QueuedRequest { node: from, ticket, mode, linked: false });
        self.advance(out);
    }

    fn on_return(
        &mut self,
        from: Node,
        ticket: Ticket,
        token: Token,
        inconsistent: bool,
        out: &mut impl Outbox,
    ) {
        self.token = self.token.max(token);
        if let Some(at) = self.readers.iter().position(|&reader| reader == (from, ticket)) {
            self.readers.swap_remove(at);
        } else if let Some(at) = self.place_of(from).filter(|&at| self.queue[at].ticket == ticket) {
            self.drop_first(at + 1);
            self.comes_back(token, inconsistent);
        } else if let Some(inquiry) = &self.inquiry
            // A holder of the time of the former home, which returns the lock before it is asked.
            && (inquiry.is_owner(from, ticket) || inquiry.home_died && inquiry.owner.is_none())
        {
            self.comes_back(token, inconsistent);
        }
        self.advance(out);
    }

    /// Notes that the lock is at its home again.
    fn comes_back(&mut self, token: Token, inconsistent: bool) {
        self.away = false;
        self.inconsistent = inconsistent;
        self.granted = None;
        if let Some(inquiry) = &mut self.inquiry {
            inquiry.owner = None;
            inquiry.note_return(token);
        }
    }

    /// Handles a node's death. `epoch`: one that is larger than any before. No message of
    /// that node may follow.
    pub fn on_death(&mut self, node: Node, epoch: Epoch, out: &mut impl Outbox) {
        self.readers.retain(|&(reader, _)| reader != node);
        let waits = self.place_of(node).is_some();
        if self.inquiry.is_none() && !waits {
            return self.advance(out);
        }
        if self.inquiry.is_none() && !self.away {
            // It waits behind readers.
            self.queue.retain(|entry| entry.node != node);
            return self.advance(out);
        }
        self.epoch = epoch;
        let mut asked: Vec<Node> = self.queue.iter().map(|entry| entry.node).collect();
        let (mut dead, mut home_died, mut known) = (Vec::new(), false, self.granted);
        let mut returned = Token::NONE;
        if let Some(before) = self.inquiry.take() {
            asked.extend(before.awaited);
            asked.extend(before.owner.map(|entry| entry.node));
            (dead, home_died, returned) = (before.dead, before.home_died, before.returned);
            known = later(known, before.receiver);
        }
        dead.push(node);
        asked.sort_unstable();
        asked.dedup();
        asked.retain(|other| !dead.contains(other));
        self.queue.retain(|entry| !dead.contains(&entry.node));
        self.inquire(asked, dead, home_died, out);
        if let Some(inquiry) = &mut self.inquiry {
            (inquiry.receiver, inquiry.returned) = (known, returned);
        }
        self.end_inquiry(out);
    }

    /// Asks nodes for the state of the lock.
    fn inquire(&mut self, awaited: Vec<Node>, dead: Vec<Node>, home_died: bool, out: &mut impl Outbox) {
        for entry in &mut self.queue {
            entry.linked = false;
        }
        for &node in &awaited {
            out.to_node(node, Message { epoch: self.epoch, body: MessageBody::Inquire });
        }
        let (owner, receiver, returned, answered) = (None, None, Token::NONE, Vec::new());
        self.inquiry = Some(Inquiry { awaited, dead, owner, receiver, returned, home_died, answered });
    }

    fn on_report(&mut self, from: Node, report: &NodeReport, out: &mut impl Outbox) {
        let Some(inquiry) = &mut self.inquiry else { return };
        let Some(at) = inquiry.awaited.iter().position(|&node| node == from) else { return };
        inquiry.awaited.swap_remove(at);
        inquiry.receiver = later(inquiry.receiver, report.passed);
        let place = self.queue.iter().position(|entry| entry.node == from);
        inquiry.answered.push((from, report.ticket));
        let entry = |mode| QueuedRequest { node: from, ticket: report.ticket, mode, linked: false };
        match report.holding {
            Holding::Waits(mode) => match place {
                Some(at) => self.queue[at] = entry(mode),
                None => self.queue.push_back(entry(mode)),
            },
            other => {
                if let Some(at) = place {
                    self.queue.remove(at);
                }
                match other {
                    Holding::Held { token, mode: Mode::Exclusive, inconsistent } => {
                        inquiry.owner = Some(entry(Mode::Exclusive));
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
                    Holding::GivenUp { token, inconsistent } => {
                        self.token = self.token.max(token);
                        self.inconsistent = inconsistent;
                        self.granted = None;
                        inquiry.note_return(token);
                    }
                    _ => {}
                }
            }
        }
        self.end_inquiry(out);
    }

    /// Ends the inquiry when all have answered.
    fn end_inquiry(&mut self, out: &mut impl Outbox) {
        let Some(inquiry) = self.inquiry.take_if(|inquiry| inquiry.awaited.is_empty()) else { return };
        if let Some(Passage { token, .. }) = inquiry.receiver {
            self.token = self.token.max(token);
        }
        self.token = self.token.max(Token::of_epoch(self.epoch));
        self.granted = inquiry.receiver.filter(|_| inquiry.owner.is_some());
        self.away = inquiry.owner.is_some();
        match inquiry.owner {
            Some(owner) => self.queue.push_front(owner),
            None => {
                self.inconsistent |= inquiry.may_have_died();
            }
        }
        self.advance(out);
    }

    /// Grants the lock to the nodes that may have it now, and links waiters.
    fn advance(&mut self, out: &mut impl Outbox) {
        if self.inquiry.is_some() {
            return;
        }
        while !self.away {
            let Some(&QueuedRequest { node, ticket, mode, .. }) = self.queue.front() else { return };
            if mode == Mode::Exclusive && !self.readers.is_empty() {
                return;
            }
            // Without a token: the epoch's are used up, and the next epoch brings more.
            let Some(token) = self.token.next() else { return };
            self.token = token;
            let grant = Grant {
                ticket,
                token,
                mode,
                cachable: mode == Mode::Exclusive && self.protocol.may_cache(self.pattern),
                previous_owner_died: self.inconsistent,
            };
            out.to_node(node, Message { epoch: self.epoch, body: MessageBody::Grant(grant) });
            match mode {
                Mode::Shared => {
                    self.queue.pop_front();
                    self.readers.push((node, ticket));
                }
                Mode::Exclusive => {
                    self.queue[0].linked = false;
                    self.inconsistent = false;
                    self.granted =
                        Some(Passage { node, ticket, token, inconsistent: grant.previous_owner_died });
                    self.away = true;
                }
            }
        }
        self.link(out);
    }

    /// Names waiters to the entries before them, which pass the lock on.
    fn link(&mut self, out: &mut impl Outbox) {
        let first = self.queue.iter().rposition(|entry| entry.linked).map_or(1, |last| last + 1);
        for at in first..self.queue.len() {
            let (before, entry) = (self.queue[at - 1], self.queue[at]);
            // After a reader, the home grants.
            if before.mode == Mode::Shared {
                return;
            }
            let next = match entry.mode {
                Mode::Exclusive if self.protocol.forwards() => Successor::Node {
                    node: entry.node,
                    ticket: entry.ticket,
                    cachable: self.protocol.may_cache(self.pattern),
                },
                // A node that keeps no lock gives it back without being told.
                _ if !self.protocol.forwards() => return,
                _ => Successor::Home,
            };
            let body = MessageBody::Forward { behind: before.ticket, next };
            out.to_node(before.node, Message { epoch: self.epoch, body });
            self.queue[at].linked = true;
        }
    }

    fn place_of(&self, node: Node) -> Option<usize> {
        self.queue.iter().position(|entry| entry.node == node)
    }

    /// Forgets the first entries: they have had the lock.
    fn drop_first(&mut self, count: usize) {
        self.queue.drain(..count);
        if let Some(first) = self.queue.front_mut() {
            first.linked = false;
        }
    }
}

/// Returns the later one of two passings, by its token.
fn later(a: Option<Passage>, b: Option<Passage>) -> Option<Passage> {
    match (a, b) {
        (Some(x), Some(y)) => Some(if x.token >= y.token { x } else { y }),
        (x, y) => x.or(y),
    }
}
