//! Errors: each names the cause and the remedy.

use std::io;
use std::path::PathBuf;

use towpath_derive::SentenceDebug;
use towpath_mplock::LockData;

/// Reason why an agent can't work, or can't be reached. `Debug` prints the sentence.
#[derive(thiserror::Error, SentenceDebug)]
#[non_exhaustive]
pub enum Error {
    /// The hosts file is wrong, or does not fit this host.
    #[error("{0}")]
    Hosts(String),
    /// A name that no lock can have.
    #[error(transparent)]
    Name(#[from] towpath_lockfile::Error),
    /// The agent's state on disk can't be used.
    #[error("{path}: the agent's state can't be used: {why}", path = .0.display(), why = .1)]
    State(PathBuf, String),
    /// Links and keys.
    #[cfg(feature = "serve")]
    #[error(transparent)]
    Net(#[from] towpath_net::Error),
    /// The operating system refused something.
    #[error("{0}: {1}")]
    System(String, #[source] io::Error),
    /// Another agent serves this host.
    #[error("an agent of host `{0}` runs already, for this user and these hosts: use it, or end it first")]
    Running(String),
    /// An agent of this host with another list of hosts uses the same state.
    #[error(
        "an agent of host `{0}` with another list of hosts runs, and keeps its state in {path}: end it first, on all hosts; if these are two clusters, give each a directory of its own (`state = DIRECTORY` in its hosts file)",
        path = .1.display()
    )]
    RunningOther(String, PathBuf),
    /// No agent is there to serve.
    #[error(
        "no agent of host `{0}` serves these hosts on this machine: start one with `towpath lock --serve --hosts FILE`"
    )]
    NoAgent(String),
    /// The agent has closed the connection.
    #[error(
        "the agent of this host has ended: start one (`towpath lock --serve --hosts FILE`) and acquire the lock anew"
    )]
    AgentEnded,
    /// The agent does not answer.
    #[error(
        "the agent of this host does not answer: see whether it is stopped (`kill -CONT PID` lets it go on)"
    )]
    AgentSilent,
    /// The guard or request is that of the process which has forked this one.
    #[error("a forked child has no part in its parent's locks: acquire the lock in the child")]
    Inherited,
    /// This host hears no majority of the others.
    #[error(
        "this host has lost its lease: lock `{0}` may be given to another host; end the work under it, and acquire it anew"
    )]
    LeaseLost(String),
    /// Data are longer than a lock takes.
    #[error("{len} bytes of data for a lock: at most {max}; keep the rest elsewhere, under the lock's token", max = LockData::MAX)]
    DataTooLong {
        /// Number of bytes.
        len: usize,
    },
    /// A reader may not replace data.
    #[error("this guard only reads: acquire the lock alone to change its data (Lock::acquire)")]
    ReadsOnly,
}

impl Error {
    /// Returns an error of the system's answer about the agent's state.
    #[cfg(feature = "serve")]
    pub(crate) fn state(path: impl Into<PathBuf>, error: &io::Error) -> Error {
        let remedy = match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "; name a directory that the agent can write to in the hosts file (`state = DIRECTORY`)"
            }
            io::ErrorKind::NotADirectory | io::ErrorKind::NotFound => {
                "; name another directory in the hosts file (`state = DIRECTORY`)"
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "; make room there, and start the agent again"
            }
            _ => "",
        };
        Error::State(path.into(), format!("{error}{remedy}"))
    }

    /// Returns a function that makes an error of the system's answer.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |error| Error::System(what, error)
    }
}

#[cfg(all(test, feature = "serve"))]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn state_that_cannot_be_written_has_a_remedy() {
        for (errno, remedy) in [
            (Errno::ROFS, "state = DIRECTORY"),
            (Errno::ACCESS, "state = DIRECTORY"),
            (Errno::NOTDIR, "state = DIRECTORY"),
            (Errno::NOSPC, "make room"),
            (Errno::DQUOT, "make room"),
        ] {
            let text = Error::state("/a/state", &errno.into()).to_string();
            assert!(text.starts_with("/a/state: ") && text.contains(remedy), "{text}");
        }
    }
}
