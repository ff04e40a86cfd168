//! Reading and writing memory of others.

use core::ffi::c_void;

use crate::device::resource::buffers::Buffer;
use crate::device::resource::completion::Class;

use super::ep::Ep;
use super::failed;
use super::message::{is_nowhere, many, one, parts};
use super::no::later;
use super::sys::*;

const READ: u64 = (FI_RMA | FI_READ) as u64;
const WRITTEN: u64 = (FI_RMA | FI_WRITE) as u64;

/// The table.
pub static OPS: fi_ops_rma = fi_ops_rma {
    size: size_of::<fi_ops_rma>(),
    read: Some(read),
    readv: Some(readv),
    readmsg: Some(readmsg),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    writedata: Some(writedata),
    injectdata: Some(injectdata),
};

/// Functions of an endpoint that is not enabled yet.
pub static LATER: fi_ops_rma = fi_ops_rma {
    size: size_of::<fi_ops_rma>(),
    read: later(),
    readv: later(),
    readmsg: later(),
    write: later(),
    writev: later(),
    writemsg: later(),
    inject: later(),
    writedata: later(),
    injectdata: later(),
};

/// Whose memory, where.
#[derive(Clone, Copy)]
struct Place {
    of: fi_addr_t,
    addr: u64,
    key: u64,
}

unsafe fn read_any(ep: *mut fid_ep, buffer: &Buffer, from: Place, context: *mut c_void, flags: u64) -> isize {
    if is_nowhere(buffer) {
        return failed(FI_EINVAL) as isize;
    }
    // SAFETY: libfabric's contract.
    let (_guard, ep) = unsafe { Ep::enter(ep) };
    let ticket = ep.ticket(context, READ, Some(flags), Class::Read);
    let started = ep.endpoint.core.read(ep.target(from.of, from.addr, from.key), buffer, ticket);
    ep.started(started)
}

unsafe fn write_any(
    ep: *mut fid_ep,
    buffer: &Buffer,
    to: Place,
    data: Option<u64>,
    context: *mut c_void,
    flags: Option<u64>,
) -> isize {
    if is_nowhere(buffer) {
        return failed(FI_EINVAL) as isize;
    }
    // SAFETY: libfabric's contract.
    let (_guard, ep) = unsafe { Ep::enter(ep) };
    let ticket = ep.ticket(context, WRITTEN, flags, Class::Write);
    let inject = flags.is_none_or(|flags| flags & FI_INJECT as u64 != 0);
    let to = ep.target(to.of, to.addr, to.key);
    let started = ep.endpoint.core.write(to, buffer, data, ticket, inject);
    ep.started(started)
}

unsafe extern "C" fn read(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    of: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: libfabric's contract, here and in the rest of this file.
    unsafe { read_any(ep, &one(buf, len), Place { of, addr, key }, context, Ep::tx_flags(ep)) }
}

unsafe extern "C" fn readv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    of: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `read`.
    unsafe {
        let Some(buffer) = many(iov, count) else { return failed(FI_EINVAL) as isize };
        read_any(ep, &buffer, Place { of, addr, key }, context, Ep::tx_flags(ep))
    }
}

/// The one remote piece of a message, which is as long as the local ones.
unsafe fn place(m: &fi_msg_rma, len: usize) -> Option<Place> {
    if m.rma_iov_count != 1 {
        return None;
    }
    // SAFETY: as in `read`.
    let remote = unsafe { m.rma_iov.as_ref() }?;
    (remote.len == len).then_some(Place { of: m.addr, addr: remote.addr, key: remote.key })
}

unsafe extern "C" fn readmsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: as in `read`.
    unsafe {
        let m = match parts(msg, flags) {
            Ok(m) => m,
            Err(error) => return error,
        };
        let Some(buffer) = many(m.msg_iov, m.iov_count) else { return failed(FI_EINVAL) as isize };
        let Some(from) = place(m, buffer.len()) else { return failed(FI_EINVAL) as isize };
        read_any(ep, &buffer, from, m.context, flags)
    }
}

unsafe extern "C" fn write(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    of: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `read`.
    unsafe { write_any(ep, &one(buf, len), Place { of, addr, key }, None, context, Some(Ep::tx_flags(ep))) }
}

unsafe extern "C" fn writev(
    ep: *mut fid_ep,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    of: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `read`.
    unsafe {
        let Some(buffer) = many(iov, count) else { return failed(FI_EINVAL) as isize };
        write_any(ep, &buffer, Place { of, addr, key }, None, context, Some(Ep::tx_flags(ep)))
    }
}

unsafe extern "C" fn writemsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: as in `read`.
    unsafe {
        let m = match parts(msg, flags) {
            Ok(m) => m,
            Err(error) => return error,
        };
        let Some(buffer) = many(m.msg_iov, m.iov_count) else { return failed(FI_EINVAL) as isize };
        let Some(to) = place(m, buffer.len()) else { return failed(FI_EINVAL) as isize };
        let data = (flags & FI_REMOTE_CQ_DATA as u64 != 0).then_some(m.data);
        write_any(ep, &buffer, to, data, m.context, Some(flags))
    }
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    of: fi_addr_t,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: as in `read`.
    unsafe { write_any(ep, &one(buf, len), Place { of, addr, key }, None, core::ptr::null_mut(), None) }
}

unsafe extern "C" fn writedata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    of: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `read`.
    unsafe {
        let flags = Some(Ep::tx_flags(ep));
        write_any(ep, &one(buf, len), Place { of, addr, key }, Some(data), context, flags)
    }
}

unsafe extern "C" fn injectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    of: fi_addr_t,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: as in `read`.
    unsafe { write_any(ep, &one(buf, len), Place { of, addr, key }, Some(data), core::ptr::null_mut(), None) }
}
