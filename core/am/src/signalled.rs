//! Handlers of an endpoint that may run in a signal, and the reply that one of them has
//! left.

use core::cell::Cell;

use crate::message::Source;
use crate::name::Tag;
use crate::packet::MAX_ARGS;

/// Number of handlers of an endpoint.
pub(crate) const HANDLERS: usize = 256;

/// Part of an endpoint's state that signals use.
#[derive(Default)]
pub(crate) struct Signalled {
    /// True while handlers run in a signal.
    pub running: Cell<bool>,
    /// A bit for each handler that may.
    safe: [Cell<u64>; HANDLERS / 64],
    /// Reply that found no space, to be sent later.
    pub kept: Cell<Option<Kept>>,
}

impl Signalled {
    /// Marks a handler as safe in a signal, or not.
    pub fn mark(&self, handler: u8, safe: bool) {
        let bits = &self.safe[usize::from(handler) / 64];
        let bit = 1 << (handler % 64);
        bits.set(if safe { bits.get() | bit } else { bits.get() & !bit });
    }

    /// Returns whether a handler may run in a signal.
    pub fn is_safe(&self, handler: u8) -> bool {
        self.safe[usize::from(handler) / 64].get() >> (handler % 64) & 1 == 1
    }

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
