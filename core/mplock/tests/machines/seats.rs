//! Seats of loans: one of each node. The checker has them, too (`ci/lock-model`).

use std::cell::Cell;

use towpath_mplock::{Loan, Node, NodeLock};

/// Word and last generation of the seat of each node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seats<const N: usize>([(u64, u32); N]);

impl<const N: usize> Seats<N> {
    pub fn new() -> Seats<N> {
        Seats([(0, 0); N])
    }

    /// Has a node act at the seat of its loan.
    pub fn at<R>(&mut self, lock: &mut NodeLock, act: impl FnOnce(&mut NodeLock, &Cell<u64>) -> R) -> R {
        let lender = lock.loan().map_or(0, |loan| usize::from(loan.seat));
        let seat = Cell::new(self.0[lender].0);
        let result = act(lock, &seat);
        self.0[lender].0 = seat.get();
        result
    }

    /// Opens the seat of a node for a loan by it.
    pub fn open(&mut self, node: Node, lock: &NodeLock, hold: u32) -> Loan {
        let (word, generation) = &mut self.0[usize::from(node)];
        let loan = lock.loan_at(node, node, Loan::generation_after(*generation), hold);
        (*word, *generation) = (loan.first_word(), loan.generation);
        loan
    }
}
