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
//! **Requests that only try** never wait in the queue. One that finds the lock at its home is
//! granted or refused at once. If the lock is at a node that may keep it, and no other node waits,
//! the home asks that node (*probe*): it gives an idle lock back, and otherwise says that the lock
//! is in use.
//!
//! `recovery.rs` has the rules for deaths.

mod recovery;

use std::collections::VecDeque;

use crate::Outbox;
use crate::data::LockData;
use crate::message::{Grant, Holding, LockRequest, Message, MessageBody, Mode, Passage, Successor};
use crate::numbers::{Epoch, Node, Ticket};
use crate::protocol::{Protocol, RequestPattern};
use crate::token::FencingToken;
use recovery::Inquiry;

/// Request in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct QueuedRequest {
    node: Node,
    ticket: Ticket,
    mode: Mode,
    /// True if it only tries: it is refused where it is not granted at once.
    tries: bool,
    /// True if the entry before it was told to pass the lock on to it.
    linked: bool,
    /// True if the node may keep the lock.
    cachable: bool,
}

impl QueuedRequest {
    fn new(node: Node, LockRequest { ticket, mode, tries }: LockRequest) -> QueuedRequest {
        QueuedRequest { node, ticket, mode, tries, linked: false, cachable: false }
    }
}

/// A home's state of one lock.
///
/// The `Group` in the examples is a home and three nodes, whose messages it delivers
/// (`doc/group.rs`).
///
/// ```
/// use std::collections::VecDeque;
/// use towpath::mplock::{FencingToken, HomeLock, LockRequest, Message, Mode, Node};
/// use towpath::mplock::{NodeLock, NodeState, Outbox, Protocol};
///
/// /// Messages on their way to a node, or to the home (`None`).
/// #[derive(Default)]
/// struct Wire(VecDeque<(Option<Node>, Message)>);
///
/// impl Outbox for Wire {
///     fn to_home(&mut self, message: Message) {
///         self.0.push_back((None, message));
///     }
///     fn to_node(&mut self, node: Node, message: Message) {
///         self.0.push_back((Some(node), message));
///     }
/// }
///
/// let mut home = HomeLock::new(Protocol::Central, 1, FencingToken::NONE);
/// let (mut node, mut wire) = (NodeLock::default(), Wire::default());
/// let decision = node.acquire(LockRequest::waiting(1, Mode::Exclusive), &mut wire);
/// assert_eq!(decision, None, "the home decides");
/// while let Some((to, message)) = wire.0.pop_front() {
///     match to {
///         None => home.on_message(0, &message, &mut wire),
///         Some(_) => drop(node.on_message(&message, &mut wire)),
///     }
/// }
/// assert!(matches!(node.state(), NodeState::Held(_)));
/// assert!(!home.is_unused());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HomeLock {
    protocol: Protocol,
    epoch: Epoch,
    /// Largest token that the home knows of.
    token: FencingToken,
    /// True while the lock is at a node that has it exclusively.
    away: bool,
    /// Nodes that have the lock and that wait for it.
    queue: VecDeque<QueuedRequest>,
    /// Requests that only try, and are to be answered when the lock's state is known.
    tries: Vec<QueuedRequest>,
    /// Readers that hold the lock.
    readers: Vec<(Node, Ticket)>,
    /// Last passing of the lock that the home knows of, while it is away.
    granted: Option<Passage>,
    /// Node that has made it, if that was not the home.
    releaser: Option<Node>,
    /// True if an owner died and its work was not repaired since.
    inconsistent: bool,
    pattern: RequestPattern,
    inquiry: Option<Box<Inquiry>>,
    /// Data of the last release that the home knows of.
    data: Option<LockData>,
    /// Token up to which data that are not known here are out of date.
    data_floor: FencingToken,
}

impl HomeLock {
    /// Makes the state of a lock that no node has. `floor`: a token that is not smaller
    /// than any that the lock has had.
    ///
    /// ```
    /// use towpath::mplock::{FencingToken, HomeLock, Protocol};
    ///
    /// let home = HomeLock::new(Protocol::Central, 1, FencingToken::from_number(9));
    /// assert!(home.is_unused() && home.token() >= FencingToken::from_number(9));
    /// ```
    #[must_use]
    pub fn new(protocol: Protocol, epoch: Epoch, floor: FencingToken) -> HomeLock {
        HomeLock {
            protocol,
            epoch,
            token: floor.max(FencingToken::of_epoch(epoch)),
            away: false,
            queue: VecDeque::new(),
            tries: Vec::new(),
            readers: Vec::new(),
            granted: None,
            releaser: None,
            inconsistent: false,
            pattern: RequestPattern::default(),
            inquiry: None,
            data: None,
            data_floor: floor,
        }
    }

