//! Forked children, which never outlive the test.

use std::time::Duration;

use towpath_process::ChildState;

use crate::watchdog;

/// A forked child of a process with one thread. Killed when dropped.
#[derive(Debug)]
pub struct Child {
    // Dropped, and so killed, before the watchdog forgets it.
    process: towpath_process::Child,
    _watched: WatchedChild,
}

/// A child that the watchdog knows.
#[derive(Debug)]
struct WatchedChild(i32);

impl Drop for WatchedChild {
    fn drop(&mut self) {
        watchdog::remove(self.0);
    }
}

impl Child {
    /// Forks a child that runs `act` and ends.
    ///
    /// # Panics
    ///
    /// If this process has more than one thread: the child would have only this one, and perhaps
    /// locks that another one held. If there can be no more processes.
    pub fn fork(act: impl FnOnce()) -> Child {
        let threads = || std::fs::read_dir("/proc/self/task").expect("/proc is mounted").count();
        // One whose work is done, and whose end was waited for, may still be listed.
        let mut looks = 0;
        while threads() != 1 && looks < 1000 {
            std::thread::sleep(Duration::from_millis(1));
            looks += 1;
        }
        assert_eq!(threads(), 1, "only a process with one thread may fork and go on");
        let process = towpath_process::Child::fork(|| {
            act();
            0
        });
        let process = process.expect("a process can be started");
        watchdog::add(process.pid());
        let _watched = WatchedChild(process.pid());
        Child { process, _watched }
    }

    /// Process id, as the system's calls take it.
    pub(crate) fn raw(&self) -> i32 {
        self.process.pid()
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.raw() as u32
    }

    /// Returns whether the child sleeps in a system call. A stopped process does not.
    pub fn is_asleep(&self) -> bool {
        self.process.is_asleep()
    }

    /// Returns whether the child has ended.
    pub fn has_ended(&self) -> bool {
        self.process.state() != ChildState::Alive
    }

    /// Returns whether the child has ended by itself, and with 0.
    pub fn has_ended_well(&self) -> bool {
        self.process.state() == ChildState::Exited(0)
    }

    /// Processor time of the child's first thread so far.
    pub fn time_on_processor(&self) -> Duration {
        self.process.cpu_time()
    }

    /// Stops the child where it is (SIGSTOP), and waits until it stands.
    ///
    /// # Panics
    ///
    /// If it has ended.
    pub fn stop(&self) {
        assert!(self.process.stop().expect("the child can be waited for"), "the child has ended");
    }

    /// Lets the child go on after [`Child::stop`].
    pub fn go_on(&self) {
        self.process.go_on();
    }

    /// Kills the child, and waits until it is gone.
    pub fn kill(self) {}
}
