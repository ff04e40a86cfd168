//! Locks of a host, without input or output.
//!
//! Carries the state machines of towpath-mplock between the hosts, and hands the host's locks to
//! its processes.
//!
//! Each host is one node of the state machines. Its processes, the *clients*, wait for a lock in a
//! queue of their own; the node asks for the first of them. Exclusive holders pass the lock on
//! within the host as long as no other host waits; readers of a host join each other when the home
//! says that no writer waits.
//!
//! **Epochs.** Each letter carries its sender's epoch; one of a later epoch waits until this host
//! has learnt of that epoch. At each change of the membership a host
//!
//! 1. tells the locks whose home it stays of a death ([`HomeLock::on_death`]),
//! 2. hands the locks whose home it no longer is to the new one (`Tell`), with what it knows of
//!    deaths, and tells the new home of each lock that it has state of as a node,
//! 3. says that it has told all (`Told`).
//!
//! A home asks all hosts for a lock ([`HomeLock::take_over`]) of which it hears for the first time,
//! if it was told of it, if a former home of it has died, or if not all hosts have told all: else
//! no host has state of it. `previous_owner_died` may be said where a home has died and no host
//! has the lock.
//!
//! **Leases.** Without a lease ([`LockService::set_valid`]) no client is handed a lock; a grant
//! that comes waits for the lease. A host that was removed ([`LockService::reset`]) forgets its
//! locks; clients that still run keep others of this host from them until they end.

use std::collections::{HashMap, HashSet, VecDeque};

use towpath_mplock::wire::{Identity, LetterContent};
use towpath_mplock::{
    Decision, Epoch, FencingToken, Grant, HomeLock, LockRequest, Message, MessageBody, Mode, Node, NodeLock,
    NodeState, Outbox, Protocol, Ticket,
};

use crate::frame::AgentLetter;
use crate::membership::{Applied, HostMembership, Incarnation};
use crate::report::{ClientRow, HostLockRow};

/// Maximum number of idle locks that a home keeps the state of.
const IDLE: usize = 1024;
/// Maximum number of idle locks that a node keeps.
const CACHED: usize = 256;

/// Number of a client.
pub(crate) type ClientNumber = u64;

/// State in which an exclusive holder leaves the data that the lock protects.
pub(crate) use towpath_lockfile::Leaving;

/// Request of a client.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub client: ClientNumber,
    pub mode: Mode,
    /// True if it is refused where it would have to wait.
    pub tries: bool,
    pub process: u32,
    pub description: String,
    /// Time of the request, in nanoseconds since 1970.
    pub since: u64,
}

/// News for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    Granted {
        token: FencingToken,
        previous_owner_died: bool,
    },
    /// The lock is not to be had without waiting.
    Refused,
    /// The holder's lock may be given to others: the host has no lease.
    Lost,
    /// The lease is there again, and the lock was not given to others.
    Regained,
}

/// Action that a call orders.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LockEffect {
    Send(Node, AgentLetter),
    Notify(ClientNumber, Notice),
}

/// Holder on this host.
#[derive(Clone, Debug)]
struct LocalHolder {
    wish: Wish,
    token: FencingToken,
    granted: u64,
}

/// Question whether readers may join those of their host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Joining {
    #[default]
    NotAsked,
    Asked,
    May,
    MayNot,
}

/// A lock as a node and its clients see it.
#[derive(Debug)]
struct HostLock {
    name: String,
    protocol: Protocol,
    node: NodeLock,
    home: Node,
    /// Grant of the lock that the node holds.
    grant: Option<Grant>,
    holders: Vec<LocalHolder>,
    waiting: VecDeque<Wish>,
    /// Holders of a former incarnation that still run.
    orphaned: Vec<LocalHolder>,
    joining: Joining,
    /// Number of messages between hosts that brought the last grant.
    hops: u32,
    /// Time of the last request, and time until it was granted, in nanoseconds.
    asked: u64,
    waited: u64,
    listed: bool,
}

/// A lock as its home sees it.
#[derive(Debug)]
struct LockHome {
    lock: HomeLock,
    protocol: Protocol,
    /// True if it was taken over, and an owner may have died with the former home.
    doubtful: bool,
    listed: bool,
}

