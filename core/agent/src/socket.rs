//! Connections between an agent and the processes of its host: lines of JSON.
//!
//! The Unix socket lies beside the named worlds (/dev/shm), with mode 600; the agent and its
//! clients look at each other's user. A process that dies closes its connection; a child that has
//! inherited it keeps it open, unless the process has said that the connection ends with it
//! ([`ClientLine::Stay`]): then the agent sees its end at a pidfd, too, where both are of one pid
//! namespace.

use std::io::{self, Read, Write};
#[cfg(feature = "serve")]
use std::os::fd::OwnedFd;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

#[cfg(feature = "serve")]
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use serde::{Deserialize, Serialize};
use towpath_mplock::Node;
use towpath_shm::number_in_pidfs;

use crate::Error;
use crate::hosts::HostsFile;
use crate::report::HostReport;

/// Maximum number of bytes of a client's line.
#[cfg(any(test, feature = "serve"))]
pub(crate) const MOST_OF_CLIENT: usize = 1 << 20;
/// Maximum number of bytes of an agent's line: the status of all hosts.
pub(crate) const MOST_OF_AGENT: usize = 128 << 20;
/// Maximum number of bytes that wait for a client which does not read.
const MOST_WAITING: usize = MOST_OF_AGENT;

/// Line of a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ClientLine {
    /// The connection stays for further requests, and ends with the process.
    ///
    /// `process`: that process's number, or 0.
    Stay { process: u64 },
    /// Asks for a lock.
    Acquire { lock: String, shared: bool, tries: bool, process: u32, command: String },
    /// Names another process, for the status.
    Process(u32),
    /// Gives the lock on, or waits no more.
    ///
    /// `state`: 0 consistent, 1 unchanged, 2 an owner died. `data`: those that the holder has
    /// changed.
    Leave {
        state: u8,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<Vec<u8>>,
    },
    /// Asks for the status.
    Status { lock: Option<String> },
}

/// Line of an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum AgentLine {
    Granted {
        token: u64,
        previous_owner_died: bool,
        /// Data of the lock, and the token of the holder that left them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<(u64, Vec<u8>)>,
    },
    Refused,
    NoLease,
    Lost,
    Regained,
    /// The place is left.
    Left,
    Status(Vec<HostReport>),
}

/// Returns the path of the socket of a host's agent.
pub(crate) fn socket_path(file: &HostsFile, host: Node) -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    let name = &file.hosts[usize::from(host)].name;
    let short: String = name.chars().filter(|c| c.is_ascii_alphanumeric()).take(20).collect();
    let directory = towpath_shm::named_worlds_directory();
    directory.join(format!("towpath-agent.{user}.{}.{host}{short}", file.fingerprint()))
}

/// Returns a path with one more part.
pub(crate) fn beside(path: &Path, part: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(part);
    name.into()
}

/// Returns the sockets of this user's agents that are dead: no process listens at them.
///
/// # Errors
///
/// [`Error::System`] if the directory of named worlds can't be read.
pub fn dead_agents() -> Result<Vec<PathBuf>, Error> {
    let prefix = format!("towpath-agent.{}.", rustix::process::geteuid().as_raw());
    let directory = towpath_shm::named_worlds_directory();
    let failed = |error| Error::system(format!("reading {}", directory.display()))(error);
    let mut dead = Vec::new();
    for entry in std::fs::read_dir(&directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        let is_agents = entry.file_name().as_bytes().starts_with(prefix.as_bytes())
            && path.extension().is_none_or(|last| last != "new");
        if is_agents && is_dead(&path) {
            dead.push(path);
        }
    }
    dead.sort();
    Ok(dead)
}

/// Returns whether a file is a socket at which no process listens.
fn is_dead(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|file| file.file_type().is_socket())
        && UnixStream::connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
}

/// Removes the socket of a dead agent. `false`: another agent has taken its name since.
///
/// # Errors
///
/// Those of the system.
pub fn remove_dead_agent(path: &Path) -> io::Result<bool> {
    // Out of the way first: a successor may take the name between a look and the removal.
    let aside = beside(path, &format!("dead-{}", std::process::id()));
    match std::fs::rename(path, &aside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        renamed => renamed?,
    }
    if is_dead(&aside) {
        return std::fs::remove_file(&aside).map(|()| true);
    }
    std::fs::rename(&aside, path).map(|()| false)
}

