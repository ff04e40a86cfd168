//! State of handlers that run in a signal, and the reply that one of them has left.

use core::cell::Cell;

use crate::message::Source;
use crate::name::Tag;
use crate::packet::MAX_ARGS;

/// Part of an endpoint's state that signals use.
#[derive(Default)]
pub(crate) struct Signalled {
    /// True while handlers run in a signal.
    pub running: Cell<bool>,
    /// Reply that found no space, to be sent later.
    pub kept: Cell<Option<Kept>>,
}

impl Signalled {
    /// Returns whether a reply is kept.
    pub fn keeps_one(&self) -> bool {
        let kept = self.kept.take();
        self.kept.set(kept);
        kept.is_some()
    }
}

/// Reply of a handler in a signal that found no space.
#[derive(Clone, Copy)]
pub(crate) struct Kept {
    pub source: Source,
    pub handler: u8,
    pub tag: Tag,
    pub args: [u32; MAX_ARGS],
    pub count: usize,
}
