//! Broadcast rings between threads, against a model, and between identities of which some
//! are dead.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use towpath_machine::{Heap, Native, Random};
use towpath_sync::queues::{
    Broadcast, BroadcastHead, BroadcastMode, BroadcastReader, HoldsBack, Lossy, ThreadRing, TransferError,
    WordLine, broadcast_between_threads,
};
use towpath_sync::{Deadline, Policy};

use crate::support::Member;

const LONG: Duration = Duration::from_secs(20);
const CPU: Native = Native::with_id(0);

/// Message of that number and length: its bytes tell both.
fn message(number: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(number);
    let mut message: Vec<u8> = (0..bytes).map(|_| random.word() as u8).collect();
    let head = number.to_le_bytes();
    let most = bytes.min(8);
    message[..most].copy_from_slice(&head[..most]);
    message
}

/// A reader of the model: the number of its next message.
struct Modelled<M: BroadcastMode> {
    reader: BroadcastReader<ThreadRing<M>>,
    next: u64,
    /// True if pieces of a message that was given up may lie before it.
    is_behind: bool,
}

impl<M: BroadcastMode> Modelled<M> {
    fn new(reader: BroadcastReader<ThreadRing<M>>, next: u64) -> Self {
        Modelled { reader, next, is_behind: false }
    }

    /// Looks at a message that came.
    fn take(next: &mut u64, got: &[u8], missed: u64, sent: &[usize]) {
        assert!(missed == 0 || M::LOSSY, "missed {missed}");
        let number = *next + missed;
        assert!(number < sent.len() as u64, "number {number} was not sent");
        assert_eq!(got, message(number, sent[number as usize]), "lost, twice or torn");
        *next = number + 1;
    }

    /// Receives in one of the ways.
    fn receive(&mut self, how: u64, sent: &[usize]) {
        let Modelled { reader, next, is_behind } = self;
        let all = sent.len() as u64;
        let result = if how == 0 {
            reader
                .receive_batch_timeout(3, Duration::ZERO, |m| Self::take(next, &m, m.missed(), sent))
                .map(drop)
        } else {
            reader.try_receive().map(|m| Self::take(next, &m, m.missed(), sent))
        };
        match result {
            Ok(()) => {}
            Err(error) => {
                assert_eq!((error, *next), (TransferError::TimedOut, all), "lost");
                *is_behind = false;
            }
        }
    }
}

/// Random calls of a writer and up to three readers, one at a time.
fn against_the_model<M: BroadcastMode>(bytes: usize, seed: u64, calls: u64) {
    let mut random = Random::new(seed);
    let (mut writer, reader) = broadcast_between_threads::<M>(bytes);
    let whole = writer.most_whole();
    let mut readers = vec![Modelled::new(reader, 0)];
    let mut sent: Vec<usize> = Vec::new();
    for _ in 0..calls {
        match random.below(8) {
            0..=3 => {
                let length = match random.below(4) {
                    0 => random.below(whole as u64 + 1) as usize,
                    1 if !M::LOSSY => random.below(3 * whole as u64) as usize,
                    _ => random.below(whole as u64 / 4 + 1) as usize,
                };
                let all_have_read = readers.iter().all(|r| r.next == sent.len() as u64 && !r.is_behind);
                match writer.try_send(&message(sent.len() as u64, length)) {
                    Ok(()) => sent.push(length),
                    Err(error) => {
                        assert_eq!(error, TransferError::TimedOut);
                        assert!(!M::LOSSY && (!all_have_read || length > whole), "{length} of {whole}");
                        readers.iter_mut().for_each(|r| r.is_behind |= length > whole);
                    }
                }
            }
            4 if readers.len() < 3 => {
                readers.push(Modelled::new(writer.reader().unwrap(), sent.len() as u64));
            }
            5 if readers.len() > 1 && random.below(4) == 0 => {
                let which = random.below(readers.len() as u64) as usize;
                readers.swap_remove(which);
            }
            how => {
                let which = random.below(readers.len() as u64) as usize;
                readers[which].receive(how - 4, &sent);
            }
        }
        assert_eq!(writer.readers(), readers.len());
    }
    assert!(sent.len() as u64 > calls / 20, "{} messages", sent.len());
    drop(writer);
    for Modelled { mut reader, mut next, .. } in readers {
        let end = loop {
            match reader.receive() {
                Ok(m) => Modelled::<M>::take(&mut next, &m, m.missed(), &sent),
                Err(end) => break end,
            }
        };
        assert_eq!((end, next), (TransferError::Disconnected, sent.len() as u64), "lost at the end");
    }
}

