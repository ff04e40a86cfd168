//! Applications on the machine at hand: a thread for each processor.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier as Gate, Mutex};
use std::time::{Duration, Instant};

use towpath_machine::{Heap, LINE, Native};
use towpath_structures::for_each_queue;
use towpath_structures::queues::ConcurrentQueue;
use towpath_sync::{
    Barrier, Lock, Policy, Surroundings, Wait, for_each_barrier, for_each_lock, is_oversubscribed,
};

use crate::memory::Memory;
use crate::parts::{Parts, all_locks, lock_row, locked_queues, one_barrier, queue_row};
use crate::problem::{Problem, ProblemChoice, Verified, make};
use crate::team::{LockSet, MeetingPoint, Needs, TaskQueues, Team};

/// Maximum number of processors of a native team.
pub const MOST: usize = 32;

/// Name of queues under the team's locks.
pub const LOCKED: &str = "locked";

/// Surroundings of a team of threads: how many of them are awake.
#[derive(Debug)]
pub struct TeamSurroundings {
    awake: AtomicU64,
    cores: u64,
}

impl TeamSurroundings {
    /// Surroundings of so many threads on so many cores.
    pub fn new(threads: usize, cores: usize) -> Self {
        TeamSurroundings { awake: AtomicU64::new(threads as u64), cores: cores as u64 }
    }
}

impl Surroundings for TeamSurroundings {
    fn oversubscribed(&self) -> bool {
        // Relaxed, here and below: a count that a policy goes by; nothing is read because of it.
        is_oversubscribed(self.awake.load(Ordering::Relaxed), self.cores)
    }
    fn asleep(&self, asleep: bool) {
        if asleep {
            self.awake.fetch_sub(1, Ordering::Relaxed);
        } else {
            self.awake.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Way of waiting of a team in its surroundings.
pub fn waiting(policy: Policy, around: &TeamSurroundings) -> Wait<'_> {
    Wait { policy, around, budget: Native::switch_cost() }
}

/// Locks of a native team.
pub type NativeLocks<'a> = Box<dyn LockSet<Native> + Send + Sync + 'a>;
/// Barrier of a native team.
pub type NativeBarrier<'a> = Box<dyn MeetingPoint<Native> + Send + Sync + 'a>;
/// Queues of a native team.
pub type NativeQueues<'a> = Box<dyn TaskQueues<Native> + Send + Sync + 'a>;

/// Maker of so many locks.
type LockMaker = for<'a> fn(usize, Wait<'a>) -> NativeLocks<'a>;
/// Maker of a barrier for so many processors.
type BarrierMaker = for<'a> fn(usize, Wait<'a>) -> NativeBarrier<'a>;
/// Maker of queues for so many processors.
type QueueMaker = for<'a> fn(Needs, usize, Wait<'a>) -> NativeQueues<'a>;

fn locks_of<L: Lock<Native> + Send + Sync + 'static>(all: &mut Vec<(&'static str, LockMaker)>) {
    all.push((L::NAME, |count, wait| Box::new(lock_row::<Native, L, _>(&Heap, count, wait))));
}

fn barrier_of<B: Barrier<Native> + Send + Sync + 'static>(all: &mut Vec<(&'static str, BarrierMaker)>) {
    all.push((B::NAME, |procs, wait| Box::new(one_barrier::<Native, B, _>(&Heap, procs, wait))));
}

