//! Receiving: poll, check, dispatch; and what a receiver does while nothing arrives.
//!
//! **A receiver that dies** in a handler or between two messages: its requesters find, in the exact
//! progress that it published, which of their requests it had not finished, and get them back as
//! unreachable (`Core::return_outstanding`). The one that it was handling counts as not finished:
//! its effects may have happened.

use core::cell::Cell;
use core::sync::atomic::Ordering;
use std::rc::Rc;

use towpath_machine::Processor;
use towpath_sync::PARKED;

use crate::claim::Claim;
use crate::directory::Directory;
use crate::domain::{Domain, Members, Side, Step};
use crate::endpoint::{Core, Link, Own, Peer, Return};
use crate::error::Status;
use crate::name::{Name, Tag};
use crate::outstanding::Outstanding;
use crate::packet::{Form, LINE_ARGS, MAX_ARGS, from_source_code, source_code, unpack_range};
use crate::path::{Inbox, extra_args, free_afterwards, line_args};
use crate::queue::{Arrival, Queue, TICKET};
use crate::token::{Operation, Payload, Returned, Source, Token};

/// How many empty polls between two looks at what poll doesn't see.
const LOOK_EVERY: u32 = 8192;
/// How often deaths are asked for while waiting, in nanoseconds.
const CHECK_EVERY: u64 = 10_000_000;

/// A handler is running.
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

impl<D: Domain> Core<D> {
    #[inline]
    pub(crate) fn poll(&self) -> usize {
        if self.depth.get() > 0 {
            return 0;
        }
        self.domain.charge(Step::Poll);
        let mut delivered = self.poll_queue(&self.reply, true);
        delivered += self.poll_queue(&self.request, false);
        if delivered == 0 {
            let idle = self.idle_polls.get().wrapping_add(1);
            self.idle_polls.set(idle);
            if idle.is_multiple_of(LOOK_EVERY) {
                self.look_after(false);
            }
            if !self.returns.borrow().is_empty() {
                delivered += self.deliver_returns();
            }
            if !self.owed.borrow().is_empty() {
                self.return_owed();
            }
        }
        delivered
    }

    /// Only replies: while a reply waits for space.
    pub(crate) fn poll_replies(&self) -> usize {
        self.poll_queue(&self.reply, true)
    }

    /// The same of every endpoint of the bundle.
    pub(crate) fn poll_bundle_replies(&self) -> usize {
        match self.bundle.borrow().upgrade() {
            Some(bundle) => bundle.members.borrow().iter().map(|core| core.poll_replies()).sum(),
            None => {
                let others = self.domain.poll_replies_of_others();
                self.poll_replies() + others
            }
        }
    }

    /// Every endpoint of the bundle, or this one alone.
    pub(crate) fn poll_bundle(&self) -> usize {
        match self.bundle.borrow().upgrade() {
            Some(bundle) => bundle.members.borrow().iter().map(|core| core.poll()).sum(),
            None => self.poll(),
        }
    }

    #[inline(always)]
    fn poll_queue(&self, own: &Own<D>, reply: bool) -> usize {
        let q = own.side.queue();
        let around = self.domain.around(q);
        let inbox = Inbox { queue: q, claim: own.side.claim(), receiver: &own.receiver, quota: &own.quota };
        inbox.poll(self.cpu(), || self.domain.wait(&around), |arrival| self.deliver(q, arrival, reply))
    }

    /// Checks one message and runs its handler.
    #[inline(always)]
    pub(crate) fn deliver(&self, q: &Queue<'_, D::Cpu>, arrival: Arrival, reply: bool) {
        let cpu = self.cpu();
        self.domain.charge(Step::Dispatch);
        let header = arrival.header;
        self.anticipate(header.source());
        let slot = q.slot(arrival.ticket);
        let count = header.args();
        let mut args = [0u32; MAX_ARGS];
        line_args(cpu, slot, &mut args);
        let tag = Tag(cpu.read(&slot.tag));
        let simple = header.form() == Some(Form::Short)
            && count <= LINE_ARGS
            && (reply || self.tag.get().accepts(tag))
            && !header.has_block();
        // Borrowed while it runs: a handler can't reach the table.
        if simple && let Some(handler) = &self.handlers.borrow()[usize::from(header.handler())] {
            let token = Token {
                core: self,
                source: Source::Coded(header.source()),
                tag,
                args,
                count,
                payload: Payload::None,
                request: !reply,
                replied: Cell::new(false),
                returned: None,
            };
            let _running = Running::new(&self.depth);
            (**handler)(&token);
            return;
        }
        self.deliver_slowly(q, arrival, reply, args, tag);
    }

