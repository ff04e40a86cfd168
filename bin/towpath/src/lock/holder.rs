//! A command under a lock, as its supervisor sees it: the wait, the command, the release.
//!
//! The supervisor has the place in the lock's queue; the command inherits the place's lifeline.
//! So the lock lasts as long as one of the two lives. A supervisor whose command has ended releases
//! it, also from processes that the command has left running. On several hosts the place is a
//! connection to this host's agent, which sees its end, or a lease of an etcd: that ends a while
//! after the supervisor, whatever the command does.
//!
//! | is killed | then |
//! | --- | --- |
//! | the command | the supervisor releases the lock, and says that the owner died |
//! | `towpath lock` | the supervisor kills the command and its descendants, releases the lock, and says that the owner died |
//! | the supervisor | the kernel kills the command (PR_SET_PDEATHSIG), `towpath lock` kills its descendants, and the lock goes on when the last one has ended |
//! | all of them at once | the lock goes on when the last descendant with the lifeline has ended; that of an etcd when the lease has ended |
#![allow(unsafe_code)]

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use towpath_agent::{AgentPlace, PlaceNews};
#[cfg(feature = "etcd")]
use towpath_etcd::{EtcdNews, EtcdPlace, EtcdUser, EtcdWish};
use towpath_lockfile::{Leaving, LockGrant, LockPlace, check_name};

#[cfg(not(feature = "etcd"))]
use super::NO_ETCD;
use super::{Arguments, NOT_EXECUTED, NOT_MADE, OnLoss, SYSTEM_FAILED, read_hosts, shown_command};
use crate::output::remark;
use crate::run::children::{self, ChildEnd};
use crate::run::signals::{self, Signals, is_ending};
use crate::run::supervisor::{Heard, Parent};
use crate::run::{poll_within, why_not_executed};
use crate::{CommandFailure, Outcome};

/// Lowest number of the descriptor that the command inherits: scripts use the first ones.
const LIFELINE: libc::c_int = 100;

/// Time between two looks whether the file of a lock of this host was removed.
const LOOK: Duration = Duration::from_secs(1);
/// Time for which a release waits for the agent.
const LEAVE: Duration = Duration::from_secs(5);
/// Time for which a waiter that gives up waits for the agent. It will see the end anyway.
const WITHDRAW: Duration = Duration::from_millis(100);

/// Reason why a host grants nothing.
const NO_LEASE: &str = "this host grants no locks: its agent hears no majority of the hosts, or has just been started (`towpath lock --hosts FILE --status` shows which hosts are there)";

/// Place in the queue of a lock.
enum HolderPlace {
    /// Place of a lock of this host.
    Here(Arc<LockPlace>),
    /// Place of a lock of several hosts.
    Agent(Box<AgentPlace>),
    /// Place of a lock of an etcd.
    #[cfg(feature = "etcd")]
    Etcd(Box<EtcdPlace>),
}

/// News of a place.
enum HolderNews {
    Granted(LockGrant),
    Refused,
    /// The host grants nothing to its waiters now.
    NoLease,
    /// The lock can't be had.
    #[cfg(feature = "etcd")]
    Failed(CommandFailure),
    /// The lock may be given to others, and why. `ends`: no news come after it.
    Lost {
        why: &'static str,
        ends: bool,
    },
    /// The lock was not given to others.
    Regained,
}

