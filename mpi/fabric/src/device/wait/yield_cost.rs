//! Cost of giving the core away: how long the thread was off it when it last yielded.
//!
//! Another program that computes keeps a core that it was given for as long as the scheduler lets
//! it: milliseconds. A rank that has lost that much sleeps instead of yielding for a while: its
//! sender wakes it, and the scheduler gives it the core back at once, because it has not used its
//! share. Where ranks compute for as long, yielding goes on: they will yield too.

/// Time off the core beyond which the thread on it does not only poll, in nanoseconds.
pub const COMPUTES: u64 = 20_000;
/// Time off the core beyond which yields may be expensive, in nanoseconds.
pub const HOLDS: u64 = 500_000;
/// Multiple of a lost time for which yields are avoided after it.
const AVOIDED: u64 = 16;
/// Maximum lost time that counts, in nanoseconds: the thread may have been stopped for
/// hours.
const LONGEST: u64 = 10_000_000;

/// Cost of yields, as measured so far.
#[derive(Debug, Default)]
pub struct YieldCost {
    /// Time off the core when it was last given away, in nanoseconds.
    pub off_core: u64,
    /// Time up to which yields are avoided, in nanoseconds of the clock.
    pub avoided_until: u64,
}

impl YieldCost {
    /// The thread was off its core for `ns` nanoseconds, until `now`. `others`: whether
    /// others than the ranks want to run on this machine. Returns whether that was asked, which
    /// takes microseconds.
    pub fn on_off_core(&mut self, ns: u64, now: u64, others: impl Fn() -> bool) -> bool {
        self.off_core = ns;
        if ns < HOLDS {
            return false;
        }
        if others() {
            self.avoided_until = now + AVOIDED * ns.min(LONGEST);
        }
        true
    }

    /// Returns whether a yield would most likely give the core to a program that
    /// computes.
    pub fn yield_is_expensive(&self, now: u64) -> bool {
        now < self.avoided_until
    }

    /// Returns whether the core was last given to a thread that computes.
    pub fn others_compute(&self) -> bool {
        self.off_core >= COMPUTES
    }
}
