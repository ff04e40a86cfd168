//! Loans of a lock: a node that keeps it lets those behind it use it, too (`loan.rs`).
//!
//! ```text
//!  lender                     seat                          borrower
//!  Kept ──────── enter_lent ── taken ── borrow ─────────── Waits, Abandoned
//!    ▲                           │                              ▲
//!    │                           │              Held, borrowed ─┤ return_loan
//!  Held ──────── leave_lent ── left                │            │
//!    │                           │                 │ on_inquiry ▼ SeatLeft
//!  Kept, Held ◀─ close_loan ── ended ◀─────────────┼───────────────────
//!  Absent ◀───── end_loan ─────┘                   ▼ Held, as after a grant
//! ```
//!
//! To the home nothing changes: the lender keeps the lock, the borrowers wait behind it, and their
//! requests stay where they are. A loan that is over leaves the lock with the lender. If a borrower
//! has the seat when the lender ends the loan at once, for an inquiry, the lock has gone from one
//! to the other as by a grant, and the lender reports such a passing. A borrower that releases the
//! lock with data, or without having repaired the state, passes it to the lender by message.

use super::{NodeLock, NodeState};
use crate::Outbox;
use crate::loan::{Loan, LoanSeat, SeatHolder, SeatLeaving, Taking};
use crate::message::{Decision, Message, MessageBody, Mode, Passage, SeatMessage, Successor};
use crate::numbers::{Node, Ticket};

/// Request of a borrower that its lender does not know.
const UNKNOWN: Ticket = 0;

/// Outcome of an attempt to use a lock that is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoanEntry {
    /// The node may use it.
    Open,
    /// Another node uses it.
    Busy,
    /// The loan is over.
    Over,
}

impl NodeLock {
    /// Returns the node that waits next, if the lock can be lent to it.
    ///
    /// The lock is kept, without data, consistent, and not lent.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Distributed);
    /// group.acquire(0);
    /// group.acquire(1);
    /// group.release(0, 10);
    /// assert_eq!(group.nodes[0].possible_borrower(), Some(1));
    /// # }
    /// ```
    #[must_use]
    pub fn possible_borrower(&self) -> Option<Node> {
        match self.next {
            Some(Successor::Node { node, .. })
                if self.state == NodeState::Kept
                    && self.lent.is_none()
                    && self.data.is_none()
                    && !self.inconsistent =>
            {
                Some(node)
            }
            _ => None,
        }
    }

    /// Returns a loan by this node to [`NodeLock::possible_borrower`], at a seat of that
    /// generation.
    ///
    /// `lender`: this node. `hold`: number of acquisitions, since the lock came here, after which
    /// it ends. The carrier writes [`Loan::first_word`] into the seat, and begins it with
    /// [`NodeLock::lend`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Distributed);
    /// group.acquire(0);
    /// group.acquire(1);
    /// group.release(0, 10); // has used it once
    /// let (lender, seat, generation, hold) = (0, 7, 1, 10);
    /// assert_eq!(group.nodes[0].loan_at(lender, seat, generation, hold).most, 9);
    /// # }
    /// ```
    #[must_use]
    pub fn loan_at(&self, lender: Node, seat: u16, generation: u32, hold: u32) -> Loan {
        let most = hold.saturating_sub(self.uses).min(self.token.left_in_epoch()).min(Loan::MOST);
        let (ticket, token) = (self.ticket, self.token);
        Loan { seat, generation, lender, ticket, token, most, cachable: false }
    }

    /// Lends the lock to the node that waits next, and by it to those behind.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let mut group = Group::new(Protocol::Distributed);
    /// group.acquire(0);
    /// group.acquire(1);
    /// group.release(0, 10);
    /// let loan = group.nodes[0].loan_at(0, 7, 1, 10);
    /// let seat = Cell::new(loan.first_word());
    /// group.nodes[0].lend(loan, &mut group.wire);
    /// group.deliver();
    /// assert!(group.nodes[1].borrow(1, Mode::Exclusive, &seat).is_ok());
    /// # }
    /// ```
    pub fn lend(&mut self, loan: Loan, out: &mut impl Outbox) {
        if self.possible_borrower().is_some() {
            (self.lent, self.told) = (Some(loan), false);
            self.tell_next(out);
        }
    }

