//! The stream under the model checker: space, opening, sleep, death of either side; and
//! the proof that each of its orderings is needed: without it, loom finds the fault.
//!
//! The words of a stream are data too ([`weakened::Rows`]): what can be read before it is written,
//! or overwritten before it is read, fails the model. Sleepers never time out: a lost wake-up is a
//! deadlock.

use std::sync::Arc;

use loom::thread;

use towpath_channel::doorbell;
use towpath_channel::packet::{Form, MAX_ARGS};
use towpath_channel::path::PacketContent;
use towpath_channel::stream::{self, Ends, OPEN, Stream, StreamReceiver, StreamSender};
use towpath_machine::{Arena, LoomArena, LoomCell, Ordering, Park, Place, Processor};
use towpath_sync::Spinning;
use towpath_testkit::{model, preemptions};

use crate::weakened::{Missing, Rows, SOUND, Weakened, Word, fails};

/// Number of words of a stream here.
const WORDS: usize = 16;
/// Arguments of the longest record: two of them are more than the words hold.
const LONG: usize = 12;
const TAG: u64 = 77;

type Words = Arc<Stream<Weakened, WORDS>>;
type Sender = StreamSender<Words>;
type Receiver = StreamReceiver<Words>;

fn ends(endpoint: u16) -> Ends {
    Ends { endpoint, generation: 3, receiver_generation: 9 }
}

/// A stream, and its receiver's word of streams and doorbell.
#[derive(Clone)]
struct Shared {
    stream: Words,
    news: Arc<Word>,
    doorbell: Arc<Word>,
}

/// A message: its number, its number of arguments, and the ticket that it comes after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message {
    number: u8,
    count: usize,
    after: u64,
}

const fn message(number: u8, count: usize, after: u64) -> Message {
    Message { number, count, after }
}

impl Message {
    fn args(self) -> [u32; MAX_ARGS] {
        core::array::from_fn(|n| if n < self.count { u32::from(self.number) << 8 | n as u32 } else { 0 })
    }

    fn with<T>(self, act: impl FnOnce(&PacketContent<'_>) -> T) -> T {
        let (args, handler) = (self.args(), self.number);
        let args = &args[..self.count];
        act(&PacketContent { form: Form::Short, handler, tag: TAG, args, aux: 0, source: 5 })
    }
}

impl Shared {
    fn new() -> Shared {
        let arena = LoomArena { parking: true };
        Shared {
            stream: Arc::new(Stream::new(&Rows)),
            news: Arc::new(Arena::<Weakened>::word(&LoomArena::default(), Place::NewLine, 0)),
            doorbell: Arc::new(Arena::<Weakened>::word(&arena, Place::NewLine, 0)),
        }
    }

    /// Takes the stream and sends its first message there. Returns whether the receiver
    /// sleeps.
    fn open(&self, cpu: &Weakened, sender: &Sender, ends: Ends, first: Message) -> Option<bool> {
        let stream = Arc::clone(&self.stream);
        first.with(|out| sender.open(cpu, stream, (&*self.news, 0), ends, out, first.after))
    }

    /// Receives from the stream, if it was opened since the last look.
    fn attach(&self, cpu: &Weakened) -> Option<Receiver> {
        let numbers = stream::has_news(cpu, &self.news).then(|| stream::take_news(cpu, &self.news))?;
        (numbers != 0).then(|| self.receive_from(cpu, numbers))
    }

    /// Receives from the stream, which the news names.
    fn receive_from(&self, cpu: &Weakened, numbers: u64) -> Receiver {
        assert_eq!(numbers, 1);
        let owner = self.stream.owner(cpu);
        assert!(owner & OPEN != 0, "the owner word is there");
        StreamReceiver::new(cpu, Arc::clone(&self.stream), owner)
    }

