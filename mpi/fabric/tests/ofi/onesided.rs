//! Reading and writing memory of others.

use std::ffi::c_void;
use std::ptr::null_mut;

use super::support::*;
use sys::*;

const KEY: u64 = 33;
const BOTH: u32 = FI_REMOTE_READ | FI_REMOTE_WRITE;

/// Reads memory that a peer writes to: afresh each time.
fn look(memory: &[u8]) -> Vec<u8> {
    // SAFETY: readable; nothing is under way when the tests look.
    (0..memory.len()).map(|i| unsafe { memory.as_ptr().add(i).read_volatile() }).collect()
}

/// The calls that write.
#[derive(Clone, Copy, Debug)]
enum Write {
    Plain,
    Vector,
    Message,
    Inject,
    Data,
    InjectData,
}

impl Write {
    const ALL: [Write; 6] =
        [Write::Plain, Write::Vector, Write::Message, Write::Inject, Write::Data, Write::InjectData];

    fn injects(self) -> bool {
        matches!(self, Write::Inject | Write::InjectData)
    }

    fn has_data(self) -> bool {
        matches!(self, Write::Message | Write::Data | Write::InjectData)
    }

    fn call(self, n: &Node, to: u64, bytes: &[u8], offset: u64, key: u64) -> isize {
        let (at, len, ctx, d) = (bytes.as_ptr().cast(), bytes.len(), 8 as *mut c_void, null_mut());
        let iov = halves(bytes);
        // SAFETY: the tests keep what they write until it is reported.
        unsafe {
            match self {
                Write::Plain => call!(n.ep, rma, write, at, len, d, to, offset, key, ctx),
                Write::Vector => {
                    call!(n.ep, rma, writev, iov.as_ptr(), null_mut(), 2, to, offset, key, ctx)
                }
                Write::Message => {
                    let remote = fi_rma_iov { addr: offset, len, key };
                    let m = message(&iov, to, &remote);
                    call!(n.ep, rma, writemsg, &raw const m, FI_REMOTE_CQ_DATA.into())
                }
                Write::Inject => call!(n.ep, rma, inject, at, len, to, offset, key),
                Write::Data => call!(n.ep, rma, writedata, at, len, d, 55, to, offset, key, ctx),
                Write::InjectData => call!(n.ep, rma, injectdata, at, len, 55, to, offset, key),
            }
        }
    }
}

fn halves(bytes: &[u8]) -> [iovec; 2] {
    let (a, b) = bytes.split_at(bytes.len() / 3);
    [a, b].map(|p| iovec { iov_base: p.as_ptr() as *mut _, iov_len: p.len() })
}

fn message(iov: &[iovec], of: u64, remote: &fi_rma_iov) -> fi_msg_rma {
    fi_msg_rma {
        msg_iov: iov.as_ptr(),
        desc: null_mut(),
        iov_count: iov.len(),
        addr: of,
        rma_iov: remote,
        rma_iov_count: 1,
        context: 8 as *mut c_void,
        data: 55,
    }
}

/// Reads by each of the calls: 0 plain, 1 a vector, 2 a message.
fn read(way: usize, n: &Node, of: u64, into: &mut [u8], offset: u64, key: u64) -> isize {
    let (at, len, ctx, d) = (into.as_mut_ptr().cast(), into.len(), 8 as *mut c_void, null_mut());
    let iov = halves(into);
    // SAFETY: the tests keep the space until the report.
    unsafe {
        match way {
            0 => call!(n.ep, rma, read, at, len, d, of, offset, key, ctx),
            1 => call!(n.ep, rma, readv, iov.as_ptr(), null_mut(), 2, of, offset, key, ctx),
            _ => {
                let remote = fi_rma_iov { addr: offset, len, key };
                let m = message(&iov, of, &remote);
                call!(n.ep, rma, readmsg, &raw const m, 0)
            }
        }
    }
}

