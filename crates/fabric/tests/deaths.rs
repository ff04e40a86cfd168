//! Deaths: a process is killed while others talk to it, at arbitrary moments. What is under way with it ends with an error, what it had sent arrives, and the rest go on.
//!
//! Forks; so it has no test harness: it must be the only thread of its process.
#![allow(unsafe_code)]

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use common::{Node, pattern};
use towpath_fi::engine::address::{ADDRESS_BYTES, Address};
use towpath_fi::engine::completion::error;
use towpath_fi::engine::endpoint::{Endpoint, Message0, Refusal};
use towpath_fi::engine::settings::Settings;
use towpath_testkit::{Child, watchdog};

fn open(settings: Settings) -> Node {
    let mut endpoint = Endpoint::open(settings).expect("an endpoint can be opened");
    let (sent, received) = (Rc::default(), Rc::default());
    endpoint.core.reports.transmit = Some(Rc::clone(&sent));
    endpoint.core.reports.receive = Some(Rc::clone(&received));
    Node { endpoint, sent, received }
}

fn tell(node: &Node, to: &mut UnixStream) {
    to.write_all(&node.endpoint.port.address.to_bytes()).expect("the other is there");
}

fn learn(node: &mut Node, from: &mut UnixStream) -> u32 {
    let mut bytes = [0; ADDRESS_BYTES];
    from.read_exact(&mut bytes).expect("the other is there");
    let address = Address::from_bytes(&bytes).expect("an address");
    let peer = node.endpoint.core.peer(address);
    node.endpoint.core.peers[peer as usize].listed = u64::from(peer);
    peer
}

/// A child that does something with an endpoint that knows us as its peer 0.
fn child(settings: Settings, act: impl FnOnce(Node)) -> (Child, UnixStream) {
    let (mine, mut its) = UnixStream::pair().expect("a pair of sockets");
    let child = Child::fork(move || {
        let mut node = open(settings);
        tell(&node, &mut its);
        learn(&mut node, &mut its);
        act(node);
    });
    mine.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    (child, mine)
}

fn wait_for(node: &mut Node, mut done: impl FnMut(&mut Node) -> bool) {
    let mut looked = Instant::now();
    while !done(node) {
        node.endpoint.progress();
        if looked.elapsed() > Duration::from_millis(2) {
            node.endpoint.look_after();
            looked = Instant::now();
        }
        std::thread::yield_now();
    }
}

/// The child sends numbers without end; it is killed at some moment. They arrive in order, and then the receive that waits for it ends.
fn a_sender_dies(settings: Settings, after: Duration, len: usize) {
    let mut node = open(settings);
    let (child, mut line) = child(settings, move |mut node| {
        let bytes: Vec<Vec<u8>> = (0..4).map(|i| pattern(len, i)).collect();
        for i in 0u64.. {
            while !node.send(0, i, &bytes[i as usize % 4], 0) {
                node.endpoint.progress();
            }
            node.endpoint.progress();
            while node.next_sent().is_some() {}
        }
    });
    let peer = learn(&mut node, &mut line);
    tell(&node, &mut line);
    let mut child = Some(child);
    let start = Instant::now();
    for i in 0u64.. {
        let mut into = vec![0; len];
        node.receive(Some(peer), i, 0, &mut into, i as usize);
        let mut report = None;
        wait_for(&mut node, |node| {
            if start.elapsed() >= after {
                drop(child.take());
            }
            report = node.next_received();
            report.is_some()
        });
        let report = report.expect("just seen");
        if report.error != 0 {
            assert_eq!(report.error, error::UNREACHABLE);
            assert!(child.is_none(), "it was alive");
            break;
        }
        assert!(into == pattern(len, i as usize % 4), "message {i}");
    }
}

/// We send to a child that takes nothing, or everything; it is killed. Every send ends, with or without an error, and the next is refused.
fn a_receiver_dies(settings: Settings, takes: bool, len: usize) {
    let mut node = open(settings);
    let (child, mut line) = child(settings, move |mut node| {
        let mut into = vec![0; len];
        loop {
            if takes {
                node.receive(None, 0, u64::MAX, &mut into, 0);
                wait_for(&mut node, |node| node.next_received().is_some());
            } else {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let peer = learn(&mut node, &mut line);
    tell(&node, &mut line);
    let bytes = pattern(len, 1);
    let start = Instant::now();
    let (mut started, mut ended, mut child) = (0, 0, Some(child));
    let buffer = common::over(&bytes);
    loop {
        let ticket = common::ticket(0, towpath_fi::engine::completion::Class::Send);
        let message = Message0 {
            peer,
            tag: Some(1),
            buffer: &buffer,
            data: None,
            ticket,
            inject: false,
            matched: false,
        };
        match node.endpoint.core.send(&message) {
            Ok(()) => started += 1,
            Err(Refusal::Again) => {
                node.endpoint.progress();
                node.endpoint.look_after();
            }
            Err(refusal) => {
                assert_eq!(refusal, Refusal::Unreachable);
                assert!(child.is_none(), "it was alive");
                break;
            }
        }
        if started % 16 == 0 {
            node.endpoint.look_after();
        }
        node.endpoint.progress();
        ended += std::iter::from_fn(|| node.next_sent()).count();
        if start.elapsed() > Duration::from_millis(20) {
            drop(child.take());
        }
    }
    ended += std::iter::from_fn(|| node.next_sent()).count();
    assert_eq!(started, ended, "every send is reported once");
}

fn main() {
    let usual = Settings::default();
    let slots = Settings { direct: Some(0), ..usual };
    let shared = Settings { ring_after: u32::MAX, ..slots };
    let direct = Settings { direct: Some(1), ..usual };
    let ways = [("slots", slots), ("shared queue", shared), ("direct", direct), ("as is measured", usual)];
    for (name, settings) in ways {
        for len in [8, 3000, 200_000] {
            for ms in [1, 7, 23] {
                watchdog::begin(format!("a sender dies: {name}, {len} bytes, after {ms} ms"), 60);
                a_sender_dies(settings, Duration::from_millis(ms), len);
            }
            for takes in [true, false] {
                watchdog::begin(format!("a receiver dies: {name}, {len} bytes, taking: {takes}"), 60);
                a_receiver_dies(settings, takes, len);
            }
        }
    }
    watchdog::begin("the end".into(), 0);
    println!("deaths: ok");
}
