//! Messages and deaths on their way to the state machines.
//!
//! A handler only notes a message; [`ManagerState::serve`] takes it to the state machines and sends
//! what they order. Messages of a rank to itself go through `local`.
//!
//! **Deaths.** A rank that notices that others are gone ([`ManagerState::look`])
//!
//! 1. handles what they had sent before,
//! 2. tells the locks whose home it is, which ask the nodes concerned ([`HomeLock::on_death`]),
//! 3. tells the new home of each lock of theirs that it has state of (`Tell`).
//!
//! The new home of a lock asks all survivors ([`HomeLock::take_over`]) when it first hears of it,
//! by a request or by `Tell`, once for each lock, and grants nothing until all have answered or are
//! gone. Each answers with its state. So a request that was on its way to the former home is found
//! there, as is a holder; a grant on its way counts no more when its receiver has answered.
//! A rank takes an inquiry only from the rank that it takes for the lock's home itself, and a
//! home takes a lock only if all ranks that come before it are gone: a message that says otherwise
//! makes it look, at all ranks and at once. So there is one home at a time, and no two grants.
//!
//! | a process dies | survivors see |
//! | --- | --- |
//! | before its request goes out | nothing |
//! | as a waiter | its place passes to the one behind it |
//! | as a holder, or with a lock that it keeps | the home asks the nodes of the queue, and grants anew with a token of the new epoch and `previous_owner_died` |
//! | between the grant that passes a lock on and anything else | the receiver has the lock; if it was lost, as a holder |
//! | as a home, without the lock | waiters are served by the next home after its inquiry; a living holder goes on. The lock that no survivor has is granted with `previous_owner_died`, since the home may have had it |
//! | as a home during an inquiry | the next home asks again |
//! | after its farewell | nothing: the next home takes over without `previous_owner_died` |
//!
//! **A stopped process** is not dead: its locks and answers are waited for until it goes on or is
//! killed.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use towpath_am::{Endpoint, Name, Status, Token};

use super::codec::{LetterContent, decode, encode};
use super::error::Error;
use super::hold::{HoldBudget, HolderHost};
use super::homes::{HomeEntry, Homes, Table};
use super::identity::Identity;
use super::lending::Lending;
use super::lock::LockCell;
use super::members::{Members, Names, named};
use super::post::{HANDLER, Post};
use super::progress::ManagerTurns;
use super::traffic::LockTraffic;
use crate::Outbox;
use crate::home::HomeLock;
use crate::message::{Message, MessageBody};
use crate::node::{NodeLock, NodeState};
use crate::numbers::{Node, Ticket};
use crate::protocol::Protocol;
use crate::token::FencingToken;

/// Longest wait between two looks at the other ranks.
pub(crate) const LOOK: Duration = Duration::from_millis(5);
/// Longest wait while messages wait for space.
const RETRY: Duration = Duration::from_micros(200);
/// Maximum number of polls that take in the last messages of ranks that are gone.
const LAST_POLLS: u32 = 64;

/// Message that has come.
#[derive(Debug)]
struct ReceivedLetter {
    source: Name,
    from: Node,
    content: LetterContent,
}

/// Notes of the handlers.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    messages: Mutex<Vec<ReceivedLetter>>,
    /// True if a message has come back.
    returned: AtomicBool,
    /// Status of a message that a living rank did not take; 0: none.
    refused: AtomicU64,
    /// True if a rank does not know this process.
    unknown: AtomicBool,
}

impl Inbox {
    /// Sets the handlers that write into it.
    pub(crate) fn listen(self: &Arc<Self>, endpoint: &Endpoint, names: &Names) {
        let (inbox, names) = (self.clone(), names.clone());
        endpoint.set_handler(HANDLER, move |message| inbox.take(message, &names));
        let inbox = self.clone();
        endpoint.set_handler(0, move |message| inbox.take_back(message));
    }

