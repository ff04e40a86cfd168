//! The eager protocol: messages that are sent at once, with their payload.
//!
//! ```text
//! one frame fits     Eager
//! longer             EagerFirst, then EagerNext for each further piece
//! ```
//!
//! A sender may have [`Settings::unexpected`] bytes of eager messages at a receiver that have not
//! found their receives; short messages ([`INJECT`]) are not counted. Beyond that, and for messages
//! longer than [`Settings::eager`], the [`rendezvous`](super::rendezvous) protocol is used.
//!
//! **Source.** Gropp & Lusk 1997, §3. **A death** of the sender in the middle of a message: the
//! receive ends with an error ([`EndpointCore::lose`]).

use crate::device::endpoint::{EndpointCore, QUEUE};
use crate::device::link::SendResult;
use crate::device::operation::{
    Active, Envelope, HeldSend, PartialBody, Refusal, SendRequest, UnexpectedMessage,
};
use crate::device::peer::{Assembly, ConnectionState};
use crate::device::port::Port;
use crate::device::protocol::frame::{Frame, LONGEST};
use crate::device::protocol::stream::{Queued, Stream, StreamKind, TransferSource};
use crate::device::protocol::wire::{Arrived, PayloadSource};
use crate::device::tune::settings::{INJECT, Settings};

impl EndpointCore {
    /// Sends a message.
    ///
    /// # Errors
    ///
    /// It was not sent, and nothing will be reported.
    #[inline]
    pub fn send(&mut self, request: &SendRequest<'_>) -> Result<(), Refusal> {
        let result = self.try_send(request);
        self.activity.tried(&result);
        result
    }

    #[inline]
    fn try_send(&mut self, request: &SendRequest<'_>) -> Result<(), Refusal> {
        let Settings { eager, unexpected, ring_after, past_caches, .. } = self.settings;
        let oversubscribed = self.oversubscribed;
        let SendRequest { tag, data, .. } = *request;
        let len = request.buffer.len();
        let peer = self.connected(request.peer)?;
        let ConnectionState::Open(link) = &mut peer.connection else { return Err(Refusal::Unreachable) };
        let is_behind = !peer.queue.is_empty();
        if is_behind {
            if peer.queue.len() >= QUEUE {
                return Err(Refusal::Again);
            }
        } else {
            link.promote(ring_after, past_caches, oversubscribed);
        }
        let is_counted = len > INJECT;
        let has_credit = !is_counted || peer.eager_sent.wrapping_sub(link.taken()) < unexpected;
        if is_behind || len > link.piece().min(eager) || !has_credit || request.matched {
            return self.send_slowly(request, has_credit && len <= eager);
        }
        match link.send(&Frame::Eager { tag, data }.encode(PayloadSource::Part(request.buffer, 0, len))) {
            SendResult::Yes => {
                if is_counted {
                    peer.eager_sent = peer.eager_sent.wrapping_add(len as u64);
                }
                self.activity.called(tag.is_some());
                self.reports.end(&request.ticket, 0);
                Ok(())
            }
            SendResult::Full => Err(Refusal::Again),
            SendResult::Gone => Err(self.lost(request.peer)),
        }
    }

    /// Sends a message that is more than one frame, or comes behind others.
    fn send_slowly(&mut self, request: &SendRequest<'_>, is_eager: bool) -> Result<(), Refusal> {
        if request.buffer.len() > LONGEST {
            return Err(Refusal::TooLong);
        }
        self.activity.called(request.tag.is_some());
        if is_eager {
            return self.send_in_pieces(request);
        }
        self.request_to_send(request);
        self.push_peer(request.peer);
        Ok(())
    }

