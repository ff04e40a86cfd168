//! Endpoints: a name, a tag, a translation table, handlers, and a receive block of their own.

use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use towpath_machine::{Native, Processor};
use towpath_shm::{ParticipantId, World};
use towpath_sync::{Policy, Surroundings, Wait};

use crate::attach::{Attached, Side};
use crate::bundle::BundleInner;
use crate::error::{Error, Status};
use crate::layout::{Entry, WorldConfig};
use crate::name::{Name, Tag};
use crate::outstanding::Outstanding;
use crate::packet::MAX_ARGS;
use crate::parallel::ParallelBundle;
use crate::path::FIRST_QUOTA;
use crate::queue::{CLOSED, Queue, Receiver, Sender, intent};
use crate::segment::{PrivateSegment, Segment, SharedSegment};
use crate::token::{Operation, Token};

/// How many handlers an endpoint has.
pub const HANDLERS: usize = 256;

/// A handler.
pub(crate) type Handler = Rc<dyn Fn(&Token<'_>) + Send + Sync>;

/// Where an entry of the translation table leads.
pub(crate) struct Mapping {
    pub peer: Rc<Peer>,
    pub name: Name,
    pub tag: Tag,
}

/// Another endpoint (or this one), as a destination.
pub(crate) struct Peer {
    pub name: Name,
    pub entry: &'static Entry,
    pub participant: ParticipantId,
    pub request: Link,
    pub reply: Link,
    /// It is dead or gone, and what was on the way to it has been returned.
    pub gone: Cell<bool>,
}

/// One queue of another endpoint.
pub(crate) struct Link {
    pub side: Side,
    pub sender: RefCell<Sender>,
}

/// One of this endpoint's own queues.
pub(crate) struct Own {
    pub side: Side,
    pub receiver: RefCell<Receiver>,
    /// How many messages one poll delivers at most: adjusts itself.
    pub quota: Cell<usize>,
}

/// A message that could not be delivered, on its way to this endpoint's own handler 0.
pub(crate) struct Return {
    pub status: Status,
    pub operation: Operation,
    pub handler: u8,
    pub destination: Name,
    pub tag: Tag,
    pub args: [u32; MAX_ARGS],
    pub count: usize,
}

/// An endpoint's insides, which its handlers' tokens see.
pub struct Core {
    pub(crate) attached: Arc<Attached>,
    pub(crate) entry: &'static Entry,
    pub(crate) name: Name,
    pub(crate) cpu: Native,
    pub(crate) policy: Policy,
    pub(crate) budget: u64,
    pub(crate) request: Own,
    pub(crate) reply: Own,
    pub(crate) tag: Cell<Tag>,
    pub(crate) handlers: RefCell<Vec<Option<Handler>>>,
    pub(crate) translations: RefCell<Vec<Option<Mapping>>>,
    pub(crate) peers: RefCell<Vec<Option<Rc<Peer>>>>,
    pub(crate) segment: Segment,
    /// How many handlers are running, one inside the other.
    pub(crate) depth: Cell<u32>,
    /// Payloads of medium messages while their handlers run, one buffer for each depth.
    pub(crate) scratch: RefCell<Vec<Vec<u8>>>,
    pub(crate) returns: RefCell<VecDeque<Return>>,
    /// To be sent back when there is time and space.
    pub(crate) owed: RefCell<Vec<Outstanding>>,
    pub(crate) idle_polls: Cell<u32>,
    pub(crate) deaths_seen: Cell<u64>,
    pub(crate) last_check: Cell<u64>,
    pub(crate) bundle: RefCell<Weak<BundleInner>>,
    /// The parallel bundle that it lives in instead, if it shares one.
    pub(crate) parallel: RefCell<std::sync::Weak<ParallelBundle>>,
    /// Whether a reply is waiting for space.
    pub(crate) replying: Cell<bool>,
}

/// Who waits for a queue, and what it can learn.
pub(crate) struct Around<'a> {
    pub attached: &'a Attached,
    pub queue: &'a Queue<'static, Native>,
    /// Since when nobody has been seen to hold the queue's lock, in nanoseconds; 0 if somebody was.
    unheld: AtomicU64,
}

/// How long a lock may be neither held nor free before the waiters take its words for damaged, in nanoseconds. Longer than any process is likely
/// to wait for its turn on a core between getting the lock and saying so.
const DAMAGED: u64 = 5_000_000_000;

impl<'a> Around<'a> {
    pub fn new(attached: &'a Attached, queue: &'a Queue<'static, Native>) -> Self {
        Around { attached, queue, unheld: AtomicU64::new(0) }
    }
}

