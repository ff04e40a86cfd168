//! Offers of the provider, for the hints of a program.

use core::ffi::{c_char, c_int, c_void};

use crate::device::connect::address::ADDRESS_BYTES;
use crate::device::connect::layout::BLOCK;
use crate::device::connect::locator::Locator;
use crate::device::protocol::frame::LONGEST;
use crate::device::resource::buffers::MAX_PIECES;
use crate::device::tune::settings::INJECT;

use super::attributes::{
    CAPS, DOMAIN, FABRIC, FORMAT, MESSAGES, ONE_SIDED, PROTOCOL, PROTOCOL_VERSION, RECEIVE, TRANSMIT, VERSION,
};
use super::names::EndNames;
use super::sys::*;
use super::{failed, hints};

/// The capabilities that are asked for, or all.
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

/// Zeroed memory from libc, for the core to free; more than the type needs, since a newer
/// core copies as much as its own type has.
unsafe fn part<T>() -> *mut T {
    // SAFETY: all-zero is a valid value of these plain C structures.
    unsafe { libc::calloc(1, size_of::<T>() + 256).cast() }
}

/// Gives out an address, in memory from libc. Returns its length; without an address,
/// that of all but texts.
unsafe fn give(end: Option<Locator>, text: bool, place: &mut *mut c_void) -> usize {
    let Some(end) = end else { return if text { 0 } else { ADDRESS_BYTES } };
    let bytes = if text { format!("{}\0", end.to_text()).into_bytes() } else { end.to_bytes().to_vec() };
    // SAFETY: new memory of that length, unless there is none.
    unsafe {
        let memory = libc::malloc(bytes.len()).cast::<u8>();
        if memory.is_null() {
            return 0;
        }
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), memory, bytes.len());
        *place = memory.cast();
    }
    bytes.len()
}

/// `fi_getinfo`.
pub unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    info: *mut *mut fi_info,
) -> c_int {
    // SAFETY: `fi_getinfo(3)`: names are null or strings, `hints` is null or valid with its
    // parts; `info` is a place for the answer.
    unsafe {
        let hints = hints.as_ref();
        if info.is_null() {
            return failed(FI_EINVAL);
        }
        if hints.is_some_and(|hints| !hints::fit(hints)) {
            return failed(FI_ENODATA);
        }
        let text = hints.is_some_and(|hints| hints.addr_format == FI_ADDR_STR);
        let ends = match EndNames::of(node, service, flags, hints, text) {
            Ok(ends) => ends,
            Err(errno) => return failed(errno),
        };
        let out: *mut fi_info = part();
        let tx: *mut fi_tx_attr = part();
        let rx: *mut fi_rx_attr = part();
        let ep: *mut fi_ep_attr = part();
        let domain: *mut fi_domain_attr = part();
        let fabric: *mut fi_fabric_attr = part();
        let parts = [out.cast::<c_void>(), tx.cast(), rx.cast(), ep.cast(), domain.cast(), fabric.cast()];
        if parts.iter().any(|p| p.is_null()) {
            parts.iter().for_each(|p| libc::free(*p));
            return failed(FI_ENOMEM);
        }
        let caps = wanted(hints.map_or(0, |h| h.caps), CAPS);
        (*out).caps = caps;
        (*out).addr_format = if text { FI_ADDR_STR } else { FORMAT };
        (*out).src_addrlen = give(ends.source, text, &mut (*out).src_addr);
        (*out).dest_addrlen = give(ends.destination, text, &mut (*out).dest_addr);
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
        // Without a limit: an operation without space is refused, and tried again.
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
        (*ep).protocol_version = PROTOCOL_VERSION;
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
        (*domain).cq_cnt = hint_domain.map_or(0, |h| h.cq_cnt).max(1024);
        (*domain).ep_cnt = hint_domain.map_or(0, |h| h.ep_cnt).max(1024);
        (*domain).tx_ctx_cnt = hint_domain.map_or(0, |h| h.tx_ctx_cnt).max(1024);
        (*domain).rx_ctx_cnt = hint_domain.map_or(0, |h| h.rx_ctx_cnt).max(1024);
        (*domain).max_ep_tx_ctx = 1;
        (*domain).max_ep_rx_ctx = 1;
        (*domain).cntr_cnt = hint_domain.map_or(0, |h| h.cntr_cnt).max(1024);
        (*domain).mr_iov_limit = 1;
        (*domain).mr_cnt = hint_domain.map_or(0, |h| h.mr_cnt).max(1 << 20);
        (*domain).caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
        (*domain).tclass = hint_domain.map_or(0, |h| h.tclass);

        (*fabric).name = libc::strdup(FABRIC.as_ptr());
        (*fabric).prov_version = VERSION;
        (*fabric).api_version = version;
        *info = out;
    }
    0
}
