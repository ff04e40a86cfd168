//! Offers: long transfers that the receiver copies out of the sender's memory.
//!
//! One copy instead of two through blocks, where the system permits it, and where it is measured to
//! be faster (`offer_choice.rs`). [`towpath_channel::offer`] has the states of an offer.
//!
//! The sender publishes a packet that says where the bytes are, and waits, polling as it does for
//! space. If the receiver does not come soon, the sender withdraws the offer and sends the bytes
//! through blocks; so it waits for a receiver that does not poll no longer than before. A receiver
//! that finds a withdrawn offer passes over it. Done comes after the handler: until then the
//! message counts as not handled.
//!
//! Only where the claim algorithm is `towpath`, between processes that run on cores of their own,
//! for messages of at most four arguments that may wait. An endpoint has one offer at a time: those
//! that a handler makes while its endpoint waits go through blocks.
//!
//! **Fields.** `Entry::offer`: see [`Offer`].
//!
//! **A sender that dies** before the packet is published has sent nothing. After it, the message
//! arrives if its receiver has begun to copy, whose call of the system sees the memory to its end;
//! otherwise it is passed over. **A receiver that dies** with a taken offer: the sender notices
//! that as it does in front of a full queue, and the message comes back. One that is stopped there
//! holds up this sender only.
//!
//! **Don't use it** for short transfers: the system's call costs as much as copying some 16 KiB.

use core::cell::Cell;
use std::rc::Rc;

use towpath_channel::offer::{Offer, OfferState, Proof};
use towpath_machine::{Ordering, Processor};
use towpath_shm::{ParticipantId, RemoteBytes};
use towpath_sync::Waiting;

use crate::deliver::Received;
use crate::domain::Side;
use crate::message::{Direction, Payload};
use crate::offer_choice::LEAST;
use crate::outgoing::{OnFull, Outgoing};
use crate::packet::{Form, LINE_ARGS, MAX_ARGS, from_source_code};
use crate::path::{self, Failure, WhileFull};
use crate::queue::Queue;
use crate::segment::Segment;
use crate::send::Waiter;
use crate::state::{Core, Domain, PeerEndpoint};

/// Time for which an offer stays open, in nanoseconds.
const OPEN_FOR: u64 = 20_000;
/// Time for which the sender looks at its offer without a rest, in nanoseconds, beside
/// the time of the copy. Waking a sender takes longer than most copies.
const SPIN: u64 = 10_000;
/// Time between two polls of the sender meanwhile, in nanoseconds.
const LOOK: u64 = 500;
/// Number of bytes that the slowest receivers copy in a nanosecond.
const SLOWEST: u64 = 4;
/// Maximum number of a message's arguments: the rest of the line describes the offer.
const OFFER_ARGS: usize = LINE_ARGS - 2 * DESCRIPTION;
/// Number of words of an offer's description.
const DESCRIPTION: usize = 4;
/// Part of an offer's number as it is sent: the message's number of arguments.
const COUNT_SHIFT: u32 = 60;

/// End of an offer, for its sender.
enum OfferEnd {
    /// The message was handled, or its receiver has sent it back.
    Done,
    /// The bytes must go through blocks.
    ThroughBlocks,
    /// The receiver is gone.
    Gone,
}

/// Offer that this endpoint has taken. It ends when this is dropped, also by a handler's
/// panic.
struct TakenOffer<'a, D: Domain> {
    core: &'a Core<D>,
    q: &'a Queue<'a, D::Cpu>,
    offer: &'a Offer<D::Cpu>,
    number: u64,
    end: Cell<OfferState>,
}

impl<D: Domain> Drop for TakenOffer<'_, D> {
    fn drop(&mut self) {
        let cpu = self.core.cpu();
        if self.offer.end(cpu, self.number, self.end.get()) {
            let around = self.core.domain.around(self.q);
            self.core.domain.wait(&around).wake_all(cpu, self.offer.word());
        }
    }
}

/// Offer as its packet describes it.
struct Description {
    address: u64,
    offset: u64,
    len: u64,
    number: u64,
}

impl Description {
    /// Returns the packet's arguments: the message's own, and this description.
    fn with_args(&self, args: &[u32]) -> [u32; LINE_ARGS] {
        let mut all = [0; LINE_ARGS];
        all[..args.len()].copy_from_slice(args);
        let number = self.number | (args.len() as u64) << COUNT_SHIFT;
        let words = [self.address, self.offset, self.len, number];
        for (pair, word) in all[OFFER_ARGS..].chunks_exact_mut(2).zip(words) {
            (pair[0], pair[1]) = (word as u32, (word >> 32) as u32);
        }
        all
    }

    /// Takes the description out of a packet's arguments. Returns it, and the message's
    /// number of arguments.
    fn take(args: &mut [u32; MAX_ARGS]) -> (Description, usize) {
        let mut words = [0; DESCRIPTION];
        for (word, pair) in words.iter_mut().zip(args[OFFER_ARGS..LINE_ARGS].chunks_exact_mut(2)) {
            *word = u64::from(pair[1]) << 32 | u64::from(pair[0]);
            pair.fill(0);
        }
        let [address, offset, len, number] = words;
        let (count, number) = ((number >> COUNT_SHIFT) as usize, number & ((1 << COUNT_SHIFT) - 1));
        (Description { address, offset, len, number }, count.min(OFFER_ARGS))
    }
}

/// Mark of an endpoint whose offer is under way, until it is dropped.
struct Offering<'a>(&'a Cell<bool>);

