//! Locks under load.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use towpath::WorldConfig;
use towpath_machine::{Concurrent, Native};
use towpath_sync::{Lock, Policy, for_each_lock};

use super::crew::LoadCrew;
use super::pthread::{PthreadKind, PthreadLock};
use super::{MeasuredKind, NamedObject, work, world_for};
use crate::experiment::Samples;
use crate::structures::Sharing;
use crate::structures::board::{Board, BoardMember};
use crate::transport::Circumstances;
use towpath_host::Error;
use towpath_host::process::SharedRow;
use towpath_report::record::metrics::ACQUISITIONS_PER_S;

/// Name of the façade's mutex, with its default lock and policy.
pub const MUTEX: &str = "mutex";

/// Lock to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockKind {
    /// `towpath::Mutex`.
    Mutex,
    /// One of ours, by its name.
    Ours(&'static str),
    /// One of libc's.
    Pthread(PthreadKind),
    /// `std::sync::Mutex`.
    Std,
    /// parking_lot's mutex.
    ParkingLot,
    /// parking_lot's fair mutex.
    Fair,
}

impl LockKind {
    /// All of them, in the order in which tables show them.
    pub fn all() -> Vec<LockKind> {
        fn names<L: Lock<Native>>(all: &mut Vec<LockKind>) {
            all.push(LockKind::Ours(L::NAME));
        }
        let mut all = vec![LockKind::Mutex];
        for_each_lock!([atomics] Native, 64 => names(&mut all));
        let pthread = [PthreadKind::Plain, PthreadKind::Adaptive, PthreadKind::Robust, PthreadKind::Spin];
        all.extend(pthread.map(LockKind::Pthread));
        all.extend([LockKind::Std, LockKind::ParkingLot, LockKind::Fair]);
        all
    }
}

impl MeasuredKind for LockKind {
    fn name(self) -> &'static str {
        match self {
            LockKind::Mutex => MUTEX,
            LockKind::Ours(name) => name,
            LockKind::Pthread(PthreadKind::Plain) => "pthread",
            LockKind::Pthread(PthreadKind::Adaptive) => "pthread-adaptive",
            LockKind::Pthread(PthreadKind::Robust) => "pthread-robust",
            LockKind::Pthread(PthreadKind::Spin) => "pthread-spin",
            LockKind::Std => "std",
            LockKind::ParkingLot => "parking-lot",
            LockKind::Fair => "parking-lot-fair",
        }
    }

    fn has_policy(self) -> bool {
        matches!(self, LockKind::Ours(_))
    }

    fn is_for(self, sharing: Sharing) -> bool {
        match self {
            LockKind::Std | LockKind::ParkingLot | LockKind::Fair => matches!(sharing, Sharing::Threads),
            _ => true,
        }
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LockLoad {
    /// The lock.
    pub lock: LockKind,
    /// The participants' kind.
    pub sharing: Sharing,
    /// Their number.
    pub procs: u32,
    /// Waiting policy.
    pub policy: Policy,
    /// Nanoseconds of work in a critical section.
    pub inside: u64,
    /// Nanoseconds of work between two.
    pub between: u64,
}

/// Lock as a participant uses it.
trait HeldLock: Sync {
    fn hold(&self, member: &BoardMember<'_>, inside: impl FnOnce()) -> Result<(), String>;
}

struct Raw<'a, L>(&'a L);

impl<L: Lock<Native> + Sync> HeldLock for Raw<'_, L> {
    #[inline]
    fn hold(&self, member: &BoardMember<'_>, inside: impl FnOnce()) -> Result<(), String> {
        let held = self.0.lock(&member.cpu, &member.wait).map_err(|e| e.to_string())?;
        inside();
        self.0.unlock(&member.cpu, &member.wait, held);
        Ok(())
    }
}

impl HeldLock for PthreadLock {
    #[inline]
    fn hold(&self, _: &BoardMember<'_>, inside: impl FnOnce()) -> Result<(), String> {
        PthreadLock::hold(self, inside)
    }
}

macro_rules! guarded {
    ($mutex:ty, |$it:ident| $guard:expr) => {
        impl HeldLock for $mutex {
            #[inline]
            fn hold(&self, _: &BoardMember<'_>, inside: impl FnOnce()) -> Result<(), String> {
                let $it = self;
                let guard = $guard;
                inside();
                drop(guard);
                Ok(())
            }
        }
    };
}