    fn take(&self, message: &Token<'_>, names: &Names) {
        let Some((from, content)) = decode(message.args(), message.bytes()) else { return };
        if content == LetterContent::Stranger {
            // Relaxed, here and below: handlers run on the thread that reads it.
            return self.unknown.store(!message.is_request(), Ordering::Relaxed);
        }
        let source = message.source();
        if names.get().is_some() && !named(names, from, source) {
            let words = encode(from, &LetterContent::Stranger);
            // A reply that can't be sent finds its receiver gone.
            let _ = message.reply(HANDLER, words.as_slice());
            return;
        }
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).push(ReceivedLetter {
            source,
            from,
            content,
        });
    }

    fn take_back(&self, message: &Token<'_>) {
        let Some(why) = message.returned().filter(|why| why.handler == HANDLER) else { return };
        self.returned.store(true, Ordering::Relaxed);
        if !matches!(why.status, Status::Unreachable | Status::BadEndpoint) && why.operation.is_request() {
            self.refused.store(why.status as u64, Ordering::Relaxed);
        }
    }
}

/// State of a rank's manager: in the hands of one thread at a time (`progress.rs`).
pub(crate) struct ManagerState {
    pub(crate) turns: ManagerTurns,
    pub(crate) endpoint: Endpoint,
    pub(crate) me: Node,
    /// Process that made it.
    pub(crate) process: u32,
    inbox: Arc<Inbox>,
    pub(crate) members: RefCell<Members>,
    pub(crate) homes: RefCell<Homes>,
    /// Locks that this node has, waits for, or has handles of.
    pub(crate) locks: RefCell<Table<Arc<LockCell>>>,
    pub(crate) post: RefCell<Post>,
    /// Messages that were taken out of the inbox.
    pending: RefCell<VecDeque<ReceivedLetter>>,
    /// Messages of this rank to itself.
    local: RefCell<VecDeque<LetterContent>>,
    /// Number of the next request.
    pub(crate) next_ticket: Cell<Ticket>,
    /// Number of acquisitions without a message since the last poll.
    pub(crate) acquired: Cell<u32>,
    /// Number of deaths in the world at the last look.
    deaths_seen: Cell<u64>,
    looking: Cell<bool>,
    pub(crate) hold: Cell<HoldBudget>,
    /// Locks that are kept while others wait for them, and some that were.
    pub(crate) kept: RefCell<Vec<Identity>>,
    pub(crate) lending: Lending,
    pub(crate) traffic: Cell<LockTraffic>,
    /// Data of locks at home here that their next homes do not have yet.
    pub(crate) deposits: RefCell<Vec<(Identity, FencingToken)>>,
}

/// Outbox of a lock's state machines: sends at once.
pub(crate) struct Sends<'a> {
    pub(crate) manager: &'a ManagerState,
    pub(crate) lock: Identity,
    pub(crate) protocol: Protocol,
    pub(crate) home: Node,
}

impl Outbox for Sends<'_> {
    fn to_home(&mut self, message: Message) {
        self.to_node(self.home, message);
    }
    #[cold]
    #[inline(never)]
    fn to_node(&mut self, node: Node, message: Message) {
        self.manager.send(node, LetterContent::Lock { lock: self.lock, protocol: self.protocol, message });
    }
}

impl ManagerState {
    pub(crate) fn new(
        endpoint: Endpoint,
        members: Members,
        inbox: Arc<Inbox>,
        turns: ManagerTurns,
    ) -> ManagerState {
        ManagerState {
            turns,
            me: endpoint.world().rank() as Node,
            process: std::process::id(),
            deaths_seen: Cell::new(endpoint.world().deaths()),
            endpoint,
            inbox,
            members: RefCell::new(members),
            homes: RefCell::default(),
            locks: RefCell::default(),
            post: RefCell::default(),
            pending: RefCell::default(),
            local: RefCell::default(),
            next_ticket: Cell::new(1),
            acquired: Cell::new(0),
            looking: Cell::new(false),
            hold: Cell::default(),
            kept: RefCell::default(),
            lending: Lending::default(),
            deposits: RefCell::default(),
            traffic: Cell::default(),
        }
    }

    /// Sends a message, now or when there is space at its receiver.
    pub(crate) fn send(&self, to: Node, content: LetterContent) {
        self.turns.note_use();
        if to == self.me {
            self.local.borrow_mut().push_back(content);
        } else {
            LockTraffic::note(&self.traffic, &content);
            self.post.borrow_mut().send(&self.endpoint, to, encode(self.me, &content));
        }
    }

