//! Messages that can't be delivered come back to their sender's handler 0, with the
//! reason, the operation and the arguments.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::members;
use crate::support::pair::{Log, Pair, logging, take};
use towpath_am::{Endpoint, Error, Operation, Status, Tag, WorldConfig};

#[test]
fn a_wrong_tag_comes_back() {
    let pair = Pair::new();
    pair.b.set_tag(Tag(77));
    pair.a.map(0, pair.b.name(), Tag(76)).unwrap();
    pair.a.request(0, 1, &[1, 2]).unwrap();
    assert_eq!(pair.came_back(), (Status::BadTag, Operation::RequestShort, vec![1, 2]));
    pair.a.map(0, pair.b.name(), Tag(77)).unwrap();
    pair.a.request(0, 1, &[]).unwrap();
    pair.settle();
    assert_eq!(take(&pair.at_b)[0].tag, Tag(77));
    pair.b.set_tag(Tag::NONE);
    pair.a.request_medium(0, 1, &[3], b"x").unwrap();
    assert_eq!(pair.came_back(), (Status::BadTag, Operation::RequestMedium, vec![3]));
    assert!(pair.b.audit().is_clean(), "the block of the message that came back is free");
}

#[test]
fn a_missing_handler_comes_back() {
    let pair = Pair::new();
    pair.a.request(0, 99, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]).unwrap();
    let (status, operation, args) = pair.came_back();
    assert_eq!((status, operation), (Status::BadHandler, Operation::RequestShort));
    assert_eq!(args, (1..=16).collect::<Vec<u32>>());
    pair.b.clear_handler(1);
    pair.a.request_long(0, 1, &[4], &[1; 40], 0).unwrap();
    assert_eq!(pair.came_back(), (Status::BadHandler, Operation::RequestLong, vec![4]));
    // A reply that its requester has no handler for comes back to the replier.
    pair.b.set_handler(7, |message| message.reply(98, &[5]).unwrap());
    pair.a.request(0, 7, &[]).unwrap();
    pair.settle();
    let back = take(&pair.at_b);
    assert_eq!(back.len(), 1);
    let returned = back[0].returned.unwrap();
    assert_eq!((returned.status, returned.operation), (Status::ReplyRejected, Operation::ReplyShort));
    assert_eq!((returned.handler, returned.destination), (98, pair.a.name()));
}

