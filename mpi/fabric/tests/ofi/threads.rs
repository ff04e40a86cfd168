//! Several threads: on one endpoint, on several of one domain, and on a domain each.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::settings::has_settings;
use super::support::*;
use sys::*;

const THREADS: usize = 4;

/// Does something in so many threads, each with its number.
fn threads(what: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for me in 0..THREADS {
            let what = &what;
            scope.spawn(move || what(me));
        }
    });
}

/// Board for reports that any thread may take: they are put where their owners find them.
struct Board {
    reports: Vec<AtomicU64>,
}

impl Board {
    fn new(places: usize) -> Board {
        Board { reports: (0..places).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Polls until the report with this context has come, by whomever it was taken.
    fn wait(&self, node: &Node, cq: *mut fid_cq, context: usize) {
        let start = Instant::now();
        // (1) Acquire: pairs with the Release (2), (2b) of the thread that has taken the report.
        while self.reports[context].load(Ordering::Acquire) == 0 {
            if let Some(report) = node.take(cq) {
                assert_eq!(report.error, 0, "{report:?}");
                // (2) Release: pairs with the Acquire (1), (1b) of the thread that waits for it.
                let before = self.reports[report.context].fetch_add(1, Ordering::Release);
                assert_eq!(before, 0, "reported twice: {report:?}");
            }
            assert!(start.elapsed() < PATIENCE, "{context} is not reported");
        }
        self.reports[context].store(0, Ordering::Relaxed);
    }
}

#[test]
fn threads_share_two_endpoints() {
    for together in [true, false] {
        let pair = nodes(2, &Options { together, ..Options::default() });
        let (a, b) = (Shared(&pair[0]), Shared(&pair[1]));
        let boards = [Board::new(THREADS), Board::new(THREADS)];
        let rounds = 600;
        // Each thread sends from one to the other and receives there, by a tag of its own.
        threads(|me| {
            let (Shared(a), Shared(b)) = (&a, &b);
            for round in 0..rounds {
                let len = [8, 300, 9000, 100_000][(round + me) % 4];
                let (bytes, mut into) = (pattern(len, round * 7 + me), vec![0; len]);
                let tag = me as u64;
                assert_eq!(b.receive(b.peers[0], Some((tag, 0)), &mut into, me), 0);
                while a.send(a.peers[1], Some(tag), &bytes, me) != 0 {}
                // The sender's reports may need the receiver's progress, and the other way round.
                boards[0].wait_both(a, a.tx, b, me);
                boards[1].wait(b, b.rx, me);
                assert!(into == bytes, "thread {me}, round {round}");
            }
        });
        assert_eq!(pair[0].count(FI_SEND), (THREADS * rounds) as u64);
        assert_eq!(pair[1].count(FI_RECV), (THREADS * rounds) as u64);
        nothing_more(&pair);
    }
}

impl Board {
    /// Waits, and makes progress for another endpoint too.
    fn wait_both(&self, node: &Node, cq: *mut fid_cq, other: &Node, context: usize) {
        // (1b) Acquire: as (1); pairs with the Release (2), (2b).
        while self.reports[context].load(Ordering::Acquire) == 0 {
            if let Some(report) = node.take(cq) {
                // (2b) Release: as (2); pairs with the Acquire (1), (1b).
                assert_eq!(self.reports[report.context].fetch_add(1, Ordering::Release), 0);
            }
            other.has_report(other.rx);
        }
        self.reports[context].store(0, Ordering::Relaxed);
    }
}

#[test]
fn threads_have_an_endpoint_each_in_one_domain() {
    let all = nodes(THREADS, &Options { together: true, ..Options::default() });
    let all: Vec<_> = all.into_iter().map(Shared).collect();
    every_node_talks_to_every_other(&all);
}

#[test]
fn threads_have_a_domain_each() {
    for threading in [FI_THREAD_DOMAIN, FI_THREAD_SAFE, FI_THREAD_ENDPOINT, FI_THREAD_COMPLETION] {
        let all = nodes(THREADS, &Options { threading, ..Options::default() });
        let all: Vec<_> = all.into_iter().map(Shared).collect();
        every_node_talks_to_every_other(&all);
    }
}

/// Each thread uses its own endpoint alone: sends to all, and receives from all.
fn every_node_talks_to_every_other(all: &[Shared<Node>]) {
    const ROUNDS: u64 = 300;
    let done = AtomicUsize::new(0);
    threads(|me| {
        let Shared(node) = &all[me];
        let mut into = vec![vec![0u8; 70_000]; THREADS];
        for round in 0..ROUNDS {
            let len = [8, 256, 5000, 70_000][round as usize % 4];
            let bytes = pattern(len, round as usize * 5 + me);
            for (from, into) in into.iter_mut().enumerate() {
                assert_eq!(node.receive(node.peers[from], Some((round, 0)), &mut into[..len], from), 0);
            }
            let (mut sent, mut received, mut started) = (0, 0, 0);
            while sent < THREADS || received < THREADS {
                if started < THREADS && node.send(node.peers[started], Some(round), &bytes, 9) == 0 {
                    started += 1;
                }
                if let Some(report) = node.take(node.tx) {
                    assert_eq!((report.context, report.error), (9, 0));
                    sent += 1;
                }
                if let Some(report) = node.take(node.rx) {
                    assert_eq!((report.len, report.error, report.tag), (len, 0, round));
                    assert_eq!(report.source, node.peers[report.context]);
                    received += 1;
                }
            }
            for (from, into) in into.iter().enumerate() {
                assert!(into[..len] == pattern(len, round as usize * 5 + from), "from {from}, {round}");
            }
        }
        // Others may still need our answers.
        done.fetch_add(1, Ordering::Relaxed);
        while done.load(Ordering::Relaxed) < THREADS {
            assert_eq!(node.take(node.rx), None);
        }
    });
}

#[test]
fn threads_count_in_one_memory() {
    let pair = nodes(2, &Options::default());
    let window = [0u64; 8];
    // SAFETY: the same bytes.
    let bytes = unsafe { std::slice::from_raw_parts(window.as_ptr().cast::<u8>(), 64) };
    let mr = pair[1].register(bytes, FI_REMOTE_READ | FI_REMOTE_WRITE, 3).expect("registered");
    let (a, b) = (Shared(&pair[0]), Shared(&pair[1]));
    threads(|_| {
        let (Shared(a), Shared(b)) = (&a, &b);
        for i in 1..=400u64 {
            let operand = i.to_ne_bytes();
            let at = operand.as_ptr().cast();
            // SAFETY: the operand is taken at once.
            while unsafe { call!(a.ep, atomic, inject, at, 1, a.peers[1], 8, 3, FI_UINT64, FI_SUM) } != 0 {
                b.count(FI_REMOTE_WRITE);
            }
        }
        // Counters may be changed by any thread, and asked for by any thread.
        for counter in [a.counters[0], b.counters[0]] {
            for _ in 0..1000 {
                // SAFETY: an open counter.
                assert_eq!(unsafe { call!(counter, ops, add, 1) }, 0);
            }
        }
    });
    let all = (THREADS * 400) as u64;
    until(&pair, || (pair[0].count(FI_WRITE) == all).then_some(()));
    // SAFETY: nothing is under way.
    assert_eq!(unsafe { window.as_ptr().add(1).read_volatile() }, THREADS as u64 * 200 * 401);
    assert_eq!((pair[0].count(FI_SEND), pair[1].count(FI_SEND)), (4000, 4000));
    assert_eq!(close(mr), 0);
}

#[test]
fn threads_sleep_while_another_works() {
    for together in [true, false] {
        one_sleeps_while_another_works(together);
    }
}

/// One thread sleeps in `sread` of an endpoint for which another posts and sends, and
/// which that other polls too: each message wakes it.
fn one_sleeps_while_another_works(together: bool) {
    let pair = nodes(2, &Options { wait: FI_WAIT_UNSPEC, together, ..Options::default() });
    let (a, b) = (Shared(&pair[0]), Shared(&pair[1]));
    let rounds = 500;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (Shared(a), Shared(b)) = (&a, &b);
            let mut into = [[0u8; 8]; 4];
            for i in 0..rounds {
                let into = &mut into[i % 4];
                assert_eq!(b.receive(ANY, Some((i as u64, 0)), into, i), 0);
                while a.send(a.peers[1], Some(i as u64), &i.to_ne_bytes(), 1) != 0 {}
                while a.take(a.tx).is_none() {
                    assert_eq!(b.take(b.tx), None);
                }
                // A report may be taken here, and not by its waiter.
                b.has_report(b.tx);
            }
        });
        let Shared(b) = &b;
        for i in 0..rounds {
            let mut entry = [0u64; 8];
            let at = entry.as_mut_ptr().cast();
            // SAFETY: space for an entry.
            assert_eq!(unsafe { call!(b.rx, ops, sread, at, 1, std::ptr::null(), 60_000) }, 1);
            assert_eq!(entry[0], i as u64, "contexts come in order");
        }
    });
    nothing_more(&pair);
}

