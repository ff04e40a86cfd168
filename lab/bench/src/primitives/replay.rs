//! Replay of a traced program's locks: each participant takes the steps of one of its
//! threads again and again, work inside and outside as in the trace.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::crew::LoadCrew;
use super::locks::{HeldLock, LockLoad, TIMED};
use super::{Counted, work};
use crate::experiment::Samples;
use crate::structures::board::{Board, BoardMember};
use crate::transport::Circumstances;
use towpath_host::Error;
use towpath_host::trace::{LockReplay, ReplayStep};
use towpath_report::record::metrics::ACQUISITIONS_PER_S;

/// Maximum rest at one time: then the order to end is looked at.
const REST: Duration = Duration::from_millis(5);

/// A participant.
struct Replayer<'a, L> {
    board: Board<'a>,
    member: &'a BoardMember<'a>,
    locks: &'a [L],
    /// Number of acquisitions.
    count: std::cell::Cell<u64>,
}

impl<L: HeldLock> Replayer<'_, L> {
    fn ends(&self) -> bool {
        self.board.end().load(Relaxed) != 0
    }

    fn rest(&self, ns: u64) {
        let end = Instant::now() + Duration::from_nanos(ns);
        while let left = end.saturating_duration_since(Instant::now())
            && !left.is_zero()
            && !self.ends()
        {
            std::thread::sleep(left.min(REST));
        }
    }

    /// Takes the steps once, or until the order to end.
    fn play(&self, steps: &[ReplayStep]) -> Result<(), String> {
        let mut at = 0;
        while let Some(step) = steps.get(at)
            && !self.ends()
        {
            at += 1;
            match *step {
                ReplayStep::Work(ns) => work(ns),
                ReplayStep::Idle(ns) => self.rest(ns),
                ReplayStep::Hold { lock, steps: within } => {
                    self.hold(lock, &steps[at..at + within])?;
                    at += within;
                }
            }
        }
        Ok(())
    }

    fn hold(&self, lock: usize, within: &[ReplayStep]) -> Result<(), String> {
        let (count, me) = (self.count.get(), self.member.me);
        let start = count.is_multiple_of(TIMED).then(Instant::now);
        let mut outcome = Ok(());
        self.locks[lock].hold(self.member, false, |_| {
            if let Some(start) = start {
                self.board.note(me, start.elapsed().as_nanos() as u64);
            }
            // Relaxed: the lock orders it, which is checked.
            let protected = self.board.token(lock);
            protected.store(protected.load(Relaxed) + 1, Relaxed);
            self.count.set(count + 1);
            // Relaxed: a count.
            self.board.done(me).store(count + 1, Relaxed);
            outcome = self.play(within);
        })?;
        outcome
    }
}

/// Measures the replay under these locks.
///
/// # Errors
///
/// Those of the system; a lock that did not exclude.
pub(super) fn measure(
    load: &LockLoad<'_>,
    replay: &LockReplay,
    run: &Circumstances<'_>,
    locks: &[impl HeldLock],
) -> Result<Samples, Error> {
    let memory = Board::memory()?;
    let board = Board::new(&memory)?;
    let procs = replay.threads.len();
    let crew = LoadCrew { sharing: load.sharing, procs, policy: load.policy, board };
    let counted = crew.count(run, &|member| {
        let replayer = Replayer { board, member, locks, count: std::cell::Cell::new(0) };
        while !replayer.ends() {
            replayer.play(&replay.threads[member.me])?;
        }
        board.thread(member.me).store(replayer.count.get(), Relaxed);
        Ok(())
    })?;
    figures(&crew, counted, replay, locks.len())
}

/// Figures of a replay, after a look at whether the locks excluded.
fn figures(
    crew: &LoadCrew<'_>,
    mut counted: Counted,
    replay: &LockReplay,
    locks: usize,
) -> Result<Samples, Error> {
    crew.check_exclusion(locks)?;
    let rate = counted.rate();
    // A fair lock lets each do the same part of what its thread did.
    let planned = replay.shares();
    let mean = planned.iter().sum::<u64>() as f64 / crew.procs as f64;
    for (share, planned) in counted.shares.iter_mut().zip(planned) {
        *share *= mean / planned.max(1) as f64;
    }
    Ok(crew.figures(&counted, ACQUISITIONS_PER_S, rate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::with_circumstances;
    use crate::primitives::MeasuredKind;
    use crate::primitives::locks::{LockKind, contend};
    use crate::structures::Sharing;
    use towpath_sync::Policy;

    #[test]
    fn replay_runs_under_every_lock() {
        use ReplayStep::{Hold, Idle, Work};
        let nested =
            vec![Work(100), Hold { lock: 0, steps: 2 }, Work(50), Hold { lock: 1, steps: 0 }, Idle(10_000)];
        let other = vec![Hold { lock: 1, steps: 1 }, Work(20), Hold { lock: 2, steps: 0 }];
        let steps =
            LockReplay { threads: vec![nested, other], locks: 3, acquisitions: 4, ..LockReplay::default() };
        with_circumstances(Duration::from_millis(5), |run| {
            for lock in LockKind::all().into_iter().filter(|lock| lock.is_for(Sharing::Threads, 2)) {
                let (sharing, policy) = (Sharing::Threads, Policy::Adaptive);
                let replay = Some(&steps);
                let load = LockLoad { lock, sharing, procs: 2, policy, inside: 0, between: 0, replay };
                let samples = contend(&load, run).unwrap_or_else(|e| panic!("{}: {e}", lock.name()));
                let rate = samples.values.iter().find(|(metric, _)| *metric == ACQUISITIONS_PER_S);
                assert!(rate.is_some_and(|(_, rate)| *rate >= 0.0), "{}", lock.name());
            }
        });
    }
}
