//! Sending: looks the destination up, chooses the form, claims, fills, publishes and
//! wakes.
//!
//! [`SendPath::send`] claims, fills and publishes one packet; this file adds the destination, its
//! liveness, and the pieces of long transfers.
//!
//! **A sender that dies** leaves what the claim algorithm says of each step (`towpath_channel`),
//! and no more: a block that it had claimed and not published is found by the receiver's sweep;
//! pieces of a long transfer that were delivered stay stored, and the handler does not run.

use core::cell::Cell;
use core::sync::atomic::Ordering;
use std::rc::Rc;

use towpath_machine::Processor;
use towpath_sync::WaitForSpace;

use crate::claim::Claim;
use crate::directory::Directory;
use crate::domain::{EndpointStep, Side};
use crate::error::{Error, Status};
use crate::message::{Direction, Operation, Returned, Source};
use crate::name::{Name, Tag};
use crate::outgoing::{Body, OnFull, Outgoing};
use crate::outstanding::Outstanding;
use crate::packet::{Form, MAX_ARGS, MAX_OFFSET, MAX_STORED, from_source_code};
use crate::path::{self, Failure, Piece, SendPath, WhileFull};
use crate::state::{Core, Domain, Mapping, PeerEndpoint, PeerQueue};

/// The largest offset in a private segment, plus one: any address of a process.
const MAX_PRIVATE_OFFSET: u64 = 1 << 48;

/// Mark of a reply that waits for space, until it is dropped.
struct Replying<'a>(&'a Cell<bool>, bool);

impl<'a> Replying<'a> {
    #[inline]
    fn new(flag: &'a Cell<bool>) -> Self {
        Replying(flag, flag.replace(true))
    }
}

impl Drop for Replying<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

/// Message that waits for space. All of the bundle is polled meanwhile: its endpoints
/// have one thread, and the full queue of another may be the reason for the wait.
pub(crate) struct Waiter<'a, D: Domain, W> {
    pub core: &'a Core<D>,
    pub peer: &'a PeerEndpoint<D>,
    pub direction: Direction,
    pub waiting: &'a W,
    /// True if it waits for the peer's stream.
    pub in_stream: bool,
}

impl<D: Domain, W> Clone for Waiter<'_, D, W> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Domain, W> Copy for Waiter<'_, D, W> {}

impl<D: Domain, W> Waiter<'_, D, W> {
    #[inline]
    fn replying(&self) -> Option<Replying<'_>> {
        self.direction.is_reply().then(|| Replying::new(&self.core.dispatch.replying))
    }
}

impl<D: Domain, W: WaitForSpace<D::Cpu>> WhileFull for Waiter<'_, D, W> {
    #[inline]
    fn is_gone(&self) -> bool {
        self.peer.gone.get()
    }
    fn poll(&self) -> usize {
        let _replying = self.replying();
        match self.direction {
            Direction::Reply => self.core.poll_bundle_replies(),
            Direction::Request => self.core.poll_bundle(),
        }
    }
    fn pause(&self, round: u32) {
        let (link, cpu) = (self.peer.link(self.direction), self.core.cpu());
        if self.in_stream {
            return self.peer.stream.await_space(cpu, self.waiting, round);
        }
        let PeerQueue { side, sender } = link;
        side.claim().await_space(side.queue(), &sender.borrow(), cpu, self.waiting, round);
    }
    /// Returns whether it is time to look around. A turn may be a sleep of a millisecond:
    /// a sender that looks around only after many of them leaves a dead sender's place at the head
    /// of its own queue, and peers that wait for space there do the same.
    fn is_due(&self, round: u32) -> bool {
        let Core { domain, upkeep, .. } = self.core;
        round.is_multiple_of(64)
            || domain.deaths() != upkeep.deaths_seen.get()
            || domain
                .look_every()
                .is_some_and(|every| domain.cpu().now().wrapping_sub(upkeep.last_look.get()) >= every)
    }
    fn look_around(&self) -> bool {
        let _replying = self.replying();
        self.core.look_after_bundle();
        self.core.domain.is_alive(self.peer.participant)
    }
}

#[cold]
fn in_handler() -> Error {
    Error::InUse("a handler may reply, but not send requests".into())
}

#[cold]
fn not_mapped(index: usize) -> Error {
    Error::NotInitialised(format!(
        "translation table entry {index} leads nowhere; map it first (Endpoint::map, Endpoint::map_world)"
    ))
}

