//! An endpoint: its peers, its receives, what it has under way; sending, and making
//! progress.
//!
//! **Short** and **eager** messages go at once: a short one on a packet's line, an eager one
//! through a block or the pair's bytes, in pieces if it is long. A **rendezvous** begins with a
//! request; the bytes go when the receiver has a place for them (Gropp & Lusk 1997, §3).
//!
//! Nothing here waits. A send that finds no space is refused ([`Refusal::Again`]); what has to go
//! out later (the rest of a message, answers) is queued for its peer and goes out as progress is
//! made. So no cycle of full queues stands still as long as everybody makes progress.

use std::collections::{HashMap, VecDeque};

use crate::device::connect::address::Address;
use crate::device::connect::attach::AttachError;
use crate::device::link::Sent;
use crate::device::peer::{Peer, Queued, Source, Stream, Way, What};
use crate::device::port::Port;
use crate::device::protocol::frame::{Content, Frame, Kind, WORDS, flag};
use crate::device::protocol::matching::Matcher;
use crate::device::protocol::onesided::OneSided;
use crate::device::protocol::receive::{Active, Message, Receive};
use crate::device::resource::buffers::Buffer;
use crate::device::resource::completion::{Reports, Ticket};
use crate::device::resource::regions::Regions;
use crate::device::resource::slab::Slab;
use crate::device::tune::copy_mode::Choice;
use crate::device::tune::settings::{INJECT, Settings};
use crate::device::wait::activity::Happened;
use crate::device::wait::repeat_poll::Look;

/// Why an operation did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No space now: make progress, and try again.
    Again,
    /// The peer is dead, gone, or can't be reached.
    Unreachable,
    /// No such peer.
    Unknown,
    /// An argument makes no sense.
    Invalid,
    /// It is longer than any message, or than any atomic operation.
    TooLong,
}

/// A message to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Message0<'a> {
    /// To whom.
    pub peer: u32,
    /// Its tag, if it is a tagged message.
    pub tag: Option<u64>,
    /// Its bytes.
    pub buffer: &'a Buffer,
    /// Data for the receiver's completion.
    pub data: Option<u64>,
    /// What to report.
    pub ticket: Ticket,
    /// The buffer is the caller's again when the call returns.
    pub inject: bool,
    /// Report only when the message has found its receive.
    pub matched: bool,
}

/// A message that its sender keeps until the receiver asks for it, or until it is known
/// to have arrived.
#[derive(Debug)]
pub struct Held {
    /// To whom.
    pub peer: u32,
    /// Its bytes.
    pub source: Source,
    /// What to report.
    pub ticket: Ticket,
}

/// The longest message, in bytes.
pub const LONGEST: usize = 1 << 46;
/// So many frames may wait for one peer before sends to it are refused.
const QUEUE: usize = 256;
/// Pieces of one stream before others have their turn.
pub(crate) const PIECES: usize = 16;

/// Everything but the port.
pub struct Core {
    /// Thresholds.
    pub settings: Settings,
    /// Our address.
    pub own: Address,
    /// All peers.
    pub peers: Vec<Peer>,
    pub(crate) by_address: HashMap<Address, u32>,
    /// By place: count of uses, peer.
    pub(crate) by_member: Vec<Option<(u8, u32)>>,
    pub(crate) tagged: Matcher<Receive, Message>,
    pub(crate) untagged: Matcher<Receive, Message>,
    pub(crate) active: Slab<Active>,
    pub(crate) held: Slab<Held>,
    pub(crate) onesided: Slab<OneSided>,
    /// Bytes that somebody asked for: they need not keep their place among the messages.
    pub(crate) streams: VecDeque<(u32, Stream)>,
    /// Peers whose queues are not empty.
    pub(crate) busy: Vec<u32>,
    /// Memory that others may use.
    pub regions: Regions,
    /// How the bytes of long messages come.
    pub(crate) choice: Choice,
    /// Where to report.
    pub reports: Reports,
    /// Messages found by a peek and kept for their claim, by the claimer's context.
    pub(crate) claimed: HashMap<usize, Message>,
    /// A multi-receive buffer with less space than this is given back.
    pub min_multi: usize,
    /// More processes than cores.
    pub crowded: bool,
    /// It sends to itself.
    to_itself: bool,
    /// Peeks for messages from anybody.
    pub(crate) look: Look,
    /// What has happened so far: whoever waits begins anew then.
    pub happened: Happened,
}

