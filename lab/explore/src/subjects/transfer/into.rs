//! Leases that are completed into another queue, and the pool, which moves buffers so.

use std::cell::RefCell;
use std::rc::Rc;

use towpath_machine::{Arena, Place, Processor};
use towpath_schedules::harness::Case;
use towpath_schedules::{DatumId, ExploredMemory, Explorer, Plan, SubjectRun};
use towpath_sync::queues::{BoundedQueue, LinkedWords};
use towpath_sync::{Deadline, Policy, Wait};

use super::{Many, ManyParts, Pair, ROOM};

/// Subject of leases that are completed into another queue.
pub(super) fn values(cases: &mut Vec<Case>, name: &str, about: &str, policy: Policy, in_two_steps: bool) {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let queues = [(); 2].map(|()| ManyParts::new(memory, policy, false));
        let data = (0..plan.threads * plan.ops).map(|_| memory.cell(Place::NewLine, 0)).collect();
        let (sent, received) = Default::default();
        Ok(Rc::new(IntoRun { queues, plan: *plan, data, sent, received, in_two_steps }))
    };
    cases.push(Case { endures_deaths: true, naps: true, ..Case::new(name, about, make) });
}

/// Subject of buffers that move between two queues.
pub(super) fn buffers(cases: &mut Vec<Case>, name: &str, about: &str, policy: Policy, completes_first: bool) {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let queues = [(); 2].map(|()| ManyParts::new(memory, policy, false));
        for number in 0..ROOM as u64 {
            let free = queues[0].put(&memory.at_rest(), number, Deadline::PAST);
            assert_eq!(free, Ok(()));
        }
        let data = (0..ROOM).map(|_| memory.cell(Place::NewLine, 0)).collect();
        let run = IntoRun {
            queues,
            plan: *plan,
            data,
            sent: RefCell::default(),
            received: RefCell::default(),
            in_two_steps: false,
        };
        Ok(Rc::new(PoolRun { run, completes_first }))
    };
    cases.push(Case { endures_deaths: true, naps: true, ..Case::new(name, about, make) });
}

/// Each thread puts values into the first queue, completes leases of it into the second
/// one, and takes from there.
struct IntoRun {
    queues: [ManyParts; 2],
    plan: Plan,
    /// Data of the values, written by the sender and by each later owner.
    data: Vec<DatumId>,
    /// Values that were sent, and received from the second queue.
    sent: RefCell<Vec<u64>>,
    received: RefCell<Vec<u64>>,
    /// True if a value is sent and then its lease completed, which is wrong.
    in_two_steps: bool,
}

type ExploredWord = <Explorer as Processor>::Word;

impl LinkedWords<Explorer> for IntoRun {
    fn memory(&self) -> usize {
        1
    }
    fn place_of(&self, word: &ExploredWord) -> u64 {
        let place = self.words().position(|other| core::ptr::eq(other, word));
        place.expect("a word of a slot") as u64
    }
    fn word_at(&self, place: u64) -> Option<&ExploredWord> {
        self.words().nth(place as usize)
    }
}

impl IntoRun {
    fn words(&self) -> impl Iterator<Item = &ExploredWord> {
        self.queues.iter().flat_map(|parts| parts.slots.iter()).flat_map(|line| line.words())
    }

