//! Streams: short requests of an endpoint that sends many to one peer, beside the peer's
//! request queue ([`towpath_channel::stream`]).
//!
//! After [`IN_A_ROW`] short requests through a peer's queue a sender takes one of the peer's
//! streams, if one is free. From then on its short requests of the same tag go there, and all
//! others through the queue. A poll delivers the records of the streams that have been opened, at
//! most [a quota](crate::path::adjust) of each, and then looks at the queues.
//!
//! Order: a record, a message of a line and a packet of one sender are delivered in the order in
//! which they were sent. Each names what it comes after: a record a ticket of the queue, a message
//! of a line a ticket and a number of records; before a packet is delivered its sender's stream and
//! the lines are emptied.
//!
//! Only where the claim algorithm is `towpath`: the others are what their papers say. Not to an
//! endpoint that a signal polls, unless the stream has been opened before.
//!
//! **A sender that dies** leaves records that are delivered; then the receiver takes the stream
//! back ([`Core::sweep_streams`]). **A receiver that dies** leaves the number of words that it has
//! handled: its sender gets the requests behind them back.

use std::rc::Rc;

use towpath_channel::stream::{self, Ends, OPEN, STREAM_ARGS, StreamReceiver, StreamRecord, UnhandledRecord};

use crate::census::DirectoryCensus;
use crate::domain::{EndpointStep, Side};
use crate::message::{Direction, Operation, Returned};
use crate::name::Tag;
use crate::outgoing::{OnFull, Outgoing};
use crate::outstanding::Outstanding;
use crate::packet::{Form, MAX_ARGS, source_code};
use crate::path::{Failure, Handled, adjust, patiently};
use crate::queue::{Arrival, Census, ClaimError, TICKET};
use crate::send::Waiter;
use crate::state::{Core, Domain, PeerEndpoint};

/// Number of short requests through a peer's queue after which the sender takes a stream.
pub(crate) const IN_A_ROW: u32 = 32;
/// Number of such requests between two attempts, where no stream was free.
const AGAIN: u32 = 4096;
/// A message of a line names the number of records before it modulo this: there are never
/// so many words in a stream.
const ORDERS: u64 = 4095;

impl<D: Domain> PeerEndpoint<D> {
    /// Returns the ticket after this endpoint's last packet in a queue of the peer's.
    #[inline(always)]
    fn next_ticket(&self, direction: Direction) -> u64 {
        self.link(direction).sender.borrow().next_ticket
    }

    /// Returns the order of a message in a line to the peer: the ticket of the queue and,
    /// above, the number of records that it comes after.
    #[inline(always)]
    pub(crate) fn order(&self, direction: Direction) -> u64 {
        let ticket = self.next_ticket(direction);
        if direction.is_reply() || !self.stream.is_open() {
            return ticket;
        }
        ticket | (1 + self.stream.sent() % ORDERS) << TICKET.trailing_ones()
    }
}

// ---- sending ----

impl<D: Domain> Core<D> {
    /// Sends a short request in the peer's stream, if this endpoint has one there.
    /// `None`: it has none, or the message does not fit.
    #[inline(always)]
    pub(crate) fn send_in_stream(
        &self,
        peer: &Rc<PeerEndpoint<D>>,
        out: &Outgoing<'_>,
    ) -> Option<Result<(), Failure>> {
        if !peer.stream.takes(out.tag.0, out.args.len()) || out.direction.is_reply() || peer.gone.get() {
            return None;
        }
        self.domain.charge(EndpointStep::Send);
        let after = peer.next_ticket(Direction::Request);
        let content = self.content(out, Form::Short, 0);
        match peer.stream.send(self.cpu(), &content, after) {
            Ok(must_wake) => {
                if must_wake {
                    self.wake(peer);
                }
                Some(Ok(()))
            }
            Err(_) => Some(self.send_when_space(peer, out)),
        }
    }

