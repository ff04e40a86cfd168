//! Promises of Active Messages II, call by call: forms, tables, tags, bundles. Messages
//! that come back: `returned.rs`.

use crate::support;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::pair::{Log, Pair, logging, take};
use crate::support::{Watchdog, members, tiny};
use towpath_am::{
    Algorithm, Bundle, Endpoint, Error, Events, Name, ParallelBundle, Status, Tag, Token, WorldConfig,
};

#[test]
fn every_number_of_arguments_in_every_form() {
    let pair = Pair::new();
    let all: Vec<u32> = (1..=16).map(|n| n * 0x0f0f_0f0f).collect();
    for count in 0..=16 {
        let args = &all[..count];
        pair.a.request(0, 1, args).unwrap();
        pair.a.request_medium(0, 1, args, b"medium").unwrap();
        pair.a.request_long(0, 1, args, b"long", 100).unwrap();
        pair.settle();
        let seen = take(&pair.at_b);
        assert_eq!(seen.iter().map(|s| &s.bytes[..]).collect::<Vec<_>>(), [&b""[..], b"medium", b"long"]);
        for s in seen {
            assert_eq!(s.args, args);
            assert_eq!((s.source, s.destination), (pair.a.name(), pair.b.name()));
            assert_eq!((s.tag, s.request, s.returned), (Tag::ALL, true, None));
        }
    }
    let too_many = [0; 17];
    assert!(matches!(pair.a.request(0, 1, &too_many), Err(Error::BadArgument(_))));
    assert!(matches!(pair.a.request_medium(0, 1, &too_many, b""), Err(Error::BadArgument(_))));
    assert!(matches!(pair.a.request_long(0, 1, &too_many, b"", 0), Err(Error::BadArgument(_))));
}

#[test]
fn medium_payloads_up_to_a_block() {
    let pair = Pair::new();
    let block = pair.a.config().block_size as usize;
    assert!(block >= 8192, "the least that Active Messages II's users count on");
    let bytes: Vec<u8> = (0..block).map(|i| i as u8).collect();
    for len in [0, 1, 63, 64, 65, 8192, block] {
        pair.a.request_medium(0, 1, &[], &bytes[..len]).unwrap();
        pair.settle();
        assert_eq!(take(&pair.at_b)[0].bytes, bytes[..len]);
    }
    let error = pair.a.request_medium(0, 1, &[], &vec![0; block + 1]).unwrap_err();
    assert!(error.to_string().contains("long message"), "{error}");
}

#[test]
fn long_payloads_of_a_megabyte_into_either_kind_of_segment() {
    let len = (1 << 20) + 5;
    let config = WorldConfig { segment_bytes: 2 << 20, ..WorldConfig::new(2) };
    for segment in [Some(2 << 20), None] {
        let pair = Pair::with(&config, segment);
        let mut source: Vec<u8> = (0..len).map(|i| ((i * 7) >> 3) as u8).collect();
        let sent = source.clone();
        pair.a.request_long(0, 1, &[9], &source, 1000).unwrap();
        // The memory may be reused on return.
        source.fill(0);
        pair.settle();
        let seen = take(&pair.at_b);
        assert_eq!(seen.len(), 1, "the handler runs once, after the last piece");
        assert_eq!(seen[0].args, [9]);
        assert!(seen[0].bytes == sent, "the bytes that were sent");
        let mut before = [1];
        pair.b.segment().read(999, &mut before);
        assert_eq!(before, [0], "nothing beside the range");
    }
}

#[test]
fn long_payloads_of_any_length_and_offset_change_nothing_beside() {
    let pair = Pair::with(&WorldConfig::new(2), Some(128 << 10));
    let block = pair.a.config().block_size as usize;
    let source: Vec<u8> = (0..3 * block).map(|i| ((i * 7) >> 3) as u8 | 1).collect();
    let room = pair.b.segment().len() as usize;
    // Pieces shorter and longer than those that are written past the caches.
    let lengths = [1, 63, 8191, 8192, 8193, block - 1, block, block + 1, block + 8192, 2 * block + 9001];
    for (n, len) in lengths.into_iter().enumerate() {
        let (from, offset) = (n * 5, 64 + n * 7);
        pair.b.segment().write(0, &vec![0; room]);
        pair.a.request_long(0, 1, &[], &source[from..from + len], offset as u64).unwrap();
        pair.settle();
        assert_eq!(take(&pair.at_b).len(), 1);
        let mut stored = vec![0; room];
        pair.b.segment().read(0, &mut stored);
        assert!(stored[..offset].iter().all(|b| *b == 0), "{len}: before");
        assert!(stored[offset..offset + len] == source[from..from + len], "{len}");
        assert!(stored[offset + len..].iter().all(|b| *b == 0), "{len}: behind");
    }
}

