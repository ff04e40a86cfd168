//! Answer line: a line beside the queues of two endpoints, for messages without a block
//! that answer each other.
//!
//! **Source.** Ours: the shared line of two rings ([`crate::shared_line`]) for receivers that have
//! queues instead, with a sleep handshake and a record for survivors. A packet of a queue crosses
//! from core to core twice, its answer twice more, and each costs an exchange on a tail; question
//! and answer in one line cross once each.
//!
//! **How.** At any time one of the two ends may write the line: at first the lower one, from then
//! on the end that has taken the last message out. It publishes with one exchange of the header. An
//! end that has written, and has had no answer there, sends through its queue. So an end looks at
//! the line only while the other one may write it.
//!
//! **Start.** The memory is there for good, its contents may be those of earlier incarnations. An
//! end that wants to use the line says so in its record, with its own generation and the other's,
//! and looks at the line from then on if the other end is to begin. The lower end begins when it
//! has seen the other's record. Headers carry both generations: what an earlier incarnation left
//! there is no message.
//!
//! **Order.** A message in the line names the ticket after its sender's last packet in the same
//! queue, and is delivered when the receiver's head has come so far. A receiver that finds a packet
//! in its queue looks at the line once more before it delivers it: what was sent before is there by
//! then.
//!
//! **Sleep.** A receiver that sleeps marks its own last header ([`AnswerEnd::arm`]). The exchange
//! with which the other end publishes shows it the mark: so it wakes, and no fence is needed.
//!
//! **Progress.** Wait-free on both sides.
//!
//! **Fields.** `slot`: the end that may write, until it publishes; the other end adds [`SLEEPS`] to
//! its own last header meanwhile. `ends`: each end its own record.
//!
//! **Crashes.**
//! * A sender that dies before the exchange has sent nothing. After it, the message arrives; if it
//!   dies then, before it wakes a sleeping receiver, the message is late: sleeps are bounded.
//! * A receiver that dies leaves in its record the number of the last request that it has handled:
//!   the sender finds out whether that was its last message ([`AnswerEnd::unhandled`]). It keeps a
//!   copy, since an answer may have been begun in the line.
//! * A successor leaves the record alone until the survivor's own record names it, which says that
//!   the survivor has looked ([`AnswerEnd::attach`]).
//!
//! **Memory.** 256 bytes for two endpoints.
//!
//! **Don't use it** for peers that seldom answer: each look costs a line in the cache.

mod end;

use core::cell::Cell;

use towpath_machine::{Arena, OwnLine, Place, Processor};

pub use end::{AnswerEnd, Incarnation};

use crate::packet::{Header, MAX_ARGS, READY, Slot};
#[cfg(doc)]
use crate::path::PacketContent;
use crate::path::two_args;

/// Maximum number of arguments of a message in the line: the last cell has its order.
pub const ANSWER_ARGS: usize = 10;
/// Maximum number of arguments of one that is not short: the cell of the next two has its
/// [`PacketContent::aux`].
pub const AUX_ARGS: usize = ANSWER_ARGS - 2;
/// Number of first looks that a pause replaces after one that came too early.
const PAUSES: u32 = 32;
/// Part of a header's state: the end that wrote it sleeps until the other one answers.
pub const SLEEPS: u64 = 8;
/// Part of a header: the message is a reply.
const REPLY: u64 = 1 << 48;
/// Bits of a header that name sender and receiver.
const MARKS: u64 = 0xfffe_ffff_f000_0007;

/// Marks of the messages of one incarnation to another.
const fn marks(source: u32, receiver_generation: u64) -> u64 {
    READY | (source as u64) << 28 | (receiver_generation & 0x7fff) << 49
}

/// Line and records of two endpoints; natively their layout in shared memory.
///
/// Words that cross all the time have 128 bytes of their own: some processors fetch the neighbour
/// of a line, too.
#[repr(C, align(128))]
pub struct AnswerLine<P: Processor> {
    slot: Slot<P>,
    unused: OwnLine<()>,
    ends: [OwnLine<EndRecord<P>>; 2],
}

