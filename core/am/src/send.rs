//! Sending: to whom, in which form; `path.rs` claims, fills and publishes; then the
//! receiver is woken if it sleeps.
//!
//! **A sender that dies** leaves what the claim algorithm says of each step (`claim/`), and no
//! more: a block that it had claimed and not published is found by the receiver's sweep; pieces of
//! a long transfer that were delivered stay stored, and the handler does not run.

use core::cell::Cell;
use core::sync::atomic::Ordering;
use std::rc::Rc;

use towpath_machine::{Park, Processor};
use towpath_sync::WaitForSpace;

use crate::claim::Claim;
use crate::domain::{Domain, Side, Step, Stored};
use crate::endpoint::{Core, Link, Peer, Return};
use crate::error::{Error, Status};
use crate::name::{Name, Tag};
use crate::packet::{Form, MAX_ARGS, MAX_OFFSET, MAX_STORED, from_source_code, pack_range, source_code};
use crate::path::{Failure, Meanwhile, Outgoing, Piece, Route};
use crate::queue::intent;
use crate::token::{Operation, Source};

/// A reply waits for space.
struct Replying<'a>(&'a Cell<bool>, bool);

impl<'a> Replying<'a> {
    fn new(flag: &'a Cell<bool>) -> Self {
        Replying(flag, flag.replace(true))
    }
}

impl Drop for Replying<'_> {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

/// A message waits for space. All of the bundle is polled meanwhile: its endpoints have
/// one thread, and another's full queue may be what we wait for.
struct Waiter<'a, D: Domain, W> {
    core: &'a Core<D>,
    peer: &'a Peer<D>,
    link: &'a Link<D>,
    reply: bool,
    waiting: &'a W,
}

impl<D: Domain, W> Clone for Waiter<'_, D, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Domain, W> Copy for Waiter<'_, D, W> {}

impl<D: Domain, W> Waiter<'_, D, W> {
    fn replying(&self) -> Option<Replying<'_>> {
        self.reply.then(|| Replying::new(&self.core.replying))
    }
}

impl<D: Domain, W: WaitForSpace<D::Cpu>> Meanwhile for Waiter<'_, D, W> {
    fn is_gone(&self) -> bool {
        self.peer.gone.get()
    }
    fn poll(&self) -> usize {
        let _replying = self.replying();
        if self.reply { self.core.poll_bundle_replies() } else { self.core.poll_bundle() }
    }
    fn pause(&self, round: u32) {
        let (side, cpu) = (&self.link.side, self.core.cpu());
        side.claim().await_space(side.queue(), &self.link.sender.borrow(), cpu, self.waiting, round);
    }
    /// A turn may be a sleep of a millisecond. A sender that looks around only after many
    /// of them leaves a dead one's place at the head of its own queue, and whoever waits for space
    /// there does the same.
    fn is_due(&self, round: u32) -> bool {
        let Core { domain, deaths_seen, last_look, .. } = self.core;
        round.is_multiple_of(64)
            || domain.deaths() != deaths_seen.get()
            || domain
                .look_every()
                .is_some_and(|every| domain.cpu().now().wrapping_sub(last_look.get()) >= every)
    }
    fn look_around(&self) -> bool {
        let _replying = self.replying();
        self.core.look_after(false);
        self.core.domain.is_alive(self.peer.participant)
    }
}

#[cold]
fn not_mapped(index: usize) -> Error {
    Error::NotInitialised(format!("translation table entry {index}"))
}

fn too_many(args: &[u32]) -> Error {
    Error::BadArgument(format!("{} arguments: at most {MAX_ARGS}", args.len()))
}

impl<D: Domain> Core<D> {
    fn mapped(&self, index: usize) -> Result<(Rc<Peer<D>>, Tag), Error> {
        match self.translations.borrow().get(index) {
            Some(Some(mapping)) => Ok((mapping.peer.clone(), mapping.tag)),
            _ => Err(not_mapped(index)),
        }
    }

