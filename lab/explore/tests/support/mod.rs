//! Small subjects, right and wrong, whose faults are known.
#![allow(dead_code)] // Each test takes what it needs.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use towpath_explore::harness::{
    Case, Container, ExploredBarrier, ExploredLock, Order, counting, episodes, exchange, exclusion,
};
use towpath_explore::{ExploredMemory, Explorer, Plan, SubjectRun, Transferred, Word};
use towpath_machine::{Arena, Dcas, FetchOp, LlSc, Ordering, Park, Place, Processor};
use towpath_sync::{Alone, Lock, Policy, Wait};

use Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// Nodes of lists: 0 is none.
pub struct Nodes {
    next: Vec<Word>,
    value: Vec<Word>,
    /// Free nodes, of each thread its own: given back, the oldest first, and never used.
    /// Touched by no other thread, so they need no words.
    free: Vec<RefCell<[VecDeque<u64>; 2]>>,
}

impl Nodes {
    fn new(plan: &Plan, memory: &ExploredMemory, each: usize) -> Nodes {
        let words = |count| (0..count).map(|_| memory.word(Place::NewLine, 0)).collect();
        let count = 2 + plan.threads * each;
        let fresh = |t| (0..each).map(|n| 2 + (t * each + n) as u64).collect::<VecDeque<_>>();
        Nodes {
            next: words(count),
            value: words(count),
            free: (0..plan.threads).map(|t| RefCell::new([VecDeque::new(), fresh(t)])).collect(),
        }
    }
    fn take(&self, cpu: &Explorer) -> Option<u64> {
        self.free[cpu.id()].borrow_mut().iter_mut().find_map(VecDeque::pop_front)
    }
    fn give(&self, cpu: &Explorer, node: u64) {
        self.free[cpu.id()].borrow_mut()[0].push_back(node);
    }
}

const INDEX: u64 = 0xffff;

/// Returns the node under the next number.
fn counted(old: u64, node: u64) -> u64 {
    (old & !INDEX).wrapping_add(INDEX + 1) | node
}

/// Protection of a stack from a node that went and came back.
#[derive(Clone, Copy, PartialEq)]
pub enum Aba {
    Unprotected,
    Counted,
    Reserved,
    Double,
}

/// Treiber's stack.
pub struct Stack {
    top: Word,
    nodes: Nodes,
    how: Aba,
}

impl Stack {
    fn replace(&self, cpu: &Explorer, old: u64, node: u64) -> bool {
        match self.how {
            Aba::Unprotected => cpu.compare_exchange(&self.top, old, node, AcqRel, Acquire).is_ok(),
            Aba::Counted => cpu.compare_exchange(&self.top, old, counted(old, node), AcqRel, Acquire).is_ok(),
            Aba::Reserved => cpu.store_conditional(&self.top, node),
            // Also compares what comes after the top.
            Aba::Double => match old {
                0 => cpu.compare_exchange(&self.top, 0, node, AcqRel, Acquire).is_ok(),
                _ => cpu.dcas([&self.top, &self.nodes.next[old as usize]], [old, node], [node, node]),
            },
        }
    }
    fn top(&self, cpu: &Explorer) -> u64 {
        if self.how == Aba::Reserved { cpu.load_linked(&self.top) } else { cpu.load(&self.top, Acquire) }
    }
}

impl Container for Stack {
    fn put(&self, cpu: &Explorer, value: u64) -> Transferred {
        let Some(node) = self.nodes.take(cpu) else { return Transferred::Full };
        cpu.store(&self.nodes.value[node as usize], value, Relaxed);
        loop {
            let old = self.top(cpu);
            if self.how == Aba::Double {
                cpu.store(&self.nodes.next[node as usize], old, Relaxed);
                if cpu.compare_exchange(&self.top, old, node, AcqRel, Acquire).is_ok() {
                    return Transferred::Done;
                }
                continue;
            }
            cpu.store(&self.nodes.next[node as usize], old & INDEX, Relaxed);
            if self.replace(cpu, old, node) {
                return Transferred::Done;
            }
        }
    }
    fn take(&self, cpu: &Explorer) -> Transferred {
        loop {
            let old = self.top(cpu);
            if old & INDEX == 0 {
                return Transferred::Empty;
            }
            let node = (old & INDEX) as usize;
            let next = cpu.load(&self.nodes.next[node], Relaxed);
            if self.replace(cpu, old, next) {
                let value = cpu.load(&self.nodes.value[node], Relaxed);
                self.nodes.give(cpu, node as u64);
                return Transferred::Value(value);
            }
        }
    }
}

