//! Ring: slots of one sender and one receiver, used cyclically, without claims.
//!
//! **Source.** Gropp & Lusk 1997, §5 and §9.1. A slot is a packet's line ([`Slot`]); its header
//! says by its lap whether it is full. Bytes that do not fit on the line lie in the ring's bytes,
//! which are given out in turn, too.
//!
//! **Progress.** Wait-free on both sides.
//!
//! **Fields.** Slots and bytes: the sender, until the header is published, then the receiver until
//! it moves `progress` past them. `progress`: the receiver. `shared`: [`SharedLine`].
//!
//! **Two directions.** Where each end has a ring to the other they may also share one line
//! ([`SharedLine`]), for messages that answer each other.
//!
//! **Crashes.** A sender's messages arrive if they were published; others are not there. If the
//! receiver dies the slots fill up, and the sender finds its peer dead.
//!
//! **Memory.** The slots, three lines, and the bytes that the caller puts behind them.
//!
//! **Don't use it** for peers that seldom talk: a receiver looks at each ring in turn.

use std::rc::Rc;

use towpath_machine::{Arena, Ordering, OwnLine, Place, Prefetch, Processor};

use crate::packet::{Header, READY, Slot};
use crate::shared_line::{Lane, SharedLine, next};

/// Longest time of spinning on the next slot alone, in nanoseconds, if a message may come
/// in the shared line.
const TURN: u64 = 500;
/// Bytes given out are rounded up to so many.
const GRAIN: u64 = 64;

/// The lines of a ring beside its slots.
#[repr(C)]
pub struct RingControl<P: Processor> {
    /// Receiver: number of slots that it has emptied.
    pub progress: OwnLine<P::Word>,
    /// Both ends in turn: [`SharedLine`].
    pub shared: Slot<P>,
}

/// A ring in memory: the layout natively. `SLOTS` is a power of two.
#[repr(C)]
pub struct Ring<P: Processor, const SLOTS: usize> {
    /// The lines beside the slots.
    pub control: RingControl<P>,
    /// The slots.
    pub slots: [Slot<P>; SLOTS],
}

impl<P: Processor, const SLOTS: usize> Ring<P, SLOTS> {
    /// An empty ring.
    ///
    /// ```
    /// use towpath_channel::ring::{Ring, RingReceiver};
    /// use towpath_machine::{Heap, Native};
    ///
    /// let ring = Ring::<Native, 8>::new(&Heap);
    /// assert!(!RingReceiver::new(&ring).is_ready(&Native::current()));
    /// ```
    pub fn new(arena: &impl Arena<P>) -> Self {
        let progress = OwnLine(arena.word(Place::NewLine, 0));
        let control = RingControl { progress, shared: Slot::new(arena) };
        Ring { control, slots: core::array::from_fn(|_| Slot::new(arena)) }
    }

    /// The slot of a ticket.
    ///
    /// ```
    /// # use std::rc::Rc;
    /// # use towpath_channel::packet::{Form, Header};
    /// # use towpath_channel::ring::{Ring, RingReceiver, RingSender};
    /// # use towpath_machine::{Heap, Native, Processor};
    /// # let (cpu, ring) = (Native::current(), Ring::<Native, 4>::new(&Heap));
    /// # let (mut sender, mut receiver) = (RingSender::new(&ring, 256), RingReceiver::new(&ring));
    /// # let header = |handler| Header::new(Form::Short, handler, 0, 0);
    /// assert!(std::ptr::eq(ring.slot(1), ring.slot(5))); // of four, in turn
    /// ```
    #[inline(always)]
    pub fn slot(&self, ticket: u64) -> &Slot<P> {
        // In bounds for every ticket, and the compiler sees it.
        &self.slots[ticket as usize % SLOTS]
    }
}

