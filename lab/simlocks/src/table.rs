//! A table of locks of one kind on a simulated machine: by message, or in shared memory.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use towpath_machine::{Arena, Place};
use towpath_mplock::Protocol;
use towpath_sim::parameters::{LOCKS_AT_FIRST, NO_MESSAGES};
use towpath_sim::{Parameters, Sim, SimArena, SimBytes, SimCell, SimWord, Simulation};
use towpath_sync::locks::{Mcs, McsHeld, ModeWord, Reactive, ReactiveHeld};
use towpath_sync::{Lock, Policy};

use crate::backing_off::BackingOff;
use crate::managers::{ForwardsInside, Managers};
use crate::one_sided::OneSidedLock;
use crate::patience::Patience;

/// Most nodes of the usual locks.
const NODES: usize = 64;
/// Most nodes of all.
pub const MOST_NODES: usize = 1024;

/// Kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Test&test&set in shared memory.
    TestAndTestAndSet,
    /// MCS in shared memory.
    Mcs,
    /// Lim & Agarwal's in shared memory, with their mode variable.
    Reactive,
    /// Lock by message.
    Message(Protocol),
    /// Spinlock by one-sided operations.
    OneSidedSpinlock,
    /// Ticket lock by one-sided operations.
    OneSidedTicket,
}

impl Scheme {
    /// The paper's, in its order.
    pub const PAPER: [Scheme; 6] = [
        Scheme::TestAndTestAndSet,
        Scheme::Mcs,
        Scheme::Reactive,
        Scheme::Message(Protocol::Central),
        Scheme::Message(Protocol::Distributed),
        Scheme::Message(Protocol::Reactive),
    ];

    /// All of them.
    pub const ALL: [Scheme; 8] = [
        Scheme::PAPER[0],
        Scheme::PAPER[1],
        Scheme::PAPER[2],
        Scheme::PAPER[3],
        Scheme::PAPER[4],
        Scheme::PAPER[5],
        Scheme::OneSidedSpinlock,
        Scheme::OneSidedTicket,
    ];

    /// Returns those that are usual on a machine: on the paper's machine the paper's.
    pub fn usual(machine: &Parameters) -> Vec<Scheme> {
        let all = if machine.name.starts_with("avalanche") { &Scheme::PAPER[..] } else { &Scheme::ALL };
        all.iter().copied().filter(|scheme| scheme.lacks(machine).is_none()).collect()
    }

    /// Its name, as users call it.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::TestAndTestAndSet => "test-and-test-and-set",
            Scheme::Mcs => "mcs",
            Scheme::Reactive => "reactive",
            Scheme::Message(Protocol::Central) => "mp-central",
            Scheme::Message(Protocol::Distributed) => "mp-distributed",
            Scheme::Message(Protocol::Reactive) => "mp-reactive",
            Scheme::OneSidedSpinlock => "one-sided-spinlock",
            Scheme::OneSidedTicket => "one-sided-ticket",
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
    /// Number of lines before the queue's entries.
    own: usize,
    lines: Cell<usize>,
    /// Word that stands for those that no node uses.
    unused: Cell<Option<SimWord>>,
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
            _ if line < self.own => self.home,
            _ => line - self.own,
        };
        Place::Home((node % self.nodes) as u32)
    }
}

impl Arena<Sim> for LockArena<'_> {
    fn word(&self, place: Place, value: u64) -> SimWord {
        let place = self.place(place);
        if self.lines.get() <= self.own + self.nodes {
            return self.arena.word(place, value);
        }
        // Entries of nodes that there are not.
        let word = self.unused.get().unwrap_or_else(|| self.arena.word(place, value));
        self.unused.set(Some(word));
        word
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
    TestAndTestAndSet(BackingOff),
    Mcs(Mcs<Sim, NODES>),
    Reactive(Reactive<Sim, NODES, 4, 16, ModeWord<Sim>>),
    /// MCS lock for more nodes.
    LargeMcs(Box<Mcs<Sim, MOST_NODES>>),
    /// Reactive lock for more nodes.
    LargeReactive(Box<Reactive<Sim, MOST_NODES, 4, 16, ModeWord<Sim>>>),
    OneSided(OneSidedLock),
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
    /// Held by another node, or on its way to one that has asked before.
    pub busy: u64,
}

