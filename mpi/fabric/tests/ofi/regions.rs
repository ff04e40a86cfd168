//! Registered memory: counters that are bound to it, and its raw keys.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::time::Duration;

use super::support::*;
use sys::*;

const WRITES: u64 = FI_REMOTE_WRITE as u64;
const READS: u64 = FI_REMOTE_READ as u64;

fn count(counter: *mut fid_cntr) -> u64 {
    // SAFETY: an open counter.
    unsafe { call!(counter, ops, read) }
}

/// Writes to memory of the second node, and waits until that is over.
fn write(n: &[Node], bytes: &[u8], key: u64) -> i32 {
    let (at, d, c) = (bytes.as_ptr().cast(), null_mut(), null_mut());
    // SAFETY: the bytes stay until the write is reported.
    start(n, || unsafe { call!(n[0].ep, rma, write, at, bytes.len(), d, n[0].peers[1], 0, key, c) });
    sent(n, 0).error
}

/// Adds one there, and fetches the old value if there is a place for it.
fn add(n: &[Node], found: Option<&mut u64>, op: fi_op, key: u64) {
    let (one, d, c, to) = (1u64, null_mut(), null_mut(), n[0].peers[1]);
    let at = (&raw const one).cast::<c_void>();
    let result = found.map_or(null_mut(), |found| std::ptr::from_mut(found).cast::<c_void>());
    // SAFETY: both stay until the operation is reported.
    start(n, || unsafe {
        match result.is_null() {
            true => call!(n[0].ep, atomic, write, at, 1, d, to, 0, key, FI_UINT64, op, c),
            false => call!(n[0].ep, atomic, readwrite, at, 1, d, result, d, to, 0, key, FI_UINT64, op, c),
        }
    });
    assert_eq!(sent(n, 0).error, 0);
}

#[test]
fn counter_of_memory_counts_what_changes_it() {
    let n = nodes(2, &Options::default());
    let memory = vec![0u64; 1 << 15];
    // SAFETY: the same bytes.
    let bytes = unsafe { std::slice::from_raw_parts(memory.as_ptr().cast::<u8>(), 8 << 15) };
    let [counted, other] =
        [1, 2].map(|key| n[1].register(bytes, FI_REMOTE_READ | FI_REMOTE_WRITE, key).expect("registered"));
    let [writes, reads] = [(); 2].map(|()| open_counter(&n[1].home, FI_WAIT_UNSPEC));
    assert_eq!(bind(counted, writes, WRITES), 0);
    assert_eq!(bind(counted, reads, READS), 0);
    // Short, long, and elsewhere.
    assert_eq!(write(&n, &[1; 8], 1), 0);
    assert_eq!(write(&n, &vec![2; 8 << 15], 1), 0);
    assert_eq!(write(&n, &[1; 8], 2), 0);
    assert_eq!((count(writes), count(reads)), (2, 0));
    add(&n, None, FI_SUM, 1);
    add(&n, Some(&mut 0), FI_SUM, 1);
    add(&n, None, FI_SUM, 2);
    assert_eq!((count(writes), count(reads)), (4, 0));
    add(&n, Some(&mut 0), FI_ATOMIC_READ, 1);
    let mut into = [0u8; 16];
    let (at, d, c) = (into.as_mut_ptr().cast(), null_mut(), null_mut());
    for key in [1, 2] {
        // SAFETY: the place stays until the read is reported.
        start(&n, || unsafe { call!(n[0].ep, rma, read, at, 16, d, n[0].peers[1], 0, key, c) });
        assert_eq!(sent(&n, 0).error, 0);
    }
    assert_eq!((count(writes), count(reads)), (4, 2));
    // A write that fails changes nothing.
    assert_eq!(write(&n, &vec![2; (8 << 15) + 1], 1), FI_ENOKEY as i32);
    assert_eq!(count(writes), 4);
    // It is needed as long as the memory is registered.
    assert_eq!(close(writes), -(FI_EBUSY as c_int));
    assert_eq!((close(counted), close(other)), (0, 0));
    // The key can be used again, and is not counted any more.
    let again = n[1].register(bytes, FI_REMOTE_WRITE, 1).expect("registered");
    assert_eq!(write(&n, &[1; 8], 1), 0);
    assert_eq!(count(writes), 4);
    assert_eq!((close(again), close(writes), close(reads)), (0, 0, 0));
}

