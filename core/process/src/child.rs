//! A forked child, which never outlives its parent.
//!
//! Signals go only to a child that was not waited for, so its number is still its own.
//!
//! # Safety
//!
//! A forked child has one thread, its parent's memory as it was, and perhaps locks that another
//! thread of the parent held. It runs nothing but its closure and leaves by `_exit`, so that
//! nothing of the parent's (destructors, buffered output, a test harness) runs twice.
#![allow(unsafe_code)]

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, getppid, kill_process, pidfd_open,
    set_parent_process_death_signal, waitid, waitpid,
};

/// Exit code of a child whose closure panicked.
pub const PANICKED: i32 = 101;

/// Interval between two looks at a child where the kernel has no pidfd.
const INTERVAL: Duration = Duration::from_millis(2);

/// End of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Exit code, or minus the signal that killed the process.
    pub code: i32,
    /// Processor time that the process used.
    pub cpu: Duration,
}

/// State of a child that was not waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildState {
    /// Running, asleep or stopped.
    Alive,
    /// Ended by itself, with this exit code.
    Exited(i32),
    /// Ended by a signal.
    Killed,
}

/// A forked child. Dropping it kills it if it still runs, and waits for it.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    pidfd: Option<OwnedFd>,
    reaped: bool,
}

/// Ends the process when dropped, without running anything of its parent's.
struct Leave(i32);

impl Drop for Leave {
    fn drop(&mut self) {
        // SAFETY: `_exit` has no preconditions.
        unsafe { libc::_exit(self.0) }
    }
}

impl Child {
    /// Forks a child that runs `body` and exits with its result.
    ///
    /// The body must not need a lock that another thread of this process may hold at this moment;
    /// the allocator has such locks. The child is killed when the calling thread ends.
    ///
    /// # Errors
    ///
    /// The system's, if there can be no more processes.
    pub fn fork(body: impl FnOnce() -> i32) -> io::Result<Child> {
        let mut body = Some(body);
        // Compiled once, not for each body.
        Self::fork_with(&mut || body.take().map_or(PANICKED, |body| body()))
    }

    fn fork_with(body: &mut dyn FnMut() -> i32) -> io::Result<Child> {
        let parent = getpid();
        // SAFETY: the child touches only its copy of memory and shared pages; it never returns from
        // this function.
        match unsafe { libc::fork() } {
            0 => {
                let mut leave = Leave(PANICKED);
                let prepared = set_parent_process_death_signal(Some(Signal::KILL));
                // The parent may have died before the call. The first process of a PID namespace
                // does not see its parent.
                leave.0 = match prepared.is_ok() && getppid().is_none_or(|now| now == parent) {
                    true => body(),
                    false => 1,
                };
                drop(leave);
                unreachable!("the process has left")
            }
            pid => {
                let pid = Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(io::Error::last_os_error)?;
                // Without pidfds the child is looked at in intervals.
                Ok(Child { pid, pidfd: pidfd_open(pid, PidfdFlags::empty()).ok(), reaped: false })
            }
        }
    }