impl Surroundings for Around<'_> {
    fn oversubscribed(&self) -> bool {
        self.attached.world.surroundings().oversubscribed()
    }

    /// Whether a lock in front of the queue can never be had again: somebody died on it, or its words are damaged.
    fn abandoned(&self) -> bool {
        // Relaxed: once closed for this generation, always closed.
        if self.queue.control.tail.load(Ordering::Relaxed) & CLOSED != 0 {
            return true;
        }
        let mut held = false;
        for entry in (0..self.attached.config.endpoints as u16).filter_map(|e| self.attached.entry(e).ok()) {
            for word in &entry.intents.0 {
                // Acquire: pairs with the Release of those who change their intent.
                let intent = word.load(Ordering::Acquire);
                if intent::phase(intent, self.queue.id) == Some(intent::LOCKING) {
                    if !self.attached.owner_alive(entry) {
                        return true;
                    }
                    held |= intent >> 20 == 1;
                }
            }
        }
        // Relaxed, all of them: the waiter's own.
        let now = Native::with_id(0).now();
        match self.unheld.load(Ordering::Relaxed) {
            _ if held => self.unheld.store(0, Ordering::Relaxed),
            0 => self.unheld.store(now, Ordering::Relaxed),
            since => return now.saturating_sub(since) >= DAMAGED,
        }
        false
    }

    fn asleep(&self, asleep: bool) {
        self.attached.world.surroundings().asleep(asleep);
    }
}

/// An Active Message endpoint. Not to be shared between threads: see [`crate::ParallelEndpoint`].
///
/// Its receive block lies in the world's memory. Dropping it closes it: what others had sent and it had not handled comes back to them.
pub struct Endpoint {
    pub(crate) core: Rc<Core>,
}

impl core::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Endpoint").field("name", &self.core.name).finish_non_exhaustive()
    }
}

/// What an endpoint's receive block has in use: all 0 when nothing is on the way to it and nothing was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Packets of the request queue.
    pub request_packets: u64,
    /// Blocks of the request queue.
    pub request_blocks: u64,
    /// Packets of the reply queue.
    pub reply_packets: u64,
    /// Blocks of the reply queue.
    pub reply_blocks: u64,
}

impl Audit {
    /// Whether nothing is in use.
    pub fn is_clean(&self) -> bool {
        *self == Audit::default()
    }
}

impl Endpoint {
    /// An endpoint of the calling process, without a segment, in a bundle of its own.
    ///
    /// # Errors
    ///
    /// [`Error::NotInitialised`] if the process has not entered the world; [`Error::Resource`] if all endpoints are taken.
    pub fn new(world: &World) -> Result<Endpoint, Error> {
        Endpoint::build(world, |_| Ok(Segment::None))
    }

    /// The same with a segment of `len` bytes in private memory.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::new`].
    pub fn with_private_segment(world: &World, len: usize) -> Result<Endpoint, Error> {
        Endpoint::build(world, |_| Ok(Segment::Private(PrivateSegment::new(len))))
    }

    /// The same with its part of the world's memory as segment, into which senders store directly.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::new`]; [`Error::Resource`] if the world was made without room for segments.
    pub fn with_shared_segment(world: &World) -> Result<Endpoint, Error> {
        Endpoint::build(world, |(attached, me)| {
            if attached.config.segment_bytes == 0 {
                return Err(Error::Resource(
                    "this world has no room for segments; make it larger (towpath run --size, WorldConfig::segment_bytes)".into(),
                ));
            }
            Ok(Segment::Shared(SharedSegment(attached.segment(me)?)))
        })
    }

    fn build(
        world: &World,
        segment: impl FnOnce((&Attached, u16)) -> Result<Segment, Error>,
    ) -> Result<Endpoint, Error> {
        let attached = Attached::new(world)?;
        let participant = world
            .entered()
            .ok_or_else(|| Error::NotInitialised("this process has not entered the world".into()))?;
        let me = attached.take_entry(participant)?;
        let entry = attached.entry(me)?;
        let segment = segment((&attached, me)).inspect_err(|_| attached.give_up_entry(entry))?;
        let (generation, owed) = attached.open_entry(me, participant, &segment)?;
        let own = |reply| -> Result<Own, Error> {
            let side = attached.side(me, reply)?;
            // Relaxed: our own queue, just made.
            let head = side.queue.control.head.load(Ordering::Relaxed);
            Ok(Own {
                receiver: RefCell::new(Receiver { head, published: head, ..Receiver::default() }),
                side,
                quota: Cell::new(FIRST_QUOTA),
            })
        };
        let (request, reply) = (own(false)?, own(true)?);
        let config = attached.config;
        let core = Rc::new(Core {
            entry,
            name: Name { endpoint: me, generation },
            cpu: Native::with_id(me.into()),
            policy: config.waiting,
            budget: world.switch_cost(),
            request,
            reply,
            tag: Cell::new(Tag::ALL),
            handlers: RefCell::new((0..HANDLERS).map(|_| None).collect()),
            translations: RefCell::new(Vec::new()),
            peers: RefCell::new((0..config.endpoints).map(|_| None).collect()),
            segment,
            depth: Cell::new(0),
            scratch: RefCell::new(Vec::new()),
            returns: RefCell::new(VecDeque::new()),
            owed: RefCell::new(owed),
            idle_polls: Cell::new(0),
            deaths_seen: Cell::new(world.deaths()),
            last_check: Cell::new(0),
            bundle: RefCell::new(Weak::new()),
            parallel: RefCell::default(),
            replying: Cell::new(false),
            attached,
        });
        Ok(Endpoint { core })
    }

