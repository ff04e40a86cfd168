//! Place of a process in the queue of a lock that spans hosts, through its host's agent.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use towpath_lockfile::{Leaving, LockAccess, LockGrant, check_name};
use towpath_mplock::{FencingToken, LockData};

use crate::Error;
use crate::hosts::HostsFile;
use crate::look::ShortLook;
use crate::report::HostReport;
use crate::socket::{
    AgentLine, ClientLine, LineConnection, MOST_OF_AGENT, is_trusted, own_number, socket_path,
};

/// Time for which an answer to the status is waited for.
const STATUS: Duration = Duration::from_secs(5);

/// Longest wait for an agent that reads nothing, where its answer is not waited for.
const FLUSH: Duration = Duration::from_secs(1);

/// News of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceNews {
    /// The lock is held.
    Granted(LockGrant),
    /// The lock is not to be had without waiting.
    Refused,
    /// The host has no lease: it grants no lock to its waiters until it has one.
    ///
    /// It hears no majority of the hosts, or its agent has just been started. A request that does
    /// not wait is refused after it.
    NoLease,
    /// The host has lost its lease: the lock may be given to others.
    Lost,
    /// The lease is there again, and the lock was given to no other.
    Regained,
    /// The lock was given on, as ordered.
    Left,
    /// The agent has ended: the lock goes to others when the host's lease is over.
    AgentEnded,
}

/// Place in the queue of a lock that spans hosts: of a waiter, then of a holder.
///
/// The agent sees the death of a process at its connection. A child that inherits it
/// ([`AgentPlace::lifeline`]) keeps the place.
#[derive(Debug)]
pub struct AgentPlace {
    connection: LineConnection,
    pending: VecDeque<AgentLine>,
    /// Data that came with the grant.
    data: Option<LockData>,
    /// True from a request until it is refused, withdrawn, or its lock given on.
    asks: bool,
    /// Number of places whose leaving was not answered yet, and of those before this.
    left: u32,
    former: u32,
    look: ShortLook,
    /// Process that has connected.
    process: u32,
}

impl AgentPlace {
    /// Takes the next place of the queue of the lock of that name, at this host's agent.
    ///
    /// `host`: the name of this host in the hosts file, where it is not clear. `tries`: the lock is
    /// refused where it would have to be waited for.
    ///
    /// # Errors
    ///
    /// [`Error::NoAgent`]; [`Error::Hosts`]; [`Error::Name`] if the name is empty or longer than
    /// 2,048 bytes.
    ///
    /// ```no_run
    /// use std::path::Path;
    /// use std::time::Duration;
    /// use towpath_agent::{AgentPlace, HostsFile, PlaceNews};
    /// use towpath_lockfile::{Leaving, LockAccess};
    ///
    /// let hosts = HostsFile::read(Path::new("hosts"))?;
    /// let access = LockAccess::Exclusive;
    /// let mut place = AgentPlace::enter(&hosts, None, "table 7", access, false, "an example")?;
    /// loop {
    ///     // Sleep in `poll` on `place.lifeline()` between two looks.
    ///     match place.take_news() {
    ///         Some(PlaceNews::Granted(grant)) => break println!("token {}", grant.token),
    ///         Some(other) => panic!("{other:?}"),
    ///         None => std::thread::sleep(Duration::from_millis(1)),
    ///     }
    /// }
    /// place.leave(Leaving::Consistent, Duration::from_secs(1));
    /// # Ok::<(), towpath_agent::Error>(())
    /// ```
    pub fn enter(
        hosts: &HostsFile,
        host: Option<&str>,
        lock: &str,
        access: LockAccess,
        tries: bool,
        description: &str,
    ) -> Result<AgentPlace, Error> {
        check_name(lock)?;
        let mut place = AgentPlace::connect(hosts, host)?;
        place.ask(lock, access, tries, description);
        Ok(place)
    }

    /// Takes a place over a connection whose former place was left.
    pub(crate) fn ask(&mut self, lock: &str, access: LockAccess, tries: bool, description: &str) {
        (self.asks, self.former) = (true, self.left);
        self.connection.write_line(&ClientLine::Acquire {
            lock: lock.to_owned(),
            shared: access == LockAccess::Shared,
            tries,
            process: std::process::id(),
            command: description.to_owned(),
        });
    }

    /// Has the agent keep the connection for further requests, until this process ends.
    pub(crate) fn stay(&mut self) {
        self.connection.write_line(&ClientLine::Stay { process: own_number() });
    }

    /// Returns whether this process is a child of the one that has connected.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    /// Returns whether the connection can be used for this process's next request.
    pub(crate) fn may_ask_again(&mut self) -> bool {
        if self.is_inherited() {
            return false;
        }
        loop {
            let lines = self.connection.read_lines();
            if lines.is_empty() {
                break;
            }
            // The connection's end may be behind them.
            self.pending.extend(lines);
        }
        !self.asks && !self.connection.is_waiting() && !self.connection.has_ended()
    }

