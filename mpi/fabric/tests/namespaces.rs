//! Ranks that can't open each other's memory through /proc, because they live in
//! different pid namespaces or may not look into each other: they meet at their descriptor
//! listeners, and the rest is as with all other peers.
//!
//! Forks; so it has no test harness: it must be the only thread of its process.
#![allow(unsafe_code)]

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use common::mortals::{a_receiver_dies, a_sender_dies};
use common::{Node, learn, open, pattern, tell, wait_for};
use towpath_fi::device::connect::address::Unfit;
use towpath_fi::device::connect::attach::{self, AttachError};
use towpath_fi::device::resource::completion::error;
use towpath_fi::device::tune::settings::Settings;
use towpath_testkit::{Child, refuse_call, watchdog};

/// Namespaces of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    /// A pid namespace, under the outer /proc.
    Pids,
    /// A pid namespace with a /proc of its own.
    PidsAndProc,
    /// A user namespace, in which it has another number, and a pid namespace.
    UsersAndPids,
    /// A network namespace and a pid namespace.
    NetworkAndPids,
    /// The parent's own.
    Here,
}

/// A child that lives elsewhere. Killed when dropped.
struct Elsewhere {
    pid: i32,
    /// Its parent, our child.
    _between: Child,
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        // SAFETY: a signal to a grandchild. (Its number is not used again at once; and if its
        // parent dies first, it dies with it.)
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
    }
}

/// Moves the process to a home, for its children. Returns whether that is permitted.
fn move_to(home: Home) -> std::io::Result<()> {
    // SAFETY: no preconditions.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let flags = match home {
        Home::Here => 0,
        Home::Pids => libc::CLONE_NEWPID,
        Home::PidsAndProc => libc::CLONE_NEWPID | libc::CLONE_NEWNS,
        Home::UsersAndPids => libc::CLONE_NEWPID | libc::CLONE_NEWUSER,
        Home::NetworkAndPids => libc::CLONE_NEWPID | libc::CLONE_NEWNET,
    };
    let unshare = |flags| {
        // SAFETY: this process has one thread, and no other process's memory depends on its
        // namespaces.
        if unsafe { libc::unshare(flags) } == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    let as_user = |number: u32| {
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/uid_map", format!("{number} {user} 1"))?;
        std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
    };
    if home == Home::UsersAndPids {
        unshare(flags)?;
        return as_user(user + 1);
    }
    match unshare(flags) {
        // A user that is not root may in a user namespace.
        Err(_) => unshare(flags | libc::CLONE_NEWUSER).and_then(|()| as_user(user)),
        done => done,
    }
}