    /// Returns the receiver of the lock after this node, if it is to be told of a loan.
    ///
    /// The carrier asks for it after each message. It calls [`NodeLock::tell_next`] if that is a
    /// node that can use the seat, and [`NodeLock::tell_no_next`] otherwise.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let (mut group, _seat) = Group::with_loan();
    /// assert_eq!(group.nodes[1].next_to_tell(), None); // no node waits behind the borrower
    /// group.acquire(2);
    /// assert!(matches!(group.nodes[1].next_to_tell(), Some(Successor::Node { node: 2, .. })));
    /// # }
    /// ```
    #[must_use]
    pub fn next_to_tell(&self) -> Option<Successor> {
        self.next.filter(|_| !self.told && self.loan().is_some())
    }

    /// Tells the node that waits next of the loan.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let (mut group, seat) = Group::with_loan();
    /// group.acquire(2);
    /// group.nodes[1].tell_next(&mut group.wire);
    /// group.deliver();
    /// assert!(group.nodes[2].borrow(2, Mode::Exclusive, &seat).is_ok()); // before its turn
    /// # }
    /// ```
    pub fn tell_next(&mut self, out: &mut impl Outbox) {
        let Some(&loan) = self.loan() else { return };
        if let Some(Successor::Node { node, ticket, cachable }) = self.next {
            let loan = Loan { cachable, ..loan };
            out.to_node(node, self.message(MessageBody::Lend { ticket, loan }));
        }
        self.told = true;
    }

    /// Notes that the next node cannot use the seat: the loan ends when its time is over.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let (mut group, seat) = Group::with_loan();
    /// group.acquire(2); // a node of another host
    /// let before = seat.get();
    /// group.nodes[1].tell_no_next(&seat);
    /// assert!(seat.get() != before && group.nodes[1].next_to_tell().is_none());
    /// # }
    /// ```
    pub fn tell_no_next(&mut self, seat: &impl LoanSeat) {
        if let Some(loan) = self.loan() {
            loan.want(seat);
        }
        self.told = true;
    }

    /// Returns the loan by this node, which a borrower may have ended.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let (group, _seat) = Group::with_loan();
    /// assert!(group.nodes[0].lent().is_some() && group.nodes[1].lent().is_none());
    /// # }
    /// ```
    #[inline]
    #[must_use]
    pub fn lent(&self) -> Option<&Loan> {
        self.lent.as_ref()
    }

    /// Returns the loan to this node, which may be over.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let (group, _seat) = Group::with_loan();
    /// assert!(group.nodes[0].offer().is_none() && group.nodes[1].offer().is_some());
    /// # }
    /// ```
    #[inline]
    #[must_use]
    pub fn offer(&self) -> Option<&Loan> {
        self.offer.as_ref()
    }

    /// Returns the loan by this node or to it, which may be over.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let (group, _seat) = Group::with_loan();
    /// let loans = [0, 1].map(|node| group.nodes[node].loan().map(|loan| loan.seat));
    /// assert_eq!(loans, [Some(7), Some(7)]); // both know its seat
    /// # }
    /// ```
    #[inline]
    #[must_use]
    pub fn loan(&self) -> Option<&Loan> {
        self.lent.as_ref().or(self.offer.as_ref())
    }

    /// Returns whether the node holds the lock under a loan to it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let (mut group, seat) = Group::with_loan();
    /// group.nodes[1].borrow(1, Mode::Exclusive, &seat).expect("the seat is free");
    /// assert!(group.nodes[1].is_borrowed());
    /// # }
    /// ```
    #[inline]
    #[must_use]
    pub fn is_borrowed(&self) -> bool {
        self.borrowed
    }

    /// Takes the seat of a lock that this node keeps and has lent, before
    /// [`NodeLock::acquire`].
    ///
    /// `Over`: the node has the lock as if it were not lent; or, if the acquisitions are used up,
    /// it has passed it on.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let (mut group, seat) = Group::with_loan();
    /// assert_eq!(group.nodes[0].enter_lent(&seat, &mut group.wire), LoanEntry::Open);
    /// let other = group.nodes[1].borrow(1, Mode::Exclusive, &seat);
    /// assert_eq!(other, Err(LoanEntry::Busy)); // the lender uses it
    /// # }
    /// ```
    pub fn enter_lent(&mut self, seat: &impl LoanSeat, out: &mut impl Outbox) -> LoanEntry {
        let Some(loan) = self.lent else { return LoanEntry::Over };
        match loan.take(loan.lender, seat) {
            Taking::Taken(count) => {
                // The acquisition that follows counts the last one.
                self.note_count(&loan, count - 1);
                LoanEntry::Open
            }
            Taking::Busy => LoanEntry::Busy,
            Taking::Over => {
                self.end_loan(seat);
                self.hand_over_used(&loan, out);
                LoanEntry::Over
            }
        }
    }

