//! The rendezvous protocol: messages that stay at their sender until there is a receive.
//!
//! ```text
//! sender                       receiver
//! Rts            ──────────>   matches a receive, then either
//!                              copies the bytes out of the sender's memory (CopyMode::Direct)
//!                <──────────   Fin
//!                              or asks for them (CopyMode::Pipelined)
//!                <──────────   Cts
//! RendezvousData ──────────>   … until all have come
//! ```
//!
//! **Source.** Gropp & Lusk 1997, §3. **A death** of either side ends the send or the receive with
//! an error ([`EndpointCore::lose`]). A number from a peer (an id, an address, a length) is
//! checked, or is read from the peer's own memory only.

use crate::device::endpoint::EndpointCore;
use crate::device::operation::{Active, Envelope, HeldSend, Receive, SendRequest};
use crate::device::peer::Peer;
use crate::device::protocol::cross_memory;
use crate::device::protocol::frame::Frame;
use crate::device::protocol::stream::{Queued, Stream, StreamKind, TransferSource};
use crate::device::protocol::wire::Arrived;
use crate::device::tune::copy_mode::{CopyMode, CopyTrial, PairPlacement, now};
use crate::device::tune::settings::Settings;

impl EndpointCore {
    /// Queues the request to send a message, which is kept until the receiver answers.
    pub(crate) fn request_to_send(&mut self, request: &SendRequest<'_>) {
        let SendRequest { peer, tag, buffer, data, ticket, .. } = *request;
        let source = TransferSource::new(buffer, request.inject);
        let address = source.address();
        let id = self.held.insert(HeldSend { peer, source, ticket });
        let frame = Frame::Rts { tag, data, len: buffer.len() as u64, id, address };
        self.enqueue(peer, Queued::Frame(frame, Vec::new()));
    }

    /// Takes a receiver's request for a message of ours.
    pub(crate) fn take_cts(&mut self, peer: u32, id: u64, receive: u64, wanted: u64) {
        let Some(held) = self.take_held(peer, id) else { return };
        let kind = StreamKind::Rendezvous { receive };
        let end = held.source.len().min(wanted as usize);
        self.stream(peer, Stream { kind, source: held.source, at: 0, end, then: Some(held.ticket) });
    }

    /// Takes a receiver's word that a message of ours has been matched, or is not wanted.
    pub(crate) fn take_fin(&mut self, peer: u32, id: u64) {
        if let Some(held) = self.take_held(peer, id) {
            self.reports.end(&held.ticket, 0);
        }
    }

    /// Takes out the message to this peer with this id, if there is one.
    fn take_held(&mut self, peer: u32, id: u64) -> Option<HeldSend> {
        if self.held.get_mut(id)?.peer == peer { self.held.remove(id) } else { None }
    }

    /// Takes a request to send.
    pub(crate) fn take_rts(&mut self, envelope: Envelope, address: u64) {
        let Envelope { peer, tag, tagged, len, .. } = envelope;
        let space = if tagged { &mut self.tagged } else { &mut self.untagged };
        match space.find_posted(peer, tag) {
            Some(place) => {
                let receive = self.take_receive(tagged, place, len);
                self.fetch(receive, &envelope, address);
            }
            None => self.keep_unexpected(envelope, address),
        }
    }

    /// Gets the bytes of a message that its sender keeps at this address (0: scattered).
    pub(crate) fn fetch(&mut self, receive: Receive, envelope: &Envelope, address: u64) {
        let wanted = envelope.len.min(receive.buffer.len());
        let id = envelope.answer;
        if wanted == 0 {
            self.post(envelope.peer, Frame::Fin { id }, &[]);
            return self.finish(&receive, envelope, 0);
        }
        let peer = envelope.peer;
        let (mode, mut trial) =
            if address == 0 { (CopyMode::Pipelined, None) } else { self.copy_mode(peer, wanted) };
        if mode == CopyMode::Direct {
            let from = &mut self.peers[peer as usize];
            match cross_memory::read(from.address.pid, address as usize, &receive.buffer, wanted) {
                // If the pid had been given to another process the bytes could be that one's: a
                // sender that lives now has had its pid all the time.
                Ok(()) if !from.is_dead_now() => {
                    self.copy_modes.moved(wanted);
                    if let Some(trial) = &trial {
                        self.copy_modes.arrived(trial, now());
                    }
                    self.post(peer, Frame::Fin { id }, &[]);
                    return self.finish(&receive, envelope, 0);
                }
                // The bytes can still be sent. This system has no such copies.
                Err(libc::ENOSYS) => self.copy_modes.refuse(),
                // This peer may not be read, or is dead.
                Ok(()) | Err(_) => from.no_direct = true,
            }
            trial = None;
        }
        let active = Active { receive, envelope: *envelope, came: 0, wanted, trial };
        let receive = self.active.insert(active);
        self.post(peer, Frame::Cts { id, receive, wanted: wanted as u64 }, &[]);
    }

    /// Takes bytes that a receive or a read of ours asked for.
    pub(crate) fn take_rendezvous_data(&mut self, frame: &Arrived, peer: u32, id: u64, offset: u64) {
        let Some(active) = self.active.get_mut(id) else {
            return self.take_read_data(frame, peer, id, offset);
        };
        if active.envelope.peer != peer || offset != active.came as u64 {
            return;
        }
        let room = active.wanted - active.came;
        if frame.payload.len() > room {
            return;
        }
        frame.payload.copy_to(&active.receive.buffer, active.came);
        active.came += frame.payload.len();
        self.copy_modes.moved(frame.payload.len());
        if active.came == active.wanted
            && let Some(active) = self.active.remove(id)
        {
            if let Some(trial) = &active.trial {
                self.copy_modes.arrived(trial, now());
            }
            self.finish(&active.receive, &active.envelope, 0);
        }
    }

    /// Returns whether a peer's memory can be read directly, as far as is known.
    pub fn may_read(&self, peer: &Peer) -> bool {
        !peer.no_direct && !self.copy_modes.is_refused()
    }

    /// Chooses how the bytes of a contiguous message come, and whether that is measured.
    fn copy_mode(&mut self, peer: u32, wanted: usize) -> (CopyMode, Option<CopyTrial>) {
        let peer = &self.peers[peer as usize];
        if !self.may_read(peer) {
            return (CopyMode::Pipelined, None);
        }
        let Settings { direct, direct_oversubscribed, .. } = self.settings;
        match if self.oversubscribed { direct_oversubscribed } else { direct } {
            Some(from) if from != 0 && wanted >= from => (CopyMode::Direct, None),
            Some(_) => (CopyMode::Pipelined, None),
            None => {
                let placement = if peer.address == self.own {
                    PairPlacement::Own
                } else if self.oversubscribed {
                    PairPlacement::Oversubscribed
                } else {
                    PairPlacement::Apart
                };
                self.copy_modes.choose(placement, wanted, now)
            }
        }
    }
}
