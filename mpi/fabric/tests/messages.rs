//! Messages between endpoints of one process: every protocol, matched before and after,
//! and what can go wrong.
#![allow(unsafe_code)]

mod common;

use common::{nodes, over, pattern, receive, settle, ticket};
use towpath_fi::device::endpoint::{Endpoint, EndpointCore};
use towpath_fi::device::operation::Receive;
use towpath_fi::device::operation::{Refusal, SendRequest};
use towpath_fi::device::resource::completion::{Class, LAST_OF_BUFFER, WITH_DATA, error};
use towpath_fi::device::tune::settings::{INJECT, Settings};

/// Ways of a message: through the shared queue alone, through the pair's slots as soon as
/// possible, with direct copies, and as is measured.
fn ways() -> [Settings; 4] {
    let usual = Settings::default();
    [
        Settings { ring_after: u32::MAX, direct: Some(0), ..usual },
        Settings { ring_after: 1, direct: Some(0), ..usual },
        Settings { ring_after: 1, direct: Some(1), eager: 4096, ..usual },
        Settings { ring_after: 1, ..usual },
    ]
}

const LENGTHS: [usize; 14] = [0, 1, 7, 8, 40, 41, 48, 49, INJECT + 1, 8192, 8193, 65_536, 65_537, 3 << 20];

#[test]
fn messages_of_all_lengths_arrive_expected_or_not() {
    for settings in ways() {
        let mut n = nodes(2, settings);
        for round in 0..4 {
            for (i, len) in LENGTHS.into_iter().enumerate() {
                let bytes = pattern(len, i);
                let mut into = vec![0xee; len + 3];
                let data = (i % 2 == 0).then_some(i as u64 * 1000);
                let matched = i % 3 == 0;
                let early = round % 2 == 0;
                if early {
                    n[1].receive(Some(0), 5, 0, &mut into, 77);
                }
                while !n[0].send_with(1, Some(5), &bytes, data, 88, matched) {
                    settle(&mut n);
                }
                if !early {
                    settle(&mut n);
                    if matched || len > settings.eager {
                        assert!(n[0].next_sent().is_none(), "{len}: reported before it was received");
                    }
                    n[1].receive(None, 4, 1, &mut into, 77);
                }
                settle(&mut n);
                let report = n[1].next_received().expect("received");
                assert_eq!((report.context, report.len, report.tag, report.error), (77, len, 5, 0));
                assert_eq!((report.source, report.data), (0, data.unwrap_or(0)));
                assert_eq!(report.flags & WITH_DATA != 0, data.is_some());
                assert!(into[..len] == bytes && into[len..] == [0xee; 3], "{len} bytes");
                let report = n[0].next_sent().expect("sent");
                assert_eq!((report.context, report.error), (88, 0));
                assert!(n[1].next_received().is_none() && n[0].next_sent().is_none());
            }
        }
    }
}

#[test]
fn a_message_to_oneself_arrives() {
    let mut n = nodes(1, Settings::default());
    for len in LENGTHS {
        let (bytes, mut into) = (pattern(len, 3), vec![0; len]);
        assert!(n[0].send(0, 1, &bytes, 1));
        n[0].receive(Some(0), 1, 0, &mut into, 2);
        settle(&mut n);
        assert_eq!(n[0].next_received().unwrap().len, len);
        assert!(n[0].next_sent().is_some() && into == bytes);
    }
}

#[test]
fn what_is_too_long_is_cut_and_said_so() {
    for settings in ways() {
        let mut n = nodes(2, settings);
        for len in [10, 1000, 20_000, 1 << 20] {
            for early in [true, false] {
                let bytes = pattern(len, 9);
                let mut into = vec![0; len - 3];
                if early {
                    n[1].receive(None, 1, 0, &mut into, 7);
                }
                assert!(n[0].send(1, 1, &bytes, 8));
                settle(&mut n);
                if !early {
                    n[1].receive(None, 1, 0, &mut into, 7);
                    settle(&mut n);
                }
                assert!(n[1].received.pop().is_none());
                let report = n[1].received.pop_error().expect("reported");
                assert_eq!((report.error, report.len, report.excess), (error::TRUNCATED, len - 3, 3));
                assert!(into == bytes[..len - 3]);
                assert_eq!(n[0].next_sent().unwrap().error, 0);
            }
        }
    }
}

