//! Loan of a lock: two nodes of a host use it in turns, without a message for each.
//!
//! **Source.** A cohort lock passes a lock on within its cohort for a bounded time while others
//! wait (Dice, Marathe & Shavit 2012); here the cohort are the node that keeps the lock (*lender*)
//! and the one that waits next (*borrower*). A lender that used its lock alone would leave the
//! other cores of the host without work: all that could use them waits.
//!
//! ```text
//!                    take: lender             take: borrower
//!   LENDER ◀─────────────────────── FREE ───────────────────────▶ BORROWER
//!     │   ───────────────────────▶   │   ◀───────────────────────   │
//!     │            leave             │            leave             │
//!     └────────────▶ ENDED ◀─────────┴──────────────────────────────┘
//!        the lender has the lock    end    the borrower has the lock
//! ```
//!
//! **Fields.** One word: generation, holder, number of acquisitions. A token is that of the
//! lender when the loan began, and that number. **Owners.** The lender opens a seat; each of the
//! two takes it when it is free, leaves it when it is its own, and ends the loan at any time. The
//! one that holds the seat then has the lock; of a free seat the one that ends the loan.
//!
//! **Bound.** [`Loan::most`] acquisitions of both; the time is the carriers'. The lender's time
//! does not end before the borrower has had the seat once: it would have the lock next, and lets
//! the lender use it until then. So a waiter behind both waits no longer than it would if the lock
//! were handed over to a borrower that does not run yet.
//!
//! **Crashes.** The word needs no repair. The borrower waits in the home's queue as before: the
//! death of one of the two leads to an inquiry, in which a borrower that holds the lock says so,
//! and the lender ends the loan before it answers. No node takes a seat under an offer that an
//! inquiry, a grant or a new request has ended ([`crate::NodeLock::on_message`]).
//!
//! **Cost.** An exchange and a store for an acquisition, and the move of a line where the other
//! node came between. **Don't use it** without a core for each of the two, or for a lock with
//! data: these travel by message.

use crate::token::FencingToken;

/// Holder of a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SeatHolder {
    /// None of the two.
    Free,
    /// The node that lends the lock.
    Lender,
    /// The node that the lock is lent to.
    Borrower,
    /// The loan is over.
    Ended,
}

/// Number of bits of a generation.
const GENERATION_BITS: u32 = 28;
/// Bit that says that the borrower sleeps until the lender leaves.
const SLEEPS: u64 = 1 << 2;
/// Bit that says that the borrower has had the seat, or does not want it.
const CAME: u64 = 1 << 3;

/// Loan of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loan {
    /// Number of its seat on the host of both nodes.
    pub seat: u32,
    /// Generation of the seat: a number that the seat has not had lately.
    pub generation: u32,
    /// Token before those of the loan.
    pub token: FencingToken,
    /// Maximum number of acquisitions.
    pub most: u32,
    /// True if the borrower may keep the lock when it has it for itself.
    pub cachable: bool,
}

impl Loan {
    /// Returns the generation after another one.
    #[must_use]
    pub fn generation_after(generation: u32) -> u32 {
        (generation + 1) & ((1 << GENERATION_BITS) - 1)
    }

    /// Returns the word of its seat at first.
    #[must_use]
    pub fn first_word(&self) -> u64 {
        let (generation, holder) = (self.generation, SeatHolder::Free);
        SeatWord { generation, holder, sleeps: false, came: false, count: 0 }.bits()
    }

    /// Returns the token of an acquisition.
    pub(crate) fn token_of(&self, count: u32) -> FencingToken {
        FencingToken::from_number(self.token.get().wrapping_add(u64::from(count)))
    }

