//! Atomic operations on memory of others.

use core::ffi::{c_int, c_void};

use crate::device::resource::buffers::{Buffer, MAX_PIECES};
use crate::device::resource::completion::Class;
use crate::device::rma::atomics::{Atomic, LONGEST, Op, Type, is_valid};

use super::ep::Ep;
use super::failed;
use super::message::parts;
use super::no::later;
use super::sys::*;

/// The table.
pub static OPS: fi_ops_atomic = fi_ops_atomic {
    size: size_of::<fi_ops_atomic>(),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    readwrite: Some(readwrite),
    readwritev: Some(readwritev),
    readwritemsg: Some(readwritemsg),
    compwrite: Some(compwrite),
    compwritev: Some(compwritev),
    compwritemsg: Some(compwritemsg),
    writevalid: Some(writevalid),
    readwritevalid: Some(readwritevalid),
    compwritevalid: Some(compwritevalid),
};

/// Functions of an endpoint that is not enabled yet.
pub static LATER: fi_ops_atomic = fi_ops_atomic {
    size: size_of::<fi_ops_atomic>(),
    write: later(),
    writev: later(),
    writemsg: later(),
    inject: later(),
    readwrite: later(),
    readwritev: later(),
    readwritemsg: later(),
    compwrite: later(),
    compwritev: later(),
    compwritemsg: later(),
    writevalid: Some(writevalid),
    readwritevalid: Some(readwritevalid),
    compwritevalid: Some(compwritevalid),
};

/// Elements in the caller's memory.
type Pieces<'a> = &'a [fi_ioc];

/// An operation as the calls have it.
struct What<'a> {
    operand: Pieces<'a>,
    compare: Pieces<'a>,
    result: Pieces<'a>,
    of: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
    /// `None`: the operand is the caller's again at once, and only errors are reported.
    flags: Option<u64>,
}

/// Stands for more pieces than an operation takes, and for missing ones: a piece that is
/// refused.
const NONSENSE: fi_ioc = fi_ioc { addr: core::ptr::null_mut(), count: 1 };

unsafe fn pieces<'a>(iov: *const fi_ioc, count: usize) -> Pieces<'a> {
    match count {
        0 => &[],
        _ if iov.is_null() || count > MAX_PIECES => core::slice::from_ref(const { &NONSENSE }),
        // SAFETY: libfabric's contract: as many pieces.
        _ => unsafe { core::slice::from_raw_parts(iov, count) },
    }
}

fn single(addr: *const c_void, count: usize) -> fi_ioc {
    fi_ioc { addr: addr.cast_mut(), count }
}

fn count(pieces: Pieces<'_>) -> usize {
    pieces.iter().fold(0, |sum, p| sum.saturating_add(p.count))
}

unsafe fn buffer(pieces: Pieces<'_>, size: usize) -> Option<Buffer> {
    if pieces.iter().any(|p| p.addr.is_null() && p.count > 0) {
        return None;
    }
    // SAFETY: libfabric's contract: elements that stay until the completion.
    unsafe { Buffer::many(pieces.iter().map(|p| (p.addr as usize, p.count.saturating_mul(size)))) }
}

unsafe fn start(ep: *mut fid_ep, what: What<'_>) -> isize {
    let kinds = (Op::from_number(what.op.into()), Type::from_number(what.datatype.into()));
    let (Some(op), Some(of)) = kinds else { return failed(FI_EOPNOTSUPP) as isize };
    if !is_valid(op, of) {
        return failed(FI_EOPNOTSUPP) as isize;
    }
    let fetches = !what.result.is_empty();
    let n = if op == Op::Read { count(what.result) } else { count(what.operand) };
    // SAFETY: libfabric's contract; the domain outlives its endpoints.
    unsafe {
        let bytes = |pieces| buffer(pieces, of.size());
        let operand = if op == Op::Read { Some(Buffer::default()) } else { bytes(what.operand) };
        let (Some(operand), Some(compare), Some(result)) = (operand, bytes(what.compare), bytes(what.result))
        else {
            return failed(FI_EINVAL) as isize;
        };
        if [&operand, &compare, &result].iter().any(|buffer| buffer.len() > LONGEST) {
            return failed(FI_EMSGSIZE) as isize;
        }
        let (_guard, ep) = Ep::enter(ep);
        let class = if fetches { Class::Read } else { Class::Write };
        let flags = FI_ATOMIC as u64 | if fetches { FI_READ } else { FI_WRITE } as u64;
        let ticket = ep.ticket(what.context, flags, what.flags, class);
        let atomic = Atomic {
            target: ep.target(what.of, what.addr, what.key),
            op,
            of,
            count: n,
            operand: &operand.to_vec(),
            compare: &compare.to_vec(),
            into: fetches.then_some(result),
        };
        let started = ep.endpoint.core.start_atomic(&atomic, ticket);
        ep.started(started)
    }
}

