//! What an endpoint knows of another: how to reach it, and what is under way.

use std::collections::VecDeque;
use std::rc::Rc;

use towpath_shm::Watch;

use crate::device::connect::address::Address;
use crate::device::connect::fd_request::Asking;
use crate::device::link::{Link, Sent};
use crate::device::pair::{Conversation, PairIn};
use crate::device::port::MemberId;
use crate::device::protocol::frame::{Content, Frame, Kind, WORDS};
use crate::device::resource::buffers::Buffer;
use crate::device::resource::completion::Ticket;

/// No address in the vector.
pub const NOT_LISTED: u64 = u64::MAX;

/// Bytes to be sent piece by piece.
#[derive(Debug)]
pub enum Source {
    /// The caller's.
    Buffer(Buffer),
    /// A copy.
    Copy(Vec<u8>),
}

impl Source {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Source::Buffer(buffer) => buffer.len(),
            Source::Copy(bytes) => bytes.len(),
        }
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// A part of them, which must exist.
    pub fn part(&self, at: usize, len: usize) -> Content<'_> {
        match self {
            Source::Buffer(buffer) => Content::Part(buffer, at, len),
            Source::Copy(bytes) => Content::Bytes(&bytes[at..at + len]),
        }
    }
}

/// What pieces are sent as.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// The rest of an eager message.
    More,
    /// What the receiver asked for.
    Bytes {
        /// Its number.
        to: u64,
    },
    /// A write to remote memory.
    Write {
        /// Where.
        address: u64,
        /// By which key.
        key: u64,
        /// Our number of it.
        number: u64,
        /// Flags and data.
        data: Option<u64>,
    },
}

/// A transfer in pieces.
#[derive(Debug)]
pub struct Stream {
    /// As what.
    pub what: What,
    /// The bytes.
    pub source: Source,
    /// How far it is.
    pub at: usize,
    /// Where it ends.
    pub end: usize,
    /// What to report then.
    pub then: Option<Ticket>,
}

impl Stream {
    /// Sends what there is space for. `Some(sent)`: it is stuck ([`Sent::Full`]), over
    /// ([`Sent::Gone`]), or done ([`Sent::Yes`]). `most`: pieces.
    pub fn push(&mut self, link: &mut Link, most: usize) -> Option<Sent> {
        for _ in 0..most {
            let len = link.piece().min(self.end - self.at);
            let last = self.at + len == self.end;
            let (kind, tag, words) = match self.what {
                What::More => (Kind::More, 0, [0; WORDS]),
                What::Bytes { to } => (Kind::Bytes, 0, [to, self.at as u64, 0, 0]),
                What::Write { address, key, number, data } => (
                    Kind::Write,
                    u64::from(last && data.is_some()) | u64::from(last) << 1,
                    [address.wrapping_add(self.at as u64), key, number, data.unwrap_or(0)],
                ),
            };
            let content = self.source.part(self.at, len);
            match link.send(&Frame { kind, tag, words, content }) {
                Sent::Yes => self.at += len,
                other => return Some(other),
            }
            if last {
                return Some(Sent::Yes);
            }
        }
        None
    }
}

/// What waits to go out, in order.
#[derive(Debug)]
pub enum Queued {
    /// A frame.
    Frame {
        /// Its kind.
        kind: Kind,
        /// Its tag.
        tag: u64,
        /// Its words.
        words: [u64; WORDS],
        /// Its payload.
        bytes: Vec<u8>,
    },
    /// A transfer whose pieces keep their place among the messages.
    Stream(Stream),
}

/// Where the rest of an eager message goes.
#[derive(Clone, Copy, Debug)]
pub enum Assembly {
    /// To a receive: its number.
    Matched(u64),
    /// To a message that waits: tagged or not, its place.
    Waiting(bool, u32),
    /// To a message that a peek has claimed: the context of the claim.
    Claimed(usize),
    /// Nowhere: nobody wants it.
    Dropped(usize),
}

/// The way to a peer.
pub enum Way {
    /// Not tried.
    Untried,
    /// Open.
    Open(Box<Link>),
    /// It was asked for its memory at its door.
    Asking(Box<Asking>),
    /// There is none, and why was said.
    Closed,
}

/// Another endpoint (or this one).
pub struct Peer {
    /// Its address.
    pub address: Address,
    /// Its number in the address vector, or [`NOT_LISTED`].
    pub listed: u64,
    /// The way to it.
    pub way: Way,
    /// What waits for space there.
    pub queue: VecDeque<Queued>,
    /// As what it sends to us.
    pub member: Option<MemberId>,
    /// What the slots of both directions share. None with ourselves, and with the dead.
    pub conversation: Option<Rc<Conversation>>,
    /// Slots of its, accepted, not yet to be followed.
    pub offered: Option<PairIn>,
    /// The message that it sends in pieces.
    pub assembly: Option<Assembly>,
    /// Eager bytes sent to it, of messages that are counted.
    pub eager_sent: u64,
    /// Not seen from here under its pid: its pid means nothing.
    pub is_foreign: bool,
    /// Foreign, and nobody answers at its door any more.
    pub has_ended: bool,
    /// Not foreign, and watched for its death.
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
            way: Way::Untried,
            queue: VecDeque::new(),
            member: None,
            conversation: (address != *own).then(|| Conversation::new(own.to_words() < address.to_words())),
            offered: None,
            assembly: None,
            eager_sent: 0,
            is_foreign,
            has_ended: false,
            watch: None,
            gone: false,
            dead: false,
            // Under its pid it would be somebody else's.
            no_direct: is_foreign,
        }
    }

    /// Whether it is dead, as far as it is seen from here under its pid: asks the system.
    pub fn is_dead_now(&mut self) -> bool {
        self.watch().is_some_and(|watch| watch.is_dead())
    }

    /// What tells, if anything does.
    pub fn watch(&mut self) -> Option<&Watch> {
        let process = self.address.process();
        if self.is_foreign { None } else { Some(self.watch.get_or_insert_with(|| process.watch())) }
    }

    /// Whether everything that was to be sent is out.
    #[inline(always)]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }
}
