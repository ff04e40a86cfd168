//! State of an endpoint: its domain, queues, tables, and the messages on their way back.
//!
//! | part | contents | used by |
//! | --- | --- | --- |
//! | `domain`, `entry`, `name` | the endpoint's place in the world | all |
//! | `request`, `reply` | its own queues | `deliver.rs`, `signal.rs`, `bundle.rs` |
//! | `tables` | handlers, translations, peers | `translation.rs`, `send.rs`, `deliver.rs` |
//! | `dispatch` | running handlers, and replies that wait | `deliver.rs`, `send.rs`, `signal.rs` |
//! | `answers` | lines in which a message is expected | `answers.rs` |
//! | `streams` | streams that it receives from | `streams.rs` |
//! | `offers` | the long transfer that it offers | `offers.rs` |
//! | `back` | messages on their way back | `send.rs`, `deliver.rs`, `upkeep.rs` |
//! | `upkeep` | times and counts of the looks at deaths | `upkeep.rs`, `send.rs` |
//! | `company` | the endpoints that are polled with it | `bundle.rs`, `parallel.rs` |
//!
//! **Fields.** All of it belongs to the thread that uses the endpoint; what lies in the domain's
//! memory is reached through `entry` and the queues.

use core::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::rc::{Rc, Weak};

use towpath_channel::answer_line::AnswerEnd;
use towpath_channel::offer::first_number;
use towpath_channel::stream::{MAX_STREAMS, StreamReceiver, StreamSender};
use towpath_shm::ParticipantId;

use crate::domain::{DomainMemory, Hooks, Membership, Word};
use crate::handlers::Handlers;
use crate::message::{Direction, Payload, Returned, Source};
use crate::name::{Name, Tag};
use crate::offer_choice::OffersToPeer;
use crate::outstanding::Outstanding;
use crate::packet::MAX_ARGS;
use crate::queue::{Receiver, Sender};
use crate::reply_predictor::ReplyPredictor;
use crate::segment::Segment;
use crate::shared_memory::SharedMemory;
use crate::signalled::Signalled;

