//! Bounded queues of values that survive deaths.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use towpath_machine::Processor;
use towpath_sync::queues::{
    BoundedQueue, ManyHead, ManyToMany, OneHead, OneToOne, QueueGeometry, QueueSide, TransferError, WordLine,
};
use towpath_sync::{Deadline, Policy, Wait};

use super::{BUDGET, ExploredMember};
use crate::fault::LocatedFault;
use crate::harness::{Case, Container, Order, exchange};
use crate::{End, ExploredMemory, Explorer, Plan, SubjectRun, Transferred};

/// Number of values for which the queues have room.
const ROOM: usize = 2;

/// Values of two words, so that one that is torn is found.
type Pair = [u64; 2];

/// Parts of a queue of many senders and receivers, and the way of waiting.
struct ManyParts {
    head: ManyHead<Explorer>,
    ring: Box<[WordLine<Explorer>]>,
    slots: Box<[WordLine<Explorer>]>,
    policy: Policy,
    /// True if a waiter takes all for alive, which is wrong.
    loses_the_dead: bool,
}

impl ManyParts {
    fn new(memory: &ExploredMemory, policy: Policy, loses_the_dead: bool) -> ManyParts {
        let geometry = ManyToMany::<Explorer>::geometry::<Pair>(ROOM);
        let [ring, slots] =
            [geometry.ring_lines(), geometry.slot_lines()].map(|lines| WordLine::row(memory, lines));
        ManyParts { head: ManyHead::in_arena(memory), ring, slots, policy, loses_the_dead }
    }

    fn with<R>(&self, cpu: &Explorer, act: impl FnOnce(ManyToMany<'_, Explorer>, &Wait) -> R) -> R {
        let queue = ManyToMany::of(
            &self.head,
            &self.ring,
            &self.slots,
            ManyToMany::<Explorer>::geometry::<Pair>(ROOM),
        );
        let around = ExploredMember::new(cpu);
        let wait = Wait { policy: self.policy, around: &around, budget: BUDGET };
        if self.loses_the_dead {
            return act(queue, &Wait { around: &super::robust::LosesTheDead(&around), ..wait });
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
        Ok(Rc::new(LeaseRun { parts, plan: *plan, done: RefCell::default(), deaths: Cell::default() }))
    };
    let about = "each value is completed once; those of the dead come in again";
    let name = "transfer/many-to-many-leases";
    cases.push(Case { endures_deaths: true, naps: true, ..Case::new(name, about, make) });
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        Ok(Rc::new(OneRun::new(memory, plan, policy)))
    };
    let about = "all that was sent is received, in order; a death ends the waiting";
    cases.push(Case { endures_deaths: true, ..Case::new("transfer/one-to-one", about, make) });
}

/// A sender that closes the queue at the end, and a receiver.
struct OneRun {
    head: OneHead<Explorer>,
    slots: Box<[WordLine<Explorer>]>,
    geometry: QueueGeometry,
    policy: Policy,
    plan: Plan,
    /// Values that were sent, and received, as the host knows them.
    sent: Cell<u64>,
    received: Cell<u64>,
}

impl OneRun {
    fn new(memory: &ExploredMemory, plan: &Plan, policy: Policy) -> OneRun {
        let geometry = OneToOne::<Explorer>::geometry::<Pair>(ROOM);
        let run = OneRun {
            head: OneHead::in_arena(memory),
            slots: WordLine::row(memory, geometry.slot_lines()),
            geometry,
            policy,
            plan: *plan,
            sent: Cell::default(),
            received: Cell::default(),
        };
        // A process that dies before it has come is not known.
        let (cpu, queue) = (memory.at_rest(), OneToOne::of(&run.head, &run.slots, geometry));
        for (side, me) in [(QueueSide::Sender, 1), (QueueSide::Receiver, 2)] {
            let around = ExploredMember { dead: memory.dead(), told: memory.told(), me };
            let joined = queue.join(&cpu, &Wait { policy, around: &around, budget: BUDGET }, side);
            assert_eq!(joined, Ok(()));
        }
        run
    }

