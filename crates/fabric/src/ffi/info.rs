//! What the provider offers, and to which hints.

use core::ffi::{CStr, c_char, c_int};

use crate::engine::address::ADDRESS_BYTES;
use crate::engine::buffers::MAX_PIECES;
use crate::engine::layout::BLOCK;
use crate::engine::settings::INJECT;

use super::failed;
use super::sys::*;

/// The provider's name.
pub const NAME: &CStr = c"towpath";
/// The fabric's.
pub const FABRIC: &CStr = c"towpath";
/// The domain's.
const DOMAIN: &CStr = c"towpath-shm";
/// The provider's version.
pub const VERSION: u32 = 1 << 16;
/// The format of addresses: our own.
const FORMAT: u32 = 1 << 31 | 0x7477;
/// And what is spoken.
const PROTOCOL: u32 = 1 << 31 | 0x7477;
/// The longest message.
const LONGEST: usize = 1 << 46;

const MESSAGES: u64 = (FI_MSG | FI_TAGGED) as u64;
const ONE_SIDED: u64 = (FI_RMA | FI_ATOMIC) as u64;
const TRANSMIT: u64 = MESSAGES | ONE_SIDED | (FI_SEND | FI_READ | FI_WRITE) as u64;
const RECEIVE: u64 = MESSAGES
    | ONE_SIDED
    | (FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_MULTI_RECV) as u64
    | FI_SOURCE
    | FI_DIRECTED_RECV
    | FI_RMA_EVENT;
const CAPS: u64 = TRANSMIT | RECEIVE | FI_LOCAL_COMM | FI_REMOTE_COMM;
const ORDER: u64 = FI_ORDER_STRICT as u64
    | FI_ORDER_RMA_RAW
    | FI_ORDER_RMA_WAW
    | FI_ORDER_ATOMIC_RAR
    | FI_ORDER_ATOMIC_RAW
    | FI_ORDER_ATOMIC_WAR
    | FI_ORDER_ATOMIC_WAW
    | FI_ORDER_RMA_RAR
    | FI_ORDER_RMA_WAR;
const TX_FLAGS: u64 = (FI_COMPLETION
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_MATCH_COMPLETE) as u64;
const RX_FLAGS: u64 = (FI_COMPLETION | FI_MULTI_RECV) as u64;

/// Whether the provider can do what is asked for.
unsafe fn fits(hints: &fi_info) -> bool {
    if hints.caps & !CAPS != 0 {
        return false;
    }
    if hints.addr_format != FI_FORMAT_UNSPEC && hints.addr_format != FORMAT {
        return false;
    }
    // SAFETY: libfabric's contract: each part is null or valid.
    unsafe {
        if let Some(ep) = hints.ep_attr.as_ref()
            && (ep.type_ != FI_EP_UNSPEC && ep.type_ != FI_EP_RDM
                || ep.tx_ctx_cnt > 1
                || ep.rx_ctx_cnt > 1
                || ep.protocol != FI_PROTO_UNSPEC && ep.protocol != PROTOCOL
                || ep.max_msg_size > LONGEST)
        {
            return false;
        }
        if let Some(domain) = hints.domain_attr.as_ref() {
            if domain.data_progress == FI_PROGRESS_AUTO || domain.control_progress == FI_PROGRESS_AUTO {
                return false;
            }
            if domain.cq_data_size > 8 || domain.mr_key_size > 8 || domain.caps & !(CAPS | FI_LOCAL_COMM) != 0
            {
                return false;
            }
            if !domain.name.is_null() && CStr::from_ptr(domain.name) != DOMAIN {
                return false;
            }
        }
        if let Some(fabric) = hints.fabric_attr.as_ref()
            && !fabric.name.is_null()
            && CStr::from_ptr(fabric.name) != FABRIC
        {
            return false;
        }
        if let Some(tx) = hints.tx_attr.as_ref()
            && (tx.caps & !CAPS != 0
                || tx.inject_size > INJECT
                || tx.iov_limit > MAX_PIECES
                || tx.rma_iov_limit > 1
                || tx.msg_order & !ORDER != 0
                || tx.op_flags & !(TX_FLAGS) != 0)
        {
            return false;
        }
        if let Some(rx) = hints.rx_attr.as_ref()
            && (rx.caps & !CAPS != 0
                || rx.iov_limit > MAX_PIECES
                || rx.msg_order & !ORDER != 0
                || rx.op_flags & !(RX_FLAGS) != 0)
        {
            return false;
        }
    }
    true
}

/// What is asked for, or everything.
fn wanted(asked: u64, all: u64) -> u64 {
    let mut caps = if asked == 0 { all } else { asked };
    // Primary capabilities imply their modifiers, unless some were chosen.
    if caps & MESSAGES != 0 && caps & (FI_SEND | FI_RECV) as u64 == 0 {
        caps |= (FI_SEND | FI_RECV) as u64;
    }
    let modifiers = (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE) as u64;
    if caps & ONE_SIDED != 0 && caps & modifiers == 0 {
        caps |= modifiers;
    }
    (caps | FI_LOCAL_COMM | FI_REMOTE_COMM) & all
}

/// Zeroed memory from libc, for the core to free; more than the type needs, since a newer core copies as much as its own type has.
unsafe fn part<T>() -> *mut T {
    // SAFETY: all-zero is a valid value of these plain C structures.
    unsafe { libc::calloc(1, size_of::<T>() + 256).cast() }
}