    /// Handles the messages that have come. Returns the number of messages that were
    /// polled.
    pub(crate) fn serve(&self) -> usize {
        self.turns.note_use();
        if !self.kept.borrow().is_empty() {
            self.hand_over(false);
        }
        let polled = self.endpoint.poll();
        let world = self.endpoint.world();
        let returned = &self.inbox.returned;
        let returned = returned.load(Ordering::Relaxed) && returned.swap(false, Ordering::Relaxed);
        if returned || world.deaths() != self.deaths_seen.get() {
            self.deaths_seen.set(world.deaths());
            self.look(returned);
        }
        self.work();
        polled
    }

    /// Handles the messages that were polled, and those of this rank to itself.
    pub(crate) fn work(&self) {
        loop {
            if let Some(content) = self.pop_local() {
                self.deliver(self.me, content);
            } else if let Some(received) = self.pop_pending() {
                self.receive(received);
            } else if !self.fetch() {
                break;
            }
        }
        self.post.borrow_mut().flush(&self.endpoint);
    }

    /// Handles the messages of this rank to itself, if there are any.
    #[inline]
    pub(crate) fn work_if_local(&self) {
        if !self.local.borrow().is_empty() {
            self.work();
        }
    }

    /// Waits for a message, for at most `limit`, and looks at the other ranks if none
    /// comes.
    pub(crate) fn rest(&self, limit: Option<Duration>) {
        if !self.kept.borrow().is_empty() {
            self.hand_over(true);
            self.work();
        }
        let longest = self.longest_rest();
        if !self.wait(limit.map_or(longest, |limit| limit.min(longest))) {
            self.look(false);
            self.work();
        }
    }

