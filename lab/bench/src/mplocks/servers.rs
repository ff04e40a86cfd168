//! Servers of locks on this host: started for a measurement, and ended with it.
//!
//! They listen on free ports of the loopback, and have their data in a temporary folder
//! (`folder.rs`). One that is not installed is not measured; `scripts/install-lock-servers.sh`
//! installs them.
//!
//! # Safety
//!
//! The module only prepares processes: that a server dies with its parent.
#![allow(unsafe_code)]

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};
use towpath_agent::{Agent, HostsFile, cluster_status};
use towpath_host::Error;
use towpath_host::process::fork_on;
use towpath_net::{Key, Listener};

/// Time-out of a server's start.
const PATIENCE: Duration = Duration::from_secs(20);
/// Names of the hosts of the cluster.
pub const NAMES: [&str; 3] = ["a", "b", "c"];

/// A server that runs, and is ended with it.
pub struct LockServer {
    child: Child,
    /// Its address.
    pub address: SocketAddr,
}

impl Drop for LockServer {
    fn drop(&mut self) {
        // Both fail only where it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Folder in which `scripts/install-lock-servers.sh` installs.
fn installed_folder() -> Option<PathBuf> {
    Some(towpath_launch::data_folder()?.join("towpath/peers/lock-servers/usr"))
}

/// Finds an installed server; the error says how to install it.
fn find(program: &str) -> Result<PathBuf, Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/bin", "/usr/sbin"].map(PathBuf::from));
    folders.extend(installed_folder().map(|folder| folder.join("bin")));
    folders
        .into_iter()
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
        .ok_or_else(|| missing_server(program))
}

/// Error where a server is not installed.
pub fn missing_server(program: &str) -> Error {
    let text =
        format!("{program} is not installed: bash scripts/install-lock-servers.sh installs it, without root");
    Error::NotAvailable(text)
}

fn free_address() -> Result<SocketAddr, Error> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    listener.map_err(|e| Error::system("finding a free port", e))
}

fn start(mut command: Command, address: SocketAddr, what: &str) -> Result<LockServer, Error> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: the closure makes one system call, and neither allocates nor takes a lock.
    unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?)) };
    let child = command.spawn().map_err(|e| Error::system(format!("starting {what}"), e))?;
    let mut server = LockServer { child, address };
    let begun = Instant::now();
    while TcpStream::connect(address).is_err() {
        if let Ok(Some(status)) = server.child.try_wait() {
            return Err(Error::NotAvailable(format!("{what} has ended at its start ({status})")));
        }
        if begun.elapsed() > PATIENCE {
            return Err(Error::Stuck {
                seconds: PATIENCE.as_secs(),
                place: format!("{what} did not listen"),
            });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(server)
}

/// Starts an etcd of one member, with its log on disk's place in memory.
pub fn start_etcd(folder: &Path) -> Result<LockServer, Error> {
    let mut command = Command::new(find("etcd")?);
    let (address, peer) = (free_address()?, free_address()?);
    let (url, peer) = (format!("http://{address}"), format!("http://{peer}"));
    command.arg("--data-dir").arg(folder.join("etcd"));
    command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.arg("--initial-cluster").arg(format!("default={peer}"));
    start(command, address, "etcd")
}

/// Starts a Redis that keeps nothing.
pub fn start_redis(folder: &Path) -> Result<LockServer, Error> {
    let mut command = Command::new(find("redis-server")?);
    let address = free_address()?;
    if let Some(usr) = installed_folder() {
        // Libraries of its package, where it is not the system's.
        command.env("LD_LIBRARY_PATH", usr.join("lib/x86_64-linux-gnu"));
    }
    command.args(["--port", &address.port().to_string(), "--bind", "127.0.0.1", "--save", ""]);
    command.args(["--appendonly", "no", "--dir"]).arg(folder);
    start(command, address, "redis-server")
}

/// Three hosts on the loopback: an agent each, in a process of its own.
pub struct Cluster {
    /// Their hosts file, and its path.
    pub hosts: HostsFile,
    pub path: PathBuf,
    _agents: Vec<towpath_host::process::Child>,
}

impl Cluster {
    /// Starts the agents; they have their leases when this returns.
    pub fn start(folder: &Path) -> Result<Cluster, Error> {
        let failed =
            |e: &dyn std::fmt::Display| Error::NotAvailable(format!("the agents can't be started: {e}"));
        Key::generate().write(folder.join("key")).map_err(|e| failed(&e))?;
        let mut text = String::from("key = key\nstate = state\nlease = 1s\n");
        for name in NAMES {
            text.push_str(&format!("{name} {}\n", free_address()?));
        }
        let path = folder.join("hosts");
        std::fs::write(&path, text).map_err(|e| failed(&e))?;
        let hosts = HostsFile::read(&path).map_err(|e| failed(&e))?;
        let mut agents = Vec::new();
        for name in NAMES {
            agents.push(fork_on(None, || match Agent::start(hosts.clone(), Some(name), |_| {}) {
                Ok(mut agent) => i32::from(agent.serve(None).is_err()),
                Err(_) => 1,
            })?);
        }
        let begun = Instant::now();
        let is_ready = || {
            let reports = cluster_status(&hosts, Some(NAMES[0]), None);
            reports.is_ok_and(|reports| reports.iter().all(|report| report.lease && report.epoch == 3))
        };
        while !is_ready() {
            if begun.elapsed() > PATIENCE {
                return Err(Error::Stuck { seconds: PATIENCE.as_secs(), place: "three agents start".into() });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Cluster { hosts, path, _agents: agents })
    }
}

/// A link of the agents' kind, whose other end sends each frame back.
pub struct Echo {
    /// Its address.
    pub address: SocketAddr,
    /// Its key.
    pub key: Key,
    _process: towpath_host::process::Child,
}

impl Echo {
    /// Starts the other end.
    pub fn start() -> Result<Echo, Error> {
        let failed = |e: &dyn std::fmt::Display| Error::NotAvailable(format!("a link can't be made: {e}"));
        let key = Key::generate();
        let listener =
            Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), &key, "echo").map_err(|e| failed(&e))?;
        let address = listener.address();
        let process = fork_on(None, || {
            loop {
                let link = listener.accept().and_then(|it| it.handshake()).and_then(|it| it.polled());
                let Ok(mut link) = link else { continue };
                let mut frame = Vec::new();
                loop {
                    super::remote::sleep_on(&link);
                    match link.receive(&mut frame) {
                        Ok(true) if link.send(&frame).is_ok() => {}
                        Ok(false) => {}
                        _ => break,
                    }
                }
            }
        })?;
        Ok(Echo { address, key, _process: process })
    }
}
