//! Event queues. Events come from programs (`fi_eq_write`), from insertions into address
//! vectors that were opened with `FI_EVENT`, and from registrations of memory where the domain was
//! bound with `FI_REG_MR`.
//!
//! A queue belongs to a fabric, so it has a lock of its own. It grows as long as events come: it
//! has no size beyond which it would be overrun.

use core::ffi::{c_char, c_int, c_void};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::fabric::Fabric;
use super::failed;
use super::no::NOTHING;
use super::object::{Hold, OfiObject, Users, close, hand_out, header};
use super::sys::*;
use super::wait::{Bit, is_offered, wait_object};

/// The longest event that a program can write, in bytes.
const LONGEST: usize = 1 << 16;

/// An event as its reader gets it.
struct QueueEvent {
    kind: u32,
    bytes: Box<[u8]>,
}

/// An operation that failed.
#[derive(Clone, Copy)]
pub struct EqFailure {
    /// The object that it was about.
    pub fid: *mut fid,
    /// Its context.
    pub context: *mut c_void,
    /// Index of the part that failed.
    pub data: u64,
    /// libfabric's number.
    pub error: u32,
}

#[derive(Default)]
struct QueueEvents {
    good: VecDeque<QueueEvent>,
    bad: VecDeque<EqFailure>,
}

impl QueueEvents {
    fn is_empty(&self) -> bool {
        self.good.is_empty() && self.bad.is_empty()
    }
}

#[repr(C)]
pub struct Eq {
    fid: fid_eq,
    events: Mutex<QueueEvents>,
    came: Condvar,
    /// A descriptor for waiters: readable while there are events.
    readable: Option<Bit>,
    /// True if programs may write events.
    is_written: bool,
    pub users: Users,
    _fabric: Hold,
}

impl OfiObject for Eq {
    fn users(&self) -> &Users {
        &self.users
    }
}

static FID: fi_ops = fi_ops { close: Some(close::<Eq>), control: Some(control), ..NOTHING };

static OPS: fi_ops_eq = fi_ops_eq {
    size: size_of::<fi_ops_eq>(),
    read: Some(read),
    readerr: Some(readerr),
    write: Some(write),
    sread: Some(sread),
    strerror: Some(strerror),
};

pub unsafe extern "C" fn open(
    fabric: *mut fid_fabric,
    attr: *mut fi_eq_attr,
    eq: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: `fi_eq(3)`: the caller passes an open fabric; the attributes are null or valid.
    unsafe {
        if eq.is_null() {
            return failed(FI_EINVAL);
        }
        let (flags, wait) = attr.as_ref().map_or((0, FI_WAIT_NONE), |attr| (attr.flags, attr.wait_obj));
        if flags & !u64::from(FI_WRITE | FI_AFFINITY) != 0 {
            return failed(FI_EBADFLAGS);
        }
        let Some(on_descriptor) = is_offered(wait) else { return failed(FI_ENOSYS) };
        let readable = match on_descriptor.then(Bit::new).transpose() {
            Ok(readable) => readable,
            Err(why) => return -why.raw_os_error().unwrap_or(libc::EIO),
        };
        let object = Eq {
            fid: fid_eq { fid: header(FI_CLASS_EQ, context, &FID), ops: (&raw const OPS).cast_mut() },
            events: Mutex::default(),
            came: Condvar::new(),
            readable,
            is_written: flags & u64::from(FI_WRITE) != 0,
            users: Users::default(),
            _fabric: Fabric::hold(fabric),
        };
        hand_out(object, eq);
    }
    0
}

