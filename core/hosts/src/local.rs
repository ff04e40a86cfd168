//! Ranks and endpoints of this host, as the other hosts have been told of them.
//!
//! Ends (a rank has left or died, an endpoint was closed) are looked for before messages are taken
//! and told after them, so that no message of the ended is behind its end. Beginnings are told
//! before the messages of the new.

use std::ops::Range;

use towpath_am::packet::{from_source_code, source_code};
use towpath_am::{EndpointWatch, Name};
use towpath_shm::{RankState, World};

use crate::Error;
use crate::hosts::{Hosts, index_of};
use crate::item::{Item, RankChange};

/// End of a rank's process, or of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalEnd {
    Rank(u32, RankState),
    Endpoint(Name),
}

/// Ranks and endpoints of this host, as the others have been told.
#[derive(Debug)]
pub struct LocalRanks {
    world: World,
    watch: EndpointWatch,
    ranks: Range<u32>,
    /// State of each rank, as it was told.
    told: Vec<RankState>,
    /// Endpoints that were told, with their ranks, by their place.
    endpoints: Vec<Option<(Name, u32)>>,
    /// Endpoints that no sender can reach any more.
    abandoned: Vec<Name>,
    deaths: u64,
}

impl LocalRanks {
    pub fn new(world: &World, hosts: &Hosts) -> Result<LocalRanks, Error> {
        let watch = EndpointWatch::new(world)?;
        let ranks = hosts.ranks(hosts.me());
        Ok(LocalRanks {
            endpoints: vec![None; watch.config().endpoints as usize],
            told: vec![RankState::NotCome; ranks.len()],
            world: world.clone(),
            watch,
            ranks,
            abandoned: Vec::new(),
            deaths: 0,
        })
    }

    pub fn watch(&self) -> &EndpointWatch {
        &self.watch
    }

    /// Returns whether an endpoint with this source code has been told.
    #[inline]
    pub fn is_told(&self, source: u32) -> bool {
        let (endpoint, _) = from_source_code(source);
        matches!(self.endpoints.get(usize::from(endpoint)), Some(Some((name, _)))
            if source_code(endpoint, name.to_bits() >> 16) == source)
    }

    /// Returns whether a source code can be that of an endpoint of this host.
    pub fn is_possible(&self, source: u32) -> bool {
        let (endpoint, _) = from_source_code(source);
        usize::from(endpoint) < self.endpoints.len() && self.watch.is_local(endpoint)
    }

    /// Returns whether an endpoint is open, and its process there.
    pub fn is_open(&self, name: Name) -> bool {
        self.watch
            .opened(index_of(name))
            .is_some_and(|(now, owner)| now == name && self.world.is_alive(owner))
    }

    /// Looks for ends that were not told.
    pub fn ends(&mut self) -> Vec<LocalEnd> {
        let deaths = self.world.deaths();
        let died = std::mem::replace(&mut self.deaths, deaths) != deaths;
        let mut ends = Vec::new();
        for (rank, &told) in self.ranks.clone().zip(&self.told) {
            let now = self.world.rank_state(rank);
            match (told, now) {
                // Another process has taken its place: the last one has left, or died.
                (RankState::Present(before), RankState::Present(after)) if before != after => {
                    let end = if died { RankState::HasDied } else { RankState::HasLeft };
                    ends.push(LocalEnd::Rank(rank, end(before)));
                }
                (RankState::Present(_) | RankState::NotCome, RankState::HasLeft(_)) => {
                    ends.push(LocalEnd::Rank(rank, now));
                }
                (told, RankState::HasDied(_)) if told != now => ends.push(LocalEnd::Rank(rank, now)),
                _ => {}
            }
        }
        for &(name, rank) in self.endpoints.iter().flatten() {
            let is_open = self.watch.opened(index_of(name)).is_some_and(|(now, _)| now == name);
            if !is_open && !ends.iter().any(|end| matches!(end, LocalEnd::Rank(ended, _) if *ended == rank)) {
                ends.push(LocalEnd::Endpoint(name));
            }
        }
        ends
    }

    /// Tells an end, unless it has been told.
    pub fn tell_end(&mut self, end: LocalEnd, mut tell: impl FnMut(&Item<'_>)) {
        match end {
            LocalEnd::Endpoint(name) => {
                let place = &mut self.endpoints[usize::from(index_of(name))];
                if place.is_some_and(|(told, _)| told == name) {
                    *place = None;
                    tell(&Item::Closed(name));
                }
            }
            LocalEnd::Rank(rank, state) => {
                let told = &mut self.told[(rank - self.ranks.start) as usize];
                let is_later = match (*told, state) {
                    (RankState::Present(told), RankState::HasLeft(now) | RankState::HasDied(now)) => {
                        told <= now
                    }
                    (RankState::HasLeft(told), RankState::HasDied(now)) => told <= now,
                    (RankState::HasDied(told), RankState::HasDied(now)) => told < now,
                    (RankState::NotCome, _) => true,
                    _ => false,
                };
                if !is_later {
                    return;
                }
                *told = state;
                for place in &mut self.endpoints {
                    // Its end is that of its endpoints.
                    if place.is_some_and(|(_, owner)| owner == rank) {
                        *place = None;
                    }
                }
                let died = matches!(state, RankState::HasDied(_));
                tell(&Item::Rank(rank, if died { RankChange::Died } else { RankChange::Left }));
            }
        }
    }

    /// Tells of ranks that have come, and of endpoints that were opened.
    pub fn tell_beginnings(&mut self, mut tell: impl FnMut(&Item<'_>)) {
        for (rank, told) in self.ranks.clone().zip(&mut self.told) {
            let now = self.world.rank_state(rank);
            // The end of a predecessor is told first.
            if matches!(now, RankState::Present(_)) && !matches!(told, RankState::Present(_)) {
                *told = now;
                tell(&Item::Rank(rank, RankChange::Came));
            }
        }
        for endpoint in 0..self.endpoints.len() as u16 {
            if !self.watch.is_local(endpoint) {
                continue;
            }
            let Some((name, owner)) = self.watch.opened(endpoint) else { continue };
            let place = &mut self.endpoints[usize::from(endpoint)];
            let is_of_told = self.ranks.contains(&owner.index)
                && self.told[(owner.index - self.ranks.start) as usize]
                    == RankState::Present(owner.generation);
            if is_of_told && place.is_none_or(|(told, _)| told != name) && !self.abandoned.contains(&name) {
                if let Some((before, _)) = place.replace((name, owner.index)) {
                    tell(&Item::Closed(before));
                }
                tell(&Item::Opened(name, owner.index));
            }
        }
    }

    /// Tells of an endpoint whose message was taken, if it has begun since the last look.
    pub fn tell_source(&mut self, source: u32, mut tell: impl FnMut(&Item<'_>)) {
        let (endpoint, _) = from_source_code(source);
        let Some((_, owner)) = self.watch.opened(endpoint) else { return };
        for end in self.ends() {
            if matches!(end, LocalEnd::Rank(rank, _) if rank == owner.index) {
                self.tell_end(end, &mut tell);
            }
        }
        self.tell_beginnings(tell);
    }

    /// Notes that no sender can reach an endpoint any more, although it is open.
    pub fn abandon(&mut self, name: Name, tell: impl FnMut(&Item<'_>)) {
        self.abandoned.push(name);
        self.tell_end(LocalEnd::Endpoint(name), tell);
    }
}
