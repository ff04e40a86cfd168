//! What to do with a frame that has arrived. Nothing in it is believed.

use crate::device::connect::attach::PairMemory;
use crate::device::endpoint::{Core, PIECES, Refusal};
use crate::device::peer::{Assembly, Peer, Stream, Way, What};
use crate::device::port::{MemberId, Port};
use crate::device::protocol::frame::{Arrived, Kind, flag};
use crate::device::protocol::receive::{Active, Body, Envelope, Message};
use crate::device::resource::completion::error;
use crate::device::tune::copy_mode::now;

/// The longest message that anybody could mean.
const LONGEST: u64 = 1 << 46;

impl Core {
    /// Takes a frame.
    #[inline]
    pub(crate) fn deliver(&mut self, port: &Port, from: MemberId, frame: Option<Arrived>) {
        let Some(frame) = frame else { return };
        let peer = match self.by_member.get(usize::from(from.place)) {
            Some(Some((uses, peer))) if *uses == from.uses => *peer,
            _ => match self.meet(port, from) {
                Some(peer) => peer,
                None => return,
            },
        };
        let w = frame.words;
        match frame.kind {
            Kind::Eager | Kind::EagerTagged | Kind::EagerData | Kind::EagerDataTagged => {
                let tagged = matches!(frame.kind, Kind::EagerTagged | Kind::EagerDataTagged);
                let data = matches!(frame.kind, Kind::EagerData | Kind::EagerDataTagged).then_some(w[0]);
                let len = frame.payload.len();
                self.eager(port, Envelope { peer, tag: frame.tag, tagged, len, data, answer: 0 }, &frame);
            }
            Kind::Start | Kind::StartTagged if w[0] <= LONGEST && frame.payload.len() as u64 <= w[0] => {
                let tagged = frame.kind == Kind::StartTagged;
                let data = (w[2] & flag::DATA != 0).then_some(w[1]);
                let envelope =
                    Envelope { peer, tag: frame.tag, tagged, len: w[0] as usize, data, answer: w[3] };
                self.eager(port, envelope, &frame);
            }
            Kind::More => self.more(&frame, peer),
            Kind::Request | Kind::RequestTagged if w[0] <= LONGEST && frame.payload.len() == 8 => {
                let tagged = frame.kind == Kind::RequestTagged;
                let data = (w[2] & flag::DATA != 0).then_some(w[1]);
                let envelope =
                    Envelope { peer, tag: frame.tag, tagged, len: w[0] as usize, data, answer: w[3] };
                let mut address = [0; 8];
                frame.payload.copy_to_slice(&mut address);
                let address = u64::from_le_bytes(address);
                let space = if tagged { &mut self.tagged } else { &mut self.untagged };
                match space.find_posted(peer, frame.tag) {
                    Some(place) => {
                        let receive = self.take_receive(tagged, place, envelope.len);
                        self.fetch(receive, &envelope, address);
                    }
                    None => {
                        space.keep(peer, frame.tag, Message { envelope, body: Body::Kept(address) });
                    }
                }
            }
            Kind::Clear => self.cleared(peer, w[0], w[1], w[2]),
            Kind::Bytes => self.bytes(&frame, peer),
            Kind::Finished => {
                if self.held.get_mut(w[0]).is_some_and(|held| held.peer == peer)
                    && let Some(held) = self.held.remove(w[0])
                {
                    self.reports.end(&held.ticket, 0);
                }
            }
            Kind::Write => self.written(peer, &frame),
            Kind::Read => self.asked(peer, &frame),
            Kind::Done => self.done(peer, w[0], w[1]),
            Kind::Atomic => self.atomic(peer, &frame),
            Kind::Found => self.atomic_found(peer, &frame),
            Kind::Slots => {
                let Peer { address, offered, is_foreign, conversation, .. } = &mut self.peers[peer as usize];
                // If they can't be mapped, no answer is an answer: the sender goes on without them.
                let memory = match port.passed_slots(address, w[1]) {
                    Some(passed) => passed,
                    None if *is_foreign => None,
                    None => PairMemory::attach(address.pid, w[0] as u32, w[1]).ok(),
                };
                if let Some(memory) = memory {
                    *offered = port.judge(memory, self.settings.rings, conversation.as_ref());
                }
            }
            Kind::Follow => {
                let Peer { address, offered, .. } = &mut self.peers[peer as usize];
                if let Some(pair) = offered.take() {
                    port.follow(from, *address == self.own, pair);
                }
            }
            Kind::Bye => {
                self.by_member[usize::from(from.place)] = None;
                self.peers[peer as usize].member = None;
                port.leave(from);
                self.lose(peer);
            }
            Kind::Start | Kind::StartTagged | Kind::Request | Kind::RequestTagged => {}
        }
    }

