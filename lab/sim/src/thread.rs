//! Processors and threads: their state, as the engine keeps it.

use std::collections::VecDeque;

use crate::event_queue::{FOREVER, Time};
use crate::request::{NONE, Op, Request, Want};
use crate::task::{Double, Task};

#[derive(Debug)]
pub(crate) struct Cpu {
    pub request: Request,
    /// Requester of an intervention that waits until the request is complete.
    pub deferred: Option<u16>,
    /// The line of the last load-linked.
    pub reservation: u32,
    /// Line of a second load-linked, which is reserved no longer than the first.
    pub second: u32,
    /// Stores that its threads have gone on without: words and values, the oldest first.
    pub stores: VecDeque<(u32, u64)>,
    /// The line that its thread spins on.
    pub spinning: u32,
    pub current: Option<usize>,
    pub queue: VecDeque<usize>,
    /// Number of the present time slice: ends of earlier slices don't count.
    pub slice: u32,
    /// The time slice ended in the middle of an access.
    pub preempt: bool,
    /// Changes of memory that the system has yet to make, since the last thread was
    /// switched out.
    pub chores: VecDeque<(u32, Op)>,
    /// True if the system is at work, and will choose the next thread itself.
    pub in_system: bool,
    /// The time slice has ended, but the thread had asked to stay.
    pub overdue: bool,
    /// Time until which it is busy with letting go of its last thread.
    pub free: Time,
    /// Threads that live here and have not ended.
    pub threads: usize,
    /// The lines of each set, if the cache is finite: a number and one, or 0 for none.
    pub sets: Vec<u32>,
    pub next_way: Vec<u8>,
}

/// State of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Running: the host's thread is in its coroutine.
    Running,
    /// Computing until its clock.
    Until,
    /// Waiting for its request.
    Memory,
    /// Spinning until the line changes.
    Spinning,
    /// Sleeping until a wake of this word.
    Parked(u32),
    /// Able to run, while another thread has the processor.
    Queued,
    /// Waiting for the system to add it to its count of active threads.
    Counted,
    /// Ended.
    Done,
}

/// Permission of a thread at the instant at which it goes on, whatever else is due at
/// that instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permit {
    Nothing,
    /// The thread's turn: an access that its cache allows, or a request.
    Turn,
    /// The access that it asked for.
    Granted,
}

/// The system's knowledge of the holder of a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CriticalSection {
    pub lock: u32,
    /// A word, and its old value.
    pub tentative: Option<(u32, u64)>,
}

#[derive(Debug)]
pub(crate) struct Thread {
    pub cpu: usize,
    /// Number by which algorithms know it.
    pub id: usize,
    /// Number of its program (gang scheduling).
    pub job: usize,
    pub clock: Time,
    pub doing: Doing,
    /// Events for older generations don't count.
    pub generation: u32,
    /// Permission by the event that let it go on, for now.
    pub permit: Permit,
    /// Computation left over when it lost its processor.
    pub left: Time,
    /// Interrupts have come while it waited for its access, and take this from it when
    /// that is done.
    pub stolen: Time,
    /// Operation that it has begun.
    pub task: Task,
    /// Its double compare-and-swap.
    pub double: Double,
    /// The count of active threads that it is in.
    pub counted: Option<u32>,
    /// Section between taking a lock that the system knows, and freeing it.
    pub section: Option<CriticalSection>,
    /// Result of its operation at memory.
    pub result: u64,
    /// Its store-conditional failed at home.
    pub failed: bool,
    /// Time until which it spins or sleeps at most.
    pub deadline: Time,
    /// Time of its next [`EventKind::Timer`]; `Time::MAX` if none is under way.
    pub timer: Time,
    /// Accesses since the machine's last progress.
    pub looks: Looks,
    /// True if it has asked not to be preempted.
    pub stays: bool,
    /// Another one has asked that.
    pub kept: bool,
}

impl Cpu {
    pub fn new(sets: usize, ways: usize) -> Self {
        Cpu {
            request: Request { active: false, ..Request::new(Want::Read, Op::Load, 0, 0) },
            deferred: None,
            reservation: NONE,
            second: NONE,
            stores: VecDeque::new(),
            spinning: NONE,
            current: None,
            queue: VecDeque::new(),
            slice: 0,
            preempt: false,
            chores: VecDeque::new(),
            in_system: false,
            overdue: false,
            free: 0,
            threads: 0,
            sets: vec![0; sets * ways],
            next_way: vec![0; sets],
        }
    }
}

impl Thread {
    pub fn new(cpu: usize, id: usize, job: usize) -> Self {
        Thread {
            cpu,
            id,
            job,
            clock: 0,
            doing: Doing::Queued,
            generation: 0,
            permit: Permit::Nothing,
            left: 0,
            stolen: 0,
            task: Task::NONE,
            double: Double::default(),
            counted: None,
            section: None,
            result: 0,
            failed: false,
            deadline: Time::MAX,
            timer: Time::MAX,
            looks: Looks::default(),
            stays: false,
            kept: false,
        }
    }
}

/// Number of accesses that each thread makes at least before a machine counts as stuck.
pub(crate) const LOOKS: u64 = 20_000;

/// Number of accesses that a thread has made since the machine's last progress.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// Time of that progress.
    pub since: Time,
    pub count: u64,
}

impl Thread {
    /// Counts accesses by which the thread has got on since that progress.
    #[inline]
    pub fn looked(&mut self, accesses: u64, progress: Time) {
        let looks = &mut self.looks;
        if looks.since != progress {
            *looks = Looks { since: progress, count: 0 };
        }
        looks.count += accesses;
    }

    /// Notes that the thread loses its processor while it waits for a change without a
    /// deadline.
    pub fn has_spun(&mut self, progress: Time) {
        if self.deadline >= FOREVER {
            self.looked(LOOKS, progress);
        }
    }

    /// Returns whether the thread has only looked without success since that progress,
    /// and long enough.
    pub fn is_stuck(&self, progress: Time) -> bool {
        match self.doing {
            Doing::Done => true,
            Doing::Spinning | Doing::Parked(_) if self.deadline >= FOREVER => true,
            _ => self.looks.since == progress && self.looks.count >= LOOKS,
        }
    }
}
