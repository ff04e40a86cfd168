//! Waiting: `sread`, counters, and descriptors for `epoll`.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::settings::has_settings;
use super::support::*;
use sys::*;

/// The descriptor of a queue or a counter, and whether one may sleep on it.
fn descriptor<T>(object: *mut T) -> c_int {
    let mut fd: c_int = -1;
    // SAFETY: a place for a descriptor.
    assert_eq!(unsafe { control(object, FI_GETWAIT, (&raw mut fd).cast()) }, 0);
    assert!(fd >= 0);
    fd
}

fn may_wait<T>(node: &Node, object: *mut T) -> bool {
    let mut fids: [*mut fid; 1] = [object.cast()];
    // SAFETY: an open fabric, and one open object.
    match unsafe { call!(node.home.fabric, ops, trywait, fids.as_mut_ptr(), 1) } {
        0 => true,
        n => {
            assert_eq!(n, -(FI_EAGAIN as c_int));
            false
        }
    }
}

/// Returns whether the descriptor is readable within so many milliseconds.
fn is_readable(fd: c_int, ms: c_int) -> bool {
    let mut what = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor.
    unsafe { libc::poll(&raw mut what, 1, ms) == 1 }
}

/// Sleeps on the descriptor of a queue until there is a report. Returns how often it
/// slept.
fn sleep_until_report(node: &Node, cq: *mut fid_cq, fd: c_int) -> (Report, u32) {
    sleeping(node, cq, fd, || {})
}

/// Waits for a report on the descriptor, and calls `before` each time before it sleeps.
fn sleeping(node: &Node, cq: *mut fid_cq, fd: c_int, before: impl Fn()) -> (Report, u32) {
    let mut slept = 0;
    loop {
        if let Some(report) = node.take(cq) {
            return (report, slept);
        }
        if may_wait(node, cq) {
            before();
            assert!(is_readable(fd, PATIENCE.as_millis() as c_int), "a wake-up was lost");
            slept += 1;
        }
    }
}

/// Setting with which nothing but a message makes descriptors readable.
const LISTEN: (&str, &str) = ("TOWPATH_LISTEN", "600000000000");

/// Options with descriptors.
fn listening() -> Options {
    Options { wait: FI_WAIT_FD, ..Options::default() }
}

#[test]
fn a_descriptor_becomes_readable_when_a_message_comes() {
    if !has_settings(&[LISTEN]) {
        return;
    }
    for together in [true, false] {
        let n = nodes(2, &Options { together, ..listening() });
        let fd = descriptor(n[1].rx);
        let mut kind = FI_WAIT_NONE;
        // SAFETY: a place for a kind of wait object.
        assert_eq!(unsafe { control(n[1].rx, FI_GETWAITOBJ, (&raw mut kind).cast()) }, 0);
        assert_eq!(kind, FI_WAIT_FD);
        let mut into = [0; 8];
        // More than it takes to earn slots: both ways.
        for i in 0..40u8 {
            assert_eq!(n[1].receive(n[1].peers[0], None, &mut into, 7), 0);
            while !may_wait(&n[1], n[1].rx) {
                assert_eq!(n[1].take(n[1].rx), None);
            }
            assert!(!is_readable(fd, 0), "nothing has come");
            start(&n[..1], || n[0].send(n[0].peers[1], None, &[i; 8], 1));
            assert!(is_readable(fd, 60_000));
            let report = received(&n, 1);
            assert_eq!((report.context, into), (7, [i; 8]));
            assert_eq!(sent(&n, 0).context, 1);
        }
        // Not to be slept on while there is something to read.
        assert_eq!(n[0].send(n[0].peers[1], None, &[1; 8], 1), 0);
        assert_eq!(n[1].receive(n[1].peers[0], None, &mut into, 7), 0);
        settle(&n);
        assert!(!may_wait(&n[1], n[1].rx));
        assert_eq!(received(&n, 1).context, 7);
        // A signal wakes it too, and stays until it was seen.
        while !may_wait(&n[1], n[1].rx) {}
        // SAFETY: an open queue.
        assert_eq!(unsafe { call!(n[1].rx, ops, signal) }, 0);
        assert!(is_readable(fd, 0) && !may_wait(&n[1], n[1].rx) && may_wait(&n[1], n[1].rx));
    }
}

