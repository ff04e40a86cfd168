//! What a handler gets: the message, and the right to reply to it.

use core::cell::Cell;

use crate::attach::SharedMemory;
use crate::domain::Domain;
use crate::endpoint::Core;
use crate::error::{Error, Status};
use crate::name::{Name, Tag};
use crate::packet::{Form, MAX_ARGS};
use crate::segment::Segment;

/// What a message brought beside its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// Nothing (short).
    None,
    /// Bytes, valid while the handler runs (medium).
    Medium(&'a [u8]),
    /// Bytes stored in the endpoint's segment (long).
    Long {
        /// Where they start.
        offset: u64,
        /// How many.
        len: u64,
    },
}

/// Which call sent a message that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the call of that name")]
pub enum Operation {
    RequestShort,
    RequestMedium,
    RequestLong,
    ReplyShort,
    ReplyMedium,
    ReplyLong,
}

impl Operation {
    /// Whether a request came back, and not a reply: to somebody who died before it could
    /// take it.
    pub fn is_request(self) -> bool {
        matches!(self, Operation::RequestShort | Operation::RequestMedium | Operation::RequestLong)
    }

    pub(crate) fn of(form: Form, reply: bool) -> Operation {
        match (form, reply) {
            (Form::Short | Form::Returned, false) => Operation::RequestShort,
            (Form::Medium, false) => Operation::RequestMedium,
            (Form::LongPart | Form::Long | Form::LongStored, false) => Operation::RequestLong,
            (Form::Short | Form::Returned, true) => Operation::ReplyShort,
            (Form::Medium, true) => Operation::ReplyMedium,
            (Form::LongPart | Form::Long | Form::LongStored, true) => Operation::ReplyLong,
        }
    }

    pub(crate) fn from_bits(bits: u64) -> Operation {
        match bits {
            0 => Operation::RequestShort,
            1 => Operation::RequestMedium,
            2 => Operation::RequestLong,
            3 => Operation::ReplyShort,
            4 => Operation::ReplyMedium,
            _ => Operation::ReplyLong,
        }
    }
}

/// Why and how a message came back: what the handler 0 finds in its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    /// Why.
    pub status: Status,
    /// What it was.
    pub operation: Operation,
    /// Which handler it was meant for.
    pub handler: u8,
    /// Which endpoint it was meant for.
    pub destination: Name,
}

/// Who sent a message: the full name is looked up only if somebody asks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// As it was in the header.
    Coded(u32),
    /// Known.
    Named(Name),
}

/// A message in the hands of its handler.
pub struct Token<'a, D: Domain = SharedMemory> {
    pub(crate) core: &'a Core<D>,
    pub(crate) source: Source,
    pub(crate) tag: Tag,
    pub(crate) args: [u32; MAX_ARGS],
    pub(crate) count: usize,
    pub(crate) payload: Payload<'a>,
    pub(crate) request: bool,
    pub(crate) replied: Cell<bool>,
    pub(crate) returned: Option<Returned>,
}

impl<D: Domain> core::fmt::Debug for Token<'_, D> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Token")
            .field("source", &self.source())
            .field("tag", &self.tag)
            .field("args", &self.args())
            .field("payload", &self.payload)
            .field("request", &self.request)
            .field("returned", &self.returned)
            .finish_non_exhaustive()
    }
}

impl<'a, D: Domain> Token<'a, D> {
    /// The arguments.
    #[inline(always)]
    pub fn args(&self) -> &[u32] {
        &self.args[..self.count]
    }

    /// What came with them.
    #[inline(always)]
    pub fn payload(&self) -> Payload<'a> {
        self.payload
    }

    /// The bytes of a medium message; empty for the other forms.
    #[inline(always)]
    pub fn bytes(&self) -> &'a [u8] {
        match self.payload {
            Payload::Medium(bytes) => bytes,
            _ => &[],
        }
    }

    /// The endpoint's segment, where a long message's bytes are.
    pub fn segment(&self) -> &Segment<D::Segment> {
        self.core.segment()
    }

    /// Who sent it.
    pub fn source(&self) -> Name {
        match self.source {
            Source::Named(name) => name,
            Source::Coded(code) => self.core.name_of(code),
        }
    }

    /// Whom it reached: the endpoint that runs this handler.
    pub fn destination(&self) -> Name {
        self.core.name
    }

    /// The tag that the sender addressed.
    pub fn tag(&self) -> Tag {
        self.tag
    }

    /// Whether it is a request, which may be replied to.
    pub fn is_request(&self) -> bool {
        self.request
    }

    /// Handler 0: why the message came back.
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
    #[inline(always)]
    pub fn reply(&self, handler: u8, args: &[u32]) -> Result<(), Error> {
        self.may_reply()?;
        self.core.reply_short(self.source, handler, self.tag, args)
    }

    /// Replies with a payload for the handler.
    ///
    /// # Errors
    ///
    /// As [`Token::reply`]; [`Error::BadArgument`] if the payload is larger than a block.
    pub fn reply_medium(&self, handler: u8, args: &[u32], payload: &[u8]) -> Result<(), Error> {
        self.may_reply()?;
        self.core.reply_medium(self.source, handler, self.tag, args, payload)
    }

    /// Replies with bytes to be stored at an offset of the requester's segment.
    ///
    /// # Errors
    ///
    /// As [`Token::reply`].
    pub fn reply_long(&self, handler: u8, args: &[u32], payload: &[u8], offset: u64) -> Result<(), Error> {
        self.may_reply()?;
        self.core.reply_long(self.source, handler, self.tag, args, payload, offset)
    }

    #[inline(always)]
    fn may_reply(&self) -> Result<(), Error> {
        if !self.request || self.replied.replace(true) {
            return Err(Error::BadArgument("a reply needs a request that has not been replied to".into()));
        }
        Ok(())
    }
}