    pub(crate) fn connect(hosts: &HostsFile, host: Option<&str>) -> Result<AgentPlace, Error> {
        let host = hosts.find(host)?;
        let no_agent = || Error::NoAgent(hosts.hosts[usize::from(host)].name.clone());
        let stream = UnixStream::connect(socket_path(hosts, host)).map_err(|_| no_agent())?;
        if !is_trusted(&stream) {
            return Err(no_agent());
        }
        let connection =
            LineConnection::new(stream, MOST_OF_AGENT).map_err(Error::system("connecting to the agent"))?;
        Ok(AgentPlace {
            connection,
            pending: VecDeque::new(),
            data: None,
            asks: false,
            left: 0,
            former: 0,
            look: ShortLook::default(),
            process: std::process::id(),
        })
    }

    /// Takes the next news, if there are any.
    ///
    /// The place's descriptor becomes readable when there may be some.
    pub fn take_news(&mut self) -> Option<PlaceNews> {
        if self.pending.is_empty() {
            self.pending.extend(self.connection.read_lines());
        }
        while let Some(line) = self.pending.pop_front() {
            let is_former = self.former > 0;
            if matches!(line, AgentLine::Left) {
                self.left = self.left.saturating_sub(1);
                self.former = self.former.saturating_sub(1);
            }
            if !is_former {
                return self.news_of(line);
            }
        }
        self.connection.has_ended().then_some(PlaceNews::AgentEnded)
    }

    fn news_of(&mut self, line: AgentLine) -> Option<PlaceNews> {
        Some(match line {
            AgentLine::Granted { token, previous_owner_died, data } => {
                self.data = data
                    .and_then(|(version, bytes)| LockData::new(FencingToken::from_number(version), &bytes));
                PlaceNews::Granted(LockGrant { token, previous_owner_died })
            }
            AgentLine::Refused => {
                self.asks = false;
                PlaceNews::Refused
            }
            AgentLine::NoLease => PlaceNews::NoLease,
            AgentLine::Lost => PlaceNews::Lost,
            AgentLine::Regained => PlaceNews::Regained,
            AgentLine::Left => PlaceNews::Left,
            AgentLine::Status(_) => return None,
        })
    }

    /// Returns the data that came with the lock.
    #[must_use]
    pub fn data(&self) -> Option<&LockData> {
        self.data.as_ref()
    }

    /// Names another process, for the status.
    pub fn name_process(&mut self, process: u32) {
        self.connection.write_line(&ClientLine::Process(process));
    }

    /// Leaves the place: gives the lock on, or waits no more.
    ///
    /// Waits until the agent has done so, for at most this time.
    pub fn leave(&mut self, leaving: Leaving, within: Duration) {
        self.write_leave(leaving, None);
        loop {
            match self.take_news() {
                Some(PlaceNews::Left | PlaceNews::AgentEnded) => return,
                Some(_) => {}
                None if !self.sleep(within) => return,
                None => self.connection.flush(),
            }
        }
    }

    /// Gives the lock on, with data that the holder has changed.
    ///
    /// Does not wait for the agent, unless it is long behind: then for at most [`FLUSH`].
    pub(crate) fn give_on(&mut self, leaving: Leaving, data: Option<Vec<u8>>) {
        self.write_leave(leaving, data);
        while self.connection.is_waiting() && !self.connection.has_ended() && self.sleep(FLUSH) {
            self.connection.flush();
        }
    }

    fn write_leave(&mut self, leaving: Leaving, data: Option<Vec<u8>>) {
        let state = match leaving {
            Leaving::Consistent => 0,
            Leaving::Unchanged => 1,
            Leaving::Died => 2,
        };
        self.connection.write_line(&ClientLine::Leave { state, data });
        self.asks = false;
        self.left += 1;
    }

    /// Waits until there may be news. `false`: the time is over.
    pub(crate) fn sleep(&mut self, within: Duration) -> bool {
        let mut events = PollFlags::IN;
        if self.connection.is_waiting() {
            events |= PollFlags::OUT;
        }
        match self.look.poll(&mut [PollFd::new(&self.connection, events)], within) {
            Ok(0) => false,
            Ok(_) | Err(Errno::INTR) => true,
            Err(_) => false,
        }
    }

    /// Descriptor by which a child process keeps the place after this process's death.
    ///
    /// The child inherits it if its close-on-exec flag is cleared.
    #[must_use]
    pub fn lifeline(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

/// Asks this host's agent for the status of all hosts.
///
/// # Errors
///
/// [`Error::NoAgent`], [`Error::Hosts`]; [`Error::AgentEnded`]; [`Error::AgentSilent`] if it does
/// not answer, as one that is stopped.
///
/// ```no_run
/// use std::path::Path;
/// use towpath_agent::{HostsFile, cluster_status};
///
/// for report in cluster_status(&HostsFile::read(Path::new("hosts"))?, None, None)? {
///     println!("{}: lease {}, {} locks", report.host, report.lease, report.locks.len());
/// }
/// # Ok::<(), towpath_agent::Error>(())
/// ```
pub fn cluster_status(
    hosts: &HostsFile,
    host: Option<&str>,
    lock: Option<&str>,
) -> Result<Vec<HostReport>, Error> {
    let mut place = AgentPlace::connect(hosts, host)?;
    place.connection.write_line(&ClientLine::Status { lock: lock.map(str::to_owned) });
    loop {
        for line in place.connection.read_lines() {
            if let AgentLine::Status(reports) = line {
                return Ok(reports);
            }
        }
        place.connection.flush();
        if place.connection.has_ended() {
            return Err(Error::AgentEnded);
        }
        if !place.sleep(STATUS) {
            return Err(Error::AgentSilent);
        }
    }
}
