//! Stream: words of one sender to one receiver beside the receiver's queue, for short
//! messages that follow each other.
//!
//! **Source.** Ours. A packet of a queue costs an exchange on the tail and a line that crosses from
//! core to core. A sender that has a stream needs no tail, and its messages lie packed: one of two
//! arguments takes 16 bytes, four of them a line. MPI libraries have the like (the *fast boxes* of
//! Open MPI's shared-memory transports).
//!
//! **How.** A record is its header, the ticket that it comes after if that has changed, and its
//! arguments, two in a word. Where the next one will begin stands a 0, written before the header is
//! published. The sender prefetches the line two lines ahead, as far as it has seen room. The
//! receiver reads a header there, or waits. It counts the words that it has handled
//! in `handled`, and those that may be written again in `space`, a quarter of the words at a time.
//!
//! **Start.** An endpoint has some streams beside its request queue; a sender takes a free one by
//! an exchange of its `owner`, writes its first record, and says in the queue's `streams` word that
//! it is there. The stream is the sender's until the receiver has seen that the sender is gone, or
//! the sender that the receiver is.
//!
//! **Order.** A record names the ticket after its sender's last packet in the queue, and is
//! delivered when the receiver's head has come so far. A receiver that finds a packet in its queue
//! delivers the records of its sender first: what was sent before is there by then.
//!
//! **Sleep.** A receiver that sleeps marks the word in which the next header will be
//! ([`StreamReceiver::arm`]), and the `streams` word ([`arm_news`]). The exchange with which the
//! sender publishes shows it the mark: so it wakes, and no fence is needed.
//!
//! **Progress.** Wait-free on both sides, while there is space.
//!
//! **Fields.** `owner`: its sender, or the survivor that finds it gone. `tag`, `words`: the sender;
//! the receiver adds [`SLEEPS`] to the word in which the next header will be. `handled`, `space`:
//! the receiver; the sender sets them to 0 before the stream is open.
//!
//! **Crashes.**
//! * A sender that dies before the exchange of a header has sent nothing. After it, the record
//!   arrives; if it dies then, before it wakes a sleeping receiver, the message is late: sleeps are
//!   bounded.
//! * A sender that dies while it opens a stream leaves it without [`OPEN`]: the receiver takes it
//!   back. With `OPEN`, the receiver delivers its records, and takes it back when it is empty; if
//!   the sender had not said yet that it is there, at the receiver's next look at deaths.
//! * A receiver that dies leaves the number of words that it has handled: the sender reads its own
//!   records from there on ([`StreamSender::unhandled`]), and gives the stream back. A successor
//!   leaves a living sender's stream alone.
//!
//! **Memory.** 8 KiB and four lines.
//!
//! **Don't use it** for messages to many receivers: each one's streams are few.

mod news;
mod receiver;

use core::cell::{Cell, OnceCell};
use core::ops::Deref;

use towpath_machine::{Arena, Ordering, OwnLine, Place, Prefetch, Processor};
use towpath_sync::{PARKED, WaitForSpace};

use news::{NEWS_SLEEP, REFUSED};

pub use news::{arm_news, disarm_news, has_news, refuse, take_news};
pub use receiver::StreamReceiver;

use crate::packet::{Header, LINE_ARGS, MAX_ARGS, READY};
use crate::path::{PacketContent, two_args};

/// Number of words of a stream.
pub const WORDS: usize = 1024;
/// Part of a header's place: the receiver sleeps until it is written.
pub const SLEEPS: u64 = 8;
/// Value of an owner word: the stream can be received from.
pub const OPEN: u64 = 1 << 63;
/// Value of an owner word: the stream is taken.
const TAKEN: u64 = 1 << 62;
/// Part of a header: the ticket that the record comes after follows.
const GATE: u64 = 1 << 48;
/// Bits of a header that a receiver reads: state, handler, number of arguments, source,
/// [`GATE`].
const FIELDS: u64 = GATE | 0xffff_f000_0000 | 0x1f << 15 | 0xff << 7 | 7;
/// Number of times in a lap that the receiver publishes the space.
const PUBLICATIONS: u64 = 4;

/// Number of words of a line.
const LINE: u64 = 8;
/// Number of words by which the sender prefetches lines. The exchange of a header waits
/// until all words before it are written, those of a new line, too.
const AHEAD: u64 = 2 * LINE;

/// Maximum number of arguments of a record.
pub const STREAM_ARGS: usize = LINE_ARGS;
/// Maximum number of streams of a queue.
pub const MAX_STREAMS: u32 = 32;

