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

use core::cell::Cell;
use core::ops::Deref;

use towpath_machine::{Arena, Ordering, OwnLine, Place, Prefetch, Processor};

use crate::packet::{Form, Header, MAX_ARGS, READY, Slot, source_code};
use crate::path::{PacketContent, read_args, two_args};

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
    pub fn new(arena: &impl Arena<P>) -> Self {
        let word = |place| arena.word(place, 0);
        let record = || OwnLine(EndRecord { attached: word(Place::NewLine), handled: word(Place::SameLine) });
        AnswerLine { slot: Slot::new(arena), unused: OwnLine(()), ends: [record(), record()] }
    }

    /// Returns the header's word, which changes when a message comes.
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

/// One end of an answer line: its private state.
pub struct AnswerEnd<L> {
    line: Option<L>,
    /// 0 for the end that begins.
    side: usize,
    state: Cell<EndState>,
    /// Marks of its own messages, and of the other end's.
    mine: u64,
    theirs: u64,
    /// Its record, and the other end's, as they are in use.
    record: u64,
    other_record: u64,
    /// Number of messages sent and taken.
    sent: Cell<u64>,
    taken: Cell<u64>,
    /// Last message, if it was a request.
    last: Sent,
    /// Number of messages for which it still pauses before its first look.
    pauses: Cell<u32>,
}

/// Endpoint at one end: its index and generation.
pub type Incarnation = (u16, u64);

impl<L> AnswerEnd<L> {
    /// Makes an end that does not use the line yet; without a line: never.
    pub fn new(line: Option<L>, me: Incarnation, other: Incarnation) -> Self {
        let half = |generation: u64| generation & 0xffff_ffff;
        AnswerEnd {
            line: line.filter(|_| me.0 != other.0),
            side: usize::from(me.0 > other.0),
            state: Cell::new(EndState::Unused),
            mine: marks(source_code(me.0, me.1), other.1),
            theirs: marks(source_code(other.0, other.1), me.1),
            record: half(me.1) << 32 | half(other.1),
            other_record: half(other.1) << 32 | half(me.1),
            sent: Cell::new(0),
            taken: Cell::new(0),
            last: Sent::default(),
            pauses: Cell::new(0),
        }
    }

    /// Returns whether this end may send in the line.
    #[inline(always)]
    pub fn is_ours(&self) -> bool {
        self.state.get() == EndState::Ours
    }

    /// Returns whether the other end may send in the line: then this end looks at it.
    #[inline(always)]
    pub fn is_theirs(&self) -> bool {
        self.state.get() == EndState::Theirs
    }

    /// Stops using the line until it is attached again, if it is this end's. Returns
    /// whether it is.
    pub fn rest(&self) -> bool {
        let is_ours = self.is_ours();
        if is_ours {
            self.state.set(EndState::Resting);
        }
        is_ours
    }

    /// Returns whether the line is in use, or there is none.
    pub fn is_settled(&self) -> bool {
        self.line.is_none() || matches!(self.state.get(), EndState::Ours | EndState::Theirs)
    }

    /// Begins to use the line if that is possible by now. Returns whether it is in use:
    /// while it is the other end's, this end looks at it. Called when the two have answered each
    /// other.
    #[cold]
    pub fn attach<P: Processor>(&self, cpu: &P) -> bool
    where
        L: Deref<Target = AnswerLine<P>>,
    {
        let Some(line) = self.line.as_deref() else { return false };
        let (own, other) = (&line.ends[self.side], &line.ends[1 - self.side]);
        if self.state.get() == EndState::Unused {
            // Relaxed: of a predecessor only the record counts. Its other writes are ordered by the
            // other end's record (A5), or came before the endpoint was taken over.
            let last = cpu.load(&own.attached, Ordering::Relaxed);
            // (A5) Acquire: the survivor has read the predecessor's record; pairs with the Release
            // (A6) of the other end.
            let now = cpu.load(&other.attached, Ordering::Acquire);
            let half = 0xffff_ffff;
            // A predecessor's record is for the survivor at the other end, until it has looked.
            let is_read = last == 0
                || last >> 32 == self.record >> 32
                || last & half != self.record & half
                || now == self.other_record;
            if !is_read {
                return false;
            }
            // Relaxed: published by (A6).
            cpu.store(&own.handled, 0, Ordering::Relaxed);
            // (A6) Release: the record is new, and this end is done with what the line held
            // before; pairs with the Acquire (A5) of the other end.
            cpu.store(&own.attached, self.record, Ordering::Release);
            self.state.set(if self.side == 0 { EndState::Attached } else { EndState::Theirs });
        }
        // (A5) Acquire: the other end is done with what the line held before; pairs with its
        // Release (A6).
        if self.state.get() == EndState::Attached
            && cpu.load(&other.attached, Ordering::Acquire) == self.other_record
        {
            self.state.set(EndState::Ours);
        }
        if self.state.get() == EndState::Resting {
            self.state.set(EndState::Ours);
        }
        self.is_ours() || self.is_theirs()
    }

