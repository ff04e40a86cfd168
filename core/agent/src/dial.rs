//! Threads that make links: one that listens, and one for each host that is dialled.
//!
//! Of two hosts the later one in the hosts file dials. Handshakes block; they belong to these
//! threads, so that the agent's own never waits.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use towpath_mplock::Node;
use towpath_net::{Error as NetError, Key, Link, Listener, PolledLink};

use crate::Error;

/// Maximum number of handshakes of peers that have not shown the key yet.
const HANDSHAKES: u32 = 64;
/// Pause between two attempts to reach a host.
const PAUSE: Duration = Duration::from_millis(100);

/// Number of handshakes that fail in a row after which the agent says so.
///
/// A peer that ends in the middle of one looks as one with another key.
const REFUSALS: u32 = 3;

/// Link that was made, or a peer with which none can be made.
#[derive(Debug)]
pub(crate) enum LinkNews {
    Made(Box<NewLink>),
    Refused(RefusedPeer),
}

/// Peer with another key, another list of hosts, or another version.
#[derive(Debug)]
pub(crate) enum RefusedPeer {
    /// Host that was dialled.
    Dialled(Node),
    /// Address of a process that has dialled.
    Accepted(IpAddr),
}

/// Link that was made. `dialled`: the host, if this one has dialled it.
#[derive(Debug)]
pub(crate) struct NewLink {
    pub link: PolledLink,
    pub dialled: Option<Node>,
}

/// Links that were made, for the agent's thread.
#[derive(Debug)]
pub(crate) struct NewLinks {
    receiver: Receiver<LinkNews>,
    wake_up: Arc<OwnedFd>,
    wanted: Vec<Arc<LinkWish>>,
}

/// Wish for a link to a host.
#[derive(Debug, Default)]
struct LinkWish {
    is: Mutex<bool>,
    changed: Condvar,
}

/// End at which links are handed over.
#[derive(Clone, Debug)]
struct Handing {
    sender: Sender<LinkNews>,
    wake_up: Arc<OwnedFd>,
}

/// Handshakes that have failed in a row, by the address of the process that dialled.
///
/// Only the addresses of the hosts file have a place in it, so strangers fill no log.
#[derive(Debug)]
struct Refusals(Mutex<HashMap<IpAddr, u32>>);

impl Refusals {
    fn of(hosts: &[SocketAddr]) -> Refusals {
        Refusals(Mutex::new(hosts.iter().map(|address| (address.ip(), 0)).collect()))
    }

    /// Counts a failure of an address, or forgets all. `true`: the agent says so.
    fn note(&self, from: IpAddr, fails: bool) -> bool {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = counts.get_mut(&from.to_canonical()) else { return false };
        *count = if fails { count.saturating_add(1) } else { 0 };
        *count == REFUSALS
    }
}

impl Handing {
    fn hand(&self, link: Link, dialled: Option<Node>) {
        if let Ok(link) = link.polled() {
            self.send(LinkNews::Made(Box::new(NewLink { link, dialled })));
        }
    }

    fn send(&self, news: LinkNews) {
        let _ = self.sender.send(news);
        let _ = rustix::io::write(&self.wake_up, &1u64.to_ne_bytes());
    }
}

impl NewLinks {
    /// Listens at `own`, and dials the hosts before `me`, from now on.
    pub fn begin(me: Node, hosts: &[SocketAddr], key: &Key, purpose: &str) -> Result<NewLinks, Error> {
        let listener = Listener::bind(hosts[usize::from(me)], key, purpose)?;
        let wake_up = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::system("making an event")(error.into()))?;
        let (sender, receiver) = channel();
        let wake_up = Arc::new(wake_up);
        let handing = Handing { sender, wake_up: Arc::clone(&wake_up) };
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let builder = thread::Builder::new().name(name.to_owned());
            builder.spawn(work).map(drop).map_err(Error::system("starting a thread"))
        };
        let accepted = handing.clone();
        let refusals = Arc::new(Refusals::of(hosts));
        spawn("accept", Box::new(move || accept(&listener, &refusals, &accepted)))?;
        let mut wanted = Vec::new();
        for (host, &address) in (0..me).zip(hosts) {
            let is_wanted = Arc::new(LinkWish { is: Mutex::new(true), changed: Condvar::new() });
            wanted.push(Arc::clone(&is_wanted));
            let (handing, key, purpose) = (handing.clone(), key.clone(), purpose.to_owned());
            spawn("dial", Box::new(move || dial(host, address, &key, &purpose, &is_wanted, &handing)))?;
        }
        Ok(NewLinks { receiver, wake_up, wanted })
    }

    /// Takes a link that was made, or news of a peer that was refused.
    pub fn take(&self) -> Option<LinkNews> {
        let _ = rustix::io::read(&self.wake_up, &mut [0; 8]);
        self.receiver.try_recv().ok()
    }

    /// Says that the link to a host is lost. A host that this one dials is dialled again.
    pub fn want(&self, host: Node) {
        if let Some(wanted) = self.wanted.get(usize::from(host)) {
            *wanted.is.lock().unwrap_or_else(PoisonError::into_inner) = true;
            wanted.changed.notify_one();
        }
    }
}

/// Becomes readable when there is news.
impl AsFd for NewLinks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake_up.as_fd()
    }
}

fn accept(listener: &Listener, refusals: &Arc<Refusals>, handing: &Handing) {
    let handshakes = Arc::new(AtomicU32::new(0));
    loop {
        let Ok(incoming) = listener.accept() else {
            // Too many open files, or the like: it may pass.
            thread::sleep(PAUSE);
            continue;
        };
        // Relaxed, here and below: a bound, which orders nothing.
        if handshakes.fetch_add(1, Ordering::Relaxed) >= HANDSHAKES {
            handshakes.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (handing, count) = (handing.clone(), Arc::clone(&handshakes));
        let refusals = Arc::clone(refusals);
        let shake = move || {
            let from = incoming.peer().ip();
            match incoming.handshake() {
                Ok(link) => {
                    refusals.note(from, false);
                    handing.hand(link, None);
                }
                Err(NetError::NotOurs(_)) if refusals.note(from, true) => {
                    handing.send(LinkNews::Refused(RefusedPeer::Accepted(from)));
                }
                Err(_) => {}
            }
            count.fetch_sub(1, Ordering::Relaxed);
        };
        if thread::Builder::new().name("handshake".to_owned()).spawn(shake).is_err() {
            handshakes.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn dial(host: Node, address: SocketAddr, key: &Key, purpose: &str, wanted: &LinkWish, handing: &Handing) {
    loop {
        let is = wanted.is.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is = wanted.changed.wait_while(is, |is| !*is).unwrap_or_else(PoisonError::into_inner);
        *is = false;
        drop(is);
        let mut refusals = 0u64;
        loop {
            match Link::connect(address, key, purpose, Duration::from_secs(1)) {
                Ok(link) => {
                    handing.hand(link, Some(host));
                    break;
                }
                Err(NetError::NotOurs(_)) => refusals += 1,
                Err(_) => refusals = 0,
            }
            if refusals == u64::from(REFUSALS) {
                handing.send(LinkNews::Refused(RefusedPeer::Dialled(host)));
            }
            thread::sleep(PAUSE);
        }
    }
}
