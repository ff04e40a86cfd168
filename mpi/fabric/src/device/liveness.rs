//! Deaths and departures.
//!
//! A process that is seen from here is watched by its pid; one that is not, by the connections that
//! were made at descriptor listeners ([`fd_listener`](crate::device::connect::fd_listener)): its
//! own to us, and ours to it.
//!
//! A peer that dies, or says good-bye, takes with it what is under way with it: each operation ends
//! with an error. Its earlier messages still arrive.

use std::time::Duration;

use towpath_machine::{Native, Processor};
use towpath_shm::Watch;

use crate::device::connect::layout::MEMBERS;
use crate::device::endpoint::{Endpoint, EndpointCore};
use crate::device::operation::{PartialBody, Refusal};
use crate::device::peer::{ConnectionState, Peer};
use crate::device::protocol::frame::Frame;
use crate::device::protocol::stream::Queued;
use crate::device::resource::completion::error;

/// Number of peers checked for liveness in a tick.
/// A full scan would dominate the cost when many ranks share few cores.
const AT_A_TIME: usize = 16;
/// Number of unused places in a row after which the scan of places ends. The first free
/// place is taken first, so those behind are unused too.
const UNUSED: usize = 16;

impl Endpoint {
    /// Checks for events that progress does not see: deaths (with more than 16 peers
    /// several ticks see all of them), and places in the queue whose senders stopped.
    #[cold]
    pub fn look_after(&mut self) {
        self.port.serve();
        let lost = self.port.lost();
        let own = self.core.own;
        let (mut dead, mut closed) = (Vec::new(), Vec::new());
        let count = self.core.peers.len();
        let first = self.looked_at;
        self.looked_at = if first + AT_A_TIME < count { first + AT_A_TIME } else { 0 };
        let turn = first..count.min(first + AT_A_TIME);
        let watches = self.core.peers[turn.clone()].iter_mut().filter(|p| !p.dead).filter_map(Peer::watch);
        // Asked for all at once, since hardly ever any is.
        let any_dead = Watch::any_dead(watches);
        for (number, peer) in turn.clone().zip(&mut self.core.peers[turn]).filter(|(_, p)| !p.dead) {
            let is_dead = if peer.is_foreign {
                lost.contains(&peer.address) || peer.is_lost(&own)
            } else {
                any_dead && peer.is_dead_now()
            };
            if is_dead {
                dead.push(number as u32);
            } else if !peer.gone
                && matches!(&peer.connection, ConnectionState::Open(link) if link.is_closed())
            {
                // One that never sent to us says no good-bye.
                closed.push(number as u32);
            }
        }
        if !dead.is_empty() || !closed.is_empty() {
            // Their messages come first.
            while self.progress() > 0 {}
        }
        for number in closed {
            self.core.lose(number);
        }
        self.port.look_after(!dead.is_empty());
        for number in dead {
            while self.progress() > 0 {}
            self.core.bury(number);
            if let Some(member) = self.core.peers[number as usize].member.take() {
                self.core.by_member[usize::from(member.place)] = None;
                self.port.leave(member);
            }
        }
        // Members that died before they had sent anything.
        let mut unused = 0;
        for place in 0..MEMBERS {
            if self.port.members.is_unused(place) {
                unused += 1;
                if unused >= UNUSED {
                    break;
                }
                continue;
            }
            unused = 0;
            if self.core.by_member[place].is_some() || self.port.members.dead_member(place).is_none() {
                continue;
            }
            // Or so it seems: a visitor that came and went may have said something meanwhile.
            while self.progress() > 0 {}
            if self.core.by_member[place].is_none()
                && let Some(member) = self.port.members.dead_member(place)
            {
                self.port.leave(member);
            }
        }
    }

