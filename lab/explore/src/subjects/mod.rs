//! Subjects of `towpath explore`: locks, queues, barriers and counters by the lists of
//! their families, the channel, the non-blocking structures, and the planted faults.

mod broadcast;
mod channel;
mod compact;
mod device;
mod endpoints;
mod intents;
mod interrupted;
mod machine_words;
mod members;
mod pairs;
mod per_sender;
mod pools;
mod queue_memory;
mod repair;
mod robust;
mod roles;
mod shm_words;
mod spinning;
mod structures;
mod told;
mod transfer;
mod waits;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use towpath_machine::{Ordering, Processor};
use towpath_schedules::harness::{
    Case, Container, ExploredBarrier, ExploredLock, Order, counting, episodes, exchange, exclusion,
};
use towpath_schedules::{ExploredMemory, Explorer, Plan, SubjectRun, Transferred};
use towpath_structures::queues::{ConcurrentQueue, QueueError};
use towpath_structures::{Counter, for_each_planted_queue, for_each_queue};
use towpath_sync::locks::{Compact, ModeWord, Reactive, Robust};
use towpath_sync::{
    AtMemory, Atomics, Barrier, Deadline, LoadLinked, Lock, Policy, Primitive, Surroundings, Wait,
    for_each_barrier, for_each_lock,
};

/// Budget of a waiter's spinning before it yields or parks, in nanoseconds. There is no
/// time: that it is less than the explorer's limit for patience is enough.
const BUDGET: u64 = 5_000;
/// Time between two looks of a thread that cannot go on, in nanoseconds.
const PAUSE: u64 = 1_000;
/// Longer than any wait.
const ENDLESS: u64 = u64::MAX / 2;

/// The families, by which all their members can be chosen together.
pub const FAMILIES: [&str; 11] = [
    "counter",
    "lock",
    "readers-writer",
    "barrier",
    "queue",
    "transfer",
    "broadcast",
    "channel",
    "endpoint",
    "members",
    "interrupted",
];
/// Family of the repairs after deaths, one of [`STRUCTURES`].
const REPAIR: &str = "repair";
/// Families of the structures in type-stable memory, and DCAS.
pub use structures::FAMILIES as STRUCTURES;

/// Number of values for which a queue has room: few, so that it gets full.
const ROOM: usize = 3;

/// Everything that can be explored, with waiters that wait in this way: right ones by
/// family, then the planted faults.
pub fn subjects(policy: Policy) -> Vec<Case> {
    let mut cases = Vec::new();
    counter::<Atomics>(&mut cases);
    counter::<LoadLinked>(&mut cases);
    counter::<AtMemory>(&mut cases);
    for_each_lock!([atomics ll_sc fetch_op scheduling kernel_mutex] Explorer, 8 => lock(&mut cases, policy));
    // Leases are long against the explorer's steps: the first hands over each time, the second also
    // calls waiters.
    lock::<Robust<Explorer, 8, 0>>(&mut cases, policy);
    lock::<Robust<Explorer, 8, 1>>(&mut cases, policy);
    lock::<Compact<Explorer>>(&mut cases, policy);
    lock::<Compact<Explorer, 0>>(&mut cases, policy);
    lock::<Reactive<Explorer, 8, 0, 0, ModeWord<Explorer>>>(&mut cases, policy);
    for_each_barrier!([atomics ll_sc fetch_op] Explorer, 8 => barrier(&mut cases, policy));
    for_each_queue!([atomics ll_sc fetch_op] Explorer, 8 => queue(&mut cases, policy));
    compact::all(&mut cases, policy);
    waits::all(&mut cases, policy);
    intents::all(&mut cases, policy);
    machine_words::all(&mut cases);
    robust::all(&mut cases, policy);
    transfer::all(&mut cases, policy);
    per_sender::all(&mut cases, policy);
    broadcast::all(&mut cases, policy);
    channel::all(&mut cases);
    endpoints::all(&mut cases, policy);
    device::all(&mut cases);
    members::all(&mut cases, policy);
    shm_words::all(&mut cases);
    interrupted::all(&mut cases);
    structures::all(&mut cases, policy);
    repair::all(&mut cases, policy);
    pairs::all(&mut cases, policy);
    pools::all(&mut cases);
    roles::all(&mut cases, policy);
    for_each_planted_queue!([atomics fetch_op] Explorer => queue(&mut cases, policy));
    forgetful_lock(&mut cases, policy);
    robust::planted(&mut cases, policy);
    transfer::planted(&mut cases, policy);
    broadcast::planted(&mut cases, policy);
    channel::planted(&mut cases);
    cases
}

