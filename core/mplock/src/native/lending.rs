//! Seats of loans in the world, and the carrier's part of a loan (`loan.rs`).
//!
//! Each of the first ranks has a few seats in a named object, which the first loan of the world
//! makes. A lender chooses one of its own that no loan of its own uses; so no two processes open
//! the same seat. A world without room for the object has no loans.
//!
//! **Sleep.** A rank that finds a seat taken spins for about a switch of processes, writes itself
//! down beside the word, says in the word that it sleeps, and waits at its endpoint, as a home of
//! other locks. The one that leaves the seat wakes all of them by message. Where that is frequent,
//! the loan ends when its time is over, and the lender keeps the lock alone for a while.

use std::cell::{Cell, OnceCell};
use std::sync::atomic::{AtomicU64, Ordering};

use towpath_machine::{Native, OwnLine, Prefetch};
use towpath_shm::{Shared, World};
use towpath_sync::Policy;
use towpath_sync::strategy::{Limits, Step, Strategy, WaitState};

use super::hold::{HoldBudget, HolderHost};
use super::lock::{LockCell, POLL_EVERY_LENT};
use super::serve::ManagerState;
use crate::Outbox;
use crate::loan::{Loan, LoanSeat, SeatLeaving};
use crate::message::{Decision, Message, Mode, Successor};
use crate::node::{LoanEntry, NodeLock, NodeState};
use crate::numbers::Node;

/// Number of seats of a rank.
const SEATS: u16 = 4;
/// Number of ranks that have seats.
const RANKS: u16 = 32;
/// Number of pauses for which a rank waits for a seat before it serves others.
const PAUSES: u32 = 16;
/// Number of times that a borrower finds the seat taken before it wants the loan to end.
const IN_VAIN: u32 = 8;
/// Number of acquisitions between two sleeps at a seat from which a loan does well.
const POOR_BELOW: u32 = 64;
/// Number of sleeps from which that is judged.
const JUDGED: u64 = 8;
/// Name of the seats' object.
const NAME: &str = "towpath_mplock_seats";

/// Words of a seat, each at its place: the loan's, ranks that sleep, number of sleeps.
type SeatWords = [AtomicU64; 3];
const SLEEPERS: usize = 1;
const SLEEPS: usize = 2;
type Seats = [OwnLine<SeatWords>; (SEATS * RANKS) as usize];

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
#[derive(Clone, Copy)]
pub(crate) struct NativeSeat<'a>(Option<&'a SeatWords>);

impl LoanSeat for NativeSeat<'_> {
    #[inline]
    fn load(&self) -> u64 {
        // Relaxed: what is done with it is an exchange, which orders it.
        self.0.map_or(0, |words| words[0].load(Ordering::Relaxed))
    }
    #[inline]
    fn load_to_change(&self) -> u64 {
        self.prefetch();
        self.load()
    }
    #[inline]
    fn exchange(&self, from: u64, to: u64) -> bool {
        // (N1) AcqRel: hands over what the lock protects, from the exchange that leaves a seat to
        // the one that takes it or ends the loan; pairs with itself.
        self.0.is_some_and(|words| {
            words[0].compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    }
}

impl NativeSeat<'_> {
    /// Has the word's line come here, to be written.
    #[inline]
    fn prefetch(self) {
        if let Some(words) = self.0 {
            Native::with_id(0).prefetch_exclusive(&words[0]);
        }
    }

    /// Notes that a rank is about to sleep at the seat, before it says so in the word.
    fn note_sleeper(self, rank: Node) {
        // Relaxed, here and below: the exchanges of the word order them.
        if let Some(words) = self.0 {
            words[SLEEPERS].fetch_or(1 << rank, Ordering::Relaxed);
        }
    }

    /// Takes the ranks that sleep, as bits, and counts the sleep.
    fn take_sleepers(self) -> u64 {
        self.0.map_or(0, |words| {
            words[SLEEPS].fetch_add(1, Ordering::Relaxed);
            words[SLEEPERS].swap(0, Ordering::Relaxed)
        })
    }

    /// Returns whether ranks sleep at the seat so often that a loan does no good.
    fn is_poor(self, count: u32) -> bool {
        let sleeps = self.0.map_or(0, |words| words[SLEEPS].load(Ordering::Relaxed));
        sleeps >= JUDGED && u64::from(count) < sleeps.saturating_mul(POOR_BELOW.into())
    }
}

impl Lending {
    fn seats(&self, world: &World) -> Option<&Seats> {
        self.seats.get_or_init(|| world.shared::<Seats>(NAME, |_| ()).ok()).as_deref()
    }

