//! Receiving: polls, checks, dispatches.
//!
//! **A receiver that dies** in a handler or between two messages: its requesters find, in the exact
//! progress that it published, which of their requests it had not finished, and get them back as
//! unreachable (`Core::return_outstanding`). The one that it was handling counts as not finished:
//! its effects may have happened.

use core::cell::Cell;
use core::sync::atomic::Ordering;
use std::rc::Rc;

use towpath_channel::answer_line::aux_of;
use towpath_channel::store_mode::{MEASURED, timed};
use towpath_machine::Processor;
use towpath_sync::PARKED;

use crate::claim::Claim;
use crate::domain::{EndpointStep, Side};
use crate::error::Status;
use crate::message::{Direction, Operation, Payload, Returned, Source};
use crate::name::{Name, Tag};
use crate::outgoing::OnFull;
use crate::outstanding::Outstanding;
use crate::packet::{Form, LINE_ARGS, MAX_ARGS, from_source_code, unpack_range};
use crate::path::{ReceivePath, extra_args, free_afterwards, line_args};
use crate::queue::{Arrival, Queue, TICKET};
use crate::state::{Core, Domain, PeerEndpoint, Token};

/// Number of empty polls between two looks at deaths and late packets.
pub(crate) const LOOK_EVERY: u32 = 8192;

/// Number of polls that find messages in lines before one looks at the queues first.
const QUEUES_EVERY: u32 = 8;

/// Mark of a running handler, until it is dropped.
struct Running<'a>(&'a Cell<u32>);

impl<'a> Running<'a> {
    #[inline(always)]
    fn new(depth: &'a Cell<u32>) -> Self {
        depth.set(depth.get() + 1);
        Running(depth)
    }
}

impl Drop for Running<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Message as taken from its packet, before it is checked.
pub(crate) struct Received {
    pub arrival: Arrival,
    pub direction: Direction,
    pub tag: Tag,
    pub args: [u32; MAX_ARGS],
    /// True if it came in a line.
    pub in_line: bool,
}

/// Payload of a message that was checked: the block and the range are there.
pub(crate) enum Content {
    Short,
    Medium { block: usize, len: usize },
    Piece { block: usize, len: usize, offset: u64, whole: (u64, u64), last: bool },
    Stored { offset: u64, len: u64 },
}

impl<D: Domain> Core<D> {
    #[inline]
    pub(crate) fn poll(&self) -> usize {
        if self.dispatch.depth.get() > 0 {
            return 0;
        }
        self.domain.charge(EndpointStep::Poll);
        if self.answers.in_turn.get() >= QUEUES_EVERY {
            let delivered = self.poll_queues();
            if delivered > 0 {
                return delivered;
            }
        }
        let delivered = self.poll_lines(false);
        if delivered > 0 {
            self.answers.in_turn.set(self.answers.in_turn.get() + 1);
            return delivered;
        }
        self.poll_queues()
    }

    /// Polls streams and queues, apart from the code of lines.
    #[inline(never)]
    fn poll_queues(&self) -> usize {
        self.answers.in_turn.set(0);
        let mut delivered = self.poll_streams();
        delivered += self.poll_queue(Direction::Reply);
        delivered += self.poll_queue(Direction::Request);
        if delivered == 0 {
            let idle = self.upkeep.idle_polls.get().wrapping_add(1);
            self.upkeep.idle_polls.set(idle);
            if idle.is_multiple_of(LOOK_EVERY) {
                self.look_after(false);
            }
            if !self.back.returns.borrow().is_empty() {
                delivered += self.deliver_returns();
            }
            if !self.back.owed.borrow().is_empty() {
                self.return_owed();
            }
        }
        delivered
    }

    /// Polls only replies: while a reply waits for space.
    pub(crate) fn poll_replies(&self) -> usize {
        self.poll_lines(true) + self.poll_queue(Direction::Reply)
    }

    /// Polls only replies, of every endpoint that is polled with this one.
    pub(crate) fn poll_bundle_replies(&self) -> usize {
        match self.company.bundle.borrow().upgrade() {
            Some(bundle) => bundle.members.borrow().iter().map(|core| core.poll_replies()).sum(),
            None => {
                let others = self.company.poll_replies.borrow().as_ref().map_or(0, |poll| poll());
                self.poll_replies() + others
            }
        }
    }

    /// Polls every endpoint of the bundle, or this one alone.
    pub(crate) fn poll_bundle(&self) -> usize {
        match self.company.bundle.borrow().upgrade() {
            Some(bundle) => bundle.members.borrow().iter().map(|core| core.poll()).sum(),
            None => self.poll(),
        }
    }

