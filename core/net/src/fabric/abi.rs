//! Declarations of libfabric's objects, as far as a client with one endpoint needs them.
//!
//! libfabric's calls are functions in tables that its objects point to; only a few are exported
//! (`library.rs`). Objects, tables and attributes grow at their ends only, and the library
//! allocates them, so that a declaration may be shorter than the library's. Structures that this
//! side allocates are declared whole. A test compares the declarations with libfabric's headers.

use std::ffi::{c_char, c_int, c_void};

/// Version of the interface that is asked for: 1.14.
pub const VERSION: u32 = 1 << 16 | 14;

pub const FI_MSG: u64 = 1 << 1;
pub const FI_RECV: u64 = 1 << 10;
pub const FI_SEND: u64 = 1 << 11;
pub const FI_SOURCE: u64 = 1 << 57;
pub const FI_NUMERICHOST: u64 = 1 << 55;
pub const FI_CONTEXT: u64 = 1 << 59;
pub const FI_CONTEXT2: u64 = 1 << 52;
pub const FI_ORDER_SAS: u64 = 1 << 8;
pub const FI_EP_RDM: c_int = 3;
pub const FI_THREAD_SAFE: c_int = 1;
pub const FI_RM_ENABLED: c_int = 2;
pub const FI_MR_LOCAL: c_int = 1 << 2;
pub const FI_MR_VIRT_ADDR: c_int = 1 << 4;
pub const FI_MR_ALLOCATED: c_int = 1 << 5;
pub const FI_MR_PROV_KEY: c_int = 1 << 6;
pub const FI_MR_ENDPOINT: c_int = 1 << 9;
/// Formats of addresses that are IP addresses: `FI_SOCKADDR` to `FI_SOCKADDR_IN6`.
pub const IP_FORMATS: std::ops::RangeInclusive<u32> = 1..=3;
pub const FI_ADDR_UNSPEC: u64 = u64::MAX;
pub const FI_CQ_FORMAT_MSG: c_int = 2;
pub const FI_WAIT_NONE: c_int = 0;
pub const FI_WAIT_FD: c_int = 3;
pub const FI_GETWAIT: c_int = 5;
pub const FI_ENABLE: c_int = 6;
pub const FI_EAGAIN: isize = 11;
pub const FI_ENODATA: c_int = 61;
pub const FI_EAVAIL: isize = 259;
pub const FI_ETRUNC: c_int = 265;

/// Member of a table that this side does not use.
type Unused = *const c_void;

/// `struct fi_info`.
#[repr(C)]
pub struct FabricInfo {
    pub next: *mut FabricInfo,
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addrlen: usize,
    pub dest_addrlen: usize,
    pub src_addr: *mut c_void,
    pub dest_addr: *mut c_void,
    pub handle: *mut Fid,
    pub tx_attr: *mut QueueAttributes,
    pub rx_attr: *mut QueueAttributes,
    pub ep_attr: *mut EndpointAttributes,
    pub domain_attr: *mut DomainAttributes,
    pub fabric_attr: *mut FabricAttributes,
}

/// `struct fi_tx_attr` and `struct fi_rx_attr`, which begin alike.
#[repr(C)]
pub struct QueueAttributes {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    /// `inject_size` or `total_buffered_recv`.
    pub buffered: usize,
    pub size: usize,
}

/// `struct fi_ep_attr`.
#[repr(C)]
pub struct EndpointAttributes {
    pub kind: c_int,
    pub protocol: u32,
    pub protocol_version: u32,
    pub max_msg_size: usize,
    pub msg_prefix_size: usize,
}

/// `struct fi_domain_attr`.
#[repr(C)]
pub struct DomainAttributes {
    pub domain: *mut c_void,
    pub name: *mut c_char,
    pub threading: c_int,
    pub control_progress: c_int,
    pub data_progress: c_int,
    pub resource_mgmt: c_int,
    pub av_type: c_int,
    pub mr_mode: c_int,
}

/// `struct fi_fabric_attr`.
#[repr(C)]
pub struct FabricAttributes {
    pub fabric: *mut c_void,
    pub name: *mut c_char,
    pub prov_name: *mut c_char,
}

/// `struct fid`, with which each object begins.
#[repr(C)]
pub struct Fid {
    pub class: usize,
    pub context: *mut c_void,
    pub ops: *const FidOps,
}

/// `struct fi_ops`.
#[repr(C)]
pub struct FidOps {
    pub size: usize,
    pub close: unsafe extern "C" fn(*mut Fid) -> c_int,
    pub bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    pub control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
}

/// `struct fid_fabric`.
#[repr(C)]
pub struct FidFabric {
    pub fid: Fid,
    pub ops: *const FabricOps,
}