    /// Returns the largest token that the home knows of.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Central);
    /// let before = group.home.token();
    /// group.acquire(0);
    /// assert!(group.home.token() > before); // that of the grant
    /// # }
    /// ```
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Returns whether no node has the lock or waits for it, it has no data, and nothing
    /// has to be remembered of it but its token.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Central);
    /// group.acquire(0);
    /// assert!(!group.home.is_unused());
    /// group.release(0, 0);
    /// assert!(group.home.is_unused()); // the home may forget it, and remembers its token
    /// # }
    /// ```
    #[must_use]
    pub fn is_unused(&self) -> bool {
        !self.away
            && self.queue.is_empty()
            && self.readers.is_empty()
            && self.tries.is_empty()
            && self.inquiry.is_none()
            && !self.inconsistent
            && self.data.as_ref().is_none_or(|data| data.bytes().is_empty())
    }

    /// Returns the data of the last release that the home knows of.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Central);
    /// group.acquire(0);
    /// group.nodes[0].publish(b"seven");
    /// group.release(0, 0);
    /// assert_eq!(group.home.data().map(LockData::bytes), Some(&b"seven"[..]));
    /// # }
    /// ```
    #[must_use]
    pub fn data(&self) -> Option<&LockData> {
        self.data.as_ref()
    }

    /// Notes data of the lock; the home keeps the latest ones.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Central);
    /// let [old, new] = [1, 2].map(|n| LockData::new(FencingToken::from_number(n), &[n as u8]));
    /// for data in [new, old] {
    ///     group.home.note_data(&data.expect("it is short"));
    /// }
    /// assert_eq!(group.home.data().map(LockData::bytes), Some(&[2][..])); // the later ones
    /// # }
    /// ```
    pub fn note_data(&mut self, data: &LockData) {
        let known = self.data.as_ref().map_or(FencingToken::NONE, LockData::version);
        if data.version() > known.max(self.data_floor) {
            self.data = Some(data.clone());
        }
    }

    /// Returns whether an owner died and no holder has repaired its work since.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Central);
    /// group.acquire(0);
    /// group.home.on_death(0, 2, &mut group.wire);
    /// assert!(group.home.is_inconsistent()); // the next holder is told
    /// # }
    /// ```
    #[must_use]
    pub fn is_inconsistent(&self) -> bool {
        self.inconsistent
    }

    /// Returns whether the next holder is to be told of a death, as far as known.
    ///
    /// Also if the last grant, which may not have arrived, has told of it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Central);
    /// group.acquire(0);
    /// group.home.on_death(0, 2, &mut group.wire);
    /// group.acquire(1); // is told, and may die as well before it hears of it
    /// assert!(group.home.may_be_inconsistent() && !group.home.is_inconsistent());
    /// # }
    /// ```
    #[must_use]
    pub fn may_be_inconsistent(&self) -> bool {
        self.inconsistent
            || self.granted.is_some_and(|passage| passage.inconsistent)
            || self.inquiry.as_ref().is_some_and(|inquiry| inquiry.may_have_died())
    }

