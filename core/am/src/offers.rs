//! Offers: long transfers that the receiver copies out of the sender's memory.
//!
//! One copy instead of two through blocks, where the system permits it.
//!
//! ```text
//!                 receiver finds the packet            copied, and handled
//!   Open ───────────────────────────────▶ Taken ───────────────────────────▶ Done
//!    │                                      └──────────────────────────────▶ Refused
//!    └─────────▶ Withdrawn                     the system does not permit it
//!  sender: no receiver came in time
//! ```
//!
//! The sender publishes a packet that says where the bytes are, and waits, polling as it does for
//! space. If the receiver does not come soon, the sender withdraws the offer and sends the bytes
//! through blocks; so it waits for a receiver that does not poll no longer than before. A receiver
//! that finds a withdrawn offer passes over it. Done comes after the handler: until then the
//! message counts as not handled.
//!
//! Which way is faster depends on the machine, the length, and on the caches in which the bytes
//! are: a sender that has just written them has them in its own, and the receiver's copy is slow.
//! So both ways are measured now and then, for each peer and class of lengths ([`AbTest`]).
//!
//! Only where the claim algorithm is `towpath`, between processes that run on cores of their own,
//! for messages of at most four arguments that may wait. An endpoint has one offer at a time: those
//! that a handler makes while its endpoint waits go through blocks.
//!
//! A pid that is found in memory may be another process's by now. So the sender has a number in its
//! memory that no other process has there, and one call of the system reads it and the bytes.
//!
//! **Fields.** `Entry::offer`: the sender, until the offer is taken; then its receiver, until it is
//! done or refused. `Entry::proof`, `Entry::proof_at`: the sender.
//!
//! **A sender that dies** before the packet is published has sent nothing. After it, the message
//! arrives if its receiver has begun to copy, whose call of the system sees the memory to its end;
//! otherwise it is passed over. **A receiver that dies** with a taken offer: the sender notices
//! that as it does in front of a full queue, and the message comes back. One that is stopped there
//! holds up this sender only.
//!
//! **Don't use it** for short transfers: the system's call costs as much as copying some 16 KiB.

use core::cell::{Cell, OnceCell, RefCell};
use core::sync::atomic::Ordering;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::rc::Rc;

use towpath_channel::ab_test::{AbTest, Round};
use towpath_machine::Processor;
use towpath_shm::{ParticipantId, RemoteBytes};
use towpath_sync::{PARKED, WaitForSpace, Waiting};

use crate::deliver::Received;
use crate::domain::{Side, Word};
use crate::message::{Direction, Payload};
use crate::name::Name;
use crate::outgoing::{OnFull, Outgoing};
use crate::packet::{Form, LINE_ARGS, MAX_ARGS, from_source_code};
use crate::path::{self, Failure, WhileFull};
use crate::queue::Queue;
use crate::segment::Segment;
use crate::send::Waiter;
use crate::state::{Core, Domain, Peer};

/// Minimum number of bytes of a transfer that is offered.
const LEAST: usize = 64 << 10;
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
/// In an offer's number as it is sent: the message's number of arguments.
const COUNT_SHIFT: u32 = 60;

/// State of an offer, in the low bits of its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum OfferState {
    Withdrawn = 0,
    Open = 1,
    Taken = 2,
    Done = 3,
    Refused = 4,
}

impl OfferState {
    /// Returns the word of an offer in this state.
    const fn of(self, number: u64) -> u64 {
        number << 3 | self as u64
    }
}

/// End of an offer, for its sender.
enum OfferEnd {
    /// The message was handled, or its receiver has sent it back.
    Done,
    /// The bytes must go through blocks.
    ThroughBlocks,
    /// The receiver is gone.
    Gone,
}

/// Offers of an endpoint.
pub(crate) struct Offers {
    /// Number of the last one.
    number: Cell<u64>,
    /// Number of those that were taken.
    pub taken: Cell<u64>,
    /// True while one is under way.
    is_busy: Cell<bool>,
    /// Number that only this process has at this address.
    proof: Cell<u64>,
}

/// Number before the first offer of an incarnation. No other incarnation has its numbers.
const fn first_number(generation: u64) -> u64 {
    (generation & 0xff_ffff) << 32
}