    /// Process id.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Sends a signal, unless the child was waited for.
    pub fn signal(&self, signal: Signal) {
        if !self.reaped {
            // It exists until it is waited for, and belongs to this user.
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Kills the child at whatever instruction it is. It is still to be waited for.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Stops the child (SIGSTOP) at whatever instruction it is.
    ///
    /// Returns `true` once it has stopped, `false` if it has ended.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn stop(&self) -> io::Result<bool> {
        if self.reaped {
            return Ok(false);
        }
        self.signal(Signal::STOP);
        let either = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = retry_on_intr(|| waitid(WaitId::Pid(self.pid), either))?;
        Ok(status.is_some_and(|status| status.stopped()))
    }

    /// Lets the child go on after [`Child::stop`].
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Returns the child's state. It is not waited for.
    pub fn state(&self) -> ChildState {
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match retry_on_intr(|| waitid(WaitId::Pid(self.pid), ended)) {
            Ok(Some(status)) => status.exit_status().map_or(ChildState::Killed, ChildState::Exited),
            Ok(None) | Err(_) => ChildState::Alive,
        }
    }

    /// Returns whether the child sleeps in a system call. A stopped process does not.
    pub fn is_asleep(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        // The name, in parentheses, may contain anything.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
    }

    /// Processor time of the child's first thread so far.
    pub fn cpu_time(&self) -> Duration {
        // SAFETY: both calls only fill in what they are given; all-zero is a valid place for a
        // time.
        unsafe {
            let (mut clock, mut time) = (0, std::mem::zeroed::<libc::timespec>());
            if libc::clock_getcpuclockid(self.pid(), &mut clock) != 0 {
                return Duration::ZERO;
            }
            libc::clock_gettime(clock, &mut time);
            Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
        }
    }

    /// Waits until the child has ended or `deadline` has come (then `None`).
    ///
    /// # Errors
    ///
    /// The system's, for instance if the child was waited for already.
    pub fn wait(&mut self, deadline: Instant) -> io::Result<Option<Exit>> {
        loop {
            let exit = self.try_wait()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if exit.is_some() || left.is_zero() {
                return Ok(exit);
            }
            self.sleep_until_it_ends(left);
        }
    }

    /// Waits for the child if it has ended.
    ///
    /// # Errors
    ///
    /// As [`Child::wait`].
    pub fn try_wait(&mut self) -> io::Result<Option<Exit>> {
        let mut status = 0;
        // SAFETY: all-zero bytes are a valid `rusage`.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both places are valid for the results. (Rustix has no `wait4`.)
        match unsafe { libc::wait4(self.pid(), &mut status, libc::WNOHANG, &mut usage) } {
            0 => Ok(None),
            -1 => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(None),
                error => {
                    self.reaped = true;
                    Err(error)
                }
            },
            _ => {
                self.reaped = true;
                let code =
                    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) };
                let time = |t: libc::timeval| {
                    Duration::new(t.tv_sec as u64, (t.tv_usec as u32).saturating_mul(1000))
                };
                Ok(Some(Exit { code, cpu: time(usage.ru_utime) + time(usage.ru_stime) }))
            }
        }
    }

    /// Sleeps until the child ends, for at most `limit`. May return early.
    pub fn sleep_until_it_ends(&self, limit: Duration) {
        let Some(pidfd) = &self.pidfd else { return thread::sleep(limit.min(INTERVAL)) };
        let limit: Option<Timespec> = limit.try_into().ok();
        // An error is an early return.
        let _ = poll(&mut [PollFd::new(pidfd, PollFlags::IN)], limit.as_ref());
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        self.kill();
        // A traced child reports its stops too.
        while retry_on_intr(|| waitpid(Some(self.pid), WaitOptions::empty()))
            .is_ok_and(|ended| ended.is_some_and(|(_, status)| status.stopped()))
        {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    fn sleeps() -> i32 {
        loop {
            thread::sleep(Duration::from_millis(100));
        }
    }

    #[test]
    fn child_that_ends_reports_its_code() {
        let mut child = Child::fork(|| 7).unwrap();
        assert_eq!(child.wait(soon()).unwrap().unwrap().code, 7);
        assert!(child.wait(soon()).is_err(), "it was waited for");
        assert!(!child.stop().unwrap());
    }

    #[test]
    fn state_tells_an_end_from_a_death() {
        let seen = |child: &Child| {
            while child.state() == ChildState::Alive {
                child.sleep_until_it_ends(Duration::from_secs(1));
            }
            child.state()
        };
        assert_eq!(seen(&Child::fork(|| 3).unwrap()), ChildState::Exited(3));
        let child = Child::fork(sleeps).unwrap();
        assert_eq!(child.state(), ChildState::Alive);
        child.kill();
        assert_eq!(seen(&child), ChildState::Killed);
    }

    #[test]
    fn child_at_the_deadline_goes_on_until_dropped() {
        let mut child = Child::fork(sleeps).unwrap();
        let pid = child.pid;
        assert_eq!(child.wait(Instant::now() + Duration::from_millis(30)).unwrap(), None);
        assert_eq!(child.state(), ChildState::Alive);
        drop(child);
        assert!(rustix::process::test_kill_process(pid).is_err(), "the process is gone");
    }

    #[test]
    fn stopped_child_uses_no_processor_time_until_it_goes_on() {
        let child = Child::fork(|| {
            loop {
                std::hint::spin_loop();
            }
        })
        .unwrap();
        let runs_on = |from: Duration| {
            let deadline = soon();
            while child.cpu_time() <= from {
                assert!(Instant::now() < deadline, "it does not run");
                thread::yield_now();
            }
        };
        for _ in 0..3 {
            runs_on(child.cpu_time());
            assert!(child.stop().unwrap());
            let used = child.cpu_time();
            thread::sleep(Duration::from_millis(5));
            assert_eq!(child.cpu_time(), used);
            child.go_on();
            runs_on(used);
        }
    }
}
