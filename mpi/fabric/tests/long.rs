//! Messages, writes and reads of more than 4 GiB, in little memory: the same few pages
//! are mapped again and again.
#![allow(unsafe_code)]

mod common;

use common::{Node, nodes, receive, settle, ticket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use towpath_fi::device::endpoint::EndpointCore;
use towpath_fi::device::operation::Receive;
use towpath_fi::device::operation::SendRequest;
use towpath_fi::device::resource::buffers::Buffer;
use towpath_fi::device::resource::completion::{Class, Completion, error};
use towpath_fi::device::rma::onesided::RmaTarget;
use towpath_fi::device::rma::regions::Region;
use towpath_fi::device::tune::settings::Settings;

/// Length of the period, no divisor of 4 GiB: bytes that are off by that, or by 2 GiB,
/// are wrong.
const PERIOD: usize = (3 << 20) + 4096;
/// A little more than 4 GiB, and no whole number of pages.
const LEN: usize = (1 << 32) + (9 << 20) + 12_345;

/// A range of addresses behind which the same `PERIOD` bytes come again and again.
struct Repeated {
    at: *mut u8,
    _file: OwnedFd,
}

impl Repeated {
    const TIMES: usize = LEN.div_ceil(PERIOD);

    fn new() -> Repeated {
        // SAFETY: a new file, and mappings of it within a range of addresses that was just
        // reserved.
        unsafe {
            let file = libc::memfd_create(c"repeated".as_ptr(), libc::MFD_CLOEXEC);
            assert!(file >= 0 && libc::ftruncate(file, PERIOD as i64) == 0);
            let file = OwnedFd::from_raw_fd(file);
            let all = PERIOD * Self::TIMES;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let base = libc::mmap(core::ptr::null_mut(), all, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            for i in 0..Self::TIMES {
                let (at, rights) = (base.byte_add(i * PERIOD), libc::PROT_READ | libc::PROT_WRITE);
                let flags = libc::MAP_SHARED | libc::MAP_FIXED;
                assert_eq!(libc::mmap(at, PERIOD, rights, flags, file.as_raw_fd(), 0), at);
            }
            Repeated { at: base.cast(), _file: file }
        }
    }

    fn one(&self) -> &[u8] {
        // SAFETY: mapped; nothing is under way while the tests look at it.
        unsafe { core::slice::from_raw_parts(self.at, PERIOD) }
    }

    fn fill(&self, byte: impl Fn(usize) -> u8) {
        // SAFETY: mapped; nothing is under way, and no reference is left.
        (0..PERIOD).for_each(|i| unsafe { self.at.add(i).write(byte(i)) });
    }

    fn whole(&self) -> Buffer {
        // SAFETY: mapped as long as the test runs.
        unsafe { Buffer::one(self.at as usize, LEN) }
    }

    /// The bytes in pieces, one of them longer than 2 GiB.
    fn pieces(&self) -> Buffer {
        let at = self.at as usize;
        let cuts = [0, 1000, 1003, (1 << 31) + 5000, (1 << 31) + 70_000, LEN];
        // SAFETY: mapped as long as the test runs; the pieces do not overlap.
        unsafe { Buffer::many(cuts.windows(2).map(|c| (at + c[0], c[1] - c[0]))) }.expect("few pieces")
    }
}

impl Drop for Repeated {
    fn drop(&mut self) {
        // SAFETY: the range that `new` mapped.
        unsafe { libc::munmap(self.at.cast(), PERIOD * Self::TIMES) };
    }
}

fn fill(from: &Repeated, into: &Repeated) {
    from.fill(|i| ((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8);
    into.fill(|_| 0xee);
}

/// Checks the end of a message: the last bytes of the last period are from the one
/// before.
fn assert_came(from: &Repeated, into: &Repeated, what: &str) {
    assert!(from.one() == into.one(), "{what}: other bytes");
}

fn send(n: &mut [Node], bytes: &Buffer) {
    let message = SendRequest {
        peer: 1,
        tag: Some(5),
        buffer: bytes,
        data: Some(7),
        ticket: ticket(8, Class::Send),
        inject: false,
        matched: false,
    };
    n[0].endpoint.core.send(&message).expect("there is space");
}

fn post(n: &mut [Node], buffer: Buffer) {
    let receive = Receive { buffer, ..receive(&mut [], 9) };
    n[1].endpoint.receive(true, EndpointCore::pattern(Some(0), 5, 0), receive);
}

#[test]
#[ignore = "takes twenty seconds: cargo test --workspace --test long -- --ignored"]
fn more_than_four_gibibytes_arrive_whole() {
    // One after the other: what takes time is the pages' first use.
    let (from, into) = (Repeated::new(), Repeated::new());
    a_message_is_copied_out(&from, &into);
    a_message_comes_through_the_queue_and_is_cut(&from, &into);
    memory_is_written_and_read(&from, &into);
}

fn a_message_is_copied_out(from: &Repeated, into: &Repeated) {
    let mut n = nodes(2, Settings { direct: Some(1), ..Settings::default() });
    fill(from, into);
    send(&mut n, &from.whole());
    settle(&mut n);
    post(&mut n, into.pieces());
    settle(&mut n);
    let report = n[1].next_received().expect("received");
    assert_eq!((report.len, report.error, report.data), (LEN, 0, 7));
    assert_eq!(n[0].next_sent().map(|c| c.error), Some(0));
    assert_came(from, into, "a message");
}

fn a_message_comes_through_the_queue_and_is_cut(from: &Repeated, into: &Repeated) {
    fill(from, into);
    // Scattered, so it can't be copied out.
    let mut n = nodes(2, Settings { ring_after: 1, ..Settings::default() });
    // The pair earns its slots.
    for _ in 0..4 {
        // SAFETY: a part of the mapping.
        send(&mut n, &unsafe { Buffer::one(from.at as usize, 100) });
        post(&mut n, into.whole());
        settle(&mut n);
        assert_eq!(n[1].next_received().map(|c| c.len), Some(100));
    }
    fill(from, into);
    // SAFETY: a part of the mapping.
    let short = unsafe { Buffer::one(into.at as usize, LEN - 3) };
    post(&mut n, short);
    send(&mut n, &from.pieces());
    settle(&mut n);
    let report = n[1].received.pop_error().expect("reported");
    assert_eq!((report.error, report.len, report.excess), (error::TRUNCATED, LEN - 3, 3));
    assert_came(from, into, "a message that was cut");
}

fn memory_is_written_and_read(from: &Repeated, into: &Repeated) {
    let mut n = nodes(2, Settings { ring_after: 1, ..Settings::default() });
    let region = Region { base: into.at as usize, len: LEN, first: 1 << 40, readable: true, writable: true };
    // SAFETY: mapped as long as the endpoints live.
    assert!(unsafe { n[1].endpoint.core.regions.add(9, region) });
    fill(from, into);
    let at = RmaTarget { peer: 1, address: 1 << 40, key: 9 };
    let ended = |n: &mut [Node]| n[0].next_sent().map(|Completion { context, error, .. }| (context, error));
    n[0].endpoint.core.write(at, &from.whole(), None, ticket(1, Class::Write), false).expect("it starts");
    settle(&mut n);
    assert_eq!(ended(&mut n), Some((1, 0)));
    assert_came(from, into, "a write");
    from.fill(|_| 0);
    n[0].endpoint.core.read(at, &from.pieces(), ticket(2, Class::Read)).expect("it starts");
    settle(&mut n);
    assert_eq!(ended(&mut n), Some((2, 0)));
    assert_came(into, from, "a read");
    assert!(from.one().iter().any(|&b| b != 0));
    // One byte beyond the end is no part of it.
    let beyond = RmaTarget { address: at.address + 1, ..at };
    n[0].endpoint.core.read(beyond, &from.whole(), ticket(3, Class::Read)).expect("it starts");
    settle(&mut n);
    assert_eq!(ended(&mut n), Some((3, error::NO_KEY)));
}