/// A handle that keeps a ring's memory mapped.
pub trait RingMemory<const SLOTS: usize> {
    /// The machine.
    type Cpu: Processor;
    /// The ring.
    ///
    /// ```
    /// # use std::rc::Rc;
    /// # use towpath_channel::packet::{Form, Header};
    /// # use towpath_channel::ring::{Ring, RingReceiver, RingSender};
    /// # use towpath_machine::{Heap, Native, Processor};
    /// # let (cpu, ring) = (Native::current(), Ring::<Native, 4>::new(&Heap));
    /// # let (mut sender, mut receiver) = (RingSender::new(&ring, 256), RingReceiver::new(&ring));
    /// # let header = |handler| Header::new(Form::Short, handler, 0, 0);
    /// use towpath_channel::ring::RingMemory;
    ///
    /// let mapped = Rc::new(Ring::<Native, 4>::new(&Heap)); // kept as long as an end lives
    /// assert!(std::ptr::eq(mapped.ring(), &*mapped));
    /// ```
    fn ring(&self) -> &Ring<Self::Cpu, SLOTS>;
}

impl<P: Processor, const SLOTS: usize> RingMemory<SLOTS> for Ring<P, SLOTS> {
    type Cpu = P;
    #[inline(always)]
    fn ring(&self) -> &Ring<P, SLOTS> {
        self
    }
}

impl<M: RingMemory<SLOTS>, const SLOTS: usize> RingMemory<SLOTS> for Rc<M> {
    type Cpu = M::Cpu;
    #[inline(always)]
    fn ring(&self) -> &Ring<M::Cpu, SLOTS> {
        (**self).ring()
    }
}

impl<M: RingMemory<SLOTS>, const SLOTS: usize> RingMemory<SLOTS> for &M {
    type Cpu = M::Cpu;
    #[inline(always)]
    fn ring(&self) -> &Ring<M::Cpu, SLOTS> {
        (**self).ring()
    }
}

/// The lap of a ticket: 1 and up, so that an unused slot has none of them at first.
#[inline(always)]
fn lap<const SLOTS: usize>(ticket: u64) -> u16 {
    (ticket / SLOTS as u64 + 1) as u16
}

/// The sending end.
pub struct RingSender<M, const SLOTS: usize> {
    memory: M,
    shared: Option<Rc<SharedLine<M>>>,
    /// Number of slots filled so far.
    next: u64,
    /// Number of slots emptied, as last read.
    emptied: u64,
    /// The place of the next bytes, counted without end.
    at: u64,
    /// Position up to which the bytes are free again.
    freed: u64,
    /// Number of bytes that are given out in turn.
    capacity: u64,
    /// End of the bytes that were given out when a slot was filled, for each.
    ends: Box<[u64; SLOTS]>,
}

impl<M: RingMemory<SLOTS>, const SLOTS: usize> RingSender<M, SLOTS> {
    /// The sending end of an unused ring with so many bytes behind it.
    ///
    /// ```
    /// # use std::rc::Rc;
    /// # use towpath_channel::packet::{Form, Header};
    /// # use towpath_channel::ring::{Ring, RingReceiver, RingSender};
    /// # use towpath_machine::{Heap, Native, Processor};
    /// # let (cpu, ring) = (Native::current(), Ring::<Native, 4>::new(&Heap));
    /// # let (mut sender, mut receiver) = (RingSender::new(&ring, 256), RingReceiver::new(&ring));
    /// # let header = |handler| Header::new(Form::Short, handler, 0, 0);
    /// let mut sender = RingSender::new(&ring, 256);
    /// assert!(sender.is_empty(&cpu) && sender.capacity() == 256);
    /// ```
    pub fn new(memory: M, bytes: usize) -> Self {
        const { assert!(SLOTS.is_power_of_two()) };
        let (shared, ends) = (None, Box::new([0; SLOTS]));
        RingSender { memory, shared, next: 0, emptied: 0, at: 0, freed: 0, capacity: bytes as u64, ends }
    }

