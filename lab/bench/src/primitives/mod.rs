//! Locks, queues, barriers and their like under load, by threads and by processes.
//!
//! The native counterpart of the simulator's experiments. `mod.rs` has the settings, the
//! participants' work and what is measured of them; `crew.rs` runs participants; `locks.rs`,
//! `queues.rs`, `barriers.rs`, `broadcast.rs`, `counter.rs` and `pool.rs` say what there is to
//! compare and what a participant does; `kills/` kills
//! them; `replay.rs` replays a traced program's locks; `copies.rs` runs several copies at one time;
//! `pthread.rs` has libc's; `shown.rs` and `rows.rs` make tables and plots; `advice.rs` recommends
//! one of each.

pub mod advice;
pub mod barriers;
pub mod broadcast;
mod ck;
pub mod copies;
pub mod counter;
mod crew;
pub mod kills;
pub mod locks;
pub mod pool;
mod pthread;
pub mod queues;
mod replay;
pub mod rows;
pub mod shown;

use std::hint::black_box;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use towpath::{Object, Shared, World, WorldConfig, WorldError};

use self::copies::CopyScheduler;
use crate::experiment::Samples;
use crate::structures::Sharing;
use crate::structures::board::{Board, Latencies};
use towpath_host::Error;
use towpath_host::trace::LockReplay;
use towpath_report::record::metrics::{
    CONTEXT_SWITCHES, CPU_SECONDS, FAIRNESS, LEAST_SHARE, P50_US, P99_US, P999_US, SLOWEST_US,
};
use towpath_report::stats::jain;

/// Settings of the experiments `locks`, `queues`, `barriers` and their like.
#[derive(Clone, Debug, PartialEq)]
pub struct PrimitiveSettings {
    /// Nanoseconds of work in a critical section.
    pub inside: u64,
    /// Nanoseconds of work between two operations of a participant.
    pub between: u64,
    /// Kinds of participants.
    pub sharing: Vec<Sharing>,
    /// Sizes of messages or buffers, in bytes; empty: the experiment's own.
    pub sizes: Vec<u64>,
    /// Number of kills, instead of measuring throughput.
    pub kills: Option<u32>,
    /// Numbers of copies that run at one time; empty: one, which the records do not name.
    pub copies: Vec<u32>,
    /// The ways in which copies share the cores.
    pub schedulers: Vec<CopyScheduler>,
    /// Steps of a traced program's threads, instead of `inside` and `between` (`locks`).
    pub replay: Option<Arc<LockReplay>>,
}

impl PrimitiveSettings {
    /// The sizes that were asked for, or else these.
    pub fn sizes_or<'a>(&'a self, sizes: &'a [u64]) -> &'a [u64] {
        if self.sizes.is_empty() { sizes } else { &self.sizes }
    }
}

impl Default for PrimitiveSettings {
    fn default() -> Self {
        PrimitiveSettings {
            inside: 50,
            between: 200,
            sharing: Sharing::ALL.to_vec(),
            sizes: Vec::new(),
            kills: None,
            copies: Vec::new(),
            schedulers: CopyScheduler::ALL.to_vec(),
            replay: None,
        }
    }
}

/// Primitive to measure, ours or a rival.
pub trait MeasuredKind: Copy {
    /// Name in the records.
    fn name(self) -> &'static str;

    /// Returns whether the policy of waiting can be chosen.
    fn has_policy(self) -> bool;

    /// Returns whether so many such participants can use it.
    fn is_for(self, sharing: Sharing, procs: u32) -> bool;
}

/// Work of so many nanoseconds, on registers alone: reading the clock
/// ([`Processor::work`](towpath_machine::Processor::work)) takes longer than some of it.
#[inline]
pub fn work(nanoseconds: u64) {
    let rounds = (nanoseconds as f64 * rounds_per_ns()) as u64;
    let mut x = nanoseconds;
    for _ in 0..rounds {
        x = black_box(x.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 1);
    }
}

/// Rounds of [`work`] in a nanosecond: the most of some tries.
pub fn rounds_per_ns() -> f64 {
    static RATE: OnceLock<f64> = OnceLock::new();
    *RATE.get_or_init(|| {
        const ROUNDS: u64 = 100_000;
        let once = || {
            let (start, mut x) = (Instant::now(), 1u64);
            for _ in 0..ROUNDS {
                x = black_box(x.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 1);
            }
            ROUNDS as f64 / start.elapsed().as_nanos().max(1) as f64
        };
        (0..20).map(|_| once()).fold(0.0, f64::max)
    })
}

/// New world for these participants.
fn world_for(config: &WorldConfig) -> Result<World, Error> {
    towpath::create(None, config).map_err(|e| Error::Other(Box::new(e)))
}

/// Another handle of a world, which this process enters.
fn enter(world: &World) -> Result<World, String> {
    let world = world.reopen().map_err(|e| e.to_string())?;
    world.enter(None).map_err(|e| e.to_string())?;
    Ok(world)
}

