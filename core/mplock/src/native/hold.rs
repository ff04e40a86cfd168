//! Time for which a holder keeps a lock that others wait for.
//!
//! With a core for each rank, a lock goes on when it is released: its next holder spins, and has it
//! after one message. Where ranks share cores, the next holder sleeps, and each passing costs a
//! switch of processes, while the lock lies still. There a holder that comes back to the lock soon
//! keeps it for a while, as the holder of a mutex does as long as it has its core. The order of the
//! waiters stays, and each of them has its own while: so shares stay equal.
//!
//! **Bound.** A waiter waits for each node before it at most for the budget's time, and then until
//! that node next releases the lock, acquires another one, polls or waits. The state machine counts
//! the acquisitions ([`crate::NodeLock::release`]); this file brings it the time.
//!
//! **Prediction.** A lock is kept only by a process that came back within a few switches of
//! processes when it last passed the lock on, and as long as it goes on so. One that computes for
//! long between its critical sections passes the lock on at once.

use std::cell::Cell;
use std::time::Duration;

use towpath_machine::{Native, Processor};
use towpath_shm::World;

use crate::loan::LoanState;

/// Number of acquisitions between two looks at the clock.
const LOOK_EVERY: u32 = 16;
/// Number of acquisitions of a node between two looks at the clock, under a loan.
const LOOK_AT_LOAN: u32 = 64;
/// Time between two acquisitions from which a lock is lent, in nanoseconds: a few times
/// that of a line's way from one core to another.
const LEAST_BETWEEN: u64 = 300;
/// Number of looks for which a lock is not lent after a loan with many sleeps.
const POOR: u32 = 64;
/// Number of budgets of time after which a loan ends that one node uses alone.
const ALONE: u64 = 25;
/// Number of switches of processes within which a process comes back that keeps a lock.
const SWITCHES: u64 = 8;

/// Bounds for a holder that keeps a lock while others wait for it.
///
/// They count where ranks share cores; with a core for each rank, a lock goes on when it is
/// released.
///
/// ```
/// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
/// # world.enter(None)?;
/// use std::time::Duration;
///
/// use towpath::mplock::{HoldBudget, Manager};
///
/// let manager = Manager::new(&world)?;
/// let time = Duration::from_micros(200);
/// manager.set_hold_budget(HoldBudget { time, ..HoldBudget::default() });
/// # Ok::<(), towpath::mplock::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldBudget {
    /// Time since the lock came here.
    pub time: Duration,
    /// Number of acquisitions since then.
    pub acquisitions: u32,
}

impl HoldBudget {
    /// A lock goes on as soon as it is released.
    pub const NONE: HoldBudget = HoldBudget { time: Duration::ZERO, acquisitions: 0 };
}

impl Default for HoldBudget {
    /// 2 ms, and no bound of acquisitions.
    fn default() -> HoldBudget {
        HoldBudget { time: Duration::from_millis(2), acquisitions: u32::MAX }
    }
}

/// Host of a holder, as far as keeping a lock is concerned.
pub(crate) trait HolderHost {
    /// Returns the time, in nanoseconds.
    fn now(&self) -> u64;
    /// Returns whether there are more ranks than cores.
    fn shares_cores(&self) -> bool;
    /// Returns about the cost of a context switch, in nanoseconds.
    fn switch_cost(&self) -> u64;
}

impl HolderHost for World {
    fn now(&self) -> u64 {
        Native::with_id(0).now()
    }
    fn shares_cores(&self) -> bool {
        World::shares_cores(self)
    }
    fn switch_cost(&self) -> u64 {
        World::switch_cost(self)
    }
}

