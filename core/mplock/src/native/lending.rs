//! Seats of loans in the world, and the carrier's part of a loan (`loan.rs`).
//!
//! Each of the first ranks has a few seats in a named object, which the first loan of the world
//! makes. A lender chooses one of its own that no loan of its own uses; so no two processes open
//! the same seat. A world without room for the object has no loans.

use std::cell::{Cell, OnceCell};
use std::sync::atomic::{AtomicU64, Ordering};

use towpath_machine::OwnLine;
use towpath_shm::{Shared, World};

use super::hold::HolderHost;
use super::lock::LockCell;
use super::serve::ManagerState;
use crate::loan::{Loan, LoanSeat};
use crate::message::{Decision, Node};
use crate::node::{LoanEntry, NodeLock, NodeState};

/// Number of seats of a rank.
const SEATS: u32 = 4;
/// Number of ranks that have seats.
const RANKS: u32 = 32;
/// Name of the seats' object.
const NAME: &str = "towpath_mplock_seats";

type Seats = [OwnLine<AtomicU64>; (SEATS * RANKS) as usize];

/// Loans of a rank's manager.
#[derive(Default)]
pub(crate) struct Lending {
    /// `None`: there is no room for them.
    seats: OnceCell<Option<Shared<Seats>>>,
    /// Seats of this rank that loans use, as bits.
    used: Cell<u32>,
    /// Last generation of each seat of this rank.
    generations: [Cell<u32>; SEATS as usize],
    /// True if two processes can run at once.
    has_cores: OnceCell<bool>,
}

/// Seat of a loan; one that is not there counts as ended.
pub(crate) struct NativeSeat<'a>(Option<&'a AtomicU64>);

impl LoanSeat for NativeSeat<'_> {
    #[inline]
    fn load(&self) -> u64 {
        // Relaxed: what is done with it is an exchange, which orders it.
        self.0.map_or(0, |word| word.load(Ordering::Relaxed))
    }
    #[inline]
    fn exchange(&self, from: u64, to: u64) -> bool {
        // (N1) AcqRel: hands over what the lock protects, from the exchange that leaves a seat to
        // the one that takes it or ends the loan; pairs with itself.
        self.0
            .is_some_and(|word| word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok())
    }
}

impl Lending {
    fn seats(&self, world: &World) -> Option<&Seats> {
        self.seats.get_or_init(|| world.shared::<Seats>(NAME, |_| ()).ok()).as_deref()
    }

    pub(crate) fn seat(&self, loan: &Loan, world: &World) -> NativeSeat<'_> {
        NativeSeat(self.seats(world).and_then(|seats| seats.get(loan.seat as usize)).map(|line| &line.0))
    }

    /// Returns the number of an own seat that is free, and its next generation.
    fn free_seat(&self, me: Node) -> Option<(u32, u32)> {
        let own = (0..SEATS).find(|seat| self.used.get() & 1 << seat == 0)?;
        let generation = Loan::generation_after(self.generations[own as usize].get());
        (u32::from(me) < RANKS).then_some((u32::from(me) * SEATS + own, generation))
    }

    fn note_begin(&self, loan: &Loan) {
        let own = loan.seat % SEATS;
        self.used.set(self.used.get() | 1 << own);
        self.generations[own as usize].set(loan.generation);
    }

    fn note_end(&self, loan: &Loan) {
        self.used.set(self.used.get() & !(1 << (loan.seat % SEATS)));
    }

    fn has_cores(&self) -> bool {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        *self.has_cores.get_or_init(|| cores() > 1)
    }
}

impl ManagerState {
    /// Lends a lock that is kept to the node that waits next, if that is worth while.
    #[cold]
    pub(crate) fn lend(&self, cell: &LockCell) {
        let world = self.endpoint.world();
        let mut node = cell.node.borrow_mut();
        let borrower = node.possible_borrower().filter(|&node| world.is_local(node.into()));
        if borrower.is_none() || !self.lending.has_cores() {
            return;
        }
        let Some((seat, generation)) = self.lending.free_seat(self.me) else { return };
        let loan = node.loan_at(seat, generation, self.hold.get().acquisitions);
        let NativeSeat(Some(word)) = self.lending.seat(&loan, world) else { return };
        // Relaxed: the message of the loan orders it.
        word.store(loan.first_word(), Ordering::Relaxed);
        node.lend(loan, &mut cell.sends(self));
        self.lending.note_begin(&loan);
    }

