//! Counters.

use core::ffi::{c_int, c_void};
use std::cell::RefCell;
use std::rc::Rc;

use crate::engine::completion::Counter;
use crate::engine::life::Idle;

use super::domain::Domain;
use super::failed;
use super::no::NOTHING;
use super::object::{close, hand_out, header};
use super::sys::*;

#[repr(C)]
pub struct Cntr {
    fid: fid_cntr,
    domain: *const Domain,
    pub counter: Rc<Counter>,
    idle: RefCell<Idle>,
}

static FID: fi_ops = fi_ops { close: Some(close::<Cntr>), ..NOTHING };

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
    _attr: *mut fi_cntr_attr,
    cntr: *mut *mut fid_cntr,
    context: *mut c_void,
) -> c_int {
    let object = Cntr {
        fid: fid_cntr { fid: header(FI_CLASS_CNTR, context, &FID), ops: (&raw const OPS).cast_mut() },
        domain: domain.cast(),
        counter: Rc::default(),
        idle: RefCell::default(),
    };
    // SAFETY: libfabric's contract: a place for the answer.
    unsafe { hand_out(object, cntr) };
    0
}

unsafe extern "C" fn read(cntr: *mut fid_cntr) -> u64 {
    // SAFETY: libfabric's contract.
    let (cntr, domain) = unsafe { (&*cntr.cast::<Cntr>(), &*(*cntr.cast::<Cntr>()).domain) };
    let guard = domain.enter();
    let before = cntr.counter.value.get();
    if domain.progress() > 0 || cntr.counter.value.get() != before {
        cntr.idle.borrow_mut().reset();
    } else {
        drop(domain.pause(guard, &cntr.idle, None, || cntr.counter.value.get() != before));
    }
    cntr.counter.value.get()
}

unsafe extern "C" fn readerr(cntr: *mut fid_cntr) -> u64 {
    // SAFETY: libfabric's contract.
    let (cntr, domain) = unsafe { (&*cntr.cast::<Cntr>(), &*(*cntr.cast::<Cntr>()).domain) };
    let _guard = domain.enter();
    cntr.counter.errors.get()
}

unsafe extern "C" fn add(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: libfabric's contract.
    let counter = unsafe { &(*cntr.cast::<Cntr>()).counter };
    counter.value.set(counter.value.get().wrapping_add(value));
    0
}

unsafe extern "C" fn set(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: libfabric's contract.
    unsafe { &(*cntr.cast::<Cntr>()).counter }.value.set(value);
    0
}

unsafe extern "C" fn adderr(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: libfabric's contract.
    let counter = unsafe { &(*cntr.cast::<Cntr>()).counter };
    counter.errors.set(counter.errors.get().wrapping_add(value));
    0
}

unsafe extern "C" fn seterr(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: libfabric's contract.
    unsafe { &(*cntr.cast::<Cntr>()).counter }.errors.set(value);
    0
}

unsafe extern "C" fn wait(cntr: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int {
    // SAFETY: libfabric's contract.
    let (cntr, domain) = unsafe { (&*cntr.cast::<Cntr>(), &*(*cntr.cast::<Cntr>()).domain) };
    let errors = cntr.counter.errors.get();
    let over = || cntr.counter.value.get() >= threshold || cntr.counter.errors.get() != errors;
    let (_guard, done) = domain.wait(domain.enter(), &cntr.idle, timeout, over);
    match done {
        false => failed(FI_ETIMEDOUT),
        true if cntr.counter.errors.get() != errors => -(FI_EAVAIL as c_int),
        true => 0,
    }
}