    /// Leaves the seat of a lock that is held and lent, if the loan can go on; otherwise
    /// the node releases the lock as if it were not lent.
    ///
    /// `closes`: the loan is to end.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let (mut group, seat) = Group::with_loan();
    /// group.nodes[0].enter_lent(&seat, &mut group.wire);
    /// group.acquire(0); // it has the lock, which it keeps
    /// let leaving = group.nodes[0].leave_lent(true, false, 10, &seat);
    /// assert_eq!(leaving, SeatLeaving::Open { slept: false }); // the loan goes on
    /// # }
    /// ```
    pub fn leave_lent(
        &mut self,
        consistent: bool,
        closes: bool,
        hold: u32,
        seat: &impl LoanSeat,
    ) -> SeatLeaving {
        let Some(loan) = self.lent else { return SeatLeaving::Lost };
        let goes_on = (consistent || self.reads) && self.data.is_none() && self.uses < hold;
        let leaving = loan.leave(loan.lender, closes || !goes_on, seat);
        match leaving {
            SeatLeaving::Open { .. } => self.state = NodeState::Kept,
            _ => self.lent = None,
        }
        leaving
    }

    /// Has a loan by this node end as soon as no node uses the lock.
    ///
    /// Returns whether it is over: the node has the lock then, as if it were not lent. A borrower
    /// that has the seat says when it has left it ([`NodeLock::on_seat`]).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let (mut group, seat) = Group::with_loan();
    /// assert!(group.nodes[0].close_loan(&seat)); // no node uses the lock
    /// assert!(group.nodes[0].lent().is_none());
    /// # }
    /// ```
    pub fn close_loan(&mut self, seat: &impl LoanSeat) -> bool {
        if self.lent.is_some_and(|loan| loan.close(seat)) {
            self.end_loan(seat);
        }
        self.lent.is_none()
    }

    /// Returns whether a node uses the lock under a loan by this node or to it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let (mut group, seat) = Group::with_loan();
    /// assert!(!group.nodes[0].is_seat_taken(&seat));
    /// group.nodes[1].borrow(1, Mode::Exclusive, &seat).expect("the seat is free");
    /// assert!(group.nodes[0].is_seat_taken(&seat));
    /// # }
    /// ```
    pub fn is_seat_taken(&self, seat: &impl LoanSeat) -> bool {
        self.loan().is_some_and(|loan| loan.is_taken(seat))
    }

    /// Ends a loan by this node at once.
    ///
    /// Afterwards it has the lock as if it were not lent; or a borrower has it, as if it were
    /// passed on. The carrier calls this before it gives the node an inquiry, and at no other time:
    /// a borrower may have come before its turn.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let (mut group, seat) = Group::with_loan();
    /// group.nodes[1].borrow(1, Mode::Exclusive, &seat).expect("the seat is free");
    /// group.nodes[0].end_loan(&seat); // before an inquiry
    /// assert_eq!(group.nodes[0].state(), NodeState::Absent); // the borrower has the lock
    /// # }
    /// ```
    pub fn end_loan(&mut self, seat: &impl LoanSeat) {
        let Some(loan) = self.lent.take() else { return };
        let (holder, count) = loan.end(seat);
        if holder == SeatHolder::Node(loan.lender) {
            return;
        }
        self.note_count(&loan, count);
        if let SeatHolder::Node(borrower) = holder {
            let ticket = match self.next {
                Some(Successor::Node { node, ticket, .. }) if node == borrower => ticket,
                _ => UNKNOWN,
            };
            (self.state, self.next) = (NodeState::Absent, None);
            self.passed = Some(Passage { node: borrower, ticket, token: self.token, inconsistent: false });
        }
    }

    /// Takes the seat of a lock that is lent to this node, which waits for it or has
    /// withdrawn its request. Returns the decision then.
    ///
    /// `mode`: kind of access that it wants.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let (mut group, seat) = Group::with_loan();
    /// let decision = group.nodes[1].borrow(1, Mode::Exclusive, &seat);
    /// assert!(matches!(decision, Ok(Decision::Granted(_))));
    /// let lender = group.nodes[0].enter_lent(&seat, &mut group.wire);
    /// assert_eq!(lender, LoanEntry::Busy); // in turns
    /// # }
    /// ```
    pub fn borrow(&mut self, me: Node, mode: Mode, seat: &impl LoanSeat) -> Result<Decision, LoanEntry> {
        self.try_borrow(me, mode, seat).map(|()| Decision::Granted(self.grant(mode)))
    }

