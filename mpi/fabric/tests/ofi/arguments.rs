//! Arguments that are missing, in every public call that can see it: an error, and never
//! a signal.

use std::ffi::{c_char, c_int, c_void};
use std::mem::zeroed;
use std::ptr::{null, null_mut};

use super::support::*;
use sys::*;

const INVALID_: c_int = -(FI_EINVAL as c_int);
const TOO_LONG: isize = -(FI_EMSGSIZE as isize);
const BAD_FLAGS: isize = -(FI_EBADFLAGS as isize);

#[test]
fn objects_without_attributes_or_places_are_refused() {
    let n = nodes(1, &Options::default());
    let (domain, fabric, info, c) = (n[0].home.domain, n[0].home.fabric, n[0].home.info.0, null_mut());
    // SAFETY: open objects; what is missing is not touched, and nothing is made.
    unsafe {
        let mut made = null_mut();
        assert_eq!(call!(fabric, ops, domain, null_mut(), &raw mut made, c), INVALID_);
        assert_eq!(call!(fabric, ops, domain, info, null_mut(), c), INVALID_);
        let mut ep = null_mut();
        assert_eq!(call!(domain, ops, endpoint, null_mut(), &raw mut ep, c), INVALID_);
        assert_eq!(call!(domain, ops, endpoint, info, null_mut(), c), INVALID_);
        assert_eq!(call!(domain, ops, cq_open, null_mut(), null_mut(), c), INVALID_);
        assert_eq!(call!(domain, ops, cntr_open, null_mut(), null_mut(), c), INVALID_);
        assert_eq!(call!(domain, ops, av_open, null_mut(), null_mut(), c), INVALID_);
        assert_eq!(call!(fabric, ops, trywait, null_mut(), 1), INVALID_);
        let mut none: [*mut fid; 1] = [null_mut()];
        assert_eq!(call!(fabric, ops, trywait, none.as_mut_ptr(), 1), INVALID_);
        assert_eq!(call!(fabric, ops, trywait, null_mut(), 0), 0, "nothing is asked for");
    }
}

#[test]
fn attributes_that_make_no_sense_are_refused() {
    let n = nodes(1, &Options::default());
    let (domain, c) = (n[0].home.domain, null_mut());
    let cq = |change: fn(&mut fi_cq_attr)| {
        let mut made = null_mut();
        // SAFETY: attributes may be zero; an open domain, and a place for the answer.
        unsafe {
            let mut attr: fi_cq_attr = zeroed();
            change(&mut attr);
            call!(domain, ops, cq_open, &raw mut attr, &raw mut made, c) as isize
        }
    };
    assert_eq!(cq(|attr| attr.format = 77), INVALID);
    assert_eq!(cq(|attr| attr.wait_cond = 77), INVALID);
    assert_eq!(cq(|attr| attr.wait_obj = 77), -(FI_ENOSYS as isize));
    assert_eq!(cq(|attr| attr.flags = FI_PEER), BAD_FLAGS, "another provider's queue");
    let counter = |change: fn(&mut fi_cntr_attr)| {
        let mut made = null_mut();
        // SAFETY: attributes may be zero; an open domain, and a place for the answer.
        unsafe {
            let mut attr: fi_cntr_attr = zeroed();
            change(&mut attr);
            call!(domain, ops, cntr_open, &raw mut attr, &raw mut made, c) as isize
        }
    };
    assert_eq!(counter(|attr| attr.events = 1), INVALID);
    assert_eq!(counter(|attr| attr.flags = 1), BAD_FLAGS);
    let av = |change: fn(&mut fi_av_attr)| {
        let mut made = null_mut();
        // SAFETY: attributes may be zero; an open domain, and a place for the answer.
        unsafe {
            let mut attr: fi_av_attr = zeroed();
            change(&mut attr);
            call!(domain, ops, av_open, &raw mut attr, &raw mut made, c) as isize
        }
    };
    assert_eq!(av(|attr| attr.type_ = 77), INVALID);
    assert_eq!(av(|attr| attr.flags = FI_READ.into()), BAD_FLAGS, "to be read only, and not shared");
}