    /// Makes the sender use the shared line, too. The receiver must look at it from then
    /// on ([`RingReceiver::share`]).
    ///
    /// ```
    /// # use std::rc::Rc;
    /// # use towpath_channel::packet::{Form, Header};
    /// # use towpath_channel::ring::{Ring, RingReceiver, RingSender};
    /// # use towpath_machine::{Heap, Native, Processor};
    /// # let (cpu, ring) = (Native::current(), Ring::<Native, 4>::new(&Heap));
    /// # let (mut sender, mut receiver) = (RingSender::new(&ring, 256), RingReceiver::new(&ring));
    /// # let header = |handler| Header::new(Form::Short, handler, 0, 0);
    /// use towpath_channel::shared_line::SharedLine;
    ///
    /// sender.share(&SharedLine::new(true)); // it may write first
    /// assert!(sender.send_in_line(&cpu, |_line| header(7)));
    /// assert!(!sender.send_in_line(&cpu, |_line| header(7))); // until the other end has answered
    /// ```
    pub fn share(&mut self, line: &Rc<SharedLine<M>>)
    where
        M: Clone,
    {
        line.lies_in(&self.memory, true);
        self.shared = Some(Rc::clone(line));
    }

    /// The ring's memory.
    ///
    /// ```
    /// # use std::rc::Rc;
    /// # use towpath_channel::packet::{Form, Header};
    /// # use towpath_channel::ring::{Ring, RingReceiver, RingSender};
    /// # use towpath_machine::{Heap, Native, Processor};
    /// # let (cpu, ring) = (Native::current(), Ring::<Native, 4>::new(&Heap));
    /// # let (mut sender, mut receiver) = (RingSender::new(&ring, 256), RingReceiver::new(&ring));
    /// # let header = |handler| Header::new(Form::Short, handler, 0, 0);
    /// assert!(std::ptr::eq(*sender.memory(), &ring));
    /// ```
    #[inline(always)]
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Number of messages that were sent through slots.
    ///
    /// ```
    /// # use std::rc::Rc;
    /// # use towpath_channel::packet::{Form, Header};
    /// # use towpath_channel::ring::{Ring, RingReceiver, RingSender};
    /// # use towpath_machine::{Heap, Native, Processor};
    /// # let (cpu, ring) = (Native::current(), Ring::<Native, 4>::new(&Heap));
    /// # let (mut sender, mut receiver) = (RingSender::new(&ring, 256), RingReceiver::new(&ring));
    /// # let header = |handler| Header::new(Form::Short, handler, 0, 0);
    /// sender.send_in_slot(&cpu, None, |_, _, _, _| Some(header(7)));
    /// assert_eq!(sender.sent(), 1);
    /// ```
    #[inline(always)]
    pub fn sent(&self) -> u64 {
        self.next
    }

    /// Number of bytes that are given out in turn.
    ///
    /// ```
    /// # use std::rc::Rc;
    /// # use towpath_channel::packet::{Form, Header};
    /// # use towpath_channel::ring::{Ring, RingReceiver, RingSender};
    /// # use towpath_machine::{Heap, Native, Processor};
    /// # let (cpu, ring) = (Native::current(), Ring::<Native, 4>::new(&Heap));
    /// # let (mut sender, mut receiver) = (RingSender::new(&ring, 256), RingReceiver::new(&ring));
    /// # let header = |handler| Header::new(Form::Short, handler, 0, 0);
    /// sender.grow(&cpu, 512);
    /// assert_eq!(sender.capacity(), 512);
    /// ```
    #[inline(always)]
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Sends a message in the shared line, if this end may write it.
    ///
    /// `fill` writes tag and arguments, and returns the header (whose source, state and lap are not
    /// used).
    ///
    /// ```
    /// # use std::rc::Rc;
    /// # use towpath_channel::packet::{Form, Header};
    /// # use towpath_channel::ring::{Ring, RingReceiver, RingSender};
    /// # use towpath_machine::{Heap, Native, Processor};
    /// # let (cpu, ring) = (Native::current(), Ring::<Native, 4>::new(&Heap));
    /// # let (mut sender, mut receiver) = (RingSender::new(&ring, 256), RingReceiver::new(&ring));
    /// # let header = |handler| Header::new(Form::Short, handler, 0, 0);
    /// assert!(!sender.send_in_line(&cpu, |_line| unreachable!("it has none"))); // take a slot
    /// ```
    #[inline(always)]
    pub fn send_in_line(&mut self, cpu: &M::Cpu, fill: impl FnOnce(&Slot<M::Cpu>) -> Header) -> bool {
        let Some(shared) = &self.shared else { return false };
        let Some(line) = shared.ours() else { return false };
        let header = fill(line);
        shared.publish(cpu, line, header, self.next);
        true
    }

