//! Short requests of endpoints that send many, in streams beside the receiver's queue.

use std::cell::RefCell;
use std::time::Duration;

use crate::support::{Numbers, Watchdog, members, taken, tiny};
use towpath_am::{Algorithm, Bundle, Endpoint, Error, SignalEndpoint, Status, Tag, WorldConfig};
use towpath_machine::Random;
use towpath_shm::World;

const HEAR: u8 = 1;
const ASK: u8 = 2;
const ANSWER: u8 = 3;
const PAYLOAD: u8 = 4;
/// More short requests than a sender sends through the queue at first.
const MANY: u32 = 40;

fn log(endpoint: &Endpoint, handler: u8) -> Numbers {
    let log = Numbers::default();
    let noted = log.clone();
    endpoint.set_handler(handler, move |message| {
        let args = message.args();
        assert!(args.iter().skip(1).all(|&arg| arg == args[0]), "a message's parts: {args:?}");
        noted.lock().unwrap().push(args[0]);
    });
    log
}

fn config(endpoints: u32) -> WorldConfig {
    WorldConfig { streams: 2, ..tiny(endpoints, Algorithm::Towpath) }
}

fn endpoint(world: &World) -> Endpoint {
    Endpoint::new(world).unwrap()
}

fn hear_all(receiver: &Endpoint) {
    while receiver.poll() > 0 {}
}

/// Sends so many numbered requests, for which the receiver polls.
fn send(sender: &Endpoint, receiver: &Endpoint, numbers: std::ops::Range<u32>) {
    for number in numbers {
        while let Err(error) = sender.try_request(0, HEAR, &[number, number]) {
            assert!(matches!(error, Error::NotSent), "{error}");
            hear_all(receiver);
        }
    }
}

/// A receiver with its log, and a sender that knows it and has a stream there.
fn pair(config: &WorldConfig) -> (Endpoint, Numbers, Endpoint) {
    let worlds = members(config);
    let (receiver, sender) = (endpoint(&worlds[0]), endpoint(&worlds[1]));
    sender.map(0, receiver.name(), Tag::ALL).unwrap();
    let heard = log(&receiver, HEAR);
    send(&sender, &receiver, 0..MANY);
    hear_all(&receiver);
    assert_eq!(taken(&heard), (0..MANY).collect::<Vec<_>>());
    (receiver, heard, sender)
}

/// Fills the stream. Returns the number of its records.
fn fill(sender: &Endpoint, first: u32) -> u32 {
    let mut number = first;
    while sender.try_request(0, HEAR, &[number, number]).is_ok() {
        number += 1;
        assert!(number < 10_000, "it is never full");
    }
    number - first
}

/// Brings everything back that did not arrive, in order.
fn returned(endpoint: &Endpoint) -> Numbers {
    let back = Numbers::default();
    let noted = back.clone();
    endpoint.set_handler(0, move |message| {
        let status = message.returned().unwrap().status;
        assert!(matches!(status, Status::Unreachable | Status::BadEndpoint), "{status:?}");
        noted.lock().unwrap().push(message.args()[0]);
    });
    back
}

#[test]
fn sender_of_many_takes_a_stream_and_waits_where_it_is_full() {
    let (receiver, heard, sender) = pair(&config(2));
    assert_eq!(receiver.streams(), 1);
    for lap in 0..5 {
        let count = fill(&sender, lap);
        assert!(count > 400, "8 KiB, and 16 bytes each: {count}");
        assert!(!receiver.audit().is_clean());
        hear_all(&receiver);
        assert_eq!(taken(&heard), (lap..lap + count).collect::<Vec<_>>());
        assert!(receiver.audit().is_clean());
    }
}

#[test]
fn other_algorithms_and_configurations_use_queues_alone() {
    let without = WorldConfig { streams: 0, ..config(2) };
    let of = |algorithm| WorldConfig { algorithm, ..config(2) };
    for config in [without, of(Algorithm::LockFree), of(Algorithm::Ticket)] {
        let (receiver, _, sender) = pair(&config);
        assert_eq!((receiver.streams(), fill(&sender, 0)), (0, 8));
    }
}

#[test]
fn streams_are_for_as_many_senders_as_there_are() {
    let worlds = members(&config(5));
    let receiver = endpoint(&worlds[0]);
    let heard = log(&receiver, HEAR);
    for round in 0..3 {
        // The next incarnations find the streams free: the last ones are closed and all is heard.
        let senders: Vec<Endpoint> = worlds[1..].iter().map(endpoint).collect();
        for sender in &senders {
            sender.map(0, receiver.name(), Tag::ALL).unwrap();
            send(sender, &receiver, 0..MANY);
            // Not heard before the sender is gone.
            send(sender, &receiver, MANY..MANY + 3);
        }
        assert_eq!(receiver.streams(), 2, "round {round}");
        drop(senders);
        receiver.recover();
        hear_all(&receiver);
        receiver.recover();
        assert_eq!(taken(&heard).len(), 4 * (MANY as usize + 3));
        assert_eq!(receiver.streams(), 0);
    }
}