    #[cold]
    #[inline(never)]
    fn send_when_space(&self, peer: &Rc<PeerEndpoint<D>>, out: &Outgoing<'_>) -> Result<(), Failure> {
        let around = self.domain.around(peer.request.side.queue());
        let waiting = self.domain.wait(&around);
        let meanwhile =
            Waiter { core: self, peer, direction: out.direction, waiting: &waiting, in_stream: true };
        let content = self.content(out, Form::Short, 0);
        let attempt = || {
            let after = peer.next_ticket(Direction::Request);
            peer.stream.send(self.cpu(), &content, after).map_err(|_| ClaimError::Full)
        };
        if patiently(out.on_full == OnFull::Wait, meanwhile, attempt)? {
            self.wake(peer);
        }
        Ok(())
    }

    /// Sends a short request in a stream that it takes for that, if it is time to and one
    /// is free.
    #[inline(always)]
    pub(crate) fn opens_stream(&self, peer: &Rc<PeerEndpoint<D>>, out: &Outgoing<'_>) -> bool {
        if !self.streams.enabled || out.direction.is_reply() || out.args.len() > STREAM_ARGS {
            return false;
        }
        let left = peer.until_stream.get();
        peer.until_stream.set(left.wrapping_sub(1));
        left == 0 && self.open_stream(peer, out)
    }

    #[cold]
    #[inline(never)]
    fn open_stream(&self, peer: &Rc<PeerEndpoint<D>>, out: &Outgoing<'_>) -> bool {
        peer.until_stream.set(AGAIN);
        if peer.gone.get() || peer.stream.is_open() {
            return false;
        }
        let (cpu, news) = (self.cpu(), &peer.request.side.queue().control.streams);
        let ends = Ends {
            endpoint: self.name.endpoint,
            generation: self.name.generation as u16,
            receiver_generation: peer.name.generation as u16,
        };
        let after = peer.next_ticket(Direction::Request);
        let content = self.content(out, Form::Short, 0);
        let must_wake = (0..self.domain.config().streams_each()).find_map(|number| {
            let stream = self.domain.stream(peer.name.endpoint, number)?;
            peer.stream.open(cpu, stream, (news, number), ends, &content, after)
        });
        if must_wake == Some(true) {
            self.wake(peer);
        }
        must_wake.is_some()
    }

    /// Returns the requests in the stream that a peer which is gone did not handle, in
    /// their order, each with the ticket that it comes after, where that had changed, and its
    /// number.
    pub(crate) fn take_unhandled_records(
        &self,
        peer: &Rc<PeerEndpoint<D>>,
    ) -> Vec<(Option<u64>, u64, Outstanding)> {
        let records = peer.stream.unhandled(self.cpu());
        let source = self.name.code();
        let back = |record: UnhandledRecord| {
            let UnhandledRecord { header, args, after, number } = record;
            let returned = Returned {
                status: self.reason(peer),
                operation: Operation::of(Form::Short, Direction::Request),
                handler: header.handler(),
                destination: peer.name,
            };
            let (tag, count) = (Tag(peer.stream.tag()), header.args().min(MAX_ARGS));
            (after, number, Outstanding { returned, source, tag, args, count, ticket: 0 })
        };
        records.into_iter().map(back).collect()
    }
}

// ---- receiving ----

impl<D: Domain> Core<D> {
    fn news(&self) -> &<D::Cpu as towpath_machine::Processor>::Word {
        &self.request.side.queue().control.streams
    }

    /// Delivers records of the streams, a bounded number. Returns their number.
    #[inline(always)]
    pub(crate) fn poll_streams(&self) -> usize {
        if !self.streams.enabled {
            return 0;
        }
        self.look_for_streams();
        if self.streams.count.get() == 0 { 0 } else { self.poll_each_stream() }
    }

    /// Receives from the streams that were opened since the last look.
    #[inline(always)]
    fn look_for_streams(&self) {
        if stream::has_news(self.cpu(), self.news()) {
            self.receive_from(stream::take_news(self.cpu(), self.news()));
        }
    }