/// A stream in memory; natively its layout. `N` is a power of two.
#[repr(C, align(128))]
pub struct Stream<P: Processor, const N: usize = WORDS> {
    /// Sender: 0 if it is free, or else the two ends ([`Ends`]).
    owner: OwnLine<P::Word>,
    /// Sender: the tag of all its messages.
    tag: P::Cell,
    /// Receiver: number of words that it has handled.
    handled: OwnLine<P::Word>,
    /// Receiver: number of words that may be written again, said now and then.
    space: OwnLine<P::Word>,
    words: [P::Word; N],
}

impl<P: Processor, const N: usize> Stream<P, N> {
    /// Makes a free one.
    ///
    /// ```
    /// use towpath_channel::stream::{Ends, Stream};
    /// use towpath_machine::{Heap, Native};
    ///
    /// let stream = Stream::<Native>::new(&Heap);
    /// assert_eq!(Ends::of(stream.owner(&Native::current())), None); // free
    /// ```
    pub fn new(arena: &impl Arena<P>) -> Self {
        let line = || OwnLine(arena.word(Place::NewLine, 0));
        let owner = line();
        let tag = arena.cell(Place::SameLine, 0);
        let words = core::array::from_fn(|n| arena.word(Place::in_row(n), 0));
        Stream { owner, tag, handled: line(), space: line(), words }
    }

    #[inline(always)]
    fn word(&self, at: u64) -> &P::Word {
        // In bounds for every position, and the compiler sees it.
        &self.words[at as usize % N]
    }

    /// Returns the record with this header, which may be nonsense, at its position.
    #[inline(always)]
    fn record(&self, cpu: &P, at: u64, header: u64) -> StreamRecord {
        let header = header & FIELDS;
        let is_gated = header & GATE != 0;
        // Relaxed: ordered by (M2), or written by this end.
        let after = is_gated.then(|| cpu.load(self.word(at + 1), Ordering::Relaxed));
        let args = at + 1 + u64::from(is_gated);
        let count = Header(header).args().min(MAX_ARGS) as u64;
        StreamRecord {
            header: Header(header),
            after: after.unwrap_or(0),
            args,
            end: args + count.div_ceil(2),
        }
    }

    /// Reads a record's arguments.
    #[inline(always)]
    fn read_args(&self, cpu: &P, record: &StreamRecord, args: &mut [u32; MAX_ARGS]) {
        let (mut at, mut n) = (record.args, 0);
        while at < record.end && n + 1 < MAX_ARGS {
            // Relaxed: as in `record`.
            let both = cpu.load(self.word(at), Ordering::Relaxed);
            args[n] = both as u32;
            args[n + 1] = (both >> 32) as u32;
            n += 2;
            at += 1;
        }
    }

    /// Returns its owner word.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, stream) = (Native::current(), Stream::new(&Heap));
    /// # let (sender, receiver) = stream_ends(&stream);
    /// let ends = Ends::of(stream.owner(&cpu)).expect("it is taken");
    /// assert_eq!((ends.endpoint, ends.generation), (0, 1));
    /// # }
    /// ```
    pub fn owner(&self, cpu: &P) -> u64 {
        // (M10) Acquire: what the sender wrote before is there; pairs with the Release (M9) in
        // `StreamSender::open`.
        cpu.load(&self.owner, Ordering::Acquire)
    }

    /// Takes a stream back from an owner that is gone. Called by the receiver, which does
    /// not read it any more.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, stream) = (Native::current(), Stream::new(&Heap));
    /// # let (sender, receiver) = stream_ends(&stream);
    /// stream.take_back(&cpu, receiver.owner()); // its sender is gone
    /// assert_eq!(stream.owner(&cpu), 0); // another one may open it
    /// # }
    /// ```
    pub fn take_back(&self, cpu: &P, owner: u64) {
        // (M8) Release: the receiver's reads come before; pairs with the Acquire (M7) of the next
        // sender. Relaxed on failure: it is another sender's already.
        let _ = cpu.compare_exchange(&self.owner, owner, 0, Ordering::Release, Ordering::Relaxed);
    }
}

/// Word whose line the sender prefetches with the record of so many words at a place.
///
/// `None` if the record ends in the line in which it begins, or if the receiver may not have read
/// that line yet: words from `limit` on are its own.
const fn word_to_prefetch(at: u64, len: u64, limit: u64) -> Option<u64> {
    let ahead = at + len + AHEAD;
    let begins_a_line = at / LINE != (at + len) / LINE;
    if begins_a_line && ahead | (LINE - 1) < limit { Some(ahead) } else { None }
}