/// Returns whether the peer of a connection is of this user, or root.
pub(crate) fn is_trusted(stream: &UnixStream) -> bool {
    let me = rustix::process::geteuid();
    socket_peercred(stream).is_ok_and(|peer| peer.uid == me || peer.uid.is_root())
}

/// Says that the process that has connected is no more.
#[cfg(feature = "serve")]
#[derive(Debug)]
pub(crate) struct PeerEnded;

/// Returns a number of this process, for [`ClientLine::Stay`]. 0: the system gives none.
pub(crate) fn own_number() -> u64 {
    let process = pidfd_open(getpid(), PidfdFlags::empty());
    process.ok().as_ref().and_then(number_in_pidfs).unwrap_or(0)
}

/// Connection, whose lines are read and written without blocking.
#[derive(Debug)]
pub(crate) struct LineConnection {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Maximum number of bytes of a line that comes.
    most: usize,
    ended: bool,
}

impl LineConnection {
    pub fn new(stream: UnixStream, most: usize) -> io::Result<LineConnection> {
        stream.set_nonblocking(true)?;
        Ok(LineConnection { stream, input: Vec::new(), output: Vec::new(), most, ended: false })
    }

    /// Returns a descriptor that becomes readable when the peer's process has ended.
    ///
    /// `number`: that process's, or 0. `None`: the system does not give a descriptor.
    #[cfg(feature = "serve")]
    pub fn peer_process(&self, number: u64) -> Result<Option<OwnedFd>, PeerEnded> {
        let Ok(peer) = socket_peercred(&self.stream) else { return Ok(None) };
        let is_other = |process| number != 0 && number_in_pidfs(process).is_some_and(|it| it != number);
        match pidfd_open(peer.pid, PidfdFlags::empty()) {
            // Another process has its pid.
            Ok(process) if is_other(&process) => Err(PeerEnded),
            Err(Errno::SRCH) => Err(PeerEnded),
            opened => Ok(opened.ok()),
        }
    }

    /// Reads the lines that have come. The connection may have ended after them.
    pub fn read_lines<T: for<'a> Deserialize<'a>>(&mut self) -> Vec<T> {
        let mut part = [0; 4096];
        loop {
            match self.stream.read(&mut part) {
                Ok(0) => self.ended = true,
                Ok(count) => {
                    self.input.extend_from_slice(&part[..count]);
                    if self.input.len() > self.most {
                        self.ended = true;
                    } else if count == part.len() {
                        continue;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => self.ended = true,
            }
            break;
        }
        let mut lines = Vec::new();
        while let Some(end) = self.input.iter().position(|&byte| byte == b'\n') {
            match serde_json::from_slice(&self.input[..end]) {
                Ok(line) => lines.push(line),
                Err(_) => self.ended = true,
            }
            self.input.drain(..=end);
        }
        lines
    }

    /// Writes a line, now or when there is space.
    pub fn write_line(&mut self, line: &impl Serialize) {
        if serde_json::to_writer(&mut self.output, line).is_err() || self.output.len() > MOST_WAITING {
            self.ended = true;
            return;
        }
        self.output.push(b'\n');
        self.flush();
    }

    /// Writes the bytes that wait, as far as there is space.
    pub fn flush(&mut self) {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.ended = true;
                    return;
                }
            }
        }
    }

    /// Returns whether lines wait for space.
    pub fn is_waiting(&self) -> bool {
        !self.output.is_empty()
    }

    /// Returns whether the peer is gone.
    pub fn has_ended(&self) -> bool {
        self.ended
    }
}

impl AsFd for LineConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(all(test, feature = "serve"))]
mod tests {
    use super::*;

    #[test]
    fn process_with_the_pid_of_a_peer_that_has_ended_is_not_watched() {
        let (mine, _peer) = UnixStream::pair().unwrap();
        let connection = LineConnection::new(mine, MOST_OF_CLIENT).unwrap();
        assert!(connection.peer_process(own_number()).unwrap().is_some());
        assert!(connection.peer_process(own_number() + 1).is_err());
        assert!(connection.peer_process(0).unwrap().is_some(), "it does not know its number");
    }
}
