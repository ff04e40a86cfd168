//! Hosts whose letters, changes of membership, deaths and leases come in random orders.

use std::collections::{BTreeMap, VecDeque};

use towpath_machine::Random;

use super::*;
use crate::membership::{Applied, HostMembership, MembershipChange};

const HOSTS: usize = 3;
const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Copy, Debug, PartialEq)]
enum ClientState {
    Waits,
    Holds,
    /// Holds a lock that may be given to others.
    Lost,
    Over,
}

#[derive(Debug)]
struct SimulatedClient {
    host: Node,
    name: &'static str,
    mode: Mode,
    tries: bool,
    state: ClientState,
    token: FencingToken,
}

struct SimulatedHost {
    service: LockService,
    membership: HostMembership,
    applied: usize,
    incarnation: Incarnation,
    valid: bool,
    removed: Vec<Incarnation>,
}

struct LetterOnTheWay {
    epoch: Epoch,
    letter: AgentLetter,
    /// Incarnations of sender and receiver.
    incarnations: [Incarnation; 2],
}

/// Data that holders have published, by their tokens.
struct Publications {
    all: BTreeMap<FencingToken, Vec<u8>>,
    /// The last of them; several where it is not known which release counts.
    last: Vec<Option<FencingToken>>,
}

struct Cluster {
    hosts: Vec<SimulatedHost>,
    log: Vec<MembershipChange>,
    links: BTreeMap<(Node, Node), VecDeque<LetterOnTheWay>>,
    clients: BTreeMap<u64, SimulatedClient>,
    last_client: u64,
    last_incarnation: u64,
    tokens: BTreeMap<&'static str, [FencingToken; 2]>,
    data: BTreeMap<&'static str, Publications>,
    /// Locks whose exclusive holder has died, where the next one was not told yet.
    deaths: BTreeMap<&'static str, bool>,
    grants: usize,
    clock: Random,
}

impl Cluster {
    fn new(seed: u64) -> Cluster {
        let mut cluster = Cluster {
            hosts: Vec::new(),
            log: Vec::new(),
            links: BTreeMap::new(),
            clients: BTreeMap::new(),
            last_client: 0,
            last_incarnation: 0,
            tokens: BTreeMap::new(),
            data: BTreeMap::new(),
            deaths: BTreeMap::new(),
            grants: 0,
            clock: Random::new(seed),
        };
        for host in 0..HOSTS as Node {
            let new = cluster.make(host);
            cluster.hosts.push(new);
            let incarnation = cluster.hosts[usize::from(host)].incarnation;
            cluster.log.push(MembershipChange::Admit { host, incarnation, floor: 0 });
        }
        cluster
    }

    /// Time of a wall clock that is set at each look. Only the status depends on it.
    fn time(&mut self) -> u64 {
        self.clock.word()
    }

    fn make(&mut self, host: Node) -> SimulatedHost {
        self.last_incarnation += 1 << 20;
        let incarnation = self.last_incarnation;
        let (now, mut service) = (self.time(), LockService::new(host, HOSTS, incarnation));
        service.set_valid(true, now);
        let (membership, removed) = (HostMembership::new(HOSTS), Vec::new());
        SimulatedHost { service, membership, applied: 0, incarnation, valid: true, removed }
    }

    /// Carries the effects of a host's last call, and checks them.
    fn carry(&mut self, host: Node) {
        let at = usize::from(host);
        for effect in self.hosts[at].service.take_effects() {
            match effect {
                LockEffect::Send(to, letter) => {
                    let from = &self.hosts[at];
                    let epoch = from.service.epoch;
                    let receiver = from.membership.member(to).unwrap().incarnation;
                    let incarnations = [from.incarnation, receiver];
                    let letter = LetterOnTheWay { epoch, letter, incarnations };
                    self.links.entry((host, to)).or_default().push_back(letter);
                }
                LockEffect::Notify(number, Notice::Granted { token, previous_owner_died, data }) => {
                    self.on_grant(number, token, previous_owner_died);
                    self.check_data(number, data.as_ref(), previous_owner_died);
                }
                LockEffect::Notify(number, Notice::Refused) => {
                    let client = self.clients.get_mut(&number).unwrap();
                    assert!(client.tries && client.state == ClientState::Waits);
                    client.state = ClientState::Over;
                }
                LockEffect::Notify(number, Notice::NoLease) => {
                    assert_eq!(self.clients[&number].state, ClientState::Waits);
                    let host = &self.hosts[at];
                    assert!(!(host.valid && host.service.takes_part()));
                }
                LockEffect::Notify(number, Notice::Lost) => self.lose(number),
                LockEffect::Notify(number, Notice::Regained) => {
                    let client = self.clients.get_mut(&number).unwrap();
                    assert_eq!(client.state, ClientState::Lost);
                    client.state = ClientState::Holds;
                    self.check_exclusion(number);
                }
            }
        }
    }