    /// Receives from these streams from now on, if they are this incarnation's.
    #[cold]
    fn receive_from(&self, numbers: u64) {
        for number in (0..self.domain.config().streams_each()).filter(|number| numbers >> number & 1 != 0) {
            let Some(stream) = self.domain.stream(self.name.endpoint, number) else { continue };
            let owner = stream.owner(self.cpu());
            if self.is_open_to_me(owner) {
                self.change_streams(|receivers| {
                    if receivers.iter().all(|known| known.owner() != owner) {
                        receivers.push(StreamReceiver::new(self.cpu(), stream, owner));
                    }
                });
            }
        }
    }

    /// Returns whether a stream with this owner word was opened to this incarnation.
    fn is_open_to_me(&self, owner: u64) -> bool {
        let to_me = |ends: Ends| ends.receiver_generation == self.name.generation as u16;
        owner & OPEN != 0 && Ends::of(owner).is_some_and(to_me)
    }

    /// Changes the list of streams, but not while a record of one of them is being
    /// handled: then it returns `false`.
    fn change_streams(&self, act: impl FnOnce(&mut Vec<StreamReceiver<D::Stream>>)) -> bool {
        let Ok(mut receivers) = self.streams.receivers.try_borrow_mut() else { return false };
        act(&mut receivers);
        self.streams.count.set(receivers.len());
        true
    }

    #[inline(never)]
    fn poll_each_stream(&self) -> usize {
        let quota = &self.request.quota;
        let each = |stream| {
            let delivered = self.poll_stream(stream, quota.get());
            adjust(quota, delivered);
            delivered
        };
        self.streams.receivers.borrow().iter().map(each).sum()
    }

    /// Delivers records of a stream, and the messages of lines that come before them.
    #[inline(always)]
    fn poll_stream(&self, stream: &StreamReceiver<D::Stream>, most: usize) -> usize {
        let (cpu, mut delivered, mut in_lines) = (self.cpu(), 0, 0);
        while delivered < most
            && let Some(record) = stream.look(cpu)
        {
            // The messages that its sender sent before it are there by now.
            if self.answers.has_lines() {
                in_lines += self.poll_all_lines(false);
            }
            if record.after > 0 && !self.has_come_to(Direction::Request, record.after) {
                break;
            }
            self.deliver_record(stream, &record);
            delivered += 1;
        }
        if delivered > 0 && stream.has_space_to_say() {
            let around = self.domain.around(self.request.side.queue());
            stream.say_space(cpu, &self.domain.wait(&around));
        }
        delivered + in_lines
    }

    #[inline(always)]
    fn deliver_record(&self, stream: &StreamReceiver<D::Stream>, record: &StreamRecord) {
        self.domain.charge(EndpointStep::Dispatch);
        let cpu = self.cpu();
        let arrival = Arrival { ticket: 0, header: record.header, late: false };
        let handled = Handled::new(|| stream.done(cpu, record));
        self.dispatch(arrival, Direction::Request, None, |args| {
            stream.take(cpu, record, args);
            Tag(stream.tag())
        });
        handled.end();
    }

    /// Delivers the messages that the sender of a packet sent before it in its stream and
    /// in lines. Returns the number of messages.
    #[inline(always)]
    pub(crate) fn poll_before_packet(&self, source: u32, direction: Direction) -> usize {
        let mut delivered = self.poll_all_lines(direction.is_reply());
        if self.streams.enabled && !direction.is_reply() {
            self.look_for_streams();
            if self.streams.count.get() > 0 {
                delivered += self.empty_stream(source);
            }
        }
        delivered
    }

    #[inline(never)]
    fn empty_stream(&self, source: u32) -> usize {
        let mut delivered = 0;
        for stream in self.streams.receivers.borrow().iter().filter(|stream| source_of(stream) == source) {
            // Records that come after the packet are not delivered.
            delivered += self.poll_stream(stream, usize::MAX);
            delivered += self.poll_all_lines(false);
        }
        delivered
    }

    /// Returns whether as many records of a peer have been taken as a message of a line
    /// names ([`PeerEndpoint::order`]).
    #[inline(always)]
    pub(crate) fn has_taken(&self, peer: &PeerEndpoint<D>, order: u64) -> bool {
        let number = order >> TICKET.trailing_ones();
        number == 0 || self.has_taken_records(peer, number)
    }