pub fn stack(name: &'static str, how: Aba) -> Case {
    let make = move |plan: &Plan, memory: &ExploredMemory| {
        let top = memory.word(Place::NewLine, 0);
        memory.name(&top, "top");
        let nodes = Nodes::new(plan, memory, 8);
        Ok(exchange(plan, memory, Stack { top, nodes, how }, Order::Lifo, 64, 2))
    };
    Case { endures_deaths: true, ..Case::new(name, "Treiber's stack", make) }
}

/// Michael and Scott's queue, with counted pointers.
pub struct MichaelScott {
    head: Word,
    tail: Word,
    nodes: Nodes,
    /// True if it looks again whether `head` is unchanged.
    looks_again: bool,
}

impl MichaelScott {
    fn cas(&self, cpu: &Explorer, word: &Word, old: u64, node: u64) -> bool {
        cpu.compare_exchange(word, old, counted(old, node), AcqRel, Acquire).is_ok()
    }
    fn next(&self, pointer: u64) -> &Word {
        &self.nodes.next[(pointer & INDEX) as usize]
    }
}

impl Container for MichaelScott {
    fn put(&self, cpu: &Explorer, value: u64) -> Transferred {
        let Some(node) = self.nodes.take(cpu) else { return Transferred::Full };
        cpu.store(&self.nodes.value[node as usize], value, Relaxed);
        let old = cpu.load(self.next(node), Relaxed);
        cpu.store(self.next(node), counted(old, 0), Release);
        loop {
            let tail = cpu.load(&self.tail, Acquire);
            let next = cpu.load(self.next(tail), Acquire);
            if tail != cpu.load(&self.tail, Acquire) {
                continue;
            }
            if next & INDEX != 0 {
                self.cas(cpu, &self.tail, tail, next & INDEX);
            } else if self.cas(cpu, self.next(tail), next, node) {
                self.cas(cpu, &self.tail, tail, node);
                return Transferred::Done;
            }
        }
    }
    fn take(&self, cpu: &Explorer) -> Transferred {
        loop {
            let head = cpu.load(&self.head, Acquire);
            let tail = cpu.load(&self.tail, Acquire);
            let next = cpu.load(self.next(head), Acquire);
            if self.looks_again && head != cpu.load(&self.head, Acquire) {
                continue;
            }
            if head & INDEX == tail & INDEX {
                if next & INDEX == 0 {
                    return Transferred::Empty;
                }
                self.cas(cpu, &self.tail, tail, next & INDEX);
                continue;
            }
            if next & INDEX == 0 {
                continue;
            }
            let value = cpu.load(&self.nodes.value[(next & INDEX) as usize], Relaxed);
            if self.cas(cpu, &self.head, head, next & INDEX) {
                self.nodes.give(cpu, head & INDEX);
                return Transferred::Value(value);
            }
        }
    }
}

pub fn michael_scott(name: &'static str, looks_again: bool) -> Case {
    let make = move |plan: &Plan, memory: &ExploredMemory| {
        let word = |name| {
            let word = memory.word(Place::NewLine, 1);
            memory.name(&word, name);
            word
        };
        let (head, tail) = (word("head"), word("tail"));
        let nodes = Nodes::new(plan, memory, 2);
        Ok(exchange(plan, memory, MichaelScott { head, tail, nodes, looks_again }, Order::Fifo, 64, 0))
    };
    Case { endures_deaths: true, ..Case::new(name, "Michael and Scott's queue", make) }
}

/// Figure 1 of Nikolopoulos & Papatheodorou 1999, word for word: enqueue increments
/// `head`.
pub struct Figure1 {
    head: Word,
    tail: Word,
    slots: Vec<Word>,
    as_printed: bool,
}

