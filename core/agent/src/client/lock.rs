//! Lock that spans hosts: a handle.

use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_lockfile::LockAccess;

use super::guard::Guard;
use super::idle::ManagerHosts;
use super::request::Request;
use crate::Error;

/// Lock of a [`Manager`](super::Manager) of hosts: a handle, for any thread.
///
/// All holders on all hosts exclude each other, also the threads of a process. A thread that
/// acquires a lock which it holds waits for itself.
///
/// While this host hears no majority of the others, `try_acquire` gets `None`, and the other calls
/// wait.
#[derive(Clone, Debug)]
pub struct Lock {
    hosts: Arc<ManagerHosts>,
    name: Arc<str>,
}

impl Lock {
    pub(super) fn new(hosts: Arc<ManagerHosts>, name: &str) -> Lock {
        Lock { hosts, name: name.into() }
    }

    /// Returns its name.
    ///
    /// ```no_run
    /// let manager = towpath::mplock::hosts::Manager::connect("hosts")?;
    /// assert_eq!(manager.lock("table").name(), "table");
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Acquires the lock alone.
    ///
    /// # Errors
    ///
    /// [`Error::NoAgent`] if this host has no agent; [`Error::AgentEnded`] if it ends before the
    /// lock is granted: it may be asked for again when another agent serves.
    ///
    /// ```no_run
    /// let manager = towpath::mplock::hosts::Manager::connect("hosts")?;
    /// let lock = manager.lock("table");
    /// let guard = lock.acquire()?;
    /// println!("held, with fencing token {}", guard.token());
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    pub fn acquire(&self) -> Result<Guard<'_>, Error> {
        self.request()?.wait()
    }

    /// Acquires the lock for reading, beside other readers.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`].
    ///
    /// ```no_run
    /// let manager = towpath::mplock::hosts::Manager::connect("hosts")?;
    /// let lock = manager.lock("table");
    /// let reader = lock.acquire_shared()?;
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    pub fn acquire_shared(&self) -> Result<Guard<'_>, Error> {
        self.request_shared()?.wait()
    }

    /// Acquires the lock if no other holder has it and no other waiter is there.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`].
    ///
    /// ```no_run
    /// let manager = towpath::mplock::hosts::Manager::connect("hosts")?;
    /// match manager.lock("table").try_acquire()? {
    ///     Some(guard) => println!("held, with token {}", guard.token()),
    ///     None => println!("busy, or this host is cut off"),
    /// }
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    #[doc(alias = "try_lock")]
    pub fn try_acquire(&self) -> Result<Option<Guard<'_>>, Error> {
        self.ask(LockAccess::Exclusive, true)?.wait_until(None)
    }

    /// Acquires the lock for reading if it is not held alone and no writer waits.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`].
    ///
    /// ```no_run
    /// let manager = towpath::mplock::hosts::Manager::connect("hosts")?;
    /// let lock = manager.lock("table");
    /// let reader = lock.try_acquire_shared()?;
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    pub fn try_acquire_shared(&self) -> Result<Option<Guard<'_>>, Error> {
        self.ask(LockAccess::Shared, true)?.wait_until(None)
    }

    /// Acquires the lock, waiting for at most `timeout`; then the request is withdrawn.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`].
    ///
    /// ```no_run
    /// let manager = towpath::mplock::hosts::Manager::connect("hosts")?;
    /// let lock = manager.lock("table");
    /// let guard = lock.acquire_timeout(std::time::Duration::from_secs(1))?;
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    pub fn acquire_timeout(&self, timeout: Duration) -> Result<Option<Guard<'_>>, Error> {
        self.request()?.wait_until(Instant::now().checked_add(timeout))
    }

    /// Acquires the lock for reading, waiting for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`].
    ///
    /// ```no_run
    /// let manager = towpath::mplock::hosts::Manager::connect("hosts")?;
    /// let lock = manager.lock("table");
    /// let reader = lock.acquire_shared_timeout(std::time::Duration::from_secs(1))?;
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    pub fn acquire_shared_timeout(&self, timeout: Duration) -> Result<Option<Guard<'_>>, Error> {
        self.request_shared()?.wait_until(Instant::now().checked_add(timeout))
    }

    /// Asks for the lock alone, without waiting for it.
    ///
    /// # Errors
    ///
    /// [`Error::NoAgent`].
    ///
    /// ```no_run
    /// use std::time::{Duration, Instant};
    ///
    /// let manager = towpath::mplock::hosts::Manager::connect("hosts")?;
    /// let lock = manager.lock("table");
    /// let mut request = lock.request()?;
    /// while request.wait_until(Some(Instant::now() + Duration::from_millis(10)))?.is_none() {
    ///     println!("doing something else"); // or drop the request, which withdraws it
    /// }
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    pub fn request(&self) -> Result<Request<'_>, Error> {
        self.ask(LockAccess::Exclusive, false)
    }

    /// Asks for the lock for reading, without waiting for it.
    ///
    /// # Errors
    ///
    /// [`Error::NoAgent`].
    ///
    /// ```no_run
    /// let manager = towpath::mplock::hosts::Manager::connect("hosts")?;
    /// let lock = manager.lock("table");
    /// let reader = lock.request_shared()?.wait()?;
    /// # Ok::<(), towpath::mplock::hosts::Error>(())
    /// ```
    pub fn request_shared(&self) -> Result<Request<'_>, Error> {
        self.ask(LockAccess::Shared, false)
    }

    fn ask(&self, access: LockAccess, tries: bool) -> Result<Request<'_>, Error> {
        let place = self.hosts.enter(&self.name, access, tries)?;
        Ok(Request::new(self, place, access))
    }
}