/// Messages of all forms, at random, with polls between them: stream, queue, line.
#[test]
fn stream_queue_and_line_keep_the_order_of_one_sender() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let worlds = members(&config(3));
        let ends: Vec<Endpoint> = worlds.iter().map(endpoint).collect();
        // Polled together: what waits for space does not stand still.
        let bundle = Bundle::new();
        ends.iter().for_each(|end| bundle.add(end));
        let logs: Vec<Numbers> = ends.iter().map(|_| Numbers::default()).collect();
        for (me, end) in ends.iter().enumerate() {
            for (to, peer) in ends.iter().enumerate() {
                end.map(to, peer.name(), Tag::ALL).unwrap();
                end.map(8 + to, peer.name(), Tag(7)).unwrap();
            }
            let log = logs[me].clone();
            let note = move |args: &[u32]| log.lock().unwrap().extend(&args[..2]);
            let (hears, asks) = (note.clone(), note.clone());
            end.set_handler(HEAR, move |message| hears(message.args()));
            end.set_handler(ASK, move |message| {
                asks(message.args());
                message.reply(ANSWER, &[]).unwrap();
            });
            end.set_handler(ANSWER, |_| {});
            end.set_handler(PAYLOAD, move |message| note(message.args()));
        }
        let mut sent = [[0u32; 3]; 3];
        // In some runs most are short, so that streams are opened; in others all forms alike.
        let short = if seed % 2 == 0 { 30 } else { 3 };
        for _ in 0..1500 {
            let (from, to) = (random.below(2) as usize, random.below(3) as usize);
            let args: Vec<u32> = {
                let mut args = vec![from as u32, sent[from][to]];
                args.extend(core::iter::repeat_n(9, random.below(15) as usize));
                args
            };
            let end = &ends[from];
            let result = match random.below(short + 4) {
                0 => end.request_medium(to, PAYLOAD, &args, b"medium"),
                1 => end.try_request(8 + to, HEAR, &args),
                2 => end.try_request(to, ASK, &args[..2]),
                3 => end.try_request(to, HEAR, &args),
                _ => end.try_request(to, HEAR, &args[..2]),
            };
            match result {
                Ok(()) => sent[from][to] += 1,
                Err(error) => assert!(matches!(error, Error::NotSent), "{error}"),
            }
            if random.below(4) == 0 {
                ends[random.below(3) as usize].poll();
            }
        }
        while ends.iter().map(Endpoint::poll).sum::<usize>() > 0 {}
        for (to, log) in logs.iter().enumerate() {
            let heard = taken(log);
            for (from, sent) in sent.iter().enumerate().take(2) {
                let from_it: Vec<u32> =
                    heard.chunks(2).filter(|pair| pair[0] == from as u32).map(|pair| pair[1]).collect();
                assert_eq!(from_it, (0..sent[to]).collect::<Vec<_>>(), "seed {seed}, {from} to {to}");
            }
        }
        assert!(ends.iter().all(|end| end.audit().is_clean()), "seed {seed}");
        assert!(seed % 2 == 1 || ends.iter().map(Endpoint::streams).sum::<usize>() > 2, "seed {seed}");
    }
}

#[test]
fn stream_opened_during_a_poll_comes_before_a_later_packet() {
    thread_local! {
        static SENDER: RefCell<Option<Endpoint>> = const { RefCell::new(None) };
    }
    let worlds = members(&WorldConfig { packets: 64, ..config(2) });
    let (receiver, sender) = (endpoint(&worlds[0]), endpoint(&worlds[1]));
    sender.map(0, receiver.name(), Tag::ALL).unwrap();
    let heard = log(&receiver, PAYLOAD);
    let noted = heard.clone();
    receiver.set_handler(HEAR, move |message| {
        let number = message.args()[0];
        noted.lock().unwrap().push(number);
        if number == 20 {
            SENDER.with_borrow(|sender| {
                let sender = sender.as_ref().expect("the sender of the test");
                (21..MANY).for_each(|number| sender.try_request(0, HEAR, &[number]).unwrap());
                sender.request_medium(0, PAYLOAD, &[MANY], b"after the stream").unwrap();
            });
        }
    });
    (0..20).for_each(|number| sender.try_request(0, HEAR, &[number]).unwrap());
    hear_all(&receiver);
    sender.try_request(0, HEAR, &[20]).unwrap();
    SENDER.set(Some(sender));
    hear_all(&receiver);
    assert_eq!(taken(&heard), (0..=MANY).collect::<Vec<_>>());
    SENDER.set(None);
}

