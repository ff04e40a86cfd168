//! Opening of endpoints: the result of `fi_getinfo`, and the fabric and the domain that
//! are opened with it.

use std::ffi::{CString, c_int};
use std::ptr::{null, null_mut};
use std::rc::Rc;

use super::sys::*;
use super::{call, close, library};

/// Everything that the provider offers.
pub const ALL: u64 = (FI_TAGGED | FI_MSG | FI_RMA | FI_ATOMIC | FI_MULTI_RECV) as u64
    | FI_DIRECTED_RECV
    | FI_SOURCE
    | FI_RMA_EVENT;

/// Options for opening endpoints.
#[derive(Clone)]
pub struct Options {
    pub caps: u64,
    pub threading: fi_threading,
    pub av: fi_av_type,
    pub format: fi_cq_format,
    pub wait: fi_wait_obj,
    /// Sends and receives are reported to queues bound with `FI_SELECTIVE_COMPLETION`.
    pub selective: bool,
    /// All endpoints in one domain.
    pub together: bool,
    /// Environment for the provider's settings, where the process has one thread;
    /// elsewhere `settings.rs` starts one that has them.
    pub environment: Vec<(&'static str, String)>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            caps: ALL,
            threading: FI_THREAD_SAFE,
            av: FI_AV_TABLE,
            format: FI_CQ_FORMAT_TAGGED,
            wait: FI_WAIT_NONE,
            selective: false,
            together: false,
            environment: Vec::new(),
        }
    }
}

/// Result of `fi_getinfo`, or its error.
pub struct Info(pub *mut fi_info);

impl Info {
    pub fn new(options: &Options) -> Result<Info, c_int> {
        Info::asked(|hints| {
            hints.caps = options.caps;
            // SAFETY: `fi_allocinfo` gives hints with all their parts.
            unsafe {
                (*hints.ep_attr).type_ = FI_EP_RDM;
                (*hints.domain_attr).threading = options.threading;
                (*hints.domain_attr).av_type = options.av;
            }
        })
    }

    /// Asks with changed hints.
    pub fn asked(change: impl FnOnce(&mut fi_info)) -> Result<Info, c_int> {
        Info::asked_as(1 << 16 | 17, change)
    }

    /// Asks as a program of this version of the interface.
    pub fn asked_as(version: u32, change: impl FnOnce(&mut fi_info)) -> Result<Info, c_int> {
        Info::named_as(version, None, None, 0, change)
    }

    /// Information on a node and a service, either of which may be missing.
    pub fn named(
        node: Option<&str>,
        service: Option<&str>,
        flags: u64,
        change: impl FnOnce(&mut fi_info),
    ) -> Result<Info, c_int> {
        Info::named_as(1 << 16 | 17, node, service, flags, change)
    }

    fn named_as(
        version: u32,
        node: Option<&str>,
        service: Option<&str>,
        flags: u64,
        change: impl FnOnce(&mut fi_info),
    ) -> Result<Info, c_int> {
        let [node, service] =
            [node, service].map(|name| name.map(|name| CString::new(name).expect("no zero byte")));
        let [node, service] =
            [&node, &service].map(|name| name.as_ref().map_or(null(), |name| name.as_ptr()));
        let library = library();
        // SAFETY: hints of libfabric's own making, and a place for the answer.
        unsafe {
            let hints = (library.dupinfo)(null());
            change(&mut *hints);
            let mut info = null_mut();
            let result = (library.getinfo)(version, node, service, flags, hints, &raw mut info);
            (library.freeinfo)(hints);
            if result == 0 { Ok(Info(info)) } else { Err(result) }
        }
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: libfabric made it, and it is not used any more.
        unsafe { (library().freeinfo)(self.0) }
    }
}

/// A fabric and a domain. Closed when dropped.
pub struct Home {
    pub fabric: *mut fid_fabric,
    pub domain: *mut fid_domain,
    pub info: Info,
}

impl Home {
    pub fn new(options: &Options) -> Rc<Home> {
        Home::of(Info::new(options).expect("the provider offers it"), options)
    }

    /// Opens a home with a result of `fi_getinfo`.
    pub fn of(info: Info, options: &Options) -> Rc<Home> {
        assert!(options.environment.is_empty() || is_one_thread(), "other threads may read the environment");
        let (mut fabric, mut domain) = (null_mut(), null_mut());
        // SAFETY: what libfabric gave, and places for the answers; where the environment is changed
        // there is no other thread.
        unsafe {
            for (name, value) in &options.environment {
                std::env::set_var(name, value);
            }
            assert_eq!((library().fabric)((*info.0).fabric_attr, &raw mut fabric, null_mut()), 0);
            assert_eq!(call!(fabric, ops, domain, info.0, &raw mut domain, null_mut()), 0);
            for (name, _) in &options.environment {
                std::env::remove_var(name);
            }
        }
        Rc::new(Home { fabric, domain, info })
    }
}

/// Returns whether this process has one thread.
fn is_one_thread() -> bool {
    std::fs::read_dir("/proc/self/task").expect("/proc is mounted").count() == 1
}

impl Drop for Home {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(close(self.domain), 0);
            assert_eq!(close(self.fabric), 0);
        }
    }
}
