//! Memory registration: a key and a region. Nothing is pinned, so it costs next to nothing, and local buffers need none.

use core::ffi::{c_int, c_void};

use crate::engine::memory::Region;

use super::domain::Domain;
use super::failed;
use super::no::NOTHING;
use super::object::{Hold, Object, Users, close, hand_out, header};
use super::sys::*;

#[repr(C)]
struct Mr {
    fid: fid_mr,
    domain: *const Domain,
    users: Users,
    _domain: Hold,
}

impl Object for Mr {
    fn users(&self) -> &Users {
        &self.users
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: the domain outlives its regions.
        let domain = unsafe { &*self.domain };
        let _guard = domain.enter();
        domain.regions.remove(self.fid.key);
    }
}

static FID: fi_ops = fi_ops { close: Some(close::<Mr>), bind: Some(bind), control: Some(control), ..NOTHING };

/// A domain's.
pub static OPS: fi_ops_mr =
    fi_ops_mr { size: size_of::<fi_ops_mr>(), reg: Some(reg), regv: Some(regv), regattr: Some(regattr) };

unsafe fn register(
    domain: *mut fid,
    piece: (usize, usize),
    access: u64,
    offset: u64,
    key: u64,
    mr: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's contract: registered on the domain itself (endpoints are not asked for: FI_MR_ENDPOINT is not in the mode).
    unsafe {
        if (*domain).fclass != FI_CLASS_DOMAIN as usize {
            return failed(FI_ENOSYS);
        }
        let domain: *const Domain = domain.cast();
        let _guard = (*domain).enter();
        let all =
            access & (FI_REMOTE_READ | FI_REMOTE_WRITE | FI_SEND | FI_RECV | FI_READ | FI_WRITE) as u64 == 0;
        let region = Region {
            base: piece.0,
            len: piece.1,
            first: offset,
            readable: all || access & FI_REMOTE_READ as u64 != 0,
            writable: all || access & FI_REMOTE_WRITE as u64 != 0,
        };
        if !(*domain).regions.add(key, region) {
            return failed(FI_ENOKEY_);
        }
        let object = Mr {
            fid: fid_mr { fid: header(FI_CLASS_MR, context, &FID), mem_desc: core::ptr::null_mut(), key },
            domain,
            users: Users::default(),
            _domain: (*domain).users.hold(),
        };
        hand_out(object, mr);
    }
    0
}

/// The key is in use.
const FI_ENOKEY_: u32 = 266;

unsafe extern "C" fn reg(
    fid: *mut fid,
    buf: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    _flags: u64,
    mr: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's contract.
    unsafe { register(fid, (buf as usize, len), access, offset, requested_key, mr, context) }
}

unsafe extern "C" fn regv(
    fid: *mut fid,
    iov: *const iovec,
    count: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    _flags: u64,
    mr: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    if count != 1 {
        return failed(FI_EINVAL);
    }
    // SAFETY: libfabric's contract: one piece.
    unsafe {
        let piece = ((*iov).iov_base as usize, (*iov).iov_len);
        register(fid, piece, access, offset, requested_key, mr, context)
    }
}

unsafe extern "C" fn regattr(
    fid: *mut fid,
    attr: *const fi_mr_attr,
    _flags: u64,
    mr: *mut *mut fid_mr,
) -> c_int {
    // SAFETY: libfabric's contract.
    unsafe {
        let attr = &*attr;
        if attr.iov_count != 1 {
            return failed(FI_EINVAL);
        }
        let piece = ((*attr.mr_iov).iov_base as usize, (*attr.mr_iov).iov_len);
        register(fid, piece, attr.access, attr.offset, attr.requested_key, mr, attr.context)
    }
}

/// To an endpoint or a counter: nothing depends on it.
unsafe extern "C" fn bind(_fid: *mut fid, _other: *mut fid, _flags: u64) -> c_int {
    0
}

unsafe extern "C" fn control(_fid: *mut fid, command: c_int, _arg: *mut c_void) -> c_int {
    if command == FI_ENABLE as c_int { 0 } else { failed(FI_ENOSYS) }
}
