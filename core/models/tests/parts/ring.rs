//! The ring and the shared line under the model checker; and the proof that each of their
//! orderings is needed: without it, loom finds the fault.
//!
//! Cells are not atomic here: what can be read before it is written, or overwritten before it is
//! read, fails the model.

use std::sync::Arc;

use loom::thread;

use towpath_channel::packet::{Form, Header, Slot};
use towpath_channel::ring::{Ring, RingMemory, RingReceiver, RingSender};
use towpath_channel::shared_line::SharedLine;
use towpath_machine::{LoomArena, Processor};
use towpath_testkit::model;

use crate::weakened::{Missing, Weakened, fails};

const SLOTS: usize = 2;

/// A ring that two threads have.
#[derive(Clone)]
struct Memory(Arc<Ring<Weakened, SLOTS>>);

impl Memory {
    fn new() -> Memory {
        Memory(Arc::new(Ring::new(&LoomArena::default())))
    }
}

impl RingMemory<SLOTS> for Memory {
    type Cpu = Weakened;
    fn ring(&self) -> &Ring<Weakened, SLOTS> {
        &self.0
    }
}

type Out = RingSender<Memory, SLOTS>;
type In = RingReceiver<Memory, SLOTS>;

fn fill(cpu: &Weakened, slot: &Slot<Weakened>, number: u64) -> Header {
    cpu.write(&slot.tag, number);
    cpu.write(&slot.args[0], number);
    Header::new(Form::Short, 0, 2, 0)
}

fn read(cpu: &Weakened, slot: &Slot<Weakened>) -> u64 {
    let (tag, cell) = (cpu.read(&slot.tag), cpu.read(&slot.args[0]));
    assert_eq!(tag, cell);
    tag
}

fn send_in_slot(cpu: &Weakened, out: &mut Out, number: u64) -> bool {
    out.send_in_slot(cpu, None, |_, _, slot, _| Some(fill(cpu, slot, number)))
}

fn send(cpu: &Weakened, out: &mut Out, number: u64) -> bool {
    out.send_in_line(cpu, |slot| fill(cpu, slot, number)) || send_in_slot(cpu, out, number)
}

fn take(cpu: &Weakened, into: &mut In) -> Option<u64> {
    let found = into.next(cpu)?;
    Some(into.deliver(cpu, found, |_, slot, _, _| read(cpu, slot)))
}

/// A full ring of two slots: the sender sends a third message if it finds space, while
/// the receiver takes what is there.
fn a_full_ring(sender: Missing, receiver: Missing) {
    model(3, move || {
        let memory = Memory::new();
        let at_receiver = memory.clone();
        let (cpu, mut out) = (Weakened::new(0, Missing::Nothing), Out::new(memory, 0));
        assert!(send(&cpu, &mut out, 1) && send(&cpu, &mut out, 2) && !send(&cpu, &mut out, 3));
        let taker = thread::spawn(move || {
            let (cpu, mut into) = (Weakened::new(1, receiver), In::new(at_receiver));
            let taken: Vec<u64> = (0..3).filter_map(|_| take(&cpu, &mut into)).collect();
            (taken, into)
        });
        let cpu = Weakened::new(0, sender);
        let third = send(&cpu, &mut out, 3);
        let (mut taken, mut into) = taker.join().unwrap();
        taken.extend(core::iter::from_fn(|| take(&Weakened::new(0, Missing::Nothing), &mut into)));
        assert_eq!(taken, if third { vec![1, 2, 3] } else { vec![1, 2] });
    });
}

/// An empty ring: two messages are sent while the receiver looks.
fn an_empty_ring(sender: Missing, receiver: Missing) {
    model(3, move || {
        let memory = Memory::new();
        let at_sender = memory.clone();
        let other = thread::spawn(move || {
            let (cpu, mut out) = (Weakened::new(1, sender), Out::new(at_sender, 0));
            assert!(send(&cpu, &mut out, 1) && send(&cpu, &mut out, 2));
        });
        let (cpu, mut into) = (Weakened::new(0, receiver), In::new(memory));
        let mut taken: Vec<u64> = (0..2).filter_map(|_| take(&cpu, &mut into)).collect();
        other.join().unwrap();
        taken.extend(core::iter::from_fn(|| take(&cpu, &mut into)));
        assert_eq!(taken, [1, 2]);
    });
}

/// Two rings and their line. The first end sends 1 through the line, and 2 through a
/// slot; the other end takes both, and answers 3. The first end answers that with 4.
fn a_shared_line(first: Missing, second: Missing) {
    model(3, move || {
        let (there, back) = (Memory::new(), Memory::new());
        let at_first = (there.clone(), back.clone());
        let other = thread::spawn(move || {
            let (cpu, line) = (Weakened::new(1, first), SharedLine::new(true));
            let (mut out, mut into) = (Out::new(at_first.0, 0), In::new(at_first.1));
            out.share(&line);
            into.share(&line);
            assert!(send(&cpu, &mut out, 1) && send(&cpu, &mut out, 2));
            assert_eq!(out.sent(), 1, "the line carried the other one");
            let answer = take(&cpu, &mut into);
            if answer.is_some() {
                assert!(line.is_ours() && send(&cpu, &mut out, 4));
            }
            answer
        });
        let (cpu, line) = (Weakened::new(0, second), SharedLine::new(false));
        let (mut out, mut into) = (Out::new(back, 0), In::new(there));
        into.share(&line);
        out.share(&line);
        assert!(!line.is_ours());
        let mut taken = Vec::new();
        for _ in 0..2 {
            taken.extend(take(&cpu, &mut into));
            if taken == [1] && line.is_ours() {
                assert!(send(&cpu, &mut out, 3));
                assert_eq!(out.sent(), 0, "the line carried it");
            }
        }
        let answer = other.join().unwrap();
        taken.extend(core::iter::from_fn(|| take(&cpu, &mut into)));
        assert_eq!(taken, if answer.is_some() { vec![1, 2, 4] } else { vec![1, 2] });
        assert!(answer.is_none_or(|n| n == 3));
    });
}

#[test]
fn messages_of_a_ring_arrive_once_and_in_order() {
    an_empty_ring(Missing::Nothing, Missing::Nothing);
    a_full_ring(Missing::Nothing, Missing::Nothing);
}

#[test]
fn messages_of_a_shared_line_arrive_once_and_in_order() {
    a_shared_line(Missing::Nothing, Missing::Nothing);
}

/// (S1) to (S4).
#[test]
fn a_ring_without_one_of_its_orderings_fails() {
    assert!(fails(|| an_empty_ring(Missing::Release, Missing::Nothing)), "(S1)");
    assert!(fails(|| an_empty_ring(Missing::Nothing, Missing::Acquire)), "(S2)");
    assert!(fails(|| a_full_ring(Missing::Acquire, Missing::Nothing)), "(S3)");
    assert!(fails(|| a_full_ring(Missing::Nothing, Missing::Release)), "(S4)");
}

/// (V1) and (V2), on either end.
#[test]
fn a_shared_line_without_one_of_its_orderings_fails() {
    for missing in [Missing::Release, Missing::Acquire] {
        assert!(fails(|| a_shared_line(missing, Missing::Nothing)), "{missing:?} of the first end");
        assert!(fails(|| a_shared_line(Missing::Nothing, missing)), "{missing:?} of the second end");
    }
}
