//! Outgoing message: all that a call of the API says of it.

use crate::message::Direction;
use crate::name::Tag;
use crate::packet::Form;

/// Behaviour of a send that finds no space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnFull {
    /// Waits for space, polling meanwhile.
    Wait,
    /// Gives up without an effect.
    GiveUp,
}

/// Payload of an outgoing message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body<'a> {
    /// Arguments only.
    Short,
    /// Bytes for the handler.
    Medium(&'a [u8]),
    /// Bytes for the receiver's segment.
    Long { payload: &'a [u8], offset: u64 },
}

/// Outgoing message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing<'a> {
    pub direction: Direction,
    pub handler: u8,
    /// Tag that the sender addresses: of a request, known when its destination is.
    pub tag: Tag,
    pub args: &'a [u32],
    pub body: Body<'a>,
    pub on_full: OnFull,
}

impl<'a> Outgoing<'a> {
    /// Request whose tag its destination's entry of the translation table gives.
    #[inline(always)]
    pub fn request(handler: u8, args: &'a [u32], body: Body<'a>, on_full: OnFull) -> Self {
        Outgoing { direction: Direction::Request, handler, tag: Tag::ALL, args, body, on_full }
    }

    /// Reply to a request with that tag; waits for space.
    #[inline(always)]
    pub fn reply(handler: u8, tag: Tag, args: &'a [u32], body: Body<'a>) -> Self {
        Outgoing { direction: Direction::Reply, handler, tag, args, body, on_full: OnFull::Wait }
    }

    /// Returns the form that an undeliverable message is reported with.
    #[inline]
    pub fn form(&self) -> Form {
        match self.body {
            Body::Short => Form::Short,
            Body::Medium(_) => Form::Medium,
            Body::Long { .. } => Form::Long,
        }
    }
}