    /// Takes the seat.
    pub(crate) fn take(&self, party: SeatHolder, seat: &impl LoanSeat) -> Taking {
        loop {
            let word = self.read(seat);
            let next = match word.holder {
                SeatHolder::Free if word.count < self.most => {
                    let came = word.came || party == SeatHolder::Borrower;
                    SeatWord { holder: party, count: word.count + 1, came, ..word }
                }
                SeatHolder::Free | SeatHolder::Ended => return Taking::Over,
                _ => return Taking::Busy,
            };
            if seat.exchange(word.bits(), next.bits()) {
                return Taking::Taken(next.count);
            }
        }
    }

    /// Leaves the seat that the party holds.
    ///
    /// Returns whether the loan goes on; if not, the party has the lock.
    pub(crate) fn leave(&self, party: SeatHolder, seat: &impl LoanSeat) -> bool {
        loop {
            let word = self.read(seat);
            if word.holder != party {
                return false;
            }
            let holder =
                if word.sleeps || word.count >= self.most { SeatHolder::Ended } else { SeatHolder::Free };
            if seat.exchange(word.bits(), SeatWord { holder, ..word }.bits()) {
                return holder == SeatHolder::Free;
            }
        }
    }

    /// Says that the lender need not wait until the borrower comes: it does not want the
    /// lock now.
    pub(crate) fn excuse(&self, seat: &impl LoanSeat) {
        loop {
            let word = self.read(seat);
            let is_over = word.came || word.holder == SeatHolder::Ended;
            if is_over || seat.exchange(word.bits(), SeatWord { came: true, ..word }.bits()) {
                return;
            }
        }
    }

    /// Returns whether the borrower has yet to come. It waits, and takes the seat when it
    /// runs.
    pub(crate) fn awaits_borrower(&self, seat: &impl LoanSeat) -> bool {
        let word = self.read(seat);
        word.holder != SeatHolder::Ended && !word.came
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

    /// Says that the borrower sleeps until the lender leaves the seat.
    ///
    /// Returns false if the lender does not hold it.
    pub(crate) fn announce_sleep(&self, seat: &impl LoanSeat) -> bool {
        loop {
            let word = self.read(seat);
            if word.holder != SeatHolder::Lender {
                return false;
            }
            if seat.exchange(word.bits(), SeatWord { sleeps: true, ..word }.bits()) {
                return true;
            }
        }
    }

    /// Returns the seat's word; that of another generation counts as ended.
    fn read(&self, seat: &impl LoanSeat) -> SeatWord {
        let word = SeatWord::of(seat.load());
        if word.generation == self.generation { word } else { SeatWord { holder: SeatHolder::Ended, ..word } }
    }
}

/// Outcome of an attempt to take a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taking {
    /// The seat is the party's, with that number.
    Taken(u32),
    /// The other one holds it.
    Busy,
    /// The loan is over, or its acquisitions are used up.
    Over,
}

/// Word that lender and borrower share.
///
/// An exchange that succeeds hands over what was done before the one that it follows.
pub trait LoanSeat {
    /// Reads it.
    fn load(&self) -> u64;
    /// Replaces it, if it is as expected. Returns whether it was.
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
    sleeps: bool,
    came: bool,
    count: u32,
}

impl SeatWord {
    fn of(bits: u64) -> SeatWord {
        let holder = match bits & 3 {
            0 => SeatHolder::Ended,
            1 => SeatHolder::Free,
            2 => SeatHolder::Lender,
            _ => SeatHolder::Borrower,
        };
        let generation = (bits as u32) >> (32 - GENERATION_BITS);
        let (sleeps, came) = (bits & SLEEPS != 0, bits & CAME != 0);
        SeatWord { generation, holder, sleeps, came, count: (bits >> 32) as u32 }
    }

    fn bits(self) -> u64 {
        let holder = match self.holder {
            SeatHolder::Ended => 0,
            SeatHolder::Free => 1,
            SeatHolder::Lender => 2,
            SeatHolder::Borrower => 3,
        };
        let flags = if self.sleeps { SLEEPS } else { 0 } | if self.came { CAME } else { 0 };
        u64::from(self.count) << 32 | u64::from(self.generation << (32 - GENERATION_BITS)) | holder | flags
    }
}
