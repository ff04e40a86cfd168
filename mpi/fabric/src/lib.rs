//! A libfabric provider that carries MPI programs over Towpath: `libtowpath-fi.so`.
//!
//! [`device`] is the device: endpoints in shared memory, with tagged and untagged messages,
//! one-sided operations and matching. It is always built. With the feature `fabric` libfabric's
//! interface to it is built too, from libfabric's headers; then the shared object exports
//! `fi_prov_ini` and nothing else.
#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

/// Writes a line to standard error, if that is possible: a program may have closed it,
/// and goes on.
macro_rules! remark {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = std::io::stderr().lock().write_all(format!("{}\n", format_args!($($text)*)).as_bytes());
    }};
}
pub(crate) use remark;

pub mod device;
#[cfg(feature = "fabric")]
mod ofi;
