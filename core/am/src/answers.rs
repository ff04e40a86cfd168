//! Answers: short messages and announcements of stores between endpoints that answer each
//! other, in the line of the two ([`towpath_channel::answer_line`]).
//!
//! An endpoint that has answered a peer a few times says that it uses the line. From then on each
//! such message goes there while the endpoint may write it, and into a queue otherwise. A poll
//! looks at the lines in which the endpoint expects a message, at most [`MOST_LINES`], and then at
//! its queues; a message of a queue is delivered after those of the lines, which may have been sent
//! before it.
//!
//! Only where the claim algorithm is `towpath`: the others are what their papers say. Not from or
//! to an endpoint that a signal polls, unless it has begun to use the line before.
//!
//! **A receiver that dies** leaves the number of the last request that it has handled: its peer
//! gets a later one back, out of its own copy.

use std::rc::Rc;

use towpath_channel::answer_line::{ANSWER_ARGS, Answer, Unhandled};

use crate::domain::{EndpointStep, Side};
use crate::message::{Direction, Operation, Returned};
use crate::name::Tag;
use crate::outgoing::{OnFull, Outgoing};
use crate::outstanding::Outstanding;
use crate::packet::{Form, MAX_ARGS};
use crate::path::{Handled, PacketContent};
use crate::queue::{Arrival, TICKET};
use crate::state::{Core, Domain, MOST_LINES, PeerEndpoint};

/// Number of polls after a message was sent in a line in which an answer is likely there.
const PATIENCE: u32 = 64;
/// Number of times that an endpoint answers a peer before it uses the line.
const TALKS: u32 = 4;

impl<D: Domain> Core<D> {
    /// Notes that this endpoint has answered a peer by its queue: uses the line from some
    /// time on.
    #[inline(always)]
    pub(crate) fn has_answered(&self, peer: &Rc<PeerEndpoint<D>>) {
        if self.answers.enabled.get() && !peer.talk.end.is_settled() {
            self.use_line_soon(peer);
        }
    }

    #[cold]
    fn use_line_soon(&self, peer: &Rc<PeerEndpoint<D>>) {
        let times = peer.talk.times.get().saturating_add(1);
        peer.talk.times.set(times);
        if times < TALKS {
            return;
        }
        self.change_lines(|lines| {
            // The last incarnation's message is delivered first, out of the same line.
            if lines.iter().any(|other| other.name.endpoint == peer.name.endpoint) {
                return;
            }
            // If there are as many already: one that this endpoint would be next to write goes.
            let rests = lines.iter().position(|other| lines.len() == MOST_LINES && other.talk.end.is_ours());
            if (lines.len() < MOST_LINES || rests.is_some()) && peer.talk.end.attach(self.cpu()) {
                if let Some(at) = rests {
                    lines.swap_remove(at).talk.end.rest();
                }
                lines.push(peer.clone());
            }
        });
    }

    /// Changes the list of lines in use, but not while a message of one of them is being
    /// handled: each change is tried again.
    fn change_lines(&self, act: impl FnOnce(&mut Vec<Rc<PeerEndpoint<D>>>)) {
        if let Ok(mut lines) = self.answers.lines.try_borrow_mut() {
            act(&mut lines);
            self.answers.count.set(lines.len());
        }
    }

    /// Sends a short message in the line, if that is possible now.
    #[inline(always)]
    pub(crate) fn send_in_line(
        &self,
        peer: &PeerEndpoint<D>,
        direction: Direction,
        handler: u8,
        tag: Tag,
        args: &[u32],
    ) -> bool {
        // The line's marks name the source.
        let content = PacketContent { form: Form::Short, handler, tag: tag.0, args, aux: 0, source: 0 };
        self.put_in_line(peer, direction, &content)
    }