unsafe extern "C" fn write(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    of: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: libfabric's contract, here and in the rest of this file.
    unsafe {
        let flags = Some(Ep::tx_flags(ep));
        let operand = &[single(buf, count)];
        start(ep, What { operand, compare: &[], result: &[], of, addr, key, datatype, op, context, flags })
    }
}

unsafe extern "C" fn writev(
    ep: *mut fid_ep,
    iov: *const fi_ioc,
    _desc: *mut *mut c_void,
    count: usize,
    of: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `write`.
    unsafe {
        let flags = Some(Ep::tx_flags(ep));
        let operand = pieces(iov, count);
        start(ep, What { operand, compare: &[], result: &[], of, addr, key, datatype, op, context, flags })
    }
}

/// Starts an operation from a message. One remote piece, as long as the local ones.
unsafe fn start_message(
    ep: *mut fid_ep,
    msg: *const fi_msg_atomic,
    compare: Pieces<'_>,
    result: Pieces<'_>,
    flags: u64,
) -> isize {
    // SAFETY: as in `write`.
    unsafe {
        let m = match parts(msg, flags) {
            Ok(m) => m,
            Err(error) => return error,
        };
        // On a tagged receive's buffer.
        if flags & u64::from(FI_TAGGED) != 0 {
            return failed(FI_EOPNOTSUPP) as isize;
        }
        let (operand, remote) = (pieces(m.msg_iov, m.iov_count), m.rma_iov.as_ref());
        let Some(remote) = remote.filter(|_| m.rma_iov_count == 1) else { return failed(FI_EINVAL) as isize };
        let (of, addr, key, context, flags) = (m.addr, remote.addr, remote.key, m.context, Some(flags));
        let (datatype, op) = (m.datatype, m.op);
        start(ep, What { operand, compare, result, of, addr, key, datatype, op, context, flags })
    }
}

unsafe extern "C" fn writemsg(ep: *mut fid_ep, msg: *const fi_msg_atomic, flags: u64) -> isize {
    // SAFETY: as in `write`.
    unsafe { start_message(ep, msg, &[], &[], flags) }
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    of: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
) -> isize {
    let (operand, context) = (&[single(buf, count)], core::ptr::null_mut());
    let (compare, result): (Pieces<'_>, Pieces<'_>) = (&[], &[]);
    // SAFETY: as in `write`.
    unsafe { start(ep, What { operand, compare, result, of, addr, key, datatype, op, context, flags: None }) }
}

unsafe extern "C" fn readwrite(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    of: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `write`.
    unsafe {
        let flags = Some(Ep::tx_flags(ep));
        let (operand, result) = (&[single(buf, count)], &[single(result, count)]);
        start(ep, What { operand, compare: &[], result, of, addr, key, datatype, op, context, flags })
    }
}

unsafe extern "C" fn readwritev(
    ep: *mut fid_ep,
    iov: *const fi_ioc,
    _desc: *mut *mut c_void,
    count: usize,
    resultv: *mut fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    of: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `write`.
    unsafe {
        let flags = Some(Ep::tx_flags(ep));
        let (operand, result) = (pieces(iov, count), pieces(resultv, result_count));
        start(ep, What { operand, compare: &[], result, of, addr, key, datatype, op, context, flags })
    }
}

unsafe extern "C" fn readwritemsg(
    ep: *mut fid_ep,
    msg: *const fi_msg_atomic,
    resultv: *mut fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: as in `write`.
    unsafe { start_message(ep, msg, &[], pieces(resultv, result_count), flags) }
}