    /// A message has come from this endpoint. If we are in the habit of answering it, the
    /// line of our next packet to it is fetched while the handler runs: its receiver, which polls,
    /// has a copy, and taking it back is most of what a message costs. A hint: the code may be
    /// nonsense.
    #[inline(always)]
    fn anticipate(&self, source: u32) {
        if let Some(Some(peer)) = self.peers.borrow().get(usize::from(from_source_code(source).0)) {
            let (answer, note) = peer.habit.get().heard();
            if let Some((reply, ticket)) = answer {
                let Link { side, .. } = if reply { &peer.reply } else { &peer.request };
                side.claim().anticipate(side.queue(), self.cpu(), ticket);
            }
            if let Some(habit) = note {
                peer.habit.set(habit);
            }
        }
    }

    /// The name of the incarnation that has this code. A code that makes no sense gives a
    /// name that nobody has.
    pub(crate) fn name_of(&self, code: u32) -> Name {
        let (endpoint, low) = from_source_code(code);
        // Acquire: pairs with the Release in `open_entry`.
        let now =
            self.domain.entry(endpoint).map_or(0, |e| self.cpu().load(&e.generation, Ordering::Acquire));
        // Its present incarnation, or the one before that to which the bits fit.
        let generation = now.wrapping_sub(now.wrapping_sub(low) & 0xff);
        Name { endpoint, generation }
    }

    #[cold]
    #[inline(never)]
    fn deliver_slowly(
        &self,
        q: &Queue<'_, D::Cpu>,
        arrival: Arrival,
        reply: bool,
        mut args: [u32; MAX_ARGS],
        tag: Tag,
    ) {
        let cpu = self.cpu();
        let header = arrival.header;
        let count = header.args();
        let _block = free_afterwards(q, cpu, header);
        let source = self.name_of(header.source());
        let extra = q.extra(arrival.ticket);
        let form = header.form();
        extra_args(cpu, q, arrival, &mut args);
        let back = |status| {
            // What has no form can't have been sent by this library: nobody waits for it.
            // Of a long transfer only the last piece is answered.
            let Some(form) = form.filter(|f| *f != Form::LongPart) else { return };
            let operation = Operation::of(form, reply);
            let status = if reply { Status::ReplyRejected } else { status };
            let count = count.min(MAX_ARGS);
            if self.replying.get() {
                // A reply of ours waits for space, and its claim with it: later.
                let (handler, destination) = (header.handler(), self.name);
                let source = header.source();
                self.owed.borrow_mut().push(Outstanding {
                    status,
                    source,
                    destination,
                    operation,
                    handler,
                    tag,
                    args,
                    count,
                });
                return;
            }
            let what = (header.handler(), tag, &args[..count]);
            self.send_back(source, self.name, status, operation, what, !reply);
        };
        let Some(form) = form else { return };
        if form == Form::Returned {
            // Only in the reply queue; from a peer, about a message of ours.
            let aux = cpu.read(&extra.aux);
            if let Some(status) = Status::from_bits(aux & 0xff)
                && reply
                && count <= MAX_ARGS
            {
                let returned = Returned {
                    status,
                    operation: Operation::from_bits(aux >> 8 & 0xff),
                    handler: header.handler(),
                    destination: Name { endpoint: source.endpoint, generation: aux >> 16 },
                };
                self.run_returned(source, tag, args, count, returned);
            }
            return;
        }
        if count > MAX_ARGS {
            return back(Status::BadArguments);
        }
        if !reply && !self.tag.get().accepts(tag) {
            return back(Status::BadTag);
        }
        let needs_block = matches!(form, Form::Medium | Form::LongPart | Form::Long);
        if needs_block != header.has_block() || needs_block && header.block() >= q.blocks.len() {
            return back(Status::BadArguments);
        }
        let handler = self.handlers.borrow()[usize::from(header.handler())].clone();
        let Some(handler) = handler else {
            return back(Status::BadHandler);
        };
        let token = |payload| Token {
            core: self,
            source: Source::Named(source),
            tag,
            args,
            count,
            payload,
            request: !reply,
            replied: Cell::new(false),
            returned: None,
        };
        let range = |offset: u64, len: u64| {
            let size = self.segment.len();
            if offset > size || (offset == size && len > 0) {
                Err(Status::BadSegmentOffset)
            } else if len > size - offset {
                Err(Status::BadLength)
            } else {
                Ok(())
            }
        };
        match form {
            Form::Short => self.run(|| handler(&token(Payload::None))),
            Form::Medium => {
                let block = &q.blocks[header.block()];
                let len = cpu.read(&block.len).min(q.block_size as u64) as usize;
                let mut buffer = self.scratch.borrow_mut().pop().unwrap_or_default();
                buffer.resize(q.block_size, 0);
                // A private copy: the sender can't change it while the handler reads.
                cpu.copy_out(&q.bytes, q.block_at(header.block()), &mut buffer[..len]);
                self.run(|| handler(&token(Payload::Medium(&buffer[..len]))));
                self.scratch.borrow_mut().push(buffer);
            }
            Form::LongPart | Form::Long => {
                let block = &q.blocks[header.block()];
                let len = cpu.read(&block.len).min(q.block_size as u64) as usize;
                let offset = cpu.read(&block.offset);
                let whole = (cpu.read(&block.whole[0]), cpu.read(&block.whole[1]));
                let fits = range(whole.0, whole.1);
                let last = form == Form::Long;
                let stored = fits.and_then(|()| {
                    match self.segment.store(cpu, offset, &q.bytes, q.block_at(header.block()), len) {
                        true => Ok(()),
                        false => Err(Status::BadSegmentOffset),
                    }
                });
                match stored {
                    Ok(()) if last => {
                        let payload = Payload::Long { offset: whole.0, len: whole.1 };
                        self.run(|| handler(&token(payload)));
                    }
                    Ok(()) => {}
                    Err(status) => back(status),
                }
            }
            Form::LongStored => {
                let (offset, len) = unpack_range(cpu.read(&extra.aux));
                match range(offset, len) {
                    Ok(()) => self.run(|| handler(&token(Payload::Long { offset, len }))),
                    Err(status) => back(status),
                }
            }
            Form::Returned => {}
        }
    }

