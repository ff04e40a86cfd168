//! The answer line under the model checker: exchange, order beside a queue, sleep, death;
//! and the proof that each of its orderings is needed: without it, loom finds the fault.
//!
//! Cells are not atomic here: what can be read before it is written, or overwritten before it is
//! read, fails the model. Sleepers never time out: a lost wake-up is a deadlock.

use std::sync::Arc;

use loom::thread;

use towpath_channel::answer_line::{ANSWER_ARGS, AUX_ARGS, AnswerEnd, AnswerLine, Incarnation, SLEEPS};
use towpath_channel::doorbell;
use towpath_channel::packet::{Form, Header, MAX_ARGS, READY, Slot};
use towpath_channel::path::PacketContent;
use towpath_machine::{Arena, LoomArena, LoomCell, Ordering, Park, Place, Processor};
use towpath_testkit::{model, preemptions};

use crate::weakened::{Missing, SOUND, Weakened, Word, fails};

type Line = Arc<AnswerLine<Weakened>>;
type End = AnswerEnd<Line>;

/// The two endpoints, and the next incarnation of the upper one.
const LOWER: Incarnation = (1, 5);
const UPPER: Incarnation = (2, 9);
const NEXT_UPPER: Incarnation = (2, 10);

fn new_line() -> Line {
    Arc::new(AnswerLine::new(&LoomArena::default()))
}

fn end(line: &Line, me: Incarnation, other: Incarnation) -> End {
    AnswerEnd::new(Some(Arc::clone(line)), me, other)
}

/// Both ends, which use the line: the lower one is to begin.
fn attached(line: &Line) -> (End, End) {
    let (cpu, lower, upper) = (Weakened::new(0, SOUND), end(line, LOWER, UPPER), end(line, UPPER, LOWER));
    assert!(!lower.attach(&cpu), "the other one does not look yet");
    assert!(upper.attach(&cpu) && lower.attach(&cpu));
    assert!(lower.is_ours() && upper.is_theirs());
    (lower, upper)
}

/// Sends a number as tag and as each argument, an even one with `aux` in the place of the
/// last two. Returns whether the receiver sleeps.
fn send_after(cpu: &Weakened, end: &End, number: u64, is_reply: bool, after: u64) -> bool {
    let (args, aux) = ([number as u32; ANSWER_ARGS], number << 32 | number);
    let (form, args) = if number.is_multiple_of(2) {
        (Form::LongStored, &args[..AUX_ARGS])
    } else {
        (Form::Short, &args[..])
    };
    end.send(cpu, &PacketContent { form, handler: 3, tag: number, args, aux, source: 0 }, is_reply, after)
}

fn send(cpu: &Weakened, end: &End, number: u64) -> bool {
    send_after(cpu, end, number, false, 0)
}

/// Takes the message that a look has found.
fn take_found(cpu: &Weakened, end: &End) -> u64 {
    let mut args = [0; MAX_ARGS];
    let tag = end.take(cpu, &mut args);
    assert_eq!(args[..ANSWER_ARGS], [tag as u32; ANSWER_ARGS]);
    tag
}

fn take(cpu: &Weakened, end: &End) -> Option<u64> {
    let answer = end.look(cpu)?;
    let number = take_found(cpu, end);
    let count = if number.is_multiple_of(2) { AUX_ARGS } else { ANSWER_ARGS };
    assert_eq!((answer.header.args(), answer.header.handler()), (count, 3));
    Some(number)
}

// ---- exchange ----

/// Takes a message if there is one and sends one if the end may, so many times.
fn play(cpu: &Weakened, end: &End, sent: &mut u64, taken: &mut Vec<u64>, turns: usize) {
    for _ in 0..turns {
        // Else loom passes over the schedules in which an answer comes between two turns.
        thread::yield_now();
        taken.extend(take(cpu, end));
        if end.is_ours() {
            *sent += 1;
            send(cpu, end, *sent);
        }
    }
}

