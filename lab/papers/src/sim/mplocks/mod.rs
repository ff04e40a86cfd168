//! Paper K (Kuo, Carter & Kuramkote 1998): locks by message against locks in shared
//! memory, on `avalanche`.
//!
//! * `managers.rs`: lock managers in the nodes' kernels, over the state machines of `core/mplock`.
//! * `states.rs`: an acquisition in each of the paper's three states (Table 1).
//! * `patterns.rs`: programs that use locks: one lock, many, bursts, and two small kernels.

mod managers;
mod patterns;
mod states;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use managers::Managers;
pub use patterns::{PATTERNS, Pattern, run};
pub use states::{Cost, State, acquisition, measure};
use towpath_machine::{Arena, Place};
use towpath_mplock::Protocol;
use towpath_sim::parameters::NO_MESSAGES;
use towpath_sim::{Parameters, Sim, SimArena, SimBytes, SimCell, SimWord, Simulation};
use towpath_sync::locks::{Mcs, McsHeld, Reactive, ReactiveHeld, TestAndTestAndSet};
use towpath_sync::{Lock, Policy};

use super::Patience;

/// Most nodes.
const NODES: usize = 64;

/// Kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Test&test&set in shared memory.
    TestAndTestAndSet,
    /// MCS in shared memory.
    Mcs,
    /// Lim & Agarwal's in shared memory.
    Reactive,
    /// By message.
    Message(Protocol),
}

impl Scheme {
    /// All, in the paper's order.
    pub const ALL: [Scheme; 6] = [
        Scheme::TestAndTestAndSet,
        Scheme::Mcs,
        Scheme::Reactive,
        Scheme::Message(Protocol::Central),
        Scheme::Message(Protocol::Distributed),
        Scheme::Message(Protocol::Reactive),
    ];

    /// Its name, as users call it.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::TestAndTestAndSet => "test-and-test-and-set",
            Scheme::Mcs => "mcs",
            Scheme::Reactive => "reactive",
            Scheme::Message(Protocol::Central) => "mp-central",
            Scheme::Message(Protocol::Distributed) => "mp-distributed",
            Scheme::Message(Protocol::Reactive) => "mp-reactive",
        }
    }

    /// Returns the reason why a machine can't have it; `None` if it can.
    pub fn lacks(self, machine: &Parameters) -> Option<String> {
        let lacks = matches!(self, Scheme::Message(_)) && machine.messages == NO_MESSAGES;
        lacks.then(|| {
            format!(
                "{} has no messages, which `{}` needs: ask for --algorithms test-and-test-and-set,mcs,reactive, or take a machine that has some, as avalanche has by message.handler=kernel",
                machine.name,
                self.name()
            )
        })
    }
}

/// Placement of locks on nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HomePlacement {
    /// Lock k at node k modulo the nodes, entries of queues at their owners: the paper's.
    InTurn,
    /// All locks at node 0.
    One,
    /// The lock at a node, and a queue's entries at the nodes after it, in turn.
    From(usize),
}

/// Arena that places the lines of one lock in shared memory.
struct LockArena<'a> {
    arena: &'a SimArena,
    home: usize,
    homes: HomePlacement,
    nodes: usize,
    lines: Cell<usize>,
}

impl LockArena<'_> {
    fn place(&self, place: Place) -> Place {
        if place == Place::SameLine {
            return place;
        }
        let line = self.lines.replace(self.lines.get() + 1);
        let node = match self.homes {
            // A queue's entries follow the lock's own lines.
            HomePlacement::From(first) => first + line,
            _ if line == 0 => self.home,
            _ => line - 1,
        };
        Place::Home((node % self.nodes) as u32)
    }
}

impl Arena<Sim> for LockArena<'_> {
    fn word(&self, place: Place, value: u64) -> SimWord {
        self.arena.word(self.place(place), value)
    }
    fn cell(&self, place: Place, value: u64) -> SimCell {
        self.arena.cell(self.place(place), value)
    }
    fn bytes(&self, len: usize) -> SimBytes {
        self.arena.bytes(len)
    }
}

/// A lock in shared memory.
enum SharedLock {
    TestAndTestAndSet(TestAndTestAndSet<Sim>),
    Mcs(Mcs<Sim, NODES>),
    Reactive(Reactive<Sim, NODES>),
}

/// State of a holder.
enum HeldState {
    Nothing,
    Mcs(McsHeld),
    Reactive(ReactiveHeld),
}

/// State of a lock when a thread asks for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mix {
    /// Free, and last held by the same node.
    pub local_idle: u64,
    /// Free, and last held by another node (or by none).
    pub remote_idle: u64,
    /// Held.
    pub busy: u64,
}

