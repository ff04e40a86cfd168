//! Manager of locks that span hosts: a program's connection to its host's agent.

use std::path::Path;
use std::sync::Arc;

use super::idle::ManagerHosts;
use super::lock::Lock;
use crate::hosts::HostsFile;
use crate::place::cluster_status;
use crate::report::HostReport;
use crate::{ClusterHost, Error};

/// Manager of the locks that span the hosts of a hosts file.
///
/// The agent of this host (`towpath lock --serve --hosts FILE`) speaks with the others; this is its
/// client. Locks are the same as those of `towpath lock --hosts FILE NAME`. A manager can be cloned
/// and shared among threads, and costs nothing while no lock is asked for.
///
/// ```no_run
/// use std::time::Duration;
/// use towpath::mplock::hosts::Manager;
///
/// let manager = Manager::connect("/etc/towpath/hosts")?;
/// let lock = manager.lock("next number");
/// if let Some(mut guard) = lock.acquire_timeout(Duration::from_secs(5))? {
///     let number = guard.data().try_into().map_or(0, u64::from_le_bytes);
///     guard.set_data(&(number + 1).to_le_bytes())?;
///     println!("{number}, with fencing token {}", guard.token());
///     guard.release()?; // or drop it: then no error is seen
/// }
/// # Ok::<(), towpath::mplock::hosts::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Manager {
    hosts: Arc<ManagerHosts>,
}

impl Manager {
    /// Reads a hosts file, and looks for the agent of this host.
    ///
    /// # Errors
    ///
    /// [`Error::Hosts`] if the file is wrong, or this host is none of it, or not clear;
    /// [`Error::NoAgent`].
    ///
    /// ```
    /// use towpath::mplock::hosts::Manager;
    ///
    /// let error = Manager::connect("/no/such/file").unwrap_err();
    /// assert!(error.to_string().contains("/no/such/file"));
    /// ```
    pub fn connect(hosts: impl AsRef<Path>) -> Result<Manager, Error> {
        Manager::of(HostsFile::read(hosts.as_ref())?, None)
    }

    /// Does the same on the host of that name in the hosts file.
    ///
    /// # Errors
    ///
    /// As [`Manager::connect`].
    ///
    /// ```no_run
    /// use towpath::mplock::hosts::Manager;
    ///
    /// let manager = Manager::connect_as("hosts", "alpha")?;
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    pub fn connect_as(hosts: impl AsRef<Path>, host: &str) -> Result<Manager, Error> {
        Manager::of(HostsFile::read(hosts.as_ref())?, Some(host.to_owned()))
    }

    fn of(file: HostsFile, host: Option<String>) -> Result<Manager, Error> {
        let hosts = ManagerHosts::new(file, host);
        hosts.connect()?;
        Ok(Manager { hosts: Arc::new(hosts) })
    }

    /// Returns a handle of the lock of that name; any text.
    ///
    /// ```no_run
    /// let manager = towpath::mplock::hosts::Manager::connect("hosts")?;
    /// let guard = manager.lock("table 7").acquire()?.token();
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    #[must_use]
    pub fn lock(&self, name: &str) -> Lock {
        Lock::new(Arc::clone(&self.hosts), name)
    }

    /// Returns the hosts of the file.
    ///
    /// ```no_run
    /// let manager = towpath::mplock::hosts::Manager::connect("hosts")?;
    /// println!("{} hosts", manager.hosts().len());
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    #[must_use]
    pub fn hosts(&self) -> &[ClusterHost] {
        &self.hosts.file.hosts
    }

    /// Asks all hosts for their locks, holders and waiters. Waits for at most 5 s.
    ///
    /// # Errors
    ///
    /// [`Error::NoAgent`]; [`Error::AgentEnded`]; [`Error::AgentSilent`].
    ///
    /// ```no_run
    /// let manager = towpath::mplock::hosts::Manager::connect("hosts")?;
    /// for report in manager.status()? {
    ///     println!("{}: lease {}, {} locks", report.host, report.lease, report.locks.len());
    /// }
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    pub fn status(&self) -> Result<Vec<HostReport>, Error> {
        cluster_status(&self.hosts.file, self.hosts.host.as_deref(), None)
    }
}