/// Both ends attach and answer each other at the same time.
fn an_exchange(at_lower: Missing, at_upper: Missing) {
    model(3, move || {
        let line = new_line();
        let lower = end(&line, LOWER, UPPER);
        let other = thread::spawn(move || {
            let cpu = Weakened::new(1, at_lower);
            let (mut sent, mut taken) = (0, Vec::new());
            if lower.attach(&cpu) || lower.attach(&cpu) {
                play(&cpu, &lower, &mut sent, &mut taken, 2);
            }
            (lower, sent, taken)
        });
        let (cpu, upper) = (Weakened::new(0, at_upper), end(&line, UPPER, LOWER));
        let (mut sent, mut taken) = (100, Vec::new());
        assert!(upper.attach(&cpu), "this end looks from the start");
        play(&cpu, &upper, &mut sent, &mut taken, 2);
        let (lower, mut lower_sent, mut lower_taken) = other.join().unwrap();
        // The rest needs no second thread.
        assert!(lower.attach(&cpu));
        for _ in 0..2 {
            play(&cpu, &lower, &mut lower_sent, &mut lower_taken, 1);
            play(&cpu, &upper, &mut sent, &mut taken, 1);
        }
        assert!(lower_sent >= 2 && taken == (1..=lower_sent).collect::<Vec<_>>(), "{taken:?}");
        lower_taken.extend(take(&cpu, &lower));
        assert_eq!(lower_taken, (101..=sent).collect::<Vec<_>>());
    });
}

/// A question and its answer, for which each end waits by spinning.
fn an_awaited_answer(at_lower: Missing, at_upper: Missing) {
    model(3, move || {
        let (lower, upper) = attached(&new_line());
        let other = thread::spawn(move || {
            let cpu = Weakened::new(1, at_lower);
            send_after(&cpu, &lower, 1, false, 7);
            let answer = lower.await_answer(&cpu, 1, false).expect("loom's budgets never run out");
            assert!(answer.is_reply && take_found(&cpu, &lower) == 2);
        });
        let cpu = Weakened::new(0, at_upper);
        let answer = upper.await_answer(&cpu, 1, false).expect("loom's budgets never run out");
        assert!(!answer.is_reply && answer.after == 7 && take_found(&cpu, &upper) == 1);
        send_after(&cpu, &upper, 2, true, 0);
        other.join().unwrap();
    });
}

// ---- order beside a queue ----

/// A fault of the receiver in the order of line and queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Misorder {
    None,
    /// No look at the line when a packet is found.
    LooksOnce,
    /// No heed to the ticket that a message in the line names.
    IgnoresTicket,
}

/// A receiver of a line, and of a queue that is modelled by its slots.
struct Inbox {
    upper: End,
    packets: Arc<[Slot<Weakened>; 2]>,
    head: u64,
    taken: Vec<u64>,
    fault: Misorder,
}

impl Inbox {
    fn poll_line(&mut self, cpu: &Weakened) {
        let next = |after| self.fault == Misorder::IgnoresTicket || self.head >= after;
        if self.upper.look(cpu).is_some_and(|answer| next(answer.after)) {
            self.taken.push(take_found(cpu, &self.upper));
        }
    }

    fn poll(&mut self, cpu: &Weakened) {
        self.poll_line(cpu);
        let packets = Arc::clone(&self.packets);
        while let Some(packet) = packets.get(self.head as usize) {
            // Acquire: pairs with the Release in `send_packet`.
            if Header(cpu.load(&packet.header, Ordering::Acquire)).state() != READY {
                return;
            }
            if self.fault != Misorder::LooksOnce {
                self.poll_line(cpu);
            }
            self.taken.push(cpu.read(&packet.tag));
            self.head += 1;
        }
        self.poll_line(cpu);
    }
}

fn send_packet(cpu: &Weakened, packet: &Slot<Weakened>, number: u64) {
    cpu.write(&packet.tag, number);
    // Release: pairs with the Acquire in `poll`.
    cpu.store(&packet.header, READY, Ordering::Release);
}