/// Sender and receiver of a stream, as its owner word names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Sending endpoint.
    pub endpoint: u16,
    /// Its generation's low bits.
    pub generation: u16,
    /// Low bits of the receiver's generation.
    pub receiver_generation: u16,
}

impl Ends {
    const fn bits(self) -> u64 {
        TAKEN
            | (self.receiver_generation as u64) << 32
            | (self.generation as u64) << 16
            | self.endpoint as u64
    }

    /// Ends of an owner word; `None` if the stream is free.
    ///
    /// ```
    /// use towpath_channel::stream::{Ends, OPEN};
    ///
    /// assert_eq!(Ends::of(0), None);
    /// assert_eq!(Ends::of(OPEN), None); // nonsense: open, and not taken
    /// ```
    pub const fn of(owner: u64) -> Option<Ends> {
        if owner & TAKEN == 0 {
            return None;
        }
        let (endpoint, generation) = (owner as u16, (owner >> 16) as u16);
        Some(Ends { endpoint, generation, receiver_generation: (owner >> 32) as u16 })
    }
}

/// Mark of a stream without space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSpace;

/// Record that the receiver did not handle.
#[derive(Clone, Copy, Debug)]
pub struct UnhandledRecord {
    /// Header, as it was sent.
    pub header: Header,
    /// Arguments.
    pub args: [u32; MAX_ARGS],
    /// Ticket that it comes after, where that had changed.
    pub after: Option<u64>,
    /// Number of records before it.
    pub number: u64,
}

/// Sending end: its private state.
///
/// `sender` and `receiver` in the examples are the ends of a stream of 64 words in which a message
/// with the arguments 1 and 2 was sent (`doc/ends.rs`).
pub struct StreamSender<L> {
    stream: OnceCell<L>,
    is_open: Cell<bool>,
    /// Number of words written.
    at: Cell<u64>,
    /// Number of words that may be written again, as last read.
    space: Cell<u64>,
    /// Number of records sent.
    sent: Cell<u64>,
    /// Ticket that the last record came after.
    after: Cell<u64>,
    tag: Cell<u64>,
}

impl<L> Default for StreamSender<L> {
    fn default() -> Self {
        let zero = || Cell::new(0);
        let (stream, is_open) = (OnceCell::new(), Cell::new(false));
        StreamSender { stream, is_open, at: zero(), space: zero(), sent: zero(), after: zero(), tag: zero() }
    }
}