    #[cold]
    fn has_taken_records(&self, peer: &PeerEndpoint<D>, number: u64) -> bool {
        let source = peer.name.code();
        let Ok(receivers) = self.streams.receivers.try_borrow() else { return false };
        receivers
            .iter()
            .find(|stream| source_of(stream) == source)
            // Without it: it was empty and has been taken back, or has just been opened.
            .map_or_else(
                || !stream::has_news(self.cpu(), self.news()),
                |stream| 1 + stream.taken() % ORDERS == number,
            )
    }

    /// Returns the number of records that wait.
    pub(crate) fn count_in_streams(&self) -> u64 {
        let receivers = self.streams.receivers.borrow();
        receivers.iter().filter(|stream| stream.look(self.cpu()).is_some()).count() as u64
    }

    /// Returns whether a record can be delivered, or a stream has been opened.
    pub(crate) fn has_record(&self) -> bool {
        let can_be = |stream: &StreamReceiver<D::Stream>| {
            stream
                .look(self.cpu())
                .is_some_and(|r| r.after == 0 || self.has_come_to(Direction::Request, r.after))
        };
        self.streams.enabled
            && (stream::has_news(self.cpu(), self.news())
                || self.streams.receivers.borrow().iter().any(can_be))
    }

    /// Says in each stream that the endpoint will sleep. `false`: a record has come, or a
    /// stream was opened.
    pub(crate) fn arm_streams(&self) -> bool {
        if !self.streams.enabled {
            return true;
        }
        let receivers = self.streams.receivers.borrow();
        stream::arm_news(self.cpu(), self.news())
            && receivers.iter().all(|stream| stream.arm(self.cpu()) || !self.has_record())
    }

    /// Takes that back.
    pub(crate) fn disarm_streams(&self) {
        if self.streams.enabled {
            stream::disarm_news(self.cpu(), self.news());
            self.streams.receivers.borrow().iter().for_each(|stream| stream.disarm(self.cpu()));
        }
    }

    /// Receives from no further streams.
    pub(crate) fn refuse_streams(&self) {
        if self.streams.enabled {
            self.receive_from(stream::refuse(self.cpu(), self.news()));
        }
    }

    /// Takes the streams of the dead back, when their records have been delivered.
    #[cold]
    pub(crate) fn sweep_streams(&self) {
        if !self.streams.enabled {
            return;
        }
        let (cpu, census) = (self.cpu(), DirectoryCensus(&self.domain));
        let is_gone = |owner| Ends::of(owner).is_some_and(|e| !census.alive(e.endpoint, e.generation));
        // First the question, then the look: the dead publish nothing more.
        let can_change = self.change_streams(|receivers| {
            receivers.retain(|stream| {
                let is_done = is_gone(stream.owner()) && stream.look(cpu).is_none();
                if is_done {
                    stream.stream().take_back(cpu, stream.owner());
                }
                !is_done
            });
        });
        if !can_change {
            return;
        }
        for number in 0..self.domain.config().streams_each() {
            let Some(stream) = self.domain.stream(self.name.endpoint, number) else { continue };
            let owner = stream.owner(cpu);
            let is_known = || self.streams.receivers.borrow().iter().any(|known| known.owner() == owner);
            if !is_gone(owner) || is_known() {
                continue;
            }
            if self.is_open_to_me(owner) {
                // It died before it said so.
                self.receive_from(1 << number);
            } else {
                stream.take_back(cpu, owner);
            }
        }
    }
}

/// Returns whether a message of a line that names this order was sent before the record
/// of this number ([`PeerEndpoint::order`]), the first one after it or one before that.
pub(crate) fn is_before_record(order: u64, number: u64) -> bool {
    let named = order >> TICKET.trailing_ones();
    named == 0 || named == 1 + number % ORDERS
}

/// Code of the incarnation that sends in a stream.
fn source_of<L>(stream: &StreamReceiver<L>) -> u32 {
    Ends::of(stream.owner()).map_or(u32::MAX, |e| source_code(e.endpoint, e.generation.into()))
}
