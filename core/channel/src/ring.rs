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

mod receiver;

use std::rc::Rc;

use towpath_machine::{Arena, Ordering, OwnLine, Place, Prefetch, Processor};

use crate::packet::{Header, READY, Slot};
use crate::shared_line::SharedLine;

pub use receiver::{Found, RingReceiver};

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
