//! Decisions of the quorum on the hosts that take part, and the lease of this one.
//!
//! A decision counts when it is on disk: the epoch before the locks learn of it, so that no token
//! of an earlier epoch follows after a restart. A host that learns of its own removal forgets its
//! locks and comes again as another incarnation.

use towpath_mplock::Node;

use super::{Agent, random, wall_time};
use crate::Error;
use crate::frame::Frame;
use crate::lease::{BootTime, boot_time};
use crate::membership::Applied;

impl Agent {
    /// Hands the lease's state on.
    pub(super) fn look_at_lease(&mut self, now: BootTime) {
        let is_member = self.membership.has(self.me, self.incarnation);
        let valid = is_member
            && !self.membership.is_doomed(self.incarnation)
            && self.lease.valid_until().is_some_and(|until| now < until);
        if valid != self.had_lease {
            self.had_lease = valid;
            self.service.set_valid(valid, wall_time());
            self.carry();
            let text =
                if valid { "has a lease: locks are granted" } else { "has no lease: no lock is granted" };
            let host = self.host().to_owned();
            (self.say)(&format!("{host} {text}"));
        }
    }

    /// Sends the consensus's messages, and applies its decisions.
    pub(super) fn advance_consensus(&mut self) -> Result<(), Error> {
        for (host, bytes) in self.consensus.take_messages() {
            self.send(host, &Frame::Consensus(bytes).encode());
        }
        self.apply_decided()
    }

    pub(super) fn apply_decided(&mut self) -> Result<(), Error> {
        for change in self.consensus.take_decided() {
            let Some(applied) = self.membership.apply(&change) else { continue };
            self.epoch_file.note(self.membership.epoch)?;
            self.service.on_change(applied, &self.membership, wall_time());
            match applied {
                Applied::Removed(host, incarnation) => {
                    self.sessions.remove(&(host, incarnation));
                    if (host, incarnation) == (self.me, self.incarnation) {
                        self.begin_anew()?;
                    }
                }
                Applied::Suspected(_) | Applied::Admitted(_) => {}
            }
            self.carry();
            self.look_at_lease(boot_time());
            if !matches!(applied, Applied::Suspected(_)) {
                let here =
                    self.membership.here().map(|host| self.hosts.hosts[usize::from(host)].name.as_str());
                let here = here.collect::<Vec<_>>().join(", ");
                let epoch = self.membership.epoch;
                (self.say)(&format!(
                    "epoch {epoch}: {}",
                    if here.is_empty() { "no host takes part" } else { &here }
                ));
            }
        }
        Ok(())
    }

    /// Comes again as another incarnation, after this one was removed.
    pub(super) fn begin_anew(&mut self) -> Result<(), Error> {
        self.incarnation = random()?;
        self.lease.begin_anew();
        self.service.reset(self.incarnation, wall_time());
        self.sessions.clear();
        for host in 0..self.links.len() as Node {
            self.lose_link(host);
        }
        Ok(())
    }
}
