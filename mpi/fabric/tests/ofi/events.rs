//! Event queues: written, read, peeked at, waited for; and the reports of address vectors
//! and registrations.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::zeroed;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use super::support::*;
use sys::*;

const TOO_SMALL: isize = -(FI_ETOOSMALL as isize);
const AVAILABLE: isize = -(FI_EAVAIL as isize);

fn open(home: &Home, wait: fi_wait_obj, flags: u32) -> Result<*mut fid_eq, c_int> {
    let mut eq = null_mut();
    // SAFETY: attributes may be zero; an open fabric, and a place for the answer.
    let result = unsafe {
        let mut attr: fi_eq_attr = zeroed();
        (attr.wait_obj, attr.flags) = (wait, flags.into());
        call!(home.fabric, ops, eq_open, &raw mut attr, &raw mut eq, null_mut())
    };
    if result == 0 { Ok(eq) } else { Err(result) }
}

fn writable(home: &Home, wait: fi_wait_obj) -> *mut fid_eq {
    open(home, wait, FI_WRITE).expect("an event queue")
}

fn write(eq: *mut fid_eq, event: u32, bytes: &[u8]) -> isize {
    // SAFETY: an open queue, and as many bytes as is said.
    unsafe { call!(eq, ops, write, event, bytes.as_ptr().cast(), bytes.len(), 0) }
}

/// The next event, if there is one.
fn read(eq: *mut fid_eq, flags: u32) -> Result<(u32, Vec<u8>), isize> {
    let (mut event, mut space) = (0, vec![0u8; 4096]);
    // SAFETY: an open queue, and as much space as is said.
    match unsafe { call!(eq, ops, read, &raw mut event, space.as_mut_ptr().cast(), 4096, flags.into()) } {
        n if n >= 0 => Ok((event, space[..n as usize].to_vec())),
        error => Err(error),
    }
}

fn wait(eq: *mut fid_eq, timeout: c_int) -> Result<(u32, Vec<u8>), isize> {
    let (mut event, mut space) = (0, vec![0u8; 4096]);
    // SAFETY: an open queue, and as much space as is said.
    match unsafe { call!(eq, ops, sread, &raw mut event, space.as_mut_ptr().cast(), 4096, timeout, 0) } {
        n if n >= 0 => Ok((event, space[..n as usize].to_vec())),
        error => Err(error),
    }
}

#[test]
fn events_are_read_in_the_order_in_which_they_were_written() {
    let home = Home::new(&Options::default());
    let eq = writable(&home, FI_WAIT_NONE);
    assert_eq!(read(eq, 0), Err(AGAIN));
    assert_eq!((write(eq, 77, &[1; 24]), write(eq, 78, b"abc")), (24, 3));
    for _ in 0..2 {
        assert_eq!(read(eq, FI_PEEK), Ok((77, vec![1; 24])), "not taken");
    }
    let (mut event, mut space) = (0, [0u8; 4]);
    // SAFETY: as much space as is said.
    let short = unsafe { call!(eq, ops, read, &raw mut event, space.as_mut_ptr().cast(), 4, 0) };
    assert_eq!(short, TOO_SMALL, "it stays");
    assert_eq!(read(eq, 0), Ok((77, vec![1; 24])));
    assert_eq!(wait(eq, -1), Ok((78, b"abc".to_vec())));
    assert_eq!(read(eq, FI_PEEK), Err(AGAIN));
    assert_eq!(close(eq), 0);
}

#[test]
fn event_queue_is_not_overrun() {
    let home = Home::new(&Options::default());
    let mut eq = null_mut();
    // SAFETY: as in `open`.
    unsafe {
        let mut attr: fi_eq_attr = zeroed();
        (attr.size, attr.flags) = (1, FI_WRITE.into());
        assert_eq!(call!(home.fabric, ops, eq_open, &raw mut attr, &raw mut eq, null_mut()), 0);
    }
    for i in 0..10_000u32 {
        assert_eq!(write(eq, i, &i.to_ne_bytes()), 4);
    }
    for i in 0..10_000u32 {
        assert_eq!(read(eq, 0), Ok((i, i.to_ne_bytes().to_vec())));
    }
    assert_eq!((read(eq, 0), close(eq)), (Err(AGAIN), 0));
}

#[test]
fn event_wait_lasts_as_long_as_it_is_said() {
    let home = Home::new(&Options::default());
    for kind in [FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_YIELD, FI_WAIT_NONE] {
        let eq = writable(&home, kind);
        for ms in [0, 1, 120] {
            let start = Instant::now();
            assert_eq!(wait(eq, ms), Err(AGAIN));
            assert!(start.elapsed() >= Duration::from_millis(ms as u64), "{ms} ms");
        }
        assert_eq!(close(eq), 0);
    }
}

