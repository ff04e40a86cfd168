//! Lengths of records, hostile words, and the stream against a queue of the standard
//! library, natively.

use std::collections::VecDeque;

use proptest::prelude::*;
use towpath_machine::{Heap, Native};
use towpath_sync::Spinning;

use super::*;
use crate::packet::{Form, READY_BULK, SKIPPED};

/// Small, for many laps.
const SMALL: usize = 16;
const TAG: u64 = 4;

type Words<const N: usize> = Stream<Native, N>;

/// Both ends of a stream, in one thread.
struct Both<'a, const N: usize> {
    cpu: Native,
    sender: StreamSender<&'a Words<N>>,
    receiver: StreamReceiver<&'a Words<N>>,
}

fn ends() -> Ends {
    Ends { endpoint: 4095, generation: 0xffff, receiver_generation: 0xfffe }
}

fn out(args: &[u32]) -> PacketContent<'_> {
    let handler = args.first().map_or(0, |first| *first as u8);
    PacketContent { form: Form::Short, handler, tag: TAG, args, aux: 0, source: 0xf_ffff }
}

impl<'a, const N: usize> Both<'a, N> {
    /// Opens a stream with a message.
    fn opened(stream: &'a Words<N>, args: &[u32], after: u64) -> Self {
        let (cpu, sender) = (Native::with_id(0), StreamSender::default());
        let news = Heap.word(Place::NewLine, 0);
        assert_eq!(sender.open(&cpu, stream, (&news, 31), ends(), &out(args), after), Some(false));
        assert!(has_news(&cpu, &news));
        assert_eq!((take_news(&cpu, &news), take_news(&cpu, &news)), (1 << 31, 0));
        let owner = stream.owner(&cpu);
        assert_eq!((Ends::of(owner), owner & OPEN), (Some(ends()), OPEN));
        Both { cpu, sender, receiver: StreamReceiver::new(&cpu, stream, owner) }
    }

    fn send(&self, args: &[u32], after: u64) -> Result<bool, NoSpace> {
        self.sender.send(&self.cpu, &out(args), after)
    }

    /// Takes and handles the next record. Returns its arguments and its ticket.
    fn take(&self) -> Option<(Vec<u32>, u64)> {
        let record = self.receiver.look(&self.cpu)?;
        let mut args = [0; MAX_ARGS];
        self.receiver.take(&self.cpu, &record, &mut args);
        self.receiver.done(&self.cpu, &record);
        if self.receiver.has_space_to_say() {
            self.receiver.say_space(&self.cpu, &Spinning);
        }
        let args = args[..record.header.args().min(MAX_ARGS)].to_vec();
        assert_eq!((record.header.form(), record.header.has_block()), (Some(Form::Short), false));
        Some((args, record.after))
    }
}

fn numbers(first: u32, count: usize) -> Vec<u32> {
    (first..).take(count).collect()
}

#[test]
fn a_stream_has_the_layout_of_its_words() {
    assert_eq!(size_of::<Words<WORDS>>(), 8 * WORDS + 4 * 64);
    assert_eq!(align_of::<Words<WORDS>>(), 128);
}

#[test]
fn a_record_is_as_long_as_its_arguments_and_ticket() {
    for count in 0..=STREAM_ARGS {
        let stream = Words::<WORDS>::new(&Heap);
        let both = Both::opened(&stream, &numbers(5, count), 0);
        let first = 2 + count.div_ceil(2) as u64;
        assert_eq!(both.sender.at.get(), first);
        both.send(&numbers(6, count), 0).unwrap();
        both.send(&numbers(7, count), 1 << 40).unwrap();
        assert_eq!(both.sender.at.get(), 3 * first - 1);
        let taken = [both.take(), both.take(), both.take(), both.take()];
        let [a, b, c] = [5, 6, 7].map(|first| numbers(first, count));
        assert_eq!(taken, [Some((a, 0)), Some((b, 0)), Some((c, 1 << 40)), None]);
        assert_eq!((both.receiver.at.get(), both.receiver.taken()), (3 * first - 1, 3));
    }
}

#[test]
fn messages_that_a_stream_does_not_take() {
    let stream = Words::<SMALL>::new(&Heap);
    let (cpu, news) = (Native::with_id(0), Heap.word(Place::NewLine, 0));
    let long = numbers(0, STREAM_ARGS + 1);
    let sender = StreamSender::default();
    assert_eq!(sender.send(&cpu, &out(&[]), 0), Err(NoSpace), "it has no stream");
    assert_eq!(sender.open(&cpu, &stream, (&news, 0), ends(), &out(&long), 0), None);
    assert_eq!(stream.owner(&cpu), 0, "it still has no owner");
    let both = Both::opened(&stream, &[1], 0);
    assert!(both.sender.takes(TAG, STREAM_ARGS));
    assert!(!both.sender.takes(TAG, STREAM_ARGS + 1) && !both.sender.takes(TAG + 1, 0));
    let second = StreamSender::default();
    assert_eq!(second.open(&cpu, &stream, (&news, 0), ends(), &out(&[]), 0), None, "it is another one's");
    assert!(second.unhandled(&cpu).is_empty() && stream.owner(&cpu) != 0);
}