impl HolderPlace {
    fn lifeline(&self) -> BorrowedFd<'_> {
        match self {
            HolderPlace::Here(place) => place.lifeline(),
            HolderPlace::Agent(place) => place.lifeline(),
            #[cfg(feature = "etcd")]
            HolderPlace::Etcd(place) => place.descriptor(),
        }
    }

    /// Returns whether the lifeline becomes readable when news come.
    fn has_news(&self) -> bool {
        !matches!(self, HolderPlace::Here(_))
    }

    fn take_news(&mut self) -> Option<HolderNews> {
        Some(match self {
            HolderPlace::Here(place) if place.is_removed() => {
                HolderNews::Lost { why: "its file was removed", ends: true }
            }
            HolderPlace::Here(_) => return None,
            HolderPlace::Agent(place) => match place.take_news()? {
                PlaceNews::Granted(grant) => HolderNews::Granted(grant),
                PlaceNews::Refused => HolderNews::Refused,
                PlaceNews::NoLease => HolderNews::NoLease,
                PlaceNews::Lost => HolderNews::Lost { why: "this host has lost its lease", ends: false },
                PlaceNews::AgentEnded => HolderNews::Lost { why: "this host's agent has ended", ends: true },
                PlaceNews::Regained => HolderNews::Regained,
                PlaceNews::Left => return None,
            },
            #[cfg(feature = "etcd")]
            HolderPlace::Etcd(place) => match place.take_news()? {
                EtcdNews::Granted { token } => {
                    HolderNews::Granted(LockGrant { token, previous_owner_died: false })
                }
                EtcdNews::Refused => HolderNews::Refused,
                EtcdNews::Failed(error) => HolderNews::Failed(refused(error)),
                EtcdNews::Lost => {
                    HolderNews::Lost { why: "the lease at etcd could not be kept alive", ends: true }
                }
            },
        })
    }

    /// Remedy where news end before the lock is had.
    fn remedy(&self) -> &'static str {
        match self {
            HolderPlace::Here(_) => "ask again",
            HolderPlace::Agent(_) => "start one (`towpath lock --serve --hosts FILE`) and ask again",
            #[cfg(feature = "etcd")]
            HolderPlace::Etcd(_) => "see whether etcd answers, and ask again",
        }
    }

    /// Names a process in the status. Without success nothing else is lost.
    fn name_process(&mut self, process: u32) {
        match self {
            HolderPlace::Here(place) => _ = place.name_process(process),
            HolderPlace::Agent(place) => place.name_process(process),
            // It was named with its key, once: `towpath lock`, whose end is that of the lock.
            #[cfg(feature = "etcd")]
            HolderPlace::Etcd(_) => {}
        }
    }

    /// Leaves the place; waits for this time for an agent to do so.
    fn leave(&mut self, leaving: Leaving, within: Duration) -> Result<(), CommandFailure> {
        match self {
            HolderPlace::Here(place) => match place.leave(leaving) {
                Err(error @ towpath_lockfile::Error::Removed { .. }) => {
                    remark!("towpath: {error}");
                    Ok(())
                }
                left => left.map_err(refused),
            },
            HolderPlace::Agent(place) => {
                place.leave(leaving, within);
                Ok(())
            }
            #[cfg(feature = "etcd")]
            HolderPlace::Etcd(place) => {
                place.leave();
                Ok(())
            }
        }
    }
}

/// Failure where the lock can't be had, for a reason that waiting does not end.
fn refused(error: impl ToString) -> CommandFailure {
    CommandFailure::new(error).with_code(NOT_MADE)
}

/// End of the wait for the lock.
enum WaitEnd {
    Granted(LockGrant),
    /// The time is over.
    TooLong,
    /// A signal has come that ends waiters.
    Signal(Signal),
    /// The command `towpath lock` has died.
    Alone,
}

