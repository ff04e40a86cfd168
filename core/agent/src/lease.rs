//! Leases: until when an agent may count on its locks.
//!
//! Each agent sends all others a *beat* several times in a lease's time, and each confirms beats of
//! incarnations that are not suspected. An agent has a lease until the time `lease` after it *sent*
//! the last beat that a majority (itself among it) has confirmed. Without a lease it hands out no
//! lock, and tells its holders.
//!
//! An incarnation is removed in three steps: a leader has `Suspect` decided; each agent that has
//! applied it confirms no beat of that incarnation any more, and reports how long ago it last did;
//! when a majority has reported, and for each of these [`Lease::grace`] has passed since its last
//! confirmation, the leader has `Remove` decided. Any majority that has confirmed a lease has a
//! member in common with the one that has reported, and that member confirmed before the grace
//! began. So the lease is over when `Remove` is proposed, however long any process or message is
//! delayed. An agent that has restarted counts from its start; what it has applied it has on disk.
//! It reports on its predecessor as well, which had ended before (the claim on the state on disk
//! sees to that). So a majority of the hosts suffices after a restart of all their agents.
//!
//! **Bounds.** The grace is longer than the lease by a tenth and 50 ms: clocks of hosts may differ
//! in rate by 10 %, which quartz does not. The clock is `CLOCK_BOOTTIME`, which no one sets, and
//! which goes on while a host sleeps. A holder that is paused between a look at its lease and its
//! work is what fencing tokens are for.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use towpath_mplock::Node;

use crate::membership::Incarnation;

/// Time since the host's start.
pub(crate) type BootTime = Duration;

/// Returns the time since the host's start.
pub(crate) fn boot_time() -> BootTime {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// Another host, as far as time is concerned.
#[derive(Clone, Copy, Debug, Default)]
struct PeerTimes {
    /// Last beat that was received from it.
    heard: Option<BootTime>,
    /// Time at which the last beat was sent that it has confirmed.
    confirmed: Option<BootTime>,
    /// Last confirmation that was sent to it, and the incarnation.
    confirms: Option<(Incarnation, BootTime)>,
}

/// Leases of this agent, and its knowledge of others'.
#[derive(Debug)]
pub(crate) struct Lease {
    me: Node,
    duration: Duration,
    start: BootTime,
    peers: Vec<PeerTimes>,
}

impl Lease {
    pub fn new(me: Node, hosts: usize, duration: Duration, start: BootTime) -> Lease {
        Lease { me, duration, start, peers: vec![PeerTimes::default(); hosts] }
    }

    /// Returns the time after a confirmation after which the lease is over by all clocks.
    pub fn grace(&self) -> Duration {
        self.duration + self.duration / 10 + Duration::from_millis(50)
    }

    /// Notes that a host has confirmed the beat that was sent at a time.
    pub fn on_confirmation(&mut self, host: Node, sent: BootTime) {
        if let Some(peer) = self.peers.get_mut(usize::from(host)) {
            peer.confirmed = peer.confirmed.max(Some(sent));
        }
    }

    /// Forgets all confirmations: for a new incarnation of this agent.
    pub fn begin_anew(&mut self) {
        for peer in &mut self.peers {
            peer.confirmed = None;
        }
    }

    /// Returns the time until which this agent has a lease.
    pub fn valid_until(&self) -> Option<BootTime> {
        let mut times: Vec<BootTime> = self.peers.iter().filter_map(|peer| peer.confirmed).collect();
        times.sort_unstable_by(|a, b| b.cmp(a));
        // With the agent itself they are a majority.
        let others = self.peers.len() / 2;
        times.get(others.checked_sub(1)?).map(|&sent| sent + self.duration)
    }

    /// Notes a beat of a host.
    pub fn on_beat(&mut self, host: Node, now: BootTime) {
        if let Some(peer) = self.peers.get_mut(usize::from(host)) {
            peer.heard = Some(now);
        }
    }

    /// Returns the time for which nothing was heard of a host.
    pub fn silence(&self, host: Node, now: BootTime) -> Duration {
        if host == self.me {
            return Duration::ZERO;
        }
        let heard = self.peers.get(usize::from(host)).and_then(|peer| peer.heard);
        now.saturating_sub(heard.unwrap_or(self.start))
    }

    /// Begins all silences anew: after a pause of this agent they say nothing.
    pub fn forgive(&mut self, now: BootTime) {
        self.start = self.start.max(now);
        for peer in &mut self.peers {
            peer.heard = peer.heard.map(|_| now);
        }
    }

    /// Notes that a beat of this incarnation is confirmed.
    pub fn confirm(&mut self, host: Node, incarnation: Incarnation, now: BootTime) {
        if let Some(peer) = self.peers.get_mut(usize::from(host)) {
            peer.confirms = Some((incarnation, now));
        }
    }

    /// Returns the time since the last confirmation of this incarnation.
    ///
    /// `begun`: the time at which this agent has started.
    pub fn since_confirmation(
        &self,
        host: Node,
        incarnation: Incarnation,
        begun: BootTime,
        now: BootTime,
    ) -> Duration {
        let last = self.peers.get(usize::from(host)).and_then(|peer| peer.confirms);
        let last = last.filter(|&(of, _)| of == incarnation).map_or(begun, |(_, at)| at);
        now.saturating_sub(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(2);

    fn at(seconds: u64) -> BootTime {
        Duration::from_secs(seconds)
    }

    #[test]
    fn lease_needs_a_majority_and_counts_from_the_sending() {
        let mut lease = Lease::new(0, 5, LEASE, at(100));
        assert_eq!(lease.valid_until(), None);
        lease.on_confirmation(1, at(110));
        assert_eq!(lease.valid_until(), None, "two of five");
        lease.on_confirmation(2, at(108));
        assert_eq!(lease.valid_until(), Some(at(110)));
        lease.on_confirmation(3, at(109));
        assert_eq!(lease.valid_until(), Some(at(111)));
        lease.on_confirmation(3, at(90));
        assert_eq!(lease.valid_until(), Some(at(111)), "confirmations may overtake each other");
        lease.begin_anew();
        assert_eq!(lease.valid_until(), None);
        let mut two = Lease::new(0, 2, LEASE, at(0));
        assert_eq!(two.valid_until(), None);
        two.on_confirmation(1, at(5));
        assert_eq!(two.valid_until(), Some(at(7)));
    }

    #[test]
    fn confirmations_are_those_of_the_incarnation() {
        let mut lease = Lease::new(0, 3, LEASE, at(100));
        lease.confirm(1, 7, at(110));
        assert_eq!(lease.since_confirmation(1, 7, at(100), at(113)), at(3));
        assert_eq!(lease.since_confirmation(1, 8, at(100), at(113)), at(13));
        assert!(lease.grace() > LEASE);
    }
}
