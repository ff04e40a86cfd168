//! Locks by message under the checker stateright.
//!
//! All orders of messages of three nodes and two locks, with a crash, and with a node that is cut
//! off. Lock 0 has its home at node 0, lock 1 at node 1. A node that crashes or is cut off is gone
//! for the others: messages from and to it are lost, its locks get the next node as home, and the
//! epoch grows. A node that is cut off does not know it: it goes on with what it has, as a node and
//! as a home. So it may take itself for a holder beside another one; the token tells them apart.
//!
//! | property | holds if |
//! | --- | --- |
//! | exclusion | of the nodes that are connected, one at most holds a lock |
//! | tokens increase | each grant has a larger token than all before, also than those of a node that is cut off; its own are smaller than all that others have got since |
//! | no lost waiter | where nothing is under way and no lock is in use, no connected node waits |
//! | bounded bypass | a node that keeps a lock, and those that it lends it to, have it so often at most as they may before it is passed on |
//! | eventual grant | each history ends with all requests of connected nodes granted |
//!
//! Usage: `lock-model [short|full] [--plant FAULT]`. Exit code 1 if a property fails; a shortest
//! history is printed. With a planted fault ([`Plant`]) exit code 0 says that a property failed,
//! and 1 that the fault was not found.
//!
//! Not checked: that a lock's data are the last ones (`core/mplock/tests/machines/` does),
//! readers, and the carriers. An *eventual grant* that fails only on histories which meet others
//! of the same state may be missed: stateright follows each state once.

#[path = "../../../core/mplock/tests/machines/seats.rs"]
mod seats;

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use seats::Seats;
use stateright::{Checker, HasDiscoveries, Model, Property};
use towpath_mplock::{
    Decision, Epoch, FencingToken, Grant, Holding, HomeLock, SeatLeaving, LoanEntry, LockRequest, Message,
    MessageBody, Mode, Node, NodeLock, NodeState, Outbox, Protocol,
};

const NODES: usize = 3;
const LOCKS: usize = 2;
/// Property that some state has: the node that is cut off and another one.
const REACHED: &str = "two nodes take themselves for holders";