/// Record of one end.
#[repr(C)]
struct EndRecord<P: Processor> {
    /// Generation of this end and, below, of the other, 32 bits each; 0: never used.
    attached: P::Word,
    /// Number of the last request of the other end's that it has handled.
    handled: P::Word,
}

impl<P: Processor> AnswerLine<P> {
    /// Makes an unused one.
    ///
    /// ```
    /// use towpath_channel::answer_line::{AnswerEnd, AnswerLine};
    /// use towpath_machine::{Heap, Native};
    ///
    /// let line = AnswerLine::<Native>::new(&Heap);
    /// assert!(!AnswerEnd::new(Some(&line), (0, 1), (1, 1)).is_ours()); // it is not in use yet
    /// ```
    pub fn new(arena: &impl Arena<P>) -> Self {
        let word = |place| arena.word(place, 0);
        let record = || OwnLine(EndRecord { attached: word(Place::NewLine), handled: word(Place::SameLine) });
        AnswerLine { slot: Slot::new(arena), unused: OwnLine(()), ends: [record(), record()] }
    }

    /// Returns the header's word, which changes when a message comes.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, line) = (Native::current(), AnswerLine::new(&Heap));
    /// # let [first, second] = answer_ends(&line);
    /// let before = cpu.load(line.header(), Ordering::Relaxed);
    /// first.send(&cpu, &short(&[42]), false, 0);
    /// assert_ne!(cpu.load(line.header(), Ordering::Relaxed), before);
    /// # }
    /// ```
    #[inline(always)]
    pub fn header(&self) -> &P::Word {
        &self.slot.header
    }
}

/// State of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndState {
    /// Line that is not in use.
    Unused,
    /// This end is to begin, and has not seen yet that the other one looks.
    Attached,
    /// This end may write.
    Ours,
    /// This end could write, but it does not look at the line any more.
    Resting,
    /// The other end may write.
    Theirs,
}

/// Copy of a request in the line, for its sender.
#[derive(Debug, Default)]
struct Sent {
    /// Header; 0: there is none to be kept.
    header: Cell<u64>,
    tag: Cell<u64>,
    after: Cell<u64>,
    args: [Cell<u64>; ANSWER_ARGS / 2],
}

/// Request that was not handled.
#[derive(Clone, Copy, Debug)]
pub struct Unhandled {
    /// Header, as it was sent.
    pub header: Header,
    /// Tag.
    pub tag: u64,
    /// Arguments.
    pub args: [u32; ANSWER_ARGS],
    /// Ticket that it was sent with ([`AnswerEnd::send`]).
    pub after: u64,
}

/// Returns the [`PacketContent::aux`] of a message that is not short, out of the
/// arguments that [`AnswerEnd::take`] has read.
///
/// ```
/// use towpath_channel::answer_line::{AUX_ARGS, aux_of};
///
/// let mut args = [0; 16]; // as `take` has read them
/// args[AUX_ARGS] = 7;
/// assert_eq!(aux_of(&args), 7);
/// ```
pub fn aux_of(args: &[u32; MAX_ARGS]) -> u64 {
    two_args(args, AUX_ARGS)
}

/// Message at hand: its header, and whether it is a reply.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// Header, as of a packet without a block.
    pub header: Header,
    /// True for a reply.
    pub is_reply: bool,
    /// Ticket that the receiver's head must have reached.
    pub after: u64,
}

impl Answer {
    /// Message in the line, by its header as read.
    #[inline(always)]
    fn of<P: Processor>(cpu: &P, slot: &Slot<P>, header: u64) -> Answer {
        Answer {
            header: Header(header & !SLEEPS),
            is_reply: header & REPLY != 0,
            after: cpu.read(&slot.args[ANSWER_ARGS / 2]),
        }
    }
}

#[cfg(test)]
mod tests;
