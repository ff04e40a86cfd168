//! Limits of a process: where memory or descriptors can't be had, opening and sending end
//! with an error that names the limit and the remedy, what there is goes on, and no process gets a
//! signal.
//!
//! Forks; so it has no test harness: it must be the only thread of its process.
#![allow(unsafe_code)]

mod common;

use common::{Node, nodes, over, pattern, settle, ticket};
use towpath_fi::device::endpoint::Endpoint;
use towpath_fi::device::operation::{Refusal, SendRequest};
use towpath_fi::device::resource::completion::Class;
use towpath_fi::device::tune::settings::Settings;
use towpath_testkit::{Child, watchdog};

fn limit(of: libc::__rlimit_resource_t, to: u64) {
    let limit = libc::rlimit { rlim_cur: to, rlim_max: to };
    // SAFETY: reads a limit.
    assert_eq!(unsafe { libc::setrlimit(of, &limit) }, 0);
}

/// Bytes of addresses in use.
fn addresses() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    let pages: u64 = pages.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    pages * 4096
}

/// The number that the next descriptor would get.
fn next_descriptor() -> u64 {
    // SAFETY: asks about numbers.
    (0..).find(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0).expect("there is one") as u64
}

/// Opening is refused, and why is said in these words.
fn refused(words: &[&str]) {
    let why = Endpoint::open(Settings::default()).err().expect("there is no memory for it").to_string();
    for word in words {
        assert!(why.contains(word), "{word:?} is not in {why:?}");
    }
}

/// Everything that nodes of this process can do among each other, with long messages and
/// short ones.
fn talk(n: &mut [Node]) {
    for round in 0..20 {
        for len in [8, 5000, 300_000] {
            let (bytes, mut into) = (pattern(len, round), vec![0; len]);
            n[1].receive(Some(0), 3, 0, &mut into, 1);
            while !n[0].send(1, 3, &bytes, 2) {
                settle(n);
            }
            settle(n);
            assert_eq!(n[1].next_received().map(|c| (c.len, c.error)), Some((len, 0)));
            assert_eq!(n[0].next_sent().map(|c| c.error), Some(0));
            assert!(bytes == into);
        }
    }
}

/// Runs a case in a child, which ends well.
fn case(name: &str, act: impl FnOnce()) {
    watchdog::begin(name.to_owned(), 60);
    let child = Child::fork(act);
    while !child.has_ended() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(child.has_ended_well(), "{name}: the child failed, or was killed by a signal");
}

fn main() {
    // A segment takes about 1 MiB, a pair's slots 300 KiB.
    const MARGIN: u64 = 512 << 10;
    case("no addresses for an endpoint", || {
        limit(libc::RLIMIT_AS, addresses() + MARGIN);
        refused(&["address space", "ulimit -v"]);
    });
    case("no addresses for the pair's slots", || {
        let mut n = nodes(2, Settings { ring_after: 100, ..Settings::default() });
        talk(&mut n);
        let mut n = nodes(2, Settings { ring_after: 4, ..Settings::default() });
        // The way is open, the slots are not there yet.
        assert!(n[0].send(1, 9, &[1], 0) && n[1].send(0, 9, &[1], 0));
        settle(&mut n);
        limit(libc::RLIMIT_AS, addresses() + (200 << 10));
        for round in 0..100u64 {
            let mut into = [0; 8];
            n[1].receive(Some(0), 10, 0, &mut into, 1);
            assert!(n[0].send(1, 10, &round.to_ne_bytes(), 0));
            settle(&mut n);
            assert_eq!(u64::from_ne_bytes(into), round);
        }
    });
    case("no addresses for a peer's segment", || {
        let mut n = nodes(2, Settings::default());
        limit(libc::RLIMIT_AS, addresses() + MARGIN);
        unreachable_peer(&mut n);
    });
    case("no descriptor for an endpoint", || {
        limit(libc::RLIMIT_NOFILE, next_descriptor());
        refused(&["files open", "ulimit -n"]);
    });
    case("one descriptor, and no more", || {
        limit(libc::RLIMIT_NOFILE, next_descriptor() + 1);
        refused(&["files open", "ulimit -n"]);
    });
    case("no descriptor for a peer's segment", || {
        let mut n = nodes(2, Settings::default());
        limit(libc::RLIMIT_NOFILE, next_descriptor());
        unreachable_peer(&mut n);
    });
    case("no descriptor for the pair's slots", || {
        let mut n = nodes(2, Settings { ring_after: 4, ..Settings::default() });
        assert!(n[0].send(1, 9, &[1], 0) && n[1].send(0, 9, &[1], 0));
        settle(&mut n);
        while n[0].next_sent().is_some() {}
        limit(libc::RLIMIT_NOFILE, next_descriptor());
        talk(&mut n);
    });
    case("files may not be so long", || {
        limit(libc::RLIMIT_FSIZE, 100 << 10);
        refused(&["limit for the size of a file", "ulimit -f"]);
    });
    case("no locked memory", || {
        limit(libc::RLIMIT_MEMLOCK, 0);
        talk(&mut nodes(2, Settings { ring_after: 1, ..Settings::default() }));
    });
    watchdog::begin("the end".into(), 0);
    println!("limits: ok");
}

/// Sends to a peer whose segment can't be mapped are refused each time, and other peers
/// can still be sent to.
fn unreachable_peer(n: &mut [Node]) {
    let bytes = [1; 8];
    for _ in 0..3 {
        let message = SendRequest {
            peer: 1,
            tag: Some(1),
            buffer: &over(&bytes),
            data: None,
            ticket: ticket(0, Class::Send),
            inject: false,
            matched: false,
        };
        assert_eq!(n[0].endpoint.core.send(&message), Err(Refusal::Unreachable));
    }
    settle(n);
    assert!(n[0].next_sent().is_none());
}