#[cold]
fn too_many(args: &[u32]) -> Error {
    Error::BadArgument(format!(
        "{} arguments: at most {MAX_ARGS}; send the rest as a medium message's payload",
        args.len()
    ))
}

impl<D: Domain> Core<D> {
    #[inline]
    fn mapped(&self, index: usize) -> Result<(Rc<PeerEndpoint<D>>, Tag), Error> {
        match self.tables.translations.borrow().get(index) {
            Some(Some(mapping)) => Ok((mapping.peer.clone(), mapping.tag)),
            _ => Err(not_mapped(index)),
        }
    }

    /// Sends a request without a payload to the endpoint that entry `index` of the
    /// translation table leads to.
    ///
    /// Without a call: the number of arguments is known where it is called, and its result lies in
    /// registers there.
    #[inline(always)]
    pub(crate) fn request_short(
        &self,
        index: usize,
        handler: u8,
        args: &[u32],
        on_full: OnFull,
    ) -> Result<(), Error> {
        if self.dispatch.depth.get() > 0 {
            return Err(in_handler());
        }
        // Borrowed meanwhile: no handler can reach the table.
        let table = self.tables.translations.borrow();
        let Some(Some(Mapping { peer, tag, .. })) = table.get(index) else { return Err(not_mapped(index)) };
        if self.send_in_line(peer, Direction::Request, handler, *tag, args) {
            return Ok(());
        }
        self.request_beside_line(peer, handler, *tag, args, on_full)
    }

    /// Sends a request without a payload in a stream or through the queue.
    #[inline(never)]
    fn request_beside_line(
        &self,
        peer: &Rc<PeerEndpoint<D>>,
        handler: u8,
        tag: Tag,
        args: &[u32],
        on_full: OnFull,
    ) -> Result<(), Error> {
        let out = Outgoing::request(handler, args, Body::Short, on_full);
        self.short(peer, &Outgoing { tag, ..out })
    }

    /// Sends a request to the endpoint that entry `index` of the translation table leads
    /// to.
    pub(crate) fn request_to(&self, index: usize, out: Outgoing<'_>) -> Result<(), Error> {
        if let Body::Short = out.body {
            return self.request_short(index, out.handler, out.args, out.on_full);
        }
        if self.dispatch.depth.get() > 0 {
            return Err(in_handler());
        }
        let (peer, tag) = self.mapped(index)?;
        self.with_payload(&peer, &Outgoing { tag, ..out })
    }

    /// Sends a reply without a payload that its request's line does not take.
    #[inline(never)]
    pub(crate) fn reply_short(&self, to: Source, handler: u8, tag: Tag, args: &[u32]) -> Result<(), Error> {
        self.reply_to(to, Outgoing::reply(handler, tag, args, Body::Short))
    }

    /// Sends a reply to the sender of a request.
    #[inline]
    pub(crate) fn reply_to(&self, to: Source, out: Outgoing<'_>) -> Result<(), Error> {
        if self.dispatch.signalled.running.get() {
            return match out.body {
                Body::Short => self.reply_from_signal(to, &out),
                _ => Err(Error::NotSent),
            };
        }
        match self.requester(to) {
            Ok(peer) if matches!(out.body, Body::Short) => self.short(&peer, &out),
            Ok(peer) => self.with_payload(&peer, &out),
            Err(name) => self.reply_in_vain(name, &out),
        }
    }

    /// Returns the endpoint that a reply goes to, or the name of one that is gone.
    #[inline(always)]
    fn requester(&self, source: Source) -> Result<Rc<PeerEndpoint<D>>, Name> {
        let name = match source {
            Source::Named(name) => name,
            Source::Coded(code) => {
                if let Some(Some(peer)) =
                    self.tables.peers.borrow().get(usize::from(from_source_code(code).0))
                    && peer.name.code() == code
                    && !peer.gone.get()
                {
                    return Ok(peer.clone());
                }
                self.name_of(code)
            }
        };
        self.peer(name).map_err(|_| name)
    }

