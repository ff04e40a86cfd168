//! An agent: input, output and time around the locks of a host.
//!
//! One thread polls everything: links to other agents, connections of the host's processes, and
//! the threads that make links. It never waits for one of them.
//!
//! | an agent | then |
//! | --- | --- |
//! | is killed | its host's holders are told; the others remove the host when its lease is over, and give its locks on |
//! | starts again | it comes as another incarnation, when the former one was removed |
//! | is stopped, or cut off | as killed, but that it tells its holders itself, when it goes on |
//! | can't write its state | it ends |

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use towpath_mplock::{Mode, Node};
use towpath_net::PolledLink;

use crate::Error;
use crate::consensus::Consensus;
use crate::dial::{NewLink, NewLinks};
use crate::frame::{AgentLetter, Beat, Doubt, Frame, Greeting};
use crate::hosts::HostsFile;
use crate::journal::{EpochFile, Journal};
use crate::lease::{BootTime, Lease, boot_time};
use crate::membership::{Applied, HostMembership, Incarnation, MembershipChange};
use crate::report::HostReport;
use crate::service::{ClientNumber, Leaving, LockEffect, LockService, Notice, Wish};
use crate::session::Session;
use crate::socket::{AgentLine, ClientLine, LineConnection, is_trusted, socket_path};

/// Time for which a host's answer to the status is waited for.
const STATUS: Duration = Duration::from_millis(500);
/// Time for which a link may exist without a greeting.
const GREETING: Duration = Duration::from_secs(5);

/// Link to another agent.
#[derive(Debug)]
struct HostLink {
    link: PolledLink,
    incarnation: Incarnation,
}

/// Link whose other end has not said which host it is.
#[derive(Debug)]
struct NamelessLink {
    new: NewLink,
    since: BootTime,
}

/// News of another agent, from its last beat.
#[derive(Clone, Debug, Default)]
struct PeerView {
    at: BootTime,
    silences: Vec<u64>,
    doubts: Vec<Doubt>,
}

/// Question for the status that is under way.
#[derive(Debug)]
struct StatusQuestion {
    client: ClientNumber,
    reports: Vec<HostReport>,
    awaited: Vec<Node>,
    until: BootTime,
    lock: Option<String>,
}

/// Agent of a host.
///
/// ```no_run
/// use std::path::Path;
/// use towpath_agent::{Agent, HostsFile};
///
/// let hosts = HostsFile::read(Path::new("hosts"))?;
/// let mut agent = Agent::start(hosts, None, |line| eprintln!("{line}"))?;
/// agent.serve(None)?;
/// # Ok::<(), towpath_agent::Error>(())
/// ```
pub struct Agent {
    me: Node,
    hosts: HostsFile,
    incarnation: Incarnation,
    begun: BootTime,
    membership: HostMembership,
    consensus: Consensus,
    epoch_file: EpochFile,
    lease: Lease,
    service: LockService,
    new_links: NewLinks,
    nameless: Vec<NamelessLink>,
    links: Vec<Option<HostLink>>,
    sessions: HashMap<(Node, Incarnation), Session>,
    /// Incarnations that hosts had in their last greetings.
    greeted: Vec<Incarnation>,
    views: Vec<PeerView>,
    listener: UnixListener,
    socket: PathBuf,
    clients: HashMap<ClientNumber, LineConnection>,
    last_client: ClientNumber,
    questions: HashMap<u64, StatusQuestion>,
    last_question: u64,
    ticks: u64,
    next_tick: BootTime,
    last_look: BootTime,
    had_lease: bool,
    say: Box<dyn FnMut(&str)>,
    /// Lock of the state on disk: one agent for each host and user.
    _running: File,
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent")
            .field("me", &self.me)
            .field("membership", &self.membership)
            .finish_non_exhaustive()
    }
}

/// Returns the time in nanoseconds since 1970.
fn wall_time() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn random() -> Result<Incarnation, Error> {
    let mut bytes = [0; 8];
    let flags = rustix::rand::GetRandomFlags::empty();
    rustix::rand::getrandom(&mut bytes, flags)
        .map_err(|error| Error::system("asking for a random number")(error.into()))?;
    Ok(Incarnation::from_le_bytes(bytes).max(1))
}

