//! Locks by message (Kuo, Carter & Kuramkote 1998, *MP-LOCKS*): state machines without
//! input or output, and the native locks that they make.
//!
//! A *node* takes part: natively an endpoint of a process, in the simulator the kernel of a
//! processor. Each lock has a *home*, the node that queues its requests. [`NodeLock`] is a node's
//! state of one lock, [`HomeLock`] the home's. Both are functions of a state and a message, whose
//! actions are messages to be sent; the caller carries them. One text serves native locks,
//! simulated ones and the checker.
//!
//! | protocol | an idle lock is | a waiter gets the lock from | hops and interrupts: idle here, idle elsewhere, busy |
//! | --- | --- | --- | --- |
//! | [`Protocol::Central`] | at its home | the home | –, 2h + 1i, 2h + 1i |
//! | [`Protocol::Distributed`] | at its last holder | the holder before | 0h, 3h + 2i, 1h |
//! | [`Protocol::Reactive`] | at its home, or at a node that alone uses it | the holder before | 0h, 2h + 1i, 1h |
//!
//! **What the carrier promises.** Messages of one node to another arrive in order and once. Where
//! that fails with a living receiver, it counts as the receiver's departure, as a death does. A
//! node gets inquiries only of the node that it takes for the lock's home.
//!
//! **Tokens.** Each grant has a [`FencingToken`], larger than those of all grants of the lock
//! before it. A resource that remembers the largest token that it has seen can refuse what a former
//! holder still sends.
//!
//! **Data.** Up to 4 KiB that the lock protects travel with each grant ([`LockData`]).
//!
//! **Deaths.** An *epoch* is a number that grows with each death; all survivors learn it. The home
//! of a lock that a dead node may have had asks the nodes that it knows of
//! ([`MessageBody::Inquire`]); an answer says that older grants and orders count no more. Then the
//! home grants the lock anew, with a token of the new epoch, and says whether the dead node may
//! have held it. A new home asks all survivors.
//!
//! **Descheduled is not dead**: nothing here goes by a clock.
//!
//! **Natively** a rank's [`Manager`] carries the messages of its locks with an Active Message
//! endpoint, and finds the dead in the world. Of shared memory it has besides only the seats
//! at which the ranks of a host use a contended lock in turns ([`Loan`]).
#![deny(unsafe_code)]

mod data;
mod fence;
mod home;
mod loan;
mod message;
mod native;
mod node;
mod numbers;
mod protocol;
mod token;

pub use data::LockData;
pub use fence::{Fence, StaleToken};
pub use home::HomeLock;
pub use loan::{Loan, LoanSeat, SeatHolder, SeatLeaving};
pub use message::{
    Decision, Grant, Holding, LockRequest, Message, MessageBody, Mode, NodeReport, Passage, SeatMessage,
    Successor,
};
#[doc(hidden)]
pub use native::wire;
pub use native::{Error, Guard, HoldBudget, Lock, LockTraffic, Manager, Progress};
pub use node::{LoanEntry, NodeLock, NodeState};
pub use numbers::{Epoch, Node, Ticket};
pub use protocol::Protocol;
pub use token::FencingToken;

/// Receiver of the actions of a state machine: messages to be sent, by their receivers.
///
/// A message to the node itself is delivered like any other.
pub trait Outbox {
    /// Sends a message from the state machine's own node to the home of the lock.
    ///
    /// ```
    /// use towpath::mplock::{LockRequest, Message, Mode, Node, NodeLock, Outbox};
    ///
    /// /// Outbox that counts.
    /// #[derive(Default)]
    /// struct Counted(u32);
    /// impl Outbox for Counted {
    ///     fn to_home(&mut self, _: Message) {
    ///         self.0 += 1;
    ///     }
    ///     fn to_node(&mut self, _: Node, _: Message) {}
    /// }
    /// let (mut node, mut out) = (NodeLock::default(), Counted::default());
    /// node.acquire(LockRequest::waiting(1, Mode::Exclusive), &mut out);
    /// assert_eq!(out.0, 1); // the request
    /// ```
    fn to_home(&mut self, message: Message);
    /// Sends a message from the state machine's own node to another node.
    ///
    /// ```
    /// use towpath::mplock::{FencingToken, HomeLock, LockRequest, Message};
    /// use towpath::mplock::{MessageBody, Mode, Node};
    /// use towpath::mplock::{Outbox, Protocol};
    ///
    /// /// Nodes to which messages were sent.
    /// #[derive(Default)]
    /// struct Receivers(Vec<Node>);
    /// impl Outbox for Receivers {
    ///     fn to_home(&mut self, _: Message) {}
    ///     fn to_node(&mut self, node: Node, _: Message) {
    ///         self.0.push(node);
    ///     }
    /// }
    /// let mut home = HomeLock::new(Protocol::Central, 1, FencingToken::NONE);
    /// let (seen, warned, mut out) = (FencingToken::NONE, false, Receivers::default());
    /// let request = LockRequest::waiting(1, Mode::Exclusive);
    /// let body = MessageBody::Request { request, seen, warned };
    /// home.on_message(5, &Message::new(1, body), &mut out);
    /// assert_eq!(out.0, [5]); // the grant
    /// ```
    fn to_node(&mut self, node: Node, message: Message);
}

/// The README's example compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
