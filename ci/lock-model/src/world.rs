//! The nodes, the locks and the messages between them.

#[path = "../../../core/mplock/tests/machines/seats.rs"]
mod seats;
mod steps;

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};

use seats::Seats;
use towpath_mplock::{
    Decision, Epoch, FencingToken, Grant, Holding, HomeLock, Message, MessageBody, Node, NodeLock, NodeState,
    Outbox, Protocol, SeatLeaving,
};

pub const NODES: usize = 3;
const LOCKS: usize = 2;
/// Property that some state has: the node that is cut off and another one.
pub const REACHED: &str = "two nodes take themselves for holders";

/// Fault that is planted, to see that a property fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plant {
    /// Deaths bring no new epoch: a token need not increase after one.
    SameEpoch,
    /// A home forgets a waiter that answers its inquiry.
    ForgottenWaiter,
    /// A new home grants a lock before the other survivors have answered.
    EarlyGrant,
    /// A loan of a lock has no bound.
    EndlessLoan,
    /// A lender passes a lock on while a borrower has the seat.
    HastyLender,
}

impl Plant {
    pub const ALL: [(&'static str, Plant); 5] = [
        ("same-epoch", Plant::SameEpoch),
        ("forgotten-waiter", Plant::ForgottenWaiter),
        ("early-grant", Plant::EarlyGrant),
        ("endless-loan", Plant::EndlessLoan),
        ("hasty-lender", Plant::HastyLender),
    ];
}

/// Side of a node that a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Side {
    Home,
    User,
}

type Channel = (Node, Node);

/// Messages on their way; no queue is empty.
type Wires = BTreeMap<Channel, VecDeque<(Side, Message)>>;

/// One lock at its homes and nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LockState {
    /// Home of each node's view: the connected ones agree.
    home_of: [Node; NODES],
    /// The lock at its homes: that of the connected nodes, and one that is cut off.
    homes: BTreeMap<Node, HomeLock>,
    nodes: [NodeLock; NODES],
    wires: Wires,
    /// Number of acquisitions that each node has still to make.
    left: [u8; NODES],
    /// Number of the last request.
    ticket: u32,
    /// Largest token of the grants, but for those of a node since it was cut off.
    largest: FencingToken,
    /// Node that was cut off.
    cut: Option<CutNode>,
    seats: Seats<NODES>,
    /// Number of grants since the lock has gone from one node to another, or was idle.
    bypasses: u32,
}

impl LockState {
    /// Has a node act at the seat of its loan.
    fn at_seat<R>(&mut self, node: usize, act: impl FnOnce(&mut NodeLock, &Cell<u64>) -> R) -> R {
        self.seats.at(&mut self.nodes[node], act)
    }

    fn end_loan(&mut self, node: usize) {
        self.at_seat(node, |lock, seat| lock.end_loan(seat));
    }

    /// Releases a lock, or leaves its seat.
    fn release(&mut self, node: usize, hold: u32, out: &mut Letters) {
        let is_borrowed = self.nodes[node].is_borrowed();
        let leaving = self.at_seat(node, |lock, seat| {
            if is_borrowed {
                lock.return_loan(node as Node, true, false, seat, out)
            } else {
                lock.leave_lent(true, false, hold, seat)
            }
        });
        match leaving {
            SeatLeaving::Open { .. } => {}
            SeatLeaving::Ended if is_borrowed => {}
            SeatLeaving::Ended | SeatLeaving::Lost => {
                if is_borrowed {
                    self.bypasses = 1;
                }
                self.nodes[node].release(true, hold, out);
            }
        }
    }
}

/// Tokens of a node that was cut off.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CutNode {
    node: Node,
    /// Its largest token.
    largest: FencingToken,
    /// True if another node has got the lock since.
    superseded: bool,
}

