//! Loans of a lock: a node that keeps it lets the next one of the queue use it in turns
//! (`loan.rs`).
//!
//! ```text
//!  lender                     seat                          borrower
//!  Kept ──────── enter_lent ── taken ── borrow ─────────── Waits, Abandoned
//!    ▲                           │                              ▲
//!    │                           │              Held, borrowed ─┘ return_loan
//!  Held ──────── leave_lent ── left                │
//!    │                           │                 │ return_loan, on_inquiry
//!  end_loan: Kept, Held ◀──── ended ────▶ Held, as after a grant
//! ```
//!
//! To the home and to other nodes nothing changes: the lender keeps the lock, the borrower waits
//! behind it, and its request stays where it is. If the borrower has the seat when the loan ends,
//! the lock has gone from one to the other as by a grant, and the lender reports such a passing.

use super::{NodeLock, NodeState};
use crate::Outbox;
use crate::loan::{Loan, LoanSeat, SeatHolder, Taking};
use crate::message::{Decision, Message, MessageBody, Mode, Node, Passage, Successor, Ticket};

/// Outcome of an attempt to use a lock that is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoanEntry {
    /// The node may use it.
    Open,
    /// The other node uses it.
    Busy,
    /// The loan is over.
    Over,
}

impl NodeLock {
    /// Returns the node that waits next, if the lock can be lent to it.
    ///
    /// The lock is kept, without data, consistent, and not lent.
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

    /// Returns a loan to [`NodeLock::possible_borrower`], at a seat of that generation.
    ///
    /// `hold`: number of acquisitions, since the lock came here, after which it ends. The carrier
    /// writes [`Loan::first_word`] into the seat, and begins it with [`NodeLock::lend`].
    #[must_use]
    pub fn loan_at(&self, seat: u32, generation: u32, hold: u32) -> Loan {
        let cachable = matches!(self.next, Some(Successor::Node { cachable: true, .. }));
        let most = hold.saturating_sub(self.uses).min(self.token.left_in_epoch());
        Loan { seat, generation, token: self.token, most, cachable }
    }

    /// Lends the lock to the node that waits next.
    pub fn lend(&mut self, loan: Loan, out: &mut impl Outbox) {
        if let (Some(_), Some(Successor::Node { node, ticket, .. })) = (self.possible_borrower(), self.next) {
            self.lent = Some(loan);
            out.to_node(node, self.message(MessageBody::Lend { ticket, loan }));
        }
    }

    /// Returns the loan by this node, which the borrower may have ended.
    #[inline]
    #[must_use]
    pub fn lent(&self) -> Option<&Loan> {
        self.lent.as_ref()
    }

    /// Returns the loan to this node, which the lender may have ended.
    #[inline]
    #[must_use]
    pub fn offer(&self) -> Option<&Loan> {
        self.offer.as_ref()
    }

    /// Returns whether a loan by this node or to it may go on.
    #[inline]
    #[must_use]
    pub fn has_loan(&self) -> bool {
        self.lent.is_some() || self.offer.is_some()
    }

    /// Returns whether the node holds the lock under a loan to it.
    #[must_use]
    pub fn is_borrowed(&self) -> bool {
        self.borrowed
    }

    /// Takes the seat of a lock that this node keeps and has lent, before
    /// [`NodeLock::acquire`].
    ///
    /// `Over`: the borrower has the lock now.
    pub fn enter_lent(&mut self, seat: &impl LoanSeat) -> LoanEntry {
        let Some(loan) = self.lent else { return LoanEntry::Over };
        match loan.take(SeatHolder::Lender, seat) {
            Taking::Taken(count) => {
                // The acquisition that follows counts the last one.
                self.note_count(&loan, count - 1);
                LoanEntry::Open
            }
            Taking::Busy => LoanEntry::Busy,
            Taking::Over => {
                self.end_loan(seat);
                LoanEntry::Over
            }
        }
    }

    /// Returns whether the lock is lent to a node that has not used it yet.
    pub fn awaits_borrower(&self, seat: &impl LoanSeat) -> bool {
        self.lent.is_some_and(|loan| loan.awaits_borrower(seat))
    }

