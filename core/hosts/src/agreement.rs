//! Agreement of hosts on the end of a barrier's episode, and on its outcome.
//!
//! The host that listens decides, as the others tell it: whether all their ranks have arrived, and
//! which have died. All hosts hear of arrivals, deaths and decisions in its order, so all waiters
//! of an episode get the same outcome, and a death is reported once.
//!
//! Pure: no input, no output.

use towpath_shm::HostArrival;

/// State of the barrier, at the host that decides.
#[derive(Debug)]
pub struct Agreement {
    arrivals: Vec<HostArrival>,
    /// Number of the last episode that has ended.
    episode: u32,
    /// Rank that died since then, the last one.
    dead: Option<u32>,
}

impl Agreement {
    /// Makes the state before any rank has come. `episode`: number of the last one that
    /// has ended.
    pub fn new(hosts: usize, episode: u32) -> Agreement {
        Agreement { arrivals: vec![HostArrival::Awaited; hosts], episode, dead: None }
    }

    /// Notes how far a host's ranks are.
    pub fn note(&mut self, host: usize, arrival: HostArrival) {
        if let Some(known) = self.arrivals.get_mut(host) {
            *known = arrival;
        }
    }

    /// Notes the death of a rank.
    pub fn died(&mut self, rank: u32) {
        self.dead = Some(rank);
    }

    /// Returns the episode that ends now, if one does, and the rank by whose death it has
    /// failed.
    pub fn decide(&mut self) -> Option<(u32, Option<u32>)> {
        let next = self.episode.wrapping_add(1);
        let mut any = false;
        for arrival in &self.arrivals {
            match *arrival {
                HostArrival::NoneExpected => {}
                HostArrival::All(episode) if episode == next => any = true,
                HostArrival::All(_) | HostArrival::Awaited => return None,
            }
        }
        if !any {
            return None;
        }
        self.episode = next;
        Some((next, self.dead.take()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use HostArrival::{All, Awaited, NoneExpected};

    #[test]
    fn episode_ends_when_all_hosts_have_arrived_at_it() {
        let mut agreement = Agreement::new(3, 6);
        for (host, arrival) in [(0, All(7)), (1, All(7)), (2, All(6))] {
            agreement.note(host, arrival);
            assert_eq!(agreement.decide(), None, "host {host}");
        }
        agreement.note(2, All(7));
        assert_eq!(agreement.decide(), Some((7, None)));
        assert_eq!(agreement.decide(), None, "it has ended");
        agreement.note(9, All(8));
    }

    #[test]
    fn death_fails_one_episode_and_the_dead_are_not_awaited() {
        let mut agreement = Agreement::new(2, u32::MAX);
        agreement.note(0, All(0));
        agreement.died(2);
        agreement.died(3);
        assert_eq!(agreement.decide(), None);
        agreement.note(1, NoneExpected);
        assert_eq!(agreement.decide(), Some((0, Some(3))));
        agreement.note(0, All(1));
        assert_eq!(agreement.decide(), Some((1, None)));
        agreement.note(0, NoneExpected);
        assert_eq!(agreement.decide(), None, "no rank waits");
        agreement.note(1, Awaited);
        agreement.note(0, All(2));
        assert_eq!(agreement.decide(), None, "a rank has come");
    }
}
