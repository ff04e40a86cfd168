//! Memory registration: a key and a region. Nothing is pinned, so it costs next to
//! nothing, and local buffers need none.

use core::ffi::{c_int, c_void};
use std::cell::RefCell;

use crate::device::rma::regions::Region;

use super::cntr::Cntr;
use super::domain::OfiDomain;
use super::failed;
use super::no::NOTHING;
use super::object::{Hold, OfiObject, Users, close, hand_out, header};
use super::sys::*;

#[repr(C)]
struct Mr {
    fid: fid_mr,
    domain: *const OfiDomain,
    /// The counters that are bound to it.
    counters: RefCell<Vec<Hold>>,
    users: Users,
    _domain: Hold,
}

impl OfiObject for Mr {
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

/// The memory to register, and its access.
struct Registration {
    /// Address and length.
    piece: (usize, usize),
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    context: *mut c_void,
}

/// The access flags that a registration may have.
const ACCESS: u64 = (FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE) as u64;

unsafe fn register(domain: *mut fid, what: Registration, mr: *mut *mut fid_mr) -> c_int {
    let Registration { piece, access, offset, key, flags, context } = what;
    if mr.is_null() || piece.0.checked_add(piece.1).is_none() {
        return failed(FI_EINVAL);
    }
    // Counters can be bound to any region.
    if flags & !FI_RMA_EVENT != 0 {
        return failed(FI_EBADFLAGS);
    }
    // SAFETY: `fi_mr(3)`: the caller registers on the domain itself (endpoints are not asked for:
    // FI_MR_ENDPOINT is not in the mode).
    unsafe {
        if (*domain).fclass != FI_CLASS_DOMAIN as usize {
            return failed(FI_ENOSYS);
        }
        let domain: *const OfiDomain = domain.cast();
        let _guard = (*domain).enter();
        let all = access & ACCESS == 0;
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
            counters: RefCell::default(),
            users: Users::default(),
            _domain: (*domain).users.hold(),
        };
        hand_out(object, mr);
        if let Some(queue) = *(*domain).registrations.borrow() {
            (*queue).report(FI_MR_COMPLETE, (*mr).cast(), context, 0);
        }
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
    flags: u64,
    mr: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    let piece = (buf as usize, len);
    // SAFETY: `fi_mr(3)` (objects, buffers, arrays, results), as `register` has it.
    unsafe { register(fid, Registration { piece, access, offset, key: requested_key, flags, context }, mr) }
}

/// The one piece of a region.
unsafe fn only(iov: *const iovec, count: usize) -> Option<(usize, usize)> {
    // SAFETY: `fi_mr(3)`: the caller passes as many pieces, or none.
    unsafe { iov.as_ref() }.filter(|_| count == 1).map(|piece| (piece.iov_base as usize, piece.iov_len))
}

unsafe extern "C" fn regv(
    fid: *mut fid,
    iov: *const iovec,
    count: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    mr: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: `fi_mr(3)` (objects, buffers, arrays, results), as `register` has it.
    unsafe {
        let Some(piece) = only(iov, count) else { return failed(FI_EINVAL) };
        register(fid, Registration { piece, access, offset, key: requested_key, flags, context }, mr)
    }
}

unsafe extern "C" fn regattr(
    fid: *mut fid,
    attr: *const fi_mr_attr,
    flags: u64,
    mr: *mut *mut fid_mr,
) -> c_int {
    // SAFETY: `fi_mr(3)`: the caller passes valid attributes, or null.
    unsafe {
        let Some(attr) = attr.as_ref() else { return failed(FI_EINVAL) };
        let Some(piece) = only(attr.mr_iov, attr.iov_count) else { return failed(FI_EINVAL) };
        let (access, offset, key, context) = (attr.access, attr.offset, attr.requested_key, attr.context);
        register(fid, Registration { piece, access, offset, key, flags, context }, mr)
    }
}

/// Binds a region to a counter, which then counts peers' operations on it, or to an
/// endpoint, which changes nothing.
unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    const READS: u64 = FI_REMOTE_READ as u64;
    const WRITES: u64 = FI_REMOTE_WRITE as u64;
    // SAFETY: `fi_mr(3)`: the caller passes open objects, or null; the class says what it is.
    unsafe {
        let mr = &*fid.cast::<Mr>();
        let domain = &*mr.domain;
        match other.as_ref().map(|other| other.fclass as u32) {
            Some(FI_CLASS_EP) if flags == 0 => 0,
            Some(FI_CLASS_CNTR) if flags & !(READS | WRITES) != 0 || flags == 0 => failed(FI_EBADFLAGS),
            Some(FI_CLASS_CNTR) => {
                let cntr = &*other.cast::<Cntr>();
                if cntr.domain != mr.domain {
                    return failed(FI_EDOMAIN);
                }
                let _guard = domain.enter();
                let (reads, writes) = (flags & READS != 0, flags & WRITES != 0);
                if !domain.regions.bind(mr.fid.key, &cntr.counter, reads, writes) {
                    return failed(FI_EINVAL);
                }
                mr.counters.borrow_mut().push(cntr.users.hold());
                0
            }
            _ => failed(FI_EINVAL),
        }
    }
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    match command as u32 {
        // Enabled from the first, and never in need of being looked at again.
        FI_ENABLE | FI_REFRESH => 0,
        FI_GET_RAW_MR => {
            // SAFETY: `fi_mr(3)`: the caller passes the argument of this command, with as much
            // space as it says.
            unsafe {
                let Some(raw) = arg.cast::<fi_mr_raw_attr>().as_ref() else { return failed(FI_EINVAL) };
                let key = (*fid.cast::<Mr>()).fid.key;
                let Some(size) = raw.key_size.as_mut() else { return failed(FI_EINVAL) };
                let space = core::mem::replace(size, size_of::<u64>());
                if space < size_of::<u64>() || raw.raw_key.is_null() {
                    return -(FI_ETOOSMALL as c_int);
                }
                raw.raw_key.cast::<u64>().write_unaligned(key);
                if let Some(base) = raw.base_addr.as_mut() {
                    *base = 0;
                }
            }
            0
        }
        _ => failed(FI_ENOSYS),
    }
}
