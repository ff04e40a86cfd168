//! Deaths, as programs see them through libfabric's public calls: processes are killed at
//! arbitrary moments while others talk to them. Their peers' operations end, with an error where
//! they must; what had been sent before arrives; the rest go on; and nothing is left behind.
//!
//! Forks; so it has no test harness: it must be the only thread of its process.
#![allow(unsafe_code)]

#[path = "ofi/support.rs"]
mod support;

use std::collections::HashSet;
use std::ffi::{c_int, c_void};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use support::*;
use sys::*;
use towpath_machine::Random;
use towpath_testkit::{Child, watchdog};

const UNREACHABLE: i32 = libc::EHOSTUNREACH;
const LENGTHS: [usize; 4] = [8, 200, 3000, 200_000];
const KEY: u64 = 9;

fn tell(line: &mut UnixStream, name: &[u8; NAME]) {
    line.write_all(name).expect("the other is there");
}

fn hear(line: &mut UnixStream) -> [u8; NAME] {
    let mut name = [0; NAME];
    line.read_exact(&mut name).expect("the other is there");
    name
}

/// A child that does something with an endpoint of its own, for which we are peer 0; our
/// number for it.
fn child(node: &mut Node, options: &Options, act: impl FnOnce(Node)) -> (Child, usize) {
    let (mut mine, mut its) = UnixStream::pair().expect("a pair of sockets");
    let child = Child::fork(move || {
        let mut node = Node::new(&Home::new(options), options);
        tell(&mut its, &node.name());
        node.meet(&hear(&mut its));
        act(node);
    });
    mine.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    node.meet(&hear(&mut mine));
    tell(&mut mine, &node.name());
    (child, node.peers.len() - 1)
}

/// Small numbers that look random. Sends numbered messages to peer 0 without end: number
/// `i` has tag `i`, and a length by its number.
fn send_without_end(node: Node) {
    let bytes: Vec<_> = LENGTHS.iter().map(|len| pattern(*len, *len)).collect();
    for i in 0.. {
        let bytes = &bytes[i as usize % LENGTHS.len()];
        while node.send(node.peers[0], Some(i), bytes, 1) == AGAIN {
            node.take(node.tx);
        }
        while node.take(node.tx).is_some() {}
    }
}

/// Receives whatever comes, without end.
fn receive_without_end(node: Node) {
    let mut into = vec![0; 300_000];
    loop {
        assert_eq!(node.receive(ANY, Some((0, u64::MAX)), &mut into, 1), 0);
        while node.take(node.rx).is_none() {}
    }
}

/// Waits for as long as a victim has to live.
struct Doom {
    child: Option<Child>,
    at: Instant,
}

impl Doom {
    fn of(child: Child, after: Duration) -> Doom {
        Doom { child: Some(child), at: Instant::now() + after }
    }
    /// Kills it if it is time.
    fn look(&mut self) {
        if Instant::now() >= self.at {
            drop(self.child.take());
        }
    }
    fn is_over(&self) -> bool {
        self.child.is_none()
    }
}

/// One endpoint after another sends to us, and is killed at some moment. More of them
/// than can send to one endpoint at a time.
fn senders_die(name: &str, options: &Options, victims: u64) {
    let mut node = Node::new(&Home::new(options), options);
    let mut descriptors = 0;
    for victim in 0..victims {
        let mut random = Random::new(victim + 1);
        watchdog::begin(format!("sender {victim} dies: {name}"), 60);
        let (child, peer) = child(&mut node, options, send_without_end);
        let mut doom = Doom::of(child, Duration::from_micros(random.below(6000)));
        let from = node.peers[peer];
        for i in 0.. {
            let len = LENGTHS[i as usize % LENGTHS.len()];
            let mut into = vec![0; len];
            assert_eq!(node.receive(from, Some((i, 0)), &mut into, 7), 0);
            let report = loop {
                doom.look();
                if let Some(report) = node.take(node.rx) {
                    break report;
                }
            };
            if report.error != 0 {
                assert_eq!((report.error, report.context), (UNREACHABLE, 7));
                assert!(doom.is_over(), "it was alive");
                break;
            }
            assert_eq!((report.len, report.source), (len, from));
            assert!(into == pattern(len, len), "message {i}");
        }
        // Nothing can be sent there any more, nor received; receives from any source wait on.
        assert_eq!(node.send(from, Some(1), &[1], 2), -(UNREACHABLE as isize));
        let (mut a, mut b) = ([0; 8], [0; 8]);
        assert_eq!(node.receive(ANY, Some((u64::MAX, 0)), &mut a, 3), 0);
        assert_eq!(node.receive(from, Some((u64::MAX, 0)), &mut b, 4), 0);
        let report = loop {
            if let Some(report) = node.take(node.rx) {
                break report;
            }
        };
        assert_eq!((report.error, report.context), (UNREACHABLE, 4));
        assert_eq!(node.cancel(3), 0);
        assert_eq!(node.take(node.rx).map(|r| r.error), Some(libc::ECANCELED));
        // Of the dead nothing is kept open.
        let now = open_descriptors();
        if victim == 3 {
            descriptors = now.len();
        }
        assert!(victim <= 3 || now.len() <= descriptors + 2, "not {descriptors} any more: {now:#?}");
    }
    // The queue is as good as new: a living sender sends as much as it likes.
    watchdog::begin(format!("a living sender sends: {name}"), 60);
    let (living, peer) = child(&mut node, options, send_without_end);
    for i in 0..4000 {
        let len = LENGTHS[i as usize % LENGTHS.len()];
        let mut into = vec![0; len];
        assert_eq!(node.receive(node.peers[peer], Some((i, 0)), &mut into, 7), 0);
        while node.take(node.rx).is_none() {}
        assert!(into == pattern(len, len), "message {i}");
    }
    living.kill();
}