/// Times of a lock at a node, in nanoseconds; 0: none.
#[derive(Debug, Default)]
pub(crate) struct HoldClock {
    /// Time at which the lock was passed on.
    passed: Cell<u64>,
    /// Time of the first release since the lock came here.
    since: Cell<u64>,
    /// Time of the last look.
    looked: Cell<u64>,
    /// Number of releases since the lock came here, or was lent to this node.
    releases: Cell<u32>,
    /// True if this process comes back to the lock soon.
    eager: Cell<bool>,
    /// True if the lock may be lent: found at the last look.
    lends: Cell<bool>,
    /// True if the acquisitions before the last look were long apart.
    was_slow: Cell<bool>,
    /// Number of looks until it may be lent again.
    poor: Cell<u32>,
    /// Time of the last look at which another node had used the lock under a loan.
    used: Cell<u64>,
    /// True if the loan is to end when the seat is left: found at the last look.
    closes: Cell<bool>,
    /// Number of acquisitions under the loan at the last look.
    counted: Cell<u32>,
    /// Time of the last look of a lender that found the lock used, and that number then.
    idle_since: Cell<u64>,
    idle_counted: Cell<u32>,
    /// True if the lock is in the manager's list of those that are kept.
    pub(crate) listed: Cell<bool>,
}

impl HoldClock {
    /// Notes that the process asks for the lock again.
    pub(crate) fn note_request(&self, host: &impl HolderHost) {
        let passed = self.passed.take();
        if passed != 0 {
            self.eager.set(host.now().saturating_sub(passed) < SWITCHES * host.switch_cost());
        }
    }

    /// Notes that the lock has come here, or is lent to this node.
    pub(crate) fn note_grant(&self) {
        self.since.set(0);
        self.used.set(0);
        self.closes.set(false);
        self.lends.set(false);
    }

    /// Returns for how many acquisitions a holder keeps the lock that another node waits
    /// for, when it releases it.
    pub(crate) fn budget(&self, budget: HoldBudget, host: &impl HolderHost) -> u32 {
        let is_first = self.since.get() == 0;
        if is_first && !host.shares_cores() {
            return 0;
        }
        if !self.looks(is_first, LOOK_EVERY) && self.eager.get() {
            return budget.acquisitions;
        }
        let now = self.look(is_first, LOOK_EVERY, host);
        if self.eager.get() && !self.is_over(budget, now) {
            return budget.acquisitions;
        }
        self.passed.set(now);
        0
    }

    /// Notes that this node lends the lock.
    pub(crate) fn note_loan(&self) {
        self.releases.set(0);
        self.used.set(0);
        self.closes.set(false);
        self.idle_since.set(0);
    }

    /// Counts a release under a loan. Returns whether it looks at the clock.
    #[inline]
    pub(crate) fn looks_at_loan(&self) -> bool {
        self.looks(self.since.get() == 0, LOOK_AT_LOAN)
    }

    /// Returns whether this node is to close the seat of a loan when it leaves it, by its
    /// last look.
    #[inline]
    pub(crate) fn closes_loan(&self) -> bool {
        self.closes.get()
    }

    /// Looks whether the time of a loan is over.
    ///
    /// It is if another node waits, or if none has used the lock for long but this one.
    pub(crate) fn look_at_loan(&self, budget: HoldBudget, loan: LoanState, host: &impl HolderHost) {
        // It has come back.
        self.eager.set(true);
        let is_first = self.since.get() == 0;
        let now = self.look(is_first, LOOK_AT_LOAN, host);
        let own = self.counted.replace(loan.count).wrapping_add(LOOK_AT_LOAN);
        if own != loan.count || self.used.get() == 0 {
            self.used.set(now);
        }
        let ends = self.loan_ends(budget, loan, self.used.get(), now);
        // With so little between, its holder alone is faster.
        self.closes.set(ends || !is_first && !self.was_slow.get());
    }

    /// Returns whether a lender, which does not use the lock now, is to close the loan.
    pub(crate) fn idle_loan_is_over(&self, budget: HoldBudget, loan: LoanState, now: u64) -> bool {
        if self.idle_counted.replace(loan.count) != loan.count || self.idle_since.get() == 0 {
            self.idle_since.set(now);
        }
        self.loan_ends(budget, loan, self.idle_since.get(), now)
    }