#[test]
fn a_counter_has_a_descriptor_too() {
    if !has_settings(&[LISTEN]) {
        return;
    }
    let n = nodes(2, &listening());
    let counter = n[1].counters[1];
    let fd = descriptor(counter);
    let mut into = [0; 8];
    for i in 1..10 {
        assert_eq!(n[1].receive(ANY, Some((1, 0)), &mut into, 7), 0);
        while !may_wait(&n[1], counter) {}
        assert!(!is_readable(fd, 0));
        start(&n[..1], || n[0].send(n[0].peers[1], Some(1), &[9; 8], 1));
        assert!(is_readable(fd, 60_000));
        until(&n, || (n[1].count(FI_RECV) == i).then_some(()));
        assert!(n[1].take(n[1].rx).is_some());
    }
    // Changed by hand.
    while !may_wait(&n[1], counter) {}
    // SAFETY: an open counter.
    assert_eq!(unsafe { call!(counter, ops, add, 5) }, 0);
    assert!(is_readable(fd, 0) && !may_wait(&n[1], counter));
    assert_eq!(n[1].count(FI_RECV), 14);
    assert!(may_wait(&n[1], counter));
}

#[test]
fn what_has_no_descriptor_says_so() {
    let n = nodes(1, &Options::default());
    let mut fd: c_int = -1;
    // SAFETY: a place for a descriptor.
    assert_eq!(unsafe { control(n[0].rx, FI_GETWAIT, (&raw mut fd).cast()) }, -(FI_ENOSYS as c_int));
    for wait in [FI_WAIT_SET, FI_WAIT_MUTEX_COND] {
        assert_eq!(open_cq(&n[0].home, FI_CQ_FORMAT_MSG, wait), Err(-(FI_ENOSYS as c_int)));
    }
    assert!(may_wait(&n[0], n[0].rx));
    let mut fids: [*mut fid; 1] = [n[0].av.cast()];
    // SAFETY: open objects.
    let result = unsafe { call!(n[0].home.fabric, ops, trywait, fids.as_mut_ptr(), 1) };
    assert_eq!(result, -(FI_EINVAL as c_int));
}

/// Two threads with an endpoint each play ping-pong, and sleep on descriptors for every
/// message.
fn ping_pong(options: &Options, rounds: u64, len: usize) {
    let pair = nodes(2, options).into_iter().map(Shared).collect::<Vec<_>>();
    let pair = &pair;
    std::thread::scope(|scope| {
        for (me, end) in pair.iter().enumerate() {
            scope.spawn(move || {
                let Shared(node) = end;
                let (tx, rx) = (descriptor(node.tx), descriptor(node.rx));
                let (mut into, mut slept) = (vec![0; len], 0);
                for round in 0..rounds {
                    let bytes = pattern(len, round as usize);
                    for turn in 0..2 {
                        if turn == me {
                            while node.send(node.peers[1 - me], Some(round), &bytes, 1) != 0 {}
                            let (report, n) = sleep_until_report(node, node.tx, tx);
                            assert_eq!((report.context, report.error), (1, 0));
                            slept += n;
                        } else {
                            assert_eq!(node.receive(node.peers[1 - me], Some((round, 0)), &mut into, 2), 0);
                            let (report, n) = sleep_until_report(node, node.rx, rx);
                            assert_eq!((report.context, report.error, report.len), (2, 0, len));
                            assert!(into == bytes, "round {round}");
                            slept += n;
                        }
                    }
                }
                assert!(slept > 0, "it has never slept, so nothing was tested");
            });
        }
    });
}

#[test]
fn no_wake_up_is_lost() {
    if has_settings(&[LISTEN]) {
        for len in [8, 30_000] {
            ping_pong(&listening(), 3000, len);
            // Both in one domain: either makes the other's progress.
            ping_pong(&Options { together: true, ..listening() }, 3000, len);
        }
        // Long ones wait for space, for which no peer wakes the waiter: that is what the timer is
        // for.
        ping_pong(&listening(), 100, 1 << 20);
    }
    // Through the shared queue.
    if has_settings(&[LISTEN, ("TOWPATH_RING_AFTER", "4294967295")]) {
        [8, 30_000].into_iter().for_each(|len| ping_pong(&listening(), 3000, len));
    }
}