impl Eq {
    /// The queue behind a pointer, which may be null.
    ///
    /// # Safety
    ///
    /// It is null, or points to an open object.
    pub unsafe fn of<'a>(object: *mut fid) -> Option<&'a Eq> {
        // SAFETY: the caller's promise; the class says what it is.
        unsafe {
            let is_one = object.as_ref()?.fclass == FI_CLASS_EQ as usize;
            is_one.then(|| &*object.cast::<Eq>())
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueEvents> {
        // A thread that panicked has ended the process.
        self.events.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn changed(&self, events: MutexGuard<'_, QueueEvents>) {
        if let Some(readable) = &self.readable {
            readable.set(!events.is_empty());
        }
        drop(events);
        self.came.notify_all();
    }

    fn add(&self, kind: u32, bytes: &[u8]) {
        let mut events = self.lock();
        events.good.push_back(QueueEvent { kind, bytes: bytes.into() });
        self.changed(events);
    }

    /// An operation has ended.
    pub fn report(&self, kind: u32, fid: *mut fid, context: *mut c_void, data: u64) {
        let words = [fid as u64, context as u64, data].map(u64::to_ne_bytes);
        const { assert!(size_of::<fi_eq_entry>() == 3 * size_of::<u64>()) };
        self.add(kind, words.as_flattened());
    }

    /// An operation, or a part of it, has failed.
    pub fn report_failure(&self, failure: EqFailure) {
        let mut events = self.lock();
        events.bad.push_back(failure);
        self.changed(events);
    }

    /// True if there is nothing to be read.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Gives the next event, if it is there.
    unsafe fn give(
        &self,
        mut events: MutexGuard<'_, QueueEvents>,
        event: *mut u32,
        buf: *mut c_void,
        len: usize,
        flags: u64,
    ) -> isize {
        if !events.bad.is_empty() {
            return -(FI_EAVAIL as isize);
        }
        let Some(next) = events.good.front() else { return failed(FI_EAGAIN) as isize };
        let n = next.bytes.len();
        if len < n {
            return -(FI_ETOOSMALL as isize);
        }
        // SAFETY: `fi_eq(3)`: the caller passes a place for the kind, and as many bytes of space.
        unsafe {
            event.write(next.kind);
            core::ptr::copy_nonoverlapping(next.bytes.as_ptr(), buf.cast(), n);
        }
        if flags & u64::from(FI_PEEK) == 0 {
            events.good.pop_front();
            self.changed(events);
        }
        n as isize
    }
}

/// Error for arguments that make no sense for a read.
fn refused(event: *mut u32, buf: *mut c_void, flags: u64) -> Option<isize> {
    if event.is_null() || buf.is_null() {
        return Some(failed(FI_EINVAL) as isize);
    }
    (flags & !u64::from(FI_PEEK) != 0).then_some(failed(FI_EBADFLAGS) as isize)
}

unsafe extern "C" fn read(
    eq: *mut fid_eq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    flags: u64,
) -> isize {
    if let Some(error) = refused(event, buf, flags) {
        return error;
    }
    // SAFETY: `fi_eq(3)`: the caller passes an open queue, and space, here and below.
    unsafe {
        let eq = &*eq.cast::<Eq>();
        eq.give(eq.lock(), event, buf, len, flags)
    }
}

unsafe extern "C" fn sread(
    eq: *mut fid_eq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    if let Some(error) = refused(event, buf, flags) {
        return error;
    }
    // SAFETY: `fi_eq(3)` (objects): the caller passes an open event queue.
    let eq = unsafe { &*eq.cast::<Eq>() };
    // No timeout: for ever.
    let end = u64::try_from(timeout).ok().map(|ms| Instant::now() + Duration::from_millis(ms));
    let mut events = eq.lock();
    while events.is_empty() {
        events = match end.map(|end| end.saturating_duration_since(Instant::now())) {
            None => eq.came.wait(events).unwrap_or_else(|e| e.into_inner()),
            Some(Duration::ZERO) => break,
            Some(left) => eq.came.wait_timeout(events, left).unwrap_or_else(|e| e.into_inner()).0,
        };
    }
    // SAFETY: `fi_eq(3)` (results): `event` and `len` bytes at `buf` are writable.
    unsafe { eq.give(events, event, buf, len, flags) }
}

unsafe extern "C" fn readerr(eq: *mut fid_eq, entry: *mut fi_eq_err_entry, flags: u64) -> isize {
    // SAFETY: `fi_eq(3)` (objects): the caller passes an open event queue.
    let eq = unsafe { &*eq.cast::<Eq>() };
    if entry.is_null() {
        return failed(FI_EINVAL) as isize;
    }
    let mut events = eq.lock();
    let Some(&EqFailure { fid, context, data, error }) = events.bad.front() else {
        return failed(FI_EAGAIN) as isize;
    };
    let (err, err_data) = (error as c_int, core::ptr::null_mut());
    let failure = fi_eq_err_entry { fid, context, data, err, prov_errno: err, err_data, err_data_size: 0 };
    // SAFETY: `fi_eq(3)`: the caller passes a place for an entry.
    unsafe { entry.write(failure) };
    if flags & u64::from(FI_PEEK) == 0 {
        events.bad.pop_front();
        eq.changed(events);
    }
    size_of::<fi_eq_err_entry>() as isize
}

unsafe extern "C" fn write(eq: *mut fid_eq, event: u32, buf: *const c_void, len: usize, flags: u64) -> isize {
    // SAFETY: `fi_eq(3)` (objects): the caller passes an open event queue.
    let eq = unsafe { &*eq.cast::<Eq>() };
    if !eq.is_written || buf.is_null() || len == 0 {
        return failed(FI_EINVAL) as isize;
    }
    if flags != 0 {
        return failed(FI_EBADFLAGS) as isize;
    }
    if len > LONGEST {
        return failed(FI_EMSGSIZE) as isize;
    }
    // SAFETY: `fi_eq(3)`: the caller passes as many bytes.
    eq.add(event, unsafe { core::slice::from_raw_parts(buf.cast(), len) });
    len as isize
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: `fi_eq(3)`: the caller passes an open queue; the argument is what the command says.
    unsafe {
        let readable = (*fid.cast::<Eq>()).readable.as_ref();
        wait_object(readable.map(Bit::descriptor), command, arg)
    }
}

unsafe extern "C" fn strerror(
    _eq: *mut fid_eq,
    prov_errno: c_int,
    _data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: `fi_eq(3)`: the caller passes `len` bytes of space, or none.
    unsafe { super::explain(prov_errno, buf, len) }
}
