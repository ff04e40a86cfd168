//! Completion queues.

use core::ffi::{c_char, c_int, c_void};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::device::resource::completion::{Completion, CompletionQueue};
use crate::device::wait::idle::Idle;

use super::domain::OfiDomain;
use super::failed;
use super::no::NOTHING;
use super::object::{Hold, OfiObject, Users, close, hand_out, header};
use super::sys::*;
use super::wait::{AwaitedEvents, WaitDescriptor, is_offered, wait_object};

/// Number of completions from which on a read with room for them drains the queue. Such a
/// program reads until there are none (Open MPI: 100; MPICH has room for 8, reads once, and yields
/// if that was empty).
const DRAINS: usize = 32;

#[repr(C)]
pub struct Cq {
    fid: fid_cq,
    pub domain: *const OfiDomain,
    pub queue: Rc<CompletionQueue>,
    idle: RefCell<Idle>,
    format: fi_cq_format,
    signalled: Cell<bool>,
    /// Number of operations started when the last read, by a program that drains the
    /// queue, had emptied it.
    drained: Cell<Option<u64>>,
    /// Its descriptor, if it was opened for `FI_WAIT_FD`.
    listener: Option<Rc<WaitDescriptor>>,
    /// The endpoints that it is bound to.
    pub users: Users,
    _domain: Hold,
}

impl OfiObject for Cq {
    fn users(&self) -> &Users {
        &self.users
    }
}

static FID: fi_ops = fi_ops { close: Some(close::<Cq>), control: Some(control), ..NOTHING };

static OPS: fi_ops_cq = fi_ops_cq {
    size: size_of::<fi_ops_cq>(),
    read: Some(read),
    readfrom: Some(readfrom),
    readerr: Some(readerr),
    sread: Some(sread),
    sreadfrom: Some(sreadfrom),
    signal: Some(signal),
    strerror: Some(strerror),
};

pub unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_cq_attr,
    cq: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: `fi_cq(3)`: the caller passes an open domain; the rest is null or valid.
    unsafe {
        if cq.is_null() {
            return failed(FI_EINVAL);
        }
        let (mut format, mut listens) = (FI_CQ_FORMAT_TAGGED, false);
        if let Some(attr) = attr.as_mut() {
            let Some(on_descriptor) = is_offered(attr.wait_obj) else { return failed(FI_ENOSYS) };
            listens = on_descriptor;
            if attr.format > FI_CQ_FORMAT_TAGGED || attr.wait_cond > FI_CQ_COND_THRESHOLD {
                return failed(FI_EINVAL);
            }
            // Say, a queue of another provider's.
            if attr.flags & !u64::from(FI_AFFINITY) != 0 {
                return failed(FI_EBADFLAGS);
            }
            if attr.format == FI_CQ_FORMAT_UNSPEC {
                attr.format = FI_CQ_FORMAT_TAGGED;
            }
            format = attr.format;
        }
        let domain: *const OfiDomain = domain.cast();
        let queue: Rc<CompletionQueue> = Rc::default();
        let listener = match (*domain).listener(listens, || AwaitedEvents::Reports(Rc::clone(&queue))) {
            Ok(listener) => listener,
            Err(errno) => return -errno,
        };
        let object = Cq {
            fid: fid_cq { fid: header(FI_CLASS_CQ, context, &FID), ops: (&raw const OPS).cast_mut() },
            domain,
            queue,
            idle: RefCell::default(),
            format,
            signalled: Cell::new(false),
            drained: Cell::new(None),
            listener,
            users: Users::default(),
            _domain: (*domain).users.hold(),
        };
        hand_out(object, cq);
    }
    0
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: the domain outlives its queues and counters.
        unsafe { &*self.domain }.forget(self.listener.as_ref());
    }
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: `fi_cq(3)`: the argument is what the command says.
    unsafe {
        wait_object((*fid.cast::<Cq>()).listener.as_deref().map(WaitDescriptor::descriptor), command, arg)
    }
}

