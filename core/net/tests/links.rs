//! Links over loopback: frames, keys, peers that are gone.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use towpath_net::{Error, Key, Link, Listener, MAX_FRAME};

const PURPOSE: &str = "test";
const LONG: Duration = Duration::from_secs(10);

fn anywhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn pair() -> (Link, Link) {
    let key = Key::generate();
    let listener = Listener::bind(anywhere(), &key, PURPOSE).unwrap();
    let address = listener.address();
    let other = thread::spawn(move || listener.accept().unwrap().handshake().unwrap());
    let link = Link::connect(address, &key, PURPOSE, LONG).unwrap();
    (link, other.join().unwrap())
}

fn received(link: &mut Link) -> Vec<u8> {
    let mut frame = Vec::new();
    link.receive(&mut frame).unwrap();
    frame
}

#[test]
fn frames_of_all_lengths_arrive_whole_and_in_order() {
    let (mut a, mut b) = pair();
    let lengths = [0, 1, 65_517, 65_518, 65_519, 200_000, MAX_FRAME];
    let sender = thread::spawn(move || {
        for length in lengths {
            a.send(&vec![length as u8; length]).unwrap();
        }
        assert!(matches!(a.send(&vec![0; MAX_FRAME + 1]), Err(Error::TooLong(_))));
        a
    });
    for length in lengths {
        let frame = received(&mut b);
        assert_eq!((frame.len(), frame.iter().all(|&b| b == length as u8)), (length, true));
    }
    drop(sender.join().unwrap());
    let closed = b.receive(&mut Vec::new()).unwrap_err();
    assert!(matches!(closed, Error::Closed(_)) && closed.is_unreachable(), "{closed}");
}

#[test]
fn both_halves_work_at_the_same_time() {
    let (a, b) = pair();
    let echo = thread::spawn(move || {
        let (mut sender, mut receiver) = b.split();
        let mut frame = Vec::new();
        while receiver.receive(&mut frame).is_ok() {
            sender.send(&frame).unwrap();
        }
    });
    let (mut sender, mut receiver) = a.split();
    let sending = thread::spawn(move || {
        for n in 0..1_000u32 {
            sender.send(&n.to_le_bytes().repeat(n as usize % 50)).unwrap();
        }
    });
    let mut frame = Vec::new();
    for n in 0..1_000u32 {
        receiver.receive(&mut frame).unwrap();
        assert_eq!(frame, n.to_le_bytes().repeat(n as usize % 50));
    }
    sending.join().unwrap();
    drop(receiver);
    echo.join().unwrap();
}

#[test]
fn frames_sent_without_waiting_go_out_in_order() {
    let (a, mut b) = pair();
    let (mut sender, _receiver) = a.split();
    // The peer does not read: sooner or later its buffers are full.
    let mut count = 0u32;
    while sender.send_now(&count.to_le_bytes().repeat(20_000)).unwrap() {
        count += 1;
    }
    assert!(!sender.send_now(b"behind it").unwrap());
    let rest = thread::spawn(move || {
        sender.flush().unwrap();
        sender
    });
    for n in 0..=count {
        assert_eq!(received(&mut b), n.to_le_bytes().repeat(20_000), "{n} of {count}");
    }
    assert_eq!(received(&mut b), b"behind it");
    assert!(rest.join().unwrap().send_now(b"last").unwrap());
    assert_eq!(received(&mut b), b"last");
}

#[test]
fn another_key_or_purpose_is_refused_on_both_sides() {
    let key = Key::generate();
    for (other, purpose) in [(Key::generate(), PURPOSE), (key.clone(), "another")] {
        let listener = Listener::bind(anywhere(), &key, PURPOSE).unwrap();
        let address = listener.address();
        let refused = thread::spawn(move || listener.accept().unwrap().handshake().unwrap_err());
        let error = Link::connect(address, &other, purpose, LONG).unwrap_err();
        assert!(matches!(error, Error::NotOurs(_)), "{error}");
        assert!(matches!(refused.join().unwrap(), Error::NotOurs(_)));
    }
}

#[test]
fn damage_on_the_way_closes_the_link() {
    let key = Key::generate();
    let listener = Listener::bind(anywhere(), &key, PURPOSE).unwrap();
    let to = listener.address();
    let between = TcpListener::bind(anywhere()).unwrap();
    let address = between.local_addr().unwrap();
    // A host between both, which changes the last byte of what it is asked to.
    thread::spawn(move || {
        let (mut from, _) = between.accept().unwrap();
        let mut to = TcpStream::connect(to).unwrap();
        let (mut back, mut forth) = (to.try_clone().unwrap(), from.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut back, &mut forth));
        let (mut bytes, mut part) = ([0; 4096], 0);
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            part += 1;
            if part == 3 {
                bytes[count - 1] ^= 1;
            }
            to.write_all(&bytes[..count]).unwrap();
        }
    });
    let other = thread::spawn(move || listener.accept().unwrap().handshake().unwrap());
    let mut link = Link::connect(address, &key, PURPOSE, LONG).unwrap();
    let mut other = other.join().unwrap();
    link.send(b"first").unwrap();
    assert_eq!(received(&mut other), b"first");
    link.send(b"second").unwrap();
    let error = other.receive(&mut Vec::new()).unwrap_err();
    assert!(matches!(error, Error::Damaged(_)), "{error}");
}