#[test]
fn event_wakes_a_thread_that_waits_for_ever() {
    let home = Home::new(&Options::default());
    for timeout in [-1, PATIENCE.as_millis() as c_int] {
        let eq = writable(&home, FI_WAIT_UNSPEC);
        let shared = &Shared(eq);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(30));
                assert_eq!(write(shared.0, 5, b"now"), 3);
            });
            assert_eq!(wait(eq, timeout), Ok((5, b"now".to_vec())));
        });
        assert_eq!(close(eq), 0);
    }
}

#[test]
fn descriptor_is_readable_while_there_are_events() {
    let home = Home::new(&Options::default());
    let eq = writable(&home, FI_WAIT_FD);
    let (mut fd, mut kind): (c_int, _) = (-1, FI_WAIT_NONE);
    // SAFETY: places for a descriptor, and for a kind of wait object.
    unsafe {
        assert_eq!(control(eq, FI_GETWAIT, (&raw mut fd).cast()), 0);
        assert_eq!(control(eq, FI_GETWAITOBJ, (&raw mut kind).cast()), 0);
    }
    assert_eq!(kind, FI_WAIT_FD);
    let is_readable = |ms| {
        let mut what = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor.
        unsafe { libc::poll(&raw mut what, 1, ms) == 1 }
    };
    let may_wait = || {
        let mut fids: [*mut fid; 1] = [eq.cast()];
        // SAFETY: an open fabric, and one open object.
        unsafe { call!(home.fabric, ops, trywait, fids.as_mut_ptr(), 1) }
    };
    for _ in 0..3 {
        assert!(!is_readable(0) && may_wait() == 0);
        assert_eq!((write(eq, 1, b"a"), write(eq, 2, b"b")), (1, 1));
        assert!(is_readable(0) && may_wait() == -(FI_EAGAIN as c_int));
        assert!(read(eq, FI_PEEK).is_ok() && read(eq, 0).is_ok() && is_readable(0), "one is left");
        assert_eq!(read(eq, 0), Ok((2, b"b".to_vec())));
    }
    assert!(!is_readable(0));
    // Another thread's event.
    let shared = &Shared(eq);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(write(shared.0, 3, b"c"), 1);
        });
        assert!(is_readable(PATIENCE.as_millis() as c_int));
    });
    assert_eq!(close(eq), 0);
}

#[test]
fn what_event_queues_cannot_do_is_refused() {
    let home = Home::new(&Options::default());
    for wait in [FI_WAIT_SET, FI_WAIT_MUTEX_COND] {
        assert_eq!(open(&home, wait, 0).err(), Some(-(FI_ENOSYS as c_int)));
    }
    assert_eq!(open(&home, FI_WAIT_NONE, FI_SEND).err(), Some(-(FI_EBADFLAGS as c_int)));
    let eq = open(&home, FI_WAIT_NONE, 0).expect("an event queue");
    assert_eq!(write(eq, 1, b"a"), INVALID, "it was not opened to be written");
    assert_eq!(close(eq), 0);
    let eq = writable(&home, FI_WAIT_NONE);
    let (mut event, mut space, mut fd) = (0, [0u8; 64], 0);
    let at = space.as_mut_ptr().cast();
    // SAFETY: an open queue; nothing that is missing is touched.
    unsafe {
        assert_eq!(call!(eq, ops, write, 1, null_mut(), 8, 0), INVALID);
        assert_eq!(call!(eq, ops, write, 1, at, 0, 0), INVALID);
        assert_eq!(call!(eq, ops, write, 1, at, usize::MAX, 0), -(FI_EMSGSIZE as isize));
        assert_eq!(call!(eq, ops, write, 1, at, 8, 1), -(FI_EBADFLAGS as isize));
        for there in [true, false] {
            if there {
                assert_eq!(write(eq, 1, b"a"), 1);
            }
            assert_eq!(call!(eq, ops, read, null_mut(), at, 64, 0), INVALID);
            assert_eq!(call!(eq, ops, read, &raw mut event, null_mut(), 64, 0), INVALID);
            assert_eq!(call!(eq, ops, read, &raw mut event, at, 64, 1), -(FI_EBADFLAGS as isize));
            assert_eq!(call!(eq, ops, sread, null_mut(), at, 64, 0, 0), INVALID);
            assert_eq!(call!(eq, ops, sread, &raw mut event, null_mut(), 64, -1, 0), INVALID);
            assert_eq!(call!(eq, ops, readerr, null_mut(), 0), INVALID);
        }
        let mut error: fi_eq_err_entry = zeroed();
        assert_eq!(call!(eq, ops, readerr, &raw mut error, 0), AGAIN);
        assert_eq!(control(eq, FI_GETWAIT, (&raw mut fd).cast()), -(FI_ENOSYS as c_int), "no descriptor");
        assert_eq!(control(eq, FI_GETWAIT, null_mut()), -(FI_EINVAL as c_int));
        assert_eq!(
            call!(home.fabric, ops, eq_open, null_mut(), null_mut(), null_mut()),
            -(FI_EINVAL as c_int)
        );
    }
    assert_eq!(close(eq), 0);
}

