//! Letters of a host's locks: to its nodes and to its homes.
//!
//! A letter of a later epoch waits until this host has learnt of that epoch. The header of
//! `service.rs` says when a home asks all hosts before it grants a lock.

use towpath_mplock::wire::{Identity, LetterContent};
use towpath_mplock::{
    Decision, Epoch, HomeLock, LockData, Message, MessageBody, Node, NodeLock, Outbox, Protocol,
};

use super::{AgentOutbox, IDLE, Joining, LockEffect, LockHome, LockService, Notice};
use crate::frame::AgentLetter;

impl LockService {
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
    pub(super) fn settle(&mut self, now: u64) {
        while let Some((to, letter)) = self.outgoing.pop_front() {
            if to == self.me {
                self.deliver(self.me, self.epoch, letter, now);
            } else if self.is_here(to) {
                self.effects.push(LockEffect::Send(to, letter));
            }
        }
    }

    pub(super) fn deliver(&mut self, from: Node, epoch: Epoch, letter: AgentLetter, now: u64) {
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
        if let MessageBody::Stored { version } = message.body
            && from == home
            && self.inherited.get(&lock).is_some_and(|data| data.version() <= version)
        {
            self.inherited.remove(&lock);
        }
        let mut out = AgentOutbox { outgoing: &mut self.outgoing, lock, protocol, home };
        let Some(entry) = self.nodes.get_mut(&lock) else {
            if is_inquiry {
                NodeLock::default().on_message(message, &mut out);
                self.report_inherited(lock);
            }
            return;
        };
        let decision = entry.node.on_message(message, &mut out);
        if is_inquiry {
            self.report_inherited(lock);
        }
        let Some(entry) = self.nodes.get_mut(&lock) else { return };
        match decision {
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
            if message.body == MessageBody::Deposit
                && let Some(data) = &message.data
            {
                self.inherit(lock, data);
                let stored = MessageBody::Stored { version: data.version() };
                let mut out = AgentOutbox { outgoing: &mut self.outgoing, lock, protocol, home: self.me };
                out.to_node(from, Message::new(message.epoch, stored));
            }
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
                let new = HomeLock::new(protocol, self.epoch, self.floor);
                self.add_home(lock, LockHome { lock: new, protocol, doubtful: false, listed: false });
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
        let mut taken = HomeLock::take_over(protocol, self.epoch, &survivors, &dead, doubtful, &mut out);
        // This host may have been its home in this epoch already.
        taken.note_token(self.floor);
        self.add_home(lock, LockHome { lock: taken, protocol, doubtful, listed: false });
    }

    /// Adds a lock whose home this host is, with the data that were left for it.
    fn add_home(&mut self, lock: Identity, mut home: LockHome) {
        if let Some(data) = self.inherited.remove(&lock) {
            home.lock.note_data(&data);
        }
        self.homes.insert(lock, home);
    }

    /// Adds the data that a former home of a lock has kept to this host's report.
    fn report_inherited(&mut self, of: Identity) {
        let Some(inherited) = self.inherited.get(&of) else { return };
        for (_, letter) in self.outgoing.iter_mut().rev() {
            if let AgentLetter::Machine(LetterContent::Lock { lock, message, .. }) = letter
                && *lock == of
                && matches!(message.body, MessageBody::Report(_))
            {
                if message.data.as_ref().is_none_or(|data| data.version() < inherited.version()) {
                    message.data = Some(inherited.clone());
                }
                return;
            }
        }
    }

    /// Keeps data of a lock that this host has no state of as its home.
    pub(super) fn inherit(&mut self, lock: Identity, data: &LockData) {
        if self.inherited.get(&lock).is_none_or(|known| data.version() > known.version()) {
            self.inherited.insert(lock, data.clone());
        }
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
            && let died = self.former_home_died(first)
            && let Some(home) = self.homes.get_mut(&first)
        {
            home.listed = false;
            if home.lock.is_unused() {
                self.floor = self.floor.max(home.lock.token());
                if home.doubtful || died {
                    self.settled.insert(first);
                }
                let home = self.homes.remove(&first);
                // None, since a certain release: a copy that a node has kept is older.
                if let Some(none) = home.as_ref().and_then(|home| home.lock.data()) {
                    self.inherit(first, none);
                }
            }
        }
    }
}
