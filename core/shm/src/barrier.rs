//! A barrier that survives its participants.
//!
//! Each participant writes the number of the episode at which it has arrived into its own place, so
//! nothing has to be counted and no death leaves a count wrong. A participant that then sees that
//! all have arrived moves `episode` on, with the outcome in the same compare-and-swap: all waiters
//! for this episode read the same outcome. Waiters look again now and then, so if the last to
//! arrive dies between arriving and moving on, another does it.
//!
//! ```text
//! episode:  63     62     61     50 49        32 31          0
//!           [PARKED][failed][ rank ][ deaths   ][ number      ]
//! ```
//!
//! **Source.** The sense-reversing central barrier (Mellor-Crummey & Scott 1991, algorithm 7), with
//! the count replaced by places.
//!
//! **Fields.** `arrivals[r]`: written by rank r alone. `episode`: by any rank, by compare-and-swap;
//! waiters add PARKED. `at_doorbells`: by waiters that poll endpoints meanwhile ([`Episode`]) and
//! are about to sleep at their doorbells.
//!
//! **Progress.** Blocking, by nature; a dead member blocks the others for no longer than it takes
//! to notice its death.
//!
//! **Crashes.** Before arriving: the survivors find the death, complete the episode without it and
//! all get `MemberDied`. After arriving, before or after moving on: the same, or the episode
//! succeeds, for all alike. The failure is reported once: `deaths` remembers up to which death.
//! After moving on, before waking: a waiter at its doorbell wakes by itself after its sleep's
//! time-out.

use core::sync::atomic::{AtomicU32, Ordering};

use towpath_machine::{Native, Park};
use towpath_sync::{PARKED, Policy, Surroundings, Wait, Waiting};

use crate::Error;
use crate::gateway::HostArrival;
use crate::inner::Inner;
use crate::layout::{MOST_PROCESSES, RANK_BITS};
use crate::participant::{EntryState, EntryWord};
use crate::world::World;

const FAILED: u64 = 1 << 62;
/// Number of the first bit of the rank.
const RANK: u32 = 50;
/// The bits of the number of deaths that an episode remembers.
const DEATHS: u64 = (1 << 18) - 1;
const _: () = assert!(RANK + RANK_BITS == 62);

fn number(episode: u64) -> u32 {
    episode as u32
}

fn deaths_of(episode: u64) -> u64 {
    episode >> 32 & DEATHS
}

/// Returns whether the episode `now` is the wanted one or a later one.
fn reached(now: u32, wanted: u32) -> bool {
    now.wrapping_sub(wanted) < 1 << 31
}

/// Returns whether a rank with this entry is waited for: not one that has left, or is
/// dead.
fn is_expected(word: EntryWord) -> bool {
    match word.state {
        EntryState::Entered | EntryState::Joining => true,
        EntryState::Free => word.generation == 0,
        EntryState::Dying | EntryState::Dead => false,
    }
}

/// Outcome of the episode `mine`, read from `episode` when that has been reached.
fn result_of(episode: u64, mine: u32) -> Result<(), Error> {
    if episode & FAILED != 0 && number(episode) == mine {
        return Err(Error::MemberDied { rank: (episode >> RANK) as u32 & (MOST_PROCESSES - 1) });
    }
    Ok(())
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
        // (B1) Acquire: pairs with the AcqRel (B3).
        reached(number(self.world.0.control().barrier.episode.load(Ordering::Acquire)), self.number)
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
        if around.abandoned() {
            // Relaxed: only for the message.
            let found = number(inner.control().barrier.episode.load(Ordering::Relaxed)).into();
            return Err(Error::Damaged {
                what: "the barrier's episode",
                found,
                expected: self.number.into(),
            });
        }
        Ok(())
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
        let state = &self.world.0.control().barrier;
        // (B4) SeqCst, both: either the one that ends the episode sees this, or the waiter sees in
        // `is_over` that it has ended; pairs with the fence (B5).
        state.at_doorbells.store(self.number.into(), Ordering::SeqCst);
        core::sync::atomic::fence(Ordering::SeqCst); // (B4)
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
        // (B1) Acquire: pairs with the AcqRel (B3).
        result_of(self.world.0.control().barrier.episode.load(Ordering::Acquire), self.number)
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
    fn asleep(&self, asleep: bool) {
        self.inner.asleep(asleep);
    }
    /// Completes the episode if it can. The wait can't end only if the segment is
    /// damaged: episodes don't go back.
    fn abandoned(&self) -> bool {
        self.inner.check_deaths();
        self.inner.complete(self.number);
        // (B1) Acquire: pairs with the AcqRel (B3).
        let now = number(self.inner.control().barrier.episode.load(Ordering::Acquire));
        now.wrapping_add(1) != self.number && !reached(now, self.number)
    }
}

