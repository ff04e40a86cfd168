//! Ranks of the world that take part, and the epoch.
//!
//! A rank is gone when its process has died or left the world, or its manager is closed. The kernel
//! and the world's entries say so, never a clock, and a rank that is gone stays gone. The epoch is
//! the number of ranks that are gone, plus one. Survivors may notice deaths in different orders. A
//! home looks at all ranks at once before it takes a lock over, so that it counts each rank whose
//! end an earlier home had counted, and that home: its epoch is larger.

use std::sync::{Arc, OnceLock};

use towpath_am::{Endpoint, Name, Tag};
use towpath_shm::ParticipantId;

use super::identity::Identity;
use crate::numbers::{Epoch, Node};

/// Names of the managers' endpoints, by rank; the handler reads them, too.
pub(crate) type Names = Arc<OnceLock<Vec<Option<Name>>>>;

/// Rank that takes part, or did.
#[derive(Debug)]
struct Member {
    /// Tag that messages to it show.
    tag: Tag,
    /// Its process; `None` if it was gone from the beginning.
    process: Option<ParticipantId>,
    /// True until it is gone, as far as this rank has noticed.
    here: bool,
    /// Its farewell, if one came: whether it left in good order.
    farewell: Option<bool>,
}

/// Ranks that take part.
#[derive(Debug)]
pub(crate) struct Members {
    me: Node,
    names: Names,
    list: Vec<Member>,
    gone: Epoch,
}

impl Members {
    /// Notes the ranks that entries 0 to n − 1 of the translation table lead to.
    pub(crate) fn new(endpoint: &Endpoint, names: Names) -> Members {
        let world = endpoint.world();
        let mappings: Vec<Option<(Name, Tag)>> =
            (0..world.size() as usize).map(|rank| endpoint.mapping(rank)).collect();
        let _ = names.set(mappings.iter().map(|mapping| mapping.map(|(name, _)| name)).collect());
        let member = |(rank, mapping): (usize, &Option<(Name, Tag)>)| {
            let process = world.participant(rank as u32).filter(|_| mapping.is_some());
            let tag = mapping.map_or(Tag::NONE, |(_, tag)| tag);
            Member { tag, process, here: process.is_some(), farewell: None }
        };
        let list: Vec<Member> = mappings.iter().enumerate().map(member).collect();
        let gone = list.iter().filter(|member| !member.here).count() as Epoch;
        Members { me: world.rank() as Node, names, list, gone }
    }

    /// Returns the epoch.
    pub(crate) fn epoch(&self) -> Epoch {
        self.gone + 1
    }

    /// Returns whether a rank is there, as far as noticed.
    pub(crate) fn is_here(&self, rank: Node) -> bool {
        self.list.get(usize::from(rank)).is_some_and(|member| member.here)
    }

    /// Returns the ranks that are there, as far as noticed.
    pub(crate) fn here(&self) -> impl Iterator<Item = Node> + '_ {
        (0..self.list.len() as Node).filter(|&rank| self.is_here(rank))
    }

    /// Returns the ranks that are gone, but not in good order.
    pub(crate) fn dead(&self) -> impl Iterator<Item = Node> + '_ {
        let gone = |member: &Member| !member.here && member.farewell != Some(true);
        (0..self.list.len() as Node).filter(move |&rank| gone(&self.list[usize::from(rank)]))
    }

    /// Returns whether a rank that is gone has left in good order.
    pub(crate) fn has_left(&self, rank: Node) -> bool {
        self.list.get(usize::from(rank)).is_some_and(|member| member.farewell == Some(true))
    }

    /// Returns a lock's home.
    pub(crate) fn home(&self, lock: Identity) -> Node {
        lock.home(self.here()).unwrap_or(self.me)
    }

    /// Returns whether the endpoint of that name is the manager's of a rank.
    pub(crate) fn is_named(&self, rank: Node, name: Name) -> bool {
        named(&self.names, rank, name)
    }

    /// Returns the ranks that are gone and were not noticed so far. `thorough`: asks the
    /// kernel for each.
    pub(crate) fn find_gone(&self, endpoint: &Endpoint, thorough: bool) -> Vec<Node> {
        let world = endpoint.world();
        let is_gone = |rank: Node, member: &Member| {
            let index = usize::from(rank);
            let process = member.process.filter(|_| world.participant(rank.into()) == member.process);
            let Some(process) = process else { return true };
            let name = self.names.get().and_then(|names| names[index]);
            // Mapping an endpoint that is closed fails.
            name.is_none_or(|name| endpoint.map(index, name, member.tag).is_err())
                || thorough && !world.is_alive(process)
        };
        let others = self.list.iter().enumerate().map(|(rank, member)| (rank as Node, member));
        others
            .filter(|&(rank, member)| rank != self.me && member.here && is_gone(rank, member))
            .map(|(rank, _)| rank)
            .collect()
    }

    /// Notes that a rank is gone.
    pub(crate) fn mark_gone(&mut self, rank: Node) {
        if let Some(member) = self.list.get_mut(usize::from(rank)).filter(|member| member.here) {
            member.here = false;
            self.gone += 1;
        }
    }

    /// Notes a rank's farewell.
    pub(crate) fn note_farewell(&mut self, rank: Node, clean: bool) {
        if let Some(member) = self.list.get_mut(usize::from(rank)) {
            member.farewell = Some(clean);
        }
    }

    /// Returns whether this rank is a lock's home after another one, and then whether one
    /// of those before it may have taken the lock with it.
    pub(crate) fn former_home_died(&self, lock: Identity) -> Option<bool> {
        let before = self.list.iter().enumerate().filter(|&(rank, member)| {
            let rank = rank as Node;
            rank != self.me && !member.here && lock.prefers(rank, self.me)
        });
        before.map(|(_, member)| member.farewell != Some(true)).reduce(|one, other| one | other)
    }
}

/// Returns whether the endpoint of that name is the manager's of a rank.
pub(crate) fn named(names: &Names, rank: Node, name: Name) -> bool {
    names.get().and_then(|names| names.get(usize::from(rank)).copied().flatten()) == Some(name)
}