    /// Both sides of the stream, in which this first message is.
    fn opened(&self, first: Message) -> (Sender, Receiver) {
        let (cpu, sender) = (Weakened::new(0, SOUND), Sender::default());
        assert_eq!(self.open(&cpu, &sender, ends(1), first), Some(false));
        let receiver = self.attach(&cpu).expect("it was said");
        (sender, receiver)
    }
}

/// Sends a message; waits for space. Returns whether the receiver sleeps.
fn send(cpu: &Weakened, sender: &Sender, message: Message) -> bool {
    loop {
        match message.with(|out| sender.send(cpu, out, message.after)) {
            Ok(must_wake) => return must_wake,
            Err(stream::NoSpace) => sender.await_space(cpu, &Spinning, 0),
        }
    }
}

/// Takes the next record, if one is there, and handles it.
fn take_and(cpu: &Weakened, receiver: &Receiver, handle: impl FnOnce()) -> Option<Message> {
    let record = receiver.look(cpu)?;
    let mut args = [0; MAX_ARGS];
    receiver.take(cpu, &record, &mut args);
    let taken = message(record.header.handler(), record.header.args(), record.after);
    assert_eq!((receiver.tag(), args, record.header.source()), (TAG, taken.args(), 5));
    assert_eq!(record.header.form(), Some(Form::Short));
    handle();
    receiver.done(cpu, &record);
    if receiver.has_space_to_say() {
        receiver.say_space(cpu, &Spinning);
    }
    Some(taken)
}

fn take(cpu: &Weakened, receiver: &Receiver) -> Option<Message> {
    take_and(cpu, receiver, || {})
}

/// Looks again and again. Returns the first find.
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = look() {
            return found;
        }
        thread::yield_now();
    }
}

// ---- space ----

/// More messages than the words hold; the first one opens the stream. Each is beside the
/// ticket that its record names: 0 where it has not changed.
fn more_than_fits(messages: &'static [(Message, u64)], at_sender: Missing, at_receiver: Missing) {
    model(preemptions(2, 3), move || {
        let shared = Shared::new();
        let (sender, receiver) = shared.opened(messages[0].0);
        let other = thread::spawn(move || {
            let cpu = Weakened::new(1, at_sender);
            messages[1..].iter().for_each(|(message, _)| assert!(!send(&cpu, &sender, *message)));
            sender
        });
        let cpu = Weakened::new(0, at_receiver);
        for (sent, after) in messages {
            assert_eq!(until(|| take(&cpu, &receiver)), Message { after: *after, ..*sent }, "in order");
        }
        let sender = other.join().unwrap();
        assert_eq!((sender.sent(), receiver.taken()), (messages.len() as u64, messages.len() as u64));
        assert_eq!(take(&cpu, &receiver), None, "none comes twice");
    });
}

/// Each waits for space.
const LONG_ONES: &[(Message, u64)] =
    &[(message(0, LONG, 3), 3), (message(1, LONG, 3), 0), (message(2, LONG, 4), 4)];

/// Several there at a time.
const SHORT_ONES: &[(Message, u64)] = &[
    (message(0, 1, 3), 3),
    (message(1, 4, 3), 0),
    (message(2, 0, 3), 0),
    (message(3, 5, 6), 6),
    (message(4, 3, 6), 0),
    (message(5, 2, 7), 7),
];

// ---- opening ----

/// The sender takes the stream and says so; the receiver sees it and receives.
fn an_opening(at_sender: Missing, at_receiver: Missing) {
    model(3, move || {
        let shared = Shared::new();
        let at_other = shared.clone();
        let other = thread::spawn(move || {
            let (cpu, sender) = (Weakened::new(1, at_sender), Sender::default());
            assert_eq!(at_other.open(&cpu, &sender, ends(1), message(1, 3, 7)), Some(false));
            assert!(sender.is_open() && sender.takes(TAG, LONG) && !sender.takes(TAG + 1, LONG));
            send(&Weakened::new(1, SOUND), &sender, message(2, 1, 7));
        });
        let cpu = Weakened::new(0, at_receiver);
        let receiver = until(|| shared.attach(&cpu));
        assert_eq!(Ends::of(receiver.owner()), Some(ends(1)));
        let cpu = Weakened::new(0, SOUND);
        assert_eq!(take(&cpu, &receiver), Some(message(1, 3, 7)), "it was there before the news");
        assert_eq!(until(|| take(&cpu, &receiver)), message(2, 1, 0));
        other.join().unwrap();
        assert!(!stream::has_news(&cpu, &shared.news));
    });
}

