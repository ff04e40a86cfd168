//! Watching one process: its identity, for good, and its liveness.

use std::os::fd::OwnedFd;

use crate::Error;
use crate::process::{self, Dead, ProcessIdentity, Wanted};

/// A process in terms that mean the same to every process of its pid namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its pid.
    pub pid: u32,
    /// The mark by which it differs from other processes with that pid: its inode in
    /// pidfs, with the highest bit set, or when it started, in the kernel's ticks since boot.
    pub start: u64,
    /// A number for the namespaces in which the other two mean something.
    pub namespace: u64,
}

/// A process that is watched. One that can't be seen (another namespace) counts as alive.
#[derive(Debug)]
pub struct Watch {
    pidfd: Option<OwnedFd>,
    dead: bool,
}

impl Process {
    /// This one.
    ///
    /// # Errors
    ///
    /// The kernel has no pidfs, and /proc can't be read.
    pub fn own() -> Result<Process, Error> {
        let ProcessIdentity { pid, start, namespace } = ProcessIdentity::own()?;
        Ok(Process { pid, start, namespace })
    }

    /// Watches it.
    pub fn watch(&self) -> Watch {
        // Namespaces that are unknown may be different ones.
        if self.namespace != process::own_namespace() || self.namespace == 0 {
            return Watch { pidfd: None, dead: false };
        }
        match process::watch(self.pid, Wanted::Start(self.start)) {
            Ok(found) => Watch { pidfd: found.pidfd, dead: false },
            Err(Dead) => Watch { pidfd: None, dead: true },
        }
    }
}

impl Watch {
    /// Returns whether it is dead.
    pub fn is_dead(&self) -> bool {
        self.dead || self.pidfd.as_ref().is_some_and(process::has_ended)
    }

    /// Returns whether any of them is, at the price of one call of the system for all.
    pub fn any_dead<'a>(watches: impl IntoIterator<Item = &'a Watch>) -> bool {
        let mut fds = Vec::new();
        for watch in watches {
            if watch.dead {
                return true;
            }
            fds.extend(watch.pidfd.as_ref().map(process::to_ask));
        }
        !fds.is_empty() && process::any_ended(&mut fds)
    }
}
