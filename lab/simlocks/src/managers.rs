//! Lock managers in the kernels of a simulated machine's nodes: the carrier of the state
//! machines of `core/mplock`.
//!
//! A thread's system call and the arrival of a message each lead to one step of a state machine;
//! messages to the own node are handled in the same step, but for those of the central protocol,
//! which takes "2 hops and one interrupt at the central lock manager under all circumstances"
//! (paper K, Section 2.4), and whose library consults no local manager. A grant goes to a waiter
//! that polls; everything else interrupts its receiver.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use towpath_mplock::{
    FencingToken, HomeLock, LockRequest, Message, MessageBody, Mode, Node, NodeLock, NodeState, Outbox,
    Protocol,
};
use towpath_sim::{ArrivedMessage, NodeKernel, Reception, Sim};

/// Side of a node that a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LetterSide {
    Home,
    User,
}

/// Message about a lock, to a node.
#[derive(Debug)]
struct Letter {
    lock: usize,
    to: usize,
    side: LetterSide,
    message: Message,
}

/// Outbox of a state machine: collects letters.
struct Letters<'a> {
    lock: usize,
    home: usize,
    all: &'a mut VecDeque<Letter>,
}

impl Outbox for Letters<'_> {
    fn to_home(&mut self, message: Message) {
        self.all.push_back(Letter { lock: self.lock, to: self.home, side: LetterSide::Home, message });
    }
    fn to_node(&mut self, node: Node, message: Message) {
        self.all.push_back(Letter {
            lock: self.lock,
            to: usize::from(node),
            side: LetterSide::User,
            message,
        });
    }
}

/// A lock's state at its home and at all nodes.
struct ManagedLock {
    home: usize,
    at_home: HomeLock,
    at_nodes: LockAtNodes,
}

impl ManagedLock {
    fn holds(&self, node: usize) -> bool {
        self.at_nodes.get(node).is_some_and(|it| matches!(it.0.state(), NodeState::Held(_)))
    }
}

/// State and last ticket of each node that has asked for a lock.
#[derive(Default)]
struct LockAtNodes {
    /// Place of each node's, and 1; 0 if it has not asked.
    places: Vec<u16>,
    states: Vec<(NodeLock, u32)>,
}

impl LockAtNodes {
    fn get(&self, node: usize) -> Option<&(NodeLock, u32)> {
        let place = *self.places.get(node)?;
        self.states.get(usize::from(place).checked_sub(1)?)
    }

    /// Returns a node's, which is made if the node has not asked before.
    fn of(&mut self, node: usize) -> &mut (NodeLock, u32) {
        if self.places.len() <= node {
            self.places.resize(node + 1, 0);
        }
        let place = &mut self.places[node];
        if *place == 0 {
            self.states.push(Default::default());
            *place = self.states.len() as u16;
        }
        &mut self.states[usize::from(*place) - 1]
    }
}

/// Number of forwarded requests that have interrupted a node in a critical section.
#[derive(Clone, Copy, Debug, Default)]
pub struct ForwardsInside {
    /// All of them.
    pub any: u64,
    /// Those for the lock that the node holds.
    pub wanted: u64,
}

/// The lock managers of all nodes.
pub(crate) struct Managers {
    protocol: Protocol,
    locks: RefCell<Vec<ManagedLock>>,
    /// Letters under way, by the tag of their message.
    letters: RefCell<Vec<Option<Letter>>>,
    free: RefCell<Vec<usize>>,
    /// Number of locks that each node holds.
    inside: RefCell<Vec<u32>>,
    forwards_inside: Cell<ForwardsInside>,
}

impl Managers {
    /// Makes the managers of locks with the given homes.
    pub fn new(protocol: Protocol, homes: &[usize], nodes: usize) -> Managers {
        let lock = |&home: &usize| ManagedLock {
            home,
            at_home: HomeLock::new(protocol, 1, FencingToken::NONE),
            at_nodes: LockAtNodes::default(),
        };
        Managers {
            protocol,
            locks: RefCell::new(homes.iter().map(lock).collect()),
            letters: RefCell::default(),
            free: RefCell::default(),
            inside: RefCell::new(vec![0; nodes]),
            forwards_inside: Cell::default(),
        }
    }