impl<L> StreamSender<L> {
    /// Returns whether it has a stream.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, stream) = (Native::current(), Stream::new(&Heap));
    /// # let (sender, receiver) = stream_ends(&stream);
    /// assert!(sender.is_open());
    /// assert!(!StreamSender::<&SmallStream>::default().is_open());
    /// # }
    /// ```
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        self.is_open.get()
    }

    /// Returns whether a message of this tag and so many arguments can be sent.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, stream) = (Native::current(), Stream::new(&Heap));
    /// # let (sender, receiver) = stream_ends(&stream);
    /// assert!(sender.takes(5, 2));
    /// assert!(!sender.takes(6, 2)); // another tag: through the queue
    /// assert!(!sender.takes(5, STREAM_ARGS + 1));
    /// # }
    /// ```
    #[inline(always)]
    pub fn takes(&self, tag: u64, args: usize) -> bool {
        self.is_open.get() && tag == self.tag.get() && args <= STREAM_ARGS
    }

    /// Returns the tag of all its messages.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, stream) = (Native::current(), Stream::new(&Heap));
    /// # let (sender, receiver) = stream_ends(&stream);
    /// assert_eq!(sender.tag(), 5); // that of its first message
    /// # }
    /// ```
    pub fn tag(&self) -> u64 {
        self.tag.get()
    }

    /// Returns the number of records that were sent.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, stream) = (Native::current(), Stream::new(&Heap));
    /// # let (sender, receiver) = stream_ends(&stream);
    /// sender.send(&cpu, &short(&[3]), 0).expect("there is space");
    /// assert_eq!(sender.sent(), 2); // with the one that opened it
    /// # }
    /// ```
    #[inline(always)]
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// Takes a stream, and sends its first message there. `after`: the ticket after the
    /// sender's last packet in the queue. Returns whether the receiver sleeps and must be woken;
    /// `None`: the stream is another sender's, or the receiver wants none.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, stream) = (Native::current(), Stream::new(&Heap));
    /// # let (sender, receiver) = stream_ends(&stream);
    /// let second = StreamSender::default();
    /// let ends = Ends { endpoint: 1, generation: 1, receiver_generation: 1 };
    /// let news = Native::word(0);
    /// let taken = second.open(&cpu, &stream, (&news, 3), ends, &short(&[]), 0);
    /// assert_eq!(taken, None); // it is another sender's
    /// # }
    /// ```
    #[cold]
    pub fn open<P: Processor, const N: usize>(
        &self,
        cpu: &P,
        stream: L,
        place: (&P::Word, u32),
        ends: Ends,
        out: &PacketContent<'_>,
        after: u64,
    ) -> Option<bool>
    where
        L: Deref<Target = Stream<P, N>>,
    {
        const { assert!(N.is_power_of_two() && N >= 16) };
        let (news, number) = place;
        // Relaxed: hints; the exchanges (M7) and (M11) decide.
        if self.stream.get().is_some()
            || out.args.len() > STREAM_ARGS
            || cpu.load(&stream.owner, Ordering::Relaxed) != 0
            || cpu.load(news, Ordering::Relaxed) & REFUSED != 0
        {
            return None;
        }
        let taken = ends.bits();
        // (M7) Acquire: the last receiver or sender is done with it; pairs with the Release (M8).
        cpu.compare_exchange(&stream.owner, 0, taken, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // Relaxed, all of them: published by (M9).
        cpu.store(&stream.handled, 0, Ordering::Relaxed);
        cpu.store(&stream.space, 0, Ordering::Relaxed);
        cpu.write(&stream.tag, out.tag);
        let stream = self.stream.get_or_init(|| stream);
        self.tag.set(out.tag);
        let (header, len) = self.fill(cpu, stream, out, Some(after));
        cpu.store(stream.word(0), header, Ordering::Relaxed);
        // (M9) Release: the stream is in order; pairs with the Acquire (M10) of the receiver.
        cpu.store(&stream.owner, taken | OPEN, Ordering::Release);
        // (M11) Release: after (M9); pairs with the Acquire (M12) in `take_news`.
        let before = cpu.fetch_or(news, 1 << number, Ordering::Release);
        if before & REFUSED != 0 {
            // The receiver will not look: it has said so before.
            self.give_back(cpu);
            return None;
        }
        self.is_open.set(true);
        self.note(len, after);
        Some(before & NEWS_SLEEP != 0)
    }

    /// Writes all of a record but its header, and the 0 behind it. Returns the header and
    /// the number of words.
    #[inline(always)]
    fn fill<P: Processor, const N: usize>(
        &self,
        cpu: &P,
        stream: &Stream<P, N>,
        out: &PacketContent<'_>,
        gate: Option<u64>,
    ) -> (u64, u64) {
        let at = self.at.get();
        let mut next = at + 1;
        let mut header = Header::new(out.form, out.handler, out.args.len(), out.source).0 | READY;
        // Relaxed, all of them: published with the header, by (M1) or (M9).
        if let Some(after) = gate {
            header |= GATE;
            cpu.store(stream.word(next), after, Ordering::Relaxed);
            next += 1;
        }
        let mut n = 0;
        while n < out.args.len() && n < STREAM_ARGS {
            cpu.store(stream.word(next), two_args(out.args, n), Ordering::Relaxed);
            n += 2;
            next += 1;
        }
        cpu.store(stream.word(next), 0, Ordering::Relaxed);
        (header, next - at)
    }

    #[inline(always)]
    fn note(&self, len: u64, after: u64) {
        self.at.set(self.at.get() + len);
        self.sent.set(self.sent.get() + 1);
        self.after.set(after);
    }

    /// Sends a message that the stream takes. `after`: as for [`StreamSender::open`].
    /// Returns whether the receiver sleeps and must be woken.
    ///
    /// # Errors
    ///
    /// [`NoSpace`]: nothing was sent.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, stream) = (Native::current(), Stream::new(&Heap));
    /// # let (sender, receiver) = stream_ends(&stream);
    /// while sender.send(&cpu, &short(&[3, 4]), 0).is_ok() {}
    /// assert!(sender.sent() > 10); // of 64 words
    /// # }
    /// ```
    #[inline(always)]
    pub fn send<P: Prefetch, const N: usize>(
        &self,
        cpu: &P,
        out: &PacketContent<'_>,
        after: u64,
    ) -> Result<bool, NoSpace>
    where
        L: Deref<Target = Stream<P, N>>,
    {
        let Some(stream) = self.stream.get() else { return Err(NoSpace) };
        let gate = (after != self.after.get()).then_some(after);
        // The longest record, and the 0 behind it.
        const MOST: u64 = 3 + STREAM_ARGS as u64 / 2;
        if self.at.get() + MOST > self.space.get() + N as u64 {
            // (M3) Acquire: the receiver's reads come before our writes; pairs with the Release
            // (M4) in `StreamReceiver::say_space`.
            self.space.set(cpu.load(&stream.space, Ordering::Acquire) & !PARKED);
            if self.at.get() + MOST > self.space.get() + N as u64 {
                return Err(NoSpace);
            }
        }
        let (header, len) = self.fill(cpu, stream, out, gate);
        if let Some(ahead) = word_to_prefetch(self.at.get(), len, self.space.get() + N as u64) {
            cpu.prefetch_exclusive(stream.word(ahead));
        }
        // (M1) Release: the record comes before; pairs with the Acquire (M2) in
        // `StreamReceiver::look`.
        let before = cpu.swap(stream.word(self.at.get()), header, Ordering::Release);
        self.note(len, after);
        Ok(before & SLEEPS != 0)
    }

    /// Waits a little for space, the `round`-th time in a row.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, stream) = (Native::current(), Stream::new(&Heap));
    /// # let (sender, receiver) = stream_ends(&stream);
    /// while sender.send(&cpu, &short(&[3, 4]), 0).is_ok() {}
    /// sender.await_space(&cpu, &Spinning, 0); // then it polls, and tries again
    /// assert_eq!(sender.send(&cpu, &short(&[3, 4]), 0), Err(NoSpace));
    /// # }
    /// ```
    pub fn await_space<P: Processor, W: WaitForSpace<P>, const N: usize>(&self, cpu: &P, wait: &W, round: u32)
    where
        L: Deref<Target = Stream<P, N>>,
    {
        if let Some(stream) = self.stream.get() {
            wait.wait_briefly(cpu, &stream.space, self.space.get(), round);
        }
    }

    /// Returns the records that the receiver, which is gone, did not handle, and gives
    /// the stream back.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, stream) = (Native::current(), Stream::new(&Heap));
    /// # let (sender, receiver) = stream_ends(&stream);
    /// sender.send(&cpu, &short(&[3]), 0).expect("there is space");
    /// let record = receiver.look(&cpu).expect("the first one");
    /// receiver.take(&cpu, &record, &mut [0; MAX_ARGS]);
    /// receiver.done(&cpu, &record); // and dies
    /// let back = sender.unhandled(&cpu);
    /// assert_eq!(back.iter().map(|record| record.args[0]).collect::<Vec<_>>(), [3]);
    /// # }
    /// ```
    pub fn unhandled<P: Processor, const N: usize>(&self, cpu: &P) -> Vec<UnhandledRecord>
    where
        L: Deref<Target = Stream<P, N>>,
    {
        let mut all = Vec::new();
        let Some(stream) = self.stream.get().filter(|_| self.is_open.replace(false)) else { return all };
        // (M6) Acquire: pairs with the Release (M5) in `StreamReceiver::done`.
        let mut at = cpu.load(&stream.handled, Ordering::Acquire);
        let end = self.at.get();
        // A number that makes no sense was not the receiver's: nothing is known then.
        if end.wrapping_sub(at) <= N as u64 {
            while at < end {
                // Relaxed: this end wrote it.
                let record = stream.record(cpu, at, cpu.load(stream.word(at), Ordering::Relaxed));
                let mut args = [0; MAX_ARGS];
                stream.read_args(cpu, &record, &mut args);
                let StreamRecord { header, after, end, .. } = record;
                let after = (header.0 & GATE != 0).then_some(after);
                all.push(UnhandledRecord { header, args, after, number: 0 });
                at = end;
            }
        }
        let first = self.sent.get().saturating_sub(all.len() as u64);
        all.iter_mut().zip(first..).for_each(|(record, number)| record.number = number);
        self.give_back(cpu);
        all
    }

    fn give_back<P: Processor, const N: usize>(&self, cpu: &P)
    where
        L: Deref<Target = Stream<P, N>>,
    {
        if let Some(stream) = self.stream.get() {
            // (M8) Release: this end's reads come before; pairs with the Acquire (M7) of the next
            // sender.
            cpu.store(&stream.owner, 0, Ordering::Release);
        }
    }
}

/// Record at hand.
#[derive(Clone, Copy, Debug)]
pub struct StreamRecord {
    /// Header, as of a packet without a block.
    pub header: Header,
    /// Ticket that the receiver's head must have reached; 0: it has.
    pub after: u64,
    /// Number of words of the stream before its arguments.
    args: u64,
    /// Number of words of the stream up to its end.
    end: u64,
}

#[cfg(test)]
mod tests;