#[test]
fn random_calls_agree_with_the_model() {
    for seed in 0..20 {
        for bytes in [64, 128, 1024] {
            against_the_model::<HoldsBack>(bytes, seed, 300);
            against_the_model::<Lossy>(bytes, seed, 300);
        }
    }
}

/// All readers get all messages since they came, or know how many they missed.
fn transfers<M: BroadcastMode>(bytes: usize, messages: u64, longest: u64) {
    let (mut writer, first) = broadcast_between_threads::<M>(bytes);
    let length = |number: u64| (number.wrapping_mul(0x9e37_79b9) % (longest + 1)) as usize + 8;
    let readers: Vec<_> =
        [Ok(first), writer.reader(), writer.reader()].into_iter().map(Result::unwrap).collect();
    thread::scope(|scope| {
        for (r, mut reader) in readers.into_iter().enumerate() {
            scope.spawn(move || {
                let mut next = 0;
                loop {
                    let m = match reader.receive_timeout(LONG) {
                        Ok(m) => m,
                        Err(TransferError::Closed) => break,
                        Err(error) => panic!("{error}"),
                    };
                    next += m.missed();
                    assert!(m.missed() == 0 || M::LOSSY);
                    assert_eq!(*m, message(next, length(next)));
                    next += 1;
                    if r == 2 && next % 256 == 0 {
                        thread::sleep(Duration::from_micros(100));
                    }
                }
                assert_eq!(next, messages, "lost");
            });
        }
        for number in 0..messages {
            writer.send_timeout(&message(number, length(number)), LONG).unwrap();
        }
        writer.close();
        assert_eq!(writer.send(b"late"), Err(TransferError::Closed));
    });
}

#[test]
fn messages_come_to_all_readers_in_order() {
    transfers::<HoldsBack>(64, 200, 0);
    transfers::<HoldsBack>(4096, 2_000, 100);
    // Longer than the ring.
    transfers::<HoldsBack>(1024, 50, 5_000);
}

#[test]
fn lossy_messages_are_whole_and_counted() {
    transfers::<Lossy>(64, 3_000, 8);
    transfers::<Lossy>(4096, 10_000, 1_000);
}

#[test]
fn lossy_writer_refuses_what_is_too_long() {
    let (mut writer, mut reader) = broadcast_between_threads::<Lossy>(1024);
    let most = writer.most_whole();
    let error = writer.send(&vec![1; most + 1]).unwrap_err();
    assert_eq!(error, TransferError::TooLong { most });
    assert!(error.to_string().contains(&most.to_string()));
    writer.send(&vec![1; most]).unwrap();
    assert_eq!(reader.receive().unwrap().len(), most);
}

