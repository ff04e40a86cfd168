//! Counters.

use core::ffi::{c_int, c_void};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::device::resource::completion::CompletionCounter;
use crate::device::wait::idle::Idle;

use super::domain::OfiDomain;
use super::failed;
use super::no::NOTHING;
use super::object::{Hold, OfiObject, Users, close, hand_out, header};
use super::sys::*;
use super::wait::{AwaitedEvents, WaitDescriptor, is_offered, wait_object};

#[repr(C)]
pub struct Cntr {
    fid: fid_cntr,
    pub domain: *const OfiDomain,
    pub counter: Rc<CompletionCounter>,
    idle: RefCell<Idle>,
    /// Counts at the last read: successes, errors.
    seen: Rc<Cell<(u64, u64)>>,
    listener: Option<Rc<WaitDescriptor>>,
    /// The endpoints that it is bound to.
    pub users: Users,
    _domain: Hold,
}

impl OfiObject for Cntr {
    fn users(&self) -> &Users {
        &self.users
    }
}

static FID: fi_ops = fi_ops { close: Some(close::<Cntr>), control: Some(control), ..NOTHING };

static OPS: fi_ops_cntr = fi_ops_cntr {
    size: size_of::<fi_ops_cntr>(),
    read: Some(read),
    readerr: Some(readerr),
    add: Some(add),
    set: Some(set),
    wait: Some(wait),
    adderr: Some(adderr),
    seterr: Some(seterr),
};

pub unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_cntr_attr,
    cntr: *mut *mut fid_cntr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: `fi_cntr(3)`: the caller passes valid attributes, or null.
    let attr = unsafe { attr.as_ref() };
    if cntr.is_null() || attr.is_some_and(|attr| attr.events != FI_CNTR_EVENTS_COMP) {
        return failed(FI_EINVAL);
    }
    if attr.is_some_and(|attr| attr.flags != 0) {
        return failed(FI_EBADFLAGS);
    }
    let wait = attr.map_or(FI_WAIT_NONE, |attr| attr.wait_obj);
    let Some(listens) = is_offered(wait) else { return failed(FI_ENOSYS) };
    let domain: *const OfiDomain = domain.cast();
    let (counter, seen) = (Rc::<CompletionCounter>::default(), Rc::default());
    let news = || AwaitedEvents::Count(Rc::clone(&counter), Rc::clone(&seen));
    // SAFETY: `fi_cntr(3)`: the caller passes an open domain.
    let listener = match unsafe { (*domain).listener(listens, news) } {
        Ok(listener) => listener,
        Err(errno) => return -errno,
    };
    // SAFETY: `fi_cntr(3)`: the caller passes an open domain; it is closed by `close` alone.
    let hold = unsafe { (*domain).users.hold() };
    let object = Cntr {
        fid: fid_cntr { fid: header(FI_CLASS_CNTR, context, &FID), ops: (&raw const OPS).cast_mut() },
        domain,
        counter,
        idle: RefCell::default(),
        seen,
        listener,
        users: Users::default(),
        _domain: hold,
    };
    // SAFETY: `fi_cntr(3)`: the caller passes a place for the answer.
    unsafe { hand_out(object, cntr) };
    0
}

impl Drop for Cntr {
    fn drop(&mut self) {
        // SAFETY: the domain outlives its queues and counters.
        unsafe { &*self.domain }.forget(self.listener.as_ref());
    }
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: `fi_cntr(3)`: the argument is what the command says.
    unsafe {
        wait_object((*fid.cast::<Cntr>()).listener.as_deref().map(WaitDescriptor::descriptor), command, arg)
    }
}

/// Returns whether the counter is as it was at the last read, so that one may sleep on
/// the wait object.
pub unsafe fn may_wait(fid: *mut fid) -> bool {
    // SAFETY: `fi_cntr(3)` (objects): the caller passes an open counter; its domain outlives it.
    let (cntr, domain) = unsafe { (&*fid.cast::<Cntr>(), &*(*fid.cast::<Cntr>()).domain) };
    let _guard = domain.enter();
    match &cntr.listener {
        Some(listener) => domain.may_wait(listener),
        None => {
            domain.progress();
            cntr.now() == cntr.seen.get()
        }
    }
}

