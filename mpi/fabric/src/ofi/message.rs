//! Messages, tagged and not.

use core::ffi::c_void;

use crate::device::endpoint::EndpointCore;
use crate::device::operation::Receive;
use crate::device::operation::SendRequest;
use crate::device::resource::buffers::{Buffer, MAX_PIECES};
use crate::device::resource::completion::Class;

use super::entry::{Context, Desc, Descs, In, Out, entries};
use super::ep::Ep;
use super::failed;
use super::sys::*;

const SENT: u64 = (FI_MSG | FI_SEND) as u64;
const SENT_TAGGED: u64 = (FI_TAGGED | FI_SEND) as u64;
const RECEIVED: u64 = (FI_MSG | FI_RECV) as u64;
const RECEIVED_TAGGED: u64 = (FI_TAGGED | FI_RECV) as u64;

entries! {
    /// Untagged messages.
    MSG, MSG_LATER: fi_ops_msg;
    recv |ep, buf: Out, len: usize, _desc: Desc, from: fi_addr_t, context: Context|
        receive(ep, one(buf, len), RecvArgs::new(ep, from, context));
    recvv |ep, iov: *const iovec, _descs: Descs, count: usize, from: fi_addr_t, context: Context|
        receive(ep, many(iov, count)?, RecvArgs::new(ep, from, context));
    recvmsg |ep, msg: *const fi_msg, flags: u64| {
        let m = parts(msg, flags)?;
        let args = RecvArgs { from: m.addr, tagged: false, tag: 0, ignore: 0, context: m.context, flags };
        receive(ep, many(m.msg_iov, m.iov_count)?, args)
    };
    send |ep, buf: In, len: usize, _desc: Desc, to: fi_addr_t, context: Context|
        send(ep, &one(buf, len), SendArgs::new(ep, to, context));
    sendv |ep, iov: *const iovec, _descs: Descs, count: usize, to: fi_addr_t, context: Context|
        send(ep, &many(iov, count)?, SendArgs::new(ep, to, context));
    sendmsg |ep, msg: *const fi_msg, flags: u64| {
        let m = parts(msg, flags)?;
        let args = SendArgs::of_message(m.addr, m.context, m.data, flags);
        send(ep, &many(m.msg_iov, m.iov_count)?, args)
    };
    inject |ep, buf: In, len: usize, to: fi_addr_t| send(ep, &one(buf, len), SendArgs::inject(to));
    senddata |ep, buf: In, len: usize, _desc: Desc, data: u64, to: fi_addr_t, context: Context|
        send(ep, &one(buf, len), SendArgs::new(ep, to, context).with(data));
    injectdata |ep, buf: In, len: usize, data: u64, to: fi_addr_t|
        send(ep, &one(buf, len), SendArgs::inject(to).with(data));
}

entries! {
    /// Tagged messages.
    TAGGED, TAGGED_LATER: fi_ops_tagged;
    recv |ep, buf: Out, len: usize, _desc: Desc, from: fi_addr_t, tag: u64, ignore: u64, context: Context|
        receive(ep, one(buf, len), RecvArgs::new(ep, from, context).tagged(tag, ignore));
    recvv |ep, iov: *const iovec, _descs: Descs, count: usize, from: fi_addr_t, tag: u64, ignore: u64,
           context: Context|
        receive(ep, many(iov, count)?, RecvArgs::new(ep, from, context).tagged(tag, ignore));
    recvmsg |ep, msg: *const fi_msg_tagged, flags: u64| {
        let m = parts(msg, flags)?;
        let (from, tag, ignore, context) = (m.addr, m.tag, m.ignore, m.context);
        let args = RecvArgs { from, tagged: true, tag, ignore, context, flags };
        receive(ep, many(m.msg_iov, m.iov_count)?, args)
    };
    send |ep, buf: In, len: usize, _desc: Desc, to: fi_addr_t, tag: u64, context: Context|
        send(ep, &one(buf, len), SendArgs::new(ep, to, context).tagged(tag));
    sendv |ep, iov: *const iovec, _descs: Descs, count: usize, to: fi_addr_t, tag: u64, context: Context|
        send(ep, &many(iov, count)?, SendArgs::new(ep, to, context).tagged(tag));
    sendmsg |ep, msg: *const fi_msg_tagged, flags: u64| {
        let m = parts(msg, flags)?;
        let args = SendArgs::of_message(m.addr, m.context, m.data, flags).tagged(m.tag);
        send(ep, &many(m.msg_iov, m.iov_count)?, args)
    };
    inject |ep, buf: In, len: usize, to: fi_addr_t, tag: u64|
        send(ep, &one(buf, len), SendArgs::inject(to).tagged(tag));
    senddata |ep, buf: In, len: usize, _desc: Desc, data: u64, to: fi_addr_t, tag: u64, context: Context|
        send(ep, &one(buf, len), SendArgs::new(ep, to, context).tagged(tag).with(data));
    injectdata |ep, buf: In, len: usize, data: u64, to: fi_addr_t, tag: u64|
        send(ep, &one(buf, len), SendArgs::inject(to).tagged(tag).with(data));
}