    /// Sends a message in the next slot, and in `bytes` of the ring's bytes, if there is
    /// space.
    ///
    /// `fill` gets the memory, the slot's ticket, the slot, and the place of the
    /// bytes; it returns the header (whose state and lap are not used), or `None` to send nothing.
    ///
    /// ```
    /// # use std::rc::Rc;
    /// # use towpath_channel::packet::{Form, Header};
    /// # use towpath_channel::ring::{Ring, RingReceiver, RingSender};
    /// # use towpath_machine::{Heap, Native, Processor};
    /// # let (cpu, ring) = (Native::current(), Ring::<Native, 4>::new(&Heap));
    /// # let (mut sender, mut receiver) = (RingSender::new(&ring, 256), RingReceiver::new(&ring));
    /// # let header = |handler| Header::new(Form::Short, handler, 0, 0);
    /// let sent = sender.send_in_slot(&cpu, Some(100), |_ring, _ticket, slot, place| {
    ///     cpu.write(&slot.args[0], place.expect("room for 100 bytes") as u64);
    ///     Some(header(7))
    /// });
    /// assert!(sent && receiver.is_ready(&cpu));
    /// ```
    #[inline(always)]
    pub fn send_in_slot(
        &mut self,
        cpu: &M::Cpu,
        bytes: Option<usize>,
        fill: impl FnOnce(&M, u64, &Slot<M::Cpu>, Option<usize>) -> Option<Header>,
    ) -> bool
    where
        M::Cpu: Prefetch,
    {
        if self.next - self.emptied >= SLOTS as u64 {
            self.look(cpu);
            if self.next - self.emptied >= SLOTS as u64 {
                return false;
            }
        }
        let mut place = None;
        if let Some(bytes) = bytes {
            place = self.give_out(cpu, bytes as u64);
            if place.is_none() {
                return false;
            }
        }
        self.ends[self.next as usize % SLOTS] = self.at;
        let slot = self.memory.ring().slot(self.next);
        let Some(header) = fill(&self.memory, self.next, slot, place) else { return false };
        let header = header.with_state(READY).with_lap(lap::<SLOTS>(self.next));
        // (S1) Release: the slot's contents come before; pairs with the Acquire (S2) in
        // `RingReceiver::in_slot`.
        cpu.store(&slot.header, header.0, Ordering::Release);
        self.next += 1;
        cpu.prefetch_exclusive(&self.memory.ring().slot(self.next).header);
        true
    }

    /// The place of so many bytes, in one piece, if they are free.
    #[inline]
    fn give_out(&mut self, cpu: &M::Cpu, len: u64) -> Option<usize> {
        let capacity = self.capacity;
        // The remainder before the end is passed over.
        let start =
            if self.at % capacity + len > capacity { self.at.next_multiple_of(capacity) } else { self.at };
        let end = (start + len).next_multiple_of(GRAIN);
        if end - self.freed > capacity {
            self.look(cpu);
            if end - self.freed > capacity {
                return None;
            }
        }
        self.at = end;
        Some((start % capacity) as usize)
    }

