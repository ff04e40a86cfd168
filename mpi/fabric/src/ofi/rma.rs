//! Reads and writes of remote memory.

use crate::device::resource::buffers::Buffer;
use crate::device::resource::completion::Class;

use super::entry::{Context, Desc, Descs, In, Out, entries};
use super::ep::Ep;
use super::failed;
use super::message::{is_nowhere, many, one, parts};
use super::sys::*;

const READ: u64 = (FI_RMA | FI_READ) as u64;
const WRITTEN: u64 = (FI_RMA | FI_WRITE) as u64;

entries! {
    /// One-sided operations.
    OPS, LATER: fi_ops_rma;
    read |ep, buf: Out, len: usize, _desc: Desc, of: fi_addr_t, addr: u64, key: u64, context: Context|
        read(ep, &one(buf, len), RemotePlace { of, addr, key }, context, Ep::tx_flags(ep));
    readv |ep, iov: *const iovec, _descs: Descs, count: usize, of: fi_addr_t, addr: u64, key: u64,
           context: Context|
        read(ep, &many(iov, count)?, RemotePlace { of, addr, key }, context, Ep::tx_flags(ep));
    readmsg |ep, msg: *const fi_msg_rma, flags: u64| {
        let m = parts(msg, flags)?;
        let buffer = many(m.msg_iov, m.iov_count)?;
        read(ep, &buffer, place(m, buffer.len())?, m.context, flags)
    };
    write |ep, buf: In, len: usize, _desc: Desc, of: fi_addr_t, addr: u64, key: u64, context: Context|
        write(ep, &one(buf, len), RemotePlace { of, addr, key }, WriteArgs::new(ep, context));
    writev |ep, iov: *const iovec, _descs: Descs, count: usize, of: fi_addr_t, addr: u64, key: u64,
            context: Context|
        write(ep, &many(iov, count)?, RemotePlace { of, addr, key }, WriteArgs::new(ep, context));
    writemsg |ep, msg: *const fi_msg_rma, flags: u64| {
        let m = parts(msg, flags)?;
        let buffer = many(m.msg_iov, m.iov_count)?;
        let data = (flags & FI_REMOTE_CQ_DATA as u64 != 0).then_some(m.data);
        let args = WriteArgs { data, context: m.context, flags: Some(flags) };
        write(ep, &buffer, place(m, buffer.len())?, args)
    };
    inject |ep, buf: In, len: usize, of: fi_addr_t, addr: u64, key: u64|
        write(ep, &one(buf, len), RemotePlace { of, addr, key }, WriteArgs::inject(None));
    writedata |ep, buf: In, len: usize, _desc: Desc, data: u64, of: fi_addr_t, addr: u64, key: u64,
               context: Context|
        write(ep, &one(buf, len), RemotePlace { of, addr, key },
              WriteArgs { data: Some(data), ..WriteArgs::new(ep, context) });
    injectdata |ep, buf: In, len: usize, data: u64, of: fi_addr_t, addr: u64, key: u64|
        write(ep, &one(buf, len), RemotePlace { of, addr, key }, WriteArgs::inject(Some(data)));
}

/// A place in a peer's memory.
#[derive(Clone, Copy)]
pub(super) struct RemotePlace {
    pub(super) of: fi_addr_t,
    pub(super) addr: u64,
    pub(super) key: u64,
}

/// Arguments of a write, but for its buffer and its place.
struct WriteArgs {
    data: Option<u64>,
    context: Context,
    /// Flags of the write. `None`: injected; the buffer is the caller's again at once,
    /// and only errors are reported.
    flags: Option<u64>,
}

impl WriteArgs {
    /// A write with the endpoint's own flags.
    ///
    /// # Safety
    ///
    /// `ep` is an open endpoint.
    unsafe fn new(ep: *mut fid_ep, context: Context) -> WriteArgs {
        // SAFETY: the caller's promise.
        WriteArgs { data: None, context, flags: Some(unsafe { Ep::tx_flags(ep) }) }
    }

    /// An injected write.
    fn inject(data: Option<u64>) -> WriteArgs {
        WriteArgs { data, context: core::ptr::null_mut(), flags: None }
    }
}

/// Starts a read.
///
/// # Safety
///
/// `ep` is an open endpoint; the buffer stays until the read's completion.
unsafe fn read(ep: *mut fid_ep, buffer: &Buffer, from: RemotePlace, context: Context, flags: u64) -> isize {
    if is_nowhere(buffer) {
        return failed(FI_EINVAL) as isize;
    }
    // SAFETY: the caller's promise.
    let (_guard, ep) = unsafe { Ep::enter(ep) };
    let ticket = ep.ticket(context, READ, Some(flags), Class::Read);
    let started = ep.endpoint.core.read(ep.target(from.of, from.addr, from.key), buffer, ticket);
    ep.started(started)
}

/// Starts a write.
///
/// # Safety
///
/// `ep` is an open endpoint; the buffer stays as long as the operation needs it.
unsafe fn write(ep: *mut fid_ep, buffer: &Buffer, to: RemotePlace, args: WriteArgs) -> isize {
    let WriteArgs { data, context, flags } = args;
    if is_nowhere(buffer) {
        return failed(FI_EINVAL) as isize;
    }
    // SAFETY: the caller's promise.
    let (_guard, ep) = unsafe { Ep::enter(ep) };
    let ticket = ep.ticket(context, WRITTEN, flags, Class::Write);
    let inject = flags.is_none_or(|flags| flags & FI_INJECT as u64 != 0);
    let to = ep.target(to.of, to.addr, to.key);
    let started = ep.endpoint.core.write(to, buffer, data, ticket, inject);
    ep.started(started)
}

/// The one remote piece of a message, which is as long as the local ones.
///
/// # Safety
///
/// The message's remote pieces are readable, or null.
unsafe fn place(m: &fi_msg_rma, len: usize) -> Result<RemotePlace, isize> {
    // SAFETY: the caller's promise.
    let remote = unsafe { m.rma_iov.as_ref() }.filter(|remote| m.rma_iov_count == 1 && remote.len == len);
    remote
        .map(|remote| RemotePlace { of: m.addr, addr: remote.addr, key: remote.key })
        .ok_or(failed(FI_EINVAL) as isize)
}