/// Two senders want one stream.
fn one_of_two() {
    model(3, || {
        let shared = Shared::new();
        let others = [1, 2].map(|me: u8| {
            let at_other = shared.clone();
            thread::spawn(move || {
                let (cpu, sender) = (Weakened::new(me.into(), SOUND), Sender::default());
                let opened = at_other.open(&cpu, &sender, ends(me.into()), message(me, 2, 0)).is_some();
                assert_eq!(sender.is_open(), opened);
                opened
            })
        });
        let cpu = Weakened::new(0, SOUND);
        let receiver = until(|| shared.attach(&cpu));
        let taken = take(&cpu, &receiver).expect("it was there before the news");
        assert_eq!(Ends::of(receiver.owner()), Some(ends(taken.number.into())));
        let opened = others.map(|other| other.join().unwrap());
        assert_eq!(opened, [taken.number == 1, taken.number == 2]);
        assert!(shared.attach(&cpu).is_none() && take(&cpu, &receiver).is_none());
    });
}

/// The receiver refuses while a sender opens, after a look or without one: it has the
/// record, or the sender knows that it has not.
fn a_refusal(looks: bool, at_sender: Missing, at_receiver: Missing) {
    model(3, move || {
        let shared = Shared::new();
        let at_other = shared.clone();
        let other = thread::spawn(move || {
            let (cpu, sender) = (Weakened::new(1, at_sender), Sender::default());
            let opened = at_other.open(&cpu, &sender, ends(1), message(1, 3, 7)).is_some();
            assert_eq!(sender.is_open(), opened);
            (sender, opened)
        });
        let cpu = Weakened::new(0, at_receiver);
        let before = if looks { shared.attach(&Weakened::new(0, SOUND)) } else { None };
        let numbers = stream::refuse(&cpu, &shared.news);
        assert!(before.is_none() || numbers == 0, "it is said once");
        let receiver = before.or_else(|| (numbers != 0).then(|| shared.receive_from(&cpu, numbers)));
        let cpu = Weakened::new(0, SOUND);
        let taken = receiver.as_ref().and_then(|receiver| take(&cpu, receiver));
        let (sender, opened) = other.join().unwrap();
        assert_eq!(taken, opened.then_some(message(1, 3, 7)), "received, or known not to be");
        assert_eq!(shared.stream.owner(&cpu) != 0, opened, "given back");
        assert_eq!(stream::refuse(&cpu, &shared.news) | stream::take_news(&cpu, &shared.news), 0);
        if !opened {
            assert!(sender.unhandled(&cpu).is_empty());
        }
        assert_eq!(shared.open(&cpu, &Sender::default(), ends(2), message(2, 0, 0)), None);
    });
}

// ---- sleep ----

/// A fault of a receiver that sleeps, or of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Oversleep {
    None,
    /// Sleeps without a mark in the word of streams.
    DoesNotArmNews,
    /// Sleeps without a mark in the stream.
    DoesNotArmStream,
    /// Sleeps although it could not be armed.
    IgnoresRecord,
    /// Takes the mark back with a store, and with it a record that has come meanwhile.
    DisarmsByStore,
    /// The sender sends and does not wake.
    DoesNotWake,
}

/// The receiver's turn: everything that is there.
fn poll(cpu: &Weakened, shared: &Shared, receiver: &mut Option<Receiver>, taken: &mut Vec<Message>) -> bool {
    let before = taken.len();
    if let Some(new) = shared.attach(cpu) {
        assert!(receiver.replace(new).is_none());
    }
    while let Some(next) = receiver.as_ref().and_then(|receiver| take(cpu, receiver)) {
        taken.push(next);
    }
    taken.len() > before
}

/// A sender opens a stream of a receiver that sleeps, and sends once more.
fn a_sleeping_receiver(fault: Oversleep) {
    model(4, move || {
        let shared = Shared::new();
        let at_other = shared.clone();
        let other = thread::spawn(move || {
            let (cpu, sender) = (Weakened::new(1, SOUND), Sender::default());
            let wake = |must_wake| {
                if must_wake && fault != Oversleep::DoesNotWake {
                    doorbell::wake(&cpu, &at_other.doorbell);
                }
            };
            wake(at_other.open(&cpu, &sender, ends(1), message(1, 2, 0)).expect("it is free"));
            wake(send(&cpu, &sender, message(2, 2, 0)));
        });
        let (cpu, mut receiver, mut taken) = (Weakened::new(0, SOUND), None, Vec::new());
        while taken.len() < 2 {
            if poll(&cpu, &shared, &mut receiver, &mut taken) {
                continue;
            }
            let count = doorbell::count(&cpu, &shared.doorbell);
            // No look after it: the exchanges have decided.
            let in_news = fault == Oversleep::DoesNotArmNews || stream::arm_news(&cpu, &shared.news);
            let in_stream = in_news
                && (fault == Oversleep::DoesNotArmStream || receiver.as_ref().is_none_or(|r| r.arm(&cpu)));
            if in_stream || fault == Oversleep::IgnoresRecord {
                cpu.park(&shared.doorbell, count, u64::MAX);
            } else if in_news {
                assert!(receiver.as_ref().is_some_and(|r| r.look(&cpu).is_some()), "neither armed nor there");
            } else {
                assert!(stream::has_news(&cpu, &shared.news), "neither armed nor opened");
            }
            stream::disarm_news(&cpu, &shared.news);
            if let Some(receiver) = &receiver {
                if fault == Oversleep::DisarmsByStore {
                    cpu.store(receiver.awaited(), 0, Ordering::Release);
                }
                receiver.disarm(&cpu);
            }
        }
        assert_eq!(taken, [message(1, 2, 0), message(2, 2, 0)]);
        other.join().unwrap();
    });
}

