//! Event queues: there are none of their events here, but programs open and read them.

use core::ffi::{c_int, c_void};

use super::fabric::Fabric;
use super::failed;
use super::no::{NOTHING, no};
use super::object::{Hold, Object, Users, close, hand_out, header};
use super::sys::*;

#[repr(C)]
pub struct Eq {
    fid: fid_eq,
    pub users: Users,
    _fabric: Hold,
}

impl Object for Eq {
    fn users(&self) -> &Users {
        &self.users
    }
}

static FID: fi_ops = fi_ops { close: Some(close::<Eq>), ..NOTHING };

static OPS: fi_ops_eq = fi_ops_eq {
    size: size_of::<fi_ops_eq>(),
    read: Some(read),
    readerr: Some(readerr),
    write: no(),
    sread: Some(sread),
    strerror: no(),
};

pub unsafe extern "C" fn open(
    fabric: *mut fid_fabric,
    _attr: *mut fi_eq_attr,
    eq: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's contract: an open fabric, and a place for the answer.
    unsafe {
        let object = Eq {
            fid: fid_eq { fid: header(FI_CLASS_EQ, context, &FID), ops: (&raw const OPS).cast_mut() },
            users: Users::default(),
            _fabric: Fabric::hold(fabric),
        };
        hand_out(object, eq);
    }
    0
}

unsafe extern "C" fn read(_: *mut fid_eq, _: *mut u32, _: *mut c_void, _: usize, _: u64) -> isize {
    failed(FI_EAGAIN) as isize
}

unsafe extern "C" fn readerr(_: *mut fid_eq, _: *mut fi_eq_err_entry, _: u64) -> isize {
    failed(FI_EAGAIN) as isize
}

unsafe extern "C" fn sread(
    _: *mut fid_eq,
    _: *mut u32,
    _: *mut c_void,
    _: usize,
    timeout: c_int,
    _: u64,
) -> isize {
    // Nothing will come: the caller gets its time, in slices if it would wait for ever.
    let ms = u64::try_from(timeout).unwrap_or(10).min(10);
    std::thread::sleep(std::time::Duration::from_millis(ms));
    failed(FI_EAGAIN) as isize
}
