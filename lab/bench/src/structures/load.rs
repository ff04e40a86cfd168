//! Throughput and tail latency under load, also while participants are stopped or killed.

use std::time::{Duration, Instant};

use towpath_machine::Random;
use towpath_sync::Policy;

use super::board::{Board, BoardMember, BoardSurroundings, SUPERVISOR};
use super::crew::Crew;
use super::room::{POOLS, Room};
use super::work::{WorkKind, fill};
use super::{Contest, NOT_ALONE, Sharing};
use crate::experiment::Samples;
use crate::transport::Circumstances;
use towpath_host::Error;
use towpath_report::record::metrics::{KILLS, OPERATIONS_PER_S, P999_US, STANDSTILL, WITHOUT_PER_S};

/// Time for which participants are stopped.
const WINDOW: Duration = Duration::from_millis(20);
/// Time for which they run in between.
const BETWEEN: Duration = Duration::from_millis(2);

/// The load of one measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// The structure, its algorithm, its sharing.
    pub contest: Contest,
    /// Number of participants.
    pub procs: u32,
    /// Number of participants that are stopped at a time.
    pub stopped: u32,
    /// Number of operations in a hundred that read.
    pub reads: u32,
    /// Number of participants killed each second.
    pub kill_rate: f64,
    /// Waiting policy.
    pub policy: Policy,
}

/// Counts over some windows of time.
#[derive(Default)]
struct WindowCounts {
    operations: u64,
    time: Duration,
    windows: u32,
    /// Windows in which hardly anything was done.
    standing: u32,
    kills: u32,
}

impl WindowCounts {
    fn rate(&self) -> f64 {
        self.operations as f64 / self.time.as_secs_f64().max(1e-9)
    }

    /// A window, in which those that could run have ended so many operations.
    fn add(&mut self, operations: u64, time: Duration, running: u64) {
        self.operations += operations;
        self.time += time;
        self.windows += 1;
        // Each may end the operation that it was in when a participant was stopped, and one more.
        self.standing += u32::from(operations <= 2 * running);
    }
}

/// Measures it.
///
/// # Errors
///
/// Why it could not be measured.
pub fn throughput(load: &Load, run: &Circumstances<'_>) -> Result<Samples, Error> {
    if load.kill_rate > 0.0 && load.contest.sharing == Sharing::Threads {
        return Err(Error::NotAvailable(NOT_ALONE.into()));
    }
    let contest = load.contest;
    let memory = Board::memory()?;
    let board = Board::new(&memory)?;
    let room = match contest.algorithm.threads_only() {
        true => None,
        false => Some(Room::new(contest.structure, contest.algorithm, POOLS[0])?),
    };
    let around = BoardSurroundings::new(board, SUPERVISOR);
    let supervisor = BoardMember::new(&around, load.policy);
    if let Some(room) = &room {
        fill(room.subject()?, &supervisor, contest.structure).map_err(|e| Error::Other(Box::new(e)))?;
    }
    let task = WorkKind { structure: contest.structure, reads: load.reads, seed: run.seed, recorded: false };
    let mut crew = Crew::start(contest, room.as_ref(), board, (load.procs as usize, load.policy, task), run)?;
    std::thread::sleep(run.limit / 10);
    let (before, mut counted, mut without) =
        (board.latencies(), WindowCounts::default(), WindowCounts::default());
    let mut random = Random::stream(run.seed, 0);
    if load.stopped > 0 {
        stopping(
            &mut crew,
            &board,
            load.stopped as usize,
            run.limit,
            &mut random,
            [&mut counted, &mut without],
        )?;
    } else {
        let (operations, start) = (board.operations(), Instant::now());
        if load.kill_rate > 0.0 {
            while start.elapsed() < run.limit {
                let pause = Duration::from_secs_f64(1.0 / load.kill_rate);
                std::thread::sleep(pause.min(run.limit.saturating_sub(start.elapsed())));
                let victim = random.below(u64::from(load.procs)) as usize;
                crew.kill(victim)?;
                counted.kills += 1;
                if let Some(room) = &room {
                    recover(room, &supervisor, victim);
                }
                crew.replace(victim)?;
            }
        } else {
            std::thread::sleep(run.limit);
        }
        counted.add(board.operations() - operations, start.elapsed(), u64::from(load.procs));
    }
    if let Some(failure) = crew.failure() {
        return Err(failure);
    }
    let mut samples = Samples::one(OPERATIONS_PER_S, counted.rate());
    if let Some(ns) = board.latencies().since(&before).percentile(0.999) {
        samples.push(P999_US, ns / 1e3);
    }
    if load.stopped > 0 {
        samples.push(WITHOUT_PER_S, without.rate());
        samples.push(STANDSTILL, f64::from(counted.standing) / f64::from(counted.windows.max(1)));
    }
    if load.kill_rate > 0.0 {
        samples.push(KILLS, f64::from(counted.kills));
    }
    Ok(samples)
}