    /// Leaves the seat of a lock that is held and lent, if the loan can go on. Returns
    /// whether it does: otherwise the node releases the lock as if it were not lent.
    pub fn leave_lent(&mut self, consistent: bool, hold: u32, seat: &impl LoanSeat) -> bool {
        let Some(loan) = self.lent else { return false };
        if (consistent || self.reads) && self.data.is_none() && self.uses < hold {
            if loan.leave(SeatHolder::Lender, seat) {
                self.state = NodeState::Kept;
                return true;
            }
            self.lent = None;
        } else {
            self.end_loan(seat);
        }
        false
    }

    /// Ends a loan by this node.
    ///
    /// Afterwards it has the lock as if it were not lent; or the borrower has it, as if it were
    /// passed on. The carrier calls this before it gives the node an inquiry, and before the lock
    /// is to go on.
    pub fn end_loan(&mut self, seat: &impl LoanSeat) {
        let Some(loan) = self.lent.take() else { return };
        let (holder, count) = loan.end(seat);
        let mine = match holder {
            SeatHolder::Free => true,
            SeatHolder::Lender => return,
            SeatHolder::Borrower | SeatHolder::Ended => false,
        };
        self.note_count(&loan, count);
        if !mine && let Some(Successor::Node { node, ticket, .. }) = self.next.take() {
            self.state = NodeState::Absent;
            self.passed = Some(Passage { node, ticket, token: self.token, inconsistent: false });
        }
    }

    /// Takes the seat of a lock that is lent to this node, which waits for it or has
    /// withdrawn its request. Returns the decision then.
    pub fn borrow(&mut self, seat: &impl LoanSeat) -> Result<Decision, LoanEntry> {
        let waits = matches!(
            self.state,
            NodeState::Waits(Mode::Exclusive) | NodeState::Abandoned { mode: Mode::Exclusive, then: None }
        );
        let Some(loan) = self.offer.filter(|_| waits) else { return Err(LoanEntry::Over) };
        match loan.take(SeatHolder::Borrower, seat) {
            Taking::Taken(count) => {
                self.token = loan.token_of(count);
                (self.state, self.borrowed, self.reads) = (NodeState::Held(Mode::Exclusive), true, false);
                (self.cachable, self.inconsistent) = (loan.cachable, false);
                (self.uses, self.passed, self.data) = (1, None, None);
                (self.deposited, self.forgets) = (false, false);
                Ok(Decision::Granted(self.grant(Mode::Exclusive)))
            }
            Taking::Busy => Err(LoanEntry::Busy),
            Taking::Over => {
                self.offer = None;
                Err(LoanEntry::Over)
            }
        }
    }

    /// Says that the lender need not wait for this node, if it has withdrawn its request.
    ///
    /// The carrier calls this after the offer of a loan, and after [`NodeLock::cancel`].
    pub fn excuse(&self, seat: &impl LoanSeat) {
        if let (Some(loan), NodeState::Abandoned { .. }) = (self.offer, self.state) {
            loan.excuse(seat);
        }
    }

    /// Says that this node sleeps until the lender leaves the seat or ends the loan.
    /// Returns false if it need not.
    pub fn announce_sleep(&self, seat: &impl LoanSeat) -> bool {
        self.offer.is_some_and(|loan| loan.announce_sleep(seat))
    }

    /// Leaves the seat of a lock that is held under a loan, if the loan can go on.
    ///
    /// Returns whether it does: otherwise the node has the lock as after a grant, and releases it
    /// so.
    ///
    /// `ends`: the loan is to end.
    pub fn return_loan(&mut self, consistent: bool, ends: bool, seat: &impl LoanSeat) -> bool {
        let Some(loan) = self.offer.filter(|_| self.borrowed) else { return false };
        if consistent && !ends && self.data.is_none() && loan.leave(SeatHolder::Borrower, seat) {
            self.state = NodeState::Abandoned { mode: Mode::Exclusive, then: None };
            self.borrowed = false;
            return true;
        }
        loan.end(seat);
        (self.borrowed, self.offer) = (false, None);
        false
    }

    /// Handles the offer of a loan.
    pub(super) fn on_offer(&mut self, message: &Message, ticket: Ticket, loan: Loan) {
        let waits = matches!(
            self.state,
            NodeState::Waits(Mode::Exclusive) | NodeState::Abandoned { mode: Mode::Exclusive, .. }
        );
        if waits && ticket == self.ticket && !self.tries {
            (self.epoch, self.offer) = (message.epoch, Some(loan));
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