#[test]
fn peek_for_any_source_finds_a_peer_at_the_second_look() {
    let mut n = nodes(2, Settings::default());
    let mut nothing = [];
    let (any, first) = (EndpointCore::pattern(None, 3, 0), EndpointCore::pattern(Some(0), 3, 0));
    assert!(n[0].send(1, 3, &[1], 0) && n[1].send(1, 3, &[2, 2], 0));
    settle(&mut n);
    let mut peek = |pattern, discard| {
        n[1].endpoint.peek(true, pattern, &receive(&mut nothing, 1), false, discard);
        let found = n[1].next_received().unwrap();
        (found.error, found.len)
    };
    // From a named sender: at once. From any source: after an empty look.
    assert_eq!(peek(first, false), (0, 1));
    assert_eq!([peek(any, false), peek(any, false)], [(error::NO_MESSAGE, 0), (0, 1)]);
    // After an empty one it is found at once; a message to itself always is.
    assert_eq!([peek(any, false), peek(any, true)], [(error::NO_MESSAGE, 0), (0, 1)]);
    assert_eq!([peek(any, false), peek(any, true)], [(0, 2), (0, 2)]);
    assert_eq!(peek(any, false).0, error::NO_MESSAGE);
    // Unless it has started something meanwhile.
    assert!(n[0].send(1, 3, &[1], 0));
    assert!(n[1].send(0, 3, &[1], 0));
    settle(&mut n);
    let mut peek = || {
        n[1].endpoint.peek(true, any, &receive(&mut nothing, 1), false, false);
        n[1].next_received().unwrap().error
    };
    assert_eq!([peek(), peek()], [error::NO_MESSAGE, 0]);
}

#[test]
fn a_peek_finds_claims_and_discards() {
    let mut n = nodes(2, Settings { look_twice: false, ..Settings::default() });
    let mut nothing = [];
    let any = EndpointCore::pattern(None, 3, 0);
    n[1].endpoint.peek(true, any, &receive(&mut nothing, 1), false, false);
    assert_eq!(n[1].next_received().unwrap().error, error::NO_MESSAGE);
    for len in [16, 40_000, 1 << 20] {
        let bytes = [pattern(len, 1), pattern(len, 2), pattern(len, 3)];
        for b in &bytes {
            assert!(n[0].send(1, 3, b, 0));
        }
        settle(&mut n);
        // Looked at: stays. Thrown away: gone. Claimed: only for the claimer.
        n[1].endpoint.peek(true, any, &receive(&mut nothing, 1), false, false);
        assert_eq!(n[1].next_received().unwrap().len, len);
        n[1].endpoint.peek(true, any, &receive(&mut nothing, 1), false, true);
        assert_eq!(n[1].next_received().unwrap().error, 0);
        n[1].endpoint.peek(true, any, &receive(&mut nothing, 42), true, false);
        assert_eq!(n[1].next_received().unwrap().context, 42);
        let (mut third, mut second) = (vec![0; len], vec![0; len]);
        n[1].receive(None, 3, 0, &mut third, 5);
        assert!(!n[1].endpoint.claimed(receive(&mut second, 41), false));
        assert!(n[1].endpoint.claimed(receive(&mut second, 42), false));
        settle(&mut n);
        assert!(second == bytes[1] && third == bytes[2]);
        while n[1].next_received().is_some() {}
        assert_eq!(std::iter::from_fn(|| n[0].next_sent()).filter(|c| c.error == 0).count(), 3);
    }
}

#[test]
fn a_cancelled_receive_gets_nothing() {
    let mut n = nodes(2, Settings::default());
    let (mut a, mut b) = ([0; 4], [0; 4]);
    n[1].receive(None, 1, 0, &mut a, 10);
    n[1].receive(None, 1, 0, &mut b, 11);
    assert!(n[1].endpoint.cancel(10) && !n[1].endpoint.cancel(10));
    assert_eq!(n[1].next_received().map(|c| (c.context, c.error)), Some((10, error::CANCELLED)));
    assert!(n[0].send(1, 1, &[1, 2, 3, 4], 0));
    settle(&mut n);
    assert_eq!(n[1].next_received().unwrap().context, 11);
    assert_eq!((a, b), ([0; 4], [1, 2, 3, 4]));
}

