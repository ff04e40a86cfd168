//! Segments whose words are changed at random while they are in use, through libfabric's
//! public calls: messages may be lost or wrong then, and operations fail, but every call returns,
//! and no process is harmed. And processes that get no memory or descriptors: an error, and no
//! more.
//!
//! Forks; so it has no test harness: it must be the only thread of its process.
#![allow(unsafe_code)]

#[path = "ofi/support.rs"]
mod support;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use support::*;
use sys::*;
use towpath_machine::Random;
use towpath_testkit::{Child, shared_words, watchdog};

/// All shared memory of this process (of endpoints, and of pairs), mapped once more.
fn segments() -> Vec<&'static [AtomicU64]> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").expect("/proc is mounted").flatten() {
        let what = std::fs::read_link(entry.path()).unwrap_or_default();
        if !what.to_string_lossy().contains("memfd:towpath") {
            continue;
        }
        let file = std::fs::File::options().read(true).write(true).open(entry.path()).expect("it is ours");
        let len = file.metadata().expect("it is open").len() as usize;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice, never unmapped, of a file
        // that keeps its size.
        unsafe {
            let at = libc::mmap(null_mut(), len, access, libc::MAP_SHARED, fd, 0);
            assert_ne!(at, libc::MAP_FAILED);
            found.push(std::slice::from_raw_parts(at.cast::<AtomicU64>(), len / 8));
        }
    }
    found
}

/// Bytes that operations may use as long as the process lives.
fn lasting(len: usize) -> &'static mut [u8] {
    vec![0x77; len].leak()
}

/// One operation of some kind; its outcome does not matter.
fn operate(n: &[Node], random: &mut Random, bytes: &'static [u8]) {
    let (node, other) = (&n[random.below(2) as usize], random.below(2) as usize);
    let peer = node.peers[other];
    let len = [0, 8, 200, 3000, 100_000][random.below(5) as usize];
    let into = || lasting(len).as_mut_ptr().cast::<c_void>();
    let (from, d, ctx) = (bytes.as_ptr().cast(), null_mut(), null_mut());
    let tag = random.below(3);
    // SAFETY: all bytes last.
    let result = unsafe {
        match random.below(9) {
            0..3 => call!(node.ep, tagged, send, from, len, d, peer, tag, ctx),
            3 | 4 => call!(node.ep, tagged, recv, into(), len, d, ANY, tag, 0, ctx),
            5 => call!(node.ep, msg, inject, from, len.min(200), peer),
            6 => call!(node.ep, msg, recv, into(), len, d, peer, ctx),
            7 => call!(node.ep, rma, write, from, len, d, peer, 0, other as u64, ctx),
            _ => call!(node.ep, rma, read, into(), len, d, peer, 0, other as u64, ctx),
        }
    };
    assert!(result <= 0);
}

/// Takes all reports.
fn take(n: &[Node]) {
    for node in n {
        for cq in [node.tx, node.rx] {
            for _ in 0..20 {
                if !node.has_report(cq) || node.take(cq).is_none() {
                    break;
                }
            }
        }
    }
}

/// Body of a child: uses two endpoints while their memory is changed, most of all where
/// it matters.
fn suffer(seed: u64, step: &AtomicU64, options: &Options) {
    let mut random = Random::new(seed);
    let n = nodes(2, options);
    let bytes: &'static [u8] = lasting(100_000);
    let access = FI_REMOTE_READ | FI_REMOTE_WRITE;
    let register = |(i, node): (usize, &Node)| node.register(lasting(100_000), access, i as u64);
    let regions: Vec<_> = n.iter().enumerate().map(register).collect();
    // In use, with slots, before anything is changed.
    for _ in 0..200 {
        operate(&n, &mut random, bytes);
        take(&n);
    }
    let segments = segments();
    assert!(segments.len() >= 2);
    for round in 0..400 {
        step.store(round, Ordering::Relaxed);
        let words = segments[random.below(segments.len() as u64) as usize];
        // Headers, members, the queue's control and its packets come first.
        let most = match random.below(4) {
            0 => 64,
            1 => 8000,
            2 => 30_000,
            _ => words.len(),
        };
        for _ in 0..random.below(4) {
            let word = &words[random.below(most.min(words.len()) as u64) as usize];
            let old = word.load(Ordering::Relaxed);
            let new = match random.below(7) {
                0 => 0,
                1 => u64::MAX,
                2 => random.word(),
                3 => old ^ 1 << random.below(64),
                4 => old.wrapping_add(1),
                5 => old.wrapping_sub(1),
                _ => random.below(300),
            };
            word.store(new, Ordering::Relaxed);
        }
        operate(&n, &mut random, bytes);
        if round % 3 == 0 {
            take(&n);
        }
    }
    step.store(1_000_000, Ordering::Relaxed);
    // Closing must come to an end too.
    for mr in regions {
        assert_eq!(close(mr.expect("registered")), 0);
    }
    drop(n);
}

