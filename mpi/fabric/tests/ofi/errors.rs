//! Refusals: hints that can't be met, arguments that make no sense, messages that don't
//! fit, objects that are still needed.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::null_mut;

use super::support::*;
use sys::*;

const BUSY: c_int = -(FI_EBUSY as c_int);
const NOT_OFFERED: c_int = -(FI_ENOSYS as c_int);

/// A change of hints for the worse, and its name.
type Change = (&'static str, fn(&mut Parts<'_>));

/// Hints by their parts.
struct Parts<'a> {
    whole: &'a mut fi_info,
    ep: &'a mut fi_ep_attr,
    domain: &'a mut fi_domain_attr,
    fabric: &'a mut fi_fabric_attr,
    tx: &'a mut fi_tx_attr,
    rx: &'a mut fi_rx_attr,
}

/// A name that libfabric frees with the hints.
fn copied(name: &CStr) -> *mut c_char {
    // SAFETY: a string.
    unsafe { libc::strdup(name.as_ptr()) }
}

#[test]
fn hints_that_cannot_be_met_find_no_provider() {
    let changes: [Change; 29] = [
        ("capabilities", |h| h.whole.caps |= FI_COLLECTIVE_),
        ("a format of addresses", |h| h.whole.addr_format = FI_SOCKADDR_IN),
        ("connections", |h| h.ep.type_ = FI_EP_MSG),
        ("several contexts", |h| h.ep.tx_ctx_cnt = 2),
        ("a protocol", |h| h.ep.protocol = FI_PROTO_RXM),
        ("longer messages", |h| h.ep.max_msg_size = usize::MAX),
        ("automatic progress", |h| h.domain.data_progress = FI_PROGRESS_AUTO),
        ("automatic control progress", |h| h.domain.control_progress = FI_PROGRESS_AUTO),
        ("more data", |h| h.domain.cq_data_size = 9),
        ("longer keys", |h| h.domain.mr_key_size = 9),
        ("more to inject", |h| h.tx.inject_size = 1 << 20),
        ("more pieces", |h| h.tx.iov_limit = 9),
        ("more pieces received", |h| h.rx.iov_limit = 9),
        ("another order", |h| h.rx.msg_order = 1 << 40),
        ("another version of the protocol", |h| h.ep.protocol_version = 2),
        ("a prefix", |h| h.ep.msg_prefix_size = 8),
        ("longer writes in order after reads", |h| h.ep.max_order_war_size = usize::MAX),
        ("a key of the endpoint", |h| h.ep.auth_key_size = 8),
        ("a key of the domain", |h| h.domain.auth_key_size = 8),
        ("another fabric", |h| h.fabric.name = copied(c"another")),
        ("another domain", |h| h.domain.name = copied(c"another")),
        ("a model of threads", |h| h.domain.threading = 77),
        ("a type of address vectors", |h| h.domain.av_type = 77),
        ("basic registration", |h| h.domain.mr_mode = FI_MR_BASIC as c_int),
        ("regions of several pieces", |h| h.domain.mr_iov_limit = 2),
        ("shared contexts", |h| h.domain.max_ep_srx_ctx = 1),
        ("data with errors", |h| h.domain.max_err_data = 1),
        ("sends reported in order", |h| h.tx.comp_order = FI_ORDER_STRICT.into()),
        ("receives reported in order", |h| h.rx.comp_order = FI_ORDER_STRICT.into()),
    ];
    for (what, change) in changes {
        let asked = Info::asked(|hints| {
            let (ep, domain, tx, rx) = (hints.ep_attr, hints.domain_attr, hints.tx_attr, hints.rx_attr);
            let fabric = hints.fabric_attr;
            // SAFETY: libfabric made hints with all their parts, and no other code has them.
            unsafe {
                change(&mut Parts {
                    whole: hints,
                    ep: &mut *ep,
                    domain: &mut *domain,
                    fabric: &mut *fabric,
                    tx: &mut *tx,
                    rx: &mut *rx,
                })
            };
        });
        assert_eq!(asked.err(), Some(-(FI_ENODATA as c_int)), "{what}");
    }
}

