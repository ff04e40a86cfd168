//! Network of nodes for tests: messages of one node to another arrive in order, those of
//! different pairs in any order. Node 0 is the home, and takes part, too.

#![allow(dead_code, reason = "each test uses a part")]

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};

use crate::seats::Seats;
use towpath_mplock::{
    Decision, Epoch, FencingToken, Grant, HomeLock, LoanEntry, LockData, LockRequest, Message, MessageBody,
    Mode, Node, NodeLock, NodeState, Outbox, Protocol, SeatLeaving, Successor,
};

/// Side of a node that a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    Home,
    User,
}

type Channel = (Node, Node);

/// Messages on their way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wires(pub BTreeMap<Channel, VecDeque<(Side, Message)>>);

/// Outbox of one node.
struct Out<'a> {
    from: Node,
    home: Node,
    wires: &'a mut Wires,
}

impl Outbox for Out<'_> {
    fn to_home(&mut self, message: Message) {
        self.wires.0.entry((self.from, self.home)).or_default().push_back((Side::Home, message));
    }
    fn to_node(&mut self, node: Node, message: Message) {
        self.wires.0.entry((self.from, node)).or_default().push_back((Side::User, message));
    }
}

/// Number of nodes in the tests.
pub const NODES: usize = 5;

/// One lock, its home and its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    pub protocol: Protocol,
    pub home_node: Node,
    pub home: HomeLock,
    pub nodes: Vec<NodeLock>,
    pub alive: Vec<bool>,
    pub wires: Wires,
    pub epoch: Epoch,
    tickets: Vec<u32>,
    /// Largest token of a grant.
    pub last: FencingToken,
    /// Token of the last exclusive grant.
    exclusive: FencingToken,
    /// True for each node that is to forget the lock.
    forgets: Vec<bool>,
    /// Nodes that have died.
    dead: Vec<Node>,
    /// True if a home has died.
    home_died: bool,
    /// True if a holder died and no holder has repaired the state since.
    broken: bool,
    /// Holders that were told of an owner's death.
    pub warned: u32,
    /// Requests that only tried and were refused.
    pub refused: u32,
    /// True for each node whose request only tries, and is not decided.
    pub trying: Vec<bool>,
    /// Grant of each holder.
    grants: Vec<Option<Grant>>,
    /// Data that holders have published, by their tokens.
    published: BTreeMap<FencingToken, u32>,
    /// Version of the data that the next holder gets, if it is told of no death.
    version: Option<FencingToken>,
    seats: Seats<NODES>,
}

impl Network {
    pub fn new(protocol: Protocol, nodes: usize) -> Network {
        Network {
            protocol,
            home_node: 0,
            home: HomeLock::new(protocol, 1, FencingToken::NONE),
            nodes: vec![NodeLock::default(); nodes],
            alive: vec![true; nodes],
            wires: Wires::default(),
            epoch: 1,
            tickets: vec![0; nodes],
            last: FencingToken::NONE,
            exclusive: FencingToken::NONE,
            forgets: vec![false; nodes],
            dead: Vec::new(),
            home_died: false,
            broken: false,
            warned: 0,
            refused: 0,
            trying: vec![false; nodes],
            grants: vec![None; nodes],
            published: BTreeMap::new(),
            version: None,
            seats: Seats::new(),
        }
    }

    pub fn state(&self, node: usize) -> NodeState {
        self.nodes[node].state()
    }

    pub fn holds(&self, node: usize) -> bool {
        matches!(self.state(node), NodeState::Held(_))
    }

    /// Returns whether a node may ask for the lock.
    pub fn may_ask(&self, node: usize) -> bool {
        !matches!(self.state(node), NodeState::Held(_) | NodeState::Waits(_))
    }

