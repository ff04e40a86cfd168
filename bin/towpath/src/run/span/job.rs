//! A job on several hosts while its ranks run, as one launcher sees it.

use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitStatus;
use std::time::Duration;

use towpath_hosts::{Gateway, Hosts, News};
use towpath_net::Link;
use towpath_shm::World;

use crate::CommandFailure;
use crate::run::streams::Streams;

use super::failed;
use super::hub::Gathered;
use super::joiner::Joined;
use super::note::{LaunchNote, RankEnd};
use super::ssh::RemoteShell;

/// Place of the hub.
const HUB: usize = 0;

/// Event of a job, for a launcher.
#[derive(Debug)]
pub enum JobEvent {
    /// End of a rank of another host, for the hub.
    Ended(RankEnd),
    /// Signal that the ranks of joiners are to get.
    Signal(i32),
    /// Request to joiners to end their ranks.
    Stop,
    /// A host is lost, whose ranks count as dead. Not after its ranks have ended.
    HostLost {
        /// Name of the host.
        name: String,
        why: String,
        /// Its ranks that have not ended.
        ranks: Vec<u32>,
        /// True if it is the hub.
        is_hub: bool,
    },
    /// The gateway has failed.
    GatewayFailed,
}

/// A job on several hosts.
pub struct Job {
    gateway: Option<Gateway>,
    hosts: Hosts,
    names: Vec<String>,
    /// True for a joiner that the hub has started.
    is_attached: bool,
    /// Ranks of other hosts that have ended, for the hub.
    ended: Vec<bool>,
    /// Hosts that are lost.
    lost: Vec<bool>,
    shells: Vec<RemoteShell>,
    /// Exit code of the job, for joiners.
    over: Option<u8>,
    /// True once the hub has told that the job is over.
    is_ending: bool,
}

impl Job {
    pub fn of_hub(gathered: Gathered) -> Result<(Job, World), CommandFailure> {
        let Gathered { hosts, names, world, links, shells } = gathered;
        let job = Job::new(hosts, names, &world, links, shells, false)?;
        Ok((job, world))
    }

    pub fn of_joiner(joined: Joined, is_attached: bool) -> Result<(Job, World), CommandFailure> {
        let Joined { hosts, terms, world, link } = joined;
        let job = Job::new(hosts, terms.names, &world, vec![(HUB, link)], Vec::new(), is_attached)?;
        Ok((job, world))
    }

    fn new(
        hosts: Hosts,
        names: Vec<String>,
        world: &World,
        links: Vec<(usize, Link)>,
        shells: Vec<RemoteShell>,
        is_attached: bool,
    ) -> Result<Job, CommandFailure> {
        let gateway = Gateway::start(world, hosts.clone(), links).map_err(failed)?;
        let ended = (0..hosts.size()).map(|rank| world.is_local(rank)).collect();
        Ok(Job {
            gateway: Some(gateway),
            ended,
            lost: vec![false; hosts.count()],
            hosts,
            names,
            is_attached,
            shells,
            over: None,
            is_ending: false,
        })
    }

    pub fn is_hub(&self) -> bool {
        self.hosts.me() == HUB
    }

    pub fn is_attached(&self) -> bool {
        self.is_attached
    }