#[test]
fn endpoints_open_and_close_while_a_thread_sleeps() {
    for endpoints in [1, 2] {
        let options = Options { wait: FI_WAIT_UNSPEC, together: true, ..Options::default() };
        let n = nodes(endpoints, &options);
        let (sleeper, home) = (Shared(&n[0]), std::rc::Rc::clone(&n[0].home));
        let woken = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let (Shared(node), mut entry) = (&sleeper, [0u64; 8]);
                let (at, cond) = (entry.as_mut_ptr().cast(), std::ptr::null());
                // SAFETY: space for an entry.
                unsafe { call!(node.rx, ops, sread, at, 1, cond, 60_000) }
            });
            for _ in 0..50 {
                std::thread::sleep(Duration::from_millis(1));
                drop(Node::new(&home, &options));
            }
            // SAFETY: a queue that another thread sleeps on.
            assert_eq!(unsafe { call!(n[0].rx, ops, signal) }, 0);
            waiter.join().expect("it only waits")
        });
        assert_eq!(woken, AGAIN, "by the signal");
    }
}

#[test]
fn endpoint_closes_while_a_thread_sleeps_on_its_queue() {
    let options = Options { wait: FI_WAIT_UNSPEC, ..Options::default() };
    let home = Home::new(&options);
    for _ in 0..5 {
        let (mut ep, av) = (std::ptr::null_mut(), open_av(&home, FI_AV_TABLE));
        let cq = open_cq(&home, FI_CQ_FORMAT_MSG, FI_WAIT_UNSPEC).expect("a queue");
        // SAFETY: an open domain, its info, and a place for the answer; an open endpoint.
        unsafe {
            assert_eq!(call!(home.domain, ops, endpoint, home.info.0, &raw mut ep, std::ptr::null_mut()), 0);
            assert_eq!(bind(ep, av, 0), 0);
            assert_eq!(bind(ep, cq, u64::from(FI_SEND | FI_RECV)), 0);
            assert_eq!(control(ep, FI_ENABLE, std::ptr::null_mut()), 0);
        }
        let queue = Shared(cq);
        std::thread::scope(|scope| {
            let queue = &queue;
            let waiter = scope.spawn(move || {
                let (Shared(cq), mut entry) = (queue, [0u64; 8]);
                let (at, cond) = (entry.as_mut_ptr().cast(), std::ptr::null());
                // SAFETY: space for an entry.
                unsafe { call!(*cq, ops, sread, at, 1, cond, 60_000) }
            });
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(close(ep), 0);
            std::thread::sleep(Duration::from_millis(5));
            // SAFETY: a queue that another thread sleeps on.
            assert_eq!(unsafe { call!(cq, ops, signal) }, 0);
            assert_eq!(waiter.join().expect("it only waits"), AGAIN, "by the signal");
        });
        assert_eq!((close(cq), close(av)), (0, 0));
    }
}

