//! Time at which a waiter gives up.

use std::time::{Duration, Instant};

use towpath_derive::SentenceDebug;
use towpath_machine::{Native, Processor};

/// Time at which a waiter gives up, on the clock of its processor ([`Processor::now`]).
///
/// ```
/// use std::time::Duration;
/// use towpath_sync::Deadline;
///
/// let soon = Deadline::within(Duration::from_millis(5));
/// assert!(Deadline::PAST < soon && soon < Deadline::NEVER);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(u64);

/// Error of a waiter whose time was over.
#[derive(Clone, Copy, PartialEq, Eq, SentenceDebug)]
pub struct TimedOut;

impl core::fmt::Display for TimedOut {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the time was over before it came: try again, or wait longer")
    }
}

impl std::error::Error for TimedOut {}

impl Deadline {
    /// The waiter never gives up.
    pub const NEVER: Deadline = Deadline(u64::MAX);
    /// The waiter does not wait: it tries once.
    pub const PAST: Deadline = Deadline(0);
    /// The waiter waits one turn at most: for [`Attempt`](crate::Attempt).
    pub const ONE_TURN: Deadline = Deadline(1);

    /// Deadline in so many nanoseconds.
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::Deadline;
    ///
    /// let cpu = Native::current();
    /// assert!(Deadline::after(&cpu, 1_000) < Deadline::after(&cpu, 2_000_000_000));
    /// ```
    pub fn after<P: Processor>(cpu: &P, ns: u64) -> Deadline {
        Deadline(cpu.now().saturating_add(ns).max(2))
    }

    /// Deadline in so long a time, for native waiters.
    ///
    /// ```
    /// use std::time::Duration;
    /// use towpath_sync::Deadline;
    ///
    /// assert_eq!(Deadline::within(Duration::ZERO), Deadline::PAST);
    /// assert_eq!(Deadline::within(Duration::MAX), Deadline::NEVER);
    /// ```
    pub fn within(time: Duration) -> Deadline {
        match u64::try_from(time.as_nanos()) {
            Ok(0) => Deadline::PAST,
            Ok(ns) => Deadline::after(&Native::with_id(0), ns),
            Err(_) => Deadline::NEVER,
        }
    }

    /// An instant of the system's monotonic clock, for native waiters.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use towpath_sync::Deadline;
    ///
    /// let start = Instant::now();
    /// assert_eq!(Deadline::at(start), Deadline::PAST);
    /// assert!(Deadline::at(start + Duration::from_secs(60)) > Deadline::PAST);
    /// ```
    pub fn at(instant: Instant) -> Deadline {
        Deadline::within(instant.saturating_duration_since(Instant::now()))
    }

    /// Returns whether the time has come.
    ///
    /// ```
    /// use std::time::Duration;
    /// use towpath_machine::Native;
    /// use towpath_sync::Deadline;
    ///
    /// let (cpu, soon) = (Native::current(), Deadline::within(Duration::from_millis(1)));
    /// std::thread::sleep(Duration::from_millis(2));
    /// assert!(soon.is_over(&cpu) && !Deadline::NEVER.is_over(&cpu));
    /// ```
    pub fn is_over<P: Processor>(self, cpu: &P) -> bool {
        match self {
            Deadline::NEVER => false,
            Deadline::PAST | Deadline::ONE_TURN => true,
            Deadline(at) => cpu.now() >= at,
        }
    }

    /// Number of nanoseconds that are left.
    pub(crate) fn left<P: Processor>(self, cpu: &P) -> u64 {
        match self {
            Deadline::NEVER => u64::MAX,
            Deadline::PAST | Deadline::ONE_TURN => 0,
            Deadline(at) => at.saturating_sub(cpu.now()),
        }
    }
}
