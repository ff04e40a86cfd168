//! Receiving end of a stream.

use core::cell::Cell;
use core::ops::Deref;

use towpath_machine::{Ordering, Processor};
use towpath_sync::WaitForSpace;

use super::{PUBLICATIONS, SLEEPS, Stream, StreamRecord};
use crate::packet::{MAX_ARGS, READY};

/// Receiving end: its private state.
///
/// `sender` and `receiver` in the examples are the ends of a stream of 64 words in which a message
/// with the arguments 1 and 2 was sent (`doc/ends.rs`).
pub struct StreamReceiver<L> {
    stream: L,
    /// Owner word.
    owner: u64,
    tag: u64,
    /// Number of words taken.
    pub(super) at: Cell<u64>,
    /// Number of words that may be written again, as last said.
    said: Cell<u64>,
    /// Number of records taken.
    taken: Cell<u64>,
}

impl<L> StreamReceiver<L> {
    /// Makes the receiving end of a stream with this owner word.
    ///
    /// The word has [`OPEN`](super::OPEN).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, stream) = (Native::current(), Stream::new(&Heap));
    /// # let (sender, receiver) = stream_ends(&stream);
    /// let receiver = StreamReceiver::new(&cpu, &stream, stream.owner(&cpu));
    /// assert_eq!((receiver.tag(), receiver.taken()), (5, 0));
    /// # }
    /// ```
    pub fn new<P: Processor, const N: usize>(cpu: &P, stream: L, owner: u64) -> Self
    where
        L: Deref<Target = Stream<P, N>>,
    {
        let tag = cpu.read(&stream.tag);
        StreamReceiver { stream, owner, tag, at: Cell::new(0), said: Cell::new(0), taken: Cell::new(0) }
    }

    /// Returns the owner word.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, stream) = (Native::current(), Stream::new(&Heap));
    /// # let (sender, receiver) = stream_ends(&stream);
    /// assert_eq!(receiver.owner(), stream.owner(&cpu)); // else it is another sender's by now
    /// # }
    /// ```
    pub fn owner(&self) -> u64 {
        self.owner
    }

    /// Returns the stream.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, stream) = (Native::current(), Stream::new(&Heap));
    /// # let (sender, receiver) = stream_ends(&stream);
    /// assert!(std::ptr::eq(*receiver.stream(), &stream));
    /// # }
    /// ```
    pub fn stream(&self) -> &L {
        &self.stream
    }