/// Domain of an endpoint: its memory, its members, the ways to wait, and the type of its
/// handlers.
///
/// The page of [`domain`](crate::domain) has one of a program's own. An endpoint is the same in
/// all:
///
/// ```
/// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
/// # world.enter(None)?;
/// use towpath::domain::Membership;
/// use towpath::{Domain, Endpoint, Error, SharedMemory};
///
/// /// Sends a number to handler 1 of each rank.
/// fn tell<D: Domain>(endpoint: &Endpoint<D>, number: u32) -> Result<(), Error> {
///     endpoint.map_world()?;
///     let mut ranks = 0..endpoint.domain().size() as usize;
///     ranks.try_for_each(|rank| endpoint.request(rank, 1, &[number]))
/// }
///
/// let endpoint: Endpoint<SharedMemory> = Endpoint::new(&world)?;
/// endpoint.set_handler(1, |message| assert_eq!(message.args(), [7]));
/// tell(&endpoint, 7)?;
/// assert_eq!(endpoint.poll(), 1);
/// # Ok::<(), Error>(())
/// ```
pub trait Domain: DomainMemory + Membership + Hooks {
    /// Type of a handler: the trait object that says which captures handlers may hold.
    type Handler: ?Sized + Fn(&Token<'_, Self>);
}

impl Domain for SharedMemory {
    /// Any captures: [`crate::Endpoint::into_parallel`] refuses handlers that are not
    /// `Send + Sync`.
    type Handler = dyn Fn(&Token<'_>);
}

/// Message in the hands of its handler, with the right to one reply.
pub struct Token<'a, D: Domain = SharedMemory> {
    pub(crate) core: &'a Core<D>,
    pub(crate) source: Source,
    /// Sender of a message that came in a line: the answer goes there.
    pub(crate) from: Option<&'a PeerEndpoint<D>>,
    pub(crate) tag: Tag,
    pub(crate) args: [u32; MAX_ARGS],
    pub(crate) count: usize,
    pub(crate) payload: Payload<'a>,
    pub(crate) direction: Direction,
    pub(crate) replied: Cell<bool>,
    pub(crate) returned: Option<Returned>,
}

/// Entry of the translation table.
pub(crate) struct Mapping<D: Domain> {
    pub peer: Rc<PeerEndpoint<D>>,
    pub name: Name,
    pub tag: Tag,
}

/// Another endpoint (or this one), as a destination.
pub(crate) struct PeerEndpoint<D: Domain> {
    pub name: Name,
    pub entry: D::Entry,
    pub participant: ParticipantId,
    pub request: PeerQueue<D>,
    pub reply: PeerQueue<D>,
    /// True once it is dead or closed, and messages on the way to it have been returned.
    pub gone: Cell<bool>,
    /// Prediction of the packet that answers its next message.
    pub predictor: Cell<ReplyPredictor>,
    /// Line in which the two answer each other.
    pub talk: Talk<D>,
    /// Stream beside its request queue.
    pub stream: StreamSender<<D as DomainMemory>::Stream>,
    /// Number of short requests through its queue until the next attempt at a stream.
    pub until_stream: Cell<u32>,
    /// Long transfers that it is offered.
    pub offers: OffersToPeer,
}

impl<D: Domain> PeerEndpoint<D> {
    #[inline(always)]
    pub fn link(&self, direction: Direction) -> &PeerQueue<D> {
        if direction.is_reply() { &self.reply } else { &self.request }
    }
}

/// One queue of another endpoint.
pub(crate) struct PeerQueue<D: Domain> {
    pub side: D::Side,
    pub sender: RefCell<Sender>,
}

/// One of this endpoint's own queues.
pub(crate) struct Own<D: Domain> {
    pub side: D::Side,
    pub receiver: RefCell<Receiver>,
    /// Maximum number of messages that one poll delivers: adjusts itself.
    pub quota: Cell<usize>,
}

/// Tables of an endpoint. A running handler can't reach them.
pub(crate) struct Tables<D: Domain> {
    pub handlers: Handlers<D>,
    pub translations: RefCell<Vec<Option<Mapping<D>>>>,
    pub peers: RefCell<Vec<Option<Rc<PeerEndpoint<D>>>>>,
}

/// Handlers that run, and replies that wait for space.
#[derive(Default)]
pub(crate) struct Dispatch {
    /// Number of handlers that are running, one inside the other.
    pub depth: Cell<u32>,
    /// Payloads of medium messages while their handlers run, one buffer for each depth.
    pub scratch: RefCell<Vec<Vec<u8>>>,
    /// True while a reply waits for space.
    pub replying: Cell<bool>,
    /// Handlers that may run in a signal, and the reply that one of them has left.
    pub signalled: Signalled,
}

/// Maximum number of lines in which an endpoint expects messages at one time.
pub(crate) const MOST_LINES: usize = 8;

/// Lines of an endpoint in use.
pub(crate) struct Answers<D: Domain> {
    /// True where the line may be used.
    pub enabled: Cell<bool>,
    /// Number of polls that may still spin on a line.
    pub patience: Cell<u32>,
    /// True if the first look after a message may be replaced by a pause.
    pub pauses: Cell<bool>,
    /// Number of polls that have found messages in lines since one looked at the queues.
    pub in_turn: Cell<u32>,
    /// Peers with which it uses a line.
    pub lines: RefCell<Vec<Rc<PeerEndpoint<D>>>>,
    /// Number of these.
    pub count: Cell<usize>,
}

impl<D: Domain> Answers<D> {
    /// Returns whether the endpoint uses a line.
    pub fn has_lines(&self) -> bool {
        self.count.get() > 0
    }