/// Returns whether the queue is empty, so that one may sleep on the wait object.
pub unsafe fn may_wait(fid: *mut fid) -> bool {
    // SAFETY: `fi_cq(3)` (objects): the caller passes an open completion queue; its domain outlives
    // it.
    let cq = unsafe { &*fid.cast::<Cq>() };
    // SAFETY: the domain outlives its queues.
    let domain = unsafe { &*cq.domain };
    let _guard = domain.enter();
    if cq.signalled.replace(false) {
        return false;
    }
    match &cq.listener {
        Some(listener) => domain.may_wait(listener),
        None => {
            domain.progress();
            cq.queue.is_empty()
        }
    }
}

impl Cq {
    /// Writes completions as the format has them. Returns how many, or an error.
    #[inline]
    unsafe fn give(&self, buf: *mut c_void, count: usize, sources: *mut fi_addr_t) -> isize {
        if buf.is_null() && count > 0 {
            return failed(FI_EINVAL) as isize;
        }
        let mut given = 0;
        while given < count {
            let Some(c) = self.queue.pop() else { break };
            // SAFETY: `fi_cq(3)`: the caller passes space for `count` entries of the format, and
            // for as many sources, or none.
            unsafe {
                self.write(buf, given, &c);
                if !sources.is_null() {
                    *sources.add(given) = c.source;
                }
            }
            given += 1;
        }
        match given {
            0 if self.queue.has_error() => -(FI_EAVAIL as isize),
            0 => -(FI_EAGAIN as isize),
            n => n as isize,
        }
    }

    #[inline(always)]
    unsafe fn write(&self, buf: *mut c_void, at: usize, c: &Completion) {
        let op_context = c.context as *mut c_void;
        let (flags, len, data) = (c.flags, c.len, c.data);
        // SAFETY: the caller's promise: room for an entry of this format at `at`.
        unsafe {
            match self.format {
                FI_CQ_FORMAT_CONTEXT => buf.cast::<fi_cq_entry>().add(at).write(fi_cq_entry { op_context }),
                FI_CQ_FORMAT_MSG => {
                    buf.cast::<fi_cq_msg_entry>().add(at).write(fi_cq_msg_entry { op_context, flags, len });
                }
                FI_CQ_FORMAT_DATA => {
                    let buffer = c.buffer as *mut c_void;
                    let entry = fi_cq_data_entry { op_context, flags, len, buf: buffer, data };
                    buf.cast::<fi_cq_data_entry>().add(at).write(entry);
                }
                _ => {
                    let buffer = c.buffer as *mut c_void;
                    let entry = fi_cq_tagged_entry { op_context, flags, len, buf: buffer, data, tag: c.tag };
                    buf.cast::<fi_cq_tagged_entry>().add(at).write(entry);
                }
            }
        }
    }
}

unsafe extern "C" fn read(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: `fi_cq(3)` (objects, results): the caller passes an open completion queue, and room
    // for `count` entries.
    unsafe { readfrom(cq, buf, count, core::ptr::null_mut()) }
}

unsafe extern "C" fn readfrom(
    cq: *mut fid_cq,
    buf: *mut c_void,
    count: usize,
    from: *mut fi_addr_t,
) -> isize {
    // SAFETY: `fi_cq(3)`: the caller passes an open completion queue; the domain outlives its
    // queues.
    let (cq, domain) = unsafe { (&*cq.cast::<Cq>(), &*(*cq.cast::<Cq>()).domain) };
    let mut guard = domain.enter();
    // The read that only finds out that this was all need not look: the program has been given
    // something, and goes on sooner.
    if cq.drained.take().is_some_and(|calls| calls == domain.activity().calls) && cq.queue.is_empty() {
        cq.idle.borrow_mut().on_drain_poll();
        return -(FI_EAGAIN as isize);
    }
    // With no room for any it is progress that is asked for.
    if cq.queue.len() < count || count == 0 {
        if domain.read_finds_nothing() {
            // SAFETY: `fi_cq(3)` (objects, results): the caller passes an open completion queue,
            // and room for `count` entries.
            return unsafe { cq.give(buf, count, from) };
        }
        domain.progress();
    }
    if cq.queue.is_vain() {
        guard = domain.pause(guard, &cq.idle, None, || !cq.queue.is_empty());
    }
    if !cq.queue.is_vain() {
        cq.idle.borrow_mut().on_completion(|| domain.activity());
    }
    // SAFETY: `fi_cq(3)` (objects, results): the caller passes an open completion queue, and room
    // for `count` entries.
    let given = unsafe { cq.give(buf, count, from) };
    if given > 0 {
        domain.on_completion();
        if count >= DRAINS && given < count as isize {
            cq.drained.set(Some(domain.activity().calls));
        }
    }
    drop(guard);
    given
}

