//! Sending: claim (block first, then packet), fill, publish, and wake the receiver if it sleeps.
//!
//! **A sender that dies** leaves what the claim algorithm says of each step (`claim/`), and no more: a block that it had claimed and
//! not published is found by the receiver's sweep; pieces of a long transfer that were delivered stay stored, and the handler does not run.

use core::cell::Cell;
use core::sync::atomic::Ordering;
use std::rc::Rc;

use towpath_machine::{Native, Park, Processor};
use towpath_sync::Waiting;

use crate::claim::Claim;
use crate::endpoint::{Around, Core, Link, Peer, Return};
use crate::error::{Error, Status};
use crate::name::{Name, Tag};
use crate::packet::{
    Form, Header, LINE_ARGS, MAX_ARGS, MAX_OFFSET, MAX_STORED, READY, READY_BULK, pack_range, source_code,
};
use crate::queue::{ClaimError, intent};
use crate::token::{Operation, Source};

/// A message on its way into a queue.
struct Outgoing<'a> {
    form: Form,
    handler: u8,
    tag: Tag,
    args: &'a [u32],
    aux: u64,
}

/// Why a message did not go out.
enum Failure {
    /// No space, and the caller does not want to wait.
    NotSent,
    /// The destination is gone.
    Gone,
}

/// A piece of a transfer: what a block carries.
#[derive(Clone, Copy)]
struct Piece<'a> {
    bytes: &'a [u8],
    /// Long: where this piece belongs, and the whole transfer's range.
    offset: u64,
    whole: (u64, u64),
}

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

#[cold]
fn not_mapped(index: usize) -> Error {
    Error::NotInitialised(format!("translation table entry {index}"))
}

fn too_many(args: &[u32]) -> Error {
    Error::BadArgument(format!("{} arguments: at most {MAX_ARGS}", args.len()))
}

impl Core {
    fn mapped(&self, index: usize) -> Result<(Rc<Peer>, Tag), Error> {
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
        match self.requester(to) {
            Ok(peer) => self.short(&peer, true, handler, tag, args, true),
            Err(name) => self.reply_to_nobody(name, Form::Short, handler, tag, args),
        }
    }