/// Polls a stream full of one header, or of random ones: each record is in bounds, and
/// leads further on.
fn survives<const N: usize>(fill: impl Fn(usize) -> u64) {
    let stream = Words::<N>::new(&Heap);
    let both = Both::opened(&stream, &[], 0);
    for (n, word) in stream.words.iter().enumerate() {
        both.cpu.store(word, fill(n), Ordering::Relaxed);
    }
    for _ in 0..4 * N {
        let before = both.receiver.at.get();
        let armed = both.receiver.arm(&both.cpu);
        both.receiver.disarm(&both.cpu);
        assert_eq!(both.receiver.look(&both.cpu).is_none(), armed, "armed where nothing can be taken");
        let Some((args, _)) = both.take() else { break };
        assert!(args.len() <= MAX_ARGS);
        let len = both.receiver.at.get() - before;
        assert!((1..=2 + MAX_ARGS as u64 / 2).contains(&len), "{len} words");
    }
}

#[test]
fn hostile_headers_lead_to_records_within_bounds() {
    let of = |state: u64, form: u64, args: u64| state | form << 4 | args << 15;
    for state in [0, 1, READY, READY_BULK, SKIPPED, READY | SLEEPS, 15] {
        for form in 0..8 {
            for args in [0, 12, 13, 16, 17, 31] {
                for gate in [0, GATE, u64::MAX << 48] {
                    survives::<SMALL>(|_| of(state, form, args) | gate);
                }
            }
        }
    }
    survives::<WORDS>(|_| u64::MAX);
    survives::<WORDS>(|_| u64::MAX << 3 | READY);
}

#[test]
fn hostile_space_is_no_space_or_too_much() {
    for space in [u64::MAX, PARKED, PARKED - 1, PARKED | 7, 1 << 62, 0] {
        let stream = Words::<SMALL>::new(&Heap);
        let both = Both::opened(&stream, &numbers(0, STREAM_ARGS), 0);
        both.cpu.store(&stream.space, space, Ordering::Relaxed);
        let sent = (0..100).take_while(|n| both.send(&[*n; STREAM_ARGS], (*n).into()).is_ok()).count();
        let expected = match space & !PARKED {
            0 => 0,
            // Words up to 16 + 7, and the first record has eight; the longest takes nine.
            7 => 1,
            _ => 100,
        };
        assert_eq!(sent, expected, "{space:#x}");
        both.sender.await_space(&both.cpu, &Spinning, 0);
        while both.take().is_some_and(|(args, _)| args.len() <= STREAM_ARGS) {}
    }
}

#[test]
fn hostile_number_of_handled_words_gives_back_what_can_be() {
    let sent = [numbers(0, 1), numbers(10, 12), numbers(20, 0)];
    // Words: 3, 7, 1.
    let after = |handled: u64| {
        let stream = Words::<SMALL>::new(&Heap);
        let both = Both::opened(&stream, &sent[0], 0);
        // Two laps before, so that there is something to be wrong about.
        for _ in 0..6 {
            both.take().unwrap();
            both.send(&sent[1], 0).unwrap();
        }
        both.take().unwrap();
        both.send(&sent[1], 0).unwrap();
        both.send(&sent[2], 0).unwrap();
        let end = both.sender.at.get();
        both.cpu.store(&stream.handled, end.wrapping_add(handled), Ordering::Relaxed);
        let back = both.sender.unhandled(&both.cpu);
        assert_eq!(stream.owner(&both.cpu), 0, "given back");
        assert!(!both.sender.is_open() && both.sender.unhandled(&both.cpu).is_empty(), "once");
        assert!(back.iter().zip(back.iter().skip(1)).all(|(a, b)| a.number + 1 == b.number));
        back
    };
    let minus = u64::wrapping_neg;
    assert_eq!(after(minus(8)).len(), 2, "as it is");
    assert_eq!(after(minus(8))[0].args[..12], sent[1]);
    assert_eq!((after(minus(1)).len(), after(0).len()), (1, 0));
    // It makes no sense.
    for handled in [1, 16, minus(17), minus(1 << 20), u64::MAX / 2, 1 << 63] {
        assert_eq!(after(handled).len(), 0, "{handled:#x}");
    }
    // In the midst of a record: nonsense, as much as there are words.
    (2..=16).for_each(|handled| assert!(after(minus(handled)).len() <= SMALL));
}

#[derive(Clone, Debug)]
enum StreamStep {
    /// Sends so many arguments, the ticket moved on by so much.
    Send(usize, u64),
    Take,
    Sleep,
    WakeUp,
}