#[test]
fn many_senders_wake_an_armed_receiver() {
    const SENDERS: usize = 4;
    const EACH: u64 = 4000;
    if !has_settings(&[LISTEN]) {
        return;
    }
    let n = nodes(SENDERS + 1, &listening()).into_iter().map(Shared).collect::<Vec<_>>();
    let n = &n;
    // How often the receiver has gone to sleep: then every sender sends some.
    let (hungry, done) = (&AtomicU64::new(0), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        for (me, sender) in n.iter().enumerate().skip(1) {
            scope.spawn(move || {
                let Shared(node) = sender;
                let mut fed = 0;
                for i in 0..EACH {
                    while i % 16 == 0 && hungry.load(Ordering::Relaxed) == fed {
                        std::thread::yield_now();
                    }
                    fed = hungry.load(Ordering::Relaxed);
                    while node.send(node.peers[0], Some(me as u64), &i.to_ne_bytes(), 1) != 0 {}
                    while node.take(node.tx).is_none() {}
                }
                while !done.load(Ordering::Relaxed) {
                    node.take(node.tx);
                }
            });
        }
        let (node, mut slept) = (&n[0].0, 0);
        let fd = descriptor(node.rx);
        let mut next = [0u64; SENDERS + 1];
        for _ in 0..SENDERS as u64 * EACH {
            let mut into = [0; 8];
            assert_eq!(node.receive(ANY, Some((0, u64::MAX)), &mut into, 3), 0);
            let (report, n) = sleeping(node, node.rx, fd, || {
                hungry.fetch_add(1, Ordering::Relaxed);
            });
            slept += n;
            let expected = &mut next[report.tag as usize];
            assert_eq!(u64::from_ne_bytes(into), *expected, "of {}", report.tag);
            *expected += 1;
        }
        done.store(true, Ordering::Relaxed);
        assert!(u64::from(slept) >= EACH / 16);
    });
}

#[test]
fn one_thread_reports_to_another_that_listens() {
    if !has_settings(&[LISTEN]) {
        return;
    }
    // Two threads, one endpoint: one sleeps on the receive queue's descriptor, the other polls the
    // send queue, and so takes what arrives.
    let n = nodes(2, &listening()).into_iter().map(Shared).collect::<Vec<_>>();
    let (n, done) = (&n, &AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                assert_eq!(n[1].0.take(n[1].0.tx), None);
            }
        });
        let (from, to) = (&n[0].0, &n[1].0);
        let fd = descriptor(to.rx);
        let mut into = [0; 8];
        for i in 0..2000u64 {
            assert_eq!(to.receive(to.peers[0], None, &mut into, 4), 0);
            while from.send(from.peers[1], None, &i.to_ne_bytes(), 1) != 0 {}
            sleep_until_report(to, to.rx, fd);
            assert_eq!(u64::from_ne_bytes(into), i);
            while from.take(from.tx).is_none() {}
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn sread_and_counters_wait_and_give_up() {
    let n = nodes(2, &Options { wait: FI_WAIT_UNSPEC, ..Options::default() });
    let mut entry = [0u8; 64];
    // SAFETY: space for an entry, here and below.
    unsafe {
        let none = call!(n[1].rx, ops, sread, entry.as_mut_ptr().cast(), 1, std::ptr::null(), 5);
        assert_eq!(none, AGAIN);
        assert_eq!(call!(n[1].counters[1], ops, wait, 1, 5), -(FI_ETIMEDOUT as c_int));
    }
    let n = n.into_iter().map(Shared).collect::<Vec<_>>();
    let n = &n;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(30));
            assert_eq!(n[0].0.send(n[0].0.peers[1], None, &[5; 8], 1), 0);
            std::thread::sleep(std::time::Duration::from_millis(30));
            // SAFETY: an open queue, on which another thread sleeps: any thread may signal it.
            assert_eq!(unsafe { call!(n[1].0.tx, ops, signal) }, 0);
        });
        let node = &n[1].0;
        let mut into = [0; 8];
        assert_eq!(node.receive(ANY, None, &mut into, 1), 0);
        // SAFETY: open queues and an open counter; space for an entry.
        unsafe {
            assert_eq!(call!(node.counters[1], ops, wait, 1, -1), 0);
            assert_eq!(call!(node.rx, ops, sread, entry.as_mut_ptr().cast(), 1, std::ptr::null(), -1), 1);
            let signalled = call!(node.tx, ops, sread, entry.as_mut_ptr().cast(), 1, std::ptr::null(), -1);
            assert_eq!(signalled, AGAIN);
        }
        assert_eq!(into, [5; 8]);
    });
}
