//! Hosts of a world in one process.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use towpath_am::{Algorithm, WorldConfig};
use towpath_hosts::{Gateway, Hosts, News};
use towpath_net::{Key, Link, Listener};
use towpath_shm::World;

use crate::LONG;

/// Ends the process if a test takes longer than it may.
pub struct Watchdog(Arc<AtomicBool>);

impl Watchdog {
    pub fn new(test: &'static str) -> Watchdog {
        let done = Arc::new(AtomicBool::new(false));
        let over = done.clone();
        thread::spawn(move || {
            let start = Instant::now();
            while start.elapsed() < 2 * LONG {
                thread::sleep(Duration::from_millis(50));
                if over.load(Relaxed) {
                    return;
                }
            }
            // Not by `eprintln`: that would be captured, and lost with the process.
            let _ = writeln!(std::io::stderr(), "watchdog: {test} does not end");
            std::process::exit(101);
        });
        Watchdog(done)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A link, and its other end.
pub fn link() -> (Link, Link) {
    let key = Key::generate();
    let anywhere: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let listener = Listener::bind(anywhere, &key, "test").unwrap();
    let address = listener.address();
    let other = thread::spawn(move || listener.accept().unwrap().handshake().unwrap());
    let link = Link::connect(address, &key, "test", LONG).unwrap();
    (link, other.join().unwrap())
}

/// Hosts of a world, each with a segment and a gateway.
pub struct Cluster {
    pub hosts: Hosts,
    pub worlds: Vec<World>,
    pub gateways: Vec<Option<Gateway>>,
}

impl Cluster {
    pub fn new(ranks: &[u32], config: &WorldConfig) -> Cluster {
        let hosts = |me| Hosts::new(ranks, me).unwrap();
        assert_eq!(config.processes, hosts(0).size());
        let spec = config.spec(None);
        let world = |host| World::create_part(&spec, hosts(0).ranks(host)).unwrap();
        let worlds: Vec<World> = (0..ranks.len()).map(world).collect();
        let mut of_hub = Vec::new();
        let mut gateways: Vec<Option<Gateway>> = ranks.iter().map(|_| None).collect();
        for host in 1..ranks.len() {
            let (here, there) = link();
            of_hub.push((host, here));
            gateways[host] = Some(Gateway::start(&worlds[host], hosts(host), vec![(0, there)]).unwrap());
        }
        gateways[0] = Some(Gateway::start(&worlds[0], hosts(0), of_hub).unwrap());
        Cluster { hosts: hosts(0), worlds, gateways }
    }

    /// A handle that has entered as this rank.
    pub fn enter(&self, rank: u32) -> World {
        let world = self.worlds[self.hosts.of_rank(rank)].reopen().unwrap();
        world.enter(Some(rank)).unwrap();
        world
    }

    /// Runs `rank` in a thread for each rank.
    pub fn each_rank<R: Send>(&self, rank: impl Fn(World) -> R + Sync) -> Vec<R> {
        thread::scope(|scope| {
            let rank = &rank;
            let start = |n| {
                let world = self.enter(n);
                scope.spawn(move || rank(world))
            };
            let threads: Vec<_> = (0..self.hosts.size()).map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// Waits until a host's segment says so.
    pub fn until(&self, host: usize, says: impl Fn(&World) -> bool) {
        let start = Instant::now();
        while !says(&self.worlds[host]) {
            assert!(start.elapsed() < LONG, "host {host} does not learn of it");
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn next_news(&self, host: usize) -> News {
        let start = Instant::now();
        loop {
            if let Some(news) = self.gateways[host].as_ref().unwrap().news() {
                return news;
            }
            assert!(start.elapsed() < LONG, "no news at host {host}");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A small world: full queues are the rule.
pub fn tiny(ranks: &[u32], algorithm: Algorithm) -> WorldConfig {
    let processes = ranks.iter().sum();
    let (packets, blocks, block_size, segment_bytes) = (16, 4, 1024, 2 << 20);
    WorldConfig { algorithm, packets, blocks, block_size, segment_bytes, ..WorldConfig::new(processes) }
}

pub fn config(ranks: &[u32]) -> WorldConfig {
    WorldConfig::new(ranks.iter().sum())
}
