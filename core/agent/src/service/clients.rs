//! Clients of a host's locks: processes that ask for them, hold them, and leave.
//!
//! A lock's node asks for the first client that waits. [`LockService::pump`] serves a lock after
//! each change: it hands a lock that the node has to the first client, lets readers join those of
//! this host where the home says that no writer waits, and asks for the lock where it is elsewhere.
//! A client that dies is taken out of its place; the lock of a holder that died goes on with a
//! warning.

use std::collections::VecDeque;

use towpath_mplock::wire::Identity;
use towpath_mplock::{Decision, LockRequest, Mode, NodeLock, NodeState, Protocol};

use super::{
    AgentOutbox, CACHED, ClientNumber, HostLock, Joining, Leaving, LocalHolder, LockEffect, LockService,
    Notice, Wish,
};
use crate::frame::AgentLetter;

impl LockService {
    /// Takes a client's request for a lock.
    pub fn on_wish(&mut self, name: &str, wish: Wish, now: u64) {
        let lock = Identity::of(name);
        let (home, here) = (self.home_of(lock), self.takes_part());
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
        if !(self.valid && here) {
            self.effects.push(LockEffect::Notify(wish.client, Notice::NoLease));
        }
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
    ///
    /// `data`: those that a holder has changed. Those of a reader do not count.
    pub fn on_leave(&mut self, client: ClientNumber, leaving: Leaving, data: Option<&[u8]>, now: u64) {
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
                if let Some(data) = data.filter(|_| holder.wish.mode == Mode::Exclusive) {
                    entry.node.publish(data);
                }
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
            self.effects.push(LockEffect::Notify(holder.wish.client, notice.clone()));
        }
        for wish in self.nodes.values().flat_map(|entry| &entry.waiting).filter(|_| !valid) {
            self.effects.push(LockEffect::Notify(wish.client, Notice::NoLease));
        }
        self.pump_all(now);
    }

    pub(super) fn pump_all(&mut self, now: u64) {
        for lock in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.pump(lock, now);
        }
        self.settle(now);
    }

    /// Serves a lock's clients as far as that is possible now.
    pub(super) fn pump(&mut self, lock: Identity, now: u64) {
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
        let has_data = entry.node.state() == NodeState::Absent && entry.node.data().is_some();
        if (has_data || entry.node.state() == NodeState::Cached) && !entry.listed {
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
}
