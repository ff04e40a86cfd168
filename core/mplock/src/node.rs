//! A node's state of one lock.
//!
//! ```text
//!            acquire: Request          Grant
//!   Absent ───────────────────▶ Waits ───────▶ Held ◀──┐ acquire
//!     ▲  ▲        Refuse          │ ▲            │     │
//!     │  │ ◀──────────────────────┤ │            │     │
//!     │  │                 cancel ▼ │ acquire    │ release, cachable, no successor
//!     │  │  Grant: passed on    Abandoned        ▼     │
//!     │  └───────────────────────┘             Cached ─┘
//!     │  release: Grant to the successor, or Return     │
//!     └─────────────────────────────────────────────────┘ Forward, Probe, Inquire
//! ```
//!
//! `Kept` is as `Cached`, but the next node waits: a holder that is to go on keeps the lock for a
//! number of acquisitions ([`NodeLock::release`]), and passes it on then or when it is told to.
//!
//! **A node that dies** is noticed by its home's carrier ([`crate::HomeLock::on_death`]). The place
//! of a waiter passes to the one behind it; a holder's lock is granted anew.

mod lending;

use crate::Outbox;
use crate::data::LockData;
use crate::loan::Loan;
use crate::message::{
    Decision, Grant, Holding, LockRequest, Message, MessageBody, Mode, NodeReport, Passage, Successor,
};
use crate::numbers::{Epoch, Node, Ticket};
use crate::token::FencingToken;
pub use lending::LoanEntry;

/// Node of a passing to the lock's home.
const HOME: Node = Node::MAX;

/// State of a lock at a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NodeState {
    /// The node has nothing to do with the lock.
    #[default]
    Absent,
    /// Request for the lock sent, grant awaited.
    Waits(Mode),
    /// Request for the lock sent and withdrawn since.
    Abandoned {
        /// Kind of access that it asked for.
        mode: Mode,
        /// Request that follows when this one is over.
        then: Option<LockRequest>,
    },
    /// Lock held; `Shared`: beside other nodes.
    Held(Mode),
    /// Lock here, and not used.
    Cached,
    /// Lock here, and not used, though another node waits for it.
    Kept,
}

/// A node's state of one lock.
///
/// The `Group` in the examples is a home and three nodes, whose messages it delivers
/// (`doc/group.rs`).
///
/// ```
/// use towpath::mplock::{LockRequest, Message, Mode, Node, NodeLock, NodeState, Outbox};
///
/// /// Messages to the home.
/// struct ToHome(Vec<Message>);
///
/// impl Outbox for ToHome {
///     fn to_home(&mut self, message: Message) {
///         self.0.push(message);
///     }
///     fn to_node(&mut self, _: Node, _: Message) {}
/// }
///
/// let (mut node, mut out) = (NodeLock::default(), ToHome(Vec::new()));
/// assert!(node.is_absent());
/// node.acquire(LockRequest::waiting(1, Mode::Shared), &mut out);
/// assert!(matches!(node.state(), NodeState::Waits(Mode::Shared)));
/// assert_eq!(out.0.len(), 1, "the request; the answer comes to `on_message`");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeLock {
    state: NodeState,
    epoch: Epoch,
    /// Its last request.
    ticket: Ticket,
    /// True if that one is refused where another node has the lock.
    tries: bool,
    /// Largest token that it knows of.
    token: FencingToken,
    /// Receiver of the lock after this node.
    next: Option<Successor>,
    /// True if it may keep the lock.
    cachable: bool,
    /// True if the holder only reads.
    reads: bool,
    /// True if an owner died and its work was not repaired since.
    inconsistent: bool,
    /// Number of acquisitions since the lock came here.
    uses: u32,
    /// Its last passing of the lock to another node.
    passed: Option<Passage>,
    /// Data of the lock, as far as it knows.
    data: Option<LockData>,
    /// True if they have been sent home.
    deposited: bool,
    /// True if the node forgets them when the home has them.
    forgets: bool,
    /// Loan of the lock to the next node.
    lent: Option<Loan>,
    /// Loan of the lock to this node, which waits.
    offer: Option<Loan>,
    /// True if the lock is held under it.
    borrowed: bool,
    /// True if the next node has been told of the loan, by this node or to it.
    told: bool,
}