impl Container for Figure1 {
    fn put(&self, cpu: &Explorer, value: u64) -> Transferred {
        let end = if self.as_printed { &self.head } else { &self.tail };
        let slot = cpu.fetch_increment(end) as usize % self.slots.len();
        cpu.fetch_store(&self.slots[slot], value);
        Transferred::Done
    }
    fn take(&self, cpu: &Explorer) -> Transferred {
        if cpu.fetch_load(&self.head) == cpu.fetch_load(&self.tail) {
            return Transferred::Empty;
        }
        let slot = cpu.fetch_load(&self.head) as usize % self.slots.len();
        match cpu.fetch_clear(&self.slots[slot]) {
            0 => Transferred::Empty,
            value => {
                cpu.fetch_increment(&self.head);
                Transferred::Value(value)
            }
        }
    }
}

pub fn figure_1(as_printed: bool) -> Case {
    let make = move |plan: &Plan, memory: &ExploredMemory| {
        let word = |name| {
            let word = memory.word(Place::AtMemory(0), 0);
            memory.name(&word, name);
            word
        };
        let (head, tail) = (word("head"), word("tail"));
        let slots = (0..64).map(|_| memory.word(Place::AtMemory(0), 0)).collect();
        Ok(exchange(plan, memory, Figure1 { head, tail, slots, as_printed }, Order::Fifo, 64, 0))
    };
    Case::new("figure-1", "the printed fetch-op queue", make)
}

/// A centralised barrier, with or without a sense.
pub struct Barrier {
    count: Word,
    sense: Word,
    threads: u64,
    has_sense: bool,
}

impl ExploredBarrier for Barrier {
    fn arrive(&self, cpu: &Explorer) {
        if !self.has_sense {
            // Waits for the count to be complete; the last one sets it back, perhaps before all
            // have seen it.
            if cpu.fetch_add(&self.count, 1, AcqRel) + 1 == self.threads {
                cpu.store(&self.count, 0, Release);
            } else {
                let _ = cpu.spin_until(&self.count, Acquire, u64::MAX, |v| v == 0);
            }
            return;
        }
        let sense = cpu.load(&self.sense, Acquire);
        if cpu.fetch_add(&self.count, 1, AcqRel) + 1 == self.threads {
            cpu.store(&self.count, 0, Relaxed);
            cpu.store(&self.sense, sense + 1, Release);
        } else {
            let _ = cpu.spin_until(&self.sense, Acquire, u64::MAX, |v| v != sense);
        }
    }
}

pub fn barrier(has_sense: bool) -> Case {
    let make = move |plan: &Plan, memory: &ExploredMemory| {
        let word = |name| {
            let word = memory.word(Place::NewLine, 0);
            memory.name(&word, name);
            word
        };
        let (count, sense) = (word("count"), word("sense"));
        let threads = plan.threads as u64;
        Ok(episodes(plan, memory, Barrier { count, sense, threads, has_sense }))
    };
    Case::new("barrier", "a centralised barrier", make)
}

/// Fault of a lock on which waiters park.
#[derive(Clone, Copy, PartialEq)]
pub enum Slip {
    None,
    /// Wakes only if it sees sleepers, but looks before it releases.
    LooksTooEarly,
    /// Tests, then sets.
    TestThenSet,
    /// Releases without ordering the holder's accesses.
    Relaxed,
}

/// A lock of two words: whether it is held, and how many sleep or are about to.
pub struct Sleeping {
    held: Word,
    sleepers: Word,
    slip: Slip,
}

impl ExploredLock for Sleeping {
    type Held = ();
    fn acquire(&self, cpu: &Explorer) -> Option<()> {
        if self.slip == Slip::TestThenSet {
            while cpu.load(&self.held, Acquire) != 0 {
                cpu.delay(1);
            }
            cpu.store(&self.held, 1, Relaxed);
            return Some(());
        }
        while cpu.swap(&self.held, 1, Acquire) != 0 {
            cpu.fetch_add(&self.sleepers, 1, AcqRel);
            // Either the holder sees the sleeper, or the sleeper sees the lock free.
            cpu.fence(SeqCst);
            cpu.park(&self.held, 1, u64::MAX);
            cpu.fetch_add(&self.sleepers, u64::MAX, AcqRel);
        }
        Some(())
    }
    fn release(&self, cpu: &Explorer, _held: ()) {
        match self.slip {
            Slip::LooksTooEarly => {
                let sleepers = cpu.load(&self.sleepers, Acquire);
                cpu.store(&self.held, 0, Release);
                if sleepers > 0 {
                    cpu.wake(&self.held, u32::MAX);
                }
            }
            Slip::Relaxed => {
                cpu.store(&self.held, 0, Relaxed);
                cpu.wake(&self.held, u32::MAX);
            }
            Slip::None | Slip::TestThenSet => {
                cpu.store(&self.held, 0, Release);
                cpu.fence(SeqCst);
                if cpu.load(&self.sleepers, Acquire) > 0 {
                    cpu.wake(&self.held, u32::MAX);
                }
            }
        }
    }
}

