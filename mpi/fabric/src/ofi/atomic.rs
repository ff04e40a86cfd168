//! Atomic operations on memory of others.

use core::ffi::{c_int, c_void};

use crate::device::resource::buffers::{Buffer, MAX_PIECES};
use crate::device::resource::completion::Class;
use crate::device::rma::atomics::{Atomic, AtomicOp, LONGEST, Type, is_valid};

use super::entry::{Context, Desc, Descs, In, Out, entries};
use super::ep::Ep;
use super::failed;
use super::message::parts;
use super::rma::RemotePlace;
use super::sys::*;

entries! {
    /// Atomic operations.
    OPS, LATER: fi_ops_atomic [writevalid readwritevalid compwritevalid];
    write |ep, buf: In, count: usize, _desc: Desc, of: fi_addr_t, addr: u64, key: u64,
           datatype: fi_datatype, op: fi_op, context: Context| {
        let what = AtomicOperation { datatype, op, at: RemotePlace { of, addr, key }, context, flags: tx(ep) };
        start(ep, what, &[single(buf, count)], &[], &[])
    };
    writev |ep, iov: *const fi_ioc, _descs: Descs, count: usize, of: fi_addr_t, addr: u64, key: u64,
            datatype: fi_datatype, op: fi_op, context: Context| {
        let what = AtomicOperation { datatype, op, at: RemotePlace { of, addr, key }, context, flags: tx(ep) };
        start(ep, what, pieces(iov, count), &[], &[])
    };
    writemsg |ep, msg: *const fi_msg_atomic, flags: u64| start_message(ep, msg, &[], &[], flags)?;
    inject |ep, buf: In, count: usize, of: fi_addr_t, addr: u64, key: u64, datatype: fi_datatype, op: fi_op| {
        let context = core::ptr::null_mut();
        let what = AtomicOperation { datatype, op, at: RemotePlace { of, addr, key }, context, flags: None };
        start(ep, what, &[single(buf, count)], &[], &[])
    };
    readwrite |ep, buf: In, count: usize, _desc: Desc, result: Out, _result_desc: Desc, of: fi_addr_t,
               addr: u64, key: u64, datatype: fi_datatype, op: fi_op, context: Context| {
        let what = AtomicOperation { datatype, op, at: RemotePlace { of, addr, key }, context, flags: tx(ep) };
        start(ep, what, &[single(buf, count)], &[], &[single(result, count)])
    };
    readwritev |ep, iov: *const fi_ioc, _descs: Descs, count: usize, resultv: *mut fi_ioc,
                _result_descs: Descs, result_count: usize, of: fi_addr_t, addr: u64, key: u64,
                datatype: fi_datatype, op: fi_op, context: Context| {
        let what = AtomicOperation { datatype, op, at: RemotePlace { of, addr, key }, context, flags: tx(ep) };
        start(ep, what, pieces(iov, count), &[], pieces(resultv, result_count))
    };
    readwritemsg |ep, msg: *const fi_msg_atomic, resultv: *mut fi_ioc, _result_descs: Descs,
                  result_count: usize, flags: u64|
        start_message(ep, msg, &[], pieces(resultv, result_count), flags)?;
    compwrite |ep, buf: In, count: usize, _desc: Desc, compare: In, _compare_desc: Desc, result: Out,
               _result_desc: Desc, of: fi_addr_t, addr: u64, key: u64, datatype: fi_datatype, op: fi_op,
               context: Context| {
        let what = AtomicOperation { datatype, op, at: RemotePlace { of, addr, key }, context, flags: tx(ep) };
        start(ep, what, &[single(buf, count)], &[single(compare, count)], &[single(result, count)])
    };
    compwritev |ep, iov: *const fi_ioc, _descs: Descs, count: usize, comparev: *const fi_ioc,
                _compare_descs: Descs, compare_count: usize, resultv: *mut fi_ioc, _result_descs: Descs,
                result_count: usize, of: fi_addr_t, addr: u64, key: u64, datatype: fi_datatype, op: fi_op,
                context: Context| {
        let what = AtomicOperation { datatype, op, at: RemotePlace { of, addr, key }, context, flags: tx(ep) };
        let (compare, result) = (pieces(comparev, compare_count), pieces(resultv, result_count));
        start(ep, what, pieces(iov, count), compare, result)
    };
    compwritemsg |ep, msg: *const fi_msg_atomic, comparev: *const fi_ioc, _compare_descs: Descs,
                  compare_count: usize, resultv: *mut fi_ioc, _result_descs: Descs, result_count: usize,
                  flags: u64| {
        let (compare, result) = (pieces(comparev, compare_count), pieces(resultv, result_count));
        start_message(ep, msg, compare, result, flags)?
    };
}

/// An operation, but for its elements.
struct AtomicOperation {
    datatype: fi_datatype,
    op: fi_op,
    at: RemotePlace,
    context: Context,
    /// `None`: the operand is the caller's again at once, and only errors are reported.
    flags: Option<u64>,
}

/// The endpoint's own flags.
///
/// # Safety
///
/// `ep` is an open endpoint.
unsafe fn tx(ep: *mut fid_ep) -> Option<u64> {
    // SAFETY: the caller's promise.
    Some(unsafe { Ep::tx_flags(ep) })
}

/// Elements in the caller's memory.
type Pieces<'a> = &'a [fi_ioc];