    #[inline(always)]
    fn poll_queue(&self, direction: Direction) -> usize {
        let own = self.own(direction);
        let q = own.side.queue();
        let around = self.domain.around(q);
        let inbox =
            ReceivePath { queue: q, claim: own.side.claim(), receiver: &own.receiver, quota: &own.quota };
        inbox.poll(
            self.cpu(),
            || self.domain.wait(&around),
            |arrival| {
                // The messages that its sender sent before it are there by now.
                let before = self.poll_before_packet(arrival.header.source(), direction);
                self.deliver(arrival, direction);
                before
            },
        )
    }

    /// Checks one message and runs its handler.
    #[inline(always)]
    pub(crate) fn deliver(&self, arrival: Arrival, direction: Direction) {
        let cpu = self.cpu();
        self.domain.charge(EndpointStep::Dispatch);
        let header = arrival.header;
        self.anticipate(header.source());
        let slot = self.own(direction).side.queue().slot(arrival.ticket);
        self.dispatch(arrival, direction, None, |args| {
            line_args(cpu, slot, args);
            Tag(cpu.read(&slot.tag))
        });
    }

    /// Checks a message that was taken and runs its handler.
    #[inline(always)]
    pub(crate) fn dispatch(
        &self,
        arrival: Arrival,
        direction: Direction,
        from: Option<&PeerEndpoint<D>>,
        take: impl FnOnce(&mut [u32; MAX_ARGS]) -> Tag,
    ) {
        let header = arrival.header;
        let count = header.args();
        // Filled in its place.
        let mut token = Token {
            core: self,
            source: Source::Coded(header.source()),
            tag: Tag::ALL,
            args: [0; MAX_ARGS],
            count,
            payload: Payload::None,
            direction,
            replied: Cell::new(false),
            returned: None,
            from,
        };
        let tag = take(&mut token.args);
        token.tag = tag;
        let simple =
            header.is_short() && count <= LINE_ARGS && (direction.is_reply() || self.tag.get().accepts(tag));
        if simple && self.run_simply(header.handler(), &token) {
            if self.tables.handlers.has_changes.get() {
                self.tables.handlers.make_changes();
            }
            return;
        }
        let in_line = from.is_some();
        self.deliver_slowly(Received { arrival, direction, tag, args: token.args, in_line });
    }

    /// Runs a handler, if it is set. The table is borrowed meanwhile: changes of it wait.
    #[inline(always)]
    fn run_simply(&self, handler: u8, token: &Token<'_, D>) -> bool {
        let table = self.tables.handlers.table.borrow();
        let Some(handler) = &table[usize::from(handler)] else { return false };
        let _running = Running::new(&self.dispatch.depth);
        (*handler.call)(token);
        true
    }

    /// Prefetches the line of the packet that is likely to answer a message of this
    /// endpoint: see `reply_predictor.rs`. A hint: the code may be nonsense.
    #[inline(always)]
    fn anticipate(&self, source: u32) {
        if let Some(Some(peer)) = self.tables.peers.borrow().get(usize::from(from_source_code(source).0)) {
            let (answer, note) = peer.predictor.get().on_arrival();
            if let Some((direction, ticket)) = answer {
                let side = &peer.link(direction).side;
                side.claim().anticipate(side.queue(), self.cpu(), ticket);
            }
            if let Some(predictor) = note {
                peer.predictor.set(predictor);
            }
        }
    }

    /// Returns the name of the incarnation that has this code. A code that makes no sense
    /// gives a name that no endpoint has.
    pub(crate) fn name_of(&self, code: u32) -> Name {
        let (endpoint, low) = from_source_code(code);
        // Relaxed: the message that brought the code was published after its generation.
        let now =
            self.domain.entry(endpoint).map_or(0, |e| self.cpu().load(&e.generation, Ordering::Relaxed));
        // Its present incarnation, or the one before that to which the bits fit.
        let generation = now.wrapping_sub(now.wrapping_sub(low) & 0xff);
        Name { endpoint, generation }
    }