/// Files that this process has open.
fn open_descriptors() -> Vec<PathBuf> {
    let all = std::fs::read_dir("/proc/self/fd").expect("/proc is mounted");
    all.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect()
}

/// Sends to a process that receives, or does nothing, and is killed. Each send is
/// reported once, and then refused.
fn receivers_die(name: &str, options: &Options) {
    let mut node = Node::new(&Home::new(options), options);
    for victim in 0..24 {
        let mut random = Random::new(victim + 77);
        let takes = victim % 2 == 0;
        let len = LENGTHS[victim as usize / 2 % LENGTHS.len()];
        watchdog::begin(format!("receiver {victim} dies: {name}, {len} bytes, taking: {takes}"), 60);
        let idle = |_: Node| std::thread::sleep(PATIENCE);
        let act = if takes { receive_without_end } else { idle };
        let (child, peer) = child(&mut node, options, act);
        let mut doom = Doom::of(child, Duration::from_micros(1000 + random.below(10_000)));
        let (bytes, to) = (pattern(len, 1), node.peers[peer]);
        let (mut started, mut ended) = (0, HashSet::new());
        loop {
            doom.look();
            match node.send(to, Some(1), &bytes, started + 1) {
                0 => started += 1,
                AGAIN => {}
                refused => {
                    assert_eq!(refused, -(UNREACHABLE as isize));
                    assert!(doom.is_over(), "it was alive");
                    break;
                }
            }
            while let Some(report) = node.take(node.tx) {
                assert!(report.error == 0 || report.error == UNREACHABLE && doom.is_over());
                assert!(ended.insert(report.context), "reported twice");
            }
        }
        while let Some(report) = node.take(node.tx) {
            assert!(report.error == 0 || report.error == UNREACHABLE);
            assert!(ended.insert(report.context), "reported twice");
        }
        assert_eq!(ended.len(), started, "every send is reported");
    }
}