/// An endpoint.
pub struct Endpoint {
    /// Where things arrive.
    pub port: Port,
    /// The rest.
    pub core: Core,
    /// The peer whose life is looked at next.
    pub(crate) looked_at: usize,
}

impl Endpoint {
    /// A new one.
    ///
    /// # Errors
    ///
    /// There is no memory for it.
    pub fn open(settings: Settings) -> Result<Endpoint, AttachError> {
        let port = Port::open()?;
        crate::device::connect::announce::announce();
        let core = Core {
            settings,
            own: port.address,
            peers: Vec::new(),
            by_address: HashMap::new(),
            by_member: vec![None; crate::device::connect::layout::MEMBERS],
            tagged: Matcher::default(),
            untagged: Matcher::default(),
            active: Slab::default(),
            held: Slab::default(),
            onesided: Slab::default(),
            streams: VecDeque::new(),
            busy: Vec::new(),
            regions: Regions::default(),
            choice: Choice::default(),
            reports: Reports::default(),
            claimed: HashMap::new(),
            min_multi: 64,
            crowded: false,
            to_itself: false,
            look: Look::default(),
            happened: Happened::default(),
        };
        Ok(Endpoint { port, core, looked_at: 0 })
    }

    /// Takes what has arrived, and sends what waits. Returns how many frames arrived.
    #[inline]
    pub fn progress(&mut self) -> usize {
        let Endpoint { port, core, .. } = self;
        let taken = port.poll(core.to_itself, |from, frame| core.deliver(port, from, frame));
        core.happened.frames += taken as u64;
        if !core.busy.is_empty() || !core.streams.is_empty() {
            self.push();
        }
        taken
    }

    /// Whether something waits for space.
    pub fn is_stuck(&self) -> bool {
        !self.core.busy.is_empty() || !self.core.streams.is_empty()
    }
}

impl Core {
    /// The number of a peer.
    pub fn peer(&mut self, address: Address) -> u32 {
        if let Some(&known) = self.by_address.get(&address) {
            return known;
        }
        self.peers.push(Peer::new(address, &self.own));
        let number = self.peers.len() as u32 - 1;
        self.by_address.insert(address, number);
        number
    }

