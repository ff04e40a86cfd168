//! Team of processors that solve a problem together: its locks, its barrier, its
//! queues of tasks.
//!
//! An application calls them through trait objects, so that it is compiled once for each machine
//! and not once for each lock. A call costs two nanoseconds more than a direct one; the rivals of a
//! comparison are called in the same way.

use towpath_machine::{Arena, Ordering, Place, Processor};
use towpath_sync::Waiting;

/// Locks of an application, by number.
pub trait LockSet<P: Processor> {
    /// Executes a critical section under lock `k`.
    ///
    /// # Panics
    ///
    /// If there is no such lock, or it can't be had any more.
    fn hold(&self, cpu: &P, k: usize, section: &mut dyn FnMut());
}

/// Barrier of an application.
pub trait MeetingPoint<P: Processor> {
    /// Arrives as processor `me` of the team and waits for the others.
    ///
    /// # Panics
    ///
    /// If the others can't come any more.
    fn meet(&self, cpu: &P, me: usize);
}

/// Queues of tasks of an application, by number. A task is a number.
pub trait TaskQueues<P: Processor> {
    /// Puts a task in. `locks` are the team's, of which a queue may use some.
    ///
    /// # Panics
    ///
    /// If the queue is full: it has room for as many tasks as the application said.
    fn put(&self, cpu: &P, locks: &dyn LockSet<P>, queue: usize, task: u64);

    /// Waits a little where there is no task: the `round`-th time in a row (from 0).
    fn rest(&self, cpu: &P, round: u32);

    /// Takes the task out that has waited longest, if there is one.
    fn take(&self, cpu: &P, locks: &dyn LockSet<P>, queue: usize) -> Option<u64>;
}

/// Locks and barrier of a processor that is alone: nothing to wait for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Solitary;

impl<P: Processor> LockSet<P> for Solitary {
    fn hold(&self, _cpu: &P, _k: usize, section: &mut dyn FnMut()) {
        section();
    }
}

impl<P: Processor> MeetingPoint<P> for Solitary {
    fn meet(&self, _cpu: &P, _me: usize) {}
}

/// Numbers of the things that an application wants of its team.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Number of locks.
    pub locks: usize,
    /// Number of queues of tasks.
    pub queues: usize,
    /// Number of tasks that each queue has room for.
    pub tasks: usize,
}

/// Pause of a processor without a task, in nanoseconds.
///
/// So often it looks whether all are without before it looks for a task: together a loop of 1,000
/// rounds, as in SPLASH-2's radiosity.
const PAUSE: u64 = 8_000;
const LOOKS: u32 = 4;

/// Team of processors.
pub struct Team<'a, P: Processor> {
    /// Number of processors.
    pub procs: usize,
    /// Its locks: the application's, and behind them those of the queues.
    pub locks: &'a dyn LockSet<P>,
    /// Its barrier.
    pub barrier: &'a dyn MeetingPoint<P>,
    /// Its queues of tasks.
    pub queues: &'a dyn TaskQueues<P>,
}

impl<P: Processor> core::fmt::Debug for Team<'_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Team").field("procs", &self.procs).finish_non_exhaustive()
    }
}

