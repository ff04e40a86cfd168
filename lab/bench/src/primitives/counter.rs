//! A counter that all participants add one to, by each primitive and under each lock.
//!
//! The native counterpart of the simulator's experiment of that name.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use towpath_machine::{Concurrent, Heap, Native};
use towpath_structures::Counter;
use towpath_sync::{AtMemory, Atomics, LoadLinked, Policy, Primitive};

use super::crew::LoadCrew;
use super::locks::{LockKind, LockLoad, contend};
use super::{MeasuredKind, work};
use crate::experiment::Samples;
use crate::structures::Sharing;
use crate::structures::board::{Board, BoardMember};
use crate::transport::Circumstances;
use towpath_host::Error;
use towpath_host::process::SharedRow;
use towpath_report::record::metrics::{ACQUISITIONS_PER_S, OPERATIONS_PER_S};

/// Counter to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CounterKind {
    /// `towpath::structures::Counter` over the primitive of that name.
    Over(&'static str),
    /// A word under a lock.
    Under(LockKind),
}

/// Names of the primitives.
const PRIMITIVES: [&str; 3] = [
    Counter::<Native, Atomics>::NAME,
    Counter::<Native, LoadLinked>::NAME,
    Counter::<Native, AtMemory>::NAME,
];

impl CounterKind {
    /// All of them, in the order in which tables show them.
    pub fn all() -> Vec<CounterKind> {
        let over = PRIMITIVES.into_iter().map(CounterKind::Over);
        over.chain(LockKind::all().into_iter().map(CounterKind::Under)).collect()
    }
}

impl MeasuredKind for CounterKind {
    fn name(self) -> &'static str {
        match self {
            CounterKind::Over(primitive) => primitive,
            CounterKind::Under(lock) => lock.name(),
        }
    }

    fn has_policy(self) -> bool {
        matches!(self, CounterKind::Under(lock) if lock.has_policy())
    }

    fn is_for(self, sharing: Sharing, procs: u32) -> bool {
        match self {
            CounterKind::Over(_) => true,
            CounterKind::Under(lock) => lock.is_for(sharing, procs),
        }
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CounterLoad {
    /// The counter.
    pub counter: CounterKind,
    /// The participants' kind.
    pub sharing: Sharing,
    /// Their number.
    pub procs: u32,
    /// Waiting policy.
    pub policy: Policy,
    /// Nanoseconds of work between two increments.
    pub between: u64,
}

/// Measures it: increments of all in a second, their times, fairness, costs.
///
/// # Errors
///
/// Those of the system; a count that is not the number of increments.
pub fn increment(load: &CounterLoad, run: &Circumstances<'_>) -> Result<Samples, Error> {
    let &CounterLoad { counter, sharing, procs, policy, between } = load;
    match counter {
        CounterKind::Under(lock) => {
            let load = LockLoad { lock, sharing, procs, policy, inside: 0, between, replay: None };
            let mut samples = contend(&load, run)?;
            for (metric, _) in samples.values.iter_mut().filter(|(metric, _)| *metric == ACQUISITIONS_PER_S) {
                *metric = OPERATIONS_PER_S;
            }
            Ok(samples)
        }
        CounterKind::Over(name) if name == PRIMITIVES[1] => over::<LoadLinked>(load, run),
        CounterKind::Over(name) if name == PRIMITIVES[2] => over::<AtMemory>(load, run),
        CounterKind::Over(_) => over::<Atomics>(load, run),
    }
}

/// Increments of which one is timed: reading the clock takes longer than some.
const TIMED: u64 = 64;

fn over<M: Primitive<Native>>(load: &CounterLoad, run: &Circumstances<'_>) -> Result<Samples, Error>
where
    Counter<Native, M>: Concurrent,
{
    let row = SharedRow::of(Counter::<Native, M>::new(&Heap))?;
    let counter = &row[0];
    let memory = Board::memory()?;
    let board = Board::new(&memory)?;
    let procs = load.procs as usize;
    let crew = LoadCrew { sharing: load.sharing, procs, policy: load.policy, board };
    // Relaxed, all: counts.
    let participate = |member: &BoardMember<'_>| {
        let mut count = 0u64;
        let (end, done, between) = (board.end(), board.done(member.me), load.between);
        while end.load(Relaxed) == 0 {
            let start = count.is_multiple_of(TIMED).then(Instant::now);
            counter.increment(&member.cpu);
            if let Some(start) = start {
                board.note(member.me, Duration::as_nanos(&start.elapsed()) as u64);
            }
            count += 1;
            done.store(count, Relaxed);
            work(between);
        }
        Ok(())
    };
    let counted = crew.count(run, &participate)?;
    let all: u64 = (0..procs).map(|me| board.done(me).load(Relaxed)).sum();
    let value = counter.value(&Native::with_id(0));
    if value != all {
        return Err(Error::Other(format!("the counter says {value} after {all} increments").into()));
    }
    Ok(crew.figures(&counted, OPERATIONS_PER_S, counted.rate()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::with_circumstances;

    #[test]
    fn every_counter_counts_all_increments() {
        with_circumstances(Duration::from_millis(5), |run| {
            for sharing in Sharing::ALL {
                let some = ["atomics", "ll-sc", "fetch-op", "mutex", "ticket", "pthread", "std"];
                let is_some = |it: &CounterKind| some.contains(&it.name()) && it.is_for(sharing, 3);
                for counter in CounterKind::all().into_iter().filter(is_some) {
                    let policy = Policy::Adaptive;
                    let load = CounterLoad { counter, sharing, procs: 3, policy, between: 0 };
                    let samples = increment(&load, run).unwrap_or_else(|e| panic!("{load:?}: {e}"));
                    let rates = samples.values.iter().filter(|(m, _)| *m == OPERATIONS_PER_S);
                    assert_eq!(rates.count(), 1, "{load:?}");
                }
            }
        });
    }
}