/// `struct fi_ops_fabric`.
#[repr(C)]
pub struct FabricOps {
    pub size: usize,
    pub domain:
        unsafe extern "C" fn(*mut FidFabric, *mut FabricInfo, *mut *mut FidDomain, *mut c_void) -> c_int,
    pub passive_ep: Unused,
    pub eq_open: Unused,
    pub wait_open: Unused,
    pub trywait: unsafe extern "C" fn(*mut FidFabric, *mut *mut Fid, c_int) -> c_int,
}

/// `struct fid_domain`.
#[repr(C)]
pub struct FidDomain {
    pub fid: Fid,
    pub ops: *const DomainOps,
    pub mr: *const MemoryOps,
}

/// `struct fi_ops_domain`.
#[repr(C)]
pub struct DomainOps {
    pub size: usize,
    pub av_open: unsafe extern "C" fn(
        *mut FidDomain,
        *mut AddressAttributes,
        *mut *mut FidAddresses,
        *mut c_void,
    ) -> c_int,
    pub cq_open: unsafe extern "C" fn(
        *mut FidDomain,
        *mut CompletionAttributes,
        *mut *mut FidCq,
        *mut c_void,
    ) -> c_int,
    pub endpoint:
        unsafe extern "C" fn(*mut FidDomain, *mut FabricInfo, *mut *mut FidEndpoint, *mut c_void) -> c_int,
}

/// `struct fi_ops_mr`.
#[repr(C)]
pub struct MemoryOps {
    pub size: usize,
    pub reg: unsafe extern "C" fn(
        *mut Fid,
        *const c_void,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut FidMemory,
        *mut c_void,
    ) -> c_int,
}

/// `struct fid_mr`.
#[repr(C)]
pub struct FidMemory {
    pub fid: Fid,
    pub mem_desc: *mut c_void,
}

/// `struct fi_av_attr`, whole.
#[repr(C)]
pub struct AddressAttributes {
    pub kind: c_int,
    pub rx_ctx_bits: c_int,
    pub count: usize,
    pub ep_per_node: usize,
    pub name: *const c_char,
    pub map_addr: *mut c_void,
    pub flags: u64,
}

/// `struct fid_av`.
#[repr(C)]
pub struct FidAddresses {
    pub fid: Fid,
    pub ops: *const AddressOps,
}

/// `struct fi_ops_av`.
#[repr(C)]
pub struct AddressOps {
    pub size: usize,
    pub insert:
        unsafe extern "C" fn(*mut FidAddresses, *const c_void, usize, *mut u64, u64, *mut c_void) -> c_int,
}

/// `struct fi_cq_attr`, whole.
#[repr(C)]
pub struct CompletionAttributes {
    pub size: usize,
    pub flags: u64,
    pub format: c_int,
    pub wait_obj: c_int,
    pub signaling_vector: c_int,
    pub wait_cond: c_int,
    pub wait_set: *mut c_void,
}

/// `struct fi_cq_msg_entry`, whole.
#[repr(C)]
pub struct CompletionEntry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
}

/// `struct fi_cq_err_entry`, whole, and room for fields of later versions.
#[repr(C)]
pub struct CompletionError {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub olen: usize,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
    pub room: [u64; 8],
}

/// `struct fid_cq`.
#[repr(C)]
pub struct FidCq {
    pub fid: Fid,
    pub ops: *const CompletionOps,
}

/// `struct fi_ops_cq`.
#[repr(C)]
pub struct CompletionOps {
    pub size: usize,
    pub read: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize) -> isize,
    pub readfrom: Unused,
    pub readerr: unsafe extern "C" fn(*mut FidCq, *mut CompletionError, u64) -> isize,
}

/// `struct fid_ep`.
#[repr(C)]
pub struct FidEndpoint {
    pub fid: Fid,
    pub ops: Unused,
    pub cm: *const NameOps,
    pub msg: *const MessageOps,
}

/// `struct fi_ops_cm`.
#[repr(C)]
pub struct NameOps {
    pub size: usize,
    pub setname: Unused,
    pub getname: unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
}

/// `struct fi_ops_msg`.
#[repr(C)]
pub struct MessageOps {
    pub size: usize,
    pub recv:
        unsafe extern "C" fn(*mut FidEndpoint, *mut c_void, usize, *mut c_void, u64, *mut c_void) -> isize,
    pub recvv: Unused,
    pub recvmsg: Unused,
    pub send:
        unsafe extern "C" fn(*mut FidEndpoint, *const c_void, usize, *mut c_void, u64, *mut c_void) -> isize,
}