/// Waits for a child to end by itself, and well.
fn ends_well(child: Child) {
    let mut status = 0;
    while !child.has_ended() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    // SAFETY: our own child, that has ended; `Child` finds nothing to wait for any more.
    let got = unsafe { libc::waitpid(child.pid() as i32, &raw mut status, 0) };
    assert!(
        got > 0 && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        "it ended with {status:#x}"
    );
}

fn limit(what: libc::__rlimit_resource_t, most: u64) {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: a limit of our own process.
    assert_eq!(unsafe { libc::setrlimit(what, &raw const limit) }, 0);
}

/// Number of bytes that this process has mapped.
fn mapped() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    let pages: u64 = pages.split_whitespace().next().expect("a number").parse().expect("a number");
    // SAFETY: no preconditions.
    pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64
}

/// Endpoints until there are no more; then an error, and those that there are go on.
/// `most`: descriptors, or bytes.
fn run_out(what: libc::__rlimit_resource_t, most: u64) {
    let options = Options::default();
    let n = nodes(2, &options);
    let mut into = [0; 8];
    limit(what, most);
    let mut opened = Vec::new();
    let mut refused = 0;
    for _ in 0..400 {
        let mut ep: *mut fid_ep = null_mut();
        // SAFETY: an open domain, and a place for the answer.
        let result =
            unsafe { call!(n[0].home.domain, ops, endpoint, n[0].home.info.0, &raw mut ep, null_mut()) };
        match result {
            0 => opened.push(ep),
            error => {
                assert_eq!(error, -(FI_ENOMEM as i32));
                refused += 1;
            }
        }
        if refused == 3 {
            break;
        }
    }
    assert_eq!(refused, 3, "{} endpoints were opened", opened.len());
    // A queue with descriptors has none either, or has them.
    match open_cq(&n[0].home, FI_CQ_FORMAT_MSG, FI_WAIT_FD) {
        Ok(cq) => assert_eq!(close(cq), 0),
        Err(error) => assert_eq!(error, -libc::EMFILE),
    }
    for ep in opened {
        assert_eq!(close(ep), 0);
    }
    // Now there is space again.
    assert_eq!(n[1].receive(ANY, Some((1, 0)), &mut into, 1), 0);
    start(&n, || n[0].send(n[0].peers[1], Some(1), &[3; 8], 1));
    assert_eq!((received(&n, 1).error, into), (0, [3; 8]));
}

fn main() {
    library();
    let step = &shared_words(1)[0];
    let seeds = std::env::args().nth(1).and_then(|n| n.parse().ok()).map_or(0..200, |seed| seed..seed + 1);
    for seed in seeds {
        let mut options = Options::default();
        match seed % 3 {
            0 => {}
            1 => options.environment.push(("TOWPATH_RING_AFTER", u32::MAX.to_string())),
            _ => options.environment.push(("TOWPATH_CMA", "1".to_owned())),
        }
        // Naps would only take time.
        options.environment.push(("TOWPATH_NAP", "1000".to_owned()));
        step.store(0, Ordering::Relaxed);
        watchdog::begin(format!("words are changed, seed {seed}"), 60);
        let child = Child::fork(|| suffer(seed, step, &options));
        let mut seen = 0;
        while !child.has_ended() {
            std::thread::sleep(std::time::Duration::from_millis(1));
            let now = step.load(Ordering::Relaxed);
            if now != seen {
                seen = now;
                watchdog::at(now);
            }
        }
        ends_well(child);
    }
    watchdog::begin("no more descriptors".into(), 60);
    ends_well(Child::fork(|| run_out(libc::RLIMIT_NOFILE, 40)));
    watchdog::begin("no more memory".into(), 60);
    ends_well(Child::fork(|| run_out(libc::RLIMIT_AS, mapped() + (64 << 20))));
    watchdog::begin("the end".into(), 0);
    println!("ofi_hostile: ok");
}