    /// Sends an eager message in pieces, as far as there is space, and queues the rest.
    fn send_in_pieces(&mut self, request: &SendRequest<'_>) -> Result<(), Refusal> {
        let SendRequest { peer: to, tag, buffer, data, ticket, .. } = *request;
        let len = buffer.len();
        let (id, then) = if request.matched {
            // Reported when the receiver says so; the bytes are sent all the same, so nothing of
            // them is kept.
            let held = HeldSend { peer: to, source: TransferSource::Copy(Vec::new()), ticket };
            (self.held.insert(held), None)
        } else {
            (0, Some(ticket))
        };
        let first = Frame::EagerFirst { tag, data, len: len as u64, id };
        let source = TransferSource::new(buffer, request.inject);
        let mut stream = Stream { kind: StreamKind::Eager, source, at: 0, end: len, then };
        let peer = &mut self.peers[to as usize];
        let ConnectionState::Open(link) = &mut peer.connection else { return Err(Refusal::Unreachable) };
        if len > INJECT {
            peer.eager_sent = peer.eager_sent.wrapping_add(len as u64);
        }
        let mut is_out = false;
        if peer.queue.is_empty() {
            let piece = len.min(link.piece());
            match link.send(&first.encode(stream.source.part(0, piece))) {
                SendResult::Yes => (is_out, stream.at) = (true, piece),
                SendResult::Gone => return Err(self.lost(to)),
                SendResult::Full => {}
            }
        }
        if !is_out {
            self.enqueue(to, Queued::Frame(first, Vec::new()));
        }
        if stream.at < len {
            self.enqueue(to, Queued::Stream(stream));
        } else if let Some(ticket) = then {
            self.reports.end(&ticket, 0);
            return Ok(());
        }
        self.push_peer(to);
        Ok(())
    }

    /// Takes an eager message, or its first piece.
    #[inline(always)]
    pub(crate) fn take_eager(&mut self, port: &Port, envelope: Envelope, frame: &Arrived) {
        let Envelope { peer, tag, tagged, .. } = envelope;
        let space = if tagged { &mut self.tagged } else { &mut self.untagged };
        let whole = frame.payload.len() == envelope.len;
        match space.find_posted(peer, tag) {
            Some(place) => {
                let receive = self.take_receive(tagged, place, envelope.len);
                self.found(port, &envelope);
                if whole {
                    self.fill(&receive, &envelope, frame.payload);
                } else {
                    frame.payload.copy_to(&receive.buffer, 0);
                    let came = frame.payload.len();
                    let active = Active { receive, envelope, came, wanted: envelope.len, trial: None };
                    self.peers[peer as usize].assembly = Some(Assembly::Matched(self.active.insert(active)));
                }
            }
            None => {
                let bytes = frame.payload.to_vec();
                let place =
                    space.keep(peer, tag, UnexpectedMessage { envelope, body: PartialBody::Bytes(bytes) });
                if !whole {
                    self.peers[peer as usize].assembly = Some(Assembly::Waiting(tagged, place));
                }
            }
        }
    }

    /// Takes the next piece of the message that a peer is sending.
    pub(crate) fn take_eager_next(&mut self, frame: &Arrived, peer: u32) {
        let over = match self.peers[peer as usize].assembly {
            None => false,
            Some(Assembly::Matched(number)) => {
                let Some(active) = self.active.get_mut(number) else { return };
                frame.payload.copy_to(&active.receive.buffer, active.came);
                active.came += frame.payload.len();
                let over = active.came >= active.wanted;
                if over && let Some(active) = self.active.remove(number) {
                    self.finish(&active.receive, &active.envelope, 0);
                }
                over
            }
            Some(Assembly::Waiting(tagged, place)) => {
                let space = if tagged { &mut self.tagged } else { &mut self.untagged };
                space.waiting_mut(place).is_none_or(|message| append(message, frame))
            }
            Some(Assembly::Claimed(context)) => {
                self.claimed.get_mut(&context).is_none_or(|message| append(message, frame))
            }
            Some(Assembly::Dropped(left)) => {
                let left = left.saturating_sub(frame.payload.len());
                self.peers[peer as usize].assembly = Some(Assembly::Dropped(left));
                left == 0
            }
        };
        if over {
            self.peers[peer as usize].assembly = None;
        }
    }
}

/// Adds a piece to an unexpected message. Returns whether that was the last one.
fn append(message: &mut UnexpectedMessage, frame: &Arrived) -> bool {
    let PartialBody::Bytes(bytes) = &mut message.body else { return true };
    if bytes.len() + frame.payload.len() <= message.envelope.len {
        bytes.extend_from_slice(&frame.payload.to_vec());
    }
    bytes.len() >= message.envelope.len
}