/// All locks, and the nodes that are there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    protocol: Protocol,
    plant: Option<Plant>,
    locks: [LockState; LOCKS],
    alive: [bool; NODES],
    connected: [bool; NODES],
    epoch: Epoch,
    /// Number of acquisitions for which a lock is kept while others wait.
    hold: u32,
    crashes: u8,
    cuts: u8,
    /// First violation that a step has found.
    pub fault: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    Acquire(usize, usize),
    Release(usize, usize),
    HandOver(usize, usize),
    Lend(usize, usize),
    Borrow(usize, usize),
    Deliver(usize, Channel),
    Crash(usize),
    Cut(usize),
}

/// Case that is checked.
#[derive(Clone, Copy)]
pub struct Locks {
    pub protocol: Protocol,
    pub plant: Option<Plant>,
    /// Number of acquisitions of each lock by each node.
    pub plan: [[u8; NODES]; LOCKS],
    /// Number of acquisitions for which a lock is kept while others wait.
    pub hold: u32,
    /// True if a lock that is kept is lent to the node that waits next.
    pub lends: bool,
    /// True if node 2 only tries.
    pub tries: bool,
    pub crashes: u8,
    pub cuts: u8,
}

/// Outbox of one node: collects its messages.
struct Letters {
    from: Node,
    home: Node,
    all: Vec<(Node, Side, Message)>,
}

impl Outbox for Letters {
    fn to_home(&mut self, message: Message) {
        self.all.push((self.home, Side::Home, message));
    }
    fn to_node(&mut self, node: Node, message: Message) {
        self.all.push((node, Side::User, message));
    }
}

impl World {
    /// Has a state machine of a node act, and puts its messages on their way.
    ///
    /// Messages of a node to itself are handled at once.
    fn act(
        &mut self,
        lock: usize,
        node: Node,
        act: impl FnOnce(&mut LockState, &mut Letters) -> Option<Decision>,
    ) {
        let mut letters =
            Letters { from: node, home: self.locks[lock].home_of[usize::from(node)], all: Vec::new() };
        let decision = act(&mut self.locks[lock], &mut letters);
        self.note(lock, usize::from(node), decision);
        for (to, side, message) in letters.all {
            if to == letters.from {
                self.handle(lock, node, node, side, &message);
            } else if self.connected[usize::from(node)] && self.connected[usize::from(to)] {
                self.locks[lock].wires.entry((node, to)).or_default().push_back((side, message));
            }
        }
    }

    fn handle(&mut self, lock: usize, from: Node, to: Node, side: Side, message: &Message) {
        let mut message = message.clone();
        if self.plant == Some(Plant::ForgottenWaiter)
            && let MessageBody::Report(report) = &mut message.body
            && matches!(report.holding, Holding::Waits { .. })
        {
            report.holding = Holding::Absent;
        }
        let message = &message;
        if matches!(message.body, MessageBody::Grant(_)) {
            self.locks[lock].bypasses = 0;
        }
        self.act(lock, to, |it, out| match side {
            Side::Home => {
                if let Some(home) = it.homes.get_mut(&to) {
                    home.on_message(from, message, out);
                }
                None
            }
            // The carrier takes inquiries of the home only.
            Side::User if message.body == MessageBody::Inquire && it.home_of[usize::from(to)] != from => None,
            Side::User => {
                let node = usize::from(to);
                match message.body {
                    MessageBody::Inquire => it.end_loan(node),
                    MessageBody::Seat(_) => it.at_seat(node, |lock, seat| lock.on_seat(message, seat, out)),
                    _ => {}
                }
                // A borrower that has the seat has the lock by its answer.
                if message.body == MessageBody::Inquire && it.nodes[usize::from(to)].is_borrowed() {
                    it.bypasses = 1;
                }
                let decision = it.nodes[node].on_message(message, out);
                if it.nodes[node].next_to_tell().is_some() {
                    it.nodes[node].tell_next(out);
                }
                decision
            }
        });
    }