    /// Says good-bye, and takes nothing more.
    pub fn close(&mut self) {
        // Queued frames go out as long as peers make space, and answers to peers that have not
        // answered yet when they do: they look every ten milliseconds.
        for round in 0..1100 {
            self.progress();
            let waits =
                |peer: &Peer| matches!(peer.connection, ConnectionState::Asking(_)) && !peer.queue.is_empty();
            if !self.is_stuck() || round >= 1000 && !self.core.peers.iter().any(waits) {
                break;
            }
            if round < 1000 {
                Native::with_id(0).delay(1000);
            } else {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        for peer in 0..self.core.peers.len() as u32 {
            let open = matches!(self.core.peers[peer as usize].connection, ConnectionState::Open(_));
            if open && !self.core.peers[peer as usize].gone {
                self.core.post(peer, Frame::Disconnect, &[]);
            }
        }
        self.port.close();
    }
}

impl EndpointCore {
    /// Ends operations with a peer that takes no more frames. Returns the refusal for its
    /// senders.
    #[cold]
    pub(crate) fn lost(&mut self, peer: u32) -> Refusal {
        self.lose(peer);
        Refusal::Unreachable
    }

    /// Ends operations under way with a peer that is gone.
    #[cold]
    pub(crate) fn lose(&mut self, number: u32) {
        let peer = &mut self.peers[number as usize];
        if core::mem::replace(&mut peer.gone, true) {
            return;
        }
        let queue = core::mem::take(&mut peer.queue);
        peer.assembly = None;
        peer.offered = None;
        let mut tickets = Vec::new();
        for queued in queue {
            if let Queued::Stream(stream) = queued {
                tickets.extend(stream.then);
            }
        }
        let streams = core::mem::take(&mut self.streams);
        for (to, stream) in streams {
            if to == number {
                tickets.extend(stream.then);
            } else {
                self.streams.push_back((to, stream));
            }
        }
        for held in self.held.numbers(|held| held.peer == number) {
            tickets.extend(self.held.remove(held).map(|h| h.ticket));
        }
        for operation in self.onesided.numbers(|o| o.peer == number) {
            tickets.extend(self.onesided.remove(operation).map(|o| o.ticket));
        }
        for ticket in tickets {
            self.reports.end(&ticket, error::UNREACHABLE);
        }
        for active in self.active.numbers(|a| a.envelope.peer == number) {
            if let Some(active) = self.active.remove(active) {
                self.finish(&active.receive, &active.envelope, error::UNREACHABLE);
            }
        }
        for space in [&mut self.tagged, &mut self.untagged] {
            for place in space.search_waiting(|source, _| source == number) {
                if let Some(message) = space.waiting_mut(place)
                    && !matches!(&message.body, PartialBody::Bytes(bytes) if bytes.len() >= message.envelope.len)
                {
                    message.body = PartialBody::Lost;
                }
            }
        }
    }

    /// Ends receives that wait for a dead peer alone.
    #[cold]
    fn bury(&mut self, number: u32) {
        self.lose(number);
        let peer = &mut self.peers[number as usize];
        peer.connection = ConnectionState::Closed;
        peer.dead = true;
        peer.watch = None;
        peer.shared_line = None;
        for tagged in [true, false] {
            loop {
                let space = if tagged { &mut self.tagged } else { &mut self.untagged };
                let Some(place) = space.search_posted(|pattern, _| pattern.source == number) else { break };
                let Some(receive) = space.take_posted(place) else { break };
                self.fail_receive(&receive, error::UNREACHABLE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::connect::address::Address;
    use crate::device::tune::settings::Settings;

    #[test]
    fn of_many_peers_all_the_dead_are_found_in_a_few_looks() {
        let mut endpoint = Endpoint::open(Settings::default()).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let own = endpoint.port.address;
        let peers: Vec<u32> = (0..3 * AT_A_TIME as u64)
            .map(|n| {
                // Every fourth is ourselves, as it were, and lives.
                let pid = if n % 4 == 0 { own.pid } else { pid };
                endpoint.core.peer(Address { pid, nonce: own.nonce.wrapping_add(n + 1), ..own })
            })
            .collect();
        for _ in 0..3 {
            endpoint.look_after();
        }
        for (n, peer) in peers.into_iter().enumerate() {
            assert_eq!(endpoint.core.peers[peer as usize].dead, n % 4 != 0, "peer {n}");
        }
    }
}