impl<P: Processor> Team<'_, P> {
    /// Executes a critical section under lock `k`.
    #[inline]
    pub fn hold(&self, cpu: &P, k: usize, mut section: impl FnMut()) {
        self.locks.hold(cpu, k, &mut section);
    }

    /// Waits until all processors of the team are here.
    #[inline]
    pub fn meet(&self, cpu: &P, me: usize) {
        self.barrier.meet(cpu, me);
    }

    /// Puts a task into a queue.
    #[inline]
    pub fn put(&self, cpu: &P, queue: usize, task: u64) {
        self.queues.put(cpu, self.locks, queue, task);
    }

    /// Takes a task out of a queue, or else out of the first one after it that has any.
    /// Returns it, and the queue that it came from.
    pub fn take_anywhere(&self, cpu: &P, mine: usize, queues: usize) -> Option<(usize, u64)> {
        (0..queues).map(|n| (mine + n) % queues).find_map(|queue| {
            let task = self.queues.take(cpu, self.locks, queue)?;
            Some((queue, task))
        })
    }

    /// Takes tasks from the own queue, or else from others', until all `tasks` of the
    /// team are `done`. `work` executes one.
    pub fn work_off(
        &self,
        cpu: &P,
        (mine, queues): (usize, usize),
        (done, tasks): (&P::Word, u64),
        mut work: impl FnMut(u64),
    ) {
        let mut round = 0;
        loop {
            match self.take_anywhere(cpu, mine, queues) {
                Some((_, task)) => {
                    work(task);
                    round = 0;
                    // (K1) AcqRel: the tasks' results are there for all that see the count; pairs
                    // with the Acquire (K2), and with itself.
                    cpu.fetch_add(done, 1, Ordering::AcqRel);
                }
                // (K2) Acquire: pairs with (K1) of each task.
                None if cpu.load(done, Ordering::Acquire) == tasks => return,
                None => {
                    self.queues.rest(cpu, round);
                    round += 1;
                }
            }
        }
    }

    /// Takes tasks from the own queue, or else from others', until no processor has one.
    ///
    /// Those without are counted in `idle`, under lock `lock`. Tasks may make tasks. A processor
    /// that leaves may leave another one at work, so that a barrier must follow.
    pub fn work_until_idle(
        &self,
        cpu: &P,
        (mine, queues): (usize, usize),
        (lock, idle): (usize, &P::Word),
        mut work: impl FnMut(u64),
    ) {
        // Relaxed, here and below: it changes under the lock; the barrier that follows orders the
        // tasks' results.
        let count = |change: fn(u64) -> u64| {
            cpu.store(idle, change(cpu.load(idle, Ordering::Relaxed)), Ordering::Relaxed)
        };
        let mut next = self.take_anywhere(cpu, mine, queues);
        loop {
            while let Some((_, task)) = next {
                work(task);
                next = self.take_anywhere(cpu, mine, queues);
            }
            self.hold(cpu, lock, || count(|idle| idle + 1));
            let mut round = 0;
            while next.is_none() {
                for _ in 0..LOOKS {
                    if cpu.load(idle, Ordering::Relaxed) == self.procs as u64 {
                        return;
                    }
                    self.queues.rest(cpu, round);
                    cpu.delay(PAUSE);
                    round += 1;
                }
                next = self.take_anywhere(cpu, mine, queues);
            }
            self.hold(cpu, lock, || count(|idle| idle - 1));
        }
    }

    /// Part of `count` things that is processor `me`'s, if all get the same, as nearly as
    /// can be.
    pub fn share(&self, count: usize, me: usize) -> core::ops::Range<usize> {
        count * me / self.procs..count * (me + 1) / self.procs
    }
}

/// Queues of tasks, each under a lock of the team: a ring, and the number of tasks in it.
///
/// A processor that looks for a task reads the number first, without the lock.
pub struct LockedTasks<P: Processor, W> {
    /// Number of the first queue's lock.
    first: usize,
    wait: W,
    queues: Vec<TaskRing<P>>,
}

/// Ring of tasks. `count`: written under the lock, read by all. The rest: under the lock.
struct TaskRing<P: Processor> {
    count: P::Word,
    head: P::Cell,
    tasks: Vec<P::Cell>,
}

impl<P: Processor, W> core::fmt::Debug for LockedTasks<P, W> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("LockedTasks").field("queues", &self.queues.len()).finish_non_exhaustive()
    }
}

impl<P: Processor, W: Waiting<P>> LockedTasks<P, W> {
    /// Makes the queues that an application needs, under the locks behind its own.
    pub fn new(arena: &dyn Arena<P>, needs: Needs, wait: W) -> Self {
        let ring = |_| TaskRing {
            count: arena.word(Place::NewLine, 0),
            head: arena.cell(Place::SameLine, 0),
            tasks: (0..needs.tasks.max(1)).map(|n| arena.cell(Place::in_row(n), 0)).collect(),
        };
        LockedTasks { first: needs.locks, wait, queues: (0..needs.queues).map(ring).collect() }
    }
}

impl<P: Processor, W: Waiting<P>> TaskQueues<P> for LockedTasks<P, W> {
    fn rest(&self, cpu: &P, round: u32) {
        // No processor of a team dies.
        let _ = self.wait.back_off(cpu, round);
    }

    fn put(&self, cpu: &P, locks: &dyn LockSet<P>, queue: usize, task: u64) {
        let ring = &self.queues[queue];
        locks.hold(cpu, self.first + queue, &mut || {
            // Relaxed, here and below: it changes under the lock only. A processor that looks
            // without the lock looks again under it.
            let count = cpu.load(&ring.count, Ordering::Relaxed);
            assert!(count < ring.tasks.len() as u64, "queue {queue} is full, with {count} tasks");
            let at = (cpu.read(&ring.head) + count) % ring.tasks.len() as u64;
            cpu.write(&ring.tasks[at as usize], task);
            cpu.store(&ring.count, count + 1, Ordering::Relaxed);
        });
    }

    fn take(&self, cpu: &P, locks: &dyn LockSet<P>, queue: usize) -> Option<u64> {
        let ring = &self.queues[queue];
        if cpu.load(&ring.count, Ordering::Relaxed) == 0 {
            return None;
        }
        let mut task = None;
        locks.hold(cpu, self.first + queue, &mut || {
            let count = cpu.load(&ring.count, Ordering::Relaxed);
            if count > 0 {
                let head = cpu.read(&ring.head);
                task = Some(cpu.read(&ring.tasks[head as usize]));
                cpu.write(&ring.head, (head + 1) % ring.tasks.len() as u64);
                cpu.store(&ring.count, count - 1, Ordering::Relaxed);
            }
        });
        task
    }
}