    /// Checks a grant.
    fn note(&mut self, lock: usize, node: usize, decision: Option<Decision>) {
        let Some(Decision::Granted(Grant { token, .. })) = decision else { return };
        let hold = self.hold;
        let it = &mut self.locks[lock];
        it.bypasses += 1;
        if it.bypasses > hold.max(1) {
            self.fault = Some("a lock is kept for more acquisitions than it may be");
        }
        let it = &mut self.locks[lock];
        let fault = match &mut it.cut {
            Some(cut) if usize::from(cut.node) == node => {
                let stale = cut.superseded && token >= it.largest;
                let before = std::mem::replace(&mut cut.largest, token);
                stale || token <= before
            }
            cut => {
                let before = cut.as_ref().map_or(FencingToken::NONE, |cut| cut.largest).max(it.largest);
                cut.iter_mut().for_each(|cut| cut.superseded = true);
                it.largest = token;
                token <= before
            }
        };
        if fault {
            self.fault = Some("a token does not increase");
        }
        let holders =
            (0..NODES).filter(|&n| self.connected[n] && matches!(self.state(lock, n), NodeState::Held(_)));
        if holders.count() > 1 {
            self.fault = Some("two connected nodes hold a lock");
        }
    }

    /// Notes that a node is gone for the others.
    fn lose(&mut self, gone: usize) {
        let gone_node = gone as Node;
        self.connected[gone] = false;
        self.epoch += Epoch::from(self.plant != Some(Plant::SameEpoch));
        let epoch = self.epoch;
        let survivors: Vec<Node> = (0..NODES as Node).filter(|&n| self.connected[usize::from(n)]).collect();
        let dead: Vec<Node> = (0..NODES as Node).filter(|&n| !self.connected[usize::from(n)]).collect();
        for lock in 0..LOCKS {
            let it = &mut self.locks[lock];
            it.wires.retain(|&(from, to), _| from != gone_node && to != gone_node);
            if self.alive[gone] {
                let largest = it.nodes[gone].token();
                it.cut = Some(CutNode { node: gone_node, largest, superseded: false });
            }
            let Some(&first) = survivors.first() else { continue };
            let home = it.home_of[usize::from(first)];
            if home != gone_node {
                self.act(lock, home, |it, out| {
                    if let Some(lock) = it.homes.get_mut(&home) {
                        lock.on_death(gone_node, epoch, out);
                    }
                    None
                });
                continue;
            }
            if !self.alive[gone] {
                it.homes.remove(&gone_node);
            }
            let next = survivors.iter().copied().find(|&n| n > gone_node).unwrap_or(first);
            for &node in &survivors {
                it.home_of[usize::from(node)] = next;
                it.nodes[usize::from(node)].note_new_home();
            }
            let asked: &[Node] = match self.plant {
                Some(Plant::EarlyGrant) => &[next],
                _ => &survivors,
            };
            let (protocol, dead) = (self.protocol, &dead);
            self.act(lock, next, |it, out| {
                it.homes.insert(next, HomeLock::take_over(protocol, epoch, asked, dead, true, out));
                None
            });
        }
    }

    fn state(&self, lock: usize, node: usize) -> NodeState {
        self.locks[lock].nodes[node].state()
    }

    fn is_quiet(&self) -> bool {
        let in_use = |lock: usize, node: usize| {
            self.connected[node] && matches!(self.state(lock, node), NodeState::Held(_) | NodeState::Kept)
        };
        self.locks.iter().all(|lock| lock.wires.is_empty())
            && !(0..LOCKS).any(|lock| (0..NODES).any(|node| in_use(lock, node)))
    }

    /// Returns whether a connected node waits.
    fn is_awaited(&self) -> bool {
        (0..LOCKS).any(|lock| {
            (0..NODES)
                .any(|node| self.connected[node] && matches!(self.state(lock, node), NodeState::Waits(_)))
        })
    }
}