#[test]
fn replies_at_most_one_and_not_to_replies() {
    let pair = Pair::new();
    pair.b.set_handler(7, |message| {
        message.reply(8, &[message.args()[0] + 1]).unwrap();
        assert!(matches!(message.reply(8, &[]), Err(Error::BadArgument(_))), "one reply at most");
    });
    let twice = Arc::new(AtomicU32::new(0));
    let (log, errors) = (pair.at_a.clone(), twice.clone());
    let record = logging(&log);
    pair.a.set_handler(8, move |message| {
        if matches!(message.reply(1, &[]), Err(Error::BadArgument(_))) {
            errors.fetch_add(1, Ordering::Relaxed);
        }
        record(message);
    });
    pair.a.request(0, 7, &[41]).unwrap();
    pair.settle();
    let seen = take(&pair.at_a);
    assert_eq!((seen.len(), &seen[0].args[..], seen[0].request), (1, &[42][..], false));
    assert_eq!(twice.load(Ordering::Relaxed), 1, "a reply can't be replied to");
    // A handler need not reply.
    pair.a.request(0, 1, &[]).unwrap();
    pair.settle();
    assert_eq!((take(&pair.at_b).len(), take(&pair.at_a).len()), (1, 0));
}

#[test]
fn replies_in_every_form() {
    let pair = Pair::new();
    pair.b.set_handler(7, |message| match message.args()[0] {
        0 => message.reply(1, &[5, 6]).unwrap(),
        1 => message.reply_medium(1, &[5, 6], b"medium").unwrap(),
        _ => message.reply_long(1, &[5, 6], &[3; 5000], 10).unwrap(),
    });
    for (form, bytes) in [vec![], b"medium".to_vec(), vec![3; 5000]].into_iter().enumerate() {
        pair.a.request(0, 7, &[form as u32]).unwrap();
        pair.settle();
        let seen = take(&pair.at_a);
        assert_eq!((seen.len(), &seen[0].args[..], &seen[0].bytes), (1, &[5, 6][..], &bytes));
    }
}

#[test]
fn two_hundred_and_fifty_six_handlers() {
    let pair = Pair::new();
    let ran = Arc::new(Mutex::new(Vec::new()));
    for handler in 0..=255u8 {
        let ran = ran.clone();
        pair.b.set_handler(handler, move |_| ran.lock().unwrap().push(handler));
    }
    for handler in 1..=255 {
        pair.a.request(0, handler, &[]).unwrap();
    }
    pair.settle();
    assert_eq!(*ran.lock().unwrap(), (1..=255).collect::<Vec<u8>>());
}

#[test]
fn the_translation_table() {
    let pair = Pair::new();
    assert!(matches!(pair.a.request(1, 1, &[]), Err(Error::NotInitialised(_))));
    assert!(matches!(pair.a.unmap(1), Err(Error::NotInitialised(_))));
    pair.a.map(300, pair.b.name(), Tag(5)).unwrap();
    assert_eq!(pair.a.mapping(300), Some((pair.b.name(), Tag(5))));
    pair.a.request(300, 1, &[1]).unwrap();
    pair.settle();
    assert_eq!(take(&pair.at_b)[0].tag, Tag(5));
    pair.a.unmap(300).unwrap();
    assert!(matches!(pair.a.request(300, 1, &[]), Err(Error::NotInitialised(_))));
    assert!(matches!(pair.a.map(70_000, pair.b.name(), Tag::ALL), Err(Error::BadArgument(_))));
    let unknown = Name::from_bits(pair.b.name().to_bits() + (1 << 16));
    assert!(matches!(pair.a.map(2, unknown, Tag::ALL), Err(Error::BadArgument(_))));
    assert!(matches!(pair.a.map(2, Name::from_bits(u64::MAX), Tag::ALL), Err(Error::BadArgument(_))));
    // To itself.
    pair.a.map(3, pair.a.name(), Tag::ALL).unwrap();
    pair.a.request(3, 1, &[7]).unwrap();
    pair.settle();
    assert_eq!(take(&pair.at_a)[0].args, [7]);
}

