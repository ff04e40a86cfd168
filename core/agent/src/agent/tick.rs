//! Tick of an agent: beats, and the leader's view of the other hosts.
//!
//! Each agent says in its beats for how long it has heard nothing of each host, and how long ago it
//! last confirmed a beat of a suspected one. The leader proposes three changes of the membership.
//!
//! | it proposes | if |
//! | --- | --- |
//! | `Suspect` | a member is silent for a lease's time, comes as another incarnation, or does not hear an earlier host of the file for three leases |
//! | `Remove` | the member is suspected, and by a majority's confirmations its lease is over |
//! | `Admit` | a host is there that is no member, and all members hear it |
//!
//! `lease.rs` says why a removed host has no lease any more.

use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

use towpath_mplock::Node;

use super::{Agent, listen};
use crate::Error;
use crate::frame::{Beat, Doubt, Frame};
use crate::lease::BootTime;
use crate::membership::{Incarnation, MembershipChange};
use crate::session::Session;

/// Number of ticks between two looks at the socket: about a lease's time.
const LOOK: u64 = 20;

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Agent {
    pub(super) fn tick(&mut self, now: BootTime) -> Result<(), Error> {
        self.ticks += 1;
        if now.saturating_sub(self.last_look) > self.hosts.lease / 4 {
            // This agent was paused: the silence of the others is its own.
            self.lease.forgive(now);
        }
        self.consensus.tick();
        self.advance_consensus()?;
        if self.ticks.is_multiple_of(2) {
            self.send_beats(now);
        }
        if self.consensus.leads() {
            self.lead(now);
            self.advance_consensus()?;
        }
        for host in 0..self.links.len() as Node {
            // Beats do not come through: another connection may.
            if self.links[usize::from(host)].is_some() && self.lease.silence(host, now) > self.hosts.lease {
                self.lose_link(host);
            }
        }
        self.rests = false;
        if self.ticks.is_multiple_of(LOOK) {
            self.look_at_socket();
        }
        self.read_nameless(now)
    }

    /// Listens anew if the socket was removed, as systemd does when its user logs out.
    ///
    /// Connections stay.
    fn look_at_socket(&mut self) {
        if self.socket.symlink_metadata().is_ok_and(|file| file.file_type().is_socket()) {
            return;
        }
        if let Ok(listener) = listen(&self.socket) {
            self.listener = listener;
            (self.say)("the agent's socket was removed: it has a new one");
        }
    }

    fn send_beats(&mut self, now: BootTime) {
        let hosts = self.links.len() as Node;
        let silences: Vec<u64> = (0..hosts).map(|host| milliseconds(self.lease.silence(host, now))).collect();
        let doubts = self.doubts(now);
        for host in 0..hosts {
            let Some(link) = &self.links[usize::from(host)] else { continue };
            let received = self.sessions.get(&(host, link.incarnation)).map_or(0, Session::received);
            let sent = u64::try_from(now.as_nanos()).unwrap_or(0);
            let beat = Beat { sent, received, silences: silences.clone(), doubts: doubts.clone() };
            self.send(host, &Frame::Beat(beat).encode());
        }
    }

    /// Returns the suspected incarnations, with the times since their last confirmations.
    fn doubts(&self, now: BootTime) -> Vec<Doubt> {
        let suspected = self.membership.here().filter_map(|host| {
            let member = self.membership.member(host).filter(|member| member.suspected)?;
            let since = self.lease.since_confirmation(host, member.incarnation, self.begun, now);
            Some(Doubt { host, incarnation: member.incarnation, confirmed: milliseconds(since) })
        });
        suspected.collect()
    }

    /// Proposes changes of the membership, as the leader.
    fn lead(&mut self, now: BootTime) {
        for host in 0..self.membership.hosts() as Node {
            let present = if host == self.me {
                Some(self.incarnation)
            } else {
                self.links[usize::from(host)].as_ref().map(|link| link.incarnation)
            };
            match self.membership.member(host) {
                Some(member) if member.suspected => {
                    if self.is_over(host, member.incarnation, now) {
                        let incarnation = member.incarnation;
                        self.consensus.propose(MembershipChange::Remove { host, incarnation });
                    }
                }
                Some(member) => {
                    let replaced = present.is_some_and(|incarnation| incarnation != member.incarnation);
                    if replaced || self.is_silent(host, now) {
                        let incarnation = member.incarnation;
                        self.consensus.propose(MembershipChange::Suspect { host, incarnation });
                    }
                }
                None => {
                    if let Some(incarnation) = present
                        && !self.membership.is_doomed(incarnation)
                        && self.is_heard_by_all(host, now)
                    {
                        let floor = self.epoch_file.seen;
                        self.consensus.propose(MembershipChange::Admit { host, incarnation, floor });
                    }
                }
            }
        }
    }

    /// Returns whether the leases of a suspected incarnation are over.
    fn is_over(&self, host: Node, incarnation: Incarnation, now: BootTime) -> bool {
        let grace = milliseconds(self.lease.grace());
        let own = milliseconds(self.lease.since_confirmation(host, incarnation, self.begun, now)) > grace;
        let others = self.views.iter().enumerate().filter(|(other, view)| {
            let since = milliseconds(now.saturating_sub(view.at));
            let of = |doubt: &&Doubt| (doubt.host, doubt.incarnation) == (host, incarnation);
            // The agent that has followed it on its host reports, too.
            view.incarnation != incarnation
                && *other != usize::from(self.me)
                && view.doubts.iter().find(of).is_some_and(|doubt| doubt.confirmed + since > grace)
        });
        let own = usize::from(own && self.incarnation != incarnation);
        others.count() + own >= self.membership.majority()
    }

    /// Returns whether a member has been silent for a lease's time, or longer elsewhere.
    fn is_silent(&self, host: Node, now: BootTime) -> bool {
        let lease = self.hosts.lease;
        let members = self.membership.here().filter(|&other| other != host && other != self.me);
        self.lease.silence(host, now) > lease
            || members.into_iter().any(|other| {
                let view = &self.views[usize::from(other)];
                let silence = view.silences.get(usize::from(host)).copied().unwrap_or(0);
                // Of two that do not hear each other the later one goes, if both are heard here.
                let goes = host > other;
                goes && self.lease.silence(other, now) < lease && silence > 3 * milliseconds(lease)
            })
    }

    /// Returns whether all members hear a host that is to be admitted.
    fn is_heard_by_all(&self, host: Node, now: BootTime) -> bool {
        let lease = self.hosts.lease;
        self.lease.silence(host, now) < lease
            && self.membership.here().filter(|&other| other != self.me).all(|other| {
                let view = &self.views[usize::from(other)];
                let silence = view.silences.get(usize::from(host)).copied();
                silence.is_some_and(|silence| silence < milliseconds(lease))
            })
    }
}
