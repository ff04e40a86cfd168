//! Loan of a lock: the nodes of a host use it in turns, without a message for each.
//!
//! **Source.** A cohort lock passes a lock on within its cohort for a bounded time while others
//! wait (Dice, Marathe & Shavit 2012); here the cohort are the node that keeps the lock (*lender*)
//! and those that wait next, up to the first one of another host (*borrowers*). A lender that used
//! its lock alone would leave the other cores of the host without work: all that could use them
//! waits. One that lent it to the next waiter alone would leave them to other programs whenever the
//! system gives one of the two no core.
//!
//! ```text
//!             take                   leave, closes or used up
//!   FREE ◀───────────▶ NODE n ─────────────────────────────────▶ ENDED
//!     │       leave        │  end: node n has the lock              ▲
//!     └────────────────────┴─────────────────────────────────────────┘
//!         close, end: the lender has the lock
//! ```
//!
//! **Fields.** One word: generation, holder, number of acquisitions, flags. A token is that of the
//! lender when the loan began, and that number. **Owners.** The lender opens a seat, tells the next
//! node, and each node that is told tells the one behind it. Each of them takes the seat when it is
//! free, and leaves it when it is its own. A node that *closes* it has it end when it is left: the
//! lender has the lock then, and passes it on in the order of the queue. Only the lender *ends* a
//! loan at once: before it answers an inquiry. The holder of the seat then has the lock.
//!
//! **Bound.** [`Loan::most`] acquisitions of all; the time is the carriers', which close a seat
//! after it where another node waits ([`Loan::want`]): one behind them that the lock is not lent
//! to, or a borrower that has tried in vain. A waiter behind them is served no later for a loan.
//!
//! **Crashes.** The word needs no repair. Borrowers stay in the home's queue: the death
//! of one of the nodes leads to an inquiry, in which a borrower that holds the lock says so, and
//! the lender ends the loan before it answers. No node takes a seat under an offer that an inquiry,
//! a grant or a new request has ended ([`crate::NodeLock::on_message`]). If the one that has closed
//! the seat dies before the lender hears of it, the inquiry says so.
//!
//! **Cost.** Two exchanges for an acquisition, and the move of a line where another node came
//! between. **Don't use it** for a lock with data: these travel by message. Borrowers take the seat
//! in no order: the system's scheduler gives each its share.

use crate::numbers::{Node, Ticket};
use crate::token::FencingToken;

/// Holder of a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SeatHolder {
    /// The loan is over.
    Ended,
    /// No node.
    Free,
    /// This node.
    Node(Node),
}

/// Number of bits of a generation.
const GENERATION_BITS: u32 = 28;
/// Number of bits of a holder: 0 ended, 1 free, and nodes from 2 on.
const HOLDER_BITS: u32 = 6;
/// Number of bits of a number of acquisitions.
const COUNT_BITS: u32 = 27;
/// Bit that says that a node sleeps until the seat is left.
const SLEEPS: u64 = 1 << HOLDER_BITS;
/// Bit that says that the loan ends when the seat is left.
const CLOSES: u64 = 1 << (HOLDER_BITS + 1);
/// Bit that says that the loan ends when its time is over.
const WANTED: u64 = 1 << (HOLDER_BITS + 2);
const GENERATION_SHIFT: u32 = HOLDER_BITS + 3;
const COUNT_SHIFT: u32 = GENERATION_SHIFT + GENERATION_BITS;
const _: () = assert!(COUNT_SHIFT + COUNT_BITS == u64::BITS);
/// Holder of a seat that is free.
const FREE: u64 = 1;
/// Bits of the holder.
const HOLDER: u64 = (1 << HOLDER_BITS) - 1;
/// Bits of the generation and the holder.
const OF_HOLDER: u64 = ((1 << GENERATION_BITS) - 1) << GENERATION_SHIFT | HOLDER;

/// Loan of a lock.
///
/// The `Group` in the examples is a home and three nodes, whose messages it delivers
/// (`doc/group.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loan {
    /// Number of its seat on the host of the nodes.
    pub seat: u16,
    /// Generation of the seat: a number that the seat has not had lately.
    pub generation: u32,
    /// Node that lends the lock.
    pub lender: Node,
    /// Request by which that node has the lock.
    pub ticket: Ticket,
    /// Token before those of the loan.
    pub token: FencingToken,
    /// Maximum number of acquisitions.
    pub most: u32,
    /// True if the borrower may keep the lock when it has it for itself.
    pub cachable: bool,
}

