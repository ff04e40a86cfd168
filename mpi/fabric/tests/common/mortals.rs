//! Processes that are killed while we talk to them.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use towpath_fi::device::operation::{Refusal, SendRequest};
use towpath_fi::device::resource::completion::{Class, error};
use towpath_fi::device::tune::settings::Settings;

use super::{Node, learn, open, over, pattern, tell, ticket, wait_for};

/// Starts a child that does something with an endpoint that knows us as its peer 0. It is
/// killed when the first part of the result is dropped; the second leads to it.
pub trait Start<V>: FnOnce(Settings, &dyn Fn(Node)) -> (V, UnixStream) {}
impl<V, F: FnOnce(Settings, &dyn Fn(Node)) -> (V, UnixStream)> Start<V> for F {}

/// The child sends numbers without end; it is killed at some moment. They arrive in
/// order, and then the receive that waits for it ends.
pub fn a_sender_dies<V>(settings: Settings, after: Duration, len: usize, child: impl Start<V>) {
    let mut node = open(settings);
    let (child, mut line) = child(settings, &move |mut node| {
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

/// Sends to a child that takes nothing, or everything; it is killed. Every send ends,
/// with or without an error, and the next is refused.
pub fn a_receiver_dies<V>(settings: Settings, takes: bool, len: usize, child: impl Start<V>) {
    let mut node = open(settings);
    let (child, mut line) = child(settings, &move |mut node| {
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
    let buffer = over(&bytes);
    loop {
        let ticket = ticket(0, Class::Send);
        let message = SendRequest {
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