/// Locks of a host.
#[derive(Debug)]
pub(crate) struct LockService {
    me: Node,
    incarnation: Incarnation,
    epoch: Epoch,
    here: Vec<bool>,
    /// Hosts that were removed at least once.
    lost: Vec<bool>,
    /// True if a host was removed that had not told all.
    lost_untold: bool,
    /// Epochs in which hosts have told all.
    told: Vec<Epoch>,
    valid: bool,
    nodes: HashMap<Identity, HostLock>,
    homes: HashMap<Identity, LockHome>,
    /// Locks of clients.
    clients: HashMap<ClientNumber, Identity>,
    floor: FencingToken,
    idle: VecDeque<Identity>,
    cached: VecDeque<Identity>,
    /// Locks whose state was dropped after they had been taken over from a dead home.
    settled: HashSet<Identity>,
    /// Locks that this host has left inconsistent, as a node or a home, with their homes.
    ///
    /// Until it has them again.
    left_inconsistent: HashMap<Identity, Node>,
    ticket: Ticket,
    outgoing: VecDeque<(Node, AgentLetter)>,
    /// AgentOutbox of later epochs.
    deferred: Vec<VecDeque<(Epoch, AgentLetter)>>,
    effects: Vec<LockEffect>,
}

/// Outbox of a lock's state machine.
struct AgentOutbox<'a> {
    outgoing: &'a mut VecDeque<(Node, AgentLetter)>,
    lock: Identity,
    protocol: Protocol,
    home: Node,
}

impl Outbox for AgentOutbox<'_> {
    fn to_home(&mut self, message: Message) {
        self.to_node(self.home, message);
    }
    fn to_node(&mut self, node: Node, message: Message) {
        let content = LetterContent::Lock { lock: self.lock, protocol: self.protocol, message };
        self.outgoing.push_back((node, AgentLetter::Machine(content)));
    }
}

impl HostLock {
    fn is_unused(&self) -> bool {
        self.holders.is_empty() && self.waiting.is_empty() && self.orphaned.is_empty()
    }

    /// Refuses clients that do not wait. `but`: number of the first ones that are spared.
    fn refuse_tries(
        &mut self,
        but: usize,
        effects: &mut Vec<LockEffect>,
        clients: &mut HashMap<u64, Identity>,
    ) {
        let mut place = 0;
        self.waiting.retain(|wish| {
            place += 1;
            let stays = place <= but || !wish.tries;
            if !stays {
                clients.remove(&wish.client);
                effects.push(LockEffect::Notify(wish.client, Notice::Refused));
            }
            stays
        });
    }

    /// Hands the lock to the first client that waits.
    fn hand(&mut self, grant: Grant, now: u64, effects: &mut Vec<LockEffect>) {
        let Some(wish) = self.waiting.pop_front() else { return };
        let notice = Notice::Granted { token: grant.token, previous_owner_died: grant.previous_owner_died };
        effects.push(LockEffect::Notify(wish.client, notice));
        self.holders.push(LocalHolder { wish, token: grant.token, granted: now });
    }
}

impl LockService {
    /// Makes the state of a host that takes no part yet.
    pub fn new(me: Node, hosts: usize, incarnation: Incarnation) -> LockService {
        LockService {
            me,
            incarnation,
            epoch: 0,
            here: vec![false; hosts],
            lost: vec![false; hosts],
            lost_untold: false,
            told: vec![0; hosts],
            valid: false,
            nodes: HashMap::new(),
            homes: HashMap::new(),
            clients: HashMap::new(),
            floor: FencingToken::NONE,
            idle: VecDeque::new(),
            cached: VecDeque::new(),
            settled: HashSet::new(),
            left_inconsistent: HashMap::new(),
            // A random number: requests of former incarnations are not taken for this one's.
            ticket: incarnation as u32 | 1,
            outgoing: VecDeque::new(),
            deferred: vec![VecDeque::new(); hosts],
            effects: Vec::new(),
        }
    }

    /// Takes the actions that were ordered.
    pub fn take_effects(&mut self) -> Vec<LockEffect> {
        std::mem::take(&mut self.effects)
    }

    fn takes_part(&self) -> bool {
        self.here[usize::from(self.me)]
    }

    fn is_here(&self, host: Node) -> bool {
        self.here.get(usize::from(host)).copied().unwrap_or(false)
    }

    fn hosts_here(&self) -> Vec<Node> {
        (0..self.here.len() as Node).filter(|&host| self.is_here(host)).collect()
    }

