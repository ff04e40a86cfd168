//! Places that were passed over, and words that a faulty process has written over,
//! natively.

use towpath_machine::{Arena, Heap, Native, Ordering, Place, Processor};
use towpath_sync::Spinning;

use super::{Claim, LockFree, Towpath};
use crate::packet::{BlockHead, Extra, Header, READY, Slot};
use crate::queue::{Census, ClaimError, Queue, QueueControl, Receiver, Sender, intent};

/// A census of one sender that lives.
struct One<'a>(Native, &'a <Native as Processor>::Word);

impl Census for One<'_> {
    fn endpoints(&self) -> usize {
        1
    }
    fn load_intent(&self, _endpoint: u16, _word: usize) -> u64 {
        self.0.load(self.1, Ordering::Acquire)
    }
    fn generation(&self, _endpoint: u16) -> Option<u16> {
        Some(0)
    }
    fn owner_lives(&self, _endpoint: u16) -> bool {
        true
    }
    fn holds_block(&self, _endpoint: u16, _queue: u32) -> bool {
        false
    }
}

/// Words of a queue of two packets, and a sender's intent.
struct Words {
    control: QueueControl<Native>,
    slots: [Slot<Native>; 2],
    extras: [Extra<Native>; 2],
    intent: <Native as Processor>::Word,
}

impl Words {
    fn new() -> Words {
        Words {
            control: QueueControl::new(&Heap),
            slots: std::array::from_fn(|_| Slot::new(&Heap)),
            extras: std::array::from_fn(|_| Extra::new(&Heap)),
            intent: Heap.word(Place::NewLine, 0),
        }
    }

    fn queue(&self) -> Queue<'_, Native> {
        Queue {
            id: 0,
            control: &self.control,
            slots: &self.slots,
            extras: &self.extras,
            blocks: &[] as &[BlockHead<Native>],
            bytes: std::sync::Arc::new(Heap.bytes(0)),
            block_size: 0,
        }
    }

    /// Claims a packet by [`Towpath`].
    fn claim(&self, sender: &mut Sender) -> u64 {
        Towpath.claim(&self.queue(), sender, &Native::with_id(0), &Spinning, &self.intent).unwrap()
    }

    /// Publishes a packet that was claimed so.
    fn publish(&self, ticket: u64) {
        let (cpu, mut sender) = (Native::with_id(0), Sender::new(0, 0, 0));
        Towpath.publish(&self.queue(), &mut sender, &cpu, false, &self.intent, ticket, Header(READY));
    }
}

/// Header that a faulty process writes over a place that was passed over: the sender
/// waits for the place, and the receiver for the sender, until the receiver heals the queue.
#[test]
fn place_passed_over_with_a_lap_to_come_is_freed() {
    for lap in [1, 2, 3, 0x8bb] {
        let (cpu, words) = (Native::with_id(0), Words::new());
        let q = words.queue();
        let (mut receiver, mut sender) = (Receiver::default(), Sender::new(0, 0, 0));
        let mut claim = || LockFree.claim(&q, &mut sender, &cpu, &Spinning, &words.intent);
        let write = |header: Header| cpu.store(&words.slots[0].header, header.0, Ordering::Relaxed);
        write(Header::claimed(0, 0));
        assert_eq!(claim(), Err(ClaimError::Full), "ticket 0 is drawn");
        let census = One(cpu, &words.intent);
        assert!(LockFree.resolve_head(&q, &mut receiver, &cpu, &census, true));
        assert_eq!((receiver.head, receiver.late.len()), (1, 1));
        write(Header(READY).with_lap(lap));
        let deliver = |receiver: &mut Receiver| {
            let arrival = receiver.next(&LockFree, &q, &cpu)?;
            receiver.done(&LockFree, &q, &cpu, arrival);
            Some((arrival.ticket, arrival.late))
        };
        // One whose lap has been can't be told from a message that comes late.
        assert_eq!(deliver(&mut receiver), (lap == 1).then_some((0, true)));
        assert_eq!(receiver.heal(&LockFree, &q, &cpu), lap > 1);
        assert_eq!(claim(), Ok(0), "lap {lap}");
        LockFree.publish(&q, &mut Sender::new(0, 0, 0), &cpu, false, &words.intent, 0, Header(READY));
        if lap > 1 {
            assert!(!receiver.heal(&LockFree, &q, &cpu), "a message that comes late stays");
            assert_eq!(deliver(&mut receiver), Some((0, true)));
        }
    }
}

