//! Worlds that span hosts, as one host sees them.
//!
//! Each host has a segment of its own with *all* ranks of the world. Those of other hosts are
//! represented by the host's gateway, a process that enters once for each of them that has come. So
//! every question about a rank (is it alive, has it left) has an answer in the host's own memory.
//!
//! | | in a world of one host | in a world that spans hosts |
//! | --- | --- | --- |
//! | a rank's participant | its process | its process, or the gateway |
//! | a rank's death | noted by a survivor | of another host: noted by the gateway, as it is told ([`World::fail`]) |
//! | end of a barrier's episode | by the last rank to arrive | by the gateways, by agreement ([`World::conclude`]) |
//! | doorbell | one for each rank | one for all ranks of other hosts together: the gateway's |
//! | named objects | the world's | each host's own |
//!
//! **Fields.** `WorldHeader::host_ranks`: the creator. `BarrierState::host_events`: added to by
//! any process of the host that enters, leaves, arrives or notes a death.
//!
//! **Crashes.** A gateway that dies takes its participants with it: the ranks of the other hosts
//! are dead to this one. No barrier ends any more, so its launcher ends the ranks of this host.

use core::ops::Range;

use crate::episodes::MemberEpisodes;
use crate::host_ranks::HostRanks;
use crate::inner::{Inner, WorldSpec};
use crate::participant::EntryState;
use crate::table::ParticipantTable;
use crate::world::World;
use crate::{Error, words};

/// Arrival of the ranks of one host at the world's barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostArrival {
    /// A rank has not arrived.
    Awaited,
    /// All ranks that are there have arrived at the episode of this number.
    All(u32),
    /// All ranks have left, or are dead.
    NoneExpected,
}

/// State of a rank, with the number of participants that it has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankState {
    /// No process has come.
    NotCome,
    /// Its process is a participant.
    Present(u32),
    /// Its last process has left in order.
    HasLeft(u32),
    /// Its last process died.
    HasDied(u32),
}

impl World {
    /// Makes this host's segment of a world that spans hosts. `ranks` run here.
    ///
    /// For launchers: a gateway represents the other ranks (`towpath run --hosts`).
    ///
    /// # Errors
    ///
    /// As [`World::create`]; [`Error::NoSuchRank`] if `ranks` are not ranks of such a world.
    ///
    /// ```
    /// use towpath::{World, WorldConfig};
    ///
    /// let world = World::create_part(&WorldConfig::new(4).spec(None), 0..2)?;
    /// assert!(world.is_local(1) && !world.is_local(2));
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn create_part(spec: &WorldSpec, ranks: Range<u32>) -> Result<World, Error> {
        if ranks.end > spec.processes || ranks.start > ranks.end {
            return Err(Error::NoSuchRank { rank: ranks.end, size: spec.processes });
        }
        let host = HostRanks { first: ranks.start, count: ranks.end - ranks.start };
        World::create_as(spec, (host.count < spec.processes).then_some(host))
    }

    /// Ranks that run on this host: all of them, unless the world spans hosts.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// assert_eq!(world.local_ranks(), 0..2);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn local_ranks(&self) -> Range<u32> {
        self.0.host_ranks()
    }

    /// Returns whether a rank runs on this host.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// assert!(world.is_local(0) && !world.is_local(2), "there is no rank 2");
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline]
    pub fn is_local(&self, rank: u32) -> bool {
        self.0.host_ranks().contains(&rank)
    }

    /// Counts the caller's participant as dead, although its process runs.
    ///
    /// For gateways: the process that it represents has died. After [`World::leave`] this handle
    /// can enter again.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// let represented = world.reopen()?;
    /// represented.enter(Some(1))?;
    /// represented.fail();
    /// assert!(world.has_died(1));
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn fail(&self) {
        self.0.fail();
    }

    /// Returns the state of a rank, as it has been noted.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// use towpath::RankState;
    ///
    /// assert_eq!(world.rank_state(0), RankState::Present(1));
    /// assert_eq!(world.rank_state(1), RankState::NotCome);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn rank_state(&self, rank: u32) -> RankState {
        if rank >= self.0.processes {
            return RankState::NotCome;
        }
        let word = self.0.entry_word(rank);
        match (word.state, word.generation) {
            (EntryState::Entered, generation) => RankState::Present(generation),
            (EntryState::Dying | EntryState::Dead, generation) => RankState::HasDied(generation),
            // One that joins is its predecessor's successor when it has entered.
            (EntryState::Free, 0) | (EntryState::Joining, 0 | 1) => RankState::NotCome,
            (EntryState::Free, generation) => RankState::HasLeft(generation),
            (EntryState::Joining, generation) => RankState::HasLeft(generation - 1),
        }
    }

    /// Returns how far the ranks of this host are at the barrier, for its gateway.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// use towpath::HostArrival;
    ///
    /// assert_eq!(world.host_arrival(), HostArrival::Awaited);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn host_arrival(&self) -> HostArrival {
        self.0.host_arrival()
    }

    /// Ends an episode of the barrier as the gateways have agreed. Does nothing unless it
    /// is the next one.
    ///
    /// `dead`: all waiters get [`Error::MemberDied`] with this rank.
    ///
    /// ```
    /// use towpath::{World, WorldConfig};
    ///
    /// let world = World::create_part(&WorldConfig::new(2).spec(None), 0..1)?;
    /// world.enter(Some(0))?;
    /// let episode = world.arrive()?;
    /// assert!(!episode.is_over(), "the gateway decides");
    /// world.conclude(1, None);
    /// episode.outcome()?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn conclude(&self, episode: u32, dead: Option<u32>) {
        self.0.conclude_episode(episode, dead);
    }

    /// Returns the number of events of this host since the world was made: arrivals at
    /// the barrier, ranks that come, leave and die, and what rooms above add.
    ///
    /// Always 0 unless the world spans hosts.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(Some(0))?;
    /// assert_eq!(world.host_events(), 0);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn host_events(&self) -> u64 {
        words::host_events(self.0.cpu(), &self.0.control().barrier.host_events)
    }

    /// Wakes this host's gateway, so that it looks for the caller's change. Does nothing
    /// unless the world spans hosts.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(Some(0))?;
    /// world.tell_gateway(); // after a change that other hosts are to learn of
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline]
    pub fn tell_gateway(&self) {
        self.0.tell_gateway();
    }
}