#[test]
fn every_call_writes_and_every_call_reads() {
    for together in [true, false] {
        let n = nodes(2, &Options { together, ..Options::default() });
        let window = vec![0u8; 1 << 20];
        let mr = n[1].register(&window, BOTH, KEY).expect("registered");
        let (mut writes, mut reads) = (0, 0);
        for how in Write::ALL {
            for len in [0, 1, 40, 256, 5000, 300_000] {
                if how.injects() && len > 256 {
                    continue;
                }
                let (bytes, offset) = (pattern(len, writes as usize), 17 * (writes + 1));
                start(&n, || how.call(&n[0], n[0].peers[1], &bytes, offset, KEY));
                writes += 1;
                if !how.injects() {
                    let report = sent(&n, 0);
                    assert_eq!((report.context, report.error), (8, 0), "{how:?}, {len}");
                    assert_eq!(report.flags, u64::from(FI_RMA | FI_WRITE));
                }
                if how.has_data() {
                    let report = received(&n, 1);
                    assert_eq!((report.data, report.source), (55, n[1].peers[0]), "{how:?}, {len}");
                    assert_eq!(report.flags, u64::from(FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA));
                }
                until(&n, || (n[1].count(FI_REMOTE_WRITE) == writes).then_some(()));
                assert!(look(&window[offset as usize..][..len]) == bytes, "{how:?}, {len}");
                let mut back = vec![0; len];
                for way in 0..3 {
                    back.fill(0);
                    start(&n, || read(way, &n[0], n[0].peers[1], &mut back, offset, KEY));
                    let report = sent(&n, 0);
                    assert_eq!((report.context, report.error), (8, 0), "way {way}, {len}");
                    assert_eq!(report.flags, u64::from(FI_RMA | FI_READ));
                    assert!(look(&back) == bytes, "way {way}, {len}");
                    reads += 1;
                }
            }
        }
        nothing_more(&n);
        assert_eq!((n[0].count(FI_WRITE), n[0].count(FI_READ)), (writes, reads));
        assert_eq!(close(mr), 0);
    }
}

#[test]
fn writes_keep_their_place_among_messages() {
    let n = nodes(2, &Options::default());
    let window = vec![0u8; 100_000];
    let mr = n[1].register(&window, BOTH, KEY).expect("registered");
    let mut into = [0; 8];
    for i in 0..200u8 {
        let len = [8, 100_000][usize::from(i) % 2];
        let bytes = vec![i; len];
        assert_eq!(n[1].receive(ANY, Some((1, 0)), &mut into, 1), 0);
        start(&n, || Write::Plain.call(&n[0], n[0].peers[1], &bytes, 0, KEY));
        start(&n, || n[0].send(n[0].peers[1], Some(1), &[i; 8], 2));
        // The message says that the bytes are there.
        assert_eq!((received(&n, 1).context, into), (1, [i; 8]));
        assert!(look(&window[..len]).iter().all(|&byte| byte == i), "write {i}");
        for _ in 0..2 {
            assert_eq!(sent(&n, 0).error, 0);
        }
    }
    assert_eq!(close(mr), 0);
}

