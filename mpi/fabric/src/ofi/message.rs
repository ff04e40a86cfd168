//! Messages, tagged and not.

use core::ffi::c_void;

use crate::device::endpoint::{Core, SendRequest};
use crate::device::protocol::receive::Receive;
use crate::device::resource::buffers::{Buffer, MAX_PIECES};
use crate::device::resource::completion::Class;

use super::ep::Ep;
use super::failed;
use super::no::later;
use super::sys::*;

const SENT: u64 = (FI_MSG | FI_SEND) as u64;
const SENT_TAGGED: u64 = (FI_TAGGED | FI_SEND) as u64;
const RECEIVED: u64 = (FI_MSG | FI_RECV) as u64;
const RECEIVED_TAGGED: u64 = (FI_TAGGED | FI_RECV) as u64;

/// Untagged.
pub static MSG: fi_ops_msg = fi_ops_msg {
    size: size_of::<fi_ops_msg>(),
    recv: Some(recv),
    recvv: Some(recvv),
    recvmsg: Some(recvmsg),
    send: Some(send),
    sendv: Some(sendv),
    sendmsg: Some(sendmsg),
    inject: Some(inject),
    senddata: Some(senddata),
    injectdata: Some(injectdata),
};

/// Functions of an endpoint that is not enabled yet.
pub static MSG_LATER: fi_ops_msg = fi_ops_msg {
    size: size_of::<fi_ops_msg>(),
    recv: later(),
    recvv: later(),
    recvmsg: later(),
    send: later(),
    sendv: later(),
    sendmsg: later(),
    inject: later(),
    senddata: later(),
    injectdata: later(),
};

/// Tagged.
pub static TAGGED: fi_ops_tagged = fi_ops_tagged {
    size: size_of::<fi_ops_tagged>(),
    recv: Some(trecv),
    recvv: Some(trecvv),
    recvmsg: Some(trecvmsg),
    send: Some(tsend),
    sendv: Some(tsendv),
    sendmsg: Some(tsendmsg),
    inject: Some(tinject),
    senddata: Some(tsenddata),
    injectdata: Some(tinjectdata),
};

/// Functions of an endpoint that is not enabled yet.
pub static TAGGED_LATER: fi_ops_tagged = fi_ops_tagged {
    size: size_of::<fi_ops_tagged>(),
    recv: later(),
    recvv: later(),
    recvmsg: later(),
    send: later(),
    sendv: later(),
    sendmsg: later(),
    inject: later(),
    senddata: later(),
    injectdata: later(),
};

/// One piece of the caller's memory.
#[inline(always)]
pub unsafe fn one(buf: *const c_void, len: usize) -> Buffer {
    // SAFETY: libfabric's contract: the buffer stays until the completion.
    unsafe { Buffer::one(buf as usize, len) }
}

/// Several; `None` if they are too many, or not there.
pub unsafe fn many(iov: *const iovec, count: usize) -> Option<Buffer> {
    if count > MAX_PIECES || iov.is_null() && count > 0 {
        return None;
    }
    // SAFETY: libfabric's contract: `count` pieces that stay until the completion.
    unsafe {
        let pieces: &[iovec] = if count == 0 { &[] } else { core::slice::from_raw_parts(iov, count) };
        if pieces.iter().any(|piece| piece.iov_base.is_null() && piece.iov_len > 0) {
            return None;
        }
        Buffer::many(pieces.iter().map(|v| (v.iov_base as usize, v.iov_len)))
    }
}

/// Whether a buffer has a length, and no place.
#[inline(always)]
pub fn is_nowhere(buffer: &Buffer) -> bool {
    buffer.address() == 0 && !buffer.is_empty()
}

/// The flags of a message that no operation here keeps: fences, multicasts, persistent
/// memory, triggers.
const NOT_KEPT: u64 = (FI_FENCE | FI_MULTICAST | FI_COMMIT_COMPLETE | FI_TRIGGER) as u64;

/// The parts of a message that makes sense.
///
/// # Errors
///
/// What the call returns: there is no message, or its flags ask for what is not offered.
pub unsafe fn parts<'a, M>(msg: *const M, flags: u64) -> Result<&'a M, isize> {
    if flags & NOT_KEPT != 0 {
        return Err(failed(FI_EBADFLAGS) as isize);
    }
    // SAFETY: libfabric's contract: null, or a message.
    unsafe { msg.as_ref() }.ok_or(failed(FI_EINVAL) as isize)
}

