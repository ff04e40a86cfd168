//! Processes of an agent's host: their requests, news for them, the status.
//!
//! A process has a connection for each place in a lock's queue, one after the other if the
//! connection stays. The end of a connection is the end of a waiter, or the death of a holder; so
//! is the end of the process whose connection stays. Answers are written without waiting; a process
//! that does not read them is cut off.
//!
//! The status asks all linked agents, and answers when they have, or after [`STATUS`].

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use towpath_mplock::{Mode, Node};

use super::links::lock_frame;
use super::{Agent, wall_time};
use crate::ClusterHost;
use crate::frame::Frame;
use crate::lease::{BootTime, boot_time};
use crate::report::{HostLockRow, HostReport};
use crate::service::{ClientNumber, Leaving, LockEffect, Notice, Wish};
use crate::socket::{AgentLine, ClientLine, LineConnection, MOST_OF_CLIENT, PeerEnded, is_trusted};

/// Time for which a host's answer to the status is waited for.
const STATUS: Duration = Duration::from_millis(500);
/// Maximum number of bytes of the locks in a host's report, but for one lock alone.
const MOST_OF_REPORT: usize = 1 << 20;

/// Connection of a process.
#[derive(Debug)]
pub(super) struct AgentClient {
    pub(super) connection: LineConnection,
    /// Descriptor by which the end of the process is seen.
    pub(super) process: Option<OwnedFd>,
    /// True if the connection stays when a place is left.
    stays: bool,
}

/// Question for the status that is under way.
#[derive(Debug)]
pub(super) struct StatusQuestion {
    pub(super) client: ClientNumber,
    pub(super) reports: Vec<HostReport>,
    pub(super) awaited: Vec<Node>,
    until: BootTime,
}