    fn run(&self, handler: impl FnOnce()) {
        let _running = Running::new(&self.depth);
        handler();
    }

    fn run_returned(&self, source: Name, tag: Tag, args: [u32; MAX_ARGS], count: usize, returned: Returned) {
        // Without a handler 0 the message is lost, as its sender chose.
        let Some(handler) = self.handlers.borrow()[0].clone() else { return };
        let token = Token {
            core: self,
            source: Source::Named(source),
            tag,
            args,
            count,
            payload: Payload::None,
            request: false,
            replied: Cell::new(true),
            returned: Some(returned),
        };
        self.run(|| handler(&token));
    }

    /// Messages that never left, or never arrived: to our own handler 0.
    #[cold]
    fn deliver_returns(&self) -> usize {
        let mut delivered = 0;
        loop {
            let next = self.returns.borrow_mut().pop_front();
            let Some(r) = next else { return delivered };
            let returned = Returned {
                status: r.status,
                operation: r.operation,
                handler: r.handler,
                destination: r.destination,
            };
            self.run_returned(r.destination, r.tag, r.args, r.count, returned);
            delivered += 1;
        }
    }

    /// Whether a poll would deliver something.
    pub(crate) fn has_message(&self) -> bool {
        !self.returns.borrow().is_empty()
            || [&self.reply, &self.request].iter().any(|own| {
                own.receiver.borrow_mut().next(own.side.claim(), own.side.queue(), self.cpu()).is_some()
            })
    }

    /// Whether something has been claimed that did not arrive yet.
    pub(crate) fn is_behind(&self) -> bool {
        [&self.reply, &self.request]
            .iter()
            .any(|own| own.receiver.borrow().behind(own.side.queue(), self.cpu()))
    }

    /// Whether a short request to every mapped endpoint would find space.
    pub(crate) fn can_send(&self) -> bool {
        self.translations.borrow().iter().flatten().all(|mapping| {
            let (q, cpu) = (mapping.peer.request.side.queue(), self.cpu());
            // Relaxed: a hint; the claim decides.
            let tail = cpu.load(&q.control.tail, Ordering::Relaxed) & TICKET;
            tail.saturating_sub(cpu.load(&q.control.consumed, Ordering::Relaxed) & !PARKED) < q.len()
        })
    }