/// Reads, writes and counts in the memory of a process that is killed.
fn owners_of_memory_die(name: &str, options: &Options) {
    let mut node = Node::new(&Home::new(options), options);
    for victim in 0..12 {
        watchdog::begin(format!("owner {victim} of memory dies: {name}"), 60);
        let mut random = Random::new(victim + 5);
        let (child, peer) = child(&mut node, options, |node| {
            let window = vec![0u8; 1 << 20];
            node.register(&window, FI_REMOTE_READ | FI_REMOTE_WRITE, KEY).expect("registered");
            loop {
                node.take(node.rx);
            }
        });
        let mut doom = Doom::of(child, Duration::from_micros(1000 + random.below(10_000)));
        let of = node.peers[peer];
        let (bytes, mut into) = (vec![3u8; 1 << 19], vec![0u8; 1 << 19]);
        let (mut started, mut ended) = (0, HashSet::new());
        let d = null_mut();
        let mut refused = [false; 3];
        while refused != [true; 3] {
            doom.look();
            for (what, refused) in refused.iter_mut().enumerate() {
                let (n, context) =
                    ([8, 5000, 1 << 19][random.below(3) as usize], (started + 1) as *mut c_void);
                let (from, to) = (bytes.as_ptr().cast(), into.as_mut_ptr().cast());
                // SAFETY: both stay until every operation has been reported.
                let result = unsafe {
                    match what {
                        0 => call!(node.ep, rma, write, from, n, d, of, 0, KEY, context),
                        1 => call!(node.ep, rma, read, to, n, d, of, 0, KEY, context),
                        _ => call!(
                            node.ep, atomic, readwrite, from, 1, d, to, d, of, 0, KEY, FI_UINT64, FI_SUM,
                            context
                        ),
                    }
                };
                match result {
                    0 => started += 1,
                    AGAIN => {}
                    n => {
                        assert_eq!(n, -(UNREACHABLE as isize));
                        assert!(doom.is_over(), "it was alive");
                        *refused = true;
                    }
                }
            }
            while let Some(report) = node.take(node.tx) {
                // Its memory may not have been registered yet.
                let known = [0, UNREACHABLE, 266].contains(&report.error);
                assert!(known, "{report:?}");
                assert!(ended.insert(report.context), "reported twice");
            }
        }
        while let Some(report) = node.take(node.tx) {
            assert!(ended.insert(report.context), "reported twice");
        }
        assert_eq!(ended.len(), started, "every operation is reported");
    }
}

/// Two talk to us; one is killed; with the other nothing is lost.
fn the_rest_go_on(name: &str, options: &Options) {
    let mut node = Node::new(&Home::new(options), options);
    for victim in 0..8 {
        watchdog::begin(format!("one of two dies: {name}, {victim}"), 60);
        let (child_a, a) = child(&mut node, options, send_without_end);
        let (child_b, b) = child(&mut node, options, send_without_end);
        let mut doom = Doom::of(child_a, Duration::from_micros(Random::new(victim + 3).below(8000)));
        let mut buffers = [vec![0; 200_000], vec![0; 200_000]];
        let mut next = [0u64; 2];
        let mut post = |which: usize, i: u64| {
            let len = LENGTHS[i as usize % LENGTHS.len()];
            let from = node.peers[[a, b][which]];
            assert_eq!(node.receive(from, Some((i, 0)), &mut buffers[which][..len], which), 0);
        };
        post(0, 0);
        post(1, 0);
        let mut over = false;
        while next[1] < 400 || !over {
            doom.look();
            let Some(report) = node.take(node.rx) else { continue };
            let which = report.context;
            if report.error != 0 {
                assert_eq!((which, report.error), (0, UNREACHABLE));
                over = true;
                continue;
            }
            next[which] += 1;
            post(which, next[which]);
        }
        child_b.kill();
        // Its messages come, then the last receive ends too, and the buffers are ours again.
        loop {
            match node.take(node.rx) {
                None => {}
                Some(report) if report.error == 0 => {
                    next[1] += 1;
                    post(1, next[1]);
                }
                Some(report) => {
                    assert_eq!(report.error, UNREACHABLE);
                    break;
                }
            }
        }
    }
}

/// Two processes play ping-pong, and sleep on descriptors for every message. Nothing else
/// wakes them.
fn processes_wake_each_other(name: &str, mut options: Options) {
    watchdog::begin(format!("two processes wake each other: {name}"), 60);
    options.wait = FI_WAIT_FD;
    options.environment.push(("TOWPATH_LISTEN", "600000000000".to_owned()));
    let mut node = Node::new(&Home::new(&options), &options);
    let rounds = 2000u64;
    let say =
        |node: &Node, to: fi_addr_t, i: u64| while node.send(to, Some(i), &i.to_ne_bytes(), 1) == AGAIN {};
    let hear = |node: &Node, from: fi_addr_t, i: u64| {
        let mut into = [0; 8];
        assert_eq!(node.receive(from, Some((i, 0)), &mut into, 2), 0);
        assert_eq!(sleep_on_descriptor(node).context, 2);
        assert_eq!(u64::from_ne_bytes(into), i);
    };
    let (child, peer) = child(&mut node, &options, move |node| {
        for i in 0..rounds {
            hear(&node, node.peers[0], i);
            say(&node, node.peers[0], i);
        }
        std::thread::sleep(PATIENCE);
    });
    for i in 0..rounds {
        say(&node, node.peers[peer], i);
        hear(&node, node.peers[peer], i);
        while node.take(node.tx).is_some() {}
    }
    child.kill();
}

