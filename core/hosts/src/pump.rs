//! Pump: one step of a gateway at a time, between this host's segment and the links.
//!
//! A step ([`Pump::pass`]) has an order that its promises rest on:
//!
//! 1. Ends, the progress of receivers, and arrivals at the barrier are looked at *before* messages
//!    are taken out of the proxies' queues ...
//! 2. ... all that are there are taken ...
//! 3. ... and the former are told *after* them.
//!
//! So a request counts as handled at its sender's host only behind the reply to it; an end comes
//! behind the last message of the ended; an arrival at the barrier behind the messages that were
//! sent before it.
//!
//! While a reply waits to be placed, the requests of its sender do not count as handled yet: if
//! this gateway ends, the reply is lost with it, and the request comes back.
//!
//! The end of an episode waits until the messages that came before it are placed, but for those
//! whose receiver waits at the barrier without polling (`World::barrier`): its full queue has no
//! space before the end. They are placed after it.
//!
//! **Progress.** A step takes no lock of another process (under the claim algorithms `towpath` and
//! `lock-free`) and waits for nothing. A full queue holds up the messages of one host for it. A
//! reply that waits holds up the requests of this host to its sender, too, once the proxy's queue
//! is full of those that do not count as handled; within a host that sender itself would wait.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use towpath_am::{Direction, MAX_ARGS, Name};
use towpath_shm::{HostArrival, World};

use crate::Error;
use crate::agreement::Agreement;
use crate::expectation::Expectation;
use crate::hosts::{Hosts, index_of};
use crate::inbound::{Inbound, InboundKey};
use crate::item::{self, ALL, BadItem, Item, RankChange, ReceivedItem};
use crate::link_queue::LinkQueue;
use crate::local::LocalRanks;
use crate::remote::{Placing, RemoteChange, RemoteRanks, code_of};
use crate::routes::Routes;

/// News for this host's launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Another host's launcher says this.
    Note {
        /// The other host.
        from: usize,
        /// Bytes that it gave to [`Gateway::tell`](crate::Gateway::tell).
        bytes: Vec<u8>,
    },
    /// The link to a host is lost, and its ranks are dead to this one.
    HostLost {
        /// The host.
        host: usize,
        /// Sentence that says why.
        why: String,
    },
    /// The gateway itself has failed: all ranks of other hosts are lost.
    Failed,
}

/// State of a gateway.
#[derive(Debug)]
pub struct Pump {
    world: World,
    local: LocalRanks,
    remote: RemoteRanks,
    inbound: HashMap<InboundKey, Inbound>,
    routes: Routes,
    /// State of the barrier, where this host decides on it.
    agreement: Option<Agreement>,
    /// Number of the last episode that has ended here.
    episode: u32,
    /// Episodes that end when messages up to a number are placed.
    concluding: VecDeque<(u32, Option<u32>, u64)>,
    /// Numbers of messages that remote endpoints have handled, behind replies that wait.
    handled_behind: Vec<(Name, Direction, u64)>,
    told_arrival: HostArrival,
    /// Number of messages that have come.
    received: u64,
    seen_events: u64,
    seen_deaths: u64,
    expectation: Expectation,
    /// Time for which the pump's thread sleeps now, in nanoseconds.
    sleep: u64,
    news: Vec<News>,
}

impl Pump {
    pub fn new(world: &World, hosts: Hosts, links: Vec<(usize, Arc<LinkQueue>)>) -> Result<Pump, Error> {
        let local = LocalRanks::new(world, &hosts)?;
        let remote = RemoteRanks::new(world, &hosts, local.watch().config().endpoints)?;
        let routes = Routes::new(hosts, links);
        let agreement = routes.hosts.is_hub().then(|| Agreement::new(routes.hosts.count(), 0));
        Ok(Pump {
            world: world.clone(),
            local,
            remote,
            inbound: HashMap::new(),
            routes,
            agreement,
            episode: 0,
            concluding: VecDeque::new(),
            handled_behind: Vec::new(),
            told_arrival: HostArrival::Awaited,
            received: 0,
            // Look at all at first.
            seen_events: u64::MAX,
            seen_deaths: 0,
            expectation: Expectation::Nothing,
            sleep: 0,
            news: Vec::new(),
        })
    }

