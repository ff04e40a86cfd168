//! Bounded queues of values that survive deaths.

mod into;
mod one_to_one;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use towpath_machine::{Arena, Place, Processor};
use towpath_sync::queues::{BoundedQueue, ManyHead, ManyToMany, Members, QueueSide, TransferError, WordLine};
use towpath_sync::{Deadline, Policy, Wait};

use one_to_one::{HandoverRun, OneRun};

use super::{BUDGET, ExploredMember};
use towpath_schedules::harness::{Case, Container, Order, exchange};
use towpath_schedules::{DatumId, ExploredMemory, Explorer, Plan, SubjectRun, Transferred};

/// Number of values for which the queues have room.
const ROOM: usize = 2;

/// Values of two words, so that one that is torn is found.
type Pair = [u64; 2];

/// Number of processes that can be at a queue.
const MEMBERS: usize = 8;

type Many<'a> = ManyToMany<'a, Explorer, MEMBERS>;

/// Parts of a queue of many senders and receivers, and the way of waiting.
struct ManyParts {
    head: ManyHead<Explorer, MEMBERS>,
    ring: Box<[WordLine<Explorer>]>,
    slots: Box<[WordLine<Explorer>]>,
    policy: Policy,
    /// True if a waiter takes all for alive, which is wrong.
    loses_the_dead: bool,
}

impl ManyParts {
    fn new(memory: &ExploredMemory, policy: Policy, loses_the_dead: bool) -> ManyParts {
        let geometry = Many::geometry::<Pair>(ROOM);
        let [ring, slots] =
            [geometry.ring_lines(), geometry.slot_lines()].map(|lines| WordLine::row(memory, lines));
        ManyParts { head: ManyHead::in_arena(memory), ring, slots, policy, loses_the_dead }
    }

    fn with<R>(&self, cpu: &Explorer, act: impl FnOnce(Many<'_>, &Wait) -> R) -> R {
        let queue = Many::of(&self.head, &self.ring, &self.slots, Many::geometry::<Pair>(ROOM));
        let around = ExploredMember::new(cpu);
        let wait = Wait { policy: self.policy, around: &around, budget: BUDGET };
        if self.loses_the_dead {
            return act(queue, &Wait { around: &super::robust::LosesTheDead::of(&around), ..wait });
        }
        act(queue, &wait)
    }

    fn put(&self, cpu: &Explorer, value: u64, deadline: Deadline) -> Result<(), TransferError> {
        self.with(cpu, |queue, wait| queue.send(cpu, wait, &[value, !value], deadline))
    }

    fn take(&self, cpu: &Explorer, deadline: Deadline) -> Result<u64, TransferError> {
        let [value, other] = self.with(cpu, |queue, wait| queue.receive::<Pair, _>(cpu, wait, deadline))?;
        assert_eq!(value, !other, "torn");
        Ok(value)
    }
}

/// All of them.
pub fn all(cases: &mut Vec<Case>, policy: Policy) {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let parts = ManyParts::new(memory, policy, false);
        Ok(exchange(plan, memory, parts, Order::Fifo, ROOM, 1))
    };
    let about = "linearizable, first in first out; no thread waits for the dead";
    cases.push(Case { endures_deaths: true, ..Case::new("transfer/many-to-many", about, make) });
    let about = "no waiter stays that has room, or a value; no room is lost with the dead";
    waiting(cases, "transfer/many-to-many-waiting", about, policy, false);
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let parts = ManyParts::new(memory, policy, false);
        let data = (0..plan.threads * plan.ops).map(|_| memory.cell(Place::NewLine, 0)).collect();
        let (done, deaths) = (RefCell::default(), Cell::default());
        Ok(Rc::new(LeaseRun { parts, plan: *plan, data, done, deaths }))
    };
    let about = "each value is completed once; those of the dead come in again";
    let name = "transfer/many-to-many-leases";
    cases.push(Case { endures_deaths: true, naps: true, ..Case::new(name, about, make) });
    in_place(cases, "transfer/many-to-many-in-place", "values lie in slots of their own", policy, false);
    let about = "a lease is completed into another queue, or not: each value is in one of them";
    into::values(cases, "transfer/many-to-many-into", about, policy, false);
    let about = "each buffer has one owner; none is lost with the dead";
    into::buffers(cases, "transfer/pool", about, policy, false);
    // Leaving changes no word on which a waiter waits, which looks again by itself.
    let waits = move |leaves: bool| if leaves { Policy::Park } else { policy };
    let about = "all that was sent is received, in order; a death ends the waiting";
    for (name, leaves) in [("transfer/one-to-one", false), ("transfer/one-to-one-left", true)] {
        let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
            let run = OneRun::new(memory, plan, waits(leaves), leaves);
            run.join();
            Ok(Rc::new(run))
        };
        cases.push(Case { endures_deaths: true, naps: leaves, ..Case::new(name, about, make) });
    }
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        Ok(Rc::new(HandoverRun { queue: OneRun::new(memory, plan, policy, true) }))
    };
    let about = "one sender and one receiver at a time go on where the last one has left";
    cases.push(Case::new("transfer/one-to-one-handover", about, make));
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let members = Members::in_arena(memory);
        Ok(Rc::new(LeaversRun { members, plan: *plan, policy, is_told: Cell::default() }))
    };
    cases.push(Case::new("transfer/leavers", "of those that leave, one is told that it is the last", make));
    let about = "all that was sent before the end is received; the living do not wait for more";
    for (name, leaves) in [("transfer/many-to-many-closed", false), ("transfer/many-to-many-left", true)] {
        let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
            let parts = ManyParts::new(memory, waits(leaves), false);
            let run = EndingRun::new(parts, memory, plan, leaves);
            run.join(memory);
            Ok(Rc::new(run))
        };
        cases.push(Case { endures_deaths: true, naps: leaves, ..Case::new(name, about, make) });
    }
}