    /// Delivers a message that is not short, has many arguments, or may have to go back.
    #[cold]
    #[inline(never)]
    fn deliver_slowly(&self, mut message: Received) {
        let q = self.own(message.direction).side.queue();
        let header = message.arrival.header;
        let _block = free_afterwards(q, self.cpu(), header);
        extra_args(self.cpu(), q, message.arrival, &mut message.args);
        // No sender of this library sends a message without a form, so none waits for it.
        let Some(form) = header.form() else { return };
        if form == Form::Returned {
            return self.deliver_returned(q, &message);
        }
        if form == Form::LongOffered {
            return self.deliver_offered(q, message);
        }
        let outcome = self.check(q, &message, form).and_then(|(handler, content)| {
            let token = |payload| self.token(&message, payload);
            match content {
                Content::Short => self.run(|| handler(&token(Payload::None))),
                Content::Medium { block, len } => {
                    let mut buffer = self.dispatch.scratch.borrow_mut().pop().unwrap_or_default();
                    buffer.resize(q.block_size, 0);
                    // A private copy: the sender can't change it while the handler reads.
                    self.cpu().copy_out(&q.bytes, q.block_at(block), &mut buffer[..len]);
                    self.run(|| handler(&token(Payload::Medium(&buffer[..len]))));
                    self.dispatch.scratch.borrow_mut().push(buffer);
                }
                Content::Piece { block, len, offset, whole, last } => {
                    let cpu = self.cpu();
                    let store = || self.segment.store(cpu, offset, &q.bytes, q.block_at(block), len);
                    if !(if len < MEASURED { store() } else { timed(cpu, q, block, store) }) {
                        return Err(Status::BadSegmentOffset);
                    }
                    if last {
                        let payload = Payload::Long { offset: whole.0, len: whole.1 };
                        self.run(|| handler(&token(payload)));
                    }
                }
                Content::Stored { offset, len } => {
                    self.run(|| handler(&token(Payload::Long { offset, len })));
                }
            }
            Ok(())
        });
        if let Err(status) = outcome {
            self.reject(&message, form, status);
        }
    }

    /// Checks a message against the endpoint's tag, handlers, segment and its queue's
    /// blocks.
    pub(crate) fn check(
        &self,
        q: &Queue<'_, D::Cpu>,
        message: &Received,
        form: Form,
    ) -> Result<(Rc<D::Handler>, Content), Status> {
        let (cpu, header) = (self.cpu(), message.arrival.header);
        if header.args() > MAX_ARGS {
            return Err(Status::BadArguments);
        }
        if !message.direction.is_reply() && !self.tag.get().accepts(message.tag) {
            return Err(Status::BadTag);
        }
        let needs_block = matches!(form, Form::Medium | Form::LongPart | Form::Long);
        if needs_block != header.has_block() || needs_block && header.block() >= q.blocks.len() {
            return Err(Status::BadArguments);
        }
        let handler = self.tables.handlers.get(header.handler());
        let handler = handler.ok_or(Status::BadHandler)?;
        let block = header.block();
        // The sender wrote the length: it may be nonsense.
        let len = || cpu.read(&q.blocks[block].len).min(q.block_size as u64) as usize;
        let content = match form {
            Form::Short | Form::Returned => Content::Short,
            Form::Medium => Content::Medium { block, len: len() },
            Form::LongPart | Form::Long => {
                let head = &q.blocks[block];
                let (len, offset) = (len(), cpu.read(&head.offset));
                let whole = (cpu.read(&head.whole[0]), cpu.read(&head.whole[1]));
                self.check_range(whole)?;
                Content::Piece { block, len, offset, whole, last: form == Form::Long }
            }
            Form::LongStored => {
                let (offset, len) = unpack_range(self.aux(q, message));
                self.check_range((offset, len))?;
                Content::Stored { offset, len }
            }
            // Its range is checked where it was found.
            Form::LongOffered => Content::Short,
        };
        Ok((handler, content))
    }

    /// Returns the word beside a message's arguments: the range of a store, or the reason
    /// of a return.
    fn aux(&self, q: &Queue<'_, D::Cpu>, message: &Received) -> u64 {
        match message.in_line {
            true => aux_of(&message.args),
            false => self.cpu().read(&q.extra(message.arrival.ticket).aux),
        }
    }

    /// Checks that a range, offset and length, lies in the segment.
    pub(crate) fn check_range(&self, (offset, len): (u64, u64)) -> Result<(), Status> {
        let size = self.segment.len();
        if offset > size || (offset == size && len > 0) {
            Err(Status::BadSegmentOffset)
        } else if len > size - offset {
            Err(Status::BadLength)
        } else {
            Ok(())
        }
    }

