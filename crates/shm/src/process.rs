//! Processes, as the operating system knows them: who one is, and whether one is alive.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::Error;

/// A process for good: a pid alone is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub pid: u32,
    pub start: u64,
    pub namespace: u64,
}

/// What can be found out about a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pulse {
    /// Alive, or there is no telling: whoever can't be seen counts as alive.
    Alive,
    /// Dead. A zombie is dead.
    Dead,
}

impl Identity {
    pub fn own() -> Result<Self, Error> {
        let pid = std::process::id();
        let stat =
            fs::read("/proc/self/stat").map_err(Error::io("reading /proc/self/stat (is /proc mounted?)"))?;
        let (_, start) = parse_stat(&stat).ok_or_else(|| Error::System {
            what: "reading the start time in /proc/self/stat",
            source: io::ErrorKind::InvalidData.into(),
        })?;
        Ok(Identity { pid, start, namespace: own_namespace() })
    }
}

/// Sixteen bits of a start time: enough to tell a pid's second use from its first while an entry is half written.
pub(crate) fn start_hash(start: u64) -> u16 {
    (start ^ start >> 16 ^ start >> 32) as u16
}

/// A number for the namespaces in which pids and start times of this process mean something; 0 if unknown.
pub(crate) fn own_namespace() -> u64 {
    let inode = |which: &str| fs::metadata(format!("/proc/self/ns/{which}")).map(|m| m.ino());
    match (inode("pid"), inode("time")) {
        (Ok(pid), Ok(time)) => pid << 32 ^ time,
        // Kernels before 5.6 have no time namespaces.
        (Ok(pid), Err(_)) => pid << 32,
        _ => 0,
    }
}

/// State letter and start time from the text of /proc/PID/stat. The program's name (second field) may contain anything.
fn parse_stat(stat: &[u8]) -> Option<(u8, u64)> {
    let after_name = stat.iter().rposition(|&b| b == b')')? + 1;
    let mut fields = std::str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    // The state is field 3, the start time field 22.
    let start = fields.nth(18)?.parse().ok()?;
    Some((state, start))
}

/// State letter and start time of a process; `None` if there is none with this pid or no telling (`Err`).
fn stat_of(pid: u32) -> io::Result<Option<(u8, u64)>> {
    match fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => parse_stat(&stat).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into()),
        // ESRCH: it went away between opening and reading.
        Err(e) if e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(libc::ESRCH) => {
            // Without /proc everybody would seem dead.
            if fs::exists("/proc/self/stat").unwrap_or(false) { Ok(None) } else { Err(e) }
        }
        Err(e) => Err(e),
    }
}

/// Whether the process behind a pidfd is dead (all its threads have ended; it may still be a zombie). Allocates nothing: signal handlers and forked children ask, too.
pub(crate) fn has_ended(pidfd: &OwnedFd) -> bool {
    any_ended(&mut [to_ask(pidfd)])
}

/// A process to ask for.
pub(crate) fn to_ask(pidfd: &OwnedFd) -> PollFd<'_> {
    PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)
}

/// Whether any of them is dead.
pub(crate) fn any_ended(fds: &mut [PollFd<'_>]) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(fds, Some(&now)), Ok(1..)) && fds.iter().any(|fd| fd.revents().contains(PollFlags::IN))
}

/// A pidfd for the process with this pid, provided that its start time is accepted. `Ok(None)`: no telling, but not known
/// to be dead. `Err`: dead.
pub(crate) fn watch(pid: u32, accept: impl Fn(u64) -> bool) -> Result<Option<OwnedFd>, Dead> {
    let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Err(Dead) };
    // First the pidfd, then the start time: if the pid belongs to the wanted process after the pidfd was opened, it did
    // before, and the pidfd is that process's.
    let pidfd = match pidfd_open(raw, PidfdFlags::empty()) {
        Ok(fd) => Some(fd),
        Err(Errno::SRCH) => return Err(Dead),
        // No such call, forbidden, or no descriptors left.
        Err(_) => None,
    };
    match stat_of(pid) {
        // The pidfd knows better: /proc may hide processes (hidepid).
        Ok(None) => match pidfd {
            Some(fd) if !has_ended(&fd) => Ok(Some(fd)),
            _ => Err(Dead),
        },
        Ok(Some((_, start))) if !accept(start) => Err(Dead),
        // Without a pidfd only the main thread's state is known: good enough to see a zombie.
        Ok(Some((b'Z' | b'X', _))) if pidfd.is_none() => Err(Dead),
        Ok(Some(_)) => Ok(pidfd),
        // Can't read /proc: believe the pidfd.
        Err(_) => Ok(pidfd),
    }
}

/// Said by [`watch`]: the process is dead.
pub(crate) struct Dead;

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a process is alive, asked once.
    fn pulse(pid: u32, accept: impl Fn(u64) -> bool) -> Pulse {
        match watch(pid, accept) {
            Err(Dead) => Pulse::Dead,
            Ok(Some(pidfd)) if has_ended(&pidfd) => Pulse::Dead,
            Ok(_) => Pulse::Alive,
        }
    }

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_confuse() {
        let stat = b"12 (a) b (c)) S 1 12 12 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 4711 1 1 1";
        assert_eq!(parse_stat(stat), Some((b'S', 4711)));
        assert_eq!(parse_stat(b"12 (a"), None);
        assert_eq!(parse_stat(b"12 (a) S 1"), None);
    }

    #[test]
    fn this_process_is_alive_and_its_like_with_another_start_is_not() {
        let me = Identity::own().unwrap();
        assert_eq!(pulse(me.pid, |s| s == me.start), Pulse::Alive);
        assert_eq!(pulse(me.pid, |s| s != me.start), Pulse::Dead);
        assert_eq!(pulse(0, |_| true), Pulse::Dead);
        assert_eq!(pulse(u32::MAX, |_| true), Pulse::Dead);
    }

    #[test]
    fn a_zombie_is_dead() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        // Not waited for: a zombie from some moment on.
        while pulse(child.id(), |_| true) == Pulse::Alive {
            std::thread::yield_now();
        }
        assert_eq!(stat_of(child.id()).unwrap().unwrap().0, b'Z');
        child.wait().unwrap();
        assert_eq!(pulse(child.id(), |_| true), Pulse::Dead);
    }
}