impl Inner {
    /// Arrives at the next episode. Returns its number.
    pub(crate) fn arrive(&self) -> Result<u32, Error> {
        let me = self.me()?;
        let state = &self.control().barrier;
        // (B1) Acquire: pairs with the AcqRel (B3). This episode can't end before this participant
        // arrives, so the next number is its own.
        let mine = number(state.episode.load(Ordering::Acquire)).wrapping_add(1);
        // (B2) SeqCst: of the ranks that arrive and then look whether all have, the last one sees
        // all, itself included; pairs with (B2) in `complete`.
        self.arrival(me.index).store(mine, Ordering::SeqCst);
        self.complete(mine);
        self.tell_gateway();
        Ok(mine)
    }

    pub(crate) fn barrier(&self, policy: Policy) -> Result<(), Error> {
        let mine = self.arrive()?;
        let state = &self.control().barrier;
        let around = AtBarrier { inner: self, number: mine };
        let wait = Wait { policy, around: &around, budget: self.switch_cost() };
        // Acquire (in `wait_until`): pairs with the AcqRel (B3).
        let outcome = wait
            .wait_until(&Native::current(), &state.episode, |episode| reached(number(episode), mine))
            .map_err(|_| {
                // Relaxed: only for the message.
                let found = number(state.episode.load(Ordering::Relaxed)).into();
                Error::Damaged { what: "the barrier's episode", found, expected: mine.into() }
            })?;
        result_of(outcome, mine)
    }