    /// Sends a message that was found wrong back to its sender.
    pub(crate) fn reject(&self, message: &Received, form: Form, status: Status) {
        // Of a long transfer only the last piece is answered.
        if form == Form::LongPart {
            return;
        }
        let Received { arrival, direction, tag, args, .. } = *message;
        let (header, operation) = (arrival.header, Operation::of(form, direction));
        let status = if direction.is_reply() { Status::ReplyRejected } else { status };
        let back = Outstanding {
            returned: Returned { status, operation, handler: header.handler(), destination: self.name },
            source: header.source(),
            tag,
            args,
            count: header.args().min(MAX_ARGS),
            ticket: 0,
        };
        if self.dispatch.replying.get() {
            // A reply of this endpoint waits for space, and its claim with it: later.
            self.back.owed.borrow_mut().push(back);
            return;
        }
        // A replier that waits here for space in this endpoint's queue would wait for ever: a reply
        // goes back when there is space.
        let on_full = if direction.is_reply() { OnFull::GiveUp } else { OnFull::Wait };
        if !self.send_back(self.name_of(header.source()), &back, on_full) {
            self.back.owed.borrow_mut().push(back);
        }
    }

    /// Delivers a message of this endpoint's that its receiver has sent back.
    fn deliver_returned(&self, q: &Queue<'_, D::Cpu>, message: &Received) {
        let Received { arrival, direction, tag, args, .. } = *message;
        let source = self.name_of(arrival.header.source());
        let aux = self.aux(q, message);
        // Only in the reply queue, whose senders answer messages of this endpoint. A receiver's
        // successor sends a request back; this endpoint may have it already.
        if direction.is_reply()
            && let Some(back) = Outstanding::of_content(source, arrival.header, tag, args, aux)
            && (back.returned.status != Status::Unreachable || self.is_first_return(&back))
        {
            self.run_returned(source, back);
        }
    }

    pub(crate) fn token<'a>(&'a self, message: &Received, payload: Payload<'a>) -> Token<'a, D> {
        let header = message.arrival.header;
        Token {
            core: self,
            source: Source::Named(self.name_of(header.source())),
            tag: message.tag,
            args: message.args,
            count: header.args(),
            payload,
            direction: message.direction,
            replied: Cell::new(false),
            returned: None,
            from: None,
        }
    }

    pub(crate) fn run(&self, handler: impl FnOnce()) {
        let _running = Running::new(&self.dispatch.depth);
        handler();
    }

    /// Runs handler 0 with a message that came back, or was never sent.
    fn run_returned(&self, source: Name, back: Outstanding) {
        // Without a handler 0 the message is lost, as its sender chose.
        let Some(handler) = self.tables.handlers.get(0) else { return };
        let token = Token {
            core: self,
            source: Source::Named(source),
            tag: back.tag,
            args: back.args,
            count: back.count,
            payload: Payload::None,
            direction: Direction::Reply,
            replied: Cell::new(true),
            returned: Some(back.returned),
            from: None,
        };
        self.run(|| handler(&token));
    }

    /// Delivers messages that never left, or never arrived, to this endpoint's own
    /// handler 0.
    #[cold]
    fn deliver_returns(&self) -> usize {
        let mut delivered = 0;
        loop {
            let next = self.back.returns.borrow_mut().pop_front();
            let Some(back) = next else { return delivered };
            self.run_returned(back.returned.destination, back);
            delivered += 1;
        }
    }

    /// Returns whether a poll would deliver a message.
    pub(crate) fn has_message(&self) -> bool {
        !self.back.returns.borrow().is_empty()
            || self.has_answer()
            || self.has_record()
            || [&self.reply, &self.request].iter().any(|own| {
                own.receiver.borrow_mut().next(own.side.claim(), own.side.queue(), self.cpu()).is_some()
            })
    }

    /// Returns whether a packet has been claimed whose message did not arrive yet.
    pub(crate) fn is_behind(&self) -> bool {
        [&self.reply, &self.request]
            .iter()
            .any(|own| own.receiver.borrow().behind(own.side.queue(), self.cpu()))
    }

    /// Returns whether a short request to every mapped endpoint would find space.
    pub(crate) fn can_send(&self) -> bool {
        self.tables.translations.borrow().iter().flatten().all(|mapping| {
            let (q, cpu) = (mapping.peer.request.side.queue(), self.cpu());
            // Relaxed: a hint; the claim decides.
            let tail = cpu.load(&q.control.tail, Ordering::Relaxed) & TICKET;
            tail.saturating_sub(cpu.load(&q.control.consumed, Ordering::Relaxed) & !PARKED) < q.len()
        })
    }
}