impl Inner {
    /// The ranks of this host.
    #[inline]
    pub(crate) fn host_ranks(&self) -> Range<u32> {
        self.host.map_or(0..self.processes, HostRanks::range)
    }

    /// Number of the doorbell at which a rank's process sleeps.
    #[inline]
    pub(crate) fn doorbell_of(&self, rank: u32) -> usize {
        match self.host {
            Some(host) if !host.range().contains(&rank) => host.gateway() as usize,
            _ => rank as usize,
        }
    }

    /// See [`World::tell_gateway`].
    #[inline]
    pub(crate) fn tell_gateway(&self) {
        if let Some(host) = self.host {
            self.wake_gateway(host);
        }
    }

    #[cold]
    fn wake_gateway(&self, host: HostRanks) {
        let doorbell = &self.segment.doorbells()[host.gateway() as usize].0;
        words::tell_gateway(self.cpu(), &self.control().barrier.host_events, doorbell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(processes: u32) -> WorldSpec {
        WorldSpec { name: None, processes, area_bytes: 0, object_bytes: 0, params: [0; 16] }
    }

    /// This host's part of a world of four, and a handle for each rank.
    fn part(ranks: Range<u32>) -> (World, Vec<World>) {
        let world = World::create_part(&spec(4), ranks).unwrap();
        let handles = (0..4).map(|rank| {
            let handle = world.reopen().unwrap();
            handle.enter(Some(rank)).unwrap();
            handle
        });
        let handles = handles.collect();
        (world, handles)
    }

    #[test]
    fn parts_are_ranks_of_the_world() {
        assert!(World::create_part(&spec(4), 2..5).is_err());
        assert_eq!(World::create_part(&spec(4), 0..4).unwrap().0.host, None);
    }

    #[test]
    fn other_hosts_share_one_doorbell() {
        for (ranks, gateway) in [(0..2, 2), (1..3, 0), (0..0, 0)] {
            let (world, _) = part(ranks.clone());
            for rank in 0..4 {
                let expected = if ranks.contains(&rank) { rank } else { gateway };
                let place = &world.0.segment.doorbells()[expected as usize].0;
                assert!(std::ptr::eq(world.doorbell(rank), place), "{rank} of {ranks:?}");
            }
        }
    }

    #[test]
    fn gateway_alone_ends_a_barrier_and_tells_its_outcome() {
        let (world, handles) = part(1..3);
        assert_eq!(world.host_arrival(), HostArrival::Awaited);
        let events = world.host_events();
        let first = handles[1].arrive().unwrap();
        assert!(world.host_events() > events, "the gateway is told");
        assert_eq!(world.host_arrival(), HostArrival::Awaited);
        let second = handles[2].arrive().unwrap();
        assert_eq!(world.host_arrival(), HostArrival::All(1));
        first.look_around().unwrap();
        assert!(!first.is_over(), "no rank of this host decides");
        world.conclude(2, None);
        assert!(!first.is_over(), "it is not the next one");
        world.conclude(1, Some(3));
        for episode in [first, second] {
            assert!(matches!(episode.outcome(), Err(Error::MemberDied { rank: 3 })));
        }
        assert_eq!(world.host_arrival(), HostArrival::Awaited);
        handles[1].leave().unwrap();
        let third = handles[2].arrive().unwrap();
        assert_eq!(world.host_arrival(), HostArrival::All(2));
        world.conclude(2, None);
        third.outcome().unwrap();
        handles[2].fail();
        assert_eq!(world.host_arrival(), HostArrival::NoneExpected);
    }

    #[test]
    fn states_of_ranks_follow_their_processes() {
        let (world, handles) = part(0..2);
        assert_eq!(world.rank_state(1), RankState::Present(1));
        handles[1].leave().unwrap();
        assert_eq!(world.rank_state(1), RankState::HasLeft(1));
        handles[1].enter(Some(1)).unwrap();
        assert_eq!(world.rank_state(1), RankState::Present(2));
        handles[1].fail();
        assert_eq!((world.rank_state(1), world.deaths()), (RankState::HasDied(2), 1));
        handles[1].leave().unwrap();
        handles[1].enter(Some(1)).unwrap();
        assert_eq!(world.rank_state(1), RankState::Present(3));
        let empty = World::create_part(&spec(2), 0..1).unwrap();
        assert_eq!(empty.rank_state(0), RankState::NotCome);
        empty.enter(None).unwrap();
        assert!(empty.reopen().unwrap().enter(None).is_err(), "the other rank is of another host");
    }
}
