//! The floor of all communication: a cache line to another process and back.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use towpath_host::Error;
use towpath_host::process::{SharedPages, SharedRow, team};
use towpath_host::topology::Placement;

use crate::shared::LeftSamples;

/// Number of round trips between two looks at the clock.
const BATCH: u64 = 200;
/// Word by which the asking process says that it has finished.
const FINISHED: u64 = u64::MAX;

/// Time to start and to end, beyond measuring.
const GRACE: Duration = Duration::from_secs(20);

/// Waiting of the partners for the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probing {
    /// Spinning with the processor's pause between two loads, as all of Towpath's waiting
    /// does.
    Pausing,
    /// Without.
    Bare,
}

/// One process's view of the lines through which two processes ask and answer.
pub struct Lines<'a> {
    ask: &'a AtomicU64,
    answer: &'a AtomicU64,
    probing: Probing,
    /// Last value that was answered. Of a round trip's two values the odd one asks.
    turn: Cell<u64>,
}

impl<'a> Lines<'a> {
    /// The view of one of the two processes. With 1 line both write the first of the
    /// pages' words; with 2 each writes one and reads the other, as a request and a reply do.
    ///
    /// # Panics
    ///
    /// If the pages have fewer words than lines.
    pub fn new(pages: &'a SharedPages, lines: usize, probing: Probing) -> Self {
        Lines { ask: pages.word(0), answer: pages.word(lines.min(2) - 1), probing, turn: Cell::new(0) }
    }

    /// Asks so many times, and waits for each answer. Returns the time of one round trip,
    /// in nanoseconds.
    #[inline(never)]
    pub fn ask(&self, count: u64) -> f64 {
        let mut turn = self.turn.get();
        let begun = Instant::now();
        for _ in 0..count {
            // (1) Release, pairs with Acquire (2): the line itself is the message.
            self.ask.store(turn + 1, Ordering::Release);
            turn += 2;
            wait_for(self.answer, turn, self.probing);
        }
        self.turn.set(turn);
        begun.elapsed().as_nanos() as f64 / count as f64
    }

    /// Answers so many times, or until the asking process has finished.
    #[inline(never)]
    pub fn answer(&self, count: u64) {
        let mut turn = self.turn.get();
        for _ in 0..count {
            if wait_for(self.ask, turn + 1, self.probing) == FINISHED {
                return;
            }
            turn += 2;
            // (3) Release, pairs with Acquire (2) in the asking process.
            self.answer.store(turn, Ordering::Release);
        }
        self.turn.set(turn);
    }

    /// Ends the other process's answers.
    pub fn finish(&self) {
        // (4) Release: pairs with Acquire (2) in `wait_for`, like (1).
        self.ask.store(FINISHED, Ordering::Release);
    }
}

/// Number of starts. Partners that have fallen into step stay in it, and the steps differ
/// by a factor of two: one start would show one of them.
const STARTS: u32 = 4;

/// The round trip of `lines` (1 or 2) cache lines between processes on two cores, in
/// nanoseconds: the mean over several starts of the median of batches. With one, both write the
/// same line; with two, each writes one and reads the other, as a request and a reply do.
///
/// # Errors
///
/// Without two cores there is nothing to measure; otherwise the processes' failures.
pub fn round_trip(
    lines: usize,
    probing: Probing,
    placement: &Placement,
    time: Duration,
) -> Result<f64, Error> {
    let mut sum = 0.0;
    for _ in 0..STARTS {
        sum += one_start(lines, probing, placement, time / STARTS)?;
    }
    Ok(sum / f64::from(STARTS))
}

fn one_start(lines: usize, probing: Probing, placement: &Placement, time: Duration) -> Result<f64, Error> {
    let (Some(here), Some(there)) = (placement.core(0), placement.core(1)) else {
        return Err(Error::NotAvailable("it needs two cores, and this process may use only one".into()));
    };
    let (pages, batches) = (SharedPages::new(2)?, SharedRow::<LeftSamples>::row(1)?);
    let batches = &batches[0];
    team(&[Some(here), Some(there)], time + GRACE, |rank| {
        let lines = Lines::new(&pages, lines, probing);
        if rank == 1 {
            lines.answer(u64::MAX);
            return 0;
        }
        let end = Instant::now() + time;
        while !batches.is_full() && (batches.len() < 3 || Instant::now() < end) {
            batches.keep(lines.ask(BATCH));
        }
        lines.finish();
        0
    })?;
    batches.median().ok_or_else(|| Error::NotAvailable("no round trip was completed".into()))
}

/// Spins until the word has that value, or says that all is over.
#[inline(always)]
fn wait_for(word: &AtomicU64, value: u64, probing: Probing) -> u64 {
    loop {
        // (2) Acquire, pairs with Release (1), (3), (4).
        let seen = word.load(Ordering::Acquire);
        if seen == value || seen == FINISHED {
            return seen;
        }
        if probing == Probing::Pausing {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_host::topology::Pin;

    #[test]
    fn lines_are_used_again_after_a_pause() {
        for lines in [1, 2] {
            let pages = SharedPages::new(2).unwrap();
            let (batches, last) = ([1, 7, 20], std::sync::Barrier::new(2));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let lines = Lines::new(&pages, lines, Probing::Pausing);
                    batches.iter().for_each(|&n| {
                        lines.answer(n);
                        last.wait();
                    });
                    lines.answer(u64::MAX);
                });
                let lines = Lines::new(&pages, lines, Probing::Pausing);
                for n in batches {
                    assert!(lines.ask(n) > 0.0);
                    last.wait();
                }
                assert_eq!(lines.turn.get(), 2 * 28, "each is answered once");
                lines.finish();
            });
        }
    }

    #[test]
    fn a_line_travels_or_the_reason_is_given() {
        let placement = Placement::detect(Pin::Auto);
        for lines in [1, 2] {
            for probing in [Probing::Pausing, Probing::Bare] {
                match round_trip(lines, probing, &placement, Duration::from_millis(5)) {
                    // No signal crosses a chip and comes back within a nanosecond.
                    Ok(ns) => assert!(placement.cores() >= 2 && ns > 1.0, "{ns}"),
                    Err(error) => {
                        assert!(placement.cores() < 2, "{error}");
                        assert!(error.to_string().contains("two cores"));
                    }
                }
            }
        }
    }
}
