//! Barriers under load.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use towpath::{World, WorldConfig};
use towpath_machine::{Concurrent, Heap, Native, OwnLine};
use towpath_sync::{Barrier, Policy, for_each_barrier, robust};

use super::ck::{self, CkBarrier};
use super::crew::LoadCrew;
use super::pthread::PthreadBarrier;
use super::{MeasuredKind, NamedObject, work, world_for};
use crate::experiment::Samples;
use crate::structures::Sharing;
use crate::structures::board::{Board, BoardMember};
use crate::transport::Circumstances;
use towpath_host::Error;
use towpath_host::process::SharedRow;
use towpath_report::record::metrics::BARRIER_US;

/// Barrier to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BarrierKind {
    /// `towpath::Barrier`, by name in a world: it survives deaths.
    Robust,
    /// A barrier of ours, by its name.
    Ours(&'static str),
    /// libc's.
    Pthread,
    /// `std::sync::Barrier`.
    Std,
    /// Concurrency Kit's centralized one.
    Ck,
}

impl BarrierKind {
    /// All of them, in the order in which tables show them.
    pub fn all() -> Vec<BarrierKind> {
        fn names<B: Barrier<Native>>(all: &mut Vec<BarrierKind>) {
            all.push(BarrierKind::Ours(B::NAME));
        }
        let mut all = vec![BarrierKind::Robust];
        for_each_barrier!([atomics] Native, 64 => names(&mut all));
        all.extend([BarrierKind::Pthread, BarrierKind::Std, BarrierKind::Ck]);
        all
    }
}

impl MeasuredKind for BarrierKind {
    fn name(self) -> &'static str {
        match self {
            BarrierKind::Robust => "robust-barrier",
            BarrierKind::Ours(name) => name,
            BarrierKind::Pthread => "pthread",
            BarrierKind::Std => "std",
            BarrierKind::Ck => "ck-centralized",
        }
    }

    fn has_policy(self) -> bool {
        matches!(self, BarrierKind::Ours(_))
    }

    fn is_for(self, sharing: Sharing, _: u32) -> bool {
        match self {
            BarrierKind::Std => matches!(sharing, Sharing::Threads),
            BarrierKind::Robust => matches!(sharing, Sharing::Processes),
            BarrierKind::Ck => ck::is_installed(),
            _ => true,
        }
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BarrierLoad {
    /// The barrier.
    pub barrier: BarrierKind,
    /// The participants' kind.
    pub sharing: Sharing,
    /// Their number.
    pub procs: u32,
    /// Waiting policy.
    pub policy: Policy,
    /// Nanoseconds of work between two episodes.
    pub between: u64,
}

/// Barrier as a participant uses it.
trait MetBarrier: Sync {
    fn meet(&self, member: &BoardMember<'_>) -> Result<(), String>;
}

struct RawBarrier<'a, B>(&'a B);

impl<B: Barrier<Native> + Sync> MetBarrier for RawBarrier<'_, B> {
    fn meet(&self, member: &BoardMember<'_>) -> Result<(), String> {
        self.0.wait(&member.cpu, member.me, &member.wait).map_err(|e| e.to_string())
    }
}

impl MetBarrier for PthreadBarrier {
    fn meet(&self, _: &BoardMember<'_>) -> Result<(), String> {
        self.wait()
    }
}

/// Concurrency Kit's barrier, with the senses of its participants.
struct SensedBarrier(CkBarrier, SharedRow<OwnLine<AtomicU32>>);

impl SensedBarrier {
    fn new(procs: u32) -> Result<Self, Error> {
        Ok(SensedBarrier(CkBarrier::new(procs)?, SharedRow::row(procs as usize)?))
    }
}

impl MetBarrier for SensedBarrier {
    fn meet(&self, member: &BoardMember<'_>) -> Result<(), String> {
        let sense = &self.1[member.me].0;
        let mut own = sense.load(Relaxed);
        self.0.wait(&mut own);
        sense.store(own, Relaxed);
        Ok(())
    }
}

impl MetBarrier for std::sync::Barrier {
    fn meet(&self, _: &BoardMember<'_>) -> Result<(), String> {
        self.wait();
        Ok(())
    }
}