    fn with_node<R>(&mut self, node: usize, act: impl FnOnce(&mut NodeLock, &mut Out<'_>) -> R) -> R {
        let mut out = Out { from: node as Node, home: self.home_node, wires: &mut self.wires };
        act(&mut self.nodes[node], &mut out)
    }

    /// Has a node act at the seat of its loan.
    fn at_seat<R>(&mut self, node: usize, act: impl FnOnce(&mut NodeLock, &Cell<u64>) -> R) -> R {
        self.seats.at(&mut self.nodes[node], act)
    }

    /// Has a node act at the seat of its loan, and send.
    fn at_loan<R>(
        &mut self,
        node: usize,
        act: impl FnOnce(&mut NodeLock, &Cell<u64>, &mut Out<'_>) -> R,
    ) -> R {
        let mut wires = std::mem::take(&mut self.wires);
        let mut out = Out { from: node as Node, home: self.home_node, wires: &mut wires };
        let result = self.at_seat(node, |lock, seat| act(lock, seat, &mut out));
        self.wires = wires;
        result
    }

    /// Lends a lock that a node keeps to the next ones.
    pub fn lend(&mut self, node: usize, hold: u32) {
        if self.nodes[node].possible_borrower().is_some() {
            let loan = self.seats.open(node as Node, &self.nodes[node], hold);
            self.with_node(node, |lock, out| lock.lend(loan, out));
        }
    }

    /// Has a node tell the one behind it of a loan, if it does not know of it.
    fn extend_loan(&mut self, node: usize) {
        match self.nodes[node].next_to_tell() {
            Some(Successor::Node { .. }) => self.with_node(node, |lock, out| lock.tell_next(out)),
            Some(Successor::Home) => self.at_seat(node, |lock, seat| lock.tell_no_next(seat)),
            None => {}
        }
    }

    /// Uses a lock that is lent to the node, as it has asked or in that mode.
    ///
    /// Returns whether it holds it then.
    pub fn borrow(&mut self, node: usize, mode: Mode) -> bool {
        if self.nodes[node].offer().is_none() {
            return false;
        }
        let mode = self.nodes[node].wants().unwrap_or(mode);
        let decision = self.at_seat(node, |lock, seat| lock.borrow(node as Node, mode, seat));
        decision.is_ok_and(|decision| {
            self.decided(node, Some(decision));
            true
        })
    }

    /// Says that a node sleeps until its lender leaves.
    pub fn announce_sleep(&mut self, node: usize) {
        self.at_seat(node, |lock, seat| lock.announce_sleep(seat));
    }

    fn end_loan(&mut self, node: usize) {
        self.at_seat(node, |lock, seat| lock.end_loan(seat));
    }

    /// Has a loan by a node end when its seat is left.
    ///
    /// Returns whether there is none any more.
    pub fn close_loan(&mut self, node: usize) -> bool {
        self.nodes[node].lent().is_none() || self.at_seat(node, |lock, seat| lock.close_loan(seat))
    }

    fn decided(&mut self, node: usize, decision: Option<Decision>) {
        self.trying[node] &= decision.is_none();
        match decision {
            Some(Decision::Granted(grant)) => self.granted(node, grant),
            Some(Decision::Refused) => self.refused += 1,
            None => {}
        }
    }

    /// Checks a grant: only one holder, and a larger token than before.
    fn granted(&mut self, node: usize, grant: Grant) {
        // Tokens of readers that hold the lock at one time are in the order of their grants, not of
        // their arrival.
        let least = if grant.mode == Mode::Shared { self.exclusive } else { self.last };
        assert!(grant.token > least, "token {:?} after {:?}", grant.token, least);
        self.last = self.last.max(grant.token);
        if grant.mode == Mode::Exclusive {
            self.exclusive = grant.token;
        }
        self.warned += u32::from(grant.previous_owner_died);
        assert!(grant.previous_owner_died || !self.broken, "no warning of a dead holder: {self:#?}");
        self.grants[node] = Some(grant);
        self.check_data(node, grant.previous_owner_died);
        self.check_exclusion();
    }

    /// Checks the data that came with a grant.
    ///
    /// They are those of the last release, or if a death was told, of one before.
    fn check_data(&mut self, node: usize, told: bool) {
        let data = self.nodes[node].data();
        let version = data.map(LockData::version);
        if let Some(data) = data {
            let number = self.published.get(&data.version()).expect("data that were published");
            assert_eq!(data.bytes(), number.to_le_bytes());
        }
        assert!(told || version == self.version, "data of {version:?}: {self:#?}");
        self.version = version;
    }

    pub fn version(&self) -> Option<FencingToken> {
        self.version
    }

    pub fn check_exclusion(&self) {
        let holders: Vec<usize> = (0..self.nodes.len()).filter(|&n| self.alive[n] && self.holds(n)).collect();
        let exclusive = holders.iter().any(|&n| self.state(n) == NodeState::Held(Mode::Exclusive));
        assert!(!exclusive || holders.len() == 1, "several holders: {holders:?}: {self:#?}");
    }

    pub fn acquire(&mut self, node: usize, mode: Mode) {
        self.request(node, mode, false);
    }

    /// Has a node use the lock twice: under a protocol that caches, it keeps it then.
    pub fn use_twice(&mut self, node: usize) {
        for _ in 0..2 {
            self.acquire(node, Mode::Exclusive);
            self.settle_deliveries();
            self.release(node, true);
            self.settle_deliveries();
        }
    }

    pub fn request(&mut self, node: usize, mode: Mode, tries: bool) {
        self.forgets[node] = false;
        self.tickets[node] += 1;
        let request = LockRequest { ticket: self.tickets[node], mode, tries };
        self.trying[node] = tries;
        if self.nodes[node].lent().is_some()
            && self.at_loan(node, |lock, seat, out| lock.enter_lent(seat, out)) == LoanEntry::Busy
        {
            // It waits for the seat, and tries again.
            self.trying[node] = false;
            self.refused += u32::from(tries);
            return;
        }
        let decision = self.with_node(node, |lock, out| lock.acquire(request, out));
        self.decided(node, decision);
    }

    pub fn release(&mut self, node: usize, repaired: bool) {
        self.release_or_keep(node, repaired, 0);
    }

    /// Releases the lock, or keeps it for `hold` acquisitions.
    pub fn release_or_keep(&mut self, node: usize, repaired: bool, hold: u32) {
        let grant = self.grants[node].take();
        let warned = grant.is_some_and(|grant| grant.previous_owner_died);
        self.broken &= !(repaired && grant.is_some_and(|grant| grant.mode == Mode::Exclusive));
        self.leave(node, !warned || repaired, hold);
    }

    /// Releases the lock as a holder that panics.
    pub fn panic(&mut self, node: usize) {
        self.broken |= self.grants[node].take().is_some_and(|grant| grant.mode == Mode::Exclusive);
        self.leave(node, false, 0);
    }

    fn leave(&mut self, node: usize, consistent: bool, hold: u32) {
        let leaving = self.at_loan(node, |lock, seat, out| {
            // One way of keeping it stands for a loan that ends.
            let closes = hold == 1;
            if lock.is_borrowed() {
                lock.return_loan(node as Node, consistent, closes, seat, out)
            } else {
                match lock.leave_lent(consistent, closes, hold, seat) {
                    SeatLeaving::Ended => SeatLeaving::Lost,
                    other => other,
                }
            }
        });
        if leaving == SeatLeaving::Lost {
            self.with_node(node, |lock, out| lock.release(consistent, hold, out));
        }
    }

    /// Releases the lock with new data.
    pub fn release_with(&mut self, node: usize, number: u32) {
        let token = self.nodes[node].token();
        if self.nodes[node].publish(&number.to_le_bytes()) {
            self.published.insert(token, number);
            self.version = Some(token);
        }
        self.release(node, true);
    }

    /// Returns whether a node keeps a lock for which another one waits, or has lent it.
    pub fn has_to_pass_on(&self, node: usize) -> bool {
        self.state(node) == NodeState::Kept || self.nodes[node].lent().is_some()
    }

    /// Passes a lock that the node keeps on to the next one.
    pub fn hand_over(&mut self, node: usize) {
        self.close_loan(node);
        self.with_node(node, |lock, out| lock.hand_over(out));
    }

    pub fn cancel(&mut self, node: usize) {
        self.nodes[node].cancel();
        self.trying[node] = false;
    }

    /// Drops the node's state of the lock as soon as it neither uses it nor waits.
    pub fn forget(&mut self, node: usize) {
        self.forgets[node] = true;
        if !self.close_loan(node) {
            return;
        }
        self.with_node(node, |lock, out| lock.give_up(out));
        if self.nodes[node].is_absent() {
            self.nodes[node] = NodeLock::default();
        }
    }

    /// Channels on which a message is under way.
    pub fn busy(&self) -> Vec<Channel> {
        self.wires.0.iter().filter(|(_, queue)| !queue.is_empty()).map(|(&channel, _)| channel).collect()
    }

    /// Delivers the first message of a channel. Returns its side.
    pub fn deliver(&mut self, channel: Channel) -> Side {
        let (side, message) =
            self.wires.0.get_mut(&channel).and_then(VecDeque::pop_front).expect("a message");
        let (from, to) = channel;
        if !self.alive[usize::from(to)] {
            return side;
        }
        match side {
            // The home was told of its death.
            Side::Home if !self.alive[usize::from(from)] => {}
            Side::Home if to == self.home_node => {
                let mut out = Out { from: to, home: to, wires: &mut self.wires };
                self.home.on_message(from, &message, &mut out);
            }
            // For a home that has died, or from one.
            Side::Home => {}
            Side::User if message.body == MessageBody::Inquire && from != self.home_node => {}
            Side::User => {
                let to = usize::from(to);
                if message.body == MessageBody::Inquire {
                    self.end_loan(to);
                }
                self.at_loan(to, |lock, seat, out| lock.on_seat(&message, seat, out));
                let decision = self.with_node(to, |lock, out| lock.on_message(&message, out));
                self.decided(to, decision);
                self.extend_loan(to);
                if self.forgets[to] {
                    self.forget(to);
                }
            }
        }
        side
    }

    fn note_death(&mut self, node: usize) {
        self.alive[node] = false;
        self.trying[node] = false;
        let mode = self.grants[node].map(|grant| grant.mode);
        self.broken |= self.holds(node) && mode == Some(Mode::Exclusive);
    }

    /// Kills a node other than the home.
    pub fn kill(&mut self, node: usize) {
        assert_ne!(node, usize::from(self.home_node));
        self.dead.push(node as Node);
        self.note_death(node);
        self.epoch += 1;
        // Messages to it are lost; those that it has sent arrive.
        self.wires.0.retain(|&(_, to), _| usize::from(to) != node);
        let mut out = Out { from: self.home_node, home: self.home_node, wires: &mut self.wires };
        self.home.on_death(node as Node, self.epoch, &mut out);
    }

    /// Closes a node, other than the home, in good order.
    ///
    /// Returns false if it has the lock or data that are not at home.
    pub fn leave_world(&mut self, node: usize) -> bool {
        if !self.prepare_to_leave(node) || self.nodes[node].data().is_some() {
            return false;
        }
        self.note_death(node);
        self.epoch += 1;
        self.wires.0.retain(|&(_, to), _| usize::from(to) != node);
        let mut out = Out { from: self.home_node, home: self.home_node, wires: &mut self.wires };
        self.home.on_leave(node as Node, self.epoch, &mut out);
        true
    }

    /// Prepares a node that leaves.
    ///
    /// Returns false if it holds the lock, or a node to which it has lent it, or if it has passed
    /// it on with a warning.
    fn prepare_to_leave(&mut self, node: usize) -> bool {
        if self.holds(node) {
            return false;
        }
        self.cancel(node);
        self.forget(node);
        self.take_last_messages(node);
        self.nodes[node].lent().is_none() && !self.nodes[node].has_warned()
    }

    /// Delivers the messages of a node to the home.
    fn take_last_messages(&mut self, node: usize) {
        let channel = (node as Node, self.home_node);
        while self.busy().contains(&channel) {
            self.deliver(channel);
        }
    }

    /// Closes the home in good order; `successor` takes its place.
    ///
    /// Returns false if it holds the lock or its state is not consistent.
    pub fn leave_home(&mut self, successor: usize) -> bool {
        let old = usize::from(self.home_node);
        if !self.prepare_to_leave(old) || self.home.may_be_inconsistent() {
            return false;
        }
        let data = self.home.data().cloned();
        self.replace_home(successor, false);
        data.iter().for_each(|data| self.home.note_data(data));
        true
    }

    /// Kills the home; `successor` takes its place.
    pub fn kill_home(&mut self, successor: usize) {
        self.home_died = true;
        self.dead.push(self.home_node);
        self.replace_home(successor, true);
    }

    fn replace_home(&mut self, successor: usize, died: bool) {
        let old = usize::from(self.home_node);
        self.note_death(old);
        self.epoch += 1;
        self.wires.0.retain(|&(_, to), _| usize::from(to) != old);
        self.home_node = successor as Node;
        self.nodes.iter_mut().for_each(NodeLock::note_new_home);
        for node in 0..self.nodes.len() {
            if self.alive[node] && self.forgets[node] {
                self.forget(node);
            }
        }
        let survivors: Vec<Node> =
            (0..self.nodes.len() as Node).filter(|&n| self.alive[usize::from(n)]).collect();
        let (dead, home_died) = (self.dead.clone(), died || self.home_died);
        let mut out = Out { from: self.home_node, home: self.home_node, wires: &mut self.wires };
        self.home = HomeLock::take_over(self.protocol, self.epoch, &survivors, &dead, home_died, &mut out);
    }

    /// Delivers everything that is under way.
    pub fn settle_deliveries(&mut self) {
        while let Some(&channel) = self.busy().first() {
            self.deliver(channel);
        }
    }

    /// Delivers everything, and has holders release, until nothing is under way.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            let keeps = |&node: &usize| self.alive[node] && self.state(node) == NodeState::Kept;
            if let Some(&channel) = self.busy().first() {
                self.deliver(channel);
            } else if let Some(holder) = (0..self.nodes.len()).find(|&n| self.alive[n] && self.holds(n)) {
                self.release(holder, true);
            } else if let Some(keeper) = (0..self.nodes.len()).find(keeps) {
                self.hand_over(keeper);
            } else {
                return;
            }
        }
        panic!("messages without end: {self:#?}");
    }
}