impl Drop for Offering<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl<D: Domain> Core<D> {
    /// Offers a long transfer to a receiver that has a core of its own.
    ///
    /// `None`: it must go through blocks.
    pub(crate) fn offer(
        &self,
        peer: &Rc<PeerEndpoint<D>>,
        out: &Outgoing<'_>,
        payload: &[u8],
        offset: u64,
    ) -> Option<Result<(), Failure>> {
        let offers = &self.offers;
        if payload.len() < LEAST
            || out.on_full == OnFull::GiveUp
            || offers.is_busy.get()
            || out.args.len() > OFFER_ARGS
            || !peer.offers.is_remote.get_or_init(|| self.domain.may_offer(peer.participant))
            || !peer.offers.is_due(payload.len(), self.domain.config().bytes_of_blocks(), self.cpu().now())
        {
            return None;
        }
        offers.is_busy.set(true);
        let _busy = Offering(&offers.is_busy);
        let number = offers.number.get() + 1;
        offers.number.set(number);
        let proof = Proof { at: offers.proof.as_ptr().addr() as u64, number: offers.proof.get() };
        self.entry.offer.open(self.cpu(), number, proof);
        let (address, len) = (payload.as_ptr().addr() as u64, payload.len() as u64);
        let args = Description { address, offset, len, number }.with_args(out.args);
        let content = path::PacketContent { args: &args, ..self.content(out, Form::LongOffered, 0) };
        if let Err(failure) = self.packet(peer, out.direction, &content, None, out.on_full) {
            return Some(Err(failure));
        }
        match self.await_end(peer, out.direction, number, SPIN + len / SLOWEST) {
            OfferEnd::Done => {
                peer.offers.note(true);
                offers.taken.set(offers.taken.get() + 1);
                Some(Ok(()))
            }
            OfferEnd::ThroughBlocks => {
                peer.offers.note(false);
                None
            }
            OfferEnd::Gone => Some(Err(Failure::Gone)),
        }
    }

    /// Waits for the end of an offer, polling meanwhile: at first for `spin` nanoseconds
    /// without a rest.
    fn await_end(&self, peer: &PeerEndpoint<D>, direction: Direction, number: u64, spin: u64) -> OfferEnd {
        let (cpu, offer) = (self.cpu(), &self.entry.offer);
        let around = self.domain.around(peer.link(direction).side.queue());
        let waiting = self.domain.wait(&around);
        let meanwhile = Waiter { core: self, peer, direction, waiting: &waiting, in_stream: false };
        let begun = cpu.now();
        let spin = if self.domain.policy().spins() { spin } else { 0 };
        let mut round = 0;
        loop {
            let seen = offer.look(cpu, number);
            match seen.state {
                OfferState::Done => return OfferEnd::Done,
                OfferState::Refused => return OfferEnd::ThroughBlocks,
                OfferState::Open | OfferState::Taken | OfferState::Withdrawn => {}
            }
            let waited = cpu.now().wrapping_sub(begun);
            let is_late = waited > OPEN_FOR && seen.state == OfferState::Open;
            if is_late || meanwhile.is_gone() {
                let is_ours = offer.withdraw(cpu, seen, number);
                if meanwhile.is_gone() {
                    return OfferEnd::Gone;
                }
                if is_ours {
                    return OfferEnd::ThroughBlocks;
                }
                continue;
            }
            if meanwhile.poll() > 0 {
                round = 0;
                continue;
            }
            if waited < spin {
                offer.spin(cpu, seen, LOOK);
                continue;
            }
            offer.rest(cpu, &waiting, seen, round);
            round = round.saturating_add(1);
            if meanwhile.is_due(round) && !meanwhile.look_around() {
                return OfferEnd::Gone;
            }
        }
    }

    /// Takes an offer: copies the bytes and runs the handler. Passes over one that was
    /// withdrawn.
    pub(crate) fn deliver_offered(&self, q: &Queue<'_, D::Cpu>, mut message: Received) {
        let (cpu, source) = (self.cpu(), message.arrival.header.source());
        let (offer, count) = Description::take(&mut message.args);
        message.arrival.header = message.arrival.header.with_args(count);
        let Ok(entry) = self.domain.entry(from_source_code(source).0) else { return };
        // Relaxed: not before the sender, whose message has come; a later owner's offer has another
        // number.
        let sender = ParticipantId::from_bits(cpu.load(&entry.owner, Ordering::Relaxed));
        let Some(proof) = entry.offer.take(cpu, &entry.generation, offer.number) else { return };
        let Description { address, offset, len, number } = offer;
        let end = Cell::new(OfferState::Done);
        let offer = TakenOffer { core: self, q, offer: &entry.offer, number, end };
        let bytes = RemoteBytes { address, proof_at: proof.at, proof: proof.number };
        let checked = self.check(q, &message, Form::LongOffered);
        match checked.and_then(|(handler, _)| self.check_range((offset, len)).map(|()| handler)) {
            Err(status) => self.reject(&message, Form::LongOffered, status),
            Ok(handler) => {
                if self.copy_offered(sender, bytes, offset, len) {
                    self.run(|| handler(&self.token(&message, Payload::Long { offset, len })));
                } else {
                    offer.end.set(OfferState::Refused);
                }
            }
        }
    }

    fn copy_offered(&self, sender: ParticipantId, from: RemoteBytes, offset: u64, len: u64) -> bool {
        match &self.segment {
            Segment::Private(segment) => {
                segment.fill(offset, len as usize, |to| self.domain.read_remote(sender, from, to))
            }
            _ => false,
        }
    }
}
