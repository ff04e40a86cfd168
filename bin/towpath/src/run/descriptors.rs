//! The launcher's limit of open files (RLIMIT_NOFILE): raised for its pipes, and put back
//! for the ranks.
//!
//! With `--label` each rank has two pipes to the launcher. The soft limit is 1,024 on most systems,
//! so that programs that use `select` work; a program that can use more raises it to the hard one.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Number of descriptors that the launcher needs beside those for the ranks' output.
const OWN: u64 = 64;

/// The limit as it was before: the ranks get it back.
#[derive(Clone, Copy, Debug)]
pub struct LimitsBefore(Option<(Option<u64>, Option<u64>)>);

/// Raises the soft limit if so many processes with so many pipes each need that.
///
/// # Errors
///
/// A sentence with the remedy, if the hard limit is too low.
pub fn make_room(processes: u32, pipes: u64) -> Result<LimitsBefore, String> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let needed = OWN + u64::from(processes) * pipes;
    let suffices = |limit: Option<u64>| limit.is_none_or(|limit| limit >= needed);
    if suffices(current) {
        return Ok(LimitsBefore(None));
    }
    if !suffices(maximum) {
        let limit = maximum.unwrap_or(0);
        return Err(format!(
            "the launcher needs {needed} open files for the output of {processes} processes, and its hard limit is {limit}: raise it (`ulimit -Hn {needed}` as root, LimitNOFILE= of systemd, `docker run --ulimit nofile={needed}`), or leave out --label"
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
