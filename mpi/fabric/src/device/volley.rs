//! The volley: one line that both ends of a conversation write in turn, beside the slots
//! of its two directions.
//!
//! **Source.** Our own. A message in a slot, and its answer in a slot of the other direction, are
//! two lines that each go from core to core twice: once so that the writer may write, once so that
//! the reader may read. Who has read a line is half way to writing it: an answer in the line in
//! which one was asked takes one crossing there and one back (`towpath bench floor`: one line
//! written in turn takes half of the time of two).
//!
//! **How.** At any time one end may write the line: at first the one that both agree on, from then
//! on whoever has taken the last message out of it. Who may write it sends its next message there,
//! if it fits; who has sent already, and has had no answer there, sends through the slots. So a
//! conversation goes through the line, and a stream through the slots.
//!
//! **Order.** A message in the line names the slot that its sender would have taken: it comes after
//! those before, and before the one in that slot. A receiver that finds the slot full looks at the
//! line once more, since what was sent before the slot is there by then ([`next`]).
//!
//! **Progress.** Wait-free on both sides.
//!
//! **Fields.** The line: whoever may write it, until it publishes the header; then the other end.
//!
//! **A death.** Before the header is published: nothing was sent, and the line stays with the dead.
//! After: the message arrives. The survivor's own messages go through the slots, which fill up, and
//! then it finds its partner dead.
//!
//! **Don't use it** for more than two ends, or where nobody answers: then it is one more line to
//! look at.

use core::cell::Cell;

use towpath_am::packet::{Header, READY, Slot};
use towpath_machine::{Ordering, Processor};

/// In a header: state, source and lap.
const MARKS: u64 = 0xffff_ffff_0000_000f;

/// Those of a message of an end, before the one that will be in slot `before`.
#[inline(always)]
const fn marks(side: u64, before: u64) -> u64 {
    READY | side << 32 | before << 48
}

/// One end.
#[derive(Debug)]
pub struct Volley {
    /// What our messages are marked with: 1 for the end that may write first, 0 for the
    /// other.
    side: u64,
    /// We may write the line.
    ours: Cell<bool>,
}

impl Volley {
    /// An end. One of the two is the first to write; the line is all zero.
    pub fn new(first: bool) -> Volley {
        Volley { side: first.into(), ours: Cell::new(first) }
    }

    /// Whether a message can be sent here.
    #[inline(always)]
    pub fn is_ours(&self) -> bool {
        self.ours.get()
    }

    /// Sends what the caller has written to the line's tag and cells, because
    /// [`Volley::is_ours`]: before the message that will be in slot `before`. Of `packet` the
    /// source, state and lap are not used.
    #[inline(always)]
    pub fn send<P: Processor>(&self, cpu: &P, line: &Slot<P>, packet: Header, before: u64) {
        debug_assert!(self.is_ours());
        let header = Header(packet.0 & !MARKS | marks(self.side, before));
        // (V1) Release: what the line holds comes before, and so does what we had read there; pairs
        // with the Acquire (V2).
        cpu.store(&line.header, header.0, Ordering::Release);
        self.ours.set(false);
    }

    /// The header of the other end's message, if there is one that comes before what is
    /// in slot `before`.
    #[inline(always)]
    pub fn look<P: Processor>(&self, cpu: &P, line: &Slot<P>, before: u64) -> Option<Header> {
        if self.is_ours() {
            return None;
        }
        // (V2) Acquire: pairs with the Release (V1) of the other end.
        let header = Header(cpu.load(&line.header, Ordering::Acquire));
        (header.0 & MARKS == marks(1 - self.side, before)).then_some(header)
    }

    /// What lay in the line, whose header [`Volley::look`] has given, is read: from now
    /// on it is ours.
    #[inline(always)]
    pub fn taken(&self) {
        self.ours.set(true);
    }
}

/// Where the next message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// In the line.
    Volley,
    /// In the next slot.
    Slot,
}

/// Where the next message is, and its header: `volley` and `slot` look.
#[inline(always)]
pub fn next(
    volley: impl Fn() -> Option<Header>,
    slot: impl Fn() -> Option<Header>,
) -> Option<(Lane, Header)> {
    if let Some(header) = volley() {
        return Some((Lane::Volley, header));
    }
    let in_slot = slot()?;
    // What was sent before is there by now.
    Some(volley().map_or((Lane::Slot, in_slot), |header| (Lane::Volley, header)))
}

/// The line and one slot of each direction under the model checker. Cells are not atomic
/// there: what can be read before it is written, or overwritten before it is read, fails the model.
#[cfg(test)]
mod tests {
    use loom::sync::Arc;
    use loom::thread;
    use towpath_am::packet::Form;
    use towpath_machine::{Arena, LoomArena, LoomProcessor, Place};

    use super::*;

    type Line = Slot<LoomProcessor>;