#[test]
fn names_are_compared_and_passed_on() {
    let pair = Pair::new();
    assert_ne!(pair.a.name(), pair.b.name());
    assert_eq!(Name::from_bits(pair.a.name().to_bits()), pair.a.name());
    // A successor in the same place has another name.
    let old = pair.b.name();
    let world = pair.b.world().clone();
    let others: Vec<Endpoint> = (0..).map_while(|_| Endpoint::new(&world).ok()).collect();
    drop(pair.b);
    let new = Endpoint::new(&world).unwrap();
    assert!(others.iter().all(|e| e.name() != new.name()));
    assert_ne!(new.name(), old);
    assert!(matches!(pair.a.map(1, old, Tag::ALL), Err(Error::BadArgument(_))));
}

#[test]
fn an_asynchronous_transfer_says_when_it_cannot_go_out() {
    for algorithm in Algorithm::ALL {
        let worlds = members(&tiny(2, algorithm));
        let sender = Endpoint::new(&worlds[0]).unwrap();
        // Not in the sender's bundle: no wait of the sender polls it.
        let receiver = Endpoint::with_private_segment(&worlds[1], 8192).unwrap();
        let log = Log::default();
        receiver.set_handler(1, logging(&log));
        sender.map(0, receiver.name(), Tag::ALL).unwrap();
        let mut out = 0u32;
        let refused = loop {
            match sender.request_long_async(0, 1, &[out], &[out as u8; 100], 0) {
                Ok(()) => out += 1,
                Err(error) => break error,
            }
            assert!(out < 100, "{algorithm:?}: a queue of 3 blocks is never full");
        };
        assert!(matches!(refused, Error::NotSent), "{refused:?}");
        assert!(out >= 1, "{algorithm:?}");
        for _ in 0..1000 {
            assert!(matches!(sender.request_long_async(0, 1, &[], &[0; 100], 0), Err(Error::NotSent)));
        }
        while receiver.poll() > 0 {}
        assert_eq!(take(&log).len() as u32, out, "{algorithm:?}: what was refused was not sent");
        sender.request_long_async(0, 1, &[out], &[out as u8; 100], 0).unwrap();
        while receiver.poll() > 0 {}
        assert_eq!(take(&log)[0].bytes, [out as u8; 100], "{algorithm:?}");
        assert!(receiver.audit().is_clean(), "{algorithm:?}: {:?}", receiver.audit());
    }
}

#[test]
fn refusals_cost_the_queue_nothing() {
    for algorithm in Algorithm::ALL {
        // With a shared segment a transfer needs a packet and no block.
        let pair = Pair::with(&tiny(2, algorithm), None);
        let other = Bundle::new();
        other.add(&pair.b);
        for _ in 0..2 {
            let mut out = 0;
            while pair.a.request_long_async(0, 1, &[], b"stored", 0).is_ok() {
                out += 1;
                assert!(out < 100, "{algorithm:?}");
            }
            for _ in 0..1000 {
                assert!(pair.a.request_long_async(0, 1, &[], b"stored", 0).is_err(), "{algorithm:?}");
            }
            while other.poll() > 0 {}
            assert_eq!(take(&pair.at_b).len(), out, "{algorithm:?}");
            assert_eq!(out, 8, "{algorithm:?}: all packets");
        }
    }
}

#[test]
fn replies_are_polled_before_requests_and_a_poll_is_bounded() {
    let pair = Pair::new();
    pair.b.set_handler(7, |message| message.reply(1, &[1000]).unwrap());
    for n in 0..3 {
        pair.b.request(0, 1, &[n]).unwrap();
    }
    pair.a.request(0, 7, &[]).unwrap();
    assert_eq!(pair.b.poll(), 1);
    // The reply came last and is delivered first.
    while pair.a.poll() > 0 {}
    assert_eq!(take(&pair.at_a).iter().map(|s| s.args[0]).collect::<Vec<_>>(), [1000, 0, 1, 2]);
    for n in 0..500 {
        pair.a.request(0, 1, &[n]).unwrap();
    }
    let mut polls = Vec::new();
    loop {
        match pair.b.poll() {
            0 => break,
            n => polls.push(n),
        }
    }
    assert_eq!(polls.iter().sum::<usize>(), 500);
    assert!(polls[0] < 100, "bounded: {polls:?}");
    assert!(polls.iter().any(|n| *n > polls[0]), "self-adjusting: {polls:?}");
}

