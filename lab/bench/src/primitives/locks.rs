//! Locks under load, and readers–writer locks of which most acquisitions read.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use towpath::{Object, Shared, WorldConfig};
use towpath_machine::{Concurrent, Heap, Native};
use towpath_sync::locks::Compact;
use towpath_sync::{Lock, Policy, for_each_lock};

use super::ck::{self, CkKind, CkLock, CkRwLock};
use super::crew::LoadCrew;
use super::pthread::{PthreadKind, PthreadLock, PthreadRwLock};
use super::{MeasuredKind, NamedObject, replay, work, world_for};
use crate::experiment::Samples;
use crate::structures::Sharing;
use crate::structures::board::{Board, BoardMember};
use crate::transport::Circumstances;
use towpath_host::Error;
use towpath_host::process::SharedRow;
use towpath_host::trace::LockReplay;
use towpath_report::record::metrics::ACQUISITIONS_PER_S;

/// Name of the façade's mutex, with its default lock and policy.
pub const MUTEX: &str = "mutex";

/// Name of the compact lock, which `towpath preload` has by default.
pub const COMPACT: &str = <Compact<Native> as Lock<Native>>::NAME;
/// Name of the one that hands over with each release.
const HANDING: &str = <Compact<Native, 0> as Lock<Native>>::NAME;

/// Lock to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockKind {
    /// `towpath::Mutex`.
    Mutex,
    /// A lock of ours, by its name.
    Ours(&'static str),
    /// A lock of libc's.
    Pthread(PthreadKind),
    /// `std::sync::Mutex`.
    Std,
    /// parking_lot's mutex.
    ParkingLot,
    /// parking_lot's fair mutex.
    Fair,
    /// `towpath::RwLock`, by name between processes.
    RwLock,
    /// `pthread_rwlock_t`.
    PthreadRwLock,
    /// `std::sync::RwLock`.
    StdRwLock,
    /// parking_lot's readers–writer lock.
    ParkingLotRwLock,
    /// A lock of Concurrency Kit's.
    Ck(CkKind),
    /// Concurrency Kit's readers–writer lock.
    CkRwLock,
}

impl LockKind {
    /// Readers–writer locks, in the order in which tables show them.
    pub const READERS_WRITER: [LockKind; 5] = [
        LockKind::RwLock,
        LockKind::PthreadRwLock,
        LockKind::StdRwLock,
        LockKind::ParkingLotRwLock,
        LockKind::CkRwLock,
    ];

    /// All locks of one holder, in the order in which tables show them.
    pub fn all() -> Vec<LockKind> {
        fn names<L: Lock<Native>>(all: &mut Vec<LockKind>) {
            all.push(LockKind::Ours(L::NAME));
        }
        let mut all = vec![LockKind::Mutex];
        for_each_lock!([atomics] Native, 64 => names(&mut all));
        all.extend([COMPACT, HANDING].map(LockKind::Ours));
        let pthread = [PthreadKind::Plain, PthreadKind::Adaptive, PthreadKind::Robust, PthreadKind::Spin];
        all.extend(pthread.map(LockKind::Pthread));
        all.extend([LockKind::Std, LockKind::ParkingLot, LockKind::Fair]);
        all.extend([CkKind::Spin, CkKind::Ticket].map(LockKind::Ck));
        all
    }
}

