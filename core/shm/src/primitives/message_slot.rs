//! Slot of a queue of messages, and the queue as its ends use it.
#![allow(unsafe_code)]

use core::fmt;

use towpath_machine::{Native, Object, Plain};
use towpath_sync::queues::{Mpmc, QueueOf, TransferError, Venue};
use towpath_sync::{Wait, Waiting};

use super::queues::WorldVenue;

/// Maximum number of bytes of a message that lies in its slot.
///
/// With the slot's word and the numbers it is four lines.
pub(super) const SHORT: usize = 4 * 64 - 8 - 16;
/// Number of a buffer where the message lies in its slot.
pub(super) const NO_BUFFER: u32 = u32::MAX;

/// Message, or number of the buffer in which it lies.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct MessageSlot {
    pub(super) len: u64,
    pub(super) pool: u32,
    pub(super) number: u32,
    pub(super) bytes: [u8; SHORT],
}

// SAFETY: numbers and bytes without padding; no `Drop`; no other type writes this text.
unsafe impl Object for MessageSlot {
    fn describe(f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("message v1")
    }
}
// SAFETY: fixed layout, every bit pattern.
unsafe impl Plain for MessageSlot {}

/// Place of a queue of messages. Its waiters spin longer for larger buffers.
#[derive(Clone)]
pub struct MessageVenue {
    pub(super) queue: WorldVenue<MessageSlot, Mpmc>,
    pub(super) patience: u64,
}

// SAFETY: the queue is that of the inner venue.
unsafe impl Venue for MessageVenue {
    type Kind = Mpmc;
    type Late = <WorldVenue<MessageSlot, Mpmc> as Venue>::Late;

    #[inline(always)]
    fn late(&self) -> Result<(QueueOf<'_, Self>, &Self::Late), TransferError> {
        self.queue.late()
    }

    #[inline]
    fn call<R>(
        &self,
        act: impl FnOnce(QueueOf<'_, Self>, &Native, &Wait<'_>) -> Result<R, TransferError>,
    ) -> Result<R, TransferError> {
        self.queue.call(|queue, cpu, wait| act(queue, cpu, &Waiting::<Native>::scaled(wait, self.patience)))
    }
}
