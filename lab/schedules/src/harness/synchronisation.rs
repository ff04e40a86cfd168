//! Bodies for locks, barriers and counters.

use std::rc::Rc;

use super::no_order;
use crate::end::End;
use crate::fault::{Fault, LocatedFault};
use crate::history::{History, OrderedCalls, render};
use crate::linearizability::linearize;
use crate::machine::{DatumId, ExploredMemory};
use crate::plan::Plan;
use crate::processor::Explorer;
use crate::specifications::{Increment, IncrementCounter, leaves_too_early, overlap};
use crate::subject::SubjectRun;
use towpath_machine::{Arena, Place, Processor};

fn broken(text: String) -> LocatedFault {
    LocatedFault { fault: Fault::Broken, text }
}

/// A lock.
pub trait ExploredLock: 'static {
    /// State of a holder.
    type Held;
    /// Acquires; `None` if the lock cannot be had any more, because a thread died.
    fn acquire(&self, cpu: &Explorer) -> Option<Self::Held>;
    /// Acquires if no other thread has the lock or waits for it.
    fn attempt(&self, cpu: &Explorer) -> Option<Self::Held> {
        self.acquire(cpu)
    }
    /// Releases.
    fn release(&self, cpu: &Explorer, held: Self::Held);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HarnessStep {
    Acquire,
    Attempt,
    Release,
}

struct Exclusion<L> {
    lock: L,
    plan: Plan,
    /// Count that the lock protects, not atomic.
    count: DatumId,
    /// Expected count, kept by the host, for which only one thread runs at a time.
    expected: std::cell::Cell<u64>,
    calls: History<HarnessStep, bool>,
}

/// Makes threads that acquire a lock and release it; each third time they only try. No
/// two have it at a time, and the next holder sees the writes of the last one.
pub fn exclusion<L: ExploredLock>(plan: &Plan, memory: &ExploredMemory, lock: L) -> Rc<dyn SubjectRun> {
    let count = memory.cell(Place::NewLine, 0);
    Rc::new(Exclusion { lock, plan: *plan, count, expected: Default::default(), calls: History::default() })
}

impl<L: ExploredLock> SubjectRun for Exclusion<L> {
    fn thread(&self, cpu: &Explorer) {
        for n in 0..self.plan.ops {
            let mut held = None;
            let step = if n % 3 == 2 { HarnessStep::Attempt } else { HarnessStep::Acquire };
            self.calls.call(cpu, step, || {
                held = if step == HarnessStep::Attempt {
                    self.lock.attempt(cpu)
                } else {
                    self.lock.acquire(cpu)
                };
                held.is_some()
            });
            let held = match (held, step) {
                (Some(held), _) => held,
                (None, HarnessStep::Attempt) => continue,
                (None, _) => return,
            };
            self.expected.set(self.expected.get() + 1);
            // Before the release begins. Another holder of the lock races here, or is seen to
            // overlap.
            let value = cpu.read(&self.count);
            cpu.write(&self.count, value + 1);
            self.calls.call(cpu, HarnessStep::Release, || {
                self.lock.release(cpu, held);
                true
            });
        }
    }

    fn last(&self, cpu: &Explorer) {
        let Some(held) = self.lock.acquire(cpu) else { return };
        let value = cpu.read(&self.count);
        self.lock.release(cpu, held);
        let expected = self.expected.get();
        if cpu.memory().0.dead.load(towpath_machine::Ordering::Relaxed) == 0 {
            assert_eq!(
                value, expected,
                "so often was the lock acquired, but the holders have not seen each other"
            );
        }
    }

    fn judge(&self, end: &End) -> Result<(), LocatedFault> {
        judge_exclusion(&self.calls.calls(end), end)
    }
}

