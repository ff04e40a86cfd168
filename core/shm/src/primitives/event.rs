//! Events in a world, by name.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

use towpath_machine::Native;
use towpath_sync::robust::Event;
use towpath_sync::{Attempt, Deadline, LockError};

use crate::{Error, Shared, World};

impl World {
    /// Opens the event of that name; makes it, not set, if there is none.
    ///
    /// # Errors
    ///
    /// As [`World::shared`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let ready = world.event("ready")?;
    /// ready.set(); // another process's ready.wait() returns
    /// ready.wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn event(&self, name: &str) -> Result<Shared<Event>, Error> {
        self.shared(name, |_| ())
    }
}

fn of(shared: &Shared<Event>) -> &Event {
    // SAFETY: aligned and mapped as long as the handle lives; any bits are an event, whose word is
    // atomic.
    unsafe { shared.as_ptr().as_ref() }
}

impl Shared<Event> {
    /// Sets it, and wakes all that wait for it.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let ready = world.event("ready")?;
    /// ready.set();
    /// assert!(ready.is_set());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set(&self) {
        // A process that has not entered the world may set it, too.
        of(self).set_by(&Native::with_id(0), &self.world().adaptive_wait());
    }

    /// Resets it. Returns whether it was set. Those that wait already still go on.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let ready = world.event("ready")?;
    /// ready.set();
    /// assert!(ready.reset() && !ready.is_set());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reset(&self) -> bool {
        of(self).reset_by(&Native::with_id(0))
    }

    /// Returns whether it is set.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert!(!world.event("ready")?.is_set());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_set(&self) -> bool {
        of(self).is_set_for(&Native::with_id(0))
    }

    /// Waits until it is set, or has been set since the call began. An event has no
    /// owner: if the only process dies that would set it, nothing ends the wait.
    ///
    /// # Errors
    ///
    /// [`LockError::NotEntered`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let ready = world.event("ready")?;
    /// ready.set(); // usually in another process
    /// ready.wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(&self) -> Result<(), LockError> {
        self.wait_before(Deadline::NEVER)
    }

    /// Value that each setting changes: [`Shared::attempt_wait`] waits for one more.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let ready = world.event("ready")?;
    /// let before = ready.count();
    /// ready.set();
    /// assert_ne!(ready.count(), before);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn count(&self) -> u64 {
        of(self).count_for(&Native::with_id(0))
    }

    /// Value for [`Shared::attempt_wait`] of a waiter that knows of all settings so far.
    ///
    /// Also of the present one, if it is set.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let ready = world.event("ready")?;
    /// ready.set();
    /// let known = ready.known();
    /// ready.reset();
    /// assert_eq!(ready.count(), known, "and not set since");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn known(&self) -> u64 {
        of(self).known_for(&Native::with_id(0))
    }

    /// Looks whether it is set, or has been set since [`Shared::count`] returned `since`;
    /// otherwise says where it would sleep until it is: for event loops.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// use towpath::sync::Attempt;
    ///
    /// let ready = world.event("ready")?;
    /// let since = ready.count();
    /// assert!(matches!(ready.attempt_wait(since), Attempt::Asleep(..)));
    /// ready.set();
    /// assert!(matches!(ready.attempt_wait(since), Attempt::Done(Ok(()))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn attempt_wait(&self, since: u64) -> Attempt<Result<(), LockError>> {
        self.world().attempt(|cpu, wait, turn| Ok(of(self).wait_since(cpu, wait, since, turn)?))
    }

    /// Waits as [`Shared::wait`]; gives up after that time.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`]; [`LockError::NotEntered`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::Duration;
    /// assert!(world.event("never")?.wait_timeout(Duration::from_millis(1)).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_timeout(&self, time: Duration) -> Result<(), LockError> {
        self.wait_before(Deadline::within(time))
    }

    /// Waits as [`Shared::wait`]; gives up at that instant.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`]; [`LockError::NotEntered`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// let end = Instant::now() + Duration::from_millis(1);
    /// assert!(world.event("never")?.wait_until(end).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_until(&self, instant: Instant) -> Result<(), LockError> {
        self.wait_before(Deadline::at(instant))
    }

    fn wait_before(&self, deadline: Deadline) -> Result<(), LockError> {
        let (cpu, wait) = self.world().participation()?;
        Ok(of(self).wait_as(&cpu, &wait, deadline)?)
    }
}