#[test]
fn rejected_replies_come_back_though_their_replier_is_full() {
    let config = WorldConfig { packets: 4, ..WorldConfig::new(3) };
    let worlds = members(&config);
    let endpoints: Vec<Endpoint> = worlds.iter().map(|world| Endpoint::new(world).unwrap()).collect();
    let [a, b, c] = &endpoints[..] else { panic!("three") };
    let log = Log::default();
    b.set_handler(0, logging(&log));
    b.set_handler(7, |message| message.reply(98, message.args()).unwrap());
    for (requester, first) in [(a, 0), (c, 4)] {
        requester.map(0, b.name(), Tag::ALL).unwrap();
        (first..first + 4).for_each(|n| requester.request(0, 7, &[n]).unwrap());
        assert_eq!(b.poll(), 4);
    }
    // Replies that the second one rejects find the replier's queue full.
    assert_eq!((a.poll(), c.poll()), (4, 4));
    for endpoint in [b, c, b] {
        while endpoint.poll() > 0 {}
    }
    let back = take(&log);
    assert!(back.iter().all(|it| it.returned.unwrap().status == Status::ReplyRejected));
    let mut numbers: Vec<u32> = back.iter().map(|it| it.args[0]).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn ranges_outside_the_segment_come_back() {
    let config = WorldConfig { segment_bytes: 8192, ..WorldConfig::new(2) };
    for segment in [Some(8192), None] {
        let pair = Pair::with(&config, segment);
        for (offset, len, status) in [
            (8193, 0, Status::BadSegmentOffset),
            (8192, 1, Status::BadSegmentOffset),
            (8000, 193, Status::BadLength),
        ] {
            pair.a.request_long(0, 1, &[offset as u32], &vec![1; len], offset).unwrap();
            assert_eq!(
                pair.came_back(),
                (status, Operation::RequestLong, vec![offset as u32]),
                "{segment:?}"
            );
        }
        pair.a.request_long(0, 1, &[], &[1; 192], 8000).unwrap();
        pair.a.request_long(0, 1, &[], &[], 8192).unwrap();
        pair.settle();
        assert_eq!(take(&pair.at_b).len(), 2, "up to the last byte");
        assert!(matches!(pair.a.request_long(0, 1, &[], &[0], u64::MAX), Err(Error::BadArgument(_))));
    }
}

#[test]
fn messages_to_a_peer_that_left_come_back() {
    let pair = Pair::new();
    let b = pair.b.name();
    drop(pair.b);
    pair.a.request(0, 1, &[1]).unwrap();
    pair.a.request_medium(0, 1, &[2], b"m").unwrap();
    pair.a.request_long(0, 1, &[3], b"l", 0).unwrap();
    while pair.bundle.poll() > 0 {}
    let back = take(&pair.at_a);
    assert_eq!(back.iter().map(|s| s.args[0]).collect::<Vec<_>>(), [1, 2, 3]);
    for s in back {
        let returned = s.returned.unwrap();
        assert_eq!((returned.status, returned.destination), (Status::BadEndpoint, b));
    }
}

#[test]
fn messages_on_the_way_to_a_peer_that_left_come_back() {
    for replaced in [false, true] {
        let pair = Pair::new();
        let (b, world) = (pair.b.name(), pair.b.world().clone());
        pair.a.request(0, 1, &[1]).unwrap();
        pair.a.request_medium(0, 1, &[2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14], b"m").unwrap();
        pair.a.request_long(0, 1, &[3], &[1; 100], 0).unwrap();
        drop(pair.b);
        // Its place is the only one, and its successor may be there before the sender notices
        // anything.
        let successor = replaced.then(|| Endpoint::new(&world).unwrap());
        if let Some(successor) = &successor {
            successor.recover();
            while successor.poll() > 0 {}
        }
        pair.a.recover();
        while pair.bundle.poll() > 0 {}
        let mut back = take(&pair.at_a);
        back.sort_by_key(|s| s.args[0]);
        let operations = [Operation::RequestShort, Operation::RequestMedium, Operation::RequestLong];
        assert_eq!(back.len(), 3, "replaced: {replaced}, {back:?}");
        for (i, s) in back.iter().enumerate() {
            let returned = s.returned.unwrap();
            assert_eq!(s.args[0] as usize, i + 1);
            assert_eq!((returned.operation, returned.destination), (operations[i], b));
            let why = if replaced { Status::Unreachable } else { Status::BadEndpoint };
            assert_eq!(returned.status, why);
        }
        assert_eq!(back[1].args.len(), 13);
        if let Some(successor) = successor {
            assert!(successor.audit().is_clean());
        }
    }
}

#[test]
fn a_reply_to_a_peer_that_left_comes_back() {
    let pair = Pair::new();
    pair.b.set_handler(7, |message| message.reply(1, &[5]).unwrap());
    pair.a.request(0, 7, &[]).unwrap();
    let a = pair.a.name();
    drop(pair.a);
    while pair.bundle.poll() > 0 {}
    let back = take(&pair.at_b);
    assert_eq!(back.len(), 1);
    let returned = back[0].returned.unwrap();
    assert_eq!((returned.status, returned.operation), (Status::BadEndpoint, Operation::ReplyShort));
    assert_eq!((returned.destination, &back[0].args[..]), (a, &[5][..]));
}

#[test]
fn handlers_may_not_send_requests_or_poll() {
    // A handler reaches an endpoint only through its token: requests and polls can't be written
    // down. A reply from the handler of a message that came back can be tried.
    let pair = Pair::new();
    let refused = Arc::new(AtomicU32::new(0));
    let count = refused.clone();
    pair.a.set_handler(0, move |message| {
        assert!(!message.is_request());
        if matches!(message.reply(1, &[]), Err(Error::BadArgument(_))) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    pair.a.request(0, 99, &[]).unwrap();
    pair.settle();
    assert_eq!(refused.load(Ordering::Relaxed), 1);
}