    /// The open way to a peer.
    #[inline]
    fn way(&mut self, peer: u32) -> Result<&mut Peer, Refusal> {
        let Core { own, peers, busy, to_itself, .. } = self;
        let number = peer;
        let peer = peers.get_mut(number as usize).ok_or(Refusal::Unknown)?;
        match peer.way {
            Way::Open(_) if !peer.gone => Ok(peer),
            _ => Core::open_way(own, number, peer, busy, to_itself),
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// It was not sent, and nothing will be reported.
    #[inline]
    pub fn send(&mut self, message: &Message0<'_>) -> Result<(), Refusal> {
        let result = self.try_send(message);
        self.happened.tried(&result);
        result
    }

    #[inline]
    fn try_send(&mut self, message: &Message0<'_>) -> Result<(), Refusal> {
        let Settings { eager, unexpected, ring_after, past_caches, .. } = self.settings;
        let crowded = self.crowded;
        let len = message.buffer.len();
        let peer = self.way(message.peer)?;
        let Way::Open(link) = &mut peer.way else { return Err(Refusal::Unreachable) };
        if !peer.queue.is_empty() {
            if peer.queue.len() >= QUEUE {
                return Err(Refusal::Again);
            }
            return self.send_behind(message);
        }
        link.promote(ring_after, past_caches, crowded);
        let counted = len > INJECT;
        let room = !counted || peer.eager_sent.wrapping_sub(link.taken()) < unexpected;
        if len <= link.piece().min(eager) && room && !message.matched {
            let kind = match (message.tag, message.data) {
                (None, None) => Kind::Eager,
                (Some(_), None) => Kind::EagerTagged,
                (None, Some(_)) => Kind::EagerData,
                (Some(_), Some(_)) => Kind::EagerDataTagged,
            };
            let words = [message.data.unwrap_or(0), 0, 0, 0];
            let content = Content::Part(message.buffer, 0, len);
            return match link.send(&Frame { kind, tag: message.tag.unwrap_or(0), words, content }) {
                Sent::Yes => {
                    if counted {
                        peer.eager_sent = peer.eager_sent.wrapping_add(len as u64);
                    }
                    self.happened.called(message.tag.is_some());
                    self.reports.end(&message.ticket, 0);
                    Ok(())
                }
                Sent::Full => Err(Refusal::Again),
                Sent::Gone => Err(self.lost(message.peer)),
            };
        }
        self.send_behind(message)
    }

    /// A message in pieces, or one that waits to be asked for, or one behind others.
    fn send_behind(&mut self, message: &Message0<'_>) -> Result<(), Refusal> {
        let Message0 { tag, buffer, data, ticket, .. } = *message;
        let len = buffer.len();
        if len > LONGEST {
            return Err(Refusal::TooLong);
        }
        self.happened.called(message.tag.is_some());
        let peer = &mut self.peers[message.peer as usize];
        let Way::Open(link) = &mut peer.way else { return Err(Refusal::Unreachable) };
        let counted = len > INJECT;
        let room = !counted || peer.eager_sent.wrapping_sub(link.taken()) < self.settings.unexpected;
        let flags = if data.is_some() { flag::DATA } else { 0 };
        let tagged = tag.is_some();
        let source =
            if message.inject { Source::Copy(buffer.to_vec()) } else { Source::Buffer(buffer.clone()) };
        let words = |number| [len as u64, data.unwrap_or(0), flags, number];
        if len <= self.settings.eager && room {
            if counted {
                peer.eager_sent = peer.eager_sent.wrapping_add(len as u64);
            }
            let (number, then) = if message.matched {
                // Reported when the receiver says so; the bytes are sent all the same, so nothing
                // of them is kept.
                let held = Held { peer: message.peer, source: Source::Copy(Vec::new()), ticket };
                (self.held.insert(held), None)
            } else {
                (0, Some(ticket))
            };
            let kind = if tagged { Kind::StartTagged } else { Kind::Start };
            let (tag, words) = (tag.unwrap_or(0), words(number));
            let mut stream = Stream { what: What::More, source, at: 0, end: len, then };
            let peer = &mut self.peers[message.peer as usize];
            let Way::Open(link) = &mut peer.way else { return Err(Refusal::Unreachable) };
            if peer.queue.is_empty() {
                let first = len.min(link.piece());
                match link.send(&Frame { kind, tag, words, content: stream.source.part(0, first) }) {
                    Sent::Yes => stream.at = first,
                    Sent::Gone => return Err(self.lost(message.peer)),
                    Sent::Full => {
                        self.enqueue(message.peer, Queued::Frame { kind, tag, words, bytes: Vec::new() });
                    }
                }
            } else {
                self.enqueue(message.peer, Queued::Frame { kind, tag, words, bytes: Vec::new() });
            }
            if stream.at < len {
                self.enqueue(message.peer, Queued::Stream(stream));
            } else if let Some(ticket) = then {
                self.reports.end(&ticket, 0);
                return Ok(());
            }
        } else {
            let address = match &source {
                Source::Buffer(buffer) if buffer.is_contiguous() => buffer.address() as u64,
                _ => 0,
            };
            let number = self.held.insert(Held { peer: message.peer, source, ticket });
            let kind = if tagged { Kind::RequestTagged } else { Kind::Request };
            let bytes = address.to_le_bytes().to_vec();
            self.enqueue(
                message.peer,
                Queued::Frame { kind, tag: tag.unwrap_or(0), words: words(number), bytes },
            );
        }
        self.push_peer(message.peer);
        Ok(())
    }

    /// Sends an answer or the like: at once if possible, or else as soon as there is
    /// space.
    pub(crate) fn post(&mut self, to: u32, kind: Kind, tag: u64, words: [u64; WORDS], bytes: &[u8]) {
        let peer = match self.way(to) {
            Ok(peer) => peer,
            Err(Refusal::Again) => return self.post_later(to, kind, tag, words, bytes),
            Err(_) => return,
        };
        let Way::Open(link) = &mut peer.way else { return };
        if peer.queue.is_empty() {
            match link.send(&Frame { kind, tag, words, content: Content::Bytes(bytes) }) {
                Sent::Yes => return,
                Sent::Gone => {
                    self.lost(to);
                    return;
                }
                Sent::Full => {}
            }
        }
        self.enqueue(to, Queued::Frame { kind, tag, words, bytes: bytes.to_vec() });
    }

    /// Queues something for a peer.
    pub(crate) fn enqueue(&mut self, to: u32, what: Queued) {
        let peer = &mut self.peers[to as usize];
        if peer.queue.is_empty() {
            self.busy.push(to);
        }
        peer.queue.push_back(what);
    }

    /// Whether a peer can be sent to, for operations that always queue. Opens the way to
    /// it.
    pub(crate) fn check(&mut self, to: u32) -> Result<(), Refusal> {
        let result = match self.way(to) {
            Ok(peer) if peer.queue.len() >= QUEUE => Err(Refusal::Again),
            result => result.map(|_| ()),
        };
        self.happened.tried(&result);
        result
    }

    /// Sends what waits, as far as there is space.
    #[cold]
    pub(crate) fn push(&mut self) {
        for peer in core::mem::take(&mut self.busy) {
            self.push_queue(peer);
        }
        for _ in 0..self.streams.len() {
            let Some((to, mut stream)) = self.streams.pop_front() else { return };
            let way = &mut self.peers[to as usize].way;
            let Way::Open(link) = way else {
                if matches!(way, Way::Asking(_)) {
                    self.streams.push_back((to, stream));
                }
                continue;
            };
            match stream.push(link, PIECES) {
                Some(Sent::Yes) => {
                    if let Some(ticket) = stream.then {
                        self.reports.end(&ticket, 0);
                    }
                }
                Some(Sent::Gone) => {
                    if let Some(ticket) = stream.then {
                        self.reports.end(&ticket, crate::device::resource::completion::error::UNREACHABLE);
                    }
                    self.lost(to);
                }
                Some(Sent::Full) | None => self.streams.push_back((to, stream)),
            }
        }
    }

    /// The same for one peer's queue.
    pub(crate) fn push_peer(&mut self, to: u32) {
        self.busy.retain(|&p| p != to);
        self.push_queue(to);
    }

    fn push_queue(&mut self, to: u32) {
        loop {
            if matches!(self.peers[to as usize].way, Way::Asking(_)) && !self.ask_again(to) {
                return;
            }
            let peer = &mut self.peers[to as usize];
            let Way::Open(link) = &mut peer.way else { return };
            let sent = match peer.queue.front_mut() {
                None => return,
                Some(Queued::Frame { kind, tag, words, bytes }) => {
                    let content = Content::Bytes(bytes);
                    link.send(&Frame { kind: *kind, tag: *tag, words: *words, content })
                }
                Some(Queued::Stream(stream)) => stream.push(link, PIECES).unwrap_or(Sent::Full),
            };
            match sent {
                Sent::Yes => {
                    if let Some(Queued::Stream(Stream { then: Some(ticket), .. })) = peer.queue.pop_front() {
                        self.reports.end(&ticket, 0);
                    }
                }
                Sent::Full => {
                    self.busy.push(to);
                    return;
                }
                Sent::Gone => {
                    self.lost(to);
                    return;
                }
            }
        }
    }
}
