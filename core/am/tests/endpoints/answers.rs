//! Short messages of endpoints that answer each other, in the line beside their queues.

use std::sync::{Arc, Mutex};

use crate::support::{Numbers, members, taken, tiny};
use towpath_am::answer_line::AUX_ARGS;
use towpath_am::{Algorithm, Endpoint, Error, Operation, Status, Tag, WorldConfig};

const ASK: u8 = 1;
const ANSWER: u8 = 2;
const HEAR: u8 = 3;

fn log(endpoint: &Endpoint, handler: u8) -> Numbers {
    let log = Numbers::default();
    let noted = log.clone();
    endpoint.set_handler(handler, move |message| noted.lock().unwrap().push(message.args()[0]));
    log
}

/// A server that answers, and clients that know it, in one process.
fn server_and_clients(config: &WorldConfig) -> (Endpoint, Vec<(Endpoint, Numbers)>) {
    let end = |world| Endpoint::with_shared_segment(world).unwrap();
    let mut ends: Vec<Endpoint> = members(config).iter().map(end).collect();
    let server = ends.remove(0);
    server.set_handler(ASK, |question| question.reply(ANSWER, question.args()).unwrap());
    let clients = ends.into_iter().map(|client| {
        client.map(0, server.name(), Tag::ALL).unwrap();
        let answers = log(&client, ANSWER);
        (client, answers)
    });
    let clients = clients.collect();
    (server, clients)
}

/// One question of each client, and its answer.
fn round(server: &Endpoint, clients: &[(Endpoint, Numbers)], number: u32) {
    for (client, _) in clients {
        client.request(0, ASK, &[number]).unwrap();
    }
    while server.poll() > 0 {}
    for (client, answers) in clients {
        while client.poll() > 0 {}
        assert_eq!(taken(answers), [number]);
    }
}

#[test]
fn line_is_used_after_a_few_answers_and_keeps_the_order() {
    let config = WorldConfig { packets: 2, ..tiny(2, Algorithm::Towpath) };
    let (server, clients) = server_and_clients(&config);
    for number in 0..20 {
        round(&server, &clients, number);
    }
    let client = &clients[0].0;
    assert_eq!((server.answer_lines(), client.answer_lines()), (1, 1));
    let heard = log(&server, HEAR);
    // One in the line, two in the queue.
    for number in 1..=3 {
        client.try_request(0, HEAR, &[number]).unwrap();
    }
    assert!(matches!(client.try_request(0, HEAR, &[4]), Err(Error::NotSent)));
    assert_eq!(server.audit().request_packets, 3);
    while server.poll() > 0 {}
    assert_eq!(taken(&heard), [1, 2, 3]);
    // The line is the server's now: the client's go through the queue.
    client.request(0, HEAR, &[5]).unwrap();
    server.map(0, client.name(), Tag::ALL).unwrap();
    let heard_back = log(client, HEAR);
    server.request(0, HEAR, &[6]).unwrap();
    while server.poll() + client.poll() > 0 {}
    assert_eq!((taken(&heard), taken(&heard_back)), (vec![5], vec![6]));
    assert!(server.audit().is_clean() && client.audit().is_clean());
}

#[test]
fn stores_are_announced_in_the_line_and_take_its_reply() {
    let (server, clients) =
        server_and_clients(&WorldConfig { packets: 2, segment_bytes: 256, ..tiny(2, Algorithm::Towpath) });
    let (client, answers) = &clients[0];
    for number in 0..20 {
        round(&server, &clients, number);
    }
    let heard = log(&server, HEAR);
    // One in the line, two in the queue.
    for number in 1..=3 {
        client.request_long_async(0, HEAR, &[number], &[number as u8; 9], 8 * u64::from(number)).unwrap();
    }
    assert!(matches!(client.request_long_async(0, HEAR, &[4], &[4], 0), Err(Error::NotSent)));
    while server.poll() > 0 {}
    assert_eq!(taken(&heard), [1, 2, 3]);
    round(&server, &clients, 4);
    // The reply to a store is taken by the next one, but not if that may not wait.
    for number in 5..20 {
        client.request_long(0, ASK, &[number; AUX_ARGS], b"stored", 50).unwrap();
        assert_eq!(taken(answers), if number == 5 { vec![] } else { vec![number - 1] });
        assert_eq!((server.audit().request_packets, server.poll()), (1, 1));
    }
    client.request_long_async(0, HEAR, &[20; AUX_ARGS + 1], b"asynchronous", 50).unwrap();
    assert_eq!((taken(answers), client.poll(), taken(answers)), (vec![], 1, vec![19]));
    // Too many arguments for the line.
    client.request_long(0, HEAR, &[21; AUX_ARGS + 1], b"many", 50).unwrap();
    while server.poll() + client.poll() > 0 {}
    assert_eq!(taken(&heard), [20, 21]);
    let mut bytes = [0; 62];
    server.segment().read(0, &mut bytes);
    assert_eq!((bytes[8], bytes[16], bytes[32], &bytes[50..]), (1, 2, 3, &b"manychronous"[..]));
    assert!(server.audit().is_clean() && client.audit().is_clean());
}

