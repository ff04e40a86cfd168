//! Proxies: endpoints of ranks on other hosts, in the hands of this host's gateway.
//!
//! In a world that spans hosts (`towpath_shm`, `gateway.rs`) each host's directory has an entry for
//! every endpoint of the world. An endpoint of another host is a [`Proxy`] here, opened under the
//! name that it has there. Local senders put messages into its queues as into any other's; the
//! gateway takes them out below the handlers, and its peer on the other host puts them into the
//! queue of the endpoint itself, as the sender's proxy there.
//!
//! ```text
//! host A   sender ──▶ queue of the receiver's proxy        queue of the receiver ──▶ host B
//!                       │ take                                 ▲ put, as the sender's proxy
//!                       ├────────── gateway ── link ── gateway ┤
//!                       ▼ handled                              ▼ has_handled
//! ```
//!
//! A message stays in the proxy's queue until its receiver has handled it. So a sender waits for
//! space as it does on one host, and if the receiver, its host or the link to it is lost, the
//! sender finds its requests in the queue of an endpoint that is gone, and gets them back.
//!
//! Between hosts there are plain queues: no answer lines, no streams, no offers, and bytes of long
//! transfers travel with their messages (a proxy has no segment).
//!
//! **Fields.** As of any endpoint; a proxy's `consumed` moves when its peer has handled.
//!
//! **Crashes.** A gateway that dies is the death of the ranks that it represents. A sender that
//! stops in the middle of a send to a proxy holds up the messages behind it for a moment, as at any
//! endpoint.
//!
//! **Don't use it** but for a gateway: no handler runs.
#![allow(unsafe_code)]

use core::sync::atomic::Ordering;
use std::collections::VecDeque;

use towpath_machine::Processor;
use towpath_shm::{ParticipantId, World};

use crate::claim::Claim;
use crate::directory::Directory;
use crate::domain::{DomainMemory, Hooks, Membership, Side};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::message::Direction;
use crate::name::{Name, Tag};
use crate::outgoing::OnFull;
use crate::packet::{Form, MAX_ARGS};
use crate::path::{self, Failure, Piece, extra_args, line_args};
use crate::queue::{Arrival, Receiver};
use crate::segment::Segment;
use crate::shared_memory::SharedMemory;

/// Message below the handlers, on its way between hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardedMessage<'a> {
    /// Queue that it belongs to.
    pub direction: Direction,
    /// Form: not those whose bytes lie in memory that the hosts do not share.
    pub form: Form,
    /// Index of the receiver's handler.
    pub handler: u8,
    /// Tag that the sender addresses.
    pub tag: Tag,
    /// Arguments, at most [`MAX_ARGS`].
    pub args: &'a [u32],
    /// Status, operation and generation of a message that comes back.
    pub aux: u64,
    /// Incarnation of the sending endpoint ([`crate::packet::source_code`]).
    pub source: u32,
    /// Payload of the forms that have one.
    pub piece: Option<ForwardedPiece<'a>>,
}

/// Payload of a forwarded message: at most a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardedPiece<'a> {
    /// Bytes.
    pub bytes: &'a [u8],
    /// Offset in the receiver's segment, of a long transfer.
    pub offset: u64,
    /// Offset and length of the whole long transfer.
    pub whole: (u64, u64),
}

impl ForwardedMessage<'_> {
    /// Returns whether its parts make sense together, in a world with blocks of this
    /// size.
    #[must_use]
    pub fn is_valid(&self, block_size: usize) -> bool {
        let piece = match self.form {
            Form::Medium | Form::LongPart | Form::Long => true,
            Form::Short => false,
            Form::Returned if self.direction.is_reply() => false,
            Form::Returned | Form::LongStored | Form::LongOffered => return false,
        };
        self.args.len() <= MAX_ARGS
            && piece == self.piece.is_some()
            && self.piece.is_none_or(|piece| piece.bytes.len() <= block_size)
    }
}

/// Message that was taken and is not handled yet.
#[derive(Clone, Copy, Debug)]
struct TakenMessage {
    arrival: Arrival,
    /// False if it made no sense: no other host will handle it.
    was_forwarded: bool,
}

