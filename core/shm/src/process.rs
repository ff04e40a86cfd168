//! Processes, as the operating system knows them: their identity and liveness.
//!
//! A pid is used again, and it means something only in its namespace. Its inode in pidfs (Linux
//! 6.9), which needs no /proc, or else its start time in /proc, tells a process from all others
//! with its pid. The start time is looked at only if /proc is of this process's own pid namespace:
//! in another one's, the same number is another process.
#![allow(unsafe_code)]

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{fstat, fstatfs};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::Error;

/// A bit of `start`: the rest is the process's inode in pidfs. Without it, `start` is a
/// start time.
const IN_PIDFS: u64 = 1 << 63;
/// Type of the file system pidfs, in `statfs`.
const PID_FS_MAGIC: u64 = 0x5049_4446;
/// Requests to a pidfd for its process's pid namespace and time namespace (Linux 6.11).
const GET_PID_NAMESPACE: libc::c_ulong = 0xff05;
const GET_TIME_NAMESPACE: libc::c_ulong = 0xff07;

/// A process for good: a pid alone is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessIdentity {
    pub pid: u32,
    /// Its inode in pidfs, with a bit that says so, or its start time.
    pub start: u64,
    pub namespace: u64,
}

/// Verdict on a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pulse {
    /// Alive, or there is no telling: a process that can't be seen counts as alive.
    Alive,
    /// Dead. A zombie is dead.
    Dead,
}

/// Knowledge about the process that is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    /// Its [`ProcessIdentity::start`].
    Start(u64),
    /// Some bits of it: [`start_hash`].
    Hash(u16),
}

/// A process that is not known to be dead.
#[derive(Debug)]
pub(crate) struct FoundProcess {
    /// `None`: this process may not have one.
    pub pidfd: Option<OwnedFd>,
    /// True if it is the wanted process for certain. If not, another one may have its
    /// pid.
    pub sure: bool,
}

impl ProcessIdentity {
    pub fn own() -> Result<Self, Error> {
        let pid = std::process::id();
        let start = match own_pidfd().as_ref().and_then(number_in_pidfs) {
            Some(number) => number,
            None => own_start_time()?,
        };
        Ok(ProcessIdentity { pid, start, namespace: own_namespace() })
    }
}

fn own_pidfd() -> Option<OwnedFd> {
    pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).ok()
}

fn own_start_time() -> Result<u64, Error> {
    // Of whatever namespace /proc is: this file is about this process.
    let stat =
        fs::read("/proc/self/stat").map_err(Error::io("reading /proc/self/stat (is /proc mounted?)"))?;
    let (_, start) = parse_stat(&stat).ok_or_else(|| Error::System {
        what: "reading the start time in /proc/self/stat",
        source: io::ErrorKind::InvalidData.into(),
    })?;
    Ok(start)
}

/// Returns the number of the process behind a pidfd, which no other ever has.
///
/// While the machine runs. `None`: this kernel has no such numbers (before Linux 6.9), or the
/// descriptor is none of a process.
#[must_use]
pub fn number_in_pidfs(pidfd: &OwnedFd) -> Option<u64> {
    // Of 32 bits, there would not be enough.
    if !cfg!(target_pointer_width = "64") || fstatfs(pidfd).ok()?.f_type as u64 != PID_FS_MAGIC {
        return None;
    }
    Some(fstat(pidfd).ok()?.st_ino | IN_PIDFS)
}

/// Fifteen bits of a start time: enough to tell a pid's second use from its first while
/// an entry is half written.
pub(crate) fn start_hash(start: u64) -> u16 {
    (start ^ start >> 16 ^ start >> 32) as u16 & 0x7fff
}

/// A number for the namespaces in which pids and start times of this process mean
/// something; 0 if unknown.
pub(crate) fn own_namespace() -> u64 {
    let inode = |which: &str| fs::metadata(format!("/proc/self/ns/{which}")).map(|m| m.ino());
    let number = match (inode("pid"), inode("time")) {
        (Ok(pid), Ok(time)) => Some((pid, time)),
        // Kernels before 5.6 have no time namespaces.
        (Ok(pid), Err(_)) => Some((pid, 0)),
        // No /proc in which this process would be seen.
        _ => namespaces_by_pidfd(),
    };
    number.map_or(0, |(pid, time)| pid << 32 ^ time)
}

