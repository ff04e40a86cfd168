//! Forked children, which never outlive the test.
#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::watchdog;

/// A forked child. Killed when dropped.
#[derive(Debug)]
pub struct Child(pub(crate) i32);

impl Child {
    /// Forks a child that does this and ends.
    ///
    /// # Panics
    ///
    /// If this process has more than one thread: the child would have only this one, and perhaps
    /// locks that another one held.
    pub fn fork(act: impl FnOnce()) -> Child {
        let threads = std::fs::read_dir("/proc/self/task").expect("/proc is mounted").count();
        assert_eq!(threads, 1, "only a process with one thread may fork and go on");
        // SAFETY: this process has one thread, so the child may do what it likes; it never returns.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
        if pid == 0 {
            // SAFETY: takes a signal number: we end with our parent.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            let ended = catch_unwind(AssertUnwindSafe(act));
            // SAFETY: ends the process without running what it inherited.
            unsafe { libc::_exit(ended.is_err().into()) }
        }
        watchdog::add(pid);
        Child(pid)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.0 as u32
    }

    /// Whether it sleeps in a system call (a process that is stopped doesn't).
    pub fn is_asleep(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        // The name, in parentheses, may contain anything.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
    }

    /// Whether it has ended. It may go on being asked.
    pub fn has_ended(&self) -> bool {
        // SAFETY: all-zero is a valid place for the result; our own child, which stays to be waited
        // for.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            libc::waitid(libc::P_PID, self.0 as libc::id_t, &mut info, flags) == 0 && info.si_pid() == self.0
        }
    }

    /// Whether it has ended by itself, and with 0. It may go on being asked.
    pub fn has_ended_well(&self) -> bool {
        // SAFETY: as in `has_ended`.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            libc::waitid(libc::P_PID, self.0 as libc::id_t, &mut info, flags) == 0
                && info.si_pid() == self.0
                && info.si_code == libc::CLD_EXITED
                && info.si_status() == 0
        }
    }

    /// How long it has been running on a processor: the time of its first thread.
    pub fn time_on_processor(&self) -> Duration {
        // SAFETY: both calls only fill in what they are given; all-zero is a valid place for a
        // time.
        unsafe {
            let (mut clock, mut time) = (0, std::mem::zeroed::<libc::timespec>());
            if libc::clock_getcpuclockid(self.0, &mut clock) != 0 {
                return Duration::ZERO;
            }
            libc::clock_gettime(clock, &mut time);
            Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
        }
    }

    /// Stops it where it is (SIGSTOP), and waits until it stands.
    ///
    /// # Panics
    ///
    /// If it has ended.
    pub fn stop(&self) {
        let mut status = 0;
        // SAFETY: our own child, not yet waited for; `status` is a place for the result.
        let got = unsafe {
            libc::kill(self.0, libc::SIGSTOP);
            libc::waitpid(self.0, &mut status, libc::WUNTRACED)
        };
        assert!(got == self.0 && libc::WIFSTOPPED(status), "the child has ended (status {status:#x})");
    }

    /// Lets it go on after [`Child::stop`].
    pub fn go_on(&self) {
        // SAFETY: our own child, not yet waited for.
        unsafe { libc::kill(self.0, libc::SIGCONT) };
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(self) {}
}

impl Drop for Child {
    fn drop(&mut self) {
        let mut status = 0;
        // SAFETY: our own child, not yet waited for; `status` is a place for the result.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            while libc::waitpid(self.0, &mut status, 0) == self.0 && libc::WIFSTOPPED(status) {}
        }
        watchdog::remove(self.0);
    }
}