    /// What nobody sees who only polls: heads that don't come, deaths, what was on the
    /// way to the dead.
    #[cold]
    pub(crate) fn look_after(&self, now: bool) {
        let time = self.cpu().now();
        self.last_look.set(time);
        let due = now || time.wrapping_sub(self.last_check.get()) >= CHECK_EVERY;
        if due {
            self.last_check.set(time);
            self.domain.check_deaths();
        }
        let deaths = self.domain.deaths();
        let died = deaths != self.deaths_seen.replace(deaths);
        let mut gone = Vec::new();
        for peer in self.peers.borrow().iter().flatten() {
            if peer.gone.get() {
                continue;
            }
            if !self.is_here(peer) || (died || now) && !self.domain.is_alive(peer.participant) {
                gone.push(peer.clone());
            }
        }
        for peer in gone {
            self.lose(&peer);
        }
        self.return_owed();
        for own in [&self.reply, &self.request] {
            let (claim, q) = (own.side.claim(), own.side.queue());
            if (died || now) && self.domain.config().algorithm.is_locked() {
                self.domain.acquit(&own.side);
            }
            let mut receiver = own.receiver.borrow_mut();
            if died || due {
                receiver.sweep(claim, q, self.cpu(), &Members(&self.domain));
                receiver.heal(claim, q, self.cpu());
            }
            while receiver.look_after(claim, q, self.cpu(), &Members(&self.domain)) {}
            // The head may have passed places without a delivery, and a sender may wait for it.
            let around = self.domain.around(q);
            claim.flush(q, &mut receiver, self.cpu(), &self.domain.wait(&around));
        }
    }

    /// Whether a peer's endpoint is open, and still the same.
    pub(crate) fn is_here(&self, peer: &Peer<D>) -> bool {
        // Acquire: pairs with the Release when the endpoint was closed or taken by another.
        let read = |word| self.cpu().load(word, Ordering::Acquire);
        read(&peer.entry.owner) == peer.participant.to_bits()
            && read(&peer.entry.generation) == peer.name.generation
            && read(&peer.entry.open) == peer.participant.to_bits()
    }

    /// Notes that a peer is gone, and brings back what it did not finish.
    pub(crate) fn lose(&self, peer: &Rc<Peer<D>>) {
        if !peer.gone.replace(true) {
            self.return_outstanding(peer);
        }
    }

    /// Why nothing reaches a peer any more.
    pub(crate) fn reason(&self, peer: &Peer<D>) -> Status {
        if !self.domain.is_alive(peer.participant) {
            Status::Unreachable
        } else if peer.gone.get() {
            Status::BadEndpoint
        } else {
            // It is there, but the lock in front of its queue is lost.
            Status::Congestion
        }
    }

    /// Brings back the requests that an endpoint which is gone did not finish.
    fn return_outstanding(&self, peer: &Rc<Peer<D>>) {
        // Acquire: as in `is_here`.
        if self.cpu().load(&peer.entry.generation, Ordering::Acquire) != peer.name.generation {
            return; // Its successor has reset the queues, and sends them back.
        }
        let me = source_code(self.name.endpoint, self.name.generation);
        let side = &peer.request.side;
        let status = self.reason(peer);
        let all = Outstanding::take_all(self.cpu(), side.queue(), side.claim(), peer.name, |s| s == me);
        self.returns.borrow_mut().extend(all.into_iter().map(|o| Return {
            status,
            operation: o.operation,
            handler: o.handler,
            destination: o.destination,
            tag: o.tag,
            args: o.args,
            count: o.count,
        }));
    }

    /// Sends back what our predecessor was sent and did not finish, and replies that we
    /// could not take, as far as there is space now. Not while a reply waits for space: the two
    /// would claim by the same intent.
    fn return_owed(&self) {
        while !self.replying.get()
            && let Some(o) = self.owed.borrow_mut().pop()
        {
            let what = (o.handler, o.tag, &o.args[..o.count]);
            let to = self.name_of(o.source);
            if !self.send_back(to, o.destination, o.status, o.operation, what, false) {
                self.owed.borrow_mut().push(o);
                return;
            }
        }
    }
}
