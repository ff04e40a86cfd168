//! Receives: posting, peeking, claiming, cancelling; and the match of a message and a
//! receive.

use crate::device::endpoint::{Endpoint, EndpointCore};
use crate::device::operation::{Active, Envelope, PartialBody, Receive, UnexpectedMessage};
use crate::device::peer::{Assembly, NOT_LISTED};
use crate::device::port::Port;
use crate::device::protocol::frame::Frame;
use crate::device::protocol::matching::{ANY, MatchPattern, Place};
use crate::device::resource::buffers::ArrivedPayload;
use crate::device::resource::completion::{Completion, LAST_OF_BUFFER, WITH_DATA, error};
use crate::device::tune::settings::INJECT;

impl Endpoint {
    /// Posts a receive. It may be fulfilled at once.
    pub fn receive(&mut self, tagged: bool, pattern: MatchPattern, receive: Receive) {
        let Endpoint { port, core, .. } = self;
        core.activity.called(true);
        let space = if tagged { &mut core.tagged } else { &mut core.untagged };
        if receive.multi.is_none() {
            match space.find_waiting(&pattern) {
                None if core.peers.get(pattern.source as usize).is_some_and(|peer| peer.dead) => {
                    core.fail_receive(&receive, error::UNREACHABLE);
                }
                None => {
                    space.post(pattern, receive);
                }
                Some(place) => core.give(port, tagged, place, receive),
            }
            return;
        }
        // Into a buffer for several, as many as wait and fit.
        let posted = space.post(pattern, receive);
        loop {
            let space = if tagged { &mut core.tagged } else { &mut core.untagged };
            if space.posted_mut(posted).is_none() {
                return;
            }
            let Some(place) = space.find_waiting(&pattern) else { return };
            let len = space.waiting_mut(place).map_or(0, |m| m.envelope.len);
            let receive = core.take_receive(tagged, posted, len);
            core.give(port, tagged, place, receive);
        }
    }

    /// Looks for an unexpected message that fits, and reports it as if it were received,
    /// without its bytes. `claim`: keeps it for the receive that claims it with the same context.
    /// `discard`: throws it away.
    pub fn peek(
        &mut self,
        tagged: bool,
        pattern: MatchPattern,
        receive: &Receive,
        claim: bool,
        discard: bool,
    ) {
        // Without making progress: MPICH, which has other ways to receive too, relies on a
        // message's becoming visible only when it reads the completion queue.
        let Endpoint { port, core, .. } = self;
        let space = if tagged { &mut core.tagged } else { &mut core.untagged };
        let mut found = space.find_waiting(&pattern);
        if pattern.source == ANY && core.settings.look_twice {
            let is_first = core.peeks.hides(core.activity.calls);
            let other = |place| {
                space.envelope(place).is_some_and(|(peer, _)| core.peers[peer as usize].address != core.own)
            };
            if found.is_some_and(|place| is_first && other(place)) {
                found = None;
            } else if found.is_some() {
                core.peeks.found();
            }
        }
        let report = |e: &Envelope, listed: u64| Completion {
            context: receive.context,
            flags: receive.flags | if e.data.is_some() { WITH_DATA } else { 0 },
            len: e.len,
            data: e.data.unwrap_or(0),
            tag: e.tag,
            source: listed,
            ..Completion::default()
        };
        let Some(place) = found else {
            let none = Completion {
                context: receive.context,
                flags: receive.flags,
                tag: pattern.tag,
                source: NOT_LISTED,
                error: error::NO_MESSAGE,
                ..Completion::default()
            };
            core.reports.tell(true, none);
            return;
        };
        let Some(envelope) = space.waiting_mut(place).map(|m| m.envelope) else { return };
        let listed = core.peers[envelope.peer as usize].listed;
        if claim || discard {
            let Some(message) = core.take_message(tagged, place) else { return };
            if claim {
                // Its bytes may still be coming: see `EndpointCore::more`.
                if let Some(Assembly::Waiting(..)) = core.peers[envelope.peer as usize].assembly
                    && let PartialBody::Bytes(bytes) = &message.body
                    && bytes.len() < envelope.len
                {
                    core.peers[envelope.peer as usize].assembly = Some(Assembly::Claimed(receive.context));
                }
                core.claimed.insert(receive.context, message);
            } else {
                core.discard(port, message);
            }
        }
        core.reports.tell(true, report(&envelope, listed));
    }