    /// The endpoint that a reply goes to, or the name of the one that is gone.
    #[inline(always)]
    fn requester(&self, source: Source) -> Result<Rc<Peer>, Name> {
        let name = match source {
            Source::Named(name) => name,
            Source::Coded(code) => {
                if let Some(Some(peer)) = self.peers.borrow().get(usize::from(code & 0xff))
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
        let out = Outgoing { form, handler, tag, args, aux: 0 };
        self.bring_back(Status::BadEndpoint, to, true, &out);
        Ok(())
    }

    #[inline(always)]
    fn short(
        &self,
        peer: &Rc<Peer>,
        reply: bool,
        handler: u8,
        tag: Tag,
        args: &[u32],
        wait: bool,
    ) -> Result<(), Error> {
        if args.len() > MAX_ARGS {
            return Err(too_many(args));
        }
        let out = Outgoing { form: Form::Short, handler, tag, args, aux: 0 };
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
        match self.requester(to) {
            Ok(peer) => self.medium(&peer, true, handler, tag, args, payload, true),
            Err(name) => self.reply_to_nobody(name, Form::Medium, handler, tag, args),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a message is that many things")]
    fn medium(
        &self,
        peer: &Rc<Peer>,
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
        let block_size = self.attached.config.block_size as usize;
        if payload.len() > block_size {
            return Err(Error::BadArgument(format!(
                "a medium payload of {} bytes: at most {block_size}; send it as a long message",
                payload.len()
            )));
        }
        let out = Outgoing { form: Form::Medium, handler, tag, args, aux: 0 };
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
        match self.requester(to) {
            Ok(peer) => self.long(&peer, true, (handler, tag, args), payload, offset, true),
            Err(name) => self.reply_to_nobody(name, Form::Long, handler, tag, args),
        }
    }

    fn long(
        &self,
        peer: &Rc<Peer>,
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
        let shared = peer.entry.segment_len.load(Ordering::Acquire);
        if shared > 0 && len <= MAX_STORED && !peer.gone.get() {
            return self.store_directly(peer, reply, (handler, tag, args), payload, offset, wait, shared);
        }
        let block_size = self.attached.config.block_size as usize;
        let mut at = 0;
        loop {
            let end = (at + block_size).min(payload.len());
            let last = end == payload.len();
            let form = if last { Form::Long } else { Form::LongPart };
            let out = Outgoing { form, handler, tag, args: if last { args } else { &[] }, aux: 0 };
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
        peer: &Rc<Peer>,
        reply: bool,
        (handler, tag, args): (u8, Tag, &[u32]),
        payload: &[u8],
        offset: u64,
        wait: bool,
        shared: u64,
    ) -> Result<(), Error> {
        let len = payload.len() as u64;
        let out = Outgoing { form: Form::LongStored, handler, tag, args, aux: pack_range(offset, len) };
        if offset + len <= shared {
            let segment = self.attached.segment(peer.name.endpoint)?;
            if offset + len > segment.len() as u64 {
                return Err(Error::BadWorld("a segment's length does not fit its place".into()));
            }
            let link = if reply { &peer.reply } else { &peer.request };
            let (q, intent) = (&link.side.queue, self.intent(reply));
            // SeqCst, the exchange and the look at the tail: either a successor sees our intent and waits for us, or we see that the queue is closed and
            // don't touch the segment, which may be the successor's by now; pairs with the exchange in `wait_for_stragglers`.
            self.cpu.swap(intent, intent::encode(q.id, intent::CLAIMING, 0), Ordering::SeqCst);
            let here = !link.sender.borrow().shut_out(self.cpu.load(&q.control.tail, Ordering::SeqCst));
            if here {
                self.cpu.copy_in(&segment, offset as usize, payload);
            }
            // Release: after that.
            self.cpu.store(intent, 0, Ordering::Release);
            if !here {
                return self.outcome(Err(Failure::Gone), peer, reply, &out);
            }
        }
        // Otherwise the receiver finds the range wrong and sends it back.
        self.outcome(self.packet(peer, reply, &out, None, wait), peer, reply, &out)
    }

    /// What a failure means to the caller: a message to somebody who is gone comes back to handler 0.
    #[inline(always)]
    fn outcome(
        &self,
        result: Result<(), Failure>,
        peer: &Rc<Peer>,
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
            tag: out.tag,
            args,
            count: out.args.len(),
        });
    }

    /// Claims, fills and publishes one packet, with a block if there is a piece.
    #[inline(always)]
    fn packet(
        &self,
        peer: &Peer,
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
        let around = Around::new(&self.attached, &link.side.queue);
        let waiting = self.wait(&around);
        let intent = self.intent(reply);
        let cpu = &self.cpu;
        let q = &link.side.queue;
        // Block first, then packet (L19).
        let block = match piece {
            None => None,
            Some(piece) => {
                let holding = self.block_intent(reply);
                let block = self.claim_with(peer, link, reply, wait, |s| {
                    // Relaxed: ordered before the claim by its Release (B1).
                    holding.store(u64::from(q.id) + 1, Ordering::Relaxed);
                    let claimed = link.side.claim.claim_block(q, s, cpu, &waiting, intent);
                    if claimed.is_err() {
                        // Release: as below. While we wait we hold none.
                        holding.store(0, Ordering::Release);
                    }
                    claimed
                })?;
                self.fill_block(link, block, piece);
                Some(block)
            }
        };
        let claimed = {
            let mut sender = link.sender.borrow_mut();
            sender.hasty = !wait;
            link.side.claim.claim(q, &mut sender, cpu, &waiting, intent)
        };
        let claimed = match claimed {
            Ok(ticket) => Ok(ticket),
            Err(_) => self
                .claim_with(peer, link, reply, wait, |s| link.side.claim.claim(q, s, cpu, &waiting, intent)),
        };
        let ticket = match claimed {
            Ok(ticket) => ticket,
            Err(failure) => {
                if let Some(block) = block {
                    q.free_block(cpu, block);
                    // Release: after that.
                    self.block_intent(reply).store(0, Ordering::Release);
                }
                return Err(failure);
            }
        };
        let slot = q.slot(ticket);
        cpu.write(&slot.tag, out.tag.0);
        for (cell, pair) in slot.args.iter().zip(out.args.chunks(2)) {
            let high = pair.get(1).copied().unwrap_or(0);
            cpu.write(cell, u64::from(pair[0]) | u64::from(high) << 32);
        }
        if out.args.len() > LINE_ARGS || out.aux != 0 {
            self.fill_extra(link, ticket, out);
        }
        let mut header = Header::new(
            out.form,
            out.handler,
            out.args.len(),
            source_code(self.name.endpoint, self.name.generation),
        );
        header = match block {
            None => header.with_state(READY),
            Some(block) => header.with_block(block).with_state(READY_BULK),
        };
        let must_wake = link.side.claim.publish(
            q,
            &mut link.sender.borrow_mut(),
            cpu,
            Waiting::<Native>::parks(&waiting),
            intent,
            ticket,
            header,
        );
        if block.is_some() {
            // Release: whoever sees that we hold none sees the publication; pairs with the Acquire of the census.
            self.block_intent(reply).store(0, Ordering::Release);
        }
        if must_wake {
            self.ring(peer);
        }
        Ok(())
    }

    fn fill_block(&self, link: &Link, block: usize, piece: Piece<'_>) {
        let (cpu, q) = (&self.cpu, &link.side.queue);
        let head = &q.blocks[block];
        cpu.write(&head.len, piece.bytes.len() as u64);
        cpu.write(&head.offset, piece.offset);
        cpu.write(&head.whole[0], piece.whole.0);
        cpu.write(&head.whole[1], piece.whole.1);
        cpu.copy_in(&q.bytes, q.block_at(block), piece.bytes);
    }

    #[cold]
    fn fill_extra(&self, link: &Link, ticket: u64, out: &Outgoing<'_>) {
        let (cpu, extra) = (&self.cpu, link.side.queue.extra(ticket));
        cpu.write(&extra.aux, out.aux);
        let rest = out.args.get(LINE_ARGS..).unwrap_or(&[]);
        for (cell, pair) in extra.args.iter().zip(rest.chunks(2)) {
            let high = pair.get(1).copied().unwrap_or(0);
            cpu.write(cell, u64::from(pair[0]) | u64::from(high) << 32);
        }
    }

    /// Tries until it succeeds, polling between the attempts so that no cycle of full queues stands still: everything while a request
    /// waits, only replies while a reply does. All of the bundle: its endpoints have one thread, and another's full queue may be what we wait for.
    #[cold]
    #[inline(never)]
    fn claim_with<T>(
        &self,
        peer: &Peer,
        link: &Link,
        reply: bool,
        wait: bool,
        mut attempt: impl FnMut(&mut crate::queue::Sender) -> Result<T, ClaimError>,
    ) -> Result<T, Failure> {
        let around = Around::new(&self.attached, &link.side.queue);
        let waiting = self.wait(&around);
        let give_up = |failure| {
            link.side.claim.give_up(&mut link.sender.borrow_mut(), &self.cpu, self.intent(reply));
            failure
        };
        let _replying = reply.then(|| Replying::new(&self.replying));
        let mut round = 0;
        loop {
            if peer.gone.get() {
                return Err(give_up(Failure::Gone));
            }
            let result = attempt(&mut link.sender.borrow_mut());
            match result {
                Ok(claimed) => return Ok(claimed),
                Err(ClaimError::Closed) => return Err(give_up(Failure::Gone)),
                Err(ClaimError::Full) if !wait => return Err(give_up(Failure::NotSent)),
                Err(ClaimError::Full) => {}
            }
            let delivered = if reply { self.poll_bundle_replies() } else { self.poll_bundle() };
            if delivered > 0 {
                round = 0;
                continue;
            }
            link.side.claim.await_space(&link.side.queue, &link.sender.borrow(), &self.cpu, &waiting, round);
            round = round.saturating_add(1);
            if round % 64 == 0 {
                self.look_after(false);
                if !self.attached.world.is_alive(peer.participant) {
                    return Err(give_up(Failure::Gone));
                }
            }
        }
    }

    /// Wakes the process that owns an endpoint.
    #[cold]
    fn ring(&self, peer: &Peer) {
        let world = &self.attached.world;
        if peer.participant.index < world.size() {
            let doorbell = world.doorbell(peer.participant.index);
            // Release: the publication comes before; pairs with the Acquire in `wait_for`.
            doorbell.fetch_add(1, Ordering::Release);
            self.cpu.wake(doorbell, u32::MAX);
        }
    }

    /// Sends an undeliverable message back: its status, operation and destination's generation in one cell. For a request, as a reply would be sent; for a
    /// reply, only if there is space at once. `false`: there is none.
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
        let out = Outgoing { form: Form::Returned, handler, tag, args, aux };
        // A message to somebody who is gone need not come back to us: we did not send the original.
        !matches!(self.packet(&peer, true, &out, None, wait), Err(Failure::NotSent))
    }
}