unsafe extern "C" fn compwrite(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    compare: *const c_void,
    _compare_desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    of: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `write`.
    unsafe {
        let flags = Some(Ep::tx_flags(ep));
        let (operand, compare) = (&[single(buf, count)], &[single(compare, count)]);
        let result = &[single(result, count)];
        start(ep, What { operand, compare, result, of, addr, key, datatype, op, context, flags })
    }
}

unsafe extern "C" fn compwritev(
    ep: *mut fid_ep,
    iov: *const fi_ioc,
    _desc: *mut *mut c_void,
    count: usize,
    comparev: *const fi_ioc,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    of: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `write`.
    unsafe {
        let flags = Some(Ep::tx_flags(ep));
        let (operand, compare) = (pieces(iov, count), pieces(comparev, compare_count));
        let result = pieces(resultv, result_count);
        start(ep, What { operand, compare, result, of, addr, key, datatype, op, context, flags })
    }
}

unsafe extern "C" fn compwritemsg(
    ep: *mut fid_ep,
    msg: *const fi_msg_atomic,
    comparev: *const fi_ioc,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: as in `write`.
    unsafe {
        let (compare, result) = (pieces(comparev, compare_count), pieces(resultv, result_count));
        start_message(ep, msg, compare, result, flags)
    }
}

/// How many elements one operation takes; `None` if there is no such operation.
fn valid(datatype: fi_datatype, op: fi_op, compares: bool, fetches: bool) -> Option<(usize, usize)> {
    let (op, of) = (Op::from_number(op.into())?, Type::from_number(datatype.into())?);
    let fits = is_valid(op, of) && op.compares() == compares && (op != Op::Read || fetches);
    fits.then(|| (LONGEST / of.size(), of.size()))
}

unsafe fn answer(found: Option<(usize, usize)>, count: *mut usize) -> c_int {
    let Some((most, _)) = found else { return failed(FI_EOPNOTSUPP) };
    // SAFETY: libfabric's contract: null, or a place for the answer.
    if let Some(count) = unsafe { count.as_mut() } {
        *count = most;
    }
    0
}

unsafe extern "C" fn writevalid(_: *mut fid_ep, datatype: fi_datatype, op: fi_op, n: *mut usize) -> c_int {
    // SAFETY: as in `write`.
    unsafe { answer(valid(datatype, op, false, false), n) }
}

unsafe extern "C" fn readwritevalid(
    _: *mut fid_ep,
    datatype: fi_datatype,
    op: fi_op,
    n: *mut usize,
) -> c_int {
    // SAFETY: as in `write`.
    unsafe { answer(valid(datatype, op, false, true), n) }
}

unsafe extern "C" fn compwritevalid(
    _: *mut fid_ep,
    datatype: fi_datatype,
    op: fi_op,
    n: *mut usize,
) -> c_int {
    // SAFETY: as in `write`.
    unsafe { answer(valid(datatype, op, true, true), n) }
}

/// A domain's question whether an operation is offered.
pub unsafe extern "C" fn query(
    _domain: *mut fid_domain,
    datatype: fi_datatype,
    op: fi_op,
    attr: *mut fi_atomic_attr,
    flags: u64,
) -> c_int {
    let (fetches, compares) = (flags & FI_FETCH_ATOMIC_ != 0, flags & FI_COMPARE_ATOMIC_ != 0);
    if fetches && compares {
        return failed(FI_EINVAL);
    }
    // On tagged receives' buffers.
    if flags & u64::from(FI_TAGGED) != 0 {
        return failed(FI_EOPNOTSUPP);
    }
    let Some((count, size)) = valid(datatype, op, compares, fetches || compares) else {
        return failed(FI_EOPNOTSUPP);
    };
    // SAFETY: libfabric's contract: null, or a place for the answer.
    if let Some(attr) = unsafe { attr.as_mut() } {
        attr.count = count;
        attr.size = size;
    }
    0
}

const FI_FETCH_ATOMIC_: u64 = 1 << 58;
const FI_COMPARE_ATOMIC_: u64 = 1 << 59;