fn steps() -> impl Strategy<Value = Vec<StreamStep>> {
    let step = prop_oneof![
        5 => (0..=STREAM_ARGS, prop_oneof![3 => Just(0), 1 => 1..1u64 << 40]).prop_map(|(n, by)| StreamStep::Send(n, by)),
        5 => Just(StreamStep::Take),
        1 => Just(StreamStep::Sleep),
        1 => Just(StreamStep::WakeUp),
    ];
    prop::collection::vec(step, 1..1500)
}

/// Plays the steps against a queue of the standard library; at the end the receiver is
/// gone, and what is still in the queue comes back.
fn like_a_queue<const N: usize>(steps: &[StreamStep]) {
    let stream = Words::<N>::new(&Heap);
    let both = Both::opened(&stream, &[0], 1);
    let mut model = VecDeque::from([(vec![0], 1)]);
    let (mut ticket, mut next, mut sleeps) = (1, 1, false);
    for step in steps {
        match *step {
            StreamStep::Send(count, by) => {
                let (args, gate) = (numbers(next, count), if by == 0 { 0 } else { ticket + by });
                match both.send(&args, ticket + by) {
                    Ok(must_wake) => {
                        assert_eq!(must_wake, sleeps, "a sleeping receiver is woken by the first record");
                        sleeps = false;
                        model.push_back((args, gate));
                        next += count as u32 + 1;
                        ticket += by;
                    }
                    Err(NoSpace) => {
                        // The longest record, the 0, and what need not yet be said.
                        let unread = both.sender.at.get() - both.receiver.at.get();
                        assert!(unread + 9 + N as u64 / PUBLICATIONS > N as u64, "{unread} words of {N}");
                    }
                }
            }
            StreamStep::Take => assert_eq!(both.take(), model.pop_front()),
            StreamStep::Sleep => {
                let armed = both.receiver.arm(&both.cpu);
                assert_eq!(armed, model.is_empty());
                sleeps |= armed;
            }
            StreamStep::WakeUp => {
                both.receiver.disarm(&both.cpu);
                sleeps = false;
            }
        }
        assert_eq!(both.sender.sent() - both.receiver.taken(), model.len() as u64);
    }
    let (back, first) = (both.sender.unhandled(&both.cpu), both.receiver.taken());
    assert_eq!(back.len(), model.len());
    for (n, (record, (args, gate))) in back.iter().zip(&model).enumerate() {
        assert_eq!((&record.args[..args.len()], record.header.args()), (&args[..], args.len()));
        assert_eq!((record.after.unwrap_or(0), record.number), (*gate, first + n as u64));
    }
    assert_eq!(stream.owner(&both.cpu), 0);
}

proptest! {
    #[test]
    fn a_stream_is_a_queue(steps in steps()) {
        like_a_queue::<SMALL>(&steps);
        like_a_queue::<64>(&steps);
    }

    #[test]
    fn hostile_words_lead_to_records_within_bounds(words in prop::collection::vec(any::<u64>(), SMALL)) {
        survives::<SMALL>(|n| words[n]);
        survives::<SMALL>(|n| words[n] & !7 | READY);
    }

    #[test]
    fn hostile_owner_words_name_an_owner_or_none(owner in any::<u64>()) {
        let stream = Words::<SMALL>::new(&Heap);
        let cpu = Native::with_id(0);
        cpu.store(&stream.owner, owner, Ordering::Relaxed);
        assert_eq!(Ends::of(owner).is_some(), owner & TAKEN != 0);
        let (sender, news) = (StreamSender::default(), Heap.word(Place::NewLine, 0));
        assert_eq!(sender.open(&cpu, &stream, (&news, 0), ends(), &out(&[]), 0), None, "it is not free");
        stream.take_back(&cpu, owner);
        assert_eq!(stream.owner(&cpu), 0);
    }
}

#[test]
fn sender_prefetches_each_line_once_and_none_that_may_be_unread() {
    for lens in [[1, 2, 3, 4], [2, 2, 2, 2], [9, 1, 5, 3]] {
        let limit = 200;
        let (mut at, mut lines) = (0, Vec::new());
        for len in lens.into_iter().cycle() {
            if at >= limit {
                break;
            }
            if let Some(word) = word_to_prefetch(at, len, limit) {
                assert!(word >= at + len + LINE, "{word} is where the sender writes");
                assert!(word / LINE < limit / LINE, "the line of {word} is not free");
                lines.push(word / LINE);
            }
            at += len;
        }
        assert!(lines.is_sorted_by(|a, b| a < b), "twice: {lines:?}");
        let last = limit / LINE - 1;
        assert_eq!(lines.last(), Some(&last), "{lines:?}");
        // A record of nine words jumps over a line.
        assert!(lines.len() as u64 * 2 > last, "{lines:?}");
    }
}
