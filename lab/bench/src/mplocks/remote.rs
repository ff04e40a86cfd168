//! Locks of servers as a process of a measurement uses them: each has a connection of its
//! own.

use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use towpath_agent::client::Manager;
use towpath_etcd::{Etcd, EtcdLease, EtcdNews, EtcdPlace, EtcdUser, EtcdWish, LEASE};
use towpath_net::{Link, PolledLink};

use super::players::LockPlayer;
use super::servers::{Echo, NAMES};

/// Pause of a waiter for a lock of a Redis, which has no queue.
const RETRY: Duration = Duration::from_millis(1);
/// Time of a lock of a Redis: that of a lease of etcd.
const EXPIRY: Duration = LEASE;
/// Time-out of connecting.
const CONNECT: Duration = Duration::from_secs(5);

/// Sleeps until a descriptor is readable.
pub fn sleep_on(source: impl AsFd) {
    // An interruption has the caller look again.
    let _ = poll(&mut [PollFd::new(&source, PollFlags::IN)], None);
}

/// Lock of an etcd.
pub struct EtcdPlayer {
    etcd: Etcd,
    lease: EtcdLease,
    kept: Cell<Instant>,
}

impl EtcdPlayer {
    /// A client with a lease of its own.
    pub fn new(address: SocketAddr) -> Result<EtcdPlayer, String> {
        let etcd = Etcd::new(&format!("http://{address}")).map_err(|e| e.to_string())?;
        let lease = etcd.grant_lease(LEASE).map_err(|e| e.to_string())?;
        Ok(EtcdPlayer { etcd, lease, kept: Cell::new(Instant::now()) })
    }
}

impl LockPlayer for EtcdPlayer {
    const HAS_SERVER: bool = true;

    fn hold(&self, inside: impl FnOnce()) -> Result<(), String> {
        if self.kept.get().elapsed() > LEASE / 3 {
            let _ = self.etcd.keep_alive(self.lease, LEASE);
            self.kept.set(Instant::now());
        }
        let key = self.etcd.lock("bench", self.lease, None).map_err(|e| e.to_string())?;
        inside();
        self.etcd.unlock(&key).map_err(|e| e.to_string())
    }

    fn part(&self) {
        let _ = self.etcd.revoke(self.lease);
    }
}

/// Lock of an etcd, as `towpath lock --etcd` uses it: its lease is kept alive.
pub struct EtcdPlacePlayer(pub SocketAddr);

impl LockPlayer for EtcdPlacePlayer {
    const HAS_SERVER: bool = true;

    fn hold(&self, inside: impl FnOnce()) -> Result<(), String> {
        let wish = EtcdWish { name: "bench", shared: false, tries: false, user: EtcdUser::default() };
        let place = EtcdPlace::enter(&format!("http://{}", self.0), &wish);
        let mut place = place.map_err(|e| e.to_string())?;
        match place.wait() {
            EtcdNews::Granted { .. } => inside(),
            other => return Err(format!("{other:?}")),
        }
        place.leave();
        Ok(())
    }
}

/// Lock of a Redis: `SET key value NX PX`, asked for again and again.
pub struct RedisPlayer {
    stream: RefCell<BufReader<TcpStream>>,
    owner: String,
}

/// Removes the lock if it is still its owner's.
const RELEASE: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

impl RedisPlayer {
    /// A client.
    pub fn new(address: SocketAddr, me: usize) -> Result<RedisPlayer, String> {
        let stream = TcpStream::connect(address).map_err(|e| e.to_string())?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        Ok(RedisPlayer { stream: RefCell::new(BufReader::new(stream)), owner: format!("process {me}") })
    }

    /// Sends a command, and returns its answer; `None` for nil.
    fn ask(&self, words: &[&str]) -> Result<Option<String>, String> {
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        let mut stream = self.stream.borrow_mut();
        let failed = |e: std::io::Error| format!("redis does not answer: {e}");
        stream.get_mut().write_all(text.as_bytes()).map_err(failed)?;
        let mut line = String::new();
        stream.read_line(&mut line).map_err(failed)?;
        let line = line.trim_end();
        match line.as_bytes().first() {
            Some(b'+' | b':') => Ok(Some(line[1..].to_owned())),
            Some(b'$') => {
                let Ok(len) = line[1..].parse::<usize>() else { return Ok(None) };
                let mut bytes = vec![0; len + 2];
                stream.read_exact(&mut bytes).map_err(failed)?;
                Ok(Some(String::from_utf8_lossy(&bytes[..len]).into_owned()))
            }
            _ => Err(format!("redis refuses: {line}")),
        }
    }
}

impl LockPlayer for RedisPlayer {
    const HAS_SERVER: bool = true;

    fn hold(&self, inside: impl FnOnce()) -> Result<(), String> {
        let expiry = EXPIRY.as_millis().to_string();
        while self.ask(&["SET", "lock", &self.owner, "NX", "PX", &expiry])?.is_none() {
            std::thread::sleep(RETRY);
        }
        inside();
        self.ask(&["EVAL", RELEASE, "1", "lock", &self.owner]).map(drop)
    }
}

/// Lock of the cluster, through an agent.
pub struct HostsPlayer {
    manager: Manager,
    name: RefCell<String>,
}

impl HostsPlayer {
    /// Processes are spread over the hosts where `spread`.
    pub fn new(hosts: &Path, me: usize, spread: bool) -> Result<HostsPlayer, String> {
        let host = if spread { NAMES[me % NAMES.len()] } else { NAMES[0] };
        let manager = Manager::connect_as(hosts, host).map_err(|e| e.to_string())?;
        Ok(HostsPlayer { manager, name: RefCell::new("bench".into()) })
    }

    /// The next acquisition is that of another lock.
    pub fn rename(&self, name: String) {
        self.name.replace(name);
    }
}

impl LockPlayer for HostsPlayer {
    const HAS_SERVER: bool = true;

    fn hold(&self, inside: impl FnOnce()) -> Result<(), String> {
        let lock = self.manager.lock(&self.name.borrow());
        let guard = lock.acquire().map_err(|e| e.to_string())?;
        inside();
        guard.release().map_err(|e| e.to_string())
    }
}

/// Times of frames over a link and back, in nanoseconds.
pub fn round_trips(echo: &Echo, limit: Duration) -> Result<Vec<f64>, String> {
    let link = Link::connect(echo.address, &echo.key, "echo", CONNECT).and_then(Link::polled);
    let mut link: PolledLink = link.map_err(|e| e.to_string())?;
    let (begun, mut times, mut frame) = (Instant::now(), Vec::new(), Vec::new());
    while begun.elapsed() < limit || times.is_empty() {
        let start = Instant::now();
        link.send(&[0; 60]).map_err(|e| e.to_string())?;
        while !link.receive(&mut frame).map_err(|e| e.to_string())? {
            sleep_on(&link);
        }
        times.push(start.elapsed().as_nanos() as f64);
    }
    Ok(times)
}