impl Offers {
    /// Makes those of a new endpoint.
    pub fn new(name: Name) -> Self {
        Offers {
            number: Cell::new(first_number(name.generation)),
            taken: Cell::new(0),
            is_busy: Cell::new(false),
            proof: Cell::new(RandomState::new().build_hasher().finish()),
        }
    }
}

/// Classes of lengths, by powers of two: that of [`LEAST`], and longer ones.
const CLASSES: usize = 8;

/// Choice between blocks and offers for transfers to a peer, measured.
struct Choices {
    /// By class; the second way is to offer.
    classes: [AbTest; CLASSES],
    /// Transfer that is being measured: its class, its length, its beginning.
    trial: Option<(usize, Round, u64, u64)>,
}

impl Choices {
    /// Returns whether the next transfer is to be offered. A transfer takes the time from
    /// its beginning to that of the next one: the receiver's part may come after the call.
    fn offers(&mut self, len: u64, now: u64) -> bool {
        let class = (len.ilog2() - LEAST.ilog2()).min(CLASSES as u32 - 1) as usize;
        if let Some((measured, round, len, begun)) = self.trial.take()
            && measured == class
        {
            self.classes[class].took(round, (now.wrapping_sub(begun) << 10) / len);
        }
        let (offers, round) = self.classes[class].turn();
        self.trial = round.map(|round| (class, round, len, now));
        offers
    }
}

/// Experience with offers to a peer.
#[derive(Default)]
pub(crate) struct OffersToPeer {
    /// True if it is another process; asked at the first transfer.
    is_remote: OnceCell<bool>,
    /// Number of transfers until the next offer.
    pause: Cell<u32>,
    /// Number of offers in a row that came to nothing.
    in_vain: Cell<u32>,
    /// Made at the first transfer that might be offered.
    choices: OnceCell<Box<RefCell<Choices>>>,
}

impl OffersToPeer {
    /// Returns whether the next transfer is to be offered.
    fn is_due(&self, len: usize, now: u64) -> bool {
        let pause = self.pause.get();
        self.pause.set(pause.saturating_sub(1));
        let new = || Choices { classes: [AbTest::new(false); CLASSES], trial: None };
        pause == 0
            && self.choices.get_or_init(|| Box::new(RefCell::new(new()))).borrow_mut().offers(len as u64, now)
    }

    fn note(&self, took: bool) {
        let in_vain = if took { 0 } else { self.in_vain.get() + 1 };
        self.in_vain.set(in_vain);
        self.pause.set((1 << in_vain.min(10)) - 1);
    }
}

/// Offer that this endpoint has taken. It ends when this is dropped, also by a handler's
/// panic.
struct TakenOffer<'a, D: Domain> {
    core: &'a Core<D>,
    q: &'a Queue<'a, D::Cpu>,
    word: &'a Word<D>,
    number: u64,
    end: Cell<OfferState>,
}