    fn line() -> Line {
        let arena = LoomArena::default();
        Slot {
            header: arena.word(Place::NewLine, 0),
            tag: arena.cell(Place::SameLine, 0),
            args: core::array::from_fn(|_| arena.cell(Place::SameLine, 0)),
        }
    }

    /// What an end does wrong.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Planted {
        Nothing,
        /// It does not look at the line once more when it finds the slot full.
        LooksOnce,
        /// It writes the line though the other end has not answered there.
        OutOfTurn,
        /// It says that the line is its own before it has read it, and another thread of
        /// its process sends there.
        TakenEarly,
    }

    struct Shared {
        line: Line,
        /// The first slot of the way from the end that writes first to the other.
        slot: Line,
    }

    fn fill(cpu: &LoomProcessor, line: &Line, number: u64) {
        cpu.write(&line.tag, number);
        cpu.write(&line.args[0], number);
    }

    fn read(cpu: &LoomProcessor, line: &Line) -> u64 {
        let (tag, cell) = (cpu.read(&line.tag), cpu.read(&line.args[0]));
        assert_eq!(tag, cell);
        tag
    }

    fn packet() -> Header {
        Header::new(Form::Short, 0, 2, 0)
    }

    fn send(cpu: &LoomProcessor, end: &Volley, line: &Line, number: u64, before: u64) {
        fill(cpu, line, number);
        end.send(cpu, line, packet(), before);
    }

    fn send_in_slot(cpu: &LoomProcessor, slot: &Line, number: u64) {
        fill(cpu, slot, number);
        // Release: as (S1) in `pair.rs`.
        cpu.store(&slot.header, packet().with_state(READY).0, Ordering::Release);
    }

    fn in_slot(cpu: &LoomProcessor, slot: &Line) -> Option<Header> {
        // Acquire: as (S2) in `pair.rs`.
        let header = Header(cpu.load(&slot.header, Ordering::Acquire));
        (header.state() == READY).then_some(header)
    }

    /// The first end sends 1 through the line and 2 through the slot; the other takes
    /// both, answers 3 in the line, and gets 4 there.
    fn model(planted: Planted) {
        loom::model(move || {
            let shared = Arc::new(Shared { line: line(), slot: line() });
            let other = Arc::clone(&shared);
            let first = thread::spawn(move || {
                let (cpu, end) = (LoomProcessor { id: 1 }, Volley::new(true));
                send(&cpu, &end, &other.line, 1, 0);
                if planted == Planted::OutOfTurn {
                    end.taken();
                    send(&cpu, &end, &other.line, 2, 0);
                } else {
                    assert!(!end.is_ours());
                    send_in_slot(&cpu, &other.slot, 2);
                }
                (end, cpu)
            });
            let (cpu, end) = (LoomProcessor { id: 0 }, Volley::new(false));
            let mut taken = Vec::new();
            let mut look = || {
                let volley = || end.look(&cpu, &shared.line, 0);
                let slot = || in_slot(&cpu, &shared.slot);
                let found = if planted == Planted::LooksOnce {
                    volley().map(|h| (Lane::Volley, h)).or_else(|| slot().map(|h| (Lane::Slot, h)))
                } else {
                    next(volley, slot)
                };
                match found {
                    Some((Lane::Volley, _)) => {
                        if planted == Planted::TakenEarly {
                            end.taken();
                            send(&cpu, &end, &shared.line, 3, 0);
                        }
                        taken.push(read(&cpu, &shared.line));
                        end.taken();
                    }
                    Some((Lane::Slot, _)) => {
                        taken.push(read(&cpu, &shared.slot));
                        cpu.store(&shared.slot.header, 0, Ordering::Relaxed);
                    }
                    None => {}
                }
                taken.clone()
            };
            look();
            let (theirs, their_cpu) = first.join().unwrap();
            look();
            assert_eq!(look(), [1, 2]);
            // What comes next needs no second thread: each waits for the other.
            assert!(end.is_ours() && theirs.look(&their_cpu, &shared.line, 0).is_none());
            send(&cpu, &end, &shared.line, 3, 0);
            assert!(end.look(&cpu, &shared.line, 1).is_none(), "our own message");
            assert!(theirs.look(&their_cpu, &shared.line, 0).is_some());
            assert_eq!(read(&their_cpu, &shared.line), 3);
            theirs.taken();
            send(&their_cpu, &theirs, &shared.line, 4, 1);
            assert!(end.look(&cpu, &shared.line, 0).is_none(), "it comes after what is in slot 0");
            assert!(end.look(&cpu, &shared.line, 1).is_some());
        });
    }

    #[test]
    fn messages_come_in_the_order_in_which_they_were_sent() {
        model(Planted::Nothing);
    }

    #[test]
    fn an_end_that_does_something_wrong_is_found_out() {
        for planted in [Planted::LooksOnce, Planted::OutOfTurn, Planted::TakenEarly] {
            assert!(std::panic::catch_unwind(|| model(planted)).is_err());
        }
    }
}