#[test]
fn missing_addresses_are_refused() {
    let n = nodes(1, &Options::default());
    let (av, c) = (n[0].av, null_mut());
    let (name, mut number, mut len) = (n[0].name(), 0, NAME);
    let at = name.as_ptr().cast::<c_void>();
    let mut text = [1 as c_char; 8];
    // SAFETY: open objects; what is missing is not touched.
    unsafe {
        assert_eq!(call!(av, ops, insert, null(), 1, &raw mut number, 0, c), INVALID_);
        assert_eq!(call!(av, ops, insert, null(), 0, null_mut(), 0, c), 0, "none is asked for");
        assert_eq!(call!(av, ops, insert, at, usize::MAX, &raw mut number, 0, c), INVALID_);
        assert_eq!(call!(av, ops, insert, at, 1, null_mut(), FI_SYNC_ERR_, c), 1, "places may be missing");
        let user_id = call!(av, ops, insert, at, 1, &raw mut number, FI_AV_USER_ID, c);
        assert_eq!(user_id as isize, BAD_FLAGS);
        assert_eq!(call!(av, ops, insertsvc, null(), null(), &raw mut number, 0, c), INVALID_);
        assert_eq!(call!(av, ops, remove, null_mut(), 1, 0), INVALID_);
        assert_eq!(call!(av, ops, remove, null_mut(), 0, 0), 0);
        assert_eq!(call!(av, ops, remove, &raw mut number, 1, 1) as isize, BAD_FLAGS);
        assert_eq!(call!(av, ops, lookup, 0, null_mut(), &raw mut len), INVALID_);
        assert_eq!(call!(av, ops, lookup, 0, text.as_mut_ptr().cast(), null_mut()), INVALID_);
        len = 0;
        assert_eq!((call!(av, ops, lookup, 0, null_mut(), &raw mut len), len), (0, NAME), "how long is it?");
        assert!(call!(av, ops, straddr, null(), text.as_mut_ptr(), &raw mut len).is_null());
        assert!(call!(av, ops, straddr, at, text.as_mut_ptr(), null_mut()).is_null());
        len = 8;
        assert!(call!(av, ops, straddr, at, null_mut(), &raw mut len).is_null());
        assert_eq!(
            call!(av, ops, straddr, [7u8; NAME].as_ptr().cast(), text.as_mut_ptr(), &raw mut len),
            text.as_ptr()
        );
        assert_eq!(text, *b"towpath\0".map(|byte| byte as c_char).first_chunk().expect("eight"));
        let getname = (*(*n[0].ep).cm).getname.expect("no table has holes");
        assert_eq!(getname(n[0].ep.cast(), text.as_mut_ptr().cast(), null_mut()), INVALID_);
    }
    assert_eq!(bind(av, null_mut::<fid>(), 0), INVALID_);
    assert_eq!(bind(av, n[0].rx, 0), INVALID_, "no event queue");
}

const FI_SYNC_ERR_: u64 = 1 << 58;

#[test]
fn queues_without_places_keep_their_reports() {
    let n = nodes(1, &Options::default());
    let rx = n[0].rx;
    let mut into = [0; 4];
    let mut number = ANY;
    for has_report in [false, true] {
        if has_report {
            assert_eq!(n[0].receive(ANY, Some((1, 0)), &mut into, 5), 0);
            start(&n, || n[0].send(n[0].peers[0], Some(1), &[1; 4], 6));
            until(&n, || n[0].has_report(rx).then_some(()));
        }
        // SAFETY: an open queue; what is missing is not touched.
        unsafe {
            assert_eq!(call!(rx, ops, read, null_mut(), 1), INVALID);
            assert_eq!(call!(rx, ops, readfrom, null_mut(), 1, &raw mut number), INVALID);
            assert_eq!(call!(rx, ops, sread, null_mut(), 1, null(), 0), INVALID);
            assert_eq!(call!(rx, ops, read, null_mut(), 0), AGAIN, "only progress is asked for");
            assert_eq!(call!(rx, ops, readerr, null_mut(), 0), INVALID);
            assert!(!call!(rx, ops, strerror, 265, null(), null_mut(), 0).is_null());
            assert_eq!(control(rx, FI_GETWAIT, null_mut()), INVALID_);
            assert_eq!(control(n[0].counters[0], FI_GETWAIT, null_mut()), INVALID_);
        }
    }
    assert_eq!(received(&n, 0).context, 5);
}