    fn home_of(&self, lock: Identity) -> Node {
        lock.home(self.hosts_here().into_iter()).unwrap_or(self.me)
    }

    // ---- clients ----

    /// Takes a client's request for a lock.
    pub fn on_wish(&mut self, name: &str, wish: Wish, now: u64) {
        let lock = Identity::of(name);
        let home = self.home_of(lock);
        self.clients.insert(wish.client, lock);
        let entry = self.nodes.entry(lock).or_insert_with(|| HostLock {
            name: name.to_owned(),
            protocol: Protocol::Reactive,
            node: NodeLock::default(),
            home,
            grant: None,
            holders: Vec::new(),
            waiting: VecDeque::new(),
            orphaned: Vec::new(),
            joining: Joining::NotAsked,
            hops: 0,
            asked: 0,
            waited: 0,
            listed: false,
        });
        entry.waiting.push_back(wish);
        self.pump(lock, now);
        self.settle(now);
    }

    /// Names another process of a client.
    pub fn name_process(&mut self, client: ClientNumber, process: u32) {
        let Some(entry) = self.clients.get(&client).and_then(|lock| self.nodes.get_mut(lock)) else { return };
        let holders = entry.holders.iter_mut().map(|holder| &mut holder.wish);
        for wish in holders.chain(&mut entry.waiting).filter(|wish| wish.client == client) {
            wish.process = process;
        }
    }

    /// Takes a client that leaves: a holder, or one that waits no more.
    pub fn on_leave(&mut self, client: ClientNumber, leaving: Leaving, now: u64) {
        let Some(lock) = self.clients.remove(&client) else { return };
        let Some(entry) = self.nodes.get_mut(&lock) else { return };
        let (outgoing, protocol, home) = (&mut self.outgoing, entry.protocol, entry.home);
        let mut out = AgentOutbox { outgoing, lock, protocol, home };
        let is_client = |holder: &LocalHolder| holder.wish.client == client;
        entry.orphaned.retain(|holder| !is_client(holder));
        if let Some(place) = entry.waiting.iter().position(|wish| wish.client == client) {
            entry.waiting.remove(place);
            if place == 0 && matches!(entry.node.state(), NodeState::Waits(_)) {
                entry.node.cancel();
            }
        } else if let Some(place) = entry.holders.iter().position(is_client) {
            let holder = entry.holders.remove(place);
            if entry.holders.is_empty()
                && let Some(grant) = entry.grant.take()
            {
                let consistent = match leaving {
                    _ if holder.wish.mode == Mode::Shared => !grant.previous_owner_died,
                    Leaving::Consistent => true,
                    Leaving::Unchanged => !grant.previous_owner_died,
                    Leaving::Died => false,
                };
                entry.joining = Joining::NotAsked;
                entry.node.release(consistent, 0, &mut out);
                if !consistent {
                    self.left_inconsistent.insert(lock, home);
                }
            }
        }
        self.pump(lock, now);
        self.settle(now);
    }

    /// Says whether this host has a lease.
    pub fn set_valid(&mut self, valid: bool, now: u64) {
        if self.valid == valid {
            return;
        }
        self.valid = valid;
        let notice = if valid { Notice::Regained } else { Notice::Lost };
        for holder in self.nodes.values().flat_map(|entry| &entry.holders) {
            self.effects.push(LockEffect::Notify(holder.wish.client, notice));
        }
        self.pump_all(now);
    }