    /// Waits for a message. Returns whether one can be polled.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        self.turns.note_wait();
        self.endpoint.wait(Some(limit))
    }

    /// Returns the longest time until the next look at kept locks, deaths and the post.
    pub(crate) fn longest_rest(&self) -> Duration {
        if !self.post.borrow().is_empty() {
            RETRY
        } else if !self.kept.borrow().is_empty() {
            self.hold.get().time.clamp(RETRY, LOOK)
        } else {
            LOOK
        }
    }

    /// Passes on the locks that are kept: all of them, or those whose time is over.
    #[cold]
    fn hand_over(&self, all: bool) {
        let (budget, now) = (self.hold.get(), self.endpoint.world().now());
        self.kept.borrow_mut().retain(|lock| {
            let cell = self.locks.borrow().get(lock).cloned();
            let Some(cell) = cell else { return false };
            let state = cell.node.borrow().state();
            let was_lent = cell.node.borrow().lent().is_some();
            // A rank that waits for the seat of its own loan has the lock first.
            let is_here = self.look_at_loan(&cell, budget, now) && cell.request.get().is_none();
            let is_over = is_here && (all || cell.hold.is_over(budget, now));
            if state == NodeState::Kept && is_over {
                if !was_lent {
                    cell.hold.note_vain();
                }
                cell.node.borrow_mut().hand_over(&mut cell.sends(self));
            }
            let stays = !is_over && matches!(state, NodeState::Kept | NodeState::Held(_));
            cell.hold.listed.set(stays);
            stays
        });
    }

    /// Returns an error if no lock can be had by this process.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.inbox.unknown.load(Ordering::Relaxed) {
            return Err(Error::UnknownRank);
        }
        let refused = Status::from_bits(self.inbox.refused.load(Ordering::Relaxed));
        refused.map_or(Ok(()), |status| Err(Error::NotDelivered(status)))
    }

    fn pop_local(&self) -> Option<LetterContent> {
        self.local.borrow_mut().pop_front()
    }

    fn pop_pending(&self) -> Option<ReceivedLetter> {
        self.pending.borrow_mut().pop_front()
    }

    /// Takes messages out of the inbox; false if there are none.
    fn fetch(&self) -> bool {
        let mut messages = self.inbox.messages.lock().unwrap_or_else(PoisonError::into_inner);
        if !messages.is_empty() {
            self.pending.borrow_mut().extend(messages.drain(..));
        }
        !self.pending.borrow().is_empty()
    }

    fn receive(&self, received: ReceivedLetter) {
        // Those that came before the names were known have not been compared.
        if self.members.borrow().is_named(received.from, received.source) {
            self.deliver(received.from, received.content);
        }
    }

    fn deliver(&self, from: Node, content: LetterContent) {
        match content {
            LetterContent::Lock { lock, protocol, message } => match message.body {
                MessageBody::Grant(_)
                | MessageBody::Forward { .. }
                | MessageBody::Refuse { .. }
                | MessageBody::Probe { .. }
                | MessageBody::Stored { .. }
                | MessageBody::Lend { .. }
                | MessageBody::Seat(_)
                | MessageBody::Inquire => self.at_node(from, lock, protocol, &message),
                _ => self.at_home(from, lock, protocol, Some(&message)),
            },
            LetterContent::Tell { lock, protocol } => self.at_home(from, lock, protocol, None),
            LetterContent::Farewell { clean } => self.members.borrow_mut().note_farewell(from, clean),
            LetterContent::Stranger => {}
        }
    }

    /// Handles a message to a lock's node.
    fn at_node(&self, from: Node, lock: Identity, protocol: Protocol, message: &Message) {
        let is_inquiry = message.body == MessageBody::Inquire;
        if is_inquiry && !self.is_home(from, lock) {
            return;
        }
        if let MessageBody::Stored { version } = message.body {
            self.deposits.borrow_mut().retain(|&deposit| deposit != (lock, version));
        }
        let cell = self.locks.borrow().get(&lock).cloned();
        let Some(cell) = cell else {
            if is_inquiry {
                let mut out = Sends { manager: self, lock, protocol, home: from };
                NodeLock::default().on_message(message, &mut out);
            }
            return;
        };
        if is_inquiry {
            self.end_loan(&cell);
        }
        if matches!(message.body, MessageBody::Seat(_)) {
            self.on_seat(&cell, message);
        }
        let decision = cell.node.borrow_mut().on_message(message, &mut cell.sends(self));
        if decision.is_some() || matches!(message.body, MessageBody::Lend { .. }) {
            cell.hold.note_grant();
        }
        self.extend_loan(&cell);
        if decision.is_some() {
            cell.decision.set(decision);
        }
        self.forget_unused(&cell);
    }

    /// Gives a lock up that this rank has no handle of, and forgets it if it can be.
    pub(crate) fn forget_unused(&self, cell: &Arc<LockCell>) {
        if cell.handles.get() > 0 {
            return;
        }
        if !self.close_loan(cell) {
            // The borrower that has the seat says when it has left it.
            return;
        }
        cell.node.borrow_mut().give_up(&mut cell.sends(self));
        if cell.node.borrow().is_absent() {
            self.locks.borrow_mut().remove(&cell.identity);
        }
    }

    /// Returns whether a rank is a lock's home; looks at all ranks before it says no.
    fn is_home(&self, rank: Node, lock: Identity) -> bool {
        if self.members.borrow().home(lock) != rank {
            self.look(true);
        }
        self.members.borrow().home(lock) == rank
    }

    /// Handles a message to a lock's home; `None`: `Tell`.
    fn at_home(&self, from: Node, lock: Identity, protocol: Protocol, message: Option<&Message>) {
        let is_known = || self.homes.borrow().locks.contains_key(&lock);
        if !is_known() {
            let asks = message.is_none_or(|message| {
                matches!(message.body, MessageBody::Request { .. } | MessageBody::Return { .. })
            });
            if let Some(data) = message.and_then(|message| message.data.as_ref()) {
                // From a home that leaves, or from a node that has heard of its death earlier.
                self.homes.borrow_mut().inherit(lock, data);
                if let Some(&Message { epoch, body: MessageBody::Deposit, .. }) = message {
                    let message = Message::new(epoch, MessageBody::Stored { version: data.version() });
                    self.send(from, LetterContent::Lock { lock, protocol, message });
                }
            }
            if !asks || !self.is_home(self.me, lock) {
                return;
            }
            let has_predecessor = self.members.borrow().former_home_died(lock).is_some();
            if has_predecessor && !self.homes.borrow().is_settled(lock) {
                // The epoch counts all ranks that are gone by now.
                self.look(true);
                self.take_over(lock, protocol);
            } else if message.is_some() {
                let mut homes = self.homes.borrow_mut();
                let new = HomeLock::new(protocol, self.members.borrow().epoch(), homes.floor);
                homes.insert(lock, HomeEntry::new(new, protocol, false));
            }
        }
        let mut homes = self.homes.borrow_mut();
        let (Some(entry), Some(message)) = (homes.locks.get_mut(&lock), message) else { return };
        if self.members.borrow().is_here(from) {
            let mut out = Sends { manager: self, lock, protocol: entry.protocol, home: self.me };
            entry.lock.on_message(from, message, &mut out);
        }
        homes.note_idle(lock);
    }

    /// Takes a lock over from a home that is gone.
    fn take_over(&self, lock: Identity, protocol: Protocol) {
        let mut homes = self.homes.borrow_mut();
        let members = self.members.borrow();
        let died = members.former_home_died(lock).unwrap_or(true);
        let dead: Vec<Node> = members.dead().collect();
        let survivors: Vec<Node> = members.here().collect();
        let mut out = Sends { manager: self, lock, protocol, home: self.me };
        let taken = HomeLock::take_over(protocol, members.epoch(), &survivors, &dead, died, &mut out);
        homes.insert(lock, HomeEntry::new(taken, protocol, true));
    }

    /// Looks for ranks that are gone, and acts on it.
    ///
    /// `thorough`: asks the kernel for each.
    pub(crate) fn look(&self, thorough: bool) {
        if self.looking.replace(true) {
            return;
        }
        let gone = self.members.borrow().find_gone(&self.endpoint, thorough);
        if !gone.is_empty() {
            self.take_last_messages(&gone);
            for &rank in &gone {
                self.lose(rank);
            }
            self.tell_new_homes();
        }
        self.looking.set(false);
    }

    /// Handles the messages that ranks had sent before they were gone.
    fn take_last_messages(&self, gone: &[Node]) {
        let mut polls = 0;
        while polls < LAST_POLLS && self.endpoint.poll() > 0 {
            polls += 1;
        }
        self.fetch();
        let (last, others): (VecDeque<_>, VecDeque<_>) =
            self.pending.take().into_iter().partition(|received| gone.contains(&received.from));
        *self.pending.borrow_mut() = others;
        for received in last {
            self.receive(received);
        }
    }

    /// Notes that a rank is gone: the locks whose home this rank is go on without it.
    fn lose(&self, rank: Node) {
        self.post.borrow_mut().forget(rank);
        self.members.borrow_mut().mark_gone(rank);
        let (epoch, left) = {
            let members = self.members.borrow();
            (members.epoch(), members.has_left(rank))
        };
        let mut homes = self.homes.borrow_mut();
        let mut unused = Vec::new();
        for (&lock, entry) in &mut homes.locks {
            let mut out = Sends { manager: self, lock, protocol: entry.protocol, home: self.me };
            if left {
                entry.lock.on_leave(rank, epoch, &mut out);
            } else {
                entry.lock.on_death(rank, epoch, &mut out);
            }
            if entry.lock.is_unused() {
                unused.push(lock);
            }
        }
        for lock in unused {
            homes.note_idle(lock);
        }
    }

    /// Tells the new homes of locks that this node has state of.
    fn tell_new_homes(&self) {
        let cells: Vec<Arc<LockCell>> = self.locks.borrow().values().cloned().collect();
        for cell in cells {
            let (lock, members) = (cell.identity, self.members.borrow());
            let home = members.home(lock);
            if cell.home.replace(home) == home {
                continue;
            }
            cell.node.borrow_mut().note_new_home();
            if !cell.node.borrow().is_absent() {
                self.send(home, LetterContent::Tell { lock, protocol: cell.protocol });
                self.forget_unused(&cell);
            }
        }
    }
}
