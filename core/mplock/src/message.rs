//! Messages between a lock's home and the nodes that use it.

use crate::data::LockData;
use crate::loan::Loan;
use crate::numbers::{Epoch, Node, Ticket};
use crate::token::FencingToken;

/// Kind of access that a request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// One holder.
    #[default]
    Exclusive,
    /// Any number of holders that only read.
    Shared,
}

/// Request of a node for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockRequest {
    /// Its number.
    pub ticket: Ticket,
    /// Kind of access.
    pub mode: Mode,
    /// True if it is refused where another node has the lock; it never waits for one.
    pub tries: bool,
}

impl LockRequest {
    /// Makes a request that waits for its turn.
    ///
    /// ```
    /// use towpath::mplock::{LockRequest, Mode};
    ///
    /// assert!(!LockRequest::waiting(1, Mode::Exclusive).tries);
    /// ```
    #[inline]
    #[must_use]
    pub fn waiting(ticket: Ticket, mode: Mode) -> LockRequest {
        LockRequest { ticket, mode, tries: false }
    }

    /// Makes a request that is refused where another node has the lock.
    ///
    /// ```
    /// use towpath::mplock::{LockRequest, Mode};
    ///
    /// let request = LockRequest::trying(1, Mode::Shared);
    /// assert!(request.tries && request.mode == Mode::Shared);
    /// ```
    #[inline]
    #[must_use]
    pub fn trying(ticket: Ticket, mode: Mode) -> LockRequest {
        LockRequest { ticket, mode, tries: true }
    }
}

/// Decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// The node holds the lock.
    Granted(Grant),
    /// Another node has the lock, or waits for it.
    Refused,
}

/// Grant of a lock to a node that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The request that it answers.
    pub ticket: Ticket,
    /// Its token.
    pub token: FencingToken,
    /// Kind of access.
    pub mode: Mode,
    /// True if the node keeps the lock when it releases it and no other node waits.
    pub cachable: bool,
    /// True if an earlier holder may have died with the lock.
    ///
    /// Until a holder has said that the state is consistent again.
    pub previous_owner_died: bool,
}

/// Receiver of the lock after its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Successor {
    /// Another node's request.
    Node {
        /// The node.
        node: Node,
        /// Its request.
        ticket: Ticket,
        /// True if that node may keep the lock.
        cachable: bool,
    },
    /// The home.
    Home,
}

/// State of a lock at a node that was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holding {
    /// Neither has the lock nor waits.
    Absent,
    /// Waits.
    Waits {
        /// Kind of access.
        mode: Mode,
        /// True if the request is refused where another node has the lock.
        tries: bool,
    },
    /// Holds the lock.
    Held {
        /// Its token.
        token: FencingToken,
        /// Kind of access.
        mode: Mode,
        /// True if it was told that an owner died.
        inconsistent: bool,
    },
    /// Had the lock without using it, and has given it up with this answer.
    GivenUp {
        /// Its last token.
        token: FencingToken,
        /// True if an owner died and its work was not repaired since.
        inconsistent: bool,
    },
}

/// Way of a lock from one node, or its home, to the next node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Passage {
    /// Node that the lock went to.
    pub node: Node,
    /// Request of that node that was granted.
    pub ticket: Ticket,
    /// Token of the grant; or one that is smaller, and larger than those before.
    pub token: FencingToken,
    /// True if an owner had died and its work was not repaired.
    pub inconsistent: bool,
}

/// Answer of a node to its home's inquiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeReport {
    /// Number of its last request.
    pub ticket: Ticket,
    /// State of the lock there.
    pub holding: Holding,
    /// Its last passing of the lock to another node.
    pub passed: Option<Passage>,
}

/// Contents of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageBody {
    /// Node to home: asks for the lock.
    Request {
        /// The request.
        request: LockRequest,
        /// Largest token that the node has seen.
        seen: FencingToken,
        /// True if the node has passed the lock on with a warning, under that token.
        warned: bool,
    },
    /// Home or holder to waiter: gives it the lock.
    Grant(Grant),
    /// Home to the last node of the queue: names the receiver of the lock after it.
    Forward {
        /// The node's request that it concerns.
        behind: Ticket,
        /// The node that has the lock next.
        next: Successor,
    },
    /// Home to the node of a request that only tries: another node has the lock.
    Refuse {
        /// The request.
        ticket: Ticket,
    },
    /// Home to the only node of the queue: asks for the lock, if it is idle there.
    Probe {
        /// The node's request that it concerns.
        behind: Ticket,
        /// Node that tries to get the lock.
        node: Node,
        /// Its request.
        ticket: Ticket,
    },
    /// Node to home: the lock is not idle there.
    InUse {
        /// Node that tries to get the lock.
        node: Node,
        /// Its request.
        ticket: Ticket,
    },
    /// Holder to home: gives the lock back.
    Return {
        /// The request that is over.
        ticket: Ticket,
        /// Its last token.
        token: FencingToken,
        /// True if an owner died and its work was not repaired since.
        inconsistent: bool,
    },
    /// Node to home: the lock's data, before the node forgets them.
    ///
    /// From a home that leaves: to the lock's next home.
    Deposit,
    /// Home to node: it has the data that the node has deposited.
    Stored {
        /// Their version.
        version: FencingToken,
    },
    /// Home to node: asks for the state of the lock there, after a death.
    ///
    /// Orders and grants of older epochs count no more.
    Inquire,
    /// Node to home: answers.
    Report(NodeReport),
    /// Node that keeps the lock, or waits for it, to the next one: both may use it.
    Lend {
        /// The request of that node.
        ticket: Ticket,
        /// The loan.
        loan: Loan,
    },
    /// Borrower to lender: the loan is over. To a node that sleeps: the seat was left.
    Seat(SeatMessage),
}

/// Word of a borrower that has left its seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SeatMessage {
    /// Number of the seat.
    pub seat: u16,
    /// Generation of the loan.
    pub generation: u32,
    /// Last token of the borrower.
    pub token: FencingToken,
    /// True if the lender gets the lock by this message.
    pub passes: bool,
    /// True if an owner died, or panicked, and its work was not repaired since.
    pub inconsistent: bool,
}

impl SeatMessage {
    /// Makes the word that a seat was left.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let (mut group, seat) = Group::with_loan();
    /// let loan = *group.nodes[1].offer().expect("it is lent to node 1");
    /// let left = SeatMessage::of(&loan, loan.token);
    /// assert!(!left.passes && left.seat == loan.seat); // the lender reads the rest at the seat
    /// # }
    /// ```
    #[must_use]
    pub fn of(loan: &Loan, token: FencingToken) -> SeatMessage {
        let (seat, generation) = (loan.seat, loan.generation);
        SeatMessage { seat, generation, token, passes: false, inconsistent: false }
    }
}

/// Message about a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// Epoch of the lock, as its sender knows it.
    pub epoch: Epoch,
    /// Its contents.
    pub body: MessageBody,
    /// Data that the lock protects.
    ///
    /// Of a grant, a return, a report, a deposit, a seat, and a request that only tries.
    pub data: Option<LockData>,
}

impl Message {
    /// Makes a message without data.
    ///
    /// ```
    /// use towpath::mplock::{Message, MessageBody};
    ///
    /// assert!(Message::new(1, MessageBody::Inquire).data.is_none());
    /// ```
    #[inline]
    #[must_use]
    pub fn new(epoch: Epoch, body: MessageBody) -> Message {
        Message { epoch, body, data: None }
    }
}