// ---- death of a receiver ----

fn new_cell() -> Arc<LoomCell> {
    Arc::new(Arena::<Weakened>::cell(&LoomArena::default(), Place::NewLine, 0))
}

const THREE: [Message; 3] = [message(0, 2, 3), message(1, 1, 4), message(2, 5, 4)];

/// A receiver handles two of three records and may stop anywhere, while the survivor
/// asks: those that count as handled have had their effects, all others come back.
fn handled_records(at_receiver: Missing, at_survivor: Missing) {
    model(3, move || {
        let shared = Shared::new();
        let (sender, receiver) = shared.opened(THREE[0]);
        THREE[1..].iter().for_each(|message| assert!(!send(&Weakened::new(0, SOUND), &sender, *message)));
        let effects = [new_cell(), new_cell()];
        let at_other = effects.clone();
        let other = thread::spawn(move || {
            let cpu = Weakened::new(1, at_receiver);
            for (effect, message) in at_other.iter().zip(THREE) {
                let taken = take_and(&cpu, &receiver, || cpu.write(effect, 6));
                assert_eq!(taken, Some(message));
            }
        });
        let cpu = Weakened::new(0, at_survivor);
        let back = sender.unhandled(&cpu);
        let handled = THREE.len() - back.len();
        assert!(handled <= effects.len());
        effects[..handled].iter().for_each(|effect| assert_eq!(cpu.read(effect), 6));
        for (n, record) in back.iter().enumerate() {
            let (sent, number) = (THREE[handled + n], (handled + n) as u64);
            let known = [Some(3), Some(4), None][handled + n];
            assert_eq!((record.number, record.after, record.args), (number, known, sent.args()));
            assert_eq!((record.header.handler(), record.header.args()), (sent.number, sent.count));
        }
        assert!(!sender.is_open() && sender.unhandled(&cpu).is_empty(), "once");
        other.join().unwrap();
    });
}

/// A step after which a receiver dies, of its first or second record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Look,
    Take,
    Done,
}

/// A receiver dies after this step of the record of this number.
fn a_death_after(last: Last, number: usize) {
    model(1, move || {
        let shared = Shared::new();
        let (sender, receiver) = shared.opened(THREE[0]);
        let cpu = Weakened::new(0, SOUND);
        THREE[1..].iter().for_each(|message| assert!(!send(&cpu, &sender, *message)));
        THREE[..number].iter().for_each(|message| assert_eq!(take(&cpu, &receiver), Some(*message)));
        let record = receiver.look(&cpu).expect("it was sent");
        if last != Last::Look {
            receiver.take(&cpu, &record, &mut [0; MAX_ARGS]);
        }
        if last == Last::Done {
            receiver.done(&cpu, &record);
        }
        let back = sender.unhandled(&cpu);
        let first = number + usize::from(last == Last::Done);
        let numbers: Vec<_> = back.iter().map(|record| record.number as usize).collect();
        assert_eq!(numbers, (first..THREE.len()).collect::<Vec<_>>());
        assert!(back.iter().zip(&THREE[first..]).all(|(record, sent)| record.args == sent.args()));
    });
}