pub unsafe extern "C" fn getinfo(
    version: u32,
    _node: *const c_char,
    _service: *const c_char,
    _flags: u64,
    hints: *const fi_info,
    info: *mut *mut fi_info,
) -> c_int {
    // SAFETY: libfabric's contract: `hints` is null or valid with its parts; `info` is a place for the answer.
    unsafe {
        let hints = hints.as_ref();
        if hints.is_some_and(|hints| !fits(hints)) {
            return failed(FI_ENODATA);
        }
        let out: *mut fi_info = part();
        let tx: *mut fi_tx_attr = part();
        let rx: *mut fi_rx_attr = part();
        let ep: *mut fi_ep_attr = part();
        let domain: *mut fi_domain_attr = part();
        let fabric: *mut fi_fabric_attr = part();
        if [out.cast::<u8>(), tx.cast(), rx.cast(), ep.cast(), domain.cast(), fabric.cast()]
            .iter()
            .any(|p| p.is_null())
        {
            return failed(FI_ENOMEM);
        }
        let caps = wanted(hints.map_or(0, |h| h.caps), CAPS);
        (*out).caps = caps;
        (*out).addr_format = FORMAT;
        (*out).src_addrlen = ADDRESS_BYTES;
        (*out).dest_addrlen = ADDRESS_BYTES;
        (*out).tx_attr = tx;
        (*out).rx_attr = rx;
        (*out).ep_attr = ep;
        (*out).domain_attr = domain;
        (*out).fabric_attr = fabric;

        let hint_tx = hints.and_then(|h| h.tx_attr.as_ref());
        let hint_rx = hints.and_then(|h| h.rx_attr.as_ref());
        let hint_domain = hints.and_then(|h| h.domain_attr.as_ref());
        let hint_ep = hints.and_then(|h| h.ep_attr.as_ref());

        (*tx).caps = caps & TRANSMIT;
        (*tx).op_flags = hint_tx.map_or(0, |h| h.op_flags);
        (*tx).msg_order = hint_tx.map_or(0, |h| h.msg_order) | FI_ORDER_SAS as u64;
        (*tx).inject_size = INJECT;
        // As many as somebody wants: what has no space is refused, and comes again.
        (*tx).size = hint_tx.map_or(0, |h| h.size).max(4096);
        (*tx).iov_limit = MAX_PIECES;
        (*tx).rma_iov_limit = 1;
        (*tx).tclass = hint_tx.map_or(0, |h| h.tclass);

        (*rx).caps = caps & RECEIVE;
        (*rx).op_flags = hint_rx.map_or(0, |h| h.op_flags);
        (*rx).msg_order = hint_rx.map_or(0, |h| h.msg_order) | FI_ORDER_SAS as u64;
        (*rx).size = hint_rx.map_or(0, |h| h.size).max(65536);
        (*rx).iov_limit = MAX_PIECES;

        (*ep).type_ = FI_EP_RDM;
        (*ep).protocol = PROTOCOL;
        (*ep).protocol_version = 1;
        (*ep).max_msg_size = LONGEST;
        (*ep).max_order_raw_size = usize::MAX >> 1;
        (*ep).max_order_war_size = BLOCK;
        (*ep).max_order_waw_size = usize::MAX >> 1;
        (*ep).mem_tag_format = match hint_ep.map_or(0, |h| h.mem_tag_format) {
            0 => u64::MAX,
            format => format,
        };
        (*ep).tx_ctx_cnt = 1;
        (*ep).rx_ctx_cnt = 1;

        (*domain).name = libc::strdup(DOMAIN.as_ptr());
        (*domain).threading = match hint_domain.map_or(FI_THREAD_UNSPEC, |h| h.threading) {
            FI_THREAD_UNSPEC => FI_THREAD_SAFE,
            asked => asked,
        };
        (*domain).control_progress = match hint_domain.map_or(0, |h| h.control_progress) {
            FI_PROGRESS_UNSPEC => FI_PROGRESS_MANUAL,
            asked => asked,
        };
        (*domain).data_progress = FI_PROGRESS_MANUAL;
        (*domain).resource_mgmt = FI_RM_ENABLED;
        (*domain).av_type = match hint_domain.map_or(FI_AV_UNSPEC, |h| h.av_type) {
            FI_AV_UNSPEC => FI_AV_TABLE,
            asked => asked,
        };
        // Before API 1.5 a mode had to be named.
        (*domain).mr_mode = if version < 1 << 16 | 5 { FI_MR_SCALABLE as c_int } else { 0 };
        (*domain).mr_key_size = 8;
        (*domain).cq_data_size = 8;
        (*domain).cq_cnt = 1024;
        (*domain).ep_cnt = 1024;
        (*domain).tx_ctx_cnt = 1024;
        (*domain).rx_ctx_cnt = 1024;
        (*domain).max_ep_tx_ctx = 1;
        (*domain).max_ep_rx_ctx = 1;
        (*domain).cntr_cnt = 1024;
        (*domain).mr_iov_limit = 1;
        (*domain).mr_cnt = 1 << 20;
        (*domain).caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
        (*domain).tclass = hint_domain.map_or(0, |h| h.tclass);

        (*fabric).name = libc::strdup(FABRIC.as_ptr());
        (*fabric).prov_version = VERSION;
        (*fabric).api_version = version;
        *info = out;
    }
    0
}