/// Messages taken out of one queue.
#[derive(Debug, Default)]
struct TakenMessages {
    /// Ticket after the last one taken.
    next: u64,
    messages: VecDeque<TakenMessage>,
}

/// Endpoint of a rank on another host, for this host's gateway.
///
/// Dropping it closes it: local senders get back the messages that were not handled, as
/// [`BadEndpoint`](crate::Status::BadEndpoint), or as [`Unreachable`](crate::Status::Unreachable)
/// if the participant has [failed](World::fail) before.
pub struct Proxy {
    endpoint: Endpoint,
    request: TakenMessages,
    reply: TakenMessages,
    scratch: Vec<u8>,
}

// SAFETY: all that the endpoint's reference counts count (its core, its peers) is reachable through
// it alone: it is in no bundle, runs no handlers, and never leaves this structure. So it is moved
// as a whole. Its memory is shared between processes, and its processor is a plain number.
unsafe impl Send for Proxy {}

impl core::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Proxy").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Proxy {
    /// Opens the proxy of an endpoint. `world`: a handle that has entered as its rank.
    ///
    /// `None`: a local sender is in the middle of a send to its predecessor; to be tried again.
    ///
    /// # Errors
    ///
    /// [`Error::NotInitialised`] if the handle has not entered; [`Error::BadArgument`] if the
    /// endpoint belongs to this host, or does not exist; [`Error::InUse`] if another process has
    /// it.
    pub fn open(world: &World, name: Name) -> Result<Option<Proxy>, Error> {
        let mut domain = SharedMemory::new(world)?;
        let owner = domain
            .me()
            .ok_or_else(|| Error::NotInitialised("the gateway has not entered as that rank".into()))?;
        if domain.is_local(name.endpoint) {
            return Err(Error::BadArgument(format!("endpoint {} belongs to this host", name.endpoint)));
        }
        domain.act_for(name.endpoint);
        let Some(owed) = domain.open_proxy_entry(name, owner)? else { return Ok(None) };
        let endpoint = Endpoint::of_entry(domain, name, Segment::None, owed)?;
        endpoint.core.answers.enabled.set(false);
        let taken = |direction| TakenMessages {
            next: endpoint.core.own(direction).receiver.borrow().head,
            messages: VecDeque::new(),
        };
        let (request, reply) = (taken(Direction::Request), taken(Direction::Reply));
        Ok(Some(Proxy { endpoint, request, reply, scratch: Vec::new() }))
    }

    /// Returns its name, on all hosts.
    #[must_use]
    pub fn name(&self) -> Name {
        self.endpoint.core.name
    }

    /// Takes the messages that have arrived in a queue and were not taken, in order.
    /// Returns their number.
    ///
    /// They stay in the queue until they are [`handled`](Proxy::handled). `forward` returns `false`
    /// for one that makes no sense, which is dropped.
    pub fn take(
        &mut self,
        direction: Direction,
        mut forward: impl FnMut(&ForwardedMessage<'_>) -> bool,
    ) -> usize {
        let core = &self.endpoint.core;
        let (own, cpu) = (core.own(direction), core.cpu());
        let (q, claim) = (own.side.queue(), own.side.claim());
        let taken = if direction.is_reply() { &mut self.reply } else { &mut self.request };
        let mut count = 0;
        loop {
            let messages = &taken.messages;
            let has_taken = |ticket| messages.iter().any(|m| m.arrival.late && m.arrival.ticket == ticket);
            let next = own.receiver.borrow_mut().next_from(claim, q, cpu, taken.next, has_taken);
            let Some(arrival) = next else { return count };
            if !arrival.late {
                taken.next = arrival.ticket + 1;
            }
            let (header, slot) = (arrival.header, q.slot(arrival.ticket));
            let mut args = [0; MAX_ARGS];
            line_args(cpu, slot, &mut args);
            extra_args(cpu, q, arrival, &mut args);
            let block = header.has_block().then(|| header.block()).filter(|&block| block < q.blocks.len());
            let piece = block.map(|block| {
                let head = &q.blocks[block];
                // The sender wrote the length: it may be nonsense.
                let len = cpu.read(&head.len).min(q.block_size as u64) as usize;
                self.scratch.resize(q.block_size, 0);
                cpu.copy_out(&q.bytes, q.block_at(block), &mut self.scratch[..len]);
                let whole = (cpu.read(&head.whole[0]), cpu.read(&head.whole[1]));
                ForwardedPiece { bytes: &self.scratch[..len], offset: cpu.read(&head.offset), whole }
            });
            let message = header.form().map(|form| ForwardedMessage {
                direction,
                form,
                handler: header.handler(),
                tag: Tag(cpu.read(&slot.tag)),
                args: &args[..header.args().min(MAX_ARGS)],
                aux: if form == Form::Returned { cpu.read(&q.extra(arrival.ticket).aux) } else { 0 },
                source: header.source(),
                piece,
            });
            let message = message.filter(|m| header.args() <= MAX_ARGS && m.is_valid(q.block_size));
            let was_forwarded = message.is_some_and(|message| forward(&message));
            count += usize::from(was_forwarded);
            taken.messages.push_back(TakenMessage { arrival, was_forwarded });
        }
    }

    /// Notes that the receiver has handled so many more of the messages that were taken.
    /// More than there are count as all.
    pub fn handled(&mut self, direction: Direction, mut count: u64) {
        let core = &self.endpoint.core;
        let (own, cpu) = (core.own(direction), core.cpu());
        let (q, claim) = (own.side.queue(), own.side.claim());
        let taken = if direction.is_reply() { &mut self.reply } else { &mut self.request };
        while let Some(first) = taken.messages.front() {
            if first.was_forwarded {
                if count == 0 {
                    break;
                }
                count -= 1;
            }
            let header = first.arrival.header;
            if header.has_block() {
                q.free_block(cpu, header.block());
            }
            let mut receiver = own.receiver.borrow_mut();
            receiver.done(claim, q, cpu, first.arrival);
            let around = core.domain.around(q);
            claim.flush(q, &mut receiver, cpu, &core.domain.wait(&around));
            taken.messages.pop_front();
        }
    }

    /// Returns the number of messages that were taken and are not handled.
    #[must_use]
    pub fn unhandled(&self) -> usize {
        self.request.messages.len() + self.reply.messages.len()
    }

    /// Puts a message of the other host into the queue of a local endpoint, and wakes its
    /// process. Returns its ticket there.
    ///
    /// It is this endpoint's message, unless its source says otherwise: then it is that of an
    /// endpoint which is gone, and does not come back.
    ///
    /// # Errors
    ///
    /// [`Failure::NotSent`] if there is no space now; [`Failure::Gone`] if there is no such
    /// endpoint, or no sender can reach it any more.
    pub fn put(&self, to: Name, message: &ForwardedMessage<'_>) -> Result<u64, Failure> {
        let core = &self.endpoint.core;
        if !message.is_valid(core.domain.config().block_size as usize) {
            return Err(Failure::Gone);
        }
        let peer = core.peer(to).map_err(|_| Failure::Gone)?;
        let ForwardedMessage { direction, form, handler, tag: Tag(tag), args, aux, source, piece } = *message;
        let content = path::PacketContent { form, handler, tag, args, aux, source };
        let piece = piece.map(|p| Piece { bytes: p.bytes, offset: p.offset, whole: p.whole, away: false });
        core.packet(&peer, direction, &content, piece, OnFull::GiveUp)?;
        let next = peer.link(direction).sender.borrow().next_ticket;
        Ok(next - 1)
    }

    /// Looks after its queues and the endpoints that it has sent to. `died`: a rank has
    /// died since the last look.
    pub fn look_after(&mut self, died: bool) {
        let core = &self.endpoint.core;
        let gone = |peer: &crate::state::PeerEndpoint<SharedMemory>| {
            !core.is_here(peer) || died && !core.domain.is_alive(peer.participant)
        };
        let peers = core.tables.peers.borrow();
        for peer in peers.iter().flatten().filter(|peer| !peer.gone.get() && gone(peer)) {
            peer.gone.set(true);
        }
        drop(peers);
        core.return_owed();
        for own in [&core.reply, &core.request] {
            core.look_after_queue(own, died, died);
        }
    }

    /// Says that the gateway will sleep. `false` if it must not: a message has come.
    #[must_use]
    pub fn arm(&self) -> bool {
        let core = &self.endpoint.core;
        [(&core.request, &self.request), (&core.reply, &self.reply)].iter().all(|(own, taken)| {
            let head = taken.next.max(own.receiver.borrow().head);
            let receiver = Receiver { head, ..Receiver::default() };
            own.side.claim().fall_asleep(own.side.queue(), &receiver, core.cpu())
        })
    }

    /// Takes that back.
    pub fn disarm(&self) {
        let core = &self.endpoint.core;
        for own in [&core.request, &core.reply] {
            own.side.claim().wake_up(own.side.queue(), core.cpu());
        }
    }
}