/// Judges a run of [`Exclusion`].
fn judge_exclusion(ordered: &OrderedCalls<HarnessStep, bool>, end: &End) -> Result<(), LocatedFault> {
    let calls = ordered.as_slice();
    let mut inside: Vec<(usize, u64, Option<u64>)> = Vec::new();
    for thread in 0..end.threads() {
        let mine: Vec<_> = calls.iter().filter(|c| c.thread == thread).collect();
        for (n, call) in mine.iter().enumerate() {
            if let (HarnessStep::Acquire | HarnessStep::Attempt, Some((had, true))) =
                (call.op, call.responded)
            {
                let released = mine.get(n + 1).map(|c| c.invoked);
                inside.push((thread, had, released.or(end.died(thread))));
            }
        }
    }
    match overlap(&inside) {
        None => Ok(()),
        Some((a, b)) => Err(broken(format!(
            "threads {} and {} have the lock at the same time\n{}",
            inside[a].0,
            inside[b].0,
            render(calls)
        ))),
    }
}

/// A barrier.
pub trait ExploredBarrier: 'static {
    /// Comes, and waits until all have come.
    fn arrive(&self, cpu: &Explorer);
}

struct Episodes {
    barrier: Box<dyn ExploredBarrier>,
    plan: Plan,
    /// Each thread's own datum, which its neighbour reads after the barrier.
    data: Vec<DatumId>,
    calls: History<u64, ()>,
}

/// Makes threads that come to a barrier again and again. None leaves before all have
/// come, and after it each sees the others' earlier writes.
pub fn episodes(plan: &Plan, memory: &ExploredMemory, barrier: impl ExploredBarrier) -> Rc<dyn SubjectRun> {
    let data = (0..2 * plan.threads).map(|_| memory.cell(Place::NewLine, 0)).collect();
    Rc::new(Episodes { barrier: Box::new(barrier), plan: *plan, data, calls: History::default() })
}

impl SubjectRun for Episodes {
    fn thread(&self, cpu: &Explorer) {
        let (me, threads) = (cpu.id(), self.plan.threads);
        for episode in 1..=self.plan.ops as u64 {
            // Of two data in turns: one is read while the other may be written already.
            let half = (episode % 2) as usize * threads;
            cpu.write(&self.data[half + me], episode);
            self.calls.call(cpu, episode, || self.barrier.arrive(cpu));
            let seen = cpu.read(&self.data[half + (me + 1) % threads]);
            assert_eq!(seen, episode, "what the neighbour wrote before the barrier");
        }
    }

    fn judge(&self, end: &End) -> Result<(), LocatedFault> {
        let ordered = self.calls.calls(end);
        let calls = ordered.as_slice();
        match leaves_too_early(calls, end.threads()) {
            None => Ok(()),
            Some((at, missing)) => Err(broken(format!(
                "thread {} leaves episode {} of the barrier, and thread {missing} has not come\n{}",
                calls[at].thread,
                calls[at].op,
                render(calls)
            ))),
        }
    }
}

struct Counting {
    increment: Box<dyn Fn(&Explorer) -> u64>,
    plan: Plan,
    calls: History<Increment, u64>,
}

/// Makes threads that add one to a counter. The results must be linearizable.
pub fn counting(plan: &Plan, increment: impl Fn(&Explorer) -> u64 + 'static) -> Rc<dyn SubjectRun> {
    Rc::new(Counting { increment: Box::new(increment), plan: *plan, calls: History::default() })
}

impl SubjectRun for Counting {
    fn thread(&self, cpu: &Explorer) {
        for _ in 0..self.plan.ops {
            self.calls.call(cpu, Increment, || (self.increment)(cpu));
        }
    }
    fn last(&self, cpu: &Explorer) {
        self.calls.call(cpu, Increment, || (self.increment)(cpu));
    }
    fn judge(&self, end: &End) -> Result<(), LocatedFault> {
        let calls = self.calls.calls(end);
        linearize(&IncrementCounter, &calls).map(drop).map_err(no_order)
    }
}
