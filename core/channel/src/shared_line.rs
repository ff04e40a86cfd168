//! Shared line: one line that both ends of two rings write in turn, for messages that
//! answer each other.
//!
//! **Source.** Ours. A message in a slot, and its answer in a slot of the other ring, are two lines
//! that each go from core to core twice: once so that the sender may write, once so that the
//! receiver may read. A receiver that has read a line is half way to writing it: an answer in the
//! line of its question takes one crossing there and one back (`towpath bench floor`: one line
//! written in turn takes half of the time of two).
//!
//! **How.** At any time one end may write the line: at first the one on which both agree, from then
//! on the one that has taken the last message out of it. That end sends its next message there, if
//! it fits; an end that has sent there, and has had no answer there, sends through its ring. So
//! messages that answer each other go through the line, and a stream goes through the slots.
//!
//! **Order.** A message in the line names the slot that its sender would have taken: it comes after
//! the messages of earlier slots, and before the message of that slot. A receiver that finds the
//! slot full looks at the line once more, since what was sent before the slot is there by then
//! (`next`).
//!
//! **Progress.** Wait-free on both sides.
//!
//! **Fields.** The line: the end that may write it, until it publishes the header; then the other
//! end.
//!
//! **Crashes.** A sender that dies before it publishes the header has sent nothing, and the line
//! stays its own; after that, the message arrives. The survivor's own messages go through its ring,
//! which fills up; then it finds its peer dead.
//!
//! **Memory.** One line, in the memory of the first end's ring.
//!
//! **Don't use it** for more than two ends, or where a receiver does not answer: then it is one
//! more line to look at.

use core::cell::{Cell, OnceCell};
use std::rc::Rc;

use towpath_machine::{Ordering, Processor};

use crate::packet::{Header, READY, Slot};
use crate::ring::RingMemory;

/// The bits of a header that the line uses itself: state, source and lap.
const MARKS: u64 = 0xffff_ffff_f000_000f;

/// The marks of an end's message before the one that will be in slot `before`.
#[inline(always)]
const fn marks(side: u64, before: u64) -> u64 {
    READY | side << 32 | before << 48
}

/// One end of the line.
pub struct SharedLine<M> {
    /// 1 for the end that may write first, 0 for the other: marks this end's messages.
    side: u64,
    /// This end may write the line.
    is_ours: Cell<bool>,
    /// The ring in whose memory the line lies: the first end's outgoing one.
    memory: OnceCell<M>,
}

impl<M> SharedLine<M> {
    /// An end. One of the two is the first to write; the line is all zero.
    ///
    /// ```
    /// use towpath_channel::shared_line::SharedLine;
    ///
    /// let [first, second] = [true, false].map(SharedLine::<()>::new);
    /// assert!(first.is_ours() && !second.is_ours());
    /// ```
    pub fn new(first: bool) -> Rc<SharedLine<M>> {
        Rc::new(SharedLine { side: first.into(), is_ours: Cell::new(first), memory: OnceCell::new() })
    }

    /// Returns whether this end may write the line.
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
    /// let line = SharedLine::new(true);
    /// sender.share(&line);
    /// sender.send_in_line(&cpu, |_line| header(7));
    /// assert!(!line.is_ours()); // the other end's, until it answers
    /// ```
    #[inline(always)]
    pub fn is_ours(&self) -> bool {
        self.is_ours.get()
    }

    /// Remembers the line's place, if this ring has it: the first ring of the first end's
    /// way out.
    pub(crate) fn lies_in(&self, memory: &M, outgoing: bool)
    where
        M: Clone,
    {
        if outgoing == (self.side == 1) {
            let _ = self.memory.set(memory.clone());
        }
    }

    /// The line, if its place is known yet.
    #[inline(always)]
    pub(crate) fn line<const SLOTS: usize>(&self) -> Option<&Slot<M::Cpu>>
    where
        M: RingMemory<SLOTS>,
    {
        Some(&self.memory.get()?.ring().control.shared)
    }