    /// Enlarges the room for payloads to `capacity` bytes.
    ///
    /// At first the bytes behind the part that was used so far are given out; that part is free
    /// again when all messages that lie there were taken.
    ///
    /// ```
    /// # use std::rc::Rc;
    /// # use towpath_channel::packet::{Form, Header};
    /// # use towpath_channel::ring::{Ring, RingReceiver, RingSender};
    /// # use towpath_machine::{Heap, Native, Processor};
    /// # let (cpu, ring) = (Native::current(), Ring::<Native, 4>::new(&Heap));
    /// # let (mut sender, mut receiver) = (RingSender::new(&ring, 256), RingReceiver::new(&ring));
    /// # let header = |handler| Header::new(Form::Short, handler, 0, 0);
    /// let mut send = |sender: &mut RingSender<_, 4>| {
    ///     sender.send_in_slot(&cpu, Some(200), |_, _, _, _| Some(header(7)))
    /// };
    /// assert!(send(&mut sender) && !send(&mut sender)); // 256 bytes
    /// sender.grow(&cpu, 1024);
    /// assert!(send(&mut sender));
    /// ```
    #[cold]
    pub fn grow(&mut self, cpu: &M::Cpu, capacity: usize) {
        self.look(cpu);
        self.at = self.capacity;
        self.capacity = capacity as u64;
        if self.emptied == self.next {
            self.freed = self.at;
            return;
        }
        self.freed = 0;
        for ticket in self.emptied..self.next {
            self.ends[ticket as usize % SLOTS] = 0;
        }
        self.ends[(self.next - 1) as usize % SLOTS] = self.at;
    }

    #[cold]
    fn look(&mut self, cpu: &M::Cpu) {
        // (S3) Acquire: the receiver's reads come before our writes; pairs with the Release (S4) in
        // `RingReceiver::deliver`.
        let emptied = cpu.load(&self.memory.ring().control.progress, Ordering::Acquire);
        // Only what was sent can be emptied.
        if emptied > self.emptied && emptied <= self.next {
            self.emptied = emptied;
            self.freed = self.ends[(emptied - 1) as usize % SLOTS];
        }
    }

    /// Returns whether all messages that were sent through slots have been taken.
    ///
    /// ```
    /// # use std::rc::Rc;
    /// # use towpath_channel::packet::{Form, Header};
    /// # use towpath_channel::ring::{Ring, RingReceiver, RingSender};
    /// # use towpath_machine::{Heap, Native, Processor};
    /// # let (cpu, ring) = (Native::current(), Ring::<Native, 4>::new(&Heap));
    /// # let (mut sender, mut receiver) = (RingSender::new(&ring, 256), RingReceiver::new(&ring));
    /// # let header = |handler| Header::new(Form::Short, handler, 0, 0);
    /// sender.send_in_slot(&cpu, None, |_, _, _, _| Some(header(7)));
    /// assert!(!sender.is_empty(&cpu));
    /// let found = receiver.next(&cpu).expect("it has come");
    /// receiver.deliver(&cpu, found, |_, _, _, _| ());
    /// assert!(sender.is_empty(&cpu));
    /// ```
    pub fn is_empty(&mut self, cpu: &M::Cpu) -> bool {
        self.look(cpu);
        self.next == self.emptied
    }
}

/// The next message: its place and its header. To be delivered before any other one.
pub struct Found(Lane, Header);

/// The receiving end.
pub struct RingReceiver<M, const SLOTS: usize> {
    memory: M,
    shared: Option<Rc<SharedLine<M>>>,
    /// Number of slots emptied.
    head: u64,
}

impl<M: RingMemory<SLOTS>, const SLOTS: usize> RingReceiver<M, SLOTS> {
    /// The receiving end of an unused ring.
    ///
    /// ```
    /// # use std::rc::Rc;
    /// # use towpath_channel::packet::{Form, Header};
    /// # use towpath_channel::ring::{Ring, RingReceiver, RingSender};
    /// # use towpath_machine::{Heap, Native, Processor};
    /// # let (cpu, ring) = (Native::current(), Ring::<Native, 4>::new(&Heap));
    /// # let (mut sender, mut receiver) = (RingSender::new(&ring, 256), RingReceiver::new(&ring));
    /// # let header = |handler| Header::new(Form::Short, handler, 0, 0);
    /// let receiver = RingReceiver::new(&ring);
    /// sender.send_in_slot(&cpu, None, |_, _, _, _| Some(header(7)));
    /// assert!(receiver.is_ready(&cpu));
    /// ```
    pub fn new(memory: M) -> Self {
        RingReceiver { memory, shared: None, head: 0 }
    }

