//! The launcher's limit of open files (RLIMIT_NOFILE): raised for its pipes, and put back
//! for the ranks.
//!
//! With `--label` each rank has two pipes to the launcher; each rank of another host is represented
//! by the launcher, with a few descriptors. The soft limit is 1,024 on most systems,
//! so that programs that use `select` work; a program that can use more raises it to the hard one.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Number of descriptors that the launcher needs beside those for the ranks' output.
const OWN: u64 = 64;

/// Number of descriptors with which a rank of another host is represented.
const PROXY: u64 = 3;
/// Number of processes of this host, at most, that the representative of a rank watches.
const WATCHED: u64 = 64;

/// The limit that the launcher had: the ranks get it back.
#[derive(Clone, Copy, Debug)]
pub struct LimitsBefore(Option<(Option<u64>, Option<u64>)>);

/// Raises the soft limit if so many processes with so many pipes each, and so many ranks
/// of other hosts, need that.
///
/// # Errors
///
/// A sentence with the remedy, if the hard limit is too low.
pub fn make_room(processes: u32, pipes: u64, others: u32) -> Result<LimitsBefore, String> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let needed = OWN + u64::from(processes) * pipes + u64::from(others) * PROXY;
    // Without the rest, processes are watched by their start times: slower.
    let wanted = needed + u64::from(others) * u64::from(processes).min(WATCHED);
    let suffices = |limit: Option<u64>| limit.is_none_or(|limit| limit >= needed);
    if current.is_none_or(|limit| limit >= wanted) {
        return Ok(LimitsBefore(None));
    }
    if !suffices(maximum) {
        let limit = maximum.unwrap_or(0);
        return Err(format!(
            "the launcher needs {needed} open files for the output of {processes} processes and for {others} ranks of other hosts, and its hard limit is {limit}: raise it (`ulimit -Hn {needed}` as root, LimitNOFILE= of systemd, `docker run --ulimit nofile={needed}`), or leave out --label"
        ));
    }
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .map_err(|e| format!("raising the limit of open files to the hard one: {}", io::Error::from(e)))?;
    Ok(LimitsBefore(Some((current, maximum))))
}

impl LimitsBefore {
    /// Puts the limit back, in a child before it executes its program: one system call.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn restore(self) -> io::Result<()> {
        let Some((current, maximum)) = self.0 else { return Ok(()) };
        Ok(setrlimit(Resource::Nofile, Rlimit { current, maximum })?)
    }
}