/// The survivor gives the stream of a dead receiver back, and another sender takes it for
/// the successor.
fn a_stream_given_back(at_survivor: Missing, at_next: Missing) {
    model(3, move || {
        let shared = Shared::new();
        let (sender, receiver) = shared.opened(message(0, LONG, 3));
        drop(receiver);
        let other = thread::spawn(move || sender.unhandled(&Weakened::new(1, at_survivor)).len());
        takes_the_stream(&shared, at_next);
        assert_eq!(other.join().unwrap(), 1);
    });
}

/// Another sender takes the stream as soon as it is free; its record is received.
fn takes_the_stream(shared: &Shared, at_next: Missing) {
    let (cpu, next) = (Weakened::new(0, at_next), Sender::default());
    let must_wake = until(|| shared.open(&cpu, &next, ends(2), message(9, LONG - 1, 8)));
    assert!(!must_wake && next.sent() == 1);
    let cpu = Weakened::new(0, SOUND);
    let receiver = shared.attach(&cpu).expect("it was said");
    assert_eq!(Ends::of(receiver.owner()), Some(ends(2)));
    assert_eq!(take(&cpu, &receiver), Some(message(9, LONG - 1, 8)));
    assert_eq!(take(&cpu, &receiver), None);
}

// ---- death of a sender ----

/// The receiver takes the stream of a dead sender back when it is empty, and another one
/// takes it.
fn a_stream_taken_back(at_receiver: Missing, at_next: Missing) {
    model(3, move || {
        let shared = Shared::new();
        let (sender, receiver) = shared.opened(message(0, LONG, 3));
        drop(sender);
        let other = thread::spawn(move || {
            let cpu = Weakened::new(1, at_receiver);
            assert_eq!(take(&cpu, &receiver), Some(message(0, LONG, 3)));
            receiver.stream().take_back(&cpu, receiver.owner());
        });
        takes_the_stream(&shared, at_next);
        other.join().unwrap();
    });
}

/// A sender dies when it has taken the stream, before it is open: nothing was sent, and
/// the stream is another one's when the receiver has taken it back.
fn a_death_before_the_stream_is_open() {
    model(3, || {
        let shared = Shared::new();
        let at_other = shared.clone();
        let other = thread::spawn(move || {
            let (cpu, sender) = (Weakened::new(1, Missing::Life), Sender::default());
            let dies = || _ = at_other.open(&cpu, &sender, ends(1), message(1, 3, 7));
            assert!(fails(dies), "it died");
        });
        let cpu = Weakened::new(0, SOUND);
        // Else loom passes over the schedules in which it has taken the stream by now.
        thread::yield_now();
        // While it may live: not open, so nothing to receive.
        assert!(shared.attach(&cpu).is_none());
        assert_eq!(shared.stream.owner(&cpu) & OPEN, 0);
        other.join().unwrap();
        let owner = shared.stream.owner(&cpu);
        assert_eq!((Ends::of(owner), owner & OPEN), (Some(ends(1)), 0));
        shared.stream.take_back(&cpu, owner);
        takes_the_stream(&shared, SOUND);
    });
}

/// A sender dies when the stream is open, before the news: the receiver finds it gone and
/// receives its record. The census orders nothing here. The news goes to a word without a reader.
fn a_death_without_news(at_sender: Missing, at_receiver: Missing) {
    model(3, move || {
        let (shared, nowhere) = (Shared::new(), Shared::new());
        let dead = Arc::clone(&nowhere.doorbell);
        let at_other = Shared { stream: Arc::clone(&shared.stream), ..nowhere };
        let other = thread::spawn(move || {
            let (cpu, sender) = (Weakened::new(1, at_sender), Sender::default());
            assert!(at_other.open(&cpu, &sender, ends(1), message(1, 3, 7)).is_some());
            cpu.store(&at_other.doorbell, 1, Ordering::Relaxed);
        });
        let cpu = Weakened::new(0, at_receiver);
        let owner = until(|| {
            let is_gone = cpu.load(&dead, Ordering::Relaxed) == 1;
            let owner = shared.stream.owner(&cpu);
            if is_gone && Ends::of(owner).is_some() && owner & OPEN == 0 {
                // An old value: the exchange leaves the stream alone.
                shared.stream.take_back(&cpu, owner);
            }
            (is_gone && owner & OPEN != 0).then_some(owner)
        });
        let receiver = StreamReceiver::new(&cpu, Arc::clone(&shared.stream), owner);
        let cpu = Weakened::new(0, SOUND);
        assert_eq!(take(&cpu, &receiver), Some(message(1, 3, 7)));
        assert_eq!(take(&cpu, &receiver), None);
        other.join().unwrap();
        shared.stream.take_back(&cpu, owner);
        takes_the_stream(&shared, SOUND);
    });
}