/// 1 in a packet, 2 in the line, 3 in a packet; or without the first.
fn line_and_queue(packet_first: bool, fault: Misorder) {
    model(3, move || {
        let (lower, upper) = attached(&new_line());
        let packets = Arc::new([(); 2].map(|()| Slot::new(&LoomArena::default())));
        let at_sender = Arc::clone(&packets);
        let sender = thread::spawn(move || {
            let cpu = Weakened::new(1, SOUND);
            let mut tail = 0;
            if packet_first {
                send_packet(&cpu, &at_sender[0], 1);
                tail = 1;
            }
            send_after(&cpu, &lower, 2, false, tail);
            send_packet(&cpu, &at_sender[tail as usize], 3);
        });
        let cpu = Weakened::new(0, SOUND);
        let mut inbox = Inbox { upper, packets, head: 0, taken: Vec::new(), fault };
        inbox.poll(&cpu);
        inbox.poll(&cpu);
        sender.join().unwrap();
        inbox.poll(&cpu);
        assert_eq!(inbox.taken, if packet_first { vec![1, 2, 3] } else { vec![2, 3] });
    });
}

// ---- sleep ----

/// A fault of an end that sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Oversleep {
    None,
    /// Sleeps without a mark.
    DoesNotArm,
    /// Sleeps although the end could not be armed.
    IgnoresMessage,
    /// Takes back the mark of the other end, too.
    DisarmsBoth,
    /// Sends and does not wake.
    DoesNotWake,
}

/// An end that sleeps until a message comes.
struct Sleeper {
    end: End,
    line: Line,
    /// Its own doorbell, and the other end's.
    doorbells: [Arc<Word>; 2],
    fault: Oversleep,
}

impl Sleeper {
    fn send(&self, cpu: &Weakened, number: u64) {
        if send(cpu, &self.end, number) && self.fault != Oversleep::DoesNotWake {
            doorbell::wake(cpu, &self.doorbells[1]);
        }
    }

    fn receive(&self, cpu: &Weakened) -> u64 {
        loop {
            if let Some(number) = take(cpu, &self.end) {
                return number;
            }
            let count = doorbell::count(cpu, &self.doorbells[0]);
            // No look after it: the exchange has decided.
            let is_armed = self.fault == Oversleep::DoesNotArm || self.end.arm(cpu);
            if is_armed || self.fault == Oversleep::IgnoresMessage {
                cpu.park(&self.doorbells[0], count, u64::MAX);
            } else {
                assert!(self.end.look(cpu).is_some(), "neither armed nor a message");
            }
            if self.fault == Oversleep::DisarmsBoth {
                cpu.fetch_and(self.line.header(), !SLEEPS, Ordering::Relaxed);
            }
            self.end.disarm(cpu);
        }
    }
}

/// A question, its answer, and the next question, to ends that sleep.
fn sleeping_ends(at_lower: Oversleep, at_upper: Oversleep) {
    model(preemptions(2, 3), move || {
        let line = new_line();
        let (lower, upper) = attached(&line);
        let arena = LoomArena { parking: true };
        let [a, b] = [(); 2].map(|()| Arc::new(Arena::<Weakened>::word(&arena, Place::NewLine, 0)));
        let doorbells = [Arc::clone(&a), Arc::clone(&b)];
        let lower = Sleeper { end: lower, line: Arc::clone(&line), doorbells, fault: at_lower };
        let other = thread::spawn(move || {
            let cpu = Weakened::new(1, SOUND);
            lower.send(&cpu, 1);
            assert_eq!(lower.receive(&cpu), 2);
            lower.send(&cpu, 3);
        });
        let cpu = Weakened::new(0, SOUND);
        let upper = Sleeper { end: upper, line, doorbells: [b, a], fault: at_upper };
        assert_eq!(upper.receive(&cpu), 1);
        upper.send(&cpu, 2);
        assert_eq!(upper.receive(&cpu), 3);
        other.join().unwrap();
    });
}

// ---- death ----

fn new_cell() -> Arc<LoomCell> {
    Arc::new(Arena::<Weakened>::cell(&LoomArena::default(), Place::NewLine, 0))
}