    fn with<R>(&self, cpu: &Explorer, act: impl FnOnce(OneToOne<'_, Explorer>, &Wait) -> R) -> R {
        let around = ExploredMember::new(cpu);
        let wait = Wait { policy: self.policy, around: &around, budget: BUDGET };
        act(OneToOne::of(&self.head, &self.slots, self.geometry), &wait)
    }

    fn receive(&self, cpu: &Explorer) -> Result<(), TransferError> {
        self.with(cpu, |queue, wait| {
            let [value, other] = queue.receive::<Pair, _>(cpu, wait, Deadline::NEVER)?;
            assert_eq!((value, other), (self.received.get(), !value), "lost, twice or torn");
            self.received.set(value + 1);
            Ok(())
        })
    }
}

impl SubjectRun for OneRun {
    fn thread(&self, cpu: &Explorer) {
        let number = 2 * self.plan.ops as u64;
        match cpu.id() {
            0 => self.with(cpu, |queue, wait| {
                for value in 0..number {
                    if let Err(end) = queue.send(cpu, wait, &[value, !value], Deadline::NEVER) {
                        assert!(matches!(end, TransferError::PeerDied { .. }), "{end}");
                        return;
                    }
                    self.sent.set(value + 1);
                }
                queue.close(cpu, wait);
            }),
            1 => loop {
                match self.receive(cpu) {
                    Ok(()) => {}
                    Err(TransferError::Closed) => break assert_eq!(self.received.get(), number),
                    Err(end) => break assert!(matches!(end, TransferError::PeerDied { .. }), "{end}"),
                }
            },
            _ => {}
        }
    }
    fn last(&self, cpu: &Explorer) {
        self.with(cpu, |queue, wait| {
            let mut slack = u64::from(cpu.is_dead(1));
            while let Ok([value, other]) = queue.receive::<Pair, _>(cpu, wait, Deadline::PAST) {
                // A dead receiver may have had one and not noted it.
                let next = self.received.get();
                assert!(value == next || value == next + slack, "lost or twice");
                assert_eq!(value, !other, "torn");
                slack = 0;
                self.received.set(value + 1);
            }
            assert!(self.received.get() + slack >= self.sent.get(), "lost");
        });
    }
    fn judge(&self, _end: &End) -> Result<(), LocatedFault> {
        Ok(())
    }
}

/// Those that are wrong on purpose, as a death shows.
pub fn planted(cases: &mut Vec<Case>, policy: Policy) {
    waiting(cases, "planted/transfer-loses-the-dead", "wrong on purpose", policy, true);
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
    fn judge(&self, _end: &End) -> Result<(), LocatedFault> {
        Ok(())
    }
}

/// Each thread puts values in, and takes some out under a lease, of which it gives one
/// back.
struct LeaseRun {
    parts: ManyParts,
    plan: Plan,
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
            let value = (cpu.id() as u64 + 1) * 100 + n as u64;
            if self.parts.put(cpu, value, Deadline::PAST).is_ok() {
                self.done.borrow_mut().entry(value).or_insert(false);
            }
            self.take(cpu, n % 2 == 1);
        }
    }
    fn last(&self, cpu: &Explorer) {
        let dead = (0..self.plan.threads).filter(|&id| cpu.is_dead(id)).count() as u64;
        self.deaths.set(dead);
        self.parts.with(cpu, |queue, wait| queue.repair(cpu, wait));
        while self.take(cpu, false) {}
        let lost = self.done.borrow().values().filter(|done| !**done).count() as u64;
        // The dead may have completed one, and not noted it.
        assert!(lost <= dead, "{lost} values were lost: {:?}", self.done.borrow());
    }
    fn judge(&self, _end: &End) -> Result<(), LocatedFault> {
        Ok(())
    }
}
