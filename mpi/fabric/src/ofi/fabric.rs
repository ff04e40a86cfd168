//! `fi_prov_ini`, and the fabric object.

use core::ffi::{c_char, c_int, c_void};

use super::no::{NOTHING, no};
use super::object::{Hold, OfiObject, Users, close, hand_out, header};
use super::sys::*;
use super::{attributes, domain, eq, failed, info};

/// The largest API version that a program may ask for: the core passes over providers
/// that say less than it wants, and we use nothing that newer versions changed.
const API: u32 = 2 << 16 | 99;

struct StaticProvider(core::cell::UnsafeCell<fi_provider>);

// SAFETY: not written here after it was made; the core, which alone gets the pointer, keeps
// its own order.
unsafe impl Sync for StaticProvider {}

static PROVIDER: StaticProvider = StaticProvider(core::cell::UnsafeCell::new(fi_provider {
    version: attributes::VERSION,
    fi_version: API,
    context: fi_context { internal: [core::ptr::null_mut(); 4] },
    name: attributes::NAME.as_ptr(),
    getinfo: Some(info::getinfo),
    fabric: Some(open),
    cleanup: Some(cleanup),
}));

/// Entry point that libfabric's core looks up in a provider's library.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut fi_provider {
    PROVIDER.0.get()
}

unsafe extern "C" fn cleanup() {}

#[repr(C)]
pub struct Fabric {
    fid: fid_fabric,
    users: Users,
}

impl OfiObject for Fabric {
    fn users(&self) -> &Users {
        &self.users
    }
}

impl Fabric {
    /// A use of the fabric behind a pointer.
    ///
    /// # Safety
    ///
    /// It is one.
    pub unsafe fn hold(fabric: *mut fid_fabric) -> Hold {
        // SAFETY: the caller's promise; it is closed by `close` alone.
        unsafe { (*fabric.cast::<Fabric>()).users.hold() }
    }
}

static FID: fi_ops = fi_ops { close: Some(close::<Fabric>), ..NOTHING };

static OPS: fi_ops_fabric = fi_ops_fabric {
    size: size_of::<fi_ops_fabric>(),
    domain: Some(domain::open),
    passive_ep: no(),
    eq_open: Some(eq::open),
    wait_open: no(),
    trywait: Some(trywait),
    domain2: no(),
};

unsafe extern "C" fn open(
    attr: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    // SAFETY: `fi_fabric(3)`: both pointers are valid, or null.
    unsafe {
        if attr.is_null() || fabric.is_null() {
            return failed(FI_EINVAL);
        }
        let name = (*attr).name;
        if !name.is_null() && core::ffi::CStr::from_ptr(name as *const c_char) != attributes::FABRIC {
            return failed(FI_ENODATA);
        }
        let object = Fabric {
            fid: fid_fabric {
                fid: header(FI_CLASS_FABRIC, context, &FID),
                ops: (&raw const OPS).cast_mut(),
                api_version: (*attr).api_version,
            },
            users: Users::default(),
        };
        hand_out(object, fabric);
    }
    0
}

/// Returns whether the caller may sleep on these wait objects: not while there is
/// something to read.
unsafe extern "C" fn trywait(_fabric: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int {
    if fids.is_null() && count > 0 {
        return failed(FI_EINVAL);
    }
    for i in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: `fi_fabric(3)`: the caller passes as many pointers to open objects.
        let fid = unsafe { *fids.add(i) };
        if fid.is_null() {
            return failed(FI_EINVAL);
        }
        // SAFETY: `fi_fabric(3)` (objects): the pointer is not null, so to an open object, which
        // begins with its header.
        let class = unsafe { (*fid).fclass };
        let may = match class as u32 {
            // SAFETY: the class says that it is one.
            FI_CLASS_CQ => unsafe { super::cq::may_wait(fid) },
            // SAFETY: the class says that it is one.
            FI_CLASS_CNTR => unsafe { super::cntr::may_wait(fid) },
            // SAFETY: the class says that it is one.
            FI_CLASS_EQ => unsafe { eq::Eq::of(fid) }.is_none_or(eq::Eq::is_empty),
            _ => return failed(FI_EINVAL),
        };
        if !may {
            return failed(FI_EAGAIN);
        }
    }
    0
}
