//! Barrier of a world: `episodes.rs` in the world's memory, with the system's deaths.
//!
//! Gateways end the episodes of a world that spans hosts, as they have agreed.

use core::sync::atomic::{AtomicU64, Ordering};

use towpath_machine::Native;
use towpath_sync::{Policy, SlowRounds, Surroundings, Wait, Waiting};

use crate::Error;
use crate::episodes::{MemberEpisodes, is_expected, number, reached, result_of};
use crate::gateway::HostArrival;
use crate::inner::Inner;
use crate::table::ParticipantTable;
use crate::world::World;

/// Error of waiters whose episode can't end any more: only damage moves episodes back.
fn damaged(found: u64, wanted: u32) -> Error {
    Error::Damaged { what: "the barrier's episode", found: number(found).into(), expected: wanted.into() }
}

/// Arrival of the calling process at the world's barrier ([`World::arrive`]).
///
/// For waiters that have other work meanwhile.
#[derive(Debug)]
pub struct Episode {
    world: World,
    number: u32,
}

impl World {
    /// Arrives at the [barrier](World::barrier) without waiting.
    ///
    /// For callers that have other work meanwhile, as `towpath::Endpoint::barrier`, which polls. A
    /// process that has arrived must wait for the end of the episode before it arrives again, by
    /// this or by [`World::barrier`].
    ///
    /// # Errors
    ///
    /// [`Error::NotEntered`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let other = world.reopen()?;
    /// other.enter(Some(1))?;
    /// let episode = world.arrive()?;
    /// assert!(!episode.is_over(), "rank 1 is not there");
    /// other.barrier(Default::default())?;
    /// assert!(episode.is_over());
    /// episode.outcome()?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn arrive(&self) -> Result<Episode, Error> {
        Ok(Episode { number: self.0.arrive()?, world: self.clone() })
    }
}

impl Episode {
    /// Returns whether all ranks have arrived. One load; see [`Episode::look_around`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # let episode = world.arrive()?;
    /// assert!(!episode.is_over(), "rank 1 has not come");
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline]
    pub fn is_over(&self) -> bool {
        reached(number(self.world.0.last_episode()), self.number)
    }

    /// Asks the kernel for deaths, and ends the episode if that is up to this waiter.
    ///
    /// To be called every few milliseconds of a wait, and after each death.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] if the episode can't end any more.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # let episode = world.arrive()?;
    /// episode.look_around()?; // every few milliseconds of a wait
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn look_around(&self) -> Result<(), Error> {
        let inner = &self.world.0;
        let around = AtBarrier { inner, number: self.number };
        if around.abandoned() { Err(damaged(inner.last_episode(), self.number)) } else { Ok(()) }
    }

    /// Announces that the waiter is about to sleep at its doorbell, whose value it has
    /// read.
    ///
    /// The participant that ends the episode changes the doorbell. The waiter looks once more
    /// whether the episode [is over](Episode::is_over) before it sleeps.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # let episode = world.arrive()?;
    /// use std::sync::atomic::Ordering::Acquire;
    ///
    /// let value = world.doorbell(world.rank()).load(Acquire);
    /// episode.announce_sleep();
    /// if !episode.is_over() {
    ///     // sleep until the doorbell's value is no longer `value`
    /// }
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn announce_sleep(&self) {
        self.world.0.announce_sleep_at_doorbell(self.number);
    }

    /// Returns the outcome once the episode [is over](Episode::is_over).
    ///
    /// # Errors
    ///
    /// [`Error::MemberDied`] as [`World::barrier`].
    ///
    /// ```
    /// let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// world.enter(None)?;
    /// let episode = world.arrive()?;
    /// assert!(episode.is_over(), "it is the only rank");
    /// episode.outcome()?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn outcome(&self) -> Result<(), Error> {
        outcome_of(self.world.0.last_episode(), self.number)
    }
}

/// Surroundings of waiters at the barrier: being asked, they complete the episode if they
/// can.
struct AtBarrier<'a> {
    inner: &'a Inner,
    number: u32,
}

impl Surroundings for AtBarrier<'_> {
    fn oversubscribed(&self) -> bool {
        self.inner.oversubscribed()
    }
    fn slow_rounds(&self) -> Option<SlowRounds<'_>> {
        self.inner.slow_rounds()
    }
    fn asleep(&self, asleep: bool) {
        self.inner.asleep(asleep);
    }
    /// Completes the episode if it can. The wait can't end only if the segment is
    /// damaged: episodes don't go back.
    fn abandoned(&self) -> bool {
        self.inner.check_deaths();
        self.inner.complete(self.number);
        let now = number(self.inner.last_episode());
        now.wrapping_add(1) != self.number && !reached(now, self.number)
    }
}