#[test]
fn messages_without_memory_are_refused() {
    let n = nodes(1, &Options::default());
    let (ep, to, d, c, bytes) = (n[0].ep, n[0].peers[0], null_mut(), null_mut(), [1u8; 8]);
    let at = bytes.as_ptr().cast::<c_void>();
    let nowhere = [iovec { iov_base: null_mut(), iov_len: 8 }];
    let huge = usize::MAX >> 1;
    // SAFETY: an open endpoint; what is missing is not touched.
    unsafe {
        for (len, error) in [(8, INVALID), (huge, INVALID)] {
            assert_eq!(call!(ep, msg, send, null(), len, d, to, c), error);
            assert_eq!(call!(ep, msg, recv, null_mut(), len, d, to, c), error);
            assert_eq!(call!(ep, msg, inject, null(), len, to), error);
            assert_eq!(call!(ep, msg, senddata, null(), len, d, 1, to, c), error);
            assert_eq!(call!(ep, tagged, send, null(), len, d, to, 1, c), error);
            assert_eq!(call!(ep, tagged, recv, null_mut(), len, d, to, 1, 0, c), error);
            assert_eq!(call!(ep, tagged, inject, null(), len, to, 1), error);
        }
        assert_eq!(call!(ep, msg, send, at, huge, d, to, c), TOO_LONG);
        assert_eq!(call!(ep, tagged, send, at, huge, d, to, 1, c), TOO_LONG);
        for iov in [null(), nowhere.as_ptr()] {
            assert_eq!(call!(ep, msg, sendv, iov, null_mut(), 1, to, c), INVALID);
            assert_eq!(call!(ep, msg, recvv, iov, null_mut(), 1, to, c), INVALID);
            assert_eq!(call!(ep, tagged, sendv, iov, null_mut(), 1, to, 1, c), INVALID);
            assert_eq!(call!(ep, tagged, recvv, iov, null_mut(), 1, to, 1, 0, c), INVALID);
            assert_eq!(call!(ep, msg, sendv, iov, null_mut(), usize::MAX, to, c), INVALID);
        }
        assert_eq!(call!(ep, msg, sendmsg, null(), 0), INVALID);
        assert_eq!(call!(ep, msg, recvmsg, null(), 0), INVALID);
        assert_eq!(call!(ep, tagged, sendmsg, null(), 0), INVALID);
        assert_eq!(call!(ep, tagged, recvmsg, null(), 0), INVALID);
    }
    // Flags that no operation keeps are not promised.
    for flag in [FI_FENCE, FI_MULTICAST, FI_COMMIT_COMPLETE, FI_TRIGGER] {
        assert_eq!(n[0].send_message(to, Some(1), &[&bytes], 0, 1, flag.into()), BAD_FLAGS);
    }
    // Nothing needs no place.
    let mut entry = [0u64; 6];
    // SAFETY: open endpoints and queues; messages of no bytes touch no memory; space for an entry.
    unsafe {
        assert_eq!(call!(ep, tagged, recv, null_mut(), 0, d, to, 1, 0, c), 0);
        start(&n, || call!(ep, tagged, send, null(), 0, d, to, 1, c));
        until(&n, || (call!(n[0].rx, ops, read, entry.as_mut_ptr().cast(), 1) == 1).then_some(()));
    }
    assert_eq!(sent(&n, 0).error, 0);
    nothing_more(&n);
}