/// The inodes of this process's pid namespace and time namespace.
fn namespaces_by_pidfd() -> Option<(u64, u64)> {
    let pidfd = own_pidfd()?;
    let inode = |request| {
        // SAFETY: these requests take no argument; they return a new descriptor, or an error.
        let namespace = unsafe { libc::ioctl(pidfd.as_raw_fd(), request as _, 0) };
        if namespace < 0 {
            return None;
        }
        // SAFETY: the descriptor is new: nothing else owns it.
        let namespace = unsafe { OwnedFd::from_raw_fd(namespace) };
        fstat(namespace).ok().map(|stat| stat.st_ino)
    };
    Some((inode(GET_PID_NAMESPACE)?, inode(GET_TIME_NAMESPACE).unwrap_or(0)))
}

/// Returns whether /proc is mounted and shows this process's own pid namespace, so that
/// its pids are those of this process.
pub(crate) fn proc_is_own() -> bool {
    let own = std::process::id();
    let Ok(status) = fs::read_to_string("/proc/self/status") else { return false };
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    // One pid for each namespace from that of /proc to that of the process. Kernels before 4.1
    // don't say.
    field("NSpid:").or_else(|| field("Pid:")).is_some_and(|pids| pids.parse() == Ok(own))
}

/// State letter and start time from the text of /proc/PID/stat. The program's name
/// (second field) may contain anything.
fn parse_stat(stat: &[u8]) -> Option<(u8, u64)> {
    let after_name = stat.iter().rposition(|&b| b == b')')? + 1;
    let mut fields = std::str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    // The state is field 3, the start time field 22.
    let start = fields.nth(18)?.parse().ok()?;
    Some((state, start))
}

/// State letter and start time of a process; `None` if there is none with this pid or no
/// telling (`Err`).
fn stat_of(pid: u32) -> io::Result<Option<(u8, u64)>> {
    match fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => parse_stat(&stat).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into()),
        // ESRCH: it went away between opening and reading.
        Err(e) if e.kind() == io::ErrorKind::NotFound || Errno::from_io_error(&e) == Some(Errno::SRCH) => {
            // Without /proc every process would seem dead.
            if fs::exists("/proc/self/stat").unwrap_or(false) { Ok(None) } else { Err(e) }
        }
        Err(e) => Err(e),
    }
}

/// Returns whether the process behind a pidfd is dead (all its threads have ended; it may
/// still be a zombie). Allocates nothing: signal handlers and forked children ask, too.
pub(crate) fn has_ended(pidfd: &OwnedFd) -> bool {
    any_ended(&mut [to_ask(pidfd)])
}

/// A process to ask for.
pub(crate) fn to_ask(pidfd: &OwnedFd) -> PollFd<'_> {
    PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)
}

/// Returns whether any of them is dead.
pub(crate) fn any_ended(fds: &mut [PollFd<'_>]) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(fds, Some(&now)), Ok(1..)) && fds.iter().any(|fd| fd.revents().contains(PollFlags::IN))
}

/// The process with this pid, provided that it is the wanted one. `Err`: that is dead.
pub(crate) fn watch(pid: u32, wanted: Wanted) -> Result<FoundProcess, Dead> {
    watch_by(pid, wanted, number_in_pidfs, proc_is_own)
}

/// Does the work of [`watch`], by the means of the kernel and of /proc that it is given.
fn watch_by(
    pid: u32,
    wanted: Wanted,
    number_in_pidfs: impl Fn(&OwnedFd) -> Option<u64>,
    proc_is_own: impl Fn() -> bool,
) -> Result<FoundProcess, Dead> {
    let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Err(Dead) };
    // First the pidfd, then the start time: if the pid belongs to the wanted process after the
    // pidfd was opened, it did before, and the pidfd is that process's.
    let pidfd = match pidfd_open(raw, PidfdFlags::empty()) {
        Ok(fd) => Some(fd),
        Err(Errno::SRCH) => return Err(Dead),
        // No such call, forbidden, or no descriptors left.
        Err(_) => None,
    };
    let number = pidfd.as_ref().and_then(number_in_pidfs);
    match (wanted, number) {
        (Wanted::Start(start), Some(number)) if start & IN_PIDFS != 0 => {
            return if number == start { Ok(FoundProcess { pidfd, sure: true }) } else { Err(Dead) };
        }
        (Wanted::Hash(hash), Some(number)) if start_hash(number) == hash => {
            return Ok(FoundProcess { pidfd, sure: true });
        }
        _ => {}
    }
    let is_wanted = |start_time| match wanted {
        Wanted::Start(start) if start & IN_PIDFS == 0 => Some(start == start_time),
        Wanted::Hash(hash) if start_hash(start_time) == hash => Some(true),
        Wanted::Hash(_) if number.is_some() => Some(false),
        // Its inode is known, and can't be compared.
        _ => None,
    };
    match if proc_is_own() { stat_of(pid) } else { Err(io::ErrorKind::Unsupported.into()) } {
        // The pidfd knows better: /proc may hide processes (hidepid).
        Ok(None) => match pidfd {
            Some(fd) if !has_ended(&fd) => Ok(FoundProcess { pidfd: Some(fd), sure: false }),
            _ => Err(Dead),
        },
        Ok(Some((state, start))) => match is_wanted(start) {
            Some(false) => Err(Dead),
            // Without a pidfd only the main thread's state is known: good enough to see a zombie.
            _ if pidfd.is_none() && matches!(state, b'Z' | b'X') => Err(Dead),
            known => Ok(FoundProcess { pidfd, sure: known.is_some() }),
        },
        // Can't read /proc: believe the pidfd.
        Err(_) => Ok(FoundProcess { pidfd, sure: false }),
    }
}

