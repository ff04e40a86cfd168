//! Addresses and segments that are wrong: of other versions, users and namespaces, of
//! processes that are gone, of files that are no segments.

use std::ffi::c_int;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::ptr::null_mut;

use super::support::*;
use sys::*;

const UNREACHABLE: isize = -(libc::EHOSTUNREACH as isize);

// Where in an address things are, in bytes.
const LAYOUT: usize = 8;
const VERSION: usize = 12;
const USER: usize = 16;
const PID: usize = 20;
const DESCRIPTOR: usize = 24;
const START: usize = 32;
const NAMESPACE: usize = 40;
const NONCE: usize = 48;
const NETWORK: usize = 56;

/// An address with another number at this place.
fn changed(name: &[u8; NAME], at: usize, how: impl Fn(u32) -> u32) -> [u8; NAME] {
    let mut name = *name;
    let part = &mut name[at..at + 4];
    let number = u32::from_le_bytes(part.try_into().expect("four bytes"));
    part.copy_from_slice(&how(number).to_le_bytes());
    name
}

fn number(name: &[u8; NAME], at: usize) -> u32 {
    u32::from_le_bytes(name[at..at + 4].try_into().expect("four bytes"))
}

#[test]
fn ranks_that_cannot_talk_are_refused_when_they_meet() {
    let options = Options::default();
    let n = nodes(2, &options);
    let good = n[1].name();
    let mut names = vec![good];
    for places in [&[0][..], &[LAYOUT], &[VERSION], &[USER], &[NAMESPACE, NETWORK]] {
        let bad = places.iter().fold(good, |bad, &at| changed(&bad, at, |number| number ^ 1));
        assert_eq!(n[0].insert(&bad), None, "with other numbers at {places:?}");
        names.push(bad);
    }
    names.push(good);
    // Among good ones: those are taken, and which are bad is said for each.
    let (mut numbers, mut errors) = ([7; 7], [99 as c_int; 7]);
    let (at, flags) = (names.as_flattened().as_ptr().cast(), FI_SYNC_ERR);
    // SAFETY: seven addresses, and places for as many numbers and errors.
    let taken = unsafe {
        call!(n[0].av, ops, insert, at, 7, numbers.as_mut_ptr(), flags, errors.as_mut_ptr().cast())
    };
    assert_eq!(taken, 2);
    let bad = FI_EINVAL as c_int;
    assert_eq!(errors, [0, bad, bad, bad, bad, bad, 0]);
    assert_eq!(numbers[1..6], [ANY; 5]);
    for number in [numbers[0], numbers[6]] {
        let mut into = [0; 8];
        assert_eq!(n[1].receive(n[1].peers[0], Some((1, 0)), &mut into, 1), 0);
        start(&n, || n[0].send(number, Some(1), &[6; 8], 1));
        assert_eq!((received(&n, 1).error, into), (0, [6; 8]));
    }
    // SAFETY: seven addresses; numbers and errors are not asked for.
    assert_eq!(unsafe { call!(n[0].av, ops, insert, at, 7, null_mut(), 0, null_mut()) }, 2);
}

/// Every operation to this address is refused.
fn is_refused(node: &Node, name: &[u8; NAME]) {
    is_refused_for_good(node, node.insert(name).expect("it looks like an address"));
}

fn is_refused_for_good(node: &Node, to: fi_addr_t) {
    let bytes = [0u8; 8];
    for _ in 0..2 {
        assert_eq!(node.send(to, Some(1), &bytes, 1), UNREACHABLE);
        assert_eq!(node.send(to, None, &[0; 1000], 1), UNREACHABLE);
        let (at, d) = (bytes.as_ptr().cast(), null_mut());
        // SAFETY: refused.
        unsafe {
            assert_eq!(call!(node.ep, rma, write, at, 8, d, to, 0, 1, null_mut()), UNREACHABLE);
            let sum = call!(node.ep, atomic, write, at, 1, d, to, 0, 1, FI_UINT64, FI_SUM, null_mut());
            assert_eq!(sum, UNREACHABLE);
        }
    }
}

#[test]
fn what_is_no_longer_there_cannot_be_sent_to() {
    let n = nodes(2, &Options::default());
    let good = n[1].name();
    is_refused(&n[0], &changed(&good, NONCE, |nonce| nonce ^ 1));
    is_refused(&n[0], &changed(&good, START, |start| start ^ 1));
    is_refused(&n[0], &changed(&good, DESCRIPTOR, |_| 1_000_000));
    is_refused(&n[0], &changed(&good, DESCRIPTOR, |_| u32::MAX));
    // Of a process that is not there: a receive from it alone learns that.
    let gone = changed(&good, PID, |_| 0x3fff_ffff);
    is_refused(&n[0], &gone);
    let mut into = [0; 8];
    let from = n[0].insert(&gone).expect("it looks like an address");
    assert_eq!(n[0].receive(from, Some((1, 0)), &mut into, 5), 0);
    let report = received(&n, 0);
    assert_eq!((report.context, report.error), (5, libc::EHOSTUNREACH));
    nothing_more(&n);
}

#[test]
fn peer_that_lies_about_its_namespace_is_not_sent_to() {
    let n = nodes(2, &Options::default());
    // Its descriptor listener is there, but gives a segment with another address.
    let to = n[0].insert(&changed(&n[1].name(), NAMESPACE, |number| number ^ 1)).expect("a possible address");
    let (mut said, mut tries) = (0, 0);
    while said != UNREACHABLE {
        said = n[0].send(to, Some(1), &[1; 8], 1);
        assert!(said == -(FI_EAGAIN as isize) || said == UNREACHABLE);
        nothing_more(&n);
        tries += 1;
        assert!(tries < 100_000, "its listener does not answer");
    }
    is_refused_for_good(&n[0], to);
}

#[test]
fn files_that_are_no_segments_are_not_used() {
    let n = nodes(2, &Options::default());
    let good = n[1].name();
    // An ordinary file, a short one, a pipe, a folder; ours, and readable for us.
    let path = std::env::temp_dir().join(format!("towpath-stranger-{}", std::process::id()));
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
    std::fs::remove_file(&path).expect("it is there");
    let refuse = |fd: c_int| is_refused(&n[0], &changed(&good, DESCRIPTOR, |_| fd as u32));
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    refuse(fd);
    file.set_permissions(Permissions::from_mode(0o600)).expect("it is ours");
    refuse(fd);
    file.set_len(64 << 20).expect("a long file of holes");
    refuse(fd);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    refuse(std::os::fd::AsRawFd::as_raw_fd(&reader));
    refuse(std::os::fd::AsRawFd::as_raw_fd(&writer));
    let folder = std::fs::File::open("/").expect("a folder");
    refuse(std::os::fd::AsRawFd::as_raw_fd(&folder));
}

#[test]
fn segments_that_others_may_use_are_not_used() {
    let n = nodes(2, &Options::default());
    let third = Node::new(&n[0].home, &Options::default());
    let (name, other) = (n[1].name(), third.name());
    let path = |name| format!("/proc/self/fd/{}", number(name, DESCRIPTOR));
    std::fs::set_permissions(path(&name), Permissions::from_mode(0o666)).expect("it is ours");
    assert_eq!(n[0].send(n[0].peers[1], Some(1), &[1], 1), UNREACHABLE);
    // Another user's, as far as we may pretend that.
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        std::os::unix::fs::chown(path(&other), Some(12345), None).expect("root may");
        is_refused(&n[0], &other);
    }
}