    /// Its name.
    pub fn name(&self) -> Name {
        self.core.name
    }

    /// Its world's configuration.
    pub fn config(&self) -> &WorldConfig {
        &self.core.attached.config
    }

    /// Its world.
    pub fn world(&self) -> &World {
        &self.core.attached.world
    }

    /// Its tag: [`Tag::ALL`] at first.
    pub fn tag(&self) -> Tag {
        self.core.tag.get()
    }

    /// Changes its tag. Messages that come with another one go back to their senders.
    pub fn set_tag(&self, tag: Tag) {
        self.core.tag.set(tag);
    }

    /// Its segment.
    pub fn segment(&self) -> &Segment {
        self.core.segment()
    }

    /// Sets handler `index`; handler 0 gets the messages of ours that came back. A handler may reply, and may not send requests
    /// or poll.
    pub fn set_handler(&self, index: u8, handler: impl Fn(&Token<'_>) + Send + Sync + 'static) {
        self.core.handlers.borrow_mut()[usize::from(index)] = Some(Rc::new(handler));
    }

    /// Removes handler `index`: messages for it go back to their senders.
    pub fn clear_handler(&self, index: u8) {
        self.core.handlers.borrow_mut()[usize::from(index)] = None;
    }

    /// Maps entry `index` of the translation table to an endpoint and the tag that its messages shall show. Replaces what was there.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`] if there is no endpoint of that name (any more), or `index` is above 65,535.
    pub fn map(&self, index: usize, name: Name, tag: Tag) -> Result<(), Error> {
        if index > usize::from(u16::MAX) {
            return Err(Error::BadArgument(format!("translation table index {index} is above 65535")));
        }
        let peer = self.core.peer(name)?;
        if peer.gone.get() || !self.core.is_here(&peer) {
            return Err(no_such_endpoint());
        }
        let mut table = self.core.translations.borrow_mut();
        if table.len() <= index {
            table.resize_with(index + 1, || None);
        }
        table[index] = Some(Mapping { peer, name, tag });
        Ok(())
    }

    /// Unmaps entry `index`.
    ///
    /// # Errors
    ///
    /// [`Error::NotInitialised`] if it was not mapped.
    pub fn unmap(&self, index: usize) -> Result<(), Error> {
        match self.core.translations.borrow_mut().get_mut(index).and_then(Option::take) {
            Some(_) => Ok(()),
            None => Err(Error::NotInitialised(format!("translation table entry {index}"))),
        }
    }

    /// What entry `index` maps to.
    pub fn mapping(&self, index: usize) -> Option<(Name, Tag)> {
        self.core.translations.borrow().get(index)?.as_ref().map(|m| (m.name, m.tag))
    }

    /// The name of the first open endpoint of the process with this rank, if it has one by now.
    pub fn name_of_rank(&self, rank: u32) -> Option<Name> {
        self.core.attached.name_of_rank(rank)
    }

    /// Maps entry `r` of the translation table to the first endpoint of rank `r`, for every rank of the world, with [`Tag::ALL`]. Waits until they exist.
    ///
    /// # Errors
    ///
    /// [`Error::Resource`] if one of them has none after 30 seconds.
    pub fn map_world(&self) -> Result<(), Error> {
        let world = &self.core.attached.world;
        let start = std::time::Instant::now();
        for rank in 0..world.size() {
            let name = loop {
                if let Some(name) = self.name_of_rank(rank) {
                    break name;
                }
                if start.elapsed().as_secs() >= 30 {
                    return Err(Error::Resource(format!(
                        "rank {rank} has no endpoint after 30 seconds: did it start, and does it create one?"
                    )));
                }
                std::thread::sleep(std::time::Duration::from_micros(200));
            };
            self.map(rank as usize, name, Tag::ALL)?;
        }
        Ok(())
    }

    /// Sends a request with arguments only. Waits for space if there is none, polling the bundle meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::NotInitialised`] (entry not mapped), [`Error::BadArgument`] (over 16 arguments), [`Error::InUse`] (from a handler). A destination that
    /// can't be reached is no error here: the message comes back to handler 0.
    #[inline]
    pub fn request(&self, index: usize, handler: u8, args: &[u32]) -> Result<(), Error> {
        self.core.request_short(index, handler, args, true)
    }

    /// Sends a request with a payload for the handler: at most a block ([`WorldConfig::block_size`]) long.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::request`], and [`Error::BadArgument`] if the payload is too long.
    pub fn request_medium(
        &self,
        index: usize,
        handler: u8,
        args: &[u32],
        payload: &[u8],
    ) -> Result<(), Error> {
        self.core.request_medium(index, handler, args, payload, true)
    }

    /// Stores `payload` at `offset` of the destination's segment, then runs the handler there.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::request`].
    pub fn request_long(
        &self,
        index: usize,
        handler: u8,
        args: &[u32],
        payload: &[u8],
        offset: u64,
    ) -> Result<(), Error> {
        self.core.request_long(index, handler, args, payload, offset, true)
    }

    /// The same, but only if it can go out at once. The source may be reused on return all the same.
    ///
    /// # Errors
    ///
    /// [`Error::NotSent`] if it can't, with no effect but that bytes may have been stored in a shared segment; otherwise as [`Endpoint::request`].
    pub fn request_long_async(
        &self,
        index: usize,
        handler: u8,
        args: &[u32],
        payload: &[u8],
        offset: u64,
    ) -> Result<(), Error> {
        self.core.request_long(index, handler, args, payload, offset, false)
    }

    /// Delivers what is there: replies before requests, a bounded number. Returns how many messages. From a handler: nothing.
    #[inline]
    pub fn poll(&self) -> usize {
        self.core.poll()
    }

    /// What the receive block has in use.
    pub fn audit(&self) -> Audit {
        let count =
            |own: &Own| own.receiver.borrow().in_use(&own.side.claim, &own.side.queue, &self.core.cpu);
        let ((request_packets, request_blocks), (reply_packets, reply_blocks)) =
            (count(&self.core.request), count(&self.core.reply));
        Audit { request_packets, request_blocks, reply_packets, reply_blocks }
    }

    /// Looks after the receive block now, instead of some time while nothing arrives: notices deaths, frees what the dead had claimed,
    /// returns what was on the way to them.
    pub fn recover(&self) {
        self.core.attached.world.check_deaths();
        self.core.look_after(true);
    }
}

fn no_such_endpoint() -> Error {
    Error::BadArgument("there is no endpoint of that name (any more)".into())
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Some(bundle) = self.core.bundle.borrow().upgrade() {
            bundle.remove(&self.core);
        }
        self.core.attached.close_entry(self.core.name.endpoint);
    }
}

