//! Links of an agent to the others: greetings, and frames that come.
//!
//! A link counts when both ends have greeted. Each end then sends again the letters that the other
//! one may lack, so letters arrive in order and once over links that come and go ([`Session`]). A
//! link that fails is dialled anew by the host with the larger number. One that was greeted as a
//! former incarnation never counts.

use std::time::Duration;

use towpath_mplock::Node;
use towpath_net::PolledLink;

use super::{Agent, wall_time};
use crate::Error;
use crate::dial::{NewLink, RefusedPeer};
use crate::frame::{AgentLetter, Beat, Doubt, Frame, Greeting};
use crate::lease::BootTime;
use crate::membership::Incarnation;
use crate::report::HostReport;
use crate::session::Session;

/// Time for which a link may exist without a greeting.
const GREETING: Duration = Duration::from_secs(5);

/// Link to another agent.
#[derive(Debug)]
pub(super) struct HostLink {
    pub(super) link: PolledLink,
    pub(super) incarnation: Incarnation,
}

/// Link whose other end has not said which host it is.
#[derive(Debug)]
pub(super) struct NamelessLink {
    pub(super) new: NewLink,
    since: BootTime,
    /// Incarnation as which this agent has greeted.
    greeted_as: Option<Incarnation>,
}

/// News of another agent, from its last beat.
#[derive(Clone, Debug, Default)]
pub(super) struct PeerView {
    pub(super) incarnation: Incarnation,
    pub(super) at: BootTime,
    pub(super) silences: Vec<u64>,
    pub(super) doubts: Vec<Doubt>,
}

impl Agent {
    pub(super) fn on_new_link(&mut self, mut new: NewLink, now: BootTime) {
        if let Some(host) = new.dialled {
            let greeting = self.greeting(host).encode();
            if new.link.send(&greeting).is_err() {
                return self.new_links.want(host);
            }
        }
        let greeted_as = new.dialled.map(|_| self.incarnation);
        self.nameless.push(NamelessLink { new, since: now, greeted_as });
    }

    pub(super) fn on_refused(&mut self, peer: &RefusedPeer) {
        let name = match peer {
            RefusedPeer::Dialled(host) => {
                let host = &self.hosts.hosts[usize::from(*host)];
                format!("the agent of {} ({})", host.name, host.address)
            }
            RefusedPeer::Accepted(address) => format!("an agent at {address}"),
        };
        (self.say)(&format!(
            "no link with {name}: its key, its hosts file or its version of Towpath is another one; \
             give all hosts the same files, and start their agents again"
        ));
    }

    fn greeting(&self, host: Node) -> Frame {
        let known = self.greeted[usize::from(host)];
        let received = self.sessions.get(&(host, known)).map_or(0, Session::received);
        let known = if self.sessions.contains_key(&(host, known)) { known } else { 0 };
        Frame::Greeting(Greeting { host: self.me, incarnation: self.incarnation, known, received })
    }

    pub(super) fn read_nameless(&mut self, now: BootTime) -> Result<(), Error> {
        for mut nameless in std::mem::take(&mut self.nameless) {
            // The other end takes it for the former incarnation's: it would drop the letters of
            // this one, and confirm them. The host is wanted since this one began.
            if nameless.greeted_as.is_some_and(|former| former != self.incarnation) {
                continue;
            }
            let mut frame = Vec::new();
            let dialled = nameless.new.dialled;
            match nameless.new.link.receive(&mut frame) {
                Ok(false) if now < nameless.since + GREETING => self.nameless.push(nameless),
                Ok(true) => match Frame::decode(&frame) {
                    Some(Frame::Greeting(greeting)) => self.on_greeting(nameless.new, &greeting, now)?,
                    _ => dialled.into_iter().for_each(|host| self.new_links.want(host)),
                },
                _ => dialled.into_iter().for_each(|host| self.new_links.want(host)),
            }
        }
        Ok(())
    }