/// Waits for the lock and runs the command under it.
pub fn hold(
    arguments: &Arguments,
    name: &str,
    command: &[OsString],
    parent: &Parent,
    signals: &Signals,
) -> Outcome {
    let (access, description) = (arguments.access(), shown_command(command));
    let tries = arguments.nonblock || arguments.timeout == Some(Duration::ZERO);
    // The number that the caller knows.
    let front = getppid().map(|front| front.as_raw_nonzero().get().cast_unsigned());
    // For all kinds of locks alike.
    check_name(name).map_err(refused)?;
    // Time within which a request that does not wait is answered.
    let mut answer = None;
    let mut place = match (read_hosts(arguments)?, &arguments.etcd) {
        (None, None) => {
            HolderPlace::Here(Arc::new(LockPlace::enter(name, access, &description).map_err(refused)?))
        }
        #[cfg(feature = "etcd")]
        (None, Some(urls)) => {
            let user = EtcdUser::new(front.unwrap_or(0), &description);
            let wish = EtcdWish { name, shared: arguments.shared, tries, user };
            HolderPlace::Etcd(Box::new(EtcdPlace::enter(urls, &wish).map_err(refused)?))
        }
        #[cfg(not(feature = "etcd"))]
        (None, Some(_)) => {
            return Err(refused(NO_ETCD));
        }
        (Some(hosts), _) => {
            let host = arguments.host.as_deref();
            // Until the lock of a host that is gone is given on.
            answer = Some(3 * hosts.lease + LEAVE);
            let place = AgentPlace::enter(&hosts, host, name, access, tries, &description);
            HolderPlace::Agent(Box::new(place.map_err(refused)?))
        }
    };
    if let Some(front) = front {
        place.name_process(front);
    }
    let timeout = if arguments.nonblock { Some(Duration::ZERO) } else { arguments.timeout };
    let waited = match &mut place {
        HolderPlace::Here(place) => wait(place, timeout, parent, signals)?,
        place => wait_for_news(place, timeout, answer, parent, signals)?,
    };
    match waited {
        WaitEnd::Granted(grant) => run(arguments, name, command, &mut place, grant, parent, signals),
        WaitEnd::TooLong => Ok(ExitCode::from(arguments.conflict_exit_code)),
        WaitEnd::Signal(signal) => Ok(ExitCode::from(128 + signal.as_raw() as u8)),
        WaitEnd::Alone => Ok(ExitCode::from(128 + libc::SIGKILL as u8)),
    }
}

/// Waits for the lock. Unless it is granted, the place is given up.
fn wait(
    place: &Arc<LockPlace>,
    timeout: Option<Duration>,
    parent: &Parent,
    signals: &Signals,
) -> Result<WaitEnd, CommandFailure> {
    if let Some(grant) = place.try_take().map_err(refused)? {
        return Ok(WaitEnd::Granted(grant));
    }
    let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let outcome = if timeout == Some(Duration::ZERO) {
        WaitEnd::TooLong
    } else {
        let system = |e: io::Error| CommandFailure::new(e).with_code(SYSTEM_FAILED);
        let (granted, tell) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| system(e.into()))?;
        let waiter = Arc::clone(place);
        // The system call that waits has no time-out and no other way to be ended: the thread that
        // makes it is left behind. An error comes again below.
        let wait = move || drop((waiter.wait(), tell));
        thread::Builder::new().spawn(wait).map_err(system)?;
        watch(granted.as_fd(), until, parent, signals).map_err(system)?
    };
    match (place.give_up().map_err(refused)?, outcome) {
        (Some(grant), WaitEnd::TooLong | WaitEnd::Granted(_)) => Ok(WaitEnd::Granted(grant)),
        (None, WaitEnd::Granted(_)) => Err(CommandFailure::new("waiting for the lock failed: its file was removed or damaged, or a process is stopped while it changes the file; see `towpath lock --status`, and ask again").with_code(NOT_MADE)),
        (held, outcome) => {
            if held.is_some() {
                place.leave(Leaving::Unchanged).map_err(refused)?;
            }
            Ok(outcome)
        }
    }
}