/// Locks of one kind on a simulated machine.
pub struct LockTable {
    locks: Vec<SharedLock>,
    managers: Option<Rc<Managers>>,
    patience: Patience,
    /// Hold of each node's thread. A thread holds one lock at a time.
    held: RefCell<Vec<HeldState>>,
    /// Last holder of each lock, and the number of nodes that hold it or wait for it.
    last: RefCell<Vec<(usize, u32)>>,
    /// True for each lock in whose critical section a node is.
    inside: RefCell<Vec<bool>>,
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
        let at_first = homes == HomePlacement::InTurn && machine.lock_homes == LOCKS_AT_FIRST;
        let shared = |k: usize| {
            let home = if at_first { 0 } else { home(k) };
            let (lines, unused) = (Cell::new(0), Cell::new(None));
            let own = if scheme == Scheme::Reactive { 3 } else { 1 };
            let at_memory = &arena;
            let arena = LockArena { arena: &arena, home, homes, nodes, own, lines, unused };
            Some(match scheme {
                Scheme::Mcs if nodes > NODES => SharedLock::LargeMcs(Box::new(Lock::new(&arena))),
                Scheme::Reactive if nodes > NODES => SharedLock::LargeReactive(Box::new(Lock::new(&arena))),
                Scheme::OneSidedSpinlock => SharedLock::OneSided(OneSidedLock::new(at_memory, home, false)),
                Scheme::OneSidedTicket => SharedLock::OneSided(OneSidedLock::new(at_memory, home, true)),
                Scheme::TestAndTestAndSet => SharedLock::TestAndTestAndSet(BackingOff::new(&arena)),
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
            patience: Patience::new(machine, Policy::Spin)
                .at_memory(matches!(scheme, Scheme::OneSidedSpinlock | Scheme::OneSidedTicket)),
            held: RefCell::new((0..nodes).map(|_| HeldState::Nothing).collect()),
            last: RefCell::new(vec![(usize::MAX, 0); count]),
            inside: RefCell::new(vec![false; count]),
            mix: Cell::default(),
        }
    }

    /// Acquires a lock, of which a thread holds one at a time.
    ///
    /// # Panics
    ///
    /// If two nodes hold it.
    pub fn acquire(&self, cpu: &Sim, k: usize) {
        let node = cpu.node();
        {
            cpu.await_now();
            let (last, claims) = &mut self.last.borrow_mut()[k];
            let mut mix = self.mix.get();
            *claims += 1;
            match () {
                () if *claims > 1 => mix.busy += 1,
                () if *last == node => mix.local_idle += 1,
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
        let others = std::mem::replace(&mut self.inside.borrow_mut()[k], true);
        assert!(!others, "lock {k} has two holders");
        self.held.borrow_mut()[node] = holding;
        self.last.borrow_mut()[k].0 = node;
        cpu.mark_section(true);
    }

    fn lock(&self, cpu: &Sim, lock: &SharedLock) -> HeldState {
        const WORKS: &str = "a lock that no holder poisons or abandons";
        match lock {
            SharedLock::TestAndTestAndSet(lock) => {
                lock.lock(cpu, &self.patience);
                HeldState::Nothing
            }
            SharedLock::Mcs(lock) => HeldState::Mcs(lock.lock(cpu, &self.patience).expect(WORKS)),
            SharedLock::Reactive(lock) => HeldState::Reactive(lock.lock(cpu, &self.patience).expect(WORKS)),
            SharedLock::LargeMcs(lock) => HeldState::Mcs(lock.lock(cpu, &self.patience).expect(WORKS)),
            SharedLock::LargeReactive(lock) => {
                HeldState::Reactive(lock.lock(cpu, &self.patience).expect(WORKS))
            }
            SharedLock::OneSided(lock) => {
                lock.lock(cpu, &self.patience);
                HeldState::Nothing
            }
        }
    }

    /// Releases a lock.
    pub fn release(&self, cpu: &Sim, k: usize) {
        let node = cpu.node();
        cpu.mark_section(false);
        self.last.borrow_mut()[k].1 -= 1;
        self.inside.borrow_mut()[k] = false;
        if let Some(managers) = &self.managers {
            return managers.release(cpu, k);
        }
        let held = std::mem::replace(&mut self.held.borrow_mut()[node], HeldState::Nothing);
        match (&self.locks[k], held) {
            (SharedLock::TestAndTestAndSet(lock), _) => lock.unlock(cpu),
            (SharedLock::OneSided(lock), _) => lock.unlock(cpu),
            (SharedLock::LargeMcs(lock), HeldState::Mcs(held)) => lock.unlock(cpu, &self.patience, held),
            (SharedLock::LargeReactive(lock), HeldState::Reactive(held)) => {
                lock.unlock(cpu, &self.patience, held);
            }
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
    pub fn forwards_inside(&self) -> ForwardsInside {
        self.managers.as_ref().map(|managers| managers.forwards_inside()).unwrap_or_default()
    }
}
