//! Names of nodes and services, and addresses as programs hand them in: as bytes, or as
//! text (`FI_ADDR_STR`).

use core::ffi::{CStr, c_char, c_void};
use std::net::{IpAddr, ToSocketAddrs, UdpSocket};

use crate::device::connect::address::{ADDRESS_BYTES, Address};
use crate::device::connect::locator::Locator;
use crate::device::connect::service::Service;

use super::sys::*;

/// Addresses of both ends, as `fi_getinfo` found them.
pub struct EndNames {
    /// Name of an endpoint to be opened here.
    pub source: Option<Locator>,
    /// Name for an address vector.
    pub destination: Option<Locator>,
}

impl EndNames {
    /// Resolution of a program's node and service.
    ///
    /// # Errors
    ///
    /// libfabric's numbers: no such node or service, or arguments that contradict each other.
    ///
    /// # Safety
    ///
    /// The names are null or strings; the addresses in the hints are null, or texts, or as long as
    /// is said.
    pub unsafe fn of(
        node: *const c_char,
        service: *const c_char,
        flags: u64,
        hints: Option<&fi_info>,
        text: bool,
    ) -> Result<EndNames, u32> {
        // SAFETY: the caller's promise.
        let (node, service) = unsafe { (string(node)?, string(service)?) };
        let named = named(node, service, flags & FI_NUMERICHOST != 0)?;
        let is_source = flags & FI_SOURCE != 0;
        if is_source && named.is_none() {
            return Err(FI_EINVAL);
        }
        // SAFETY: the caller's promise.
        let hinted = |address: *mut c_void, len| unsafe { hinted(address, len, text) };
        let source = match (is_source, named) {
            (true, named) => named,
            (false, named) => match hints.map(|h| hinted(h.src_addr, h.src_addrlen)).transpose()?.flatten() {
                // An endpoint that asks for a peer has an address, whatever it will be.
                None if named.is_some() => Some(Locator::Service(Service::ANY)),
                source => source,
            },
        };
        // An endpoint's own address belongs to that endpoint alone.
        if matches!(source, Some(Locator::Endpoint(_))) {
            return Err(FI_ENODATA);
        }
        let destination = match (is_source, named) {
            (false, Some(named)) => Some(named),
            _ => hints.map(|h| hinted(h.dest_addr, h.dest_addrlen)).transpose()?.flatten(),
        };
        let destination = destination.map(|to| resolve(to).map(Locator::Endpoint).ok_or(FI_ENODATA));
        Ok(EndNames { source, destination: destination.transpose()? })
    }
}

/// The endpoint that an address leads to.
pub fn resolve(to: Locator) -> Option<Address> {
    to.resolve().unwrap_or_else(|why| {
        crate::remark!(
            "towpath: no service can be found: /proc/net/unix can't be read ({why}): is /proc mounted?"
        );
        None
    })
}

/// Addresses that node and service stand for; none if neither is given.
///
/// # Errors
///
/// libfabric's numbers: another node, no name of a service, a text and a service.
pub fn named(node: Option<&str>, service: Option<&str>, numeric: bool) -> Result<Option<Locator>, u32> {
    let (node, locator) = match (node, service) {
        (None, None) => return Ok(None),
        (Some(text), None) if text.contains("://") => Locator::from_text(text).ok_or(FI_ENODATA)?,
        (Some(text), Some(_)) if text.contains("://") => return Err(FI_EINVAL),
        (node, service) => {
            let service = Service::new(service.unwrap_or_default()).ok_or(FI_ENODATA)?;
            (node.unwrap_or_default(), Locator::Service(service))
        }
    };
    if is_here(node, numeric) { Ok(Some(locator)) } else { Err(FI_ENODATA) }
}

/// Returns whether a node is this one. `numeric`: its name is a number, and no name
/// service is asked.
fn is_here(node: &str, numeric: bool) -> bool {
    if node.is_empty() {
        return true;
    }
    let bare = node.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(node);
    // Without its zone (`fe80::1%eth0`).
    if let Ok(number) = bare.split('%').next().unwrap_or(bare).parse::<IpAddr>() {
        return is_own(number);
    }
    if numeric {
        return false;
    }
    let is_named = node.eq_ignore_ascii_case("localhost")
        || rustix::system::uname().nodename().to_str().is_ok_and(|own| own.eq_ignore_ascii_case(node));
    is_named || (node, 0).to_socket_addrs().is_ok_and(|mut found| found.any(|address| is_own(address.ip())))
}

/// Returns whether a network address is one of this node's: others can't be bound to.
fn is_own(address: IpAddr) -> bool {
    let is_link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    // One of those can't be bound to without its zone.
    address.is_loopback()
        || address.is_unspecified()
        || !is_link_local && UdpSocket::bind((address, 0)).is_ok()
}

/// # Safety
///
/// It is null or a string, which stays.
pub unsafe fn string<'a>(text: *const c_char) -> Result<Option<&'a str>, u32> {
    // SAFETY: the caller's promise.
    let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
    // No name of ours has other characters.
    text.map(|text| text.to_str().map_err(|_| FI_ENODATA)).transpose()
}

/// An address among the hints.
unsafe fn hinted(address: *mut c_void, len: usize, text: bool) -> Result<Option<Locator>, u32> {
    if address.is_null() {
        return Ok(None);
    }
    if !text && len < ADDRESS_BYTES {
        return Err(FI_ENODATA);
    }
    // SAFETY: the caller's promise.
    unsafe { read(address, text) }.ok_or(FI_ENODATA).map(Some)
}

/// An address as a program has it; `None` if it is none of ours.
///
/// # Safety
///
/// It is a text, or has [`ADDRESS_BYTES`].
pub unsafe fn read(address: *const c_void, text: bool) -> Option<Locator> {
    // SAFETY: the caller's promise.
    unsafe {
        if text {
            return named(string(address.cast()).ok()?, None, false).ok()?;
        }
        Locator::from_bytes(&address.cast::<[u8; ADDRESS_BYTES]>().read_unaligned())
    }
}