/// A receiver handles a request and may stop anywhere, while the survivor asks: where the
/// request counts as handled, the survivor sees what the handler did.
fn a_handled_request(receiver: Missing, survivor: Missing) {
    model(3, move || {
        let (lower, upper) = attached(&new_line());
        let effect = new_cell();
        let at_receiver = Arc::clone(&effect);
        send_after(&Weakened::new(0, SOUND), &lower, 1, false, 4);
        let other = thread::spawn(move || {
            let (cpu, number) = (Weakened::new(1, receiver), upper.number());
            assert_eq!(take(&cpu, &upper), Some(1));
            cpu.write(&at_receiver, 6);
            upper.done(&cpu, number);
        });
        let cpu = Weakened::new(0, survivor);
        match lower.unhandled(&cpu) {
            None => assert_eq!(cpu.read(&effect), 6),
            Some(back) => {
                assert_eq!((back.tag, back.after, back.args), (1, 4, [1; ANSWER_ARGS]));
                assert_eq!((back.header.handler(), back.header.args()), (3, ANSWER_ARGS));
            }
        }
        assert!(lower.unhandled(&cpu).is_none(), "once");
        other.join().unwrap();
    });
}

/// A step after which a receiver of a request dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Last {
    Nothing,
    Take,
    Answer,
    Done,
}

/// The survivor gets a request back, unless the dead receiver has noted or answered it.
fn a_death_after(last: Last, is_reply: bool) {
    model(1, move || {
        let (lower, upper) = attached(&new_line());
        let cpu = Weakened::new(0, SOUND);
        send_after(&cpu, &lower, 1, is_reply, 0);
        let number = upper.number();
        if last >= Last::Take {
            assert_eq!(take(&cpu, &upper), Some(1));
        }
        if last == Last::Answer {
            send(&cpu, &upper, 2);
        }
        if last == Last::Done {
            upper.done(&cpu, number);
        }
        let is_back = lower.unhandled(&cpu).is_some();
        assert_eq!(is_back, !is_reply && last <= Last::Take, "{last:?}");
        assert_eq!(take(&cpu, &lower), (last == Last::Answer).then_some(2));
    });
}

/// A fault of a successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Haste {
    None,
    /// Takes the survivor for a new incarnation, which needs no record.
    IgnoresSurvivor,
}

/// A successor attaches while the survivor reads the dead one's record: only after it.
/// A cell stands for the record, since loom has no loads that see what is stored later.
fn a_successor(survivor: Missing, successor: Missing, fault: Haste) {
    model(3, move || {
        let line = new_line();
        let (lower, upper) = attached(&line);
        let cpu = Weakened::new(0, SOUND);
        send(&cpu, &lower, 1);
        let number = upper.number();
        assert_eq!(take(&cpu, &upper), Some(1));
        upper.done(&cpu, number);
        drop(upper);
        let (at_successor, record) = (Arc::clone(&line), new_cell());
        let its_record = Arc::clone(&record);
        let other = thread::spawn(move || {
            let hasty = fault == Haste::IgnoresSurvivor;
            let survivor = (LOWER.0, LOWER.1 + u64::from(hasty));
            let (cpu, next) = (Weakened::new(1, successor), end(&at_successor, NEXT_UPPER, survivor));
            let is_attached = next.attach(&cpu) || next.attach(&cpu);
            if is_attached && !hasty {
                cpu.write(&its_record, 1);
            }
            next
        });
        let cpu = Weakened::new(0, survivor);
        assert!(lower.unhandled(&cpu).is_none(), "it was handled, says the record");
        cpu.read(&record);
        let lower = end(&line, LOWER, NEXT_UPPER);
        lower.attach(&cpu);
        let next = other.join().unwrap();
        if fault != Haste::None {
            return;
        }
        assert!(next.attach(&cpu) && lower.attach(&cpu) && lower.is_ours());
        send(&cpu, &lower, 2);
        assert_eq!(take(&cpu, &next), Some(2));
    });
}