unsafe extern "C" fn sread(
    cq: *mut fid_cq,
    buf: *mut c_void,
    count: usize,
    cond: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: `fi_cq(3)` (objects, results): the caller passes an open completion queue, and room
    // for `count` entries.
    unsafe { sreadfrom(cq, buf, count, core::ptr::null_mut(), cond, timeout) }
}

unsafe extern "C" fn sreadfrom(
    cq: *mut fid_cq,
    buf: *mut c_void,
    count: usize,
    from: *mut fi_addr_t,
    _cond: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: `fi_cq(3)`: the caller passes an open completion queue; the domain outlives its
    // queues.
    let (cq, domain) = unsafe { (&*cq.cast::<Cq>(), &*(*cq.cast::<Cq>()).domain) };
    let until = || !cq.queue.is_empty() || cq.signalled.get();
    let (_guard, _) = domain.wait(domain.enter(), &cq.idle, timeout, until);
    cq.signalled.set(false);
    // SAFETY: `fi_cq(3)` (objects, results): the caller passes an open completion queue, and room
    // for `count` entries.
    unsafe { cq.give(buf, count, from) }
}

unsafe extern "C" fn readerr(cq: *mut fid_cq, entry: *mut fi_cq_err_entry, _flags: u64) -> isize {
    // SAFETY: `fi_cq(3)` (objects): the caller passes an open completion queue; its domain outlives
    // it.
    let (cq, domain) = unsafe { (&*cq.cast::<Cq>(), &*(*cq.cast::<Cq>()).domain) };
    if entry.is_null() {
        return failed(FI_EINVAL) as isize;
    }
    let _guard = domain.enter();
    let Some(c) = cq.queue.pop_error() else { return -(FI_EAGAIN as isize) };
    // SAFETY: `fi_cq(3)`: the caller passes a place for an entry, of which newer versions know more
    // fields, that are set by programs that ask for them.
    unsafe {
        let entry = &mut *entry;
        entry.op_context = c.context as *mut c_void;
        entry.flags = c.flags;
        entry.len = c.len;
        entry.buf = c.buffer as *mut c_void;
        entry.data = c.data;
        entry.tag = c.tag;
        entry.olen = c.excess;
        entry.err = c.error;
        entry.prov_errno = c.error;
        entry.err_data = core::ptr::null_mut();
        entry.err_data_size = 0;
    }
    1
}

unsafe extern "C" fn signal(cq: *mut fid_cq) -> c_int {
    // SAFETY: `fi_cq(3)` (objects): the caller passes an open completion queue; its domain outlives
    // it.
    let (cq, domain) = unsafe { (&*cq.cast::<Cq>(), &*(*cq.cast::<Cq>()).domain) };
    let _guard = domain.enter();
    cq.signalled.set(true);
    domain.wake();
    if let Some(listener) = &cq.listener {
        listener.wake();
    }
    0
}

unsafe extern "C" fn strerror(
    _cq: *mut fid_cq,
    prov_errno: c_int,
    _data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: `fi_cq(3)`: the caller passes `len` bytes of space, or none.
    unsafe { super::explain(prov_errno, buf, len) }
}
