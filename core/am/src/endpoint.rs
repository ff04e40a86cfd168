//! Endpoints: a name, a tag, a translation table, handlers, and a receive block of their
//! own.

use core::cell::{Cell, RefCell};
use core::sync::atomic::Ordering;
use std::rc::{Rc, Weak};

use towpath_machine::Processor;
use towpath_shm::World;

use crate::audit::Audit;
use crate::directory::Directory;
use crate::domain::{DomainMemory, Side};
use crate::error::Error;
use crate::handlers::{HandlerScope, Handlers, SetHandler};
use crate::layout::WorldConfig;
use crate::message::Direction;
use crate::name::{Name, Tag};
use crate::outstanding::Outstanding;
use crate::path::FIRST_QUOTA;
use crate::queue::Receiver;
use crate::segment::{PrivateSegment, Segment, SegmentKind};
use crate::shared_memory::SharedMemory;
use crate::state::{
    Answers, Back, Company, Core, Dispatch, Domain, IncomingStreams, Offers, Own, Tables, Token, Upkeep,
};

/// Active Message endpoint. It belongs to one thread: for several, see
/// [`ParallelEndpoint`](crate::ParallelEndpoint).
///
/// Its receive block lies in its domain's memory: by default, the world's. Dropping it closes it:
/// messages that peers had sent and it had not handled come back to them.
pub struct Endpoint<D: Domain = SharedMemory> {
    pub(crate) core: Rc<Core<D>>,
}

impl<D: Domain> core::fmt::Debug for Endpoint<D> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Endpoint").field("name", &self.core.name).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Makes an endpoint of the calling process, without a segment, in a bundle of its
    /// own.
    ///
    /// # Errors
    ///
    /// [`Error::NotInitialised`] if the process has not entered the world; [`Error::Resource`] if
    /// all endpoints are taken.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let endpoint = towpath::Endpoint::new(&world)?;
    /// assert!(endpoint.segment().is_empty());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn new(world: &World) -> Result<Endpoint, Error> {
        Endpoint::in_domain(SharedMemory::new(world)?, SegmentKind::None)
    }

    /// Makes an endpoint with a segment of `len` bytes in private memory.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::new`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let endpoint = towpath::Endpoint::with_private_segment(&world, 4096)?;
    /// assert_eq!(endpoint.segment().len(), 4096);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn with_private_segment(world: &World, len: usize) -> Result<Endpoint, Error> {
        Endpoint::in_domain(SharedMemory::new(world)?, SegmentKind::Private(len))
    }

    /// Makes an endpoint with its part of the world's memory as segment, into which
    /// senders store directly.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::new`]; [`Error::Resource`] if the world was made without room for segments.
    ///
    /// ```
    /// use towpath::{Endpoint, WorldConfig};
    ///
    /// let config = WorldConfig { segment_bytes: 4096, ..WorldConfig::new(1) };
    /// let world = towpath::create(None, &config)?;
    /// world.enter(None)?;
    /// let endpoint = Endpoint::with_shared_segment(&world)?;
    /// assert_eq!(endpoint.segment().len(), 4096);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn with_shared_segment(world: &World) -> Result<Endpoint, Error> {
        Endpoint::in_domain(SharedMemory::new(world)?, SegmentKind::Shared)
    }

    /// Makes an endpoint with its part of the world's memory as segment, if the world was
    /// made with room for segments, and else without one.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::new`].
    ///
    /// ```
    /// let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// world.enter(None)?;
    /// let endpoint = towpath::Endpoint::with_any_shared_segment(&world)?;
    /// assert!(endpoint.segment().is_empty());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn with_any_shared_segment(world: &World) -> Result<Endpoint, Error> {
        let domain = SharedMemory::new(world)?;
        let has_room = domain.config().segment_bytes != 0;
        Endpoint::in_domain(domain, if has_room { SegmentKind::Shared } else { SegmentKind::None })
    }

    /// Returns its world.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// assert_eq!(endpoint.world().rank(), 0);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn world(&self) -> &World {
        self.core.domain.world()
    }

    /// Sets handler `index`; handler 0 gets this endpoint's messages that came back. A
    /// handler may reply, and may not send requests or poll.
    ///
    /// It is `Send + Sync`, for an endpoint may be given to several threads
    /// ([`Endpoint::into_parallel`]); [`Endpoint::set_local_handler`] takes others. Where a handler
    /// sets or removes one, this counts from its end on.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// endpoint.set_handler(1, |request| {
    ///     // Only the first reply counts; the requester may be dead.
    ///     let _ = request.reply(2, &[request.args()[0] + 1]);
    /// });
    /// endpoint.set_handler(2, |reply| assert_eq!(reply.args(), [42]));
    /// endpoint.request(0, 1, &[41])?;
    /// endpoint.barrier()?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn set_handler(&self, index: u8, handler: impl Fn(&Token<'_>) + Send + Sync + 'static) {
        self.set_scoped_handler(index, HandlerScope::AllThreads, handler);
    }

    /// Sets handler `index` as one that stays in this thread: it may hold an `Rc` or a
    /// `Cell`, as a handler of [`Endpoint::set_handler`] may not.
    ///
    /// As long as it is set, the endpoint stays in its thread, too: [`Endpoint::into_parallel`] and
    /// [`ParallelBundle::add`](crate::ParallelBundle::add) are refused.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// use std::cell::RefCell;
    /// use std::rc::Rc;
    ///
    /// let numbers = Rc::new(RefCell::new(Vec::<u32>::new()));
    /// let seen = numbers.clone();
    /// endpoint.set_local_handler(1, move |message| seen.borrow_mut().extend(message.args()));
    /// endpoint.request(0, 1, &[4, 2])?;
    /// endpoint.poll_until(|| numbers.borrow().len() == 2);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn set_local_handler(&self, index: u8, handler: impl Fn(&Token<'_>) + 'static) {
        self.set_boxed_handler(index, Box::new(handler));
    }

    pub(crate) fn set_scoped_handler(
        &self,
        index: u8,
        scope: HandlerScope,
        handler: impl Fn(&Token<'_>) + Send + Sync + 'static,
    ) {
        self.core.tables.handlers.set(index, Some(SetHandler { call: Rc::new(handler), scope }));
    }
}