/// An endpoint that has taken a message is made anew, and the other end begins once more,
/// in the cells that were read before. Its request is not handled, though the predecessor noted
/// one of this number.
fn a_new_incarnation(renewed: Missing, beginner: Missing) {
    model(3, move || {
        let line = new_line();
        let (old, upper) = attached(&line);
        let cpu = Weakened::new(0, SOUND);
        send(&cpu, &old, 1);
        let lower = end(&line, LOWER, NEXT_UPPER);
        let at_upper = Arc::clone(&line);
        let other = thread::spawn(move || {
            let (cpu, number) = (Weakened::new(1, SOUND), upper.number());
            assert_eq!(take(&cpu, &upper), Some(1));
            upper.done(&cpu, number);
            let (cpu, next) = (Weakened::new(1, renewed), end(&at_upper, NEXT_UPPER, LOWER));
            (next.attach(&cpu), next)
        });
        // This end's own record is not the subject.
        lower.attach(&cpu);
        let cpu = Weakened::new(0, beginner);
        let began = lower.attach(&cpu);
        if began {
            send(&cpu, &lower, 2);
            assert_eq!(lower.unhandled(&cpu).map(|back| back.tag), Some(2));
        }
        let (is_attached, next) = other.join().unwrap();
        let cpu = Weakened::new(0, SOUND);
        assert!(is_attached || next.attach(&cpu));
        assert_eq!(take(&cpu, &next), began.then_some(2));
    });
}

#[test]
fn messages_of_an_answer_line_arrive_once_and_in_order() {
    an_exchange(SOUND, SOUND);
    an_awaited_answer(SOUND, SOUND);
}

#[test]
fn line_and_queue_are_delivered_in_the_order_of_sending() {
    line_and_queue(false, Misorder::None);
    line_and_queue(true, Misorder::None);
}

#[test]
fn a_receiver_with_a_fault_misorders_line_and_queue() {
    assert!(fails(|| line_and_queue(false, Misorder::LooksOnce)));
    assert!(fails(|| line_and_queue(true, Misorder::IgnoresTicket)));
}

#[test]
fn sleeping_ends_are_woken_for_each_message() {
    sleeping_ends(Oversleep::None, Oversleep::None);
}

#[test]
fn a_fault_of_an_end_that_sleeps_loses_a_wake_up() {
    use Oversleep::{DisarmsBoth, DoesNotArm, DoesNotWake, IgnoresMessage};
    for fault in [DoesNotArm, IgnoresMessage, DisarmsBoth, DoesNotWake] {
        assert!(fails(|| sleeping_ends(fault, Oversleep::None)), "{fault:?} of the lower end");
        assert!(fails(|| sleeping_ends(Oversleep::None, fault)), "{fault:?} of the upper end");
    }
}

#[test]
fn a_request_counts_as_handled_after_its_effects() {
    a_handled_request(SOUND, SOUND);
}

#[test]
fn a_request_comes_back_unless_noted_or_answered() {
    for last in [Last::Nothing, Last::Take, Last::Answer, Last::Done] {
        a_death_after(last, false);
        a_death_after(last, true);
    }
}

#[test]
fn a_successor_leaves_the_record_until_it_is_read() {
    a_successor(SOUND, SOUND, Haste::None);
    assert!(fails(|| a_successor(SOUND, SOUND, Haste::IgnoresSurvivor)));
}

#[test]
fn a_new_incarnation_finds_a_line_that_is_not_in_use() {
    a_new_incarnation(SOUND, SOUND);
}

/// (A1) and (A2), on either end.
#[test]
fn an_exchange_without_one_of_its_orderings_fails() {
    for (missing, name) in [(Missing::UpdateOrder, "(A1)"), (Missing::Acquire, "(A2)")] {
        for model in [an_exchange, an_awaited_answer] {
            assert!(fails(|| model(missing, SOUND)), "{name} of the lower end");
            assert!(fails(|| model(SOUND, missing)), "{name} of the upper end");
        }
    }
}

/// (A3) and (A4).
#[test]
fn a_record_without_one_of_its_orderings_fails() {
    assert!(fails(|| a_handled_request(Missing::Release, SOUND)), "(A3)");
    assert!(fails(|| a_handled_request(SOUND, Missing::Acquire)), "(A4)");
}

/// (A5), in each of its places, and (A6).
#[test]
fn an_attachment_without_one_of_its_orderings_fails() {
    assert!(fails(|| a_successor(SOUND, Missing::Acquire, Haste::None)), "(A5) of a successor");
    assert!(fails(|| a_successor(Missing::Release, SOUND, Haste::None)), "(A6) of a survivor");
    assert!(fails(|| a_new_incarnation(SOUND, Missing::Acquire)), "(A5) of the end that begins");
    assert!(fails(|| a_new_incarnation(Missing::Release, SOUND)), "(A6) of the other end");
}
