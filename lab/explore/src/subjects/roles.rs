//! Bounded queues whose threads have a part each, and know little of each other.
//!
//! `roomy`: thread 1 puts a value in and takes one out, in turns; thread 0 comes once. There is
//! room for both, so the queue is never full. `fed`: thread 0 takes all out, thread 1 puts one
//! value in, the others theirs, when the places are used again.

use std::cell::Cell;
use std::rc::Rc;

use towpath_machine::Processor;
use towpath_schedules::harness::{Case, Container};
use towpath_schedules::{ExploredMemory, Explorer, Plan, SubjectRun, Transferred};
use towpath_structures::queues::{ConcurrentQueue, FetchOpArray, FetchOpTickets};
use towpath_sync::Policy;

use super::{PAUSE, QueueSubject};

/// All of them.
pub fn all(cases: &mut Vec<Case>, policy: Policy) {
    of::<FetchOpArray<Explorer>>(cases, policy);
    of::<FetchOpTickets<Explorer>>(cases, policy);
}

fn of<Q: ConcurrentQueue<Explorer>>(cases: &mut Vec<Case>, policy: Policy) {
    for (part, room, about) in [
        ("roomy", 2, "a queue with room for all values is never full"),
        ("fed", 1, "values of each thread come once, in order, through places that are used again"),
    ] {
        let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
            let queue = Q::new(memory, room, plan.threads);
            let taken = (0..plan.threads).map(|_| Cell::new(0)).collect();
            Ok(Rc::new(QueueParts {
                queue: QueueSubject { queue, policy },
                plan: *plan,
                is_fed: room == 1,
                taken,
            }))
        };
        cases.push(Case::new(format!("{}/{part}-{}", super::REPAIR, Q::NAME), about, make));
    }
}

struct QueueParts<Q> {
    queue: QueueSubject<Q>,
    plan: Plan,
    is_fed: bool,
    /// Number of values of each thread that were taken out, kept by the host.
    taken: Vec<Cell<u64>>,
}

impl<Q: ConcurrentQueue<Explorer>> QueueParts<Q> {
    /// Number of values that a thread puts in.
    fn values(&self, thread: usize) -> u64 {
        match (thread, self.is_fed) {
            (0, true) => 0,
            (0, false) | (1, true) => 1,
            (2.., false) => 0,
            _ => self.plan.ops as u64,
        }
    }

    fn put(&self, cpu: &Explorer, n: u64) {
        let value = ((cpu.id() as u64) << 8) + n + 1;
        while self.queue.put(cpu, value) == Transferred::Full {
            assert!(self.is_fed, "a queue with room for all values is full");
            cpu.delay(PAUSE);
        }
    }

    fn take(&self, cpu: &Explorer) -> bool {
        let Transferred::Value(value) = self.queue.take(cpu) else { return false };
        let taken = &self.taken[(value >> 8) as usize];
        assert_eq!(value & 0xff, taken.get() + 1, "values of thread {} in order", value >> 8);
        taken.set(taken.get() + 1);
        true
    }
}

impl<Q: ConcurrentQueue<Explorer>> SubjectRun for QueueParts<Q> {
    fn thread(&self, cpu: &Explorer) {
        if self.is_fed && cpu.id() == 0 {
            let mut left: u64 = (0..self.plan.threads).map(|thread| self.values(thread)).sum();
            while left > 0 {
                match self.take(cpu) {
                    true => left -= 1,
                    false => cpu.delay(PAUSE),
                }
            }
            return;
        }
        for n in 0..self.values(cpu.id()) {
            self.put(cpu, n);
            if !self.is_fed && cpu.id() == 1 {
                self.take(cpu);
            }
        }
    }
}