#[test]
fn messages_are_written_and_read_in_place() {
    let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1024);
    let whole = writer.most_whole();
    for n in 0..200 {
        let bytes = n * 7 % whole;
        let mut room = writer.reserve_timeout(whole, LONG).unwrap();
        room[..bytes].fill(n as u8);
        if n % 5 == 4 {
            // Room that is given up: nothing is sent.
            assert_eq!(reader.try_receive().unwrap_err(), TransferError::TimedOut);
            continue;
        }
        room.commit(bytes).unwrap();
        let m = reader.receive_in_place_timeout(LONG).unwrap();
        assert_eq!(*m, vec![n as u8; bytes]);
        assert!(m.is_empty() || (m.as_ptr() as usize).is_multiple_of(8));
    }
    assert!(matches!(writer.reserve(whole + 1), Err(TransferError::TooLong { .. })));
    // A message that lies in the ring holds the writer back.
    writer.send(&[1; 100]).unwrap();
    let held = reader.receive_in_place().unwrap();
    let sent = (0..100).take_while(|_| writer.try_send(&[2; 100]).is_ok()).count();
    assert!(sent < 10, "{sent}");
    assert_eq!(*held, [1; 100]);
    drop(held);
    assert_eq!(writer.try_send(&[2; 100]), Ok(()));
    // One that came in pieces is whole, too.
    thread::scope(|scope| {
        scope.spawn(|| writer.send_timeout(&message(7, 5_000), LONG).unwrap());
        for _ in 0..=sent {
            assert_eq!(*reader.receive_in_place_timeout(LONG).unwrap(), [2; 100]);
        }
        assert_eq!(*reader.receive_in_place_timeout(LONG).unwrap(), message(7, 5_000));
    });
}

#[test]
fn message_is_sent_in_several_calls() {
    let (mut writer, mut reader) = broadcast_between_threads::<HoldsBack>(1024);
    let (long, mut sent) = (message(7, 5_000), 0);
    let full = Err(TransferError::TimedOut);
    let mut calls = 0;
    while writer.send_rest(&long, &mut sent, Duration::ZERO) == full {
        calls += 1;
        assert!(0 < sent && sent < long.len(), "{sent}");
        assert_eq!(reader.try_receive().unwrap_err(), TransferError::TimedOut, "it is not whole");
    }
    assert!(calls > 3, "{calls} calls for five rings");
    assert_eq!((sent, &*reader.try_receive().unwrap()), (long.len(), &long[..]));
    // Of a message that is given up for another one readers get nothing.
    sent = 0;
    assert_eq!(writer.send_rest(&long, &mut sent, Duration::ZERO), full);
    assert_eq!(reader.try_receive().unwrap_err(), TransferError::TimedOut);
    writer.try_send(b"another").unwrap();
    assert_eq!(*reader.try_receive().unwrap(), *b"another");
    // Nor of one that is begun anew.
    assert_eq!(writer.send_rest(&long, &mut 0, Duration::ZERO), full);
    thread::scope(|scope| {
        scope.spawn(|| writer.send_rest(&long, &mut 0, LONG).unwrap());
        assert_eq!(*reader.receive_timeout(LONG).unwrap(), long);
    });
}

#[test]
fn readers_that_leave_hold_nothing_back() {
    let (mut writer, reader) = broadcast_between_threads::<HoldsBack>(64);
    while writer.try_send(&[1; 8]).is_ok() {}
    thread::scope(|scope| {
        let waits = scope.spawn(|| writer.send_timeout(&[2; 8], LONG));
        thread::sleep(Duration::from_millis(2));
        drop(reader);
        assert_eq!(waits.join().unwrap(), Ok(()));
    });
    assert_eq!((writer.readers(), writer.lost_reader()), (0, None));
    // Without readers there is room.
    (0..100).for_each(|_| writer.try_send(&[3; 8]).unwrap());
    let mut late = writer.reader().unwrap();
    writer.send(&[4; 8]).unwrap();
    assert_eq!(*late.receive().unwrap(), [4; 8]);
}

/// Parts of a ring with places for two readers.
struct Parts {
    head: BroadcastHead<Native, 2>,
    ring: Box<[WordLine<Native>]>,
}

impl Parts {
    fn new(bytes: usize) -> Parts {
        let lines = Broadcast::<Native, 2>::lines(bytes);
        Parts { head: BroadcastHead::in_arena(&Heap), ring: WordLine::row(&Heap, lines) }
    }
    fn ring(&self) -> Broadcast<'_, Native, 2> {
        Broadcast::of(&self.head, &self.ring, false)
    }
}