    /// Brings a reply back whose requester is gone.
    #[cold]
    fn reply_in_vain(&self, to: Name, out: &Outgoing<'_>) -> Result<(), Error> {
        if out.args.len() > MAX_ARGS {
            return Err(too_many(out.args));
        }
        self.bring_back(Status::BadEndpoint, to, out);
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn content<'a>(&self, out: &Outgoing<'a>, form: Form, aux: u64) -> path::PacketContent<'a> {
        let source = self.name.code();
        path::PacketContent { form, handler: out.handler, tag: out.tag.0, args: out.args, aux, source }
    }

    /// Sends a message without a payload.
    #[inline(always)]
    fn short(&self, peer: &Rc<PeerEndpoint<D>>, out: &Outgoing<'_>) -> Result<(), Error> {
        if out.args.len() > MAX_ARGS {
            return Err(too_many(out.args));
        }
        if self.send_in_line(peer, out.direction, out.handler, out.tag, out.args) {
            return Ok(());
        }
        if let Some(result) = self.send_in_stream(peer, out) {
            return self.outcome(result, peer, out);
        }
        if self.opens_stream(peer, out) {
            return Ok(());
        }
        let content = self.content(out, Form::Short, 0);
        self.outcome(self.packet(peer, out.direction, &content, None, out.on_full), peer, out)
    }

    /// Sends a message with a payload.
    fn with_payload(&self, peer: &Rc<PeerEndpoint<D>>, out: &Outgoing<'_>) -> Result<(), Error> {
        if out.args.len() > MAX_ARGS {
            return Err(too_many(out.args));
        }
        match out.body {
            Body::Short => self.short(peer, out),
            Body::Medium(payload) => self.medium(peer, out, payload),
            Body::Long { payload, offset } => self.long(peer, out, payload, offset),
        }
    }

    fn medium(&self, peer: &Rc<PeerEndpoint<D>>, out: &Outgoing<'_>, payload: &[u8]) -> Result<(), Error> {
        let block_size = self.domain.config().block_size as usize;
        if payload.len() > block_size {
            return Err(Error::BadArgument(format!(
                "a medium payload of {} bytes: at most {block_size}; send it as a long message",
                payload.len()
            )));
        }
        let content = self.content(out, Form::Medium, 0);
        let piece = Piece { bytes: payload, offset: 0, whole: (0, 0), away: false };
        self.outcome(self.packet(peer, out.direction, &content, Some(piece), out.on_full), peer, out)
    }

    fn long(
        &self,
        peer: &Rc<PeerEndpoint<D>>,
        out: &Outgoing<'_>,
        payload: &[u8],
        offset: u64,
    ) -> Result<(), Error> {
        let len = payload.len() as u64;
        // Relaxed: stored before the entry was opened, which the sender has seen (E6).
        let shared = self.cpu().load(&peer.entry.segment_len, Ordering::Relaxed);
        let most = if shared > 0 { MAX_OFFSET } else { MAX_PRIVATE_OFFSET };
        if offset >= most || len >= MAX_OFFSET {
            return Err(Error::BadArgument(format!(
                "a transfer of {len} bytes to offset {offset}: they must be below {MAX_OFFSET} and {most}"
            )));
        }
        if shared > 0 && len <= MAX_STORED && !peer.gone.get() {
            return self.store_directly(peer, out, payload, offset, shared);
        }
        // A sender that shares a core with the receiver shares its caches.
        let away = !self.domain.oversubscribed();
        if shared == 0
            && away
            && let Some(result) = self.offer(peer, out, payload, offset)
        {
            return self.outcome(result, peer, out);
        }
        let block_size = self.domain.config().block_size as usize;
        let mut at = 0;
        loop {
            let end = (at + block_size).min(payload.len());
            let last = end == payload.len();
            let content = match last {
                true => self.content(out, Form::Long, 0),
                false => path::PacketContent { args: &[], ..self.content(out, Form::LongPart, 0) },
            };
            let bytes = &payload[at..end];
            let piece = Piece { bytes, offset: offset + at as u64, whole: (offset, len), away };
            // Once a piece is out the rest must follow.
            let on_full = if at > 0 { OnFull::Wait } else { out.on_full };
            let result = self.packet(peer, out.direction, &content, Some(piece), on_full);
            let gone = matches!(result, Err(Failure::Gone));
            self.outcome(result, peer, out)?;
            if last || gone {
                return Ok(());
            }
            at = end;
        }
    }

    /// Turns a failure into the caller's result: a message whose destination is gone
    /// comes back to handler 0.
    #[inline(always)]
    pub(crate) fn outcome(
        &self,
        result: Result<(), Failure>,
        peer: &Rc<PeerEndpoint<D>>,
        out: &Outgoing<'_>,
    ) -> Result<(), Error> {
        match result {
            Ok(()) => Ok(()),
            Err(Failure::NotSent) => Err(Error::NotSent),
            Err(Failure::Gone) => {
                self.destination_gone(peer, out);
                Ok(())
            }
        }
    }

    #[cold]
    fn destination_gone(&self, peer: &Rc<PeerEndpoint<D>>, out: &Outgoing<'_>) {
        if !self.is_here(peer) {
            // Earlier ones come back first.
            self.lose(peer);
        }
        self.bring_back(self.reason(peer), peer.name, out);
    }

    #[cold]
    fn bring_back(&self, status: Status, destination: Name, out: &Outgoing<'_>) {
        let mut args = [0; MAX_ARGS];
        args[..out.args.len()].copy_from_slice(out.args);
        let operation = Operation::of(out.form(), out.direction);
        self.back.returns.borrow_mut().push_back(Outstanding {
            returned: Returned { status, operation, handler: out.handler, destination },
            source: self.name.code(),
            tag: out.tag,
            args,
            count: out.args.len(),
            ticket: 0,
        });
    }

    /// Claims, fills and publishes one packet, with a block if there is a piece.
    #[inline(always)]
    pub(crate) fn packet(
        &self,
        peer: &Rc<PeerEndpoint<D>>,
        direction: Direction,
        content: &path::PacketContent<'_>,
        piece: Option<Piece<'_>>,
        on_full: OnFull,
    ) -> Result<(), Failure> {
        if peer.gone.get() {
            // Its queues may still take messages, but those in them have been returned already.
            return Err(Failure::Gone);
        }
        let link = peer.link(direction);
        self.domain.charge(EndpointStep::Send);
        let queue = link.side.queue();
        let around = self.domain.around(queue);
        let waiting = self.domain.wait(&around);
        let route = SendPath {
            queue,
            claim: link.side.claim(),
            sender: &link.sender,
            intent: self.intent(direction),
            block_intent: self.block_intent(direction),
        };
        let meanwhile = Waiter { core: self, peer, direction, waiting: &waiting, in_stream: false };
        let patient = on_full == OnFull::Wait;
        let must_wake = route.send(self.cpu(), content, piece, patient, &waiting, meanwhile)?;
        let known = || (link.sender.borrow().alone, link.sender.borrow().next_ticket);
        if let Some(predictor) = peer.predictor.get().on_send(direction, known) {
            peer.predictor.set(predictor);
            self.has_answered(peer);
        }
        if must_wake {
            self.wake(peer);
        }
        Ok(())
    }

    /// Wakes the process that owns an endpoint.
    #[cold]
    pub(crate) fn wake(&self, peer: &PeerEndpoint<D>) {
        self.domain.wake_owner(&peer.entry, peer.participant, !self.dispatch.signalled.running.get());
    }

    /// Sends an undeliverable message back. Returns `false` if there is no space.
    #[cold]
    pub(crate) fn send_back(&self, to: Name, back: &Outstanding, on_full: OnFull) -> bool {
        let Ok(peer) = self.peer(to) else { return true };
        let content = back.content(self.name.code());
        // If its sender is gone it need not come back here: this endpoint did not send the
        // original.
        !matches!(self.packet(&peer, Direction::Reply, &content, None, on_full), Err(Failure::NotSent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deliver::LOOK_EVERY;
    use crate::packet::Header;
    use crate::{Algorithm, Bundle, Endpoint, WorldConfig};

    #[test]
    fn waiting_sender_frees_claims_of_the_dead_in_its_bundle() {
        let config = WorldConfig { algorithm: Algorithm::Posix, ..WorldConfig::new(2) };
        let world = towpath_shm::World::create(&config.spec(None)).unwrap();
        world.enter(None).unwrap();
        let [receiver, sender] = [(); 2].map(|()| Endpoint::new(&world).unwrap());
        let bundle = Bundle::new();
        bundle.add(&receiver);
        bundle.add(&sender);
        receiver.set_handler(1, |_| {});
        sender.map(0, receiver.name(), Tag::ALL).unwrap();
        // Left by a predecessor of the sender that died under the lock, before it moved the tail.
        let q = receiver.core.request.side.queue();
        let tail = q.control.tail.load(Ordering::Relaxed) & crate::queue::TICKET;
        let claimed = Header::claimed(sender.name().endpoint, 0);
        q.slot(tail).header.store(claimed.0, Ordering::Relaxed);
        sender.request(0, 1, &[]).unwrap();
        // By itself a receiver looks after its queue only that often.
        assert!(receiver.core.upkeep.idle_polls.get() < LOOK_EVERY);
        assert_eq!(bundle.poll(), 1);
    }
}