    fn may_request(&self) -> Result<(), Error> {
        if self.depth.get() > 0 {
            return Err(Error::InUse("a handler may reply, but not send requests".into()));
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn request_short(
        &self,
        index: usize,
        handler: u8,
        args: &[u32],
        wait: bool,
    ) -> Result<(), Error> {
        self.may_request()?;
        // Borrowed meanwhile: no handler can reach the table.
        match self.translations.borrow().get(index) {
            Some(Some(mapping)) => self.short(&mapping.peer, false, handler, mapping.tag, args, wait),
            _ => Err(not_mapped(index)),
        }
    }

    #[inline]
    pub(crate) fn reply_short(&self, to: Source, handler: u8, tag: Tag, args: &[u32]) -> Result<(), Error> {
        if self.signalled.running.get() {
            return self.reply_from_signal(to, handler, tag, args);
        }
        match self.requester(to) {
            Ok(peer) => self.short(&peer, true, handler, tag, args, true),
            Err(name) => self.reply_to_nobody(name, Form::Short, handler, tag, args),
        }
    }

    /// The endpoint that a reply goes to, or the name of the one that is gone.
    #[inline(always)]
    fn requester(&self, source: Source) -> Result<Rc<Peer<D>>, Name> {
        let name = match source {
            Source::Named(name) => name,
            Source::Coded(code) => {
                if let Some(Some(peer)) = self.peers.borrow().get(usize::from(from_source_code(code).0))
                    && source_code(peer.name.endpoint, peer.name.generation) == code
                    && !peer.gone.get()
                {
                    return Ok(peer.clone());
                }
                self.name_of(code)
            }
        };
        self.peer(name).map_err(|_| name)
    }

    /// A reply whose requester is gone.
    #[cold]
    fn reply_to_nobody(
        &self,
        to: Name,
        form: Form,
        handler: u8,
        tag: Tag,
        args: &[u32],
    ) -> Result<(), Error> {
        if args.len() > MAX_ARGS {
            return Err(too_many(args));
        }
        let out = self.outgoing(form, handler, tag, args, 0);
        self.bring_back(Status::BadEndpoint, to, true, &out);
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn outgoing<'a>(
        &self,
        form: Form,
        handler: u8,
        tag: Tag,
        args: &'a [u32],
        aux: u64,
    ) -> Outgoing<'a> {
        let source = source_code(self.name.endpoint, self.name.generation);
        Outgoing { form, handler, tag: tag.0, args, aux, source }
    }

    #[inline(always)]
    fn short(
        &self,
        peer: &Rc<Peer<D>>,
        reply: bool,
        handler: u8,
        tag: Tag,
        args: &[u32],
        wait: bool,
    ) -> Result<(), Error> {
        if args.len() > MAX_ARGS {
            return Err(too_many(args));
        }
        let out = self.outgoing(Form::Short, handler, tag, args, 0);
        self.outcome(self.packet(peer, reply, &out, None, wait), peer, reply, &out)
    }

    pub(crate) fn request_medium(
        &self,
        index: usize,
        handler: u8,
        args: &[u32],
        payload: &[u8],
        wait: bool,
    ) -> Result<(), Error> {
        self.may_request()?;
        let (peer, tag) = self.mapped(index)?;
        self.medium(&peer, false, handler, tag, args, payload, wait)
    }

    pub(crate) fn reply_medium(
        &self,
        to: Source,
        handler: u8,
        tag: Tag,
        args: &[u32],
        payload: &[u8],
    ) -> Result<(), Error> {
        if self.signalled.running.get() {
            return Err(Error::NotSent);
        }
        match self.requester(to) {
            Ok(peer) => self.medium(&peer, true, handler, tag, args, payload, true),
            Err(name) => self.reply_to_nobody(name, Form::Medium, handler, tag, args),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a message is that many things")]
    fn medium(
        &self,
        peer: &Rc<Peer<D>>,
        reply: bool,
        handler: u8,
        tag: Tag,
        args: &[u32],
        payload: &[u8],
        wait: bool,
    ) -> Result<(), Error> {
        if args.len() > MAX_ARGS {
            return Err(too_many(args));
        }
        let block_size = self.domain.config().block_size as usize;
        if payload.len() > block_size {
            return Err(Error::BadArgument(format!(
                "a medium payload of {} bytes: at most {block_size}; send it as a long message",
                payload.len()
            )));
        }
        let out = self.outgoing(Form::Medium, handler, tag, args, 0);
        let piece = Piece { bytes: payload, offset: 0, whole: (0, 0) };
        self.outcome(self.packet(peer, reply, &out, Some(piece), wait), peer, reply, &out)
    }

    pub(crate) fn request_long(
        &self,
        index: usize,
        handler: u8,
        args: &[u32],
        payload: &[u8],
        offset: u64,
        wait: bool,
    ) -> Result<(), Error> {
        self.may_request()?;
        let (peer, tag) = self.mapped(index)?;
        self.long(&peer, false, (handler, tag, args), payload, offset, wait)
    }

    pub(crate) fn reply_long(
        &self,
        to: Source,
        handler: u8,
        tag: Tag,
        args: &[u32],
        payload: &[u8],
        offset: u64,
    ) -> Result<(), Error> {
        if self.signalled.running.get() {
            return Err(Error::NotSent);
        }
        match self.requester(to) {
            Ok(peer) => self.long(&peer, true, (handler, tag, args), payload, offset, true),
            Err(name) => self.reply_to_nobody(name, Form::Long, handler, tag, args),
        }
    }

    fn long(
        &self,
        peer: &Rc<Peer<D>>,
        reply: bool,
        (handler, tag, args): (u8, Tag, &[u32]),
        payload: &[u8],
        offset: u64,
        wait: bool,
    ) -> Result<(), Error> {
        if args.len() > MAX_ARGS {
            return Err(too_many(args));
        }
        let len = payload.len() as u64;
        if offset >= MAX_OFFSET || len >= MAX_OFFSET {
            return Err(Error::BadArgument(format!(
                "a transfer of {len} bytes to offset {offset}: both must be below {MAX_OFFSET}"
            )));
        }
        // Acquire: pairs with the Release in `open_entry`.
        let shared = self.cpu().load(&peer.entry.segment_len, Ordering::Acquire);
        if shared > 0 && len <= MAX_STORED && !peer.gone.get() {
            return self.store_directly(peer, reply, (handler, tag, args), payload, offset, wait, shared);
        }
        let block_size = self.domain.config().block_size as usize;
        let mut at = 0;
        loop {
            let end = (at + block_size).min(payload.len());
            let last = end == payload.len();
            let form = if last { Form::Long } else { Form::LongPart };
            let out = self.outgoing(form, handler, tag, if last { args } else { &[] }, 0);
            let piece = Piece { bytes: &payload[at..end], offset: offset + at as u64, whole: (offset, len) };
            // Once a piece is out the rest must follow.
            let result = self.packet(peer, reply, &out, Some(piece), wait || at > 0);
            let gone = matches!(result, Err(Failure::Gone));
            let out = Outgoing { form: Form::Long, args, ..out };
            self.outcome(result, peer, reply, &out)?;
            if last || gone {
                return Ok(());
            }
            at = end;
        }
    }

    /// Stores into the destination's shared segment, then announces it.
    #[expect(clippy::too_many_arguments, reason = "one caller, which passes its own arguments on")]
    fn store_directly(
        &self,
        peer: &Rc<Peer<D>>,
        reply: bool,
        (handler, tag, args): (u8, Tag, &[u32]),
        payload: &[u8],
        offset: u64,
        wait: bool,
        shared: u64,
    ) -> Result<(), Error> {
        let len = payload.len() as u64;
        let out = self.outgoing(Form::LongStored, handler, tag, args, pack_range(offset, len));
        if offset + len <= shared {
            let segment = self.domain.segment(peer.name.endpoint)?;
            if offset + len > segment.len() {
                return Err(Error::BadWorld("a segment's length does not fit its place".into()));
            }
            let link = if reply { &peer.reply } else { &peer.request };
            let (q, intent) = (link.side.queue(), self.intent(reply));
            // SeqCst, the exchange and the look at the tail: either a successor sees our intent and
            // waits for us, or we see that the queue is closed and don't touch the segment, which
            // may be the successor's by now; pairs with the exchange in `wait_for_stragglers`.
            self.cpu().swap(intent, intent::encode(q.id, intent::CLAIMING, 0), Ordering::SeqCst);
            let here = !link.sender.borrow().shut_out(self.cpu().load(&q.control.tail, Ordering::SeqCst));
            if here {
                segment.write(offset as usize, payload);
            }
            // Release: after that.
            self.cpu().store(intent, 0, Ordering::Release);
            if !here {
                return self.outcome(Err(Failure::Gone), peer, reply, &out);
            }
        }
        // Otherwise the receiver finds the range wrong and sends it back.
        self.outcome(self.packet(peer, reply, &out, None, wait), peer, reply, &out)
    }

    /// What a failure means to the caller: a message to somebody who is gone comes back
    /// to handler 0.
    #[inline(always)]
    fn outcome(
        &self,
        result: Result<(), Failure>,
        peer: &Rc<Peer<D>>,
        reply: bool,
        out: &Outgoing<'_>,
    ) -> Result<(), Error> {
        match result {
            Ok(()) => Ok(()),
            Err(Failure::NotSent) => Err(Error::NotSent),
            Err(Failure::Gone) => {
                if !self.is_here(peer) {
                    // Earlier ones come back first.
                    self.lose(peer);
                }
                self.bring_back(self.reason(peer), peer.name, reply, out);
                Ok(())
            }
        }
    }

    #[cold]
    fn bring_back(&self, status: Status, destination: Name, reply: bool, out: &Outgoing<'_>) {
        let mut args = [0; MAX_ARGS];
        args[..out.args.len()].copy_from_slice(out.args);
        self.returns.borrow_mut().push_back(Return {
            status,
            operation: Operation::of(out.form, reply),
            handler: out.handler,
            destination,
            tag: Tag(out.tag),
            args,
            count: out.args.len(),
        });
    }

    /// Claims, fills and publishes one packet, with a block if there is a piece.
    #[inline(always)]
    pub(crate) fn packet(
        &self,
        peer: &Peer<D>,
        reply: bool,
        out: &Outgoing<'_>,
        piece: Option<Piece<'_>>,
        wait: bool,
    ) -> Result<(), Failure> {
        if peer.gone.get() {
            // Its queues may still take messages, but what was in them has been returned already.
            return Err(Failure::Gone);
        }
        let link = if reply { &peer.reply } else { &peer.request };
        self.domain.charge(Step::Send);
        let queue = link.side.queue();
        let around = self.domain.around(queue);
        let waiting = self.domain.wait(&around);
        let route = Route {
            queue,
            claim: link.side.claim(),
            sender: &link.sender,
            intent: self.intent(reply),
            block_intent: self.block_intent(reply),
        };
        let meanwhile = Waiter { core: self, peer, link, reply, waiting: &waiting };
        let must_wake = route.send(self.cpu(), out, piece, wait, &waiting, meanwhile)?;
        let known = || (link.sender.borrow().alone, link.sender.borrow().next_ticket);
        if let Some(habit) = peer.habit.get().after(reply, known) {
            peer.habit.set(habit);
        }
        if must_wake {
            self.ring(peer);
        }
        Ok(())
    }

    /// Wakes the process that owns an endpoint.
    #[cold]
    fn ring(&self, peer: &Peer<D>) {
        if let Some(doorbell) = self.domain.doorbell(peer.participant.index) {
            // Release: the publication comes before; pairs with the Acquire in `wait_for`.
            self.cpu().fetch_add(doorbell, 1, Ordering::Release);
            self.cpu().wake(doorbell, u32::MAX);
        }
        let address = &peer.entry.signal;
        // Relaxed: seen, if the queue was seen to be asleep. AcqRel: one of those who see it takes
        // it; pairs with itself and with the Release in `leave`.
        if self.cpu().load(address, Ordering::Relaxed) != 0 {
            let address = self.cpu().swap(address, 0, Ordering::AcqRel);
            if address != 0 {
                self.domain.interrupt(peer.participant, address, !self.signalled.running.get());
            }
        }
    }

    /// Sends an undeliverable message back: its status, operation and destination's
    /// generation in one cell. For a request, as a reply would be sent; for a reply, only if there
    /// is space at once. `false`: there is none.
    #[cold]
    pub(crate) fn send_back(
        &self,
        to: Name,
        destination: Name,
        status: Status,
        operation: Operation,
        (handler, tag, args): (u8, Tag, &[u32]),
        wait: bool,
    ) -> bool {
        let Ok(peer) = self.peer(to) else { return true };
        let aux = status as u64 | (operation as u64) << 8 | destination.generation << 16;
        let out = self.outgoing(Form::Returned, handler, tag, args, aux);
        // A message to somebody who is gone need not come back to us: we did not send the original.
        !matches!(self.packet(&peer, true, &out, None, wait), Err(Failure::NotSent))
    }
}