/// Said by [`watch`]: the process is dead.
pub(crate) struct Dead;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether a process is alive, asked once.
    fn pulse(pid: u32, wanted: Wanted) -> Pulse {
        pulse_by(watch(pid, wanted))
    }

    fn pulse_by(found: Result<FoundProcess, Dead>) -> Pulse {
        match found {
            Err(Dead) => Pulse::Dead,
            Ok(FoundProcess { pidfd: Some(pidfd), .. }) if has_ended(&pidfd) => Pulse::Dead,
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
        let me = ProcessIdentity::own().unwrap();
        for start in [me.start, own_start_time().unwrap()] {
            assert_eq!(pulse(me.pid, Wanted::Start(start)), Pulse::Alive);
            assert_eq!(pulse(me.pid, Wanted::Start(start ^ 1)), Pulse::Dead);
            assert_eq!(pulse(me.pid, Wanted::Hash(start_hash(start))), Pulse::Alive);
            assert_eq!(pulse(me.pid, Wanted::Hash(!start_hash(start))), Pulse::Dead);
            for pid in [0, u32::MAX] {
                assert_eq!(pulse(pid, Wanted::Start(start)), Pulse::Dead);
            }
        }
    }

    #[test]
    fn what_cannot_be_compared_is_not_known_to_be_dead() {
        let me = ProcessIdentity::own().unwrap();
        let time = own_start_time().unwrap();
        // Neither pidfs nor a /proc of one's own: any process with the pid may be the wanted one.
        for wanted in [Wanted::Start(me.start), Wanted::Start(time + 1), Wanted::Hash(!start_hash(time))] {
            let found = watch_by(me.pid, wanted, |_| None, || false);
            assert!(
                matches!(found, Ok(FoundProcess { pidfd: Some(_), sure: false })),
                "{wanted:?}: {}",
                found.is_ok()
            );
        }
        // Without pidfs, start times tell.
        let alive = watch_by(me.pid, Wanted::Start(time), |_| None, || true);
        assert!(matches!(alive, Ok(FoundProcess { sure: true, .. })));
        assert!(watch_by(me.pid, Wanted::Start(time + 1), |_| None, || true).is_err());
        // The inode of a process that this one can't look up, because of a filter of system calls.
        let unsure = watch_by(me.pid, Wanted::Start(IN_PIDFS | 1), |_| None, || true);
        assert!(matches!(unsure, Ok(FoundProcess { sure: false, .. })));
    }

    #[test]
    fn namespaces_have_one_number_by_proc_and_by_pidfd() {
        assert!(proc_is_own());
        let Some((pid, time)) = namespaces_by_pidfd() else {
            eprintln!("SKIPPED: this kernel does not say a pidfd's namespaces (Linux 6.11)");
            return;
        };
        assert_eq!(own_namespace(), pid << 32 ^ time);
    }

    #[test]
    fn a_zombie_is_dead() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let (_, start) = stat_of(child.id()).unwrap().unwrap();
        let wanted = Wanted::Start(start);
        // Not waited for: a zombie from some moment on.
        while pulse(child.id(), wanted) == Pulse::Alive {
            std::thread::yield_now();
        }
        assert_eq!(stat_of(child.id()).unwrap().unwrap().0, b'Z');
        assert_eq!(pulse_by(watch_by(child.id(), wanted, |_| None, || false)), Pulse::Dead);
        child.wait().unwrap();
        assert_eq!(pulse(child.id(), wanted), Pulse::Dead);
    }
}
