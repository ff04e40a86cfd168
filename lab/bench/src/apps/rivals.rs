//! A user's alternatives as parts of a team of threads: parking_lot's and std's mutex,
//! std's barrier, crossbeam's queue.

use crossbeam_queue::SegQueue;
use parking_lot::Mutex;
use towpath_apps::native::{NativeBarrier, NativeLocks, NativeQueues};
use towpath_apps::{LockSet, MeetingPoint, Needs, PartKind, TaskQueues};
use towpath_machine::Native;

/// Rival of a kind of part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppRival {
    /// parking_lot's mutex.
    ParkingLot,
    /// The standard library's mutex.
    StdMutex,
    /// The standard library's barrier.
    StdBarrier,
    /// crossbeam's queue.
    Crossbeam,
}

impl AppRival {
    /// All of them.
    pub const ALL: [AppRival; 4] =
        [AppRival::ParkingLot, AppRival::StdMutex, AppRival::StdBarrier, AppRival::Crossbeam];

    /// Its name, as users call it.
    pub const fn name(self) -> &'static str {
        match self {
            AppRival::ParkingLot => "parking-lot",
            AppRival::StdMutex => "std-mutex",
            AppRival::StdBarrier => "std-barrier",
            AppRival::Crossbeam => "crossbeam",
        }
    }

    /// Kind of the part that it is.
    pub const fn kind(self) -> PartKind {
        match self {
            AppRival::ParkingLot | AppRival::StdMutex => PartKind::Lock,
            AppRival::StdBarrier => PartKind::Barrier,
            AppRival::Crossbeam => PartKind::Queue,
        }
    }
}

struct ParkingLocks(Vec<Mutex<()>>);

impl LockSet<Native> for ParkingLocks {
    fn hold(&self, _cpu: &Native, k: usize, section: &mut dyn FnMut()) {
        let _guard = self.0[k].lock();
        section();
    }
}

struct StdLocks(Vec<std::sync::Mutex<()>>);

impl LockSet<Native> for StdLocks {
    fn hold(&self, _cpu: &Native, k: usize, section: &mut dyn FnMut()) {
        // Poison is a panic's, after which nothing is measured.
        let _guard = self.0[k].lock().unwrap_or_else(|e| e.into_inner());
        section();
    }
}

struct StdBarrier(std::sync::Barrier);

impl MeetingPoint<Native> for StdBarrier {
    fn meet(&self, _cpu: &Native, _me: usize) {
        self.0.wait();
    }
}

struct CrossbeamQueues(Vec<SegQueue<u64>>);

impl TaskQueues<Native> for CrossbeamQueues {
    fn put(&self, _cpu: &Native, _locks: &dyn LockSet<Native>, queue: usize, task: u64) {
        self.0[queue].push(task);
    }
    fn rest(&self, _cpu: &Native, round: u32) {
        // As crossbeam's Backoff: it spins a while, and then yields.
        if round < 6 {
            (0..1 << round).for_each(|_| std::hint::spin_loop());
        } else {
            std::thread::yield_now();
        }
    }
    fn take(&self, _cpu: &Native, _locks: &dyn LockSet<Native>, queue: usize) -> Option<u64> {
        self.0[queue].pop()
    }
}

/// Makes the locks of a rival that has some.
pub fn locks(rival: AppRival, count: usize) -> Option<NativeLocks<'static>> {
    match rival {
        AppRival::ParkingLot => Some(Box::new(ParkingLocks((0..count).map(|_| Mutex::new(())).collect()))),
        AppRival::StdMutex => {
            Some(Box::new(StdLocks((0..count).map(|_| std::sync::Mutex::new(())).collect())))
        }
        _ => None,
    }
}

/// Makes the barrier of a rival that has one.
pub fn barrier(rival: AppRival, procs: usize) -> Option<NativeBarrier<'static>> {
    let barrier = || -> NativeBarrier<'static> { Box::new(StdBarrier(std::sync::Barrier::new(procs))) };
    (rival == AppRival::StdBarrier).then(barrier)
}

/// Makes the queues of a rival that has some.
pub fn queues(rival: AppRival, needs: Needs) -> Option<NativeQueues<'static>> {
    let queues = || -> NativeQueues<'static> {
        Box::new(CrossbeamQueues((0..needs.queues).map(|_| SegQueue::new()).collect()))
    };
    (rival == AppRival::Crossbeam).then(queues)
}