/// Subjects of this name, or of this family. `_` may stand for `-`.
pub fn find(name: &str, policy: Policy) -> Vec<Case> {
    let name = name.replace('_', "-");
    let family = format!("{name}/");
    let mut cases = subjects(policy);
    let exact = cases.iter().any(|c| c.name == name);
    cases.retain(|c| if exact { c.name == name } else { c.name.starts_with(&family) });
    cases
}

/// A processor of the explorer as a participant that others may ask about.
pub struct ExploredMember {
    dead: Arc<AtomicU64>,
    told: Arc<AtomicU64>,
    me: u32,
}

impl ExploredMember {
    fn new(cpu: &Explorer) -> ExploredMember {
        let memory = cpu.memory();
        ExploredMember { dead: memory.dead(), told: memory.told(), me: cpu.id() as u32 + 1 }
    }
}

impl Surroundings for ExploredMember {
    fn identity(&self) -> u32 {
        self.me
    }
    fn is_alive(&self, identity: u32) -> bool {
        let Some(bit) = identity.checked_sub(1).filter(|bit| *bit < 64) else { return false };
        // Relaxed, both: there is one thread of the host.
        let dead = self.dead.load(Ordering::Relaxed) & 1 << bit;
        self.told.fetch_or(dead, Ordering::Relaxed);
        dead == 0
    }
    fn deaths(&self) -> u64 {
        // Relaxed, both: there is one thread of the host.
        let dead = self.dead.load(Ordering::Relaxed);
        self.told.fetch_or(dead, Ordering::Relaxed);
        u64::from(dead.count_ones())
    }
}

fn counter<M: Primitive<Explorer>>(cases: &mut Vec<Case>) {
    let make = |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let counter = Counter::<Explorer, M>::new(memory);
        Ok(counting(plan, move |cpu| counter.increment(cpu)))
    };
    let about = "linearizable; no thread waits for the dead";
    let name = format!("counter/{}", Counter::<Explorer, M>::NAME);
    cases.push(Case { endures_deaths: true, ..Case::new(name, about, make) });
}

/// Returns whether sleepers count on their timeouts: under `robust` they look by
/// themselves for the dead, and for a lock that was left to any waiter that is awake.
fn naps(name: &str) -> bool {
    name.split('/').any(|part| part == "robust")
}

struct LockSubject<L> {
    lock: L,
    policy: Policy,
    /// Owner, by identity, in a planted fault that believes in owners' deaths alone.
    owner: Option<Cell<u32>>,
    /// Number of owners that were told of a death.
    told: Cell<usize>,
}

/// Takes all but the owner for alive.
struct ForgetsWaiters<'a> {
    around: &'a ExploredMember,
    owner: u32,
}

impl Surroundings for ForgetsWaiters<'_> {
    fn identity(&self) -> u32 {
        self.around.identity()
    }
    fn is_alive(&self, identity: u32) -> bool {
        identity != self.owner || self.around.is_alive(identity)
    }
}

impl<L> LockSubject<L> {
    fn wait<T>(&self, cpu: &Explorer, act: impl FnOnce(&Wait) -> T) -> T {
        let around = ExploredMember::new(cpu);
        let wait = Wait { policy: self.policy, around: &around, budget: BUDGET };
        match &self.owner {
            None => act(&wait),
            Some(owner) => {
                let around = ForgetsWaiters { around: &around, owner: owner.get() };
                act(&Wait { around: &around, ..wait })
            }
        }
    }

    /// Notes the owner, for the planted fault.
    fn note(&self, owner: u32) {
        self.owner.iter().for_each(|noted| noted.set(owner));
    }
}

impl<L: Lock<Explorer> + 'static> LockSubject<L> {
    /// The next owner of a dead one's lock goes on as if the data were in order, which
    /// they are.
    fn repaired(&self, cpu: &Explorer, mut held: L::Held) -> L::Held {
        if L::owner_died(&held) {
            self.told.set(self.told.get() + 1);
            assert!(self.told.get() <= cpu.deaths(), "told again of a death, whose data are in order");
            self.lock.make_consistent(cpu, &mut held);
        }
        held
    }
}