#[test]
fn store_answers_a_question_in_its_line() {
    let (server, clients) = server_and_clients(&tiny(2, Algorithm::Towpath));
    for number in 0..20 {
        round(&server, &clients, number);
    }
    server.set_handler(ASK, |question| question.reply_long(ANSWER, question.args(), b"stored", 50).unwrap());
    round(&server, &clients, 20);
    let client = &clients[0].0;
    client.request(0, ASK, &[21]).unwrap();
    assert_eq!((server.poll(), client.audit().reply_packets), (1, 1));
    while client.poll() > 0 {}
    let mut bytes = [0; 6];
    client.segment().read(50, &mut bytes);
    assert_eq!(&bytes, b"stored");
}

#[test]
fn store_beyond_the_segment_comes_back_out_of_the_line() {
    let (server, clients) = server_and_clients(&tiny(2, Algorithm::Towpath));
    for number in 0..20 {
        round(&server, &clients, number);
    }
    let client = &clients[0].0;
    let back = Arc::new(Mutex::new(Vec::new()));
    let came = back.clone();
    client.set_handler(0, move |message| came.lock().unwrap().push(message.returned().unwrap()));
    client.request_long(0, ASK, &[20], b"beyond", 8187).unwrap();
    while server.poll() + client.poll() > 0 {}
    let back = back.lock().unwrap();
    let back: Vec<_> = back.iter().map(|back| (back.status, back.operation, back.handler)).collect();
    assert_eq!(back, [(Status::BadLength, Operation::RequestLong, ASK)]);
}

#[test]
fn other_algorithms_and_configurations_use_queues_alone() {
    let without = WorldConfig { answer_lines: false, ..tiny(2, Algorithm::Towpath) };
    for config in [tiny(2, Algorithm::LockFree), tiny(2, Algorithm::Ticket), without] {
        let (server, clients) = server_and_clients(&config);
        for number in 0..20 {
            round(&server, &clients, number);
        }
        assert_eq!((server.answer_lines(), clients[0].0.answer_lines()), (0, 0));
    }
}

#[test]
fn server_of_many_uses_some_lines_and_answers_all() {
    let (server, clients) = server_and_clients(&WorldConfig { packets: 16, ..tiny(12, Algorithm::Towpath) });
    for number in 0..60 {
        round(&server, &clients, number);
    }
    assert_eq!(server.answer_lines(), 8);
    // Those that talk now get a line, for those that no longer do.
    let (quiet, busy) = clients.split_at(6);
    for number in 60..90 {
        round(&server, busy, number);
    }
    assert!(busy.iter().all(|(client, _)| client.answer_lines() == 1));
    for number in 90..120 {
        round(&server, quiet, number);
        round(&server, busy, number);
    }
}

#[test]
fn requests_of_line_and_queue_come_back_in_order() {
    let (server, mut clients) = server_and_clients(&tiny(2, Algorithm::Towpath));
    for number in 0..20 {
        round(&server, &clients, number);
    }
    let (client, _) = clients.remove(0);
    let back = Arc::new(Mutex::new(Vec::new()));
    let noted = back.clone();
    client.set_handler(0, move |message| {
        assert_eq!(message.returned().unwrap().status, Status::Unreachable);
        let operation = message.returned().unwrap().operation;
        noted.lock().unwrap().push((message.args()[0], message.tag(), operation));
    });
    client.map(1, server.name(), Tag(7)).unwrap();
    client.request_long(1, ASK, &[1], b"stored", 0).unwrap();
    for number in 2..=3 {
        client.request(1, ASK, &[number]).unwrap();
    }
    drop(server);
    client.recover();
    while client.poll() > 0 {}
    let short = |number| (number, Tag(7), Operation::RequestShort);
    assert_eq!(*back.lock().unwrap(), [(1, Tag(7), Operation::RequestLong), short(2), short(3)]);
}