/// Members of one side of a queue that come and leave.
struct LeaversRun {
    members: Members<Explorer, MEMBERS>,
    plan: Plan,
    policy: Policy,
    /// True if one that left was told that it was the last, and none has come since.
    ///
    /// As the host knows it.
    is_told: Cell<bool>,
}

impl SubjectRun for LeaversRun {
    fn thread(&self, cpu: &Explorer) {
        let around = ExploredMember::new(cpu);
        let wait = Wait { policy: self.policy, around: &around, budget: BUDGET };
        for _ in 0..self.plan.ops {
            self.is_told.set(false);
            self.members.join(cpu, &wait, QueueSide::Sender).expect("there is a place for each");
            let is_last = self.members.leave(cpu, &wait, QueueSide::Sender);
            self.is_told.set(self.is_told.get() || is_last);
        }
    }
    fn last(&self, _: &Explorer) {
        assert!(self.is_told.get(), "all have left, and none was the last");
    }
}

/// The side of a thread: every second one receives.
const fn side(id: usize) -> QueueSide {
    if id.is_multiple_of(2) { QueueSide::Sender } else { QueueSide::Receiver }
}

/// Senders of which the first one closes the queue, or all leave it, and receivers.
struct EndingRun {
    parts: ManyParts,
    plan: Plan,
    leaves: bool,
    /// Data of the values, written before and read after. Of two threads a few in turn.
    data: Vec<DatumId>,
    /// Number of values that were sent, and received, as the host knows them.
    sent: Cell<u64>,
    received: Cell<u64>,
}

impl EndingRun {
    fn new(parts: ManyParts, memory: &ExploredMemory, plan: &Plan, leaves: bool) -> EndingRun {
        let data = if plan.threads == 2 { ROOM + 2 } else { plan.threads * plan.ops };
        let data = (0..data).map(|_| memory.cell(Place::NewLine, 0)).collect();
        EndingRun { parts, plan: *plan, leaves, data, sent: Cell::default(), received: Cell::default() }
    }

    fn join(&self, memory: &ExploredMemory) {
        let cpu = memory.at_rest();
        for id in 0..self.plan.threads {
            let around = ExploredMember { dead: memory.dead(), told: memory.told(), me: id as u32 + 1 };
            let wait = Wait { policy: self.parts.policy, around: &around, budget: BUDGET };
            assert_eq!(self.parts.with(&cpu, |queue, _| queue.join(&cpu, &wait, side(id))), Ok(()));
        }
    }

    fn receive(&self, cpu: &Explorer, deadline: Deadline) -> Result<(), TransferError> {
        let value = self.parts.take(cpu, deadline)?;
        assert_eq!(cpu.read(&self.data[value as usize % self.data.len()]), value);
        self.received.set(self.received.get() + 1);
        Ok(())
    }

    fn send(&self, cpu: &Explorer) -> Result<(), TransferError> {
        for n in 0..self.plan.ops {
            let value = (cpu.id() * self.plan.ops + n) as u64;
            cpu.write(&self.data[value as usize % self.data.len()], value);
            self.parts.put(cpu, value, Deadline::NEVER)?;
            self.sent.set(self.sent.get() + 1);
        }
        Ok(())
    }

    fn anyone_is_dead(&self, cpu: &Explorer) -> bool {
        (0..self.plan.threads).any(|id| cpu.is_dead(id))
    }
}