    /// The line, if this end may write it.
    #[inline(always)]
    pub(crate) fn ours<const SLOTS: usize>(&self) -> Option<&Slot<M::Cpu>>
    where
        M: RingMemory<SLOTS>,
    {
        if self.is_ours() { self.line() } else { None }
    }

    /// Publishes a filled line, before the message that will be in slot `before`.
    ///
    /// The line was this end's ([`SharedLine::is_ours`]). Of `packet` the source, state and lap are
    /// not used.
    #[inline(always)]
    pub(crate) fn publish<P: Processor>(&self, cpu: &P, line: &Slot<P>, packet: Header, before: u64) {
        debug_assert!(self.is_ours());
        let header = Header(packet.0 & !MARKS | marks(self.side, before));
        // (V1) Release: the line's contents come before, and so do our reads of the message that
        // was there; pairs with the Acquire (V2) in `look`.
        cpu.store(&line.header, header.0, Ordering::Release);
        self.is_ours.set(false);
    }

    /// The header of the other end's message, if there is one before that in slot
    /// `before`.
    #[inline(always)]
    pub(crate) fn look<const SLOTS: usize>(&self, cpu: &M::Cpu, before: u64) -> Option<Header>
    where
        M: RingMemory<SLOTS>,
    {
        if self.is_ours() {
            return None;
        }
        // (V2) Acquire: pairs with the Release (V1) in `publish`.
        let header = Header(cpu.load(&self.line()?.header, Ordering::Acquire));
        (header.0 & MARKS == marks(1 - self.side, before)).then_some(header)
    }

    /// Ends the reading of the other end's message: from now on this end may write the
    /// line.
    #[inline(always)]
    pub(crate) fn taken(&self) {
        self.is_ours.set(true);
    }
}

/// The place of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// The shared line.
    Line,
    /// The next slot.
    Slot,
}

/// The next message's place and header: `line` and `slot` look.
#[inline(always)]
pub(crate) fn next(
    line: impl Fn() -> Option<Header>,
    slot: impl Fn() -> Option<Header>,
) -> Option<(Lane, Header)> {
    if let Some(header) = line() {
        return Some((Lane::Line, header));
    }
    let in_slot = slot()?;
    // Messages that were sent before are there by now.
    Some(line().map_or((Lane::Slot, in_slot), |header| (Lane::Line, header)))
}

/// The line and one slot of each direction under the model checker. Cells are not atomic
/// there: what can be read before it is written, or overwritten before it is read, fails the model.
#[cfg(test)]
mod tests {
    use loom::sync::Arc;
    use loom::thread;
    use towpath_machine::{LoomArena, LoomProcessor};

    use super::*;
    use crate::packet::Form;
    use crate::ring::Ring;

    type Place = Slot<LoomProcessor>;
    type End = SharedLine<Shared>;

    /// The first end's outgoing ring, with the line, and one slot.
    #[derive(Clone)]
    struct Shared(Arc<Ring<LoomProcessor, 1>>);

    impl RingMemory<1> for Shared {
        type Cpu = LoomProcessor;
        fn ring(&self) -> &Ring<LoomProcessor, 1> {
            &self.0
        }
    }

    impl Shared {
        fn line(&self) -> &Place {
            &self.0.control.shared
        }
        fn slot(&self) -> &Place {
            self.0.slot(0)
        }
        fn end(&self, first: bool) -> End {
            let end = SharedLine { side: first.into(), is_ours: Cell::new(first), memory: OnceCell::new() };
            end.lies_in(self, first);
            end
        }
    }