#[test]
fn a_buffer_for_several_messages_is_filled_and_given_back() {
    let mut n = nodes(2, Settings::default());
    n[1].endpoint.core.min_multi = 200;
    let mut into = vec![0u8; 1000];
    // The first comes before the buffer.
    assert!(n[0].send_with(1, None, &pattern(300, 0), None, 0, false));
    settle(&mut n);
    let whole = Receive { multi: Some(Default::default()), ..receive(&mut into, 6) };
    n[1].endpoint.receive(false, EndpointCore::pattern(None, 0, 0), whole);
    for i in 1..4 {
        assert!(n[0].send_with(1, None, &pattern(300, i), None, 0, false));
    }
    settle(&mut n);
    for i in 0..3 {
        let report = n[1].next_received().unwrap();
        assert_eq!((report.context, report.len), (6, 300));
        assert_eq!(report.buffer, into.as_ptr() as usize + i * 300);
        assert_eq!(report.flags & LAST_OF_BUFFER != 0, i == 2, "only the third leaves too little");
        assert!(into[i * 300..][..300] == pattern(300, i));
    }
    assert!(n[1].next_received().is_none(), "the fourth waits for another buffer");
}

#[test]
fn ten_thousand_receives_and_a_hundred_thousand_messages_wait() {
    let mut n = nodes(2, Settings::default());
    let mut into = vec![0u64; 10_000];
    for (i, word) in into.iter_mut().enumerate() {
        // SAFETY: eight bytes of a vector that stays.
        let bytes = unsafe { core::slice::from_raw_parts_mut((&raw mut *word).cast::<u8>(), 8) };
        n[1].receive(Some(0), i as u64, 0, bytes, i);
    }
    for i in (0..10_000u64).rev() {
        while !n[0].send(1, i, &(i * 3).to_ne_bytes(), 0) {
            settle(&mut n);
        }
    }
    settle(&mut n);
    assert!(into.iter().enumerate().all(|(i, &word)| word == i as u64 * 3));
    while n[1].next_received().is_some() {}

    // Long ones stay with their sender once the receiver holds enough.
    let long = pattern(1000, 1);
    for i in 0..100_000 {
        while !n[0].send(1, i, &long, 0) {
            n[1].endpoint.progress();
            n[0].endpoint.progress();
        }
    }
    settle(&mut n);
    let reported = std::iter::from_fn(|| n[0].next_sent()).count() as u64 - 10_000;
    let most = (Settings::default().unexpected / 1000) + 1;
    assert!(reported <= most, "{reported} of 100,000 were taken without a receive, not more than {most}");
    let mut into = vec![0; 1000];
    for i in (0..100_000).step_by(997) {
        n[1].receive(None, i, 0, &mut into, 0);
        settle(&mut n);
        assert_eq!(n[1].next_received().map(|c| c.len), Some(1000));
        assert!(into == long);
        into.fill(0);
    }
}

