//! Descriptors for event loops, and futures for executors, of shared objects.
//!
//! An operation is tried once ([`AsyncOperation::attempt`]). If it would sleep, it says on which
//! word; a process that changes the word wakes its futexes, as for any sleeper. Then a
//! [`ReadyDescriptor`] becomes readable, or a future ([`until`]) wakes its task. No process but the
//! waiting one needs to know of either, and the other end may be a process that blocks.
//!
//! | | waits for the futex by | costs |
//! | --- | --- | --- |
//! | [`ReadyDescriptor`] | the kernel, through `io_uring` (Linux 6.7; not everywhere allowed) | one system call for each sleep |
//! | [`ReadyDescriptor`], otherwise; futures, after a watch of 50 µs | a thread of the process, which sleeps on up to 127 words at a time (`futex_waitv`, Linux 5.16) | two system calls for each sleep, and a switch to that thread |
//!
//! **Deaths.** An operation is tried again 4 ms after the first time without a change, and then
//! after twice as long each time, up to 32 ms: so a waiter learns of a dead peer, and of a change
//! whose author died before it woke the waiters.
//!
//! **Don't use it** where a thread may block: the blocking calls cost less.
#![deny(unsafe_code)]

mod descriptor;
mod operation;
mod owned;
mod pollable;
mod repeating;
mod ring;
mod sleepers;
mod turn;
mod watching;

pub use descriptor::{Means, ReadyDescriptor};
pub use operation::{
    Acquisition, AsyncEvent, AsyncOperation, AsyncReader, AsyncReceiver, AsyncSemaphore, AsyncSender,
    BarrierEpisode, EventSetting, NextMessage, ValueReception, ValueSending,
};
pub use owned::{OwnedReception, OwnedSending};
pub use pollable::{Pollable, PollableError};
pub use repeating::{Repeating, until};