/// Stops some at random moments, again and again, and counts the others' operations
/// meanwhile; and right before or after, while the same ones wait outside. So both are counted on
/// the same cores beside the same neighbours. A participant that stands still goes on when the
/// stopped ones do.
fn stopping(
    crew: &mut Crew<'_>,
    board: &Board<'_>,
    count: usize,
    limit: Duration,
    random: &mut Random,
    [with, without]: [&mut WindowCounts; 2],
) -> Result<(), Error> {
    let begun = Instant::now();
    while with.windows < 3 || begun.elapsed() < limit {
        let mut victims: Vec<usize> = (0..crew.size()).collect();
        while victims.len() > count {
            victims.swap_remove(random.below(victims.len() as u64) as usize);
        }
        let first = with.windows.is_multiple_of(2);
        for stops in [first, !first] {
            std::thread::sleep(BETWEEN + Duration::from_micros(random.below(1000)));
            for victim in &victims {
                if stops { crew.stop(*victim)? } else { crew.rest(*victim)? }
            }
            let (operations, start) = (board.operations(), Instant::now());
            std::thread::sleep(WINDOW);
            let (done, time) = (board.operations() - operations, start.elapsed());
            for victim in &victims {
                if stops { crew.go_on(*victim) } else { crew.end_rest(*victim) }
            }
            let counted = if stops { &mut *with } else { &mut *without };
            counted.add(done, time, (crew.size() - count) as u64);
        }
    }
    Ok(())
}

/// Ends the operations that a dead participant has begun. If that fails the others stand
/// still, and that is the figure.
fn recover(room: &Room, supervisor: &BoardMember<'_>, victim: usize) {
    let begun = Instant::now();
    while let Ok(subject) = room.subject()
        && subject.recover(supervisor, &|p| p == victim).is_ok_and(|pending| pending > 0)
        && begun.elapsed() < WINDOW
    {
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::BenchSettings;
    use crate::structures::{Structure, StructureAlgorithm};
    use towpath_host::topology::{Pin, Placement};

    fn measured(
        structure: Structure,
        algorithm: StructureAlgorithm,
        stopped: u32,
        kill_rate: f64,
    ) -> Samples {
        let settings = BenchSettings::default();
        let placement = Placement::detect(Pin::Auto);
        let run = Circumstances {
            settings: &settings,
            placement: &placement,
            round: 0,
            seed: 3,
            limit: Duration::from_millis(20),
        };
        let sharing = if algorithm.threads_only() { Sharing::Threads } else { Sharing::Processes };
        let contest = Contest { structure, algorithm, sharing };
        let load = Load { contest, procs: 3, stopped, reads: 50, kill_rate, policy: Policy::Adaptive };
        throughput(&load, &run).unwrap_or_else(|e| panic!("{structure:?} {algorithm:?}: {e}"))
    }

    fn of(samples: &Samples, metric: towpath_report::record::Metric) -> Option<f64> {
        samples.values.iter().find(|(m, _)| *m == metric).map(|(_, value)| *value)
    }

    #[test]
    fn every_structure_of_every_algorithm_gets_on() {
        for structure in Structure::ALL {
            for algorithm in StructureAlgorithm::ALL.into_iter().filter(|a| a.offers(structure)) {
                // All have begun when it is measured; how much they do in a short while is the
                // machine's business.
                let samples = measured(structure, algorithm, 0, 0.0);
                assert!(of(&samples, OPERATIONS_PER_S).is_some(), "{structure:?} {algorithm:?}");
            }
        }
    }

    #[test]
    fn a_run_under_a_lock_ends_though_its_holders_are_stopped() {
        for algorithm in [
            StructureAlgorithm::Robust,
            StructureAlgorithm::TestAndTestAndSet,
            StructureAlgorithm::ParkingLot,
        ] {
            let samples = measured(Structure::List, algorithm, 2, 0.0);
            assert!(of(&samples, STANDSTILL).is_some_and(|part| (0.0..=1.0).contains(&part)));
        }
        assert!(of(&measured(Structure::List, StructureAlgorithm::Guerraoui, 2, 0.0), STANDSTILL).is_some());
    }

    #[test]
    fn a_run_goes_on_though_participants_are_killed() {
        let samples = measured(Structure::Stack, StructureAlgorithm::Guerraoui, 0, 100.0);
        assert!(of(&samples, KILLS).unwrap() >= 1.0);
        assert!(of(&measured(Structure::Fifo, StructureAlgorithm::Robust, 0, 100.0), KILLS).unwrap() >= 1.0);
    }

    #[test]
    fn windows_in_which_nothing_is_done_are_told_from_the_others() {
        let mut counted = WindowCounts::default();
        counted.add(0, WINDOW, 3);
        counted.add(6, WINDOW, 3);
        counted.add(7, WINDOW, 3);
        assert_eq!((counted.operations, counted.windows, counted.standing), (13, 3, 2));
    }
}