#[test]
fn memory_that_was_not_offered_is_neither_read_nor_written() {
    let n = nodes(2, &Options::default());
    let window = vec![7u8; 64];
    let regions = [FI_REMOTE_READ, FI_REMOTE_WRITE, BOTH]
        .map(|access| n[1].register(&window, access, access.into()).expect("registered"));
    let (of, bytes, mut into) = (n[0].peers[1], [1; 32], [0; 32]);
    let (may_read, may_write, may_both) =
        (u64::from(FI_REMOTE_READ), u64::from(FI_REMOTE_WRITE), u64::from(BOTH));
    // Not permitted, beyond the end, around it, and by a key that no region has.
    let bad_writes = [(0, may_read), (40, may_write), (u64::MAX - 8, may_both), (0, 4711)];
    let bad_reads = [(0, may_write), (40, may_read), (u64::MAX - 8, may_both), (0, 4711)];
    for (i, ((at, key), (from, by))) in bad_writes.into_iter().zip(bad_reads).enumerate() {
        start(&n, || Write::Plain.call(&n[0], of, &bytes, at, key));
        assert_eq!(sent(&n, 0).error, FI_ENOKEY_, "write {i}");
        // Of injected ones the error is reported too.
        start(&n, || Write::Inject.call(&n[0], of, &bytes, at, key));
        assert_eq!(sent(&n, 0).error, FI_ENOKEY_, "write {i}");
        start(&n, || read(0, &n[0], of, &mut into, from, by));
        assert_eq!(sent(&n, 0).error, FI_ENOKEY_, "read {i}");
    }
    assert_eq!((n[0].errors(FI_WRITE), n[0].errors(FI_READ)), (8, 4));
    assert_eq!((n[1].count(FI_REMOTE_WRITE), n[1].count(FI_REMOTE_READ)), (0, 0));
    assert!(look(&window) == [7; 64] && look(&into) == [0; 32]);
    // A long one fails once, and what comes after it arrives.
    let long = vec![2u8; 1 << 20];
    start(&n, || Write::Plain.call(&n[0], of, &long, 0, 4711));
    start(&n, || Write::Plain.call(&n[0], of, &bytes, 0, may_both));
    let mut errors = [sent(&n, 0).error, sent(&n, 0).error];
    errors.sort_unstable();
    assert_eq!(errors, [0, FI_ENOKEY_]);
    assert!(look(&window[..32]) == [1; 32]);
    // After the end of the registration.
    for mr in regions {
        assert_eq!(close(mr), 0);
    }
    start(&n, || read(0, &n[0], of, &mut into, 0, may_both));
    assert_eq!(sent(&n, 0).error, FI_ENOKEY_);
    nothing_more(&n);
}

/// `FI_ENOKEY`, as completions carry it.
const FI_ENOKEY_: i32 = 266;

#[test]
fn registrations_have_keys_offsets_and_one_piece() {
    let n = nodes(2, &Options::default());
    let window = vec![0u8; 64];
    let domain = n[1].home.domain;
    let mr = n[1].register(&window, BOTH, KEY).expect("registered");
    // SAFETY: what registration gave.
    assert_eq!(unsafe { (*mr).key }, KEY);
    assert!(n[1].register(&window, BOTH, KEY).is_err(), "the key is in use");
    assert_eq!(close(mr), 0);
    let iov = halves(&window);
    let mut mr: *mut fid_mr = null_mut();
    // SAFETY: pieces of memory that stays, and places for the answers; attributes may be zero.
    unsafe {
        let table = &*(*domain).mr;
        let at = iov.as_ptr();
        let two = table.regv.unwrap()(domain.cast(), at, 2, BOTH.into(), 0, KEY, 0, &raw mut mr, null_mut());
        assert_eq!(two as isize, INVALID, "in several pieces");
        let mut attr: fi_mr_attr = core::mem::zeroed();
        let whole = iovec { iov_base: window.as_ptr() as *mut _, iov_len: 64 };
        (attr.mr_iov, attr.iov_count) = (&raw const whole, 1);
        (attr.access, attr.requested_key, attr.offset) = (BOTH.into(), KEY, 1000);
        assert_eq!(table.regattr.unwrap()(domain.cast(), &raw const attr, 0, &raw mut mr), 0);
    }
    // Offset 1000 is its first byte, and what comes before is not there.
    let (of, bytes) = (n[0].peers[1], [9u8; 64]);
    start(&n, || Write::Plain.call(&n[0], of, &bytes, 1000, KEY));
    assert_eq!(sent(&n, 0).error, 0);
    assert!(look(&window) == bytes);
    for offset in [0, 936, 999, 1001, 1064] {
        start(&n, || Write::Plain.call(&n[0], of, &bytes, offset, KEY));
        assert_eq!(sent(&n, 0).error, FI_ENOKEY_, "at {offset}");
    }
    assert_eq!(close(mr), 0);
}