#[test]
fn records_arrive_whole_in_order_and_in_words_used_again() {
    more_than_fits(LONG_ONES, SOUND, SOUND);
    more_than_fits(SHORT_ONES, SOUND, SOUND);
}

#[test]
fn the_record_with_which_a_stream_is_opened_arrives() {
    an_opening(SOUND, SOUND);
}

#[test]
fn a_stream_is_one_senders() {
    one_of_two();
}

#[test]
fn a_record_is_received_or_refused() {
    a_refusal(false, SOUND, SOUND);
    a_refusal(true, SOUND, SOUND);
}

#[test]
fn a_sleeping_receiver_is_woken_for_each_record() {
    a_sleeping_receiver(Oversleep::None);
}

#[test]
fn a_fault_around_sleep_loses_a_wake_up_or_a_record() {
    use Oversleep::{DisarmsByStore, DoesNotArmNews, DoesNotArmStream, DoesNotWake, IgnoresRecord};
    for fault in [DoesNotArmNews, DoesNotArmStream, IgnoresRecord, DisarmsByStore, DoesNotWake] {
        assert!(fails(|| a_sleeping_receiver(fault)), "{fault:?}");
    }
}

#[test]
fn what_a_dead_receiver_did_not_handle_comes_back_in_order() {
    handled_records(SOUND, SOUND);
    for last in [Last::Look, Last::Take, Last::Done] {
        (0..THREE.len()).for_each(|number| a_death_after(last, number));
    }
}

#[test]
fn a_stream_without_receiver_or_sender_is_used_again() {
    a_stream_given_back(SOUND, SOUND);
    a_stream_taken_back(SOUND, SOUND);
}

#[test]
fn a_sender_that_dies_while_it_opens_has_sent_nothing_or_all() {
    a_death_before_the_stream_is_open();
    a_death_without_news(SOUND, SOUND);
}

/// (M1) to (M4).
#[test]
fn records_without_one_of_their_orderings_fail() {
    assert!(fails(|| more_than_fits(LONG_ONES, Missing::UpdateOrder, SOUND)), "(M1)");
    assert!(fails(|| more_than_fits(LONG_ONES, SOUND, Missing::Acquire)), "(M2)");
    assert!(fails(|| more_than_fits(LONG_ONES, Missing::Acquire, SOUND)), "(M3)");
    assert!(fails(|| more_than_fits(LONG_ONES, SOUND, Missing::Release)), "(M4)");
}

/// (M5) and (M6).
#[test]
fn a_number_of_handled_words_without_one_of_its_orderings_fails() {
    assert!(fails(|| handled_records(Missing::Release, SOUND)), "(M5)");
    assert!(fails(|| handled_records(SOUND, Missing::Acquire)), "(M6)");
}

/// (M7), and (M8) in each of its places.
#[test]
fn a_stream_used_again_without_one_of_its_orderings_fails() {
    assert!(fails(|| a_stream_given_back(SOUND, Missing::UpdateOrder)), "(M7) after a sender");
    assert!(fails(|| a_stream_given_back(Missing::Release, SOUND)), "(M8) of a sender");
    assert!(fails(|| a_stream_taken_back(SOUND, Missing::UpdateOrder)), "(M7) after a receiver");
    assert!(fails(|| a_stream_taken_back(Missing::UpdateOrder, SOUND)), "(M8) of a receiver");
}

/// (M9) to (M12), the last one in each of its places.
#[test]
fn an_opening_without_one_of_its_orderings_fails() {
    assert!(fails(|| a_death_without_news(Missing::Release, SOUND)), "(M9)");
    assert!(fails(|| a_death_without_news(SOUND, Missing::Acquire)), "(M10)");
    assert!(fails(|| an_opening(Missing::UpdateOrder, SOUND)), "(M11) before a look");
    assert!(fails(|| an_opening(SOUND, Missing::UpdateOrder)), "(M12) of a look");
    assert!(fails(|| a_refusal(false, Missing::UpdateOrder, SOUND)), "(M11) before a refusal");
    assert!(fails(|| a_refusal(false, SOUND, Missing::UpdateOrder)), "(M12) of a refusal");
}
