//! Accounts of an application's time, in the classes of paper K, and of its locks.
//!
//! `U-instr` and `U-lclmem` are one class here: computation. The time of a node's kernel, by
//! system calls and interrupts, belongs to `Kern` whatever the thread did meanwhile. The rest of a
//! thread's time, which is in no other class, is that of accesses to shared data (`U-shmem`).

use std::cell::Cell;
use std::rc::Rc;

use towpath_apps::{LockSet, MeetingPoint};
use towpath_report::record::{Metric, metrics};
use towpath_sim::{Outcome, Sim};

use crate::sim::mplocks::LockTable;
use crate::sim::{Run, cycle_of};

/// Times of all threads together within locks and barriers, in picoseconds, less the
/// kernels'.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    locks: Cell<u64>,
    barriers: Cell<u64>,
}

/// Does something, and adds its time, less the kernel's.
fn timed<R>(account: &Cell<u64>, cpu: &Sim, act: impl FnOnce() -> R) -> R {
    let (start, kernel) = (cpu.clock(), cpu.kernel_time());
    let result = act();
    let kernel = cpu.kernel_time() - kernel;
    account.set(account.get() + (cpu.clock() - start).saturating_sub(kernel));
    result
}

/// Paper K's locks, as an application calls them.
pub(super) struct TimedLocks {
    pub table: Rc<LockTable>,
    pub accounts: Rc<Accounts>,
}

impl LockSet<Sim> for TimedLocks {
    fn hold(&self, cpu: &Sim, k: usize, section: &mut dyn FnMut()) {
        timed(&self.accounts.locks, cpu, || self.table.acquire(cpu, k));
        section();
        timed(&self.accounts.locks, cpu, || self.table.release(cpu, k));
    }
}

/// Barrier whose time is noted.
pub(super) struct TimedBarrier {
    pub barrier: Box<dyn MeetingPoint<Sim>>,
    pub accounts: Rc<Accounts>,
}

impl MeetingPoint<Sim> for TimedBarrier {
    fn meet(&self, cpu: &Sim, me: usize) {
        timed(&self.accounts.barriers, cpu, || self.barrier.meet(cpu, me));
    }
}

/// Notes of a run under paper K's locks.
pub struct LockNotes {
    pub(super) table: Rc<LockTable>,
    pub(super) accounts: Rc<Accounts>,
}

impl LockNotes {
    /// Returns the figures of the run: of the whole, or for each acquisition.
    pub fn figures(&self, run: &Run, outcome: &Outcome) -> Vec<(Metric, f64)> {
        let (mix, inside) = (self.table.mix(), self.table.forwards_inside());
        let all = (mix.local_idle + mix.remote_idle + mix.busy).max(1) as f64;
        let part = |n: u64| n as f64 / all;
        let ns = |time: u64| time as f64 / 1e3;
        let (counters, threads) = (&outcome.counters, run.procs as u64);
        let [locks, barriers] = [self.accounts.locks.get(), self.accounts.barriers.get()];
        let others = counters.computed + counters.kernel_time + locks + barriers;
        vec![
            (metrics::COMPLETION_CYCLES, outcome.time as f64 / cycle_of(&run.machine) as f64),
            (metrics::ACQUISITIONS, all),
            (metrics::LOCAL_IDLE, part(mix.local_idle)),
            (metrics::REMOTE_IDLE, part(mix.remote_idle)),
            (metrics::REMOTE_BUSY, part(mix.busy)),
            (metrics::INTERRUPTS_INSIDE, part(inside.any)),
            (metrics::HOLDERS_ASKED, part(inside.wanted)),
            (metrics::KERNEL_TIME, ns(counters.kernel_time)),
            (metrics::COMPUTING_TIME, ns(counters.computed)),
            (metrics::SHARED_TIME, ns((outcome.time * threads).saturating_sub(others))),
            (metrics::BARRIER_TIME, ns(barriers)),
            (metrics::LOCK_TIME, ns(locks)),
        ]
    }
}
