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
//!
//! **Data** travel with grants as [`towpath_mplock::LockData`] says. A node keeps a copy of the
//! data of its last 256 idle locks, and then deposits it with the home. A home keeps the data of a
//! lock until they are replaced by none, and hands them to the next home (`Deposit`). So a holder
//! that is told of no death has the data of the last release. Where the hosts that knew of that
//! release are gone, the next holder is told of a death and has the latest data that are left.
//!
//! | file | contents |
//! | --- | --- |
//! | `clients.rs` | processes that ask for locks, hold them, and leave |
//! | `letters.rs` | letters to nodes and homes |
//! | `changes.rs` | changes of the membership |

mod changes;
mod clients;
mod letters;

use std::collections::{HashMap, HashSet, VecDeque};

use towpath_mplock::wire::{Identity, LetterContent};
use towpath_mplock::{
    Epoch, FencingToken, Grant, HomeLock, LockData, Message, Mode, Node, NodeLock, NodeState, Outbox,
    Protocol, Ticket,
};

use crate::frame::AgentLetter;
use crate::membership::Incarnation;
use crate::report::{ClientRow, HostLockRow};

/// Maximum number of idle locks that a home keeps the state of.
const IDLE: usize = if cfg!(test) { 1 } else { 1024 };
/// Maximum number of idle locks of which a node keeps the lock or a copy of the data.
const CACHED: usize = if cfg!(test) { 1 } else { 256 };

/// Maximum number of holders, and of waiters, of a lock in the status.
const SHOWN: usize = if cfg!(test) { 2 } else { 1000 };

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    Granted {
        token: FencingToken,
        previous_owner_died: bool,
        data: Option<LockData>,
    },
    /// The lock is not to be had without waiting.
    Refused,
    /// The host has no lease: no waiter is granted the lock until it has one.
    NoLease,
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
    /// Data of locks of which this host, as their home, has no other state.
    ///
    /// Until it has, or until the next home has stored them.
    inherited: HashMap<Identity, LockData>,
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
        let Grant { token, previous_owner_died, .. } = grant;
        let notice = Notice::Granted { token, previous_owner_died, data: self.node.data().cloned() };
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
            inherited: HashMap::new(),
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
                holders: entry
                    .holders
                    .iter()
                    .take(SHOWN)
                    .map(|h| row(&h.wish, Some(h.token), h.granted))
                    .collect(),
                waiters: entry.waiting.iter().take(SHOWN).map(|wish| row(wish, None, wish.since)).collect(),
                omitted: entry.holders.len().saturating_sub(SHOWN)
                    + entry.waiting.len().saturating_sub(SHOWN),
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