/// View of the endpoints of a world, for its gateway.
#[derive(Debug)]
pub struct EndpointWatch(SharedMemory);

impl EndpointWatch {
    /// Makes a view of a world's endpoints.
    ///
    /// # Errors
    ///
    /// [`Error::BadWorld`].
    pub fn new(world: &World) -> Result<EndpointWatch, Error> {
        Ok(EndpointWatch(SharedMemory::new(world)?))
    }

    /// Returns the configuration of the world.
    #[must_use]
    pub fn config(&self) -> &crate::WorldConfig {
        self.0.config()
    }

    /// Returns the name and the owner of an endpoint, if it is open.
    #[must_use]
    pub fn opened(&self, endpoint: u16) -> Option<(Name, ParticipantId)> {
        let (_, owner, generation) = self.0.opened(endpoint)?;
        Some((Name { endpoint, generation }, owner))
    }

    /// Returns whether an endpoint's rank runs on this host.
    #[must_use]
    pub fn is_local(&self, endpoint: u16) -> bool {
        self.0.is_local(endpoint)
    }
}

impl EndpointWatch {
    /// Returns a view of an endpoint's queue, if the endpoint is open.
    #[must_use]
    pub fn queue(&self, name: Name, direction: Direction) -> Option<QueueWatch> {
        let domain = self.0.another();
        let (entry, _, generation) = domain.opened(name.endpoint)?;
        let side = domain.side(name.endpoint, direction).ok()?;
        (generation == name.generation).then_some(QueueWatch { side, entry, generation, domain })
    }
}