#[test]
fn waiting_with_masks_and_timeouts() {
    let _watchdog = Watchdog::new(Duration::from_secs(60), || "waiting".into());
    let pair = Pair::new();
    assert!(!pair.bundle.wait(Some(Duration::from_millis(5))).unwrap(), "nothing happens");
    pair.a.request(0, 1, &[]).unwrap();
    assert!(pair.bundle.wait(None).unwrap(), "a message is there");
    assert_eq!(take(&pair.at_b), [], "waiting delivers nothing");
    pair.settle();
    pair.bundle.set_events(Events { not_empty: false, can_send: true });
    assert!(pair.bundle.wait(None).unwrap(), "there is space");
    pair.bundle.set_events(Events { not_empty: false, can_send: false });
    assert!(matches!(pair.bundle.wait(None), Err(Error::BadArgument(_))));
    assert!(matches!(Bundle::new().wait(None), Err(Error::BadArgument(_))));
}

#[test]
fn a_sleeper_is_woken_under_every_policy_and_algorithm() {
    let _watchdog = Watchdog::new(Duration::from_secs(100), || "a sleeper was not woken".into());
    for algorithm in Algorithm::ALL {
        for (waiting, name) in towpath_sync::Policy::ALL {
            let worlds = members(&WorldConfig { waiting, ..tiny(2, algorithm) });
            let receiver = Endpoint::new(&worlds[0]).unwrap();
            let log = Log::default();
            receiver.set_handler(1, logging(&log));
            let to = receiver.name();
            std::thread::scope(|scope| {
                let world = &worlds[1];
                scope.spawn(move || {
                    let sender = Endpoint::new(world).unwrap();
                    sender.map(0, to, Tag::ALL).unwrap();
                    for n in 0..20 {
                        std::thread::sleep(Duration::from_micros(300));
                        sender.request(0, 1, &[n]).unwrap();
                    }
                });
                let start = Instant::now();
                let mut seen = Vec::new();
                while seen.len() < 20 {
                    assert!(
                        start.elapsed() < Duration::from_secs(30),
                        "{algorithm:?} {name}: {}",
                        seen.len()
                    );
                    receiver.wait(Some(Duration::from_secs(1)));
                    receiver.poll();
                    seen.extend(take(&log));
                }
                assert!(seen.iter().map(|s| s.args[0]).eq(0..20), "{algorithm:?} {name}");
            });
        }
    }
}

#[test]
fn endpoints_move_between_bundles() {
    let pair = Pair::new();
    let other = Bundle::new();
    other.add(&pair.b);
    assert_eq!((pair.bundle.len(), other.len()), (1, 1));
    pair.a.request(0, 1, &[1]).unwrap();
    assert_eq!(pair.bundle.poll(), 0, "its old bundle does not poll it any more");
    assert_eq!(other.poll(), 1);
    assert_eq!(take(&pair.at_b).len(), 1);
}

#[test]
fn handler_of_one_thread_keeps_its_endpoint_there() {
    let worlds = members(&tiny(2, Algorithm::Towpath));
    let (count, world) = (Rc::new(Cell::new(0)), &worlds[0]);
    let endpoint = Endpoint::new(world).unwrap();
    let seen = count.clone();
    endpoint.set_local_handler(1, move |message| seen.set(seen.get() + message.args()[0]));
    endpoint.map(0, endpoint.name(), Tag::ALL).unwrap();
    endpoint.request(0, 1, &[5]).unwrap();
    while count.get() != 5 {
        endpoint.poll();
    }
    let error = endpoint.into_parallel().unwrap_err().to_string();
    assert!(error.contains("handler 1 stays in its thread"), "{error}");
    assert_eq!(Rc::strong_count(&count), 1, "the endpoint is dropped");
    let endpoint = Endpoint::new(world).unwrap();
    let seen = count.clone();
    endpoint.set_local_handler(9, move |_| seen.set(0));
    endpoint.set_handler(9, |_| ());
    assert_eq!(Rc::strong_count(&count), 1);
    let endpoint = endpoint.into_parallel().unwrap();
    endpoint.set_handler(9, |_| ());
}