    fn lose(&mut self, number: u64) {
        let client = self.clients.get_mut(&number).unwrap();
        assert_eq!(client.state, ClientState::Holds);
        client.state = ClientState::Lost;
    }

    fn check_exclusion(&self, number: u64) {
        let client = &self.clients[&number];
        for (other, beside) in &self.clients {
            let both = *other != number && beside.name == client.name && beside.state == ClientState::Holds;
            let excludes = client.mode == Mode::Exclusive || beside.mode == Mode::Exclusive;
            assert!(!(both && excludes), "{client:?} beside {beside:?}");
        }
    }

    fn on_grant(&mut self, number: u64, token: FencingToken, previous_owner_died: bool) {
        Self::trace(format_args!(
            "granted {number} {:?} {token} {previous_owner_died}",
            self.clients[&number]
        ));
        self.grants += 1;
        let client = self.clients.get_mut(&number).unwrap();
        assert_eq!(client.state, ClientState::Waits);
        (client.state, client.token) = (ClientState::Holds, token);
        let (name, mode) = (client.name, client.mode);
        assert!(self.hosts[usize::from(client.host)].valid, "no grant without a lease");
        self.check_exclusion(number);
        // Largest token, and that of the last writer.
        let [largest, writers] = self.tokens.entry(name).or_insert([FencingToken::NONE; 2]);
        match mode {
            Mode::Exclusive => assert!(token > *largest, "{name}: {token} after {largest}"),
            Mode::Shared => assert!(token > *writers, "{name}: {token} after {writers}"),
        }
        *largest = (*largest).max(token);
        if mode == Mode::Exclusive {
            *writers = token;
        }
        if self.deaths.get(name) == Some(&true) {
            assert!(previous_owner_died, "{name}: a death is told");
        }
        if mode == Mode::Exclusive {
            self.deaths.insert(name, false);
        }
    }

    /// Checks the data that came with a grant: the last ones, unless a death was told.
    fn check_data(&mut self, number: u64, data: Option<&LockData>, told: bool) {
        let name = self.clients[&number].name;
        let none = || Publications { all: BTreeMap::new(), last: vec![None] };
        let Publications { all, last } = self.data.entry(name).or_insert_with(none);
        let version = data.map(LockData::version);
        if let Some(data) = data {
            assert_eq!(all[&data.version()], data.bytes(), "{name}: data that were published");
        }
        // None at all are the same as none since a release.
        let is_none = |version: &Option<FencingToken>| version.is_none_or(|version| all[&version].is_empty());
        let is_last = last.contains(&version) || is_none(&version) && last.iter().any(is_none);
        assert!(told || is_last, "{name}: data of {version:?}, not of {last:?}");
        *last = vec![version];
    }

    /// Data that a holder leaves: none now and then, and sometimes none that are changed.
    fn publish(&mut self, number: u64, leaving: Leaving) -> Option<Vec<u8>> {
        let &SimulatedClient { name, mode, state, token, .. } = &self.clients[&number];
        if token.get() % 3 == 0 {
            return None;
        }
        let bytes = if token.get() % 5 == 0 { Vec::new() } else { number.to_le_bytes().to_vec() };
        let counts = mode == Mode::Exclusive && leaving != Leaving::Died;
        if counts && matches!(state, ClientState::Holds | ClientState::Lost) {
            let Publications { all, last } = self.data.get_mut(name).unwrap();
            all.insert(token, bytes.clone());
            if state == ClientState::Holds {
                last.clear();
            }
            last.push(Some(token));
        }
        (leaving != Leaving::Died).then_some(bytes)
    }

    fn wish(&mut self, host: Node, name: &'static str, mode: Mode, tries: bool) {
        self.last_client += 1;
        let number = self.last_client;
        let (state, token) = (ClientState::Waits, FencingToken::NONE);
        self.clients.insert(number, SimulatedClient { host, name, mode, tries, state, token });
        Self::trace(format_args!("wish {number} {:?}", self.clients[&number]));
        let wish = Wish { client: number, mode, tries, process: 1, description: String::new(), since: 0 };
        let now = self.time();
        self.hosts[usize::from(host)].service.on_wish(name, wish, now);
        self.carry(host);
    }