impl Loan {
    /// Number of nodes that can use a seat: those with the smallest numbers.
    pub const NODES: Node = (1 << HOLDER_BITS) - 2;
    /// Maximum number of acquisitions that a seat can count.
    pub(crate) const MOST: u32 = (1 << COUNT_BITS) - 1;

    /// Returns the generation after another one.
    ///
    /// ```
    /// use towpath::mplock::Loan;
    ///
    /// assert_eq!(Loan::generation_after(1), 2);
    /// assert_eq!(Loan::generation_after((1 << 28) - 1), 0); // and round
    /// ```
    #[must_use]
    pub fn generation_after(generation: u32) -> u32 {
        (generation + 1) & ((1 << GENERATION_BITS) - 1)
    }

    /// Returns the word of its seat at first.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let (group, _) = Group::with_loan();
    /// let loan = group.nodes[0].lent().expect("it is lent");
    /// let seat = Cell::new(loan.first_word());
    /// assert!(!group.nodes[0].is_seat_taken(&seat)); // free at first
    /// # }
    /// ```
    #[must_use]
    pub fn first_word(&self) -> u64 {
        SeatWord { generation: self.generation, holder: SeatHolder::Free, flags: 0, count: 0 }.bits()
    }

    /// Returns whether a message concerns this loan.
    pub(crate) fn is_at(&self, seat: u16, generation: u32) -> bool {
        (self.seat, self.generation) == (seat, generation)
    }

    /// Returns the token of an acquisition.
    pub(crate) fn token_of(&self, count: u32) -> FencingToken {
        FencingToken::from_number(self.token.get().wrapping_add(u64::from(count)))
    }

    /// Takes the seat.
    #[inline]
    pub(crate) fn take(&self, node: Node, seat: &impl LoanSeat) -> Taking {
        let mut bits = seat.load_to_change();
        while bits & OF_HOLDER == self.bits_of(FREE) && (bits >> COUNT_SHIFT) < self.most.into() {
            let next = bits + (1 << COUNT_SHIFT) - FREE + holder_bits(node);
            if seat.exchange(bits, next) {
                return Taking::Taken((next >> COUNT_SHIFT) as u32);
            }
            bits = seat.load();
        }
        match self.word(bits).holder {
            SeatHolder::Node(_) => Taking::Busy,
            SeatHolder::Free | SeatHolder::Ended => Taking::Over,
        }
    }

    /// Leaves the seat that the node holds, if the loan goes on. Returns whether nodes
    /// sleep until then.
    #[inline]
    pub(crate) fn leave_open(&self, node: Node, seat: &impl LoanSeat) -> Option<bool> {
        loop {
            let bits = seat.load();
            let goes_on = bits & CLOSES == 0 && (bits >> COUNT_SHIFT) < self.most.into();
            if bits & OF_HOLDER != self.bits_of(holder_bits(node)) || !goes_on {
                return None;
            }
            if seat.exchange(bits, bits & !(HOLDER | SLEEPS) | FREE) {
                return Some(bits & SLEEPS != 0);
            }
        }
    }

    /// Leaves the seat that the node holds. `closes`: the loan is to end.
    pub(crate) fn leave(&self, node: Node, closes: bool, seat: &impl LoanSeat) -> SeatLeaving {
        loop {
            let word = self.read(seat);
            if word.holder != SeatHolder::Node(node) {
                return SeatLeaving::Lost;
            }
            let ends = closes || word.has(CLOSES) || word.count >= self.most;
            let holder = if ends { SeatHolder::Ended } else { SeatHolder::Free };
            let next = SeatWord { holder, flags: word.flags & !SLEEPS, ..word };
            if seat.exchange(word.bits(), next.bits()) {
                return if ends { SeatLeaving::Ended } else { SeatLeaving::Open { slept: word.has(SLEEPS) } };
            }
        }
    }

    /// Says that the loan is to end when its time is over: a node waits that it does not
    /// serve.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/group.rs"));
    /// # fn main() {
    /// let (group, seat) = Group::with_loan();
    /// let before = seat.get();
    /// group.nodes[0].lent().expect("it is lent").want(&seat);
    /// assert_ne!(seat.get(), before); // the carrier of the lender reads it, and closes the loan
    /// # }
    /// ```
    pub fn want(&self, seat: &impl LoanSeat) {
        self.add(WANTED, seat, |_| true);
    }