/// Waits for the lock at this host's agent, or at an etcd.
///
/// Unless it is granted, the place is given up. `answer`: time within which an answer comes where
/// the lock is not to be waited for.
fn wait_for_news(
    place: &mut HolderPlace,
    timeout: Option<Duration>,
    answer: Option<Duration>,
    parent: &Parent,
    signals: &Signals,
) -> Result<WaitEnd, CommandFailure> {
    let tries = timeout == Some(Duration::ZERO);
    let limit = if tries { answer } else { timeout };
    let until = limit.and_then(|limit| Instant::now().checked_add(limit));
    let system = |e: io::Error| CommandFailure::new(e).with_code(SYSTEM_FAILED);
    let mut has_lease = true;
    loop {
        while let Some(news) = place.take_news() {
            match news {
                HolderNews::Granted(grant) => return Ok(WaitEnd::Granted(grant)),
                HolderNews::Refused if has_lease => return Ok(WaitEnd::TooLong),
                HolderNews::Refused => return Err(refused(format!("{NO_LEASE}; ask again later"))),
                HolderNews::NoLease if !tries && has_lease => {
                    remark!("towpath: {NO_LEASE}; waiting for that");
                    has_lease = false;
                }
                HolderNews::NoLease => has_lease = false,
                #[cfg(feature = "etcd")]
                HolderNews::Failed(failure) => return Err(failure),
                HolderNews::Lost { why, ends: true } => {
                    let remedy = place.remedy();
                    return Err(refused(format!("waiting for the lock failed: {why}; {remedy}")));
                }
                HolderNews::Lost { .. } | HolderNews::Regained => {}
            }
        }
        match watch(place.lifeline(), until, parent, signals).map_err(system)? {
            WaitEnd::Granted(_) => {}
            WaitEnd::TooLong if tries => return Err(refused(towpath_agent::Error::AgentSilent)),
            other => {
                place.leave(Leaving::Unchanged, WITHDRAW)?;
                return Ok(other);
            }
        }
    }
}

/// Waits until a descriptor becomes readable, or something else ends the wait.
fn watch(
    granted: BorrowedFd<'_>,
    until: Option<Instant>,
    parent: &Parent,
    signals: &Signals,
) -> io::Result<WaitEnd> {
    // Of signals that a waiter gets, only the change of the window is none that ends it.
    let ends = |signal: Signal| signal != Signal::WINCH;
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Ok(WaitEnd::TooLong);
        }
        if sleep([granted, signals.as_fd(), parent.as_fd()], left)?[0] {
            return Ok(WaitEnd::Granted(LockGrant { token: 0, previous_owner_died: false }));
        }
        while let Some(received) = signals.next() {
            if ends(received.signal) {
                return Ok(WaitEnd::Signal(received.signal));
            }
        }
        while let Some(heard) = parent.next() {
            match heard {
                Heard::Signal(signal) if ends(signal) => return Ok(WaitEnd::Signal(signal)),
                Heard::Signal(_) => {}
                Heard::Death => return Ok(WaitEnd::Alone),
            }
        }
    }
}