#[test]
fn one_sided_operations_without_memory_are_refused() {
    let n = nodes(1, &Options::default());
    let (ep, to, d, c, key) = (n[0].ep, n[0].peers[0], null_mut(), null_mut(), 3);
    let mut value = 7u64;
    let at = (&raw mut value).cast::<c_void>();
    // SAFETY: an open endpoint; messages may be zero; what is missing is not touched.
    unsafe {
        assert_eq!(call!(ep, rma, read, null_mut(), 8, d, to, 0, key, c), INVALID);
        assert_eq!(call!(ep, rma, write, null(), 8, d, to, 0, key, c), INVALID);
        assert_eq!(call!(ep, rma, inject, null(), 8, to, 0, key), INVALID);
        assert_eq!(call!(ep, rma, readv, null(), null_mut(), 1, to, 0, key, c), INVALID);
        assert_eq!(call!(ep, rma, writev, null(), null_mut(), 1, to, 0, key, c), INVALID);
        assert_eq!(call!(ep, rma, read, at, usize::MAX >> 1, d, to, 0, key, c), TOO_LONG);
        assert_eq!(call!(ep, rma, write, at, usize::MAX >> 1, d, to, 0, key, c), TOO_LONG);
        assert_eq!(call!(ep, rma, readmsg, null(), 0), INVALID);
        assert_eq!(call!(ep, rma, writemsg, null(), 0), INVALID);
        let mut rma: fi_msg_rma = zeroed();
        (rma.addr, rma.rma_iov_count) = (to, 1);
        assert_eq!(call!(ep, rma, writemsg, &raw const rma, 0), INVALID, "no remote piece");
        let (of, op, r) = (FI_UINT64, FI_SUM, null_mut());
        assert_eq!(call!(ep, atomic, write, null(), 1, d, to, 0, key, of, op, c), INVALID);
        assert_eq!(call!(ep, atomic, write, at, 0, d, to, 0, key, of, op, c), INVALID, "no element");
        assert_eq!(call!(ep, atomic, inject, null(), 1, to, 0, key, of, op), INVALID);
        assert_eq!(call!(ep, atomic, writev, null(), null_mut(), 1, to, 0, key, of, op, c), INVALID);
        assert_eq!(call!(ep, atomic, writev, null(), null_mut(), usize::MAX, to, 0, key, of, op, c), INVALID);
        assert_eq!(call!(ep, atomic, readwrite, at, 1, d, null_mut(), r, to, 0, key, of, op, c), INVALID);
        let swap = FI_CSWAP;
        assert_eq!(
            call!(ep, atomic, compwrite, at, 1, d, null(), r, at, r, to, 0, key, of, swap, c),
            INVALID
        );
        assert_eq!(call!(ep, atomic, writemsg, null(), 0), INVALID);
        let mut atomic: fi_msg_atomic = zeroed();
        (atomic.addr, atomic.rma_iov_count, atomic.datatype, atomic.op) = (to, 1, of, op);
        assert_eq!(call!(ep, atomic, writemsg, &raw const atomic, 0), INVALID, "no remote piece");
        let tagged = call!(ep, atomic, writemsg, &raw const atomic, FI_TAGGED.into());
        assert_eq!(tagged, -(FI_EOPNOTSUPP as isize), "on a tagged receive's buffer");
        let fetch_and_compare = 3 << 58;
        assert_eq!(
            call!(n[0].home.domain, ops, query_atomic, of, op, null_mut(), fetch_and_compare),
            INVALID_
        );
        let tagged = call!(n[0].home.domain, ops, query_atomic, of, op, null_mut(), FI_TAGGED.into());
        assert_eq!(tagged, -(FI_EOPNOTSUPP as c_int));
    }
    nothing_more(&n);
}

