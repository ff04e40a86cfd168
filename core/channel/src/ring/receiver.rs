//! Receiving end of a ring.

use std::rc::Rc;

use towpath_machine::{Ordering, Processor};

use super::{RingMemory, lap};
use crate::packet::{Header, READY, Slot};
use crate::shared_line::{Lane, SharedLine, next};

/// Longest time of spinning on the next slot alone, in nanoseconds, if a message may come
/// in the shared line.
const TURN: u64 = 500;

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