    /// Makes the receiver look at the shared line, too. To be called before the sender
    /// uses it.
    ///
    /// ```
    /// # use std::rc::Rc;
    /// # use towpath_channel::packet::{Form, Header};
    /// # use towpath_channel::ring::{Ring, RingReceiver, RingSender};
    /// # use towpath_machine::{Heap, Native, Processor};
    /// # let (cpu, ring) = (Native::current(), Ring::<Native, 4>::new(&Heap));
    /// # let (mut sender, mut receiver) = (RingSender::new(&ring, 256), RingReceiver::new(&ring));
    /// # let header = |handler| Header::new(Form::Short, handler, 0, 0);
    /// use towpath_channel::shared_line::SharedLine;
    ///
    /// receiver.share(&SharedLine::new(false));
    /// sender.share(&SharedLine::new(true));
    /// sender.send_in_line(&cpu, |_line| header(7));
    /// assert!(receiver.is_ready(&cpu)); // in the line
    /// ```
    pub fn share(&mut self, line: &Rc<SharedLine<M>>)
    where
        M: Clone,
    {
        line.lies_in(&self.memory, false);
        self.shared = Some(Rc::clone(line));
    }

    /// The ring's memory.
    ///
    /// ```
    /// # use std::rc::Rc;
    /// # use towpath_channel::packet::{Form, Header};
    /// # use towpath_channel::ring::{Ring, RingReceiver, RingSender};
    /// # use towpath_machine::{Heap, Native, Processor};
    /// # let (cpu, ring) = (Native::current(), Ring::<Native, 4>::new(&Heap));
    /// # let (mut sender, mut receiver) = (RingSender::new(&ring, 256), RingReceiver::new(&ring));
    /// # let header = |handler| Header::new(Form::Short, handler, 0, 0);
    /// assert!(std::ptr::eq(*receiver.memory(), *sender.memory()));
    /// ```
    #[inline(always)]
    pub fn memory(&self) -> &M {
        &self.memory
    }

    #[inline(always)]
    fn in_slot(&self, cpu: &M::Cpu) -> Option<Header> {
        // (S2) Acquire: pairs with the Release (S1) in `RingSender::send_in_slot`.
        let header = Header(cpu.load(&self.memory.ring().slot(self.head).header, Ordering::Acquire));
        (header.state() == READY && header.lap() == lap::<SLOTS>(self.head)).then_some(header)
    }

    /// The next message, if one is there.
    ///
    /// ```
    /// # use std::rc::Rc;
    /// # use towpath_channel::packet::{Form, Header};
    /// # use towpath_channel::ring::{Ring, RingReceiver, RingSender};
    /// # use towpath_machine::{Heap, Native, Processor};
    /// # let (cpu, ring) = (Native::current(), Ring::<Native, 4>::new(&Heap));
    /// # let (mut sender, mut receiver) = (RingSender::new(&ring, 256), RingReceiver::new(&ring));
    /// # let header = |handler| Header::new(Form::Short, handler, 0, 0);
    /// assert!(receiver.next(&cpu).is_none());
    /// sender.send_in_slot(&cpu, None, |_, _, _, _| Some(header(7)));
    /// let found = receiver.next(&cpu).expect("it has come");
    /// let handler = receiver.deliver(&cpu, found, |_, _, header, _| header.handler());
    /// assert_eq!(handler, 7);
    /// ```
    #[inline(always)]
    pub fn next(&self, cpu: &M::Cpu) -> Option<Found> {
        let Some(shared) = &self.shared else { return self.in_slot(cpu).map(|h| Found(Lane::Slot, h)) };
        next(|| shared.look(cpu, self.head), || self.in_slot(cpu)).map(|(lane, header)| Found(lane, header))
    }

    /// Returns whether a message is there.
    ///
    /// ```
    /// # use std::rc::Rc;
    /// # use towpath_channel::packet::{Form, Header};
    /// # use towpath_channel::ring::{Ring, RingReceiver, RingSender};
    /// # use towpath_machine::{Heap, Native, Processor};
    /// # let (cpu, ring) = (Native::current(), Ring::<Native, 4>::new(&Heap));
    /// # let (mut sender, mut receiver) = (RingSender::new(&ring, 256), RingReceiver::new(&ring));
    /// # let header = |handler| Header::new(Form::Short, handler, 0, 0);
    /// sender.send_in_slot(&cpu, None, |_, _, _, _| None); // nothing, after all
    /// assert!(!receiver.is_ready(&cpu));
    /// ```
    #[inline(always)]
    pub fn is_ready(&self, cpu: &M::Cpu) -> bool {
        self.next(cpu).is_some()
    }

