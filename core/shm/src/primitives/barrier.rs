//! Barriers of some processes of a world, by name.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

use towpath_machine::Native;
use towpath_sync::robust::{Barrier, EpisodeError};
use towpath_sync::{Attempt, Deadline};

use crate::{Error, Shared, World};

impl World {
    /// Opens the barrier of that name; makes it for so many participants (1 to 64) if
    /// there is none. (All ranks together: [`World::barrier`].)
    ///
    /// # Errors
    ///
    /// [`Error::NumberOutOfRange`]; [`Error::OtherType`] also if it is for another number of
    /// participants; as [`World::shared`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let phase = world.barrier_of("phase", 1)?;
    /// phase.wait()?; // returns when all participants are there
    /// assert!(world.barrier_of("phase", 2).is_err(), "it is for one");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn barrier_of(&self, name: &str, participants: usize) -> Result<Shared<Barrier>, Error> {
        let most = Barrier::<Native>::MOST as u64;
        let wanted = participants as u64;
        if !(1..=most).contains(&wanted) {
            return Err(Error::NumberOutOfRange { of: "participants of a barrier", wanted, least: 1, most });
        }
        let cpu = Native::with_id(0);
        let opened = self.shared(name, |barrier: &Barrier| barrier.prepare_with(&cpu, participants))?;
        match of(&opened).participants(&cpu) {
            found if found == wanted => Ok(opened),
            found => Err(Error::OtherType {
                name: name.to_owned(),
                found: format!("barrier for {found} participants"),
                expected: format!("barrier for {wanted}"),
            }),
        }
    }
}

fn of(shared: &Shared<Barrier>) -> &Barrier {
    // SAFETY: aligned and mapped as long as the handle lives; any bits are a barrier, whose words
    // are atomic, and whose numbers are checked.
    unsafe { shared.as_ptr().as_ref() }
}

impl Shared<Barrier> {
    /// Takes this thread's place without arriving, so that the others know it if it
    /// dies before it arrives for the first time.
    ///
    /// # Errors
    ///
    /// [`EpisodeError::Capacity`], [`EpisodeError::NotEntered`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let phase = world.barrier_of("phase", 4)?;
    /// phase.join()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn join(&self) -> Result<(), EpisodeError> {
        let (cpu, wait) = self.world().participation().map_err(|_| EpisodeError::NotEntered)?;
        of(self).join_as(&cpu, &wait)
    }

    /// Arrives without waiting, and gives this thread's place up, in good order: no
    /// later episode waits for it, and no participant is told of a death. Another process may take
    /// the place, or this thread, by [`Shared::join`] or [`Shared::wait`].
    ///
    /// Returns whether it had a place.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let phase = world.barrier_of("phase", 4)?;
    /// phase.join()?;
    /// assert!(phase.leave());
    /// assert!(!phase.leave(), "it has left already");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn leave(&self) -> bool {
        let Ok((cpu, wait)) = self.world().participation() else { return false };
        of(self).leave_as(&cpu, &wait)
    }

    /// Arrives, and waits until all participants have arrived. Each thread that calls
    /// this is a participant.
    ///
    /// # Errors
    ///
    /// [`EpisodeError::PeerDied`] if a participant died since the last time: all that are there get
    /// the same error, and the next episode is among the survivors. [`EpisodeError::Capacity`] if
    /// there are as many participants as it is for. [`EpisodeError::NotEntered`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let phase = world.barrier_of("phase", 1)?;
    /// phase.wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(&self) -> Result<(), EpisodeError> {
        self.wait_before(Deadline::NEVER)
    }

    /// Arrives and waits as [`Shared::wait`]; gives up after that time. It has arrived
    /// then, and waits for the same episode when it comes again.
    ///
    /// # Errors
    ///
    /// [`EpisodeError::TimedOut`]; as [`Shared::wait`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::Duration;
    /// let phase = world.barrier_of("phase", 2)?;
    /// assert!(phase.wait_timeout(Duration::from_millis(1)).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_timeout(&self, time: Duration) -> Result<(), EpisodeError> {
        self.wait_before(Deadline::within(time))
    }

    /// Arrives and waits as [`Shared::wait_timeout`], until that instant.
    ///
    /// # Errors
    ///
    /// [`EpisodeError::TimedOut`]; as [`Shared::wait`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # use std::time::{Duration, Instant};
    /// let phase = world.barrier_of("phase", 2)?;
    /// assert!(phase.wait_until(Instant::now() + Duration::from_millis(1)).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_until(&self, instant: Instant) -> Result<(), EpisodeError> {
        self.wait_before(Deadline::at(instant))
    }

    /// Arrives, and looks whether all participants have; otherwise says where it would
    /// sleep until they have: for event loops.
    ///
    /// This thread is a participant, as in [`Shared::wait`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// use towpath::sync::Attempt;
    ///
    /// let phase = world.barrier_of("phase", 2)?;
    /// assert!(matches!(phase.attempt_wait(), Attempt::Asleep(..)), "the other one has not come");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn attempt_wait(&self) -> Attempt<Result<(), EpisodeError>> {
        let Ok((cpu, wait)) = self.world().participation() else {
            return Attempt::Done(Err(EpisodeError::NotEntered));
        };
        let gave_up = |error: &EpisodeError| *error == EpisodeError::TimedOut;
        Attempt::of(&wait, gave_up, |wait, turn| of(self).wait_as(&cpu, wait, turn))
    }

    fn wait_before(&self, deadline: Deadline) -> Result<(), EpisodeError> {
        let (cpu, wait) = self.world().participation().map_err(|_| EpisodeError::NotEntered)?;
        of(self).wait_as(&cpu, &wait, deadline)
    }
}