/// What a send has beside its buffer.
struct What {
    to: fi_addr_t,
    tag: Option<u64>,
    data: Option<u64>,
    context: *mut c_void,
    /// `None`: injected; the buffer is the caller's again at once, and only errors are
    /// reported.
    flags: Option<u64>,
}

#[inline(always)]
unsafe fn send_any(ep: *mut fid_ep, buffer: &Buffer, what: What) -> isize {
    if is_nowhere(buffer) {
        return failed(FI_EINVAL) as isize;
    }
    // SAFETY: libfabric's contract.
    let (_guard, ep) = unsafe { Ep::enter(ep) };
    let kind = if what.tag.is_some() { SENT_TAGGED } else { SENT };
    let asked = |flag: u32| what.flags.is_some_and(|flags| flags & u64::from(flag) != 0);
    let message = SendRequest {
        peer: ep.to(what.to),
        tag: what.tag,
        buffer,
        data: what.data,
        ticket: ep.ticket(what.context, kind, what.flags, Class::Send),
        inject: what.flags.is_none() || asked(FI_INJECT),
        // What lies in the receiver's memory has been delivered, whether its program has asked for
        // it yet or not. MPICH asks for that with every message: a short `MPI_Send` must not wait
        // for its receive.
        matched: asked(FI_MATCH_COMPLETE),
    };
    let sent = ep.endpoint.core.send(&message);
    ep.started(sent)
}

/// What a receive has beside its buffer.
struct Wanted {
    from: fi_addr_t,
    tagged: bool,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
    flags: u64,
}

#[inline(always)]
unsafe fn receive_any(ep: *mut fid_ep, buffer: Buffer, wanted: Wanted) -> isize {
    if is_nowhere(&buffer) {
        return failed(FI_EINVAL) as isize;
    }
    // SAFETY: libfabric's contract.
    let (_guard, ep) = unsafe { Ep::enter(ep) };
    let flags = wanted.flags;
    let receive = Receive {
        buffer,
        context: wanted.context as usize,
        flags: if wanted.tagged { RECEIVED_TAGGED } else { RECEIVED },
        notify: !ep.rx_selective || flags & FI_COMPLETION as u64 != 0,
        multi: (flags & FI_MULTI_RECV as u64 != 0).then(Default::default),
    };
    let Some(from) = ep.from(wanted.from) else { return failed(FI_EINVAL) as isize };
    let pattern = Core::pattern(from, wanted.tag, wanted.ignore);
    let (claim, discard) = (flags & FI_CLAIM != 0, flags & FI_DISCARD_ != 0);
    if flags & FI_PEEK as u64 != 0 {
        ep.endpoint.peek(wanted.tagged, pattern, &receive, claim, discard);
    } else if claim {
        if !ep.endpoint.claimed(receive, discard) {
            return failed(FI_EINVAL) as isize;
        }
    } else {
        ep.endpoint.receive(wanted.tagged, pattern, receive);
    }
    0
}

const FI_DISCARD_: u64 = 1 << 58;

unsafe extern "C" fn recv(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    from: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: libfabric's contract, here and in the rest of this file.
    unsafe {
        let flags = Ep::rx_flags(ep);
        receive_any(ep, one(buf, len), Wanted { from, tagged: false, tag: 0, ignore: 0, context, flags })
    }
}

unsafe extern "C" fn recvv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    from: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let Some(buffer) = many(iov, count) else { return failed(FI_EINVAL) as isize };
        let flags = Ep::rx_flags(ep);
        receive_any(ep, buffer, Wanted { from, tagged: false, tag: 0, ignore: 0, context, flags })
    }
}

unsafe extern "C" fn recvmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let m = match parts(msg, flags) {
            Ok(m) => m,
            Err(error) => return error,
        };
        let Some(buffer) = many(m.msg_iov, m.iov_count) else { return failed(FI_EINVAL) as isize };
        let wanted = Wanted { from: m.addr, tagged: false, tag: 0, ignore: 0, context: m.context, flags };
        receive_any(ep, buffer, wanted)
    }
}