impl MeasuredKind for LockKind {
    fn name(self) -> &'static str {
        match self {
            LockKind::Mutex => MUTEX,
            LockKind::Ours(name) => name,
            LockKind::RwLock => "rw-lock",
            LockKind::Pthread(PthreadKind::Plain) | LockKind::PthreadRwLock => "pthread",
            LockKind::Pthread(PthreadKind::Adaptive) => "pthread-adaptive",
            LockKind::Pthread(PthreadKind::Robust) => "pthread-robust",
            LockKind::Pthread(PthreadKind::Spin) => "pthread-spin",
            LockKind::Std | LockKind::StdRwLock => "std",
            LockKind::ParkingLot | LockKind::ParkingLotRwLock => "parking-lot",
            LockKind::Fair => "parking-lot-fair",
            LockKind::Ck(CkKind::Spin) => "ck-spinlock",
            LockKind::Ck(CkKind::Ticket) => "ck-ticket",
            LockKind::CkRwLock => "ck-rwlock",
        }
    }

    fn has_policy(self) -> bool {
        matches!(self, LockKind::Ours(_))
    }

    fn is_for(self, sharing: Sharing, _: u32) -> bool {
        match self {
            LockKind::Std
            | LockKind::ParkingLot
            | LockKind::Fair
            | LockKind::StdRwLock
            | LockKind::ParkingLotRwLock
            | LockKind::Ours(COMPACT | HANDING) => matches!(sharing, Sharing::Threads),
            LockKind::Ck(_) | LockKind::CkRwLock => ck::is_installed(),
            _ => true,
        }
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LockLoad<'a> {
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
    /// Steps of a traced program's threads, one for each participant, instead of these.
    pub replay: Option<&'a LockReplay>,
}

impl LockLoad<'_> {
    /// Locks of the load: one, or those of the replay.
    fn locks<L>(&self, make: impl Fn() -> Result<L, Error>) -> Result<Vec<L>, Error> {
        (0..self.replay.map_or(1, |replay| replay.locks)).map(|_| make()).collect()
    }
}

/// Lock as a participant uses it.
pub(super) trait HeldLock: Sync {
    /// The lock as a participant has it at hand.
    fn at_hand(&self) -> Result<&impl HeldLock, String>
    where
        Self: Sized,
    {
        Ok(self)
    }

    /// Acquires, calls `inside`, releases.
    ///
    /// A readers–writer lock is acquired for reading, if `is_reader`. `inside` is told whether no
    /// other participant holds the lock.
    fn hold(
        &self,
        member: &BoardMember<'_>,
        is_reader: bool,
        inside: impl FnOnce(bool),
    ) -> Result<(), String>;
}

struct Raw<'a, L>(&'a L);

impl<L: Lock<Native> + Sync> HeldLock for Raw<'_, L> {
    #[inline]
    fn hold(&self, member: &BoardMember<'_>, _: bool, inside: impl FnOnce(bool)) -> Result<(), String> {
        let held = self.0.lock(&member.cpu, &member.wait).map_err(|e| e.to_string())?;
        inside(true);
        self.0.unlock(&member.cpu, &member.wait, held);
        Ok(())
    }
}

impl HeldLock for PthreadLock {
    #[inline]
    fn hold(&self, _: &BoardMember<'_>, _: bool, inside: impl FnOnce(bool)) -> Result<(), String> {
        PthreadLock::hold(self, || inside(true))
    }
}

impl HeldLock for PthreadRwLock {
    #[inline]
    fn hold(&self, _: &BoardMember<'_>, is_reader: bool, inside: impl FnOnce(bool)) -> Result<(), String> {
        PthreadRwLock::hold(self, is_reader, || inside(!is_reader))
    }
}

impl HeldLock for CkLock {
    #[inline]
    fn hold(&self, _: &BoardMember<'_>, _: bool, inside: impl FnOnce(bool)) -> Result<(), String> {
        CkLock::hold(self, || inside(true));
        Ok(())
    }
}

impl HeldLock for CkRwLock {
    #[inline]
    fn hold(&self, _: &BoardMember<'_>, is_reader: bool, inside: impl FnOnce(bool)) -> Result<(), String> {
        CkRwLock::hold(self, is_reader, || inside(!is_reader));
        Ok(())
    }
}