    /// Takes the seat as [`NodeLock::borrow`] does. The token is the lock's.
    #[inline]
    pub(crate) fn try_borrow(&mut self, me: Node, mode: Mode, seat: &impl LoanSeat) -> Result<(), LoanEntry> {
        let may = match self.state {
            NodeState::Waits(asked) => (asked, mode) == (Mode::Exclusive, Mode::Exclusive),
            NodeState::Abandoned { mode: asked, then } => {
                asked == Mode::Exclusive && then.is_none_or(|request| request.mode == mode)
            }
            _ => false,
        };
        let Some(loan) = self.offer.as_ref().filter(|_| may) else { return Err(LoanEntry::Over) };
        match loan.take(me, seat) {
            Taking::Taken(count) => {
                (self.token, self.cachable) = (loan.token_of(count), loan.cachable);
                // To the home and the other nodes it uses the lock alone.
                (self.state, self.borrowed) = (NodeState::Held(Mode::Exclusive), true);
                (self.reads, self.inconsistent) = (mode == Mode::Shared, false);
                (self.uses, self.passed, self.data) = (1, None, None);
                (self.deposited, self.forgets) = (false, false);
                Ok(())
            }
            Taking::Busy => Err(LoanEntry::Busy),
            Taking::Over => {
                self.offer = None;
                Err(LoanEntry::Over)
            }
        }
    }

    /// Returns the kind of access that the node waits for under a loan to it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let (mut group, seat) = Group::with_loan();
    /// assert_eq!(group.nodes[1].wants(), Some(Mode::Exclusive));
    /// group.nodes[1].borrow(1, Mode::Exclusive, &seat).expect("the seat is free");
    /// assert_eq!(group.nodes[1].wants(), None); // it has it
    /// # }
    /// ```
    #[must_use]
    pub fn wants(&self) -> Option<Mode> {
        match self.state {
            NodeState::Waits(mode) => Some(mode),
            NodeState::Abandoned { then, .. } => then.map(|request| request.mode),
            _ => None,
        }
    }

    /// Says that this node sleeps until the seat is left. Returns false if it need not.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let (mut group, seat) = Group::with_loan();
    /// assert!(!group.nodes[0].announce_sleep(&seat)); // the seat is free: it need not
    /// group.nodes[1].borrow(1, Mode::Exclusive, &seat).expect("the seat is free");
    /// assert!(group.nodes[0].announce_sleep(&seat));
    /// # }
    /// ```
    pub fn announce_sleep(&self, seat: &impl LoanSeat) -> bool {
        self.loan().is_some_and(|loan| loan.announce_sleep(seat))
    }

    /// Leaves the seat of a lock that is held under a loan to this node, if that is all.
    ///
    /// Returns whether nodes sleep until then. `None`: [`NodeLock::return_loan`] has more to do.
    #[inline]
    pub(crate) fn return_open(&mut self, me: Node, seat: &impl LoanSeat) -> Option<bool> {
        let loan = self.offer.as_ref().filter(|_| self.borrowed && self.data.is_none())?;
        let slept = loan.leave_open(me, seat)?;
        (self.state, self.borrowed) = (NodeState::Abandoned { mode: Mode::Exclusive, then: None }, false);
        Some(slept)
    }