impl Cntr {
    fn now(&self) -> (u64, u64) {
        (self.counter.value.get(), self.counter.errors.get())
    }

    /// Changes the counter by hand, and wakes its waiters.
    unsafe fn change(cntr: *mut fid_cntr, how: impl FnOnce(&CompletionCounter)) -> c_int {
        // SAFETY: `fi_cntr(3)` (objects): the caller passes an open counter; its domain outlives
        // it.
        let (cntr, domain) = unsafe { (&*cntr.cast::<Cntr>(), &*(*cntr.cast::<Cntr>()).domain) };
        let _guard = domain.enter();
        how(&cntr.counter);
        domain.wake();
        0
    }
}

unsafe extern "C" fn read(cntr: *mut fid_cntr) -> u64 {
    // SAFETY: `fi_cntr(3)` (objects): the caller passes an open counter; its domain outlives it.
    let (cntr, domain) = unsafe { (&*cntr.cast::<Cntr>(), &*(*cntr.cast::<Cntr>()).domain) };
    let mut guard = domain.enter();
    let before = cntr.counter.value.get();
    if domain.counter_read_finds_nothing() {
        cntr.seen.set((before, cntr.seen.get().1));
        return before;
    }
    let is_vain = domain.progress() == 0 && cntr.counter.value.get() == before;
    if is_vain {
        guard = domain.pause(guard, &cntr.idle, None, || cntr.counter.value.get() != before);
    }
    let (value, _) = cntr.now();
    cntr.seen.set((value, cntr.seen.get().1));
    if !is_vain || value != before {
        cntr.idle.borrow_mut().on_completion(|| domain.activity());
    }
    if value != before {
        domain.on_completion();
    }
    drop(guard);
    value
}

unsafe extern "C" fn readerr(cntr: *mut fid_cntr) -> u64 {
    // SAFETY: `fi_cntr(3)` (objects): the caller passes an open counter; its domain outlives it.
    let (cntr, domain) = unsafe { (&*cntr.cast::<Cntr>(), &*(*cntr.cast::<Cntr>()).domain) };
    let _guard = domain.enter();
    let (_, errors) = cntr.now();
    cntr.seen.set((cntr.seen.get().0, errors));
    errors
}

unsafe extern "C" fn add(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: `fi_cntr(3)` (objects): the caller passes an open counter; its domain outlives it.
    unsafe { Cntr::change(cntr, |counter| counter.value.set(counter.value.get().wrapping_add(value))) }
}

unsafe extern "C" fn set(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: `fi_cntr(3)` (objects): the caller passes an open counter; its domain outlives it.
    unsafe { Cntr::change(cntr, |counter| counter.value.set(value)) }
}

unsafe extern "C" fn adderr(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: `fi_cntr(3)` (objects): the caller passes an open counter; its domain outlives it.
    unsafe { Cntr::change(cntr, |counter| counter.errors.set(counter.errors.get().wrapping_add(value))) }
}

unsafe extern "C" fn seterr(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: `fi_cntr(3)` (objects): the caller passes an open counter; its domain outlives it.
    unsafe { Cntr::change(cntr, |counter| counter.errors.set(value)) }
}

unsafe extern "C" fn wait(cntr: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int {
    // SAFETY: `fi_cntr(3)` (objects): the caller passes an open counter; its domain outlives it.
    let (cntr, domain) = unsafe { (&*cntr.cast::<Cntr>(), &*(*cntr.cast::<Cntr>()).domain) };
    let guard = domain.enter();
    let errors = cntr.counter.errors.get();
    let over = || cntr.counter.value.get() >= threshold || cntr.counter.errors.get() != errors;
    let (_guard, done) = domain.wait(guard, &cntr.idle, timeout, over);
    cntr.seen.set(cntr.now());
    match done {
        false => failed(FI_ETIMEDOUT),
        true if cntr.counter.errors.get() != errors => -(FI_EAVAIL as c_int),
        true => 0,
    }
}