    /// The next message; spins for at most about `ns` nanoseconds until one is there.
    ///
    /// ```
    /// # use std::rc::Rc;
    /// # use towpath_channel::packet::{Form, Header};
    /// # use towpath_channel::ring::{Ring, RingReceiver, RingSender};
    /// # use towpath_machine::{Heap, Native, Processor};
    /// # let (cpu, ring) = (Native::current(), Ring::<Native, 4>::new(&Heap));
    /// # let (mut sender, mut receiver) = (RingSender::new(&ring, 256), RingReceiver::new(&ring));
    /// # let header = |handler| Header::new(Form::Short, handler, 0, 0);
    /// assert!(receiver.find(&cpu, 1_000).is_none()); // after a microsecond
    /// sender.send_in_slot(&cpu, None, |_, _, _, _| Some(header(7)));
    /// assert!(receiver.find(&cpu, 1_000).is_some());
    /// ```
    #[inline(always)]
    pub fn find(&self, cpu: &M::Cpu, ns: u64) -> Option<Found> {
        let mut found = None;
        let word = &self.memory.ring().slot(self.head).header;
        // A machine may look only when the word changes; a message may come in the line, too.
        let turn = if self.shared.is_some() { TURN } else { ns };
        let mut left = ns;
        loop {
            // Relaxed: both places are looked at, and ordered, by `next`.
            let _ = cpu.spin_until(word, Ordering::Relaxed, left.min(turn), |_| {
                found = self.next(cpu);
                found.is_some()
            });
            left = left.saturating_sub(turn);
            if found.is_some() || left == 0 {
                return found;
            }
        }
    }

    /// Delivers a message that was found.
    ///
    /// `take` gets the memory, the line or slot, the header, and the slot's ticket if it is a slot.
    /// Its messages go through slots meanwhile.
    ///
    /// ```
    /// # use std::rc::Rc;
    /// # use towpath_channel::packet::{Form, Header};
    /// # use towpath_channel::ring::{Ring, RingReceiver, RingSender};
    /// # use towpath_machine::{Heap, Native, Processor};
    /// # let (cpu, ring) = (Native::current(), Ring::<Native, 4>::new(&Heap));
    /// # let (mut sender, mut receiver) = (RingSender::new(&ring, 256), RingReceiver::new(&ring));
    /// # let header = |handler| Header::new(Form::Short, handler, 0, 0);
    /// for n in 0..10 {
    ///     sender.send_in_slot(&cpu, None, |_, _, slot, _| {
    ///         cpu.write(&slot.args[0], n);
    ///         Some(header(7).with_args(1))
    ///     });
    ///     let found = receiver.next(&cpu).expect("it has come");
    ///     let read = receiver.deliver(&cpu, found, |_, slot, _, _| cpu.read(&slot.args[0]));
    ///     assert_eq!(read, n); // from now on the slot is the sender's again
    /// }
    /// ```
    #[inline(always)]
    pub fn deliver<T>(
        &mut self,
        cpu: &M::Cpu,
        found: Found,
        take: impl FnOnce(&M, &Slot<M::Cpu>, Header, Option<u64>) -> T,
    ) -> T {
        let Found(lane, header) = found;
        if lane == Lane::Line
            && let Some(shared) = &self.shared
            && let Some(line) = shared.line()
        {
            let result = take(&self.memory, line, header, None);
            shared.taken();
            return result;
        }
        let ring = self.memory.ring();
        let result = take(&self.memory, ring.slot(self.head), header, Some(self.head));
        self.head += 1;
        // (S4) Release: our reads come before; pairs with the Acquire (S3) in `RingSender::look`.
        cpu.store(&ring.control.progress, self.head, Ordering::Release);
        result
    }
}
