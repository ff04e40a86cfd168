//! Links over libfabric on loopback, by its provider `tcp`.
//!
//! Skipped where there is no libfabric.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use towpath_net::{Error, Key, Link, Listener, MAX_FRAME};

const PURPOSE: &str = "test";
const LONG: Duration = Duration::from_secs(30);

fn over_tcp() -> (Link, Link) {
    let key = Key::generate();
    let anywhere: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let listener = Listener::bind(anywhere, &key, PURPOSE).unwrap();
    let address = listener.address();
    let other = thread::spawn(move || listener.accept().unwrap().handshake().unwrap());
    let link = Link::connect(address, &key, PURPOSE, LONG).unwrap();
    (link, other.join().unwrap())
}

fn moved(a: Link, b: Link, providers: [&'static str; 2]) -> [Result<Link, Error>; 2] {
    let other = thread::spawn(move || b.over_fabric(providers[1], LONG));
    [a.over_fabric(providers[0], LONG), other.join().unwrap()]
}

/// A link over libfabric and its other end; `None` where libfabric is not there.
fn pair() -> Option<(Link, Link)> {
    let (a, b) = over_tcp();
    match moved(a, b, ["tcp", "tcp"]) {
        [Ok(a), Ok(b)] => Some((a, b)),
        [Err(error), _] if error.to_string().contains("is not installed here") => {
            eprintln!("skipped: {error}");
            None
        }
        [a, b] => panic!("{a:?} {b:?}"),
    }
}

fn received(link: &mut Link) -> Vec<u8> {
    let mut frame = Vec::new();
    link.receive(&mut frame).unwrap();
    frame
}

#[test]
fn frames_of_all_lengths_arrive_whole_and_in_order() {
    let Some((mut a, mut b)) = pair() else { return };
    let lengths = [0, 1, 65_517, 65_518, 65_519, 200_000, MAX_FRAME, 5];
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
    assert!(closed.is_unreachable(), "{closed}");
}

#[test]
fn frames_before_a_farewell_arrive_though_the_link_is_closed() {
    let Some((a, mut b)) = pair() else { return };
    let (mut sender, receiver) = a.split();
    for n in 0..20u8 {
        sender.send(&[n; 5_000]).unwrap();
    }
    sender.finish(LONG).unwrap();
    drop((sender, receiver));
    thread::sleep(Duration::from_millis(100));
    for n in 0..20 {
        assert_eq!(received(&mut b), [n; 5_000]);
    }
    let closed = b.receive(&mut Vec::new()).unwrap_err();
    assert!(matches!(closed, Error::Closed(_)) && closed.is_unreachable(), "{closed}");
}

#[test]
fn both_halves_work_at_the_same_time() {
    let Some((a, b)) = pair() else { return };
    let echo = thread::spawn(move || {
        let (mut sender, mut receiver) = b.split();
        let mut frame = Vec::new();
        while receiver.receive(&mut frame).is_ok() {
            sender.send(&frame).unwrap();
        }
    });
    let (mut sender, mut receiver) = a.split();
    let sending = thread::spawn(move || {
        for n in 0..2_000u32 {
            sender.send(&n.to_le_bytes().repeat(n as usize % 50)).unwrap();
        }
        sender
    });
    let mut frame = Vec::new();
    for n in 0..2_000u32 {
        receiver.receive(&mut frame).unwrap();
        assert_eq!(frame, n.to_le_bytes().repeat(n as usize % 50));
    }
    drop((sending.join().unwrap(), receiver));
    echo.join().unwrap();
}

#[test]
fn peer_that_does_not_read_blocks_its_sender_only() {
    let Some((a, mut b)) = pair() else { return };
    let (mut sender, _receiver) = a.split();
    let mut count = 0u32;
    while sender.send_now(&count.to_le_bytes().repeat(20_000)).unwrap() {
        count += 1;
        assert!(count < 100_000, "a provider without flow control");
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
fn monitor_ends_the_wait_of_both_halves() {
    let Some((a, b)) = pair() else { return };
    let monitor = a.monitor();
    assert!(!monitor.is_silent());
    let (mut sender, mut receiver) = a.split();
    let waits = thread::spawn(move || receiver.receive(&mut Vec::new()).unwrap_err());
    while sender.send_now(&[7; 60_000]).unwrap() {}
    let sends = thread::spawn(move || sender.flush().unwrap_err());
    thread::sleep(Duration::from_millis(20));
    monitor.close();
    assert!(waits.join().unwrap().is_unreachable());
    assert!(sends.join().unwrap().is_unreachable());
    drop(b);
}

#[test]
fn peer_that_leaves_without_farewell_is_noticed() {
    let Some((mut a, b)) = pair() else { return };
    drop(b);
    let gone = a.receive(&mut Vec::new()).unwrap_err();
    assert!(gone.is_unreachable(), "{gone}");
}

#[test]
fn receiver_waits_no_longer_than_it_may() {
    let Some((a, mut b)) = pair() else { return };
    let (_sender, mut receiver) = a.split();
    receiver.wait_at_most(Some(Duration::from_millis(50))).unwrap();
    let begin = Instant::now();
    receiver.receive(&mut Vec::new()).unwrap_err();
    assert!(begin.elapsed() >= Duration::from_millis(50));
    receiver.wait_at_most(None).unwrap();
    b.send(b"late").unwrap();
    let mut frame = Vec::new();
    receiver.receive(&mut frame).unwrap();
    assert_eq!(frame, b"late");
}

#[test]
fn provider_that_is_missing_on_one_end_is_told_at_both() {
    if pair().is_none() {
        return;
    }
    let (a, b) = over_tcp();
    for error in moved(a, b, ["tcp", "no-such-provider"]) {
        let error = error.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Fabric(..)) && text.contains("no-such-provider"), "{text}");
    }
}

#[test]
fn links_over_libfabric_cannot_be_polled() {
    let Some((a, _b)) = pair() else { return };
    assert!(matches!(a.polled(), Err(Error::Fabric(..))));
}

#[test]
fn descriptors_are_closed_in_programs_that_are_started() {
    // In a process of its own: other tests open descriptors, too.
    let mut own = std::process::Command::new(std::env::current_exe().unwrap());
    let output = own.args(["--exact", "counts_descriptors_of_children", "--ignored"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
#[ignore = "part of another test"]
fn counts_descriptors_of_children() {
    let of_child = || {
        let list = ["-c", "ls -l /proc/self/fd"];
        let child = std::process::Command::new("sh").args(list).output().unwrap();
        let text = String::from_utf8(child.stdout).unwrap();
        text.lines().filter(|line| line.contains("socket:") || line.contains("anon_inode:")).count()
    };
    let before = of_child();
    let Some((_a, _b)) = pair() else { return };
    assert_eq!(of_child(), before);
}
