//! Sending side of a connection: the shared queue of a peer's segment, and a ring of its
//! own.
//!
//! The segment was opened through /proc, or given by the peer's descriptor listener
//! ([`fd_listener`](crate::device::connect::fd_listener)). A pair gets a ring once it has earned
//! it.
//!
//! **Order.** A ring is offered through the shared queue; when the receiver has accepted it, the
//! sender says so there ([`Frame::RingSwitch`]) and from then on uses the ring alone. The receiver
//! looks at it only after it has taken that frame, so all frames sent before have been taken too.
//!
//! **A sender that dies** while it joins leaves an entry that the receiver frees when it looks
//! after its peers; while it sends: see `claim/towpath.rs` of the room channel.

use core::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use towpath_channel::claim::Towpath;
use towpath_channel::packet::Form;
use towpath_channel::path::{Failure, PacketContent, Piece, SendPath, WhileFull};
use towpath_channel::places::{join_place, place_state, take_place};
use towpath_channel::queue::Sender;
use towpath_machine::{Native, Processor};
use towpath_sync::Spinning;

use crate::device::connect::address::Address;
use crate::device::connect::attach::{AttachError, EndpointSegment};
use crate::device::connect::fd_message::Connection;
use crate::device::connect::layout::{
    BLOCK, FREE, JOINED, JOINING, MEMBERS, SLOT_PIECE, STATE, USES, VISITOR,
};
use crate::device::pair::{OfferAnswer, PairLine, PairOut};
use crate::device::port::MemberId;
use crate::device::protocol::frame::Frame;
use crate::device::protocol::wire::{LINE, PayloadSource, RawFrame};
use crate::device::wake_pipe::WakePipeWriter;

/// State of the ring to a peer.
enum RingState {
    /// None: it is not earned yet.
    None,
    /// Made, with its nonce; not yet offered.
    Made(Box<PairOut>, u64),
    /// Offered.
    Offered(Box<PairOut>),
    /// Link in use.
    Used(Box<PairOut>),
    /// Declined, or impossible.
    Declined,
}

/// Result of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendResult {
    /// The frame is out.
    Yes,
    /// No space now.
    Full,
    /// The receiver takes no more frames.
    Gone,
}

/// Sending side of the connection to another endpoint.
pub struct Link {
    segment: EndpointSegment,
    me: MemberId,
    sender: RefCell<Sender>,
    cpu: Native,
    ring: RingState,
    sent: u32,
    staging: Vec<u8>,
    writer: WakePipeWriter,
    /// Connection to the peer's descriptor listener, if /proc does not lead there.
    connection: Option<Connection>,
    /// The line that our ring will share with that of the other direction.
    shared_line: Option<Rc<PairLine>>,
}

/// Policy of a full queue: the send returns at once, and the caller decides.
#[derive(Clone, Copy)]
struct Impatient;

impl WhileFull for Impatient {
    fn is_gone(&self) -> bool {
        false
    }
    fn poll(&self) -> usize {
        0
    }
    fn pause(&self, _round: u32) {}
    fn look_around(&self) -> bool {
        true
    }
}

impl Link {
    /// Attaches to an endpoint's segment and becomes a member there.
    ///
    /// # Errors
    ///
    /// Its owner has ended, or has too many members.
    pub fn join(to: &Address, own: &Address) -> Result<Link, AttachError> {
        Link::enter(EndpointSegment::attach(to)?, own.pid, None, to, own)
    }

    /// Becomes a member in a segment that its owner has given us, as the visitor of this
    /// number.
    ///
    /// # Errors
    ///
    /// It has too many members.
    pub fn visit(
        segment: EndpointSegment,
        number: u32,
        connection: Connection,
        to: &Address,
        own: &Address,
    ) -> Result<Link, AttachError> {
        Link::enter(segment, number | VISITOR, Some(connection), to, own)
    }

