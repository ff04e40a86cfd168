//! Things that are done once in a world, by name.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

use towpath_machine::Native;
use towpath_sync::robust::{Once, OnceRunner};
use towpath_sync::{Deadline, LockError};

use crate::{Error, Shared, World};

impl World {
    /// Opens the once of that name, for something that is done by one process; makes it
    /// if there is none.
    ///
    /// # Errors
    ///
    /// As [`World::shared`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let loaded = world.once("loaded")?;
    /// loaded.call(|dead| println!("reading; before this, {dead:?} died at it"))?;
    /// loaded.call(|_| unreachable!("it is done"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn once(&self, name: &str) -> Result<Shared<Once>, Error> {
        self.shared(name, |_| ())
    }
}

fn of(shared: &Shared<Once>) -> &Once {
    // SAFETY: aligned and mapped as long as the handle lives; any bits are a once, whose word is
    // atomic.
    unsafe { shared.as_ptr().as_ref() }
}

impl Shared<Once> {
    /// Does it, unless it is done, or another process does it: then waits. If a process
    /// dies while it does it, the next one does it, and `act` is given the rank of the dead. If
    /// `act` panics, the next may try.
    ///
    /// # Errors
    ///
    /// [`LockError::NotEntered`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let loaded = world.once("loaded")?;
    /// let mut runs = 0;
    /// loaded.call(|_| runs += 1)?;
    /// loaded.call(|_| runs += 1)?;
    /// assert_eq!(runs, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn call<R>(&self, act: impl FnOnce(Option<u32>) -> R) -> Result<(), LockError> {
        self.call_before(Deadline::NEVER, act)
    }

    /// Does it as [`Shared::call`]; gives up waiting for another process after that time.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`]; [`LockError::NotEntered`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// world.once("loaded")?.call_timeout(Duration::from_secs(1), |_| ())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn call_timeout<R>(
        &self,
        time: Duration,
        act: impl FnOnce(Option<u32>) -> R,
    ) -> Result<(), LockError> {
        self.call_before(Deadline::within(time), act)
    }

    /// Does it as [`Shared::call`]; gives up waiting for another process at that instant.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`]; [`LockError::NotEntered`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// world.once("loaded")?.call_until(Instant::now() + Duration::from_secs(1), |_| ())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn call_until<R>(
        &self,
        instant: Instant,
        act: impl FnOnce(Option<u32>) -> R,
    ) -> Result<(), LockError> {
        self.call_before(Deadline::at(instant), act)
    }

    /// Does it as [`Shared::call`]; gives up waiting for another process at the deadline.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`]; [`LockError::NotEntered`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// use towpath::sync::Deadline;
    ///
    /// let loaded = world.once("loaded")?;
    /// loaded.call_before(Deadline::within(Duration::from_secs(1)), |_| ())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn call_before<R>(
        &self,
        deadline: Deadline,
        act: impl FnOnce(Option<u32>) -> R,
    ) -> Result<(), LockError> {
        let once = of(self);
        if once.is_done_for(&Native::with_id(0)) {
            return Ok(());
        }
        let (cpu, wait) = self.world().participation()?;
        if let Some(turn) = once.begin(&cpu, &wait, deadline)? {
            let mut runner = OnceRunner::new(once, cpu, wait, turn);
            act(runner.dead().and_then(|dead| self.world().surroundings().rank_of(dead)));
            runner.finish();
        }
        Ok(())
    }

    /// Returns whether it is done.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let loaded = world.once("loaded")?;
    /// assert!(!loaded.is_done());
    /// loaded.call(|_| ())?;
    /// assert!(loaded.is_done());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_done(&self) -> bool {
        of(self).is_done_for(&Native::with_id(0))
    }
}