/// Fault that is planted, to see that a property fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Plant {
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
    const ALL: [(&'static str, Plant); 5] = [
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
struct World {
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
    fault: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
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
struct Locks {
    protocol: Protocol,
    plant: Option<Plant>,
    /// Number of acquisitions of each lock by each node.
    plan: [[u8; NODES]; LOCKS],
    /// Number of acquisitions for which a lock is kept while others wait.
    hold: u32,
    /// True if a lock that is kept is lent to the node that waits next.
    lends: bool,
    /// True if node 2 only tries.
    tries: bool,
    crashes: u8,
    cuts: u8,
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

impl Model for Locks {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let lock = |number: usize| {
            let home = number as Node;
            LockState {
                home_of: [home; NODES],
                homes: BTreeMap::from([(home, HomeLock::new(self.protocol, 1, FencingToken::NONE))]),
                nodes: Default::default(),
                wires: Wires::new(),
                left: self.plan[number],
                ticket: 0,
                largest: FencingToken::NONE,
                cut: None,
                seats: Seats::new(),
                bypasses: 0,
            }
        };
        vec![World {
            protocol: self.protocol,
            plant: self.plant,
            locks: [lock(0), lock(1)],
            alive: [true; NODES],
            connected: [true; NODES],
            epoch: 1,
            hold: self.hold,
            crashes: self.crashes,
            cuts: self.cuts,
            fault: None,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        for (number, lock) in world.locks.iter().enumerate() {
            steps.extend(lock.wires.keys().map(|&channel| Step::Deliver(number, channel)));
            for node in (0..NODES).filter(|&node| world.alive[node]) {
                match lock.nodes[node].state() {
                    NodeState::Held(_) => steps.push(Step::Release(number, node)),
                    NodeState::Waits(_) => {}
                    _ if lock.left[node] > 0 => steps.push(Step::Acquire(number, node)),
                    _ => {}
                }
                if lock.nodes[node].state() == NodeState::Kept {
                    steps.push(Step::HandOver(number, node));
                }
                if self.lends && lock.nodes[node].possible_borrower().is_some() {
                    steps.push(Step::Lend(number, node));
                }
                let may_use = lock.left[node] > 0 || matches!(lock.nodes[node].state(), NodeState::Waits(_));
                if lock.nodes[node].offer().is_some() && !lock.nodes[node].is_borrowed() && may_use {
                    steps.push(Step::Borrow(number, node));
                }
            }
        }
        for node in (0..NODES).filter(|&node| world.connected[node]) {
            if world.crashes > 0 {
                steps.push(Step::Crash(node));
            }
            if world.cuts > 0 {
                steps.push(Step::Cut(node));
            }
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut world = world.clone();
        match step {
            Step::Acquire(lock, node) => world.act(lock, node as Node, |it, out| {
                it.left[node] -= 1;
                it.ticket += 1;
                if it.nodes[node].state() == NodeState::Cached {
                    it.bypasses = 0;
                }
                if it.nodes[node].lent().is_some() {
                    let entry = it.at_seat(node, |lock, seat| lock.enter_lent(seat, out));
                    if entry == LoanEntry::Busy {
                        // It waits for the seat, and tries again.
                        it.left[node] += 1;
                        it.ticket -= 1;
                        return None;
                    }
                }
                let (ticket, tries) = (it.ticket, self.tries && node == 2);
                it.nodes[node].acquire(LockRequest { ticket, mode: Mode::Exclusive, tries }, out)
            }),
            Step::Release(lock, node) => world.act(lock, node as Node, |it, out| {
                let lent = it.nodes[node].lent().is_some();
                let endless = lent && self.plant == Some(Plant::EndlessLoan);
                it.release(node, if endless { u32::MAX } else { self.hold }, out);
                None
            }),
            Step::Lend(lock, node) => world.act(lock, node as Node, |it, out| {
                let endless = self.plant == Some(Plant::EndlessLoan);
                let hold = if endless { u32::MAX } else { self.hold };
                let loan = it.seats.open(node as Node, &it.nodes[node], hold);
                it.nodes[node].lend(loan, out);
                None
            }),
            Step::Borrow(lock, node) => world.act(lock, node as Node, |it, _| {
                let waits = matches!(it.nodes[node].state(), NodeState::Waits(_));
                let decision =
                    it.at_seat(node, |lock, seat| lock.borrow(node as Node, Mode::Exclusive, seat));
                let decision = decision.ok();
                it.left[node] -= u8::from(decision.is_some() && !waits);
                decision
            }),
            Step::HandOver(lock, node) => world.act(lock, node as Node, |it, out| {
                it.at_seat(node, |lock, seat| {
                    if !lock.close_loan(seat) && self.plant == Some(Plant::HastyLender) {
                        seat.set(0);
                        lock.close_loan(seat);
                    }
                });
                it.nodes[node].hand_over(out);
                None
            }),
            Step::Deliver(lock, channel) => {
                let queue = world.locks[lock].wires.get_mut(&channel)?;
                let (side, message) = queue.pop_front()?;
                if queue.is_empty() {
                    world.locks[lock].wires.remove(&channel);
                }
                world.handle(lock, channel.0, channel.1, side, &message);
            }
            Step::Crash(node) => {
                world.crashes -= 1;
                world.alive[node] = false;
                world.lose(node);
            }
            Step::Cut(node) => {
                world.cuts -= 1;
                world.lose(node);
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("exclusion; tokens increase; bounded bypass", |_, world: &World| {
                world.fault.is_none()
            }),
            Property::always("no lost waiter", |_, world: &World| !world.is_quiet() || !world.is_awaited()),
            Property::eventually("eventual grant", |_, world: &World| {
                let is_done = |lock: &LockState| (0..NODES).all(|n| !world.connected[n] || lock.left[n] == 0);
                world.locks.iter().all(is_done) && !world.is_awaited()
            }),
            Property::sometimes(REACHED, |_, world: &World| {
                (0..LOCKS).any(|lock| {
                    let holds = |&node: &usize| {
                        world.alive[node] && matches!(world.state(lock, node), NodeState::Held(_))
                    };
                    (0..NODES).filter(holds).count() > 1
                })
            }),
        ]
    }
}

fn main() {
    let usage = || -> ! {
        let names = Plant::ALL.map(|(name, _)| name).join(", ");
        eprintln!("usage: lock-model [short | full] [--plant FAULT]; faults: {names}");
        std::process::exit(2)
    };
    let (mut full, mut plant) = (false, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "short" => full = false,
            "full" => full = true,
            "--plant" => {
                let name = arguments.next().unwrap_or_default();
                let known = Plant::ALL.into_iter().find(|(known, _)| *known == name);
                plant = Some(known.unwrap_or_else(|| usage()).1);
            }
            _ => usage(),
        }
    }
    // Of the last one only loans: to a node that is not the next one.
    let short = [[[0, 1, 1], [0, 1, 1]], [[0, 2, 2], [0, 0, 0]], [[1, 1, 1], [0, 0, 0]]];
    let more =
        [[[1, 1, 1], [0, 0, 1]], [[0, 1, 1], [1, 1, 1]], [[1, 2, 2], [0, 0, 0]], [[2, 2, 1], [0, 0, 0]]];
    let plans = short.iter().chain(more.iter().filter(|_| full));
    println!(
        "{:<13}{:<34}{:>6}{:>7}{:>7}{:>12}{:>10}",
        "protocol", "acquisitions of locks 0 and 1", "hold", "lends", "tries", "states", "seconds"
    );
    let mut failed = false;
    let of_loans = matches!(plant, Some(Plant::EndlessLoan | Plant::HastyLender));
    for &plan in plans {
        for protocol in Protocol::ALL {
            for (hold, lends, tries) in
                [(0, false, false), (2, false, false), (0, false, true), (2, true, false)]
            {
                // Loans at two locks at once have millions of states.
                let is_long = lends && plan[1] != [0; NODES] && !full;
                let is_other = (of_loans || plan == short[2]) && !lends;
                if (hold == 0 || protocol != Protocol::Central) && !is_long && !is_other {
                    let case = Locks { protocol, plant, plan, hold, lends, tries, crashes: 1, cuts: 1 };
                    failed |= check(case);
                    if failed && plant.is_some() {
                        return println!("the planted fault was found");
                    }
                }
            }
        }
    }
    if plant.is_some() {
        println!("the planted fault was not found");
    }
    std::process::exit((failed || plant.is_some()).into());
}

/// Checks a case. Returns whether a property does not hold.
fn check(case: Locks) -> bool {
    let start = Instant::now();
    let Locks { protocol, plan, hold, lends, tries, .. } = case;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let checker = case.checker().finish_when(HasDiscoveries::AnyFailures).threads(threads).spawn_bfs().join();
    let (states, seconds) = (checker.unique_state_count(), start.elapsed().as_secs_f64());
    let plan = format!("{plan:?}");
    println!("{:<13}{plan:<34}{hold:>6}{lends:>7}{tries:>7}{states:>12}{seconds:>10.1}", protocol.name());
    let mut failed = false;
    for (property, path) in checker.discoveries() {
        if property != REACHED {
            let why = path.last_state().fault.map_or(String::new(), |fault| format!(" ({fault})"));
            println!("{property}: does not hold{why}, after");
            path.into_actions().iter().for_each(|step| println!("    {step:?}"));
            failed = true;
        }
    }
    if !failed && !checker.discoveries().contains_key(REACHED) {
        println!("no state in which {REACHED}: the model lacks something");
        failed = true;
    }
    failed
}
