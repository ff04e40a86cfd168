//! Completions and counters: the reports of an endpoint.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// The bit of a completion that carries data (`FI_REMOTE_CQ_DATA`).
pub const WITH_DATA: u64 = 1 << 17;
/// The bit of the last completion of a multi-receive buffer (`FI_MULTI_RECV`).
pub const LAST_OF_BUFFER: u64 = 1 << 16;

/// Errors, numbered as libfabric numbers them.
pub mod error {
    /// Nothing arrived that fits.
    pub const NO_MESSAGE: i32 = libc::ENOMSG;
    /// Taken back.
    pub const CANCELLED: i32 = libc::ECANCELED;
    /// The other side is dead, or gone.
    pub const UNREACHABLE: i32 = libc::EHOSTUNREACH;
    /// The buffer was too short (`FI_ETRUNC`).
    pub const TRUNCATED: i32 = 265;
    /// No such registered memory (`FI_ENOKEY`).
    pub const NO_KEY: i32 = 266;
    /// An argument makes no sense.
    pub const INVALID: i32 = libc::EINVAL;
}

/// One report.
#[derive(Clone, Copy, Debug, Default)]
pub struct Completion {
    /// The operation's context.
    pub context: usize,
    /// Kind of the operation (`FI_SEND | FI_TAGGED`, …).
    pub flags: u64,
    /// Bytes received.
    pub len: usize,
    /// Address of the message in a multi-receive buffer.
    pub buffer: usize,
    /// The sender's data.
    pub data: u64,
    /// The message's tag.
    pub tag: u64,
    /// The sender, as in the address vector.
    pub source: u64,
    /// 0, or an error.
    pub error: i32,
    /// Bytes that found no space.
    pub excess: usize,
}

/// Reports, in order.
#[derive(Debug, Default)]
pub struct CompletionQueue {
    reports: RefCell<VecDeque<Completion>>,
}

impl CompletionQueue {
    /// Adds one.
    #[inline(always)]
    pub fn push(&self, completion: Completion) {
        self.reports.borrow_mut().push_back(completion);
    }
    /// Takes the next, if it is not an error.
    #[inline(always)]
    pub fn pop(&self) -> Option<Completion> {
        let mut reports = self.reports.borrow_mut();
        if reports.front()?.error != 0 { None } else { reports.pop_front() }
    }
    /// Takes the next, if it is an error.
    pub fn pop_error(&self) -> Option<Completion> {
        let mut reports = self.reports.borrow_mut();
        if reports.front()?.error == 0 { None } else { reports.pop_front() }
    }
    /// Returns whether the next report is an error.
    pub fn has_error(&self) -> bool {
        self.reports.borrow().front().is_some_and(|c| c.error != 0)
    }
    /// True if there are no reports.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.reports.borrow().is_empty()
    }
    /// Returns whether there is nothing to work on: no report, or only that a peek found
    /// no message.
    #[inline(always)]
    pub fn is_vain(&self) -> bool {
        self.reports.borrow().front().is_none_or(|c| c.error == error::NO_MESSAGE)
    }
    /// Number of reports.
    pub fn len(&self) -> usize {
        self.reports.borrow().len()
    }
}

/// A counter of successes and of errors.
#[derive(Debug, Default)]
pub struct CompletionCounter {
    /// Successes.
    pub value: Cell<u64>,
    /// Errors.
    pub errors: Cell<u64>,
}

impl CompletionCounter {
    /// Counts one.
    pub fn count(&self, error: i32) {
        let cell = if error == 0 { &self.value } else { &self.errors };
        cell.set(cell.get().wrapping_add(1));
    }
}

/// Class of an operation, for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// A send.
    Send = 0,
    /// A receive.
    Receive = 1,
    /// A read of remote memory, or an atomic operation that fetches.
    Read = 2,
    /// A write to remote memory, or an atomic operation that does not fetch.
    Write = 3,
    /// A peer read our memory.
    RemoteRead = 4,
    /// A peer wrote our memory.
    RemoteWrite = 5,
}

/// Ticket of an operation: the completion to report at its end.
#[derive(Clone, Copy, Debug)]
pub struct CompletionTicket {
    /// The caller's context.
    pub context: usize,
    /// Kind of the operation.
    pub flags: u64,
    /// True if a success is reported, not only counted.
    pub notify: bool,
    /// Class of operations, by which counters are chosen.
    pub class: Class,
}

/// Queues and counters of an endpoint.
#[derive(Debug, Default)]
pub struct Reports {
    /// Sends and one-sided operations.
    pub transmit: Option<Rc<CompletionQueue>>,
    /// Receives.
    pub receive: Option<Rc<CompletionQueue>>,
    /// Counter of each [`Class`].
    pub counters: [Option<Rc<CompletionCounter>>; 6],
}

impl Reports {
    /// An operation of this side has ended.
    #[inline]
    pub fn end(&self, ticket: &CompletionTicket, error: i32) {
        if let Some(counter) = &self.counters[ticket.class as usize] {
            counter.count(error);
        }
        if (ticket.notify || error != 0)
            && let Some(queue) = &self.transmit
        {
            queue.push(Completion {
                context: ticket.context,
                flags: ticket.flags,
                error,
                ..Completion::default()
            });
        }
    }

    /// A receive has ended.
    #[inline]
    pub fn received(&self, notify: bool, completion: Completion) {
        if let Some(counter) = &self.counters[Class::Receive as usize] {
            counter.count(completion.error);
        }
        self.tell(notify, completion);
    }

    /// Something that is reported where receives are, but is none, and is not counted as
    /// one.
    #[inline]
    pub fn tell(&self, notify: bool, completion: Completion) {
        if (notify || completion.error != 0)
            && let Some(queue) = &self.receive
        {
            queue.push(completion);
        }
    }

    /// Counts a peer's use of our memory.
    pub fn remote(&self, class: Class) {
        if let Some(counter) = &self.counters[class as usize] {
            counter.count(0);
        }
    }
}