impl Agent {
    pub(super) fn accept_clients(&mut self) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if is_trusted(&stream)
                        && let Ok(connection) = LineConnection::new(stream, MOST_OF_CLIENT)
                    {
                        self.last_client += 1;
                        let client = AgentClient { connection, process: None, stays: false };
                        self.clients.insert(self.last_client, client);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Too many open files, or the like: the connection stays there, and it may pass.
                Err(_) => return self.rests = true,
            }
        }
    }

    pub(super) fn read_client(&mut self, number: ClientNumber) {
        let Some(AgentClient { connection, .. }) = self.clients.get_mut(&number) else { return };
        connection.flush();
        let lines: Vec<ClientLine> = connection.read_lines();
        let ended = connection.has_ended();
        for line in lines {
            if !self.clients.contains_key(&number) {
                return;
            }
            self.on_line(number, line);
        }
        if ended {
            self.end_client(number);
        }
    }

    /// Forgets a client whose connection or process has ended.
    pub(super) fn end_client(&mut self, number: ClientNumber) {
        self.clients.remove(&number);
        self.questions.retain(|_, question| question.client != number);
        self.service.on_leave(number, Leaving::Died, None, wall_time());
    }

    fn on_line(&mut self, number: ClientNumber, line: ClientLine) {
        let now = wall_time();
        match line {
            ClientLine::Stay { process } => {
                let Some(client) = self.clients.get_mut(&number) else { return };
                match client.connection.peer_process(process) {
                    Ok(process) => (client.stays, client.process) = (true, process),
                    Err(PeerEnded) => self.end_client(number),
                }
            }
            ClientLine::Acquire { lock, shared, tries, process, command } => {
                let mode = if shared { Mode::Shared } else { Mode::Exclusive };
                let wish = Wish { client: number, mode, tries, process, description: command, since: now };
                self.service.on_wish(&lock, wish, now);
            }
            ClientLine::Process(process) => self.service.name_process(number, process),
            ClientLine::Leave { state, data } => {
                let leaving = match state {
                    0 => Leaving::Consistent,
                    1 => Leaving::Unchanged,
                    _ => Leaving::Died,
                };
                self.service.on_leave(number, leaving, data.as_deref(), now);
                // News of this place come before the answer, which parts them from the next one's.
                self.carry();
                if let Some(client) = self.clients.get_mut(&number) {
                    client.connection.write_line(&AgentLine::Left);
                    if !client.stays {
                        self.clients.remove(&number);
                    }
                }
            }
            ClientLine::Status { lock } => self.ask(number, lock),
        }
    }

    /// Sends the letters and news that the locks have ordered.
    pub(super) fn carry(&mut self) {
        for effect in self.service.take_effects() {
            match effect {
                LockEffect::Send(to, letter) => {
                    let Some(member) = self.membership.member(to) else { continue };
                    let epoch = self.membership.epoch;
                    let kept = [&epoch.to_le_bytes()[..], &letter.encode(self.me)].concat();
                    let session = self.sessions.entry((to, member.incarnation)).or_default();
                    let (sequence, kept) = session.send(kept);
                    let frame = lock_frame(sequence, kept);
                    let link = self.links[usize::from(to)].as_ref();
                    if link.is_some_and(|link| link.incarnation == member.incarnation) {
                        self.send(to, &frame);
                    }
                }
                LockEffect::Notify(number, notice) => {
                    let line = match notice {
                        Notice::Granted { token, previous_owner_died, data } => AgentLine::Granted {
                            token: token.get(),
                            previous_owner_died,
                            data: data.map(|data| (data.version().get(), data.bytes().to_vec())),
                        },
                        Notice::Refused => AgentLine::Refused,
                        Notice::NoLease => AgentLine::NoLease,
                        Notice::Lost => AgentLine::Lost,
                        Notice::Regained => AgentLine::Regained,
                    };
                    if let Some(client) = self.clients.get_mut(&number) {
                        client.connection.write_line(&line);
                    }
                }
            }
        }
    }

    pub(super) fn report(&self, lock: Option<&str>) -> HostReport {
        let (locks, omitted) = within(self.service.rows(lock), MOST_OF_REPORT);
        HostReport {
            host: self.host().to_owned(),
            reachable: true,
            member: self.membership.has(self.me, self.incarnation),
            lease: self.had_lease,
            epoch: self.membership.epoch,
            locks,
            omitted,
        }
    }

    fn ask(&mut self, client: ClientNumber, lock: Option<String>) {
        self.last_question += 1;
        let number = self.last_question;
        let absent = |host: &ClusterHost| HostReport {
            host: host.name.clone(),
            reachable: false,
            member: false,
            lease: false,
            epoch: 0,
            locks: Vec::new(),
            omitted: 0,
        };
        let mut reports: Vec<HostReport> = self.hosts.hosts.iter().map(absent).collect();
        reports[usize::from(self.me)] = self.report(lock.as_deref());
        let linked = |&host: &Node| self.links[usize::from(host)].is_some();
        let awaited: Vec<Node> = (0..self.links.len() as Node).filter(linked).collect();
        let until = boot_time() + STATUS;
        self.questions.insert(number, StatusQuestion { client, reports, awaited: awaited.clone(), until });
        let frame = Frame::Question { number, lock }.encode();
        for host in awaited {
            self.send(host, &frame);
        }
    }

    /// Answers the questions whose answers are there, or late.
    pub(super) fn end_questions(&mut self, now: BootTime) {
        let is_over = |question: &StatusQuestion| question.awaited.is_empty() || now >= question.until;
        let over: Vec<u64> = self
            .questions
            .iter()
            .filter(|(_, question)| is_over(question))
            .map(|(&number, _)| number)
            .collect();
        for number in over {
            let Some(question) = self.questions.remove(&number) else { continue };
            if let Some(client) = self.clients.get_mut(&question.client) {
                client.connection.write_line(&AgentLine::Status(question.reports));
            }
        }
    }
}

/// Returns the first locks that fit into so many bytes, and the number of others.
///
/// One at least.
fn within(mut locks: Vec<HostLockRow>, most: usize) -> (Vec<HostLockRow>, usize) {
    let mut bytes = 0;
    let first_too_many = locks.iter().position(|row| {
        bytes += serde_json::to_vec(row).map_or(0, |text| text.len());
        bytes > most
    });
    let count = first_too_many.map_or(locks.len(), |count| count.max(1));
    let omitted = locks.len() - count;
    locks.truncate(count);
    (locks, omitted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_of_many_locks_has_the_first_that_fit() {
        let row = |name: &str| -> HostLockRow {
            let none: [u8; 0] = [];
            let row = serde_json::json!({
                "name": name, "home": 0, "token": 1, "cached": true, "hops": 0, "waited": 0,
                "previous_owner_died": false, "holders": none, "waiters": none, "lost": none,
            });
            serde_json::from_value(row).unwrap()
        };
        let rows = || ["a", "b", "c"].map(row).to_vec();
        let one = serde_json::to_vec(&row("a")).unwrap().len();
        for (most, count) in [(0, 1), (one, 1), (2 * one, 2), (3 * one - 1, 2), (3 * one, 3)] {
            let (locks, omitted) = within(rows(), most);
            assert_eq!((locks.len(), omitted), (count, 3 - count), "{most}");
        }
        assert_eq!(within(Vec::new(), 0), (Vec::new(), 0));
    }
}
