//! Parts of a team by name: Towpath's locks, barriers and queues behind the traits that
//! applications call.

use towpath_machine::{Arena, Event, Place, Processor};
use towpath_structures::queues::{ConcurrentQueue, QueueError};
use towpath_sync::{Barrier, Lock, Waiting};

use crate::team::{LockSet, LockedTasks, MeetingPoint, Needs, TaskQueues};

/// Arena behind a reference to a trait object.
struct Behind<'a, P: Processor>(&'a dyn Arena<P>);

impl<P: Processor> Arena<P> for Behind<'_, P> {
    fn word(&self, place: Place, value: u64) -> P::Word {
        self.0.word(place, value)
    }
    fn cell(&self, place: Place, value: u64) -> P::Cell {
        self.0.cell(place, value)
    }
    fn bytes(&self, len: usize) -> P::Bytes {
        self.0.bytes(len)
    }
}

/// Locks of one kind, and the way to wait for them.
struct ManyLocks<L, W> {
    locks: Vec<L>,
    wait: W,
}

impl<P: Processor, L: Lock<P>, W: Waiting<P>> LockSet<P> for ManyLocks<L, W> {
    fn hold(&self, cpu: &P, k: usize, section: &mut dyn FnMut()) {
        let lock = &self.locks[k];
        cpu.note(Event::Acquiring(k as u64));
        let held = match lock.lock(cpu, &self.wait) {
            Ok(held) => held,
            Err(error) => panic!("lock {k}: {error}"),
        };
        cpu.note(Event::Acquired(k as u64));
        section();
        lock.unlock(cpu, &self.wait, held);
        cpu.note(Event::Released(k as u64));
    }
}

/// Makes so many locks of one kind.
pub fn lock_row<P, L, W>(
    arena: &dyn Arena<P>,
    count: usize,
    wait: W,
) -> impl LockSet<P> + Send + Sync + use<P, L, W>
where
    P: Processor,
    L: Lock<P> + Send + Sync,
    W: Waiting<P> + Send + Sync,
{
    ManyLocks { locks: (0..count).map(|_| L::new(&Behind(arena))).collect::<Vec<L>>(), wait }
}

/// Barrier, and the way to wait at it.
struct OneBarrier<B, W> {
    barrier: B,
    wait: W,
}

impl<P: Processor, B: Barrier<P>, W: Waiting<P> + Clone> MeetingPoint<P> for OneBarrier<B, W> {
    fn meet(&self, cpu: &P, me: usize) {
        if let Err(error) = self.barrier.wait(cpu, me, &self.wait) {
            panic!("the barrier: {error}");
        }
    }
}

/// Makes a barrier of one kind for so many processors.
pub fn one_barrier<P, B, W>(
    arena: &dyn Arena<P>,
    procs: usize,
    wait: W,
) -> impl MeetingPoint<P> + Send + Sync + use<P, B, W>
where
    P: Processor,
    B: Barrier<P> + Send + Sync,
    W: Waiting<P> + Clone + Send + Sync,
{
    OneBarrier { barrier: B::new(&Behind(arena), procs), wait }
}

/// Queues of one kind that need none of the team's locks.
struct ManyQueues<Q, W> {
    queues: Vec<Q>,
    wait: W,
}

impl<P: Processor, Q: ConcurrentQueue<P>, W: Waiting<P>> TaskQueues<P> for ManyQueues<Q, W> {
    fn rest(&self, cpu: &P, round: u32) {
        // No processor of a team dies.
        let _ = self.wait.back_off(cpu, round);
    }
    fn put(&self, cpu: &P, _locks: &dyn LockSet<P>, queue: usize, task: u64) {
        let mut round = 0;
        // Participants may hold on to nodes for a while (Valois).
        while let Err(error) = self.queues[queue].enqueue(cpu, &self.wait, cpu.id(), task) {
            assert!(error == QueueError::Full && round < 1_000_000, "queue {queue}: {error}");
            let _ = self.wait.back_off(cpu, round);
            round += 1;
        }
    }

    fn take(&self, cpu: &P, _locks: &dyn LockSet<P>, queue: usize) -> Option<u64> {
        match self.queues[queue].dequeue(cpu, &self.wait, cpu.id()) {
            Ok(task) => task,
            Err(error) => panic!("queue {queue}: {error}"),
        }
    }
}

/// Makes the queues of one kind that an application needs.
pub fn queue_row<P, Q, W>(
    arena: &dyn Arena<P>,
    needs: Needs,
    procs: usize,
    wait: W,
) -> impl TaskQueues<P> + Send + Sync + use<P, Q, W>
where
    P: Processor,
    Q: ConcurrentQueue<P>,
    W: Waiting<P> + Send + Sync,
{
    let queue = |_| Q::new(&Behind(arena), needs.tasks.max(1) + 2 * procs, procs);
    ManyQueues { queues: (0..needs.queues).map(queue).collect::<Vec<Q>>(), wait }
}

/// Parts of a team that an application needs.
pub struct Parts<'a, P: Processor> {
    /// Its locks.
    pub locks: Box<dyn LockSet<P> + Send + Sync + 'a>,
    /// Its barrier.
    pub barrier: Box<dyn MeetingPoint<P> + Send + Sync + 'a>,
    /// Its queues.
    pub queues: Box<dyn TaskQueues<P> + Send + Sync + 'a>,
}

impl<P: Processor> core::fmt::Debug for Parts<'_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

/// Number of locks that a team has if its queues are under locks.
pub const fn all_locks(needs: Needs) -> usize {
    needs.locks + needs.queues
}

/// Makes queues under the team's locks.
pub fn locked_queues<'a, P: Processor>(
    arena: &dyn Arena<P>,
    needs: Needs,
    wait: impl Waiting<P> + Send + Sync + 'a,
) -> Box<dyn TaskQueues<P> + Send + Sync + 'a> {
    Box::new(LockedTasks::new(arena, needs, wait))
}