    /// Receives the message that a peek with this context has claimed, or throws it away.
    /// `false`: there is none.
    pub fn claimed(&mut self, receive: Receive, discard: bool) -> bool {
        let Endpoint { port, core, .. } = self;
        let Some(message) = core.claimed.remove(&receive.context) else { return false };
        if discard {
            let envelope = message.envelope;
            core.discard(port, message);
            let report = Completion {
                context: receive.context,
                flags: receive.flags,
                tag: envelope.tag,
                source: core.peers[envelope.peer as usize].listed,
                ..Completion::default()
            };
            core.reports.tell(receive.notify, report);
        } else {
            core.join(port, message, receive);
        }
        true
    }

    /// Takes a posted receive back. Whether there was one with this context.
    pub fn cancel(&mut self, context: usize) -> bool {
        for tagged in [true, false] {
            let space = if tagged { &mut self.core.tagged } else { &mut self.core.untagged };
            if let Some(place) = space.search_posted(|_, r| r.context == context)
                && let Some(receive) = space.take_posted(place)
            {
                self.core.fail_receive(&receive, error::CANCELLED);
                return true;
            }
        }
        false
    }
}

impl EndpointCore {
    /// Takes the receive that a message of this length has matched, or the part of it
    /// that the message gets.
    #[inline]
    pub(crate) fn take_receive(&mut self, tagged: bool, place: Place, len: usize) -> Receive {
        let space = if tagged { &mut self.tagged } else { &mut self.untagged };
        let multi = match space.posted_mut(place) {
            Some(Receive { multi: Some(multi), .. }) => multi.clone(),
            _ => return space.take_posted(place).expect("the place was just found"),
        };
        let whole = space.posted_mut(place).expect("the place was just found");
        let mut part = whole.clone();
        part.buffer = whole.buffer.without_first(multi.used.get());
        multi.used.set(multi.used.get() + len.min(part.buffer.len()));
        multi.filling.set(multi.filling.get() + 1);
        if whole.buffer.len() - multi.used.get() < self.min_multi.max(1) {
            multi.spent.set(true);
            space.take_posted(place);
        }
        part
    }

    /// Takes a waiting message out.
    fn take_message(&mut self, tagged: bool, place: Place) -> Option<UnexpectedMessage> {
        let space = if tagged { &mut self.tagged } else { &mut self.untagged };
        space.take_waiting(place)
    }

    /// Gives a waiting message to a receive.
    fn give(&mut self, port: &Port, tagged: bool, place: Place, receive: Receive) {
        let Some(message) = self.take_message(tagged, place) else { return };
        self.join(port, message, receive);
    }

    /// A message and its receive.
    fn join(&mut self, port: &Port, message: UnexpectedMessage, receive: Receive) {
        let UnexpectedMessage { envelope, body } = message;
        match body {
            PartialBody::Bytes(bytes) if bytes.len() >= envelope.len => {
                self.found(port, &envelope);
                self.fill(&receive, &envelope, ArrivedPayload::of(&bytes));
            }
            PartialBody::Bytes(bytes) => {
                // The rest is still coming, and goes where it belongs.
                self.found(port, &envelope);
                ArrivedPayload::of(&bytes).copy_to(&receive.buffer, 0);
                let active =
                    Active { receive, envelope, came: bytes.len(), wanted: envelope.len, trial: None };
                let number = self.active.insert(active);
                self.peers[envelope.peer as usize].assembly = Some(Assembly::Matched(number));
            }
            PartialBody::Kept(address) => self.fetch(receive, &envelope, address),
            PartialBody::Lost => self.fail_receive(&receive, error::UNREACHABLE),
        }
    }

