//! Bounded queues of values that survive deaths.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use towpath_machine::{Arena, Place, Processor};
use towpath_sync::queues::{
    BoundedQueue, LinkedWords, ManyHead, ManyToMany, OneHead, OneToOne, QueueGeometry, QueueSide,
    TransferError, WordLine,
};
use towpath_sync::{Deadline, Policy, Wait};

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
    into(cases, "transfer/many-to-many-into", about, policy, false);
    let about = "each buffer has one owner; none is lost with the dead";
    pool(cases, "transfer/pool", about, policy, false);
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

/// The side of a thread: every second one receives.
const fn side(id: usize) -> QueueSide {
    if id.is_multiple_of(2) { QueueSide::Sender } else { QueueSide::Receiver }
}

/// A sender that closes the queue at the end, or leaves it, and a receiver.
struct OneRun {
    memory: ExploredMemory,
    head: OneHead<Explorer>,
    slots: Box<[WordLine<Explorer>]>,
    geometry: QueueGeometry,
    policy: Policy,
    plan: Plan,
    leaves: bool,
    /// Written by the sender before each value, in turn; read by the receiver after it.
    data: [DatumId; ROOM + 2],
    /// Values that were sent, and received, as the host knows them.
    sent: Cell<u64>,
    received: Cell<u64>,
}

impl OneRun {
    fn new(memory: &ExploredMemory, plan: &Plan, policy: Policy, leaves: bool) -> OneRun {
        let geometry = OneToOne::<Explorer>::geometry::<Pair>(ROOM);
        OneRun {
            memory: memory.clone(),
            head: OneHead::in_arena(memory),
            slots: WordLine::row(memory, geometry.slot_lines()),
            geometry,
            policy,
            plan: *plan,
            leaves,
            data: [(); ROOM + 2].map(|()| memory.cell(Place::NewLine, 0)),
            sent: Cell::default(),
            received: Cell::default(),
        }
    }

    /// Enters both ends: one that dies before it has come is not known.
    fn join(&self) {
        let cpu = self.memory.at_rest();
        let queue = OneToOne::of(&self.head, &self.slots, self.geometry);
        for me in 1..=2 {
            let around = ExploredMember { dead: self.memory.dead(), told: self.memory.told(), me };
            let wait = Wait { policy: self.policy, around: &around, budget: BUDGET };
            assert_eq!(queue.join(&cpu, &wait, side(me as usize - 1)), Ok(()));
        }
    }

    /// Datum of a value. By the time that the next one has room, the receiver has read it
    /// for the value before.
    fn datum(&self, value: u64) -> &DatumId {
        &self.data[value as usize % self.data.len()]
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
            assert_eq!(cpu.read(self.datum(value)), value);
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
                    cpu.write(self.datum(value), value);
                    if let Err(end) = queue.send(cpu, wait, &[value, !value], Deadline::NEVER) {
                        assert!(matches!(end, TransferError::PeerDied { .. }), "{end}");
                        return;
                    }
                    self.sent.set(value + 1);
                }
                if self.leaves {
                    queue.leave(cpu, wait, QueueSide::Sender);
                } else {
                    queue.close(cpu, wait);
                }
            }),
            1 => loop {
                match self.receive(cpu) {
                    Ok(()) => {}
                    Err(TransferError::Closed | TransferError::Disconnected) => {
                        break assert_eq!(self.received.get(), number);
                    }
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
}

/// Threads that become the sender, or the receiver, for a value.
struct HandoverRun {
    queue: OneRun,
}

impl SubjectRun for HandoverRun {
    fn thread(&self, cpu: &Explorer) {
        let (OneRun { sent, received, .. }, side) = (&self.queue, side(cpu.id()));
        for _ in 0..self.queue.plan.ops {
            self.queue.with(cpu, |queue, wait| {
                if queue.join(cpu, wait, side).is_err() {
                    return;
                }
                if side == QueueSide::Receiver {
                    if let Ok([value, other]) = queue.receive::<Pair, _>(cpu, wait, Deadline::PAST) {
                        assert_eq!((value, other), (received.get(), !value), "lost, twice or torn");
                        received.set(value + 1);
                    }
                } else {
                    let value = sent.get();
                    if queue.send(cpu, wait, &[value, !value], Deadline::PAST).is_ok() {
                        sent.set(value + 1);
                    }
                }
                queue.leave(cpu, wait, side);
            });
        }
    }
    fn last(&self, cpu: &Explorer) {
        self.queue.last(cpu);
    }
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

/// Those that are wrong on purpose, as a death shows.
pub fn planted(cases: &mut Vec<Case>, policy: Policy) {
    waiting(cases, "planted/transfer-loses-the-dead", "wrong on purpose", policy, true);
    in_place(cases, "planted/transfer-reads-a-completed-slot", "wrong on purpose", policy, true);
    into(cases, "planted/transfer-into-in-two-steps", "wrong on purpose", policy, true);
    pool(cases, "planted/pool-completes-before-it-sends", "wrong on purpose", policy, true);
}

fn into(cases: &mut Vec<Case>, name: &str, about: &str, policy: Policy, in_two_steps: bool) {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let queues = [(); 2].map(|()| ManyParts::new(memory, policy, false));
        let data = (0..plan.threads * plan.ops).map(|_| memory.cell(Place::NewLine, 0)).collect();
        let (sent, received) = Default::default();
        Ok(Rc::new(IntoRun { queues, plan: *plan, data, sent, received, in_two_steps }))
    };
    cases.push(Case { endures_deaths: true, naps: true, ..Case::new(name, about, make) });
}

fn pool(cases: &mut Vec<Case>, name: &str, about: &str, policy: Policy, completes_first: bool) {
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
