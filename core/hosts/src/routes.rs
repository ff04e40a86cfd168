//! Routes: the links of a host, and the items that are on their way into them.

use std::sync::Arc;

use crate::hosts::Hosts;
use crate::item::{self, ALL, Item, ReceivedItem};
use crate::link_queue::LinkQueue;

/// Number of bytes from which a frame is sent, although more may follow.
const FRAME: usize = 128 << 10;

/// Links of this host, and the items that are not sent yet.
#[derive(Debug)]
pub struct Routes {
    pub hosts: Hosts,
    /// Link to each host; hosts other than the hub have one, to the hub.
    links: Vec<Option<(Arc<LinkQueue>, Vec<u8>)>>,
}

impl Routes {
    pub fn new(hosts: Hosts, queues: Vec<(usize, Arc<LinkQueue>)>) -> Routes {
        let mut links: Vec<_> = (0..hosts.count()).map(|_| None).collect();
        for (host, queue) in queues {
            links[host] = Some((queue, Vec::new()));
        }
        Routes { hosts, links }
    }

    /// The frames of the link to a host.
    pub fn link_queue(&self, host: usize) -> Option<&Arc<LinkQueue>> {
        self.links.get(host)?.as_ref().map(|(queue, _)| queue)
    }

    /// Returns whether a host can be told anything.
    pub fn is_linked(&self, host: usize) -> bool {
        self.link_queue(if self.hosts.is_hub() { host } else { 0 }).is_some()
    }

    /// Takes the link to a host out. `false`: there was none any more.
    pub fn unlink(&mut self, host: usize) -> bool {
        self.links[host].take().is_some()
    }

    /// Returns the hosts whose links are silent.
    pub fn silent(&self) -> Vec<usize> {
        let is_silent =
            |&host: &usize| self.link_queue(host).is_some_and(|queue| queue.monitor().is_silent());
        (0..self.links.len()).filter(is_silent).collect()
    }

    /// Tells an item to a host, or to all others.
    pub fn tell(&mut self, to: u16, item: &Item<'_>) {
        let from = self.hosts.me() as u16;
        self.each_link(to, |out| item::write(out, to, from, item));
    }

    /// Passes an item on, at the hub.
    pub fn pass_on(&mut self, received: &ReceivedItem<'_>) {
        for host in 0..self.links.len() {
            if host != usize::from(received.from) && (received.to == ALL || usize::from(received.to) == host)
            {
                self.each_link(host as u16, |out| out.extend_from_slice(received.bytes));
            }
        }
    }

    fn each_link(&mut self, to: u16, write: impl Fn(&mut Vec<u8>)) {
        let is_hub = self.hosts.is_hub();
        for (link, host) in self.links.iter_mut().zip(0u16..) {
            let Some((queue, out)) = link else { continue };
            if !is_hub || to == ALL || to == host {
                write(out);
                if out.len() >= FRAME {
                    queue.add(std::mem::take(out));
                }
            }
        }
    }

    /// Adds the items that are not sent yet to those of the links.
    pub fn flush(&mut self) {
        for (queue, out) in self.links.iter_mut().flatten() {
            if !out.is_empty() {
                queue.add(std::mem::take(out));
            }
        }
    }
}
