//! Threads that make links: one that listens, and one for each host that is dialled.
//!
//! Of two hosts the later one in the hosts file dials. Handshakes block; they belong to these
//! threads, so that the agent's own never waits.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use towpath_mplock::Node;
use towpath_net::{Key, Link, Listener, PolledLink};

use crate::Error;

/// Maximum number of handshakes of peers that have not shown the key yet.
const HANDSHAKES: u32 = 64;
/// Pause between two attempts to reach a host.
const PAUSE: Duration = Duration::from_millis(100);

/// Link that was made. `dialled`: the host, if this one has dialled it.
#[derive(Debug)]
pub(crate) struct NewLink {
    pub link: PolledLink,
    pub dialled: Option<Node>,
}

/// Links that were made, for the agent's thread.
#[derive(Debug)]
pub(crate) struct NewLinks {
    receiver: Receiver<NewLink>,
    bell: Arc<OwnedFd>,
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
    sender: Sender<NewLink>,
    bell: Arc<OwnedFd>,
}

impl Handing {
    fn hand(&self, link: Link, dialled: Option<Node>) {
        if let Ok(link) = link.polled() {
            let _ = self.sender.send(NewLink { link, dialled });
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }
}

impl NewLinks {
    /// Listens at `own`, and dials the hosts before `me`, from now on.
    pub fn begin(me: Node, hosts: &[SocketAddr], key: &Key, purpose: &str) -> Result<NewLinks, Error> {
        let listener = Listener::bind(hosts[usize::from(me)], key, purpose)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::system("making an event")(error.into()))?;
        let (sender, receiver) = channel();
        let bell = Arc::new(bell);
        let handing = Handing { sender, bell: Arc::clone(&bell) };
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let builder = thread::Builder::new().name(name.to_owned());
            builder.spawn(work).map(drop).map_err(Error::system("starting a thread"))
        };
        let accepted = handing.clone();
        spawn("accept", Box::new(move || accept(&listener, &accepted)))?;
        let mut wanted = Vec::new();
        for (host, &address) in (0..me).zip(hosts) {
            let is_wanted = Arc::new(LinkWish { is: Mutex::new(true), changed: Condvar::new() });
            wanted.push(Arc::clone(&is_wanted));
            let (handing, key, purpose) = (handing.clone(), key.clone(), purpose.to_owned());
            spawn("dial", Box::new(move || dial(host, address, &key, &purpose, &is_wanted, &handing)))?;
        }
        Ok(NewLinks { receiver, bell, wanted })
    }

    /// Takes a link that was made.
    pub fn take(&self) -> Option<NewLink> {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
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

/// Becomes readable when a link was made.
impl AsFd for NewLinks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

fn accept(listener: &Listener, handing: &Handing) {
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
        let shake = move || {
            if let Ok(link) = incoming.handshake() {
                handing.hand(link, None);
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
        loop {
            match Link::connect(address, key, purpose, Duration::from_secs(1)) {
                Ok(link) => {
                    handing.hand(link, Some(host));
                    break;
                }
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }
}