    fn on_greeting(&mut self, new: NewLink, greeting: &Greeting, now: BootTime) -> Result<(), Error> {
        let Greeting { host, incarnation, known, received } = *greeting;
        let NewLink { mut link, dialled } = new;
        let fits = dialled.map_or(host > self.me && usize::from(host) < self.links.len(), |to| to == host);
        if !fits {
            dialled.into_iter().for_each(|host| self.new_links.want(host));
            return Ok(());
        }
        // The answer tells of the session with this incarnation.
        self.greeted[usize::from(host)] = incarnation;
        if dialled.is_none() && link.send(&self.greeting(host).encode()).is_err() {
            return Ok(());
        }
        let session = self.sessions.entry((host, incarnation)).or_default();
        if known == self.incarnation {
            session.on_received(received);
        }
        let failed = session.unknown().any(|(number, kept)| link.send(&lock_frame(number, kept)).is_err());
        self.links[usize::from(host)] = Some(HostLink { link, incarnation });
        self.lease.on_beat(host, now);
        self.consensus.reconnected(host);
        if failed {
            self.lose_link(host);
        }
        // Frames may have come with the greeting.
        self.read_link(host, now)
    }

    pub(super) fn lose_link(&mut self, host: Node) {
        self.links[usize::from(host)] = None;
        self.new_links.want(host);
        for question in self.questions.values_mut() {
            question.awaited.retain(|&awaited| awaited != host);
        }
    }

    pub(super) fn send(&mut self, host: Node, frame: &[u8]) {
        if let Some(link) = &mut self.links[usize::from(host)]
            && link.link.send(frame).is_err()
        {
            self.lose_link(host);
        }
    }

    pub(super) fn read_link(&mut self, host: Node, now: BootTime) -> Result<(), Error> {
        let mut frame = Vec::new();
        while let Some(HostLink { link, incarnation }) = &mut self.links[usize::from(host)] {
            let incarnation = *incarnation;
            match link.flush().and_then(|()| link.receive(&mut frame)) {
                Ok(true) => {
                    if let Some(frame) = Frame::decode(&frame) {
                        self.on_frame(host, incarnation, frame, now)?;
                        // Answers go out before the next frame is read.
                        self.carry();
                    }
                }
                Ok(false) => return Ok(()),
                Err(_) => self.lose_link(host),
            }
        }
        Ok(())
    }

    fn on_frame(
        &mut self,
        host: Node,
        incarnation: Incarnation,
        frame: Frame,
        now: BootTime,
    ) -> Result<(), Error> {
        match frame {
            Frame::Greeting(_) => {}
            Frame::Beat(beat) => self.on_beat(host, incarnation, beat, now),
            Frame::Confirmation(sent) => {
                self.lease.on_confirmation(host, Duration::from_nanos(sent));
                self.look_at_lease(now);
            }
            Frame::Consensus(bytes) => {
                self.consensus.on_message(host, &bytes);
                self.advance_consensus()?;
            }
            Frame::Lock { number, epoch, letter } => {
                let session = self.sessions.entry((host, incarnation)).or_default();
                let is_over =
                    self.membership.is_doomed(incarnation) && !self.membership.has(host, incarnation);
                if session.accept(number)
                    && !is_over
                    && let Some(letter) = AgentLetter::decode(host, &letter)
                {
                    self.service.on_letter(host, epoch, letter, wall_time());
                }
            }
            Frame::Question { number, lock } => {
                let report = self.report(lock.as_deref());
                let bytes = serde_json::to_vec(&report).unwrap_or_default();
                self.send(host, &Frame::Answer(number, bytes).encode());
            }
            Frame::Answer(number, bytes) => {
                if let Some(question) = self.questions.get_mut(&number)
                    && let Ok(report) = serde_json::from_slice::<HostReport>(&bytes)
                {
                    question.awaited.retain(|&awaited| awaited != host);
                    let at = usize::from(host);
                    if let Some(place) = question.reports.get_mut(at) {
                        *place = report;
                    }
                }
            }
        }
        Ok(())
    }

