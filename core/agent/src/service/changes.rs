//! Changes of the membership, as a host's locks see them.
//!
//! | a host | then |
//! | --- | --- |
//! | is removed | the homes here are told of its death; the locks whose home it was have other homes, which this host tells of its state |
//! | is admitted | it is the home of some locks: this host hands them over |
//! | is this one, removed | it forgets its locks; their holders here are orphaned |

use towpath_mplock::wire::{Identity, LetterContent};
use towpath_mplock::{Message, MessageBody, Node, NodeLock, Protocol};

use super::{AgentOutbox, Joining, LockHome, LockService};
use crate::frame::AgentLetter;
use crate::membership::{Applied, HostMembership, Incarnation};

impl LockService {
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
            state.data().iter().for_each(|data| self.inherit(lock, data));
            if doubtful {
                self.left_inconsistent.insert(lock, self.home_of(lock));
            }
            self.floor = self.floor.max(state.token());
        }
        self.idle.retain(|lock| self.homes.contains_key(lock));
        // Kept until the new homes say that they have them: the homes may change before.
        for (&lock, data) in &self.inherited {
            let home = self.home_of(lock);
            if home != self.me {
                let message =
                    Message { epoch: self.epoch, body: MessageBody::Deposit, data: Some(data.clone()) };
                let content = LetterContent::Lock { lock, protocol: Protocol::default(), message };
                self.outgoing.push_back((home, AgentLetter::Machine(content)));
            }
        }
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
            if std::mem::replace(&mut entry.home, home) != home {
                entry.node.note_new_home();
                if !entry.node.is_absent() {
                    let letter = AgentLetter::Tell { lock, protocol: entry.protocol, doubtful: false };
                    self.outgoing.push_back((home, letter));
                }
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
        self.inherited.clear();
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
}