    /// Returns whether a node waits for the lock.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Central);
    /// group.acquire(0);
    /// assert!(!group.home.is_awaited());
    /// group.acquire(1);
    /// assert!(group.home.is_awaited());
    /// # }
    /// ```
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.queue.len() > usize::from(self.away) || self.inquiry.is_some()
    }

    /// Handles a node's message.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Central);
    /// let request = LockRequest::waiting(1, Mode::Exclusive);
    /// let body = MessageBody::Request { request, seen: FencingToken::NONE, warned: false };
    /// group.home.on_message(2, &Message::new(1, body), &mut group.wire);
    /// let (_, to, answer) = group.wire.sent.pop_front().expect("a grant");
    /// assert!(to == Some(2) && matches!(answer.body, MessageBody::Grant(_)));
    /// # }
    /// ```
    pub fn on_message(&mut self, from: Node, message: &Message, out: &mut impl Outbox) {
        match message.body {
            MessageBody::Request { request, seen, warned } => {
                message.data.iter().for_each(|data| self.note_data(data));
                self.on_request(from, request, seen, warned, out);
            }
            MessageBody::InUse { node, ticket } => self.on_use(node, ticket, out),
            MessageBody::Return { ticket, token, inconsistent } => {
                if self.on_return(from, ticket, token, inconsistent) {
                    message.data.iter().for_each(|data| self.note_data(data));
                }
                self.advance(out);
            }
            MessageBody::Report(report) => {
                message.data.iter().for_each(|data| self.note_data(data));
                if message.epoch == self.epoch {
                    self.on_report(from, &report, out);
                } else if let Holding::GivenUp { token, inconsistent } = report.holding {
                    // It answers an inquiry that a death has interrupted: the next answer says no
                    // more of it.
                    self.on_given_up(token, inconsistent);
                }
            }
            MessageBody::Deposit => {
                if let Some(data) = &message.data {
                    self.note_data(data);
                    let stored = MessageBody::Stored { version: data.version() };
                    out.to_node(from, Message::new(self.epoch, stored));
                }
            }
            _ => {}
        }
    }

    /// Handles a request.
    ///
    /// `seen`: the largest token that the node has seen; `warned`: it has passed the lock on with a
    /// warning, under that token.
    fn on_request(
        &mut self,
        from: Node,
        request: LockRequest,
        seen: FencingToken,
        warned: bool,
        out: &mut impl Outbox,
    ) {
        let ticket = request.ticket;
        if self.readers.contains(&(from, ticket)) || self.is_trying(from, ticket) {
            return;
        }
        self.tries.retain(|entry| entry.node != from);
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
                self.releaser = Some(from);
                self.granted = self.granted.zip(self.queue.front()).map(|(passage, first)| Passage {
                    node: first.node,
                    ticket: first.ticket,
                    token: passage.token.max(seen),
                    inconsistent: passage.inconsistent || warned,
                });
            }
        }
        self.token = self.token.max(seen);
        self.readers.retain(|&(node, _)| node != from);
        let entry = QueuedRequest::new(from, request);
        if request.tries && self.inquiry.is_some() {
            self.tries.push(entry);
        } else if request.tries && self.away {
            self.try_away(entry, out);
        } else {
            if !request.tries {
                self.pattern.note(from);
            }
            self.queue.push_back(entry);
        }
        self.advance(out);
    }

    /// Handles a request that only tries, while the lock is away.
    fn try_away(&mut self, entry: QueuedRequest, out: &mut impl Outbox) {
        match self.queue.front() {
            Some(owner) if owner.cachable && self.queue.len() == 1 => {
                let (behind, to) = (owner.ticket, owner.node);
                let body = MessageBody::Probe { behind, node: entry.node, ticket: entry.ticket };
                out.to_node(to, Message::new(self.epoch, body));
                self.tries.push(entry);
            }
            _ => self.refuse(&entry, out),
        }
    }

    /// Notes that the owner of the lock uses it, while another node tries to get it.
    fn on_use(&mut self, node: Node, ticket: Ticket, out: &mut impl Outbox) {
        if let Some(at) = self.tries.iter().position(|entry| (entry.node, entry.ticket) == (node, ticket)) {
            let entry = self.tries.swap_remove(at);
            self.refuse(&entry, out);
        }
    }

    fn refuse(&self, entry: &QueuedRequest, out: &mut impl Outbox) {
        let body = MessageBody::Refuse { ticket: entry.ticket };
        out.to_node(entry.node, Message::new(self.epoch, body));
    }

    fn is_trying(&self, node: Node, ticket: Ticket) -> bool {
        self.tries.iter().any(|entry| (entry.node, entry.ticket) == (node, ticket))
    }

    /// Handles a lock that comes back. Returns whether it was away to that node.
    fn on_return(&mut self, from: Node, ticket: Ticket, token: FencingToken, inconsistent: bool) -> bool {
        self.token = self.token.max(token);
        if let Some(at) = self.readers.iter().position(|&reader| reader == (from, ticket)) {
            self.readers.swap_remove(at);
        } else if let Some(at) = self.place_of(from).filter(|&at| self.queue[at].ticket == ticket) {
            if self.inquiry.is_some() {
                // Under a loan it had the lock before its turn: those before it may wait.
                self.queue.remove(at);
            } else {
                self.drop_first(at + 1);
            }
            self.comes_back(token, inconsistent);
        } else if let Some(inquiry) = &self.inquiry
            // A holder of the time of the former home, which returns the lock before it is asked.
            && (inquiry.is_owner(from, ticket) || inquiry.is_open_to(from))
        {
            self.comes_back(token, inconsistent);
        } else {
            return false;
        }
        true
    }

    /// Notes that the lock is at its home again.
    fn comes_back(&mut self, token: FencingToken, inconsistent: bool) {
        self.away = false;
        self.inconsistent = inconsistent;
        (self.granted, self.releaser) = (None, None);
        if let Some(inquiry) = &mut self.inquiry {
            inquiry.note_owners_return(token);
        }
    }

    /// Grants the lock to the nodes that may have it now, and links waiters.
    fn advance(&mut self, out: &mut impl Outbox) {
        if self.inquiry.is_some() {
            return;
        }
        if !self.away {
            // They came before those that wait: the lock was at a node that kept it.
            self.tries.drain(..).rev().for_each(|entry| self.queue.push_front(entry));
        }
        self.grant(out);
        if self.queue.iter().any(|entry| entry.tries) {
            let (refused, rest) = self.queue.drain(..).partition(|entry| entry.tries);
            self.queue = rest;
            VecDeque::iter(&refused).for_each(|entry| self.refuse(entry, out));
        }
        // The first waiter behind readers gets the lock from the home.
        if self.away {
            self.link(out);
        }
    }

    /// Grants the lock to the nodes that may have it now.
    fn grant(&mut self, out: &mut impl Outbox) {
        while !self.away {
            let Some(&QueuedRequest { node, ticket, mode, tries, .. }) = self.queue.front() else { return };
            if mode == Mode::Exclusive && !self.readers.is_empty() {
                return;
            }
            // Without a token: the epoch's are used up, and the next epoch brings more.
            let Some(token) = self.token.next() else { return };
            // The holder goes on with the data that are known here: a node that has other ones of
            // before, whose loss a holder was told, may name them later.
            self.data_floor = self.token;
            self.token = token;
            if tries {
                self.pattern.note(node);
            }
            let grant = Grant {
                ticket,
                token,
                mode,
                cachable: mode == Mode::Exclusive
                    && self.protocol.may_cache(self.pattern, self.queue.len() > 1),
                previous_owner_died: self.inconsistent,
            };
            let (epoch, data) = (self.epoch, self.data.clone());
            out.to_node(node, Message { epoch, body: MessageBody::Grant(grant), data });
            match mode {
                Mode::Shared => {
                    self.queue.pop_front();
                    self.readers.push((node, ticket));
                }
                Mode::Exclusive => {
                    let owner = &mut self.queue[0];
                    (owner.tries, owner.linked, owner.cachable) = (false, false, grant.cachable);
                    self.inconsistent = false;
                    let inconsistent = grant.previous_owner_died;
                    self.granted = Some(Passage { node, ticket, token, inconsistent });
                    self.releaser = None;
                    self.away = true;
                }
            }
        }
    }

    /// Names waiters to the entries before them, which pass the lock on.
    fn link(&mut self, out: &mut impl Outbox) {
        for at in 1..self.queue.len() {
            let (before, entry) = (self.queue[at - 1], self.queue[at]);
            if entry.linked {
                continue;
            }
            // After a reader, the home grants.
            if before.mode == Mode::Shared {
                return;
            }
            // The one before may not use it any more: two others wait if it is contended.
            let cachable =
                entry.mode == Mode::Exclusive && self.protocol.may_cache(self.pattern, self.queue.len() > 2);
            let next = match entry.mode {
                Mode::Exclusive if self.protocol.forwards() => {
                    Successor::Node { node: entry.node, ticket: entry.ticket, cachable }
                }
                // A node that keeps no lock gives it back without being told.
                _ if !self.protocol.forwards() => return,
                _ => Successor::Home,
            };
            let body = MessageBody::Forward { behind: before.ticket, next };
            out.to_node(before.node, Message::new(self.epoch, body));
            (self.queue[at].linked, self.queue[at].cachable) = (true, cachable);
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