/// One piece of the caller's memory.
///
/// # Safety
///
/// It stays until the operation's completion.
#[inline(always)]
pub unsafe fn one(buf: *const c_void, len: usize) -> Buffer {
    // SAFETY: the caller's promise.
    unsafe { Buffer::one(buf as usize, len) }
}

/// Several pieces of the caller's memory.
///
/// # Errors
///
/// They are too many, or not there.
///
/// # Safety
///
/// `iov` is null, or `count` pieces are readable there, each of which stays until the operation's
/// completion.
pub unsafe fn many(iov: *const iovec, count: usize) -> Result<Buffer, isize> {
    let invalid = failed(FI_EINVAL) as isize;
    if count > MAX_PIECES || iov.is_null() && count > 0 {
        return Err(invalid);
    }
    // SAFETY: the caller's promise.
    unsafe {
        let pieces: &[iovec] = if count == 0 { &[] } else { core::slice::from_raw_parts(iov, count) };
        if pieces.iter().any(|piece| piece.iov_base.is_null() && piece.iov_len > 0) {
            return Err(invalid);
        }
        Buffer::many(pieces.iter().map(|v| (v.iov_base as usize, v.iov_len))).ok_or(invalid)
    }
}

/// Returns whether a buffer has a length, and no place.
#[inline(always)]
pub fn is_nowhere(buffer: &Buffer) -> bool {
    buffer.address() == 0 && !buffer.is_empty()
}

/// Flags of a message that no operation here keeps: fences, multicasts, persistent
/// memory, triggers.
const NOT_KEPT: u64 = (FI_FENCE | FI_MULTICAST | FI_COMMIT_COMPLETE | FI_TRIGGER) as u64;

/// The parts of a message that makes sense.
///
/// # Errors
///
/// The call's result: there is no message, or its flags ask for what is not offered.
///
/// # Safety
///
/// `msg` is null, or readable for as long as the reference is used.
pub unsafe fn parts<'a, M>(msg: *const M, flags: u64) -> Result<&'a M, isize> {
    if flags & NOT_KEPT != 0 {
        return Err(failed(FI_EBADFLAGS) as isize);
    }
    // SAFETY: the caller's promise.
    unsafe { msg.as_ref() }.ok_or(failed(FI_EINVAL) as isize)
}

/// Arguments of a send, but for its buffer.
struct SendArgs {
    to: fi_addr_t,
    tag: Option<u64>,
    data: Option<u64>,
    context: Context,
    /// Flags of the send. `None`: injected; the buffer is the caller's again at once, and
    /// only errors are reported.
    flags: Option<u64>,
}

impl SendArgs {
    /// A send with the endpoint's own flags.
    ///
    /// # Safety
    ///
    /// `ep` is an open endpoint.
    #[inline(always)]
    unsafe fn new(ep: *mut fid_ep, to: fi_addr_t, context: Context) -> SendArgs {
        // SAFETY: the caller's promise.
        let flags = Some(unsafe { Ep::tx_flags(ep) });
        SendArgs { to, tag: None, data: None, context, flags }
    }

    /// An injected send.
    #[inline(always)]
    fn inject(to: fi_addr_t) -> SendArgs {
        SendArgs { to, tag: None, data: None, context: core::ptr::null_mut(), flags: None }
    }