    fn loan_ends(&self, budget: HoldBudget, loan: LoanState, used: u64, now: u64) -> bool {
        let unused = now.saturating_sub(used) as u128;
        loan.has_ended
            || loan.is_wanted && self.is_over(budget, now)
            || unused >= budget.time.as_nanos().saturating_mul(ALONE.into())
            || budget == HoldBudget::NONE
    }

    /// Returns whether the lock is to be lent now: as many acquisitions lie between two
    /// looks, their time is long beside the way of a line, and loans do well.
    #[inline]
    pub(crate) fn take_lends(&self) -> bool {
        self.lends.take()
    }

    /// Notes that borrowers had to sleep often: the lock is not lent for a while.
    pub(crate) fn note_poor_loan(&self) {
        self.poor.set(POOR);
    }

    /// Counts a release. Returns whether it looks at the clock.
    ///
    /// `every`: number of releases between two looks.
    #[inline]
    fn looks(&self, is_first: bool, every: u32) -> bool {
        let releases = if is_first { 0 } else { self.releases.get().wrapping_add(1) };
        self.releases.set(releases);
        releases.is_multiple_of(every)
    }

    /// Looks at the clock. Returns the time.
    ///
    /// `every`: number of releases between two looks.
    fn look(&self, is_first: bool, every: u32, host: &impl HolderHost) -> u64 {
        let now = host.now();
        if is_first {
            self.since.set(now);
        } else {
            let took = now.saturating_sub(self.looked.get());
            if took > u64::from(every) * SWITCHES * host.switch_cost() {
                self.eager.set(false);
            }
            let poor = self.poor.get();
            self.poor.set(poor.saturating_sub(1));
            // Once may be that another process had the core.
            let is_slow = took > u64::from(every) * LEAST_BETWEEN;
            self.lends.set(poor == 0 && is_slow && self.was_slow.get());
            self.was_slow.set(is_slow);
        }
        self.looked.set(now);
        now
    }

    /// Returns whether the time is over for which the lock is kept.
    pub(crate) fn is_over(&self, budget: HoldBudget, now: u64) -> bool {
        now.saturating_sub(self.since.get()) as u128 >= budget.time.as_nanos()
    }

