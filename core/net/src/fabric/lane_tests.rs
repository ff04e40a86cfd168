//! Messages of strangers, and messages that are lost.
//!
//! Skipped where there is no libfabric.

use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::endpoint::{FabricEndpoint, Half};
use super::lane::{LaneReceiver, LaneSender, lanes};
use crate::cipher::{FirstKey, RecordCipher};
use crate::frame::{Opener, ReadFailure, Sealer};

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// Key of the peer's direction, and that of a stranger.
const KEYS: [FirstKey; 2] = [[1; 32], [2; 32]];

fn sealer(key: &FirstKey) -> Sealer {
    Sealer::new(RecordCipher::new(key).unwrap())
}

/// A receiving end, and senders of the peer and of a stranger.
struct Scene {
    streams: [TcpStream; 2],
    peer: LaneSender,
    stranger: LaneSender,
    receiver: LaneReceiver,
    opener: Opener,
    _others: Vec<LaneReceiver>,
    _own: LaneSender,
}

impl Scene {
    fn new() -> Option<Scene> {
        let Ok(own) = FabricEndpoint::open("tcp", HERE) else {
            eprintln!("skipped: no libfabric with the provider tcp here");
            return None;
        };
        let address = own.address().unwrap();
        let towards = || {
            let endpoint = FabricEndpoint::open("tcp", HERE).unwrap();
            endpoint.connect(&address).unwrap();
            lanes(endpoint).unwrap()
        };
        let ((peer, first), (stranger, second)) = (towards(), towards());
        let (own, receiver) = lanes(own).unwrap();
        let listener = TcpListener::bind((HERE, 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let streams = [stream, listener.accept().unwrap().0];
        let opener = Opener::new(RecordCipher::new(&KEYS[0]).unwrap());
        let _others = vec![first, second];
        Some(Scene { streams, peer, stranger, receiver, opener, _others, _own: own })
    }

    /// The frame that comes next, of messages that `send` sends from a thread of its own.
    fn receive(
        &mut self,
        send: impl FnOnce(&mut LaneSender, &mut LaneSender, &TcpStream) + Send,
    ) -> Result<Vec<u8>, ReadFailure> {
        let Scene { streams: [far, near], peer, stranger, receiver, opener, .. } = self;
        receiver.at_most = Some(Duration::from_secs(20));
        std::thread::scope(|scope| {
            scope.spawn(move || send(peer, stranger, far));
            let mut frame = Vec::new();
            receiver.receive(opener, near, &mut frame).map(|()| frame)
        })
    }
}

/// Sends a frame.
fn say(lane: &mut LaneSender, sealer: &mut Sealer, stream: &TcpStream, text: &[u8]) {
    lane.add(text);
    lane.flush(sealer, stream, Some(Instant::now() + Duration::from_secs(20))).unwrap();
}

#[test]
fn strangers_and_repetitions_are_passed_over() {
    let Some(mut scene) = Scene::new() else { return };
    let by_peer = &mut sealer(&KEYS[0]);
    let first = scene.receive(|peer, _, stream| say(peer, by_peer, stream, b"first"));
    assert_eq!(first.unwrap(), b"first");
    let second = scene.receive(|peer, stranger, stream| {
        // With a key of its own, for this number and the next ones; and a repetition of the first.
        let mut forged = sealer(&KEYS[1]);
        for _ in 0..40 {
            say(stranger, &mut forged, stream, b"forged");
        }
        say(stranger, &mut sealer(&KEYS[0]), stream, b"again");
        say(peer, by_peer, stream, b"second");
    });
    assert_eq!(second.unwrap(), b"second");
}

#[test]
fn message_behind_a_gap_is_the_end() {
    // Also where the next key begins.
    for lost in [1, 3] {
        let Some(mut scene) = Scene::new() else { return };
        let behind = scene.receive(|peer, _, stream| {
            let mut sealer = sealer(&KEYS[0]);
            for _ in 0..lost {
                sealer.seal(b"lost", &mut [0; 100]);
            }
            say(peer, &mut sealer, stream, b"behind it");
        });
        assert!(matches!(behind, Err(ReadFailure::Damaged)), "{lost}: {behind:?}");
    }
}

#[test]
fn forged_farewell_is_an_error_and_a_true_one_the_end() {
    for is_true in [false, true] {
        let Some(mut scene) = Scene::new() else { return };
        let end = scene.receive(|peer, _, stream| {
            let mut sealer = sealer(&KEYS[usize::from(!is_true)]);
            peer.finish(&mut sealer, stream, Duration::from_secs(20)).unwrap();
        });
        match end {
            Err(ReadFailure::Closed) => assert!(is_true),
            Err(ReadFailure::Io(error)) => assert!(!is_true && error.to_string() == "damaged bytes"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn endpoint_sends_nothing_before_it_knows_its_peer() {
    let Ok(endpoint) = FabricEndpoint::open("tcp", HERE) else {
        return eprintln!("skipped: no libfabric with the provider tcp here");
    };
    // SAFETY: no half has a slot yet, and the endpoint takes none.
    assert!(unsafe { endpoint.post(Half::Send, 0, 1) }.is_err());
    assert!(endpoint.connect(&[1, 2, 3]).unwrap_err().contains("of another kind"));
    let address = endpoint.address().unwrap();
    endpoint.connect(&address).unwrap();
    assert!(endpoint.connect(&address).is_err());
}

#[test]
fn message_that_is_later_than_the_farewell_arrives() {
    // Beyond a change of the key.
    const LATE: usize = 5;
    let Some(mut scene) = Scene::new() else { return };
    let late = scene.receive(|peer, other_way, stream| {
        let mut ahead = sealer(&KEYS[0]);
        for _ in 0..LATE {
            ahead.seal(b"late", &mut [0; 100]);
        }
        peer.finish(&mut ahead, stream, Duration::from_secs(20)).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        let mut late = sealer(&KEYS[0]);
        (0..LATE).for_each(|_| say(other_way, &mut late, stream, b"late"));
    });
    assert_eq!(late.unwrap(), b"late");
    (1..LATE).for_each(|_| assert_eq!(scene.receive(|_, _, _| ()).unwrap(), b"late"));
    assert!(matches!(scene.receive(|_, _, _| ()), Err(ReadFailure::Closed)));
}
