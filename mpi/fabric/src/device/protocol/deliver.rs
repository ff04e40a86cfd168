//! Dispatch of frames that have arrived. Nothing in them is believed.

use crate::device::connect::attach::PairMemory;
use crate::device::endpoint::EndpointCore;
use crate::device::members::MemberId;
use crate::device::operation::Envelope;
use crate::device::peer::Peer;
use crate::device::port::Port;
use crate::device::protocol::frame::Frame;
use crate::device::protocol::wire::Arrived;

impl EndpointCore {
    /// Takes a frame; `None`, and one whose words make no sense, is dropped.
    #[inline]
    pub(crate) fn deliver(&mut self, port: &Port, from: MemberId, frame: Option<Arrived>) {
        let Some(arrived) = frame else { return };
        let peer = match self.by_member.get(usize::from(from.place)) {
            Some(Some((uses, peer))) if *uses == from.uses => *peer,
            _ => match self.meet(port, from) {
                Some(peer) => peer,
                None => return,
            },
        };
        let Some(frame) = Frame::decode(&arrived) else { return };
        let envelope = |tag: Option<u64>, data, len, answer| {
            let tagged = tag.is_some();
            Envelope { peer, tag: arrived.tag, tagged, len, data, answer }
        };
        match frame {
            Frame::Eager { tag, data } => {
                self.take_eager(port, envelope(tag, data, arrived.payload.len(), 0), &arrived);
            }
            Frame::EagerFirst { tag, data, len, id } => {
                self.take_eager(port, envelope(tag, data, len as usize, id), &arrived);
            }
            Frame::EagerNext => self.take_eager_next(&arrived, peer),
            Frame::Rts { tag, data, len, id, address } => {
                self.take_rts(envelope(tag, data, len as usize, id), address);
            }
            Frame::Cts { id, receive, wanted } => self.take_cts(peer, id, receive, wanted),
            Frame::RendezvousData { receive, offset } => {
                self.take_rendezvous_data(&arrived, peer, receive, offset);
            }
            Frame::Fin { id } => self.take_fin(peer, id),
            Frame::Write { address, key, id, data, last } => {
                self.take_write(peer, (key, address), id, last, data, arrived.payload);
            }
            Frame::Read { address, key, id, len } => self.take_read(peer, (key, address), id, len),
            Frame::Atomic { operation, address, key, id, count } => {
                let result = self.apply_atomic(operation, address, key, count, arrived.payload.to_vec());
                self.answer_atomic(peer, id, result);
            }
            Frame::Done { id, error } => self.take_done(peer, id, error),
            Frame::AtomicResult { id, error } => {
                self.take_atomic_result(peer, id, error, arrived.payload);
            }
            Frame::RingOffer { descriptor, nonce } => self.take_ring_offer(port, peer, descriptor, nonce),
            Frame::RingSwitch => {
                let Peer { address, offered, .. } = &mut self.peers[peer as usize];
                if let Some(pair) = offered.take() {
                    port.follow(from, *address == self.own, pair);
                }
            }
            Frame::Disconnect => {
                self.by_member[usize::from(from.place)] = None;
                self.peers[peer as usize].member = None;
                port.leave(from);
                self.lose(peer);
            }
        }
    }

    /// Returns the peer that a member is, at its first frame.
    #[cold]
    fn meet(&mut self, port: &Port, from: MemberId) -> Option<u32> {
        let address = port.members.address_of(from)?;
        let peer = self.peer(address);
        self.peers[peer as usize].member = Some(from);
        *self.by_member.get_mut(usize::from(from.place))? = Some((from.uses, peer));
        Some(peer)
    }

    /// Accepts or declines a ring.
    /// One that can't be mapped gets no answer: its sender goes on without it.
    fn take_ring_offer(&mut self, port: &Port, peer: u32, descriptor: u32, nonce: u64) {
        let Peer { address, offered, is_foreign, shared_line, .. } = &mut self.peers[peer as usize];
        let memory = match port.passed_ring(address, nonce) {
            Some(passed) => passed,
            None if *is_foreign => None,
            None => PairMemory::attach(address.pid, descriptor, nonce).ok(),
        };
        if let Some(memory) = memory {
            *offered = port.judge(memory, self.settings.rings, shared_line.as_ref());
        }
    }
}
