//! One end of an answer line.

use core::cell::Cell;
use core::ops::Deref;

use towpath_machine::{Ordering, Prefetch, Processor};

use super::{
    ANSWER_ARGS, AUX_ARGS, Answer, AnswerLine, EndState, MARKS, PAUSES, REPLY, SLEEPS, Sent, Unhandled, marks,
};
use crate::packet::{Form, Header, MAX_ARGS, source_code};
use crate::path::{PacketContent, read_args, two_args};

/// One end of an answer line: its private state.
///
/// `first` and `second` in the examples are both ends of a line that is in use (`doc/ends.rs`).
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
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, line) = (Native::current(), AnswerLine::new(&Heap));
    /// # let [first, second] = answer_ends(&line);
    /// let without: AnswerEnd<&AnswerLine<Native>> = AnswerEnd::new(None, (0, 1), (2, 1));
    /// assert!(without.is_settled() && !without.attach(&cpu)); // never in use
    /// # }
    /// ```
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
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, line) = (Native::current(), AnswerLine::new(&Heap));
    /// # let [first, second] = answer_ends(&line);
    /// assert!(first.is_ours() && !second.is_ours());
    /// first.send(&cpu, &short(&[42]), false, 0);
    /// assert!(!first.is_ours());
    /// # }
    /// ```
    #[inline(always)]
    pub fn is_ours(&self) -> bool {
        self.state.get() == EndState::Ours
    }

    /// Returns whether the other end may send in the line: then this end looks at it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, line) = (Native::current(), AnswerLine::new(&Heap));
    /// # let [first, second] = answer_ends(&line);
    /// assert!(second.is_theirs()); // it looks at the line
    /// # }
    /// ```
    #[inline(always)]
    pub fn is_theirs(&self) -> bool {
        self.state.get() == EndState::Theirs
    }

    /// Stops using the line until it is attached again, if it is this end's. Returns
    /// whether it is.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, line) = (Native::current(), AnswerLine::new(&Heap));
    /// # let [first, second] = answer_ends(&line);
    /// assert!(first.rest() && !second.rest());
    /// assert!(!first.takes(&short(&[]))); // its messages go through the queue
    /// assert!(first.attach(&cpu) && first.takes(&short(&[])));
    /// # }
    /// ```
    pub fn rest(&self) -> bool {
        let is_ours = self.is_ours();
        if is_ours {
            self.state.set(EndState::Resting);
        }
        is_ours
    }

    /// Returns whether the line is in use, or there is none.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, line) = (Native::current(), AnswerLine::new(&Heap));
    /// # let [first, second] = answer_ends(&line);
    /// assert!(first.is_settled());
    /// first.rest();
    /// assert!(!first.is_settled()); // `attach` may change that
    /// # }
    /// ```
    pub fn is_settled(&self) -> bool {
        self.line.is_none() || matches!(self.state.get(), EndState::Ours | EndState::Theirs)
    }

    /// Begins to use the line if that is possible by now. Returns whether it is in use:
    /// while it is the other end's, this end looks at it. Called when the two have answered each
    /// other.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, line) = (Native::current(), AnswerLine::new(&Heap));
    /// # let [first, second] = answer_ends(&line);
    /// let line = AnswerLine::new(&Heap);
    /// let [a, b] = [((0, 1), (1, 1)), ((1, 1), (0, 1))];
    /// let [a, b] = [a, b].map(|(me, other)| AnswerEnd::new(Some(&line), me, other));
    /// assert!(!a.attach(&cpu)); // the other end has yet to come
    /// assert!(b.attach(&cpu) && a.attach(&cpu));
    /// # }
    /// ```
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
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, line) = (Native::current(), AnswerLine::new(&Heap));
    /// # let [first, second] = answer_ends(&line);
    /// assert!(first.takes(&short(&[0; ANSWER_ARGS])));
    /// assert!(!first.takes(&short(&[0; ANSWER_ARGS + 1])));
    /// assert!(!second.takes(&short(&[]))); // it is not its turn
    /// # }
    /// ```
    #[inline(always)]
    pub fn takes(&self, out: &PacketContent<'_>) -> bool {
        let most = if out.form == Form::Short { ANSWER_ARGS } else { AUX_ARGS };
        self.is_ours() && out.args.len() <= most
    }

    /// Sends a message that the line [takes](Self::takes). `after`: the ticket after its
    /// last packet in the queue that the message would take. Returns whether the receiver sleeps
    /// and must be woken.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, line) = (Native::current(), AnswerLine::new(&Heap));
    /// # let [first, second] = answer_ends(&line);
    /// first.send(&cpu, &short(&[41]), false, 0);
    /// let mut args = [0; MAX_ARGS];
    /// second.look(&cpu).expect("the request");
    /// second.take(&cpu, &mut args);
    /// second.send(&cpu, &short(&[args[0] + 1]), true, 0);
    /// assert!(first.look(&cpu).expect("the answer").is_reply);
    /// # }
    /// ```
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
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, line) = (Native::current(), AnswerLine::new(&Heap));
    /// # let [first, second] = answer_ends(&line);
    /// first.send(&cpu, &short(&[41]), false, 0);
    /// second.prefetch(&cpu); // while it ends its other work
    /// assert!(second.look(&cpu).is_some());
    /// # }
    /// ```
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
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, line) = (Native::current(), AnswerLine::new(&Heap));
    /// # let [first, second] = answer_ends(&line);
    /// assert!(second.look(&cpu).is_none());
    /// first.send(&cpu, &short(&[41]), false, 0);
    /// assert_eq!(second.look(&cpu).map(|message| message.header.handler()), Some(7));
    /// # }
    /// ```
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
    pub(super) fn look_or_pause<P: Processor>(&self, cpu: &P) -> Option<Answer>
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
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, line) = (Native::current(), AnswerLine::new(&Heap));
    /// # let [first, second] = answer_ends(&line);
    /// assert!(second.await_answer(&cpu, 1_000, false).is_none()); // after a microsecond
    /// first.send(&cpu, &short(&[41]), false, 0);
    /// assert!(second.await_answer(&cpu, 1_000, false).is_some());
    /// # }
    /// ```
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
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, line) = (Native::current(), AnswerLine::new(&Heap));
    /// # let [first, second] = answer_ends(&line);
    /// first.send(&cpu, &short(&[41, 42]), false, 0);
    /// let mut args = [0; MAX_ARGS];
    /// second.look(&cpu).expect("the request");
    /// assert_eq!(second.take(&cpu, &mut args), 5); // its tag
    /// assert!(args[..2] == [41, 42] && second.is_ours());
    /// # }
    /// ```
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
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, line) = (Native::current(), AnswerLine::new(&Heap));
    /// # let [first, second] = answer_ends(&line);
    /// first.send(&cpu, &short(&[41]), false, 0);
    /// second.look(&cpu).expect("the request");
    /// assert_eq!(second.number(), 1); // asked for before it is taken
    /// # }
    /// ```
    #[inline(always)]
    pub fn number(&self) -> u64 {
        self.taken.get() + 1
    }

    /// Notes that a request was handled.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, line) = (Native::current(), AnswerLine::new(&Heap));
    /// # let [first, second] = answer_ends(&line);
    /// first.send(&cpu, &short(&[41]), false, 0);
    /// second.look(&cpu).expect("the request");
    /// let number = second.number();
    /// second.take(&cpu, &mut [0; MAX_ARGS]);
    /// second.done(&cpu, number); // and dies
    /// assert!(first.unhandled(&cpu).is_none()); // it does not come back
    /// # }
    /// ```
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
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, line) = (Native::current(), AnswerLine::new(&Heap));
    /// # let [first, second] = answer_ends(&line);
    /// assert!(second.arm(&cpu)); // it may sleep
    /// assert!(first.send(&cpu, &short(&[41]), false, 0)); // wake it
    /// assert!(!second.arm(&cpu)); // a message has come
    /// # }
    /// ```
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
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, line) = (Native::current(), AnswerLine::new(&Heap));
    /// # let [first, second] = answer_ends(&line);
    /// second.arm(&cpu);
    /// second.disarm(&cpu);
    /// assert!(!first.send(&cpu, &short(&[41]), false, 0)); // need not wake it
    /// # }
    /// ```
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
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, line) = (Native::current(), AnswerLine::new(&Heap));
    /// # let [first, second] = answer_ends(&line);
    /// assert!(first.awaited().is_none() && second.awaited().is_some()); // the one that waits
    /// # }
    /// ```
    pub fn awaited<P: Processor>(&self) -> Option<&P::Word>
    where
        L: Deref<Target = AnswerLine<P>>,
    {
        Some(self.line.as_deref().filter(|_| self.is_theirs())?.header())
    }

    /// Returns this end's last message, once, if it was a request that the other end has
    /// not handled. The other end is gone.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, line) = (Native::current(), AnswerLine::new(&Heap));
    /// # let [first, second] = answer_ends(&line);
    /// first.send(&cpu, &short(&[41]), false, 0); // and the other end dies
    /// let request = first.unhandled(&cpu).expect("it was not handled");
    /// assert_eq!((request.args[0], request.tag), (41, 5));
    /// assert!(first.unhandled(&cpu).is_none()); // once
    /// # }
    /// ```
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