    /// A send with flags of its own, which say whether there are data.
    #[inline(always)]
    fn of_message(to: fi_addr_t, context: Context, data: u64, flags: u64) -> SendArgs {
        let data = (flags & FI_REMOTE_CQ_DATA as u64 != 0).then_some(data);
        SendArgs { to, tag: None, data, context, flags: Some(flags) }
    }

    #[inline(always)]
    fn tagged(self, tag: u64) -> SendArgs {
        SendArgs { tag: Some(tag), ..self }
    }

    #[inline(always)]
    fn with(self, data: u64) -> SendArgs {
        SendArgs { data: Some(data), ..self }
    }
}

/// Arguments of a receive, but for its buffer.
struct RecvArgs {
    from: fi_addr_t,
    tagged: bool,
    tag: u64,
    ignore: u64,
    context: Context,
    flags: u64,
}

impl RecvArgs {
    /// An untagged receive with the endpoint's own flags.
    ///
    /// # Safety
    ///
    /// `ep` is an open endpoint.
    #[inline(always)]
    unsafe fn new(ep: *mut fid_ep, from: fi_addr_t, context: Context) -> RecvArgs {
        // SAFETY: the caller's promise.
        let flags = unsafe { Ep::rx_flags(ep) };
        RecvArgs { from, tagged: false, tag: 0, ignore: 0, context, flags }
    }

    #[inline(always)]
    fn tagged(self, tag: u64, ignore: u64) -> RecvArgs {
        RecvArgs { tagged: true, tag, ignore, ..self }
    }
}

/// Starts a send.
///
/// # Safety
///
/// `ep` is an open endpoint; the buffer stays as long as the operation needs it.
#[inline(always)]
unsafe fn send(ep: *mut fid_ep, buffer: &Buffer, args: SendArgs) -> isize {
    if is_nowhere(buffer) {
        return failed(FI_EINVAL) as isize;
    }
    // SAFETY: the caller's promise.
    let (_guard, ep) = unsafe { Ep::enter(ep) };
    let kind = if args.tag.is_some() { SENT_TAGGED } else { SENT };
    let asked = |flag: u32| args.flags.is_some_and(|flags| flags & u64::from(flag) != 0);
    let request = SendRequest {
        peer: ep.to(args.to),
        tag: args.tag,
        buffer,
        data: args.data,
        ticket: ep.ticket(args.context, kind, args.flags, Class::Send),
        inject: args.flags.is_none() || asked(FI_INJECT),
        // A message in the receiver's memory has been delivered, whether its program has asked for
        // it yet or not. MPICH asks for that with every message: a short `MPI_Send` must not wait
        // for its receive.
        matched: asked(FI_MATCH_COMPLETE),
    };
    let sent = ep.endpoint.core.send(&request);
    ep.started(sent)
}

/// Posts a receive, or peeks, or claims a message.
///
/// # Safety
///
/// `ep` is an open endpoint; the buffer stays until the receive's completion.
#[inline(always)]
unsafe fn receive(ep: *mut fid_ep, buffer: Buffer, args: RecvArgs) -> isize {
    if is_nowhere(&buffer) {
        return failed(FI_EINVAL) as isize;
    }
    // SAFETY: the caller's promise.
    let (_guard, ep) = unsafe { Ep::enter(ep) };
    let flags = args.flags;
    let receive = Receive {
        buffer,
        context: args.context as usize,
        flags: if args.tagged { RECEIVED_TAGGED } else { RECEIVED },
        notify: !ep.rx_selective || flags & FI_COMPLETION as u64 != 0,
        multi: (flags & FI_MULTI_RECV as u64 != 0).then(Default::default),
    };
    let Some(from) = ep.from(args.from) else { return failed(FI_EINVAL) as isize };
    let pattern = EndpointCore::pattern(from, args.tag, args.ignore);
    let (claim, discard) = (flags & FI_CLAIM != 0, flags & FI_DISCARD_ != 0);
    if flags & FI_PEEK as u64 != 0 {
        ep.endpoint.peek(args.tagged, pattern, &receive, claim, discard);
    } else if claim {
        if !ep.endpoint.claimed(receive, discard) {
            return failed(FI_EINVAL) as isize;
        }
    } else {
        ep.endpoint.receive(args.tagged, pattern, receive);
    }
    0
}

const FI_DISCARD_: u64 = 1 << 58;