#[test]
fn only_what_is_asked_for_is_reported_of_reads_and_writes() {
    let n = nodes(2, &Options { selective: true, ..Options::default() });
    let window = vec![0u8; 64];
    let mr = n[1].register(&window, BOTH, KEY).expect("registered");
    let (of, bytes, mut into) = (n[0].peers[1], [1u8; 8], [0u8; 8]);
    for flags in [0, u64::from(FI_COMPLETION)] {
        let remote = fi_rma_iov { addr: 0, len: 8, key: KEY };
        let (from, to) = (halves(&bytes), halves(&into));
        let (write, read) = (message(&from, of, &remote), message(&to, of, &remote));
        // SAFETY: messages whose parts stay.
        unsafe {
            start(&n, || call!(n[0].ep, rma, writemsg, &raw const write, flags));
            start(&n, || call!(n[0].ep, rma, readmsg, &raw const read, flags));
        }
        let expected = if flags == 0 { 1 } else { 2 };
        until(&n, || (n[0].count(FI_READ) == expected && n[0].count(FI_WRITE) == expected).then_some(()));
        assert!(look(&into) == bytes);
        into.fill(0);
        let reports = std::iter::from_fn(|| n[0].take(n[0].tx)).count();
        assert_eq!(reports, if flags == 0 { 0 } else { 2 });
    }
    // A message whose two sides differ in length.
    let remote = fi_rma_iov { addr: 0, len: 9, key: KEY };
    let from = halves(&bytes);
    let wrong = message(&from, of, &remote);
    // SAFETY: a message whose parts stay; it is refused.
    assert_eq!(unsafe { call!(n[0].ep, rma, writemsg, &raw const wrong, 0) }, INVALID);
    assert_eq!(close(mr), 0);
}

#[test]
fn own_operations_come_before_those_they_cause() {
    // A writes to its own memory, then tells B (here: we do), then B writes there: B's is the last,
    // by whatever ways the two travel, and though A makes no progress in between. MPI programs rely
    // on that.
    let n = nodes(2, &Options::default());
    let window = [0u64; 8];
    // SAFETY: the same bytes.
    let bytes = unsafe { std::slice::from_raw_parts(window.as_ptr().cast::<u8>(), 64) };
    let mr = n[0].register(bytes, BOTH, KEY).expect("registered");
    let write = |node: &Node, value: u64, atomic: bool| {
        let (to, operand) = (node.peers[0], value.to_ne_bytes());
        let at = operand.as_ptr().cast();
        // SAFETY: the operand is taken at once.
        unsafe {
            if atomic {
                call!(node.ep, atomic, inject, at, 1, to, 8, KEY, FI_UINT64, FI_ATOMIC_WRITE)
            } else {
                call!(node.ep, rma, inject, at, 8, to, 8, KEY)
            }
        }
    };
    // B has slots soon, and A for itself only later.
    for i in 0..100u64 {
        let (own, other) = (i % 3 == 0, i % 2 == 0);
        if i % 5 == 0 || i > 50 {
            // With messages to itself on their way.
            assert_eq!(n[0].send(n[0].peers[0], Some(i), &[0; 8], 1), 0);
        }
        assert_eq!(write(&n[0], 2 * i + 1, own), 0);
        start(&n[1..], || write(&n[1], 2 * i + 2, other));
        settle(&n);
        // SAFETY: nothing is under way.
        assert_eq!(unsafe { window.as_ptr().add(1).read_volatile() }, 2 * i + 2, "round {i}");
    }
    assert_eq!((n[0].count(FI_WRITE), n[0].count(FI_REMOTE_WRITE)), (100, 200));
    assert_eq!(close(mr), 0);
}
