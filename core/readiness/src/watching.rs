//! Decision of a future, before a thread sleeps for it, to be polled for a while.
//!
//! A sleep costs two hand-overs: to the thread that sleeps, and from it to the task. A value that
//! comes sooner is had for less by a task that yields the core, and is polled again in turn with
//! the executor's other tasks. So a wait begins with a watch, if watches pay: after some in vain,
//! the futures of a thread leave them out, up to [`MOST_SKIPPED`] times in a row.

use core::cell::Cell;
use core::time::Duration;
use std::time::Instant;

/// Time of a watch: about that of a message there and back between ends that sleep.
const WATCH: Duration = Duration::from_micros(50);
/// Maximum number of waits without a watch between two with one.
const MOST_SKIPPED: u32 = 15;

/// Watches of a thread's futures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct WatchHistory {
    /// Number of waits to come without a watch.
    to_skip: u32,
    /// Number of waits to skip after the next watch in vain.
    after_next: u32,
}

thread_local! {
    static HISTORY: Cell<WatchHistory> = const { Cell::new(WatchHistory { to_skip: 0, after_next: 0 }) };
}

impl WatchHistory {
    /// Returns whether the next wait begins with a watch.
    fn begins(&mut self) -> bool {
        let begins = self.to_skip == 0;
        self.to_skip = self.to_skip.saturating_sub(1);
        begins
    }

    fn end(&mut self, in_vain: bool) {
        if in_vain {
            self.to_skip = self.after_next;
            self.after_next = (2 * self.after_next + 1).min(MOST_SKIPPED);
        } else {
            *self = WatchHistory::default();
        }
    }
}

fn history<R>(act: impl FnOnce(&mut WatchHistory) -> R) -> R {
    HISTORY.with(|cell| {
        let mut history = cell.get();
        let result = act(&mut history);
        cell.set(history);
        result
    })
}

/// Watch of one wait.
#[derive(Clone, Copy, Debug, Default)]
pub enum TaskWatch {
    /// The wait has not begun.
    #[default]
    Before,
    /// The task is polled until then.
    Until(Instant),
    /// No time: there was none, or it has ended.
    Over,
}

impl TaskWatch {
    /// Returns whether a wait that has to go on goes on with being polled.
    pub fn goes_on(&mut self) -> bool {
        match *self {
            TaskWatch::Before if history(WatchHistory::begins) => {
                *self = TaskWatch::Until(Instant::now() + WATCH)
            }
            TaskWatch::Until(end) if Instant::now() < end => {}
            TaskWatch::Until(_) => {
                history(|history| history.end(true));
                *self = TaskWatch::Over;
            }
            TaskWatch::Before | TaskWatch::Over => *self = TaskWatch::Over,
        }
        matches!(self, TaskWatch::Until(_))
    }

    /// The wait has ended.
    pub fn end(&mut self) {
        if matches!(self, TaskWatch::Until(_)) {
            history(|history| history.end(false));
        }
        *self = TaskWatch::Over;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_in_vain_become_rare() {
        let mut history = WatchHistory::default();
        let mut gaps = Vec::new();
        for _ in 0..7 {
            let skipped = (0..).take_while(|_| !history.begins()).count();
            gaps.push(skipped);
            history.end(true);
        }
        assert_eq!(gaps, [0, 0, 1, 3, 7, 15, 15]);
    }

    #[test]
    fn watch_that_pays_is_followed_by_one() {
        let mut history = WatchHistory::default();
        for _ in 0..5 {
            while !history.begins() {}
            history.end(true);
        }
        while !history.begins() {}
        history.end(false);
        assert!(history.begins());
    }

    #[test]
    fn watch_ends_by_itself_once() {
        let mut watch = TaskWatch::default();
        while watch.goes_on() {}
        assert!(!watch.goes_on());
        let seen = history(|history| *history);
        watch.end();
        assert_eq!(history(|history| *history), seen, "a watch in vain has not paid");
    }
}