    /// Acts on a loan by this rank, at its seat, and notes if it is over then.
    fn with_lent<R>(&self, node: &mut NodeLock, act: impl FnOnce(&mut NodeLock, &NativeSeat<'_>) -> R) -> R {
        let loan = node.lent().copied();
        let seat = match &loan {
            Some(loan) => self.lending.seat(loan, self.endpoint.world()),
            None => NativeSeat(None),
        };
        let result = act(node, &seat);
        if let Some(loan) = loan.filter(|_| node.lent().is_none()) {
            self.lending.note_end(&loan);
        }
        result
    }

    /// Ends a loan by this rank, if there is one.
    pub(crate) fn end_loan(&self, cell: &LockCell) {
        let mut node = cell.node.borrow_mut();
        if node.lent().is_some() {
            self.with_lent(&mut node, |node, seat| node.end_loan(seat));
        }
    }

    /// Returns whether a lock is lent to a rank that has not used it yet.
    pub(crate) fn awaits_borrower(&self, node: &NodeLock) -> bool {
        let lent = node.lent();
        lent.is_some_and(|loan| node.awaits_borrower(&self.lending.seat(loan, self.endpoint.world())))
    }

    /// Says that the lender need not wait for this rank, if it does not wait itself.
    #[cold]
    pub(crate) fn excuse(&self, cell: &LockCell) {
        let node = cell.node.borrow();
        if let Some(loan) = node.offer() {
            node.excuse(&self.lending.seat(loan, self.endpoint.world()));
        }
    }

    /// Takes the seat of a lock that this rank keeps and has lent. Waits for the borrower
    /// for a while, and ends the loan then: the borrower has the lock.
    #[inline(never)]
    pub(crate) fn enter_lent(&self, node: &mut NodeLock) {
        if node.state() != NodeState::Kept {
            return;
        }
        self.with_lent(node, |node, seat| {
            let mut patience = SeatPatience::new(self.endpoint.world());
            while node.enter_lent(seat) == LoanEntry::Busy {
                if !patience.spin() {
                    return node.end_loan(seat);
                }
            }
        });
    }

    /// Takes a lock that is lent to this rank, if it is free.
    #[inline(never)]
    pub(crate) fn borrow(&self, cell: &LockCell) -> Option<Decision> {
        let mut node = cell.node.borrow_mut();
        let loan = *node.offer()?;
        node.borrow(&self.lending.seat(&loan, self.endpoint.world())).ok()
    }

    /// Takes a lock that is lent to this rank. Waits for the lender for a while, and says
    /// then that this rank sleeps.
    pub(crate) fn borrow_soon(&self, cell: &LockCell) -> Option<Decision> {
        let world = self.endpoint.world();
        let mut node = cell.node.borrow_mut();
        let loan = *node.offer()?;
        let seat = self.lending.seat(&loan, world);
        let mut patience = SeatPatience::new(world);
        loop {
            match node.borrow(&seat) {
                Ok(decision) => return Some(decision),
                Err(LoanEntry::Busy) if patience.spin() => {}
                Err(LoanEntry::Busy) if !node.announce_sleep(&seat) => {}
                Err(_) => return None,
            }
        }
    }

    /// Leaves the seat of a lock that this rank has lent or borrowed. Returns whether the
    /// loan goes on: otherwise the lock is to be released as if it were not lent.
    #[inline(never)]
    pub(crate) fn leave_loan(&self, cell: &LockCell, node: &mut NodeLock, consistent: bool) -> bool {
        let (world, budget) = (self.endpoint.world(), self.hold.get());
        if let Some(loan) = node.offer().copied().filter(|_| node.is_borrowed()) {
            let ends = cell.hold.loan_is_over(budget, world);
            if node.return_loan(consistent, ends, &self.lending.seat(&loan, world)) {
                return true;
            }
            cell.hold.note_grant();
        } else if node.lent().is_some() {
            let mut hold = cell.hold.budget(budget, world);
            if hold == 0 && self.awaits_borrower(node) {
                hold = budget.acquisitions;
            }
            let goes_on = self.with_lent(node, |node, seat| node.leave_lent(consistent, hold, seat));
            if !goes_on && node.uses() < hold {
                cell.hold.note_poor_loan();
            }
            return goes_on;
        }
        false
    }
}

/// Time for which a rank waits for the other one's seat before it sleeps.
struct SeatPatience<'a> {
    world: &'a World,
    end: u64,
    spins: u32,
}

impl<'a> SeatPatience<'a> {
    fn new(world: &'a World) -> SeatPatience<'a> {
        SeatPatience { world, end: 0, spins: 0 }
    }

    /// Pauses once. Returns false when the time is over.
    fn spin(&mut self) -> bool {
        std::hint::spin_loop();
        self.spins += 1;
        if !self.spins.is_multiple_of(32) {
            return true;
        }
        let now = HolderHost::now(self.world);
        if self.end == 0 {
            self.end = now + HolderHost::switch_cost(self.world);
        }
        now < self.end
    }
}