/// Sleepers on a descriptor or in `sread` wake up when the process that they wait for is
/// killed.
fn sleepers_wake(options: &Options) {
    for on_descriptor in [true, false] {
        watchdog::begin(format!("a sleeper is woken by a death: on a descriptor: {on_descriptor}"), 60);
        let wait = if on_descriptor { FI_WAIT_FD } else { FI_WAIT_UNSPEC };
        let options = Options { wait, ..options.clone() };
        let mut node = Node::new(&Home::new(&options), &options);
        for victim in 0..10 {
            // It says something first, so that there is a way between us.
            let (child, peer) = child(&mut node, &options, |node| {
                assert_eq!(node.send(node.peers[0], Some(1), &[1; 8], 1), 0);
                std::thread::sleep(PATIENCE);
            });
            let from = node.peers[peer];
            let mut into = [0; 8];
            assert_eq!(node.receive(from, Some((1, 0)), &mut into, 1), 0);
            while node.take(node.rx).is_none() {}
            assert_eq!(node.receive(from, Some((1, 0)), &mut into, 2), 0);
            // Killed while we sleep, by a process that may.
            let pid = child.pid() as i32;
            let killer = Child::fork(move || {
                std::thread::sleep(Duration::from_millis(2 + victim));
                // SAFETY: our own sibling, which our parent has not waited for yet.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            });
            let report = if on_descriptor { sleep_on_descriptor(&node) } else { sleep_in_sread(&node) };
            assert_eq!((report.context, report.error), (2, UNREACHABLE));
            killer.kill();
            child.kill();
        }
    }
}

fn sleep_on_descriptor(node: &Node) -> Report {
    let mut fd: c_int = -1;
    // SAFETY: a place for a descriptor.
    assert_eq!(unsafe { control(node.rx, FI_GETWAIT, (&raw mut fd).cast()) }, 0);
    loop {
        if let Some(report) = node.take(node.rx) {
            return report;
        }
        let mut fids: [*mut fid; 1] = [node.rx.cast()];
        // SAFETY: open objects; one descriptor.
        unsafe {
            if call!(node.home.fabric, ops, trywait, fids.as_mut_ptr(), 1) == 0 {
                let mut what = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                assert_eq!(libc::poll(&raw mut what, 1, PATIENCE.as_millis() as c_int), 1);
            }
        }
    }
}

fn sleep_in_sread(node: &Node) -> Report {
    let mut entry = [0u8; 64];
    let at = entry.as_mut_ptr().cast();
    // SAFETY: space for an entry.
    let result = unsafe { call!(node.rx, ops, sread, at, 1, std::ptr::null(), -1) };
    assert_eq!(result, -(FI_EAVAIL as isize));
    node.take(node.rx).expect("there is an error")
}

/// Nothing of ours is mapped or open any more, and nothing has a name.
fn nothing_is_left(folder: &Path) {
    watchdog::begin("nothing is left".into(), 60);
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
    assert_eq!(maps.matches("memfd:towpath").count(), 0, "{maps}");
    for what in open_descriptors() {
        assert!(!what.to_string_lossy().contains("towpath"), "{what:?} is open");
    }
    assert_eq!(std::fs::read_dir(folder).expect("our own folder").count(), 0);
    std::fs::remove_dir(folder).expect("it is empty");
}

fn main() {
    // Whatever had a name would lie here.
    let folder = std::env::temp_dir().join(format!("towpath-deaths-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder can be made");
    // SAFETY: this process has one thread.
    unsafe { std::env::set_var("TOWPATH_SHM_DIR", &folder) };
    library();
    let with = |environment: &[(&'static str, &str)]| {
        let environment = environment.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Options { environment, ..Options::default() }
    };
    let never = &u32::MAX.to_string()[..];
    let ways = [
        ("slots", with(&[]), 20),
        ("shared queue", with(&[("TOWPATH_RING_AFTER", never)]), 140),
        ("direct", with(&[("TOWPATH_CMA", "1")]), 20),
        ("rendezvous", with(&[("TOWPATH_EAGER", "100")]), 20),
    ];
    for (name, options, victims) in &ways {
        senders_die(name, options, *victims);
        receivers_die(name, options);
        owners_of_memory_die(name, options);
        the_rest_go_on(name, options);
    }
    for (name, options, _) in ways {
        processes_wake_each_other(name, options);
    }
    sleepers_wake(&Options::default());
    nothing_is_left(&folder);
    watchdog::begin("the end".into(), 0);
    println!("ofi_deaths: ok");
}