    /// The first frame of a member.
    #[cold]
    fn meet(&mut self, port: &Port, from: MemberId) -> Option<u32> {
        let address = port.address_of(from)?;
        let peer = self.peer(address);
        self.peers[peer as usize].member = Some(from);
        *self.by_member.get_mut(usize::from(from.place))? = Some((from.uses, peer));
        Some(peer)
    }

    /// A message, or its first piece.
    #[inline(always)]
    fn eager(&mut self, port: &Port, envelope: Envelope, frame: &Arrived) {
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
                let place = space.keep(peer, tag, Message { envelope, body: Body::Bytes(bytes) });
                if !whole {
                    self.peers[peer as usize].assembly = Some(Assembly::Waiting(tagged, place));
                }
            }
        }
    }

    /// The next piece of the message that a peer is sending.
    fn more(&mut self, frame: &Arrived, peer: u32) {
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

    /// A receiver asks for a message of ours.
    fn cleared(&mut self, peer: u32, number: u64, to: u64, wanted: u64) {
        if self.held.get_mut(number).is_none_or(|held| held.peer != peer) {
            return;
        }
        let Some(held) = self.held.remove(number) else { return };
        let end = held.source.len().min(wanted as usize);
        let stream =
            Stream { what: What::Bytes { to }, source: held.source, at: 0, end, then: Some(held.ticket) };
        self.stream(peer, stream);
    }

    /// Starts sending bytes that were asked for.
    pub(crate) fn stream(&mut self, to: u32, mut stream: Stream) {
        let Way::Open(link) = &mut self.peers[to as usize].way else {
            // They asked without our ever having sent to them: open the way first.
            if !matches!(self.check(to), Err(Refusal::Unreachable | Refusal::Unknown)) {
                self.streams.push_back((to, stream));
            } else if let Some(ticket) = stream.then {
                self.reports.end(&ticket, error::UNREACHABLE);
            }
            return;
        };
        // At once as much as there is space for: then the receiver has something to do.
        match stream.push(link, PIECES) {
            Some(crate::device::link::Sent::Yes) => {
                if let Some(ticket) = stream.then {
                    self.reports.end(&ticket, 0);
                }
            }
            _ => self.streams.push_back((to, stream)),
        }
    }

    /// Bytes that we asked for.
    fn bytes(&mut self, frame: &Arrived, peer: u32) {
        let number = frame.words[0];
        if let Some(active) = self.active.get_mut(number) {
            if active.envelope.peer != peer || frame.words[1] != active.came as u64 {
                return;
            }
            let room = active.wanted - active.came;
            if frame.payload.len() > room {
                return;
            }
            frame.payload.copy_to(&active.receive.buffer, active.came);
            active.came += frame.payload.len();
            self.choice.moved(frame.payload.len());
            if active.came == active.wanted
                && let Some(active) = self.active.remove(number)
            {
                if let Some(trial) = &active.trial {
                    self.choice.arrived(trial, now());
                }
                self.finish(&active.receive, &active.envelope, 0);
            }
        } else {
            self.read_bytes(frame, peer);
        }
    }
}

/// Adds a piece to a message that waits; whether that was the last.
fn append(message: &mut Message, frame: &Arrived) -> bool {
    let Body::Bytes(bytes) = &mut message.body else { return true };
    if bytes.len() + frame.payload.len() <= message.envelope.len {
        bytes.extend_from_slice(&frame.payload.to_vec());
    }
    bytes.len() >= message.envelope.len
}