unsafe extern "C" fn trecv(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    from: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let flags = Ep::rx_flags(ep);
        receive_any(ep, one(buf, len), Wanted { from, tagged: true, tag, ignore, context, flags })
    }
}

unsafe extern "C" fn trecvv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    from: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let Some(buffer) = many(iov, count) else { return failed(FI_EINVAL) as isize };
        let flags = Ep::rx_flags(ep);
        receive_any(ep, buffer, Wanted { from, tagged: true, tag, ignore, context, flags })
    }
}

unsafe extern "C" fn trecvmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let m = match parts(msg, flags) {
            Ok(m) => m,
            Err(error) => return error,
        };
        let Some(buffer) = many(m.msg_iov, m.iov_count) else { return failed(FI_EINVAL) as isize };
        let (tag, ignore, context) = (m.tag, m.ignore, m.context);
        receive_any(ep, buffer, Wanted { from: m.addr, tagged: true, tag, ignore, context, flags })
    }
}

unsafe extern "C" fn send(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let flags = Some(Ep::tx_flags(ep));
        send_any(ep, &one(buf, len), What { to, tag: None, data: None, context, flags })
    }
}

unsafe extern "C" fn sendv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let Some(buffer) = many(iov, count) else { return failed(FI_EINVAL) as isize };
        let flags = Some(Ep::tx_flags(ep));
        send_any(ep, &buffer, What { to, tag: None, data: None, context, flags })
    }
}

unsafe extern "C" fn sendmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let m = match parts(msg, flags) {
            Ok(m) => m,
            Err(error) => return error,
        };
        let Some(buffer) = many(m.msg_iov, m.iov_count) else { return failed(FI_EINVAL) as isize };
        let data = (flags & FI_REMOTE_CQ_DATA as u64 != 0).then_some(m.data);
        send_any(ep, &buffer, What { to: m.addr, tag: None, data, context: m.context, flags: Some(flags) })
    }
}

unsafe extern "C" fn inject(ep: *mut fid_ep, buf: *const c_void, len: usize, to: fi_addr_t) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let context = core::ptr::null_mut();
        send_any(ep, &one(buf, len), What { to, tag: None, data: None, context, flags: None })
    }
}

unsafe extern "C" fn senddata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let flags = Some(Ep::tx_flags(ep));
        send_any(ep, &one(buf, len), What { to, tag: None, data: Some(data), context, flags })
    }
}

unsafe extern "C" fn injectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: fi_addr_t,
) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let context = core::ptr::null_mut();
        send_any(ep, &one(buf, len), What { to, tag: None, data: Some(data), context, flags: None })
    }
}

unsafe extern "C" fn tsend(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    to: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let flags = Some(Ep::tx_flags(ep));
        send_any(ep, &one(buf, len), What { to, tag: Some(tag), data: None, context, flags })
    }
}

unsafe extern "C" fn tsendv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let Some(buffer) = many(iov, count) else { return failed(FI_EINVAL) as isize };
        let flags = Some(Ep::tx_flags(ep));
        send_any(ep, &buffer, What { to, tag: Some(tag), data: None, context, flags })
    }
}

unsafe extern "C" fn tsendmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let m = match parts(msg, flags) {
            Ok(m) => m,
            Err(error) => return error,
        };
        let Some(buffer) = many(m.msg_iov, m.iov_count) else { return failed(FI_EINVAL) as isize };
        let data = (flags & FI_REMOTE_CQ_DATA as u64 != 0).then_some(m.data);
        let (to, context) = (m.addr, m.context);
        send_any(ep, &buffer, What { to, tag: Some(m.tag), data, context, flags: Some(flags) })
    }
}

unsafe extern "C" fn tinject(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    to: fi_addr_t,
    tag: u64,
) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let context = core::ptr::null_mut();
        send_any(ep, &one(buf, len), What { to, tag: Some(tag), data: None, context, flags: None })
    }
}

unsafe extern "C" fn tsenddata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    to: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let flags = Some(Ep::tx_flags(ep));
        let what = What { to, tag: Some(tag), data: Some(data), context, flags };
        send_any(ep, &one(buf, len), what)
    }
}

unsafe extern "C" fn tinjectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: fi_addr_t,
    tag: u64,
) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let context = core::ptr::null_mut();
        let what = What { to, tag: Some(tag), data: Some(data), context, flags: None };
        send_any(ep, &one(buf, len), what)
    }
}
