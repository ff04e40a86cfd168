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
//!
//! | file | contents |
//! | --- | --- |
//! | `links.rs` | links to other agents |
//! | `clients.rs` | connections of the host's processes |
//! | `tick.rs` | beats, and the leader's proposals |
//! | `decisions.rs` | the quorum's decisions, and the lease |

mod clients;
mod decisions;
mod links;
mod tick;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use towpath_mplock::Node;

use crate::Error;
use crate::consensus::Consensus;
use crate::dial::{LinkNews, NewLinks};
use crate::hosts::HostsFile;
use crate::journal::{EpochFile, Journal};
use crate::lease::{BootTime, Lease, boot_time};
use crate::look::ShortLook;
use crate::membership::{HostMembership, Incarnation};
use crate::running::{StateClaim, StateTaken};
use crate::service::{ClientNumber, LockService};
use crate::session::Session;
use crate::socket::{beside, dead_agents, remove_dead_agent, socket_path};
use clients::{AgentClient, StatusQuestion};
use links::{HostLink, NamelessLink, PeerView};

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
    /// True from a connection that the system did not give until the next tick.
    rests: bool,
    socket: PathBuf,
    clients: HashMap<ClientNumber, AgentClient>,
    last_client: ClientNumber,
    questions: HashMap<u64, StatusQuestion>,
    last_question: u64,
    ticks: u64,
    next_tick: BootTime,
    last_look: BootTime,
    had_lease: bool,
    look: ShortLook,
    say: Box<dyn FnMut(&str)>,
    /// Claim on the state on disk: one agent for each host and user.
    _running: StateClaim,
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
        let failed = |error: io::Error| Error::state(&state, &error);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&state).map_err(failed)?;
        let log = state.join(format!("log-{}", hosts.fingerprint()));
        let name = &hosts.hosts[usize::from(me)].name;
        let running = match StateClaim::claim(&state, &log).map_err(failed)? {
            Ok(running) => running,
            Err(StateTaken::Same) => return Err(Error::Running(name.clone())),
            Err(StateTaken::Other) => return Err(Error::RunningOther(name.clone(), state)),
        };
        let epoch_file = EpochFile::open(state.join("epoch"))?;
        let consensus = Consensus::new(me, count, Journal::open(&log)?)?;
        let addresses: Vec<_> = hosts.hosts.iter().map(|host| host.address).collect();
        let new_links = NewLinks::begin(me, &addresses, &key, &hosts.purpose())?;
        let socket = socket_path(&hosts, me);
        let listener = listen(&socket)?;
        for path in dead_agents().unwrap_or_default() {
            // Its failure is no reason to serve no locks.
            let _ = remove_dead_agent(&path);
        }
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
            rests: false,
            socket,
            clients: HashMap::new(),
            last_client: 0,
            questions: HashMap::new(),
            last_question: 0,
            ticks: 0,
            next_tick: now,
            last_look: now,
            had_lease: false,
            look: ShortLook::default(),
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
            while let Some(news) = self.new_links.take() {
                match news {
                    LinkNews::Made(new) => self.on_new_link(*new, now),
                    LinkNews::Refused(peer) => self.on_refused(&peer),
                }
            }
        }
        if ready.listener {
            self.accept_clients();
        }
        for host in ready.links {
            self.read_link(host, now)?;
        }
        if ready.nameless || ready.new_links {
            self.read_nameless(now)?;
        }
        for client in ready.clients {
            self.read_client(client);
        }
        for client in ready.processes {
            // It may have given its lock on before its end.
            self.read_client(client);
            self.end_client(client);
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

    fn sleep(&mut self, stop: Option<BorrowedFd<'_>>) -> Result<Ready, Error> {
        let now = boot_time();
        let mut until = self.next_tick;
        if self.had_lease {
            until = until.min(self.lease.valid_until().unwrap_or(until).max(now));
        }
        let events = |waiting: bool| if waiting { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let connects = if self.rests { PollFlags::empty() } else { PollFlags::IN };
        let mut sources =
            vec![PollFd::new(&self.listener, connects), PollFd::new(&self.new_links, PollFlags::IN)];
        let links = self.links.iter().flatten();
        sources.extend(links.map(|link| PollFd::new(&link.link, events(link.link.is_waiting()))));
        sources.extend(self.nameless.iter().map(|link| PollFd::new(&link.new.link, PollFlags::IN)));
        let connections = self.clients.values().map(|client| &client.connection);
        sources.extend(connections.map(|client| PollFd::new(client, events(client.is_waiting()))));
        let processes = self.clients.values().filter_map(|client| client.process.as_ref());
        sources.extend(processes.map(|process| PollFd::new(process, PollFlags::IN)));
        sources.extend(stop.map(|stop| PollFd::from_borrowed_fd(stop, PollFlags::IN)));
        match self.look.poll(&mut sources, until.saturating_sub(now)) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Ready::default()),
            Err(error) => return Err(Error::system("polling")(error.into())),
        }
        let mut is_ready = sources.iter().map(|source| !source.revents().is_empty());
        let mut next = || is_ready.next().unwrap_or(false);
        // In the order of the sources.
        let linked = (0..).zip(&self.links).filter_map(|(host, link)| link.is_some().then_some(host));
        let watched = self.clients.iter().filter(|(_, client)| client.process.is_some());
        Ok(Ready {
            listener: next(),
            new_links: next(),
            links: linked.filter(|_| next()).collect(),
            nameless: self.nameless.iter().filter(|_| next()).count() > 0,
            clients: self.clients.keys().copied().filter(|_| next()).collect(),
            processes: watched.map(|(&number, _)| number).filter(|_| next()).collect(),
            stop: stop.is_some() && next(),
        })
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
    /// Clients whose processes have ended.
    processes: Vec<ClientNumber>,
    stop: bool,
}

/// Listens at a socket, in the place of one that a former agent has left.
///
/// It gets its name when it listens: at a socket with an agent's name that refuses, no agent will.
fn listen(path: &Path) -> Result<UnixListener, Error> {
    let failed = |error: io::Error| {
        // The system permits 107 bytes.
        let remedy = match error.kind() {
            io::ErrorKind::InvalidInput => " (name a directory with a shorter path in TOWPATH_SHM_DIR)",
            _ => "",
        };
        Error::system(format!("listening at {}{remedy}", path.display()))(error)
    };
    let unnamed = beside(path, "new");
    match fs::remove_file(&unnamed) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(&unnamed).map_err(failed)?;
    fs::set_permissions(&unnamed, fs::Permissions::from_mode(0o600)).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    fs::rename(&unnamed, path).map_err(failed)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_with_a_long_path_has_a_remedy() {
        let error = listen(Path::new(&format!("/tmp/{}/socket", "d".repeat(120)))).unwrap_err();
        assert!(error.to_string().contains("a shorter path in TOWPATH_SHM_DIR"), "{error}");
    }
}
