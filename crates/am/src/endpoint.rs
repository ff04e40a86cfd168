//! Endpoints: a name, a tag, a translation table, handlers, and a receive block of their own.

use core::cell::{Cell, RefCell};
use core::sync::atomic::Ordering;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use towpath_machine::{LINE, Native, OwnLine};
use towpath_shm::{ParticipantId, World};
use towpath_sync::{Policy, Surroundings, Wait};

use crate::attach::{Attached, Side};
use crate::bundle::BundleInner;
use crate::claim::Claim;
use crate::error::{Error, Status};
use crate::layout::{Entry, WorldConfig};
use crate::name::{Name, Tag};
use crate::packet::{CLAIMED, Header, MAX_ARGS};
use crate::queue::{CLOSED, Census, Queue, Receiver, Sender, intent};
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
    pub(crate) idle_polls: Cell<u32>,
    pub(crate) deaths_seen: Cell<u64>,
    pub(crate) last_check: Cell<u64>,
    pub(crate) bundle: RefCell<Weak<BundleInner>>,
}

/// Who waits for a queue, and what it can learn.
pub(crate) struct Around<'a> {
    pub attached: &'a Attached,
    pub queue: &'a Queue<'static, Native>,
}

impl Surroundings for Around<'_> {
    fn oversubscribed(&self) -> bool {
        self.attached.world.surroundings().oversubscribed()
    }

    /// Whether a lock in front of the queue can never be had again: somebody died on it.
    fn abandoned(&self) -> bool {
        // Relaxed: once closed for this generation, always closed.
        if self.queue.control.tail.load(Ordering::Relaxed) & CLOSED != 0 {
            return true;
        }
        (0..self.attached.config.endpoints as u16).any(|endpoint| {
            let Ok(entry) = self.attached.entry(endpoint) else { return false };
            // Acquire: pairs with the Release of those who change their intent.
            let locking = entry.intents.0.iter().any(|word| {
                intent::phase(word.load(Ordering::Acquire), self.queue.id) == Some(intent::LOCKING)
            });
            locking && !self.attached.owner_alive(entry)
        })
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
        let generation = attached.open_entry(me, participant, &segment)?;
        let own = |reply| -> Result<Own, Error> {
            let side = attached.side(me, reply)?;
            // Relaxed: our own queue, just made.
            let head = side.queue.control.head.load(Ordering::Relaxed);
            Ok(Own {
                receiver: RefCell::new(Receiver { head, published: head, ..Receiver::default() }),
                side,
                quota: Cell::new(32),
            })
        };
        let (request, reply) = (own(false)?, own(true)?);
        let config = attached.config;
        let core = Rc::new(Core {
            entry,
            name: Name { endpoint: me, generation },
            cpu: Native::with_id(me.into()),
            policy: config.waiting,
            budget: 5_000,
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
            idle_polls: Cell::new(0),
            deaths_seen: Cell::new(world.deaths()),
            last_check: Cell::new(0),
            bundle: RefCell::new(Weak::new()),
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
        self.core.request_short(index, handler, args)
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
        self.core.request_medium(index, handler, args, payload)
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
    /// [`Error::NotSent`] if it can't, with no effect (except, for a transfer of several blocks, that pieces may have been stored);
    /// otherwise as [`Endpoint::request`].
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
            _ => return Err(Error::BadArgument("there is no endpoint of that name (any more)".into())),
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

impl Attached {
    /// Makes an entry of the directory ours: the one of our rank if possible.
    fn take_entry(&self, me: ParticipantId) -> Result<u16, Error> {
        let n = self.config.endpoints;
        let in_order = || (0..n).map(|i| ((me.index + i) % n) as u16);
        // Places never used before those whose last owner is gone: its messages may still be looked for.
        for used in [false, true] {
            for endpoint in in_order() {
                let entry = self.entry(endpoint)?;
                // Acquire: as in `owner_alive`.
                let owner = entry.owner.load(Ordering::Acquire);
                let free = if used {
                    !self.owner_alive(entry)
                } else {
                    owner == 0 && entry.generation.load(Ordering::Acquire) == 0
                };
                // AcqRel: takes over what the last owner left, and shows our name.
                if free
                    && entry
                        .owner
                        .compare_exchange(owner, me.to_bits(), Ordering::AcqRel, Ordering::Relaxed)
                        .is_ok()
                {
                    return Ok(endpoint);
                }
            }
        }
        Err(Error::Resource(format!(
            "all {n} endpoints of this world are in use; make it with more (WorldConfig::endpoints)"
        )))
    }

    fn give_up_entry(&self, entry: &Entry) {
        // Release: pairs with the Acquire of whoever takes it next.
        entry.owner.store(0, Ordering::Release);
    }

    /// Readies the receive block of an entry that we own. Returns the new generation.
    fn open_entry(&self, me: u16, owner: ParticipantId, segment: &Segment) -> Result<u64, Error> {
        let entry = self.entry(me)?;
        // Release throughout, pairing with the Acquire in `Core::peer`; the entry is ours.
        entry.open.store(0, Ordering::Release);
        self.bury(entry, me);
        let first = entry.generation.load(Ordering::Relaxed) == 0;
        if !first {
            self.wait_for_stragglers(me)?;
        }
        let generation = entry.generation.load(Ordering::Relaxed) + 1;
        entry.generation.store(generation, Ordering::Release);
        for reply in [false, true] {
            self.side(me, reply)?.reset(first, generation);
        }
        let shared = if matches!(segment, Segment::Shared(_)) { segment.len() } else { 0 };
        entry.segment_len.store(shared / LINE as u64 * LINE as u64, Ordering::Release);
        entry.open.store(owner.to_bits(), Ordering::Release);
        Ok(generation)
    }

    /// Deals with what an entry's last owner was doing elsewhere when it died.
    fn bury(&self, entry: &Entry, me: u16) {
        let OwnLine(intents) = &entry.intents;
        for word in intents {
            // Acquire: what it did before it wrote this.
            let intent = word.load(Ordering::Acquire);
            let queue = (intent & 0xffff).wrapping_sub(1);
            if intent & intent::LOCKING == intent::LOCKING
                && queue < u64::from(self.config.endpoints) * 2
                && self.config.algorithm != crate::Algorithm::Posix
                && let Ok(side) = self.side((queue / 2) as u16, queue % 2 == 1)
                && !self.gets_free(&side, me)
            {
                // It may have held the queue's lock. Relaxed: whoever sees the bit only stops.
                side.queue.control.tail.fetch_or(CLOSED, Ordering::Relaxed);
            }
            // Release: after that.
            word.store(0, Ordering::Release);
        }
    }

    /// Whether the lock in front of a queue can be had within a while: then nobody died holding it.
    pub(crate) fn gets_free(&self, side: &Side, me: u16) -> bool {
        let around = Around { attached: self, queue: &side.queue };
        let wait = Wait { policy: self.config.waiting, around: &around, budget: 0 };
        (0..20).any(|_| {
            side.claim.is_unlocked(&Native::with_id(me.into()), &wait) || {
                std::thread::sleep(std::time::Duration::from_micros(100));
                false
            }
        })
    }

    /// Takes the intent to lock one of our queues back from the dead who did not hold the lock, so that nobody waits for them.
    pub(crate) fn acquit(&self, me: u16, side: &Side) {
        for entry in (0..self.config.endpoints as u16).filter_map(|e| self.entry(e).ok()) {
            for word in &entry.intents.0 {
                // Acquire: what the dead did before.
                let intent = word.load(Ordering::Acquire);
                if intent::phase(intent, side.queue.id) == Some(intent::LOCKING)
                    && !self.owner_alive(entry)
                    && self.gets_free(side, me)
                {
                    // Relaxed: fails if a successor has done it.
                    let _ = word.compare_exchange(intent, 0, Ordering::Relaxed, Ordering::Relaxed);
                }
            }
        }
    }

    /// Waits until nobody is about to write into the receive block's old queues.
    fn wait_for_stragglers(&self, me: u16) -> Result<(), Error> {
        let start = std::time::Instant::now();
        for reply in [false, true] {
            let side = self.side(me, reply)?;
            // SeqCst: after this no claim succeeds, and those before it are visible; pairs with (C4) in `claim/locked.rs`.
            side.queue.control.tail.fetch_or(CLOSED, Ordering::SeqCst);
            while self.is_written(me, &side) {
                if start.elapsed().as_secs() >= 5 {
                    return Err(Error::Resource(
                        "a process has been stopped in the middle of a send to this endpoint's predecessor"
                            .into(),
                    ));
                }
                std::thread::sleep(std::time::Duration::from_micros(100));
            }
        }
        Ok(())
    }

    /// Whether a living sender may still write into a closed queue: it has a ticket, a packet or a block there and has not published it.
    fn is_written(&self, me: u16, side: &Side) -> bool {
        let q = &side.queue;
        // Acquire, all of them: pair with the Release of those who claim, publish and let go.
        let intended = (0..self.members())
            .any(|m| m / 2 != usize::from(me) && intent::phase(self.intent(m), q.id).is_some());
        let consumed = q.control.consumed.load(Ordering::Acquire) & !towpath_sync::PARKED;
        let mut published = vec![false; q.blocks.len()];
        let mut claimed = false;
        for ticket in consumed..consumed.saturating_add(q.len()) {
            let header = Header(q.slot(ticket).header.load(Ordering::Acquire));
            claimed |= header.state() == CLAIMED
                && !self.config.algorithm.has_laps()
                && self.alive(header.source(), header.lap());
            if header.has_block()
                && side.claim.is_undelivered(q, &Native::with_id(me.into()), header, ticket)
                && let Some(block) = published.get_mut(header.block())
            {
                *block = true;
            }
        }
        let filled = q.blocks.iter().zip(published).any(|(block, published)| {
            let owner = block.owner.load(Ordering::Acquire);
            owner != 0 && !published && self.alive(owner as u16, (owner >> 16) as u16)
        });
        intended || claimed || filled
    }

    /// Closes an endpoint that we own.
    fn close_entry(&self, me: u16) {
        let Ok(entry) = self.entry(me) else { return };
        for reply in [false, true] {
            if let Ok(side) = self.side(me, reply) {
                // AcqRel: as above.
                side.queue.control.tail.fetch_or(CLOSED, Ordering::AcqRel);
            }
        }
        // Release: pairs with the Acquire in `Core::peer` and in `owner_alive`.
        entry.open.store(0, Ordering::Release);
        entry.owner.store(0, Ordering::Release);
    }

    pub(crate) fn name_of_rank(&self, rank: u32) -> Option<Name> {
        let n = self.config.endpoints;
        (0..n).map(|i| ((rank + i) % n) as u16).find_map(|endpoint| {
            let (_, owner, generation) = self.opened(endpoint)?;
            (owner.index == rank && self.world.is_alive(owner)).then_some(Name { endpoint, generation })
        })
    }

    /// The entry, owner and generation of an endpoint, if it is open. An entry that somebody is taking over still shows its last owner's name in
    /// `open`, and is not open.
    fn opened(&self, endpoint: u16) -> Option<(&'static Entry, ParticipantId, u64)> {
        let entry = self.entry(endpoint).ok()?;
        // Acquire, all of them: pair with the Release in `open_entry`. The generation changes only while `open` is 0.
        let open = entry.open.load(Ordering::Acquire);
        let generation = entry.generation.load(Ordering::Acquire);
        let steady = open != 0
            && entry.open.load(Ordering::Acquire) == open
            && entry.owner.load(Ordering::Acquire) == open;
        steady.then(|| (entry, ParticipantId::from_bits(open), generation))
    }
}