    /// Returns the tag of all its messages.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, stream) = (Native::current(), Stream::new(&Heap));
    /// # let (sender, receiver) = stream_ends(&stream);
    /// assert_eq!(receiver.tag(), sender.tag());
    /// # }
    /// ```
    #[inline(always)]
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Returns the number of records that were taken.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, stream) = (Native::current(), Stream::new(&Heap));
    /// # let (sender, receiver) = stream_ends(&stream);
    /// let record = receiver.look(&cpu).expect("the first one");
    /// receiver.take(&cpu, &record, &mut [0; MAX_ARGS]);
    /// assert_eq!(receiver.taken(), sender.sent());
    /// # }
    /// ```
    #[inline(always)]
    pub fn taken(&self) -> u64 {
        self.taken.get()
    }

    /// Returns the word in which the next header will be.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, stream) = (Native::current(), Stream::new(&Heap));
    /// # let (sender, receiver) = stream_ends(&stream);
    /// let header = cpu.load(receiver.awaited(), Ordering::Relaxed);
    /// assert_ne!(header, 0); // the first record is there
    /// # }
    /// ```
    #[inline(always)]
    pub fn awaited<P: Processor, const N: usize>(&self) -> &P::Word
    where
        L: Deref<Target = Stream<P, N>>,
    {
        self.stream.word(self.at.get())
    }

    /// Returns the next record, if one is there.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, stream) = (Native::current(), Stream::new(&Heap));
    /// # let (sender, receiver) = stream_ends(&stream);
    /// let record = receiver.look(&cpu).expect("the first one");
    /// assert_eq!((record.header.handler(), record.header.args()), (7, 2));
    /// # }
    /// ```
    #[inline(always)]
    pub fn look<P: Processor, const N: usize>(&self, cpu: &P) -> Option<StreamRecord>
    where
        L: Deref<Target = Stream<P, N>>,
    {
        let at = self.at.get();
        // (M2) Acquire: pairs with the Release (M1) in `StreamSender::send`.
        let header = cpu.load(self.stream.word(at), Ordering::Acquire);
        (header & 7 == READY).then(|| self.stream.record(cpu, at, header))
    }

    /// Takes the record that a look has found: reads its arguments.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, stream) = (Native::current(), Stream::new(&Heap));
    /// # let (sender, receiver) = stream_ends(&stream);
    /// let (record, mut args) = (receiver.look(&cpu).expect("the first one"), [0; MAX_ARGS]);
    /// receiver.take(&cpu, &record, &mut args);
    /// assert!(args[..2] == [1, 2] && receiver.look(&cpu).is_none());
    /// # }
    /// ```
    #[inline(always)]
    pub fn take<P: Processor, const N: usize>(
        &self,
        cpu: &P,
        record: &StreamRecord,
        args: &mut [u32; MAX_ARGS],
    ) where
        L: Deref<Target = Stream<P, N>>,
    {
        self.stream.read_args(cpu, record, args);
        self.at.set(record.end);
        self.taken.set(self.taken.get() + 1);
    }

    /// Notes that a record was handled.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, stream) = (Native::current(), Stream::new(&Heap));
    /// # let (sender, receiver) = stream_ends(&stream);
    /// let record = receiver.look(&cpu).expect("the first one");
    /// receiver.take(&cpu, &record, &mut [0; MAX_ARGS]);
    /// receiver.done(&cpu, &record);
    /// assert!(sender.unhandled(&cpu).is_empty()); // also after the receiver's death
    /// # }
    /// ```
    #[inline(always)]
    pub fn done<P: Processor, const N: usize>(&self, cpu: &P, record: &StreamRecord)
    where
        L: Deref<Target = Stream<P, N>>,
    {
        // (M5) Release: the handler's effects come before; pairs with the Acquire (M6) in
        // `unhandled`.
        cpu.store(&self.stream.handled, record.end, Ordering::Release);
    }

    /// Returns whether a quarter of the words may be written again since the last
    /// publication.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, stream) = (Native::current(), Stream::new(&Heap));
    /// # let (sender, receiver) = stream_ends(&stream);
    /// while let Some(record) = receiver.look(&cpu) {
    ///     receiver.take(&cpu, &record, &mut [0; MAX_ARGS]);
    ///     sender.send(&cpu, &short(&[3, 4]), 0).expect("there is space");
    ///     if receiver.has_space_to_say() {
    ///         break; // a quarter of the words
    ///     }
    /// }
    /// assert!(receiver.taken() >= 64 / 4 / 3);
    /// # }
    /// ```
    #[inline(always)]
    pub fn has_space_to_say<P: Processor, const N: usize>(&self) -> bool
    where
        L: Deref<Target = Stream<P, N>>,
    {
        self.at.get() - self.said.get() >= N as u64 / PUBLICATIONS
    }

    /// Publishes the number of words that may be written again.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, stream) = (Native::current(), Stream::new(&Heap));
    /// # let (sender, receiver) = stream_ends(&stream);
    /// while sender.send(&cpu, &short(&[3, 4]), 0).is_ok() {}
    /// while let Some(record) = receiver.look(&cpu) {
    ///     receiver.take(&cpu, &record, &mut [0; MAX_ARGS]);
    /// }
    /// receiver.say_space(&cpu, &Spinning);
    /// assert!(sender.send(&cpu, &short(&[3, 4]), 0).is_ok());
    /// # }
    /// ```
    #[cold]
    pub fn say_space<P: Processor, W: WaitForSpace<P>, const N: usize>(&self, cpu: &P, wait: &W)
    where
        L: Deref<Target = Stream<P, N>>,
    {
        self.said.set(self.at.get());
        // (M4) Release (in `release_some`): our reads come before; pairs with the Acquire (M3) in
        // `StreamSender::send`.
        wait.release_some(cpu, &self.stream.space, self.at.get(), 1);
    }

    /// Says that the receiver will sleep. `false`: a record has come.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, stream) = (Native::current(), Stream::new(&Heap));
    /// # let (sender, receiver) = stream_ends(&stream);
    /// assert!(!receiver.arm(&cpu)); // a record has come
    /// let record = receiver.look(&cpu).expect("the first one");
    /// receiver.take(&cpu, &record, &mut [0; MAX_ARGS]);
    /// assert!(receiver.arm(&cpu)); // it may sleep
    /// assert_eq!(sender.send(&cpu, &short(&[3]), 0), Ok(true)); // wake it
    /// # }
    /// ```
    pub fn arm<P: Processor, const N: usize>(&self, cpu: &P) -> bool
    where
        L: Deref<Target = Stream<P, N>>,
    {
        let word = self.awaited();
        // Relaxed: it orders nothing; it and the sender's exchange (M1) are on one word, so one of
        // the two sees the other.
        match cpu.compare_exchange(word, 0, SLEEPS, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(now) => now & 7 != READY,
        }
    }

    /// Takes that back.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/ends.rs"));
    /// # fn main() {
    /// # let (cpu, stream) = (Native::current(), Stream::new(&Heap));
    /// # let (sender, receiver) = stream_ends(&stream);
    /// let record = receiver.look(&cpu).expect("the first one");
    /// receiver.take(&cpu, &record, &mut [0; MAX_ARGS]);
    /// receiver.arm(&cpu);
    /// receiver.disarm(&cpu);
    /// assert_eq!(sender.send(&cpu, &short(&[3]), 0), Ok(false)); // need not wake it
    /// # }
    /// ```
    pub fn disarm<P: Processor, const N: usize>(&self, cpu: &P)
    where
        L: Deref<Target = Stream<P, N>>,
    {
        // Relaxed: at worst the sender wakes in vain.
        let _ = cpu.compare_exchange(self.awaited(), SLEEPS, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}
