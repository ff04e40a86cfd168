//! Sleep of a thread outside an endpoint that it shares with another thread.
//!
//! **Source.** The handshake of `channel`'s `doorbell.rs`, in two parts; the division is our own.
//!
//! [`Endpoint::wait`] arms the queues, sleeps, and disarms them, all in one call: a thread that
//! shares its endpoint under a mutex would keep the mutex while it sleeps. Here the thread arms
//! under the mutex ([`Endpoint::arm`]) and sleeps outside ([`EndpointSleep::sleep`]), at the
//! doorbell of its process:
//!
//! 1. it reads the count of the doorbell,
//! 2. with the mutex: it polls until there is nothing, and arms,
//! 3. without the mutex: it sleeps while the count is what it was in step 1.
//!
//! A message that is published before step 2 is polled there, and the sender of a later one finds a
//! queue armed, adds to the count and wakes all threads that sleep at the doorbell. Another thread
//! that waits ([`Endpoint::wait`]) disarms the queues when it wakes: it arms them again before it
//! gives the mutex back.
//!
//! **Progress.** Arming is wait-free but for the queues' own upkeep; the sleep is bounded by its
//! limit. **Fields.** The doorbell's count: see `doorbell.rs`. All else: the thread with the mutex.
//!
//! **Crashes.** A sender that dies between publishing and waking wakes no thread: the message is
//! late by the limit of the sleep. A sleeper that dies: as a receiver that dies armed.
//!
//! **Memory.** None of its own. **Don't use it** where one thread has the endpoint:
//! [`Endpoint::wait`] spins first, which is faster where messages come soon.

use core::time::Duration;

use towpath_channel::doorbell;
use towpath_machine::{Native, Park};
use towpath_shm::World;

use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::queue::STALL;

/// Place where a thread sleeps until a message comes, while others use the endpoint.
#[derive(Clone, Debug)]
pub struct EndpointSleep {
    world: World,
    rank: u32,
}

impl Endpoint {
    /// Returns the place where threads sleep that share this endpoint.
    ///
    /// # Errors
    ///
    /// [`Error::NotInitialised`] if the process has left the world.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// use std::time::Duration;
    ///
    /// let endpoint = towpath::Endpoint::new(&world)?;
    /// let place = endpoint.sleep_place()?;
    /// let count = place.count();
    /// while endpoint.poll() > 0 {}
    /// if let Some(limit) = endpoint.arm() {
    ///     // Here another thread may use the endpoint.
    ///     place.sleep(count, limit.min(Duration::from_millis(1)));
    /// }
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn sleep_place(&self) -> Result<EndpointSleep, Error> {
        let me = self
            .world()
            .entered()
            .ok_or_else(|| Error::NotInitialised("the process has left the world".into()))?;
        Ok(EndpointSleep { world: self.world().clone(), rank: me.index })
    }

    /// Announces that this process is about to sleep. Returns for how long at most, or
    /// `None` if a message can be polled.
    ///
    /// Looks after deaths and late messages first, as [`Endpoint::wait`] does.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let endpoint = towpath::Endpoint::new(&world)?;
    /// endpoint.map_world()?;
    /// assert!(endpoint.arm().is_some(), "nothing has come");
    /// endpoint.request(0, 1, &[])?; // its own: it must not sleep now
    /// assert!(endpoint.arm().is_none());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn arm(&self) -> Option<Duration> {
        let core = &self.core;
        core.look_after(false);
        if core.has_message() || !core.fall_asleep() || core.has_message() {
            return None;
        }
        // No process wakes this one for packets that were claimed before it said that it sleeps,
        // and that will be passed over.
        Some(if core.is_behind() { Duration::from_nanos(STALL) } else { Duration::MAX })
    }
}

impl EndpointSleep {
    /// Returns the number of times that this process was woken.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let endpoint = towpath::Endpoint::new(&world)?;
    /// let place = endpoint.sleep_place()?;
    /// let before = place.count();
    /// place.wake();
    /// assert_ne!(place.count(), before);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[must_use]
    pub fn count(&self) -> u64 {
        doorbell::count(&Native::with_id(0), self.world.doorbell(self.rank))
    }

    /// Sleeps while [`EndpointSleep::count`] is `count`, for at most `limit`. May end
    /// early.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// use std::time::Duration;
    ///
    /// let endpoint = towpath::Endpoint::new(&world)?;
    /// let place = endpoint.sleep_place()?;
    /// place.sleep(place.count(), Duration::from_millis(1)); // no message comes
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn sleep(&self, count: u64, limit: Duration) {
        let ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        Native::with_id(0).park(self.world.doorbell(self.rank), count, ns);
    }

    /// Wakes the threads of this process that sleep.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// use std::time::Duration;
    ///
    /// let place = towpath::Endpoint::new(&world)?.sleep_place()?;
    /// let (count, waker) = (place.count(), place.clone());
    /// let thread = std::thread::spawn(move || waker.wake());
    /// place.sleep(count, Duration::MAX);
    /// thread.join().expect("it only wakes");
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn wake(&self) {
        doorbell::wake(&Native::with_id(0), self.world.doorbell(self.rank));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::WorldConfig;

    #[test]
    fn request_wakes_an_armed_endpoint_and_no_other() {
        let world = World::create(&WorldConfig::new(1).spec(None)).unwrap();
        world.enter(None).unwrap();
        let endpoint = Endpoint::new(&world).unwrap();
        endpoint.map_world().unwrap();
        let place = endpoint.sleep_place().unwrap();
        let before = place.count();
        assert!(endpoint.arm().is_some_and(|limit| limit == Duration::MAX));
        endpoint.request(0, 1, &[]).unwrap();
        assert_ne!(place.count(), before, "the sender wakes it");
        // Returns at once: the count is another one.
        place.sleep(before, Duration::MAX);
        assert!(endpoint.arm().is_none(), "there is a message");
        while endpoint.poll() > 0 {}
        let before = place.count();
        endpoint.request(0, 1, &[]).unwrap();
        assert_eq!(place.count(), before, "it had not armed again");
        while endpoint.poll() > 0 {}
        assert!(endpoint.arm().is_some());
        place.wake();
        assert_ne!(place.count(), before);
    }
}