/// A /proc of our own.
fn mount_proc() -> std::io::Result<()> {
    let mount = |what: *const libc::c_char, at: &std::ffi::CStr, kind: *const libc::c_char, flags| {
        // SAFETY: strings that end with 0, or none.
        match unsafe { libc::mount(what, at.as_ptr(), kind, flags, std::ptr::null()) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    let none = std::ptr::null();
    // No other namespace is to see it.
    mount(none, c"/", none, libc::MS_REC | libc::MS_PRIVATE)?;
    mount(c"proc".as_ptr(), c"/proc", c"proc".as_ptr(), 0)
}

/// Starts a child there, with a way to talk to it. `Err`: the system does not permit
/// that, and why.
fn start(home: Home, act: impl FnOnce(UnixStream)) -> Result<(Elsewhere, UnixStream), String> {
    let (mut mine, mut its) = UnixStream::pair().expect("a pair of sockets");
    let between = Child::fork(|| {
        let say = |mut its: &UnixStream, why: String| {
            its.write_all(&(-(why.len() as i32)).to_le_bytes()).expect("our parent is there");
            its.write_all(why.as_bytes()).expect("our parent is there");
        };
        if let Err(why) = move_to(home) {
            return say(&its, why.to_string());
        }
        // SAFETY: this process has one thread.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
        if pid > 0 {
            drop(its);
            // SAFETY: our own child.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            return;
        }
        // SAFETY: takes a signal number: we end with our parent.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        if home == Home::PidsAndProc
            && let Err(why) = mount_proc()
        {
            return say(&its, why.to_string());
        }
        // Our parent learns our number in the outer /proc: the kernel names the writer to it.
        its.write_all(&1i32.to_le_bytes()).expect("our parent is there");
        let mut byte = [0];
        its.read_exact(&mut byte).expect("our parent is there");
        act(its);
    });
    mine.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let mut said = [0; 4];
    mine.read_exact(&mut said).expect("the child says something");
    let said = i32::from_le_bytes(said);
    if said < 0 {
        let mut why = vec![0; said.unsigned_abs() as usize];
        mine.read_exact(&mut why).expect("the child says why");
        return Err(String::from_utf8_lossy(&why).into_owned());
    }
    let children = format!("/proc/{0}/task/{0}/children", between.pid());
    let children = std::fs::read_to_string(children).expect("/proc is mounted");
    let pid = children.trim().parse().expect("one child");
    mine.write_all(&[0]).expect("the child is there");
    Ok((Elsewhere { pid, _between: between }, mine))
}

/// Starts a child with an endpoint that knows us as its peer 0.
fn rank(home: Home, settings: Settings, act: impl FnOnce(Node, UnixStream)) -> (Elsewhere, UnixStream) {
    let meet = |mut its: UnixStream| {
        let mut node = open(settings);
        tell(&node, &mut its);
        learn(&mut node, &mut its);
        act(node, its);
    };
    start(home, meet).expect("it was possible before")
}

fn send(node: &mut Node, to: u32, tag: u64, bytes: &[u8]) {
    wait_for(node, |node| node.send(to, tag, bytes, 0));
}

fn take(node: &mut Node, tag: u64, len: usize) -> Vec<u8> {
    let mut into = vec![0; len];
    node.receive(None, tag, 0, &mut into, tag as usize);
    let mut report = None;
    wait_for(node, |node| {
        report = node.next_received();
        report.is_some()
    });
    assert_eq!(report.map(|report| (report.error, report.len)), Some((0, len)), "message {tag}");
    into
}

/// Both begin at the same moment, with something for the other; then messages of all
/// lengths go to and fro.
fn exchange(node: &mut Node, peer: u32) {
    // Kept until the other has it all.
    let crossing: Vec<_> = (0..40).map(|i| pattern(i * 11, i)).collect();
    let lengths = [0, 8, 300, 3000, 20_000, 70_000, 200_000, 1_000_000];
    let bytes: Vec<_> = lengths.iter().enumerate().map(|(i, len)| pattern(*len, i)).collect();
    for (i, bytes) in crossing.iter().enumerate() {
        send(node, peer, 1000 + i as u64, bytes);
    }
    for (i, bytes) in crossing.iter().enumerate() {
        assert!(take(node, 1000 + i as u64, bytes.len()) == *bytes, "message {i}");
    }
    for (i, bytes) in bytes.iter().enumerate() {
        for turn in 0..4 {
            let tag = (i * 4 + turn) as u64;
            send(node, peer, tag, bytes);
            assert!(take(node, tag, bytes.len()) == *bytes, "{} bytes, turn {turn}", bytes.len());
        }
    }
    finish(node, crossing.len() + 4 * bytes.len());
}

/// Waits until so many sends are reported, and nothing is left to be sent.
fn finish(node: &mut Node, sends: usize) {
    let mut sent = 0;
    wait_for(node, |node| {
        sent += std::iter::from_fn(|| node.next_sent()).filter(|report| report.error == 0).count();
        sent == sends && !node.endpoint.is_stuck()
    });
}

fn talk(home: Home, settings: Settings) {
    let slots = usize::from(settings.ring_after != u32::MAX);
    let (_child, mut line) = rank(home, settings, |mut node, mut line| {
        assert!(node.endpoint.core.peers[0].is_foreign);
        exchange(&mut node, 0);
        assert_eq!(node.endpoint.port.rings(), slots);
        line.write_all(b"k").expect("our parent is there");
        // Good-bye only when it has all.
        line.read_exact(&mut [0]).expect("our parent is there");
        node.endpoint.close();
        line.write_all(b"b").expect("our parent is there");
    });
    let mut node = open(settings);
    let peer = learn(&mut node, &mut line);
    tell(&node, &mut line);
    exchange(&mut node, peer);
    assert_eq!(node.endpoint.port.rings(), slots);
    let core = &node.endpoint.core;
    assert!(!core.may_read(&core.peers[peer as usize]));
    let mut said = [0];
    line.read_exact(&mut said).expect("it says that all is well");
    // It leaves: that is noticed, and what waits for it alone ends.
    node.receive(Some(peer), 1, 0, &mut [], 9);
    line.write_all(b"g").expect("it is there");
    line.read_exact(&mut said).expect("it leaves");
    let mut end = None;
    wait_for(&mut node, |node| {
        end = node.next_received();
        end.is_some()
    });
    assert_eq!(end.map(|end| (end.context, end.error)), Some((9, error::UNREACHABLE)));
}

/// Three ranks, none of which sees another.
fn talk_in_threes(settings: Settings) {
    let (a, b) = UnixStream::pair().expect("a pair of sockets");
    let play = |mut node: Node, mut line: UnixStream, mut aside: UnixStream| {
        tell(&node, &mut aside);
        let other = learn(&mut node, &mut aside);
        assert!(node.endpoint.core.peers[other as usize].is_foreign);
        exchange(&mut node, other);
        exchange(&mut node, 0);
        line.write_all(b"k").expect("our parent is there");
        line.read_exact(&mut [0]).expect("our parent is there");
    };
    let mut node = open(settings);
    let mut ranks: Vec<_> = [a, b]
        .into_iter()
        .map(|aside| {
            let (child, mut line) = rank(Home::Pids, settings, |node, line| play(node, line, aside));
            let peer = learn(&mut node, &mut line);
            tell(&node, &mut line);
            (child, line, peer)
        })
        .collect();
    for (_, line, peer) in &mut ranks {
        exchange(&mut node, *peer);
        line.read_exact(&mut [0]).expect("it says that all is well");
    }
}

/// A peer that makes no progress: nothing is sent yet, nothing waits for it, and all goes
/// out when it looks again.
fn a_peer_that_computes_holds_no_other_up(home: Home) {
    let settings = Settings::default();
    let (_child, mut line) = rank(home, settings, |mut node, mut line| {
        line.read_exact(&mut [0]).expect("our parent is there");
        assert_eq!(take(&mut node, 5, 3), [1, 2, 3]);
        // An answer to a peer to which we have never sent.
        let bytes = pattern(300_000, 0);
        send(&mut node, 0, 6, &bytes);
        finish(&mut node, 1);
        line.write_all(b"k").expect("our parent is there");
        line.read_exact(&mut [0]).expect("our parent is there");
    });
    let mut node = open(settings);
    let peer = learn(&mut node, &mut line);
    tell(&node, &mut line);
    for _ in 0..50 {
        assert!(!node.send(peer, 5, &[1, 2, 3], 0), "it can't have answered");
        node.endpoint.progress();
        node.endpoint.look_after();
    }
    line.write_all(b"g").expect("it is there");
    send(&mut node, peer, 5, &[1, 2, 3]);
    assert!(take(&mut node, 6, 300_000) == pattern(300_000, 0));
    line.read_exact(&mut [0]).expect("it says that all is well");
}

/// A peer that is killed before it has said a word.
fn a_silent_one_dies(home: Home) {
    let settings = Settings::default();
    for looked in [false, true] {
        let (child, mut line) = rank(home, settings, |mut node, _| wait_for(&mut node, |_| false));
        let mut node = open(settings);
        let peer = learn(&mut node, &mut line);
        tell(&node, &mut line);
        node.receive(Some(peer), 1, 0, &mut [], 3);
        if looked {
            node.endpoint.look_after();
        }
        assert!(node.next_received().is_none());
        drop(child);
        let mut end = None;
        wait_for(&mut node, |node| {
            end = node.next_received();
            end.is_some()
        });
        assert_eq!(end.map(|end| (end.context, end.error)), Some((3, error::UNREACHABLE)));
    }
}

/// A peer that sleeps on its wake pipe is woken, whether it had one when the other came
/// or got it later.
fn the_doorbell_wakes(home: Home) {
    let settings = Settings::default();
    for late in [false, true] {
        let (_child, mut line) = rank(home, settings, |mut node, mut line| {
            send(&mut node, 0, 1, b"first");
            for _ in 0..20 {
                line.read_exact(&mut [0]).expect("our parent is there");
                std::thread::sleep(Duration::from_millis(2));
                send(&mut node, 0, 2, b"more");
            }
            line.read_exact(&mut [0]).expect("our parent is there");
        });
        let mut node = open(settings);
        if !late {
            node.endpoint.port.wake_pipe().expect("a pipe");
        }
        let peer = learn(&mut node, &mut line);
        tell(&node, &mut line);
        assert_eq!(take(&mut node, 1, 5), b"first");
        let inner = node.endpoint.port.wake_pipe().expect("a pipe").read_end();
        for _ in 0..20 {
            let (mut into, mut woken) = ([0; 4], 0);
            node.receive(Some(peer), 2, 0, &mut into, 2);
            let mut asked = false;
            loop {
                // First the pipe is emptied, then one looks.
                let may_sleep = node.endpoint.port.arm_pipe();
                node.endpoint.progress();
                if node.next_received().is_some() {
                    break;
                }
                if !may_sleep {
                    continue;
                }
                if !core::mem::replace(&mut asked, true) {
                    line.write_all(b"g").expect("it is there");
                }
                let mut readable = libc::pollfd { fd: inner, events: libc::POLLIN, revents: 0 };
                // SAFETY: one descriptor.
                assert_eq!(unsafe { libc::poll(&mut readable, 1, 20_000) }, 1, "a wake-up was lost");
                woken += 1;
            }
            assert!(woken > 0 && into == *b"more");
        }
    }
}

/// Messages are copied twice where memory can't be read directly.
fn what_may_not_be_read_is_copied(refuse: bool) {
    let settings = Settings { direct: Some(1), direct_oversubscribed: Some(1), ..Settings::default() };
    let bytes = pattern(300_000, 3);
    let (_child, mut line) = rank(Home::Here, settings, |mut node, mut line| {
        if refuse {
            // As in many containers.
            refuse_call(libc::SYS_process_vm_readv).unwrap();
        }
        for tag in 0..3 {
            assert!(take(&mut node, tag, bytes.len()) == bytes);
        }
        wait_for(&mut node, |node| !node.endpoint.is_stuck());
        let core = &node.endpoint.core;
        line.write_all(&[core.may_read(&core.peers[0]).into()]).expect("our parent is there");
    });
    let mut node = open(settings);
    let peer = learn(&mut node, &mut line);
    tell(&node, &mut line);
    for tag in 0..3 {
        send(&mut node, peer, tag, &bytes);
        finish(&mut node, 1);
    }
    let mut may_read = [0];
    line.read_exact(&mut may_read).expect("it says how it went");
    // Without that filter it depends on the system's own limits, but not for root.
    // SAFETY: no preconditions.
    if refuse || unsafe { libc::geteuid() } == 0 {
        assert_eq!(may_read, [u8::from(!refuse)]);
    }
}

/// Both in one namespace, but neither may look into the other.
fn talk_though_not_dumpable() {
    let settings = Settings::default();
    let (a, b) = UnixStream::pair().expect("a pair of sockets");
    let play = |mut line: UnixStream, mut aside: UnixStream| {
        // SAFETY: takes numbers only. Root may look into every process.
        unsafe {
            if libc::geteuid() == 0 {
                assert_eq!(libc::setresuid(12345, 12345, 12345), 0);
            }
            assert_eq!(libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0), 0);
        }
        let mut node = open(settings);
        tell(&node, &mut aside);
        let other = learn(&mut node, &mut aside);
        let peer = &node.endpoint.core.peers[other as usize];
        assert!(!peer.is_foreign);
        let refused = matches!(
            attach::open(peer.address.pid, peer.address.fd),
            Err(AttachError::Open { source, .. }) if source.kind() == std::io::ErrorKind::PermissionDenied
        );
        exchange(&mut node, other);
        assert_eq!(node.endpoint.port.rings(), 1);
        line.write_all(&[refused.into()]).expect("our parent is there");
        line.read_exact(&mut [0]).expect("our parent is there");
    };
    let mut ranks: Vec<_> = [a, b]
        .into_iter()
        .map(|aside| start(Home::Here, |line| play(line, aside)).expect("a child"))
        .collect();
    for (_, line) in &mut ranks {
        let mut refused = [0];
        line.read_exact(&mut refused).expect("it says that all is well");
        assert_eq!(refused, [1], "nothing was to be refused");
    }
}

/// Neither way leads there: that is said, and nothing is tried.
fn no_peer_is_reached_in_another_network_namespace() {
    let settings = Settings::default();
    let (_child, mut line) = rank(Home::NetworkAndPids, settings, |node, mut line| {
        line.write_all(b"k").expect("our parent is there");
        line.read_exact(&mut [0]).expect("our parent is there");
        drop(node);
    });
    let mut node = open(settings);
    let peer = learn(&mut node, &mut line);
    tell(&node, &mut line);
    let (own, other) = (node.endpoint.port.address, node.endpoint.core.peers[peer as usize].address);
    assert_eq!(own.can_reach(&other), Err(Unfit::Namespace));
    line.read_exact(&mut [0]).expect("it is there");
}

fn main() {
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } == 65534 {
        println!(
            "namespaces: left out: the overflow user (65534) can't be told from others in a user namespace"
        );
        return;
    }
    let usual = Settings::default();
    let shared = Settings { ring_after: u32::MAX, ..usual };
    let direct = Settings { direct: Some(1), direct_oversubscribed: Some(1), eager: 1000, ..usual };
    let all = [("slots", usual), ("shared queue", shared), ("direct", direct)];
    let begin = |what: String| watchdog::begin(what, 60);
    let started = Instant::now();
    for home in [Home::Pids, Home::PidsAndProc, Home::UsersAndPids, Home::NetworkAndPids] {
        begin(format!("{home:?}"));
        if let Err(why) = start(home, |_| ()) {
            println!("namespaces: {home:?}: left out, the system does not permit it: {why}");
            continue;
        }
        if home == Home::NetworkAndPids {
            no_peer_is_reached_in_another_network_namespace();
            continue;
        }
        for (name, settings) in all {
            begin(format!("{home:?}: {name}"));
            talk(home, settings);
        }
        begin(format!("{home:?}: a peer that computes"));
        a_peer_that_computes_holds_no_other_up(home);
        begin(format!("{home:?}: the wake pipe"));
        the_doorbell_wakes(home);
        begin(format!("{home:?}: a silent one dies"));
        a_silent_one_dies(home);
        for (name, settings) in all {
            let child = |settings, act: &dyn Fn(Node)| rank(home, settings, |node, _| act(node));
            for (ms, len) in [(3, 8), (12, 3000), (20, 200_000)] {
                begin(format!("{home:?}: a sender dies: {name}, {len} bytes, after {ms} ms"));
                a_sender_dies(settings, Duration::from_millis(ms), len, child);
                begin(format!("{home:?}: a receiver dies: {name}, {len} bytes"));
                a_receiver_dies(settings, true, len, child);
            }
            begin(format!("{home:?}: a receiver dies that never looked: {name}"));
            a_receiver_dies(settings, false, 8, child);
        }
    }
    begin("three".into());
    if start(Home::Pids, |_| ()).is_ok() {
        talk_in_threes(usual);
    }
    begin("the same, here".into());
    what_may_not_be_read_is_copied(false);
    what_may_not_be_read_is_copied(true);
    begin("not to be looked into".into());
    talk_though_not_dumpable();
    watchdog::begin("the end".into(), 0);
    println!("namespaces: ok, {:.1} s", started.elapsed().as_secs_f32());
}