    /// Takes the news for the launcher.
    pub fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// Tells another host's launcher, or all.
    pub fn tell(&mut self, to: Option<usize>, note: &[u8]) {
        self.routes.tell(to.map_or(ALL, |host| host as u16), &Item::Note(note));
        self.routes.flush();
    }

    /// Returns the progress that is to be looked for soon.
    pub fn expectation(&self) -> Expectation {
        self.expectation
    }

    // ---- a step ----

    /// Makes a step. Returns whether anything has moved.
    pub fn pass(&mut self) -> bool {
        let mut moved = self.place_waiting();
        self.count_handled(false);
        let (events, deaths) = (self.world.host_events(), self.world.deaths());
        let has_news = events != self.seen_events || deaths != self.seen_deaths;
        self.seen_events = events;
        let arrival = if has_news { self.world.host_arrival() } else { self.told_arrival };
        let ends = if has_news { self.local.ends() } else { Vec::new() };
        let handled = self.take_handled();
        moved |= self.take_messages() > 0;
        let Pump { local, routes, .. } = self;
        for &(key, by, count) in &handled {
            routes.tell(key.from, &Item::Handled { by, direction: key.direction(), count });
        }
        let mut died = Vec::new();
        let mut tell = |item: &Item<'_>| {
            if let Item::Rank(rank, RankChange::Died) = *item {
                died.push(rank);
            }
            routes.tell(ALL, item);
        };
        for &end in &ends {
            local.tell_end(end, &mut tell);
        }
        if has_news {
            local.tell_beginnings(&mut tell);
        }
        if has_news {
            // The rest of an endpoint's messages ends with it; their senders' hosts are told so.
            self.inbound.retain(|_, inbound| local.is_told(code_of(inbound.to())));
        }
        self.note_deaths(&died);
        if arrival != self.told_arrival {
            self.told_arrival = arrival;
            self.note_arrival(arrival);
        }
        if deaths != self.seen_deaths {
            self.seen_deaths = deaths;
            self.remote.proxies().for_each(|proxy| proxy.look_after(true));
        }
        moved |= self.apply_changes();
        self.conclude();
        self.routes.flush();
        self.expectation = self.expect();
        moved || has_news || !handled.is_empty()
    }

    /// Returns the progress that is to be looked for soon, as things are.
    fn expect(&self) -> Expectation {
        let waits = |inbound: &Inbound| inbound.first_waiting().is_some();
        let unhandled: usize = self.inbound.values().map(Inbound::unhandled).sum();
        // A sender waits for space when this many packets or blocks are not handled.
        if unhandled as u32 > self.local.watch().config().packets / 8 || self.inbound.values().any(waits) {
            Expectation::Space
        } else if unhandled > 0 || !self.concluding.is_empty() || self.remote.has_changes() {
            Expectation::Progress
        } else {
            Expectation::Nothing
        }
    }

    /// Takes all messages that have arrived at proxies, and tells them to their hosts.
    fn take_messages(&mut self) -> usize {
        let Pump { local, remote, routes, .. } = self;
        let mut count = 0;
        for proxy in remote.proxies() {
            let to = proxy.name();
            let host = routes.hosts.of(to) as u16;
            for direction in Direction::REPLIES_FIRST {
                count += proxy.take(direction, |message| {
                    if !local.is_told(message.source) {
                        if !local.is_possible(message.source) {
                            return false;
                        }
                        local.tell_source(message.source, |item| routes.tell(ALL, item));
                    }
                    routes.tell(host, &Item::Message { to, message: *message });
                    true
                });
            }
        }
        count
    }

    /// Takes the numbers of messages that local endpoints have handled.
    fn take_handled(&mut self) -> Vec<(InboundKey, Name, u64)> {
        let handled = self.inbound.iter_mut().filter(|(_, inbound)| !inbound.is_idle());
        let handled = handled.map(|(key, inbound)| (*key, inbound.to(), inbound.take_handled()));
        handled.filter(|(.., count)| *count > 0).collect()
    }

    // ---- messages of other hosts ----

    fn receive_message(&mut self, received: &ReceivedItem<'_>, item: &Item<'_>) -> Result<(), BadItem> {
        let Item::Message { to, message } = item else { return Err(BadItem) };
        let (from, hosts) = (usize::from(received.from), &self.routes.hosts);
        let (source, _) = towpath_am::packet::from_source_code(message.source);
        if hosts.of(*to) != hosts.me() || hosts.of_index(source) != from {
            return Err(BadItem);
        }
        let key = InboundKey {
            from: received.from,
            endpoint: index_of(*to),
            is_reply: message.direction.is_reply(),
        };
        self.received += 1;
        let is_known = self.inbound.get(&key).is_some_and(|inbound| inbound.to() == *to);
        if !is_known {
            // Its receiver may be gone: its sender's host is told so.
            let Some(queue) = self.local.watch().queue(*to, message.direction) else { return Ok(()) };
            self.inbound.insert(key, Inbound::new(*to, queue));
        }
        let Some(inbound) = self.inbound.get_mut(&key) else { return Ok(()) };
        if inbound.first_waiting().is_some() {
            inbound.wait(self.received, received.bytes);
            return Ok(());
        }
        match self.remote.place(*to, message) {
            Placing::Placed(ticket) => inbound.placed(Some(ticket)),
            Placing::NoSender => inbound.placed(None),
            Placing::Later => inbound.wait(self.received, received.bytes),
            Placing::NoReceiver => self.lose_receiver(key),
        }
        Ok(())
    }

    /// Places messages that wait, as far as there is space.
    fn place_waiting(&mut self) -> bool {
        let waits = |(key, inbound): (&InboundKey, &Inbound)| inbound.first_waiting().map(|_| *key);
        let keys: Vec<InboundKey> = self.inbound.iter().filter_map(waits).collect();
        let mut moved = false;
        for key in keys {
            while let Some(inbound) = self.inbound.get_mut(&key)
                && let Some(waiting) = inbound.take_waiting()
            {
                let mut args = [0; MAX_ARGS];
                let item = item::next(&mut &waiting.1[..]).and_then(|received| received.item(&mut args));
                // It was read before.
                let Ok(Item::Message { to, message }) = item else { continue };
                match self.remote.place(to, &message) {
                    Placing::Placed(ticket) => inbound.placed(Some(ticket)),
                    Placing::NoSender => inbound.placed(None),
                    Placing::Later => {
                        inbound.put_back(waiting);
                        break;
                    }
                    Placing::NoReceiver => self.lose_receiver(key),
                }
                moved = true;
            }
        }
        moved
    }

    /// Gives up the messages for a receiver that no sender reaches. If it is open all the
    /// same, other hosts are told that it is closed.
    fn lose_receiver(&mut self, key: InboundKey) {
        let Some(mut inbound) = self.inbound.remove(&key) else { return };
        let to = inbound.to();
        let count = inbound.take_handled();
        let Pump { local, routes, .. } = self;
        if count > 0 {
            routes.tell(key.from, &Item::Handled { by: to, direction: key.direction(), count });
        }
        if local.is_open(to) {
            local.abandon(to, |item| routes.tell(ALL, item));
        }
    }

    // ---- items ----

    /// Takes a frame of the link to a host.
    pub fn receive(&mut self, link: usize, mut frame: &[u8]) -> Result<(), BadItem> {
        while !frame.is_empty() {
            let received = item::next(&mut frame)?;
            let (from, me, hosts) = (usize::from(received.from), self.routes.hosts.me(), &self.routes.hosts);
            let is_hub = hosts.is_hub();
            if from >= hosts.count() || from == me || is_hub && from != link {
                return Err(BadItem);
            }
            if is_hub && usize::from(received.to) != me {
                self.routes.pass_on(&received);
            }
            if usize::from(received.to) == me || received.to == ALL {
                self.receive_item(&received)?;
            } else if !is_hub {
                return Err(BadItem);
            }
        }
        Ok(())
    }

    fn receive_item(&mut self, received: &ReceivedItem<'_>) -> Result<(), BadItem> {
        let mut args = [0; MAX_ARGS];
        let item = received.item(&mut args)?;
        let from = usize::from(received.from);
        let hosts = &self.routes.hosts;
        let is_of_sender = |host: usize| if host == from { Ok(()) } else { Err(BadItem) };
        match item {
            Item::Message { .. } => self.receive_message(received, &item)?,
            Item::Handled { by, direction, count } => {
                is_of_sender(hosts.of(by))?;
                self.handled_behind.push((by, direction, count));
                self.count_handled(false);
            }
            Item::Rank(rank, change) => {
                is_of_sender(hosts.of_rank(rank))?;
                if change != RankChange::Came {
                    self.count_handled(true);
                }
                match change {
                    RankChange::Came => self.remote.change(rank, RemoteChange::Came),
                    RankChange::Left => self.remote.change(rank, RemoteChange::Left),
                    RankChange::Died => {
                        let replies_wait = self.replies_wait();
                        self.remote.die(rank, replies_wait);
                        self.note_deaths(&[rank]);
                    }
                }
            }
            Item::Opened(name, rank) => {
                is_of_sender(hosts.of(name))?;
                is_of_sender(hosts.of_rank(rank))?;
                self.remote.change(rank, RemoteChange::Opened(name));
            }
            Item::Closed(name) => {
                is_of_sender(hosts.of(name))?;
                self.count_handled(true);
                if let Some(rank) = self.remote.rank_of(name) {
                    self.remote.change(rank, RemoteChange::Closed(name));
                }
            }
            Item::Arrival(arrival) => {
                if let Some(agreement) = &mut self.agreement {
                    agreement.note(from, arrival);
                    self.decide();
                }
            }
            Item::Conclude(episode, dead) => {
                is_of_sender(0)?;
                self.concluding.push_back((episode, dead, self.received));
            }
            Item::Note(bytes) => self.news.push(News::Note { from, bytes: bytes.to_vec() }),
        }
        Ok(())
    }

    /// Counts messages as handled, but for requests to an endpoint whose reply waits; or
    /// all, before an end is applied: the sender of such a request does not get it back as well.
    fn count_handled(&mut self, all: bool) {
        let mut behind = std::mem::take(&mut self.handled_behind);
        behind.retain(|&(by, direction, count)| {
            let is_held = !all && !direction.is_reply() && self.reply_waits(by);
            if !is_held && let Some(proxy) = self.remote.proxy(by) {
                proxy.handled(direction, count);
            }
            is_held
        });
        self.handled_behind = behind;
    }

    /// Returns whether a reply of this endpoint waits to be placed.
    fn reply_waits(&self, by: Name) -> bool {
        let replies = self.inbound.iter().filter(|(key, _)| key.is_reply);
        replies.flat_map(|(_, inbound)| inbound.waiting()).any(|bytes| is_from(bytes, code_of(by)))
    }

    /// Returns whether replies wait to be placed.
    fn replies_wait(&self) -> bool {
        self.inbound.iter().any(|(key, inbound)| key.is_reply && inbound.first_waiting().is_some())
    }

    /// Applies changes of ranks of other hosts.
    fn apply_changes(&mut self) -> bool {
        let replies_wait = self.replies_wait();
        let Pump { remote, inbound, .. } = self;
        if !remote.has_changes() {
            return false;
        }
        let waits = |source| inbound.values().flat_map(Inbound::waiting).any(|bytes| is_from(bytes, source));
        remote.apply(waits, replies_wait)
    }

    // ---- barrier ----

    fn note_deaths(&mut self, ranks: &[u32]) {
        if let Some(agreement) = &mut self.agreement {
            ranks.iter().for_each(|&rank| agreement.died(rank));
        }
    }

    /// Tells the host that decides how far the ranks of this one are.
    fn note_arrival(&mut self, arrival: HostArrival) {
        match &mut self.agreement {
            Some(agreement) => {
                agreement.note(self.routes.hosts.me(), arrival);
                self.decide();
            }
            None => self.routes.tell(0, &Item::Arrival(arrival)),
        }
    }

    fn decide(&mut self) {
        if let Some(agreement) = &mut self.agreement
            && let Some((episode, dead)) = agreement.decide()
        {
            self.routes.tell(ALL, &Item::Conclude(episode, dead));
            self.concluding.push_back((episode, dead, self.received));
        }
    }

    /// Ends episodes whose messages are placed, as far as their receivers poll.
    fn conclude(&mut self) {
        while let Some(&(episode, dead, received)) = self.concluding.front() {
            let is_awaited = |inbound: &Inbound| {
                inbound.first_waiting().is_some_and(|first| first <= received) && inbound.polls_at_barrier()
            };
            if self.inbound.values().any(is_awaited) {
                return;
            }
            self.concluding.pop_front();
            self.episode = episode;
            self.world.conclude(episode, dead);
        }
    }

    // ---- links ----

    /// Notes that the link to a host is lost: its ranks are dead, and at a host that does
    /// not listen so are those of all others.
    pub fn lose(&mut self, link: usize, why: &str) {
        if !self.routes.unlink(link) {
            return;
        }
        let (me, is_hub) = (self.routes.hosts.me(), self.routes.hosts.is_hub());
        let lost: Vec<usize> =
            (0..self.routes.hosts.count()).filter(|&host| host != me && (host == link || !is_hub)).collect();
        if !is_hub {
            // From now on this host decides for itself.
            let mut agreement = Agreement::new(self.routes.hosts.count(), self.episode);
            self.concluding.clear();
            agreement.note(me, self.told_arrival);
            self.agreement = Some(agreement);
        }
        self.count_handled(true);
        for host in lost {
            for rank in self.routes.hosts.ranks(host) {
                if self.remote.is_dead(rank) {
                    continue;
                }
                let replies_wait = self.replies_wait();
                self.remote.die(rank, replies_wait);
                self.note_deaths(&[rank]);
                if is_hub {
                    let mut out = Vec::new();
                    item::write(&mut out, ALL, host as u16, &Item::Rank(rank, RankChange::Died));
                    if let Ok(died) = item::next(&mut &out[..]) {
                        self.routes.pass_on(&died);
                    }
                }
            }
            if let Some(agreement) = &mut self.agreement {
                agreement.note(host, HostArrival::NoneExpected);
            }
            self.news.push(News::HostLost { host, why: why.to_owned() });
        }
        // No host is left that waits to hear of their progress.
        let routes = &self.routes;
        self.inbound
            .retain(|key, inbound| routes.is_linked(key.from.into()) || inbound.first_waiting().is_some());
        self.decide();
        self.routes.flush();
    }

    /// Gives up the links whose hosts do not answer any more.
    pub fn lose_silent(&mut self) {
        for host in self.routes.silent() {
            if let Some(queue) = self.routes.link_queue(host) {
                queue.close();
            }
            self.lose(host, &format!("it has not answered for {} s", towpath_net::SILENCE.as_secs()));
        }
    }

    // ---- sleep ----

    /// Looks at all ranks, endpoints and proxies, whether or not anything has been told.
    pub fn look_around(&mut self) {
        self.world.check_deaths();
        self.seen_events = u64::MAX;
        self.remote.proxies().for_each(|proxy| proxy.look_after(false));
    }

    /// Says that the gateway will sleep. `false` if it must not: something has come.
    pub fn arm(&mut self) -> bool {
        self.remote.arm() && self.world.host_events() == self.seen_events
    }

    /// Notes for how long the pump's thread sleeps, in nanoseconds; 0: it runs.
    pub fn sleeps_for(&mut self, sleep: u64) {
        self.sleep = sleep;
    }

    /// Returns whether the pump's thread sleeps too long for the messages that have come
    /// since, and notes that it is woken.
    pub fn must_wake(&mut self) -> bool {
        let must_wake = self.sleep > self.expectation.longest_sleep();
        if must_wake {
            self.sleep = 0;
        }
        must_wake
    }

    /// The frames of the link to a host.
    pub fn link_queue(&self, host: usize) -> Option<Arc<LinkQueue>> {
        self.routes.link_queue(host).cloned()
    }

    /// Takes that back.
    pub fn disarm(&mut self) {
        self.remote.disarm();
    }

    /// Notes that the gateway's thread sleeps, or runs.
    pub fn show_asleep(&self, asleep: bool) {
        self.remote.show_asleep(asleep);
    }
}

/// Returns whether a message that waits is from the endpoint with this source code.
fn is_from(bytes: &[u8], source: u32) -> bool {
    let mut args = [0; MAX_ARGS];
    let item = item::next(&mut &bytes[..]).and_then(|received| received.item(&mut args));
    matches!(item, Ok(Item::Message { message, .. }) if message.source == source)
}