/// Sleeps until a descriptor is ready, or the time is over. Returns which are ready.
fn sleep<const N: usize>(sources: [BorrowedFd<'_>; N], limit: Option<Duration>) -> io::Result<[bool; N]> {
    let mut polled = sources.map(|source| PollFd::from_borrowed_fd(source, PollFlags::IN));
    poll_within(&mut polled, limit)?;
    Ok(polled.map(|source| !source.revents().is_empty()))
}

/// Runs the command under the lock.
fn run(
    arguments: &Arguments,
    name: &str,
    words: &[OsString],
    place: &mut HolderPlace,
    grant: LockGrant,
    parent: &Parent,
    signals: &Signals,
) -> Outcome {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env("TOWPATH_LOCK", name).env("TOWPATH_TOKEN", grant.token.to_string());
    if grant.previous_owner_died {
        command.env("TOWPATH_PREVIOUS_OWNER_DIED", "1");
    } else {
        command.env_remove("TOWPATH_PREVIOUS_OWNER_DIED");
    }
    let (mask, supervisor, lifeline) = (signals.mask_before(), getpid(), place.lifeline().as_raw_fd());
    let prepare = move || {
        signals::set_mask(&mask)?;
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The supervisor may have died before the call.
        if getppid() != Some(supervisor) {
            // SAFETY: `_exit` has no preconditions.
            unsafe { libc::_exit(i32::from(SYSTEM_FAILED)) };
        }
        // SAFETY: two system calls on a descriptor that is open in the child, as in its parent.
        let inherited = unsafe {
            libc::fcntl(lifeline, libc::F_DUPFD, LIFELINE) >= 0
                || libc::fcntl(lifeline, libc::F_SETFD, 0) == 0
        };
        if inherited { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure only makes system calls: it neither allocates nor takes a lock.
    unsafe { command.pre_exec(prepare) };
    let child = match command.spawn() {
        Ok(child) => child.id(),
        Err(error) => {
            place.leave(Leaving::Unchanged, LEAVE)?;
            return Err(not_started(&words[0], &error));
        }
    };
    place.name_process(child);
    let ended = look_after(child, place, arguments.on_loss, parent, signals)
        .map_err(|e| CommandFailure::new(e).with_code(SYSTEM_FAILED));
    if ended.is_err() {
        children::end_orphans(Duration::ZERO, |_| {});
    }
    let (leaving, code) = match ended? {
        ChildEnd::Code(0) => (Leaving::Consistent, 0),
        ChildEnd::Code(code) => (Leaving::Unchanged, code),
        ChildEnd::Signal(signal) => (Leaving::Died, 128 + signal as u8),
    };
    place.leave(leaving, LEAVE)?;
    Ok(ExitCode::from(code))
}

/// Passes signals on to the command until it has ended.
fn look_after(
    child: u32,
    place: &mut HolderPlace,
    on_loss: OnLoss,
    parent: &Parent,
    signals: &Signals,
) -> io::Result<ChildEnd> {
    let mut awaits_news = true;
    loop {
        while let Some(ended) = children::ended_child() {
            let end = children::reap(ended);
            if ended == child {
                return Ok(end.unwrap_or(ChildEnd::Signal(libc::SIGKILL)));
            }
        }
        if awaits_news && place.has_news() {
            sleep([signals.as_fd(), parent.as_fd(), place.lifeline()], None)?;
        } else {
            sleep([signals.as_fd(), parent.as_fd()], awaits_news.then_some(LOOK))?;
        }
        while let Some(news) = awaits_news.then(|| place.take_news()).flatten() {
            let why = match news {
                HolderNews::Lost { why, ends } => {
                    awaits_news = !ends;
                    why
                }
                HolderNews::Regained => {
                    remark!("towpath: this host has its lease again: the lock was not given to others");
                    continue;
                }
                HolderNews::Granted(_) | HolderNews::Refused | HolderNews::NoLease => continue,
                #[cfg(feature = "etcd")]
                HolderNews::Failed(_) => continue,
            };
            let then = if on_loss == OnLoss::Term { "; the command gets SIGTERM" } else { "" };
            remark!("towpath: the lock may be given to others: {why}{then}");
            if on_loss == OnLoss::Term {
                children::signal(child, Signal::TERM);
                children::signal(child, Signal::CONT);
            }
        }
        // The command is of the same process group, and has got what was typed or sent to all.
        while signals.next().is_some() {}
        while let Some(heard) = parent.next() {
            match heard {
                Heard::Signal(signal) => {
                    children::signal(child, signal);
                    if is_ending(signal) {
                        // A command that is stopped could not react.
                        children::signal(child, Signal::CONT);
                    }
                }
                Heard::Death => {
                    // Orphans become children of this process, and end too.
                    children::end_orphans(Duration::ZERO, |_| {});
                    return Ok(ChildEnd::Signal(libc::SIGKILL));
                }
            }
        }
    }
}

fn not_started(program: &OsString, error: &io::Error) -> CommandFailure {
    let (code, why) = match error.raw_os_error() {
        Some(libc::EAGAIN) => {
            (SYSTEM_FAILED, "too many processes of this user: raise the limit (`ulimit -u`)".to_owned())
        }
        _ => (NOT_EXECUTED, why_not_executed(program, error)),
    };
    CommandFailure::new(format!("{}: {why}", program.to_string_lossy())).with_code(code)
}
