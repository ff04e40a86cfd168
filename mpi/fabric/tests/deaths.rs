//! Deaths: a process is killed while others talk to it, at arbitrary moments. Operations
//! under way with it end with an error, messages that it had sent arrive, and the rest go on.
//!
//! Forks; so it has no test harness: it must be the only thread of its process.
#![allow(unsafe_code)]

mod common;

use std::os::unix::net::UnixStream;
use std::time::Duration;

use common::mortals::{a_receiver_dies, a_sender_dies};
use common::{Node, learn, open, tell};
use towpath_fi::device::tune::settings::Settings;
use towpath_testkit::{Child, watchdog};

/// A child that does something with an endpoint that knows us as its peer 0.
fn child(settings: Settings, act: &dyn Fn(Node)) -> (Child, UnixStream) {
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
                a_sender_dies(settings, Duration::from_millis(ms), len, child);
            }
            for takes in [true, false] {
                watchdog::begin(format!("a receiver dies: {name}, {len} bytes, taking: {takes}"), 60);
                a_receiver_dies(settings, takes, len, child);
            }
        }
    }
    watchdog::begin("the end".into(), 0);
    println!("deaths: ok");
}