#[test]
fn wait_for_a_counter_of_memory_ends() {
    for (wait, threading) in [(FI_WAIT_UNSPEC, FI_THREAD_SAFE), (FI_WAIT_FD, FI_THREAD_SAFE)] {
        let options = Options { wait, threading, ..Options::default() };
        let n = nodes(2, &options);
        let memory = [0u8; 64];
        let mr = n[1].register(&memory, FI_REMOTE_WRITE, 5).expect("registered");
        let counter = open_counter(&n[1].home, wait);
        assert_eq!(bind(mr, counter, WRITES), 0);
        // SAFETY: an open registration; no argument.
        assert_eq!(unsafe { control(mr, FI_ENABLE, null_mut()) }, 0);
        // SAFETY: an open counter.
        let late = unsafe { call!(counter, ops, wait, 1, 5) };
        assert_eq!(late, -(FI_ETIMEDOUT as c_int), "no node has written");
        let (shared, waiter) = (Shared(n), Shared(counter));
        let (shared, waiter) = (&shared, &waiter);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                for _ in 0..3 {
                    let node = &shared.0[0];
                    let (at, d, c) = ([7u8; 8].as_ptr().cast(), null_mut(), null_mut());
                    // SAFETY: injected: the bytes are ours again at once.
                    while unsafe { call!(node.ep, rma, inject, at, 8, node.peers[1], 0, 5) } != 0 {}
                    let _: (*mut c_void, *mut c_void) = (d, c);
                }
                // Until they are answered.
                while shared.0[0].count(FI_WRITE) < 3 {}
            });
            // SAFETY: an open counter.
            assert_eq!(unsafe { call!(waiter.0, ops, wait, 3, -1) }, 0);
        });
        assert_eq!((count(counter), close(mr), close(counter)), (3, 0, 0));
    }
}

#[test]
fn counters_are_bound_to_memory_as_the_flags_say() {
    let n = nodes(2, &Options::default());
    let memory = [0u8; 64];
    let mr = n[0].register(&memory, FI_REMOTE_WRITE, 5).expect("registered");
    let [first, second] = [(); 2].map(|()| open_counter(&n[0].home, FI_WAIT_NONE));
    let bad_flags = -(FI_EBADFLAGS as c_int);
    assert_eq!((bind(mr, first, 0), bind(mr, first, FI_SEND.into())), (bad_flags, bad_flags));
    assert_eq!(bind(mr, n[1].counters[0], WRITES), -(FI_EDOMAIN as c_int), "of another domain");
    assert_eq!(bind(mr, first, READS | WRITES), 0);
    assert_eq!(bind(mr, second, WRITES), -(FI_EINVAL as c_int), "writes are counted");
    assert_eq!(bind(mr, n[0].ep, 0), 0, "an endpoint, on which nothing depends");
    assert_eq!((close(second), close(mr), close(first)), (0, 0, 0));
}

#[test]
fn raw_keys_are_mapped_and_used() {
    let n = nodes(2, &Options::default());
    let memory = [0u8; 8];
    let mr = n[1].register(&memory, FI_REMOTE_WRITE, 0x1234_5678_9abc).expect("registered");
    let (mut base, mut raw, mut size, mut key) = (9, [0u8; 8], 4, 0);
    // SAFETY: places as long as is said.
    unsafe {
        let mut attr = fi_mr_raw_attr {
            flags: 0,
            base_addr: &raw mut base,
            raw_key: raw.as_mut_ptr(),
            key_size: &raw mut size,
        };
        let too_small = control(mr, FI_GET_RAW_MR, (&raw mut attr).cast());
        assert_eq!((too_small, size), (-(FI_ETOOSMALL as c_int), 8));
        assert_eq!(control(mr, FI_GET_RAW_MR, (&raw mut attr).cast()), 0);
        let mut map = fi_mr_map_raw {
            flags: 0,
            base_addr: base,
            raw_key: raw.as_mut_ptr(),
            key_size: size,
            key: &raw mut key,
        };
        assert_eq!(control(n[0].home.domain, FI_MAP_RAW_MR, (&raw mut map).cast()), 0);
        map.key_size = 16;
        let wrong = control(n[0].home.domain, FI_MAP_RAW_MR, (&raw mut map).cast());
        assert_eq!(wrong, -(FI_EINVAL as c_int));
    }
    assert_eq!((base, key), (0, 0x1234_5678_9abc));
    assert_eq!(write(&n, &[3; 8], key), 0);
    // SAFETY: a key that was mapped; no argument.
    unsafe {
        assert_eq!(control(n[0].home.domain, FI_UNMAP_KEY, (&raw mut key).cast()), 0);
        assert_eq!(control(mr, FI_REFRESH, null_mut()), 0);
    }
    assert_eq!(close(mr), 0);
}