impl SubjectRun for EndingRun {
    fn thread(&self, cpu: &Explorer) {
        let end = match side(cpu.id()) {
            QueueSide::Sender => {
                let sent = self.send(cpu);
                self.parts.with(cpu, |queue, wait| match cpu.id() {
                    0 if !self.leaves => queue.close(cpu, wait),
                    _ => queue.leave(cpu, wait, QueueSide::Sender),
                });
                sent.err()
            }
            QueueSide::Receiver => loop {
                if let Err(end) = self.receive(cpu, Deadline::NEVER) {
                    break Some(end);
                }
            },
        };
        match end {
            None => {}
            Some(TransferError::Closed) => assert!(!self.leaves),
            Some(TransferError::Disconnected) => assert!(self.leaves),
            Some(TransferError::PeerDied { .. }) => assert!(self.anyone_is_dead(cpu)),
            Some(error) => panic!("{error}"),
        }
    }
    fn last(&self, cpu: &Explorer) {
        if self.plan.threads < 2 {
            return;
        }
        if self.anyone_is_dead(cpu) {
            self.parts.with(cpu, |queue, wait| queue.repair(cpu, wait));
            while self.receive(cpu, Deadline::PAST).is_ok() {}
        }
        // A dead receiver may have had one and not noted it.
        let slack = u64::from(self.anyone_is_dead(cpu));
        assert!(self.received.get() + slack >= self.sent.get(), "lost");
    }
}

/// Adds the subjects that are wrong on purpose, as a death shows.
pub fn planted(cases: &mut Vec<Case>, policy: Policy) {
    waiting(cases, "planted/transfer-loses-the-dead", "wrong on purpose", policy, true);
    in_place(cases, "planted/transfer-reads-a-completed-slot", "wrong on purpose", policy, true);
    into::values(cases, "planted/transfer-into-in-two-steps", "wrong on purpose", policy, true);
    into::buffers(cases, "planted/pool-completes-before-it-sends", "wrong on purpose", policy, true);
}

fn in_place(cases: &mut Vec<Case>, name: &str, about: &str, policy: Policy, reads_late: bool) {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let parts = ManyParts::new(memory, policy, false);
        let data = [(); ROOM].map(|()| memory.cell(Place::NewLine, 0));
        Ok(Rc::new(InPlaceRun { parts, plan: *plan, data, done: RefCell::default(), reads_late }))
    };
    cases.push(Case { endures_deaths: true, naps: true, ..Case::new(name, about, make) });
}

fn waiting(cases: &mut Vec<Case>, name: &str, about: &str, policy: Policy, loses_the_dead: bool) {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let parts = ManyParts::new(memory, policy, loses_the_dead);
        Ok(Rc::new(WaitingRun { parts, plan: *plan }))
    };
    cases.push(Case { endures_deaths: true, ..Case::new(name, about, make) });
}

impl Container for ManyParts {
    fn put(&self, cpu: &Explorer, value: u64) -> Transferred {
        match ManyParts::put(self, cpu, value, Deadline::PAST) {
            Ok(()) => Transferred::Done,
            Err(TransferError::TimedOut) => Transferred::Full,
            Err(error) => panic!("put: {error}"),
        }
    }
    fn take(&self, cpu: &Explorer) -> Transferred {
        match ManyParts::take(self, cpu, Deadline::PAST) {
            Ok(value) => Transferred::Value(value),
            Err(TransferError::TimedOut) => Transferred::Empty,
            Err(error) => panic!("take: {error}"),
        }
    }
}

/// Each thread puts a value in and takes one out, by turns, so that none waits in vain.
struct WaitingRun {
    parts: ManyParts,
    plan: Plan,
}

impl SubjectRun for WaitingRun {
    fn thread(&self, cpu: &Explorer) {
        for n in 0..self.plan.ops {
            let value = (cpu.id() as u64 + 1) * 100 + n as u64;
            self.parts.put(cpu, value, Deadline::NEVER).expect("there is no deadline");
            self.parts.take(cpu, Deadline::NEVER).expect("there is no deadline");
        }
    }
    fn last(&self, cpu: &Explorer) {
        // All room is there again.
        while self.parts.take(cpu, Deadline::PAST).is_ok() {}
        for value in 0..ROOM as u64 {
            self.parts.put(cpu, value, Deadline::after(cpu, 50_000_000)).expect("room was lost");
        }
    }
}