#[test]
fn a_loop_over_two_domains_hears_what_comes_to_either() {
    // A waiter that slept in one of them alone would sleep for so long.
    const NAP: Duration = Duration::from_millis(100);
    let nap = NAP.as_nanos().to_string();
    // Yields would last as long as other programs like.
    if !has_settings(&[("TOWPATH_NAP", &nap), ("TOWPATH_OVERSUBSCRIBED", "1"), ("TOWPATH_YIELDS", "0")]) {
        return;
    }
    let n: Vec<_> = nodes(3, &Options::default()).into_iter().map(Shared).collect();
    let alone = time_of_answers(&n, false);
    let beside = time_of_answers(&n, true);
    assert!(beside < 20 * alone + 5 * NAP, "answers take {beside:?} instead of {alone:?}");
}

/// A thread asks another, which takes its time, and polls for the answers, in the same
/// loop as a domain to which nothing comes, if that is wanted.
fn time_of_answers(n: &[Shared<Node>], beside: bool) -> Duration {
    const ROUNDS: usize = 60;
    let (echo, asker, idle) = (&n[0], &n[1], &n[2]);
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let Shared(echo) = echo;
            for _ in 0..ROUNDS {
                receive_one(echo, 1, || {});
                std::thread::sleep(Duration::from_millis(1));
                send_one(echo, 1);
            }
        });
        let (Shared(asker), Shared(idle)) = (asker, idle);
        let mut never = [0; 8];
        for round in 0..ROUNDS {
            if beside {
                // A node that has posted a receive sleeps soon, and long. Polled more often than it
                // takes to fall asleep.
                assert_eq!(idle.receive(idle.peers[0], None, &mut never, round), 0);
            }
            send_one(asker, 0);
            receive_one(asker, 0, || {
                (0..if beside { 30 } else { 0 }).for_each(|_| assert_eq!(idle.take(idle.rx), None))
            });
        }
    });
    start.elapsed()
}

fn send_one(node: &Node, to: usize) {
    while node.send(node.peers[to], None, &[1; 8], 0) != 0 {}
}

/// Does something after each empty poll.
fn receive_one(node: &Node, from: usize, otherwise: impl Fn()) {
    let mut into = [0; 8];
    assert_eq!(node.receive(node.peers[from], None, &mut into, 0), 0);
    loop {
        match node.take(node.rx) {
            Some(report) => return assert_eq!(report.error, 0, "{report:?}"),
            None => otherwise(),
        }
        while node.take(node.tx).is_some() {}
    }
}