impl Agent {
    /// Starts the agent of this host: it listens, and dials the other hosts.
    ///
    /// `host`: the name of this host in the hosts file, where it is not clear. `say` is told, in
    /// sentences, of changes of the membership and the lease.
    ///
    /// # Errors
    ///
    /// [`Error::Running`] if this user's agent of the host runs already; [`Error::Hosts`],
    /// [`Error::State`], [`Error::Net`], [`Error::System`].
    pub fn start(
        hosts: HostsFile,
        host: Option<&str>,
        say: impl FnMut(&str) + 'static,
    ) -> Result<Agent, Error> {
        let me = hosts.find(host)?;
        let count = hosts.hosts.len();
        let key = hosts.key()?;
        let state = hosts.state_of(me)?;
        let failed = |error: io::Error| Error::State(state.clone(), error.to_string());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&state).map_err(failed)?;
        let log = state.join(format!("log-{}", hosts.fingerprint()));
        let running = File::create(log.with_extension("running")).map_err(failed)?;
        if flock(&running, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(Error::Running(hosts.hosts[usize::from(me)].name.clone()));
        }
        let epoch_file = EpochFile::open(state.join("epoch"))?;
        let consensus = Consensus::new(me, count, Journal::open(&log)?)?;
        let addresses: Vec<_> = hosts.hosts.iter().map(|host| host.address).collect();
        let new_links = NewLinks::begin(me, &addresses, &key, &hosts.purpose())?;
        let socket = socket_path(&hosts, me);
        let listener = listen(&socket)?;
        let (incarnation, now) = (random()?, boot_time());
        let mut agent = Agent {
            me,
            incarnation,
            begun: now,
            membership: HostMembership::new(count),
            consensus,
            epoch_file,
            lease: Lease::new(me, count, hosts.lease, now),
            service: LockService::new(me, count, incarnation),
            new_links,
            nameless: Vec::new(),
            links: (0..count).map(|_| None).collect(),
            sessions: HashMap::new(),
            greeted: vec![0; count],
            views: vec![PeerView::default(); count],
            listener,
            socket,
            clients: HashMap::new(),
            last_client: 0,
            questions: HashMap::new(),
            last_question: 0,
            ticks: 0,
            next_tick: now,
            last_look: now,
            had_lease: false,
            say: Box::new(say),
            hosts,
            _running: running,
        };
        agent.apply_decided()?;
        Ok(agent)
    }

    /// Returns the name of this host in the hosts file.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.hosts.hosts[usize::from(self.me)].name
    }

    /// Serves until `stop` becomes readable, or without an end.
    ///
    /// # Errors
    ///
    /// [`Error::State`] if the state can't be written, [`Error::System`] if the system refuses to
    /// poll.
    pub fn serve(&mut self, stop: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        loop {
            let stopped = self.turn(stop)?;
            if stopped {
                return Ok(());
            }
        }
    }

    fn tick_time(&self) -> Duration {
        (self.hosts.lease / 20).max(Duration::from_millis(10))
    }

    /// Waits for events and handles them. `true`: `stop` is readable.
    fn turn(&mut self, stop: Option<BorrowedFd<'_>>) -> Result<bool, Error> {
        let ready = self.sleep(stop)?;
        let now = boot_time();
        self.look_at_lease(now);
        if ready.new_links {
            while let Some(new) = self.new_links.take() {
                self.on_new_link(new, now);
            }
        }
        if ready.listener {
            self.accept_clients();
        }
        for host in ready.links {
            self.read_link(host, now)?;
        }
        if ready.nameless {
            self.read_nameless(now);
        }
        for client in ready.clients {
            self.read_client(client);
        }
        self.carry();
        if !self.questions.is_empty() {
            self.end_questions(now);
        }
        if now >= self.next_tick {
            self.tick(now)?;
            self.next_tick = now + self.tick_time();
        }
        self.last_look = now;
        Ok(ready.stop)
    }

    fn sleep(&self, stop: Option<BorrowedFd<'_>>) -> Result<Ready, Error> {
        let now = boot_time();
        let mut until = self.next_tick;
        if self.had_lease {
            until = until.min(self.lease.valid_until().unwrap_or(until).max(now));
        }
        let wait = until.saturating_sub(now);
        let limit =
            Timespec { tv_sec: wait.as_secs().try_into().unwrap_or(0), tv_nsec: wait.subsec_nanos().into() };
        let events = |waiting: bool| if waiting { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let linked: Vec<Node> =
            (0..self.links.len() as Node).filter(|&host| self.links[usize::from(host)].is_some()).collect();
        let numbers: Vec<ClientNumber> = self.clients.keys().copied().collect();
        let mut sources =
            vec![PollFd::new(&self.listener, PollFlags::IN), PollFd::new(&self.new_links, PollFlags::IN)];
        let links = self.links.iter().flatten();
        sources.extend(links.map(|link| PollFd::new(&link.link, events(link.link.is_waiting()))));
        sources.extend(self.nameless.iter().map(|link| PollFd::new(&link.new.link, PollFlags::IN)));
        let clients = numbers.iter().map(|number| &self.clients[number]);
        sources.extend(clients.map(|client| PollFd::new(client, events(client.is_waiting()))));
        sources.extend(stop.map(|stop| PollFd::from_borrowed_fd(stop, PollFlags::IN)));
        match poll(&mut sources, Some(&limit)) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Ready::default()),
            Err(error) => return Err(Error::system("polling")(error.into())),
        }
        let mut is_ready = sources.iter().map(|source| !source.revents().is_empty());
        let mut next = || is_ready.next().unwrap_or(false);
        Ok(Ready {
            listener: next(),
            new_links: next(),
            links: linked.into_iter().filter(|_| next()).collect(),
            nameless: self.nameless.iter().filter(|_| next()).count() > 0,
            clients: numbers.into_iter().filter(|_| next()).collect(),
            stop: stop.is_some() && next(),
        })
    }

    // ---- links ----

    fn on_new_link(&mut self, mut new: NewLink, now: BootTime) {
        if let Some(host) = new.dialled {
            let greeting = self.greeting(host).encode();
            if new.link.send(&greeting).is_err() {
                return self.new_links.want(host);
            }
        }
        self.nameless.push(NamelessLink { new, since: now });
    }

    fn greeting(&self, host: Node) -> Frame {
        let known = self.greeted[usize::from(host)];
        let received = self.sessions.get(&(host, known)).map_or(0, Session::received);
        let known = if self.sessions.contains_key(&(host, known)) { known } else { 0 };
        Frame::Greeting(Greeting { host: self.me, incarnation: self.incarnation, known, received })
    }

    fn read_nameless(&mut self, now: BootTime) {
        for mut nameless in std::mem::take(&mut self.nameless) {
            let mut frame = Vec::new();
            let dialled = nameless.new.dialled;
            match nameless.new.link.receive(&mut frame) {
                Ok(false) if now < nameless.since + GREETING => self.nameless.push(nameless),
                Ok(true) => match Frame::decode(&frame) {
                    Some(Frame::Greeting(greeting)) => self.on_greeting(nameless.new, &greeting, now),
                    _ => dialled.into_iter().for_each(|host| self.new_links.want(host)),
                },
                _ => dialled.into_iter().for_each(|host| self.new_links.want(host)),
            }
        }
    }

    fn on_greeting(&mut self, new: NewLink, greeting: &Greeting, now: BootTime) {
        let Greeting { host, incarnation, known, received } = *greeting;
        let NewLink { mut link, dialled } = new;
        let fits = dialled.map_or(host > self.me && usize::from(host) < self.links.len(), |to| to == host);
        if !fits {
            return dialled.into_iter().for_each(|host| self.new_links.want(host));
        }
        // The answer tells of the session with this incarnation.
        self.greeted[usize::from(host)] = incarnation;
        if dialled.is_none() && link.send(&self.greeting(host).encode()).is_err() {
            return;
        }
        let session = self.sessions.entry((host, incarnation)).or_default();
        if known == self.incarnation {
            session.on_received(received);
        }
        let failed = session.unknown().any(|(number, kept)| link.send(&lock_frame(number, kept)).is_err());
        self.links[usize::from(host)] = Some(HostLink { link, incarnation });
        self.lease.on_beat(host, now);
        self.consensus.reconnected(host);
        if failed {
            self.lose_link(host);
        }
    }

    fn lose_link(&mut self, host: Node) {
        self.links[usize::from(host)] = None;
        self.new_links.want(host);
        for question in self.questions.values_mut() {
            question.awaited.retain(|&awaited| awaited != host);
        }
    }

    fn send(&mut self, host: Node, frame: &[u8]) {
        if let Some(link) = &mut self.links[usize::from(host)]
            && link.link.send(frame).is_err()
        {
            self.lose_link(host);
        }
    }

    fn read_link(&mut self, host: Node, now: BootTime) -> Result<(), Error> {
        let mut frame = Vec::new();
        while let Some(HostLink { link, incarnation }) = &mut self.links[usize::from(host)] {
            let incarnation = *incarnation;
            match link.flush().and_then(|()| link.receive(&mut frame)) {
                Ok(true) => {
                    if let Some(frame) = Frame::decode(&frame) {
                        self.on_frame(host, incarnation, frame, now)?;
                        // Answers go out before the next frame is read.
                        self.carry();
                    }
                }
                Ok(false) => return Ok(()),
                Err(_) => self.lose_link(host),
            }
        }
        Ok(())
    }

    fn on_frame(
        &mut self,
        host: Node,
        incarnation: Incarnation,
        frame: Frame,
        now: BootTime,
    ) -> Result<(), Error> {
        match frame {
            Frame::Greeting(_) => {}
            Frame::Beat(beat) => self.on_beat(host, incarnation, beat, now),
            Frame::Confirmation(sent) => {
                self.lease.on_confirmation(host, Duration::from_nanos(sent));
                self.look_at_lease(now);
            }
            Frame::Consensus(bytes) => {
                self.consensus.on_message(host, &bytes);
                self.advance_consensus()?;
            }
            Frame::Lock { number, epoch, letter } => {
                let session = self.sessions.entry((host, incarnation)).or_default();
                let is_over =
                    self.membership.is_doomed(incarnation) && !self.membership.has(host, incarnation);
                if session.accept(number)
                    && !is_over
                    && let Some(letter) = AgentLetter::decode(host, &letter)
                {
                    self.service.on_letter(host, epoch, letter, wall_time());
                }
            }
            Frame::Question(number) => {
                let report = self.report(None);
                let bytes = serde_json::to_vec(&report).unwrap_or_default();
                self.send(host, &Frame::Answer(number, bytes).encode());
            }
            Frame::Answer(number, bytes) => {
                if let Some(question) = self.questions.get_mut(&number)
                    && let Ok(report) = serde_json::from_slice::<HostReport>(&bytes)
                {
                    question.awaited.retain(|&awaited| awaited != host);
                    let at = usize::from(host);
                    if let Some(place) = question.reports.get_mut(at) {
                        *place = report;
                    }
                }
            }
        }
        Ok(())
    }

    fn on_beat(&mut self, host: Node, incarnation: Incarnation, beat: Beat, now: BootTime) {
        self.lease.on_beat(host, now);
        if let Some(session) = self.sessions.get_mut(&(host, incarnation)) {
            session.on_received(beat.received);
        }
        let sent = beat.sent;
        self.views[usize::from(host)] = PeerView { at: now, silences: beat.silences, doubts: beat.doubts };
        if !self.membership.is_doomed(incarnation) {
            self.lease.confirm(host, incarnation, now);
            self.send(host, &Frame::Confirmation(sent).encode());
        }
    }

    // ---- time ----

    fn tick(&mut self, now: BootTime) -> Result<(), Error> {
        self.ticks += 1;
        if now.saturating_sub(self.last_look) > self.hosts.lease / 4 {
            // This agent was paused: the silence of the others is its own.
            self.lease.forgive(now);
        }
        self.consensus.tick();
        self.advance_consensus()?;
        if self.ticks.is_multiple_of(2) {
            self.send_beats(now);
        }
        if self.consensus.leads() {
            self.lead(now);
            self.advance_consensus()?;
        }
        for host in 0..self.links.len() as Node {
            // Beats do not come through: another connection may.
            if self.links[usize::from(host)].is_some() && self.lease.silence(host, now) > self.hosts.lease {
                self.lose_link(host);
            }
        }
        self.read_nameless(now);
        Ok(())
    }

    fn send_beats(&mut self, now: BootTime) {
        let hosts = self.links.len() as Node;
        let silences: Vec<u64> = (0..hosts).map(|host| milliseconds(self.lease.silence(host, now))).collect();
        let doubts = self.doubts(now);
        for host in 0..hosts {
            let Some(link) = &self.links[usize::from(host)] else { continue };
            let received = self.sessions.get(&(host, link.incarnation)).map_or(0, Session::received);
            let sent = u64::try_from(now.as_nanos()).unwrap_or(0);
            let beat = Beat { sent, received, silences: silences.clone(), doubts: doubts.clone() };
            self.send(host, &Frame::Beat(beat).encode());
        }
    }

    /// Returns the suspected incarnations, with the times since their last confirmations.
    fn doubts(&self, now: BootTime) -> Vec<Doubt> {
        let suspected = self.membership.here().filter_map(|host| {
            let member = self.membership.member(host).filter(|member| member.suspected)?;
            let since = self.lease.since_confirmation(host, member.incarnation, self.begun, now);
            Some(Doubt { host, incarnation: member.incarnation, confirmed: milliseconds(since) })
        });
        suspected.collect()
    }

    /// Proposes changes of the membership, as the leader.
    fn lead(&mut self, now: BootTime) {
        for host in 0..self.membership.hosts() as Node {
            let present = if host == self.me {
                Some(self.incarnation)
            } else {
                self.links[usize::from(host)].as_ref().map(|link| link.incarnation)
            };
            match self.membership.member(host) {
                Some(member) if member.suspected => {
                    if self.is_over(host, member.incarnation, now) {
                        let incarnation = member.incarnation;
                        self.consensus.propose(MembershipChange::Remove { host, incarnation });
                    }
                }
                Some(member) => {
                    let replaced = present.is_some_and(|incarnation| incarnation != member.incarnation);
                    if replaced || self.is_silent(host, now) {
                        let incarnation = member.incarnation;
                        self.consensus.propose(MembershipChange::Suspect { host, incarnation });
                    }
                }
                None => {
                    if let Some(incarnation) = present
                        && !self.membership.is_doomed(incarnation)
                        && self.is_heard_by_all(host, now)
                    {
                        let floor = self.epoch_file.seen;
                        self.consensus.propose(MembershipChange::Admit { host, incarnation, floor });
                    }
                }
            }
        }
    }

    /// Returns whether the leases of a suspected incarnation are over.
    fn is_over(&self, host: Node, incarnation: Incarnation, now: BootTime) -> bool {
        let grace = milliseconds(self.lease.grace());
        let own = milliseconds(self.lease.since_confirmation(host, incarnation, self.begun, now)) > grace;
        let others = self.views.iter().enumerate().filter(|(other, view)| {
            let since = milliseconds(now.saturating_sub(view.at));
            let of = |doubt: &&Doubt| (doubt.host, doubt.incarnation) == (host, incarnation);
            *other != usize::from(host)
                && *other != usize::from(self.me)
                && view.doubts.iter().find(of).is_some_and(|doubt| doubt.confirmed + since > grace)
        });
        others.count() + usize::from(own && host != self.me) >= self.membership.majority()
    }

    /// Returns whether a member has been silent for a lease's time, or longer elsewhere.
    fn is_silent(&self, host: Node, now: BootTime) -> bool {
        let lease = self.hosts.lease;
        let members = self.membership.here().filter(|&other| other != host && other != self.me);
        self.lease.silence(host, now) > lease
            || members.into_iter().any(|other| {
                let view = &self.views[usize::from(other)];
                let silence = view.silences.get(usize::from(host)).copied().unwrap_or(0);
                // Of two that do not hear each other the later one goes, if both are heard here.
                let goes = host > other;
                goes && self.lease.silence(other, now) < lease && silence > 3 * milliseconds(lease)
            })
    }

    /// Returns whether all members hear a host that is to be admitted.
    fn is_heard_by_all(&self, host: Node, now: BootTime) -> bool {
        let lease = self.hosts.lease;
        self.lease.silence(host, now) < lease
            && self.membership.here().filter(|&other| other != self.me).all(|other| {
                let view = &self.views[usize::from(other)];
                let silence = view.silences.get(usize::from(host)).copied();
                silence.is_some_and(|silence| silence < milliseconds(lease))
            })
    }

    /// Hands the lease's state on.
    fn look_at_lease(&mut self, now: BootTime) {
        let is_member = self.membership.has(self.me, self.incarnation);
        let valid = is_member
            && !self.membership.is_doomed(self.incarnation)
            && self.lease.valid_until().is_some_and(|until| now < until);
        if valid != self.had_lease {
            self.had_lease = valid;
            self.service.set_valid(valid, wall_time());
            self.carry();
            let text =
                if valid { "has a lease: locks are granted" } else { "has no lease: no lock is granted" };
            let host = self.host().to_owned();
            (self.say)(&format!("{host} {text}"));
        }
    }

    // ---- consensus ----

    /// Sends the consensus's messages, and applies its decisions.
    fn advance_consensus(&mut self) -> Result<(), Error> {
        for (host, bytes) in self.consensus.take_messages() {
            self.send(host, &Frame::Consensus(bytes).encode());
        }
        self.apply_decided()
    }

    fn apply_decided(&mut self) -> Result<(), Error> {
        for change in self.consensus.take_decided() {
            let Some(applied) = self.membership.apply(&change) else { continue };
            self.epoch_file.note(self.membership.epoch)?;
            self.service.on_change(applied, &self.membership, wall_time());
            match applied {
                Applied::Removed(host, incarnation) => {
                    self.sessions.remove(&(host, incarnation));
                    if (host, incarnation) == (self.me, self.incarnation) {
                        self.begin_anew()?;
                    }
                }
                Applied::Suspected(_) | Applied::Admitted(_) => {}
            }
            self.carry();
            self.look_at_lease(boot_time());
            if !matches!(applied, Applied::Suspected(_)) {
                let here =
                    self.membership.here().map(|host| self.hosts.hosts[usize::from(host)].name.as_str());
                let here = here.collect::<Vec<_>>().join(", ");
                let epoch = self.membership.epoch;
                (self.say)(&format!(
                    "epoch {epoch}: {}",
                    if here.is_empty() { "no host takes part" } else { &here }
                ));
            }
        }
        Ok(())
    }

    /// Comes again as another incarnation, after this one was removed.
    fn begin_anew(&mut self) -> Result<(), Error> {
        self.incarnation = random()?;
        self.lease.begin_anew();
        self.service.reset(self.incarnation, wall_time());
        self.sessions.clear();
        for host in 0..self.links.len() as Node {
            self.lose_link(host);
        }
        Ok(())
    }

    // ---- clients ----

    fn accept_clients(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if is_trusted(&stream)
                && let Ok(connection) = LineConnection::new(stream)
            {
                self.last_client += 1;
                self.clients.insert(self.last_client, connection);
            }
        }
    }

    fn read_client(&mut self, number: ClientNumber) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        client.flush();
        let lines: Vec<ClientLine> = client.read_lines();
        let ended = client.has_ended();
        for line in lines {
            self.on_line(number, line);
        }
        if ended {
            self.clients.remove(&number);
            self.questions.retain(|_, question| question.client != number);
            self.service.on_leave(number, Leaving::Died, wall_time());
        }
    }

    fn on_line(&mut self, number: ClientNumber, line: ClientLine) {
        let now = wall_time();
        match line {
            ClientLine::Acquire { lock, shared, tries, process, command } => {
                let mode = if shared { Mode::Shared } else { Mode::Exclusive };
                let wish = Wish { client: number, mode, tries, process, description: command, since: now };
                self.service.on_wish(&lock, wish, now);
            }
            ClientLine::Process(process) => self.service.name_process(number, process),
            ClientLine::Leave { state } => {
                let leaving = match state {
                    0 => Leaving::Consistent,
                    1 => Leaving::Unchanged,
                    _ => Leaving::Died,
                };
                self.service.on_leave(number, leaving, now);
                if let Some(mut client) = self.clients.remove(&number) {
                    client.write_line(&AgentLine::Left);
                }
            }
            ClientLine::Status { lock } => self.ask(number, lock),
        }
    }

    /// Sends the letters and news that the locks have ordered.
    fn carry(&mut self) {
        for effect in self.service.take_effects() {
            match effect {
                LockEffect::Send(to, letter) => {
                    let Some(member) = self.membership.member(to) else { continue };
                    let epoch = self.membership.epoch;
                    let kept = [&epoch.to_le_bytes()[..], &letter.encode(self.me)].concat();
                    let session = self.sessions.entry((to, member.incarnation)).or_default();
                    let (sequence, kept) = session.send(kept);
                    let frame = lock_frame(sequence, kept);
                    let link = self.links[usize::from(to)].as_ref();
                    if link.is_some_and(|link| link.incarnation == member.incarnation) {
                        self.send(to, &frame);
                    }
                }
                LockEffect::Notify(number, notice) => {
                    let line = match notice {
                        Notice::Granted { token, previous_owner_died } => {
                            AgentLine::Granted { token: token.get(), previous_owner_died }
                        }
                        Notice::Refused => AgentLine::Refused,
                        Notice::Lost => AgentLine::Lost,
                        Notice::Regained => AgentLine::Regained,
                    };
                    if let Some(client) = self.clients.get_mut(&number) {
                        client.write_line(&line);
                    }
                }
            }
        }
    }

    // ---- status ----

    fn report(&self, lock: Option<&str>) -> HostReport {
        HostReport {
            host: self.host().to_owned(),
            reachable: true,
            member: self.membership.has(self.me, self.incarnation),
            lease: self.had_lease,
            epoch: self.membership.epoch,
            locks: self.service.rows(lock),
        }
    }

    fn ask(&mut self, client: ClientNumber, lock: Option<String>) {
        self.last_question += 1;
        let number = self.last_question;
        let absent = |host: &crate::ClusterHost| HostReport {
            host: host.name.clone(),
            reachable: false,
            member: false,
            lease: false,
            epoch: 0,
            locks: Vec::new(),
        };
        let mut reports: Vec<HostReport> = self.hosts.hosts.iter().map(absent).collect();
        reports[usize::from(self.me)] = self.report(None);
        let linked = |&host: &Node| self.links[usize::from(host)].is_some();
        let awaited: Vec<Node> = (0..self.links.len() as Node).filter(linked).collect();
        let until = boot_time() + STATUS;
        self.questions
            .insert(number, StatusQuestion { client, reports, awaited: awaited.clone(), until, lock });
        for host in awaited {
            self.send(host, &Frame::Question(number).encode());
        }
    }

    /// Answers the questions whose answers are there, or late.
    fn end_questions(&mut self, now: BootTime) {
        let is_over = |question: &StatusQuestion| question.awaited.is_empty() || now >= question.until;
        let over: Vec<u64> = self
            .questions
            .iter()
            .filter(|(_, question)| is_over(question))
            .map(|(&number, _)| number)
            .collect();
        for number in over {
            let Some(mut question) = self.questions.remove(&number) else { continue };
            if let Some(name) = &question.lock {
                for report in &mut question.reports {
                    report.locks.retain(|row| row.name == *name);
                }
            }
            if let Some(client) = self.clients.get_mut(&question.client) {
                client.write_line(&AgentLine::Status(question.reports));
            }
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.socket);
    }
}

/// Sources that are ready.
#[derive(Debug, Default)]
struct Ready {
    listener: bool,
    new_links: bool,
    links: Vec<Node>,
    nameless: bool,
    clients: Vec<ClientNumber>,
    stop: bool,
}

/// Returns the frame of a letter that a session has kept with its epoch.
fn lock_frame(number: u64, kept: &[u8]) -> Vec<u8> {
    let (epoch, letter) = kept.split_first_chunk().unwrap_or((&[0; 4], &[]));
    Frame::lock(number, u32::from_le_bytes(*epoch), letter)
}

/// Listens at a socket, in the place of one that a former agent has left.
fn listen(path: &PathBuf) -> Result<UnixListener, Error> {
    let failed = |error| Error::system(format!("listening at {}", path.display()))(error);
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}