impl Core {
    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }

    /// How to wait for a queue.
    #[inline(always)]
    pub(crate) fn wait<'a>(&self, around: &'a Around<'_>) -> Wait<'a> {
        Wait { policy: self.policy, around, budget: self.budget }
    }

    pub(crate) fn intent(&self, reply: bool) -> &core::sync::atomic::AtomicU64 {
        &self.entry.intents.0[usize::from(reply)]
    }

    pub(crate) fn block_intent(&self, reply: bool) -> &AtomicU64 {
        &self.entry.intents.0[2 + usize::from(reply)]
    }

    /// The destination of that name, attached.
    pub(crate) fn peer(&self, name: Name) -> Result<Rc<Peer>, Error> {
        let known = self.peers.borrow().get(usize::from(name.endpoint)).and_then(Clone::clone);
        if let Some(peer) = known
            && peer.name == name
        {
            return Ok(peer);
        }
        let (entry, owner) = match self.attached.opened(name.endpoint) {
            Some((entry, owner, generation)) if generation == name.generation => (entry, owner),
            _ => return Err(no_such_endpoint()),
        };
        let link = |reply| -> Result<Link, Error> {
            let side = self.attached.side(name.endpoint, reply)?;
            let mut sender = Sender::new(self.name.endpoint, self.name.generation as u16, name.generation);
            sender.head_seen = side.queue.control.head.load(Ordering::Acquire) & !towpath_sync::PARKED;
            Ok(Link { side, sender: RefCell::new(sender) })
        };
        let peer = Rc::new(Peer {
            name,
            entry,
            participant: owner,
            request: link(false)?,
            reply: link(true)?,
            gone: Cell::new(false),
        });
        self.peers.borrow_mut()[usize::from(name.endpoint)] = Some(peer.clone());
        Ok(peer)
    }
}
