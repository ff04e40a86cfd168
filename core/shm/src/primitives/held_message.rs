//! A message that a handle keeps, without a borrow of its receiver: for programs in other
//! languages.
#![allow(unsafe_code)]

use core::ops::Deref;
use core::time::Duration;
use std::sync::Arc;

use towpath_derive::OpaqueDebug;
use towpath_sync::Deadline;
use towpath_sync::queues::TransferError;

use super::message_receiver::{MessageGuard, MessageReceiver};

/// A message and the receiver that has it. Dropped, the message is done with.
#[derive(OpaqueDebug)]
pub struct HeldMessage {
    // Dropped in this order.
    guard: MessageGuard<'static>,
    _receiver: Arc<MessageReceiver>,
}

// SAFETY: a lease is the process's; the thread does not matter to it.
unsafe impl Send for HeldMessage {}

impl HeldMessage {
    /// Receives the oldest message; gives up after that time.
    ///
    /// # Errors
    ///
    /// As [`MessageReceiver::receive_timeout`].
    pub fn receive(receiver: &Arc<MessageReceiver>, time: Duration) -> Result<HeldMessage, TransferError> {
        receiver.receive_timeout(time).map(|guard| HeldMessage::of(receiver, guard))
    }

    /// Receives the oldest message before a deadline.
    ///
    /// # Errors
    ///
    /// As [`MessageReceiver::receive_timeout`].
    pub fn receive_before(
        receiver: &Arc<MessageReceiver>,
        deadline: Deadline,
    ) -> Result<HeldMessage, TransferError> {
        receiver.receive_before(deadline).map(|guard| HeldMessage::of(receiver, guard))
    }

    #[inline]
    fn of(receiver: &Arc<MessageReceiver>, guard: MessageGuard<'_>) -> HeldMessage {
        // SAFETY: the receiver, which the guard borrows, lives as long as this, and this drops the
        // guard first.
        let guard = unsafe { core::mem::transmute::<MessageGuard<'_>, MessageGuard<'static>>(guard) };
        HeldMessage { guard, _receiver: Arc::clone(receiver) }
    }

    /// Gives the message back: it comes in again, behind those that wait.
    pub fn give_back(self) {
        self.guard.give_back();
    }
}

impl Deref for HeldMessage {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.guard
    }
}