    #[inline]
    pub(crate) fn seat(&self, loan: &Loan, world: &World) -> NativeSeat<'_> {
        NativeSeat(self.seats(world).and_then(|seats| seats.get(loan.seat as usize)).map(|line| &line.0))
    }

    /// Returns the number of an own seat that is free, and its next generation.
    fn free_seat(&self, me: Node) -> Option<(u16, u32)> {
        let own = (0..SEATS).find(|seat| self.used.get() & 1 << seat == 0)?;
        let generation = Loan::generation_after(self.generations[own as usize].get());
        (me < RANKS).then_some((me * SEATS + own, generation))
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
    fn can_borrow(&self, node: Node) -> bool {
        node < Loan::NODES && self.endpoint.world().is_local(node.into())
    }

    /// Lends a lock that is kept to the nodes that wait next, if that is worth while.
    #[cold]
    pub(crate) fn lend(&self, cell: &LockCell) {
        let world = self.endpoint.world();
        let mut node = cell.node.borrow_mut();
        let borrower = node.possible_borrower().filter(|&node| self.can_borrow(node));
        if borrower.is_none() || !self.lending.has_cores() {
            return;
        }
        let Some((seat, generation)) = self.lending.free_seat(self.me) else { return };
        let loan = node.loan_at(self.me, seat, generation, self.hold.get().acquisitions);
        let NativeSeat(Some(words)) = self.lending.seat(&loan, world) else { return };
        for (word, value) in words.iter().zip([loan.first_word(), 0, 0]) {
            // Relaxed: the message of the loan orders it.
            word.store(value, Ordering::Relaxed);
        }
        node.lend(loan, &mut cell.sends(self));
        self.lending.note_begin(&loan);
        cell.hold.note_loan();
    }

    /// Tells the node behind this one of a loan, if it does not know of it.
    pub(crate) fn extend_loan(&self, cell: &LockCell) {
        let mut node = cell.node.borrow_mut();
        match node.next_to_tell() {
            None => {}
            Some(Successor::Node { node: next, .. }) if self.can_borrow(next) => {
                node.tell_next(&mut cell.sends(self));
            }
            Some(_) => {
                let seat = self.seat_of(&node);
                node.tell_no_next(&seat);
            }
        }
    }

    /// Returns the seat of a loan by this rank or to it.
    #[inline]
    pub(crate) fn seat_of(&self, node: &NodeLock) -> NativeSeat<'_> {
        let world = self.endpoint.world();
        node.loan().map_or(NativeSeat(None), |loan| self.lending.seat(loan, world))
    }

    /// Has the seat's line of a loan by this rank or to it come here.
    ///
    /// Returns whether there is a loan.
    #[inline]
    pub(crate) fn prefetch_seat(&self, node: &NodeLock) -> bool {
        let is_lent = node.loan().is_some();
        if is_lent {
            self.seat_of(node).prefetch();
        }
        is_lent
    }

    /// Acts on a loan by this rank, at its seat, and notes if it is over then.
    fn with_lent<R>(
        &self,
        cell: &LockCell,
        node: &mut NodeLock,
        act: impl FnOnce(&mut NodeLock, &NativeSeat<'_>) -> R,
    ) -> R {
        let (loan, seat) = (node.lent().copied(), self.seat_of(node));
        let result = act(node, &seat);
        if let Some(loan) = loan {
            self.note_if_over(cell, node, &loan, seat);
        }
        result
    }

    /// Notes that a loan by this rank is over, if it is.
    fn note_if_over(&self, cell: &LockCell, node: &NodeLock, loan: &Loan, seat: NativeSeat<'_>) {
        if node.lent().is_none() {
            self.lending.note_end(loan);
            if seat.is_poor(node.uses()) {
                cell.hold.note_poor_loan();
            }
        }
    }

    /// Ends a loan by this rank at once, if there is one: before an inquiry.
    pub(crate) fn end_loan(&self, cell: &LockCell) {
        let mut node = cell.node.borrow_mut();
        if node.lent().is_some() {
            self.with_lent(cell, &mut node, |node, seat| node.end_loan(seat));
        }
    }

    /// Has a loan by this rank end when its seat is left. Returns whether there is none
    /// any more.
    pub(crate) fn close_loan(&self, cell: &LockCell) -> bool {
        let mut node = cell.node.borrow_mut();
        node.lent().is_none() || self.with_lent(cell, &mut node, |node, seat| node.close_loan(seat))
    }

    /// Has a loan by this rank end when its time is over.
    ///
    /// Returns whether there is none any more.
    pub(crate) fn look_at_loan(&self, cell: &LockCell, budget: HoldBudget, now: u64) -> bool {
        let node = cell.node.borrow();
        let Some(loan) = node.lent() else { return true };
        let closes = cell.hold.idle_loan_is_over(budget, loan.state(&self.seat_of(&node)), now);
        drop(node);
        closes && self.close_loan(cell)
    }

    /// Handles a borrower's word that it has left the seat.
    pub(crate) fn on_seat(&self, cell: &LockCell, message: &Message) {
        let mut node = cell.node.borrow_mut();
        self.with_lent(cell, &mut node, |node, seat| {
            node.on_seat(message, seat, &mut cell.sends(self));
        });
    }

    /// Takes the seat of a lock that this rank keeps and has lent.
    #[inline(never)]
    pub(crate) fn enter_lent(&self, cell: &LockCell, seat: NativeSeat<'_>, node: &mut NodeLock) -> LoanEntry {
        let Some(loan) = node.lent().copied().filter(|_| node.state() == NodeState::Kept) else {
            return LoanEntry::Over;
        };
        let mut pauses = 0;
        let entry = loop {
            let entry = node.enter_lent(&seat, &mut cell.sends(self));
            if entry != LoanEntry::Busy || pauses >= PAUSES {
                break entry;
            }
            pauses += pause_while_taken(node, &seat, PAUSES - pauses);
        };
        self.note_if_over(cell, node, &loan, seat);
        entry
    }

    /// Takes a lock that is lent to this rank, if its seat is free.
    ///
    /// Returns whether it has it.
    #[inline]
    pub(crate) fn borrow_at_once(&self, node: &mut NodeLock, mode: Mode) -> bool {
        let Some(loan) = node.offer() else { return false };
        let seat = self.lending.seat(loan, self.endpoint.world());
        // Its line comes while the rest is done.
        seat.prefetch();
        let acquired = self.acquired.get().wrapping_add(1);
        if acquired.is_multiple_of(POLL_EVERY_LENT) {
            return false;
        }
        self.acquired.set(acquired);
        node.try_borrow(self.me, mode, &seat).is_ok()
    }

    /// Leaves the seat of a lock that is lent to this rank.
    ///
    /// Returns whether it has: otherwise there is more to do.
    #[inline]
    pub(crate) fn leave_at_once(&self, cell: &LockCell, node: &mut NodeLock) -> bool {
        let Some(loan) = node.offer().filter(|_| !cell.hold.closes_loan()) else { return false };
        let seat = self.lending.seat(loan, self.endpoint.world());
        let Some(slept) = node.return_open(self.me, &seat) else { return false };
        self.note_left(cell, node, slept);
        true
    }

    /// Notes that this rank has left the seat of a loan that goes on.
    ///
    /// `slept`: ranks sleep until then.
    #[inline]
    fn note_left(&self, cell: &LockCell, node: &NodeLock, slept: bool) {
        let looks = cell.hold.looks_at_loan();
        if looks || slept {
            self.look_when_left(cell, node, looks, slept);
        }
    }

    /// Looks at a loan whose seat this rank has left, and wakes those that sleep at it.
    ///
    /// Not before the seat is left: others wait for it.
    #[cold]
    #[inline(never)]
    fn look_when_left(&self, cell: &LockCell, node: &NodeLock, looks: bool, slept: bool) {
        let Some(loan) = node.loan() else { return };
        let (world, seat) = (self.endpoint.world(), self.seat_of(node));
        if looks {
            cell.hold.look_at_loan(self.hold.get(), loan.state(&seat), world);
        }
        if slept {
            self.wake_sleepers(cell, node, loan, seat);
        }
    }

    /// Takes a lock that is lent to this rank, if it is free. Returns whether it has it.
    #[inline(never)]
    pub(crate) fn borrow(&self, node: &mut NodeLock, mode: Mode) -> bool {
        let seat = self.seat_of(node);
        let mut pauses = 0;
        loop {
            match node.try_borrow(self.me, mode, &seat) {
                Err(LoanEntry::Busy) if pauses < PAUSES => {}
                taken => return taken.is_ok(),
            }
            pauses += pause_while_taken(node, &seat, PAUSES - pauses);
        }
    }

    /// Takes a lock under a loan by this rank or to it.
    ///
    /// Waits for its seat for a while, and says then that this rank sleeps. `in_vain`: number of
    /// times that this was in vain.
    pub(crate) fn take_soon(&self, cell: &LockCell, in_vain: &mut u32) -> Option<Decision> {
        let mut node = cell.node.borrow_mut();
        if node.loan().is_none() && cell.request.get().is_none() {
            return None;
        }
        let (seat, mut wait) = (self.seat_of(&node), SeatWait::new(self.endpoint.world()));
        loop {
            let entry = match cell.request.get() {
                // A look at it leaves its line to the node that has it.
                _ if node.is_seat_taken(&seat) => Err(LoanEntry::Busy),
                Some(request) => match self.enter_lent(cell, seat, &mut node) {
                    LoanEntry::Busy => Err(LoanEntry::Busy),
                    _ => {
                        cell.request.set(None);
                        return node.acquire(request, &mut cell.sends(self));
                    }
                },
                None => {
                    let mode = node.offer().and(node.wants())?;
                    node.borrow(self.me, mode, &seat)
                }
            };
            match entry {
                Ok(decision) => return Some(decision),
                Err(LoanEntry::Busy) if wait.spin() => {}
                Err(LoanEntry::Busy) => {
                    seat.note_sleeper(self.me);
                    if node.announce_sleep(&seat) {
                        *in_vain += 1;
                        if let Some(loan) = node.loan().filter(|_| *in_vain >= IN_VAIN) {
                            loan.want(&seat);
                        }
                        return None;
                    }
                }
                Err(_) => return None,
            }
        }
    }

    /// Leaves the seat of a lock that this rank has lent or borrowed.
    ///
    /// Returns whether that is all: otherwise the lock is to be released as if it were not lent.
    #[inline(never)]
    pub(crate) fn leave_loan(&self, cell: &LockCell, node: &mut NodeLock, consistent: bool) -> bool {
        let Some(&loan) = node.loan() else { return false };
        let (world, budget) = (self.endpoint.world(), self.hold.get());
        let (seat, is_borrowed) = (self.lending.seat(&loan, world), node.is_borrowed());
        let closes = cell.hold.closes_loan();
        let leaving = if is_borrowed {
            node.return_loan(self.me, consistent, closes, &seat, &mut cell.sends(self))
        } else {
            let leaving = node.leave_lent(consistent, closes, budget.acquisitions, &seat);
            self.note_if_over(cell, node, &loan, seat);
            leaving
        };
        match leaving {
            SeatLeaving::Open { slept } => {
                self.note_left(cell, node, slept);
                true
            }
            SeatLeaving::Ended => is_borrowed,
            SeatLeaving::Lost => {
                cell.hold.note_grant();
                false
            }
        }
    }

    /// Wakes the ranks that sleep at a seat.
    #[cold]
    fn wake_sleepers(&self, cell: &LockCell, node: &NodeLock, loan: &Loan, seat: NativeSeat<'_>) {
        let mut sleepers = seat.take_sleepers() & !(1 << self.me);
        if seat.is_poor(loan.state(&seat).count) {
            loan.want(&seat);
        }
        while sleepers != 0 {
            let rank = sleepers.trailing_zeros() as Node;
            sleepers &= sleepers - 1;
            cell.sends(self).to_node(rank, node.seat_left(loan));
        }
    }
}