    #[inline(always)]
    fn put_in_line(&self, peer: &PeerEndpoint<D>, direction: Direction, content: &PacketContent<'_>) -> bool {
        let end = &peer.talk.end;
        if !end.takes(content) || peer.gone.get() {
            return false;
        }
        self.domain.charge(EndpointStep::Send);
        let must_wake = end.send(self.cpu(), content, direction.is_reply(), peer.order(direction));
        self.answers.patience.set(PATIENCE);
        if must_wake {
            self.wake(peer);
        }
        true
    }

    /// Announces a store in the line, if that is possible now.
    ///
    /// Of a request that may wait, delivers the reply in the line first: it has come while this
    /// endpoint stored, and the next message needs its line.
    pub(crate) fn announce_in_line(
        &self,
        peer: &PeerEndpoint<D>,
        out: &Outgoing<'_>,
        content: &PacketContent<'_>,
    ) -> bool {
        if peer.talk.end.is_theirs() && out.on_full == OnFull::Wait && !out.direction.is_reply() {
            peer.talk.end.prefetch(self.cpu());
            let _unchanged = self.answers.lines.borrow();
            if let Some(reply) = self.answer_of(peer).filter(|answer| answer.is_reply) {
                self.deliver_answer(peer, reply);
            }
        }
        self.put_in_line(peer, out.direction, content)
    }

    /// Returns whether a message in a line is the next one of its sender: those before it
    /// in the queue and in its stream have been delivered.
    #[inline(always)]
    fn is_next(&self, peer: &PeerEndpoint<D>, answer: Answer) -> bool {
        // Since the last one its sender has sent nothing but messages of the line.
        peer.talk.reached[usize::from(answer.is_reply)].get() == answer.after
            || self.has_reached(peer, answer.is_reply, answer.after)
    }

    #[inline(never)]
    fn has_reached(&self, peer: &PeerEndpoint<D>, is_reply: bool, after: u64) -> bool {
        let has = self.has_come_to(Direction::of(is_reply), after & TICKET) && self.has_taken(peer, after);
        // Tickets never come again; numbers of records do.
        if has && after <= TICKET {
            peer.talk.reached[usize::from(is_reply)].set(after);
        }
        has
    }

    /// Returns whether the published packets before a ticket have been delivered.
    #[inline(always)]
    pub(crate) fn has_come_to(&self, direction: Direction, ticket: u64) -> bool {
        let own = self.own(direction);
        let receiver = own.receiver.borrow();
        receiver.head >= ticket
            && (receiver.late.is_empty()
                || !receiver.has_late(own.side.claim(), own.side.queue(), self.cpu()))
    }

    /// Returns the message in a peer's line, if it can be delivered.
    #[inline(always)]
    fn answer_of(&self, peer: &PeerEndpoint<D>) -> Option<Answer> {
        peer.talk.end.look(self.cpu()).filter(|&answer| self.is_next(peer, answer))
    }

    /// Delivers the messages of lines, at most one of each. Returns their number. Spins
    /// for a moment where there is one line, in which an answer is likely.
    #[inline(always)]
    pub(crate) fn poll_lines(&self, replies_only: bool) -> usize {
        let (turn, pauses) = match self.answers.count.get() {
            0 => return 0,
            1 => {
                let left = self.answers.patience.get();
                self.answers.patience.set(left.saturating_sub(1));
                (if left > 0 { self.domain.turn() } else { 0 }, left == PATIENCE && self.answers.pauses.get())
            }
            _ => (0, false),
        };
        self.poll_each_line(turn, pauses, replies_only)
    }

    /// Delivers the messages of all lines, before a message of a queue. Returns their
    /// number.
    #[inline(always)]
    pub(crate) fn poll_all_lines(&self, replies_only: bool) -> usize {
        if self.answers.has_lines() { self.look_at_lines(replies_only) } else { 0 }
    }

    #[inline(never)]
    fn look_at_lines(&self, replies_only: bool) -> usize {
        self.poll_each_line(0, false, replies_only)
    }