#[test]
fn a_peer_that_says_nothing_is_not_waited_for() {
    let silent = TcpListener::bind(anywhere()).unwrap();
    let address = silent.local_addr().unwrap();
    let error = Link::connect(address, &Key::generate(), PURPOSE, Duration::from_millis(50)).unwrap_err();
    assert!(matches!(error, Error::Unreachable(..)), "{error}");
    drop(silent);
    let error = Link::connect(address, &Key::generate(), PURPOSE, LONG).unwrap_err();
    assert!(error.is_unreachable(), "{error}");
}

#[test]
fn closing_by_the_monitor_ends_a_waiting_receiver() {
    let (a, b) = pair();
    let monitor = a.monitor();
    let waiting = thread::spawn(move || {
        let (_sender, mut receiver) = a.split();
        receiver.receive(&mut Vec::new()).unwrap_err()
    });
    assert!(!monitor.is_silent(), "the host answers");
    monitor.close();
    waiting.join().unwrap();
    drop(b);
}

#[test]
fn key_files_are_private_and_complete() {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::temp_dir().join(format!("towpath-net-key-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let key = Key::generate();
    key.write(&path).unwrap();
    assert_eq!(Key::read(&path).unwrap(), key);
    assert_eq!(Key::from_digits(&key.to_digits()), Some(key.clone()));
    assert_eq!(Key::from_digits(&key.to_digits()[1..]), None);
    assert!(key.write(&path).is_err(), "no key is overwritten");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let error = Key::read(&path).unwrap_err().to_string();
    assert!(error.contains("640") && error.contains("chmod 600"), "{error}");
    std::fs::remove_file(&path).unwrap();
    let error = Key::read(&path).unwrap_err().to_string();
    assert!(error.contains("towpath key"), "{error}");
    assert_eq!(format!("{key:?}"), "Key(…)");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A listener refuses any bytes, without a panic, and without waiting for more.
    #[test]
    fn hostile_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let listener = Listener::bind(anywhere(), &Key::generate(), PURPOSE).unwrap();
        let mut stream = TcpStream::connect(listener.address()).unwrap();
        stream.write_all(&bytes).unwrap();
        drop(stream);
        prop_assert!(listener.accept().unwrap().handshake().is_err());
    }
}

#[test]
fn polled_link_takes_and_sends_frames_without_blocking() {
    let (a, mut b) = pair();
    let mut a = a.polled().unwrap();
    let mut frame = Vec::new();
    assert!(!a.receive(&mut frame).unwrap(), "no frame has come");
    let lengths = [0, 1, 65_517, 65_518, 65_519, 200_000, MAX_FRAME];
    let echo = thread::spawn(move || {
        for length in lengths {
            let frame = received(&mut b);
            assert_eq!((frame.len(), frame.iter().all(|&b| b == length as u8)), (length, true));
        }
        for length in lengths {
            b.send(&vec![length as u8; length]).unwrap();
        }
    });
    for length in lengths {
        a.send(&vec![length as u8; length]).unwrap();
    }
    assert!(a.is_waiting(), "more than the system's buffers hold");
    assert!(matches!(a.send(&vec![0; MAX_FRAME + 1]), Err(Error::TooLong(_))));
    let mut next = lengths.into_iter().peekable();
    while let Some(&length) = next.peek() {
        a.flush().unwrap();
        if a.receive(&mut frame).unwrap() {
            assert_eq!((frame.len(), frame.iter().all(|&b| b == length as u8)), (length, true));
            next.next();
        } else {
            thread::sleep(Duration::from_micros(100));
        }
    }
    echo.join().unwrap();
    // The first look may be the one that finds all bytes of the last read used up.
    let closed = loop {
        match a.receive(&mut frame) {
            Ok(came) => assert!(!came, "a frame that was not sent"),
            Err(error) => break error,
        }
    };
    assert!(matches!(closed, Error::Closed(_)), "{closed}");
}

#[test]
#[ignore = "takes some seconds: see CONTRIBUTING.md"]
fn frames_arrive_across_changes_of_the_key() {
    const FRAMES: u32 = (2 << 20) + 100;
    let (mut one, mut other) = pair();
    let sends = thread::spawn(move || (0..FRAMES).try_for_each(|n| one.send(&n.to_le_bytes())));
    let mut frame = Vec::new();
    for n in 0..FRAMES {
        other.receive(&mut frame).unwrap();
        assert_eq!(frame, n.to_le_bytes());
    }
    sends.join().unwrap().unwrap();
}