    fn pump_all(&mut self, now: u64) {
        for lock in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.pump(lock, now);
        }
        self.settle(now);
    }

    /// Serves a lock's clients as far as that is possible now.
    fn pump(&mut self, lock: Identity, now: u64) {
        let is_ready = self.valid && self.takes_part();
        let Some(entry) = self.nodes.get_mut(&lock) else { return };
        loop {
            let (outgoing, protocol, home) = (&mut self.outgoing, entry.protocol, entry.home);
            let mut out = AgentOutbox { outgoing, lock, protocol, home };
            if !entry.orphaned.is_empty() || !is_ready {
                entry.refuse_tries(0, &mut self.effects, &mut self.clients);
                break;
            }
            match (entry.node.state(), entry.grant) {
                (NodeState::Held(_), Some(grant)) if entry.holders.is_empty() => {
                    let fits = |wish: &Wish| grant.mode == Mode::Exclusive || wish.mode == Mode::Shared;
                    if entry.waiting.front().is_some_and(fits) {
                        self.left_inconsistent.remove(&lock);
                        entry.hand(grant, now, &mut self.effects);
                    } else {
                        entry.grant = None;
                        entry.node.release(!grant.previous_owner_died, 0, &mut out);
                        if grant.previous_owner_died {
                            self.left_inconsistent.insert(lock, home);
                        }
                    }
                }
                (NodeState::Held(_), Some(grant)) => {
                    let reads = entry.holders.iter().all(|holder| holder.wish.mode == Mode::Shared);
                    let joins = entry.waiting.front().is_some_and(|wish| wish.mode == Mode::Shared);
                    let may_join = match entry.joining {
                        _ if !reads || !joins || entry.node.is_wanted() => Joining::MayNot,
                        _ if grant.mode == Mode::Exclusive => Joining::May,
                        joining => joining,
                    };
                    match may_join {
                        Joining::May => {
                            entry.joining = Joining::NotAsked;
                            entry.hand(grant, now, &mut self.effects);
                        }
                        Joining::NotAsked => {
                            entry.joining = Joining::Asked;
                            self.outgoing.push_back((home, AgentLetter::Join { lock }));
                            break;
                        }
                        Joining::Asked => break,
                        Joining::MayNot => {
                            entry.refuse_tries(0, &mut self.effects, &mut self.clients);
                            break;
                        }
                    }
                }
                (NodeState::Waits(_), _) => {
                    if entry.waiting.is_empty() {
                        entry.node.cancel();
                    }
                    entry.refuse_tries(1, &mut self.effects, &mut self.clients);
                    break;
                }
                (NodeState::Held(_), None) => break,
                (
                    NodeState::Absent | NodeState::Cached | NodeState::Kept | NodeState::Abandoned { .. },
                    _,
                ) => {
                    let Some(wish) = entry.waiting.front() else { break };
                    let request = LockRequest { ticket: self.ticket, mode: wish.mode, tries: wish.tries };
                    self.ticket = self.ticket.wrapping_add(1).max(1);
                    match entry.node.acquire(request, &mut out) {
                        Some(Decision::Granted(grant)) => {
                            (entry.grant, entry.hops, entry.waited) = (Some(grant), 0, 0);
                        }
                        Some(Decision::Refused) => {
                            let refused = entry.waiting.pop_front().map(|wish| wish.client);
                            if let Some(client) = refused {
                                self.clients.remove(&client);
                                self.effects.push(LockEffect::Notify(client, Notice::Refused));
                            }
                        }
                        None => {
                            entry.asked = now;
                            entry.refuse_tries(1, &mut self.effects, &mut self.clients);
                            break;
                        }
                    }
                }
            }
        }
        self.note_unused(lock);
    }

    /// Forgets a lock that no client uses, or keeps it for a while if the node has it.
    fn note_unused(&mut self, lock: Identity) {
        let Some(entry) = self.nodes.get_mut(&lock).filter(|entry| entry.is_unused()) else { return };
        if entry.node.is_absent() {
            if !entry.listed {
                self.nodes.remove(&lock);
            }
            return;
        }
        if entry.node.state() == NodeState::Cached && !entry.listed {
            entry.listed = true;
            self.cached.push_back(lock);
        }
        if self.cached.len() > CACHED
            && let Some(first) = self.cached.pop_front()
            && let Some(entry) = self.nodes.get_mut(&first)
        {
            entry.listed = false;
            if entry.is_unused() {
                let (protocol, home) = (entry.protocol, entry.home);
                let mut out = AgentOutbox { outgoing: &mut self.outgoing, lock: first, protocol, home };
                entry.node.give_up(&mut out);
                if entry.node.is_absent() {
                    self.nodes.remove(&first);
                }
            }
        }
    }

    // ---- letters ----

    /// Handles a letter of a host, which has sent it in this epoch.
    ///
    /// No letter of an incarnation follows its removal.
    pub fn on_letter(&mut self, from: Node, epoch: Epoch, letter: AgentLetter, now: u64) {
        let Some(deferred) = self.deferred.get_mut(usize::from(from)) else { return };
        if epoch > self.epoch || !deferred.is_empty() {
            deferred.push_back((epoch, letter));
        } else if self.is_here(from) && self.takes_part() {
            self.deliver(from, epoch, letter, now);
            self.settle(now);
        }
    }

    /// Delivers the letters of this host to itself, and sends the others.
    fn settle(&mut self, now: u64) {
        while let Some((to, letter)) = self.outgoing.pop_front() {
            if to == self.me {
                self.deliver(self.me, self.epoch, letter, now);
            } else if self.is_here(to) {
                self.effects.push(LockEffect::Send(to, letter));
            }
        }
    }

    fn deliver(&mut self, from: Node, epoch: Epoch, letter: AgentLetter, now: u64) {
        match letter {
            AgentLetter::Machine(LetterContent::Lock { lock, protocol, message }) => match message.body {
                MessageBody::Request { .. }
                | MessageBody::Return { .. }
                | MessageBody::Report(_)
                | MessageBody::Deposit
                | MessageBody::InUse { .. } => self.at_home(from, lock, protocol, &message),
                _ => self.at_node(from, lock, protocol, &message, now),
            },
            AgentLetter::Machine(_) => {}
            AgentLetter::Tell { lock, protocol, doubtful } => self.on_tell(lock, protocol, doubtful),
            AgentLetter::Told => {
                if let Some(told) = self.told.get_mut(usize::from(from)) {
                    *told = (*told).max(epoch);
                }
            }
            AgentLetter::Join { lock } => {
                let may = self.homes.get(&lock).is_some_and(|home| !home.lock.is_awaited());
                self.outgoing.push_back((from, AgentLetter::Joined { lock, may }));
            }
            AgentLetter::Joined { lock, may } => {
                if let Some(entry) = self.nodes.get_mut(&lock).filter(|entry| entry.joining == Joining::Asked)
                {
                    entry.joining = if may { Joining::May } else { Joining::MayNot };
                    self.pump(lock, now);
                }
            }
        }
    }

    /// Handles a message to a lock's node.
    fn at_node(&mut self, from: Node, lock: Identity, protocol: Protocol, message: &Message, now: u64) {
        let is_inquiry = message.body == MessageBody::Inquire;
        let home = self.home_of(lock);
        if is_inquiry && from != home {
            return;
        }
        let mut out = AgentOutbox { outgoing: &mut self.outgoing, lock, protocol, home };
        let Some(entry) = self.nodes.get_mut(&lock) else {
            if is_inquiry {
                NodeLock::default().on_message(message, &mut out);
            }
            return;
        };
        match entry.node.on_message(message, &mut out) {
            Some(Decision::Granted(grant)) => {
                entry.grant = Some(grant);
                let sent = |from: Node, to: Node| u32::from(from != to);
                entry.waited = now.saturating_sub(entry.asked);
                entry.hops = sent(self.me, home) + sent(home, from) + sent(from, self.me);
            }
            Some(Decision::Refused) => {
                if entry.waiting.front().is_some_and(|wish| wish.tries)
                    && let Some(wish) = entry.waiting.pop_front()
                {
                    self.clients.remove(&wish.client);
                    self.effects.push(LockEffect::Notify(wish.client, Notice::Refused));
                }
            }
            None => {}
        }
        self.pump(lock, now);
    }

    /// Handles a message to a lock's home.
    fn at_home(&mut self, from: Node, lock: Identity, protocol: Protocol, message: &Message) {
        if self.home_of(lock) != self.me {
            return;
        }
        if !self.homes.contains_key(&lock) {
            if !matches!(message.body, MessageBody::Request { .. }) {
                return;
            }
            let may_have_died = self.former_home_died(lock);
            let all_told = self
                .hosts_here()
                .iter()
                .all(|&host| host == self.me || self.told[usize::from(host)] >= self.epoch);
            if may_have_died || !all_told {
                self.take_over(lock, protocol, may_have_died);
            } else {
                let lock_home = HomeLock::new(protocol, self.epoch, self.floor);
                let entry = LockHome { lock: lock_home, protocol, doubtful: false, listed: false };
                self.homes.insert(lock, entry);
            }
        }
        if let Some(home) = self.homes.get_mut(&lock) {
            let (outgoing, protocol) = (&mut self.outgoing, home.protocol);
            let mut out = AgentOutbox { outgoing, lock, protocol, home: self.me };
            home.lock.on_message(from, message, &mut out);
        }
        self.note_idle(lock);
    }

    /// Takes the news that a host has state of a lock whose home this one is by now.
    fn on_tell(&mut self, lock: Identity, protocol: Protocol, doubtful: bool) {
        if self.home_of(lock) != self.me {
            return;
        }
        let died = doubtful || self.former_home_died(lock);
        match self.homes.get_mut(&lock) {
            None => self.take_over(lock, protocol, died),
            // The host that tells of it answers the inquiry after that.
            Some(home) if doubtful => {
                home.lock.doubt();
                home.doubtful = true;
            }
            Some(_) => {}
        }
    }

    fn former_home_died(&self, lock: Identity) -> bool {
        let was_home = |host: Node| host == self.me || lock.prefers(host, self.me);
        !self.settled.contains(&lock)
            && (self.lost_untold
                || (0..self.lost.len() as Node).any(|host| self.lost[usize::from(host)] && was_home(host)))
    }

    /// Asks all hosts for a lock.
    fn take_over(&mut self, lock: Identity, protocol: Protocol, doubtful: bool) {
        let survivors = self.hosts_here();
        // Where no home has died, homes before this one have seen to the deaths of holders.
        let dead: Vec<Node> = (0..self.lost.len() as Node)
            .filter(|&host| doubtful && self.lost[usize::from(host)] && !self.is_here(host))
            .collect();
        let mut out = AgentOutbox { outgoing: &mut self.outgoing, lock, protocol, home: self.me };
        let taken = HomeLock::take_over(protocol, self.epoch, &survivors, &dead, doubtful, &mut out);
        self.homes.insert(lock, LockHome { lock: taken, protocol, doubtful, listed: false });
    }

    /// Notes that a lock may be idle at home. Drops another one's state if too many are.
    fn note_idle(&mut self, lock: Identity) {
        let Some(home) = self.homes.get_mut(&lock) else { return };
        if home.listed || !home.lock.is_unused() {
            return;
        }
        home.listed = true;
        self.idle.push_back(lock);
        if self.idle.len() > IDLE
            && let Some(first) = self.idle.pop_front()
            && let Some(home) = self.homes.get_mut(&first)
        {
            home.listed = false;
            if home.lock.is_unused() {
                self.floor = self.floor.max(home.lock.token());
                if home.doubtful {
                    self.settled.insert(first);
                }
                self.homes.remove(&first);
            }
        }
    }

    // ---- membership ----

    /// Takes a change of the membership that was decided.
    pub fn on_change(&mut self, applied: Applied, membership: &HostMembership, now: u64) {
        match applied {
            Applied::Suspected(_) => return,
            Applied::Removed(host, incarnation) if (host, incarnation) == (self.me, self.incarnation) => {
                self.reset(self.incarnation, now);
            }
            _ => {}
        }
        if let Applied::Removed(host, _) = applied {
            // It may not have handed over what it knew as a home.
            self.lost_untold |= self.takes_part() && self.told[usize::from(host)] < self.epoch;
        }
        self.epoch = membership.epoch;
        for (host, here) in self.here.iter_mut().enumerate() {
            let (host, me) = (host as Node, (self.me, self.incarnation));
            *here = membership.member(host).is_some_and(|member| host != me.0 || member.incarnation == me.1);
        }
        if let Applied::Removed(host, _) = applied {
            self.lost[usize::from(host)] = true;
            self.settled.clear();
            // Those of a later epoch are its successor's.
            self.deferred[usize::from(host)].retain(|(epoch, _)| *epoch > self.epoch);
            for (&lock, home) in &mut self.homes {
                let (outgoing, protocol) = (&mut self.outgoing, home.protocol);
                let mut out = AgentOutbox { outgoing, lock, protocol, home: self.me };
                home.lock.on_death(host, self.epoch, &mut out);
            }
        }
        if self.takes_part() {
            self.hand_over();
            self.pump_all(now);
        }
        self.deliver_deferred(now);
    }

    /// Tells the new homes of locks of this host's state of them.
    fn hand_over(&mut self) {
        let moved: Vec<Identity> =
            self.homes.keys().copied().filter(|&lock| self.home_of(lock) != self.me).collect();
        for lock in moved {
            let Some(LockHome { lock: state, protocol, .. }) = self.homes.remove(&lock) else { continue };
            let doubtful = state.may_be_inconsistent();
            if doubtful || !state.is_unused() {
                let letter = AgentLetter::Tell { lock, protocol, doubtful };
                self.outgoing.push_back((self.home_of(lock), letter));
            }
            if doubtful {
                self.left_inconsistent.insert(lock, self.home_of(lock));
            }
            self.floor = self.floor.max(state.token());
        }
        self.idle.retain(|lock| self.homes.contains_key(lock));
        let hosts = self.hosts_here();
        // The home that the return went to may not have been the home any more.
        for (&lock, home) in &mut self.left_inconsistent {
            let new = lock.home(hosts.iter().copied()).unwrap_or(self.me);
            if std::mem::replace(home, new) != new {
                let protocol = self.nodes.get(&lock).map_or(Protocol::Reactive, |entry| entry.protocol);
                self.outgoing.push_back((new, AgentLetter::Tell { lock, protocol, doubtful: true }));
            }
        }
        for (&lock, entry) in &mut self.nodes {
            let home = lock.home(hosts.iter().copied()).unwrap_or(self.me);
            if std::mem::replace(&mut entry.home, home) != home && !entry.node.is_absent() {
                let letter = AgentLetter::Tell { lock, protocol: entry.protocol, doubtful: false };
                self.outgoing.push_back((home, letter));
            }
            if entry.joining == Joining::Asked {
                entry.joining = Joining::NotAsked;
            }
        }
        self.outgoing
            .extend(hosts.into_iter().filter(|&host| host != self.me).map(|to| (to, AgentLetter::Told)));
    }

    fn deliver_deferred(&mut self, now: u64) {
        for from in 0..self.deferred.len() {
            while self.deferred[from].front().is_some_and(|(epoch, _)| *epoch <= self.epoch)
                && let Some((epoch, letter)) = self.deferred[from].pop_front()
            {
                if self.is_here(from as Node) && self.takes_part() {
                    self.deliver(from as Node, epoch, letter, now);
                    self.settle(now);
                }
            }
        }
    }

    /// Forgets all locks: this host was removed. Its holders have lost theirs.
    ///
    /// It takes part again as another incarnation.
    pub fn reset(&mut self, incarnation: Incarnation, now: u64) {
        self.set_valid(false, now);
        self.incarnation = incarnation;
        self.here[usize::from(self.me)] = false;
        self.homes.clear();
        self.idle.clear();
        self.cached.clear();
        self.left_inconsistent.clear();
        self.outgoing.clear();
        self.told.fill(0);
        self.lost_untold = false;
        for entry in self.nodes.values_mut() {
            entry.node = NodeLock::default();
            (entry.grant, entry.joining, entry.listed) = (None, Joining::NotAsked, false);
            entry.orphaned.append(&mut entry.holders);
        }
        self.nodes.retain(|_, entry| !entry.is_unused());
    }

    // ---- status ----

    /// Returns the locks of this host that clients use, or that it keeps.
    pub fn rows(&self, name: Option<&str>) -> Vec<HostLockRow> {
        let row = |wish: &Wish, token: Option<FencingToken>, since: u64| ClientRow {
            pid: wish.process,
            command: wish.description.clone(),
            shared: wish.mode == Mode::Shared,
            token: token.map(FencingToken::get),
            since,
        };
        let entries = self.nodes.values().filter(|entry| name.is_none_or(|name| entry.name == name));
        let mut rows: Vec<HostLockRow> = entries
            .map(|entry| HostLockRow {
                name: entry.name.clone(),
                home: entry.home,
                token: entry.node.token().get(),
                cached: entry.node.state() == NodeState::Cached,
                hops: entry.hops,
                waited: entry.waited,
                previous_owner_died: entry.grant.is_some_and(|grant| grant.previous_owner_died),
                holders: entry.holders.iter().map(|h| row(&h.wish, Some(h.token), h.granted)).collect(),
                waiters: entry.waiting.iter().map(|wish| row(wish, None, wish.since)).collect(),
                lost: entry.orphaned.iter().map(|h| row(&h.wish, Some(h.token), h.granted)).collect(),
            })
            .filter(|row| {
                row.cached || !(row.holders.is_empty() && row.waiters.is_empty() && row.lost.is_empty())
            })
            .collect();
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        rows
    }
}

#[cfg(test)]
mod tests;
