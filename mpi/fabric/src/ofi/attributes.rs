//! Attributes of the provider: names, versions, capabilities.

use core::ffi::CStr;

use super::sys::*;

/// The provider's name.
pub const NAME: &CStr = c"towpath";
/// The fabric's.
pub const FABRIC: &CStr = c"towpath";
/// The domain's.
pub const DOMAIN: &CStr = c"towpath-shm";
/// The provider's version.
pub const VERSION: u32 = 1 << 16;
/// The format of addresses: our own.
pub const FORMAT: u32 = 1 << 31 | 0x7477;
/// Number of the provider's protocol.
pub const PROTOCOL: u32 = 1 << 31 | 0x7477;
/// Its version.
pub const PROTOCOL_VERSION: u32 = 1;

pub const MESSAGES: u64 = (FI_MSG | FI_TAGGED) as u64;
pub const ONE_SIDED: u64 = (FI_RMA | FI_ATOMIC) as u64;
pub const TRANSMIT: u64 = MESSAGES | ONE_SIDED | (FI_SEND | FI_READ | FI_WRITE) as u64;
pub const RECEIVE: u64 = MESSAGES
    | ONE_SIDED
    | (FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_MULTI_RECV) as u64
    | FI_SOURCE
    | FI_DIRECTED_RECV
    | FI_RMA_EVENT;
pub const CAPS: u64 = TRANSMIT | RECEIVE | FI_LOCAL_COMM | FI_REMOTE_COMM;
pub const ORDER: u64 = FI_ORDER_STRICT as u64
    | FI_ORDER_RMA_RAW
    | FI_ORDER_RMA_WAW
    | FI_ORDER_ATOMIC_RAR
    | FI_ORDER_ATOMIC_RAW
    | FI_ORDER_ATOMIC_WAR
    | FI_ORDER_ATOMIC_WAW
    | FI_ORDER_RMA_RAR
    | FI_ORDER_RMA_WAR;
pub const TX_FLAGS: u64 = (FI_COMPLETION
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_MATCH_COMPLETE) as u64;
pub const RX_FLAGS: u64 = (FI_COMPLETION | FI_MULTI_RECV) as u64;
