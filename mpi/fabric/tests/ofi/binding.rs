//! Bindings of an endpoint, and its behaviour before it is enabled.

use std::ffi::c_int;
use std::ptr::null_mut;

use super::support::*;
use sys::*;

const BAD_STATE: isize = -(FI_EOPBADSTATE as isize);

#[test]
fn endpoint_takes_no_operation_before_it_is_enabled() {
    let options = Options::default();
    let node = Node::bound(&Home::new(&options), &options);
    let number = node.insert(&node.name()).expect("an address");
    let (mut into, bytes, d, c) = ([0; 8], [1; 8], null_mut(), null_mut());
    assert_eq!(node.send(number, None, &bytes, 1), BAD_STATE);
    assert_eq!(node.send(number, Some(1), &bytes, 1), BAD_STATE);
    assert_eq!(node.receive(number, None, &mut into, 1), BAD_STATE);
    assert_eq!(node.receive(number, Some((1, 0)), &mut into, 1), BAD_STATE);
    // SAFETY: an open endpoint; nothing is started.
    unsafe {
        let at = bytes.as_ptr().cast();
        assert_eq!(call!(node.ep, rma, write, at, 8, d, number, 0, 1, c), BAD_STATE);
        assert_eq!(call!(node.ep, atomic, write, at, 1, d, number, 0, 1, FI_UINT64, FI_SUM, c), BAD_STATE);
        let mut count = 0;
        assert_eq!(call!(node.ep, atomic, writevalid, FI_UINT64, FI_SUM, &raw mut count), 0, "a question");
    }
    assert_eq!(node.enable(), 0);
    assert_eq!(node.receive(number, Some((1, 0)), &mut into, 1), 0);
    let n = [node];
    start(&n, || n[0].send(number, Some(1), &bytes, 2));
    assert_eq!((received(&n, 0).context, into), (1, bytes));
}

/// An endpoint of a domain, bound to nothing.
fn bare(home: &Home) -> *mut fid_ep {
    let mut ep = null_mut();
    // SAFETY: an open domain, its info, and a place for the answer.
    unsafe { assert_eq!(call!(home.domain, ops, endpoint, home.info.0, &raw mut ep, null_mut()), 0) };
    ep
}

#[test]
fn endpoint_without_vector_or_queue_is_not_enabled() {
    let home = Home::new(&Options::default());
    let ep = bare(&home);
    // SAFETY: an open endpoint; no argument.
    let enable = || unsafe { control(ep, FI_ENABLE, null_mut()) };
    let (av, cq) =
        (open_av(&home, FI_AV_TABLE), open_cq(&home, FI_CQ_FORMAT_MSG, FI_WAIT_NONE).expect("a queue"));
    assert_eq!(enable(), -(FI_ENOAV as c_int));
    assert_eq!(bind(ep, av, 0), 0);
    assert_eq!(enable(), -(FI_ENOCQ as c_int));
    assert_eq!(bind(ep, cq, u64::from(FI_SEND | FI_RECV)), 0);
    assert_eq!(enable(), 0);
    assert_eq!((close(ep), close(cq), close(av)), (0, 0, 0));
}

#[test]
fn endpoint_has_one_vector_and_one_queue_for_each_use() {
    const INVALID: c_int = -(FI_EINVAL as c_int);
    const DOMAIN: c_int = -(FI_EDOMAIN as c_int);
    let options = Options::default();
    let (home, other) = (Home::new(&options), Home::new(&options));
    let ep = bare(&home);
    let open = |home: &Home| {
        let cq = open_cq(home, FI_CQ_FORMAT_MSG, FI_WAIT_NONE).expect("a queue");
        (open_av(home, FI_AV_TABLE), cq, open_counter(home, FI_WAIT_NONE))
    };
    let (av, cq, counter) = open(&home);
    let (foreign_av, foreign_cq, foreign_counter) = open(&other);
    // Of another domain, which has a lock of its own.
    assert_eq!(bind(ep, foreign_av, 0), DOMAIN);
    assert_eq!(bind(ep, foreign_cq, FI_SEND.into()), DOMAIN);
    assert_eq!(bind(ep, foreign_counter, FI_SEND.into()), DOMAIN);
    // For nothing.
    assert_eq!(bind(ep, cq, FI_SELECTIVE_COMPLETION), INVALID);
    assert_eq!(bind(ep, counter, 0), INVALID);
    // Once, and again.
    for (first, expected) in [(true, 0), (false, INVALID)] {
        assert_eq!(bind(ep, av, 0), expected, "{first}");
        assert_eq!(bind(ep, cq, FI_SEND.into()), expected);
        assert_eq!(bind(ep, cq, FI_RECV.into()), expected);
        assert_eq!(bind(ep, counter, u64::from(FI_SEND | FI_READ)), expected);
        assert_eq!(bind(ep, counter, u64::from(FI_READ | FI_WRITE)), INVALID, "reads are counted");
    }
    assert_eq!(close(ep), 0);
    for (av, cq, counter) in [(av, cq, counter), (foreign_av, foreign_cq, foreign_counter)] {
        assert_eq!((close(av), close(cq), close(counter)), (0, 0, 0));
    }
}