    /// A fault of an end.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Planted {
        Nothing,
        /// No second look at the line when the slot is found full.
        LooksOnce,
        /// A message in the line though the other end has not answered there.
        OutOfTurn,
        /// An answer of another thread in the line before the message there was read.
        TakenEarly,
    }

    fn fill(cpu: &LoomProcessor, line: &Place, number: u64) {
        cpu.write(&line.tag, number);
        cpu.write(&line.args[0], number);
    }

    fn read(cpu: &LoomProcessor, line: &Place) -> u64 {
        let (tag, cell) = (cpu.read(&line.tag), cpu.read(&line.args[0]));
        assert_eq!(tag, cell);
        tag
    }

    fn packet() -> Header {
        Header::new(Form::Short, 0, 2, 0)
    }

    fn send(cpu: &LoomProcessor, end: &End, line: &Place, number: u64, before: u64) {
        fill(cpu, line, number);
        end.publish(cpu, line, packet(), before);
    }

    fn send_in_slot(cpu: &LoomProcessor, slot: &Place, number: u64) {
        fill(cpu, slot, number);
        // Release: as (S1) in `ring.rs`.
        cpu.store(&slot.header, packet().with_state(READY).0, Ordering::Release);
    }

    fn in_slot(cpu: &LoomProcessor, slot: &Place) -> Option<Header> {
        // Acquire: as (S2) in `ring.rs`.
        let header = Header(cpu.load(&slot.header, Ordering::Acquire));
        (header.state() == READY).then_some(header)
    }

    /// The first end sends 1 through the line and 2 through the slot; the other takes
    /// both, answers 3 in the line, and gets 4 there.
    fn model(planted: Planted) {
        towpath_testkit::model(3, move || {
            let shared = Shared(Arc::new(Ring::new(&LoomArena::default())));
            let other = shared.clone();
            let first = thread::spawn(move || {
                let (cpu, end) = (LoomProcessor { id: 1 }, other.end(true));
                send(&cpu, &end, other.line(), 1, 0);
                if planted == Planted::OutOfTurn {
                    end.taken();
                    send(&cpu, &end, other.line(), 2, 0);
                } else {
                    assert!(!end.is_ours());
                    send_in_slot(&cpu, other.slot(), 2);
                }
                (end, cpu)
            });
            let (cpu, end) = (LoomProcessor { id: 0 }, shared.end(false));
            let mut taken = Vec::new();
            let mut look = || {
                let line = || end.look(&cpu, 0);
                let slot = || in_slot(&cpu, shared.slot());
                let found = if planted == Planted::LooksOnce {
                    line().map(|h| (Lane::Line, h)).or_else(|| slot().map(|h| (Lane::Slot, h)))
                } else {
                    next(line, slot)
                };
                match found {
                    Some((Lane::Line, _)) => {
                        if planted == Planted::TakenEarly {
                            end.taken();
                            send(&cpu, &end, shared.line(), 3, 0);
                        }
                        taken.push(read(&cpu, shared.line()));
                        end.taken();
                    }
                    Some((Lane::Slot, _)) => {
                        taken.push(read(&cpu, shared.slot()));
                        cpu.store(&shared.slot().header, 0, Ordering::Relaxed);
                    }
                    None => {}
                }
                taken.clone()
            };
            look();
            let (theirs, their_cpu) = first.join().unwrap();
            look();
            assert_eq!(look(), [1, 2]);
            // The rest needs no second thread: each waits for the other.
            assert!(end.is_ours() && theirs.look(&their_cpu, 0).is_none());
            send(&cpu, &end, shared.line(), 3, 0);
            assert!(end.look(&cpu, 1).is_none(), "our own message");
            assert!(theirs.look(&their_cpu, 0).is_some());
            assert_eq!(read(&their_cpu, shared.line()), 3);
            theirs.taken();
            send(&their_cpu, &theirs, shared.line(), 4, 1);
            assert!(end.look(&cpu, 0).is_none(), "it comes after what is in slot 0");
            assert!(end.look(&cpu, 1).is_some());
        });
    }

    #[test]
    fn messages_arrive_in_the_order_of_sending() {
        model(Planted::Nothing);
    }

    #[test]
    fn an_end_with_a_planted_fault_fails() {
        for planted in [Planted::LooksOnce, Planted::OutOfTurn, Planted::TakenEarly] {
            assert!(std::panic::catch_unwind(|| model(planted)).is_err());
        }
    }
}
