//! Membership: the hosts that take part, as their quorum decides it.
//!
//! ```text
//!           Admit                  Suspect                    Remove
//!   absent ───────▶ member ─────────────────▶ suspected ─────────────────▶ absent
//! ```
//!
//! An *incarnation* is a random number that an agent takes when it starts, and anew when its former
//! one was removed. Each admission and each removal begins an *epoch*. From `Suspect` on, each
//! agent that has learnt of it confirms no lease of that incarnation any more; `Remove` follows
//! when the leases that a majority has confirmed before are over (`lease.rs`). Changes are decided
//! in one order for all, and a change that does not fit the state changes nothing, so that it may
//! be proposed more than once.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use towpath_mplock::{Epoch, Node};

/// Number that tells an agent from its predecessors on the host.
pub(crate) type Incarnation = u64;

/// Change of the membership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum MembershipChange {
    /// The host takes part. `floor`: the largest epoch that its agent has ever seen.
    Admit { host: Node, incarnation: Incarnation, floor: Epoch },
    /// The host was not heard of for long: no lease of it is confirmed any more.
    Suspect { host: Node, incarnation: Incarnation },
    /// The host does not take part any more.
    Remove { host: Node, incarnation: Incarnation },
}

/// Change that had an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    Admitted(Node),
    Suspected(Node),
    Removed(Node, Incarnation),
}

/// Host that takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostMember {
    pub incarnation: Incarnation,
    pub suspected: bool,
}

/// Hosts that take part.
#[derive(Clone, Debug)]
pub(crate) struct HostMembership {
    pub epoch: Epoch,
    members: Vec<Option<HostMember>>,
    /// Incarnations that were suspected.
    doomed: HashSet<Incarnation>,
}

impl HostMembership {
    /// Makes the state before the first change.
    pub fn new(hosts: usize) -> HostMembership {
        HostMembership { epoch: 0, members: vec![None; hosts], doomed: HashSet::new() }
    }

    /// Number of hosts that may take part.
    pub fn hosts(&self) -> usize {
        self.members.len()
    }

    /// Number of hosts that are a majority of all.
    pub fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    /// Returns a host's member, if it takes part.
    pub fn member(&self, host: Node) -> Option<HostMember> {
        self.members.get(usize::from(host)).copied().flatten()
    }

    /// Returns whether this incarnation of the host takes part.
    pub fn has(&self, host: Node, incarnation: Incarnation) -> bool {
        self.member(host).is_some_and(|member| member.incarnation == incarnation)
    }

    /// Returns whether an incarnation was suspected: it has no lease, and never will.
    pub fn is_doomed(&self, incarnation: Incarnation) -> bool {
        self.doomed.contains(&incarnation)
    }

    /// Returns the hosts that take part.
    pub fn here(&self) -> impl Iterator<Item = Node> + '_ {
        (0..self.members.len() as Node).filter(|&host| self.member(host).is_some())
    }

    /// Applies a change that was decided. `None`: it has no effect.
    pub fn apply(&mut self, change: &MembershipChange) -> Option<Applied> {
        match *change {
            MembershipChange::Admit { host, incarnation, floor } => {
                let place = self.members.get_mut(usize::from(host))?;
                if place.is_some() || self.doomed.contains(&incarnation) {
                    return None;
                }
                *place = Some(HostMember { incarnation, suspected: false });
                self.epoch = self.epoch.max(floor) + 1;
                Some(Applied::Admitted(host))
            }
            MembershipChange::Suspect { host, incarnation } => {
                let member = self.members.get_mut(usize::from(host))?.as_mut()?;
                if member.incarnation != incarnation || member.suspected {
                    return None;
                }
                member.suspected = true;
                self.doomed.insert(incarnation);
                Some(Applied::Suspected(host))
            }
            MembershipChange::Remove { host, incarnation } => {
                let place = self.members.get_mut(usize::from(host))?;
                place.take_if(|member| member.incarnation == incarnation && member.suspected)?;
                self.epoch += 1;
                Some(Applied::Removed(host, incarnation))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_is_removed_only_after_it_was_suspected() {
        let mut membership = HostMembership::new(3);
        let (host, incarnation) = (1, 77);
        let admit = MembershipChange::Admit { host, incarnation, floor: 4 };
        let suspect = MembershipChange::Suspect { host, incarnation };
        let remove = MembershipChange::Remove { host, incarnation };
        assert_eq!(membership.apply(&suspect), None);
        assert_eq!(membership.apply(&admit), Some(Applied::Admitted(host)));
        assert_eq!(membership.epoch, 5);
        assert_eq!(membership.apply(&admit), None);
        assert_eq!(membership.apply(&remove), None);
        assert_eq!(membership.apply(&MembershipChange::Suspect { host, incarnation: 78 }), None);
        assert_eq!(membership.apply(&suspect), Some(Applied::Suspected(host)));
        assert!(membership.is_doomed(incarnation) && membership.has(host, incarnation));
        assert_eq!(membership.apply(&remove), Some(Applied::Removed(host, incarnation)));
        assert_eq!((membership.epoch, membership.here().count()), (6, 0));
        assert_eq!(membership.apply(&admit), None, "an incarnation comes once");
        let next = MembershipChange::Admit { host, incarnation: 78, floor: 0 };
        assert_eq!(membership.apply(&next), Some(Applied::Admitted(host)));
        assert_eq!(membership.apply(&MembershipChange::Admit { host: 9, incarnation, floor: 0 }), None);
    }
}