    /// Descriptor that is readable while there are events.
    pub fn source(&self) -> Option<BorrowedFd<'_>> {
        self.gateway.as_ref().map(AsFd::as_fd)
    }

    /// Hands the output of remote shells over.
    pub fn add_streams(&mut self, streams: &mut Streams) {
        for shell in &mut self.shells {
            streams.add_labelled(&mut shell.child);
        }
    }

    /// Name of a rank's host, where that is another one.
    pub fn host_of(&self, rank: u32) -> Option<&str> {
        let host = self.hosts.of_rank(rank);
        if host == self.hosts.me() { None } else { self.names.get(host).map(String::as_str) }
    }

    /// Number of ranks of other hosts that have not ended.
    pub fn running(&self) -> usize {
        self.ended.iter().filter(|ended| !**ended).count()
    }

    /// Returns whether nothing more is to be waited for but local ranks.
    pub fn is_over(&self) -> bool {
        if self.is_hub() { self.running() == 0 } else { self.over.is_some() || self.lost[HUB] }
    }

    /// The exit code of the job, if the hub has told it.
    pub fn code(&self) -> Option<u8> {
        self.over
    }

    fn tell(&self, host: Option<usize>, note: &LaunchNote) {
        if let Some(gateway) = &self.gateway {
            gateway.tell(host, &note.to_bytes());
        }
    }

    /// Tells the hub that a rank of this host has ended.
    pub fn tell_end(&self, end: &RankEnd) {
        if !self.is_hub() {
            self.tell(Some(HUB), &LaunchNote::Ended(end.clone()));
        }
    }

    /// Tells the other hosts of a signal to the hub's launcher.
    pub fn tell_signal(&self, signal: i32) {
        if self.is_hub() {
            self.tell(None, &LaunchNote::Signal(signal));
        }
    }

    /// Tells the other hosts to end their ranks.
    pub fn tell_stop(&self) {
        if self.is_hub() {
            self.tell(None, &LaunchNote::Stop);
        }
    }

    /// The next event, if there is one.
    pub fn next(&mut self) -> Option<JobEvent> {
        loop {
            match self.gateway.as_ref()?.news()? {
                News::Failed => return Some(JobEvent::GatewayFailed),
                News::HostLost { host, why } => {
                    if let Some(event) = self.note_lost(host, why) {
                        return Some(event);
                    }
                }
                News::Note { from, bytes } => {
                    if let Some(event) = LaunchNote::from_bytes(&bytes).and_then(|note| self.note(from, note))
                    {
                        return Some(event);
                    }
                }
            }
        }
    }

    fn note(&mut self, from: usize, note: LaunchNote) -> Option<JobEvent> {
        match note {
            LaunchNote::Ended(end) if self.is_hub() => {
                let is_its = self.hosts.ranks(from).contains(&end.rank);
                let ended = self.ended.get_mut(end.rank as usize).filter(|ended| is_its && !**ended)?;
                *ended = true;
                Some(JobEvent::Ended(end))
            }
            LaunchNote::Signal(signal) if from == HUB => Some(JobEvent::Signal(signal)),
            LaunchNote::Stop if from == HUB => Some(JobEvent::Stop),
            LaunchNote::Over(code) if from == HUB => {
                self.over = Some(code);
                None
            }
            _ => None,
        }
    }

    fn note_lost(&mut self, host: usize, why: String) -> Option<JobEvent> {
        if std::mem::replace(self.lost.get_mut(host)?, true) {
            return None;
        }
        let is_hub = host == HUB;
        let mut ranks = Vec::new();
        for rank in self.hosts.ranks(host) {
            if !std::mem::replace(&mut self.ended[rank as usize], true) {
                ranks.push(rank);
            }
        }
        // Others are lost to a joiner with the hub; and all leave when the job is over.
        let is_news = if self.is_hub() { !ranks.is_empty() } else { is_hub && self.over.is_none() };
        let name = self.names.get(host).cloned().unwrap_or_default();
        is_news.then_some(JobEvent::HostLost { name, why, ranks, is_hub })
    }

    /// Notes the end of a child that is a remote shell: its host is given up, unless the
    /// job is over. `false`: it is none.
    pub fn shell_ended(&mut self, pid: u32) -> bool {
        let Some(at) = self.shells.iter().position(|shell| shell.child.id() == pid) else { return false };
        let mut shell = self.shells.swap_remove(at);
        let status = shell.child.wait();
        if !self.is_ending
            && let Some(gateway) = &self.gateway
        {
            let how = |status: ExitStatus| format!("its remote shell ended ({status})");
            gateway.give_up(shell.host, &status.map_or_else(|error| error.to_string(), how));
        }
        true
    }

    /// Tells the other hosts that the job is over.
    pub fn end(&mut self, code: u8) {
        if self.is_hub() {
            self.is_ending = true;
            self.tell(None, &LaunchNote::Over(code));
        }
    }

    /// Returns whether another host, or a remote shell, has not taken leave yet.
    pub fn has_guests(&self) -> bool {
        let others = || (0..self.hosts.count()).any(|host| host != self.hosts.me() && !self.lost[host]);
        self.is_hub() && (others() || !self.shells.is_empty())
    }

    /// Closes the gateway, and ends remote shells that are left.
    pub fn close(&mut self) {
        if let Some(gateway) = self.gateway.take() {
            gateway.close();
        }
        for shell in &mut self.shells {
            let _ = shell.child.kill();
            let _ = shell.child.wait();
        }
        self.shells.clear();
    }

    /// Longest time that the hub waits for others to take leave, beside the grace time.
    pub const FAREWELL: Duration = Duration::from_secs(5);
}