#[test]
fn registrations_without_memory_are_refused() {
    let n = nodes(1, &Options::default());
    let (domain, c): (*mut fid, *mut c_void) = (n[0].home.domain.cast(), null_mut());
    let (bytes, mut mr) = ([0u8; 8], null_mut());
    let at = bytes.as_ptr().cast::<c_void>();
    // SAFETY: an open domain; what is missing is not touched.
    unsafe {
        let fi_ops_mr { reg, regv, regattr, .. } = *(*n[0].home.domain).mr;
        let (reg, regv, regattr) = (reg.unwrap(), regv.unwrap(), regattr.unwrap());
        assert_eq!(reg(domain, at, 8, 0, 0, 1, 0, null_mut(), c), INVALID_);
        assert_eq!(reg(domain, at, usize::MAX, 0, 0, 1, 0, &raw mut mr, c), INVALID_, "beyond the end");
        assert_eq!(reg(domain, at, 8, 0, 0, 1, FI_RMA_PMEM, &raw mut mr, c) as isize, BAD_FLAGS);
        assert_eq!(regv(domain, null(), 1, 0, 0, 1, 0, &raw mut mr, c), INVALID_);
        assert_eq!(regattr(domain, null(), 0, &raw mut mr), INVALID_);
        let mut attr: fi_mr_attr = zeroed();
        attr.iov_count = 1;
        assert_eq!(regattr(domain, &raw const attr, 0, &raw mut mr), INVALID_);
        assert_eq!(control(n[0].home.domain, FI_MAP_RAW_MR, null_mut()), INVALID_);
    }
    let mr = n[0].register(&bytes, FI_REMOTE_READ, 1).expect("registered");
    // SAFETY: an open registration.
    assert_eq!(unsafe { control(mr, FI_GET_RAW_MR, null_mut()) }, INVALID_);
    assert_eq!(bind(mr, null_mut::<fid>(), FI_REMOTE_WRITE.into()), INVALID_);
    assert_eq!(bind(mr, n[0].rx, 0), INVALID_, "no counter");
    assert_eq!(close(mr), 0);
}

#[test]
fn endpoint_calls_without_arguments_are_refused() {
    let n = nodes(1, &Options::default());
    let ep: *mut fid = n[0].ep.cast();
    let (level, name) = (FI_OPT_ENDPOINT as c_int, FI_OPT_MIN_MULTI_RECV as c_int);
    let (mut value, mut len) = (9usize, 8usize);
    // SAFETY: an open endpoint; what is missing is not touched.
    unsafe {
        let ops = &*(*n[0].ep).ops;
        let (set, get) = (ops.setopt.unwrap(), ops.getopt.unwrap());
        assert_eq!(set(ep, level, name, null(), 8), INVALID_);
        assert_eq!(get(ep, level, name, null_mut(), &raw mut len), INVALID_);
        assert_eq!(get(ep, level, name, (&raw mut value).cast(), null_mut()), INVALID_);
        for command in [FI_GETOPSFLAG, FI_SETOPSFLAG] {
            assert_eq!(control(n[0].ep, command, null_mut()), INVALID_);
            for neither in [0, u64::from(FI_SEND | FI_RECV)] {
                let mut flags = neither;
                assert_eq!(control(n[0].ep, command, (&raw mut flags).cast()), INVALID_);
            }
        }
        let mut flags = u64::from(FI_SEND | FI_FENCE);
        assert_eq!(control(n[0].ep, FI_SETOPSFLAG, (&raw mut flags).cast()) as isize, BAD_FLAGS);
        flags = u64::from(FI_SEND | FI_DELIVERY_COMPLETE);
        assert_eq!(control(n[0].ep, FI_SETOPSFLAG, (&raw mut flags).cast()), 0);
        flags = FI_SEND.into();
        assert_eq!(control(n[0].ep, FI_GETOPSFLAG, (&raw mut flags).cast()), 0);
        assert_eq!(flags, u64::from(FI_DELIVERY_COMPLETE));
    }
    assert_eq!(bind(n[0].ep, null_mut::<fid>(), 0), INVALID_);
}