/// Each thread puts values in, and takes some out under a lease, of which it gives one
/// back.
struct LeaseRun {
    parts: ManyParts,
    plan: Plan,
    /// Data of the values, written by the sender and by the holders of leases in turn.
    data: Vec<DatumId>,
    /// The values: true when completed.
    done: RefCell<BTreeMap<u64, bool>>,
    deaths: Cell<u64>,
}

impl LeaseRun {
    fn take(&self, cpu: &Explorer, gives_back: bool) -> bool {
        self.parts.with(cpu, |queue, wait| {
            let Ok(([value, other], leased)) = queue.receive_leased::<Pair, _>(cpu, wait, Deadline::PAST)
            else {
                return false;
            };
            assert_eq!(value, !other, "torn");
            assert_ne!(self.done.borrow().get(&value), Some(&true), "completed, and came again");
            cpu.write(&self.data[value as usize], 1);
            if gives_back {
                queue.give_back(cpu, wait, leased);
            } else {
                queue.complete(cpu, wait, leased);
                let again = self.done.borrow_mut().insert(value, true);
                assert_ne!(again, Some(true), "completed twice");
            }
            true
        })
    }
}

impl SubjectRun for LeaseRun {
    fn thread(&self, cpu: &Explorer) {
        for n in 0..self.plan.ops {
            let value = (cpu.id() * self.plan.ops + n) as u64;
            cpu.write(&self.data[value as usize], 0);
            if self.parts.put(cpu, value, Deadline::PAST).is_ok() {
                self.done.borrow_mut().entry(value).or_insert(false);
            }
            self.take(cpu, n % 2 == 1);
        }
    }
    fn last(&self, cpu: &Explorer) {
        self.deaths.set(cpu.deaths() as u64);
        self.parts.with(cpu, |queue, wait| queue.repair(cpu, wait));
        while self.take(cpu, false) {}
        let lost = self.done.borrow().values().filter(|done| !**done).count() as u64;
        // The dead may have completed one, and not noted it.
        assert!(lost <= self.deaths.get(), "{lost} values were lost: {:?}", self.done.borrow());
    }
}

/// Each thread fills slots, and reads some in place.
///
/// It gives up one of the former, and gives back one of the latter.
struct InPlaceRun {
    parts: ManyParts,
    plan: Plan,
    /// The values: a datum for each slot.
    data: [DatumId; ROOM],
    /// Values that were sent: true when completed.
    done: RefCell<BTreeMap<u64, bool>>,
    /// True if a receiver completes a value and then reads it, which is wrong.
    reads_late: bool,
}

impl InPlaceRun {
    fn put(&self, cpu: &Explorer, value: u64, gives_up: bool) {
        self.parts.with(cpu, |queue, wait| {
            let Ok(reserved) = queue.reserve(cpu, wait, Deadline::PAST) else { return };
            cpu.write(&self.data[reserved.slot()], value);
            if gives_up {
                queue.give_up(cpu, wait, reserved);
            } else {
                queue.publish(cpu, wait, reserved).expect("it is open");
                self.done.borrow_mut().entry(value).or_insert(false);
            }
        });
    }

    fn take(&self, cpu: &Explorer, gives_back: bool) -> bool {
        self.parts.with(cpu, |queue, wait| {
            let Ok(leased) = queue.lease_in_place(cpu, wait, Deadline::PAST) else { return false };
            if self.reads_late {
                queue.complete(cpu, wait, leased);
            }
            let value = cpu.read(&self.data[leased.slot()]);
            assert_ne!(self.done.borrow().get(&value), Some(&true), "completed, and came again");
            if gives_back {
                queue.give_back(cpu, wait, leased);
            } else {
                queue.complete(cpu, wait, leased);
                let again = self.done.borrow_mut().insert(value, true);
                assert_ne!(again, Some(true), "completed twice");
            }
            true
        })
    }
}

impl SubjectRun for InPlaceRun {
    fn thread(&self, cpu: &Explorer) {
        for n in 0..self.plan.ops {
            let value = (cpu.id() * self.plan.ops + n) as u64;
            self.put(cpu, value, n % 3 == 1);
            self.take(cpu, n % 2 == 1);
        }
    }
    fn last(&self, cpu: &Explorer) {
        let dead = cpu.deaths();
        self.parts.with(cpu, |queue, wait| queue.repair(cpu, wait));
        while self.take(cpu, false) {}
        let lost = self.done.borrow().values().filter(|done| !**done).count();
        // The dead may have completed one, and not noted it.
        assert!(lost <= dead, "{lost} values were lost: {:?}", self.done.borrow());
        for value in 0..ROOM as u64 {
            self.parts.put(cpu, value, Deadline::after(cpu, 50_000_000)).expect("room was lost");
        }
    }
}