    /// Returns whether this end may send a message in the line: it is this end's, and the
    /// arguments fit.
    #[inline(always)]
    pub fn takes(&self, out: &PacketContent<'_>) -> bool {
        let most = if out.form == Form::Short { ANSWER_ARGS } else { AUX_ARGS };
        self.is_ours() && out.args.len() <= most
    }

    /// Sends a message that the line [takes](Self::takes). `after`: the ticket after its
    /// last packet in the queue that the message would take. Returns whether the receiver sleeps
    /// and must be woken.
    #[inline(always)]
    pub fn send<P: Processor>(&self, cpu: &P, out: &PacketContent<'_>, is_reply: bool, after: u64) -> bool
    where
        L: Deref<Target = AnswerLine<P>>,
    {
        debug_assert!(self.takes(out));
        let Some(line) = self.line.as_deref() else { return false };
        let slot = &line.slot;
        let fields = Header::new(out.form, out.handler, out.args.len(), 0).0;
        let header = fields | self.mine | if is_reply { REPLY } else { 0 };
        cpu.write(&slot.tag, out.tag);
        let mut n = 0;
        while n < ANSWER_ARGS / 2 && 2 * n < out.args.len() {
            let both = two_args(out.args, 2 * n);
            cpu.write(&slot.args[n], both);
            if !is_reply {
                self.last.args[n].set(both);
            }
            n += 1;
        }
        if out.form != Form::Short {
            cpu.write(&slot.args[AUX_ARGS / 2], out.aux);
        }
        cpu.write(&slot.args[ANSWER_ARGS / 2], after);
        // (A1) Release: the line's contents come before, and so do this end's reads of the message
        // that was there; pairs with the Acquire (A2) in `look`.
        let before = cpu.swap(&slot.header, header, Ordering::Release);
        self.state.set(EndState::Theirs);
        self.sent.set(self.sent.get() + 1);
        self.last.header.set(if is_reply { 0 } else { header });
        if !is_reply {
            self.last.tag.set(out.tag);
            self.last.after.set(after);
        }
        before & SLEEPS != 0
    }

    /// Fetches the line for writing: this end will look, take and send.
    #[inline(always)]
    pub fn prefetch<P: Prefetch>(&self, cpu: &P)
    where
        L: Deref<Target = AnswerLine<P>>,
    {
        if let Some(line) = self.line.as_deref() {
            cpu.prefetch_exclusive(line.header());
        }
    }

    /// Returns the message in the line, if the other end has sent one.
    #[inline(always)]
    pub fn look<P: Processor>(&self, cpu: &P) -> Option<Answer>
    where
        L: Deref<Target = AnswerLine<P>>,
    {
        if !self.is_theirs() {
            return None;
        }
        let slot = &self.line.as_deref()?.slot;
        // (A2) Acquire: pairs with the Release (A1) in `send`.
        let header = cpu.load(&slot.header, Ordering::Acquire);
        (header & MARKS == self.theirs).then(|| Answer::of(cpu, slot, header))
    }

    /// First look after a message of this end, or the shortest pause instead: while looks
    /// at once come too early. Now and then it tries one.
    ///
    /// A look that comes too early takes the line from the other end, which is about to write it.
    #[inline(always)]
    fn look_or_pause<P: Processor>(&self, cpu: &P) -> Option<Answer>
    where
        L: Deref<Target = AnswerLine<P>>,
    {
        let left = self.pauses.get();
        if left > 0 {
            self.pauses.set(left - 1);
            cpu.delay(1);
            return None;
        }
        let found = self.look(cpu);
        self.pauses.set(if found.is_none() { PAUSES } else { 0 });
        found
    }

    /// Spins for at most about `ns` nanoseconds until the other end has sent a message.
    ///
    /// `pauses`: the look is the first one after a message of this end, and may come too early.
    #[inline(always)]
    pub fn await_answer<P: Processor>(&self, cpu: &P, ns: u64, pauses: bool) -> Option<Answer>
    where
        L: Deref<Target = AnswerLine<P>>,
    {
        if pauses && let Some(found) = self.look_or_pause(cpu) {
            return Some(found);
        }
        if ns > 0 {
            let found = self.look(cpu);
            if found.is_some() {
                return found;
            }
            // The shortest pause. Without it the two ends fall, in one start of ten, into a rhythm
            // in which each message waits for the line twice.
            cpu.delay(1);
        }
        let slot = &self.line.as_deref()?.slot;
        // (A2) Acquire: pairs with the Release (A1) in `send`.
        let header =
            cpu.spin_until(&slot.header, Ordering::Acquire, ns, |h| h & MARKS == self.theirs).ok()?;
        Some(Answer::of(cpu, slot, header))
    }

    /// Takes the message that a look has found: reads its arguments and returns its tag.
    /// From now on this end may send in the line.
    #[inline(always)]
    pub fn take<P: Processor>(&self, cpu: &P, args: &mut [u32; MAX_ARGS]) -> u64
    where
        L: Deref<Target = AnswerLine<P>>,
    {
        let mut tag = 0;
        if let Some(line) = self.line.as_deref() {
            tag = cpu.read(&line.slot.tag);
            read_args(cpu, &line.slot.args, &mut args[..ANSWER_ARGS]);
        }
        self.state.set(EndState::Ours);
        self.taken.set(self.taken.get() + 1);
        tag
    }

    /// Returns the number of the message that a look has found, for [`AnswerEnd::done`].
    #[inline(always)]
    pub fn number(&self) -> u64 {
        self.taken.get() + 1
    }

    /// Notes that a request was handled.
    #[inline(always)]
    pub fn done<P: Processor>(&self, cpu: &P, number: u64)
    where
        L: Deref<Target = AnswerLine<P>>,
    {
        if let Some(line) = self.line.as_deref() {
            // (A3) Release: the handler's effects come before; pairs with the Acquire (A4) in
            // `unhandled`.
            cpu.store(&line.ends[self.side].handled, number, Ordering::Release);
        }
    }

    /// Says that this end, which has looked, will sleep. `false`: a message has come.
    pub fn arm<P: Processor>(&self, cpu: &P) -> bool
    where
        L: Deref<Target = AnswerLine<P>>,
    {
        let Some(line) = self.line.as_deref().filter(|_| self.is_theirs()) else { return true };
        let word = line.header();
        // Relaxed: a guess, confirmed by the exchange, which orders nothing: it and the sender's
        // exchange (A1) are on one word, so one of the two sees the other.
        let header = cpu.load(word, Ordering::Relaxed);
        header & MARKS != self.theirs
            && cpu
                .compare_exchange(word, header, header | SLEEPS, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Takes that back.
    pub fn disarm<P: Processor>(&self, cpu: &P)
    where
        L: Deref<Target = AnswerLine<P>>,
    {
        if let Some(line) = self.line.as_deref().filter(|_| self.is_theirs()) {
            let word = line.header();
            // Relaxed: at worst the other end's wake is needless.
            let header = cpu.load(word, Ordering::Relaxed);
            // A mark on the other end's message is the other end's. Relaxed: it orders nothing.
            if header & MARKS != self.theirs && header & SLEEPS != 0 {
                let (taken_back, relaxed) = (header & !SLEEPS, Ordering::Relaxed);
                let _ = cpu.compare_exchange(word, header, taken_back, relaxed, relaxed);
            }
        }
    }

    /// Returns the header's word while the other end may write it.
    pub fn awaited<P: Processor>(&self) -> Option<&P::Word>
    where
        L: Deref<Target = AnswerLine<P>>,
    {
        Some(self.line.as_deref().filter(|_| self.is_theirs())?.header())
    }

    /// Returns this end's last message, once, if it was a request that the other end has
    /// not handled. The other end is gone.
    pub fn unhandled<P: Processor>(&self, cpu: &P) -> Option<Unhandled>
    where
        L: Deref<Target = AnswerLine<P>>,
    {
        let line = self.line.as_deref().filter(|_| self.is_theirs())?;
        let header = Header(self.last.header.take());
        if header.0 == 0 {
            return None;
        }
        let record = &line.ends[1 - self.side];
        // `attached` Relaxed: an end that has sent has seen the other's record, by (A5) or with a
        // message (A2). (A4) Acquire: pairs with the Release (A3) in `done`.
        let handled = cpu.load(&record.attached, Ordering::Relaxed) == self.other_record
            && cpu.load(&record.handled, Ordering::Acquire) >= self.sent.get();
        // An answer says that it was handled, though its sender died before it noted it.
        let mut args = [0; ANSWER_ARGS];
        for (pair, both) in args.chunks_exact_mut(2).zip(&self.last.args) {
            pair[0] = both.get() as u32;
            pair[1] = (both.get() >> 32) as u32;
        }
        let (tag, after) = (self.last.tag.get(), self.last.after.get());
        (!handled && self.look(cpu).is_none()).then_some(Unhandled { header, tag, args, after })
    }
}

#[cfg(test)]
mod tests;