#[test]
fn requests_of_stream_and_queue_come_back_in_order() {
    let (receiver, heard, sender) = pair(&config(2));
    let back = returned(&sender);
    // Five in the stream, of which two are handled; one in the queue; two in the stream; again.
    send(&sender, &receiver, 0..2);
    hear_all(&receiver);
    assert_eq!(taken(&heard), [0, 1]);
    send(&sender, &receiver, 2..5);
    sender.map(1, receiver.name(), Tag(7)).unwrap();
    for number in [5, 8] {
        sender.request(1, HEAR, &[number]).unwrap();
        send(&sender, &receiver, number + 1..number + 3);
    }
    drop(receiver);
    sender.recover();
    hear_all(&sender);
    assert_eq!(taken(&back), (2..11).collect::<Vec<_>>());
    sender.request(0, HEAR, &[11]).unwrap();
    hear_all(&sender);
    assert_eq!(taken(&back), [11]);
}

#[test]
fn successor_leaves_a_living_senders_stream_alone() {
    let worlds = members(&config(3));
    let first = endpoint(&worlds[0]);
    let senders: Vec<Endpoint> = worlds[1..].iter().map(endpoint).collect();
    for sender in &senders {
        sender.map(0, first.name(), Tag::ALL).unwrap();
        first.set_handler(HEAR, |_| {});
        send(sender, &first, 0..MANY);
        hear_all(&first);
    }
    let backs: Vec<Numbers> = senders.iter().map(returned).collect();
    let numbers: Vec<u32> = (0..100).collect();
    // None of these is handled.
    senders.iter().for_each(|sender| send(sender, &first, 0..100));
    drop(first);
    let second = endpoint(&worlds[0]);
    let heard = log(&second, HEAR);
    for round in 0..2 {
        for (sender, back) in senders.iter().zip(&backs) {
            if round == 0 {
                // It learns of the end, and begins anew.
                sender.recover();
                hear_all(sender);
                assert_eq!(taken(back), numbers);
                sender.map(0, second.name(), Tag::ALL).unwrap();
            }
            send(sender, &second, 0..MANY);
            hear_all(&second);
            assert_eq!(taken(&heard), (0..MANY).collect::<Vec<_>>());
            second.recover();
        }
    }
    assert_eq!(second.streams(), 2);
}

#[test]
fn record_wakes_a_sleeping_receiver() {
    let _watchdog = Watchdog::new(Duration::from_secs(100), || "a sleeper was not woken".into());
    let config = config(2);
    let mut worlds = members(&config);
    let world = worlds.remove(0);
    let (names, name) = std::sync::mpsc::channel();
    let count = 3000;
    let sleeper = std::thread::spawn(move || {
        let receiver = endpoint(&world);
        let heard = log(&receiver, HEAR);
        let bundle = Bundle::new();
        bundle.add(&receiver);
        names.send(receiver.name()).unwrap();
        while heard.lock().unwrap().len() < count as usize {
            bundle.wait(None).unwrap();
            hear_all(&receiver);
        }
        (receiver.streams(), taken(&heard))
    });
    let sender = endpoint(&worlds[0]);
    sender.map(0, name.recv().unwrap(), Tag::ALL).unwrap();
    let mut random = Random::new(7);
    for number in 0..count {
        sender.request(0, HEAR, &[number]).unwrap();
        // Now and then the receiver has time to fall asleep.
        if random.below(8) == 0 {
            std::thread::sleep(Duration::from_micros(random.below(200)));
        }
    }
    let (streams, heard) = sleeper.join().unwrap();
    assert_eq!((streams, heard), (1, (0..count).collect::<Vec<_>>()));
}

#[test]
fn endpoint_that_a_signal_polls_takes_no_streams() {
    let worlds = members(&config(2));
    let (receiver, sender) = (endpoint(&worlds[0]), endpoint(&worlds[1]));
    sender.map(0, receiver.name(), Tag::ALL).unwrap();
    let heard = log(&receiver, HEAR);
    let receiver = SignalEndpoint::new(receiver, 5).unwrap();
    for number in 0..5 * MANY {
        sender.request(0, HEAR, &[number]).unwrap();
        receiver.poll();
    }
    assert_eq!(receiver.with(Endpoint::streams), 0);
    assert_eq!(taken(&heard), (0..5 * MANY).collect::<Vec<_>>());
}
