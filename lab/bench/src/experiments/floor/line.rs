//! The floor of all communication: a cache line to another process and back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use towpath_host::Error;
use towpath_host::process::{Shared, SharedPages, team};
use towpath_host::topology::Placement;

use crate::shared::LeftSamples;

/// Round trips between two looks at the clock.
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
    let (pages, batches) = (SharedPages::new(2)?, Shared::<LeftSamples>::row(1)?);
    let (ask, answer, batches) = (pages.word(0), pages.word(lines.min(2) - 1), &batches[0]);
    team(&[Some(here), Some(there)], time + GRACE, |rank| {
        if rank == 1 {
            reply(ask, answer, probing);
            return 0;
        }
        let end = Instant::now() + time;
        let mut turn = 0;
        while !batches.is_full() && (batches.len() < 3 || Instant::now() < end) {
            let begun = Instant::now();
            for _ in 0..BATCH {
                // (1) Release, pairs with Acquire (2): the line itself is the message. Two values
                // per round trip: odd asks, even answers.
                ask.store(turn + 1, Ordering::Release);
                wait_for(answer, turn + 2, probing);
                turn += 2;
            }
            batches.keep(begun.elapsed().as_nanos() as f64 / BATCH as f64);
        }
        // Release: pairs with Acquire (2) in `wait_for`, like (1).
        ask.store(FINISHED, Ordering::Release);
        0
    })?;
    batches.median().ok_or_else(|| Error::NotAvailable("no round trip was completed".into()))
}

fn reply(ask: &AtomicU64, answer: &AtomicU64, probing: Probing) {
    let mut turn = 1;
    while wait_for(ask, turn, probing) != FINISHED {
        // (3) Release, pairs with Acquire (2) in the asking process.
        answer.store(turn + 1, Ordering::Release);
        turn += 2;
    }
}

/// Spins until the word has that value, or says that all is over.
#[inline(always)]
fn wait_for(word: &AtomicU64, value: u64, probing: Probing) -> u64 {
    loop {
        // (2) Acquire, pairs with Release (1), (3).
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