/// Object by name, which a process opens when it first uses it: a forked one its own.
struct NamedObject<'a, T: Object> {
    world: &'a World,
    open: fn(&World) -> Result<Shared<T>, WorldError>,
    handle: OnceLock<Result<Shared<T>, String>>,
}

impl<'a, T: Object> NamedObject<'a, T> {
    fn new(world: &'a World, open: fn(&World) -> Result<Shared<T>, WorldError>) -> Self {
        NamedObject { world, open, handle: OnceLock::new() }
    }

    #[inline]
    fn get(&self) -> Result<&Shared<T>, String> {
        self.handle.get_or_init(|| self.opened()).as_ref().map_err(Clone::clone)
    }

    #[cold]
    fn opened(&self) -> Result<Shared<T>, String> {
        (self.open)(&enter(self.world)?).map_err(|e| e.to_string())
    }
}

/// State of a measurement at its beginning, to be compared with that at its end.
pub struct CountsBefore {
    at: Instant,
    done: Vec<u64>,
    latencies: Latencies,
}

/// Counts of a measurement.
pub struct Counted {
    /// Operations of each participant.
    pub shares: Vec<f64>,
    /// Their times.
    pub latencies: Latencies,
    /// Duration.
    pub time: Duration,
}

impl CountsBefore {
    /// The state now.
    pub fn now(board: &Board<'_>, procs: usize) -> CountsBefore {
        CountsBefore { done: done(board, procs), latencies: board.latencies(), at: Instant::now() }
    }

    /// Counts since then.
    pub fn until_now(&self, board: &Board<'_>) -> Counted {
        let time = self.at.elapsed();
        let now = done(board, self.done.len());
        let shares = now.iter().zip(&self.done).map(|(now, then)| (now - then) as f64).collect();
        Counted { shares, latencies: board.latencies().since(&self.latencies), time }
    }
}

fn done(board: &Board<'_>, procs: usize) -> Vec<u64> {
    use std::sync::atomic::Ordering::Relaxed;
    // Relaxed: counts.
    (0..procs).map(|me| board.done(me).load(Relaxed)).collect()
}

impl Counted {
    /// Number of operations.
    pub fn operations(&self) -> f64 {
        self.shares.iter().sum()
    }

    /// Operations of all in a second.
    pub fn rate(&self) -> f64 {
        self.operations() / self.time.as_secs_f64().max(1e-9)
    }

    /// Adds fairness and the operations' times.
    pub fn describe(&self, samples: &mut Samples) {
        let times = [(P50_US, 0.5), (P99_US, 0.99), (P999_US, 0.999), (SLOWEST_US, 1.0)];
        for (metric, part) in times {
            if let Some(ns) = self.latencies.percentile(part) {
                samples.push(metric, ns / 1e3);
            }
        }
        if let Some(index) = jain(&self.shares).filter(|_| self.shares.len() > 1) {
            samples.push(FAIRNESS, index);
            let least = self.shares.iter().copied().fold(f64::INFINITY, f64::min);
            samples.push(LEAST_SHARE, least * self.shares.len() as f64 / self.operations());
        }
    }
}

/// Adds the participants' processor time and switches, of all that they did.
pub fn describe_costs(board: &Board<'_>, procs: usize, samples: &mut Samples) {
    use std::sync::atomic::Ordering::Relaxed;
    // Relaxed, all: the participants have ended.
    let sum = |word: &dyn Fn(usize) -> u64| (0..procs).map(word).sum::<u64>() as f64;
    let operations = sum(&|me| board.done(me).load(Relaxed)).max(1.0);
    let nanoseconds = sum(&|me| board.intent(me).load(Relaxed));
    samples.push(CPU_SECONDS, nanoseconds / 1e9 / operations * 1e6);
    samples.push(CONTEXT_SWITCHES, sum(&|me| board.present(me).load(Relaxed)) / operations);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_as_long_as_it_says_or_longer() {
        let start = Instant::now();
        (0..100).for_each(|_| work(10_000));
        assert!(start.elapsed() >= Duration::from_micros(500), "{:?}", start.elapsed());
        assert!(rounds_per_ns() > 0.0);
    }

    #[test]
    fn shares_and_times_are_those_since_the_beginning() {
        use std::sync::atomic::Ordering::Relaxed;
        let memory = Board::memory().unwrap();
        let board = Board::new(&memory).unwrap();
        board.done(0).store(10, Relaxed);
        board.note(0, 100);
        let before = CountsBefore::now(&board, 2);
        board.done(0).store(13, Relaxed);
        board.done(1).store(1, Relaxed);
        board.note(1, 8_000);
        let counted = before.until_now(&board);
        assert_eq!((counted.shares.clone(), counted.operations()), (vec![3.0, 1.0], 4.0));
        let mut samples = Samples::default();
        counted.describe(&mut samples);
        let of = |metric| samples.values.iter().find(|(m, _)| *m == metric).map(|(_, v)| *v);
        assert_eq!((of(LEAST_SHARE), of(FAIRNESS)), (Some(0.5), Some(0.8)));
        assert!(of(P50_US).is_some_and(|us| (7.0..9.0).contains(&us)));
    }
}