impl NodeLock {
    /// Returns its state.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Distributed);
    /// group.acquire(0);
    /// assert_eq!(group.nodes[0].state(), NodeState::Held(Mode::Exclusive));
    /// group.release(0, 0);
    /// assert_eq!(group.nodes[0].state(), NodeState::Cached); // for its next acquisition
    /// # }
    /// ```
    #[inline]
    #[must_use]
    pub fn state(&self) -> NodeState {
        self.state
    }

    /// Returns the largest token that it knows of: while the lock is held, the holder's.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Central);
    /// let mut tokens = Vec::new();
    /// for node in [0, 1, 0] {
    ///     group.acquire(node);
    ///     tokens.push(group.nodes[usize::from(node)].token());
    ///     group.release(node, 0);
    /// }
    /// assert!(tokens.is_sorted() && tokens[0] < tokens[2]);
    /// # }
    /// ```
    #[inline]
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Returns whether the next node waits for the lock, as far as known here.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Distributed);
    /// group.acquire(0);
    /// group.acquire(1);
    /// assert!(group.nodes[0].is_wanted()); // the home has named node 1
    /// # }
    /// ```
    #[inline]
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.next.is_some()
    }

    /// Returns the number of acquisitions since the lock came here.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Distributed);
    /// for _ in 0..3 {
    ///     group.acquire(0);
    ///     group.release(0, 0);
    /// }
    /// assert_eq!(group.nodes[0].uses(), 3); // with one message to the home
    /// # }
    /// ```
    #[inline]
    #[must_use]
    pub fn uses(&self) -> u32 {
        self.uses
    }

    /// Returns the lock's data: while the lock is held, those that came with the grant.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Central);
    /// group.acquire(0);
    /// group.nodes[0].publish(b"seven");
    /// group.release(0, 0);
    /// group.acquire(1);
    /// assert_eq!(group.nodes[1].data().map(LockData::bytes), Some(&b"seven"[..]));
    /// # }
    /// ```
    #[inline]
    #[must_use]
    pub fn data(&self) -> Option<&LockData> {
        self.data.as_ref()
    }

    /// Returns whether its state can be forgotten: the node neither has the lock nor
    /// waits, has passed on no warning, and has no data.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Central);
    /// group.acquire(0);
    /// group.release(0, 0);
    /// assert!(group.nodes[0].is_absent()); // the lock is at its home again
    /// # }
    /// ```
    #[must_use]
    pub fn is_absent(&self) -> bool {
        self.state == NodeState::Absent && !self.has_warned() && self.data.is_none()
    }

    /// Returns whether it has passed the lock on with a warning, and not had it since.
    ///
    /// The next holder may not have heard of it, so a node that leaves says that an owner died.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Central);
    /// group.acquire(0);
    /// group.home.on_death(0, 2, &mut group.wire);
    /// group.acquire(1); // is told of the death
    /// group.nodes[1].release(false, 0, &mut group.wire); // and repairs nothing
    /// assert!(group.nodes[1].has_warned());
    /// # }
    /// ```
    #[must_use]
    pub fn has_warned(&self) -> bool {
        self.passed.is_some_and(|passed| passed.inconsistent)
    }

    /// Asks for the lock. Returns the decision, if it is made here; otherwise
    /// [`NodeLock::on_message`] returns it later.
    ///
    /// The request's ticket is a number that the node has not used for this lock before. A request
    /// that only tries is refused at once while an earlier one, which waited and was withdrawn, is
    /// still in the queue.
    ///
    /// # Panics
    ///
    /// If the node holds the lock or waits for it: it has one request at a time.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Distributed);
    /// let request = |ticket| LockRequest::waiting(ticket, Mode::Exclusive);
    /// assert_eq!(group.nodes[0].acquire(request(1), &mut group.wire), None); // the home decides
    /// group.deliver();
    /// group.release(0, 0); // the node keeps the idle lock …
    /// let decision = group.nodes[0].acquire(request(2), &mut group.wire);
    /// assert!(matches!(decision, Some(Decision::Granted(_)))); // … and decides itself
    /// # }
    /// ```
    pub fn acquire(&mut self, request: LockRequest, out: &mut impl Outbox) -> Option<Decision> {
        self.forgets = false;
        match self.state {
            NodeState::Cached | NodeState::Kept => {
                if let Some(token) = self.token.next() {
                    self.token = token;
                    self.uses = self.uses.saturating_add(1);
                    // To the home and the other nodes it is the owner, also while it only reads.
                    self.state = NodeState::Held(Mode::Exclusive);
                    self.reads = request.mode == Mode::Shared;
                    return Some(Decision::Granted(self.grant(request.mode)));
                }
                // The epoch's tokens are used up: only a new epoch has more.
                self.give_back(out);
                self.request(request, out);
            }
            NodeState::Absent => self.request(request, out),
            NodeState::Abandoned { .. } if request.tries && !self.tries => return Some(Decision::Refused),
            NodeState::Abandoned { mode: asked, .. } => {
                self.state = if (asked, self.tries) == (request.mode, request.tries) {
                    NodeState::Waits(asked)
                } else {
                    NodeState::Abandoned { mode: asked, then: Some(request) }
                };
            }
            NodeState::Waits(_) | NodeState::Held(_) => panic!("a node has one request for a lock at a time"),
        }
        None
    }

    /// Withdraws the request that waits: the lock passes by when its turn comes. Nothing
    /// happens if none waits.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Central);
    /// group.acquire(0);
    /// group.acquire(1);
    /// group.nodes[1].cancel();
    /// group.release(0, 0);
    /// assert_eq!(group.nodes[1].state(), NodeState::Absent); // the lock has passed by
    /// # }
    /// ```
    pub fn cancel(&mut self) {
        match &mut self.state {
            NodeState::Waits(mode) => self.state = NodeState::Abandoned { mode: *mode, then: None },
            NodeState::Abandoned { then, .. } => *then = None,
            _ => {}
        }
    }

    /// Replaces the lock's data, right before its holder releases it.
    ///
    /// The new ones go with the next grant. Returns false, without an effect, if the node does not
    /// hold the lock alone, or there are too many bytes.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Central);
    /// assert!(!group.nodes[0].publish(b"seven")); // it does not hold the lock
    /// group.acquire(0);
    /// assert!(group.nodes[0].publish(b"seven"));
    /// # }
    /// ```
    pub fn publish(&mut self, bytes: &[u8]) -> bool {
        if self.state != NodeState::Held(Mode::Exclusive) || self.reads {
            return false;
        }
        let data = LockData::new(self.token, bytes);
        let accepted = data.is_some();
        if accepted {
            (self.data, self.deposited) = (data, false);
        }
        accepted
    }

    /// Releases the lock. `consistent`: false if the holder was told that the previous
    /// owner died, and has not repaired what it left (a reader never has).
    ///
    /// `hold`: the number of acquisitions, since the lock came here, for which the node keeps it
    /// while another one waits; 0 where the lock is to go on at once. It may be another number each
    /// time: the caller knows the time, and whether the waiter has a core. A lock that is kept is
    /// passed on by [`NodeLock::hand_over`], by a release with a smaller number, or by
    /// [`NodeLock::give_up`].
    ///
    /// # Panics
    ///
    /// If the node does not hold the lock.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Distributed);
    /// group.acquire(0);
    /// group.acquire(1);
    /// group.nodes[0].release(true, 10, &mut group.wire);
    /// assert_eq!(group.nodes[0].state(), NodeState::Kept); // for nine acquisitions more
    /// # }
    /// ```
    pub fn release(&mut self, consistent: bool, hold: u32, out: &mut impl Outbox) {
        let NodeState::Held(_) = self.state else { panic!("a lock that is not held was released") };
        debug_assert!(self.lent.is_none() && !self.borrowed, "the carrier leaves the seat of a loan first");
        if !self.reads {
            self.inconsistent = !consistent;
        }
        match self.next {
            Some(Successor::Node { .. }) if self.uses < hold => self.state = NodeState::Kept,
            Some(next) => self.pass_on(next, out),
            None if self.cachable => self.state = NodeState::Cached,
            None => self.give_back(out),
        }
    }

    /// Gives the lock back to its home, if this node has it, and neither uses it nor has
    /// lent it.
    ///
    /// So it does with the lock's data, and forgets them when the home says that it has them.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Distributed);
    /// group.acquire(0);
    /// group.release(0, 0);
    /// group.nodes[0].give_up(&mut group.wire); // the process leaves
    /// group.deliver();
    /// assert!(group.nodes[0].is_absent() && group.home.is_unused());
    /// # }
    /// ```
    pub fn give_up(&mut self, out: &mut impl Outbox) {
        self.hand_over(out);
        if self.state == NodeState::Cached {
            self.give_back(out);
        }
        let is_used = matches!(self.state, NodeState::Held(_) | NodeState::Waits(_));
        if self.data.is_some() && !is_used && !self.forgets {
            out.to_home(self.message_with_data(MessageBody::Deposit));
            (self.deposited, self.forgets) = (true, true);
        }
    }

    /// Passes a lock that is kept, and not lent, on to the node that waits for it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Distributed);
    /// group.acquire(0);
    /// group.acquire(1);
    /// group.release(0, 10); // keeps it
    /// group.nodes[0].hand_over(&mut group.wire); // its time is over
    /// group.deliver();
    /// assert_eq!(group.nodes[1].state(), NodeState::Held(Mode::Exclusive));
    /// # }
    /// ```
    pub fn hand_over(&mut self, out: &mut impl Outbox) {
        if let (NodeState::Kept, Some(next), None) = (self.state, self.next, self.lent) {
            self.pass_on(next, out);
        }
    }

    /// Notes that the lock has another home, which may not have its data.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Central);
    /// group.acquire(0);
    /// group.nodes[0].publish(b"seven");
    /// group.release(0, 0);
    /// group.nodes[0].give_up(&mut group.wire);
    /// group.wire.sent.clear(); // the home leaves before it answers
    /// group.nodes[0].note_new_home();
    /// group.nodes[0].give_up(&mut group.wire);
    /// assert!(matches!(group.wire.sent[0].2.body, MessageBody::Deposit)); // once more
    /// # }
    /// ```
    pub fn note_new_home(&mut self) {
        (self.deposited, self.forgets) = (false, false);
    }

    /// Handles a message from the home or another node. Returns the decision that the
    /// node's request has waited for.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Central);
    /// let request = LockRequest::trying(1, Mode::Exclusive);
    /// group.nodes[0].acquire(request, &mut group.wire);
    /// let refusal = Message::new(1, MessageBody::Refuse { ticket: 1 });
    /// let decision = group.nodes[0].on_message(&refusal, &mut group.wire);
    /// assert_eq!(decision, Some(Decision::Refused));
    /// # }
    /// ```
    pub fn on_message(&mut self, message: &Message, out: &mut impl Outbox) -> Option<Decision> {
        if message.epoch < self.epoch {
            return None;
        }
        match message.body {
            MessageBody::Grant(grant) => return self.on_grant(message, &grant, out),
            MessageBody::Forward { behind, next } if behind == self.ticket => {
                self.epoch = message.epoch;
                match self.state {
                    NodeState::Cached => self.pass_on(next, out),
                    // The lock is on its way home: the home passes it on.
                    NodeState::Absent => {}
                    _ => (self.next, self.told) = (Some(next), false),
                }
            }
            MessageBody::Refuse { ticket } => return self.on_refusal(ticket, out),
            MessageBody::Probe { behind, node, ticket } if behind == self.ticket => match self.state {
                NodeState::Cached => self.give_back(out),
                // The lock is on its way home.
                NodeState::Absent => {}
                _ => out.to_home(self.message(MessageBody::InUse { node, ticket })),
            },
            MessageBody::Inquire => self.on_inquiry(message.epoch, out),
            MessageBody::Lend { ticket, loan } => self.on_offer(message, ticket, loan),
            MessageBody::Stored { version } if self.forgets => {
                self.data.take_if(|data| data.version() == version);
            }
            _ => {}
        }
        None
    }

    fn on_refusal(&mut self, ticket: Ticket, out: &mut impl Outbox) -> Option<Decision> {
        if ticket != self.ticket || !self.tries {
            return None;
        }
        match core::mem::take(&mut self.state) {
            NodeState::Waits(_) => return Some(Decision::Refused),
            NodeState::Abandoned { then: Some(request), .. } => self.request(request, out),
            NodeState::Abandoned { then: None, .. } => {}
            other => self.state = other,
        }
        None
    }

    fn on_grant(&mut self, message: &Message, grant: &Grant, out: &mut impl Outbox) -> Option<Decision> {
        if grant.ticket != self.ticket {
            return None;
        }
        let (NodeState::Waits(_) | NodeState::Abandoned { .. }) = self.state else { return None };
        let before = self.state;
        (self.epoch, self.offer) = (message.epoch, None);
        self.data.clone_from(&message.data);
        (self.deposited, self.forgets) = (false, false);
        // The lock has come back since.
        self.passed = None;
        self.token = self.token.max(grant.token);
        self.state = NodeState::Held(grant.mode);
        self.reads = grant.mode == Mode::Shared;
        self.uses = 1;
        self.cachable = grant.cachable && grant.mode == Mode::Exclusive;
        self.inconsistent = grant.previous_owner_died;
        let NodeState::Abandoned { then, .. } = before else { return Some(Decision::Granted(*grant)) };
        self.release(!self.inconsistent, 0, out);
        self.acquire(then?, out)
    }

    /// Answers the home's inquiry. Orders of earlier epochs count no more.
    fn on_inquiry(&mut self, epoch: Epoch, out: &mut impl Outbox) {
        debug_assert!(self.lent.is_none(), "the carrier ends a loan before an inquiry");
        self.epoch = epoch;
        self.next = None;
        // A borrower that has the seat has the lock by its answer.
        (self.offer, self.borrowed) = (None, false);
        let mut then = None;
        let holding = match self.state {
            NodeState::Absent => Holding::Absent,
            NodeState::Waits(mode) => Holding::Waits { mode, tries: self.tries },
            NodeState::Abandoned { then: next, .. } => {
                then = next;
                Holding::Absent
            }
            NodeState::Held(mode) => {
                Holding::Held { token: self.token, mode, inconsistent: self.inconsistent }
            }
            NodeState::Cached | NodeState::Kept => {
                self.note_warning_to_home();
                Holding::GivenUp { token: self.token, inconsistent: self.inconsistent }
            }
        };
        if matches!(self.state, NodeState::Abandoned { .. } | NodeState::Cached | NodeState::Kept) {
            self.state = NodeState::Absent;
        }
        let report = NodeReport { ticket: self.ticket, holding, passed: self.passed };
        out.to_home(self.message_with_data(MessageBody::Report(report)));
        self.deposited = true;
        if let Some(request) = then {
            self.request(request, out);
        }
    }

    fn request(&mut self, request: LockRequest, out: &mut impl Outbox) {
        (self.ticket, self.tries) = (request.ticket, request.tries);
        (self.next, self.offer) = (None, None);
        self.state = NodeState::Waits(request.mode);
        let body = MessageBody::Request { request, seen: self.token, warned: self.has_warned() };
        // With a request, the home forgets the earlier one of this node. It asks those in the queue
        // for data after a death, and a request that only tries may never be there.
        if request.tries && !self.deposited {
            out.to_home(self.message_with_data(body));
            self.deposited = true;
        } else {
            out.to_home(self.message(body));
        }
    }

    fn pass_on(&mut self, next: Successor, out: &mut impl Outbox) {
        let (Successor::Node { node, ticket, cachable }, Some(token)) = (next, self.token.next()) else {
            return self.give_back(out);
        };
        self.token = token;
        (self.state, self.next) = (NodeState::Absent, None);
        self.passed = Some(Passage { node, ticket, token, inconsistent: self.inconsistent });
        let grant =
            Grant { ticket, token, mode: Mode::Exclusive, cachable, previous_owner_died: self.inconsistent };
        out.to_node(node, self.message_with_data(MessageBody::Grant(grant)));
    }

    fn give_back(&mut self, out: &mut impl Outbox) {
        (self.state, self.next) = (NodeState::Absent, None);
        self.note_warning_to_home();
        let (ticket, token, inconsistent) = (self.ticket, self.token, self.inconsistent);
        out.to_home(self.message_with_data(MessageBody::Return { ticket, token, inconsistent }));
        self.deposited = true;
    }

    /// Remembers a warning that goes home with the lock.
    ///
    /// It is told again, should the home leave before it has the message.
    fn note_warning_to_home(&mut self) {
        if self.inconsistent {
            let (ticket, token) = (self.ticket, self.token);
            self.passed = Some(Passage { node: HOME, ticket, token, inconsistent: true });
        }
    }

    /// Returns a grant by this node to itself.
    #[inline]
    pub(crate) fn grant(&self, mode: Mode) -> Grant {
        Grant {
            ticket: self.ticket,
            token: self.token,
            mode,
            cachable: self.cachable,
            previous_owner_died: self.inconsistent,
        }
    }

    fn message(&self, body: MessageBody) -> Message {
        Message::new(self.epoch, body)
    }

    fn message_with_data(&self, body: MessageBody) -> Message {
        Message { data: self.data.clone(), ..self.message(body) }
    }
}
