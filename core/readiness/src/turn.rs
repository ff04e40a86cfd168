//! Time after which an operation is tried again without a change.

use core::time::Duration;

const FIRST: Duration = Duration::from_millis(4);
const LONGEST: Duration = Duration::from_millis(32);

/// Turns of one wait: each twice as long as the one before, up to a limit.
#[derive(Clone, Copy, Debug)]
pub struct RetryTurn {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Default for RetryTurn {
    fn default() -> Self {
        RetryTurn { first: FIRST, longest: LONGEST, next: FIRST }
    }
}

impl RetryTurn {
    /// Turns that are all as long.
    pub const fn always(turn: Duration) -> Self {
        RetryTurn { first: turn, longest: turn, next: turn }
    }

    /// The next turn of this wait.
    pub fn next(&mut self) -> Duration {
        let turn = self.next;
        self.next = (turn * 2).min(self.longest);
        turn
    }

    /// A new wait begins.
    pub const fn begin_anew(&mut self) {
        self.next = self.first;
    }
}