guarded!(towpath::Mutex<u64>, |it| it.lock().map_err(|e| e.to_string())?);
guarded!(std::sync::Mutex<u64>, |it| it.lock().map_err(|e| e.to_string())?);
guarded!(parking_lot::Mutex<u64>, |it| it.lock());
guarded!(parking_lot::FairMutex<u64>, |it| it.lock());
guarded!(NamedObject<'_, towpath::Mutex<u64>>, |it| it.get()?.lock().map_err(|e| e.to_string())?);

/// Measures it: acquisitions of all in a second, their times, fairness, costs.
///
/// # Errors
///
/// Those of the system; a lock that did not exclude.
pub fn contend(load: &LockLoad, run: &Circumstances<'_>) -> Result<Samples, Error> {
    let is_shared = load.sharing == Sharing::Processes;
    match load.lock {
        LockKind::Ours(name) => {
            let mut result = None;
            for_each_lock!([atomics] Native, 64 => raw(name, load, run, &mut result));
            result.unwrap_or_else(|| Err(Error::NotAvailable(format!("there is no lock {name}"))))
        }
        LockKind::Pthread(kind) => measure(load, run, &PthreadLock::new(kind, is_shared)?),
        LockKind::Mutex if is_shared => {
            let world = world_for(&WorldConfig::new(load.procs))?;
            measure(load, run, &NamedObject::new(&world, |world| world.mutex("lock", 0u64)))
        }
        LockKind::Mutex => measure(load, run, &towpath::Mutex::<u64>::new(0)),
        LockKind::Std => measure(load, run, &std::sync::Mutex::new(0)),
        LockKind::ParkingLot => measure(load, run, &parking_lot::Mutex::new(0)),
        LockKind::Fair => measure(load, run, &parking_lot::FairMutex::new(0)),
    }
}

fn raw<L: Lock<Native> + Concurrent>(
    name: &str,
    load: &LockLoad,
    run: &Circumstances<'_>,
    result: &mut Option<Result<Samples, Error>>,
) {
    if L::NAME == name {
        let row = SharedRow::<L>::row(1);
        *result = Some(row.and_then(|row| measure(load, run, &Raw(&row[0]))));
    }
}

/// Acquisitions of which one is timed; alone, where the clock would be most of it.
const TIMED: u64 = 4;
const TIMED_ALONE: u64 = 64;

fn measure(load: &LockLoad, run: &Circumstances<'_>, lock: &impl HeldLock) -> Result<Samples, Error> {
    let memory = Board::memory()?;
    let board = Board::new(&memory)?;
    let procs = load.procs as usize;
    let crew = LoadCrew { sharing: load.sharing, procs, policy: load.policy, board };
    let timed = if procs == 1 { TIMED_ALONE } else { TIMED };
    let participate = |member: &BoardMember<'_>| {
        let (me, mut count) = (member.me, 0u64);
        // Relaxed, all: counts; the lock orders those that it protects, which is checked.
        while board.end().load(Relaxed) == 0 {
            let start = count.is_multiple_of(timed).then(Instant::now);
            let mut waited = Duration::ZERO;
            lock.hold(member, || {
                if let Some(start) = start {
                    waited = start.elapsed();
                }
                let protected = board.token(0);
                protected.store(protected.load(Relaxed) + 1, Relaxed);
                work(load.inside);
            })?;
            if start.is_some() {
                board.note(me, waited.as_nanos() as u64);
            }
            count += 1;
            board.done(me).store(count, Relaxed);
            work(load.between);
        }
        Ok(())
    };
    let counted = crew.count(run, participate)?;
    let all: u64 = (0..procs).map(|me| board.done(me).load(Relaxed)).sum();
    if board.token(0).load(Relaxed) != all {
        return Err(Error::Other("the lock did not exclude".into()));
    }
    Ok(crew.figures(&counted, ACQUISITIONS_PER_S, counted.rate()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::with_circumstances;

    #[test]
    fn every_lock_excludes_and_is_measured() {
        with_circumstances(Duration::from_millis(5), |run| {
            for sharing in [Sharing::Threads, Sharing::Processes] {
                for lock in LockKind::all().into_iter().filter(|lock| lock.is_for(sharing)) {
                    let policy = Policy::Adaptive;
                    let load = LockLoad { lock, sharing, procs: 3, policy, inside: 50, between: 200 };
                    let samples = contend(&load, run).unwrap_or_else(|e| panic!("{lock:?} {sharing:?}: {e}"));
                    let has_rate = samples.values.iter().any(|(m, v)| *m == ACQUISITIONS_PER_S && *v >= 0.0);
                    assert!(has_rate, "{lock:?}");
                }
            }
        });
    }
}