impl<D: Domain> Drop for TakenOffer<'_, D> {
    fn drop(&mut self) {
        let (cpu, end) = (self.core.cpu(), self.end.get().of(self.number));
        loop {
            // Relaxed: a guess, confirmed by the exchange.
            let seen = cpu.load(self.word, Ordering::Relaxed);
            // A successor of the sender's may use the word by now.
            if seen & !PARKED != OfferState::Taken.of(self.number) {
                return;
            }
            // (P1) Release: the bytes were copied, and the handler has run; pairs with the Acquire
            // (P2) of the sender.
            let (release, relaxed) = (Ordering::Release, Ordering::Relaxed);
            if cpu.compare_exchange(self.word, seen, end, release, relaxed).is_ok() {
                if seen & PARKED != 0 {
                    let around = self.core.domain.around(self.q);
                    self.core.domain.wait(&around).wake_all(cpu, self.word);
                }
                return;
            }
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
        peer: &Rc<Peer<D>>,
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
            || !peer.offers.is_due(payload.len(), self.cpu().now())
        {
            return None;
        }
        offers.is_busy.set(true);
        let _busy = Offering(&offers.is_busy);
        let number = offers.number.get() + 1;
        offers.number.set(number);
        let (cpu, entry) = (self.cpu(), &self.entry);
        // (P3) Release, both: the entry's generation is this incarnation's; pairs with the Acquire
        // (P4) of the receiver.
        cpu.store(&entry.proof_at, offers.proof.as_ptr().addr() as u64, Ordering::Release);
        cpu.store(&entry.proof, offers.proof.get(), Ordering::Release);
        // Relaxed: published with the packet.
        cpu.store(&entry.offer, OfferState::Open.of(number), Ordering::Relaxed);
        let (address, len) = (payload.as_ptr().addr() as u64, payload.len() as u64);
        let args = Description { address, offset, len, number }.with_args(out.args);
        let content = path::Outgoing { args: &args, ..self.content(out, Form::LongOffered, 0) };
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
    fn await_end(&self, peer: &Peer<D>, direction: Direction, number: u64, spin: u64) -> OfferEnd {
        let (cpu, word) = (self.cpu(), &self.entry.offer);
        let around = self.domain.around(peer.link(direction).side.queue());
        let waiting = self.domain.wait(&around);
        let meanwhile = Waiter { core: self, peer, direction, waiting: &waiting, in_stream: false };
        let begun = cpu.now();
        let spin = if self.domain.policy().spins() { spin } else { 0 };
        let mut round = 0;
        loop {
            // (P2) Acquire: the receiver has copied the bytes; pairs with the Release (P1).
            let seen = cpu.load(word, Ordering::Acquire);
            let state = seen & !PARKED;
            if state == OfferState::Done.of(number) {
                return OfferEnd::Done;
            }
            if state == OfferState::Refused.of(number) {
                return OfferEnd::ThroughBlocks;
            }
            let waited = cpu.now().wrapping_sub(begun);
            let is_late = waited > OPEN_FOR && state == OfferState::Open.of(number);
            if is_late || meanwhile.is_gone() {
                let (withdrawn, relaxed) = (OfferState::Withdrawn.of(number), Ordering::Relaxed);
                // Relaxed: the exchange only decides whether the receiver takes the offer.
                let is_ours = cpu.compare_exchange(word, seen, withdrawn, relaxed, relaxed).is_ok();
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
                // Relaxed: a look, after which the word is read again.
                let _ = cpu.spin_until(word, Ordering::Relaxed, LOOK, |word| word != seen);
                continue;
            }
            waiting.wait_briefly(cpu, word, state, round);
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
        // (E1) Acquire: pairs with the Release when the endpoint was taken (E2).
        let sender = ParticipantId::from_bits(cpu.load(&entry.owner, Ordering::Acquire));
        // (P4) Acquire, both: if a successor has written them, its generation is seen below; pairs
        // with the Release (P3) of the sender.
        let proof_at = cpu.load(&entry.proof_at, Ordering::Acquire);
        let proof = cpu.load(&entry.proof, Ordering::Acquire);
        // Relaxed: ordered by (P4).
        let generation = cpu.load(&entry.generation, Ordering::Relaxed);
        // Relaxed: the offer was written before its packet was published (Q2), and the sender only
        // looks whether it is taken.
        let seen = cpu.load(&entry.offer, Ordering::Relaxed);
        let taken = OfferState::Taken.of(offer.number) | seen & PARKED;
        let relaxed = Ordering::Relaxed;
        if first_number(generation) != offer.number >> 32 << 32
            || seen & !PARKED != OfferState::Open.of(offer.number)
            || cpu.compare_exchange(&entry.offer, seen, taken, relaxed, relaxed).is_err()
        {
            return;
        }
        let Description { address, offset, len, number } = offer;
        let end = Cell::new(OfferState::Done);
        let offer = TakenOffer { core: self, q, word: &entry.offer, number, end };
        let checked = self.check(q, &message, Form::LongOffered);
        match checked.and_then(|(handler, _)| self.check_range((offset, len)).map(|()| handler)) {
            Err(status) => self.reject(&message, Form::LongOffered, status),
            Ok(handler) => {
                if self.copy_offered(sender, RemoteBytes { address, proof_at, proof }, offset, len) {
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
                segment.fill(offset as usize, len as usize, |to| self.domain.read_remote(sender, from, to))
            }
            _ => false,
        }
    }
}