impl<L: Lock<Explorer> + 'static> ExploredLock for LockSubject<L> {
    type Held = L::Held;

    fn acquire(&self, cpu: &Explorer) -> Option<L::Held> {
        let held = self.wait(cpu, |wait| self.lock.lock(cpu, wait)).ok()?;
        self.note(cpu.id() as u32 + 1);
        Some(self.repaired(cpu, held))
    }
    fn attempt(&self, cpu: &Explorer) -> Option<L::Held> {
        // `robust` does not know the caller of a try. One that gives up soon is in turn already.
        if L::NAME.starts_with("robust") {
            let soon = Deadline::after(cpu, 500);
            let held = self.wait(cpu, |wait| self.lock.lock_until(cpu, wait, soon)).ok()?;
            self.note(cpu.id() as u32 + 1);
            return Some(self.repaired(cpu, held));
        }
        Some(self.repaired(cpu, self.lock.try_lock(cpu)?))
    }
    fn release(&self, cpu: &Explorer, held: L::Held) {
        self.wait(cpu, |wait| self.lock.unlock(cpu, wait, held));
    }
}

fn lock<L: Lock<Explorer> + 'static>(cases: &mut Vec<Case>, policy: Policy) {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let lock = L::new(memory);
        if lock.capacity() < plan.threads {
            return Err(format!("has {} places: take fewer threads", lock.capacity()));
        }
        Ok(exclusion(plan, memory, LockSubject { lock, policy, owner: None, told: Cell::default() }))
    };
    let about = match L::KNOWS_OWNER {
        true => "one at a time; served after a death",
        false => "one at a time",
    };
    let name = format!("lock/{}", L::NAME);
    let naps = naps(L::NAME);
    cases.push(Case { endures_deaths: L::KNOWS_OWNER, naps, ..Case::new(name, about, make) });
}

/// Lock `robust` that hands over with each release, and never finds a waiter dead.
fn forgetful_lock(cases: &mut Vec<Case>, policy: Policy) {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let lock = Robust::<Explorer, 8, 0>::new(memory);
        Ok(exclusion(
            plan,
            memory,
            LockSubject { lock, policy, owner: Some(Cell::new(0)), told: Cell::default() },
        ))
    };
    let name = "planted/robust-forgets-dead-waiters";
    cases.push(Case { endures_deaths: true, naps: true, ..Case::new(name, "wrong on purpose", make) });
}

struct Meeting<B> {
    barrier: B,
    policy: Policy,
}

impl<B: Barrier<Explorer> + 'static> ExploredBarrier for Meeting<B> {
    fn arrive(&self, cpu: &Explorer) {
        let around = ExploredMember::new(cpu);
        let wait = Wait { policy: self.policy, around: &around, budget: BUDGET };
        self.barrier.wait(cpu, cpu.id(), &wait).unwrap_or_else(|error| panic!("arrive: {error}"));
    }
}

fn barrier<B: Barrier<Explorer> + 'static>(cases: &mut Vec<Case>, policy: Policy) {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let barrier = B::new(memory, plan.threads);
        Ok(episodes(plan, memory, Meeting { barrier, policy }))
    };
    cases.push(Case::new(format!("barrier/{}", B::NAME), "no thread leaves before all have come", make));
}

struct QueueSubject<Q> {
    queue: Q,
    policy: Policy,
}

impl<Q: ConcurrentQueue<Explorer>> Container for QueueSubject<Q> {
    fn put(&self, cpu: &Explorer, value: u64) -> Transferred {
        let around = ExploredMember::new(cpu);
        let wait = Wait { policy: self.policy, around: &around, budget: BUDGET };
        match self.queue.enqueue(cpu, &wait, cpu.id(), value) {
            Ok(()) => Transferred::Done,
            Err(QueueError::Full) => Transferred::Full,
            Err(error) => panic!("put: {error}"),
        }
    }
    fn take(&self, cpu: &Explorer) -> Transferred {
        let around = ExploredMember::new(cpu);
        let wait = Wait { policy: self.policy, around: &around, budget: BUDGET };
        match self.queue.dequeue(cpu, &wait, cpu.id()) {
            Ok(Some(value)) => Transferred::Value(value),
            Ok(None) => Transferred::Empty,
            Err(error) => panic!("take: {error}"),
        }
    }
}

fn queue<Q: ConcurrentQueue<Explorer>>(cases: &mut Vec<Case>, policy: Policy) {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let queue = Q::new(memory, ROOM, plan.threads);
        Ok(exchange(plan, memory, QueueSubject { queue, policy }, Order::Fifo, ROOM, 1))
    };
    let planted = Q::NAME.starts_with("planted/");
    let about = match (planted, Q::BLOCKING) {
        (true, _) => "wrong on purpose",
        (_, true) => "linearizable, first in first out",
        (_, false) => "linearizable, first in first out; no thread waits for the dead",
    };
    let name = if planted { Q::NAME.to_string() } else { format!("queue/{}", Q::NAME) };
    let (endures_deaths, naps) = (!Q::BLOCKING && !planted, naps(Q::NAME));
    cases.push(Case { endures_deaths, naps, ..Case::new(name, about, make) });
}
