//! Barrier of a world's ranks at which an endpoint polls while it waits.
//!
//! **Source.** The barrier is the world's ([`towpath_shm::Episode`]); the waiting is
//! [`Endpoint::wait`]'s.
//!
//! **Progress.** Blocking, by nature. A rank that waits here handles messages, so peers that wait
//! for its answers before they arrive go on.
//!
//! **Crashes.** As at `World::barrier`: all waiters get the same error, and the next barrier is
//! among the survivors. If the last to arrive dies before it has woken the others, they wake by
//! themselves within 50 ms.

use std::time::Duration;

use towpath_machine::{Ordering, Processor};

use crate::bundle::Until;
use crate::endpoint::Endpoint;
use crate::error::Error;

/// Longest wait between two questions to the kernel for deaths.
const LOOK: Duration = Duration::from_millis(10);

/// The end of an episode, or a death that may be the reason why it can't end without
/// help.
struct Ended<'a> {
    world: &'a towpath_shm::World,
    episode: &'a towpath_shm::Episode,
    deaths: u64,
}

impl Until for Ended<'_> {
    fn is_reached(&self) -> bool {
        self.episode.is_over() || self.world.deaths() != self.deaths
    }

    fn announce_sleep(&self) {
        self.episode.announce_sleep();
    }
}

/// Stand of an endpoint at the world's barrier, where its owner polls. Ends when dropped.
#[derive(Debug)]
pub struct PollsAtBarrier<'a>(&'a Endpoint);

impl Drop for PollsAtBarrier<'_> {
    fn drop(&mut self) {
        self.0.show_at_barrier(0);
    }
}

impl Endpoint {
    /// Announces that the owner arrives at the world's barrier and polls there.
    ///
    /// For programs that wait by [`World::arrive`](towpath_shm::World::arrive); called before it.
    /// [`Endpoint::barrier`] does so itself. In a world that spans hosts the episode then does not
    /// end before the messages of other hosts that were sent before it are in this endpoint's
    /// queues. Those for an endpoint that is not polled may wait for space after its end.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let endpoint = towpath::Endpoint::new(&world)?;
    /// let polls = endpoint.polls_at_barrier();
    /// let episode = world.arrive()?;
    /// while !episode.is_over() {
    ///     endpoint.poll();
    ///     episode.look_around()?;
    /// }
    /// drop(polls);
    /// episode.outcome()?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[must_use]
    pub fn polls_at_barrier(&self) -> PollsAtBarrier<'_> {
        self.show_at_barrier(1);
        PollsAtBarrier(self)
    }

    fn show_at_barrier(&self, polls: u64) {
        // Relaxed: the gateway reads it after this rank's arrival, which publishes it, and not
        // after the end of the episode.
        self.core.cpu().store(&self.core.entry.own.polls_at_barrier, polls, Ordering::Relaxed);
    }

    /// Waits until all ranks are here, polling meanwhile: handlers run. Waits as the
    /// world's waiting policy says, without a time-out, as
    /// [`World::barrier`](towpath_shm::World::barrier) does; ranks may wait at either.
    /// Not-yet-started ranks are waited for; ranks that have left, or are known to be dead, are
    /// not.
    ///
    /// Messages that peers had sent to this endpoint before they arrived have been handled when it
    /// returns. (Except the message of another thread that stands still in the middle of its send.)
    /// Replies of peers that were still waiting here may be under way.
    ///
    /// # Errors
    ///
    /// [`Error::World`] with [`MemberDied`](towpath_shm::Error::MemberDied) if a rank has died
    /// since the last barrier: all that wait get it, and the next barrier is among the survivors.
    /// [`Error::World`] with [`NotEntered`](towpath_shm::Error::NotEntered). [`Error::InUse`] from
    /// a handler.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let endpoint = towpath::Endpoint::new(&world)?;
    /// endpoint.set_handler(1, |message| println!("rank {} says hello", message.args()[0]));
    /// endpoint.map_world()?;
    /// endpoint.request(0, 1, &[world.rank()])?;
    /// endpoint.barrier()?; // rank 0 has printed all greetings
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn barrier(&self) -> Result<(), Error> {
        if self.core.dispatch.depth.get() > 0 {
            return Err(Error::InUse("a handler may not wait at a barrier".into()));
        }
        let world = self.world();
        let _polls = self.polls_at_barrier();
        let episode = world.arrive()?;
        while !episode.is_over() {
            let until = Ended { world, episode: &episode, deaths: world.deaths() };
            episode.look_around()?;
            self.poll_until_or(Some(LOOK), &until);
        }
        // Peers published their messages before they arrived: they are ready. Not for ever, if
        // peers that have gone on send more.
        let most = 2 * u64::from(self.config().packets);
        let mut handled = 0;
        while handled < most {
            match self.core.poll_bundle() {
                0 => break,
                n => handled += n as u64,
            }
        }
        Ok(episode.outcome()?)
    }
}
