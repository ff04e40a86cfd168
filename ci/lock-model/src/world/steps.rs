//! The steps of a case, and what holds after each.

use std::collections::BTreeMap;

use stateright::{Model, Property};
use towpath_mplock::{FencingToken, HomeLock, LoanEntry, LockRequest, Mode, Node, NodeState};

use super::seats::Seats;
use super::{LOCKS, LockState, Locks, NODES, Plant, REACHED, Step, Wires, World};

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
