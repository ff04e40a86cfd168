//! Check of a program's hints: whether the provider can do as they ask.

use core::ffi::CStr;

use crate::device::connect::layout::BLOCK;
use crate::device::protocol::frame::LONGEST;
use crate::device::resource::buffers::MAX_PIECES;
use crate::device::tune::settings::INJECT;

use super::attributes::{
    CAPS, DOMAIN, FABRIC, FORMAT, ORDER, PROTOCOL, PROTOCOL_VERSION, RX_FLAGS, TX_FLAGS,
};
use super::sys::*;

/// Returns whether the provider can do all that the hints ask for. A zero asks for
/// nothing.
///
/// # Safety
///
/// Each part is null or valid.
pub unsafe fn fit(hints: &fi_info) -> bool {
    let formats = [FI_FORMAT_UNSPEC, FI_ADDR_STR, FORMAT];
    // SAFETY: the caller's promise.
    unsafe {
        hints.caps & !CAPS == 0
            && formats.contains(&hints.addr_format)
            && hints.ep_attr.as_ref().is_none_or(endpoint_fits)
            && hints.domain_attr.as_ref().is_none_or(|domain| domain_fits(domain))
            && hints.fabric_attr.as_ref().is_none_or(|fabric| is_named(fabric.name, FABRIC))
            && hints.tx_attr.as_ref().is_none_or(transmit_fits)
            && hints.rx_attr.as_ref().is_none_or(receive_fits)
    }
}

/// Returns whether a name is the provider's, or none.
unsafe fn is_named(name: *const core::ffi::c_char, ours: &CStr) -> bool {
    // SAFETY: `fi_getinfo(3)`: the caller passes null or a string.
    name.is_null() || unsafe { CStr::from_ptr(name) } == ours
}

fn endpoint_fits(ep: &fi_ep_attr) -> bool {
    [FI_EP_UNSPEC, FI_EP_RDM].contains(&ep.type_)
        && ep.tx_ctx_cnt <= 1
        && ep.rx_ctx_cnt <= 1
        && [FI_PROTO_UNSPEC, PROTOCOL].contains(&ep.protocol)
        && [0, PROTOCOL_VERSION].contains(&ep.protocol_version)
        && ep.max_msg_size <= LONGEST
        && ep.msg_prefix_size == 0
        && ep.max_order_raw_size <= usize::MAX >> 1
        && ep.max_order_war_size <= BLOCK
        && ep.max_order_waw_size <= usize::MAX >> 1
        && ep.auth_key_size == 0
}

/// `FI_PROGRESS_CONTROL_UNIFIED` of newer versions: control operations progress with
/// data.
const UNIFIED: fi_progress = 3;

unsafe fn domain_fits(domain: &fi_domain_attr) -> bool {
    // Addresses as the owner has them, and keys of the provider's choice.
    let is_basic = domain.mr_mode & FI_MR_BASIC as i32 != 0;
    // SAFETY: `fi_getinfo(3)` (structures): a name is null or a string.
    let is_ours = unsafe { is_named(domain.name, DOMAIN) };
    is_ours
        && domain.threading <= FI_THREAD_ENDPOINT
        && [FI_PROGRESS_UNSPEC, FI_PROGRESS_MANUAL].contains(&domain.data_progress)
        && [FI_PROGRESS_UNSPEC, FI_PROGRESS_MANUAL, UNIFIED].contains(&domain.control_progress)
        && domain.resource_mgmt <= FI_RM_ENABLED
        && domain.av_type <= FI_AV_TABLE
        && !is_basic
        && domain.mr_key_size <= 8
        && domain.cq_data_size <= 8
        && domain.max_ep_tx_ctx <= 1
        && domain.max_ep_rx_ctx <= 1
        && domain.max_ep_stx_ctx == 0
        && domain.max_ep_srx_ctx == 0
        && domain.mr_iov_limit <= 1
        && domain.max_err_data == 0
        && domain.auth_key_size == 0
        && domain.caps & !CAPS == 0
}

fn transmit_fits(tx: &fi_tx_attr) -> bool {
    tx.caps & !CAPS == 0
        && tx.inject_size <= INJECT
        && tx.iov_limit <= MAX_PIECES
        && tx.rma_iov_limit <= 1
        && tx.msg_order & !ORDER == 0
        && tx.comp_order == 0
        && tx.op_flags & !TX_FLAGS == 0
}

fn receive_fits(rx: &fi_rx_attr) -> bool {
    rx.caps & !CAPS == 0
        && rx.iov_limit <= MAX_PIECES
        && rx.msg_order & !ORDER == 0
        && rx.comp_order == 0
        && rx.op_flags & !RX_FLAGS == 0
}
