//! Three hosts: agents on loopback, in processes of their own.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use towpath_agent::{Agent, HostsFile, cluster_status};
use towpath_net::Key;
use towpath_testkit::free_addresses;

use crate::common::{Directory, Member, Watchdog};

pub const NAMES: [&str; 3] = ["alpha", "beta", "gamma"];

/// Serves as the agent of a host.
pub fn agent(hosts: &str, name: &str) {
    let hosts = HostsFile::read(Path::new(hosts)).unwrap();
    let mut agent = Agent::start(hosts, Some(name), |_| {}).unwrap();
    println!("ready");
    agent.serve(None).unwrap();
}

/// Serves as the agent of a host, and prints its sentences.
pub fn speaker(hosts: &str, name: &str) {
    let hosts = HostsFile::read(Path::new(hosts)).unwrap();
    Agent::start(hosts, Some(name), |line| println!("{line}")).unwrap().serve(None).unwrap();
}

/// Waits for a condition, which the watchdog limits.
pub fn until(mut is: impl FnMut() -> bool) {
    while !is() {
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn signal(member: &Member, signal: Signal) {
    kill_process(Pid::from_raw(member.pid() as i32).unwrap(), signal).unwrap();
}

/// Cluster of agents, whose files are in a directory of its own.
pub struct Cluster<'a> {
    pub dog: &'a Watchdog,
    pub directory: Directory,
    pub agents: Vec<Option<Member>>,
}

impl<'a> Cluster<'a> {
    pub fn start(dog: &'a Watchdog, lease: &str) -> Cluster<'a> {
        Cluster::of(dog, lease, NAMES.len())
    }

    /// Starts a cluster of so many hosts.
    pub fn of(dog: &'a Watchdog, lease: &str, hosts: usize) -> Cluster<'a> {
        let directory = Directory::new();
        Key::generate().write(directory.0.join("key")).unwrap();
        let mut text = format!("key = key\nstate = state\nlease = {lease}\n");
        for (name, address) in NAMES.iter().zip(free_addresses(hosts)) {
            text.push_str(&format!("{name} {address}\n"));
        }
        std::fs::write(directory.0.join("hosts"), text).unwrap();
        let mut cluster = Cluster { dog, directory, agents: vec![] };
        cluster.agents.resize_with(hosts, || None);
        (0..hosts).for_each(|host| cluster.start_agent(host));
        cluster.await_all();
        cluster
    }

    pub fn hosts_path(&self) -> PathBuf {
        self.directory.0.join("hosts")
    }

    /// This program in another role on a host.
    pub fn spawn(&self, role: &str, host: usize, more: &[&str]) -> Member {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(role).arg(self.hosts_path()).arg(NAMES[host]).args(more);
        self.dog.spawn(command)
    }

    pub fn start_agent(&mut self, host: usize) {
        let mut agent = self.spawn("agent", host, &[]);
        assert_eq!(agent.line(), "ready", "{}", agent.finish().2);
        self.agents[host] = Some(agent);
    }

    pub fn kill_agent(&mut self, host: usize) {
        let mut agent = self.agents[host].take().unwrap();
        agent.kill();
        agent.wait();
    }

    /// Waits until all hosts have a lease, as each of them says.
    pub fn await_all(&self) {
        let hosts = HostsFile::read(&self.hosts_path()).unwrap();
        let is_there = |name: &str| {
            let reports = cluster_status(&hosts, Some(name), None);
            reports.is_ok_and(|reports| reports.iter().all(|report| report.lease && report.member))
        };
        until(|| NAMES[..self.agents.len()].iter().all(|name| is_there(name)));
    }

    /// Number of the home of a lock that is used.
    pub fn home(&self, lock: &str) -> usize {
        let hosts = HostsFile::read(&self.hosts_path()).unwrap();
        loop {
            let reports = cluster_status(&hosts, Some(NAMES[0]), Some(lock)).unwrap();
            if let Some(row) = reports.iter().flat_map(|report| &report.locks).next() {
                return usize::from(row.home);
            }
        }
    }
}

/// Sends a line to a session, and returns its answer.
pub fn ask(member: &mut Member, line: &str) -> String {
    tell(member, line);
    member.line()
}

/// Sends a line to a session.
pub fn tell(member: &mut Member, line: &str) {
    writeln!(member.stdin.as_mut().unwrap(), "{line}").unwrap();
}