/// View of an endpoint's queue: which messages its endpoint has handled.
pub struct QueueWatch {
    side: <SharedMemory as DomainMemory>::Side,
    entry: <SharedMemory as DomainMemory>::Entry,
    generation: u64,
    /// Last: it keeps the memory of the other fields.
    domain: SharedMemory,
}

impl core::fmt::Debug for QueueWatch {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("QueueWatch").field("queue", &self.side.queue().id).finish_non_exhaustive()
    }
}

impl QueueWatch {
    /// Returns whether the message with this ticket was handled. After the endpoint's
    /// end: whether it had been; `false` once there is a successor.
    #[must_use]
    pub fn has_handled(&self, ticket: u64) -> bool {
        let (q, cpu) = (self.side.queue(), self.domain.cpu());
        // Relaxed: afterwards. A successor has shown its generation before the fence (I4), and has
        // reset the queue after it.
        q.has_handled(cpu, ticket) && cpu.load(&self.entry.generation, Ordering::Relaxed) == self.generation
    }

    /// Returns whether the endpoint's owner polls while it stands at the world's barrier.
    ///
    /// To be asked once all ranks of this host have arrived.
    #[must_use]
    pub fn polls_at_barrier(&self) -> bool {
        // Relaxed: published by the owner's arrival, which the caller has seen.
        self.domain.cpu().load(&self.entry.own.polls_at_barrier, Ordering::Relaxed) == 1
    }
}