    /// Makes those of a new endpoint.
    pub fn new(domain: &D) -> Self {
        Answers {
            enabled: Cell::new(domain.config().has_answer_lines()),
            in_turn: Cell::new(0),
            patience: Cell::new(0),
            pauses: Cell::new(false),
            lines: RefCell::new(Vec::with_capacity(MOST_LINES)),
            count: Cell::new(0),
        }
    }
}

/// End of an endpoint's line with a peer.
pub(crate) struct Talk<D: Domain> {
    pub end: AnswerEnd<<D as DomainMemory>::Line>,
    /// Number of times that this endpoint has answered the peer.
    pub times: Cell<u32>,
    /// Tickets that the peer's last request and its last reply in the line came after.
    pub reached: [Cell<u64>; 2],
}

/// Streams that an endpoint receives from.
pub(crate) struct IncomingStreams<D: Domain> {
    /// True where streams may be used.
    pub enabled: bool,
    /// Number of streams that it receives from.
    pub count: Cell<usize>,
    pub receivers: RefCell<Vec<StreamReceiver<<D as DomainMemory>::Stream>>>,
}

impl<D: Domain> IncomingStreams<D> {
    /// Makes those of a new endpoint.
    pub fn new(domain: &D) -> Self {
        let receivers = RefCell::new(Vec::with_capacity(MAX_STREAMS as usize));
        IncomingStreams { enabled: domain.config().streams_each() > 0, count: Cell::new(0), receivers }
    }
}

/// Long transfers that an endpoint offers.
pub(crate) struct Offers {
    /// Number of the last one.
    pub number: Cell<u64>,
    /// Number of those that were taken.
    pub taken: Cell<u64>,
    /// True while one is under way.
    pub is_busy: Cell<bool>,
    /// Number that only this process has at this address.
    pub proof: Cell<u64>,
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

/// Messages on their way back.
#[derive(Default)]
pub(crate) struct Back {
    /// Messages of this endpoint's that could not be delivered, for its own handler 0.
    pub returns: RefCell<VecDeque<Outstanding>>,
    /// Messages of others that are to be sent back when there is time and space.
    pub owed: RefCell<Vec<Outstanding>>,
    /// Requests that came back since their receiver was gone: its name, and the low bits
    /// of their tickets.
    pub seen: RefCell<HashSet<(Name, u16)>>,
}

/// Times and counts of the endpoint's looks at deaths and late packets.
#[derive(Default)]
pub(crate) struct Upkeep {
    /// Number of empty polls.
    pub idle_polls: Cell<u32>,
    /// Number of deaths at the last look.
    pub deaths_seen: Cell<u64>,
    /// Time of the last question for deaths, in nanoseconds.
    pub last_check: Cell<u64>,
    /// Time of the last look, in nanoseconds.
    pub last_look: Cell<u64>,
}

/// Endpoints of one thread that are polled together.
pub(crate) struct Bundled<D: Domain> {
    pub members: RefCell<Vec<Rc<Core<D>>>>,
}

impl<D: Domain> Bundled<D> {
    pub fn remove(&self, core: &Rc<Core<D>>) {
        self.members.borrow_mut().retain(|m| !Rc::ptr_eq(m, core));
    }
}

/// Function that polls only the replies of endpoints which the process shares with other
/// threads.
pub(crate) type PollReplies = Box<dyn Fn() -> usize + Send>;

/// Endpoints that are polled with this one.
pub(crate) struct Company<D: Domain> {
    /// Its sequential bundle, if it is in one.
    pub bundle: RefCell<Weak<Bundled<D>>>,
    /// Its parallel bundle, if it is in one (`parallel.rs`).
    pub poll_replies: RefCell<Option<PollReplies>>,
}

/// State of an endpoint, which its handlers' tokens refer to.
pub struct Core<D: Domain> {
    pub(crate) domain: D,
    pub(crate) entry: D::Entry,
    pub(crate) name: Name,
    pub(crate) tag: Cell<Tag>,
    pub(crate) segment: Segment<D::Segment>,
    pub(crate) request: Own<D>,
    pub(crate) reply: Own<D>,
    pub(crate) tables: Tables<D>,
    pub(crate) dispatch: Dispatch,
    pub(crate) answers: Answers<D>,
    pub(crate) streams: IncomingStreams<D>,
    pub(crate) offers: Offers,
    pub(crate) back: Back,
    pub(crate) upkeep: Upkeep,
    pub(crate) company: Company<D>,
}

impl<D: Domain> Core<D> {
    #[inline(always)]
    pub(crate) fn cpu(&self) -> &D::Cpu {
        self.domain.cpu()
    }

    #[inline(always)]
    pub(crate) fn own(&self, direction: Direction) -> &Own<D> {
        if direction.is_reply() { &self.reply } else { &self.request }
    }

    #[inline(always)]
    pub(crate) fn intent(&self, direction: Direction) -> &Word<D> {
        &self.entry.own.intents[usize::from(direction.is_reply())]
    }

    #[inline(always)]
    pub(crate) fn block_intent(&self, direction: Direction) -> &Word<D> {
        &self.entry.own.intents[2 + usize::from(direction.is_reply())]
    }
}