    /// Ends this episode, if it is the next and all that count have arrived. In a world
    /// that spans hosts the gateways do that.
    fn complete(&self, wanted: u32) {
        if self.host.is_some() {
            return;
        }
        let state = &self.control().barrier;
        loop {
            // (B1) Acquire: pairs with the AcqRel (B3).
            let seen = state.episode.load(Ordering::Acquire);
            if number(seen).wrapping_add(1) != wanted {
                return;
            }
            if self.is_awaited(wanted) {
                return;
            }
            let deaths = self.deaths();
            for index in 0..self.processes {
                // (B2) SeqCst: pairs with the store (B2) in `barrier`.
                let arrived = self.arrival(index).load(Ordering::SeqCst) == wanted;
                // (E4) Acquire: pairs with the Release (E3), (E5) in `entering.rs` and
                // `liveness.rs`.
                let word = EntryWord::unpack(self.entry(index).word.load(Ordering::Acquire));
                if word.state == EntryState::Dying {
                    self.count_death(index);
                }
                if is_expected(word) && !arrived {
                    return;
                }
            }
            // The ranks that were seen to be dead had been counted by then: if that is news, it
            // belongs to the outcome.
            if self.deaths() != deaths {
                continue;
            }
            let count = deaths.count() & DEATHS;
            let failed = if count == deaths_of(seen) { 0 } else { FAILED | u64::from(deaths.rank()) << RANK };
            let next = failed | count << 32 | u64::from(wanted);
            // (B3) AcqRel: Release pairs with the Acquire (B1) and those in `wait_until`; fails if
            // another rank ended it, or parked.
            if state.episode.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                self.wake_waiters(seen, wanted);
                return;
            }
        }
    }

    /// Wakes the waiters for an episode that has ended. `seen`: the word before that.
    fn wake_waiters(&self, seen: u64, wanted: u32) {
        let state = &self.control().barrier;
        if seen & PARKED != 0 {
            Native::with_id(0).wake(&state.episode, u32::MAX);
        }
        // (B5) SeqCst: the end of the episode before the look; pairs with (B4).
        core::sync::atomic::fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence; at worst all waiters look once too often.
        if state.at_doorbells.load(Ordering::Relaxed) == u64::from(wanted) {
            self.wake_doorbells();
        }
    }

    /// Returns how far the ranks of this host are.
    pub(crate) fn host_arrival(&self) -> HostArrival {
        // (B1) Acquire: pairs with the AcqRel (B3).
        let wanted = number(self.control().barrier.episode.load(Ordering::Acquire)).wrapping_add(1);
        let mut arrival = HostArrival::NoneExpected;
        for index in self.host_ranks() {
            // (B2) SeqCst: pairs with the store (B2) in `arrive`.
            let arrived = self.arrival(index).load(Ordering::SeqCst) == wanted;
            // (E4) Acquire: pairs with the Release (E3), (E5) in `entering.rs` and `liveness.rs`.
            let word = EntryWord::unpack(self.entry(index).word.load(Ordering::Acquire));
            if is_expected(word) {
                if !arrived {
                    return HostArrival::Awaited;
                }
                arrival = HostArrival::All(wanted);
            }
        }
        arrival
    }

    /// Ends this episode as the gateways have agreed, if it is the next. `dead`: the rank
    /// by whose death it has failed.
    pub(crate) fn conclude(&self, wanted: u32, dead: Option<u32>) {
        let state = &self.control().barrier;
        loop {
            // (B1) Acquire: pairs with the AcqRel (B3).
            let seen = state.episode.load(Ordering::Acquire);
            if number(seen).wrapping_add(1) != wanted {
                return;
            }
            let failed = dead.map_or(0, |rank| FAILED | u64::from(rank & (MOST_PROCESSES - 1)) << RANK);
            let next = failed | (self.deaths().count() & DEATHS) << 32 | u64::from(wanted);
            // (B3) AcqRel: Release pairs with the Acquire (B1) and those in `wait_until`; fails if
            // a waiter parked.
            if state.episode.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                self.wake_waiters(seen, wanted);
                return;
            }
        }
    }

    /// Changes all doorbells and wakes all that sleep at them.
    #[cold]
    fn wake_doorbells(&self) {
        let cpu = Native::with_id(0);
        for doorbell in self.segment.doorbells() {
            // (B6) Release: the end of the episode comes before; pairs with the Acquire with which
            // a waiter reads its doorbell before it looks at the episode for the last time.
            doorbell.0.fetch_add(1, Ordering::Release);
            cpu.wake(&doorbell.0, u32::MAX);
        }
    }

    /// Returns whether a rank that counts has not arrived: a quick look before the
    /// thorough.
    fn is_awaited(&self, wanted: u32) -> bool {
        self.segment.arrivals().iter().zip(0..).any(|(arrival, index)| {
            // (B2) SeqCst: pairs with the store (B2) in `barrier`.
            arrival.load(Ordering::SeqCst) != wanted && {
                // (E4) Acquire: pairs with the Release (E3), (E5) in `entering.rs` and
                // `liveness.rs`.
                let word = EntryWord::unpack(self.entry(index).word.load(Ordering::Acquire));
                is_expected(word)
            }
        })
    }

    /// The episode at which a rank has arrived.
    fn arrival(&self, index: u32) -> &AtomicU32 {
        &self.segment.arrivals()[index as usize]
    }

    /// A newcomer has not arrived anywhere, whatever its predecessor had.
    pub(crate) fn reset_arrival(&self, index: u32) {
        // Relaxed: published with the entry. At worst the episode moves on meanwhile, and the value
        // is one before it.
        let now = number(self.control().barrier.episode.load(Ordering::Relaxed));
        self.arrival(index).store(now, Ordering::Relaxed);
    }
}