/// Pauses while the seat is taken: once at least. Returns the number of pauses.
///
/// A look at the seat leaves its line to the node that has it.
fn pause_while_taken(node: &NodeLock, seat: &NativeSeat<'_>, most: u32) -> u32 {
    let mut pauses = 0;
    loop {
        std::hint::spin_loop();
        pauses += 1;
        if pauses >= most || !node.is_seat_taken(seat) {
            return pauses;
        }
    }
}

/// Wait of a rank for a seat: it spins for about a switch of processes, then sleeps.
struct SeatWait<'a> {
    world: &'a World,
    state: WaitState,
    end: u64,
    spins: u32,
}

impl<'a> SeatWait<'a> {
    fn new(world: &'a World) -> SeatWait<'a> {
        SeatWait { world, state: WaitState::default(), end: 0, spins: 0 }
    }

    /// Pauses once. Returns false when the rank is to sleep, by the waiting strategy.
    fn spin(&mut self) -> bool {
        std::hint::spin_loop();
        self.spins += 1;
        if !self.spins.is_multiple_of(32) {
            return true;
        }
        let now = HolderHost::now(self.world);
        now < self.end || self.goes_on(now)
    }

    /// Asks the strategy whether to spin further, at the end of a spin.
    fn goes_on(&mut self, now: u64) -> bool {
        let switch_cost = HolderHost::switch_cost(self.world);
        let strategy = Strategy::new(Policy::SpinThenPark, switch_cost, &Limits::LOCK);
        match strategy.next(&mut self.state, || false) {
            Step::Spin(time) => {
                self.end = now + time;
                true
            }
            Step::Yield | Step::Park(_) => false,
        }
    }
}
