//! Outgoing side of an endpoint: a queue for each peer, for frames that find no space.
//!
//! Frames that must go out (answers, the rest of a message) wait in their peer's queue, in order;
//! bytes that the other side asked for wait in `streams`, in no order with messages. Both are sent
//! on as progress is made, so no cycle of full queues stands still.

use crate::device::endpoint::{EndpointCore, QUEUE};
use crate::device::link::SendResult;
use crate::device::operation::Refusal;
use crate::device::peer::ConnectionState;
use crate::device::protocol::frame::Frame;
use crate::device::protocol::stream::{Queued, Stream};
use crate::device::protocol::wire::PayloadSource;
use crate::device::resource::completion::error;

/// Number of pieces of one stream that are sent before other streams have their turn.
const PIECES: usize = 16;

impl EndpointCore {
    /// Sends an answer: at once if possible, or else as soon as there is space.
    pub(crate) fn post(&mut self, to: u32, frame: Frame, bytes: &[u8]) {
        let peer = match self.connected(to) {
            Ok(peer) => peer,
            Err(Refusal::Again) => return self.post_later(to, frame, bytes),
            Err(_) => return,
        };
        let ConnectionState::Open(link) = &mut peer.connection else { return };
        if peer.queue.is_empty() {
            match link.send(&frame.encode(PayloadSource::Bytes(bytes))) {
                SendResult::Yes => return,
                SendResult::Gone => {
                    self.lost(to);
                    return;
                }
                SendResult::Full => {}
            }
        }
        self.enqueue(to, Queued::Frame(frame, bytes.to_vec()));
    }

    /// Queues an entry for a peer.
    pub(crate) fn enqueue(&mut self, to: u32, entry: Queued) {
        let peer = &mut self.peers[to as usize];
        if peer.queue.is_empty() {
            self.busy.push(to);
        }
        peer.queue.push_back(entry);
    }

    /// Checks that a peer can be sent to, for operations that always queue.
    /// Connects to it.
    pub(crate) fn check(&mut self, to: u32) -> Result<(), Refusal> {
        let result = match self.connected(to) {
            Ok(peer) if peer.queue.len() >= QUEUE => Err(Refusal::Again),
            result => result.map(|_| ()),
        };
        self.activity.tried(&result);
        result
    }

    /// Starts sending bytes that the other side asked for.
    pub(crate) fn stream(&mut self, to: u32, mut stream: Stream) {
        let ConnectionState::Open(link) = &mut self.peers[to as usize].connection else {
            // The peer asked without our ever having sent to it: connect first.
            if !matches!(self.check(to), Err(Refusal::Unreachable | Refusal::Unknown)) {
                self.streams.push_back((to, stream));
            } else if let Some(ticket) = stream.then {
                self.reports.end(&ticket, error::UNREACHABLE);
            }
            return;
        };
        // At once as much as there is space for: then the receiver has something to do.
        match stream.push(link, PIECES) {
            Some(SendResult::Yes) => {
                if let Some(ticket) = stream.then {
                    self.reports.end(&ticket, 0);
                }
            }
            _ => self.streams.push_back((to, stream)),
        }
    }

    /// Sends queued frames and streams, as far as there is space.
    #[cold]
    pub(crate) fn push(&mut self) {
        for peer in core::mem::take(&mut self.busy) {
            self.push_queue(peer);
        }
        for _ in 0..self.streams.len() {
            let Some((to, mut stream)) = self.streams.pop_front() else { return };
            let connection = &mut self.peers[to as usize].connection;
            let ConnectionState::Open(link) = connection else {
                if matches!(connection, ConnectionState::Asking(_)) {
                    self.streams.push_back((to, stream));
                }
                continue;
            };
            match stream.push(link, PIECES) {
                Some(SendResult::Yes) => {
                    if let Some(ticket) = stream.then {
                        self.reports.end(&ticket, 0);
                    }
                }
                Some(SendResult::Gone) => {
                    if let Some(ticket) = stream.then {
                        self.reports.end(&ticket, error::UNREACHABLE);
                    }
                    self.lost(to);
                }
                Some(SendResult::Full) | None => self.streams.push_back((to, stream)),
            }
        }
    }

    /// Sends one peer's queue, as far as there is space.
    pub(crate) fn push_peer(&mut self, to: u32) {
        self.busy.retain(|&p| p != to);
        self.push_queue(to);
    }

    fn push_queue(&mut self, to: u32) {
        loop {
            let peer = &self.peers[to as usize];
            if matches!(peer.connection, ConnectionState::Asking(_)) && !self.ask_again(to) {
                return;
            }
            let peer = &mut self.peers[to as usize];
            let ConnectionState::Open(link) = &mut peer.connection else { return };
            let sent = match peer.queue.front_mut() {
                None => return,
                Some(Queued::Frame(frame, bytes)) => link.send(&frame.encode(PayloadSource::Bytes(bytes))),
                Some(Queued::Stream(stream)) => stream.push(link, PIECES).unwrap_or(SendResult::Full),
            };
            match sent {
                SendResult::Yes => {
                    if let Some(Queued::Stream(Stream { then: Some(ticket), .. })) = peer.queue.pop_front() {
                        self.reports.end(&ticket, 0);
                    }
                }
                SendResult::Full => {
                    self.busy.push(to);
                    return;
                }
                SendResult::Gone => {
                    self.lost(to);
                    return;
                }
            }
        }
    }
}