#[test]
fn handlers_are_set_and_removed_by_handlers() {
    let worlds = members(&tiny(2, Algorithm::Towpath));
    let endpoint = Rc::new(Endpoint::new(&worlds[0]).unwrap());
    endpoint.map(0, endpoint.name(), Tag::ALL).unwrap();
    // Messages within a packet, and with a block.
    let send_both = || {
        endpoint.request(0, 1, &[7]).unwrap();
        endpoint.request_medium(0, 1, &[7], b"bytes").unwrap();
        while endpoint.poll() > 0 {}
    };
    let counts = Rc::new([const { Cell::new(0) }; 3]);
    let count = |n: usize| counts[n].get();
    // The first one sets another in its place, which removes itself.
    let (own, seen) = (Rc::downgrade(&endpoint), counts.clone());
    let first = move |_: &Token<'_>| {
        let (me, seen, own) = (own.upgrade().unwrap(), seen.clone(), own.clone());
        seen[0].set(seen[0].get() + 1);
        me.set_local_handler(1, move |_| {
            seen[1].set(seen[1].get() + 1);
            own.upgrade().unwrap().clear_handler(1);
        });
        me.set_handler(2, |_| ());
    };
    endpoint.set_local_handler(1, first.clone());
    send_both();
    endpoint.set_local_handler(1, first);
    send_both();
    assert_eq!([count(0), count(1)], [2, 2]);
    assert_eq!(Rc::strong_count(&counts), 1, "no handler holds them");
    // It is gone: messages come back.
    let seen = counts.clone();
    endpoint.set_local_handler(0, move |message| {
        assert_eq!(message.returned().unwrap().status, Status::BadHandler);
        seen[2].set(seen[2].get() + 1);
    });
    send_both();
    assert_eq!(count(2), 2);
}

#[test]
fn a_parallel_endpoint_is_used_by_many_threads() {
    let _watchdog = Watchdog::new(Duration::from_secs(60), || "parallel endpoints".into());
    let worlds = members(&tiny(2, Algorithm::Towpath));
    let endpoints: Vec<_> = worlds.iter().map(|w| Endpoint::new(w).unwrap()).collect();
    let names: Vec<_> = endpoints.iter().map(Endpoint::name).collect();
    let delivered = Arc::new(AtomicU32::new(0));
    for endpoint in &endpoints {
        let delivered = delivered.clone();
        endpoint.set_handler(1, move |_| {
            delivered.fetch_add(1, Ordering::Relaxed);
        });
    }
    let bundle = ParallelBundle::new();
    let parallel: Vec<_> = endpoints.into_iter().map(|e| bundle.add(e).unwrap()).collect();
    parallel[0].map(0, names[1], Tag::ALL).unwrap();
    parallel[1].map(0, names[0], Tag::ALL).unwrap();
    const EACH: u32 = 500;
    std::thread::scope(|scope| {
        for endpoint in &parallel {
            for _ in 0..3 {
                scope.spawn(|| {
                    // Only waiters poll: for space, or for the end.
                    for n in 0..EACH {
                        endpoint.request(0, 1, &[n]).unwrap();
                    }
                    while delivered.load(Ordering::Relaxed) < 6 * EACH {
                        bundle.poll();
                        bundle.wait(Duration::from_micros(100)).unwrap();
                    }
                });
            }
        }
    });
    assert_eq!(delivered.load(Ordering::Relaxed), 6 * EACH);
    assert!(!bundle.wait(Duration::from_millis(1)).unwrap(), "nothing more comes");
    for endpoint in parallel {
        bundle.remove(&endpoint);
        let endpoint = Arc::into_inner(endpoint).expect("the last handle").into_sequential();
        assert!(endpoint.audit().is_clean());
    }
    assert!(matches!(bundle.wait(Duration::ZERO), Err(Error::BadArgument(_))), "it is empty");
}