    /// Notes that the lock was kept in vain.
    pub(crate) fn note_vain(&self) {
        self.eager.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Host whose time stands still between two steps of a test.
    #[derive(Default)]
    struct Clock {
        now: Cell<u64>,
        has_cores: bool,
    }

    impl Clock {
        fn pass(&self, ns: u64) {
            self.now.set(self.now.get() + ns);
        }
    }

    impl HolderHost for Clock {
        fn now(&self) -> u64 {
            1_000_000 + self.now.get()
        }
        fn shares_cores(&self) -> bool {
            !self.has_cores
        }
        fn switch_cost(&self) -> u64 {
            1000
        }
    }

    fn loan(is_wanted: bool, count: u32) -> LoanState {
        LoanState { has_ended: false, is_wanted, count }
    }

    /// Releases a lock once, and asks for it again after `ns`.
    fn pass_and_ask(clock: &HoldClock, host: &Clock, ns: u64) {
        clock.note_grant();
        clock.budget(HoldBudget::default(), host);
        host.pass(ns);
        clock.note_request(host);
        clock.note_grant();
    }

    /// Number of acquisitions of a process that uses the lock once in `ns`.
    fn uses(clock: &HoldClock, host: &Clock, budget: HoldBudget, ns: u64) -> u32 {
        (1..=100_000)
            .find(|&uses| {
                host.pass(ns);
                clock.budget(budget, host) <= uses
            })
            .unwrap()
    }

    #[test]
    fn lock_is_kept_for_its_time_by_a_process_that_comes_back() {
        let (clock, host) = (HoldClock::default(), Clock::default());
        let budget = HoldBudget::default();
        assert_eq!(uses(&clock, &host, budget, 500), 1, "the first time nothing is known of it");
        pass_and_ask(&clock, &host, 500);
        let kept = uses(&clock, &host, budget, 500);
        assert!((4000..4032).contains(&kept), "2 ms: {kept}");
        pass_and_ask(&clock, &host, 500);
        let few = HoldBudget { acquisitions: 7, ..budget };
        assert_eq!(uses(&clock, &host, few, 500), 7);
    }

    /// Number of acquisitions of a node under a loan until it closes the seat, or `most`.
    ///
    /// `others`: number of others' acquisitions for each of its own.
    fn lent_uses(wanted: bool, others: u32, most: u32) -> u32 {
        let (clock, host) = (HoldClock::default(), Clock::default());
        clock.note_grant();
        (1..most)
            .find(|&uses| {
                host.pass(500);
                if clock.looks_at_loan() {
                    clock.look_at_loan(HoldBudget::default(), loan(wanted, uses * (1 + others)), &host);
                }
                clock.closes_loan()
            })
            .unwrap_or(most)
    }

    #[test]
    fn loan_ends_if_a_node_waits_or_one_is_alone() {
        assert!((4000..4100).contains(&lent_uses(true, 3, 1_000_000)), "2 ms");
        assert!((100_000..110_000).contains(&lent_uses(false, 0, 1_000_000)), "50 ms");
        assert_eq!(lent_uses(false, 1, 1_000_000), 1_000_000, "goes on while others use it");
    }

    #[test]
    fn lock_that_is_used_at_once_again_is_not_lent() {
        let (clock, host) = (HoldClock::default(), Clock::default());
        pass_and_ask(&clock, &host, 50);
        let lends = |ns: u64| {
            (0..LOOK_EVERY).for_each(|_| {
                host.pass(ns);
                clock.budget(HoldBudget::default(), &host);
            });
            clock.take_lends()
        };
        lends(50);
        assert!(!lends(2000) && !lends(50) && !lends(2000), "another process had the core");
        lends(2000);
        assert!(lends(2000));
        clock.note_loan();
        let closes = |ns: u64| {
            (0..LOOK_AT_LOAN).for_each(|_| {
                host.pass(ns);
                if clock.looks_at_loan() {
                    clock.look_at_loan(HoldBudget::default(), loan(false, 9), &host);
                }
            });
            clock.closes_loan()
        };
        assert!(!closes(2000) && closes(50));
    }

    #[test]
    fn loan_that_no_node_uses_ends() {
        let (clock, host) = (HoldClock::default(), Clock::default());
        clock.note_loan();
        let is_over = |wanted, count| {
            host.pass(30_000_000);
            clock.idle_loan_is_over(HoldBudget::default(), loan(wanted, count), host.now())
        };
        assert!(!is_over(false, 1) && !is_over(false, 2), "it is used");
        assert!(is_over(true, 3), "a node waits");
        assert!(!is_over(false, 3));
        assert!(is_over(false, 3));
    }

    #[test]
    fn lock_goes_on_where_it_is_not_used_again_soon() {
        let (clock, host) = (HoldClock::default(), Clock::default());
        pass_and_ask(&clock, &host, 100_000);
        assert_eq!(uses(&clock, &host, HoldBudget::default(), 500), 1);
        // One that slows down while it keeps the lock.
        pass_and_ask(&clock, &host, 500);
        assert!(uses(&clock, &host, HoldBudget::default(), 10_000) <= 2 * LOOK_EVERY);
    }

    #[test]
    fn lock_goes_on_at_once_where_each_rank_has_a_core() {
        let (clock, host) = (HoldClock::default(), Clock { has_cores: true, ..Clock::default() });
        for _ in 0..3 {
            pass_and_ask(&clock, &host, 100);
            assert_eq!(uses(&clock, &host, HoldBudget::default(), 100), 1);
        }
    }
}