/// An address vector that reports to an event queue, which may be bound.
fn open_reporting_av(node: &Node, flags: u64) -> *mut fid_av {
    let mut av = null_mut();
    // SAFETY: attributes may be zero; an open domain, and a place for the answer.
    unsafe {
        let mut attr: fi_av_attr = zeroed();
        attr.flags = flags;
        assert_eq!(call!(node.home.domain, ops, av_open, &raw mut attr, &raw mut av, null_mut()), 0);
        assert_eq!(attr.type_, FI_AV_TABLE, "the type that was chosen");
    }
    av
}

#[test]
fn insertions_report_to_the_event_queue() {
    let n = nodes(1, &Options::default());
    let eq = open(&n[0].home, FI_WAIT_UNSPEC, 0).expect("an event queue");
    let av = open_reporting_av(&n[0], FI_EVENT.into());
    let addresses = [n[0].name(), [7; NAME], n[0].name(), [8; NAME]];
    let (at, context) = (addresses.as_ptr().cast::<c_void>(), 0x55 as *mut c_void);
    let mut numbers = [9; 4];
    // SAFETY: as many addresses as is said, and places for their numbers.
    let insert = |numbers: *mut fi_addr_t| unsafe { call!(av, ops, insert, at, 4, numbers, 0, context) };
    assert_eq!(insert(numbers.as_mut_ptr()), -(FI_ENOEQ as c_int));
    assert_eq!(bind(av, eq, 0), 0);
    assert_eq!(close(eq), -(FI_EBUSY as c_int), "it is bound");
    assert_eq!((insert(numbers.as_mut_ptr()), numbers), (0, [0, ANY, 1, ANY]));
    for failed in [1, 3] {
        assert_eq!((read(eq, 0), wait(eq, -1)), (Err(AVAILABLE), Err(AVAILABLE)));
        // SAFETY: error entries may be zero; a place for one, and for words.
        unsafe {
            let mut error: fi_eq_err_entry = zeroed();
            let len = size_of::<fi_eq_err_entry>() as isize;
            assert_eq!(call!(eq, ops, readerr, &raw mut error, FI_PEEK.into()), len, "not taken");
            assert_eq!(call!(eq, ops, readerr, &raw mut error, 0), len);
            assert_eq!((error.fid, error.context, error.data), (av.cast(), context, failed));
            assert_eq!((error.err, error.err_data_size), (FI_EINVAL as c_int, 0));
            let mut text = [1 as c_char; 12];
            let words = call!(eq, ops, strerror, error.prov_errno, null_mut(), text.as_mut_ptr(), 12);
            assert!(CStr::from_ptr(words).to_bytes().starts_with(b"an argument"));
            assert_eq!(CStr::from_ptr(text.as_ptr()), c"an argument");
        }
    }
    assert_eq!(read(eq, 0), Ok((FI_AV_COMPLETE, words(av.cast(), context, 2))));
    assert_eq!(read(eq, 0), Err(AGAIN));
    assert_eq!((close(av), close(eq)), (0, 0));
}

/// A `struct fi_eq_entry`.
fn words(fid: *mut fid, context: *mut c_void, data: u64) -> Vec<u8> {
    [fid as u64, context as u64, data].map(u64::to_ne_bytes).as_flattened().to_vec()
}

#[test]
fn registrations_report_to_the_event_queue() {
    let n = nodes(1, &Options::default());
    let eq = open(&n[0].home, FI_WAIT_UNSPEC, 0).expect("an event queue");
    let memory = [0; 8];
    assert_eq!(bind(n[0].home.domain, eq, 1), -(FI_EBADFLAGS as c_int));
    assert_eq!(bind(n[0].home.domain, null_mut::<fid>(), 0), -(FI_EINVAL as c_int));
    assert_eq!(bind(n[0].home.domain, n[0].rx, 0), -(FI_EINVAL as c_int), "no event queue");
    assert_eq!(bind(n[0].home.domain, eq, 0), 0);
    let quiet = n[0].register(&memory, FI_REMOTE_READ, 1).expect("registered");
    assert_eq!(read(eq, 0), Err(AGAIN));
    assert_eq!(bind(n[0].home.domain, eq, FI_REG_MR), 0);
    let mr = n[0].register(&memory, FI_REMOTE_READ, 2).expect("registered");
    assert_eq!(read(eq, 0), Ok((FI_MR_COMPLETE, words(mr.cast(), null_mut(), 0))));
    assert!(n[0].register(&memory, FI_REMOTE_READ, 2).is_err(), "the key is in use");
    assert_eq!(read(eq, 0), Err(AGAIN), "what fails at once is not reported");
    assert_eq!((close(mr), close(quiet)), (0, 0));
    assert_eq!(close(eq), -(FI_EBUSY as c_int), "it is bound");
    let home = std::rc::Rc::clone(&n[0].home);
    drop(n);
    // The fabric and the domain close first, then the queue.
    let (domain, fabric) = (home.domain, home.fabric);
    std::mem::forget(home);
    assert_eq!((close(domain), close(fabric)), (0, -(FI_EBUSY as c_int)));
    assert_eq!((close(eq), close(fabric)), (0, 0));
}