impl<D: Domain> Endpoint<D> {
    /// Makes an endpoint of the calling process in any domain, in a bundle of its own.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::new`] and [`Endpoint::with_shared_segment`].
    ///
    /// ```
    /// use towpath::{Endpoint, SegmentKind, SharedMemory};
    ///
    /// /// Another endpoint in the same memory needs a domain of its own.
    /// fn endpoint(domain: SharedMemory) -> Result<Endpoint, towpath::Error> {
    ///     Endpoint::in_domain(domain, SegmentKind::Private(4096))
    /// }
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn in_domain(mut domain: D, segment: SegmentKind) -> Result<Endpoint<D>, Error> {
        let participant = domain
            .me()
            .ok_or_else(|| Error::NotInitialised(
                    "this process has not entered the world; call World::enter first (after a fork, in the child too)"
                        .into(),
                ))?;
        let me = domain.take_entry(participant)?;
        domain.act_for(me);
        let entry = domain.entry(me)?;
        let segment =
            Endpoint::segment_of(&domain, me, segment).inspect_err(|_| domain.give_up_entry(&entry))?;
        let (generation, owed) = domain.open_entry(me, participant, &segment)?;
        Endpoint::of_entry(domain, Name { endpoint: me, generation }, segment, owed)
    }

    /// Makes the endpoint of an entry that is open. `owed`: its predecessor's requests.
    pub(crate) fn of_entry(
        domain: D,
        name: Name,
        segment: Segment<D::Segment>,
        owed: Vec<Outstanding>,
    ) -> Result<Endpoint<D>, Error> {
        let me = name.endpoint;
        let entry = domain.entry(me)?;
        let own = |direction| -> Result<Own<D>, Error> {
            let side = domain.side(me, direction)?;
            // Relaxed: the endpoint's own queue, just made.
            let head = domain.cpu().load(&side.queue().control.head, Ordering::Relaxed);
            Ok(Own {
                receiver: RefCell::new(Receiver { head, published: head, ..Receiver::default() }),
                side,
                quota: Cell::new(FIRST_QUOTA),
            })
        };
        let core = Rc::new(Core {
            entry,
            name,
            tag: Cell::new(Tag::ALL),
            segment,
            request: own(Direction::Request)?,
            reply: own(Direction::Reply)?,
            tables: Tables {
                handlers: Handlers::default(),
                translations: RefCell::new(Vec::new()),
                peers: RefCell::new((0..domain.config().endpoints).map(|_| None).collect()),
            },
            dispatch: Dispatch::default(),
            answers: Answers::new(&domain),
            streams: IncomingStreams::new(&domain),
            offers: Offers::new(name),
            back: Back { owed: RefCell::new(owed), ..Back::default() },
            upkeep: Upkeep { deaths_seen: Cell::new(domain.deaths()), ..Upkeep::default() },
            company: Company { bundle: RefCell::new(Weak::new()), poll_replies: RefCell::new(None) },
            domain,
        });
        Ok(Endpoint { core })
    }

    fn segment_of(domain: &D, me: u16, kind: SegmentKind) -> Result<Segment<D::Segment>, Error> {
        match kind {
            SegmentKind::None => Ok(Segment::None),
            SegmentKind::Private(len) => Ok(Segment::Private(PrivateSegment::new(len))),
            SegmentKind::Shared if domain.config().segment_bytes == 0 => Err(Error::Resource(
                "this world has no room for segments; make it larger (towpath run --size, WorldConfig::segment_bytes)".into(),
            )),
            SegmentKind::Shared => Ok(Segment::Shared(domain.segment(me)?)),
        }
    }

