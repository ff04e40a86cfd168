//! Objects of libfabric, and the search for a provider's endpoint.

use std::ffi::{CString, c_int};
use std::fmt;
use std::net::IpAddr;
use std::ptr::{NonNull, null, null_mut};

use super::abi::*;
use super::endpoint::MESSAGE;
use super::library::FabricLibrary;

/// Kinds of memory registration that this client can do.
const MEMORY_MODES: c_int = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;

/// Object of libfabric, closed with its handle.
pub struct FabricObject<T>(pub NonNull<T>);

impl<T> fmt::Debug for FabricObject<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FabricObject({:p})", self.0)
    }
}

impl<T> FabricObject<T> {
    /// Takes over an object that a call of libfabric makes.
    ///
    /// # Safety
    ///
    /// * `open` leaves an object of type `T`, which begins with a [`Fid`], if it returns 0.
    /// * What the object depends on outlives it.
    pub unsafe fn open(
        library: &FabricLibrary,
        what: &str,
        open: impl FnOnce(*mut *mut T) -> c_int,
    ) -> Result<FabricObject<T>, String> {
        let mut object = null_mut();
        check(library, what, open(&mut object))?;
        NonNull::new(object).map(FabricObject).ok_or_else(|| format!("{what}: libfabric made nothing"))
    }

    pub fn fid(&self) -> *mut Fid {
        self.0.as_ptr().cast()
    }
}

impl<T> Drop for FabricObject<T> {
    fn drop(&mut self) {
        // SAFETY: the object begins with a `Fid`, and was not closed.
        unsafe { ((*(*self.fid()).ops).close)(self.fid()) };
    }
}

/// Returns an error that names the call, unless it returned 0.
pub fn check(library: &FabricLibrary, what: &str, result: c_int) -> Result<(), String> {
    if result == 0 { Ok(()) } else { Err(format!("{what}: {}", library.text_of(-result))) }
}

/// Description of an endpoint that libfabric allocated.
#[derive(Debug)]
pub struct InfoList(pub NonNull<FabricInfo>, &'static FabricLibrary);

impl Drop for InfoList {
    fn drop(&mut self) {
        // SAFETY: libfabric has allocated it, and it was not freed.
        unsafe { (self.1.freeinfo)(self.0.as_ptr()) };
    }
}

/// Finds a provider's endpoint at an address of this host.
pub fn find(library: &'static FabricLibrary, provider: &str, at: IpAddr) -> Result<InfoList, String> {
    let name = CString::new(provider).map_err(|_| "a provider's name has no zero byte".to_owned())?;
    let node = CString::new(at.to_string()).map_err(|error| error.to_string())?;
    // SAFETY: without an argument `fi_dupinfo` allocates a description with all its parts.
    let hints = NonNull::new(unsafe { (library.dupinfo)(null()) }).ok_or("no memory")?;
    let hints = InfoList(hints, library);
    // SAFETY: all parts of the description are there; its strings are freed by `free`.
    unsafe {
        let of = &mut *hints.0.as_ptr();
        of.caps = FI_MSG;
        of.mode = FI_CONTEXT | FI_CONTEXT2;
        (*of.ep_attr).kind = FI_EP_RDM;
        (*of.tx_attr).msg_order = FI_ORDER_SAS;
        (*of.rx_attr).msg_order = FI_ORDER_SAS;
        (*of.domain_attr).threading = FI_THREAD_SAFE;
        (*of.domain_attr).resource_mgmt = FI_RM_ENABLED;
        (*of.domain_attr).mr_mode = MEMORY_MODES;
        (*of.fabric_attr).prov_name = libc::strdup(name.as_ptr());
    }
    let get = |node: Option<&CString>| {
        let flags = if node.is_some() { FI_SOURCE | FI_NUMERICHOST } else { 0 };
        let (node, mut found) = (node.map_or(null(), |node| node.as_ptr()), null_mut());
        // SAFETY: strings end with zero bytes; the hints were allocated by libfabric.
        let result = unsafe { (library.getinfo)(VERSION, node, null(), flags, hints.0.as_ptr(), &mut found) };
        match NonNull::new(found) {
            Some(found) if result == 0 => Ok(InfoList(found, library)),
            _ => Err(result),
        }
    };
    let failed = |error: c_int| match -error {
        FI_ENODATA => format!(
            "libfabric has no provider {provider:?} at {at} (reliable datagrams that keep their order); \
             fi_info lists those of this host"
        ),
        _ => format!("fi_getinfo: {}", library.text_of(-error)),
    };
    let found = match get(Some(&node)) {
        Err(error) if -error == FI_ENODATA => {
            let found = get(None).map_err(failed)?;
            // SAFETY: a description that libfabric made.
            let format = unsafe { found.0.as_ref().addr_format };
            // One with IP addresses would listen at another address than the link's.
            if IP_FORMATS.contains(&format) { Err(failed(error)) } else { Ok(found) }
        }
        other => other.map_err(failed),
    }?;
    // SAFETY: a description that libfabric made, with all its parts.
    let longest = unsafe { (*found.0.as_ref().ep_attr).max_msg_size };
    if longest < MESSAGE {
        return Err(format!("{provider}: messages of at most {longest} bytes; {MESSAGE} are needed"));
    }
    Ok(found)
}