/// Stands for more pieces than an operation takes, and for missing ones: a piece that is
/// refused.
const NONSENSE: fi_ioc = fi_ioc { addr: core::ptr::null_mut(), count: 1 };

unsafe fn pieces<'a>(iov: *const fi_ioc, count: usize) -> Pieces<'a> {
    match count {
        0 => &[],
        _ if iov.is_null() || count > MAX_PIECES => core::slice::from_ref(const { &NONSENSE }),
        // SAFETY: `fi_atomic(3)`: the caller passes as many pieces.
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
    // SAFETY: `fi_atomic(3)`: the caller passes elements that stay until the completion.
    unsafe { Buffer::many(pieces.iter().map(|p| (p.addr as usize, p.count.saturating_mul(size)))) }
}

/// Starts an operation.
///
/// # Safety
///
/// `ep` is an open endpoint; all elements stay as long as the operation needs them.
unsafe fn start(
    ep: *mut fid_ep,
    what: AtomicOperation,
    operand: Pieces<'_>,
    compare: Pieces<'_>,
    result: Pieces<'_>,
) -> isize {
    let kinds = (AtomicOp::from_number(what.op.into()), Type::from_number(what.datatype.into()));
    let (Some(op), Some(of)) = kinds else { return failed(FI_EOPNOTSUPP) as isize };
    if !is_valid(op, of) {
        return failed(FI_EOPNOTSUPP) as isize;
    }
    let fetches = !result.is_empty();
    let n = if op == AtomicOp::Read { count(result) } else { count(operand) };
    // SAFETY: the caller's promise; the domain outlives its endpoints.
    unsafe {
        let bytes = |pieces| buffer(pieces, of.size());
        let operand = if op == AtomicOp::Read { Some(Buffer::default()) } else { bytes(operand) };
        let (Some(operand), Some(compare), Some(result)) = (operand, bytes(compare), bytes(result)) else {
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
            target: ep.target(what.at.of, what.at.addr, what.at.key),
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

/// Starts an operation from a message: one remote piece, as long as the local ones.
///
/// # Errors
///
/// The call's result: the message makes no sense.
///
/// # Safety
///
/// As for [`start`]; the message is null or readable, and so is what it points to.
unsafe fn start_message(
    ep: *mut fid_ep,
    msg: *const fi_msg_atomic,
    compare: Pieces<'_>,
    result: Pieces<'_>,
    flags: u64,
) -> Result<isize, isize> {
    // SAFETY: the caller's promise.
    unsafe {
        let m = parts(msg, flags)?;
        // On a tagged receive's buffer.
        if flags & u64::from(FI_TAGGED) != 0 {
            return Err(failed(FI_EOPNOTSUPP) as isize);
        }
        let (operand, remote) = (pieces(m.msg_iov, m.iov_count), m.rma_iov.as_ref());
        let remote = remote.filter(|_| m.rma_iov_count == 1).ok_or(failed(FI_EINVAL) as isize)?;
        let at = RemotePlace { of: m.addr, addr: remote.addr, key: remote.key };
        let what =
            AtomicOperation { datatype: m.datatype, op: m.op, at, context: m.context, flags: Some(flags) };
        Ok(start(ep, what, operand, compare, result))
    }
}

/// Maximum number of elements of an operation, and their size; `None` if there is no such
/// operation.
fn valid(datatype: fi_datatype, op: fi_op, compares: bool, fetches: bool) -> Option<(usize, usize)> {
    let (op, of) = (AtomicOp::from_number(op.into())?, Type::from_number(datatype.into())?);
    let fits = is_valid(op, of) && op.compares() == compares && (op != AtomicOp::Read || fetches);
    fits.then(|| (LONGEST / of.size(), of.size()))
}

unsafe fn answer(found: Option<(usize, usize)>, count: *mut usize) -> c_int {
    let Some((most, _)) = found else { return failed(FI_EOPNOTSUPP) };
    // SAFETY: `fi_atomic(3)`: the caller passes null, or a place for the answer.
    if let Some(count) = unsafe { count.as_mut() } {
        *count = most;
    }
    0
}

unsafe extern "C" fn writevalid(_: *mut fid_ep, datatype: fi_datatype, op: fi_op, n: *mut usize) -> c_int {
    // SAFETY: `fi_atomic(3)`: `n` is null, or a place for the answer.
    unsafe { answer(valid(datatype, op, false, false), n) }
}

unsafe extern "C" fn readwritevalid(
    _: *mut fid_ep,
    datatype: fi_datatype,
    op: fi_op,
    n: *mut usize,
) -> c_int {
    // SAFETY: `fi_atomic(3)`: `n` is null, or a place for the answer.
    unsafe { answer(valid(datatype, op, false, true), n) }
}

unsafe extern "C" fn compwritevalid(
    _: *mut fid_ep,
    datatype: fi_datatype,
    op: fi_op,
    n: *mut usize,
) -> c_int {
    // SAFETY: `fi_atomic(3)`: `n` is null, or a place for the answer.
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
    // SAFETY: `fi_atomic(3)`: the caller passes null, or a place for the answer.
    if let Some(attr) = unsafe { attr.as_mut() } {
        attr.count = count;
        attr.size = size;
    }
    0
}

const FI_FETCH_ATOMIC_: u64 = 1 << 58;
const FI_COMPARE_ATOMIC_: u64 = 1 << 59;