/// Locks of one kind on a simulated machine.
pub(super) struct LockTable {
    locks: Vec<SharedLock>,
    managers: Option<Rc<Managers>>,
    patience: Patience,
    /// By node: its thread's hold. A thread holds one lock at a time.
    held: RefCell<Vec<HeldState>>,
    /// By lock: its last holder, and whether that still has it.
    last: RefCell<Vec<(usize, bool)>>,
    mix: Cell<Mix>,
}

impl LockTable {
    /// Makes so many locks on the nodes of a simulation.
    pub fn new(
        simulation: &mut Simulation,
        machine: &Parameters,
        scheme: Scheme,
        count: usize,
        homes: HomePlacement,
    ) -> LockTable {
        let nodes = simulation.processors();
        let home = |k: usize| match homes {
            HomePlacement::InTurn => k % nodes,
            HomePlacement::One => 0,
            HomePlacement::From(first) => (first + k) % nodes,
        };
        let arena = simulation.arena();
        let shared = |k: usize| {
            let arena = LockArena { arena: &arena, home: home(k), homes, nodes, lines: Cell::new(0) };
            Some(match scheme {
                Scheme::TestAndTestAndSet => SharedLock::TestAndTestAndSet(Lock::new(&arena)),
                Scheme::Mcs => SharedLock::Mcs(Lock::new(&arena)),
                Scheme::Reactive => SharedLock::Reactive(Lock::new(&arena)),
                Scheme::Message(_) => return None,
            })
        };
        let managers = match scheme {
            Scheme::Message(protocol) => {
                let homes: Vec<usize> = (0..count).map(home).collect();
                let managers = Rc::new(Managers::new(protocol, &homes, nodes));
                let handler = Rc::clone(&managers);
                simulation.set_handler(move |kernel, arrival| handler.on_arrival(kernel, arrival));
                Some(managers)
            }
            _ => None,
        };
        LockTable {
            locks: (0..count).filter_map(shared).collect(),
            managers,
            patience: Patience::new(machine, Policy::Spin),
            held: RefCell::new((0..nodes).map(|_| HeldState::Nothing).collect()),
            last: RefCell::new(vec![(usize::MAX, false); count]),
            mix: Cell::default(),
        }
    }

    /// Acquires a lock, of which a thread holds one at a time.
    pub fn acquire(&self, cpu: &Sim, k: usize) {
        let node = cpu.node();
        {
            cpu.await_now();
            let (last, is_held) = self.last.borrow()[k];
            let mut mix = self.mix.get();
            match () {
                () if is_held => mix.busy += 1,
                () if last == node => mix.local_idle += 1,
                () => mix.remote_idle += 1,
            }
            self.mix.set(mix);
        }
        let holding = match (&self.managers, self.locks.get(k)) {
            (Some(managers), _) => {
                managers.acquire(cpu, k);
                HeldState::Nothing
            }
            (None, Some(lock)) => self.lock(cpu, lock),
            (None, None) => HeldState::Nothing,
        };
        self.held.borrow_mut()[node] = holding;
        self.last.borrow_mut()[k] = (node, true);
        cpu.mark_section(true);
    }

    fn lock(&self, cpu: &Sim, lock: &SharedLock) -> HeldState {
        const WORKS: &str = "a lock that no holder poisons or abandons";
        match lock {
            SharedLock::TestAndTestAndSet(lock) => {
                lock.lock(cpu, &self.patience).expect(WORKS);
                HeldState::Nothing
            }
            SharedLock::Mcs(lock) => HeldState::Mcs(lock.lock(cpu, &self.patience).expect(WORKS)),
            SharedLock::Reactive(lock) => HeldState::Reactive(lock.lock(cpu, &self.patience).expect(WORKS)),
        }
    }

    /// Releases a lock.
    pub fn release(&self, cpu: &Sim, k: usize) {
        let node = cpu.node();
        cpu.mark_section(false);
        self.last.borrow_mut()[k] = (node, false);
        if let Some(managers) = &self.managers {
            return managers.release(cpu, k);
        }
        let held = std::mem::replace(&mut self.held.borrow_mut()[node], HeldState::Nothing);
        match (&self.locks[k], held) {
            (SharedLock::TestAndTestAndSet(lock), _) => lock.unlock(cpu, &self.patience, ()),
            (SharedLock::Mcs(lock), HeldState::Mcs(held)) => lock.unlock(cpu, &self.patience, held),
            (SharedLock::Reactive(lock), HeldState::Reactive(held)) => lock.unlock(cpu, &self.patience, held),
            _ => {}
        }
    }

    /// States in which the locks were asked for.
    pub fn mix(&self) -> Mix {
        self.mix.get()
    }

    /// Number of forwarded requests that have interrupted a node in a critical section.
    pub fn forwards_inside(&self) -> u64 {
        self.managers.as_ref().map_or(0, |managers| managers.forwards_inside())
    }
}

/// Computation of so many cycles.
fn cycles(cpu: &Sim, machine_cycle: u64, count: u64) {
    cpu.compute(count * machine_cycle);
}

#[cfg(test)]
mod tests;