/// A capability that providers of this kind don't have.
const FI_COLLECTIVE_: u64 = 1 << 6;

#[test]
fn what_is_asked_for_is_what_is_given() {
    for version in [1 << 16 | 5, 1 << 16 | 9, 1 << 16 | 17] {
        let info = Info::asked_as(version, |hints| {
            hints.caps = u64::from(FI_TAGGED | FI_RMA);
            // SAFETY: hints have all their parts.
            unsafe {
                (*hints.domain_attr).threading = FI_THREAD_DOMAIN;
                (*hints.domain_attr).av_type = FI_AV_MAP;
                (*hints.tx_attr).size = 100_000;
                (*hints.tx_attr).inject_size = 100;
                (*hints.domain_attr).cq_cnt = 5000;
            }
        });
        let info = info.expect("offered");
        // SAFETY: libfabric filled in all parts.
        unsafe {
            let i = &*info.0;
            let primary = u64::from(FI_TAGGED | FI_RMA | FI_MSG | FI_ATOMIC);
            assert_eq!(i.caps & primary, u64::from(FI_TAGGED | FI_RMA), "no more than that");
            assert_ne!(i.caps & u64::from(FI_REMOTE_WRITE), 0, "what it implies");
            assert_eq!((*i.domain_attr).threading, FI_THREAD_DOMAIN);
            assert_eq!((*i.domain_attr).av_type, FI_AV_MAP);
            assert!((*i.tx_attr).size >= 100_000 && (*i.tx_attr).inject_size >= 100);
            assert_eq!(((*i.domain_attr).mr_mode, (*i.domain_attr).cq_cnt), (0, 5000));
            assert_eq!(CStr::from_ptr((*i.fabric_attr).prov_name).to_str(), Ok("towpath"));
        }
    }
}

#[test]
fn provider_shows_itself_to_a_caller_that_only_looks() {
    let info = Info::named(None, None, FI_PROV_ATTR_ONLY, |_| {}).expect("offered");
    // All providers show themselves, usable or not.
    let (mut next, mut versions) = (info.0, Vec::new());
    // SAFETY: libfabric filled in this part of each.
    while let Some(info) = unsafe { next.as_ref() } {
        // SAFETY: each has a fabric's attributes, with a name that ends with zero.
        unsafe {
            let fabric = &*info.fabric_attr;
            if CStr::from_ptr(fabric.prov_name) == c"towpath" {
                versions.push(fabric.prov_version);
            }
        }
        next = info.next;
    }
    assert_eq!(versions, [1 << 16]);
}

#[test]
fn messages_that_are_too_long_are_cut_and_said_so() {
    let n = nodes(2, &Options::default());
    for len in [8, 300, 20_000, 1 << 20] {
        for early in [true, false] {
            for tag in [None, Some((1, 0))] {
                let (bytes, mut into) = (pattern(len, 9), vec![0; len - 5]);
                let receive = |into: &mut [u8]| assert_eq!(n[1].receive(n[1].peers[0], tag, into, 7), 0);
                if early {
                    receive(&mut into);
                }
                start(&n, || n[0].send(n[0].peers[1], tag.map(|t| t.0), &bytes, 8));
                if !early {
                    settle(&n);
                    receive(&mut into);
                }
                let report = received(&n, 1);
                assert_eq!((report.context, report.error), (7, FI_ETRUNC as i32));
                assert_eq!((report.len, report.excess), (len - 5, 5));
                assert!(into == bytes[..len - 5]);
                assert_eq!((sent(&n, 0).error, n[0].errors(FI_SEND)), (0, 0));
            }
        }
    }
    assert_eq!(n[1].errors(FI_RECV), 16);
    nothing_more(&n);
}