    /// Takes a free place among the members. `sender`: its number, as the member's state
    /// names it.
    fn enter(
        segment: EndpointSegment,
        sender: u32,
        connection: Option<Connection>,
        to: &Address,
        own: &Address,
    ) -> Result<Link, AttachError> {
        for (place, entry) in segment.members().iter().enumerate() {
            let cpu = Native::with_id(0);
            let state = place_state(&cpu, &entry.state);
            if state & STATE != FREE {
                continue;
            }
            let uses = state >> 8 & USES;
            let taken = u64::from(sender) << 32 | uses << 8;
            if !take_place(&cpu, &entry.state, state, taken | JOINING) {
                continue;
            }
            for (word, value) in entry.address.iter().zip(own.to_words()) {
                // Relaxed: published by the state.
                word.store(value, Ordering::Relaxed);
            }
            join_place(&cpu, &entry.state, taken | JOINED);
            let me = MemberId { place: place as u16, uses: uses as u8 };
            let sender = RefCell::new(Sender::new(place as u16, uses as u16, 0));
            let (ring, staging, writer) = (RingState::None, Vec::new(), WakePipeWriter::new(to.pid));
            let (sent, shared_line) = (0, None);
            return Ok(Link {
                segment,
                me,
                sender,
                cpu,
                ring,
                sent,
                staging,
                writer,
                connection,
                shared_line,
            });
        }
        Err(AttachError::TooMany { pid: to.pid, most: MEMBERS })
    }

    /// The link, whose ring will share a line with that of the other direction.
    pub fn with(self, shared_line: Option<&Rc<PairLine>>) -> Link {
        Link { shared_line: shared_line.cloned(), ..self }
    }

    /// The longest payload of one frame.
    #[inline(always)]
    pub fn piece(&self) -> usize {
        if matches!(self.ring, RingState::Used(_)) { SLOT_PIECE } else { BLOCK }
    }

    /// Returns whether the receiver has said that it takes no more frames.
    pub fn is_closed(&self) -> bool {
        // Relaxed: nothing is read that the owner has written before.
        self.segment.header().closed.load(Ordering::Relaxed) != 0
    }

    /// Returns whether a peer that is not seen under its pid is gone.
    pub fn is_lost(&self) -> bool {
        self.connection.as_ref().is_some_and(Connection::is_lost)
    }

    /// Number of our eager bytes that have found their receives.
    #[inline(always)]
    pub fn taken(&self) -> u64 {
        // Relaxed: a count.
        self.segment.members().get(usize::from(self.me.place)).map_or(0, |e| e.taken.load(Ordering::Relaxed))
    }

    /// Sends a frame, if there is space.
    #[inline]
    pub fn send(&mut self, frame: &RawFrame<'_>) -> SendResult {
        if let RingState::Used(pair) = &mut self.ring {
            if !pair.send(frame) {
                return if self.is_closed() { SendResult::Gone } else { SendResult::Full };
            }
            if self.segment.header().doorbell.is_armed(&self.cpu) {
                self.wake();
            }
            return SendResult::Yes;
        }
        self.send_shared(frame)
    }

    fn send_shared(&mut self, frame: &RawFrame<'_>) -> SendResult {
        let line = frame.line();
        let mut args = [0u32; LINE / 4];
        if line.bulk {
            // The payload goes by itself.
            let words = RawFrame { content: PayloadSource::NONE, ..*frame };
            words.cells(None, |n, cell| put_cell(&mut args, n, cell));
        } else {
            frame.cells(None, |n, cell| put_cell(&mut args, n, cell));
        }
        let out = PacketContent {
            form: if line.bulk { Form::Medium } else { Form::Short },
            handler: line.handler,
            tag: frame.tag,
            args: &args[..line.args],
            aux: 0,
            source: self.me.code().into(),
        };
        let bytes = match (&frame.content, line.bulk) {
            (_, false) => None,
            (PayloadSource::Bytes(bytes), true) => Some(*bytes),
            (PayloadSource::Part(..), true) => {
                self.staging.resize(frame.content.len(), 0);
                stage(&frame.content, &mut self.staging);
                Some(&self.staging[..])
            }
        };
        let piece = bytes.map(|bytes| Piece { bytes, offset: 0, whole: (0, 0), away: false });
        let entry = &self.segment.members()[usize::from(self.me.place)];
        let route = SendPath {
            queue: self.segment.queue(),
            claim: &Towpath,
            sender: &self.sender,
            intent: &entry.intents[0],
            block_intent: &entry.intents[1],
        };
        match route.send(&self.cpu, &out, piece, false, &Spinning, Impatient) {
            Ok(must_wake) => {
                if must_wake {
                    self.wake();
                }
                self.sent = self.sent.saturating_add(1);
                SendResult::Yes
            }
            Err(Failure::NotSent) if self.is_closed() => SendResult::Gone,
            Err(Failure::NotSent) => SendResult::Full,
            Err(Failure::Gone) => SendResult::Gone,
        }
    }