    #[inline(always)]
    fn poll_each_line(&self, turn: u64, pauses: bool, replies_only: bool) -> usize {
        let mut delivered = 0;
        for peer in self.answers.lines.borrow().iter() {
            if peer.talk.end.is_theirs()
                && let Some(answer) = peer.talk.end.await_answer(self.cpu(), turn, pauses)
                && (answer.is_reply || !replies_only)
                && self.is_next(peer, answer)
            {
                self.deliver_answer(peer, answer);
                delivered += 1;
            }
        }
        delivered
    }

    #[inline(always)]
    fn deliver_answer(&self, peer: &PeerEndpoint<D>, answer: Answer) {
        self.domain.charge(EndpointStep::Dispatch);
        let (cpu, end) = (self.cpu(), &peer.talk.end);
        let direction = Direction::of(answer.is_reply);
        let arrival = Arrival { ticket: 0, header: answer.header, late: false };
        let (number, is_reply) = (end.number(), answer.is_reply);
        // Copies: what a reference leads to is stored before the handler runs.
        let handled = Handled::new(move || {
            if !is_reply {
                end.done(cpu, number);
            }
        });
        self.dispatch(arrival, direction, Some(peer), |args| Tag(end.take(cpu, args)));
        handled.end();
    }

    /// Returns the number of requests, or of replies, that wait in lines.
    pub(crate) fn count_in_lines(&self, direction: Direction) -> u64 {
        let lines = self.answers.lines.borrow();
        let waiting = lines.iter().filter_map(|peer| peer.talk.end.look(self.cpu()));
        waiting.filter(|answer| answer.is_reply == direction.is_reply()).count() as u64
    }

    /// Returns whether a message in a line can be delivered.
    pub(crate) fn has_answer(&self) -> bool {
        self.answers.lines.borrow().iter().any(|peer| self.answer_of(peer).is_some())
    }

    /// Says in each line in which it expects a message that the endpoint will sleep.
    /// `false`: one has come.
    pub(crate) fn arm_lines(&self) -> bool {
        let lines = self.answers.lines.borrow();
        lines.iter().all(|peer| peer.talk.end.arm(self.cpu()) || self.answer_of(peer).is_none())
    }

    /// Takes that back.
    pub(crate) fn disarm_lines(&self) {
        for peer in self.answers.lines.borrow().iter() {
            peer.talk.end.disarm(self.cpu());
        }
    }

    /// Stops using the lines that this endpoint would be next to write.
    pub(crate) fn rest_lines(&self) {
        self.change_lines(|lines| lines.retain(|peer| !peer.talk.end.rest()));
    }

    /// Stops using the lines with peers that are gone, but for messages that are there.
    pub(crate) fn forget_lines(&self) {
        let is_used =
            |peer: &Rc<PeerEndpoint<D>>| !peer.gone.get() || peer.talk.end.look(self.cpu()).is_some();
        self.change_lines(|lines| lines.retain(is_used));
    }

    /// Returns the request in the line that a peer which is gone did not handle, and its
    /// order ([`PeerEndpoint::order`]).
    pub(crate) fn take_unhandled(&self, peer: &Rc<PeerEndpoint<D>>) -> Option<(u64, Outstanding)> {
        let Unhandled { header, tag, args: few, after } = peer.talk.end.unhandled(self.cpu())?;
        let mut args = [0; MAX_ARGS];
        args[..ANSWER_ARGS].copy_from_slice(&few);
        let operation = Operation::of(header.form().unwrap_or(Form::Short), Direction::Request);
        let returned = Returned {
            status: self.reason(peer),
            operation,
            handler: header.handler(),
            destination: peer.name,
        };
        let source = self.name.code();
        let back = Outstanding {
            returned,
            source,
            tag: Tag(tag),
            args,
            count: header.args().min(ANSWER_ARGS),
            ticket: 0,
        };
        Some((after, back))
    }
}