fn queues_of<Q: ConcurrentQueue<Native>>(all: &mut Vec<(&'static str, QueueMaker)>) {
    if !Q::BLOCKING {
        all.push((Q::NAME, |needs, procs, wait| {
            Box::new(queue_row::<Native, Q, _>(&Heap, needs, procs, wait))
        }));
    }
}

/// All kinds of locks, by name.
fn locks() -> Vec<(&'static str, LockMaker)> {
    let mut all = Vec::new();
    for_each_lock!([atomics kernel_mutex] Native, 32 => locks_of(&mut all));
    all
}

/// All kinds of barriers, by name.
fn barriers() -> Vec<(&'static str, BarrierMaker)> {
    let mut all = Vec::new();
    for_each_barrier!([atomics] Native, 32 => barrier_of(&mut all));
    all
}

/// All kinds of queues that are not under locks, by name.
fn queues() -> Vec<(&'static str, QueueMaker)> {
    let mut all = Vec::new();
    for_each_queue!([atomics] Native, 32 => queues_of(&mut all));
    all
}

fn names<T>(all: &[(&'static str, T)]) -> Vec<&'static str> {
    all.iter().map(|one| one.0).collect()
}

/// Names of all kinds of locks.
pub fn lock_names() -> Vec<&'static str> {
    names(&locks())
}

/// Names of all kinds of barriers.
pub fn barrier_names() -> Vec<&'static str> {
    names(&barriers())
}

/// Names of all kinds of queues: [`LOCKED`] first.
pub fn queue_names() -> Vec<&'static str> {
    std::iter::once(LOCKED).chain(names(&queues())).collect()
}

/// Names of the parts of a native team.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartNames<'a> {
    /// The locks'.
    pub lock: &'a str,
    /// The barrier's.
    pub barrier: &'a str,
    /// The queues': [`LOCKED`], or one without locks.
    pub queue: &'a str,
}

impl Default for PartNames<'_> {
    fn default() -> Self {
        PartNames { lock: "mcs", barrier: "dissemination", queue: LOCKED }
    }
}

/// Makes the parts of those names.
///
/// # Errors
///
/// Names what there is instead.
pub fn parts<'a>(
    chosen: PartNames<'_>,
    needs: Needs,
    procs: usize,
    wait: Wait<'a>,
) -> Result<Parts<'a, Native>, String> {
    fn find<T: Copy>(all: &[(&'static str, T)], kind: &str, name: &str) -> Result<T, String> {
        let unknown = || format!("no {kind} is called `{name}`; there are {}", names(all).join(", "));
        all.iter().find(|one| one.0 == name).map(|one| one.1).ok_or_else(unknown)
    }
    let queues = match chosen.queue {
        LOCKED => locked_queues(&Heap, needs, wait),
        name => find(&queues(), "queue", name)?(needs, procs, wait),
    };
    Ok(Parts {
        locks: find(&locks(), "lock", chosen.lock)?(all_locks(needs), wait),
        barrier: find(&barriers(), "barrier", chosen.barrier)?(procs, wait),
        queues,
    })
}

/// Course of a native run.
#[derive(Clone, Debug)]
pub struct NativeRun {
    /// Time from the start of the first processor to the end of the last one.
    pub time: Duration,
    /// The result.
    pub verified: Verified,
}

/// Makes the problem of that choice for threads of this process.
pub fn problem(choice: ProblemChoice) -> Box<dyn Problem<Native>> {
    make(choice, &Memory { arena: &Heap, line: LINE / 8, per_node: 1 })
}

/// Solves a problem with a thread for each processor. `before` is called by each thread
/// first, with its processor's number (to pin it, say).
///
/// # Errors
///
/// If the result differs from the reference.
///
/// # Panics
///
/// If one of the threads does.
pub fn run(
    problem: &dyn Problem<Native>,
    procs: usize,
    parts: &Parts<'_, Native>,
    before: &(dyn Fn(usize) + Sync),
) -> Result<NativeRun, String> {
    let gate = Gate::new(procs);
    let times: Mutex<Vec<(Instant, Instant)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for me in 0..procs {
            let (gate, times) = (&gate, &times);
            scope.spawn(move || {
                before(me);
                let cpu = Native::with_id(me as u32);
                let team =
                    Team { procs, locks: &*parts.locks, barrier: &*parts.barrier, queues: &*parts.queues };
                gate.wait();
                let start = Instant::now();
                problem.work(&cpu, me, &team);
                let end = Instant::now();
                times.lock().unwrap_or_else(|e| e.into_inner()).push((start, end));
            });
        }
    });
    let times = times.into_inner().unwrap_or_else(|e| e.into_inner());
    let start = times.iter().map(|t| t.0).min();
    let end = times.iter().map(|t| t.1).max();
    let time = start.zip(end).map_or(Duration::ZERO, |(start, end)| end - start);
    // Relaxed: the threads have been joined.
    let verified = problem.check(&|cell| cell.load(Ordering::Relaxed))?;
    Ok(NativeRun { time, verified })
}