    /// Leaves the seat of a lock that is held under a loan. `closes`: the loan is to end.
    ///
    /// `Lost`: the node has the lock as after a grant, and releases it so.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let (mut group, seat) = Group::with_loan();
    /// group.nodes[1].borrow(1, Mode::Exclusive, &seat).expect("the seat is free");
    /// group.nodes[0].announce_sleep(&seat);
    /// let leaving = group.nodes[1].return_loan(1, true, false, &seat, &mut group.wire);
    /// assert_eq!(leaving, SeatLeaving::Open { slept: true }); // the carrier wakes the lender
    /// # }
    /// ```
    pub fn return_loan(
        &mut self,
        me: Node,
        consistent: bool,
        closes: bool,
        seat: &impl LoanSeat,
        out: &mut impl Outbox,
    ) -> SeatLeaving {
        let Some(loan) = self.offer.filter(|_| self.borrowed) else { return SeatLeaving::Lost };
        let consistent = consistent || self.reads;
        let next = self.token.next();
        let leaving = match next {
            // The lender gets the lock with this message; until then the seat is taken.
            Some(token) if (!consistent || self.data.is_some()) && loan.is_held_by(me, seat) => {
                (self.token, self.inconsistent) = (token, !consistent);
                let (node, ticket, inconsistent) = (loan.lender, loan.ticket, !consistent);
                self.passed = Some(Passage { node, ticket, token, inconsistent });
                let content = SeatMessage { passes: true, inconsistent, ..SeatMessage::of(&loan, token) };
                out.to_node(node, self.message_with_data(MessageBody::Seat(content)));
                self.deposited = false;
                SeatLeaving::Ended
            }
            _ => {
                let leaving = loan.leave(me, closes, seat);
                if leaving == SeatLeaving::Ended {
                    let content = SeatMessage::of(&loan, self.token);
                    out.to_node(loan.lender, self.message(MessageBody::Seat(content)));
                }
                leaving
            }
        };
        self.borrowed = false;
        if !matches!(leaving, SeatLeaving::Open { .. }) {
            self.offer = None;
        }
        if leaving != SeatLeaving::Lost {
            self.state = NodeState::Abandoned { mode: Mode::Exclusive, then: None };
        }
        leaving
    }

    /// Returns the word that a seat was left, for a node that sleeps.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let (group, _seat) = Group::with_loan();
    /// let loan = group.nodes[1].offer().expect("it is lent to node 1");
    /// let word = group.nodes[1].seat_left(loan); // to a node that sleeps
    /// assert!(matches!(word.body, MessageBody::Seat(_)));
    /// # }
    /// ```
    #[must_use]
    pub fn seat_left(&self, loan: &Loan) -> Message {
        self.message(MessageBody::Seat(SeatMessage::of(loan, self.token)))
    }

    /// Handles a borrower's word that it has left the seat for good.
    ///
    /// If the loan is over, the node has the lock afterwards as if it were not lent; or, if the
    /// acquisitions are used up, it has passed it on.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let (mut group, seat) = Group::with_loan();
    /// group.nodes[1].borrow(1, Mode::Exclusive, &seat).expect("the seat is free");
    /// let leaving = group.nodes[1].return_loan(1, true, true, &seat, &mut group.wire);
    /// assert_eq!(leaving, SeatLeaving::Ended); // it closes the loan, and says so
    /// let (_, _, word) = group.wire.sent.pop_back().expect("its word");
    /// group.nodes[0].on_seat(&word, &seat, &mut group.wire);
    /// assert!(group.nodes[0].lent().is_none());
    /// # }
    /// ```
    pub fn on_seat(&mut self, message: &Message, seat: &impl LoanSeat, out: &mut impl Outbox) {
        let MessageBody::Seat(content) = message.body else { return };
        let is_ours = |loan: Loan| loan.is_at(content.seat, content.generation);
        let Some(loan) = self.lent.filter(|&loan| message.epoch >= self.epoch && is_ours(loan)) else {
            return;
        };
        if content.passes {
            self.lent = None;
            let (_, count) = loan.end(seat);
            self.note_count(&loan, count);
            (self.token, self.inconsistent) = (self.token.max(content.token), content.inconsistent);
            self.data.clone_from(&message.data);
            (self.deposited, self.forgets) = (false, false);
        } else if loan.state(seat).has_ended {
            self.end_loan(seat);
        }
        self.hand_over_used(&loan, out);
    }

    /// Passes a lock on whose loan is over because its acquisitions are used up.
    fn hand_over_used(&mut self, loan: &Loan, out: &mut impl Outbox) {
        if self.lent.is_none() && self.token.get() - loan.token.get() >= loan.most.into() {
            self.hand_over(out);
        }
    }

    /// Handles the offer of a loan.
    pub(super) fn on_offer(&mut self, message: &Message, ticket: Ticket, loan: Loan) {
        let waits = matches!(
            self.state,
            NodeState::Waits(Mode::Exclusive) | NodeState::Abandoned { mode: Mode::Exclusive, .. }
        );
        if waits && ticket == self.ticket && !self.tries {
            (self.epoch, self.offer, self.told) = (message.epoch, Some(loan), false);
        }
    }

    /// Notes the acquisitions under a loan by this node.
    fn note_count(&mut self, loan: &Loan, count: u32) {
        let token = loan.token_of(count);
        let more = token.get().saturating_sub(self.token.get());
        self.uses = self.uses.saturating_add(more.min(u64::from(u32::MAX)) as u32);
        self.token = self.token.max(token);
    }
}