    /// Returns its state by a look at the seat.
    pub(crate) fn state(&self, seat: &impl LoanSeat) -> LoanState {
        let word = self.read(seat);
        let has_ended = word.holder == SeatHolder::Ended;
        LoanState { has_ended, is_wanted: word.has(WANTED), count: word.count }
    }

    /// Has the loan end when the seat is left. Returns whether it has ended.
    pub(crate) fn close(&self, seat: &impl LoanSeat) -> bool {
        loop {
            let word = self.read(seat);
            let next = match word.holder {
                SeatHolder::Ended => return true,
                SeatHolder::Free => SeatWord { holder: SeatHolder::Ended, ..word },
                SeatHolder::Node(_) => SeatWord { flags: word.flags | CLOSES, ..word },
            };
            if seat.exchange(word.bits(), next.bits()) {
                return next.holder == SeatHolder::Ended;
            }
        }
    }

    /// Ends the loan. Returns the holder of the seat before, and the number of
    /// acquisitions.
    pub(crate) fn end(&self, seat: &impl LoanSeat) -> (SeatHolder, u32) {
        loop {
            let word = self.read(seat);
            let ended = SeatWord { holder: SeatHolder::Ended, ..word };
            if word.holder == SeatHolder::Ended || seat.exchange(word.bits(), ended.bits()) {
                return (word.holder, word.count);
            }
        }
    }

    /// Returns whether a node holds the seat.
    pub(crate) fn is_taken(&self, seat: &impl LoanSeat) -> bool {
        matches!(self.read(seat).holder, SeatHolder::Node(_))
    }

    /// Returns whether the node holds the seat.
    pub(crate) fn is_held_by(&self, node: Node, seat: &impl LoanSeat) -> bool {
        self.read(seat).holder == SeatHolder::Node(node)
    }

    /// Says that a node sleeps until the seat is left. Returns false if no node holds it.
    pub(crate) fn announce_sleep(&self, seat: &impl LoanSeat) -> bool {
        self.add(SLEEPS, seat, |holder| matches!(holder, SeatHolder::Node(_)))
    }

    /// Sets a flag while the loan goes on, and the seat's holder is as asked. Returns
    /// whether it is set.
    fn add(&self, flag: u64, seat: &impl LoanSeat, asked: impl Fn(SeatHolder) -> bool) -> bool {
        loop {
            let word = self.read(seat);
            if word.holder == SeatHolder::Ended || !asked(word.holder) {
                return false;
            }
            let next = SeatWord { flags: word.flags | flag, ..word };
            if word.has(flag) || seat.exchange(word.bits(), next.bits()) {
                return true;
            }
        }
    }

    /// Returns the seat's word; that of another generation counts as ended.
    #[inline]
    fn read(&self, seat: &impl LoanSeat) -> SeatWord {
        self.word(seat.load())
    }

    /// Returns the bits of the generation with those of a holder.
    fn bits_of(&self, holder: u64) -> u64 {
        u64::from(self.generation) << GENERATION_SHIFT | holder
    }

    #[inline]
    fn word(&self, bits: u64) -> SeatWord {
        let word = SeatWord::of(bits);
        if word.generation == self.generation { word } else { SeatWord { holder: SeatHolder::Ended, ..word } }
    }
}

/// Returns the bits of a node as a seat's holder.
fn holder_bits(node: Node) -> u64 {
    u64::from(node) + 2
}

/// State of a loan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoanState {
    /// True if it is over.
    pub(crate) has_ended: bool,
    /// True if it is to end when its time is over.
    pub(crate) is_wanted: bool,
    /// Number of acquisitions.
    pub(crate) count: u32,
}

/// Outcome of an attempt to take a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taking {
    /// The seat is the node's, with that number.
    Taken(u32),
    /// Another one holds it.
    Busy,
    /// The loan is over, or its acquisitions are used up.
    Over,
}

/// Outcome of leaving a seat, or of releasing a lock under a loan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeatLeaving {
    /// The loan goes on.
    Open {
        /// True if nodes sleep until the seat is left.
        slept: bool,
    },
    /// The loan is over, and the lender has the lock.
    Ended,
    /// The loan was over before: the node has the lock, as if it were not lent.
    Lost,
}