    fn leave(&mut self, number: u64, leaving: Leaving) {
        let data = self.publish(number, leaving);
        let client = self.clients.get_mut(&number).unwrap();
        if client.state == ClientState::Holds && client.mode == Mode::Exclusive {
            match leaving {
                Leaving::Died => _ = self.deaths.insert(client.name, true),
                Leaving::Consistent => _ = self.deaths.insert(client.name, false),
                Leaving::Unchanged => {}
            }
        }
        if client.state == ClientState::Lost {
            // It may be in time, or not.
            self.deaths.remove(client.name);
        }
        let host = client.host;
        Self::trace(format_args!("leaves {number} {client:?} {leaving:?}"));
        client.state = ClientState::Over;
        let now = self.time();
        self.hosts[usize::from(host)].service.on_leave(number, leaving, data.as_deref(), now);
        self.carry(host);
    }

    fn trace(text: std::fmt::Arguments<'_>) {
        if std::env::var_os("TRACE").is_some() {
            eprintln!("{text}");
        }
    }

    fn deliver(&mut self, from: Node, to: Node) {
        let Some(on_the_way) = self.links.get_mut(&(from, to)).and_then(VecDeque::pop_front) else { return };
        let LetterOnTheWay { epoch, letter, incarnations } = on_the_way;
        let now = self.time();
        let host = &mut self.hosts[usize::from(to)];
        let is_over = host.removed.contains(&incarnations[0]) || incarnations[1] != host.incarnation;
        if is_over {
            return;
        }
        let bytes = letter.encode(from);
        assert_eq!(AgentLetter::decode(from, &bytes).as_ref(), Some(&letter));
        Self::trace(format_args!("{from} -> {to} [{epoch}, at {}] {letter:?}", host.service.epoch));
        host.service.on_letter(from, epoch, letter, now);
        self.carry(to);
    }

    fn apply(&mut self, to: Node) {
        let now = self.time();
        let host = &mut self.hosts[usize::from(to)];
        let Some(change) = self.log.get(host.applied) else { return };
        host.applied += 1;
        let Some(applied) = host.membership.apply(change) else { return };
        Self::trace(format_args!("{to} applies {applied:?}"));
        host.service.on_change(applied, &host.membership, now);
        if let Applied::Removed(_, incarnation) = applied {
            host.removed.push(incarnation);
        }
        if applied == Applied::Removed(to, host.incarnation) {
            // It comes again as another incarnation.
            self.last_incarnation += 1 << 20;
            host.incarnation = self.last_incarnation;
            host.service.reset(host.incarnation, now);
            host.valid = true;
            host.service.set_valid(true, now);
            let (incarnation, floor) = (host.incarnation, 0);
            self.log.push(MembershipChange::Admit { host: to, incarnation, floor });
        }
        self.carry(to);
    }

    /// Removes a host: its lease is over before.
    fn remove(&mut self, host: Node, dies: bool) {
        let at = usize::from(host);
        let incarnation = self.hosts[at].incarnation;
        // One whose admission was not decided yet is left alone.
        let mut decided = HostMembership::new(HOSTS);
        for change in &self.log {
            decided.apply(change);
        }
        if !decided.has(host, incarnation) || decided.here().count() < HOSTS {
            return;
        }
        let now = self.time();
        self.hosts[at].valid = false;
        self.hosts[at].service.set_valid(false, now);
        self.carry(host);
        // The news of an older death may be on its way to or from this host.
        self.deaths.clear();
        let holders = self.clients.values().filter(|c| c.host == host && c.state == ClientState::Lost);
        let names: Vec<&str> = holders.filter(|c| c.mode == Mode::Exclusive).map(|c| c.name).collect();
        for name in names {
            self.deaths.insert(name, true);
        }
        self.log.push(MembershipChange::Suspect { host, incarnation });
        self.log.push(MembershipChange::Remove { host, incarnation });
        if dies {
            for client in self.clients.values_mut().filter(|client| client.host == host) {
                client.state = ClientState::Over;
            }
            let new = self.make(host);
            let incarnation = new.incarnation;
            self.hosts[at] = new;
            self.log.push(MembershipChange::Admit { host, incarnation, floor: 0 });
        }
    }

    fn holders(&self) -> Vec<u64> {
        let holds = |client: &SimulatedClient| matches!(client.state, ClientState::Holds | ClientState::Lost);
        self.clients.iter().filter(|(_, client)| holds(client)).map(|(&number, _)| number).collect()
    }
}

/// Seed of a history: printed if it fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}