    /// Returns its name.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// let bits = endpoint.name().to_bits(); // to be passed on
    /// assert_eq!(towpath::Name::from_bits(bits), endpoint.name());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn name(&self) -> Name {
        self.core.name
    }

    /// Returns whether one of its handlers is running.
    ///
    /// A handler that reaches the endpoint by other ways than its token may reply, and no more.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// assert!(!endpoint.is_in_handler());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline]
    pub fn is_in_handler(&self) -> bool {
        self.core.dispatch.depth.get() > 0
    }

    /// Returns its world's configuration.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// println!("medium messages carry up to {} bytes", endpoint.config().block_size);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn config(&self) -> &WorldConfig {
        self.core.domain.config()
    }

    /// Returns the domain that it lives in.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// assert_eq!(endpoint.domain().world().size(), 1);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn domain(&self) -> &D {
        &self.core.domain
    }

    /// Returns its tag: [`Tag::ALL`] at first.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// assert_eq!(endpoint.tag(), towpath::Tag::ALL);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn tag(&self) -> Tag {
        self.core.tag.get()
    }

    /// Changes its tag. Messages that come with another one go back to their senders.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// use towpath::{Status, Tag};
    ///
    /// endpoint.set_tag(Tag(7));
    /// endpoint.set_handler(0, |back| {
    ///     assert_eq!(back.returned().map(|why| why.status), Some(Status::BadTag));
    /// });
    /// endpoint.map(0, endpoint.name(), Tag(8))?;
    /// endpoint.request(0, 1, &[])?; // shows tag 8, and comes back
    /// while endpoint.poll() > 0 {}
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn set_tag(&self, tag: Tag) {
        self.core.tag.set(tag);
    }

    /// Pauses before the first look at an answer line after a message of this endpoint,
    /// while looks at once come too early: for callers that take longer from a message to its
    /// answer than Rust's, as programs in C do through a library.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// endpoint.pause_after_messages();
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn pause_after_messages(&self) {
        self.core.answers.pauses.set(true);
    }

    /// Returns its segment.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::with_private_segment(&world, 4096)?;
    /// let mut bytes = [1; 4];
    /// endpoint.segment().read(0, &mut bytes);
    /// assert_eq!(bytes, [0; 4]);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn segment(&self) -> &Segment<D::Segment> {
        &self.core.segment
    }

    /// Sets handler `index`, in any domain: see [`Endpoint::set_local_handler`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// let handler: Box<dyn Fn(&towpath::Token<'_>)> = Box::new(|_| ());
    /// endpoint.set_boxed_handler(1, handler);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn set_boxed_handler(&self, index: u8, handler: Box<D::Handler>) {
        let (call, scope) = (handler.into(), HandlerScope::OneThread);
        self.core.tables.handlers.set(index, Some(SetHandler { call, scope }));
    }

    /// Removes handler `index`: messages for it go back to their senders.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// endpoint.set_handler(1, |_| ());
    /// endpoint.clear_handler(1);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn clear_handler(&self, index: u8) {
        self.core.tables.handlers.set(index, None);
    }

    /// Delivers messages that have arrived: replies before requests, a bounded number.
    /// Returns their number. From a handler: delivers none.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// assert_eq!(endpoint.poll(), 0, "no message has come");
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline]
    pub fn poll(&self) -> usize {
        self.core.poll()
    }

    /// Returns the packets and blocks of the receive block that are in use.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// assert_eq!(endpoint.audit().request_packets, 0);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn audit(&self) -> Audit {
        let count =
            |own: &Own<D>| own.receiver.borrow().in_use(own.side.claim(), own.side.queue(), self.core.cpu());
        let ((request_packets, request_blocks), (reply_packets, reply_blocks)) =
            (count(&self.core.request), count(&self.core.reply));
        Audit {
            request_packets: request_packets
                + self.core.count_in_lines(Direction::Request)
                + self.core.count_in_streams(),
            request_blocks,
            reply_packets: reply_packets + self.core.count_in_lines(Direction::Reply),
            reply_blocks,
        }
    }

    /// Returns the number of peers with which it uses an answer line
    /// ([`WorldConfig::answer_lines`]).
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// assert_eq!(endpoint.answer_lines(), 0, "it has answered no peer");
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn answer_lines(&self) -> usize {
        self.core.answers.count.get()
    }

    /// Returns the number of streams that it receives from ([`WorldConfig::streams`]).
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// assert_eq!(endpoint.streams(), 0, "no peer has sent many requests");
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn streams(&self) -> usize {
        self.core.streams.count.get()
    }

    /// Returns the number of long transfers that receivers have copied out of this
    /// process's memory, in one copy.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// assert_eq!(endpoint.offers_taken(), 0, "nothing was sent");
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn offers_taken(&self) -> u64 {
        self.core.offers.taken.get()
    }

    /// Looks after the receive block now, instead of some time while no message arrives:
    /// notices deaths, frees packets that the dead had claimed, returns messages that were on the
    /// way to them.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// endpoint.recover(); // before an audit, for example
    /// assert!(endpoint.audit().is_clean());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn recover(&self) {
        self.core.domain.check_deaths();
        self.core.look_after(true);
    }
}

impl<D: Domain> Drop for Endpoint<D> {
    fn drop(&mut self) {
        if let Some(bundle) = self.core.company.bundle.borrow().upgrade() {
            bundle.remove(&self.core);
        }
        if !self.core.domain.has_ended() {
            self.core.domain.close_entry(self.core.name.endpoint);
        }
    }
}