    /// Returns which forwarded requests have interrupted a node in a critical section.
    pub fn forwards_inside(&self) -> ForwardsInside {
        self.forwards_inside.get()
    }

    /// Handles a message that arrives.
    pub fn on_arrival(&self, kernel: &mut NodeKernel, arrival: ArrivedMessage) {
        let number = arrival.tag as usize;
        let Some(letter) = self.letters.borrow_mut()[number].take() else { return };
        self.free.borrow_mut().push(number);
        let is_forward = matches!(letter.message.body, MessageBody::Forward { .. });
        if is_forward && self.inside.borrow()[kernel.node()] > 0 {
            let mut inside = self.forwards_inside.get();
            inside.any += 1;
            inside.wanted += u64::from(self.locks.borrow()[letter.lock].holds(kernel.node()));
            self.forwards_inside.set(inside);
        }
        let mut letters = VecDeque::new();
        let granted = self.handle(letter, kernel.node(), arrival.from, &mut letters);
        if self.settle(kernel, letters) || granted {
            kernel.notify();
        }
    }

    /// Acquires a lock.
    pub fn acquire(&self, cpu: &Sim, lock: usize) {
        let is_here = cpu.call_kernel(|kernel| {
            let node = kernel.node();
            let mut letters = VecDeque::new();
            {
                let it = &mut self.locks.borrow_mut()[lock];
                let mut out = Letters { lock, home: it.home, all: &mut letters };
                let (at_node, ticket) = it.at_nodes.of(node);
                *ticket += 1;
                let request = LockRequest::waiting(*ticket, Mode::Exclusive);
                let _ = at_node.acquire(request, &mut out);
            }
            self.settle(kernel, letters);
            self.locks.borrow()[lock].holds(node)
        });
        if !is_here {
            cpu.await_notification();
        }
        let node = cpu.node();
        debug_assert!(self.locks.borrow()[lock].holds(node), "lock {lock} at node {node}");
        self.inside.borrow_mut()[node] += 1;
    }

    /// Releases a lock.
    pub fn release(&self, cpu: &Sim, lock: usize) {
        cpu.call_kernel(|kernel| {
            let node = kernel.node();
            self.inside.borrow_mut()[node] -= 1;
            let mut letters = VecDeque::new();
            {
                let it = &mut self.locks.borrow_mut()[lock];
                let mut out = Letters { lock, home: it.home, all: &mut letters };
                it.at_nodes.of(node).0.release(true, 0, &mut out);
            }
            self.settle(kernel, letters);
        });
    }

    /// Handles this node's letters to itself and sends the others. Returns whether its
    /// thread has got a lock.
    fn settle(&self, kernel: &mut NodeKernel, mut letters: VecDeque<Letter>) -> bool {
        let node = kernel.node();
        let mut granted = false;
        while let Some(letter) = letters.pop_front() {
            if letter.to != node || self.protocol == Protocol::Central {
                self.post(kernel, letter);
            } else {
                granted |= self.handle(letter, node, node, &mut letters);
            }
        }
        granted
    }

    /// Handles a letter to this node. Returns whether its thread has got a lock.
    fn handle(&self, letter: Letter, node: usize, from: usize, answers: &mut VecDeque<Letter>) -> bool {
        let it = &mut self.locks.borrow_mut()[letter.lock];
        let mut out = Letters { lock: letter.lock, home: it.home, all: answers };
        match letter.side {
            LetterSide::Home => {
                it.at_home.on_message(from as Node, &letter.message, &mut out);
                false
            }
            LetterSide::User => it.at_nodes.of(node).0.on_message(&letter.message, &mut out).is_some(),
        }
    }

    fn post(&self, kernel: &mut NodeKernel, letter: Letter) {
        let waits = matches!(letter.message.body, MessageBody::Grant(_));
        let reception = if waits { Reception::Polled } else { Reception::Interrupt };
        let mut letters = self.letters.borrow_mut();
        let number = self.free.borrow_mut().pop().unwrap_or_else(|| {
            letters.push(None);
            letters.len() - 1
        });
        let to = letter.to;
        letters[number] = Some(letter);
        kernel.send(to, number as u64, reception);
    }
}