/// Sender that holds a ticket in a full queue whose tail a faulty process writes over:
/// the receiver does not know how far the tickets go.
#[test]
fn ticket_of_a_closed_queue_is_given_up() {
    let (cpu, words) = (Native::with_id(0), Words::new());
    let q = words.queue();
    let mut sender = Sender::new(0, 0, 0);
    let mut claim = || LockFree.claim(&q, &mut sender, &cpu, &Spinning, &words.intent);
    assert_eq!([claim(), claim(), claim()], [Ok(0), Ok(1), Err(ClaimError::Full)]);
    let intent = || cpu.load(&words.intent, Ordering::Relaxed);
    assert_eq!(intent(), intent::encode(0, intent::CLAIMED, 2));
    cpu.store(&words.control.tail, crate::queue::CLOSED | 77, Ordering::Relaxed);
    assert_eq!((claim(), intent()), (Err(ClaimError::Closed), 0));
    assert_eq!(sender.pending, None);
}

/// Receiver that dies after it has passed over a stopped sender's place: there only that
/// sender's message may be undelivered, in whatever lap it comes.
#[test]
fn message_of_a_place_passed_over_is_undelivered_when_it_comes() {
    let (cpu, words) = (Native::with_id(0), Words::new());
    let q = words.queue();
    let (mut receiver, mut sender) = (Receiver::default(), Sender::new(0, 0, 0));
    let mut claim = || words.claim(&mut sender);
    let publish = |ticket| words.publish(ticket);
    let deliver = |receiver: &mut Receiver| {
        let arrival = receiver.next(&Towpath, &q, &cpu).unwrap();
        receiver.done(&Towpath, &q, &cpu, arrival);
        Towpath.flush(&q, receiver, &cpu, &Spinning);
        arrival.ticket
    };
    let undelivered = || {
        let from = cpu.load(&words.control.consumed, Ordering::Relaxed);
        let header = |ticket| Header(cpu.load(&q.slot(ticket).header, Ordering::Relaxed));
        (from..from + 2).filter_map(|t| Towpath.undelivered(&q, &cpu, header(t), t)).collect::<Vec<_>>()
    };
    for ticket in 0..2 {
        assert_eq!(claim(), ticket);
        publish(ticket);
        assert_eq!((undelivered(), deliver(&mut receiver), undelivered()), (vec![ticket], ticket, vec![]));
    }
    let stopped = claim();
    assert!(Towpath.resolve_head(&q, &mut receiver, &cpu, &One(cpu, &words.intent), true));
    assert_eq!(undelivered(), Vec::<u64>::new(), "the place has the message of the lap before");
    for ticket in [3, 5, 7] {
        assert_eq!((claim(), undelivered()), (ticket, vec![]));
        publish(ticket);
        assert_eq!((undelivered(), deliver(&mut receiver)), (vec![ticket], ticket));
    }
    publish(stopped);
    assert_eq!((undelivered(), deliver(&mut receiver), undelivered()), (vec![stopped], stopped, vec![]));
}

/// Lock-free receiver that has passed over a place, and dies.
///
/// The message that comes there late has the ticket that its sender drew, not that of the place's
/// next turn.
#[test]
fn late_message_of_the_dead_has_its_own_ticket() {
    let (cpu, words) = (Native::with_id(0), Words::new());
    let q = words.queue();
    let header = |ticket| Header(READY).with_lap(q.lap(ticket));
    for (drawn, turn) in [(4, 4), (2, 4), (0, 4), (6, 4)] {
        assert_eq!(LockFree.undelivered(&q, &cpu, header(drawn), turn), Some(drawn));
    }
    assert_eq!(LockFree.undelivered(&q, &cpu, Header(0).with_lap(1), 4), None);
}

/// Receiver that dies after it has passed void tickets without a delivery since: the
/// message of the first valid ticket of their place is undelivered.
#[test]
fn message_of_a_place_given_back_is_undelivered() {
    let (cpu, words) = (Native::with_id(0), Words::new());
    let q = words.queue();
    let (mut receiver, mut sender) = (Receiver::default(), Sender::new(0, 0, 0));
    let mut claim = || words.claim(&mut sender);
    let publish = |ticket| words.publish(ticket);
    assert_eq!(claim(), 0);
    assert!(Towpath.resolve_head(&q, &mut receiver, &cpu, &One(cpu, &words.intent), true));
    Towpath.flush(&q, &mut receiver, &cpu, &Spinning);
    cpu.store(&words.intent, 0, Ordering::Relaxed);
    assert!(Towpath.resolve_late(&q, &mut receiver, &cpu, &One(cpu, &words.intent)));
    assert_eq!(claim(), 1);
    publish(1);
    let arrival = receiver.next(&Towpath, &q, &cpu).unwrap();
    receiver.done(&Towpath, &q, &cpu, arrival);
    assert_eq!(receiver.next(&Towpath, &q, &cpu), None);
    Towpath.flush(&q, &mut receiver, &cpu, &Spinning);
    assert_eq!((claim(), claim()), (3, 4));
    publish(4);
    assert_eq!((cpu.load(&words.control.consumed, Ordering::Relaxed), receiver.head), (2, 3));
    let header = Header(cpu.load(&q.slot(4).header, Ordering::Relaxed));
    assert_eq!(Towpath.undelivered(&q, &cpu, header, 2), Some(4));
}
