//! Expectations of a gateway that sleeps, and how long it may sleep.
//!
//! A receiver that handles messages tells no gateway: it moves its own progress only. So a gateway
//! that waits for progress looks now and then, soon if a sender may wait for it.

use std::time::Duration;

/// Time between two looks at everything, and for hosts that do not answer.
pub const LOOK: Duration = Duration::from_millis(100);

/// Progress that a gateway is to look for soon, although no process tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// Nothing.
    Nothing,
    /// Messages that were not handled: their senders' hosts are to be told.
    Progress,
    /// Messages that were not handled, so many that senders may wait for space; or
    /// messages for a full queue.
    Space,
}

impl Expectation {
    /// First sleep, in nanoseconds. Each further one may last twice as long.
    pub fn first_sleep(self) -> u64 {
        match self {
            Expectation::Nothing => 5_000_000,
            Expectation::Progress => 1_000_000,
            Expectation::Space => 20_000,
        }
    }

    /// Longest sleep, in nanoseconds.
    pub fn longest_sleep(self) -> u64 {
        match self {
            Expectation::Nothing => LOOK.as_nanos() as u64,
            Expectation::Progress => 10_000_000,
            Expectation::Space => 2_000_000,
        }
    }
}