    fn on_beat(&mut self, host: Node, incarnation: Incarnation, beat: Beat, now: BootTime) {
        self.lease.on_beat(host, now);
        if let Some(session) = self.sessions.get_mut(&(host, incarnation)) {
            session.on_received(beat.received);
        }
        let sent = beat.sent;
        let Beat { silences, doubts, .. } = beat;
        self.views[usize::from(host)] = PeerView { incarnation, at: now, silences, doubts };
        if !self.membership.is_doomed(incarnation) {
            self.lease.confirm(host, incarnation, now);
            self.send(host, &Frame::Confirmation(sent).encode());
        }
    }
}

/// Returns the frame of a letter that a session has kept with its epoch.
pub(super) fn lock_frame(number: u64, kept: &[u8]) -> Vec<u8> {
    let (epoch, letter) = kept.split_first_chunk().unwrap_or((&[0; 4], &[]));
    Frame::lock(number, u32::from_le_bytes(*epoch), letter)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use towpath_net::{Key, Listener};
    use towpath_testkit::free_addresses;

    use super::*;
    use crate::hosts::HostsFile;
    use crate::lease::boot_time;

    /// Agent of the last of three hosts, and the first one's listener.
    fn third_of_three() -> (Agent, Listener) {
        let folder = std::env::temp_dir().join(format!("towpath-links-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (path, key) = (folder.join("hosts"), Key::generate());
        let _ = fs::remove_file(folder.join("key"));
        key.write(folder.join("key")).unwrap();
        let [a, b, c] = free_addresses(3)[..] else { unreachable!("three") };
        fs::write(&path, format!("key = key\nstate = state\na {a}\nb {b}\nc {c}\n")).unwrap();
        let hosts = HostsFile::read(&path).unwrap();
        let listener = Listener::bind(a, &key, &hosts.purpose()).unwrap();
        let agent = Agent::start(hosts, Some("c"), |_| {}).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        (agent, listener)
    }

    /// The next link of the agent, which turns meanwhile, and the greeting that it sends.
    fn greeted(agent: &mut Agent, listener: &Listener) -> (PolledLink, Greeting) {
        let mut link = std::thread::scope(|threads| {
            let accepted = threads.spawn(|| listener.accept().unwrap().handshake().unwrap());
            while !accepted.is_finished() {
                agent.turn(None).unwrap();
            }
            accepted.join().unwrap().polled().unwrap()
        });
        let mut frame = Vec::new();
        while !link.receive(&mut frame).unwrap() {
            agent.turn(None).unwrap();
        }
        let Some(Frame::Greeting(greeting)) = Frame::decode(&frame) else { panic!("no greeting") };
        (link, greeting)
    }

    #[test]
    fn link_greeted_as_a_former_incarnation_never_counts() {
        let (mut agent, listener) = third_of_three();
        let (mut stale, former) = greeted(&mut agent, &listener);
        assert_eq!((former.host, former.incarnation), (2, agent.incarnation));
        agent.begin_anew().unwrap();
        // The answer comes late.
        let answer = Frame::Greeting(Greeting { host: 0, incarnation: 7, known: 0, received: 0 }).encode();
        stale.send(&answer).unwrap();
        let (mut link, now) = greeted(&mut agent, &listener);
        assert_eq!((now.host, now.incarnation), (2, agent.incarnation));
        assert_ne!(now.incarnation, former.incarnation);
        let since = boot_time();
        let mut frame = Vec::new();
        while stale.receive(&mut frame).is_ok() {
            agent.turn(None).unwrap();
            assert!(agent.links[0].is_none(), "the former incarnation's link counts");
            assert!(boot_time() < since + 2 * GREETING, "the former incarnation's link stays");
        }
        link.send(&answer).unwrap();
        while agent.links[0].is_none() {
            agent.turn(None).unwrap();
            assert!(boot_time() < since + 4 * GREETING, "no link counts");
        }
    }
}