/// Word that lender and borrowers share.
///
/// An exchange that succeeds hands over what was done before the one that it follows.
pub trait LoanSeat {
    /// Reads it.
    ///
    /// ```
    /// use towpath::mplock::LoanSeat;
    ///
    /// assert_eq!(LoanSeat::load(&std::cell::Cell::new(7)), 7);
    /// ```
    fn load(&self) -> u64;
    /// Reads it to replace it: brings its line here at once, and not first for reading.
    ///
    /// ```
    /// use towpath::mplock::LoanSeat;
    ///
    /// let seat = std::cell::Cell::new(7);
    /// let seen = seat.load_to_change();
    /// assert!(seat.exchange(seen, seen + 1));
    /// ```
    fn load_to_change(&self) -> u64 {
        self.load()
    }
    /// Replaces it, if it is as expected. Returns whether it was.
    ///
    /// A seat that processes share:
    ///
    /// ```
    /// use std::sync::atomic::AtomicU64;
    /// use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
    /// use towpath::mplock::LoanSeat;
    ///
    /// struct Seat(AtomicU64);
    /// impl LoanSeat for Seat {
    ///     fn load(&self) -> u64 {
    ///         self.0.load(Acquire)
    ///     }
    ///     fn exchange(&self, from: u64, to: u64) -> bool {
    ///         self.0.compare_exchange(from, to, AcqRel, Relaxed).is_ok()
    ///     }
    /// }
    /// let seat = Seat(AtomicU64::new(7));
    /// assert!(seat.exchange(7, 8) && !seat.exchange(7, 9));
    /// ```
    fn exchange(&self, from: u64, to: u64) -> bool;
}

/// Seat in one thread's hands for one step, as models have it.
impl LoanSeat for std::cell::Cell<u64> {
    fn load(&self) -> u64 {
        self.get()
    }
    fn exchange(&self, from: u64, to: u64) -> bool {
        let is_same = self.get() == from;
        if is_same {
            self.set(to);
        }
        is_same
    }
}

/// Contents of a seat's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SeatWord {
    generation: u32,
    holder: SeatHolder,
    flags: u64,
    count: u32,
}

impl SeatWord {
    fn has(self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    fn of(bits: u64) -> SeatWord {
        let holder = match bits & HOLDER {
            0 => SeatHolder::Ended,
            FREE => SeatHolder::Free,
            node => SeatHolder::Node(node as Node - 2),
        };
        let generation = (bits >> GENERATION_SHIFT) as u32 & ((1 << GENERATION_BITS) - 1);
        let flags = bits & (SLEEPS | CLOSES | WANTED);
        SeatWord { generation, holder, flags, count: (bits >> COUNT_SHIFT) as u32 }
    }

    #[inline]
    fn bits(self) -> u64 {
        let holder = match self.holder {
            SeatHolder::Ended => 0,
            SeatHolder::Free => FREE,
            SeatHolder::Node(node) => holder_bits(node),
        };
        let generation = u64::from(self.generation) << GENERATION_SHIFT;
        u64::from(self.count) << COUNT_SHIFT | generation | self.flags | holder
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn word_of_a_seat_has_room_for_its_largest_values() {
        let (generation, count) = ((1 << GENERATION_BITS) - 1, Loan::MOST);
        for holder in [SeatHolder::Ended, SeatHolder::Free, SeatHolder::Node(Loan::NODES - 1)] {
            let word = SeatWord { generation, holder, flags: SLEEPS | WANTED, count };
            assert_eq!(SeatWord::of(word.bits()), word);
        }
    }

    #[test]
    fn seat_that_closes_ends_when_it_is_left() {
        let token = FencingToken::of_epoch(1);
        let loan = Loan { seat: 0, generation: 7, lender: 1, ticket: 1, token, most: 9, cachable: true };
        let seat = Cell::new(loan.first_word());
        assert_eq!(loan.take(2, &seat), Taking::Taken(1));
        assert_eq!(loan.take(3, &seat), Taking::Busy);
        assert!(loan.announce_sleep(&seat));
        assert_eq!(loan.leave(2, false, &seat), SeatLeaving::Open { slept: true });
        assert!(!loan.announce_sleep(&seat), "the seat is free");
        assert_eq!(loan.take(3, &seat), Taking::Taken(2));
        assert!(!loan.close(&seat));
        assert_eq!(loan.leave(3, false, &seat), SeatLeaving::Ended);
        assert_eq!(loan.take(2, &seat), Taking::Over);
        assert!(loan.close(&seat) && loan.state(&seat).has_ended);
    }
}