    /// Takes the next step to a ring for this pair, or to more of its memory, if it has
    /// earned it. To be called when no frame waits to be sent.
    #[inline]
    pub fn promote(&mut self, after: u32, past: Option<usize>, oversubscribed: bool) {
        match &mut self.ring {
            // Where cores are shared the caches are, too.
            RingState::Used(pair) if pair.has_earned() && !oversubscribed => pair.grow(),
            RingState::Used(_) | RingState::Declined => {}
            _ if self.sent >= after => self.promote_slowly(past),
            _ => {}
        }
    }

    #[cold]
    fn promote_slowly(&mut self, past: Option<usize>) {
        self.ring = match core::mem::replace(&mut self.ring, RingState::Declined) {
            RingState::None => {
                let nonce = self.cpu.now();
                // Without memory for a ring the shared queue does.
                match PairOut::create(nonce, past) {
                    Ok(mut pair) if self.passes(&pair, nonce) => {
                        if let Some(line) = &self.shared_line {
                            pair.share(line);
                        }
                        RingState::Made(Box::new(pair), nonce)
                    }
                    _ => RingState::Declined,
                }
            }
            RingState::Made(pair, nonce) => {
                let frame = Frame::RingOffer { descriptor: pair.descriptor(), nonce };
                match self.send_shared(&frame.encode(PayloadSource::NONE)) {
                    SendResult::Yes => RingState::Offered(pair),
                    _ => RingState::Made(pair, nonce),
                }
            }
            RingState::Offered(pair) => match pair.answer() {
                OfferAnswer::None => RingState::Offered(pair),
                OfferAnswer::Declined => RingState::Declined,
                OfferAnswer::Accepted => {
                    match self.send_shared(&Frame::RingSwitch.encode(PayloadSource::NONE)) {
                        SendResult::Yes => RingState::Used(pair),
                        _ => RingState::Offered(pair),
                    }
                }
            },
            other => other,
        };
    }

    /// Passes the ring to the receiver, if it could not open it otherwise. Returns
    /// whether that is done.
    fn passes(&self, pair: &PairOut, nonce: u64) -> bool {
        let through = self.connection.as_ref();
        through.is_none_or(|connection| connection.give(&nonce.to_le_bytes(), &[pair.file()]).is_ok())
    }

    /// Wakes the receiver.
    #[cold]
    fn wake(&self) {
        let doorbell = &self.segment.header().doorbell;
        doorbell.wake(&self.cpu, |named| self.writer.notify(named, self.connection.as_ref()));
    }
}

/// A cell as two arguments, the low half first.
#[inline(always)]
fn put_cell(args: &mut [u32; LINE / 4], n: usize, cell: u64) {
    args[n * 2] = cell as u32;
    args[n * 2 + 1] = (cell >> 32) as u32;
}

#[allow(unsafe_code)]
fn stage(content: &PayloadSource<'_>, to: &mut [u8]) {
    assert_eq!(content.len(), to.len(), "a payload is staged whole");
    // SAFETY: the slice has as many bytes.
    unsafe { content.copy_to(to.as_mut_ptr()) }
}
