//! State of a peer: the connection to it, and the operations under way.

use std::collections::VecDeque;
use std::rc::Rc;

use towpath_shm::Watch;

use crate::device::connect::address::Address;
use crate::device::connect::fd_request::FdRequest;
use crate::device::link::Link;
use crate::device::members::MemberId;
use crate::device::pair::{PairIn, PairLine};
use crate::device::protocol::stream::Queued;

/// No address in the vector.
pub const NOT_LISTED: u64 = u64::MAX;

/// Destination of the rest of an eager message.
#[derive(Clone, Copy, Debug)]
pub enum Assembly {
    /// Receive that it goes to: its number.
    Matched(u64),
    /// Message that waits: tagged or not, its place.
    Waiting(bool, u32),
    /// Message that a peek has claimed: the context of the claim.
    Claimed(usize),
    /// Nowhere: the message is not wanted. Number of bytes that are still to come.
    Dropped(usize),
}

/// State of the connection to a peer.
///
/// ```text
/// Untried   ── first send ──>            Open, Asking or Closed
/// Asking    ── the peer's answer ──>     Open, or Closed if there is no way
/// Open      ── the peer's death ──>      Closed
/// ```
pub enum ConnectionState {
    /// No send was tried.
    Untried,
    /// Open.
    Open(Box<Link>),
    /// Its descriptor listener was asked for its segment.
    Asking(Box<FdRequest>),
    /// No connection, and the reason was reported.
    Closed,
}

/// Another endpoint (or this one).
pub struct Peer {
    /// Its address.
    pub address: Address,
    /// Its number in the address vector, or [`NOT_LISTED`].
    pub listed: u64,
    /// The connection to it.
    pub connection: ConnectionState,
    /// Entries that wait for space there.
    pub queue: VecDeque<Queued>,
    /// Its place among the senders of this endpoint.
    pub member: Option<MemberId>,
    /// The line that the rings of both directions share. None with ourselves, and with
    /// the dead.
    pub shared_line: Option<Rc<PairLine>>,
    /// Slots of its, accepted, not yet to be followed.
    pub offered: Option<PairIn>,
    /// The message that it sends in pieces.
    pub assembly: Option<Assembly>,
    /// Eager bytes sent to it, of messages that are counted.
    pub eager_sent: u64,
    /// True if it is not seen from here under its pid: the pid means nothing.
    pub is_foreign: bool,
    /// Foreign, and its descriptor listener does not answer any more.
    pub has_ended: bool,
    /// The watch for its death, if it is not foreign.
    pub watch: Option<Watch>,
    /// Dead, or gone.
    pub gone: bool,
    /// Dead, and everything that it had sent was taken.
    pub dead: bool,
    /// Its memory can't be read directly.
    pub no_direct: bool,
}

impl Peer {
    /// Nothing known but its address. `own`: ours.
    pub fn new(address: Address, own: &Address) -> Peer {
        let is_foreign = !address.is_seen_by(own);
        Peer {
            address,
            listed: NOT_LISTED,
            connection: ConnectionState::Untried,
            queue: VecDeque::new(),
            member: None,
            shared_line: (address != *own).then(|| PairLine::new(own.to_words() < address.to_words())),
            offered: None,
            assembly: None,
            eager_sent: 0,
            is_foreign,
            has_ended: false,
            watch: None,
            gone: false,
            dead: false,
            // Under its pid it would be another process's.
            no_direct: is_foreign,
        }
    }

    /// Returns whether the peer is dead, as far as it is seen from here under its pid:
    /// asks the system.
    pub fn is_dead_now(&mut self) -> bool {
        self.watch().is_some_and(|watch| watch.is_dead())
    }

    /// The watch for its death, if it is seen from here under its pid.
    pub fn watch(&mut self) -> Option<&Watch> {
        let process = self.address.process();
        if self.is_foreign { None } else { Some(self.watch.get_or_insert_with(|| process.watch())) }
    }

    /// Returns whether nothing is queued for the peer.
    #[inline(always)]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }
}