macro_rules! guarded {
    ($mutex:ty, |$it:ident| $guard:expr) => {
        impl HeldLock for $mutex {
            #[inline]
            fn hold(&self, _: &BoardMember<'_>, _: bool, inside: impl FnOnce(bool)) -> Result<(), String> {
                let $it = self;
                let guard = $guard;
                inside(true);
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
guarded!(Shared<towpath::Mutex<u64>>, |it| it.lock().map_err(|e| e.to_string())?);

macro_rules! read_or_written {
    ($lock:ty, |$it:ident| $read:expr, $write:expr) => {
        impl HeldLock for $lock {
            #[inline]
            fn hold(
                &self,
                _: &BoardMember<'_>,
                is_reader: bool,
                inside: impl FnOnce(bool),
            ) -> Result<(), String> {
                let $it = self;
                if is_reader {
                    let guard = $read;
                    inside(false);
                    drop(guard);
                } else {
                    let guard = $write;
                    inside(true);
                    drop(guard);
                }
                Ok(())
            }
        }
    };
}

read_or_written!(
    towpath::RwLock<u64>,
    |it| it.read().map_err(|e| e.to_string())?,
    it.write().map_err(|e| e.to_string())?
);
read_or_written!(
    std::sync::RwLock<u64>,
    |it| it.read().map_err(|e| e.to_string())?,
    it.write().map_err(|e| e.to_string())?
);
read_or_written!(parking_lot::RwLock<u64>, |it| it.read(), it.write());
read_or_written!(
    Shared<towpath::RwLock<u64>>,
    |it| it.read().map_err(|e| e.to_string())?,
    it.write().map_err(|e| e.to_string())?
);

impl<T: Object> HeldLock for NamedObject<'_, T>
where
    Shared<T>: HeldLock,
{
    fn at_hand(&self) -> Result<&impl HeldLock, String> {
        self.get()
    }

    fn hold(
        &self,
        member: &BoardMember<'_>,
        is_reader: bool,
        inside: impl FnOnce(bool),
    ) -> Result<(), String> {
        self.get()?.hold(member, is_reader, inside)
    }
}

/// Measures it: acquisitions of all in a second, their times, fairness, costs.
///
/// # Errors
///
/// Those of the system; a lock that did not exclude.
pub fn contend(load: &LockLoad<'_>, run: &Circumstances<'_>) -> Result<Samples, Error> {
    let is_shared = load.sharing == Sharing::Processes;
    match load.lock {
        LockKind::Ours(COMPACT) => of_threads::<Compact<Native>>(load, run),
        LockKind::Ours(HANDING) => of_threads::<Compact<Native, 0>>(load, run),
        LockKind::Ours(name) => {
            let mut result = None;
            for_each_lock!([atomics] Native, 64 => raw(name, load, run, &mut result));
            result.unwrap_or_else(|| Err(Error::NotAvailable(format!("there is no lock {name}"))))
        }
        LockKind::Pthread(kind) => measure(load, run, &load.locks(|| PthreadLock::new(kind, is_shared))?),
        LockKind::Mutex if is_shared => {
            let world = world_for(&WorldConfig::new(load.procs))?;
            measure(load, run, &[NamedObject::new(&world, |world| world.mutex("lock", 0u64))])
        }
        LockKind::Mutex => measure(load, run, &load.locks(|| Ok(towpath::Mutex::<u64>::new(0)))?),
        LockKind::Std => measure(load, run, &load.locks(|| Ok(std::sync::Mutex::new(0)))?),
        LockKind::ParkingLot => measure(load, run, &load.locks(|| Ok(parking_lot::Mutex::new(0)))?),
        LockKind::Fair => measure(load, run, &load.locks(|| Ok(parking_lot::FairMutex::new(0)))?),
        LockKind::RwLock if is_shared => {
            let world = world_for(&WorldConfig::new(load.procs))?;
            measure(load, run, &[NamedObject::new(&world, |world| world.rw_lock("lock", 0u64))])
        }
        LockKind::RwLock => measure(load, run, &load.locks(|| Ok(towpath::RwLock::<u64>::new(0)))?),
        LockKind::PthreadRwLock => measure(load, run, &load.locks(|| PthreadRwLock::new(is_shared))?),
        LockKind::StdRwLock => measure(load, run, &load.locks(|| Ok(std::sync::RwLock::new(0)))?),
        LockKind::ParkingLotRwLock => measure(load, run, &load.locks(|| Ok(parking_lot::RwLock::new(0)))?),
        LockKind::Ck(kind) => measure(load, run, &load.locks(|| CkLock::new(kind))?),
        LockKind::CkRwLock => measure(load, run, &load.locks(CkRwLock::new)?),
    }
}

/// Measures a lock of one process's threads.
fn of_threads<L: Lock<Native> + Sync>(
    load: &LockLoad<'_>,
    run: &Circumstances<'_>,
) -> Result<Samples, Error> {
    let locks = load.locks(|| Ok(L::new(&Heap)))?;
    measure(load, run, &locks.iter().map(Raw).collect::<Vec<_>>())
}

fn raw<L: Lock<Native> + Concurrent>(
    name: &str,
    load: &LockLoad<'_>,
    run: &Circumstances<'_>,
    result: &mut Option<Result<Samples, Error>>,
) {
    if L::NAME == name {
        let row = SharedRow::<L>::row(load.replay.map_or(1, |replay| replay.locks));
        *result = Some(row.and_then(|row| measure(load, run, &row.iter().map(Raw).collect::<Vec<_>>())));
    }
}

/// Acquisitions of a readers–writer lock of which one writes.
const WRITES: u64 = 20;
/// Acquisitions of which one is timed; alone, where the clock would be most of it.
pub(super) const TIMED: u64 = 4;
const TIMED_ALONE: u64 = 64;

fn measure(load: &LockLoad<'_>, run: &Circumstances<'_>, locks: &[impl HeldLock]) -> Result<Samples, Error> {
    if let Some(steps) = load.replay {
        return replay::measure(load, steps, run, locks);
    }
    let [lock] = locks else { return Err(Error::Other("one lock is measured".into())) };
    let memory = Board::memory()?;
    let board = Board::new(&memory)?;
    let procs = load.procs as usize;
    let crew = LoadCrew { sharing: load.sharing, procs, policy: load.policy, board };
    let timed = if procs == 1 { TIMED_ALONE } else { TIMED };
    let participate = |member: &BoardMember<'_>| {
        let (me, mut count, mut exclusive) = (member.me, 0u64, 0u64);
        let (lock, mut changed) = (lock.at_hand()?, false);
        // Looked up once: the loop is what is measured.
        let (end, done, protected) = (board.end(), board.done(me), board.token(0));
        let (timed, inside, between) = (timed, load.inside, load.between);
        // Relaxed, all: counts; the lock orders those that it protects, which is checked.
        while end.load(Relaxed) == 0 {
            let start = count.is_multiple_of(timed).then(Instant::now);
            let mut waited = Duration::ZERO;
            // Not all participants at one time.
            let is_reader = !(count + me as u64).is_multiple_of(WRITES);
            lock.hold(member, is_reader, |is_alone| {
                if let Some(start) = start {
                    waited = start.elapsed();
                }
                if is_alone {
                    exclusive += 1;
                    protected.store(protected.load(Relaxed) + 1, Relaxed);
                }
                let seen = protected.load(Relaxed);
                work(inside);
                // No participant writes meanwhile.
                changed |= protected.load(Relaxed) != seen;
            })?;
            if start.is_some() {
                board.note(me, waited.as_nanos() as u64);
            }
            count += 1;
            done.store(count, Relaxed);
            work(between);
        }
        board.thread(me).store(exclusive, Relaxed);
        if changed { Err("the lock did not exclude".to_owned()) } else { Ok(()) }
    };
    let counted = crew.count(run, &participate)?;
    crew.check_exclusion(1)?;
    Ok(crew.figures(&counted, ACQUISITIONS_PER_S, counted.rate()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::with_circumstances;

    #[test]
    fn every_lock_excludes_and_is_measured() {
        with_circumstances(Duration::from_millis(5), |run| {
            for sharing in Sharing::ALL {
                let locks = LockKind::all().into_iter().chain(LockKind::READERS_WRITER);
                for lock in locks.filter(|lock| lock.is_for(sharing, 3)) {
                    let policy = Policy::Adaptive;
                    let (procs, replay) = (3, None);
                    let load = LockLoad { lock, sharing, procs, policy, inside: 50, between: 200, replay };
                    let samples = contend(&load, run).unwrap_or_else(|e| panic!("{lock:?} {sharing:?}: {e}"));
                    let has_rate = samples.values.iter().any(|(m, v)| *m == ACQUISITIONS_PER_S && *v >= 0.0);
                    assert!(has_rate, "{lock:?}");
                }
            }
        });
    }
}