    /// An eager message has found its receive: its sender may send more, and perhaps
    /// wants to know.
    #[inline(always)]
    pub(crate) fn found(&mut self, port: &Port, envelope: &Envelope) {
        if envelope.len > INJECT
            && let Some(member) = self.peers[envelope.peer as usize].member
        {
            port.members.add_taken(member, envelope.len as u64);
        }
        if envelope.answer != 0 {
            self.post(envelope.peer, Frame::Fin { id: envelope.answer }, &[]);
        }
    }

    /// A message that is all there.
    #[inline(always)]
    pub(crate) fn fill(&mut self, receive: &Receive, envelope: &Envelope, payload: ArrivedPayload) {
        payload.copy_to(&receive.buffer, 0);
        self.finish(receive, envelope, 0);
    }

    /// Reports a receive.
    #[inline]
    pub(crate) fn finish(&mut self, receive: &Receive, envelope: &Envelope, error: i32) {
        let len = envelope.len.min(receive.buffer.len());
        let excess = envelope.len - len;
        let mut flags = receive.flags;
        let (mut buffer, mut notify) = (0, receive.notify);
        if envelope.data.is_some() {
            flags |= WITH_DATA;
        }
        if let Some(multi) = &receive.multi {
            buffer = receive.buffer.address();
            multi.filling.set(multi.filling.get() - 1);
            if multi.spent.get() && multi.filling.get() == 0 {
                flags |= LAST_OF_BUFFER;
                // Its owner must learn that it is free, whatever else is not reported.
                notify = true;
            }
        }
        let error = if error == 0 && excess > 0 { error::TRUNCATED } else { error };
        let completion = Completion {
            context: receive.context,
            flags,
            len,
            buffer,
            data: envelope.data.unwrap_or(0),
            tag: envelope.tag,
            source: self.peers[envelope.peer as usize].listed,
            error,
            excess,
        };
        self.reports.received(notify, completion);
    }

    /// Reports a receive that found no message.
    pub(crate) fn fail_receive(&mut self, receive: &Receive, error: i32) {
        let flags = receive.flags | if receive.multi.is_some() { LAST_OF_BUFFER } else { 0 };
        let completion = Completion {
            context: receive.context,
            flags,
            source: NOT_LISTED,
            error,
            ..Completion::default()
        };
        self.reports.received(true, completion);
    }

    /// Keeps a request to send in the unexpected queue.
    pub(crate) fn keep_unexpected(&mut self, envelope: Envelope, address: u64) {
        let space = if envelope.tagged { &mut self.tagged } else { &mut self.untagged };
        space.keep(
            envelope.peer,
            envelope.tag,
            UnexpectedMessage { envelope, body: PartialBody::Kept(address) },
        );
    }

    /// Throws a message away.
    fn discard(&mut self, port: &Port, message: UnexpectedMessage) {
        let UnexpectedMessage { envelope, body } = message;
        match body {
            PartialBody::Bytes(bytes) => {
                self.found(port, &envelope);
                if bytes.len() < envelope.len {
                    let left = envelope.len - bytes.len();
                    self.peers[envelope.peer as usize].assembly = Some(Assembly::Dropped(left));
                }
            }
            PartialBody::Kept(_) => self.post(envelope.peer, Frame::Fin { id: envelope.answer }, &[]),
            PartialBody::Lost => {}
        }
    }

    /// The pattern of a receive from a source in the address vector.
    pub fn pattern(source: Option<u32>, tag: u64, ignore: u64) -> MatchPattern {
        MatchPattern { source: source.unwrap_or(ANY), tag, ignore }
    }
}
