//! Parts of a message that its sender and its handler see.

use crate::error::Status;
use crate::name::Name;
use crate::packet::Form;

/// Direction of a message: it decides on its queue, and on the queues that are polled
/// while it waits for space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// A request, into the receiver's request queue.
    Request,
    /// A reply, into the requester's reply queue.
    Reply,
}

impl Direction {
    /// Both, replies first: the order in which queues are polled.
    pub const REPLIES_FIRST: [Direction; 2] = [Direction::Reply, Direction::Request];

    /// Returns the direction of a reply, or of a request.
    ///
    /// ```
    /// use towpath::Direction;
    ///
    /// assert_eq!(Direction::of(true), Direction::Reply);
    /// ```
    #[inline(always)]
    pub const fn of(is_reply: bool) -> Direction {
        if is_reply { Direction::Reply } else { Direction::Request }
    }

    /// Returns whether it is a reply.
    ///
    /// ```
    /// use towpath::Direction;
    ///
    /// assert!(Direction::REPLIES_FIRST[0].is_reply());
    /// ```
    #[inline(always)]
    pub const fn is_reply(self) -> bool {
        matches!(self, Direction::Reply)
    }
}

/// Payload of a message, beside its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// None (short).
    None,
    /// Bytes, valid while the handler runs (medium).
    Medium(&'a [u8]),
    /// Bytes stored in the endpoint's segment (long).
    Long {
        /// Offset of the first byte in the segment.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
}

/// Call that sent a message which came back.
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
    /// Returns whether a request came back, and not a reply to a requester that died
    /// before it could take it.
    ///
    /// ```
    /// use towpath::Operation;
    ///
    /// assert!(Operation::RequestLong.is_request());
    /// assert!(!Operation::ReplyShort.is_request());
    /// ```
    #[inline]
    pub fn is_request(self) -> bool {
        matches!(self, Operation::RequestShort | Operation::RequestMedium | Operation::RequestLong)
    }

    #[inline]
    pub(crate) fn of(form: Form, direction: Direction) -> Operation {
        match (form, direction.is_reply()) {
            (Form::Short | Form::Returned, false) => Operation::RequestShort,
            (Form::Medium, false) => Operation::RequestMedium,
            (Form::LongPart | Form::Long | Form::LongStored | Form::LongOffered, false) => {
                Operation::RequestLong
            }
            (Form::Short | Form::Returned, true) => Operation::ReplyShort,
            (Form::Medium, true) => Operation::ReplyMedium,
            (Form::LongPart | Form::Long | Form::LongStored | Form::LongOffered, true) => {
                Operation::ReplyLong
            }
        }
    }

    #[inline]
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

/// Reason why a message came back, and the call that sent it: handler 0 finds it in its
/// token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    /// Reason.
    pub status: Status,
    /// Call that sent it.
    pub operation: Operation,
    /// Handler that it was meant for.
    pub handler: u8,
    /// Endpoint that it was meant for.
    pub destination: Name,
}

/// Sender of a message: the full name is looked up only if the handler asks for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// Code of its incarnation, as in the header.
    Coded(u32),
    /// Name.
    Named(Name),
}