impl MetBarrier for NamedObject<'_, robust::Barrier> {
    fn meet(&self, _: &BoardMember<'_>) -> Result<(), String> {
        self.get()?.wait().map_err(|e| e.to_string())
    }
}

/// Measures it: the time of an episode, costs.
///
/// # Errors
///
/// Those of the system; a barrier that let a participant pass too early.
pub fn meet(load: &BarrierLoad, run: &Circumstances<'_>) -> Result<Samples, Error> {
    match load.barrier {
        BarrierKind::Ours(name) => {
            let mut result = None;
            for_each_barrier!([atomics] Native, 64 => raw(name, load, run, &mut result));
            result.unwrap_or_else(|| Err(Error::NotAvailable(format!("there is no barrier {name}"))))
        }
        BarrierKind::Pthread => {
            let is_shared = load.sharing == Sharing::Processes;
            measure(load, run, &PthreadBarrier::new(load.procs as usize, is_shared)?)
        }
        BarrierKind::Ck => measure(load, run, &SensedBarrier::new(load.procs)?),
        BarrierKind::Std => measure(load, run, &std::sync::Barrier::new(load.procs as usize)),
        BarrierKind::Robust => {
            let world = world_for(&WorldConfig::new(load.procs))?;
            let open = |world: &World| world.barrier_of("barrier", world.size() as usize);
            measure(load, run, &NamedObject::new(&world, open))
        }
    }
}

fn raw<B: Barrier<Native> + Concurrent>(
    name: &str,
    load: &BarrierLoad,
    run: &Circumstances<'_>,
    result: &mut Option<Result<Samples, Error>>,
) {
    if B::NAME == name {
        let row = SharedRow::of(B::new(&Heap, load.procs as usize));
        *result = Some(row.and_then(|row| measure(load, run, &RawBarrier(&row[0]))));
    }
}

/// Episodes of which one is checked.
const CHECKED: u64 = 16;

fn measure(load: &BarrierLoad, run: &Circumstances<'_>, barrier: &impl MetBarrier) -> Result<Samples, Error> {
    let memory = Board::memory()?;
    let board = Board::new(&memory)?;
    let procs = load.procs as usize;
    let crew = LoadCrew { sharing: load.sharing, procs, policy: load.policy, board };
    let last = board.token(0);
    // Relaxed, all: counts; the barrier orders them, which is checked.
    let participate = |member: &BoardMember<'_>| {
        let me = member.me;
        for episode in 1u64.. {
            if me == 0 && board.end().load(Relaxed) != 0 {
                last.store(episode, Relaxed);
            }
            let start = Instant::now();
            board.done(me).store(episode, Relaxed);
            barrier.meet(member)?;
            board.note(me, start.elapsed().as_nanos() as u64);
            let is_checked = episode.is_multiple_of(CHECKED);
            if is_checked && (0..procs).any(|other| board.done(other).load(Relaxed) < episode) {
                return Err("a participant passed before all had arrived".to_owned());
            }
            // Of an episode that is over for all, so all see it.
            let last = last.load(Relaxed);
            if last != 0 && episode >= last {
                break;
            }
            work(load.between);
        }
        Ok(())
    };
    let counted = crew.count(run, &participate)?;
    let episodes = (counted.operations() / procs as f64).max(1e-9);
    Ok(crew.figures(&counted, BARRIER_US, counted.time.as_secs_f64() * 1e6 / episodes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::with_circumstances;
    use std::time::Duration;

    #[test]
    fn every_barrier_holds_back_and_is_measured() {
        with_circumstances(Duration::from_millis(5), |run| {
            for sharing in Sharing::ALL {
                for barrier in BarrierKind::all().into_iter().filter(|barrier| barrier.is_for(sharing, 3)) {
                    let policy = Policy::Adaptive;
                    let load = BarrierLoad { barrier, sharing, procs: 3, policy, between: 200 };
                    let samples = meet(&load, run).unwrap_or_else(|e| panic!("{load:?}: {e}"));
                    assert!(samples.values.iter().any(|(m, v)| *m == BARRIER_US && *v > 0.0), "{load:?}");
                }
            }
        });
    }
}