#[test]
fn memory_of_others_is_read_written_and_changed() {
    use towpath_fi::device::rma::atomics::{Atomic, AtomicOp, Type};
    use towpath_fi::device::rma::onesided::RmaTarget;
    use towpath_fi::device::rma::regions::Region;
    for settings in ways() {
        let mut n = nodes(2, settings);
        let window = vec![0u8; 1 << 20];
        let region = Region {
            base: window.as_ptr() as usize,
            len: window.len(),
            first: 0,
            readable: true,
            writable: true,
        };
        // SAFETY: the window stays to the end of the test, which looks at it only while nothing is
        // under way.
        assert!(unsafe { n[1].endpoint.core.regions.add(9, region) });
        for len in [0, 1, 40, 5000, 300_000] {
            let (bytes, back) = (pattern(len, 4), vec![0u8; len]);
            let at = RmaTarget { peer: 1, address: 17, key: 9 };
            n[0].endpoint.core.write(at, &over(&bytes), None, ticket(1, Class::Write), false).unwrap();
            n[0].endpoint.core.read(at, &over(&back), ticket(2, Class::Read)).unwrap();
            settle(&mut n);
            for context in [1, 2] {
                assert_eq!(n[0].next_sent().map(|c| (c.context, c.error)), Some((context, 0)), "{len}");
            }
            assert!(back == bytes && over(&window).without_first(17).to_vec()[..len] == bytes);
        }
        // Beyond the end, and by a wrong key.
        for (address, key) in [(1 << 20, 9), (0, 8)] {
            let at = RmaTarget { peer: 1, address, key };
            n[0].endpoint.core.write(at, &over(&[1; 4]), None, ticket(3, Class::Write), false).unwrap();
            n[0].endpoint.core.read(at, &over(&[0; 4]), ticket(4, Class::Read)).unwrap();
            settle(&mut n);
            for _ in 0..2 {
                assert_eq!(n[0].next_sent().map(|c| c.error), Some(error::NO_KEY));
            }
        }
        // 5 + 7, and what was there before.
        let at = RmaTarget { peer: 1, address: 64, key: 9 };
        let found = [0u8; 8];
        let five = 5u64.to_ne_bytes();
        n[0].endpoint.core.write(at, &over(&five), None, ticket(1, Class::Write), true).unwrap();
        let atomic = Atomic {
            target: at,
            op: AtomicOp::Sum,
            of: Type::U64,
            count: 1,
            operand: &7u64.to_ne_bytes(),
            compare: &[],
            into: Some(over(&found)),
        };
        n[0].endpoint.core.start_atomic(&atomic, ticket(2, Class::Read)).unwrap();
        settle(&mut n);
        assert_eq!(over(&found).to_vec(), five);
        assert_eq!(over(&window).without_first(64).to_vec()[..8], 12u64.to_ne_bytes());
    }
}

#[test]
fn more_senders_than_a_byte_counts_reach_one_receiver() {
    const SENDERS: usize = 300;
    let settings = Settings { ring_after: u32::MAX, ..Settings::default() };
    let mut n = nodes(2, settings);
    let to = n[0].endpoint.port.address;
    for round in 0..2 {
        // All are there at once, and the next round's come to the places of those that have gone.
        let mut senders: Vec<Endpoint> = Vec::new();
        for i in 0..SENDERS {
            let mut sender = Endpoint::open(settings).expect("an endpoint");
            let peer = sender.core.peer(to);
            let bytes = (i as u64 + round).to_le_bytes();
            let message = SendRequest {
                peer,
                tag: Some(i as u64),
                buffer: &over(&bytes),
                data: None,
                ticket: ticket(0, Class::Send),
                inject: true,
                matched: false,
            };
            while sender.core.send(&message) == Err(Refusal::Again) {
                n[0].endpoint.progress();
            }
            senders.push(sender);
            if i % 100 == 0 {
                n[0].endpoint.progress();
            }
        }
        for i in 0..SENDERS {
            let mut into = [0; 8];
            n[0].receive(None, i as u64, 0, &mut into, 7);
            n[0].endpoint.progress();
            let report = n[0].next_received().expect("a message of each");
            assert_eq!((report.tag, report.error), (i as u64, 0));
            assert_eq!(u64::from_le_bytes(into), i as u64 + round);
        }
        for mut sender in senders {
            sender.close();
        }
        n[0].endpoint.progress();
    }
}

#[test]
fn long_messages_come_whole_while_it_is_measured_how() {
    for oversubscribed in [false, true] {
        let mut n = nodes(2, Settings::default());
        n.iter_mut().for_each(|node| node.endpoint.core.oversubscribed = oversubscribed);
        // To another and to itself, one by one and several at a time: through both ways' trials,
        // and beyond.
        for (round, (from, to)) in (0..60).map(|i| (i, [(0, 1), (1, 1), (1, 0)][i % 3])) {
            let bytes: Vec<Vec<u8>> =
                (0..1 + round % 5).map(|i| pattern(70_000 << (i % 3), round + i)).collect();
            let mut into: Vec<Vec<u8>> = bytes.iter().map(|b| vec![0; b.len()]).collect();
            for (i, into) in into.iter_mut().enumerate() {
                n[to].receive(Some(from as u32), i as u64, 0, into, i);
            }
            for (i, bytes) in bytes.iter().enumerate() {
                assert!(n[from].send(to as u32, i as u64, bytes, i));
            }
            settle(&mut n);
            for _ in &bytes {
                assert_eq!(n[to].next_received().map(|c| c.error), Some(0));
                assert_eq!(n[from].next_sent().map(|c| c.error), Some(0));
            }
            assert!(bytes == into, "round {round}");
        }
    }
}