fn history(seed: u64, steps: usize, deaths: bool) -> usize {
    let _printed = Seed(seed);
    let mut dice = Random::new(seed);
    let mut cluster = Cluster::new(seed);
    let host = |dice: &mut Random| dice.below(HOSTS as u64) as Node;
    for _ in 0..steps {
        match dice.below(40) {
            0..4 => {
                let (to, name) = (host(&mut dice), NAMES[dice.below(NAMES.len() as u64) as usize]);
                let mode = if dice.below(3) == 0 { Mode::Shared } else { Mode::Exclusive };
                let tries = dice.below(4) == 0;
                cluster.wish(to, name, mode, tries);
            }
            4..10 => {
                let holders = cluster.holders();
                if !holders.is_empty() {
                    let leaving =
                        [Leaving::Consistent, Leaving::Unchanged, Leaving::Died][dice.below(3) as usize];
                    cluster.leave(holders[dice.below(holders.len() as u64) as usize], leaving);
                }
            }
            10 => {
                let waits = |(_, client): &(&u64, &SimulatedClient)| client.state == ClientState::Waits;
                let waiters: Vec<u64> = cluster.clients.iter().filter(waits).map(|(&n, _)| n).collect();
                if !waiters.is_empty() {
                    cluster.leave(waiters[dice.below(waiters.len() as u64) as usize], Leaving::Unchanged);
                }
            }
            11..14 => {
                let to = host(&mut dice);
                cluster.apply(to);
            }
            14 if deaths && dice.below(10) == 0 => {
                let gone = host(&mut dice);
                let dies = dice.below(2) == 0;
                cluster.remove(gone, dies);
            }
            15 if dice.below(4) == 0 => {
                let at = usize::from(host(&mut dice));
                if cluster.hosts[at].membership.has(at as Node, cluster.hosts[at].incarnation) {
                    let valid = !cluster.hosts[at].valid;
                    let doomed = cluster.log.iter().any(|change| matches!(change, MembershipChange::Suspect { incarnation, .. } if *incarnation == cluster.hosts[at].incarnation));
                    if !doomed {
                        let now = cluster.time();
                        cluster.hosts[at].valid = valid;
                        cluster.hosts[at].service.set_valid(valid, now);
                        cluster.carry(at as Node);
                    }
                }
            }
            _ => {
                let (from, to) = (host(&mut dice), host(&mut dice));
                cluster.deliver(from, to);
            }
        }
    }
    // Calm: all is delivered, and each holder leaves. Then each waiter is served.
    for round in 0.. {
        for to in 0..HOSTS as Node {
            while cluster.hosts[usize::from(to)].applied < cluster.log.len() {
                cluster.apply(to);
            }
            let now = cluster.time();
            let at = &mut cluster.hosts[usize::from(to)];
            if !at.valid && !at.membership.is_doomed(at.incarnation) {
                at.valid = true;
                at.service.set_valid(true, now);
                cluster.carry(to);
            }
        }
        while cluster.links.values().any(|link| !link.is_empty()) {
            for (from, to) in cluster.links.keys().copied().collect::<Vec<_>>() {
                cluster.deliver(from, to);
            }
        }
        let holders = cluster.holders();
        let all_applied = cluster.hosts.iter().all(|host| host.applied == cluster.log.len());
        if holders.is_empty() && all_applied {
            break;
        }
        for number in holders {
            cluster.leave(number, Leaving::Consistent);
        }
        assert!(round < 1000, "seed {seed}");
    }
    let waiting: Vec<_> = cluster.clients.iter().filter(|(_, c)| c.state == ClientState::Waits).collect();
    assert!(waiting.is_empty(), "seed {seed}: never served: {waiting:?}");
    for host in &cluster.hosts {
        assert!(host.service.nodes.values().all(HostLock::is_unused));
        assert!(host.service.clients.is_empty());
    }
    cluster.grants
}

#[test]
fn locks_exclude_and_waiters_are_served_without_deaths() {
    let grants: usize = (0..300).map(|seed| history(seed, 600, false)).sum();
    assert!(grants > 3000, "{grants}");
}

#[test]
fn locks_exclude_and_waiters_are_served_with_deaths() {
    let grants: usize = (0..600).map(|seed| history(seed, 900, true)).sum();
    assert!(grants > 3000, "{grants}");
}

#[test]
#[ignore = "takes minutes: see CONTRIBUTING.md"]
fn many_histories() {
    let only = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = only.map_or(0..100_000, |seed: u64| seed..seed + 1);
    for seed in seeds {
        history(seed, 1200, true);
    }
}