    fn with<R>(&self, cpu: &Explorer, act: impl FnOnce([Many<'_>; 2], &Wait) -> R) -> R {
        self.queues[0].with(cpu, |first, wait| {
            self.queues[1].with(cpu, |second, _| act([first.beside(self), second.beside(self)], wait))
        })
    }

    fn put(&self, cpu: &Explorer, value: u64) {
        cpu.write(&self.data[value as usize], 0);
        let sent = self.with(cpu, |[first, _], wait| first.send(cpu, wait, &[value, !value], Deadline::PAST));
        if sent.is_ok() {
            self.sent.borrow_mut().push(value);
        }
    }

    fn pass_on(&self, cpu: &Explorer) {
        self.with(cpu, |[first, second], wait| {
            let Ok((pair, leased)) = first.receive_leased::<Pair, _>(cpu, wait, Deadline::PAST) else {
                return;
            };
            assert_eq!(pair[0], !pair[1], "torn");
            cpu.write(&self.data[pair[0] as usize], 1);
            let done = if self.in_two_steps {
                second.send(cpu, wait, &pair, Deadline::PAST).map(|()| first.complete(cpu, wait, leased))
            } else {
                first.complete_into(cpu, wait, leased, &second, &pair, Deadline::PAST)
            };
            if done.is_err() {
                first.give_back(cpu, wait, leased);
            }
        });
    }

    /// Takes from one of them, and notes the value. Returns whether there was one.
    fn take(&self, cpu: &Explorer, from: usize) -> bool {
        let taken = self.with(cpu, |queues, wait| queues[from].receive::<Pair, _>(cpu, wait, Deadline::PAST));
        let Ok([value, other]) = taken else { return false };
        assert_eq!(value, !other, "torn");
        cpu.write(&self.data[value as usize], 2);
        assert!(!self.received.borrow().contains(&value), "{value} came twice");
        self.received.borrow_mut().push(value);
        true
    }
}

impl SubjectRun for IntoRun {
    fn thread(&self, cpu: &Explorer) {
        for n in 0..self.plan.ops {
            self.put(cpu, (cpu.id() * self.plan.ops + n) as u64);
            self.pass_on(cpu);
            if n % 2 == 1 {
                self.take(cpu, 1);
            }
        }
    }
    fn last(&self, cpu: &Explorer) {
        let dead = cpu.deaths();
        for turn in 0..3 {
            self.with(cpu, |queues, wait| queues[(turn + self.plan.ops) % 2].repair(cpu, wait));
        }
        while self.take(cpu, 0) || self.take(cpu, 1) {}
        let received = self.received.borrow();
        let lost = self.sent.borrow().iter().filter(|value| !received.contains(value)).count();
        // The dead may have received one, and not noted it.
        assert!(lost <= dead, "{lost} values were lost: {received:?} of {:?}", self.sent.borrow());
        for parts in &self.queues {
            for value in 0..ROOM as u64 {
                parts.put(cpu, value, Deadline::after(cpu, 50_000_000)).expect("room was lost");
            }
        }
    }
}

/// Each thread takes buffers from the first queue and sends them through the second one,
/// or receives them there and frees them.
struct PoolRun {
    run: IntoRun,
    /// True if a lease is completed and then the number sent, which is wrong.
    completes_first: bool,
}

impl PoolRun {
    fn move_one(&self, cpu: &Explorer, from: usize) {
        self.run.with(cpu, |queues, wait| {
            let (from, to) = (&queues[from], &queues[1 - from]);
            let Ok((pair, leased)) = from.receive_leased::<Pair, _>(cpu, wait, Deadline::PAST) else {
                return;
            };
            // It is written in place by its owner.
            cpu.write(&self.run.data[pair[0] as usize], cpu.id() as u64);
            let moved = if self.completes_first {
                from.complete(cpu, wait, leased);
                to.send(cpu, wait, &pair, Deadline::PAST)
            } else {
                from.complete_into(cpu, wait, leased, to, &pair, Deadline::PAST)
            };
            if moved.is_err() {
                from.give_back(cpu, wait, leased);
            }
        });
    }
}

impl SubjectRun for PoolRun {
    fn thread(&self, cpu: &Explorer) {
        for n in 0..self.run.plan.ops {
            self.move_one(cpu, (n + cpu.id()) % 2);
        }
    }
    fn last(&self, cpu: &Explorer) {
        for turn in 0..3 {
            self.run.with(cpu, |queues, wait| queues[(turn + self.run.plan.ops) % 2].repair(cpu, wait));
        }
        while self.run.take(cpu, 0) || self.run.take(cpu, 1) {}
        let mut buffers = self.run.received.take();
        buffers.sort_unstable();
        assert_eq!(buffers, Vec::from_iter(0..ROOM as u64), "lost");
    }
}
