//! Token: a message in the hands of its handler, and the right to reply to it.

use crate::error::Error;
use crate::message::{Direction, Payload, Returned, Source};
use crate::name::{Name, Tag};
use crate::outgoing::{Body, Outgoing};
use crate::segment::Segment;
use crate::state::{Domain, Token};

impl<D: Domain> core::fmt::Debug for Token<'_, D> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Token")
            .field("source", &self.source())
            .field("tag", &self.tag)
            .field("args", &self.args())
            .field("payload", &self.payload)
            .field("direction", &self.direction)
            .field("returned", &self.returned)
            .finish_non_exhaustive()
    }
}

impl<'a, D: Domain> Token<'a, D> {
    /// Returns the arguments.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// endpoint.set_handler(1, |message| {
    ///     assert_eq!(message.args(), [5]);
    /// });
    /// endpoint.request(0, 1, &[5])?;
    /// endpoint.barrier()?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline(always)]
    pub fn args(&self) -> &[u32] {
        &self.args[..self.count]
    }

    /// Returns the payload.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::with_private_segment(&world, 4096)?;
    /// # endpoint.map_world()?;
    /// endpoint.set_handler(1, |message| {
    ///     assert_eq!(message.payload(), towpath::Payload::Long { offset: 8, len: 4 });
    /// });
    /// endpoint.request_long(0, 1, &[], b"data", 8)?;
    /// endpoint.barrier()?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline(always)]
    pub fn payload(&self) -> Payload<'a> {
        self.payload
    }

    /// Returns the bytes of a medium message; empty for the other forms.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// endpoint.set_handler(1, |message| {
    ///     assert_eq!(message.bytes(), b"a line");
    /// });
    /// endpoint.request_medium(0, 1, &[], b"a line")?;
    /// endpoint.barrier()?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline(always)]
    pub fn bytes(&self) -> &'a [u8] {
        match self.payload {
            Payload::Medium(bytes) => bytes,
            _ => &[],
        }
    }

    /// Returns the endpoint's segment, where a long message's bytes are.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::with_private_segment(&world, 4096)?;
    /// # endpoint.map_world()?;
    /// endpoint.set_handler(1, |message| {
    ///     let mut bytes = [0; 4];
    ///     message.segment().read(8, &mut bytes);
    ///     assert_eq!(bytes, *b"data");
    /// });
    /// endpoint.request_long(0, 1, &[], b"data", 8)?;
    /// endpoint.barrier()?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline]
    pub fn segment(&self) -> &Segment<D::Segment> {
        &self.core.segment
    }

    /// Returns the endpoint that sent it.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// endpoint.set_handler(1, |message| {
    ///     println!("from {:?}", message.source());
    /// });
    /// endpoint.request(0, 1, &[5])?;
    /// endpoint.barrier()?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline]
    pub fn source(&self) -> Name {
        match self.source {
            Source::Named(name) => name,
            Source::Coded(code) => self.core.name_of(code),
        }
    }

    /// Returns the endpoint that it reached, which runs this handler.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// endpoint.set_handler(1, |message| {
    ///     assert_eq!(message.destination(), message.source(), "sent to itself");
    /// });
    /// endpoint.request(0, 1, &[5])?;
    /// endpoint.barrier()?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline]
    pub fn destination(&self) -> Name {
        self.core.name
    }

    /// Returns the tag that the sender addressed.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// endpoint.set_handler(1, |message| {
    ///     assert_eq!(message.tag(), towpath::Tag::ALL);
    /// });
    /// endpoint.request(0, 1, &[5])?;
    /// endpoint.barrier()?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline]
    pub fn tag(&self) -> Tag {
        self.tag
    }

    /// Returns whether it is a request, which may be replied to.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// endpoint.set_handler(1, |message| {
    ///     assert!(message.is_request());
    /// });
    /// endpoint.request(0, 1, &[5])?;
    /// endpoint.barrier()?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline]
    pub fn is_request(&self) -> bool {
        self.direction == Direction::Request
    }

    /// Returns the reason why the message came back, in handler 0.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// use towpath::Status;
    ///
    /// endpoint.set_handler(0, |back| {
    ///     let why = back.returned().expect("handler 0 gets only these");
    ///     assert_eq!((why.status, why.handler), (Status::BadHandler, 9));
    /// });
    /// endpoint.request(0, 9, &[])?; // there is no handler 9
    /// endpoint.barrier()?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline]
    pub fn returned(&self) -> Option<Returned> {
        self.returned
    }

    /// Replies with arguments only. While the reply waits for space, only replies are
    /// polled.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`] if the message is no request, was replied to already, or the
    /// arguments are too many.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// endpoint.set_handler(1, |message| {
    ///     message.reply(2, &[message.args()[0] * 2]).expect("the first reply");
    ///     assert!(message.reply(2, &[]).is_err(), "one reply to a request");
    /// });
    /// endpoint.request(0, 1, &[5])?;
    /// endpoint.barrier()?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline(always)]
    pub fn reply(&self, handler: u8, args: &[u32]) -> Result<(), Error> {
        self.may_reply()?;
        match self.from {
            Some(peer) if self.core.send_in_line(peer, Direction::Reply, handler, self.tag, args) => Ok(()),
            _ => self.core.reply_short(self.source, handler, self.tag, args),
        }
    }

    /// Replies with a payload for the handler.
    ///
    /// # Errors
    ///
    /// As [`Token::reply`]; [`Error::BadArgument`] if the payload is larger than a block.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::new(&world)?;
    /// # endpoint.map_world()?;
    /// endpoint.set_handler(1, |message| {
    ///     message.reply_medium(2, &[], b"an answer").expect("the first reply");
    /// });
    /// endpoint.request(0, 1, &[5])?;
    /// endpoint.barrier()?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn reply_medium(&self, handler: u8, args: &[u32], payload: &[u8]) -> Result<(), Error> {
        self.may_reply()?;
        let out = Outgoing::reply(handler, self.tag, args, Body::Medium(payload));
        self.core.reply_to(self.source, out)
    }

    /// Replies with bytes to be stored at an offset of the requester's segment.
    ///
    /// # Errors
    ///
    /// As [`Token::reply`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// # let endpoint = towpath::Endpoint::with_private_segment(&world, 4096)?;
    /// # endpoint.map_world()?;
    /// endpoint.set_handler(1, |message| {
    ///     message.reply_long(2, &[], b"data", 16).expect("the first reply");
    /// });
    /// endpoint.request(0, 1, &[5])?;
    /// endpoint.barrier()?;
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn reply_long(&self, handler: u8, args: &[u32], payload: &[u8], offset: u64) -> Result<(), Error> {
        self.may_reply()?;
        let out = Outgoing::reply(handler, self.tag, args, Body::Long { payload, offset });
        self.core.reply_to(self.source, out)
    }

    #[inline(always)]
    fn may_reply(&self) -> Result<(), Error> {
        if !self.is_request() || self.replied.replace(true) { Err(must_not_reply()) } else { Ok(()) }
    }
}

#[cold]
fn must_not_reply() -> Error {
    Error::BadArgument("a reply needs a request that has not been replied to".into())
}