pub fn sleeping(slip: Slip) -> Case {
    let make = move |plan: &Plan, memory: &ExploredMemory| {
        let word = |name| {
            let word = memory.word(Place::NewLine, 0);
            memory.name(&word, name);
            word
        };
        let (held, sleepers) = (word("held"), word("sleepers"));
        Ok(exclusion(plan, memory, Sleeping { held, sleepers, slip }))
    };
    Case::new("sleeping", "a lock on which waiters park", make)
}

/// Any lock of `sync`, under a policy.
pub struct Under<L> {
    lock: L,
    policy: Policy,
}

impl<L: Lock<Explorer> + 'static> ExploredLock for Under<L> {
    type Held = L::Held;
    fn acquire(&self, cpu: &Explorer) -> Option<L::Held> {
        self.lock.lock(cpu, &self.wait()).ok()
    }
    fn attempt(&self, cpu: &Explorer) -> Option<L::Held> {
        self.lock.try_lock(cpu)
    }
    fn release(&self, cpu: &Explorer, held: L::Held) {
        self.lock.unlock(cpu, &self.wait(), held);
    }
}

impl<L> Under<L> {
    fn wait(&self) -> Wait<'static> {
        Wait { policy: self.policy, around: &Alone, budget: 5_000 }
    }
}

pub fn lock<L: Lock<Explorer> + 'static>(policy: Policy) -> Case {
    let make = move |plan: &Plan, memory: &ExploredMemory| {
        let lock = L::new(memory);
        Ok(exclusion(plan, memory, Under { lock, policy }))
    };
    Case { naps: L::NAME == "robust", ..Case::new(L::NAME, "a lock", make) }
}

/// Two locks, taken in different orders.
pub struct Crossed<L> {
    locks: [L; 2],
    ordered: bool,
}

impl<L: Lock<Explorer> + 'static> ExploredLock for Crossed<L> {
    type Held = [L::Held; 2];
    fn acquire(&self, cpu: &Explorer) -> Option<Self::Held> {
        let wait = Wait { policy: Policy::Spin, around: &Alone, budget: 0 };
        let first = if self.ordered { 0 } else { cpu.id() % 2 };
        let one = self.locks[first].lock(cpu, &wait).ok()?;
        let other = self.locks[1 - first].lock(cpu, &wait).ok()?;
        Some(if first == 0 { [one, other] } else { [other, one] })
    }
    fn release(&self, cpu: &Explorer, held: Self::Held) {
        let wait = Wait { policy: Policy::Spin, around: &Alone, budget: 0 };
        for (lock, held) in self.locks.iter().zip(held) {
            lock.unlock(cpu, &wait, held);
        }
    }
}

pub fn crossed<L: Lock<Explorer> + 'static>(ordered: bool) -> Case {
    let make = move |plan: &Plan, memory: &ExploredMemory| {
        let locks = [L::new(memory), L::new(memory)];
        Ok(exclusion(plan, memory, Crossed { locks, ordered }))
    };
    Case::new("crossed", "two locks", make)
}

/// A counter, by the operation that is given.
pub fn counter(increment: fn(&Explorer, &Word) -> u64) -> Case {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let count = memory.word(Place::NewLine, 0);
        memory.name(&count, "count");
        Ok(counting(plan, move |cpu| increment(cpu, &count)))
    };
    Case { endures_deaths: true, ..Case::new("counter", "a counter", make) }
}

pub fn load_then_store(cpu: &Explorer, count: &Word) -> u64 {
    let old = cpu.load(count, Acquire);
    cpu.store(count, old + 1, Release);
    old
}

pub fn linked(cpu: &Explorer, count: &Word) -> u64 {
    loop {
        let old = cpu.load_linked(count);
        if cpu.store_conditional(count, old + 1) {
            return old;
        }
    }
}