#[test]
fn an_error_stands_in_its_place_until_it_is_read() {
    let n = nodes(2, &Options::default());
    let mut into = [[0u8; 8]; 3];
    for (i, into) in into.iter_mut().enumerate() {
        let len = if i == 1 { 4 } else { 8 };
        assert_eq!(n[1].receive(ANY, None, &mut into[..len], i), 0);
    }
    for _ in 0..3 {
        start(&n, || n[0].send(n[0].peers[1], None, &[1; 8], 1));
    }
    settle(&n);
    let mut entries = [[0u64; 6]; 3];
    let at = entries.as_mut_ptr().cast();
    // SAFETY: space for three entries of the longest format; error entries may be zero.
    unsafe {
        assert_eq!(call!(n[1].rx, ops, read, at, 3), 1, "what came before the error");
        for _ in 0..2 {
            assert_eq!(call!(n[1].rx, ops, read, at, 3), -(FI_EAVAIL as isize));
        }
        let mut error: fi_cq_err_entry = core::mem::zeroed();
        assert_eq!(call!(n[1].rx, ops, readerr, &raw mut error, 0), 1);
        assert_eq!((error.op_context as usize, error.err), (1, FI_ETRUNC as c_int));
        assert_eq!(call!(n[1].rx, ops, readerr, &raw mut error, 0), AGAIN);
        let mut text = [1 as c_char; 8];
        let words = call!(n[1].rx, ops, strerror, error.prov_errno, null_mut(), text.as_mut_ptr(), 8);
        assert!(CStr::from_ptr(words).to_bytes().starts_with(b"the message was longer"));
        assert_eq!(CStr::from_ptr(text.as_ptr()).to_bytes(), b"the mes", "cut to its space");
        assert_eq!(call!(n[1].rx, ops, read, at, 3), 1, "what came after it");
    }
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let n = nodes(1, &Options::default());
    let mut into = [0u8; 8];
    assert_eq!(n[0].send(77, Some(1), &[1], 1), INVALID);
    assert_eq!(n[0].send(ANY, Some(1), &[1], 1), INVALID);
    assert_eq!(n[0].receive(77, Some((1, 0)), &mut into, 1), INVALID);
    assert_eq!(n[0].insert(&[7; NAME]), None, "no address");
    // Options: of the endpoint, of enough bytes, and that one alone.
    let ep: *mut fid = n[0].ep.cast();
    let (level, name) = (FI_OPT_ENDPOINT as c_int, FI_OPT_MIN_MULTI_RECV as c_int);
    let (mut value, mut len) = (9usize, 4usize);
    let at = (&raw mut value).cast();
    // SAFETY: an open endpoint, and a value of at least the length that is said.
    unsafe {
        let ops = &*(*n[0].ep).ops;
        let (set, get) = (ops.setopt.unwrap(), ops.getopt.unwrap());
        assert_eq!(set(ep, level, name, at, 4), -(FI_EINVAL as c_int));
        assert_eq!(get(ep, level, name, at, &raw mut len), -(FI_ETOOSMALL as c_int));
        assert_eq!(set(ep, level, 99, at, 8), -libc::ENOPROTOOPT);
        assert_eq!(get(ep, 99, name, at, &raw mut len), -libc::ENOPROTOOPT);
        let mut short = [0u8; 8];
        let mut len = short.len();
        let getname = (*(*n[0].ep).cm).getname.unwrap();
        assert_eq!(getname(ep, short.as_mut_ptr().cast(), &raw mut len), -(FI_ETOOSMALL as c_int));
        assert_eq!((len, &short[..]), (NAME, &n[0].name()[..8]));
        len = 0;
        assert_eq!(getname(ep, null_mut(), &raw mut len), -(FI_ETOOSMALL as c_int));
        assert_eq!(len, NAME);
    }
    assert_eq!(bind(n[0].ep, n[0].home.domain, 0), -(FI_EINVAL as c_int), "no queue, counter or vector");
    // A name of a shared vector.
    // SAFETY: attributes may be zero; a place for the answer.
    unsafe {
        let mut attr: fi_av_attr = core::mem::zeroed();
        attr.name = c"shared".as_ptr();
        let mut av = null_mut();
        assert_eq!(
            call!(n[0].home.domain, ops, av_open, &raw mut attr, &raw mut av, null_mut()),
            NOT_OFFERED
        );
    }
}