#[test]
fn dead_readers_are_dropped_and_told_of() {
    for (policy, name) in Policy::ALL {
        let (parts, dead) = (Parts::new(64), AtomicU64::new(0));
        let [w, r, s] = [1, 2, 3].map(|me| Member { me, dead: &dead });
        let (wait, ring) = (w.wait(policy), parts.ring());
        let mut writer = ring.join_writer(&CPU, &wait).unwrap();
        let _victim = ring.join_reader(&CPU, &r.wait(policy)).unwrap();
        let mut survivor = ring.join_reader(&CPU, &s.wait(policy)).unwrap();
        assert!(matches!(ring.join_reader(&CPU, &wait), Err(TransferError::Capacity)), "two places");
        let mut got = Vec::new();
        let mut receive = || ring.receive(&CPU, &s.wait(policy), &mut survivor, &mut got, Deadline::PAST);
        let mut send = |deadline| ring.send(&CPU, &wait, &mut writer, &[7; 16], deadline);
        send(Deadline::PAST).unwrap();
        receive().unwrap();
        let soon = || Deadline::within(Duration::from_millis(3));
        assert_eq!(send(soon()), Err(TransferError::TimedOut), "{name}: it lives");
        assert_eq!(ring.lost_reader(&CPU, &wait), None);
        dead.store(1 << 2, SeqCst);
        send(Deadline::within(LONG)).unwrap();
        receive().unwrap();
        assert_eq!(ring.lost_reader(&CPU, &wait), Some(TransferError::PeerDied { rank: None }), "{name}");
        assert_eq!((ring.lost_reader(&CPU, &wait), ring.readers(&CPU)), (None, 1), "{name}: told twice");
        // Its place is free.
        ring.join_reader(&CPU, &wait).unwrap();
    }
}

#[test]
fn dead_writers_are_told_of_and_followed() {
    let (parts, dead) = (Parts::new(64), AtomicU64::new(0));
    let [w, r, s] = [1, 2, 3].map(|me| Member { me, dead: &dead });
    let [theirs, wait, next] = [&w, &r, &s].map(|member| member.wait(Policy::Adaptive));
    let ring = parts.ring();
    let mut writer = ring.join_writer(&CPU, &theirs).unwrap();
    let mut reader = ring.join_reader(&CPU, &wait).unwrap();
    let mut got = Vec::new();
    ring.send(&CPU, &theirs, &mut writer, &[1; 9], Deadline::PAST).unwrap();
    // A piece of a long one, and then no room: the rest never comes.
    let long = ring.send(&CPU, &theirs, &mut writer, &[2; 200], Deadline::PAST);
    assert_eq!(long, Err(TransferError::TimedOut));
    // And room that was filled and not sent.
    assert!(matches!(ring.join_writer(&CPU, &next), Err(TransferError::Taken { .. })));
    dead.store(1 << 1, SeqCst);
    let mut receive = |deadline| {
        let end = ring.receive(&CPU, &wait, &mut reader, &mut got, deadline);
        end.map(|missed| (missed, got.clone()))
    };
    assert_eq!(receive(Deadline::PAST), Ok((0, vec![1; 9])));
    assert_eq!(receive(Deadline::within(LONG)), Err(TransferError::PeerDied { rank: None }));
    let mut writer = ring.join_writer(&CPU, &next).unwrap();
    assert_eq!(receive(Deadline::PAST), Err(TransferError::TimedOut));
    for n in 3..20 {
        ring.send(&CPU, &next, &mut writer, &[n; 16], Deadline::PAST).unwrap();
        assert_eq!(receive(Deadline::PAST), Ok((0, vec![n; 16])));
    }
    ring.leave_writer(&CPU, &next);
    assert_eq!(receive(Deadline::NEVER), Err(TransferError::Disconnected));
}