/// Outcome of the episode `mine`, read when that has been reached.
fn outcome_of(episode: u64, mine: u32) -> Result<(), Error> {
    result_of(episode, mine).map_err(|rank| Error::MemberDied { rank })
}

impl MemberEpisodes for Inner {
    #[inline]
    fn episode(&self) -> &AtomicU64 {
        &self.control().barrier.episode
    }
    fn at_doorbells(&self) -> &AtomicU64 {
        &self.control().barrier.at_doorbells
    }
    fn doorbell_word(&self, index: u32) -> &AtomicU64 {
        &self.segment.doorbells()[index as usize].0
    }
    fn load_arrival(&self, index: u32, order: Ordering) -> u32 {
        self.segment.arrivals()[index as usize].load(order)
    }
    fn store_arrival(&self, index: u32, episode: u32, order: Ordering) {
        self.segment.arrivals()[index as usize].store(episode, order);
    }
    // Relaxed, both: a hint of this process to itself.
    fn last_awaited(&self) -> u32 {
        self.local.awaited.load(Ordering::Relaxed)
    }
    fn note_awaited(&self, rank: u32) {
        self.local.awaited.store(rank, Ordering::Relaxed);
    }
}

impl Inner {
    /// Arrives at the next episode. Returns its number.
    pub(crate) fn arrive(&self) -> Result<u32, Error> {
        let mine = self.arrive_at_next(self.me()?.index);
        self.complete(mine);
        self.tell_gateway();
        Ok(mine)
    }

    pub(crate) fn barrier(&self, policy: Policy) -> Result<(), Error> {
        let mine = self.arrive()?;
        let around = AtBarrier { inner: self, number: mine };
        let wait = Wait { policy, around: &around, budget: self.switch_cost() };
        // Acquire (in `wait_until`): pairs with the Release (B3).
        let outcome = wait
            .wait_until(&Native::current(), self.episode(), |episode| reached(number(episode), mine))
            .map_err(|_| damaged(self.last_episode(), mine))?;
        outcome_of(outcome, mine)
    }

    /// Ends this episode, if it is the next and all that count have arrived. In a world
    /// that spans hosts the gateways do that.
    fn complete(&self, wanted: u32) {
        if self.host.is_none() {
            self.complete_episode(wanted);
        }
    }

    /// Returns how far the ranks of this host are.
    pub(crate) fn host_arrival(&self) -> HostArrival {
        let wanted = number(self.last_episode()).wrapping_add(1);
        let mut arrival = HostArrival::NoneExpected;
        for index in self.host_ranks() {
            let (arrived, word) = (self.has_arrived(index, wanted), self.entry_word(index));
            if is_expected(word) {
                if !arrived {
                    return HostArrival::Awaited;
                }
                arrival = HostArrival::All(wanted);
            }
        }
        arrival
    }

    /// A newcomer has not arrived anywhere, whatever its predecessor had.
    pub(crate) fn reset_arrival(&self, index: u32) {
        // Relaxed, both: published with the entry. At worst the episode moves on meanwhile, and the
        // value is one before it.
        let now = number(self.episode().load(Ordering::Relaxed));
        self.store_arrival(index, now, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inner::WorldSpec;

    #[test]
    fn looks_begin_at_the_rank_that_was_awaited_last() {
        const RANKS: u32 = 5;
        let spec =
            WorldSpec { name: None, processes: RANKS, area_bytes: 0, object_bytes: 0, params: [0; 16] };
        let world = World::create(&spec).unwrap();
        let handles = [(); RANKS as usize].map(|()| world.reopen().unwrap());
        for (rank, handle) in handles.iter().enumerate() {
            handle.enter(Some(rank as u32)).unwrap();
        }
        let first = handles[0].arrive().unwrap();
        let awaited = || handles[0].0.local.awaited.load(Ordering::Relaxed);
        for (arrives, found) in [(3, 1), (1, 2), (2, 4)] {
            handles[arrives].arrive().unwrap();
            first.look_around().unwrap();
            assert!(!first.is_over());
            assert_eq!(awaited(), found, "after {arrives} has arrived");
        }
        handles[4].arrive().unwrap();
        assert!(first.is_over());
        // Of the next episode, the rank that was last is the first.
        let [mut next, ..] = [4, 0, 2, 1].map(|rank| handles[rank as usize].arrive().unwrap());
        assert!(!next.is_over());
        next = handles[3].arrive().unwrap();
        assert!(next.is_over());
    }
}