#[test]
fn what_is_not_offered_says_so() {
    let n = nodes(1, &Options::default());
    let (domain, info) = (n[0].home.domain, n[0].home.info.0);
    let mut made = null_mut();
    // SAFETY: open objects; nothing is made.
    unsafe {
        assert_eq!(call!(domain, ops, scalable_ep, info, &raw mut made, null_mut()), NOT_OFFERED);
        let mut poll = null_mut();
        assert_eq!(call!(domain, ops, poll_open, null_mut(), &raw mut poll), NOT_OFFERED);
        let mut pep = null_mut();
        assert_eq!(call!(n[0].home.fabric, ops, passive_ep, info, &raw mut pep, null_mut()), NOT_OFFERED);
        let connect = (*(*n[0].ep).cm).connect.unwrap();
        assert_eq!(connect(n[0].ep, null_mut(), null_mut(), 0), NOT_OFFERED);
        assert_eq!(control(n[0].ep, 4711, null_mut()), NOT_OFFERED);
    }
}

#[test]
fn what_is_needed_is_not_closed() {
    let options = Options::default();
    let home = Home::new(&options);
    let node = Node::new(&home, &options);
    // Bound to an endpoint.
    assert_eq!((close(node.tx), close(node.rx), close(node.av)), (BUSY, BUSY, BUSY));
    assert_eq!(close(node.counters[0]), BUSY);
    // Opened on a domain, and on a fabric.
    assert_eq!((close(home.domain), close(home.fabric)), (BUSY, BUSY));
    let mr = node.register(&[0; 8], FI_REMOTE_READ, 3).expect("registered");
    drop(node);
    assert_eq!(close(home.domain), BUSY, "memory is registered");
    assert_eq!(close(mr), 0);
    let cq = open_cq(&home, FI_CQ_FORMAT_MSG, FI_WAIT_FD).expect("a queue");
    assert_eq!(close(home.domain), BUSY);
    assert_eq!(close(cq), 0);
    let counter = open_counter(&home, FI_WAIT_NONE);
    assert_eq!(close(home.domain), BUSY);
    assert_eq!(close(counter), 0);
    let mut eq = null_mut();
    // SAFETY: a null attribute is none; a place for the answer.
    unsafe { assert_eq!(call!(home.fabric, ops, eq_open, null_mut(), &raw mut eq, null_mut()), 0) };
    assert_eq!(close(home.fabric), BUSY);
    assert_eq!(close(eq), 0);
    // The rest is closed by `Home`, which asserts that it can be.
}

#[test]
fn endpoint_that_closes_says_good_bye() {
    let options = Options::default();
    let mut n = nodes(2, &options);
    let mut into = [0u8; 8];
    // Earlier messages arrive, also the long part of one that its receiver has asked for; then
    // nothing can be sent there.
    start(&n, || n[1].send(n[1].peers[0], Some(1), &[4; 8], 1));
    assert_eq!(sent(&n, 1).error, 0);
    drop(n.pop());
    assert_eq!(n[0].receive(n[0].peers[1], Some((1, 0)), &mut into, 2), 0);
    assert_eq!((received(&n, 0).error, into), (0, [4; 8]));
    let bytes = [1; 8];
    let refused = until(&n, || match n[0].send(n[0].peers[1], Some(1), &bytes, 1) {
        0 | AGAIN => None,
        n => Some(n),
    });
    assert_eq!(refused, -(libc::EHOSTUNREACH as isize));
    while let Some(report) = n[0].take(n[0].tx) {
        assert!(report.error == 0 || report.error == libc::EHOSTUNREACH);
    }
    // A rendezvous whose receiver goes without having asked for it ends with an error.
    let mut n = nodes(2, &options);
    let long = vec![0; 1 << 20];
    start(&n, || n[0].send(n[0].peers[1], Some(1), &long, 5));
    settle(&n);
    drop(n.pop());
    let report = sent(&n, 0);
    assert_eq!((report.context, report.error), (5, libc::EHOSTUNREACH));
}
