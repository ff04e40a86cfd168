//! An endpoint: its peers, its receives, its operations under way; and progress.
//!
//! **Short** and **eager** messages go at once: a short one on a packet's line, an eager one
//! through a block or the pair's bytes, in pieces if it is long. A **rendezvous** begins with a
//! request; the bytes go when the receiver has a place for them (Gropp & Lusk 1997, §3).
//!
//! Nothing here waits. A send that finds no space is refused ([`Refusal::Again`]); what has to go
//! out later (the rest of a message, answers) is queued for its peer and goes out as progress is
//! made. So no cycle of full queues stands still as long as all endpoints make progress.

use std::collections::{HashMap, VecDeque};

use crate::device::connect::address::Address;
use crate::device::connect::attach::AttachError;
use crate::device::operation::{Active, HeldSend, OneSided, Receive, Refusal, UnexpectedMessage};
use crate::device::peer::{ConnectionState, Peer};
use crate::device::port::Port;
use crate::device::protocol::matching::Matcher;
use crate::device::protocol::stream::Stream;
use crate::device::resource::completion::Reports;
use crate::device::resource::slab::Slab;
use crate::device::rma::regions::Regions;
use crate::device::tune::copy_mode::CopyModes;
use crate::device::tune::settings::Settings;
use crate::device::wait::activity::Activity;
use crate::device::wait::repeat_poll::PeekGate;

/// Number of entries in a peer's queue from which on sends to it are refused.
pub(crate) const QUEUE: usize = 256;

/// Everything but the port.
pub struct EndpointCore {
    /// Thresholds.
    pub settings: Settings,
    /// Our address.
    pub own: Address,
    /// All peers.
    pub peers: Vec<Peer>,
    pub(crate) by_address: HashMap<Address, u32>,
    /// Count of uses and peer of each place.
    pub(crate) by_member: Vec<Option<(u8, u32)>>,
    pub(crate) tagged: Matcher<Receive, UnexpectedMessage>,
    pub(crate) untagged: Matcher<Receive, UnexpectedMessage>,
    pub(crate) active: Slab<Active>,
    pub(crate) held: Slab<HeldSend>,
    pub(crate) onesided: Slab<OneSided>,
    /// Bytes that peers asked for: they need not keep their place among the messages.
    pub(crate) streams: VecDeque<(u32, Stream)>,
    /// Peers whose queues are not empty.
    pub(crate) busy: Vec<u32>,
    /// Memory that others may use.
    pub regions: Regions,
    /// Chooser between direct copies and pipelines, for long messages.
    pub(crate) copy_modes: CopyModes,
    /// Queues and counters for completions.
    pub reports: Reports,
    /// Messages found by a peek and kept for their claim, by the claimer's context.
    pub(crate) claimed: HashMap<usize, UnexpectedMessage>,
    /// A multi-receive buffer with less space than this is given back.
    pub min_multi: usize,
    /// More processes than cores.
    pub oversubscribed: bool,
    /// The endpoint sends to itself.
    to_itself: bool,
    /// Gate of peeks for messages from any source.
    pub(crate) peeks: PeekGate,
    /// Counts of events so far: an idle strategy begins anew when they change.
    pub activity: Activity,
}

/// An endpoint.
pub struct Endpoint {
    /// The receiving side.
    pub port: Port,
    /// The rest.
    pub core: EndpointCore,
    /// The peer that is checked for liveness next.
    pub(crate) looked_at: usize,
}

impl Endpoint {
    /// Opens a new endpoint.
    ///
    /// # Errors
    ///
    /// There is no memory for it.
    pub fn open(settings: Settings) -> Result<Endpoint, AttachError> {
        let port = Port::open()?;
        crate::device::connect::announce::announce();
        let core = EndpointCore {
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
            copy_modes: CopyModes::default(),
            reports: Reports::default(),
            claimed: HashMap::new(),
            min_multi: 64,
            oversubscribed: false,
            to_itself: false,
            peeks: PeekGate::default(),
            activity: Activity::default(),
        };
        Ok(Endpoint { port, core, looked_at: 0 })
    }

    /// Takes frames that have arrived, and sends queued ones. Returns the number of
    /// arrivals.
    #[inline]
    pub fn progress(&mut self) -> usize {
        let Endpoint { port, core, .. } = self;
        let taken = port.poll(core.to_itself, |from, frame| core.deliver(port, from, frame));
        core.activity.frames += taken as u64;
        if !core.busy.is_empty() || !core.streams.is_empty() {
            self.push();
        }
        taken
    }

    /// Returns whether a frame or a stream is queued for want of space.
    pub fn is_stuck(&self) -> bool {
        !self.core.busy.is_empty() || !self.core.streams.is_empty()
    }
}

impl EndpointCore {
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

    /// The peer of this number, connected.
    #[inline]
    pub(crate) fn connected(&mut self, number: u32) -> Result<&mut Peer, Refusal> {
        let EndpointCore { own, peers, busy, to_itself, .. } = self;
        let peer = peers.get_mut(number as usize).ok_or(Refusal::Unknown)?;
        match peer.connection {
            ConnectionState::Open(_) if !peer.gone => Ok(peer),
            _ => EndpointCore::connect(own, number, peer, busy, to_itself),
        }
    }
}