#[test]
fn endpoints_of_a_parallel_bundle_answer_each_other() {
    let _watchdog = Watchdog::new(Duration::from_secs(60), || "a reply waits for replies".into());
    let worlds = members(&tiny(3, Algorithm::Towpath));
    let bundle = ParallelBundle::new();
    let replies = Arc::new(AtomicU32::new(0));
    let endpoints: Vec<_> = worlds
        .iter()
        .map(|world| {
            let endpoint = Endpoint::new(world).unwrap();
            let replies = replies.clone();
            endpoint.set_handler(1, |message| message.reply(2, &[]).unwrap());
            endpoint.set_handler(2, move |_| {
                replies.fetch_add(1, Ordering::Relaxed);
            });
            endpoint
        })
        .collect();
    let names: Vec<_> = endpoints.iter().map(Endpoint::name).collect();
    let endpoints: Vec<_> = endpoints.into_iter().map(|e| bundle.add(e).unwrap()).collect();
    // The reply queue of the first has room for half of the replies.
    for (entry, &name) in names.iter().enumerate().skip(1) {
        endpoints[0].map(entry, name, Tag::ALL).unwrap();
        for _ in 0..8 {
            endpoints[0].request(entry, 1, &[]).unwrap();
        }
    }
    while replies.load(Ordering::Relaxed) < 16 {
        bundle.poll();
    }
}

#[test]
fn a_panicking_handler_loses_nothing_else() {
    let pair = Pair::new();
    pair.b.set_handler(9, |_| panic!("on purpose"));
    pair.a.request(0, 9, &[]).unwrap();
    pair.a.request(0, 1, &[2]).unwrap();
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pair.b.poll()));
    assert!(caught.is_err());
    pair.settle();
    assert_eq!(take(&pair.at_b).iter().map(|s| s.args[0]).collect::<Vec<_>>(), [2]);
    pair.a.request(0, 1, &[3]).unwrap();
    pair.settle();
    assert_eq!(take(&pair.at_b).len(), 1);
    assert!(pair.b.audit().is_clean());
}

#[test]
fn map_world_does_not_wait_for_dead_ranks() {
    // Well below the time after which it would give up on a living one.
    let _watchdog = Watchdog::new(Duration::from_secs(20), || "map_world waits for the dead".into());
    let config = tiny(3, Algorithm::Towpath);
    let world = support::world(&config);
    let member = |rank| {
        let member = world.reopen().unwrap();
        member.enter(Some(rank)).unwrap();
        member
    };
    let (first, last) = (member(0), member(2));
    // Its process has failed without ever having entered.
    world.process_ended(1, 4711, true);
    let (a, c) = (Endpoint::new(&first).unwrap(), Endpoint::new(&last).unwrap());
    for endpoint in [&a, &c] {
        let error = endpoint.map_world().unwrap_err();
        assert!(matches!(error, Error::World(towpath_shm::Error::MemberDied { rank: 1 })), "{error}");
        assert_eq!([0, 1, 2].map(|rank| endpoint.mapping(rank).is_some()), [true, false, true]);
    }
}

#[test]
fn map_world_does_not_wait_for_ranks_that_have_left() {
    // Well below the time after which it would give up on a living one.
    let _watchdog = Watchdog::new(Duration::from_secs(20), || "map_world waits for those that left".into());
    let config = tiny(4, Algorithm::Towpath);
    let world = support::world(&config);
    let member = |rank| {
        let member = world.reopen().unwrap();
        member.enter(Some(rank)).unwrap();
        member
    };
    let (first, last) = (member(0), member(3));
    // One has ended with code 0 without ever having entered; one was there, and has left.
    world.process_ended(1, 4711, false);
    member(2).leave().unwrap();
    assert_eq!([0, 1, 2, 3].map(|rank| world.has_left(rank)), [false, true, true, false]);
    let (a, d) = (Endpoint::new(&first).unwrap(), Endpoint::new(&last).unwrap());
    for endpoint in [&a, &d] {
        let error = endpoint.map_world().unwrap_err();
        assert!(matches!(&error, Error::Resource(why) if why.starts_with("rank 1 ")), "{error}");
        assert_eq!([0, 1, 2, 3].map(|rank| endpoint.mapping(rank).is_some()), [true, false, false, true]);
    }
}

#[test]
fn world_without_message_area_says_how_to_make_one() {
    let spec = towpath_shm::WorldSpec {
        name: None,
        processes: 2,
        area_bytes: 1 << 20,
        object_bytes: 0,
        params: [0; 16],
    };
    let world = towpath_shm::World::create(&spec).unwrap();
    world.enter(None).unwrap();
    let error = Endpoint::new(&world).unwrap_err().to_string();
    assert!(error.contains("towpath::create") && !error.contains("version"), "{error}");
}
